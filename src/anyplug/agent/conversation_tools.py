"""The host's tools as the model of a conversation calls them: each call is shown from its start to its end."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import ToolsetTool

from anyplug.agent import conversation_events as events
from anyplug.audit.audit_log import Record
from anyplug.call.consent import Answer, Ask, Question
from anyplug.call.state import failed
from anyplug.catalog.snapshot import Entry
from anyplug.integrations.pydantic_ai import HostToolset
from anyplug.model.errors import Cancelled, StoreError, ToolNotFound
from anyplug.model.types import Plugin, Result, Tool
from anyplug.model.untrusted_text import for_models

if TYPE_CHECKING:
    from anyplug.agent.live_conversation import LiveConversation


class ConversationToolset(HostToolset):
    """The tools of one turn."""

    def __init__(self, talk: "LiveConversation") -> None:
        super().__init__(talk.host, attachment=talk.attachment)
        self._talk = talk
        self.seen: set[str] = set()  # the ids of calls that reached the host

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool; raises ToolFailed."""
        call = ctx.tool_call_id or name
        self.seen.add(call)
        return self.returned(await run_tool(self._talk, call, name, tool_args))


async def run_tool(
    talk: "LiveConversation", call: str, name: str, arguments: dict[str, Any], by: Plugin | None = None
) -> Result:
    """Call a tool of the host for a conversation, and show it. `by` is the plugin that calls, if any."""
    found = _found(talk, name)
    full, plugin = (found[0].name, found[1].name) if found is not None else (name, "")
    granted = found[1].standing.granted if found is not None else ()
    talk.tell(
        events.ToolStarted(
            call=call, tool=full, plugin=plugin, arguments=arguments, permissions=granted, model_name=name
        )
    )
    records: list[Record] = []
    pause = _Pause(talk.attachment.ask)
    attachment = talk.attachment.asking(pause.ask if talk.attachment.ask is not None else None)
    if by is not None:  # what the person allowed the model does not hold for a plugin
        attachment = attachment.for_plugin(by, (), (by.name,))
    attachment.on_record = records.append

    async def report(progress: float, total: float | None, message: str | None) -> None:
        talk.tell(events.ToolProgress(call=call, progress=progress, total=total, message=message or ""))

    result: Result | None = None
    try:
        with talk.floor.working(talk, plugin):
            result = await talk.host.call(name, arguments, attachment=attachment, progress=report)
    except asyncio.CancelledError:
        result = failed(Cancelled("the call was cancelled"))
        raise
    finally:
        own = next((record for record in records if record.callers == attachment.callers), None)
        verdict = f"{own.by} {own.reason}".strip() if own is not None else ""
        if result is not None:
            number = _number(talk, own)
            ended = events.ToolEnded(
                call=call,
                result=result,
                verdict=verdict,
                record=number,
                waited_ms=pause.ms,
                offered=offered(result),
            )
            talk.tell(ended)
    return result


class _Pause:
    """How long one call has waited for the person's answers."""

    def __init__(self, ask: Ask | None) -> None:
        self.ms = 0.0
        self._ask = ask

    async def ask(self, question: Question) -> Answer:
        assert self._ask is not None
        begun = time.perf_counter()
        try:
            return await self._ask(question)
        finally:
            self.ms = round(self.ms + (time.perf_counter() - begun) * 1000, 3)


def offered(result: Result) -> str:
    """Return a text in a result that its plugin means for a model, as Workbench does; empty if there is none."""
    if result.is_error:
        return ""
    if isinstance(result.structured, dict) and isinstance(prompt := result.structured.get("prompt"), str):
        return for_models(prompt)
    return for_models(result.text) if result.metadata.get("suggestedRole") else ""


def _number(talk: "LiveConversation", record: Record | None) -> int:
    if record is None:
        return 0
    try:
        return talk.host.audit.number_of(record.call)
    except StoreError:
        return 0  # the host reports what is wrong with its database


def _found(talk: "LiveConversation", name: str) -> tuple[Tool, Entry] | None:
    try:
        return talk.host.snapshot.tool(name)
    except ToolNotFound:
        return None
