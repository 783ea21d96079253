"""Plugin logs: their stderr and how their runs ended. Readable only by the user; rotated."""

import os
import time

from anyplug.home import untrusted_files
from anyplug.home.location import make_private

LARGEST = 1 << 20  # bytes, then it is rotated to NAME.log.1
KEPT = 3  # rotated logs


def append(path: str, heading: str, text: str) -> None:
    """Add an entry. A failure to write is ignored."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"{stamp} {heading}", *(f"    {line}" for line in text.splitlines())]
    append_raw(path, ("\n".join(lines) + "\n").encode(errors="replace"))


def append_raw(path: str, data: bytes) -> None:
    """Add a peer's output unchanged."""
    try:
        with os.fdopen(_open(path), "ab") as file:
            file.write(data)
            full = file.tell() > LARGEST
    except OSError:  # also when closing: the disk may be full
        return
    if full:
        _rotate(path)


def generations(path: str) -> list[str]:
    """Return the paths of a log and its rotated versions, newest first."""
    return [path, *(f"{path}.{number}" for number in range(1, KEPT + 1))]


def tail(path: str, count: int) -> list[str]:
    """Return the last lines of a log; if it was recently rotated, some are in the older ones. Raises OSError."""
    lines: list[str] = []
    for name in generations(path):
        if len(lines) >= count:
            break
        try:
            with open(untrusted_files.linked(name), "rb") as file:
                lines = file.read().decode(errors="replace").splitlines() + lines
        except FileNotFoundError:
            continue
    return lines[-count:] if count > 0 else []


def link(path: str, other: str) -> None:
    """Link a log at a second path, where users of its format expect it; an existing file stays."""
    try:
        os.makedirs(os.path.dirname(other), exist_ok=True)
        os.symlink(path, other)
    except OSError:
        pass


def _open(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_private(os.path.dirname(path))
        return os.open(path, flags, 0o600)


def _rotate(path: str) -> None:
    names = generations(path)
    for number in range(KEPT, 0, -1):
        try:
            os.replace(names[number - 1], names[number])
        except OSError:
            continue
