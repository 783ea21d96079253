"""The blocks of a transcript in their order, and the row at which each begins.

It renders blocks for one width and one palette, and knows which are rendered for another.
"""

import bisect

from textual.strip import Strip

from anyplug.frontends.chat.transcript_blocks import Block, Painter


class BlockRows:
    """Blocks, as rows that are counted from the first one's."""

    def __init__(self, painter: Painter) -> None:
        self.blocks: list[Block] = []
        self.width = 0  # of a row; 0: nothing is rendered yet
        self._painter = painter
        self._generation = 0  # of the palette
        self._tops: list[int] = [0]  # the first row of each block, and the number of all rows

    def __len__(self) -> int:
        """Count the rows."""
        return self._tops[-1]

    @property
    def text(self) -> str:
        """All rows as text."""
        return "\n".join(row.text for block in self.blocks for row in block.rows)

    def use_palette(self, painter: Painter) -> None:
        """Render with another palette from now on; what is there becomes stale."""
        self._painter = painter
        self._generation += 1

    def add(self, block: Block, before: Block | None = None) -> None:
        """Add a block at the end, or before another that is still there."""
        found = None if before is None else self._place(before)
        at = len(self.blocks) if found is None else found
        self.blocks.insert(at, block)
        self._render(block)
        self._tops.insert(at + 1, self._tops[at])
        self._shift(at, len(block.rows))

    def changed(self, block: Block) -> None:
        """Render a block again, because it has changed; one that was cleared away stays away."""
        at = self._place(block)
        if at is None:
            return
        before = len(block.rows)
        self._render(block)
        self._shift(at, len(block.rows) - before)

    def drop(self, block: Block) -> None:
        """Take a block away."""
        at = self._place(block)
        if at is None:
            return
        self._shift(at, -len(block.rows))
        del self.blocks[at]
        del self._tops[at + 1]

    def at(self, row: int) -> tuple[Block, int] | None:
        """Return the block that has a row, and the number of the row in it."""
        if not 0 <= row < self._tops[-1]:
            return None
        index = bisect.bisect_right(self._tops, row) - 1
        return self.blocks[index], row - self._tops[index]

    def strip(self, row: int) -> Strip | None:
        """Return a row."""
        found = self.at(row)
        return None if found is None or found[1] >= len(found[0].rows) else found[0].rows[found[1]]

    def index(self, row: int) -> int:
        """Return the place of the block that has a row, or the last one's."""
        return min(bisect.bisect_right(self._tops, row) - 1, max(0, len(self.blocks) - 1))

    def top(self, index: int) -> int:
        """Return the first row of the block at a place."""
        return self._tops[index]

    def is_stale(self, block: Block) -> bool:
        """Return whether a block is rendered for another width or palette."""
        return block.stamp != (self.width, self._generation)

    def renew(self, index: int) -> int:
        """Render the block at a place again if it is stale; return by how many rows it has become taller."""
        block = self.blocks[index]
        if not self.is_stale(block):
            return 0
        before = len(block.rows)
        self._render(block)
        by = len(block.rows) - before
        self._shift(index, by)
        return by

    def _render(self, block: Block) -> None:
        block.stamp = (self.width, self._generation)
        rows = block.draw(self._painter, self.width) if self.width > 0 else []
        block.rows = [Strip.blank(0), *rows] if block.gap and rows else rows

    def _place(self, block: Block) -> int | None:
        """Return where a block is, or None if it was cleared away; those that change are near the end."""
        for at in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[at] is block:
                return at
        return None

    def _shift(self, at: int, by: int) -> None:
        """Account for a block that has become taller or shorter."""
        if by:
            for index in range(at + 1, len(self._tops)):
                self._tops[index] += by
