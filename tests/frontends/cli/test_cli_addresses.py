"""Servers at an address: the host connects to them for a plugin, and only to what that plugin was granted."""

import itertools
import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import command_line
import plugin_folders

AT_ONCE = 4


class Recorder(BaseHTTPRequestHandler):
    """Takes note of each request, and sends it away or elsewhere."""

    def do_POST(self) -> None:
        self.server.seen.append(self.path)
        self.send_response(307 if self.server.elsewhere else 500)
        self.send_header("Location", self.server.elsewhere)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - its name for it

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.seen, server.elsewhere = [], ""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def other(recorder: ThreadingHTTPServer) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.seen, server.elsewhere = [], ""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    recorder.elsewhere = f"http://127.0.0.1:{server.server_port}/mcp"
    yield server
    server.shutdown()
    server.server_close()


def remote(port: int, transport: str = "http", name: str = "remote") -> None:
    server = {"url": f"http://127.0.0.1:{port}/{name}", "type": transport}
    plugin_folders.write(f"plugins/{name}/mcp.json", json.dumps({"mcpServers": {name: server}}))


def at_once(commands: Iterable[tuple[str, ...]]) -> list[command_line.Done]:
    """Run some commands at the same time: each spends nearly all of its time on pauses before it tries again."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda words: command_line.run(*words), commands))


@pytest.mark.claim("addresses-granted")
def test_a_server_at_an_address_is_not_reached_without_the_grant(recorder):
    grants = ("env:NOTHING", "network:unix", "network:localhost", "network:127.0.0.1:1", "network:*:1")
    rows = dict(enumerate(itertools.product(("http", "sse"), grants)))
    for number, (transport, granted) in rows.items():
        remote(recorder.server_port, transport, f"remote{number}")
        command_line.ok("approve", f"remote{number}", "--yes", "--grant", granted)
    shown = at_once(("show", f"remote{number}") for number in rows)
    at_once(("call", f"mcp.remote{number}.act", "--yes") for number in rows)
    assert recorder.seen == []
    for (number, row), said in zip(rows.items(), shown, strict=True):
        assert f"is not granted network:127.0.0.1:{recorder.server_port}" in said.out, row
        assert f"`anyplug grant remote{number} network:127.0.0.1:{recorder.server_port}`" in said.out, row


@pytest.mark.claim("addresses-granted")
def test_an_ungranted_network_ends_the_connections_to_an_address(recorder):
    remote(recorder.server_port)
    command_line.ok("approve", "remote", "--yes")
    command_line.run("show", "remote")
    assert recorder.seen
    command_line.ok("ungrant", "remote", "network")
    recorder.seen.clear()
    command_line.run("show", "remote")
    assert recorder.seen == []


def test_a_grant_that_names_the_address_is_enough(recorder):
    port = recorder.server_port
    rows = dict(enumerate((f"127.0.0.1:{port}", "127.0.0.1", f"*:{port}", f"{port}")))
    for number, scope in rows.items():
        remote(port, name=f"remote{number}")
        command_line.ok("approve", f"remote{number}", "--yes", "--grant", f"network:{scope}")
    at_once(("show", f"remote{number}") for number in rows)
    assert {f"/remote{number}" for number in rows} <= {*recorder.seen}


@pytest.mark.claim("addresses-granted")
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_cannot_send_us_where_the_plugin_may_not_go(recorder, other, transport):
    remote(recorder.server_port, transport)
    command_line.ok("approve", "remote", "--yes", "--grant", f"network:127.0.0.1:{recorder.server_port}")
    command_line.run("show", "remote")
    assert (bool(recorder.seen), other.seen) == (True, [])
