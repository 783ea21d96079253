"""`anyplug mcp --resident`: relay MCP lines between a client's pipes and the daemon.

Imports next to nothing, so that a client has its first answer long before it could have imported an SDK. It reads only
what it needs of each line in case the daemon ends: which requests wait for an answer, and how the conversation began.
Waiting requests get an error at once; then another daemon is started, and the conversation continues there.
"""

import json
import os
import socket
import threading
import time
from typing import Any, BinaryIO

from anyplug.frontends.daemon.locate import LOOK_S, START_S, Address, NotServed, NotStarted, hello

LOST = -32000  # the first of JSON-RPC's codes for server errors
CLOSED = {"code": LOST, "message": "Connection closed"}  # what an ending daemon answers to waiting requests


class Relay:
    """One client's conversation, over as many daemons as needed."""

    def __init__(self, address: Address, greeting: bytes, into: BinaryIO, out: BinaryIO) -> None:
        """`greeting` attaches us; the client writes to `into` and reads from `out`."""
        self._address = address
        self._greeting = greeting
        self._into = into
        self._out = out
        self._writing = threading.Lock()  # both the daemon's answers and ours
        self._lock = threading.Condition()  # for everything below; notified when there is a connection
        self._waiting: dict[str, Any] = {}  # the ids of unanswered requests, by their JSON
        self._beginning: list[bytes] = []  # how the conversation began, in the older era: two lines
        self._swallowed: str | None = None  # the id of a repeated beginning, whose answer the client already has
        self._connection: socket.socket | None = None
        self._is_over = False

    def run(self) -> None:
        """Relay lines until the client leaves. Raises NotStarted, and NotServed if the first daemon refuses us."""
        connection = self._attach()
        threading.Thread(target=self._carry_out, daemon=True).start()
        while True:
            self._carry_in(connection)
            if self._is_over:
                return
            self._tell_those_who_wait("the daemon that ran the plugins ended; the outcome of this request is unknown")
            try:
                connection = self._attach()
            except (NotStarted, NotServed) as error:
                self._tell_those_who_wait(f"the daemon that ran the plugins ended, and none could be started: {error}")
                # Lines already read cannot be served by anyone else.
                raise NotStarted(str(error), getattr(error, "hint", "")) from error

    def _attach(self) -> socket.socket:
        """Attach to a daemon, starting one if needed, and repeat how the conversation began."""
        while True:
            connection, answer = self._greet()
            if "attached" not in answer:
                connection.close()
                failure = answer.get("error", {})
                said = f"{failure.get('message', 'the daemon ended')} ({failure.get('hint', '')})"
                raise NotServed(failure.get("code", "unavailable"), said)
            with self._lock:
                try:
                    connection.sendall(b"".join(self._beginning))
                except OSError:  # it has ended again, so find another one
                    connection.close()
                    continue
                self._swallowed = _word(self._beginning[0]).get("id") if self._beginning else None
                self._connection = connection
                self._lock.notify_all()
                if self._is_over:  # meanwhile nobody reads any more
                    _shut(connection)
            return connection

    def _greet(self) -> tuple[socket.socket, dict[str, Any]]:
        """Find a daemon that answers: one that is ending may still accept us, but does not answer."""
        until = time.monotonic() + START_S
        while True:
            connection = self._address.connect() or self._address.start()
            connection.settimeout(START_S)
            why = "it ended"
            try:
                connection.sendall(self._greeting)
                if line := _first_line(connection):
                    connection.settimeout(None)
                    return connection, _word(line)
            except OSError as error:
                why = str(error)
            connection.close()
            if time.monotonic() > until:
                raise NotStarted(f"the daemon does not answer: {why}")
            time.sleep(LOOK_S)

    def _carry_out(self) -> None:
        """Relay what the client writes to the daemon, until the client leaves."""
        try:
            while line := self._into.readline():
                self._send(line)
        finally:
            with self._lock:
                self._is_over = True
                if self._connection is not None:
                    _shut(self._connection)
                else:
                    os._exit(0)  # nobody reads any more, and nothing is running

    def _send(self, line: bytes) -> None:
        word = _word(line)
        with self._lock:
            self._lock.wait_for(lambda: self._connection is not None)  # between two daemons there is none
            connection = self._connection
            assert connection is not None
            method = word.get("method")
            if method == "initialize":
                self._beginning = [line]
            elif method == "notifications/initialized" and len(self._beginning) == 1:
                self._beginning.append(line)
            name = word.get("id")
            if method is not None and isinstance(name, str | int) and not isinstance(name, bool):
                self._waiting[json.dumps(name)] = name
        try:
            connection.sendall(line)
        except OSError:
            pass  # the reading thread notices, too, and answers waiting requests

    def _carry_in(self, connection: socket.socket) -> None:
        """Relay what the daemon writes to the client, until the daemon ends."""
        with connection, connection.makefile("rb") as lines:
            try:
                for line in lines:
                    if line.endswith(b"\n") and not self._is_to_be_swallowed(line):
                        self._write(line)
            except ConnectionError:
                pass
        with self._lock:
            self._connection = None

    def _is_to_be_swallowed(self, line: bytes) -> bool:
        """Record that a request was answered; return whether the client must not see this line."""
        word = _word(line)
        if "method" in word or "id" not in word:
            return False
        with self._lock:
            if word.get("error") == CLOSED and not self._is_over:
                return True  # the daemon is about to end; then they get a better error
            self._waiting.pop(json.dumps(word["id"]), None)
            if self._swallowed is not None and word["id"] == self._swallowed:
                self._swallowed = None
                return True
        return False

    def _tell_those_who_wait(self, why: str) -> None:
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            if self._beginning and _word(self._beginning[0]).get("id") in waiting:
                self._beginning = []  # it has not begun
        for name in waiting:
            error = {"code": LOST, "message": why, "data": {"code": "unavailable", "hint": "try again"}}
            self._write(json.dumps({"jsonrpc": "2.0", "id": name, "error": error}).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with self._writing:
            try:
                self._out.write(line)
                self._out.flush()
            except OSError:  # nobody reads any more
                with self._lock:
                    self._is_over = True
                    if self._connection is not None:
                        _shut(self._connection)


def relay(home: str, **options: Any) -> None:
    """Relay a client's conversation until it ends. Raises NotStarted, and NotServed before anything was read."""
    # Our own file objects: the interpreter's cannot be closed while a thread reads from them.
    into, out = open(0, "rb", closefd=False), open(1, "wb", closefd=False)  # noqa: SIM115 - as long as we run
    Relay(Address(home), hello("mcp", **options), into, out).run()


def _first_line(connection: socket.socket) -> bytes:
    """Read the answer to a greeting, byte by byte because what follows is for others."""
    line = b""
    while not line.endswith(b"\n") and (byte := connection.recv(1)):
        line += byte
    return line


def _word(line: bytes) -> dict[str, Any]:
    try:
        word = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return word if isinstance(word, dict) else {}


def _shut(connection: socket.socket) -> None:
    """Signal that the client writes no more; the daemon ends what is running."""
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass
