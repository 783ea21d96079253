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
from anyplug.policy.shell.command_steps import FED_FILE, LONGEST_GLOB, Step
from anyplug.policy.shell.git_configuration import git_command
from anyplug.policy.shell.git_lists import MAGIC, in_folder, may_be_untracked, parted, tops
from anyplug.policy.shell.guarded_places import MOST_FILES, Change, Guarded, reaches

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
CURES: Final = {  # how a command leaves out what it must not change
    "checkout": "leave these out: git checkout -- . {}", "restore": "leave these out: git restore . {}",
    "clean": "leave these out: git clean … {}",
    "stash": "leave these out: git stash push -u -- . {}",
}  # fmt: skip
_GIT_PLACE: Final = late(r"(?:GIT_(DIR|WORK_TREE)|(?:--|core\.)(git-dir|work-?tree))(?:=([\s\S]*))?", re.IGNORECASE)
_TRYING: Final = frozenset({"--check", "--stat", "--numstat", "--summary", "--cached", "--dry-run"})  # change no files


def removed(step: Step, guarded: Guarded, steps: Sequence[Step] = ()) -> list[Change]:  # noqa: C901 - one branch for each command
    """Return the places whose files a git command removes, or puts others in the place of.

    Of the other commands of the line, `steps`, it depends what git knows.
    """
    command, rest = git_command(step.words)
    told = rest[rest.index("--") + 1 :] if "--" in rest else []
    options = rest[: rest.index("--")] if "--" in rest else rest
    valued = {"-e", "-m", "--message"}
    named = [word for at, word in enumerate(options) if word[:1] != "-" and not (at and options[at - 1] in valued)]
    short = "".join(word[1:] for word in options if word.startswith("-") and not word.startswith("--"))
    folder = in_folder(step)
    if command == "clean":
        excluded = [
            word.removeprefix("-e").removeprefix("--exclude=").strip("/")
            for at, word in enumerate(options)
            if word.startswith(("-e", "--exclude=")) or options[max(at - 1, 0) : at] in (["-e"], ["--exclude"])
        ]
        is_dry = "n" in short.partition("e")[0] or any(word.startswith("--dry") for word in options)
        is_spared = excluded and guarded.is_spared(excluded, folder)
        if is_dry or is_spared or (steps and not (named or told or may_be_untracked(step, steps, guarded))):
            return []
        places = [*named, *told] or ["."]
    elif command == "stash":
        takes_all = {"u", "a"} & set(short) or any(word.startswith(("--inc", "--al")) for word in options)
        if named[:1] not in ([], ["push"], ["save"]):
            return []
        takes_all = takes_all and not (steps and not may_be_untracked(step, steps, guarded))
        places = told or (named[1:] if named[:1] == ["push"] else []) or (["."] if takes_all else [])
    elif command == "restore" and _is_of_index(options):
        return []
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
    specs, left_out = parted(places, folder)
    specs += ["."] if len(specs) < len(places) else []
    found = [resolved(expanded(MAGIC.sub("", place, count=1), folder), folder) for place in specs]
    found += [path for place in specs for path in _matched(place, folder, guarded.held)]
    if left_out:
        held = (place for place in guarded.held if any(reaches(path, place, has_dots=True) for path in found))
        found = [place for place in held if not any(is_within(place, out) for out in left_out)]
    names = " ".join(f"-e {name}" if command == "clean" else f"':!{name}'" for name in tops(guarded, folder))
    cure = CURES.get(command, "").format(names)
    return [Change(path, cure) for path in found]


def _is_of_index(options: Sequence[str]) -> bool:
    """Return whether `git restore` changes the index only; letters after `s` are a source."""
    letters = "".join(word[1:].partition("s")[0] for word in options if word.startswith("-") and word[1:2] != "-")
    long = [word for word in options if word.startswith("--")]
    if any(word.startswith(("--w", "--no-", "--ov", "--r")) for word in long) or any(
        map(word_patterns.is_unknown, options)
    ):
        return False
    return "W" not in letters and ("S" in letters or "--staged" in long)


def _matched(pathspec: str, folder: str, held: Sequence[str]) -> Iterator[str]:
    """Yield the protected things that a pathspec of git matches: its globs include folders and hidden names."""
    magic = MAGIC.match(pathspec)
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
