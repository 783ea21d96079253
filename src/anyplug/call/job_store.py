"""Jobs: calls of asynchronous tools, with an id, a state, a result and cancellation, stored in the database."""

import secrets
import time
from typing import Any, Literal

import msgspec

from anyplug.home import process_identity
from anyplug.home.database import Store
from anyplug.model.errors import AnyplugError
from anyplug.model.types import Result

JobState = Literal["running", "done", "failed", "cancelled", "lost"]
KEPT = 200  # finished jobs


class JobNotFound(AnyplugError):
    """There is no such job."""

    code = "not_found"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an asynchronous tool."""

    id: str
    tool: str
    state: JobState
    started: float
    ended: float | None = None
    result: dict[str, Any] | None = None


class Jobs:
    """The jobs in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._host = process_identity.this_process()

    def begin(self, tool: str) -> str:
        """Record a job that starts now, and delete the oldest."""
        name = secrets.token_hex(4)
        with self._store.writing() as transaction:
            transaction.execute(
                "INSERT INTO jobs (id, tool, state, started, host) VALUES (?, ?, 'running', ?, ?)",
                (name, tool, time.time(), self._host),
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

    def all(self) -> list[Job]:
        """List the jobs, newest first. A job whose host is gone is lost."""
        rows = self._store.rows("SELECT id, tool, state, started, ended, result, host FROM jobs ORDER BY started DESC")
        return [_job(row) for row in rows]

    def one(self, name: str) -> Job:
        """Find a job by its id; raises JobNotFound."""
        for job in self.all():
            if job.id == name:
                return job
        raise JobNotFound(f"there is no job '{name}'", "`anyplug jobs` lists them")

    def ask_to_cancel(self, name: str) -> None:
        """Ask the host that runs a job to cancel it."""
        self._store.run("UPDATE jobs SET cancel = 1 WHERE id = ?", name)

    def is_to_be_cancelled(self, name: str) -> bool:
        """Return whether cancellation was requested."""
        return bool(self._store.rows("SELECT 1 FROM jobs WHERE id = ? AND cancel = 1", name))


def _job(row: Any) -> Job:
    name, tool, state, started, ended, result, host = row
    if state == "running" and not process_identity.is_alive(host):
        state = "lost"
    return Job(
        id=name,
        tool=tool,
        state=state,
        started=started,
        ended=ended,
        result=msgspec.json.decode(result) if result else None,
    )
