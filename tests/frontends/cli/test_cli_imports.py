"""Short commands import nothing that takes long and that they do not need."""

import json
import subprocess
import sys

from policy_projects import NO_VERIFY, bash, policy, project

HEAVY = {
    "_hashlib", "fractions", "html", "http", "lzma", "msgspec.inspect", "pathlib", "platform", "random", "rich",
    "shutil", "ssl", "tempfile", "urllib.parse",
}  # fmt: skip
OF_PROGRAMS = {"asyncio", "ctypes", "inspect", "logging", "socket", "subprocess"}


def imported(*words, given=""):
    argv = [sys.executable, "-X", "importtime", "-m", "anyplug", *words]
    ended = subprocess.run(argv, input=given, capture_output=True, text=True, check=True)
    lines = (line for line in ended.stderr.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip() for line in lines}


def test_a_list_imports_neither_what_programs_need_nor_what_is_large(cyclop):
    cyclop("words")
    found = imported("tools")
    assert "anyplug.catalog.catalog" in found
    assert not found & (HEAVY | OF_PROGRAMS | {"json", "textwrap"})


def test_a_call_imports_nothing_that_is_large(cyclop):
    folder = cyclop("words")
    imported("--plugin", folder, "call", "words")  # copies its code
    found = imported("--plugin", folder, "call", "words")
    assert "anyplug.host.host" in found
    assert not found & (HEAVY | {"anyio._core._sockets", "asyncio.sslproto", "json", "logging"})


def test_a_decision_imports_nothing_that_is_large():
    project({"p": policy("opencode.p", NO_VERIFY)})
    event = json.dumps(bash("git status"))
    imported("eval", "--harness", "opencode", given=event)  # compiles the policies
    found = imported("eval", "--harness", "opencode", given=event)
    assert "anyplug.policy.engine" in found
    assert not found & (HEAVY | OF_PROGRAMS)
