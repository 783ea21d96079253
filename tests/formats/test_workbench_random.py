"""Any JSON that a Workbench tool may answer with goes through unchanged, and nothing that it writes hangs anybody."""

import os

import anyio.from_thread
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as tries
from hypothesis import strategies as st

from anyplug.host.host import Host
from anyplug.model.types import Text
from conftest import HABITS
from random_examples import at_most

EXACT = 2**53 - 1  # larger integers are not JavaScript's
# What Workbench or JavaScript itself treats in a special way is no plain data.
SPECIAL = {"__proto__", "toJSON", "then", "content", "error", "warnings"}

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
keys = text.filter(lambda key: key not in SPECIAL)
numbers = st.one_of(st.integers(-EXACT, EXACT), st.floats(-EXACT, EXACT))  # beyond, they are written as integers
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, text),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=20,
)
objects = st.dictionaries(keys, values, max_size=5)
blocks = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": text.filter(bool)}), min_size=1, max_size=4)
frames = st.sampled_from([b"", b'{"type":"tool","name":', b'{"type":"result","id":"', b'{"type":"problem","message":'])
lines = st.lists(st.builds(lambda begin, rest: begin + rest, frames, st.binary(max_size=40)), max_size=10)

often = tries(max_examples=at_most(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def evaluate(home):
    """Give a way to run JavaScript as a tool, in a host that lasts for the whole test."""
    host = Host([os.path.join(HABITS, "workbench", "evaluates")], roots=[], watch=False)
    with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(host):
        yield lambda js, **more: portal.call(host.call, "evaluates.act", {"js": js, **more})


@often
@given(content=st.one_of(text, blocks), metadata=objects)
def test_content_and_metadata_arrive_as_they_were(evaluate, content, metadata):
    result = evaluate("return input.answer", answer={"content": content, "metadata": metadata})
    assert (result.is_error, result.error, result.structured) == (False, None, None)
    assert result.metadata == metadata
    expected = [content] if isinstance(content, str) else [block["text"] for block in content]
    assert result.content == tuple(Text(text) for text in expected)


@often
@given(answer=values)
def test_any_other_answer_is_kept_beside_its_text(evaluate, answer):
    result = evaluate("return input.answer", answer=answer)
    assert not result.is_error
    if isinstance(answer, str):
        assert (result.text, result.metadata, result.structured) == (answer, {}, None)
    elif isinstance(answer, dict):
        assert (result.metadata, result.structured) == (answer, None)
    else:
        assert (result.metadata, result.structured) == ({}, answer)


@often
@given(lines=lines)
def test_whatever_is_written_to_our_descriptor_hangs_nobody(evaluate, lines):
    js = "for (const line of input.lines) fs.writeSync(4, Buffer.from([...line, 10])); return 'done'"
    assert evaluate(js, lines=[list(line) for line in lines]).text == "done"
