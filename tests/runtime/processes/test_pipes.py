"""The pipes of a program: all three, or none."""

import subprocess
import sys

import pytest

SHORT = """
import os, resource, sys
from anyplug.runtime.processes.pipes import open_pipes
resource.setrlimit(resource.RLIMIT_NOFILE, (3 + int(sys.argv[1]), 99))
before = len(os.listdir("/proc/self/fd"))
try:
    print(sorted((*open_pipes().theirs, *open_pipes().ours)))
except OSError as error:
    print(error.strerror, len(os.listdir("/proc/self/fd")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists what is open")
@pytest.mark.parametrize("room", [1, 2, 3, 4, 5])
def test_where_not_all_can_be_opened_none_stays_open(room):
    done = subprocess.run(
        [sys.executable, "-c", SHORT, str(room)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "Too many open files 0\n"
