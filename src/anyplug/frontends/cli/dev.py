"""`dev`: a live screen for authors. On each save it checks the plugin, reloads it, and repeats the last call."""

import os
import queue
import shlex
import sys
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.frontends.cli import call, learn, render
from anyplug.frontends.cli.call import arguments
from anyplug.frontends.cli.check import findings
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.home.digest import NEVER
from anyplug.model.errors import DONE, AnyplugError, ToolNotFound, UsageError
from anyplug.model.types import Plugin, Result
from anyplug.model.untrusted_text import lines_for_people

if TYPE_CHECKING:
    from anyplug.host.host import Host

CLEAR = "\x1b[H\x1b[2J\x1b[3J"
DEBOUNCE_MS = 150  # editors write a file in several steps
MOST_STDERR = 20  # lines that are shown
MOST_LOG = 64 << 10  # bytes of the log that a run may have added
MOST_RESULT = 60  # lines
QUIT = frozenset({"q", "quit", "exit"})
HELP = "Enter repeats the call; TOOL KEY=VALUE makes another one; q quits."


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One call: what it gave, printed and was refused."""

    result: Result
    stderr: list[str]
    refused: list[str]


def _dev(parser: Parser) -> Command:
    parser.add_argument("path", nargs="?", default=".", metavar="DIR", help="the plugin's folder or name (default: .)")
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="the tool to call after each save")
    parser.add_argument("words", nargs="*", default=[], metavar="KEY=VALUE", help="its arguments")
    call.add_json_arguments(parser)
    return dev


COMMANDS = {"dev": _dev}


def dev(session: Session) -> int:
    """Repeat check and call, each time that the folder changes or the person asks."""
    options = session.options
    folder = os.path.realpath(session.folder(options.path))
    if not os.path.isdir(folder):
        from anyplug.catalog import wrong_folder  # only needed after a typo

        raise UsageError(f"{folder} is not a folder", wrong_folder.instead_of_missing(folder))
    session.use_only(folder)
    wanted = [options.tool, *options.words] if options.tool else []
    news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(folder, news, stop), daemon=True)
    watcher.start()
    threading.Thread(target=_listen, args=(news,), daemon=True).start()
    why = "started"
    try:
        while True:
            session.forget_snapshot()
            _show(session, folder, wanted, why)
            line = news.get()
            if line is not None and line.strip() in QUIT:
                return DONE
            if line is not None and line.strip():
                wanted, options.args = _typed(line), None
            why = "saved" if line is None else "asked"
    finally:
        stop.set()
        watcher.join()


def _watch(folder: str, news: "queue.SimpleQueue[str | None]", stop: threading.Event) -> None:
    from watchfiles import DefaultFilter, watch  # takes 52 ms to import

    watched = DefaultFilter(ignore_dirs=(*DefaultFilter.ignore_dirs, *NEVER))
    for _ in watch(folder, watch_filter=watched, debounce=DEBOUNCE_MS, stop_event=stop, rust_timeout=200):
        news.put(None)


def _listen(news: "queue.SimpleQueue[str | None]") -> None:
    for line in sys.stdin:
        news.put(line)
    if not sys.stdin.isatty():
        return  # piped input has ended; saves still count
    news.put("q")


def _typed(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _show(session: Session, folder: str, wanted: list[str], why: str) -> None:
    """Check and call, then draw the screen at once, so that it does not flicker."""
    plugin = findings(session, folder)
    lines = [f"{plugin.name}: {why}", *_problem_lines(plugin)]
    if plugin.is_broken:
        lines.append("It is not called until that is fixed.")
    elif wanted:
        lines += _call_lines(session, folder, wanted)
    else:
        tools = [tool.own_name for tool in session.running_snapshot().plugin(folder).tools]
        lines.append(f"Its tools: {', '.join(tools) or 'none'}")
    if sys.stdout.isatty() and sys.stdin.isatty():
        sys.stdout.write(CLEAR)
    render.out(*lines, "", HELP)
    sys.stdout.flush()


def _problem_lines(plugin: Plugin) -> list[str]:
    if not plugin.problems:
        return ["check: no problems"]
    found = []
    for problem in plugin.problems:
        found.append(f"{problem.level}: {render.line(problem.message)}")
        found += [f"  hint: {render.line(problem.hint)}"] if problem.hint else []
    return found


def _call_lines(session: Session, folder: str, wanted: list[str]) -> list[str]:
    try:
        ran = _run(session, folder, wanted)
    except AnyplugError as error:
        return [
            "",
            f"> {render.line(shlex.join(wanted))}",
            f"error: {render.line(error.message)}",
            f"hint: {render.line(error.hint)}",
        ]
    result = ran.result
    said: Any = result.error.message if result.error else result.text
    state = f"error {result.error.code}" if result.error else "done"
    lines = ["", f"> {render.line(shlex.join(wanted))}", f"{state} in {result.duration_ms:.0f} ms"]
    lines += lines_for_people(str(said), "  ")[:MOST_RESULT]
    if result.structured is not None:
        lines += ["structured:", *lines_for_people(msgspec.json.encode(result.structured).decode(), "  ")[:MOST_RESULT]]
    if ran.stderr:
        lines += ["stderr:", *(f"  {line}" for line in ran.stderr[-MOST_STDERR:])]
    if ran.refused:
        lines += ["refused by the sandbox:", *(f"  {line}" for line in ran.refused)]
    return lines


def _run(session: Session, folder: str, wanted: list[str]) -> Ran:
    """Call the tool with a new process of the plugin, observed as `learn` does. Raises AnyplugError."""
    from anyplug.call.consent import Attachment  # imports an event loop, as running a plugin does
    from anyplug.launch.learning import Learning

    entry = session.plugin(folder)
    learning = Learning(folder, ())
    log = session.catalog.home.log(entry.plugin)
    before = os.path.getsize(log) if os.path.exists(log) else 0

    async def work(host: "Host") -> Result:
        name = wanted[0]
        await host.hear_out(name)
        try:
            tool = host.snapshot.tool(name)[0]
        except ToolNotFound:
            name = f"{entry.name}/{name}"
            tool = host.snapshot.tool(name)[0]
        given = arguments(wanted[1:], session.options.args, tool.input_schema)
        return await host.call(name, given, attachment=Attachment("dev", yes=True, shows_panels=False))

    result = session.with_host(work, learning)
    lesson = learn.lesson_of(session, entry, learning, {}, has_failed=result.is_error)
    refused = [
        render.line(f"{need.permission}: {', '.join(need.because)}") for need in lesson.needs if need.refused
    ] + [render.line(f"never allowed: {tried}") for tried in lesson.never]
    return Ran(result=result, stderr=_added(log, before), refused=refused)


def _added(log: str, before: int) -> list[str]:
    """Return what a run added to the plugin's log."""
    try:
        with open(log, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(before if before <= size else 0)  # it may have been rotated
            text = file.read(MOST_LOG).decode(errors="replace")
    except OSError:
        return []
    return [line for line in lines_for_people(text, "") if line.strip()]
