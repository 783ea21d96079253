"""The smallest answer that NATS allows: `python fleet_echo.py URL BYTES`, for the bench."""

import asyncio
import sys

import nats
from nats.aio.msg import Msg


async def main() -> None:
    """Answer every request with so many bytes."""
    client = await nats.connect(sys.argv[1])
    answer = b"x" * int(sys.argv[2])

    async def heard(message: Msg) -> None:
        await message.respond(answer)

    await client.subscribe("echo", cb=heard)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
