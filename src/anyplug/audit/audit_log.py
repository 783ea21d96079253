"""The audit trail: one record for each call, each with the hash of the one before.

Before anything runs, the call is noted in this process's journal, and so is its end. What has ended is committed
to the chain soon after, several calls together. So a call that could not be recorded never runs, and of a host
that was killed the next one finds what had ended, and what was under way: that is recorded as lost.

How far the chain goes is also kept outside the database, sealed (`audit_head`), so that a cut-off end is noticed.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from anyplug.audit.sealed_head import FIRST, Found, Head, Heads
from anyplug.home import journal
from anyplug.home.database import Store
from anyplug.home.journal import Journal
from anyplug.model import json_values
from anyplug.model.errors import StoreError
from anyplug.model.types import Result
from anyplug.runtime.processes.program import Receipt

COMMIT_S = 0.03  # how long a record waits for others that are committed with it
RETRY_S = 5.0  # before the next attempt, if nobody asks earlier
MOST_WAITING = 500  # records, then they are committed at once: more would hold up the event loop for longer

_LAST = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1"
_HASH = "SELECT hash FROM audit WHERE number = ?"
_KNOWN = "SELECT 1 FROM audit WHERE call = ?"
_INSERT = "INSERT INTO audit (call, record, previous, hash) VALUES (?, ?, ?, ?)"

_encode = msgspec.json.Encoder().encode
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode

Later = Callable[[float, Callable[[], None]], object]  # calls something back after so many seconds


class Record(msgspec.Struct, kw_only=True, gc=False):
    """What is kept of a call, filled in as it goes along. Arguments and output are kept only as digests."""

    call: str
    at: float
    attachment: str
    tool: str
    callers: tuple[str, ...] = ()  # of a call that a plugin made: who called whom, the first caller first
    plugin: str = ""
    format: str = ""
    digest: str = ""
    arguments: str = ""
    verdict: str = ""
    by: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()  # who rewrote or noted what
    notes_by: tuple[str, ...] = ()  # whose each of the notes is, in the form of `by`
    held_by: Receipt | None = None  # what confined what ran; None if nothing did run
    outcome: str = ""
    duration_ms: float = 0.0
    output: str = ""


class Numbered(msgspec.Struct, frozen=True):
    """A record in its place."""

    number: int
    record: Record


class Broken(msgspec.Struct, frozen=True):
    """Where a chain of records is broken, and how."""

    number: int
    reason: str


class Audit:
    """The trail in the store. Each record is committed when its call ends, unless it may wait: see `gather`."""

    def __init__(self, store: Store, second_head: str = "") -> None:
        """`second_head` is a file outside the home in which the sealed head is kept, too; none if it is empty."""
        self._store = store
        self.heads = Heads(os.path.dirname(store.path), second_head)
        self._journal = Journal(store.journals)
        self._begun: dict[str, bytes] = {}  # by call: what is under way
        self._ended: list[tuple[str, bytes]] = []  # what is not committed yet
        self._is_sound = False  # the store took what it was given last
        self._later: Later | None = None
        self._is_due = False  # somebody will call back

    def gather(self, later: Later) -> None:
        """From now on let records wait a moment for others, until `close`."""
        self._later, self._is_due = later, False

    def begin(self, record: Record) -> None:
        """Note a call before it runs; raises StoreError, and then it must not run."""
        if not self._is_sound:
            self._see_to_the_store()
        line = _encode(record)
        self._journal.append(line)
        self._begun[record.call] = line

    def end(self, record: Record) -> None:
        """Record a call that has ended, also one that never began. Raises StoreError."""
        if self._begun.pop(record.call, None) is None and not self._is_sound:
            self._see_to_the_store()
        line = _encode(record)
        try:
            self._journal.append(line)
        except StoreError:
            self._ended.append((record.call, line))
            self.commit()  # the store may have room where the journal has none
            return
        self._ended.append((record.call, line))
        if self._later is None:
            self.commit()
        elif len(self._ended) >= MOST_WAITING:
            self._commit_in_time()
        elif not self._is_due:
            self._call_back(COMMIT_S)

    def commit(self) -> None:
        """Put what has ended into the chain; raises StoreError, and then it stays in the journal."""
        if self._ended:
            self._commit(self._ended)

    def close(self) -> None:
        """Commit what waits; later records do not wait. Raises StoreError: the journal is left to who comes next."""
        self._later = None
        try:
            self.commit()
        except StoreError:
            if not self._begun:
                self._journal.leave()
                self._ended = []
            raise
        self._forget()

    def recover(self) -> None:
        """Record what hosts that are gone had not committed, and as lost what they had under way."""
        journal.take_over(self._store.journals, self._adopt)

    def under_way(self) -> list[Record]:
        """List the calls that hosts have under way."""
        return [record for lines in journal.of_the_living(self._store.journals) for record in _sorted_out(lines)[0]]

    def records(
        self, *, plugin: str = "", tool: str = "", outcome: str = "", by: str = "", since: float = 0.0, limit: int = -1
    ) -> list[Numbered]:
        """Read the newest records that fit, oldest of them first. `by` names who decided, `since` when they began."""
        self.commit()
        wanted = []
        decoder = msgspec.json.Decoder(Record)
        for number, raw in self._store.each("SELECT number, record FROM audit ORDER BY number DESC"):
            try:
                record = decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                # Somebody tampered with it.
                record = Record(call="", at=0.0, attachment="", tool="", outcome="unreadable")
            if (
                (not plugin or record.plugin == plugin)
                and (not tool or record.tool == tool)
                and (not outcome or record.outcome == outcome)
                and (not by or had_a_say(record, by))
                and record.at >= since
            ):
                wanted.append(Numbered(number, record))
                if len(wanted) == limit:
                    break
        return wanted[::-1]

    def verify(self, kept: bytes = b"") -> tuple[int, list[Broken]]:
        """Count the records and find every place where the chain is broken.

        `kept` is a sealed head that a person kept somewhere: the chain must still contain it.
        """
        self.commit()
        # How many there should be comes first: hosts that are up append meanwhile.
        found = self.heads.look() + ([msgspec.structs.replace(self.heads.unseal(kept), path="it")] if kept else [])
        last = self._store.rows("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        rows = self._store.rows("SELECT number, record, previous, hash FROM audit ORDER BY number")
        broken = list(_breaks(rows))
        end = rows[-1][0] if rows else 0
        newest = max([last[0][0] if last else 0, *(place.head.number for place in found if place.head is not None)])
        if newest > end:
            broken.append(Broken(end + 1, _missing(end + 1, newest)))
        return len(rows), broken + _unsealed(rows, found)

    def head(self) -> bytes:
        """Encode the newest record's number and hash with a seal, to be kept elsewhere. Raises StoreError."""
        self.commit()
        rows = self._store.rows(_LAST)
        number, own = rows[0] if rows else (0, FIRST)
        try:
            return self.heads.seal(Head(number, own, time.time()))
        except OSError as error:
            raise _no_head(error) from error

    def reseal(self) -> None:
        """Accept the chain as it is: seal its end, whatever was sealed before. Raises StoreError."""
        self.commit()
        rows = self._store.rows(_LAST)
        number, own = rows[0] if rows else (0, FIRST)
        try:
            self.heads.replace(Head(number, own, time.time()))
        except OSError as error:
            raise _no_head(error) from error

    def _see_to_the_store(self) -> None:
        """See to it that the store can be written, now that it is in doubt; raises StoreError."""
        self._commit(self._ended)

    def _commit(self, ended: list[tuple[str, bytes]]) -> None:
        was_sound, self._is_sound = self._is_sound, False
        self._append(ended, are_new=was_sound)
        self._is_sound = True
        self._ended = []
        self._forget()

    def _append(self, ended: list[tuple[str, bytes]], *, are_new: bool) -> None:
        """Append to the chain in one transaction, under whose lock the last hash is read."""
        with self._store.writing() as transaction:
            last = transaction.execute(_LAST).fetchone()
            previous = last[1] if last else FIRST
            if last is None:
                self._begin_heads()
            rows = []
            for call, record in ended:
                if are_new or transaction.execute(_KNOWN, (call,)).fetchone() is None:
                    own = _link(previous, record)
                    rows.append((call, record, previous, own))
                    previous = own
            transaction.executemany(_INSERT, rows)
        if rows:
            self._seal()

    def _begin_heads(self) -> None:
        try:
            self.heads.begin()
        except OSError:
            pass  # as in `_seal`; a head that was never written is reported as missing

    def _seal(self) -> None:
        """Move the sealed head forward. One that cannot be written stays behind: the next commit moves it."""
        ((number, own),) = self._store.rows(_LAST)
        try:
            self.heads.advance(Head(number, own, time.time()), self._contains)
        except OSError:
            pass

    def _contains(self, head: Head) -> bool:
        return head.number == 0 or self._store.rows(_HASH, head.number) == [(head.hash,)]

    def _forget(self) -> None:
        """Take out of the journal what is in the chain."""
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
            self.commit()
        except StoreError:
            self._call_back(RETRY_S)  # until then every call tries, and is refused with the reason

    def _adopt(self, lines: list[bytes]) -> None:
        begun, ended = _sorted_out(lines)
        lost = [msgspec.structs.replace(record, outcome="lost") for record in begun]
        ended += [(record.call, _encode(record)) for record in lost]
        if ended:
            self._append(ended, are_new=False)


def had_a_say(record: Record, name: str) -> bool:
    """Whether a guard, a policy's rule, a person or the host decided about a call, changed it or was passed over."""
    return any(name in _names(who) for who in (record.by, *record.notes_by))


def _names(who: str) -> set[str]:
    """Return all names of somebody: of `policy:A,B FILE:3`, two rules and their place, also `policy`, `A` and `B`."""
    kind, _, own = who.partition(":")
    rules = own.partition(" ")[0]
    return {who, kind, own, rules, *rules.split(",")}


def digest_of(value: Any) -> str:
    """Hash a JSON value, whatever the order of its keys; raises TypeError or ValueError for what is none."""
    encoded = _encode_in_order(value)
    if encoded.count(b"[") + encoded.count(b"{") > json_values.DEEPEST and json_values.is_too_deep(value):
        raise ValueError(json_values.TOO_DEEP)
    if b"null" in encoded and not _is_finite(value):  # what is not finite would be written as null
        raise ValueError("NaN and Infinity are not JSON")
    return hashlib.sha256(encoded).hexdigest()


def digest_of_output(result: Result) -> str:
    """Hash what a call gave."""
    return hashlib.sha256(_encode(result.content)).hexdigest()


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))


def _sorted_out(lines: list[bytes]) -> tuple[list[Record], list[tuple[str, bytes]]]:
    """Sort a journal's lines: the calls under way, and those that have ended."""
    begun: dict[str, Record] = {}
    ended: dict[str, bytes] = {}
    decoder = msgspec.json.Decoder(Record)
    for line in lines:
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # torn, so nothing came of it
        if record.outcome:
            ended[record.call] = line
        else:
            begun[record.call] = record
    return [record for call, record in begun.items() if call not in ended], list(ended.items())


def _link(previous: str, record: bytes) -> str:
    return hashlib.sha256(previous.encode() + b"\n" + record).hexdigest()


def _unsealed(rows: list[Any], found: list[Found]) -> list[Broken]:
    """Compare the chain with the heads that were sealed."""
    hashes = {row[0]: row[3] for row in rows}
    end = rows[-1][0] if rows else 0
    broken = []
    for place in found:
        if place.state == "invalid":
            broken.append(Broken(end, f"{place.path} was not sealed by this home, or was changed"))
        elif place.head is not None and hashes.get(place.head.number, place.head.hash) != place.head.hash:
            broken.append(Broken(place.head.number, f"it is not the record that {place.path} was sealed with"))
        elif rows and place.state == "missing":
            broken.append(Broken(end, f"the sealed head {place.path} is missing, so records may have been cut off"))
    return broken


def _no_head(error: OSError) -> StoreError:
    return StoreError(
        f"the head of the chain cannot be sealed: {error.strerror}", "check the home folder's permissions"
    )


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
