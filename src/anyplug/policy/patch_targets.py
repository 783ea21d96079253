"""apply_patch: which files a patch touches, and what it does to each.

Some models get this tool instead of edit and write; policies about files must see it as these.

    *** Begin Patch
    *** Add File: PATH | *** Update File: PATH | *** Delete File: PATH
    *** Move to: PATH
    @@ ... lines that begin with a blank, + or -
    *** End Patch

A unified diff (`--- a/PATH`, `+++ b/PATH`) is read, too, with git's headers for files whose lines stay the same: `diff
--git a/PATH b/PATH`, `rename from PATH`, `rename to PATH`, `copy to PATH`, `deleted file mode`.
"""

import re
from typing import Final, Literal

import msgspec

from anyplug.model.late_patterns import late

Action = Literal["add", "update", "delete", "move"]

HEADS: Final[dict[str, Action]] = {
    "*** Add File:": "add",
    "*** Update File:": "update",
    "*** Delete File:": "delete",
}
MOVE: Final = "*** Move to:"
# Headers as a tolerant tool may read them: any case, any blanks, indented.
_HEAD: Final = late(r"\s*\*{3}\s*(add|update|delete)\s*file\s*:(.*)", re.IGNORECASE | re.DOTALL)
_MOVE: Final = late(r"\s*\*{3}\s*move\s*to\s*:(.*)", re.IGNORECASE | re.DOTALL)
_LIKE_HEAD: Final = late(r"\*{3}\s*[A-Za-z][\w ]*:|\s+\*{3}\s*[A-Za-z]+\s*(file|to|from)\s*:", re.IGNORECASE)
_GIT_FILES: Final = late(r"diff --git (?:\"?a/)?(.+?)\"? \"?b/(.+?)\"?")
_GIT_MOVE: Final = late(r"(rename from|rename to|copy to) \"?(.+?)\"?")
NOTHING: Final = "/dev/null"
# What JavaScript trims, like the tool: other than Python with \ufeff, and without \x1c to \x1f and \x85.
BLANKS: Final = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))


class PatchedFile(msgspec.Struct, frozen=True):
    """What a patch does to one file."""

    path: str
    action: Action
    before: str = ""  # the removed lines
    after: str = ""  # the added lines


def touches(patch: str) -> list[PatchedFile]:
    """List the files that a patch touches. It is parsed in each way: a line of one kind could hide another."""
    lines = _lines(patch)
    strict = _marked(lines)
    found = [*strict, *(touch for touch in _marked(lines, is_tolerant=True) if touch not in strict), *_unified(lines)]
    known = {touch.path for touch in found}
    return [*found, *(touch for touch in _said_by_git(lines) if touch.path not in known)]


def unknown_header(patch: str) -> str:
    """Return the first line that looks like an unknown header, or an empty string."""
    return next(
        (line for line in _lines(patch) if _LIKE_HEAD.match(line) and not _HEAD.match(line) and not _MOVE.match(line)),
        "",
    )


def _lines(patch: str) -> list[str]:
    return [line.removesuffix("\r") for line in patch.split("\n")]  # Python's other line ends do not count


class _Open:
    """The file that the present lines of a patch are about."""

    def __init__(self) -> None:
        self.found: list[PatchedFile] = []
        self.path = ""
        self._action: Action = "update"
        self._gone: list[str] = []
        self._come: list[str] = []

    def next(self, path: str, action: Action) -> None:
        if self.path:
            self.found.append(PatchedFile(self.path, self._action, "\n".join(self._gone), "\n".join(self._come)))
        self.path, self._action, self._gone, self._come = path, action, [], []

    def becomes(self, action: Action) -> None:
        self._action = action

    def take(self, line: str) -> None:
        if line.startswith("-"):
            self._gone.append(line[1:])
        elif line.startswith("+"):
            self._come.append(line[1:])

    def end(self) -> list[PatchedFile]:
        self.next("", "update")
        return self.found


def _marked(lines: list[str], *, is_tolerant: bool = False) -> list[PatchedFile]:
    open_ = _Open()
    for line in lines:
        head = next((head for head in HEADS if line.startswith(head)), "")
        if head:
            open_.next(_path(line[len(head) :]), HEADS[head])
        elif line.startswith(MOVE):
            open_.found.append(PatchedFile(_path(line[len(MOVE) :]), "move"))
        elif is_tolerant and (found := _HEAD.match(line)):
            open_.next(_path(found[2]), HEADS[f"*** {found[1].capitalize()} File:"])
        elif is_tolerant and (found := _MOVE.match(line)):
            open_.found.append(PatchedFile(_path(found[1]), "move"))
        else:
            open_.take(line)
    return [each for touch in open_.end() for each in _as_read(touch)]


def _as_read(touch: PatchedFile) -> list[PatchedFile]:
    """Return a file by each name that it may have: some tools read a path up to a colon."""
    short = _path(touch.path.partition(":")[0])
    return [touch] if short in {"", touch.path} else [touch, msgspec.structs.replace(touch, path=short)]


def _unified(lines: list[str]) -> list[PatchedFile]:
    open_ = _Open()
    for line in lines:
        if line.startswith("--- "):
            open_.next("" if line.startswith(f"--- {NOTHING}") else _of_diff(line[4:], "a/"), "update")
        elif line.startswith("+++ "):
            target = _of_diff(line[4:], "b/")
            if target == NOTHING:
                open_.becomes("delete")
            elif target != open_.path:
                open_.next(target, "add")
        else:
            open_.take(line)
    return open_.end()


def _said_by_git(lines: list[str]) -> list[PatchedFile]:
    """List the files in git's own headers: files that are only moved or removed have no others."""
    found: dict[str, PatchedFile] = {}
    actions: dict[str, Action] = {"rename from": "delete", "rename to": "move", "copy to": "move"}
    last = ""
    for line in lines:
        if named := _GIT_FILES.fullmatch(line):
            last = _path(named[2])
            found |= {path: PatchedFile(path, "update") for path in (_path(named[1]), last)}
        elif moved := _GIT_MOVE.fullmatch(line):
            found[moved[2]] = PatchedFile(moved[2], actions[moved[1]])
        elif last and line.startswith("deleted file mode"):
            found[last] = PatchedFile(last, "delete")
    return list(found.values())


def _path(text: str) -> str:
    return text.strip(BLANKS)


def _of_diff(text: str, prefix: str) -> str:
    """Return the path of a diff's header, without git's prefix and a time stamp."""
    return _path(text.partition("\t")[0]).removeprefix(prefix)
