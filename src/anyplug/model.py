"""The nouns of the product: plugins, tools, calls, results. Frozen values, no behaviour, no I/O."""

from typing import Any, Literal

import msgspec

Level = Literal["error", "warning"]
State = Literal["new", "approved", "denied", "changed", "disabled", "broken", "shadowed"]


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


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that offers tools, as its manifest defines it. Says nothing about trust."""

    name: str
    format: str
    path: str  # the real path of the folder
    version: str = ""
    description: str = ""
    permissions: tuple[str, ...] = ()  # what it asks for
    tier: int = 2
    tools: tuple[Tool, ...] = ()
    commands: tuple[Command, ...] = ()
    config: tuple[ConfigKey, ...] = ()
    instructions: str = ""  # for the person, never for a model
    init: str = ""  # the absolute path of a script that sets the plugin up
    init_timeout_s: float = 0
    launch: Launch | None = None  # of a plugin that stays up and says by itself what it offers
    enabled: bool = True  # its own manifest may switch it off
    problems: tuple[Problem, ...] = ()
    found_at: str = ""  # where it was found, if a symlink led to `path`
    explicit: bool = False  # named by the person for this run, which counts as approval

    @property
    def stays_up(self) -> bool:
        """Whether it runs between calls."""
        return self.launch is not None

    @property
    def is_broken(self) -> bool:
        """Whether its manifest could not be understood."""
        return any(problem.level == "error" for problem in self.problems)


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
    """A resource that a server names by its address."""

    uri: str
    mime_type: str = ""
    text: str = ""


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
    chain: tuple[str, ...] = ()  # the tools that led to this call, and itself


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's answer to a call."""

    allowed: bool
    by: str
    reason: str = ""
    hint: str = ""
