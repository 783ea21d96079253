"""Find a tool's arguments in a plain request: by name, by the form of values, by position. Pure.

`count the words in to be or not to be`, `set color to blue`, `call kv_set key=color value=blue`. Missing required
arguments are not made up.
"""

import json
import re
from typing import Any

import msgspec

from anyplug.agent.request_matching import Match, ToolSpec
from anyplug.agent.request_words import (
    CAMEL,
    EXPRESSION,
    FORMS,
    STOP,
    VERB_STEMS,
    WORD,
    Value,
    json_object,
    pairs,
    stem,
    telling,
    unquoted,
    values,
    words,
)

CONNECTORS = (
    "in of for from to into with about as on at by under that saying named called titled labelled tagged than is "
    "equals between using and"
)
LITTLE_WORDS = "in of for from to on at by with under"  # they belong to what follows
LITTLE = re.compile(rf"\b(?:{'|'.join(LITTLE_WORDS.split())})\s+(?:(?:the|a|an|my)\s+)?$", re.IGNORECASE)
SPLIT = re.compile(rf"(?:^|\s+|(?<=\s))({'|'.join(CONNECTORS.split())})\s+|\s*(:|→|->)\s+", re.IGNORECASE)
# Which words usually stand before a value, by words in the name or description of its parameter.
BEFORE = {
    "path file filename directory folder dir": "in from at of",
    "new replacement": "with by to",
    "old": "",
    "to target destination dest recipient language lang currency unit into": "to into in as",
    "from source base origin": "from",
    "query q pattern term keyword search needle topic subject word": "for about of on",
    "city location place town country region zone timezone": "in for at of",
    "value": "to as is equals with",
    "key name title label": "named called titled labelled as of",
    "category": "under for in as",
    "tag tags list project": "under with tagged in as to on",
    "date day when time deadline due": "on at for by in",
    "text content message body note sentence string input": "in of saying that from with on as for",
    "url link address site page": "at from of for to",
    "expression formula": "of is",
    "artist author writer owner assignee creator": "by",
}
USUAL = ["of", "for", "in", "to", "with", "about", "on", "that"]  # before the only text of a call
COUNTS = frozenset(["count", "number", "n", "limit", "times", "amount", "top", "max"])  # parameters that say how many
MADE_OF_TEXT = frozenset(
    [
        "text",
        "content",
        "message",
        "body",
        "note",
        "sentence",
        "string",
        "input",
        "title",
        "task",
        "item",
        "name",
        "summary",
    ]
)
FEW = 3  # words
KEYS = frozenset(["key", "name", "id", "label", "variable", "alias", "term"])
FORMED = frozenset(  # parameters whose values have a form that other words lack
    ["path", "file", "filename", "url", "link", "uri", "email", "date", "sql", "command"]
)
RIGID = frozenset(["url", "link", "uri", "email", "sql", "command", "hex"])  # and these have no other values
DOCUMENTS = ("json", "document", "data", "payload", "input", "text", "content", "body")
QUERIES = frozenset(["query", "q", "keyword", "keywords", "term", "search", "topic", "ingredient", "subject"])
OWN = ("artist", "author", "writer", "owner", "assignee", "creator")  # parameters that `by` stands before
TELLING = frozenset({"under", "tagged", "to", "into", "from", "by"})  # of the words before values, those that say most
YES = frozenset(["true", "yes", "on", "1", "y"])
NO = frozenset(["false", "no", "off", "0", "n"])


class Filled(msgspec.Struct, frozen=True):
    """Arguments, and the required ones that are missing."""

    arguments: dict[str, Any]
    missing: tuple[str, ...]


def fill(found: Match) -> Filled:
    """Return the arguments of a match."""
    assert found.tool is not None
    return _Filling(found.tool, found.rest, is_named=found.is_named).filled()


def typed(value: str, about: dict[str, Any]) -> Any:
    """Return a written value as its schema wants it; None if it cannot be that."""
    kind = _kind(about)
    choices = about.get("enum")
    if isinstance(choices, list) and choices:
        return next((one for one in choices if _plain(str(one)) == _plain(value)), None)
    try:
        match kind:
            case "integer":
                return int(value.replace(",", ""))
            case "number":
                read = float(value.replace(",", ""))
                return int(read) if read.is_integer() and "." not in value else read
            case "boolean":
                return True if value.lower() in YES else False if value.lower() in NO else None
            case "array":
                return _array(value, about)
            case "object":
                read = json.loads(value)
                return read if isinstance(read, dict) else None
    except ValueError:
        return None
    return value


class _Filling:
    def __init__(self, tool: ToolSpec, rest: str, *, is_named: bool) -> None:
        self._tool = tool
        self._is_named = is_named
        given, rest = json_object(rest)
        written, rest = pairs(rest)
        self._rest = rest.strip().rstrip("?!")
        self._open = tool.properties
        self._required = tool.required
        self._arguments: dict[str, Any] = {}
        if given and self._open.keys().isdisjoint(given):
            document = next((one for one in self._open if _called(one, self._open[one], DOCUMENTS)), "")
            if document and _takes_text(self._open[document]):
                self._put(document, json.dumps(given))
                given = None
        for name, value in (given or {}).items():
            self._arguments[name] = value
            self._open.pop(name, None)
        for name, text in written.items():
            real = self._real(name)
            about = self._open.get(real, {})
            value = typed(text, about) if about else text
            if value is not None:
                self._put(real, value)
        self._values = values(self._rest)

    def filled(self) -> Filled:
        """Find what can be found."""
        self._after_names()
        self._enums()
        self._booleans()
        self._by_form()
        self._numbers()
        self._texts()
        missing = tuple(name for name in self._required if name not in self._arguments)
        return Filled(self._arguments, missing)

    def _real(self, name: str) -> str:
        plain = _plain(name)
        return next((one for one in self._open if _plain(one) == plain), name)

    def _put(self, name: str, value: Any) -> None:
        self._arguments[name] = value
        self._open.pop(name, None)

    def _spend(self, value: Value, name: str = "") -> None:
        """Take a value and the words that belong to it out of the request, without moving what follows."""
        self._values.remove(value)
        begin = value.begin
        if name and (named := re.search(rf"\b{_spoken(name)}\s*(?:is|of|:)?\s*$", self._rest[:begin], re.IGNORECASE)):
            begin = named.start()
        if (before := LITTLE.search(self._rest[:begin])) is not None:
            begin = before.start()
        self._blank(begin, value.end)

    def _after_names(self) -> None:
        """Take what stands beside a parameter's own name: `top 2`, `20 sides`, `key apple`, `title "A day"`."""
        for name, about in list(self._open.items()):
            spoken = _spoken(name)
            kind = _kind(about)
            if kind in {"integer", "number"}:
                self._number_beside(name, spoken)
            elif kind == "string" and not about.get("enum"):
                self._quoted_after(name, spoken)
                if name in self._open and not _is_prose(name):
                    self._word_after(name, spoken)

    def _number_beside(self, name: str, spoken: str) -> None:
        for value in [one for one in self._values if one.kind == "number"]:
            is_before = re.search(rf"\b{spoken}s?\s*(?:is|of|to|=|:)?\s*$", self._rest[: value.begin], re.IGNORECASE)
            is_after = re.match(rf"\s*{spoken}\b", self._rest[value.end :], re.IGNORECASE)
            number = typed(value.text, self._open[name])
            if (is_before or is_after) and number is not None:
                self._put(name, number)
                self._spend(value)
                self._blank_all(rf"\b{spoken}s?\b")
                return

    def _quoted_after(self, name: str, spoken: str) -> None:
        for value in [one for one in self._values if one.kind == "quoted"]:
            if re.search(rf"\b{spoken}\s*(?:is|of|to|=|:)?\s*$", self._rest[: value.begin], re.IGNORECASE):
                self._put(name, value.text)
                self._spend(value)
                return

    def _word_after(self, name: str, spoken: str) -> None:
        is_or_called = r"(?:is\s+|named\s+|called\s+)?"
        found = re.search(rf"\b{spoken}\s+{is_or_called}([A-Z][\w-]*(?:\s[A-Z][\w-]*)*|[\w@.+-]+)", self._rest)
        if found is None or found[1].lower() in STOP or found[1].lower() in CONNECTORS.split():
            return
        others = [value for value in self._values if value.kind != "number"]
        if not any(value.begin < found.end() and found.start(1) < value.end for value in others):
            self._put(name, found[1])
            before = LITTLE.search(self._rest[: found.start()])
            self._blank(before.start() if before else found.start(), found.end())

    def _blank_all(self, pattern: str) -> None:
        self._rest = re.sub(pattern, lambda one: " " * len(one[0]), self._rest, flags=re.IGNORECASE)

    def _blank(self, begin: int, end: int) -> None:
        """Take a part out of the request, without moving what follows."""
        self._rest = self._rest[:begin] + " " * (end - begin) + self._rest[end:]

    def _enums(self) -> None:
        said = _plain(self._rest)
        for name, about in list(self._open.items()):
            choices = about.get("enum")
            if not isinstance(choices, list):
                continue
            spoken = [one for one in choices if re.search(rf"(?<!\w){re.escape(_plain(str(one)))}(?!\w)", said)]
            if not spoken:
                stems = set(words(self._rest))
                spoken = [one for one in choices if isinstance(one, str) and stem(one) in stems and len(one) >= FEW]
            if spoken:
                one = max(spoken, key=lambda choice: len(str(choice)))
                self._put(name, one)
                little = "|".join(LITTLE_WORDS.split())
                self._blank_all(rf"(?:\b(?:{little})\s+)?(?<!\w){re.escape(str(one))}(?!\w)(?:\s+{_spoken(name)}\b)?")

    def _booleans(self) -> None:
        stems = words(self._rest)
        for name, about in list(self._open.items()):
            if _kind(about) != "boolean":
                continue
            own = telling(name)
            if own and all(word in stems for word in own):
                is_no = re.search(rf"\b(?:without|no|not|don't)\s+(?:\w+\s+)?{own[0][:4]}", self._rest, re.IGNORECASE)
                self._put(name, not is_no)

    def _by_form(self) -> None:
        """Addresses, paths, dates and colours go to the parameters that are called so."""
        for kind, called in FORMS.items():
            for value in [one for one in self._values if one.kind == kind]:
                fitting = [
                    name for name, about in self._open.items() if _takes_text(about) and _called(name, about, called)
                ]
                fitting.sort(key=lambda name: (_rank(name, called), name not in self._required))
                if fitting:
                    name = self._by_connector(value, fitting)
                    self._put_text(name, value.text)
                    self._spend(value, name)

    def _by_connector(self, value: Value, names: list[str]) -> str:
        """If several parameters fit, prefer the one that the word before the value belongs to."""
        before = re.search(r"(\w+)\s*$", self._rest[: value.begin])
        word = before[1].lower() if before else ""
        return next((name for name in names if name.lower() == word), names[0])

    def _numbers(self) -> None:
        numbers = [value for value in self._values if value.kind == "number"]
        numeric = [name for name, about in self._open.items() if _kind(about) in {"integer", "number"}]
        counting = [name for name in numeric if _plain(name) in COUNTS]
        for value in list(numbers):
            noun = re.match(r"\s*(\w+)", self._rest[value.end :])
            if counting and noun and stem(noun[1]) in self._known_words():  # `roll 2 dice`
                name = counting.pop(0)
                self._put(name, typed(value.text, self._open[name]))
                self._spend(value)
                numbers.remove(value)
                numeric.remove(name)
        wanted = [name for name in numeric if name in self._required]
        if (not wanted and len(numeric) == 1 and len(numbers) == 1) or (
            len(numbers) > len(wanted) == 0 and len(numeric) >= len(numbers) and not self._open_required()
        ):
            wanted = numeric
        for name, value in zip(wanted, list(numbers), strict=False):
            if (number := typed(value.text, self._open[name])) is not None:
                self._put(name, number)
                self._spend(value)
        left = [value for value in self._values if value.kind == "number"]
        for name, about in list(self._open.items()):
            inner = about.get("items")
            if _kind(about) == "array" and isinstance(inner, dict) and _kind(inner) in {"number", "integer"} and left:
                self._put(name, [typed(value.text, inner) for value in left])
                for value in left:
                    self._spend(value)
                break

    def _open_required(self) -> list[str]:
        return [name for name in self._required if name in self._open]

    def _texts(self) -> None:
        """Assign what is left of the request to the parameters that take text, required ones first."""
        wanted = [name for name in self._open if _takes_text(self._open[name]) and name in self._required]
        quoted = [value for value in self._values if value.kind == "quoted"]
        if quoted and not wanted:
            wanted = [name for name in self._open if _takes_text(self._open[name])][: len(quoted)]
        segments = self._segments()
        if len(quoted) >= len(wanted) > 0:
            self._quoted(wanted, quoted)
            return
        if len(wanted) == 1:
            self._one(wanted[0], quoted, segments)
        elif wanted:
            self._several(wanted, quoted, segments)
        self._optional(segments)

    def _quoted(self, names: list[str], quoted: list[Value]) -> None:
        left = list(names)
        for value in quoted[: len(names)]:
            before = re.search(r"(\w+)\W*$", self._rest[: value.begin])
            word = before[1].lower() if before else ""
            name = next(
                (one for one in left if word and (_plain(one) == word or word in _before(one, self._open[one]))),
                left[0],
            )
            name = left[0] if len(left) == len(quoted) == len(names) and not _names(word, left) else name
            left.remove(name)
            self._put_text(name, value.text)

    def _one(self, name: str, quoted: list[Value], segments: list[tuple[str, str]]) -> None:
        about = self._open[name]
        if quoted:
            self._put_text(name, quoted[0].text)
            return
        found = EXPRESSION.search(self._rest) if _called(name, about, FORMS["expression"]) else None
        if found is not None:
            self._put_text(name, found[0].strip())
            return
        text = self._free_text(name, about, segments)
        if text:
            self._put_text(name, text)

    def _free_text(self, name: str, about: dict[str, Any], segments: list[tuple[str, str]]) -> str:
        """Return the text that stands where a parameter's value would."""
        whole = self._rest
        if (colon := re.search(r"[:→]\s+(\S.*)$", whole, re.DOTALL)) is not None:
            return colon[1].strip()
        if self._is_named:
            return re.sub(r"^\s*(?:with|on|for|in|of|to)\s+", "", whole).strip()
        if _plain(name) in RIGID:
            return ""
        before = _before(name, about) or USUAL
        is_text = _is_prose(name)
        spoken = self._known_words()
        for at, (connector, segment) in enumerate(segments):
            behind = _joined(segments[at:])
            is_bare = is_text and bool(behind.strip()) and not telling(behind)  # a text of such words only
            if connector in before and (is_bare or not _is_known(segment, spoken)):
                is_all = is_text or (_plain(name) in QUERIES and not self._others(name))
                rest = self._own(segments[at:], spoken) if is_all else [segments[at]]
                text = _joined(rest).strip(" .,")
                return text if is_text or _kind(about) == "array" else text.partition(",")[0].strip()
        return "" if _plain(name) in FORMED else self._without_verbs(spoken)

    def _others(self, name: str) -> list[str]:
        """Return the other parameters that could take a text."""
        return [other for other in self._open if other != name and _takes_text(self._open[other])]

    def _own(self, segments: list[tuple[str, str]], spoken: set[str]) -> list[tuple[str, str]]:
        """Leave out what names the tool at the end, `to my list`, and what belongs to another parameter, `by Ann`."""
        while len(segments) > 1:
            connector, text = segments[-1]
            is_anothers = any(_called(name, self._open[name], OWN) for name in self._open) and connector == "by"
            is_tools = (
                connector in {"to", "in", "on", "from", "into", "as"}
                and telling(text)
                and (spoken.issuperset(telling(text)))
            )
            if not (is_anothers or is_tools):
                break
            segments = segments[:-1]
        return segments

    def _without_verbs(self, spoken: set[str]) -> str:
        """Return a request without the words at its begin and end that named the tool: `decode QQ== from base64`."""
        segments = self._segments()
        own = self._own(segments, spoken)
        pieces = re.findall(r"\S+\s*", _joined(own) if len(own) < len(segments) else self._rest)
        if pieces and stem(re.sub(r"\W", "", pieces[0])) in VERB_STEMS:
            pieces.pop(0)
        before = ""
        while pieces:
            bare = re.sub(r"\W", "", pieces[0]).lower()
            if bare and bare not in STOP and stem(bare) not in spoken:
                break
            pieces.pop(0)
            if bare == "to" and before in {"me", "us"}:  # what follows is to be done: `remind me to call Ann`
                break
            before = bare
        while pieces and re.sub(r"\W", "", pieces[-1]).lower() in STOP | {""}:
            pieces.pop()
        return "".join(pieces).strip(" .,")

    def _known_words(self) -> set[str]:
        about = " ".join([self._tool.name, self._tool.plugin, self._tool.about.partition(". ")[0]])
        return set(telling(about)) | {stem(word) for name in self._tool.properties for word in telling(name)}

    def _several(self, names: list[str], quoted: list[Value], segments: list[tuple[str, str]]) -> None:
        """Assign each of several texts to the parameter that its connector belongs to, the rest in order."""
        spoken = self._known_words()
        left, free = list(names), [value.text for value in quoted]
        for value in list(quoted):
            self._spend(value)
        segments = self._segments()
        told = [(connector, text.strip(" .,")) for connector, text in segments]
        told = [
            (connector, self._trimmed(text, spoken) if not at else text) for at, (connector, text) in enumerate(told)
        ]
        told = [(connector, text) for connector, text in told if text]
        for connector, text in list(told):
            fitting = [name for name in left if connector and connector in _before(name, self._open[name])]
            if fitting and len(left) > 0:
                name = min(fitting, key=lambda one: _before(one, self._open[one]).index(connector))
                left.remove(name)
                told.remove((connector, text))
                self._put_text(name, text)
        texts = [*free, *(text for _, text in told)]
        if len(left) > 1 and len(texts) == 1 and (_plain(left[0]) in KEYS or texts[0].count(" ") == 1):
            first, _, second = texts[0].partition(" ")  # `set color blue`
            texts = [first, second] if second else texts
        for name, text in zip(left, texts, strict=False):
            self._put_text(name, text)

    def _trimmed(self, text: str, spoken: set[str]) -> str:
        pieces = text.split()
        while pieces and (pieces[0].lower() in STOP or stem(pieces[0]) in spoken | VERB_STEMS):
            pieces.pop(0)
        return " ".join(pieces)

    def _optional(self, segments: list[tuple[str, str]]) -> None:
        """Assign to optional texts only what clearly belongs to them: what follows their own name."""
        for name, about in list(self._open.items()):
            if not _takes_text(about):
                continue
            spoken = _spoken(name)
            word = r"[\w@.+-]+"
            value = rf"{word}(?:\s*,\s*{word})*" if _kind(about) == "array" else word
            found = re.search(rf"\b(?:{spoken})\s+(?:is\s+|of\s+|to\s+)?({value})", self._rest, re.IGNORECASE)
            if found:
                self._put_text(name, found[1])
                continue
            self._take_segment(name, about, segments)

    def _take_segment(self, name: str, about: dict[str, Any], segments: list[tuple[str, str]]) -> None:
        """Assign an optional text what stands after a word that can only mean it, and that nothing else has taken."""
        taken = [value for value in self._arguments.values() if isinstance(value, str)]
        telling_ones = TELLING & set(_before(name, about))
        if _plain(name) in QUERIES and not taken:
            telling_ones = frozenset(_before(name, about))
        elif not _called(
            name, about, ("tag", "tags", "category", "list", "project", "language", "unit", "currency", *OWN)
        ):
            return
        if _plain(name) == "category":
            telling_ones = frozenset(_before(name, about))
        for connector, text in segments:
            if connector in telling_ones and text.strip() and not any(text.strip() in value for value in taken):
                self._put_text(name, text.strip(" .,"))
                return

    def _segments(self) -> list[tuple[str, str]]:
        """Split what is left by the words that stand before values."""
        parts: list[tuple[str, str]] = []
        connector, at = "", 0
        for found in SPLIT.finditer(self._rest):
            parts.append((connector, self._rest[at : found.start()]))
            connector, at = (found[1] or ":").lower(), found.end()
        parts.append((connector, self._rest[at:]))
        return parts

    def _is_long(self, name: str) -> bool:
        """Return whether a parameter takes a text of any length, in which an article is a part of it."""
        return _plain(name) in {"text", "content", "message", "body", "note", "sentence", "input", "summary"}

    def _put_text(self, name: str, text: str) -> None:
        about = self._open[name]
        bare = unquoted(text)
        if bare == text and self._is_long(name):
            bare = re.sub(r"^(?:the\s+)?(?:text|content|body|message)\s+(?=\S)", "", bare)
        elif bare == text:
            spoken = re.escape(self._tool.plugin.rstrip("s")) if self._tool.plugin else "$^"
            bare = re.sub(rf"(?<=\w)\s+{_spoken(name)}$", "", bare, flags=re.IGNORECASE)
            bare = re.sub(rf"^(?:the|a|an|my)\s+(?:(?i:{spoken})\s+)?(?=\S)", "", bare)
        if _kind(about) == "array":
            bare = re.sub(rf"^{_spoken(name)}\s+(?:(?:is|are|of)\s+)?(?=\S)", "", bare, flags=re.IGNORECASE)
        value = typed(bare, about)
        if value is not None and value != "":
            self._put(name, value)


def _spoken(name: str) -> str:
    """Return a pattern for a parameter's name as people write it."""
    return re.escape(name).replace("_", "[ _-]")


def _joined(segments: list[tuple[str, str]]) -> str:
    first = segments[0][1]
    return first + "".join(f" {connector} {text}" for connector, text in segments[1:])


def _is_prose(name: str) -> bool:
    """Return whether a parameter takes text of any length."""
    return _plain(name) in MADE_OF_TEXT or bool(set(telling(name)) & {stem(word) for word in MADE_OF_TEXT})


def _is_known(segment: str, spoken: set[str]) -> bool:
    told = telling(segment)
    if not told:
        return len(segment.split()) < FEW - 1
    return all(word in spoken for word in told) and len(told) < FEW


def _names(word: str, names: list[str]) -> bool:
    return any(_plain(name) == word for name in names)


def _before(name: str, about: dict[str, Any]) -> list[str]:
    """Return the words that usually stand before a parameter's value."""
    parts = [_plain(name), *(word.lower() for word in WORD.findall(CAMEL.sub(" ", name)))]
    for part in [*parts, *map(stem, parts)]:
        for called, connectors in BEFORE.items():
            if part in called.split():
                return connectors.split()
    return []


def _called(name: str, about: dict[str, Any], called: tuple[str, ...]) -> bool:
    own = {_plain(name), *(part.lower() for part in re.split(r"[_\W]|(?<=[a-z])(?=[A-Z])", name))}
    return bool(own & set(called)) or about.get("format") in {"uri", "email", "date"} & set(called)


def _rank(name: str, called: tuple[str, ...]) -> int:
    own = _plain(name)
    return called.index(own) if own in called else len(called)


def _takes_text(about: dict[str, Any]) -> bool:
    kind = _kind(about)
    inner = about.get("items")
    is_list = kind == "array" and (not isinstance(inner, dict) or _kind(inner) == "string")
    return (kind == "string" and not about.get("enum")) or is_list


def _kind(about: dict[str, Any]) -> str:
    kind = about.get("type", "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "string")
    return kind if isinstance(kind, str) else "string"


def _array(value: str, about: dict[str, Any]) -> list[Any] | None:
    if value.startswith("["):
        read = json.loads(value)
        return read if isinstance(read, list) else None
    inner = about.get("items")
    kind = inner if isinstance(inner, dict) else {"type": "string"}
    parts = [part.strip() for part in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", value) if part.strip()]
    read = [typed(unquoted(part), kind) for part in parts]
    return read if all(one is not None for one in read) else None


def _plain(text: str) -> str:
    return re.sub(r"[_\s-]+", " ", text).strip().lower()
