"""Replaying: what a candidate would have decided otherwise, of the events that were recorded."""

import os
import re
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from anyplug.policy import sources
from anyplug.policy.events import BadEvent
from anyplug.policy.recording import Recorded
from anyplug.policy.rego.parser import parse_module
from anyplug.policy.sources import Source
from anyplug.policy.trial import Trial

UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SHOWN: Final = 100  # characters of what an event was about


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One event that would be decided otherwise."""

    at: float
    harness: str
    tool: str
    about: str
    before: str
    after: str
    reason: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of all of them."""

    events: int
    elsewhere: int  # of other projects and agents
    changes: tuple[Change, ...]


def moment(since: str) -> float:
    """Read `7d`, `12h` and the like. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", since.strip())
    if found is None:
        raise ValueError(since)
    return time.time() - int(found[1]) * UNITS[found[2]]


def with_candidate(source: Source, file: str, text: str) -> Source:
    """Give policies with a candidate: in place of the one of its package, else beside the others. Raises RegoErrors."""
    package = parse_module(file, text).package
    kept = {name: other for name, other in source.policies.items() if parse_module(name, other).package != package}
    return msgspec.structs.replace(source, policies={**kept, file: text})


def replay(recorded: Iterable[Recorded], now: Trial, candidate: Trial) -> Replayed:
    """Decide about events twice, by the policies as they are and with the candidate."""
    root = os.path.realpath(now.loaded.source.root)
    events = elsewhere = 0
    changes: list[Change] = []
    for record in recorded:
        cwd = record.event.get("cwd")
        found = sources.find(cwd) if isinstance(cwd, str) and os.path.isabs(cwd) else None
        if record.harness != now.harness or found is None or os.path.realpath(found) != root:
            elsewhere += 1
            continue
        try:
            event = now.read(record.event, now.loaded.source.project)
        except BadEvent:
            continue
        events += 1
        before, after = (trial.decide(event, record.signals).decision for trial in (now, candidate))
        if (before.verb, before.reason, before.updated_input) != (after.verb, after.reason, after.updated_input):
            changes.append(
                Change(
                    at=record.at,
                    harness=record.harness,
                    tool=event.tool,
                    about=about(event.document),
                    before=before.verb,
                    after=after.verb,
                    reason=after.reason or before.reason,
                )
            )
    return Replayed(events=events, elsewhere=elsewhere, changes=tuple(changes))


def about(document: dict[str, Any]) -> str:
    """Say in a few words what an event was about."""
    given = document.get("tool_input")
    if not isinstance(given, dict):
        return ""
    said = next((given[key] for key in ("command", "file_path", "path", "url") if isinstance(given.get(key), str)), "")
    text = said or msgspec.json.encode(given).decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
