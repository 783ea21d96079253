"""What the SDK expects of a stream besides its purpose: closing and iteration."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage


class Stream:
    """Closed by its user."""

    async def aclose(self) -> None:
        """Close it; does nothing by default."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None


class Source(Stream, ABC):
    """A source of messages."""

    @abstractmethod
    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raises EndOfStream."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None
