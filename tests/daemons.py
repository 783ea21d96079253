"""Keeps a resident host up for a test: a real one, in a process of its own."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import command_line
import processes
from anyplug.frontends.daemon.locate import Address, hello
from forked_program import Process

clients: "list[Client]" = []  # whoever is still there when the test ends is sent home


@contextlib.contextmanager
def resident(*options: str, before: tuple[str, ...] = (), **others: Any) -> Iterator[Process]:
    """Keep one up for the test's home; afterwards it is gone, whatever the test did to it.

    `before` are options of the program, which stand before the command.
    """
    process = command_line.start(*before, "serve", *options, **others)
    try:
        assert processes.until(lambda: is_up() or process.poll() is not None)
        assert process.poll() is None, command_line.finish(process)
        yield process
    finally:
        while clients:
            clients.pop().leaves()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        done = command_line.finish(process)
        assert "Traceback" not in done.err, done


def address() -> Address:
    return Address(command_line.home())


def is_up() -> bool:
    return address().is_answered()


def status() -> dict[str, Any]:
    said: dict[str, Any] = command_line.ok("status", "--json").json
    return said


class Client:
    """A client of the resident host that says what it likes."""

    def __init__(self, greeting: bytes | None = None, **options: Any) -> None:
        connection = address().connect()
        assert connection is not None
        self.connection = connection
        self.connection.settimeout(command_line.PATIENCE_S)
        self._lines = self.connection.makefile("rb")
        self.connection.sendall(greeting if greeting is not None else hello(**{"kind": "cli", **options}))
        clients.append(self)
        self.welcome = self.hears()

    def says(self, **word: Any) -> None:
        self.connection.sendall(json.dumps(word).encode() + b"\n")

    def hears(self) -> dict[str, Any]:
        """The next line; empty at the end."""
        line = self._lines.readline()
        word: dict[str, Any] = json.loads(line) if line else {}
        return word

    def asks(self, do: str, **more: Any) -> dict[str, Any]:
        self.says(do=do, id=1, **more)
        return self.hears()

    def leaves(self) -> None:
        self._lines.close()
        self.connection.close()


def gone(pid: int) -> bool:
    return not processes.is_running(pid)


def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
