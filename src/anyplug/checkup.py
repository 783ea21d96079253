"""A thorough look at one plugin's folder, for those who write plugins: nothing of it runs."""

import os
import shutil

import msgspec

from anyplug import discovery, names, schema
from anyplug.formats.contract import Folder
from anyplug.formats.mcp import configuration
from anyplug.model import Plugin, Problem
from anyplug.runtime.diagnosis import faults
from anyplug.runtime.toolchain import find_node, find_uv


def examine(path: str) -> Plugin:
    """Read a folder as if a person had named it; its problems are all that can be seen from outside."""
    found_at = os.path.abspath(os.path.expanduser(path))
    plugin = discovery.read(Folder(os.path.realpath(found_at), found_at, explicit=True))
    assert plugin is not None  # a folder that was named is broken rather than nothing
    problems = list(plugin.problems)
    seen = {problem.message for problem in problems}
    for problem in (*_names(plugin), *_programs(plugin), *_schemas(plugin)):
        if problem.message not in seen:
            problems.append(problem)
            seen.add(problem.message)
    return msgspec.structs.replace(plugin, problems=tuple(problems))


def _names(plugin: Plugin) -> list[Problem]:
    return [
        Problem("name_taken", f"the tool name '{tool.name}' belongs to {whose}", "rename the tool", "warning")
        for tool in plugin.tools
        if (whose := names.reserved_by(tool.name, plugin.format))
    ]


def _programs(plugin: Plugin) -> list[Problem]:
    """Look at each program as the kernel will."""
    ours = [os.path.dirname(program) for program in (find_uv(), find_node()) if program]
    search = ":".join([*ours, os.environ.get("PATH", os.defpath)])
    said = {problem.hint for problem in plugin.problems if problem.code == "not_executable"}
    return [
        Problem(
            "not_executable",
            f"{os.path.relpath(path, plugin.path)} cannot be run: {fault.reason}",
            fault.hint,
            "warning",
        )
        for path in dict.fromkeys(
            [*(tool.program for tool in plugin.tools), plugin.init, *_stays_up_as(plugin, search)]
        )
        if path
        for fault in faults(path, search)
        if fault.hint not in said  # by whoever read the manifest
    ]


def _stays_up_as(plugin: Plugin, search: str) -> list[str]:
    """Give the paths of the programs of a plugin that stay up; a bare name is looked for on the PATH."""
    programs = [plugin.launch.program] if plugin.launch is not None else []
    programs += [configuration.program(plugin, one) for one in plugin.endpoints if "$" not in one.command]
    return [
        program if "/" in program else shutil.which(program, path=search) or os.path.join(plugin.path, program)
        for program in programs
        if program
    ]


def _schemas(plugin: Plugin) -> list[Problem]:
    return [
        Problem(
            "bad_schema",
            f"the input schema of '{tool.name}' is not valid: {fault}",
            "arguments are not checked until it is",
            "warning",
        )
        for tool in plugin.tools
        if (fault := schema.fault(tool.input_schema))
    ]
