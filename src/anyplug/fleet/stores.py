"""What a fleet keeps in JetStream. The admin creates it once; members only use it."""

from typing import TYPE_CHECKING, Any

from anyplug.fleet import job_orders
from anyplug.fleet.messages import GONE_S, queue_of
from anyplug.fleet.nats_link import ANSWER_S, FleetError, Link

if TYPE_CHECKING:  # takes 180 ms to import
    from nats.js.api import StreamConfig

CLAIM_S = 30.0  # for a worker to claim a job; then another one gets the order
SAME_S = 600.0  # in which records that are sent twice are stored once
TOOLS_S = 3600.0  # how long the description of a plugin is kept; workers renew it


async def create(link: Link, replicas: int) -> list[str]:
    """Create what is missing, and bring the rest up to date; return the names of what there is. Raises FleetError."""
    from nats.errors import Error  # only admins need it
    from nats.js.errors import NotFoundError

    made = []
    for bucket, config in _streams(link, replicas):
        manager = link.client.jetstream(prefix=link.api(bucket), timeout=ANSWER_S)
        try:
            try:
                await manager.update_stream(config)
            except NotFoundError:
                await manager.add_stream(config)
        except Error as error:
            why = getattr(error, "description", "") or (link.refused or str(error) or "NATS does not answer")
            raise FleetError(
                f"cannot create {config.name}: {why}", "use the admin's credentials, and servers with JetStream"
            ) from error
        made.append(str(config.name))
    for approval in await link.all(link.subjects.trust, "approval.*"):
        await open_queue(link, approval)
    return made


def _streams(link: Link, replicas: int) -> "list[tuple[str, StreamConfig]]":
    subjects = link.subjects
    return [
        (subjects.trust, _bucket(subjects.trust, replicas)),
        # Entries of workers that are gone end by themselves.
        (subjects.directory, _bucket(subjects.directory, replicas, max_age=GONE_S)),
        (subjects.tools, _bucket(subjects.tools, replicas, max_age=TOOLS_S)),
        # Where jobs are, and their orders until a worker has taken them.
        (subjects.jobs, _bucket(subjects.jobs, replicas, max_age=job_orders.KEPT_S)),
        (subjects.queue, _queue(subjects.queue, subjects.job("*"), replicas)),
        (subjects.trail, _growing(subjects.trail, subjects.recorded("*"), replicas)),
        (subjects.bundles, _growing(subjects.bundles, subjects.bundle("*", "*"), replicas)),
    ]


async def open_queue(link: Link, approval: str) -> None:
    """Let the workers that run what an approval is of share its jobs. Raises FleetError."""
    from nats.errors import Error  # only admins need it
    from nats.js.api import AckPolicy, ConsumerConfig  # as above

    subjects = link.subjects
    manager = link.client.jetstream(prefix=link.api(subjects.queue), timeout=ANSWER_S)
    config = ConsumerConfig(
        durable_name=queue_of(approval),
        filter_subject=subjects.job(approval),
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=CLAIM_S,
    )
    try:
        await manager.add_consumer(subjects.queue, config)
    except Error as error:
        why = getattr(error, "description", "") or str(error) or "NATS does not answer"
        raise FleetError(
            f"its jobs cannot be queued: {why}", "`anyplug fleet init` creates what a fleet stores"
        ) from error


def _queue(name: str, subject: str, replicas: int) -> "StreamConfig":
    """Return a stream from which each message is taken once."""
    from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig  # only admins need it

    return StreamConfig(
        name=name,
        subjects=[subject],
        retention=RetentionPolicy.WORK_QUEUE,
        max_age=job_orders.WAITS_S,
        discard=DiscardPolicy.NEW,
        duplicate_window=SAME_S,
        storage=StorageType.FILE,
        num_replicas=replicas,
    )


def _growing(name: str, subject: str, replicas: int) -> "StreamConfig":
    """Return a stream from which nothing is taken away."""
    from nats.js.api import DiscardPolicy, StorageType, StreamConfig  # only admins need it

    return StreamConfig(
        name=name,
        subjects=[subject],
        allow_direct=True,
        deny_delete=True,
        deny_purge=True,
        discard=DiscardPolicy.NEW,
        duplicate_window=SAME_S,
        storage=StorageType.FILE,
        num_replicas=replicas,
    )


def _bucket(name: str, replicas: int, **more: Any) -> "StreamConfig":
    """Return a bucket as NATS's key-value stores are, so that its own tools show it.

    But a message that rolls up is refused: by one on its own key, a member would remove all others of the stream.
    """
    from nats.js.api import DiscardPolicy, StorageType, StreamConfig  # only admins need it

    return StreamConfig(
        name=f"KV_{name}",
        subjects=[f"$KV.{name}.>"],
        max_msgs_per_subject=1,
        allow_direct=True,
        deny_delete=True,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        num_replicas=replicas,
        **more,
    )
