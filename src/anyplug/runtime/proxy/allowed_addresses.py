"""Which hosts were granted, and which of a host's addresses may be connected to. Pure.

A grant by name means that name on the internet. The owner of the name could make it resolve into the user's own
network, where machines trust one another: so a non-public address is connected to only if the grants name it
themselves, or are for `localhost`.
"""

import ipaddress
from collections.abc import Callable

from anyplug.model.permissions import Destination

LOCALHOST = "localhost"
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 addresses in networks without IPv4
UNICAST = ipaddress.IPv6Network("2000::/3")  # all assigned IPv6 addresses
IPV4_BITS = 0xFFFFFFFF


def is_granted(granted: frozenset[Destination], host: str, port: int) -> bool:
    """Return whether a host, in canonical spelling, may be connected to on a port."""
    return Destination(host, port) in granted or Destination(host, 0) in granted


def usable(
    granted: frozenset[Destination], host: str, port: int, found: list[str], is_own: Callable[[str], bool]
) -> list[str]:
    """Return those of a granted host's addresses that may be connected to.

    `is_own` tells whether a public address is this machine's.
    """
    if is_address(host):
        return [host]
    if host == LOCALHOST:
        return [address for address in found if ipaddress.ip_address(address).is_loopback]
    return [
        address
        for address in found
        if is_granted(granted, address, port) or (is_public(address) and not is_own(address))
    ]


def is_address(host: str) -> bool:
    """Return whether a host, in canonical spelling, is an address and not a name."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def is_public(text: str) -> bool:
    """Return whether an address is public: not local, private, multicast or unassigned."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & IPV4_BITS)
        if inner is None:
            return address in UNICAST and address.is_global
        address = inner
    return address.is_global and not address.is_multicast and not address.is_reserved
