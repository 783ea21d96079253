"""Jobs: calls of asynchronous tools, with an id, a state, a result and cancellation, stored in the database."""

import os
import time
from typing import Any, Literal

import msgspec

from anyplug.home import process_identity
from anyplug.home.database import Store
from anyplug.model.errors import CallError
from anyplug.model.types import Result
from anyplug.model.untrusted_text import for_people

JobState = Literal["running", "done", "failed", "cancelled", "lost"]
KEPT = 200  # finished jobs
ID_BYTES = 6  # enough that nobody finds another's job by guessing
_SELECT = "SELECT id, tool, state, started, ended, result, host, progress, plugin FROM jobs"


class JobNotFound(CallError):
    """There is no such job."""

    code = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no job '{for_people(name)}'",
            "use the id that the call of the tool returned; `anyplug jobs` lists all jobs",
        )


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an asynchronous tool."""

    id: str
    tool: str
    plugin: str = ""  # the `lineage` of the plugin that runs it; other plugins may have a tool of that name
    state: JobState
    started: float
    ended: float | None = None
    result: dict[str, Any] | None = None
    progress: str = ""  # the last line that it wrote to stderr, while it runs


class Jobs:
    """The jobs in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._host = process_identity.this_process()

    def begin(self, tool: str, plugin: str, name: str = "") -> str:
        """Record a job of a plugin that starts now, under a new id unless it has one, and delete the oldest.

        Raises StoreError, also if there was a job of this id: none runs twice.
        """
        name = name or os.urandom(ID_BYTES).hex()
        with self._store.writing() as transaction:
            transaction.execute(
                "INSERT INTO jobs (id, tool, plugin, state, started, host) VALUES (?, ?, ?, 'running', ?, ?)",
                (name, tool, plugin, time.time(), self._host),
            )
            transaction.execute(
                "DELETE FROM jobs WHERE state != 'running' AND id NOT IN "
                "(SELECT id FROM jobs ORDER BY started DESC LIMIT ?)",
                (KEPT,),
            )
        return name

    def end(self, name: str, result: Result, shape: dict[str, Any]) -> None:
        """Record how a job ended; `shape` is the result as shown to everyone."""
        state = "done" if not result.is_error else "failed"
        if result.error is not None and result.error.code == "cancelled":
            state = "cancelled"
        self._store.run(
            "UPDATE jobs SET state = ?, ended = ?, result = ? WHERE id = ?",
            state,
            time.time(),
            msgspec.json.encode(shape),
            name,
        )

    def report(self, name: str, progress: str) -> None:
        """Record what a running job last said."""
        self._store.run("UPDATE jobs SET progress = ? WHERE id = ?", progress, name)

    def leave(self, name: str) -> None:
        """Record that the host that ordered a job does not wait for it any more."""
        self._store.run("UPDATE jobs SET host = '' WHERE id = ?", name)

    def all(self) -> list[Job]:
        """List the jobs, newest first. A job whose host is gone is lost."""
        return [_job(row) for row in self._store.rows(f"{_SELECT} ORDER BY started DESC")]

    def one(self, name: str) -> Job:
        """Find a job by its id; raises JobNotFound."""
        for row in self._store.rows(f"{_SELECT} WHERE id = ?", name):
            return _job(row)
        raise JobNotFound(name)

    def ask_to_cancel(self, name: str) -> None:
        """Ask the host that runs a job to cancel it."""
        self._store.run("UPDATE jobs SET cancel = 1 WHERE id = ?", name)

    def is_to_be_cancelled(self, name: str) -> bool:
        """Return whether cancellation was requested."""
        return bool(self._store.rows("SELECT 1 FROM jobs WHERE id = ? AND cancel = 1", name))


def _job(row: Any) -> Job:
    name, tool, state, started, ended, result, host, progress, plugin = row
    if state == "running" and not (host and process_identity.is_alive(host)):
        state = "lost"
    return Job(
        id=name,
        tool=tool,
        plugin=plugin,
        state=state,
        started=started,
        ended=ended,
        result=msgspec.json.decode(result) if result else None,
        progress=progress if state == "running" else "",
    )
