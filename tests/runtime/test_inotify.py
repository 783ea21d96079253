"""Whether anything stirred in some folders: all that programs can do there by a path is seen, and nothing else."""

import os
import sys

import pytest

from anyplug.runtime import inotify as module
from anyplug.runtime.inotify import PathWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")


@pytest.fixture
def stir():
    made = PathWatch()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "watched"
    place.mkdir()
    (place / "file").write_text("as it was")
    (tmp_path / "elsewhere").write_text("as it was")
    (place / "link").symlink_to(tmp_path / "elsewhere")
    return place


def replace(folder):
    (folder.parent / "other").write_text("another")
    os.rename(folder.parent / "other", folder / "file")


CHANGES = {
    "written": lambda folder: (folder / "file").write_text("another"),
    "mode": lambda folder: (folder / "file").chmod(0o700),
    "times": lambda folder: os.utime(folder / "file", (1, 1)),
    "made": lambda folder: (folder / "more").touch(),
    "removed": lambda folder: (folder / "file").unlink(),
    "replaced": replace,
    "moved away": lambda folder: os.rename(folder / "file", folder.parent / "gone"),
    "folder made": lambda folder: (folder / "more").mkdir(),
    "folder moved": lambda folder: os.rename(folder, folder.parent / "gone"),
    "behind a link": lambda folder: (folder.parent / "elsewhere").write_text("another"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen_at_once_and_once(change, stir, folder):
    assert stir.watch([str(folder), str(folder / "link")])
    assert not stir.happened()
    change(folder)
    assert stir.happened()
    assert not stir.happened()


def test_reading_is_no_change(stir, folder):
    assert stir.watch([str(folder)])
    (folder / "file").read_text()
    os.listdir(folder)
    os.stat(folder / "file")
    assert not stir.happened()


def test_many_changes_are_one(stir, folder):
    assert stir.watch([str(folder)])
    for number in range(3_000):
        (folder / str(number)).touch()
    assert stir.happened()
    assert not stir.happened()


def test_what_is_not_there_cannot_be_watched_and_then_nothing_is(stir, folder):
    assert stir.watch([str(folder)])
    assert not stir.watch([str(folder / "nothing")])
    (folder / "more").touch()
    assert not stir.happened()


def test_nobody_watches_more_than_is_left_for_others(stir, folder, monkeypatch):
    monkeypatch.setattr(module, "MOST_WATCHED", 2)
    assert stir.watch([str(folder)])
    assert not stir.watch([str(folder), str(folder / "file")])
    assert not stir.happened()
    assert stir.watch([str(folder)])


def test_who_watches_nothing_sees_nothing_and_can_be_closed(stir):
    assert not stir.happened()
    stir.close()
    stir.close()
