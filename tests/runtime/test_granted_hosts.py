"""A plugin that was granted hosts reaches those by the proxy, and nothing else: each format, root or not."""

import contextlib
import functools
import json
import os
import shutil
import socket
import threading

import anyio
import pytest

import command_line
import network_script
import plugin_folders
import processes
import sandbox_script
import zot_folders
from anyplug.call.consent import Attachment
from anyplug.runtime.processes import run_once
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program
from anyplug.runtime.sandbox import escape_test
from anyplug.runtime.sandbox.enforcement import BROKER, LAYERS
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from sandbox_script import USERS

FORMATS = ("cyclop", "stavrobot", "zot", "workbench", "mcp", "acme")
pytestmark = pytest.mark.xdist_group("granted-hosts")  # several tests look at what came of one try
GRANTED = ("network:127.0.0.1:{site}", "network:127.0.0.1:{secure}", "network:localhost", "shell:exec:curl")
YES = Attachment(yes=True)
PROXY_THREAD = "anyplug-proxy"


@functools.cache
def reached(user, format, granted=GRANTED):
    """What came of all ways of one plugin, in a host of its own in a process of that user's."""
    for program in ("openssl", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")
    if format == "mcp" and user != "root":
        pytest.importorskip("mcp")
    case = json.dumps([{"format": format, "granted": granted}])
    (found,) = json.loads(sandbox_script.run(user, "", case, script=network_script.__file__))
    assert isinstance(found["tried"], dict), found
    return found


@pytest.mark.combinations
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("user", USERS)
def test_what_was_granted_is_reached(user, format):
    found = reached(user, format)["tried"]
    assert found["plain"] == found["TLS"] == found["curl"] == "hello 127.0.0.1"
    assert found["plain, by name"] == found["TLS, by name"] == "hello localhost"
    assert found["the user's proxies"] == "[]"
    if format == "workbench":
        assert found["a tunnel, in Node"] == "200 Connection established"


@pytest.mark.combinations
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("user", USERS)
def test_what_was_not_is_refused_with_the_cure_and_noted_in_the_log(user, format):
    found = reached(user, format)
    command = f"anyplug grant escapee network:127.0.0.1:{found['facts']['other_port']}"
    assert found["tried"]["another port"].startswith("403 ")
    assert command in found["tried"]["another port"]
    assert command in found["log"]
    assert "403 network:example.org:443 is not granted" in found["tried"]["another host"]
    assert "anyplug grant escapee network:example.org:443" in found["log"]
    if format == "workbench":
        assert found["tried"]["another tunnel, in Node"] == "403 network:example.org:443 is not granted"


@pytest.mark.combinations
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("user", USERS)
def test_nothing_leads_past_the_proxy(user, format):
    found = reached(user, format)["tried"]
    past = ["past the proxy", "past the proxy, elsewhere", "over IPv6", "UDP", "a name", "a socket with a path",
            "an abstract socket", "listen"]  # fmt: skip
    if format == "workbench":
        past.append("past the proxy, in Node")
    assert [name for name in past if "rror" not in found[name]] == []


@pytest.mark.combinations
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("user", USERS)
def test_the_record_says_what_it_was_held_to(user, format):
    found = reached(user, format)
    assert set(found["layers"]) == {*LAYERS, BROKER, "proxy", "snapshot"}
    assert found["hosts"] == [grant.format(**found["facts"]) for grant in GRANTED if grant.startswith("network:")]


def test_a_name_that_leads_to_this_machine_is_not_followed_unless_it_is_localhost():
    try:
        leads_to = socket.gethostbyname(os.uname().nodename)
    except OSError:
        pytest.skip("this machine does not know its own name")
    if not leads_to.startswith("127."):
        pytest.skip("this machine's own name does not lead to its loopback")
    found = reached("root" if os.getuid() == 0 else "ordinary", "cyclop", ("network:{name}",))
    assert found["tried"]["another name of this machine"].startswith("403 ")
    assert "a name may only resolve to a public address" in found["tried"]["another name of this machine"]
    assert f"anyplug grant escapee network:127.0.0.1:{found['facts']['site']}" in found["log"]


@pytest.mark.anyio
async def test_the_empty_network_alone_holds_where_landlock_knows_no_ports():
    guard = Guard()
    script = (
        "import socket\n"
        "for where in (('127.0.0.1', %d), ('192.0.2.1', 80)):\n"
        "    try: socket.create_connection(where, 20); print('connected')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    with network_script.site() as port, escape_test.scene() as scene:
        without = tuple(layer for layer in LAYERS if layer not in {"landlock", "seccomp"})
        spawn = ConfinedSpawn(guard, scene.profile(f"network:127.0.0.1:{port}"), layers=without, tolerant=True)
        try:
            program = Program(
                argv=(escape_test.python(), "-I", "-S", "-c", script % port),
                cwd=scene.place.data,
                env={},
                timeout_s=60,
                max_stdout=1 << 16,
                max_stderr=1 << 16,
            )
            finished = await run_once.run(program, spawn)
        finally:
            spawn.close()
            guard.close()
    assert finished.stdout.decode() == "Connection refused\nNetwork is unreachable\n"


@pytest.mark.anyio
async def test_beside_sockets_of_this_machine_those_with_a_path_are_reached_and_no_others():
    guard = Guard()
    with escape_test.scene() as scene:
        spawn = ConfinedSpawn(guard, scene.profile("network:localhost", "network:unix"))
        try:
            attempts = await escape_test.attempt_all(spawn, scene.facts, scene.place.data)
        finally:
            spawn.close()
            guard.close()
    blocked = {attempt.name: attempt.blocked for attempt in attempts}
    assert not blocked["a socket with a path"]
    assert blocked["an abstract socket"]
    assert blocked["TCP"]
    assert blocked["UDP"]


# Node's own ways

FETCHES = """
const http = require('node:http');
const asked = (url) => new Promise((resolve, reject) => {
  http.get(url, (answer) => {
    let text = '';
    answer.on('data', (data) => { text += data; });
    answer.on('end', () => resolve(`${answer.statusCode} ${text}`));
  }).on('error', reject);
});
module.exports.register = (api) => {
  api.registerTool({ name: 'bench.fetch', inputSchema: {}, run: async ({ url }) => {
    const answer = await fetch(url);
    return `${answer.status} ${await answer.text()}`;
  } });
  api.registerTool({ name: 'bench.get', inputSchema: {}, run: ({ url }) => asked(url) });
};
"""


@pytest.mark.anyio
@pytest.mark.parametrize("tool", ["bench.fetch", "bench.get"])
async def test_a_node_that_knows_proxies_needs_no_change_of_the_plugin(tool, pypi_node, home, host, root):
    (home / "bin").mkdir()
    (home / "bin" / "node").symlink_to(pypi_node)
    plugin_folders.workbench(root, "bench", index=FETCHES)
    with network_script.site() as port:
        async with host(roots=(root,)) as h:
            await h.approve(h.snapshot.plugin("bench").plugin, granted=(f"network:127.0.0.1:{port}",), always=True)
            granted = await h.call(tool, {"url": f"http://127.0.0.1:{port}/"}, attachment=YES)
            assert granted.text == "200 hello 127.0.0.1"
            other = await h.call(tool, {"url": "http://other.example/"}, attachment=YES)
            assert "200" not in other.text  # `fetch` says nothing of what a proxy answered
            assert tool == "bench.fetch" or "anyplug grant bench network:other.example:80" in other.text
            assert processes.until(
                lambda: "anyplug grant bench network:other.example:80" in read(home / "logs/bench.log")
            )


def read(path):
    return processes.read(str(path)).decode()


# While a host is up

FETCH = plugin_folders.python(
    "import urllib.request, urllib.error\n"
    "try:\n    said = urllib.request.urlopen(given['input']['url'], timeout=20).read().decode()\n"
    "except urllib.error.HTTPError as error:\n    said = str(error.code)\n"
    "except OSError as error:\n    said = str(error)\n"
    "print(json.dumps({'result': said}))"
)
URL = [
    {
        "name": "fetch",
        "description": "Fetches.",
        "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}},
    }
]
FETCH_STAYING = """
import urllib.request, urllib.error
hello()
tool("fetch")
emit("ready")
kept = []
for frame in heard():
    if frame["type"] == "tool_call":
        try:
            answer = urllib.request.urlopen(frame["args"]["url"], timeout=20)
            if frame["args"].get("keep"):
                kept.append(answer)
                say(frame, "kept")
            else:
                say(frame, answer.read().decode())
        except urllib.error.HTTPError as error:
            say(frame, str(error.code))
        except OSError as error:
            say(frame, str(error))
"""


def test_grants_take_effect_with_the_next_call_and_the_wider_one_counts(home):
    plugin_folders.cyclop(str(home / "plugins"), "fetch", FETCH, permissions=["network:example.org:443"], tools=URL)
    command_line.ok("approve", "fetch", "--yes")

    def fetched(port):
        return command_line.ok("call", "fetch", f"url=http://127.0.0.1:{port}/", "--yes").out.strip()

    with network_script.site() as port:
        assert fetched(port) == "403"
        command_line.ok("grant", "fetch", f"network:127.0.0.1:{port}")
        assert fetched(port) == "hello 127.0.0.1"
        assert command_line.last_record()["held_by"]["hosts"] == [
            "network:example.org:443",
            f"network:127.0.0.1:{port}",
        ]
        command_line.ok("grant", "fetch", "network")
        assert fetched(port) == "hello 127.0.0.1"
        assert "hosts" not in command_line.last_record()["held_by"]
        command_line.ok("ungrant", "fetch", "network", "network:example.org:443", f"network:127.0.0.1:{port}")
        assert "not permitted" in fetched(port)


@pytest.mark.parametrize("namespaces", ["true", "false"])
def test_allowed_unconfined_it_is_held_to_hosts_where_it_can_be(namespaces, home, settings):
    settings(f"namespaces = {namespaces}\n")
    plugin_folders.cyclop(str(home / "plugins"), "fetch", FETCH, permissions=["network:example.org:443"], tools=URL)
    command_line.ok("approve", "fetch", "--yes", "--allow-unconfined")
    with network_script.site() as port:
        said = command_line.ok("call", "fetch", f"url=http://127.0.0.1:{port}/", "--yes").out.strip()
    assert said == ("403" if namespaces == "true" else "hello 127.0.0.1")
    assert ("hosts" in command_line.last_record()["held_by"]) is (namespaces == "true")


@pytest.mark.anyio
async def test_each_plugin_has_its_own_proxy_and_they_end_with_the_host(host, root):
    with network_script.site() as one, network_script.site() as other:
        for name, format in (("fetch", "cyclop"), ("stay", "zot")):
            if format == "cyclop":
                plugin_folders.cyclop(root, name, FETCH, tools=URL)
            else:
                zot_folders.extension(root, name, FETCH_STAYING.replace('"fetch"', '"stay_fetch"'))
        async with host(roots=(root,)) as h:
            for name, port in (("fetch", one), ("stay", other)):
                granted = (f"network:127.0.0.1:{port}",)
                await h.approve(h.snapshot.plugin(name).plugin, granted=granted, always=True)
            for tool, port in (("fetch", one), ("stay_fetch", other)):
                for wanted in (one, other):
                    result = await h.call(tool, {"url": f"http://127.0.0.1:{wanted}/"}, attachment=YES)
                    assert result.text == ("hello 127.0.0.1" if wanted == port else "403")
            assert len(proxies()) == 2
    assert processes.until(lambda: proxies() == [])


def proxies():
    return [thread.name for thread in threading.enumerate() if thread.name == PROXY_THREAD]


@pytest.mark.anyio
async def test_what_an_extension_has_open_ends_with_it(host, root):
    zot_folders.extension(root, "stay", FETCH_STAYING)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(processes.PATIENCE_S)
        port = listener.getsockname()[1]
        served = []

        def serve():
            peer, _ = listener.accept()
            peer.settimeout(processes.PATIENCE_S)
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")
            served.append(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        async with host(roots=(root,)) as h:
            await h.approve(h.snapshot.plugin("stay").plugin, granted=(f"network:127.0.0.1:{port}",), always=True)
            arguments = {"url": f"http://127.0.0.1:{port}/", "keep": True}
            assert (await h.call("fetch", arguments, attachment=YES)).text == "kept"
        thread.join()
        with served[0] as peer, contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    assert processes.until(lambda: proxies() == [])


FLOOD = plugin_folders.python(
    "import socket, urllib.parse\n"
    "where = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])\n"
    "held = []\n"
    "while len(held) < given['input']['times']:\n"
    "    away = socket.socket()\n"
    "    away.setblocking(False)\n"
    "    away.connect_ex((where.hostname, where.port))\n"
    "    try: away.send(os.urandom(1000))\n"
    "    except OSError: pass\n"
    "    held.append(away)\n"
    "print(json.dumps({'result': 'flooded'}))"
)
TIMES = [
    {
        "name": "flood",
        "description": "Floods.",
        "input_schema": {"type": "object", "properties": {"times": {"type": "integer"}}},
    }
]


@pytest.mark.anyio
async def test_a_plugin_that_floods_its_proxy_with_garbage_harms_nobody(host, root):
    plugin_folders.cyclop(root, "flood", FLOOD, tools=TIMES)
    plugin_folders.cyclop(root, "fetch", FETCH, tools=URL)
    with network_script.site() as port:
        async with host(roots=(root,)) as h:
            for name in ("flood", "fetch"):
                plugin = h.snapshot.plugin(name).plugin
                await h.approve(plugin, granted=(f"network:127.0.0.1:{port}",), always=True)
            results = []

            async def call(tool, arguments):
                results.append((await h.call(tool, arguments, attachment=YES)).text)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "flood", {"times": 2000})
                for _ in range(5):
                    tasks.start_soon(call, "fetch", {"url": f"http://127.0.0.1:{port}/"})
            assert sorted(results) == ["flooded", *["hello 127.0.0.1"] * 5]
            assert (await h.call("flood", {"times": 1}, attachment=YES)).text == "flooded"


# Learning


def test_learning_sees_the_hosts_and_not_the_proxy(home):
    plugin_folders.cyclop(
        str(home / "plugins"), "fetch", FETCH, permissions=["network:localhost", "network:a.org:1"], tools=URL
    )
    command_line.ok("approve", "fetch", "--yes")
    with network_script.site() as port:
        used = command_line.ok("learn", "fetch", f"url=http://localhost:{port}/", "--yes", "--json").json
        refused = command_line.ok("learn", "fetch", f"url=http://127.0.0.1:{port}/", "--yes", "--json").json
    assert of_network(need["permission"] for need in used["needs"]) == [f"network:localhost:{port}"]
    assert (of_network(used["add"]), used["keep"], used["remove"]) == ([], ["network:localhost"], ["network:a.org:1"])
    wanted = f"network:127.0.0.1:{port}"
    assert [need["refused"] for need in refused["needs"] if need["permission"] == wanted] == [True]
    assert of_network(refused["optional"]) == [wanted]  # the tool answered all the same


def of_network(permissions):
    """Leave out what this checkout's own folder needs."""
    return [permission for permission in permissions if permission.startswith("network")]
