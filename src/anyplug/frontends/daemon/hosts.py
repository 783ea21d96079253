"""One host per project folder, opened for the first client there and kept while clients may return."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio
import anyio.abc

from anyplug.audit.counters import Counters
from anyplug.call.call_places import Places
from anyplug.call.open_questions import OpenQuestions
from anyplug.formats.shared.contract import Greeting
from anyplug.frontends.daemon.locate import LOG
from anyplug.host.host import Host
from anyplug.model.errors import AnyplugError, StoreError, Unavailable

LINGER_S = 300.0  # how long a project without clients keeps its plugins running
LOOK_S = 1.0  # between checks for projects to close


class Key(NamedTuple):
    """What one host is for.

    Folders named with --plugin are visible only to the clients that named them, where they may shadow other plugins,
    take names and guard calls. So these get a separate host, which runs the project's plugins once more.
    """

    folder: str
    discover: bool
    plugins: tuple[str, ...]


class Project:
    """One host and its users."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.users = 0
        self.left = time.monotonic()  # when the last client left
        self.is_up = anyio.Event()
        self.closing = anyio.Event()
        self.over = anyio.Event()  # its processes are gone
        self.host: Host | None = None
        self.failure: AnyplugError | None = None


class Projects:
    """The hosts of the daemon."""

    def __init__(self, home: str, tasks: anyio.abc.TaskGroup, tell: Callable[[str], None]) -> None:
        """Hosts live in `tasks`; `tell` is called with messages about long work and errors."""
        self._home = home
        self._tasks = tasks
        self._tell = tell
        self._open: dict[Key, Project] = {}
        self._ending: dict[Key, Project] = {}  # the latest of each that is being closed
        self._kept = 0  # hosts that are running, starting or ending
        self._all_closed = anyio.Event()
        self.linger_s = LINGER_S
        self.tally = Counters()  # of all hosts, including closed ones
        self.questions = OpenQuestions()  # of all hosts
        self.places = Places()  # for the calls of all hosts

    @property
    def hosts(self) -> list[Host]:
        """Every running host."""
        return [project.host for project in self._open.values() if project.host is not None]

    @property
    def all(self) -> list[Project]:
        """Every project that is open."""
        return list(self._open.values())

    def open_host(self, key: Key) -> Host | None:
        """Return the host of a key if it is already running."""
        project = self._open.get(key)
        return project.host if project is not None else None

    async def enter(self, key: Key, environment: Mapping[str, str], greeting: Greeting | None = None) -> Project:
        """Return the project of a key, with the current settings; `leave` it when done.

        `greeting` is what its plugins are told if they are started now. Raises AnyplugError if its host cannot be
        opened.
        """
        project = self._open.get(key)
        if project is None:
            project = self._open[key] = Project(key)
            self._kept += 1
            self._tasks.start_soon(self._keep, project, environment, greeting, self._ending.get(key))
        project.users += 1
        try:
            await project.is_up.wait()
            if project.host is not None and project.host.catalog.has_other_settings:
                with contextlib.suppress(StoreError):  # calls report what is wrong with it
                    await project.host.look_again()
        except BaseException:
            self.leave(project)
            raise
        if project.failure is not None:
            self.leave(project)
            raise project.failure
        return project

    def leave(self, project: Project) -> None:
        """Report that an attachment has ended."""
        project.users -= 1
        project.left = time.monotonic()
        if project.key.plugins and not project.users and not _is_busy(project):
            self._close(project)

    async def close_those_left(self) -> None:
        """Close projects without clients after a while; runs as long as the daemon."""
        while True:
            await anyio.sleep(LOOK_S)
            for project in self.all:
                linger_s = 0 if project.key.plugins else self.linger_s
                if not project.users and time.monotonic() - project.left > linger_s and not _is_busy(project):
                    self._close(project)

    async def close(self) -> None:
        """Close all projects and wait for them."""
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

    async def _keep(
        self, project: Project, environment: Mapping[str, str], greeting: Greeting | None, before: Project | None
    ) -> None:
        """Hold a host open in its own task, because the task that opens it must also close it.

        `before` is the previous one in the same place if it is still ending: no plugin may run twice.
        """
        try:
            if before is not None:
                await before.over.wait()
            async with Host(
                project.key.plugins,
                roots=None if project.key.discover else [],
                home=self._home,
                greeting=greeting or Greeting(cwd=project.key.folder),
                environment=environment,
                eager=False,
                tell=self._tell,
                tally=self.tally,
                questions=self.questions,
                places=self.places,
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
        """Convert an internal error for the client whose request failed; the log has the details."""
        self.tell_of(error)
        return Unavailable(
            f"anyplug itself failed: {error!r}",
            (f"please report this with the details in {os.path.join(self._home, 'logs', LOG)}"),
        )

    def tell_of(self, error: Exception) -> None:
        """Log the details of an internal error."""
        import traceback  # only needed after a failure

        self._tell("".join(traceback.format_exception(error)))


def _is_busy(project: Project) -> bool:
    """Return whether jobs run that nobody waits for."""
    return project.host is not None and project.host.has_jobs
