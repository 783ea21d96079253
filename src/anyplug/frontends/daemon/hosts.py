"""A host for each project folder, opened for the first who attaches there and kept while somebody may come back."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio
import anyio.abc

from anyplug.audit.counters import Tally
from anyplug.formats.shared.contract import Greeting
from anyplug.frontends.daemon.locate import LOG
from anyplug.host.host import Host
from anyplug.model.errors import AnyplugError, StoreError, Unavailable

LINGER_S = 300.0  # a project that nobody is attached to keeps its plugins up for so long
LOOK_S = 1.0  # between two looks whether somebody left long enough ago


class Key(NamedTuple):
    """What one host is for.

    Folders named with --plugin are seen only by those who named them, and there they may hide other plugins, take
    names and guard calls: so these have a host apart, which runs the plugins of the project once more.
    """

    folder: str
    discover: bool
    plugins: tuple[str, ...]


class Project:
    """One host, and who uses it."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.users = 0
        self.left = time.monotonic()  # when the last one did
        self.is_up = anyio.Event()
        self.closing = anyio.Event()
        self.over = anyio.Event()  # its processes are gone
        self.host: Host | None = None
        self.failure: AnyplugError | None = None


class Projects:
    """The hosts of one resident host."""

    def __init__(self, home: str, tasks: anyio.abc.TaskGroup, tell: Callable[[str], None]) -> None:
        """Hosts live in `tasks`; `tell` hears of long work and of what went wrong."""
        self._home = home
        self._tasks = tasks
        self._tell = tell
        self._open: dict[Key, Project] = {}
        self._ending: dict[Key, Project] = {}  # the last one of each that is being closed
        self._kept = 0  # hosts that are up, or on their way up or down
        self._all_closed = anyio.Event()
        self.linger_s = LINGER_S
        self.tally = Tally()  # of all hosts, also of those that are closed by now

    @property
    def hosts(self) -> list[Host]:
        """Every host that is up."""
        return [project.host for project in self._open.values() if project.host is not None]

    @property
    def all(self) -> list[Project]:
        """Every project that is open."""
        return list(self._open.values())

    def open_host(self, key: Key) -> Host | None:
        """Return the host of a key, if it is up already."""
        project = self._open.get(key)
        return project.host if project is not None else None

    async def enter(self, key: Key, environment: Mapping[str, str]) -> Project:
        """Return the project of a key, by the settings of now; `leave` it when done.

        Raises AnyplugError if its host cannot be opened.
        """
        project = self._open.get(key)
        if project is None:
            project = self._open[key] = Project(key)
            self._kept += 1
            self._tasks.start_soon(self._keep, project, environment, self._ending.get(key))
        project.users += 1
        try:
            await project.is_up.wait()
            if project.host is not None and project.host.catalog.has_other_settings:
                with contextlib.suppress(StoreError):  # calls say what is wrong with it
                    await project.host.look_again()
        except BaseException:
            self.leave(project)
            raise
        if project.failure is not None:
            self.leave(project)
            raise project.failure
        return project

    def leave(self, project: Project) -> None:
        """Say that an attachment has ended."""
        project.users -= 1
        project.left = time.monotonic()
        if project.key.plugins and not project.users:
            self._close(project)

    async def close_those_left(self) -> None:
        """Close projects that nobody came back to; runs as long as the resident host does."""
        while True:
            await anyio.sleep(LOOK_S)
            for project in self.all:
                if not project.users and time.monotonic() - project.left > self.linger_s and not _is_busy(project):
                    self._close(project)

    async def close(self) -> None:
        """Close all, and wait until they are."""
        for project in self.all:
            self._close(project)
        if self._kept:
            self._all_closed = anyio.Event()
            await self._all_closed.wait()

    def _close(self, project: Project) -> None:
        if self._open.get(project.key) is project:
            del self._open[project.key]
            self._ending[project.key] = project
        project.closing.set()

    async def _keep(self, project: Project, environment: Mapping[str, str], before: Project | None) -> None:
        """Hold a host open: it has tasks of its own, so the task that opens it has to close it.

        `before` is the one in the same place that is just ending: no plugin shall run twice.
        """
        try:
            if before is not None:
                await before.over.wait()
            async with Host(
                project.key.plugins,
                roots=None if project.key.discover else [],
                home=self._home,
                greeting=Greeting(cwd=project.key.folder),
                environment=environment,
                eager=False,
                tell=self._tell,
                tally=self.tally,
            ) as host:
                project.host = host
                project.is_up.set()
                await project.closing.wait()
        except AnyplugError as error:
            project.failure = error
        except Exception as error:  # noqa: BLE001 - a fault of ours in one project must not end the others
            project.failure = self.fault(error)
        finally:
            project.host = None
            self._close(project)
            if self._ending.get(project.key) is project:
                del self._ending[project.key]
            project.over.set()
            project.is_up.set()
            self._kept -= 1
            if not self._kept:
                self._all_closed.set()

    def fault(self, error: Exception) -> Unavailable:
        """Return a fault of ours as those hear of it who asked for what failed; the log has all that is known."""
        self.tell_of(error)
        return Unavailable(
            f"anyplug itself failed: {error!r}", f"{os.path.join(self._home, 'logs', LOG)} says where, if you report it"
        )

    def tell_of(self, error: Exception) -> None:
        """Say all that is known of a fault of ours."""
        import traceback  # only where something failed

        self._tell("".join(traceback.format_exception(error)))


def _is_busy(project: Project) -> bool:
    """Return whether jobs run that nobody waits for."""
    return project.host is not None and project.host.has_jobs
