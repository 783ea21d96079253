"""The token that every HTTP request must carry. It is in `<home>/http-token`, and only the user may read it."""

import hmac
import os
import re
import secrets
import stat

from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.model.errors import ConfigError

TOKEN_BYTES = 32  # random bytes: nobody guesses 256 bits, so failed attempts need not be counted
LONGEST = 1024  # bytes read of the file; our tokens have 43
SCHEME = b"bearer "

_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]{16,512}=*")  # valid in the header, and long enough to be a secret


class Token:
    """A secret that a request must carry."""

    def __init__(self, value: str) -> None:
        self.value = value
        self._expected = value.encode()

    def is_carried_by(self, authorization: bytes) -> bool:
        """Return whether an `Authorization` header contains it, in constant time."""
        if authorization[: len(SCHEME)].lower() != SCHEME:
            return False
        return hmac.compare_digest(authorization[len(SCHEME) :].strip(), self._expected)


def read_token(home: Home) -> Token:
    """Return this home's token, creating it if there is none; raises ConfigError."""
    try:
        return _read(home.http_token)
    except FileNotFoundError:
        pass
    _write(home, replace=False)
    try:
        return _read(home.http_token)  # two processes may start at once: the file decides
    except FileNotFoundError as error:
        raise ConfigError(f"{home.http_token} was removed meanwhile", "start it again") from error


def renew_token(home: Home) -> Token:
    """Create a new token; processes started from now on refuse the old one. Raises ConfigError."""
    _write(home, replace=True)
    return _read(home.http_token)


def _read(path: str) -> Token:
    cure = "create a new one with `anyplug serve --http HOST:PORT --new-token`"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise ConfigError(f"{path} must belong to you and be readable and writable by nobody else", cure)
            value = file.read(LONGEST).strip()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", cure) from error
    if not _TOKEN.fullmatch(value):
        raise ConfigError(f"{path} does not contain a token", cure)
    return Token(value.decode())


def _write(home: Home, *, replace: bool) -> None:
    """Write a new token atomically, so that nobody reads half of it."""
    new = f"{home.http_token}.{secrets.token_hex(6)}"
    try:
        make_private(home.path)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
        try:
            if replace:
                os.rename(new, home.http_token)
            else:
                os.link(new, home.http_token)
        except FileExistsError:
            pass  # another process was first, and its token is as good
        finally:
            if os.path.lexists(new):
                os.unlink(new)
    except OSError as error:
        raise ConfigError(
            f"cannot write {home.http_token}: {error.strerror}", "check the folder's permissions, or pass --home"
        ) from error
