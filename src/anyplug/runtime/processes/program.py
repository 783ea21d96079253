"""What to run and how it ended, as plain values shared by formats and processes."""

import os
from typing import Literal, NamedTuple, Protocol

import msgspec

from anyplug.home.untrusted_files import HeldFolder
from anyplug.model.types import File

Purpose = Literal["run", "init", "resolve"]
Ending = Literal["exited", "timed_out", "too_large", "not_started", "lost"]


class Input(msgspec.Struct, frozen=True):
    """A file that goes into a run."""

    parameter: str  # as which it was given, for messages
    filename: str
    data: bytes


class Files(msgspec.Struct, frozen=True):
    """Files that go into a run and come out of it, through its own /tmp/NAME."""

    tool: str  # for messages
    inputs: tuple[Input, ...]
    keep: str  # where copies of what it wrote there stay


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an untrusted program, with its inputs and limits."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes = b""
    trace: dict[str, str] = {}  # variables of this run alone; an interpreter that waits has none, so it starts cold
    timeout_s: float = 0.0
    max_stdout: int = 0  # bytes; the program is ended when it writes more
    max_stderr: int = 0  # bytes kept from the start; the rest is read and dropped
    folders: tuple[str, ...] = ()  # that are made for it, unless they are there
    private_tmp: str = ""  # NAME: it has a /tmp/NAME of its own, for which the host sets `tmp` and `writable`
    files: Files | None = None  # with `private_tmp`
    tmp: str = ""  # a folder that the program sees as its /tmp; "" for the machine's own
    visible: tuple[str, ...] = ()  # with `tmp`: folders that stay visible even if they are below /tmp
    purpose: Purpose = "run"  # a call, setting the plugin up, or fetching its dependencies
    writable: tuple[str, ...] = ()  # if confined: folders that only this run may write to, too
    shares: str = ""  # a folder of notes whose lock it shares: fetching dependencies waits until it has ended


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. Output until then is always kept."""

    ending: Ending
    exit_code: int | None = None  # negative: the signal that ended it; None: unknown
    stdout: bytes = b""
    stderr: bytes = b""
    files: tuple[File, ...] = ()  # what it left in its /tmp/NAME, if it exited with 0
    errno: int = 0  # why it was not started
    reason: str = ""  # the same in words


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was enforced when a program ran; for the audit."""

    layers: tuple[str, ...]
    landlock: int  # its version; 0 if not in force
    filter: str  # sha256 of the seccomp program; empty if there is none
    limits: dict[str, int]
    hosts: tuple[str, ...] = ()  # the grants that a proxy enforced
    reached: tuple[str, ...] = ()  # hosts and ports to which it connected


class PrivateTmp(msgspec.Struct, frozen=True):
    """A call's /tmp/NAME: its path on the host, and what is mounted over /tmp so that the program sees it there."""

    folder: str
    cover: str  # empty if /tmp is the machine's own
    around: HeldFolder  # the folder that contains /tmp/NAME, which the program cannot replace

    @property
    def name(self) -> str:
        """NAME; after the program has ended, it may be anything."""
        return os.path.basename(self.folder)


class TmpTaken(OSError):
    """/tmp/NAME belongs to somebody else; the text says to whom."""


class Run(Protocol):
    """Runs one program to its end. Never raises because of what the program does."""

    async def __call__(self, program: Program) -> Finished:
        """Run it."""
        ...


class Child(Protocol):
    """A started process group that a host waits for and ends."""

    fd: int  # becomes readable when there is something for `poll`

    @property
    def pid(self) -> int | None:
        """The process, if known."""
        ...

    def poll(self) -> Finished | None:
        """Return how it ended, or None if it still runs; call it when `fd` is readable.

        The rest of its group is killed then.
        """
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; does nothing if it has ended."""
        ...

    def close(self) -> None:
        """Close the descriptor."""
        ...


class Begun(NamedTuple):
    """A started program that is about to serve a call."""

    ours: tuple[int, int, int]  # our ends of its pipes
    child: Child
    first: bytes  # to write before its input
    answer: bytes  # that it writes before its output


class Waiting(Protocol):
    """A program that was started ahead."""

    async def settled(self) -> bool:
        """Wait until it waits for its call; return False if it never will."""
        ...

    def release(self) -> Begun:
        """Hand it over to a call. It must be waiting."""
        ...


class Spawn(Protocol):
    """Starts a program on three descriptors. Raises OSError if it is immediately known that it cannot."""

    def __call__(self, program: Program, stdin: int, stdout: int, stderr: int) -> Child:
        """Start it."""
        ...
