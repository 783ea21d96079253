"""A plugin of another agent, converted: its servers, its texts, and a list of unused parts. Writes it as an MCP plugin.

NAME/mcp.json        its servers, and one for its texts, if it has any
NAME/texts.py        that server; NAME/texts.json tells it which file is what
NAME/bundle/...      the plugin as its author wrote it
"""

import itertools
import os
import re
from typing import Any, Final

import msgspec

from anyplug.formats.mcp import config_file
from anyplug.formats.shared import manifest
from anyplug.home import untrusted_files
from anyplug.model.untrusted_text import for_people

INSIDE: Final = "bundle"
ROOT: Final = "${PLUGIN_ROOT}/" + INSIDE  # as the written configuration refers to it
TEXTS: Final = "texts"  # the server of texts
ASKED: Final = ("network", "shell:exec")  # as for every server that is started by a command
PROGRAM, PLAIN = 0o755, 0o644
LARGEST: Final = 1 << 20  # bytes of a file that is read here
LONGEST_NAME: Final = 64
MOST_TEXTS: Final = 1000
MOST_NOTES: Final = 40
MOST_DEFAULTS: Final = 20  # of one value
FURTHER: Final = "..."  # between a value's key and the number of a further default
SHOWN: Final = 160  # characters of a hook's command

_USER_CONFIG = re.compile(r"\$\{user_config\.([A-Za-z0-9_.-]+)\}")
_SIGN = re.compile(r"[^A-Za-z0-9._-]+")
_VARIABLE = re.compile(r"[^A-Za-z0-9]+")


class Value(msgspec.Struct, frozen=True):
    """A value that the person must or may give, as an environment variable."""

    variable: str
    title: str = ""
    default: str | None = None
    required: bool = False
    is_path: bool = False


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin of another agent."""

    kind: str  # for people
    name: str
    version: str = ""
    description: str = ""
    servers: dict[str, Any] = {}  # with references to our variables
    prompts: dict[str, str] = {}  # a file for each, relative to the plugin
    skills: dict[str, str] = {}  # a folder for each
    values: tuple[Value, ...] = ()
    left_out: tuple[str, ...] = ()  # what it has besides, a line for each
    ours: tuple[str, ...] = ()  # plugins that `anyplug export` put inside, relative to it

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it can be used."""
        return not (self.servers or self.prompts or self.skills)


def write(bundle: Bundle, brought: str, folder: str) -> None:
    """Write the plugin's folder around its copied files, which are moved there. Raises OSError."""
    os.mkdir(folder, 0o755)
    os.rename(brought, os.path.join(folder, INSIDE))
    servers = dict(bundle.servers)
    if bundle.prompts or bundle.skills:
        own = f"{bundle.name}-{TEXTS}" if servers else bundle.name
        servers[own] = {"command": "python3", "args": ["${PLUGIN_ROOT}/texts.py"]}
        about = {name: getattr(bundle, name) for name in ("name", "version", "prompts", "skills")}
        _put(folder, "texts.json", msgspec.json.format(msgspec.json.encode(about), indent=2), PLAIN)
        with open(os.path.join(os.path.dirname(__file__), "texts-server", "texts.py"), "rb") as file:
            _put(folder, "texts.py", file.read(), PROGRAM)
    variables = [f"env:{value.variable}" for value in bundle.values]
    by_command = any("command" in entry for entry in bundle.servers.values())
    asked = ASKED if by_command else ASKED[:1] if bundle.servers else ()
    configuration = {
        "description": bundle.description,
        "version": bundle.version,
        **({} if by_command and not variables else {"permissions": [*asked, *variables]}),
        config_file.KEY: servers,
    }
    _put(folder, "mcp.json", msgspec.json.format(msgspec.json.encode(configuration), indent=2), PLAIN)
    for entry in bundle.servers.values():
        _make_executable(folder, str(entry.get("command", "")))


def servers_of(found: dict[str, Any], root: str, values: dict[str, Value]) -> dict[str, Any]:
    """Return servers in our words: `root` is the reference to its folder that the format defines."""
    return {
        name: _entry(entry, root, values)
        for name, entry in found.items()
        if isinstance(entry, dict) and not entry.get("disabled")
    }


def _entry(entry: dict[str, Any], root: str, values: dict[str, Value]) -> dict[str, Any]:
    def ours(value: Any) -> Any:
        if isinstance(value, str):
            return _USER_CONFIG.sub(lambda found: _reference(found[1], values), value.replace(root, ROOT))
        if isinstance(value, list):
            return [ours(one) for item in value for one in _several(item, values)]
        return {key: ours(item) for key, item in value.items()} if isinstance(value, dict) else value

    kept: dict[str, Any] = {key: ours(value) for key, value in entry.items() if value not in ("", None)}
    if "command" in kept:
        command = str(kept["command"])
        if command.startswith(("./", "../")):
            kept["command"] = f"{ROOT}/{os.path.normpath(command)}"
        cwd = kept.get("cwd")
        is_relative = isinstance(cwd, str) and not cwd.startswith(("/", "~", "$"))
        kept["cwd"] = f"{ROOT}/{cwd}" if is_relative else cwd or ROOT
    return kept


def _several(item: Any, values: dict[str, Value]) -> list[Any]:
    """Return an argument, and beside it one for each further default, if the person may give several values."""
    found = _USER_CONFIG.fullmatch(item) if isinstance(item, str) else None
    further = [key for key in values if found is not None and key.startswith(f"{found[1]}{FURTHER}")]
    return [item, *(f"${{user_config.{key}}}" for key in further)]


def _reference(key: str, values: dict[str, Value]) -> str:
    value = values.get(key)
    if value is None:
        return f"${{{variable(key)}}}"
    is_needed = value.default is None and value.required
    return f"${{{value.variable}}}" if is_needed else f"${{{value.variable}:-{value.default or ''}}}"


def variable(key: str) -> str:
    """Return the environment variable for a value that the format calls by a key."""
    name = _VARIABLE.sub("_", key).strip("_").upper()
    return name if name and not name[0].isdigit() else f"VALUE_{name}"


def plain_name(name: str) -> str:
    """Return a name that a folder can have."""
    return _SIGN.sub("-", name.strip()).strip("-._")[:LONGEST_NAME] or "plugin"


def values_of(raw: Any) -> dict[str, Value]:
    """Read what a bundle lets a person configure, as MCPB and Claude Code write it."""
    found: dict[str, Value] = {}
    for key, given in raw.items() if isinstance(raw, dict) else ():
        entry = given if isinstance(given, dict) else {}
        default = entry.get("default")
        defaults = [_as_text(one) for one in (default if isinstance(default, list) else [default]) if one is not None]
        title = for_people(str(entry.get("title") or entry.get("description") or key), SHOWN)
        is_path, is_required = entry.get("type") in {"directory", "file"}, bool(entry.get("required"))
        found[key] = Value(variable(key), title, defaults[0] if defaults else None, is_required, is_path)
        for number, one in enumerate(defaults[1:MOST_DEFAULTS], 2):
            found[f"{key}{FURTHER}{number}"] = Value(f"{variable(key)}_{number}", title, one, is_path=is_path)
    return found


def _as_text(default: Any) -> str:
    return at_home(default if isinstance(default, str) else msgspec.json.encode(default).decode())


def at_home(text: str) -> str:
    """Replace MCPB's references to folders of the user; a default cannot contain references."""
    user = os.path.expanduser("~")
    for name, folder in (("HOME", ""), ("DESKTOP", "Desktop"), ("DOCUMENTS", "Documents"), ("DOWNLOADS", "Downloads")):
        text = text.replace(f"${{{name}}}", os.path.join(user, folder).rstrip("/"))
    return text.replace("${/}", "/").replace("${pathSeparator}", "/")


def read_object(folder: str, name: str) -> dict[str, Any] | None:
    """Read a JSON object of a bundle; None if there is no valid one."""
    return manifest.read_object(os.path.join(folder, name), manifest.Report(), folder=folder)


def text(raw: dict[str, Any], field: str) -> str:
    """Return a field that must be a text."""
    value = raw.get(field)
    return value if isinstance(value, str) else ""


def prompts_in(folder: str, places: list[str]) -> dict[str, str]:
    """Find commands: each .md file, named after its path below the folder of commands."""
    found: dict[str, str] = {}
    for place in places:
        whole = os.path.join(folder, place)
        if place.endswith(".md") and os.path.isfile(whole):
            found.setdefault(os.path.basename(place)[:-3], place)
        elif os.path.isdir(whole):
            for path in _markdown(whole):
                found.setdefault(path[:-3].replace("/", ":"), os.path.normpath(f"{place}/{path}"))
    return dict(list(found.items())[:MOST_TEXTS])


def skills_in(folder: str, places: list[str]) -> dict[str, str]:
    """Find skills: each folder with a SKILL.md."""
    found: dict[str, str] = {}
    for place in places:
        whole = os.path.join(folder, place)
        if os.path.isfile(os.path.join(whole, "SKILL.md")):
            found.setdefault(os.path.basename(os.path.normpath(whole)), os.path.normpath(place))
            continue
        names = sorted(os.listdir(whole)) if os.path.isdir(whole) else []
        for name in names:
            if os.path.isfile(os.path.join(whole, name, "SKILL.md")):
                found.setdefault(name, os.path.normpath(f"{place}/{name}"))
    return dict(list(found.items())[:MOST_TEXTS])


def exported(servers: dict[str, Any], root: str) -> tuple[str, ...]:
    """Return the plugins that a bundle written by `anyplug export` contains."""
    found = []
    for entry in servers.values():
        words = entry.get("args") if isinstance(entry, dict) and entry.get("command") == "anyplug" else None
        words = words if isinstance(words, list) else []
        pairs = itertools.pairwise(words)
        found += [str(word).removeprefix(f"{root}/") for option, word in pairs if option == "--plugin"]
    return tuple(path for path in found if not path.startswith(("/", "$")) and ".." not in path.split("/"))


def _markdown(folder: str) -> list[str]:
    names = untrusted_files.files(folder, untrusted_files.Budget(entries=MOST_TEXTS * 10))
    return sorted(name for name in names if name.endswith(".md") and os.path.basename(name) != "README.md")


def _put(folder: str, name: str, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(os.path.join(folder, name), flags, mode), "wb") as file:
        file.write(data)


def _make_executable(folder: str, command: str) -> None:
    """Make a bundled program executable: archives often lose that."""
    path = command.replace("${PLUGIN_ROOT}", folder)
    real = os.path.realpath(path)
    if path.startswith(folder) and manifest.is_inside(real, os.path.realpath(folder)) and os.path.isfile(real):
        os.chmod(real, PROGRAM)
