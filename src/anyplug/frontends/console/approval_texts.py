"""The sentences that a person reads in the page before approving a plugin. Pure."""

from typing import Any

from anyplug.catalog.snapshot import Entry
from anyplug.manage.plugin_approval import HARMLESS_TIER
from anyplug.model import hints, permissions


def sentences(entry: Entry, granted: tuple[str, ...]) -> dict[str, Any]:
    """Return what is asked, what the plugin could do, what an approval allows and how long it lasts."""
    plugin = entry.plugin
    version = f" {plugin.version}" if plugin.version else ""
    again = " again" if entry.state == "changed" else ""
    asks = "it never asks before it runs" if plugin.tier <= HARMLESS_TIER else "it asks before it runs, once per agent"
    offers = {0: "the tools that it reports when it starts", 1: "its tool"}.get(
        len(entry.tools), f"its {len(entry.tools)} tools"
    )
    return {
        "title": f"Approve {plugin.name}{version}{again}? From {plugin.path}.",
        "could": [
            permissions.describe(name) + (f" ({text})" if (text := permissions.really(name)) else "")
            for name in granted
        ],
        "if_approved": f"You and your connected agents can run {offers}; {asks}.",
        "lasts": "It lasts until its code, tools or permissions change.",
        "undo": hints.command("revoke", plugin.name).strip("`"),
    }
