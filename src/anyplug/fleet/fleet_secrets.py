"""Secrets of plugins that the admin stores for one worker: sealed for its key, so that nobody else can read them.

The admin signs a box, and it opens only for that worker, plugin and variable. On the worker the secret becomes one of
its own, stored for the plugin's folder; whether the plugin gets it is decided by its grants, as at home.
"""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio.to_thread
import msgspec

from anyplug.catalog.catalog import Catalog
from anyplug.fleet import sealing
from anyplug.fleet.credentials import Credentials, NotMember, verified
from anyplug.fleet.messages import SealedSecret, secret_key
from anyplug.fleet.nats_link import Link
from anyplug.fleet.sealing import NotOpened
from anyplug.home.location import make_private
from anyplug.model.errors import AnyplugError
from anyplug.model.types import Plugin

if TYPE_CHECKING:  # takes 180 ms to import
    from nats.aio.msg import Msg

KEPT = "fleet-secrets.json"  # in the home: which of its secrets are the fleet's, by folder, with their numbers
PURPOSE = b"anyplug fleet secret"


class NotForUs(Exception):
    """A box is not for this worker, plugin and variable."""


async def store(link: Link, worker: str, plugin: str, variable: str, value: str | None) -> None:
    """Store a secret for a worker's key, or remove it. Raises FleetError."""
    bucket, key = link.subjects.trust, secret_key(worker, plugin, variable)
    before = read(await link.latest(bucket, key), link.own.member.admin)
    sealed = SealedSecret(
        serial=max(before.serial + 1 if before else 0, time.time_ns() // 1000),
        worker=worker,
        plugin=plugin,
        variable=variable,
        box=seal(value, worker, plugin, variable) if value is not None else b"",
        at=time.time(),
    )
    await link.put(bucket, key, link.own.sign(msgspec.msgpack.encode(sealed)))


def read(signed: bytes, admin: str) -> SealedSecret | None:
    """Return what the admin stored; None if it is not the admin's, or cannot be read."""
    try:
        return msgspec.msgpack.decode(verified(signed, admin), type=SealedSecret)
    except (NotMember, msgspec.DecodeError):
        return None


def seal(value: str, worker: str, plugin: str, variable: str) -> bytes:
    """Return the box of a secret, which only that worker can open."""
    return sealing.boxed(value.encode(), worker, PURPOSE, _about(worker, plugin, variable))


def opened(sealed: SealedSecret, own: Credentials) -> str:
    """Return a secret that is sealed for us; raises NotForUs."""
    try:
        return sealing.unboxed(sealed.box, own, PURPOSE, _about(own.key, sealed.plugin, sealed.variable)).decode()
    except (NotOpened, ValueError) as error:
        raise NotForUs("it was not sealed for this worker") from error


def _about(worker: str, plugin: str, variable: str) -> bytes:
    return msgspec.msgpack.encode((worker, plugin, variable))


class WorkerSecrets:
    """The secrets that the fleet's admin stored for one worker."""

    def __init__(self, link: Link, catalog: Catalog, changed: Callable[[], None], tell: Callable[[str], None]) -> None:
        """Know nothing yet. `changed` is called for each secret that is stored or removed."""
        self._link = link
        self._catalog = catalog
        self._changed = changed
        self._tell = tell
        self._sealed: dict[str, SealedSecret] = {}
        self._told: set[int] = set()  # the numbers of those that could not be stored
        self._path = os.path.join(catalog.home.path, KEPT)

    async def follow(self) -> None:
        """Subscribe to all secrets for this worker, and read the earlier ones. Raises FleetError."""
        subjects, own = self._link.subjects, self._link.own
        await self._link.listen(subjects.entry(subjects.trust, f"secret.{own.key}.*"), self._heard)
        await self.read()

    async def read(self) -> None:
        """Read all secrets for this worker. Raises FleetError."""
        found = await self._link.all(self._link.subjects.trust, f"secret.{self._link.own.key}.*")
        for signed in found.values():
            self._take(signed)

    async def _heard(self, message: "Msg") -> None:
        self._take(message.data)

    def _take(self, signed: bytes) -> None:
        """Take a secret over, unless it is forged, or older than the one that is known."""
        sealed = read(signed, self._link.own.member.admin)
        if sealed is None or sealed.worker != self._link.own.key:
            return
        key = secret_key(sealed.worker, sealed.plugin, sealed.variable)
        known = self._sealed.get(key)
        if known is None or known.serial < sealed.serial:
            self._sealed[key] = sealed
            self._changed()

    async def apply(self, plugin: Plugin) -> None:
        """Make the fleet's secrets for a plugin, which the fleet approved, secrets of this host."""
        ours = [one for one in self._sealed.values() if one.plugin == plugin.name]
        if ours:
            await anyio.to_thread.run_sync(self._apply, plugin, ours)

    async def forget(self, plugin: Plugin) -> None:
        """Remove the fleet's secrets for a plugin, which is no longer approved."""
        await anyio.to_thread.run_sync(self._apply, plugin, [])

    def _apply(self, plugin: Plugin, sealed: list[SealedSecret]) -> None:
        """Store what is new, and remove what is gone. Blocks: a keyring may have to be unlocked."""
        kept = self._kept()
        before = kept.get(plugin.path, {})
        now = {one.variable: one for one in sealed if one.box}
        after = dict(before)
        for variable in {*before, *now}:
            one = now.get(variable)
            if one is not None and before.get(variable) == one.serial:
                continue
            try:
                if one is None:
                    self._catalog.secrets.remove(plugin, variable)
                    del after[variable]
                else:
                    self._catalog.secrets.set(plugin, variable, opened(one, self._link.own))
                    after[variable] = one.serial
            except (AnyplugError, NotForUs) as error:
                number = one.serial if one is not None else before[variable]
                if number not in self._told:
                    self._told.add(number)
                    self._tell(f"the fleet's secret {variable} of '{plugin.name}' cannot be stored or removed: {error}")
        if after != before:
            self._write({**kept, plugin.path: after})

    def _kept(self) -> dict[str, dict[str, int]]:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, dict[str, int]])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write(self, kept: dict[str, dict[str, int]]) -> None:
        make_private(self._catalog.home.path)
        with open(f"{self._path}.new", "wb") as file:
            file.write(msgspec.json.encode({path: numbers for path, numbers in kept.items() if numbers}))
        os.replace(f"{self._path}.new", self._path)
