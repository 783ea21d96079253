"""Listen on HOST:PORT: open sockets, accepted host names, and optionally TLS.

    127.0.0.1:8000   [::1]:8000   localhost:0   and, with `expose`, 0.0.0.0:8000 or a name of this machine

Anything but loopback is refused without `--expose`. A `Host` header must contain one of our names: with DNS rebinding,
a web page can make a browser send requests here, but only under the page's own name.

People's page has an origin of its own where it can. A browser keeps things for an origin, such as the service worker
of a program that listened there before, and that would see and answer what the page asks.
"""

import contextlib
import errno
import ipaddress
import os
import re
import secrets
import socket
import ssl
import sys
from collections.abc import Iterable
from typing import NoReturn

import msgspec

from anyplug.model.errors import ConfigError, UsageError

LOOPBACK = "127.0.0.1"
LOOPBACKS = ((socket.AF_INET, LOOPBACK), (socket.AF_INET6, "::1"))
ANYWHERE = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 - only compared
NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # a machine without IPv6
USUAL_PORTS = {"http": 80, "https": 443}
LAST_PORT = 65_535
BACKLOG = 256  # pending connections
PRIVILEGED = 1024  # ports below need privileges that nobody should have for this

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5})")


class Address(msgspec.Struct, frozen=True):
    """The requested address."""

    host: str  # without brackets
    port: int  # 0: any free port

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


class Listener:
    """Open sockets and their properties. Serving closes it; otherwise `close` does."""

    def __init__(
        self, sockets: list[socket.socket], address: Address, names: Iterable[str], tls: ssl.SSLContext | None
    ) -> None:
        self.sockets = sockets
        self.tls = tls
        self.scheme = "https" if tls else "http"
        self.port = int(sockets[0].getsockname()[1])
        self.address = Address(address.host, self.port)
        self.is_loopback = all(ipaddress.ip_address(each.getsockname()[0]).is_loopback for each in sockets)
        self._takes_literals = any(ipaddress.ip_address(each.getsockname()[0]).is_unspecified for each in sockets)
        bound = [each.getsockname()[0] for each in sockets]
        self._shown = Address(address.host if tls else bound[0], self.port)
        reached = [host for family, host in LOOPBACKS if host in bound or ANYWHERE[family] in bound]
        known = {*map(_bracketed, [address.host.lower(), *bound, *reached])}
        if len(reached) == len(LOOPBACKS) or self._takes_literals:  # otherwise another program may have this name, too
            known.add("localhost")
        self._names = {name.encode() for host in known for name in self._with_port(host)}
        self._given = {name.lower().encode() for given in names for name in self._as_given(given)}
        self._names |= self._given
        self.page = ""  # HOST:PORT of people's page, if it has an origin of its own

    @property
    def url(self) -> str:
        """The address for clients: in numbers, since programs and browsers look for a name at other addresses, too.

        With TLS it is the name, which is in the certificate, and nobody else can serve it.
        """
        return f"{self.scheme}://{self._shown}"

    @property
    def page_url(self) -> str:
        """The address of people's page."""
        return f"http://{self.page}" if self.page else self.url

    def open_page(self) -> None:
        """Listen at an own origin for people's page, unless other machines or a certificate need the named one."""
        if self.is_loopback and not self.tls:
            page = listen_afresh()
            self.sockets += page.sockets
            self.page = page.page
            self._names.add(self.page.encode())

    def may_enter_at(self, host: bytes) -> bool:
        """Return whether a link may be opened at an origin: a person's session belongs to it from then on."""
        if not self.page:
            return self.is_ours(host)
        return host == self.page.encode() or host.lower() in self._given

    @property
    def warnings(self) -> list[str]:
        """Warnings about the requested address."""
        if self.is_loopback or self.tls:
            return []
        danger = "anyone who can see the traffic can read the token, and use your tools with it"
        cure = "encrypt it with --tls-cert and --tls-key"
        return [f"{self.address} can be reached by other machines without encryption: {danger} ({cure})"]

    @property
    def origins(self) -> frozenset[bytes]:
        """The origins of the pages that we serve ourselves."""
        return frozenset(f"{self.scheme}://".encode() + name for name in self._names)

    def is_ours(self, host: bytes) -> bool:
        """Return whether a `Host` header names us."""
        if host in self._names or host.lower() in self._names:
            return True
        # Listening everywhere, we do not know our addresses; but with rebinding no page can have an address as its
        # name.
        return self._takes_literals and _is_literal(host, self.port)

    def close(self) -> None:
        """Stop listening."""
        for each in self.sockets:
            each.close()

    def _with_port(self, host: str) -> list[str]:
        with_port = f"{host}:{self.port}"
        return [with_port, host] if self.port == USUAL_PORTS[self.scheme] else [with_port]

    def _as_given(self, name: str) -> list[str]:
        """Return the host names that a setting means.

        Behind a proxy or a forwarded port, the port may be the default one.
        """
        has_port = name.rpartition(":")[2].isdigit() and not name.endswith("]")
        return [name] if has_port else [name, f"{name}:{self.port}"]


def parse_address(text: str) -> Address:
    """Parse HOST:PORT; raises UsageError."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > LAST_PORT:
        raise UsageError(
            f"'{text}' is not HOST:PORT", "write it like 127.0.0.1:8000 or [::1]:8000; port 0 means any free port"
        )
    return Address(found["host"].strip("[]"), int(found["port"]))


def listen(
    address: Address,
    *,
    expose: bool = False,
    names: Iterable[str] = (),
    certificate: str | None = None,
    key: str | None = None,
) -> Listener:
    """Open the sockets; raises UsageError or ConfigError. `names` are further accepted host names."""
    tls = _tls(certificate, key)
    found = _resolve(address)
    outside = [host for _, host in found if not ipaddress.ip_address(host).is_loopback]
    if outside and not expose:
        raise UsageError(
            f"{address} can be reached by other machines",
            "use 127.0.0.1 or localhost; to let other machines use your tools, add --expose and --tls-cert",
        )
    with contextlib.ExitStack() as undo:
        sockets: list[socket.socket] = []
        port = address.port
        for family, host in found:
            try:
                each = undo.enter_context(_opened(family, host, port))
            except OSError as error:
                if sockets and error.errno in NO_ADDRESS:
                    continue
                _fail(Address(host, port), error)
            sockets.append(each)
            port = int(each.getsockname()[1])  # the same for all addresses
        listener = Listener(sockets, address, names, tls)
        undo.pop_all()
    return listener


def listen_afresh(port: int = 0, *, names: Iterable[str] = ()) -> Listener:
    """Listen on loopback at an origin that no page had before; raises ConfigError.

    On Linux all of 127.0.0.0/8 is loopback. Elsewhere, and where Windows passes 127.0.0.1 on to us, only the port is
    new.
    """
    is_wide = sys.platform.startswith("linux") and "WSL_DISTRO_NAME" not in os.environ
    try:
        listener = listen(Address(_random_loopback() if is_wide else LOOPBACK, port), names=names)
    except UsageError:  # a network without the rest of 127.0.0.0/8
        listener = listen(Address(LOOPBACK, port), names=names)
    listener.page = str(listener.address)
    return listener


def _random_loopback() -> str:
    """Return one of 16 million addresses: not in 127.0.0.0/16, where programs have theirs, such as 127.0.0.53."""
    first, second, third = secrets.randbelow(254) + 1, secrets.randbelow(256), secrets.randbelow(254) + 1
    return f"127.{first}.{second}.{third}"


def _resolve(address: Address) -> list[tuple[socket.AddressFamily, str]]:
    if f".{address.host.lower().rstrip('.')}".endswith(".localhost"):
        return [*LOOPBACKS]  # browsers ask nobody where these names are, and try both
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"'{address.host}' is not an address of this machine: {getattr(error, 'strerror', None) or error}",
            "127.0.0.1 and localhost always work",
        ) from error
    kept = {str(where[0]): family for family, _, _, _, where in found}
    return sorted(((family, host) for host, family in kept.items()), key=lambda each: each[0] is socket.AF_INET6)


def _opened(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # With IPPROTO_TCP asyncio sets TCP_NODELAY; otherwise each answer waits 40 ms for an acknowledgement.
    each = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        _bind(each, host, port)
    except BaseException:
        each.close()
        raise
    return each


def _bind(each: socket.socket, host: str, port: int) -> None:
    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have just ended do not block the port
    if each.family is socket.AF_INET6:
        each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    each.setblocking(False)
    each.bind((host, port))
    each.listen(BACKLOG)  # here and not later: two processes may bind before one of them listens


def _fail(address: Address, error: OSError) -> NoReturn:
    if error.errno == errno.EADDRINUSE:
        raise ConfigError(
            f"{address} is in use by another program", "choose another port, or 0 for any free port"
        ) from error
    if error.errno == errno.EADDRNOTAVAIL:
        raise UsageError(
            f"'{address.host}' is not an address of this machine", "127.0.0.1 and localhost always work"
        ) from error
    if error.errno == errno.EACCES and address.port < PRIVILEGED:
        raise ConfigError(
            f"port {address.port} needs more privileges than you have", f"choose a port from {PRIVILEGED} upwards"
        ) from error
    raise ConfigError(f"cannot listen at {address}: {error.strerror}", "choose another address") from error


def _tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs a certificate and its key", "pass both --tls-cert and --tls-key")
    for path in (certificate, key):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", "check the path and its permissions") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # otherwise it asks at the terminal
    except ssl.SSLError as error:
        _explain(certificate, key, error)
    return context


def _explain(certificate: str, key: str, error: ssl.SSLError) -> NoReturn:
    if error.reason == "KEY_VALUES_MISMATCH":
        raise ConfigError(
            f"the key in {key} does not belong to the certificate in {os.path.basename(certificate)}",
            "pass the certificate and the key that was created with it",
        ) from error
    with open(key, "rb") as file:
        if b"ENCRYPTED" in file.read():
            raise ConfigError(
                f"the key in {key} has a passphrase",
                f"remove it, because nobody can type it when the server starts: `openssl pkey -in {key} -out "
                "plain.pem`",
            ) from error
    raise ConfigError(
        f"{certificate} and {key} are not a certificate and its key in PEM form",
        "they begin with -----BEGIN CERTIFICATE----- and -----BEGIN PRIVATE KEY-----",
    ) from error


def _is_literal(host: bytes, port: int) -> bool:
    name, _, given = host.decode("latin-1").rpartition(":")
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return given == str(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
