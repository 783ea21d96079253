"""Install, update and remove plugins: staged, validated, then moved into place; a failure leaves nothing behind."""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from anyplug.audit.audit_log import Audit
from anyplug.catalog.catalog import Catalog
from anyplug.formats import registry
from anyplug.formats.shared import scripts
from anyplug.formats.shared.manifest import NOTHING_TO_RUN
from anyplug.home import digest, plugin_config, untrusted_files
from anyplug.home.location import make_private
from anyplug.manage import carry_over, plugin_sources, staging
from anyplug.manage.carry_over import Inheritance
from anyplug.manage.leftover_data import Leftovers
from anyplug.manage.plugin_sources import Fetched, Source
from anyplug.model import hints
from anyplug.model.errors import InstallError
from anyplug.model.types import Plugin
from anyplug.model.untrusted_text import encodable

CALLS_END_S = 30.0  # how long an update waits for running calls
CALLS_POLL_S = 0.1


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """Where an installed plugin came from, and which files came with it."""

    source: Source
    commit: str = ""
    files: tuple[str, ...] = ()
    hashes: dict[str, str] = {}  # of these files as they came; older records have none
    at: float = 0.0

    @property
    def came(self) -> dict[str, str]:
        """Each file's original hash; empty if it was not recorded."""
        return {name: self.hashes.get(name, "") for name in self.files}


class Installed(msgspec.Struct, frozen=True):
    """What was moved into place, and what the user should know about it."""

    plugin: Plugin
    record: Install
    left_config: bool = False
    left_modules: tuple[str, ...] = ()
    is_new: bool = True  # False: it was already there
    inheritance: Inheritance = Inheritance()
    kept: str = ""  # the folder for files that have no place in the plugin any more, if any


class Installer:
    """Manages the plugins folder of one home."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._home = catalog.home
        self._store = catalog.store
        self.leftovers = Leftovers(catalog)

    def install(self, source: Source) -> Installed:
        """Install a plugin; raises InstallError."""
        with explained("install it"), staging.opened(self._home.plugins) as folder:
            brought, plugin = self._validated(source, folder)
            target = os.path.join(os.path.realpath(self._home.plugins), plugin.name)
            if os.path.lexists(target):
                raise InstallError(
                    f"plugin '{plugin.name}' already exists, in {target}",
                    f"run `anyplug update {plugin.name}`, or first `anyplug remove {plugin.name}`",
                )
            record = _record(source, brought, plugin)
            found_at = os.path.join(self._home.plugins, plugin.name)
            self._clear(msgspec.structs.replace(plugin, path=target, found_at=found_at), record.source)
            os.rename(plugin.path, target)
            try:
                self._catalog.approvals.forget(target)
                self._remember(target, record)
                installed = self._read(target)
                returned = self.leftovers.of_source(plugin.name, record.source)
                if returned is not None:
                    self.leftovers.give(returned, installed, record.source)
                return Installed(installed, record, brought.left_config, brought.left_modules)
            except BaseException:
                staging.put_away(folder, target)
                raise

    def _clear(self, plugin: Plugin, source: Source) -> None:
        """Set aside what a plugin from elsewhere left in this place when its folder was deleted without `remove`.

        Raises SecretsUnusable or OSError.
        """
        before = self._origin(plugin.path)
        if before is None or before.source != source:
            self.leftovers.set_aside(plugin, before.source if before is not None else None)
            for path in self._caches(plugin):
                _delete(path)

    @contextmanager
    def update(self, plugin: Plugin) -> Iterator[Installed]:
        """Put the newest version in place during the block, and permanently if the block does not raise.

        What was written or changed in the previous version is carried over, or kept. If nothing is new, nothing is
        moved. Raises InstallError.
        """
        before = self.origin(plugin)
        if before is None:
            raise InstallError(
                f"'{plugin.name}' was not installed by anyplug, so there is no source to update it from",
                f"change it in {plugin.path}",
            )
        with staging.opened(self._home.plugins) as folder:
            with explained(f"update '{plugin.name}'"):
                brought, new = self._validated(before.source, folder)
                if new.name != plugin.name:
                    again = hints.command("install", *before.source.words)
                    raise InstallError(
                        f"the new version is named '{new.name}', not '{plugin.name}'",
                        f"install it separately with {again}, then run `anyplug remove {plugin.name}`",
                    )
                record = _record(before.source, brought, new)
                is_new = self._is_new(plugin, before, new, record)
            if not is_new:
                same = msgspec.structs.replace(record, at=before.at)
                self._remember(plugin.path, same)
                yield Installed(plugin, same, is_new=False)
                return
            with explained(f"update '{plugin.name}'"):
                self._wait_for_calls(plugin)
                own = carry_over.written(plugin.path, before.came, before.at)
                plan = carry_over.plan(plugin.path, new.path, own, before.came, record.hashes, _code_of(plugin, new))
                carry_over.hand_down(plugin.path, new.path, plan)
            with self._keeping(plugin, plan.kept) as kept, self._swapped(plugin, new, folder, record):
                yield Installed(
                    self._read(plugin.path),
                    record,
                    brought.left_config,
                    brought.left_modules,
                    inheritance=plan,
                    kept=kept,
                )
                self._remember(plugin.path, record)

    def _is_new(self, plugin: Plugin, before: Install, new: Plugin, record: Install) -> bool:
        """Return whether the new version differs from what was installed, or repairs changes made to that."""
        is_same = before.hashes == record.hashes or (not before.hashes and before.commit == record.commit != "")
        if plugin.is_broken or not is_same:
            return True
        closed = [name for name in record.files if _is_program(new, name) and not _is_program(plugin, name)]
        if closed or self._catalog.standing(plugin).state == "approved":
            return bool(closed)  # otherwise it is as the user wants it, even if they changed it themselves
        every_file, named = registry.BY_NAME[new.format].EVERY_FILE_COUNTS, registry.named_files(new)
        code = digest.take(new.path, every_file=every_file, before=None, named=named).as_digest().files
        return not code.items() <= self._catalog.digest(plugin).files.items()

    @contextmanager
    def _swapped(self, plugin: Plugin, new: Plugin, folder: str, record: Install) -> Iterator[None]:
        """Put a new version in place; restore the previous one if the block raises."""
        with ExitStack() as stack:
            with explained(f"update '{plugin.name}'"):
                stack.enter_context(staging.swapped(folder, plugin.path, new.path, record.at))
            yield

    @contextmanager
    def _keeping(self, plugin: Plugin, names: Sequence[str]) -> Iterator[str]:
        """Keep files of a plugin, unless the block raises; yield their folder, if any."""
        folder = self._keep(plugin, names)
        try:
            yield folder
        except BaseException:
            _forget_kept(folder)
            raise

    def _keep(self, plugin: Plugin, names: Sequence[str]) -> str:
        """Copy files of a plugin to where it cannot reach them; return their folder, empty if there are none."""
        if not names:
            return ""
        folder = self._kept(plugin)
        try:
            with explained(f"keep what was changed in '{plugin.name}'"):
                make_private(os.path.dirname(folder))
                os.mkdir(folder, 0o700)
                carry_over.copy(plugin.path, folder, names)
        except BaseException:
            _forget_kept(folder)
            raise
        return folder

    def remove(self, plugin: Plugin, *, purge: bool) -> None:
        """Remove a plugin's folder, or only the link to it; with `purge` its data and secrets, too.

        Otherwise these are set aside. Raises InstallError; or SecretsUnusable, if nothing was removed because its
        secrets cannot be.
        """
        going, _ = self.belongings(plugin, purge=purge)
        if purge:
            self._catalog.secrets.forget(plugin.path)
        with explained(f"remove '{plugin.name}'"):
            self._keep(plugin, () if purge else self._state(plugin))
            if not purge and not _is_linked(plugin):
                before = self.origin(plugin)
                self.leftovers.set_aside(plugin, before.source if before is not None else None)
            for path in going:
                _delete(path)
            if purge:
                self._home.disclaim(plugin)
        self._catalog.approvals.forget(plugin.path)

    def belongings(self, plugin: Plugin, *, purge: bool) -> tuple[list[str], list[str]]:
        """List what a removal deletes, and what it keeps in case the plugin returns."""
        home = self._home
        own = [path for path in (home.data(plugin), home.files(plugin)) if os.path.exists(path)]
        if not purge and not _is_linked(plugin):
            own = [self.leftovers.next_folder(plugin.name)] if self.leftovers.what(plugin) else []
        kept = [*own, *filter(os.path.exists, (home.log(plugin), home.kept(plugin)))]
        going = [plugin.found_at or plugin.path, *filter(os.path.exists, self._caches(plugin))]
        if not purge and self._state(plugin):
            kept.append(self._kept(plugin))
        return (going + kept, []) if purge else (going, kept)

    def _caches(self, plugin: Plugin) -> tuple[str, ...]:
        return self._home.cache(plugin), scripts.notes(self._home, plugin)

    def _kept(self, plugin: Plugin) -> str:
        """Return where a removed plugin's own files go, and those that have no place in it any more.

        No plugin can write there, so that none decides where its files go. They are not restored automatically: the
        next plugin of that name may be someone else's.
        """
        folder = self._home.kept(plugin)
        number = next(number for number in itertools.count(1) if not os.path.lexists(f"{folder}/{number}"))
        return f"{folder}/{number}"

    def _state(self, plugin: Plugin) -> list[str]:
        """List what an installed plugin wrote or changed in its folder, except code, if its format keeps data there.

        Its configuration is deleted, because it may contain keys.
        """
        before = self.origin(plugin)
        format = registry.BY_NAME.get(plugin.format)  # none if its manifest is gone
        if before is None or (format is not None and not format.WRITES_BESIDE_ITSELF):
            return []
        try:
            own = carry_over.written(plugin.path, before.came, before.at)
        except untrusted_files.TooMuch as error:
            raise InstallError(
                f"what '{plugin.name}' wrote into its folder is too much to keep: {error.filename}: {error.strerror}",
                f"remove all of it with `anyplug remove {plugin.name} --purge`",
            ) from error
        return [
            name for name in own if name != plugin_config.FILE and digest.is_data(name, os.path.join(plugin.path, name))
        ]

    def is_ours(self, plugin: Plugin) -> bool:
        """Return whether `install` created the folder, or it is a link in the folder for installed plugins."""
        is_there = os.path.dirname(plugin.found_at or plugin.path) == self._home.plugins
        return is_there and (_is_linked(plugin) or self.origin(plugin) is not None)

    def origin(self, plugin: Plugin) -> Install | None:
        """Return where a plugin was installed from."""
        return self._origin(plugin.path)

    def _origin(self, path: str) -> Install | None:
        rows = self._store.rows("SELECT record FROM installs WHERE path = ?", path)
        return msgspec.json.decode(rows[0][0], type=Install) if rows else None

    def tidy(self) -> list[str]:
        """Remove what killed processes left; return the paths of plugins whose previous version was restored."""
        return staging.tidy(self._home.plugins, lambda path: record.at if (record := self._origin(path)) else None)

    def _validated(self, source: Source, folder: str) -> tuple[Fetched, Plugin]:
        """Fetch the source and read it, in a folder with the plugin's own name."""
        origin, commit = plugin_sources.find(source, folder)
        found = self._catalog.read(origin, origin)
        if found is None:  # before copying, which could be a whole disk
            raise InstallError(
                f"{source.shown} is not a plugin", "if the plugin is in a subfolder, name it with --subdir"
            )
        # An extension is built in its folder: of what git ignores, only what its manifest names is copied.
        left = plugin_sources.ignored(source, origin, folder) if found.launch is not None else frozenset()
        brought = plugin_sources.bring(origin, commit, folder, left, _named_files(found))
        first = self._catalog.read(brought.folder, os.path.join(folder, source.folder_name))
        if first is None:  # only files, folders and links are copied
            raise InstallError(f"{source.shown} is not a plugin", "its manifest must be a regular file")
        named = os.path.join(folder, first.name)
        if not os.path.lexists(named):
            os.rename(brought.folder, named)
        plugin = self._catalog.read(named, named)
        assert plugin is not None
        if plugin.is_broken:
            faults = [problem for problem in plugin.problems if problem.level == "error"]
            message = "; ".join(problem.message.replace(f"{named}{os.sep}", "") for problem in faults)
            raise InstallError(f"the plugin is invalid: {message}", faults[0].hint.replace(f"{named}{os.sep}", ""))
        for problem in plugin.problems:
            if problem.code == NOTHING_TO_RUN:
                raise InstallError(f"there is nothing to install: {problem.message}", problem.hint)
        if plugin.launch is not None and "/" in plugin.launch.program and not os.path.exists(plugin.launch.program):
            raise InstallError(
                f"its program {os.path.relpath(plugin.launch.program, named)} is not in {source.shown}",
                "clone it, build it, and install that folder"
                if source.is_git
                else f"build it first, or change `exec` in {registry.BY_NAME[plugin.format].MANIFEST}",
            )
        return brought, plugin

    def _read(self, path: str) -> Plugin:
        real = os.path.realpath(path)
        plugin = self._catalog.read(real, path)
        assert plugin is not None
        return plugin

    def _remember(self, path: str, record: Install) -> None:
        real = os.path.realpath(path)
        self._store.run("INSERT OR REPLACE INTO installs VALUES (?, ?)", real, msgspec.json.encode(record))

    def _wait_for_calls(self, plugin: Plugin) -> None:
        """Wait until no host is running a call of this plugin; raises InstallError after a while."""
        until = time.monotonic() + CALLS_END_S
        while self._calls_under_way(plugin):
            if time.monotonic() > until:
                raise InstallError(
                    f"calls of '{plugin.name}' are still running", "wait, or cancel them; `anyplug jobs` lists jobs"
                )
            time.sleep(CALLS_POLL_S)

    def _calls_under_way(self, plugin: Plugin) -> bool:
        return any(record.plugin == plugin.name for record in Audit(self._store).under_way())


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Add to a file system error what could not be done."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise InstallError(
            f"cannot {what}: {where}{error.strerror or error}",
            ("check the disk's free space and the folder's permissions"),
        ) from error


def _named_files(plugin: Plugin) -> list[str]:
    """List the files inside a plugin's folder that its command lines name, relative to it."""
    launch = plugin.launch
    words = (launch.program, *launch.arguments) if launch is not None else ()
    paths = [os.path.normpath(os.path.join(plugin.path, word)) for word in words]
    named = [os.path.relpath(path, plugin.path) for path in paths if path.startswith(plugin.path + os.sep)]
    return [*named, *registry.named_files(plugin)]


def _record(source: Source, brought: Fetched, plugin: Plugin) -> Install:
    kept = msgspec.structs.replace(source, location=source.lasting_location)
    hashes = carry_over.hashes(plugin.path)
    for name in hashes:
        if encodable(name) != name:
            raise InstallError(f"the name of the file {name!r} is not valid UTF-8", "rename it, then install it again")
    return Install(source=kept, commit=brought.commit, files=tuple(hashes), hashes=hashes, at=time.time())


def _code_of(*versions: Plugin) -> Callable[[str, str], bool]:
    """Return a function that tells whether the digest covers a file, in any of these versions."""
    every_file = any(registry.BY_NAME[version.format].EVERY_FILE_COUNTS for version in versions if version.format)
    named = {name for version in versions if version.format for name in registry.named_files(version)}
    return lambda name, path: every_file or name in named or not digest.is_data(name, path)


def _is_linked(plugin: Plugin) -> bool:
    """Return whether it was found through a link: its folder is elsewhere, and stays there with what belongs to it."""
    return os.path.islink(plugin.found_at)


def _is_program(plugin: Plugin, name: str) -> bool:
    path = os.path.join(plugin.path, name)
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _forget_kept(folder: str) -> None:
    """Delete the kept files of a version that is back in place."""
    if folder:
        with suppress(OSError):
            _delete(folder)
            os.rmdir(os.path.dirname(folder))  # if nothing else is there


def _delete(path: str) -> None:
    """Delete a folder, file or link."""
    if os.path.isdir(path) and not os.path.islink(path):
        untrusted_files.remove(path)
    elif os.path.lexists(path):
        os.unlink(path)
