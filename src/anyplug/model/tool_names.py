"""Tool names: which are reserved, and which agents see. Pure."""

import itertools

from anyplug.model.hashes import sha256
from anyplug.model.late_patterns import late

OUR_COMMANDS = frozenset(["tools", "plugins", "approve", "deny", "reload", "quit"])  # slash commands of the host itself

# Reserved names in lists, logs, settings and labels, which no plugin may have.
OURS = frozenset({"anyplug", "builtin", "host", "policy", "resident", "workspace-tools"})

MODEL_NAME_LENGTH = 48  # clients add prefixes of their own
HASH_LENGTH = 6
_NOT_ALLOWED = late(r"[^a-zA-Z0-9_-]")


def plain_name(full_name: str) -> str:
    """Return the name that agents would see for a tool if it were short and unique.

    It begins with a letter or an underscore, as Gemini's API requires.
    """
    plain = _NOT_ALLOWED.sub("_", full_name)
    return plain if plain[:1].isalpha() or plain.startswith("_") else f"_{plain}"


def model_name(full_name: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
    """Derive the name that agents see. The same set of tools always results in the same names."""
    plain = plain_name(full_name)
    if len(plain) <= MODEL_NAME_LENGTH and plain not in taken:
        return plain
    for salt in itertools.count():  # another tool may already have the next name
        salted = full_name + salt * "\0"
        suffix = "_" + sha256(salted.encode()).hexdigest()[:HASH_LENGTH]
        if (given := plain[: MODEL_NAME_LENGTH - len(suffix)] + suffix) not in taken:
            return given
    raise AssertionError("counting never ends")


def described(name: str, description: str) -> str:
    """Return a name with its description, if there is one."""
    return f"{name}: {description}" if description else name
