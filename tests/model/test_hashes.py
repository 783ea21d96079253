"""Hashes are the standard ones, whichever library makes them."""

import hashlib
import hmac
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from anyplug.model.hashes import LONG, hmac_sha256, sha256
from random_examples import at_most

SCRIPT = """
import sys
from anyplug.model.hashes import LONG, sha256
before = sha256(b"x" * {size}, more={more}).hexdigest()
print(before, "_hashlib" in sys.modules)
"""


@given(st.binary(max_size=300), st.binary(max_size=300))
@settings(max_examples=at_most(100))
def test_hashes_and_seals_are_those_of_the_standard_library(key, data):
    assert sha256(data).digest() == hashlib.sha256(data).digest()
    assert hmac_sha256(key, data) == hmac.digest(key, data, "sha256")


def test_openssl_is_loaded_for_what_is_long_only():
    for size, more, is_loaded in ((LONG, 0, False), (LONG + 1, 0, True), (0, LONG + 1, True)):
        script = SCRIPT.format(size=size, more=more)
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        assert said.split() == [hashlib.sha256(b"x" * size).hexdigest(), str(is_loaded)]
