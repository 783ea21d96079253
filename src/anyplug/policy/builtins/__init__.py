"""Builtins: rules that a rulebook enables by name, written in Rego next to this file.

They have the original's names, keys and rule ids. The commands of a check become signals, and only for the events that
it is about.
"""

import itertools
import os
import shlex
from typing import Any, Final

import msgspec

from anyplug.policy import tool_changes
from anyplug.policy.agent_events import Event
from anyplug.policy.hook_paths import HookPaths
from anyplug.policy.listed_paths import ListedPaths
from anyplug.policy.rulebook import BadRulebook, Signal, Warned, meant
from anyplug.policy.shell.syntax import UNKNOWN

SHARED: Final = "shared.rego"
CHECK_TIMEOUT_S: Final = 30.0  # test suites and linters take their time
LARGEST_FILE: Final = 8 << 20  # bytes that are read to count lines
PREFIXES: Final = ("claude_code_", "opencode_", "factory_", "anyplug_")
KINDS: Final = {str: "a text", list: "a list", dict: "a mapping", int: "a number"}
COMMITS: Final = frozenset({"commit", "push"})


class Builtin(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a builtin, with their defaults."""

    defaults: dict[str, Any] = {}
    required: str = ""  # a list that must not be empty


TABLE: Final[dict[str, Builtin]] = {
    "git_block_no_verify": Builtin(
        defaults={
            "message": "Git operations with --no-verify are not permitted. Commit hooks must run for code quality and "
            "security checks.",
            "exceptions": [],
        }
    ),
    "git_pre_check": Builtin(defaults={"checks": []}, required="checks"),
    "post_edit_check": Builtin(defaults={"by_extension": {}}, required="by_extension"),
    "protected_paths": Builtin(
        defaults={"message": "This path is read-only and cannot be modified", "paths": []}, required="paths"
    ),
    "rulebook_security_guardrails": Builtin(
        defaults={
            "message": "Cupcake configuration files are protected from modification",
            "protected_paths": [".cupcake/"],
        }
    ),
    "always_inject_on_prompt": Builtin(defaults={"context": []}, required="context"),
    "enforce_full_file_read": Builtin(
        defaults={"max_lines": 2000, "message": "Please read the whole file: it is short enough to be read at once."}
    ),
    "system_protection": Builtin(
        defaults={"message": "Access to critical system path blocked", "additional_paths": []}
    ),
    "sensitive_data_protection": Builtin(
        defaults={"message": "Blocked access to potentially sensitive file", "additional_patterns": []}
    ),
    "cupcake_exec_protection": Builtin(
        defaults={"message": "The policy gate cannot be run or changed by an agent", "allowed_commands": []}
    ),
}


class Enabled(msgspec.Struct, frozen=True, kw_only=True):
    """The builtins that a rulebook enabled: their texts by file, and their settings as policies see them."""

    texts: dict[str, str] = {}
    config: dict[str, dict[str, Any]] = {}
    own: frozenset[str] = frozenset()  # builtins for which only the project has files
    warnings: tuple[Warned, ...] = ()


def plain_name(name: str) -> str:
    """Return a builtin's name without the agent's name before it."""
    for prefix in PREFIXES:
        if name.startswith(prefix) and name.removeprefix(prefix) in TABLE:
            return name.removeprefix(prefix)
    return name


def enable(wanted: dict[str, dict[str, Any]]) -> Enabled:
    """Return the texts of a rulebook's builtins. Raises BadRulebook for one without its required list."""
    texts: dict[str, str] = {}
    config: dict[str, dict[str, Any]] = {}
    own: set[str] = set()
    warnings: list[Warned] = []
    for given, keys in wanted.items():
        name = plain_name(given)
        builtin = TABLE.get(name)
        if builtin is None:
            own.add(given)
            config[given] = keys
            continue
        settings = {**builtin.defaults, **keys}
        for key in keys:
            if key not in builtin.defaults:
                said = f"`{key}` of the builtin `{given}` is unknown{meant(key, builtin.defaults)}"
                warnings.append((("builtins", given, key), said))
        for key, default in builtin.defaults.items():
            if type(settings[key]) is not type(default):
                said = f"`{key}` of the builtin `{given}` must be {KINDS[type(default)]}"
                raise BadRulebook(said, "builtins", given, key)
        if builtin.required and not settings[builtin.required]:
            raise BadRulebook(f"the builtin `{given}` is enabled without `{builtin.required}`", "builtins", given)
        config[name] = config[given] = _completed(name, settings)
        texts[f"builtin/{name}.rego"] = _text(f"{name}.rego")
    if texts:
        texts[f"builtin/{SHARED}"] = _text(SHARED)
    return Enabled(texts=texts, config=config, own=frozenset(own), warnings=tuple(warnings))


def signals(config: dict[str, dict[str, Any]], event: Event) -> list[Signal]:
    """Return the commands that enabled builtins run for an event."""
    found: list[Signal] = []
    document = event.document
    if event.name == "UserPromptSubmit":
        for number, (kind, value) in enumerate(config.get("always_inject_on_prompt", {}).get("dynamic", [])):
            command = value if kind == "command" else f"cat -- {shlex.quote(value)}"
            found.append(Signal(f"__builtin_prompt_context_{number}", command))
    elif event.name == "PreToolUse" and event.tool == "Bash" and "git_pre_check" in config:
        if any(_commits(command["words"]) for command in document.get("commands", [])):
            for number, check in enumerate(config["git_pre_check"]["checks"]):
                found.append(Signal(f"__builtin_git_pre_check_{number}", check["command"], CHECK_TIMEOUT_S))
    elif event.name == "PostToolUse" and "post_edit_check" in config:
        path = document.get("resolved_file_path")
        extension = path.rpartition(".")[2] if isinstance(path, str) and "." in os.path.basename(path) else ""
        check = config["post_edit_check"]["by_extension"].get(extension)
        if check is not None and event.tool in {"Edit", "Write", "MultiEdit", "NotebookEdit"}:
            found.append(Signal(f"__builtin_post_edit_{extension}", check["command"], CHECK_TIMEOUT_S))
    return found


def look(config: dict[str, dict[str, Any]], event: Event) -> dict[str, Any]:
    """Return what enabled builtins have to know beside the event: of files, and of what a call would change."""
    found = _lines(config, event)
    if "protected_paths" in config and event.name == "PreToolUse":
        listed = ListedPaths(config["protected_paths"]["paths"], event.cwd)
        found["would_change"] = list(itertools.islice(tool_changes.changes(event, listed), 1))
    if "git_block_no_verify" in config and event.name == "PreToolUse":
        hooks = HookPaths(event.cwd)
        changed = itertools.islice(tool_changes.changes(event, hooks), 1)
        found["would_change_hooks"] = [one.replace(UNKNOWN, "…") for one in changed]
        found["passes_over_hooks"] = hooks.passed[:1]
    return found


def _lines(config: dict[str, dict[str, Any]], event: Event) -> dict[str, Any]:
    if "enforce_full_file_read" not in config or event.tool != "Read":
        return {}
    path = event.document.get("resolved_file_path")
    try:
        with open(path if isinstance(path, str) else "", "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError):
        return {}
    return {} if len(content) > LARGEST_FILE else {"file_line_count": len(content.splitlines())}


def _commits(words: list[str]) -> bool:
    gits = [at for at, word in enumerate(words) if word.rpartition("/")[2] == "git"]
    return bool(gits) and not COMMITS.isdisjoint(words[gits[0] :])


def _completed(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Convert lists to the form that the rules read."""
    if name == "git_pre_check":
        settings["checks"] = [_check(name, entry) for entry in settings["checks"]]
    elif name == "post_edit_check":
        settings["by_extension"] = {
            str(extension).removeprefix("."): _check(name, entry)
            for extension, entry in settings["by_extension"].items()
        }
    elif name == "always_inject_on_prompt":
        texts = [entry for entry in settings["context"] if isinstance(entry, str)]
        others = [entry for entry in settings["context"] if isinstance(entry, dict)]
        if any(not isinstance(entry, str) and not _is_read(entry) for entry in settings["context"]):
            said = f"each entry of `context` of the builtin `{name}` must be a string, or have a command or a file"
            raise BadRulebook(said, "builtins", name, "context")
        settings["static_contexts"] = texts
        settings["dynamic"] = [
            [kind, entry[kind]] for entry in others for kind in ("command", "file") if isinstance(entry.get(kind), str)
        ]
    else:
        for key, value in settings.items():
            if isinstance(value, list) and not all(isinstance(item, str) for item in value):
                raise BadRulebook(f"`{key}` of the builtin `{name}` must be a list of strings", "builtins", name, key)
    return settings


def _is_read(entry: Any) -> bool:
    return isinstance(entry, dict) and any(isinstance(entry.get(kind), str) for kind in ("command", "file"))


def _check(name: str, entry: Any) -> dict[str, str]:
    if isinstance(entry, str):
        entry = {"command": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
        raise BadRulebook(f"each check of the builtin `{name}` must have a command", "builtins", name)
    message = entry.get("message")
    return {"command": entry["command"], "message": message if isinstance(message, str) else entry["command"]}


def _text(file: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), file), encoding="utf-8") as opened:
        return opened.read()
