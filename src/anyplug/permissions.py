"""The vocabulary of permissions, their tiers, and what a person should be warned of. Pure.

A permission may carry a scope: `filesystem:read:~/notes`, `network:*:443`, `shell:exec:git`, `env:NAME`. A path that
is not absolute is one in the project, the folder in which the host runs.
"""

import re

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
WITH_SCOPE = ("filesystem:read", "filesystem:write", "network", "shell:exec", "env")
LOCAL = "unix"  # the scope of `network` that is not about other machines
LARGEST_PORT = 65535
# What people hope for and a grant does not give, because the kernel knows no such thing.
REALLY = {
    "clipboard": "opens nothing by itself. A program that reaches the desktop's clipboard needs `shell:exec:PROGRAM` "
    "(xclip, wl-paste) and `network:unix`",
    "notifications": "opens nothing by itself. `notify-send` needs `shell:exec:notify-send` and `network:unix`",
    "network:unix": "reaches every program that listens on this machine: the session bus, key agents, Docker. "
    "Through some of these it can do whatever you can",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    if "shell:exec" in permissions and "network" in map(kind, permissions):
        return "it can run any program and talk to the network: together that is everything you can do yourself"
    return ""


def environment_names(permissions: tuple[str, ...]) -> frozenset[str]:
    """Give the environment variables that are granted by name."""
    return frozenset(name.removeprefix("env:") for name in permissions if name.startswith("env:"))


def describe(permission: str) -> str:
    """Say in words what a permission allows."""
    known = kind(permission)
    if not known:
        return "(unknown permission)"
    scope = scope_of(permission)
    if known != "network" or not scope:
        return KINDS[known] + (f": {scope}" if scope else "")
    if scope == LOCAL:
        return "talk to programs on this machine, by sockets that have a path or a name"
    host, port = _address(scope)
    if host in {"", "*"}:
        return f"talk to port {port} of any machine, over TCP; names are not looked up"
    return f"talk to {host}" + (f", port {port}" if port else "")


def really(permission: str) -> str:
    """Say what a permission opens, where that is another than its name makes one think; else empty."""
    return REALLY.get(permission) or REALLY.get(kind(permission) if not scope_of(permission) else "", "")


def scope_of(permission: str) -> str:
    """Give what follows the permission's own name; empty if it is for everything."""
    return permission.removeprefix(kind(permission)).removeprefix(":")


def is_by_host(permission: str) -> bool:
    """Whether it names machines, which no kernel can hold a program to."""
    scope = scope_of(permission)
    return kind(permission) == "network" and scope not in {"", LOCAL} and _address(scope)[0] not in {"", "*"}


def fault(permission: str) -> tuple[str, str]:
    """Say what is wrong with a permission that a person wrote, and how it would be right; empty if nothing is."""
    if permission in ALIASES:
        return "", ""
    known = kind(permission)
    scope = scope_of(permission)
    if not known or permission.endswith(":") or (known == "env" and not scope):
        names = ", ".join(f"{name}:NAME" if name == "env" else name for name in KINDS)
        return f"there is no permission '{permission}'", f"the known ones are {names}"
    if scope and known not in WITH_SCOPE:
        return f"'{known}' has no scope, but '{permission}' gives it one", f"write `{known}`"
    if known == "network" and scope not in {"", LOCAL}:
        return _fault_of_address(permission, scope)
    if known.startswith("filesystem") and scope.startswith("~") and scope[1:2] not in {"", "/"}:
        return f"'{permission}' names another user's folder by ~", "write the whole path; ~ alone is your own folder"
    if known == "env" and not _VARIABLE.fullmatch(scope):
        return f"'{scope}' is no name of an environment variable", "write `env:NAME`"
    return "", ""


def _fault_of_address(permission: str, scope: str) -> tuple[str, str]:
    host, port = _address(scope)
    if host in {"", "*"} and not port:
        return f"'{permission}' names no port", "write `network:*:443`, or `network` for every port"
    if port == "*":
        return f"'{permission}' is every port", f"write `network`{'' if host in {'', '*'} else f' or `network:{host}`'}"
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= LARGEST_PORT):
        return f"'{port}' in '{permission}' is no port", f"a port is a number from 1 to {LARGEST_PORT}"
    return "", ""


def _address(scope: str) -> tuple[str, str]:
    """Divide HOST:PORT, HOST, *:PORT, PORT or [IPv6]:PORT."""
    if scope.startswith("["):
        host, _, port = scope[1:].partition("]")
        return host, port.removeprefix(":")
    host, colon, port = scope.rpartition(":")
    return (host, port) if colon or scope.isdigit() else (scope, "")
