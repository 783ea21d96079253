"""Find tools by words in names, titles, descriptions and plugins, ranked and tolerant of typos. Pure.

The ranking is BM25 over weighted words. A word that no tool has matches similar words, with less weight.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.model.types import Tool

SATURATION = 1.2  # BM25's k1: how soon repetitions of a word stop adding weight
LENGTH = 0.5  # BM25's b: how much long texts are penalised; the length of descriptions means little
NAME, PLUGIN, TEXT = 4, 2, 1  # weight of a word by where it occurs
CLOSE = 0.5  # weight of a word that is only similar to the one asked for
SHORTEST_PREFIX = 3  # letters: "fore" finds "forecast"
ONE_SLIP, TWO_SLIPS = 4, 8  # minimum letters of a word for one or two typos
_SEAMS = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[A-Z][a-z])")  # word boundaries in camel case
_WORDS = re.compile(r"[^\W_]+")
_COMMON = frozenset(  # stop words
    """a an and are as at be by for from has i in into is it its me my of on or that the this to what with
    you""".split()  # noqa: SIM905 - a list would be longer and no clearer
)


class Found(msgspec.Struct, frozen=True):
    """A match and its score."""

    tool: Tool
    entry: Entry
    score: float


class Index:
    """The words of some tools."""

    def __init__(self, tools: Iterable[tuple[Tool, Entry]], snapshot: Snapshot) -> None:
        self._tools = list(tools)
        self._snapshot = snapshot
        self._words = [_weighted(tool, entry) for tool, entry in self._tools]
        self._lengths = [counts.total() for counts in self._words]
        self._average = sum(self._lengths) / max(len(self._lengths), 1) or 1.0
        self._holders: dict[str, list[int]] = {}
        for number, counts in enumerate(self._words):
            for word in counts:
                self._holders.setdefault(word, []).append(number)

    def find(self, query: str, most: int) -> list[Found]:
        """Return the best matches, best first; all tools in order for an empty query."""
        exact = self._named(query)
        scores: dict[int, float] = {} if exact is None else {exact: math.inf}
        asked = words(query)
        for word in dict.fromkeys(asked):
            for known, weight in self._like(word).items():
                for number in self._holders[known]:
                    scores[number] = scores.get(number, 0.0) + weight * self._score(known, number)
        if not asked and exact is None:
            scores = dict.fromkeys(range(len(self._tools)), 0.0)
        best = sorted(scores, key=lambda number: (-scores[number], number))[:most]
        return [Found(*self._tools[number], scores[number]) for number in best]

    def _named(self, query: str) -> int | None:
        """Find a tool with exactly this name."""
        name = query.strip()
        full = self._snapshot.aliases.get(name, name)
        return next((number for number, (tool, _) in enumerate(self._tools) if tool.name == full), None)

    def _score(self, word: str, number: int) -> float:
        often, holders = self._words[number][word], len(self._holders[word])
        rarity = math.log(1 + (len(self._tools) - holders + 0.5) / (holders + 0.5))
        room = SATURATION * (1 - LENGTH + LENGTH * self._lengths[number] / self._average)
        return rarity * often * (SATURATION + 1) / (often + room)

    def _like(self, word: str) -> dict[str, float]:
        """Return the known words that may be meant by a word, each with its weight."""
        if word in self._holders:
            return {word: 1.0}
        starts = {known: CLOSE for known in self._holders if len(word) >= SHORTEST_PREFIX and known.startswith(word)}
        if starts:
            return starts
        slips = 0 if len(word) < ONE_SLIP else 1 if len(word) < TWO_SLIPS else 2
        return {known: CLOSE for known in self._holders if slips and _is_within(word, known, slips)}


def words(text: str) -> list[str]:
    """Split a text or name into plain words: `getHTTPStatus_code` has four."""
    found = (_stem(part.lower()) for part in _WORDS.findall(_SEAMS.sub(" ", text)))
    return [word for word in found if word not in _COMMON]


def _weighted(tool: Tool, entry: Entry) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text, weight in (
        (tool.own_name, NAME),
        (tool.title, NAME),
        (entry.plugin.name, PLUGIN),
        (tool.namespace, PLUGIN),
        (tool.description, TEXT),
        (entry.plugin.description, TEXT),
        (" ".join(map(str, _parameters(tool))), TEXT),
    ):
        for word in words(text):
            counts[word] += weight
    return counts


def _parameters(tool: Tool) -> Iterable[str]:
    properties = tool.input_schema.get("properties")
    return properties if isinstance(properties, dict) else ()


def _stem(word: str) -> str:
    """Remove English endings, so that `file` finds `files`, and `searching` finds `search`."""
    if len(word) > ONE_SLIP and not word.endswith("ss"):
        for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
            if word.endswith(ending):
                word = word[: len(word) - len(ending)] + rest
                break
    return word[:-1] if len(word) >= ONE_SLIP and word.endswith("e") else word


def _is_within(left: str, right: str, slips: int) -> bool:
    """Return whether two words are at most this many insertions, deletions, replacements or swaps apart."""
    if abs(len(left) - len(right)) > slips:
        return False
    before: list[int] = []
    row = list(range(len(right) + 1))
    for at, letter in enumerate(left, 1):
        older, before, row = before, row, [at]
        for to, other in enumerate(right, 1):
            cost = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != other))
            if at > 1 and to > 1 and letter == right[to - 2] and left[at - 2] == other:
                cost = min(cost, older[to - 2] + 1)
            row.append(cost)
        if min(row) > slips:
            return False
    return row[-1] <= slips
