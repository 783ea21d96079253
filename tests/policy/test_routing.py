"""Routing: who is asked about an event; and what comes of policies that fail or were written strangely."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plugin_folders
import policy_projects
from anyplug.policy.policy_set import PolicySet
from anyplug.rego import RegoErrors
from policy_projects import answer, ask, bash, decision, event, policy, project, verdict
from random_examples import at_most

pytestmark = pytest.mark.anyio

EMPTY = {"rule_id": "X"}


@pytest.mark.requirement("CUP-27")
async def test_an_event_that_concerns_nobody_is_allowed_without_asking():
    project({"p": policy("opencode.p", "deny contains 1 / 0\n" + decision("deny"), tools=["Edit"])})
    assert await verdict(bash("ls")) == "allow"
    assert await verdict(event("edit", filePath="x")) == "deny"


async def test_once_one_policy_is_concerned_all_are_evaluated():
    routed = policy("opencode.routed", decision("deny", when="false"), tools=["Bash"])
    elsewhere = policy("opencode.elsewhere", decision("deny", "from elsewhere"), tools=["Edit"])
    project({"elsewhere": elsewhere})
    assert await verdict(bash("ls")) == "allow"
    project({"routed": routed})
    assert (await answer(bash("ls")))["reason"] == "from elsewhere"


async def test_a_star_alone_stands_for_every_tool():
    project({"p": policy("opencode.p", decision("deny"), tools=["*"])})
    assert await verdict(event("anything")) == "deny"


async def test_a_star_in_a_name_stands_for_its_rest():
    project({"p": policy("opencode.p", decision("deny"), tools=["github_*"])})
    assert await verdict(event("github_create_issue")) == "deny"
    assert await verdict(event("gitlab_create_issue")) == "allow"


async def test_a_policy_that_fails_refuses_and_does_not_silence_the_others():
    fails = (
        'deny contains x if { x := {"rule_id": p, "reason": "r", "severity": "LOW"} }\np := 1\np := 2 if input.tool\n'
    )
    project({"a": policy("opencode.a", fails), "b": policy("opencode.b", decision("halt", "stop"))})
    assert await answer(bash("ls")) == {"decision": "block", "reason": "stop"}
    project({"b": policy("opencode.b", decision("ask", "really?"))})
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert "a.rego:" in made["reason"]


async def test_a_policy_that_never_ends_refuses():
    loops = (
        "deny contains x if { some a in numbers.range(1, 9000); some b in numbers.range(1, 9000); x := a * b; x < 0 }\n"
    )
    project({"p": policy("opencode.p", loops)})
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert "too many steps" in made["reason"] or "too much time" in made["reason"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ('deny contains "just text"', "just text"),
        ('deny contains {"reason": "no id"}', "no id"),
        ("deny contains 7", "reason"),
        ("deny := true", "reason"),
        ('deny := "words"', "words"),
        ('deny := [{"reason": "listed"}]', "listed"),
        ('deny := {"a": {"reason": "keyed"}}', "keyed"),
    ],
)
async def test_a_malformed_decision_still_refuses(body, word):
    project({"p": policy("opencode.p", body + "\n")})
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert word in made["reason"]


async def test_a_malformed_decision_leaves_the_others_as_they_are():
    project({"p": policy("opencode.p", "add_context contains 7\nask contains {}\n" + decision("deny", "clear"))})
    made = await ask(bash("ls"))
    assert made["decision"] == {"decision": "deny", "reason": "clear"}
    assert any("malformed" in line for line in made["said"])


async def test_a_default_that_says_no_decides_nothing():
    project({"p": policy("opencode.p", "default deny := false\n")})
    assert await verdict(bash("ls")) == "allow"


CHOOSY = """
package cupcake.system
import rego.v1
evaluate := {"denials": [d | some d in data.cupcake.policies.opencode.p.deny; d.severity == "HIGH"], "asks": [],
	"halts": [], "blocks": [], "add_context": []}
"""


async def test_an_evaluate_of_ones_own_gathers_as_it_likes():
    project({"p": policy("opencode.p", decision("deny", severity="LOW"))}, evaluate=CHOOSY)
    assert await verdict(bash("ls")) == "allow"
    project({"p": policy("opencode.p", decision("deny", severity="HIGH"))}, evaluate=CHOOSY)
    assert await verdict(bash("ls")) == "deny"


@pytest.mark.parametrize(
    "gives", ["evaluate := 7", "evaluate := {} if false", "evaluate := 1\nevaluate := 2 if input.tool"]
)
async def test_an_evaluate_that_gives_no_decisions_refuses(gives):
    project({"p": policy("opencode.p", decision("ask"))}, evaluate=f"package cupcake.system\nimport rego.v1\n{gives}\n")
    assert await verdict(bash("ls")) == "deny"


async def test_decisions_that_hide_in_values_are_found_as_the_original_finds_them():
    body = 'rules := {"deny": [{"rule_id": "H", "reason": "hidden", "severity": "HIGH"}]}\n'
    project({"p": policy("opencode.p", body)})
    assert (await answer(bash("ls")))["reason"] == "hidden"


@pytest.mark.requirement("CUP-26")
async def test_policies_for_other_agents_are_not_read():
    project({"p": policy("opencode.p", decision("ask"))})
    project({"p": "broken"}, harness="claude")
    assert await verdict(bash("ls")) == "ask"


async def test_the_rule_that_decided_is_named_with_its_place():
    body = decision("deny", "one", rule="A", when="false") + "\n" + decision("deny", "two", rule="B")
    project({"p": policy("opencode.p", body)})
    (rule,) = (await ask(bash("ls")))["rules"]
    assert (rule["rule_id"], rule["file"], rule["row"]) == ("B", ".cupcake/policies/opencode/p.rego", 10)


TOOLS = ["Bash", "Edit", "Write", "Read"]
GUARDS = [
    'input.tool_name == "Bash"',
    '"Edit" == input.tool_name',
    'input.tool_name in {"Edit", "Write"}',
    'tools := ["Read"]; input.tool_name in tools',
    'input["tool_name"] = "Write"',
    'input.hook_event_name == "PreToolUse"',
    'not input.tool_name == "Bash"',
    'input.tool_name != "Edit"',
    'some t in ["Bash", "Read"]; t == input.tool_name',
    "true",
]
RULES = st.lists(
    st.tuples(st.sampled_from(["halt", "deny", "ask"]), st.lists(st.sampled_from(GUARDS), max_size=2, unique=True)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=at_most(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(RULES, st.lists(st.sampled_from(TOOLS), min_size=1, max_size=2)), min_size=1, max_size=3))
def test_leaving_out_what_cannot_hold_changes_no_decision(sets):
    texts = {}
    for number, (rules, tools) in enumerate(sets):
        body = "".join(
            f'{verb} contains {{"rule_id": "R{number}.{at}", "reason": "r", "severity": "HIGH"}} if {{\n'
            + "\n".join(guard.replace("tools", f"tools{at}") for guard in [*guards, "true"])
            + "\n}\n"
            for at, (verb, guards) in enumerate(rules)
        )
        texts[f"p{number}.rego"] = policy(f"opencode.p{number}", body, tools=tools)
    policies = PolicySet(texts, {"evaluate.rego": policy_projects.EVALUATE})
    assert policies.is_direct
    for tool in TOOLS:
        document = {"tool_name": tool, "hook_event_name": "PreToolUse", "tool_input": {}}
        plan = policies.plan("PreToolUse", tool)
        if plan.matched:
            asked = {(one.verb, one.rule_id) for one in policies.findings(plan, document).findings}
            assert asked == {(one.verb, one.rule_id) for one in policies._gathered(document).findings}


@pytest.mark.parametrize("system", [{}, {"evaluate.rego": policy_projects.EVALUATE}])
def test_a_policy_outside_of_what_is_gathered_is_a_fault(system):
    text = policy("p", decision("deny")).replace("cupcake.policies.p", "mine.p")
    with pytest.raises(RegoErrors, match=r"p\.rego:6:1: policy_package_error"):
        PolicySet({"p.rego": text}, system, needs_evaluate=False)


USUAL = """
package cupcake.system
import rego.v1
evaluate := decisions if {
	decisions := {"halts": found("halt"), "denials": found("deny"), "blocks": found("block"), "asks": found("ask"),
		"allow_overrides": found("allow_override"), "add_context": found("add_context")}
}
found(name) := made if {
	sets := [value | walk(data.cupcake.policies, [path, value]); path[count(path) - 1] == name]
	every_one := [each | some one in sets; some each in one]
	made := every_one
}
default found(_) := []
"""


@pytest.mark.parametrize(
    ("system", "is_direct"),
    [
        (policy_projects.EVALUATE, True),
        (USUAL, True),
        (USUAL.replace('found("ask")', "[]"), False),
        (USUAL.replace('found("ask")', 'found("deny")'), False),
        (USUAL.replace("some each in one]", 'some each in one; input.tool != "x"]'), False),
        (USUAL.replace("some each in one]", 'some each in one; each.severity != "LOW"]'), False),
        (CHOOSY, False),
    ],
)
def test_an_evaluate_that_chooses_is_told_apart_from_one_that_gathers(system, is_direct):
    made = PolicySet({"p.rego": policy("opencode.p", decision("deny"))}, {"evaluate.rego": system})
    assert made.is_direct == is_direct


async def test_policies_behind_links_are_read_and_circles_are_left():
    here = project({})
    folder = os.path.join(here, ".cupcake", "policies", "opencode")
    plugin_folders.write(os.path.join(here, "shared", "p.rego"), policy("opencode.p", decision("deny", "linked")))
    os.symlink("../../../shared", os.path.join(folder, "linked"))
    os.symlink(".", os.path.join(folder, "circle"))
    assert (await answer(bash("ls")))["reason"] == "linked"


async def test_tests_for_opa_are_no_policies_and_policies_named_like_tests_are():
    tests = "package cupcake.policies.opencode.p_test\nimport rego.v1\ntest_it if true\n"
    project({"p_test": tests, "load_test": policy("opencode.load", decision("ask"))})
    assert await verdict(bash("ls")) == "ask"


@pytest.mark.requirement("CUP-27")
def test_a_policy_says_with_file_and_line_what_is_wrong_with_its_routing():
    text = policy("p", decision("deny")).replace('["PreToolUse"]', '"PreToolUse"')
    with pytest.raises(RegoErrors, match=r"p\.rego:1:1: policy_routing_error: required_events must be a list"):
        PolicySet({"p.rego": text}, {"evaluate.rego": policy_projects.EVALUATE})


async def test_a_finding_names_the_file_and_the_line_of_its_rule_also_if_others_share_the_package_and_the_verb():
    one = decision("deny", when='input.tool_input.command == "one"', rule="ONE")
    two = "x := 1\n" + decision("deny", when='input.tool_input.command == "two"', rule="TWO")
    three = """
decided := {"rule_id": "THREE", "severity": "HIGH", "reason": "r"}
deny contains decided if input.tool_input.command == "three"
"""
    project({"a": policy("opencode.p", one), "b": policy("opencode.p", two), "c": policy("opencode.p", three)})
    for command, place in (("one", ("a.rego", 8)), ("two", ("b.rego", 9)), ("three", ("c.rego", 9))):
        (rule,) = (await ask(bash(command)))["rules"]
        assert (os.path.basename(rule["file"]), rule["row"]) == place
