"""Listings of folders are kept for the next search as long as nothing changes there."""

import os
import time

import pytest

from anyplug.launch import link_targets

CLOCK_STEP_S = 0.02  # longer than a step of the file system's clock


@pytest.fixture(autouse=True)
def _at_rest(monkeypatch):
    monkeypatch.setattr(link_targets, "SETTLED_NS", -1_000_000_000)  # as if two seconds had passed
    link_targets._known.clear()


def test_a_listing_is_kept_until_something_is_added_replaced_or_removed(tmp_path):
    tmp_path /= "searched"
    (tmp_path / "one").mkdir(parents=True)
    folder = str(tmp_path)
    before = link_targets._listing(folder)
    assert link_targets._listing(folder) is before
    assert (before.links, before.folders) == ((), (str(tmp_path / "one"),))
    time.sleep(CLOCK_STEP_S)
    (tmp_path / "link").symlink_to("one")
    assert link_targets._listing(folder).links == ("link",)
    time.sleep(CLOCK_STEP_S)
    os.rmdir(tmp_path / "one")
    (tmp_path / "other").symlink_to("/")
    os.rename(tmp_path / "other", tmp_path / "one")
    assert sorted(link_targets._listing(folder).links) == ["link", "one"]
    os.unlink(tmp_path / "one")
    os.unlink(tmp_path / "link")
    assert link_targets._listing(folder).links == ()


def test_what_has_just_changed_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(link_targets, "SETTLED_NS", 2_000_000_000)
    link_targets._listing(str(tmp_path))
    assert not link_targets._known


def test_a_folder_that_is_gone_is_empty(tmp_path):
    assert link_targets._listing(str(tmp_path / "none")).seen == 0
