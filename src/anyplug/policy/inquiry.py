"""One event on its way to a decision: which policies it concerns, which signals it needs, what comes of it."""

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from anyplug.policy import answers, builtins, own_files
from anyplug.policy.decisions import ALLOW, SIGNAL_RULE, Decision, Finding, applied, decide
from anyplug.policy.events import Event
from anyplug.policy.policy_set import Found, Plan, PolicySet
from anyplug.policy.sources import Source

if TYPE_CHECKING:
    from anyplug.policy.routing import Policy
    from anyplug.policy.rulebook import Signal
    from anyplug.policy.signals import Answers
    from anyplug.runtime.program import Run

UNTRUSTED: Final = "this project is not `trusted` under [policy] in settings.toml, so its commands do not run"
UNDEFINED: Final = "the rulebook has no such signal"
MOST_DECISIONS: Final = 1024  # that are remembered of one place
PASSING: Final = ("call_id", "message_id", "tool_use_id", "timestamp", "transcript_path")  # other with each event


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an event."""

    decision: Decision
    answer: dict[str, Any]
    exit: int = 0
    said: tuple[str, ...] = ()  # for stderr
    matched: tuple[str, ...] = ()  # the policies that it concerned
    is_cacheable: bool = False
    was_cached: bool = False


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How an event is looked at."""

    policy_dir: str = ""  # in place of looking upwards from the event's folder
    global_config: str = ""  # in place of the person's usual one
    cwd: str = ""  # where policies are looked for if there are none around the event's folder
    environment: dict[str, str] | None = None  # of signals; else this process's
    strict: bool = False
    cache: bool = False
    is_open: bool = False  # a policy that cannot decide lets pass, with a warning
    trusted: frozenset[str] | None = None  # projects whose signals may run; None: all


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of one place for one agent, and the person's own."""

    source: Source
    project: PolicySet
    whole: PolicySet | None = None  # the person's own, for all projects
    whole_source: Source | None = None
    builtin_config: dict[str, Any] = {}  # of the project phase

    @property
    def digest(self) -> str:
        """What stands for all of it."""
        return self.project.digest + (self.whole.digest if self.whole else "")

    @property
    def is_fresh(self) -> bool:
        """Whether nothing changed on disk."""
        return self.source.is_fresh and (self.whole_source is None or self.whole_source.is_fresh)


class Kept:
    """One place, as it was when it was last looked at."""

    def __init__(self) -> None:
        self.loaded: Loaded | None = None
        self.stamps: list[Source] = []
        self.trouble: tuple[str, ...] = ()
        self.looked = 0.0
        self.decisions: OrderedDict[bytes, Outcome] = OrderedDict()


class Inquiry:
    """One event on its way to a decision: what it concerns, which signals it needs, what comes of it."""

    def __init__(
        self, event: Event, kept: Kept, options: Options, protected: list[str] | None, run: "Run | None"
    ) -> None:
        assert kept.loaded is not None
        self.event = event
        self.given: Any = None  # the event as it came, for those who keep it
        self.loaded = kept.loaded
        self._kept = kept
        self._options = options
        self._run = run
        self.parts = [(event.tool, event.document), *event.views]
        self.signals: list[tuple[Source, Signal]] = []
        self.unknown: list[tuple[str, str]] = []
        self.own = None if protected is None else own_files.finding(event, protected)
        if self.own is None:
            self._gather_signals()

    def plans(self, policies: PolicySet) -> list[tuple[Plan, dict[str, Any]]]:
        """Give what is asked of a set, for the event and for each part of it that policies know as a tool."""
        return [(policies.plan(self.event.name, tool), document) for tool, document in self.parts]

    def sets(self) -> list[tuple[PolicySet, Source, dict[str, Any]]]:
        """Give the sets that decide, the person's own first, each with the settings of builtins that it sees."""
        loaded = self.loaded
        found: list[tuple[PolicySet, Source, dict[str, Any]]] = []
        if loaded.whole is not None and loaded.whole_source is not None:
            found.append((loaded.whole, loaded.whole_source, loaded.whole_source.builtin_config))
        return [*found, (loaded.project, loaded.source, loaded.builtin_config)]

    def _gather_signals(self) -> None:
        known: dict[str, None] = {}
        for policies, source, config in self.sets():
            matched = [policy for plan, _ in self.plans(policies) for policy in plan.matched]
            for policy in matched:
                for name in policy.route.signals:
                    signal = source.signals.get(name)
                    if signal is None:
                        self.unknown.append((name, policy.file))
                    elif name not in known:
                        known[name] = None
                        self.signals.append((source, signal))
            if config and any(policy.builtin for policy in matched):
                parts = [self.event, *(_as_event(self.event, tool, view) for tool, view in self.event.views)]
                for signal in (signal for part in parts for signal in builtins.signals(config, part)):
                    if signal.name not in known:
                        known[signal.name] = None
                        self.signals.append((source, signal))

    async def ask_signals(self) -> "Answers":
        """Run the signals that are needed, and that may run."""
        from anyplug.policy import running  # with anyio and processes: only where there are signals

        trusted = self._options.trusted
        refused = {
            signal.name: UNTRUSTED
            for source, signal in self.signals
            if trusted is not None and not source.is_global and os.path.realpath(source.project) not in trusted
        }
        wanted = [(source, signal) for source, signal in self.signals if signal.name not in refused]
        answered = await running.ask(wanted, self.event, self._options.environment, self._run)
        return msgspec.structs.replace(answered, troubles={**answered.troubles, **refused})

    def decided(self, answered: "Answers | None" = None) -> Outcome:
        """Decide."""
        said = [f"{line} (the last good policies are in force)" for line in self._kept.trouble]
        if self.own is not None:
            return self._outcome(decide([self.own]), [], said, is_pure=False)
        key = self._key() if self._options.cache and not self.signals and self.is_pure else b""
        known = self._kept.decisions.get(key) if key else None
        if known is not None:
            self._kept.decisions.move_to_end(key)
            return msgspec.structs.replace(known, said=(*said, *known.said), was_cached=True)
        decision, matched, warnings = self._decision(answered)
        outcome = self._outcome(decision, matched, warnings, is_pure=self.is_pure and not self.signals)
        if key:
            self._kept.decisions[key] = outcome
            if len(self._kept.decisions) > MOST_DECISIONS:
                self._kept.decisions.popitem(last=False)
        return msgspec.structs.replace(outcome, said=(*said, *outcome.said)) if said else outcome

    @property
    def is_pure(self) -> bool:
        """Whether the decision depends on the event alone."""
        return all(
            plan.is_pure or not plan.matched for policies, _, _ in self.sets() for plan, _ in self.plans(policies)
        )

    def _key(self) -> bytes:
        """Give what stands for policies and input, without what each event has anew and no policy reads."""
        ignored = {name for name in PASSING if not any(policies.reads(name) for policies, _, _ in self.sets())}
        document = {key: value for key, value in self.event.document.items() if key not in ignored}
        return self.loaded.digest.encode() + msgspec.json.encode(
            [document, self._looks(self.event), self._options.strict, self._options.is_open], order="deterministic"
        )

    def _looks(self, event: Event) -> dict[str, Any]:
        return builtins.look(self.loaded.builtin_config, event) if self.loaded.builtin_config else {}

    def _decision(self, answered: "Answers | None") -> tuple[Decision, list[str], list[str]]:
        """Ask the person's own policies first: their no is final; else both together decide."""
        findings: list[Finding] = []
        context: list[str] = []
        warnings: list[str] = []
        names: list[str] = []
        for policies, source, config in self.sets():
            plans = self.plans(policies)
            matched = list(dict.fromkeys(policy for plan, _ in plans for policy in plan.matched))
            if not matched:
                continue
            names += [policy.name for policy in matched]
            findings += self._signal_findings(matched, answered, warnings)
            for plan, document in plans:
                if plan.matched:
                    found = self.found(policies, plan, document, config, answered)
                    findings += found.findings
                    context += found.context
                    warnings += found.warnings
            if self._options.is_open:
                warnings += [
                    f"{finding.reason} (let pass: fail_mode is open)" for finding in findings if finding.is_failure
                ]
                findings = [finding for finding in findings if not finding.is_failure]
            if source.is_global and (decision := decide(findings, context)).refuses:
                return decision, names, warnings
        decision = decide(findings, context)
        if decision is ALLOW and self.event.name == "PermissionRequest" and not names:
            decision = Decision(verb="ask", reason="no policy speaks of this permission")
        return decision, names, warnings

    def found(
        self,
        policies: PolicySet,
        plan: Plan,
        document: dict[str, Any],
        config: dict[str, Any],
        answered: "Answers | None",
    ) -> Found:
        """Evaluate one plan on the input as policies see it."""
        return policies.findings(plan, self.input(document, config, answered))

    def input(self, document: dict[str, Any], config: dict[str, Any], answered: "Answers | None") -> dict[str, Any]:
        """Give the input as policies see it."""
        if not config and answered is None:
            return document
        made = {**document, **self._looks(self.event)}
        if config:
            made["builtin_config"] = config
        if answered is not None:
            made["signals"] = answered.values
        return made

    def _signal_findings(
        self, matched: "list[Policy]", answered: "Answers | None", warnings: list[str]
    ) -> list[Finding]:
        """Refuse where a policy that can refuse was not given what it asked for."""
        if answered is None and not self.unknown:
            return []
        troubles = dict(answered.troubles) if answered else {}
        troubles |= {name: UNDEFINED for name, _ in self.unknown}
        found: list[Finding] = []
        for policy in matched:
            asked = [name for name in troubles if name in policy.route.signals]
            asked += [name for name in troubles if name.startswith("__builtin_") and policy.builtin]
            for trouble in dict.fromkeys(troubles[name] for name in asked):
                names = [f"'{name}'" for name in asked if troubles[name] == trouble]
                reason = f"the signal{'s' if len(names) > 1 else ''} {', '.join(names)} gave no answer: {trouble}"
                if not policy.can_refuse:
                    warnings.append(f"{policy.file}: {reason}")
                else:
                    found.append(
                        Finding(
                            verb="deny",
                            reason=f"{policy.file} could not decide: {reason}",
                            rule_id=SIGNAL_RULE,
                            policy=policy.name,
                            file=policy.file,
                            row=1,
                            is_failure=True,
                            cure=self._cure(trouble),
                        )
                    )
        return found

    def _cure(self, trouble: str) -> str:
        if trouble == UNTRUSTED:
            project = msgspec.json.encode(os.path.realpath(self.loaded.source.project)).decode()
            return f"`trusted = [{project}]` under [policy] in settings.toml lets them run"
        if trouble == UNDEFINED:
            return "`anyplug policy validate` names the policies that ask for it"
        return "run its command by hand, in the project's folder: it is in the rulebook"

    def _outcome(self, decision: Decision, matched: list[str], said: list[str], *, is_pure: bool) -> Outcome:
        if decision.verb == "modify" and decision.updated_input is not None:
            given = self.event.given_input
            if isinstance(given, dict):
                decision = msgspec.structs.replace(decision, updated_input=applied(decision.updated_input, given))
        return Outcome(
            decision=decision,
            answer=answers.answer(self.event.harness, self.event.name, decision),
            exit=answers.exit_code(decision, strict=self._options.strict),
            said=tuple(said),
            matched=tuple(dict.fromkeys(matched)),
            is_cacheable=is_pure,
        )


def _as_event(event: Event, tool: str, document: dict[str, Any]) -> Event:
    return msgspec.structs.replace(event, tool=tool, document=document, views=())
