"""Shell commands, read as far as a gate has to: blanks, words, the simple commands of a line, paths among the words.

Nothing is expanded and nothing is run: what a variable, a substitution or another program makes of it is not seen.
"""

from typing import Final

import msgspec

BLANKS: Final = " \t\n\r\v\f"
QUOTES: Final = "'\""
PATH_STARTS: Final = (".", "$", "~")
GLOBS: Final = "*?["
SEPARATORS: Final = ";&|\n()"
REDIRECTIONS: Final = "<>"
SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash"})
DEEPEST: Final = 4  # shells inside of shells


class Simple(msgspec.Struct, frozen=True):
    """One simple command: its words without their quotes, and where its output goes."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()  # files behind `>`


def normalised(command: str) -> str:
    """Make runs of blanks outside of quotes one blank; what is quoted, and what follows a backslash, stays."""
    made: list[str] = []
    quote = ""
    at, end = 0, len(command)
    while at < end:
        char = command[at]
        if char == "\\" and quote != "'" and at + 1 < end:
            made.append(command[at : at + 2])
            at += 2
            continue
        if quote:
            quote = "" if char == quote else quote
            made.append(char)
        elif char in QUOTES:
            quote = char
            made.append(char)
        elif char in BLANKS:
            if made and made[-1] != " ":
                made.append(" ")
        else:
            made.append(char)
        at += 1
    if made and made[-1] == " " and not quote:
        made.pop()
    return "".join(made)


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


def _cut(command: str, depth: int = 0) -> list[Simple]:  # noqa: C901 - one branch for each kind of character
    found: list[Simple] = []
    words: list[str] = []
    writes: list[str] = []
    word: list[str] = []
    begun = False  # a word may be empty, as '' is
    into = False  # the next word is where the output goes
    quote = ""
    inner: list[str] = []  # what stands in substitutions

    def end_word() -> None:
        nonlocal begun, into
        if begun:
            (writes if into else words).append("".join(word))
            into = False
        word.clear()
        begun = False

    def end_command() -> None:
        end_word()
        if words or writes:
            found.append(Simple(tuple(words), tuple(writes)))
        words.clear()
        writes.clear()

    at, end = 0, len(command)
    while at < end:
        char = command[at]
        if char == "\\" and quote != "'" and at + 1 < end:
            word.append(command[at + 1])
            begun = True
            at += 2
            continue
        if quote != "'" and (char == "`" or command.startswith("$(", at)):
            body, at = _substituted(command, at)
            inner.append(body)
            begun = True
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                word.append(char)
        elif char in QUOTES:
            quote, begun = char, True
        elif char in REDIRECTIONS:
            if not "".join(word).isdigit():
                end_word()
            word.clear()
            begun = False
            into = char == ">"
            while at + 1 < end and command[at + 1] in "<>|&":
                into = into or command[at + 1] == ">"
                at += 1
        elif char in SEPARATORS:
            end_command()
        elif char in BLANKS:
            end_word()
        else:
            word.append(char)
            begun = True
        at += 1
    end_command()
    return [*found, *(simple for body in inner for simple in _cut(body, depth + 1))] if depth < DEEPEST else found


def _substituted(command: str, at: int) -> tuple[str, int]:
    """Give what stands in a substitution that begins here, and where it has ended."""
    if command[at] == "`":
        end = command.find("`", at + 1)
        return (command[at + 1 :], len(command)) if end < 0 else (command[at + 1 : end], end + 1)
    open_, begin = 1, at + 2
    quote = ""
    at = begin
    while at < len(command):
        char = command[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in QUOTES:
            quote = char
        else:
            open_ += (char == "(") - (char == ")")
            if not open_:
                return command[begin:at], at + 1
        at += 1
    return command[begin:], len(command)


def path_words(command: str) -> list[str]:
    """Give the words after the first that look like paths, without what a glob begins."""
    return [_before_glob(word) for word in _split(command)[1:] if is_path(word)]


def is_path(word: str) -> bool:
    """Whether a word looks like a path."""
    return "/" in word or "\\" in word or word.startswith(PATH_STARTS) or any(char in word for char in GLOBS)


def _split(command: str) -> list[str]:
    """Cut at blanks outside of quotes, and take the quotes away."""
    words: list[str] = []
    word: list[str] = []
    quote = ""
    begun = False
    for char in command:
        if quote:
            if char == quote:
                quote = ""
            else:
                word.append(char)
        elif char in QUOTES:
            quote, begun = char, True
        elif char in BLANKS:
            if begun:
                words.append("".join(word))
            word.clear()
            begun = False
        else:
            word.append(char)
            begun = True
    return [*words, "".join(word)] if begun else words


def _before_glob(word: str) -> str:
    first = min((at for char in GLOBS if (at := word.find(char)) >= 0), default=-1)
    if first < 0:
        return word
    folder, slash, _ = word[:first].rpartition("/")
    return folder or slash or "."
