"""Turn requests of MCP clients into calls of the host, in both eras of the protocol. Imports no SDK.

Every tool is called through `Host.call`, with the caller's attachment; the target of call_tool is also called under its
own name, so that gates and the audit see the tool itself.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from anyplug.call.consent import Answer, Ask, Attachment, Question, Sample
from anyplug.call.consent import Elicit as ElicitFromPerson
from anyplug.catalog import resource_uris, search_tools
from anyplug.catalog.profiles import View
from anyplug.formats import registry
from anyplug.formats.mcp import services
from anyplug.frontends.mcp import consent_elicitation
from anyplug.frontends.mcp.consent_elicitation import Elicit, Kept, Questions
from anyplug.frontends.mcp.listing import ARGUMENT, Offering
from anyplug.frontends.mcp.result_content import (
    ERROR,
    QUESTION,
    Wire,
    prompt_result,
    refusal,
    resource_result,
    text_result,
    tool_result,
)
from anyplug.host.host import Host
from anyplug.model.types import Failure, Progress, Result
from anyplug.model.untrusted_text import for_models

MOST_AT_ONCE = 1_000  # running calls of all clients of one server; agents have a few dozen
COME_BACK_S = 1  # how long a client with too many calls is told to wait
INSTRUCTIONS = (
    "Tools of the plugins that the user installed and approved in anyplug. Each description names its plugin. "
    f"Where {search_tools.FIND}, {search_tools.DESCRIBE} and {search_tools.CALL} are listed, the plugins' tools are "
    "found and called through them. builtin_list_plugins and builtin_describe_plugin tell about the plugins "
    "themselves. A result that is an error says what to do next."
)


class BadState(Exception):
    """An answer to a question that is not open, or to another call's."""


class Failed(Exception):
    """A slash command failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PluginsCaller(msgspec.Struct, frozen=True):
    """How a client is asked what plugins want to know from its user and its model; None for what it cannot do."""

    elicit: ElicitFromPerson | None
    sample: Sample | None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request, and how they can be asked."""

    attachment: Attachment
    is_modern: bool = False
    can_ask: bool = False  # the client said that it can
    elicit: Elicit | None = None  # how, in the older era
    is_alone: bool = False  # requests cannot be attributed to a client, so an answer counts only once
    caller: PluginsCaller | None = None  # asks the client what plugins ask, in the older era
    progress: Progress | None = None
    state: str | None = None  # the answered question, in the newer era
    responses: dict[str, Any] | None = None  # and the answer
    trace: dict[str, str] = {}  # the W3C trace context in its `_meta`, or in its headers


class Handlers:
    """Serves the clients that use a host through one view."""

    def __init__(self, host: Host, view: View) -> None:
        self.host = host
        self.view = view
        self._questions = Questions()
        self._offering: Offering | None = None
        self._told: Offering | None = None  # what clients were last told
        self._under_way = 0
        self.changed: Callable[[], None] = lambda: None  # called when other tools are offered to this view alone

    @property
    def offering(self) -> Offering:
        """What is offered now."""
        known = self._offering
        if known is None or known.snapshot is not self.host.snapshot or known.version != self.view.version:
            known = self._offering = Offering(self.host.snapshot, self.view, is_confining=self._is_confining)
        return known

    def look_again(self) -> tuple[bool, bool, bool]:
        """Check for changes; return whether tools, prompts and resources changed since last time."""
        self.view.refresh()
        before, self._told = self._told, self.offering
        if before is None or before is self._told:
            return False, False, False
        tools, prompts, resources = (old != new for old, new in zip(before.stamps, self._told.stamps, strict=True))
        return tools, prompts, resources

    async def call(
        self, name: str, arguments: dict[str, Any] | None, request: Request, *, is_plain: bool = False
    ) -> Wire:
        """Call a tool by the client's name for it; raises BadState. `is_plain`: none of those for tool search."""
        offering, given = self.offering, arguments or {}
        if offering.surface == "search" and not is_plain:
            match name:
                case search_tools.FIND:
                    return _answered(search_tools.find(offering.index, offering.snapshot, given))
                case search_tools.DESCRIBE:
                    return _answered(
                        search_tools.describe_one(self.view, offering.snapshot, given, is_confining=self._is_confining)
                    )
                case search_tools.CALL:
                    target = search_tools.target(given)
                    if isinstance(target, Failure):
                        return refusal(target)
                    name, given = target
        if self._under_way >= MOST_AT_ONCE:
            hint = f"try again in {COME_BACK_S} s"
            return refusal(
                Failure("overloaded", "too many calls are running", hint), {"retry_after_ms": COME_BACK_S * 1000}
            )
        opened: list[Question] = []
        attachment = self._caller(request, name, given, opened.append)
        self._under_way += 1
        try:
            # An asynchronous tool may take longer than a client waits, so its result is asked for with another tool.
            result = await self.host.call(name, given, attachment=attachment, wait=False, progress=request.progress)
        finally:
            self._under_way -= 1
        if opened:
            return self._input_required(opened[0], request, name, given)
        if result.activates and self.view.activate(result.activates, self.host.snapshot):
            self.changed()
        wire = tool_result(result, offering.output_schemas.get(result.tool), is_modern=request.is_modern)
        if result.metadata.get("state") == "running" and result.format != registry.BUILTIN.format:
            wire["content"].append({"type": "text", "text": offering.how_to_ask_for(result.metadata["job"])})
        return wire

    async def read(self, uri: str, request: Request) -> Wire:
        """Read a resource; raises Failed, and BadState."""
        offered = self.offering.readable
        found = resource_uris.find(uri, offered)
        if found is None:
            raise Failed(Failure("not_found", f"no plugin has the resource {for_models(uri)}", "list the resources"))
        result = await self._serve(found[1].name, {"uri": found[0]}, request)
        if not isinstance(result, Result):
            return result
        own, reader = found
        return resource_result(result, uri, lambda said: resource_uris.named(said, uri, own, reader, offered))

    async def watch(self, uri: str, request: Request, *, is_on: bool) -> str:
        """Subscribe to changes of a resource, or no longer; return the plugin's own URI. Raises Failed."""
        found = resource_uris.find(uri, self.offering.readable)
        name = f"{found[1].name.removesuffix('/read')}/{'subscribe' if is_on else 'unsubscribe'}" if found else ""
        if found is None or not self.host.snapshot.knows(name):
            raise Failed(Failure("not_found", f"nobody announces changes of {for_models(uri)}", "list the resources"))
        await self._serve(name, {"uri": found[0]}, request)
        return found[0]

    async def complete(self, given: Wire, request: Request) -> Wire:
        """Complete an argument of a prompt or a template; without a person's consent, with nothing.

        Nobody is asked, because clients complete while their user types.
        """
        name, given = self._completer(given)
        result = await self.host.call(name, given, attachment=request.attachment.asking(None)) if name else None
        if result is None or result.is_error or not isinstance(result.structured, dict):
            return {"completion": {"values": []}, "resultType": "complete"}
        return {"completion": result.structured, "resultType": "complete"}

    def _completer(self, given: Wire) -> tuple[str, Wire]:
        """Return the tool that completes, and the request as its plugin knows it; no name if there is none."""
        reference, process, snapshot = given.get("ref", {}), "", self.host.snapshot
        if reference.get("type") == "ref/prompt":
            name = str(reference.get("name"))
            found = snapshot.commands.get(name.lower()) or snapshot.command_by_own_name(name)
            process = found[0].process if found is not None and self.view.has_command(found[0]) else ""
        else:
            meant = [one for one, _ in self.offering.readable if one.uri == reference.get("uri")]
            if meant:
                process, given = meant[0].process, {**given, "ref": {**reference, "uri": meant[0].own_uri}}
        name = f"mcp.{process}.completion/complete"
        return (name, given) if process and snapshot.knows(name) else ("", given)

    async def _serve(self, name: str, given: Wire, request: Request) -> Result | Wire:
        """Call a tool that no list shows; return a question instead of its result if one was opened. Raises Failed."""
        opened: list[Question] = []
        attachment = self._caller(request, name, given, opened.append)
        result = await self.host.call(name, given, attachment=attachment)
        if opened:
            return self._input_required(opened[0], request, name, given)
        if result.error is not None:
            raise Failed(result.error)
        return result

    async def prompt(self, name: str, arguments: dict[str, str], request: Request) -> Wire:
        """Run a slash command; raises Failed, and BadState."""
        found = self.host.snapshot.commands.get(name.lower()) or self.host.snapshot.command_by_own_name(name)
        has_names = found is not None and bool(found[0].own_name)
        words = services.words_of(arguments) if has_names else arguments.get(ARGUMENT, "")
        opened: list[Question] = []
        ask = self._asking(request, f"/{name}", words, opened.append)
        outcome = await self.host.run_command(f"/{name} {words}", attachment=request.attachment.asking(ask))
        if opened:
            return self._input_required(opened[0], request, f"/{name}", words)
        if outcome.error is not None:
            raise Failed(outcome.error)
        return prompt_result(outcome)

    @property
    def _is_confining(self) -> bool:
        return self.host.catalog.settings.is_confining

    def _caller(self, request: Request, target: str, given: Any, opened: Callable[[Question], None]) -> Attachment:
        """Return the attachment of a request, with how its client is asked."""
        attachment = request.attachment.asking(self._asking(request, target, given, opened))
        attachment.trace = request.trace
        if request.caller is not None:
            attachment.elicit, attachment.sample = request.caller.elicit, request.caller.sample
        return attachment

    def _asking(self, request: Request, target: str, given: Any, opened: Callable[[Question], None]) -> Ask:
        """Return how to ask this caller, if needed."""
        if request.is_modern:
            kept, answer = self._answered_question(request, target, given)
            return consent_elicitation.by_ending(opened, kept, answer, can_ask=request.can_ask)
        if request.elicit is None or not request.can_ask:
            return _ask_nobody
        return consent_elicitation.by_request(request.elicit, for_all=not request.is_alone)

    def _answered_question(self, request: Request, target: str, given: Any) -> tuple[Kept | None, Answer]:
        if request.state is None:
            return None, "no"
        kept = self._questions.take(request.state, _whose(request), target, given)
        if kept is None:
            raise BadState
        response = (request.responses or {}).get(consent_elicitation.KEY, {})
        action, content = response.get("action", "cancel"), response.get("content")
        return kept, consent_elicitation.read(action, content, for_all=not request.is_alone)

    def _input_required(self, question: Question, request: Request, target: str, given: Any) -> Wire:
        """End a request before anything ran, with the question to be answered first."""
        state = self._questions.keep(question, _whose(request), target, given)
        form = {
            "mode": "form",
            "message": consent_elicitation.text(question),
            "requestedSchema": consent_elicitation.form(for_all=not request.is_alone),
        }
        why = {"code": "needs_answer", "message": "a person has to answer first", "hint": "call again with the answer"}
        return {
            "inputRequests": {consent_elicitation.KEY: {"method": "elicitation/create", "params": form}},
            "requestState": state,
            "_meta": {ERROR: why, QUESTION: question.id},
            "resultType": "input_required",
        }


async def _ask_nobody(question: Question) -> Answer:
    raise consent_elicitation.unable(question)


def _whose(request: Request) -> str:
    return "" if request.is_alone else request.attachment.id


def _answered(answer: search_tools.Answer) -> Wire:
    return refusal(answer) if isinstance(answer, Failure) else text_result(*answer)
