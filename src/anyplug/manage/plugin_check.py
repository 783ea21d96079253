"""Check one plugin's folder thoroughly, for plugin authors, without running any of it."""

import os
import shutil
from collections.abc import Sequence

import msgspec

from anyplug.catalog import discovery
from anyplug.formats import registry
from anyplug.formats.shared.contract import Folder
from anyplug.model import schema
from anyplug.model.types import Plugin, Problem
from anyplug.runtime.processes.diagnosis import faults, not_on_path
from anyplug.runtime.processes.toolchain import find_node, find_uv


def examine(path: str, formats: Sequence[str] = ()) -> Plugin:
    """Read a folder as if a person had named it; its problems are all that can be found from outside.

    `formats` are the names of third-party formats.
    """
    found_at = os.path.abspath(os.path.expanduser(path))
    plugin = discovery.read(Folder(os.path.realpath(found_at), found_at, explicit=True), formats)
    assert plugin is not None  # a named folder is a broken plugin rather than None
    problems = list(plugin.problems)
    checked = msgspec.structs.replace(plugin, tools=(*plugin.tools, *plugin.unloaded))
    seen = {problem.message for problem in problems}
    for problem in (*_names(checked), *_programs(checked), *_schemas(checked), *registry.lint(plugin)):
        if problem.message not in seen:
            problems.append(problem)
            seen.add(problem.message)
    return msgspec.structs.replace(plugin, problems=tuple(problems))


def _names(plugin: Plugin) -> list[Problem]:
    return [
        Problem("name_taken", f"the tool name '{tool.name}' belongs to {whose}", "rename the tool", "warning")
        for tool in plugin.tools
        if (whose := registry.reserved_by(tool.name, plugin.format))
    ]


def _programs(plugin: Plugin) -> list[Problem]:
    """Check each program as the kernel will."""
    ours = [os.path.dirname(program) for program in (find_uv(), find_node()) if program]
    search = ":".join([*ours, os.environ.get("PATH", os.defpath)])
    said = {problem.hint for problem in plugin.problems if problem.code == "not_executable"}
    found: list[Problem] = []
    paths = [*(tool.program for tool in plugin.tools), plugin.init]
    format = registry.BY_NAME.get(plugin.format)
    for program in dict.fromkeys(format.programs(plugin, None, "") if format is not None else []):
        if (path := _found(plugin, program, search)) is not None:
            paths.append(path)
        else:
            fault = not_on_path(program, "the configuration" if plugin.endpoints or format is None else format.MANIFEST)
            found.append(Problem("not_executable", fault.reason, fault.hint, "warning"))
    found += [
        Problem(
            "not_executable",
            f"{os.path.relpath(path, plugin.path)} cannot be run: {fault.reason}",
            fault.hint,
            "warning",
        )
        for path in dict.fromkeys(paths)
        if path
        for fault in faults(path, search)
        if fault.hint not in said  # already reported with the manifest
    ]
    return found


def _found(plugin: Plugin, program: str, search: str) -> str | None:
    """Return a program's path; for a name missing in PATH, the one in the plugin's folder, or None."""
    if "/" in program or (path := shutil.which(program, path=search)) is None:
        path = os.path.join(plugin.path, program)
    return path if "/" in program or os.path.exists(path) else None


def _schemas(plugin: Plugin) -> list[Problem]:
    return [
        Problem(
            "bad_schema",
            f"the input schema of the tool '{tool.own_name}' is invalid: {fault}",
            "fix it; until then arguments are not checked",
            "warning",
        )
        for tool in plugin.tools
        if (fault := schema.fault(tool.input_schema))
    ]
