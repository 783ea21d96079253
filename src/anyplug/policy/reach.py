"""Which events the rules of a policy can hold for, as far as their bodies show it in simple conditions.

Once one policy is routed to an event, all of them are evaluated, as in the original. A rule whose body requires another
tool or event holds in none of these evaluations, so skipping it only saves time.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from anyplug.policy.decisions import VERBS
from anyplug.rego.parse.tree import (
    Array,
    Call,
    Expr,
    Holds,
    Module,
    ObjectLiteral,
    Ref,
    Rule,
    Scalar,
    SetLiteral,
    Term,
    Unify,
    Var,
)
from anyplug.rego.parse.walk import of_rule

EQUAL: Final = ("equal",)
MEMBER: Final = ("internal", "member_2")
ANY: Final = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of one verb: its position, and what it requires of an event; None requires nothing."""

    ref: str  # data.cupcake.policies.….deny
    verb: str
    file: str
    row: int
    rule_ids: frozenset[str] = frozenset()
    tools: frozenset[str] | None = ANY
    events: frozenset[str] | None = ANY

    def may_hold(self, event: str, tool: str) -> bool:
        """Return whether the rule could hold."""
        return (self.tools is None or tool in self.tools) and (self.events is None or event in self.events)


def parts(module: Module) -> list[Part]:
    """List the rules of a module that decide something."""
    found: list[Part] = []
    for rule in module.rules:
        names = [part.value for part in rule.path if isinstance(part, Scalar)]
        if rule.args is None and len(names) == len(rule.path) and names[-1] in VERBS:
            tools, events = _demands(rule)
            found.append(
                Part(
                    ref="data" + "".join(map(_step, (*module.package, *names))),
                    verb=str(names[-1]),
                    file=rule.at.file,
                    row=rule.at.row,
                    rule_ids=frozenset(_rule_ids(rule)),
                    tools=tools,
                    events=events,
                )
            )
    return found


def verb_of(rule: Rule) -> str:
    """Return the verb that a rule's name begins with, as in `deny[reason]`; empty if there is none."""
    name = text_of(rule.path[0]) if rule.path and rule.args is None else ""
    return name if name in VERBS else ""


def rule_rows(module: Module) -> dict[str, int]:
    """Return the first position of each rule id of a module, in any rule."""
    found: dict[str, int] = {}
    for rule in module.rules:
        for name in _rule_ids(rule):
            found.setdefault(name, rule.at.row)
    return found


def is_plain(module: Module) -> bool:
    """Return whether everything that decides is a rule named after a verb, so that values need not be searched."""
    for rule in module.rules:
        if rule.args is None and not all(isinstance(part, Scalar) for part in rule.path):
            return False
        for term in of_rule(rule):
            if isinstance(term, ObjectLiteral) and any(text_of(key) in VERBS for key, _ in term.pairs):
                return False
    return True


def read_keys(module: Module) -> frozenset[str] | None:
    """Return the keys of the input that a module can read; None if it may read any."""
    found = {str(each.path[1]) for each in module.imports if each.path[0] == "input" and len(each.path) > 1}
    if any(each.path == ("input",) for each in module.imports):
        return None
    terms = [term for rule in module.rules for term in of_rule(rule)]
    heads: set[int] = set()
    for term in terms:
        if isinstance(term, Ref) and isinstance(term.head, Var) and term.head.name == "input":
            if not term.path or not text_of(term.path[0]):
                return None
            found.add(text_of(term.path[0]))
            heads.add(id(term.head))
    if any(isinstance(term, Var) and term.name == "input" and id(term) not in heads for term in terms):
        return None
    return frozenset(found)


def _step(name: Any) -> str:
    return f".{name}" if isinstance(name, str) and name.isidentifier() and name.isascii() else f"[{_quoted(name)}]"


def _quoted(name: Any) -> str:
    return msgspec.json.encode(name).decode() if isinstance(name, str) else str(name)


def _rule_ids(rule: Rule) -> Iterator[str]:
    for term in of_rule(rule):
        if isinstance(term, ObjectLiteral):
            for key, value in term.pairs:
                if text_of(key) == "rule_id" and text_of(value):
                    yield text_of(value)


def _demands(rule: Rule) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    if rule.default or rule.otherwise is not None:
        return ANY, ANY
    tools: frozenset[str] | None = ANY
    events: frozenset[str] | None = ANY
    named = {
        expr.left.name: values
        for expr in rule.body
        if isinstance(expr, Unify) and expr.assign and isinstance(expr.left, Var) and not expr.withs
        if (values := _texts(expr.right)) is not None
    }
    for expr in rule.body:
        demand = _demand(expr, named)
        if demand is not None:
            key, values = demand
            if key == "tool_name":
                tools = values if tools is None else tools & values
            else:
                events = values if events is None else events & values
    return tools, events


def _demand(expr: Expr, named: dict[str, frozenset[str]]) -> tuple[str, frozenset[str]] | None:
    """Parse `input.tool_name == "X"` and the like; None for anything else."""
    if expr.withs:
        return None
    if isinstance(expr, Unify) and not expr.assign:
        return _equal(expr.left, expr.right)
    if not isinstance(expr, Holds) or not isinstance(expr.term, Call):
        return None
    call = expr.term
    if call.name == EQUAL:
        return _equal(*call.args)
    if call.name == MEMBER and (key := _asked(call.args[0])):
        domain = call.args[1]
        values = named.get(domain.name) if isinstance(domain, Var) else _texts(domain)
        return None if values is None else (key, values)
    return None


def _equal(left: Term, right: Term) -> tuple[str, frozenset[str]] | None:
    for one, other in ((left, right), (right, left)):
        if (key := _asked(one)) and isinstance(other, Scalar) and isinstance(other.value, str):
            return key, frozenset({other.value})
    return None


def _asked(term: Term) -> str:
    """Return the key if a term is input.tool_name or input.hook_event_name."""
    if isinstance(term, Ref) and isinstance(term.head, Var) and term.head.name == "input" and len(term.path) == 1:
        name = text_of(term.path[0])
        return name if name in {"tool_name", "hook_event_name"} else ""
    return ""


def _texts(term: Term) -> frozenset[str] | None:
    """Return the members of a collection of constants."""
    if isinstance(term, SetLiteral | Array) and all(isinstance(item, Scalar) for item in term.items):
        return frozenset(text_of(item) for item in term.items)
    return None


def text_of(term: Term) -> str:
    """Return the string that a term is; empty if it is not one."""
    return term.value if isinstance(term, Scalar) and isinstance(term.value, str) else ""
