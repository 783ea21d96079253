"""The audit trail: one record for each call, each with the hash of the one before.

Before anything runs, the call is noted as pending; its end replaces the note by the record. So a call whose
record could not be written never runs, and one whose host was killed is recorded as lost by the next host.
"""

import hashlib
import math
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from anyplug import liveness
from anyplug.model import Result
from anyplug.store import Store

FIRST = "0" * 64  # what stands for the hash before the first record


# One statement, so one transaction: the last hash is read under the lock under which the next is written, and
# a trigger removes the pending note. A SELECT in place of VALUES would go through a temporary table.
_LAST = f"coalesce((SELECT hash FROM audit ORDER BY number DESC LIMIT 1), '{FIRST}')"
_APPEND = f"INSERT INTO audit (call, record, previous, hash) VALUES (?1, ?2, {_LAST}, link({_LAST}, ?2))"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a call. Arguments and output are kept only as digests."""

    call: str
    at: float
    attachment: str
    tool: str
    plugin: str = ""
    format: str = ""
    digest: str = ""
    arguments: str = ""
    verdict: str = ""
    by: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()  # who rewrote or noted what
    outcome: str = ""
    duration_ms: float = 0.0
    output: str = ""


UNREADABLE = Record(call="", at=0.0, attachment="", tool="", outcome="unreadable")  # somebody tampered with it


class Numbered(msgspec.Struct, frozen=True):
    """A record in its place."""

    number: int
    record: Record


class Broken(msgspec.Struct, frozen=True):
    """Where a chain of records is broken, and how."""

    number: int
    reason: str


class Audit:
    """The trail in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._host = liveness.this_process()
        store.define("link", _link)

    def begin(self, record: Record) -> None:
        """Note a call before it runs; raises StoreError, and then it must not run."""
        self._store.run("INSERT INTO pending VALUES (?, ?, ?)", record.call, self._host, msgspec.json.encode(record))

    def end(self, record: Record) -> None:
        """Write the record of a call that has ended, also of one that never began. Raises StoreError."""
        self._store.run(_APPEND, record.call, msgspec.json.encode(record))

    def recover(self) -> None:
        """Record as lost what hosts had under way that are gone."""
        for call, host, raw in self._store.rows("SELECT call, host, record FROM pending"):
            if not liveness.is_alive(host):
                lost = msgspec.structs.replace(msgspec.json.decode(raw, type=Record), outcome="lost")
                with self._store.writing() as transaction:  # of several hosts that start now, one records it
                    if transaction.execute("DELETE FROM pending WHERE call = ?", (call,)).rowcount:
                        transaction.execute(_APPEND, (call, msgspec.json.encode(lost)))

    def records(self, *, plugin: str = "", tool: str = "", limit: int = -1) -> list[Numbered]:
        """Read the newest records, oldest of them first."""
        wanted = []
        decoder = msgspec.json.Decoder(Record)
        for number, raw in self._store.rows("SELECT number, record FROM audit ORDER BY number DESC"):
            try:
                record = decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                record = UNREADABLE
            if (not plugin or record.plugin == plugin) and (not tool or record.tool == tool):
                wanted.append(Numbered(number, record))
                if len(wanted) == limit:
                    break
        return wanted[::-1]

    def verify(self) -> tuple[int, list[Broken]]:
        """Count the records and find every place where the chain is broken."""
        rows = self._store.rows("SELECT number, record, previous, hash FROM audit ORDER BY number")
        broken = list(_breaks(rows))
        last = self._store.rows("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        end = rows[-1][0] if rows else 0
        if last and last[0][0] > end:
            broken.append(Broken(end + 1, _missing(end + 1, last[0][0])))
        return len(rows), broken


def digest_of(value: Any) -> str:
    """Hash a JSON value, whatever the order of its keys; raises TypeError or ValueError for what is none."""
    encoded = msgspec.json.encode(value, order="deterministic")
    if b"null" in encoded and not _is_finite(value):  # what is not finite would be written as null
        raise ValueError("NaN and Infinity are not JSON")
    return hashlib.sha256(encoded).hexdigest()


def digest_of_output(result: Result) -> str:
    """Hash what a call gave."""
    return hashlib.sha256(msgspec.json.encode(result.content)).hexdigest()


def now() -> float:
    """Give the time as records have it."""
    return time.time_ns() // 1000 / 1_000_000  # in whole microseconds


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))


def _link(previous: str, record: bytes) -> str:
    return hashlib.sha256(previous.encode() + b"\n" + record).hexdigest()


def _missing(first: int, last: int) -> str:
    return f"record {first} is missing" if first == last else f"the records {first} to {last} are missing"


def _breaks(rows: list[Any]) -> Iterator[Broken]:
    before, expected = FIRST, 1
    for number, record, previous, own in rows:
        if number != expected:
            yield Broken(expected, _missing(expected, number - 1))
        elif previous != before:
            yield Broken(number, "it does not follow from the record before it")
        content = record if isinstance(record, bytes) else str(record).encode()  # who tampers may write text
        if _link(previous, content) != own:
            yield Broken(number, "its content was changed")
        before, expected = own, number + 1
