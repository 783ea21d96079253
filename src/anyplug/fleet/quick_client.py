"""nats-py's client, with a shorter way for the messages of calls.

nats-py hands each message over in three turns of the event loop: to its reader, to the task of the subscription, and
to a task that writes. Messages of `subscribe_quickly` are handed over by the reader itself, and those of `post` are
written together at the end of the turn, or at once.

Uses parts of nats-py that are not its interface; so `pyproject.toml` names the version.
"""

import asyncio
import logging
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

Heard = Callable[[str, str, bytes, str], None]  # subject, reply, data, and the server's own status, if it is one
STATUS = "Status"  # the header
# Messages in one write. More would save system calls, but then each side would wait while the other works.
TOGETHER = 16

# asyncio warns of nats-py's streams whenever a TLS connection ends, which means nothing to the person who reads it.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received() has no effect" not in str(record.msg))


class QuickClient(Client):
    """A connection."""

    def __init__(self) -> None:
        super().__init__()
        self._quick: dict[int, Heard] = {}  # by the number of the subscription
        self._is_flush_due = False

    async def subscribe_quickly(self, subject: str, heard: Heard) -> None:
        """Call `heard` with each message to a subject, before the next one is read. It must not wait."""

        async def unused(_: Msg) -> None:
            """Make nats-py treat it as a subscription with a callback."""

        self._quick[self._sid + 1] = heard  # as `subscribe` numbers it
        await self.subscribe(subject, cb=unused)

    def post(self, subject: str, data: bytes, reply: str, *, at_once: bool) -> bool:
        """Send a message without waiting; return False if there is no connection.

        `at_once` saves a turn of the event loop; otherwise messages of one turn share a write.
        """
        if not self.is_connected or len(data) > self._max_payload:
            return False
        command = b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(data), data)
        self._pending.append(command)  # behind what nats-py has not written yet
        self._pending_data_size += len(command)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(data)
        if at_once or len(self._pending) >= TOGETHER:
            self._write_pending()
        elif not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_quickly)
        return True

    def _flush_quickly(self) -> None:
        self._is_flush_due = False
        self._write_pending()

    def _write_pending(self) -> None:
        transport = self._transport
        if not self._pending_data_size or not self.is_connected:
            return  # written already, or nats-py writes it once it is connected again
        if isinstance(transport, TcpTransport):
            pending, self._pending, self._pending_data_size = self._pending, [], 0
            transport.writelines(pending)  # type: ignore[no-untyped-call]
        elif self._flush_queue is not None and self._flush_queue.empty():  # over a WebSocket, its task has to write
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        heard = self._quick.get(sid)
        if heard is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        status = str((await self._process_headers(headers) or {}).get(STATUS, "")) if headers else ""
        try:
            heard(subject.decode(), reply.decode(), data, status)
        except Exception as error:  # noqa: BLE001 - as nats-py does it: the connection goes on
            await self._error_cb(error)
