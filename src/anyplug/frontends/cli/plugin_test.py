"""`test`: run the cases in the folder of a plugin, or record one."""

import os
import shlex
import tempfile
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from anyplug.frontends.cli import call, render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.manage import plugin_tests
from anyplug.manage.plugin_tests import Case, Outcome
from anyplug.model.errors import DONE, FAILED, ToolNotFound, UsageError
from anyplug.model.types import Result

if TYPE_CHECKING:
    from anyplug.host.host import Host

FORM = """\
cases are in DIR/tests/*.toml:
  [[case]]
  name = "counts words"
  tool = "word_count"
  arguments = {text = "so long"}
  expect = {pattern = "2 words"}
expect has text, pattern, structured, schema or error (a code); without it, the call must succeed"""


def _test(parser: Parser) -> Command:
    parser.add_argument("path", nargs="?", default=".", metavar="DIR", help="the plugin's folder or name (default: .)")
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="with --record: the tool to call; else: only its cases")
    parser.add_argument("words", nargs="*", default=[], metavar="KEY=VALUE", help="with --record: its arguments")
    call.add_json_arguments(parser)
    parser.add_argument("--record", action="store_true", help="call the tool, and write the result as a new case")
    parser.add_argument("--junit", metavar="FILE", help="also write a JUnit report")
    parser.epilog = FORM
    return test


COMMANDS = {"test": _test}


def test(session: Session) -> int:
    """Run the cases with the plugin in its sandbox, in a home of their own."""
    options = session.options
    folder = os.path.realpath(session.folder(options.path))
    if options.record and not options.tool:
        raise UsageError("--record needs a tool to call", "`anyplug test DIR --record TOOL KEY=VALUE`")
    plugin = session.catalog.read(os.path.realpath(folder), folder, explicit=True)
    problems = plugin.problems if plugin is not None and plugin.is_broken else ()
    if fault := next((one for one in problems if one.level == "error"), None):
        raise plugin_tests.BadCases(f"'{os.path.basename(folder)}' cannot be loaded: {fault.message}", fault.hint)
    cases = list[Case]()
    with suppress(plugin_tests.BadCases) if options.record else nullcontext():  # to record, the new file decides
        cases = plugin_tests.read(folder)
    if options.tool and cases and not options.record:
        there = sorted({case.tool for case in cases})
        cases = [case for case in cases if case.tool == options.tool]
        if not cases:
            raise UsageError(f"no case calls '{options.tool}'", f"there are cases of {', '.join(there)}")
    if not options.record and not cases:
        raise UsageError(
            f"there are no cases in {os.path.join(folder, plugin_tests.FOLDER)}",
            f"`anyplug test {shlex.quote(options.path)} --record TOOL KEY=VALUE` writes the first one",
        )
    own_home = options.home
    with tempfile.TemporaryDirectory(prefix="anyplug-test-") as home:
        options.home = home  # so that no test touches the author's own data, and none depends on it
        session.use_only(folder)
        entry = session.plugin(folder)
        try:
            if options.record:
                return session.with_host(lambda host: _record(session, host, folder, cases))
            outcomes = session.with_host(lambda host: _run(session, host, cases))
        finally:
            options.home = own_home  # hints are for the author's
    return _report(session, folder, entry.name, outcomes)


async def _run(session: Session, host: "Host", cases: list[Case]) -> list[Outcome]:
    outcomes = []
    for case in cases:
        result = await _called(host, case.tool, case.arguments)
        outcome = Outcome(case=case, failures=plugin_tests.failures(case, result), duration_ms=result.duration_ms)
        outcomes.append(outcome)
        if not session.options.json:
            said = "FAIL" if outcome.failures else "pass"
            render.out(f"{said}  {render.line(case.title)}  {result.duration_ms:.0f} ms")
            for failure in outcome.failures:
                render.out(f"      {render.line(failure)}")
    return outcomes


async def _called(host: "Host", name: str, arguments: dict[str, Any]) -> Result:
    """Call a tool by its own name or its full one."""
    from anyplug.call.consent import Attachment  # with the host

    await host.hear_out(name)
    (entry,) = [entry for entry in host.plugins if entry.plugin.explicit]
    try:
        host.snapshot.tool(name)
    except ToolNotFound:
        name = f"{entry.name}/{name}"
    return await host.call(name, arguments, attachment=Attachment("test", yes=True, shows_panels=False))


async def _record(session: Session, host: "Host", folder: str, cases: list[Case]) -> int:
    options = session.options
    await host.hear_out(options.tool)
    try:
        input_schema = host.snapshot.tool(options.tool)[0].input_schema
    except ToolNotFound:
        input_schema = None
    given = call.arguments(options.words, options.args, input_schema)
    result = await _called(host, options.tool, given)
    if result.error is not None and result.error.code == ToolNotFound.code:
        raise plugin_tests.BadCases(result.error.message, result.error.hint)
    if (same := next((one for one in cases if (one.tool, one.arguments) == (options.tool, given)), None)) is not None:
        return _already(session, os.path.join(folder, same.file), same, plugin_tests.failures(same, result))
    text = plugin_tests.recorded(options.tool, given, result)
    path = plugin_tests.write(folder, f"{options.tool.replace('/', '.')}.toml", text)
    if options.json:
        session.print_json({"file": path, "case": text})
    else:
        render.out(f"written to {path}:", *(f"  {line}" for line in text.splitlines()))
        if result.is_error:
            session.note("note: the call failed, so the case expects this error")
    return DONE


def _already(session: Session, path: str, case: Case, failures: tuple[str, ...]) -> int:
    """Leave the case of the same call as it is: its author may have changed what it expects."""
    if failures:
        raise plugin_tests.BadCases(
            f"{path} already has a case of this call, '{case.title}', which fails now: {failures[0]}",
            "change what it expects, or delete it and record the call again",
        )
    if session.options.json:
        session.print_json({"file": path, "case": None})
    else:
        render.out(f"{path} already has a case of this call, '{render.line(case.title)}', and it passes")
    return DONE


def _report(session: Session, folder: str, plugin: str, outcomes: list[Outcome]) -> int:
    options = session.options
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    if options.junit:
        plugin_tests.write_report(folder, options.junit, plugin_tests.junit(plugin, outcomes))
    if options.json:
        session.print_json(
            [
                {
                    "name": outcome.case.title,
                    "tool": outcome.case.tool,
                    "file": outcome.case.file,
                    "passed": not outcome.failures,
                    "failures": list(outcome.failures),
                    "duration_ms": outcome.duration_ms,
                }
                for outcome in outcomes
            ]
        )
    else:
        passed = len(outcomes) - failed
        render.out(f"{passed} of {render.count(len(outcomes), 'case')} passed")
    return FAILED if failed else DONE
