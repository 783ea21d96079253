"""Run the signals of policies: a project's in the sandbox that plugins use, the user's own without one.

A project's signals may read the user's files, write to the project's folder and run programs, also those in that
folder; they get no network and no secrets from the environment.
"""

import os
from collections import OrderedDict
from typing import Final

import anyio.to_thread
import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.formats import registry
from anyplug.home.settings import Home
from anyplug.launch.sandbox_rooms import Rooms
from anyplug.model.errors import AnyplugError
from anyplug.model.hashes import sha256
from anyplug.model.types import Plugin
from anyplug.policy.paths import FOLDER
from anyplug.runtime.processes.program import Finished, Program
from anyplug.runtime.runner import Runner
from anyplug.secrets import env_vars

GRANTS: Final = ("filesystem:read", "filesystem:write:.", "shell:exec")
MOST_PROJECTS: Final = 8  # whose sandboxes are kept: each is a process
NO_SANDBOX: Final = "it was not run, because this machine has no sandbox for it"


class SignalRuns:
    """Runs signals for one host; `close` when done."""

    def __init__(self, home: Home, runner: Runner | None = None) -> None:
        """`runner` is the host's; without one, a runner is created for the first signal and closed with this."""
        self._home = home
        self._runner = runner
        self._is_own = runner is None
        self._sandboxes: OrderedDict[str, Rooms] = OrderedDict()  # by project; most recently used last

    async def __call__(self, program: Program, project: str = "", *, unconfined: bool = False) -> Finished:
        """Run one signal to its end; `unconfined`: even without a sandbox."""
        if self._runner is None:
            self._runner = Runner(self._home.path)
        runner = self._runner
        if not project:
            return await runner(_with(program, runner, program.env))
        plugin = _as_plugin(os.path.realpath(project))
        standing = Standing(state="approved", granted=GRANTS, unconfined=unconfined)
        variables = env_vars.divide(program.env, frozenset()).given
        try:
            sandbox = await self._sandbox(os.path.realpath(project), runner, variables)
            room = await sandbox.enter(plugin, standing)
        except AnyplugError as error:
            return Finished(ending="not_started", reason=f"{NO_SANDBOX}: {error.message}")
        try:
            inside = registry.PLAIN.environment(plugin, self._home, variables, frozenset())
            return await runner(_with(program, runner, inside), room.spawn)
        finally:
            sandbox.leave(room)

    def close(self) -> None:
        """Kill what still runs. Blocks: call it in a thread."""
        for sandbox in self._sandboxes.values():
            sandbox.close()
        if self._is_own and self._runner is not None:
            self._runner.close()

    async def _sandbox(self, project: str, runner: Runner, variables: dict[str, str]) -> Rooms:
        settings = self._home.read_settings()
        sandbox = self._sandboxes.get(project)
        if sandbox is None:
            # A project's policies run as they are: `policy.accepted_copies` compares them with what a person accepted.
            sandbox = Rooms(
                self._home,
                settings,
                runner.guard,
                runner.direct,
                project,
                None,
                variables=dict(variables),
                runs=(project,),
            )
            self._sandboxes[project] = sandbox
            if len(self._sandboxes) > MOST_PROJECTS:
                _, oldest = self._sandboxes.popitem(last=False)
                await anyio.to_thread.run_sync(oldest.close)
        sandbox.follow(settings)
        self._sandboxes.move_to_end(project)
        return sandbox


def _as_plugin(project: str) -> Plugin:
    """Describe a project's policies as a plugin, so that they get a sandbox: read-only code, with its own data."""
    key = sha256(os.fsencode(project)).hexdigest()[:12]
    return Plugin(name=f"policies@{key}", format=registry.PLAIN.NAME, path=os.path.join(project, FOLDER))


def _with(program: Program, runner: Runner, variables: dict[str, str]) -> Program:
    return msgspec.structs.replace(program, env={**variables, **runner.environment})
