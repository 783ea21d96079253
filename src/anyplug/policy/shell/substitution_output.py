"""What the commands in a substitution print together, as far as that follows from their words and their input.

Nothing is run. A command that is not listed here makes the whole output UNKNOWN, or MADE (see `substitutions`).
"""

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

from anyplug.model.late_patterns import late
from anyplug.policy.shell import substitutions
from anyplug.policy.shell.substitutions import MADE, UNKNOWN, Shell

OUR_NAMES: Final = ("anyplug", "cupcake")
LOCATING: Final = frozenset({"which", "command", "type", "whereis"})
FOLLOWING: Final = frozenset({"readlink", "realpath"})
SILENT: Final = frozenset({"[", "test", "true", "false", ":", "export", "unset", "mkdir", "touch", "sleep"})
SURE: Final = substitutions.PRINTING | {"pwd", "true", ":"}  # never fail
NAMING: Final = frozenset({("ls", "-d"), ("ls", "-1d"), ("ls", "-1", "-d"), ("compgen", "-G")})  # print their words
HERE: Final = "$PWD"
MOST_MISSING: Final = 2  # words of a command that may be none
MOST_OUTCOMES: Final = 8  # texts that one substitution may print
_ASSIGNMENT: Final = late(r"[A-Za-z_]\w*\+?=")
_VARIABLE: Final = late(r"\$([A-Za-z_]\w*)")
_ONLY_VARIABLES: Final = late(r"(?:\$\w+|\$\{[^{}]*\})+")
_ENDING: Final = late(rf"\n(?:\s|{UNKNOWN}|\$\w+|\$\{{[^{{}}]*\}})*\Z")  # which may be empty lines
_FOLLOWING_FLAG: Final = late(r"-[a-zA-Z]|--(?:canonicalize(?:-\w+)?|quiet|strip|no-symlinks)")


class Command(NamedTuple):
    """One of the commands in a substitution."""

    words: Sequence[str]  # without input files
    fed: Sequence[str]  # texts behind `<<<` and `<<`
    before: str  # what separates it from the previous one
    is_diverted: bool  # its output goes to a file, or its input comes from one


def output(commands: Sequence[Command], shell: Shell) -> list[str]:
    """Return what commands may print, one after another or as pipelines; [UNKNOWN] if that is not computed."""
    found, last = [""], [""]  # by what ran before the last pipeline, and by that
    folder = HERE
    is_sure = True  # whether what comes after `&&` certainly runs
    for number, one in enumerate(commands):
        mark = one.before.strip() if number else ""
        words = list(itertools.dropwhile(_ASSIGNMENT.match, one.words))
        words = words[words[:1] == ["builtin"] :]
        name = words[0].rpartition("/")[2] if words else ""
        if mark not in {"", ";", "&&", "||", "|"} or len(found) * len(last) > MOST_OUTCOMES:
            return [UNKNOWN]
        given: list[str | None] = [*last] if mark == "|" else [None]
        if mark != "|":
            found, last = _joined(found, last), []
        if one.fed:
            given = [one.fed[-1] if one.fed[-1].endswith("\n") else one.fed[-1] + "\n"]
        if name == "cd" and len(words) == 2 and mark in {"", ";"}:  # noqa: PLR2004
            folder = words[1] if words[1].startswith(("/", "~", "$")) else f"{folder}/{words[1]}"
            made: list[str | None] = [""]
        elif name == "pwd":
            made = [f"{folder}\n", *([f"{HERE}\n"] if mark != "&&" and folder != HERE else ())]
        else:
            made = [None if one.is_diverted else _printed(name, words, text, shell) for text in given]
            made += [_printed(name, fewer, None, shell) for fewer in _fewer(words) if name in substitutions.PRINTING]
        last = [_closed(text) for text in made if text is not None]
        if len(last) < len(made):
            return [UNKNOWN]
        if mark == "||" or (mark == "&&" and not is_sure):
            last.append("")
        is_sure = name in SURE or name == "cd"
    texts = _joined(found, last)
    texts += [_ENDING.sub("", text) for text in texts if len(text) <= substitutions.LONGEST]
    return list(dict.fromkeys(text.rstrip("\n") for text in texts))


def _fewer(words: Sequence[str]) -> list[list[str]]:
    """Return the words of a command without those that are only variables: without a value, they are no words."""
    may_miss = [at for at, word in enumerate(words) if _ONLY_VARIABLES.fullmatch(word)][:MOST_MISSING]
    gone = (set(one) for count in range(1, len(may_miss) + 1) for one in itertools.combinations(may_miss, count))
    return [[word for at, word in enumerate(words) if at not in each] for each in gone if len(each) < len(words) - 1]


def _joined(before: Sequence[str], last: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(map("".join, itertools.product(before, last))))


def _closed(text: str) -> str:
    """Keep the names of variables apart from what follows them."""
    return _VARIABLE.sub(r"${\1}", text)


def _printed(name: str, words: Sequence[str], given: str | None, shell: Shell) -> str | None:
    """Return what a command prints; None if it is not known here."""
    rest = words[1:]
    named = [word for word in rest if not word.startswith("-")]
    if not words or name in SILENT:
        return ""
    if name in substitutions.PRINTING:
        return substitutions.printed(words, shell)
    if name == "command" and rest[:1] not in (["-v"], ["-V"]):
        return (
            _printed(rest[0].rpartition("/")[2], rest, given, shell) if rest and not rest[0].startswith("-") else None
        )
    if name in LOCATING and named:
        return "".join(f"{UNKNOWN}/bin/{word.rpartition('/')[2]}\n" for word in named)
    if name in FOLLOWING and named and all(map(_FOLLOWING_FLAG.fullmatch, set(rest) - set(named))):
        return "".join(f"{word}\n" for word in named)
    if name == "dirname" and named and named == list(rest):
        return "".join(f"{_above(word)}\n" for word in named)
    if name == "basename" and named == list(rest) and len(named) in {1, 2}:
        base = named[0].rstrip("/").rpartition("/")[2] or UNKNOWN
        ending = "".join(named[1:])
        return (base if base == ending else base.removesuffix(ending)) + "\n"
    if named and (name, *sorted(set(rest) - set(named))) in NAMING:
        return "".join(f"{word}\n" for word in named)
    return None if given is None else substitutions.transformed(name, words, given)


def _above(path: str) -> str:
    """Return the parent of a path; above our own program, everything is ours."""
    if any(name in path for name in OUR_NAMES) or MADE in path:
        return MADE
    return path.rstrip("/").rpartition("/")[0].rstrip("/") or UNKNOWN
