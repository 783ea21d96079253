"""Which running plugins receive an event, and which decide about it."""

from collections.abc import Callable
from typing import Any

from anyplug.peers.peer_set import Peers


class Subscribers:
    """The running peers that an event concerns, cached until one starts, ends or registers something."""

    def __init__(self, peers: Peers, concerns: Callable[[Any, str], bool]) -> None:
        """`concerns` returns whether an event of that name concerns a peer."""
        self._peers = peers
        self._concerns = concerns
        self._known: dict[str, tuple[Any, ...]] = {}
        self._roll = peers.roll

    def of(self, event: str) -> tuple[Any, ...]:
        """Return them, in load order."""
        if self._roll != self._peers.roll:
            self._known.clear()
            self._roll = self._peers.roll
        known = self._known.get(event)
        if known is None:
            known = self._known[event] = tuple(peer for peer in self._peers.up if self._concerns(peer, event))
        return known
