"""Record what confined programs open, execute and connect to. It makes no decisions of its own.

The filter of a recording spawner asks us about the calls below (SECCOMP_RET_USER_NOTIF), and each waits for our answer.
What the plain filter would refuse by its numbers, we refuse in its place, with the same errors; everything else
continues in the kernel, where Landlock and mounts apply as usual. Paths are in the program's memory, and it may change
them at any time: so they are recorded, and nothing depends on them.

This must be done by a separate process, here the host: the spawner waits for the program that waits for us.

If a broker makes changes for the programs (`broker`), a call still has one listener: we receive it first, and pass on
what the broker must do. It answers the program itself.
"""

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import threading
from typing import Literal

import msgspec

from anyplug.home import untrusted_files
from anyplug.runtime.sandbox import packets
from anyplug.runtime.sandbox.linux import seccomp, syscalls

Kind = Literal["read", "write", "make", "execute", "socket", "connect", "listen"]

RECEIVE, SEND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # ioctls on a listener
NOTICE = struct.Struct("=QII")  # id, pid, flags; then the filter's input
ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
NOTICE_BYTES, DATA = 80, slice(16, 80)
GO_ON = 1  # let the kernel do it
LONGEST_PATH = 4096
LONGEST_ADDRESS = 128
MOST_EVENTS = 20_000  # distinct ones; a program that opens more than that has shown enough
LONGEST_LINE = 256  # of the kernel's reading of `#!`
SYS_PIDFD_GETFD = 438
DNS = 53
LOOPBACK = "127.0.0.1"
AT_FDCWD = -100
NOT_ABOUT_FILES = ("/proc", "/sys", "/dev")  # access to these is the same for all
GOODBYE_S = 5.0  # until the thread has ended; it answers within microseconds


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a program tried."""

    kind: Kind
    path: str = ""  # real, absolute
    address: str = ""  # of a machine; or the name of a local socket
    port: int = 0
    family: Literal["internet", "host", "unix", "other", ""] = ""  # `host`: by name, through the proxy
    is_tcp: bool = False
    refused: bool = False  # by the filter; refusals by Landlock and mounts are not reported to us


class Recorder:
    """Records the events of one spawner, in a thread, until `close`."""

    def __init__(self) -> None:
        self._events: dict[Event, None] = {}
        self._filter = b""
        self._proxy_port = 0
        self._poll = select.poll()
        self._requests: socket.socket | None = None
        self._listeners: set[int] = set()
        self._brokers: dict[int, int] = {}  # the socket to the broker of each listener that has one
        self._woken = self._wake = -1
        self._thread: threading.Thread | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """What was tried so far, without duplicates, in order."""
        return tuple(self._events)

    def hear(self, host: str, port: int, *, refused: bool) -> None:
        """Record a connection through the proxy, or its refusal. From any thread."""
        self._note(Event(kind="connect", family="host", address=host, port=port, is_tcp=True, refused=refused))

    def attach(self, requests: socket.socket, plain_filter: bytes, proxy_port: int = 0) -> None:
        """Start: listeners arrive on this socket. `plain_filter` decides as it would without us.

        Connections to `proxy_port` of its own network go to the proxy, which reports the details.
        """
        self._filter = plain_filter
        self._proxy_port = proxy_port
        self._requests = requests.dup()
        self._woken, self._wake = os.pipe()
        self._poll.register(self._requests, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._thread = threading.Thread(target=self._listen, name="anyplug-recorder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering: waiting calls get an error."""
        if self._thread is None:
            return
        os.write(self._wake, b"x")
        self._thread.join(GOODBYE_S)
        self._thread = None
        for fd in (self._woken, self._wake, *self._listeners, *self._brokers.values()):
            os.close(fd)
        self._listeners.clear()
        self._brokers.clear()
        if self._requests is not None:
            self._requests.close()

    def _listen(self) -> None:
        assert self._requests is not None
        while True:
            for fd, happened in self._poll.poll():
                if fd == self._woken:
                    return
                if fd == self._requests.fileno():
                    if not self._welcome():
                        self._poll.unregister(fd)
                elif happened & select.POLLIN:
                    self._answer(fd)
                else:  # all its programs have ended, or the broker has
                    self._part_with(fd)

    def _part_with(self, fd: int) -> None:
        """Stop listening; calls that wait for a dead broker get an error."""
        self._poll.unregister(fd)
        listener = next((listener for listener, broker in self._brokers.items() if broker == fd), None)
        if listener is not None:
            if listener in self._listeners:
                self._listeners.remove(listener)
                self._poll.unregister(listener)
                os.close(listener)
            os.close(self._brokers.pop(listener))

    def _welcome(self) -> bool:
        assert self._requests is not None
        packet, given = packets.receive(self._requests, LONGEST_PATH, 2)
        for fd in given[:1]:
            self._listeners.add(fd)
            self._poll.register(fd, select.POLLIN)
        for fd in given[1:]:
            self._brokers[given[0]] = fd
            self._poll.register(fd, 0)
        return bool(packet)

    def _answer(self, listener: int) -> None:
        notice = bytearray(NOTICE_BYTES)
        try:
            fcntl.ioctl(listener, RECEIVE, notice)
        except OSError:  # it has ended meanwhile
            return
        number, pid, _ = NOTICE.unpack_from(notice)
        data = bytes(notice[DATA])
        error = seccomp.judge(self._filter, data)
        try:
            self._record(Call(pid, data, listener, number), refused=error != 0)
        except (OSError, ValueError, struct.error):
            pass  # it is gone, or its memory cannot be read: then there is nothing to record
        if not error and listener in self._brokers and is_brokered(data):
            try:
                os.write(self._brokers[listener], _as_seen_inside(bytes(notice), pid))
            except OSError:  # the broker or the program is gone
                error = errno.ENOSYS
            else:
                return
        try:
            fcntl.ioctl(listener, SEND, ANSWER.pack(number, 0, -error, 0 if error else GO_ON))
        except OSError:  # for the same reason
            pass

    def _record(self, call: "Call", *, refused: bool) -> None:
        for event in events_of(call, refused=refused):
            if not self._proxy_port or (event.address, event.port) != (LOOPBACK, self._proxy_port):
                self._note(event)

    def _note(self, event: Event) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.setdefault(event)


class Call:
    """A waiting system call, and what can be seen of its program."""

    def __init__(self, pid: int, data: bytes, listener: int, number: int) -> None:
        self.pid = pid
        self.number = struct.unpack_from("=i", data)[0]
        self.arguments = struct.unpack_from("=6Q", data, 16)
        self._listener = listener
        self._id = struct.pack("=Q", number)

    def integer(self, index: int) -> int:
        """Return an argument that is an `int` in the kernel."""
        return int(ctypes.c_int(self.arguments[index] & 0xFFFFFFFF).value)

    def memory(self, address: int, size: int) -> bytes:
        """Read what an argument points to; raises OSError if the program has ended meanwhile."""
        fd = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.pread(fd, size, address)
        finally:
            os.close(fd)
        fcntl.ioctl(self._listener, IS_VALID, self._id)  # otherwise the number may be another process's by now
        return found

    def path(self, index: int, folder: int | None) -> str:
        """Return the absolute path that an argument points to, with its links and dots unresolved."""
        name = os.fsdecode(self.memory(self.arguments[index], LONGEST_PATH).partition(b"\0")[0])
        if os.path.isabs(name):
            return name
        at = AT_FDCWD if folder is None else self.integer(folder)
        base = os.readlink(f"/proc/{self.pid}/cwd" if at == AT_FDCWD else f"/proc/{self.pid}/fd/{at}")
        return os.path.join(base, name) if name else base

    def is_tcp(self, fd: int) -> bool:
        """Inspect the program's own socket; raises OSError."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as status:
            group = next((int(line.split()[1]) for line in status if line.startswith("Tgid:")), 0)
        process = os.pidfd_open(group)
        try:
            copy = syscalls.syscall("pidfd_getfd", SYS_PIDFD_GETFD, process, fd, 0)
        finally:
            os.close(process)
        with socket.socket(fileno=copy) as found:
            return found.type == socket.SOCK_STREAM


def is_brokered(data: bytes) -> bool:
    """Return whether a broker handles a call: files that are only read do not matter."""
    (number,) = struct.unpack_from("=i", data)
    name = BROKERED.get(number, "")
    if name in {"open", "openat"}:
        return bool(struct.unpack_from("=6Q", data, 16)[OPENING[name][2]] & seccomp.CHANGES_FILE)
    return bool(name)


def _as_seen_inside(notice: bytes, pid: int) -> bytes:
    """Convert a notice to what the broker would have received: threads have other numbers in its namespace.

    Raises OSError.
    """
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        inner = next((line.split()[-1] for line in status if line.startswith("NSpid:")), str(pid))
    number, _, flags = NOTICE.unpack_from(notice)
    return NOTICE.pack(number, int(inner), flags) + notice[NOTICE.size :]


def events_of(call: Call, *, refused: bool) -> list[Event]:
    """Return the events of a call. Raises OSError and ValueError if it cannot be read."""
    name = NAMES.get(call.number, "")
    if not name:  # only for the broker
        return []
    if name == "socket":
        kind = call.integer(1) & seccomp.SOCK_TYPE
        family = _family(call.integer(0))
        return [Event(kind="socket", family=family, is_tcp=kind == seccomp.SOCK_STREAM, refused=refused)]
    if name in {"connect", "bind"}:
        return _of_address(call, name, refused=refused)
    if name in {"execve", "execveat"}:
        path = call.path(0, None) if name == "execve" else call.path(1, 0)
        return _execution(path)
    return [event for kind, path in _of_files(call, name) if (event := _of_path(kind, path)) is not None]


def _of_files(call: Call, name: str) -> list[tuple[Kind, str]]:
    """Return what a call about files does to which paths."""
    if name in OPENING:
        path_at, folder_at, flags_at = OPENING[name]
        path = call.path(path_at, folder_at)
        if name == "creat":
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
        elif name == "openat2":
            (flags,) = struct.unpack("=Q", call.memory(call.arguments[flags_at], 8))
        else:
            flags = call.integer(flags_at)
        return _opening(path, flags)
    kind, *places = CHANGING[name]
    return [(kind, call.path(path_at, folder_at)) for folder_at, path_at in places]


def _opening(path: str, flags: int) -> list[tuple[Kind, str]]:
    if flags & os.O_PATH:
        return []  # it only names it
    if flags & os.O_CREAT and not os.path.lexists(path):
        return [("make", path)]
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        return [("make", os.path.join(path, "file"))]
    return [("write" if flags & (os.O_ACCMODE | os.O_TRUNC) else "read", path)]


def _of_path(kind: Kind, path: str) -> Event | None:
    """Record a path by its target; None if there is nothing."""
    tidy = os.path.normpath(path)
    if any(tidy == folder or tidy.startswith(folder + "/") for folder in NOT_ABOUT_FILES):
        return None
    real = _real(path) if kind == "make" else os.path.realpath(path)
    there = os.path.dirname(real) if kind == "make" else real
    return Event(kind=kind, path=real) if os.path.exists(there) else None


def _real(path: str) -> str:
    """Resolve the links of the folder, but not the name that is created or removed in it."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _execution(path: str) -> list[Event]:
    """Return a program and the interpreter in its first line, which the kernel opens itself."""
    event = _of_path("execute", path)
    if event is None:
        return []
    first = _first_line(event.path)
    words = first[2:].split() if first.startswith(b"#!") else []
    interpreter = _of_path("execute", os.fsdecode(words[0])) if words else None
    return [event, interpreter] if interpreter is not None else [event]


def _first_line(path: str) -> bytes:
    """Read the first line of a regular file, else empty: the program chose it, and must not make us wait."""
    try:
        return untrusted_files.head(path, LONGEST_LINE).partition(b"\n")[0]
    except untrusted_files.Changed:
        return b""


def _of_address(call: Call, name: str, *, refused: bool) -> list[Event]:
    raw = call.memory(call.arguments[1], min(call.integer(2), LONGEST_ADDRESS))
    number = int.from_bytes(raw[:2], "little")
    family = _family(number)
    kind: Kind = "connect" if name == "connect" else "listen"
    if number == socket.AF_UNIX:
        path = os.fsdecode(raw[2:].partition(b"\0")[0])
        address = path or "@" + os.fsdecode(raw[3:].rstrip(b"\0"))
        return [Event(kind=kind, family=family, address=address, refused=refused)]
    if family != "internet":
        return []
    port = int.from_bytes(raw[2:4], "big")
    where = raw[4:8] if number == socket.AF_INET else raw[8:24]
    address = socket.inet_ntop(number, where)
    return [
        Event(
            kind=kind,
            family=family,
            address=address,
            port=port,
            is_tcp=_is_tcp(call, port),
            refused=refused,
        )
    ]


def _is_tcp(call: Call, port: int) -> bool:
    try:
        return call.is_tcp(call.integer(0))
    except OSError:  # a kernel before 5.6, or one that does not permit it
        return port != DNS


def _family(number: int) -> Literal["internet", "unix", "other"]:
    if number in {socket.AF_INET, socket.AF_INET6}:
        return "internet"
    return "unix" if number == socket.AF_UNIX else "other"


# The positions of paths, their base folders and flags among the arguments.
OPENING: dict[str, tuple[int, int | None, int]] = {
    "open": (0, None, 1),
    "creat": (0, None, 1),
    "openat": (1, 0, 2),
    "openat2": (1, 0, 2),
}
Place = tuple[int | None, int]  # of a folder's descriptor, of the path
CHANGING: dict[str, tuple[Kind, *tuple[Place, ...]]] = {
    "mkdir": ("make", (None, 0)),
    "mkdirat": ("make", (0, 1)),
    "rmdir": ("make", (None, 0)),
    "unlink": ("make", (None, 0)),
    "unlinkat": ("make", (0, 1)),
    "rename": ("make", (None, 0), (None, 1)),
    "renameat": ("make", (0, 1), (2, 3)),
    "renameat2": ("make", (0, 1), (2, 3)),
    "link": ("make", (None, 1)),
    "linkat": ("make", (2, 3)),
    "symlink": ("make", (None, 1)),
    "symlinkat": ("make", (1, 2)),
    "mknod": ("make", (None, 0)),
    "mknodat": ("make", (0, 1)),
    "truncate": ("write", (None, 0)),
    "chmod": ("write", (None, 0)),
    "fchmodat": ("write", (0, 1)),
    "utimensat": ("write", (0, 1)),
}
_COLUMN = seccomp.ARCHITECTURES.index(os.uname().machine) if os.uname().machine in seccomp.ARCHITECTURES else 0
NAMES = {numbers[_COLUMN]: name for name, numbers in seccomp.NOTED.items() if numbers[_COLUMN] is not None}
BROKERED = {numbers[_COLUMN]: name for name, numbers in seccomp.BROKERED.items() if numbers[_COLUMN] is not None}
