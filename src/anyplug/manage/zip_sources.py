"""Unpack an archive that holds plugins, zip or tar, so that they can be installed like folders.

An archive is a stranger's: its size, the number of its files, their names and the size of what comes out are limited;
devices and names that lead out of the folder are refused, and so are links, except for those of a tar archive that
stay inside. Nothing of it runs.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.model.errors import InstallError

UNPACKED: Final = ".zip-"  # how the name of a folder begins into which an uploaded archive was unpacked
ZIPS: Final = (".zip", ".mcpb", ".dxt")
TARS: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MOST_FILES: Final = 20_000
LARGEST: Final = 256 << 20  # bytes of all files together, as they come out
LONGEST_NAME: Final = 1_000  # bytes of a path in the archive
STEP: Final = 1 << 20  # bytes unpacked at a time
MODE_SHIFT: Final = 16  # where an archive has a file's mode
RUNNABLE: Final = 0o111
# What Python raises about archives that are damaged, encrypted or packed in a way that it does not know.
UNREADABLE: Final = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError, EOFError,
    UnicodeDecodeError, ValueError, tarfile.TarError, gzip.BadGzipFile,
)  # fmt: skip
LARGEST_ARCHIVE: Final = 256 << 20  # bytes, packed

_NAME = re.compile(r"[^/\\\0]+(?:/[^/\\\0]+)*/?")


def is_archive_name(name: str) -> bool:
    """Return whether a file of this name is an archive that can be unpacked."""
    return name.lower().endswith((*ZIPS, *TARS))


def unpack(path: str, folder: str) -> str:
    """Unpack an archive into an empty folder; return the folder inside that holds everything. Raises InstallError."""
    kind = "zip" if path.lower().endswith(ZIPS) else "tar"
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST_ARCHIVE:
                raise InstallError(f"{path} is larger than {LARGEST_ARCHIVE >> 20} MiB", "pack less of it")
            if kind == "zip":
                with zipfile.ZipFile(file) as archive:
                    _unpack(archive, folder)
            else:
                _unpack_tar(file, folder)
    except UNREADABLE as error:
        raise InstallError(
            f"the {kind} archive cannot be read: {error}", "pack it again, without a password"
        ) from error
    except OSError as error:
        raise InstallError(
            f"the {kind} archive cannot be unpacked: {error.strerror or error}", "check the file and the free space"
        ) from error
    return _inner(folder)


@contextmanager
def unpacked(content: bytes, home: Home) -> Iterator[str]:
    """Yield the folder of an archive's plugin, which is removed afterwards. Raises InstallError."""
    make_private(home.path)
    folder = tempfile.mkdtemp(prefix=UNPACKED, dir=home.path)
    try:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                _unpack(archive, folder)
        except UNREADABLE as error:
            raise InstallError(
                f"the zip archive cannot be read: {error}", "pack it again, without a password"
            ) from error
        except OSError as error:
            raise InstallError(
                f"the zip archive cannot be unpacked: {error.strerror}", "check the free space"
            ) from error
        yield _inner(folder)
    finally:
        untrusted_files.remove(folder)


def _unpack(archive: zipfile.ZipFile, folder: str) -> None:
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise InstallError(f"the zip archive has {len(entries):,} files, more than {MOST_FILES:,}", "pack less of it")
    room, seen = LARGEST, set[str]()
    for entry in entries:
        name = entry.filename
        _check(entry, seen)
        if name.endswith("/"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            continue
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        mode = 0o755 if (entry.external_attr >> MODE_SHIFT) & RUNNABLE else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with archive.open(entry) as packed, open(os.open(target, flags, mode), "wb") as file:
            while part := packed.read(STEP):
                room -= len(part)  # of what really comes out: the archive may say something else
                if room < 0:
                    raise InstallError(f"the zip archive holds more than {LARGEST >> 20} MiB", "pack less of it")
                file.write(part)


class _Bounded:
    """What comes out of a compressed stream, up to a limit: a few bytes can become terabytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._room = LARGEST + (LARGEST >> 2)  # what headers and padding add

    def read(self, size: int = -1) -> bytes:
        """Read; raises InstallError past the limit."""
        if not 0 <= size <= self._room:
            raise InstallError(f"the tar archive holds more than {LARGEST >> 20} MiB", "pack less of it")
        part = self._stream.read(size)
        self._room -= len(part)
        return part


def _unpack_tar(file: IO[bytes], folder: str) -> None:
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
    opener = openers.get(file.read(2))
    file.seek(0)
    stream: Any = _Bounded(opener(file) if opener is not None else file)
    links: list[tuple[str, str]] = []
    seen = set[str]()
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, entry in enumerate(archive):
            if number >= MOST_FILES:
                raise InstallError(f"the tar archive has more than {MOST_FILES:,} files", "pack less of it")
            name = entry.name.removeprefix("./").rstrip("/")
            if name in {"", "."}:
                continue
            _check_name("tar", name, seen)
            target = os.path.join(folder, name)
            os.makedirs(target if entry.isdir() else os.path.dirname(target), exist_ok=True)
            if entry.issym():
                links.append((name, entry.linkname))
            elif entry.isfile():
                _write_entry(archive, entry, target)
            elif not entry.isdir():
                raise InstallError(f"the tar archive has a hard link or device: {name!r}", "replace it with a copy")
    for name, leads_to in links:  # last, so that nothing is written through one
        meant = os.path.normpath(os.path.join(os.path.dirname(name), leads_to))
        if os.path.isabs(leads_to) or meant.startswith(".."):
            raise InstallError(f"the tar archive has a link that leads out of it: {name!r}", "replace it with a copy")
        os.symlink(leads_to, os.path.join(folder, name))


def _write_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, target: str) -> None:
    packed = archive.extractfile(entry)
    assert packed is not None  # it is a file
    mode = 0o755 if entry.mode & RUNNABLE else 0o644
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(target, flags, mode), "wb") as file:
        while part := packed.read(STEP):
            file.write(part)


def _check(entry: zipfile.ZipInfo, seen: set[str]) -> None:
    """Refuse what could end up elsewhere than in the folder, or twice in the same place."""
    name = entry.filename
    kind = stat.S_IFMT(entry.external_attr >> MODE_SHIFT)
    _check_name("zip", name, seen)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise InstallError(f"the zip archive has a link or device: {name!r}", "replace it with a copy")


def _check_name(kind: str, name: str, seen: set[str]) -> None:
    parts = name.rstrip("/").split("/")
    if not _NAME.fullmatch(name) or len(name.encode()) > LONGEST_NAME or {"..", "."} & set(parts) or ":" in parts[0]:
        raise InstallError(f"the {kind} archive has a file with an unsafe name: {name!r}", "pack it again")
    if (place := name.rstrip("/")) in seen:
        raise InstallError(f"the {kind} archive has {name!r} twice", "pack it again")
    seen.add(place)


def _inner(folder: str) -> str:
    """Return the folder that holds the plugin: many archives have everything in one folder."""
    names = os.listdir(folder)
    only = os.path.join(folder, names[0]) if len(names) == 1 else ""
    return only if only and os.path.isdir(only) else folder
