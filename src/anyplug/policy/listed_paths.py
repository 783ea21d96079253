"""The paths that the builtin `protected_paths` is told: a name, a folder, an absolute path, or a pattern with `*`.

A relative one counts in every folder, as `/NAME/` in a path does. Paths are compared without regard to case, as some
file systems do.
"""

import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.model import foreign_patterns
from anyplug.model.late_patterns import late
from anyplug.policy import paths
from anyplug.policy.agent_events import NAMING_KEY
from anyplug.policy.paths import is_within
from anyplug.policy.shell import reading_time, syntax, word_patterns
from anyplug.policy.shell.command_steps import LONGEST_GLOB, Line, Step
from anyplug.policy.shell.guarded_places import Guarded, has_name, lies_in
from anyplug.policy.shell.line_changes import NOWHERE
from anyplug.policy.shell.reading_commands import only_reads
from anyplug.policy.shell.substitutions import MADE
from anyplug.rego.builtins import globs
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported

MOST_FOUND: Final = 5_000  # entries of the project that are compared with patterns
FEWEST_KNOWN: Final = 3  # characters beside an unknown value by which a name is recognised
MOST_WORDS: Final = 1_000  # of a text in another language
SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv"})
_CHANGING_TOOL: Final = late(
    r"write|edit|creat|delet|remov|mov|renam|sav|put|updat|patch|replac|insert|append|cop|upload|mkdir|touch|unlink"
    r"|trash|fs|file|git",
    re.IGNORECASE,
)
_LETTER: Final = late(r"(?:^|=)-\w")  # an option, with its value behind it
_PATH: Final = late(r"[\w.~*?/@+-]+")


class ListedPaths(Guarded):
    """What a rulebook lists as read-only, seen from a folder."""

    has_known_contents = True

    def __init__(self, patterns: Sequence[str], cwd: str) -> None:
        self._patterns = [pattern.removeprefix("./").rstrip("/").casefold() or "/" for pattern in patterns if pattern]
        self._plain = [pattern for pattern in self._patterns if not any(char in pattern for char in syntax.GLOBS)]
        self._globs = [_translated(pattern) for pattern in self._patterns if pattern not in self._plain]
        found = paths.find(cwd)
        self._roots = list(dict.fromkeys(map(os.path.realpath, (cwd, os.path.dirname(found) if found else cwd))))
        written = [pattern.removeprefix("./").rstrip("/") or "/" for pattern in patterns if pattern]
        self._absolute = [pattern for pattern in written if os.path.isabs(pattern)]
        self._named = [os.path.normpath(os.path.join(root, pattern)) for pattern in written for root in self._roots]

    @functools.cached_property
    def held(self) -> list[str]:  # type: ignore[override]
        """List the places, also those that are not there, and what there is of patterns."""
        return list(dict.fromkeys((*self._named, *map(os.path.realpath, self._named), *self._matches())))

    @property
    def places(self) -> list[str]:  # type: ignore[override]
        """List the same: nothing may be put there either."""
        return self.held

    @property
    def folders(self) -> list[str]:  # type: ignore[override]
        """List the same: the names of files in them are known."""
        return self.held

    def _matches(self) -> Iterator[str]:
        """Return what lies in the project and fits a pattern."""
        if not self._globs:
            return
        walked = (
            os.path.join(above, name)
            for root in self._roots
            for above, folders, names in _walk(root)
            for name in (*folders, *names)
        )
        yield from (path for path in itertools.islice(walked, MOST_FOUND) if self._fits(path.casefold()))

    def _fits(self, path: str) -> bool:
        """Return whether a path fits a pattern, or lies in a folder that does."""
        return any(foreign_patterns.is_whole(pattern, path) for pattern in self._globs)

    def covers(self, path: str) -> bool:
        """Return whether a path is listed, or lies in a folder that is."""
        reading_time.check()
        lower = path.casefold()
        if len(lower) > LONGEST_GLOB * 16:
            return False
        for pattern in self._plain:
            if is_within(lower, pattern) if os.path.isabs(pattern) else f"/{pattern}/" in f"{lower}/":
                return True
        return self._fits(lower) or any(_is_told(lower, place.casefold()) for place in self._named)

    def is_named(self, word: str) -> bool:
        """Return whether a word has the name of something listed in it."""
        lower = word.casefold()
        texts = [lower, *(lower[found.end() :] for found in _LETTER.finditer(lower))]
        return any(has_name(text, pattern) for pattern in self._plain for text in texts)

    def mentions(self, text: str) -> Iterator[str]:
        """Name what is listed and stands in a text."""
        plain = syntax.plain(text)
        yield from (pattern for pattern in self._plain if has_name(plain, pattern))
        words = itertools.islice(_PATH.finditer(plain), MOST_WORDS) if self._globs else ()
        yield from (found[0] for found in words if self._fits(f"/{found[0]}"))

    def may_hold(
        self, given: str, path: str, place: str, *, removes: bool = False, has_moved: bool = False, has_dots: bool
    ) -> bool:
        """Return whether a word that is not fully known may stand for a place: enough of its name stands there, too."""
        name = os.path.basename(place)
        stem, ending = os.path.splitext(name)
        parts = [part.removesuffix(ending) if stem else part for part in given.split(os.sep)]
        telling = [part for part in parts if len(word_patterns.known(part)) >= FEWEST_KNOWN]
        if given.startswith((syntax.UNKNOWN, MADE)) and not has_moved:
            path = given
        names = (stem.casefold(), name.casefold())
        return any(word_patterns.is_told(part, one) for part in telling for one in names) and (
            word_patterns.fits(path.casefold(), place.casefold(), removes=removes, has_dots=has_dots)
        )

    def is_argument(self, tool: str, key: str, text: str) -> bool:
        """Return whether a text may name a file: by its key, or as the only word given to a tool that changes files."""
        if not key or NAMING_KEY.search(key) or "\n" in text.strip():
            return True
        return bool(_CHANGING_TOOL.search(tool)) and not any(char in text.strip() for char in syntax.BLANKS)

    def only_reads(self, step: Step) -> bool | None:
        """Return whether a command only reads; like in the original, it must not write the content elsewhere either."""
        return None if set(step.writes) <= NOWHERE else False

    def also_changed(self, line: Line, folder: str) -> Iterator[str]:
        """Name folders above an absolute path that a command is given which does not only read, as in the original."""
        if self._absolute and not all(only_reads(step, self) for step in line.steps):
            named = [path for step in line.steps for path in (*step.paths, *step.writes)]
            named += [paths.resolved(word, folder) for word in syntax.path_words(line.text)]
            for path in dict.fromkeys(path.rstrip("/*").casefold() or "/" for path in named):
                yield from (path for place in self._absolute if is_within(place.casefold(), path))


def _walk(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for above, folders, names in os.walk(root):
        reading_time.check()
        folders[:] = [name for name in folders if name not in SKIPPED]
        yield above, folders, names


def _is_told(path: str, place: str) -> bool:
    """Return whether a path with globs may be a place, and contains part of its name; `*` is expanded on disk."""
    part = "".join(path.split(os.sep)[place.count(os.sep) :][:1])
    return bool(word_patterns.known(part)) and lies_in(path, place)


def _translated(pattern: str) -> str:
    """Translate a pattern as `glob.match` does; an invalid one stands for itself."""
    try:
        body = globs.pattern(pattern, "").removeprefix("(?s)^").removesuffix("$")
        foreign_patterns.compiled(body)
    except (BuiltinError, NotSupported, foreign_patterns.BadPattern):
        body = re.escape(pattern)
    before = "" if os.path.isabs(pattern) else "(?:.*/)?"
    return f"(?s){before}{body}(?:/.*)?"
