"""Trust: what a person decided about a plugin, and whether it still applies.

An approval is bound to the plugin's real path, its digest, its definition and its permissions.
"""

import os
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.catalog.pins import Pins
from anyplug.home.change_counter import ChangeCounter
from anyplug.home.database import Store
from anyplug.home.digest import Digest
from anyplug.model import permissions
from anyplug.model.errors import StoreError
from anyplug.model.hashes import sha256
from anyplug.model.types import Off, Offer, Plugin, State, Tool

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from anyplug.audit.decision_records import Decision, DecisionRecords

Rights = tuple[tuple[str, ...], bool, bool]  # grants; may run where they cannot be enforced; inherits the environment

ZOT = "zot"  # the format whose extensions once needed no permission to act on other plugins
REMOVED = "removed"  # instead of the folder of a plugin that a grant was about
SHOWN_CHANGES = 8  # files named before "and N more"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A person's decision."""

    name: str
    approved: bool  # False: denied
    digest: str = ""
    definition: str = ""
    asked: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    always: bool = False  # tier 2 calls do not ask
    follow: bool = False  # code changes need no new approval
    unconfined: bool = False  # may run where permissions cannot be enforced
    inherits_environment: bool = False  # gets the user's whole environment except for secrets
    files: dict[str, str] = {}
    decided: float = 0.0
    since: float = 0.0  # when it was first approved; kept by later approvals that follow without a gap
    callees: dict[str, str] = {}  # the tools that grants name, each with the folder of the plugin that was meant

    @property
    def first(self) -> float:
        """When it was first approved; decisions of earlier versions only have the time of the decision."""
        return self.since or self.decided


_DECISIONS = msgspec.json.Decoder(Approval)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's trust state now."""

    state: State
    granted: tuple[str, ...] = ()
    always: bool = False
    changes: tuple[str, ...] = ()
    digest: str = ""
    reason: str = ""  # how to enable it if it is disabled, or to fix it if it cannot be checked
    unconfined: bool = False  # may run where its permissions cannot be enforced
    inherits_environment: bool = False  # gets the user's whole environment except for secrets
    files: tuple[str, ...] = ()  # covered by the digest
    since: float = 0.0  # when it was first approved; 0 if it is not
    off: Off | None = None  # tools of it that its own files switch off

    def hides(self, tool: Tool) -> bool:
        """Return whether agents must not learn of a tool because the plugin's own files switch it off."""
        return self.off is not None and self.off.is_secret and tool.own_name not in self.off.tools

    @property
    def rights(self) -> Rights:
        """The rights that its programs are started with."""
        return self.granted, self.unconfined, self.inherits_environment


class Approvals:
    """The decisions in the database."""

    def __init__(self, store: Store, second_head: str = "", project: str = "") -> None:
        """`second_head` belongs to the audit, in which decisions are recorded with the `project` folder."""
        self._store = store
        self._audit = second_head, project
        self.place = "library"  # where people decide, for the audit
        self.mark = ChangeCounter(os.path.join(os.path.dirname(store.path), "decisions"))
        self._seen = -1  # size of the change counter up to which all decisions are known
        self.decided = 0  # decisions made by this process
        self.edition = 0  # grows each time new decisions are read, including those of other processes
        self._decisions: dict[str, Approval] = {}
        self._disabled: frozenset[str] = frozenset()
        self._pins: dict[str, tuple[bytes, Pins]] = {}  # as last read

    @cached_property
    def records(self) -> "DecisionRecords":
        """Where decisions are recorded."""
        from anyplug.audit.decision_records import DecisionRecords  # reading decisions does not need it

        return DecisionRecords(self._store, *self._audit)

    @property
    def is_settled(self) -> bool:
        """Return whether all decisions were known at the last refresh; otherwise another process was deciding."""
        return self._seen >= 0

    def of(self, plugin: Plugin) -> Approval | None:
        """Return the decision about a plugin: the same object until somebody decides again, in any process."""
        self.refresh()
        return self._decisions.get(plugin.path)

    def known(self, plugin: Plugin) -> Approval | None:
        """Return the same as of the last refresh."""
        return self._decisions.get(plugin.path)

    def granted(self, plugin: Plugin) -> tuple[str, ...]:
        """Return a plugin's grants as of the last refresh; none if it is not approved."""
        if plugin.explicit:
            return permissions.named(plugin.permissions)
        decision = self._decisions.get(plugin.path)
        return decision.granted if decision is not None and decision.approved else ()

    def write_grants(self) -> frozenset[str]:
        """Return the grants of all approved plugins to write files, as of the last refresh."""
        approved = (decision for decision in self._decisions.values() if decision.approved)
        return frozenset(grant for decision in approved for grant in decision.granted if _writes(grant))

    def granted_over(self, caller: Plugin, callee: Plugin) -> tuple[str, ...]:
        """Return the same without grants for a tool that another plugin, or none, had when they were made."""
        if caller.explicit:
            return self.granted(caller)
        decision = self._decisions.get(caller.path)
        meant = decision.callees if decision is not None else {}
        return tuple(
            grant
            for grant in self.granted(caller)
            if not (name := permissions.tool_of(grant)) or meant.get(name) == callee.path
        )

    def namesakes(self, plugin: Plugin) -> list[str]:
        """Return the folders of approved plugins that have the same name and another path."""
        self.refresh()
        return sorted(
            path
            for path, decision in self._decisions.items()
            if decision.approved and decision.name == plugin.name and path != plugin.path and os.path.exists(path)
        )

    def paths(self) -> frozenset[str]:
        """Return the approved folders, as of the last refresh."""
        return frozenset(path for path, decision in self._decisions.items() if decision.approved)

    def digests(self) -> frozenset[str]:
        """Return the approved digests, as of the last refresh."""
        return frozenset(decision.digest for decision in self._decisions.values() if decision.approved)

    def is_disabled(self, plugin: Plugin) -> bool:
        """Return whether a person disabled it, as of the last refresh."""
        return plugin.path in self._disabled

    def approve(
        self,
        plugin: Plugin,
        digest: Digest,
        granted: tuple[str, ...],
        *,
        always: bool,
        follow: bool,
        unconfined: bool,
        inherits_environment: bool = False,
        callees: dict[str, str] | None = None,
    ) -> None:
        """Approve the plugin as it is now, with the tools it had when the person reviewed it.

        `callees` binds grants that name tools. One that was bound before stays so: the person has not named it again.
        """
        before, now = self.of(plugin), time.time()
        bound = before.callees if before is not None and before.approved else {}
        approval = Approval(
            name=plugin.name,
            approved=True,
            digest=digest.value,
            definition=definition(plugin),
            asked=plugin.permissions,
            granted=granted,
            always=always,
            follow=follow,
            unconfined=unconfined,
            inherits_environment=inherits_environment,
            files=digest.files,
            decided=now,
            since=before.first if before is not None and before.approved else now,
            callees=_bound({**(callees or {}), **bound}, granted),
        )
        is_same_code = before is not None and before.approved and before.digest == digest.value
        with self._deciding("approve", plugin, *_terms(approval), digest=digest.value) as transaction:
            if is_same_code and plugin.stays_up and not follow:  # what it registers for other models stays pinned
                pins = _read_pins(transaction, plugin.path, before.decided if before else 0)
                shown = (*plugin.tools, *plugin.held)
                _write_pins(transaction, plugin.path, pins.accepting(shown, approval.decided))
            else:
                transaction.execute("DELETE FROM pins WHERE path = ?", (plugin.path,))
            _write(transaction, plugin.path, approval)

    def deny(self, plugin: Plugin) -> None:
        """Deny it until a person approves it."""
        with self._deciding("deny", plugin) as transaction:
            transaction.execute("DELETE FROM pins WHERE path = ?", (plugin.path,))
            _write(transaction, plugin.path, Approval(name=plugin.name, approved=False, decided=time.time()))

    def revoke(self, plugin: Plugin) -> bool:
        """Delete the decision; return False if there was none."""
        had = self.of(plugin) is not None
        with self._deciding("revoke" if had else "", plugin) as transaction:
            for table in ("approvals", "pins"):
                transaction.execute(f"DELETE FROM {table} WHERE path = ?", (plugin.path,))
        return had

    def pin(self, plugin: Plugin, process: str, run: str, offer: Offer, digest: str, *, is_starting: bool) -> None:
        """Pin what a process of a plugin with this digest offers, if this is its first start since the approval.

        Raises StoreError.
        """
        known = self.pins(plugin)
        if known is not None and known.with_start(process, run, offer.tools, is_starting=is_starting) is known:
            return
        with self._store.writing() as transaction:
            approval = _read(transaction, plugin.path)
            if approval is None or not approval.approved or approval.follow or approval.digest != digest:
                return
            pins = _read_pins(transaction, plugin.path, approval.decided)
            after = pins.with_start(process, run, offer.tools, is_starting=is_starting)
            if after is not pins:
                _write_pins(transaction, plugin.path, after)

    def pins(self, plugin: Plugin) -> Pins | None:
        """Return a plugin's pins; None if it may change, or has not been started since its approval."""
        decision = self._decisions.get(plugin.path)
        if plugin.explicit or decision is None or not decision.approved or decision.follow:
            return None
        rows = self._store.rows("SELECT record FROM pins WHERE path = ?", plugin.path)
        if not rows:
            return None
        known = self._pins.get(plugin.path)
        if known is None or known[0] != rows[0][0]:
            known = self._pins[plugin.path] = (rows[0][0], _decoded_pins(rows[0][0]))
        return known[1] if known[1].decided == decision.decided else None

    def regrant(
        self, plugin: Plugin, approval: Approval, granted: tuple[str, ...], callees: dict[str, str] | None = None
    ) -> None:
        """Change an approved plugin's grants. `callees` binds those that name tools."""
        more = [name for name in granted if name not in approval.granted]
        less = [name for name in approval.granted if name not in granted]
        action = "grant" if more or not less else "ungrant"
        notes = [f"granted {', '.join(more)}"] * bool(more) + [f"no longer granted {', '.join(less)}"] * bool(less)
        bound = _bound({**approval.callees, **(callees or {})}, granted)
        after = msgspec.structs.replace(approval, granted=granted, callees=bound)
        with self._deciding(action, plugin, *notes, digest=approval.digest) as transaction:
            _write(transaction, plugin.path, after)

    def always(self, plugin: Plugin, place: str = "") -> None:
        """Stop asking before calls of an approved tier 2 plugin. `place`: where the person said so."""
        approval = self.of(plugin)
        if approval is None and plugin.is_ours:
            approval = Approval(name=plugin.name, approved=True, granted=plugin.permissions, decided=time.time())
        if approval is not None:
            after = msgspec.structs.replace(approval, always=True)
            note = "calls no longer ask"
            with self._deciding("approve", plugin, note, digest=approval.digest, place=place) as transaction:
                _write(transaction, plugin.path, after)

    def enable(self, plugin: Plugin, *, on: bool) -> None:
        """Enable or disable it."""
        statement = "DELETE FROM disabled WHERE path = ?" if on else "INSERT OR IGNORE INTO disabled VALUES (?)"
        with self._deciding("enable" if on else "disable", plugin) as transaction:
            transaction.execute(statement, (plugin.path,))

    def note(self, decision: "Decision") -> None:
        """Record a decision that is stored elsewhere. Raises StoreError."""
        with self.records.together(decision, self.place):
            pass

    def forget(self, path: str, decision: "Decision | None" = None) -> None:
        """Delete everything about a folder, and record the decision that led to it."""
        with self._changing(decision) as transaction:
            for table in ("approvals", "disabled", "digests", "registrations", "pins", "installs"):
                transaction.execute(f"DELETE FROM {table} WHERE path = ?", (path,))
            # A grant for one of its tools must not open the plugin that is put there next.
            for other, record in transaction.execute("SELECT path, record FROM approvals").fetchall():
                approval = _decoded(record)
                callees = {name: REMOVED if meant == path else meant for name, meant in approval.callees.items()}
                if callees != approval.callees:
                    _write(transaction, other, msgspec.structs.replace(approval, callees=callees))

    @contextmanager
    def _deciding(
        self, action: str, plugin: Plugin, *notes: str, digest: str = "", place: str = ""
    ) -> "Iterator[sqlite3.Connection]":
        """Make a decision that all processes notice, and record it unless `action` is empty.

        If it raises StoreError, nothing is decided.
        """
        from anyplug.audit.decision_records import Decision  # reading decisions does not need it

        decision = Decision(action, plugin.name, *notes, folder=plugin.path, format=plugin.format, digest=digest)
        with self._changing(decision if action else None, place) as transaction:
            yield transaction

    @contextmanager
    def _changing(self, decision: "Decision | None", place: str = "") -> "Iterator[sqlite3.Connection]":
        self._seen = -1
        self.decided += 1
        with self.records.together(decision, place or self.place) as transaction:
            yield transaction
            transaction.execute("UPDATE decisions SET count = ?", (self.mark.grow(),))

    def refresh(self) -> None:
        """Read all decisions again if any process made one since the last refresh."""
        size = self.mark.size()
        if size == self._seen:
            return
        counted = self._store.rows("SELECT count FROM decisions")  # first: what changes later is read again
        rows = self._store.rows("SELECT path, record FROM approvals")
        try:
            decisions = {path: _decoded(record) for path, record in rows}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"a decision in {self._store.path} cannot be read: {error}",
                "another program changed it; move the file away and approve your plugins again",
            ) from error
        # An equal decision stays the same object, so that conclusions drawn from it stay valid.
        before, disabled = self._decisions, self._disabled
        self._decisions = {
            path: before[path] if before.get(path) == decision else decision for path, decision in decisions.items()
        }
        self._disabled = frozenset(path for (path,) in self._store.rows("SELECT path FROM disabled"))
        self.edition += (self._decisions, self._disabled) != (before, disabled)
        is_settled = (
            not counted or counted[0][0] == size
        )  # otherwise another process is deciding, or was killed while doing so
        self._seen = size if is_settled else -1


def _bound(callees: dict[str, str], granted: tuple[str, ...]) -> dict[str, str]:
    """Return the tools that grants name, each with the folder of its plugin."""
    named = set(map(permissions.tool_of, granted))
    return {name: path for name, path in callees.items() if name in named}


def _terms(approval: Approval) -> list[str]:
    """Return what an approval allows, for the audit."""
    options = {
        "--always": approval.always,
        "--follow": approval.follow,
        "--allow-unconfined": approval.unconfined,
        "--inherit-env": approval.inherits_environment,
    }
    given = " ".join(name for name, is_given in options.items() if is_given)
    return [f"granted {', '.join(approval.granted) or 'nothing'}", f"with {given}" if given else ""]


def _decoded(record: bytes) -> Approval:
    return _brought_up(_DECISIONS.decode(record))


def _read(transaction: "sqlite3.Connection", path: str) -> Approval | None:
    row = transaction.execute("SELECT record FROM approvals WHERE path = ?", (path,)).fetchone()
    return _decoded(row[0]) if row else None


def _write(transaction: "sqlite3.Connection", path: str, approval: Approval) -> None:
    transaction.execute("INSERT OR REPLACE INTO approvals VALUES (?, ?)", (path, msgspec.json.encode(approval)))


def _read_pins(transaction: "sqlite3.Connection", path: str, decided: float) -> Pins:
    """Read the pins of the approval given at that time; empty if there are none."""
    row = transaction.execute("SELECT record FROM pins WHERE path = ?", (path,)).fetchone()
    pins = _decoded_pins(row[0]) if row else None
    return pins if pins is not None and pins.decided == decided else Pins(decided)


def _write_pins(transaction: "sqlite3.Connection", path: str, pins: Pins) -> None:
    transaction.execute("INSERT OR REPLACE INTO pins VALUES (?, ?)", (path, msgspec.json.encode(pins)))


def _decoded_pins(record: bytes) -> Pins:
    """Decode pins; raises StoreError, because without them it is unknown which texts were approved."""
    try:
        return msgspec.json.decode(record, type=Pins)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(
            f"a pinned list of tools cannot be read: {error}",
            "another program changed it; run `anyplug revoke NAME`, then approve the plugin again",
        ) from error


def _brought_up(decision: Approval) -> Approval:
    """Upgrade a decision about an extension from before permissions over other plugins existed."""
    if decision.asked != permissions.ASKED_BEFORE:
        return decision
    asked = (*decision.asked, *(name for name in permissions.OVER_OTHERS if name != permissions.REWRITE_CALLS))
    if decision.definition != _hash_of((decision.name, ZOT, decision.asked, [])):
        return decision
    return msgspec.structs.replace(
        decision,
        asked=asked,
        granted=permissions.carried_over(decision.granted),
        definition=_hash_of((decision.name, ZOT, asked, [])),
    )


def definition(plugin: Plugin) -> str:
    """Hash what a plugin offers and asks for, which is what a person saw when approving it."""
    # What a long-running plugin registers is not part of its definition: its code is, which the digest covers.
    offered = () if plugin.stays_up else plugin.tools
    tools = [(tool.own_name, tool.description, tool.input_schema) for tool in offered]
    seen: tuple[Any, ...] = (plugin.name, plugin.format, plugin.permissions, tools)
    if plugin.endpoints:
        seen = (*seen, plugin.endpoints)
    return _hash_of(seen)


def _hash_of(seen: tuple[Any, ...]) -> str:
    return sha256(msgspec.json.encode(seen, order="deterministic")).hexdigest()


def judge(plugin: Plugin, approval: Approval | None, digest: Digest | None) -> Standing:
    """Return a plugin's standing. `digest` is needed only if it was approved. Pure."""
    if plugin.explicit:
        return Standing(
            state="approved",
            granted=permissions.named(plugin.permissions),
            always=True,
            digest=digest.value if digest else "",
            files=tuple(digest.files) if digest else (),
        )
    if approval is None and not plugin.is_ours:
        return Standing(state="new")
    if approval is not None and not approval.approved:
        return Standing(state="denied")
    assert digest is not None
    if approval is None or plugin.is_ours:
        return Standing(
            state="approved",
            granted=plugin.permissions if approval is None else approval.granted,
            always=approval is not None and approval.always,
            digest=digest.value,
            files=tuple(digest.files),
        )
    same_definition = approval.definition == definition(plugin)
    same_code = approval.digest == digest.value or approval.follow
    holds = same_definition and same_code
    return Standing(
        state="approved" if holds else "changed",
        granted=approval.granted,
        always=approval.always,
        changes=() if holds else changes(plugin, approval, digest),
        digest=digest.value,
        unconfined=approval.unconfined,
        inherits_environment=approval.inherits_environment,
        files=tuple(digest.files),
        since=approval.first,
    )


def changes(plugin: Plugin, approval: Approval, digest: Digest) -> tuple[str, ...]:
    """List, for a person, what changed since the approval. Pure."""
    found = [f"it now asks for {name}" for name in plugin.permissions if name not in approval.asked]
    found += [f"it no longer asks for {name}" for name in approval.asked if name not in plugin.permissions]
    before, now = approval.files, digest.files
    files = (
        [f"{name} is new" for name in sorted(now.keys() - before.keys())]
        + [f"{name} is gone" for name in sorted(before.keys() - now.keys())]
        + [f"{name} changed" for name in sorted(now.keys() & before.keys()) if now[name] != before[name]]
    )
    if len(files) > SHOWN_CHANGES:
        files = [*files[:SHOWN_CHANGES], f"and {len(files) - SHOWN_CHANGES} more"]
    found += files
    if not found and approval.digest != digest.value:
        found.append("a file's execute permission changed")
    return tuple(found or ["its tools changed"])


def _writes(grant: str) -> bool:
    return permissions.kind(grant) == "filesystem:write"
