"""One trail of all hosts of a fleet: each sends its own chain of records, signed, to a stream that only grows.

A host's chain stays where it is; what is here is a copy that the host can no longer change. So records that are
missing, or that were changed after they were sent, are found and named.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import anyio.to_thread
import msgspec

from anyplug.audit.audit_log import CALL, Record, link_of
from anyplug.fleet.credentials import NotMember, verified, verified_member
from anyplug.fleet.nats_link import AGAIN_S, FleetError, Link
from anyplug.home.location import make_private
from anyplug.model.errors import StoreError

SEND_S = 1.0  # between two looks for new records
LAST_S = 5.0  # for sending the last records, while the servers may be choosing a leader
MOST = 256  # records in one message
SENT = "fleet-sent.json"  # in the home: up to which record all were sent

Row = tuple[int, bytes, str, str]  # number, record, hash of the one before, own hash


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive records of one host."""

    certificate: bytes
    rows: tuple[Row, ...]


class Rows(Protocol):
    """A host's own audit."""

    def commit(self) -> None:
        """Commit the records of calls that have ended."""
        ...

    def chained(self, after: int, most: int) -> list[Row]:
        """Return committed records after a number, the oldest first."""
        ...


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the fleet's trail."""

    host: str  # the member's name
    role: str
    number: int
    record: Record


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet's trail, with all that is wrong with it."""

    records: list[Found]
    hosts: dict[str, int]  # by name: how many records there are of each
    faults: list[str]


class Sender:
    """Sends the records of one host."""

    def __init__(self, link: Link, audit: Rows, home: str, tell: Callable[[str], None]) -> None:
        self._link = link
        self._audit = audit
        self._path = os.path.join(home, SENT)
        self._tell = tell
        self._sent = self._read()

    async def keep_sending(self) -> None:
        """Send records as they come, until it is cancelled."""
        fault = ""
        while True:
            try:
                await self.send()
                fault = ""
            except (FleetError, StoreError) as error:
                if error.message != fault:
                    fault = error.message
                    self._tell(f"records are not sent to the fleet's trail: {fault}")
            await asyncio.sleep(SEND_S)

    async def send(self) -> None:
        """Send all records that there are. Raises FleetError and StoreError."""
        link, before = self._link, self._sent
        try:
            while (batch := await anyio.to_thread.run_sync(self._batch)) is not None:
                last, id, data = batch
                await link.store(link.subjects.audit(link.own.key), data, {"Nats-Msg-Id": id})
                self._sent = last
        finally:
            if self._sent != before:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._write)

    def _batch(self) -> tuple[int, str, bytes] | None:
        """Return the next records as they are sent, with the last number and an id; None if all are sent. Blocks."""
        own = self._link.own
        rows = self._audit.chained(self._sent, MOST)
        if not rows:
            return None
        first, last = rows[0][0], rows[-1][0]
        data = own.sign(msgspec.msgpack.encode(Batch(own.certificate, tuple(rows))))
        return last, f"{own.key}:{first}-{last}:{rows[-1][3][:16]}", data

    async def finish(self) -> None:
        """Send the records of the calls that have just ended; what does not arrive is sent at the next start."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_S):
                self._audit.commit()
                while not await self._is_sent():
                    await asyncio.sleep(AGAIN_S)

    async def _is_sent(self) -> bool:
        try:
            await self.send()
        except FleetError:
            return False
        return True

    def _read(self) -> int:
        try:
            with open(self._path, "rb") as file:
                sent: dict[str, int] = msgspec.json.decode(file.read(), type=dict[str, int])
        except (OSError, msgspec.DecodeError):
            return 0  # all are sent again, and the same ones count once
        return sent.get(self._link.own.key, 0)

    def _write(self) -> None:
        with suppress(OSError):  # then they are sent again
            make_private(os.path.dirname(self._path))
            with open(f"{self._path}.new", "wb") as file:
                file.write(msgspec.json.encode({self._link.own.key: self._sent}))
            os.replace(f"{self._path}.new", self._path)


async def read(link: Link) -> Whole:
    """Read and verify the whole trail. Raises FleetError."""
    messages: list[tuple[str, bytes]] = []
    after = 0
    while page := await link.page(link.subjects.trail, after + 1):
        messages += [(subject, data) for _, subject, data in page]
        after = page[-1][0]
    return await anyio.to_thread.run_sync(_verified, messages, link.own.member.admin)


def _verified(messages: Iterable[tuple[str, bytes]], admin: str) -> Whole:
    chains: dict[str, _Chain] = {}
    strange = 0
    for subject, data in messages:
        key = subject.rpartition(".")[2]
        try:
            batch = msgspec.msgpack.decode(verified(data, key), type=Batch)
            member = verified_member(batch.certificate, admin)
        except (NotMember, msgspec.DecodeError):
            strange += 1
            continue
        if member.key == key:
            chains.setdefault(key, _Chain(member.name, member.role)).add(batch.rows)
    faults = [fault for chain in chains.values() for fault in chain.faults]
    if strange:
        faults.append(f"{strange} messages in the trail are not signed by the member that they are under")
    named = {chain.name: chain for chain in chains.values() if chain.role == "worker"}
    for chain in chains.values():
        faults += _uncovered(chain, named)
    records = [found for chain in chains.values() for found in chain.records]
    records.sort(key=lambda found: found.record.at)
    return Whole(records=records, hosts={chain.name: len(chain.records) for chain in chains.values()}, faults=faults)


class _Chain:
    """The records of one host."""

    def __init__(self, name: str, role: str) -> None:
        self.name = name
        self.role = role
        self.records: list[Found] = []
        self.calls: set[str] = set()
        self.faults: list[str] = []
        self._hashes: dict[int, str] = {}
        self._last = 0

    def add(self, rows: tuple[Row, ...]) -> None:
        """Append a batch, or compare it with what was sent before."""
        for number, raw, previous, own in rows:
            if (known := self._hashes.get(number)) is not None:
                if known != own:
                    self.faults.append(f"{self.role} '{self.name}': record {number} was changed after it was sent")
                continue
            if self._last and number != self._last + 1:
                missing = (
                    f"records {self._last + 1} to {number - 1}" if number > self._last + 2 else f"record {number - 1}"
                )
                self.faults.append(f"{self.role} '{self.name}': {missing} missing")
            elif self._last and previous != self._hashes[self._last]:
                self.faults.append(f"{self.role} '{self.name}': record {number} does not follow the one before it")
            if link_of(previous, raw) != own:
                self.faults.append(f"{self.role} '{self.name}': record {number} was changed")
            self._hashes[number], self._last = own, max(number, self._last)
            try:
                record = msgspec.json.decode(raw, type=Record)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.faults.append(f"{self.role} '{self.name}': record {number} cannot be read")
                continue
            self.calls.add(record.call)
            self.records.append(Found(host=self.name, role=self.role, number=number, record=record))


def _uncovered(chain: _Chain, workers: dict[str, _Chain]) -> list[str]:
    """Name the calls of a gateway whose record at the worker is missing."""
    missing: dict[str, list[str]] = {}
    for found in chain.records:
        record = found.record
        if record.kind == CALL and record.there:
            worker = workers.get(record.worker)
            if worker is None or record.there not in worker.calls:
                missing.setdefault(record.worker, []).append(record.call)
    return [
        f"worker '{name}': its records of {len(calls)} calls that {chain.role} '{chain.name}' made are missing, "
        f"the first of them {calls[0]}"
        for name, calls in missing.items()
    ]
