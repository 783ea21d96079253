"""Shared by formats whose call is one process: its failures, in the words that the format's users know."""

import errno
import os
import re

import msgspec

from anyplug.model.errors import (
    CURE_FOR_SHORTAGE,
    RETURN_LESS,
    SHORTAGES,
    STDERR_SHOWN,
    CallError,
    Crashed,
    NotExecutable,
    TimedOut,
    TooLarge,
    Unavailable,
    last_words,
)
from anyplug.model.late_patterns import late
from anyplug.model.types import Call
from anyplug.runtime.processes.diagnosis import diagnose
from anyplug.runtime.processes.program import Finished, Program

COMMAND_NOT_FOUND = 127  # the exit code of shells and env
_NOT_FOUND = late(r"([\w.+-]+): (?:command )?not found\s*$", re.MULTILINE)  # as shells say it


class Words(msgspec.Struct, frozen=True):
    """A format's wording."""

    timed_out: str  # with {seconds}
    too_large: str  # with {size}
    crashed: str
    not_executable: str
    not_started: str


def failure(call: Call, program: Program, finished: Finished, words: Words) -> CallError:
    """Describe a process that did not exit with 0."""
    stdout, stderr = decode(finished.stdout), decode(finished.stderr)
    if finished.ending == "not_started":
        return _not_started(call, program, finished, words)
    if finished.ending == "timed_out":
        return TimedOut(
            words.timed_out.format(seconds=program.timeout_s),
            f"run it by hand to see what it waits for; raise `timeout_s` under [plugins.{call.plugin.name}] in "
            "settings.toml to change the limit",
            partial=stdout,
            stderr=stderr,
        )
    if finished.ending == "too_large":
        return TooLarge(
            words.too_large.format(size=_size(program.max_stdout)),
            RETURN_LESS,
            stderr=stderr,
        )
    if finished.ending == "lost":
        return Unavailable(f"{words.crashed}: {finished.reason}", "call it again")
    return _crashed(call, program, finished, words, stdout, stderr)


def cure_for_start(reason: str, plugin: str) -> str:
    """Return what to do about a program that was not started although its file is fine."""
    if "permissions" in reason:  # the spawner's word for what Landlock refused
        return f"`anyplug grant {plugin} shell:exec`, or shell:exec:PROGRAM for that program alone"
    if any(os.strerror(number) in reason for number in SHORTAGES):
        return CURE_FOR_SHORTAGE
    return "run it by hand"


def cure_for_missing(call: Call, program: Program, stderr: str) -> str:
    """Return what to do about exit code 127: name what is to be installed, if the file or stderr tells."""
    search = program.env.get("PATH")
    if fault := diagnose(call.tool.program, search):
        return fault.hint
    import shutil  # with three compressors; only needed after a failure

    named = _NOT_FOUND.search(stderr)
    if named is None or shutil.which(named[1], path=search):  # it may be there, and hidden by the sandbox
        return "a program that it needs, or its interpreter, is not installed"
    return f"install {named[1]}"


def decode(output: bytes) -> str:
    """Decode an untrusted program's output."""
    return output.decode(errors="replace")


def _crashed(call: Call, program: Program, finished: Finished, words: Words, stdout: str, stderr: str) -> Crashed:
    code = finished.exit_code or 0
    said = stderr.strip()[:STDERR_SHOWN]
    hint = "run it by hand with the same input and check its stderr"
    if finished.reason:
        said = f"it was killed because {finished.reason}" + (f"; {said}" if said else "")
        hint = "make it use less; `[plugins.NAME.limits]` in settings.toml changes the limits"
    elif code < 0:
        from anyplug.runtime.processes.guard import signal_name  # imports subprocess, which only a run needs

        said = f"killed by {signal_name(-code)}" + (f"; {said}" if said else "")
    if code == COMMAND_NOT_FOUND:
        hint = cure_for_missing(call, program, stderr)
    elif len(stderr.strip()) > STDERR_SHOWN:  # the error is at the end of a trace
        hint = f"the end of its stderr: {last_words(stderr).splitlines()[-1][:STDERR_SHOWN]}"
    return Crashed(
        f"{words.crashed} (exit {abs(code)})" + (f": {said}" if said else ""),
        hint,
        partial=stdout,
        stderr=stderr,
        exit_code=code,
    )


def _not_started(call: Call, program: Program, finished: Finished, words: Words) -> CallError:
    path = call.tool.program
    if not os.path.isdir(call.plugin.path):
        return Unavailable(f"the folder of plugin '{call.plugin.name}' is gone: {call.plugin.path}", "install it again")
    if finished.errno in SHORTAGES or finished.errno == errno.EAGAIN:  # of the host's, and not the program's fault
        return Unavailable(f"{words.not_started}: {path}: {finished.reason}", CURE_FOR_SHORTAGE)
    fault = diagnose(path, program.env.get("PATH"))
    if fault is None:
        return NotExecutable(
            f"{words.not_started}: {path}: {finished.reason}", cure_for_start(finished.reason, call.plugin.name)
        )
    what = words.not_started if os.access(path, os.X_OK) else words.not_executable
    return NotExecutable(f"{what}: {path}: {fault.reason}", fault.hint)


def _size(limit: int) -> str:
    return f"{limit >> 20}MB" if limit % (1 << 20) == 0 else f"{limit:,} bytes"
