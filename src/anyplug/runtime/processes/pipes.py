"""The pipes of a program's stdin, stdout and stderr."""

import os
from typing import NamedTuple


class Pipes(NamedTuple):
    """Both ends of all three: the program's, and ours."""

    theirs: tuple[int, int, int]
    ours: tuple[int, int, int]


def open_pipes() -> Pipes:
    """Open all three; raises OSError if too many files are open, leaving none open."""
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    stdin_read, stdin_write, stdout_read, stdout_write, stderr_read, stderr_write = opened
    return Pipes((stdin_read, stdout_write, stderr_write), (stdin_write, stdout_read, stderr_read))
