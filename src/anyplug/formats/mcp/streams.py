"""What a stream must have besides its purpose for the SDK to take it: a way to close, and a way to be gone through."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage


class Stream:
    """It closes with whoever uses it."""

    async def aclose(self) -> None:
        """Close it; where there is nothing to close, do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None


class Source(Stream, ABC):
    """One that messages come from."""

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
