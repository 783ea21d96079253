"""Which files `find`, `fd`, `ls`, `grep` and `git` list, and whether guarded ones are among them."""

import fnmatch
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from anyplug.model import foreign_patterns
from anyplug.model.late_patterns import late
from anyplug.policy.paths import expanded, is_within
from anyplug.policy.shell import find_expressions, reading_time, word_patterns
from anyplug.policy.shell.command_steps import Step
from anyplug.policy.shell.find_expressions import Expression, Found
from anyplug.policy.shell.guarded_places import MOST_FILES, Guarded, is_named, is_text_in, names_in, reaches
from anyplug.policy.shell.syntax import UNKNOWN

LISTING: Final = frozenset({"find", "fd", "ls", "tree", "du", "locate"})  # what they list, `xargs` can remove
SEARCHING: Final = frozenset({"grep", "rg", "ag", "egrep", "fgrep"})
VALUED: Final = {"rg": "efABCmgtTjMrE"}  # letters of options with a value, of other programs than `grep`
VALUED_BY_GREP: Final = "efABCmDd"
FLAGS: Final = frozenset(  # options that leave it to the pattern which files are found
    {
        "--recursive", "--dereference-recursive", "--ignore-case", "--no-messages", "--files-with-matches", "--null",
        "--name-only", "--line-number", "--word-regexp", "--line-regexp", "--extended-regexp", "--fixed-strings",
        "--basic-regexp", "--perl-regexp", "--color", "--colour", "--hidden", "--no-ignore", "--smart-case",
        "--untracked", "--cached", "--no-index", "--full-name",
    }
)  # fmt: skip
GIVING: Final = frozenset({"--regexp", "--include", "--exclude", "--exclude-dir", "--glob"})  # with a value
_HIDDEN: Final = late(r"(?:^| )(?:-[A-Za-z]*[Hu.]|--hidden|--unrestricted|--no-ignore)")
_ALL: Final = late(r"-[A-Za-z0-9]*[aAfd]|--a.*|--d.*")  # of `ls`: hidden names, or what is named itself
_WITH_VALUE: Final = late(r"-[A-Za-z0-9]*[ITw]|--[a-z-]+")  # of `ls`: options whose value may be the next word
_INVERTING: Final = late(r"[vLfzc]")
LISTS_FILES: Final = late(r"(?:^| )(?:-[A-Za-z]*[lL]|--files)")


class Search(NamedTuple):
    """What a program looks for in files."""

    patterns: list[str]
    named: list[str]  # where
    kept: list[str]  # names of files
    skipped: list[str]  # names of files and folders
    ignores_case: bool


def guarded_below(guarded: Guarded, start: str, *, has_dots: bool) -> Iterator[tuple[str, str]]:
    """Yield the guarded files and folders at or below a place, and from there on how they are called."""
    known = len(start.rstrip(os.sep).split(os.sep))
    for place in guarded.held:
        if not reaches(start, place, has_dots=has_dots):
            continue
        yield place, os.sep.join(place.split(os.sep)[known:])
        usual = guarded.names if os.path.isdir(place) or not os.path.lexists(place) else ()
        names = (os.path.join(place, name) for name in usual)
        for path in itertools.islice(itertools.chain(names, _inside(guarded, place)), MOST_FILES):
            reading_time.check()
            yield path, os.sep.join(path.split(os.sep)[known:])


def _inside(guarded: Guarded, place: str) -> Iterator[str]:
    for above, folders, names in os.walk(place):
        folders[:] = [
            name for name in folders if name != "__pycache__" and not guarded.is_free(os.path.join(above, name), place)
        ]
        yield from (os.path.join(above, name) for name in (*folders, *names))


def found_by_find(
    step: Step, guarded: Guarded, runs: Callable[[Sequence[str]], bool], *, prints: bool, has_dots: bool
) -> list[tuple[str, str, str]]:
    """Return the guarded files that `find` does something with, where it begins, and how they are left out.

    `runs` tells which programs after `-exec` count; with `prints`, what is listed counts, too.
    """
    at = next((at for at, word in enumerate(step.words) if at and _begins(word)), len(step.words))
    named = [word for word in step.words[1:at] if not word.startswith("-")] or ["."]
    follows = not {"-L", "-H", "-follow"}.isdisjoint(step.words)
    expression: Expression | None
    try:
        expression = Expression(step.words[at:], runs)
    except ValueError:
        expression = None
    found = []
    for word in named:
        start = step.where(word)
        begins = expanded(word, step.folder)
        for path, inner in guarded_below(guarded, start, has_dots=has_dots):
            depth = len(inner.split(os.sep)) if inner else 0
            shown = f"{begins.removesuffix('/')}/{inner}" if inner else begins
            is_usual = os.path.basename(path) in guarded.names and path not in guarded.held
            one = Found(path, shown, depth, is_file=is_usual)
            above = list(find_expressions.folders_above(one, begins))
            if expression is None or follows or _is_reached(expression, one, above, prints=prints):
                found.append((path, start, f"-not -path '{begins.removesuffix('/')}/{inner.split(os.sep)[0]}*'"))
    return found


def _begins(word: str) -> bool:
    return word.startswith(("-", "(", "!", ",")) and word not in {"-H", "-L", "-P"}


def _is_reached(expression: Expression, one: Found, above: Sequence[Found], *, prints: bool) -> bool:
    """Return whether a file or a folder above it is reached; `-delete` leaves folders that have files."""
    for at, each in enumerate((one, *above)):
        if expression.deletes and (at or os.path.isdir(each.path)) and not find_expressions.is_hollow(each.path):
            continue
        if expression.reaches(each, (one, *above)[at + 1 :], prints=prints):
            return True
    return False


def looks_elsewhere(step: Step, start: str, guarded: Guarded, *, has_dots: bool) -> bool:
    """Return whether a program lists no name that something guarded below a folder has."""
    words = step.words
    if step.name in {"fd", "rg", "ag"} and not _HIDDEN.search(" ".join(words)):
        below = [os.path.relpath(place, start) for place in guarded.held if is_within(place, start)]
        if not any(all(part == "." or part[:1] != "." for part in one.split(os.sep)) for one in below):
            return True
    if step.name == "ls" and not any(map(_ALL.fullmatch, words[1:])) and not any(map(word_patterns.is_unknown, words)):
        known = len(start.rstrip(os.sep).split(os.sep))
        inner = [place.split(os.sep)[known:] for place in guarded.held if reaches(start, place, has_dots=has_dots)]
        return all(parts and parts[0].startswith(".") for parts in inner)
    if step.name == "fd" and guarded.has_known_contents:
        return not _found_by_fd(words, names_in(guarded, guarded.held))
    asked = [("-name", word.partition("=")[2]) for word in words if word.startswith(("--include=", "--glob="))]
    if not asked:
        return False
    below_names = names_in(guarded, [place for place in guarded.held if reaches(start, place, has_dots=has_dots)])
    return any(not any(is_named(name, pattern, word) for name in below_names) for word, pattern in asked)


def started(step: Step) -> list[str]:
    """Return the places at which `ls` and the like begin."""
    if step.name == "fd" or step.name in SEARCHING:  # a pattern comes first; some skip hidden folders
        ends = next((at for at, word in enumerate(step.words) if word in {"-x", "-X", "--exec", "--exec-batch"}), None)
        words = [word for word in step.words[1:ends] if not word.startswith("-")][1:]
    else:
        words = [word for word in step.words[1:] if not word.startswith("-")]
        words += ["."] if words and any(map(_WITH_VALUE.fullmatch, step.words[1:])) else []
    return [step.where(word) for word in words or ["."]]


def searched(name: str, words: Sequence[str]) -> Search | None:  # noqa: C901 - one branch for each kind of option
    """Return what `grep -l` and the like look for; None if more than a pattern decides, or that is not known."""
    search = Search([], [], [], [], ignores_case=False)
    valued = VALUED.get(name, VALUED_BY_GREP)
    rest = [*words]
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        letter = ""
        if word == "--":
            search.named.extend(rest)
            break
        if word_patterns.is_unknown(word[:1]) or (name == "ag" and word.startswith("-")):
            return None
        if word.startswith("--"):
            if option not in FLAGS | GIVING:
                return None
            if option in GIVING:
                letter, value = option, value if equals or not rest else rest.pop(0)
            ignores = {"--ignore-case", "--smart-case"}
            search = search._replace(ignores_case=search.ignores_case or option in ignores)
        elif word.startswith("-") and len(word) > 1:
            at = next((at for at, char in enumerate(word) if at and char in valued), len(word))
            if _INVERTING.search(word[1 : at + 1]):
                return None
            search = search._replace(ignores_case=search.ignores_case or not {"i", "y", "S"}.isdisjoint(word[1:at]))
            letter = word[at : at + 1]
            value = (word[at + 1 :] or (rest.pop(0) if rest else "")) if letter else ""
        else:
            search.named.append(word)
        if letter in {"e", "--regexp"}:
            search.patterns.append(value)
        elif letter == "--include":
            search.kept.append(value)
        elif letter in {"g", "--glob"} or letter.startswith("--exclude"):
            is_skipping = letter.startswith("--ex") or value.startswith("!")
            (search.skipped if is_skipping else search.kept).append(value.removeprefix("!").removesuffix("/"))
    if not search.patterns:
        search.patterns.extend(search.named[:1])
        del search.named[:1]
    return search


def found_by_content(search: Search, guarded: Guarded, start: str, *, has_dots: bool) -> Iterator[str]:
    """Yield the guarded files below a place that have in them what is looked for."""
    skipped = [name for name in search.skipped if not any(char in name for char in "/?[*\\") and UNKNOWN not in name]
    for path, inner in guarded_below(guarded, start, has_dots=has_dots):
        name = os.path.basename(path)
        if not set(inner.split(os.sep)).isdisjoint(skipped) or not os.path.isfile(path):
            continue
        if search.kept and not any(fnmatch.fnmatchcase(name, kept.replace(UNKNOWN, "*")) for kept in search.kept):
            continue
        if is_text_in(path, search.patterns, ignores_case=search.ignores_case):
            yield path


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
