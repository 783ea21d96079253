"""Changes of plugins that are killed at a system call: what is there then is as before or as after, and all goes on.

strace kills the program when it is about to change a file. Each example is a command and one of its system calls.
"""

import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import command_line
import plugin_folders
from random_examples import at_most

CHANGING = (
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,fsync,fdatasync,"
    "pwrite64,copy_file_range,sendfile,ftruncate,fallocate,chmod,fchmod,fchmodat,utimensat"
)
CALL = re.compile(r"^(?:\d+ +)?(\w+)\(")
EXAMPLES = at_most(24)  # of the hundreds of calls of each command
SEED = 20_261_118
KEYS = {"size": {"description": "How many.", "default": 3}}
COMMANDS = {
    "install": ("install", "SOURCE", "--yes", "--always"),
    "update": ("update", "kit", "--yes"),
    "remove": ("remove", "kit", "--yes"),
    "purge": ("remove", "kit", "--yes", "--purge"),
    "approve": ("approve", "kit", "--yes", "--always"),
    "config": ("config", "kit", "size=5"),
}
BEFORE = {"install": None, "update": "one", "remove": "one", "purge": "one", "approve": None, "config": "one"}
BETWEEN = {"install": [(None, [("kit", "new")])]}  # installed, and not approved yet
pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: `apt-get install strace`")


def say(word: str) -> str:
    return f"#!/bin/sh\necho {word}"


def traced(*words: str, options: tuple[str, ...]) -> int:
    """Run a command under strace, and return how it ended."""
    command = ["strace", "-qq", *options, *command_line.PROGRAM, *words]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode


def calls_of(words: tuple[str, ...], log: Path) -> list[tuple[str, int]]:
    """Return the system calls of a command that change files: each with how many of its name came up to it."""
    assert traced(*words, options=("-e", f"trace={CHANGING}", "-o", str(log))) == 0
    seen: dict[str, int] = {}
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if match := CALL.match(line):
            name = match[1]
            seen[name] = seen.get(name, 0) + 1
            found.append((name, seen[name]))
    return found


def answer() -> str | None:
    """Return what the plugin's tool says, if it can be called."""
    done = command_line.run("call", "kit.act")
    return done.out.strip() if done.code == 0 else None


def states() -> list[tuple[str, str]]:
    return [(entry["name"], entry["state"]) for entry in command_line.ok("list", "--json").json]


@pytest.mark.parametrize("what", sorted(COMMANDS))
def test_a_killed_change_is_undone_or_finished(what: str, tmp_path: Path, home: Path) -> None:
    source = plugin_folders.stavrobot(tmp_path / "source", "kit", say("one"), config=KEYS)
    if what != "install":
        command_line.ok("install", source, *(() if what == "approve" else ("--yes", "--always")))
        plugin_folders.write(str(home / "data" / "kit" / "kept.txt"), "precious")
    if what == "update":
        plugin_folders.stavrobot(os.path.dirname(source), "kit", say("two"), config=KEYS)
    words = tuple(source if word == "SOURCE" else word for word in COMMANDS[what])
    saved = tmp_path / "saved"
    shutil.copytree(home, saved, symlinks=True)
    calls = calls_of(words, tmp_path / "log")
    after, states_after = answer(), states()
    shutil.rmtree(home)
    shutil.copytree(saved, home, symlinks=True)
    before, states_before = answer(), states()
    assert (before is None) == (BEFORE[what] is None)
    chosen = random.Random(SEED).sample(calls, min(EXAMPLES, len(calls)))
    for name, number in chosen:
        shutil.rmtree(home)
        shutil.copytree(saved, home, symlinks=True)
        inject = f"inject={name}:signal=KILL:when={number}"
        code = traced(*words, options=("-e", f"trace={name}", "-e", inject, "-o", "/dev/null"))
        where = f"{what} killed at {name} number {number}"
        assert code in {-signal.SIGKILL, 128 + signal.SIGKILL, 0}, where  # 0: it had ended by then
        command_line.ok("list")  # whatever was interrupted is tidied by the next command
        whole = [(before, states_before), (after, states_after), *BETWEEN.get(what, [])]
        found = states()
        assert (answer(), found) in whole, where
        assert not list(home.glob("plugins/.*")), where
        if any(entry == "kit" for entry, _ in found):
            command_line.ok("remove", "kit", "--yes")
        command_line.ok("install", source, "--yes", "--always")
        assert answer() in {"one", "two"}, where
        if what not in {"install", "purge"}:
            kept = [path for path in home.rglob("kept.txt") if path.read_text() == "precious"]
            assert kept, where
        assert command_line.ok("audit", "--verify").code == 0
