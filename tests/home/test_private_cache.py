"""Files that are trusted like our own code."""

import os
import time

import pytest

from anyplug.home import private_cache
from anyplug.home.private_cache import PrivateCache


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "own" / "compiled"


@pytest.fixture
def cache(folder):
    return PrivateCache(str(folder))


def test_what_was_written_is_read_again(cache, folder):
    assert cache.read("one") is None
    cache.write("one", b"content")
    cache.write("two", b"")
    assert cache.read("one") == b"content"
    assert cache.read("two") == b""
    cache.write("one", b"other")
    assert PrivateCache(str(folder)).read("one") == b"other"
    assert sorted(os.listdir(folder)) == ["one", "two"]


def test_folder_and_files_are_the_users_own(cache, folder):
    cache.write("one", b"content")
    assert (folder / "one").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


def link(path):
    other = path.with_name("other")
    path.rename(other)
    path.symlink_to(other)


def huge(path):
    os.truncate(path, private_cache.LARGEST + 1)


@pytest.mark.claim("compiled-policies-are-ours")
@pytest.mark.parametrize(
    "spoil",
    [
        cut,
        flipped,
        pipe,
        link,
        huge,
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0o620),
        lambda path: path.chmod(0o644),
        lambda path: path.parent.chmod(0o755),
        lambda path: path.parent.chmod(0o770),
        pytest.param(
            lambda path: os.chown(path, 65534, -1), marks=pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
        ),
        pytest.param(
            lambda path: os.chown(path.parent, 65534, -1),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="takes root"),
        ),
    ],
)
def test_a_broken_or_foreign_file_is_not_used(cache, folder, spoil):
    cache.write("one", b"content")
    assert cache.read("one") == b"content"
    spoil(folder / "one")
    assert cache.read("one") is None


def test_no_file_passes_for_another(cache, folder):
    cache.write("one", b"content")
    os.rename(folder / "one", folder / "other")
    assert cache.read("other") is None


def test_a_link_in_place_of_the_folder_is_not_followed(cache, folder, tmp_path):
    cache.write("one", b"content")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert cache.read("one") is None
    cache.write("two", b"content")
    assert os.listdir(tmp_path / "elsewhere") == ["one"]


def test_their_number_and_age_are_bounded(cache, folder):
    now = time.time()
    for number in range(private_cache.MOST_FILES + 5):
        cache.write(f"{number:03}", b"x")
        os.utime(folder / f"{number:03}", (now, now - 1000 + number))
    assert len(os.listdir(folder)) == private_cache.MOST_FILES
    assert cache.read("000") is None
    assert cache.read("068") == b"x"
    os.utime(folder / "067", (now, now - private_cache.OLDEST_S - 60))
    os.utime(folder / "068", (now, now - private_cache.OLDEST_S - 60))
    assert cache.read("068") == b"x", "which counts as use"
    (folder / ".half").write_bytes(b"")
    os.utime(folder / ".half", (now, now - private_cache.DAY_S - 60))
    cache.write("new", b"x")
    assert {"new", "068"} <= set(os.listdir(folder))
    assert not {"067", ".half"} & set(os.listdir(folder))


def test_a_home_that_cannot_be_written_caches_nothing(cache, folder):
    folder.parent.mkdir()
    folder.write_text("in the way")
    cache.write("one", b"content")
    assert cache.read("one") is None
