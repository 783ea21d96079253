"""Seccomp: which system calls a thread and its descendants may make.

The decisions are data: `syscall_table` has one for each call, `socket_table` for each socket. What is in neither is
refused. Our own implementation, because `pyseccomp` needs libseccomp on the machine and has had no release in years.
The filter refuses with an errno and never kills: many programs try a call only to find out whether it works.
"""

from __future__ import annotations

import ctypes
import os
import struct

from anyplug.runtime.sandbox.linux import socket_table, syscall_table, syscalls

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from typing import Literal

    Network = Literal["none", "ports", "hosts", "all"]

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 8, 32
EPERM, ENOSYS, ENOPROTOOPT = 1, 38, 92
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ARCHITECTURES = tuple(AUDIT_ARCH)  # the order of the numbers below
X32 = 0x40000000  # from here on, x86-64's numbers are aliases

# Asked about if a program's actions are recorded (`syscall_recorder`).
NOTED = {
    name: syscall_table.NUMBERS[name]
    for name in (
        "open", "creat", "openat", "openat2", "execve", "execveat", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat",
        "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat", "truncate",
        "chmod", "fchmodat", "utimensat", "socket", "connect", "bind",
    )
}  # fmt: skip
# Asked about if a broker makes changes for the programs (`broker`).
BROKERED = {
    name: syscall_table.NUMBERS[name]
    for name in (
        "open", "creat", "openat", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2",
        "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat", "truncate", "bind", "chmod", "fchmod", "fchmodat",
        "fchmodat2", "chown", "lchown", "fchown", "fchownat", "utime", "utimes", "futimesat", "utimensat", "setxattr",
        "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
    )
}  # fmt: skip
# Asked about if only sockets in the plugin's own folders are open to it (`own_sockets`).
BROKERED_SOCKETS = {name: syscall_table.NUMBERS[name] for name in ("connect", "bind", "listen")}
LISTENING = ("listen", "accept", "accept4")
SENDING = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}  # with the position of their flags
CALLS_ON_SOCKETS = ("connect", "bind", *LISTENING)

NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that `clone` takes
MFD_NOEXEC_SEAL = 8
ASK_PERSONALITY = 0xFFFFFFFF
RLIMIT_RSS, RLIMIT_LOCKS = 5, 10  # they limit nothing, and carry our marks
SET_USER, SET_GROUP = 0o4000, 0o2000  # in a file's mode: anyone who executes it becomes its owner
IS_DEVICE = 0o20000  # in the mode of `mknod`: of both kinds of devices, and of nothing else that it creates
MAKES_FILE = 0o100 | 0o20000000  # O_CREAT, and the bit that only O_TMPFILE has: otherwise `open` ignores the mode
RENAME_WHITEOUT = 4
CHANGES_FILE = 0o3 | MAKES_FILE | 0o1000  # or it is opened for writing, or truncated
MSG_FASTOPEN = 0x20000000  # connects without `connect`, and so past Landlock's ports
PR_SCHED_CORE = 62
SCHED_OTHER, SCHED_BATCH, SCHED_IDLE = 0, 3, 5
IOPRIO_WHO_PROCESS, IOPRIO_CLASS, IOPRIO_IDLE = 1, 0xE000, 0x6000
KIND_OF_REQUEST = 0xFF00  # of `ioctl`
SOCK_STREAM, SOCK_TYPE = socket_table.STREAM, socket_table.TYPE

# Classic BPF: (code, jump if true, jump if false, value).
Instruction = tuple[int, int, int, int]
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN, AND, JUMP = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54, 0x05
FARTHEST = 255  # instructions that a comparison can skip
ALLOW: Instruction = (RETURN, 0, 0, 0x7FFF0000)
ASK: Instruction = (RETURN, 0, 0, 0x7FC00000)  # the listener, and wait for the answer
REFUSAL, ERROR_BITS = 0x50000, 0xFFFF
PACKED = struct.Struct("=HBBI")
AT_NUMBER, AT_ARCH, AT_ARGUMENTS = 0, 4, 16  # offsets in the filter's input


def refuse(errno: int) -> Instruction:
    """Return the instruction that ends with an error."""
    return (RETURN, 0, 0, REFUSAL | errno)


REFUSE = refuse(EPERM)
# The bodies that check no argument. Each is one object, so that equal neighbours are merged.
PLAIN: dict[str, list[Instruction]] = {
    syscall_table.ALLOW: [ALLOW], syscall_table.REFUSE: [REFUSE], syscall_table.ABSENT: [refuse(ENOSYS)],
}  # fmt: skip


def argument(index: int, *, high: bool = False) -> Instruction:
    """Load one half of an argument: for an `int` the kernel uses only the low one."""
    return (LOAD, 0, 0, AT_ARGUMENTS + 8 * index + 4 * high)


def one_of(*values: int) -> list[Instruction]:
    """Allow if the loaded value is one of these, else continue."""
    return [step for value in values for step in ((EQUAL, 0, 1, value), ALLOW)]


def none_of(*values: int) -> list[Instruction]:
    """Refuse if the loaded value is one of these, else continue."""
    return [step for value in values for step in ((EQUAL, 0, 1, value), REFUSE)]


def build(
    network: Network = "none",
    *,
    unix: bool = False,
    watches: bool = False,
    machine: str = "",
    asks: bool = False,
    brokered: bool = False,
    own_sockets: bool = False,
) -> bytes:
    """Build the filter; raises OSError on an unsupported architecture.

    With `watches` it lets programs watch files for changes. With `asks`, it asks its listener about what is `NOTED`,
    even where it would refuse. With `brokered`, it asks about what is `BROKERED` where it would allow it; with
    `own_sockets`, it opens Unix sockets and asks about what they are connected and bound to.
    """
    machine = machine or os.uname().machine
    if machine not in AUDIT_ARCH:
        raise OSError(ENOSYS, f"there is no filter for {machine}, only for {' and '.join(ARCHITECTURES)}")
    column = ARCHITECTURES.index(machine)
    steps: list[Instruction] = [
        (LOAD, 0, 0, AT_ARCH),
        (EQUAL, 1, 0, AUDIT_ARCH[machine]),
        refuse(ENOSYS),
        (LOAD, 0, 0, AT_NUMBER),
    ]
    if machine == "x86_64":
        steps += [(AT_LEAST, 0, 1, X32), refuse(ENOSYS)]
    examined = {
        **_of_processes(), **_of_priorities(), **_of_files(watches=watches),
        **_of_sockets(network, unix=unix, own=own_sockets),
    }  # fmt: skip
    bodies: dict[int, list[Instruction]] = {}
    for verdict, _, calls in syscall_table.DECISIONS:
        body = PLAIN.get(verdict)
        for name, numbers in calls.items():
            if (number := numbers[column]) is not None:
                bodies[number] = examined[name] if body is None else body
    asked = (BROKERED if brokered else {}) | (BROKERED_SOCKETS if own_sockets else {})
    for name, numbers in asked.items():
        if (number := numbers[column]) is not None and (name != "listen" or network == "hosts"):
            bodies[number] = _asking(name, bodies[number])
    if asks:
        bodies |= {number: [ASK] for numbers in NOTED.values() if (number := numbers[column]) is not None}
    steps += _search(_ranges(bodies))
    return b"".join([PACKED.pack(*step) for step in steps])


def opens_own(network: Network, *, unix: bool) -> bool:
    """Return whether only Unix sockets in own folders are open. Who may not listen, with ports, has no use for them."""
    return not unix and network != "ports"


def _asking(name: str, body: list[Instruction]) -> list[Instruction]:
    """Ask where a body would allow; files that are opened only for reading do not matter."""
    asking = [ASK if step == ALLOW else step for step in body]
    flags = {"open": 1, "openat": 2}.get(name)
    return asking if flags is None else [argument(flags), (ANY_BIT, 1, 0, CHANGES_FILE), ALLOW, *asking]


def _ranges(bodies: dict[int, list[Instruction]]) -> list[tuple[int, list[Instruction]]]:
    """Return the ranges of numbers with the same body, by first number. Numbers without one are absent."""
    absent = PLAIN[syscall_table.ABSENT]
    found = [(0, bodies.get(0, absent))]
    for number in range(1, max(bodies) + 2):
        body = bodies.get(number, absent)
        if body is not found[-1][1]:
            found.append((number, body))
    return found


def _search(ranges: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Find the body for a number by bisection: the kernel runs a new filter on every number, for each thread."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    lower, upper = _search(ranges[:middle]), _search(ranges[middle:])
    first = ranges[middle][0]
    if len(lower) <= FARTHEST:
        return [(AT_LEAST, len(lower), 0, first), *lower, *upper]
    return [(AT_LEAST, 0, 1, first), (JUMP, 0, 0, len(lower)), *lower, *upper]


def _of_processes() -> dict[str, list[Instruction]]:
    """Return the bodies for calls of which only some uses are refused. Each ends by itself."""
    marks = none_of(RLIMIT_RSS, RLIMIT_LOCKS)
    return {
        "clone": [argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACES), REFUSE, ALLOW],
        "personality": [argument(0), *one_of(0, ASK_PERSONALITY), REFUSE],
        "memfd_create": [argument(1), (ANY_BIT, 1, 0, MFD_NOEXEC_SEAL), REFUSE, ALLOW],  # or it could be executed
        "setrlimit": [argument(0), *marks, ALLOW],
        # Reading is fine; setting is allowed for the process itself, except for limits that carry our marks.
        "prlimit64": [
            argument(2), (EQUAL, 0, 3, 0), argument(2, high=True), (EQUAL, 0, 1, 0), ALLOW,
            argument(0), (EQUAL, 1, 0, 0), REFUSE,
            argument(1), *marks, ALLOW,
        ],
        "prctl": [argument(0), *none_of(PR_SCHED_CORE), ALLOW],
        "seccomp": [argument(1), (ANY_BIT, 0, 1, NEW_LISTENER), REFUSE, ALLOW],
    }  # fmt: skip


def _of_priorities() -> dict[str, list[Instruction]]:
    """Return the bodies for calls that set priorities: of the caller alone, since the spawner has the same user.

    The spawner dropped the right to raise one, and its own priority must not be lowered: it enforces the limits.
    """
    own: list[Instruction] = [argument(0), (EQUAL, 1, 0, 0), REFUSE]
    return {
        "setpriority": [*own, argument(1), *one_of(0), REFUSE],  # PRIO_PROCESS is 0, too
        "sched_setscheduler": [*own, argument(1), *one_of(SCHED_OTHER, SCHED_BATCH, SCHED_IDLE), REFUSE],
        "sched_setparam": [*own, ALLOW],
        "sched_setaffinity": [*own, ALLOW],
        "ioprio_set": [
            argument(0), (EQUAL, 1, 0, IOPRIO_WHO_PROCESS), REFUSE,
            argument(1), (EQUAL, 1, 0, 0), REFUSE,
            argument(2), (AND, 0, 0, IOPRIO_CLASS), *one_of(0, IOPRIO_IDLE), REFUSE,
        ],
    }  # fmt: skip


def _of_files(*, watches: bool) -> dict[str, list[Instruction]]:
    """Return the bodies for calls that set modes, control or watch files.

    No file may let others become the user, or root where that is the user: it would be available to them outside the
    sandbox. Folders may be set-group-ID, as shared ones are: `chmod` checks the user's bit only.
    """
    made: list[Instruction] = [(ANY_BIT, 0, 1, SET_USER | SET_GROUP), REFUSE, ALLOW]
    bodies: dict[str, list[Instruction]] = {"creat": [argument(1), *made]}
    for name, index in (("mknod", 1), ("mknodat", 2)):
        bodies[name] = [argument(index), (ANY_BIT, 0, 1, IS_DEVICE), REFUSE, *made]
    for name, index in (("open", 1), ("openat", 2)):
        bodies[name] = [argument(index), (ANY_BIT, 1, 0, MAKES_FILE), ALLOW, argument(index + 1), *made]
    for name, index in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        bodies[name] = [argument(index), (ANY_BIT, 0, 1, SET_USER), REFUSE, ALLOW]
    bodies["renameat2"] = [argument(4), (ANY_BIT, 0, 1, RENAME_WHITEOUT), REFUSE, ALLOW]
    bodies["fcntl"] = [argument(1), *none_of(*syscall_table.REFUSED_COMMANDS), ALLOW]
    bodies["ioctl"] = [
        argument(1),
        *none_of(*syscall_table.REFUSED_REQUESTS),
        *one_of(*syscall_table.ALLOWED_REQUESTS),
        (AND, 0, 0, KIND_OF_REQUEST),
        *none_of(*(kind << 8 for kind in syscall_table.EXAMINED_KINDS)),
        ALLOW,
    ]
    allowed = PLAIN[syscall_table.ALLOW]
    begun = allowed if watches else PLAIN[syscall_table.ABSENT]
    bodies["inotify_init"] = bodies["inotify_init1"] = begun
    bodies["inotify_add_watch"] = bodies["inotify_rm_watch"] = allowed if watches else PLAIN[syscall_table.REFUSE]
    return bodies


def _of_sockets(network: Network, *, unix: bool, own: bool) -> dict[str, list[Instruction]]:
    """Return the bodies for sockets."""
    allowed = PLAIN[syscall_table.ALLOW]
    local = socket_table.UNIX if unix else socket_table.OWN if own else ()
    bodies = {
        "socket": _made(*socket_table.SOCKETS[network], *local),
        "socketpair": _made(*(local or socket_table.OWN)),
        "setsockopt": _set(),
    }
    bodies |= dict.fromkeys((*CALLS_ON_SOCKETS, *SENDING), allowed)
    if network == "none" and not local:
        bodies |= dict.fromkeys(CALLS_ON_SOCKETS, PLAIN[syscall_table.REFUSE])
    # A socket that was never bound can still listen, on a port of every interface that Landlock does not check, and
    # `listen` does not show whose socket it is. Only in its own network is nobody there to connect.
    if network == "ports" or (network == "hosts" and not local):
        bodies |= dict.fromkeys(LISTENING, PLAIN[syscall_table.REFUSE])
    if network in {"ports", "hosts"}:
        for name, index in SENDING.items():
            bodies[name] = [argument(index), (ANY_BIT, 0, 1, MSG_FASTOPEN), REFUSE, ALLOW]
    return bodies


def _made(*rules: socket_table.Rule) -> list[Instruction]:
    """Allow the sockets of these rules, and no others."""
    body: list[Instruction] = []
    for family, types, protocols in rules:
        of_protocol = [argument(2), *one_of(*protocols)]
        of_type: list[Instruction] = [(EQUAL, len(types) - at, 0, kind) for at, kind in enumerate(types)]
        rest = [argument(1), (AND, 0, 0, SOCK_TYPE), *of_type, (JUMP, 0, 0, len(of_protocol)), *of_protocol]
        body += [argument(0), (EQUAL, 0, len(rest), family), *rest]
    return [*body, REFUSE]


def _set() -> list[Instruction]:
    """Allow options of the known levels, with exceptions."""
    body: list[Instruction] = []
    for level, refused in socket_table.OPTIONS.items():
        rest = [argument(2)]
        for first, last in refused:
            rest += [(AT_LEAST, 0, 1, first), REFUSE] if last == socket_table.LAST else [
                (AT_LEAST, 0, 2, first), (AT_LEAST, 1, 0, last + 1), REFUSE,
            ]  # fmt: skip
        rest.append(ALLOW)
        body += [argument(1), (EQUAL, 0, len(rest), level), *rest]
    return [*body, refuse(ENOPROTOOPT)]


def digest(program: bytes) -> str:
    """Return the digest of a filter."""
    from anyplug.model.hashes import sha256  # takes a while to import, and the spawner never needs it

    return sha256(program).hexdigest()


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def apply(program: bytes) -> None:
    """Apply a filter to this thread permanently. Needs no_new_privs."""
    steps = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // 8, ctypes.addressof(steps))
    syscalls.prctl("seccomp", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(described))


def apply_and_listen(program: bytes, *, killable: bool = False) -> int:
    """Do the same with a filter that asks; return the listener's descriptor.

    `killable`: once a call is being handled, only a fatal signal interrupts it, since what is done must not be
    repeated.
    """
    steps = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // 8, ctypes.addressof(steps))
    number = SYS_SECCOMP[os.uname().machine]
    flags = NEW_LISTENER | (WAIT_KILLABLE if killable else 0)
    return syscalls.syscall("seccomp", number, SET_MODE_FILTER, flags, ctypes.byref(described))


def judge(program: bytes, data: bytes) -> int:
    """Run a filter as the kernel does, on its input for a call; return the errno with which it refuses, else 0."""
    value = judged(program, data)
    return value & ERROR_BITS if value & ~ERROR_BITS == REFUSAL else 0


def judged(program: bytes, data: bytes) -> int:
    """Do the same; return its verdict."""
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = loaded = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == LOAD:
            (loaded,) = struct.unpack_from("=I", data, value)
        elif code == AND:
            loaded &= value
        elif code == JUMP:
            at += value
        elif code == RETURN:
            return int(value)
        else:
            holds = {EQUAL: loaded == value, AT_LEAST: loaded >= value, ANY_BIT: bool(loaded & value)}[code]
            at += if_true if holds else if_false
