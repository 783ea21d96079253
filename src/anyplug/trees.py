"""Folders that a stranger filled: listed and removed however deep they are, and whatever rights were taken from us.

The standard library goes down by calling itself, and holds a descriptor for each level: a thousand folders in one
another end it, and no path is long enough for a few thousand.
"""

import os
import secrets
import stat

OWNER = stat.S_IRWXU
NAME_BYTES = 8  # of chance in the name that a folder gets for the moment before it is removed


def files(folder: str) -> list[str]:
    """List the files of a tree, and the links to whatever, relative to it; raises OSError."""
    found: list[str] = []
    left = [""]
    while left:
        below = left.pop()
        with os.scandir(os.path.join(folder, below)) as entries:
            for entry in entries:
                name = os.path.join(below, entry.name)
                (left if entry.is_dir(follow_symlinks=False) else found).append(name)
    return sorted(found)


def remove(path: str) -> None:
    """Remove a folder with all that is in it, and follow no link; raises OSError if something stays."""
    top = _open(path)
    try:
        while names := os.listdir(top):
            for name in names:
                if not _is_removed(name, top):
                    _take_apart(name, top)
    finally:
        os.close(top)
    os.rmdir(path)


def _take_apart(name: str, top: int) -> None:
    """Remove a folder; the folders in it come to the top first, so that nothing is ever more than two levels deep."""
    inner = _open(name, top)
    try:
        for one in os.listdir(inner):
            if not _is_removed(one, inner):
                os.close(_open(one, inner))  # whoever moves a folder must be allowed to write to it
                os.rename(one, secrets.token_hex(NAME_BYTES), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _is_removed(name: str, folder: int) -> bool:
    """Remove what is no folder; False if it is one."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def _open(name: str, folder: int | None = None) -> int:
    """Open a folder that may have taken our rights away, and is no link; raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    if hasattr(os, "O_PATH"):
        pinned = os.open(name, flags | os.O_PATH, dir_fd=folder)
        try:
            if os.fstat(pinned).st_mode & OWNER != OWNER:
                os.chmod(f"/proc/self/fd/{pinned}", OWNER)
        finally:
            os.close(pinned)
    else:
        os.chmod(name, OWNER, dir_fd=folder, follow_symlinks=False)
    return os.open(name, flags, dir_fd=folder)
