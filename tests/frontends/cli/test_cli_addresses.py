"""Servers at an address: the host connects to them for a plugin, and only to what that plugin was granted."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import command_line
import plugin_folders


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


def remote(port: int, transport: str = "http") -> None:
    server = {"url": f"http://127.0.0.1:{port}/mcp", "type": transport}
    plugin_folders.write("plugins/remote/mcp.json", json.dumps({"mcpServers": {"far": server}}))


@pytest.mark.claim("addresses-granted")
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("granted", ["", "network:unix", "network:localhost", "network:127.0.0.1:1", "network:*:1"])
def test_a_server_at_an_address_is_not_reached_without_the_grant(recorder, transport, granted):
    remote(recorder.server_port, transport)
    command_line.ok("approve", "remote", "--yes", *(["--grant", granted] if granted else ["--grant", "env:NOTHING"]))
    said = command_line.run("show", "remote")
    command_line.run("call", "mcp.far.act", "--yes")
    assert recorder.seen == []
    assert f"is not granted network:127.0.0.1:{recorder.server_port}" in said.out
    assert f"`anyplug grant remote network:127.0.0.1:{recorder.server_port}`" in said.out


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


@pytest.mark.parametrize("scope", ["127.0.0.1:{}", "127.0.0.1", "*:{}", "{}"])
def test_a_grant_that_names_the_address_is_enough(recorder, scope):
    remote(recorder.server_port)
    command_line.ok("approve", "remote", "--yes", "--grant", f"network:{scope.format(recorder.server_port)}")
    command_line.run("show", "remote")
    assert recorder.seen


@pytest.mark.claim("addresses-granted")
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_cannot_send_us_where_the_plugin_may_not_go(recorder, other, transport):
    remote(recorder.server_port, transport)
    command_line.ok("approve", "remote", "--yes", "--grant", f"network:127.0.0.1:{recorder.server_port}")
    command_line.run("show", "remote")
    assert (bool(recorder.seen), other.seen) == (True, [])
