"""The folders that each command of a line may run in, as far as `cd`, `pushd` and `popd` determine it.

A `cd` certainly counts for the commands after `&&`, and only inside its subshell. Elsewhere it may have failed or never
run, so the previous folders count, too, unless it stands alone and its folder exists. Nested texts (substitutions,
scripts for another shell) may run in every folder that the line was in.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anyplug.policy.shell.syntax import PREFIXES, Simple
from anyplug.policy.shell.word_values import KEYWORDS, LOOPS

GOING: Final = frozenset({"cd", "pushd", "popd", "chdir"})
BLOCKS: Final = KEYWORDS | LOOPS | {"case", "function", "fi", "done", "esac", "}"}  # may or may not run their commands
MOST_NEAR: Final = 12  # folders around what is protected that a command may run in, before the line is uncertain
MOST_WORDS: Final = 8  # of a command in which `cd` is searched
MOST_OTHERS: Final = 3  # folders elsewhere: their content does not matter here


class WorkingFolders:
    """Follows the commands of a line through folders."""

    def __init__(self, starts: Sequence[str], is_near: Callable[[str], bool]) -> None:
        self.seen = list(starts)
        self.is_sure = True
        self._is_near = is_near
        self._now: dict[tuple[int, ...], list[str]] = {}
        self._before: dict[tuple[int, ...], tuple[list[str], bool]] = {}  # a `cd`, and whether that certainly happened
        self._is_plain = True  # no block so far

    def at(self, simple: Simple) -> list[str]:
        """Return the folders that a command may run in."""
        scope, mark = simple.scope, _mark(simple)
        while scope not in self._now and len(scope) > 1:
            scope = scope[:-1]
        self._is_plain &= not any(word in BLOCKS or word.startswith("CDPATH=") for word in simple.words[:1])
        now = self._now.get(scope, self.seen)
        if scope not in self._before or mark == "&&":
            return now
        folders, is_sure = self._before[scope]
        if not is_sure or mark in {"|", "&"}:
            now = self._bounded([*folders, *now])
        if scope == simple.scope:
            del self._before[scope]
            self._now[scope] = now
        return now

    def go(self, simple: Simple, steps: Sequence[tuple[Sequence[str], Callable[[str], list[str]]]]) -> None:
        """Record where a command goes, if it does; `steps` are its words in each folder where it may run."""
        words = steps[0][0]
        names = [word.rpartition("/")[2] for word in words[:MOST_WORDS]]
        skipped = BLOCKS | PREFIXES
        at = next((at for at, name in enumerate(names) if name not in skipped and "=" not in name), len(names))
        if at == len(names) or names[at] not in GOING:
            return
        before = self._now.get(simple.scope) or self.at(simple)
        rest = words[at + 1 :]
        told = [word for word in rest if not word.startswith(("-", "+"))]
        is_back = names[at] == "popd" or any(word == "-" or word[1:].isdigit() for word in rest if word not in told)
        is_back |= names[at] == "pushd" and not told
        places = (where(word) for word in told[:MOST_NEAR] or ["~"] for _, where in steps)
        found = self.seen if is_back else [place for one in places for place in one]
        is_sure = self._is_plain and not is_back and len(told) <= 1 and not _mark(simple)
        is_sure = is_sure and all(map(_can_enter, found))
        earlier, was_sure = self._before.get(simple.scope, ([], True))
        self._before[simple.scope] = (self._bounded([*earlier, *before]), is_sure and was_sure)
        self._now[simple.scope] = self._bounded(found)
        self.seen = self._bounded([*self.seen, *found])

    def _bounded(self, folders: Iterable[str]) -> list[str]:
        near: list[str] = []
        others: list[str] = []
        for folder in dict.fromkeys(folders):
            (near if self._is_near(folder) else others).append(folder)
        self.is_sure &= len(near) <= MOST_NEAR
        return [*near[:MOST_NEAR], *others[-MOST_OTHERS:]]


def _can_enter(folder: str) -> bool:
    try:
        return os.path.isdir(folder) and os.access(folder, os.X_OK)
    except ValueError:
        return False


def _mark(simple: Simple) -> str:
    """Return what joins a command to the previous one, if that may keep it from running in the same shell."""
    return simple.before.strip("()\n;")
