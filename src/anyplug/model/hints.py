"""Commands in hints: written once, for a person at a terminal, then adapted to the reader. Pure.

A command stands between backticks and begins with `anyplug`; `tests/test_hints.py` parses each of them.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anyplug.model.late_patterns import late

if TYPE_CHECKING:
    from anyplug.model.types import Plugin

# Commands that look a plugin or a tool up, and so must know the folders that were named for this run.
LOOKING_AT_ALL = frozenset({"call", "chain", "learn", "list", "run", "tools"})
LOOKING = LOOKING_AT_ALL | {"config", "export", "logs", "secret", "show"}  # the others look at one plugin, by its name
FOR_USER = "tell the user: "

ASK_IN_PYTHON = "`ask=` to the host, a function that returns 'once', 'attachment', 'always' or 'no'"

# What only a person may decide, at a terminal or in a program: the plugin is the group of that name.
_REVIEW = late(r"review it with (?P<show>`anyplug [^`]*\bshow [^`]+`), then run (?P<run>`anyplug (?P<words>[^`]+)`)")
_ALWAYS = late(r"(?P<run>`anyplug (?P<words>approve [^`]+ --always)`)")
# What a program looks up instead of typing a command.
_PROGRAMS_OWN = (
    (
        late(r"`anyplug [^`]*\btools [^`]+` shows its parameters"),
        "`input_schema` in `host.tools` has its parameters",
    ),
    (late(r"`anyplug [^`]*\btools [^`]+` lists its tools"), "`host.tools` lists all tools"),
    (late(r"`anyplug [^`]*\btools` lists all tools"), "`host.tools` lists all tools"),
    (late(r"`anyplug [^`]*\brun` lists all commands"), "`host.commands` lists all commands"),
    (late(r"`anyplug [^`]*\blist` lists all plugins"), "`host.plugins` lists all plugins"),
    (
        late(r"`anyplug [^`]*\blist` shows what to do"),
        "`await host.approve(NAME)` approves it, once a person has seen what it asks for",
    ),
    (late("^run the command again$"), "call it inside the host's `with` block"),
)
_COMMAND = late(r"`anyplug ([^`]+)`")
# What only a person can do.
_PERSONS = late(r"`anyplug |settings\.toml|\bapprove it again\b")
# What an agent can do itself instead of a command.
_AGENTS_OWN = (
    (late(r"`anyplug [^`]*\btools [^`]+` shows its parameters"), "its input schema lists its parameters"),
    (late(r"`anyplug [^`]*\btools [^`]+` lists its tools"), "builtin_describe_plugin lists its tools"),
    (late(r"`anyplug [^`]*\btools` lists all tools"), "list the tools again"),
    (late(r"`anyplug [^`]*\blist` lists all plugins"), "builtin_list_plugins lists all plugins"),
)


def typed(*words: str) -> str:
    """Return what to type, quoted for the shell: a folder may have any name."""
    return f"`{shlex.join(words)}`"


def command(*words: str) -> str:
    """Return a command of ours."""
    return typed("anyplug", *words)


def review(plugin: str) -> str:
    """Return how to approve a plugin that is new or changed."""
    return f"review it with {command('show', plugin)}, then run {command('approve', plugin)}"


def with_options(
    hint: str, options: Sequence[str], folders: Iterable[str] = (), looking: frozenset[str] = LOOKING
) -> str:
    """Add the program's options to each command of a hint, and to those that are `looking` the plugins' folders."""
    named = [word for folder in folders for word in ("--plugin", folder)]

    def spelled(found: re.Match[str]) -> str:
        words = found[1]
        is_looking = words.split(maxsplit=1)[0] in looking  # not if it has options already
        added = [*(options if "--home " not in words else ()), *(named if is_looking else ())]
        return f"`anyplug {shlex.join(added)} {words}`" if added else found[0]

    return _COMMAND.sub(spelled, hint)


def for_folder(hint: str, plugin: "Plugin") -> str:
    """Adapt a hint about a plugin that was named for one run.

    There is no approval that could be changed, so what `approve` and `grant` would do, `install` does.
    """
    folders = (plugin.found_at or plugin.path,)

    def installed(found: re.Match[str]) -> str:
        try:
            verb, name, *rest = shlex.split(found[1])
        except ValueError:
            return found[0]
        if name != plugin.name:
            return found[0]
        if verb not in {"approve", "grant"}:
            return with_options(found[0], (), folders)
        if verb == "grant":
            granted = dict.fromkeys((*plugin.permissions, *rest))
            rest = [word for permission in granted for word in ("--grant", permission)]
        return command("install", plugin.path, *rest)

    return with_options(_COMMAND.sub(installed, hint), (), folders, LOOKING_AT_ALL)


def for_library(hint: str, home: Sequence[str] = (), *, awaits: bool = True) -> str:
    """Adapt a hint to a program that uses the Python library: first what it can do, then what a person can type.

    `home` is the option that names the host's home, unless it is the usual one. A `SyncHost` awaits nothing.
    """

    def approving(found: re.Match[str], how: str) -> str:
        _, name, *options = shlex.split(found["words"])
        import json  # a millisecond, and commands never need it

        given = ", always=True" if "--always" in options else ""
        return f"`await host.approve({json.dumps(name)}{given})` {how}"

    def reviewed(found: re.Match[str]) -> str:
        if not found["words"].startswith("approve "):
            return found[0]
        done = approving(found, "approves it, once a person has seen what it asks for")
        return f"{done}; or in a terminal: {found['show']}, then {found['run']}"

    def allowed(found: re.Match[str]) -> str:
        return f"{approving(found, 'once a person has agreed')}, or in a terminal {found['run']}"

    for typed_words, own in _PROGRAMS_OWN:
        hint = typed_words.sub(own, hint)
    hint = _ALWAYS.sub(allowed, hint.replace("pass --yes, or ", f"pass {ASK_IN_PYTHON}, or "))
    hint = with_options(_REVIEW.sub(reviewed, hint), home)
    return hint if awaits else hint.replace("`await host.", "`host.")


def for_agents(hint: str) -> str:
    """Adapt a hint to an agent, which cannot type commands: what it can do itself, else what to tell the user."""
    for command_of_people, own in _AGENTS_OWN:
        hint = command_of_people.sub(own, hint)
    return f"{FOR_USER}{hint}" if _PERSONS.search(hint) and "the user" not in hint else hint
