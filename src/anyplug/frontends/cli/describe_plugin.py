"""How commands describe plugins: their format, permissions and problems."""

from collections.abc import Callable

from anyplug.catalog.pins import TOOLS_CHANGED
from anyplug.catalog.snapshot import Entry
from anyplug.frontends.cli import render
from anyplug.frontends.json_output import server_shape
from anyplug.model import permissions
from anyplug.model.types import Plugin, Problem

TIERS = "tier 1: runs once you have approved it; tier 2: also asks you, once in each run"


def describe_servers(plugin: Plugin) -> list[str]:
    """Describe each MCP server: the command or the address."""
    lines = []
    for server in map(server_shape, plugin.endpoints):
        reached = " ".join(server["command"]) if server["command"] else server["url"]
        given = [*(f"{name}={value}" for name, value in server["environment"].items()), *server["headers"]]
        lines.append(render.line(f"{server['name']}: {reached}" + (f" (with {', '.join(given)})" if given else "")))
    return lines


def describe_permissions(asked: tuple[str, ...]) -> list[str]:
    """Describe each permission."""
    return [render.line(f"{permission}: {permissions.describe(permission)}") for permission in asked]


def changed_for_people(before: Plugin, now: Plugin) -> list[str]:
    """Return as lines what changed in a plugin's configuration and in its instructions."""
    from anyplug.manage import plugin_changes  # takes 4 ms to import, and only what changed needs it

    return [render.line(line) for line in plugin_changes.changed_for_people(before, now)]


def print_problems(entries: list[Entry], reached: Callable[[str], str]) -> None:
    """Print plugins' problems, each with its fix. `reached` adapts hints to the options of this command."""
    for entry in entries:
        for problem in entry.problems:
            first, *more = problem_lines(problem)
            render.out("", f"{problem.level}: {entry.name}: {first}", *(f"  {line}" for line in more))
            if problem.hint:
                render.out(f"  hint: {render.line(reached(problem.hint))}")
        if entry.state == "shadowed":
            render.out("", f"note: {entry.name} at {entry.path} is shadowed by {shadowed_by(entry)}")


def problem_lines(problem: Problem) -> list[str]:
    """Return a problem's message for people: one line, except for a diff, in which all text is quoted."""
    lines = problem.message.splitlines() if problem.code == TOOLS_CHANGED else [problem.message]
    return [render.line(line) for line in lines]


def shadowed_by(entry: Entry) -> str:
    """Return which plugin of the same name takes precedence, and what this one still does."""
    return entry.shadowed_by + ("; it still guards calls until you approve the other one" if entry.on_guard else "")


def first_sentence(text: str) -> str:
    """Return as much of a description as fits into a list."""
    line = text.strip().partition("\n")[0]
    end = line.find(". ")
    return line if end < 0 else line[: end + 1]
