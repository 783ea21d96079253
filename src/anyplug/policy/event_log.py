"""Recorded events: what policies decided about, kept for a while to try candidates on.

One file per day in <home>/recordings, one JSON object per line. Secrets, recognised by name or shape, are removed
before anything is written; long texts are truncated.
"""

import os
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.model.late_patterns import late
from anyplug.policy.decisions import Decision
from anyplug.secrets.env_vars import SHOWN_SECRET, looks_secret, masked_text
from anyplug.secrets.mask import Mask

LONGEST_TEXT: Final = 16_384  # characters of one text; policies check commands and paths
LONGEST_OUTPUT: Final = 2_048  # characters of a tool's output, and of what is written to a file
WRITTEN: Final = frozenset({"output", "content"})
LARGEST_LINE: Final = 1 << 18  # bytes; longer lines are not kept
DEEPEST: Final = 30
DAY_S: Final = 86_400
_NAMED: Final = late(r"(?<![\w-])([A-Za-z_][\w-]*)(=|:\s*)(\"[^\"]*\"|'[^']*'|[^\s\"']+)")
_OPTION: Final = late(r"(?<!\S)(--?[A-Za-z][\w-]*)(\s+)([^\s-][^\s]*)")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One event and its decision."""

    at: float
    harness: str
    event: dict[str, Any]
    decision: str
    reason: str = ""
    rules: tuple[str, ...] = ()
    signals: dict[str, Any] | None = None  # their answers


class Recordings:
    """The files. Nothing is created before something is recorded."""

    def __init__(self, home: str, days: int) -> None:
        self.folder = os.path.join(home, "recordings")
        self._days = days
        self._pruned = ""

    def add(
        self,
        harness: str,
        event: Any,
        decision: Decision,
        signals: dict[str, Any] | None = None,
        mask: Mask | None = None,
    ) -> None:
        """Record an event; never raises for a full or read-only disk: no call depends on it."""
        if self._days <= 0 or not isinstance(event, dict):
            return
        shown = without_secrets(event if mask is None else mask.value(event))
        reason = without_secrets(decision.reason if mask is None else mask.text(decision.reason))
        record = Recorded(
            at=round(time.time(), 3),
            harness=harness,
            event=shown,
            decision=decision.verb,
            reason=reason,
            rules=tuple(finding.rule_id for finding in decision.findings),
            signals=None if signals is None else without_secrets(signals),
        )
        try:
            line = msgspec.json.encode(record) + b"\n"
            if len(line) <= LARGEST_LINE:
                self._append(line)
        except (OSError, ValueError, TypeError, OverflowError):
            return

    def since(self, moment: float) -> Iterator[Recorded]:
        """Yield what was recorded, oldest first."""
        for name in _names(self.folder):
            if _day(moment) <= name.removesuffix(".jsonl"):
                with open(untrusted_files.linked(os.path.join(self.folder, name)), "rb") as file:
                    for line in file:
                        try:
                            record = msgspec.json.decode(line, type=Recorded)
                        except msgspec.DecodeError:
                            continue  # the disk was full in the middle of it
                        if record.at >= moment:
                            yield record

    def _append(self, line: bytes) -> None:
        today = _day(time.time())
        if today != self._pruned:
            make_private(self.folder)
            oldest = _day(time.time() - self._days * DAY_S)
            for name in _names(self.folder):
                if name.removesuffix(".jsonl") < oldest:
                    os.unlink(os.path.join(self.folder, name))
            self._pruned = today
        path = os.path.join(self.folder, f"{today}.jsonl")
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(opened, line)
        finally:
            os.close(opened)


def without_secrets(value: Any, name: str = "", depth: int = DEEPEST) -> Any:
    """Return a JSON value without what looks like a secret."""
    if isinstance(value, str):
        if name and looks_secret(name, value):
            return SHOWN_SECRET
        return _text(value[: LONGEST_OUTPUT if name in WRITTEN else LONGEST_TEXT])
    if depth <= 0:
        return SHOWN_SECRET
    if isinstance(value, dict):
        return {str(key): without_secrets(item, str(key), depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item, name, depth - 1) for item in value]
    return value


def _text(text: str) -> str:
    def named(found: re.Match[str]) -> str:
        name = found[1].lstrip("-").replace("-", "_")
        return f"{found[1]}{found[2]}{SHOWN_SECRET}" if looks_secret(name, found[3]) else found[0]

    return _OPTION.sub(named, _NAMED.sub(named, masked_text(text)))


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    except OSError:
        return []


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
