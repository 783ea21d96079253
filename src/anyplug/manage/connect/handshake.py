"""Test the server: start it as another program would, and list its tools over MCP."""

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from typing import IO, Any

import msgspec

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"  # of a program that a desktop starts
KEPT = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME")
PATIENCE_S = 30.0  # a daemon and all plugins may have to start first; most clients wait as long
LEAVING_S = 5.0  # for the server to end once its input is closed
VERSION = "2025-06-18"  # of the protocol, which every server of today knows
CHUNK = 65536
SHOWN = 400  # characters of what a failed server said


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offers, or why it could not be asked."""

    tools: tuple[str, ...] = ()
    failure: str = ""


def try_out(command: list[str], folder: str) -> Seen:
    """Start a command with a clean environment and list its tools."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"PATH": PATH}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
        )
    except OSError as error:
        return Seen(failure=f"{command[0]} cannot be started: {error.strerror}")
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        tools = _tools(process.stdin, process.stdout)
    except (OSError, ValueError, LookupError, TypeError):
        tools = None
    finally:
        said = _end(process)
    if tools is None:
        why = said.strip()[-SHOWN:] or f"it gave no answer within {PATIENCE_S:.0f} s, or not one of an MCP server"
        return Seen(failure=why)
    return Seen(tools=tuple(tools))


def _tools(to: IO[bytes], of: IO[bytes]) -> list[str]:
    """Ask for the tools. Raises LookupError if the answers do not come, ValueError if they are not JSON."""
    about = {"name": "anyplug-connect", "version": "1"}
    hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
    lines = _lines(of, time.monotonic() + PATIENCE_S)
    _send(to, {"id": 1, "method": "initialize", "params": hello})
    _answer(lines, 1)
    _send(to, {"method": "notifications/initialized"})
    _send(to, {"id": 2, "method": "tools/list"})
    return [str(tool["name"]) for tool in _answer(lines, 2)["tools"]]


def _send(to: IO[bytes], message: dict[str, Any]) -> None:
    to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    to.flush()


def _answer(lines: Iterator[bytes], number: int) -> dict[str, Any]:
    for line in lines:
        message = json.loads(line)
        if message.get("id") == number:
            result: dict[str, Any] = message["result"]
            return result
    raise LookupError


def _lines(of: IO[bytes], until: float) -> Iterator[bytes]:
    left = b""
    while select.select([of], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(of.fileno(), CHUNK)
        if not chunk:
            return
        *whole, left = (left + chunk).split(b"\n")
        yield from whole


def _end(process: "subprocess.Popen[bytes]") -> str:
    """End the server as a client does, by closing its input; return what it said on stderr."""
    try:
        return process.communicate(timeout=LEAVING_S)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[1].decode(errors="replace")
