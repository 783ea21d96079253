"""The digest of a plugin: which files count, and their hash, with a cache keyed by stamps.

A stamp is a file's size, times and inode. Before each call the stamps are taken again; only files with a new stamp are
read again.
"""

import os
import stat
from collections.abc import Callable, Iterator

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.untrusted_files import Budget, Changed, Entry, HeldFolder
from anyplug.model.hashes import sha256
from anyplug.model.untrusted_text import for_people

NEVER = frozenset({".git", "__pycache__"})
CONFIG = "config.json"  # at the top: the user's values, which tools rewrite
# The formats are not asked for these names. They count in plugins of every format, also where snapshots are checked
# without knowing the format, and a name that came or went would change digests that people have approved.
# tests/formats/test_contract.py compares them with the formats; formats of other packages use `named_files`.
SWITCHED = "extension.json"  # its key `enabled` is a switch, and not part of what runs
MANIFESTS = frozenset({"manifest.json", "plugin.json", "extension.json", "mcp.json", "package.json"})
LOCKS = frozenset(
    {"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "uv.lock", "poetry.lock",
     "pyproject.toml", "requirements.txt", "Cargo.lock", "go.sum", "Gemfile.lock"}
)  # fmt: skip
HEAD = 4  # bytes that identify a program
CODE_SUFFIXES = frozenset(
    {".py", ".pyc", ".pyd", ".pyz", ".pth", ".whl", ".egg", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx",
     ".tsx", ".node", ".wasm", ".sh", ".bash", ".zsh", ".fish", ".rb", ".pl", ".pm", ".lua", ".php", ".r", ".jl",
     ".go", ".rs", ".c", ".swift", ".so", ".dylib", ".dll", ".exe", ".jar", ".class", ".jq", ".awk", ".sed", ".rego"}
)  # fmt: skip
EXECUTABLE = 0o111
LARGEST_SWITCHED = untrusted_files.CHUNK  # bytes; read at once
# A plugin with a link to the whole disk, or one that fills its own folder, is not read to the end.
MOST_ENTRIES = 120_000  # files and folders; a large node_modules has about 60,000
LARGEST_FILE = 512 << 20  # bytes of one counted file; browsers and model runtimes bundle libraries of 200 MiB
MOST_BYTES = 2 << 30  # of all counted files
MOST_SECONDS = 300.0  # a busy machine hashes 50 MiB a second
# Limits on the event loop, where others wait, and in a thread while others wait for a lock.
QUICK_STAMPS = 400  # about a millisecond
BRIEF_BYTES = 4 << 20
BRIEF_SECONDS = 0.2
QUICK_ENTRIES = 4_000
QUICK_BYTES = 64 << 20
QUICK_SECONDS = 2.0

Stamp = tuple[str, int, int, int, int, int]  # path, mode, size, mtime, ctime, inode


class Digest(msgspec.Struct, frozen=True):
    """The hash of everything that counts, and each file's own hash, to report later what changed."""

    value: str
    files: dict[str, str]


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """A digest with the stamps under which it was taken; `hashes` is empty for files that do not count."""

    stamps: tuple[Stamp, ...]
    hashes: tuple[str, ...]
    digest: str
    folders: tuple[Stamp, ...]
    named: tuple[str, ...] = ()  # files that count because a command line names them
    parts: dict[str, str] = {}  # for a plugin that is part of a file: the hash of each part that counts

    def still_holds(self, root: str) -> bool:
        """Return whether every stamp is unchanged.

        A file that is added, removed or replaced changes its folder's stamp.
        """
        try:
            for before in self.folders:
                if stamp_of(before[0], os.stat(root + before[0])) != before:
                    return False
            for before in self.stamps:
                if stamp_of(before[0], _look_at(f"{root}/{before[0]}")) != before:
                    return False
        except OSError:
            return False
        return True

    @property
    def is_small(self) -> bool:
        """Return whether `still_holds` is fast enough for the event loop."""
        return len(self.stamps) + len(self.folders) <= QUICK_STAMPS

    def as_digest(self) -> Digest:
        """Return the digest without stamps."""
        counted = {for_people(stamp[0]): sha for stamp, sha in zip(self.stamps, self.hashes, strict=True) if sha}
        return Digest(self.digest, counted | self.parts)


def covers(path: str) -> bool:
    """Return whether changing the file at this path, relative to its plugin, changes the digest."""
    return path != CONFIG and NEVER.isdisjoint(path.split("/"))


def whole_budget() -> Budget:
    """Return the limits for reading a plugin."""
    return Budget(MOST_ENTRIES, MOST_BYTES, MOST_SECONDS, LARGEST_FILE)


def quick_budget() -> Budget:
    """Return the limits for reading while others wait."""
    return Budget(QUICK_ENTRIES, QUICK_BYTES, QUICK_SECONDS)


def brief_budget() -> Budget:
    """Return the limits for reading on the event loop."""
    return Budget(QUICK_STAMPS, BRIEF_BYTES, BRIEF_SECONDS)


def take(
    folder: str,
    *,
    every_file: bool,
    before: Reading | None,
    named: tuple[str, ...] = (),
    budget: Budget | None = None,
) -> Reading:
    """Take a plugin's digest; return `before` itself if no stamp has changed. Raises OSError if files are gone.

    `named` are files that always count, because a command line names them. Raises TooMuch when the budget is spent.
    """
    budget = budget or whole_budget()
    if before is not None and before.named != named:
        before = None
    if before is not None:
        budget.entries(len(before.stamps) + len(before.folders), folder)
        if before.still_holds(folder):
            return before
        budget = budget.renewed()
    folders: list[Stamp] = []
    known = dict(zip(before.stamps, before.hashes, strict=True)) if before is not None else {}
    found: list[tuple[Stamp, str]] = []
    for entry in _walk(folder, folders, budget):
        stamp = stamp_of(entry.relative, _look(entry))
        sha = known.get(stamp)
        if sha is None:
            try:
                stamp, sha = _hash(entry, stamp, budget, every_file=every_file or entry.relative in named)
            except FileNotFoundError:
                continue  # it was removed meanwhile, which its folder's stamp will show
        elif sha:
            budget.file(stamp[2], entry.folder.where(entry.name))
        found.append((stamp, sha))
    found.sort()
    total = sha256()
    for stamp, sha in found:
        if sha:
            total.update(f"{stamp[0]}\0{stamp[1] & EXECUTABLE:o}\0{sha}\n".encode("utf-8", "surrogateescape"))
    stamps, hashes = tuple(stamp for stamp, _ in found), tuple(sha for _, sha in found)
    return Reading(stamps, hashes, total.hexdigest(), tuple(folders), named)


def counted(folder: str, reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Open each counted file as it was when the digest was taken; yield its name, mode and descriptor.

    For callers that copy what was checked: the descriptor is closed after each step. For a link to a file, the target
    is opened; other links are left out. Raises Changed if a file has changed since, and OSError.
    """
    with untrusted_files.hold(folder) as held:
        for stamp, sha in zip(reading.stamps, reading.hashes, strict=True):
            if not sha or not stat.S_ISREG(stamp[1]):
                continue
            above, _, name = stamp[0].rpartition("/")
            # Folders may be links to code elsewhere, so the path is not held open: the stamp identifies what was
            # opened.
            path = os.path.join(held.path, above)
            with untrusted_files.HeldFolder(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path) as inside:
                fd = inside.open_linked(name)
            try:
                if stamp_of(stamp[0], os.fstat(fd)) != stamp:
                    raise Changed("it changed since it was checked", os.path.join(folder, stamp[0]))
                yield stamp[0], stamp[1], fd
            finally:
                os.close(fd)


def take_part(file: str, read: Callable[[str], dict[str, str]], before: Reading | None) -> Reading:
    """Take the digest of a part of a file, which `read` returns in pieces; raises OSError if the file is gone."""
    stamp = stamp_of("", os.stat(file))
    if before is not None and before.folders == (stamp,):
        return before
    pieces = read(file)
    hashes = {name: sha256(piece.encode()).hexdigest() for name, piece in sorted(pieces.items())}
    total = sha256("".join(f"{name}\0{sha}\n" for name, sha in hashes.items()).encode()).hexdigest()
    return Reading((), (), total, (stamp,), (), hashes)


def _walk(root: str, folders: list[Stamp], budget: Budget) -> Iterator[Entry]:
    """Yield everything in `root` except folders, and stamp every folder on the way.

    Paths of folders begin with a slash, or are empty. A link to a folder elsewhere is followed once, because code there
    runs as well. A link to a parent of the plugin counts only by its target path.
    """
    linked: set[str] = set()
    left = [("", root)]  # its path in the plugin, and its real path
    while left:
        top, real_top = left.pop()

        def enter(name: str, top: str = top) -> bool:
            return name.rpartition("/")[2] not in NEVER and (bool(top) or name != CONFIG)

        with untrusted_files.hold(real_top) as held:
            for entry in held.walk(budget, enter):
                below = f"{top}/{entry.relative}" if top else entry.relative
                if entry.is_folder:
                    folders.append(stamp_of(f"/{below}".rstrip("/"), entry.found))
                    continue
                yield Entry(below, entry.folder, entry.found)
                if entry.is_link and (real := _elsewhere(entry.folder.where(entry.name), root)) and real not in linked:
                    linked.add(real)
                    left.append((below, real))


def _elsewhere(link: str, root: str) -> str:
    """Return the folder outside `root` that a link leads to; empty if there is none, or if it contains `root`."""
    real = os.path.realpath(link)
    around_or_inside = f"{real}/".startswith(f"{root}/") or f"{root}/".startswith(f"{real.rstrip('/')}/")
    return real if os.path.isdir(real) and not around_or_inside else ""


def stamp_of(path: str, found: os.stat_result) -> Stamp:
    """Return a file's stamp under a name for its path. Whatever changes the file changes the stamp."""
    return (path, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _look(entry: Entry) -> os.stat_result:
    """Return the status of a file, following a link to a file."""
    return (_behind(entry) or entry.found) if entry.is_link else entry.found


def _look_at(path: str) -> os.stat_result:
    """Do the same for a path."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        try:
            behind = os.stat(path)
        except OSError:
            return found
        return behind if stat.S_ISREG(behind.st_mode) else found
    return found


def _behind(link: Entry) -> os.stat_result | None:
    """Return the status of a link's target; None if there is none."""
    try:
        found = os.stat(link.name, dir_fd=link.folder.fd)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _hash(entry: Entry, stamp: Stamp, budget: Budget, *, every_file: bool) -> tuple[Stamp, str]:
    """Hash one file, or return an empty hash if it does not count; with the stamp of what was actually read."""
    relative, path = stamp[0], entry.folder.where(entry.name)
    link = os.readlink(entry.name, dir_fd=entry.folder.fd) if entry.is_link else ""
    if not stat.S_ISREG(stamp[1]):
        kind = f"{stat.S_IFMT(stamp[1]):o} {link}"
        return stamp, sha256(kind.encode("utf-8", "surrogateescape")).hexdigest()
    total = sha256(link.encode("utf-8", "surrogateescape"), more=stamp[2])
    try:
        fd = entry.folder.open_linked(entry.name) if link else entry.folder.open(entry.name)
    except PermissionError:
        return stamp, total.hexdigest()  # the plugin cannot read it either; its stamp still counts
    try:
        found = os.fstat(fd)
        stamp = stamp_of(relative, found)
        if not every_file and not _counts(relative, found.st_mode, os.pread(fd, HEAD, 0)):
            return stamp, ""
        for at, chunk in enumerate(untrusted_files.chunks(fd, path, budget)):
            total.update(chunk if at else as_hashed(relative, chunk))
    finally:
        os.close(fd)
    return stamp, total.hexdigest()


def as_hashed(relative: str, first: bytes) -> bytes:
    """Return what is hashed of a file's first chunk: all of it except for the switch in a manifest."""
    return _without_switch(first) if relative == SWITCHED else first


def _without_switch(manifest: bytes) -> bytes:
    """Return a manifest without its switch, normalised so that having none makes no difference."""
    try:
        value = msgspec.json.decode(manifest)
        if isinstance(value, dict):
            value.pop("enabled", None)
            return msgspec.json.encode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # not a manifest, so it counts as it is
    return manifest


def is_data(relative: str, path: str) -> bool:
    """Return whether a file is readable and can neither run nor decide what runs."""
    try:
        with untrusted_files.hold(os.path.dirname(path)) as held:
            return is_data_in(held, os.path.basename(path), relative)
    except OSError:
        return False


def is_data_in(held: HeldFolder, name: str, relative: str) -> bool:
    """Return whether a file in a held folder is data; `relative` is its path in the plugin."""
    try:
        fd = held.open(name)
    except OSError:
        return False
    try:
        return not _counts(relative, os.fstat(fd).st_mode, os.pread(fd, HEAD, 0))
    finally:
        os.close(fd)


def _counts(relative: str, mode: int, head: bytes) -> bool:
    """Return whether a file can run, or decides what runs."""
    name = os.path.basename(relative)
    return bool(
        mode & EXECUTABLE
        or name in MANIFESTS
        or name in LOCKS
        or os.path.splitext(name)[1].lower() in CODE_SUFFIXES
        or "node_modules/" in relative
        or head.startswith((b"#!", b"\x7fELF"))
    )
