"""What OPA loads and evaluates, and what it refuses."""

import json
import os

import pytest

from anyplug.policy import rego
from anyplug.policy.rego.builtins import TABLE

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
@pytest.mark.parametrize(
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
