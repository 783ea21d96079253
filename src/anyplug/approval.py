"""Trust: what a person decided about a plugin, and whether that still holds for what is there now.

An approval is bound to the plugin's real path, its digest, its definition and its permissions.
"""

import hashlib
import time
from typing import Any

import msgspec

from anyplug.digest import Digest
from anyplug.model import Plugin, State
from anyplug.store import Store

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


class Approvals:
    """The decisions in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = -1
        self._counted: list[Any] | None = None  # how many decisions there were when they were read
        self._decisions: dict[str, Approval] = {}
        self._disabled: frozenset[str] = frozenset()

    def of(self, plugin: Plugin) -> Approval | None:
        """Give the decision about a plugin: the same object as long as nobody decides anew, in any process."""
        self.refresh()
        return self._decisions.get(plugin.path)

    def known(self, plugin: Plugin) -> Approval | None:
        """Give the same as of the last look."""
        return self._decisions.get(plugin.path)

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
        self._store.run("DELETE FROM approvals WHERE path = ?", plugin.path)
        self._version = -1
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
        self._store.run(statement, plugin.path)
        self._version = -1

    def forget(self, path: str) -> None:
        """Forget everything about a folder that is removed."""
        with self._store.writing() as transaction:
            for table in ("approvals", "disabled", "digests", "registrations", "installs"):
                transaction.execute(f"DELETE FROM {table} WHERE path = ?", (path,))
        self._version = -1

    def _save(self, plugin: Plugin, approval: Approval) -> None:
        self._store.run("INSERT OR REPLACE INTO approvals VALUES (?, ?)", plugin.path, msgspec.json.encode(approval))
        self._version = -1

    def refresh(self) -> None:
        """Read everything again if anybody decided something since the last look, in any process."""
        version = self._store.version()
        if version == self._version:
            return
        counted = self._store.rows("SELECT count FROM decisions")
        if counted == self._counted:
            self._version = version  # what was written were records of calls
            return
        decoder = msgspec.json.Decoder(Approval)
        rows = self._store.rows("SELECT path, record FROM approvals")
        decisions = {path: decoder.decode(record) for path, record in rows}
        # An equal decision stays the same object: what was concluded from it stays true.
        before = self._decisions
        self._decisions = {
            path: before[path] if before.get(path) == decision else decision for path, decision in decisions.items()
        }
        self._disabled = frozenset(path for (path,) in self._store.rows("SELECT path FROM disabled"))
        self._version, self._counted = version, counted


def definition(plugin: Plugin) -> str:
    """Hash what a plugin offers and asks for: a person who approved it has seen this."""
    # What a plugin registers while it runs is not its definition: that is its code, which the digest covers.
    offered = () if plugin.stays_up else plugin.tools
    tools = [(tool.own_name, tool.description, tool.input_schema) for tool in offered]
    seen = (plugin.name, plugin.format, plugin.permissions, tools)
    return hashlib.sha256(msgspec.json.encode(seen, order="deterministic")).hexdigest()


def judge(plugin: Plugin, approval: Approval | None, digest: Digest | None) -> Standing:
    """Say where a plugin stands. `digest` is needed only for what was approved. Pure."""
    if plugin.explicit:
        return Standing(
            state="approved", granted=plugin.permissions, always=True, digest=digest.value if digest else ""
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
