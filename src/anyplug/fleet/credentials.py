"""Who a member of the fleet is: its key, and the certificate in which the admin says what it may do.

One Ed25519 key, an nkey of NATS, serves to connect and to sign. The certificate is what members check of each other,
because NATS's permissions alone do not hold: JetStream can be told to publish for somebody else.
"""

import base64
import binascii
import hashlib
import os
import re
import time
from typing import Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from anyplug.model.errors import ConfigError

Role = Literal["admin", "gateway", "worker", "observer"]
ROLES: tuple[Role, ...] = ("admin", "gateway", "worker", "observer")

USER, SEED = 20 << 3, 18 << 3  # the types of nkeys, as their first letters U and S show
KEY_BYTES = 32
SIGNATURE_BYTES = 64
PRIME = 2**255 - 19  # of the curve
MOST_BYTES = 1 << 16  # of a file of credentials

_BLOCK = "-----BEGIN {0}-----\n{1}\n------END {0}------\n"
_SEED_BLOCK = re.compile(r"-+BEGIN USER NKEY SEED-+\s*([A-Z2-7]+)\s*-+END USER NKEY SEED-+")
_MEMBER_BLOCK = re.compile(r"-+BEGIN ANYPLUG FLEET MEMBER-+\s*([A-Za-z0-9_\s=-]+?)\s*-+END ANYPLUG FLEET MEMBER-+")
_CURE = "ask the fleet's admin for a file from `anyplug fleet config`"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """What the admin says of a key."""

    admin: str  # the admin's key, which all members of a fleet have in common
    role: Role
    name: str
    key: str
    issued: float


class NotMember(Exception):
    """A certificate or a signature is invalid."""


_member = msgspec.msgpack.Decoder(Member)


class Credentials:
    """A member's own key and certificate."""

    def __init__(
        self, private: Ed25519PrivateKey, certificate: bytes, path: str = "", *, has_token: bool = False
    ) -> None:
        """`has_token` says that the file at `path` also has a token (JWT) to connect with."""
        self._private = private
        self.certificate = certificate
        self.member = _member.decode(certificate[SIGNATURE_BYTES:])
        self.path = path
        self.has_token = has_token

    @property
    def seed(self) -> str:
        """The secret, as NATS writes it."""
        return _seed_text(self._private)

    @property
    def key(self) -> str:
        """The public key, as NATS writes it."""
        return self.member.key

    def sign(self, data: bytes) -> bytes:
        """Sign, and put the signature before the data."""
        return self._private.sign(data) + data

    def exchange(self) -> X25519PrivateKey:
        """Return the key with which what is sealed for us is opened. It is made of the same secret."""
        whole = hashlib.sha512(self._private.private_bytes_raw()).digest()
        return X25519PrivateKey.from_private_bytes(whole[:KEY_BYTES])

    def text(self) -> str:
        """Return what stands in a file of credentials."""
        seed = _BLOCK.format("USER NKEY SEED", self.seed)
        return seed + "\n" + member_block(self.certificate)

    def certify(self, role: Role, name: str, key: str) -> bytes:
        """Return the certificate of another member; only an admin's are accepted."""
        member = Member(admin=self.key, role=role, name=name, key=key, issued=time.time())
        return self.sign(msgspec.msgpack.encode(member))

    def admit(self, role: Role, name: str) -> "Credentials":
        """Return the credentials of a new member, with a new key."""
        private = Ed25519PrivateKey.generate()
        return Credentials(private, self.certify(role, name, _public_text(private.public_key())))


def new_admin(name: str = "admin") -> Credentials:
    """Return the credentials of the admin of a new fleet."""
    private = Ed25519PrivateKey.generate()
    key = _public_text(private.public_key())
    member = Member(admin=key, role="admin", name=name, key=key, issued=time.time())
    body = msgspec.msgpack.encode(member)
    return Credentials(private, private.sign(body) + body)


def member_block(certificate: bytes) -> str:
    """Return the block of a certificate, for a file of credentials that has the key already."""
    lines = base64.urlsafe_b64encode(certificate).decode()
    return _BLOCK.format("ANYPLUG FLEET MEMBER", "\n".join(re.findall(".{1,76}", lines)))


def read(path: str) -> Credentials:
    """Read a file of credentials. Raises ConfigError."""
    path = os.path.abspath(os.path.expanduser(path))
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"cannot read the fleet's credentials {path}: {error.strerror}", _CURE) from error
    seed, block = _SEED_BLOCK.search(text), _MEMBER_BLOCK.search(text)
    if seed is None or block is None:
        missing = "key" if seed is None else "certificate of the fleet"
        raise ConfigError(f"{path} has no {missing}", _CURE)
    try:
        private = Ed25519PrivateKey.from_private_bytes(_raw(seed[1], SEED))
        certificate = base64.urlsafe_b64decode("".join(block[1].split()))
        credentials = Credentials(private, certificate, path, has_token="BEGIN NATS USER JWT" in text)
        member = verified_member(certificate, credentials.member.admin)
    except (ValueError, msgspec.DecodeError, NotMember) as error:
        raise ConfigError(f"the fleet's credentials {path} are invalid: {error}", _CURE) from error
    if member.key != _public_text(private.public_key()):
        raise ConfigError(f"the key in {path} is not the one that its certificate is for", _CURE)
    return credentials


def verified_member(certificate: bytes, admin: str) -> Member:
    """Return whom a certificate of this admin is for; raises NotMember."""
    try:
        member = _member.decode(verified(certificate, admin))
    except msgspec.DecodeError as error:
        raise NotMember("a certificate cannot be read") from error
    if member.admin != admin or (member.role == "admin") != (member.key == admin):
        raise NotMember("a certificate is of another fleet")
    return member


def verified(signed: bytes, key: str) -> bytes:
    """Return what a key signed, without the signature; raises NotMember."""
    try:
        public = Ed25519PublicKey.from_public_bytes(_raw(key, USER))
        public.verify(signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:])
    except (InvalidSignature, ValueError) as error:
        raise NotMember("a signature is invalid") from error
    return signed[SIGNATURE_BYTES:]


def exchange_key(key: str) -> X25519PublicKey:
    """Return the key to seal something for a member with: its own, as a point of the other form of the same curve."""
    y = int.from_bytes(_raw(key, USER), "little") & ((1 << 255) - 1)
    return X25519PublicKey.from_public_bytes(((1 + y) * pow(1 - y, -1, PRIME) % PRIME).to_bytes(KEY_BYTES, "little"))


def _raw(text: str, kind: int) -> bytes:
    """Return the bytes of an nkey; raises ValueError."""
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    if binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:] or raw[0] & 0xF8 != kind:
        raise ValueError("it is no key of NATS")
    return raw[-2 - KEY_BYTES : -2]


def _text(prefix: bytes, raw: bytes) -> str:
    whole = prefix + raw
    return base64.b32encode(whole + binascii.crc_hqx(whole, 0).to_bytes(2, "little")).decode().rstrip("=")


def _public_text(key: Ed25519PublicKey) -> str:
    return _text(bytes([USER]), key.public_bytes_raw())


def _seed_text(key: Ed25519PrivateKey) -> str:
    return _text(bytes([SEED | USER >> 5, (USER & 31) << 3]), key.private_bytes_raw())
