"""Scripts of `sed`: the files that they read and write, and the commands that they run."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from anyplug.model.late_patterns import late

LONGEST: Final = 4096  # characters of a script
_OPTION: Final = late(r"-[nErsuz]*(?P<script>e(?P<text>[\s\S]*))?|--(?:expression(?P<long>=[\s\S]*)?|quiet|silent)")
_LONG: Final = late(r"--(?:regexp-extended|separate|unbuffered|null-data|posix|debug|sandbox|line-length=\d+)")
_BLANKS: Final = late(r"[\s;{}]*")
_NUMBER: Final = late(r"(?:\d+(?:~\d+)?|\$|[+~]\d+)")
_LABEL: Final = late(r"[^;}\n]*")
_ALONE: Final = frozenset("pPdDqQ=lnNhHgGxzF")  # commands that change no file


class Action(NamedTuple):
    """What a script does beside printing lines."""

    kind: str  # r, w or e
    text: str  # the file or the command


def scripts(words: Sequence[str]) -> list[str] | None:
    """Return the scripts among what `sed` is told; None if it is told something else that is not known."""
    found: list[str] = []
    named: list[str] = []
    waits = False
    for word in words:
        if waits:
            found.append(word)
            waits = False
        elif not word.startswith("-") or word == "-":
            named.append(word)
        elif (option := _OPTION.fullmatch(word)) is not None:
            given = option["text"] or (option["long"] or "")[1:]
            waits = not given and (option["script"] is not None or word == "--expression")
            found += [given] if given else []
        elif _LONG.fullmatch(word) is None:
            return None
    return found or named[:1]


def actions(script: str) -> Iterator[Action] | None:
    """Return what a script does; None if it cannot be read."""
    try:
        return iter(list(_actions(script[:LONGEST]))) if len(script) <= LONGEST else None
    except ValueError:
        return None


def _actions(script: str) -> Iterator[Action]:  # noqa: C901 - one branch for each kind of command
    at = _skipped(_BLANKS, script, 0)
    while at < len(script):
        at = _after_addresses(script, at)
        command, at = script[at : at + 1], at + 1
        if command == "s":
            at = _after_part(script, at, parts=2)
            flags = re.compile(r"[gpiImM0-9e]*").match(script, at)
            assert flags is not None
            at = flags.end()
            if "e" in flags[0]:
                yield Action("e", _parts(script, at - len(flags[0])))
            if script[at : at + 1] in {"w", "W"}:
                text, at = _rest(script, at + 1)
                yield Action("w", text)
        elif command == "y":
            at = _after_part(script, at, parts=2)
        elif command in {"r", "R", "w", "W", "e"}:
            text, at = _rest(script, at)
            yield Action(command.lower(), text)
        elif command in {"a", "i", "c", "#"}:
            _, at = _rest(script, at)
        elif command in {":", "b", "t", "T"}:
            at = _skipped(_LABEL, script, at)
        elif command not in _ALONE and command not in {"{", "}", ""}:
            raise ValueError(command)
        elif command in {"q", "Q", "l", "L"}:
            at = _skipped(re.compile(r" *\d*"), script, at)
        at = _skipped(_BLANKS, script, at)


def _skipped(pattern: re.Pattern[str], script: str, at: int) -> int:
    found = pattern.match(script, at)
    return found.end() if found else at


def _after_addresses(script: str, at: int) -> int:
    for _ in range(2):
        if script[at : at + 1] in {"/", "\\"}:
            at = _after_part(script, at + (script[at] == "\\"), parts=1)
            at = _skipped(re.compile("[IM]*"), script, at)
        else:
            at = _skipped(_NUMBER, script, at)
        at = _skipped(re.compile(r" *"), script, at)
        if script[at : at + 1] != ",":
            break
        at = _skipped(re.compile(r", *"), script, at)
    return _skipped(re.compile(r"[! ]*"), script, at)


def _after_part(script: str, at: int, *, parts: int) -> int:
    """Return where the parts between a delimiter end. Raises ValueError if they do not."""
    delimiter = script[at : at + 1]
    at += 1
    while parts and delimiter:
        if at >= len(script):
            raise ValueError(script)
        if script[at] == "[" and (found := re.compile(r"\[\^?\]?(?:\[[:.=][^\]]*\]|[^\]\n])*\]").match(script, at)):
            if delimiter in found[0]:  # not every `sed` takes that for the end
                raise ValueError(script)
            at = found.end()
        elif script[at] == "\\":
            at += 2
        else:
            parts -= script[at] == delimiter
            at += 1
    return at


def _parts(script: str, end: int) -> str:
    """Return the replacement that ends before a place: with the flag `e` it is run."""
    delimiter = script[end - 1]
    return script[: end - 1].rpartition(delimiter)[2]


def _rest(script: str, at: int) -> tuple[str, int]:
    end = script.find("\n", at)
    end = len(script) if end < 0 else end
    return script[at:end].strip(), end
