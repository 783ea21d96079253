"""Frames to extensions about calls: events, and the results of calls that they request."""

from typing import Any

import msgspec

from anyplug.formats.shared.features import CallTool
from anyplug.model.types import Block, Call, Image, Result, Text

LARGEST_ANSWER = 256 << 10  # bytes of a result that an extension is told
MOST_BLOCKS = 128  # of it
STATUSES = {"denied": "blocked", "cancelled": "cancelled", "timed_out": "timed_out"}  # by the code of an error


def event(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the frame of an event; its type and its name are ours to say."""
    ours = {"type": "event", "event": name}
    return {**ours, **fields, **ours}


def about(call: Call) -> dict[str, Any]:
    """Return what events tell about a call."""
    told: dict[str, Any] = {"tool_id": call.id, "tool_name": call.tool.ruled_as, "tool_args": call.arguments}
    if call.origin:
        told["origin_extension"] = call.origin
    if call.conversation:
        told["session_id"] = call.conversation
    return told


def outcome(result: Result, *, has_run: bool) -> dict[str, Any]:
    """Return what events say of how a call ended: what its caller sees, as far as there is room for it."""
    shown = {**_shown(result.content), "is_error": result.is_error}
    return {"status": _status(result), "executed": has_run, "result": shown}


def answer(request: CallTool, name: str, content: tuple[Block, ...], *, is_error: bool) -> dict[str, Any]:
    """Return the answer to a call that an extension asked for; `name` is the tool's in events."""
    return {"type": "tool_result", "id": request.id, "name": name, **_shown(content), "is_error": is_error}


def _status(result: Result) -> str:
    """Return how a call ended, in zot's words."""
    if result.error is None:
        return "failed" if result.is_error else "completed"
    return STATUSES.get(result.error.code, "failed")


def _shown(content: tuple[Block, ...]) -> dict[str, Any]:
    """Return blocks as extensions know them, as many as there is room for."""
    given = [
        block if isinstance(block, Text | Image) else Text(msgspec.json.encode(block).decode()) for block in content
    ]
    kept = _within(given[:MOST_BLOCKS], LARGEST_ANSWER)
    blocks = [msgspec.to_builtins(block) for block in kept]
    return {"content": blocks, **({"truncated": True} if kept != given else {})}


def _within(blocks: list[Text | Image], room: int) -> list[Text | Image]:
    """Keep what there is room for: text is truncated, an image is left out."""
    kept: list[Text | Image] = []
    for block in blocks:
        if isinstance(block, Text):
            text = block.text.encode()[:room]
            room -= len(text)
            kept.append(Text(text.decode(errors="ignore")))
        elif len(block.data) <= room:
            room -= len(block.data)
            kept.append(block)
    return kept
