"""What single limits cannot hold: a plugin's disk is measured when less is free than there was."""

import os
from types import SimpleNamespace

import pytest

from anyplug.runtime.sandbox.linux.memory_and_disk import Watch

MIB = 1 << 20


@pytest.fixture
def disk(monkeypatch):
    """Say how much is free on every disk."""
    state = SimpleNamespace(f_bavail=0, f_frsize=MIB, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda _: state)
    return lambda free: setattr(state, "f_bavail", free)


def test_room_that_others_give_back_hides_nothing_of_what_a_plugin_takes(disk, tmp_path):
    disk(1_000)
    watch = Watch({"memory": 1 << 60, "processes": 1_000, "disk": MIB, "tmp": MIB}, (str(tmp_path),))
    disk(5_000)
    assert watch.excess([]) == ""
    (tmp_path / "much").write_bytes(bytes(3 * MIB))
    disk(4_000)
    assert watch.excess([]) == f"{tmp_path} contains more than 1 MiB"
