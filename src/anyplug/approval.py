"""Trust: what a person decided about a plugin, and whether that still holds for what is there now.

An approval is bound to the plugin's real path, its digest, its definition and its permissions.
"""

import hashlib
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.digest import Digest
from anyplug.errors import StoreError
from anyplug.mark import Mark
from anyplug.model import Plugin, State
from anyplug.store import Store

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

Rights = tuple[tuple[str, ...], bool]  # what is granted, and whether it may run where that cannot be enforced

SHOWN_CHANGES = 8  # files named before "and N more"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A person's decision."""

    name: str
    approved: bool  # False: denied
    digest: str = ""
    definition: str = ""
    asked: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    always: bool = False  # tier 2 does not ask
    follow: bool = False  # changes of code do not ask again
    unconfined: bool = False  # may run where permissions cannot be enforced
    files: dict[str, str] = {}
    decided: float = 0.0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plugin stands now."""

    state: State
    granted: tuple[str, ...] = ()
    always: bool = False
    changes: tuple[str, ...] = ()
    digest: str = ""
    reason: str = ""  # how to switch on what is switched off
    unconfined: bool = False  # may run where its permissions cannot be enforced
    files: tuple[str, ...] = ()  # that the digest covers

    @property
    def rights(self) -> Rights:
        """With what its programs are started."""
        return self.granted, self.unconfined


class Approvals:
    """The decisions in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.mark = Mark(os.path.join(os.path.dirname(store.path), "decisions"))
        self._seen = -1  # the mark's size, if all decisions up to it are known
        self.decided = 0  # decisions that were made here
        self.edition = 0  # grows each time that other decisions are read than before, whoever made them
        self._decisions: dict[str, Approval] = {}
        self._disabled: frozenset[str] = frozenset()

    @property
    def is_settled(self) -> bool:
        """Whether all decisions were known at the last look; else somebody was deciding."""
        return self._seen >= 0

    def of(self, plugin: Plugin) -> Approval | None:
        """Give the decision about a plugin: the same object as long as nobody decides anew, in any process."""
        self.refresh()
        return self._decisions.get(plugin.path)

    def known(self, plugin: Plugin) -> Approval | None:
        """Give the same as of the last look."""
        return self._decisions.get(plugin.path)

    def namesakes(self, plugin: Plugin) -> list[str]:
        """Give the folders of plugins that were approved under the same name and lie elsewhere."""
        self.refresh()
        return sorted(
            path
            for path, decision in self._decisions.items()
            if decision.approved and decision.name == plugin.name and path != plugin.path and os.path.exists(path)
        )

    def digests(self) -> frozenset[str]:
        """Return the digests that people approved, as of the last look at decisions."""
        return frozenset(decision.digest for decision in self._decisions.values() if decision.approved)

    def is_disabled(self, plugin: Plugin) -> bool:
        """Whether a person switched it off, as of the last look at decisions."""
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
    ) -> None:
        """Approve the plugin as it is now."""
        self._save(
            plugin,
            Approval(
                name=plugin.name,
                approved=True,
                digest=digest.value,
                definition=definition(plugin),
                asked=plugin.permissions,
                granted=granted,
                always=always,
                follow=follow,
                unconfined=unconfined,
                files=digest.files,
                decided=time.time(),
            ),
        )

    def deny(self, plugin: Plugin) -> None:
        """Deny it, until a person approves it after all."""
        self._save(plugin, Approval(name=plugin.name, approved=False, decided=time.time()))

    def revoke(self, plugin: Plugin) -> bool:
        """Forget the decision; False if there was none."""
        had = self.of(plugin) is not None
        with self._deciding() as transaction:
            transaction.execute("DELETE FROM approvals WHERE path = ?", (plugin.path,))
        return had

    def regrant(self, plugin: Plugin, approval: Approval, granted: tuple[str, ...]) -> None:
        """Change what an approved plugin may do."""
        self._save(plugin, msgspec.structs.replace(approval, granted=granted))

    def always(self, plugin: Plugin) -> None:
        """Stop asking for an approved plugin of tier 2."""
        if (approval := self.of(plugin)) is not None:
            self._save(plugin, msgspec.structs.replace(approval, always=True))

    def enable(self, plugin: Plugin, *, on: bool) -> None:
        """Switch it on or off."""
        statement = "DELETE FROM disabled WHERE path = ?" if on else "INSERT OR IGNORE INTO disabled VALUES (?)"
        with self._deciding() as transaction:
            transaction.execute(statement, (plugin.path,))

    def forget(self, path: str) -> None:
        """Forget everything about a folder that is removed."""
        with self._deciding() as transaction:
            for table in ("approvals", "disabled", "digests", "registrations", "installs"):
                transaction.execute(f"DELETE FROM {table} WHERE path = ?", (path,))

    def _save(self, plugin: Plugin, approval: Approval) -> None:
        with self._deciding() as transaction:
            record = msgspec.json.encode(approval)
            transaction.execute("INSERT OR REPLACE INTO approvals VALUES (?, ?)", (plugin.path, record))

    @contextmanager
    def _deciding(self) -> "Iterator[sqlite3.Connection]":
        """Decide something, so that all processes notice. Raises StoreError, and then nothing is decided."""
        self._seen = -1
        self.decided += 1
        with self._store.writing() as transaction:
            yield transaction
            transaction.execute("UPDATE decisions SET count = ?", (self.mark.grow(),))

    def refresh(self) -> None:
        """Read everything again if anybody decided something since the last look, in any process."""
        size = self.mark.size()
        if size == self._seen:
            return
        counted = self._store.rows("SELECT count FROM decisions")  # before the others: what comes later is read again
        decoder = msgspec.json.Decoder(Approval)
        rows = self._store.rows("SELECT path, record FROM approvals")
        try:
            decisions = {path: decoder.decode(record) for path, record in rows}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"a decision in {self._store.path} cannot be read: {error}",
                "something else than anyplug changed it; move the file away and approve anew",
            ) from error
        # An equal decision stays the same object: what was concluded from it stays true.
        before, disabled = self._decisions, self._disabled
        self._decisions = {
            path: before[path] if before.get(path) == decision else decision for path, decision in decisions.items()
        }
        self._disabled = frozenset(path for (path,) in self._store.rows("SELECT path FROM disabled"))
        self.edition += (self._decisions, self._disabled) != (before, disabled)
        is_settled = not counted or counted[0][0] == size  # else somebody is deciding, or was killed over it
        self._seen = size if is_settled else -1


def definition(plugin: Plugin) -> str:
    """Hash what a plugin offers and asks for: a person who approved it has seen this."""
    # What a plugin registers while it runs is not its definition: that is its code, which the digest covers.
    offered = () if plugin.stays_up else plugin.tools
    tools = [(tool.own_name, tool.description, tool.input_schema) for tool in offered]
    seen: tuple[Any, ...] = (plugin.name, plugin.format, plugin.permissions, tools)
    if plugin.endpoints:
        seen = (*seen, plugin.endpoints)
    return hashlib.sha256(msgspec.json.encode(seen, order="deterministic")).hexdigest()


def judge(plugin: Plugin, approval: Approval | None, digest: Digest | None) -> Standing:
    """Say where a plugin stands. `digest` is needed only for what was approved. Pure."""
    if plugin.explicit:
        return Standing(
            state="approved",
            granted=plugin.permissions,
            always=True,
            digest=digest.value if digest else "",
            files=tuple(digest.files) if digest else (),
        )
    if approval is None:
        return Standing(state="new")
    if not approval.approved:
        return Standing(state="denied")
    assert digest is not None
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
        files=tuple(digest.files),
    )


def changes(plugin: Plugin, approval: Approval, digest: Digest) -> tuple[str, ...]:
    """List, for a person, what is another than it was when approved. Pure."""
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
