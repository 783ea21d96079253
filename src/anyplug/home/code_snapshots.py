"""Snapshots: read-only copies of plugins' code, one for each digest, from which plugins run.

    <home>/snapshots/DIGEST[+config]/files/...    what runs
    <home>/snapshots/DIGEST[+config]/entries      each entry with its hash, which together make up the digest
    <home>/snapshots/.work/...                    overlay work folders while a sandbox runs

A snapshot is copied and hashed in one read to a temporary name, and renamed into place if the hash is right. So it
contains exactly what was approved, even if the plugin changes meanwhile. A host verifies a snapshot before its first
use. Plugins cannot see this folder. Knows nothing about sandboxes.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from anyplug.home import digest, untrusted_files
from anyplug.home.digest import EXECUTABLE, Reading, Stamp
from anyplug.home.location import make_private
from anyplug.home.untrusted_files import Budget, HeldFolder
from anyplug.model.hashes import sha256
from anyplug.model.untrusted_text import for_people

if TYPE_CHECKING:
    from hashlib import _Hash

FILES, WORK, EMPTY = "files", ".work", "empty"
INDEX = "entries"  # `index` in versions that copied the targets of outside links: their snapshots are recreated
WITH_CONFIG = "+config"  # with a place for the user's configuration values
STAGED = ".staged-"
CHANCE = 8  # random bytes in a temporary name
CHUNK = untrusted_files.CHUNK
READ_ONLY, RUNNABLE, WRITABLE = (
    0o444,
    0o555,
    0o644,
)  # the last for data, which a plugin may replace with its own version
ABANDONED_S = 3600.0  # a copy started this long ago will not be finished
UNUSED_S = 24 * 3600.0  # a snapshot that no approval names is removed after this long without use


class Changed(Exception):
    """The files to copy are not the ones that were checked. The text names the file."""


class Entry(NamedTuple):
    """One file or link of a snapshot."""

    path: str
    mode: int  # of the original, as counted in the digest
    sha: str  # as in the digest; for an entry that does not count, its own hash
    counts: bool
    link: str = ""  # target of the original link
    is_kept: bool = True  # whether it is stored; otherwise it is only part of the digest


class Snapshot:
    """A snapshot in use, which is kept until `release`."""

    def __init__(self, folder: str, lock: int) -> None:
        self.files = os.path.join(folder, FILES)
        self._locks = [lock]
        self._works: list[str] = []

    def work(self) -> str:
        """Create a work folder for overlays. It is removed with `release`, or by the next host if we are killed."""
        store = os.path.dirname(os.path.dirname(self.files))
        path = os.path.join(store, WORK, os.urandom(CHANCE).hex())
        make_private(os.path.join(path, EMPTY))
        self._works.append(path)
        self._locks.append(_locked(path, fcntl.LOCK_SH))
        return path

    def release(self) -> None:
        """Release it; it can be removed once nobody uses it."""
        while self._works:
            with suppress(OSError):
                untrusted_files.remove(self._works.pop())
        while self._locks:
            os.close(self._locks.pop())


class Snapshots:
    """The snapshots of one home. Everything here blocks: call it in a thread."""

    def __init__(self, home: str) -> None:
        self.folder = os.path.realpath(os.path.join(home, "snapshots"))  # a sandbox follows no links on the way to it
        self._verified: set[str] = set()

    def path(self, value: str, *, config: bool = False) -> str:
        """Return the path of a digest's snapshot, whether or not it exists."""
        return os.path.join(self.folder, value + (WITH_CONFIG if config else ""))

    def hold(
        self, root: str, reading: Reading, *, config: bool = False, whole: tuple[str, ...] | None = None
    ) -> Snapshot:
        """Return the snapshot of a plugin as it was read, creating it if needed.

        `config`: with a place for the user's values. `whole`: the plugin writes next to its code, so only what counts
        is copied, and everything in these folders. Raises Changed if the plugin has changed since, and OSError.
        """
        key = os.path.basename(self.path(reading.digest, config=config))
        held = self._held(key)
        if held is None:
            self._make(root, reading, whole, key, config=config)
            held = self._held(key)
        if held is None:
            raise OSError(f"the snapshot {self.folder}/{key} was removed again")
        return held

    def size(self, value: str) -> int:
        """Return the size in bytes of a digest's snapshots."""
        found = 0
        for config in (False, True):
            for folder, _, names in os.walk(self.path(value, config=config)):
                found += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
        return found

    def collect(self, named: frozenset[str]) -> None:
        """Remove snapshots that no approval names and nobody uses, and unfinished ones."""
        self._clear_work()
        with suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                path = os.path.join(self.folder, name)
                if name == WORK or name.removesuffix(WITH_CONFIG) in named:
                    continue
                with suppress(OSError):  # another process is removing it, or just created it
                    unused_s = time.time() - os.stat(path).st_mtime
                    if name.startswith(STAGED):
                        if unused_s > ABANDONED_S:
                            untrusted_files.remove(path)
                    elif unused_s > UNUSED_S:
                        self._remove(name)

    def forget(self, value: str) -> None:
        """Remove the snapshots of a digest, unless somebody uses them."""
        for key in (value, value + WITH_CONFIG):
            if os.path.lexists(os.path.join(self.folder, key)):
                with suppress(OSError):
                    self._remove(key)

    def _clear_work(self) -> None:
        """Remove the work folders of hosts that were killed."""
        above = os.path.join(self.folder, WORK)
        with suppress(FileNotFoundError):
            for name in os.listdir(above):
                with suppress(OSError):  # it is in use
                    path = os.path.join(above, name)
                    lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    try:
                        if time.time() - os.stat(path).st_mtime > ABANDONED_S:  # a new one has no lock yet
                            untrusted_files.remove(path)
                    finally:
                        os.close(lock)

    def _held(self, key: str) -> Snapshot | None:
        """Return an existing, valid snapshot; remove an invalid one."""
        folder = os.path.join(self.folder, key)
        try:
            lock = os.open(os.path.join(folder, INDEX), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if os.path.lexists(folder):
                self._remove(key)
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if not os.path.exists(os.path.join(folder, INDEX)):  # it was removed while we waited for the lock
                os.close(lock)
                return None
            if key not in self._verified:
                if not _is_right(folder, key.removesuffix(WITH_CONFIG)):
                    os.close(lock)
                    self._remove(key)
                    return None
                self._verified.add(key)
            os.utime(folder)
        except BaseException:
            with suppress(OSError):
                os.close(lock)
            raise
        return Snapshot(folder, lock)

    def _remove(self, key: str) -> None:
        """Remove a snapshot unless it is in use; raises OSError."""
        folder = os.path.join(self.folder, key)
        self._verified.discard(key)
        with suppress(FileNotFoundError):
            lock = os.open(os.path.join(folder, INDEX), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._put_aside(folder)
            finally:
                os.close(lock)
            return
        self._put_aside(folder)

    def _put_aside(self, folder: str) -> None:
        aside = os.path.join(self.folder, STAGED + os.urandom(CHANCE).hex())
        with suppress(FileNotFoundError):
            os.rename(folder, aside)
            untrusted_files.remove(aside)

    def _make(self, root: str, reading: Reading, whole: tuple[str, ...] | None, key: str, *, config: bool) -> None:
        import json  # which can write names that are not UTF-8; few calls make a snapshot

        staged = os.path.join(self.folder, STAGED + os.urandom(CHANCE).hex())
        make_private(os.path.join(staged, FILES))
        try:
            entries = list(_copied(root, reading, whole, os.path.join(staged, FILES)))
            if config:
                with open(os.path.join(staged, FILES, digest.CONFIG), "xb"):
                    pass  # the real one is mounted here
            if _total(entries) != reading.digest:
                raise Changed("its files changed while they were copied")
            with open(os.path.join(staged, INDEX), "x", encoding="ascii") as file:
                json.dump(entries, file)
            _keep_times(os.path.join(staged, FILES), root)
            self._put_in_place(staged, os.path.join(self.folder, key))
            self._verified.add(key)
        finally:
            if os.path.lexists(staged):
                untrusted_files.remove(staged)

    @staticmethod
    def _put_in_place(staged: str, place: str) -> None:
        try:
            os.rename(staged, place)
        except OSError:
            if not os.path.lexists(place):  # otherwise another process was faster, with the same content
                raise


def _copied(root: str, reading: Reading, whole: tuple[str, ...] | None, to: str) -> Iterator[Entry]:
    """Copy what counts, and everything in folders that are copied whole; yield an entry for each.

    What a link outside leads to is only hashed, and the link stays a link: the host may read more than the plugin, and
    whether the plugin may follow it is for its sandbox to decide.
    """
    folders = {stamp[0][1:] for stamp in reading.folders}
    counted = {stamp[0] for stamp, sha in zip(reading.stamps, reading.hashes, strict=True) if sha}
    linked = tuple(f"{name}/" for name in folders if name and os.path.islink(os.path.join(root, name)))
    for folder in sorted(folders) if whole is None else ():
        if not f"{folder}/".startswith(linked):
            os.makedirs(os.path.join(to, folder), exist_ok=True)
    budget = digest.whole_budget()
    with untrusted_files.hold(root) as held:
        for stamp, sha in zip(reading.stamps, reading.hashes, strict=True):
            path = stamp[0]
            if not sha and not any(path.startswith(f"{folder}/") for folder in whole or ()):
                continue
            budget.entry(path)
            at = "" if path.startswith(linked) else os.path.join(to, path)
            if sha:
                entry = _copied_entry(held, os.path.join(root, path), at, stamp, counted, budget)
                if entry.sha != sha:
                    raise Changed(f"{for_people(path)} changed")
                yield entry
            elif at and stat.S_ISREG(stamp[1]):
                yield _copied_data(held, at, stamp, budget)


def _copied_data(held: HeldFolder, at: str, stamp: Stamp, budget: Budget) -> Entry:
    """Copy a file that does not count. No hash vouches for it, so links that may lead outside are not followed."""
    path, mode = stamp[0], stamp[1]
    try:
        fd = held.open(path)
    except OSError as error:
        raise Changed(f"{for_people(path)} cannot be read: {error.strerror}") from error
    total = sha256(more=stamp[2])
    os.makedirs(os.path.dirname(at), exist_ok=True)
    try:
        _write_hashed(fd, held.where(path), at, path, total, budget)
    finally:
        os.close(fd)
    os.chmod(at, RUNNABLE if mode & EXECUTABLE else WRITABLE)
    os.utime(at, ns=(stamp[3], stamp[3]))
    return Entry(path, mode, total.hexdigest(), counts=False)


def _copied_entry(held: HeldFolder, source: str, at: str, stamp: Stamp, counted: set[str], budget: Budget) -> Entry:
    """Copy one file or link to `at`, or only hash it if that is empty."""
    path, mode, link = stamp[0], stamp[1], _link(source)
    if at:
        os.makedirs(os.path.dirname(at), exist_ok=True)
    inside = _uncounted_target(source, held.path, counted) if link and stat.S_ISREG(mode) else ""
    is_link = bool(link) and not inside
    if is_link and at:
        os.symlink(link, at)
    is_kept = is_link and bool(at)
    if not stat.S_ISREG(mode):
        sha = sha256(_bytes(f"{stat.S_IFMT(mode):o} {link}")).hexdigest()
    else:
        copied = _copy(held, source, inside, "" if is_link else at, stamp, link, budget)
        sha = copied or sha256(_bytes(link)).hexdigest()  # neither we nor the plugin may read it
        if copied and at and not is_link:
            is_kept = True
            os.chmod(at, RUNNABLE if mode & EXECUTABLE else WRITABLE if digest.is_data(path, at) else READ_ONLY)
            os.utime(at, ns=(stamp[3], stamp[3]))
    return Entry(path, mode, sha, counts=True, link=link, is_kept=is_kept)


def _copy(held: HeldFolder, source: str, inside: str, at: str, stamp: Stamp, link: str, budget: Budget) -> str | None:
    """Copy a file, or only read it; return its hash as in the digest, computed from the same bytes.

    What is copied from behind a link is opened by its place `inside` the plugin, without following links. None: not
    readable.
    """
    path = stamp[0]
    total = sha256(_bytes(link), more=stamp[2])
    try:
        if inside:
            fd = held.open(inside)
        else:
            fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if link else os.O_NOFOLLOW))
    except PermissionError:
        return None
    except OSError as error:
        raise Changed(f"{for_people(path)} cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Changed(f"{for_people(path)} is no longer a regular file")
        _write_hashed(fd, source, at, path, total, budget)
    finally:
        os.close(fd)
    return total.hexdigest()


def _write_hashed(fd: int, source: str, at: str, path: str, total: "_Hash", budget: Budget) -> None:
    """Copy an open file to `at`, or only read it if that is empty, and hash the same bytes as the digest does."""
    with open(at or os.devnull, "xb" if at else "wb") as copy:
        for number, chunk in enumerate(untrusted_files.chunks(fd, source, budget)):
            total.update(chunk if number else digest.as_hashed(path, chunk))
            copy.write(chunk)


def _is_right(folder: str, value: str) -> bool:
    """Return whether each entry has the right hash and together they make up the digest."""
    files = os.path.join(folder, FILES)
    try:
        with open(os.path.join(folder, INDEX), "rb") as file:
            entries = [Entry(*entry) for entry in _read(file.read())]
        kept = [entry for entry in entries if entry.is_kept]
        return (
            _total(entries) == value
            and {entry.path for entry in kept} == set(untrusted_files.files(files)) - {digest.CONFIG}
            and all(_is_as_noted(os.path.join(files, entry.path), entry) for entry in kept)
        )
    except (OSError, ValueError, TypeError):
        return False


def _read(text: bytes) -> list[Any]:
    try:
        found: list[Any] = msgspec.json.decode(text)
    except msgspec.DecodeError:  # a name is not UTF-8
        import json  # hardly ever needed

        found = json.loads(text)
    return found


def _total(entries: list[Entry]) -> str:
    """Compute the digest of all entries."""
    total = sha256()
    for entry in entries:
        if entry.counts:
            total.update(_bytes(f"{entry.path}\0{entry.mode & EXECUTABLE:o}\0{entry.sha}\n"))
    return total.hexdigest()


def _is_as_noted(at: str, entry: Entry) -> bool:
    found = os.lstat(at)
    if stat.S_ISLNK(found.st_mode):
        return os.readlink(at) == entry.link  # its target has an entry of its own, or is outside
    if not stat.S_ISREG(found.st_mode) or bool(found.st_mode & EXECUTABLE) != bool(entry.mode & EXECUTABLE):
        return False
    total = sha256(_bytes(entry.link), more=found.st_size)
    with open(os.open(at, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        chunk = digest.as_hashed(entry.path, file.read(CHUNK))
        while chunk:
            total.update(chunk)
            chunk = file.read(CHUNK)
    return total.hexdigest() == entry.sha


def _uncounted_target(link: str, root: str, counted: set[str]) -> str:
    """Return a link's target in the plugin, relative to it, if the snapshot would not have it otherwise; else empty."""
    real, root = os.path.realpath(link), os.path.realpath(root)
    inside = real.removeprefix(root + "/")
    return inside if inside != real and inside not in counted else ""


def _keep_times(folder: str, root: str) -> None:
    """Restore the original times of folders."""
    for below, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # it may be gone by now
            found = os.stat(os.path.join(root, os.path.relpath(below, folder)))
            os.utime(below, ns=(found.st_mtime_ns, found.st_mtime_ns))


def _locked(folder: str, how: int) -> int:
    """Lock a folder; raises OSError if another process holds the lock."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, how)
    except OSError:
        os.close(lock)
        raise
    return lock


def _link(path: str) -> str:
    """Return a link's target; empty if it is not a link."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
