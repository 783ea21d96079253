"""Which guarded files git lists for another command, and which of them a pathspec names or leaves out."""

import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.paths import expanded, is_within, resolved
from anyplug.policy.shell import find_expressions, found_files, git_configuration, syntax, word_patterns
from anyplug.policy.shell.command_steps import Step, may_write
from anyplug.policy.shell.found_files import LISTS_FILES
from anyplug.policy.shell.git_configuration import git_command, gits
from anyplug.policy.shell.guarded_places import Change, Guarded
from anyplug.policy.shell.syntax import UNKNOWN

MAGIC: Final = late(r"^:(?:\([^)]*\)|[/!^]+)?")  # before a pathspec of git
LEAVING_OUT: Final = frozenset({":!", ":^", ":(exclude)"})
LOOKING: Final = frozenset({"ls-files", "ls-tree", "grep", "status", "diff", "log", "show"})  # leave the index alone
INDEXING: Final = frozenset({"add", "rm", "mv", "reset", "commit", "update-index", "read-tree", "checkout"})
INDEX: Final = "index"
SHARED_INDEX: Final = "sharedindex."  # begins the name of a file that an index continues
LARGEST_INDEX: Final = 1 << 26  # bytes
COMPRESSED: Final = 4  # the version of an index in which paths are not whole
_OTHERS: Final = late(r"-[a-z]*o[a-z]*|--oth?.*")
_CACHED: Final = late(r"-[a-z]*[cs][a-z]*|--(?:cach|stag).*")
_ELSEWHERE: Final = late(r"GIT_\w+=[\s\S]*|--(?:git-dir|work-tree)(?:=[\s\S]*)?")


def parted(words: Sequence[str], folder: str) -> tuple[list[str], list[str]]:
    """Return the pathspecs among words, and the places that they leave out for certain."""
    named: list[str] = []
    left_out: list[str] = []
    for word in words:
        magic = MAGIC.match(word)
        if magic is None or not (set(magic[0]) & set("!^") or "exclude" in magic[0]):
            named.append(word)
            continue
        text = word[magic.end() :]
        is_plain = not any(char in text for char in f"{syntax.GLOBS}\\") and not word_patterns.is_unknown(text)
        if magic[0] in LEAVING_OUT and text and is_plain:
            left_out.append(os.path.normpath(os.path.join(folder, text)))
    return named, left_out


def listed(step: Step, steps: Sequence[Step], guarded: Guarded) -> list[str]:
    """Return the folder whose files git tells to a command that changes them, which must be among `steps`."""
    command, rest = git_command(step.raw or step.words)
    options = "".join(word for word in rest if word.startswith("-"))
    is_listing = command in {"ls-files", "ls-tree", "grep", "status"} or "--name-" in options
    is_changing = any(one.removes or may_write(one) for one in steps)
    if not is_listing or (options in {"-m", "-d"} and command == "ls-files"):  # changed or gone already
        return []
    folder = in_folder(step)
    is_above = any(".." in word or word[:1] in {"/", ":", UNKNOWN} for word in parted(rest, folder)[0])
    start = (git_configuration.work_tree(folder)[0] or os.sep) if is_above else folder
    if command == "grep":
        found = _grepped(rest, guarded, start, folder) if LISTS_FILES.search(" ".join(rest)) else ""
    elif command == "ls-files":
        found = next(_told(step, steps, rest, guarded, start), "") if is_changing else ""
    elif command == "ls-tree":
        return [folder] if is_changing else []
    else:
        return [folder] if any(one.removes for one in steps) else []
    if not found:
        return []
    names = " ".join(f"':!{name}'" for name in tops(guarded, folder))
    mark = "-- " if command == "grep" else ""
    cure = f"git lists {os.path.relpath(found, folder)}, which can be left out: git {command} … {mark}{names}"
    return [Change(start, cure)]


def may_be_untracked(step: Step, steps: Sequence[Step], guarded: Guarded) -> bool:
    """Return whether git may not know something guarded; folders without files are unknown to it."""
    folder = in_folder(step)
    index = _index(step, steps, folder)
    for path, _ in found_files.guarded_below(guarded, folder, has_dots=True):
        is_unknown = find_expressions.is_hollow(path) if os.path.isdir(path) else not _is_tracked(path, index)
        if is_unknown and os.path.lexists(path):
            return True
    return False


def tops(guarded: Guarded, folder: str) -> list[str]:
    """Return the names in a folder that are guarded, or have something guarded in them."""
    below = (os.path.relpath(place, folder) for place in guarded.held if is_within(place, folder) and place != folder)
    return list(dict.fromkeys(path.split(os.sep)[0] for path in below))


def in_folder(step: Step) -> str:
    """Return the folder that a git command is about."""
    words = next(gits(step.words), [])
    at = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "-C"), "")
    return resolved(expanded(at, step.folder), step.folder)


def _grepped(rest: Sequence[str], guarded: Guarded, start: str, folder: str) -> str:
    behind = list(rest[rest.index("--") + 1 :]) if "--" in rest else []
    named, left_out = parted(behind, folder)
    search = found_files.searched("grep", [word for word in rest[: len(rest) - len(behind)] if word != "--"])
    below = found_files.guarded_below(guarded, start, has_dots=True)
    found = (
        found_files.found_by_content(search, guarded, start, has_dots=True) if search else (path for path, _ in below)
    )
    return next((path for path in found if _is_meant(path, named, left_out, folder)), "")


def _told(step: Step, steps: Sequence[Step], rest: Sequence[str], guarded: Guarded, start: str) -> Iterator[str]:
    folder = in_folder(step)
    options = [word for word in rest if word.startswith("-")]
    named, left_out = parted([word for word in rest if not word.startswith("-")], folder)
    others = any(map(_OTHERS.fullmatch, options))
    index = _index(step, steps, folder)
    for path, _ in found_files.guarded_below(guarded, start, has_dots=True):
        if index is not None:
            if os.path.isdir(path):
                continue
            is_tracked = _is_tracked(path, index)
            is_there = others and not is_tracked and os.path.lexists(path)
            if not is_there and not (is_tracked and (not others or any(map(_CACHED.fullmatch, options)))):
                continue
        if _is_meant(path, named, left_out, folder):
            yield path


def _is_tracked(path: str, index: tuple[str, bytes] | None) -> bool:
    return index is not None and os.fsencode(os.path.relpath(path, index[0])) + b"\0" in index[1]


def _index(step: Step, steps: Sequence[Step], folder: str) -> tuple[str, bytes] | None:
    """Return the top of the work tree and its index; None if it is not known what git lists."""
    others = [git_command(git)[0] for one in steps for git in gits(one.words)]
    elsewhere = any(_ELSEWHERE.fullmatch(word) for one in steps for word in one.words)
    top, place = git_configuration.work_tree(folder)
    known = {*LOOKING, git_command(step.words)[0]} - INDEXING
    if elsewhere or not place or not known.issuperset(others) or word_patterns.is_unknown(step.folder):
        return None
    try:
        if any(name.startswith(SHARED_INDEX) for name in os.listdir(place)):
            return None
        path = os.path.join(place, INDEX)
        if not os.path.lexists(path):
            return top, b""
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_INDEX:
            return None
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    return None if int.from_bytes(data[4:8], "big") >= COMPRESSED else (top, data)


def _is_meant(path: str, named: Sequence[str], left_out: Sequence[str], folder: str) -> bool:
    """Return whether pathspecs may name a file; those that are left out are left out for certain."""
    if any(is_within(path, place) for place in left_out):
        return False
    return not named or any(_may_match(word, path, folder) for word in named)


def _may_match(word: str, path: str, folder: str) -> bool:
    if MAGIC.match(word) or word_patterns.is_unknown(word) or "\\" in word or ".." in word:
        return True
    if any(char in word for char in syntax.GLOBS):
        inner = os.path.relpath(path, folder)
        patterns = {word, word.removeprefix("**/"), word.removeprefix("./")}
        return any(fnmatch.fnmatchcase(inner, each) for one in patterns for each in (one, f"{one}/*"))
    return is_within(path, resolved(expanded(word, folder), folder))
