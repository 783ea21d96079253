"""Networks: CIDRs of IPv4 and IPv6. Nothing here uses the network."""

import ipaddress
from typing import Any, Final

from anyplug.rego.builtins.builtin_table import ANY, STRING, builtin, can_be_read, wrong
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported, OperandError
from anyplug.rego.values.values import Object, Set, boolean, type_name

MAPPED: Final = 96  # bits before an IPv4 address that is written as IPv6
MAX_ADDRESSES: Final = 1 << 20  # of a network that is written out
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _network(text: Any) -> Network:
    """Read a CIDR as Go does: IPv4 that is written as IPv6 is IPv4."""
    if text.__class__ is not str:
        raise wrong(1, "string", text)
    address, _, size = text.partition("/")
    if "%" not in address and size.isdecimal() and size.isascii():
        try:
            found = ipaddress.ip_network(text, strict=False)
        except ValueError:
            pass
        else:
            if found.version == 6 and found.prefixlen >= MAPPED and found.network_address.ipv4_mapped:  # noqa: PLR2004
                return ipaddress.IPv4Network((found.network_address.ipv4_mapped, found.prefixlen - MAPPED))
            return found
    msg = f"invalid CIDR address: {text}"
    raise BuiltinError(msg)


def _address(text: str) -> Address | None:
    """Read an address as Go does: IPv4 that is written as IPv6 is IPv4, and zones are refused."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if "%" in text else getattr(found, "ipv4_mapped", None) or found


def _holds(network: Network, text: Any) -> bool:
    address = _address(text) if text.__class__ is str else None
    if address is not None:
        return address in network
    try:
        other = _network(text)
    except BuiltinError:
        msg = f"invalid CIDR address: {text}"
        raise BuiltinError(msg) from None
    return other.version == network.version and other.subnet_of(network)  # type: ignore[arg-type]


@builtin("net.cidr_contains", STRING, STRING)
def cidr_contains(network: Any, text: Any) -> Any:
    """Return whether a network holds an address or another network."""
    return boolean(_holds(_network(network), text))


@builtin("net.cidr_is_valid", ANY)
def cidr_is_valid(text: Any) -> Any:
    """Return whether a text is a CIDR."""
    return can_be_read(_network, text)


def _intersects(left: Any, right: Any) -> Any:
    one, other = _network(left), _network(right)
    return boolean(one.version == other.version and one.overlaps(other))


builtin("net.cidr_intersects", STRING, STRING)(_intersects)


def _entries(index: int, value: Any) -> list[tuple[Any, str]]:
    """Return what net.cidr_contains_matches goes through, the key and the text of each: of a scalar, nothing."""
    if value.__class__ is str:
        return [(value, value)]
    if value.__class__ is tuple:
        pairs: Any = enumerate(value)
    elif value.__class__ is Object:
        pairs = value.pairs()
    elif value.__class__ is Set:
        pairs = [(item, item) for item in value.ordered()]
    else:
        return []
    found: list[tuple[Any, str]] = []
    for key, item in pairs:
        text = item[0] if item.__class__ is tuple and item else item
        if text.__class__ is not str and (item.__class__ is not tuple or not item):
            msg = f"operand {index}: element must be string or non-empty array"
            raise BuiltinError(msg)
        found.append((key, text))
    return found


@builtin("net.cidr_contains_matches", ANY, ANY, context=True)
def cidr_contains_matches(context: Any, networks: Any, others: Any) -> Any:
    """Return every pair of a network and what it holds."""
    ours = _entries(1, networks)
    theirs = _entries(2, others) if ours else []
    context.spend(len(ours) * len(theirs))
    return Set((key, other) for key, network in ours for other, text in theirs if _holds(_network(network), text))


@builtin("net.cidr_expand", STRING, context=True)
def cidr_expand(context: Any, text: Any) -> Any:
    """Return every address of a network."""
    network = _network(text)
    if network.num_addresses > MAX_ADDRESSES:
        msg = f"a network of more than {MAX_ADDRESSES} addresses"
        raise NotSupported(msg)
    context.spend(network.num_addresses)
    return Set(str(address) for address in network)


@builtin("net.cidr_merge", ANY)
def cidr_merge(texts: Any) -> Any:
    """Return the fewest networks that hold the same addresses."""
    if texts.__class__ not in {tuple, Set}:
        msg = f"operand 1 must be one of {{array, set}} but got {type_name(texts)}"
        raise OperandError(msg)
    found: dict[int, list[Any]] = {4: [], 6: []}
    for text in texts:
        if text.__class__ is not str:
            msg = f"operand 1 must be array or set of strings but got {type_name(text)}"
            raise OperandError(msg)
        if "/" not in text:
            address = _address(text)
            if address is None:
                msg = f"invalid CIDR address: {text}"
                raise BuiltinError(msg)
            if address.version == 6:  # noqa: PLR2004 - IPv6
                msg = "IPv6 invalid: needs prefix length"
                raise BuiltinError(msg)
            msg = "net.cidr_merge of an address without the length of its prefix"
            raise NotSupported(msg)
        network = _network(text)
        if ":" in text and network.version == 4:  # noqa: PLR2004 - IPv4
            msg = "net.cidr_merge of IPv4 that is written as IPv6"
            raise NotSupported(msg)
        found[network.version].append(network)
    if found[4] and any(network.prefixlen < MAPPED for network in found[6]):
        msg = "net.cidr_merge of IPv4 together with wide networks of IPv6"
        raise NotSupported(msg)
    return Set(str(network) for group in found.values() for network in ipaddress.collapse_addresses(group))
