"""`tools --cost`: how much of an agent's context each plugin's tools take."""

from anyplug.catalog import tool_descriptions
from anyplug.catalog.profiles import View
from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.model.errors import UsageError


def show(session: Session) -> int:
    """Show the plugins whose tools agents see, most expensive first; raises UsageError."""
    if session.options.name or session.options.all:
        raise UsageError("--cost covers all tools that agents see", "leave out the name and --all")
    snapshot, view = session.running_snapshot(), View(session.catalog.home)
    is_confining = session.catalog.settings.is_confining
    tools: dict[str, int] = {}
    tokens: dict[str, int] = {}
    definitions = []
    for tool, entry in view.tools(snapshot):
        defined = tool_descriptions.definition(tool, entry, snapshot, is_confining=is_confining)
        definitions.append(defined)
        tools[entry.name] = tools.get(entry.name, 0) + 1
        tokens[entry.name] = tokens.get(entry.name, 0) + tool_descriptions.tokens(defined)
    ranked = sorted(tokens, key=lambda name: (-tokens[name], name))
    total, chosen = sum(tokens.values()), tool_descriptions.chosen(view, definitions)
    if session.options.json:
        plugins = [{"plugin": name, "tools": tools[name], "tokens": tokens[name]} for name in ranked]
        session.print_json({"tokens": total, "surface": chosen, "plugins": plugins})
        return 0
    rows = [(name, str(tools[name]), f"{tokens[name]:,}") for name in ranked]
    render.table(("PLUGIN", "TOOLS", "TOKENS"), [*rows, ("all", str(sum(tools.values())), f"{total:,}")])
    session.note(
        f"estimated at four characters per token; up to {tool_descriptions.LARGE_TOKENS:,} agents get every tool, "
        f"beyond that three to find and call them: now {chosen}"
    )
    return 0
