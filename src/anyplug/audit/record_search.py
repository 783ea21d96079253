"""Find records of the audit, and count them. Knows records, but not where they are stored."""

import os
from collections import Counter
from collections.abc import Iterable

import msgspec

from anyplug.audit.audit_log import TRUST, Record

NOBODY = "-"  # how tables show that nobody decided, or that a call belongs to no plugin


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to find. Empty means any."""

    kind: str = ""
    plugin: str = ""
    tool: str = ""
    outcome: str = ""
    by: str = ""
    caller: str = ""
    agent: str = ""
    project: str = ""
    since: float = 0.0
    until: float = 0.0

    def includes(self, record: Record) -> bool:
        """Return whether a record is wanted."""
        return (
            (not self.kind or record.kind == self.kind)
            and (not self.plugin or record.plugin == self.plugin)
            and (not self.tool or record.tool == self.tool)
            and (not self.outcome or record.outcome == self.outcome)
            and (not self.by or had_a_say(record, self.by))
            and (not self.caller or self.caller in _callers(record))
            and (not self.agent or self.agent.lower() in record.agent.lower())
            and (not self.project or _lies_in(record.project, self.project))
            and record.at >= self.since
            and (not self.until or record.at < self.until)
        )


def caller(record: Record) -> str:
    """Return who made a call, in one word: the plugin, the agent, or the kind of program."""
    if record.callers:
        return record.callers[-1].partition("/")[0]
    return record.agent or record.attachment.partition(":")[0].rpartition("-")[0] or record.attachment


def shown_tool(record: Record) -> str:
    """Return a record's tool; of a decision what was decided, and about which plugin."""
    return f"{record.tool} {record.plugin}".strip() if record.kind == TRUST else record.tool


def had_a_say(record: Record, name: str) -> bool:
    """Return whether a guard, policy rule, person or the host decided about a call, changed it or was skipped."""
    if name == NOBODY:
        return not record.by
    return any(name in _names(who) for who in (record.by, *record.notes_by) if who)


def rules(record: Record) -> list[str]:
    """Return the policy rules and guards that decided about a call or changed it."""
    found = []
    for who in dict.fromkeys((record.by, *record.notes_by)):
        kind, _, own = who.partition(":")
        if kind == "policy":
            found += [rule for rule in own.partition(" ")[0].split(",") if rule] or ["policy"]
        elif kind == "guard":
            found.append(who)
    return found


def counts(records: Iterable[Record]) -> dict[str, Counter[str]]:
    """Count calls by what a person asks about, and decisions about plugins, most frequent first."""
    found: dict[str, Counter[str]] = {
        name: Counter() for name in ("outcome", "tool", "plugin", "caller", "project", "rule", "decision")
    }
    for record in records:
        if record.kind == TRUST:
            found["decision"][shown_tool(record)] += 1
            continue
        found["outcome"][record.outcome] += 1
        found["tool"][record.tool or NOBODY] += 1
        found["plugin"][record.plugin or NOBODY] += 1
        found["caller"][caller(record)] += 1
        found["project"][record.project or NOBODY] += 1
        found["rule"].update(rules(record))
    return found


def _names(who: str) -> set[str]:
    """Return all names of a decider.

    For `policy:A,B FILE:3`, two rules and their place: as a table prints it, each of its parts, and these together.
    """
    kind, _, own = who.partition(":")
    together, _, place = own.partition(" ")
    each = {together, *together.split(",")}
    return {who, " ".join(who.split()), kind, own, place, *each, *(f"{kind}:{rule}" for rule in each)}


def _callers(record: Record) -> set[str]:
    """Return all names of a caller: its attachment, the kind of it, the agent, and each plugin on the way."""
    plugins = {name.partition("/")[0] for name in record.callers[1:]}
    kind = record.attachment.partition(":")[0]
    return {caller(record), record.attachment, kind, kind.rpartition("-")[0], record.agent, *record.callers, *plugins}


def _lies_in(project: str, folder: str) -> bool:
    return bool(project) and (project == folder or project.startswith(folder.rstrip(os.sep) + os.sep))
