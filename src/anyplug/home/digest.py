"""The digest of what runs: which files of a plugin count, and their hash, with a cache that trusts only stamps.

A stamp is a file's size, times and inode. Before each call the stamps are taken again; only what has another
stamp is read again.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.untrusted_files import Budget, Changed, Entry, HeldFolder
from anyplug.model.untrusted_text import for_people

NEVER = frozenset({".git", "__pycache__"})
CONFIG = "config.json"  # at the top: the person's values, which tools rewrite
# The formats are not asked for these names. They count in plugins of every format, also where snapshots are checked
# without knowing the format, and a name that came or went would change digests that people have approved.
# tests/formats/test_contract.py compares them with the formats; formats of other packages use `named_files`.
SWITCHED = "extension.json"  # its key `enabled` is a switch, and no part of what runs
MANIFESTS = frozenset({"manifest.json", "plugin.json", "extension.json", "mcp.json", "package.json"})
LOCKS = frozenset(
    {"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "uv.lock", "poetry.lock",
     "pyproject.toml", "requirements.txt", "Cargo.lock", "go.sum", "Gemfile.lock"}
)  # fmt: skip
HEAD = 4  # bytes that tell a program by how it begins
CODE_SUFFIXES = frozenset(
    {".py", ".pyc", ".pyd", ".pyz", ".pth", ".whl", ".egg", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx",
     ".tsx", ".node", ".wasm", ".sh", ".bash", ".zsh", ".fish", ".rb", ".pl", ".pm", ".lua", ".php", ".r", ".jl",
     ".go", ".rs", ".c", ".swift", ".so", ".dylib", ".dll", ".exe", ".jar", ".class", ".jq", ".awk", ".sed", ".rego"}
)  # fmt: skip
EXECUTABLE = 0o111
LARGEST_SWITCHED = untrusted_files.CHUNK  # bytes; read at once
# A plugin with a link to the whole disk, or one that fills its own folder, is not read to its end.
MOST_ENTRIES = 120_000  # files and folders; a large node_modules has about 60,000
LARGEST_FILE = 512 << 20  # bytes of one file that counts; browsers and model runtimes bundle libraries of 200 MiB
MOST_BYTES = 2 << 30  # of all files that count
MOST_SECONDS = 300.0  # a busy machine hashes 50 MiB a second
# What may be looked at on the event loop, where others wait, and in a thread while others wait for a lock.
QUICK_STAMPS = 400  # about a millisecond
BRIEF_BYTES = 4 << 20
BRIEF_SECONDS = 0.2
QUICK_ENTRIES = 4_000
QUICK_BYTES = 64 << 20
QUICK_SECONDS = 2.0

Stamp = tuple[str, int, int, int, int, int]  # path, mode, size, mtime, ctime, inode


class Digest(msgspec.Struct, frozen=True):
    """The hash over all that counts, and each file's own, to say later what changed."""

    value: str
    files: dict[str, str]


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """A digest with the stamps under which it was taken; `hashes` has an empty one for files that do not count."""

    stamps: tuple[Stamp, ...]
    hashes: tuple[str, ...]
    digest: str
    folders: tuple[Stamp, ...]
    named: tuple[str, ...] = ()  # files that counted because they were named
    parts: dict[str, str] = {}  # of a plugin that is a part of a file: what counts of it, each with its hash

    def still_holds(self, root: str) -> bool:
        """Whether every stamp is as it was. A file that comes, goes or is replaced stamps its folder."""
        try:
            for before in self.folders:
                if _stamp(before[0], os.stat(root + before[0])) != before:
                    return False
            for before in self.stamps:
                if _stamp(before[0], _look_at(f"{root}/{before[0]}")) != before:
                    return False
        except OSError:
            return False
        return True

    @property
    def is_small(self) -> bool:
        """Whether `still_holds` takes no longer than others can wait for it."""
        return len(self.stamps) + len(self.folders) <= QUICK_STAMPS

    def as_digest(self) -> Digest:
        """Return the digest itself."""
        counted = {for_people(stamp[0]): sha for stamp, sha in zip(self.stamps, self.hashes, strict=True) if sha}
        return Digest(self.digest, counted | self.parts)


def covers(path: str) -> bool:
    """Whether a change of the file at this path, relative to its plugin, is another digest."""
    return path != CONFIG and NEVER.isdisjoint(path.split("/"))


def whole_budget() -> Budget:
    """Return what a plugin may take at most to be read."""
    return Budget(MOST_ENTRIES, MOST_BYTES, MOST_SECONDS, LARGEST_FILE)


def quick_budget() -> Budget:
    """Return what it may take while others wait for it."""
    return Budget(QUICK_ENTRIES, QUICK_BYTES, QUICK_SECONDS)


def brief_budget() -> Budget:
    """Return what it may take on the event loop."""
    return Budget(QUICK_STAMPS, BRIEF_BYTES, BRIEF_SECONDS)


def take(
    folder: str,
    *,
    every_file: bool,
    before: Reading | None,
    named: tuple[str, ...] = (),
    budget: Budget | None = None,
) -> Reading:
    """Take a plugin's digest; returns `before` itself if no stamp is another. Raises OSError if files are gone.

    `named` are files that count whatever they look like, because a command line names them. What takes more than the
    budget raises TooMuch.
    """
    budget = budget or whole_budget()
    if before is not None and before.named != named:
        before = None
    if before is not None:
        budget.entries(len(before.stamps) + len(before.folders), folder)
        if before.still_holds(folder):
            return before
        budget = budget.anew()
    folders: list[Stamp] = []
    known = dict(zip(before.stamps, before.hashes, strict=True)) if before is not None else {}
    found: list[tuple[Stamp, str]] = []
    for entry in _walk(folder, folders, budget):
        stamp = _stamp(entry.relative, _look(entry))
        sha = known.get(stamp)
        if sha is None:
            try:
                stamp, sha = _hash(entry, stamp, budget, every_file=every_file or entry.relative in named)
            except FileNotFoundError:
                continue  # it went away meanwhile, which its folder's stamp will say
        elif sha:
            budget.file(stamp[2], entry.folder.where(entry.name))
        found.append((stamp, sha))
    found.sort()
    total = hashlib.sha256()
    for stamp, sha in found:
        if sha:
            total.update(f"{stamp[0]}\0{stamp[1] & EXECUTABLE:o}\0{sha}\n".encode("utf-8", "surrogateescape"))
    stamps, hashes = tuple(stamp for stamp, _ in found), tuple(sha for _, sha in found)
    return Reading(stamps, hashes, total.hexdigest(), tuple(folders), named)


def counted(folder: str, reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Open each file that counted, as it was when the digest was taken: its name, its mode, and a descriptor.

    For who copies what was checked: the descriptor is closed after each step. A file behind a link is opened, links to
    anything else are left out. Raises Changed if a file is another by now, and OSError.
    """
    with untrusted_files.hold(folder) as held:
        for stamp, sha in zip(reading.stamps, reading.hashes, strict=True):
            if not sha or not stat.S_ISREG(stamp[1]):
                continue
            above, _, name = stamp[0].rpartition("/")
            # Folders may be links to code elsewhere, so the way there is not held: the stamp says what was opened.
            path = os.path.join(held.path, above)
            with untrusted_files.HeldFolder(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path) as inside:
                fd = inside.open_linked(name)
            try:
                if _stamp(stamp[0], os.fstat(fd)) != stamp:
                    raise Changed("it changed since it was checked", os.path.join(folder, stamp[0]))
                yield stamp[0], stamp[1], fd
            finally:
                os.close(fd)


def take_part(file: str, read: Callable[[str], dict[str, str]], before: Reading | None) -> Reading:
    """Take the digest of a part of a file, which `read` gives piece by piece; raises OSError if the file is gone."""
    stamp = _stamp("", os.stat(file))
    if before is not None and before.folders == (stamp,):
        return before
    pieces = read(file)
    hashes = {name: hashlib.sha256(piece.encode()).hexdigest() for name, piece in sorted(pieces.items())}
    total = hashlib.sha256("".join(f"{name}\0{sha}\n" for name, sha in hashes.items()).encode()).hexdigest()
    return Reading((), (), total, (stamp,), (), hashes)


def _walk(root: str, folders: list[Stamp], budget: Budget) -> Iterator[Entry]:
    """Yield all that lies in `root` and is no folder, and stamp every folder on the way.

    Paths of folders begin with a slash, or are empty. A link to a folder elsewhere is followed, once: code that lies
    there runs as well. One to a folder around the plugin counts only by where it leads.
    """
    linked: set[str] = set()
    left = [("", root)]  # where it is in the plugin, and where it really is
    while left:
        top, real_top = left.pop()

        def enter(name: str, top: str = top) -> bool:
            return name.rpartition("/")[2] not in NEVER and (bool(top) or name != CONFIG)

        with untrusted_files.hold(real_top) as held:
            for entry in held.walk(budget, enter):
                below = f"{top}/{entry.relative}" if top else entry.relative
                if entry.is_folder:
                    folders.append(_stamp(f"/{below}".rstrip("/"), entry.found))
                    continue
                yield Entry(below, entry.folder, entry.found)
                if entry.is_link and (real := _elsewhere(entry.folder.where(entry.name), root)) and real not in linked:
                    linked.add(real)
                    left.append((below, real))


def _elsewhere(link: str, root: str) -> str:
    """Return the folder outside `root` that a link leads to; empty if it leads to none, or to one that holds `root`."""
    real = os.path.realpath(link)
    around_or_inside = f"{real}/".startswith(f"{root}/") or f"{root}/".startswith(f"{real.rstrip('/')}/")
    return real if os.path.isdir(real) and not around_or_inside else ""


def _stamp(path: str, found: os.stat_result) -> Stamp:
    return (path, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _look(entry: Entry) -> os.stat_result:
    """Look at a file; at the one behind it if it is a link to a file."""
    return (_behind(entry) or entry.found) if entry.is_link else entry.found


def _look_at(path: str) -> os.stat_result:
    """Do the same by its path."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        try:
            behind = os.stat(path)
        except OSError:
            return found
        return behind if stat.S_ISREG(behind.st_mode) else found
    return found


def _behind(link: Entry) -> os.stat_result | None:
    """Look at the file behind a link; None if there is none."""
    try:
        found = os.stat(link.name, dir_fd=link.folder.fd)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _hash(entry: Entry, stamp: Stamp, budget: Budget, *, every_file: bool) -> tuple[Stamp, str]:
    """Hash one file, or return an empty string if it does not count; with the stamp of what was really read."""
    relative, path = stamp[0], entry.folder.where(entry.name)
    link = os.readlink(entry.name, dir_fd=entry.folder.fd) if entry.is_link else ""
    if not stat.S_ISREG(stamp[1]):
        kind = f"{stat.S_IFMT(stamp[1]):o} {link}"
        return stamp, hashlib.sha256(kind.encode("utf-8", "surrogateescape")).hexdigest()
    total = hashlib.sha256(link.encode("utf-8", "surrogateescape"))
    try:
        fd = entry.folder.open_linked(entry.name) if link else entry.folder.open(entry.name)
    except PermissionError:
        return stamp, total.hexdigest()  # what we may not read, the plugin may not read either; its stamp still counts
    try:
        found = os.fstat(fd)
        stamp = _stamp(relative, found)
        if not every_file and not _counts(relative, found.st_mode, os.pread(fd, HEAD, 0)):
            return stamp, ""
        for at, chunk in enumerate(untrusted_files.chunks(fd, path, budget)):
            total.update(chunk if at else as_hashed(relative, chunk))
    finally:
        os.close(fd)
    return stamp, total.hexdigest()


def as_hashed(relative: str, first: bytes) -> bytes:
    """Return what is hashed of the first chunk of a file: all of it but the switch in a manifest."""
    return _without_switch(first) if relative == SWITCHED else first


def _without_switch(manifest: bytes) -> bytes:
    """Return a manifest as it would be without its switch, the same whether it has one or not."""
    try:
        value = msgspec.json.decode(manifest)
        if isinstance(value, dict):
            value.pop("enabled", None)
            return msgspec.json.encode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # it is no manifest, and counts as it is
    return manifest


def is_data(relative: str, path: str) -> bool:
    """Whether it is a file that we can read, and that can neither run nor decides what runs."""
    try:
        with untrusted_files.hold(os.path.dirname(path)) as held:
            return is_data_in(held, os.path.basename(path), relative)
    except OSError:
        return False


def is_data_in(held: HeldFolder, name: str, relative: str) -> bool:
    """Whether a file of a folder that is held is data; `relative` is what the plugin calls it."""
    try:
        fd = held.open(name)
    except OSError:
        return False
    try:
        return not _counts(relative, os.fstat(fd).st_mode, os.pread(fd, HEAD, 0))
    finally:
        os.close(fd)


def _counts(relative: str, mode: int, head: bytes) -> bool:
    """Whether a file can run, or decides what runs."""
    name = os.path.basename(relative)
    return bool(
        mode & EXECUTABLE
        or name in MANIFESTS
        or name in LOCKS
        or os.path.splitext(name)[1].lower() in CODE_SUFFIXES
        or "node_modules/" in relative
        or head.startswith((b"#!", b"\x7fELF"))
    )
