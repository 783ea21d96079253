"""rulebook.yml: signals, and the builtins that are switched on.

signals:
  branch: {command: "git branch --show-current", timeout_seconds: 2}
builtins:
  protected_paths: {enabled: true, paths: ["/etc/"]}
"""

from decimal import Decimal
from typing import Any, Final

import msgspec

from anyplug.policy.rego import yaml

SIGNAL_TIMEOUT_S: Final = 5.0  # if it does not say
LONGEST_SIGNAL_S: Final = 60.0  # nobody waits longer for a tool to begin
KNOWN: Final = frozenset({"signals", "builtins", "watchdog", "telemetry", "trust", "actions"})


class Signal(msgspec.Struct, frozen=True):
    """A command whose output policies read."""

    name: str
    command: str
    timeout_s: float = SIGNAL_TIMEOUT_S


class Rulebook(msgspec.Struct, frozen=True, kw_only=True):
    """What a rulebook says."""

    signals: dict[str, Signal] = {}
    builtins: dict[str, dict[str, Any]] = {}  # those that are enabled, by name, with their keys
    watchdog: bool = False
    warnings: tuple[str, ...] = ()


class BadRulebook(ValueError):
    """A rulebook cannot be used; the text says why."""


def read(text: str) -> Rulebook:
    """Read a rulebook. Raises BadRulebook."""
    try:
        content = yaml.load(text)
    except yaml.YamlError as error:
        raise BadRulebook(str(error)) from None
    if content is None:
        return Rulebook()
    if not isinstance(content, dict):
        raise BadRulebook("it must be a mapping")
    warnings = [f"`{key}` means nothing here" for key in content if key not in KNOWN]
    watchdog = content.get("watchdog")
    watched = bool(watchdog.get("enabled", True)) if isinstance(watchdog, dict) else bool(watchdog)
    telemetry = content.get("telemetry")
    if isinstance(telemetry, dict) and telemetry.get("enabled"):
        warnings.append("`telemetry` is not written: the audit and `anyplug policy explain` say what happened")
    return Rulebook(
        signals={str(name): _signal(str(name), value) for name, value in _mapping(content, "signals").items()},
        builtins={
            str(name): keys
            for name, value in _mapping(content, "builtins").items()
            if (keys := _builtin(str(name), value)) is not None
        },
        watchdog=watched,
        warnings=tuple(warnings),
    )


def _mapping(content: dict[Any, Any], key: str) -> dict[Any, Any]:
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRulebook(f"`{key}` must be a mapping")
    return value


def _signal(name: str, value: Any) -> Signal:
    if isinstance(value, str):
        return Signal(name, value)
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        raise BadRulebook(f"the signal `{name}` must have a command")
    seconds = value.get("timeout_seconds", int(SIGNAL_TIMEOUT_S))
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | Decimal)
        or not 0 < float(seconds) <= LONGEST_SIGNAL_S
    ):
        raise BadRulebook(f"timeout_seconds of the signal `{name}` must be between 0 and {LONGEST_SIGNAL_S:g}")
    return Signal(name, value["command"], float(seconds))


def _builtin(name: str, value: Any) -> dict[str, Any] | None:
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, dict):
        raise BadRulebook(f"the builtin `{name}` must be a mapping")
    enabled = value.get("enabled", False)
    if not isinstance(enabled, bool):
        raise BadRulebook(f"`enabled` of the builtin `{name}` must be true or false")
    return {str(key): _plain(item) for key, item in value.items() if key != "enabled"} if enabled else None


def _plain(value: Any) -> Any:
    """Give a value as JSON has it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
