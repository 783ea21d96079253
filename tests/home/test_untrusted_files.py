"""Trees that a stranger made: deeper than paths and descriptors reach, locked, and full of links."""

import importlib
import os

import pytest

import command_line
import plugin_folders
from anyplug.home import untrusted_files

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
    with pytest.raises(OSError, match="more than 100 nested folders"):
        untrusted_files.files(deep)


def test_files_and_links_are_listed_and_folders_are_not(tmp_path):
    for name in ("b", "a/c", "a/d/e"):
        plugin_folders.write(str(tmp_path / "top" / name), "")
    os.symlink("/", tmp_path / "top" / "a" / "link")
    (tmp_path / "top" / "empty").mkdir()
    assert untrusted_files.files(str(tmp_path / "top")) == ["a/c", "a/d/e", "a/link", "b"]


def test_a_link_goes_and_what_it_leads_to_stays(tmp_path):
    kept = plugin_folders.write(str(tmp_path / "kept" / "file"), "")
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
    plugin_folders.write(str(tmp_path / "top" / "a" / "b" / "file"), "")
    for name in ("top/a/b", "top/a", "top"):
        os.chmod(tmp_path / name, 0)
    untrusted_files.remove(str(tmp_path / "top"))
    assert not (tmp_path / "top").exists()


@pytest.fixture(params=["openat2", "step by step"])
def way(request, monkeypatch):
    """Reach files by the kernel's own call, and where there is none."""
    if request.param == "openat2":
        importlib.import_module("ctypes")
    else:
        monkeypatch.setattr(untrusted_files, "_openat2", lambda *_: None)


@pytest.mark.claim("host-follows-no-swap")
@pytest.mark.parametrize(
    "name", ["link/key", "a/link/key", "a/b/file-link", "../key", "/etc/passwd", "a//b", "a/./b", ""]
)
def test_no_name_leads_out_of_a_folder_that_is_held(name, way, tmp_path):
    plugin_folders.write(str(tmp_path / "out" / "key"), "secret")
    plugin_folders.write(str(tmp_path / "key"), "secret")
    plugin_folders.write(str(tmp_path / "top" / "a" / "b" / "file"), "mine")
    os.symlink(tmp_path / "out", tmp_path / "top" / "link")
    os.symlink(tmp_path / "out", tmp_path / "top" / "a" / "link")
    os.symlink(tmp_path / "key", tmp_path / "top" / "a" / "b" / "file-link")
    with untrusted_files.hold(str(tmp_path / "top")) as held:
        assert held.read("a/b/file", 10) == b"mine"
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the name
            held.read(name, 10)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_regular_files_are_opened_and_nothing_waits(kind, way, tmp_path):
    path = tmp_path / "a" / "thing"
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        try:
            os.mknod(path, 0o20666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("devices cannot be made here")
    with untrusted_files.hold(str(tmp_path)) as held, pytest.raises(OSError, match="not a regular file"):
        held.open("a/thing")
    with pytest.raises(OSError, match="not a regular file"):
        untrusted_files.head(str(path), 4)


def test_a_held_folder_stays_the_same_whatever_comes_in_its_place(tmp_path):
    plugin_folders.write(str(tmp_path / "top" / "file"), "mine")
    plugin_folders.write(str(tmp_path / "other" / "file"), "another's")
    with untrusted_files.hold(str(tmp_path / "top")) as held:
        os.rename(tmp_path / "top", tmp_path / "moved")
        os.symlink(tmp_path / "other", tmp_path / "top")
        assert held.read("file", 10) == b"mine"
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            untrusted_files.hold(str(tmp_path / "top"))


def test_a_manifest_may_be_a_link_inside_the_plugin_and_none_out_of_it(tmp_path):
    plugin_folders.write(str(tmp_path / "plugin" / "real" / "m.json"), "inside")
    plugin_folders.write(str(tmp_path / "out.json"), "outside")
    plugin = str(tmp_path / "plugin")
    os.symlink("real/m.json", f"{plugin}/m.json")
    os.symlink(tmp_path / "out.json", f"{plugin}/out.json")
    assert untrusted_files.read_inside(plugin, f"{plugin}/m.json", 10) == b"inside"
    with pytest.raises(OSError, match="leads outside the plugin's folder"):
        untrusted_files.read_inside(plugin, f"{plugin}/out.json", 10)


def test_a_removal_ends_although_somebody_keeps_creating_files(tmp_path):
    top = tmp_path / "top"
    top.mkdir()
    plugin_folders.write(str(top / "a"), "")
    with pytest.raises(untrusted_files.TooMuch, match="takes longer"):
        untrusted_files.remove(str(top), seconds=-1.0)


OURS = (
    "resident.json", "served.json", "policy-answers.json", "journal/999999999:1-0", "logs/gone.log", "logs/gone.log.1",
)  # fmt: skip


@pytest.mark.parametrize(
    "words", [("list",), ("audit",), ("status",), ("logs", "gone"), ("eval", "--harness", "claude")]
)
def test_no_command_waits_for_a_pipe_in_the_home_folder(words, home):
    for name in OURS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(home / name)
    os.link(home / "resident.json", home / "settings.toml")
    command_line.run(*words, stdin="{}")
    os.unlink(home / "settings.toml")
    command_line.run(*words, stdin="{}")  # which also checks that there is no traceback
