"""Schemas are strangers' texts: a check tells what breaks them, and never takes long."""

import subprocess
import sys

import jsonschema_rs  # noqa: F401 - so that every check is made with it
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyplug.model import schema


def chain(kind, length=40):
    """Make a schema in which every definition applies the next one twice."""
    parts = {f"d{at}": {kind: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(length)}
    parts[f"d{length}"] = {"type": "string"}
    return {"$defs": parts, "properties": {"a": {"$ref": "#/$defs/d0"}}}


def deep(levels, leaf=1):
    value = leaf
    for _ in range(levels):
        value = {"a": value}
    return value


BRANCHES = {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
NODE = {"type": "object", "properties": {"name": {"type": "string"}, "nodes": {"items": {"$ref": "#/$defs/node"}}}}


@pytest.mark.claim("no-stall")
@pytest.mark.parametrize(
    ("hostile", "arguments"),
    [
        (chain("allOf"), {"a": "x"}),
        (chain("anyOf"), {"a": 1}),
        (chain("oneOf"), {"a": 1}),
        (BRANCHES, deep(60)),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}}, {}),
        ({"allOf": [{"properties": {"a": {"items": {"type": "string"}}}}] * 2_000}, {"a": [1] * 100_000}),
        ({"properties": {"a": {"$ref": "#anchor"}}, "$defs": {"b": {"$anchor": "anchor", **BRANCHES}}}, deep(60)),
        ({"properties": {"a": {"pattern": "(?=a*b)a"}}}, {"a": "a" * 1_000_000}),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"pattern": r"(.*x)\1"}}}, {"a": "a" * 1_000_000}),
        ({"patternProperties": {"^(?!b).*(?=c)": {}}}, {"a" * 1_000_000: 1}),
        ({"propertyNames": {"pattern": "(?=a*b)a"}}, {"a" * 1_000_000: 1}),
        ({"properties": {"a": {"items": {"not": {"pattern": r"^((a|aa)+)+\2c$"}}}}}, {"a": ["a" * 28] * 5_000}),
        ({"patternProperties": {rf"^(?=(a|aa)+$)\w{{{at}}}": {} for at in range(100, 200)}}, {"a": 1}),
        ({"properties": {f"p{at}": {"pattern": f"^{at}$"} for at in range(1_000)}}, {"a": 1}),
        ({"properties": {"a": {"pattern": "(a|b)*a(a|b){5000}c"}}}, {"a": "ab" * 1_000_000}),
        ({"allOf": [{"properties": {"a": {"items": {"pattern": "[ab]*a[ab]{200}c"}}}}] * 100}, {"a": ["ab" * 5_000]}),
    ],
)
def test_what_would_take_too_long_is_not_begun(hostile, arguments):
    assert schema.violations(hostile, arguments) == ["they cannot be checked: checking this schema would take too long"]


@pytest.mark.parametrize(
    ("honest", "right", "wrong"),
    [
        (chain("allOf", 8), {"a": "x"}, {"a": 1}),
        (BRANCHES, deep(5), None),
        (
            {"properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": NODE}},
            {"root": {"name": "a", "nodes": [{"name": "b", "nodes": [{"name": "c"}] * 100}] * 20}},
            {"root": {"nodes": [{"nodes": [{"name": 1}]}]}},
        ),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": [1] * 100_000}, {"a": ["1"]}),
        ({"properties": {"a": {"pattern": "^(?!b)"}, "text": {}}}, {"a": "a", "text": "x" * 1_000_000}, {"a": "b"}),
        ({"properties": {"a": {"pattern": "^a+$"}}}, {"a": "a" * 100_000}, {"a": "b"}),
    ],
)
def test_recursion_and_references_that_people_write_are_checked(honest, right, wrong):
    assert schema.violations(honest, right) == []
    assert wrong is None or "too long" not in "".join(schema.violations(honest, wrong) or ["too long"])


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"type": "int", "description": "d"}, {"type": "integer", "description": "d"}),
        ({"type": "String|Null"}, {"type": ["string", "null"]}),
        ({"type": "any", "enum": "a", "description": 5}, {}),
        ({"type": ["str", "float"]}, {"type": ["string", "number"]}),
        ("bool", {"type": "boolean"}),
        (7, {}),
        (True, True),
        (
            {"type": "object", "required": True, "properties": {"a": {"type": "str", "required": True}, "b": "int"}},
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                "required": ["a"],
            },
        ),
        (
            {
                "type": "list",
                "items": {"type": "dict", "properties": {"required": {"type": "bool", "required": False}}},
            },
            {"type": "array", "items": {"type": "object", "properties": {"required": {"type": "boolean"}}}},
        ),
        ({"properties": "a, b", "anyOf": [], "items": "str"}, {"items": {"type": "string"}}),
        ({"anyOf": ["int", {"type": "num"}]}, {"anyOf": [{"type": "integer"}, {"type": "number"}]}),
        (
            {"$defs": {"a": {"type": "int"}}, "$ref": "#/$defs/a"},
            {"$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"},
        ),
        ({"properties": {"type": {"type": "int"}}}, {"properties": {"type": {"type": "integer"}}}),
    ],
)
def test_a_schema_is_repaired_as_it_was_meant_and_is_valid_then(given, meant):
    assert schema.repaired(given) == meant
    assert isinstance(meant, bool) or schema.fault(meant) == ""


def test_a_valid_schema_stays_as_it_is():
    assert schema.repaired(BRANCHES) == BRANCHES
    assert schema.repaired(chain("oneOf", 3)) == chain("oneOf", 3)
    whole = {
        "type": "object",
        "properties": {"a": {"const": None, "default": [], "x-own": {"type": "int"}}},
        "required": ["a"],
    }
    assert schema.repaired(whole) == whole


@pytest.mark.claim("no-stall")
@pytest.mark.parametrize(
    "hostile",
    [
        {"propertyNames": {"maxLength": 3}},
        {"propertyNames": {"pattern": r"^(?=(a|aa)+$)\w"}},
        {"allOf": [{"required": [f"x{at}"]} for at in range(1_000)]},
    ],
)
def test_of_very_many_violations_one_is_named(hostile):
    few, many = ({"a" * 30 + str(at): 1 for at in range(count)} for count in (20, 6_000))
    assert len(schema.violations(hostile, many)) == 1
    assert len(schema.violations(hostile, few)) >= 20


PLAIN = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "boolean"])},
    optional={"description": st.text(max_size=3), "default": st.just({"$ref": "#"})},
)
WILD = {
    "type": st.sampled_from(["string", "number", "array", "nonsense", ["string", "null"], 1]),
    "minimum": st.sampled_from([1, "one"]),
    "maxLength": st.just(2),
    "enum": st.just(["x", 1]),
    "$ref": st.just("#"),
}
SCHEMAS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["object", "object", "array"]),
        "properties": st.dictionaries(
            st.sampled_from("abc"), st.one_of(PLAIN, PLAIN, st.fixed_dictionaries({}, optional=WILD)), min_size=2
        ),
    },
    optional={
        "required": st.one_of(st.lists(st.sampled_from("abd"), max_size=2), st.just("a")),
        "additionalProperties": st.booleans(),
        "title": st.just("x"),
    },
)
VALUES = st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.sampled_from([None, 2**53, "\ud800"]))


@given(SCHEMAS, st.dictionaries(st.sampled_from("abc"), VALUES, max_size=2))
def test_what_fits_plainly_violates_nothing(given_schema, arguments):
    if schema._fits_plainly(given_schema, arguments):
        assert schema.violations(given_schema, arguments) == []


def test_a_plain_call_does_not_wait_for_the_library():
    plain = {"type": "object", "properties": {"name": {"type": "string", "description": "Who"}}, "required": ["name"]}
    for arguments, expected in (({"name": "x"}, False), ({"name": 1}, True), ({}, True), ({"name": "x", "b": 1}, True)):
        check = f"""
import sys
from anyplug.model import schema
schema.violations({plain!r}, {arguments!r})
sys.exit("jsonschema_rs" in sys.modules)
"""
        assert bool(subprocess.run([sys.executable, "-c", check], check=False).returncode) is expected, arguments
