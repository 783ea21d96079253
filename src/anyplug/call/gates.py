"""The gates between the check of a call and its run, in their order: guards, policies, the person.

Guards come first, so that the person sees what will really run.
"""

import msgspec

from anyplug.audit import audit_log
from anyplug.call import policy_check
from anyplug.call.consent import Asker, consent, ungranted, without_asking
from anyplug.call.state import CallState
from anyplug.catalog.approvals import Approvals, Standing
from anyplug.home.settings import Settings
from anyplug.model.errors import Denied
from anyplug.model.types import Call, Result, Verdict
from anyplug.peers.guards import Guards, Ruling
from anyplug.policy.gate import PolicyGate


class Gates:
    """The gates of one host. All raise Denied, or NeedsAnswer if the person can only be asked by ending the call."""

    def __init__(self, guards: Guards, policies: PolicyGate, approvals: Approvals, cwd: str, asker: Asker) -> None:
        """`cwd` is the project whose policies apply; `asker` is where the person is asked."""
        self._guards = guards
        self._policies = policies
        self._approvals = approvals
        self._cwd = cwd
        self._asker = asker

    def follow(self, settings: Settings) -> None:
        """Use new settings from now on; guards follow them separately."""
        self._policies.follow(settings.policy)

    @property
    def has_policies(self) -> bool:
        """Whether policies are asked."""
        return self._policies.is_on(self._cwd)

    async def before_call(self, call: Call, standing: Standing, trail: CallState) -> Call:
        """Pass a call through all gates; return it as it should run.

        A plugin that may not make it at all is refused before any gate is asked.
        """
        if refused := ungranted(call, trail.attachment, self._approvals):
            _keep(refused, trail)
        if self._guards.may_object("tool_call"):
            asker = trail.attachment.plugin
            ruling = await self._guards.tool_call(call, asker.path if asker is not None else "")
            for name, note in zip(ruling.notes_by, ruling.notes, strict=True):
                trail.note(f"guard:{name}", note)
            trail.warnings += ruling.passed_over
            if ruling.blocked_by:
                _keep(_refusal(ruling), trail)
            if ruling.value is not call.arguments:
                call = msgspec.structs.replace(call, arguments=ruling.value)
                trail.record.arguments = audit_log.digest_of(ruling.value)
        return await self._policies_and_person(call, standing, trail)

    async def before_command(self, call: Call, standing: Standing, trail: CallState) -> Call:
        """Pass a slash command through the gates except for guards; return it as it should run."""
        return await self._policies_and_person(call, standing, trail)

    async def _policies_and_person(self, call: Call, standing: Standing, trail: CallState) -> Call:
        if self._policies.is_on(self._cwd):
            policed = await policy_check.before(self._policies, call, standing, trail, self._cwd, self._asker)
            if policed.verdict is not None:
                _keep(policed.verdict, trail)
            if policed.call is not call:
                call = policed.call
                trail.record.arguments = audit_log.digest_of(call.arguments)
            if policed.agreed:
                return call
        caller = trail.attachment
        verdict = without_asking(call, standing, caller, self._granted(call, trail)) or await consent(
            call, standing, caller, self._approvals, self._asker
        )
        _keep(verdict, trail)
        return call

    def would_ask(self, call: Call, standing: Standing, trail: CallState) -> bool:
        """Return whether the person would be asked, if guards and policies allow the call."""
        return without_asking(call, standing, trail.attachment, self._granted(call, trail)) is None

    def _granted(self, call: Call, trail: CallState) -> tuple[str, ...]:
        """Return the grants of the calling plugin, if any, that apply to this call."""
        caller = trail.attachment.plugin
        return () if caller is None else self._approvals.granted_over(caller, call.plugin)

    async def after(self, call: Call, standing: Standing, trail: CallState, result: Result) -> Result:
        """Ask policies about a result."""
        if not self._policies.is_on(self._cwd):
            return result
        return await policy_check.after(self._policies, call, standing, trail, self._cwd, result)


def _refusal(ruling: Ruling) -> Verdict:
    """Convert a guard's refusal to a verdict; if the guard did not decide itself, with a hint."""
    name, by = ruling.blocked_by, f"guard:{ruling.blocked_by}"
    hint = ruling.cure or f"decided by {by}"
    if ruling.is_unheard and not ruling.cure:
        hint += f", which is required by [plugins.{name}] in settings.toml: `anyplug show {name}` shows its state"
    return Verdict(allowed=False, by=by, reason=ruling.reason, hint=hint)


def _keep(verdict: Verdict, trail: CallState) -> None:
    """Record a verdict; raises Denied if it is a refusal."""
    record = trail.record
    record.verdict = "allowed" if verdict.allowed else "denied"
    record.by, record.reason = verdict.by, verdict.reason
    if verdict.warning:
        trail.warnings += (verdict.warning,)
    if not verdict.allowed:
        raise Denied(verdict.by, verdict.reason, verdict.hint)
