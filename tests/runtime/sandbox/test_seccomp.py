"""The filter, run step by step for both architectures: what it says of each call, with each network."""

import collections
import errno
import functools
import operator
import os
import re
import struct

import pytest

from anyplug.runtime.sandbox.linux import seccomp, socket_table, syscall_table
from rows import each_row

MACHINES = seccomp.ARCHITECTURES
ALLOWED = 0
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


# Names that the kernel's symbols have, and its table of calls has not: other architectures' and other numbers' calls.
ELSEWHERE = re.compile(
    r"\w*(16|32)(_time32)?|\w+_time32|ia32_\w+|old\w+|old_\w+|s390_\w+|pciconfig_\w+|spu_\w+|vm86\w*"
)
ALSO_ELSEWHERE = {
    "fadvise64_64", "fstatfs64", "statfs64", "sendfile64", "gethostname", "ipc", "llseek", "mmap_pgoff", "ni_syscall",
    "nice", "recv", "rtas", "send", "sgetmask", "signal", "sigpending", "sigprocmask", "sigsuspend", "socketcall",
    "ssetmask", "stime", "subpage_prot", "sync_file_range2", "waitpid",
}  # fmt: skip
OTHERWISE_CALLED = {
    "newfstat": "fstat", "newlstat": "lstat", "newstat": "stat", "newuname": "uname", "umount": "umount2",
}  # fmt: skip
# In the generic header and not on 64-bit ARM: calls of 32-bit machines, and words that are no calls.
NOT_ON_ARM = {"sync_file_range2", "arch_specific_syscall", "syscalls"}
TIME64 = range(403, 424)


def in_header(machine):
    """The numbers in this machine's headers, by name; skips where there are none."""
    if not os.path.exists(HEADERS[machine]):
        pytest.skip("no headers here")
    with open(HEADERS[machine], encoding="ascii") as file:
        found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\n", file.read())
    numbers = {name: int(number) for name, number in found}
    if machine == "aarch64":
        numbers = {
            {"fstatat": "newfstatat"}.get(name, name): number
            for name, number in numbers.items()
            if name not in NOT_ON_ARM and number not in TIME64
        }
    return numbers


def of_verdict(verdict):
    return {
        name: numbers
        for each, _, calls in syscall_table.DECISIONS
        for name, numbers in calls.items()
        if each == verdict
    }


COMPARISONS = {seccomp.EQUAL: operator.eq, seccomp.AT_LEAST: operator.ge, seccomp.ANY_BIT: operator.and_}


@functools.cache
def filter_steps(machine, network, *, unix, watches):
    return list(struct.iter_unpack("=HBBI", seccomp.build(network, unix=unix, watches=watches, machine=machine)))


def judge(machine, name, *arguments, network="none", unix=False, watches=False, arch=None, number=None):
    """Run the filter on one call; give the errno, 0 for allowed."""
    number = syscall_table.NUMBERS[name][MACHINES.index(machine)] if number is None else number
    words = [*arguments, *[0] * 6][:6]
    seen = struct.pack("=iIQ6Q", number, arch or seccomp.AUDIT_ARCH[machine], 0, *words)
    steps = filter_steps(machine, network, unix=unix, watches=watches)
    at, loaded = 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == seccomp.LOAD:
            loaded = struct.unpack_from("=I", seen, value)[0]
        elif code == seccomp.JUMP:
            at += value
        elif code == seccomp.AND:
            loaded &= value
        elif code == seccomp.RETURN:
            return value & 0xFFFF if value != seccomp.ALLOW[3] else ALLOWED
        else:
            at += yes if COMPARISONS[code](loaded, value) else no


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_the_kernels(machine):
    known = in_header(machine)
    for name, numbers in syscall_table.NUMBERS.items():
        number = numbers[MACHINES.index(machine)]
        if name not in known:  # older headers, or an architecture without it
            assert number is None or number > 440 or name in {"uretprobe", "uprobe"}, name
        else:
            assert known[name] == number, name


@pytest.mark.claim("every-syscall-decided")
@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_in_the_kernels_headers_is_decided(machine):
    assert in_header(machine).keys() - syscall_table.NUMBERS.keys() == set()


@pytest.mark.claim("every-syscall-decided")
def test_every_call_of_the_running_kernel_is_decided():
    with open("/proc/kallsyms", encoding="ascii") as file:
        found = set(re.findall(r" __(?:x64|arm64)_sys_(\w+)$", file.read(), re.MULTILINE))
    calls = {OTHERWISE_CALLED.get(name, name) for name in found if not ELSEWHERE.fullmatch(name)} - ALSO_ELSEWHERE
    assert calls - syscall_table.NUMBERS.keys() == set()


def test_every_call_is_decided_once_and_with_a_reason():
    names = collections.Counter(name for _, _, calls in syscall_table.DECISIONS for name in calls)
    assert [name for name, times in names.items() if times > 1] == []
    for verdict, reason, calls in syscall_table.DECISIONS:
        assert verdict in {syscall_table.ALLOW, syscall_table.REFUSE, syscall_table.ABSENT, syscall_table.EXAMINE}
        assert reason
        assert calls
    for column in range(2):
        numbers = [pair[column] for pair in syscall_table.NUMBERS.values() if pair[column] is not None]
        assert len(numbers) == len(set(numbers))


NETWORKS = ("none", "ports", "hosts", "all")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_filter_does_what_the_table_says_with_every_network(machine, network):
    for verdict, answer in (("allow", ALLOWED), ("refuse", errno.EPERM), ("absent", errno.ENOSYS)):
        for name, numbers in of_verdict(verdict).items():
            if numbers[MACHINES.index(machine)] is not None:
                assert judge(machine, name, network=network, unix=network == "all") == answer, name


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_is_no_way_around(machine):
    other = seccomp.AUDIT_ARCH[MACHINES[1 - MACHINES.index(machine)]]
    assert judge(machine, "socket", arch=other) == errno.ENOSYS
    assert judge(machine, "socket", arch=0x40000003) == errno.ENOSYS  # 32-bit x86
    if machine == "x86_64":
        assert judge(machine, "", number=0x40000000 | 41) == errno.ENOSYS  # x32


@pytest.mark.claim("unknown-syscalls-closed")
@pytest.mark.parametrize("machine", MACHINES)
def test_a_number_that_is_not_in_the_table_is_no_call(machine):
    known = {numbers[MACHINES.index(machine)] for numbers in syscall_table.NUMBERS.values()}
    for number in {*range(600), 0x3FFFFFFF, 0xFFFFFFFF & -1} - known:
        assert (
            judge(machine, "", network="all", unix=True, watches=True, number=number - (number >> 31 << 32))
            == errno.ENOSYS
        )


def test_an_unknown_architecture_has_no_filter():
    with pytest.raises(OSError, match="no filter for riscv64"):
        seccomp.build(machine="riscv64")


UNIX, INET, INET6, NETLINK, PACKET = 1, 2, 10, 16, 17
STREAM, DATAGRAM, RAW, RDM, SEQPACKET, DCCP, OLD_PACKET, NONBLOCK = 1, 2, 3, 4, 5, 6, 10, 0o4000
TYPES = (STREAM, DATAGRAM, RAW, RDM, SEQPACKET, DCCP, OLD_PACKET)
ICMP, TCP, UDP, DCCP_PROTOCOL, ICMP6, SCTP, UDPLITE, RAW_PROTOCOL, SMC, MPTCP = (
    1,
    6,
    17,
    33,
    58,
    132,
    136,
    255,
    256,
    262,
)
PROTOCOLS = (0, ICMP, 2, TCP, 9, 15, UDP, DCCP_PROTOCOL, ICMP6, SCTP, UDPLITE, RAW_PROTOCOL, SMC, MPTCP)
IS_TCP = {(family, STREAM, protocol) for family in (INET, INET6) for protocol in (0, TCP)}
IS_UDP = {(family, DATAGRAM, protocol) for family in (INET, INET6) for protocol in (0, UDP)}
ADDRESSES = {(NETLINK, RAW, 0), (NETLINK, DATAGRAM, 0)}
NAMED = {(UNIX, kind, protocol) for kind in (STREAM, DATAGRAM, SEQPACKET) for protocol in (0, 1)}
# What each network opens, said once more in other words than the table's.
OPEN = {"none": set(), "ports": IS_TCP | ADDRESSES, "hosts": IS_TCP | ADDRESSES, "all": IS_TCP | IS_UDP | ADDRESSES}


@pytest.mark.claim("sockets-exact")
@each_row("machine", MACHINES)
@each_row("network", NETWORKS)
@each_row("unix", [False, True])
def test_a_network_opens_its_sockets_and_no_others(machine, network, unix):
    found = {
        (family, kind, protocol)
        for family in range(48)
        for kind in TYPES
        for protocol in PROTOCOLS
        if judge(machine, "socket", family, kind | NONBLOCK, protocol, network=network, unix=unix) == ALLOWED
    }
    assert found == OPEN[network] | (NAMED if unix else set())


def test_every_family_is_decided():
    assert socket_table.FAMILIES.keys() >= set(range(47))
    opened = {rule[0] for rules in (*socket_table.SOCKETS.values(), socket_table.UNIX) for rule in rules}
    assert opened == {family for family, (_, when) in socket_table.FAMILIES.items() if when == socket_table.GRANTED}


@each_row("machine", MACHINES)
@each_row(
    ("level", "option", "answer"),
    [
        (1, 2, ALLOWED),  # SO_REUSEADDR
        (1, 26, errno.EPERM),  # SO_ATTACH_FILTER
        (1, 49, ALLOWED),
        (1, 50, errno.EPERM),  # SO_ATTACH_BPF
        (1, 52, errno.EPERM),  # SO_ATTACH_REUSEPORT_EBPF
        (1, 53, ALLOWED),
        (0, 1, ALLOWED),  # IP_TOS
        (0, 64, errno.EPERM),  # packet filters
        (0, 200, errno.EPERM),  # multicast routers
        (6, 1, ALLOWED),  # TCP_NODELAY
        (6, 30, ALLOWED),  # TCP_FASTOPEN_CONNECT, which goes through `connect`
        (6, 31, errno.EPERM),  # TCP_ULP
        (17, 100, errno.EPERM),  # UDP_ENCAP
        (41, 26, ALLOWED),  # IPV6_V6ONLY
        (41, 1, errno.EPERM),  # IPV6_ADDRFORM
        (41, 67, ALLOWED),  # IPV6_TCLASS
        (270, 1, ALLOWED),
        (279, 1, errno.ENOPROTOOPT),  # keys of the kernel's crypto
        (284, 1, errno.ENOPROTOOPT),  # MPTCP
        (6 + (1 << 32), 31, errno.EPERM),  # the kernel looks at the low half only
    ],
)
def test_options_of_sockets(machine, level, option, answer):
    assert judge(machine, "setsockopt", 3, level, option, network="all") == answer


@pytest.mark.parametrize("machine", MACHINES)
def test_pairs_are_of_streams_since_datagrams_could_be_sent_anywhere(machine):
    for network in ("none", "ports", "all"):
        assert judge(machine, "socketpair", UNIX, STREAM | NONBLOCK, network=network) == ALLOWED
        assert judge(machine, "socketpair", UNIX, SEQPACKET, network=network) == ALLOWED
        assert judge(machine, "socketpair", UNIX, DATAGRAM, network=network) == errno.EPERM
        assert judge(machine, "socketpair", INET, STREAM, network=network) == errno.EPERM
    assert judge(machine, "socketpair", UNIX, DATAGRAM, unix=True) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_network_nothing_is_connected_or_listened_on(machine):
    for name in seccomp.CALLS_ON_SOCKETS:
        assert judge(machine, name) == errno.EPERM
        assert judge(machine, name, network="all") == ALLOWED
        assert judge(machine, name, unix=True) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_ports_cannot_be_passed_by_sending_at_once(machine):
    for name, index in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        flags = [0] * 6
        flags[index] = seccomp.MSG_FASTOPEN
        assert judge(machine, name, *flags, network="ports") == errno.EPERM
        assert judge(machine, name, network="ports") == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_who_may_connect_to_a_port_may_not_listen_on_one_that_the_kernel_chooses(machine):
    for name in ("listen", "accept", "accept4"):
        assert judge(machine, name, network="ports") == errno.EPERM
        assert judge(machine, name, network="ports", unix=True) == errno.EPERM  # nothing shows whose socket it is
        assert judge(machine, name, network="hosts", unix=True) == ALLOWED  # its network has nobody else in it
    assert judge(machine, "connect", network="ports") == ALLOWED


HIGH = 1 << 32
CREATE, TMPFILE = 0o100, 0o20200000


@each_row("machine", MACHINES)
@each_row(
    ("name", "arguments", "answer"),
    [
        ("clone", (0x01200011,), ALLOWED),  # fork
        ("clone", (0x003D0F00,), ALLOWED),  # a thread
        ("clone", (0x10000000,), errno.EPERM),
        ("clone", (0x00020000 | 17,), errno.EPERM),
        ("clone3", (), errno.ENOSYS),
        ("personality", (0xFFFFFFFF,), ALLOWED),
        ("personality", (0,), ALLOWED),
        ("personality", (0x0040000,), errno.EPERM),  # no randomisation
        ("memfd_create", (0, 0), errno.EPERM),
        ("memfd_create", (0, 1 | 8), ALLOWED),
        ("memfd_create", (0, 0x10), errno.EPERM),  # MFD_EXEC
        ("setrlimit", (10,), errno.EPERM),
        ("setrlimit", (5,), errno.EPERM),
        ("setrlimit", (10 + HIGH,), errno.EPERM),  # the kernel looks at the low half only
        ("setrlimit", (7,), ALLOWED),
        ("prlimit64", (0, 10, 0), ALLOWED),  # asking
        ("prlimit64", (99, 10, 0), ALLOWED),
        ("prlimit64", (0, 10, 4096), errno.EPERM),
        ("prlimit64", (0, 10, HIGH), errno.EPERM),  # a pointer whose low half is zero
        ("prlimit64", (0, 5, 4096), errno.EPERM),
        ("prlimit64", (0, 7, 4096), ALLOWED),
        ("prlimit64", (99, 7, 4096), errno.EPERM),  # somebody else's
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x5412 + HIGH), errno.EPERM),
        ("ioctl", (0, 0x541C), errno.EPERM),
        ("ioctl", (0, 0x541B), ALLOWED),  # how much there is to read
        ("ioctl", (0, 0x40049409), ALLOWED),  # cp shares blocks
        ("ioctl", (0, 0x80086601), ALLOWED),  # attributes: to look at
        ("ioctl", (0, 0x40086602), errno.EPERM),  # and to set
        ("ioctl", (0, 0x40806685), errno.EPERM),  # FS_IOC_ENABLE_VERITY: no one writes to that file again
        ("ioctl", (0, 0x5000940E), errno.EPERM),  # BTRFS_IOC_SUBVOL_CREATE: a folder that Landlock does not see made
        ("ioctl", (0, 0x8912), ALLOWED),  # addresses of interfaces: to look at
        ("ioctl", (0, 0x8914), errno.EPERM),  # and to set
        ("ioctl", (0, 0xC0046400), ALLOWED),  # of a graphics card, where Landlock decides
        ("fcntl", (0, 1024, 1), errno.EPERM),  # F_SETLEASE
        ("fcntl", (0, 1030, 0), ALLOWED),  # F_DUPFD_CLOEXEC
        ("prctl", (62, 1), errno.EPERM),  # PR_SCHED_CORE
        ("prctl", (15, 1), ALLOWED),  # its name
        ("seccomp", (1, 0), ALLOWED),
        ("seccomp", (1, 8), errno.EPERM),  # a listener
        ("setpriority", (0, 0, 19), ALLOWED),
        ("setpriority", (0, 1, 19), errno.EPERM),  # its spawner's
        ("setpriority", (2, 0, 19), errno.EPERM),  # all of the user's
        ("sched_setscheduler", (0, 5), ALLOWED),  # SCHED_IDLE
        ("sched_setscheduler", (0, 1), errno.EPERM),  # SCHED_FIFO
        ("sched_setscheduler", (1, 5), errno.EPERM),
        ("sched_setaffinity", (0,), ALLOWED),
        ("sched_setaffinity", (1,), errno.EPERM),
        ("ioprio_set", (1, 0, 0x6000), ALLOWED),
        ("ioprio_set", (1, 0, 0x2000), errno.EPERM),  # real time
        ("ioprio_set", (1, 1, 0x6000), errno.EPERM),
        ("mknodat", (0, 0, 0o020000), errno.EPERM),  # a whiteout, which needs no capability
        ("mknodat", (0, 0, 0o010600), ALLOWED),  # a pipe with a name
        ("renameat2", (0, 0, 0, 0, 1), ALLOWED),
        ("renameat2", (0, 0, 0, 0, 4), errno.EPERM),  # leaves a whiteout
        ("ioctl", (0, 0x5401), ALLOWED),
        ("openat", (0, 0, 2, 0o4755), ALLOWED),  # opens what is there: the mode is whatever lay in the register
        ("openat", (0, 0, CREATE, 0o644), ALLOWED),
        ("openat", (0, 0, CREATE, 0o4755), errno.EPERM),
        ("openat", (0, 0, CREATE, 0o2755), errno.EPERM),
        ("openat", (0, 0, TMPFILE, 0o4755), errno.EPERM),
        ("openat2", (), errno.ENOSYS),
        ("mknodat", (0, 0, 0o104755), errno.EPERM),
        ("mknodat", (0, 0, 0o100644), ALLOWED),
        ("fchmod", (0, 0o4755), errno.EPERM),
        ("fchmod", (0, 0o755), ALLOWED),
        ("fchmodat", (0, 0, 0o4755 + HIGH), errno.EPERM),
        ("fchmodat", (0, 0, 0o2755), ALLOWED),  # a folder of a group's
        ("fchmodat2", (0, 0, 0o6755), errno.EPERM),
    ],
)
def test_only_some_uses_are_refused(machine, name, arguments, answer):
    assert judge(machine, name, *arguments) == answer


@pytest.mark.parametrize(("name", "index"), [("open", 2), ("creat", 1), ("mknod", 1), ("chmod", 1)])
def test_the_older_calls_set_no_such_modes_either(name, index):
    arguments = [0, CREATE, 0]
    for mode, answer in ((0o4755, errno.EPERM), (0o755, ALLOWED)):
        assert judge("x86_64", name, *arguments[:index], mode) == answer


@pytest.mark.parametrize("machine", MACHINES)
def test_who_may_not_read_files_watches_none(machine):
    assert judge(machine, "inotify_init1") == errno.ENOSYS
    assert judge(machine, "inotify_add_watch") == errno.EPERM
    assert judge(machine, "inotify_init1", watches=True) == ALLOWED
    assert judge(machine, "inotify_add_watch", watches=True) == ALLOWED


def test_a_filter_has_a_name_that_depends_on_what_it_lets_through():
    names = {
        seccomp.digest(seccomp.build(network, unix=unix)) for network in ("none", "ports", "all") for unix in (0, 1)
    }
    assert len(names) == 6


# They make and remove subvolumes, and so folders with all that is in them, past Landlock and the broker.
SUBVOLUMES = (0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F, 0x4020BC10, 0x4020BC11)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_broker_is_asked_about_changes_and_about_nothing_else(machine):
    column = MACHINES.index(machine)
    program = seccomp.build(machine=machine, brokered=True)

    def answer(name, *arguments):
        number = syscall_table.NUMBERS[name][column]
        words = [*arguments, *[0] * 6][:6]
        return seccomp.judged(program, struct.pack("=iIQ6Q", number, seccomp.AUDIT_ARCH[machine], 0, *words))

    asked, allowed, refused = seccomp.ASK[3], seccomp.ALLOW[3], seccomp.REFUSE[3]
    assert answer("openat", 0, 0, os.O_RDONLY | os.O_CLOEXEC) == allowed
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE):
        assert answer("openat", 0, 0, flags) == asked
    assert answer("openat", 0, 0, os.O_CREAT, 0o4755) == refused  # what is refused is not asked about
    assert answer("bind") == refused
    for name, numbers in seccomp.BROKERED.items():
        if numbers[column] is not None and name not in {"open", "openat", "bind"}:
            assert answer(name) == asked, name
    for network in ("none", "hosts", "all"):
        program = seccomp.build(network, machine=machine, own_sockets=True)
        assert answer("connect") == answer("bind") == asked
        assert answer("listen") == (asked if network == "hosts" else allowed)
        assert answer("openat", 0, 0, os.O_CREAT) == allowed
        assert [answer("socket", UNIX, kind) for kind in (STREAM, SEQPACKET)] == [allowed] * 2
        assert [answer("socket", UNIX, kind) for kind in (DATAGRAM, RAW)] == [refused] * 2
    for request in SUBVOLUMES:
        assert answer("ioctl", 0, request) == refused
    assert answer("ioctl", 0, 0x40049409) == allowed  # FICLONE
