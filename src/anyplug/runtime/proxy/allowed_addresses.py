"""Which hosts were granted, and which of a host's addresses may be connected to. Pure.

A grant by name is one for what that name is on the internet. Who answers for the name could make it lead into the
user's own network, where machines trust one another: so an address that is not public is connected to only if the
grants name it themselves, or are for `localhost`.
"""

import ipaddress
from collections.abc import Callable

from anyplug.model.permissions import Destination

LOCALHOST = "localhost"
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 addresses, as networks without IPv4 write them
UNICAST = ipaddress.IPv6Network("2000::/3")  # all that is given out of IPv6
IPV4_BITS = 0xFFFFFFFF


def is_granted(granted: frozenset[Destination], host: str, port: int) -> bool:
    """Return whether a host, in its one spelling, may be talked to on a port."""
    return Destination(host, port) in granted or Destination(host, 0) in granted


def usable(
    granted: frozenset[Destination], host: str, port: int, found: list[str], is_own: Callable[[str], bool]
) -> list[str]:
    """Return those of the addresses that a granted host has to which a connection may be made.

    `is_own` says whether a public address is this machine's.
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
    """Return whether a host, in its one spelling, is an address and no name."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def is_public(text: str) -> bool:
    """Return whether an address is one of the internet: not this machine's, its network's, a group's or nobody's."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & IPV4_BITS)
        if inner is None:
            return address in UNICAST and address.is_global
        address = inner
    return address.is_global and not address.is_multicast and not address.is_reserved
