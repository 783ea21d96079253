"""Make untrusted text safe to show: `for_models` keeps its lines, `for_people` makes it one bounded line.

Both act on the same characters: controls and escape sequences, directional marks, overrides and isolates, zero-width
and other invisible characters, private use, tag characters outside flags, variation selectors outside emoji, lone
surrogates.
`for_models` drops them, `for_people` shows them as escapes. Letters of every script survive, and so do joiners where
Arabic, Indic and emoji sequences need them. A call's output is not cleaned with these, because it is data. Pure.
"""

import functools
import re
from typing import Any

import msgspec

from anyplug.model.late_patterns import late
from anyplug.model.types import Offer, Plugin, Problem, Tool

LONGEST_LINE = 2_000  # characters of one line for a person; enough for our paths and commands
UNBOUNDED = 1 << 30  # characters, where nothing is cut
LONGEST_VERSION = 64  # characters
LONGEST_NAME = 200  # characters of an invalid name
CUT = "…"
HIDDEN = "its texts have hidden characters, which were removed"

# Symbols that a variation selector or a joiner may follow.
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
# Scripts whose spelling needs joiners and non-joiners: Arabic, Syriac, N'Ko, those of India, Myanmar, Khmer, Mongolian.
_JOINING = "\u0620-\u07ff\u0840-\u109f\u1780-\u17b3\u17b6-\u180a\u1810-\u18af\ua840-\uaaff"
_MARKS = "\u0300-\u034e\u0350-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"  # stack above or below
_MOST_MARKS = 4  # per letter; more of them would reach into other lines
_BREAK = "\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]"  # characters that some programs treat as line ends
# Controls, formats (except signs that numbers are written in), private use, halves of characters, noncharacters, what
# Unicode lets programs ignore, and fillers and blanks that look like nothing.
_INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ue000-\uf8ff\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
    + "".join(chr((plane << 16) + 0xFFFE) + chr((plane << 16) + 0xFFFF) for plane in range(1, 15))  # noncharacters
)
# The flag of a subdivision: a black flag, then its code in tag characters.
_FLAG = "\U0001f3f4[\U000e0061-\U000e007a]{2}[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,3}\U000e007f"


_SIGNS = (b"\\u", b"\\r", b"\\b", b"\\f", b"\x7f")  # of control characters in JSON, except newlines and tabs
_KEPT = frozenset(f"\u200c\u200d{''.join(map(chr, range(0xE0030, 0xE0080)))}")  # needed in sequences, but not alone


# What may begin a sequence, or decides about the character after it: key caps, line ends, escape sequences.
_LEADING = "0123456789#*\r\x1b"
_OPEN_SEQUENCE = late("\x1b(?:\\[[0-?]*[ -/]*)?\\Z")
MOST_HELD = 10_000  # characters that are held back of a text that comes in pieces


@functools.cache
def _leading_pattern() -> re.Pattern[str]:
    """Match such a character outside ASCII."""
    return re.compile(f"[{_EMOJI}{_JOINING}{_MARKS}\u200c\u200d\ufe0e\ufe0f\U000e0000-\U000e0fff]")


@functools.cache  # compiled on first use: most text is plain ASCII, and commands start without it
def _pattern() -> re.Pattern[str]:
    selector = f"(?<![{_EMOJI}])(?!(?<=[0-9#*])\ufe0f\u20e3)[\ufe0e\ufe0f]"
    joiner = (
        f"(?<![{_JOINING}])\u200c|(?<![{_JOINING}])(?!(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}]\ufe0f))\u200d[{_EMOJI}])\u200d"
    )
    marks = f"(?<=[{_MARKS}]{{{_MOST_MARKS}}})[{_MARKS}]+"
    sequence = "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements, whole
    return re.compile(f"(?P<kept>{_FLAG})|(?P<break>{_BREAK})|{sequence}|[{_INVISIBLE}]|{selector}|{joiner}|{marks}")


def for_models(text: str) -> str:
    """Remove invisible characters from a text for models and programs, keeping newlines and tabs."""
    if text.isascii() and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()):
        return text
    return _pattern().sub(lambda found: found["kept"] or ("\n" if found["break"] else ""), text)


class ForModels:
    """`for_models` for a text that comes in pieces: together it returns what `for_models` returns for the whole."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return what can be shown so far."""
        text = self._held + piece
        end = _settled(text) if len(text) < MOST_HELD else len(text)
        self._held = text[end:]
        return for_models(text[:end])

    def end(self) -> str:
        """End the text; return what was held back."""
        held, self._held = self._held, ""
        return for_models(held)


def _settled(text: str) -> int:
    """Return how much of the beginning of a text is cleaned the same whatever follows it, and needs no more context."""
    open_sequence = _OPEN_SEQUENCE.search(text)
    end = open_sequence.start() if open_sequence else len(text)
    while end and _is_leading(text[end - 1]):
        end -= 1
    return end


def _is_leading(char: str) -> bool:
    return char in _LEADING if char.isascii() else _leading_pattern().match(char) is not None


def for_people(text: str, longest: int = LONGEST_LINE) -> str:
    """Turn a text into one line with hidden characters made visible, cut to `longest` characters."""
    is_cut = len(text) > longest
    text = text[:longest]  # before the work, because it may be megabytes
    if not (text.isascii() and text.isprintable()):
        text = _pattern().sub(lambda found: found["kept"] or _escaped(found[0]), text)
        text = "".join(char if char.isprintable() or char in _KEPT else _shown(char) for char in text)
    if is_cut or len(text) > longest:
        text = text[: longest - len(CUT)] + CUT
    return text


def visible(text: str) -> str:
    """Return a whole text with its lines and tabs, and every other hidden character as an escape."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(for_people(part, UNBOUNDED) for part in line.split("\t")) for line in lines)


def label(text: str) -> str:
    """Turn a text that names something, such as a title, into one line without invisible characters."""
    return text if text.isascii() and text.isprintable() else " ".join(for_models(text).split())


def lines_for_people(text: str, prefix: str = "| ", most: int = 200) -> list[str]:
    """Apply `for_people` to each line of a text, with a prefix that our own lines never have."""
    lines = [prefix + for_people(line).rstrip() for line in for_models(text).replace("\t", "    ").split("\n", most)]
    return [*lines[:most], f"{prefix}{CUT}"] if len(lines) > most else lines


def is_clean(name: str) -> bool:
    """Return whether a name can be shown as it is."""
    return for_people(name) == name and bool(name)


def schema_for_models(value: Any) -> Any:
    """Clean every text in a JSON schema, including names and enum values: nobody can mean what nobody can see."""
    if isinstance(value, str):
        return for_models(value)
    if isinstance(value, dict):
        return {for_models(key): schema_for_models(item) for key, item in value.items()}
    if isinstance(value, list):
        return [schema_for_models(item) for item in value]
    return value


def clean_plugin(plugin: Plugin) -> Plugin:
    """Clean the texts of a manifest; leave out tools whose names are not clean."""
    if _is_clean_plugin(plugin):
        return plugin
    tools, faults = _clean_tools(plugin.tools)
    problems = [_problem(problem) for problem in plugin.problems]
    problems += [Problem("bad_manifest", fault, "rename it in the manifest", "warning") for fault in faults]
    if _hides_text(plugin):
        problems.append(
            Problem(
                "hidden_text", HIDDEN, ("ask its author about them; they are hidden from models and people"), "warning"
            )
        )
    replace = msgspec.structs.replace
    return replace(
        plugin,
        name=plugin.name if is_clean(plugin.name) else for_people(plugin.name),
        version=for_people(plugin.version, LONGEST_VERSION),
        description=for_models(plugin.description),
        permissions=tuple(map(for_people, plugin.permissions)),
        instructions=for_models(plugin.instructions),
        tools=tools,
        config=tuple(replace(key, description=for_models(key.description)) for key in plugin.config),
        problems=tuple(problems),
    )


def _is_clean_plugin(plugin: Plugin) -> bool:
    """Return whether there is nothing to clean, as in most manifests: this takes a tenth of the time of cleaning them.

    In JSON, every character that is not plain is an escape or not ASCII; in doubt they are cleaned.
    """
    try:
        encoded = msgspec.json.encode(plugin)
    except (TypeError, ValueError, RecursionError):
        return False
    if not encoded.isascii() or any(sign in encoded for sign in _SIGNS):
        return False
    for name in (plugin.name, *[tool.name for tool in plugin.tools]):
        if not name or not _is_one_line(name):
            return False
    return (
        all(map(_is_one_line, plugin.permissions))
        and _is_one_line(plugin.version, LONGEST_VERSION)
        and all(tool.title.isprintable() for tool in plugin.tools)
    )


def _is_one_line(text: str, longest: int = LONGEST_LINE) -> bool:
    """Return whether a text of ASCII is one line for people as it is."""
    return len(text) <= longest and text.isprintable()


def _hides_text(plugin: Plugin) -> bool:
    """Return whether a manifest has hidden text; line endings do not count."""
    of_tools = [text for tool in plugin.tools for text in (tool.title, tool.description)]
    texts = (plugin.description, plugin.instructions, plugin.version, *plugin.permissions, *of_tools)
    is_hiding = any(for_models(text) != text.replace("\r\n", "\n") for text in texts)
    return is_hiding or any(schema_for_models(tool.input_schema) != tool.input_schema for tool in plugin.tools)


def clean_offer(offer: Offer) -> Offer:
    """Clean what a running plugin registered; leave out anything whose name is not clean."""
    tools, faults = _clean_tools(offer.tools)
    if any(is_clean(tool.name) and tool not in tools for tool in offer.tools):
        faults.append(HIDDEN)
    return msgspec.structs.replace(
        offer,
        tools=tools,
        commands=tuple(
            msgspec.structs.replace(
                command,
                title=label(command.title),
                description=for_models(command.description),
                parameters=tuple(
                    msgspec.structs.replace(one, description=for_models(one.description))
                    for one in command.parameters
                    if is_clean(one.name)
                ),
            )
            for command in offer.commands
            if is_clean(command.name)
        ),
        resources=tuple(
            msgspec.structs.replace(
                one,
                name=label(one.name),
                title=label(one.title),
                description=for_models(one.description),
                mime_type=label(one.mime_type),
            )
            for one in offer.resources
            if is_clean(one.uri)
        ),
        events=tuple(map(for_people, offer.events)),
        warnings=(*map(for_models, offer.warnings), *faults),
        fault=for_models(offer.fault),
    )


def _clean_tools(tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], list[str]]:
    kept = tuple(
        msgspec.structs.replace(
            tool,
            title=label(tool.title),
            description=for_models(tool.description),
            input_schema=schema_for_models(tool.input_schema),
            output_schema=schema_for_models(tool.output_schema),
        )
        for tool in tools
        if is_clean(tool.name)
    )
    faults = [
        f"the tool '{for_people(tool.name, LONGEST_NAME)}' was skipped: its name has hidden characters"
        for tool in tools
        if not is_clean(tool.name)
    ]
    return kept, faults


def _problem(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, message=for_models(problem.message), hint=for_models(problem.hint))


def escaped_json(text: str) -> str:
    """Escape the hidden characters in a JSON text: the same JSON, but safe on a terminal."""
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return "".join(char if char.isprintable() or char == "\n" else _in_json(char) for char in text)


def encodable(text: str) -> str:
    """Escape the bytes of a file name that are not UTF-8, which Python holds as lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode()


def _shown(char: str) -> str:
    return " " if char.isspace() and char not in "\t\n" else _escaped(char)  # other alphabets have their own spaces


def _in_json(char: str) -> str:
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
