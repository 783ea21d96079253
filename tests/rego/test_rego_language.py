"""The language: what policies mean, by example."""

import pytest

from anyplug import rego
from rows import each_row

INPUT = {"tool": "bash", "args": {"command": "git commit --no-verify"}, "list": [1, 2, 3], "none": None, "yes": True}


def ask(body: str, query: str = "data.t.p", input=INPUT, **options):
    return rego.compile({"t.rego": f"package t\n{body}"}).eval(query, input, **options)


@each_row(
    ("body", "wanted"),
    [
        ("p if input.tool == `bash`", True),
        ("p if contains(input.args.command, `--no-verify`)", True),
        ("p if input.missing", None),
        ("p if not input.missing", True),
        ("default p := false\np if input.missing", False),
        ("p contains x if some x in input.list", [1, 2, 3]),
        ("p[k] := v if some k, v in input.list", {"0": 1, "1": 2, "2": 3}),
        ("p := [x * 2 | some x in input.list]", [2, 4, 6]),
        ("p := {x: y | some x in [1, 2]; y := x + 1}", {"1": 2, "2": 3}),
        ("p if every x in input.list { x > 0 }", True),
        ("p if every x in input.list { x > 1 }", None),
        ("p := x if [x, 2, _] = input.list", 1),
        ('p := x if {"command": x} = input.args', "git commit --no-verify"),
        ("f(x) := x + 1\np := f(1)", 2),
        ("f(1) := `one`\nf(x) := `many` if x > 1\np := [f(1), f(2)]", ["one", "many"]),
        ("default f(_) := 0\nf(x) := x if x > 1\np := [f(1), f(2)]", [0, 2]),
        ("p := 1 if input.missing else := 2 if input.tool else := 3", 2),
        ("a.b.c := 1\na.b[x] := 2 if x := `d`\np := a.b", {"c": 1, "d": 2}),
        ("q if input.tool == `edit`\np if q with input.tool as `edit`", True),
        ("p := x if x := count([1]) with count as 7", 7),
        ("q := data.docs.x\np := x if x := q with data.docs as {`x`: 5}", 5),
        ("p if 1 in {1, 2}", True),
        ("p if 0, 1 in input.list", True),
        ("p := {1, true}", [True, 1]),
        ("p if { {true} != {1} }", True),
        ("p if 1 == 1.0", True),
        ("p := 0.1 + 0.2", 0.3),
        ("p := 123456789012345678901234567890 + 1", 123456789012345678901234567891),
        ("p := sort([{}, [], `a`, 1, true, null, {1}])", [None, True, 1, "a", [], {}, [1]]),
        ("import data.nothing.here as n\np if not n.x", True),
        ("p := $`{input.tool}: {input.nothing}`", "bash: <undefined>"),
        ("import future.keywords.or\np if input.nothing or input.tool == `bash`", True),
        ("p := x if x := input.list[count(input.list) - 1]", 3),
        ("p := [i | input.list[i] > 1]", [1, 2]),
        ("p := [i + input.list[i] | true]", [1, 3, 5]),
        ("p := y if { walk(input.args, [path, y]); path == [`command`] }", "git commit --no-verify"),
    ],
)
def test_a_rule_means_what_rego_says(body, wanted):
    got = ask(body)
    assert got == wanted
    assert type(got) is type(wanted)


def test_a_package_is_an_object_of_its_rules():
    assert ask("p := 1\nq if input.missing\ns contains 1\nf(x) := x", "data.t") == {"p": 1, "s": [1]}


def test_what_depends_on_all_packages_may_lie_beside_them():
    policies = rego.compile(
        {
            "a.rego": "package gate.policies.a\ndeny contains {`reason`: `no`} if input.bad",
            "b.rego": "package gate.policies.b\ndeny contains {`reason`: `never`} if input.worse",
            "s.rego": """
                package gate.system
                all := [d | walk(data.gate.policies, [p, v]); p[count(p) - 1] == `deny`; some d in v]
            """,
        }
    )
    assert policies.eval("data.gate.system.all", {"worse": True}) == [{"reason": "never"}]


def test_documents_and_rules_meet_in_one_tree():
    policies = rego.compile({"t.rego": "package a.b\nc := 1"}, data={"a": {"b": {"d": 2}, "e": 3}})
    assert policies.eval("data.a") == {"b": {"c": 1, "d": 2}, "e": 3}
    assert policies.query("data.a.b[k] = v").answers() == [{"k": "c", "v": 1}, {"k": "d", "v": 2}]


def test_a_conflict_is_an_error_and_says_where():
    with pytest.raises(rego.ConflictError) as caught:
        ask("p := x if some x in input.list")
    assert caught.value.code == "eval_conflict_error"
    assert (caught.value.where.file, caught.value.where.row) == ("t.rego", 2)


def test_a_failing_builtin_is_undefined_and_noted():
    policies = rego.compile({"t.rego": "package t\np := 1 / input.zero"})
    outcome = policies.evaluate("data.t.p", {"zero": 0})
    assert not outcome.defined
    assert [(failure.message, failure.where.row) for failure in outcome.failures] == [("div: divide by zero", 2)]
    with pytest.raises(rego.BuiltinFailed, match="divide by zero"):
        policies.eval("data.t.p", {"zero": 0}, strict=True)


def test_metadata_is_read():
    text = "# METADATA\n# title: Safety\n# custom:\n#   routing:\n#     required_events: [PreToolUse]\npackage a.b\n"
    policies = rego.compile({"t.rego": text})
    custom = {"routing": {"required_events": ["PreToolUse"]}}
    assert policies.packages == {"a.b": {"scope": "package", "title": "Safety", "custom": custom}}


def test_purity_is_known():
    assert rego.compile({"t.rego": "package t\np if input.x"}).pure
    policies = rego.compile({"t.rego": "package t\np if now > 0\nnow := time.now_ns()\nq if input.x\nr if data.t.q"})
    assert not policies.pure
    assert policies.impurities("data.t.p", "data.t.q") == {"time.now_ns"}
    assert policies.impurities("data.t.r") == frozenset()
    assert policies.impurities("data.t") == {"time.now_ns"}


def test_what_was_compiled_is_not_compiled_again():
    text = {"t.rego": "package t\np := 1"}
    assert rego.compile(text) is rego.compile(dict(text))
    assert rego.compile(text) is not rego.compile({"u.rego": text["t.rego"]})


def test_printing_is_kept_apart():
    outcome = rego.compile({"t.rego": "package t\np if print(`saw`, input.tool)"}).evaluate("data.t.p", INPUT)
    assert (outcome.value, outcome.printed) == (True, ("saw bash",))


def test_references_are_evaluated_together_and_fail_alone():
    policies = rego.compile(
        {"t.rego": "package t\na contains 1\nb := x if some x in [1, 2]\nc := input.tool\nd if input.missing"}
    )
    prepared = policies.prepare("data.t.a", "data.t.c", "data.t.d")
    assert prepared.values(INPUT) == [[1], "bash", None]
    outcomes = policies.prepare("data.t.a", "data.t.b", "data.t.c").outcomes(INPUT)
    assert [outcome.value for outcome in outcomes] == [[1], None, "bash"]
    assert isinstance(outcomes[1].error, rego.ConflictError)
    with pytest.raises(rego.ConflictError):
        policies.prepare("data.t.a", "data.t.b").values(INPUT)


def test_an_explanation_names_the_bodies_that_held():
    text = "package t\ndeny contains `a` if input.tool == `edit`\ndeny contains `b` if {\n\tinput.tool == `bash`\n}\n"
    outcome = rego.compile({"t.rego": text}).explain("data.t.deny", INPUT)
    assert outcome.value == ["b"]
    assert [(where.file, where.row) for where in outcome.fired] == [("t.rego", 3)]
