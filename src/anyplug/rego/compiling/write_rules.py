"""The rules of one path as Python functions: one for each body, and one that joins what they give."""

from typing import Final

from anyplug.rego.compiling.namespace import Namespace
from anyplug.rego.compiling.write_bodies import Emitter
from anyplug.rego.compiling.write_terms import constant
from anyplug.rego.evaluate.rule_tree import Group
from anyplug.rego.parse.tree import Rule, Scalar, Term, Var

CONFLICT_RULE: Final = "complete rules must not produce multiple outputs"
CONFLICT_FUNCTION: Final = "functions must not produce multiple outputs for same inputs"


def write(names: Namespace, group: Group, *, traced: bool) -> list[str]:
    """Write the functions of a group; what is traced notes each body that held. Raises RegoErrors."""
    args = [f"a{index}" for index in range(group.arity)] if group.kind == "function" else []
    lines: list[str] = []
    calls: list[list[str]] = []
    for index, rule in enumerate(group.rules):
        branches: list[str] = []
        branch: Rule | None = rule
        while branch is not None:
            name = f"{group.name}_{index}_{len(branches)}"
            lines += _branch(names, group, name, branch, args, traced=traced)
            branches.append(name)
            branch = branch.otherwise
        calls.append(branches)
    given = ", ".join(["c", *args])
    if group.default is not None and constant(_value(group.default)) is None:
        emitter = Emitter(names, "return None", {})
        emitter.line(f"return {emitter.term(_value(group.default))}")
        lines += [f"def {group.name}_default(c):", *emitter.lines]
    lines.append(f"def {group.name}({given}):")
    if group.kind == "function":
        lines += [" c.left -= 1", " if c.left < 0: c.spend(0)"]
    else:
        lines += [f" v = c.memo.get({group.number}, MISSING)", " if v is not MISSING: return v"]
    if group.kind in {"set", "dynamic"}:
        lines.append(f" s = {'set()' if group.kind == 'set' else '{}'}")
        lines += [f" {name}(c, s)" for branches in calls for name in branches]
        made = "Set(s) if s else EMPTY_SET" if group.kind == "set" else "frozen(s)"
        lines.append(f" v = c.memo[{group.number}] = {made}")
    else:
        lines += _joined(names, group, calls, given)
    lines.append(" return v")
    return lines


def _joined(names: Namespace, group: Group, calls: list[list[str]], given: str) -> list[str]:
    """Write how the values of several rules become one."""
    lines = [] if calls else [" v = None"]
    first_decides = _gives_one_constant(group)
    for index, branches in enumerate(calls):
        if index and first_decides:
            lines.append(f" if v is None: v = {branches[0]}({given})")
            continue
        target = "w" if index else "v"
        lines.append(f" {target} = {branches[0]}({given})")
        lines += [f" if {target} is None: {target} = {other}({given})" for other in branches[1:]]
        if index:
            where = names.location(group.rules[index].at)
            lines += [
                " if w is not None:",
                "  if v is None: v = w",
                f"  elif v != w: raise c.conflict({_conflict(group)!r}, {where})",
            ]
    if group.default is not None:
        fixed = constant(_value(group.default))
        default = f"{group.name}_default(c)" if fixed is None else names.constant(fixed)
        lines.append(f" if v is None: v = {default}")
    if group.kind != "function":
        lines.append(f" c.memo[{group.number}] = v")
    return lines


def _gives_one_constant(group: Group) -> bool:
    """Return whether every rule of a group gives the same constant, so that the first that holds decides."""
    values = []
    for rule in group.rules:
        if rule.otherwise is not None:
            return False
        values.append(None if rule.value is None else constant(rule.value))
    return bool(values) and values[0] is not None and all(value == values[0] for value in values)


def _branch(names: Namespace, group: Group, name: str, rule: Rule, args: list[str], *, traced: bool) -> list[str]:
    """Write one body and its head."""
    bound = {arg.name: given for arg, given in zip(rule.args or [], args, strict=True) if isinstance(arg, Var)}
    emitter = Emitter(names, "return None", bound)
    given = ["c", *args] if group.kind in {"complete", "function"} else ["c", "s"]
    emitter.body(rule.body)
    where = names.location(rule.at)
    if traced:
        emitter.line(f"c.fired.setdefault({where})")
    if group.kind == "set":
        assert rule.member is not None
        emitter.line(f"s.add({emitter.term(rule.member)})")
    elif group.kind == "dynamic":
        value = _value(rule) if rule.member is None else rule.member
        *path, made = emitter.terms([*rule.path[_ground(rule) :], value])
        function = "add_at" if rule.member is None else "add_member_at"
        emitter.line(f"{function}(s, ({''.join(part + ', ' for part in path)}), {made}, c, {where})")
    else:
        _result(emitter, group, rule, where)
    several = emitter.lines[-1] == " return r0"
    return [f"def {name}({', '.join(given)}):", *([" r0 = None"] if several else []), *emitter.lines]


def _ground(rule: Rule) -> int:
    """Return how many parts of a head come before its first variable."""
    return next((index for index, part in enumerate(rule.path) if not isinstance(part, Scalar)), len(rule.path))


def _result(emitter: Emitter, group: Group, rule: Rule, where: int) -> None:
    """Write how a body's answers become the value of a complete rule or function."""
    value = emitter.term(_value(rule))
    if constant(_value(rule)) is not None or not emitter.loops:
        emitter.line(f"return {value}")
        return
    emitter.line(f"if r0 is None: r0 = {value}")
    emitter.line(f"elif r0 != {value}: raise c.conflict({_conflict(group)!r}, {where})")
    emitter.depth = 1
    emitter.line("return r0")


def _conflict(group: Group) -> str:
    return CONFLICT_FUNCTION if group.kind == "function" else CONFLICT_RULE


def _value(rule: Rule) -> Term:
    assert rule.value is not None
    return rule.value
