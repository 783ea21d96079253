"""Whether a shell command would change certain places, as far as its words say so.

Self-protection asks this about our own files, the builtin `protected_paths` about those that a rulebook lists: what
must not be changed, and how it is recognised, is a `Guarded`. A command that only reads is let through. Where a command
cannot be read with certainty, or runs a text in another language, it counts if it mentions a guarded place at all. What
else a program does that a command starts is not seen here.
"""

import fnmatch
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.policy.paths import expanded, is_link, is_within, resolved
from anyplug.policy.shell import command_steps, destinations, sed_scripts, syntax, unpacking, word_patterns
from anyplug.policy.shell.command_steps import (
    ASSIGNMENT,
    LONGEST_GLOB,
    LONGEST_PATH,
    MOST_READ,
    REMOVERS,
    Step,
    may_write,
)
from anyplug.policy.shell.word_values import KEYWORDS

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
VERSIONING: Final = {  # commands of other version control that remove or restore files
    "hg": {"purge", "clean", "revert"}, "sl": {"purge", "clean", "revert"}, "svn": {"revert"}, "jj": {"restore"},
    "bzr": {"clean-tree", "revert"}, "fossil": {"clean", "revert", "extras"},
}  # fmt: skip
RUNNING: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})  # of `find`
LISTING: Final = frozenset({"find", "fd", "ls", "tree", "du", "locate"})  # what they list, `xargs` can remove
SEARCHING: Final = frozenset({"grep", "rg", "ag", "egrep", "fgrep"})
AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
PACKERS: Final = {"zip": re.compile(r"-[A-Za-z]*m|--move$"), "7z": re.compile(r"-sdel$"), "rar": re.compile(r"m[fr]?$")}
SQUEEZERS: Final = frozenset({"gzip", "gunzip", "bzip2", "xz", "zstd", "lz4", "compress"})  # put another file in place
MIRRORS: Final = {  # with what makes them remove files that the other side does not have
    "rclone": re.compile(r"sync|bisync|move|moveto|purge|delete|rmdirs"),
    "aws": re.compile(r"--delete|mv|rm"),
    "gsutil": re.compile(r"-\w*d\w*|mv|rm"),
    "gcloud": re.compile(r"--delete-unmatched-destination-objects|mv|rm"),
    "azcopy": re.compile(r"--delete-destination.*|remove"),
    "s3cmd": re.compile(r"--delete-removed|mv|del|rm"),
    "mc": re.compile(r"--remove|mv|rm"),
    "unison": re.compile(r"-?-(?:force|prefer|batch|auto).*"),
    "lftp": re.compile(r".*mirror.*--?(?:delete|e\b).*"),
}
MOUNTERS: Final = frozenset({"mount", "umount", "bindfs", "fusermount"})  # hide what lies in a folder, or show it
FOLLOWED: Final = LISTING | SEARCHING | SQUEEZERS | MOUNTERS | unpacking.UNPACKERS | {"git", *MIRRORS, *PACKERS}
TEXTUAL: Final = frozenset(
    {"ssh", "man", "gh", "alias", "docker", "podman", "apt", "apt-get", "brew"}
)  # run no words here
MOST_BEFORE: Final = 12  # words before a program that another one runs
NOWHERE: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})  # where writing changes no file
UNKNOWN: Final = syntax.UNKNOWN  # also stands for the value of a variable that the line does not set
MOST_FILES: Final = 2_000  # whose names are compared with what `find` looks for
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
LONGEST_SEARCHED: Final = 1 << 20  # characters of a file that `git grep` may find
MOST_PACKED: Final = 16  # commands of a line that may pack what another unpacks
_HIDDEN: Final = re.compile(r"(?:^| )(?:-[A-Za-z]*[Hu.]|--hidden|--unrestricted|--no-ignore)")
_LISTS_FILES: Final = re.compile(r"(?:^| )(?:-[A-Za-z]*[lL]|--files)")
_MAGIC: Final = re.compile(r"^:(?:\([^)]*\)|[/!^]+)?")  # before a pathspec of git
_GIT_PLACE: Final = re.compile(
    r"(?:GIT_(DIR|WORK_TREE)|(?:--|core\.)(git-dir|work-?tree))(?:=([\s\S]*))?", re.IGNORECASE
)
_TRYING: Final = frozenset({"--check", "--stat", "--numstat", "--summary", "--cached", "--dry-run"})  # change no files
_RENAMING: Final = re.compile(r"--(?:strip|transform|xform|one-top)|-s")  # of `tar`
_DOTTED: Final = re.compile(r"dotglob|glob_?dots|GLOBIGNORE=|\*\(\w*D", re.IGNORECASE)
_SED_WRITING: Final = re.compile(r"[wW][ \t]*(?=[^\s])")
_ONLY_GLOBS: Final = re.compile(r"(?:\./)?[*?]+")
_AWK_CHANGING: Final = re.compile(r"[>|@]|system|^-[ifodp]|^--")


class Guarded:
    """Places that must not be changed, and how a path, a word and a text are recognised as one of them."""

    places: Sequence[str]  # that nothing may be put at
    held: Sequence[str]  # that are not to be removed with the folders above them
    folders: Sequence[str]  # with files by whose names the places are recognised
    names: Sequence[str] = ()  # that files there usually have
    has_known_contents = False  # whether files are found by `grep -l` only if they have now what it looks for

    def covers(self, path: str) -> bool:
        """Whether a path, which may have globs in it, is guarded."""
        raise NotImplementedError

    def is_written(self, path: str) -> bool:
        """Whether a path must not be written to."""
        return self.covers(path)

    def is_replaced(self, path: str) -> bool:
        """Whether a path must not be unpacked or patched."""
        return self.covers(path)

    def is_free(self, _path: str, _place: str) -> bool:
        """Whether a path in a guarded place may be changed nevertheless."""
        return False

    def is_named(self, word: str) -> bool:
        """Whether a word of a command mentions something guarded."""
        raise NotImplementedError

    def mentions(self, text: str) -> Iterator[str]:
        """Name what of the guarded a text mentions that nobody can read as commands."""
        raise NotImplementedError

    def may_hold(
        self, given: str, path: str, place: str, *, removes: bool = False, has_moved: bool = False, has_dots: bool
    ) -> bool:
        """Whether a word that is not fully known may stand for a place, and something in it says so."""
        raise NotImplementedError

    def may_come(self, _place: str, _guarded: str) -> bool:
        """Whether what is copied to a place from an unknown source may bring what is guarded below it."""
        return False

    def is_spared(self, excluded: Sequence[str], folder: str) -> bool:
        """Whether everything that `git clean` would remove in a folder is excluded."""
        inner = [os.path.relpath(place, folder).split(os.sep) for place in self.held if is_within(place, folder)]
        return all(not set(excluded).isdisjoint(parts) for parts in inner)

    def is_argument(self, _tool: str, _key: str, _text: str) -> bool:
        """Whether a text that a tool is given under a key may name a file that it changes."""
        return True

    def only_reads(self, _step: Step) -> bool | None:
        """Whether a command only reads; None if that is to be told as of any other."""
        return None

    def also_changed(self, _line: "CommandLine") -> Iterator[str]:
        """Name what else a line changes."""
        return iter(())


class CommandLine:
    """A command line, parsed as far as it shows what it changes."""

    def __init__(
        self, line: str, folder: str, guarded: Guarded, *, is_inner: bool = False, starts: Sequence[str] = ()
    ) -> None:
        self.text = line
        self._guarded = guarded
        self.folder = folder
        self._is_inner = is_inner  # its texts are parsed by the line that contains it
        self._has_dots = bool(_DOTTED.search(line))  # then * also matches names with a leading dot
        reading = command_steps.read(line, starts or [folder], self._is_near)
        self.steps = reading.steps
        self.printed = reading.printed  # what its commands may be fed
        self._is_sure = reading.is_sure
        self._reading = reading
        self._is_fed = self._is_feeding()
        self._seen: dict[tuple[str, str, bool], bool] = {}

    def _is_feeding(self) -> bool:
        """Return whether a command that writes gets its files from another command."""
        is_writing = any(may_write(step) or any(map(word_patterns.is_unknown, step.writes)) for step in self.steps)
        has_output = any(step.has_output for step in self.steps)
        is_finding = any(step.program in {"find", "fd"} for step in self.steps)
        return any(
            (step.program in command_steps.SPREADING and not _feeds_reader(step))
            or (may_write(step) and (step.has_output or (has_output and any(UNKNOWN in one for one in step.words))))
            or (is_writing and step.program == "while" and "read" in step.words)
            or (is_writing and step.program in {"mapfile", "readarray"})
            or (step.has_output and is_finding and any(map(word_patterns.is_unknown, step.writes)))
            for step in self.steps
        )

    def changes(self) -> Iterator[str]:
        """Yield the protected things that the line changes."""
        if not self._is_sure:
            yield from self._guarded.mentions(self.text)
        yield from self._guarded.also_changed(self)
        words = [word for step in self.steps for word in step.words]
        for step in self.steps:
            for each in (step, *_inner(step)):
                yield from (path for path in self._removed(each) if self._holds(path))
            targets = unpacking.targets(step.words, step.folder, self.text, words)
            yield from (path for path in targets if self._guarded.is_replaced(resolved(path, self.folder)))
            if step.writes or may_write(step):
                named = (*step.writes, *(step.targets() if may_write(step) else ()))
                written = (*step.written, *(step.words[1:] if may_write(step) else ()))
                yield from (path for path in (*named, *map(step.lexical, written)) if self._guarded.is_written(path))
            if step.writes or not self.only_reads(step):
                patterns = step.patterns(has_moved=step.folder != self.folder)
                yield from (given for given, path in patterns if self._may_hold(step, given, path))
                yield from self._named_from(step)
                puts = itertools.chain(destinations.puts(step.words, step.places), self._repacked(step))
                yield from (put.place for put in puts if self._is_put(put))
        for text, folders in () if self._is_inner else command_steps.told(self._reading):
            inner = CommandLine(text, self.folder, self._guarded, is_inner=True, starts=folders)
            yield from inner.changes()
        touched = next(self._mentioned(), "")
        if touched and not all(self.only_reads(step) for step in self.steps):
            yield touched

    def _is_near(self, folder: str) -> bool:
        """Return whether a folder is above something protected, or in it."""
        return any(is_within(place, folder) or is_within(folder, place) for place in self._guarded.places)

    def _named_from(self, step: Step) -> Iterator[str]:
        """Yield the arguments of a writing command that are protected only relative to its folder."""
        for word in step.words[1:]:
            if len(word) > LONGEST_PATH or word.startswith("-"):
                continue
            for path in {word, word.partition("=")[2]} - {""}:
                if step.folder != self.folder or is_link(path, step.folder):
                    yield from (place for place in step.places(path) if self._guarded.covers(place))
        if step.program == "git" and "-C" in step.words[1:-1]:
            at = step.words.index("-C")
            there = Step([*step.words[:at], *step.words[at + 2 :]], [], step.where(step.words[at + 1]))
            yield from self._named_from(there)
        if step.program == "sed":
            yield from (path for path in _written_by_sed(step) if self._guarded.covers(path))
        if step.folder != self.folder and not word_patterns.is_unknown(step.folder):
            for place in self._guarded.places:
                inner = os.path.relpath(place, step.folder) if is_within(place, step.folder) else ""
                if inner.strip(".") and any(has_name(word, inner) for word in step.words[1:]):
                    yield place

    def _repacked(self, step: Step) -> Iterator[destinations.Written]:
        """Yield what a `tar` extracts where, if another one of the line may pack it."""
        if step.program not in unpacking.UNPACKERS or not unpacking.extracts(step.words[step.start :]):
            return
        packers = unpacking.UNPACKERS | {"zip"}
        others = (
            one
            for one in self.steps
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

    def _is_put(self, put: destinations.Written) -> bool:
        """Return whether something that is copied, or something in it, gets a protected path."""
        if word_patterns.is_unknown(put.place):
            return any(
                self._guarded.may_hold(put.place, put.place, place, has_dots=self._has_dots)
                for place in self._guarded.places
                if not (is_within(put.place, place) and self._guarded.is_free(put.place, place))
            )
        place = resolved(put.place, self.folder)
        if self._guarded.is_written(place):
            return True
        below = [each for each in self._guarded.places if is_within(each, place)]
        return any(self._has_inside(put.source, place, each) for each in below)

    def _has_inside(self, source: str, place: str, protected: str) -> bool:
        """Return whether a folder has something that gets a protected path at its place; if unknown, whether it may."""
        inner = os.path.join(source, os.path.relpath(protected, place))
        if source and os.path.lexists(source):
            return os.path.lexists(inner)
        told = (path for step in self.steps for path in (*step.paths, *step.writes))
        if source and any(is_within(path, inner) or (path != source and is_within(inner, path)) for path in told):
            return True  # created by the same line
        return self._guarded.may_come(place, protected)

    def _mentioned(self) -> Iterator[str]:
        if self._guarded.covers(self.folder):
            yield self.folder
        for step in self.steps:
            yield from (path for path in (*step.writes, *_told(step)) if self._guarded.covers(path))
            yield from (word for word in step.words if self._guarded.is_named(word))

    def _removed(self, step: Step) -> Iterator[str]:
        """Yield the places that a command removes or changes with their content."""
        if step.removes:
            yield from step.removed()
        lists = step.name in LISTING or (step.name in SEARCHING and _LISTS_FILES.search(" ".join(step.words)))
        if lists and step.name in SEARCHING and self._guarded.has_known_contents:
            lists = self._is_found([word for word in step.words[1:] if not word.startswith("-")][:1], step.folder)
        is_printed = "-printf" in step.words and any(one.program in syntax.SHELLS for one in self.steps)
        if lists and (self._is_fed or is_printed or _find_changes(step)):
            yield from (start for start in _started(step) if not self._looks_elsewhere(step, start))
        if step.name == "git":
            yield from _removed_by_git(step, self._guarded)
            yield from self._listed_by_git(step)
            yield from self._brought_by_git(step)
        yield from self._patched_by_git(step)
        if step.program in VERSIONING and (commands := VERSIONING[step.program] & set(step.words)):
            at = min(map(step.words.index, commands))
            yield from [place for word in step.words[at + 1 :] if word[0] != "-" for place in step.places(word)] or [
                step.folder
            ]
        if _packs_away(step) or step.program in MOUNTERS:
            yield from step.targets()
        if step.program in MIRRORS and any(map(MIRRORS[step.program].fullmatch, step.words[1:])):
            yield from (place for word in step.words[1:] for place in step.places(word))

    def _brought_by_git(self, step: Step) -> Iterator[str]:
        """Yield the folder whose files git puts there from a repository that is not the folder's own."""
        if git_command(step.words)[0] not in UPDATING_GIT:
            return
        told = dict[str, str]()
        for word, following in ((a, b) for one in self.steps for a, b in itertools.pairwise([*one.words, ""])):
            if found := _GIT_PLACE.fullmatch(word):
                told[found[1] or found[2]] = following if found[3] is None else found[3]
        work = told.get("WORK_TREE") or told.get("work-tree") or told.get("worktree") or ""
        tree = step.where(work or ".")
        there = next((f"{b}/.git" for a, b in itertools.pairwise(step.words) if a == "-C" and work), "")
        folder = told.get("DIR") or told.get("git-dir") or there
        if folder and step.where(folder) != os.path.join(tree, ".git"):
            yield tree

    def _patched_by_git(self, step: Step) -> Iterator[str]:
        """Yield what a patch may change that git makes and another command of the line applies."""
        at = next((at for at, word in enumerate(step.words) if word.rpartition("/")[2] in {"patch", "git"}), -1)
        is_git = at >= 0 and step.words[at].endswith("git")
        command, rest = git_command(step.words[at:]) if is_git else ("patch" if at >= 0 else "", step.words[at + 1 :])
        if command not in {"patch", "apply", "am"} or not _TRYING.isdisjoint(rest):
            return
        named = [word for word in (*rest, *step.read) if word[:1] != "-" and not word_patterns.is_unknown(word)]
        named = [word for word in named if not any(char in word for char in syntax.GLOBS)]
        files = set(map(step.where, named)) - {step.folder}
        for one in self.steps:
            command, told = git_command(one.words)
            if one.program == "git" and command in PATCHING_GIT and not (files and files.isdisjoint(one.writes)):
                specs = told[told.index("--") + 1 :] if "--" in told else told
                found = [place for word in specs if not word.startswith("-") for place in one.places(word)]
                yield from [place for place in found if "--" in told or os.path.lexists(place)] or [one.folder]

    def _listed_by_git(self, step: Step) -> list[str]:
        """Return the folder whose files git tells to a command that changes them."""
        command, rest = git_command(step.words)
        options = "".join(word for word in rest if word.startswith("-"))
        is_listing = command in {"ls-files", "ls-tree", "grep", "status"} or "--name-" in options
        if not is_listing or not self._is_fed:
            return []
        named = [word for word in rest if not word.startswith("-")]
        if command == "grep":
            is_meant = bool(_LISTS_FILES.search(" ".join(rest))) and self._is_found(named[:1], step.folder)
        elif command not in {"ls-files", "ls-tree"}:
            is_meant = any(one.removes for one in self.steps)
        elif any(is_within(place, step.where(word)) for place in self._guarded.held for word in named):
            is_meant = True
        elif named and command == "ls-files":
            names = _names_in(self._guarded, self._guarded.folders)
            bases = [word.rpartition("/")[2] for word in named]
            is_meant = any(_is_named(name, pattern, "-name") for pattern in bases for name in names)
        else:  # those that are changed or gone already may be changed further
            is_meant = options not in {"-m", "-d"} and any(one.removes or may_write(one) for one in self.steps)
        return [step.folder] if is_meant else []

    def _is_found(self, patterns: Sequence[str], folder: str) -> bool:
        """Whether a file that is guarded below a folder has a pattern in it."""
        for path in itertools.islice(_files_in(self._guarded, folder), MOST_FILES):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = file.read(LONGEST_SEARCHED)
                if all(word_patterns.is_unknown(one) or one in text or re.search(one, text) for one in patterns):
                    return True
            except (OSError, re.error):
                continue
        return False

    def _looks_elsewhere(self, step: Step, start: str) -> bool:
        """Return whether `find` searches names that nothing protected below a folder has."""
        words = step.words
        if step.name in {"fd", "rg", "ag"} and not _HIDDEN.search(" ".join(words)):
            below = [os.path.relpath(place, start) for place in self._guarded.held if is_within(place, start)]
            if not any(all(part == "." or part[:1] != "." for part in one.split(os.sep)) for one in below):
                return True
        if step.name == "fd" and self._guarded.has_known_contents:
            return not _found_by_fd(words, _names_in(self._guarded, self._guarded.held))
        if {"-o", "-or", ","} & set(words):
            return False
        asked = [
            (word, words[at + 1].replace(UNKNOWN, "*"))
            for at, word in enumerate(words[:-1])
            if word in {"-name", "-iname"} and words[at - 1] not in {"!", "-not"}
        ]
        asked += [("-name", word.partition("=")[2]) for word in words if word.startswith(("--include=", "--glob="))]
        if not asked:
            return False
        below = [place for place in self._guarded.held if _reaches(start, place, has_dots=self._has_dots)]
        names = _names_in(self._guarded, below)
        names += [part for place in below for part in place.split(os.sep)[len(start.rstrip(os.sep).split(os.sep)) :]]
        return any(not any(_is_named(name, pattern, word) for name in names) for word, pattern in asked)

    def _may_hold(self, step: Step, given: str, path: str) -> bool:
        """Return whether a partly unknown word may match something protected, and something in it says so."""
        key = (given, path, step.removes)
        if key not in self._seen:
            has_moved = step.folder != self.folder
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
        return any(_reaches(path, folder, has_dots=self._has_dots) for folder in self._guarded.held)

    def only_reads(self, step: Step) -> bool:
        """Whether a command leaves all that is guarded as it is, whatever it names."""
        words, name = step.words, step.name
        if any(self._guarded.covers(path) for path in step.writes):
            return False
        if (known := self._guarded.only_reads(step)) is not None:
            return known
        if name == "sed":
            return _is_reading_sed(words[1:])
        if name in AWKS:
            return not any(map(_AWK_CHANGING.search, words[1:]))
        if name == "uniq":  # of two files the second one is written
            return sum(not word.startswith(("-", "+")) for word in words[1:]) <= 1
        if name == "git" and _removed_by_git(step, self._guarded) == [] and git_command(words)[0] in {"clean", "stash"}:
            return True
        if any(_changes(name, word) for word in words[1:]):
            writes = any(word.startswith(("-fprint", "-fls")) for word in words)
            return name == "find" and not writes and not _find_changes(step)
        if name == "git":
            return len(words) > 1 and words[1] in READING_GIT
        is_assignment = bool(words) and all(ASSIGNMENT.match(word) for word in words)
        return name in READERS or is_assignment or (not name and not step.writes)


def _is_reading_sed(words: Sequence[str]) -> bool:
    """Whether `sed` only prints: its scripts can write files and run things, unless they are known not to."""
    found = sed_scripts.scripts(words)
    read = [None] if not found else [sed_scripts.actions(script) for script in found]
    return all(one is not None and all(action.kind == "r" for action in one) for one in read)


def _told(step: Step) -> list[str]:
    """Return the paths that a command is given; `*` alone says something only if it writes the files that it names."""
    if may_write(step) or step.removes:
        return step.paths
    named = (word for word in step.words[1:] if syntax.is_path(word) and not _ONLY_GLOBS.fullmatch(word))
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
        yield Step(words[at:], step.written, step.folder, step.links)
    for start in (at for at, word in enumerate(words) if name in LISTING and word in RUNNING):
        told = itertools.takewhile(lambda word: word not in {";", "+"}, words[start + 1 :])
        yield Step(list(told), [], step.folder, step.links)


def _packs_away(step: Step) -> bool:
    """Whether a command removes the files that it packs or squeezes."""
    program = step.program if step.program in PACKERS else ""
    moves = bool(program) and any(map(PACKERS[program].match, step.words[1:]))
    squeezes = step.program in SQUEEZERS and any(re.match(r"-[a-z]*r|--rec", word) for word in step.words[1:])
    return moves or squeezes or (step.program in unpacking.UNPACKERS and "--remove-files" in step.words)


def _written_by_sed(step: Step) -> Iterator[str]:
    """Yield the files that a `sed` script may write: what follows a `w`, to the end of the line."""
    for word in step.words[1:]:
        for found in itertools.islice(_SED_WRITING.finditer(word), MOST_READ):
            yield step.where(word[found.end() :].partition("\n")[0].strip())


def has_name(word: str, inner: str) -> bool:
    """Return whether a word, or a text in it, names a path."""
    at = word.find(inner)
    while at >= 0:
        end = at + len(inner)
        is_start = not (word[at - 1 : at].isalnum() or word[at - 1 : at] in set("_-.")) or not at
        if is_start and not (word[end : end + 1].isalnum() or word[end : end + 1] in {"_", "-"}):
            return True
        at = word.find(inner, at + 1)
    return False


def _reaches(path: str, folder: str, *, has_dots: bool) -> bool:
    if word_patterns.is_unknown(path):  # `_may_hold` handles these
        return False
    parts, real = path.rstrip(os.sep).split(os.sep), folder.split(os.sep)
    return len(parts) <= len(real) and all(
        _fits(part, name, has_dots=has_dots) for part, name in zip(parts, real, strict=False)
    )


def _fits(part: str, name: str, *, has_dots: bool = False) -> bool:
    if part == name:
        return True
    if not any(char in part for char in syntax.GLOBS) or len(part) > LONGEST_GLOB:
        return False
    return (has_dots or part.startswith(".") or not name.startswith(".")) and fnmatch.fnmatchcase(name, part)


def lies_in(path: str, folder: str) -> bool:
    """Whether a path, which may have globs in it, can lie in a folder."""
    if is_within(path, folder):
        return True
    if not any(char in path for char in syntax.GLOBS):
        return False
    parts, real = path.split(os.sep), folder.split(os.sep)
    return len(parts) >= len(real) and all(map(_fits, parts, real))


def _names_in(guarded: Guarded, places: Sequence[str]) -> list[str]:
    """List the names of guarded places, with those of what lies in them."""
    found = list(guarded.names)
    for folder in places:
        found.append(os.path.basename(folder))
        for above, folders, names in os.walk(folder):
            folders[:] = [
                name
                for name in folders
                if name != "__pycache__" and not guarded.is_free(os.path.join(above, name), folder)
            ]
            found += [*folders, *names]
            if len(found) > MOST_FILES:
                break
    return found


def _files_in(guarded: Guarded, folder: str) -> Iterator[str]:
    """Return the files that are guarded below a folder."""
    for place in guarded.held:
        if is_within(place, folder):
            yield place
            yield from (os.path.join(above, name) for above, _, names in os.walk(place) for name in names)


def _is_named(name: str, pattern: str, option: str) -> bool:
    if option == "-iname":
        name, pattern = name.casefold(), pattern.casefold()
    return len(pattern) > LONGEST_GLOB or fnmatch.fnmatchcase(name, pattern)


def _started(step: Step) -> list[str]:
    """Return the places at which `find` or `ls` begins."""
    words: list[str] = []
    if step.name == "fd" or step.name in SEARCHING:  # a pattern comes first; some skip hidden folders
        ends = next((at for at, word in enumerate(step.words) if word in {"-x", "-X", "--exec", "--exec-batch"}), None)
        words = [word for word in step.words[1:ends] if not word.startswith("-")][1:]
        return [resolved(expanded(word, step.folder), step.folder) for word in words or ["."]]
    for word in step.words[1:]:
        if step.name == "find" and word.startswith(("-", "(", "!")) and word not in {"-H", "-L", "-P"}:
            break
        if not word.startswith("-"):
            words.append(word)
    return [resolved(expanded(word, step.folder), step.folder) for word in words or ["."]]


def _found_by_fd(words: Sequence[str], names: Sequence[str]) -> bool:
    """Whether `fd` looks for something that has one of some names."""
    ends = next((at for at, word in enumerate(words) if word in {"-x", "-X", "--exec", "--exec-batch"}), len(words))
    endings = [words[at + 1] for at, word in enumerate(words[: ends - 1]) if word in {"-e", "--extension"}]
    named = [word for word in words[1:ends] if not word.startswith("-") and word not in endings]
    pattern = named[0] if named else ""
    if endings:
        names = [name for name in names if name.endswith(tuple(f".{ending.lstrip('.')}" for ending in endings))]
    try:
        return any(re.search(pattern, name, re.IGNORECASE) for name in names)
    except re.error:
        return True


def _find_changes(step: Step) -> bool:
    """Return whether `find` deletes what it finds, or passes it to a program that may."""
    words = step.words
    if step.name not in {"find", "fd"}:
        return False
    if "-delete" in words:
        return True
    return any(word in RUNNING and not _is_reader(words[at + 1 : at + 2]) for at, word in enumerate(words))


def _is_reader(words: Sequence[str]) -> bool:
    return bool(words) and words[0].rpartition("/")[2] in READERS - {"find"}


def _feeds_reader(step: Step) -> bool:
    return any(_is_reader([word]) for word in step.words[1:]) and not any(
        word.rpartition("/")[2] in REMOVERS | syntax.SHELLS for word in step.words[1:]
    )


def git_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return git's command and what follows it."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace"} else 1
    return (words[at], list(words[at + 1 :])) if at < len(words) else ("", [])


def _removed_by_git(step: Step, guarded: Guarded) -> list[str]:  # noqa: C901 - one branch for each command
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
        places = ["."] if "a" in short or "--all" in options else [*named, *told]
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
            below = (os.path.join(above, name) for above, _, names in os.walk(place) for name in names)
            inside = list(itertools.islice(below, MOST_FILES))
            names = [os.path.relpath(path, start) for path in (place, *inside) for start in starts]
            globs = (pattern, pattern.removeprefix("**/"))
            if any(fnmatch.fnmatchcase(name, each) for name in names if name[:2] != ".." for each in globs):
                yield place


def _changes(name: str, word: str) -> bool:
    """Return whether a word makes a command write or run something although by its name it only reads."""
    option = word.partition("=")[0]
    is_long = option.startswith("--")
    for known in CHANGING.get(name, ()):
        if option.startswith(known) or (is_long and len(option) >= SHORTEST_LONG and known.startswith(option)):
            return True
    is_short = option.startswith("-") and not is_long
    return is_short and any(letter in option for letter in CHANGING_LETTERS.get(name, ""))
