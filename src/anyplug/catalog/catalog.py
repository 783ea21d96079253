"""Build snapshots from roots, plugins, decisions and digests. Needs no event loop."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from anyplug.catalog import approvals, discovery, offers, snapshot_building, wrong_folder
from anyplug.catalog.approvals import Approvals, Standing
from anyplug.catalog.snapshot import Snapshot
from anyplug.formats import registry
from anyplug.formats.shared.contract import Folder
from anyplug.home import digest
from anyplug.home.database import Store
from anyplug.home.digest import Digest, Reading
from anyplug.home.settings import Home, Settings
from anyplug.home.untrusted_files import Budget, Changed, TooMuch
from anyplug.model import hints, permissions
from anyplug.model.errors import ConfigError, LookFailed, StoreError, is_shortage
from anyplug.model.types import Off, Offer, Plugin

if TYPE_CHECKING:
    from anyplug.secrets.vault import Secrets

MOST_SAVED = 20_000  # files of a plugin whose stamps are stored; writing more would block other users of the database
AT_ONCE = 500  # rows of the database that one query names; SQLite allows 999
LONGEST_NAME = 200  # characters of a path that a message shows


class Elsewhere(Protocol):
    """Plugins that are in no folder of this machine, with what was decided about them: those of a fleet."""

    def plugins(self) -> list[Plugin]:
        """Return them as they are now."""
        ...

    def standing(self, plugin: Plugin) -> Standing:
        """Return where one of them stands."""
        ...


_Basis = tuple[Plugin, approvals.Approval | None, Reading | None, Off | None]  # what a standing was concluded from


class Catalog:
    """Where plugins come from, for one home and one project folder."""

    def __init__(
        self, home: Home, explicit: Sequence[str] = (), roots: Sequence[str] | None = None, folder: str = ""
    ) -> None:
        """`roots` replaces the standard ones; an empty list means none. `folder` is the project's, if not ours."""
        self.home = home
        self._settings_stamp = home.settings_stamp()  # before they are read, so that later changes are noticed
        self.settings: Settings = home.read_settings()
        self.settings_fault = ""  # why the current settings are invalid
        self.explicit = list(explicit)
        self._project = folder or os.getcwd()
        self._has_standard_roots = roots is None
        self.roots = [os.path.abspath(root) for root in roots or ()]
        self._bring_formats()
        self.store = Store(home.store)
        self.approvals = Approvals(self.store, home.second_head(self.settings), self._project)
        self._found: frozenset[str] = frozenset()  # the plugin folders in the last snapshot
        self._named_grants: frozenset[str] = frozenset()  # of the plugins that a person named for this run
        self._readings: dict[str, Reading] = {}
        self._rows: dict[str, bytes | None] = {}  # stored readings that were fetched ahead
        self._failures: dict[str, OSError] = {}  # why the last attempt to read a plugin failed
        self.elsewhere: Elsewhere | None = None
        self.wants_workspace = False  # whether to offer the chat's own tools
        self.shows_all = False  # whether to list folders that could be plugins, although their files do not say so
        self.is_on_loop = False  # whether reads outside threads must be brief
        self._standings: dict[str, tuple[_Basis, Standing]] = {}

    @cached_property
    def secrets(self) -> "Secrets":
        """The secrets stored for plugins."""
        from anyplug.secrets.vault import Secrets  # reading plugins does not need it

        return Secrets(self.home)

    @property
    def has_other_settings(self) -> bool:
        """Return whether the settings changed since they were last applied."""
        return self.home.settings_stamp() != self._settings_stamp

    def follow_settings(self) -> Callable[[], None] | None:
        """Read the settings again if they changed; return a function that marks them as applied.

        If they are invalid, the last good ones stay in effect.
        """
        stamp = self.home.settings_stamp()
        if stamp == self._settings_stamp:
            return None
        try:
            self.settings = self.home.read_settings()
            self._bring_formats()
        except ConfigError as error:
            self.settings_fault = f"the settings are invalid, so the last good ones stay in effect: {error.message}"

        def taken_over() -> None:
            self._settings_stamp = stamp

        return taken_over

    def _bring_formats(self) -> None:
        """Import the formats that the settings name, and add their plugin roots."""
        faults = registry.bring(self.settings.formats)
        self.settings_fault = "; ".join(f"{fault.message} (hint: {fault.hint})" for fault in faults)
        if self._has_standard_roots:
            self.roots = registry.standard_roots(self.home, self._project, self.settings.formats)

    def read(self, path: str, found_at: str, *, explicit: bool = False) -> Plugin | None:
        """Read one folder in any of the installed formats; return None if it is not a plugin."""
        return discovery.read(Folder(path, found_at, explicit), self.settings.formats)

    def load(self) -> Snapshot:
        """Read everything, without running anything."""
        with _without_collecting():
            return self.snapshot(self.find())

    def _cure_if_lost(self, folder: Folder) -> str:
        """Return how to restore a folder that was installed or approved and has no manifest now; empty for others."""
        is_installed = os.path.dirname(folder.found_at) == self.home.plugins
        if not is_installed and not self._is_approved(folder):
            return ""
        if renamed := wrong_folder.renamed_manifest(folder.path, self.settings.formats):
            return renamed
        if is_installed:
            return f"install it again after {hints.command('remove', folder.found_at)}"
        return f"restore its manifest; {hints.command('revoke', folder.found_at)} takes it off the list"

    def _is_approved(self, folder: Folder) -> bool:
        self.approvals.refresh()
        return folder.path in self.approvals.paths()

    def find(self, previous: Snapshot | None = None) -> list[Plugin]:
        """Read all plugins. A plugin that is now broken keeps its last good definition, with the problem."""
        with _without_collecting():
            clients = self.settings.mcp if self._has_standard_roots else {}
            plugins = discovery.discover(
                self.explicit,
                self.roots,
                clients,
                self.settings.formats,
                cure_if_lost=self._cure_if_lost,
                is_approved=self._is_approved,
                shows_all=self.shows_all,
                known_in=self.home.known,
            )
        if self.wants_workspace or any(
            registry.WORKSPACE.name in (profile.plugins or ()) for profile in self.settings.profiles.values()
        ):
            plugins.append(registry.WORKSPACE)
        if previous is None:
            return plugins
        good = {entry.plugin.path: entry.plugin for entry in previous.entries if not entry.plugin.is_broken}
        return [_last_good(plugin, good.get(plugin.path)) for plugin in plugins]

    def hash(self, plugins: list[Plugin]) -> list[Plugin]:
        """Take the digests of plugins that may run, in a thread, so that no event loop has to hash files.

        Returns those that take too long; `hash_whole` is for them. Uses the decisions that were read last. A plugin
        approved after that was hashed by the approving process, so an older digest of ours is dropped.
        """
        slow = []
        for plugin in plugins:
            decision = self.approvals.known(plugin)
            if not _may_run(plugin, decision):
                self._readings.pop(plugin.path, None)
                self._failures.pop(plugin.path, None)
            elif not plugin.is_broken:
                try:
                    self._reading(plugin, digest.quick_budget())
                except TooMuch:
                    slow.append(plugin)
                    if plugin.path not in self._readings:
                        self._failures.setdefault(plugin.path, _still_read(plugin))
                except OSError:
                    self._readings.pop(
                        plugin.path, None
                    )  # the next caller of `standing` tries again and reports the reason
        return slow

    def hash_whole(self, plugin: Plugin) -> bool:
        """Take the digest of a plugin with many or large files; return whether it changed. Blocks for long."""
        before = (self._readings.get(plugin.path), str(self._failures.get(plugin.path)))
        try:
            self._reading(plugin)
        except OSError:
            pass  # stored, and reported with the plugin's standing
        return before != (self._readings.get(plugin.path), str(self._failures.get(plugin.path)))

    def has_reading(self, plugin: Plugin) -> bool:
        """Return whether a plugin's digest has been taken."""
        return plugin.path in self._readings

    def snapshot(
        self,
        plugins: list[Plugin],
        offer_of: Callable[[Plugin], Offer | None] | None = None,
        *,
        as_read: bool = False,
    ) -> Snapshot:
        """Build a snapshot; long-running plugins get their current offer from `offer_of`, else their last one.

        `as_read`: with the last digests, where there are some. They are checked again before anything runs.
        """
        if not all(plugin.explicit for plugin in plugins):
            self.approvals.refresh()
        if self.elsewhere is not None:
            plugins = [*plugins, *self.elsewhere.plugins()]
        folders = (plugin for plugin in plugins if not plugin.is_file and not plugin.in_fleet)
        self._found = frozenset(path for plugin in folders for path in (plugin.path, plugin.found_at))
        named = (grant for plugin in plugins if plugin.explicit for grant in self.approvals.granted(plugin))
        self._named_grants = frozenset(named)
        known = offer_of or self.last_offer
        joined = [self._joined(plugin, known(plugin)) if plugin.stays_up else plugin for plugin in plugins]
        self._fetch_ahead(joined)
        try:
            return snapshot_building.build(joined, self.standing_as_read if as_read else self._standing)
        finally:
            self._rows = {}

    def plugin_folders(self) -> frozenset[str]:
        """Return the folders of all listed or approved plugins: no other plugin may change any of them."""
        return self._found | self.approvals.paths()

    def write_grants(self) -> frozenset[str]:
        """Return the grants of all plugins to write files: what is in such a folder, one of them may have put there."""
        named = (grant for grant in self._named_grants if permissions.kind(grant) == "filesystem:write")
        return self.approvals.write_grants() | frozenset(named)

    def _joined(self, plugin: Plugin, offer: Offer | None) -> Plugin:
        """Return a plugin with what it registered, limited to what was pinned at its approval."""
        pins = self.approvals.pins(plugin) if offer is not None else None
        if offer is None or pins is None:
            return offers.joined(plugin, offer)
        pinned, held = pins.hold(offer)
        joined = offers.joined(plugin, pinned)
        if not held:
            return joined
        return msgspec.structs.replace(joined, held=held, problems=(*joined.problems, pins.problem(plugin, held)))

    def knows_offer(self, plugin: Plugin) -> bool:
        """Return whether a long-running plugin's offer is known without running it."""
        return self._last_offers(plugin).keys() >= set(plugin.processes)

    def last_offer(self, plugin: Plugin) -> Offer | None:
        """Return what a long-running plugin last offered in its present version; if it may not run, in any version.

        So a known name leads to the reason why it cannot be called, and not to nothing.
        """
        known = self._last_offers(plugin)
        return offers.merged(known.values()) if known else None

    def _last_offers(self, plugin: Plugin) -> dict[str, Offer]:
        if plugin.is_broken or plugin.explicit:
            return {}
        standing = self.standing_as_read(plugin)
        return offers.stored(self.store, plugin, standing.digest if standing.state == "approved" else "")

    def standing(self, plugin: Plugin) -> Standing:
        """Return a plugin's standing right now, checking its files if it is approved.

        Raises StoreError, also if the machine lacks the resources to check.
        """
        if not plugin.explicit:
            self.approvals.refresh()
        return self._standing(plugin)

    def standing_at_once(self, plugin: Plugin) -> Standing | None:
        """Do the same on the event loop, with the decisions read last; return None if it takes a longer check.

        Immediate answers need no check, or concern few files of which none changed. Raises StoreError.
        """
        decision = self.approvals.known(plugin)
        if plugin is registry.BUILTIN or plugin.in_fleet or not _may_run(plugin, decision):
            return self._standing(plugin)
        reading = self._readings.get(plugin.path)
        if reading is None or not reading.is_small or not reading.still_holds(plugin.path):
            return None
        if not plugin.is_file and reading.named != registry.named_files(plugin):
            return None
        return self._standing(plugin, reading)

    def standing_as_decided(self, plugin: Plugin) -> Standing:
        """Do the same with the decisions read last, however long the check takes: for a thread."""
        return self._standing(plugin)

    def standing_as_read(self, plugin: Plugin) -> Standing:
        """Do the same with the last reading of its files; if there is none, with a brief check."""
        return self._standing(plugin, self._readings.get(plugin.path), is_brief=self.is_on_loop)

    def _standing(self, plugin: Plugin, reading: Reading | None = None, *, is_brief: bool = False) -> Standing:
        """Return a plugin's standing, using the decisions read last, and checking its files if no reading is passed.

        A check is needed only if it is approved. A brief one gives up where others would have to wait.
        """
        if plugin is registry.BUILTIN:
            return Standing(state="approved")
        if plugin.in_fleet:
            return self.elsewhere.standing(plugin) if self.elsewhere is not None else Standing(state="new")
        decision = None if plugin.explicit else self.approvals.known(plugin)
        if not plugin.explicit and self.approvals.is_disabled(plugin):
            return Standing(state="disabled", reason=f"enable it with `anyplug enable {plugin.name}`")
        off = registry.BY_NAME[plugin.format].switched_off(plugin)
        if off is not None and not off.tools:
            return Standing(state="disabled", reason=off.cure, off=off)
        try:
            needs_look = _may_run(plugin, decision)
            reading = (reading or self._looked(plugin, is_brief=is_brief)) if needs_look else None
        except OSError as error:
            if is_shortage(error):  # assume that nothing changed
                raise LookFailed(plugin.path, error) from error
            where = str(error.filename)[:LONGEST_NAME]  # a plugin can nest folders without end
            cure = f"delete {where} or move it out of the plugin's folder" if isinstance(error, TooMuch) else ""
            since = decision.first if decision else 0.0
            return Standing(
                state="changed", changes=(f"cannot read {where}: {error.strerror}",), reason=cure, since=since
            )
        basis = (plugin, decision, reading, off)
        known = self._standings.get(plugin.path)
        if known is not None and _are_the_same(known[0], basis):
            return known[1]
        standing = approvals.judge(plugin, decision, reading.as_digest() if reading else None)
        if off is not None:
            standing = msgspec.structs.replace(standing, off=off)
        self._standings[plugin.path] = (basis, standing)
        return standing

    def digest(self, plugin: Plugin) -> Digest:
        """Take a plugin's digest, from the cache if no stamp changed. Raises OSError."""
        return self._reading(plugin).as_digest()

    def reading(self, plugin: Plugin) -> Reading:
        """Read a plugin's files; return the last reading if no stamp changed. Raises OSError."""
        return self._reading(plugin)

    def last_reading(self, plugin: Plugin) -> Reading | None:
        """Return the last reading of a plugin's files, if any: the same object if nothing changed."""
        return self._readings.get(plugin.path)

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def _looked(self, plugin: Plugin, *, is_brief: bool) -> Reading:
        """Read a plugin's files; raises OSError, also if that takes longer than a brief check may."""
        if not is_brief:
            return self._reading(plugin)
        if (failure := self._failures.get(plugin.path)) is not None:
            raise failure
        try:
            return self._reading(plugin, digest.brief_budget())
        except TooMuch as error:
            raise _still_read(plugin) from error

    def _reading(self, plugin: Plugin, budget: Budget | None = None) -> Reading:
        """Take a plugin's digest; raises OSError. Failures without an own budget are remembered."""
        before = self._readings.get(plugin.path) or self._stored(plugin)
        try:
            if plugin.is_file:
                reading = digest.take_part(plugin.path, registry.client_pieces, before)
            else:
                every_file = registry.BY_NAME[plugin.format].EVERY_FILE_COUNTS
                named = registry.named_files(plugin)
                reading = digest.take(plugin.path, every_file=every_file, before=before, named=named, budget=budget)
        except OSError as error:
            if budget is None and not is_shortage(error):
                self._readings.pop(plugin.path, None)
                self._failures[plugin.path] = error
            raise
        if reading is not before:
            self._save(plugin, reading)
        self._failures.pop(plugin.path, None)
        self._readings[plugin.path] = reading
        return reading

    def _fetch_ahead(self, plugins: list[Plugin]) -> None:
        """Fetch the stored readings of plugins that will be checked; one query for each takes as long as its check."""
        approved = (plugin for plugin in plugins if not plugin.explicit and plugin.path not in self._readings)
        paths = [plugin.path for plugin in approved if _may_run(plugin, self.approvals.known(plugin))]
        fetched: dict[str, bytes | None] = dict.fromkeys(paths)
        for begin in range(0, len(paths), AT_ONCE):
            some = paths[begin : begin + AT_ONCE]
            query = f"SELECT path, reading FROM digests WHERE path IN ({', '.join('?' * len(some))})"
            try:
                fetched.update(self.store.rows(query, *some))
            except StoreError:
                return  # only a cache
        self._rows = fetched

    def _stored(self, plugin: Plugin) -> Reading | None:
        try:
            if plugin.path in self._rows:
                row = self._rows[plugin.path]
            else:
                rows = self.store.rows("SELECT reading FROM digests WHERE path = ?", plugin.path)
                row = rows[0][0] if rows else None
            return msgspec.msgpack.decode(row, type=Reading) if row else None
        except (StoreError, msgspec.DecodeError):
            return None  # only a cache

    def _save(self, plugin: Plugin, reading: Reading) -> None:
        if plugin.explicit or len(reading.stamps) > MOST_SAVED:
            return  # a folder that is being written: hashing it again is cheaper than storing the result
        try:
            record = msgspec.msgpack.encode(reading)
            self.store.run("INSERT OR REPLACE INTO digests VALUES (?, ?)", plugin.path, record)
        except UnicodeEncodeError:
            pass  # a file name is not UTF-8: each process hashes this plugin again
        except StoreError:
            pass  # only a cache; writes that matter report their errors


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Pause the garbage collector, which would visit thousands of small, permanent objects many times."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _may_run(plugin: Plugin, decision: approvals.Approval | None) -> bool:
    """Return whether a plugin may run if its files are as they were."""
    return plugin.explicit or (plugin.is_ours if decision is None else decision.approved)


def _still_read(plugin: Plugin) -> Changed:
    return Changed("its many or large files are still being read", plugin.path)


def _are_the_same(before: _Basis, now: _Basis) -> bool:
    return before[0] is now[0] and before[1] is now[1] and before[2] is now[2] and before[3] == now[3]


def _last_good(plugin: Plugin, good: Plugin | None) -> Plugin:
    """Keep a plugin's definition from before a broken edit, with the problem."""
    if good is None or not plugin.is_broken:
        return plugin
    problems = tuple(msgspec.structs.replace(problem, level="warning") for problem in plugin.problems)
    return msgspec.structs.replace(good, problems=problems)
