"""The audit log: one record per call, each with the hash of the record before it.

A call is written to this process's journal before it runs, and again when it ends. Ended calls are committed to the
chain shortly after, several at a time. So a call that cannot be recorded never runs. If a host is killed, the next host
recovers its journal: it commits the calls that had ended, and records those still running as lost.

The end of the chain is also stored outside the database, sealed (`sealed_head`), so that truncation is detected.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.audit import retention
from anyplug.audit.call_ids import call_id
from anyplug.audit.sealed_head import FIRST, Found, Head, Heads
from anyplug.home import journal
from anyplug.home.database import BUSY_S, FOREIGN, Store
from anyplug.home.journal import Journal
from anyplug.model import json_values, untrusted_text
from anyplug.model.errors import AnyplugError, StoreBusy, StoreError
from anyplug.model.hashes import sha256
from anyplug.model.types import Result
from anyplug.runtime.processes.program import Receipt

if TYPE_CHECKING:
    import sqlite3

COMMIT_S = 0.03  # how long a record waits to be committed together with others
SETTLE_S, SETTLE_STEP_S = 1.0, 0.01  # that a reader waits for other hosts' commits
BUSY_RETRY_S = 0.2  # seconds before the next attempt if another process is writing
RETRY_S = 5.0  # seconds before the next attempt, unless a call retries sooner
LAST_NUMBER = (1 << 63) - 1  # SQLite's own largest
LONGEST_NUMBER = 16  # digits; ids of calls are longer
PRUNE = "audit prune"  # the tool in the record of a removal
CALL, TRUST = "call", "trust"  # kinds of records: a call, and a decision about plugins or about the audit itself
MOST_REFUSALS = 5_000  # that wait for a database that cannot be written
TOGETHER = 32  # records in one statement, which takes half of the time
MOST_WAITING = 500  # records, then they are committed at once: a larger batch would block the event loop longer

_LAST = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1"
_HASH = "SELECT hash FROM audit WHERE number = ?"
_KNOWN = "SELECT 1 FROM audit WHERE call = ?"
_SINCE = "SELECT count(*) FROM audit WHERE number > ?"
_INSERT, _ROW = "INSERT INTO audit (call, record, previous, hash) VALUES ", "(?, ?, ?, ?)"

_encode = msgspec.json.Encoder().encode
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode

Later = Callable[[float, Callable[[], None]], object]  # runs a callback after this many seconds


class Record(msgspec.Struct, kw_only=True, gc=False):
    """The record of a call, filled in as the call proceeds. Arguments and output are stored only as digests.

    In the record of a decision about a plugin, `tool` is what was decided.
    """

    call: str
    at: float
    attachment: str
    tool: str
    agent: str = ""  # the agent behind the call, as it names itself
    project: str = ""  # the folder that the caller works in
    callers: tuple[str, ...] = ()  # for a call that a plugin made: the chain of callers, the first one first
    plugin: str = ""
    format: str = ""
    digest: str = ""
    arguments: str = ""
    verdict: str = ""
    by: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()  # who rewrote or annotated what
    notes_by: tuple[str, ...] = ()  # who wrote each note, in the form of `by`
    held_by: Receipt | None = None  # what confined the process; None if nothing ran
    outcome: str = ""
    duration_ms: float = 0.0
    output: str = ""
    kind: str = CALL
    folder: str = ""  # of a decision: that of the plugin
    policies: str = ""  # the version of the fleet's policies that decided, if there are some
    worker: str = ""  # of the fleet, if one ran the call
    there: str = ""  # the id of the worker's own record of it


class _Call(msgspec.Struct, gc=False):
    """The field that look-ups use."""

    call: str


_decode_call = msgspec.json.Decoder(_Call).decode


class Numbered(msgspec.Struct, frozen=True):
    """A record with its number."""

    number: int
    record: Record


_decode_record = msgspec.json.Decoder(Record).decode


def numbered(number: int, raw: bytes) -> Numbered:
    """Read a record as it is stored; one that somebody tampered with is `unreadable`."""
    try:
        return Numbered(number, _decode_record(raw))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Numbered(number, Record(call="", at=0.0, attachment="", tool="", outcome="unreadable"))


class RecordNotFound(AnyplugError):
    """No record has that number."""

    code = "not_found"

    def __init__(self, number: int) -> None:
        super().__init__(
            f"no record has the number {number}", "`anyplug audit` shows the last records and their numbers"
        )


class Broken(msgspec.Struct, frozen=True):
    """A place where the chain is broken, and why."""

    number: int
    reason: str
    is_removed: bool = False  # it was removed as too old, so that nothing can be told


class Audit:
    """The audit log in the database. Each record is committed when its call ends, or in batches after `gather`."""

    def __init__(self, store: Store, second_head: str = "") -> None:
        """`second_head` is a file outside the home that holds a copy of the sealed head; empty for no copy."""
        self._store = store
        self.heads = Heads(os.path.dirname(store.path), second_head)
        self._journal = Journal(store.journals)
        self._begun: dict[str, bytes] = {}  # by call: the calls that are running
        self._ended: list[tuple[str, bytes]] = []  # not committed yet
        self._is_sound = False  # whether the last write to the database succeeded
        self._later: Later | None = None
        self._is_due = False  # whether a callback is scheduled

    def gather(self, later: Later) -> None:
        """From now on let records wait briefly for others, until `close`."""
        self._later, self._is_due = later, False

    def begin(self, record: Record) -> None:
        """Record a call before it runs. Raises StoreError, in which case it must not run."""
        if not self._is_sound:
            self._see_to_the_store()
        line = _encode(record)
        self._journal.append(line)
        self._begun[record.call] = line

    def end(self, record: Record) -> None:
        """Record a call that has ended, or one that was refused before it began. Raises StoreError.

        What cannot be written now is written when the disk has room again: all calls that ran, and some refusals.
        """
        line = _encode(record)
        if self._begun.pop(record.call, None) is None and not self._is_sound:
            try:
                self._see_to_the_store()
            except StoreError:
                if len(self._ended) < MOST_REFUSALS:
                    self._ended.append((record.call, line))
                raise
        try:
            self._journal.append(line)
        except StoreError:
            self._ended.append((record.call, line))
            self.commit()  # the database may have room when the journal does not
            return
        self._ended.append((record.call, line))
        if self._later is None:
            self.commit()
        elif len(self._ended) % MOST_WAITING == 0:
            self._commit_in_time()
        elif not self._is_due:
            self._call_back(COMMIT_S)

    def commit(self) -> None:
        """Commit the ended calls to the chain. If that raises StoreError, they remain in the journal."""
        if self._ended:
            self._commit(self._ended)

    def number_of(self, call: str) -> int:
        """Return the number of an ended call's record, committing it now; 0 if it has none. Raises StoreError."""
        self.commit()
        rows = self._store.rows("SELECT number FROM audit WHERE call = ?", call)
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Commit all waiting records; later ones no longer wait.

        If that raises StoreError, the next host recovers the journal.
        """
        self._later = None
        try:
            if self._ended:
                self._commit(self._ended, BUSY_S)
        except StoreError:
            if not self._begun:
                self._journal.leave()
                self._ended = []
            raise
        self._forget()

    def recover(self) -> None:
        """Recover the journals of dead hosts: commit their ended calls, and record the running ones as lost."""
        journal.take_over(self._store.journals, self._adopt)

    def settle(self) -> None:
        """Wait, for a limited time, until every host has committed the calls that have ended."""
        until = time.monotonic() + SETTLE_S
        while self._are_waiting() and time.monotonic() < until:
            time.sleep(SETTLE_STEP_S)

    def _are_waiting(self) -> bool:
        ended = [call for lines in journal.of_the_living(self._store.journals) for call, _ in _sorted_out(lines)[1]]
        return not all(self._store.rows(_KNOWN, call) for call in ended)

    def under_way(self) -> list[Record]:
        """List the calls that are running in any host."""
        return [record for lines in journal.of_the_living(self._store.journals) for record in _sorted_out(lines)[0]]

    def records(self, includes: Callable[[Record], bool] = lambda _: True, limit: int = -1) -> list[Numbered]:
        """Return the newest records that a condition includes, oldest first."""
        wanted = (item for item in self.newest_first() if includes(item.record))
        return list(islice(wanted, limit if limit >= 0 else None))[::-1]

    def calls(self, limit: int = -1) -> list[Numbered]:
        """Return the newest records of calls, oldest first."""
        return self.records(lambda record: record.kind == CALL, limit)

    def newest_first(self) -> Iterator[Numbered]:
        """Yield all records, the newest first."""
        self.commit()
        for number, raw in self._store.each("SELECT number, record FROM audit ORDER BY number DESC"):
            yield numbered(number, raw)

    def one(self, number: int) -> Numbered:
        """Return the record with a number. Raises RecordNotFound."""
        self.commit()
        rows = self._store.rows("SELECT number, record FROM audit WHERE number = ?", min(number, LAST_NUMBER))
        if not rows:
            raise RecordNotFound(number)
        return numbered(*rows[0])

    def before(self, number: int, most: int) -> list[tuple[int, bytes]]:
        """Return some committed records as they are stored, the newest first: those below a number, or all if it is 0.

        Callable from any thread. It returns after few milliseconds, so that calls which end meanwhile do not wait long.
        """
        query = "SELECT number, record FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?"
        return self._store.rows(query, number or LAST_NUMBER, most)

    def chained(self, after: int, most: int) -> list[tuple[int, bytes, str, str]]:
        """Return committed records after a number, the oldest first, as the chain has them.

        Each is its number, itself, the hash of the record before it and its own. Callable from any thread.
        """
        query = "SELECT number, record, previous, hash FROM audit WHERE number > ? ORDER BY number LIMIT ?"
        return self._store.rows(query, after, most)

    def find(self, name: str) -> Numbered | None:
        """Return the record of a call by its number or its id; None if there is none, or it cannot be read."""
        self.commit()
        is_number = name.isascii() and name.isdecimal() and len(name) < LONGEST_NUMBER
        column, value = ("number", int(name)) if is_number else ("call", name)
        rows = self._store.rows(f"SELECT number, record FROM audit WHERE {column} = ?", value)
        try:
            return Numbered(rows[0][0], msgspec.json.decode(rows[0][1], type=Record)) if rows else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def verify(self, kept: bytes = b"") -> tuple[int, list[Broken]]:
        """Count the records and find every break in the chain.

        `kept` is a sealed head that a person saved elsewhere: the chain must still contain it.
        """
        self.commit()
        # Read the expected number first: running hosts append in the meantime.
        found = self.heads.look() + ([msgspec.structs.replace(self.heads.unseal(kept), path="it")] if kept else [])
        last = self._store.rows("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        rows = self._store.rows("SELECT number, record, previous, hash, call FROM audit ORDER BY number")
        foreign = self._store.rows(FOREIGN)
        start = self.heads.start()
        begin = start.head if start.state == "sealed" and start.head is not None else Head(0, FIRST, 0.0)
        broken = list(_breaks(rows, begin))
        if start.state == "invalid":
            broken.append(Broken(1, f"{start.path} was not sealed by this home, or was changed"))
        end = rows[-1][0] if rows else 0
        newest = max([last[0][0] if last else 0, *(place.head.number for place in found if place.head is not None)])
        if newest > end:
            broken.append(Broken(end + 1, _missing(end + 1, newest)))
        if foreign:
            found_there = f"the database has {_named(foreign)}, which anyplug did not create"
            broken.append(Broken(end, f"{found_there}, so calls after it may have no record"))
        return len(rows), broken + _unsealed(rows, found, begin)

    def remove_old(self, *, before: float = 0.0, largest: int = 0, by: str) -> int:
        """Remove records that began before a moment, or do not fit into so many bytes; return how many.

        `by` says who wants it. What went is recorded, and the rest can still be verified. Raises StoreError.
        """
        self.commit()
        last = retention.last_too_old(self._store, before) if before else 0
        last = max(last, retention.last_too_many(self._store, largest) if largest else 0)
        removed = retention.remove(self._store, self.heads, last) if last else 0
        if removed:
            at = time.time_ns() // 1000
            self.end(
                Record(
                    call=call_id(at),
                    at=at / 1_000_000,
                    kind=TRUST,
                    attachment=by,
                    tool=PRUNE,
                    verdict="allowed",
                    by=by,
                    notes=(f"{removed} records were removed as too old, or as more than the settings keep",),
                    notes_by=(by,),
                    outcome="done",
                )
            )
        return removed

    def head(self) -> bytes:
        """Return the sealed number and hash of the newest record, for safekeeping elsewhere. Raises StoreError."""
        self.commit()
        rows = self._store.rows(_LAST)
        number, own = rows[0] if rows else (0, FIRST)
        try:
            return self.heads.seal(Head(number, own, time.time()))
        except OSError as error:
            raise _no_head(error) from error

    def reseal(self) -> None:
        """Accept the chain as it is and seal its end, whatever was sealed before. Raises StoreError."""
        self.commit()
        rows = self._store.rows(_LAST)
        number, own = rows[0] if rows else (0, FIRST)
        try:
            self.heads.replace(Head(number, own, time.time()))
        except OSError as error:
            raise _no_head(error) from error

    def _see_to_the_store(self) -> None:
        """Check that the database is writable after a failure; raises StoreError if it is not."""
        self._commit(self._ended)

    def _commit(self, ended: list[tuple[str, bytes]], wait_s: float | None = None) -> None:
        was_sound, self._is_sound = self._is_sound, False
        try:
            self._append(ended, are_new=was_sound, wait_s=wait_s)
        except StoreBusy:
            self._is_sound = was_sound  # nothing is wrong with it, and the journal has the records
            raise
        self._is_sound = True
        self._ended = []
        self._forget()

    def _append(self, ended: list[tuple[str, bytes]], *, are_new: bool, wait_s: float | None = None) -> None:
        """Append to the chain in one transaction, reading the last hash under its lock."""
        with self._store.writing(wait_s) as transaction:
            has_grown = self._extend(transaction, ended, are_new=are_new)
        if has_grown:
            self.seal()

    def append_in(self, transaction: "sqlite3.Connection", record: Record) -> None:
        """Append a record within a transaction of the caller's, who calls `seal` after it."""
        self._extend(transaction, [(record.call, _encode(record))], are_new=True)

    def _extend(self, transaction: "sqlite3.Connection", ended: list[tuple[str, bytes]], *, are_new: bool) -> bool:
        if not are_new and transaction.execute(FOREIGN).fetchone() is not None:
            raise self._not_kept(transaction)
        last = transaction.execute(_LAST).fetchone()
        number, previous = last or (0, FIRST)  # retention keeps the newest record
        if last is None:
            self._begin_heads()
        rows = []
        for call, record in ended:
            if are_new or transaction.execute(_KNOWN, (call,)).fetchone() is None:
                own = link_of(previous, record)
                rows.append((call, record, previous, own))
                previous = own
        for start in range(0, len(rows), TOGETHER):
            part = rows[start : start + TOGETHER]
            transaction.execute(_INSERT + ", ".join([_ROW] * len(part)), [*chain.from_iterable(part)])
        if rows and (
            transaction.execute(_SINCE, (number,)).fetchone()[0] != len(rows)
            or transaction.execute(_LAST).fetchone()[1] != previous
        ):
            raise self._not_kept(transaction)
        return bool(rows)

    def _not_kept(self, transaction: "sqlite3.Connection") -> StoreError:
        """Return the error for records that the database does not keep, or may not."""
        found = _named(transaction.execute(FOREIGN).fetchall())
        reason = f"it has {found}, which anyplug did not create" if found else "records that were written are not there"
        return StoreError(
            f"the database {self._store.path} may not keep records: {reason}",
            "find out which program changed it, then remove that with `sqlite3`, or restore a backup",
        )

    def _begin_heads(self) -> None:
        try:
            self.heads.begin()
        except OSError:
            pass  # as in `seal`; a head that was never written is reported as missing

    def seal(self) -> None:
        """Advance the sealed head. If it cannot be written it lags behind until the next commit."""
        ((number, own),) = self._store.rows(_LAST)
        try:
            self.heads.advance(Head(number, own, time.time()), self._contains)
        except OSError:
            pass

    def _contains(self, head: Head) -> bool:
        return head.number == 0 or self._store.rows(_HASH, head.number) == [(head.hash,)]

    def _forget(self) -> None:
        """Remove from the journal what is in the chain."""
        if self._begun or self._later is not None:
            self._journal.shrink(self._begun.values())
        else:
            self._journal.remove()

    def _call_back(self, seconds: float) -> None:
        if self._later is not None:
            self._is_due = True
            self._later(seconds, self._commit_in_time)

    def _commit_in_time(self) -> None:
        self._is_due = False
        try:
            if self._ended:
                self._commit(self._ended, wait_s=0)
        except StoreBusy:
            self._call_back(BUSY_RETRY_S)
        except StoreError:
            self._call_back(RETRY_S)  # until then every call retries, and is refused with the reason

    def _adopt(self, lines: list[bytes]) -> None:
        begun, ended = _sorted_out(lines)
        lost = [msgspec.structs.replace(record, outcome="lost") for record in begun]
        ended += [(record.call, _encode(record)) for record in lost]
        if ended:
            self._append(ended, are_new=False)


def digest_of(value: Any) -> str:
    """Hash a JSON value independently of key order; raises TypeError or ValueError if it is not JSON."""
    encoded = _encode_in_order(value)
    if encoded.count(b"[") + encoded.count(b"{") > json_values.DEEPEST and json_values.is_too_deep(value):
        raise ValueError(json_values.TOO_DEEP)
    if b"null" in encoded and not _is_finite(value):  # msgspec writes NaN and Infinity as null
        raise ValueError("NaN and Infinity are not JSON")
    return sha256(encoded).hexdigest()


def digest_of_output(result: Result) -> str:
    """Hash a call's output."""
    return sha256(_encode(result.content)).hexdigest()


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))


def _sorted_out(lines: list[bytes]) -> tuple[list[Record], list[tuple[str, bytes]]]:
    """Split a journal's lines into running calls and ended ones."""
    begun: dict[str, Record] = {}
    ended: dict[str, bytes] = {}
    decoder = msgspec.json.Decoder(Record)
    for line in lines:
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # a torn line: its call never ran
        if record.outcome:
            ended[record.call] = line
        else:
            begun[record.call] = record
    return [record for call, record in begun.items() if call not in ended], list(ended.items())


def link_of(previous: str, record: bytes) -> str:
    """Return the hash of a record that follows the one with the hash `previous`."""
    return sha256(previous.encode() + b"\n" + record).hexdigest()


def _call_of(record: bytes) -> str | None:
    """Return the id of the call that a record is about; None if it cannot be read."""
    try:
        return _decode_call(record).call
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _unsealed(rows: list[Any], found: list[Found], begin: Head) -> list[Broken]:
    """Compare the chain with the sealed heads."""
    hashes = {begin.number: begin.hash, **{row[0]: row[3] for row in rows}}
    end = rows[-1][0] if rows else 0
    broken = []
    for place in found:
        if place.state == "invalid":
            broken.append(Broken(end, f"{place.path} was not sealed by this home, or was changed"))
        elif place.head is not None and hashes.get(place.head.number, place.head.hash) != place.head.hash:
            broken.append(Broken(place.head.number, f"the record is not the one that {place.path} was sealed with"))
        elif place.head is not None and 0 < place.head.number < begin.number:
            gone = f"the records up to {begin.number} were removed as too old, so {place.path} cannot be compared"
            broken.append(Broken(place.head.number, gone, is_removed=True))
        elif rows and place.state == "missing":
            broken.append(Broken(end, f"the sealed head {place.path} is missing, so records may have been cut off"))
    return broken


def _no_head(error: OSError) -> StoreError:
    return StoreError(
        f"the head of the chain cannot be sealed: {error.strerror}", "check the home folder's permissions"
    )


def _named(foreign: list[Any]) -> str:
    """Return the triggers and views of a database as one line."""
    return untrusted_text.for_people(", ".join(f"the {name}" for (name,) in foreign))


def _missing(first: int, last: int) -> str:
    return f"record {first} is missing" if first == last else f"the records {first} to {last} are missing"


def _breaks(rows: list[Any], begin: Head) -> Iterator[Broken]:
    """Yield the places where the chain is broken. `begin` is the last record that was removed as too old.

    Records up to it are there only if a process died while it removed them. They must lead to `begin`.
    """
    before, expected = begin.hash, begin.number + 1
    if rows and rows[0][0] <= begin.number:
        expected, before = rows[0][0], rows[0][2]
    for number, record, previous, own, call in rows:
        if number != expected:
            yield Broken(expected, _missing(expected, number - 1))
        elif previous != before:
            yield Broken(number, "it does not follow from the record before it")
        content = record if isinstance(record, bytes) else str(record).encode()  # a tamperer may have stored text
        if link_of(previous, content) != own or (number == begin.number and own != begin.hash):
            yield Broken(number, "its content was changed")
        elif call != _call_of(content):
            yield Broken(number, "its id in the index was changed")
        before, expected = own, number + 1
