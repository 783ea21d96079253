"""Set a plugin up before its approval is recorded."""

import functools
from contextlib import suppress

from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.formats import registry
from anyplug.formats.shared import scripts
from anyplug.home import untrusted_files
from anyplug.home.digest import Digest
from anyplug.home.untrusted_files import TooMuch
from anyplug.launch.surroundings import Provisions
from anyplug.model.errors import CallError, NotApproved
from anyplug.model.types import Plugin
from anyplug.runtime import thread_lanes
from anyplug.secrets.redaction import Redactions


class Preparation:
    """Sets plugins up and approves them."""

    def __init__(self, catalog: Catalog, provisions: Provisions, secrecies: Redactions) -> None:
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
        inherits_environment: bool,
        seen: str | None,
        callees: dict[str, str],
    ) -> str:
        """Approve a plugin, setting it up first if it changed or lost what was fetched; return what that printed.

        Raises CallError if that fails, or if the plugin is not as it was `seen`; then nothing is approved.
        """
        approvals = self._catalog.approvals
        before = approvals.of(plugin)
        if seen is not None and (await self._digest(plugin)).value != seen:
            raise NotApproved(plugin.name, "changed", ("while you were reviewing it",))
        said = ""
        home = self._catalog.home
        is_emptied = scripts.is_emptied(scripts.fetched(home, plugin), scripts.notes(home, plugin))
        if before is None or is_emptied or before.digest != (await self._digest(plugin)).value:
            said = await self.prepare(plugin, granted, unconfined=unconfined)
        given = plugin.permissions if granted is None else granted
        digest = await self._digest(plugin)  # after the setup, which may have added code
        await self._provisions.keep(plugin, digest.value)
        approvals.approve(
            plugin,
            digest,
            given,
            always=always,
            follow=follow,
            unconfined=unconfined,
            inherits_environment=inherits_environment,
            callees=callees,
        )
        return said

    async def _digest(self, plugin: Plugin) -> Digest:
        """Take a plugin's digest; raises NotApproved if its files cannot be checked."""
        try:
            return await thread_lanes.run(plugin.path, self._catalog.digest, plugin)
        except TooMuch as error:
            why = f"cannot read {error.filename}: {error.strerror}"
            cure = f"delete {error.filename} or move it out of the plugin's folder, then approve it again"
            raise NotApproved(plugin.name, "changed", (why,), cure) from error

    async def prepare(self, plugin: Plugin, granted: tuple[str, ...] | None, *, unconfined: bool) -> str:
        """Run a plugin's init script and fetch its dependencies, with the future grants; return what was printed.

        Raises CallError.
        """
        given = plugin.permissions if granted is None else granted
        standing = Standing(state="approved", granted=given, unconfined=unconfined)
        secrecy = self._secrecies.of(plugin, standing.granted)
        # Bytecode and programs left by an earlier version would run with the new grants.
        with suppress(OSError):
            await thread_lanes.run(plugin.path, untrusted_files.remove, self._catalog.home.cache(plugin))
        try:
            said = await registry.BY_NAME[plugin.format].prepare(plugin, self._provisions.of(plugin, standing))
        except CallError as error:
            guess = functools.partial(self._provisions.cure, plugin, standing, error.message, purpose="init")
            error.hint = await thread_lanes.run(plugin.path, guess) or error.hint
            secrecy.error(error)
            raise
        return secrecy.text(said)
