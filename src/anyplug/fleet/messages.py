"""What the members of a fleet say to each other, and under which subjects.

    PREFIX.w.WORKER.run        gateways to a worker: hello, calls, probes and cancellations, in this order
    PREFIX.out.GATEWAY.WORKER  a worker to a gateway: welcome, progress, results, refusals
    PREFIX.here.WORKER         a worker, every other second: where it is, what it offers, signed
    PREFIX.trust.dir.WORKER    the same, for those who come later
    PREFIX.trust.tools.W.HASH  a worker: a plugin with its tools, under the hash of that
    PREFIX.trust.audit.HOST    a gateway or worker: its records, signed
    PREFIX.trust.lease.WORKER  a worker: its lease
    PREFIX.job.APPROVAL        gateways: orders of jobs, for the first worker that takes them (`job_orders`)
    $KV.PREFIX_jobs.ID         gateways and workers: where a job is, signed
    $KV.PREFIX_trust.KEY       the admin: approvals, withdrawals and sealed secrets, signed

Sessions and their messages are sealed (`sealing`). What is in the directory is a hint, and proves nothing. What goes
to PREFIX.trust is stored in the admin's account, as $KV.PREFIX_dir.WORKER and so on, and jobs in an account of their
own (`server_config`).
"""

import hashlib
import os
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from anyplug.model.types import Result, Tool
from anyplug.runtime.processes.program import Receipt

BEAT_S = 2.0  # between two announcements of a worker
GONE_S = 3 * BEAT_S  # after the last one, it counts as gone
START_S = 5.0  # from the decision of a gateway on: a worker starts no call later
ID_BYTES = 12  # of an attempt's id that cannot be guessed
KEYS = 4096  # names of approvals that are remembered: each call needs its own several times
LEASE_S = 15.0  # without a confirmation of the approvals by the quorum, a worker refuses calls
RENEW_S = 3.0  # between two confirmations

Refusal = Literal["overloaded", "draining", "not_approved", "late", "unconfirmed", "gone", "known"]
# A call that is "fenced" has not run and never will; the state of one that is "forgotten" is unknown.
RunState = Literal["running", "done", "fenced", "forgotten"]
KEPT_S = 60.0  # how long a worker keeps a result for a gateway that could not be reached
KNOWN_S = 120.0  # and how long the id of a call; older ones it does not speak of

Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # of calls

API = "$JS.API"  # what requests to JetStream begin with


class Subjects:
    """The subjects of one fleet."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.directory, self.tools, self.trust = (f"{prefix}_{name}" for name in ("dir", "tools", "trust"))

    @property
    def trust_api(self) -> str:
        """What requests about the admin's decisions begin with, for members."""
        return f"{self.prefix}.trust.API"

    @property
    def jobs_api(self) -> str:
        """What requests about jobs begin with, for members."""
        return f"{self.prefix}.jobs.API"

    @property
    def members_api(self) -> str:
        """What requests about jobs begin with, for the admin."""
        return f"{self.prefix}.members.API"

    def api(self, bucket: str, *, is_admin: bool) -> str:
        """Return what requests about a bucket begin with."""
        if bucket in {self.trust, self.bundles, self.directory, self.tools, self.trail}:
            return API if is_admin else self.trust_api
        return self.members_api if is_admin else self.jobs_api

    def lease(self, worker: str) -> str:
        """Return where a worker renews its lease."""
        return f"{self.prefix}.trust.lease.{worker}"

    def run(self, worker: str) -> str:
        """Return what a worker hears."""
        return f"{self.prefix}.w.{worker}.run"

    def answers(self, gateway: str, worker: str) -> str:
        """Return what the answers of a worker to a gateway begin with."""
        return f"{self.prefix}.out.{gateway}.{worker}"

    @property
    def bundles(self) -> str:
        """The stream with the files of plugins."""
        return f"{self.prefix}_bundles"

    def bundle(self, name: str, part: int | str) -> str:
        """Return where a part of a bundle is."""
        return f"{self.prefix}.bundle.{name}.{part}"

    @property
    def trail(self) -> str:
        """The stream with the records of all hosts."""
        return f"{self.prefix}_audit"

    @property
    def jobs(self) -> str:
        """The bucket that says where jobs are."""
        return f"{self.prefix}_jobs"

    @property
    def queue(self) -> str:
        """The stream with the orders of jobs that no worker has taken."""
        return f"{self.prefix}_queue"

    def job(self, approval: str) -> str:
        """Return where the orders are for the workers that run what this approval is of."""
        return f"{self.prefix}.job.{queue_of(approval)}"

    def here(self, worker: str) -> str:
        """Return where a worker announces itself to all who listen."""
        return f"{self.prefix}.here.{worker}"

    def announced(self, worker: str) -> str:
        """Return where a worker announces itself to those who come later."""
        return f"{self.prefix}.trust.dir.{worker}"

    def described(self, worker: str, name: str) -> str:
        """Return where a worker describes a plugin."""
        return f"{self.prefix}.trust.tools.{worker}.{name}"

    def audit(self, member: str) -> str:
        """Return where a host sends its records."""
        return f"{self.prefix}.trust.audit.{member}"

    def recorded(self, member: str) -> str:
        """Return where they are stored."""
        return f"{self.prefix}.audit.{member}"

    @staticmethod
    def entry(bucket: str, key: str) -> str:
        """Return the subject of an entry in a bucket."""
        return f"$KV.{bucket}.{key}"


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that a worker has, as the worker describes it. A long-running one has no tools before it first ran."""

    name: str
    format: str
    version: str
    description: str
    digest: str
    definition: str
    permissions: tuple[str, ...]
    tier: int
    tools: tuple[Tool, ...]
    stays_up: bool
    problem: str = ""  # why it cannot run there now
    held: tuple[Tool, ...] = ()  # new or changed tools that the worker holds back until the admin approves them

    @property
    def approval_key(self) -> str:
        """The name of the approval that it needs."""
        return approval_key(self.digest, self.definition)


@lru_cache(KEYS)
def approval_key(digest: str, definition: str) -> str:
    """Return under which name the approval of a plugin is stored."""
    return f"approval.{hashlib.sha256(f'{digest} {definition}'.encode()).hexdigest()[:40]}"


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself with each beat."""

    name: str
    key: str
    epoch: str
    certificate: bytes
    labels: dict[str, str]
    places: Number  # calls at once
    running: Number
    is_draining: bool
    offers: tuple[str, ...]  # the hashes of `Offered`
    version: str  # of anyplug
    started: float
    trust: int  # the serial number of the last decision of the admin that it knows
    at: float = 0.0  # by the worker's clock: older ones are repetitions
    has_left: bool = False


def queue_of(approval: str) -> str:
    """Return the name of the part of the queue for the workers that run what this approval is of."""
    return approval.rpartition(".")[2]


class Approved(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The admin's approval of a plugin for the whole fleet; revoked if `is_revoked`."""

    serial: int  # grows with each decision of the admin
    name: str
    format: str
    digest: str
    definition: str
    asked: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    always: bool = False  # callers are not asked
    at: float = 0.0
    is_revoked: bool = False
    bundle: str = ""  # the hash of its files in the fleet's store, if they are there
    size: int = 0  # of them, in bytes
    tools: dict[str, str] | None = None  # the digests of its tools, by full name; None in approvals of older versions
    version: str = ""  # of the plugin, as the admin saw it
    description: str = ""  # the same
    since: float = 0.0  # when a plugin of this name was first approved; the approvals since then were not revoked


class SealedSecret(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A secret of a plugin that the admin stores for one worker."""

    serial: int  # grows with each value; it is not the number of a decision, since only one worker hears of it
    worker: str  # its key
    plugin: str
    variable: str
    box: bytes  # sealed for the worker; empty if the secret was removed
    at: float


def secret_key(worker: str, plugin: str, variable: str) -> str:
    """Return under which name a secret is stored."""
    return f"secret.{worker}.{hashlib.sha256(f'{plugin} {variable}'.encode()).hexdigest()[:40]}"


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The admin's word that a key is no longer a member."""

    serial: int
    key: str
    name: str
    at: float


class Policies(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The policies that all members apply, besides their own."""

    serial: int
    version: str
    files: dict[str, str]  # by path
    at: float = 0.0


class Head(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The serial number of the admin's last decision."""

    serial: int


def attempt_id(start_by: float) -> str:
    """Return a new id for an attempt to run a call. Who does not know it cannot speak of it."""
    return f"{int(start_by * 1000):012x}{os.urandom(ID_BYTES).hex()}"


def start_by_of(id: str) -> float:
    """Return until when the attempt of this id may start; 0 if it is no id."""
    try:
        return int(id[:12], 16) / 1000
    except ValueError:
        return 0.0


class Run(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A call."""

    id: str  # of this attempt
    call: str  # as the records of both sides name it
    tool: str  # its own name
    plugin: str
    digest: str
    definition: str
    granted: tuple[str, ...]
    serial: int  # of the last decision of the admin that the gateway knows
    arguments: dict[str, Any]
    caller: str  # the attachment at the gateway
    agent: str
    chain: tuple[str, ...]
    verdict: str
    by: str
    wants_progress: bool = False


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The caller no longer waits."""

    id: str


class Probe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What became of these calls? One that the worker does not know will never run there."""

    ids: tuple[str, ...]


class AskedJob(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Where is this job, which the worker claimed? It is cancelled if `cancel`."""

    id: str
    cancel: bool = False


class Repeatable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A call runs whose tool is read-only or idempotent: it may run again elsewhere if its result is lost."""

    id: str


class Said(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Progress of a call."""

    id: str
    progress: float
    total: float | None
    message: str | None


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The result of a call, and what confined it."""

    id: str
    result: Result
    receipt: Receipt | None
    record: str  # the id of the worker's own record
    files: tuple[bytes, ...] = ()  # the content of the files in the result, in their order


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A call did not run, and will not."""

    id: str
    reason: Refusal
    message: str
    hint: str = ""


JobState = Literal["running", "ended", "lost", "unknown"]


class JobSaid(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to that."""

    id: str
    state: JobState
    done: Done | None = None  # if it ended


class States(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a probe."""

    states: dict[str, RunState]


ToWorker = Run | Cancel | Probe | AskedJob
ToGateway = Repeatable | Said | Done | Refused | States | JobSaid
