"""What git removes, replaces, lists and patches in a folder, as far as a command line shows."""

import fnmatch
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.paths import expanded, is_within, resolved
from anyplug.policy.shell import reading_time, syntax, word_patterns
from anyplug.policy.shell.command_steps import FED_FILE, LONGEST_GLOB, Step, may_write
from anyplug.policy.shell.found_files import LISTS_FILES
from anyplug.policy.shell.guarded_places import MOST_FILES, Guarded, is_found, is_named, names_in

UPDATING_GIT: Final = frozenset(  # put other files into the folder
    {
        "am", "apply", "checkout", "checkout-index", "cherry-pick", "clean", "merge", "pull", "read-tree", "rebase",
        "reset", "restore", "revert", "stash", "switch",
    }
)  # fmt: skip
SPARING: Final = frozenset(("sparse-checkout", each) for each in ("set", "add", "reapply", "init"))
PATCHING_GIT: Final = frozenset(  # print a patch
    {"diff", "show", "log", "format-patch", "stash", "diff-tree", "diff-index", "diff-files", "cat-file"}
)
_MAGIC: Final = late(r"^:(?:\([^)]*\)|[/!^]+)?")  # before a pathspec of git
_GIT_PLACE: Final = late(r"(?:GIT_(DIR|WORK_TREE)|(?:--|core\.)(git-dir|work-?tree))(?:=([\s\S]*))?", re.IGNORECASE)
_TRYING: Final = frozenset({"--check", "--stat", "--numstat", "--summary", "--cached", "--dry-run"})  # change no files


def git_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return git's command and what follows it."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace"} else 1
    return (words[at], list(words[at + 1 :])) if at < len(words) else ("", [])


def removed(step: Step, guarded: Guarded) -> list[str]:  # noqa: C901 - one branch for each command
    """Return the places whose files a git command removes, or puts others in the place of."""
    command, rest = git_command(step.words)
    told = rest[rest.index("--") + 1 :] if "--" in rest else []
    options = rest[: rest.index("--")] if "--" in rest else rest
    valued = {"-e", "-m", "--message"}
    named = [word for at, word in enumerate(options) if word[:1] != "-" and not (at and options[at - 1] in valued)]
    short = "".join(word[1:] for word in options if word.startswith("-") and not word.startswith("--"))
    at = next((step.words[at + 1] for at, word in enumerate(step.words[:-1]) if word == "-C"), "")
    folder = resolved(expanded(at, step.folder), step.folder)
    if command == "clean":
        excluded = [
            word.removeprefix("-e").removeprefix("--exclude=").strip("/")
            for at, word in enumerate(options)
            if word.startswith(("-e", "--exclude=")) or options[max(at - 1, 0) : at] in (["-e"], ["--exclude"])
        ]
        is_dry = "n" in short.partition("e")[0] or any(word.startswith("--dry") for word in options)
        if is_dry or (excluded and guarded.is_spared(excluded, folder)):
            return []
        places = [*named, *told] or ["."]
    elif command == "stash":
        takes_all = {"u", "a"} & set(short) or any(word.startswith(("--inc", "--al")) for word in options)
        if named[:1] not in ([], ["push"], ["save"]):
            return []
        places = told or (named[1:] if named[:1] == ["push"] else []) or (["."] if takes_all else [])
    elif command in {"checkout", "restore"}:
        is_new = not {"b", "B"}.isdisjoint(short) or "--orphan" in options  # what is named is a branch
        places = [*told, *(() if is_new else named)]
        places += ["."] if any(word.startswith("--pathspec-f") for word in options) else []
    elif command == "rm":
        places = [] if "--cached" in options else [*named, *told]
    elif command == "checkout-index":
        prefix = next((word.partition("=")[2] for word in options if word.startswith("--pre")), "")
        places = [prefix or "."] if "a" in short or "--all" in options else [prefix + one for one in (*named, *told)]
    elif (command, *named[:1]) in SPARING or (command == "switch" and "--orphan" in options):
        places = ["."]
    elif command == "read-tree":
        places = ["."] if "u" in short else []
    elif command == "worktree" and named[:1] in (["remove"], ["move"]):
        places = named[1:2]
    else:
        return []
    found = [resolved(expanded(_MAGIC.sub("", place, count=1), folder), folder) for place in places]
    return found + [path for place in places for path in _matched(place, folder, guarded.held)]


def _matched(pathspec: str, folder: str, held: Sequence[str]) -> Iterator[str]:
    """Yield the protected things that a pathspec of git matches: its globs include folders and hidden names."""
    magic = _MAGIC.match(pathspec)
    pattern = pathspec[magic.end() :] if magic else pathspec
    if magic and set(magic[0]) & set("!^") | {word for word in ("exclude", "attr") if word in magic[0]}:
        yield from held
    elif any(char in pattern for char in syntax.GLOBS) and len(pattern) <= LONGEST_GLOB:
        starts = (folder, *(os.path.dirname(place) for place in held)) if magic else (folder,)
        for place in held:
            reading_time.check()
            below = (os.path.join(above, name) for above, _, names in os.walk(place) for name in names)
            inside = list(itertools.islice(below, MOST_FILES))
            names = [os.path.relpath(path, start) for path in (place, *inside) for start in starts]
            globs = (pattern, pattern.removeprefix("**/"))
            if any(fnmatch.fnmatchcase(name, each) for name in names if name[:2] != ".." for each in globs):
                yield place


def brought(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    """Yield the folder whose files git puts there from a repository that is not the folder's own."""
    if git_command(step.words)[0] not in UPDATING_GIT:
        return
    told = dict[str, str]()
    for word, following in ((a, b) for one in steps for a, b in itertools.pairwise([*one.words, ""])):
        if found := _GIT_PLACE.fullmatch(word):
            told[found[1] or found[2]] = following if found[3] is None else found[3]
    work = told.get("WORK_TREE") or told.get("work-tree") or told.get("worktree") or ""
    tree = step.where(work or ".")
    there = next((f"{b}/.git" for a, b in itertools.pairwise(step.words) if a == "-C" and work), "")
    folder = told.get("DIR") or told.get("git-dir") or there
    if folder and step.where(folder) != os.path.join(tree, ".git"):
        yield tree


def patched(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    """Yield what a patch may change that git makes and another command of the line applies."""
    at = next((at for at, word in enumerate(step.words) if word.rpartition("/")[2] in {"patch", "git"}), -1)
    is_git = at >= 0 and step.words[at].endswith("git")
    command, rest = git_command(step.words[at:]) if is_git else ("patch" if at >= 0 else "", step.words[at + 1 :])
    if command not in {"patch", "apply", "am"} or not _TRYING.isdisjoint(rest):
        return
    named = [word for word in (*rest, *step.read) if word[:1] != "-" and not FED_FILE.fullmatch(word)]
    named = [word for word in named if not word_patterns.is_unknown(word)]
    named = [word for word in named if not any(char in word for char in syntax.GLOBS)]
    files = set(map(step.where, named)) - {step.folder}
    for one in steps:
        command, told = git_command(one.words)
        if one.program == "git" and command in PATCHING_GIT and not (files and files.isdisjoint(one.writes)):
            specs = told[told.index("--") + 1 :] if "--" in told else told
            found = [place for word in specs if not word.startswith("-") for place in one.places(word)]
            yield from [place for place in found if "--" in told or os.path.lexists(place)] or [one.folder]


def listed(step: Step, steps: Sequence[Step], guarded: Guarded) -> list[str]:
    """Return the folder whose files git tells to a command that changes them, which must be among `steps`."""
    command, rest = git_command(step.words)
    options = "".join(word for word in rest if word.startswith("-"))
    is_listing = command in {"ls-files", "ls-tree", "grep", "status"} or "--name-" in options
    if not is_listing:
        return []
    named = [word for word in rest if not word.startswith("-")]
    if command == "grep":
        is_meant = bool(LISTS_FILES.search(" ".join(rest))) and is_found(guarded, named[:1], step.folder)
    elif command not in {"ls-files", "ls-tree"}:
        is_meant = any(one.removes for one in steps)
    elif any(is_within(place, step.where(word)) for place in guarded.held for word in named):
        is_meant = True
    elif named and command == "ls-files":
        names = names_in(guarded, guarded.folders)
        bases = [word.rpartition("/")[2] for word in named]
        is_meant = any(is_named(name, pattern, "-name") for pattern in bases for name in names)
    else:  # those that are changed or gone already may be changed further
        is_meant = options not in {"-m", "-d"} and any(one.removes or may_write(one) for one in steps)
    return [step.folder] if is_meant else []
