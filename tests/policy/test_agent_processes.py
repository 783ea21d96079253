"""An agent that policies bind decides nothing about trust, by whatever words it starts our program."""

import json
import os
import subprocess
import sys

import pytest
from governing import bash, decision, policy, project

import residing
import using

AGENT = """
import json, subprocess, sys
commands = json.loads(sys.argv[1])
for command, given in commands:
    done = subprocess.run(command, shell=True, input=given, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""
OURS = f"{sys.executable} -m anyplug"
EVAL = f"{OURS} eval --harness opencode"
REFUSED = "an agent that policies bind started this"


def as_agent(*commands: str, **variables: str) -> list[list[object]]:
    """Run commands as an agent does that asks about each tool; give exit code and output of each."""
    given = [(EVAL, json.dumps(bash("ls"))), *((command, "") for command in commands)]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | variables
    words = [sys.executable, "-c", AGENT, json.dumps(given)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


@pytest.fixture(autouse=True)
def _policies():
    project({"p": policy("opencode.p", decision("deny", when="false"))}, trust=False)


@pytest.mark.claim("agents-decide-nothing")
@pytest.mark.parametrize(
    "command",
    [
        f"{OURS} policy trust --yes",
        f"sh -c '{OURS} policy trust --yes'",
        f"X='{OURS}'\n$X policy trust --yes",
        f"echo $({OURS} policy trust --yes); false",
        f"{OURS} policy trust --global --yes",
        f"{OURS} approve x",
        f"{OURS} grant x network",
        f"{OURS} config x k=v",
        f"{OURS} stop",
        f"{OURS} serve --http 127.0.0.1:0",
    ],
)
def test_what_an_agent_starts_decides_nothing(command):
    [(code, _, err)] = as_agent(command)
    assert code != 0
    assert REFUSED in err
    assert "run it in a terminal of your own" in err


@pytest.mark.claim("agents-decide-nothing")
def test_nor_does_one_that_asks_a_daemon():
    with residing.resident():
        [(code, _, err)] = as_agent(f"{OURS} policy trust --yes")
    assert code != 0
    assert REFUSED in err


def test_an_agent_may_look_and_ask():
    for code, _, err in as_agent(f"{OURS} list", f"{OURS} policy validate"):
        assert (code, REFUSED in err) == (0, False)


def test_whoever_started_the_agent_is_free(home):
    as_agent(f"{OURS} list")
    assert os.listdir(home / "agents")
    using.ok("policy", "trust", "--yes")


def test_nothing_is_noted_in_continuous_integration():
    [(code, _, err)] = as_agent(f"{OURS} policy trust --yes", CI="true")
    assert (code, REFUSED in err) == (0, False)


def test_a_person_can_allow_it(home):
    (home / "settings.toml").write_text("[policy]\nself_protection = false\n")
    [(code, _, _)] = as_agent(f"{OURS} policy trust --yes")
    assert code == 0
