"""Writes a plugin as a bundle that other programs install: its files, and a manifest that starts our host for it alone.

    mcpb            NAME-VERSION.mcpb, a zip: manifest.json, plugin/FOLDER/...
    claude-plugin   a folder: .claude-plugin/plugin.json, .mcp.json, plugin/FOLDER/...
    agent-plugin    a folder: plugin.json, mcp.json, plugin/FOLDER/...

The same plugin gives the same bytes each time. It keeps its folder's name, from which some formats take its own.
Decides nothing about trust, and runs nothing.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from anyplug.home import digest, untrusted_files
from anyplug.model import permissions
from anyplug.model.errors import ExportError
from anyplug.model.types import Plugin

Kind = Literal["mcpb", "agent-plugin", "claude-plugin"]
KINDS: tuple[Kind, ...] = ("mcpb", "agent-plugin", "claude-plugin")

MANIFEST_VERSION = "0.3"  # of MCPB: the newest that is published as a document; 0.4 adds only another kind of server
SCHEMAS = "https://agent-plugins.org/schemas/1.0.0"
INSIDE = "plugin"  # the folder of a bundle that holds the plugin's own
ROOTS: dict[Kind, str] = {
    "mcpb": "${__dirname}",
    "agent-plugin": "${PLUGIN_ROOT}",
    "claude-plugin": "${CLAUDE_PLUGIN_ROOT}",
}
LONGEST_NAME = 64  # characters, as Agent Plugins has it
MOST_FILES = 20_000
LARGEST = 256 << 20  # bytes of all files; clients read a bundle into memory
MOMENT = (1980, 1, 1, 0, 0, 0)  # of every file in a zip, which knows no earlier one
PLAIN, PROGRAM = 0o644, 0o755
COMPRESSION = 9

# Left out at any depth: history, what can be made again, and what people keep secrets in.
NEVER = digest.NEVER | {".hg", ".svn", ".DS_Store", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
PRIVATE = re.compile(r"\.env(?:\.(?!example$|sample$|template$).*)?|\.netrc|\.npmrc|\.pypirc|id_[a-z0-9]+|.*\.key")
_SEMVER = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?((?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")
_REFERENCE = re.compile(rb"\$\{[A-Za-z_][\w.:]*\}")  # it names a secret, and is none; one with a default may be
_HASH_SHOWN = 12  # characters of a digest that stand for a version where a plugin has none


class File(msgspec.Struct, frozen=True):
    """A file of a bundle: from the plugin, as it was when it was looked at, or written for it."""

    data: bytes = b""
    mode: int = PLAIN


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """All that goes into a bundle."""

    kind: Kind
    name: str
    version: str
    files: dict[str, File]  # by path, sorted
    left_out: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """How it is called where nobody says otherwise."""
        return f"{self.name}-{self.version}.mcpb" if self.kind == "mcpb" else f"{self.name}-{self.kind}"


def bundle(
    plugin: Plugin,
    tools: dict[str, str],
    kind: Kind,
    *,
    digest_value: str,
    author: str = "",
    hide: Callable[[bytes], bytes] = lambda data: data,
) -> Bundle:
    """Collect what a bundle holds; raises ExportError.

    `tools` are the names that agents see, each with its description. `hide` says what is secret, by taking it out.
    """
    if plugin.is_file or not os.path.isdir(plugin.path):
        raise ExportError(f"'{plugin.name}' is not a folder: there is nothing to bundle", "make a folder for it first")
    if plugin.is_broken:
        raise ExportError(f"'{plugin.name}' is broken", f"`anyplug check {plugin.path}` says what is wrong")
    folder = os.path.basename(plugin.found_at or plugin.path)
    own, left_out = _collect(plugin, f"{INSIDE}/{folder}", hide)
    name, version = bundle_name(plugin.name, kind), bundle_version(plugin.version, digest_value)
    about = {
        "name": name,
        "version": version,
        "description": plugin.description or f"The tools of the plugin {plugin.name}.",
    }
    place = f"{ROOTS[kind]}/{INSIDE}/{folder}"
    arguments = ["--no-discover", "--plugin", place, "mcp"]
    if kind == "mcpb":
        manifests = {"manifest.json": _mcpb(plugin, tools, about, arguments, author)}
    else:
        by = {"author": {"name": author}} if author else {}
        server = {"type": "stdio", "command": "anyplug", "args": arguments}
        if kind == "claude-plugin":
            manifests = {".claude-plugin/plugin.json": about | by, ".mcp.json": {"mcpServers": {name: server}}}
        else:
            manifests = {
                "plugin.json": {"$schema": f"{SCHEMAS}/plugin.schema.json", **about, **by},
                "mcp.json": {"$schema": f"{SCHEMAS}/mcp.schema.json", "mcpServers": {name: server}},
            }
    written = {path: File(data=_json(value)) for path, value in manifests.items()}
    files = dict(sorted((written | own).items()))
    return Bundle(kind=kind, name=name, version=version, files=files, left_out=tuple(left_out))


def write(made: Bundle, path: str) -> None:
    """Write a bundle in one step: a file if the path ends in .zip or .mcpb, else a folder. Raises ExportError."""
    path = os.path.abspath(path)
    if os.path.lexists(path):
        raise ExportError(f"{path} exists already", "remove it first, or choose another place with --output")
    if made.kind == "mcpb" and not is_archive(path):
        raise ExportError(f"{path} does not end in .mcpb", "a bundle of this kind is one file: name it like NAME.mcpb")
    new = f"{path}.{os.urandom(6).hex()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            if is_archive(path):
                _write_archive(made, new)
            else:
                _write_folder(made, new)
            os.rename(new, path)
        except BaseException:
            _forget(new)
            raise
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}", "mend that, then try again") from error


def is_archive(path: str) -> bool:
    """Whether a bundle at this path is one file."""
    return path.endswith((".zip", ".mcpb"))


def bundle_name(name: str, kind: Kind) -> str:
    """Make a name that the format allows: small letters, digits, single hyphens, in Agent Plugins also single dots."""
    allowed = "a-z0-9." if kind == "agent-plugin" else "a-z0-9"
    plain = re.sub(rf"[^{allowed}]+", "-", name.lower())
    plain = re.sub(r"\.{2,}", ".", plain)[:LONGEST_NAME].strip("-.")
    return plain or "plugin"


def bundle_version(version: str, digest_value: str) -> str:
    """Make a version that every format allows; one that is none becomes zero, told apart by the digest."""
    found = _SEMVER.fullmatch(version.strip().removeprefix("v"))
    if found is None:
        return f"0.0.0+{digest_value[:_HASH_SHOWN]}" if digest_value else "0.0.0"
    major, minor, patch, rest = found.groups()
    return f"{int(major)}.{int(minor or 0)}.{int(patch or 0)}{rest}"


def _mcpb(
    plugin: Plugin, tools: dict[str, str], about: dict[str, str], arguments: list[str], author: str
) -> dict[str, Any]:
    variables = sorted(permissions.environment_names(plugin.permissions))
    asked = {
        name: {
            "type": "string",
            "title": name,
            "description": f"The value of {name}, which the plugin asks for.",
            "required": False,
            "default": "",
            "sensitive": True,
        }
        for name in variables
    }
    environment = {name: f"${{user_config.{name}}}" for name in variables}
    return {
        "manifest_version": MANIFEST_VERSION,
        **about,
        "display_name": plugin.name,
        "author": {"name": author or "unknown"},
        "server": {
            "type": "binary",
            "entry_point": INSIDE,
            "mcp_config": {"command": "anyplug", "args": arguments, **({"env": environment} if environment else {})},
        },
        "tools": [{"name": name, "description": description} for name, description in tools.items()],
        "tools_generated": plugin.stays_up,
        "compatibility": {"platforms": ["darwin", "linux"]},
        **({"user_config": asked} if asked else {}),
        "_meta": {"anyplug": {"format": plugin.format}},
    }


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _collect(plugin: Plugin, inside: str, hide: Callable[[bytes], bytes]) -> tuple[dict[str, File], list[str]]:
    """Find the plugin's files; raises ExportError if one holds a secret or leads out, or if there are too many."""
    files: dict[str, File] = {}
    left_out: list[str] = []
    size = 0
    try:
        for relative, path in _walk(plugin.path, "", plugin.path, left_out):
            found = os.stat(path)
            size += found.st_size
            if len(files) >= MOST_FILES or size > LARGEST:
                raise ExportError(
                    f"'{plugin.name}' has more than {MOST_FILES:,} files or {LARGEST >> 20} MiB",
                    "take out what it does not need to run",
                )
            content = untrusted_files.read_inside(plugin.path, path, LARGEST)
            file = File(content, PROGRAM if found.st_mode & digest.EXECUTABLE else PLAIN)
            data = _REFERENCE.sub(b"", content)
            if hide(data) != data:
                raise ExportError(
                    f"{relative} holds a secret of '{plugin.name}'",
                    f"take it out of the file, and give it with `anyplug secret {plugin.name}` or a variable",
                )
            files[f"{inside}/{relative}"] = file
    except OSError as error:
        raise ExportError(f"cannot read {error.filename}: {error.strerror}", "mend that, then try again") from error
    return files, sorted(left_out)


def _sorted(entries: Iterable[os.DirEntry[str]], below: str) -> list[os.DirEntry[str]]:
    """Sort the entries of a folder; raises ExportError if it lies deeper than anything should."""
    if below.count("/") > untrusted_files.MOST_DEPTH:
        why = f"there are more than {untrusted_files.MOST_DEPTH} folders inside one another"
        raise ExportError(why, "take them out of the plugin's folder")
    return sorted(entries, key=lambda entry: entry.name)


def _walk(root: str, below: str, folder: str, left_out: list[str]) -> Iterator[tuple[str, str]]:
    """Return the files below a folder. Links inside the plugin are followed: not every archive can hold links."""
    with os.scandir(folder) as entries:
        for entry in _sorted(entries, below):
            relative = f"{below}{entry.name}"
            if entry.is_symlink():
                if below.endswith("node_modules/.bin/"):
                    continue  # for people who develop it; what runs does not look there
                real = os.path.realpath(entry.path)
                if not f"{real}/".startswith(f"{os.path.realpath(root)}/"):
                    raise ExportError(
                        f"{relative} is a link out of the plugin's folder, to {real}", "put a copy in its place"
                    )
                if f"{os.path.realpath(folder)}/".startswith(f"{real}/"):
                    left_out.append(relative)  # it leads to a folder around itself
                    continue
            if entry.name in NEVER:
                continue
            if relative == digest.CONFIG or PRIVATE.fullmatch(entry.name):
                left_out.append(relative)
            elif entry.is_dir():
                yield from _walk(root, f"{relative}/", entry.path, left_out)
            elif entry.is_file() and stat.S_ISREG(entry.stat().st_mode):
                yield relative, entry.path
            else:
                left_out.append(relative)


def _forget(path: str) -> None:
    """Delete what was written of a bundle that failed."""
    if os.path.isdir(path):
        untrusted_files.remove(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _write_archive(made: Bundle, path: str) -> None:
    import zipfile  # 9 ms, and only for archives

    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION) as archive:
        for name, file in made.files.items():
            about = zipfile.ZipInfo(name, MOMENT)
            about.create_system = 3  # Unix, whose modes follow
            about.external_attr = (stat.S_IFREG | file.mode) << 16
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, file.data, compresslevel=COMPRESSION)


def _write_folder(made: Bundle, path: str) -> None:
    for name, file in made.files.items():
        target = os.path.join(path, *name.split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode), "wb") as new:
            new.write(file.data)
