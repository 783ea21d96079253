"""Signals: the project's own commands, run for policies that need their answers.

Each gets the event on stdin and runs in the project's folder. Exit 0: its output, as JSON if possible, else as text.
Any other exit: {exit_code, output, error, success: false}, both texts trimmed. A signal that could not be run (exit 126
or 127, or killed by a system signal) or did not end in time has no answer, and the caller is told so.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import anyio
import msgspec

from anyplug.policy.rulebook import Signal
from anyplug.runtime.processes.program import Finished, Program

LARGEST_OUTPUT: Final = 1 << 20  # bytes; an answer is a word or a small object
KEPT_STDERR: Final = 16_384  # bytes
NOT_RUN: Final = {126: "its program is not executable", 127: "its program does not exist"}  # exit codes of the shell
SIGNALLED: Final = 128  # what the shell adds to the number of the signal that ended a program
LAST_SIGNAL: Final = 64
LONGEST_SAID: Final = 200  # characters of its stderr


class RunSignal(Protocol):
    """Runs one signal to its end: in a project's sandbox, or without one if no project is named."""

    async def __call__(self, program: Program, project: str = "", *, unconfined: bool = False) -> Finished:
        """Run it; `unconfined`: even without a sandbox. Never raises because of what the program does."""
        ...


class Answers(msgspec.Struct, frozen=True):
    """The signals' answers, and why some did not answer."""

    values: dict[str, Any] = {}
    troubles: dict[str, str] = {}
    outer: tuple[Any, ...] = ()  # the same for parent folders, each Answers or None


class SignalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that may run: where, and in whose sandbox."""

    signal: Signal
    folder: str
    project: str = ""  # empty: the user's own, which is not confined
    unconfined: bool = False


async def ask(
    errands: Iterable[SignalRequest], document: dict[str, Any], environment: Mapping[str, str], run: RunSignal
) -> Answers:
    """Run signals concurrently, each within its time."""
    values: dict[str, Any] = {}
    troubles: dict[str, str] = {}
    stdin = msgspec.json.encode(document)

    async def one(errand: SignalRequest) -> None:
        signal = errand.signal
        program = Program(
            argv=("/bin/sh", "-c", signal.command),
            cwd=errand.folder,
            env=dict(environment),
            stdin=stdin,
            timeout_s=signal.timeout_s,
            max_stdout=LARGEST_OUTPUT,
            max_stderr=KEPT_STDERR,
        )
        finished = await run(program, errand.project, unconfined=errand.unconfined)
        trouble = _trouble(finished, signal)
        if trouble:
            troubles[signal.name] = trouble
        else:
            values[signal.name] = _value(finished)

    async with anyio.create_task_group() as tasks:
        for errand in errands:
            tasks.start_soon(one, errand)
    return Answers(values, troubles)


def _trouble(finished: Finished, signal: Signal) -> str:
    if finished.ending == "timed_out":
        return f"it did not end within {signal.timeout_s:g} s"
    if finished.ending == "too_large":
        return f"it wrote more than {LARGEST_OUTPUT >> 20} MiB"
    if finished.ending != "exited" or finished.exit_code is None:
        return finished.reason or "it could not be run"
    code = finished.exit_code
    number = -code if code < 0 else code - SIGNALLED
    if not signal.command.strip():
        return "its command is empty"
    if code in NOT_RUN:
        return f"{NOT_RUN[code]}, exit code {code}{_said(finished)}"
    if 0 < number <= LAST_SIGNAL:
        return f"it was killed by signal {number}{_said(finished)}"
    return ""


def _said(finished: Finished) -> str:
    said = " ".join(finished.stderr.decode(errors="replace").split())
    return f" ({said[:LONGEST_SAID]})" if said else ""


def _value(finished: Finished) -> Any:
    output = finished.stdout.decode(errors="replace").strip()
    if finished.exit_code != 0:
        error = finished.stderr.decode(errors="replace").strip()
        return {"exit_code": finished.exit_code, "output": output, "error": error, "success": False}
    try:
        return msgspec.json.decode(output)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return output
