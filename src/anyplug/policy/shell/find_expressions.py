"""What `find` does with certain files, as far as its expression shows it.

Each test may hold, may not hold, or both: for a file that is not there yet, a test that is not read here, or a pattern
that is not fully known. So a file counts as left out only if no reading of the expression reaches it.
"""

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from anyplug.model.late_patterns import late
from anyplug.policy.shell import reading_time, word_patterns

ALONE: Final = frozenset(  # tests and options without an argument
    {
        "-empty", "-true", "-false", "-readable", "-writable", "-executable", "-nouser", "-nogroup", "-xdev", "-mount",
        "-depth", "-d", "-daystart", "-noleaf", "-warn", "-nowarn", "-ignore_readdir_race", "-prune", "-quit",
    }
)  # fmt: skip
WITH_ARGUMENT: Final = frozenset(
    {
        "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-type", "-xtype",
        "-size", "-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin", "-newer", "-newermt",
        "-newerct", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum", "-samefile", "-fstype", "-lname",
        "-ilname", "-used", "-context", "-maxdepth", "-mindepth", "-regextype",
    }
)  # fmt: skip
ACTIONS: Final = {
    "-print": 0,
    "-print0": 0,
    "-ls": 0,
    "-delete": 0,
    "-printf": 1,
    "-fprint": 1,
    "-fprint0": 1,
    "-fls": 1,
}
RUNNING: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
NAMING: Final = frozenset({"-name", "-iname"})
PATHS: Final = frozenset({"-path", "-ipath", "-wholename", "-iwholename"})
KINDS: Final = {"f": stat.S_ISREG, "d": stat.S_ISDIR, "l": stat.S_ISLNK}
MOST_WORDS: Final = 400  # each may be one level deeper; nobody writes more by hand
DEEPEST: Final = 32  # parentheses in parentheses
BOTH: Final = (True, True)
Node = tuple[Any, ...]  # what kind of part it is, and its parts
_WIDE: Final = late(r"[?\[\\]")  # what stands for more than the pattern says, because brackets are read as `?`


class Found(NamedTuple):
    """A file below the place where `find` begins."""

    path: str
    shown: str  # as `find` prints it
    depth: int  # below that place
    is_file: bool = False  # and no folder, if it will be there


class Expression:
    """An expression of `find`. Raises ValueError if it is not one that can be read."""

    def __init__(self, words: Sequence[str], runs: Callable[[Sequence[str]], bool]) -> None:
        """Read the words after the places; `runs` tells which programs after `-exec` count."""
        if len(words) > MOST_WORDS:
            raise ValueError(words[0])
        self._words = [*words]
        self._at = 0
        self._runs = runs
        self._limits = {"-maxdepth": "", "-mindepth": ""}
        self.deletes = "-delete" in words
        self._is_upwards = not {"-delete", "-depth", "-d"}.isdisjoint(words)
        self._has_action = any(word in ACTIONS or word in RUNNING for word in words)
        self._tree = self._listed(0) if words else ("alone", "-true")
        if self._at < len(words):
            raise ValueError(words[self._at])
        self._acts = self._prunes = False
        self._prints = False

    def reaches(self, found: Found, above: Sequence[Found], *, prints: bool) -> bool:
        """Return whether it does something with a file, `above` which these folders are; `prints`: if that counts."""
        most, fewest = self._limits["-maxdepth"], self._limits["-mindepth"]
        if (most.isdecimal() and found.depth > int(most)) or (fewest.isdecimal() and found.depth < int(fewest)):
            return False
        self._prints = prints
        for folder in () if self._is_upwards else above:
            self._prunes = False
            if not (fewest.isdecimal() and folder.depth < int(fewest)):
                self._value(self._tree, folder, is_certain=True)
            if self._prunes:
                return False
        self._acts = False
        is_true, _ = self._value(self._tree, found, is_certain=True)
        return self._acts or (is_true and prints and not self._has_action)

    def _listed(self, depth: int) -> "Node":
        left = self._any(depth)
        while self._next() == ",":
            self._at += 1
            left = (",", left, self._any(depth))
        return left

    def _any(self, depth: int) -> "Node":
        left = self._all(depth)
        while self._next() in {"-o", "-or"}:
            self._at += 1
            left = ("or", left, self._all(depth))
        return left

    def _all(self, depth: int) -> "Node":
        left = self._one(depth)
        while self._next() not in {"", "-o", "-or", ",", ")"}:
            self._at += self._next() in {"-a", "-and"}
            left = ("and", left, self._one(depth))
        return left

    def _one(self, depth: int) -> "Node":  # noqa: C901 - one branch for each kind of part
        word = self._next()
        self._at += 1
        if depth > DEEPEST:
            raise ValueError(word)
        if word in {"!", "-not"}:
            return ("not", self._one(depth + 1))
        if word == "(":
            inner = self._listed(depth + 1)
            if self._next() != ")":
                raise ValueError(word)
            self._at += 1
            return inner
        if word in RUNNING:
            end = next((at for at in range(self._at, len(self._words)) if self._words[at] in {";", "+"}), -1)
            if end < 0:
                raise ValueError(word)
            told, self._at = self._words[self._at : end], end + 1
            return ("act", self._runs(told), BOTH)
        if word in ACTIONS:
            self._at += ACTIONS[word]
            return ("act", word == "-delete" or word.startswith("-f"), BOTH if word == "-delete" else (True, False))
        if word in ALONE:
            return ("alone", word)
        if word not in WITH_ARGUMENT or self._at >= len(self._words):
            raise ValueError(word)
        argument = self._next()
        self._at += 1
        if word in self._limits:
            self._limits[word] = argument
            return ("alone", "-true")
        return ("test", word, argument)

    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _value(self, node: "Node", found: Found, *, is_certain: bool) -> tuple[bool, bool]:
        """Return whether a part may hold and may not hold, and note what it does on the way."""
        kind = node[0]
        if kind == "not":
            true, false = self._value(node[1], found, is_certain=is_certain)
            return false, true
        if kind in {"and", "or", ","}:
            true, false = self._value(node[1], found, is_certain=is_certain)
            goes_on, stops = {"and": (true, false), "or": (false, true), ",": (True, False)}[kind]
            if not goes_on:
                return true, false
            second, other = self._value(node[2], found, is_certain=is_certain and not stops)
            if kind == "and":
                return second, false or other
            return (true or second, other) if kind == "or" else (second, other)
        if kind == "act":
            self._acts |= node[1] or self._prints
            made: tuple[bool, bool] = node[2]
            return made
        if kind == "alone":
            return self._alone(node[1], found, is_certain=is_certain)
        return _tested(node[1], node[2], found)

    def _alone(self, word: str, found: Found, *, is_certain: bool) -> tuple[bool, bool]:
        if word == "-prune":
            self._prunes |= is_certain
        elif word == "-empty":
            return _is_empty(found.path)
        elif word == "-false":
            return False, True
        return BOTH if word in {"-readable", "-writable", "-executable", "-nouser", "-nogroup"} else (True, False)


def _tested(word: str, argument: str, found: Found) -> tuple[bool, bool]:
    if word in NAMING | PATHS and not word_patterns.is_unknown(argument + found.shown):
        text = found.shown if word in PATHS else os.path.basename(found.shown.rstrip("/")) or "/"
        if word.startswith("-i"):
            text, argument = text.casefold(), argument.casefold()
        is_alike = fnmatch.fnmatchcase(text, argument) or "\\" in argument
        return is_alike, not is_alike or bool(_WIDE.search(argument))
    if word == "-type" and set(argument) <= {*KINDS, ","}:
        try:
            mode = os.lstat(found.path).st_mode
        except (OSError, ValueError):
            return ("f" in argument, "f" not in argument) if found.is_file else BOTH
        is_kind = any(KINDS[kind](mode) for kind in argument.split(",") if kind in KINDS)
        return is_kind, not is_kind
    return BOTH


def _is_empty(path: str) -> tuple[bool, bool]:
    """Return whether a file may be empty; a folder may be as soon as all in it is removed that may be."""
    try:
        if os.path.isdir(path):
            return is_hollow(path), True
        return (True, False) if os.lstat(path).st_size == 0 else (False, True)
    except (OSError, ValueError):
        return BOTH


def is_hollow(folder: str) -> bool:
    """Return whether there is nothing but folders in a folder."""
    for _, _, names in os.walk(folder):
        reading_time.check()
        if names:
            return False
    return True


def folders_above(found: Found, start: str) -> Iterator[Found]:
    """Yield the folders above a file, from where `find` begins."""
    shown, path = found.shown, found.path
    for depth in range(found.depth - 1, -1, -1):
        shown, path = shown.rpartition("/")[0] or "/", os.path.dirname(path)
        yield Found(path, shown if depth else start, depth)
