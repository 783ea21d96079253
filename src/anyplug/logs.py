"""Plugins' logs: what they wrote to stderr and how their runs ended. Only the user may read them; they rotate."""

import os
import time

LARGEST = 1 << 20  # bytes, then it becomes NAME.log.1
KEPT = 3  # older ones


def append(path: str, heading: str, text: str) -> None:
    """Add an entry. A log that cannot be written keeps nobody from working."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"{stamp} {heading}", *(f"    {line}" for line in text.splitlines())]
    try:
        with os.fdopen(_open(path), "ab") as file:
            file.write(("\n".join(lines) + "\n").encode(errors="replace"))
            full = file.tell() > LARGEST
    except OSError:
        return
    if full:
        _rotate(path)


def _open(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)


def _rotate(path: str) -> None:
    for number in range(KEPT, 0, -1):
        older = f"{path}.{number - 1}" if number > 1 else path
        try:
            os.replace(older, f"{path}.{number}")
        except OSError:
            continue
