"""A cache of manifests that were read before, so that an unchanged plugin costs a few `stat`s at start.

One file for each root in the home folder, where plugins cannot write. A kept plugin counts while the stamps of all that
its format read are the same, by the rule of `home/digest`. Only plugins without problems are kept: what a problem says
also depends on other files and on the machine. A file that is missing, damaged or another version's is only a cache.
"""

import mmap
import os
import stat
import time
from collections.abc import Callable

import msgspec

from anyplug import __version__
from anyplug.formats import registry
from anyplug.formats.shared import manifest
from anyplug.formats.shared.contract import Folder
from anyplug.home import digest, untrusted_files
from anyplug.home.location import make_private
from anyplug.model import json_values, permissions, types, untrusted_text
from anyplug.model.hashes import sha256
from anyplug.model.types import Plugin

LEAST = 100  # kept plugins of a root; reading fewer takes less than the file is worth
LARGEST = 256 << 20  # bytes of a file
# A file that was changed just before it was read may change again without a new stamp: file systems' clocks have steps
# of up to two seconds.
SETTLED_NS = 2_000_000_000

Read = Callable[[Folder], Plugin | None]


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    plugin: Plugin
    stamps: bytes


class _File(msgspec.Struct, frozen=True, array_like=True):
    version: str
    kept: dict[str, msgspec.Raw]  # by the name of the folder; each is decoded when its folder is found


# JSON, because msgspec shares the keys of objects that it decodes from it: in schemas, most texts are keys.
_FILES, _KEPT = msgspec.json.Decoder(_File), msgspec.json.Decoder(_Kept)
_ENCODER = msgspec.json.Encoder()


class KnownPlugins:
    """The plugins of one search. `save` keeps them for the next."""

    def __init__(self, folder: str, read: Read) -> None:
        """`folder` is where the files are, or empty for none; `read` reads a plugin that is not known."""
        self._folder = folder
        self._read = read
        self._version = _version()
        self._before: dict[str, dict[str, msgspec.Raw]] = {}  # by root
        self._now: dict[str, dict[str, msgspec.Raw]] = {}
        self._changed: set[str] = set()  # roots

    def read(self, folder: Folder) -> Plugin | None:
        """Return the plugin in a folder: as it was read before, if nothing changed since."""
        if folder.explicit or not self._folder:
            return self._read(folder)
        root, _, name = folder.found_at.rpartition("/")
        if root not in self._before:
            self._before[root], self._now[root] = self._load(root), {}
        raw = self._before[root].get(name)
        if raw is not None and (known := _unchanged(raw, folder)) is not None:
            self._now[root][name] = raw
            return known
        began = time.time_ns()
        plugin = self._read(folder)
        record = _record(plugin, began) if plugin is not None else None
        if record is not None:
            self._now[root][name] = record
            self._changed.add(root)
        return plugin

    def save(self) -> None:
        """Write the files of roots in which something changed; one that cannot be written is only a cache.

        What was removed goes with the next change: a search may also leave out plugins because they were named.
        """
        for root, now in self._now.items():
            if len(now) < LEAST or root not in self._changed:
                continue
            path = self._path(root)
            new = f"{path}.{os.urandom(6).hex()}"
            try:
                make_private(self._folder)
                with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(_ENCODER.encode(_File(self._version, now)))
                os.replace(new, path)  # other processes see the old file or the new one
            except (OSError, ValueError):  # no place, or a name that is not UTF-8
                _remove(new)

    def _path(self, root: str) -> str:
        return os.path.join(self._folder, sha256(os.fsencode(root)).hexdigest())

    def _load(self, root: str) -> dict[str, msgspec.Raw]:
        try:
            with open(untrusted_files.linked(self._path(root)), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > LARGEST:
                    return {}
                text = mmap.mmap(-1, size)  # memory that goes back to the system; what `read` returns stays in the heap
                file.readinto(text)
                found = _FILES.decode(text)
        except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            return {}
        return found.kept if found.version == self._version else {}


def _unchanged(raw: msgspec.Raw, folder: Folder) -> Plugin | None:
    try:
        kept = _KEPT.decode(raw)
    except (ValueError, RecursionError):
        return None
    plugin = kept.plugin
    if plugin.path != folder.path or plugin.found_at != folder.found_at or not _may_be_kept(plugin):
        return None
    return plugin if _stamps(plugin) == kept.stamps else None


def _record(plugin: Plugin, began: int) -> msgspec.Raw | None:
    """Return what is kept of a plugin, if its files were at rest when it was read."""
    if not _may_be_kept(plugin) or (stamps := _stamps(plugin, began - SETTLED_NS)) is None:
        return None
    try:
        return msgspec.Raw(_ENCODER.encode((plugin, stamps)))
    except (ValueError, TypeError, OverflowError, RecursionError):  # such as text that is not UTF-8
        return None


def _may_be_kept(plugin: Plugin) -> bool:
    is_of_a_folder = not (plugin.is_ours or plugin.explicit or plugin.in_fleet or plugin.is_file)
    return is_of_a_folder and not plugin.problems


def _stamps(plugin: Plugin, before: int | None = None) -> bytes | None:
    """Return the stamps of a plugin's folder and of the files that its format read; None if one is not plain.

    `before` is the time in nanoseconds after which none may have changed.
    """
    files = registry.files_read(plugin)
    if not files:
        return None
    stamps = []
    try:
        for path in (plugin.path, *files):
            found = os.lstat(path)
            is_plain = stat.S_ISREG(found.st_mode) if path is not plugin.path else stat.S_ISDIR(found.st_mode)
            if not is_plain or (before is not None and found.st_ctime_ns > before):
                return None
            stamps.append(digest.stamp_of(path[len(plugin.path) :], found))
        return _ENCODER.encode(stamps)
    except (OSError, ValueError, OverflowError):
        return None


def _version() -> str:
    """Return what changes with the code that reads plugins, also between releases, and with the user."""
    code = (manifest, digest, json_values, permissions, types, untrusted_text)
    try:
        files = (__file__, *registry.READERS, *(str(module.__file__) for module in code))
        stamps = [os.stat(path).st_mtime_ns for path in files]
    except OSError:  # in an archive, which belongs to a release
        stamps = []
    return f"{__version__} {os.geteuid()} {stamps}"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it was not created
