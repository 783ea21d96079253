"""Decide whether a path is protected: names at any depth, and paths. Pure; part of the spawner: standard library only.

Patterns are those of `protected_paths`: relative ones apply at any depth, those that begin with `/` where they say.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable

GIT, SETTINGS = ".git", ".config"
# What git runs commands from in a folder that contains a repository, and the file by which git recognises such a
# folder. That file is protected itself, so a plugin can neither turn a folder into a repository nor back.
GIT_FOLDERS = frozenset({"hooks", "modules", "worktrees"})
GIT_FILES = frozenset({"config", "config.worktree", "commondir", "gitdir"})
GIT_NAMES = GIT_FILES | GIT_FOLDERS
GIT_NAME, GIT_MARK, GIT_STORE = "config", "HEAD", "objects"
# The only folders in which git itself writes a file of that name. In the first, the table defines what is protected. In
# the others it is everything that could turn a folder with that file into a repository, or run commands then.
MARKED = ((GIT,), (GIT, "logs"), (GIT, "refs", "remotes", "*"), (GIT, "logs", "refs", "remotes", "*"))
REFERENCES = frozenset({"refs", "logs"})  # the folders of a repository in which files are named after branches
# How programs name what they write before they rename it to a file: the file's name with one of these before it, and
# one of those after it. Names that end so are files of their own.
BEFORE, BEHIND = ("", ".", "#", ".#"), ".~-_#"
OF_THEIR_OWN = (".example", ".sample", ".template", ".dist", ".development", ".production", ".test")
EXACT = "="  # before a case-sensitive pattern
ANY_CASE = "=~"  # before the same pattern where the file system ignores case
LINK = "->"  # before a name that no link may have in its text
MOST_KNOWN = 4096  # folders whose verdict is cached

Parts = tuple[str, ...]
FREE, INNER, CLOSED = 0, 1, 2  # INNER: a folder on the way to a protected path, and only ever a folder


def unlinked(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns by which no link may name one of these folders."""
    names = (path.rstrip("/").rpartition("/")[2] for path in folders)
    return tuple(dict.fromkeys(f"{LINK}{name}" for name in names if name))


def fold(name: str) -> str:
    """Normalise a name as case-insensitive file systems do: composed, folded, without invisible characters."""
    if name.isascii():
        return name.lower()
    import unicodedata  # takes a megabyte, and hardly any name needs it

    seen = "".join(letter for letter in name if unicodedata.category(letter) != "Cf" and not _is_variation(letter))
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", seen).casefold())


def _is_variation(letter: str) -> bool:
    return "\ufe00" <= letter <= "\ufe0f" or letter in "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"


def fold_part(name: str) -> str:
    """Normalise a name for comparison with patterns: `repository.git`, the name of a bare one, is a `.git`, too."""
    folded = fold(name)
    return GIT if folded.endswith(GIT) else folded


def split(path: str) -> Parts:
    """Return the names of an absolute path."""
    return tuple([part for part in path.split("/") if part])


def fold_parts(path: str) -> Parts:
    """Return the names of an absolute path, normalised."""
    if not path.isascii():
        return tuple(map(fold_part, split(path)))
    return tuple([GIT if part.endswith(GIT) else part for part in path.lower().split("/") if part])


def _fits(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name.endswith(pattern[1:]) if pattern.startswith("*") else name == pattern


def drafted(name: str) -> list[str]:
    """List the files for which a name may be a draft, which is renamed to the file when it is written."""
    if fold(name).endswith(OF_THEIR_OWN):
        return []
    rests = [name[len(before) :] for before in BEFORE if name.startswith(before)]
    ends = [rest[:at] for rest in rests for at, letter in enumerate(rest) if at and letter in BEHIND]
    return [found for found in dict.fromkeys((*rests[1:], *ends)) if found.strip(".")]


def sounds_like_file(name: str) -> bool:
    """Return whether a protected name that does not exist would be a file, as far as names tell."""
    return "." in name or fold(name) in GIT_FILES


class Protected:
    """The protected paths of one profile, and the grants that open some of them."""

    def __init__(self, patterns: Iterable[str], named: Iterable[str], own: Iterable[str] = ()) -> None:
        """`named` are the absolute paths that grants name, `own` the folders in which nothing is protected."""
        self._own = {fold(path.rpartition("/")[2]) for path in own}  # names, also of other plugins' folders
        self._named = [split(path) for path in named]
        self._names: set[str] = set()  # protected at any depth
        self._beginnings: tuple[str, ...] = ()  # the same, with a `*` behind
        self._ends: tuple[str, ...] = ()  # the same, with a `*` before
        self._exact: set[str] = set()
        self._folded: set[str] = set()  # the same for file systems that ignore case
        self._longer: dict[str, list[Parts]] = {}  # by their first name
        self._paths: dict[Parts, None] = {}
        self._loose_paths: dict[Parts, list[str]] = {}  # the last names, by folder
        self._above: set[Parts] = set()
        self._known: dict[str, tuple[Parts, int, int]] = {}
        for pattern in patterns:
            self._add(pattern)

    def add(self, patterns: Iterable[str]) -> None:
        """Protect these as well from now on."""
        for pattern in patterns:
            self._add(pattern)
        self._known.clear()

    def _add(self, pattern: str) -> None:
        if pattern.startswith(LINK):
            self._own.add(fold(pattern[len(LINK) :]))
            return
        if pattern.startswith(ANY_CASE):
            self._folded.add(fold(pattern[len(ANY_CASE) :]))
            return
        if pattern.startswith(EXACT):
            self._exact.add(pattern[1:])
            return
        parts = fold_parts(pattern)
        if not parts:
            return
        if pattern.startswith("/"):
            if "*" in parts[-1]:
                self._loose_paths.setdefault(parts[:-1], []).append(parts[-1])
            else:
                self._paths[parts] = None
            self._above.update(parts[:end] for end in range(1, len(parts)))
        elif len(parts) > 1:
            self._longer.setdefault(parts[0], []).append(parts)
        elif parts[0].endswith("*"):
            self._beginnings += (parts[0][:-1],)
        elif parts[0].startswith("*"):
            self._ends += (parts[0][1:],)
        else:
            self._names.add(parts[0])

    def state(self, folder: str, name: str) -> int:
        """Return whether a name in a folder (a real, absolute path) is free, protected, or on the way to what is."""
        known = self._known.get(folder)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[folder] = self._look(folder)
        parts, opened, anchor = known
        if anchor > opened:
            return CLOSED
        whole = (*split(folder), name)
        for grant in self._named:
            if len(grant) == len(whole) and grant == whole:
                opened = len(whole)
        if self._in_git(whole, (*parts, fold_part(name))) > opened:
            return CLOSED
        return self._at(parts, name, opened)

    def git_folders(self, folder: str, name: str) -> list[int]:
        """List how many levels above a name's folder a repository's folder must be for the name to be closed.

        0 is the folder itself. Those that a grant names are left out.
        """
        real = split(folder)
        found = [len(real)] if fold(name) in GIT_NAMES else []
        found += [at for at, part in enumerate(real) if fold(part) in GIT_FOLDERS]
        if not found:
            return []
        parts, opened = tuple(map(fold_part, real)), self._opened(real)
        return [len(real) - at for at in found if at > opened and not self._may_be_marked(parts[:at], opened)]

    @staticmethod
    def repository(folder: str) -> Parts:
        """Return the innermost `.git` that contains a folder, or is it, or its folder of references; empty if none.

        What is allowed in one is not all allowed elsewhere, so nothing is moved out of it or into it.
        """
        real = split(folder)
        inside = [at + 1 for at, part in enumerate(real) if fold_part(part) == GIT]
        if not inside:
            return ()
        is_among_references = fold("".join(real[inside[-1] : inside[-1] + 1])) in REFERENCES
        return real[: inside[-1] + is_among_references]

    def leads_to_own(self, target: str) -> bool:
        """Return whether a link with this text, alone or with others, may lead to where nothing is protected.

        By names alone: other links and folders on the way can change later, but every path to the folder contains its
        name.
        """
        return any(fold(part) in self._own for part in target.split("/"))

    def below(self, folder: str, name: str) -> list[Parts]:
        """List what is protected below a name at any depth, by the names that follow."""
        parts = (*map(fold_part, split(folder)), fold_part(name))
        found = []
        for at in range(len(parts)):
            for pattern in self._longer.get(parts[at], ()):
                rest = parts[at:]
                if len(rest) < len(pattern) and all(map(_fits, rest, pattern)) and "*" not in "".join(pattern[:-1]):
                    found.append(pattern[len(rest) :])
        return found

    def opener(self, path: str) -> str:
        """Return the path that a grant must name to open another; empty if that is not protected."""
        real = split(path)
        for depth in range(1, len(real) + 1):
            state = self.state("/" + "/".join(real[: depth - 1]), real[depth - 1])
            if state == CLOSED or (state == INNER and depth == len(real)):
                return "/" + "/".join(real[: self._named_depth(tuple(map(fold_part, real[:depth])))])
        folder, _, name = path.rstrip("/").rpartition("/")
        files = (self.opener(f"{folder}/{file}") for file in drafted(name) if sounds_like_file(file))
        return next(filter(None, files), "")

    def _named_depth(self, parts: Parts) -> int:
        if parts in self._paths or self._is_loose(parts):
            return len(parts) + (parts[-1] == SETTINGS)  # many programs keep their settings there
        # For example .git/hooks: the outermost folder must be named.
        return next((at + 1 for at, part in enumerate(parts) if part in self._longer), len(parts))

    def _look(self, folder: str) -> tuple[Parts, int, int]:
        """Return a folder's names, how deep a grant opens it, and how deep the deepest pattern for it begins."""
        real, parts = split(folder), fold_parts(folder)
        opened = self._opened(real)
        anchor = 0
        for at, part in enumerate(parts):
            here = parts[: at + 1]
            is_one = self._is_name(part) or here in self._paths or self._is_loose(here)
            is_exact = self._is_exact(real[at]) and not self._may_be_marked(parts[:at], opened)
            if is_one or is_exact or any(self._begins(parts[at:], longer) for longer in self._longer.get(part, ())):
                anchor = at + 1
            anchor = max(anchor, self._in_git(real[: at + 1], parts[: at + 1]))
        return parts, opened, anchor

    def _opened(self, real: Parts) -> int:
        """Return the depth of the deepest grant that names a path or a parent of it."""
        return max((len(grant) for grant in self._named if real[: len(grant)] == grant), default=0)

    @staticmethod
    def _may_be_marked(folder: Parts, opened: int) -> bool:
        """Return whether a folder may contain git's marker of a repository; a grant of a `.git` opens all of it."""
        if 0 < opened <= len(folder) and folder[opened - 1] == GIT:
            return True
        return any(len(folder) >= len(ends) and all(map(_fits, folder[-len(ends) :], ends)) for ends in MARKED)

    @staticmethod
    def _in_git(real: Parts, parts: Parts) -> int:
        """Return the depth of the `.git` in which a path is what git or its helpers may take commands from; else 0."""
        if GIT not in parts[:-1]:
            return 0
        *folder, name = parts
        for at in range(len(folder) - 1, -1, -1):
            if folder[at] != GIT:
                continue
            inner = tuple(folder[at:])
            if len(inner) > 1 and inner[1] in REFERENCES:
                is_marked = any(len(inner) == len(ends) and all(map(_fits, inner, ends)) for ends in MARKED)
                found = is_marked and (name in GIT_NAMES or name == GIT_STORE)
            else:  # projects may be called so, too
                found = name in GIT_NAMES and (len(inner) == 1 or fold(real[at]) == GIT)
            if found:
                return at + 1
        return 0

    @staticmethod
    def _begins(parts: Parts, pattern: Parts) -> bool:
        return len(parts) >= len(pattern) and all(map(_fits, parts, pattern))

    def _is_name(self, part: str) -> bool:
        return part in self._names or part.startswith(self._beginnings) or part.endswith(self._ends)

    def _is_exact(self, name: str) -> bool:
        return name in self._exact or (bool(self._folded) and fold(name) in self._folded)

    def _is_loose(self, parts: Parts) -> bool:
        return any(_fits(parts[-1], loose) for loose in self._loose_paths.get(parts[:-1], ()))

    def _at(self, folder: Parts, name: str, opened: int) -> int:
        part = fold_part(name)
        parts = (*folder, part)
        depth = len(parts)
        if opened < depth:
            if self._is_name(part) or parts in self._paths or self._is_loose(parts):
                return CLOSED
            if self._is_exact(name) and not self._may_be_marked(folder, opened):
                return CLOSED
        inner = parts in self._above  # also if a grant names it, because that does not open its content
        for at in range(opened, depth):
            for pattern in self._longer.get(parts[at], ()):
                rest = parts[at:]
                if all(map(_fits, rest, pattern)):
                    if len(rest) == len(pattern):
                        return CLOSED
                    inner = inner or len(rest) < len(pattern)
        return INNER if inner else FREE
