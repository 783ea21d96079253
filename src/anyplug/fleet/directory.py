"""Who is in the fleet, and what they offer, as a gateway knows it from the workers' announcements.

All of this is a hint: who a worker is, it proves when a session is opened, and what may run, the admin signs.
"""

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from anyplug.fleet.credentials import NotMember, verified, verified_member
from anyplug.fleet.messages import GONE_S, Announcement, Offered
from anyplug.fleet.nats_link import FleetError, Link

if TYPE_CHECKING:  # takes 180 ms to import
    from nats.aio.msg import Msg

HASH_LETTERS = 32


class Seen(msgspec.Struct):
    """A worker, as last announced."""

    said: Announcement
    at: float  # by our monotonic clock
    mine: int = 0  # our own calls there
    is_silent: bool = False  # it did not answer since: others are preferred

    @property
    def key(self) -> str:
        """The worker's key."""
        return self.said.key

    @property
    def load(self) -> float:
        """How full it is; our own calls count at once, those of others with the next announcement."""
        return max(self.mine, self.said.running) / max(self.said.places, 1)


class Directory:
    """All workers that were announced of late."""

    def __init__(self, link: Link, changed: Callable[[], None]) -> None:
        """Know nobody yet. `changed` is called when other plugins are offered, or by other workers."""
        self._link = link
        self._changed = changed
        self.workers: dict[str, Seen] = {}
        self.offers: dict[str, Offered] = {}  # by hash; kept, so that a call of what is gone says so
        self._offering: dict[str, list[Seen]] = {}  # by approval, for calls, until something changes
        self._able: dict[str, list[Seen]] = {}  # the same, of those that can run it

    async def follow(self) -> None:
        """Read all announcements, and hear of later ones. Raises FleetError."""
        await self._link.listen(self._link.subjects.here("*"), self._heard)
        await self.read()

    async def read(self) -> None:
        """Read all announcements. Raises FleetError."""
        found = await self._link.all(self._link.subjects.directory, "*")
        if len(found) > 1:  # one request for all of them
            self._learn(await self._link.all(self._link.subjects.tools, "*.*"))
        for key, data in found.items():
            await self._take(key, data)
        self._tell()

    def tidy(self) -> None:
        """Forget the workers that have not been heard of."""
        before = len(self.workers)
        limit = time.monotonic() - GONE_S
        self.workers = {key: seen for key, seen in self.workers.items() if seen.at > limit or seen.mine}
        if len(self.workers) != before:
            self._tell()

    def offering(self, approval: str) -> list[Seen]:
        """Return the workers that offer what needs this approval, whether or not it can run there now."""
        if (found := self._offering.get(approval)) is None:
            found = self._offering[approval] = [
                seen
                for seen in self.workers.values()
                if any(one.approval_key == approval for one in self.offered_by(seen))
            ]
        return found

    def able(self, approval: str) -> list[Seen]:
        """Return the workers that say that they can run what needs this approval now."""
        if (found := self._able.get(approval)) is None:
            found = self._able[approval] = [
                seen
                for seen in self.offering(approval)
                if any(one.approval_key == approval and not one.problem for one in self.offered_by(seen))
            ]
        return found

    def offered_by(self, seen: Seen) -> list[Offered]:
        """Return what a worker offers, as far as it is known."""
        return [self.offers[name] for name in seen.said.offers if name in self.offers]

    def _tell(self) -> None:
        self._forget()
        self._changed()

    def _forget(self) -> None:
        self._offering.clear()
        self._able.clear()

    async def _heard(self, message: "Msg") -> None:
        key = message.subject.rpartition(".")[2]
        try:
            await self._take(key, message.data)
        except FleetError:
            pass  # with the next announcement it is tried again

    async def _take(self, key: str, data: bytes) -> None:
        try:
            said = msgspec.msgpack.decode(verified(data, key), type=Announcement)
            known = self.workers.get(key)
            if known is None or _identity(known.said) != _identity(said):
                member = verified_member(said.certificate, self._link.own.member.admin)
                if (member.role, member.key, member.name) != ("worker", key, said.name) or said.key != key:
                    return
        except (msgspec.DecodeError, NotMember):
            return
        if known is not None and said.at < known.said.at:
            return  # somebody repeats it
        if said.has_left:
            if self.workers.pop(key, None) is not None:
                self._tell()
            return
        if any(name not in self.offers for name in said.offers):
            self._learn(await self._link.all(self._link.subjects.tools, f"{key}.*"))
        known = self.workers.get(key)
        if known is None:
            self.workers[key] = Seen(said, time.monotonic())
            self._tell()
            return
        before, known.said, known.at = known.said, said, time.monotonic()  # running calls hold on to it
        known.is_silent = False
        if (before.offers, before.is_draining) != (said.offers, said.is_draining):
            self._tell()

    def _learn(self, found: dict[str, bytes]) -> None:
        self._forget()
        for key, data in found.items():
            name = key.rpartition(".")[2]
            if name in self.offers or hash_of(data) != name:
                continue
            try:
                self.offers[name] = msgspec.msgpack.decode(data, type=Offered)
            except msgspec.DecodeError:
                pass  # of a later version of ours


def _identity(said: Announcement) -> tuple[bytes, str, str]:
    """Return what an announcement says of who it is from, which its certificate has to say, too."""
    return said.certificate, said.name, said.key


def hash_of(offered: bytes) -> str:
    """Return under which name a worker's description of a plugin is stored."""
    return hashlib.sha256(offered).hexdigest()[:HASH_LETTERS]
