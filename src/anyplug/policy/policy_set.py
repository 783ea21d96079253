"""A compiled set of policies: which of them an event concerns, and what these find.

The set's own evaluate.rego gathers findings. Nearly every one gathers what rules named after verbs return, wherever
they are; then the rules are evaluated one by one, so that a failing one does not silence the others, and those that
cannot hold are skipped. Any other evaluate.rego is evaluated as written, with everything.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from anyplug.home.private_cache import PrivateCache
from anyplug.policy import stored_sets
from anyplug.policy.decisions import CONTEXT, EXPLAINED, FAILED_RULE, KEYS, Finding, is_malformed
from anyplug.policy.decisions import read as read_finding
from anyplug.policy.reach import Part
from anyplug.policy.routing import Policy
from anyplug.policy.set_facts import short, texts_of
from anyplug.rego import EvalError, Fault, Location, Prepared

SECONDS: Final = 2.0  # for one evaluation: a policy takes well under a millisecond
STEPS: Final = 4_000_000  # for one evaluation
MOST_PLANS: Final = 512  # cached tools: their names come from outside


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is evaluated for one tool in one event."""

    matched: tuple[Policy, ...]
    asked: tuple[Part, ...] = ()  # one for each reference
    prepared: Any = None  # Prepared
    is_pure: bool = False  # the result depends on the input alone

    @property
    def signals(self) -> list[str]:
        """The signals that matched policies require."""
        return list(dict.fromkeys(name for policy in self.matched for name in policy.route.signals))


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The output of policies."""

    findings: tuple[Finding, ...] = ()
    context: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """How policies came to their output."""

    fired: tuple[Location, ...] = ()  # where the bodies that held begin
    printed: tuple[str, ...] = ()  # by `print`
    failures: tuple[str, ...] = ()  # of Rego's builtins: their callers are undefined


NOTHING: Final = Found()


class PolicySet:
    """Policies that were compiled together."""

    def __init__(
        self,
        policies: dict[str, str],
        shared: dict[str, str],
        *,
        is_global: bool = False,
        needs_evaluate: bool = True,
        faults: Iterable[Fault] = (),
        cache: PrivateCache | None = None,
    ) -> None:
        """Compile, or load what was compiled before; raises RegoErrors with all that is wrong, by file and line."""
        texts = texts_of(policies, shared, is_global=is_global, needs_evaluate=needs_evaluate)
        self._system = texts.system
        facts, self.compiled = stored_sets.compiled(texts, tuple(faults), cache)
        self.policies = facts.policies
        self.digest = self.compiled.digest
        self.is_direct = facts.is_direct
        self._facts = facts
        self._plans: dict[tuple[str, str], Plan] = {}
        self._prepared: dict[tuple[str, ...], Prepared] = {}

    def plan(self, event: str, tool: str) -> Plan:
        """Return what is evaluated for a tool; cached."""
        key = (event, tool)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._planned(event, tool)
        return plan

    def _planned(self, event: str, tool: str) -> Plan:
        matched = tuple(policy for policy in self.policies if policy.route.takes(event, tool))
        if not matched:
            return Plan(matched=())
        if not self.is_direct:
            return Plan(matched=matched, is_pure=self._system not in self._facts.impure)
        asked: dict[str, Part] = {}
        for policy in self.policies:
            for part in policy.parts:
                if part.may_hold(event, tool):
                    asked.setdefault(part.ref, part)
        refs = tuple(asked)
        prepared = self._prepared.get(refs)
        if prepared is None:
            prepared = self._prepared[refs] = self.compiled.prepare(*refs)
        is_pure = self._facts.impure.isdisjoint(refs)
        return Plan(matched=matched, asked=tuple(asked.values()), prepared=prepared, is_pure=is_pure)

    def findings(self, plan: Plan, document: dict[str, Any]) -> Found:
        """Evaluate; whatever goes wrong in a policy is a finding that refuses."""
        if plan.prepared is None:
            return self._gathered(document)
        if not plan.asked:
            return NOTHING
        try:
            answers = plan.prepared.outcomes(self._read_of(document), seconds=SECONDS, steps=STEPS)
        except EvalError as error:
            return Found(findings=(_failure(error),))
        findings: list[Finding] = []
        context: list[str] = []
        warnings: list[str] = []
        for part, answer in zip(plan.asked, answers, strict=True):
            if answer.error is not None:
                findings.append(_failure(answer.error, part.file, part.row))
            elif answer.value:
                self._take(part, answer.value, findings, context, warnings)
        return Found(findings=tuple(findings), context=tuple(context), warnings=tuple(warnings))

    def _take(self, part: Part, value: Any, findings: list[Finding], context: list[str], warnings: list[str]) -> None:
        origin = self._facts.origins[part.ref]
        for said in _members(value):
            if wrong := is_malformed(part.verb, said):
                warnings.append(f"{part.file}:{part.row}: a decision of {part.verb} is malformed: {wrong}")
            if part.verb == CONTEXT:
                context += [said] if isinstance(said, str) else []
            else:
                usual = (part.file, part.row)
                file, row = usual if wrong else origin.places.get(said["rule_id"], usual)
                findings.append(read_finding(part.verb, said, origin.policy, file, row))

    def _gathered(self, document: dict[str, Any]) -> Found:
        """Evaluate the set's own evaluate.rego."""
        try:
            value = self.compiled.eval(self._system, document, seconds=SECONDS, steps=STEPS)
        except EvalError as error:
            return Found(findings=(_failure(error),))
        if not isinstance(value, dict):
            said = "nothing" if value is None else type(value).__name__
            return Found(findings=(_refusal(f"{self._system} returned {said} instead of a set of decisions"),))
        findings: list[Finding] = []
        context: list[str] = []
        warnings: list[str] = []
        for key, verb in KEYS.items():
            for said in _members(value.get(key) or []):
                if wrong := is_malformed(verb, said):
                    warnings.append(f"a decision of {verb} is malformed: {wrong}")
                if verb == CONTEXT:
                    context += [said] if isinstance(said, str) else []
                else:
                    findings.append(read_finding(verb, said, *self._known(verb, said)))
        return Found(findings=tuple(findings), context=tuple(context), warnings=tuple(warnings))

    def _known(self, verb: str, said: Any) -> tuple[str, str, int]:
        rule = said.get("rule_id") if isinstance(said, dict) else None
        for policy in self.policies:
            for part in policy.parts:
                if part.verb == verb and rule in part.rule_ids:
                    return short(policy.name), policy.file, part.row
        return self._facts.hidden.get(f"rule {rule}") or self._facts.hidden.get(f"verb {verb}") or ("", "", 0)

    def trace(self, plan: Plan, document: dict[str, Any]) -> Trace:
        """Return a trace, for explanations only, since it compiles everything once more."""
        refs = [part.ref for part in plan.asked] if plan.prepared is not None else [self._system]
        fired: dict[Location, None] = {}
        printed: list[str] = []
        failures: dict[str, None] = {}
        for ref in refs:
            try:
                seen = self.compiled.explain(ref, document, seconds=SECONDS, steps=STEPS)
            except EvalError:
                continue  # a finding reports it
            fired.update(dict.fromkeys(seen.fired))
            printed += seen.printed
            failures.update(dict.fromkeys(f"{one.where.file}:{one.where.row}: {one.message}" for one in seen.failures))
        return Trace(fired=tuple(fired), printed=tuple(printed), failures=tuple(failures))

    def reads(self, key: str) -> bool:
        """Return whether some policy could read a key of the input."""
        return self._facts.reads is None or key in self._facts.reads

    def _read_of(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the part of an input that policies can read: the rest need not be converted."""
        reads = self._facts.reads
        return document if reads is None else {key: document[key] for key in reads if key in document}


def _members(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.values())
    return [value]  # true, or a string: the author wrote `deny if …`, and meant it


def _failure(error: EvalError, file: str = "", row: int = 0) -> Finding:
    if error.where is not None:
        file, row = error.where.file, error.where.row
    place = f"{file}:{row}: " if file else ""
    return _refusal(f"a policy could not be evaluated: {place}{error.message}", file, row)


def _refusal(reason: str, file: str = "", row: int = 0) -> Finding:
    return Finding(verb="deny", reason=reason, rule_id=FAILED_RULE, file=file, row=row, is_failure=True, cure=EXPLAINED)
