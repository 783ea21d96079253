"""Acme: a folder with `acme.json`; a call is one process, with the arguments on stdin and the result on stdout."""

import os

import msgspec

from anyplug.formats.shared import manifest, one_shot
from anyplug.formats.shared.contract import Folder, Surroundings
from anyplug.formats.shared.defaults import *
from anyplug.model import permissions
from anyplug.model.types import Call, Plugin, Result, Text, Tool
from anyplug.runtime.processes.program import Finished, Program

NAME = "acme"  # the name of the entry point, too
TITLE = "Acme"
MANIFEST = "acme.json"
PROJECT_ROOTS = (".acme",)

TIMEOUT_S = 30.0
MAX_OUTPUT = 1 << 20  # bytes
WORDS = one_shot.Words(
    timed_out="the tool took longer than {seconds:g}s",
    too_large="the tool printed more than {size}",
    crashed="the tool failed",
    not_executable="the tool's program is not executable",
    not_started="the tool's program cannot be started",
)


class Manifest(msgspec.Struct):
    """`acme.json`."""

    description: str
    command: str
    parameters: dict[str, dict[str, str]] = {}
    permissions: list[str] = []


def load(folder: Folder) -> Plugin:
    """Read `acme.json`; what is wrong with it is a problem of the plugin."""
    report = manifest.Report()
    name = os.path.basename(folder.found_at)
    raw = manifest.read_object(os.path.join(folder.path, MANIFEST), report)
    tools, asked, description = (), (), ""
    if raw is not None:
        try:
            given = msgspec.convert(raw, Manifest)
        except msgspec.ValidationError as error:
            report.error(f"{MANIFEST} cannot be used: {error}", f"correct it in {folder.path}")
        else:
            asked, description = permissions.normalise(given.permissions), given.description
            program = manifest.entrypoint(
                folder.path, folder.path, given.command, report, what="the command", fatal=True
            )
            tools = (_tool(name, program, given),)
    return Plugin(
        name=name,
        format=NAME,
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
        description=description,
        permissions=asked,
        tier=permissions.tier(asked),
        tools=() if report.is_broken else tools,
        problems=tuple(report.problems),
    )


def _tool(name: str, program: str, given: Manifest) -> Tool:
    return Tool(
        name=name,
        own_name=name,
        plugin=name,
        description=given.description,
        input_schema={"type": "object", "properties": given.parameters},
        program=program,
        timeout_s=TIMEOUT_S,
    )


def request(call: Call, around: Surroundings) -> Program:
    """Run the command once."""
    return Program(
        argv=(call.tool.program,),
        cwd=call.plugin.path,
        env=around.environment,
        stdin=msgspec.json.encode(call.arguments),
        timeout_s=around.settings.timeout_s or call.tool.timeout_s,
        max_stdout=around.settings.max_output_bytes or MAX_OUTPUT,
        max_stderr=MAX_OUTPUT,
    )


def result(call: Call, request: Program, answer: Finished, around: Surroundings) -> Result:
    """Return what it printed, or say how it failed."""
    if answer.ending == "exited" and answer.exit_code == 0:
        return Result(content=(Text(one_shot.decode(answer.stdout).strip()),))
    raise one_shot.failure(call, request, answer, WORDS)
