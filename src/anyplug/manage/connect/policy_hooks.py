"""The hooks by which Claude Code and Codex submit their own tools to policies: add them to a file, remove them.

A hook runs `anyplug eval` with the event on stdin. Both agents go on if a hook fails in any other way than with exit
code 2, so every failure becomes that: also that the program is gone.

    {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "… || exit 2"}]}]}}
"""

import os
import shlex
import shutil
from collections.abc import Callable
from typing import Any

import msgspec

from anyplug.manage.connect import files, jsonc
from anyplug.manage.connect.edits import Malformed, Unfit
from anyplug.model.errors import ConfigError
from anyplug.model.types import Problem

EVENTS = ("PreToolUse", "PostToolUse", "UserPromptSubmit")
WITH_TOOLS = frozenset({"PreToolUse", "PostToolUse"})  # whose hooks can be for some tools only
TIMEOUT_S = 130  # longer than `anyplug eval` takes at most: an agent goes on after a hook that takes too long


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with hooks."""

    title: str
    file: str  # in its folder
    folder: str  # in a project, and in the user's home
    variable: str  # names the user's folder instead
    then: str  # what the user must do before the hooks run


AGENTS = {
    "claude": Agent(
        title="Claude Code", file="settings.json", folder=".claude", variable="CLAUDE_CONFIG_DIR", then="restart it"
    ),
    "codex": Agent(
        title="Codex",
        file="hooks.json",
        folder=".codex",
        variable="CODEX_HOME",
        then="start it, trust the folder and review the hooks with /hooks: it runs no hook before that",
    ),
}


def place(name: str, project: str | None) -> str:
    """Return the file for a project, or the user's own if none is named."""
    agent = AGENTS[name]
    if project is not None:
        return os.path.join(project, agent.folder, agent.file)
    own = os.environ.get(agent.variable) or os.path.join(os.path.expanduser("~"), agent.folder)
    return os.path.join(own, agent.file)


def command(name: str, program: list[str]) -> str:
    """Return the shell command of a hook."""
    return f"{shlex.join([*program, 'eval', '--harness', name])} || exit 2"


def snippet(name: str, program: list[str]) -> str:
    """Format the hooks as a whole file."""
    return added("", command(name, program))


def install(name: str, project: str | None, program: list[str]) -> tuple[str, str]:
    """Add the hooks; return the file and what happened to it. Raises ConfigError."""
    ours = command(name, program)

    def change(text: str) -> str:
        said = jsonc.read(text)
        if all(
            [entry for entry in _entries(said, event) if _is_ours(entry, name)] == [_entry(event, ours)]
            for event in EVENTS
        ):
            return text
        return added(removed(text, name), ours)

    path = place(name, project)
    before = files.read(files.real(path))
    after = _changed(path, before or "", change)
    if after == before:
        return path, "unchanged"
    _write(path, after, is_own=project is None)
    return path, "added" if before is None or removed(before, name) == before else "updated"


def remove(name: str, project: str | None) -> tuple[str, str]:
    """Remove the hooks; return the file and what happened to it. Raises ConfigError."""
    path = place(name, project)
    before = files.read(files.real(path))
    if before is None:
        return path, "absent"
    after = _changed(path, before, lambda text: removed(text, name))
    if after == before:
        return path, "absent"
    if after.strip() in {"", "{}"}:
        files.check_writable(files.real(path))
        files.remove(files.real(path), [os.path.dirname(files.real(path))])
    else:
        _write(path, after, is_own=project is None)
    return path, "removed"


def are_in(path: str, name: str) -> bool:
    """Return whether a file has hooks of ours; one that cannot be read has none."""
    try:
        return bool(_hooks_of_ours(jsonc.read(files.read(files.real(path)) or ""), name))
    except (Malformed, ConfigError):
        return False


def problems(project: str) -> list[Problem]:
    """Return the problems of the hooks that concern a project, for `doctor`."""
    found = []
    for name, where in ((name, where) for name in AGENTS for where in (project, None)):
        path = place(name, where)
        try:
            said = jsonc.read(files.read(files.real(path)) or "")
        except (Malformed, ConfigError):
            continue  # the agent itself complains about it
        again = f"anyplug connect {name} --policy" + ("" if where else " --global")
        commands = [hook["command"] for hook in _hooks_of_ours(said, name)]
        if gone := next(filter(None, map(_missing_program, commands)), ""):
            message = f"{path} runs {gone}, which does not exist: {AGENTS[name].title} refuses every tool"
            found.append(Problem("policy_hook_broken", message, f"`{again}`", "warning"))
        elif commands and len(commands) < len(EVENTS):
            message = f"{path} has no longer a hook for each of {', '.join(EVENTS)}"
            found.append(Problem("policy_hook_missing", message, f"`{again}`", "warning"))
    return found


def _hooks_of_ours(said: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = [entry for event in EVENTS for entry in _entries(said, event) if _is_ours(entry, name)]
    return [hook for entry in entries for hook in entry["hooks"]]


def _missing_program(command: str) -> str:
    """Return the program of a hook if it does not exist."""
    try:
        program = shlex.split(command)[0]
    except ValueError:
        return command  # somebody changed it
    return "" if shutil.which(program) else program


def added(text: str, ours: str) -> str:
    """Add our hooks to a text. Raises Malformed, Unfit."""
    for event in EVENTS:
        text = jsonc.append(text, ("hooks", event), _entry(event, ours))
    return text


def removed(text: str, name: str) -> str:
    """Remove our hooks from a text, and what is then empty around them. Raises Malformed, Unfit."""
    for event in EVENTS:
        entries = _entries(jsonc.read(text), event)
        for index in reversed([index for index, entry in enumerate(entries) if _is_ours(entry, name)]):
            text = jsonc.drop_item(text, ("hooks", event), index)
        if entries and not _entries(jsonc.read(text), event):
            text = jsonc.drop(text, ("hooks", event), made=1)
    return text


def _entry(event: str, ours: str) -> dict[str, Any]:
    hook = {"type": "command", "command": ours, "timeout": TIMEOUT_S}
    return {**({"matcher": "*"} if event in WITH_TOOLS else {}), "hooks": [hook]}


def _entries(said: dict[str, Any], event: str) -> list[Any]:
    hooks = said.get("hooks")
    entries = hooks.get(event) if isinstance(hooks, dict) else None
    return entries if isinstance(entries, list) else []


def _is_ours(entry: Any, name: str) -> bool:
    """Return whether an entry has nothing but a hook of ours."""
    hooks = entry.get("hooks") if isinstance(entry, dict) else None
    return isinstance(hooks, list) and len(hooks) == 1 and _runs_us(hooks[0], name)


def _runs_us(hook: Any, name: str) -> bool:
    said = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(said, str) and "anyplug" in said and f" eval --harness {name}" in said


def _changed(path: str, text: str, change: Callable[[str], str]) -> str:
    try:
        after = change(text)
        jsonc.read(after)  # as a last check
    except Malformed as wrong:
        raise ConfigError(f"{path} is invalid: {wrong}", "fix it, then try again; it was not changed") from wrong
    except Unfit as unfit:
        raise ConfigError(f"cannot change the hooks in {path}: {unfit}", "add what --print shows by hand") from unfit
    return after


def _write(path: str, text: str, *, is_own: bool) -> None:
    files.check_writable(files.real(path))
    files.write(files.real(path), text, files.PRIVATE if is_own else files.SHARED)
