"""Runs the program, and scripts that use it, in processes forked from one that has already imported it.

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
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import IO, Any

CHUNK = 1 << 20
STREAMS = (0, 1, 2)
# What commands import, also on their way; not what only some need and takes long.
FOLDERS = ("host", "launch", "manage", "policy", "runtime", "frontends.cli", "frontends.daemon", "frontends.mcp")
MODELS = ("agent", "frontends.chat")  # with the library of agents, which takes longer than all others
LATE = ("anyio._backends._asyncio", "encodings.ascii", "jsonschema_rs", "sqlite3")


class Process:
    """A command that was started; it can do what tests do with a `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], pid: int, ended: socket.socket, *streams: int) -> None:
        """`ended` tells the status at the end. `streams` are our ends of its pipes, or -1."""
        self.args, self.pid = words, pid
        self.returncode: int | None = None
        self._ended = ended
        self._reading = threading.Lock()
        stdin, stdout, stderr = streams
        self.stdin: IO[bytes] | None = open(stdin, "wb") if stdin >= 0 else None  # noqa: SIM115 - as Popen has them
        self.stdout: IO[bytes] | None = open(stdout, "rb") if stdout >= 0 else None  # noqa: SIM115
        self.stderr: IO[bytes] | None = open(stderr, "rb") if stderr >= 0 else None  # noqa: SIM115

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        with self._reading:
            if self.returncode is None:
                ready = select.poll()
                ready.register(self._ended, select.POLLIN)
                if not ready.poll(None if timeout is None else timeout * 1000):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                self.returncode = os.waitstatus_to_exitcode(int(self._ended.recv(CHUNK)))
                self._ended.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Send all of its input, and return all that it prints; raises TimeoutExpired."""
        out, err = (_in_a_thread(_read, stream) for stream in (self.stdout, self.stderr))
        if self.stdin is not None:
            _in_a_thread(_write, self.stdin, input or b"")
        try:
            self.wait(timeout)
            return out.result(timeout), err.result(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0) from None

    def close(self) -> None:
        """Close our ends of its pipes."""
        for stream in filter(None, (self.stdin, self.stdout, self.stderr)):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Forks:
    """A process that forks one for each command; it ends with the process that started it."""

    def __init__(self, interpreter: str = sys.executable, folders: Sequence[str] = FOLDERS, **others: Any) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [interpreter, os.path.abspath(__file__), str(theirs.fileno()), *folders],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                **others,
            )

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()

    def start(
        self,
        words: Sequence[str],
        streams: Sequence[int] = (subprocess.PIPE,) * 3,
        *,
        cwd: str | os.PathLike[str] = ".",
        env: Mapping[str, str] | None = None,
        terminal: str = "",
        script: str = "",
    ) -> Process:
        """Start a command, or a script if one is named: a file, or code after `-c`.

        `streams` are descriptors, PIPE or DEVNULL. The process leads a session if it has a terminal.
        """
        ours, theirs = [-1, -1, -1], [-1, -1, -1]
        ended, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            for number, stream in enumerate(streams):
                if stream == subprocess.PIPE:
                    pair = os.pipe()
                    theirs[number], ours[number] = pair if number == 0 else pair[::-1]
                else:
                    theirs[number] = os.open(os.devnull, os.O_RDWR) if stream == subprocess.DEVNULL else os.dup(stream)
            socket.send_fds(self._socket, [b"."], [sender.fileno(), *theirs])
        finally:
            sender.close()
            for fd in theirs:
                os.close(fd)
        variables = dict(os.environ if env is None else env)
        given = json.dumps([list(words), os.path.abspath(cwd), variables, terminal, script])
        ended.sendall(given.encode())
        return Process(words, int(ended.recv(CHUNK)), ended, *ours)

    def run(
        self,
        words: Sequence[str],
        stdin: bytes,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str],
        timeout_s: float,
        script: str = "",
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end; return its exit code, as `subprocess` does, and what it printed."""
        process = self.start(words, cwd=cwd, env=env, script=script)
        try:
            out, err = process.communicate(stdin, timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode is not None
        return process.returncode, out, err


def _in_a_thread(function: Callable[..., bytes], *args: object) -> Future[bytes]:
    """Run it in a thread that nobody has to wait for."""
    done: Future[bytes] = Future()

    def run() -> None:
        try:
            done.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - for whoever waits
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def _read(stream: IO[bytes] | None) -> bytes:
    if stream is None or stream.closed:
        return b""
    with stream:
        return stream.read()


def _write(stream: IO[bytes], data: bytes) -> bytes:
    if not stream.closed:
        with contextlib.suppress(BrokenPipeError), stream:
            stream.write(data)
    return b""


_lock = threading.Lock()
_forks: dict[str, Forks] = {}


def forks(name: str = "", **options: Any) -> Forks:
    """Return the one of this process and name, started with these options when it is first needed."""
    with _lock:
        if name not in _forks:
            _forks[name] = Forks(**options)
    return _forks[name]


def close() -> None:
    """End those that were started."""
    while _forks:
        _forks.popitem()[1].close()


def _serve(requests: socket.socket) -> None:
    running: dict[int, socket.socket] = {}
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ready = select.poll()
    ready.register(requests, select.POLLIN)
    ready.register(woken, select.POLLIN)
    while True:
        names = {fd for fd, _ in ready.poll()}
        if woken in names:
            os.read(woken, CHUNK)
            _tell_who_ended(running)
        if requests.fileno() in names:
            message, fds, _, _ = socket.recv_fds(requests, 1, len(STREAMS) + 1)
            if not message:
                return
            client, streams = socket.socket(fileno=fds[0]), fds[1:]
            given = json.loads(client.recv(CHUNK))
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (requests, client, *running.values()):
                    each.close()
                os.close(woken)
                os.close(wake)
                _run(streams, *given)
            for fd in streams:
                os.close(fd)
            running[pid] = client
            client.send(str(pid).encode())


def _tell_who_ended(running: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with contextlib.suppress(OSError), running.pop(pid) as client:  # the test no longer waits
                client.send(str(status).encode())


def _run(streams: list[int], words: list[str], cwd: str, env: dict[str, str], terminal: str, script: str) -> None:
    """Become a command, as if this process had just started."""
    if terminal:
        os.setsid()
        os.close(streams[0])
        streams[0] = os.open(terminal, os.O_RDWR)
    for fd, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, fd)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [script or "anyplug", *words]
    code: Any = 0
    try:
        if script:
            sys.path += [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
        if script == "-c":
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(sys.argv.pop(1), "<string>", "exec"), vars(sys.modules["__main__"]))
        elif script:
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module("anyplug", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
            sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


def _import_all(folders: Sequence[str]) -> None:
    for folder in folders:
        package = importlib.import_module(f"anyplug.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    importlib.import_module("anyplug.runtime.mcp_sdk").load()


if __name__ == "__main__":
    _import_all(sys.argv[2:])
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
