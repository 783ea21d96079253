"""What leads to a path: every link on the way, read once for many paths."""

import os
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anyplug.runtime.sandbox.linux.hidden_paths import HiddenNames, Links, on_the_way_to

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
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
    os.symlink("/", f"{missing}/link")
    assert links.target(f"{missing}/below") is None
    assert links.is_missing(f"{missing}/below")  # it was asked for before, and this is one look
    assert links.target(f"{missing}/link") is None  # below something that was missing
    assert Links().target(f"{missing}/link") == "/"


@ON_LINUX
def test_what_appears_where_a_changed_link_leads_is_noticed(tmp_path):
    one, two, link = (tmp_path / name for name in ("one", "two", "link"))
    one.mkdir()
    link.symlink_to(one)
    hidden = f"{link}/secret"
    names = HiddenNames((hidden,), ())
    try:
        link.unlink()
        link.symlink_to(two)
        assert not names.exposed()
        two.mkdir()
        assert not names.stirred()
        (two / "secret").touch()
        assert names.stirred() == hidden
        assert not names.exposed()  # it was reported
        (one / "secret").touch()
        assert not names.stirred()
        link.unlink()
        link.symlink_to(one)
        assert names.exposed() == hidden
    finally:
        os.close(names.fd)


@ON_LINUX
def test_paths_that_are_hidden_later_are_watched_too(tmp_path):
    (tmp_path / "folder").mkdir()
    first, later = f"{tmp_path}/first", f"{tmp_path}/folder/later"
    names = HiddenNames((first,), ())
    try:
        assert not names.exposed()
        assert not names.add((later,))
        (tmp_path / "folder" / "later").touch()
        assert names.stirred() == later
    finally:
        os.close(names.fd)
