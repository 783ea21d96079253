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

Pair = tuple[Trial, Trial]  # before and after


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A policy or helper to try, and where it would be in force."""

    file: str
    text: str
    is_own: bool  # the user's, for all projects
    replaces: tuple[str, ...] = ()  # files in force that it replaces; none: it is added to them
    is_shared: bool = False  # it is a helper, which all agents' policies use

    def tried(self, trial: Trial) -> Trial:
        """Return policies with the candidate among them. Raises RegoErrors."""
        source, whole = trial.loaded.source, trial.loaded.whole_source
        if self.is_own and whole is not None:
            whole = self._among(whole)
        else:
            source = self._among(source)
        return Trial(source, trial.harness, whole, trial.protected)

    def _among(self, source: Source) -> Source:
        texts: dict[str, str] = {}
        for file, text in (source.shared if self.is_shared else source.policies).items():
            if file not in self.replaces:
                texts[file] = text
            elif file == self.replaces[0]:  # in the same place, since reasons are reported in the order of files
                texts[self.file] = self.text
        texts.setdefault(self.file, self.text)
        if self.is_shared:
            return msgspec.structs.replace(source, shared=texts)
        return msgspec.structs.replace(source, policies=texts)


class NoCandidate(ValueError):
    """A file is neither a policy nor a helper of these policies; the text tells why."""


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
    RegoErrors if it cannot be read, and NoCandidate if no agent's policies would use it.
    """
    written = parse_module(os.path.relpath(path), text).package
    is_shared = _plain(written)[:2] != ("cupcake", "policies")
    project, own = now.loaded.source, now.loaded.whole_source
    theirs = _of_package(project, written, is_shared=is_shared)
    ours = _of_package(own, written, is_shared=is_shared) if own is not None else []
    if is_shared and not theirs and not ours:
        raise NoCandidate(f"its package is {'.'.join(written)}, which neither a policy nor a helper here has")
    lies_there = own is not None and is_within(os.path.realpath(path), os.path.realpath(own.root))
    is_own = own is not None and (lies_there or "global" in written[1:2] or (bool(ours) and not theirs))
    same = ours if is_own else theirs
    source = own if is_own and own is not None else project
    itself = [file for file in same if os.path.realpath(os.path.join(source.project, file)) == os.path.realpath(path)]
    return Candidate(
        file=path if is_own else os.path.relpath(path),
        text=text,
        is_own=is_own,
        replaces=tuple(itself or same),
        is_shared=is_shared,
    )


def differing(one: Source, other: Source) -> list[str]:
    """List the files that differ between two versions of a place, by their paths in it."""
    left, right = (
        {os.path.relpath(path, source.root): content for path, content in source.contents.items()}
        for source in (one, other)
    )
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _of_package(source: Source, package: tuple[str, ...], *, is_shared: bool) -> list[str]:
    """Return the policies, or helpers, of a package; the user's may or may not have `global` in it."""
    wanted, texts = _plain(package), source.shared if is_shared else source.policies
    return [file for file, text in texts.items() if _plain(parse_module(file, text).package) == wanted]


def _plain(package: tuple[str, ...]) -> tuple[str, ...]:
    return (package[0], *package[2:]) if package[:2] == ("cupcake", "global") else package


def replay(
    recorded: Iterable[Recorded], root: str, before: Trial, after: Trial, other: Callable[[str], Pair] | None = None
) -> Replayed:
    """Decide twice about the events of the project with this `.cupcake`.

    `other` returns both policies of another project, and raises RegoErrors if they are invalid; None: its events are
    passed over.
    """
    pairs: dict[str, Pair | None] = {os.path.realpath(root): (before, after)}
    events = elsewhere = 0
    changes: list[Change] = []
    for record in recorded:
        place = _root_of(record)
        if other is not None and place not in pairs and record.harness == before.harness:
            try:
                pairs[place] = other(place)
            except RegoErrors:
                pairs[place] = None
        pair = pairs.get(place)
        if record.harness != before.harness or pair is None:
            elsewhere += 1
            continue
        try:
            event = before.read(record.event, os.path.dirname(place))
        except BadEvent:
            continue
        events += 1
        old, new = (trial.decide(event, record.signals).decision for trial in pair)
        if _told(old) != _told(new):
            changes.append(
                Change(
                    at=record.at,
                    harness=record.harness,
                    cwd=event.cwd,
                    tool=event.tool,
                    about=about(event.document),
                    before=old.verb,
                    after=new.verb,
                    reason=new.reason or old.reason or "; ".join(new.context or old.context),
                )
            )
    return Replayed(events=events, elsewhere=elsewhere, changes=tuple(changes))


def _told(decision: Decision) -> tuple[Any, ...]:
    """Return what matters to an agent, whatever the order of the reasons."""
    reasons = {(finding.rule_id, finding.reason) for finding in decision.findings} or decision.reason
    return decision.verb, reasons, decision.updated_input, set(decision.context)


def _root_of(record: Recorded) -> str:
    """Return the folder whose policies applied to an event; empty if unknown."""
    cwd = record.event.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        return ""
    return os.path.realpath(find(cwd) or os.path.join(cwd, FOLDER))


def about(document: dict[str, Any]) -> str:
    """Summarise an event in a few words."""
    given = document.get("tool_input")
    if not isinstance(given, dict):
        return ""
    said = next((given[key] for key in ("command", "file_path", "path", "url") if isinstance(given.get(key), str)), "")
    text = said or msgspec.json.encode(given).decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
