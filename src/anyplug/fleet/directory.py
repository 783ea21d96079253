"""Who is in the fleet, and what they offer, as a gateway knows it from the workers' announcements.

All of this is a hint: who a worker is, it proves when a session is opened, and what may run, the admin signs. So do the
tools of an approved plugin: a description counts only as far as the approval covers it. What a worker may fill of our
memory is limited: of what nobody approved, gateways keep names alone.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from anyplug.fleet import approved_tools
from anyplug.fleet.credentials import NotMember, verified, verified_member
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.messages import GONE_S, Announcement, Approved, Offered
from anyplug.fleet.nats_link import FleetError, Link
from anyplug.model.types import Tool

if TYPE_CHECKING:  # takes 180 ms to import
    from nats.aio.msg import Msg

HASH_LETTERS = 32
MOST_PLUGINS = 256  # that one worker offers; more are ignored, and so on below
MOST_TOOLS = 1_000  # of one plugin, as in a manifest
MOST_TOOLS_OF_WORKER = 4_000
LARGEST = 768 << 10  # bytes of the description of one plugin; NATS's own limit for messages is 1 MiB
LARGEST_OF_WORKER = 4 << 20  # bytes of all descriptions of one worker
READ_AT_ONCE = 16  # descriptions, before the limits are checked again
COST = 16 << 10  # bytes that reading one description costs at least
REFILL_S = 10.0  # in which a worker may have as many bytes read again
MOST_NEW_PLUGINS, MOST_NEW_TOOLS = 1_000, 10_000  # of all workers, that the admin has not approved
MOST_IGNORED = 20  # names of ignored tools


class Seen(msgspec.Struct):
    """A worker, as last announced."""

    said: Announcement
    at: float  # by our monotonic clock
    mine: int = 0  # our own calls there
    is_silent: bool = False  # it did not answer since: others are preferred
    counted: tuple[str, ...] = ()  # what it offers, up to the limits

    @property
    def key(self) -> str:
        """The worker's key."""
        return self.said.key

    @property
    def load(self) -> float:
        """How full it is; our own calls count at once, those of others with the next announcement."""
        return max(self.mine, self.said.running) / max(self.said.places, 1)


class Described(msgspec.Struct, frozen=True):
    """A worker's description of a plugin, as far as it counts."""

    offered: Offered  # with the approved tools, or the names of tools if it is not approved
    ignored: tuple[str, ...]  # names of the tools that the approval does not cover
    whole: Offered | None  # with all tools, for the admin
    decided: int  # the number of the approval; 0 without one


class Room:
    """What one worker may describe. Workers leave out what has no room, so that nobody misses it unawares."""

    def __init__(self) -> None:
        self._plugins = self._tools = self._size = 0

    def take(self, size: int, tools: int) -> str:
        """Reserve room for a description of so many bytes and tools; return why it is refused, empty if it is not."""
        if size > LARGEST or tools > MOST_TOOLS:
            return f"its tools are described in more than {LARGEST >> 10} KiB, or are more than {MOST_TOOLS:,}"
        whole = self._plugins + 1, self._tools + tools, self._size + size
        if whole[0] > MOST_PLUGINS or whole[1] > MOST_TOOLS_OF_WORKER or whole[2] > LARGEST_OF_WORKER:
            return "this worker's other plugins take all the room for descriptions"
        self._plugins, self._tools, self._size = whole
        return ""


class _Name(msgspec.Struct, frozen=True):
    """What is read of a tool that is not approved."""

    name: str
    own_name: str


class _Names(msgspec.Struct, frozen=True):
    tools: tuple[_Name, ...]


class _Head(Offered, frozen=True, kw_only=True):
    """What is read of a plugin before it is known whether it is approved: the rest of it is skipped."""

    tools: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]
    held: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class Directory:
    """All workers that were announced of late, and were not withdrawn."""

    def __init__(self, link: Link, trust: Trust, changed: Callable[[], None], *, for_admin: bool = False) -> None:
        """Know nobody yet. `changed` is called when other plugins are offered, or by other workers.

        `for_admin`: keep the whole descriptions, also of what is not approved.
        """
        self._link = link
        self._trust = trust
        self._changed = changed
        self._for_admin = for_admin
        self.workers: dict[str, Seen] = {}
        self._described: dict[str, Described | None] = {}  # by hash; None if it cannot be used
        self._sizes: dict[str, tuple[int, int]] = {}  # of them: bytes and tools
        self._reading = 0  # while new descriptions may not be pruned
        self._left: dict[str, tuple[float, float]] = {}  # by worker: bytes that may be read of it, and when that was
        self._offering: dict[str, list[Seen]] = {}  # by approval, for calls, until something changes
        self._able: dict[str, list[Seen]] = {}  # the same, of those that can run it

    async def follow(self) -> None:
        """Read all announcements, and hear of later ones. Raises FleetError."""
        await self._link.listen(self._link.subjects.here("*"), self._heard)
        await self.read()

    async def read(self) -> None:
        """Read all announcements. Raises FleetError."""
        found = await self._link.all(self._link.subjects.directory, "*")
        heard = {key: said for key, data in found.items() if (said := self._verified(key, data)) is not None}
        await self._place(heard)
        self._tell()

    def tidy(self) -> None:
        """Forget the workers that have not been heard of."""
        before = len(self.workers)
        limit = time.monotonic() - GONE_S
        self.workers = {key: seen for key, seen in self.workers.items() if seen.at > limit or seen.mine}
        if not self._reading:
            needed = {name for seen in self.workers.values() for name in seen.said.offers[:MOST_PLUGINS]}
            self._described = {name: one for name, one in self._described.items() if name in needed}
            self._sizes = {name: size for name, size in self._sizes.items() if name in needed}
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
        """Return what a worker offers, as far as it is known and counts."""
        return [one.offered for one in self.described_by(seen)]

    def described_by(self, seen: Seen) -> list[Described]:
        """Return the same, with what does not count."""
        return [one for name in seen.counted if (one := self._described.get(name)) is not None]

    def tools(self, key: str) -> dict[str, Tool]:
        """Return the tools of an approved plugin that workers describe as the admin approved them, by name."""
        approval = self._trust.approval(key)
        if approval is None:
            return {}
        described = (one for seen in self._members() for one in self.described_by(seen))
        mine = [one for one in described if one.offered.approval_key == key]
        if approval.tools is None:  # otherwise the digests say which of them are still approved
            mine = [one for one in mine if one.decided == approval.serial]
        return {tool.name: tool for one in mine for tool in one.offered.tools}

    def ignored(self, approval: str) -> list[tuple[str, str]]:
        """Return what the approval of a plugin does not cover: workers, each with the name of a tool."""
        return [
            (seen.said.name, name)
            for seen in self._members()
            for one in self.described_by(seen)
            if one.offered.approval_key == approval
            for name in one.ignored
        ]

    def new(self) -> dict[str, Offered]:
        """Return what workers offer and nobody approved, by the approval that it needs, up to the limits."""
        found: dict[str, Offered] = {}
        tools = 0
        for seen in sorted(self._members(), key=lambda seen: seen.key):
            for one in self.offered_by(seen):
                if one.approval_key in found or self._trust.approval(one.approval_key) is not None:
                    continue
                tools += len(one.tools)
                if len(found) < MOST_NEW_PLUGINS and tools <= MOST_NEW_TOOLS:
                    found[one.approval_key] = one
        return found

    def _members(self) -> list[Seen]:
        return [seen for seen in self.workers.values() if not self._trust.is_withdrawn(seen.key)]

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
        said = self._verified(key, data)
        if said is not None and await self._place({key: said}):
            self._tell()

    def _verified(self, key: str, data: bytes) -> Announcement | None:
        """Return what a worker that is a member says, unless somebody repeats it."""
        if self._trust.is_withdrawn(key):
            return None
        known = self.workers.get(key)
        try:
            said = msgspec.msgpack.decode(verified(data, key), type=Announcement)
            if known is None or _identity(known.said) != _identity(said):
                member = verified_member(said.certificate, self._link.own.member.admin)
                if (member.role, member.key, member.name) != ("worker", key, said.name) or said.key != key:
                    return None
        except (msgspec.DecodeError, NotMember):
            return None
        return None if known is not None and said.at < known.said.at else said

    async def _place(self, heard: Mapping[str, Announcement]) -> bool:
        """Take announcements over, with what they describe; return whether anything changed. Raises FleetError."""
        self._reading += 1
        try:
            is_new = await self._read_descriptions({key: said for key, said in heard.items() if not said.has_left})
            for key, said in heard.items():
                is_new = self._place_one(key, said) or is_new
            return is_new
        finally:
            self._reading -= 1

    def _place_one(self, key: str, said: Announcement) -> bool:
        known, counted = self.workers.get(key), self._counted(said)
        if known is not None and said.at < known.said.at:
            return False
        if said.has_left:
            self.workers.pop(key, None)
            return known is not None
        if known is None:
            self.workers[key] = Seen(said, time.monotonic(), counted=counted)
            return True
        before, known.said, known.at = known.said, said, time.monotonic()  # running calls hold on to it
        known.is_silent = False
        is_other = (known.counted, before.is_draining) != (counted, said.is_draining)
        known.counted = counted
        return is_other

    def _counted(self, said: Announcement) -> tuple[str, ...]:
        """Return what a worker offers, up to the limits."""
        room = Room()
        return tuple(name for name in said.offers[:MOST_PLUGINS] if not room.take(*self._sizes.get(name, (0, 0))))

    def _is_current(self, name: str) -> bool:
        """Return whether a description is known, and was read with the approval that there is now."""
        if name not in self._described:
            return False
        known = self._described[name]
        return known is None or known.decided == _number(self._trust.approval(known.offered.approval_key))

    async def _read_descriptions(self, heard: Mapping[str, Announcement]) -> bool:
        """Read what workers offer and is not known, up to the limits; return whether there was any. Raises FleetError.

        What several workers offer is read once, unless the entry of the first of them is wrong.
        """
        wanted: dict[str, list[str]] = {}
        for key, said in heard.items():
            for name in said.offers[:MOST_PLUGINS]:
                if not self._is_current(name):
                    wanted.setdefault(name, []).append(key)
        is_new = False
        while wanted:
            at = [(keys.pop(0), name) for name, keys in wanted.items()]
            for start in range(0, len(at), READ_AT_ONCE):
                some = [f"{key}.{name}" for key, name in at[start : start + READ_AT_ONCE] if self._may_read(key, COST)]
                found = await self._link.some(self._link.subjects.tools, some) if some else {}
                for entry, data in found.items():
                    key, _, name = entry.partition(".")
                    self._may_read(key, max(len(data) - COST, 0))
                    is_new = self._learn(name, data) or is_new
            wanted = {name: keys for name, keys in wanted.items() if keys and not self._is_current(name)}
        return is_new

    def _may_read(self, key: str, size: int) -> bool:
        """Take bytes from what may be read of a worker; return whether there were any left."""
        now = time.monotonic()
        left, at = self._left.get(key, (LARGEST_OF_WORKER, now))
        left = min(left + (now - at) / REFILL_S * LARGEST_OF_WORKER, LARGEST_OF_WORKER)
        if left <= 0 < size:
            return False
        self._left[key] = left - size, now
        return True

    def _learn(self, name: str, data: bytes) -> bool:
        """Read a description; return whether it is the one of that name."""
        if hash_of(data) != name:
            return False
        try:
            self._described[name] = one = self._read(data) if len(data) <= LARGEST else None
        except (ValueError, RecursionError, OverflowError):  # of a later version of ours, or nonsense
            self._described[name] = one = None
        self._sizes[name] = (len(data), 0 if one is None else len((one.whole or one.offered).tools) + len(one.ignored))
        return True

    def _read(self, data: bytes) -> Described | None:
        """Return a description as far as it counts; raises ValueError and RecursionError."""
        head = msgspec.msgpack.decode(data, type=_Head)
        approval = self._trust.approval(head.approval_key)
        names = msgspec.msgpack.decode(data, type=_Names).tools
        if len(names) > MOST_TOOLS:
            return None
        if approval is None and not self._for_admin:
            tools = tuple(
                Tool(name=one.name, own_name=one.own_name, plugin="", description="", input_schema={}, program="",
                     timeout_s=0.0)
                for one in names
            )  # fmt: skip
            bare = Offered(**{**msgspec.structs.asdict(head), "tools": tools, "held": ()})
            return Described(approved_tools.cleaned(bare), (), None, 0)
        whole = approved_tools.cleaned(msgspec.msgpack.decode(data, type=Offered))
        if approval is None:
            return Described(whole, (), whole, 0)
        kept = approved_tools.accepted(approval, whole)
        others = {tool.name for tool in (*whole.tools, *whole.held)} - {tool.name for tool in kept}
        held = {tool.name for tool in whole.held}
        return Described(
            msgspec.structs.replace(whole, tools=kept, held=()),
            tuple(sorted(others | held)[:MOST_IGNORED]),
            whole if self._for_admin else None,
            approval.serial,
        )


def _number(approval: Approved | None) -> int:
    return approval.serial if approval is not None else 0


def _identity(said: Announcement) -> tuple[bytes, str, str]:
    """Return what an announcement says of who it is from, which its certificate has to say, too."""
    return said.certificate, said.name, said.key


def hash_of(offered: bytes) -> str:
    """Return under which name a worker's description of a plugin is stored."""
    return hashlib.sha256(offered).hexdigest()[:HASH_LETTERS]
