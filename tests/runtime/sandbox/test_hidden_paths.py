"""What leads to a path: every link on the way, read once for many paths."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anyplug.runtime.sandbox.linux.hidden_paths import Links, on_the_way_to

NAMES = st.sampled_from(["a", "b", "c"])
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=3).map("/".join)
WAYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
ASKED = st.lists(NAMES | st.sampled_from(["..", ".", ""]), min_size=1, max_size=5).map("/".join)


def create(top: str, way: str, target: str | None) -> None:
    """Create a folder, or a link to a target, unless something else is there."""
    try:
        if target is None:
            os.makedirs(os.path.join(top, way), exist_ok=True)
        else:
            os.symlink(target, os.path.join(top, way))
    except OSError:
        pass


@pytest.mark.hypothesis
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.lists(st.tuples(WAYS, st.none() | TARGETS), max_size=8), asked=st.lists(ASKED, min_size=1, max_size=6))
def test_links_that_are_read_once_lead_where_they_lead(made, asked, tmp_path_factory):
    top = os.path.realpath(tmp_path_factory.mktemp("links"))
    for way, target in made:
        create(top, way, target)
    links = Links()
    for way in asked:
        path = os.path.join(top, way)
        assert links.on_the_way_to(path) == on_the_way_to(path)
        if os.path.lexists(path) and os.path.exists(path):
            assert links.real(path) == os.path.realpath(path)
            assert not links.is_missing(path)


def test_what_is_below_a_missing_folder_is_missing(tmp_path):
    links = Links()
    missing = str(tmp_path / "missing")
    assert links.real(f"{missing}/below/it") == f"{missing}/below/it"
    assert links.is_missing(missing)
    assert links.is_missing(f"{missing}/below/it")
    os.makedirs(f"{missing}/below")
    with pytest.raises(OSError, match="Invalid"):
        links.read(f"{missing}/below")  # it was asked for before, and this is one look
