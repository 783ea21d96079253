"""Servers at an address: the host connects to them for a plugin, and only to what that plugin was granted."""

import json
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import command_line
import plugin_folders

AT_ONCE = 3


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


def remote(port: int, transport: str = "http", folder: str = ".") -> None:
    server = {"url": f"http://127.0.0.1:{port}/{folder}", "type": transport}
    plugin_folders.write(f"{folder}/plugins/remote/mcp.json", json.dumps({"mcpServers": {"far": server}}))


def at_once(
    recorder: ThreadingHTTPServer, rows: Iterable[tuple[str, str]], *commands: tuple[str, ...]
) -> list[list[command_line.Done]]:
    """Approve each row's plugin and run the commands, some rows at once: most of their time is pauses before a retry.

    A row is a transport and a grant; each has a folder and a home of its own, which is named after its number.
    """

    def run(row: tuple[int, tuple[str, str]]) -> list[command_line.Done]:
        folder, (transport, granted) = str(row[0]), row[1]
        remote(recorder.server_port, transport, folder)
        approve = ("approve", "remote", "--yes", "--grant", granted)
        env = {**os.environ, "ANYPLUG_HOME": os.path.abspath(folder)}
        return [command_line.run(*words, cwd=folder, env=env) for words in (approve, *commands)]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, enumerate(rows)))


@pytest.mark.claim("addresses-granted")
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_at_an_address_is_not_reached_without_the_grant(recorder, transport):
    grants = ("env:NOTHING", "network:unix", "network:localhost", "network:127.0.0.1:1", "network:*:1")
    rows = [(transport, granted) for granted in grants]
    done = at_once(recorder, rows, ("show", "remote"), ("call", "mcp.far.act", "--yes"))
    assert recorder.seen == []
    for row, (approved, shown, _) in zip(rows, done, strict=True):
        assert approved.code == 0, row
        assert f"was not granted network:127.0.0.1:{recorder.server_port}" in shown.out, row
        assert f"`anyplug grant remote network:127.0.0.1:{recorder.server_port}`" in shown.out, row


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
    scopes = (f"127.0.0.1:{port}", "127.0.0.1", f"*:{port}", str(port))
    done = at_once(recorder, [("http", f"network:{scope}") for scope in scopes], ("show", "remote"))
    assert [approved.code for approved, _ in done] == [0] * len(scopes)
    assert {f"/{number}" for number in range(len(scopes))} <= {*recorder.seen}


@pytest.mark.claim("addresses-granted")
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_cannot_send_us_where_the_plugin_may_not_go(recorder, other, transport):
    remote(recorder.server_port, transport)
    command_line.ok("approve", "remote", "--yes", "--grant", f"network:127.0.0.1:{recorder.server_port}")
    command_line.run("show", "remote")
    assert (bool(recorder.seen), other.seen) == (True, [])


@pytest.mark.parametrize(
    "address", ["http://a/\nb is approved", "http://[::", "http://a:port/", "http://\u2488.a\u00ad/"]
)
def test_an_address_that_is_none_stops_only_its_own_plugin(address):
    plugin_folders.write("plugins/far/mcp.json", json.dumps({"mcpServers": {"far": {"url": address}}}))
    plugin_folders.cyclop("plugins", "near")
    said = command_line.run("approve", "--all", "--yes", "--always").err
    said += command_line.ok("tools").err
    assert "Traceback" not in said
    assert "failed while" not in said
    assert not any(line.startswith("b is approved") for line in said.splitlines())
