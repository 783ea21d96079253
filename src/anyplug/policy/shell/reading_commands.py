"""Which commands only read, whatever they name."""

from collections.abc import Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell import sed_scripts, syntax
from anyplug.policy.shell.command_steps import ASSIGNMENT, REMOVERS, RUNNING, Step
from anyplug.policy.shell.git_changes import removed
from anyplug.policy.shell.git_configuration import git_command
from anyplug.policy.shell.guarded_places import Guarded

READERS: Final = frozenset(
    {
        "basename", "cat", "cd", "cksum", "cmp", "comm", "cut", "df", "diff", "dirname", "du", "echo", "egrep", "fgrep",
        "file", "find", "grep", "head", "hexdump", "jq", "less", "ls", "md5sum", "more", "nl", "od", "popd", "printf",
        "pushd", "pwd", "realpath", "rg", "sha1sum", "sha256sum", "sha512sum", "sort", "stat", "strings", "tail",
        "test", "tr", "tree", "true", "wc", "which", "zcat", "zgrep", "[",
    }
)  # fmt: skip
READING_GIT: Final = frozenset(  # and those that do not change the files in the folder
    {"status", "diff", "log", "show", "blame", "grep", "ls-files", "branch", "add", "commit", "push", "fetch", "tag"}
)
AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
CHANGING: Final = {  # options by which what else only reads writes a file or starts a program, as they begin
    "diff": ("--output",),
    "file": ("--compile",),
    "find": ("-delete", "-exec", "-ok", "-fls", "-fprint"),
    "git": ("--output", "--open-files-in-pager", "--ext-diff", "--textconv", "--upload-pack", "--receive-pack"),
    "less": ("--log-file", "--LOG-FILE", "+s", "+!", "+|"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("--output", "--compress-program"),
}
CHANGING_LETTERS: Final = {"file": "C", "git": "O", "less": "oO", "sort": "o", "tree": "o"}
SHORTEST_LONG: Final = 3  # characters of `--o`, which is taken for `--output` where nothing else begins so
_AWK_CHANGING: Final = late(r"[>|@]|system|^-[ifodp]|^--")


def only_reads(step: Step, guarded: Guarded) -> bool:
    """Return whether a command leaves all that is guarded as it is, whatever it names."""
    words, name = step.words, step.name
    if any(guarded.covers(path) for path in step.writes):
        return False
    if (known := guarded.only_reads(step)) is not None:
        return known
    if name == "sed":
        return _is_reading_sed(words[1:])
    if name in AWKS:
        return not any(map(_AWK_CHANGING.search, words[1:]))
    if name == "uniq":  # of two files the second one is written
        return sum(not word.startswith(("-", "+")) for word in words[1:]) <= 1
    if name == "git" and removed(step, guarded) == [] and git_command(words)[0] in {"clean", "stash", "restore"}:
        return True
    if any(_changes(name, word) for word in words[1:]):
        writes = any(word.startswith(("-fprint", "-fls")) for word in words)
        return name == "find" and not writes and not find_changes(step)
    if name == "git":
        return len(words) > 1 and words[1] in READING_GIT
    is_assignment = bool(words) and all(ASSIGNMENT.match(word) for word in words)
    return name in READERS or is_assignment or (not name and not step.writes)


def _is_reading_sed(words: Sequence[str]) -> bool:
    """Return whether `sed` only prints: its scripts can write files and run things, unless they are known not to."""
    found = sed_scripts.scripts(words)
    read = [None] if not found else [sed_scripts.actions(script) for script in found]
    return all(one is not None and all(action.kind == "r" for action in one) for one in read)


def find_changes(step: Step) -> bool:
    """Return whether `find` deletes what it finds, or passes it to a program that may."""
    words = step.words
    if step.name not in {"find", "fd"}:
        return False
    if "-delete" in words:
        return True
    return any(word in RUNNING and not is_reader(words[at + 1 : at + 2]) for at, word in enumerate(words))


def is_reader(words: Sequence[str]) -> bool:
    """Return whether a program, given as its words, only reads."""
    return bool(words) and words[0].rpartition("/")[2] in READERS - {"find"}


def feeds_reader(step: Step) -> bool:
    """Return whether a command such as `xargs` runs a program that only reads."""
    return any(is_reader([word]) for word in step.words[1:]) and not any(
        word.rpartition("/")[2] in REMOVERS | syntax.SHELLS for word in step.words[1:]
    )


def _changes(name: str, word: str) -> bool:
    """Return whether a word makes a command write or run something although by its name it only reads."""
    option = word.partition("=")[0]
    is_long = option.startswith("--")
    for known in CHANGING.get(name, ()):
        if option.startswith(known) or (is_long and len(option) >= SHORTEST_LONG and known.startswith(option)):
            return True
    is_short = option.startswith("-") and not is_long
    return is_short and any(letter in option for letter in CHANGING_LETTERS.get(name, ""))
