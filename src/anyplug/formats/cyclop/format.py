"""Cyclop One: a folder with `plugin.json` and one executable; a call is one process.

Request, one line on stdin, which is then closed:
    {"tool": NAME, "input": {...}, "context": {"plugin_dir": PATH, "data_dir": PATH}}
Response, one object on stdout:
    {"result": TEXT, "is_error": BOOL}
"""

import os
from typing import Any

import msgspec

from anyplug.formats.shared import defaults, manifest, one_shot
from anyplug.formats.shared.contract import Folder, Surroundings
from anyplug.formats.shared.new_plugins import LOWER_CASE, NewPlugin
from anyplug.home.settings import Arguments, Home
from anyplug.model import json_values, permissions
from anyplug.model.errors import RETURN_LESS, BadOutput, TooLarge
from anyplug.model.late_patterns import late
from anyplug.model.types import Call, Failure, Plugin, Problem, Result, Text, Tool
from anyplug.model.untrusted_text import is_clean
from anyplug.runtime.processes.program import Finished, Program

NAME = "cyclop"
TITLE = "Cyclop One"
MANIFEST = "plugin.json"
PROJECT_ROOTS: tuple[str, ...] = ()
ARGUMENTS: Arguments = "warn"
EVERY_FILE_COUNTS = True
WRITES_BESIDE_ITSELF = False
WRITES_ASIDE = False
RUNS_IN_PROJECT = False
INHERITS_ENVIRONMENT = True
DESCRIBES_ITSELF = True
CONTENT_IS_BLOCKS = False
TOOL_PREFIX = ""
NAMES_PLUGINS = False
_HOST_TOOLS = (
    "click right_click type_text press_key move_mouse drag scroll take_screenshot run_applescript "
    "open_application run_shell_command open_url vault_read vault_write vault_append vault_search vault_list "
    "task_create task_update task_list remember recall openclaw_send openclaw_check task_complete read_screen"
)
HOST_TOOLS = frozenset(_HOST_TOOLS.split())
HOST_COMMANDS: frozenset[str] = frozenset()
PEER = ""
LINT = "anyplug.formats.cyclop.format:slips"

violations = defaults.violations
switched_off = defaults.switched_off
readable = defaults.readable
named_files = defaults.named_files
programs = defaults.programs
prepare = defaults.prepare
ready = defaults.ready
DATA_VARIABLE = "CYCLOPONE_DATA_DIR"
KEYS = ("name", "version", "description", "author", "entrypoint", "permissions", "tools")
TOOL_KEYS = ("name", "description", "input_schema", "entrypoint")

TIMEOUT_S = 30.0
MAX_STDOUT = 1 << 20  # bytes; the process is ended if it writes more
MAX_STDERR = 64 << 10  # bytes kept
RAW_SHOWN = 2_000  # characters of unusable output quoted in a message

WORDS = one_shot.Words(
    timed_out="Plugin timed out after {seconds:g}s",
    too_large="Plugin stdout exceeded {size} limit",
    crashed="Plugin process failed",
    not_executable="Plugin entrypoint is not executable",
    not_started="Failed to launch plugin process",
)

PLUGIN_NAME = late(r"[a-z0-9][a-z0-9-]*")
_SEMVER = late(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
NEW: NewPlugin | None = NewPlugin(
    format=NAME,
    folder=os.path.dirname(__file__),
    languages=("python", "node", "bash"),
    takes_name=PLUGIN_NAME.fullmatch,
    signs=LOWER_CASE,
)


def load(folder: Folder) -> Plugin:
    """Read `plugin.json`."""
    report = manifest.Report()
    where = f"{folder.path}/{MANIFEST}"
    raw = manifest.read_object(where, report)
    if raw is None:
        raw = {}
    else:
        _check_fields(raw, folder, report, where)
    asked = _permissions(raw, report) if raw else ()
    tools = _tools(raw, folder.path, report) if raw else ()
    name = raw.get("name")
    return Plugin(
        name=name if isinstance(name, str) and PLUGIN_NAME.fullmatch(name) else os.path.basename(folder.found_at),
        format=NAME,
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
        version=_text(raw, "version"),
        description=_text(raw, "description"),
        permissions=asked,
        tier=permissions.tier(asked),
        tools=() if report.is_broken else tools,
        unloaded=tools if report.is_broken else (),
        problems=tuple(report.problems),
    )


def slips(plugin: Plugin) -> list[Problem]:
    """List keys of the manifest that are probably misspelt."""
    report = manifest.Report()
    raw = manifest.read_object(os.path.join(plugin.path, MANIFEST), manifest.Report()) or {}
    said = "\n".join(problem.hint for problem in plugin.problems)
    manifest.find_slips(raw, KEYS, MANIFEST, report, said)
    tools = raw.get("tools")
    for item in tools if isinstance(tools, list) else ():
        if isinstance(item, dict):
            manifest.find_slips(item, TOOL_KEYS, f"the tool '{_text(item, 'name')}'", report, said)
    return report.problems


def files_read(plugin: Plugin) -> tuple[str, ...]:
    """Return the files that decide what `load` returns, if it found no problem and they are no links.

    Empty if other places decide too: links on the way to a program in another folder could lead outside.
    """
    programs = dict.fromkeys(tool.program for tool in plugin.tools)
    return (f"{plugin.path}/{MANIFEST}", *programs) if manifest.are_direct(plugin.path, programs) else ()


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Return the user's environment and Cyclop One's two variables."""
    return {
        **users,
        "PATH": f"{home.bin}:{users.get('PATH', os.defpath)}",
        "PYTHONPYCACHEPREFIX": os.path.join(home.cache(plugin), "pycache"),
        "PYTHONDONTWRITEBYTECODE": "",  # with it, each call would compile even the standard library again
        "CYCLOPONE_PLUGIN_DIR": plugin.path,
        DATA_VARIABLE: data(plugin, home),
    }


def plugins_folder() -> str:
    """Return the folder in which Cyclop One's users keep their plugins."""
    return os.path.join(os.path.expanduser("~"), ".cyclopone", "plugins")


def user_roots() -> tuple[str, ...]:
    """Return the folder that Cyclop One reads."""
    return (plugins_folder(),)


def private_places(project: str) -> tuple[str, ...]:
    """Return Cyclop One's own folder, which also has its plugins' data."""
    return (os.path.dirname(plugins_folder()),)


def request(call: Call, around: Surroundings) -> Program:
    """Run the entrypoint once."""
    plugin, data = call.plugin, around.environment[DATA_VARIABLE]
    asked = {
        "tool": call.tool.own_name,
        "input": call.arguments,
        "context": {"plugin_dir": plugin.path, "data_dir": data},
    }
    return Program(
        argv=(call.tool.program,),
        cwd=plugin.path,
        env=around.environment,
        stdin=msgspec.json.encode(asked) + b"\n",  # a shell's `read` needs the newline
        timeout_s=around.settings.timeout_s or call.tool.timeout_s,
        max_stdout=around.settings.max_output_bytes or MAX_STDOUT,
        max_stderr=MAX_STDERR,
        folders=(data,),
    )


def result(call: Call, request: Program, answer: Finished, around: Surroundings) -> Result:
    """Read the response, or say how the process failed."""
    if answer.ending == "exited" and answer.exit_code == 0:
        return _response(answer, around)
    raise one_shot.failure(call, request, answer, WORDS)


def data(plugin: Plugin, home: Home) -> str:
    """Return the plugin's data folder: next to its own root if Cyclop One keeps it there, else ours."""
    if os.path.dirname(plugin.found_at) == plugins_folder():
        return os.path.join(os.path.dirname(plugins_folder()), "plugin-data", plugin.name)
    return home.data(plugin)


def _check_fields(raw: dict[str, Any], folder: Folder, report: manifest.Report, where: str) -> None:
    for field in ("name", "version", "description"):
        if not _text(raw, field):
            missing = f"plugin.json missing required field '{field}'"
            report.needs_text(raw, field, missing, f'add "{field}": "..." (a string)', where)
    tools = raw.get("tools")
    of_their_own = isinstance(tools, list) and all(isinstance(t, dict) and t.get("entrypoint") for t in tools)
    if not _text(raw, "entrypoint") and not of_their_own:
        cure = 'add "entrypoint" with the path of the program, relative to the plugin\'s folder'
        report.needs_text(raw, "entrypoint", "plugin.json missing required field 'entrypoint'", cure, where)
    name = _text(raw, "name")
    if name and not PLUGIN_NAME.fullmatch(name):
        report.error(
            f"plugin name '{name}' at {where} is not allowed",
            "use lowercase letters, digits and hyphens, and begin with a letter or digit",
        )
    elif name and not folder.is_named(name):
        report.error(
            f"the folder '{os.path.basename(folder.found_at)}' must be named like the plugin, '{name}'",
            f'rename the folder to {name}, or change "name" in {where}',
        )
    version = _text(raw, "version")
    if version and not _SEMVER.fullmatch(version):
        report.warn(f"version '{version}' is not a semantic version", 'write it like "1.0.0"')


def _permissions(raw: dict[str, Any], report: manifest.Report) -> tuple[str, ...]:
    given = raw.get("permissions")
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        what = "missing required field 'permissions'" if given is None else "'permissions' must be a list of strings"
        colon = "" if given is None else ":"
        cure = 'write "permissions": [], or a list of strings such as ["network"]'
        report.error(f"plugin.json{colon} {what}", manifest.renamed(raw, "permissions") or cure)
        return ()
    asked = permissions.normalise(given)
    if secrets := [permission for permission in asked if permission.startswith("env:")]:
        report.warn(f"'{secrets[0]}' cannot be requested; it is ignored", "only a person grants environment variables")
        asked = tuple(permission for permission in asked if permission not in secrets)
    for permission in asked:
        if not permissions.kind(permission) or permission.startswith("env"):
            report.warn(
                f"unknown permission '{permission}'",
                permissions.meant(permission, (known for known in permissions.KINDS if known != "env")),
            )
        elif (found := permissions.fault(permission))[0]:
            report.warn(*found, "bad_permission")
    return asked


def _why_not_a_tool(index: int, item: Any) -> str:
    if not isinstance(item, dict):
        return f"Tool at index {index} must be an object, not {json_values.kind(item)}"
    wrong = [field for field in ("name", "description") if not isinstance(item.get(field, ""), str)]
    if wrong and item[wrong[0]] is not None:
        return f"Tool at index {index}: '{wrong[0]}' must be a string, not {json_values.kind(item[wrong[0]])}"
    return f"Tool at index {index} missing name or description"


def _renamed(item: Any) -> str:
    fields = ("name", "description") if isinstance(item, dict) else ()
    return "; ".join(cure for field in fields if (cure := manifest.renamed(item, field)))


def _tools(raw: dict[str, Any], folder: str, report: manifest.Report) -> tuple[Tool, ...]:
    declared = raw.get("tools")
    if declared is not None and not isinstance(declared, list):
        report.error(
            f"plugin.json: 'tools' must be a list, not {json_values.kind(declared)}", "put its entries between [ and ]"
        )
        return ()
    if not declared:
        cure = manifest.renamed(raw, "tools") or 'add at least one entry to "tools"'
        report.error("plugin.json declares no tools", cure)
        return ()
    if len(declared) > manifest.MOST_TOOLS:
        report.error(f"plugin.json declares more than {manifest.MOST_TOOLS:,} tools", "split it into several plugins")
        return ()
    shared = _text(raw, "entrypoint")
    resolved: dict[str, str] = {}
    tools: dict[str, Tool] = {}
    for index, item in enumerate(declared):
        name, description = (_text(item, "name"), _text(item, "description")) if isinstance(item, dict) else ("", "")
        if not name or not description:
            report.error(_why_not_a_tool(index, item), _renamed(item) or "write both as non-empty strings")
            continue
        if not is_clean(name):
            report.error(f"the name of the tool at index {index} has unprintable characters", "rename it")
            continue
        if name in tools:
            report.warn(f"Duplicate tool name '{name}'; the second is skipped", "rename one of the two")
            continue
        program = _text(item, "entrypoint") or shared
        if program and program not in resolved:
            resolved[program] = _entrypoint(folder, program, report)
        input_schema = _input_schema(item, name, report)
        tools[name] = Tool(
            name=name,
            own_name=name,
            plugin=_text(raw, "name"),
            description=description,
            input_schema=input_schema,
            program=resolved.get(program, ""),
            timeout_s=TIMEOUT_S,
        )
    return tuple(tools.values())


def _entrypoint(folder: str, given: str, report: manifest.Report) -> str:
    if ".." in given.split("/"):
        report.error(f"Plugin entrypoint '{given}' contains path traversal", "name a program inside the plugin")
        return ""
    return manifest.entrypoint(folder, folder, given, report, what="Plugin entrypoint", fatal=True)


def _input_schema(item: dict[str, Any], name: str, report: manifest.Report) -> dict[str, Any]:
    given = item.get("input_schema")
    if not isinstance(given, dict) or not given:
        report.error(
            f"Tool '{name}' has an empty input_schema",
            manifest.renamed(item, "input_schema")
            or 'a tool without parameters has {"type": "object", "properties": {}}',
        )
        return {}
    if given.get("type") != "object":
        report.error(f'Tool \'{name}\' input_schema must have "type": "object"', 'write "type": "object"')
    if json_values.is_too_deep(given):
        report.error(f"Tool '{name}' has an unusable input_schema: {json_values.TOO_DEEP}", "make it flatter")
        return {}
    return given


def _response(finished: Finished, around: Surroundings) -> Result:
    """Parse the answer of a process that exited with 0."""
    raw = finished.stdout.removeprefix(manifest.BOM).strip()
    if not raw:
        raise BadOutput(
            "Plugin returned no output",
            'write {"result": "...", "is_error": false} to stdout',
            stderr=one_shot.decode(finished.stderr),
        )
    if json_values.has_too_many(raw):
        raise TooLarge(f"Plugin output is too large: {json_values.TOO_MANY}", RETURN_LESS)
    try:
        answer = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid_json(raw, str(error), finished, around) from error
    if not isinstance(answer, dict):
        raise _invalid_json(raw, "it must be one object", finished, around)
    if "result" not in answer:
        raise _invalid_json(raw, "(no result field)", finished, around)
    result, warnings = answer["result"], []
    is_error = answer.get("is_error", False)
    if is_error not in (True, False):  # 1 and 0 are equal to these
        warnings.append(f'"is_error" is {msgspec.json.encode(is_error).decode()}, taken as false')
        is_error = False
    structured = None
    if not isinstance(result, str):
        structured, result = result, msgspec.json.encode(result).decode()
        warnings.append('"result" is not a string; its JSON text is returned')
    return Result(
        content=(Text(result),),
        structured=structured,
        is_error=bool(is_error),
        error=Failure("tool_error", result) if is_error else None,
        metadata={"warnings": warnings} if warnings else {},
    )


def _invalid_json(raw: bytes, why: str, finished: Finished, around: Surroundings) -> BadOutput:
    shown = around.conceal(one_shot.decode(raw))
    cut = f"{shown[:RAW_SHOWN]}… ({len(shown):,} characters)" if len(shown) > RAW_SHOWN else shown
    return BadOutput(
        f"Plugin returned invalid JSON: {why}: {cut}",
        "write one JSON object to stdout and everything else to stderr",
        stderr=one_shot.decode(finished.stderr),
    )


def _text(raw: Any, field: str) -> str:
    value = raw.get(field)
    return value if isinstance(value, str) else ""
