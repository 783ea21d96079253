"""One turn: requests to the model, its answers and its tool calls, until it makes no more calls.

Extensions are asked before each request to the model, and about each message before anything of it is shown or stored.
The model's own transcript, with its original answers, is only in memory; what was shown is stored.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import pydantic_ai
from pydantic_ai import Agent, AgentRun
from pydantic_ai.exceptions import ModelContextWindowExceededError, UsageLimitExceeded
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.usage import UsageLimits

from anyplug.agent import compaction, instructions, model_loading, provider_errors
from anyplug.agent import conversation_events as events
from anyplug.agent.conversation_events import StopReason
from anyplug.agent.conversation_tools import ConversationToolset, run_tool
from anyplug.agent.model_choice import DEMO
from anyplug.agent.model_history import Spoken, closed, rebuilt, returned
from anyplug.call.slash_commands import CommandOutcome
from anyplug.formats.shared.contract import Greeting
from anyplug.model.types import Failure, Result
from anyplug.model.untrusted_text import ForModels, for_models
from anyplug.peers.guards import Ruling

if TYPE_CHECKING:
    from anyplug.agent.live_conversation import LiveConversation

MOST_REQUESTS = 60  # to the model in one turn; a model that keeps calling tools must be stopped
HELD_STEP = 200  # characters between reports on a text that is held back
REVIEW = "assistant_message"
UNFINISHED = "the answer may be cut: the server ended it without a reason"
ZOT_STOPS = {"length": "length", "tool_call": "tool_use", "error": "error"}  # by the model's reason; else `end`

Outcome = tuple[StopReason, Failure | None]

pydantic_ai.BANNER_ENABLED = False  # else its first run in a process prints what is not ours to stderr


def spoken_of(talk: "LiveConversation") -> Spoken:
    """Return what a conversation's model knows; of a resumed one, what was shown."""
    if talk.spoken is None:
        talk.spoken = Spoken(rebuilt(talk.before))
    spoken: Spoken = talk.spoken
    return spoken


async def take_turn(talk: "LiveConversation", number: int, text: str) -> Outcome:
    """Send the model a message, and run its tools until it has answered."""
    spoken = spoken_of(talk)
    try:
        if spoken.model is None:
            model = await model_loading.load(talk.choice, talk.environment, talk.host.catalog)
            spoken.model = await model.__aenter__()  # its connections stay open until the conversation lets go of it
        if spoken.context_used is not None and spoken.context_used > compaction.FULL:
            await compaction.compact(talk, spoken, number)
        try:
            return await _Turn(talk, spoken, number).run(text)
        except ModelContextWindowExceededError:
            if not await compaction.compact(talk, spoken, number):
                raise
            return await _Turn(talk, spoken, number).run(text)
    except UsageLimitExceeded:
        said = f"the turn was stopped after {MOST_REQUESTS} requests to the model"
        talk.tell(events.Status(level="warn", text=said, hint="send a message to go on"))
        return "limit", None
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - a provider's library, or its server, may fail in any way
        failure = provider_errors.failure_of(error, talk.choice, tells_all=not spoken.is_edited)
        talk.tell(events.Status(level="error", text=failure.message, hint=failure.hint))
        return "error", failure


async def call_for_command(talk: "LiveConversation", outcome: CommandOutcome) -> None:
    """Call a tool for an extension's command, and add the call to the model's history."""
    spoken = spoken_of(talk)
    names = talk.host.snapshot.model_names
    name = names.get(talk.host.snapshot.full_name(outcome.tool), outcome.tool)
    call = f"command_{len(spoken.messages)}"
    result = await run_tool(talk, call, name, outcome.arguments, by=talk.host.snapshot.plugin(outcome.plugin).plugin)
    spoken.messages += [
        ModelRequest(parts=[UserPromptPart(content=f"(the command {outcome.command} of {outcome.plugin})")]),
        ModelResponse(parts=[ToolCallPart(tool_name=name, args=outcome.arguments, tool_call_id=call)]),
        ModelRequest(parts=[returned(name, call, result)]),
    ]


class _Turn:
    """One turn under way."""

    def __init__(self, talk: "LiveConversation", spoken: Spoken, number: int) -> None:
        self._talk = talk
        self._spoken = spoken
        self._number = number
        self._guards = talk.host.guards
        self._toolset = ConversationToolset(talk)
        self._partial = ""  # of the message that is being received
        self._step = 0

    async def run(self, text: str) -> Outcome:
        """Run it; raises what the model's library raises."""
        model = self._spoken.model
        assert model is not None
        agent = Agent(
            model,
            instructions=await self._system_prompt(),
            toolsets=[self._toolset],
            retries=3,
        )
        before = self._spoken.messages
        limits = UsageLimits(request_limit=MOST_REQUESTS)
        # The turn holds on to its model's connections even if the person changes the model meanwhile.
        async with model, agent.iter(text, message_history=before, usage_limits=limits) as run:
            try:
                outcome = await self._run(run)
            except BaseException:
                self._spoken.messages = closed(run.all_messages(), len(before), self._partial)
                raise
            self._spoken.messages = closed(run.all_messages(), len(before), "")
            return outcome

    async def _run(self, run: AgentRun[Any, Any]) -> Outcome:
        stop: StopReason = "end"
        async for node in run:
            if Agent.is_model_request_node(node):
                self._step += 1
                if ruling := await self._blocked():
                    return "blocked", Failure("denied", ruling.reason, ruling.cure)
                async with node.stream(run.ctx) as stream:
                    await self._receive(stream)
                response = run.all_messages()[-1]
            elif Agent.is_call_tools_node(node):
                response = node.model_response
                await self._review(response)
                self._count(response)
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        if isinstance(event, FunctionToolResultEvent):
                            self._unknown(event, response)
                stop = self._ended(response)
        return stop, None

    async def _system_prompt(self) -> str:
        """Return the system prompt, as extensions left it."""
        talk, prompt = self._talk, instructions.text(self._talk.cwd, self._talk.choice)
        if not self._guards.may_object("before_agent_start"):
            return prompt
        greeting = Greeting(provider=talk.choice.provider, model=talk.choice.name, cwd=talk.cwd, session_id=talk.id)
        ruling = await self._guards.before_agent_start(
            prompt, session_id=talk.id, agent_run_id=f"{talk.id}-{self._number}", greeting=greeting
        )
        self._warn(ruling)
        return str(ruling.value)

    async def _blocked(self) -> Ruling | None:
        """Ask extensions whether the model may be asked now; return the ruling of the one that refuses."""
        self._talk.emit("turn_start", step=self._step)
        if not self._guards.may_object("turn_start"):
            return None
        ruling = await self._guards.turn_start(self._step)
        self._warn(ruling)
        if not ruling.blocked_by:
            return None
        said = f"{ruling.blocked_by} blocked the request to the model: {ruling.reason}"
        self._talk.tell(events.Status(level="warn", text=said, hint=ruling.cure))
        self._talk.emit("turn_end", stop="error", error=ruling.reason)
        return ruling

    async def _receive(self, stream: Any) -> None:
        """Receive a message: show its text as it comes, or hold it back while extensions may object."""
        self._partial, told, part = "", 0, -1
        cleaned = ForModels()
        async for event in stream:
            piece = ""
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                piece = event.part.content if part < 0 or not self._partial else f"\n{event.part.content}"
                part = event.index
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                piece = event.delta.content_delta
            if not piece:
                continue
            self._partial += piece
            if not self._guards.may_object(REVIEW):
                self._tell_text(cleaned.feed(piece))
            elif not told or len(self._partial) - told >= HELD_STEP:
                told = len(self._partial)
                self._talk.tell(events.TextHeld(turn=self._number, characters=told, by=self._reviewers()))
        self._tell_text(cleaned.end())

    def _tell_text(self, text: str) -> None:
        if text:
            self._talk.tell(events.TextDelta(turn=self._number, text=text))

    def _reviewers(self) -> str:
        places = self._talk.host.peers.places
        names = [place.plugin.name for place in places if REVIEW in place.guarded]
        names += [one.plugin.name for one in places if one.on_duty is not None and REVIEW in one.on_duty.intercepts]
        return ", ".join(dict.fromkeys(names))

    async def _review(self, response: ModelResponse) -> None:
        """Show a whole message, as extensions left it."""
        text = "\n".join(part.content for part in response.parts if isinstance(part, TextPart) and part.content)
        if not text.strip():
            return
        if not self._guards.may_object(REVIEW):
            self._show(text, text)
            return
        ruling = await self._guards.assistant_message(text)
        self._warn(ruling)
        if ruling.blocked_by:
            self._spoken.is_edited = True
            reason = f"{ruling.blocked_by}: {ruling.reason}"
            self._talk.tell(events.AssistantMessage(turn=self._number, text="", withheld=reason))
        else:
            notes = zip(ruling.notes_by, ruling.notes, strict=True)
            by = dict.fromkeys(name for name, note in notes if note.startswith(f"{name} rewrote it"))
            self._show(text, str(ruling.value), ", ".join(by))

    def _show(self, original: str, text: str, by: str = "") -> None:
        self._partial = ""
        self._spoken.is_edited = self._spoken.is_edited or text != original
        self._talk.tell(events.AssistantMessage(turn=self._number, text=for_models(text), changed_by=by))
        self._talk.emit(REVIEW, text=text)

    def _unknown(self, event: FunctionToolResultEvent, response: ModelResponse) -> None:
        """Show a call that did not reach the host: the model made up the tool, or its arguments are not JSON."""
        call = event.part.tool_call_id
        if call in self._toolset.seen:
            return
        made = next((part for part in response.tool_calls if part.tool_call_id == call), None)
        if made is None:
            return
        said = event.part.content
        if isinstance(said, list):  # the library's own errors, one for each thing that it could not read
            failure = Failure("invalid_arguments", "; ".join(str(error["msg"]) for error in said))
        else:
            failure = Failure("not_found", str(said))
        given = made.args if isinstance(made.args, dict) else {}
        self._talk.tell(events.ToolStarted(call=call, tool=made.tool_name, plugin="", arguments=given))
        self._talk.tell(events.ToolEnded(call=call, result=Result(is_error=True, error=failure, tool=made.tool_name)))

    def _ended(self, response: ModelResponse) -> StopReason:
        """Announce to extensions that a request to the model and its tool calls have ended; return why."""
        reason = _reason(response, self._spoken.model)
        stop = "tool_use" if response.tool_calls else ZOT_STOPS.get(reason, "end")
        self._talk.emit("turn_end", stop=stop)
        if not reason and not response.tool_calls and self._talk.choice.provider != DEMO:
            self._talk.tell(events.Status(level="warn", text=UNFINISHED, hint="send `go on`"))
            return "error"
        if reason == "length":
            said = "the answer was cut, because it reached the model's limit"
            self._talk.tell(events.Status(level="warn", text=said, hint="send `go on`"))
            return "limit"
        return "end"

    def _count(self, response: ModelResponse) -> None:
        """Count what a request used."""
        if self._talk.choice.provider == DEMO or not response.usage.has_values():
            return
        used, now = response.usage, self._talk.usage
        window = self._spoken.model.profile.get("context_window") if self._spoken.model is not None else None
        self._spoken.context_used = (used.input_tokens + used.output_tokens) / window if window else None
        cost = _cost(response)
        self._talk.usage = events.Usage(
            input_tokens=(now.input_tokens or 0) + used.input_tokens,
            output_tokens=(now.output_tokens or 0) + used.output_tokens,
            cost_usd=now.cost_usd if cost is None else (now.cost_usd or 0.0) + cost,
            context_used=self._spoken.context_used,
        )
        self._talk.tell(self._talk.usage)

    def _warn(self, ruling: Ruling) -> None:
        for note in ruling.passed_over:
            self._talk.tell(events.Status(level="warn", text=note))


def _reason(response: ModelResponse, model: Any) -> str:
    """Return why a model says that it stopped; the library's own `stop`, in place of a reason, does not count."""
    reason = response.finish_reason or ""
    is_filled_in = "finish_reason" not in (response.provider_details or {})
    is_chat = any(kind.__name__ == "OpenAIChatModel" for kind in type(model).__mro__)  # importing it takes seconds
    return "" if reason == "stop" and is_filled_in and is_chat else reason


def _cost(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except Exception:  # noqa: BLE001 - prices of many models are unknown, which is said in several ways
        return None
