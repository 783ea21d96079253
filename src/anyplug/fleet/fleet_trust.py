"""What the admin decided: which plugins the fleet may run, and who is no longer a member.

Decisions are signed, and each has a serial number that grows. Members hear of them at once, and read all of them again
when they were cut off. A worker confirms from time to time that it knows the last one: it writes its lease into the
same stream, which takes the quorum, and then asks its leader for the last serial number.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from anyplug.fleet.credentials import Credentials, NotMember, verified
from anyplug.fleet.messages import LEASE_S, Approved, Head, Policies, Withdrawn, approval_key
from anyplug.fleet.nats_link import FleetError, Link

if TYPE_CHECKING:  # takes 180 ms to import
    from nats.aio.msg import Msg

KINDS, HEAD = ("approval.*", "withdrawn.*", "policy.*"), "head"
POLICIES = "policy.current"

D = TypeVar("D", Approved, Withdrawn, Policies, Head)


class Trust:
    """The admin's decisions, as far as one member knows them."""

    def __init__(self, link: Link, changed: Callable[[], None]) -> None:
        """Know nothing yet. `changed` is called after each decision."""
        self._link = link
        self._changed = changed
        self._admin = link.own.member.admin
        self._withdrawn: dict[str, Withdrawn] = {}
        self.approvals: dict[str, Approved] = {}
        self.policies: Policies | None = None
        self.serial = 0  # of the last decision that is known
        self._confirmed = 0.0  # when all decisions were last known for certain

    def approval(self, key: str) -> Approved | None:
        """Return the approval of that name, unless it was revoked."""
        found = self.approvals.get(key)
        return found if found is not None and not found.is_revoked else None

    def revoked_named(self, name: str) -> bool:
        """Return whether an approval of a plugin of this name was revoked."""
        return any(one.is_revoked and one.name == name for one in self.approvals.values())

    def is_withdrawn(self, key: str) -> bool:
        """Return whether a key is no longer a member."""
        return key in self._withdrawn

    @property
    def is_confirmed(self) -> bool:
        """Whether the quorum confirmed a moment ago that no decision is missing here."""
        return time.monotonic() - self._confirmed < LEASE_S

    async def follow(self) -> None:
        """Subscribe to all decisions, and read the earlier ones. Raises FleetError."""
        for keys in KINDS:
            await self._link.listen(self._link.subjects.entry(self._link.subjects.trust, keys), self._heard)
        await self.read()

    async def read(self) -> None:
        """Read all decisions. Raises FleetError."""
        for keys in KINDS:
            for key, signed in (await self._link.all(self._link.subjects.trust, keys)).items():
                self._take(key, signed)
        self._changed()

    async def confirm(self) -> None:
        """Renew the lease. Raises FleetError."""
        link, began = self._link, time.monotonic()
        await link.store(link.subjects.lease(link.own.key), b"")
        head = await last_serial(link)
        if head > self.serial:
            await self.read()
        if head <= self.serial:
            self._confirmed = began

    async def _heard(self, message: "Msg") -> None:
        key = message.subject[len(self._link.subjects.entry(self._link.subjects.trust, "")) :]
        if self._take(key, message.data):
            self._changed()

    def _take(self, key: str, signed: bytes) -> bool:
        """Take a decision over, unless it is forged, or older than the one that is known."""
        if key.startswith("approval."):
            found = read_decision(signed, self._admin, Approved)
            known = self.approvals.get(key)
            if found is None or approval_key(found.digest, found.definition) != key:
                return False
            if known is not None and known.serial >= found.serial:
                return False
            self.approvals[key] = found
            self.serial = max(self.serial, found.serial)
            return True
        if key == POLICIES:
            policies = read_decision(signed, self._admin, Policies)
            if policies is None or (self.policies is not None and self.policies.serial >= policies.serial):
                return False
            self.policies = policies
            self.serial = max(self.serial, policies.serial)
            return True
        gone = read_decision(signed, self._admin, Withdrawn)
        if gone is None or key != f"withdrawn.{gone.key}" or gone.key in self._withdrawn:
            return False
        self._withdrawn[gone.key] = gone
        self.serial = max(self.serial, gone.serial)
        return True


def read_decision(signed: bytes, admin: str, kind: type[D]) -> D | None:
    """Return what the admin decided; None if it is not the admin's, or cannot be read."""
    try:
        return msgspec.msgpack.decode(verified(signed, admin), type=kind)
    except (NotMember, msgspec.DecodeError):
        return None


async def last_serial(link: Link) -> int:
    """Return the serial number of the last decision, from the leader. Raises FleetError."""
    signed = await link.latest(link.subjects.trust, HEAD)
    head = read_decision(signed, link.own.member.admin, Head) if signed else None
    if signed and head is None:
        raise FleetError("the fleet's decisions are not signed by its admin", "these credentials are of another fleet")
    return head.serial if head is not None else 0


async def decide(link: Link, own: Credentials, decision: Approved | Withdrawn | Policies) -> int:
    """Store a decision of the admin under the next serial number, which is returned. Raises FleetError."""
    bucket = link.subjects.trust
    serial = max(await last_serial(link) + 1, time.time_ns() // 1000)
    numbered = msgspec.structs.replace(decision, serial=serial, at=time.time())
    if isinstance(numbered, Approved):
        key = approval_key(numbered.digest, numbered.definition)
    else:
        key = POLICIES if isinstance(numbered, Policies) else f"withdrawn.{numbered.key}"
    # The number comes last: if it stood alone, workers would look for the decision, and let their leases end.
    await link.put(bucket, key, own.sign(msgspec.msgpack.encode(numbered)))
    await link.put(bucket, HEAD, own.sign(msgspec.msgpack.encode(Head(serial=serial))))
    return serial
