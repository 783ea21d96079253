"""The store: what one process keeps in it stays, whoever else has it open."""

import subprocess
import sys
from contextlib import closing

import pytest

from anyplug.home.database import Store
from anyplug.model.errors import StoreError

WRITE = "INSERT INTO disabled VALUES (?)"
READ = "SELECT path FROM disabled ORDER BY path"
ELSEWHERE = """
import sys
from anyplug.home.database import Store
store = Store(sys.argv[1])
store.run("INSERT INTO disabled VALUES (?)", sys.argv[2])
store.close()
"""


def write_elsewhere(path, value):
    subprocess.run([sys.executable, "-c", ELSEWHERE, path, value], check=True, timeout=60)


def test_a_second_connection_of_a_process_takes_no_locks_of_the_first_away(tmp_path):
    path = str(tmp_path / "anyplug.db")
    first = Store(path)
    first.run(WRITE, "1")
    second = Store(path)
    assert second.rows(READ) == [("1",)]
    # Whoever closes the last connection deletes the log; with its locks gone, ours would not count.
    write_elsewhere(path, "2")
    first.run(WRITE, "3")
    write_elsewhere(path, "4")
    second.run(WRITE, "5")
    first.close()
    second.close()
    with closing(Store(path)) as again:
        assert again.rows(READ) == [(str(number),) for number in range(1, 6)]


def test_a_store_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot open"):
        Store(str(tmp_path / "file" / "anyplug.db")).run(WRITE, "1")
