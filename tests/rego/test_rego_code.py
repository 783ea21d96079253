"""Compiled policies as bytes: they evaluate as what was compiled in this process does."""

import conformance
import msgspec
import pytest

from anyplug import rego
from anyplug.rego.generated.code import unpacked
from rows import each_row

CASES = [case for case in conformance.cases() if case.modules and case.input_term is None]
VALUES = """
p := [1, 1.50, 123456789012345678901234567890, "1", null, true, false, [], {}, set(), {1, "a"}, {1: {"x": [2.5]}}]
q[x] := y if some x, y in {"a": 1, "b": {2}}
r contains lower(x) if some x in ["A", "b"]
f(x) := upper(x)
s := f("x")
t := x if x := count([1]) with count as 7
u := x if x := v with input.x as 5
v := input.x
w := 1 / input.zero
deny contains msg if { some x in input.words; startswith(x, "rm"); msg := sprintf("%s at %d", [x, count(input.words)]) }
a.b["a key"].c := 1
a.b[x] := 2 if x := "d"
"""
INPUT = {"x": 1, "zero": 0, "words": ["rm -rf", "ls", 1]}


def values(policies, input, strict=False):
    """Give the value, or the error, of everything that rules define, by path."""
    found = {}
    for node in policies.code.root.nodes():
        for kind, evaluate in (("", node.evaluate), ("partial", node.dynamic)):
            if evaluate is not None:
                context = policies.context(input, strict=strict, seconds=10)
                try:
                    value = evaluate(context)
                except rego.EvalError as error:
                    value = str(error)
                found[kind, *map(repr, node.path)] = value, context.failures, context.printed
    return found


def stored(policies, modules, data=None):
    """Give the same policies, as another process finds them."""
    return rego.Policies(modules, data, code=unpacked(policies.code.packed()))


def test_every_kind_of_value_and_rule_is_the_same_after_storing():
    modules = {"t.rego": f"package t\n{VALUES}"}
    policies = rego.Policies(modules)
    expected = values(policies, INPUT)
    assert len(expected) > 10
    again = stored(policies, modules)
    assert values(again, INPUT) == expected
    assert values(stored(again, modules), INPUT) == expected, "stored after it was loaded"
    assert again.eval("data.t.deny", INPUT) == ["rm -rf at 3"]
    assert repr(again.eval("data.t.p", INPUT)) == repr(policies.eval("data.t.p", INPUT))


def test_what_needs_the_compiler_also_works_after_storing():
    modules = {"t.rego": f"package t\n{VALUES}"}
    policies = rego.Policies(modules)
    again = stored(policies, modules)
    for path in ("data.t", "data.t.a.b", 'data.t.a.b["a key"]', "data.t.q.b", "data.t.nothing"):
        assert again.eval(path, INPUT) == policies.eval(path, INPUT), path
    assert again.query("data.t.q[x]").answers(INPUT) == policies.query("data.t.q[x]").answers(INPUT)
    assert again.explain("data.t.deny", INPUT).fired == policies.explain("data.t.deny", INPUT).fired != ()
    assert again.impurities("data.t") == policies.impurities("data.t")


def test_an_error_after_storing_has_its_place():
    modules = {"gate.rego": "package t\n\np := 1\n\np := 2 if input.x == 1\n\nq := 1 / input.zero"}
    again = stored(rego.Policies(modules), modules)
    with pytest.raises(rego.ConflictError) as conflict:
        again.eval("data.t.p", INPUT)
    assert conflict.value.where.file == "gate.rego"
    assert [failure.where.row for failure in again.evaluate("data.t.q", INPUT).failures] == [7]


@pytest.mark.skipif(not CASES, reason=f"no OPA cases at {conformance.PLACE}: set REGO_CONFORMANCE to their folder")
@each_row("category", sorted({case.category for case in CASES}))
def test_a_case_of_opa_has_the_same_answers_after_storing(category):
    for case in CASES:
        if case.category != category:
            continue
        modules = {f"test-{number}.rego": text for number, text in enumerate(case.modules)}
        try:
            policies = rego.Policies(modules, case.data)
        except rego.RegoError:
            continue
        if policies.pure:
            input = msgspec.UNSET if case.input is msgspec.UNSET else case.input
            again = stored(policies, modules, case.data)
            assert values(again, input, case.strict_error) == values(policies, input, case.strict_error), case.note
