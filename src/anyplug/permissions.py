"""The vocabulary of permissions, their tiers, and what a person should be warned of. Pure.

A permission may carry a scope: `filesystem:read:~/notes`, `network:api.example.com:443`, `env:NAME`.
"""

KINDS: dict[str, str] = {
    "filesystem:read": "read files on this machine",
    "filesystem:write": "create, change and delete files",
    "network": "talk to other machines",
    "shell:exec": "run other programs",
    "clipboard": "read and write the clipboard",
    "notifications": "show notifications",
    "env": "see an environment variable that looks like a secret",
}
ALIASES: dict[str, tuple[str, ...]] = {
    "filesystem": ("filesystem:read", "filesystem:write"),
    "shell": ("shell:exec",),
}
HARMLESS = frozenset({"filesystem:read"})  # tier 1: never asks after approval


def kind(permission: str) -> str:
    """Give the permission without its scope; empty if it is not one that we know."""
    if permission in KINDS:
        return permission
    return next((known for known in KINDS if permission == known or permission.startswith(f"{known}:")), "")


def normalise(permissions: list[str]) -> tuple[str, ...]:
    """Replace aliases, drop repetitions, keep the order."""
    return tuple(dict.fromkeys(name for given in permissions for name in ALIASES.get(given, (given,))))


def tier(permissions: tuple[str, ...]) -> int:
    """Give the tier: 1 if all is harmless, else 2."""
    return 1 if all(kind(permission) in HARMLESS for permission in permissions) else 2


def warning(permissions: tuple[str, ...]) -> str:
    """Say what is dangerous in the combination; empty if nothing is."""
    if {"shell:exec", "network"} <= {kind(permission) for permission in permissions}:
        return "it can run any program and talk to the network: together that is everything you can do yourself"
    return ""


def environment_names(permissions: tuple[str, ...]) -> frozenset[str]:
    """Give the environment variables that are granted by name."""
    return frozenset(name.removeprefix("env:") for name in permissions if name.startswith("env:"))


def describe(permission: str) -> str:
    """Say in words what a permission allows."""
    known = kind(permission)
    scope = permission.removeprefix(known).lstrip(":")
    return (KINDS[known] + (f": {scope}" if scope else "")) if known else "(unknown permission)"
