"""The opening of a session between a gateway and a worker, and the sealing of what is said in it.

    gateway -> worker   hello: its certificate, a fresh key, the time; signed
    worker -> gateway   welcome: its certificate, a fresh key, its epoch and time, the hash of the hello; signed
    both                messages under AES-GCM, with one key for each direction and a counter that only grows

A message of more than 512 KiB is sealed in several parts, which arrive in their order or not at all.

A session proves both sides to each other, and nothing to anybody else. A message that does not open is ignored: NATS
delivers what any member with some right to JetStream makes it deliver.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from anyplug.fleet.credentials import Credentials, Member, NotMember, exchange_key, verified, verified_member

HELLO, WELCOME, SEALED, NO_SESSION = b"h", b"w", b"s", b"n"  # the first byte of a message
NAME_BYTES = 8  # of a session
COUNTER_BYTES = 8
HEAD = 1 + NAME_BYTES + COUNTER_BYTES
KEY_BYTES = 32
ONCE = bytes(12)  # the nonce of a key that seals one thing
PART = 512 << 10  # bytes; NATS takes messages of a mebibyte, with its headers
LARGEST = 48 << 20  # bytes of a message; beyond that, tools should pass the address of the data
MOST_PARTS = LARGEST // PART + 1
LASTS_S = 3600.0  # how long a session is used; then a new one is opened
SKEW_S = 30.0  # by which the clocks of two machines may differ


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The request for a session."""

    certificate: bytes
    worker: str
    exchange: bytes  # a fresh X25519 key
    at: float
    purpose: str = "hello"


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The answer to it."""

    certificate: bytes
    hello: bytes  # its hash
    exchange: bytes
    session: bytes  # its name
    epoch: str  # of the worker: another one after each start
    at: float
    purpose: str = "welcome"


class Unsaid(msgspec.Struct, frozen=True, array_like=True):
    """A worker's proof that it did not read a message: it is for a session that the worker does not have."""

    message: bytes  # its hash
    epoch: str
    reason: str  # why it opens no session, if it was asked to
    purpose: str = "no session"


class Part(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A part of a message."""

    number: int  # of the message
    at: int
    of: int
    data: bytes


class NotOpened(Exception):
    """A message is not from whom it seems to be, or not for us."""


class TooLong(Exception):
    """A message is longer than any may be."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it has {size >> 20} MiB, and at most {LARGEST >> 20} MiB fit")


_PART = msgspec.msgpack.encode(Part(0, 0, 0, b""))[:6]  # an array of five, that begins with its tag
_part = msgspec.msgpack.Decoder(Part)
_hello = msgspec.msgpack.Decoder(Hello)
_welcome = msgspec.msgpack.Decoder(Welcome)
_unsaid = msgspec.msgpack.Decoder(Unsaid)
_encode = msgspec.msgpack.encode


class Session:
    """One session, as one side sees it."""

    def __init__(self, name: bytes, other: Member, keys: tuple[bytes, bytes], epoch: str, skew_s: float = 0.0) -> None:
        """`keys` are for what we say, and for what we hear. `skew_s` is how far the other's clock is ahead."""
        self.name = name
        self.other = other
        self.epoch = epoch
        self.skew_s = skew_s
        self.opened = time.monotonic()
        self._out, self._in = AESGCM(keys[0]), AESGCM(keys[1])
        self.turn = asyncio.Lock()  # for sealing and sending: the other side takes messages in their order
        self._said = 0
        self._heard = 0
        self._long = 0  # messages in several parts
        self._parts: dict[int, list[bytes]] = {}  # of messages that have not arrived as a whole

    @property
    def is_old(self) -> bool:
        """Whether a new one should be opened."""
        return time.monotonic() - self.opened > LASTS_S

    def seal(self, message: Any) -> list[bytes]:
        """Return a message as it is sent, in one or more parts; raises TooLong."""
        whole = _encode(message)
        if len(whole) <= PART:
            return [self._sealed(whole)]
        if len(whole) > LARGEST:
            raise TooLong(len(whole))
        self._long += 1
        count = -(-len(whole) // PART)
        parts = (Part(self._long, at, count, whole[at * PART : (at + 1) * PART]) for at in range(count))
        return [self._sealed(_encode(part)) for part in parts]

    def seal_now(self, message: Any) -> bytes:
        """Return a message as it is sent at once; empty if it has to be sent in `turn`.

        It is long, or a long one is on its way.
        """
        if self.turn.locked() or len(whole := _encode(message)) > PART:
            return b""
        return self._sealed(whole)

    def _sealed(self, plain: bytes) -> bytes:
        self._said += 1
        head = SEALED + self.name + self._said.to_bytes(COUNTER_BYTES)
        return head + self._out.encrypt(head[-12:], plain, head)

    def open(self, data: bytes, *, is_ordered: bool) -> bytes:
        """Return what a message says; empty as long as parts of it are missing. Raises NotOpened.

        `is_ordered` refuses one that was said before the last, and so every repetition.
        """
        said = self._opened(data, is_ordered=is_ordered)
        return said if not said.startswith(_PART) else self._joined(said)

    def _joined(self, said: bytes) -> bytes:
        try:
            part = _part.decode(said)
        except msgspec.DecodeError as error:
            raise NotOpened("a part of it cannot be read") from error
        before = self._parts.setdefault(part.number, [])
        if part.of > MOST_PARTS or len(before) != part.at:
            del self._parts[part.number]
            raise NotOpened("a part of it is missing")
        before.append(part.data)
        if len(before) == part.of:
            return b"".join(self._parts.pop(part.number))
        while sum(map(len, self._parts.values())) > 2 * MOST_PARTS:  # of senders that stopped in the middle
            del self._parts[next(iter(self._parts))]
        return b""

    def _opened(self, data: bytes, *, is_ordered: bool) -> bytes:
        head = data[:HEAD]
        counter = int.from_bytes(head[1 + NAME_BYTES :])
        if is_ordered and counter <= self._heard:
            raise NotOpened("it is repeated")
        try:
            said = self._in.decrypt(head[-12:], data[HEAD:], head)
        except InvalidTag as error:
            raise NotOpened("it is not sealed with the key of the session") from error
        self._heard = max(self._heard, counter)
        return said


def session_of(data: bytes) -> bytes:
    """Return the name of the session that a sealed message is of."""
    return data[1 : 1 + NAME_BYTES]


class Opening:
    """A gateway that opens a session."""

    def __init__(self, credentials: Credentials, worker: str) -> None:
        self._credentials = credentials
        self._worker = worker
        self._exchange = X25519PrivateKey.generate()
        public = self._exchange.public_key().public_bytes_raw()
        hello = Hello(credentials.certificate, worker, public, time.time())
        self.message = HELLO + credentials.sign(_encode(hello))

    def finish(self, answer: bytes) -> Session:
        """Return the session that the answer opens; raises NotOpened."""
        now = time.time()
        try:
            signed = answer[1:]
            welcome = _welcome.decode(verified(signed, self._worker))
            member = verified_member(welcome.certificate, self._credentials.member.admin)
        except (NotMember, msgspec.DecodeError) as error:
            raise NotOpened(str(error)) from error
        digest = hashlib.sha256(self.message).digest()
        if (
            welcome.purpose != "welcome"
            or welcome.hello != digest
            or (member.role, member.key) != ("worker", self._worker)
        ):
            raise NotOpened("it answers something else")
        keys = _keys(self._exchange, welcome.exchange, self.message, answer)
        return Session(welcome.session, member, keys, welcome.epoch, welcome.at - now)


def accept(
    data: bytes, credentials: Credentials, epoch: str, is_withdrawn: Callable[[str], bool]
) -> tuple[Session, bytes]:
    """Return the session that a gateway's hello opens, and the answer; raises NotOpened, with the reason for it."""
    signed = data[1:]
    try:
        hello = _hello.decode(signed[64:])
        member = verified_member(hello.certificate, credentials.member.admin)
        verified(signed, member.key)
    except (NotMember, msgspec.DecodeError) as error:
        raise NotOpened(str(error)) from error
    if hello.purpose != "hello" or hello.worker != credentials.key or member.role != "gateway":
        raise NotOpened(f"'{member.name}' is no gateway" if member.role != "gateway" else "it is for another worker")
    if is_withdrawn(member.key):
        raise NotOpened(f"'{member.name}' was withdrawn from the fleet")
    now = time.time()
    if abs(now - hello.at) > SKEW_S:
        raise NotOpened(f"the clock of gateway '{member.name}' differs by {abs(now - hello.at):.0f} s")
    exchange, name = X25519PrivateKey.generate(), os.urandom(NAME_BYTES)
    welcome = Welcome(
        credentials.certificate,
        hashlib.sha256(data).digest(),
        exchange.public_key().public_bytes_raw(),
        name,
        epoch,
        now,
    )
    answer = WELCOME + credentials.sign(_encode(welcome))
    ours, theirs = _keys(exchange, hello.exchange, data, answer)
    return Session(name, member, (theirs, ours), epoch), answer


def unsaid(data: bytes, credentials: Credentials, epoch: str, reason: str = "") -> bytes:
    """Return the proof that a message was not read."""
    return NO_SESSION + credentials.sign(_encode(Unsaid(hashlib.sha256(data).digest(), epoch, reason)))


def read_unsaid(answer: bytes, sent: Sequence[bytes], worker: str) -> Unsaid | None:
    """Return a worker's proof that it did not read what we sent; None if it is not one."""
    try:
        proof = _unsaid.decode(verified(answer[1:], worker))
    except (NotMember, msgspec.DecodeError):
        return None
    is_ours = proof.message in {hashlib.sha256(part).digest() for part in sent}
    return proof if is_ours and proof.purpose == "no session" else None


def boxed(data: bytes, to: str, purpose: bytes, about: bytes) -> bytes:
    """Seal something for a member that may not be there now: the key is made of its own one and a fresh one."""
    fresh = X25519PrivateKey.generate()
    public = fresh.public_key().public_bytes_raw()
    key = _box_key(fresh.exchange(exchange_key(to)), public + about, purpose)
    return public + AESGCM(key).encrypt(ONCE, data, about)


def unboxed(box: bytes, own: Credentials, purpose: bytes, about: bytes) -> bytes:
    """Return what was sealed for us; raises NotOpened."""
    public = box[:KEY_BYTES]
    try:
        shared = own.exchange().exchange(X25519PublicKey.from_public_bytes(public))
        return AESGCM(_box_key(shared, public + about, purpose)).decrypt(ONCE, box[KEY_BYTES:], about)
    except (InvalidTag, ValueError) as error:
        raise NotOpened("it was not sealed for us") from error


def _box_key(shared: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(hashes.SHA256(), KEY_BYTES, hashlib.sha256(salt).digest(), purpose).derive(shared)


def _keys(own: X25519PrivateKey, other: bytes, hello: bytes, welcome: bytes) -> tuple[bytes, bytes]:
    """Return the keys from gateway to worker, and back; raises NotOpened."""
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise NotOpened("its key is invalid") from error
    salt = hashlib.sha256(hello + welcome).digest()
    derived = HKDF(hashes.SHA256(), 64, salt, b"anyplug fleet session").derive(shared)
    return derived[:32], derived[32:]
