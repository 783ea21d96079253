"""What formats may use of the host: a plugin's environment, programs that run with a log, peers that stay up."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from anyplug import environment, logs, permissions
from anyplug.approval import Standing
from anyplug.catalog import Catalog
from anyplug.formats import table
from anyplug.formats.contract import Surroundings
from anyplug.model import Plugin
from anyplug.runtime.program import Finished, Program, Run
from anyplug.runtime.runner import Runner
from anyplug.runtime.toolchain import link_programs


class Provisions:
    """Makes the surroundings of each plugin, once for each standing."""

    def __init__(
        self,
        catalog: Catalog,
        runner: Runner,
        *,
        peer: Callable[[Plugin], Awaitable[Any]],
        tell: Callable[[str], None],
    ) -> None:
        """`peer` gives the running process of a plugin that stays up; `tell` hears of long work."""
        self._catalog = catalog
        self._runner = runner
        self._peer = peer
        self._tell = tell
        self._made: dict[str, tuple[Standing, Surroundings]] = {}
        self._linked = False

    def of(self, plugin: Plugin, standing: Standing) -> Surroundings:
        """Give what a plugin's format may use."""
        known = self._made.get(plugin.path)
        if known is not None and known[0] is standing:
            return known[1]
        around = Surroundings(
            home=self._catalog.home,
            settings=self._catalog.settings.of(plugin.name),
            environment=self.variables(plugin, standing),
            run=self._logged(plugin),
            private_tmp=self._runner.private_tmp,
            tell=self._tell,
            peer=self._peer,
        )
        self._made[plugin.path] = (standing, around)
        return around

    def variables(self, plugin: Plugin, standing: Standing) -> dict[str, str]:
        """Give the environment of a plugin's programs."""
        if not self._linked:
            link_programs(self._catalog.home.bin)
            self._linked = True
        names = permissions.environment_names(standing.granted)
        users = environment.divide(os.environ, names).given
        variables = table.BY_NAME[plugin.format].environment(plugin, self._catalog.home, users, names)
        return variables | self._runner.environment

    def _logged(self, plugin: Plugin) -> Run:
        """Run programs with what they say on stderr kept in the plugin's log."""
        path = self._catalog.home.log(plugin.name)

        async def run(program: Program) -> Finished:
            finished = await self._runner(program)
            if finished.stderr or finished.exit_code != 0:
                heading = f"{os.path.basename(program.argv[0])} {finished.ending}"
                if finished.exit_code is not None:
                    heading += f" with {finished.exit_code}"
                logs.append(path, heading, finished.stderr.decode(errors="replace") or finished.reason)
            return finished

        return run
