"""Plugins' logs: what they wrote to stderr and how their runs ended. Only the user may read them; they rotate."""

import os
import time

from anyplug.home.location import make_private

LARGEST = 1 << 20  # bytes, then it becomes NAME.log.1
KEPT = 3  # older ones


def append(path: str, heading: str, text: str) -> None:
    """Add an entry. A log that cannot be written keeps nobody from working."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"{stamp} {heading}", *(f"    {line}" for line in text.splitlines())]
    append_raw(path, ("\n".join(lines) + "\n").encode(errors="replace"))


def append_raw(path: str, data: bytes) -> None:
    """Add what a peer wrote, as it wrote it."""
    try:
        with os.fdopen(_open(path), "ab") as file:
            file.write(data)
            full = file.tell() > LARGEST
    except OSError:  # also of the close: the disk may be full
        return
    if full:
        _rotate(path)


def generations(path: str) -> list[str]:
    """Return the names that a log and what was rotated away of it have, the newest first."""
    return [path, *(f"{path}.{number}" for number in range(1, KEPT + 1))]


def link(path: str, other: str) -> None:
    """Make a log readable at a second place, where its format's users look for it; what is there already stays."""
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
