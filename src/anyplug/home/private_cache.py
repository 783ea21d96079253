"""Files that we trust like our own code, because only we can have written them.

They are in a folder of the home, which the sandbox hides from every plugin. A folder or file that belongs to somebody
else, or that others may write, is not used. What is broken counts as missing.
"""

import os
import stat
import time
from typing import Final

from anyplug.home.location import make_private
from anyplug.model.hashes import sha256

DIGEST: Final = 32  # bytes before the content
MOST_FILES: Final = 64
LARGEST: Final = 16 << 20  # bytes of one file
DAY_S: Final = 86_400
OLDEST_S: Final = 30 * DAY_S  # since it was last used
OTHERS: Final = 0o077


class PrivateCache:
    """A folder of such files, by name. Raises nothing, because everything in it can be recreated."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none that can be trusted."""
        try:
            folder = _open_folder(self._folder)
        except OSError:
            return None
        try:
            content = self._read(folder, name)
        except OSError:
            return None
        finally:
            os.close(folder)
        body = content[DIGEST:]
        return body if _digest(name, body) == content[:DIGEST] else None

    def _read(self, folder: int, name: str) -> bytes:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(opened, "rb", buffering=0) as file:
            seen = os.fstat(opened)
            if not stat.S_ISREG(seen.st_mode) or not _is_ours(seen) or seen.st_size > LARGEST:
                return b""
            if time.time() - seen.st_mtime > DAY_S:
                os.utime(opened)  # it is in use
            return file.read(seen.st_size)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and remove those that nobody used for long."""
        if len(content) > LARGEST - DIGEST:
            return
        beside = f".{name}.{os.urandom(8).hex()}"
        try:
            make_private(self._folder)
            folder = _open_folder(self._folder)
        except OSError:
            return
        try:
            _remove_old(folder)
            opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            with open(opened, "wb") as file:
                file.write(_digest(name, content) + content)
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            pass  # a full or read-only disk
        finally:
            os.close(folder)


def _digest(name: str, content: bytes) -> bytes:
    """Return what stands before the content: of the name, too, so that no file passes for another."""
    return sha256(name.encode() + b"\0" + content).digest()


def _open_folder(path: str) -> int:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not _is_ours(os.fstat(folder)):
        os.close(folder)
        raise PermissionError(path)
    return folder


def _is_ours(seen: os.stat_result) -> bool:
    return seen.st_uid == os.geteuid() and not seen.st_mode & OTHERS


def _remove_old(folder: int) -> None:
    """Remove files beyond the limits of number and age, the oldest first; also what a crash left half written."""
    now = time.time()
    found = sorted((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name) for name in os.listdir(folder))
    spare = len(found) - MOST_FILES + 1
    for number, (used, name) in enumerate(found):
        if number < spare or now - used > (DAY_S if name.startswith(".") else OLDEST_S):
            os.unlink(name, dir_fd=folder)
