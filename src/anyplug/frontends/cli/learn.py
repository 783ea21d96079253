"""`learn`: observe one call and report the permissions that it needed."""

import os
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.catalog.snapshot import Entry
from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.call import add_call, arguments, report
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.model.errors import CODES, REFUSED, NotApproved, UsageError
from anyplug.model.result_shape import result_shape
from anyplug.model.types import Result, Tool

if TYPE_CHECKING:
    from anyplug.host.host import Host
    from anyplug.launch.learning import Learning, Lesson, Need

MOST_CALLED = 1_000  # calls of other plugins' tools that are considered
MANIFESTS = {"cyclop": "plugin.json", "mcp": "mcp.json"}  # where authors name permissions; other formats cannot
SHOWN_ANSWER = 200  # characters of the tool's answer


def _learn(parser: Parser) -> Command:
    add_call(parser)
    parser.add_argument("--yes", action="store_true", help="run it without asking")
    parser.add_argument(
        "--open", action="store_true", help="for this call, allow everything that permissions can allow"
    )
    return learn


COMMANDS = {"learn": _learn}


def learn(session: Session) -> int:
    """Run a call and report what it needed."""
    options = session.options
    tool, entry = session.running_snapshot().tool(options.tool)
    if entry.state != "approved":
        raise NotApproved(entry.name, entry.state, entry.standing.changes)
    given = arguments(options.words, options.args, tool.input_schema)
    _agree(session, tool, entry)
    from anyplug.launch.learning import OPEN, Learning  # imports an event loop, as running a plugin does

    learning = Learning(entry.path, OPEN if options.open else ())

    called: dict[str, bool] = {}

    async def work(host: "Host") -> Result:
        from anyplug.call.consent import Attachment  # with the host

        kind = "learn-open" if options.open else "learn"
        attachment = Attachment(kind, yes=True, shows_panels=False)
        result = await host.call(options.tool, given, attachment=attachment)
        chain = (attachment.id, f"{entry.name}/{tool.own_name}")
        for item in host.audit.calls(MOST_CALLED):
            if item.record.callers == chain and item.record.plugin != entry.name:
                called[item.record.tool] = item.record.verdict == "denied"
        return result

    result = session.with_host(work, learning)
    code = CODES[result.error.code].exit if result.error else 0
    if not learning.has_listened:
        if code != REFUSED:  # for example a remote server
            session.note(f"note: no program of {entry.name} ran on this machine, so there is nothing to report")
        return report(session, result)
    _show(session, entry, result, lesson_of(session, entry, learning, called, has_failed=result.is_error))
    return code


def _agree(session: Session, tool: Tool, entry: Entry) -> None:
    """Make sure that the person knows that the call really happens."""
    from anyplug.launch.assessment import switched_off  # imports an event loop, as running a plugin does

    if off_by := switched_off(session.catalog.settings):
        raise UsageError(f"nothing can be learned while {off_by} turns the sandbox off", "turn it on for this call")
    granted = render.line(", ".join(entry.standing.granted)) or "nothing"
    may = (
        "everything that permissions can allow: your files, the network, every program"
        if session.options.open
        else f"what it was granted ({granted}); whatever else it tries is refused and listed"
    )
    if not session.options.json:
        terminal.say(f"This really runs {tool.name} of {entry.name}: what it changes, sends or deletes is not undone.")
        terminal.say(f"While it runs it may use {may}.")
    if session.options.yes:
        return
    if not terminal.can_ask():
        again = session.again("--yes")
        refuse(f"{tool.name} was not run: this is not a terminal", f"{again} runs it without asking")
    if not session.confirm("Run it?"):
        refuse(f"{tool.name} was not run", "nothing has changed")


def lesson_of(
    session: Session, entry: Entry, learning: "Learning", called: dict[str, bool], *, has_failed: bool
) -> "Lesson":
    """Conclude what a call needed from what was observed."""
    from anyplug.launch.assessment import drawn
    from anyplug.launch.learning import Around, conclude, used  # for the same reason
    from anyplug.runtime.sandbox.system_paths import program_files

    catalog, standing = session.catalog, entry.standing
    search_path = os.environ.get("PATH", os.defpath)
    around = Around(
        base=drawn(catalog, entry.plugin, msgspec.structs.replace(standing, granted=())),
        used=drawn(catalog, entry.plugin, learning.widened(standing)),
        # Grants that a folder has because it was named for this run are no reason to grant them permanently.
        granted=entry.plugin.permissions if entry.plugin.explicit else standing.granted,
        user=os.path.realpath(os.path.expanduser("~")),
        project=os.path.realpath(os.getcwd()),
        find=lambda name: program_files(name, search_path),
        has_failed=has_failed,
        called=called,
    )
    lesson = conclude(learning.events, around)
    _note(session, entry, used(lesson, around))
    return lesson


def _note(session: Session, entry: Entry, found: dict[str, tuple[str, ...]]) -> None:
    """Keep what was used, for the console; one that was named for this run is kept by nobody."""
    from anyplug.catalog import seen_permissions  # few commands need it

    if not entry.plugin.explicit:
        catalog = session.catalog
        digest = catalog.digest(entry.plugin).value
        seen_permissions.note(catalog.store, entry.path, digest, found, is_whole=True)


def _show(session: Session, entry: Entry, result: Result, lesson: "Lesson") -> None:
    from anyplug.launch.learning import commands  # for the same reason

    typed = commands(entry.name, lesson, folder=entry.plugin.path if entry.plugin.explicit else "")
    is_fitting = not lesson.add and not lesson.remove
    if session.options.json:
        session.print_json(
            {
                "tool": result.tool,
                "plugin": result.plugin,
                "open": session.options.open,
                **msgspec.to_builtins(lesson),
                "commands": [] if is_fitting else list(typed),
                "result": result_shape(result),
            }
        )
        return
    _say_result(result)
    needed = [need for need in lesson.needs if need.permission not in lesson.optional]
    render.out("", "Beyond what every plugin may do, it needed:" if needed else "It needed no permission.")
    _say_needs(needed)
    if lesson.optional:
        render.out("", "Refused, and it continued without:")
        _say_needs([need for need in lesson.needs if need.permission in lesson.optional])
    if lesson.never:
        render.out("", "Tried, but no grant allows it:")
    for tried in lesson.never:
        render.out(f"  {render.line(tried)}")
    if is_fitting:
        render.out("", "Its grants are exactly what this call needs.")
    else:
        render.out("", "For this call, its grants should be:")
        for sign, names in (("+", lesson.add), ("-", lesson.remove), (" ", lesson.keep)):
            for name in names:
                render.out(f"  {sign} {render.line(name)}")
        render.out("", "To change them:")
        for command in typed:
            render.out(f"  {command}")
    where = MANIFESTS.get(entry.plugin.format)
    if where and not is_fitting:
        listed = ", ".join(f'"{name}"' for name in sorted({*lesson.keep, *lesson.add}))
        render.out("", f"If you are its author, {where} should say:", f'  "permissions": [{render.line(listed)}]')
    _say_limits(session, lesson)


def _say_result(result: Result) -> None:
    said: Any = result.error.message if result.error else result.text
    first = render.line(str(said))
    shown = first if len(first) <= SHOWN_ANSWER else first[:SHOWN_ANSWER] + "…"
    how = "It failed" if result.is_error else "It succeeded"
    render.out(f"{how} in {result.duration_ms:.0f} ms: {shown}")


def _say_needs(needs: "list[Need]") -> None:
    for need in needs:
        render.out(f"  {render.line(need.permission)}{' (refused)' if need.refused else ''}")
        for reason in need.because:
            render.out(f"      {render.line(reason)}")


def _say_limits(session: Session, lesson: "Lesson") -> None:
    """Show what cannot be concluded."""
    session.note("note: this was one call; another may need more. It may also have tried more than it should have.")
    if lesson.optional:
        session.note("note: grant what was refused only if the result is not what you want")
    if lesson.add and not session.options.open:
        session.note("note: it may have stopped after the refusal; --open shows everything it needs")
