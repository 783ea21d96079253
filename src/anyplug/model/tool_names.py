"""Names of tools: what is ours, and what agents get to see. Pure."""

import hashlib
import itertools
import re

OUR_COMMANDS = frozenset(["tools", "plugins", "approve", "deny", "reload", "quit"])  # slash commands of the host itself

# Names of ours in lists, logs, settings and labels, which no plugin may have.
OURS = frozenset({"anyplug", "builtin", "host", "policy", "resident"})

MODEL_NAME_LENGTH = 48  # clients put prefixes of their own before it
HASH_LENGTH = 6
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")


def plain_name(full_name: str) -> str:
    """Return the name that agents would see of a tool if it were short and alone."""
    return _NOT_ALLOWED.sub("_", full_name)


def model_name(full_name: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
    """Derive the name that agents see. The same set of tools gives the same names each time."""
    plain = plain_name(full_name)
    if len(plain) <= MODEL_NAME_LENGTH and plain not in taken:
        return plain
    for salt in itertools.count():  # somebody may have just the name that would be next
        salted = full_name + salt * "\0"
        suffix = "_" + hashlib.sha256(salted.encode()).hexdigest()[:HASH_LENGTH]
        if (given := plain[: MODEL_NAME_LENGTH - len(suffix)] + suffix) not in taken:
            return given
    raise AssertionError("counting never ends")
