"""Jobs: calls of asynchronous tools, which outlive the gateway that ordered them.

    PREFIX.job.APPROVAL  the order: signed by its gateway, and sealed for the workers that could run it then
    $KV.PREFIX_jobs.ID   queued (its gateway) -> claimed -> ended (a worker), or dropped before it was claimed

Orders wait in a work-queue stream for the first worker with a free place. It claims the job by replacing the very entry
that says `queued`, and whose number the order has, which works once; so no job runs twice, even if somebody puts that
entry back, and what is dropped never runs. The result stays on the worker, and any gateway gets it there, in a session.
"""

import os
from typing import Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from anyplug.fleet import sealing
from anyplug.fleet.credentials import SIGNATURE_BYTES, Credentials, Member, NotMember, verified, verified_member
from anyplug.fleet.messages import Done, Run
from anyplug.fleet.nats_link import Link
from anyplug.fleet.sealing import NotOpened

WAITS_S = 24 * 3600.0  # how long an order waits for a worker; then its job never runs
KEPT_S = 7 * 24 * 3600.0  # how long it is known where a job is
LARGEST = 512 << 10  # bytes of an order
PURPOSE = b"anyplug fleet job"

Where = Literal["queued", "claimed", "ended", "dropped"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is."""

    id: str
    state: Where
    tool: str  # as its gateway names it
    at: float  # when it was ordered
    certificate: bytes  # of the member that says so
    to: str = ""  # the key of the gateway that ordered it
    box: bytes = b""  # how it ended, for that gateway, if it is short: it may ask when the worker is gone
    reason: str = ""  # the code of the error, if it was dropped
    message: str = ""


class Order(msgspec.Struct, frozen=True, array_like=True):
    """A job that a worker shall run."""

    id: str
    certificate: bytes
    until: float  # no worker starts it later
    boxes: dict[str, bytes]  # by worker: the key to the body
    body: bytes
    number: int = 0  # of the entry that says `queued`; orders of earlier versions do not say it


class Read(msgspec.Struct, frozen=True):
    """An entry, as it is stored."""

    entry: Entry
    by: Member
    number: int  # in its stream


class SealedForOthers(Exception):
    """An order can be run by other workers only: this one did not offer the plugin then."""


def order(own: Credentials, run: Run, workers: list[str], until: float, number: int) -> bytes:
    """Return an order for some workers; `number` is that of the entry that says `queued`."""
    key, about = os.urandom(sealing.KEY_BYTES), run.id.encode()
    body = AESGCM(key).encrypt(sealing.ONCE, msgspec.msgpack.encode(run), about)
    boxes = {worker: sealing.boxed(key, worker, PURPOSE, about) for worker in workers}
    return own.sign(msgspec.msgpack.encode(Order(run.id, own.certificate, until, boxes, body, number)))


def read_order(signed: bytes, own: Credentials) -> tuple[Order, Member]:
    """Return an order, and the gateway that signed it. Raises NotOpened."""
    try:
        found = msgspec.msgpack.decode(signed[SIGNATURE_BYTES:], type=Order)
        member = verified_member(found.certificate, own.member.admin)
        verified(signed, member.key)
    except (NotMember, msgspec.DecodeError) as error:
        raise NotOpened(str(error)) from error
    if member.role != "gateway":
        raise NotOpened(f"'{member.name}' is no gateway")
    return found, member


def opened(found: Order, own: Credentials) -> Run:
    """Return the call of an order. Raises NotOpened, and SealedForOthers."""
    about = found.id.encode()
    if own.key not in found.boxes:
        raise SealedForOthers
    try:
        key = sealing.unboxed(found.boxes[own.key], own, PURPOSE, about)
        run = msgspec.msgpack.decode(AESGCM(key).decrypt(sealing.ONCE, found.body, about), type=Run)
    except (InvalidTag, ValueError) as error:  # a DecodeError is one, too
        raise NotOpened(str(error)) from error
    if run.id != found.id:
        raise NotOpened("it is for another job")
    return run


def end_boxed(done: Done, id: str, gateway: str) -> bytes:
    """Return how a job ended, for the gateway that ordered it; nothing if that is long."""
    encoded = msgspec.msgpack.encode(done)
    return sealing.boxed(encoded, gateway, PURPOSE, id.encode()) if len(encoded) <= LARGEST else b""


def end_of(entry: Entry, own: Credentials) -> Done | None:
    """Return how a job ended, if it was ordered by us and the entry says it."""
    if entry.to != own.key or not entry.box:
        return None
    try:
        return msgspec.msgpack.decode(sealing.unboxed(entry.box, own, PURPOSE, entry.id.encode()), type=Done)
    except (NotOpened, msgspec.DecodeError):
        return None


async def read(link: Link, id: str) -> Read | None:
    """Return where a job is, or None. Raises FleetError."""
    number, signed = await link.newest(link.subjects.jobs, id)
    try:
        entry = msgspec.msgpack.decode(signed[SIGNATURE_BYTES:], type=Entry)
        member = verified_member(entry.certificate, link.own.member.admin)
        verified(signed, member.key)
    except (NotMember, msgspec.DecodeError):
        return None
    said_by = {"queued": ("gateway",), "dropped": ("gateway", "worker")}.get(entry.state, ("worker",))
    return Read(entry, member, number) if entry.id == id and member.role in said_by else None


async def write(link: Link, entry: Entry, *, after: int) -> int:
    """Store where a job is, unless somebody did since the entry with this number. Raises FleetError."""
    signed = link.own.sign(msgspec.msgpack.encode(msgspec.structs.replace(entry, certificate=link.own.certificate)))
    only = {"Nats-Expected-Last-Subject-Sequence": str(after)}
    return await link.store(link.subjects.entry(link.subjects.jobs, entry.id), signed, only)
