"""How commands describe plugins: their format, permissions and problems."""

import msgspec

from anyplug.catalog.pins import TOOLS_CHANGED
from anyplug.catalog.snapshot import Entry
from anyplug.frontends.cli import render
from anyplug.frontends.json_output import server_shape
from anyplug.model import permissions
from anyplug.model.types import ConfigKey, Plugin, Problem

TIERS = "tier 1: runs once you have approved it; tier 2: also asks you, once in each run"


def named(name: str, description: str) -> str:
    """Return a name with its description, if there is one."""
    return f"{name}: {description}" if description else name


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
    old, new = ({key.name: key for key in plugin.config} for plugin in (before, now))
    lines = [f"config: {name} is not used any more" for name in old if name not in new]
    for name, key in new.items():
        is_required = "required" if key.required else "optional"
        if name not in old:
            lines.append(f"config: {named(f'{name} is new ({is_required})', key.description)}")
            continue
        if key.required != old[name].required:
            lines.append(f"config: {name} is now {is_required}")
        if key.default != old[name].default:
            lines.append(f"config: {name} now has {_default(key)}, before {_default(old[name])}")
        if (key.description, key.tools, key.kind) != (old[name].description, old[name].tools, old[name].kind):
            lines.append(f"config: {named(f'{name} has a new description', key.description)}")
    if before.instructions != now.instructions:
        from difflib import ndiff  # only needed for a change

        texts = ndiff(before.instructions.splitlines(), now.instructions.splitlines())
        lines += [f"instructions: {line}" for line in texts if line.startswith(("+ ", "- "))]
    return [render.line(line) for line in lines]


def _default(key: ConfigKey) -> str:
    return "no default" if key.default is msgspec.UNSET else f"the default {msgspec.json.encode(key.default).decode()}"


def print_problems(entries: list[Entry]) -> None:
    """Print plugins' problems, each with its fix."""
    for entry in entries:
        for problem in entry.problems:
            first, *more = problem_lines(problem)
            render.out("", f"{problem.level}: {entry.name}: {first}", *(f"  {line}" for line in more))
            if problem.hint:
                render.out(f"  hint: {render.line(problem.hint)}")
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
