"""Messages between a host and long-running plugins besides calls: events, notices, panels, requests."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.abc
import msgspec

from anyplug.catalog.snapshot import Snapshot
from anyplug.formats.shared.features import (
    CallTool,
    CallToolCancel,
    OpenPanel,
    PanelClose,
    PanelOwner,
    PanelRender,
    Question,
    Reloader,
    ReloadWanted,
    Subscriber,
    ToolCaller,
)
from anyplug.model import permissions
from anyplug.model.errors import StoreError
from anyplug.model.types import (
    Call,
    LogMessage,
    Note,
    NotesCleared,
    Plugin,
    ResourceUpdated,
    Result,
    SlashSubmitted,
    Submitted,
    Text,
)
from anyplug.peers.call_rates import NESTED, OWN, CallRates
from anyplug.peers.notices import Notice, Notices, PanelChanged, unheard
from anyplug.peers.panels import Panel, Panels
from anyplug.peers.peer_set import Peers
from anyplug.peers.subscribers import Subscribers

DEEPEST_CALL = 4  # tools that call tools, as in zot
MOST_ASKED = 256  # running calls of one extension; beyond that it gets an error, and may try again later
MS = 1000  # in a second
RELOAD_S = 10.0  # how long a call waits for reloads that plugins asked for before it
RUN_AT_ONCE = 8  # of these, at each depth; the others wait, so that the tools they call stay available to others

RunCall = Callable[[Plugin, str, dict[str, Any], Call | None, tuple[str, ...]], Awaitable[Result]]


class EventDelivery:
    """Delivers events to extensions, and extensions' messages to listeners."""

    def __init__(
        self,
        peers: Peers,
        tasks: anyio.abc.TaskGroup,
        *,
        call: RunCall,
        granted: Callable[[Plugin], tuple[str, ...]],
        snapshot: Callable[[], Snapshot],
        reload: Callable[[], Awaitable[None]],
        notices: Notices,
        log: Callable[[Plugin, str, str], None],
    ) -> None:
        """For extensions, `call` runs a tool in `snapshot`, and `reload` reads all plugins again.

        What they say goes to `notices`; what nobody hears, to the plugin's own log.
        `granted` returns what a plugin may do: events about others go only to plugins that were granted to see them.
        """
        self._tasks = tasks
        self._call = call
        self._granted = granted
        self._snapshot = snapshot
        self._reload = reload
        self._asked: dict[tuple[ToolCaller, str], anyio.CancelScope] = {}  # calls that extensions asked for
        self._turns: dict[tuple[ToolCaller, int], anyio.Semaphore] = {}  # by extension, and by how deep its calls are
        self._rates = CallRates(log)
        self._reloads: list[anyio.Event] = []  # one for each plugin that asked for a reload which has not ended
        self._notices = notices
        self._log = log
        self._hearers = Subscribers(peers, lambda peer, event: event in peer.events)
        self.panels = Panels(self._panel_changed)
        peers.report_to(self._said)

    def emit(self, event: str, **fields: Any) -> None:
        """Send an event to all subscribers that may see it, in load order. Each receives events in order."""
        given = {key: value for key, value in fields.items() if value is not None}
        for subscriber in self._who_hear(event):
            subscriber.hear(event, given)

    def tell_of_call(self, call: Call) -> None:
        """Announce that a call is about to run."""
        for subscriber in self._who_hear("tool_call"):
            subscriber.hear_call(call)

    def tell_of_result(self, call: Call, result: Result, *, has_run: bool = True) -> None:
        """Report the result of a call."""
        for subscriber in self._who_hear("tool_result"):
            subscriber.hear_result(call, result, has_run=has_run)

    def _who_hear(self, event: str) -> list[Subscriber]:
        """Return the subscribers of an event that were granted to see what happens to others."""
        subscribed = self._hearers.of(event)
        if not subscribed:  # as for most calls
            return []
        return [one for one in subscribed if permissions.may(self._granted(one.plugin), permissions.OBSERVE)]

    def _panel_changed(self, panel: Panel, owner: PanelOwner, *, is_new: bool) -> None:
        self._notify(owner.plugin, PanelChanged(panel), is_missed=is_new)

    def _notify(self, plugin: Plugin, notice: Notice, *, is_missed: bool = True) -> None:
        heading, text = unheard(notice) if is_missed else ("", "")
        if not self._notices.send(notice, is_missed=is_missed) and heading:
            self._log(plugin, heading, text)

    def _said(self, peer: Any, said: msgspec.Struct | None) -> None:
        """Handle an unsolicited frame of a peer; None if it has ended."""
        match said:
            case None:
                self._forget(peer)
            case OpenPanel():
                self.panels.show(peer, said.panel, is_asked_for=False)
            case PanelRender():
                self.panels.render(peer, said)
            case PanelClose():
                self.panels.closed(peer, said.panel_id)
            case CallTool():
                self._take_request(peer, said)
            case CallToolCancel():
                if scope := self._asked.get((peer, said.id)):
                    scope.cancel()
            case ReloadWanted():
                done = anyio.Event()
                self._reloads.append(done)
                self._tasks.start_soon(self._reload_for, peer, said, done)
            case Note() | NotesCleared() | Submitted() | SlashSubmitted() | LogMessage() | ResourceUpdated():
                self._notify(peer.plugin, said, is_missed=not isinstance(said, LogMessage | ResourceUpdated))

    async def _reload_for(self, plugin: Reloader, request: ReloadWanted, done: anyio.Event) -> None:
        try:
            await self._reload()
        except StoreError:
            pass  # everything stays as it is; calls report what is wrong with the database
        finally:
            self._reloads.remove(done)
            done.set()
        plugin.reloaded(request)

    @property
    def is_reloading(self) -> bool:
        """Whether a reload that a plugin asked for has not ended."""
        return bool(self._reloads)

    async def reloaded(self) -> None:
        """Wait for the reloads that plugins have asked for, but not forever."""
        with anyio.move_on_after(RELOAD_S):
            for done in list(self._reloads):
                await done.wait()

    def _forget(self, peer: Any) -> None:
        """Close what a peer that has ended had open, and stop what it asked for."""
        self.panels.gone(peer)
        for (owner, _), scope in self._asked.items():
            if owner is peer:
                scope.cancel()
        for depth in range(DEEPEST_CALL + 1):
            self._turns.pop((peer, depth), None)

    def _take_request(self, caller: ToolCaller, request: CallTool) -> None:
        """Start a call that an extension requested, or answer why not.

        Decided at once: its cancellation, or the end of the call in which it asks, may follow immediately.
        """
        place = (caller, request.id)
        if not request.id or place in self._asked:
            return
        name, parent = self._snapshot().full_name(request.name), caller.active.get(request.parent_id)
        question = caller.question(name) if parent is None else None
        chain = parent.chain if parent is not None else question.chain if question is not None else ()
        under_way = sum(owner is caller for owner, _ in self._asked)
        refusal = _refusal(caller, request, parent, chain, name, under_way)
        if refusal:
            caller.answer(request, (Text(refusal),), is_error=True)
            return
        rate = OWN if parent is None and question is None else NESTED
        if wait_s := self._rates.take(caller.plugin, rate):
            wait_ms = math.ceil(wait_s * MS)
            said = (Text(f"overloaded: {rate}; try again in {wait_ms} ms"),)
            caller.answer(request, said, is_error=True, retry_after_ms=wait_ms)
            return
        self._asked[place] = scope = anyio.CancelScope()
        if question is not None:
            question.calls += 1
        self._tasks.start_soon(self._call_for, caller, request, parent, question, scope)

    async def _call_for(
        self,
        caller: ToolCaller,
        request: CallTool,
        parent: Call | None,
        question: Question | None,
        scope: anyio.CancelScope,
    ) -> None:
        """Run a call that an extension requested, in one of its own calls or to decide about one, and answer."""
        chain = parent.chain if parent is not None else question.chain if question is not None else ()
        turn = self._turns.setdefault((caller, len(chain)), anyio.Semaphore(RUN_AT_ONCE))
        try:
            with scope:
                async with turn:
                    if not scope.cancel_called:
                        result = await self._call(caller.plugin, request.name, request.args, parent, chain)
                        name = self._snapshot().name_in_events(result.tool)
                        caller.answer(request, result.content, is_error=result.is_error, name=name)
        except Exception as error:  # noqa: BLE001 - a fault of ours with this request must not end the host
            said = {"message": f"a call for plugin '{caller.plugin.name}' failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)
            caller.answer(request, (Text(f"anyplug itself failed: {error!r}"),), is_error=True)
        finally:
            del self._asked[caller, request.id]
            if question is not None:
                question.calls -= 1


def _refusal(
    caller: ToolCaller,
    request: CallTool,
    parent: Call | None,
    chain: tuple[str, ...],
    name: str,
    under_way: int,
) -> str:
    """Return why an extension may not call the tool of this full name; empty if it may."""
    refusals = {
        "extension did not opt in to call_tool": not caller.may_call_tools,
        "call_tool requires a name and JSON object args": not request.name or not isinstance(request.args, dict),
        "unknown or expired parent tool call": bool(request.parent_id) and parent is None,
        "parent_id is required while an extension tool is active": not request.parent_id and bool(caller.active),
        "tool call cycle detected": name in chain,
        "tool call depth limit reached": len(chain) >= DEEPEST_CALL,
        f"too many tool calls under way: at most {MOST_ASKED}": under_way >= MOST_ASKED,
    }
    return next((refusal for refusal, holds in refusals.items() if holds), "")
