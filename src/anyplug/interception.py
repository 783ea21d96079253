"""Interception: extensions that decide about an event before it happens, one after the other, in load order.

The first block wins; rewrites chain. What it means if a guard is silent, gone or answers nonsense is the
person's setting: `open` lets the event pass, as zot does, `closed` refuses it. While a guard that somebody
marked as required is down, what it guards is refused.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from anyplug.audience import Audience
from anyplug.formats.zot import frames
from anyplug.formats.zot.extension import BadAnswer, Extension
from anyplug.peers import Peers, Place
from anyplug.runtime.session import FrameTooLong, PeerGone
from anyplug.schema import violations
from anyplug.settings import Settings

Rewrite = Callable[[frames.InterceptResponse, Any], Any]  # raises BadAnswer

LARGEST_PROMPT = 1 << 20  # bytes of a rewritten system prompt


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What the guards made of an event."""

    value: Any  # the arguments, the text or the prompt, as the last of them left it
    blocked_by: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()  # who rewrote or said what, for the record


class Guards:
    """The interceptors of a host."""

    def __init__(self, peers: Peers, settings: Settings) -> None:
        self._peers = peers
        self._settings = settings
        self._interceptors = Audience(
            peers, lambda peer, event: isinstance(peer, Extension) and event in peer.intercepts
        )
        self._required = {name for name, plugin in settings.plugins.items() if plugin.guard == "required"}

    def watch(self, event: str) -> bool:
        """Whether anybody may have something against an event, so that they have to be asked."""
        return bool(self._required or self._interceptors.of(event))

    async def tool_call(self, call: str, name: str, schema: dict[str, Any], arguments: dict[str, Any]) -> Ruling:
        """Ask about a call. A rewrite must be an object that the tool's schema allows."""

        def rewritten(answer: frames.InterceptResponse, now: Any) -> Any:
            given = answer.modified_args
            if given is None or given == now:
                return now
            if not isinstance(given, dict):
                raise BadAnswer("modified_args is not an object")
            if broken := violations(schema, given):
                raise BadAnswer(f"modified_args break the tool's schema: {broken[0]}")
            return given

        fields = {"tool_id": call, "tool_name": name}
        return await self._consult("tool_call", fields, "tool_args", arguments, rewritten)

    async def turn_start(self, step: int) -> Ruling:
        """Ask whether a turn may begin."""
        return await self._consult("turn_start", {}, "step", step, lambda _, now: now)

    async def assistant_message(self, text: str) -> Ruling:
        """Ask about what the person is about to read; an empty replacement is none."""
        return await self._consult(
            "assistant_message", {}, "text", text, lambda answer, now: answer.replace_text or now
        )

    async def before_agent_start(self, system_prompt: str) -> Ruling:
        """Ask about an agent's system prompt; nobody can block here."""

        def rewritten(answer: frames.InterceptResponse, now: Any) -> Any:
            given = answer.system_prompt
            if answer.block:
                raise BadAnswer("startup hooks cannot block")
            if given is not None and len(given.encode()) > LARGEST_PROMPT:
                raise BadAnswer("system_prompt exceeds 1 MiB")
            return now if given is None else given

        return await self._consult("before_agent_start", {}, "system_prompt", system_prompt, rewritten, may_block=False)

    async def _consult(
        self,
        event: str,
        fields: dict[str, Any],
        key: str,
        value: Any,
        rewritten: Rewrite,
        *,
        may_block: bool = True,
    ) -> Ruling:
        if may_block and (absent := self._absent()):
            reason = (
                f"the required guard '{absent}' does not run: it is not installed, not approved or switched off "
                "(`anyplug list` says which)"
            )
            return Ruling(value=value, blocked_by=absent, reason=reason)
        notes: list[str] = []
        for place in self._peers.places:
            name, extension = place.plugin.name, place.peer
            block = _missed(place, event) if may_block and name in self._required else ""
            if isinstance(extension, Extension) and event in extension.intercepts:
                frame = {"event": event, **fields, key: value}
                value, note, block = await self._ask(extension, frame, value, rewritten, may_block=may_block)
                notes += [note] if note else []
            if block:
                return Ruling(value=value, blocked_by=name, reason=block, notes=tuple(notes))
        return Ruling(value=value, notes=tuple(notes))

    async def _ask(
        self, extension: Extension, frame: dict[str, Any], value: Any, rewritten: Rewrite, *, may_block: bool
    ) -> tuple[Any, str, str]:
        """Ask one guard; give what it made of the value, what to note, and why it may not be, if it may not."""
        name = extension.plugin.name
        try:
            answer = await extension.intercept(frame)
            if answer.block and may_block:
                return value, "", answer.reason or f"refused by extension {name}"
            after = rewritten(answer, value)
        except (TimeoutError, PeerGone, BadAnswer) as error:
            why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            is_down = isinstance(error, PeerGone) and name in self._required
            if may_block and isinstance(error, FrameTooLong):  # it was not silent: nobody could ask it
                return value, "", f"the guard '{name}' cannot be asked: {why}"
            if may_block and (is_down or self._settings.of(name).on_silence == "closed"):
                return value, "", f"the guard '{name}' gave no usable answer: {why}"
            return value, f"{name} gave no usable answer and was passed over: {why}", ""
        if after != value:
            return after, f"{name} rewrote it" + (f": {answer.reason}" if answer.reason else ""), ""
        return value, f"{name} noted: {answer.reason}" if answer.reason else "", ""

    def _absent(self) -> str:
        """Name a required guard that nobody may start, whatever it would guard."""
        if not self._required:
            return ""
        there = {place.plugin.name for place in self._peers.places}
        return next(iter(sorted(self._required - there)), "")


def _missed(place: Place, event: str) -> str:
    """Say in what a required guard is not there for an event; empty if it is there, or has nothing to say to it."""
    if place.peer is None and place.guards(event):
        why = place.reason or "it is on its way up"
        return f"the required guard '{place.plugin.name}' is down: {why}"
    if place.peer is not None and not place.peer.offer.intercepts:
        return f"the required guard '{place.plugin.name}' has not said yet what it guards"
    return ""
