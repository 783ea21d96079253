"""The spawner: a small process that starts programs in mount namespaces of their own.

    python -I -S spawner.py SOCKET_FD

It leaves the machine's mount namespace once, at start (with a user namespace where it is not root), and says
on the socket `ready`, or why not. Then each request is one packet of JSON; four file descriptors come with a
start: stdin, stdout, stderr, and a pipe on which it answers how that program ended.

    {"start": ID, "argv": [...], "env": {...}, "cwd": "...", "tmp": "...", "visible": [...]}
    {"signal": ID, "number": 15}
    -> on the pipe: `exit CODE`, or `error ERRNO TEXT`

When the socket closes, the host is gone: everything started here is killed. Imports only the standard
library; runs as a script.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
LARGEST_REQUEST = 1 << 18
PASSED = 4  # file descriptors with each start

libc = ctypes.CDLL(None, use_errno=True)


def call(result: int, what: str) -> None:
    """Raise the OSError that a C function reported."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, flags: int) -> None:
    """Bind or change a mount."""
    call(
        libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None),
        f"mount {target}",
    )


def leave_the_namespace() -> None:
    """Get a mount namespace of our own: as root directly, else through a user namespace."""
    uid, gid = os.getuid(), os.getgid()
    if uid != 0 or libc.unshare(CLONE_NEWNS) < 0:
        call(libc.unshare(CLONE_NEWNS | CLONE_NEWUSER), "unshare")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    mount("none", "/", MS_REC | MS_PRIVATE)


def cover_tmp(folder: str, visible: list[str]) -> None:
    """Make `folder` this thread's /tmp, and bind back what must stay visible below it."""
    call(libc.unshare(CLONE_NEWNS), "unshare")
    below = [path for path in visible if path.startswith("/tmp/")]
    kept = [(os.open(path, os.O_PATH | os.O_CLOEXEC), path) for path in below if os.path.exists(path)]
    mount(folder, "/tmp", MS_BIND)
    for fd, path in kept:
        os.makedirs(path, exist_ok=True)
        mount(f"/proc/self/fd/{fd}", path, MS_BIND | MS_REC)
        os.close(fd)


def start(request: dict[str, Any], fds: list[int]) -> int:
    """Start one program in a thread of its own, which is where namespace and working folder belong."""
    outcome: list[int | OSError] = []

    def work() -> None:
        try:
            cover_tmp(request["tmp"], request["visible"])
            os.chdir(request["cwd"])
            actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
            outcome.append(
                os.posix_spawn(
                    request["argv"][0],
                    request["argv"],
                    request["env"],
                    file_actions=actions,
                    setsid=True,
                    setsigmask=[],
                    setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them; programs must not
                )
            )
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    return outcome[0]


class Spawner:
    """The programs that run, by process id, each with its request's id and its answering pipe."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, tuple[int, int]] = {}
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Answer until the host is gone."""
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            self.reap()
            if self._requests.fileno() in ready and not self.answer():
                return

    def answer(self) -> bool:
        """Take one request; False if there will be no more."""
        packet, fds, _, _ = socket.recv_fds(self._requests, LARGEST_REQUEST, PASSED)
        for fd in fds:  # else every program would inherit the answering pipes of all the others, and its own
            os.set_inheritable(fd, False)
        if not packet:
            return False
        request = json.loads(packet)
        if "signal" in request:
            self.signal(request["signal"], request["number"])
            return True
        *stdio, pipe = fds
        try:
            self._running[start(request, stdio)] = (request["start"], pipe)
        except OSError as error:
            say(pipe, f"error {error.errno or 0} {error.strerror}")
        finally:
            for fd in stdio:
                os.close(fd)
        return True

    def signal(self, wanted: int, number: int) -> None:
        """Send a signal to the group of a program that still runs."""
        for pid, (request, _) in self._running.items():
            if request == wanted:
                kill_group(pid, number)

    def reap(self) -> None:
        """Answer for all that has ended; kill what is left of a group before its number is free."""
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            kill_group(ended.si_pid, signal.SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            _, pipe = self._running.pop(ended.si_pid, (0, -1))
            if pipe >= 0:
                say(pipe, f"exit {os.waitstatus_to_exitcode(status)}")

    def kill_all(self) -> None:
        """Leave nothing behind."""
        for pid in self._running:
            kill_group(pid, signal.SIGKILL)


def kill_group(pid: int, number: int) -> None:
    """Send a signal to a group that may be gone."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def say(pipe: int, text: str) -> None:
    """Answer on a pipe and close it. Nobody may be listening any more."""
    try:
        os.write(pipe, text.encode())
    except OSError:
        pass
    os.close(pipe)


def main() -> None:
    """Leave the namespace, say so, serve."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    try:
        leave_the_namespace()
    except OSError as error:
        requests.send(str(error.strerror).encode())
        return
    requests.send(b"ready")
    spawner = Spawner(requests)
    try:
        spawner.serve()
    finally:
        spawner.kill_all()


if __name__ == "__main__":
    main()
