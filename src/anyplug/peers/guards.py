"""Interception: extensions that decide about an event before it happens, one after another, in load order.

The first block wins; rewrites chain. What happens if a guard is silent, gone or answers nonsense is a setting: `open`
lets the event pass, as zot does, and records it; `closed` refuses it. While a required guard is down, what it guards is
refused, or everything if that is unknown. A guard that is starting is waited for.

Deciding about others is a permission. A guard without it is not asked; if it is required, it counts as down. A guard
that may refuse but was not granted to rewrite, and rewrites anyway, has refused: what it wanted to change never passes
unchanged.
"""

import functools
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, cast

import anyio
import msgspec

from anyplug.formats.shared.contract import Greeting
from anyplug.formats.shared.features import BadAnswer, Guard, GuardAnswer
from anyplug.home.settings import Settings
from anyplug.model import json_values, permissions
from anyplug.model.schema import violations
from anyplug.model.types import Call, Plugin
from anyplug.peers.peer_set import Peers
from anyplug.peers.slot import Slot
from anyplug.runtime.session.session import NotSent, PeerGone

Rewrite = Callable[[GuardAnswer, Any], Any]  # raises BadAnswer

LARGEST_PROMPT = 1 << 20  # bytes of a rewritten system prompt
HEAR_S = 5.0  # longer than any caller waits
HEAR_STEP_S = 0.05
ASKED_AT_ONCE = 2  # concurrent questions to one guard about calls of one plugin
LONGEST_REASON = 2_000  # characters of a guard's reason


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """The guards' decision about an event."""

    value: Any  # the arguments, text or prompt, as the last of them left it
    blocked_by: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()  # who rewrote, noted or missed what, for the record
    notes_by: tuple[str, ...] = ()  # the guard of each note
    passed_over: tuple[str, ...] = ()  # the guards that should have been asked but could not be
    is_unheard: bool = False  # the blocking guard did not decide itself: it could not be asked, and is required
    cure: str = ""  # for a missing grant: the command to type


# By event: which of these permissions lets a plugin be asked, and which one it needs to change something.
ASKED_WITH = {
    "tool_call": ((permissions.GUARD,), permissions.REWRITE_CALLS),
    "turn_start": ((permissions.GUARD,), ""),
    "assistant_message": ((permissions.GUARD, permissions.REWRITE_TEXT), permissions.REWRITE_TEXT),
    "before_agent_start": ((permissions.REWRITE_TEXT,), permissions.REWRITE_TEXT),
}


def may_decide(granted: tuple[str, ...], event: str) -> bool:
    """Return whether a plugin with these grants is asked about an event."""
    return any(permissions.may(granted, permission) for permission in ASKED_WITH[event][0])


class Guards:
    """The interceptors of a host."""

    def __init__(
        self,
        peers: Peers,
        settings: Settings,
        why_absent: Callable[[str], str],
        greeting: Greeting,
        granted: Callable[[Plugin], tuple[str, ...]],
    ) -> None:
        """Ask nobody yet.

        `why_absent` returns why nothing of that name runs; `greeting` describes the agent; `granted` returns what a
        guard may do.
        """
        self._peers = peers
        self._granted = granted
        self._greeting = greeting
        self._why_absent = why_absent
        self._known: dict[str, bool] = {}  # by event, whether any guard is concerned
        self._turns: dict[
            tuple[str, str], anyio.Semaphore
        ] = {}  # by guard, and by the plugin whose calls it decides about
        self._roll = peers.roll
        self.follow(settings)

    def follow(self, settings: Settings) -> None:
        """Use new settings from now on: which guards are required, and what silence means."""
        self._settings = settings
        self._required = {name for name, plugin in settings.plugins.items() if plugin.guard == "required"}
        closed = {name for name, plugin in settings.plugins.items() if plugin.on_silence == "closed"}
        self._relied_on = self._required | closed  # what they guard is refused while they cannot be asked

    def may_object(self, event: str) -> bool:
        """Return whether any guard may object to an event, so that all must be asked."""
        if self._relied_on:
            return True
        if self._roll != self._peers.roll:
            self._known.clear()
            self._roll = self._peers.roll
        known = self._known.get(event)
        if known is None:
            known = self._known[event] = any(_concerns(place, event) for place in self._peers.places)
        return known

    async def tool_call(self, call: Call, asker: str = "") -> Ruling:
        """Ask about a call. A rewrite must be an object that adds no violation of the tool's schema.

        `asker` is the path of the plugin that made it, if any: until it is ready, it cannot answer itself.
        """
        schema = call.tool.input_schema

        def rewritten(answer: GuardAnswer, now: Any) -> Any:
            given = answer.modified_args
            if given is None or json_values.are_same(given, now):
                return now
            if not isinstance(given, dict):
                raise BadAnswer("modified_args is not an object")
            if json_values.is_too_deep(given):
                raise BadAnswer(f"modified_args is unusable: {json_values.TOO_DEEP}")
            had = violations(schema, now)  # the caller's own, and no reason to reject the rewrite
            if broken := [violation for violation in violations(schema, given) if violation not in had]:
                raise BadAnswer(f"modified_args violate the tool's schema: {broken[0]}")
            return given

        fields = {"tool_id": call.id, "tool_name": call.tool.ruled_as}
        if call.origin:
            fields["origin_extension"] = call.origin
        return await self._consult(
            "tool_call",
            fields,
            "tool_args",
            call.arguments,
            rewritten,
            chain=call.chain,
            asker=self._unready(asker),
            caller=asker,
        )

    async def turn_start(self, step: int) -> Ruling:
        """Ask whether a turn may begin."""
        return await self._consult("turn_start", {}, "step", step, lambda _, now: now)

    async def assistant_message(self, text: str) -> Ruling:
        """Ask about a message to the person; an empty replacement is ignored."""
        return await self._consult(
            "assistant_message", {}, "text", text, lambda answer, now: answer.replace_text or now
        )

    async def before_agent_start(
        self, system_prompt: str, *, session_id: str = "", agent_run_id: str = "", greeting: Greeting | None = None
    ) -> Ruling:
        """Ask about an agent's system prompt; nobody can block here.

        The conversation, the start of the agent and its greeting are passed on if known; the greeting may differ from
        the host's, if the agent has another model by now.
        """

        def rewritten(answer: GuardAnswer, now: Any) -> Any:
            given = answer.system_prompt
            if answer.block:
                raise BadAnswer("startup hooks cannot block")
            if given is not None and len(given.encode()) > LARGEST_PROMPT:
                raise BadAnswer("system_prompt exceeds 1 MiB")
            return now if given is None else given

        whose = greeting or self._greeting
        told = {
            "session_id": session_id or whose.session_id or self._greeting.session_id,
            "agent_run_id": agent_run_id,
            "cwd": whose.cwd or self._greeting.cwd or os.getcwd(),
            "provider": whose.provider,
            "model": whose.model,
        }
        fields = {key: value for key, value in told.items() if value}
        return await self._consult(
            "before_agent_start", fields, "system_prompt", system_prompt, rewritten, may_block=False
        )

    async def _consult(
        self,
        event: str,
        fields: dict[str, Any],
        key_of_value: str,
        value: Any,
        rewritten: Rewrite,
        *,
        may_block: bool = True,
        chain: tuple[str, ...] = (),
        asker: str = "",
        caller: str = "",
    ) -> Ruling:
        if may_block and (absent := self._absent_one(value)):
            return _ruling(value, [absent])
        words: list[_Word] = []
        patience_s = HEAR_S
        for key in self._peers.keys:
            began = anyio.current_time()
            place = await self._hear_out(key, event, asker, began + patience_s)
            patience_s -= anyio.current_time() - began
            if place is None or place.plugin.path == asker:
                continue
            peer = place.on_duty
            if not self._may_decide(place, event):
                if (word := self._ungranted(place, event, value, may_block=may_block)) is None:
                    continue
            elif peer is not None and event in peer.intercepts:
                guard, asked = cast("Guard", peer), {"event": event, **fields, key_of_value: value}
                async with self._turn(guard.plugin, caller):
                    word = await self._ask(guard, asked, chain, value, rewritten, may_block=may_block)
            elif missed := self._missed(place, event):
                name = place.plugin.name
                is_relied_on = may_block and name in self._relied_on
                word = _unheard(name, value, missed) if is_relied_on else _missing(name, value, missed)
            else:
                continue
            words.append(word)
            value = word.value
            if word.block:
                return _ruling(value, words)
        # A guard may have gone while others were asked.
        if may_block and (absent := self._absent_one(value)):
            words.append(absent)
        return _ruling(value, words)

    def _turn(self, guard: Plugin, caller: str) -> AbstractAsyncContextManager[Any]:
        """Ask a guard about only a few calls of one plugin at a time.

        Otherwise a plugin could make many large calls, so that the guard's time to answer runs out for other calls.
        """
        if not caller or caller == guard.path:
            return nullcontext()
        return self._turns.setdefault((guard.path, caller), anyio.Semaphore(ASKED_AT_ONCE))

    async def _hear_out(self, key: tuple[str, str], event: str, asker: str, until: float) -> Slot | None:
        """Wait until a guard is running and has said whether it guards an event; return its place.

        The wait ends at `until` in any case; what it has said by then is stored, so that the wait is not repeated. The
        asker is not waited for: it may be waiting for this.
        """
        place, has_waited = self._peers.at(key), False
        if place is not None and not self._may_decide(place, event):
            return place  # whatever it answers
        while place is not None and self._is_awaited(place, event) and anyio.current_time() < until:
            if place.plugin.path == asker:
                return place
            has_waited = True
            await anyio.sleep(HEAR_STEP_S)
            place = self._peers.at(key)  # it may have been replaced
        if has_waited and place is not None and place.peer is not None:
            self._peers.note_offer(place, place.peer)
        return place

    def _is_awaited(self, place: Slot, event: str) -> bool:
        peer = place.on_duty
        if peer is None:
            return place.is_coming_up and (event in place.guarded or _is_unheard(place))
        if event in peer.intercepts or peer.has_said_all:
            return False
        if place.plugin.name in self._relied_on or event in place.guarded:
            return True
        # A guard with tools has most likely registered everything, ready or not.
        return not (place.has_said_all or peer.offer.tools)

    def _may_decide(self, place: Slot, event: str) -> bool:
        return not _is_guard(place.plugin) or may_decide(self._granted(place.plugin), event)

    def _ungranted(self, place: Slot, event: str, value: Any, *, may_block: bool) -> "_Word | None":
        """Refuse if a required guard lacks the grant; None if it is simply not asked."""
        name, peer = place.plugin.name, place.on_duty
        is_relied_on = may_block and name in self._relied_on
        wants = event in place.guarded or (peer is not None and event in peer.intercepts)
        if not (wants or (name in self._required and place.guards(event) and may_block)):
            return None
        needed = ASKED_WITH[event][0][0]
        why = f"the guard '{name}' is not asked about {event}: it was not granted {needed}"
        if is_relied_on:
            return _Word(name, value, block=why, is_missing=True, cure=_granting(name, needed))
        return None if may_block else _missing(name, value, f"{why} (`anyplug grant {name} {needed}`)")

    def _missed(self, place: Slot, event: str) -> str:
        """Return why a guard is unavailable for an event; empty if the event does not concern it."""
        name = place.plugin.name
        if not (place.guards(event) if name in self._required else event in place.guarded):
            return ""
        kind = "required guard" if name in self._required else "guard"
        if place.on_duty is None:
            return f"the {kind} '{name}' is not running: {place.reason or 'it is still starting'}"
        return f"the {kind} '{name}' has not reported what it guards"

    async def _ask(
        self,
        guard: Guard,
        event: dict[str, Any],
        chain: tuple[str, ...],
        value: Any,
        rewritten: Rewrite,
        *,
        may_block: bool,
    ) -> "_Word":
        """Ask one guard about an event."""
        name = guard.plugin.name
        try:
            answer = await guard.intercept(event, chain)
            said = _short(answer.reason)
            if answer.block and may_block:
                return _Word(name, value, block=said or f"refused by extension {name}")
            after = self._rewritten(guard.plugin, event["event"], functools.partial(rewritten, answer, value), value)
        except (
            NotSent
        ) as not_sent:  # it was not silent: it could not be asked, so the setting for silence does not apply
            unasked = f"the guard '{name}' cannot be asked: {not_sent}"
            return _Word(name, value, block=unasked) if may_block else _missing(name, value, unasked)
        except (TimeoutError, PeerGone, BadAnswer) as error:
            why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            is_down = isinstance(error, PeerGone) and name in self._required
            unusable = f"the guard '{name}' gave no usable answer: {why}"
            if may_block and (is_down or self._settings.of(name).on_silence == "closed"):
                return _unheard(name, value, unusable)
            return _missing(name, value, unusable)
        if isinstance(after, _Word):
            return after
        if not json_values.are_same(after, value):
            return _Word(name, after, note=f"{name} rewrote it" + (f": {said}" if said else ""))
        return _Word(name, value, note=f"{name} noted: {said}" if said else "")

    def _rewritten(self, guard: Plugin, event: str, rewrite: Callable[[], Any], value: Any) -> Any:
        """Return a guard's change of a value, or a refusal if it was not granted to make changes.

        That includes an unusable change: what it wanted to change never passes unchanged. Raises BadAnswer.
        """
        name, needed = guard.name, ASKED_WITH[event][1]
        may_rewrite = permissions.may(self._granted(guard), needed)
        try:
            after = rewrite()
            if may_rewrite or json_values.are_same(after, value):
                return after
        except BadAnswer:
            if may_rewrite:
                raise
        what = "the arguments of this call" if event == "tool_call" else "this text"
        held = "the call is refused" if event == "tool_call" else "the text is withheld"
        refusal = f"the guard '{name}' wants to change {what} but was not granted {needed}, so {held}"
        return _Word(name, value, block=refusal, cure=_granting(name, needed))

    def _unready(self, asker: str) -> str:
        """Return the asker if it is not ready; a ready one can be asked about its own calls, too."""
        for key in self._peers.keys:
            place = self._peers.at(key)
            if place is not None and place.plugin.path == asker:
                return "" if place.peer is not None and place.peer.has_said_all else asker
        return ""

    def _absent_one(self, value: Any) -> "_Word | None":
        """Refuse everything for a required guard that is missing, whatever it would guard."""
        if not self._required:
            return None
        there = {place.plugin.name for place in self._peers.places}
        absent = next(iter(sorted(self._required - there)), "")
        why = f"the required guard '{absent}' is not running: {self._why_absent(absent)}"
        return _unheard(absent, value, why) if absent else None


class _Word(msgspec.Struct, frozen=True):
    """The outcome of asking one guard."""

    guard: str
    value: Any  # as it left it
    note: str = ""  # for the record
    block: str = ""  # the reason, if it blocks
    is_missing: bool = False  # it should have been asked, but could not be
    cure: str = ""  # if a grant is missing


def _granting(name: str, needed: str) -> str:
    return f"`anyplug grant {name} {needed}` ({permissions.describe(needed)})"


def _unheard(guard: str, value: Any, why: str) -> _Word:
    return _Word(guard, value, block=why, is_missing=True)


def _missing(guard: str, value: Any, why: str) -> _Word:
    return _Word(guard, value, note=f"{why}; it was skipped", is_missing=True)


def _ruling(value: Any, words: list[_Word]) -> Ruling:
    """Combine the outcomes of all guards; the last one is the one that blocks."""
    blocking = words[-1] if words and words[-1].block else None
    return Ruling(
        value=value,
        blocked_by=blocking.guard if blocking else "",
        reason=blocking.block if blocking else "",
        is_unheard=blocking is not None and blocking.is_missing,
        cure=blocking.cure if blocking else "",
        notes=tuple(word.note for word in words if word.note),
        notes_by=tuple(word.guard for word in words if word.note),
        passed_over=tuple(word.note for word in words if word.is_missing and word.note),
    )


def _short(reason: str) -> str:
    """Shorten a reason to what people read and the audit keeps."""
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"


def _is_unheard(place: Slot) -> bool:
    """Return whether it is unknown what an extension guards; plugins of other formats guard nothing."""
    return _is_guard(place.plugin) and not place.is_known


def _is_guard(plugin: Plugin) -> bool:
    """Return whether a plugin can be a guard: its format asks for that permission; it names the events at run time."""
    return permissions.GUARD in plugin.permissions


def _concerns(place: Slot, event: str) -> bool:
    """Return whether a place guards an event, or did, or may yet say so."""
    peer = place.on_duty
    if event in place.guarded:
        return True
    if peer is None:
        return place.is_coming_up and _is_unheard(place)
    return event in peer.intercepts or not (peer.has_said_all or place.has_said_all or peer.offer.tools)
