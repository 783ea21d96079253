"""Stavrobot: a folder with `manifest.json` and a folder with another one for each tool; a call is one process.

The parameters are one JSON object on stdin. Whatever the tool prints is its output, JSON or text; exit code 0
is success; on failure stderr and stdout together are the message. The working folder is the tool's own, with
the plugin's configuration at `../config.json`. Files go in and out through `/tmp/<plugin>`.
"""

import os

import msgspec

from anyplug.formats.shared import attachments, defaults, one_shot, scripts
from anyplug.formats.shared.contract import Surroundings
from anyplug.formats.shared.new_plugins import ACTION, LOWER_CASE, NewPlugin
from anyplug.formats.stavrobot import manifests
from anyplug.home import plugin_config
from anyplug.home.settings import Arguments, Home
from anyplug.model import hints, json_values
from anyplug.model.errors import CallError, ConfigError, ConfigMissing, Unavailable, is_shortage
from anyplug.model.hints import typed
from anyplug.model.types import Call, Off, Plugin, Result, Text
from anyplug.runtime.processes.program import Files, Finished, Program

NAME = manifests.NAME
TITLE = "Stavrobot"
MANIFEST = manifests.MANIFEST
PROJECT_ROOTS: tuple[str, ...] = ("data/tools",)
load = manifests.load
violations = manifests.violations
ARGUMENTS: Arguments = "strict"
EVERY_FILE_COUNTS = False
WRITES_BESIDE_ITSELF = True
WRITES_ASIDE = False
RUNS_IN_PROJECT = False
INHERITS_ENVIRONMENT = False
DESCRIBES_ITSELF = True
CONTENT_IS_BLOCKS = False
TOOL_PREFIX = ""
NAMES_PLUGINS = True
HOST_TOOLS: frozenset[str] = frozenset()
HOST_COMMANDS: frozenset[str] = frozenset()
PEER = ""
LINT = "anyplug.formats.stavrobot.manifests:slips"

data = defaults.data
readable = defaults.readable
named_files = defaults.named_files
programs = defaults.programs
user_roots = defaults.user_roots
private_places = defaults.private_places

MAX_STDOUT = 16 << 20  # bytes; its own host has no limit
MAX_STDERR = 1 << 20

WORDS = one_shot.Words(
    timed_out="Tool execution timed out after {seconds:g}s",
    too_large="Tool output exceeded {size} limit",
    crashed="Tool process failed",
    not_executable="Failed to spawn script",
    not_started="Failed to spawn script",
)
NEW: NewPlugin | None = NewPlugin(
    format=NAME,
    folder=os.path.dirname(__file__),
    languages=("python", "bash"),
    takes_name=manifests.PLUGIN_NAME.fullmatch,
    signs=LOWER_CASE,
    tool=lambda name: f"{name}.{ACTION}",  # the host prefixes the plugin's name
)


def switched_off(plugin: Plugin) -> Off | None:
    """Honour `permissions` in `config.json`."""
    try:
        allowed = plugin_config.allowed(plugin_config.read(plugin))
    except ConfigError:
        return None  # the call itself says what is wrong with the file
    if allowed is None:
        return None
    return Off(f"`anyplug config {plugin.name} --enable TOOL` switches the tool on", allowed, is_secret=True)


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Return the short list that Stavrobot promises, and what was granted by name."""
    from anyplug.secrets.env_vars import certificates  # its patterns take milliseconds to compile

    cache = home.cache(plugin)
    return {
        **{name: users[name] for name in granted if name in users},
        "PATH": f"{home.bin}:{users.get('PATH', os.defpath)}",
        "HOME": os.path.join(home.data(plugin), "home"),
        "UV_CACHE_DIR": scripts.fetched(home, plugin),
        # Not shared: the build of one plugin's dependencies must not reach the others' interpreter.
        "UV_PYTHON_INSTALL_DIR": os.path.join(cache, "python"),
        "UV_NO_PROJECT": "1",  # a pyproject.toml above the plugin must not affect it
        **scripts.uv_settings(users),
        "PYTHONPYCACHEPREFIX": os.path.join(cache, "pycache"),
        **certificates(users),
    }


async def ready(call: Call, around: Surroundings) -> None:
    """Check that the configuration is complete, and resolve the script's dependencies if they are missing."""
    _configure(call)
    await _ensure_resolved(call.plugin, call.tool.program, around)


def request(call: Call, around: Surroundings) -> Program:
    """Run the tool once."""
    plugin = call.plugin
    arguments, inputs = attachments.read(call, f"/tmp/{plugin.name}")
    return Program(
        argv=scripts.command(call.tool.program),
        cwd=os.path.join(plugin.path, call.tool.own_name),
        env=around.environment,
        stdin=msgspec.json.encode(arguments),
        timeout_s=around.settings.timeout_s or call.tool.timeout_s,
        max_stdout=around.settings.max_output_bytes or MAX_STDOUT,
        max_stderr=MAX_STDERR,
        folders=(around.environment["HOME"],),
        private_tmp=plugin.name,
        files=Files(call.tool.name, inputs, os.path.join(around.home.files(plugin), call.id)),
        visible=scripts.visible(plugin.path, around.home, around.environment["PATH"]),
        shares=scripts.notes(around.home, plugin),
    )


def result(call: Call, request: Program, answer: Finished, around: Surroundings) -> Result:
    """Read the output, or say how the process failed: an exit code is the tool's own way to say no."""
    code = answer.exit_code
    if answer.ending != "exited" or code is None or code < 0:
        raise one_shot.failure(call, request, answer, WORDS)
    if code == 0:
        return _output(answer)
    stderr = one_shot.decode(answer.stderr)
    raise CallError(
        _joined(answer) or f"the tool failed (exit {code}) without a message",
        one_shot.cure_for_missing(call, request, stderr) if code == one_shot.COMMAND_NOT_FOUND else "",
        exit_code=code,
        stderr=stderr,
    )


async def prepare(plugin: Plugin, around: Surroundings) -> str:
    """Run the init script, then resolve the dependencies of every tool that has some."""
    said = ""
    if plugin.init:
        around.tell(f"running {os.path.relpath(plugin.init, plugin.path)}")
        said = await _initialise(plugin, around)
    await scripts.forget_aside(around.home.cache(plugin), scripts.notes(around.home, plugin))
    for tool in plugin.tools:
        await _ensure_resolved(plugin, tool.program, around)
    return said


def _configure(call: Call) -> None:
    """Make sure that the configuration is complete, as far as the tool needs it, before anything runs.

    Also if there is nothing to configure: an unreadable file may be one that disabled the plugin.
    """
    plugin = call.plugin
    try:
        values = plugin_config.read(plugin)
        absent = plugin_config.missing(plugin, values, call.tool.own_name)
        if not absent:
            plugin_config.fill_in_defaults(plugin, values)
    except ConfigError as error:
        if isinstance(error.__cause__, OSError) and is_shortage(error.__cause__):  # nothing is wrong with the file
            raise Unavailable(error.message, error.hint) from error
        raise ConfigUnusable(error.message, error.hint) from error
    if absent:
        raise ConfigMissing(plugin.name, absent)


class ConfigUnusable(CallError):
    """`config.json` exists, but is invalid."""

    code = "config_missing"


async def _ensure_resolved(plugin: Plugin, script: str, around: Surroundings) -> None:
    """Make sure that a script's dependencies are there, outside a call's time limit."""
    notes = scripts.notes(around.home, plugin)
    if scripts.is_resolved(script, around.environment, notes):
        return
    if scripts.is_emptied(around.environment["UV_CACHE_DIR"], notes) and not plugin.explicit:
        # Built again, they could send away what the plugin left for them among the user's files.
        raise Unavailable(
            f"the dependencies of plugin '{plugin.name}' were removed from {around.environment['UV_CACHE_DIR']}",
            f"{hints.command('approve', plugin.name)} fetches them again",
        )
    async with scripts.turn(notes):
        if not scripts.is_resolved(script, around.environment, notes):
            await _resolve(plugin, around)


async def _resolve(plugin: Plugin, around: Surroundings) -> None:
    """Fetch the dependencies of all tools into an empty cache.

    The plugin could write there, and fetching has the network: it must find nothing of the plugin's, neither data nor
    code. So all are fetched at once, before the plugin runs again. Not so for a folder that the user named, because its
    author tries each change.
    """
    notes = scripts.notes(around.home, plugin)
    if not plugin.explicit:
        await scripts.forget_aside(around.home.cache(plugin), notes)
    fetched = []
    for tool in plugin.tools:
        if not scripts.is_resolved(tool.program, around.environment, notes):
            await _fetch(plugin, tool.program, around)
            scripts.remember(tool.program, around.environment["UV_CACHE_DIR"], notes)
            fetched.append(tool.program)
    for program in fetched[:-1]:  # those after it changed the environments once more
        scripts.remember(program, around.environment["UV_CACHE_DIR"], notes)


def _of_index(plugin: Plugin, around: Surroundings) -> str:
    """Return how a plugin is told of a user's package index, if the user has settings of `uv`, which it cannot read."""
    if "UV_CONFIG_FILE" not in around.environment:
        return ""
    grant = hints.command("grant", plugin.name, "env:UV_DEFAULT_INDEX")
    return f"; your settings of uv do not apply: if they name an index, export UV_DEFAULT_INDEX, then {grant}"


async def _fetch(plugin: Plugin, script: str, around: Surroundings) -> None:
    around.tell(f"resolving the dependencies of {os.path.relpath(script, plugin.path)}")
    finished = await around.run(scripts.resolution(script, around.environment))
    if finished.exit_code != 0:
        raise Unavailable(
            f"the dependencies of {os.path.relpath(script, plugin.path)} could not be resolved: "
            f"{one_shot.decode(finished.stderr).strip() or finished.reason or finished.ending}",
            "check the network and the script's `dependencies`, then try again" + _of_index(plugin, around),
        )


async def _initialise(plugin: Plugin, around: Surroundings) -> str:
    finished = await around.run(_init_program(plugin, around))
    if finished.ending == "not_started":
        cure = typed("chmod", "+x", plugin.init)
        raise InitFailed(f"Init script declared in manifest not found or not executable: {plugin.init}", cure)
    if finished.exit_code != 0:
        raise InitFailed(
            f"Init script failed: {_joined(finished) or finished.reason or finished.ending}",
            "fix it, then approve the plugin again",
        )
    return one_shot.decode(finished.stdout).strip()


def _init_program(plugin: Plugin, around: Surroundings) -> Program:
    return Program(
        argv=scripts.command(plugin.init),
        cwd=plugin.path,
        env=around.environment,
        stdin=b"",
        timeout_s=plugin.init_timeout_s,
        max_stdout=MAX_STDOUT,
        max_stderr=MAX_STDERR,
        purpose="init",
        folders=(around.environment["HOME"],),
        private_tmp=plugin.name,
        visible=scripts.visible(plugin.path, around.home, around.environment["PATH"]),
        shares=scripts.notes(around.home, plugin),
    )


class InitFailed(CallError):
    """The plugin's own setup failed."""

    code = "crashed"


def _output(finished: Finished) -> Result:
    text = one_shot.decode(finished.stdout)
    if json_values.has_too_many(finished.stdout):
        return Result(content=(Text(text), *finished.files))
    try:
        structured = msgspec.json.decode(finished.stdout)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Result(content=(Text(text), *finished.files))
    shown = structured if isinstance(structured, str) else text.strip()
    return Result(content=(Text(shown), *finished.files), structured=structured)


def _joined(finished: Finished) -> str:
    """Join stderr and stdout as Stavrobot does."""
    return "\n".join(one_shot.decode(part) for part in (finished.stderr, finished.stdout) if part).strip()
