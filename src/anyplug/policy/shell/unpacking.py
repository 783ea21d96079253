"""What a command that unpacks an archive or applies a patch would write: the names in its input file.

Files are read when the command is checked, up to a limit; what a program writes to a pipe, is beyond the limit, or
changes before the command runs is not seen. Nothing is unpacked.
"""

import glob
import itertools
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anyplug.model.late_patterns import late

ALWAYS: Final = frozenset({"unar", "aunpack", "dtrx", "atool", "ouch"})  # unpack unless they are told to list
UNPACKERS: Final = frozenset({"tar", "gtar", "bsdtar", "unzip", "jar", "7z", "7za", "7zr", "7zz", *ALWAYS})
MODULES: Final = frozenset({"tarfile", "zipfile"})  # of Python, which unpack with `python -m`
MODULE_FILES: Final = 2  # words without a folder: the option and the archive
LARGEST: Final = 16 << 20  # bytes of an archive or a patch that are read: agents wait for the answer
LARGEST_UNPACKED: Final = 64 << 20  # bytes of a compressed archive's content
MOST_MEMBERS: Final = 10_000
MOST_LINKS, LONGEST_LINK = 8, 4096  # that lead to each other; characters of a target
MOST_MATCHES: Final = 100  # archives that one pattern names
UNICODE_PATH, EXTRA_HEADER, UNICODE_HEADER = (
    0x7075,
    4,
    5,
)  # of a zip entry: the field's number, and bytes before its text
MOST_BEFORE: Final = 4  # words before a program's name, such as `sudo`
_EXTRACTING: Final = late(r"-?[A-Za-z]*x|--(?:extract|get)$")
_LISTING_ZIP: Final = late(r"-[A-Za-z]*[lvptZz]")
_INTO: Final = late(r"(?:-C|-d|-o(?=.)|--directory=?|--cd=?)(.*)", re.DOTALL)
_FILE: Final = late(r"(?:-[A-Za-z]*f|--file=|--patch=|--input=|-i|if=)(.+)", re.DOTALL)
_PATCHED: Final = late(r"^(?:\+\+\+|---|\*\*\*|Index:|diff --git|(?:rename|copy) (?:from|to))[ \t]+(.+)$", re.MULTILINE)


def targets(words: Sequence[str], folder: str, line: str = "", others: Sequence[str] = ()) -> Iterator[str]:
    """Yield the paths that a command would write.

    `line` is the whole command line with its input texts, `others` the words of commands that may pass it a file.
    """
    programs = {*UNPACKERS, *MODULES, "patch", "git"}
    at = next((at for at, word in enumerate(words[:MOST_BEFORE]) if _name(word) in programs), -1)
    if at < 0:
        return
    program, rest = _name(words[at]), list(words[at + 1 :])
    if program == "patch" or (program == "git" and {"apply", "am"} & set(rest)):
        texts = [line, *(_text(path) for path in _files([*rest, *others], folder))]
        names = (name for text in texts for name in patched(text))
        yield from (os.path.join(into, name) for name in names for into in folders(rest, folder))
    elif _extracts(program, rest):
        implied = [f"{word}.zip" for word in rest] if program == "unzip" else []
        members = [name for path in _files([*rest, *implied, *others], folder) for name in _members(path)]
        places = folders(rest, folder)
        if program in MODULES and len(rest) > MODULE_FILES:
            places = [os.path.join(folder, os.path.expanduser(rest[-1]))]
        yield from (os.path.join(into, name) for name in members for into in places)
        if not members:  # for an unreadable archive, only its folder is known
            yield from places
            gates = {".claude": "settings.json", ".codex": "hooks.json"}
            yield from (os.path.join(into, gates[name]) for into in places if (name := os.path.basename(into)) in gates)


def extracts(words: Sequence[str]) -> bool:
    """Return whether a command unpacks an archive, and does not only list it."""
    return bool(words) and _extracts(_name(words[0]), list(words[1:]))


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _extracts(program: str, rest: list[str]) -> bool:
    if program in MODULES:
        return rest[:1] in (["-e"], ["--extract"])
    if program in ALWAYS:
        return not any(word in {"-l", "list", "l", "--list"} for word in rest)
    if program == "unzip":
        return not any(map(_LISTING_ZIP.match, rest))
    if program.startswith("7z"):
        return rest[:1] in (["x"], ["e"])
    options = [word for at, word in enumerate(rest) if not at or word.startswith("-")]
    return program in UNPACKERS and any(map(_EXTRACTING.match, options))


def folders(rest: Sequence[str], folder: str) -> list[str]:
    """Return the folders that a command may write to."""
    found = []
    for at, word in enumerate(rest):
        if option := _INTO.fullmatch(word):
            found += [option[1] or "".join(rest[at + 1 : at + 2])]
    return [os.path.join(folder, os.path.expanduser(each)) for each in found] or [folder]


def _files(words: list[str], folder: str) -> Iterator[str]:
    """Yield the regular files among words that are small enough to read."""
    for word in dict.fromkeys(words):
        option = _FILE.fullmatch(word)
        for each in (word, option[1]) if option else (word,):
            path = os.path.join(folder, os.path.expanduser(each))
            is_pattern = "\0" not in path and len(path) <= LONGEST_LINK and any(char in each for char in "*?[")
            for one in itertools.islice(glob.iglob(path), MOST_MATCHES) if is_pattern else (path,):
                try:
                    found = os.stat(one)
                except (OSError, ValueError):
                    continue
                if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST:
                    yield one


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST)
    except OSError:
        return ""


def patched(text: str) -> Iterator[str]:
    """Yield the names in a patch's headers, with fewer and fewer leading folders, as `-p` strips them."""
    for header in _PATCHED.findall(text):
        plain = header.encode("latin-1", "replace").decode("unicode_escape", "replace") if "\\" in header else header
        for word in plain.replace('"', " ").split():
            parts = word.split("/")
            yield from ("/".join(parts[at:]) for at in range(len(parts)) if parts[at])


def _unicode_names(extra: bytes) -> Iterator[str]:
    """Yield the names in a zip entry's extra fields, which `unzip` prefers."""
    while len(extra) >= EXTRA_HEADER:
        kind, size = int.from_bytes(extra[:2], "little"), int.from_bytes(extra[2:EXTRA_HEADER], "little")
        if kind == UNICODE_PATH:
            yield extra[EXTRA_HEADER + UNICODE_HEADER : EXTRA_HEADER + size].decode(errors="replace")
        extra = extra[EXTRA_HEADER + size :]


def _behind_links(name: str, links: Mapping[str, str]) -> Iterator[str]:
    """Yield where an entry lands if folders on its way are links that the same archive makes."""
    for _ in range(MOST_LINKS if links else 0):
        parts = name.split("/")
        above = next((at for at in range(1, len(parts)) if "/".join(parts[:at]) in links), 0)
        if not above:
            return
        link = "/".join(parts[:above])
        name = os.path.normpath(os.path.join(os.path.dirname(link), links[link], *parts[above:]))
        yield name


def _members(path: str) -> Iterator[str]:
    """Yield the names in an archive, and the targets of links in it; nothing if it is not one."""
    # Takes 20 ms to import, and only commands with an archive need it.
    import tarfile
    import zipfile

    names: list[str] = []
    links: dict[str, str] = {}  # that the archive makes: what comes behind them lands where they lead
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as zipped:
                for entry in zipped.infolist()[:MOST_MEMBERS]:
                    names += [entry.filename, *_unicode_names(entry.extra)]
                    if stat.S_ISLNK(entry.external_attr >> 16) and entry.file_size <= LONGEST_LINK:
                        links[entry.filename] = zipped.read(entry).decode(errors="replace")
        else:
            with tarfile.open(path, "r|*", ignore_zeros=True) as archive:  # as `tar -i` reads it
                for member in archive:
                    names.append(member.name)
                    if member.issym() or member.islnk():
                        names.append(os.path.join(os.path.dirname(member.name), member.linkname))
                        links[member.name] = member.linkname
                    if len(names) >= MOST_MEMBERS or member.offset_data + member.size > LARGEST_UNPACKED:
                        break
    except (OSError, EOFError, ValueError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, NotImplementedError):
        pass  # a damaged archive may still have had names before
    names += [made for name in names for made in _behind_links(name, links)]
    for name in names:
        parts = [part for part in name.replace("\\", "/").split("/") if part not in {"", "."}]
        yield name
        yield from ("/".join(parts[at:]) for at in range(len(parts)))  # as --strip-components does
