"""Plugins in the fleet's store: the admin publishes one with its files, and workers fetch what is approved.

A bundle is a tar archive under its hash, in the account of the admin's decisions. The approval, which is signed, names
the hash. After it is unpacked, the plugin's digest and definition must be the approved ones; otherwise it is removed.
What a person configured is not part of it: a plugin's `config.json` stays where it is.
"""

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable

import anyio.to_thread
import msgspec

from anyplug.catalog.approvals import definition
from anyplug.catalog.catalog import Catalog
from anyplug.fleet.messages import Approved
from anyplug.fleet.nats_link import FleetError, Link
from anyplug.home import digest, untrusted_files
from anyplug.home.location import make_private
from anyplug.home.untrusted_files import Budget, TooMuch
from anyplug.model.errors import InstallError
from anyplug.model.types import Plugin

CHUNK = 512 << 10  # bytes of a message
LARGEST = 256 << 20  # bytes of a bundle
PULLED = "fleet-plugins.json"  # in the home: which plugins came from the fleet


def pack(plugin: Plugin) -> bytes:
    """Return a plugin's files as an archive that is the same for the same files. Raises InstallError. Blocks."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for relative, data, mode in _files(plugin):
            entry = tarfile.TarInfo(relative)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _files(plugin: Plugin) -> list[tuple[str, bytes, int]]:
    """Read a plugin's own files, each with its path and mode, sorted. It may be running, and swap them for links."""
    found, left = [], LARGEST
    try:
        with untrusted_files.hold(plugin.path) as held:
            for entry in held.walk(Budget(), lambda path: os.path.basename(path) not in digest.NEVER):
                if not entry.is_file or not digest.covers(entry.relative):
                    continue
                data = entry.folder.read(entry.name, left)
                left -= len(data)
                mode = 0o755 if entry.found.st_mode & digest.EXECUTABLE else 0o644
                found.append((entry.relative, data, mode))
    except TooMuch as error:
        too_much = f"'{plugin.name}' is too large: {error.strerror}"
        raise InstallError(too_much, "install it on the workers by hand") from error
    except OSError as error:
        cannot = f"cannot read {error.filename}: {error.strerror}"
        raise InstallError(cannot, "check the file's permissions, then try again") from error
    return sorted(found)


async def publish(link: Link, data: bytes) -> str:
    """Store a bundle; return its hash. Raises FleetError."""
    name = hashlib.sha256(data).hexdigest()
    for number, at in enumerate(range(0, len(data), CHUNK)):
        id = {"Nats-Msg-Id": f"{name}.{number}"}
        await link.store(link.subjects.bundle(name, number), data[at : at + CHUNK], id)
    return name


async def fetch(link: Link, name: str, size: int) -> bytes:
    """Return a bundle. Raises FleetError."""
    chunks = [
        await link.last(link.subjects.bundles, link.subjects.bundle(name, number))
        for number in range(-(-min(size, LARGEST) // CHUNK))
    ]
    data = b"".join(chunks)
    if hashlib.sha256(data).hexdigest() != name:
        raise FleetError("a bundle is missing, or was changed", "publish the plugin again: `anyplug fleet publish`")
    return data


class Pulls:
    """The plugins that one worker fetches."""

    def __init__(self, link: Link, catalog: Catalog, tell: Callable[[str], None]) -> None:
        self._link = link
        self._catalog = catalog
        self._tell = tell
        self._failed: set[str] = set()
        self._missed: set[str] = set()  # of which it was told that they are not stored

    async def pull(self, approval: Approved) -> bool:
        """Fetch an approved plugin; return whether it is there now. One that is not stored is asked for again later."""
        if approval.bundle in self._failed:
            return False
        try:
            data = await fetch(self._link, approval.bundle, approval.size)
        except FleetError as error:
            if approval.bundle not in self._missed:
                self._tell(f"'{approval.name}' could not be fetched: {error.message}; {error.hint}")
            self._missed.add(approval.bundle)
            return False
        try:
            await anyio.to_thread.run_sync(self._install, approval, data)
        except (InstallError, OSError, tarfile.TarError) as error:
            self._failed.add(approval.bundle)
            self._tell(f"'{approval.name}' was not installed: {error}")
            return False
        self._tell(f"'{approval.name}' was fetched from the fleet")
        return True

    def _install(self, approval: Approved, data: bytes) -> None:
        """Unpack it, check it, and put it in its place. Blocks."""
        home = self._catalog.home
        target, pulled = os.path.join(home.plugins, approval.name), self._pulled()
        if os.path.basename(target) != approval.name or approval.name.startswith("."):
            raise InstallError("its name is not one of a folder", "")
        if os.path.lexists(target) and approval.name not in pulled:
            raise InstallError(f"{target} is there already", "")
        make_private(home.plugins)
        with tempfile.TemporaryDirectory(prefix=".fleet-", dir=home.plugins) as above:
            folder = os.path.join(above, approval.name)
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(folder, filter="data")
            plugin = self._catalog.read(os.path.realpath(folder), folder)
            found = (self._catalog.digest(plugin).value, definition(plugin)) if plugin is not None else ("", "")
            if found != (approval.digest, approval.definition):
                raise InstallError("it is not what the admin approved", "")
            if os.path.lexists(target):
                if os.path.lexists(os.path.join(target, digest.CONFIG)):  # perhaps a link that the plugin made
                    with untrusted_files.hold(target) as before, untrusted_files.hold(folder) as after:
                        untrusted_files.copy_entry(before, digest.CONFIG, after, digest.CONFIG, Budget())
                shutil.rmtree(target)
            os.rename(folder, target)
        self._write_pulled({**pulled, approval.name: approval.bundle})

    def _pulled(self) -> dict[str, str]:
        try:
            with open(os.path.join(self._catalog.home.path, PULLED), "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, str])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write_pulled(self, pulled: dict[str, str]) -> None:
        path = os.path.join(self._catalog.home.path, PULLED)
        with open(f"{path}.new", "wb") as file:
            file.write(msgspec.json.encode(pulled))
        os.replace(f"{path}.new", path)
