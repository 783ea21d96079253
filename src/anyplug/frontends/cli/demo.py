"""`demo`: the example plugins, from discovery to calls, in a temporary home."""

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from anyplug import __version__
from anyplug.call.consent import Attachment
from anyplug.formats import registry
from anyplug.frontends.cli import demo_picture
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.describe_plugin import TIERS
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.home.scratch_folders import Scratch
from anyplug.home.settings import find_home
from anyplug.host.host import Host
from anyplug.model import permissions
from anyplug.model.errors import DONE, FAILED
from anyplug.model.result_shape import result_shape
from anyplug.model.types import File, Result
from anyplug.model.untrusted_text import for_people
from anyplug.runtime.processes.toolchain import find_node

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 108  # characters; fits a README
SHOWN = 62  # characters of a result

# Tool, arguments and expected outcome.
CALLS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("word_count", {"text": "to be or not to be", "top": 2}, "done"),
    ("log_count", {"path": "/etc/passwd", "word": "root"}, "done"),
    ("bookmark_add", {"url": "https://example.org", "tags": ["reading"]}, "done"),
    ("bookmark_find", {"tag": "cooking"}, "tool_error"),
    ("field-kit.roll_dice", {"count": 3}, "done"),
    ("field-kit.convert_length", {"value": 42.195, "unit": "km", "to": "mi"}, "done"),
    ("field-kit.convert_length", {"value": 1, "unit": "parsec", "to": "km"}, "invalid_arguments"),
    ("field-kit.draw_badge", {"name": "Ada"}, "done"),
    ("field-kit.slow_report", {"seconds": 0.3}, "done"),
    ("daylight", {"latitude": 52.5, "date": "2025-06-21"}, "done"),
    ("tie_knot", {"knot": "reef"}, "done"),
    ("mcp.almanac.moon_phase", {"date": "2025-06-21"}, "done"),
    ("tally.add", {"what": "cups of tea", "by": 2}, "done"),
    ("tally.show", {}, "done"),
    ("echo_text", {"text": "rm -rf /"}, "denied"),
)
EDITED = "word-count"
LEGEND = f"{TIERS}\n(!) {permissions.warning(('shell:exec', 'network'))}"


def _demo(parser: Parser) -> Command:
    parser.add_argument("--svg", metavar="FILE", help="also save the output as an SVG image")
    return demo


COMMANDS = {"demo": _demo}


def demo(session: Session) -> int:
    """Show the whole path with the example plugins."""
    import anyio  # with rich and the host, only for this command
    from rich.console import Console

    options = session.options
    fixed_width = WIDTH if options.svg or not sys.stdout.isatty() else None
    console = Console(record=bool(options.svg), width=fixed_width, highlight=False, quiet=options.json)
    scratch = Scratch(find_home(options.home).path)
    try:
        folder = scratch.folder().path
        root = os.path.join(folder, "plugins")
        shutil.copytree(examples(), root, ignore=shutil.ignore_patterns("config.json", "__pycache__"))
        results, as_expected = anyio.run(_show, session, console, root, os.path.join(folder, "home"))
    finally:
        scratch.close()
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(demo_picture.in_motion(console.export_svg(title="anyplug demo")))
    if options.json:
        session.print_json([result_shape(result) for result in results])
    if find_node() is None:
        session.note("hint: Node is not installed; `pip install 'anyplug[node]'` installs it")
    return DONE if as_expected else FAILED


async def _show(session: Session, console: "Console", root: str, home: str) -> tuple[list[Result], bool]:
    """Find, refuse, approve, call, notice a change, verify; return the results, and whether all went as expected."""
    async with Host(roots=[root], home=home, watch=False) as host:
        console.print(f"[bold]anyplug {__version__}[/] found {len(host.plugins)} plugins\n")
        console.print(_plugins_table(host))
        console.print(f"\n[dim]{LEGEND}[/]")
        name, arguments, _ = CALLS[0]
        refused = await host.call(name, arguments)
        console.print(f"\nBefore it is approved, [bold]{name}[/] answers: [yellow]{_text(refused)}[/]")
        console.print("Approving all of them, for this demo.\n")
        attachment = Attachment("demo", yes=True, shows_panels=False)
        results = []
        with session.progress("") as say:
            for number, entry in enumerate(host.plugins, 1):
                say(f"approving {entry.name} ({number} of {len(host.plugins)})")
                await host.approve(entry.plugin)
            for number, (called, given, _) in enumerate(CALLS, 1):
                say(f"calling {called} ({number} of {len(CALLS)})")
                results.append(await host.call(called, given, attachment=attachment))
        console.print(_results_table(results))
        with open(os.path.join(root, EDITED, "main.py"), "a", encoding="utf-8") as file:
            file.write("\n# one more line\n")
        changed = await host.call(name, arguments)
        console.print(f"\nAfter it was edited, [bold]{name}[/] answers: [yellow]{_text(changed)}[/]")
        count, broken = host.audit.verify()
        console.print(f"The audit log has {count} records; its chain is {'broken' if broken else 'intact'}.")
    outcomes = [result.error.code if result.error else "done" for result in results]
    as_expected = outcomes == [expected for *_, expected in CALLS]
    return results, as_expected and not broken and refused.is_error and changed.is_error


def _plugins_table(host: Host) -> Any:
    from rich.table import Table  # for the same reason

    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    for heading in ("plugin", "format", "state", "tier", "asks for", "tools"):
        table.add_column(heading)
    for entry in host.plugins:
        plugin = entry.plugin
        asked = ", ".join(plugin.permissions) or "nothing"
        if permissions.warning(plugin.permissions):
            asked = "files, network, programs (!)"
        tools = ", ".join(tool.own_name for tool in entry.tools) or "(known when it runs)"
        cells = (plugin.name, registry.title(plugin.format), entry.state, str(plugin.tier), asked, tools)
        table.add_row(*map(_plain, cells))
    return table


def _results_table(results: list[Result]) -> Any:
    from rich.table import Table  # for the same reason

    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    table.add_column("tool")
    table.add_column("outcome")
    table.add_column("took", justify="right")
    table.add_column("result")
    for result in results:
        outcome = f"[red]{result.error.code}[/]" if result.error else "[green]done[/]"
        table.add_row(_plain(result.tool), outcome, f"{result.duration_ms:.0f} ms", _text(result))
    return table


def _text(result: Result) -> str:
    files = [f"{block.name} ({block.mime_type})" for block in result.content if isinstance(block, File)]
    text = " ".join([*result.text.split(), *(f"+ {file}" for file in files)])
    return _plain(text if result.is_error else for_people(text, SHOWN))


def _plain(text: str) -> str:
    """Escape a text for rich's markup."""
    return for_people(text).replace("[", r"\[")


def examples() -> str:
    """Find the examples: in the package, or next to its sources in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    shipped = os.path.join(package, "examples")
    return shipped if os.path.isdir(shipped) else os.path.join(package, "..", "..", "examples")
