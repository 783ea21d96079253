"""The digest: what counts, what does not, and a cache that trusts only stamps."""

import os

import msgspec
import pytest

import plugin_folders
from anyplug.home import digest


@pytest.fixture
def folder(tmp_path):
    path = str(tmp_path / "plugin")
    plugin_folders.write(f"{path}/run", plugin_folders.ANSWER, 0o755)
    plugin_folders.write(f"{path}/manifest.json", "{}")
    plugin_folders.write(f"{path}/notes.txt", "notes")
    return path


def value(folder, *, every_file=False):
    return digest.take(folder, every_file=every_file, before=None).digest


COUNTED = [
    ("lib.py", "", 0o644),
    ("sub/deep/tool.JS", "", 0o644),
    ("program", "", 0o755),
    ("script", "#!/bin/sh\n", 0o644),
    ("binary", "\x7fELF", 0o644),
    ("greeting-1.0-py3-none-any.whl", "PK", 0o644),
    ("venv/lib/site-packages/x.pth", "import x", 0o644),
    ("package.json", "{}", 0o644),
    ("package-lock.json", "{}", 0o644),
    ("uv.lock", "", 0o644),
    ("sub/manifest.json", "{}", 0o644),
    ("node_modules/x/data.txt", "", 0o644),
    ("sub/node_modules/x/data.txt", "", 0o644),
]
UNCOUNTED = [("state.json", "{}", 0o644), ("README.md", "x", 0o644), ("sub/data.bin", "x", 0o644)]
NEVER = [
    ("config.json", "{}", 0o644),
    (".git/HEAD", "x", 0o644),
    (".git/hooks/run.sh", "x", 0o755),
    ("__pycache__/a.pyc", "x", 0o644),
    ("sub/__pycache__/a.pyc", "x", 0o644),
]


@pytest.mark.parametrize(("path", "text", "mode"), COUNTED)
def test_what_can_run_counts(path, text, mode, folder):
    before = value(folder)
    plugin_folders.write(f"{folder}/{path}", text, mode)
    assert value(folder) != before


@pytest.mark.parametrize(("path", "text", "mode"), UNCOUNTED)
def test_data_counts_only_where_every_file_does(path, text, mode, folder):
    before, all_before = value(folder), value(folder, every_file=True)
    plugin_folders.write(f"{folder}/{path}", text, mode)
    assert value(folder) == before
    assert value(folder, every_file=True) != all_before


@pytest.mark.parametrize(("path", "text", "mode"), NEVER)
def test_some_places_never_count_and_the_digest_says_so(path, text, mode, folder):
    before = value(folder, every_file=True)
    plugin_folders.write(f"{folder}/{path}", text, mode)
    assert value(folder, every_file=True) == before
    assert not digest.covers(path)


@pytest.mark.parametrize("path", ["run", "sub/config.json", "a/.github/x", "pycache"])
def test_all_other_places_are_covered(path):
    assert digest.covers(path)


def test_a_config_further_down_counts_where_every_file_does(folder):
    before = value(folder, every_file=True)
    plugin_folders.write(f"{folder}/sub/config.json", "{}")
    assert value(folder, every_file=True) != before


def test_a_lost_execute_permission_is_another_digest(folder):
    before = value(folder)
    os.chmod(f"{folder}/run", 0o644)
    assert value(folder) != before


def test_the_digest_does_not_depend_on_place_or_times(folder, tmp_path):
    before = value(folder)
    os.rename(folder, tmp_path / "other")
    os.utime(tmp_path / "other" / "run", (1, 1))
    assert value(str(tmp_path / "other")) == before


def test_moving_bytes_between_names_is_another_digest(folder):
    plugin_folders.write(f"{folder}/a.py", "1")
    plugin_folders.write(f"{folder}/b.py", "2")
    before = value(folder)
    plugin_folders.write(f"{folder}/a.py", "2")
    plugin_folders.write(f"{folder}/b.py", "1")
    assert value(folder) != before


def test_a_link_counts_by_where_it_leads_and_by_what_is_there(folder, tmp_path):
    plugin_folders.write(str(tmp_path / "one"), "#!/bin/sh\n", 0o755)
    plugin_folders.write(str(tmp_path / "two"), "#!/bin/sh\n", 0o755)
    os.symlink(tmp_path / "one", f"{folder}/link.py")
    first = digest.take(folder, every_file=False, before=None)
    plugin_folders.write(str(tmp_path / "one"), "#!/bin/sh\nevil\n", 0o755)
    second = digest.take(folder, every_file=False, before=first)
    os.unlink(f"{folder}/link.py")
    os.symlink(tmp_path / "two", f"{folder}/link.py")
    third = digest.take(folder, every_file=False, before=second)
    assert len({first.digest, second.digest, third.digest}) == 3


def test_code_behind_a_link_to_a_folder_elsewhere_counts(folder, tmp_path):
    plugin_folders.write(str(tmp_path / "shared" / "lib.py"), "1")
    os.symlink(tmp_path / "shared", f"{folder}/lib")
    os.symlink(tmp_path / "shared", f"{folder}/again")
    before = digest.take(folder, every_file=False, before=None)
    assert digest.take(folder, every_file=False, before=before) is before
    plugin_folders.write(str(tmp_path / "shared" / "lib.py"), "2")
    assert digest.take(folder, every_file=False, before=before).digest != before.digest


def test_links_to_folders_to_nothing_and_in_circles_are_taken_as_they_are(folder, tmp_path):
    os.symlink("/", f"{folder}/everything")
    os.symlink("nothing", f"{folder}/dangling")
    os.symlink(".", f"{folder}/circle")
    before = value(folder)
    os.unlink(f"{folder}/everything")
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", f"{folder}/everything")
    assert value(folder) != before


def test_pipes_and_sockets_do_not_hold_it_up(folder):
    os.mkfifo(f"{folder}/pipe")
    assert value(folder, every_file=True)


def test_a_name_that_is_no_text_is_taken_and_can_be_shown(folder):
    with open(os.fsencode(folder) + b"/\xff.py", "wb"):
        pass
    reading = digest.take(folder, every_file=False, before=None)
    assert all(name.isprintable() for name in reading.as_digest().files)


def test_nothing_is_read_again_while_every_stamp_holds(folder):
    first = digest.take(folder, every_file=True, before=None)
    assert digest.take(folder, every_file=True, before=first) is first


def test_only_what_has_another_stamp_is_read_again(folder, monkeypatch):
    first = digest.take(folder, every_file=True, before=None)
    plugin_folders.write(f"{folder}/notes.txt", "others")
    read = []
    hash_one = digest._hash

    def watched(entry, *given, **how):
        read.append(entry.relative)
        return hash_one(entry, *given, **how)

    monkeypatch.setattr(digest, "_hash", watched)
    second = digest.take(folder, every_file=True, before=first)
    assert read == ["notes.txt"]
    assert second.digest != first.digest


def test_a_reading_survives_the_store(folder):
    first = digest.take(folder, every_file=True, before=None)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=digest.Reading)
    assert again == first
    assert digest.take(folder, every_file=True, before=again) is again


def test_a_folder_that_is_gone_is_an_error(folder):
    with pytest.raises(OSError, match="No such file"):
        digest.take(folder + "-gone", every_file=True, before=None)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_does_not_stop_it(folder):
    os.chmod(f"{folder}/notes.txt", 0)
    assert value(folder, every_file=True)
