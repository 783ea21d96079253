"""Requests of the daemon's clients, and of `anyplug eval` itself: an event in, what to print out.

    {"do": "eval", "harness": "opencode", "event": {...}}                  or the event as it was read, in "text"
        "policy_dir", "global_config", "strict", "cache", "debug"          as the options of `anyplug eval`
    {"exit": 0, "decision": {...}, "said": [...], "rules": [{"rule_id", "severity", "verb", "reason", "file", "row"}],
     "verb": "deny", "cached": false}

Without a decision (`null`) there is an exit code other than 0, and `said` tells why: the caller must refuse.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.home.settings import PolicySettings
from anyplug.policy import agent_replies
from anyplug.policy.agent_events import BadEvent, Event, parse
from anyplug.policy.decisions import Decision
from anyplug.policy.engine import Engine, NoPolicies
from anyplug.policy.evaluation import Inquiry, Options, Outcome
from anyplug.policy.event_log import Recordings, without_secrets
from anyplug.policy.shell.reading_time import TooSlow

if TYPE_CHECKING:
    from anyplug.policy.signals import RunSignal

REFUSING = frozenset({"halt", "deny", "block"})
LONGEST_SHOWN = 300  # characters of a command or path in the audit


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a tool of an agent's own, for the audit."""

    harness: str
    session: str
    project: str
    tool: str
    arguments: Any
    verb: str  # as policies call it; empty if there is no decision, which refuses
    by: str
    reason: str
    notes: tuple[str, ...] = ()


RecordDecision = Callable[[Decided], str]  # returns a warning if it could not be recorded


def desk(
    home: str, settings: PolicySettings, record: RecordDecision | None, run: "RunSignal | None" = None
) -> "EvalRequests":
    """Return a desk for these settings; `record` writes decisions to the audit, `run` runs signals.

    Without `record` nothing is kept, also not for `replay`.
    """
    engine = Engine(home, run=run, self_protection=settings.self_protection, signals=settings.signals)
    if record is None:
        return EvalRequests(engine)
    return EvalRequests(engine, Recordings(home, settings.record_days), record)


class EvalRequests:
    """Handles requests with one engine."""

    def __init__(
        self, engine: Engine, recordings: Recordings | None = None, record: RecordDecision = lambda _: ""
    ) -> None:
        self._engine = engine
        self._recordings = recordings
        self._record = record

    async def answer(
        self,
        request: dict[str, Any],
        *,
        cwd: str = "",
        environment: dict[str, str] | None = None,
        heard: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Answer a request; never raises because of its content."""
        opened = self.open(request, cwd=cwd, environment=environment, heard=heard)
        if isinstance(opened, dict):
            return opened
        return self.close(request, opened, await opened.ask_signals() if opened.has_signals else None)

    def open(
        self,
        request: dict[str, Any],
        *,
        cwd: str = "",
        environment: dict[str, str] | None = None,
        heard: Callable[[], None] = lambda: None,
    ) -> "Inquiry | dict[str, Any]":
        """Begin a request: return what it is about, or the answer if that is already certain.

        `heard` is called if it is about an event: a caller that sends none is no agent.
        """
        harness = str(request.get("harness", ""))
        event: Any = None
        try:
            event = parse(request["text"]) if isinstance(request.get("text"), str | bytes) else request.get("event")
            opened = self._inquire(harness, event, request, cwd, environment)
        except BadEvent as error:
            return self._without(harness, event, [str(error)])
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent gets a refusal with its reason
            opened = self._failed(harness, event, error)
        heard()
        return opened

    def _inquire(
        self, harness: str, event: Any, request: dict[str, Any], cwd: str, environment: dict[str, str] | None
    ) -> "Inquiry | dict[str, Any]":
        options = Options(
            policy_dir=_text(request, "policy_dir"),
            global_config=_text(request, "global_config"),
            cwd=cwd,
            environment=environment,
            strict=request.get("strict") is True,
            cache=request.get("cache") is True,
        )
        try:
            inquiry = self._engine.inquire(harness, event, options)
        except NoPolicies as error:
            return self._without(harness, event, [*error.lines, f"hint: {error.hint}"])
        inquiry.given = event
        return inquiry

    def close(self, request: dict[str, Any], inquiry: Inquiry, answered: Any) -> dict[str, Any]:
        """Decide, and record the decision."""
        try:
            outcome = inquiry.decided(answered)
        except Exception as error:  # noqa: BLE001 - as in `open`
            return self._failed(inquiry.event.harness, inquiry.given, error)
        decision = outcome.decision
        if self._recordings is not None:
            signals = None if answered is None else answered.values
            self._recordings.add(inquiry.event.harness, inquiry.given, decision, signals)
        # What asks although no rule said so is not a policy's decision.
        is_told = decision.verb in REFUSING or decision.verb == "allow" or bool(decision.findings)
        is_about_tool = inquiry.event.name == "PreToolUse" or decision.verb in REFUSING
        warning = self._recorded(inquiry, decision) if is_told and is_about_tool else ""
        return {
            "exit": outcome.exit,
            "decision": outcome.answer,
            "said": [
                *outcome.said,
                *([warning] if warning else ()),
                *(_debug(inquiry, outcome, answered) if request.get("debug") is True else ()),
            ],
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

    def _recorded(self, inquiry: Inquiry, decision: Decision) -> str:
        event, finding = inquiry.event, decision.findings[0] if decision.findings else None
        place = f"{finding.file}:{finding.row}" if finding is not None and finding.file else ""
        return self._record(
            Decided(
                harness=event.harness,
                session=event.session,
                project=event.cwd,
                tool=event.tool or event.name,
                arguments=event.given_input,
                verb=decision.verb,
                by=f"policy:{finding.rule_id if finding is not None else ''} {place}".strip(),
                reason=decision.reason,
                notes=_notes(event, decision),
            )
        )

    def _failed(self, harness: str, event: Any, error: Exception) -> dict[str, Any]:
        """Refuse because of an error: as a decision, which `failMode: open` does not override."""
        said, hint = f"anyplug could not decide: {error}", "hint: reword the call"
        if not isinstance(error, TooSlow):
            said = f"anyplug could not decide because of an internal error ({type(error).__name__}: {error})"
            hint += "; please report this with the event that caused it"
        made = self._without(harness, event, [said, hint])
        name = _text(event, "hook_event_name") if isinstance(event, dict) else ""
        decision = Decision(verb="deny", reason=said)
        answer = agent_replies.answer(harness, name or "PreToolUse", decision)
        return {**made, "exit": agent_replies.exit_code(decision), "decision": answer, "verb": "deny"}

    def _without(self, harness: str, event: Any, lines: list[str]) -> dict[str, Any]:
        """Refuse because there is no decision."""
        given = event if isinstance(event, dict) else {}
        warning = self._record(
            Decided(
                harness=harness,
                session=_text(given, "session_id"),
                project=_text(given, "cwd"),
                tool=_text(given, "tool") or _text(given, "tool_name") or _text(given, "hook_event_name"),
                arguments=given.get("args", given.get("tool_input")),
                verb="",
                by="policy",
                reason=lines[0] if lines else "",
            )
        )
        return {
            "exit": agent_replies.failure_code(harness),
            "decision": None,
            "said": [*lines, *([warning] if warning else ())],
            "verb": "",
            "rules": [],
            "cached": False,
        }


def _notes(event: Event, decision: Decision) -> tuple[str, ...]:
    """Return what a call was about, and what a policy made of it, without secrets."""
    notes = [_shown(event.given_input)]
    if decision.verb == "modify":
        notes.append(f"changed to: {_shown(decision.updated_input)}")
    return tuple(notes)


def _shown(arguments: Any) -> str:
    """Return the command or the path among some arguments; of others, their names."""
    given = without_secrets(arguments) if isinstance(arguments, dict) else {}
    keys = ("command", "cmd", "file_path", "filePath", "path", "pattern", "url")
    text = next((given[key] for key in keys if isinstance(given.get(key), str)), ", ".join(given))
    return " ".join(text.split())[:LONGEST_SHOWN] or "-"


def _text(request: dict[str, Any], key: str) -> str:
    value = request.get(key)
    return value if isinstance(value, str) else ""


def _debug(inquiry: Inquiry, outcome: Outcome, answered: Any) -> list[str]:
    event = inquiry.event
    lines = [f"DEBUG: {event.name} {event.tool or '-'}: policies in {inquiry.loaded.source.root}"]
    lines += [f"DEBUG: matches {name}" for name in outcome.matched] or ["DEBUG: matches no policy"]
    lines += [
        f"DEBUG: {finding.file}:{finding.row}: {finding.verb} {finding.rule_id} ({finding.severity})"
        for finding in outcome.decision.findings
    ]
    for one in (answered, *answered.outer) if answered is not None else ():
        lines += _debug_signals(one.values, one.troubles) if one is not None else []
    return [*lines, f"DEBUG: {outcome.decision.verb}"]


def _debug_signals(values: dict[str, Any], troubles: dict[str, str]) -> list[str]:
    lines = []
    for name, value in values.items():
        failed = isinstance(value, dict) and value.get("success") is False and "exit_code" in value
        how = f"failed with exit code {value['exit_code']}: {value.get('error', '')}" if failed else "answered"
        lines.append(f"DEBUG: the signal '{name}' {how}")
    return lines + [f"DEBUG: the signal '{name}' did not answer: {why}" for name, why in troubles.items()]
