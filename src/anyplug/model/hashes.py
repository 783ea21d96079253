"""SHA-256 that leaves OpenSSL to what is long: a command takes longer to load it than to hash what is short. Pure."""

import sys
from typing import TYPE_CHECKING

try:
    from _sha2 import sha256 as _plain
except ImportError:
    from _sha256 import sha256 as _plain  # before Python 3.12

if TYPE_CHECKING:
    from hashlib import _Hash

BLOCK = 64  # bytes, of SHA-256
LONG = 1 << 19  # bytes from which on it is worth its millisecond to load OpenSSL, which is five times as fast
_OUTER, _INNER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x5C, 0x36))  # the paddings of HMAC


def sha256(data: bytes = b"", *, more: int = 0) -> "_Hash":
    """Begin a hash with some data; `more` is how many bytes may follow."""
    if len(data) + more <= LONG and "_hashlib" not in sys.modules:
        plain: _Hash = _plain(data)
        return plain
    import hashlib  # loads OpenSSL, as the module says

    return hashlib.sha256(data)


def hmac_sha256(key: bytes, data: bytes) -> bytes:
    """Return what `hmac.digest` returns, whose module loads OpenSSL."""
    key = (key if len(key) <= BLOCK else sha256(key).digest()).ljust(BLOCK, b"\0")
    return sha256(key.translate(_OUTER) + sha256(key.translate(_INNER) + data).digest()).digest()
