"""Shell commands, read as far as a gate has to: blanks, words, the simple commands of a line, paths among the words.

Nothing is expanded and nothing is run: what a variable, a substitution or another program makes of it is not seen.
"""

import re
from typing import Final

import msgspec

BLANKS: Final = " \t\n\r\v\f"
PATH_STARTS: Final = (".", "$", "~")
GLOBS: Final = "*?["
SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash"})
DEEPEST: Final = 4  # shells inside of shells

# Quotes may be left open at the end of a line; a backslash means nothing between single ones.
_ESCAPED: Final = r"\\[\s\S]"
_SINGLE: Final = r"'[^']*'?"
_DOUBLE: Final = rf'"(?:{_ESCAPED}|[^"\\])*"?'
_UNIT: Final = re.compile(rf"""(?:{_ESCAPED}|{_SINGLE}|{_DOUBLE}|[^{BLANKS}\\'"]+|\\)+""")
_PARENTHESES: Final = re.compile(rf"{_ESCAPED}|{_SINGLE}|{_DOUBLE}|[()]")
_OUTSIDE: Final = re.compile(  # what a line is read as where no double quote is open
    rf"""(?P<escaped>{_ESCAPED})|(?P<inner>`|\$\()|(?P<single>{_SINGLE})|(?P<double>")"""
    rf"|(?P<redirection>[<>][<>|&]*)|(?P<separator>[;&|\n()])|(?P<blank>[{BLANKS}])"
    rf"|(?P<text>[^\\`$'\"<>;&|(){BLANKS}]+|.)",
    re.DOTALL,
)
_INSIDE: Final = re.compile(
    rf"""(?P<escaped>{_ESCAPED})|(?P<inner>`|\$\()|(?P<double>")|(?P<text>[^"\\`$]+|.)""", re.DOTALL
)
_WORD: Final = re.compile(rf"""(?:'[^']*'?|"[^"]*"?|[^{BLANKS}'"]+)+""")
_QUOTED: Final = re.compile(r"""'([^']*)'?|"([^"]*)"?""")


class Simple(msgspec.Struct, frozen=True):
    """One simple command: its words without their quotes, and where its output goes."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()  # files behind `>`


def normalised(command: str) -> str:
    """Make runs of blanks outside of quotes one blank; what is quoted, and what follows a backslash, stays."""
    return " ".join(_UNIT.findall(command))


def simple_commands(command: str, depth: int = 0) -> list[Simple]:
    """Cut a line into its simple commands, with those in substitutions and those that a shell is given with -c."""
    found = _cut(command)
    if depth < DEEPEST:
        for inner in [script for simple in found for script in _scripts(simple)]:
            found += simple_commands(inner, depth + 1)
    return found


def _scripts(simple: Simple) -> list[str]:
    """Give what another shell is told to run."""
    words = [word.rpartition("/")[2] for word in simple.words]
    if "eval" in words:
        return [" ".join(simple.words[words.index("eval") + 1 :])]
    at = next((at for at, word in enumerate(words) if word in SHELLS), -1)
    if at < 0:
        return []
    flags = [number for number, word in enumerate(words) if number > at and word.startswith("-") and "c" in word]
    return [simple.words[flags[0] + 1]] if flags and flags[0] + 1 < len(words) else []


class _Line:
    """The simple commands of a line, as far as it was read."""

    def __init__(self) -> None:
        self.found: list[Simple] = []
        self._words: list[str] = []
        self._writes: list[str] = []
        self._word: list[str] = []  # in pieces; one that is empty, as '' is, has an empty one
        self._into = False  # the next word is where the output goes

    def add(self, text: str) -> None:
        self._word.append(text)

    def end_word(self) -> None:
        if self._word:
            (self._writes if self._into else self._words).append("".join(self._word))
            self._into = False
        self._word = []

    def redirect(self, mark: str) -> None:
        if not "".join(self._word).isdigit():  # 2> is about a stream
            self.end_word()
        self._word = []
        self._into = ">" in mark

    def end_command(self) -> None:
        self.end_word()
        if self._words or self._writes:
            self.found.append(Simple(tuple(self._words), tuple(self._writes)))
        self._words, self._writes = [], []


def _cut(command: str, depth: int = 0) -> list[Simple]:
    line = _Line()
    inner: list[str] = []  # what stands in substitutions
    is_inside = False  # of double quotes
    at = 0
    while found := (_INSIDE if is_inside else _OUTSIDE).match(command, at):
        kind, text, at = found.lastgroup, found[0], found.end()
        if kind == "inner":
            body, at = _substituted(command, found.start())
            inner.append(body)
            line.add("")
        elif kind == "double":
            is_inside = not is_inside
            line.add("")
        elif kind == "redirection":
            line.redirect(text)
        elif kind == "separator":
            line.end_command()
        elif kind == "blank":
            line.end_word()
        else:
            line.add(text[1:] if kind == "escaped" else text.strip("'") if kind == "single" else text)
    line.end_command()
    return [*line.found, *(each for body in inner for each in _cut(body, depth + 1))] if depth < DEEPEST else line.found


def _substituted(command: str, at: int) -> tuple[str, int]:
    """Give what stands in a substitution that begins here, and where it has ended."""
    if command[at] == "`":
        end = command.find("`", at + 1)
        return (command[at + 1 :], len(command)) if end < 0 else (command[at + 1 : end], end + 1)
    depth, begin = 1, at + len("$(")
    for found in _PARENTHESES.finditer(command, begin):
        depth += (found[0] == "(") - (found[0] == ")")
        if not depth:
            return command[begin : found.start()], found.end()
    return command[begin:], len(command)


def path_words(command: str) -> list[str]:
    """Give the words after the first that look like paths, without what a glob begins."""
    return [_before_glob(word) for word in _split(command)[1:] if is_path(word)]


def is_path(word: str) -> bool:
    """Whether a word looks like a path."""
    return "/" in word or "\\" in word or word.startswith(PATH_STARTS) or any(char in word for char in GLOBS)


def _split(command: str) -> list[str]:
    """Cut at blanks outside of quotes, and take the quotes away; a backslash means nothing here, as in the original."""
    return [_QUOTED.sub(r"\1\2", word) if "'" in word or '"' in word else word for word in _WORD.findall(command)]


def _before_glob(word: str) -> str:
    first = min((at for char in GLOBS if (at := word.find(char)) >= 0), default=-1)
    if first < 0:
        return word
    folder, slash, _ = word[:first].rpartition("/")
    return folder or slash or "."
