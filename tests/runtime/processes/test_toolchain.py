"""The folder in front of a plugin's PATH: made once, also if many want it at the same moment."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import plugin_folders
from anyplug.runtime.processes import toolchain


def test_many_plugins_that_start_at_once_make_it_together(tmp_path):
    for number in range(10):
        folder = str(tmp_path / str(number))
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(toolchain.link_programs, [folder] * 8))
        assert os.path.exists(os.path.join(folder, "uv"))
        assert {name.partition(".")[0] for name in os.listdir(folder)} == set(os.listdir(folder))  # nothing lies about


def test_those_who_look_for_uv_do_so_one_after_the_other(tmp_path, monkeypatch):
    """`sysconfig`, which uv asks, gives nothing to the second of two threads that are the first to ask it."""
    inside, most = [], []

    def find():
        inside.append(1)
        time.sleep(0.01)
        most.append(len(inside))
        inside.pop()

    monkeypatch.setattr(toolchain, "find_uv", find)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(toolchain.link_programs, [str(tmp_path / str(number)) for number in range(8)]))
    assert most == [1] * 8


def test_a_node_that_took_the_place_of_another_is_looked_at_once(tmp_path, monkeypatch):
    folder, system = tmp_path / "bin", tmp_path / "system"
    asked = tmp_path / "asked"

    def install(version):
        program = f"#!/bin/sh\necho asked >> {asked}\necho {version}\n"
        os.replace(plugin_folders.write(system / "node.new", program, 0o755), system / "node")
        os.utime(system / "node", (0, 0))  # packages keep the time at which they were made
        if os.path.lexists(folder / "node"):
            os.utime(folder / "node", (1, 1), follow_symlinks=False)

    monkeypatch.setenv("PATH", f"{system}:/usr/bin:/bin")
    install("v20.19.0")
    toolchain.link_programs(str(folder))
    assert os.readlink(folder / "node") == str(system / "node")
    install("v22.0.0")
    for _ in range(3):
        toolchain.link_programs(str(folder))
    assert asked.read_text().count("asked") == 2
    install("v18.0.0")
    toolchain.link_programs(str(folder))
    assert not os.path.exists(folder / "node") or os.readlink(folder / "node") != str(system / "node")
