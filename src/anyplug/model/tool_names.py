"""Names of tools: what is reserved, and what agents get to see. Pure."""

import hashlib
import itertools
import re

PREFIXES = {"builtin.": "", "mcp.": "mcp"}  # only ours and MCP servers' tools begin like this; with whose they are

_CYCLOP = (
    "click right_click type_text press_key move_mouse drag scroll take_screenshot run_applescript "
    "open_application run_shell_command open_url vault_read vault_write vault_append vault_search vault_list "
    "task_create task_update task_list remember recall openclaw_send openclaw_check task_complete read_screen"
)
_ZOT = "read write edit bash skill"
RESERVED: dict[str, str] = {
    **dict.fromkeys(_CYCLOP.split(), "a built-in tool of Cyclop One"),
    **dict.fromkeys(_ZOT.split(), "a built-in tool of zot"),
}

_ZOT_COMMANDS = (
    "help login logout model sessions session jump compact study btw jail unjail skills reload-ext yolo telegram "
    "clear exit"
)
_OUR_COMMANDS = "tools plugins approve deny reload quit"
RESERVED_COMMANDS: dict[str, str] = {
    **dict.fromkeys(_ZOT_COMMANDS.split(), "a built-in command of zot"),
    **dict.fromkeys(_OUR_COMMANDS.split(), "a command of anyplug"),
}

# Names of ours in lists, logs, settings and labels, which no plugin may have.
OURS = frozenset({"anyplug", "builtin", "host", "policy", "resident"})

MODEL_NAME_LENGTH = 48  # clients put prefixes of their own before it
HASH_LENGTH = 6
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")


def reserved_by(name: str, format: str) -> str:
    """Say whose name it is, if a plugin of this format may not have it."""
    for prefix, owner in PREFIXES.items():
        if name.startswith(prefix) and format != owner:
            return f"a reserved prefix, '{prefix}'"
    return RESERVED.get(name, "")


def plain_name(full_name: str) -> str:
    """Give the name that agents would see of a tool if it were short and alone."""
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
