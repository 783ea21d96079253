"""A change counter: a file that grows by a byte with each change, so that one `stat` shows whether anything changed.

It grows before the change is committed, and its new size is committed with the change. A reader who finds both equal
has read all changes up to that size; otherwise it must read again.
"""

import os

from anyplug.model.errors import StoreError


class ChangeCounter:
    """A file that only ever grows. A missing file counts as empty."""

    def __init__(self, path: str) -> None:
        self.path = path

    def size(self) -> int:
        """Return its size."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def grow(self) -> int:
        """Grow the file and return its new size. Raises StoreError. The caller must hold the lock for changes."""
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(fd, b".")
                return os.fstat(fd).st_size
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreError(
                f"cannot write to {self.path}: {error.strerror}",
                "check the disk's free space and the file's permissions",
            ) from error
