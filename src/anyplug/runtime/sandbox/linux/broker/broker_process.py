"""The broker: makes the changes in granted folders that a plugin's programs may not make themselves.

Landlock can allow a folder but not except names in it, and a mount needs something to be mounted on. So the programs of
a plugin that was granted a folder get a narrower domain than the grant: in that folder they may only read. Their filter
asks this process about every call that changes something there (SECCOMP_RET_USER_NOTIF). It copies the path, checks it
against the protected paths, makes the call itself and returns the result, or the open file.

It is a fork of the spawner, in the programs' mount namespace, with their user and limits, confined to the domain of the
grants. A thread in that domain waits for the first call and forks it then, because most programs make none. A call that
it lets through is checked again by the narrower domain; a path that is changed meanwhile, a lost race or an overlooked
call ends in EACCES. If the broker dies, calls fail with ENOSYS.

It also connects the sockets of plugins without `network:unix`, so that they reach Unix sockets in their own folders and
no others (`own_sockets`).

No folder is ever renamed to, or from, a name on the way to a protected path, so a folder that was checked cannot become
part of one during the call, and several brokers need no lock. Standard library only; part of the spawner.
"""

from __future__ import annotations

import _socket
import _thread
import ctypes
import errno
import fcntl
import os
import select
import struct
import time

from anyplug.runtime.sandbox import packets
from anyplug.runtime.sandbox.linux import seccomp, syscalls
from anyplug.runtime.sandbox.linux.broker.call_table import CALLS
from anyplug.runtime.sandbox.linux.broker.places import Places
from anyplug.runtime.sandbox.linux.broker.waiting_call import Call, GoOn, Later
from anyplug.runtime.sandbox.linux.memory_and_disk import wear

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from anyplug.runtime.sandbox.linux.own_sockets import OwnFolders
    from anyplug.runtime.sandbox.linux.protected_names import Protected
else:
    import _signal as signal

RECEIVE, SEND, ADD_DESCRIPTOR, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40182103, 0x40082104
SYNC_WAKE_UP = 1  # the answer wakes the program on this CPU: one context switch instead of two
NOTICE = struct.Struct("=QIIiIQ6Q")  # id, pid, flags; number, architecture, instruction, arguments
ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
ADDITION = struct.Struct("=QIIII")  # id, flags, our descriptor, its number there, its flags
SEND_ADDED = 2
GO_ON = 1
FIRST_FREE = 3  # descriptors below are the standard streams
FIFO_MS = 5  # between checks whether somebody reads a FIFO that is being opened
CAP_SYS_PTRACE = 1 << 19  # to read what programs pass, where Yama allows only ancestors
CAPABILITY_VERSION = 0x20080522
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
OLDEST_KERNEL = (5, 19)  # SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: before it, a signal repeats what is already done
CONTROL = 3  # the descriptor of the socket to the spawner
LISTEN = b"listen"
LARGEST_ADDITION = 1 << 18  # bytes of a packet of further protected paths
ADDED = b"added"
AGAIN_S = 0.05  # before another attempt to fork, while the plugin has as many processes as allowed
WITHDRAWN = b"-"  # a call whose program was killed before it was handled


class Broker:
    """Answers the calls of one confined process tree."""

    def __init__(self, listener: int, places: Places) -> None:
        self._listener = listener
        self._places = places
        self._waiting: list[Call] = []
        machine = seccomp.ARCHITECTURES.index(os.uname().machine)
        self._names = {
            numbers[machine]: name for name, numbers in (seccomp.BROKERED | seccomp.BROKERED_SOCKETS).items()
        }

    def serve(self, control: _socket.socket, *, relayed: bool) -> None:
        """Answer until the spawner or all programs are gone.

        `relayed`: calls come through `control`. Otherwise further protected paths do, each packet with an answer.
        """
        try:
            fcntl.ioctl(self._listener, SET_FLAGS, SYNC_WAKE_UP)
        except OSError:
            pass  # before 6.6: slower
        poll = select.poll()
        poll.register(control, select.POLLIN)
        if not relayed:
            poll.register(self._listener, select.POLLIN)
        while True:
            for fd, happened in poll.poll(FIFO_MS if self._waiting else None):
                if not happened & select.POLLIN:
                    return
                if fd == self._listener:
                    self.answer(self._receive())
                elif not (self.answer(control.recv(NOTICE.size)) if relayed else self._extend(control)):
                    return
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                self._answer(call)

    def _extend(self, control: _socket.socket) -> bool:
        """Protect further paths; return False if the spawner is gone."""
        packet = control.recv(LARGEST_ADDITION)
        if packet:
            self._places.protected.add(packets.decode(packet))
            control.send(ADDED)
        return bool(packet)

    def _receive(self) -> bytes:
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(self._listener, RECEIVE, notice)
        except OSError:
            return WITHDRAWN
        return bytes(notice)

    def answer(self, notice: bytes) -> bool:
        """Carry out one call; return False if there will be no more."""
        if notice == WITHDRAWN or not notice:
            return bool(notice)
        number, tid, _, what, _, _, *arguments = NOTICE.unpack(notice)
        self._answer(Call(self._listener, number, tid, self._names.get(what, ""), tuple(arguments)))
        return True

    def _answer(self, call: Call) -> None:
        value, error, flags = 0, 0, 0
        try:
            try:
                given = CALLS[call.name](self._places, call)
            except GoOn:
                if call.name == "connect":
                    raise OSError(errno.EPERM, "not one of its own sockets") from None
                flags = GO_ON
            except Later:
                self._waiting.append(call)
                return
            else:
                if given is not None:
                    self._give(call, given)
                    return
        except OSError as problem:
            error = problem.errno or errno.EIO
        except Exception:  # noqa: BLE001 - whatever it is, the program must not get what it asked for
            error = errno.EACCES
        finally:
            for fd in call.opened:
                os.close(fd)
            call.opened = []
        try:
            fcntl.ioctl(self._listener, SEND, ANSWER.pack(call.id, value, -error, flags))
        except OSError:  # it was killed meanwhile
            pass

    def _give(self, call: Call, opened: tuple[int, int]) -> None:
        """Pass a file to the program as the result of the call."""
        fd, flags = opened
        fcntl.ioctl(self._listener, ADD_DESCRIPTOR, ADDITION.pack(call.id, SEND_ADDED, fd, 0, flags & os.O_CLOEXEC))


def shortfall() -> str:
    """Return what this machine lacks for a broker; empty if nothing."""
    machine, release = os.uname().machine, os.uname().release
    if machine not in seccomp.ARCHITECTURES:
        return f"there is no broker for {machine}"
    if _version(release) < OLDEST_KERNEL:
        return f"Linux {release} is older than {OLDEST_KERNEL[0]}.{OLDEST_KERNEL[1]}"
    try:
        with open(YAMA, "rb") as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = 0
    if scope and not _capabilities() & CAP_SYS_PTRACE:
        return f"kernel.yama.ptrace_scope is {scope}, so it cannot read the paths that the plugin's programs pass"
    return ""


def _version(release: str) -> tuple[int, ...]:
    words = release.replace("-", ".").split(".")[:2]
    return tuple(int(word) for word in words if word.isdigit())


class OnDemand:
    """The broker of programs that start in one confined thread, forked when the first of their calls waits for it."""

    def __init__(self, start: Callable[[], tuple[int, int]], known: set[OnDemand]) -> None:
        """`start` forks it, while it holds `lock`. It is among the `known` ones until its programs have ended."""
        self.pid = 0  # once it is forked
        self.channel: _socket.socket | None = None  # to it, once it listens; while it is open, it knows that we exist
        self.lock = _thread.allocate_lock()
        self._start = start
        self._known = known
        self._listener = -1
        self._has_listener = _thread.allocate_lock()
        self._has_listener.acquire()
        known.add(self)

    def fork(self, listener: int = -1) -> _socket.socket:
        """Fork it; return the socket that takes its listener, which is what it must get first. Raises OSError."""
        with self.lock:
            self.pid, control = self._start()
            channel = _socket.socket(fileno=control)
            if listener >= 0:
                packets.send(channel, LISTEN, [listener])
                self.channel = channel  # only now may it be told of further protected paths
            return channel

    def wait(self) -> None:
        """Fork it later, from a thread that stays in the caller's domain. Raises OSError if there can be no thread."""
        try:
            _thread.start_new_thread(self._wait, ())
        except RuntimeError as error:
            self._known.discard(self)
            raise OSError(errno.EAGAIN, "it has as many processes as allowed") from error

    def listen(self, listener: int) -> None:
        """Hand over the listener of the narrower domain; below 0 if there will be none."""
        self._listener = listener
        self._has_listener.release()

    def _wait(self) -> None:
        self._has_listener.acquire()
        if self._listener >= 0:
            if self._is_called():
                self._fork_now()
            os.close(self._listener)
        if not self.pid:
            self._known.discard(self)

    def _is_called(self) -> bool:
        """Wait until a call waits, or all programs have ended."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return not poll.poll()[0][1] & ~select.POLLIN

    def _fork_now(self) -> None:
        while self._is_called():
            try:
                self.fork(self._listener)
            except ConnectionError:  # it was killed: calls fail now, since nothing listens any more
                return
            except OSError:
                time.sleep(AGAIN_S)
            else:
                return


def start(
    roots: tuple[str, ...], direct: tuple[str, ...], protected: Protected, own: OwnFolders | None, *, relayed: bool
) -> tuple[int, int]:
    """Fork a broker confined like this thread; return its process and a socket that takes its listener."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours.detach()
    try:
        _be_alone(theirs.detach())
        _serve(roots, direct, protected, own, relayed=relayed)
    finally:
        os._exit(0)


def _be_alone(control: int) -> None:
    """Drop what belongs to the spawner: the pipes of programs, its rights and its mark."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in range(FIRST_FREE):
        os.dup2(nothing, stream)
    control = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, CONTROL + 1)
    os.dup2(control, CONTROL, inheritable=False)
    os.closerange(CONTROL + 1, os.sysconf("SC_OPEN_MAX"))
    wear(None)
    _keep_capabilities(CAP_SYS_PTRACE)
    syscalls.prctl("dumpable", syscalls.PR_SET_DUMPABLE, 0)
    os.chdir("/")


def _serve(
    roots: tuple[str, ...], direct: tuple[str, ...], protected: Protected, own: OwnFolders | None, *, relayed: bool
) -> None:
    control = _socket.socket(fileno=CONTROL)
    packet, listeners = packets.receive(control, len(LISTEN), 1)
    if packet == LISTEN and listeners:
        Broker(listeners[0], Places(roots, direct, protected, own)).serve(control, relayed=relayed)


def _capabilities() -> int:
    header, data = struct.pack("=Ii", CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    syscalls.check(syscalls.libc.capget(header, data), "capget")
    low, high = struct.unpack_from("=I", data, 4)[0], struct.unpack_from("=I", data, 16)[0]
    return int(low | high << 32)


def _keep_capabilities(kept: int) -> None:
    """Drop all capabilities that the programs lack, except for reading what they pass."""
    kept &= _capabilities()
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    data = struct.pack("=6I", kept & 0xFFFFFFFF, kept & 0xFFFFFFFF, 0, kept >> 32, kept >> 32, 0)
    syscalls.check(syscalls.libc.capset(header, data), "capset")
