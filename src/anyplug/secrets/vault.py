"""Store secrets for plugins: in the system's keyring if there is one, else in a file.

`<home>/secrets.json` has {path: {variable: value}}, with null for a value that is in the keyring, because keyrings
cannot be listed. Only the user may read it. A secret belongs to one plugin, by the real path of its folder; whether the
plugin gets it is decided elsewhere.
"""

import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec

from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.model.errors import CallError, UsageError
from anyplug.model.hints import typed
from anyplug.model.late_patterns import late
from anyplug.model.types import Plugin

KEYRING_S = 60.0  # a person may have to unlock the keyring
LARGEST = 65_536  # bytes of a value; the kernel limits a variable to twice that
SERVICE = "anyplug"  # the name shown in the keyring

SIGN_IN = "ANYPLUG_SIGN_IN_"  # begins the names of what OAuth keeps, which no plugin is given
Place = Literal["keyring", "file"]
T = TypeVar("T")

_NAME = late(r"[A-Za-z_][A-Za-z0-9_]*")
_Kept = dict[str, dict[str, str | None]]
_Stamp = tuple[int, int, int]


class SecretsUnusable(CallError):
    """The stored secrets cannot be read or written."""

    code = "bad_config"


class Secrets:
    """The secrets of all plugins of one home."""

    def __init__(self, home: Home) -> None:
        self._path = home.secrets
        self._folder = home.path
        self._stamp: _Stamp | None = None
        self._kept: _Kept = {}
        self._fetched: dict[str, str] = {}  # cached from the keyring until something is stored

    def names(self, plugin: Plugin) -> list[str]:
        """List the variables that are stored for a plugin; raises SecretsUnusable."""
        return self.names_at(plugin.path)

    def names_at(self, path: str) -> list[str]:
        """List the variables that are stored for a path; raises SecretsUnusable."""
        return sorted(self._read().get(path, {}))

    def places(self, plugin: Plugin) -> dict[str, Place]:
        """Return where each of them is stored; raises SecretsUnusable."""
        kept = self._read().get(plugin.path, {})
        return {name: "keyring" if kept[name] is None else "file" for name in sorted(kept)}

    def values(self, plugin: Plugin, only: Collection[str] | None = None) -> dict[str, str]:
        """Return a plugin's secrets, or `only` some of them; raises SecretsUnusable if one cannot be read."""
        return {
            name: self._fetch(plugin, name) if value is None else value
            for name, value in self._read().get(plugin.path, {}).items()
            if only is None or name in only
        }

    def get(self, plugin: Plugin, name: str) -> str | None:
        """Return one secret of a plugin; raises SecretsUnusable."""
        return self.values(plugin, (name,)).get(name)

    def set(self, plugin: Plugin, name: str, value: str, *, is_sign_in: bool = False) -> Place:
        """Store a secret and return where; raises UsageError or SecretsUnusable."""
        check(name, value, is_sign_in=is_sign_in)
        ring = _keyring()
        if ring is not None:
            account = self._account(plugin.path, name)
            _asked(lambda: ring.set_password(SERVICE, account, value))
        with self._rewriting() as kept:
            kept.setdefault(plugin.path, {})[name] = None if ring is not None else value
        return "file" if ring is None else "keyring"

    def remove(self, plugin: Plugin, name: str) -> bool:
        """Delete a secret; return False if there was none. Raises SecretsUnusable."""
        had = name in self._read().get(plugin.path, {})
        if had:
            self._take_out(plugin.path, [name])
        return had

    def forget(self, path: str) -> None:
        """Delete all secrets of a removed folder; raises SecretsUnusable."""
        if names := list(self._read().get(path, {})):
            self._take_out(path, names)

    def move(self, path: str, to: str) -> None:
        """Move all secrets of a path to another, without replacing those it already has.

        If that raises SecretsUnusable, nothing has moved.
        """
        names = self._read().get(path, {})
        if not names:
            return
        taken = self._read().get(to, {})
        accounts = [
            (self._account(path, name), self._account(to, name))
            for name, value in names.items()
            if value is None and name not in taken
        ]
        if accounts:
            ring = _keyring()
            if ring is None:
                raise SecretsUnusable(
                    f"the secret {next(iter(names))} is in the system's keyring, but no keyring is available",
                    "try again in a session where the keyring is available",
                )
            _asked(lambda: _copy(ring, accounts))
        with self._rewriting() as kept:
            kept[to] = {**kept.get(path, {}), **kept.get(to, {})}
        self.forget(path)

    def stamp(self) -> _Stamp | None:
        """Return a value that changes whenever any process stores or removes something; None if nothing is stored."""
        if not os.access(self._path, os.F_OK):  # faster than an exception, and most people have no secrets
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _fetch(self, plugin: Plugin, name: str) -> str:
        account = self._account(plugin.path, name)
        if account not in self._fetched:
            ring = _keyring()
            value = None if ring is None else _asked(lambda: ring.get_password(SERVICE, account))
            if not isinstance(value, str):
                why = "no keyring is available" if ring is None else "the keyring does not have it"
                raise SecretsUnusable(
                    f"the secret {name} of '{plugin.name}' cannot be read: {why}",
                    f"store it again with `anyplug secret {plugin.name} {name}`",
                )
            self._fetched[account] = value
        return self._fetched[account]

    def _take_out(self, path: str, names: list[str]) -> None:
        kept_before = self._read()[path]
        accounts = [self._account(path, name) for name in names if kept_before[name] is None]
        if accounts and (ring := _keyring()) is not None:
            _asked(lambda: _delete(ring, accounts))
        with self._rewriting() as kept:
            there = kept.get(path, {})
            for name in names:
                there.pop(name, None)
            if not there:
                kept.pop(path, None)

    def _account(self, path: str, name: str) -> str:
        return f"{name} of {path} ({self._folder})"

    def _read(self) -> _Kept:
        """Read the file if it changed; raises SecretsUnusable. Files that others can read or write are not trusted."""
        stamp = self.stamp()
        if stamp is None:
            return {}
        if stamp != self._stamp:
            try:
                with open(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
                    found = os.fstat(file.fileno())
                    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                        raise SecretsUnusable(
                            f"{self._path} must belong to you and be readable and writable by nobody else",
                            f"check its contents, then run {typed('chmod', '600', self._path)}",
                        )
                    self._kept = msgspec.json.decode(file.read(), type=_Kept)
            except OSError as error:
                raise SecretsUnusable(
                    f"cannot read {self._path}: {error.strerror}", ("check the file and its permissions")
                ) from error
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise SecretsUnusable(
                    f"cannot read {self._path}: {error}", "fix the file, or move it away and store the secrets again"
                ) from error
            self._stamp, self._fetched = stamp, {}
        return self._kept

    @contextmanager
    def _rewriting(self) -> Iterator[_Kept]:
        """Change the file's contents while holding a lock; raises SecretsUnusable."""
        import fcntl  # only needed when something is stored

        try:
            make_private(self._folder)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fchmod(folder, 0o700)  # another program may have created it with the usual mode
                fcntl.flock(folder, fcntl.LOCK_EX)  # held briefly, and released if the process dies
                kept = {path: dict(names) for path, names in self._read().items()}
                yield kept
                _replace(self._path, msgspec.json.format(msgspec.json.encode(kept), indent=2))
            finally:
                os.close(folder)
        except OSError as error:
            raise SecretsUnusable(
                f"cannot write {self._path}: {error.strerror}", "check the folder's permissions, or pass --home"
            ) from error
        self._stamp = None


def check(name: str, value: str, *, is_sign_in: bool = False) -> None:
    """Refuse what cannot be an environment variable; raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be the name of a variable", "use letters, digits and underscores")
    if name.startswith(SIGN_IN) and not is_sign_in:
        raise UsageError(f"{name} is a name of anyplug's own, for sign-ins", "choose another name")
    if not value:
        raise UsageError(f"no value was given for {name}", "type it, or pipe it to stdin")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the value of {name} is not UTF-8 text", "encode it, for example in base64") from error
    if "\0" in value or size > LARGEST:
        raise UsageError(f"the value of {name} contains NUL or is larger than {LARGEST:,} bytes", "store it in a file")


def _replace(path: str, text: bytes) -> None:
    """Write a file atomically that only the user may read; raises OSError."""
    new = f"{path}.{os.urandom(6).hex()}.tmp"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _keyring() -> Any | None:
    """Return the system's keyring if there is one that works. Raises SecretsUnusable if it hangs."""
    try:
        import keyring  # takes 60 ms or more to import, and only users of secrets need it
    except ImportError:
        return None
    ring = _asked(keyring.get_keyring)
    try:
        return ring if ring.priority > 0 else None  # the backends "fail" and "null" have priority 0 or less
    except RuntimeError:  # how a backend reports that it cannot work here
        return None


def _asked(work: Callable[[], T]) -> T:
    """Run a keyring operation, which may prompt the person; raises SecretsUnusable."""
    answers: list[T] = []
    faults: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(work())
        except Exception as error:  # noqa: BLE001 - a stranger's code: backends raise what they like
            faults.append(error)

    # A keyring waiting for someone who is not there must not block us forever.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(KEYRING_S)
    if answers:
        return answers[0]
    why = f"{type(faults[0]).__name__}: {faults[0]}" if faults else f"it did not answer within {KEYRING_S:.0f}s"
    raise SecretsUnusable(
        f"the system's keyring cannot be used: {why}",
        "unlock it, or set PYTHON_KEYRING_BACKEND=keyring.backends.null.Keyring to keep secrets in a file",
    ) from (faults[0] if faults else None)


def _copy(ring: Any, accounts: list[tuple[str, str]]) -> None:
    for account, to in accounts:
        if (value := ring.get_password(SERVICE, account)) is not None:
            ring.set_password(SERVICE, to, value)


def _delete(ring: Any, accounts: list[str]) -> None:
    for account in accounts:
        if ring.get_password(SERVICE, account) is not None:
            ring.delete_password(SERVICE, account)
