"""Stavrobot's manifests: the bundle's own and one per tool, with their parameters converted to JSON Schema."""

import os
from typing import Any

import msgspec

from anyplug.formats.shared import attachments, manifest
from anyplug.formats.shared.contract import Folder
from anyplug.home import plugin_config, untrusted_files
from anyplug.model import hints, permissions, schema
from anyplug.model.errors import ConfigError
from anyplug.model.json_values import kind
from anyplug.model.late_patterns import late
from anyplug.model.types import ConfigKey, Plugin, Problem, Tool
from anyplug.model.untrusted_text import is_clean
from anyplug.secrets import secret_names

NAME = "stavrobot"
MANIFEST = "manifest.json"

TIMEOUT_S = 30.0
ASYNC_TIMEOUT_S = 300.0
INIT_TIMEOUT_S = 300.0  # its own host allows a synchronous one 30 s, which is too short for `npm install`
LARGEST_MANIFESTS = 16 << 20  # bytes of all tools' manifests; real ones have a few thousand each
MOST_ENTRIES = 5_000  # in a plugin's folder, searched for tools
INSTRUCTIONS_SHOWN = 5_000  # characters
ASKED = ("network",)  # assumed for a plugin that declares nothing

PLUGIN_NAME = late(r"[a-z0-9-]+")
_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
KEYS = ("name", "description", "instructions", "config", "init")
TOOL_KEYS = ("name", "description", "entrypoint", "parameters", "async")
_KEPT_KEYS = ("enum", "default", "items", "properties")


def load(folder: Folder) -> Plugin | None:
    """Read the bundle's manifest and its tools'. A folder with an `entrypoint` belongs to another format."""
    report = manifest.Report()
    where = os.path.join(folder.path, MANIFEST)
    raw = manifest.read_object(where, report)
    if raw is not None and "entrypoint" in raw:
        return None
    name = _check_fields(raw, folder, report, where) if raw is not None else ""
    raw = raw or {}
    init = _init(raw, folder.path, report) if raw else ""
    tools = _tools(name, folder.path, report) if raw else ()  # also of a broken one: every fault is told at once
    instructions = raw.get("instructions", "")
    plugin = Plugin(
        name=name or os.path.basename(folder.found_at),
        format=NAME,
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
        description=_text(raw, "description"),
        permissions=ASKED,
        tier=permissions.tier(ASKED),
        tools=() if report.is_broken else tools,
        unloaded=tools if report.is_broken else (),
        config=_config(raw, report),
        keeps_config=True,
        instructions=_cut(instructions) if isinstance(instructions, str) else "",
        init="" if report.is_broken else init,
        init_timeout_s=INIT_TIMEOUT_S,
    )
    _warn_of_values(plugin, report)
    return msgspec.structs.replace(plugin, problems=tuple(report.problems))


def slips(plugin: Plugin) -> list[Problem]:
    """List keys of its manifests that are probably misspelt."""
    report = manifest.Report()
    said = "\n".join(problem.hint for problem in plugin.problems)
    for tool, keys in (("", KEYS), *((tool.own_name, TOOL_KEYS) for tool in plugin.tools)):
        path = os.path.join(plugin.path, tool, MANIFEST)
        raw = manifest.read_object(path, manifest.Report(), folder=plugin.path) or {}
        manifest.find_slips(raw, keys, os.path.join(tool, MANIFEST), report, said)
    return report.problems


def violations(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    """Check the arguments by Stavrobot's own rules: unknown keys first, then types."""
    parameters = tool.input_schema["properties"]
    unknown = [f'Unknown parameter: "{name}"' for name in arguments if name not in parameters]
    absent = [
        f'Missing parameter: "{name}"'
        for name in tool.input_schema.get("required", ())
        if arguments.get(name) is None and not (name in arguments and "null" in _kinds(parameters[name]))
    ]
    wrong = [
        f'Parameter "{name}" must be {expected}'
        for name, value in arguments.items()
        if name in parameters and (expected := _mismatch(parameters[name], value))
    ]
    return unknown + absent + wrong


def _check_fields(raw: dict[str, Any], folder: Folder, report: manifest.Report, where: str) -> str:
    name = _text(raw, "name")
    if not name:
        missing = "manifest.json missing required field 'name'"
        report.needs_text(raw, "name", missing, 'add "name": "..." (a string)', where)
    elif not PLUGIN_NAME.fullmatch(name):
        report.error(
            f'Invalid plugin name "{name}": only lowercase letters, digits, and hyphens are allowed',
            f'change "name" in {where}',
        )
        name = ""
    elif not folder.is_named(name):
        note = report.warn if folder.explicit else report.error
        note(
            f"the folder '{os.path.basename(folder.found_at)}' must be named like the plugin, '{name}'",
            f"rename the folder to {name}, or install it: {hints.command('install', folder.found_at)}",
        )
    if not isinstance(raw.get("description"), str):
        missing = "manifest.json missing required field 'description'"
        report.needs_text(raw, "description", missing, 'add "description": "..."', where)
    if not isinstance(raw.get("instructions", ""), str):
        report.error(f"'instructions' must be a string at {where}", "make it a string, or leave it out")
    return name


def _init(raw: dict[str, Any], folder: str, report: manifest.Report) -> str:
    if "init" not in raw:
        return ""
    given = raw["init"]
    if not isinstance(given, dict) or not _text(given, "entrypoint"):
        report.error("'init' must be an object with an 'entrypoint'", 'write {"entrypoint": "init.sh"}')
        return ""
    return manifest.entrypoint(folder, folder, given["entrypoint"], report, what="init script", fatal=True)


def _config(raw: dict[str, Any], report: manifest.Report) -> tuple[ConfigKey, ...]:
    given = raw.get("config", {})
    if not isinstance(given, dict):
        report.warn("'config' must be an object; it is ignored", "map each key to a description and `required`")
        return ()
    keys = []
    for name, entry in given.items():
        if not isinstance(entry, dict) or name == plugin_config.PERMISSIONS:
            report.warn(f"the config entry '{name}' is ignored", "add a description and `required`")
            continue
        keys.append(
            ConfigKey(
                name=name,
                description=_text(entry, "description"),
                required=entry.get("required") is True,
                secret=entry["secret"] is True if "secret" in entry else secret_names.looks_like_one(name),
                default=entry.get("default", msgspec.UNSET),
                kind=_text(entry, "type"),
                tools=_needed_by(name, entry, report),
            )
        )
    return tuple(keys)


def _cut(instructions: str) -> str:
    if (left := len(instructions) - INSTRUCTIONS_SHOWN) <= 0:
        return instructions
    return f"{instructions[:INSTRUCTIONS_SHOWN]}\n[cut here: {left:,} more characters are in its {MANIFEST}]"


def _needed_by(name: str, entry: dict[str, Any], report: manifest.Report) -> tuple[str, ...]:
    given = entry.get("tools", [])
    if isinstance(given, list) and all(isinstance(tool, str) for tool in given):
        return tuple(given)
    report.warn(f"'tools' of the config entry '{name}' is ignored", "list the names of the tools that need the value")
    return ()


def _warn_of_values(plugin: Plugin, report: manifest.Report) -> None:
    try:
        plugin_config.read(plugin)
    except ConfigError as error:
        report.warn(error.message, error.hint, error.code)


def _tools(plugin: str, folder: str, report: manifest.Report) -> tuple[Tool, ...]:
    try:
        names = _folders(folder)
    except untrusted_files.TooMuch as error:
        report.error(f"cannot search {folder} for tools: {error.strerror}", "move what is not a tool elsewhere")
        return ()
    except OSError as error:
        report.error(f"cannot read {folder}: {error.strerror}", "check its permissions")
        return ()
    tools = []
    budget = untrusted_files.Budget(size=LARGEST_MANIFESTS)
    for name in names:
        where = os.path.join(folder, name, MANIFEST)
        if os.path.lexists(where):
            try:
                budget.file(os.lstat(where).st_size, where)
            except untrusted_files.TooMuch as error:
                report.error(f"the manifests of its tools are too large: {error.strerror}", f"make {where} smaller")
                return ()
            tool = _tool(plugin, folder, name, where, report)
            if tool is not None:
                tools.append(tool)
    if not tools:
        report.warn("it has no tools", "create a folder with a manifest.json for each tool")
    return tuple(tools)


def _folders(folder: str) -> list[str]:
    """List the folders of a plugin that may contain a tool; raises OSError. A plugin can create any number of them."""
    budget = untrusted_files.Budget(entries=MOST_ENTRIES)
    with untrusted_files.hold(folder) as held:
        names = [name for name in held.names(budget) if not name.startswith(".")]
    return [name for name in names if os.path.isdir(os.path.join(folder, name))]


def _are_parameters(given: Any) -> bool:
    return isinstance(given, dict) and all(isinstance(item, dict) for item in given.values())


def _tool(plugin: str, folder: str, name: str, where: str, report: manifest.Report) -> Tool | None:
    """Read one tool; an invalid one is left out, with the reason, and the others load."""
    raw = manifest.read_object(where, report, fatal=False, folder=folder)
    if raw is None:
        return None
    parameters = raw.get("parameters")
    texts = ("name", "description", "entrypoint")
    absent = [field for field in (*texts, "parameters") if raw.get(field) is None]
    faults = [f"missing {', '.join(absent)}"] if absent else []
    faults += [
        f"{field} must be a string, not {kind(raw[field])}"
        for field in texts
        if field not in absent and not isinstance(raw[field], str)
    ]
    if "parameters" not in absent and not _are_parameters(parameters):
        faults.append("parameters must be an object of objects")
    if faults:
        cures = "; ".join(cure for field in absent if (cure := manifest.renamed(raw, field)))
        report.warn(
            f'Skipping tool "{name}": {"; ".join(faults)} in {where}',
            cures or "a tool needs name, description, entrypoint (strings) and parameters (an object, {} for none)",
        )
        return None
    if raw["name"] != name or not is_clean(name):
        report.warn(
            f"Skipping tool \"{raw['name']}\": its folder is named '{name}'",
            "use the same name for folder and tool",
        )
        return None
    program = manifest.entrypoint(
        folder,
        os.path.join(folder, name),
        raw["entrypoint"],
        report,
        what=f"{name}'s entrypoint",
        fatal=False,
    )
    if not program:
        return None
    assert isinstance(parameters, dict)
    is_async = raw.get("async") is True
    return Tool(
        name=f"{plugin}.{name}",
        own_name=name,
        plugin=plugin,
        description=raw["description"],
        input_schema=_input_schema(name, parameters, report),
        program=program,
        timeout_s=ASYNC_TIMEOUT_S if is_async else TIMEOUT_S,
        is_async=is_async,
    )


def _input_schema(tool: str, parameters: dict[str, Any], report: manifest.Report) -> dict[str, Any]:
    """Convert the parameters to JSON Schema."""
    for name, parameter in parameters.items():
        if not _text(parameter, "type") or not isinstance(parameter.get("description"), str):
            report.warn(f"parameter '{name}' of {tool} has no type or description", "add both, as strings")
    required = [name for name, parameter in parameters.items() if parameter.get("required") is True]
    return {
        "type": "object",
        "properties": {name: _parameter_schema(parameter) for name, parameter in parameters.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _parameter_schema(parameter: dict[str, Any]) -> dict[str, Any]:
    description, kinds = _text(parameter, "description"), _text(parameter, "type").split("|")
    if kinds == ["file"]:
        return schema.file_schema(description)
    given: dict[str, Any] = {"description": description}
    if _TYPES.issuperset(kinds):  # any other type accepts anything
        given["type"] = kinds[0] if len(kinds) == 1 else kinds
    return given | {key: parameter[key] for key in _KEPT_KEYS if key in parameter}


def _mismatch(parameter: dict[str, Any], value: Any) -> str:
    """Return what a parameter must be, if the value is not that. Null stands for a missing parameter."""
    if value is None:
        return ""
    if schema.is_file(parameter):
        is_one = isinstance(value, str) or attachments.is_file(value)
        return "" if is_one else 'of type "file": a path, or {"filename": ..., "data": base64}'
    kinds = _kinds(parameter)
    if kinds and not attachments.is_file(value) and not any(_is_a(kind, value) for kind in kinds):
        return f'of type "{"|".join(kinds)}"'
    choices = parameter.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"one of {msgspec.json.encode(choices).decode()}"
    return ""


def _kinds(parameter: dict[str, Any]) -> list[str]:
    wanted = parameter.get("type", [])
    return wanted if isinstance(wanted, list) else [wanted]


def _is_a(kind: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return number
        case "integer":
            return number and (isinstance(value, int) or value.is_integer())
        case "array":
            return isinstance(value, list)
        case "null":
            return value is None
        case _:
            return isinstance(value, dict)


def _text(raw: dict[str, Any], field: str) -> str:
    value = raw.get(field)
    return value if isinstance(value, str) else ""
