"""Read MCP servers that people paste: a command line, or a snippet of any client's configuration.

    npx -y @scope/server arg      uvx server        docker run -i --rm image      claude mcp add NAME -- COMMAND
    {"mcpServers": {...}}   {"servers": {...}}   "name": {"command": ...}   {"command": ...}   TOML of Codex
    YAML of Goose and Continue      code --add-mcp '{"name": ...}'

A value that looks like a secret becomes a reference, and is returned beside it: what is recorded and shown has none.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from anyplug.formats.mcp import config_file
from anyplug.manage import pasted_secrets
from anyplug.manage.bundles.foreign_bundle import plain_name
from anyplug.manage.plugin_sources import Source
from anyplug.model.errors import InstallError

LAUNCHERS: Final = frozenset(
    {"npx", "pnpx", "bunx", "uvx", "docker", "podman", "nerdctl", "pipx", "deno", "npm", "pnpm", "yarn", "bun", "uv",
     "node", "python", "python3", "claude", "codex", "gemini", "code", "code-insiders", "env"}
)  # fmt: skip
PACKAGE_RUNNERS: Final = frozenset({"npx", "pnpx", "bunx", "uvx"})  # without a package they start nothing
CLIENTS: Final = frozenset({"claude", "codex", "gemini"})  # NAME mcp add ...
EDITORS: Final = frozenset({"code", "code-insiders"})  # NAME --add-mcp JSON
FREE_OPTIONS: Final = frozenset({"--trust"})  # of `mcp add`, without a value
KEYS: Final = ("mcpServers", "servers", "mcp_servers", "context_servers", "extensions", "mcp")  # the last nests others
LARGEST: Final = 1 << 20  # characters of a snippet
EXPECTED: Final = 'paste it like {"mcpServers": {"NAME": {"command": "npx", "args": ["-y", "@scope/server"]}}}'

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_URL_KEYS: Final = (*config_file.URL_KEYS, "uri")  # the last is Goose's
_READ: Final = frozenset(
    {"command", "cmd", "args", "env", "environment", "envs", "env_vars", "env_keys", "cwd", "type", "transport",
     "headers", "http_headers", "env_http_headers", "bearer_token_env_var", *_URL_KEYS}
)  # fmt: skip
_MEANS_NOTHING: Final = frozenset({"name", "title", "description", "enabled", "disabled"})  # to a server that runs
_UNNAMED = re.compile(r'\s*"[^"]+"\s*:\s*\{')
_AFFIXES = re.compile(r"^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-mcp|-server)$")


class Pasted(msgspec.Struct, frozen=True):
    """One pasted server: what to install, and its secrets by the variables that stand for them."""

    source: Source
    secrets: dict[str, str]
    dropped: tuple[str, ...] = ()  # fields of its entry that are not understood


def command_at(words: Sequence[str]) -> bool:
    """Return whether words after `install` are a command line rather than a source."""
    rest = [word for word in words if not _ASSIGNMENT.fullmatch(word)]
    return bool(rest) and rest[0] in LAUNCHERS and (len(words) > 1) and not os.path.lexists(words[0])


def of_command(words: Sequence[str], name: str = "") -> Pasted:
    """Read a command line. Raises InstallError."""
    words = list(words)
    while words and words[0] in {"$", ">"}:  # copied together with the prompt
        words = words[1:]
    environment = {}
    while words and (words[0] == "env" or _ASSIGNMENT.fullmatch(words[0])):
        if words[0] != "env":
            key, _, environment[key] = words[0].partition("=")
        words = words[1:]
    if not words:
        raise InstallError("there is no command to run", EXPECTED)
    if words[0] in CLIENTS and words[1:3] == ["mcp", "add"]:
        return _of_client(words[3:], name)
    if words[0] in CLIENTS and words[1:3] == ["mcp", "add-json"]:
        _, given = _options(words[3:])
        if len(given) < 2:  # noqa: PLR2004 - the name and the JSON
            raise InstallError("the name or the JSON of the server is missing", EXPECTED)
        return _pasted(name or given[0], _object(given[1]), "")
    if words[0] in EDITORS and words[1:2] == ["--add-mcp"]:
        [(named, entry)] = _servers(_object(" ".join(words[2:3]))).items()
        return _pasted(name or named, entry, "")
    words = [_whole(word) for word in words]
    if words[0] in PACKAGE_RUNNERS and not _package(words[1:], is_container=False):
        raise InstallError(f"`{shlex.join(words)}` names no package", f"add it, like `{words[0]} @scope/server`")
    entry = {"command": words[0], "args": words[1:], **({"env": environment} if environment else {})}
    return _pasted(name or name_of(words), entry, shlex.join(words))


def of_snippet(text: str, name: str = "") -> list[Pasted]:
    """Read a snippet of a configuration. Raises InstallError."""
    if len(text) > LARGEST:
        raise InstallError("the configuration is too large", "paste only the servers that you want")
    text = text.strip().removeprefix("\ufeff")
    text = re.sub(r"^```[a-z]*\n|\n?```$", "", text).strip()
    if not text:
        raise InstallError("nothing was pasted", EXPECTED)
    found = _servers(_object(text))
    if name and len(found) > 1:
        raise InstallError(
            f"--name names one plugin, but there are {len(found)} servers", "leave it out, or paste one server"
        )
    return [_pasted(name or key, entry, "") for key, entry in found.items()]


def _of_client(words: list[str], name: str) -> Pasted:
    """Read the words after `claude mcp add`."""
    options, given = _options(words)
    if not given:
        raise InstallError("the server has no name", "write it like `claude mcp add NAME -- npx -y @scope/server`")
    entry: dict[str, Any] = {}
    for option, value in options:
        if option in {"--transport", "-t"}:
            entry["type"] = value
        elif option in {"--env", "-e"}:
            key, _, entry.setdefault("env", {})[key] = value.partition("=")
        elif option in {"--header", "-H"}:
            key, _, text = value.partition(":")
            entry.setdefault("headers", {})[key.strip()] = text.strip()
        elif option in {"--url", "--bearer-token-env-var"}:
            entry[option[2:].replace("-", "_")] = value
    server = given[1:]
    if server and server[0].startswith(("http://", "https://")):
        entry["url"] = server[0]
    elif server:
        entry["command"], entry["args"] = server[0], server[1:]
    return _pasted(name or given[0], entry, "")


def _options(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Tell the options of `mcp add` and the other words; what follows the server's first word is its own."""
    options: list[tuple[str, str]] = []
    given: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        is_command = len(given) == 2 and "://" not in given[1]  # noqa: PLR2004 - the name, and the server's first word
        if word == "--" or is_command:
            return options, [*given, *([] if word == "--" else [word]), *rest]
        if not word.startswith("-"):
            given.append(word)
        elif word not in FREE_OPTIONS:
            options.append((option, value if equals else next(rest, "")))
    return options, given


def name_of(words: Sequence[str]) -> str:
    """Return a short name for what a command starts: the package's own, without scope, version and affixes."""
    program, rest = os.path.basename(words[0]), list(words[1:])
    for subcommand in ("exec", "dlx", "x", "run", "tool", "container"):
        if rest[:1] == [subcommand] and program in {"npm", "pnpm", "yarn", "bun", "uv", "pipx", "docker", "podman",
                                                    "nerdctl", "deno"}:  # fmt: skip
            rest = rest[1:]
    if rest[:1] == ["run"]:  # uv tool run, docker container run
        rest = rest[1:]
    package = program
    if program in LAUNCHERS:
        package = _package(rest, is_container=program in {"docker", "podman", "nerdctl"}) or program
    package = package.rstrip("/").rpartition("/")[2] or package
    package = re.split(r"[=<>~!\[]|(?<=.)[@:]", package, maxsplit=1)[0]
    package = re.sub(r"\.(?:py|m?js|ts)$", "", package)
    shorter = _AFFIXES.sub("", package)
    return plain_name(shorter if len(shorter) > 1 else package)


def _whole(word: str) -> str:
    """Return a path of the current folder as a whole path: the server runs in the folder of its plugin."""
    looks_like_path = word in {".", ".."} or "/" in word or os.path.splitext(word)[1]
    is_plain = not word.startswith(("-", "@", "/", "~", "$"))
    return os.path.abspath(word) if is_plain and looks_like_path and os.path.exists(word) else word


def _package(words: list[str], *, is_container: bool) -> str:
    """Return the first word that is not an option; options of containers are many, and most take a value."""
    from anyplug.formats.mcp.unpinned_commands import takes_value  # its patterns take milliseconds to compile

    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word
        if takes_value(word, is_container=is_container):
            value = next(rest, "")
            if word in {"-p", "--package", "--from", "--spec"} and not is_container:
                return value
    return ""


def _object(text: str) -> dict[str, Any]:
    """Parse JSON, also with comments, trailing commas or without its braces, or TOML, or YAML."""
    from anyplug.manage.connect import jsonc  # only needed for what is pasted
    from anyplug.manage.connect.edits import Malformed

    candidates = [text, f"{{{text.rstrip().rstrip(',')}}}"] if _UNNAMED.match(text) else [text]
    fault = ""
    for candidate in candidates:
        try:
            return jsonc.read(candidate)
        except Malformed as error:
            fault = str(error)
        except (ValueError, RecursionError):
            continue
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        pass
    from anyplug.rego import yaml  # with libyaml: only needed for YAML

    with suppress(yaml.YamlError, RecursionError):
        if isinstance(found := yaml.load(text), dict):
            return found
    if fault and text.startswith(("{", '"')):
        raise InstallError(f"what was pasted is not valid JSON: {fault}", EXPECTED)
    raise InstallError("what was pasted is neither JSON nor TOML nor YAML", EXPECTED)


def _servers(raw: dict[str, Any]) -> dict[str, Any]:
    """Find the servers, by name."""
    for key in KEYS:
        inner = raw.get(key)
        if isinstance(inner, list):  # of Continue
            return _named({_own_name(entry): entry for entry in inner if isinstance(entry, dict) and _is_server(entry)})
        if isinstance(inner, dict):
            nested = next((inner[k] for k in KEYS[:-1] if isinstance(inner.get(k), dict)), inner)
            return _named(nested)
    return {_own_name(raw): raw} if _is_server(raw) else _named(raw)


def _own_name(entry: dict[str, Any]) -> str:
    """Return the name that an entry says, or one for what it starts."""
    name = entry.get("name")
    if isinstance(name, str):
        return name
    command, args = entry.get("command", entry.get("cmd")), entry.get("args")
    words = [command] if isinstance(command, str) else command if isinstance(command, list) else []
    words = [str(word) for word in [*words, *(args if isinstance(args, list) else [])]]
    return name_of(words) if words else _host(entry)


def _named(found: dict[str, Any]) -> dict[str, Any]:
    servers = {name: entry for name, entry in found.items() if isinstance(entry, dict) and _is_server(entry)}
    if not servers:
        raise InstallError("what was pasted names no MCP server", EXPECTED)
    return servers


def _is_server(entry: dict[str, Any]) -> bool:
    return any(key in entry for key in ("command", "cmd", *_URL_KEYS))


def _host(entry: dict[str, Any]) -> str:
    url = next((str(entry[key]) for key in _URL_KEYS if key in entry), "")
    host = urlsplit(url).hostname or ""
    if not host or ":" in host or host.replace(".", "").isdecimal():  # a bare address names nothing
        return "server"
    return plain_name(host.removeprefix("www.").removeprefix("mcp.").partition(".")[0])


def _pasted(name: str, entry: dict[str, Any], shown: str) -> Pasted:
    """Bring a client's entry into the common form, and take its secrets out."""
    plain = plain_name(name)
    dropped = tuple(key for key in entry if key not in _READ | _MEANS_NOTHING)
    entry, secrets = pasted_secrets.taken_out(_common(entry), plain)
    kept = {key: value for key, value in entry.items() if value not in ("", [], {}, None)}
    try:
        config_file.endpoint(plain, kept)
    except config_file.BadServer as bad:
        raise InstallError(f"the server '{plain}' is invalid: {bad}", bad.hint) from None
    if not shown or secrets:
        words = [str(kept.get("command", "")), *kept.get("args", [])]
        shown = str(kept["url"]) if "url" in kept else shlex.join(words)
    text = msgspec.json.encode({config_file.KEY: {plain: kept}}).decode()
    return Pasted(Source(location=shown, servers=text, name=plain), secrets, dropped)


def _common(entry: dict[str, Any]) -> dict[str, Any]:
    """Use the words of most clients: OpenCode has a list for a command, Zed an object, Goose other names."""
    command, args = entry.get("command", entry.get("cmd")), entry.get("args")
    env = next((entry[key] for key in ("env", "environment", "envs") if key in entry), None)
    if isinstance(command, dict):
        args, env = command.get("args", args), command.get("env", env)
        command = command.get("path")
    if isinstance(command, list):
        command, args = (command[0] if command else ""), [*command[1:], *(args if isinstance(args, list) else [])]
    if isinstance(command, str) and " " in command and not args and not os.path.exists(command):
        command, *args = shlex.split(command)
    if command in {"cmd", "cmd.exe"} and isinstance(args, list) and [*map(str, args[:1])] in (["/c"], ["/C"]):
        command, args = (args[1] if len(args) > 1 else ""), args[2:]  # what Windows needs to start npx
    kind = entry.get("type", entry.get("transport"))
    kind = kind.replace("_", "-") if isinstance(kind, str) else kind
    return {
        "command": command,
        "args": args,
        "env": _with_references(_as_texts(env), {name: name for name in _names(entry, "env_vars", "env_keys")}),
        "cwd": entry.get("cwd"),
        "url": next((entry[key] for key in _URL_KEYS if key in entry), None),
        "type": kind if kind in config_file.TRANSPORTS and kind != "stdio" else None,
        "headers": _headers(entry),
    }


def _headers(entry: dict[str, Any]) -> Any:
    """Return the headers; Codex names variables for some of them."""
    given = entry.get("headers", entry.get("http_headers"))
    named = entry.get("env_http_headers")
    given = _with_references(given, named if isinstance(named, dict) else {})
    token = entry.get("bearer_token_env_var")
    if isinstance(token, str) and token and isinstance(given, dict | None):
        return {**(given or {}), "Authorization": f"Bearer ${{{token}}}"}
    return given


def _with_references(given: Any, named: dict[str, Any]) -> Any:
    """Return texts, and beside them a reference for each that is named by its variable."""
    if not named or not isinstance(given, dict | None):
        return given
    return {**{key: f"${{{name}}}" for key, name in named.items()}, **(given or {})}


def _as_texts(env: Any) -> Any:
    if not isinstance(env, dict):
        return env
    return {key: text if isinstance(text, str) else msgspec.json.encode(text).decode() for key, text in env.items()}


def _names(entry: dict[str, Any], *fields: str) -> list[str]:
    lists = [found for field in fields if isinstance(found := entry.get(field), list)]
    return [name for names in lists for name in names if isinstance(name, str)]
