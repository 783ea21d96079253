"""Programs are found as `shutil.which` finds them."""

import os
import shutil

import pytest

from anyplug.runtime.processes.program_search import which


@pytest.fixture
def folders(tmp_path, monkeypatch):
    for name, mode in (("first/tool", 0o644), ("second/tool", 0o755), ("third/tool", 0o755), ("third/other", 0o755)):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    (tmp_path / "second" / "other").mkdir()
    monkeypatch.chdir(tmp_path / "third")
    return os.pathsep.join(str(tmp_path / name) for name in ("first", "missing", "second", "third"))


@pytest.mark.parametrize("name", ["tool", "other", "none", "./tool", "../first/tool", "/bin/sh", "/bin", ""])
@pytest.mark.parametrize("kind", ["folders", "own", "empty", "here"])
def test_the_same_program_is_found(folders, monkeypatch, name, kind):
    monkeypatch.setenv("PATH", folders)
    path = {"folders": folders, "own": None, "empty": "", "here": f"{os.pathsep}{folders}"}[kind]
    assert which(name, path) == shutil.which(name, path=path)
