"""Try policies on events without an agent, to test, explain and replay them. Signals are passed in, not run."""

from typing import Any, Final

import msgspec

from anyplug.policy import policy_files
from anyplug.policy.agent_events import BadEvent, Event
from anyplug.policy.agent_events import read as read_event
from anyplug.policy.authoring.policy_lint import ARGUMENTS, CLOSE, KEYS
from anyplug.policy.decisions import Decision
from anyplug.policy.engine import Engine, build
from anyplug.policy.evaluation import Inquiry, Kept, Loaded, Options, Outcome
from anyplug.policy.policy_files import Source
from anyplug.policy.policy_set import Plan
from anyplug.policy.routing import Policy
from anyplug.policy.rulebook import meant
from anyplug.policy.signals import Answers

USUAL_SESSION: Final = "trial"
OF_BUILTINS: Final = "__builtin_"  # how names of builtins' own signals begin
FINAL: Final = "your own policies refused it before, and that is final"


class Routed(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, and whether an event concerns it."""

    policy: str
    file: str
    asked: bool
    why: str = ""  # if it does not


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one decision."""

    outcome: Outcome
    input: dict[str, Any]
    routed: tuple[Routed, ...]
    fired: tuple[str, ...]  # file:line of every body that held
    printed: tuple[str, ...] = ()  # by `print`
    failures: tuple[str, ...] = ()  # of Rego's builtins: their callers are undefined
    unanswered: tuple[str, ...] = ()  # signals that would have run


class Trial:
    """Policies as they were read, independent of the disk."""

    def __init__(
        self, source: Source, harness: str, whole: Source | None = None, protected: list[str] | None = None
    ) -> None:
        """Compile; raises RegoErrors."""
        self.harness = harness
        self.loaded: Loaded = build(source, whole, harness)
        self._kept = Kept()
        self._kept.loaded = self.loaded
        self.protected = protected

    def read(self, event: Any, folder: str) -> Event:
        """Read an event that may lack common fields. Raises BadEvent."""
        if not isinstance(event, dict):
            raise BadEvent("it must be a JSON object")
        return read_event(self.harness, completed(event, folder, self.harness))

    def refusal_by_eval(self, event: Any) -> str:
        """Return why `anyplug eval` refuses an event as passed; empty if it does not."""
        try:
            read_event(self.harness, event)
        except BadEvent as error:
            return str(error)
        return ""

    def decide(self, event: Event, signals: dict[str, Any] | None = None) -> Outcome:
        """Decide about it."""
        inquiry, answered = self._inquiry(event, signals)
        return inquiry.decided(answered)

    def explain(self, event: Event, signals: dict[str, Any] | None = None) -> Explained:
        """Decide about it, and explain the decision."""
        inquiry, answered = self._inquiry(event, signals)
        outcome = inquiry.decided(answered)
        routed: list[Routed] = []
        fired: dict[str, None] = {}
        printed: list[str] = []
        failures: dict[str, None] = {}
        seen: dict[str, Any] = dict(event.document)
        for layer in inquiry.layers:
            policies, config = layer.policies, layer.config
            plans = inquiry.plans(policies)
            concerned = {policy.name for plan, _ in plans for policy in plan.matched}
            if concerned and concerned.isdisjoint(outcome.matched):
                routed += [_passed_over(policy, FINAL) for policy in policies.policies]
                continue
            routed += [_routed(policy, event, [plan for plan, _ in plans]) for policy in policies.policies]
            for plan, document in plans:
                if plan.matched:
                    seen = given = inquiry.input(document, config, answered)
                    trace = policies.trace(plan, given)
                    fired.update(dict.fromkeys(f"{at.file}:{at.row}" for at in trace.fired))
                    printed += trace.printed
                    failures.update(dict.fromkeys(trace.failures))
        known = answered.values if answered is not None else {}
        return Explained(
            outcome=outcome,
            input=seen,
            routed=tuple(routed),
            fired=tuple(fired),
            printed=tuple(printed),
            failures=tuple(failures),
            unanswered=tuple(signal.name for _, signal in inquiry.signals if signal.name not in known),
        )

    def wrong_signals(self, signals: dict[str, Any] | None) -> str:
        """Return why an answer is of no use, since no policy would be given it; empty if each is."""
        sets = [each for each in (self.loaded.project, self.loaded.whole) if each is not None]
        required = {name for each in sets for policy in each.policies for name in policy.route.signals}
        sources = [each for each in (self.loaded.source, self.loaded.whole_source) if each is not None]
        defined = {name for each in sources for name in each.signals}
        for name in signals or {}:
            if name.startswith(OF_BUILTINS) or name in required:
                continue
            if name in defined:
                return f"no policy has the signal `{name}` in required_signals, so it never runs"
            return f"there is no signal `{name}`{meant(name, sorted(required | defined))}"
        return ""

    def _inquiry(self, event: Event, signals: dict[str, Any] | None) -> tuple[Inquiry, Answers | None]:
        inquiry = Inquiry(event, self._kept, Options(), self.protected, None)
        if signals is None and not inquiry.signals:
            return inquiry, None
        required = {signal.name for _, signal in inquiry.signals} | {name for name, _ in inquiry.unknown}
        given = {name: value for name, value in (signals or {}).items() if name in required}
        inquiry.unknown = [(name, file) for name, file in inquiry.unknown if name not in given]
        return inquiry, Answers(given)


def of_place(engine: Engine, root: str, harness: str, options: Options, *, alone: bool = False) -> Trial:
    """Return a trial of the policies that apply in a place, or of its own `alone`. Raises RegoErrors."""
    if alone:
        return Trial(policy_files.read(root, harness), harness, None, engine.protected(root))
    whole = policy_files.read_own(engine.global_root(options, harness), harness)
    return Trial(policy_files.read(root, harness), harness, whole, engine.protected(root))


def in_force(
    engine: Engine, root: str, event: Event, given: dict[str, Any], signals: dict[str, Any] | None, options: Options
) -> Decision:
    """Decide as `anyplug eval` does now: what was accepted decides too. Raises NoPolicies.

    Signals are answered with `signals`, except for those that may not run yet.
    """
    inquiry = engine.inquire(event.harness, given, msgspec.structs.replace(options, policy_dir=root))
    answered = None
    if signals is not None or inquiry.has_signals:
        known = signals or {}
        answers = [Answers(known, one.untrusted) for one in (inquiry, *inquiry.outer)]
        answered = msgspec.structs.replace(answers[0], outer=tuple(answers[1:]))
        for one in (inquiry, *inquiry.outer):
            one.unknown = [(name, file) for name, file in one.unknown if name not in known]
    return inquiry.decided(answered).decision


def completed(event: dict[str, Any], folder: str, harness: str) -> dict[str, Any]:
    """Complete an event with what examples may omit."""
    made: dict[str, Any] = {"hook_event_name": "PreToolUse", "session_id": USUAL_SESSION, "cwd": folder, **event}
    if harness == "claude":
        made.setdefault("transcript_path", "")
    elif made["hook_event_name"] in {"PreToolUse", "PostToolUse"}:
        made.setdefault("args", {})
    return made


def misplaced(event: dict[str, Any], harness: str) -> str:
    """Return which key of an event is probably a mistake; empty if none is."""
    wanted, other = ("tool_input", "args") if harness == "claude" else ("args", "tool_input")
    for key in event:
        if wanted not in event and (key == other or key in ARGUMENTS):
            return f"write `{wanted}` instead of `{key}`" if key == other else f"`{key}` belongs in `{wanted}`"
        if key not in KEYS and (hint := meant(key, [name for name in KEYS if name not in event], CLOSE)):
            return f"events have no `{key}`{hint}"
    return ""


def _passed_over(policy: Policy, why: str) -> Routed:
    return Routed(policy=policy.name, file=policy.file, asked=False, why=why)


def _routed(policy: Policy, event: Event, plans: list[Plan]) -> Routed:
    asked = any(policy in plan.matched for plan in plans)
    why = "" if asked else policy.route.why_not(event.name, event.tool)
    if not asked and any(part in plan.asked for plan in plans for part in policy.parts):
        why += "; it was evaluated with those that the event concerns"
    return Routed(policy=policy.name, file=policy.file, asked=asked, why=why)
