"""What a removed plugin left: its data, files and stored secrets, set aside where no plugin gets them.

In `<home>/left/NAME/N`: `record.json`, `data`, `files`; secrets are stored under the path of that folder. They are
returned to a plugin that is installed from the same source (address or path, `--ref`, `--subdir`), which is what
`update` would fetch. Any other plugin of that name gets them only if a person says so.
"""

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.untrusted_files import Budget
from anyplug.manage.plugin_sources import Source
from anyplug.model.types import Plugin

if TYPE_CHECKING:
    from anyplug.catalog.catalog import Catalog

RECORD = "record.json"
DATA, FILES = "data", "files"
MOST = 10_000  # empty folders searched for a file


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # where the plugin was
    source: Source | None = None  # where it was installed from, if it was
    at: float = 0.0


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """What one removed plugin left."""

    name: str
    number: int
    folder: str
    path: str
    source: Source | None
    at: float
    secrets: tuple[str, ...]  # names of the variables stored for it
    has_data: bool
    has_files: bool

    @property
    def origin(self) -> str:
        """The plugin's origin, for people."""
        return self.source.shown if self.source is not None else self.path


class Leftovers:
    """What the removed plugins of one home left."""

    def __init__(self, catalog: "Catalog") -> None:
        self._home = catalog.home
        self._catalog = catalog

    def all(self) -> list[Leftover]:
        """List what all of them left, by name; raises SecretsUnusable."""
        try:
            names = sorted(os.listdir(self._home.left))
        except OSError:
            return []
        return [leftover for name in names for leftover in self.of(name)]

    def of(self, name: str) -> list[Leftover]:
        """List what plugins of a name left, newest first; raises SecretsUnusable."""
        folder = os.path.join(self._home.left, name)
        try:
            numbers = sorted((int(entry) for entry in os.listdir(folder) if entry.isdecimal()), reverse=True)
        except OSError:
            return []
        found = (self._read(name, number) for number in numbers)
        return [one for one in found if one is not None and (one.has_data or one.has_files or one.secrets)]

    def of_source(self, name: str, source: Source) -> Leftover | None:
        """Find what the plugin of a name left that was installed from this source; raises SecretsUnusable."""
        return next((one for one in self.of(name) if one.source == source), None)

    def what(self, plugin: Plugin) -> list[str]:
        """List, for people, what of a plugin would be set aside; raises SecretsUnusable."""
        folders = [path for path in self._folders(plugin).values() if _holds_files(path)]
        return [*folders, *(f"the secret {name}" for name in self._catalog.secrets.names(plugin))]

    def next_folder(self, name: str) -> str:
        """Return the folder for what the next removed plugin of a name leaves."""
        folder, number = os.path.join(self._home.left, name), 1
        while os.path.lexists(os.path.join(folder, str(number))):
            number += 1
        return os.path.join(folder, str(number))

    def set_aside(self, plugin: Plugin, source: Source | None, *, secrets: bool = True) -> None:
        """Move a plugin's belongings away, so that the next plugin in its place does not get them.

        If it raises SecretsUnusable, nothing was moved. Also raises OSError.
        """
        folders = self._folders(plugin)
        stored = secrets and self._catalog.secrets.names(plugin)
        if stored or any(map(_holds_files, folders.values())):
            folder = self.next_folder(plugin.name)
            make_private(os.path.dirname(folder))
            os.mkdir(folder, 0o700)
            record = _Record(path=plugin.path, source=source, at=time.time())
            with open(os.open(os.path.join(folder, RECORD), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode(record))
            if stored:
                self._catalog.secrets.move(plugin.path, folder)
            for kind, path in folders.items():
                with suppress(FileNotFoundError):
                    os.rename(path, os.path.join(folder, kind))
        for path in folders.values():
            if os.path.isdir(path):  # with nothing but empty folders in it
                untrusted_files.remove(path)
        self._home.disclaim(plugin)

    def give(self, leftover: Leftover, plugin: Plugin, source: Source | None) -> None:
        """Pass to a plugin what another one left. Data it already has is set aside; secrets it already has stay.

        Raises SecretsUnusable or OSError.
        """
        if leftover.has_data or leftover.has_files:
            self.set_aside(plugin, source, secrets=False)
        self._catalog.secrets.move(leftover.folder, plugin.path)
        for kind, path in self._folders(plugin).items():
            there = os.path.join(leftover.folder, kind)
            if os.path.exists(there):
                make_private(os.path.dirname(path))
                os.rename(there, path)
        self._forget(leftover)

    def delete(self, leftover: Leftover) -> None:
        """Delete what a plugin left, including secrets; raises SecretsUnusable or OSError."""
        self._catalog.secrets.forget(leftover.folder)
        self._forget(leftover)

    def _forget(self, leftover: Leftover) -> None:
        untrusted_files.remove(leftover.folder)
        with suppress(OSError):  # if it was the last one
            os.rmdir(os.path.dirname(leftover.folder))

    def _folders(self, plugin: Plugin) -> dict[str, str]:
        return {DATA: self._home.data(plugin), FILES: self._home.files(plugin)}

    def _read(self, name: str, number: int) -> Leftover | None:
        folder = os.path.join(self._home.left, name, str(number))
        try:
            text = untrusted_files.read_linked(os.path.join(folder, RECORD))
            record = msgspec.json.decode(text, type=_Record)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            record = _Record(path="an unknown place")
        return Leftover(
            name=name,
            number=number,
            folder=folder,
            path=record.path,
            source=record.source,
            at=record.at,
            secrets=tuple(self._catalog.secrets.names_at(folder)),
            has_data=os.path.isdir(os.path.join(folder, DATA)),
            has_files=os.path.isdir(os.path.join(folder, FILES)),
        )


def _holds_files(folder: str) -> bool:
    """Return whether a folder contains anything but empty folders."""
    try:
        with untrusted_files.hold(folder) as held:
            return any(not entry.is_folder for entry in held.walk(Budget(MOST)))
    except FileNotFoundError:
        return False
    except OSError:  # too much to search, or not readable
        return True
