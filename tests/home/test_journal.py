"""Journals: what was written down is there, on every kind of disk, and whoever is killed loses none of it."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from anyplug.home import journal
from anyplug.home.journal import Journal
from anyplug.model.errors import StoreError

# The page on which a line ends is not there, which ends the process in the middle of the copy: as a kill would that
# comes while the kernel brings a page.
TORN = """
import mmap, os, sys
from anyplug.home import journal

length = int(sys.argv[2])
lines = journal.Journal(sys.argv[1])
lines.append(b"p" * (mmap.PAGESIZE - length // 2))
os.truncate(lines._sheet.path, mmap.PAGESIZE)
lines.append(b"n" * length)
"""
KILLED = """
import os, signal, sys
from anyplug.home import journal
if sys.argv[2] != "mapped":
    journal.MAPPED = frozenset()
lines = journal.Journal(sys.argv[1])
for number in range(1000):
    lines.append(b"line %d" % number)
os.kill(os.getpid(), signal.SIGKILL)
"""
LONG = b"x" * 1_000


@pytest.fixture(params=["mapped", "written", "no room ahead"])
def kind(request, monkeypatch):
    """Be on a disk of each kind."""
    if request.param != "mapped":
        monkeypatch.setattr(journal, "MAPPED", frozenset())
    if request.param == "no room ahead":

        def cannot(*_):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

        monkeypatch.setattr(os, "posix_fallocate", cannot)
    return request.param


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "journal")


@pytest.fixture
def lines(folder, kind):
    made = Journal(folder)
    yield made
    made.remove()


def there(folder):
    """Give all lines, as others see them."""
    return [line for sheet in journal.of_the_living(folder) for line in sheet if line]


def test_lines_are_there_as_soon_as_they_are_written(lines, folder):
    for number in range(500):
        lines.append(b"%d" % number)
        assert there(folder)[-1] == b"%d" % number
    assert there(folder) == [b"%d" % number for number in range(500)]


def test_there_is_always_more_room(lines, folder):
    count = 3 * journal.ROOM // len(LONG)
    for _ in range(count):
        lines.append(LONG)
    lines.append(b"y" * (5 * journal.ROOM))
    assert [len(line) for line in there(folder)] == [len(LONG)] * count + [5 * journal.ROOM]


def test_what_is_forgotten_is_gone_and_what_comes_then_is_there(lines, folder):
    for _ in range(3):
        lines.append(LONG)
        lines.append(b"a")
        lines.shrink([])
        assert there(folder) == []
    lines.append(b"b")
    assert there(folder) == [b"b"]


def test_a_sheet_that_is_full_is_left_for_another_and_back(lines, folder, monkeypatch):
    monkeypatch.setattr(journal, "LARGEST", 5_000)
    for number in range(40):
        lines.append(LONG)
        lines.append(b"%d" % number)
        lines.shrink([b"kept"])
        assert sum(map(len, there(folder))) < 7_000
    lines.append(b"last")
    assert b"kept" in there(folder)
    assert b"last" in there(folder)
    assert len(os.listdir(folder)) == 2


def test_who_lets_go_leaves_all_lines(folder, kind):
    made = Journal(folder)
    made.append(b"a")
    made.leave()
    taken = []
    journal.take_over(folder, taken.extend)
    assert [line for line in taken if line] == [b"a"]
    assert os.listdir(folder) == []


@pytest.mark.parametrize("how", ["mapped", "written"])
def test_who_is_killed_loses_no_line(how, folder):
    ended = subprocess.run([sys.executable, "-c", KILLED, folder, how], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    taken = []
    journal.take_over(folder, taken.extend)
    assert [line for line in taken if line] == [b"line %d" % number for number in range(1000)]


def test_who_is_killed_while_a_sheet_is_emptied_leaves_whole_lines_only(folder, kind):
    made = Journal(folder)
    for number in range(3):
        made.append(b"line %d" % number)
    made.leave()
    (name,) = os.listdir(folder)
    with open(os.path.join(folder, name), "r+b") as file:
        file.write(bytes(11))  # the first line and a part of the second
    taken = []
    journal.take_over(folder, taken.extend)
    assert b"line 2" in taken
    assert b"line 0" not in taken


@pytest.mark.parametrize("length", [100, 300, 520, 800, 3_000])
def test_who_is_killed_in_the_middle_of_a_line_spoils_no_other(length, folder):
    ended = subprocess.run([sys.executable, "-c", TORN, folder, str(length)], timeout=60, check=False)
    if ended.returncode != -signal.SIGBUS:
        pytest.skip("nothing is mapped on this disk")
    taken = []
    journal.take_over(folder, taken.extend)
    assert next(set(line) for line in taken if line) == {ord("p")}


def test_sheets_of_one_process_are_handed_over_together(folder):
    for lines in ([b"a"], [b"b"]):
        made = Journal(folder)
        for line in lines:
            made.append(line)
        made._put_down()
    for number, name in enumerate(os.listdir(folder)):
        os.rename(os.path.join(folder, name), os.path.join(folder, f"999999999:1-{number}"))
    taken = []
    journal.take_over(folder, taken.append)
    assert [sorted(line for line in lines if line) for lines in taken] == [[b"a", b"b"]]
    assert os.listdir(folder) == []


def test_a_sheet_that_cannot_be_emptied_goes_on(folder, monkeypatch):
    monkeypatch.setattr(journal, "MAPPED", frozenset())
    monkeypatch.setattr(journal, "LARGEST", 100)
    lines = Journal(folder)
    lines.append(LONG)
    write = os.pwrite

    def full(fd, data, start):
        if not data.strip(b"\0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, start)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        lines.shrink([b"kept"])
    lines.append(b"more")
    assert LONG in there(folder)
    assert b"more" in there(folder)
    lines.remove()


def test_a_disk_that_is_full_is_said_and_spoils_nothing(folder, monkeypatch):
    lines = Journal(folder)
    lines.append(b"a")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(StoreError, match="No space left"):
            lines.append(b"y" * (2 * journal.ROOM))
    lines.append(b"b")
    assert there(folder) == [b"a", b"b"]
    lines.remove()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")
def test_the_kind_of_a_disk_is_known():
    with open("/proc/self/status", "rb") as file:
        assert journal._file_system(file.fileno()) == "proc"
