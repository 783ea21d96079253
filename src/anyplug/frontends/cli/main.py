"""The entry point of the command line: find the command's module, and import nothing that it does not need.

Built on argparse, because a command line that is called often must start fast: click adds 38 ms to a start of 14 ms.
"""

import atexit
import gc
import os
import sys

from anyplug import __version__
from anyplug.home import import_folders

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes milliseconds to import
if TYPE_CHECKING:
    from typing import NoReturn

COLLECT = 200_000  # new objects between collections: a start makes tens of thousands, and drops none of them
SIGNALLED = 128  # what shells add to a signal's number
INTERRUPT = 2  # SIGINT


def main() -> None:
    """Run a command and exit with its code."""
    import_folders.leave_out_project()  # before anything else is imported
    gc.set_threshold(COLLECT, *gc.get_threshold()[1:])
    _leave(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Run a command; return its exit code."""
    _have_all_streams()
    if words == ["--version"]:
        print(f"anyplug {__version__}")
        return 0
    try:
        if "eval" in words and (code := _evaluate(words)) is not None:
            return code
        if words[:1] == ["chat"] and (code := _converse(words)) is not None:
            return code
        return _run(words)
    except BrokenPipeError:
        _drop_output()  # the reader of our output has gone
        return 0
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        return _interrupted(error.__cause__)  # raised inside a class definition during an import
    except OSError as error:
        if "--debug" in words:
            raise
        return _fail(error, words)


def _leave(code: int) -> "NoReturn":
    """Exit without taking the interpreter apart, a sixth of a command's time, unless a thread must end first."""
    threading = sys.modules.get("threading")
    main = threading.main_thread() if threading is not None else None
    if threading is None or all(thread is main or thread.daemon for thread in threading.enumerate()):
        try:
            atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name for it
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            sys.exit(code)  # which reports it
        os._exit(code)
    sys.exit(code)


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    print(file=sys.stderr)
    return SIGNALLED + (interrupt.args[0] if interrupt.args else INTERRUPT)


def _evaluate(words: list[str]) -> int | None:
    """Run `eval` without the parser, whose import takes longer than a decision; None if it needs the parser."""
    from anyplug.frontends.cli.eval import quickly  # for the same reason

    return quickly(words)


def _converse(words: list[str]) -> int | None:
    """Run `chat` without the parser, which its first frame does not need; None if it needs the parser."""
    from anyplug.frontends.cli.chat import quickly  # only needed here

    return quickly(words)


def _run(words: list[str]) -> int:
    from anyplug.frontends.cli import light_msgspec  # `--version` needs none of these

    light_msgspec.load()
    from anyplug.frontends.cli.cli_run import Session
    from anyplug.frontends.cli.parsing import parse  # `--version` does not need it

    try:
        options, command = parse(words)
        with Session(options) as session:
            return session.guarded(command)
    finally:
        sys.stdout.flush()  # here, where it is expected that nobody reads any more


def _have_all_streams() -> None:
    """Replace streams that the caller closed, before our files get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as we run
    # A tool's answer may contain characters that the terminal's encoding lacks: they are shown as escapes.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discard what Python still has buffered: it must not raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: OSError, words: list[str]) -> int:
    """Report what the operating system refused; stdout itself may be what it refused to write."""
    import errno  # only needed after a failure, as are these

    from anyplug.frontends.cli import render
    from anyplug.frontends.cli.parsing import wants_json  # only needed after a failure
    from anyplug.model import hints
    from anyplug.model.errors import FAILED, OS_ERROR

    where = f": {error.filename}" if error.filename else ""
    message, hint = f"{error.strerror or error}{where}", f"{hints.command('--debug', *words)} shows where it happened"
    if error.filename and error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}:
        hint = f"check the permissions of {error.filename} and the disk's free space; {hint}"
    if error.filename and error.errno == errno.ENOENT:
        hint = f"check the path; {hint}"
    if _is_nowhere():
        message, hint = "the current folder no longer exists", "change to another one, then try again"
    is_json = wants_json(words)
    if is_json:
        try:
            render.json({"error": {"code": OS_ERROR, "message": message, "hint": hint}})
            sys.stdout.flush()
        except OSError:
            is_json = False
    _drop_output()
    if not is_json:
        render.error(message, hint)
    return FAILED


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False
