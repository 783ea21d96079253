"""The values that words of a shell command may have: variables, loops, arrays, arguments, what `read` reads.

Every value that a line can assign to a variable counts, in whatever order it runs. A value that does not follow from
the line is UNKNOWN; one that the line makes in a way that is not computed here is MADE (see `substitutions`). Values
are patterns: texts with these marks and with globs.
"""

import fnmatch
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell import substitutions
from anyplug.policy.shell.substitutions import MADE, UNKNOWN
from anyplug.policy.shell.syntax import ELEMENT, PREFIXES, SHELLS, Simple

ASSIGNMENT: Final = late(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?)=")
ASSIGNING: Final = frozenset({"export", "declare", "local", "readonly", "typeset"})
KEYWORDS: Final = frozenset({"do", "then", "else", "elif", "if", "while", "until", "!", "{", "time"})
LOOPS: Final = frozenset({"for", "while", "until", "select"})
READING: Final = frozenset({"read", "mapfile", "readarray"})
TELLING: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "VIRTUAL_ENV")  # whose values count
TELLING_NAME: Final = late(r"ANYPLUG|CUPCAKE", re.IGNORECASE)  # of a variable that leads to our files
NAMES: Final = (
    ".cupcake", "cupcake", "anyplug", ".opencode", "opencode", ".claude", ".codex", ".local", ".config", "rulebook",
)  # fmt: skip
SHELL_NAMES: Final = frozenset({"SHELL", "BASH"})  # variables that name a shell
ARGUMENTS: Final = "@"  # stands for all arguments of a script or a function
PASSES: Final = 3  # over the line: a variable may be set further down, in a loop or by the caller of a function
MOST_VALUES: Final = 512  # of one word
MOST_IN_ALL: Final = 8_192  # words that a line expands to through its variables
MOST_PIECES: Final = 64  # of a word with too many values; nobody writes more in good faith
MOST_OVERFLOWS: Final = 32  # words of a line with too many values, before the worst is assumed
LONGEST_VALUE: Final = 1024  # characters
DEEPEST: Final = 6  # levels of ${a:-${b}}
_REFERENCE: Final = late(r"\$(?:(\{)|([A-Za-z_]\w*)|([0-9@*#?$!-]))")
_BRACED: Final = late(r"(!?)(\w+|[@*?$!-])(\[[^\]]*\])?([\s\S]*)")
_FLAGS: Final = late(r"^\([^()]*\)")  # of zsh, as in ${(j::)name}
_NAMELESS: Final = late(r":?[-=]([\s\S]*)")  # zsh: ${:-value}
_SLICE: Final = late(r":\s*\(?(-?\d+)\)?\s*(?::\s*\(?(-?\d+)\)?)?\s*")
_KEY: Final = late(r"\[[^\]]*\]=")
_PIECE: Final = late(r"[\w.]+")
_LITERALS: Final = late(rf"[^{UNKNOWN}{MADE}*?\[\]${{}}/]+")


class Values:
    """The values of the variables of a line."""

    def __init__(self, commands: Sequence[Simple]) -> None:
        self._known: dict[str, dict[str, None]] = {}
        self._before: dict[str, dict[str, None]] = {}
        self._left = MOST_IN_ALL
        self._overflows = 0
        self._read: list[str] = []  # what `read` may read
        lines = [one.marked or one.words for one in commands]
        self._has_loop = any(word in LOOPS for words in lines for word in words[:2])
        functions = {words[0] for words in lines if len(words) == 1 and "=" not in words[0]}
        functions |= {word for words in lines if words[:1] == ("function",) for word in words[1:2]}
        self._functions = functions - KEYWORDS
        setting = [one for one, words in zip(commands, lines, strict=True) if self._may_set(words)]
        for _ in range(PASSES if setting else 0):
            self._before, self._known = self._known, {}
            self._left = MOST_IN_ALL
            self._read = self._readable(commands)
            for one in setting:
                self._take(one)
        self._left = MOST_IN_ALL

    def words(self, word: str) -> list[str]:
        """Return what a word may become, split at blanks in its values."""
        if "$" not in word:
            return [word]
        made = self.of(word)
        if ASSIGNMENT.match(word):
            return made
        return list(dict.fromkeys(part for one in made for part in (self._split(one) or [one])))

    def first_words(self, word: str) -> list[list[str]]:
        """Return what the first word of a command may become: each value is a program with its own words."""
        if "$" not in word or ASSIGNMENT.match(word):
            return [[one] for one in self.words(word)]
        return [self._split(one) or [one] for one in self.of(word)]

    def _split(self, value: str) -> list[str]:
        """Split a value at blanks, and at what the line sets IFS to."""
        marks = "".join(self._known.get("IFS", ()))
        return value.translate(dict.fromkeys(map(ord, marks), " ")).split()

    def of(self, word: str, depth: int = DEEPEST) -> list[str]:
        """Return the values that a word may have."""
        if "$" not in word:
            return [word]
        pieces = self._pieces(word, depth)
        count = 1
        for piece in pieces:
            count *= len(piece)
        self._left -= count if count > 1 else 0
        if count > MOST_VALUES or self._left < 0:
            self._overflows += 1
            if self._overflows > MOST_OVERFLOWS:
                return [MADE]
            values = dict.fromkeys(value for piece in itertools.islice(pieces, MOST_PIECES) for value in piece)
            fragments = [text for value in values for text in _LITERALS.findall(value)]
            unknown = MADE if len(pieces) > MOST_PIECES or is_composable(fragments) else UNKNOWN
            pieces = [piece if len(piece) == 1 else [unknown] for piece in pieces]
        return list(dict.fromkeys(map("".join, itertools.product(*pieces))))

    def printed(self, commands: Iterable[Simple]) -> list[str]:
        """Return the texts that a line prints or feeds to its commands."""
        found: list[str] = []
        last: list[str] = []  # what the previous command prints
        for one in commands:
            words = one.marked or one.words
            fed = [value for text in one.fed for value in self.of(text)]
            last = fed or last
            found += [value for text in one.fed for value in self.of(text)]
            start = next((at for at, word in enumerate(words) if word not in KEYWORDS), len(words))
            name = words[start].rpartition("/")[2] if start < len(words) else ""
            if name in substitutions.PRINTING:
                last = self.of(substitutions.printed(words[start:]).rstrip("\n"))
            elif last and one.before.strip() == "|" and name in substitutions.TRANSFORMING:
                pieces = [piece for text in last for piece in _PIECE.findall(text)]
                last = [substitutions.transformed(name, words[start:], text) for text in last]
                if name in substitutions.CUTTING and not is_composable(pieces):
                    last = [UNKNOWN]
            elif not (last and name in substitutions.PASSING):
                last = []
            found += last
        return list(dict.fromkeys(found))

    def _may_set(self, words: Sequence[str]) -> bool:
        return any(
            ASSIGNMENT.match(word) or word in LOOPS or word in READING or word in SHELLS
            for word in (word.rpartition("/")[2] if "=" not in word else word for word in words)
        ) or any(word in {"printf", "set"} or word in self._functions for word in words[:3])

    def _readable(self, commands: Sequence[Simple]) -> list[str]:
        if not any(word in READING for one in commands for word in one.words):
            return []
        texts = self.printed(commands)
        parts = [part for text in texts for part in (text, *text.split(), *re.split(r"[^\w.]+", text))]
        return [*filter(None, parts), UNKNOWN]

    def _take(self, simple: Simple) -> None:  # noqa: C901 - one branch for each way to set something
        """Record what a command sets."""
        words = list(simple.marked or simple.words)
        while words and (words[0] in KEYWORDS or (words[0] in PREFIXES and words[0] != "env")):
            words.pop(0)
        name = words[0].rpartition("/")[2] if words else ""
        is_setting = name in ASSIGNING
        for at, word in enumerate(words):
            found = ASSIGNMENT.match(word)
            if found is not None:
                self._assign(found[1], word[found.end() :], adds=bool(found[2]))
            elif not (is_setting and (at == 0 or word.startswith("-"))):
                words = words if is_setting else words[at:]
                break
        name = words[0].rpartition("/")[2] if words else ""
        if name in {"for", "select"} and words[2:3] == ["in"]:
            self._note(words[1], [value for word in words[3:] for value in self.words(word)])
        elif name in {"for", "select"} and len(words) > 1:
            self._note(words[1], self._value(ARGUMENTS))
        elif name in READING:
            for variable in ("REPLY", "MAPFILE", *(word for word in words[1:] if word.isidentifier())):
                self._note(variable, self._read)
        elif name == "printf" and words[1:2] == ["-v"]:
            self._note("".join(words[2:3]), self.of(substitutions.printed(words)))
        elif name == "set" or name in self._functions or name in SHELLS:
            given = [value for word in words[1:] for value in self.words(word)]
            self._note(ARGUMENTS, given)

    def _assign(self, name: str, text: str, *, adds: bool) -> None:
        elements = text.split(ELEMENT)
        if len(elements) > 1:  # for an array, with all of them joined
            values = [value for one in elements[1:] for value in self.of(_KEY.sub("", one, count=1))]
            self._note(name, [*values, "".join(values), " ".join(values)])
        elif not adds:
            self._note(name, self.of(text))
        elif self._has_loop:
            fragments = [*self._known.get(name, ()), *self.of(text)]
            self._note(name, [*fragments, MADE if is_composable(fragments) else UNKNOWN])
        else:
            before, more = list(self._known.get(name, ("",))), self.of(text)
            self._left -= len(before) * len(more)
            made = map("".join, itertools.product(before, more)) if self._left >= 0 else iter((MADE,))
            self._note(name, itertools.islice(made, MOST_VALUES))

    def _note(self, name: str, values: Iterable[str]) -> None:
        known = self._known.setdefault(name, {})
        if len(known) > MOST_VALUES:
            return
        for value in values:
            if len(known) >= MOST_VALUES:
                known[MADE if is_composable([*known, value]) else UNKNOWN] = None
                return
            known[value if len(value) <= LONGEST_VALUE else UNKNOWN] = None

    def _value(self, name: str) -> list[str]:
        """Return the values of a variable."""
        if name.isdigit() or name in {"*", "@"}:
            given = [*self._known.get(ARGUMENTS, ()), *self._before.get(ARGUMENTS, ())]
            if name == "0" and not given:  # for `sh -c TEXT NAME` it is the name
                return ["bash"]
            return [*dict.fromkeys(given), *([" ".join(given)] if not name.isdigit() and given else ()), UNKNOWN]
        found = [*self._known.get(name, ()), *self._before.get(name, ())]
        if found:
            return list(dict.fromkeys(found))
        if TELLING_NAME.search(name):
            return [MADE]
        if name in SHELL_NAMES:
            return ["bash"]
        if name == "IFS":
            return [" "]
        if name in TELLING and (value := os.path.expanduser("~") if name == "HOME" else os.environ.get(name, "")):
            return [value]
        return [UNKNOWN]

    def _pieces(self, word: str, depth: int) -> list[list[str]]:
        """Split a word into its parts, each with the values that it may have."""
        pieces: list[list[str]] = []
        at = 0
        while found := _REFERENCE.search(word, at):
            pieces.append([word[at : found.start()]])
            at = found.end()
            if found[2] == "PWD" and "PWD" not in self._known:
                pieces.append(["$PWD"])
            elif not found[1]:
                pieces.append(self._value(found[2] or found[3]))
            else:
                end = _closing(word, at)
                if end < 0:
                    return [*pieces, [UNKNOWN]]
                pieces.append(self._braced(word[at:end], depth - 1))
                at = end + 1
        return [*pieces, [word[at:]]]

    def _braced(self, text: str, depth: int) -> list[str]:
        """Return the values of a ${…} expression."""
        bare = _FLAGS.sub("", text)
        if depth > 0 and (found := _NAMELESS.fullmatch(bare)):
            values = self.of(found[1], depth)
            return [*values, MADE] if bare != text and is_composable(" ".join(values).split()) else values
        found = _BRACED.fullmatch(bare)
        if found is None or depth <= 0:
            return [UNKNOWN]
        indirect, name, _, operation = found.groups()
        if name == "PWD" and not operation:
            return ["$PWD"]
        values = self._value(name)
        if indirect:
            values = [value for one in values for value in self._value(one)]
        if not operation:
            return values
        if operation.lstrip(":")[:1] in {"-", "=", "+", "?"} and not _SLICE.fullmatch(operation):
            other = self.of(operation.lstrip(":")[1:], depth)
            is_unset = values == [UNKNOWN]
            return list(dict.fromkeys([*(() if is_unset and any(other) else values), *filter(None, other)])) or [""]
        given = self.of(operation, depth)[0]
        return list(dict.fromkeys(_operated(value, given) for value in values))


def is_composable(fragments: Iterable[str]) -> bool:
    """Return whether a protected name can be composed from texts."""
    texts = {text.casefold() for text in fragments if text}
    for name in NAMES:
        reached = {0}
        for at in range(len(name)):
            if at in reached:
                reached |= {at + len(text) for text in texts if name.startswith(text, at)}
        if len(name) in reached:
            return True
    return False


def _closing(word: str, at: int) -> int:
    """Return where the brace opened before a position ends; -1 if it does not."""
    depth = 1
    for found in re.compile(r"\$\{|\}").finditer(word, at):
        depth += 1 if found[0] == "${" else -1
        if not depth:
            return found.start()
    return -1


def _operated(value: str, operation: str) -> str:
    """Return the result of a parameter operation on a value."""
    if UNKNOWN in value or MADE in value or "$" in value:
        return MADE if MADE in value else UNKNOWN
    if operation.startswith(substitutions.FORMATTING):
        given = operation.removeprefix(substitutions.FORMATTING)
        return substitutions.formatted(value.replace("$", ""), given.split(substitutions.BETWEEN))
    if found := _SLICE.fullmatch(operation):
        rest = value[int(found[1]) :]
        return rest if found[2] is None else rest[: int(found[2])]
    changes = {",,": str.lower, "^^": str.upper, ",": _lower_first, "^": str.capitalize, "@L": str.lower}
    changes |= {"@U": str.upper, "@u": str.capitalize, "@Q": str, "@E": substitutions.unescaped, "@P": str}
    if operation in changes:
        return changes[operation](value)
    if operation.startswith("/"):
        return _replaced(value, operation[1:])
    if operation[:1] in {"#", "%"}:
        return _cut(value, operation)
    return MADE


def _lower_first(value: str) -> str:
    return value[:1].lower() + value[1:]


def _replaced(value: str, operation: str) -> str:
    is_every = operation.startswith("/")
    pattern, _, new = operation.removeprefix("/").partition("/")
    if not pattern or any(char in pattern for char in "*?[\\") or pattern[0] in "#%":
        return MADE
    return value.replace(pattern, new, -1 if is_every else 1)


def _cut(value: str, operation: str) -> str:
    """Remove a prefix (#) or a suffix (%): the shortest match, or the longest if the mark is doubled."""
    mark, pattern = operation[0], operation.lstrip(operation[0])
    is_longest = operation[:2] == mark * 2
    if len(value) > substitutions.LONGEST or len(pattern) > substitutions.LONGEST:
        return MADE
    if not any(char in pattern for char in "*?["):
        return value.removeprefix(pattern) if mark == "#" else value.removesuffix(pattern)
    lengths = range(len(value), -1, -1) if is_longest else range(len(value) + 1)
    for length in lengths:
        end = len(value) - length
        if fnmatch.fnmatchcase(value[:length] if mark == "#" else value[end:], pattern):
            return value[length:] if mark == "#" else value[:end]
    return value
