"""Chains: what placeholders stand for, what is no chain, and steps through a real host."""

import json
import re
import time

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import plugin_folders
from anyplug.call.chains import (
    MAX_FILLED,
    MAX_STEPS,
    BadChain,
    Filling,
    Step,
    look_up,
    read_chain,
    run_chain,
    stringify,
    view,
)
from anyplug.call.consent import Attachment
from anyplug.model.types import Failure, File, Image, Result, Text
from rows import each_row

ECHO = plugin_folders.python("print(json.dumps({'result': given['input'].get('text', '')}))")  # of Cyclop One
FAILS = plugin_folders.python("print(json.dumps({'result': 'it broke', 'is_error': True}))")
SAME = "#!/bin/sh\ncat"  # of Stavrobot: structured output is the input
NUMBERS = {"n": {"type": "number", "description": ""}, "list": {"type": "array", "description": ""}}

CONTEXT = {
    "a": {
        "content": "text",
        "metadata": {"n": 1, "list": ["x", {"deep": None}], "yes": True, "": "empty", "0": "zero"},
        "key.with.dots": "unreachable",
    },
    "lastResult": {"content": [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}], "metadata": {}},
}
THE_ORIGINAL = re.compile(r"\{\{([^}]+)\}\}")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def fill(value, context=CONTEXT):
    return Filling(context).fill(value)


def said(text, **others):
    return Result(content=(Text(text),), **others)


def caller(*results):
    """A caller that gives these results in order, and keeps what it was asked."""
    asked = []

    async def call(name, arguments):
        asked.append((name, arguments))
        return results[len(asked) - 1]

    return call, asked


@each_row(
    ("text", "filled"),
    [
        ("no placeholder", "no placeholder"),
        ("{{a.content}}", "text"),
        ("<{{a.content}}{{a.content}}>", "<texttext>"),
        ("{{a.metadata.n}}", "1"),
        ("{{a.metadata.yes}}", "true"),
        ("{{a.metadata.list}}", '["x",{"deep":null}]'),
        ("{{a.metadata.list.0}}", "x"),
        ("{{a.metadata.list.1.deep}}", "null"),
        ("{{a.metadata.0}}", "zero"),
        ("{{a.metadata.}}", "empty"),
        ("{{lastResult.content.1.text}}", "second"),
        (
            "{{lastResult}}",
            '{"content":[{"type":"text","text":"first"},{"type":"text","text":"second"}],"metadata":{}}',
        ),
        # what leads nowhere stays
        ("{{ a.content }}", "{{ a.content }}"),
        ("{{b}}", "{{b}}"),
        ("{{a.nothing}}", "{{a.nothing}}"),
        ("{{a.nothing.more}}", "{{a.nothing.more}}"),
        ("{{a.metadata.list.2}}", "{{a.metadata.list.2}}"),
        ("{{a.metadata.list.-1}}", "{{a.metadata.list.-1}}"),
        ("{{a.metadata.list.00}}", "{{a.metadata.list.00}}"),
        ("{{a.metadata.list.1.deep.more}}", "{{a.metadata.list.1.deep.more}}"),
        ("{{a.metadata.n.more}}", "{{a.metadata.n.more}}"),
        ("{{a.key.with.dots}}", "{{a.key.with.dots}}"),
        (f"{{{{a.metadata.list.{'9' * 5000}}}}}", f"{{{{a.metadata.list.{'9' * 5000}}}}}"),
        # braces
        ("{{}}", "{{}}"),
        ("{a.content}", "{a.content}"),
        ("{{a.content}", "{{a.content}"),
        ("{{a.content} }", "{{a.content} }"),
        ("{{{a.content}}}", "{{{a.content}}}"),
        ("{{a.content}}}}", "text}}"),
        ("{{b {{a.content}}", "{{b {{a.content}}"),
        ("{{b}} {{a.content}}", "{{b}} text"),
        ("\\{{a.content}} $& $1", "\\text $& $1"),
    ],
)
def test_a_placeholder_is_filled_as_in_the_original(text, filled):
    assert fill(text) == filled


def test_content_that_is_a_text_also_answers_as_a_list_of_one_block():
    assert fill("{{a.content.0.text}}") == "text"
    assert fill("{{a.content.1.text}} {{a.content.0}} {{a.content.0.text.more}}") == (
        "{{a.content.1.text}} {{a.content.0}} {{a.content.0.text.more}}"
    )
    assert fill("{{a.metadata.list.0.0.text}}") == "{{a.metadata.list.0.0.text}}"


def test_texts_are_filled_at_every_depth_but_keys_are_not():
    given = {"{{a.content}}": ["{{a.content}}", 1, None, {"k": {"deep": "<{{a.metadata.n}}>"}}], "other": True}
    assert fill(given) == {"{{a.content}}": ["text", 1, None, {"k": {"deep": "<1>"}}], "other": True}


def test_what_is_filled_in_is_not_looked_at_again():
    assert fill("{{x}}", {"x": "{{y}}", "y": "no"}) == "{{y}}"


def test_a_lone_placeholder_gives_a_text_whatever_it_stands_for():
    assert fill({"n": "{{x}}"}, {"x": 12}) == {"n": "12"}


@each_row(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (-1.5, "-1.5"),
        (1e16, "10000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (0.00001234, "0.00001234"),
        (1e-7, "1e-7"),
        (1.25e-10, "1.25e-10"),
        (5e-324, "5e-324"),
        (float("nan"), "null"),
        (float("-inf"), "null"),
        (2**70, str(2**70)),
        ({"a": [], "b": {}}, '{"a":[],"b":{}}'),
        ('\x00\x1f\x7f\b\f"\\/é\u2028😀', '"\\u0000\\u001f\x7f\\b\\f\\"\\\\/é\u2028😀"'),
    ],
)
def test_values_are_written_as_javascript_writes_them(value, text):
    assert stringify(value) == text


@given(value=VALUES)
def test_what_is_written_reads_as_the_same_value(value):
    written, wanted = (json.loads(text, parse_int=float) for text in (stringify(value), json.dumps(value)))
    assert written == wanted


@given(text=st.text(alphabet="{}ab. \n", max_size=40), values=st.dictionaries(st.sampled_from("ab"), VALUES))
@example(text="}}{{a", values={})
def test_placeholders_are_those_that_the_originals_pattern_finds(text, values):
    def replaced(found):
        value = look_up(values, found[1])
        return value if isinstance(value, str) else stringify(value) if found[1] in values else found[0]

    if any("." in path and path.split(".")[0] in values for path in THE_ORIGINAL.findall(text)):
        return  # into values: shown above
    assert fill(text, values) == THE_ORIGINAL.sub(replaced, text)


def test_many_braces_take_no_longer_than_other_texts():
    started = time.monotonic()
    for text in ("{" * 500_000, "{" * 500_000 + "} }}", "{{" * 250_000 + "}" * 250_000):
        assert fill(text) == text
    assert time.monotonic() - started < 5  # the pattern itself would take minutes


def test_a_result_is_seen_as_workbench_shows_it():
    assert view(said("hi", metadata={"m": 1})) == {"content": "hi", "metadata": {"m": 1}}
    assert view(said("hi", format="mcp")) == {"content": [{"type": "text", "text": "hi"}]}
    assert view(Result()) == {"content": []}
    blocks = (Text("a"), Image("image/png", "AA=="), File("f", "text/plain", "/f"))
    assert view(Result(content=blocks))["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image", "mime_type": "image/png", "data": "AA=="},
        {"type": "file", "name": "f", "mime_type": "text/plain", "path": "/f"},
    ]
    failed = said("half", is_error=True, error=Failure("tool_error", "whole"))
    assert view(failed) == {"content": "half", "error": "whole"}


def test_structured_output_stands_beside_content_and_hides_nothing():
    structured = {"sum": 3, "content": "no", "metadata": "no", "error": "no"}
    assert view(said("hi", structured=structured)) == {"content": "hi", "sum": 3}
    assert view(said("hi", structured=[1])) == {"content": "hi", "metadata": [1]}  # data that is no object
    assert view(said("hi", structured=[1], metadata={"a": 1})) == {"content": "hi", "metadata": {"a": 1}}


def test_a_chain_is_a_list_or_an_object_that_has_one():
    steps = [{"tool": "a", "input": {"x": 1}, "outputKey": "k"}, {"tool": "b"}, {"tool": "c", "input": None}]
    expected = (Step("a", {"x": 1}, "k"), Step("b"), Step("c"))
    assert read_chain(steps).steps == read_chain({"name": "mine", "steps": steps}).steps == expected
    assert read_chain(expected).steps == expected
    assert read_chain(steps).unknown == ()


def test_what_a_step_does_not_have_is_ignored_and_named():
    read = read_chain([{"tool": "a"}, {"tool": "b", "output_key": "k", "args": {}}])
    assert list(read.unknown) == [
        "step 2 has an unknown key 'output_key', did you mean 'outputKey'?",
        "step 2 has an unknown key 'args', did you mean 'input'?",
    ]
    assert read.steps[1] == Step("b")


@each_row(
    ("chain", "faults"),
    [
        ([], ["it has no steps"]),
        ({"steps": []}, ["it has no steps"]),
        ({"step": []}, ['the object has no "steps"']),
        (None, ["the steps must be a list, not null"]),
        ("text", ["the steps must be a list, not a text"]),
        ({"steps": {}}, ["the steps must be a list, not an object"]),
        (["a"], ["step 1 must be an object, not a text"]),
        (
            [{"tool": "a"}, {}, {"tool": ""}, {"tool": 1}],
            ["step 2 has no tool", "step 3 has no tool", "step 4 has no tool"],
        ),
        ([{"tool": "a", "input": []}], ["the input of step 1 must be an object, not a list"]),
        ([{"tool": "a", "input": "x"}], ["the input of step 1 must be an object, not a text"]),
        ([{"tool": "a", "outputKey": 1}], ["the outputKey of step 1 must be a string, not a number"]),
        ([{"tool": "a"}] * (MAX_STEPS + 1), ["there are 1,001 steps, but at most 1,000 can run"]),
        ([0] * 100, ["step 1 must be", "step 10 must be", "and 90 more"]),
    ],
)
def test_every_fault_of_a_chain_is_named(chain, faults):
    with pytest.raises(BadChain) as caught:
        read_chain(chain)
    for fault in faults:
        assert fault in caught.value.message
    assert caught.value.hint


@given(
    chain=VALUES | st.lists(st.fixed_dictionaries({}, optional={"tool": VALUES, "input": VALUES, "outputKey": VALUES}))
)
def test_any_json_is_a_chain_or_a_fault(chain):
    try:
        steps = read_chain(chain).steps
    except BadChain:
        return
    assert all(step.tool and isinstance(step.input, dict) for step in steps)


@pytest.mark.anyio
async def test_the_context_has_each_step_under_its_names_in_the_originals_order():
    call, asked = caller(said("one"), said("two"), said("three"))
    steps = [
        Step("a", {}, "step1"),  # until step 1 itself ends, which takes the name
        Step("b", {"x": "{{step0.content}} {{step1.content}} {{lastResult.content}}"}, "lastResult"),
        Step("c", {"x": "{{step0.content}} {{step1.content}} {{lastResult.content}} {{step2}}"}),
    ]
    outcome = await run_chain(call, steps)
    assert (outcome.success, outcome.failed_at, outcome.error) == (True, None, None)
    assert asked == [("a", {}), ("b", {"x": "one one one"}), ("c", {"x": "one two two {{step2}}"})]
    assert {key: seen["content"] for key, seen in outcome.context.items()} == {
        "step0": "one",
        "step1": "two",
        "step2": "three",
        "lastResult": "three",
    }


@pytest.mark.anyio
async def test_a_placeholder_that_nothing_fills_is_a_warning_of_its_step():
    call, _ = caller(said("one", metadata={"warnings": ["odd"]}), said("two", metadata={"warnings": "its own"}))
    outcome = await run_chain(call, [Step("a", {"x": "{{b}}{{b}}{{ c }}"}), Step("d", {"x": "{{e}}"})])
    assert outcome.steps[0].metadata["warnings"] == ["no step returned anything for {{b}}; {{ c }}", "odd"]
    assert outcome.steps[1].metadata["warnings"] == ["no step returned anything for {{e}}", "its own"]
    assert outcome.context["step0"]["metadata"] == {"warnings": ["odd"]}


@pytest.mark.anyio
async def test_a_chain_that_doubles_its_text_ends_at_a_bound():
    async def echo(name, arguments):
        return said(arguments["text"])

    steps = [
        Step("e", {"text": "x" * 1024}),
        *[Step("e", {"text": "{{lastResult.content}}{{lastResult.content}}"})] * 99,
    ]
    outcome = await run_chain(echo, steps)
    assert (outcome.success, outcome.failed_at, len(outcome.steps)) == (False, 16, 16)
    assert outcome.error == 'Tool "e" failed: the placeholders of step 16 add more than 16 MiB'
    assert outcome.steps[-1].error.code == "invalid_arguments"
    assert len(outcome.steps[-2].text) == MAX_FILLED


@pytest.mark.anyio
async def test_a_value_that_is_nested_too_deeply_or_no_text_ends_the_chain():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    for structured, why in (({"x": deep}, "nested too deeply"), ({"x": ["\ud800"]}, "not Unicode")):
        call, asked = caller(said("", structured=structured))
        outcome = await run_chain(call, [Step("a"), Step("b", {"text": "{{step0.x}}"})])
        assert (outcome.failed_at, len(asked)) == (2, 1)
        assert why in outcome.error


@pytest.mark.anyio
async def test_a_chain_runs_through_plugins_of_several_formats(host, cyclop, stavrobot):
    plugins = cyclop("echo", ECHO), stavrobot("kit", SAME, parameters=NUMBERS)
    heard = []
    async with host(*plugins) as h:
        outcome = await h.run_chain(
            [
                {"tool": "kit.act", "input": {"n": 2.0, "list": [1, {"a": "b"}]}, "outputKey": "numbers"},
                {"tool": "echo", "input": {"text": "{{numbers.n}} {{numbers.list.1}} {{lastResult.content.0.text}}"}},
                Step("kit/act", {"list": ["{{step1.content}}"]}),
            ],
            on_step=lambda number, result: heard.append((number, result.tool)),
        )
        records = [item.record for item in h._audit.calls()]
    assert outcome.success
    assert outcome.steps[1].text == '2 {"a":"b"} {"n":2.0,"list":[1,{"a":"b"}]}'
    assert outcome.steps[2].structured == {"list": [outcome.steps[1].text]}
    assert heard == [(1, "kit.act"), (2, "echo"), (3, "kit.act")]
    assert [(record.tool, record.outcome) for record in records] == [
        ("kit.act", "done"), ("echo", "done"), ("kit.act", "done"),
    ]  # fmt: skip


@pytest.mark.anyio
async def test_a_chain_stops_at_the_first_failure_and_says_which(host, cyclop):
    async with host(cyclop("echo", ECHO), cyclop("fails", FAILS)) as h:
        outcome = await h.run_chain([Step("echo"), Step("fails", {}, "bad"), Step("echo")])
        missing = await h.run_chain([Step("echo"), Step("ecko"), Step("echo")])
        records = len(list(h._audit.calls()))
    assert (outcome.success, outcome.failed_at, outcome.error) == (False, 2, 'Tool "fails" failed: it broke')
    assert [result.is_error for result in outcome.steps] == [False, True]
    assert outcome.context["bad"] == {"content": "it broke", "error": "it broke"}
    assert (missing.failed_at, missing.error) == (2, "Tool not found: ecko")
    assert missing.steps[-1].error.hint == "did you mean echo?"
    assert records == 4


@pytest.mark.anyio
async def test_each_step_has_the_limits_of_a_call(host, cyclop, settings):
    settings("[plugins.slow]\ntimeout_s = 0.3\n")
    async with host(cyclop("slow", "#!/bin/sh\nexec sleep 60"), cyclop("echo", ECHO)) as h:
        outcome = await h.run_chain([Step("slow"), Step("echo")])
    assert (outcome.failed_at, outcome.steps[0].error.code) == (1, "timed_out")
    assert outcome.error == 'Tool "slow" failed: Plugin timed out after 0.3s'


@pytest.mark.anyio
async def test_an_answer_for_an_attachment_holds_for_the_whole_chain(host, cyclop, root):
    cyclop("echo", ECHO, permissions=["network"])
    questions = []

    async def ask(question):
        questions.append(question.arguments)
        return "attachment"

    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("echo").plugin)
        steps = [Step("echo", {"text": "a"}), Step("echo", {"text": "{{lastResult.content}}b"})]
        refused = await h.run_chain(steps)
        assert (refused.failed_at, refused.steps[0].error.code) == (1, "denied")
        assert (await h.run_chain(steps, attachment=Attachment(ask=ask))).steps[1].text == "ab"
    assert questions == [{"text": "a"}]


@pytest.mark.anyio
async def test_a_malformed_chain_runs_nothing(host, cyclop):
    async with host(cyclop("echo", ECHO)) as h:
        with pytest.raises(BadChain, match="step 2 has no tool"):
            await h.run_chain([{"tool": "echo"}, {"tol": "echo"}])
        assert list(h._audit.calls()) == []


@pytest.mark.anyio
async def test_a_cancelled_chain_ends_with_the_step_that_runs(host, cyclop):
    ended = []
    async with host(cyclop("echo", ECHO), cyclop("slow", "#!/bin/sh\nexec sleep 60")) as h:
        with anyio.CancelScope() as scope:

            def heard(number, _):
                ended.append(number)
                scope.deadline = anyio.current_time() + 0.3

            await h.run_chain([Step("echo"), Step("slow"), Step("echo")], on_step=heard)
        assert [item.record.outcome for item in h._audit.calls()] == ["done", "cancelled"]
    assert ended == [1]
