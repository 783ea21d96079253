"""Search in rows: where a text is, which place is shown, and how rows are marked."""

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip


class RowSearch:
    """All places of one text, ignoring case."""

    def __init__(self) -> None:
        self._query = ""
        self._hits: list[tuple[int, int]] = []  # row and column of each
        self._hit = -1

    @property
    def is_on(self) -> bool:
        """Whether anything is searched for."""
        return bool(self._query)

    @property
    def place(self) -> tuple[int, int]:
        """Which hit is shown, of how many."""
        return (self._hit + 1 if self._hits else 0), len(self._hits)

    @property
    def row(self) -> int | None:
        """The row of the hit that is shown."""
        return self._hits[self._hit][0] if self._hits else None

    def begin(self, query: str, rows: Iterable[Strip]) -> None:
        """Find all places of a text, and begin at the last one."""
        self._query = query.casefold()
        self._hits, self._hit = [], -1
        self.renew(rows)
        if self._hits:
            self._hit = len(self._hits) - 1

    def renew(self, rows: Iterable[Strip]) -> None:
        """Find them again, because the rows have changed."""
        if not self._query:
            return
        self._hits = []
        for row, strip in enumerate(rows):
            text, at = strip.text.casefold(), -1
            while (at := text.find(self._query, at + 1)) != -1:
                self._hits.append((row, at))
        self._hit = min(self._hit, len(self._hits) - 1)

    def step(self, by: int) -> None:
        """Go to the next place, or the previous one."""
        if self._hits:
            self._hit = (self._hit + by) % len(self._hits)

    def marked(self, strip: Strip, row: int) -> Strip:
        """Return a row with its places marked."""
        text, at, size = strip.text, -1, len(self._query)
        folded = text.casefold()
        while (at := folded.find(self._query, at + 1)) != -1:
            is_shown = self._hit >= 0 and self._hit < len(self._hits) and self._hits[self._hit] == (row, at)
            style = Style(reverse=True, bold=True) if is_shown else Style(underline=True, bold=True)
            start = Strip([Segment(text[:at])]).cell_length
            end = start + Strip([Segment(text[at : at + size])]).cell_length
            strip = styled(strip, start, end, style)
        return strip


def styled(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """Return a row with one span of cells in a style."""
    start, end = max(0, start), min(end, strip.cell_length)
    if start >= end:
        return strip
    before, inside, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    marked = [Segment(text, (given or Style.null()) + style, control) for text, given, control in inside]
    return Strip([*before, *marked, *after])
