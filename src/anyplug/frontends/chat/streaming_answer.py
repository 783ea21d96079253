"""An answer while it streams in: its finished parts in Markdown, and a plain tail that costs little to draw."""

from contextlib import AbstractContextManager
from typing import Protocol

from anyplug.frontends.chat.markdown_rows import split_finished
from anyplug.frontends.chat.transcript_blocks import Block, ProseBlock, TailBlock


class Place(Protocol):
    """Where the answer is shown."""

    def add(self, block: Block, before: Block | None = None) -> Block:
        """Add a block at the end, or before another."""
        ...

    def changed(self, block: Block) -> None:
        """Draw a block again."""
        ...

    def drop(self, block: Block) -> None:
        """Take a block away."""
        ...

    def at_once(self) -> AbstractContextManager[None]:
        """Show several changes together."""
        ...


class StreamingAnswer:
    """The blocks of one answer."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._new: list[str] = []
        self._said: list[str] = []
        self._finished: list[Block] = []
        self._tail: TailBlock | None = None

    @property
    def has_begun(self) -> bool:
        """Whether anything of it has come."""
        return bool(self._said or self._new)

    @property
    def has_news(self) -> bool:
        """Whether pieces of it are not shown yet."""
        return bool(self._new)

    def add(self, text: str) -> None:
        """Keep a piece until it is shown."""
        self._new.append(text)

    def flush(self) -> None:
        """Show the pieces that have come."""
        if not self._new:
            return
        new = "".join(self._new)
        self._new.clear()
        self._said.append(new)
        if self._tail is None:
            self._tail = TailBlock(new)
            self._place.add(self._tail)
        else:
            self._tail.text += new
        blocks, rest = split_finished(self._tail.text)
        if blocks:
            with self._place.at_once():
                for text in blocks:
                    self._finished.append(self._place.add(ProseBlock(text), before=self._tail))
                tail = TailBlock(rest)
                self._place.add(tail, before=self._tail)
                self._place.drop(self._tail)
            self._tail = tail
        else:
            self._place.changed(self._tail)

    def finish(self, text: str | None, also: tuple[Block, ...]) -> None:
        """End it; a given text replaces what was streamed, and other blocks follow it."""
        self.flush()
        with self._place.at_once():
            self._finish(text, also)

    def _finish(self, text: str | None, also: tuple[Block, ...]) -> None:
        if self._tail is None:
            self._add(text or "", None)
            for block in also:
                self._place.add(block)
            return
        if text is not None and text != "".join(self._said):
            for block in self._finished:
                self._place.drop(block)
            self._add(text, self._tail)
        else:
            self._add(self._tail.text, self._tail)
        for block in also:
            self._place.add(block, before=self._tail)
        self._place.drop(self._tail)

    def _add(self, text: str, before: Block | None) -> None:
        blocks, rest = split_finished(text)
        for part in [*blocks, rest]:
            if part.strip():
                self._place.add(ProseBlock(part), before=before)
