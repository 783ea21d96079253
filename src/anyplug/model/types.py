"""The nouns of the product: plugins, tools, calls, results. Frozen values, no behaviour, no I/O."""

from typing import Any, Final, Literal, Protocol

import msgspec

Level = Literal["error", "warning"]
State = Literal["new", "approved", "denied", "changed", "disabled", "broken", "shadowed"]


class Progress(Protocol):
    """Receives a call's progress: how much is done, of how much, and what is being done."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Receive one report."""
        ...


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a plugin, and what to do about it. Only errors keep a plugin from loading."""

    code: str
    message: str
    hint: str = ""
    level: Level = "error"


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A callable tool."""

    name: str  # the full name, unique in a snapshot
    own_name: str  # its name in its plugin
    plugin: str
    description: str
    input_schema: dict[str, Any]
    program: str  # the absolute path of the program that runs
    timeout_s: float
    is_async: bool = False  # runs as a job
    process: str = ""  # which of its plugin's long-running processes has it
    title: str = ""  # shown to people instead of the name, if the format has titles
    output_schema: dict[str, Any] | None = None  # schema of `structured` in results, if the plugin declares it
    deferred: bool = False  # agents are not shown it until a result activates it
    namespace: str = ""  # what it is grouped under, for those who search
    taken_name: str = ""  # its full name by the rules of its format, if another tool already has that
    is_repeatable: bool = False  # it declares that it is read-only or idempotent, so it may run again after `lost`

    @property
    def ruled_as(self) -> str:
        """The name that guards and policies use: a rule for a name applies to every tool with that name."""
        return self.taken_name or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can only mean this tool, whatever else is installed."""
        return self.name, f"{self.plugin}/{self.own_name}"


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """A value that the user configures for a plugin."""

    name: str
    description: str
    required: bool
    secret: bool
    default: Any = msgspec.UNSET
    kind: str = ""  # the JSON type of its values, if the manifest says so
    tools: tuple[str, ...] = ()  # own names of the tools that need it; none: all of them


class Parameter(msgspec.Struct, frozen=True):
    """A named argument of a slash command."""

    name: str
    description: str = ""
    required: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command."""

    name: str  # without the slash
    plugin: str
    description: str = ""
    title: str = ""
    parameters: tuple[Parameter, ...] = ()  # if it has any by name; otherwise it takes what follows it
    process: str = ""  # which of its plugin's long-running processes has it
    own_name: str = ""  # its name in its plugin, if that is another; such a command takes arguments by name


class ServedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that a plugin offers to be read, or a template of many."""

    uri: str  # as agents know it
    own_uri: str  # as its plugin knows it
    plugin: str
    process: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None  # in bytes
    is_template: bool = False  # the URI has `{variables}`


class Launch(msgspec.Struct, frozen=True):
    """How to start the program of a long-running plugin."""

    program: str  # a path, or a bare name to look up in PATH
    arguments: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an MCP server: a program to start, or an address."""

    name: str
    command: str = ""  # as written, including references to variables
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    cwd: str = ""  # empty: the plugin's folder, or the caller's project if the plugin is a file
    url: str = ""
    headers: dict[str, str] = {}
    transport: Literal["", "http", "sse"] = ""  # for an address; empty: whatever the server understands


IN_FLEET: Final = "fleet:"  # begins the path of a fleet's plugin, which is not a folder here


class Plugin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A folder that offers tools, as its manifest defines it. Independent of trust."""

    name: str
    format: str
    path: str  # the real path of the folder, or of the file if `is_file`
    version: str = ""
    description: str = ""
    permissions: tuple[str, ...] = ()  # what it asks for
    tier: int = 2
    tools: tuple[Tool, ...] = ()
    unloaded: tuple[Tool, ...] = ()  # tools of a broken plugin, which only its author is told about
    held: tuple[Tool, ...] = ()  # tools that are new or changed since its approval, as they are now
    commands: tuple[Command, ...] = ()
    resources: tuple[ServedResource, ...] = ()
    services: tuple[Tool, ...] = ()  # tools that no list shows: they read resources, or complete arguments
    events: tuple[str, ...] = ()  # events that it subscribes to, as far as known
    intercepts: tuple[str, ...] = ()  # events that it decides about, as far as known
    config: tuple[ConfigKey, ...] = ()
    keeps_config: bool = False  # its format keeps values and switches in `config.json`
    instructions: str = ""  # for the person, never for a model
    init: str = ""  # the absolute path of a setup script
    init_timeout_s: float = 0.0
    launch: Launch | None = None  # how to start its program, if the manifest says so
    processes: tuple[str, ...] = ()  # names of its long-running processes, which report what they offer
    endpoints: tuple[Endpoint, ...] = ()  # its MCP servers, one for each process
    is_file: bool = False  # it is part of a file that belongs to another program, and has no folder
    enabled: bool = True  # its own manifest may disable it
    problems: tuple[Problem, ...] = ()
    found_at: str = ""  # where it was found, if a symlink led to `path`
    mentions: frozenset[str] = frozenset()  # names in the manifest of a broken plugin, which may be those of its tools
    explicit: bool = False  # named by the user for this run, which counts as approval
    in_fleet: bool = False  # workers of a fleet run it, and `path` is not a folder here
    workers: tuple[str, ...] = ()  # the names of those that can run it now
    is_ours: bool = False  # comes with anyplug, so that it needs no approval; a person may deny it

    @property
    def lineage(self) -> str:
        """What its jobs and results belong to: its path, without the version that a fleet's plugin has there."""
        return self.path.rpartition("@")[0] if self.in_fleet else self.path

    @property
    def stays_up(self) -> bool:
        """Whether it runs between calls."""
        return bool(self.processes)

    @property
    def is_broken(self) -> bool:
        """Whether its manifest is invalid."""
        return any(problem.level == "error" for problem in self.problems)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a long-running plugin registered."""

    tools: tuple[Tool, ...] = ()
    commands: tuple[Command, ...] = ()
    resources: tuple[ServedResource, ...] = ()
    services: tuple[Tool, ...] = ()
    events: tuple[str, ...] = ()
    intercepts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_whole: bool = True  # it said so, or had enough time; otherwise more may follow
    fault: str = ""  # why it is not running at the moment; never stored

    @property
    def must_run(self) -> bool:
        """Whether it must be running to receive events."""
        return bool(self.events or self.intercepts)


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A text block."""

    text: str


class Image(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """An image, in base64."""

    mime_type: str
    data: str


class Audio(msgspec.Struct, frozen=True, tag_field="type", tag="audio"):
    """Sound, in base64."""

    mime_type: str
    data: str


class Resource(msgspec.Struct, frozen=True, tag_field="type", tag="resource"):
    """A resource that a server identifies by URI: with its text, with its data in base64, or only as a link."""

    uri: str
    mime_type: str = ""
    text: str = ""
    data: str = ""
    name: str = ""
    description: str = ""


class File(msgspec.Struct, frozen=True, tag_field="type", tag="file"):
    """A file that the tool wrote, kept on this machine."""

    name: str
    mime_type: str
    path: str


Block = Text | Image | Audio | Resource | File


class PromptMessage(msgspec.Struct, frozen=True):
    """One message of a prompt."""

    role: str  # user or assistant
    content: Block


class Failure(msgspec.Struct, frozen=True):
    """Why a call failed."""

    code: str
    message: str
    hint: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a call. Every call ends with one, whatever the plugin did."""

    content: tuple[Block, ...] = ()
    structured: Any = None
    metadata: dict[str, Any] = {}
    is_error: bool = False
    error: Failure | None = None
    duration_ms: float = 0.0
    tool: str = ""
    plugin: str = ""
    format: str = ""
    activates: tuple[str, ...] = ()  # deferred tools to show to the caller from now on
    remarks: tuple[str, ...] = ()  # what the host has to say about it; also among the warnings in the metadata

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        if len(self.content) == 1 and isinstance(block := self.content[0], Text):  # the usual case
            return block.text
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


class Elicitation(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin asks of a person while one of its tools runs: a form, or a page to open."""

    plugin: str
    tool: str  # that was called
    message: str
    schema: dict[str, Any] | None = None  # of the form's fields
    url: str = ""  # of the page instead


class Elicited(msgspec.Struct, frozen=True):
    """The person's answer: accept, decline or cancel; with the fields of an accepted form."""

    action: str
    content: dict[str, Any] = {}


class Sampling(msgspec.Struct, frozen=True):
    """What a plugin asks of a model while one of its tools runs: the parameters of MCP's `sampling/createMessage`."""

    plugin: str
    tool: str  # that was called
    params: dict[str, Any]


class Asks(Protocol):
    """Puts what a plugin asks to the caller of its tool."""

    async def elicit(self, asked: Elicitation) -> Elicited:
        """Ask the person."""
        ...

    async def sample(self, asked: Sampling) -> dict[str, Any]:
        """Ask a model; raises CallError."""
        ...


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool, on its way to the plugin."""

    id: str
    tool: Tool
    plugin: Plugin
    arguments: dict[str, Any]
    attachment: str  # the caller
    origin: str = ""  # the plugin that calls, if the caller is one
    chain: tuple[str, ...] = ()  # the tools that led to this call, including this one
    progress: Progress | None = None  # receives progress reports
    asks: Asks | None = None  # for what the plugin asks while it runs
    shows_panels: bool = True  # the caller can show a person what plugins draw
    conversation: str = ""  # the id of the conversation in which it happens, if it does
    trace: dict[str, str] = {}  # its W3C trace context, if it is traced


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's answer to a call."""

    allowed: bool
    by: str
    reason: str = ""
    hint: str = ""
    warning: str = ""  # shown to the person although the call may run


class Off(msgspec.Struct, frozen=True):
    """What a plugin's own files switch off."""

    cure: str  # how to switch it on
    tools: frozenset[str] = frozenset()  # own names of the tools that are on all the same; none: the plugin is off
    is_secret: bool = False  # agents see neither what is off nor how to switch it on

    def cure_for(self, tool: str) -> str:
        """Return how to switch one tool on."""
        return self.cure.replace("TOOL", tool)


class Note(msgspec.Struct, frozen=True):
    """A note for the person. The level is info, success, warn or error; anything else is shown as info."""

    plugin: str
    level: str
    message: str


class LogMessage(msgspec.Struct, frozen=True):
    """A log message that a plugin sends to agents. The level is one of MCP's."""

    plugin: str
    level: str
    logger: str
    data: Any


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource that somebody watches has changed."""

    plugin: str
    process: str
    uri: str  # as its plugin knows it


class NotesCleared(msgspec.Struct, frozen=True):
    """A plugin removes its notes."""

    plugin: str


class Submitted(msgspec.Struct, frozen=True):
    """A plugin wants this text sent to the agent as if the person had typed it."""

    plugin: str
    text: str


class SlashSubmitted(msgspec.Struct, frozen=True):
    """A plugin wants this slash command run as if the person had typed it."""

    plugin: str
    text: str
