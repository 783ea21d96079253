"""Requests to the proxy, and its refusals. Pure.

Two forms of HTTP/1 are supported, with one request per connection:

    CONNECT example.org:443 HTTP/1.1            then bytes are forwarded both ways
    GET http://example.org/path HTTP/1.1        forwarded as `GET /path`, and nothing after it

What is forwarded is rebuilt from the parsed request, so that the server cannot interpret it differently.
"""

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from anyplug.model import permissions

TUNNEL = "CONNECT"
OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"
END = b"\r\n\r\n"  # of a head
LARGEST_HEAD = 1 << 16  # bytes
HTTP_PORT = 80
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "WSS_PROXY")
# For us alone, or about this connection only.
NOT_PASSED_ON = frozenset(
    {"host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "upgrade", "content-length",
     "transfer-encoding"}
)  # fmt: skip

_START = re.compile(r"([A-Z]{1,32}) ([^\x00-\x20\x7f]+) (HTTP/1\.[01])")
_TARGET = re.compile(r"(?i:http)://([^/?#]+)([^#]*)(?:#.*)?")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:@\[\]]+)(?::([0-9]{1,5}))?")
_NOT_SHOWN = re.compile(r"[^ -~]")  # in the first line of a response
_LENGTH = re.compile(r"[0-9]{1,18}")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*)")


class Request(NamedTuple):
    """A parsed request."""

    host: str  # in canonical spelling
    port: int
    head: bytes = b""  # to be sent first; empty for a tunnel
    length: int = 0  # bytes of the body, which follows
    is_chunked: bool = False

    @property
    def is_tunnel(self) -> bool:
        """Whether arbitrary bytes are forwarded both ways."""
        return not self.head


class Refusal(Exception):
    """A refused request; the text tells why, `cure` what to do."""

    def __init__(self, status: int, why: str, cure: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.cure = cure

    def answer(self) -> bytes:
        """Return it as a response; many programs show only its first line."""
        body = f"anyplug: {self}\n" + (f"{self.cure}\n" if self.cure else "")
        reason = _NOT_SHOWN.sub("?", str(self))
        return (
            f"HTTP/1.1 {self.status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n{body}"
        ).encode()


def not_granted(owner: str, host: str, port: int) -> Refusal:
    """Return the refusal of a host that was not granted, and how to grant it."""
    wanted = permissions.to(host, port)
    return Refusal(403, f"{wanted} is not granted", f"To grant it: {_command(owner, wanted)}")


def not_public(owner: str, host: str, port: int, addresses: list[str]) -> Refusal:
    """Return the refusal of a name that resolves to a non-public address."""
    why = f"{host} resolves to {', '.join(addresses)}, but a name may only resolve to a public address"
    commands = " or ".join(_command(owner, permissions.to(address, port)) for address in addresses)
    return Refusal(403, why, f"To allow it, grant the address, too: {commands}")


def read(head: bytes) -> Request:
    """Parse the head of a request, including the empty line at its end. Raises Refusal."""
    first, *lines = head.decode("utf-8", "surrogateescape").removesuffix("\r\n\r\n").split("\r\n")
    start = _START.fullmatch(first)
    if start is None:
        raise Refusal(400, "this proxy speaks HTTP/1.1")
    method, target, version = start.groups()
    if method == TUNNEL:
        host, port = _authority(target, 0)
        return Request(host, port)
    found = _TARGET.fullmatch(target)
    if found is None:
        raise Refusal(400, "this is a proxy: send `CONNECT host:port` or `GET http://host/path`")
    authority, path = found.groups()
    host, port = _authority(authority, HTTP_PORT)
    fields = _fields(lines)
    length, is_chunked = _body(fields)
    left_out = _left_out(fields)
    passed_on = [
        f"{method} {path if path.startswith('/') else f'/{path}'} {version}",
        f"Host: {permissions.written(host, 0 if port == HTTP_PORT else port)}",
        *(f"{name}: {value}" for name, value in fields if name.lower() not in left_out),
        *(["Transfer-Encoding: chunked"] if is_chunked else [] if length is None else [f"Content-Length: {length}"]),
        "Connection: close",
    ]
    written = "\r\n".join((*passed_on, "", "")).encode("utf-8", "surrogateescape")
    return Request(host, port, written, length or 0, is_chunked)


def environment(given: Mapping[str, str], port: int) -> dict[str, str]:
    """Return the variables that point a program to the proxy, without the user's own proxies."""
    kept = {name: value for name, value in given.items() if not name.upper().endswith("_PROXY")}
    where = f"http://127.0.0.1:{port}"
    own = dict.fromkeys(VARIABLES, where) | {"NO_PROXY": ""}
    return kept | own | {name.lower(): value for name, value in own.items()} | {"NODE_USE_ENV_PROXY": "1"}


def _authority(text: str, default: int) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    host = permissions.host_name(found[1].strip("[]")) if found else ""
    port = int(found[2] or default) if found else 0
    if not host or not 0 < port <= permissions.LARGEST_PORT:
        raise Refusal(400, "invalid host and port")
    return host, port


def _fields(lines: list[str]) -> list[tuple[str, str]]:
    found = [_FIELD.fullmatch(line) for line in lines if line]
    if None in found:
        raise Refusal(400, "a line of the head is not `Name: value`")
    return [(field[1], field[2].rstrip()) for field in found if field is not None]


def _left_out(fields: list[tuple[str, str]]) -> frozenset[str]:
    named = (value for name, value in fields if name.lower() == "connection")
    return NOT_PASSED_ON | {word.strip().lower() for value in named for word in value.split(",")}


def _body(fields: list[tuple[str, str]]) -> tuple[int | None, bool]:
    """Return the length of the body, None if there is none, and whether it is chunked."""
    lengths = {value for name, value in fields if name.lower() == "content-length"}
    codings = [value.lower() for name, value in fields if name.lower() == "transfer-encoding"]
    if codings:
        if codings != ["chunked"] or lengths:
            raise Refusal(400, "the length of the body is ambiguous")
        return None, True
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(value) for value in lengths):
        raise Refusal(400, "the length of the body is ambiguous")
    return (int(lengths.pop()) if lengths else None), False


def _command(owner: str, permission: str) -> str:
    return shlex.join(["anyplug", "grant", owner, permission])
