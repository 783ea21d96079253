"""zot's protocol, version 1: one JSON object on each line, `type` says which.

    extension                               host
    hello ------------------------------->
          <------------------------------- hello_ack          at once, and nothing before it
    register_tool, register_command,
    subscribe, ready -------------------->                    in any order, before or after the ack or `ready`
          <------------------------------- tool_call          tool_result answers it; tool_cancel takes it back
          <------------------------------- command_invoked    command_response answers it
          <------------------------------- event              no answer
          <------------------------------- event_intercept    event_intercept_response answers it
    notify, clear_notes, submit,
    submit_slash ------------------------>                    at any time
    open_panel, panel_render, panel_close
          <------------------------------- panel_key, panel_close
    call_tool, call_tool_cancel --------->                    tool_result answers it
          <------------------------------- shutdown           shutdown_ack, then the extension leaves

Keys may come in any order and any case, null means absent, unknown fields and types are ignored. A frame that
has a wrong type in a field that we know is dropped as malformed.
"""

from typing import Any

import msgspec

from anyplug.formats.shared import features
from anyplug.model.types import Note, NotesCleared, SlashSubmitted, Submitted
from anyplug.model.untrusted_text import for_models, for_people

PROTOCOL_VERSION = 1
LONGEST_KIND = 80  # characters of a frame's type, for messages; it may have millions
LONGEST_LEVEL = 16  # characters of a note's level
SPOKEN_VERSION = "0.0.7"  # the zot release in the authors' guide, whose protocol this is


class Hello(msgspec.Struct, frozen=True):
    """The first frame."""

    name: str
    version: str = ""
    capabilities: list[str] = []


class RegisterCommand(msgspec.Struct, frozen=True):
    """A slash command."""

    name: str
    description: str = ""


class RegisterTool(msgspec.Struct, frozen=True):
    """A tool."""

    name: str
    description: str = ""
    schema: Any = None
    interactive: bool = False  # it may wait for a person; if panels can be shown to one, it has no time limit
    output_schema: Any = None  # of `structured_content`
    namespace: str = ""
    exposure: str = ""
    deferred: bool = False  # the older way to say it
    input_schema: Any = None  # MCP's name for it, which zot does not use


class Subscribe(msgspec.Struct, frozen=True):
    """The events that it wants to receive, and those that it wants to decide about."""

    events: list[str] = []
    intercept: list[str] = []


class Ready(msgspec.Struct, frozen=True):
    """Everything is registered."""


class ToolResult(msgspec.Struct, frozen=True):
    """The answer to a tool_call."""

    id: str
    content: list[dict[str, Any]] = []
    is_error: bool = False
    structured_content: Any = None
    activate_tools: list[str] = []


class CommandResponse(features.CommandAnswer, frozen=True, kw_only=True):
    """The answer to a command_invoked."""

    id: str


class InterceptResponse(features.GuardAnswer, frozen=True, kw_only=True):
    """The answer to an event_intercept."""

    id: str


class Notify(msgspec.Struct, frozen=True):
    """A note for the person."""

    message: str
    level: str = "info"


class ClearNotes(msgspec.Struct, frozen=True):
    """Remove its notes."""


class Submit(msgspec.Struct, frozen=True):
    """A text to send to the agent as if the person had typed it."""

    text: str


class SubmitSlash(msgspec.Struct, frozen=True):
    """A slash command to run as if the person had typed it."""

    text: str


class ShutdownAck(msgspec.Struct, frozen=True):
    """It is leaving."""


INCOMING: dict[str, type[msgspec.Struct]] = {
    "hello": Hello,
    "register_command": RegisterCommand,
    "register_tool": RegisterTool,
    "subscribe": Subscribe,
    "ready": Ready,
    "tool_result": ToolResult,
    "command_response": CommandResponse,
    "event_intercept_response": InterceptResponse,
    "notify": Notify,
    "clear_notes": ClearNotes,
    "submit": Submit,
    "submit_slash": SubmitSlash,
    "open_panel": features.OpenPanel,
    "panel_render": features.PanelRender,
    "panel_close": features.PanelClose,
    "call_tool": features.CallTool,
    "call_tool_cancel": features.CallToolCancel,
    "shutdown_ack": ShutdownAck,
}

# Frames that people see as they come, so the extension's secrets are masked in them; the host handles tool results.
SHOWN = (
    CommandResponse, InterceptResponse, Notify, Submit, SubmitSlash,
    features.OpenPanel, features.PanelRender, features.PanelClose,
)  # fmt: skip
PANELS = ("panel", "open_panel")  # objects inside a frame
NOT_TEXT = frozenset({"id", "modified_args"})


def panel_of(frame: msgspec.Struct) -> str:
    """Return the id of the panel that a frame is about; empty if it is about none."""
    if isinstance(frame, features.PanelRender | features.PanelClose):
        return frame.panel_id
    if isinstance(frame, features.OpenPanel):
        return frame.panel.id
    return frame.open_panel.id if isinstance(frame, CommandResponse) and frame.open_panel is not None else ""


class _PlainResult(ToolResult, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_result"):
    """A result in its usual form."""


class _PlainRuling(
    InterceptResponse, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="event_intercept_response"
):
    """A guard's answer in its usual form."""


# Decodes the two most frequent kinds of answers in one step; raises DecodeError for anything else, including unusual
# keys or nulls, which `read` handles.
read_plain = msgspec.json.Decoder(_PlainResult | _PlainRuling).decode


class NotAFrame(Exception):
    """An object that is not a frame of the protocol; the text tells why."""


def kind_of(raw: dict[str, Any] | msgspec.Struct) -> str:
    """Return the frame's type; empty if it has none."""
    if isinstance(raw, msgspec.Struct):
        return str(raw.__struct_config__.tag)
    kind = raw.get("type")
    if kind is None:
        kind = next((value for key, value in raw.items() if key.lower() == "type"), "")
    return kind if isinstance(kind, str) else ""


def read(kind: str, raw: dict[str, Any] | msgspec.Struct) -> msgspec.Struct:
    """Decode one frame of a type, unless it was decoded already; raises NotAFrame."""
    if isinstance(raw, msgspec.Struct):
        return raw
    shape = INCOMING.get(kind)
    if shape is None:
        raise NotAFrame(f'unknown frame type "{kind[:LONGEST_KIND]}"')
    given = _folded(raw)
    for name in PANELS:
        if isinstance(panel := given.get(name), dict):
            given[name] = _folded(panel)
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise NotAFrame(f"bad {kind} frame: {error}") from error
    except RecursionError as error:
        raise NotAFrame(f"bad {kind} frame: it is nested too deeply") from error


def _folded(raw: dict[str, Any]) -> dict[str, Any]:
    """Normalise an object's keys as zot does: in any case, and null means absent."""
    return {key.lower(): value for key, value in raw.items() if value is not None}


def name_of(frame: msgspec.Struct) -> str:
    """Return the type of a decoded frame."""
    return next(kind for kind, shape in INCOMING.items() if isinstance(frame, shape))


def said(plugin: str, frame: msgspec.Struct) -> msgspec.Struct | None:
    """Return what an extension says on its own account, in the words of all formats; None if it says nothing."""
    match frame:
        case Notify():
            level = for_people(frame.level, LONGEST_LEVEL)
            return Note(plugin, level, for_models(frame.message)) if frame.message else None
        case ClearNotes():
            return NotesCleared(plugin)
        case Submit():
            text = frame.text.strip()
            return Submitted(plugin, text) if text else None
        case SubmitSlash():
            return SlashSubmitted(plugin, frame.text) if frame.text.startswith("/") else None
        case _:
            return frame
