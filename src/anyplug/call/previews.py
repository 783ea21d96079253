"""Preview a call: everything up to the gates, for people who try a tool without running it. Pure.

Guards and policies are not asked, because a guard is a plugin that acts on what it hears. Secrets are masked.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from anyplug.formats.shared.contract import AskPeer
from anyplug.model.types import Call, Failure
from anyplug.runtime.processes.program import Program

LONGEST_STDIN: Final = 64 << 10  # characters that are shown
NOT_RUN: Final = "Nothing ran. Guards and policies were not asked."


class PreviewedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugin would be sent. Of the environment only names are shown."""

    kind: Literal["program", "peer", "host"]
    command: tuple[str, ...] = ()
    cwd: str = ""
    stdin: str = ""
    environment: tuple[str, ...] = ()
    timeout_s: float | None = None
    frame: dict[str, Any] | None = None
    note: str = NOT_RUN


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would do, and what would stop it."""

    tool: str
    plugin: str = ""
    format: str = ""
    arguments: dict[str, Any] = {}
    violations: tuple[str, ...] = ()
    would_ask: bool = False
    allowed: bool = False
    why_not: Failure | None = None
    request: PreviewedRequest | None = None


def shown(request: object, call: Call, conceal: Callable[[str], str]) -> PreviewedRequest:
    """Return what a format would do for a call, as people see it."""
    match request:
        case Program():
            return PreviewedRequest(
                kind="program",
                command=tuple(map(conceal, request.argv)),
                cwd=request.cwd,
                stdin=conceal(request.stdin[:LONGEST_STDIN].decode(errors="replace")),
                environment=tuple(sorted(request.env)),
                timeout_s=request.timeout_s or None,
            )
        case AskPeer():
            frame = {"tool": call.tool.own_name, "arguments": call.arguments}
            return PreviewedRequest(kind="peer", timeout_s=request.timeout_s, frame=frame)
        case _:
            return PreviewedRequest(kind="host", note=f"anyplug does this itself. {NOT_RUN}")
