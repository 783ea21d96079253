"""Whatever is written in a policy: an answer or one of our errors, and soon."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anyplug import rego
from anyplug.rego import yaml
from anyplug.rego.builtins.every import TABLE
from anyplug.rego.values.json import from_json, to_json
from anyplug.rego.values.values import compare, ordered
from random_examples import at_most
from rows import each_row

RELAXED = settings(deadline=None, max_examples=at_most(150), suppress_health_check=list(HealthCheck))
WORDS = [
    "package",
    "p",
    "if",
    "contains",
    "else",
    "default",
    "not",
    "some",
    "every",
    "in",
    "with",
    "as",
    "import",
    "true",
    "false",
    "null",
    "input",
    "data",
    "x",
    "y",
    "_",
    "f",
    "count",
    "walk",
    "regex.match",
    "sprintf",
    "time.date",
    "numbers.range",
    "json.patch",
    "object.get",
    "glob.match",
    "concat",
    "split",
    "sum",
    "units.parse",
    "semver.compare",
    ":=",
    "=",
    "==",
    "!=",
    "<",
    ">",
    "+",
    "-",
    "*",
    "/",
    "%",
    "|",
    "&",
    ",",
    ";",
    ":",
    ".",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "1",
    "0",
    "2.5",
    "-1",
    '"a"',
    '"%s"',
    "`b`",
    '$"{x}"',
    "\n",
    "#",
    "METADATA",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)

names = st.sampled_from(["x", "y", "z", "_", "input", "data.t.q", "input.a", "q"])
scalars = st.sampled_from(["1", "2.5", '"a"', "true", "null", "-3", "`r`"])
calls = st.sampled_from(
    ["count", "sum", "max", "lower", "json.marshal", "is_string", "abs", "array.reverse", "object.keys", "f", "sort"]
)


def terms(inner):
    return (
        st.builds("[{}, {}]".format, inner, inner)
        | st.builds("{{{}, {}}}".format, inner, inner)
        | st.builds('{{"k": {}, {}: 1}}'.format, inner, inner)
        | st.builds("{}[{}]".format, names, inner)
        | st.builds("{}({})".format, calls, inner)
        | st.builds(
            "({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "==", "<", "|", "&", "in"]), inner
        )
        | st.builds("[{} | {} = {}]".format, inner, names, inner)
        | st.builds("{{{}: {} | some y in {}}}".format, inner, inner, inner)
        | st.builds('$"{{{}}}"'.format, names)
    )


term = st.recursive(names | scalars, terms, max_leaves=8)
expression = (
    st.builds("{} := {}".format, st.sampled_from(["x", "y", "[x, y]", "z"]), term)
    | st.builds("{} = {}".format, term, term)
    | term
    | st.builds("not {}".format, term)
    | st.builds("some {} in {}".format, st.sampled_from(["x", "x, y", "[x, _]"]), term)
    | st.builds("every x in {} {{ {} }}".format, term, term)
    | st.builds("{} with input as {}".format, term, term)
    | st.builds("{} with data.t.q as {}".format, term, term)
)
body = st.lists(expression, min_size=1, max_size=5).map("; ".join)
rule = (
    st.builds("p := {} if {{ {} }}".format, term, body)
    | st.builds("s contains {} if {{ {} }}".format, term, body)
    | st.builds("o[{}] := {} if {{ {} }}".format, term, term, body)
    | st.builds("f({}) := {} if {{ {} }}".format, st.sampled_from(["x", "[x, y]", "1", "_"]), term, body)
    | st.just("q := input.b")
)


def runs(text: str, document: object) -> None:
    """Compile and evaluate: nothing but our own errors may come out."""
    try:
        policies = rego.Policies({"t.rego": text})
    except rego.RegoErrors as error:
        codes = {fault.code for fault in error.faults}
    else:
        codes = evaluated(policies, document)
    assert codes.isdisjoint({"eval_internal_error", "rego_internal_error"})


def evaluated(policies: rego.Policies, document: object) -> set[str]:
    """Evaluate, and give the codes of the errors that came of it."""
    codes = set()
    for path in ("data", "data.t.p", "data.t.s"):
        try:
            policies.eval(path, document, seconds=2)
        except rego.EvalError as error:
            codes.add(error.code)
    return codes


@RELAXED
@given(st.lists(st.sampled_from(WORDS), max_size=30), JSON)
def test_any_heap_of_words_is_refused_or_evaluated(words, document):
    runs("package t\n" + " ".join(words), document)


@RELAXED
@given(st.text(max_size=200))
def test_any_text_is_refused_or_compiled(text):
    runs(text, None)
    runs("package t\n" + text, None)


@RELAXED
@given(st.lists(rule, min_size=1, max_size=4), JSON)
def test_any_policy_is_refused_or_evaluated(rules, document):
    runs("\n".join(["package t", *rules]), document)


@RELAXED
@given(st.lists(JSON, max_size=6))
def test_values_have_one_order_and_come_back_as_they_were(documents):
    values = [from_json(document) for document in documents]
    for value, document in zip(values, documents, strict=True):
        assert to_json(value) == json.loads(json.dumps(document))
    once = ordered(values)
    assert ordered(reversed(once)) == once
    for one in once:
        for other in once:
            assert compare(one, other) == -compare(other, one)
            assert (compare(one, other) == 0) == (one == other)


@RELAXED
@given(JSON, JSON)
def test_unification_finds_what_was_put_in(left, right):
    policies = rego.compile({"t.rego": "package t\np := [x, y] if [x, {`k`: y}] = [input[0], {`k`: input[1]}]"})
    assert policies.eval("data.t.p", [left, right]) == policies.eval("[input[0], input[1]]", [left, right])


@each_row("name", sorted(TABLE))
def test_a_builtin_takes_anything_without_breaking(name):
    builtin = TABLE[name]
    arity = max(builtin.arity, 0)
    samples = ["1", "-1", "2.5", "1e30", '"a"', '""', '"1/2"', "null", "true", "[]", '["a", 1]', '{"a": 1}', "{1, `b`}"]
    lines = [
        f"p contains {number} if {{ {name}({', '.join([sample] * arity)}) }}" for number, sample in enumerate(samples)
    ]
    for number in range(len(samples)):
        args = ", ".join(samples[(number + step * 5) % len(samples)] for step in range(arity))
        lines.append(f"p contains {100 + number} if {{ {name}({args}) }}")
    runs("\n".join(["package t", *lines]), None)


@RELAXED
@given(st.text(alphabet="ab:-[]{}\"'&*!|>#%@, \n\t?1.~<", max_size=60))
def test_any_text_is_yaml_or_refused(text):
    try:
        yaml.load(text)
    except yaml.YamlError:
        pass
