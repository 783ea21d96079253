"""Export a plugin as a bundle for other programs: its files, and a manifest that starts our host for it alone.

    mcpb            NAME-VERSION.mcpb, a zip: manifest.json, plugin/FOLDER/...
    claude-plugin   a folder: .claude-plugin/plugin.json, .mcp.json, plugin/FOLDER/...
    agent-plugin    a folder: plugin.json, mcp.json, plugin/FOLDER/...

The same plugin always results in the same bytes. The folder keeps its name, because some formats use it as the plugin's
name. Decides nothing about trust, and runs nothing.
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

MANIFEST_VERSION = "0.3"  # of MCPB: the newest published one; 0.4 only adds another kind of server
SCHEMAS = "https://agent-plugins.org/schemas/1.0.0"
INSIDE = "plugin"  # the folder of a bundle that contains the plugin
ROOTS: dict[Kind, str] = {
    "mcpb": "${__dirname}",
    "agent-plugin": "${PLUGIN_ROOT}",
    "claude-plugin": "${CLAUDE_PLUGIN_ROOT}",
}
LONGEST_NAME = 64  # characters, as in Agent Plugins
MOST_FILES = 20_000
LARGEST = 256 << 20  # bytes of all files; clients read a bundle into memory
MOMENT = (1980, 1, 1, 0, 0, 0)  # of every file in a zip, the earliest possible time
PLAIN, PROGRAM = 0o644, 0o755
COMPRESSION = 9

# Left out at any depth: history, what can be recreated, and what people keep secrets in.
NEVER = digest.NEVER | {".hg", ".svn", ".DS_Store", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
PRIVATE = re.compile(r"\.env(?:\.(?!example$|sample$|template$).*)?|\.netrc|\.npmrc|\.pypirc|id_[a-z0-9]+|.*\.key")
_SEMVER = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?((?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")
_REFERENCE = re.compile(rb"\$\{[A-Za-z_][\w.:]*\}")  # names a secret and is not one itself; with a default it may be
_HASH_SHOWN = 12  # characters of a digest that stand for a version if a plugin has none


class File(msgspec.Struct, frozen=True):
    """A file of a bundle: from the plugin, as it was when checked, or generated."""

    data: bytes = b""
    mode: int = PLAIN


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a bundle."""

    kind: Kind
    name: str
    version: str
    files: dict[str, File]  # by path, sorted
    left_out: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The default file name."""
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
    """Collect the contents of a bundle; raises ExportError.

    `tools` are the names that agents see, each with its description. `hide` removes secrets, and so finds them.
    """
    if plugin.is_file or not os.path.isdir(plugin.path):
        raise ExportError(
            f"'{plugin.name}' is not a folder, so it cannot be bundled", ("create a plugin folder for it first")
        )
    if plugin.is_broken:
        raise ExportError(f"'{plugin.name}' is broken", f"`anyplug check {plugin.path}` shows what is wrong")
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
    """Write a bundle atomically: a file if the path ends in .zip or .mcpb, else a folder. Raises ExportError."""
    path = os.path.abspath(path)
    if os.path.lexists(path):
        raise ExportError(f"{path} already exists", "remove it first, or choose another path with --output")
    if made.kind == "mcpb" and not is_archive(path):
        raise ExportError(f"{path} does not end in .mcpb", "a bundle of this kind is one file, such as NAME.mcpb")
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
        raise ExportError(
            f"cannot write {path}: {error.strerror}",
            ("check the disk's free space and the folder's permissions, then try again"),
        ) from error


def is_archive(path: str) -> bool:
    """Return whether a bundle at this path is one file."""
    return path.endswith((".zip", ".mcpb"))


def bundle_name(name: str, kind: Kind) -> str:
    """Make a name that the format allows: a-z, digits, single hyphens, and in Agent Plugins also single dots."""
    allowed = "a-z0-9." if kind == "agent-plugin" else "a-z0-9"
    plain = re.sub(rf"[^{allowed}]+", "-", name.lower())
    plain = re.sub(r"\.{2,}", ".", plain)[:LONGEST_NAME].strip("-.")
    return plain or "plugin"


def bundle_version(version: str, digest_value: str) -> str:
    """Make a version that every format allows; an invalid one becomes zero plus the digest."""
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
            "description": f"The value of {name} for the plugin.",
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
    """Find the plugin's files; raises ExportError if one contains a secret or leads outside, or for too many."""
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
                    "remove what it does not need to run",
                )
            content = untrusted_files.read_inside(plugin.path, path, LARGEST)
            file = File(content, PROGRAM if found.st_mode & digest.EXECUTABLE else PLAIN)
            data = _REFERENCE.sub(b"", content)
            if hide(data) != data:
                raise ExportError(
                    f"{relative} contains a secret of '{plugin.name}'",
                    f"remove it from the file, and store it with `anyplug secret {plugin.name}` or pass it in a "
                    "variable",
                )
            files[f"{inside}/{relative}"] = file
    except OSError as error:
        raise ExportError(
            f"cannot read {error.filename}: {error.strerror}", ("check the file's permissions, then try again")
        ) from error
    return files, sorted(left_out)


def _sorted(entries: Iterable[os.DirEntry[str]], below: str) -> list[os.DirEntry[str]]:
    """Sort the entries of a folder; raises ExportError if it is nested too deeply."""
    if below.count("/") > untrusted_files.MOST_DEPTH:
        why = f"there are more than {untrusted_files.MOST_DEPTH} nested folders"
        raise ExportError(why, "remove them from the plugin's folder")
    return sorted(entries, key=lambda entry: entry.name)


def _walk(root: str, below: str, folder: str, left_out: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the files below a folder.

    Links inside the plugin are followed, because not every archive supports links.
    """
    with os.scandir(folder) as entries:
        for entry in _sorted(entries, below):
            relative = f"{below}{entry.name}"
            if entry.is_symlink():
                if below.endswith("node_modules/.bin/"):
                    continue  # for developers; not needed to run
                real = os.path.realpath(entry.path)
                if not f"{real}/".startswith(f"{os.path.realpath(root)}/"):
                    raise ExportError(
                        f"{relative} is a link that leads outside the plugin's folder, to {real}",
                        "replace it with a copy",
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
    """Delete the remains of a failed bundle."""
    if os.path.isdir(path):
        untrusted_files.remove(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _write_archive(made: Bundle, path: str) -> None:
    import zipfile  # takes 9 ms to import, and only archives need it

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
