"""The offers of long-running plugins, stored so that listing does not need to run them."""

from collections.abc import Iterable, Mapping

import msgspec

from anyplug.home.database import Store
from anyplug.model import hints
from anyplug.model.errors import StoreError
from anyplug.model.types import Offer, Plugin, Problem
from anyplug.model.untrusted_text import clean_offer

NOT_RUNNING = "not_running"  # the problem of a plugin that should be running but is not


def stored(store: Store, plugin: Plugin, digest: str) -> dict[str, Offer]:
    """Return what each process registered in its last run, with this digest, or with any if it is empty."""
    query = "SELECT record FROM registrations WHERE path = ? AND ? IN (digest, '')"
    try:
        rows = store.rows(query, plugin.path, digest)
        known = msgspec.json.decode(rows[0][0], type=dict[str, Offer]) if rows else {}
        return {name: clean_offer(offer) for name, offer in known.items()}
    except (StoreError, msgspec.DecodeError):
        return {}


def save(store: Store, plugin: Plugin, digest: str, offers: Mapping[str, Offer]) -> None:
    """Store what a plugin registered. It is only a cache, so a failure is ignored."""
    try:
        record = msgspec.json.encode(offers)
        store.run("INSERT OR REPLACE INTO registrations VALUES (?, ?, ?)", plugin.path, digest, record)
    except (StoreError, UnicodeEncodeError, RecursionError):
        pass


def merged(offers: Iterable[Offer]) -> Offer:
    """Return the combined offer of a plugin's processes."""
    several = list(offers)
    if len(several) == 1:
        return several[0]
    return Offer(
        tools=tuple(tool for offer in several for tool in offer.tools),
        commands=tuple(command for offer in several for command in offer.commands),
        resources=tuple(one for offer in several for one in offer.resources),
        services=tuple(tool for offer in several for tool in offer.services),
        events=tuple(sorted({event for offer in several for event in offer.events})),
        intercepts=tuple(sorted({event for offer in several for event in offer.intercepts})),
        warnings=tuple(text for offer in several for text in offer.warnings),
        is_whole=all(offer.is_whole for offer in several),
        fault="; ".join(offer.fault for offer in several if offer.fault),
    )


def joined(plugin: Plugin, offer: Offer | None) -> Plugin:
    """Return a plugin with what it registered."""
    if offer is None:
        return plugin
    warnings = tuple(Problem("bad_registration", text, "fix the plugin", "warning") for text in offer.warnings)
    if offer.fault:
        cure = (
            ("see the error, fix the plugin and reload")
            if plugin.explicit
            else (f"see the error and fix the plugin, or run `anyplug disable {plugin.name}`")
        )
        fault = hints.for_folder(offer.fault, plugin) if plugin.explicit else offer.fault
        warnings += (Problem(NOT_RUNNING, f"it is not running: {fault}", cure, "warning"),)
    return msgspec.structs.replace(
        plugin,
        tools=offer.tools,
        commands=offer.commands,
        resources=offer.resources,
        services=offer.services,
        events=offer.events,
        intercepts=offer.intercepts,
        problems=(*plugin.problems, *warnings),
    )
