"""Install the plugin where OpenCode looks for plugins, remove it, and list its copies.

OpenCode loads `plugin/*.js` and `plugins/*.js` of each of its folders, one level deep: `.opencode` in the project's
folder and above it up to the root of the repository, and one for all projects. A copy is the file that is shipped next
to this module, with one line for the program and home that it belongs to. A file that does not begin as ours is never
touched, and what is overwritten is kept as `NAME.js.old`, which OpenCode does not load.
"""

import json
import os
import re
import sys
from typing import Literal

import msgspec

import anyplug
from anyplug.model.errors import ConfigError
from anyplug.model.late_patterns import late
from anyplug.model.types import Problem

NAME = "anyplug-policy.js"
FOLDERS = ("plugin", "plugins")  # both are loaded; new copies go into the first
KEPT = NAME + ".old"  # next to it; OpenCode loads only what ends in .js or .ts
MARKER = "// anyplug-policy: "
SHIPPED = os.path.join(os.path.dirname(__file__), NAME)

_INSTALLED = late(r"^const INSTALLED = (\{.*\});(.*)$", re.MULTILINE)
_DEEPEST = 3  # levels below a plugin folder that are searched for misplaced copies

Change = Literal["added", "updated", "unchanged", "removed", "absent"]


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one copy."""

    path: str
    change: Change
    kept: str = ""  # where the previous file is


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of the plugin, whether or not OpenCode loads it."""

    path: str
    scope: Literal["project", "global"]
    version: str
    is_current: bool
    is_loaded: bool


def install(project: str | None = None, *, home: str | None = None, program: list[str] | None = None) -> Changed:
    """Install the plugin in a project, or for all projects if none is named; raises ConfigError.

    A non-default `home` and the `program` (default: this one) are stored in it, so that the same host is found from
    wherever OpenCode is started.
    """
    path = _place(project)
    there = _read(path)
    if there is not None and not there.startswith(MARKER):
        raise _not_ours(path)
    text = render(home, program)
    if there == text:
        return Changed(path=path, change="unchanged")
    kept = _keep(path) if there is not None else ""
    _write(path, text)
    return Changed(path=path, change="added" if there is None else "updated", kept=kept)


def remove(project: str | None = None) -> list[Changed]:
    """Remove the plugin from a project, or for all projects; raises ConfigError for a file that is not ours."""
    changes = []
    for path in _places(project):
        there = _read(path)
        if there is None:
            continue
        if not there.startswith(MARKER):
            raise _not_ours(path)
        try:
            os.unlink(path)
        except OSError as error:
            raise ConfigError(f"cannot remove {path}: {error.strerror}") from error
        changes.append(Changed(path=path, change="removed"))
    return changes or [Changed(path=_place(project), change="absent")]


def render(home: str | None = None, program: list[str] | None = None) -> str:
    """Return the text of a copy: the shipped file with its program and home."""
    known = {"version": anyplug.__version__, "home": home, "program": program or _program()}
    with open(SHIPPED, encoding="utf-8") as file:
        shipped = file.read()
    # json escapes U+2028 and U+2029, so that the line is also JavaScript.
    return _INSTALLED.sub(lambda match: f"const INSTALLED = {json.dumps(known)};{match[2]}", shipped, count=1)


def installed_copies(project: str) -> list[Copy]:
    """List the copies that concern a project: its own, those above it, and the one for all; also misplaced ones."""
    copies = [copy for folder in _upwards(project) for copy in _copies(os.path.join(folder, ".opencode"), "project")]
    return copies + _copies(config_folder(), "global")


def problems(project: str) -> list[Problem]:
    """Return the problems of the copies that concern a project, for `doctor`."""
    found = []
    for copy in installed_copies(project):
        again = "anyplug connect opencode --policy" + (" --global" if copy.scope == "global" else "")
        if not copy.is_loaded:
            message = f"{copy.path} has no effect: OpenCode does not read subfolders of its plugin folder"
            found.append(Problem("opencode_policy_misplaced", message, f"remove it, then run `{again}`"))
        elif not copy.is_current:
            message = f"{copy.path} has version {copy.version or 'unknown'}, or was changed"
            cure = f"replace it with `{again}`"
            found.append(Problem("opencode_policy_outdated", message, cure, "warning"))
    return found


def config_folder() -> str:
    """Return OpenCode's folder for all projects."""
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "opencode")


def _place(project: str | None) -> str:
    """Return the path of the existing copy, else of the one to create."""
    places = _places(project)
    return next((path for path in places if os.path.lexists(path)), places[0])


def _places(project: str | None) -> list[str]:
    base = config_folder() if project is None else os.path.join(os.path.abspath(project), ".opencode")
    return [os.path.join(base, folder, NAME) for folder in FOLDERS]


def _copies(base: str, scope: Literal["project", "global"]) -> list[Copy]:
    copies = []
    for folder in FOLDERS:
        top = os.path.join(base, folder)
        for where, below, names in os.walk(top):
            depth = os.path.relpath(where, top).count(os.sep) + 1 if where != top else 0
            below[:] = sorted(name for name in below if name != "node_modules") if depth < _DEEPEST else []
            for name in sorted(names):
                path = os.path.join(where, name)
                if name.endswith((".js", ".ts")) and (text := _read(path)) is not None and text.startswith(MARKER):
                    copies.append(_copy(path, text, scope, is_loaded=where == top))
    return copies


def _copy(path: str, text: str, scope: Literal["project", "global"], *, is_loaded: bool) -> Copy:
    found = _INSTALLED.search(text)
    version = ""
    if found is not None:
        try:
            version = str(json.loads(found[1]).get("version", ""))
        except ValueError:
            pass
    is_current = _bare(text) == _bare(render())
    return Copy(path=path, scope=scope, version=version, is_current=is_current, is_loaded=is_loaded)


def _bare(text: str) -> str:
    """Remove the program and home from a copy's text."""
    return _INSTALLED.sub("", text, count=1)


def _upwards(project: str) -> list[str]:
    """List the folders whose plugins OpenCode loads for a project: up to the root of its repository."""
    folder = os.path.abspath(project)
    folders = [folder]
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return folders[:1]  # no repository
        folder = above
        folders.append(folder)
    return folders


def _program() -> list[str]:
    """Return the command that starts this program from any folder."""
    beside = os.path.join(os.path.dirname(sys.executable), "anyplug")
    return [beside] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "anyplug"]


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _keep(path: str) -> str:
    kept = os.path.join(os.path.dirname(path), KEPT)
    import shutil  # takes 2 ms to import, and each event that policies decide about imports this module

    shutil.copy2(path, kept)
    return kept


def _write(path: str, text: str) -> None:
    """Replace the file atomically: OpenCode may be starting."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        import tempfile  # with `random`; only needed here

        descriptor, scratch = tempfile.mkstemp(dir=folder, prefix=".", suffix=".new")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _not_ours(path: str) -> ConfigError:
    return ConfigError(f"{path} does not belong to anyplug", "check what it does, and move it away")
