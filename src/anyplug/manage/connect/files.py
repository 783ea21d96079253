"""Read and atomically replace other programs' configuration files.

Links are followed, and their target is replaced, with the same mode and owner. A file that is not text, not regular or
not writable is refused with a hint, and left unchanged.
"""

import errno
import os
import stat

from anyplug.model.errors import ConfigError

LARGEST = 64 << 20  # bytes; Claude Code keeps much besides its servers in one file
PRIVATE, SHARED = 0o600, 0o644  # modes of new files: a user's own, and a project's
WRITABLE = 0o222


def real(path: str) -> str:
    """Follow links to the real file, even if it does not exist yet."""
    return os.path.realpath(path)


def read(path: str) -> str | None:
    """Read a file's text; None if there is none. Raises ConfigError."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe must not block us
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{path} is not a file", "move it away, then try again")
            if found.st_size > LARGEST:
                raise ConfigError(f"{path} has {found.st_size:,} bytes", f"the limit is {LARGEST:,}: edit it by hand")
            return file.read().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text", "save it as UTF-8 in an editor, then try again; it was not changed"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> ConfigError:
    """Return an error that explains why a file cannot be read, and what to do."""
    cures = {
        errno.ELOOP: "its links form a circle: remove the link",
        errno.EACCES: "make it readable for yourself, then try again",
        errno.EISDIR: "it is a folder: move it away, then try again",
        errno.ENOTDIR: "a file is in the place of its folder: move it away, then try again",
    }
    return ConfigError(
        f"cannot read {path}: {error.strerror}",
        cures.get(error.errno or 0, ("check the path and the disk, then try again")),
    )


def check_writable(path: str) -> None:
    """Raise ConfigError if a file or its folder is read-only: renaming would ignore the former."""
    if os.path.exists(path) and not (os.stat(path).st_mode & WRITABLE and os.access(path, os.W_OK)):
        raise ConfigError(
            f"{path} is read-only",
            "make it writable (`chmod u+w`), or change the program that generates it; `--print` shows what to add",
        )
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise unreadable(path, OSError(errno.ENOTDIR, f"{folder} is not a folder"))
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{folder} is read-only for you", "make it writable, then try again")


def write(path: str, text: str, mode: int = PRIVATE) -> list[str]:
    """Replace a file atomically; return the folders that had to be created, outermost first. Raises ConfigError."""
    try:
        made = _make_folders(os.path.dirname(path))
        found = os.stat(path) if os.path.exists(path) else None
        new = f"{path}.{os.urandom(6).hex()}.tmp"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(text.encode())
                if found is not None and (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    _give(fd, found)
                os.fchmod(fd, stat.S_IMODE(found.st_mode) if found is not None else mode)
                file.flush()
                os.fsync(fd)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}",
            ("check the disk's free space and the folder's permissions, then try again; the file was not changed"),
        ) from error
    return made


def remove(path: str, folders: list[str]) -> None:
    """Remove a file, and the folders created for it if they are empty. Raises ConfigError."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ConfigError(
            f"cannot remove {path}: {error.strerror}", ("check the folder's permissions, then try again")
        ) from error
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:
            return  # something else is in it by now


def _make_folders(folder: str) -> list[str]:
    made: list[str] = []
    while not os.path.isdir(folder):
        made.insert(0, folder)
        folder = os.path.dirname(folder)
    for new in made:
        os.mkdir(new)
    return made


def _give(fd: int, found: os.stat_result) -> None:
    """Restore the previous owner of a file, where permitted."""
    try:
        os.fchown(fd, found.st_uid, found.st_gid)
    except PermissionError:
        pass  # then it is ours, as if an editor had saved it
