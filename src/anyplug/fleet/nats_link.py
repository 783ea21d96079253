"""A connection to NATS, with the options and the traps of nats-py in one place."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.fleet import credentials
from anyplug.fleet.credentials import Credentials
from anyplug.fleet.messages import Subjects
from anyplug.home.settings import FleetSettings
from anyplug.model.errors import AnyplugError, ConfigError

if TYPE_CHECKING:  # takes 180 ms to import
    from nats.aio.msg import Msg

    from anyplug.fleet.quick_client import Heard, QuickClient

LIBRARIES = ("nats", "nkeys")
CONNECT_S = 2  # for one attempt
AGAIN_S = 0.5  # between attempts
ANSWER_S = 3  # for what JetStream is asked
CLOSE_S = 2.0
# A dead connection is noticed after a second; who waits for a call asks whether it still runs anyway.
OPTIONS: dict[str, Any] = {
    "ping_interval": 0.5,
    "max_outstanding_pings": 3,
    "max_reconnect_attempts": -1,
    "reconnect_time_wait": 0.2,
    "pending_size": 0,  # a call that waits for a connection would run after its caller has given up
    "connect_timeout": CONNECT_S,
}
READ = 256  # messages of a stream in one answer
PENDING = 65_536  # messages that wait for us; beyond that nats-py drops them


class FleetError(AnyplugError):
    """The fleet cannot be reached, or does not let us."""

    code = "unavailable"


class Link:
    """One member's connection. Its subscriptions survive reconnecting."""

    def __init__(self, settings: FleetSettings, own: Credentials, client: "QuickClient") -> None:
        from nats.errors import Error  # imported with the client

        self.own = own
        self.client = client
        self._errors = (Error, OSError)
        self.subjects = Subjects(settings.prefix)
        self.url = ", ".join(settings.nats)
        self.back = asyncio.Event()  # set at each reconnection; the one who waits clears it
        self.refused = ""  # the last thing that the server did not let us do
        self.trouble: Exception | None = None  # the last that the client told
        self.hopeless: FleetError | None = None  # why there is no point in trying to connect again
        self.on_back: list[Callable[[], None]] = []

    @property
    def is_up(self) -> bool:
        """Whether we are connected now."""
        return bool(self.client.is_connected)

    async def send(self, subject: str, parts: Sequence[bytes], reply: str = "") -> bool:
        """Send a message; return False if there is no connection to send it by."""
        try:
            for part in parts:
                await self.client.publish(subject, part, reply)
                if len(parts) > 1:  # so that a long one does not stand in the way of pings
                    await self.client.flush(timeout=ANSWER_S)
        except self._errors:
            return False
        return True

    def post(self, subject: str, data: bytes, reply: str, *, at_once: bool) -> bool:
        """Send a short message without waiting; return False if there is no connection to send it by.

        `at_once` is for a message that somebody waits for and no other follows: it costs a write of its own.
        """
        return self.client.post(subject, data, reply, at_once=at_once)

    async def listen_quickly(self, subject: str, heard: "Heard") -> None:
        """Call `heard` with each message to a subject, as soon as it is read."""
        await self.client.subscribe_quickly(subject, heard)
        await self.settle()

    async def listen(self, subject: str, heard: "Callable[[Msg], Awaitable[None]]") -> Any:
        """Call `heard` with each message to a subject, one after the other."""
        subscription = await self.client.subscribe(
            subject, cb=heard, pending_msgs_limit=PENDING, pending_bytes_limit=-1
        )
        await self.settle()
        return subscription

    async def settle(self) -> None:
        """Wait until the server knows what we subscribed to: nats-py writes its ping before pending data."""
        for _ in range(2):
            await self.client.flush(timeout=ANSWER_S)

    async def put(self, bucket: str, key: str, data: bytes) -> int:
        """Store an entry, with the agreement of the quorum; return its number. Raises FleetError."""
        return await self.store(self.subjects.entry(bucket, key), data)

    async def store(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> int:
        """Publish a message that a stream keeps; return its number. Raises FleetError."""
        with _explained(self, f"cannot write to '{subject}'"):
            ack = await self.client.jetstream().publish(subject, data, timeout=ANSWER_S, headers=headers)
            return int(ack.seq)

    def api(self, bucket: str) -> str:
        """Return what requests about a bucket begin with."""
        return self.subjects.api(bucket, is_admin=self.own.member.role == "admin")

    async def latest(self, bucket: str, key: str) -> bytes:
        """Return an entry from the leader, or empty bytes. Raises FleetError."""
        found = await self._got(bucket, key)
        return found.data if found is not None else b""

    async def _got(self, bucket: str, key: str) -> "_Message | None":
        request = msgspec.json.encode({"last_by_subj": self.subjects.entry(bucket, key)})
        with _explained(self, f"cannot read '{bucket}'"):
            subject = f"{self.api(bucket)}.STREAM.MSG.GET.KV_{bucket}"
            answer = await self.client.request(subject, request, timeout=ANSWER_S)
        found = msgspec.json.decode(answer.data, type=_Got)
        if found.message is None and found.error is not None and found.error.code != 404:  # noqa: PLR2004 - as HTTP
            raise FleetError(f"cannot read '{bucket}': {found.error.description}", _setup(found.error.code))
        return found.message

    async def newest(self, bucket: str, key: str) -> tuple[int, bytes]:
        """Return an entry from the leader, with its number, or 0 and empty bytes. Raises FleetError."""
        found = await self._got(bucket, key)
        return (found.seq, found.data) if found is not None else (0, b"")

    async def last(self, stream: str, subject: str) -> bytes:
        """Return the last message of a subject, from any copy, or empty bytes. Raises FleetError."""
        request = msgspec.json.encode({"last_by_subj": subject})
        with _explained(self, f"cannot read '{stream}'"):
            answer = await self.client.request(f"{self.api(stream)}.DIRECT.GET.{stream}", request, timeout=ANSWER_S)
        return b"" if "Status" in (answer.headers or {}) else answer.data

    async def all(self, bucket: str, keys: str = ">") -> dict[str, bytes]:
        """Return all entries of a bucket whose key fits, without the removed ones. Raises FleetError."""
        start = len(self.subjects.entry(bucket, ""))
        found: dict[str, bytes | None] = {}
        # In pages: JetStream does not answer for more than 1,024 keys at once. What changes meanwhile comes once more.
        first, is_more = 1, True
        while is_more:
            wanted = {"seq": first, "batch": READ, "next_by_subj": self.subjects.entry(bucket, keys)}
            page, is_more = await self._stored(f"KV_{bucket}", wanted, bucket)
            found.update({subject[start:]: data for _, subject, data in page})
            first = page[-1][0] + 1 if page else first
        return {key: data for key, data in found.items() if data is not None}

    async def some(self, bucket: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Return these entries of a bucket, without missing ones; a server may leave out some. Raises FleetError."""
        start = len(self.subjects.entry(bucket, ""))
        wanted = {"multi_last": [self.subjects.entry(bucket, key) for key in keys], "batch": len(keys)}
        page, _ = await self._stored(f"KV_{bucket}", wanted, bucket)
        return {subject[start:]: data for _, subject, data in page if data is not None}

    async def page(self, stream: str, first: int) -> list[tuple[int, str, bytes]]:
        """Return messages of a stream from a number on, each with its number and subject. Raises FleetError."""
        page, _ = await self._stored(stream, {"seq": first, "batch": READ}, stream)
        return [(number, subject, data or b"") for number, subject, data in page]

    async def _stored(
        self, stream: str, wanted: dict[str, Any], bucket: str
    ) -> tuple[list[tuple[int, str, bytes | None]], bool]:
        """Return messages of a stream, None for the data of removed entries, and whether there are more."""
        found: list[tuple[int, str, bytes | None]] = []
        ended: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

        async def heard(message: "Msg") -> None:
            headers = message.headers or {}
            if "Status" in headers:
                if not ended.done():
                    ended.set_result(headers)
                return
            is_removed = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
            found.append((int(headers["Nats-Sequence"]), headers["Nats-Subject"], None if is_removed else message.data))

        with _explained(self, f"cannot read '{bucket}'"):
            inbox = self.client.new_inbox()
            subscription = await self.client.subscribe(inbox, cb=heard, pending_bytes_limit=-1)
            try:
                request = msgspec.json.encode(wanted)
                await self.client.publish(f"{self.api(bucket)}.DIRECT.GET.{stream}", request, inbox)
                end = await asyncio.wait_for(ended, ANSWER_S)
            finally:
                with suppress(Exception):  # the connection may be gone, and with it the subscription
                    await subscription.unsubscribe()
        if (status := end["Status"]) not in {"204", "404"}:
            raise FleetError(f"cannot read '{bucket}': NATS answers {status}", _setup(int(status)))
        return found, bool(found) and end.get("Nats-Num-Pending", "0") != "0"


class _Message(msgspec.Struct):
    seq: int = 0
    data: bytes = b""


class _ApiError(msgspec.Struct):
    code: int = 0
    description: str = ""


class _Got(msgspec.Struct):
    message: _Message | None = None
    error: _ApiError | None = None


class _explained:  # noqa: N801 - used like a function
    """Turn what nats-py raises into a FleetError."""

    def __init__(self, link: Link, what: str) -> None:
        self._link = link
        self._what = what

    def __enter__(self) -> None:
        self._link.refused = ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from nats.errors import Error, NoRespondersError
        from nats.js.errors import APIError, NoStreamResponseError  # imported with the client

        if isinstance(error, NoRespondersError | NoStreamResponseError):
            raise FleetError(f"{self._what}: no server keeps it at {self._link.url}", _setup(503)) from error
        if isinstance(error, APIError):
            raise FleetError(f"{self._what}: {error.description}", _setup(error.code or 0)) from error
        if isinstance(error, TimeoutError | Error | OSError):
            if self._link.refused:
                hint = (
                    f"'{self._link.own.member.name}' is {_article(self._link.own.member.role)}; use other credentials"
                )
                raise FleetError(f"{self._what}: {self._link.refused}", hint) from error
            why = f"{self._link.url} does not answer" if isinstance(error, TimeoutError) else str(error)
            raise FleetError(f"{self._what}: {why}", "`anyplug fleet status` shows what can be reached") from error


def _article(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"


def _setup(code: int) -> str:
    return "`anyplug fleet init` creates what a fleet stores" if code in {404, 503} else ""


def need_libraries(extra: str = "fleet") -> None:
    """Raise FleetError, which names the extra, if the libraries are not installed."""
    if any(find_spec(library) is None for library in LIBRARIES):
        raise FleetError(
            "the libraries for a fleet are not installed", f"`pip install 'anyplug[{extra}]'` installs them"
        )


def own_credentials(settings: FleetSettings) -> Credentials:
    """Return the credentials that the settings name. Raises ConfigError."""
    if not settings.nats:
        cure = "pass --nats URL, or set it in [fleet] of settings.toml"
        raise ConfigError("the address of the fleet is not set", cure)
    if not settings.credentials:
        cure = (
            "set `credentials` in [fleet] of settings.toml; the commands `fleet` and `worker` also take --credentials "
            "FILE, and `anyplug fleet config` creates them"
        )
        raise ConfigError("the credentials for the fleet are not set", cure)
    return credentials.read(settings.credentials)


@asynccontextmanager
async def linked(settings: FleetSettings, own: Credentials, patience_s: float = 0.0) -> AsyncIterator[Link]:
    """Connect, and stay connected. Raises FleetError if that takes longer than `patience_s`; 0 never gives up."""
    need_libraries()
    link = await _connect(settings, own, patience_s)
    try:
        yield link
    finally:
        link.on_back.clear()
        with suppress(Exception):  # whatever is wrong with the connection, it is over
            await asyncio.wait_for(link.client.close(), CLOSE_S)


async def _connect(settings: FleetSettings, own: Credentials, patience_s: float) -> Link:
    from nats.errors import Error  # only members of a fleet need it

    from anyplug.fleet.quick_client import QuickClient  # as above

    client = QuickClient()
    link = Link(settings, own, client)
    untrusted = 0  # attempts at servers without a certificate that we can verify
    limit: asyncio.Timeout | None = None  # of the first connection

    async def noted(error: Exception) -> None:
        nonlocal untrusted
        link.trouble = error
        link.hopeless = _hopeless(error, link) or link.hopeless  # nats-py may raise only that no server is left
        untrusted += _is_untrusted(error)
        if limit is not None and untrusted == len(settings.nats):
            limit.reschedule(0)  # nats-py would go on for ever
        if "permissions violation" in str(error).lower():
            link.refused = re.sub(r"^nats: '?|'$", "", str(error))

    async def is_back() -> None:
        link.back.set()
        for told in link.on_back:
            told()

    login: dict[str, Any] = {"user_credentials": own.path} if own.has_token else {"nkeys_seed_str": own.seed}
    until = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            link.hopeless = None
            untrusted, limit = 0, asyncio.timeout(CONNECT_S * (len(settings.nats) + 1))
            async with limit:
                await client.connect(
                    list(settings.nats),
                    name=f"anyplug {own.member.role} {own.member.name}",
                    inbox_prefix=f"_INBOX_{own.key}",
                    error_cb=noted,
                    reconnected_cb=is_back,
                    tls=_tls(settings),
                    allow_reconnect=True,
                    **{**OPTIONS, "max_reconnect_attempts": 1},
                    **login,
                )
        except (Error, OSError, TimeoutError) as told:
            if (hopeless := _hopeless(told, link) or link.hopeless) is not None:
                raise hopeless from told
            error = link.trouble if link.trouble is not None and isinstance(told, TimeoutError) else told
            if patience_s and asyncio.get_running_loop().time() > until:
                said = str(error).strip() or type(error).__name__
                raise FleetError(f"cannot reach NATS at {link.url}: {said}", "check the address, and TLS") from error
            await asyncio.sleep(AGAIN_S)
            client = link.client = QuickClient()
            continue
        limit = None
        client.options["max_reconnect_attempts"] = OPTIONS["max_reconnect_attempts"]
        return link


def _is_untrusted(error: BaseException) -> bool:
    return type(error).__name__ == "SSLCertVerificationError"  # to import `ssl` takes a while


def _hopeless(error: BaseException, link: Link) -> FleetError | None:
    """Return what to tell a person who has to fix something before we can connect; None if another attempt may do."""
    if _is_untrusted(error):
        return FleetError(
            f"the certificate of {link.url} cannot be verified: {error}",
            "name the authority that signed it: --ca FILE, or `ca` in [fleet] of settings.toml",
        )
    if "authorization violation" in str(error).lower():
        return FleetError(
            f"{link.url} does not know the key of '{link.own.member.name}'",
            "the server's configuration is from `anyplug fleet config`; reload it if it is new",
        )
    return None


def _tls(settings: FleetSettings) -> Any:
    """Return the TLS context; None without TLS."""
    if not settings.ca and not any(url.startswith("tls://") for url in settings.nats):
        return None
    import ssl  # takes a while, and few fleets on one machine need it

    try:
        return ssl.create_default_context(cafile=settings.ca or None)
    except OSError as error:
        why = f"cannot read the certificate authority {settings.ca}: {error.strerror}"
        raise ConfigError(why, "check `ca` in [fleet] of settings.toml") from error
