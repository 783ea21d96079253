"""Which files `find`, `fd`, `ls` and `grep` list."""

import os
from collections.abc import Sequence
from typing import Final

from anyplug.model import foreign_patterns
from anyplug.model.late_patterns import late
from anyplug.policy.paths import expanded, is_within, resolved
from anyplug.policy.shell.command_steps import Step
from anyplug.policy.shell.guarded_places import Guarded, is_named, names_in, reaches
from anyplug.policy.shell.syntax import UNKNOWN

LISTING: Final = frozenset({"find", "fd", "ls", "tree", "du", "locate"})  # what they list, `xargs` can remove
SEARCHING: Final = frozenset({"grep", "rg", "ag", "egrep", "fgrep"})
_HIDDEN: Final = late(r"(?:^| )(?:-[A-Za-z]*[Hu.]|--hidden|--unrestricted|--no-ignore)")
LISTS_FILES: Final = late(r"(?:^| )(?:-[A-Za-z]*[lL]|--files)")


def looks_elsewhere(step: Step, start: str, guarded: Guarded, *, has_dots: bool) -> bool:
    """Return whether `find` searches names that nothing protected below a folder has."""
    words = step.words
    if step.name in {"fd", "rg", "ag"} and not _HIDDEN.search(" ".join(words)):
        below = [os.path.relpath(place, start) for place in guarded.held if is_within(place, start)]
        if not any(all(part == "." or part[:1] != "." for part in one.split(os.sep)) for one in below):
            return True
    if step.name == "fd" and guarded.has_known_contents:
        return not _found_by_fd(words, names_in(guarded, guarded.held))
    if {"-o", "-or", ","} & set(words):
        return False
    asked = [
        (word, words[at + 1].replace(UNKNOWN, "*"))
        for at, word in enumerate(words[:-1])
        if word in {"-name", "-iname"} and words[at - 1] not in {"!", "-not"}
    ]
    asked += [("-name", word.partition("=")[2]) for word in words if word.startswith(("--include=", "--glob="))]
    if not asked:
        return False
    below = [place for place in guarded.held if reaches(start, place, has_dots=has_dots)]
    names = names_in(guarded, below)
    names += [part for place in below for part in place.split(os.sep)[len(start.rstrip(os.sep).split(os.sep)) :]]
    return any(not any(is_named(name, pattern, word) for name in names) for word, pattern in asked)


def started(step: Step) -> list[str]:
    """Return the places at which `find` or `ls` begins."""
    words: list[str] = []
    if step.name == "fd" or step.name in SEARCHING:  # a pattern comes first; some skip hidden folders
        ends = next((at for at, word in enumerate(step.words) if word in {"-x", "-X", "--exec", "--exec-batch"}), None)
        words = [word for word in step.words[1:ends] if not word.startswith("-")][1:]
        return [resolved(expanded(word, step.folder), step.folder) for word in words or ["."]]
    for word in step.words[1:]:
        if step.name == "find" and word.startswith(("-", "(", "!")) and word not in {"-H", "-L", "-P"}:
            break
        if not word.startswith("-"):
            words.append(word)
    return [resolved(expanded(word, step.folder), step.folder) for word in words or ["."]]


def _found_by_fd(words: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether `fd` looks for something that has one of some names."""
    ends = next((at for at, word in enumerate(words) if word in {"-x", "-X", "--exec", "--exec-batch"}), len(words))
    endings = [words[at + 1] for at, word in enumerate(words[: ends - 1]) if word in {"-e", "--extension"}]
    named = [word for word in words[1:ends] if not word.startswith("-") and word not in endings]
    pattern = named[0] if named else ""
    if endings:
        names = [name for name in names if name.endswith(tuple(f".{ending.lstrip('.')}" for ending in endings))]
    try:
        return any(foreign_patterns.is_found(pattern, name, ignores_case=True) for name in names)
    except foreign_patterns.BadPattern:
        return True
