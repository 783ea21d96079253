"""A mark: a file that grows by a byte with each change of something, so that one look says whether there was one.

It grows before the change is committed, and its new size is committed with the change. Who reads both and finds
them equal has read all changes up to that size; who does not has to read again.
"""

import os

from anyplug.model.errors import StoreError


class Mark:
    """A file that only ever grows. None counts as an empty one."""

    def __init__(self, path: str) -> None:
        self.path = path

    def size(self) -> int:
        """Look at it."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def grow(self) -> int:
        """Let it grow; give its new size. Raises StoreError. For who holds the lock under which changes are made."""
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(fd, b".")
                return os.fstat(fd).st_size
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreError(
                f"cannot write to {self.path}: {error.strerror}", "check the disk's space and the file's permissions"
            ) from error
