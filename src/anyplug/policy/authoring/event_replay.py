"""Replay recorded events, and find what a candidate would have decided differently."""

import os
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from anyplug.policy.agent_events import BadEvent
from anyplug.policy.authoring.trial import Trial
from anyplug.policy.decisions import Decision
from anyplug.policy.event_log import Recorded
from anyplug.policy.paths import FOLDER, find, is_within
from anyplug.policy.policy_files import Source
from anyplug.rego import RegoErrors
from anyplug.rego.parse.modules import parse_module

UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SHOWN: Final = 100  # characters of an event's summary


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A policy to try, and where it would be in force."""

    file: str
    text: str
    is_own: bool  # the user's, for all projects
    replaces: tuple[str, ...] = ()  # files in force that it replaces; none: it is added to them

    def tried(self, trial: Trial) -> Trial:
        """Return policies with the candidate among them. Raises RegoErrors."""
        source, whole = trial.loaded.source, trial.loaded.whole_source
        if self.is_own and whole is not None:
            whole = self._among(whole)
        else:
            source = self._among(source)
        return Trial(source, trial.harness, whole, trial.protected)

    def _among(self, source: Source) -> Source:
        kept = {file: text for file, text in source.policies.items() if file not in self.replaces}
        return msgspec.structs.replace(source, policies={**kept, self.file: self.text})


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One event that would be decided differently."""

    at: float
    harness: str
    cwd: str
    tool: str
    about: str
    before: str
    after: str
    reason: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    events: int
    elsewhere: int  # of other projects and agents
    changes: tuple[Change, ...]


def moment(since: str) -> float:
    """Parse `7d`, `12h` and the like. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", since.strip())
    if found is None:
        raise ValueError(since)
    return time.time() - int(found[1]) * UNITS[found[2]]


def candidate(path: str, text: str, now: Trial) -> Candidate:
    """Find which policies a candidate is meant for: it replaces itself, else the one of its package.

    It is one of the user's own if it is among them, says so in its package, or only they have that package. Raises
    RegoErrors if it cannot be read.
    """
    written = parse_module(os.path.relpath(path), text).package
    project, own = now.loaded.source, now.loaded.whole_source
    theirs = _of_package(project, written)
    ours = _of_package(own, written) if own is not None else []
    lies_there = own is not None and is_within(os.path.realpath(path), os.path.realpath(own.root))
    is_own = own is not None and (lies_there or "global" in written[1:2] or (bool(ours) and not theirs))
    same = ours if is_own else theirs
    source = own if is_own and own is not None else project
    itself = [file for file in same if os.path.realpath(os.path.join(source.project, file)) == os.path.realpath(path)]
    return Candidate(
        file=path if is_own else os.path.relpath(path), text=text, is_own=is_own, replaces=tuple(itself or same)
    )


def _of_package(source: Source, package: tuple[str, ...]) -> list[str]:
    """Return the policies of a package; the user's may or may not have `global` in it."""
    wanted = _plain(package)
    return [file for file, text in source.policies.items() if _plain(parse_module(file, text).package) == wanted]


def _plain(package: tuple[str, ...]) -> tuple[str, ...]:
    return (package[0], *package[2:]) if package[:2] == ("cupcake", "global") else package


def replay(recorded: Iterable[Recorded], tried: Candidate, now: Trial, trial_of: Callable[[str], Trial]) -> Replayed:
    """Decide about events twice, with the present policies and with the candidate. Raises RegoErrors.

    A project's candidate is tried on the events there, one of the user's own on events anywhere: `trial_of` returns the
    policies of another place, and raises RegoErrors if they are invalid.
    """
    pairs: dict[str, tuple[Trial, Trial] | None] = {os.path.realpath(now.loaded.source.root): (now, tried.tried(now))}
    events = elsewhere = 0
    changes: list[Change] = []
    for record in recorded:
        root = _root_of(record)
        if tried.is_own and root not in pairs and record.harness == now.harness:
            pairs[root] = _pair(root, tried, trial_of)
        pair = pairs.get(root)
        if record.harness != now.harness or pair is None:
            elsewhere += 1
            continue
        try:
            event = now.read(record.event, os.path.dirname(root))
        except BadEvent:
            continue
        events += 1
        before, after = (trial.decide(event, record.signals).decision for trial in pair)
        if _told(before) != _told(after):
            changes.append(
                Change(
                    at=record.at,
                    harness=record.harness,
                    cwd=event.cwd,
                    tool=event.tool,
                    about=about(event.document),
                    before=before.verb,
                    after=after.verb,
                    reason=after.reason or before.reason or "; ".join(after.context or before.context),
                )
            )
    return Replayed(events=events, elsewhere=elsewhere, changes=tuple(changes))


def _told(decision: Decision) -> tuple[Any, ...]:
    return decision.verb, decision.reason, decision.updated_input, decision.context


def _root_of(record: Recorded) -> str:
    """Return the folder whose policies applied to an event; empty if unknown."""
    cwd = record.event.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        return ""
    return os.path.realpath(find(cwd) or os.path.join(cwd, FOLDER))


def _pair(root: str, tried: Candidate, trial_of: Callable[[str], Trial]) -> tuple[Trial, Trial] | None:
    try:
        now = trial_of(root)
        return now, tried.tried(now)
    except RegoErrors:
        return None


def about(document: dict[str, Any]) -> str:
    """Summarise an event in a few words."""
    given = document.get("tool_input")
    if not isinstance(given, dict):
        return ""
    said = next((given[key] for key in ("command", "file_path", "path", "url") if isinstance(given.get(key), str)), "")
    text = said or msgspec.json.encode(given).decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
