"""What is refused, when, and with which words."""

import time

import pytest

from anyplug import rego
from rows import each_row


def faults(*texts: str) -> list[tuple[str, int, int, str]]:
    with pytest.raises(rego.RegoErrors) as caught:
        rego.compile({f"{number}.rego": text for number, text in enumerate(texts)})
    return [(fault.where.file, fault.where.row, fault.where.col, fault.code) for fault in caught.value.faults]


@each_row(
    ("text", "row", "col", "code"),
    [
        ("", 1, 1, "rego_parse_error"),
        ("package", 1, 8, "rego_parse_error"),
        ("package a\np := ", 2, 6, "rego_parse_error"),
        ("package a\np := [1, 2", 2, 11, "rego_parse_error"),
        ('package a\np := "x', 2, 6, "rego_parse_error"),
        ('package a\np := "\\q"', 2, 7, "rego_parse_error"),
        ("package a\np { true }", 2, 3, "rego_parse_error"),
        ("package a\np", 2, 1, "rego_parse_error"),
        ("package a\np if { }", 2, 8, "rego_parse_error"),
        ("package a\np := 1 2", 2, 8, "rego_parse_error"),
        ("package a\np := 01", 2, 6, "rego_parse_error"),
        ("package a\nimport foo.bar", 2, 1, "rego_parse_error"),
        ("package a\ndefault p := input.x", 2, 14, "rego_parse_error"),
        ("package a\np if x > 1", 2, 6, "rego_unsafe_var_error"),
        ("package a\np if not input.x[_]", 2, 6, "rego_unsafe_var_error"),
        ("package a\np := x if y := 1", 2, 6, "rego_unsafe_var_error"),
        ("package a\np := [x | y := 1]", 2, 7, "rego_unsafe_var_error"),
        ("package a\np if { x := 1; x := 2 }", 2, 16, "rego_compile_error"),
        ("package a\np if nothing(1)", 2, 6, "rego_type_error"),
        ("package a\np if count(1, 2, 3)", 2, 6, "rego_type_error"),
        ("package a\np if p", 2, 1, "rego_recursion_error"),
        ("package a\np if q\nq if p", 2, 1, "rego_recursion_error"),
        ("package a\nf(x) := f(x)", 2, 1, "rego_recursion_error"),
        ("package a\np := data.a", 2, 1, "rego_recursion_error"),
        ("package a\np := 1\np contains 2", 3, 1, "rego_type_error"),
        ("package a\np := 1\np.q := 2", 3, 1, "rego_type_error"),
        ("package a\nf(x) := 1\nf(x, y) := 1", 3, 1, "rego_type_error"),
        ("package a\nf(x) := 1\np := f", 3, 6, "rego_type_error"),
        ("package a\np := http.send({})", 2, 6, "rego_not_supported"),
        ("package a\np := io.jwt.encode_sign(`x`, `y`, `z`)", 2, 6, "rego_not_supported"),
        ("# METADATA\n# scope: [\npackage a", 2, 1, "rego_parse_error"),
        ("package a\np := " + "[" * 200, 2, 66, "rego_parse_error"),
    ],
)
def test_a_fault_has_its_place_and_its_code(text, row, col, code):
    assert faults(text)[0] == ("0.rego", row, col, code)


def test_all_files_with_faults_are_named():
    assert [fault[0] for fault in faults("package a\np :=", "package b\nok := 1", "package c\np := }")] == [
        "0.rego",
        "2.rego",
    ]


def test_what_is_not_supported_may_be_replaced():
    policies = rego.compile(
        {"t.rego": "package t\nq := http.send({}).status\np := x if x := q with http.send as {`status`: 200}"}
    )
    assert policies.eval("data.t.p") == 200
    with pytest.raises(rego.NotSupported):
        policies.eval("data.t.q")


def test_too_many_loops_inside_each_other_are_refused():
    body = "; ".join(f"some x{number} in input" for number in range(30))
    assert faults(f"package a\np if {{ {body} }}")[0][3] == "rego_not_supported"


@pytest.mark.parametrize(
    "body",
    [
        "p if { some a in numbers.range(1, 5000); some b in numbers.range(1, 5000); a + b == 0 }",
        "p := count([1 | some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a == b])",
        "f0(x) := x\n" + "\n".join(f"f{n}(x) := f{n - 1}(x) + f{n - 1}(x)" for n in range(1, 60)) + "\np := f59(1)",
        "p := count(s) if { s0 := `aaaaaaaaaaaaaaaa`; "
        + "; ".join(f"s{n} := concat(``, [s{n - 1}, s{n - 1}])" for n in range(1, 50))
        + "; s := s49 }",
    ],
)  # fmt: skip
def test_a_policy_that_never_ends_is_stopped(body):
    policies = rego.compile({"t.rego": f"package t\n{body}"})
    begun = time.monotonic()
    with pytest.raises(rego.Exhausted):
        policies.eval("data.t.p", seconds=0.2)
    with pytest.raises(rego.Exhausted):
        policies.eval("data.t.p", steps=100_000)
    assert time.monotonic() - begun < 3


def test_a_pattern_that_would_run_for_ever_elsewhere_returns():
    policies = rego.compile(
        {"t.rego": "package t\np if regex.match(`^(a+)+$`, input)\nq if glob.match(`{*,*}{*,*}{*,*}{*,*}x`, [], input)"}
    )
    begun = time.process_time()  # of this process alone, whatever else the machine has to do
    assert policies.eval("data.t.p", "a" * 50_000 + "!") is None
    assert policies.eval("data.t.q", "a" * 5_000) is None
    assert rego.Policies({"t.rego": "package t\np := count(regex.find_n(`ä`, input, -1))"}).eval(
        "data.t.p", "ä" * 50_000
    ) == (50_000)
    assert time.process_time() - begun < 4


def test_a_document_that_is_no_json_or_too_deep_is_refused():
    policies = rego.compile({"t.rego": "package t\np := input"})
    deep: object = 1
    for _ in range(2_000):
        deep = [deep]
    for document in (deep, object(), float("nan"), {"a": {1: b"x"}}):
        with pytest.raises(rego.NotSupported):
            policies.eval("data.t.p", document)


def test_integers_do_not_grow_without_bound():
    body = "; ".join(f"x{n} := x{n - 1} * x{n - 1}" for n in range(1, 40))
    with pytest.raises(rego.NotSupported, match="bits"):
        rego.compile({"t.rego": f"package t\np := x39 if {{ x0 := 3; {body} }}"}).eval("data.t.p")
