"""One event on its way to a decision: which policies it concerns, which signals it needs, and the outcome.

Up to three layers of policies decide, and the strictest verb wins: the user's own, then those of the project that a
person accepted, if the project's files differ from them, then the files as they are. What a layer refuses or asks
always counts. Its changes of calls, its context and its commands count only if a person trusts it. If one `.cupcake` is
inside the folder of another, each is a separate inquiry, and the strictest verb wins again.
"""

import os
import shlex
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from anyplug.policy import agent_replies, builtins, self_protection
from anyplug.policy.accepted_copies import TRUST, Acceptance
from anyplug.policy.agent_events import Event
from anyplug.policy.decisions import ALLOW, JUDGING, SIGNAL_RULE, Decision, Finding, applied, decide
from anyplug.policy.policy_files import Source
from anyplug.policy.policy_set import Found, Plan, PolicySet
from anyplug.policy.shell import reading_time

if TYPE_CHECKING:
    from anyplug.policy.routing import Policy
    from anyplug.policy.rulebook import Signal
    from anyplug.policy.signals import Answers, RunSignal

UNTRUSTED: Final = "you have not trusted this project's commands"
UNTRUSTED_OWN: Final = "you have not trusted the commands of your own policies"
TRUST_OWN: Final = f"`{TRUST} --global`"
LOST_RULE: Final = "POLICY_COPY_GONE"
SWITCHED_OFF: Final = "signals are disabled in settings.toml"
GONE: Final = "its script is missing"
NOBODY_RUNS: Final = "signals do not run here"
UNDEFINED: Final = "the rulebook has no such signal"
EXPECTED: Final = frozenset({UNTRUSTED, UNTRUSTED_OWN, SWITCHED_OFF, NOBODY_RUNS, UNDEFINED})  # not failures
MOST_DECISIONS: Final = 1024  # cached per place
PASSING: Final = ("call_id", "message_id", "tool_use_id", "timestamp", "transcript_path")  # different in each event


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an event."""

    decision: Decision
    answer: dict[str, Any]
    exit: int = 0
    said: tuple[str, ...] = ()  # for stderr
    matched: tuple[str, ...] = ()  # the policies that it concerned
    is_cacheable: bool = False
    was_cached: bool = False


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How an event is evaluated."""

    policy_dir: str = ""  # instead of searching upwards from the event's folder
    global_config: str = ""  # instead of the user's default one
    cwd: str = ""  # where policies are searched if there are none around the event's folder
    environment: dict[str, str] | None = None  # for signals; default: this process's
    strict: bool = False
    cache: bool = False
    is_open: bool = False  # a policy that fails lets the call pass, with a warning


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of one place for one agent, and the user's own."""

    source: Source
    project: PolicySet
    whole: PolicySet | None = None  # the user's own, for all projects
    whole_source: Source | None = None
    held: PolicySet | None = None  # what a person accepted, if the project's files differ from it
    acceptance: Acceptance | None = None  # None: everything counts, as in a trial
    builtin_config: dict[str, Any] = {}  # of the project phase
    is_own_trusted: bool = True  # the user's own policies are as trusted
    is_lost: bool = False  # a copy was accepted, but is gone

    @property
    def digest(self) -> str:
        """The digest of all of it."""
        digests = [each.digest for each in (self.project, self.whole, self.held) if each is not None]
        return "".join([*digests, f"{self.is_trusted:d}{self.is_own_trusted:d}{self.is_lost:d}"])

    @property
    def is_trusted(self) -> bool:
        """Whether a person trusts the project with its present files."""
        return self.acceptance is None or (self.acceptance.is_trusted and self.acceptance.source is None)

    @property
    def is_gone(self) -> bool:
        """Whether the project's `.cupcake` no longer exists, and only what was accepted decides."""
        return self.held is not None and self.source.stamps.get(self.source.root, 0) is None


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One set of policies that decides."""

    policies: PolicySet
    source: Source
    config: dict[str, Any]  # of builtins, as it sees them
    is_trusted: bool = True
    is_held: bool = False


class Kept:
    """One place, as it was when last checked."""

    def __init__(self) -> None:
        self.loaded: Loaded | None = None
        self.stamps: list[Source | Acceptance] = []
        self.trouble: tuple[str, ...] = ()
        self.looked = 0.0
        self.decisions: OrderedDict[bytes, Outcome] = OrderedDict()


class Inquiry:
    """One event on its way to a decision: what it concerns, which signals it needs, and the outcome."""

    def __init__(
        self,
        event: Event,
        kept: Kept,
        options: Options,
        protected: list[str] | None,
        run: "RunSignal | None",
        *,
        signals: bool = True,
        outer: Sequence[Kept] = (),
    ) -> None:
        """`outer` are the policies of parent folders, which decide as well."""
        assert kept.loaded is not None
        self.event = event
        self.given: Any = None  # the original event, for recording
        self.changed: Callable[[Any], Inquiry] | None = None  # evaluates the same call with other arguments
        self.used_s = 0.0  # of the time to read commands
        self.loaded = kept.loaded
        self._kept = kept
        self._options = options
        self.run = run  # runs signals; may be set before `ask_signals`
        self._may_run = signals
        self.parts = [(event.tool, event.document), *event.views]
        self.signals: list[tuple[Source, Signal]] = []
        self.unknown: list[tuple[str, str]] = []
        self.own = None if protected is None else self_protection.finding(event, protected)
        self._looked: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.layers = self._layers()
        self._gather_signals()
        self.outer = [Inquiry(event, one, options, None, run, signals=signals) for one in outer]

    @property
    def has_signals(self) -> bool:
        """Whether signals must run before the decision."""
        return bool(self.signals) or any(one.signals for one in self.outer)

    def plans(self, policies: PolicySet) -> list[tuple[Plan, dict[str, Any]]]:
        """Return what a set is asked, for the event and for each part of it that policies know as a tool."""
        return [(policies.plan(self.event.name, tool), document) for tool, document in self.parts]

    def _layers(self) -> list[Layer]:
        """List what decides: the user's own policies first, then what is trusted."""
        loaded = self.loaded
        found: list[Layer] = []
        own: dict[str, Any] = {}
        if loaded.whole is not None and loaded.whole_source is not None:
            own = loaded.whole_source.builtin_config
            trusted = loaded.is_own_trusted
            found.append(Layer(policies=loaded.whole, source=loaded.whole_source, config=own, is_trusted=trusted))
        if loaded.held is not None and loaded.acceptance is not None and loaded.acceptance.source is not None:
            held = loaded.acceptance.source
            config = {**held.builtin_config, **own}
            trusted = loaded.acceptance.is_trusted
            found.append(Layer(policies=loaded.held, source=held, config=config, is_trusted=trusted, is_held=True))
        project = Layer(
            policies=loaded.project, source=loaded.source, config=loaded.builtin_config, is_trusted=loaded.is_trusted
        )
        return [*found, project]

    def _gather_signals(self) -> None:
        known: dict[str, None] = {}
        for layer in self.layers:
            matched = [policy for plan, _ in self.plans(layer.policies) for policy in plan.matched]
            for policy in matched:
                for name in policy.route.signals:
                    signal = layer.source.signals.get(name)
                    if signal is None:
                        self.unknown.append((name, policy.file))
                    elif name not in known:
                        known[name] = None
                        self.signals.append((layer.source, signal))
            if layer.config and any(policy.builtin for policy in matched):
                for signal in self._of_builtins(layer.config):
                    if signal.name not in known:
                        known[signal.name] = None
                        self.signals.append((layer.source, signal))

    def _of_builtins(self, config: dict[str, Any]) -> "list[Signal]":
        parts = [self.event, *(_as_event(self.event, tool, view) for tool, view in self.event.views)]
        return [signal for part in parts for signal in builtins.signals(config, part)]

    def _refused(self) -> dict[str, str]:
        """Return which signals may not run, and why."""
        if not self._may_run or self.run is None:
            return {signal.name: NOBODY_RUNS if self._may_run else SWITCHED_OFF for _, signal in self.signals}
        return self.untrusted

    @property
    def untrusted(self) -> dict[str, str]:
        """The signals that nobody has accepted in their present form, or that are gone, and why they may not run.

        A project's commands run as a person was shown them. If a file has another signal of the same name than what was
        accepted, neither runs: one answer would stand for two commands.
        """
        acceptance = self.loaded.acceptance
        shown: set[tuple[str, str, float]] = set()
        own = self.loaded.whole_source.builtin_config if self.loaded.whole_source is not None else {}
        planted: dict[str, str] = {}
        if not self.loaded.is_own_trusted:
            unseen = {signal.identity for signal in self._of_builtins(own)}
            planted = {
                signal.name: UNTRUSTED_OWN
                for source, signal in self.signals
                if source.is_global or signal.identity in unseen
            }
            own = {}
        if self.loaded.is_trusted:
            return planted
        if acceptance is not None and acceptance.is_trusted and acceptance.source is not None:
            shown = {signal.identity for signal in acceptance.source.signals.values()}
            shown |= {signal.identity for signal in self._of_builtins({**acceptance.source.builtin_config, **own})}
        shown |= {signal.identity for signal in self._of_builtins(own)}
        now = [*self.loaded.source.signals.values(), *self._of_builtins(self.loaded.builtin_config)]
        altered = {signal.name for signal in now if signal.identity not in shown}
        there = {signal.identity for signal in now}
        refused = {
            signal.name: UNTRUSTED
            for source, signal in self.signals
            if not source.is_global and (signal.identity not in shown or signal.name in altered)
        }
        # Scripts run from the project's folder: a missing one would answer with a failure, and not refuse.
        gone = {signal.name: GONE for _, signal in self.signals if signal.digest and signal.identity not in there}
        return {**{name: why for name, why in gone.items() if not self._is_own(name)}, **refused, **planted}

    def _is_own(self, name: str) -> bool:
        return any(source.is_global for source, signal in self.signals if signal.name == name)

    async def ask_signals(self) -> "Answers":
        """Run the signals that are needed and may run."""
        answered = await self._ask_own_signals()
        for one in self.outer:
            one.run = self.run
        outer = [await one.ask_signals() if one.signals else None for one in self.outer]
        return msgspec.structs.replace(answered, outer=tuple(outer))

    async def _ask_own_signals(self) -> "Answers":
        from anyplug.policy import signals  # imports anyio, only for signals

        refused = self._refused()
        record = self.loaded.acceptance.record if self.loaded.acceptance is not None else None
        errands = [
            signals.SignalRequest(
                signal=signal,
                folder=self._folder(source),
                project="" if source.is_global else source.project,
                unconfined=record is not None and record.unconfined,
            )
            for source, signal in self.signals
            if signal.name not in refused
        ]
        if self.run is None or not errands:
            return signals.Answers({}, refused)
        given = dict(os.environ) if self._options.environment is None else self._options.environment
        answered = await signals.ask(errands, self.event.document, given, self.run)
        return msgspec.structs.replace(answered, troubles={**answered.troubles, **refused})

    def _folder(self, source: Source) -> str:
        folder = self.event.cwd if source.is_global else source.project
        return folder if os.path.isdir(folder) else source.root

    def decided(self, answered: "Answers | None" = None) -> Outcome:
        """Decide. Raises TooSlow."""
        with reading_time.limited(self.used_s):
            return self._decided(answered)

    def _decided(self, answered: "Answers | None") -> Outcome:
        said = self.state
        key = self._key() if self._options.cache and not self.has_signals and self.is_pure else b""
        known = self._kept.decisions.get(key) if key else None
        if known is not None:
            self._kept.decisions.move_to_end(key)
            return msgspec.structs.replace(known, said=(*said, *known.said), was_cached=True)
        decision, matched, warnings = self.strictest(answered)
        outcome = self._outcome(decision, matched, warnings, is_pure=self.is_pure and not self.has_signals)
        if key:
            self._kept.decisions[key] = outcome
            if len(self._kept.decisions) > MOST_DECISIONS:
                self._kept.decisions.popitem(last=False)
        return msgspec.structs.replace(outcome, said=(*said, *outcome.said)) if said else outcome

    @property
    def state(self) -> list[str]:
        """Messages for the person about the deciding policies."""
        said = [f"{line} (the last good policies are in force)" for line in self._kept.trouble]
        if self.loaded.is_gone:
            said.append(f"{self.loaded.source.root} is gone; the policies that you accepted decide ({self._trust()})")
        return said

    def strictest(self, answered: "Answers | None") -> tuple[Decision, list[str], list[str]]:
        """Decide with the nearest policies and those of parent folders: the strictest verb wins."""
        decision, names, warnings = self.decision(answered)
        for at, one in enumerate(self.outer):
            other, more, lines = one.decision(answered.outer[at] if answered is not None and answered.outer else None)
            names += more
            warnings += [*one.state, *lines]
            if not decision.findings and decision.verb != "allow":  # no policy covers a permission
                decision = other if other.findings else decision
            elif other.findings or other.context:
                findings, context = [*decision.findings, *other.findings], [*decision.context, *other.context]
                decision = decide(findings, context)
        return self._of_changed(decision, answered), names, warnings

    def _of_changed(self, decision: Decision, answered: "Answers | None") -> Decision:
        """Refuse a change of a call if the changed call would not be allowed."""
        given = self.event.given_input
        if decision.verb != "modify" or decision.updated_input is None or self.changed is None:
            return decision
        again = self.changed(applied(decision.updated_input, given) if isinstance(given, dict) else None)
        again.changed = None  # once is enough: a rule that changes every call would never end
        asked = {signal.identity for one in (self, *self.outer) for _, signal in one.signals}
        if all(signal.identity in asked for one in (again, *again.outer) for _, signal in one.signals):
            other, _, _ = again.strictest(answered)
            refusing = [one for one in other.findings if one.verb in JUDGING]
            reason = "the call as a policy changed it is refused: " + "; ".join(one.reason for one in refusing)
        else:
            refusing = [one for one in decision.findings if one.verb == "modify"]
            reason = "the call as a policy changed it needs signals that were not run for it"
        if not refusing:
            return decision
        return decide([msgspec.structs.replace(refusing[0], verb="deny", reason=reason, updated_input=None)], [])

    @property
    def is_pure(self) -> bool:
        """Whether the decision depends on the event alone."""
        return all(one.is_pure for one in self.outer) and all(
            plan.is_pure or not plan.matched for layer in self.layers for plan, _ in self.plans(layer.policies)
        )

    def _key(self) -> bytes:
        """Return the cache key of policies and input, without fields that always differ and that no policy reads."""
        layers = [layer for one in (self, *self.outer) for layer in one.layers]
        ignored = {name for name in PASSING if not any(layer.policies.reads(name) for layer in layers)}
        document = {key: value for key, value in self.event.document.items() if key not in ignored}
        digests = "".join(one.loaded.digest for one in (self, *self.outer))
        looks = [one.looks(layer.config) for one in (self, *self.outer) for layer in one.layers]
        return digests.encode() + msgspec.json.encode(
            [document, looks, self._options.strict, self._options.is_open], order="deterministic"
        )

    def looks(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return what builtins with these settings have to know beside the event, which is looked up once."""
        if not config:
            return {}
        known = next((looks for one, looks in self._looked if one is config), None)
        if known is None:
            known = builtins.look(config, self.event)
            self._looked.append((config, known))
        return known

    def decision(self, answered: "Answers | None") -> tuple[Decision, list[str], list[str]]:
        """Ask the user's own policies first: their refusal is final; otherwise all together decide.

        Return the decision of this place alone, the policies that were concerned, and warnings.
        """
        findings: list[Finding] = []
        held: list[Finding] = []
        context: list[str] = []
        warnings: list[str] = []
        names: list[str] = []
        for layer in self.layers:
            plans = [(plan, document) for plan, document in self.plans(layer.policies) if plan.matched]
            matched = list(dict.fromkeys(policy for plan, _ in plans for policy in plan.matched))
            names += [policy.name for policy in matched]
            given = self._signal_findings(matched, answered, warnings)
            for plan, document in plans:
                found = self.found(layer.policies, plan, document, layer.config, answered)
                given += [_of_part(finding, document) for finding in found.findings]
                context += self._context(layer, found.context, context, warnings)
                warnings += found.warnings
            (held if layer.is_held else findings).extend(self._counting(layer, given, held, warnings))
            if layer.source.is_global and (decision := decide(findings, context)).refuses:
                return decision, names, warnings
        if self.loaded.is_lost:
            findings.append(self._lost())
        decision = decide([*findings, *held], context)
        if self.own is not None and not decision.refuses:  # a refusal of the user's own keeps its reason
            decision = decide([self.own])
        elif held and decision.verb != decide(findings).verb and not self.loaded.is_gone:
            warnings.append(f"decided by policies that you accepted and that have changed since ({self._trust()})")
        elif decision is ALLOW and self.event.name == "PermissionRequest" and not names:
            decision = Decision(verb="ask", reason="no policy covers this permission")
        return decision, names, warnings

    def _lost(self) -> Finding:
        """Refuse because it is unknown what a person accepted."""
        project = self.loaded.source.project
        reason = f"the copy of the policies that you accepted in {project} is gone ({self._trust()} accepts them again)"
        return Finding(verb="deny", reason=reason, rule_id=LOST_RULE, cure=f"{self._trust()} accepts what is there now")

    def _counting(self, layer: Layer, given: list[Finding], held: list[Finding], warnings: list[str]) -> list[Finding]:
        """Return the findings of a layer, adjusted to its trust."""
        if not layer.is_trusted:
            given = [self._without_trust(layer, finding) for finding in given if not _is_known(finding, held)]
        if self._options.is_open:
            failures = [finding for finding in given if finding.is_failure]
            warnings += [f"{finding.reason} (allowed, because fail_mode is open)" for finding in failures]
            given = [finding for finding in given if not finding.is_failure]
        return given

    def _context(self, layer: Layer, given: tuple[str, ...], known: list[str], warnings: list[str]) -> tuple[str, ...]:
        """Return the context that counts."""
        if layer.is_trusted or all(text in known for text in given):
            return given
        warnings.append(f"context of {layer.source.root} is left out until you trust it ({self._trust(layer)})")
        return ()

    def _without_trust(self, layer: Layer, finding: Finding) -> Finding:
        """Refuse what an untrusted policy would change: the call must run neither unchanged nor changed."""
        if finding.verb != "modify":
            return finding
        cure = self._trust(layer)
        reason = f"{finding.file} would change this call, but you have not trusted it ({cure})"
        return msgspec.structs.replace(finding, verb="deny", reason=reason, updated_input=None, cure=cure)

    def _trust(self, layer: Layer | None = None) -> str:
        """Return the command that accepts policies, usable from any folder."""
        if layer is not None and layer.source.is_global:
            return TRUST_OWN
        return f"`{TRUST} {shlex.quote(self.loaded.source.project)}`"

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
        """Return the input as policies see it."""
        if not config and answered is None:
            return document
        made = {**document, **self.looks(config)}
        if config:
            made["builtin_config"] = config
        if answered is not None:
            made["signals"] = answered.values
        return made

    def _signal_findings(
        self, matched: "list[Policy]", answered: "Answers | None", warnings: list[str]
    ) -> list[Finding]:
        """Refuse if a policy that can refuse lacks a required signal."""
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
                reason = f"the signal{'s' if len(names) > 1 else ''} {', '.join(names)} did not answer: {trouble}"
                if trouble in {UNTRUSTED, UNTRUSTED_OWN}:
                    reason += f" ({self._cure(trouble)})"
                if policy.can_refuse and trouble not in EXPECTED:
                    warnings.append(f"{policy.file} refuses: {reason}; hint: {self._cure(trouble)}")
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
            return f"{self._trust()} shows them and lets them run"
        if trouble == UNTRUSTED_OWN:
            return f"{TRUST_OWN} shows them and lets them run"
        if trouble == UNDEFINED:
            return "`anyplug policy validate` lists the policies that require it"
        return "run its command by hand, in the project's folder: it is in the rulebook"

    def _outcome(self, decision: Decision, matched: list[str], said: list[str], *, is_pure: bool) -> Outcome:
        given = self.event.given_input
        if decision.verb == "modify" and decision.updated_input is not None and isinstance(given, dict):
            decision = msgspec.structs.replace(decision, updated_input=applied(decision.updated_input, given))
        return Outcome(
            decision=decision,
            answer=agent_replies.answer(self.event.harness, self.event.name, decision),
            exit=agent_replies.exit_code(decision, strict=self._options.strict),
            said=tuple(said),
            matched=tuple(dict.fromkeys(matched)),
            is_cacheable=is_pure,
        )


def _is_known(finding: Finding, held: list[Finding]) -> bool:
    """Return whether a change of a call is one that a person accepted."""
    return finding.verb == "modify" and any(
        finding.rule_id == one.rule_id and finding.updated_input == one.updated_input for one in held
    )


def _of_part(finding: Finding, document: dict[str, Any]) -> Finding:
    """Refuse a change to a part of a call: the agent runs the call as a whole, with that part unchanged."""
    if finding.verb != "modify" or "part_of" not in document:
        return finding
    reason = f"{finding.reason} (a part of {document['part_of']} cannot be changed: call {document['tool_name']} alone)"
    return msgspec.structs.replace(finding, verb="deny", reason=reason, updated_input=None)


def _as_event(event: Event, tool: str, document: dict[str, Any]) -> Event:
    return msgspec.structs.replace(event, tool=tool, document=document, views=())
