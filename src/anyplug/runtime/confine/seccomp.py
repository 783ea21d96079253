"""Seccomp: which system calls a thread, and all that it starts, may make.

Our own and not `pyseccomp`, which needs libseccomp on the machine and has seen no release in years. The filter
refuses with an errno and never kills: a program that asks whether it may is not a criminal.
"""

from __future__ import annotations

import ctypes
import os
import struct

from anyplug.runtime.confine import kernel

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms
if TYPE_CHECKING:
    from typing import Literal

    Network = Literal["none", "ports", "hosts", "all"]

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 8, 32
EPERM, ENOSYS = 1, 38
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ARCHITECTURES = tuple(AUDIT_ARCH)  # the order of the numbers below
X32 = 0x40000000  # from here on, x86-64's numbers are a second way to say the same

# Refused whatever their arguments are: (x86_64, aarch64).
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # looking into, and changing, other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "move_pages": (279, 239), "migrate_pages": (256, 238),
    # another view of the file system, or a way around paths
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # large, and full of ways around what is refused here
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "memfd_secret": (447, 447), "modify_ldt": (154, None), "uselib": (134, None),
    # memory and messages that belong to no process, and are shared with the rest of the machine
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    # the machine itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "settimeofday": (164, 170),
    "adjtimex": (159, 171), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "sethostname": (170, 161), "setdomainname": (171, 162), "acct": (163, 89), "syslog": (103, 116),
    "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
}  # fmt: skip
# Looked at more closely.
EXAMINED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "clone": (56, 220), "clone3": (435, 435), "personality": (135, 92), "memfd_create": (319, 279),
    "setrlimit": (160, 164), "prlimit64": (302, 261), "ioctl": (16, 29), "open": (2, None), "creat": (85, None),
    "openat": (257, 56), "openat2": (437, 437), "mknod": (133, None), "mknodat": (259, 33), "chmod": (90, None),
    "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
}  # fmt: skip
# Asked about, where what a program does is to be recorded (`record`).
NOTED: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None), "creat": (85, None), "openat": (257, 56), "openat2": (437, 437), "execve": (59, 221),
    "execveat": (322, 281), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33),
    "truncate": (76, 45), "chmod": (90, None), "fchmodat": (268, 53), "utimensat": (280, 88),
    "socket": EXAMINED["socket"], "connect": EXAMINED["connect"], "bind": EXAMINED["bind"],
}  # fmt: skip
# Asked about where a broker makes changes in place of the programs (`broker`).
BROKERED: dict[str, tuple[int | None, int | None]] = {
    **{name: numbers for name, numbers in NOTED.items() if name not in {"openat2", "execve", "execveat", "socket",
                                                                        "connect"}},
    "fchmod": (91, 52), "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None), "fchown": (93, 55),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
# The same by other numbers: programs then take those above. (setxattrat, removexattrat, file_setattr)
UNBROKERED = (463, 466, 469)
# Make and remove subvolumes, and so folders with all that is in them, past Landlock and the broker (btrfs, bcachefs).
SUBVOLUMES = (0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F, 0x4020BC10, 0x4020BC11)
LISTENING = ("listen", "accept", "accept4")
CALLS_ON_SOCKETS = ("connect", "bind", *LISTENING)

NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that `clone` takes
MFD_NOEXEC_SEAL = 8
ASK_PERSONALITY = 0xFFFFFFFF
RLIMIT_RSS, RLIMIT_LOCKS = 5, 10  # they limit nothing, and carry our marks
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # both put words into a terminal's mouth
SET_USER, SET_GROUP = 0o4000, 0o2000  # in the mode of a file: whoever executes it becomes its owner
MAKES_FILE = 0o100 | 0o20000000  # O_CREAT, and the bit that only O_TMPFILE has: else `open` looks at no mode
CHANGES_FILE = 0o3 | MAKES_FILE | 0o1000  # or it is opened to be written to, or cut off
MSG_FASTOPEN = 0x20000000  # connects without `connect`, and so past Landlock's ports
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_TYPE = 1, 2, 5, 0xF
NETLINK_ROUTE, IPPROTO_TCP = 0, 6

# Classic BPF: (code, jump if true, jump if false, value).
Instruction = tuple[int, int, int, int]
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN, AND, JUMP = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54, 0x05
FEW = 3  # numbers that are compared one after the other
ALLOW: Instruction = (RETURN, 0, 0, 0x7FFF0000)
ASK: Instruction = (RETURN, 0, 0, 0x7FC00000)  # whoever listens, and wait for the answer
REFUSAL, ERROR_BITS = 0x50000, 0xFFFF
AT_NUMBER, AT_ARCH, AT_ARGUMENTS = 0, 4, 16  # offsets in what the filter sees


def refuse(errno: int) -> Instruction:
    """End with an error."""
    return (RETURN, 0, 0, REFUSAL | errno)


REFUSE = refuse(EPERM)


def argument(index: int, *, high: bool = False) -> Instruction:
    """Load one half of an argument: the kernel looks at the low one only of what is an `int` to it."""
    return (LOAD, 0, 0, AT_ARGUMENTS + 8 * index + 4 * high)


def one_of(*values: int) -> list[Instruction]:
    """Allow if what is loaded is one of these, else go on."""
    return [step for value in values for step in ((EQUAL, 0, 1, value), ALLOW)]


def build(
    network: Network = "none", *, unix: bool = False, machine: str = "", asks: bool = False, brokered: bool = False
) -> bytes:
    """Make the filter; raises OSError on an architecture that we have no numbers for.

    With `asks`, it asks its listener about what is `NOTED`, also where it would refuse by itself. With `brokered`, it
    asks about what is `BROKERED`, where it would allow it.
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
    examined = _of_processes() | _of_modes() | _of_sockets(network, unix=unix)
    bodies = {number: [REFUSE] for numbers in REFUSED.values() if (number := numbers[column]) is not None}
    bodies |= {number: body for name, body in examined.items() if (number := EXAMINED[name][column]) is not None}
    if brokered:
        bodies |= {number: [refuse(ENOSYS)] for number in UNBROKERED}
        ioctl = EXAMINED["ioctl"][column] or 0
        subvolumes = [step for request in SUBVOLUMES for step in ((EQUAL, 0, 1, request), REFUSE)]
        bodies[ioctl] = [argument(1), *subvolumes, *bodies[ioctl]]
        for name, numbers in BROKERED.items():
            if (number := numbers[column]) is not None:
                bodies[number] = _asking(name, bodies.get(number, [ALLOW]))
    if asks:
        bodies |= {number: [ASK] for numbers in NOTED.values() if (number := numbers[column]) is not None}
    steps += _search(sorted(bodies.items()))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _asking(name: str, body: list[Instruction]) -> list[Instruction]:
    """Ask where a body would allow; files that are opened only to be read concern nobody."""
    asking = [ASK if step == ALLOW else step for step in body]
    flags = {"open": 1, "openat": 2}.get(name)
    return asking if flags is None else [argument(flags), (ANY_BIT, 1, 0, CHANGES_FILE), ALLOW, *asking]


def _search(bodies: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Find the body for a number by halves: the kernel runs a new filter on every number, for each thread."""
    if len(bodies) <= FEW:
        return [step for number, body in bodies for step in ((EQUAL, 0, len(body), number), *body)] + [ALLOW]
    middle = len(bodies) // 2
    lower, upper = _search(bodies[:middle]), _search(bodies[middle:])
    return [(AT_LEAST, 0, 1, bodies[middle][0]), (JUMP, 0, 0, len(lower)), *lower, *upper]


def _of_processes() -> dict[str, list[Instruction]]:
    """Give the bodies for calls of which only some uses are refused. Each ends by itself."""
    marks: list[Instruction] = [(EQUAL, 1, 0, RLIMIT_RSS), (EQUAL, 0, 1, RLIMIT_LOCKS), REFUSE]
    return {
        "clone": [argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACES), REFUSE, ALLOW],
        "clone3": [refuse(ENOSYS)],  # its flags lie in memory; libc then takes clone
        "personality": [argument(0), *one_of(0, ASK_PERSONALITY), REFUSE],
        "memfd_create": [argument(1), (ANY_BIT, 1, 0, MFD_NOEXEC_SEAL), REFUSE, ALLOW],  # else it could be executed
        "setrlimit": [argument(0), *marks, ALLOW],
        # Asking is fine; setting is for oneself, and not for what carries our marks.
        "prlimit64": [
            argument(2), (EQUAL, 0, 3, 0), argument(2, high=True), (EQUAL, 0, 1, 0), ALLOW,
            argument(0), (EQUAL, 1, 0, 0), REFUSE,
            argument(1), *marks, ALLOW,
        ],
        "ioctl": [argument(1), (EQUAL, 1, 0, TIOCSTI), (EQUAL, 0, 1, TIOCLINUX), REFUSE, ALLOW],
    }  # fmt: skip


def _of_modes() -> dict[str, list[Instruction]]:
    """Give the bodies for calls that set modes.

    No file may let others become the user, or root where that is the user: it would lie there for them, outside of
    all that is held here. Folders may be their group's, as shared ones are: `chmod` minds the user's bit only.
    """
    made: list[Instruction] = [(ANY_BIT, 0, 1, SET_USER | SET_GROUP), REFUSE, ALLOW]
    bodies = {name: [argument(index), *made] for name, index in (("creat", 1), ("mknod", 1), ("mknodat", 2))}
    for name, index in (("open", 1), ("openat", 2)):
        bodies[name] = [argument(index), (ANY_BIT, 1, 0, MAKES_FILE), ALLOW, argument(index + 1), *made]
    for name, index in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        bodies[name] = [argument(index), (ANY_BIT, 0, 1, SET_USER), REFUSE, ALLOW]
    bodies["openat2"] = [refuse(ENOSYS)]  # its mode lies in memory; whoever knows it takes openat then
    return bodies


def _of_sockets(network: Network, *, unix: bool) -> dict[str, list[Instruction]]:
    """Give the bodies for sockets.

    A pair of datagram sockets could be pointed at any path by `connect` or `sendto`: pairs are of streams.
    """
    pairs = [argument(0), (EQUAL, 1, 0, AF_UNIX), REFUSE, argument(1), (AND, 0, 0, SOCK_TYPE)]
    bodies = {"socketpair": [*pairs, *one_of(SOCK_STREAM, SOCK_SEQPACKET, *((SOCK_DGRAM,) if unix else ())), REFUSE]}
    families: list[Instruction] = [argument(0)]
    if unix:
        families += one_of(AF_UNIX)
    if network == "none":
        bodies["socket"] = [*families, REFUSE]
        if not unix:
            bodies |= {name: [REFUSE] for name in CALLS_ON_SOCKETS}
        return bodies
    kinds = (SOCK_STREAM, SOCK_DGRAM) if network == "all" else (SOCK_STREAM,)
    # libc and Node ask the kernel for the machine's addresses by netlink.
    netlink: list[Instruction] = [(EQUAL, 0, 4, AF_NETLINK), argument(2), (EQUAL, 0, 1, NETLINK_ROUTE), ALLOW, REFUSE]
    internet: list[Instruction] = [(EQUAL, 2, 0, AF_INET), (EQUAL, 1, 0, AF_INET6), REFUSE]
    if network != "all":  # Landlock's ports are TCP's: no other protocol that comes as a stream
        internet += [argument(2), (EQUAL, 2, 0, 0), (EQUAL, 1, 0, IPPROTO_TCP), REFUSE]
        if not unix:  # a socket that was never bound listens all the same, on a port that Landlock is not asked about
            bodies |= {name: [REFUSE] for name in LISTENING}
        for name, index in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            bodies[name] = [argument(index), (ANY_BIT, 0, 1, MSG_FASTOPEN), REFUSE, ALLOW]
    kind: list[Instruction] = [argument(1), (AND, 0, 0, SOCK_TYPE), *one_of(*kinds), REFUSE]
    bodies["socket"] = [*families, *netlink, *internet, *kind]
    return bodies


def digest(program: bytes) -> str:
    """Name a filter."""
    import hashlib  # 5 ms, and the spawner never names one

    return hashlib.sha256(program).hexdigest()


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def apply(program: bytes) -> None:
    """Hold this thread to a filter, for good. Needs no_new_privs."""
    steps = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // 8, ctypes.addressof(steps))
    kernel.prctl("seccomp", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(described))


def apply_and_listen(program: bytes, *, killable: bool = False) -> int:
    """Do the same with a filter that asks; give the descriptor of who is asked.

    `killable`: once somebody is at it, only a signal that kills ends a call, since what is done must not be repeated.
    """
    steps = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // 8, ctypes.addressof(steps))
    number = SYS_SECCOMP[os.uname().machine]
    flags = NEW_LISTENER | (WAIT_KILLABLE if killable else 0)
    return kernel.syscall("seccomp", number, SET_MODE_FILTER, flags, ctypes.byref(described))


def judge(program: bytes, data: bytes) -> int:
    """Run a filter as the kernel does, on what it saw of a call; give the errno with which it refuses, else 0."""
    value = judged(program, data)
    return value & ERROR_BITS if value & ~ERROR_BITS == REFUSAL else 0


def judged(program: bytes, data: bytes) -> int:
    """Do the same; give what it answers."""
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
