"""Places that must not be changed, and how names and words are compared with them."""

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, Self

from anyplug.model import foreign_patterns
from anyplug.model.late_patterns import late
from anyplug.policy.paths import is_within
from anyplug.policy.shell import reading_time, syntax, word_patterns
from anyplug.policy.shell.command_steps import LONGEST_GLOB, Line, Step

MOST_FILES: Final = 2_000  # whose names are compared with what `find` looks for
LONGEST_SEARCHED: Final = 1 << 20  # characters of a file that `grep` may find
_OPERATOR: Final = late(r"\\([(){}|+?])|[(){}|+?]")
_WORD_END: Final = late(r"\\[<>]")
_OTHER_ESCAPE: Final = late(r"\\[^\w.*+?|(){}\[\]^$/\\<>-]")


class Change(str):
    """What a command changes, and how to say it without that."""

    __slots__ = ("cure",)
    cure: str

    def __new__(cls, what: str, cure: str = "") -> Self:
        """Return a text with a cure."""
        made = super().__new__(cls, what)
        made.cure = cure
        return made


class Guarded:
    """Places that must not be changed, and how a path, a word and a text are recognised as one of them."""

    places: Sequence[str]  # that nothing may be put at
    held: Sequence[str]  # that are not to be removed with the folders above them
    folders: Sequence[str]  # with files by whose names the places are recognised
    names: Sequence[str] = ()  # that files there usually have
    has_known_contents = False  # whether files are found by `grep -l` only if they have now what it looks for

    def covers(self, path: str) -> bool:
        """Return whether a path, which may have globs in it, is guarded."""
        raise NotImplementedError

    def is_written(self, path: str) -> bool:
        """Return whether a path must not be written to."""
        return self.covers(path)

    def is_replaced(self, path: str) -> bool:
        """Return whether a path must not be unpacked or patched."""
        return self.covers(path)

    def is_free(self, _path: str, _place: str) -> bool:
        """Return whether a path in a guarded place may be changed nevertheless."""
        return False

    def is_named(self, word: str) -> bool:
        """Return whether a word of a command mentions something guarded."""
        raise NotImplementedError

    def mentions(self, text: str) -> Iterator[str]:
        """Name what of the guarded a text mentions that nobody can read as commands."""
        raise NotImplementedError

    def may_hold(
        self, given: str, path: str, place: str, *, removes: bool = False, has_moved: bool = False, has_dots: bool
    ) -> bool:
        """Return whether a word that is not fully known may stand for a place, and something in it says so."""
        raise NotImplementedError

    def may_come(self, _place: str, _guarded: str) -> bool:
        """Return whether what is copied to a place from an unknown source may bring what is guarded below it."""
        return False

    def is_spared(self, excluded: Sequence[str], folder: str) -> bool:
        """Return whether everything that `git clean` would remove in a folder is excluded."""
        inner = [os.path.relpath(place, folder).split(os.sep) for place in self.held if is_within(place, folder)]
        names = {word.removeprefix("**/") for word in excluded}
        return not any(name.startswith("!") for name in names) and all(not names.isdisjoint(parts) for parts in inner)

    def is_argument(self, _tool: str, _key: str, _text: str) -> bool:
        """Return whether a text that a tool is given under a key may name a file that it changes."""
        return True

    def ignores(self, _step: Step) -> bool:
        """Return whether a command never changes what is guarded, wherever it writes."""
        return False

    def only_reads(self, _step: Step) -> bool | None:
        """Return whether a command only reads; None if that is to be told as of any other."""
        return None

    def also_changed(self, _line: Line, _folder: str) -> Iterator[str]:
        """Name what else a line changes."""
        return iter(())


def has_name(word: str, inner: str) -> bool:
    """Return whether a word, or a text in it, names a path."""
    at = word.find(inner)
    while at >= 0:
        end = at + len(inner)
        is_start = not (word[at - 1 : at].isalnum() or word[at - 1 : at] in set("_-.")) or not at
        if is_start and not (word[end : end + 1].isalnum() or word[end : end + 1] in {"_", "-"}):
            return True
        at = word.find(inner, at + 1)
    return False


def reaches(path: str, folder: str, *, has_dots: bool) -> bool:
    """Return whether a path, which may contain globs, can be a folder or one above it."""
    if word_patterns.is_unknown(path):  # `Guarded.may_hold` handles these
        return False
    parts, real = path.rstrip(os.sep).split(os.sep), folder.split(os.sep)
    return len(parts) <= len(real) and all(
        _fits(part, name, has_dots=has_dots) for part, name in zip(parts, real, strict=False)
    )


def _fits(part: str, name: str, *, has_dots: bool = False) -> bool:
    if part == name:
        return True
    if not any(char in part for char in syntax.GLOBS) or len(part) > LONGEST_GLOB:
        return False
    return (has_dots or part.startswith(".") or not name.startswith(".")) and fnmatch.fnmatchcase(name, part)


def lies_in(path: str, folder: str) -> bool:
    """Return whether a path, which may have globs in it, can lie in a folder."""
    if is_within(path, folder):
        return True
    if not any(char in path for char in syntax.GLOBS):
        return False
    parts, real = path.split(os.sep), folder.split(os.sep)
    return len(parts) >= len(real) and all(map(_fits, parts, real))


def names_in(guarded: Guarded, places: Sequence[str]) -> list[str]:
    """List the names of guarded places, with those of what lies in them."""
    found = list(guarded.names)
    for folder in places:
        found.append(os.path.basename(folder))
        for above, folders, names in os.walk(folder):
            reading_time.check()
            folders[:] = [
                name
                for name in folders
                if name != "__pycache__" and not guarded.is_free(os.path.join(above, name), folder)
            ]
            found += [*folders, *names]
            if len(found) > MOST_FILES:
                break
    return found


def is_named(name: str, pattern: str, option: str) -> bool:
    """Return whether `find` finds a name by a pattern; `option` is how the pattern was given."""
    if option == "-iname":
        name, pattern = name.casefold(), pattern.casefold()
    return len(pattern) > LONGEST_GLOB or fnmatch.fnmatchcase(name, pattern)


def is_text_in(path: str, patterns: Sequence[str], *, ignores_case: bool) -> bool:
    """Return whether a file has a line that `grep` finds by one of these patterns, of whatever kind they are."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(LONGEST_SEARCHED)
    except OSError:
        return False
    return any(_is_in(line, text, ignores_case=ignores_case) for one in patterns for line in one.split("\n"))


def _is_in(pattern: str, text: str, *, ignores_case: bool) -> bool:
    """Return whether a pattern is in a text; one that only a backtracking search understands counts as found."""
    if word_patterns.is_unknown(pattern) or pattern in text or _OTHER_ESCAPE.search(pattern):
        return True
    extended = _OPERATOR.sub(
        lambda found: found[1] or f"\\{found[0]}", pattern
    )  # what is plain is an operator, and back
    for one in (pattern, extended):
        made = _WORD_END.sub(r"\\b", one)
        try:
            if foreign_patterns.is_found(f"(?m:{made})", text, ignores_case=ignores_case):
                return True
        except foreign_patterns.BadPattern:
            if _is_pattern(one):
                return True
    return False


def _is_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
