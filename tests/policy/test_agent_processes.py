"""An agent that policies bind decides nothing about trust, by whatever words it starts our program."""

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

import command_line
import conditions
import daemons
import processes
import terminals
from policy_projects import bash, decision, policy, project

AGENT = """
import json, subprocess, sys
commands = json.loads(sys.argv[1])
for command, given in commands:
    done = subprocess.run(command, shell=True, input=given, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""
OURS = f"{sys.executable} -m anyplug"
EVAL = f"{OURS} eval --harness opencode"
REFUSED = "an agent bound by policies started this"


def as_agent(*commands: str, **variables: str) -> list[list[object]]:
    """Run commands as an agent does that asks about each tool; give exit code and output of each."""
    given = [(EVAL, json.dumps(bash("ls"))), *((command, "") for command in commands)]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | variables
    words = [sys.executable, "-c", AGENT, json.dumps(given)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


@contextmanager
def agent(command: str) -> Iterator[None]:
    """Keep an agent up that has asked about a tool, and has run a command."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    inner, outer = os.pipe()
    code = AGENT.replace("shell=True", "shell=True, pass_fds=[int(sys.argv[2])]")
    given = [(EVAL, json.dumps(bash("ls"))), (command, ""), (f"cat /dev/fd/{inner}", "")]
    words = [sys.executable, "-c", code, json.dumps(given), str(inner)]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, pass_fds=[inner])
    os.close(inner)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert process.stdout.readline()
        yield
    finally:
        os.close(outer)
        process.communicate()


@contextmanager
def shell(*words: str, **variables: str) -> Iterator[Callable[[str], int]]:
    """Give a shell in a terminal of its own, as a person has; what is given to the function is typed there."""
    marks = ("CI", "CLAUDECODE", "OPENCODE", "CURSOR_AGENT", "GEMINI_CLI", "CODEX_SANDBOX")
    environment = {name: value for name, value in os.environ.items() if name not in marks} | variables
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", *(words or ("sh",))]
    process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield lambda line: os.write(ours, f"{line}\n".encode())
    finally:
        process.kill()
        process.wait()
        os.close(ours)


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
        f"{OURS} ui --no-open",
    ],
)
def test_what_an_agent_starts_decides_nothing(command):
    [(code, _, err)] = as_agent(command)
    assert code != 0
    assert REFUSED in err
    assert "it asked for a decision with `anyplug eval`, and counts as an agent until it ends" in err
    assert "a script that only tests policies passes --trial" in err
    assert "run it in your own terminal" in err


@pytest.mark.claim("agents-decide-nothing")
@pytest.mark.claim("agents-decide-nothing")
@pytest.mark.parametrize(
    "words", ["audit prune --before 1d --yes", "audit --reseal", "ungrant x calls:guard", "leftovers x --give 1"]
)
def test_nor_does_one_change_the_audit_or_what_plugins_have(words):
    [(code, _, err)] = as_agent(f"{OURS} {words}")
    assert code != 0
    assert f"`anyplug {words.split()[0]}` was not run" in err


@pytest.mark.claim("agents-decide-nothing")
def test_nor_does_one_that_asks_a_daemon():
    with daemons.resident():
        [(code, _, err)] = as_agent(f"{OURS} policy trust --yes")
    assert code != 0
    assert REFUSED in err


@pytest.mark.claim("agents-decide-nothing")
@pytest.mark.parametrize(
    "command",
    [
        "unshare -Urpf --mount-proc {}",
        "unshare -Urpf {}",
        "unshare -UrT --boottime 1000 {}",
        "env -u OPENCODE unshare -Urpf --mount-proc setsid -w {}",
        "unshare -Urm sh -c 'mount -t tmpfs none $ANYPLUG_HOME/agents && {}'",
        "unshare -Urmpf --mount-proc sh -c 'mount --bind /var/empty $ANYPLUG_HOME/agents && {}'",
    ],
)
def test_nor_does_one_in_namespaces_of_its_own(command, home):
    probe = subprocess.run(["unshare", "-UrmpfT", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no namespaces here")
    command = command.replace("/var/empty", str(home.parent))
    [(code, out, err)] = as_agent(command.format(f"{OURS} policy trust --yes"), OPENCODE="1", ANYPLUG_HOME=str(home))
    assert code != 0
    assert "is trusted" not in out
    assert "`anyplug policy` was not run" in err
    if "mount " in command:
        assert "hint: unmount it: `sudo umount " in err
        assert "terminal of your own" not in err


def test_an_agent_may_look_and_ask():
    for code, _, err in as_agent(f"{OURS} list", f"{OURS} policy validate"):
        assert (code, REFUSED in err) == (0, False)


def test_whoever_started_the_agent_is_free(home):
    as_agent(f"{OURS} list")
    assert os.listdir(home / "agents")
    command_line.ok("policy", "trust", "--yes")


DETACHED = [
    "setsid -w sh -c '{}'",
    "setsid sh -c '{}' & sleep 0",
    "(sh -c '{}' &)",
    "nohup sh -c '{}' > /dev/null 2>&1 &",
    "env -i HOME=$HOME ANYPLUG_HOME=$ANYPLUG_HOME PATH=$PATH setsid -w sh -c '{}'",
]


@pytest.mark.claim("agents-decide-nothing")
@pytest.mark.parametrize("command", DETACHED)
@pytest.mark.anyio
async def test_a_process_that_left_its_agent_decides_nothing(command, tmp_path):
    said = tmp_path / "said"
    inner = f"sleep 1; {OURS} policy trust --yes > {said}.part 2>&1; mv {said}.part {said}"
    with agent(command.replace("{}", inner)):
        await conditions.until(said.exists)
    assert "was not run" in said.read_text()
    assert "run it in your own terminal" in said.read_text()


@pytest.mark.claim("agents-decide-nothing")
@pytest.mark.anyio
async def test_nor_does_one_with_a_terminal_of_its_own_and_the_agents_mark(tmp_path):
    said = tmp_path / "said"
    with agent("true"), shell(OPENCODE="1") as typed:
        typed(f"{OURS} policy trust --yes > {said}.part 2>&1; mv {said}.part {said}")
        await conditions.until(said.exists)
    assert "OPENCODE is set" in said.read_text()


@pytest.mark.anyio
async def test_a_person_at_a_terminal_may_while_an_agent_is_up(tmp_path):
    said = tmp_path / "said"
    with agent("true"), shell() as typed:
        typed(f"{OURS} policy trust --yes > {said}.part 2>&1; mv {said}.part {said}")
        await conditions.until(said.exists)
    assert "is trusted, with its policies as they are now" in said.read_text()


@pytest.mark.anyio
@pytest.mark.parametrize("words", ["sh", "bash --init-file /dev/null", "bash --noprofile -O extglob -i"])
async def test_whoever_types_an_event_into_a_shell_is_no_agent(home, tmp_path, words):
    asked, said = tmp_path / "asked", tmp_path / "said"
    event = tmp_path / "event.json"
    event.write_text(json.dumps(bash("ls")))
    with shell(*words.split()) as typed:
        typed(f"{EVAL} < {event} > {asked}.part; mv {asked}.part {asked}")
        await conditions.until(asked.exists)
        assert json.loads(asked.read_text()) == {"decision": "allow"}
        assert not (home / "agents").exists()
        typed(f"{OURS} policy trust --yes > {said}.part 2>&1; mv {said}.part {said}")
        await conditions.until(said.exists)
    assert "is trusted" in said.read_text()


def test_a_script_that_tmux_starts_does_not_make_all_its_windows_an_agents(home, tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    asked, event, script = (tmp_path / name for name in ("asked", "event.json", "script.sh"))
    event.write_text(json.dumps(bash("ls")))
    script.write_text(f"{EVAL} < {event} > {asked}.part; mv {asked}.part {asked}; read held\n")
    with terminals.Terminal(tmp_path, ["sh", str(script)]):
        processes.until(asked.exists)
        assert json.loads(asked.read_text()) == {"decision": "allow"}
        assert not (home / "agents").exists()


@pytest.mark.anyio
async def test_a_script_in_a_terminal_is_one(home, tmp_path):
    asked, event, script = tmp_path / "asked", tmp_path / "event.json", tmp_path / "agent.py"
    event.write_text(json.dumps(bash("ls")))
    script.write_text(f"import os\nos.system({f'{EVAL} < {event} > {asked}.part; mv {asked}.part {asked}'!r})\n")
    with shell() as typed:
        typed(f"{shlex.quote(sys.executable)} {script}")
        await conditions.until(asked.exists)
        assert len(os.listdir(home / "agents")) == 1


@pytest.mark.claim("agents-decide-nothing")
def test_an_agent_that_marks_its_children_is_noted_in_continuous_integration():
    [(code, _, err)] = as_agent(f"{OURS} policy trust --yes", CI="true", OPENCODE="1")
    assert (code != 0, REFUSED in err) == (True, True)


def test_nothing_else_is_noted_in_continuous_integration():
    [(code, _, err)] = as_agent(f"{OURS} policy trust --yes", CI="true")
    assert (code, REFUSED in err) == (0, False)


@pytest.mark.claim("agents-decide-nothing")
def test_a_setting_does_not_allow_it(home):
    (home / "settings.toml").write_text("[policy]\nself_protection = false\n")
    [(code, _, err)] = as_agent(f"{OURS} policy trust --yes")
    assert (code != 0, REFUSED in err) == (True, True)


@pytest.mark.parametrize("given", ["", " ", "no event", "[]", "{}", '{"hook_event_name": "Odd"}'])
@pytest.mark.parametrize("is_daemon_up", [False, True])
def test_whatever_sends_no_event_is_no_agent(home, given, is_daemon_up):
    with daemons.resident() if is_daemon_up else nullcontext():
        done = command_line.run("eval", "--harness", "opencode", stdin=given)
        assert (done.code != 0, done.out) == (True, "")
        assert not (home / "agents").exists()
        command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash("ls")))
        assert (home / "agents").exists() == ("CI" not in os.environ)


def test_a_script_that_only_tests_policies_is_no_agent_and_leaves_no_record():
    given = [(f"{EVAL} --trial", json.dumps(bash("ls"))), (f"{OURS} approve x", "")]
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [sys.executable, "-c", AGENT, json.dumps(given)], env=environment, capture_output=True, text=True, check=True
    )
    _, (code, _, err) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (code, REFUSED in err) == (4, False)  # there is no plugin x
    assert command_line.ok("audit", "--json").json == []
    assert "0 of 0 recorded calls" in command_line.ok("policy", "replay", ".cupcake").out


@pytest.mark.claim("agents-decide-nothing")
def test_nor_does_the_daemon_open_the_console_for_what_has_no_terminal_of_a_person():
    with daemons.resident():
        assert "link" in daemons.Client(kind="control").asks("console")["result"]
        with agent("true"):
            refused = daemons.Client(kind="control").asks("console")["error"]
        assert refused["code"] == "denied"
        assert refused["message"].startswith("the console was not opened: it has no terminal of yours")
        [(code, out, err)] = as_agent(f"{OURS} ui --no-open --json")
        assert (code, "login" in out) == (3, False), (out, err)
