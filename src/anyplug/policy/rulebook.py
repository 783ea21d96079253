"""rulebook.yml: signals, and the enabled builtins.

signals:
  branch: {command: "git branch --show-current", timeout_seconds: 2}
builtins:
  protected_paths: {enabled: true, paths: ["/etc/"]}
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec

SIGNAL_TIMEOUT_S: Final = 5.0  # default
LONGEST_SIGNAL_S: Final = 60.0  # nobody waits longer for a tool to begin
KNOWN: Final = frozenset({"signals", "builtins", "watchdog", "telemetry", "trust", "actions"})
ALIKE: Final = 0.6  # similarity from which on one name is a typo of the other; 1 is the same
QUOTE: Final = "[\"']?"  # keys may be in quotes
OF_SIGNALS: Final = frozenset({"command", "timeout_seconds"})

Warned = tuple[tuple[str, ...], str]  # the keys that lead to it, and what has no effect there


class Signal(msgspec.Struct, frozen=True):
    """A command whose output policies read."""

    name: str
    command: str
    timeout_s: float = SIGNAL_TIMEOUT_S
    digest: str = ""  # of a script's content

    @property
    def identity(self) -> tuple[str, str, float]:
        """What makes it the command that a person was shown; for a script its content, wherever it is."""
        return self.name, self.digest or self.command, self.timeout_s


class Rulebook(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a rulebook."""

    signals: dict[str, Signal] = {}
    builtins: dict[str, dict[str, Any]] = {}  # enabled ones, by name, with their keys
    watchdog: bool = False
    warnings: tuple[Warned, ...] = ()


class BadRulebook(ValueError):
    """A rulebook is invalid; the text tells why, the row or the keys where."""

    def __init__(self, message: str, *keys: str, row: int = 0) -> None:
        super().__init__(message)
        self.keys = keys
        self.row = row


def row_of(text: str, keys: Iterable[str]) -> int:
    """Find the row of nested keys, as far as they are written plainly."""
    at = 0
    for key in keys:
        found = re.compile(rf"(?m)(?:^|[\s{{,]){QUOTE}{re.escape(key)}{QUOTE}\s*:").search(text, at)
        if found is None:
            break
        at = found.end()
    return text.count("\n", 0, at) + 1


def meant(name: str, known: Iterable[str], alike: float = ALIKE) -> str:
    """Return a suggestion of the known name that was probably meant, as the end of a sentence."""
    import difflib  # only needed after a typo

    close = difflib.get_close_matches(name, list(known), 1, alike)
    return f"; did you mean `{close[0]}`?" if close else ""


def read(text: str) -> Rulebook:
    """Read a rulebook. Raises BadRulebook."""
    from anyplug.rego import yaml  # takes 7 ms to import; rulebooks are also kept as they were read

    try:
        content = yaml.load(text, unique=True)
    except yaml.YamlError as error:
        raise BadRulebook(error.message, row=error.row) from None
    if content is None:
        return Rulebook()
    if not isinstance(content, dict):
        raise BadRulebook("it must be a mapping")
    warnings: list[Warned] = [
        ((str(key),), f"`{key}` is unknown here{meant(str(key), KNOWN)}") for key in content if key not in KNOWN
    ]
    watchdog = content.get("watchdog")
    watched = bool(watchdog.get("enabled", True)) if isinstance(watchdog, dict) else bool(watchdog)
    if content.get("actions"):
        warnings.append((("actions",), "`actions` do not run here: no command follows a decision"))
    telemetry = content.get("telemetry")
    if isinstance(telemetry, dict) and telemetry.get("enabled"):
        said = "`telemetry` is not written: see the audit and `anyplug policy explain`"
        warnings.append((("telemetry",), said))
    return Rulebook(
        signals={
            str(name): _signal(str(name), value, warnings) for name, value in _mapping(content, "signals").items()
        },
        builtins={
            str(name): keys
            for name, value in _mapping(content, "builtins").items()
            if (keys := _builtin(str(name), value, warnings)) is not None
        },
        watchdog=watched,
        warnings=tuple(warnings),
    )


def _mapping(content: dict[Any, Any], key: str) -> dict[Any, Any]:
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRulebook(f"`{key}` must be a mapping", key)
    return value


def _signal(name: str, value: Any, warnings: list[Warned]) -> Signal:
    if isinstance(value, str):
        return Signal(name, value)
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        raise BadRulebook(f"the signal `{name}` must have a command", "signals", name)
    for key in value:
        if key not in OF_SIGNALS:
            said = f"`{key}` of the signal `{name}` is unknown{meant(str(key), OF_SIGNALS)}"
            warnings.append((("signals", name, str(key)), said))
    seconds = value.get("timeout_seconds", int(SIGNAL_TIMEOUT_S))
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | Decimal)
        or not 0 < float(seconds) <= LONGEST_SIGNAL_S
    ):
        said = f"timeout_seconds of the signal `{name}` must be between 0 and {LONGEST_SIGNAL_S:g}"
        raise BadRulebook(said, "signals", name, "timeout_seconds")
    return Signal(name, value["command"], float(seconds))


def _builtin(name: str, value: Any, warnings: list[Warned]) -> dict[str, Any] | None:
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, dict):
        raise BadRulebook(f"the builtin `{name}` must be a mapping", "builtins", name)
    if "enabled" not in value:
        warnings.append((("builtins", name), f"the builtin `{name}` is off: it has no `enabled: true`"))
    enabled = value.get("enabled", False)
    if not isinstance(enabled, bool):
        raise BadRulebook(f"`enabled` of the builtin `{name}` must be true or false", "builtins", name, "enabled")
    return {str(key): _plain(item) for key, item in value.items() if key != "enabled"} if enabled else None


def _plain(value: Any) -> Any:
    """Return a value as plain JSON types."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
