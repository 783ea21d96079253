"""Remove old records, so that the rest can still be verified.

Only the oldest records go, up to some number. The number and hash of the last one that went are sealed with the home's
key, in `audit-start`: the chain continues from there, and a removal without the key is detected.
"""

import time

import msgspec

from anyplug.audit.sealed_head import Head, Heads
from anyplug.home.database import Store
from anyplug.model.errors import StoreError

ROW_BYTES = 320  # what a record takes in the database besides its own bytes: two hashes, its number and its index

_AGES = "SELECT number, record FROM audit ORDER BY number"
_SIZES = "SELECT number, length(record) FROM audit ORDER BY number DESC"
_HASH = "SELECT hash FROM audit WHERE number = ?"
_LAST = "SELECT max(number) FROM audit"
_REMOVE = "DELETE FROM audit WHERE number <= ?"


class _Began(msgspec.Struct):
    at: float


def last_too_old(store: Store, before: float) -> int:
    """Return the number of the last of the oldest records that began before a moment; 0 if there is none."""
    found = 0
    decoder = msgspec.json.Decoder(_Began)
    for number, raw in store.each(_AGES):
        try:
            is_old = decoder.decode(raw).at < before
        except (msgspec.DecodeError, UnicodeDecodeError):
            break  # somebody tampered with it: it stays, as evidence
        if not is_old:
            break
        found = number
    return found


def last_too_many(store: Store, largest: int) -> int:
    """Return the number of the newest record that no longer fits into so many bytes; 0 if all fit."""
    room = largest
    for number, size in store.each(_SIZES):
        room -= size + ROW_BYTES
        if room < 0:
            return int(number)
    return 0


def remove(store: Store, heads: Heads, last: int) -> int:
    """Remove the records up to a number, but never the newest; return how many. Raises StoreError."""
    with store.writing() as transaction:
        (newest,) = transaction.execute(_LAST).fetchone()
        last = min(last, (newest or 0) - 1)
        row = transaction.execute(_HASH, (last,)).fetchone()
        if row is None:
            return 0
        removed = transaction.execute(_REMOVE, (last,)).rowcount
        try:
            # Before the transaction ends: then a crash leaves too many records, which can be verified, not too few.
            heads.begin_after(Head(last, row[0], time.time()))
        except OSError as error:
            raise StoreError(
                f"the start of the audit chain cannot be sealed: {error.strerror}",
                "check the home folder's permissions; no record was removed",
            ) from error
    return int(removed)
