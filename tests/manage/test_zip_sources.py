"""A zip archive is a stranger's: what could end up elsewhere than in its folder is refused."""

import io
import os
import stat
import zipfile

import pytest

from anyplug.home.settings import find_home
from anyplug.manage import zip_sources
from anyplug.model.errors import InstallError


def packed(*files: tuple[str, bytes], mode: int = 0o100644) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, text)
    return content.getvalue()


def refused(content: bytes) -> str:
    home = find_home(None)
    with pytest.raises(InstallError) as error, zip_sources.unpacked(content, home):
        pass
    assert [name for name in os.listdir(home.path) if name.startswith(".zip-")] == []
    return str(error.value)


def test_files_come_out_with_their_modes_and_are_gone_afterwards():
    content = packed(("kit/plugin.json", b"{}"), ("kit/bin/run", b"#!/bin/sh\n"), mode=0o100755)
    with zip_sources.unpacked(content, find_home(None)) as folder:
        assert os.path.basename(folder) == "kit"
        assert os.access(os.path.join(folder, "bin", "run"), os.X_OK)
    assert not os.path.exists(folder)


def test_an_archive_without_a_folder_around_its_files_is_the_plugin_itself():
    with zip_sources.unpacked(packed(("plugin.json", b"{}"), ("run", b"")), find_home(None)) as folder:
        assert sorted(os.listdir(folder)) == ["plugin.json", "run"]


@pytest.mark.parametrize(
    "name", ["../out", "/etc/passwd", "a/../../out", "a//b", "C:evil", "a\\..\\out", "./run", "x" * 2000]
)
def test_names_that_lead_out_are_refused(name):
    assert "unsafe name" in refused(packed((name, b"")))


def test_links_and_devices_are_refused():
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR):
        assert "link or device" in refused(packed(("run", b"/etc/passwd"), mode=kind | 0o777))


def test_a_name_may_occur_once():
    with pytest.warns(UserWarning, match="Duplicate"):
        content = packed(("run", b"1"), ("run", b"2"))
    assert "twice" in refused(content)


def test_what_comes_out_is_limited_whatever_the_archive_says(monkeypatch):
    monkeypatch.setattr(zip_sources, "LARGEST", 1000)
    assert "holds more than" in refused(packed(("run", b"0" * 5000)))


def test_the_number_of_files_is_limited(monkeypatch):
    monkeypatch.setattr(zip_sources, "MOST_FILES", 2)
    assert "3 files" in refused(packed(("a", b""), ("b", b""), ("c", b"")))


@pytest.mark.parametrize("content", [b"", b"no archive", packed(("run", b"x" * 500))[:-40]])
def test_damaged_archives_are_refused(content):
    assert "cannot be read" in refused(content)
