"""Find mistakes in one policy: what compiles but is probably not what its author meant."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from anyplug.policy import routing
from anyplug.policy.agent_events import OURS, TOOL_NAMES
from anyplug.policy.decisions import CONTEXT, HIGH, MEDIUM, VERBS
from anyplug.policy.reach import parts, text_of, verb_of
from anyplug.policy.routing import LISTS, Route
from anyplug.policy.rulebook import meant
from anyplug.rego.builtins import regexes
from anyplug.rego.builtins.builtin_table import NAMES
from anyplug.rego.builtins.every import TABLE
from anyplug.rego.parse.tree import Array, Call, Module, ObjectLiteral, Ref, Rule, Scalar, SetLiteral, Term, Unify, Var
from anyplug.rego.parse.walk import of_rule
from anyplug.rego.values.rego_errors import BuiltinError
from anyplug.rego.values.values import Object, Set

NEEDED: Final = ("reason", "severity", "rule_id")
OF_MODIFY: Final = ("reason", "rule_id", "updated_input")
BEFORE_ONLY: Final = frozenset({"modify"})  # verbs without effect once a tool has run
SEVERITIES: Final = HIGH | MEDIUM | {"LOW", "INFO"}
ARGUMENTS: Final = ("command", "content", "file_path", "filePath", "new_string", "old_string")
KEYS: Final = (  # of the input, in any event
    "affected_parent_directories", "agent", "args", "builtin_config", "call_id", "caller", "chain", "commands", "cwd",
    "format", "grants", "hook_event_name", "is_symlink", "mcp", "message", "message_id", "metadata",
    "original_file_path", "part_of", "patched_files", "permission_mode", "permission_type", "plugin", "prompt",
    "resolved_file_path", "result", "session_id", "signals", "tier", "tool", "tool_input", "tool_name",
    "tool_response", "tool_use_id", "transcript_path", "would_change",
)  # fmt: skip
PATTERNS: Final = {  # which argument is a pattern
    "regex.match": 0, "regex.find_n": 0, "regex.find_all_string_submatch_n": 0, "regex.split": 0, "regex.replace": 1,
}  # fmt: skip
NOT_ASKED: Final = "no event is decided because of it: the rules only apply if another policy is asked"
CLOSE: Final = 0.8  # similarity above which one name is probably a typo of the other

LITERALS: Final[dict[type, type]] = {Array: tuple, ObjectLiteral: Object, SetLiteral: Set}

Say = Callable[[str, int, str, str], "Remark"]


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    level: str  # error or warning
    file: str
    row: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.row}: {self.level}: {self.message} ({self.code})"


def find(file: str, module: Module, harness: str) -> Iterator[Remark]:
    """Find the mistakes in a policy."""

    def say(level: str, row: int, code: str, message: str) -> Remark:
        return Remark(level=level, file=file, row=row, code=code, message=message)

    notes, route = routing.read(module)
    verbs = [rule for rule in module.rules if _name(rule) in VERBS]
    odd = [(rule, verb) for rule in module.rules if rule not in verbs and (verb := verb_of(rule))]
    for rule, name in odd:
        message = f"this makes `{name}` an object, not a set: write `{name} contains decision if …`"
        yield say("warning", rule.at.row, "not_a_set", message)
    yield from _without_verb(module, say)
    if not verbs and not odd:
        message = f"it has no rule named after a verb ({', '.join(VERBS)}), so it decides nothing"
        yield say("warning", module.at.row, "no_decision", message)
    if isinstance(route, Route):
        yield from _routing(module, notes, route, harness, say)
    yield from _input(module, route, say)
    yield from _patterns(module, say)
    yield from _operands(module, say)
    for rule in verbs:
        yield from _of_rule(rule, route, say)


def _without_verb(module: Module, say: Say) -> Iterator[Remark]:
    """Find sets of decisions that nothing evaluates or reads."""
    terms = [term for rule in module.rules for term in of_rule(rule)]
    read = {term.name for term in terms if isinstance(term, Var)}
    read |= {term.head.name for term in terms if isinstance(term, Ref) and isinstance(term.head, Var)}
    for rule in module.rules:
        name = _name(rule)
        if rule.member is None or name in VERBS or name in read:
            continue
        if any(isinstance(term, ObjectLiteral) and "rule_id" in _pairs(term) for term in of_rule(rule)):
            message = f"`{name}` is not a verb ({', '.join(VERBS)}), so it is never evaluated{meant(name, VERBS)}"
            yield say("warning", rule.at.row, "no_verb", message)


def _routing(module: Module, notes: dict[str, Any], route: Route, harness: str, say: Say) -> Iterator[Remark]:
    at = module.annotations[0].at.row
    for key in notes["custom"]["routing"]:
        if key not in LISTS:
            yield say("warning", at, "unknown_key", f"`{key}` is unknown in routing{meant(str(key), LISTS)}")
    if harness == OURS:
        return  # whose plugins choose their tools' names
    for tool in sorted(route.tools & TOOL_NAMES.keys()):
        message = f"policies know the tool `{tool}` as `{TOOL_NAMES[tool]}`, so {NOT_ASKED}"
        yield say("warning", at, "unknown_tool", message)
    for part in parts(module):
        if part.tools and part.tools <= TOOL_NAMES.keys():
            named = ", ".join(f"`{tool}` as `{TOOL_NAMES[tool]}`" for tool in sorted(part.tools))
            yield say("warning", part.row, "unknown_tool", f"policies know the tool {named}, so this never holds")


def _input(module: Module, route: Any, say: Say) -> Iterator[Remark]:
    """Find keys that no event has, and signals that are never run."""
    required = route.signals if isinstance(route, Route) else ()
    for term in (term for rule in module.rules for term in of_rule(rule)):
        if not isinstance(term, Ref) or not isinstance(term.head, Var) or term.head.name != "input" or not term.path:
            continue
        first, second = text_of(term.path[0]), text_of(term.path[1]) if len(term.path) > 1 else ""
        if first in ARGUMENTS:
            message = f"a tool's arguments are in `tool_input`: write input.tool_input.{first}"
            yield say("warning", term.at.row, "unknown_input", message)
        elif first and first not in KEYS and (hint := meant(first, KEYS, CLOSE)):
            yield say("warning", term.at.row, "unknown_input", f"events have no `{first}` of their own{hint}")
        if first == "signals" and second and not second.startswith("__builtin_") and second not in required:
            message = f"it reads the signal `{second}`, which only runs if it is in required_signals"
            yield say("warning", term.at.row, "signal_not_required", message)


def _patterns(module: Module, say: Say) -> Iterator[Remark]:
    """Find invalid patterns: their match is undefined, so no rule with them holds."""
    for term in (term for rule in module.rules for term in of_rule(rule)):
        at = PATTERNS.get(".".join(term.name)) if isinstance(term, Call) else None
        if at is None or not isinstance(term, Call) or len(term.args) <= at or not (pattern := text_of(term.args[at])):
            continue
        try:
            regexes.compiled(pattern)
        except BuiltinError as error:
            message = f"`{pattern}` is not a valid RE2 pattern, so this is always undefined: {error}"
            yield say("error", term.at.row, "bad_pattern", message)


def _operands(module: Module, say: Say) -> Iterator[Remark]:
    """Find literals that a builtin does not accept: the call is undefined, so no rule with it holds."""
    for term in (term for rule in module.rules for term in of_rule(rule)):
        known = TABLE.get(".".join(term.name)) if isinstance(term, Call) else None
        if known is None or not isinstance(term, Call):
            continue
        for at, (given, kinds) in enumerate(zip(term.args, known.kinds, strict=False), 1):
            kind = type(given.value) if isinstance(given, Scalar) else LITERALS.get(type(given))
            if kind is not None and kinds is not None and kind not in kinds:
                wanted = NAMES.get(kinds, "of another type")
                message = f"operand {at} of `{known.name}` must be {wanted}, so this is always undefined"
                yield say("warning", term.at.row, "type_error", message)


def _of_rule(rule: Rule, route: Any, say: Say) -> Iterator[Remark]:
    name, row = _name(rule), rule.at.row
    if rule.member is None:
        yield say("warning", row, "not_a_set", f"`{name}` is not a set: write `{name} contains decision if …`")
    is_afterwards = isinstance(route, Route) and "PreToolUse" not in route.events
    if name in BEFORE_ONLY and is_afterwards and not routing.unknown_events(route):
        message = f"`{name}` only has an effect before a tool runs, but this policy is evaluated afterwards"
        yield say("warning", row, "too_late", message)
    if name == CONTEXT:
        if _kind(rule.member) not in {"", "text"}:
            yield say("error", row, "malformed_decision", f"`{name}` must contain strings")
        return
    if _kind(rule.member) not in {"", "object"}:
        keys = " and ".join(OF_MODIFY if name == "modify" else NEEDED)
        yield say("warning", row, "malformed_decision", f"a decision of `{name}` is not an object with {keys}")
    for term in _given(rule):
        if isinstance(term, ObjectLiteral):
            yield from _of_decision(name, term, say)


def _given(rule: Rule) -> Iterator[Term | None]:
    """Yield what a rule decides, as far as it is a literal."""
    yield rule.member
    yield rule.value
    if isinstance(rule.member, Var):
        for expr in rule.body:
            if isinstance(expr, Unify) and isinstance(expr.left, Var) and expr.left.name == rule.member.name:
                yield expr.right


def _of_decision(name: str, term: ObjectLiteral, say: Say) -> Iterator[Remark]:
    given, row = _pairs(term), term.at.row
    needed = OF_MODIFY if name == "modify" else NEEDED
    if lacks := [key for key in needed if key not in given]:
        yield say("error", row, "malformed_decision", f"a decision of `{name}` lacks {' and '.join(lacks)}")
    for key in needed:
        wanted, shown = ("object", "an object") if key == "updated_input" else ("text", "a string")
        if key in given and _kind(given[key]) not in {"", wanted}:
            yield say("error", row, "malformed_decision", f"`{key}` in a decision of `{name}` must be {shown}")
    severity = text_of(given["severity"]) if "severity" in given else ""
    if severity and severity.upper() not in SEVERITIES:
        message = (
            f"`{severity}` is not a severity, and counts as the lowest; the severities are "
            f"{', '.join(sorted(SEVERITIES))}"
        )
        yield say("warning", row, "unknown_severity", message)


def _pairs(term: ObjectLiteral) -> dict[str, Term]:
    return {text_of(key): value for key, value in term.pairs}


def _name(rule: Rule) -> str:
    return text_of(rule.path[-1]) if rule.path else ""


def _kind(term: Term | None) -> str:
    """Return the type of a literal; empty for what is computed."""
    if isinstance(term, Scalar):
        return "text" if isinstance(term.value, str) else "scalar"
    return "object" if isinstance(term, ObjectLiteral) else ""
