"""A plugin's view of its own folder: the approved snapshot, plus what the plugin writes there.

Cyclop One plugins see the snapshot alone. With a grant to write files, and for Workbench, writes to the folder go to
`<home>/data/<plugin>/beside`, overlaid on the snapshot. Plugins of formats that keep state in the real folder see that
folder, with the snapshot's code mounted over it. `runtime.sandbox.linux.own_folder_mount` does the mounting.
"""

import os
import stat
import sys
import time
from contextlib import suppress

import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.formats import registry
from anyplug.home import digest, untrusted_files
from anyplug.home.code_snapshots import Changed, Snapshot, Snapshots
from anyplug.home.digest import Reading
from anyplug.home.location import make_private
from anyplug.home.untrusted_files import Budget, Entry
from anyplug.launch.run_files import make_folder
from anyplug.launch.sandbox_profiles import code_names
from anyplug.model import permissions
from anyplug.model.types import Plugin
from anyplug.model.untrusted_text import for_people
from anyplug.runtime.inotify import Arrivals
from anyplug.runtime.processes.program import Purpose
from anyplug.runtime.sandbox.linux.protected_names import Protected
from anyplug.runtime.sandbox.profile import Profile, Shown

TIDY_S = 60.0  # for searching them
MOST_BESIDE = 50_000  # files that a plugin may have written into its folder, all of which are checked
MOST_ARRIVED = 5_000  # new entries of a folder in the real one, all of which are checked
MANY_FILES = 2_000  # takes a second to copy
OPAQUE = "user.overlay.opaque"  # of a folder: it hides the approved one of the same name


class View:
    """How one plugin sees its own folder, as long as its sandbox runs."""

    def __init__(self, snapshot: Snapshot, shown: Shown, arrivals: Arrivals | None = None) -> None:
        """`arrivals` watches for new names in the real folder, if that is visible."""
        self._snapshot = snapshot
        self._shown = shown
        self._arrivals = arrivals
        self._intruder = ""
        self.keeps_names = True  # a file renamed over approved code is not visible

    @property
    def own(self) -> str:
        """The plugin's folder."""
        return self._shown.own

    @property
    def intruder(self) -> str:
        """Code that was added to the real folder since this view was created, and may have run; empty if there is none.

        Code that was there before is hidden by a mount, or keeps the plugin from starting.
        """
        if not self._intruder and self._arrivals is not None and (names := self._arrivals.names()):
            self._intruder = next((found for path, is_folder in names if (found := self._strange(path, is_folder))), "")
        return self._intruder

    def _strange(self, path: str, is_folder: bool) -> str:
        """Return why a new name may be code; empty if it is data, or hidden by a mount."""
        if not path:
            return "too many files were added to its folder at once"
        name, relative = os.path.basename(path), path[len(self._shown.own) + 1 :]
        if (self.keeps_names and relative in self._shown.laid) or name in self._shown.ignored:
            return ""
        is_code = self._may_hold_code(path) if is_folder else self._is_code(name)
        return f"{for_people(relative)} was added while it ran" if is_code else ""

    def _may_hold_code(self, folder: str) -> bool:
        """Return whether a new folder contains code, or might have; the search is bounded."""
        left, seen = [folder], 0
        try:
            while left:
                with os.scandir(left.pop()) as entries:
                    for entry in entries:
                        seen += 1
                        if seen > MOST_ARRIVED or (entry.is_symlink() and not entry.is_file()):
                            return True
                        if entry.is_dir(follow_symlinks=False):
                            left.append(entry.path)
                        elif self._is_code(entry.name):
                            return True
        except FileNotFoundError:  # gone again, but it may have had an importable name
            name = os.path.basename(folder)
            return not os.path.isdir(folder) and name.isidentifier() and not name.startswith("tmp")
        except OSError:
            return True
        return False

    def _is_code(self, name: str) -> bool:
        return name in self._shown.code_names or name.lower().endswith(self._shown.code_suffixes)

    def added_to(self, profile: Profile) -> Profile:
        """Add it to a plugin's profile."""
        shown = self._shown
        if shown.shelved and _may_write_around(shown.own, profile):  # what it writes there must not end up on the shelf
            shown = msgspec.structs.replace(shown, shelved=False)
        if not shown.beside:
            return msgspec.structs.replace(profile, shown=shown)
        return msgspec.structs.replace(
            profile,
            shown=shown,
            code=tuple(path for path in profile.code if path != shown.own),
            writable=(*profile.writable, shown.own),
            measured=tuple(dict.fromkeys((*profile.measured, shown.beside))),
        )

    def close(self) -> None:
        """Release the snapshot and remove what the sandbox needed for the view. Blocks."""
        self._snapshot.release()
        if self._arrivals is not None:
            self._arrivals.close()


class OwnFolders:
    """Creates plugins' views of their folders. Blocks unless stated otherwise: call it in a thread."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._home = catalog.home
        self.snapshots = Snapshots(catalog.home.path)

    def plugin_folders(self) -> frozenset[str]:
        """Return the folders of all plugins; never blocks."""
        return self._catalog.plugin_folders()

    def write_grants(self) -> frozenset[str]:
        """Return the grants of all plugins to write files; never blocks."""
        return self._catalog.write_grants()

    def is_large(self, plugin: Plugin) -> bool:
        """Return whether copying a plugin takes so long that the user should be told; never blocks."""
        reading = self._catalog.last_reading(plugin)
        return reading is not None and len(reading.stamps) > MANY_FILES

    def shows(self, plugin: Plugin, *, namespaces: bool) -> bool:
        """Return whether a plugin runs from a snapshot, where mounts can be had; never blocks."""
        if sys.platform != "linux" or not namespaces or plugin.is_file:
            return False
        # An author would wait for a copy after each change, and every change counts as approved.
        return not (plugin.explicit and self.is_large(plugin))

    def has_snapshot(self, value: str) -> bool:
        """Return whether there is a snapshot of a digest already."""
        return bool(value) and any(
            os.path.isdir(self.snapshots.path(value, config=with_it)) for with_it in (False, True)
        )

    def keep(self, plugin: Plugin, value: str) -> None:
        """Create the snapshot of a plugin's digest that was just taken; raises Changed and OSError."""
        self._kept(plugin, value)[0].release()

    def _kept(self, plugin: Plugin, value: str) -> tuple[Snapshot, Reading]:
        reading = self._catalog.reading(plugin)  # the last one may be gone: a reload drops those of unapproved plugins
        if reading.digest != value:
            raise Changed("its files changed while it was being started")
        whole = None
        if not registry.BY_NAME[plugin.format].EVERY_FILE_COUNTS:
            counted = _counted(plugin, reading)
            whole = tuple(name for name in code_names(counted) if name not in counted)
        snapshot = self.snapshots.hold(plugin.path, reading, config=bool(_config(plugin)), whole=whole)
        self.snapshots.collect(self._catalog.approvals.digests())
        return snapshot, reading

    def view(self, plugin: Plugin, standing: Standing, purpose: Purpose = "run") -> View:
        """Return a plugin's view of its folder as approved, or as it is now if it is not approved yet.

        When resolving dependencies, only the code is visible. Raises Changed and OSError.
        """
        snapshot, reading = self._kept(plugin, standing.digest or self._catalog.digest(plugin).value)
        shown = Shown(
            own=plugin.path,
            snapshot=snapshot.files,
            work=snapshot.work(),
            shelved=not plugin.explicit,  # a plugin named for this run counts as approved, whatever it changes
            live=_config(plugin) if purpose == "run" else (),
        )
        if purpose != "run":
            return View(snapshot, shown)
        if writes_aside(plugin, standing):
            shown = msgspec.structs.replace(shown, beside=self._home.beside(plugin))
            make_folder(shown.beside)
        elif registry.BY_NAME[plugin.format].WRITES_BESIDE_ITSELF:
            shown = msgspec.structs.replace(
                shown,
                laid=tuple(code_names(_counted(plugin, reading))),
                ignored=(*digest.NEVER, digest.CONFIG),
                code_names=(*digest.MANIFESTS, *digest.LOCKS),
                code_suffixes=tuple(digest.CODE_SUFFIXES),
            )
            return View(snapshot, shown, Arrivals(plugin.path + folder[0] for folder in reading.folders))
        return View(snapshot, shown)

    def has_written(self, plugin: Plugin, standing: Standing) -> bool:
        """Return whether a plugin has written anything over its approved folder; never blocks."""
        if not writes_aside(plugin, standing):
            return False
        try:
            with os.scandir(self._home.beside(plugin)) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def tidy(self, plugin: Plugin) -> bool:
        """Move code out of what a plugin wrote over its folder, and undo its deletions; return whether there was any.

        Otherwise it would run instead of what was approved. Raises OSError.
        """
        kept = os.path.join(self._home.kept(plugin), f"beside-{time.strftime('%Y%m%d-%H%M%S')}")
        moved = 0
        with untrusted_files.hold(self._home.beside(plugin)) as beside:
            for entry in beside.walk(Budget(MOST_BESIDE, seconds=TIDY_S)):
                if entry.is_folder:
                    with suppress(OSError):
                        os.removexattr(entry.folder.fd, OPAQUE)
                        moved += 1
                elif not digest.is_data_in(entry.folder, entry.name, entry.relative):
                    _move_out(entry, os.path.join(kept, entry.relative))
                    moved += 1
        return bool(moved)


def _move_out(entry: Entry, to: str) -> None:
    """Move what a plugin wrote over its folder to where no plugin sees it; a deletion is only undone."""
    if stat.S_ISCHR(entry.found.st_mode):  # how an overlay records a deletion
        os.unlink(entry.name, dir_fd=entry.folder.fd)
        return
    make_private(os.path.dirname(to))
    os.rename(entry.name, to, src_dir_fd=entry.folder.fd)


def _may_write_around(own: str, profile: Profile) -> bool:
    """Return whether a plugin was granted the folder around its own, and may create files there."""
    parent = os.path.dirname(own)
    is_granted = any(f"{parent}/".startswith(f"{path.rstrip('/')}/") for path in profile.brokered)
    return is_granted and not Protected(profile.protected, profile.named).opener(f"{parent}/new")


def writes_aside(plugin: Plugin, standing: Standing) -> bool:
    """Return whether a plugin's writes to its folder are stored elsewhere."""
    format = registry.BY_NAME[plugin.format]
    if format.WRITES_BESIDE_ITSELF:
        return False
    may_write = any(permissions.kind(grant) == "filesystem:write" for grant in standing.granted)
    return format.WRITES_ASIDE or may_write


def stamp(plugin: Plugin) -> list[int]:
    """Return a value that changes when the user's configuration file is replaced."""
    try:
        return [os.stat(os.path.join(plugin.path, name)).st_ino for name in _config(plugin)]
    except OSError:
        return []


def _config(plugin: Plugin) -> tuple[str, ...]:
    """Return the user's configuration file if it exists and is not part of the snapshot."""
    is_apart = registry.BY_NAME[plugin.format].EVERY_FILE_COUNTS
    return (digest.CONFIG,) if is_apart and os.path.isfile(os.path.join(plugin.path, digest.CONFIG)) else ()


def _counted(plugin: Plugin, reading: Reading) -> tuple[str, ...]:
    """Return the counted files and links, without those in a folder elsewhere that a link leads to."""
    linked = tuple(f"{stamp[0][1:]}/" for stamp in reading.folders[1:] if os.path.islink(plugin.path + stamp[0]))
    return tuple(
        stamp[0]
        for stamp, sha in zip(reading.stamps, reading.hashes, strict=True)
        if sha and not stamp[0].startswith(linked) and (stat.S_ISREG(stamp[1]) or stat.S_ISLNK(stamp[1]))
    )
