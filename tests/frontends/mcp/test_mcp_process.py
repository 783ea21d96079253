"""`anyplug mcp` as a process of its own: the SDK's client on its pipes, profiles, ends, and what goes to stdout."""

import json
import os
import shutil
import signal
import subprocess

import anyio
import pytest

import daemons
import mcp_clients
import plugin_folders
import processes
import zot_folders
from anyplug.runtime.processes.guard import TOKEN_VARIABLE
from command_line import PROGRAM, fails, home, ok, piped
from conditions import until
from mcp_clients import HELLO, PATIENCE_S, request

pytestmark = pytest.mark.anyio

LOUD = """
hello()
tool("loud")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        os.system("echo to nobody")
        print("a stray line", file=sys.stderr)
        say(frame, "done")
"""


@pytest.fixture
def plugins():
    """Two approved plugins where plugins are found."""
    for name in ("alpha", "beta"):
        plugin_folders.cyclop(os.path.join(home(), "plugins"), name)
        ok("approve", name, "--yes")


class Pipes:
    """`anyplug mcp` with pipes, for what no client would do."""

    def __init__(self, *words: str) -> None:
        self.process = piped(*words)

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, message):
        self.send(message)
        return json.loads(self.process.stdout.readline())

    def greet(self):
        self.ask(request(0, "initialize", HELLO))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def end(self):
        """Close what is open and wait for the end; give what else was said on stdout and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert b"Traceback" not in err, err.decode()
        return out, err


async def test_an_agent_lists_and_calls_over_pipes(era, plugins):
    async with mcp_clients.process(era, "mcp") as agent:
        names = [tool.name for tool in (await agent.list_tools()).tools]
        assert names == ["alpha", "beta", *mcp_clients.OURS]
        assert (await agent.call_tool("alpha", {})).content[0].text == "done"
    assert ok("audit", "--kind", "call", "--json").json[-1]["attachment"].startswith("mcp-")


async def test_a_plugin_that_appears_is_announced(plugins):
    changed = anyio.Event()

    async def heard(message):
        changed.set()

    async with mcp_clients.process("older", "mcp", message_handler=heard) as agent:
        await agent.list_tools()
        plugin_folders.cyclop(os.path.join(home(), "plugins"), "gamma")
        with anyio.fail_after(PATIENCE_S):
            await anyio.to_thread.run_sync(lambda: ok("approve", "gamma", "--yes"))
            await agent.call_tool("builtin_reload_plugins", {})
            await changed.wait()
        assert "gamma" in [tool.name for tool in (await agent.list_tools()).tools]


async def test_a_profile_is_followed_while_it_changes(plugins, settings):
    settings('[profiles.narrow]\nplugins = ["alpha"]\n')
    changed = anyio.Event()

    async def heard(message):
        changed.set()

    async with mcp_clients.process("older", "mcp", "--profile", "narrow", message_handler=heard) as agent:
        assert [tool.name for tool in (await agent.list_tools()).tools] == ["alpha"]
        settings('[profiles.narrow]\nplugins = ["beta"]\n')
        with anyio.fail_after(PATIENCE_S):
            await changed.wait()
        assert [tool.name for tool in (await agent.list_tools()).tools] == ["beta"]
        assert (await agent.call_tool("alpha", {})).is_error


def test_a_profile_that_is_not_there_is_named(settings):
    settings('[profiles.work]\nplugins = ["x"]\n')
    said = fails(1, "mcp", "--profile", "play").err
    assert "no profile is named 'play'" in said
    assert "the profiles are work" in said
    fails(2, "mcp", "--surface", "some")


def test_only_the_protocol_goes_to_stdout_and_nobody_reads_our_input(root, unconfined):
    agent = Pipes("--plugin", zot_folders.extension(root, "loud", LOUD), "--no-discover", "mcp")
    agent.greet()
    answer = agent.ask(request(1, "tools/call", {"name": "loud"}))
    assert answer["result"]["content"][0]["text"] == "done"
    assert agent.ask(request(2, "ping"))["id"] == 2
    out, _ = agent.end()
    assert out == b""
    assert agent.process.returncode == 0


def test_a_closed_stdin_cancels_the_call_and_leaves_no_process(root):
    script = plugin_folders.python("time.sleep(60)")
    plugin_folders.cyclop(os.path.join(home(), "plugins"), "sleeper", script)
    ok("approve", "sleeper", "--yes")
    agent = Pipes("mcp")
    agent.greet()
    agent.send(request(1, "tools/call", {"name": "sleeper"}))
    assert processes.until(_sleeps)
    agent.end()
    assert agent.process.returncode == 0
    record = ok("audit", "--kind", "call", "--json").json[-1]
    assert (record["tool"], record["outcome"]) == ("sleeper", "cancelled")
    assert processes.until(lambda: not _sleeps())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_as_a_closed_stdin_does(plugins, number):
    agent = Pipes("mcp")
    agent.greet()
    assert agent.ask(request(1, "ping"))["id"] == 1
    agent.process.send_signal(number)
    assert agent.process.wait(PATIENCE_S) == 128 + number
    agent.process.communicate()


def test_it_ends_when_nobody_reads_its_answers(plugins):
    agent = Pipes("mcp")
    agent.greet()
    agent.process.stdout.close()
    agent.send(request(1, "tools/list"))
    assert agent.process.wait(PATIENCE_S) == 0
    assert b"Traceback" not in agent.process.stderr.read()
    agent.process.stdin.close()
    agent.process.stderr.close()


@pytest.mark.parametrize("source", ["/dev/null", "file"])
def test_an_input_that_ends_at_once_ends_it(tmp_path, source):
    if source == "file":
        source = plugin_folders.write(str(tmp_path / "lines"), json.dumps(request(0, "initialize", HELLO)) + "\n")
    with open(source, "rb") as stdin:
        done = subprocess.run([*PROGRAM, "mcp"], stdin=stdin, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done
    assert b"Traceback" not in done.stderr


async def test_questions_reach_the_person_over_pipes(era):
    zot_folders.extension(os.path.join(home(), "plugins"), "echo")
    ok("approve", "echo", "--yes")
    person, asked = mcp_clients.answering("once")
    async with mcp_clients.process(era, "mcp", elicitation_callback=person) as agent:
        assert not (await agent.call_tool("echo", {})).is_error
        await until(lambda: asked)


def _sleeps():
    return any("sleeper" in command for command in processes.carrying(os.environ[TOKEN_VARIABLE]).values())


# Through the resident host


@pytest.fixture
def attached(plugins):
    """Give an agent that speaks with the resident host, and that host; whatever is up then is stopped."""
    with daemons.resident() as process:
        agent = Pipes("mcp", "--resident")
        agent.greet()
        try:
            yield agent, process
        finally:
            agent.process.kill()
            agent.process.communicate()
            ok("stop")


def test_a_conversation_goes_on_when_the_host_is_killed(attached):
    agent, process = attached
    for number in range(3):
        daemons.kill(process) if number == 0 else os.kill(daemons.status()["pid"], signal.SIGKILL)
        agent.ask(request(f"lost-{number}", "ping"))  # answered, or told that the host has ended
        assert agent.ask(request(number, "tools/list"))["result"]["tools"]


def test_where_the_folder_is_gone_too_it_ends_with_the_host(attached, monkeypatch):
    agent, process = attached
    shutil.rmtree(os.getcwd())
    monkeypatch.chdir("/")
    daemons.kill(process)
    assert agent.process.wait(PATIENCE_S) == 1
    assert b"does not exist" in agent.process.stderr.read()


def test_it_ends_when_nobody_reads_what_the_host_answers(attached):
    agent, _ = attached
    agent.process.stdout.close()
    agent.send(request(1, "tools/list"))
    assert agent.process.wait(PATIENCE_S) == 0
    assert b"Traceback" not in agent.process.stderr.read()
