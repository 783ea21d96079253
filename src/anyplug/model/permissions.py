"""The permission vocabulary, tiers and warnings. Pure.

A permission may carry a scope: `filesystem:read:~/notes`, `network:*:443`, `shell:exec:git`, `env:NAME`,
`tools:call:NAME`. A relative path is relative to the project, the folder in which the host runs.

Most permissions are about the machine, and the kernel enforces them. Those in OVER_OTHERS are about other plugins and
the agent; the host enforces them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from anyplug.model.late_patterns import late

KINDS: dict[str, str] = {
    "filesystem:read": "read files on this machine",
    "filesystem:write": "create, change and delete files",
    "network": "talk to other machines",
    "shell:exec": "run other programs",
    "clipboard": "read and write the clipboard",
    "notifications": "show notifications",
    "env": "see an environment variable that is withheld by default",
    "tools:call": "call other plugins' tools, which run with their own permissions",
    "events:observe": "see every call with its arguments and result, and the agent's turns",
    "calls:guard": "see calls, turns and messages before they happen, and refuse them",
    "calls:rewrite": "change the arguments of other plugins' calls",
    "text:rewrite": "change the agent's messages before you read them, and its system prompt",
}
CALL, OBSERVE, GUARD = "tools:call", "events:observe", "calls:guard"
REWRITE_CALLS, REWRITE_TEXT = "calls:rewrite", "text:rewrite"
# The defaults of zot extensions before permissions over other plugins existed.
ASKED_BEFORE = ("filesystem:read", "filesystem:write:.", "network", "shell:exec")
OVER_OTHERS = (CALL, OBSERVE, GUARD, REWRITE_CALLS, REWRITE_TEXT)
ALIASES: dict[str, tuple[str, ...]] = {
    "filesystem": ("filesystem:read", "filesystem:write"),
    "shell": ("shell:exec",),
}
HARMLESS = frozenset({"filesystem:read"})  # tier 1: never asks after approval
WITH_SCOPE = ("filesystem:read", "filesystem:write", "network", "shell:exec", "env", CALL)
LOCAL = "unix"  # the scope of `network` that is not about other machines
MOST_LETTERS = 4  # outside ASCII, that are named in a description
LARGEST_PORT = 65535
# Effects that people would not expect.
REALLY = {
    "filesystem:write": "opens all your files except those that other programs run later, such as ~/.bashrc and "
    ".git/hooks. A folder is usually enough: `filesystem:write:PATH`",
    "clipboard": "lets it read whatever you copy, passwords included, while it runs",
    "network:unix": "reaches every program that listens on this machine: the session bus, key agents, Docker. "
    "Through some of these it can do whatever you can",
    "tools:call": (
        "asks you before it uses another plugin. `tools:call:NAME` allows one tool, and does not ask if that tool's "
        "plugin was approved with --always"
    ),
    "calls:rewrite": "lets it decide what other plugins do with their permissions. The audit shows what it changed",
}
HOSTS = "`network:api.example.com:443`, `network:192.0.2.1:443` or `network:[2001:db8::1]:443`"
BY_PROXY = (
    "is enforced by a proxy: programs must use HTTP_PROXY and HTTPS_PROXY, which are set for them. Everything else "
    "is refused: other connections, UDP, name lookups"
)
_VARIABLE = late(r"[A-Za-z_][A-Za-z0-9_]*")

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = late(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_NUMBER = late(r"[0-9]+|0x[0-9a-f]*")  # as a last label, it makes programs parse the whole name as an address


class Destination(NamedTuple):
    """A host that a plugin may connect to."""

    host: str  # in its canonical spelling
    port: int  # 0 for every port


def kind(permission: str) -> str:
    """Return the permission without its scope; empty if it is unknown, also if its scope is missing after a colon."""
    if permission in KINDS:
        return permission
    return next((known for known in KINDS if permission.startswith(start := f"{known}:") and permission != start), "")


def normalise(permissions: list[str]) -> tuple[str, ...]:
    """Replace aliases and drop duplicates, keeping the order."""
    return tuple(dict.fromkeys(name for given in permissions for name in ALIASES.get(given, (given,))))


def tier(permissions: tuple[str, ...]) -> int:
    """Return the tier: 1 if everything is harmless, else 2."""
    return 1 if all(kind(permission) in HARMLESS for permission in permissions) else 2


def warning(permissions: tuple[str, ...]) -> str:
    """Return a warning about a dangerous combination; empty if there is none."""
    if "shell:exec" in permissions and "network" in map(kind, permissions):
        return "it can run any program and use the network: together, that is everything you can do yourself"
    return ""


def may(granted: tuple[str, ...], permission: str) -> bool:
    """Return whether grants include a permission over other plugins. `calls:rewrite` includes the right to refuse."""
    return permission in granted or (permission == GUARD and REWRITE_CALLS in granted)


def may_call(granted: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Return whether grants allow a plugin to call another plugin's tool; `names` are all names of that tool."""
    return CALL in granted or names_tool(granted, names)


def names_tool(granted: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Return whether grants name exactly the tool that a plugin calls."""
    return any(f"{CALL}:{name}" in granted for name in names)


def named(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the grants of a folder named for one run: everything it asks for, and for a guard also rewriting."""
    rewrites = (REWRITE_CALLS, REWRITE_TEXT) if GUARD in asked else ()
    return tuple(dict.fromkeys((*asked, *rewrites)))


def lent(to: tuple[str, ...], by: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a plugin with the grants `by` may do that its caller, with the grants `to`, may not."""
    return tuple(grant for grant in by if grant not in to and kind(grant) not in to)


def carried_over(granted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the grants of an extension that was approved before permissions over other plugins existed.

    A guard must not fall silent because of an update, so it may still refuse. One that was granted everything it asked
    for also keeps the rest of today's defaults; one that was granted less loses them. No extension keeps
    `calls:rewrite`: a rewrite without it refuses the call, and the message names the missing grant.
    """
    kept = (CALL, OBSERVE, GUARD, REWRITE_TEXT) if set(granted) >= set(ASKED_BEFORE) else (GUARD,)
    return tuple(dict.fromkeys((*granted, *kept)))


def environment_names(permissions: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the granted environment variables."""
    return frozenset(name.removeprefix("env:") for name in permissions if name.startswith("env:"))


def describe(permission: str) -> str:
    """Describe what a permission allows."""
    known = kind(permission)
    if not known:
        return "(unknown permission)"
    scope = scope_of(permission)
    if known == CALL and scope:
        return f"call the tool {scope} of another plugin, which runs with its own permissions"
    if known != "network" or not scope:
        return KINDS[known] + (f": {scope}" if scope else "")
    if scope == LOCAL:
        return "talk to programs on this machine through Unix sockets"
    host, port = _address(scope)
    if host in {"", "*"}:
        return f"talk to port {port} of any machine over TCP, without name lookups"
    return f"talk to {_shown_host(host)}" + (f", port {port}" if port else "") + ", through a proxy"


def really(permission: str) -> str:
    """Describe what a permission opens if its name is misleading; else empty."""
    if is_by_host(permission):
        return BY_PROXY
    is_whole = scope_of(permission) in {"", "~", "/"}
    return REALLY.get(permission) or REALLY.get(kind(permission) if is_whole else "", "")


def scope_of(permission: str) -> str:
    """Return the scope; empty if it covers everything."""
    return permission.removeprefix(kind(permission)).removeprefix(":")


def tool_of(permission: str) -> str:
    """Return the tool that a permission to call names; empty if it names none."""
    return scope_of(permission) if kind(permission) == CALL else ""


def is_by_host(permission: str) -> bool:
    """Return whether it names hosts, which the kernel cannot enforce."""
    scope = scope_of(permission)
    return kind(permission) == "network" and scope not in {"", LOCAL} and _address(scope)[0] not in {"", "*"}


def destination(permission: str) -> Destination | None:
    """Return the host that a permission names; None if it names none or an invalid one."""
    if not is_by_host(permission) or fault(permission)[0]:
        return None
    host, port = _address(scope_of(permission))
    return Destination(host_name(host), int(port or 0))


def may_reach(granted: tuple[str, ...], host: str, port: int) -> bool:
    """Return whether grants allow a TCP connection to a host, however its name is spelled."""
    name = host_name(host)
    for permission in granted:
        scope = scope_of(permission)
        if kind(permission) != "network" or scope == LOCAL or (scope and fault(permission)[0]):
            continue
        if not scope or destination(permission) in {Destination(name, port), Destination(name, 0)}:
            return True
        if not is_by_host(permission) and int(_address(scope)[1]) == port:
            return True
    return False


def to(host: str, port: int) -> str:
    """Return the permission to connect to a host."""
    return f"network:{written(host, port)}"


def written(host: str, port: int) -> str:
    """Format a host and port; without the port if it is 0."""
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")


def host_name(text: str) -> str:
    """Return the canonical spelling of a host name or address; empty if it is invalid."""
    if ":" in text or text.replace(".", "").isdigit():
        return _ip_address(text)
    name = text.removesuffix(".").lower()
    if not name.isascii():
        name = _in_ascii(name)
    return name if _NAME.fullmatch(name) and not _NUMBER.fullmatch(name.rpartition(".")[2]) else ""


def fault(permission: str) -> tuple[str, str]:
    """Return what is wrong with a permission that a person wrote, and how to fix it; empty if it is valid."""
    if permission in ALIASES:
        return "", ""
    if "\0" in permission:
        return f"'{permission}' has a NUL character", "no path, host or variable has one; write it without"
    known = kind(permission)
    scope = scope_of(permission)
    if not known or permission.endswith(":") or (known == "env" and not scope):
        return f"there is no permission '{permission}'", meant(permission, KINDS)
    if scope and known not in WITH_SCOPE:
        return f"'{known}' takes no scope, but '{permission}' has one", f"write `{known}`"
    if known == "network" and scope not in {"", LOCAL}:
        return _fault_of_address(permission, scope)
    if known.startswith("filesystem") and scope.startswith("~") and scope[1:2] not in {"", "/"}:
        return (f"'{permission}' names another user's home folder with ~"), (
            "write the full path; ~ alone is your own home folder"
        )
    if known == "env" and not _VARIABLE.fullmatch(scope):
        return f"'{scope}' is not a valid name for an environment variable", "write `env:NAME`"
    return "", ""


def meant(permission: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown permission."""
    from difflib import get_close_matches  # only needed after a typo

    names = list(known)
    near = get_close_matches(permission, names, n=1)
    listed = ", ".join(f"{name}:NAME" if name == "env" else name for name in names)
    return (f"did you mean {near[0]}? " if near else "") + f"the known ones are {listed}"


def _fault_of_address(permission: str, scope: str) -> tuple[str, str]:
    host, port = _address(scope)
    if host in {"", "*"} and not port:
        return f"'{permission}' names no port", "write `network:*:443`, or `network` for every port"
    if port == "*":
        return (
            f"'{permission}' means every port"
        ), f"write `network`{'' if host in {'', '*'} else f' or `network:{host}`'}"
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= LARGEST_PORT):
        return f"'{port}' in '{permission}' is not a port", f"a port is a number from 1 to {LARGEST_PORT}"
    if host not in {"", "*"} and not host_name(host):
        return (
            f"'{host}' in '{permission}' is not a host name or address",
            f"write {HOSTS}; non-ASCII letters as `xn--…`; patterns are not supported",
        )
    return "", ""


def _address(scope: str) -> tuple[str, str]:
    """Split HOST:PORT, HOST, *:PORT, PORT or [IPv6]:PORT."""
    if scope.startswith("["):
        host, _, port = scope[1:].partition("]")
        return host, port.removeprefix(":")
    host, colon, port = scope.rpartition(":")
    return (host, port) if colon or scope.isdigit() else (scope, "")


def _shown_host(host: str) -> str:
    """Return a host as resolvers read it; of letters outside ASCII also which they are: some look like others."""
    name = host_name(host)
    if not name or "xn--" not in name:
        return host
    import unicodedata  # takes a millisecond to import, and few permissions need it

    try:
        text = name.encode("ascii").decode("idna")
    except UnicodeError:
        return name
    others = [letter for letter in dict.fromkeys(text) if not letter.isascii()]
    named = [f"{letter} is {unicodedata.name(letter, hex(ord(letter)))}" for letter in others[:MOST_LETTERS]]
    return f"{name} ({text}: {', '.join(named)}{', and others' if len(others) > MOST_LETTERS else ''})"


def _ip_address(text: str) -> str:
    import ipaddress  # takes 5 ms to import, and few permissions need it

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    address = getattr(address, "ipv4_mapped", None) or address
    return "" if address.is_unspecified or "%" in text else str(address)


def _in_ascii(name: str) -> str:
    """Convert a name to the ASCII form that resolvers use; empty if IDNA 2003 and 2008 differ about it."""
    try:
        encoded = name.encode("idna")
        return encoded.decode("ascii") if encoded.decode("idna") == name else ""
    except UnicodeError:
        return ""
