"""Messages between a host and long-running plugins besides calls: events, notices, panels, requests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.abc
import msgspec

from anyplug.catalog.snapshot import Snapshot
from anyplug.formats.workbench.peer import NodePlugin, ReloadWanted
from anyplug.formats.zot import frames
from anyplug.formats.zot.peer import Extension, Question
from anyplug.model import permissions
from anyplug.model.errors import StoreError
from anyplug.model.types import Block, Call, Image, Plugin, Result, Text
from anyplug.model.untrusted_text import for_models, for_people
from anyplug.peers.notices import Listener, Note, NotesCleared, Notice, PanelChanged, SlashSubmitted, Submitted
from anyplug.peers.panels import Panel, Panels
from anyplug.peers.peer_set import Peers
from anyplug.peers.subscribers import Audience

DEEPEST_CALL = 4  # tools that call tools, as in zot
LARGEST_ANSWER = 256 << 10  # bytes of a result that an extension receives
MOST_BLOCKS = 128  # of it
STATUSES = {"denied": "blocked", "cancelled": "cancelled", "timed_out": "timed_out"}  # by the code of an error
MOST_ASKED = 256  # running calls of one extension; beyond that it gets an error, and may try again later
RUN_AT_ONCE = 8  # of these, at each depth; the others wait, so that the tools they call stay available to others
LONGEST_LEVEL = 16  # characters of a note's level
CALL_TOOL = "call_tool"

CallTool = Callable[[Extension, str, dict[str, Any], Call | None, tuple[str, ...]], Awaitable[Result]]


class Live:
    """Delivers events to extensions, and extensions' messages to listeners."""

    def __init__(
        self,
        peers: Peers,
        tasks: anyio.abc.TaskGroup,
        cwd: str,
        *,
        call: CallTool,
        granted: Callable[[Plugin], tuple[str, ...]],
        snapshot: Callable[[], Snapshot],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        """For extensions, `call` runs a tool in `snapshot`, and `reload` reads all plugins again.

        `granted` returns what a plugin may do: events about others go only to plugins that were granted to see them.
        `cwd` is the project in events.
        """
        self._tasks = tasks
        self._cwd = cwd
        self._call = call
        self._granted = granted
        self._snapshot = snapshot
        self._reload = reload
        self._asked: dict[tuple[Extension, str], anyio.CancelScope] = {}  # calls that extensions requested
        self._turns: dict[tuple[Extension, int], anyio.Semaphore] = {}  # by extension, and by the depth of its calls
        self._listeners: list[Listener] = []
        self._hearers = Audience(peers, lambda peer, event: isinstance(peer, Extension) and event in peer.events)
        self.panels = Panels(self._panel_changed)
        peers.report_to(self._said)

    def emit(self, event: str, **fields: Any) -> None:
        """Send an event to all subscribers that may see it, in load order. Each receives events in order."""
        if hearers := self._who_hear(event):
            ours = {"type": "event", "event": event}
            given = {key: value for key, value in fields.items() if value is not None}
            frame = {**ours, "cwd": self._cwd, **given, **ours}
            for extension in hearers:
                extension.tell(frame)

    def tell_of_call(self, call: Call) -> None:
        """Announce that a call is about to run."""
        if self._who_hear("tool_call"):  # otherwise gathering the data would cost half a microsecond
            self.emit("tool_call", **_told(call))

    def tell_of_result(self, call: Call, result: Result, *, has_run: bool = True) -> None:
        """Announce a call's result: what its caller sees, as far as there is room for it."""
        if self._who_hear("tool_result"):
            shown = {**_shown(result.content), "is_error": result.is_error}
            self.emit("tool_result", **_told(call), status=_status(result), executed=has_run, result=shown)

    def _who_hear(self, event: str) -> list[Extension]:
        """Return the subscribers of an event that were granted to see what happens to others."""
        subscribed = self._hearers.of(event)
        return [one for one in subscribed if permissions.may(self._granted(one.plugin), permissions.OBSERVE)]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Register a callback for all notices; call the returned function to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def notice(self, notice: Notice) -> None:
        """Send a notice to all listeners."""
        for listener in list(self._listeners):
            try:
                listener(notice)
            except Exception as error:  # noqa: BLE001 - a stranger's code, and others listen, too
                said = {"message": "a listener of the host failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(said)

    def _panel_changed(self, panel: Panel) -> None:
        self.notice(PanelChanged(panel))

    def _said(self, peer: Any, frame: msgspec.Struct | None) -> None:
        """Handle an unsolicited frame of a peer; None if it has ended."""
        if isinstance(peer, Extension):
            self._extension_said(peer, frame)
        elif isinstance(frame, ReloadWanted):
            self._tasks.start_soon(self._reload_for, peer, frame)

    async def _reload_for(self, plugin: NodePlugin, request: ReloadWanted) -> None:
        try:
            await self._reload()
        except StoreError:
            pass  # everything stays as it is; calls report what is wrong with the database
        plugin.reloaded(request)

    def _extension_said(self, extension: Extension, frame: msgspec.Struct | None) -> None:
        name = extension.plugin.name
        match frame:
            case None:
                self._forget(extension)
            case frames.OpenPanel():
                self.panels.show(extension, frame.panel)
            case frames.PanelRender():
                self.panels.render(extension, frame)
            case frames.PanelClose():
                self.panels.closed(extension, frame.panel_id)
            case frames.CallTool():
                self._take_request(extension, frame)
            case frames.CallToolCancel():
                if scope := self._asked.get((extension, frame.id)):
                    scope.cancel()
            case _:
                if notice := _notice(name, frame):
                    self.notice(notice)

    def _forget(self, extension: Extension) -> None:
        """Close what an ended extension had open, and stop what it requested."""
        self.panels.gone(extension)
        for (owner, _), scope in self._asked.items():
            if owner is extension:
                scope.cancel()
        for depth in range(DEEPEST_CALL + 1):
            self._turns.pop((extension, depth), None)

    def _take_request(self, extension: Extension, frame: frames.CallTool) -> None:
        """Start a call that an extension requested, or answer why not.

        Decided at once: its cancellation, or the end of the call in which it asks, may follow immediately.
        """
        place = (extension, frame.id)
        if not frame.id or place in self._asked:
            return
        name, parent = self._snapshot().full_name(frame.name), extension.active.get(frame.parent_id)
        question = extension.question(name) if parent is None else None
        chain = parent.chain if parent is not None else question.chain if question is not None else ()
        under_way = sum(owner is extension for owner, _ in self._asked)
        refusal = _refusal(extension, frame, parent, chain, name, under_way)
        if refusal:
            extension.tell(_answer(frame, (Text(refusal),), is_error=True))
            return
        self._asked[place] = scope = anyio.CancelScope()
        if question is not None:
            question.calls += 1
        self._tasks.start_soon(self._call_for, extension, frame, parent, question, scope)

    async def _call_for(
        self,
        extension: Extension,
        frame: frames.CallTool,
        parent: Call | None,
        question: Question | None,
        scope: anyio.CancelScope,
    ) -> None:
        """Run a call that an extension requested, in one of its own calls or to decide about one, and answer."""
        chain = parent.chain if parent is not None else question.chain if question is not None else ()
        turn = self._turns.setdefault((extension, len(chain)), anyio.Semaphore(RUN_AT_ONCE))
        try:
            with scope:
                async with turn:
                    if not scope.cancel_called:
                        result = await self._call(extension, frame.name, frame.args, parent, chain)
                        extension.tell(_answer(frame, result.content, is_error=result.is_error))
        except Exception as error:  # noqa: BLE001 - a fault of ours with this request must not end the host
            said = {"message": f"a call for plugin '{extension.plugin.name}' failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)
            extension.tell(_answer(frame, (Text(f"anyplug itself failed: {error!r}"),), is_error=True))
        finally:
            del self._asked[extension, frame.id]
            if question is not None:
                question.calls -= 1


def _notice(plugin: str, frame: msgspec.Struct) -> Notice | None:
    """Convert a frame for listeners; an empty one is dropped."""
    match frame:
        case frames.Notify() if frame.message:
            return Note(plugin, for_people(frame.level, LONGEST_LEVEL), for_models(frame.message))
        case frames.ClearNotes():
            return NotesCleared(plugin)
        case frames.Submit() if frame.text.strip():
            return Submitted(plugin, frame.text.strip())
        case frames.SubmitSlash() if frame.text.startswith("/"):
            return SlashSubmitted(plugin, frame.text)
        case _:
            return None


def _refusal(
    extension: Extension,
    frame: frames.CallTool,
    parent: Call | None,
    chain: tuple[str, ...],
    name: str,
    under_way: int,
) -> str:
    """Return why an extension may not call the tool of this full name; empty if it may."""
    refusals = {
        "extension did not opt in to call_tool": CALL_TOOL not in extension.capabilities,
        "call_tool requires a name and JSON object args": not frame.name or not isinstance(frame.args, dict),
        "unknown or expired parent tool call": bool(frame.parent_id) and parent is None,
        "parent_id is required while an extension tool is active": not frame.parent_id and bool(extension.active),
        "tool call cycle detected": name in chain,
        "tool call depth limit reached": len(chain) >= DEEPEST_CALL,
        f"too many tool calls under way: at most {MOST_ASKED}": under_way >= MOST_ASKED,
    }
    return next((refusal for refusal, holds in refusals.items() if holds), "")


def _answer(frame: frames.CallTool, content: tuple[Block, ...], *, is_error: bool) -> dict[str, Any]:
    return {"type": "tool_result", "id": frame.id, "name": frame.name, **_shown(content), "is_error": is_error}


def _told(call: Call) -> dict[str, Any]:
    """Return what events tell about a call."""
    told = {"tool_id": call.id, "tool_name": call.tool.name, "tool_args": call.arguments}
    return {**told, "origin_extension": call.origin} if call.origin else told


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
