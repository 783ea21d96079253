"""The token that every request over HTTP must carry. It lies in `<home>/http-token`, and only the user may read it."""

import hmac
import os
import re
import secrets
import stat

from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.model.errors import ConfigError

TOKEN_BYTES = 32  # of randomness: nobody guesses 256 bits, so that failed attempts need not be counted
LONGEST = 1024  # bytes of the file that are read; a token of ours has 43
SCHEME = b"bearer "

_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]{16,512}=*")  # what may stand in the header, and long enough to be a secret


class Token:
    """A secret that a request either carries or does not."""

    def __init__(self, value: str) -> None:
        self.value = value
        self._expected = value.encode()

    def is_carried_by(self, authorization: bytes) -> bool:
        """Return whether an `Authorization` header has it; takes as long for a near miss as for a wild guess."""
        if authorization[: len(SCHEME)].lower() != SCHEME:
            return False
        return hmac.compare_digest(authorization[len(SCHEME) :].strip(), self._expected)


def read_token(home: Home) -> Token:
    """Return the token of this home, made if there is none; raises ConfigError."""
    try:
        return _read(home.http_token)
    except FileNotFoundError:
        pass
    _write(home, replace=False)
    try:
        return _read(home.http_token)  # two may start at once: what lies there counts
    except FileNotFoundError as error:
        raise ConfigError(f"{home.http_token} was removed meanwhile", "start again") from error


def renew_token(home: Home) -> Token:
    """Make another token; the old one is refused by whatever starts from now on. Raises ConfigError."""
    _write(home, replace=True)
    return _read(home.http_token)


def _read(path: str) -> Token:
    cure = "`anyplug serve --http HOST:PORT --new-token` makes another"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise ConfigError(f"{path} must be a file of yours that nobody else may read or write", cure)
            value = file.read(LONGEST).strip()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", cure) from error
    if not _TOKEN.fullmatch(value):
        raise ConfigError(f"{path} does not hold a token", cure)
    return Token(value.decode())


def _write(home: Home, *, replace: bool) -> None:
    """Put a new token in its place at once, so that nobody reads half of it."""
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
            f"cannot write {home.http_token}: {error.strerror}", "check the folder, or give --home"
        ) from error
