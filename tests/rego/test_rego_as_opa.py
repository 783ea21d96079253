"""What OPA loads and evaluates, and what it refuses."""

import json
import os

import pytest

from anyplug import rego
from anyplug.rego.builtins.every import TABLE
from rows import each_row

CAPABILITIES = os.path.join(os.path.dirname(__file__), "differential", "capabilities.json")


@pytest.mark.parametrize(
    "rules",
    [
        "p[q].r := {`s`: {`u`: 1}} if q := `q`\np.q.r.s.u := 2",
        "p[q].r := {`s`: {`u`: 1}} if q := `q`\np.q.r.s.v := 2",
        "p[q].r := {`s`: 1} if q := `q`\np.q.r.t := 2",
        "p[q].r contains `s` if q := `q`\np.q.r.t := 2",
    ],
)
def test_the_value_of_a_partial_rule_conflicts_with_rules_below_it(rules):
    policies = rego.Policies({"t.rego": f"package t\n{rules}"})
    for _ in range(3):
        with pytest.raises(rego.ConflictError):
            policies.eval("data.t")


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ("xs := {1, 2}\np := x if { y := {x | xs[x]}; x := count(y) }", 2),
        ("with.foo := 1\nin.foo := 2\np := data.t.in.foo", 2),
        ("p if { 1 == 1\nin.foo == 2\nwith.x }\nin.foo := 2\nwith.x := true", True),
    ],
)
def test_valid_rego_is_loaded(rules, wanted):
    assert rego.Policies({"t.rego": f"package t\n{rules}"}).eval("data.t.p") == wanted


def test_every_builtin_of_opa_is_offered_or_refused_by_name():
    with open(CAPABILITIES, encoding="utf-8") as file:
        known = json.load(file)["builtins"]
    assert set(known) - set(TABLE) == set()
    wrong = [name for name, arity in known.items() if name != "print" and TABLE[name].arity not in {arity, -1}]
    assert wrong == []


@pytest.mark.parametrize(
    "call", ["http.send({})", "any([true])", "io.jwt.decode_verify(`a`, {})", "net.lookup_ip_addr(`a`)"]
)
def test_a_refused_builtin_is_named_when_the_policy_is_loaded(call):
    with pytest.raises(rego.RegoErrors, match=call.partition("(")[0]):
        rego.Policies({"t.rego": f"package t\np := {call}"})


@pytest.mark.claim("policy-bounds-refuse")
@each_row(
    "term",
    [
        "to_number(`1_000`)",
        "sprintf(`%#v`, [1])",
        "yaml.unmarshal(`!!binary aGk=`)",
        "yaml.unmarshal(`0b-11`)",
        "yaml.unmarshal(`-_000`)",
        "json.marshal(1e3)",
        "json.marshal_with_options({true: 1, `true`: 2}, {`pretty`: true})",
        "json.marshal(15e-1 * 0.00001)",
        "uri.parse(`a://b:c:1`)",
        "json.match_schema({}, {`$schema`: `http://json-schema.org/draft-04/schema#`, `const`: 1})",
        "json.match_schema({}, {`enum`: [[]]})",
        "strings.render_template(`{{if .a}}{{nothing}}{{end}}`, {})",
        "strings.render_template(`{{with .a}}{{..}}{{end}}`, {})",
        "strings.render_template(`{{/* x }}`, {})",
        "strings.render_template(`{{index .o .n}}`, {`o`: {`1`: 2}, `n`: 1})",
        "rand.intn(`x`, -9223372036854775808)",
    ],
)
def test_what_opa_answers_and_we_do_not_is_an_error_and_never_undefined(term):
    with pytest.raises(rego.NotSupported):
        rego.Policies({"t.rego": f"package t\np if not {term} == 1"}).eval("data.t.p")


NEGATED = {  # what OPA 1.22 answers, with the input below
    "not semver.compare(`x`, `1.0.0`) == 0": False,
    "not semver.compare(`x`, `1.0.0`)": True,
    "not units.parse(input.s) == 0": False,
    "not to_number(input.s) > 1": False,
    "not 1 / 0 == 1": False,
    "not 1 + input.missing == 3": False,
    "not input.missing": True,
    "not input.missing == 1": True,
    "not input.missing = 1": True,
    "not input.missing != 1": False,
    "not input.missing < 1": False,
    "not input.missing in {1, 2}": False,
    "not 5 in input.missing": False,
    "not `z` in input.list": True,
    "not startswith(input.missing, `a`)": False,
    "not startswith(input.s, `z`)": True,
    "not startswith(lower(input.list[_]), `a`)": True,
    "not [input.missing] == [1]": False,
    "not {`a`: input.missing} == {`a`: 1}": False,
    "not input[input.missing]": False,
    "not input.list[count(input.list)] == 1": True,
    "not f(input.missing)": False,
    "not f(input.s).a": True,
    "not f(lower(input.q)) with input.q as `Z`": True,
    "not f(lower(input.q)) with input as input.objects[_]": True,
    "not {x | x := input.missing} == {1}": True,
    "not count({x | x := input.list[_]; not startswith(input.missing, x)}) == 0": False,
    "not walk(input, [[`s`], `abc`])": False,
    "not walk(input, [[`s`], `d`])": True,
    "not walk(input, [[`s`], input.missing])": False,
    "some x in input.list; not contains(x, input.missing)": False,
    "some x in input.list; not x == input.missing": True,
}


@each_row(("body", "wanted"), NEGATED.items())
def test_what_a_negation_is_about_must_be_defined_as_in_opa(body, wanted):
    text = f"package t\ndefault p := false\np if {{ {body} }}\nf(x) := x if x != `z`"
    given = {"s": "abc", "list": ["a", "b"], "objects": [{"q": "z"}, {"q": "y"}, {}]}
    assert rego.Policies({"t.rego": text}).eval("data.t.p", given) is wanted


def test_a_negation_with_the_import_evaluates_its_operands_itself():
    text = "package t\nimport future.keywords.not\np if not startswith(input.missing, `a`)"
    assert rego.Policies({"t.rego": text}).eval("data.t.p", {}) is True


def test_an_exemption_that_cannot_be_judged_exempts_nothing():
    text = """package t
exempt if not semver.compare(input.version, "2.0.0") < 0
deny contains "too old" if not exempt
"""
    policies = rego.Policies({"t.rego": text})
    assert policies.eval("data.t.deny", {"version": "2.1.0"}) == []
    assert policies.eval("data.t.deny", {"version": "latest"}) == ["too old"]
    assert policies.eval("data.t.deny", {}) == ["too old"]


@pytest.mark.parametrize("body", ["not some x in [1]", "not every x in [1] { x }"])
def test_a_negation_that_opa_refuses_is_refused(body):
    with pytest.raises(rego.RegoErrors, match="illegal negation"):
        rego.Policies({"t.rego": f"package t\np if {{ {body} }}"})
