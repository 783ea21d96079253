"""List the files that a command may refer to. The list is generous: only a shell could know for sure.

A text is split at blanks, and also at operators, quotes, `=`, `,` and `:`, with quotes removed and with quotes as ends
of words. What a shell would fill in is anything, so `$X/tools/run.sh` means every `tools/run.sh`. Each folder that a
word names may be where a later word begins. Starts nothing, and looks at a bounded number of files.
"""

import glob
import itertools
import os
import shlex
from collections.abc import Iterable, Iterator

from anyplug.model.late_patterns import late

MOST_LOOKS = 40_000  # files and folders that are looked for in all commands together
MOST_WORDS = 1_000  # of one command, in all readings
MOST_LETTERS = 20_000  # of one command
MOST_FOLDERS = 16  # where a word may begin
MOST_MATCHES = 64  # files of one pattern
MODULE_FILES = ("{}.py", "{}/__main__.py", "{}/__init__.py")

_QUOTES = str.maketrans(dict.fromkeys("'\"\\", ""))
_QUOTES_APART = str.maketrans(dict.fromkeys("'\"\\", " "))
_BLANKS = late(r"[\s;|&<>()`!]+")
_OPERATORS = late(r"[\s;|&<>()`!=,:{}]+")
_HERE = late(r"\$PWD\b|\$\{PWD\}|\$\(pwd\)|`pwd`")
_USER = late(r"\$HOME\b|\$\{HOME\}")
_FILLED_IN = late(r"\$\([^()]*\)|`[^`]*`|\$\{[^{}]*\}|\$\w+|\{[^{}]*\}|%[A-Za-z]")
_PATTERN = late(r"[*?\[]")
_FILE = late(r"/|\.\w{1,5}\Z")  # what a word needs to mean a file that does not exist
_ENTERED = late(r"(?:\bcd|\bpushd)\s+(?:--\s+)?([^\s;|&<>()]+)")
_SEARCHED = late(r"\b\w*(?:PATH|LIB)=(\S+)")  # PATH, PYTHONPATH, NODE_PATH, PERL5LIB
_MODULE = late(r"-m\s*([A-Za-z_][\w.]*)")


class CommandPaths:
    """Finds the files of commands, within one limit for all of them."""

    def __init__(self, user: str) -> None:
        """Take the user's home folder, for `~` and `$HOME`."""
        self._user = user
        self._left = MOST_LOOKS

    def existing(self, text: str, folders: Iterable[str]) -> list[str]:
        """List the files that a text names as they are, without reading it as a command."""
        return [path for word in _words(text, self._user) for path in self._files(word, folders)]

    def all(self, command: str, folders: Iterable[str]) -> list[str]:
        """List what a command that is run in one of these folders may run or read, whether it exists or not."""
        words = _words(command, self._user)
        begins = self._begins(words, folders)
        found: dict[str, None] = {}
        for word in words:
            if _PATTERN.search(word):
                found |= dict.fromkeys(self._matches(word, begins))
                continue
            found |= dict.fromkeys(path for end in _ends(word) for path in self._files(end, begins))
        for word in itertools.chain(words, _ENTERED.findall(command.translate(_QUOTES))):
            whole = word.lstrip("*").lstrip("/") if word.startswith("*") else word
            if _FILE.search(whole) and not whole.startswith("-") and not _PATTERN.search(whole):
                found |= dict.fromkeys(path for path in self._paths(whole, begins) if not os.path.isdir(path))
        found |= dict.fromkeys(self._searched(command, words, begins))
        for module in _MODULE.findall(command):
            parts = module.replace(".", "/").strip("/")
            found |= dict.fromkeys(path for name in MODULE_FILES for path in self._paths(name.format(parts), begins))
        found |= dict.fromkeys(os.path.join(folder, "__main__.py") for folder in begins[1:])
        return list(found)

    def _begins(self, words: list[str], folders: Iterable[str]) -> list[str]:
        """Return these folders, and those that words name, also within one another as after several `cd`."""
        begins = list(dict.fromkeys(folders))
        for word in words:
            for folder in tuple(begins):
                path = self._path(word, folder)
                if len(begins) < MOST_FOLDERS and path not in begins and self._looks() and os.path.isdir(path):
                    begins.append(path)
        return begins

    def _searched(self, command: str, words: list[str], begins: list[str]) -> Iterator[str]:
        """Yield the folders in which programs and modules are searched; of one around the command's, the words."""
        for text in _SEARCHED.findall(command.translate(_QUOTES)):
            for name in text.split(":"):
                for path in self._paths(_HERE.sub(".", name), begins) if name and "*" not in name else ():
                    is_around = any(f"{folder}/".startswith(f"{path.rstrip('/')}/") for folder in begins[:1])
                    yield from (
                        (os.path.join(path, word) for word in words if word.isidentifier()) if is_around else [path]
                    )

    def _matches(self, pattern: str, folders: list[str]) -> Iterator[str]:
        ends = {pattern, pattern.lstrip("*").lstrip("/")} if pattern.startswith("*") else {pattern}
        for end in ends:
            if any(map(str.isalnum, end)) and not end.startswith("-"):
                for path in self._paths(end, folders):
                    yield from filter(os.path.isfile, itertools.islice(glob.iglob(path), MOST_MATCHES))

    def _files(self, word: str, folders: Iterable[str]) -> list[str]:
        return [path for path in self._paths(word, folders) if os.path.isfile(path)]

    def _paths(self, word: str, folders: Iterable[str]) -> list[str]:
        return [self._path(word, folder) for folder in folders if self._looks()]

    def _path(self, word: str, folder: str) -> str:
        return path(word, folder, self._user)

    def _looks(self) -> bool:
        self._left -= 1
        return self._left >= 0


def path(text: str, folder: str, user: str) -> str:
    """Return the absolute path that a text means in a folder."""
    text = user + text[1:] if text == "~" or text.startswith("~/") else text
    return os.path.normpath(os.path.join(folder, text.replace("\0", "")))


def _ends(word: str) -> list[str]:
    """Return a word, and what follows each `/` in it: `-r./tools/x.js` and `$X/tools/x.js` mean `tools/x.js` too."""
    parts = word.split("/")
    return ["/".join(parts[at:]) for at in range(min(len(parts), MOST_FOLDERS))]


def _words(text: str, user: str) -> list[str]:
    """Return the words of a text in every reading."""
    text = _USER.sub(lambda _: user, _HERE.sub(".", text[:MOST_LETTERS]))
    found: dict[str, None] = {text.strip(): None}
    for reading in (text, _FILLED_IN.sub("*", text)):
        for plain in (reading.translate(_QUOTES), reading.translate(_QUOTES_APART)):
            found |= dict.fromkeys((*_BLANKS.split(plain), *_OPERATORS.split(plain)))
        try:
            found |= dict.fromkeys(shlex.split(reading))
        except ValueError:  # a quote that does not end
            continue
    return [word for word in itertools.islice(found, MOST_WORDS) if word]
