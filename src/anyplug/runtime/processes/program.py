"""What is to be run and what came of it, as plain values: the words that formats and processes share."""

import os
from typing import Literal, Protocol

import msgspec

from anyplug.home.untrusted_files import HeldFolder

Purpose = Literal["run", "init", "resolve"]
Ending = Literal["exited", "timed_out", "too_large", "not_started", "lost"]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a stranger's program, with everything that it gets and all its bounds."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes = b""
    timeout_s: float = 0.0
    max_stdout: int = 0  # bytes; the program is ended when it writes more
    max_stderr: int = 0  # bytes kept from the start; the rest is read and dropped
    tmp: str = ""  # a folder that the program shall see as its /tmp; "" for the machine's own
    visible: tuple[str, ...] = ()  # with `tmp`: folders that stay visible even if they lie below /tmp
    purpose: Purpose = "run"  # a call, setting the plugin up, or fetching what it depends on
    writable: tuple[str, ...] = ()  # where it is confined: folders that this run alone may write to, too


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. Output up to that moment is always kept."""

    ending: Ending
    exit_code: int | None = None  # negative: the signal that ended it; None: not known
    stdout: bytes = b""
    stderr: bytes = b""
    errno: int = 0  # why it was not started
    reason: str = ""  # the same in words


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was in force when a program ran; for the audit."""

    layers: tuple[str, ...]
    landlock: int  # its version; 0 if it is not in force
    filter: str  # sha256 of the seccomp program; empty if there is none
    limits: dict[str, int]
    hosts: tuple[str, ...] = ()  # the grants that a proxy held it to


class PrivateTmp(msgspec.Struct, frozen=True):
    """A /tmp/NAME of one call: where it is for the host, and what covers /tmp so that the program sees it there."""

    folder: str
    cover: str  # empty where /tmp is the machine's own
    around: HeldFolder  # the folder that /tmp/NAME lies in, which the program cannot replace

    @property
    def name(self) -> str:
        """NAME: what is there when the program has ended may be anything."""
        return os.path.basename(self.folder)


class TmpTaken(Exception):
    """/tmp/NAME is somebody else's; the text says whose."""


class Run(Protocol):
    """Runs one program to its end. Never raises for what the program does."""

    async def __call__(self, program: Program) -> Finished:
        """Run it."""
        ...


class Child(Protocol):
    """A started process group, seen from a host that has to wait for it and to end it."""

    fd: int  # becomes readable when there is something for `poll`

    @property
    def pid(self) -> int | None:
        """The process, where it is known."""
        ...

    def poll(self) -> Finished | None:
        """Return how it ended, or None if it still runs; to be called when `fd` is readable.

        What is left of its group is killed then.
        """
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; nothing happens if it has ended."""
        ...

    def close(self) -> None:
        """Let go of the file descriptor."""
        ...


class Spawn(Protocol):
    """Starts a program on three file descriptors. Raises OSError where it is known at once that it cannot."""

    def __call__(self, program: Program, stdin: int, stdout: int, stderr: int) -> Child:
        """Start it."""
        ...
