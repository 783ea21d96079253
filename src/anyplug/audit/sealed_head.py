"""The sealed head of the audit chain: the number and hash of its newest record, kept outside the database.

A chain of hashes cannot show that its end was cut off, or that all of it is gone: what is left is intact. So each
commit also writes the head to a small file in the home folder and to a second place outside it:

    {"number": 7, "hash": "31f8…", "at": 1780000000.0, "seal": "9c1e…"}

The seal is an HMAC with a key of the home, so that someone who can write only to the second place cannot forge a head.
A head only moves forward along one chain: one that the chain does not contain is left as it is, as evidence.

`audit-start` has the same form, for the last record that retention removed. Its seal is another one, so that a head
cannot be passed off as a start.
"""

import fcntl
import os
import stat
import time
from _operator import _compare_digest
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec

from anyplug.model.hashes import hmac_sha256

FIRST = "0" * 64  # stands for the hash before the first record
KEY_BYTES = 32
LARGEST = 4096  # bytes read of a head file
LINE_BYTES = 256  # of a head file; numbers and times of any size fit
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FILE, KEY, START = "audit-head", "audit-key", "audit-start"
OF_START = b"start\n"  # what the seal of a start begins with


class Head(msgspec.Struct, frozen=True):
    """The number and hash of the last record at some moment."""

    number: int
    hash: str
    at: float


class Sealed(msgspec.Struct, frozen=True):
    """A head as it is stored."""

    number: int
    hash: str
    at: float
    seal: str


class Found(msgspec.Struct, frozen=True):
    """What was found in one place."""

    path: str
    state: Literal["missing", "sealed", "invalid"]
    head: Head | None = None  # set even if the seal is invalid, as long as it can be read


class Heads:
    """The places of a home's sealed head: its own file, and optionally a second one elsewhere."""

    def __init__(self, home: str, second: str = "") -> None:
        self._key_path = os.path.join(home, KEY)
        self.start_path = os.path.join(home, START)
        self.paths = (os.path.join(home, FILE), *((second,) if second else ()))

    def look(self) -> list[Found]:
        """Read every place."""
        found = self._look()
        if any(place.state == "invalid" for place in found):
            with suppress(OSError), self._locked(fcntl.LOCK_SH):  # it may have been read while it was written
                found = self._look()
        return found

    def _look(self) -> list[Found]:
        key = self._read_key()
        return [_read(path, key) for path in self.paths]

    def seal(self, head: Head) -> bytes:
        """Encode a head with its seal; raises OSError if the key cannot be read or created."""
        key = self._read_key() or self._make_key()
        return msgspec.json.encode(Sealed(head.number, head.hash, head.at, _mac(key, head))) + b"\n"

    def unseal(self, text: bytes) -> Found:
        """Read a head that a person saved elsewhere."""
        return _judge("", text, self._read_key())

    def start(self) -> Found:
        """Read the last record that retention removed."""
        found = _read(self.start_path, self._read_key(), OF_START)
        if found.state == "invalid":
            with suppress(OSError), self._locked(fcntl.LOCK_SH):  # as above
                found = _read(self.start_path, self._read_key(), OF_START)
        return found

    def begin_after(self, head: Head) -> None:
        """Seal the last record that is removed: the chain begins after it. Raises OSError."""
        key = self._read_key() or self._make_key()
        with self._locked(fcntl.LOCK_EX):
            fd = os.open(self.start_path, WRITE, 0o600)
            try:
                _overwrite(fd, msgspec.json.encode(Sealed(head.number, head.hash, head.at, _mac(key, head, OF_START))))
                os.fsync(fd)
            finally:
                os.close(fd)

    def begin(self) -> None:
        """Seal an empty chain before its first record is committed: from then on, a missing head is evidence.

        Raises OSError.
        """
        self._move(Head(0, FIRST, time.time()), lambda places: all(found.state == "missing" for found in places))

    def advance(self, head: Head, contains: Callable[[Head], bool]) -> None:
        """Advance every place to a head. Raises OSError.

        `contains` tells whether the chain contains a head. If a sealed head is not in the chain, or is missing, nothing
        is written: `audit --verify` reports it and a person decides.
        """
        self._move(
            head,
            lambda places: all(
                found.state == "sealed"
                and found.head is not None
                and found.head.number < head.number
                and contains(found.head)
                for found in places
            ),
        )

    def replace(self, head: Head) -> None:
        """Overwrite the head: a person has accepted the chain as it is. Raises OSError."""
        self._move(head, lambda _: True)

    def _move(self, head: Head, may_move: Callable[[list[Found]], bool]) -> None:
        with self._locked(fcntl.LOCK_EX) as own:  # other processes append to the same chain
            if may_move(self._look()):
                self._write(self.seal(head), own)

    @contextmanager
    def _locked(self, how: int) -> Iterator[int]:
        """Lock the own head file; yield its descriptor. Raises OSError."""
        own = os.open(self.paths[0], WRITE if how == fcntl.LOCK_EX else READ, 0o600)
        try:
            fcntl.flock(own, how)
            yield own
        finally:
            os.close(own)

    def _write(self, text: bytes, own: int) -> None:
        _overwrite(own, text)
        for path in self.paths[1:]:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd = os.open(path, WRITE, 0o600)
            try:
                _overwrite(fd, text)
            finally:
                os.close(fd)

    def _read_key(self) -> bytes:
        try:
            fd = os.open(self._key_path, READ)
        except OSError:
            return b""
        try:
            return os.read(fd, KEY_BYTES)
        finally:
            os.close(fd)

    def _make_key(self) -> bytes:
        """Create the key; if another process did so at the same moment, use that one."""
        new = f"{self._key_path}.{os.urandom(4).hex()}"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, os.urandom(KEY_BYTES))
            os.link(new, self._key_path)
        except FileExistsError:
            pass
        finally:
            os.close(fd)
            os.unlink(new)
        return self._read_key()


def _read(path: str, key: bytes, purpose: bytes = b"") -> Found:
    try:
        fd = os.open(path, READ)
    except FileNotFoundError:
        return Found(path, "missing")
    except OSError:
        return Found(path, "invalid")
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return Found(path, "invalid")
        text = os.read(fd, LARGEST)
    except OSError:
        return Found(path, "invalid")
    finally:
        os.close(fd)
    return _judge(path, text, key, purpose) if text else Found(path, "missing")


def _judge(path: str, text: bytes, key: bytes, purpose: bytes = b"") -> Found:
    try:
        stored = msgspec.json.decode(text.partition(b"\n")[0], type=Sealed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Found(path, "invalid")
    head = Head(stored.number, stored.hash, stored.at)
    is_ours = bool(key) and _compare_digest(stored.seal, _mac(key, head, purpose))
    return Found(path, "sealed" if is_ours else "invalid", head)


def _mac(key: bytes, head: Head, purpose: bytes = b"") -> str:
    return hmac_sha256(key, purpose + msgspec.json.encode(head)).hex()


def _overwrite(fd: int, text: bytes) -> None:
    """Replace a file's line with one write of constant length, so that no kill leaves half of it.

    Some file systems, such as ext4, show readers a write that is under way: they look again with the lock.
    """
    os.pwrite(fd, text.rstrip(b"\n").ljust(LINE_BYTES - 1) + b"\n", 0)
