"""Whether a shell command would change certain places, as far as its words say so.

Self-protection asks this about our own files, the builtin `protected_paths` about those that a rulebook lists: what
must not be changed, and how it is recognised, is a `Guarded`. A command that only reads is let through. Where a command
cannot be read with certainty, or runs a text in another language, it counts if it mentions a guarded place at all. What
else a program does that a command starts is not seen here.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.paths import is_link, is_within, resolved
from anyplug.policy.shell import command_steps, destinations, reading_time, syntax, unpacking, word_patterns
from anyplug.policy.shell.command_steps import (
    LONGEST_PATH,
    MOST_READ,
    RUNNING,
    Step,
    has_new_content,
    may_write,
)
from anyplug.policy.shell.found_files import (
    LISTING,
    LISTS_FILES,
    SEARCHING,
    found_by_content,
    found_by_find,
    looks_elsewhere,
    searched,
    started,
)
from anyplug.policy.shell.git_changes import brought, patched, removed
from anyplug.policy.shell.git_configuration import git_command
from anyplug.policy.shell.git_lists import listed, tops
from anyplug.policy.shell.guarded_places import Change, Guarded, has_name, reaches
from anyplug.policy.shell.reading_commands import READERS, feeds_reader, find_changes, is_reader, only_reads
from anyplug.policy.shell.syntax import UNKNOWN
from anyplug.policy.shell.word_values import KEYWORDS

VERSIONING: Final = {  # commands of other version control that remove or restore files
    "hg": {"purge", "clean", "revert"}, "sl": {"purge", "clean", "revert"}, "svn": {"revert"}, "jj": {"restore"},
    "bzr": {"clean-tree", "revert"}, "fossil": {"clean", "revert", "extras"},
}  # fmt: skip
PACKERS: Final = {"zip": late(r"-[A-Za-z]*m|--move$"), "7z": late(r"-sdel$"), "rar": late(r"m[fr]?$")}
SQUEEZERS: Final = frozenset({"gzip", "gunzip", "bzip2", "xz", "zstd", "lz4", "compress"})  # put another file in place
MIRRORS: Final = {  # with what makes them remove files that the other side does not have
    "rclone": late(r"sync|bisync|move|moveto|purge|delete|rmdirs"),
    "aws": late(r"--delete|mv|rm"),
    "gsutil": late(r"-\w*d\w*|mv|rm"),
    "gcloud": late(r"--delete-unmatched-destination-objects|mv|rm"),
    "azcopy": late(r"--delete-destination.*|remove"),
    "s3cmd": late(r"--delete-removed|mv|del|rm"),
    "mc": late(r"--remove|mv|rm"),
    "unison": late(r"-?-(?:force|prefer|batch|auto).*"),
    "lftp": late(r".*mirror.*--?(?:delete|e\b).*"),
}
MOUNTERS: Final = frozenset({"mount", "umount", "bindfs", "fusermount"})  # hide what lies in a folder, or show it
FOLLOWED: Final = LISTING | SEARCHING | SQUEEZERS | MOUNTERS | unpacking.UNPACKERS | {"git", *MIRRORS, *PACKERS}
TEXTUAL: Final = frozenset(
    {"ssh", "man", "gh", "alias", "docker", "podman", "apt", "apt-get", "brew"}
)  # run no words here
SHALLOW_CURE: Final = "name the folders that are meant, as in chmod -R u+w src"
LS_CURE: Final = "ls lists names that are protected; name the files, or list another folder"
MOST_BEFORE: Final = 12  # words before a program that another one runs
NOWHERE: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})  # where writing changes no file
MOST_PACKED: Final = 16  # commands of a line that may pack what another unpacks
_RENAMING: Final = late(r"--(?:strip|transform|xform|one-top)|-s")  # of `tar`
_SED_WRITING: Final = late(r"[wW][ \t]*(?=[^\s])")
_SAYING: Final = late(r"-[cfv]+|--(?:changes|quiet|silent|verbose)?")  # options of `chmod`
_OPENING: Final = late(r"0?[0-7]?7[0-7]{2}|[ugoa]*\+[rwxXst]+")  # modes
_ONLY_GLOBS: Final = late(r"(?:\./)?[*?]+")


class CommandLine:
    """A command line, parsed as far as it shows what it changes."""

    def __init__(
        self,
        line: str,
        folder: str,
        guarded: Guarded,
        *,
        is_inner: bool = False,
        starts: Sequence[str] = (),
        has_dots: bool = False,
    ) -> None:
        self._guarded = guarded
        self._folder = folder
        self._is_inner = is_inner  # its texts are parsed by the line that contains it
        self._line = command_steps.read(line, starts or [folder], self._is_near, has_dots=has_dots)
        self._has_dots = self._line.has_dots
        self._steps = [step for step in self._line.steps if not guarded.ignores(step)]
        self._is_fed = self._is_feeding()
        self._seen: dict[tuple[str, str, bool], bool] = {}

    def _is_feeding(self) -> bool:
        """Return whether a command that writes gets its files from another command."""
        is_writing = any(may_write(step) or any(map(word_patterns.is_unknown, step.writes)) for step in self._steps)
        has_output = any(step.has_output for step in self._steps)
        is_finding = any(step.program in {"find", "fd"} for step in self._steps)
        return any(
            (step.program in command_steps.SPREADING and not feeds_reader(step))
            or (may_write(step) and (step.has_output or (has_output and any(UNKNOWN in one for one in step.words))))
            or (is_writing and step.program == "while" and "read" in step.words)
            or (is_writing and step.program in {"mapfile", "readarray"})
            or (step.has_output and is_finding and any(map(word_patterns.is_unknown, step.writes)))
            for step in self._steps
        )

    def changes(self) -> Iterator[str]:
        """Yield the protected things that the line changes."""
        if not self._line.is_sure:
            yield from self._guarded.mentions(self._line.text)
        yield from self._guarded.also_changed(self._line, self._folder)
        words = [word for step in self._steps for word in step.words]
        for step in self._steps:
            for each in (step, *_inner(step)):
                yield from (path for path in self._removed(each) if self._holds(path))
            targets = unpacking.targets(step.words, step.folder, self._line.text, words)
            yield from (path for path in targets if self._guarded.is_replaced(resolved(path, self._folder)))
            if step.writes or may_write(step):
                named = (*step.writes, *(step.targets() if may_write(step) else ()))
                written = (*step.written, *(step.files if may_write(step) else ()))
                yield from (path for path in (*named, *map(step.lexical, written)) if self._guarded.is_written(path))
            if step.writes or not only_reads(step, self._guarded):
                patterns = step.patterns(has_moved=step.folder != self._folder)
                yield from (given for given, path in patterns if self._may_hold(step, given, path))
                yield from self._named_from(step)
                puts = itertools.chain(destinations.puts(step.words, step.places), self._repacked(step))
                yield from (put.place for put in puts if self._is_put(put, step))
        for text, folders in () if self._is_inner else command_steps.told(self._line):
            inner = CommandLine(
                text, self._folder, self._guarded, is_inner=True, starts=folders, has_dots=self._has_dots
            )
            yield from inner.changes()
        touched = next(self._mentioned(), "")
        if touched and not all(only_reads(step, self._guarded) for step in self._steps):
            yield touched

    def _is_near(self, folder: str) -> bool:
        """Return whether a folder is above something protected, or in it."""
        return any(is_within(place, folder) or is_within(folder, place) for place in self._guarded.places)

    def _named_from(self, step: Step) -> Iterator[str]:
        """Yield the arguments of a writing command that are protected only relative to its folder."""
        for word in step.files:
            if len(word) > LONGEST_PATH or word.startswith("-"):
                continue
            for path in {word, word.partition("=")[2]} - {""}:
                if step.folder != self._folder or is_link(path, step.folder):
                    yield from (place for place in step.places(path) if self._guarded.covers(place))
        if step.program == "git" and "-C" in step.words[1:-1]:
            at = step.words.index("-C")
            there = Step([*step.words[:at], *step.words[at + 2 :]], [], step.where(step.words[at + 1]))
            yield from self._named_from(there)
        if step.program == "sed":
            yield from (path for path in _written_by_sed(step) if self._guarded.covers(path))
        if step.folder != self._folder and not word_patterns.is_unknown(step.folder):
            for place in self._guarded.places:
                inner = os.path.relpath(place, step.folder) if is_within(place, step.folder) else ""
                if inner.strip(".") and any(has_name(word, inner) for word in step.files):
                    yield place

    def _repacked(self, step: Step) -> Iterator[destinations.Written]:
        """Yield what a `tar` extracts where, if another one of the line may pack it."""
        if step.program not in unpacking.UNPACKERS or not unpacking.extracts(step.words[step.start :]):
            return
        packers = unpacking.UNPACKERS | {"zip"}
        others = (
            one
            for one in self._steps
            if one.words != step.words and (one.program in packers or git_command(one.words)[0] == "archive")
        )
        is_renamed = any(map(_RENAMING.match, step.words))
        for packing, into in itertools.product(
            itertools.islice(others, MOST_PACKED), unpacking.folders(step.words, step.folder)
        ):
            for base in unpacking.folders(packing.words, packing.folder):
                named = [word for word in packing.words[1:] if not word.startswith("-")]
                named = [word for word in named if os.path.lexists(resolved(word, base))]
                if packing.program == "git":
                    named = named or ["."]
                for word in named:
                    source = resolved(word, base)
                    yield destinations.Written(source, os.path.normpath(os.path.join(into, word)))
                    if is_renamed:
                        yield destinations.Written(source, into)

    def _is_put(self, put: destinations.Written, step: Step) -> bool:
        """Return whether something that is copied, or something in it, gets a protected path."""
        if word_patterns.is_unknown(put.place):
            return any(
                self._guarded.may_hold(put.place, put.place, place, has_dots=self._has_dots)
                for place in self._guarded.places
                if not (is_within(put.place, place) and self._guarded.is_free(put.place, place))
            )
        place = resolved(put.place, self._folder)
        if self._guarded.is_written(place) or put.is_file:
            return self._guarded.is_written(place)
        below = [each for each in self._guarded.places if is_within(each, place)]
        return any(self._has_inside(put.source, place, each, step.made) for each in below)

    def _has_inside(self, source: str, place: str, protected: str, made: Sequence[str]) -> bool:
        """Return whether a folder has something that gets a protected path at its place; if unknown, whether it may."""
        inner = os.path.join(source, os.path.relpath(protected, place))
        if source and (os.path.lexists(inner) or any(is_within(path, inner) for path in made)):
            return True
        if source and os.path.lexists(source) and not any(has_new_content(path, source) for path in made):
            return False
        told = (path for step in self._steps for path in (*step.paths, *step.writes))
        if source and any(is_within(path, inner) or (path != source and is_within(inner, path)) for path in told):
            return True  # created by the same line
        return self._guarded.may_come(place, protected)

    def _mentioned(self) -> Iterator[str]:
        if self._guarded.covers(self._folder):
            yield self._folder
        for step in self._steps:
            yield from (path for path in (*step.writes, *_told(step)) if self._guarded.covers(path))
            yield from (word for word in (*step.words[:1], *step.files) if self._guarded.is_named(word))

    def _removed(self, step: Step) -> Iterator[str]:
        """Yield the places that a command removes or changes with their content."""
        if step.removes:
            is_shallow = _is_shallow(step)
            cure = SHALLOW_CURE if step.program in {"chmod", "chown"} else ""
            yield from (
                Change(path, cure) for path in step.removed() if not is_shallow or self._guarded.is_written(path)
            )
        yield from self._found(step)
        if step.name == "git":
            yield from removed(step, self._guarded, self._steps)
            if self._is_fed:
                yield from listed(step, self._steps, self._guarded)
            yield from brought(step, self._steps)
        yield from patched(step, self._steps)
        if step.program in VERSIONING and (commands := VERSIONING[step.program] & set(step.words)):
            at = min(map(step.words.index, commands))
            yield from [place for word in step.words[at + 1 :] if word[0] != "-" for place in step.places(word)] or [
                step.folder
            ]
        if _packs_away(step) or step.program in MOUNTERS:
            yield from step.targets()
        if step.program in MIRRORS and any(map(MIRRORS[step.program].fullmatch, step.words[1:])):
            yield from (place for word in step.words[1:] for place in step.places(word))

    def _found(self, step: Step) -> Iterator[str]:
        """Yield the places whose files a command lists for another one that changes them."""
        lists = step.name in LISTING or (step.name in SEARCHING and LISTS_FILES.search(" ".join(step.words)))
        is_printed = "-printf" in step.words and any(one.program in syntax.SHELLS for one in self._steps)
        prints = self._is_fed or is_printed
        if step.name == "find" and (prints or find_changes(step)):
            yield from self._found_by_find(step, prints=prints)
        elif lists and (prints or find_changes(step)):
            search = searched(step.name, (step.raw or step.words)[1:]) if step.name in SEARCHING else None
            named = [step.where(word) for word in search.named or ["."]] if search else started(step)
            is_alias = any(one.program == "alias" for one in self._steps)
            for start in named:
                if not is_alias and looks_elsewhere(step, start, self._guarded, has_dots=self._has_dots):
                    continue
                if search is None:
                    yield Change(start, LS_CURE if step.name == "ls" else "")
                    continue
                found = next(found_by_content(search, self._guarded, start, has_dots=self._has_dots), "")
                if not found:
                    continue
                names = " ".join(_left_out(step.name, start, name) for name in tops(self._guarded, start))
                cure = f"{step.name} finds {os.path.relpath(found, start)}, which can be left out: {names}"
                yield Change(start, cure)

    def _found_by_find(self, step: Step, *, prints: bool) -> Iterator[str]:
        """Yield the place where `find` begins, if it finds something below it that must not be changed."""
        found = found_by_find(
            step, self._guarded, lambda words: not is_reader(words), prints=prints, has_dots=self._has_dots
        )
        if found:
            path, start, _ = found[0]
            names = " ".join(dict.fromkeys(name for _, _, name in found))
            shown = os.path.relpath(path, start)
            yield Change(start, f"find reaches {shown}; leave out what is protected: {names}")

    def _may_hold(self, step: Step, given: str, path: str) -> bool:
        """Return whether a partly unknown word may match something protected, and something in it says so."""
        reading_time.check()
        key = (given, path, step.removes)
        if key not in self._seen:
            has_moved = step.folder != self._folder
            self._seen[key] = any(
                self._guarded.may_hold(
                    given, path, place, removes=step.removes, has_moved=has_moved, has_dots=self._has_dots
                )
                for place in self._guarded.held
                if not (is_within(path, place) and self._guarded.is_free(path, place))
            )
        return self._seen[key]

    def _holds(self, path: str) -> bool:
        """Return whether a path, which may contain globs, can be a protected folder or a parent of one."""
        reading_time.check()
        return any(reaches(path, folder, has_dots=self._has_dots) for folder in self._guarded.held)


def _is_shallow(step: Step) -> bool:
    """Return whether `chmod` leaves what is in a folder alone, and lets the owner enter the folder."""
    rest = step.words[step.start + 1 :]
    options = [word for word in rest if word.startswith("-")]
    mode = next((word for word in rest if not word.startswith("-")), "")
    is_plain = step.program == "chmod" and all(map(_SAYING.fullmatch, options))
    return is_plain and _OPENING.fullmatch(mode) is not None


def _told(step: Step) -> list[str]:
    """Return the paths that a command is given; `*` alone says something only if it writes the files that it names."""
    if may_write(step) or step.removes:
        return step.paths
    named = (word for word in step.files if syntax.is_path(word) and not _ONLY_GLOBS.fullmatch(word))
    return [place for word in named for place in step.places(word)]


def _inner(step: Step) -> Iterator[Step]:
    """Yield a command without what stands before it: variables, `then`, `sudo`; and what `find` runs."""
    words, at = step.words, step.start
    while at < len(words) and words[at] in KEYWORDS:
        at += 1
    name = words[at].rpartition("/")[2] if at < len(words) else ""
    if name and name not in READERS | FOLLOWED | TEXTUAL:
        behind = range(at + 1, min(len(words), at + MOST_BEFORE))
        at = next((number for number in behind if words[number].rpartition("/")[2] in FOLLOWED), at)
    if at:
        inner = Step(words[at:], step.written, step.folder, step.links)
        inner.raw = step.raw[at:]
        yield inner
    for start in (at for at, word in enumerate(words) if name in LISTING and word in RUNNING):
        told = itertools.takewhile(lambda word: word not in {";", "+"}, words[start + 1 :])
        yield Step(list(told), [], step.folder, step.links)


def _left_out(name: str, start: str, top: str) -> str:
    """Return how a search leaves out a file or a folder."""
    is_folder = os.path.isdir(os.path.join(start, top))
    return f"-g '!{top}'" if name == "rg" else f"--exclude{'-dir' if is_folder else ''}={top}"


def _packs_away(step: Step) -> bool:
    """Return whether a command removes the files that it packs or squeezes."""
    program = step.program if step.program in PACKERS else ""
    moves = bool(program) and any(map(PACKERS[program].match, step.words[1:]))
    squeezes = step.program in SQUEEZERS and any(re.match(r"-[a-z]*r|--rec", word) for word in step.words[1:])
    return moves or squeezes or (step.program in unpacking.UNPACKERS and "--remove-files" in step.words)


def _written_by_sed(step: Step) -> Iterator[str]:
    """Yield the files that a `sed` script may write: what follows a `w`, to the end of the line."""
    for word in step.words[1:]:
        for found in itertools.islice(_SED_WRITING.finditer(word), MOST_READ):
            yield step.where(word[found.end() :].partition("\n")[0].strip())
