"""Requests of the resident host's clients, and of `anyplug eval` itself: an event in, what is to be printed out.

    {"do": "eval", "harness": "opencode", "event": {...}}                  or the event as it was read, in "text"
        "policy_dir", "global_config", "strict", "cache", "debug"          as the options of `anyplug eval`
    {"exit": 0, "decision": {...}, "said": [...], "rules": [{"rule_id", "severity", "verb", "reason", "file", "row"}],
     "verb": "deny", "cached": false}

Without a decision (`null`) there is an exit code other than 0, and `said` says why: whoever asked must refuse.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anyplug.policy import answers
from anyplug.policy.engine import Engine, NoPolicies
from anyplug.policy.events import BadEvent, parse
from anyplug.policy.inquiry import Inquiry, Options, Outcome
from anyplug.policy.recording import Recordings
from anyplug.settings import PolicySettings

if TYPE_CHECKING:
    from anyplug.policy.signals import RunSignal


def desk(home: str, settings: PolicySettings, run: "RunSignal | None" = None) -> "Desk":
    """Give a desk as the person set it; `run` runs signals."""
    engine = Engine(home, run=run, self_protection=settings.self_protection, signals=settings.signals)
    return Desk(engine, Recordings(home, settings.record_days))


class Desk:
    """Takes requests for one engine."""

    def __init__(self, engine: Engine, recordings: Recordings | None = None) -> None:
        self._engine = engine
        self._recordings = recordings

    async def answer(
        self, request: dict[str, Any], *, cwd: str = "", environment: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Answer one; never raises for what is in it."""
        opened = self.open(request, cwd=cwd, environment=environment)
        if isinstance(opened, dict):
            return opened
        return self.close(request, opened, await opened.ask_signals() if opened.signals else None)

    def open(
        self, request: dict[str, Any], *, cwd: str = "", environment: dict[str, str] | None = None
    ) -> "Inquiry | dict[str, Any]":
        """Begin with a request: what it is about, or the answer if that is already certain."""
        harness = str(request.get("harness", ""))
        try:
            event = parse(request["text"]) if isinstance(request.get("text"), str | bytes) else request.get("event")
            options = Options(
                policy_dir=_text(request, "policy_dir"),
                global_config=_text(request, "global_config"),
                cwd=cwd,
                environment=environment,
                strict=request.get("strict") is True,
                cache=request.get("cache") is True,
            )
            inquiry = self._engine.inquire(harness, event, options)
        except BadEvent as error:
            return _without(harness, [str(error)])
        except NoPolicies as error:
            return _without(harness, [*error.lines, f"hint: {error.hint}"])
        inquiry.given = event
        return inquiry

    def close(self, request: dict[str, Any], inquiry: Inquiry, answered: Any) -> dict[str, Any]:
        """Decide, and record what was decided."""
        outcome = inquiry.decided(answered)
        decision = outcome.decision
        if self._recordings is not None:
            signals = None if answered is None else answered.values
            self._recordings.add(inquiry.event.harness, inquiry.given, decision, signals)
        return {
            "exit": outcome.exit,
            "decision": outcome.answer,
            "said": [*outcome.said, *(_debug(inquiry, outcome) if request.get("debug") is True else ())],
            "verb": decision.verb,
            "rules": [
                {
                    "rule_id": finding.rule_id,
                    "severity": finding.severity,
                    "verb": finding.verb,
                    "reason": finding.reason,
                    "file": finding.file,
                    "row": finding.row,
                }
                for finding in decision.findings
            ],
            "cached": outcome.was_cached,
        }


def _text(request: dict[str, Any], key: str) -> str:
    value = request.get(key)
    return value if isinstance(value, str) else ""


def _without(harness: str, lines: Iterable[str]) -> dict[str, Any]:
    return {
        "exit": answers.failure_code(harness),
        "decision": None,
        "said": list(lines),
        "verb": "",
        "rules": [],
        "cached": False,
    }


def _debug(inquiry: Inquiry, outcome: Outcome) -> list[str]:
    event = inquiry.event
    lines = [f"DEBUG: {event.name} {event.tool or '-'}: policies in {inquiry.loaded.source.root}"]
    lines += [f"DEBUG: concerns {name}" for name in outcome.matched] or ["DEBUG: concerns no policy"]
    lines += [
        f"DEBUG: {finding.file}:{finding.row}: {finding.verb} {finding.rule_id} ({finding.severity})"
        for finding in outcome.decision.findings
    ]
    return [*lines, f"DEBUG: {outcome.decision.verb}"]
