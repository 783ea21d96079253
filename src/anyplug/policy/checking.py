"""Checks of a folder of policies: what keeps it from being used, and what its author probably did not mean."""

import os
from collections.abc import Iterator

import msgspec

from anyplug.policy import routing, sources
from anyplug.policy.decisions import VERBS
from anyplug.policy.engine import build
from anyplug.policy.events import HARNESSES
from anyplug.policy.rego import RegoErrors
from anyplug.policy.rego.parser import parse_module
from anyplug.policy.rego.syntax import Module, ObjectLiteral, Rule, Scalar, Term
from anyplug.policy.rego.walk import of_rule
from anyplug.policy.routing import Policy
from anyplug.policy.sources import Source

NEEDED = ("reason", "severity", "rule_id")
BEFORE_ONLY = frozenset({"modify"})  # verbs that mean nothing once a tool has run


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found."""

    level: str  # error or warning
    file: str
    row: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.row}: {self.level}: {self.message} ({self.code})"


def harnesses(root: str) -> list[str]:
    """List the agents for which a folder has policies."""
    return [name for name in HARNESSES if os.path.isdir(os.path.join(root, "policies", name))]


def check(root: str, harness: str) -> tuple[list[Remark], tuple[Policy, ...]]:
    """Check the policies of one agent; gives what was found, and the policies if they can be used."""
    source = sources.read(root, harness)
    remarks = [
        Remark(level="warning", file=os.path.join(sources.FOLDER, "rulebook.yml"), row=1, code="rulebook", message=text)
        for text in source.warnings
    ]
    remarks += _remarks(source)
    try:
        policies = build(source, None, harness).project.policies
    except RegoErrors as error:
        faults = [
            Remark(level="error", file=at.where.file, row=at.where.row, code=at.code, message=at.message)
            for at in error.faults
        ]
        return [*faults, *remarks], ()
    for policy in policies:
        for event in routing.unknown_events(policy.route):
            message = f"no agent sends {event}, so this is never asked"
            remarks.append(Remark(level="warning", file=policy.file, row=1, code="unknown_event", message=message))
        for name in policy.route.signals:
            if name not in source.signals:
                message = f"the rulebook has no signal `{name}`: every event of this policy is refused"
                remarks.append(Remark(level="error", file=policy.file, row=1, code="unknown_signal", message=message))
    return remarks, policies


def _remarks(source: Source) -> Iterator[Remark]:
    for file, text in source.policies.items():
        if file.startswith("builtin/"):
            continue
        try:
            module = parse_module(file, text)
        except RegoErrors:
            continue  # said already
        yield from _of_module(file, module)


def _of_module(file: str, module: Module) -> Iterator[Remark]:
    verbs = [rule for rule in module.rules if _name(rule) in VERBS]
    if not verbs:
        message = f"it has no rule named after a verb ({', '.join(VERBS)}), and so decides nothing"
        yield Remark(level="warning", file=file, row=module.at.row, code="no_decision", message=message)
    _, route = routing.read(module)
    for rule in verbs:
        name = _name(rule)
        if rule.member is None:
            message = f"`{name}` is no set: write `{name} contains decision if …`"
            yield Remark(level="warning", file=file, row=rule.at.row, code="not_a_set", message=message)
        if name in BEFORE_ONLY and isinstance(route, routing.Route) and "PreToolUse" not in route.events:
            message = f"`{name}` means something before a tool runs, and this policy is asked afterwards"
            yield Remark(level="warning", file=file, row=rule.at.row, code="too_late", message=message)
        for term in of_rule(rule):
            if isinstance(term, ObjectLiteral) and name != "add_context" and _is_decision(term):
                keys = {_text(key) for key, _ in term.pairs}
                needed = NEEDED if name != "modify" else ("reason", "rule_id", "updated_input")
                if lacks := [key for key in needed if key not in keys]:
                    message = f"a decision of `{name}` lacks {' and '.join(lacks)}"
                    yield Remark(level="error", file=file, row=term.at.row, code="malformed_decision", message=message)


def _is_decision(term: ObjectLiteral) -> bool:
    return not {_text(key) for key, _ in term.pairs}.isdisjoint(NEEDED)


def _name(rule: Rule) -> str:
    return _text(rule.path[-1]) if rule.path else ""


def _text(term: Term) -> str:
    return term.value if isinstance(term, Scalar) and isinstance(term.value, str) else ""
