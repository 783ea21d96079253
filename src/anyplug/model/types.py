"""The nouns of the product: plugins, tools, calls, results. Frozen values, no behaviour, no I/O."""

from typing import Any, Literal, Protocol

import msgspec

Level = Literal["error", "warning"]
State = Literal["new", "approved", "denied", "changed", "disabled", "broken", "shadowed"]


class Progress(Protocol):
    """Hears how far a call is: how much is done, of how much, and what is done now."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Hear of it."""
        ...


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a plugin, and what to do about it. Only errors keep a plugin from loading."""

    code: str
    message: str
    hint: str = ""
    level: Level = "error"


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be called."""

    name: str  # the full name, unique in a snapshot
    own_name: str  # what its plugin calls it
    plugin: str
    description: str
    input_schema: dict[str, Any]
    program: str  # the absolute path of what runs
    timeout_s: float
    is_async: bool = False  # runs as a job
    process: str = ""  # which of its plugin's processes has it, if those stay up
    title: str = ""  # what people read in place of the name, where the format has one
    output_schema: dict[str, Any] | None = None  # of what a result has in `structured`, where the plugin says it
    taken_name: str = ""  # its full name by the rules of its format, if another tool has that

    @property
    def ruled_as(self) -> str:
        """The name by which guards and policies know it: a rule for a name is for all who have it."""
        return self.taken_name or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names that lead to no other tool, whatever else is installed."""
        return self.name, f"{self.plugin}/{self.own_name}"


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a plugin wants from the person."""

    name: str
    description: str
    required: bool
    secret: bool
    default: Any = msgspec.UNSET


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command."""

    name: str  # without the slash
    plugin: str
    description: str = ""


class Launch(msgspec.Struct, frozen=True):
    """How the program of a plugin that stays up is started."""

    program: str  # a path, or a bare name for the PATH
    arguments: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an MCP server is reached: a program that is started, or an address."""

    name: str
    command: str = ""  # as it is written, references to variables included
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    cwd: str = ""  # empty: the plugin's folder, or the caller's project if the plugin is a file
    url: str = ""
    headers: dict[str, str] = {}
    transport: Literal["", "http", "sse"] = ""  # of an address; empty: what the server understands


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that offers tools, as its manifest defines it. Says nothing about trust."""

    name: str
    format: str
    path: str  # the real path of the folder; of a file, where `is_file`
    version: str = ""
    description: str = ""
    permissions: tuple[str, ...] = ()  # what it asks for
    tier: int = 2
    tools: tuple[Tool, ...] = ()
    held: tuple[Tool, ...] = ()  # tools that are new or altered since its approval, as they are now
    commands: tuple[Command, ...] = ()
    events: tuple[str, ...] = ()  # those that it wants to be told of, as far as is known
    intercepts: tuple[str, ...] = ()  # the events about which it decides, likewise
    config: tuple[ConfigKey, ...] = ()
    instructions: str = ""  # for the person, never for a model
    init: str = ""  # the absolute path of a script that sets the plugin up
    init_timeout_s: float = 0
    launch: Launch | None = None  # how its program is started, if its manifest says so
    processes: tuple[str, ...] = ()  # the names of those that stay up and say by themselves what they offer
    endpoints: tuple[Endpoint, ...] = ()  # the MCP servers that it names, one for each process
    is_file: bool = False  # it is a part of a file that belongs to another program, and has no folder
    enabled: bool = True  # its own manifest may switch it off
    problems: tuple[Problem, ...] = ()
    found_at: str = ""  # where it was found, if a symlink led to `path`
    explicit: bool = False  # named by the person for this run, which counts as approval

    @property
    def stays_up(self) -> bool:
        """Whether it runs between calls."""
        return bool(self.processes)

    @property
    def is_broken(self) -> bool:
        """Whether its manifest could not be understood."""
        return any(problem.level == "error" for problem in self.problems)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin that stays up registered."""

    tools: tuple[Tool, ...] = ()
    commands: tuple[Command, ...] = ()
    events: tuple[str, ...] = ()
    intercepts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_whole: bool = True  # it said so, or has had the time for it; else more may come
    fault: str = ""  # why it is not up just now; never stored

    @property
    def must_run(self) -> bool:
        """Whether it has to be up to see what happens."""
        return bool(self.events or self.intercepts)


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class Image(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """An image, base64."""

    mime_type: str
    data: str


class Audio(msgspec.Struct, frozen=True, tag_field="type", tag="audio"):
    """Sound, base64."""

    mime_type: str
    data: str


class Resource(msgspec.Struct, frozen=True, tag_field="type", tag="resource"):
    """A resource that a server names by its address: with its text, with its data in base64, or as a mere link."""

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


class Failure(msgspec.Struct, frozen=True):
    """Why a call did not do what was asked."""

    code: str
    message: str
    hint: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gave. Every call ends as one, whatever the plugin did."""

    content: tuple[Block, ...] = ()
    structured: Any = None
    metadata: dict[str, Any] = {}
    is_error: bool = False
    error: Failure | None = None
    duration_ms: float = 0.0
    tool: str = ""
    plugin: str = ""
    format: str = ""

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a tool, on its way to the plugin."""

    id: str
    tool: Tool
    plugin: Plugin
    arguments: dict[str, Any]
    attachment: str  # who asks
    origin: str = ""  # the plugin that asks, if it is one
    chain: tuple[str, ...] = ()  # the tools that led to this call, and itself
    progress: Progress | None = None  # who wants to hear how far it is
    shows_panels: bool = True  # who asks can show a person what plugins draw


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's answer to a call."""

    allowed: bool
    by: str
    reason: str = ""
    hint: str = ""
    warning: str = ""  # what the person should know although it may run


class Off(msgspec.Struct, frozen=True):
    """What a plugin's own files switch off."""

    cure: str  # how to switch it on
    tools: frozenset[str] = frozenset()  # own names of the tools that are on all the same; none: the plugin is off


class Note(msgspec.Struct, frozen=True):
    """A note for the person. The level is info, success, warn or error; anything else is shown as info."""

    plugin: str
    level: str
    message: str


class NotesCleared(msgspec.Struct, frozen=True):
    """A plugin takes its notes away."""

    plugin: str


class Submitted(msgspec.Struct, frozen=True):
    """A plugin wants this text sent to the agent as if the person had typed it."""

    plugin: str
    text: str


class SlashSubmitted(msgspec.Struct, frozen=True):
    """A plugin wants this slash command run as if the person had typed it."""

    plugin: str
    text: str
