"""What plugins that stay up offer: they say it while they run, and we keep it so that listing does not run them."""

import msgspec

from anyplug.errors import StoreError
from anyplug.model import Command, Plugin, Problem, Tool
from anyplug.store import Store

NOT_RUNNING = "not_running"  # the problem of a plugin that should be up and is not


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin registered."""

    tools: tuple[Tool, ...] = ()
    commands: tuple[Command, ...] = ()
    events: tuple[str, ...] = ()
    intercepts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fault: str = ""  # why it is not up just now; never stored

    @property
    def must_run(self) -> bool:
        """Whether it has to be up to see what happens."""
        return bool(self.events or self.intercepts)


def stored(store: Store, plugin: Plugin, digest: str) -> Offer | None:
    """Give what a plugin of this digest registered when it last ran; of any digest if none is given."""
    query = "SELECT record FROM registrations WHERE path = ?1 AND (digest = ?2 OR ?2 = '')"
    try:
        rows = store.rows(query, plugin.path, digest)
        return msgspec.json.decode(rows[0][0], type=Offer) if rows else None
    except (StoreError, msgspec.DecodeError):
        return None


def save(store: Store, plugin: Plugin, digest: str, offer: Offer) -> None:
    """Keep what a plugin registered. It is only a cache: a store that fails is no reason to stop."""
    try:
        record = msgspec.json.encode(offer)
        store.run("INSERT OR REPLACE INTO registrations VALUES (?, ?, ?)", plugin.path, digest, record)
    except (StoreError, UnicodeEncodeError, RecursionError):
        pass


def joined(plugin: Plugin, offer: Offer | None) -> Plugin:
    """Give a plugin with what it registered."""
    if offer is None:
        return plugin
    warnings = tuple(Problem("bad_registration", text, "mend the extension", "warning") for text in offer.warnings)
    if offer.fault:
        cure = f"mend it, or `anyplug disable {plugin.name}`"
        warnings += (Problem(NOT_RUNNING, f"it is not running: {offer.fault}", cure, "warning"),)
    return msgspec.structs.replace(
        plugin, tools=offer.tools, commands=offer.commands, problems=(*plugin.problems, *warnings)
    )
