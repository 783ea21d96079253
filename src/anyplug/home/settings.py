"""Paths and settings: the home folder, the roots, `settings.toml`.

`settings.toml` is in the home folder:

    namespaces = true            # give plugins their own namespaces, where the kernel can
    confinement = "on"           # on | off: whether plugins run in the sandbox
    formats = ["acme"]           # formats of other packages; their code runs outside the sandbox

    [mcp]
    cursor = "~/.cursor/mcp.json"    # another program's MCP servers, as a plugin of this name

    [http]
    origins = ["https://agents.example.org"]    # pages that may use `serve --http` from a browser
    calls = 64                   # calls at once; see `HttpSettings`

    [policy]
    fail_mode = "closed"         # closed | open: what happens if policies cannot decide about a call
    program = ""                 # a `cupcake` that decides instead of the built-in engine
    timeout_s = 5                # for one decision of that program
    self_protection = true       # refuse agents that change policies, or anyplug's files
    signals = true               # run the signals that policies require
    record_days = 7              # keep events for `policy replay`; 0 keeps none

    [calls]
    at_once = 128                # running calls of one-shot plugins; see `CallSettings`

    [results]
    model_chars = 50000          # a model gets that much of a result, and reads the rest by range

    [telemetry]
    enabled = true               # send spans and metrics by OpenTelemetry; needs `anyplug[otel]`
    endpoint = "http://127.0.0.1:4318"   # of an OTLP/HTTP collector; empty: as the OTEL_* variables say

    [warm]
    enabled = true               # start interpreters of plugins in use ahead of their calls
    budget_mb = 256              # memory for all of them; 0 starts none

    [audit]
    second_head = "/mnt/other/audit-head"   # a second place for the sealed head of the audit chain
    keep_days = 90               # remove older records; 0 keeps all
    keep_mb = 500                # remove the oldest records beyond this size; 0 keeps all
    agent_calls = true           # also record what policies simply allow agents' own tools

    [chat]
    model = "anthropic:claude-sonnet-5-5"   # of `chat` and `ask`, as `--model` takes it
    base_url = "http://localhost:11434/v1"  # an OpenAI-compatible server
    keep = 200                   # stored conversations

    [fleet]
    nats = ["tls://nats.example.org:4222"]  # servers of one cluster; see `FleetSettings`
    credentials = "~/gateway.creds"         # from `anyplug fleet config`
    join = true                  # offer the fleet's tools in every host of this home

    [plugins.NAME]
    arguments = "strict"         # strict | warn | off: what a violation of the schema does
    timeout_s = 60               # for each call of this plugin's tools
    max_output_bytes = 1048576
    max_output_chars = 500000    # text of a Workbench plugin
    calls = 4                    # at once; others wait for their turn
    hello_s = 10                 # time limit for an extension's hello
    guard = "required"           # optional | required: refuse calls that it guards while it is down
    on_silence = "closed"        # open | closed: what happens if it does not answer in time

    [plugins.NAME.limits]
    memory = 8589934592          # bytes; see `Limits`

    [profiles.NAME]
    plugins = ["weather"]        # what an agent with this profile sees
    tools = ["weather.*"]
    surface = "all"              # all | search | auto: every tool, or three to find and call the others
"""

import functools
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.location import home_path, make_private, named_home, state_path, usual_path
from anyplug.model.errors import CURE_FOR_SHORTAGE, ConfigError, is_shortage

if TYPE_CHECKING:
    from anyplug.model.types import Plugin

Arguments = Literal["strict", "warn", "off"]
Count = Annotated[int, msgspec.Meta(gt=0)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(gt=0)]
Surface = Literal["all", "search", "auto"]


# Repeated here because importing `policy` takes 40 ms; a test checks that they are the same.
POLICIES = ".cupcake"
GATE = "anyplug-policy.js"


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plugin's resource limits, where they differ from the defaults."""

    memory: int | None = None  # bytes
    processes: int | None = None
    open_files: int | None = None
    cpu_s: int | None = None
    file_size: int | None = None  # bytes
    disk: int | None = None  # bytes
    tmp: int | None = None  # bytes


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's settings for one plugin. Empty means the format's default."""

    arguments: Arguments | None = None
    timeout_s: float | None = None
    max_output_bytes: int | None = None
    max_output_chars: int | None = None
    hello_s: float | None = None
    calls: Count | None = None  # at once
    guard: Literal["optional", "required"] = "optional"
    on_silence: Literal["open", "closed"] = "open"
    limits: Limits = Limits()


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access and rate limits over HTTP."""

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    access_log: str = ""
    max_request_bytes: Count = 4_194_304  # enough for arguments with a file in them; the same as MCP's own SDK
    requests_per_s: Amount = 200.0  # per client; no agent works that fast, but a runaway loop does
    calls: Count = 128  # each may be a process
    calls_per_client: Count = 32  # so that it takes four runaway clients before others wait
    streams: Count = 128  # each is a connection, and an agent has one or two
    sessions: Count = 256  # per profile; each is a task and some buffers
    session_idle_s: Amount = 1800.0  # people pause; a client that returns later must start a new session
    receive_s: Amount = 30.0  # for a whole request; a slower client may be doing it on purpose
    grace_s: Amount = 10.0  # for running calls when the server ends; service managers wait longer


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent connected with this profile sees. What is not set means everything, and an empty list nothing."""

    plugins: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None  # shell-style patterns
    surface: Surface = "auto"


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How policies are enforced."""

    fail_mode: Literal["closed", "open"] = "closed"
    program: str = ""
    timeout_s: float = 5.0
    self_protection: bool = True
    signals: bool = True
    record_days: int = 7


class CallSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many calls run and wait. Those of long-running plugins start no process, so eight times as many run."""

    at_once: Count = 128  # each is a process with its pipes; half of the usual limit of open files
    per_plugin: Count = 64
    waiting: NotNegative = 2048  # one caller can fill half of it
    wait_s: Amount = 120.0  # longer than agents wait for an answer


class ResultSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a result a model gets, and how long the whole is kept."""

    model_chars: Count = 50_000  # half of what clients refuse, and a tenth of a large context
    keep_mb: NotNegative = 200
    keep_days: Amount = 7.0  # as output files


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spans and metrics for an OpenTelemetry collector."""

    enabled: bool = False
    endpoint: str = ""
    interval_s: Amount = 60.0  # between metrics, as OpenTelemetry's own default


class WarmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Interpreters that are started ahead of calls."""

    enabled: bool = True
    budget_mb: NotNegative = 256  # some 25 of Python, or 6 of Node


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the audit records and how long it keeps it. For an empty `second_head` see `Home.second_head`."""

    second_head: str = ""
    keep_days: NotNegative = 0
    keep_mb: NotNegative = 0
    agent_calls: bool = False


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent of `chat`, `ask` and the page."""

    model: str = ""
    base_url: str = ""
    keep: Count = 200  # conversations; a person looks for one of the last weeks


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a fleet, and as whom."""

    nats: tuple[str, ...] = ()
    credentials: str = ""  # a file
    ca: str = ""  # a file with the certificate authority of the servers, if it is not a public one
    prefix: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]{1,16}$")] = "ap"  # of all subjects, if fleets share servers
    join: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`settings.toml`."""

    namespaces: bool = True
    confinement: Literal["on", "off"] = "on"
    formats: tuple[str, ...] = ()
    mcp: dict[str, str] = {}
    catalogues: dict[str, str] = {}
    http: HttpSettings = HttpSettings()
    policy: PolicySettings = PolicySettings()
    calls: CallSettings = CallSettings()
    results: ResultSettings = ResultSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    warm: WarmSettings = WarmSettings()
    audit: AuditSettings = AuditSettings()
    chat: ChatSettings = ChatSettings()
    fleet: FleetSettings = FleetSettings()
    plugins: dict[str, PluginSettings] = {}
    profiles: dict[str, Profile] = {}

    @property
    def is_confining(self) -> bool:
        """Whether plugins run in the sandbox; the environment variable overrides the setting."""
        return os.environ.get("ANYPLUG_CONFINEMENT", self.confinement) != "off"

    def of(self, plugin: str) -> PluginSettings:
        """Return one plugin's settings."""
        return self.plugins.get(plugin, _DEFAULTS)

    def at_start(self, plugin: str) -> tuple[object, ...]:
        """Return the settings that a plugin's processes keep from their start: a change needs a restart."""
        own = self.of(plugin)
        kept = (own.hello_s, own.max_output_bytes, own.max_output_chars)
        return (*self.of_room(plugin), *kept)

    def of_room(self, plugin: str) -> tuple[object, ...]:
        """Return the settings that a plugin's sandbox is built from."""
        return (self.confinement, self.namespaces, self.of(plugin).limits)


_DEFAULTS = PluginSettings()


class Home:
    """The folder for all files of the host. Nothing is created before it is needed."""

    def __init__(self, path: str) -> None:
        self.named = named_home(path)  # as people write it
        self.path = home_path(path)
        # Links that a person put in place of these folders are followed once, as those on the way to the home are.
        self._data, self._cache = (os.path.realpath(os.path.join(self.path, name)) for name in ("data", "cache"))
        self.plugins = os.path.join(self.path, "plugins")
        self.store = os.path.join(self.path, "anyplug.db")
        self.settings = os.path.join(self.path, "settings.toml")
        self.secrets = os.path.join(self.path, "secrets.json")
        self.http_token = os.path.join(self.path, "http-token")
        self.bin = os.path.join(self.path, "bin")
        self.backups = os.path.join(self.path, "backups")
        self.connections = os.path.join(self.path, "connections")
        self.left = os.path.join(self.path, "left")
        self.requests = os.path.join(self.path, "requests")
        self.known = os.path.join(self.path, "known")
        self._owners: dict[str, tuple[int, int, str]] = {}  # cached owners, each with the stamp of its claim

    def data(self, plugin: "Plugin") -> str:
        """Return a plugin's data folder."""
        return os.path.join(self._data, self.own_name(plugin))

    def own_name(self, plugin: "Plugin") -> str:
        """Return the name of a plugin's folders here: its own, or with a suffix if another plugin has that name.

        Two plugins may have the same name, and neither may get what belongs to the other.
        """
        owner = self.owner(plugin.name)
        return plugin.name if owner in {"", plugin.path} else _suffixed(plugin)

    def owner(self, name: str) -> str:
        """Return the path of the plugin that owns a name's folders; empty if there is none.

        Unclaimed folders belong to the installed plugin of that name.
        """
        try:
            found = os.stat(self._claim(name))
            known = self._owners.get(name)
            if known is None or known[:2] != (found.st_ino, found.st_mtime_ns):
                path = os.fsdecode(untrusted_files.read_linked(self._claim(name)))
                known = self._owners[name] = (found.st_ino, found.st_mtime_ns, path)
        except OSError:
            installed = os.path.join(self.plugins, name)
            return os.path.realpath(installed) if os.path.isdir(installed) else ""
        return known[2]

    def claim(self, plugin: "Plugin", approved: Sequence[str] = ()) -> None:
        """Assign a plugin's folders to it permanently, unless another plugin of that name owns them; raises OSError.

        `approved` are other approved plugins of that name: they own data from before claims existed.
        """
        if os.path.exists(self._claim(plugin.name)) or not plugin.path:
            return
        owner = self.owner(plugin.name) or plugin.path
        if approved and plugin.explicit and owner == plugin.path and os.path.exists(self.data(plugin)):
            owner = approved[0]
        claim = self._claim(plugin.name)
        new = f"{claim}.{os.urandom(6).hex()}"
        make_private(os.path.dirname(claim))
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.fsencode(owner))
        try:
            os.link(new, claim)
        except FileExistsError:
            pass  # another process was faster and owns them
        finally:
            os.unlink(new)

    def disclaim(self, plugin: "Plugin") -> None:
        """Release a plugin's deleted folders to the next plugin of that name; raises OSError."""
        if self.owner(plugin.name) == plugin.path:
            with suppress(FileNotFoundError):
                os.unlink(self._claim(plugin.name))

    def _claim(self, name: str) -> str:
        return os.path.join(self.path, "owners", name)

    def beside(self, plugin: "Plugin") -> str:
        """Return the folder that receives a plugin's writes to its own folder, which stays as approved."""
        return os.path.join(self.data(plugin), "beside")

    def cache(self, plugin: "Plugin") -> str:
        """Return the folder for what can be recreated, unique to this plugin whatever others are called.

        It contains code, and a plugin of the same name elsewhere could plant some for this one.
        """
        folder = plugin.name
        if plugin.found_at != os.path.join(self.plugins, plugin.name):
            folder = _suffixed(plugin)
        return os.path.join(self._cache, folder)

    def kept(self, plugin: "Plugin") -> str:
        """Return the folder for data saved from a removal or an update; no plugin can reach it."""
        return os.path.join(self.path, "kept", self.own_name(plugin))

    def files(self, plugin: "Plugin") -> str:
        """Return the folder for files that a plugin's tools returned."""
        return os.path.join(self.path, "files", self.own_name(plugin))

    def log(self, plugin: "Plugin") -> str:
        """Return the path of a plugin's log."""
        return self.log_named(self.own_name(plugin))

    def log_named(self, name: str) -> str:
        """Return the path of the log of a plugin that may no longer exist."""
        return os.path.join(self.path, "logs", f"{name}.log")

    def second_head(self, settings: Settings) -> str:
        """Return the second place for the sealed audit head, which must survive the loss of the home folder.

        The default home has one. Any other home, which may be temporary, has one only if it is set.
        """
        if settings.audit.second_head:
            return os.path.abspath(os.path.expanduser(settings.audit.second_head))
        is_usual = self.path == home_path(usual_path())
        return os.path.join(os.path.expanduser(state_path()), "audit-head") if is_usual else ""

    def settings_stamp(self) -> tuple[int, int, int] | None:
        """Return a value that changes when `settings.toml` does; None if there is no such file."""
        try:
            found = os.stat(self.settings)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read_settings(self) -> Settings:
        """Read `settings.toml`; raises ConfigError if it is invalid."""
        try:
            raw = untrusted_files.read_linked(self.settings)
        except FileNotFoundError:
            return Settings()
        except NotADirectoryError as error:
            hint = "pass another folder with --home, or in $ANYPLUG_HOME"
            raise ConfigError(f"the home folder {self.path} is not a folder, but a file is there", hint) from error
        except OSError as error:
            cure = CURE_FOR_SHORTAGE if is_shortage(error) else "check its permissions"
            if isinstance(error, untrusted_files.Changed | untrusted_files.TooMuch):
                cure = "move it away, or replace it with a file of settings"
            raise ConfigError(f"cannot read {self.settings}: {error.strerror}", cure) from error
        import tomllib  # takes 27 ms to import, and most people have no such file

        try:
            values = tomllib.loads(raw.decode())
        except ValueError as error:
            raise ConfigError(f"{self.settings}: {error}", "fix it there; strings need quotes") from error
        try:
            return msgspec.convert(values, Settings)
        except msgspec.ValidationError as error:
            from anyplug.home import settings_mistakes  # only needed after a mistake

            slip = settings_mistakes.find(values, Settings) or settings_mistakes.Mistake(
                str(error), settings_mistakes.CURE
            )
            raise ConfigError(f"{self.settings}: {slip.message}", slip.hint) from error


def _suffixed(plugin: "Plugin") -> str:
    """Return a name that is unique to the plugin at this path."""
    from anyplug.model.hashes import sha256  # already imported wherever plugins are checked

    return f"{plugin.name}@{sha256(os.fsencode(plugin.path)).hexdigest()[:12]}"


def find_home(given: str | os.PathLike[str] | None = None) -> Home:
    """Return the home folder: as given, else $ANYPLUG_HOME, else the platform's data folder."""
    return Home(os.fspath(given) if given else "")


def usual_home() -> Home:
    """Return the default home folder: the platform's data folder."""
    return Home(usual_path())


def binding_places(project: str) -> list[str]:
    """List the places of policies for a project, from its folder upwards and global, and of the agents' hooks."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return _binding_places(project, given if os.path.isabs(given) else os.path.expanduser("~/.config"))


@functools.lru_cache(maxsize=64)  # each event that policies decide about asks for them
def _binding_places(project: str, settings: str) -> list[str]:
    folders = []
    while project and project not in folders:
        folders.append(project)
        project = os.path.dirname(project)
    gates = [*(os.path.join(folder, ".opencode") for folder in folders), os.path.join(settings, "opencode")]
    return [
        *(os.path.join(folder, POLICIES) for folder in folders),
        os.path.join(settings, "cupcake"),
        *(os.path.join(gate, name, GATE) for gate in gates for name in ("plugin", "plugins")),
    ]
