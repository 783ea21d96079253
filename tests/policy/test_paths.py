"""Where a path leads, looked up once for everything in one event."""

import itertools
import os

import pytest

from anyplug.policy import paths

NAMES = ("a", "b", "l", "up", "far", "loop", "dangling", "file", "nope", "..", ".", "", "x" * 300)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").touch()
    for name, target in (
        ("l", "a"),
        ("a/up", "../a/b"),
        ("loop", "loop"),
        ("far", f"{tmp_path}/l/up"),
        ("dangling", "gone/x"),
    ):
        (tmp_path / name).symlink_to(target)
    return str(tmp_path)


def test_one_look_leads_where_each_path_alone_leads(tree):
    found = 0
    with paths.one_look():
        for words in itertools.product(NAMES, repeat=3):
            path = os.path.join(tree, "/".join(words))
            if "loop" in words and {"..", ""} & set(words):
                continue  # the kernel refuses these, and Python leaves them half resolved
            assert paths.real(path) == os.path.realpath(path), path
            found += 1
    assert found > 1_000


def test_paths_that_are_no_paths_fail_as_they_do_alone():
    with paths.one_look(), pytest.raises(ValueError, match="null"):
        paths.real("/tmp/a\0b/c")
    with paths.one_look():
        assert paths.resolved("a\0b", "/tmp") == "/tmp/a\0b"


def test_a_link_that_changes_between_two_events_is_seen(tree):
    link = os.path.join(tree, "l")
    with paths.one_look():
        assert paths.real(f"{link}/b") == os.path.join(tree, "a", "b")
    os.unlink(link)
    os.symlink("elsewhere", link)
    with paths.one_look():
        assert paths.real(f"{link}/b") == os.path.join(tree, "elsewhere", "b")


def test_a_very_deep_path_is_resolved():
    with paths.one_look():
        assert paths.real("/nope" * 2_000) == "/nope" * 2_000
