"""`anyplug mcp --resident`: a relay that is up at once, outlives the host behind it, and leaves nobody waiting."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

import command_line
import daemons
import plugin_folders
import processes
import zot_folders
from anyplug.frontends.daemon.relay import LOST
from anyplug.runtime.processes.guard import TOKEN_VARIABLE
from command_line import PATIENCE_S, last_record, ok
from daemons import resident
from mcp_clients import HELLO, modern, request
from plugin_folders import python

SLOW = python("time.sleep(60)\nprint(json.dumps({'result': 'late'}))")
PIDS = "() => String(process.pid)"
LINGERS = """
hello()
tool("lingers")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, "here")
time.sleep(1.5)
"""
HEAVY = {"mcp", "mcp_types", "anyio", "asyncio", "pydantic", "anyplug.host.host", "anyplug.catalog.catalog"}
ASKING = {"older": request, "newer": modern}


@pytest.fixture
def plugins(home):
    """Approve one plugin that answers at once, and one that takes a minute."""
    plugin_folders.cyclop(str(home / "plugins"), "hello")
    plugin_folders.cyclop(str(home / "plugins"), "slow", SLOW)
    for name in ("hello", "slow"):
        ok("approve", name, "--yes")


@pytest.fixture(autouse=True)
def _all_go_home(home):
    """Leave neither agents nor hosts behind, whatever became of the test."""
    yield
    for relay in relays:
        if relay.process.poll() is None and relay.is_for_one_test:
            relay.vanishes()
    if daemons.address().is_held():
        ok("stop")


relays: "list[Relay]" = []


class Relay:
    """An agent's end of the pipes."""

    is_for_one_test = True

    def __init__(self, *words: str, era: str = "older", python: tuple[str, ...] = (), **variables: str) -> None:
        relays.append(self)
        self._ask = ASKING[era]
        env = {**os.environ, **variables}
        self.process = (
            subprocess.Popen(
                [sys.executable, *python, "-m", "anyplug", "mcp", "--resident", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
            )
            if python
            else command_line.piped("mcp", "--resident", *words, env=env)
        )
        if era == "older":
            self.sends(request("hello", "initialize", HELLO))
            assert self.hears()["id"] == "hello"
            self.sends({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def sends(self, message: object) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        try:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise AssertionError(self.process.stderr.read().decode()) from error

    def hears(self) -> dict:
        """The next answer; what comes unasked is passed over."""
        while True:
            line = self.process.stdout.readline()
            assert line, self.process.communicate(timeout=PATIENCE_S)[1].decode()
            word = json.loads(line)
            if "method" not in word:
                return word

    def calls(self, number: int, tool: str) -> None:
        self.sends(self._ask(number, "tools/call", {"name": tool, "arguments": {}}))

    def asks(self, number: int, method: str, **params: object) -> dict:
        self.sends(self._ask(number, method, params))
        return self.hears()

    def gets(self, number: int, tool: str) -> str:
        """Call a tool to its end; give what it said."""
        self.calls(number, tool)
        answer = self.hears()
        assert answer["id"] == number, answer
        return answer["result"]["content"][0]["text"]

    def insists(self, tool: str) -> str:
        """Call a tool until there is an answer: a call that is sent while the host ends is told to try again."""
        for number in range(100, 110):
            self.calls(number, tool)
            answer = self.hears()
            if "result" in answer:
                return answer["result"]["content"][0]["text"]
            assert answer["error"]["data"] == {"code": "unavailable", "hint": "try again"}
        raise AssertionError("there is no end to it")

    def leaves(self) -> bytes:
        """Close the pipes, and wait for the end; give what it said beside the protocol."""
        _, err = self.process.communicate(timeout=PATIENCE_S)
        assert b"Traceback" not in err, err.decode()
        return err

    def vanishes(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


def sleepers() -> list[int]:
    """The processes of calls that take a minute."""
    return [
        pid for pid, command in processes.carrying(os.environ[TOKEN_VARIABLE]).items() if "plugins/slow/run" in command
    ]


def test_the_first_answer_needs_neither_the_sdk_nor_an_event_loop(plugins, era):
    with resident():
        agent = Relay(era=era, python=("-X", "importtime"))
        tools = agent.asks(1, "tools/list")["result"]["tools"]
        assert {tool["name"] for tool in tools} >= {"hello", "slow"}
        assert agent.gets(2, "hello") == "done"
        said = agent.leaves().decode()
        assert agent.process.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in said.splitlines() if line.startswith("import time:")}
    assert "anyplug.frontends.daemon.relay" in imported
    assert imported & HEAVY == set()


@pytest.mark.combinations
def test_without_a_host_it_starts_one_that_stays(plugins, era):
    agent = Relay(era=era)
    assert agent.gets(1, "hello") == "done"
    pid = daemons.status()["pid"]
    agent.leaves()
    assert daemons.status()["pid"] == pid
    ok("stop")


def test_when_the_host_is_killed_those_who_wait_are_told_and_the_conversation_goes_on(plugins, era):
    with resident() as process:
        agent = Relay(era=era)
        other = Relay(era=era)
        agent.calls(1, "slow")
        agent.calls(2, "slow")
        other.calls(1, "slow")
        assert processes.until(lambda: len(sleepers()) >= 3)
        daemons.kill(process)
        told = [agent.hears(), agent.hears(), other.hears()]
        assert sorted(answer["id"] for answer in told[:2]) == [1, 2]
        for answer in told:
            assert answer["error"]["data"] == {"code": "unavailable", "hint": "try again"}
            assert "the daemon that ran the plugins ended" in answer["error"]["message"]
        assert processes.until(lambda: not sleepers())  # no orphan
        assert agent.gets(3, "hello") == "done"
        assert other.gets(3, "hello") == "done"
        assert {tool["name"] for tool in agent.asks(4, "tools/list")["result"]["tools"]} >= {"hello"}
        now = daemons.status()
        assert now["pid"] != process.pid
        assert [client["kind"] for client in now["clients"]].count("mcp") == 2  # one new host for both
        agent.leaves()
        other.leaves()
        ok("stop")
    records = ok("audit", "--kind", "call", "--json").json
    assert [record["outcome"] for record in records].count("lost") == 3  # and no record is missing
    assert ok("audit", "--verify")


@pytest.mark.combinations
def test_a_killed_daemon_comes_back_with_what_it_served_and_a_running_one_takes_it_on(plugins, home, era):
    with resident("--http", "127.0.0.1:0") as process:
        served = daemons.status()["url"]
        agent = Relay(era=era)
        assert agent.gets(1, "hello") == "done"
        scratch = set(os.listdir(home / "scratch"))
        daemons.kill(process)
        assert agent.insists("hello") == "done"
        now = daemons.status()
        assert (now["url"], now["pid"] != process.pid) == (served, True)
        assert processes.until(lambda: not scratch & set(os.listdir(home / "scratch")))
        service = command_line.start("serve", "--http", served.removeprefix("http://"))  # as a service manager would
        said = service.stderr.readline().decode()
        assert f"the running daemon (pid {now['pid']}) serves HTTP now: MCP is at {served}/mcp" in said
        agent.leaves()
        ok("stop")
        assert command_line.finish(service).code == 0
        assert not os.path.exists(home / "run" / "served.json")

    agent = Relay(era=era)  # starts a daemon without HTTP
    assert agent.gets(1, "hello") == "done"
    assert daemons.status()["url"] is None
    handed = ok("serve", "--detach", "--http", "127.0.0.1:0", "--json")
    assert handed.json == {"up": True, "pid": daemons.status()["pid"], "started": False}
    assert daemons.status()["url"].startswith("http://127.0.0.1:")
    taken = command_line.run("serve", "--detach", "--http", "127.0.0.1:1")
    assert taken.code == 1
    assert "the daemon already serves over HTTP at" in taken.err
    agent.leaves()
    ok("stop")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--new-token"], "no new token was created: the daemon at "),
        (["--expose"], "and without this --expose"),
        (["--tls-cert", "c.pem", "--tls-key", "k.pem"], "and without this --tls-cert"),
    ],
)
def test_a_running_server_ignores_no_option(words, said, home):
    with resident("--http", "127.0.0.1:0"):
        address = daemons.status()["url"].removeprefix("http://")
        token = (home / "http-token").read_text()
        taken = command_line.fails(1, "serve", "--detach", "--http", address, *words)
        assert said in taken.err
        assert "run `anyplug stop`" in taken.err
        assert (home / "http-token").read_text() == token
        ok("serve", "--detach", "--http", address)
        ok("stop")


@pytest.mark.combinations
def test_it_may_be_killed_again_and_again(plugins, era):
    agent = Relay(era=era)
    seen = set()
    for _ in range(3):
        assert agent.insists("hello") == "done"
        pid = daemons.status()["pid"]
        seen.add(pid)
        os.kill(pid, signal.SIGKILL)
        assert processes.until(lambda pid=pid: daemons.gone(pid))
    assert agent.insists("hello") == "done"
    assert len(seen) == 3
    agent.leaves()
    ok("stop")


@pytest.mark.combinations
def test_a_host_that_is_stopped_in_order_is_followed_by_another(plugins, era):
    with resident():
        agent = Relay(era=era)
        assert agent.gets(1, "hello") == "done"
        ok("stop")
    assert agent.insists("hello") == "done"
    agent.leaves()
    ok("stop")


def test_when_the_host_is_stopped_those_who_wait_are_told_as_if_it_had_been_killed(plugins, era):
    with resident():
        agent = Relay(era=era)
        plain = ASKING[era](1, "tools/call", {"name": "slow", "arguments": {}})
        agent.sends(plain)
        agent.sends({**plain, "id": 2, "params": {**plain["params"], "further": True}})  # past the lane
        assert processes.until(lambda: len(sleepers()) == 2)
        ok("stop")
        told = [agent.hears(), agent.hears()]
        assert sorted(answer["id"] for answer in told) == [1, 2]
        for answer in told:
            assert answer["error"]["code"] == LOST
            assert answer["error"]["data"] == {"code": "unavailable", "hint": "try again"}
            assert "the daemon that ran the plugins ended" in answer["error"]["message"]
    assert agent.insists("hello") == "done"
    agent.leaves()
    ok("stop")


@pytest.mark.combinations
def test_a_host_that_takes_its_time_to_end_is_followed_by_another(plugins, home, era):
    zot_folders.extension(str(home / "plugins"), "lingers", LINGERS)
    ok("approve", "lingers", "--yes", "--always")
    with resident():
        agent = Relay(era=era)
        assert agent.gets(1, "lingers") == "here"
        ok("stop")
        assert agent.insists("hello") == "done"
    agent.leaves()
    ok("stop")


def test_a_host_that_ends_as_soon_as_it_has_let_us_in_is_followed_by_another(plugins):
    address = daemons.address()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.settimeout(PATIENCE_S)
        listener.bind(address.socket_path())
        listener.listen()
        plugin_folders.write(address.word, json.dumps({"socket": address.socket_path()}))
        standing_in = threading.Thread(target=_let_in_and_end, args=(listener,))
        standing_in.start()
        agent = Relay()
        standing_in.join()
        os.unlink(address.word)
    assert agent.insists("hello") == "done"
    agent.leaves()
    ok("stop")


def _let_in_and_end(listener):
    """Be a host that begins a conversation and ends; then one that ends before it hears anything; several times."""
    for number in range(5):
        connection, _ = listener.accept()
        connection.settimeout(PATIENCE_S)
        with connection, connection.makefile("rb") as lines:
            lines.readline()
            connection.sendall(b'{"attached": "x"}\n')
            if number == 0:
                lines.readline()
                connection.sendall(b'{"jsonrpc": "2.0", "id": "hello", "result": {}}\n')
                lines.readline()


@pytest.mark.combinations
def test_a_client_that_vanishes_has_its_call_cancelled_and_recorded(plugins, era):
    with resident():
        agent = Relay(era=era)
        agent.calls(1, "slow")
        assert processes.until(lambda: bool(sleepers()))
        agent.vanishes()
        assert processes.until(lambda: not sleepers())
        assert processes.until(lambda: last_record()["outcome"] == "cancelled")
        assert last_record()["tool"] == "slow"
        assert processes.until(lambda: daemons.status()["attached"] == 0)


def test_a_client_that_closes_its_end_has_its_call_cancelled(plugins):
    with resident():
        agent = Relay()
        agent.calls(1, "slow")
        assert processes.until(lambda: bool(sleepers()))
        agent.leaves()
        assert agent.process.returncode == 0
        assert processes.until(lambda: not sleepers())
        assert processes.until(lambda: last_record()["outcome"] == "cancelled")


def test_ten_agents_share_one_set_of_processes(home):
    plugin_folders.workbench(str(home / "plugins"), "bench", PIDS)
    ok("approve", "bench", "--yes", "--always")
    with resident():
        agents = [Relay(era="newer" if number % 2 else "older") for number in range(10)]
        assert len({agent.gets(1, "bench.act") for agent in agents}) == 1
        said = daemons.status()
        assert (said["running"], said["calls"], said["attached"]) == (1, 10, 10)
        for agent in agents:
            agent.leaves()


def test_a_profile_that_is_not_there_is_an_error_that_says_so(plugins, settings):
    settings('[profiles.work]\nplugins = ["hello"]\n')
    with resident():
        agent = Relay("--profile", "play", era="newer")
        said = agent.leaves().decode()
    assert agent.process.returncode == 1
    assert "no profile is named 'play'" in said
    assert "the profiles are work" in said


def test_a_profile_that_is_gone_when_another_host_comes_ends_it_and_says_so(plugins, settings):
    settings('[profiles.work]\nplugins = ["hello", "slow"]\n')
    with resident() as process:
        agent = Relay("--profile", "work")
        agent.calls(1, "slow")
        assert processes.until(lambda: bool(sleepers()))
        settings("")
        daemons.kill(process)
        assert agent.hears()["error"]["data"]["code"] == "unavailable"
        assert agent.process.wait(PATIENCE_S) == 1
        assert b"no profile is named 'work'" in agent.leaves()
    ok("stop")


@pytest.mark.combinations
def test_whoever_has_another_home_of_their_own_is_served_alone_and_told(plugins, tmp_path, era):
    with resident():
        agent = Relay(era=era, HOME=str(tmp_path))
        assert agent.gets(1, "hello") == "done"
        assert daemons.status()["calls"] == 0
        assert b"working without the daemon: the daemon runs with a different HOME" in agent.leaves()


GARBAGE = [
    b"",
    b"garbage",
    b"\xff\xfe\x00",
    b"[]",
    b"7",
    b"[" * 5000,
    b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "2.0", "id": [1], "method": "tools/list"}',
    b'{"jsonrpc": "2.0", "id": NaN, "method": "tools/list"}',
    b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": NaN}}',
    b'{"jsonrpc": "2.0", "id": 5, "result": {}}',
    b'{"jsonrpc": "2.0", "method": "notifications/nobody/knows"}',
]


@pytest.mark.parametrize("line", GARBAGE, ids=lambda line: line[:24].decode(errors="replace") or "nothing")
def test_lines_that_mean_nothing_end_no_conversation(shared, line):
    shared.sends(line)
    answer = shared.asks(77, "ping")
    while answer.get("id") != 77:  # it may be told that it was not understood
        assert "error" in answer
        answer = shared.hears()
    assert answer["result"] == {}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One agent for all garbage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANYPLUG_HOME", str(tmp_path_factory.mktemp("shared")))
        with resident():
            agent = Relay()
            agent.is_for_one_test = False
            yield agent
            agent.leaves()
