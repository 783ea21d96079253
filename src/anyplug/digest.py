"""The digest of what runs: which files of a plugin count, and their hash, with a cache that trusts only stamps.

A stamp is a file's size, times and inode. Before each call the stamps are taken again; only what has another
stamp is read again.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator

import msgspec

NEVER = frozenset({".git", "__pycache__"})
CONFIG = "config.json"  # at the top: the person's values, which tools rewrite
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
CHUNK = 1 << 20
# A plugin with a link to the whole disk, or one that fills its own folder, is not read to its end.
MOST_FOLDERS = 50_000
MOST_FILES = 200_000

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
                if _stamp(before[0], _look(f"{root}/{before[0]}")) != before:
                    return False
        except OSError:
            return False
        return True

    def as_digest(self) -> Digest:
        """Give the digest itself."""
        counted = {printable(stamp[0]): sha for stamp, sha in zip(self.stamps, self.hashes, strict=True) if sha}
        return Digest(self.digest, counted | self.parts)


def covers(path: str) -> bool:
    """Whether a change of the file at this path, relative to its plugin, is another digest."""
    return path != CONFIG and NEVER.isdisjoint(path.split("/"))


def printable(path: str) -> str:
    """Write a file's name so that it can be shown and stored, whatever bytes it has."""
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()


def take(folder: str, *, every_file: bool, before: Reading | None, named: tuple[str, ...] = ()) -> Reading:
    """Take a plugin's digest; gives `before` itself if no stamp is another. Raises OSError if files are gone.

    `named` are files that count whatever they look like, because a command line names them.
    """
    if before is not None and before.named != named:
        before = None
    if before is not None and before.still_holds(folder):
        return before
    folders: list[Stamp] = []
    stamps = tuple(sorted(_stamps(folder, folders)))
    known = dict(zip(before.stamps, before.hashes, strict=True)) if before is not None else {}
    hashes = tuple(
        known[stamp] if stamp in known else _hash(folder, stamp, every_file=every_file or stamp[0] in named)
        for stamp in stamps
    )
    total = hashlib.sha256()
    for stamp, sha in zip(stamps, hashes, strict=True):
        if sha:
            total.update(f"{stamp[0]}\0{stamp[1] & EXECUTABLE:o}\0{sha}\n".encode("utf-8", "surrogateescape"))
    return Reading(stamps, hashes, total.hexdigest(), tuple(folders), named)


def take_part(file: str, read: Callable[[str], dict[str, str]], before: Reading | None) -> Reading:
    """Take the digest of a part of a file, which `read` gives piece by piece; raises OSError if the file is gone."""
    stamp = _stamp("", os.stat(file))
    if before is not None and before.folders == (stamp,):
        return before
    pieces = read(file)
    hashes = {name: hashlib.sha256(piece.encode()).hexdigest() for name, piece in sorted(pieces.items())}
    total = hashlib.sha256("".join(f"{name}\0{sha}\n" for name, sha in hashes.items()).encode()).hexdigest()
    return Reading((), (), total, (stamp,), (), hashes)


def _stamps(root: str, folders: list[Stamp]) -> Iterator[Stamp]:
    """Stamp all that lies in `root`, and every folder on the way. Paths below it begin with a slash, or are empty.

    A link to a folder elsewhere is followed, once: code that lies there runs as well. One to a folder around
    the plugin counts only by where it leads.
    """
    linked: set[str] = set()
    left = [""]  # not by calling ourselves: a plugin could make folders in one another until we give up
    files = 0
    while left:
        below = left.pop()
        here = root + below
        folders.append(_stamp(below, os.stat(here)))
        if len(folders) > MOST_FOLDERS:
            raise OSError(errno.EMLINK, f"more than {MOST_FOLDERS:,} folders belong to the plugin", here)
        with os.scandir(here) as entries:
            for entry in entries:
                name = entry.name
                if name in NEVER or (not below and name == CONFIG):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    left.append(f"{below}/{name}")
                    continue
                files += 1
                if files > MOST_FILES:
                    raise OSError(errno.EMLINK, f"more than {MOST_FILES:,} files belong to the plugin", here)
                yield _stamp(f"{below[1:]}/{name}" if below else name, _look(entry.path))
                if entry.is_symlink() and (real := _elsewhere(entry.path, root)) and real not in linked:
                    linked.add(real)
                    left.append(f"{below}/{name}")


def _elsewhere(link: str, root: str) -> str:
    """Give the folder outside `root` that a link leads to; empty if it leads to none, or to one that holds `root`."""
    real = os.path.realpath(link)
    around_or_inside = f"{real}/".startswith(f"{root}/") or f"{root}/".startswith(f"{real.rstrip('/')}/")
    return real if os.path.isdir(real) and not around_or_inside else ""


def _stamp(path: str, found: os.stat_result) -> Stamp:
    return (path, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _look(path: str) -> os.stat_result:
    """Look at a file; at the one behind it if it is a link to a file."""
    found = os.lstat(path)
    return (_behind(path) or found) if stat.S_ISLNK(found.st_mode) else found


def _behind(link: str) -> os.stat_result | None:
    """Look at the file behind a link; None if there is none."""
    try:
        found = os.stat(link)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _hash(folder: str, stamp: Stamp, *, every_file: bool) -> str:
    """Hash one file, or give an empty string if it does not count."""
    relative, mode = stamp[0], stamp[1]
    path = os.path.join(folder, relative)
    link = os.readlink(path) if os.path.islink(path) else ""
    if not stat.S_ISREG(mode):
        return hashlib.sha256(f"{stat.S_IFMT(mode):o} {link}".encode("utf-8", "surrogateescape")).hexdigest()
    total = hashlib.sha256(link.encode("utf-8", "surrogateescape"))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError:
        return total.hexdigest()  # what we may not read, the plugin may not read either; its stamp still counts
    with os.fdopen(fd, "rb") as file:
        chunk = file.read(CHUNK)
        if not every_file and not _counts(relative, mode, chunk):
            return ""
        chunk = as_hashed(relative, chunk)
        while chunk:
            total.update(chunk)
            chunk = file.read(CHUNK)
    return total.hexdigest()


def as_hashed(relative: str, first: bytes) -> bytes:
    """Return what is hashed of the first chunk of a file: all of it but the switch in a manifest."""
    return _without_switch(first) if relative == SWITCHED else first


def _without_switch(manifest: bytes) -> bytes:
    """Give a manifest as it would be without its switch, the same whether it has one or not."""
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
        # A stranger made it: what waits for a writer, or leads elsewhere, is none.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            return stat.S_ISREG(mode) and not _counts(relative, mode, file.read(HEAD))
    except OSError:
        return False


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
