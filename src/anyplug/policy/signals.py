"""Signals: the project's own commands, run for policies that ask for their answers.

Each gets the event on its stdin and runs in the project's folder. Exit 0: its output, as JSON if it is any, else as
text. Any other exit: {exit_code, output, error, success: false}, both texts trimmed. What could not be run, or did not
end in time, has no answer: that is a trouble, and whoever decides has to know of it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import anyio
import msgspec

from anyplug.policy.rulebook import Signal
from anyplug.runtime.program import Finished, Program

LARGEST_OUTPUT: Final = 1 << 20  # bytes; an answer is a word or a small object
KEPT_STDERR: Final = 16_384  # bytes


class RunSignal(Protocol):
    """Runs one signal to its end: in the sandbox of a project, or as it is where no project is named."""

    async def __call__(self, program: Program, project: str = "", *, unconfined: bool = False) -> Finished:
        """Run it; `unconfined`: also where there is no sandbox. Never raises for what the program does."""
        ...


class Answers(msgspec.Struct, frozen=True):
    """What signals answered, and why some did not."""

    values: dict[str, Any] = {}
    troubles: dict[str, str] = {}


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that may run: where, and in whose sandbox."""

    signal: Signal
    folder: str
    project: str = ""  # empty: the person's own, which is not confined
    unconfined: bool = False


async def ask(
    errands: Iterable[Errand], document: dict[str, Any], environment: Mapping[str, str], run: RunSignal
) -> Answers:
    """Run signals side by side, each within its time."""
    values: dict[str, Any] = {}
    troubles: dict[str, str] = {}
    stdin = msgspec.json.encode(document)

    async def one(errand: Errand) -> None:
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
    return ""


def _value(finished: Finished) -> Any:
    output = finished.stdout.decode(errors="replace").strip()
    if finished.exit_code != 0:
        error = finished.stderr.decode(errors="replace").strip()
        return {"exit_code": finished.exit_code, "output": output, "error": error, "success": False}
    try:
        return msgspec.json.decode(output)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return output
