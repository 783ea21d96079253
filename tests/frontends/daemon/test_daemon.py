"""The resident host: one for each home, shared by all who attach, and gone without a trace when it goes."""

import contextlib
import fcntl
import json
import os
import re
import resource
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import anyplug
import daemons
import plugin_folders
import processes
from anyplug.frontends.cli.main import SIGNALLED
from anyplug.frontends.daemon.connection import MOST_AT_ONCE
from anyplug.frontends.daemon.locate import PLACES, Address, hello
from command_line import PATIENCE_S, Terminal, fails, finish, home, last_record, listed, ok, run, start
from daemon_double import ResidentHost
from daemons import Client, resident
from plugin_folders import python
from zot_folders import ECHO, extension, heard

PIDS = """() => String(process.pid)"""
SLOW = python("time.sleep(60)\nprint(json.dumps({'result': 'late'}))")
NETWORK = {"permissions": ["network"]}  # tier 2
MOODY = "if os.path.exists('mood'): sys.exit('not today')\n" + ECHO


@pytest.fixture
def project(monkeypatch, tmp_path):
    """Give a project whose plugins lie in ./plugins."""
    folder = tmp_path / "project"
    (folder / "plugins").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return str(folder)


@pytest.fixture
def bench(project):
    """Give an approved Workbench plugin that says which process it is."""
    plugin_folders.workbench(os.path.join(project, "plugins"), "bench", PIDS)
    ok("approve", "bench", "--yes", "--always")


@pytest.fixture
def slow(project, settings):
    """Give an approved plugin whose calls take a minute; only calls run it, and nothing waits for the next one."""
    settings("[warm]\nenabled = false\n")
    plugin_folders.cyclop(os.path.join(project, "plugins"), "slow", SLOW, timeout=120)
    ok("approve", "slow", "--yes", "--always")


# Coming and going


def test_it_is_up_until_it_is_stopped():
    assert daemons.status() == {"up": False}
    with resident() as process:
        said = daemons.status()
        assert (said["up"], said["pid"], said["calls"], said["errors"]) == (True, process.pid, 0, 0)
        assert (said["attached"], said["clients"]) == (0, [])  # whoever asks how it does is not attached
        assert said["home"] == home()
        assert f"pid {process.pid}" in ok("status").out
        assert ok("stop", "--json").json == {"stopped": True}
        assert process.wait(PATIENCE_S) == 0
    assert daemons.status() == {"up": False}
    assert ok("stop", "--json").json == {"stopped": False}
    assert not os.path.exists(daemons.address().word)


def test_only_its_user_may_open_what_it_makes():
    with resident():
        for path, mode in ((daemons.address().word, 0o600), (daemons.address().folder, 0o700)):
            assert stat.S_IMODE(os.stat(path).st_mode) == mode
        assert stat.S_IMODE(os.stat((daemons.address().read() or {})["socket"]).st_mode) == 0o600


def test_it_opens_as_many_files_as_it_may():
    with resident(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))) as process:
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (4096, 4096)


def test_a_second_one_for_the_same_home_says_that_there_is_one():
    with resident() as process:
        said = fails(1, "serve").err
        assert f"the daemon is already running for {home()} (pid {process.pid})" in said
        assert daemons.status()["pid"] == process.pid


def test_many_that_start_at_once_are_one():
    begun = [start("serve", "--detach", "--json") for _ in range(5)]
    said = [finish(one).json for one in begun]
    assert len({one["pid"] for one in said}) == 1
    ok("stop")
    assert processes.until(lambda: daemons.gone(said[0]["pid"]))


def test_one_in_the_background_leaves_when_nobody_needs_it():
    pid = ok("serve", "--detach", "--linger", "0.3", "--json").json["pid"]
    assert processes.read(f"/proc/{pid}/comm") in {b"anyplug\n", b""}  # and not python, which others kill by name
    assert processes.until(lambda: daemons.gone(pid))
    assert daemons.status() == {"up": False}


def test_it_stays_while_somebody_is_attached():
    with resident("--linger", "2") as process:
        client = Client()
        assert not processes.until(lambda: daemons.gone(process.pid), patience_s=3.5)
        client.leaves()
        assert process.wait(PATIENCE_S) == 0


def test_one_that_a_person_lets_serve_http_stays():
    pid = ok("serve", "--detach", "--linger", "1", "--json").json["pid"]
    ok("serve", "--http", "127.0.0.1:0", "--detach")
    assert not processes.until(lambda: daemons.gone(pid), patience_s=3.5)
    assert ok("stop", "--json").json == {"stopped": True}


def test_whoever_asks_how_it_does_does_not_keep_it_up():
    ok("serve", "--detach", "--linger", "1")
    assert processes.until(lambda: daemons.status() == {"up": False})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_in_order(bench, number):
    with resident() as process:
        plugin = ok("show", "bench", "--json").json["process"]["pid"]
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        assert daemons.gone(plugin)


def test_a_hang_up_that_was_to_be_ignored_is_ignored():
    with resident(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
        process.send_signal(signal.SIGHUP)
        assert daemons.status()["pid"] == process.pid


def test_what_a_killed_one_left_lying_about_hinders_nobody():
    with resident() as process:
        daemons.kill(process)
    assert os.path.exists(daemons.address().word)
    assert daemons.status() == {"up": False}
    assert ok("list", "--json").json == []
    with resident() as process:
        assert daemons.status()["pid"] == process.pid


def test_a_word_of_a_killed_one_does_not_end_the_one_that_comes_up():
    with resident() as process:
        daemons.kill(process)
    address = daemons.address()
    stale = json.dumps({**address.read(), "pid": process.pid})
    begun = start("serve", "--detach", "--json")
    while begun.poll() is None:
        os.replace(plugin_folders.write(f"{address.word}.stale", stale), address.word)
    assert finish(begun).code == 0
    pid = daemons.status()["pid"]
    assert not processes.until(lambda: daemons.gone(pid), patience_s=1)
    ok("stop")
    assert processes.until(lambda: daemons.gone(pid))


@contextlib.contextmanager
def holding_the_lock(*, patiently=False):
    """Have the lock of one that comes up or ends, as soon as it is free if `patiently`."""
    os.makedirs(daemons.address().folder, exist_ok=True)
    with open(daemons.address().lock, "w") as lock:
        taking = threading.Thread(target=fcntl.flock, args=(lock, fcntl.LOCK_EX))
        taking.start()
        if not patiently:
            taking.join()
        yield
        taking.join()


def test_one_that_is_just_ending_is_waited_for():
    with holding_the_lock():
        begun = start("serve")
        assert not processes.until(lambda: begun.poll() is not None, patience_s=1.5)
    assert processes.until(daemons.is_up)
    assert daemons.status()["pid"] == begun.pid
    ok("stop")
    assert finish(begun).code == 0


def test_whoever_waits_for_another_to_end_can_be_ended():
    with holding_the_lock():
        begun = start("serve")
        assert processes.until(lambda: _hears(begun.pid, signal.SIGTERM))
        begun.send_signal(signal.SIGTERM)
        assert finish(begun).code in {1, SIGNALLED + signal.SIGTERM, -signal.SIGTERM}


def _hears(pid: int, number: signal.Signals) -> bool:
    lines = processes.read(f"/proc/{pid}/status").splitlines()
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in lines if line.startswith(b"SigCgt:"))


def test_stop_is_done_although_the_next_one_comes_up_at_once():
    with resident() as process, holding_the_lock(patiently=True):
        assert ok("stop", "--json").json == {"stopped": True}
        assert process.wait(PATIENCE_S) == 0


def test_one_that_comes_up_is_waited_for_by_those_who_ask_how_it_does():
    with holding_the_lock():
        asking = start("status", "--json")
        assert not processes.until(lambda: asking.poll() is not None, patience_s=1)
    assert finish(asking).json == {"up": False}


@pytest.mark.parametrize(("command", "said"), [("stop", {"stopped": True}), ("status", {"up": False})])
def test_one_that_ends_while_it_is_asked_has_ended(command, said):
    address = daemons.address()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.settimeout(PATIENCE_S)
        listener.bind(address.socket_path())
        listener.listen()
        plugin_folders.write(address.word, json.dumps({"socket": address.socket_path()}))
        asking = start(command, "--json")
        connection, _ = listener.accept()
        os.unlink(address.word)
        with connection, connection.makefile("rb") as lines:
            lines.readline()
            connection.sendall(b'{"attached": "x", "version": "0", "pid": 4194304}\n')
            lines.readline()
    assert finish(asking).json == said


@pytest.mark.parametrize("word", ["", "{", "[]", '{"socket": 7}', '{"socket": "/nowhere"}'])
def test_a_word_that_leads_nowhere_counts_as_none(word):
    plugin_folders.write(daemons.address().word, word)
    assert daemons.status() == {"up": False}
    assert run("call", "nothing").code == 4


@pytest.mark.claim("home-is-private")
def test_a_home_that_lies_deep_has_its_socket_in_it_too(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100)
    monkeypatch.setenv("ANYPLUG_HOME", str(deep))
    with resident():
        path = (Address(str(deep)).read() or {})["socket"]
        assert path == str(deep / "run" / "host.sock")
        assert daemons.status()["up"]
        assert run("call", "nothing").code == 4


def test_where_nothing_can_be_written_it_says_so():
    def nothing_fits() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = finish(start("serve", preexec_fn=nothing_fits))
    assert done.code == 1
    assert "File too large" in done.err
    assert "hint: check the disk's free space" in done.err
    done = finish(start("serve", "--detach", preexec_fn=nothing_fits))
    assert done.code == 1
    assert f"cannot write to {daemons.address().log}: File too large" in done.err
    assert "hint: check the disk's free space" in done.err
    assert os.listdir(daemons.address().folder) == ["lock"]


def test_while_the_disk_is_full_calls_are_refused_and_afterwards_all_is_well(project, zot):
    plugin_folders.cyclop(os.path.join(project, "plugins"))
    extension(os.path.join(project, "plugins"), "stays")
    for name in ("hello", "stays"):
        ok("approve", name, "--yes", "--always")
    with resident() as process:
        client = Client()
        for name in ("hello", "stays"):
            assert client.asks("call", name=name)["result"]["is_error"] is False
        usual = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, usual[1]))
        recorded = 2
        while not client.asks("call", name="hello")["result"]["is_error"]:  # its journal has room for some more
            recorded += 1
        for name in ("hello", "stays", "nothing"):
            error = client.asks("call", name=name)["result"]["error"]
            assert error["code"] == "denied"
            assert "cannot be recorded" in error["message"]
            assert error["hint"]
        assert daemons.status()["errors"] == 4
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, usual)
        for name in ("hello", "stays"):
            assert client.asks("call", name=name)["result"]["is_error"] is False
    assert ok("audit", "--verify").code == 0
    assert [record["outcome"] for record in ok("audit", "--kind", "call", "--json").json].count("done") == recorded + 2


@pytest.mark.parametrize("words", [(), ("--detach",)])
def test_a_store_that_cannot_be_used_is_said_to_be(project, words):
    plugin_folders.cyclop(os.path.join(project, "plugins"))
    plugin_folders.write(os.path.join(home(), "anyplug.db"), "this is no database, but a letter to somebody")
    done = fails(1, "serve", "--http", "127.0.0.1:0", *words)
    assert "anyplug.db failed: file is not a database" in done.err
    assert "hint: " in done.err
    assert daemons.status() == {"up": False}


# What is served over HTTP


def test_once_it_is_up_it_is_up_over_http_too(project):
    ok("serve", "--detach", "--http", "127.0.0.1:0")
    assert daemons.status()["url"].startswith("http://127.0.0.1:")
    ok("stop")


def test_folders_that_are_named_are_served_over_http(project, zot):
    folder = zot("mine")
    plugin_folders.cyclop(os.path.join(project, "plugins"))
    named = ("--plugin", os.path.relpath(folder), "--no-discover")
    served = [{"folder": project, "attached": 1, "plugins": [folder]}]
    with resident("--http", "127.0.0.1:0", before=named):
        assert daemons.status()["projects"] == served
    ok(*named, "serve", "--detach", "--http", "127.0.0.1:0")
    said = daemons.status()
    assert (said["projects"], said["plugins"]) == (served, 1)
    ok("stop")


@pytest.mark.parametrize("words", [(), ("--detach",)])
@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (("--plugin", "."), ()),
        (("--no-discover",), ()),
        ((), ("--expose",)),
        ((), ("--tls-cert", "x")),
        ((), ("--tls-key", "x")),
        ((), ("--new-token",)),
    ],
)
def test_what_only_http_could_use_is_not_ignored_without_it(words, before, behind):
    said = fails(2, *before, "serve", *words, *behind).err
    assert f"{(before or behind)[0]} needs --http" in said
    assert "add --http HOST:PORT" in said
    assert daemons.status() == {"up": False}


# The same with it and without it


def test_a_call_gives_the_same_with_it_and_without_it(project):
    plugins = os.path.join(project, "plugins")
    plugin_folders.cyclop(plugins, "hello", python("print(json.dumps({'result': str(given)}))"))
    plugin_folders.stavrobot(plugins, "bundle", python("print(json.dumps({'got': given}))"))
    plugin_folders.workbench(plugins, "bench", "(given) => ({ content: JSON.stringify(given), metadata: { a: 1 } })")
    for name in ("hello", "bundle", "bench"):
        ok("approve", name, "--yes", "--always")
    calls = [
        ("call", "hello", "--json"),
        ("call", "bundle.act", "text=a b", "--json"),
        ("call", "bundle.act", "--json"),
        ("call", "bench.act", "n=1", "--args", '{"deep": [1, {}]}', "--json"),
        ("call", "nothing", "--json"),
        ("call", "hello", "--args", "[]", "--json"),
    ]

    def outcomes() -> list[tuple[int, object, str]]:
        found = []
        for words in calls:
            done = run(*words)
            found.append((done.code, done.json | {"duration_ms": 0}, done.err))
        return found

    alone = outcomes()
    with resident():
        assert outcomes() == alone
        assert daemons.status()["calls"] == len(calls)
    assert [code for code, _, _ in alone] == [0, 0, 0, 0, 4, 2]


def test_lists_are_the_same_with_it_and_without_it(bench):
    alone = [ok(*words, "--json").json for words in (("list",), ("tools",), ("tools", "bench.act"))]
    with resident():
        assert [ok(*words, "--json").json for words in (("list",), ("tools",), ("tools", "bench.act"))] == alone


def test_a_chain_and_a_command_run_in_it(project, zot, root):
    plugin_folders.cyclop(
        os.path.join(project, "plugins"), "hello", python("print(json.dumps({'result': str(given)}))")
    )
    ok("approve", "hello", "--yes", "--always")
    folder = zot(
        "orders",
        """
hello()
command("greet")
emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("notify", level="warn", message="mind the gap")
        emit("command_response", id=frame["id"], action="display", display="hello " + frame["args"])
""",
    )
    steps = json.dumps([{"tool": "hello", "input": {"a": 1}}, {"tool": "hello", "input": {"b": "{{step0.content}}"}}])
    alone = run("--plugin", folder, "run", "/greet you"), run("chain", "-", stdin=steps)
    with resident():
        attached = run("--plugin", folder, "run", "/greet you"), run("chain", "-", stdin=steps)
    for one, other in zip(alone, attached, strict=True):
        assert (one.code, one.out) == (other.code, other.out)
    assert "hello you" in attached[0].out
    assert "[orders] warn: mind the gap" in attached[0].err
    assert "step 1 of 2: hello: ok" in attached[1].err


def test_a_plugin_gets_its_callers_environment(project, monkeypatch):
    plugin_folders.cyclop(
        os.path.join(project, "plugins"),
        "hello",
        python("print(json.dumps({'result': os.environ.get('WHO', 'nobody')}))"),
    )
    ok("approve", "hello", "--yes", "--always")
    with resident():
        assert ok("call", "hello").out == "nobody\n"
        monkeypatch.setenv("WHO", "me")
        assert ok("call", "hello").out == "me\n"
        monkeypatch.setenv("WHO", "you")
        assert ok("call", "hello").out == "you\n"


def test_each_project_has_its_own_plugins(tmp_path, monkeypatch):
    with resident():
        for name in ("one", "two"):
            folder = tmp_path / name
            plugin_folders.cyclop(
                str(folder / "plugins"), "hello", python(f"print(json.dumps({{'result': '{name}'}}))")
            )
            monkeypatch.chdir(folder)
            ok("approve", "hello", "--yes")
            assert ok("call", "hello").out == f"{name}\n"
        assert len(daemons.status()["projects"]) == 2


def test_whoever_has_other_places_works_without_it(project, bench, tmp_path):
    with resident():
        for name in PLACES:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(name, "off" if name == "ANYPLUG_CONFINEMENT" else str(tmp_path / "elsewhere"))
                assert run("call", "bench.act").code == 0, name
                assert Client().welcome["error"]["code"] == "unavailable", name


def test_it_can_be_left_alone(bench, monkeypatch):
    with resident():
        monkeypatch.setenv("ANYPLUG_RESIDENT", "off")
        ok("call", "bench.act")
        monkeypatch.delenv("ANYPLUG_RESIDENT")
        assert daemons.status()["calls"] == 0


def test_what_a_named_plugin_offers_is_listed(project):
    folder = plugin_folders.workbench(os.path.join(project, "elsewhere"), "named", PIDS)
    given = ("--plugin", folder, "--no-discover")
    without = [ok(*given, *command).out for command in (("tools",), ("list",))]
    with resident():
        assert [ok(*given, *command).out for command in (("tools",), ("list",))] == without
        assert [one["name"] for one in ok(*given, "show", "named", "--json").json["registrations"]] == ["named.act"]
    assert "named.act" in without[0]


def test_why_a_plugin_is_not_up_is_said(project):
    plugin_folders.workbench(os.path.join(project, "plugins"), "broken", index="exports.register = () => {}; nope(")
    ok("approve", "broken", "--yes", "--always")
    with resident():
        (entry,) = ok("list", "--json").json
        assert [problem["code"] for problem in entry["problems"]] == ["not_running"]
        assert "index.js cannot be loaded" in ok("list").out
        assert "warning: broken: it is not running: index.js cannot be loaded" in ok("tools").err


# Settings that are written while it is up


@pytest.fixture
def two(project):
    """Give two approved extensions that have heard nothing since."""
    folders = [extension(os.path.join(project, "plugins"), name) for name in ("one", "two")]
    for name in ("one", "two"):
        ok("approve", name, "--yes", "--always")
    for folder in folders:
        os.unlink(os.path.join(folder, "heard.jsonl"))
    return folders


REQUIRED = '[plugins.nosuchguard]\nguard = "required"\n'


def test_whoever_attaches_goes_by_the_settings_of_now(two, settings):
    with resident():
        ok("call", "one")
        settings(REQUIRED)
        assert "the required guard 'nosuchguard' is not running" in fails(3, "call", "one").err
        settings("")
        ok("call", "one")
        os.unlink(os.path.join(home(), "settings.toml"))
        ok("call", "one")
    assert len(heard(two[0], "hello_ack")) == 1  # none of this concerned its process


@pytest.mark.parametrize("is_told", [True, False])
def test_whoever_stays_attached_gets_new_settings_at_a_reload_or_within_a_second(two, settings, is_told):
    with resident():
        client = Client()
        assert client.asks("call", name="one")["result"]["is_error"] is False
        settings(REQUIRED)
        if is_told:
            ok("reload")
            assert client.asks("call", name="one")["result"]["error"]["code"] == "denied"
        assert processes.until(lambda: client.asks("call", name="one")["result"]["is_error"])
        settings("")
        assert processes.until(lambda: not client.asks("call", name="one")["result"]["is_error"])


def test_a_time_limit_that_is_set_while_it_is_up_counts_for_the_next_call(slow, settings):
    with resident():
        client = Client()
        settings("[plugins.slow]\ntimeout_s = 0.3\n")
        assert "timed out" in fails(1, "call", "slow").err
        assert client.asks("call", name="slow")["result"]["error"]["code"] == "timed_out"


def test_only_what_was_started_by_other_settings_is_started_anew(two, settings):
    with resident():
        for name in ("one", "two"):
            ok("call", name)
        settings("[plugins.one.limits]\nopen_files = 64\n")
        for name in ("one", "two"):
            ok("call", name)
        assert [len(heard(folder, "hello_ack")) for folder in two] == [2, 1]
        assert len(heard(two[0], "shutdown")) == 1  # before the next one came


def test_an_extension_that_somebody_relies_on_since_is_started(two, settings):
    with resident():
        ok("call", "one")
        assert heard(two[1]) == []
        settings('[plugins.two]\nguard = "required"\n')
        refused = fails(3, "call", "one").err
        assert re.search(
            "the required guard 'two' (has not reported what it guards|is not running: it is still)", refused
        )
        assert processes.until(lambda: len(heard(two[1], "hello_ack")) == 1)  # it is ready before it reads that


def test_while_settings_cannot_be_used_the_last_good_ones_hold_and_the_person_is_told(two, settings):
    with resident():
        settings(REQUIRED)
        fails(3, "call", "one")
        settings("[plugins.nosuchguard\n")
        fault = "the settings are invalid, so the last good ones stay in effect: "
        for _ in range(2):
            said = fails(3, "call", "one").err
            assert f"warning: {fault}{home()}/settings.toml: " in said
            assert "the required guard 'nosuchguard' is not running" in said
        assert daemons.status()["settings"].startswith(fault)
        assert fault in ok("status").out
        assert fault in run("call", "builtin.reload_plugins").err
        settings("")
        assert fault not in ok("call", "one").err
        assert daemons.status()["settings"] is None
        assert fault not in ok("status").out


def test_a_daemon_that_starts_with_settings_that_cannot_be_used_says_so(settings):
    settings('[calls]\nat_once = "many"\n')
    said = ok("serve", "--detach").err
    fails(1, "call", "one")
    ok("stop")
    assert f"warning: {home()}/settings.toml: [calls] at_once is" in said
    assert "nothing can be called until it is fixed" in said


# How it does


def test_how_many_plugins_there_are_is_said_once_it_is_known(two):
    with resident():
        assert daemons.status()["plugins"] is None
        assert "\nplugins" not in ok("status").out
        ok("call", "one")
        assert daemons.status()["plugins"] == 2
        assert "\nplugins    2 approved, 1 running\n" in ok("status").out


# What is decided while it is up, and faults of ours


def test_show_knows_what_was_decided_just_now(two):
    with resident():
        for _ in range(3):
            ok("disable", "one")
            ok("enable", "one")
            assert ok("show", "one", "--json").json["process"]["health"] == "running"
            ok("deny", "one")
            assert ok("show", "one", "--json").json["process"] is None
            ok("approve", "one", "--yes", "--always")
            assert ok("show", "one", "--json").json["process"]["health"] == "running"


def test_whoever_looks_at_what_is_switched_off_by_now_is_told_so(two):
    with resident():
        client = Client()
        ok("disable", "one")
        error = client.asks("look", path=two[0])["error"]
        assert (error["code"], error["message"]) == ("unavailable", "plugin 'one' is not running")
        assert client.asks("call", name="two")["result"]["is_error"] is False


FAULTY = """
from anyplug.frontends.cli.main import main
from anyplug.frontends.daemon.request_handlers import Answers
from anyplug.frontends.daemon.hosts import Projects

async def fails(self, request):
    max([])

async def gives_what_is_no_text(self, request):
    return {"type": chr(0xD800)}

Answers._reload, Answers._find = fails, gives_what_is_no_text
enter = Projects.enter
def enters(self, key, *others, **more):
    return enter(self, key, *others, **more) if key.discover else fails(self, key)

Projects.enter = enters
main()
"""


def test_a_fault_of_ours_is_an_answer_and_ends_nothing_else(two):
    process = subprocess.Popen([sys.executable, "-c", FAULTY, "serve"], stderr=subprocess.PIPE)
    try:
        assert processes.until(daemons.is_up)
        client = Client()
        for do, fault in (("reload", "ValueError('max() "), ("find", "UnicodeEncodeError(")):
            error = client.asks(do, name="one")["error"]
            assert error["code"] == "unavailable"
            assert error["message"].startswith(f"anyplug itself failed: {fault}")
            assert error["hint"].endswith(daemons.address().log)
        assert client.asks("call", name="one")["result"]["is_error"] is False
        assert "error: anyplug itself failed: ValueError('max() " in fails(1, "reload").err
        for kind in ("cli", "mcp"):
            refused = Client(kind=kind, discover=False)
            assert refused.welcome["error"]["message"].startswith("anyplug itself failed: ValueError('max() ")
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert said.count("Traceback") == 5  # here, where it would be in the log of one in the background


# Sharing


def test_all_who_attach_share_a_plugins_process(bench):
    with resident():
        assert len({ok("call", "bench.act").out for _ in range(3)}) == 1
        said = daemons.status()
        assert (said["running"], said["calls"], said["slowest"][0]["tool"]) == (1, 3, "bench.act")
        assert listed("bench")["health"] == "running"
        assert ok("show", "bench", "--json").json["process"]["pid"] > 0


def test_reload_starts_a_plugin_anew(bench):
    with resident():
        before = ok("call", "bench.act").out
        assert ok("reload", "bench").out == "1 plugin, 1 tool.\n"
        assert ok("call", "bench.act").out != before
        assert run("reload", "nobody").code == 4


def test_reload_says_why_a_plugin_did_not_come_up(project, zot):
    folder = zot("mine")
    with resident():
        assert ok("--ext", folder, "reload", "mine").out == "1 plugin, 1 tool.\n"
        plugin_folders.write(os.path.join(folder, "run.py"), "#!/bin/sh\necho no database >&2; exit 3\n", 0o755)
        _, who, why = ok("--ext", folder, "reload").out.splitlines()
        assert who == "Plugins that could not be loaded: mine"
        assert why.startswith(
            "mine: it is not running: extension 'mine' ended before it sent a hello: it exited with 3"
        )
        assert "no database" in why
        alone = run("--ext", folder, "reload", "mine")
        assert alone.code == 1
        assert alone.err.startswith("error: mine did not restart: it is not running: extension 'mine' ended")


@pytest.fixture
def moody(project):
    """Give an approved extension that does not come up while a file of its own is there, which is no code."""
    folder = extension(os.path.join(project, "plugins"), "moody", MOODY)
    ok("approve", "moody", "--yes", "--always")
    return folder


def test_reload_starts_again_what_was_up_and_nothing_else(moody, project):
    calm = extension(os.path.join(project, "plugins"), "calm")
    ok("approve", "calm", "--yes", "--always")
    ok("call", "calm")
    ok("call", "moody")
    with resident():
        ok("call", "calm")
        before = [len(heard(folder, "hello_ack")) for folder in (calm, moody)]
        ok("reload")
        assert processes.until(lambda: len(heard(calm, "hello_ack")) == before[0] + 1)
        assert (listed("calm")["health"], listed("moody")["health"]) == ("running", "idle")
        assert len(heard(moody, "hello_ack")) == before[1]
        ok("reload", "moody")
        assert listed("moody")["health"] == "running"


def test_reload_says_why_what_did_not_change_does_not_come_up(moody):
    with resident():
        ok("call", "moody")
        plugin_folders.write(os.path.join(moody, "mood"), "bad")
        said = fails(1, "reload", "moody").err
        assert said.startswith("error: moody did not restart: it is not running: extension 'moody' ended before")
        assert "not today" in said
        os.remove(os.path.join(moody, "mood"))
        assert ok("reload", "moody").out == "1 plugin, 1 tool.\n"
        assert listed("moody")["health"] == "running"


def test_the_list_says_what_is_down_there(moody):
    with resident():
        ok("call", "moody")
        plugin_folders.write(os.path.join(moody, "mood"), "bad")
        run("reload", "moody")
        said = ok("list").out
        assert "warning: moody: it is not running: " in said
        assert "not today" in said


def test_a_list_has_the_host_that_is_up_start_nothing(project):
    watching = ECHO.replace('emit("ready")', 'emit("subscribe", events=["turn_end"])\nemit("ready")')
    folder = extension(os.path.join(project, "plugins"), "watcher", watching)
    ok("approve", "watcher", "--yes", "--always")
    ok("tools")
    before = len(heard(folder, "hello_ack"))
    with resident():
        assert "watcher" in ok("list").out
        assert listed("watcher")["health"] == "idle"
        assert len(heard(folder, "hello_ack")) == before
        ok("call", "watcher")
        assert listed("watcher")["health"] == "running"


def test_a_list_does_without_a_host_that_does_not_say_how_plugins_are(project):
    extension(os.path.join(project, "plugins"), "mine")
    refusal = {"error": {"code": "bad_frame", "message": "nobody asks that", "hint": ""}}
    with ResidentHost(Path(home()), lambda request: {"id": request["id"], **refusal}):
        said = ok("list")
    assert "mine" in said.out
    assert said.err == "the daemon did not report the health of plugins: nobody asks that\n"


def test_what_is_approved_while_it_is_up_can_be_called(project):
    with resident():
        assert run("tools").out == "No tools can be called.\n"
        plugin_folders.workbench(os.path.join(project, "plugins"), "bench", PIDS)
        plugin_folders.cyclop(os.path.join(project, "plugins"))
        assert run("call", "hello").code == 4 or run("call", "hello").code == 3
        ok("approve", "hello", "--yes")
        ok("approve", "bench", "--yes", "--always")
        assert processes.until(lambda: run("call", "bench.act").code == 0)
        assert ok("call", "hello").out == "done\n"
        ok("revoke", "hello")
        assert run("call", "hello").code == 3


def test_a_folder_that_one_names_is_seen_by_no_other(project, zot):
    folder = zot("mine")
    with resident():
        first = Client(plugins=[folder])
        assert first.asks("call", name="mine", arguments={"a": 1})["result"]["content"][0]["text"] == '{"a": 1}'
        assert Client().asks("call", name="mine")["result"]["error"]["code"] == "not_found"
        second = Client(plugins=[folder])
        second.asks("call", name="mine")
        assert len(heard(folder, "hello_ack")) == 1
        first.leaves()
        assert second.asks("call", name="mine")["result"]["is_error"] is False
        second.leaves()
        assert processes.until(lambda: len(heard(folder, "shutdown")) == 1)


def test_whoever_names_a_folder_has_processes_apart_while_they_are_attached(two, zot):
    folder = zot("mine")
    with resident():
        ok("call", "one")
        apart = Client(plugins=[folder])
        assert apart.asks("call", name="one")["result"]["is_error"] is False
        assert [len(heard(two[0], kind)) for kind in ("hello_ack", "shutdown")] == [2, 0]
        assert len(heard(two[1])) == 0  # what nobody called does not run
        assert f", with {folder}\n" in ok("status").out
        apart.leaves()
        assert processes.until(lambda: len(heard(two[0], "shutdown")) == 1)
        ok("call", "one")
        assert len(heard(two[0], "hello_ack")) == 2


def test_calls_are_counted_over_all_projects_also_over_those_that_are_closed(tmp_path, monkeypatch, root):
    folder = plugin_folders.cyclop(root, "hello")
    with resident():
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            client = Client(plugins=[folder])
            assert client.asks("call", name="hello")["result"]["is_error"] is False
            client.leaves()
        assert processes.until(lambda: daemons.status()["projects"] == [])
        said = daemons.status()
        assert (said["calls"], said["errors"]) == (2, 0)
        assert [(one["tool"], one["calls"]) for one in said["slowest"]] == [("hello", 2)]


BROKER = """
hello("call_tool")
tool("broker")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call" and frame["args"]:
        asked = frame
        emit("call_tool", id="1", name="bundle.act", args={"text": "x"}, parent_id=frame["id"])
    elif frame["type"] in {"tool_call", "tool_result"}:
        say(asked if frame["type"] == "tool_result" else frame, "done")
"""


def test_what_a_process_has_to_say_behind_the_request_that_it_was_started_for_is_in_the_log(project, zot):
    plugins = os.path.join(project, "plugins")
    plugin_folders.stavrobot(plugins, "bundle", tool={"async": True})
    extension(plugins, "broker", BROKER)
    for name in ("bundle", "broker"):
        ok("approve", name, "--yes", "--always")
    ok("grant", "broker", "tools:call:bundle.act")  # else a person is asked, and nobody is there
    ok("serve", "--detach")
    starter = Client()
    assert starter.asks("call", name="broker")["result"]["is_error"] is False
    with contextlib.closing(sqlite3.connect(os.path.join(home(), "anyplug.db"))) as store, store:
        store.execute("CREATE TRIGGER full BEFORE UPDATE ON jobs BEGIN SELECT RAISE(ABORT, 'no room'); END")
    other = Client()
    assert other.asks("call", name="broker", arguments={"n": 1})["result"]["is_error"] is False
    assert processes.until(lambda: b"is not recorded" in processes.read(daemons.address().log))
    starter.says(do="find", id=2, name="broker")
    assert starter.hears()["id"] == 2  # and nothing before it
    for client in (starter, other):
        client.leaves()
    ok("stop")


ALONE = """
if os.path.exists("runs"):
    open("twice", "w").close()
open("runs", "w").close()
hello()
tool("alone")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, "here")
time.sleep(1)
os.unlink("runs")
"""


def test_a_plugin_that_is_just_ending_has_ended_before_it_is_started_again(project, zot):
    folder = zot("alone", ALONE)
    with resident():
        for _ in range(3):
            client = Client(plugins=[folder])
            assert client.asks("call", name="alone")["result"]["is_error"] is False
            client.leaves()
            assert processes.until(lambda: daemons.status()["projects"] == [])
        assert processes.until(lambda: not os.path.exists(f"{folder}/runs"))
    assert not os.path.exists(f"{folder}/twice")


def test_an_answer_counts_for_the_one_who_gave_it(project):
    plugin_folders.cyclop(os.path.join(project, "plugins"), "hello", **NETWORK)
    ok("approve", "hello", "--yes")
    with resident():
        first, second, nobody = Client(asks=True), Client(asks=True), Client()
        asked = first.asks("call", name="hello")
        assert (asked["question"]["plugin"], asked["question"]["permissions"]) == ("hello", ["network"])
        first.says(answer=asked["ask"], word="attachment")
        assert first.hears()["result"]["is_error"] is False
        assert first.asks("call", name="hello")["result"]["is_error"] is False
        asked = second.asks("call", name="hello")
        second.says(answer=asked["ask"], word="no")
        assert second.hears()["result"]["error"]["code"] == "denied"
        assert nobody.asks("call", name="hello")["result"]["error"]["code"] == "denied"
        assert run("call", "hello").code == 3
        assert ok("call", "hello", "--yes").out == "done\n"


def test_a_person_at_a_terminal_is_asked_through_it(project):
    plugin_folders.cyclop(os.path.join(project, "plugins"), "hello", **NETWORK)
    ok("approve", "hello", "--yes")
    with resident(), Terminal("call", "hello") as terminal:
        terminal.sees("Allow? [y]es")
        terminal.types("y")
        terminal.sees("done")
        assert terminal.end()
        assert terminal.code == 0


# Ending in the middle


def test_a_client_that_vanishes_ends_its_call(slow):
    with resident():
        client = Client()
        client.says(do="call", id=1, name="slow")
        assert processes.until(_sleeps)
        client.leaves()
        assert processes.until(lambda: last_record()["outcome"] == "cancelled")
        assert processes.until(lambda: not _sleeps())


def _sleeps() -> bool:
    return any("slow/run" in command for command in processes.carrying(os.environ["ANYPLUG_GUARD"]).values())


def test_ctrl_c_ends_a_call_that_runs_in_it(slow):
    with resident():
        begun = start("call", "slow")
        assert processes.until(_sleeps)
        begun.send_signal(signal.SIGINT)
        assert finish(begun).code == 130
        assert processes.until(lambda: last_record()["outcome"] == "cancelled")
        assert processes.until(lambda: not _sleeps())


def test_when_it_is_killed_everyone_hears_of_it_and_nothing_is_left(slow, bench):
    with resident() as process:
        ok("call", "bench.act")
        begun = [start("call", "slow", "--json") for _ in range(3)]
        assert processes.until(_sleeps)
        assert processes.until(lambda: daemons.status()["attached"] == 3)
        daemons.kill(process)
        for one in begun:
            done = finish(one)
            assert (done.code, done.json["error"]["code"]) == (1, "unavailable")
        assert processes.until(lambda: not _sleeps())
        assert processes.until(lambda: "runner.cjs" not in str(processes.carrying(os.environ["ANYPLUG_GUARD"])))
    with resident():
        assert ok("call", "bench.act").out
        assert ok("audit", "--verify").code == 0


def test_one_that_does_not_answer_holds_nobody_up(project):
    event = {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": project, "tool": "bash", "args": {}}
    ok("policy", "init")
    with resident() as process:
        process.send_signal(signal.SIGSTOP)
        try:
            for command in ("status", "stop"):
                assert f"kill -9 {process.pid}" in fails(1, command).err
            assert ok("eval", "--harness", "opencode", stdin=json.dumps(event)).json == {"decision": "allow"}
        finally:
            process.send_signal(signal.SIGCONT)


def test_clients_that_go_on_asking_while_it_ends_do_it_no_harm(bench):
    with resident() as process:
        asking = [Client() for _ in range(5)]
        has_ended = threading.Event()

        def asks(client):
            with contextlib.suppress(OSError):
                while not has_ended.is_set():
                    client.says(do="find", id=1, name="bench.act")

        threads = [threading.Thread(target=asks, args=(client,)) for client in asking]
        for thread in threads:
            thread.start()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0  # and there is no traceback in what it says
        has_ended.set()
        for thread in threads:
            thread.join()


def test_stopping_it_ends_calls_with_an_answer(slow):
    with resident() as process:
        begun = start("call", "slow", "--json")
        assert processes.until(_sleeps)
        process.send_signal(signal.SIGTERM)
        done = finish(begun)
        assert (done.code, done.json["error"]["code"]) == (1, "unavailable")
        assert process.wait(PATIENCE_S) == 0
    assert last_record()["outcome"] == "cancelled"


# Strangers


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"nonsense\n",
        b"[]\n",
        b"{}\n",
        b'{"attach": 2}\n',
        b'{"attach": 1, "kind": "x", "cwd": "/"}\n',
        b"\xff\n",
    ],
)
def test_whoever_does_not_introduce_themselves_is_sent_away(line):
    with resident():
        client = Client(line)
        assert client.welcome["error"]["code"] == "usage"
        assert client.hears() == {}
        assert daemons.status()["up"]


def test_a_folder_that_is_gone_is_nobodys_project(tmp_path):
    with resident():
        greeting = json.loads(hello("cli")) | {"cwd": str(tmp_path / "gone")}
        assert Client(json.dumps(greeting).encode() + b"\n").welcome["error"]["code"] == "unavailable"


def test_requests_that_nobody_understands_harm_only_themselves(bench):
    with resident():
        client = Client()
        for line in (
            b"nonsense",
            b"[]",
            b'{"id": 3, "do": "dance"}',
            b'{"id": 4, "do": "call"}',
            b'{"answer": 9, "word": "x"}',
        ):
            client.connection.sendall(line + b"\n")
            assert client.hears()["error"]["code"] == "usage"
        client.says(answer=99, word="once")
        assert client.asks("status")["error"]["code"] == "usage"
        assert client.asks("call", name="bench.act")["result"]["is_error"] is False


def test_many_requests_at_once_are_answered_as_they_end(project):
    waits = """({ release }) => new Promise((done) => {
        globalThis.waiting = [...(globalThis.waiting ?? []), done];
        if (release !== undefined) { waiting[release]("released"); done("done"); }
    })"""
    plugin_folders.workbench(os.path.join(project, "plugins"), "bench", waits)
    ok("approve", "bench", "--yes", "--always")
    with resident():
        client = Client()
        for number, given in ((1, {}), (2, {}), (3, {"release": 1})):
            client.says(do="call", id=number, name="bench.act", arguments=given)
        assert {client.hears()["id"], client.hears()["id"]} == {2, 3}
        client.says(do="call", id=4, name="bench.act", arguments={"release": 0})
        assert {client.hears()["id"], client.hears()["id"]} == {1, 4}


def test_a_client_cannot_have_any_number_of_requests_under_way(slow):
    with resident():
        client = Client()
        for number in range(MOST_AT_ONCE + 1):
            client.says(do="call", id=number, name="slow")
        refused = client.hears()
        assert (refused["id"], refused["error"]["code"]) == (MOST_AT_ONCE, "overloaded")


def test_answers_that_nobody_reads_do_not_pile_up(project):
    script = python("print(json.dumps({'result': 'x' * 900_000}))")
    plugin_folders.cyclop(os.path.join(project, "plugins"), "large", script)
    ok("approve", "large", "--yes")
    with resident():
        client = Client()
        client.says(do="call", id=0, name="large")
        assert processes.until(lambda: daemons.status()["calls"] == 1)
        for number in range(1, 4):
            client.says(do="call", id=number, name="large")
        other = Client()
        other.asks("call", name="large")
        assert daemons.status()["calls"] == 2
        assert {client.hears()["id"] for _ in range(4)} == {0, 1, 2, 3}


def test_a_plugins_own_process_may_not_attach(project, unconfined):
    script = f"""#!/bin/sh
cat >/dev/null
said=$({sys.executable} -m anyplug call hello 2>&1)
echo "{{\\"result\\": \\"$(echo $said | tr -d '\\"')\\"}}"
"""
    plugin_folders.cyclop(os.path.join(project, "plugins"), "hello")
    plugin_folders.cyclop(os.path.join(project, "plugins"), "sly", script, permissions=["shell:exec"])
    for name in ("hello", "sly"):
        ok("approve", name, "--yes", "--always")
    with resident():
        assert "may not attach to the daemon" in ok("call", "sly", env=_paths()).out
        assert ok("audit", "--kind", "call", "--json").json[-1]["tool"] == "sly"


@pytest.mark.claim("other-homes-hidden")
def test_a_process_in_a_sandbox_of_any_home_may_not_attach():
    knocks = (
        "import ctypes, socket, sys; from anyplug.frontends.daemon.locate import hello; "
        "assert sys.argv[2] == 'free' or ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0; "
        "knocking = socket.socket(socket.AF_UNIX); knocking.connect(sys.argv[1]); "
        "knocking.sendall(hello('control')); print(knocking.makefile().readline())"
    )
    with resident():
        for state, is_served in (("free", True), ("held", False)):
            words = [sys.executable, "-c", knocks, daemons.address().read()["socket"], state]
            said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
            assert ("a sandboxed process may not attach" in said) != is_served


def test_whoever_lets_another_connect_is_not_served():
    knocks = (
        "import socket, sys; knocking = socket.socket(socket.AF_UNIX); knocking.connect(sys.argv[1]); "
        "socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b'.'], [knocking.fileno()])"
    )
    ours, theirs = socket.socketpair()
    with resident(), ours, theirs:
        words = [sys.executable, "-c", knocks, daemons.address().read()["socket"], str(theirs.fileno())]
        subprocess.run(words, pass_fds=[theirs.fileno()], check=True, timeout=PATIENCE_S)
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        with socket.socket(fileno=descriptors[0]) as connection:
            connection.settimeout(PATIENCE_S)
            connection.sendall(hello("cli"))
            assert b"the process that connected has ended" in connection.recv(4096)


def _paths() -> dict[str, str]:
    source = os.path.dirname(os.path.dirname(anyplug.__file__))
    return os.environ | {"PYTHONPATH": source}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_may_not_attach_even_if_the_socket_is_open(tmp_path):
    with resident():
        path = (daemons.address().read() or {})["socket"]
        knocks = f"""use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => {path!r}) or die "closed: $!";
            print $s "{{}}\\n"; print <$s>;"""
        words = ["perl", "-e", knocks]  # the interpreter that runs the tests may lie where only root can go
        closed = subprocess.run(words, user=65534, capture_output=True, text=True, check=False)
        assert "closed: Permission denied" in closed.stderr
        folder = os.path.dirname(path)
        while folder != "/":
            os.chmod(folder, os.stat(folder).st_mode | 0o011)
            folder = os.path.dirname(folder)
        os.chmod(path, 0o666)
        open_to_all = subprocess.run(words, user=65534, capture_output=True, text=True, check=False)
        assert "belongs to a user other than" in open_to_all.stdout


def test_modules_in_the_current_folder_are_not_the_programs():
    for name in ("anyplug", "http", "mcp", "json"):
        plugin_folders.write(f"./{name}.py", "open('ran', 'w').close()\n")
    ok("serve", "--detach", "--linger", "1", "--http", "127.0.0.1:0")
    ok("stop")
    assert not os.path.exists("ran")
