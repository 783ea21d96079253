"""YAML into plain values: for METADATA comments, rulebooks and `yaml.unmarshal`.

libyaml, which OPA's reader is a translation of, finds the structure; what plain scalars mean, and the bounds, are ours.
Directives, several documents and tags other than the core ones are refused. Knows nothing of Rego.
"""

import math
import re
from decimal import Decimal
from typing import Any, Final

import yaml
from yaml.cyaml import CParser

MAX_DEPTH: Final = 100  # of collections
MAX_ALIASED: Final = 100_000  # values that aliases may add to a document: a few lines can otherwise mean gigabytes
_CORE: Final = "tag:yaml.org,2002:"
_SCALARS: Final = {"int": int, "float": int | Decimal, "bool": bool, "null": type(None)}
_MERGE: Final = "<<"
LONGEST_INT: Final = 4_000  # characters: what Python reads without a bound of its own

_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)$")
_BASED: Final = re.compile(r"([-+]?)0(x|o|b|)([0-9a-fA-F]+)$")
_DIGITS: Final = {"x": (16, "0123456789abcdefABCDEF"), "b": (2, "01"), "o": (8, "01234567"), "": (8, "01234567")}
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$")
_ODD: Final = re.compile(r"[-+]?0[bo][-+]|[-+.0-9][-+.0-9a-fA-FxXoObB]*_[-+.0-9a-fA-FxXoObB_]*$")  # readers differ
_SPECIAL: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class YamlError(ValueError):
    """The text is not YAML, or uses unsupported YAML; `row` is 0 if unknown."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(f"line {row}: {message}" if row else message)
        self.message = message
        self.row = row


def load(text: str, *, unique: bool = False) -> Any:
    """Read one document; `unique` refuses a key that stands twice in one mapping. Raises YamlError."""
    if "\ufeff" in text[1:]:
        msg = "a byte-order mark is allowed only at the beginning"
        raise YamlError(msg)
    try:
        return _Reader(text, unique=unique).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or error.context, mark.line + 1 if mark else 0) from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise YamlError(getattr(error, "reason", "") or str(error)) from None


class _Reader:
    """Reads one document from libyaml's events."""

    def __init__(self, text: str, *, unique: bool) -> None:
        self.next = CParser(text).get_event
        self.unique = unique
        self.anchors: dict[str, Any] = {}
        self.aliased = 0
        self.depth = self.in_brackets = 0  # collections that are open

    def document(self) -> Any:
        self.next()  # the stream's start
        start = self.next()
        if isinstance(start, yaml.StreamEndEvent):
            return None
        if start.version or start.tags:
            raise _fail(start, "directives are not supported")
        value = self.node(self.next())
        self.next()  # the document's end
        if not isinstance(end := self.next(), yaml.StreamEndEvent):
            raise _fail(end, "expected a single document in the stream")
        return value

    def node(self, event: Any) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if isinstance(event, yaml.ScalarEvent):
            if self.in_brackets and event.implicit[0] and "?" in event.value:
                raise _fail(event, "quote what has a question mark in brackets: readers of YAML disagree about it")
            value = _scalar(event)
        else:
            self.depth += 1
            self.in_brackets += event.flow_style
            if self.depth > MAX_DEPTH:
                raise _fail(event, "nested too deeply")
            is_list = isinstance(event, yaml.SequenceStartEvent)
            if event.tag not in {None, _CORE + ("seq" if is_list else "map")}:
                raise _fail(event, f"cannot take this for {event.tag}")
            value = self.sequence() if is_list else self.mapping()
            self.depth -= 1
            self.in_brackets -= event.flow_style
        if event.anchor:
            self.anchors[event.anchor] = value
        return value

    def alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            raise _fail(event, f"unknown anchor '{event.anchor}' referenced")
        value = self.anchors[event.anchor]
        self.aliased += _size(value)
        if self.aliased > MAX_ALIASED:
            raise _fail(event, "document contains excessive aliasing")
        return value

    def sequence(self) -> list[Any]:
        items = []
        while not isinstance(event := self.next(), yaml.SequenceEndEvent):
            items.append(self.node(event))
        return items

    def mapping(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := self.next(), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and event.value == _MERGE and event.implicit[0]
            key = _key(event, self.node(event))
            if self.unique and (key in made or (is_merge and merged)):
                raise _fail(event, f"the key `{key}` occurs twice")
            value = self.node(self.next())
            if is_merge:
                merged = {**_merged(event, value), **merged}
            else:
                made[key] = value
        return {**merged, **made}


def _fail(event: Any, message: str) -> YamlError:
    return YamlError(message, event.start_mark.line + 1)


def _scalar(event: Any) -> Any:
    tag = (event.tag or "").removeprefix(_CORE)
    if tag == "str" or (not tag and not event.implicit[0]):
        return event.value
    if tag and tag not in _SCALARS:
        raise _fail(event, f"tag {event.tag} is not supported")
    value = _meaning(event)
    if tag and not isinstance(value, _SCALARS[tag]):
        raise _fail(event, f"cannot take this for {event.tag}")
    return value


def _meaning(event: Any) -> Any:
    text = event.value
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789-+.":
        return text
    if _INT.match(text):
        return int(text) if len(text) < LONGEST_INT else text
    if (match := _BASED.match(text)) and not match[3].strip((alphabet := _DIGITS[match[2]])[1]):
        return int(match[1] + match[3], alphabet[0])
    if _FLOAT.match(text):
        return text if math.isinf(float(text)) else Decimal(text)
    if _SPECIAL.match(text):
        raise _fail(event, f"{text} is not a JSON number")
    if _ODD.match(text):
        raise _fail(event, f"quote {text}: readers of YAML disagree whether it is a number")
    return text


def _key(event: Any, value: Any) -> str:
    """Name a key as JSON does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise _fail(event, "only a string, an integer or a boolean can be a key")


def _merged(event: Any, value: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for source in reversed(value if isinstance(value, list) else [value]):
        if not isinstance(source, dict):
            raise _fail(event, "map merge requires map or sequence of maps as the value")
        made.update(source)
    return made


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1
