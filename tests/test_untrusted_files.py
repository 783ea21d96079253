"""Trees that a stranger made: deeper than paths and descriptors reach, locked, and full of links."""

import os

import pytest

import making
from anyplug import untrusted_files

DEPTH = 3_000  # more than the standard library can go down, and with these names more than a path can say
NAME = "folder"


@pytest.fixture
def deep(tmp_path):
    """A tree that is deeper than anything should be, with a file at its bottom."""
    top = tmp_path / "deep"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir(NAME, dir_fd=folder)
        below = os.open(NAME, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    yield str(top)
    if top.exists():
        untrusted_files.remove(str(top))


def test_what_is_deeper_than_a_path_can_say_is_removed(deep):
    untrusted_files.remove(deep)
    assert not os.path.lexists(deep)


def test_whoever_wants_to_list_it_is_told_that_it_cannot_be(deep):
    with pytest.raises(OSError, match="more than 100 folders inside one another"):
        untrusted_files.files(deep)


def test_files_and_links_are_listed_and_folders_are_not(tmp_path):
    for name in ("b", "a/c", "a/d/e"):
        making.write(str(tmp_path / "top" / name), "")
    os.symlink("/", tmp_path / "top" / "a" / "link")
    (tmp_path / "top" / "empty").mkdir()
    assert untrusted_files.files(str(tmp_path / "top")) == ["a/c", "a/d/e", "a/link", "b"]


def test_a_link_goes_and_what_it_leads_to_stays(tmp_path):
    kept = making.write(str(tmp_path / "kept" / "file"), "")
    top = tmp_path / "top"
    top.mkdir()
    os.symlink(tmp_path / "kept", top / "folder")
    os.symlink(kept, top / "file")
    untrusted_files.remove(str(top))
    assert os.path.exists(kept)
    os.symlink(tmp_path / "kept", top)
    with pytest.raises(NotADirectoryError):
        untrusted_files.remove(str(top))
    assert os.path.exists(kept)


def test_what_was_locked_goes_too(tmp_path):
    making.write(str(tmp_path / "top" / "a" / "b" / "file"), "")
    for name in ("top/a/b", "top/a", "top"):
        os.chmod(tmp_path / name, 0)
    untrusted_files.remove(str(tmp_path / "top"))
    assert not (tmp_path / "top").exists()
