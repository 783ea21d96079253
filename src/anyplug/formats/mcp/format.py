"""MCP: a folder with `mcp.json`, or another client's configuration, with long-running servers; a call is `tools/call`.

What servers offer is not in the configuration: they list their tools while they run.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from anyplug.formats.mcp import config_file
from anyplug.formats.mcp.config_file import PROJECT
from anyplug.formats.shared import defaults, manifest
from anyplug.formats.shared.contract import AskPeer, Folder, Request, Surroundings
from anyplug.formats.shared.new_plugins import ACTION, NewPlugin
from anyplug.formats.shared.scripts import modules_above
from anyplug.home.settings import Arguments
from anyplug.model import permissions
from anyplug.model.types import Call, Endpoint, Off, Plugin, Result

NAME = "mcp"
TITLE = "MCP"
MANIFEST = "mcp.json"
PROJECT_ROOTS: tuple[str, ...] = ()
ARGUMENTS: Arguments = "off"  # servers check for themselves
WRITES_BESIDE_ITSELF = True
EVERY_FILE_COUNTS = False  # servers may keep their state next to their code; files on command lines count, too
WRITES_ASIDE = False
RUNS_IN_PROJECT = False
INHERITS_ENVIRONMENT = False
DESCRIBES_ITSELF = False
CONTENT_IS_BLOCKS = True
TOOL_PREFIX = "mcp."
NAMES_PLUGINS = True
HOST_TOOLS: frozenset[str] = frozenset()
HOST_COMMANDS: frozenset[str] = frozenset()
PEER = "anyplug.formats.mcp.peer:Server"
LINT = ""
NEW: NewPlugin | None = NewPlugin(
    format=NAME,
    folder=os.path.dirname(__file__),
    languages=("python", "node", "typescript"),
    tool=lambda name: f"{TOOL_PREFIX}{name}.{ACTION}",
    modules={"typescript": {"server.mjs": "anyplug.formats.mcp:new-node/server.mjs"}},
)

violations = defaults.violations
data = defaults.data
user_roots = defaults.user_roots
private_places = defaults.private_places
environment = defaults.environment
prepare = defaults.prepare
ready = defaults.ready

# Programs that hand a container to a service, which runs it with the rights that the command line names.
CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
BY_CONTAINER: tuple[str, ...] = ("network:unix",)
BY_COMMAND: tuple[str, ...] = ("network", "shell:exec")
BY_URL: tuple[str, ...] = ("network",)


def load(folder: Folder) -> Plugin:
    """Read `mcp.json`."""
    found = Plugin(
        name=os.path.basename(folder.found_at),
        format=NAME,
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
    )
    return _read(found, os.path.join(folder.path, MANIFEST))


def load_client(name: str, path: str) -> Plugin:
    """Read the servers in a configuration that belongs to another program."""
    found_at = os.path.abspath(os.path.expanduser(path))
    found = Plugin(name=name, format=NAME, path=os.path.realpath(found_at), found_at=found_at, is_file=True)
    return _read(found, found.path)


def switched_off(plugin: Plugin) -> Off | None:
    """Honour clients' `disabled`, if no server is left."""
    where = plugin.path if plugin.is_file else os.path.join(plugin.path, MANIFEST)
    return None if plugin.enabled else Off(f'remove "disabled" from a server in {where}')


def readable(plugin: Plugin) -> tuple[str, ...]:
    """Return the modules around programs that the configuration names; everything else must be granted."""
    code = [path for path in _named(plugin, plugin.endpoints) if manifest.is_code(path)]
    folders = {os.path.dirname(path) for path in code if path.startswith("/")}
    modules = [one for folder in sorted(folders) for one in modules_above(folder)]
    return (*modules, *(os.path.join(os.path.dirname(one), "package.json") for one in modules))


def named_files(plugin: Plugin) -> tuple[str, ...]:
    """Return the files that command lines name."""
    return config_file.named_files(plugin)


def programs(plugin: Plugin, variables: Mapping[str, str] | None, project: str) -> list[str]:
    """Return the servers' programs."""
    return [
        config_file.program(plugin, endpoint if variables is None else _resolved(endpoint, variables, project))
        for endpoint in plugin.endpoints
        if endpoint.command and (variables is not None or "$" not in endpoint.command)
    ]


def request(call: Call, around: Surroundings) -> AskPeer:
    """AskPeer the running server."""
    return AskPeer(around.settings.timeout_s or call.tool.timeout_s)


def result(call: Call, request: Request, answer: Result, around: Surroundings) -> Result:
    """Return the answer as it is: it was read with the SDK, where the server was asked."""
    return answer


def _resolved(endpoint: Endpoint, variables: Mapping[str, str], project: str) -> Endpoint:
    """Return a server with the references in its command resolved; an unresolvable one fails at its start."""
    if "${" not in endpoint.command:
        return endpoint
    from anyplug.formats.mcp import config_variables  # its patterns take milliseconds to compile

    only = Endpoint(name=endpoint.name, command=endpoint.command)
    try:
        return config_variables.resolve(only, dict(variables), project)
    except config_variables.Unresolved:
        return only


def _named(plugin: Plugin, endpoints: Sequence[Endpoint]) -> list[str]:
    """List the paths outside the plugin's folder that command lines and variables name.

    Those in the caller's project begin with a dot. Whether they exist does not matter: otherwise what a plugin asks for
    would change with the files there.
    """
    words = [
        config_file.at_home(_by_default(word))
        for endpoint in endpoints
        if endpoint.command
        for word in (*endpoint.arguments, *_open_values(endpoint), endpoint.cwd)
        if any(sign in word for sign in "/.~$")
    ]
    found = dict.fromkeys(
        _meant(plugin, part)
        for word in words
        if "://" not in word
        for part in word.rpartition("=")[2].split(os.pathsep)
        if part in {".", "..", "~", PROJECT} or part.startswith(("/", "./", "../", "~/", f"{PROJECT}/"))
    )
    return [path for path in found if not _is_within(path, plugin.path)]


def _by_default(word: str) -> str:
    """Return a word of a command line with the defaults of its references: paths among them are used, too."""
    if ":-" not in word:
        return word
    from anyplug.formats.mcp import config_variables  # its patterns take milliseconds to compile

    return config_variables.with_defaults(word)


def _meant(plugin: Plugin, part: str) -> str:
    """Return the path that a word of a command line stands for."""
    if part.startswith(PROJECT) or (plugin.is_file and part.startswith(".")):  # where another program's servers run
        path = os.path.normpath("." + part.removeprefix(PROJECT) if part.startswith(PROJECT) else part)
        return path if path.startswith(".") else f"./{path}"
    return os.path.normpath(os.path.join(plugin.path, os.path.expanduser(part)))


def _open_values(endpoint: Endpoint) -> list[str]:
    """Return the values of variables that are not secret: paths are shown."""
    if not endpoint.environment:
        return []
    from anyplug.secrets import env_vars as variables  # their patterns take milliseconds to compile

    return [value for name, value in endpoint.environment.items() if not variables.looks_secret(name, value)]


def _reads(plugin: Plugin, endpoints: Sequence[Endpoint]) -> list[str]:
    """AskPeer to read what the configuration names; of a program, its folder, unless that has all that a person has."""
    user = os.path.expanduser("~")
    found = []
    for path in _named(plugin, endpoints):
        folder = "." if path.startswith("./") else os.path.dirname(path)  # code in a project needs all of it
        meant = folder if manifest.is_code(path) and not _is_within(user, folder) else path
        shown = "~" + meant.removeprefix(user) if _is_within(meant, user) else meant
        found.append(f"filesystem:read:{shown}")
    return found


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _read(found: Plugin, where: str) -> Plugin:
    report = manifest.Report()
    raw = manifest.read_object(where, report)
    endpoints, some_off = config_file.read(raw, report, where) if raw is not None else ([], False)
    if not manifest.is_plain_name(found.name):
        report.error(f"the name '{found.name}' cannot be a folder's name", manifest.PLAIN_NAMES)
    if not found.is_file:
        endpoints = [config_file.in_folder(endpoint, found.path) for endpoint in endpoints]
    for endpoint in endpoints:
        _look_closer(found, endpoint, report)
    own = _asked(raw, report) if raw is not None and not found.is_file else None
    is_contained = any(os.path.basename(endpoint.command) in CONTAINERS for endpoint in endpoints)
    usual = [*(_usual(endpoints) if own is None else own), *(BY_CONTAINER if is_contained else ())]
    asked = permissions.normalise([*usual, *_reads(found, endpoints), *_secrets(endpoints)])
    about = {} if raw is None or found.is_file else raw
    names = tuple(endpoint.name for endpoint in endpoints)
    return Plugin(
        name=found.name,
        format=NAME,
        path=found.path,
        found_at=found.found_at,
        explicit=found.explicit,
        is_file=found.is_file,
        version=_text(about, "version"),
        description=_text(about, "description")
        or (f"MCP server{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""),
        permissions=asked,
        tier=permissions.tier(asked),
        endpoints=tuple(endpoints),
        processes=names,
        enabled=bool(endpoints) or not some_off,
        problems=tuple(report.problems),
    )


def _usual(endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
    """Return what servers need that do not say it."""
    if endpoints and not any(endpoint.command for endpoint in endpoints):
        return BY_URL
    return BY_COMMAND


def _asked(raw: dict[str, Any], report: manifest.Report) -> list[str] | None:
    """Return the permissions that the author names; None if there are none to read."""
    given = raw.get("permissions")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        report.warn("'permissions' must be a list of strings", 'write it like ["network:api.example.org"]')
        return None
    return [name for name in given if not _is_faulty(name, report)]


def _is_faulty(name: str, report: manifest.Report) -> bool:
    message, hint = permissions.fault(name)
    if message:
        report.warn(message, hint, "bad_permission")
    return bool(message)


def _text(raw: dict[str, Any], field: str) -> str:
    value = raw.get(field)
    return value if isinstance(value, str) else ""


def _look_closer(plugin: Plugin, endpoint: Endpoint, report: manifest.Report) -> None:
    """Warn about what a person should know about a command before approving it."""
    if not endpoint.command:
        return
    program = config_file.program(plugin, endpoint)
    if manifest.is_inside(program, plugin.path) and "${" not in program:
        manifest.warn_if_not_executable(program, f"the command of server '{endpoint.name}'", report)
    if os.path.basename(program) in CONTAINERS:
        report.warn(
            f"server '{endpoint.name}' starts a container, which {os.path.basename(program)} runs outside anyplug's "
            "sandbox: only the container itself and the options of this command limit what it can do",
            "read its options, such as -v and --privileged, before you approve it",
            "not_sandboxed",
        )
    if os.path.basename(program) in manifest.FETCHERS:
        from anyplug.formats.mcp import unpinned_commands  # its patterns take milliseconds to compile

        for fetched in unpinned_commands.unpinned((program, *endpoint.arguments)):
            report.warn(
                f"server '{endpoint.name}' fetches {fetched.package} when it starts, without an exact version, so "
                "the digest does not cover what runs",
                fetched.hint,
                "not_pinned",
            )
    for word in (program, *endpoint.arguments):
        is_code = manifest.is_code(word) or (word is program and "/" in word and not manifest.is_the_machines(word))
        is_elsewhere = word.startswith("/") and not manifest.is_inside(os.path.normpath(word), plugin.path)
        is_anywhere = word.startswith(PROJECT) or (plugin.is_file and not word.startswith(("/", "~", "$", "-")))
        if is_code and "://" not in word and (is_elsewhere or is_anywhere):
            whose = " of whichever project it is started for" if is_anywhere else ""
            report.warn(
                f"server '{endpoint.name}' runs {word}{whose}, which the digest does not cover",
                f"keep it in a folder with an {MANIFEST} of its own",
                manifest.NOT_COVERED,
            )


def _secrets(endpoints: list[Endpoint]) -> list[str]:
    """AskPeer for the variables that look like secrets and that the configuration refers to."""
    if not any("${" in text for endpoint in endpoints for text in _all_text(endpoint)):
        return []
    from anyplug.formats.mcp import config_variables  # for the same reason
    from anyplug.secrets import env_vars as variables  # their patterns take milliseconds to compile

    names = [name for endpoint in endpoints for name in config_variables.variables(endpoint)]
    return [f"env:{name}" for name in names if variables.looks_secret(name, "given")]


def _all_text(endpoint: Endpoint) -> tuple[str, ...]:
    values = (*endpoint.environment.values(), *endpoint.headers.values())
    return (endpoint.command, *endpoint.arguments, endpoint.cwd, endpoint.url, *values)
