"""JSON values: how deep is too deep, and when two are the same."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anyplug.model import json_values
from anyplug.model.json_values import DEEPEST, are_same, excess, has_too_many, is_too_deep


def nested(levels, kind):
    value = 1
    for _ in range(levels):
        value = {"a": value} if kind is dict else kind([value])
    return value


@pytest.mark.parametrize("kind", [dict, list, tuple])
def test_a_value_may_have_so_many_levels_and_no_more(kind):
    assert not is_too_deep(nested(DEEPEST, kind))
    assert is_too_deep(nested(DEEPEST + 1, kind))
    assert is_too_deep(nested(100_000, kind))


@pytest.mark.parametrize("value", [None, 1, "[[[[", {}, [], {"a": [1, {"b": 2}]}, ["x" * 1000] * 1000])
def test_what_is_flat_is_not_too_deep(value):
    assert not is_too_deep(value)


_values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text('a\\",[]{}:é', max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text('b\\",[{', max_size=3), inner)),
)


@example(value=[None, [None], [""]], most=4, escaped=False)
@given(value=_values, most=st.integers(1, 12), escaped=st.booleans())
def test_values_are_counted_without_decoding_as_with_it(value, most, escaped):
    written = json.dumps(value, ensure_ascii=escaped, separators=(",", ":")).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "MOST_VALUES", most)
        patch.setattr(json_values, "SHORTEST_VALUE", 0)
        assert has_too_many(written) is bool(excess(value, most=most))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 0}, {"a": False}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ([1, 2], [2, 1], False),
        ("x", "x", True),
        (None, None, True),
    ],
)
def test_two_values_are_the_same_if_they_are_written_the_same(one, other, same):
    assert are_same(one, other) is same
