"""Decide whether a plugin may run: only what a person approved, as it is at this moment."""

import os

from anyplug.call.state import Trail
from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.trust_cache import Looks
from anyplug.formats import registry
from anyplug.model.errors import Denied, NotApproved, PluginDisabled, StoreError, Unavailable
from anyplug.model.types import Plugin, Tool
from anyplug.secrets.redaction import Secrecies


class Trust:
    """Checks a plugin before anything of it runs. `close` when done."""

    def __init__(self, catalog: Catalog, secrecies: Secrecies) -> None:
        self._looks = Looks(catalog)
        self._secrecies = secrecies

    def close(self) -> None:
        """Stop watching."""
        self._looks.close()

    async def see_to(self, plugin: Plugin, tool: Tool | None, trail: Trail, *, fresh: bool = False) -> Standing:
        """Check that a person approved what is there; raises CallError. `fresh`: something is about to start."""
        try:
            standing = await (self._looks.fresh_standing(plugin) if fresh else self._looks.standing(plugin))
        except StoreError as error:
            raise Denied("host", f"it is unknown whether it was approved: {error.message}", error.hint) from error
        trail.record.digest = standing.digest
        if standing.state == "disabled":
            raise PluginDisabled(plugin.name, standing.reason)
        if standing.state == "changed" and not (plugin.is_file or os.path.isdir(plugin.path)):
            cure = "put it back" if plugin.explicit else "install it again"
            raise Unavailable(f"the folder of plugin '{plugin.name}' is gone: {plugin.path}", cure)
        if standing.state != "approved":
            raise NotApproved(plugin.name, standing.state, standing.changes, standing.reason)
        if tool is not None and (cure := registry.BY_NAME[plugin.format].switched_off(plugin, tool)):
            raise PluginDisabled(plugin.name, cure, tool.own_name)
        trail.secrecy = self._secrecies.of(plugin, standing.granted)
        return standing
