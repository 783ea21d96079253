"""zot's frames: those that are read in one step are read as all others are."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from anyplug.formats.zot import frames


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["tool_result", "event_intercept_response", "TOOL_RESULT", "notify"])},
        optional={
            "id": st.one_of(st.text(max_size=3), st.integers(), st.none()),
            "ID": st.text(max_size=3),
            "content": st.one_of(
                st.none(),
                st.text(max_size=3),
                st.lists(
                    st.one_of(st.dictionaries(st.text(max_size=4), st.text(max_size=3)), st.integers()), max_size=2
                ),
            ),
            "is_error": st.one_of(st.booleans(), st.none(), st.integers()),
            "Is_Error": st.booleans(),
            "block": st.one_of(st.booleans(), st.none()),
            "modified_args": st.one_of(st.none(), st.dictionaries(st.text(max_size=3), st.integers())),
            "more": st.integers(),
        },
    )
)
def test_a_frame_that_is_read_in_one_step_is_what_it_would_be_in_two(raw):
    line = msgspec.json.encode(raw)
    try:
        plain = frames.read_plain(line)
    except msgspec.DecodeError:
        return  # then it is read in two
    kind = frames.kind_of(raw)
    slow = frames.read(kind, raw)
    assert isinstance(plain, type(slow))
    assert msgspec.structs.asdict(plain) == msgspec.structs.asdict(slow)
    assert frames.kind_of(plain) == kind
