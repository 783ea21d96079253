"""Finds tools by words: names, titles, descriptions and plugins, ranked, and forgiving of typing errors. Pure.

The ranking is BM25 over weighted words. A word that no tool has counts as those that are close to it, for less.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.model.types import Tool

SATURATION = 1.2  # BM25's k1: how soon a word that is repeated counts no more
LENGTH = 0.5  # BM25's b: how much long texts count less; descriptions differ for no good reason
NAME, PLUGIN, TEXT = 4, 2, 1  # how often a word counts, by where it stands
CLOSE = 0.5  # what a word counts that is only near the one asked for
SHORTEST_PREFIX = 3  # letters: "fore" finds "forecast"
ONE_SLIP, TWO_SLIPS = 4, 8  # letters that a word must have to be allowed typing errors
_SEAMS = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[A-Z][a-z])")  # within names that have humps
_WORDS = re.compile(r"[^\W_]+")
_COMMON = frozenset(  # words that say nothing about a tool
    """a an and are as at be by for from has i in into is it its me my of on or that the this to what with
    you""".split()  # noqa: SIM905 - a list would be longer and no clearer
)


class Found(msgspec.Struct, frozen=True):
    """A tool that was found, and how well it fits."""

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
        """Return the tools that fit best, the best first; all in their order if nothing is asked for."""
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
        """Find a tool that is called just so."""
        name = query.strip()
        full = self._snapshot.aliases.get(name, name)
        return next((number for number, (tool, _) in enumerate(self._tools) if tool.name == full), None)

    def _score(self, word: str, number: int) -> float:
        often, holders = self._words[number][word], len(self._holders[word])
        rarity = math.log(1 + (len(self._tools) - holders + 0.5) / (holders + 0.5))
        room = SATURATION * (1 - LENGTH + LENGTH * self._lengths[number] / self._average)
        return rarity * often * (SATURATION + 1) / (often + room)

    def _like(self, word: str) -> dict[str, float]:
        """Return the words of tools that may be meant by a word, each with what it counts."""
        if word in self._holders:
            return {word: 1.0}
        starts = {known: CLOSE for known in self._holders if len(word) >= SHORTEST_PREFIX and known.startswith(word)}
        if starts:
            return starts
        slips = 0 if len(word) < ONE_SLIP else 1 if len(word) < TWO_SLIPS else 2
        return {known: CLOSE for known in self._holders if slips and _is_within(word, known, slips)}


def words(text: str) -> list[str]:
    """Divide a text or a name into plain words: `getHTTPStatus_code` has four."""
    found = (_stem(part.lower()) for part in _WORDS.findall(_SEAMS.sub(" ", text)))
    return [word for word in found if word not in _COMMON]


def _weighted(tool: Tool, entry: Entry) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text, weight in (
        (tool.own_name, NAME),
        (tool.title, NAME),
        (entry.plugin.name, PLUGIN),
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
    """Cut English endings off, so that `file` finds `files`, and `searching` finds `search`."""
    if len(word) > ONE_SLIP and not word.endswith("ss"):
        for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
            if word.endswith(ending):
                word = word[: len(word) - len(ending)] + rest
                break
    return word[:-1] if len(word) >= ONE_SLIP and word.endswith("e") else word


def _is_within(left: str, right: str, slips: int) -> bool:
    """Whether one word becomes another by so few letters added, left out, replaced or swapped with the next."""
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
