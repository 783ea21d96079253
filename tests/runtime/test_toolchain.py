"""The folder in front of a plugin's PATH: made once, also if many want it at the same moment."""

import os
from concurrent.futures import ThreadPoolExecutor

from anyplug.runtime import toolchain


def test_many_plugins_that_start_at_once_make_it_together(tmp_path):
    for number in range(10):
        folder = str(tmp_path / str(number))
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(toolchain.link_programs, [folder] * 8))
        assert os.path.exists(os.path.join(folder, "uv"))
        assert {name.partition(".")[0] for name in os.listdir(folder)} == set(os.listdir(folder))  # nothing lies about
