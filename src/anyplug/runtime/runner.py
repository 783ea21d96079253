"""The host's engine for programs: owns the guardian, the spawner and the scratch folder, and chooses how to spawn."""

import errno
import functools
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from anyplug.runtime import thread_lanes
from anyplug.runtime.helpers import Helpers
from anyplug.runtime.processes import private_tmp, run_once
from anyplug.runtime.processes.direct_spawn import DirectSpawn
from anyplug.runtime.processes.program import Finished, PrivateTmp, Program, Spawn, Waiting

if TYPE_CHECKING:
    from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

SWITCHED_OFF = "disabled in settings.toml"


class Runner:
    """Runs programs; `close` when done, which kills what it started."""

    def __init__(self, home: str, *, namespaces: bool = True, helpers: Helpers | None = None) -> None:
        """`home` is for scratch folders, and for the locks of shared /tmp folders; `helpers` were started ahead."""
        self._helpers = helpers or Helpers(home)
        self._scratch = self._helpers.scratch
        self._locks = os.path.join(home, "locks")
        self.guard = self._helpers.guard
        self.direct = DirectSpawn(self.guard)
        self._namespaced: ConfinedSpawn | None = None
        self._starting = anyio.Lock()
        self.namespaces_refused = "" if namespaces else SWITCHED_OFF

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which every child can be found again."""
        return self.guard.environment

    def use_namespaces(self, *, wanted: bool) -> None:
        """Use namespaces from now on, if the kernel supports them, or none."""
        if not wanted:
            self.namespaces_refused = SWITCHED_OFF
        elif self.namespaces_refused == SWITCHED_OFF:
            self.namespaces_refused = ""

    def __call__(
        self, program: Program, spawn: Spawn | None = None, waiting: Waiting | None = None
    ) -> Awaitable[Finished]:
        """Run a program to its end; unconfined, unless `spawn` is passed. `waiting` was started ahead for it."""
        spawn = spawn or self.direct
        if program.tmp and spawn is self.direct:
            return self._run_with_own_tmp(program)
        return run_once.run(program, spawn, waiting)

    @asynccontextmanager
    async def private_tmp(
        self, name: str, *, has_own: bool = False, is_shared: bool = False
    ) -> AsyncIterator[PrivateTmp]:
        """Provide a call with its own /tmp/NAME; raises TmpTaken.

        `has_own`: it is confined, and can mount over /tmp; `is_shared`: it was granted the machine's.
        """
        if not is_shared and (has_own or await self._spawner() is not None):
            folder = private_tmp.own_tmp(self._scratch.folder(), name)
        else:
            folder = private_tmp.shared_tmp(self._locks, name)
        async with folder as given:
            yield given

    async def _run_with_own_tmp(self, program: Program) -> Finished:
        spawner = await self._spawner()
        if spawner is None:  # there was one when `private_tmp` used it
            reason = "the process that would start it is gone, and cannot be replaced now"
            return Finished(ending="not_started", errno=errno.EAGAIN, reason=reason)
        return await run_once.run(program, spawner)

    def close(self) -> None:
        """End everything."""
        if self._namespaced is not None:
            self._namespaced.close()
        self._helpers.close()

    async def _spawner(self) -> "ConfinedSpawn | None":
        """Return the spawner, started when first needed and again if it was killed; None if refused."""
        if self.namespaces_refused:
            return None
        if self._namespaced is not None and self._namespaced.is_alive:
            return self._namespaced
        # Takes 15 ms with ctypes, and only confined programs need it.
        from anyplug.runtime.sandbox.enforcement import Shortage
        from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn, NamespacesRefused

        async with self._starting:
            if self._namespaced is None or not self._namespaced.is_alive:
                if self._namespaced is not None:
                    self._namespaced.close()
                    self._namespaced = None
                try:
                    make = functools.partial(ConfinedSpawn, self.guard)
                    self._namespaced = await thread_lanes.make(make, ConfinedSpawn.close)
                except NamespacesRefused as refusal:
                    self.namespaces_refused = str(refusal)
                except Shortage:
                    return None  # for this time
        return self._namespaced
