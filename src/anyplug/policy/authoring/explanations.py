"""Why an event is decided as it is, as JSON for the command line and the console."""

from typing import Any

import msgspec

from anyplug.model.errors import UsageError
from anyplug.policy.agent_events import BadEvent
from anyplug.policy.authoring.project_policies import ProjectPolicies
from anyplug.policy.authoring.trial import Explained, misplaced
from anyplug.policy.decisions import Decision


def shape(harness: str, explained: Explained, refusal: str, now: Decision | None) -> dict[str, Any]:
    """Return an explanation. `refusal` is why `anyplug eval` refuses the event; `now` is what is in force."""
    outcome, decision = explained.outcome, explained.outcome.decision
    return {
        "harness": harness,
        "decision": decision.verb,
        "reason": decision.reason,
        "answer": outcome.answer,
        "cacheable": outcome.is_cacheable,
        "findings": decision.findings,
        "context": decision.context,
        "fired": explained.fired,
        "printed": explained.printed,
        "failures": explained.failures,
        "policies": explained.routed,
        "signals_unanswered": explained.unanswered,
        "eval_refuses": refusal,
        "in_force": {"decision": now.verb, "reason": now.reason} if now is not None else None,
        "input": explained.input,
    }


def explain(place: ProjectPolicies, harness: str, given: Any, signals: dict[str, Any] | None) -> dict[str, Any]:
    """Decide about an event, and explain the decision, with notes for the person. Raises UsageError or ConfigError."""
    trial = place.trial_here(harness or place.harness())
    try:
        event = trial.read(given, place.folder)
        explained = trial.explain(event, signals)
    except BadEvent as error:
        raise UsageError(
            f"this is not an event of {trial.harness}: {error}", "see the reference of policies"
        ) from error
    now = place.in_force(event, given, signals)
    said = [*explained.outcome.said, misplaced(given, trial.harness), trial.wrong_signals(signals)]
    found = shape(trial.harness, explained, trial.refusal_by_eval(given), now)
    return {**msgspec.to_builtins(found), "notes": [line for line in said if line]}
