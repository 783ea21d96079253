"""What a plugin asks of its caller while one of its tools runs: facts from the person, answers from a model.

Each is a record of its own in the audit. A person is always told which plugin asks. A model is only asked once policies
and the person agreed, as for a call of a tier 2 plugin; `--yes` does not agree to it.
"""

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from anyplug.call.gates import Gates
from anyplug.call.recording import Recording
from anyplug.call.state import CallState, failed
from anyplug.catalog.approvals import Standing
from anyplug.model.errors import CallError, Cancelled, Denied
from anyplug.model.types import Call, Elicitation, Elicited, Result, Sampling, Text, Tool
from anyplug.model.untrusted_text import for_people, is_clean, label, schema_for_models
from anyplug.model.web_pages import is_web_page
from anyplug.runtime import thread_lanes

ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"
LONGEST_MESSAGE = 4_000  # characters of what a person is shown
MOST_FIELDS = 30  # of a form
MOST_ASKED = 50  # in one call: a plugin must not wear a person down
CHOICES = frozenset({"items", "oneOf", "anyOf"})  # parts of a field with labels of their own
PLAIN = frozenset({"string", "number", "integer", "boolean", "array"})  # types of a form's fields


class PluginRequests:
    """The requests of one call."""

    def __init__(self, call: Call, standing: Standing, trail: CallState, gates: Gates, recording: Recording) -> None:
        self._call = call
        self._standing = standing
        self._trail = trail
        self._gates = gates
        self._recording = recording
        self._asked = 0
        assert trail.secrecy is not None  # of a call that runs
        self._secrecy = trail.secrecy

    async def elicit(self, asked: Elicitation) -> Elicited:
        """Ask the person; an answer that cannot be had is `cancel`."""
        caller = self._trail.attachment
        shown = await thread_lanes.run(self._call.plugin.path, self._shown, asked)
        state = self._state(f"mcp.{self._call.tool.process}.{ELICIT}", msgspec.to_builtins(shown))
        try:
            self._recording.begin(state)
            # One with a secret in it is changed by masking, and would lead elsewhere.
            is_usable = shown.schema is not None or (shown.url == asked.url and is_web_page(shown.url))
            answer = await ((caller.elicit or _nobody) if is_usable else _no_page)(shown)
        except CallError as error:
            self._recording.end(state, failed(error))
            return Elicited("cancel")
        except BaseException:
            self._recording.end(state, failed(Cancelled("the call ended")))
            raise
        self._recording.end(state, Result(content=(Text(answer.action),)))
        return answer

    async def sample(self, asked: Sampling) -> dict[str, Any]:
        """Ask a model, if policies and the person agree; raises CallError."""
        caller = copy.copy(self._trail.attachment)  # shares what the person has answered
        caller.yes, caller.purpose = False, SAMPLE
        # `includeContext` asks for what other servers and plugins said, which no grant covers.
        params = {name: value for name, value in asked.params.items() if name != "includeContext"}
        params = await thread_lanes.run(self._call.plugin.path, self._secrecy.messages, params)
        state = self._state(f"mcp.{self._call.tool.process}.{SAMPLE}", params)
        state.attachment = caller
        tool = Tool(
            name=state.record.tool,
            own_name=f"{self._call.tool.process}.{SAMPLE}",
            plugin=self._call.plugin.name,
            description="",
            input_schema={},
            program="",
            timeout_s=0,
        )
        call = msgspec.structs.replace(self._call, id=state.record.call, tool=tool, arguments=params)
        try:
            if caller.sample is not None:  # otherwise there is nothing to agree to
                call = await self._gates.before_command(call, self._standing, state)
            self._recording.begin(state)
            answer = await (caller.sample or _no_model)(Sampling(asked.plugin, asked.tool, call.arguments))
        except CallError as error:
            self._recording.end(state, failed(error))
            raise
        except BaseException:
            self._recording.end(state, failed(Cancelled("the call ended")))
            raise
        result = self._recording.end(state, Result(structured=answer))
        masked: dict[str, Any] = result.structured
        return masked

    def _shown(self, asked: Elicitation) -> Elicitation:
        """Return it as a person may see it: cleaned, and with the plugin's secrets masked."""
        return msgspec.structs.replace(
            asked,
            message=for_people(self._secrecy.beginning(asked.message, LONGEST_MESSAGE), LONGEST_MESSAGE),
            url=for_people(self._secrecy.text(asked.url), LONGEST_MESSAGE),
            schema=form(asked.schema, self._secrecy.schema),
        )

    def _state(self, name: str, given: Any) -> CallState:
        """Return the record of a request: the plugin asks, because its tool was called."""
        self._asked += 1
        trail = self._trail
        if self._asked > MOST_ASKED:
            raise Denied("host", f"'{self._call.tool.name}' asked more than {MOST_ASKED} times")
        state = CallState(name, trail.attachment, given, trail.record.project)
        callers = trail.attachment.callers or (trail.attachment.id,)
        state.record.callers = (*callers, f"{self._call.plugin.name}/{self._call.tool.own_name}")
        state.found(name, self._call.plugin)
        state.secrecy = trail.secrecy
        return state


async def _nobody(asked: Elicitation) -> Elicited:
    raise Denied("host", f"plugin '{asked.plugin}' asks for input, but nobody can be asked here")


async def _no_page(asked: Elicitation) -> Elicited:
    raise Denied("host", f"plugin '{asked.plugin}' wants something opened that is no page on the web")


async def _no_model(asked: Sampling) -> dict[str, Any]:
    raise Denied("host", f"plugin '{asked.plugin}' asks for a model, but there is none here")


def form(schema: dict[str, Any] | None, masked: Callable[[Any], Any] = lambda field: field) -> dict[str, Any] | None:
    """Return a form that every client can show: fields with plain values, and no hidden characters.

    `masked` masks secrets; fields that have one in their name are left out.
    """
    if schema is None:
        return None
    given = schema.get("properties")
    fields = {
        name: _labelled(masked(schema_for_models(field)))
        for name, field in list(given.items() if isinstance(given, dict) else ())[:MOST_FIELDS]
        if isinstance(field, dict) and field.get("type") in PLAIN and is_clean(name) and masked(name) == name
    }
    required = schema.get("required")
    wanted = [name for name in required if name in fields] if isinstance(required, list) else []
    return {"type": "object", "properties": fields, **({"required": wanted} if wanted else {})}


def _labelled(field: Any) -> Any:
    """Return a field whose labels are one line each, without choices that are not."""
    if isinstance(field, list):
        return [_labelled(one) for one in field]
    if not isinstance(field, dict):
        return field
    shown = {key: _labelled(value) if key in CHOICES else value for key, value in field.items()}
    shown |= {key: label(shown[key]) for key in ("title", "description") if isinstance(shown.get(key), str)}
    names, values = shown.get("enumNames"), shown.get("enum")
    if isinstance(names, list):
        shown["enumNames"] = [label(one) if isinstance(one, str) else one for one in names]
    if isinstance(values, list) and not all(is_clean(one) for one in values if isinstance(one, str)):
        shown["enum"] = [one for one in values if not isinstance(one, str) or is_clean(one)]
        shown.pop("enumNames", None)  # they would name others
    return shown
