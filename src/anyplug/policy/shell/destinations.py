"""Where commands that copy, move, link, download or clone put what they are given.

`cp a b` writes `b/a` if `b` is a folder and `b` otherwise; with `a/.` or `-T` everything in `a` ends up in `b`. Unknown
parts are UNKNOWN.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from anyplug.model.late_patterns import late
from anyplug.policy.shell.substitutions import UNKNOWN

COPIERS: Final = {  # with the letters of options that take a value
    "cp": "St", "gcp": "St", "mv": "St", "gmv": "St", "ln": "St", "link": "", "install": "gmoSt", "ginstall": "gmoSt",
    "scp": "cDFiJloPSX", "rsync": "eTfBM", "ditto": "", "rclone": "", "cpio": "", "pax": "",
}  # fmt: skip
FILE_COPIERS: Final = frozenset({"cp", "gcp", "install", "ginstall"})  # copy no folders unless they are told to
LOADERS: Final = frozenset({"curl", "wget", "aria2c", "wget2"})
CLONERS: Final = frozenset({"clone", "worktree", "submodule"})
MOST_PUTS: Final = 512  # of one command
MOST_PROGRAMS: Final = 4  # in one command, as after `find -exec`
_VALUED: Final = late(  # long options whose value is the next word
    r"--(?:suffix|group|owner|mode|exclude|include|filter|rsh|files-from|exclude-from|include-from|backup-dir|chmod)"
)
_LOADED: Final = late(r"(?:-o|-O|--output(?:-document)?|--out)(?:=(.*))?", re.DOTALL)
_FOLDER: Final = late(r"(?:--output-dir|--directory-prefix|--dir)(?:=(.*))?|-[A-Za-z]*P(.*)|-d(.*)", re.DOTALL)
_STOWING: Final = late(r"-(?:-(?=.{2}))?(dir|target|[dt])(?:=?(.+))?", re.DOTALL)
_RECURSIVE: Final = late(r"-[A-Za-z]*[rRad]|--[rad]")
_URL: Final = late(r"[a-z]+://|/")


class Written(NamedTuple):
    """Something that a command writes."""

    source: str  # its path; empty if unknown
    place: str  # the path that it gets
    is_file: bool = False  # certainly no folder


def puts(words: Sequence[str], places: Callable[[str], list[str]]) -> Iterator[Written]:
    """Yield what a command puts where; `places` returns the paths that a word leads to."""
    found = [
        at
        for at, word in enumerate(words)
        if (name := _name(word)) in COPIERS or name in LOADERS or name in {"git", "stow"}
    ]
    for at in found[:MOST_PROGRAMS]:
        rest = list(words[at + 1 :])
        end = next((number for number, word in enumerate(rest) if word in {";", "+"}), len(rest))
        rest = [word.replace("{}", UNKNOWN) if at else word for word in rest[:end]]
        name = _name(words[at])
        if name in COPIERS:
            yield from _copied(name, rest, places)
        elif name in LOADERS:
            yield from _loaded(name, rest, places)
        elif name == "stow":
            yield from _stowed(rest, places)
        else:
            yield from _cloned(rest, places)


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _copied(name: str, rest: list[str], places: Callable[[str], list[str]]) -> Iterator[Written]:  # noqa: C901
    """Parse operands and options as `cp` does."""
    named: list[str] = []
    into: list[str] = []
    is_exact = has_parents = False
    is_file = name in FILE_COPIERS and not any(_RECURSIVE.match(word) or word.startswith(UNKNOWN) for word in rest)
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        option, equals, value = word.partition("=")
        if word == "--":
            named += rest[at:]
            break
        if word.startswith("--"):
            is_exact |= option.startswith("--no-t")
            has_parents |= option.startswith(("--pa", "--rel"))
            if name not in {"rsync", "scp"} and option.startswith("--t"):
                into.append(value if equals else "".join(rest[at : at + 1]))
                at += not equals
            elif not equals and _VALUED.fullmatch(option):
                at += 1
        elif word.startswith("-") and len(word) > 1:
            valued = next((number for number, char in enumerate(word) if number and char in COPIERS[name]), 0)
            flags = word[1 : valued or None]
            is_exact |= "T" in flags and name != "rsync"
            has_parents |= "R" in flags and name == "rsync"
            if valued:
                value = word[valued + 1 :] or "".join(rest[at : at + 1])
                at += not word[valued + 1 :]
                into += [value] if word[valued] == "t" else []
        else:
            named.append(word)
    if name == "pax" and any(re.match(r"-\w*r\w*w|-\w*w\w*r", word) for word in rest):
        into, named, has_parents = named[-1:], named[:-1], True
    elif name in {"cpio", "pax"}:
        into = [word for word in named[-1:] if name == "cpio" or len(named) > 1] or ["."]
        named = ["."] if name == "cpio" and any(re.match(r"-\w*p", word) for word in rest) else []
    if name == "rclone":
        named = named[1:]
    if not into:
        if name == "ln" and len(named) == 1:
            into = ["."]
        elif len(named) > 1:
            into = [named.pop()]
            for put in _placed(name, named, into[0], places, is_exact=is_exact, may_be_new=True, parents=has_parents):
                yield put._replace(is_file=is_file)
            return
    for folder in into:
        yield from _placed(
            name, named or [UNKNOWN], folder, places, is_exact=False, may_be_new=False, parents=has_parents
        )


def _placed(
    name: str,
    sources: list[str],
    last: str,
    places: Callable[[str], list[str]],
    *,
    is_exact: bool,
    may_be_new: bool,
    parents: bool,
) -> Iterator[Written]:
    """Yield what becomes of each source at a destination."""
    left = MOST_PUTS
    for place in places(last):
        is_new = may_be_new and not (os.path.isdir(place) if UNKNOWN not in place and "\0" not in place else False)
        for source in sources:
            gives_all = source.endswith(("/.", "/..")) or source in {".", ".."}
            gives_all |= name in {"ditto", "rclone"}
            gives_all |= name == "rsync" and source.endswith("/")
            paths = [""] if UNKNOWN in source else places(source)
            for path in paths:
                left -= 1
                if left < 0:
                    yield Written("", os.path.join(place, UNKNOWN))
                    return
                base = os.path.basename(source.rstrip("/")) if not path or not _has_glob(source) else _name(path)
                base = base.rpartition(":")[2] if name in {"scp", "rsync"} else base
                base = UNKNOWN if not base.strip(UNKNOWN) or (not path and _has_glob(base)) else base
                if gives_all or is_exact or is_new:
                    yield Written(path, place)
                if not gives_all and not is_exact:
                    yield Written(path, os.path.join(place, base))
                if parents:
                    tail = source.rpartition("/./")[2] if "/./" in source else source
                    yield Written(path, os.path.normpath(os.path.join(place, tail.lstrip("/"))))


def _has_glob(word: str) -> bool:
    return any(char in word for char in "*?[")


def _loaded(name: str, rest: list[str], places: Callable[[str], list[str]]) -> Iterator[Written]:
    """Yield what a downloading program is told to write."""
    folders: list[str] = []
    files: list[str] = []
    names: list[str] = []
    for at, word in enumerate(rest):
        following = "".join(rest[at + 1 : at + 2])
        if found := _FOLDER.fullmatch(word):
            if name in {"wget", "wget2", "aria2c"} or found[1] is not None or word.startswith("--"):
                folders.append(next((one for one in found.groups() if one), "") or following)
        elif (found := _LOADED.fullmatch(word)) and not (name == "curl" and word == "-O"):
            files.append(found[1] or following)
        elif re.fullmatch(r"-[A-Za-z]*o", word):
            files.append(following)
        elif not word.startswith("-") and _URL.search(word):
            names.append(re.split(r"[?#]", word)[0].rstrip("/").rpartition("/")[2] or UNKNOWN)
        elif UNKNOWN in word:
            names.append(UNKNOWN)
    is_saved = name != "curl" or any(re.match(r"-[A-Za-z]*[OJ]|--remote", word) for word in rest)
    for folder in folders or ["."]:
        for place in places(folder):
            yield from (
                Written("", os.path.join(place, each)) for each in (*(names if is_saved else ()), *files) if each
            )


def _stowed(rest: list[str], places: Callable[[str], list[str]]) -> Iterator[Written]:
    """Yield what `stow` links from the folders of packages into another one, above theirs by default."""
    told = {"d": ".", "t": ""}
    named: list[str] = []
    at = 0
    while at < len(rest):
        found = _STOWING.fullmatch(rest[at])
        if found is None:
            named += [rest[at]] if not rest[at].startswith("-") else []
        else:
            at += found[2] is None
            told[found[1][0]] = "".join(rest[at : at + 1]) if found[2] is None else found[2]
        at += 1
    into = told["t"] or os.path.join(told["d"], "..")
    sources = (path for word in named for path in places(os.path.join(told["d"], word)))
    yield from (Written(source, place) for source in sources for place in places(into))


def _cloned(rest: list[str], places: Callable[[str], list[str]]) -> Iterator[Written]:
    """Yield where git puts a clone, a worktree or a submodule."""
    at = next((at for at, word in enumerate(rest) if word in CLONERS), -1)
    named = [word for word in rest[at + 1 :] if not word.startswith("-") and word != "add"]
    if at < 0 or not named:
        return
    told = named if rest[at] == "worktree" or len(named) > 1 else [_name(named[0].rstrip("/")).removesuffix(".git")]
    yield from (Written("", place) for word in told for place in places(word))
