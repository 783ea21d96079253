"""Policies on the path of a call: turn their decisions into a verdict, a question to the person, or new arguments."""

from typing import Any

import msgspec

from anyplug.call.consent import Asker, Attachment, Question, kept, refusal
from anyplug.call.state import CallState, failed
from anyplug.catalog.approvals import Standing
from anyplug.model import permissions
from anyplug.model.errors import Denied
from anyplug.model.json_values import TOO_DEEP, are_same, is_too_deep
from anyplug.model.schema import violations
from anyplug.model.types import Call, Result, Text, Verdict
from anyplug.policy.gate import Facts, PolicyGate, Ruling

# What policies call the tools that agents bring along, which ours are to them.
AS_AGENTS = {"read": "Read", "write": "Write", "edit": "Edit", "bash": "Bash"}
CONTEXT = "policy_context"  # in a result's metadata


class PolicyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies decided about a call."""

    call: Call
    verdict: Verdict | None = None  # None: policies do not object
    agreed: bool = False  # a person was asked about this very call, and agreed


async def before(
    gate: PolicyGate, call: Call, standing: Standing, trail: CallState, cwd: str, asker: Asker
) -> PolicyOutcome:
    """Ask policies about a call before it runs."""
    ruling = await gate.before(_facts(call, standing, cwd), _mask(trail))
    trail.note("policy", *ruling.notes)
    trail.warnings += ruling.notes
    trail.context += ruling.context
    if ruling.verb == "deny":
        return PolicyOutcome(call=call, verdict=_refused(ruling, ruling.reason))
    if ruling.verb == "ask":
        return await _asked(gate, ruling, call, standing, trail.attachment, asker)
    if ruling.verb == "modify" and ruling.arguments is not None and not are_same(ruling.arguments, call.arguments):
        if is_too_deep(ruling.arguments):
            return PolicyOutcome(call=call, verdict=_refused(ruling, f"a policy's change is unusable: {TOO_DEEP}"))
        if broken := violations(call.tool.input_schema, ruling.arguments):
            reason = f"a policy's change violates the tool's schema: {broken[0]}"
            return PolicyOutcome(call=call, verdict=_refused(ruling, reason))
        trail.note(ruling.by, f"{ruling.by} changed the arguments: {ruling.reason}")
        return PolicyOutcome(call=msgspec.structs.replace(call, arguments=ruling.arguments))
    return PolicyOutcome(call=call)


async def after(gate: PolicyGate, call: Call, standing: Standing, trail: CallState, cwd: str, result: Result) -> Result:
    """Ask policies about a result; nobody sees a refused one."""
    ruling = await gate.after(
        _facts(call, standing, cwd),
        success=not result.is_error,
        output=result.text,
        error=result.error.message if result.error else "",
        structured=result.structured,
        mask=_mask(trail),
    )
    trail.note("policy", *ruling.notes)
    if ruling.verb in {"deny", "ask"}:
        trail.note(ruling.by, f"{ruling.by} withheld the result: {ruling.reason}")
        return failed(
            Denied("policy", f"the tool ran, but a policy withholds its result: {ruling.reason}", ruling.hint)
        )
    trail.warnings += tuple(note for note in ruling.notes if note not in trail.warnings)
    return with_context(result, [*trail.context, *ruling.context])


def with_context(result: Result, context: list[str]) -> Result:
    """Add the policies' context for the model."""
    if not context:
        return result
    said = tuple(Text(f"[policy] {text}") for text in context)
    metadata: dict[str, Any] = {**result.metadata, CONTEXT: context}
    return msgspec.structs.replace(result, content=(*result.content, *said), metadata=metadata)


async def _asked(
    gate: PolicyGate, ruling: Ruling, call: Call, standing: Standing, attachment: Attachment, asker: Asker
) -> PolicyOutcome:
    """Ask the person a policy's question; `--yes` does not answer it."""
    if ruling.question in attachment.allowed or gate.is_answered(ruling.question):
        return PolicyOutcome(call=call)
    if attachment.ask is None and not asker.is_watched:
        hint = 'run it in a terminal, where you can answer; the answer "always" is remembered until the policies change'
        reason = f"{ruling.reason} (a policy requires confirmation, but nobody can confirm it here)"
        return PolicyOutcome(call=call, verdict=_refused(ruling, reason, hint))
    warning = permissions.warning(standing.granted)
    question = Question(
        id=call.id,
        plugin=call.plugin.name,
        tool=call.tool.name,
        arguments=call.arguments,
        permissions=standing.granted,
        warning=f"{ruling.reason} (asked by {ruling.by})" + (f"; {warning}" if warning else ""),
        asker=ruling.by,
        digest=standing.digest,
        chain=attachment.chain,
        callers=attachment.callers,
    )
    try:
        given = await attachment.put(question, ruling.question, asker)
    except Denied as error:
        return PolicyOutcome(call=call, verdict=refusal(error))
    if given.word == "no":
        return PolicyOutcome(
            call=call, verdict=Verdict(allowed=False, by="person", reason=f"the person refused: {ruling.reason}")
        )
    warning = kept(lambda: gate.answer_always(ruling.question)) if given.word == "always" else ""
    verdict = Verdict(allowed=True, by="person", reason=f"{given.reason}: {ruling.reason}", warning=warning)
    return PolicyOutcome(call=call, verdict=verdict, agreed=True)


def _refused(ruling: Ruling, reason: str, hint: str = "") -> Verdict:
    return Verdict(allowed=False, by=ruling.by, reason=reason, hint=hint or ruling.hint)


def _facts(call: Call, standing: Standing, cwd: str) -> Facts:
    return Facts(
        call=call.id,
        tool=AS_AGENTS.get(call.tool.own_name, call.tool.own_name) if call.plugin.is_ours else call.tool.ruled_as,
        arguments=call.arguments,
        plugin=call.plugin.name,
        format=call.plugin.format,
        tier=call.plugin.tier,
        grants=standing.granted,
        caller=call.attachment,
        cwd=cwd,
        chain=call.chain,
    )


def _mask(trail: CallState) -> Any:
    return trail.secrecy.mask() if trail.secrecy is not None else None
