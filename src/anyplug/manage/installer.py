"""Install, update and remove plugins: staged, validated, then moved into place; a failure leaves nothing behind."""

import errno
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from anyplug.audit.audit_log import Audit
from anyplug.audit.decision_records import Decision
from anyplug.catalog.catalog import Catalog
from anyplug.formats import registry
from anyplug.formats.shared import scripts
from anyplug.home import digest, plugin_config, untrusted_files
from anyplug.home.code_snapshots import Snapshots
from anyplug.home.location import make_private
from anyplug.manage import carry_over, plugin_sources, staged_plugin, staging
from anyplug.manage.bundles.foreign_bundle import Value
from anyplug.manage.carry_over import Inheritance
from anyplug.manage.leftover_data import Leftovers
from anyplug.manage.plugin_sources import Checkout, Source
from anyplug.manage.source_contents import Contained
from anyplug.manage.staged_plugin import Install, StagedPlugin
from anyplug.manage.zip_sources import is_archive_name
from anyplug.model import hints
from anyplug.model.errors import InstallError
from anyplug.model.types import Plugin
from anyplug.secrets.vault import SecretsUnusable

CALLS_END_S = 30.0  # how long an update waits for running calls
CALLS_POLL_S = 0.1


class Installed(msgspec.Struct, frozen=True):
    """What was moved into place, and what the user should know about it."""

    plugin: Plugin
    record: Install
    left_config: bool = False
    left_modules: tuple[str, ...] = ()
    is_new: bool = True  # False: it was already there
    inheritance: Inheritance = Inheritance()
    kept: str = ""  # the folder for files that have no place in the plugin any more, if any
    values: tuple[Value, ...] = ()  # what the person must or may give it


class Opened(msgspec.Struct, frozen=True):
    """A fetched source, and the plugins in it."""

    checkout: Checkout
    found: list[Contained]


class Newest(msgspec.Struct, frozen=True):
    """The newest version of a plugin, compared with what is installed."""

    plugin: Plugin
    record: Install
    before: Install
    is_new: bool
    changed: int  # files that differ


class _Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What is being removed: all that is needed to finish it."""

    plugin: Plugin
    source: Source | None
    purge: bool
    is_linked: bool


class Installer:
    """Manages the plugins folder of one home."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._home = catalog.home
        self._store = catalog.store
        self.leftovers = Leftovers(catalog)

    @contextmanager
    def opened(self, source: Source) -> Iterator[Opened]:
        """Fetch a source for the block, and find its plugins. Raises InstallError."""
        with explained("fetch it"), staging.opened(self._home.plugins) as folder:
            checkout = plugin_sources.fetch(source, folder)
            yield Opened(checkout, staged_plugin.look(self._catalog, source, checkout, folder))

    def install(
        self, source: Source, opened: Checkout | None = None, secrets: Mapping[str, str] | None = None
    ) -> Installed:
        """Install the one plugin of a source; raises InstallError, or SeveralPlugins.

        `opened` is where it was fetched to. `secrets` are stored for the plugin.
        """
        with explained("install it"), staging.opened(self._home.plugins) as folder:
            brought = staged_plugin.bring(self._catalog, source, folder, opened)
            plugin = brought.plugin
            target = os.path.join(os.path.realpath(self._home.plugins), plugin.name)
            if os.path.lexists(target):
                cure = f"run `anyplug update {plugin.name}`, or first `anyplug remove {plugin.name}`"
                self._catalog.approvals.refresh()
                if target not in self._catalog.approvals.paths():
                    cure = f"it waits for {hints.command('approve', plugin.name)}; to install another one, {cure}"
                raise InstallError(f"plugin '{plugin.name}' already exists, in {target}", cure)
            record = staged_plugin.record(brought)
            found_at = os.path.join(self._home.plugins, plugin.name)
            self._clear(msgspec.structs.replace(plugin, path=target, found_at=found_at), record.source)
            with staging.placed(folder, target, plugin.path, msgspec.json.encode(record)):
                self._catalog.approvals.forget(target)
                self._remember(target, record)
                installed = self._read(target)
                returned = self.leftovers.of_source(plugin.name, record.source)
                if returned is not None:
                    self.leftovers.give(returned, installed, record.source)
                for name, value in (secrets or {}).items():
                    self._catalog.secrets.set(installed, name, value)
                self._note("install", installed, record)
                return _installed(installed, record, brought)

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
    def update(self, plugin: Plugin, ref: str | None = None) -> Iterator[Installed]:
        """Put the newest version in place during the block, and permanently if the block does not raise.

        `ref`: a branch, tag or commit to take instead, from now on; empty: the source's own branch.
        What was written or changed in the previous version is carried over, or kept. If nothing is new, nothing is
        moved. Raises InstallError.
        """
        before = self._updatable(plugin)
        if ref is not None:
            before = msgspec.structs.replace(before, source=msgspec.structs.replace(before.source, ref=ref))
        with staging.opened(self._home.plugins) as folder:
            brought, record, is_new = self._newest(plugin, before, folder)
            new = brought.plugin
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
                done = _installed(self._read(plugin.path), record, brought)
                yield msgspec.structs.replace(done, inheritance=plan, kept=kept)
                self._remember(plugin.path, record)
                self._note("update", new, record, before.commit)

    def _updatable(self, plugin: Plugin) -> Install:
        """Return where a plugin came from; raises InstallError if there is nothing to update it from."""
        before = self.origin(plugin)
        if before is None:
            raise InstallError(
                f"'{plugin.name}' was not installed by anyplug, so there is no source to update it from",
                f"change it in {plugin.path}",
            )
        if before.source.is_zip:
            raise InstallError(
                f"'{plugin.name}' was installed from a zip archive, so there is no source to update it from",
                f"{hints.command('remove', plugin.name)}, then install the newer archive in the console: `anyplug ui`",
            )
        if _is_gone(before.source):
            kind = "archive" if is_archive_name(before.source.location) else "folder"
            raise InstallError(
                f"the {kind} it was installed from no longer exists: {before.source.location}",
                f"put it back; or {hints.command('remove', plugin.name)}, then install it from where it is now",
            )
        return before

    def _newest(self, plugin: Plugin, before: Install, folder: str) -> tuple[StagedPlugin, Install, bool]:
        """Bring the newest version into a staging folder, and return whether it is other than what is there."""
        with explained(f"update '{plugin.name}'"):
            brought = staged_plugin.bring(self._catalog, before.source, folder)
            new = brought.plugin
            if new.name != plugin.name:
                again = hints.command("install", *before.source.words)
                raise InstallError(
                    f"the new version is named '{new.name}', not '{plugin.name}'",
                    f"install it separately with {again}, then run `anyplug remove {plugin.name}`",
                )
            record = staged_plugin.record(brought)
            return brought, record, self._is_new(plugin, before, new, record)

    def newest(self, plugin: Plugin) -> Newest:
        """Fetch the newest version of a plugin and say what it is, without putting it in place. Raises InstallError."""
        before = self._updatable(plugin)
        with staging.opened(self._home.plugins) as folder:
            brought, record, is_new = self._newest(plugin, before, folder)
            changed = sum(record.hashes.get(name) != before.hashes.get(name) for name in {*record.files, *before.files})
            return Newest(brought.plugin, record, before, is_new, changed)

    @contextmanager
    def borrowed(self, source: Source) -> Iterator[StagedPlugin]:
        """Bring a plugin for the block; then delete it and everything that it wrote. Raises InstallError."""
        with staging.opened(self._home.plugins) as folder:
            with explained("try it"):
                brought = staged_plugin.bring(self._catalog, source, folder)
            plugin = msgspec.structs.replace(brought.plugin, explicit=True)
            note = Decision("try", plugin.name, f"from {source.shown}", folder=plugin.path, format=plugin.format)
            self._catalog.approvals.note(note)
            code = self._catalog.digest(plugin).value
            try:
                yield brought
            finally:
                with explained("delete what it wrote"):
                    self._forget_files(plugin)
                if code not in self._catalog.approvals.digests():
                    Snapshots(self._home.path).forget(code)

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
                stack.enter_context(staging.swapped(folder, plugin.path, new.path, msgspec.json.encode(record)))
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
        place = plugin.found_at or plugin.path
        with explained(f"remove '{plugin.name}'"):
            self._keep(plugin, () if purge else self._state(plugin))
            before = self.origin(plugin)
            source = before.source if before is not None else None
            going = _Removal(plugin=_nameplate(plugin), source=source, purge=purge, is_linked=_is_linked(plugin))
            if os.path.dirname(place) != self._home.plugins or os.path.islink(place):  # a link is gone in one step
                self._clean_up(going)
                _delete(place)
                return
            about = msgspec.json.encode(going)
            with staging.opened(self._home.plugins) as folder, staging.taken_out(folder, place, about):
                self._clean_up(going)

    def _clean_up(self, removal: "_Removal") -> None:
        """Delete or set aside what belongs to a plugin outside its folder; does nothing the second time.

        Raises SecretsUnusable or OSError.
        """
        plugin = removal.plugin
        if removal.purge:
            self._forget_files(plugin)
        elif not removal.is_linked:
            self.leftovers.set_aside(plugin, removal.source)
        for path in self._caches(plugin):
            _delete(path)
        more = "with its data, files, log and secrets" if removal.purge else ""
        decision = Decision("remove", plugin.name, more, folder=plugin.path, format=plugin.format)
        self._catalog.approvals.forget(plugin.path, decision)

    def _forget_files(self, plugin: Plugin) -> None:
        """Delete everything of a plugin outside its folder, with its secrets. Raises SecretsUnusable or OSError."""
        self._catalog.secrets.forget(plugin.path)
        home = self._home
        for path in (home.data(plugin), home.files(plugin), home.log(plugin), home.kept(plugin), home.beside(plugin)):
            _delete(path)
        for path in self._caches(plugin):
            _delete(path)
        home.disclaim(plugin)

    def _finish(self, about: bytes) -> None:
        """Complete the removal of a plugin that another process began; raises OSError to leave it for later."""
        try:
            removal = msgspec.json.decode(about, type=_Removal)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if not os.path.lexists(removal.plugin.path):  # otherwise it has come back
            try:
                self._clean_up(removal)
            except SecretsUnusable as error:
                raise OSError(errno.EACCES, error.message) from error

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
        """Undo or finish what killed processes began; return what was done, for the person."""
        told = []
        for left in staging.tidy(self._home.plugins, self._is_done, self._finish):
            name = os.path.basename(left.path)
            if left.removal:
                told.append("a removal that was interrupted is finished")
            elif left.is_restored:
                told.append(f"an update of {name} was interrupted; the previous version is restored")
            else:
                told.append(f"an installation of {name} was interrupted; nothing is installed")
        return told

    def _is_done(self, path: str, about: bytes) -> bool:
        """Return whether what is at a path was recorded, or at least approved; then it is recorded now."""
        try:
            record = msgspec.json.decode(about, type=Install)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        before = self._origin(path)
        if before is not None and before.at == record.at:
            return True
        plugin = self._catalog.read(os.path.realpath(path), path)
        if plugin is None or self._catalog.standing(plugin).state != "approved":
            return False
        self._remember(path, record)
        return True

    def _read(self, path: str) -> Plugin:
        real = os.path.realpath(path)
        plugin = self._catalog.read(real, path)
        assert plugin is not None
        return plugin

    def _remember(self, path: str, record: Install) -> None:
        real = os.path.realpath(path)
        self._store.run("INSERT OR REPLACE INTO installs VALUES (?, ?)", real, msgspec.json.encode(record))

    def _note(self, action: str, plugin: Plugin, record: Install, earlier: str = "") -> None:
        """Record an installation or an update in the audit."""
        notes = [f"from {record.source.shown}"]
        if record.commit:
            notes.append(f"at commit {record.commit}{f', before {earlier}' if earlier else ''}")
        self._catalog.approvals.note(Decision(action, plugin.name, *notes, folder=plugin.path, format=plugin.format))

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


def _is_gone(source: Source) -> bool:
    """Return whether there is nothing left to fetch from."""
    if source.servers or source.is_git or source.is_address:
        return False
    return not os.path.exists(source.location)


def _installed(plugin: Plugin, record: Install, brought: StagedPlugin) -> Installed:
    bundle = brought.contained.bundle
    values = bundle.values if bundle is not None else ()
    known = {value.variable for value in values}
    values += tuple(Value(name, required=True) for name in _needed(plugin) if name not in known)
    return Installed(plugin, record, brought.fetched.left_config, brought.fetched.left_modules, values=values)


def _needed(plugin: Plugin) -> list[str]:
    """List the variables without which its MCP servers do not start, except those that are set here."""
    if not plugin.endpoints:
        return []
    from anyplug.formats.mcp import config_variables  # its patterns take milliseconds to compile

    names = (name for one in plugin.endpoints for name in config_variables.variables(one, required=True))
    return [name for name in dict.fromkeys(names) if name not in os.environ]


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


def _nameplate(plugin: Plugin) -> Plugin:
    """Return a plugin without what it offers, which may be large."""
    return msgspec.structs.replace(plugin, tools=(), held=(), commands=(), problems=(), description="", instructions="")


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
