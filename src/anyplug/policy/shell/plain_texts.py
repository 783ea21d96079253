"""Words that a program takes as text, and not as files that it does something with.

Scripts of `sed` that only change lines, titles and messages, and the names of what is left out.
"""

from collections.abc import Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell import sed_scripts
from anyplug.policy.shell.word_patterns import is_unknown

TITLES: Final = frozenset({"-t", "--title", "-b", "--body", "-n", "--notes", "-c", "--comment", "--subject"})
MESSAGES: Final = frozenset({"-m", "-am", "--message"})
TAKING: Final = {  # programs with their commands, and the options that are followed by a text
    ("gh", "pr"): TITLES, ("gh", "issue"): TITLES, ("gh", "release"): TITLES,
    ("git", "commit"): MESSAGES, ("git", "tag"): MESSAGES, ("git", "merge"): MESSAGES, ("git", "stash"): MESSAGES,
    ("git", "notes"): MESSAGES,
}  # fmt: skip
_TESTS: Final = r"-(?:i?name|i?path|i?wholename)"
_OPTIONS: Final = r"(?:^| )--exclude(?:-dir)?[= ]\S+$"
LEAVING_OUT: Final = {  # what a word is, at the end of it and the two before it
    "find": late(rf"(?:^| )(?:!|-not) {_TESTS} \S+$"),
    "grep": late(_OPTIONS), "egrep": late(_OPTIONS), "fgrep": late(_OPTIONS),
    "rg": late(r"(?:^| )(?:-g |--glob[= ])!\S+$"),
    "git": late(r"(?:^| )(?::(?:[!^]|\(exclude\))|-e |--exclude[= ])\S+$"),
}  # fmt: skip
_IN_PLACE: Final = late(r"-[nErsuz]*i[^/]*|--in-place(?:=[^/]*)?")


def texts(words: Sequence[str], start: int) -> frozenset[int]:
    """Return which words of a command, whose program is at `start`, are texts."""
    name = words[start].rpartition("/")[2] if start < len(words) else ""
    if name == "sed":
        return frozenset(_scripts(words, start))
    if name in LEAVING_OUT:
        left_out = LEAVING_OUT[name]
        told = (" ".join(words[max(at - 2, 0) : at + 1]) for at in range(len(words)))
        found = frozenset(at for at, text in enumerate(told) if at > start and left_out.search(text))
        if name != "git":
            return found
    else:
        found = frozenset[int]()
    options = TAKING.get((name, "".join(words[start + 1 : start + 2])), frozenset[str]())
    return found | frozenset(
        at
        for at, word in enumerate(words)
        if (at and words[at - 1] in options) or (word.startswith("--") and word.partition("=")[0] in options)
    )


def _scripts(words: Sequence[str], start: int) -> list[int]:
    rest = [word for word in words[start + 1 :] if not _IN_PLACE.fullmatch(word)]
    found = []
    for script in sed_scripts.scripts(rest) or ():
        told = sed_scripts.actions(script)
        if told is None or next(told, None) is not None or is_unknown(script[:1]):
            continue
        found += [at for at, word in enumerate(words) if at > start and (word == script or _has(word, script))][:1]
    return found


def _has(word: str, script: str) -> bool:
    return word.startswith("-") and bool(script) and word.endswith(script)
