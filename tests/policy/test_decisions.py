"""One decision out of many: priorities, severities, and the words that people and programs look for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyplug.policy.decisions import VERBS, Finding, applied, decide, is_malformed, read


def found(verb, reason="r", rule="R", severity="HIGH", **more):
    return Finding(verb=verb, reason=reason, rule_id=rule, severity=severity, **more)


def test_nothing_found_is_allowed():
    assert decide([]).verb == "allow"


def test_the_strongest_verb_wins_whatever_comes_first():
    order = ["halt", "deny", "block", "ask", "modify"]
    for at, verb in enumerate(order):
        findings = [found(weaker, updated_input={}) for weaker in reversed(order[at:])]
        assert decide(findings).verb == verb


@pytest.mark.parametrize(
    ("severities", "said"),
    [
        (["HIGH"], "r0"),
        (["LOW", "HIGH"], "r1"),
        (["HIGH", "CRITICAL"], "Multiple high-severity policy violations detected: [R0] r0; [R1] r1"),
        (["MEDIUM", "MODERATE", "LOW"], "Multiple policy violations detected: [R0] r0; [R1] r1"),
        (["LOW", "INFO"], "Policy guidelines: r0; r1"),
        (["MEDIUM", "LOW", "LOW"], "r0"),
    ],
)
def test_only_the_most_severe_are_reported(severities, said):
    findings = [found("deny", f"r{n}", f"R{n}", severity) for n, severity in enumerate(severities)]
    assert decide(findings).reason == said


def test_what_is_said_twice_is_reported_once():
    assert decide([found("deny"), found("deny")]).reason == "r"


def test_context_reaches_only_who_may_go_on():
    assert decide([], ["a", "b", "a"]).context == ("a", "b")
    assert decide([found("ask")], ["a"]).context == ()


def test_modifications_are_merged_and_the_higher_priority_holds():
    low = found("modify", "low", "L", updated_input={"a": 1, "deep": {"x": 1, "y": 1}}, priority=10)
    high = found("modify", "high", "H", updated_input={"a": 2, "deep": {"x": 2}}, priority=90)
    made = decide([low, high])
    assert made.updated_input == {"a": 2, "deep": {"x": 2, "y": 1}}
    assert made.reason == "Multiple modifications applied: [H] high; [L] low"
    assert decide([low]).reason == "low"
    assert applied({"deep": {"x": 9}}, {"deep": {"x": 1, "z": 1}, "b": 0}) == {"deep": {"x": 9, "z": 1}, "b": 0}


def test_a_decision_that_lacks_something_still_counts():
    for said in ({}, {"reason": 3}, "just words", True, None, 7, ["x"]):
        assert is_malformed("deny", said)
        assert read("deny", said, "safety").verb == "deny"
    assert read("halt", "just words").reason == "just words"
    assert read("deny", {"reason": "x"}, "safety").rule_id == "SAFETY"


def test_a_modification_that_says_not_what_refuses():
    made = read("modify", {"reason": "x", "rule_id": "M"}, "safety")
    assert (made.verb, made.is_failure) == ("deny", True)
    assert "updated_input" in made.reason


def test_a_priority_that_is_none_is_the_usual_one():
    for given_priority, kept in ((True, 50), ("9", 50), (-3, 0), (999, 255), (7, 7)):
        said = {"reason": "x", "rule_id": "M", "updated_input": {}, "priority": given_priority}
        assert read("modify", said).priority == kept


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYED = st.dictionaries(st.sampled_from(["reason", "severity", "rule_id", "updated_input", "priority"]), JSON)


@given(
    st.lists(st.tuples(st.sampled_from([verb for verb in VERBS if verb != "add_context"]), JSON | KEYED), max_size=6)
)
def test_whatever_policies_say_there_is_one_decision_and_no_refusal_is_lost(said):
    made = decide([read(verb, value) for verb, value in said])
    verbs = {verb for verb, _ in said}
    if verbs & {"halt", "deny", "block"}:
        assert made.refuses
    elif "ask" in verbs:
        assert made.verb in {"ask", "deny"}
    elif not verbs:
        assert made.verb == "allow"
