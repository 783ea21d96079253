"""JSON Web Tokens: reading them, and checking signatures with a secret, a certificate, a public key, or a JWK set."""

import hmac
import importlib.util
import json
from typing import Any, Final, NamedTuple

from anyplug.rego.builtins.builtin_table import STRING, TABLE, builtin
from anyplug.rego.builtins.encoding import base64url_decode, read_json
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported
from anyplug.rego.values.text import raw
from anyplug.rego.values.values import Object, boolean

PARTS: Final = 3  # header, payload, signature
MAX_NESTED: Final = 8  # tokens inside tokens
SIZES: Final = ("256", "384", "512")
UNREADABLE: Final = "a key that is not a certificate, a public key, a JWK or a JWK set; pass one as PEM or as JSON"


class Key(NamedTuple):
    """A public key; a JWK may name itself and its algorithm."""

    key: Any
    kid: str = ""
    alg: str = ""


def _parts(token: str) -> list[str]:
    found = token.split(".")
    if len(found) == 1:
        msg = "encoded JWT had no period separators"
        raise BuiltinError(msg)
    if len(found) != PARTS:
        msg = f"encoded JWT must have 3 sections, found {len(found)}"
        raise BuiltinError(msg)
    return found


def _object(text: str, what: str) -> Object:
    found = read_json(text)
    if found.__class__ is not Object:
        msg = f"JWT {what} is not an object"
        raise BuiltinError(msg)
    return found


def _header(part: str) -> Object:
    header = _object(base64url_decode(part), "header")
    if "enc" in header:
        msg = "JWT is a JWE object, which is not supported"
        raise BuiltinError(msg)
    return header


def _signature(part: str) -> bytes:
    try:
        return raw(base64url_decode(part))
    except BuiltinError as error:
        msg = f"JWT signature had invalid encoding: {error}"
        raise BuiltinError(msg) from None


@builtin("io.jwt.decode", STRING)
def decode(token: Any) -> Any:
    """Return header, payload and signature, without checking anything."""
    for _ in range(MAX_NESTED):
        first, second, third = _parts(token)
        header = _header(first)
        payload = base64url_decode(second)
        if header.get("cty", "").__class__ is not str:
            msg = "a JWT whose content type is not a string"
            raise NotSupported(msg)
        if header.get("cty") != "JWT":
            return (header, _object(payload, "payload"), _signature(third).hex())
        token = payload.strip("\"'")
    msg = f"a JWT nested more than {MAX_NESTED} levels deep"
    raise NotSupported(msg)


def _hmac(size: str) -> None:
    @builtin(f"io.jwt.verify_hs{size}", STRING, STRING)
    def verify(token: Any, secret: Any) -> Any:
        first, second, third = _parts(token)
        code = hmac.new(raw(secret), raw(f"{first}.{second}"), f"sha{size}").digest()
        return boolean(hmac.compare_digest(_signature(third), code))


for _size in SIZES:
    _hmac(_size)


# Public keys. cryptography is imported late: it costs 60 ms of start-up that few policies need.


def _keys(text: str) -> list[Key]:
    # 60 ms of start-up that only policies with signed tokens need
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    data = text.encode()
    if "-----END" in text and text.rpartition("-----END")[2].partition("-----\n")[2].strip() + _second(text):
        msg = "extra data after a PEM certificate block"
        raise BuiltinError(msg)
    try:
        if "-----BEGIN CERTIFICATE-----" in text:
            return [Key(each.public_key()) for each in x509.load_pem_x509_certificates(data)]
        if "-----BEGIN" in text:
            return [Key(serialization.load_pem_public_key(data))]
        document = json.loads(text)
        return [_jwk(each) for each in document.get("keys", [document])]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotSupported(UNREADABLE) from error


def _second(text: str) -> str:
    """Return what follows the first block of PEM."""
    return text.partition("-----END")[2].partition("-----BEGIN")[2]


def _jwk(document: dict[str, Any]) -> Key:
    # 60 ms of start-up that only policies with signed tokens need
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    def number(name: str) -> int:
        return int.from_bytes(raw(base64url_decode(document[name])))

    made: Any
    if document["kty"] == "RSA":
        made = rsa.RSAPublicNumbers(number("e"), number("n")).public_key()
    elif document["kty"] == "EC":
        curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
        curve = curves[document["crv"]]
        made = ec.EllipticCurvePublicNumbers(number("x"), number("y"), curve).public_key()
    elif document["kty"] == "OKP" and document["crv"] == "Ed25519":
        made = ed25519.Ed25519PublicKey.from_public_bytes(raw(base64url_decode(document["x"])))
    else:
        raise NotSupported(UNREADABLE)
    return Key(made, str(document.get("kid", "")), str(document.get("alg", "")))


def _fits(kind: str, size: str, key: Any, message: bytes, signature: bytes) -> bool:
    # 60 ms of start-up that only policies with signed tokens need
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

    digests = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
    digest: Any = digests.get(size)
    try:
        if kind == "rs" and isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, message, padding.PKCS1v15(), digest)
        elif kind == "ps" and isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, message, padding.PSS(padding.MGF1(digest), padding.PSS.AUTO), digest)
        elif kind == "es" and isinstance(key, ec.EllipticCurvePublicKey):
            half = len(signature) // 2
            numbers = int.from_bytes(signature[:half]), int.from_bytes(signature[half:])
            key.verify(utils.encode_dss_signature(*numbers), message, ec.ECDSA(digest))
        elif kind == "eddsa" and isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        else:
            return False
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed(kind: str, size: str) -> None:
    @builtin(f"io.jwt.verify_{kind}{size}", STRING, STRING)
    def verify(token: Any, given: Any) -> Any:
        first, second, third = _parts(token)
        keys = _keys(given)
        signature, header = _signature(third), _header(first)
        kid, alg = header.get("kid", ""), header.get("alg", "")
        if kid.__class__ is not str or alg.__class__ is not str:
            msg = "a JWT whose kid or alg is not a string"
            raise NotSupported(msg)
        named = [key for key in keys if kid and key.kid == kid][:1]
        tried = named or [key for key in keys if not key.alg or key.alg == alg]
        message = raw(f"{first}.{second}")
        return boolean(any(_fits(kind, size, key.key, message, signature) for key in tried))


for _kind in ("rs", "ps", "es"):
    for _size in SIZES:
        _signed(_kind, _size)
_signed("eddsa", "")

if importlib.util.find_spec("cryptography") is None:  # what would fail at each call is refused when a policy is loaded
    for _builtin in TABLE.values():
        if _builtin.name.startswith("io.jwt.verify_") and "_hs" not in _builtin.name:
            _builtin.refused = "cryptography is not installed: run `pip install cryptography`"
