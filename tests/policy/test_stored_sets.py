"""Compiled policies on disk: the next process decides the same without compiling, and never by what is out of date."""

import json
import os
import subprocess
import sys

import pytest

import policy_projects
from anyplug.home.private_cache import PrivateCache
from anyplug.policy import set_compiler, stored_sets
from anyplug.policy.engine import Engine
from policy_projects import ask, bash, decision, policy, project, verdict

pytestmark = pytest.mark.anyio

ASK = """
import json, sys
from anyplug.policy.engine import Engine
engine = Engine(sys.argv[1])
inquiry = engine.inquire("opencode", json.loads(sys.argv[2]))
decision = inquiry.decided().decision
print(decision.verb, "anyplug.rego.compiling.compiler" in sys.modules)
"""
RULES = {
    "deny": 'contains(lower(input.tool_input.command), "no-verify")',
    "ask": "regex.match(`^ls\\b`, input.tool_input.command)",
}
EVENTS = {"git commit --NO-verify": "deny", "ls -l": "ask", "true": "allow"}


@pytest.fixture
def engine(home):
    """Give an engine as a new process has it."""
    return lambda: Engine(str(home), look_s=0)


def stored(home):
    return sorted(os.listdir(home / stored_sets.FOLDER))


def asked(home, command):
    """Ask another process: what it decides, and whether it compiled."""
    program = [sys.executable, "-c", ASK, str(home), json.dumps(bash(command))]
    verb, compiled = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    return verb, compiled == "True"


def the_project(**options):
    project(
        {f"{verb}s": policy(f"opencode.{verb}s", decision(verb, when=when)) for verb, when in RULES.items()}, **options
    )


def test_a_second_process_decides_the_same_without_compiling(home):
    the_project()
    assert asked(home, "true") == ("allow", True)
    assert [asked(home, command) for command in EVENTS] == [(verb, False) for verb in EVENTS.values()]
    assert len(stored(home)) == 1


def test_a_set_with_an_evaluate_of_its_own_is_stored_too(home):
    own = policy_projects.EVALUATE.replace("import rego.v1\n", 'import rego.v1\nhidden if input.tool_name == "none"\n')
    the_project(evaluate=own)
    assert asked(home, "true")[1]
    assert [asked(home, command) for command in EVENTS] == [(verb, False) for verb in EVENTS.values()]


async def test_an_edit_is_another_set(home, engine):
    the_project()
    assert await verdict(bash("ls"), engine=engine()) == "ask"
    first = stored(home)
    project({"ask": policy("opencode.ask", decision("deny", when=RULES["ask"]))})
    assert await verdict(bash("ls"), engine=engine()) == "deny"
    assert set(first) < set(stored(home))


@pytest.mark.claim("compiled-policies-are-ours")
async def test_a_set_in_a_folder_that_others_can_write_does_not_count(home, engine):
    """What it says would let everything pass."""
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("ls"), engine=engine()) == "ask"
    (lax,) = stored(home)
    project({"p": policy("opencode.p", decision("deny"))})
    assert await verdict(bash("ls"), engine=engine()) == "deny"
    (strict,) = set(stored(home)) - {lax}
    folder = home / stored_sets.FOLDER
    (folder / strict).write_bytes((folder / lax).read_bytes())
    assert await verdict(bash("ls"), engine=engine()) == "deny", "no file passes for another"
    cache = PrivateCache(str(folder))
    cache.write(strict, cache.read(lax))
    assert await verdict(bash("ls"), engine=engine()) == "ask", "the file is what decides"
    folder.chmod(0o777)
    assert await verdict(bash("ls"), engine=engine()) == "deny"
    folder.chmod(0o700)
    (folder / strict).chmod(0o666)
    assert await verdict(bash("ls"), engine=engine()) == "deny"


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\0" * 40])
async def test_a_broken_file_is_written_again(home, engine, content):
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("ls"), engine=engine()) == "ask"
    (name,) = stored(home)
    good = (home / stored_sets.FOLDER / name).read_bytes()
    (home / stored_sets.FOLDER / name).write_bytes(content)
    assert await verdict(bash("ls"), engine=engine()) == "ask"
    assert (home / stored_sets.FOLDER / name).read_bytes() == good


def test_our_own_code_is_part_of_the_key(home, tmp_path, monkeypatch):
    """While anyplug is developed, the compiler changes without a new version."""
    texts = set_compiler.Texts(texts={"a.rego": "package a"}, deciding=("a.rego",))
    before = stored_sets._key(texts)
    assert before == stored_sets._key(texts)
    folder = os.path.dirname(stored_sets.__file__)
    (tmp_path / "policy").mkdir()
    for name in os.listdir(folder):
        if name.endswith(".py"):
            (tmp_path / "policy" / name).write_bytes(b"")
    monkeypatch.setattr(stored_sets, "__file__", str(tmp_path / "policy" / "stored_sets.py"))
    assert before != stored_sets._key(texts)


async def test_broken_policies_are_not_stored(home, engine):
    project({"p": "package p"})
    assert (await ask(bash("ls"), engine=engine()))["decision"] is None
    assert not (home / stored_sets.FOLDER).exists()
