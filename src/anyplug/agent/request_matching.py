"""Find the tool that a plain request means. `request_arguments` finds its arguments. Pure.

Nothing is guessed: if two tools fit equally well, or none fits well, no tool is chosen.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from anyplug.agent.request_words import (
    CAMEL,
    EXPRESSION,
    FORMS,
    LOOKING,
    PAIR,
    QUOTED,
    SAME,
    STOP,
    UNDOING,
    VERB_STEMS,
    WORD,
    meaning,
    stem,
    telling,
    values,
)

OF_NAME, OF_DESCRIPTION, OF_PARAMETERS, OF_PLUGIN = 3.0, 1.0, 0.7, 2.0  # how much a word counts, by where it is
OF_FIRST = 1.5  # the first sentence of a description
WHOLE_NAME = 1.5  # for each word, if all words of a tool's name are in the request
EARLY, EARLY_WORDS = 1.5, 4  # the first words of a request say most
LATE = 0.5  # those after twice as many say least
OF_VERB = 0.6  # people say "show", "list" and "get" as they like
OF_VERB_ALONE = 0.6  # if it is all that a tool shares with a request
OF_OTHER_VERB = 0.75  # if the request wants something done, and the tool's name says that it does something else
OF_OPPOSITE = 0.2  # if only one of them takes something away
OF_SYNONYM = 0.6
OF_BEGINNING = 1.0  # if a tool's name has the word that the request begins with
OF_FORM = 1.5  # if a value in the request has the form of a parameter
OF_LANGUAGE = 4.0  # if it is written in a language that only such a tool reads
OF_NUMBER = 0.5  # if it has a number, and the tool takes one
LANGUAGES = frozenset({"sql", "command", "expression"})
LEAST = 2.5  # score of a tool that is meant
LEAST_ALONE = 1.5  # if it can be called, and no other tool fits as well
NEAR = 1.6  # others whose score is within this factor may be meant, too
LEAD = 1.12  # how much better than the second it must be, if both could be called
COVERED = 0.25  # share of the request's telling words that a tool must know
MOST_CANDIDATES = 3
NAMED = re.compile(
    r"^\s*(?:please\s+)?(?:call|run|use|invoke|execute|try)\s+(?:the\s+)?(?:tool\s+)?[`'\"]?([\w./-]+)[`'\"]?\s*",
    re.IGNORECASE,
)


NAME = re.compile(r"(?<=[a-z] )[A-Z][a-z]\w*")  # a capital letter, but not at the beginning of a sentence
QUESTION = re.compile(r"\W*(?:what|which|how|who|when|where|is|are)\b", re.IGNORECASE)

CanCall = Callable[["Match"], bool]


SHAPES: dict[str, type | tuple[type, ...]] = {
    "type": (str, list), "enum": list, "description": str, "format": str, "items": dict,
}  # fmt: skip


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    schema: dict[str, Any]

    @property
    def about(self) -> str:
        """Its description without the plugin's name and the plugin's own description."""
        return re.sub(r"^\[Plugin: [^\]]*\]\s*", "", self.description).partition("\n\nThe plugin:")[0]

    @property
    def plugin(self) -> str:
        """Its plugin, as the description names it."""
        found = re.match(r"^\[Plugin: ([^\]]*)\]", self.description)
        return found[1] if found else ""

    @property
    def properties(self) -> dict[str, Any]:
        """Its parameters, with what their schemas say that is well-formed."""
        given = self.schema.get("properties")
        if not isinstance(given, dict):
            return {}
        return {name: _well_formed(about) for name, about in given.items() if isinstance(about, dict)}

    @property
    def required(self) -> list[str]:
        """Those of them that a call must have."""
        given, known = self.schema.get("required"), self.properties
        return [name for name in given if isinstance(name, str) and name in known] if isinstance(given, list) else []


def _well_formed(about: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if isinstance(value, SHAPES.get(key, object))}


class Match(msgspec.Struct, frozen=True):
    """The tool that is meant, and what of the request remains for its arguments; or those that may be meant."""

    tool: ToolSpec | None = None
    rest: str = ""
    is_named: bool = False
    candidates: tuple[ToolSpec, ...] = ()


def match(request: str, tools: list[ToolSpec], can_call: CanCall) -> Match:
    """Find the tool that a request means.

    `can_call` tells whether the request has all that a tool requires: of several that may be meant, those count first.
    """
    if (named := _named(request, tools)) is not None:
        return named
    scored = sorted(_scores(request, tools), key=lambda one: -one[1])
    near = [(tool, score) for tool, score in scored if score * NEAR > scored[0][1] and score >= LEAST]
    weak = [(tool, score) for tool, score in scored if score >= LEAST_ALONE and score * LEAD > scored[0][1]]
    if not near and len(weak) == 1 and can_call(Match(tool=weak[0][0], rest=request)):
        return Match(tool=weak[0][0], rest=request)
    if not near:
        return Match(candidates=tuple(tool for tool, score in scored[:MOST_CANDIDATES] if score >= LEAST / 2))
    ready = [(tool, score) for tool, score in near if can_call(Match(tool=tool, rest=request))]
    if not ready:
        near = [(tool, score) for tool, score in near if score * LEAD > near[0][1]]
        return Match(tool=near[0][0], rest=request) if len(near) == 1 else Match(candidates=_first(near))
    rivals = [(tool, score) for tool, score in ready if score * LEAD > ready[0][1]]
    return Match(tool=ready[0][0], rest=request) if len(rivals) == 1 else Match(candidates=_first(rivals))


def _first(scored: list[tuple[ToolSpec, float]]) -> tuple[ToolSpec, ...]:
    return tuple(tool for tool, _ in scored[:MOST_CANDIDATES])


def _named(request: str, tools: list[ToolSpec]) -> Match | None:
    """Return the tool that a request names literally."""
    begin = NAMED.match(request)
    if begin:
        for tool in tools:
            if begin[1].lower() in _spellings(tool):
                return Match(tool=tool, rest=request[begin.end() :], is_named=True)
    for tool in sorted(tools, key=lambda tool: -len(tool.name)):
        for spelling in _spellings(tool):
            if not re.search(r"[_.-]", spelling) and spelling != request.split(" ", maxsplit=1)[0].lower():
                continue  # a single word may be meant as a word
            found = re.search(rf"(?<![\w.-])`?{re.escape(spelling)}`?(?![\w-])", request, re.IGNORECASE)
            if found and (re.search(r"[_.-]", spelling) or not tool.properties or found.start() == 0):
                is_word = not re.search(r"[_.-]", spelling)
                if is_word and not PAIR.search(request) and (spelling in SAME or found.end() == len(request)):
                    continue  # `read` may be meant as a word; `slugify` is not
                return Match(tool=tool, rest=f"{request[: found.start()]} {request[found.end() :]}", is_named=True)
    return None


def _spellings(tool: ToolSpec) -> set[str]:
    name = tool.name.lower()
    return {name, name.replace("_", "-"), name.replace("_", ".")}


def _scores(request: str, tools: list[ToolSpec]) -> list[tuple[ToolSpec, float]]:
    """Score each tool by the words that it shares with a request, rare ones more than common ones."""
    asked = _weights(request)
    places = {tool.name: _places(tool) for tool in tools}
    spread = Counter(word for known in places.values() for word in known)
    total = len(tools) + 1
    kinds = {value.kind for value in values(request)} | ({"expression"} if EXPRESSION.search(request) else set())
    names, first = _names(request), next(iter(asked), "")
    scored = []
    for tool in tools:
        known, score, covered, is_noun = places[tool.name], 0.0, 0.0, False
        for word, weight in asked.items():
            found = word if word in known else _meant(word)
            if found in known:
                rare = math.log(1 + total / spread[found]) / math.log(1 + total)
                factor = (1.0 if found == word else OF_SYNONYM) * (OF_VERB if word in VERB_STEMS else 1.0)
                score += weight * known[found] * (0.4 + 0.6 * rare) * factor
                covered += weight
                is_noun = is_noun or word not in VERB_STEMS
        name = telling(tool.name)
        if name and all(word in asked for word in name):
            score += WHOLE_NAME * len(name)
        if first in name:
            score += OF_BEGINNING
        else:
            score *= _likeness(first, name, is_question=bool(QUESTION.match(request)))
        formed = {kind for kind in kinds if _has_form(tool, kind)}
        is_language = bool(formed & LANGUAGES)
        if not (is_noun or formed or VERB_STEMS.issuperset(name)):
            score *= OF_VERB_ALONE
        if score or is_language:
            score += OF_LANGUAGE if is_language else OF_FORM if formed else 0.0
            score += OF_NUMBER * ("number" in kinds and _takes_numbers(tool))
        if score and (is_language or covered >= COVERED * sum(asked[word] for word in asked if word not in names)):
            scored.append((tool, score))
    return scored


def _has_form(tool: ToolSpec, kind: str) -> bool:
    called = FORMS.get(kind, ())
    return any(name.lower() in called for name in tool.properties)


def _likeness(verb: str, name: list[str], *, is_question: bool) -> float:
    """Return how much a tool still counts whose name has other verbs than the one that a request begins with."""
    does = {meaning(word) for word in name if word in VERB_STEMS}
    wants = {meaning(verb)} if verb in VERB_STEMS else set()
    if not does or wants & does:
        return 1.0
    if bool(wants & UNDOING) != bool(does & UNDOING) and wants:
        return OF_OPPOSITE
    is_other = not does & LOOKING if is_question else bool(wants - LOOKING)
    return OF_OTHER_VERB if is_other else 1.0


def _takes_numbers(tool: ToolSpec) -> bool:
    kinds = (about.get("type") for about in tool.properties.values())
    return any(kind in ("integer", "number") for kind in kinds)


def _names(request: str) -> set[str]:
    """Return the stems of names, which say nothing about the tool: `Berlin` in `from Berlin to Munich`."""
    return {stem(word) for word in NAME.findall(request)}


def _weights(request: str) -> dict[str, float]:
    """Return the telling words of a request, with more weight for the first; values are not words."""
    plain = request
    for value in reversed(values(request)):
        if value.kind != "number":
            word = " url " if "://" in value.text else " folder " if value.text == "." else " "
            plain = plain[: value.begin] + word + plain[value.end :]
    plain = PAIR.sub(lambda found: f" {found[1]} ", QUOTED.sub(" ", plain))
    weights: dict[str, float] = {}
    told = [word for word in WORD.findall(CAMEL.sub(" ", plain)) if word.lower() not in STOP and not word.isdigit()]
    for at, word in enumerate(told):
        weight = EARLY if at < EARLY_WORDS else 1.0 if at < 2 * EARLY_WORDS else LATE
        weights.setdefault(stem(word), weight)
    return weights


def _places(tool: ToolSpec) -> dict[str, float]:
    """Return how much each word of a tool counts."""
    known: dict[str, float] = {}
    parameters = " ".join(
        f"{name} {' '.join(map(str, about.get('enum', ())))} {about.get('description', '')}"
        for name, about in tool.properties.items()
    )
    for text, weight in (
        (tool.name, OF_NAME),
        (tool.plugin, OF_PLUGIN),
        (tool.about.partition(". ")[0], OF_FIRST),
        (tool.about, OF_DESCRIPTION),
        (parameters, OF_PARAMETERS),
    ):
        for word in telling(text):
            known[word] = max(weight, known.get(word, 0.0))
            known.setdefault(_meant(word), weight)
    return known


def _meant(word: str) -> str:
    """Return what stands for all words that mean the same, and for none of them."""
    return f"={meaning(word)}"
