"""URIs, destructured as Go's net/url does."""

import ipaddress
import re
from typing import Any, Final

from anyplug.rego.values.rego_errors import BuiltinError, NotSupported

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_USERINFO: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*$")
_ZONE: Final = re.compile(r"[A-Za-z0-9._-]+")
_PORT: Final = re.compile(r":[0-9]*$")
_RAW: Final = frozenset("-_.~$&+,/:;=@") | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


def _unescape(text: str) -> str:
    broken = _BROKEN.search(text)
    if broken:
        msg = f'invalid URL escape "{broken[0]}"'
        raise BuiltinError(msg)
    if "%" not in text:
        return text
    raw = re.sub(
        rb"%([0-9A-Fa-f]{2})", lambda match: bytes((int(match[1], 16),)), text.encode("utf-8", "surrogateescape")
    )
    return raw.decode("utf-8", "surrogateescape")


def parse(text: str) -> dict[str, Any]:
    """Return the parts that it has. Raises BuiltinError."""
    try:
        return _parse(text)
    except BuiltinError as error:
        msg = f'parse "{text}": {error}'
        raise BuiltinError(msg) from None


def _parse(text: str) -> dict[str, Any]:  # noqa: C901 - the parts of a URI, in their order
    found: dict[str, Any] = {}
    rest, hash_, fragment = text.partition("#")
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in rest):  # noqa: PLR2004 - control characters
        msg = "net/url: invalid control character in URL"
        raise BuiltinError(msg)
    if not text:
        return found
    match = _SCHEME.match(rest)
    if match:
        found["scheme"] = match[1].lower()
        rest = rest[match.end() :]
    elif rest.startswith(":"):
        msg = "missing protocol scheme"
        raise BuiltinError(msg)
    rest, mark, query = rest.partition("?")
    if not rest.startswith("/"):
        if "scheme" in found:
            rest = ""
        elif ":" in rest.partition("/")[0]:
            msg = "first path segment in URL cannot contain colon"
            raise BuiltinError(msg)
    if rest.startswith("//") and ("scheme" in found or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        _authority(authority, found)
        rest = slash + path
    if rest:
        path = _unescape(rest)
        found["path"] = path
        found["raw_path"] = path if _default(path) == rest else rest
    if mark and query:
        found["raw_query"] = query
    if hash_ and fragment:
        found["fragment"] = _unescape(fragment)
    return found


def _authority(authority: str, found: dict[str, Any]) -> None:  # noqa: C901 - the parts of an authority, in their order
    user, at, host = authority.rpartition("@")
    if at:
        if not _USERINFO.match(user):
            msg = "net/url: invalid userinfo"
            raise BuiltinError(msg)
        _unescape(user)
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            msg = "missing ']' in host"
            raise BuiltinError(msg)
        hostname, port = host[1:end], host[end + 1 :]
        zone = hostname.find("%25")
        if zone >= 0:
            name = hostname[zone + 3 :]
            if not _ZONE.fullmatch(name):
                msg = "a URI with a zone of other than letters, digits, dots and dashes"
                raise NotSupported(msg)
            hostname = f"{hostname[:zone]}%{name}"
        elif "%" in hostname:
            msg = f'invalid URL escape "{hostname[hostname.find("%") :][:3]}"'
            raise BuiltinError(msg)
        try:
            ipaddress.IPv6Address(hostname)
        except ValueError:
            msg = f"invalid host: {hostname}"
            raise BuiltinError(msg) from None
    else:
        if host.count(":") > 1:
            msg = "a URI with several colons in its host, which versions of Go read differently"
            raise NotSupported(msg)
        name, colon, port = host.partition(":")
        port = colon + port
        hostname = _host(name)
    if (port and not _PORT.match(port)) or (port and not port.isascii()):
        msg = f'invalid port "{port}" after host'
        raise BuiltinError(msg)
    if hostname:
        found["hostname"] = hostname
    if port[1:]:
        found["port"] = port[1:]


def _host(name: str) -> str:
    """Check a name: only bytes beyond ASCII may be escaped in it."""
    broken = _BROKEN.search(name)
    if broken:
        msg = f'invalid URL escape "{broken[0]}"'
        raise BuiltinError(msg)
    for match in _ESCAPE.finditer(name):
        if int(match[1], 16) < 0x80:  # noqa: PLR2004 - ASCII
            msg = f'invalid URL escape "{match[0]}"'
            raise BuiltinError(msg)
    for char in name:
        if char in "[ \\^`{|}":
            msg = f'invalid character "{char}" in host name'
            raise BuiltinError(msg)
    return _unescape(name)


def _default(path: str) -> str:
    """Escape a path as Go does by default."""
    out = []
    for char in path:
        if char in _RAW and char not in "[]":
            out.append(char)
        else:
            out.extend(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
    return "".join(out)
