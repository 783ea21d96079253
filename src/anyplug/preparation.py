"""What comes before an approval: a plugin is set up as it is now, and only then does the person's word count."""

from contextlib import suppress

import anyio.to_thread

from anyplug import trees
from anyplug.approval import Standing
from anyplug.catalog import Catalog
from anyplug.errors import CallError, NotApproved
from anyplug.formats import table
from anyplug.model import Plugin
from anyplug.secrecy import Secrecies
from anyplug.surroundings import Provisions


class Preparation:
    """Sets plugins up, and approves them."""

    def __init__(self, catalog: Catalog, provisions: Provisions, secrecies: Secrecies) -> None:
        self._catalog = catalog
        self._provisions = provisions
        self._secrecies = secrecies

    async def approve(
        self,
        plugin: Plugin,
        granted: tuple[str, ...] | None,
        *,
        always: bool,
        follow: bool,
        unconfined: bool,
        seen: str | None,
    ) -> str:
        """Approve a plugin, set up first if it is another than was approved before; gives what that printed.

        Raises CallError if that fails, or if the plugin is another than was `seen`; nothing is approved then.
        """
        approvals = self._catalog.approvals
        before = approvals.of(plugin)
        if seen is not None and self._catalog.digest(plugin).value != seen:
            raise NotApproved(plugin.name, "changed", ("while you were looking at it",))
        said = ""
        if before is None or before.digest != self._catalog.digest(plugin).value:
            said = await self.prepare(plugin, granted, unconfined=unconfined)
        given = plugin.permissions if granted is None else granted
        digest = self._catalog.digest(plugin)  # after the set-up, which may have brought code along
        await self._provisions.keep(plugin, digest.value)
        approvals.approve(plugin, digest, given, always=always, follow=follow, unconfined=unconfined)
        return said

    async def prepare(self, plugin: Plugin, granted: tuple[str, ...] | None, *, unconfined: bool) -> str:
        """Run a plugin's init script and fetch its dependencies, with what is to be granted; gives what was printed.

        Raises CallError.
        """
        given = plugin.permissions if granted is None else granted
        standing = Standing(state="approved", granted=given, unconfined=unconfined)
        secrecy = self._secrecies.of(plugin, standing.granted)
        # Bytecode and programs of what ran before would run with what this one is granted.
        with suppress(OSError):
            await anyio.to_thread.run_sync(trees.remove, self._catalog.home.cache(plugin))
        try:
            said = await table.BY_NAME[plugin.format].prepare(plugin, self._provisions.of(plugin, standing))
        except CallError as error:
            error.hint = self._provisions.cure(plugin, standing, error.message, purpose="init") or error.hint
            secrecy.error(error)
            raise
        return secrecy.text(said)
