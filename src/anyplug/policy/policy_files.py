"""Read policies: a project's `.cupcake`, the user's global folder, our own home.

    .cupcake/rulebook.yml                        signals and builtins
    .cupcake/system/*.rego                       evaluate.rego, and what policies share
    .cupcake/helpers/**/*.rego                   what policies share
    .cupcake/policies/<harness>/**/*.rego        policies; below builtins/ only those that the rulebook enables
    .cupcake/signals/*                           a script for each signal, named after it

The global folder has the same, with its evaluate.rego in policies/<harness>/system. Reading records the state of
everything on disk, so that a later check can detect changes.
"""

import itertools
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.private_cache import PrivateCache
from anyplug.model.hashes import sha256
from anyplug.policy import builtins, rulebook, stored_sets
from anyplug.policy.agent_events import OURS
from anyplug.policy.builtins import TABLE
from anyplug.policy.paths import FOLDER, may_be_there
from anyplug.policy.rulebook import BadRulebook, Signal, Warned, meant
from anyplug.rego.values.rego_errors import Fault, Location

RULEBOOKS: Final = ("rulebook.yml", "rulebook.yaml")
MOST_FILES: Final = 5_000  # a folder with more does not contain policies
MOST_ENTRIES: Final = 10_000  # names that are visited: a link may lead to the whole disk
LARGEST_FILE: Final = 4 << 20  # bytes
BAD_RULEBOOK: Final = "rulebook_error"
UNREADABLE: Final = "policy_read_error"
NO_WATCHDOG: Final = "policy_not_supported"
NO_MATTER: Final = "without_effect"

Stamp = tuple[int, int, int, int] | None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Everything read of one place, and what is wrong with it."""

    root: str
    policies: dict[str, str] = {}  # texts by file name, as shown to people
    shared: dict[str, str] = {}  # system and helpers
    signals: dict[str, Signal] = {}
    builtin_config: dict[str, dict[str, Any]] = {}
    warnings: tuple[Fault, ...] = ()  # faults that do not make it invalid
    faults: tuple[Fault, ...] = ()
    stamps: dict[str, Stamp] = {}
    contents: dict[str, bytes] = {}  # of every file that was read, by its path
    is_global: bool = False
    origin: str = ""  # for a copy: the original `.cupcake`

    @property
    def project(self) -> str:
        """The folder that it is about."""
        return os.path.dirname(self.origin or self.root)

    @property
    def has_policies(self) -> bool:
        """Whether it contains anything that decides, or should."""
        return bool(self.policies or self.faults)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing changed since it was read."""
        return all(stamp(path) == seen for path, seen in self.stamps.items())


def of_policy_dir(given: str) -> str:
    """Return the folder that --policy-dir means: a `.cupcake`, the one inside it, around it, or next to it."""
    path = os.path.abspath(given)
    inside = os.path.join(path, FOLDER)
    if os.path.basename(path) != FOLDER and os.path.isdir(inside):
        return inside
    around = path + os.sep
    if (at := around.rfind(f"{os.sep}{FOLDER}{os.sep}")) >= 0:  # .cupcake/policies: what `cupcake validate` takes
        return around[: at + 1] + FOLDER
    return os.path.join(os.path.dirname(path), FOLDER)


def global_folder() -> str:
    """Return the folder of the user's own policies for all projects."""
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/cupcake")
    if sys.platform == "win32":
        return os.path.join(os.environ.get("APPDATA", os.path.expanduser("~")), "cupcake")
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return os.path.join(given if os.path.isabs(given) else os.path.expanduser("~/.config"), "cupcake")


def stamp(path: str) -> Stamp:
    """Return the state of a file or folder; None if it does not exist."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_ctime_ns


def read_own(root: str, harness: str, cache: PrivateCache | None = None) -> Source:
    """Read the user's own policies for all projects; those for our host are directly in a folder of our home."""
    return read(root, harness, is_global=True, flat=harness == OURS, cache=cache)


def read(
    root: str,
    harness: str,
    *,
    is_global: bool = False,
    flat: bool = False,
    origin: str = "",
    cache: PrivateCache | None = None,
) -> Source:
    """Read a place, whatever is in it; `cache` holds what was read of rulebooks.

    `flat`: the policies are in the folder itself, as in our own home. `origin`: it is a copy of this place.
    """
    reader = _Reader(root, is_global, cache)
    reader.note(root)
    book, enabled = reader.rulebook()
    reader.policies(root if flat else os.path.join(root, "policies", harness), enabled)
    for inner in () if flat else ("system", "helpers"):
        for path in reader.files(os.path.join(root, inner)):
            reader.take(path, reader.shared)
    if book.watchdog:
        reader.miss_watchdog()
    common = {file: text for file, text in enabled.texts.items() if file == f"builtin/{builtins.SHARED}"}
    return Source(
        root=root,
        policies={**reader.decisive, **{file: text for file, text in enabled.texts.items() if file not in common}},
        shared={**reader.shared, **common},
        signals={**reader.scripts(origin or root), **book.signals},
        builtin_config=enabled.config,
        warnings=tuple(reader.warnings),
        faults=tuple(reader.faults),
        stamps=reader.stamps,
        contents=reader.contents,
        is_global=is_global,
        origin=origin,
    )


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe without a writer must not block."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


class _Reader:
    def __init__(self, root: str, is_global: bool, cache: PrivateCache | None) -> None:
        self.root = root
        self.cache = cache
        self.is_global = is_global
        self.stamps: dict[str, Stamp] = {}
        self.contents: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self.decisive: dict[str, str] = {}
        self.shared: dict[str, str] = {}

    def note(self, path: str) -> Stamp:
        """Record the state of something before it is read."""
        self.stamps[path] = seen = stamp(path)
        return seen

    def shown(self, path: str) -> str:
        """Return a path as shown to people: relative to the project, or absolute if it is elsewhere."""
        return path if self.is_global else os.path.relpath(path, os.path.dirname(self.root))

    def text(self, path: str) -> str | None:
        """Read a file; return None and record a fault if it cannot be read."""
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    self.fault(path, UNREADABLE, "it is not a file")
                    return None
                raw = file.read(LARGEST_FILE + 1)
            if len(raw) > LARGEST_FILE:
                self.fault(path, UNREADABLE, f"it is larger than {LARGEST_FILE >> 20} MiB")
                return None
            self.contents[path] = raw
            return raw.decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            self.fault(path, UNREADABLE, f"it cannot be read: {reason}")
            return None

    def take(self, path: str, into: dict[str, str]) -> None:
        """Read a file to where it belongs."""
        text = self.text(path)
        if text is not None:
            into[self.shown(path)] = text

    def policies(self, folder: str, enabled: builtins.Enabled) -> None:
        """Read the policies in a folder; of builtins those that are enabled and that we do not have ourselves."""
        for path in self.files(folder):
            parts = os.path.relpath(path, folder).split(os.sep)[:-1]
            name = os.path.basename(path).removesuffix(".rego")
            if "builtins" not in parts or name in enabled.own:
                self.take(path, self.shared if {"system", "helpers"} & set(parts) else self.decisive)
                if name.endswith("_test") and "METADATA" not in self.decisive.get(self.shown(path), "METADATA"):
                    del self.decisive[self.shown(path)]  # OPA's own tests, which decide nothing
            elif f"builtin/{builtins.plain_name(name)}.rego" in enabled.texts:
                self.warn(path, "our own builtin of that name is used instead")

    def miss_watchdog(self) -> None:
        """Refuse policies that need the watchdog, which does not run here."""
        readers = [file for file, text in self.decisive.items() if "watchdog" in text]
        for file in readers:
            self.faults.append(
                Fault(Location(file, 1, 1), NO_WATCHDOG, ("it reads the watchdog, which does not run here"))
            )
        if not readers:
            self.warn(os.path.join(self.root, RULEBOOKS[0]), "`watchdog` does not run here, and no policy reads it")

    def fault(self, path: str, code: str, message: str, row: int = 1) -> None:
        self.faults.append(Fault(Location(self.shown(path), row, 1), code, message))

    def warn(self, path: str, message: str, row: int = 1) -> None:
        self.warnings.append(Fault(Location(self.shown(path), row, 1), NO_MATTER, message))

    def files(self, folder: str) -> list[str]:
        """List the Rego files in a folder and below it, in order."""
        found: list[str] = []
        self.note(folder)
        if not may_be_there(folder):
            return found
        seen: set[str] = set()  # folders may be links, and links may be circular
        waiting, entries = [folder], 0
        while waiting:
            place = waiting.pop()
            real = os.path.realpath(place)
            if real in seen:
                continue
            seen.add(real)
            self.note(place)
            listed = self._listed(place, MOST_ENTRIES - entries)
            entries += len(listed)
            for path in listed:
                if os.path.isdir(path):
                    waiting.append(path)
                elif path.endswith(".rego"):
                    self.note(path)
                    found.append(path)
                elif not os.path.exists(path):  # a link, perhaps to more policies
                    self.note(path)
                    self.fault(path, UNREADABLE, "it is a broken link")
            if len(found) > MOST_FILES or entries >= MOST_ENTRIES:
                self.fault(folder, UNREADABLE, f"it has more than {MOST_FILES} policies, or leads to many other files")
                break
        return sorted(found)

    def _listed(self, folder: str, most: int) -> list[str]:
        """List a folder, up to a limit; a failure is a fault, because something there may forbid something."""
        try:
            with os.scandir(folder) as entries:
                return [entry.path for entry in itertools.islice(entries, max(most, 0))]
        except OSError as error:
            self.fault(folder, UNREADABLE, f"it cannot be listed: {error.strerror}")
            return []

    def rulebook(self) -> tuple[rulebook.Rulebook, builtins.Enabled]:
        for name in RULEBOOKS:
            path = os.path.join(self.root, name)
            self.note(path)
            if not may_be_there(path):
                continue
            text = self.text(path)
            if text is None:
                break
            try:
                book = stored_sets.read_rulebook(text, self.cache)
                enabled = builtins.enable(book.builtins)
            except BadRulebook as error:
                self.fault(path, BAD_RULEBOOK, str(error), error.row or rulebook.row_of(text, error.keys))
                break
            for keys, message in (*book.warnings, *enabled.warnings, *self._unknown(enabled.own)):
                self.warn(path, message, rulebook.row_of(text, keys))
            return book, enabled
        return rulebook.Rulebook(), builtins.Enabled()

    def _unknown(self, names: frozenset[str]) -> Iterator[Warned]:
        """Find builtins that neither we nor the folder have: somebody who enabled one relies on it."""
        files = self.files(self.root) if names else []
        there = {os.path.basename(file) for file in files if f"{os.sep}builtins{os.sep}" in file}
        for name in sorted(names):
            if f"{name}.rego" not in there:
                yield ("builtins", name), f"there is no builtin `{name}`, so it has no effect{meant(name, TABLE)}"

    def scripts(self, origin: str) -> dict[str, Signal]:
        """Find the scripts in the folder of signals; those of a copy run from the originals' place."""
        folder = os.path.join(self.root, "signals")
        if self.note(folder) is None:
            return {}
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return {}
        found: dict[str, Signal] = {}
        for name in names:
            path = os.path.join(folder, name)
            if not name.startswith(".") and os.path.isfile(path):
                if not os.access(path, os.X_OK):
                    self.warn(
                        path,
                        "it is not executable, so every policy that needs this signal refuses; run `chmod +x` on it",
                    )
                self.note(path)
                stem, command = os.path.splitext(name)[0], _quoted(os.path.join(origin, "signals", name))
                found.setdefault(stem, Signal(stem, command, digest=self._digest(path)))
        return found

    def _digest(self, path: str) -> str:
        """Return the digest of a script; one that is unreadable or too large is never accepted."""
        try:
            with open(untrusted_files.linked(path), "rb") as file:
                content = file.read(LARGEST_FILE + 1)
        except OSError:
            content = b""
        if len(content) > LARGEST_FILE:
            return os.urandom(16).hex()
        self.contents[path] = content
        return sha256(content).hexdigest()


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
