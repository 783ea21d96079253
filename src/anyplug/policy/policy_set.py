"""A compiled set of policies: which of them an event concerns, and what these find.

The set's own evaluate.rego gathers findings. Nearly every one gathers what rules named after verbs return, wherever
they are; then the rules are evaluated one by one, so that a failing one does not silence the others, and those that
cannot hold are skipped. Any other evaluate.rego is evaluated as written, with everything.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from anyplug.policy import gathering, routing
from anyplug.policy.decisions import CONTEXT, EXPLAINED, FAILED_RULE, KEYS, Finding, is_malformed
from anyplug.policy.decisions import read as read_finding
from anyplug.policy.evaluate_rule import EVALUATE, of_all_projects
from anyplug.policy.reach import Part, is_plain, parts, read_keys, rule_rows, verb_of
from anyplug.policy.routing import Policy
from anyplug.rego import EvalError, Fault, Location, Policies, Prepared, RegoErrors
from anyplug.rego import compile as compile_rego
from anyplug.rego.parse.modules import parse_module
from anyplug.rego.parse.tree import Module
from anyplug.rego.values.rego_errors import PARSE_ERROR

SECONDS: Final = 2.0  # for one evaluation: a policy takes well under a millisecond
STEPS: Final = 4_000_000  # for one evaluation
MOST_PLANS: Final = 512  # cached tools: their names come from outside
MISSING: Final = "policy_missing"
MISPLACED: Final = "policy_package_error"
OURS: Final = "cupcake.policies"
THEIRS: Final = "cupcake.global.policies"
INIT: Final = "create one with `anyplug policy init`, with --global for all projects"
EVALUATE_FILE: Final = "builtin/evaluate.rego"  # ours, if there is none and none is needed


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


class Origin(msgspec.Struct, frozen=True):
    """Where the rules of one reference are, perhaps in several files: told apart by their ids."""

    policy: str
    places: dict[str, tuple[str, int]]  # by rule id: file and row


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
    ) -> None:
        """Compile; raises RegoErrors with everything that is wrong, by file and line."""
        texts = {file: _renamed(text) if is_global else text for file, text in {**shared, **policies}.items()}
        self._system = "data.cupcake.global.system.evaluate" if is_global else "data.cupcake.system.evaluate"
        found = list(faults)
        modules = _parsed(texts, found)
        self.policies = tuple(_routed({file: modules[file] for file in policies if file in modules}, found))
        root = tuple((THEIRS if is_global else OURS).split("."))
        entry = tuple(self._system.split(".")[1:])
        if not found and not gathering.defines(modules, entry):
            if needs_evaluate and any(not policy.builtin for policy in self.policies):
                where = Location(next(iter(policies), ""), 1, 1)
                found.append(Fault(where, MISSING, f"there is no evaluate.rego that defines {self._system}; {INIT}"))
            texts[EVALUATE_FILE] = of_all_projects(EVALUATE) if is_global else EVALUATE
            modules[EVALUATE_FILE] = parse_module(EVALUATE_FILE, texts[EVALUATE_FILE])
        if found:
            raise RegoErrors(sorted(found, key=lambda fault: (fault.where.file, fault.where.row)))
        self.compiled: Policies = compile_rego(texts)
        self.digest = self.compiled.digest
        keys = [read_keys(module) for module in modules.values()]
        self._reads = None if None in keys else frozenset[str]().union(*(some for some in keys if some))
        self._origins = _origins(self.policies, modules)
        self._hidden = _hidden(self.policies, modules)
        ours = [module for file, module in modules.items() if file in policies]
        is_usual = gathering.is_usual(texts, modules, entry, root)
        astray = [module for module in ours if module.package[: len(root)] != root and parts(module)]
        if is_usual and astray:
            raise RegoErrors([Fault(module.at, MISPLACED, _astray(module)) for module in astray])
        self.is_direct = is_usual and all(is_plain(module) for module in ours)
        self._plans: dict[tuple[str, str], Plan] = {}
        self._prepared: dict[tuple[str, ...], tuple[Prepared, bool]] = {}

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
            pure = not self.compiled.impurities(self._system)
            return Plan(matched=matched, is_pure=pure)
        asked: dict[str, Part] = {}
        for policy in self.policies:
            for part in policy.parts:
                if part.may_hold(event, tool):
                    asked.setdefault(part.ref, part)
        refs = tuple(asked)
        prepared, is_pure = self._together(refs)
        return Plan(matched=matched, asked=tuple(asked.values()), prepared=prepared, is_pure=is_pure)

    def _together(self, refs: tuple[str, ...]) -> tuple[Prepared, bool]:
        known = self._prepared.get(refs)
        if known is None:
            made = self.compiled.prepare(*refs)
            known = self._prepared[refs] = (made, not refs or not self.compiled.impurities(*refs))
        return known

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
        origin = self._origins[part.ref]
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
                    return _short(policy.name), policy.file, part.row
        return self._hidden.get(f"rule {rule}") or self._hidden.get(f"verb {verb}") or ("", "", 0)

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
        return self._reads is None or key in self._reads

    def _read_of(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the part of an input that policies can read: the rest need not be converted."""
        reads = self._reads
        return document if reads is None else {key: document[key] for key in reads if key in document}


def _parsed(texts: dict[str, str], faults: list[Fault]) -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for file, text in texts.items():
        try:
            modules[file] = parse_module(file, text)
        except RegoErrors as error:
            faults += error.faults
        except RecursionError:
            faults.append(Fault(Location(file, 1, 1), PARSE_ERROR, "nested too deeply"))
    return modules


def _routed(modules: dict[str, Module], faults: list[Fault]) -> Iterator[Policy]:
    for file, module in modules.items():
        if routing.is_system(module.package):
            continue
        notes, route = routing.read(module)
        if isinstance(route, Fault):
            faults.append(route)
            continue
        custom = notes.get("custom", {})
        name = ".".join(module.package)
        yield Policy(
            name=name,
            file=file,
            title=str(notes.get("title", "")),
            severity=str(custom.get("severity", "")) if isinstance(custom, dict) else "",
            route=route,
            parts=tuple(parts(module)),
            builtin=file.removeprefix("builtin/").removesuffix(".rego") if file.startswith("builtin/") else "",
        )


def _origins(policies: Iterable[Policy], modules: dict[str, Module]) -> dict[str, Origin]:
    """Return where the rules of each reference are: a rule with an id, else where it has the id from."""
    found: dict[str, Origin] = {}
    count = Counter(part.ref for policy in policies for part in policy.parts)
    for policy in policies:
        for part in policy.parts:
            origin = found.setdefault(part.ref, Origin(_short(policy.name), {}))
            for rule in part.rule_ids:
                origin.places.setdefault(rule, (part.file, part.row))
    for policy in policies:
        for part in policy.parts:
            if count[part.ref] > 1 and not part.rule_ids:  # it is unknown which of them it was
                for rule, row in rule_rows(modules[policy.file]).items():
                    found[part.ref].places.setdefault(rule, (part.file, row))
    return found


def _hidden(policies: Iterable[Policy], modules: dict[str, Module]) -> dict[str, tuple[str, str, int]]:
    """Return where decisions are that are not members of a verb's set: by their rule's id, else by the verb."""
    found: dict[str, tuple[str, str, int]] = {}
    for policy in policies:
        module = modules[policy.file]
        for rule, row in rule_rows(module).items():
            found.setdefault(f"rule {rule}", (_short(policy.name), policy.file, row))
        for each in module.rules:
            if verb := verb_of(each):
                found.setdefault(f"verb {verb}", (_short(policy.name), policy.file, each.at.row))
    return found


def _renamed(text: str) -> str:
    """Move a global policy to the package of global ones."""
    return re.sub(r"\bcupcake\.policies\b", THEIRS, text)


def _astray(module: Module) -> str:
    name = ".".join(module.package)
    return f"its package is {name}, but must be below {OURS}, or it is never evaluated"


def _members(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.values())
    return [value]  # true, or a string: the author wrote `deny if …`, and meant it


def _short(package: str) -> str:
    return package.rpartition(".")[2]


def _failure(error: EvalError, file: str = "", row: int = 0) -> Finding:
    if error.where is not None:
        file, row = error.where.file, error.where.row
    place = f"{file}:{row}: " if file else ""
    return _refusal(f"a policy could not be evaluated: {place}{error.message}", file, row)


def _refusal(reason: str, file: str = "", row: int = 0) -> Finding:
    return Finding(verb="deny", reason=reason, rule_id=FAILED_RULE, file=file, row=row, is_failure=True, cure=EXPLAINED)
