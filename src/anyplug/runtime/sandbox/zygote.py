"""The zygote: a process that has in memory what a spawner needs, and forks each spawner.

    python -I -S -c '...; zygote.main()' SOCKET_FD

Each packet on the socket brings one descriptor, the socket of a new spawner. The answer is `0`, or the error number if
no process can be created. When the socket closes, the host is gone or needs no more spawners, and the zygote exits, if
possible after the last of them. Spawners have their own sockets, and live as long as those are open. The zygote has one
thread, so that a fork is complete, and does nothing else: whatever it did would be in every spawner.
"""

from __future__ import annotations

import _socket
import errno
import gc
import os
import select
import sys
import time

from anyplug.runtime.sandbox import packets, spawner
from anyplug.runtime.sandbox.linux import cpu_share, syscalls

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

LARGEST_REQUEST = 64  # bytes
LINGER_S = 1.0  # for spawners that are ending; the kernel takes up to 30 ms for each


def main() -> None:
    """Create spawners until the host is gone."""
    os.set_inheritable(int(sys.argv[1]), False)
    requests = _socket.socket(fileno=int(sys.argv[1]))
    syscalls.prctl("subreaper", syscalls.PR_SET_CHILD_SUBREAPER, 1)  # of those that fork once more, to be process 1
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()  # a collection would write to shared memory
    gc.disable()
    either = select.poll()
    either.register(requests, select.POLLIN)
    either.register(woken, select.POLLIN)
    while True:
        ready = {fd for fd, _ in either.poll()}
        if woken in ready:
            os.read(woken, 4096)
            reap()
            cpu_share.remove_empty_cgroups()
        if requests.fileno() in ready:
            packet, sockets = packets.receive(requests, LARGEST_REQUEST, 1)
            if not packet:
                see_them_off(woken)
                return
            failure = 0
            try:
                if not os.fork():
                    become_spawner(requests, (woken, wake), sockets)
            except OSError as error:  # the machine is out of processes
                failure = error.errno or errno.EAGAIN
            for fd in sockets:
                os.close(fd)
            try:
                packets.send(requests, str(failure).encode(), [])
            except ConnectionError:
                return


def become_spawner(requests: _socket.socket, pipe: tuple[int, int], sockets: list[int]) -> None:
    """Become a spawner; never returns."""
    try:
        requests.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in pipe:
            os.close(fd)
        os.setsid()
        spawner.main(_socket.socket(fileno=sockets[0]))
    except BaseException:  # noqa: BLE001 - a spawner must not go on as a zygote
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def see_them_off(woken: int) -> None:
    """Wait until the last spawners have ended, which the kernel takes apart, and remove what is left of them."""
    if sys.stderr is not None:
        sys.stderr.close()  # its reader need not wait as well
    either = select.poll()
    either.register(woken, select.POLLIN)
    until = time.monotonic() + LINGER_S
    while spawner.has_children() and (left := until - time.monotonic()) > 0:
        if either.poll(left * 1000):
            os.read(woken, 4096)
        reap()
    cpu_share.remove_empty_cgroups()


def reap() -> None:
    """Reap ended children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
