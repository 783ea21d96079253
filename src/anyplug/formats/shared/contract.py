"""The contract of a format, on one screen. A format is a module with these names.

`defaults` has functions for where nothing special is needed. A format with long-running plugins has a class for one run
of such a plugin, a `Peer`.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from anyplug.formats.shared.new_plugins import NewPlugin
from anyplug.home.settings import Arguments, Home, PluginSettings
from anyplug.model.types import Call, Off, Offer, Plugin, Result, Tool
from anyplug.runtime.processes.program import Program, Run, Spawn

if TYPE_CHECKING:  # need an event loop, which reading plugins does not
    from anyio.abc import TaskGroup

    from anyplug.runtime.session.session import PeerGone, Session
    from anyplug.secrets.redaction import Redaction


class Folder(msgspec.Struct, frozen=True):
    """A folder that may contain a plugin."""

    path: str  # the real path
    found_at: str  # the path under which it was found
    explicit: bool = False  # the user named it
    assumed: bool = False  # the user takes it for a plugin, although its files do not say so

    def is_named(self, name: str) -> bool:
        """Return whether the folder, or the link to it, has this name."""
        return name in {self.found_at.rpartition("/")[2], self.path.rpartition("/")[2]}


class Surroundings(msgspec.Struct, frozen=True):
    """What a format may use of the host."""

    home: Home
    settings: PluginSettings
    environment: dict[str, str]  # for its programs, as the format promises
    conceal: Callable[
        [str], str
    ]  # masks the plugin's secrets; needed before a text is truncated, otherwise the host does it
    run: Run  # for setting a plugin up; what a call needs, the host runs
    tell: Callable[[str], None]  # progress, for a person
    project: str = ""  # the folder that callers work in


class AskPeer(msgspec.Struct, frozen=True):
    """A call that the plugin's long-running process answers."""

    timeout_s: float | None  # None: as long as it takes


class Reload(msgspec.Struct, frozen=True):
    """Read all plugins again, renew the one named, and say what there is now."""

    plugin: str


class AskJob(msgspec.Struct, frozen=True):
    """Return the result of a job; if it is still running after that time, say so."""

    id: str
    wait_s: float
    cancel: bool


class Inspect(msgspec.Struct, frozen=True):
    """Describe the plugin of that name, or list all plugins."""

    plugin: str = ""


class AskInstall(msgspec.Struct, frozen=True):
    """Ask the person to install a plugin."""

    location: str
    ref: str
    subdir: str


class ReadResult(msgspec.Struct, frozen=True):
    """Read a range of a kept result, in characters."""

    id: str
    offset: int
    length: int


# What `request` makes of a call. The answer to a `Program` is a `Finished`, to `AskPeer` what `Peer.call_tool` returns,
# to `Reload` a text, to `AskJob` the result of its tool, to `Inspect` a text and data, to `AskInstall` a command to
# type, and to `ReadResult` the part, its end and the length of the whole.
Request = Program | AskPeer | Reload | AskJob | Inspect | AskInstall | ReadResult


class Format(Protocol):
    """A plugin system."""

    NAME: str
    TITLE: str  # its name for people
    MANIFEST: str  # the file that makes a folder one of its plugins
    PROJECT_ROOTS: tuple[str, ...]  # the folders of a project that contain its plugins, relative to the project
    ARGUMENTS: Arguments  # what a violation of the schema does, unless the user set something else
    EVERY_FILE_COUNTS: bool  # whether the digest covers all files, or only what can run
    WRITES_BESIDE_ITSELF: bool  # whether its plugins may write into their own folder, except for their code
    WRITES_ASIDE: bool  # otherwise: whether such writes go elsewhere even without a grant to write files
    RUNS_IN_PROJECT: bool  # whether its programs run in the caller's project, or in the plugin's folder
    INHERITS_ENVIRONMENT: bool  # whether it promises the user's environment, which a person may then grant
    DESCRIBES_ITSELF: bool  # whether a plugin's description is its author's, and worth showing with each tool
    TOOL_PREFIX: str  # reserved for its plugins' tools; empty if it has no such prefix
    NAMES_PLUGINS: bool  # whether a tool's full name contains that of its plugin, as in `PLUGIN.TOOL`
    HOST_TOOLS: frozenset[str]  # names of its own host's tools, which no plugin's tool may have
    HOST_COMMANDS: frozenset[str]  # the same for slash commands
    # Names of what is imported only when needed, as MODULE:NAME; empty if there is none.
    PEER: str  # creates one run of a long-running plugin: (Plugin, Terms, PeerListener) -> Peer
    LINT: str  # finds likely mistakes for `anyplug check`: (Plugin) -> list[Problem]
    NEW: NewPlugin | None  # the templates of `anyplug new`
    CONTENT_IS_BLOCKS: bool  # whether chains see content as a list of blocks even if it is a single text

    def load(self, folder: Folder) -> Plugin | None:
        """Read a folder; None if it is not one of its plugins after all.

        Never raises for its content: whatever is wrong is in the plugin's problems.
        """
        ...

    def violations(self, tool: Tool, arguments: dict[str, Any]) -> list[str]:
        """Return how the arguments violate the tool's parameters."""
        ...

    def switched_off(self, plugin: Plugin) -> Off | None:
        """Return what the plugin's own files switch off, if anything."""
        ...

    def environment(self, plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
        """Return the environment of the plugin's programs. `users` has no secrets except those `granted` by name."""
        ...

    def data(self, plugin: Plugin, home: Home) -> str:
        """Return a plugin's data folder."""
        ...

    def readable(self, plugin: Plugin) -> tuple[str, ...]:
        """Return what its programs read outside the plugin's folder, besides what all programs read."""
        ...

    def named_files(self, plugin: Plugin) -> tuple[str, ...]:
        """Return the files of its folder that count for the digest whatever their type, relative to it and sorted."""
        ...

    def programs(self, plugin: Plugin, variables: Mapping[str, str] | None, project: str) -> list[str]:
        """Return the long-running programs: paths, and names in the PATH.

        References are resolved with `variables` and `project`; without variables, what has references is left out.
        """
        ...

    def user_roots(self) -> tuple[str, ...]:
        """Return the folders outside projects in which its users keep plugins."""
        ...

    def private_places(self, project: str) -> tuple[str, ...]:
        """Return the folders with only its plugins and their data, which other plugins do not see."""
        ...

    async def ready(self, call: Call, around: Surroundings) -> None:
        """Make sure that the plugin is still set up for a call. Raises CallError."""
        ...

    def request(self, call: Call, around: Surroundings) -> Request:
        """Turn a call into a request, which the host carries out. Raises CallError."""
        ...

    def result(self, call: Call, request: Any, answer: Any, around: Surroundings) -> Result:
        """Turn the answer to a request into the result of the call. Raises CallError."""
        ...

    async def prepare(self, plugin: Plugin, around: Surroundings) -> str:
        """Set an approved plugin up (scripts, dependencies) and return what that printed. Raises CallError."""
        ...


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What long-running plugins are told about the agent that they work for."""

    provider: str = ""
    model: str = ""
    cwd: str = ""  # the caller's project
    session_id: str = ""  # the agent's conversation; a host without one makes up its own


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a long-running plugin is started with."""

    process: str  # which of its processes
    home: Home
    settings: PluginSettings
    environment: dict[str, str]
    granted: tuple[str, ...] = ()  # also limits what the host does on the plugin's behalf
    greeting: Greeting
    spawn: Spawn
    tasks: "TaskGroup"  # the host's own; a failure in it ends the host
    log: Callable[[bytes], None]
    secrecy: "Redaction"  # masks the plugin's secrets in its messages


class Peer(Protocol):
    """One run of a long-running plugin, from its start to its end."""

    RESTARTS: bool  # whether it is restarted when it ends by itself, or only when it is next needed

    plugin: Plugin

    @property
    def active(self) -> Mapping[str, Call]:
        """Its running calls."""
        ...

    @property
    def session(self) -> "Session | None":
        """Its pipes, if it has a process of ours."""
        ...

    @property
    def gone(self) -> "PeerGone | None":
        """How it ended, once it has."""
        ...

    @property
    def offer(self) -> Offer:
        """What it has registered so far."""
        ...

    @property
    def has_said_all(self) -> bool:
        """Whether that is most likely all."""
        ...

    @property
    def events(self) -> AbstractSet[str]:
        """What it wants to hear of, as a `Subscriber` (see `features`); empty for most."""
        ...

    @property
    def intercepts(self) -> AbstractSet[str]:
        """What it wants to decide about, as a `Guard`; empty for most."""
        ...

    async def start(self) -> None:
        """Start it and wait until it is ready; if it raises Unavailable, with a hint, nothing is left running."""
        ...

    async def call_tool(self, call: Call, timeout_s: float | None) -> Any:
        """Call one of its tools, in as many exchanges as that takes. Raises CallError."""
        ...

    async def stop(self) -> None:
        """End it in order. Must be shielded by the caller."""
        ...

    def unavailable(self, when: str, gone: "PeerGone") -> Exception:
        """Return the error for a peer that has ended."""
        ...


class PeerListener(Protocol):
    """Is told what a peer does by itself."""

    def registered(self, peer: Any) -> None:
        """Handle a registration or subscription, perhaps long after its start."""
        ...

    def said(self, peer: Any, frame: msgspec.Struct) -> None:
        """Handle a note, a text, a panel or a request of its own."""
        ...

    def ended(self, peer: Any, gone: "PeerGone") -> None:
        """Handle its end; called once."""
        ...
