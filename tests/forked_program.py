"""Runs commands of the program in processes forked from one that has already imported it.

A command spends most of its time on imports, and the suite runs thousands. Each is still a process of its own, with
its own streams, folder and environment; tests of how the program starts start it themselves.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

CHUNK = 1 << 20
STREAMS = (0, 1, 2)


class Forks:
    """A process that forks one for each command; it ends with the process that started it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()

    def run(
        self, words: Sequence[str], stdin: bytes, cwd: str, env: dict[str, str], timeout_s: float
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end; return its exit code, as `subprocess` does, and what it printed."""
        (read_in, write_in), (read_out, write_out), (read_err, write_err) = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self._socket, [b"."], [theirs.fileno(), read_in, write_out, write_err])
        theirs.close()
        for fd in (read_in, write_out, write_err):
            os.close(fd)
        out, err = _in_a_thread(_read, read_out), _in_a_thread(_read, read_err)
        _in_a_thread(_write, write_in, stdin)
        with ours:
            ours.sendall(json.dumps([words, cwd, env]).encode())
            pid = int(ours.recv(CHUNK))
            ours.settimeout(timeout_s)
            try:
                code = os.waitstatus_to_exitcode(int(ours.recv(CHUNK)))
                return code, out.result(timeout_s), err.result(timeout_s)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout_s) from None


def _in_a_thread(function: Callable[..., bytes], *args: object) -> Future[bytes]:
    """Run it in a thread that nobody has to wait for."""
    done: Future[bytes] = Future()
    threading.Thread(target=lambda: done.set_result(function(*args)), daemon=True).start()
    return done


def _read(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def _write(fd: int, data: bytes) -> bytes:
    with contextlib.suppress(BrokenPipeError), open(fd, "wb", buffering=0) as file:
        file.write(data)
    return b""


_lock = threading.Lock()
_forks: list[Forks] = []


def forks() -> Forks:
    """Return the one of this process, started when it is first needed."""
    with _lock:
        if not _forks:
            _forks.append(Forks())
    return _forks[0]


def close() -> None:
    """End it if it was started."""
    while _forks:
        _forks.pop().close()


def _serve(requests: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for a command
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1, len(STREAMS) + 1)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _wait_for_command(socket.socket(fileno=fds[0]), fds[1:])
        for fd in fds:
            os.close(fd)


def _wait_for_command(client: socket.socket, streams: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words, cwd, env = json.loads(client.recv(CHUNK))
    pid = os.fork()
    if pid == 0:
        client.close()
        _run(words, streams, cwd, env)
    for fd in streams:
        os.close(fd)
    client.send(str(pid).encode())
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(OSError):  # the test no longer waits
        client.send(str(status).encode())
    os._exit(0)


def _run(words: list[str], streams: list[int], cwd: str, env: dict[str, str]) -> None:
    """Become a command, as if this process had just started."""
    for fd, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, fd)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["anyplug", *words]
    code: Any = 0
    try:
        runpy.run_module("anyplug", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    import anyplug.frontends.cli
    import anyplug.host.host
    from anyplug.runtime import mcp_sdk

    for module in pkgutil.walk_packages(anyplug.frontends.cli.__path__, "anyplug.frontends.cli."):
        importlib.import_module(module.name)
    mcp_sdk.load()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
