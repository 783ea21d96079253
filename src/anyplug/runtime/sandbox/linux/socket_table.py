"""Every socket family, and which of its sockets a confined program may create. Data only.

What is not listed in `SOCKETS` is refused: a family, a type of a family, a protocol of a type. Part of the spawner's
start-up: the standard library only.
"""

from __future__ import annotations

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
STREAM, DATAGRAM, RAW, SEQPACKET = 1, 2, 3, 5
TYPE = 0xF  # the part of a type without flags
TCP, UDP, ROUTE, ANY = 6, 17, 0, 0

Rule = tuple[int, tuple[int, ...], tuple[int, ...]]  # family, types, protocols

_TCP: tuple[Rule, ...] = ((AF_INET, (STREAM,), (ANY, TCP)), (AF_INET6, (STREAM,), (ANY, TCP)))
_UDP: tuple[Rule, ...] = ((AF_INET, (DATAGRAM,), (ANY, UDP)), (AF_INET6, (DATAGRAM,), (ANY, UDP)))
# libc and Node query the machine's addresses through netlink.
_ADDRESSES: tuple[Rule, ...] = ((AF_NETLINK, (RAW, DATAGRAM), (ROUTE,)),)
# By the kind of network that was granted. Landlock's ports are TCP's, and so is the proxy for hosts.
SOCKETS: dict[str, tuple[Rule, ...]] = {
    "none": (),
    "ports": (*_TCP, *_ADDRESSES),
    "hosts": (*_TCP, *_ADDRESSES),
    "all": (*_TCP, *_UDP, *_ADDRESSES),
}
# In addition with `network:unix`. SOCK_RAW would be a datagram socket by another name.
UNIX: tuple[Rule, ...] = ((AF_UNIX, (STREAM, DATAGRAM, SEQPACKET), (ANY, AF_UNIX)),)
# Pairs, and sockets in the plugin's own folders, which the broker connects. A datagram socket could be pointed at any
# path by `sendto`, so only with `network:unix`.
OWN: tuple[Rule, ...] = ((AF_UNIX, (STREAM, SEQPACKET), (ANY, AF_UNIX)),)

GRANTED, NEVER = "granted", "never"
# Every family that Linux has had, so that each was decided about.
FAMILIES: dict[int, tuple[str, str]] = {
    0: ("unspecified", NEVER), AF_UNIX: ("Unix", GRANTED), AF_INET: ("IPv4", GRANTED), 3: ("AX.25", NEVER),
    4: ("IPX", NEVER), 5: ("AppleTalk", NEVER), 6: ("NET/ROM", NEVER), 7: ("bridge", NEVER), 8: ("ATM PVC", NEVER),
    9: ("X.25", NEVER), AF_INET6: ("IPv6", GRANTED), 11: ("ROSE", NEVER), 12: ("DECnet", NEVER),
    13: ("NetBEUI", NEVER), 14: ("security", NEVER), 15: ("key", NEVER), AF_NETLINK: ("netlink", GRANTED),
    17: ("packet", NEVER), 18: ("Ash", NEVER), 19: ("Econet", NEVER), 20: ("ATM SVC", NEVER), 21: ("RDS", NEVER),
    22: ("SNA", NEVER), 23: ("IrDA", NEVER), 24: ("PPPoX", NEVER), 25: ("Wanpipe", NEVER), 26: ("LLC", NEVER),
    27: ("InfiniBand", NEVER), 28: ("MPLS", NEVER), 29: ("CAN", NEVER), 30: ("TIPC", NEVER),
    31: ("Bluetooth", NEVER), 32: ("IUCV", NEVER), 33: ("RxRPC", NEVER), 34: ("ISDN", NEVER), 35: ("Phonet", NEVER),
    36: ("802.15.4", NEVER), 37: ("CAIF", NEVER), 38: ("kernel crypto", NEVER), 39: ("NFC", NEVER),
    40: ("vsock", NEVER), 41: ("KCM", NEVER), 42: ("Qualcomm IPC", NEVER), 43: ("SMC", NEVER), 44: ("XDP", NEVER),
    45: ("MCTP", NEVER), 46: ("protocol of its own", NEVER),
}  # fmt: skip

LAST = (1 << 32) - 1
# By level, the options that are refused, from and to. Every option of a level that is not here is refused.
OPTIONS: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((26, 26), (50, 52)),  # SOL_SOCKET: programs for the kernel (SO_ATTACH_*)
    0: ((16, 17), (64, LAST)),  # IP: IPsec; the tables of packet filters and of multicast routers
    TCP: ((19, 19), (31, 31)),  # TCP_REPAIR; TCP_ULP, which turns a TCP socket into one without ports
    UDP: ((100, 100),),  # UDP_ENCAP
    41: ((1, 1), (34, 35), (64, 65), (200, LAST)),  # IPv6: IPV6_ADDRFORM; the same as of IP
    270: (),  # netlink
}
