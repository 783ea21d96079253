"""Installs, updates and removes plugins: staged, validated, then moved in place; a failure leaves nothing behind."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from anyplug import discovery, liveness, sources
from anyplug.audit import Record
from anyplug.catalog import Catalog
from anyplug.errors import InstallError
from anyplug.formats.contract import Folder
from anyplug.model import Plugin
from anyplug.sources import Brought, Source

CALLS_END_S = 30.0  # how long an update waits for calls that are under way
CALLS_POLL_S = 0.1


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """Where an installed plugin came from, and which files came with it."""

    source: Source
    commit: str = ""
    files: tuple[str, ...] = ()
    at: float = 0.0


class Installed(msgspec.Struct, frozen=True):
    """What was moved in place, and what the person should know of it."""

    plugin: Plugin
    record: Install
    left_config: bool


class Installer:
    """Works on the plugins folder of one home."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._home = catalog.home
        self._store = catalog.store

    def install(self, source: Source) -> Installed:
        """Install a plugin; raises InstallError."""
        with self._staging() as staging:
            brought, plugin = self._validated(source, staging)
            target = os.path.join(self._home.plugins, plugin.name)
            if os.path.lexists(target):
                raise InstallError(
                    f"there is a plugin '{plugin.name}' already, in {target}",
                    f"`anyplug update {plugin.name}`, or `anyplug remove {plugin.name}` first",
                )
            record = _record(source, brought, plugin)
            os.rename(plugin.path, target)
        self._catalog.approvals.forget(target)
        self._remember(target, record)
        return Installed(self._read(target), record, brought.left_config)

    @contextmanager
    def update(self, plugin: Plugin) -> Iterator[Installed]:
        """Put the newest version in place for the time of the block, and for good if the block does not raise.

        Configuration and whatever the plugin wrote beside itself are carried over. Raises InstallError.
        """
        before = self.origin(plugin)
        if before is None:
            raise InstallError(
                f"'{plugin.name}' was not installed by anyplug, so there is nothing to update it from",
                f"change it in {plugin.path}",
            )
        with self._staging() as staging:
            brought, new = self._validated(before.source, staging)
            if new.name != plugin.name:
                raise InstallError(
                    f"the new version calls itself '{new.name}', not '{plugin.name}'",
                    f"`anyplug install` it beside, then `anyplug remove {plugin.name}`",
                )
            record = _record(before.source, brought, new)
            _carry_over(plugin.path, new.path, set(before.files))
            self._wait_for_calls(plugin)
            aside = os.path.join(staging, "before")
            os.rename(plugin.path, aside)
            try:
                os.rename(new.path, plugin.path)
                yield Installed(self._read(plugin.path), record, brought.left_config)
            except BaseException:
                shutil.rmtree(plugin.path, ignore_errors=True)
                os.rename(aside, plugin.path)
                raise
        self._remember(plugin.path, record)

    def remove(self, plugin: Plugin, *, purge: bool) -> None:
        """Remove a plugin's folder, or only the link that led to it; with `purge` its data too."""
        if plugin.found_at and os.path.islink(plugin.found_at):
            os.unlink(plugin.found_at)
        else:
            shutil.rmtree(plugin.path)
        self._catalog.approvals.forget(plugin.path)
        gone = [self._home.cache(plugin.name)]
        if purge:
            gone += [self._home.data(plugin.name), self._home.files(plugin.name), self._home.log(plugin.name)]
        for path in gone:
            _delete(path)

    def is_ours(self, plugin: Plugin) -> bool:
        """Whether the folder lies where `install` puts things."""
        return os.path.dirname(plugin.found_at or plugin.path) == self._home.plugins

    def origin(self, plugin: Plugin) -> Install | None:
        """Say where a plugin was installed from."""
        rows = self._store.rows("SELECT record FROM installs WHERE path = ?", plugin.path)
        return msgspec.json.decode(rows[0][0], type=Install) if rows else None

    @contextmanager
    def _staging(self) -> Iterator[str]:
        """Give an empty folder on the same file system, which goes away in any case."""
        os.makedirs(self._home.plugins, mode=0o755, exist_ok=True)
        folder = os.path.join(self._home.plugins, f".staging-{secrets.token_hex(6)}")
        os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _validated(self, source: Source, staging: str) -> tuple[Brought, Plugin]:
        """Bring the source and read it, in a folder that has the plugin's own name."""
        brought = sources.bring(source, staging)
        first = discovery.read(Folder(brought.folder, brought.folder))
        if first is None:
            raise InstallError(
                f"{source.location} holds no plugin", "if the plugin is in a folder of it, name it with --subdir"
            )
        named = os.path.join(staging, first.name)
        if named != brought.folder:
            os.rename(brought.folder, named)
        plugin = discovery.read(Folder(named, named))
        assert plugin is not None
        if plugin.is_broken:
            faults = [problem for problem in plugin.problems if problem.level == "error"]
            message = "; ".join(problem.message.replace(f"{named}{os.sep}", "") for problem in faults)
            raise InstallError(f"the plugin cannot be used: {message}", faults[0].hint)
        return brought, plugin

    def _read(self, path: str) -> Plugin:
        real = os.path.realpath(path)
        plugin = discovery.read(Folder(real, path))
        assert plugin is not None
        return plugin

    def _remember(self, path: str, record: Install) -> None:
        real = os.path.realpath(path)
        self._store.run("INSERT OR REPLACE INTO installs VALUES (?, ?)", real, msgspec.json.encode(record))

    def _wait_for_calls(self, plugin: Plugin) -> None:
        """Wait until no host has a call of this plugin under way; raises InstallError after a while."""
        until = time.monotonic() + CALLS_END_S
        while self._calls_under_way(plugin):
            if time.monotonic() > until:
                raise InstallError(
                    f"calls of '{plugin.name}' are still under way", "wait, or cancel them: `anyplug jobs` lists jobs"
                )
            time.sleep(CALLS_POLL_S)

    def _calls_under_way(self, plugin: Plugin) -> bool:
        decoder = msgspec.json.Decoder(Record)
        return any(
            decoder.decode(record).plugin == plugin.name and liveness.is_alive(host)
            for host, record in self._store.rows("SELECT host, record FROM pending")
        )


def _record(source: Source, brought: Brought, plugin: Plugin) -> Install:
    kept = source if source.is_git else msgspec.structs.replace(source, location=os.path.abspath(source.location))
    return Install(source=kept, commit=brought.commit, files=tuple(sources.files_of(plugin.path)), at=time.time())


def _carry_over(old: str, new: str, installed: set[str]) -> None:
    """Copy what the plugin or the person wrote since it was installed, unless the new version has such a file."""
    for name in sources.files_of(old):
        target = os.path.join(new, name)
        if name not in installed and not os.path.lexists(target) and "__pycache__" not in name.split(os.sep):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(os.path.join(old, name), target, follow_symlinks=False)


def _delete(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.exists(path):
        os.unlink(path)
