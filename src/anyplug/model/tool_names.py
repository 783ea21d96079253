"""Tool names: which are reserved, and which agents see. Pure."""

import hashlib
import itertools
import re

OUR_COMMANDS = frozenset(["tools", "plugins", "approve", "deny", "reload", "quit"])  # slash commands of the host itself

# Reserved names in lists, logs, settings and labels, which no plugin may have.
OURS = frozenset({"anyplug", "builtin", "host", "policy", "resident"})

MODEL_NAME_LENGTH = 48  # clients add prefixes of their own
HASH_LENGTH = 6
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")


def plain_name(full_name: str) -> str:
    """Return the name that agents would see for a tool if it were short and unique."""
    return _NOT_ALLOWED.sub("_", full_name)


def model_name(full_name: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
    """Derive the name that agents see. The same set of tools always results in the same names."""
    plain = plain_name(full_name)
    if len(plain) <= MODEL_NAME_LENGTH and plain not in taken:
        return plain
    for salt in itertools.count():  # another tool may already have the next name
        salted = full_name + salt * "\0"
        suffix = "_" + hashlib.sha256(salted.encode()).hexdigest()[:HASH_LENGTH]
        if (given := plain[: MODEL_NAME_LENGTH - len(suffix)] + suffix) not in taken:
            return given
    raise AssertionError("counting never ends")
