"""The filter, run step by step for both architectures: what it says of each call, with each network."""

import errno
import os
import re
import struct

import pytest

from anyplug.runtime.confine import seccomp

MACHINES = seccomp.ARCHITECTURES
ALLOWED = 0
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


def judge(machine, name, *arguments, network="none", unix=False, arch=None, number=None):
    """Run the filter on one call; give the errno, 0 for allowed."""
    table = seccomp.REFUSED | seccomp.EXAMINED
    number = table[name][MACHINES.index(machine)] if number is None else number
    words = [*arguments, *[0] * 6][:6]
    seen = struct.pack("=iIQ6Q", number, arch or seccomp.AUDIT_ARCH[machine], 0, *words)
    steps = list(struct.iter_unpack("=HBBI", seccomp.build(network, unix=unix, machine=machine)))
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
            is_so = {
                seccomp.EQUAL: loaded == value,
                seccomp.AT_LEAST: loaded >= value,
                seccomp.ANY_BIT: bool(loaded & value),
            }[code]
            at += yes if is_so else no


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_the_kernels(machine):
    if not os.path.exists(HEADERS[machine]):
        pytest.skip("no headers here")
    with open(HEADERS[machine], encoding="ascii") as file:
        header = file.read()
    for name, numbers in (seccomp.REFUSED | seccomp.EXAMINED | seccomp.BROKERED).items():
        found = re.search(rf"#define __NR(?:3264)?_{name}\s+(\d+)\n", header)
        number = numbers[MACHINES.index(machine)]
        if found is None:  # older headers, or an architecture without it
            assert number is None or number > 440
        else:
            assert int(found[1]) == number, name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("network", ["none", "ports", "all"])
def test_dangerous_calls_are_refused_with_every_network(machine, network):
    for name, numbers in seccomp.REFUSED.items():
        if numbers[MACHINES.index(machine)] is not None:
            assert judge(machine, name, network=network) == errno.EPERM, name


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_is_no_way_around(machine):
    other = seccomp.AUDIT_ARCH[MACHINES[1 - MACHINES.index(machine)]]
    assert judge(machine, "socket", arch=other) == errno.ENOSYS
    assert judge(machine, "socket", arch=0x40000003) == errno.ENOSYS  # 32-bit x86
    if machine == "x86_64":
        assert judge(machine, "", number=0x40000000 | 41) == errno.ENOSYS  # x32


@pytest.mark.parametrize("machine", MACHINES)
def test_every_other_call_is_allowed(machine):
    known = {numbers[MACHINES.index(machine)] for numbers in (seccomp.REFUSED | seccomp.EXAMINED).values()}
    for number in set(range(480)) - known:
        assert judge(machine, "", number=number) == ALLOWED


def test_an_unknown_architecture_has_no_filter():
    with pytest.raises(OSError, match="no filter for riscv64"):
        seccomp.build(machine="riscv64")


UNIX, INET, INET6, NETLINK, PACKET = 1, 2, 10, 16, 17
STREAM, DATAGRAM, RAW, SEQPACKET, NONBLOCK = 1, 2, 3, 5, 0o4000
SOCKETS = [
    # family, type, protocol: networks in which it is allowed
    ((INET, STREAM, 0), {"ports", "all"}),
    ((INET6, STREAM | NONBLOCK, 6), {"ports", "all"}),
    ((INET, STREAM, 262), {"all"}),  # MPTCP, which Landlock's ports do not know
    ((INET, DATAGRAM, 0), {"all"}),
    ((INET, RAW, 1), set()),
    ((INET, SEQPACKET, 132), set()),
    ((NETLINK, RAW, 0), {"ports", "all"}),
    ((NETLINK, RAW, 9), set()),
    ((PACKET, RAW, 0), set()),
    ((UNIX, STREAM, 0), set()),
    ((40, STREAM, 0), set()),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("network", ["none", "ports", "all"])
def test_sockets(machine, network):
    for given, allowed in SOCKETS:
        assert (judge(machine, "socket", *given, network=network) == ALLOWED) == (network in allowed), given
        if given[0] == UNIX:
            assert judge(machine, "socket", *given, network=network, unix=True) == ALLOWED


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
        assert judge(machine, name, network="ports", unix=True) == ALLOWED  # for sockets of this machine
    assert judge(machine, "connect", network="ports") == ALLOWED


HIGH = 1 << 32
CREATE, TMPFILE = 0o100, 0o20200000


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
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


def test_a_filter_has_a_name_that_depends_on_what_it_lets_through():
    names = {
        seccomp.digest(seccomp.build(network, unix=unix)) for network in ("none", "ports", "all") for unix in (0, 1)
    }
    assert len(names) == 6


@pytest.mark.parametrize("machine", MACHINES)
def test_a_broker_is_asked_about_changes_and_about_nothing_else(machine):
    column = MACHINES.index(machine)
    program = seccomp.build(machine=machine, brokered=True)

    def answer(name, *arguments):
        number = (seccomp.BROKERED | seccomp.EXAMINED)[name][column]
        words = [*arguments, *[0] * 6][:6]
        return seccomp.judged(program, struct.pack("=iIQ6Q", number, seccomp.AUDIT_ARCH[machine], 0, *words))

    asked = seccomp.ASK[3]
    assert answer("openat", 0, 0, os.O_RDONLY | os.O_CLOEXEC) == seccomp.ALLOW[3]
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE):
        assert answer("openat", 0, 0, flags) == asked
    assert answer("openat", 0, 0, os.O_CREAT, 0o4755) == seccomp.REFUSE[3]  # what is refused is not asked about
    assert answer("bind") == seccomp.REFUSE[3]
    for name, numbers in seccomp.BROKERED.items():
        if numbers[column] is not None and name not in {"open", "openat", "bind"}:
            assert answer(name) == asked, name
    for request in seccomp.SUBVOLUMES:
        assert answer("ioctl", 0, request) == seccomp.REFUSE[3]
    assert answer("ioctl", 0, 0x40049409) == seccomp.ALLOW[3]  # FICLONE
