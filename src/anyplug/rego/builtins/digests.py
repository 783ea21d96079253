"""Digests and message authentication codes."""

import hashlib
import hmac
from typing import Any

from anyplug.rego.builtins.builtin_table import STRING, builtin
from anyplug.rego.values.text import raw
from anyplug.rego.values.values import boolean


def _digest(name: str) -> None:
    @builtin(f"crypto.{name}", STRING)
    def digest(text: Any) -> Any:
        return hashlib.new(name, raw(text), usedforsecurity=False).hexdigest()


def _code(name: str) -> None:
    @builtin(f"crypto.hmac.{name}", STRING, STRING)
    def code(text: Any, key: Any) -> Any:
        return hmac.new(raw(key), raw(text), name).hexdigest()


for _name in ("md5", "sha1", "sha256"):
    _digest(_name)
for _name in ("md5", "sha1", "sha256", "sha512"):
    _code(_name)


@builtin("crypto.hmac.equal", STRING, STRING)
def hmac_equal(left: Any, right: Any) -> Any:
    """Compare codes, in constant time."""
    return boolean(hmac.compare_digest(raw(left), raw(right)))
