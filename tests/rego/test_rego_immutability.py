"""No evaluation may change what the next one reads: values cannot be changed, whatever a builtin does with them."""

import os
import random
import sys

import pytest

from anyplug import rego
from anyplug.rego.builtins.every import TABLE
from anyplug.rego.values.values import Object, Set

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "differential"))
from arguments import ARGUMENTS
from fuzz import CHANGING, UNASKED, Ours, is_huge, tagged

from rows import each_row

TIMES = 3
CALLS = 60  # of each builtin
DENY = """package gate
deny contains "reaches prod" if "prod" in graph.reachable(%s, {"dev", "test"})
"""
EDGES = '{"dev": {"stage"}, "stage": ["prod"], "test": [], "prod": []}'


@pytest.mark.claim("policy-values-immutable")
@pytest.mark.parametrize("graph", [EDGES, "input.graph", "data.graph"])
def test_a_deny_on_a_graph_fires_every_time(graph):
    edges = {"dev": {"stage"}, "stage": ["prod"], "test": [], "prod": []}
    policies = rego.compile({"gate.rego": DENY % graph}, data={"graph": edges})
    prepared = policies.prepare("data.gate.deny")
    assert [prepared.values({"graph": edges}) for _ in range(TIMES)] == [[["reaches prod"]]] * TIMES


@pytest.mark.claim("policy-values-immutable")
@each_row("name", sorted(name for name, each in TABLE.items() if not each.refused and name not in UNASKED))
def test_a_builtin_leaves_its_arguments_alone_and_answers_the_same_again(name):
    rng = random.Random(name)
    ours = Ours()
    for _ in range(CALLS):
        args = ARGUMENTS[name](rng)
        if is_huge(name, args):
            continue
        before = tagged(args)
        answers = [ours.answer(name, args) for _ in range(TIMES)]
        assert tagged(args) == before
        assert name in CHANGING or answers == answers[:1] * TIMES
        assert not any(kind == "crashed" for kind, _ in answers), answers


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.__setitem__("a", 1),
        lambda value: value.__delitem__("a"),
        lambda value: value.update(a=1),
        lambda value: value.setdefault("b", 1),
        lambda value: value.pop("a"),
        lambda value: value.popitem(),
        lambda value: value.clear(),
        lambda value: value.__ior__({"b": 1}),
    ],
)
def test_an_object_cannot_be_changed(change):
    value = Object({"a": 0})
    with pytest.raises(TypeError, match="cannot be changed"):
        change(value)
    assert value == {"a": 0}


def test_sorted_keys_and_members_are_tuples_that_nobody_can_empty():
    assert Object({"b": 1, "a": 2}).ordered() == ("a", "b")
    assert Set({"b", "a"}).ordered() == ("a", "b")
    assert Set({1, "a", 2}).ordered() == (1, 2, "a")
