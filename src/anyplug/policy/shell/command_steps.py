"""The simple commands of a line as they would run: with the values of variables, and where each runs.

Self-protection and the `commands` that policies see are made of these steps. A partly unknown word is a pattern (see
`word_patterns`).
"""

import fnmatch
import glob
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from anyplug.model.late_patterns import late
from anyplug.policy.paths import expanded, is_within, resolved
from anyplug.policy.shell import (
    destinations,
    plain_texts,
    reading_time,
    substitutions,
    syntax,
    told_texts,
    unpacking,
    word_patterns,
)
from anyplug.policy.shell.word_values import KEYWORDS, Values, is_composable
from anyplug.policy.shell.working_folders import WorkingFolders

REMOVERS: Final = frozenset(
    {"rm", "rmdir", "mv", "chmod", "chown", "chattr", "trash", "unlink", "shred", "rsync"}
    | {"rename", "prename", "srm", "wipe", "rimraf", "trash-put"}
)
UNLINKING: Final = frozenset({"rm", "unlink", "rmdir"})  # they remove a link, not its target
WRITERS: Final = frozenset(  # change the files that they name
    {"tee", "cp", "mv", "ln", "install", "dd", "truncate", "touch", "patch", "ed", "ex", "sponge", "link", *REMOVERS}
)
EDITING: Final = frozenset({"sed", "perl", "ruby", "awk", "gawk"})  # with -i, they change the files that they name
MOST_GLOBS: Final = 2  # parts of a path with globs that are expanded: each can mean a whole folder of folders
MOST_MATCHES: Final = 1_000
LONGEST_PATH: Final = 4096  # characters; longer texts are not paths
LONGEST_FOLDER: Final = (
    512  # characters of a path that `cd` is followed to, because each lookup takes proportionally long
)
LONGEST_GLOB: Final = 255  # characters; a longer one can take minutes to parse, and is not written in good faith
MOST_LINKS: Final = 8  # that lead to each other
MOST_OPENED: Final = 64  # files that a line redirects, before it is uncertain what a descriptor leads to
MOST_MADE: Final = 256  # files that a line writes
MOST_READ: Final = 64  # words fed to `xargs`
MOST_TOLD: Final = 64  # texts that programs of one line are told to run
DEEPEST_TOLD: Final = 3  # levels of texts in texts
LONGEST_TOLD: Final = 16_384  # characters of such a text
SPREADING: Final = frozenset({"xargs", "parallel", "rush"})  # run a command with what they read
FEEDING: Final = frozenset(
    {*SPREADING, *syntax.SHELLS, "eval", "source", ".", *told_texts.LANGUAGES, *told_texts.EDITORS}
    | {*told_texts.MAKERS, *told_texts.SHELLED}
)
PATTERN_MOVERS: Final = frozenset({"zmv", "zcp", "zln"})  # of zsh: read patterns in their arguments
RUNNING_TEXT: Final = frozenset({"eval", "source", "."})
FED_FILE: Final = late(r"/dev/(?:stdin|fd/\w+)|/proc/self/fd/\d+|-")  # names what is fed, and no file
MOST_SHOWN: Final = 4  # words of a refused command
MOST_CARRIED: Final = 12  # words behind `sudo` and the like among which the program is
LEADING: Final = KEYWORDS | {"coproc", "&", "}", "fi", "done", "esac", "in", "("}  # of a shell, before a program
NAMED_BLOCK: Final = 3  # words in which the block of `function NAME {` or `coproc NAME {` begins
RUNNING: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})  # of `find`
_STARTING: Final = syntax.PREFIXES | {
    "setarch",
    "taskset",
    "chrt",
    "unbuffer",
    "catchsegv",
    "watch",
    "chronic",
    "parallel",
}
_AMOUNT: Final = late(r"[\d.,]+[smhdKMG]?")  # a time, a priority, processors
_MODULE: Final = late(r"-[A-Za-z]*m")  # of Python: what it is fed is data then
_IN_PLACE: Final = late(r"-\w*i|--in-place")
_NO_MARKS: Final = {ord(char): None for char in "_'\"\\"}
_NUMBERED: Final = late(r"\{\d+\}")  # of `parallel`: one of several lists
ASSIGNMENT: Final = late(r"([A-Za-z_]\w*)=")
_INSIDE: Final = late(r"[=@:<,]")  # after these, a word may name a file: `if=x`, `@x`, `HEAD:x`
_ATTACHED: Final = late(r"-\w(?=[@./~])")  # an option with its value, as in `-d@x`
_DELIMITER: Final = late(r"(?:-[rtpxo]*d|--delimiter(?:=|$))(.*)", re.DOTALL)  # of `xargs`
_DESCRIPTOR: Final = late(r"/+(?:dev/+fd|proc/+[^/]+/+fd)/+(?!pipe)[^/\s;|&)\"']+")
_GLOB: Final = late(r"[*?]+|\[[^\]]*\]")
_SKIPPING: Final = late(r"--?(?:exclude|ignore|skip)")


# What makes globs match names with a leading dot, and names in any case; underscores and cases mean nothing to zsh.
_DOTTED: Final = late(
    r"dotglob|globdots|globignore=|\bset\s+[-+]\w*4|\bzsh\s+-\w*4|(?-i:[^\s$(]\((?:#q)?[\w.@=*/,^-]{0,6}D[\w.@=*/,^-]{0,6}\))",
    re.IGNORECASE,
)
_BEGINNING_GLOB: Final = late(r"(\A|/)[*?\[]+")
_CASELESS: Final = late(r"nocaseglob|unsetopt\b.*caseglob|caseglob\]?=|set\s+\+o\s+caseglob", re.IGNORECASE)
_EVALUATED: Final = late(
    r"\(\(|\$\[|\[\[|@P\}|\blet\b|\b(?:declare|typeset|local)\s+-\w*[in]|\$\{[^}]*[:\[]|PS\d=|\s-v\b|\$\{!|\bread\b"
)


class Line(msgspec.Struct, frozen=True):
    """What was parsed of a command line."""

    text: str
    steps: "list[Step]"
    is_sure: bool  # whether a shell certainly parses it the same
    printed: list[str]  # texts that it prints, if it feeds them to a command
    folders: list[str]  # that its commands may run in
    has_dots: bool  # * also matches names with a leading dot


class Step:
    """One simple command of a line, with the values of variables, and where it runs."""

    def __init__(
        self,
        words: list[str],
        writes: list[str],
        folder: str,
        links: dict[str, str] | None = None,
        known: dict[tuple[str, str, bool], list[str]] | None = None,
        made: Sequence[str] = (),
        *,
        has_dots: bool = False,
    ) -> None:
        reading_time.check()
        self.words = words
        self.made = made  # what earlier commands of the line write
        self.has_dots = has_dots
        self._known = {} if links or known is None else known  # places of words of the same line
        self.folder = folder
        self.links = links or {}  # created earlier in the line: where they lead
        self.raw: list[str] = []  # its words with their brackets, which `words` has as patterns
        self.given: Sequence[str] = ()  # its words as they are written: a quoted `$` means something in other languages
        self.has_output = False  # of another command among its words
        self.read: list[str] = []  # files behind `<`
        self.at = 0  # its index among the line's commands
        self.start = next((at for at, word in enumerate(words) if not ASSIGNMENT.match(word)), len(words))
        self.program = words[self.start].rpartition("/")[2] if self.start < len(words) else ""
        self.name = words[0].rpartition("/")[2] if words else ""
        self._is_unlinking = self.program in UNLINKING
        spoken = plain_texts.texts(words, self.start)
        self.files = [word for at, word in enumerate(words) if at and at not in spoken]  # words that may name files
        named = dict.fromkeys(word for word in self.files if syntax.is_path(word))
        self.paths = list(dict.fromkeys(place for word in named for place in self.places(word)))
        self.writes = list(dict.fromkeys(place for word in writes for place in self.places(word)))
        self.written = writes

    @property
    def removes(self) -> bool:
        """Return whether it removes or changes folders with their content."""
        return self.name in REMOVERS or any(word.rpartition("/")[2] in REMOVERS for word in self.words)

    def targets(self) -> list[str]:
        """Return the arguments of a removing command, also those that do not look like paths."""
        at = next((at for at, word in enumerate(self.words) if word.rpartition("/")[2] in WRITERS), 0)
        named = [word for word in (self.words[at + 1 :] if at else self.files) if word and not word.startswith("-")]
        return [place for word in named for place in self.places(word)]

    def removed(self) -> list[str]:
        """Return what a removing command removes: not the places where it only puts something."""
        named = [word for word in self.words[self.start + 1 :] if word and not word.startswith("-")]
        is_synced = self.program == "rsync"
        options = ("--del",) if is_synced else ("-t", "--t", "-T", "--no-t")
        has_option = any(word.startswith(options) for word in self.words)
        if self.program not in {"mv", "rsync"} or (has_option and not is_synced) or len(named) < 2:  # noqa: PLR2004
            return self.targets()
        gone = named[:-1] if not is_synced or "--remove-source-files" in self.words else []
        gone += named[-1:] if is_synced and has_option else []
        return [place for word in gone for place in self.places(word)]

    def patterns(self, *, has_moved: bool) -> list[tuple[str, str]]:
        """Return the words that may match several paths: as written, and as absolute patterns."""
        is_lost = word_patterns.is_unknown(self.folder) and may_write(self)
        texts = [*self.files, *self.written]
        texts += [word.partition("=")[2] for word in texts if "=" in word]
        found = []
        for text in dict.fromkeys(texts):
            is_open = is_lost or (word_patterns.is_unknown(text) if has_moved else word_patterns.is_open(text))
            if is_open and len(text) <= LONGEST_PATH:
                given = expanded(text, self.folder)
                found.append((given, self._followed(os.path.normpath(os.path.join(self.folder, given)))))
        return found

    def _followed(self, path: str) -> str:
        """Follow links that the same line created."""
        for _ in range(MOST_LINKS if self.links else 0):
            link = next((link for link in self.links if is_within(path, link)), None)
            if link is None:
                break
            path = os.path.normpath(self.links[link] + path[len(link) :])
        return path

    def lexical(self, word: str) -> str:
        """Return the path that a word names, without following links."""
        return self._followed(os.path.normpath(os.path.join(self.folder, expanded(word, self.folder))))

    def where_to(self, word: str) -> list[str]:
        """Return the folders that `cd` may go to."""
        if word_patterns.is_unknown(word[:1]):
            return [syntax.UNKNOWN]
        is_pattern = any(char in word for char in syntax.GLOBS)
        found = self.places(word)[:MOST_MATCHES] if is_pattern else [self.where(word)]
        return [folder if len(folder) <= LONGEST_FOLDER else syntax.UNKNOWN for folder in found]

    def where(self, word: str) -> str:
        """Return where a word leads."""
        path = expanded(word, self.folder)
        if self.links:
            path = self._followed(os.path.normpath(os.path.join(self.folder, path)))
        return resolved(path, self.folder)

    def places(self, word: str) -> list[str]:
        """Return where a word leads: by itself, as the value of an option, and what its globs match."""
        key = (self.folder, word, self._is_unlinking)
        if key not in self._known:
            self._known[key] = self._looked_up(word)
        return self._known[key]

    def _looked_up(self, word: str) -> list[str]:
        reading_time.check()
        folder = self.folder
        path = expanded(word, folder)
        found = [self.where(word)]
        _, equals, value = word.partition("=")
        if equals and value:
            found += self.places(value) if any(char in value for char in syntax.GLOBS) else [self.where(value)]
        parts = path.split(os.sep)
        globs = [at for at, part in enumerate(parts) if any(char in part for char in syntax.GLOBS)]
        is_known = not word_patterns.is_unknown(path) and not word_patterns.is_unknown(folder)
        if self.has_dots and "**" in parts and is_known:  # it goes into every folder, also those with a leading dot
            at = parts.index("**")
            above = os.path.join(folder, os.sep.join(parts[:at]))
            inner = itertools.islice(glob.iglob(os.path.join(above, "*"), include_hidden=True), MOST_MATCHES)
            found += [resolved(os.path.join(one, *parts[at + 1 :]), folder) for one in inner if os.path.isdir(one)]
        if 0 < len(globs) <= MOST_GLOBS and len(path) <= LONGEST_GLOB and is_known:
            before, behind = os.sep.join(parts[: globs[-1] + 1]), parts[globs[-1] + 1 :]
            matches = glob.iglob(os.path.join(folder, before), include_hidden=self.has_dots)
            found += [
                resolved(os.path.join(match, *behind), folder)
                for match in itertools.islice(matches, MOST_MATCHES)
                if behind or not (self._is_unlinking and os.path.islink(match))
            ]
        return [*found, *(self._among_made(path) if globs and is_known else ())]

    def _among_made(self, pattern: str) -> Iterator[str]:
        """Yield what a pattern may match that earlier commands of the line make: in a folder from them, any name."""
        parts = os.path.normpath(os.path.join(self.folder, pattern)).split(os.sep)
        for path in self.made:
            names = path.split(os.sep)
            if len(names) < len(parts) and not has_new_content(path, os.sep.join(parts[:-1])):
                continue
            if not all(name == part or _may_match(name, part) for name, part in zip(names, parts, strict=False)):
                continue
            rest = ["".join(_GLOB.sub(syntax.UNKNOWN, part)) for part in parts[len(names) :]]
            yield os.sep.join([*names[: len(parts)], *rest])

    def makes(self, line: str) -> Iterator[str]:
        """Yield the files and folders that it writes."""
        yield from self.writes
        yield from self.targets() if may_write(self) and self.program not in destinations.COPIERS else ()
        yield from (os.path.normpath(put.place) for put in destinations.puts(self.words, self.places))
        if self.program in unpacking.UNPACKERS:
            yield from unpacking.targets(self.words, self.folder, line)

    def made_links(self) -> dict[str, str]:
        """Return the links that `ln` creates, with their targets."""
        if self.program not in {"ln", "link"}:
            return {}
        named = [word for word in self.words[self.start + 1 :] if not word.startswith("-")]
        targets, last = (named, ".") if len(named) == 1 else (named[:-1], named[-1] if named else "")
        place = os.path.normpath(os.path.join(self.folder, expanded(last, self.folder)))
        links = {}
        is_exact = self.words[self.start + 1 : self.start + 2] == [told_texts.MOUNTED] or not os.path.isdir(place)
        for target in targets:
            name = os.path.basename(target.rstrip(os.sep)) or os.curdir
            link = place if is_exact and len(named) == 2 else os.path.join(place, name)  # noqa: PLR2004
            links[os.path.normpath(link)] = self.where(target)
        return {link: target for link, target in links.items() if link != target and not is_within(target, link)}

    def named(self) -> Iterator[str]:
        """Yield every place that a word may name, whatever is done with it; `*` stands for unknown parts."""
        texts: dict[str, None] = dict.fromkeys(self.read)
        for word in self.words[1:]:
            if not _SKIPPING.match(word):
                attached = _ATTACHED.match(word)
                whole = () if word.startswith("-") else (word,)
                inside = [word[found.end() :] for found in _INSIDE.finditer(word, 0, LONGEST_GLOB)]
                if inside:  # also what ends at one, as in `-v FILE:/x` and `source=FILE,target=/x`
                    inside += [part for part in _INSIDE.split(word[:LONGEST_GLOB]) if syntax.is_path(part)]
                texts |= dict.fromkeys((*whole, *inside, *((word[attached.end() :],) if attached else ())))
        for text in texts:
            if text and len(text) <= LONGEST_PATH and not any(char in text for char in syntax.BLANKS):
                if word_patterns.is_unknown(text):
                    yield self.lexical(text).replace(syntax.UNKNOWN, "*").replace(substitutions.MADE, "*")
                else:
                    yield from self.places(text)
                if self.has_dots and _BEGINNING_GLOB.search(text):  # it may stand for `.*`, too
                    yield self.lexical(_BEGINNING_GLOB.sub(r"\1.*", text))


def read(
    line: str, starts: Sequence[str], is_near: Callable[[str], bool] = lambda _: True, *, has_dots: bool = False
) -> Line:
    """Parse a line that may run in some folders; `is_near` tells for which others it matters."""
    options = line.translate(_NO_MARKS)
    has_dots |= bool(_DOTTED.search(options))
    is_caseless = bool(_CASELESS.search(options))
    reading = syntax.read(line)
    values = Values(reading.commands)
    is_fed = any(
        (name := word.rpartition("/")[2]) in FEEDING or "$" in word or told_texts.PYTHON.fullmatch(name)
        for one in reading.commands
        for word in one.words
    )
    runs_file = any(os.sep in word for one in reading.commands for word in one.words[:1])
    is_fed |= runs_file and any(one.writes for one in reading.commands)
    printed = values.printed(reading.commands) if is_fed else []
    steps: list[Step] = []
    links: dict[str, str] = {}
    known: dict[tuple[str, str, bool], list[str]] = {}
    seen: set[tuple[object, ...]] = set()
    folders = WorkingFolders(starts, is_near)
    made: dict[str, None] = {}
    opened: dict[str, None] = {}  # what a descriptor may lead to
    has_descriptors = bool(_DESCRIPTOR.search(line))
    for at, simple in enumerate(reading.commands):
        written = simple.marked or simple.words
        spoken = plain_texts.texts(written, 0)
        given = [_unsplit(word, values) if at in spoken else values.words(word) for at, word in enumerate(written)]
        words = [part for parts in given[1:] for part in parts]
        writes = [
            word_patterns.simplified(part) for word in simple.marked_writes or simple.writes for part in values.of(word)
        ]
        if is_caseless:
            words, writes = list(map(_folded, words)), list(map(_folded, writes))
        here: list[Step] = []
        if has_descriptors:
            files = [
                part for word in (*simple.reads, *writes) for part in values.of(word) if not _DESCRIPTOR.search(part)
            ]
            opened |= dict.fromkeys(resolved(expanded(file, place), place) for file in files for place in folders.seen)
            words = [one for word in words for one in _by_descriptor(word, opened)]
            writes = [one for word in writes for one in _by_descriptor(word, opened)]
            folders.is_sure &= len(opened) <= MOST_OPENED
        for place in folders.at(simple):
            for first in values.first_words(written[0]) if given else [[]]:
                whole = _with_input([*first, *words], printed)
                raw, whole = whole, list(map(word_patterns.simplified, whole))
                step = Step(whole, writes, _changed_folder(whole, place), links, known, tuple(made), has_dots=has_dots)
                step.raw = raw
                step.given = written
                step.has_output = bool(simple.marked or simple.marked_writes)
                step.read = [part for word in simple.reads for part in values.of(word)]
                step.at = at
                here.append(step)
                key = (*whole, None, *writes, None, *step.read, None, step.folder, len(links), step.has_output)
                steps += [] if key in seen else [step]
                seen.add(key)
        for step in here:
            if linked := step.made_links():
                links = {**links, **linked}
            new = itertools.islice(step.makes(line), MOST_MADE) if len(made) < MOST_MADE else ()
            if added := dict.fromkeys(new).keys() - made.keys():
                made |= dict.fromkeys(added)
                known = {}
        folders.go(simple, [(step.words, step.where_to) for step in here])
    return Line(line, steps, reading.is_sure and folders.is_sure, printed, folders.seen, has_dots)


def _unsplit(word: str, values: Values) -> list[str]:
    """Return what a text may become; its own blanks are quoted, unless a value brings more."""
    made = values.of(word)
    return made if all(len(one.split()) == len(word.split()) for one in made) else values.words(word)


def _folded(word: str) -> str:
    """Return a word whose globs match names in any case, in lower case, as the names are that matter."""
    parts = word.split(os.sep)
    return os.sep.join(part.casefold() if any(char in part for char in syntax.GLOBS) else part for part in parts)


def _by_descriptor(word: str, opened: Iterable[str]) -> Iterator[str]:
    """Yield a word, and what it names if a descriptor in it leads to one of some files."""
    yield word
    if found := _DESCRIPTOR.search(word):
        files = itertools.islice(opened, MOST_OPENED)
        yield from (word[: found.start()] + path + word[found.end() :] for path in files)


def has_new_content(path: str, folder: str) -> bool:
    """Return whether writing to a path may put any names into a folder: a new one, or the folder itself."""
    return is_within(folder, path) and (path == folder or not os.path.isdir(path))


def _may_match(name: str, part: str) -> bool:
    """Return whether a part of a pattern may match a name, which may have unknown parts."""
    if word_patterns.is_unknown(name):
        return True
    return (part[:1] == "." or name[:1] != ".") and len(part) <= LONGEST_GLOB and fnmatch.fnmatchcase(name, part)


def told(line: Line) -> list[tuple[str, list[str]]]:
    """Return the texts that programs of a line are told to run, and those of these texts, with where they may run."""
    found: dict[str, list[str]] = {}
    waiting = [line]
    for _ in range(DEEPEST_TOLD):
        new = []
        for one in waiting:
            for text in itertools.islice(_told_by(one), MOST_TOLD):
                text = text.replace(syntax.UNKNOWN, told_texts.UNSET)  # noqa: PLW2901 - the parser drops the mark
                if text.strip() and len(text) <= LONGEST_TOLD and text not in found and len(found) < MOST_TOLD:
                    found[text] = one.folders
                    new.append(text)
        waiting = [read(text, found[text], has_dots=line.has_dots) for text in new]
    return list(found.items())


def _told_by(line: Line) -> Iterator[str]:
    aliases = [step for step in line.steps if step.program == "alias"]
    quoted = [step for step in line.steps if any("$" in word for word in step.given)]  # an alias has a `$` of its own
    lines = [*(step.words for step in line.steps), *(step.given for step in quoted)]
    yield from told_texts.of_settings(lines, [step.folder for step in (*line.steps, *quoted)])
    is_evaluating = bool(_EVALUATED.search(line.text))  # arithmetic and `@P` run what is in the value of a variable
    for step in line.steps:
        reading_time.check()
        yield from _told(step, line)
        yield from _aliased(step, aliases)
        if is_evaluating:
            yield from (f': "{word}"' for word in step.raw if ASSIGNMENT.match(word) and ("$(" in word or "`" in word))
    if is_evaluating:
        yield from (f': "{text}"' for text in line.printed if "$(" in text or "`" in text)


def _told(step: Step, line: Line) -> Iterator[str]:
    names = [word.rpartition("/")[2] for word in step.words]
    runs = syntax.SHELLS | RUNNING_TEXT - {"."}  # a dot after other words is a folder
    rest = [word for word in step.words[step.start + 1 :] if not word.startswith("-")]
    is_fed = not rest or all(map(FED_FILE.fullmatch, rest)) or any(word[:1] == "-" for word in step.words[1:])
    is_fed |= step.program in told_texts.EDITORS | told_texts.SHELLED
    if step.program == "." or any(name in runs for name in names[: step.start + MOST_SHOWN]):
        yield " ".join(rest)
        is_run = not rest or bool(FED_FILE.fullmatch(rest[0])) or names[step.start] not in syntax.SHELLS
        if is_run or _is_made(step, line):
            yield from line.printed
            yield from (text for printed in line.printed for text in substitutions.decoded(printed))
    elif (step.paths or _names_program(step)) and _is_made(step, line):
        yield from line.printed
    if step.program in PATTERN_MOVERS:
        yield f"mv {' '.join(step.words[step.start + 1 :])}"
    is_module = bool(told_texts.PYTHON.fullmatch(step.program)) and any(map(_MODULE.match, step.words[1:]))
    fed = line.printed if is_fed and not is_module else ()
    yield from told_texts.of(step.raw or step.words, step.folder, fed)
    if any("$" in word for word in step.given) and any(map(told_texts.is_language, names)):
        yield from told_texts.of(step.given, step.folder, fed)


def _aliased(step: Step, aliases: Sequence[Step]) -> Iterator[str]:
    """Return what an alias stands for, where it is made and where it is used."""
    if step.program == "alias":
        yield from (word.partition("=")[2] for word in step.words[step.start + 1 :])
        return
    told = (word.partition("=") for one in aliases for word in one.words[one.start + 1 :])
    known = {name: value for name, equals, value in told if equals}
    texts = (word for at, word in enumerate(step.words) if word in known and at != step.start)
    if any(one.words[one.start + 1 : one.start + 2] == ["-g"] for one in aliases) and next(texts, None) is not None:
        yield " ".join(known.get(word) or shlex.quote(word) for word in step.words)  # of zsh, for any word
    ending = step.program.rpartition(".")[2]
    if ending in known and ending != step.program:  # of zsh, by `alias -s`, for what is named so
        yield f"{known[ending]} {shlex.join(step.words)}"
    if step.program in known:
        first, rest = known[step.program], step.words[step.start + 1 :]
        yield f"{first} {shlex.join(rest)}"
        if first.endswith(" "):  # then the next word may be an alias, too
            yield " ".join((first, *(known.get(word) or shlex.quote(word) for word in rest)))


def carried(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield what a command runs behind keywords, assignments and programs such as `sudo`, as commands of their own."""
    rest = list(words)
    while rest and (
        rest[0] in LEADING or ASSIGNMENT.match(rest[0]) or (len(rest) < len(words) and rest[0].startswith("-"))
    ):
        del rest[0]
    if "{" in rest[:NAMED_BLOCK]:
        del rest[: rest.index("{") + 1]
    if rest and len(rest) < len(words):
        yield rest
    for at in (at for at, word in enumerate(rest) if word in RUNNING):
        yield list(itertools.takewhile(lambda word: word not in {";", "+"}, rest[at + 1 :]))
    if _STARTING.isdisjoint(word.rpartition("/")[2] for word in rest[:1]):
        return
    is_value = False  # whether a word may belong to the option before it
    for at, word in enumerate(rest[1 : 1 + MOST_CARRIED], 1):
        if word.startswith(("-", "+")) or ASSIGNMENT.match(word) or _AMOUNT.fullmatch(word):
            is_value = word.startswith("-")
            continue
        yield rest[at:]
        yield from carried(rest[at:])
        if not is_value:
            break
        is_value = False


def _names_program(step: Step) -> bool:
    """Return whether a command runs a file by its path, or names one that runs first."""
    started = step.words[step.start : step.start + 1]
    return any(os.sep in word for word in started) or any(map(told_texts.STARTED.match, step.words))


def _is_made(step: Step, line: Line) -> bool:
    """Return whether a command runs a file that the same line writes."""
    ran = {step.where(word) for word in step.words[step.start : step.start + MOST_SHOWN] if not word.startswith("-")}
    ran |= {step.where(found[1]) for word in step.words if (found := told_texts.STARTED.match(word))}
    return any(not ran.isdisjoint(one.writes) for one in line.steps if one is not step)


def _changed_folder(words: Sequence[str], folder: str) -> str:
    """Return the folder that a command runs in: `env -C` changes it."""
    names = [word.rpartition("/")[2] for word in words[:MOST_SHOWN]]
    if "env" not in names:
        return folder
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if word == "-C" or (option.startswith("--ch") and "--chdir".startswith(option)):
            return _one_folder(value if equals else "".join(words[at + 1 : at + 2]), folder)
        if word.startswith("-C"):
            return _one_folder(word[2:], folder)
    return folder


def _one_folder(word: str, folder: str) -> str:
    """Return the folder that a word names; one of several that its globs match is unknown."""
    found = Step([], [], folder).where_to(word)
    return found[-1] if len(set(found[1:])) <= 1 else syntax.UNKNOWN


def may_write(step: Step) -> bool:
    """Return whether a command changes files that it names."""
    names = {word.rpartition("/")[2] for word in step.words[step.start : step.start + MOST_SHOWN]}
    return bool(names & WRITERS) or (bool(names & EDITING) and any(map(_IN_PLACE.match, step.words)))


def _delimiter(words: Sequence[str]) -> str:
    """Return what `xargs -d` splits its input at; empty if it is not told."""
    for at, word in enumerate(words):
        if found := _DELIMITER.fullmatch(word):
            return substitutions.unescaped(found[1] or "".join(words[at + 1 : at + 2]))[:1]
    return ""


def _with_input(words: list[str], printed: list[str]) -> list[str]:
    """Add what `xargs` reads to the words that it runs: what the line prints, or else an unknown word."""
    if not words or words[0].rpartition("/")[2] not in SPREADING:
        return words
    if any(map(_NUMBERED.search, words)):
        made = substitutions.MADE if is_composable(words) else syntax.UNKNOWN
        words = [_NUMBERED.sub(made, word) for word in words]
    end = substitutions.NONE if not {"-0", "--null"}.isdisjoint(words) else _delimiter(words)
    read = [part for text in printed for part in (*text.split(), *(text.split(end) if end else ())) if part.strip()]
    at = next((at for at, word in enumerate(words) if word.startswith("-I")), -1)
    mark = (words[at].removeprefix("-I") or "".join(words[at + 1 : at + 2])) if at >= 0 else "{}"
    found = []
    for number, word in enumerate(words):
        if number <= at + 1 or not mark or mark not in word:
            found.append(word)
        else:
            found += [word.replace(mark, part) for part in (syntax.UNKNOWN, *read[:MOST_READ])]
    return [*found, *read[:MOST_READ]]
