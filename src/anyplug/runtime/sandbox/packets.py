"""Packets between a host and its spawners: values one way, words the other, and file descriptors both ways.

The host sends Python values: both ends run the same interpreter, and a spawner trusts its host. A spawner sends text,
since plugins are closer to it. Part of the spawner's start-up: `_socket` and `marshal` are available at once, while
`socket` and `json` take 13 ms together.
"""

from __future__ import annotations

import _socket
import marshal
import struct

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

INT = struct.calcsize("i")
ENDED = b"ended"  # the last packet of a spawner: no program is left
MARK = "\0"  # between the parts of a word; neither paths nor reasons contain it


def encode(value: Any) -> bytes:
    """Encode a value of plain types, including file names that are not UTF-8."""
    try:
        return marshal.dumps(value)
    except ValueError:  # a number or string of a subclass
        import json  # takes 10 ms to import, and is hardly ever needed

        return marshal.dumps(json.loads(json.dumps(value)))


def decode(packet: bytes) -> Any:
    """Read a value that the host wrote."""
    return marshal.loads(packet)  # noqa: S302 - it comes from the host, which started us


def rights(descriptors: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Return what `sendmsg` needs to send descriptors."""
    if not descriptors:
        return []
    return [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))]


def send(peer: _socket.socket, packet: bytes, descriptors: list[int]) -> None:
    """Send a packet with descriptors."""
    peer.sendmsg([packet], rights(descriptors))


def receive(peer: _socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Receive a packet and at most this many descriptors, which no program inherits. An empty packet is the end."""
    packet, rights, _, _ = peer.recvmsg(size, _socket.CMSG_LEN(most * INT), _socket.MSG_CMSG_CLOEXEC)
    found: list[int] = []
    for level, kind, data in rights:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            count = len(data) // INT
            found += struct.unpack(f"{count}i", data[: count * INT])
    return packet, found


def write_word(held: list[str], refused: dict[str, str], failure: str, *, is_refusal: bool = False) -> bytes:
    """Encode what a spawner enforces, and what was refused to it and why; `is_refusal`: the kernel refused it.

    Any other failure is one of this time, or of what it was to set up.
    """
    reasons = [part for refusal in refused.items() for part in refusal]
    return MARK.join([failure, "refusal" if is_refusal else "", " ".join(held), *reasons]).encode(errors="replace")


def read_word(packet: bytes) -> tuple[tuple[str, ...], dict[str, str], str, bool]:
    """Decode the same."""
    failure, kind, held, *reasons = packet.decode(errors="replace").split(MARK)
    return tuple(held.split()), dict(zip(reasons[::2], reasons[1::2], strict=False)), failure, bool(kind)
