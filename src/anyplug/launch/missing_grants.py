"""Guess from a plugin's output which grants it lacked: the kernel refuses, and each program words that differently.

Made only after a failure, and only as a hint; `learn` knows for certain. What the user could not do either is not about
grants, and neither is what no grant opens.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from anyplug.launch import desktop
from anyplug.model import protected_paths
from anyplug.model.types import Plugin
from anyplug.runtime.sandbox.linux.protected_names import Protected
from anyplug.runtime.sandbox.profile import SHARED_TMP, Profile

LONGEST = 32 << 10  # characters of its output that are read, from the end
MOST = 4  # grants that a hint names
AROUND = 40  # characters around a refusal that may tell what it was about
# What programs print when the kernel refuses a file or a program. For a folder that it may not create, Node prints
# ENOENT.
_WORD = (
    r"(?:permission denied|operation not permitted|read-only file system|PermissionDenied|\bE(?:ACCES|PERM|ROFS)\b"
    r"|no such file or directory(?=, mkdir))"
)
_CHANGING = re.compile(r"read-only file system|\bEROFS\b|\bmkdir\b|cannot (?:create|touch|make|remove)", re.IGNORECASE)
_NO_NETWORK = re.compile(
    r"name resolution|failed to resolve|could not resolve|name or service not known|getaddrinfo|no such host"
    r"|UnknownHost|\bE(?:AI_AGAIN|NOTFOUND|NETUNREACH|NETDOWN)\b|network is unreachable|\bdial (?:tcp|udp)\b"
    r"|fetch failed|uv_interface_addresses"
    r"|\b(?:listen|connect|bind|socket)\b.{0,60}(?:\bE(?:PERM|ACCES)\b|not permitted)",
    re.IGNORECASE,
)
# Signs that a refused socket is a local one.
_LOCAL = re.compile(
    r"\bdial unix\b|\bunix://|\.sock\b|\bD-?Bus\b"
    r"|\b(?:listen|connect|bind)\b.{0,60}(?:\bE(?:PERM|ACCES)\b|not permitted).{0,40}\s[@/]",
    re.IGNORECASE,
)
# Python only prints that something was not permitted; the traceback tells the rest.
_LOCAL_IN_PYTHON = re.compile(r"multiprocessing/(?:connection|forkserver|managers)\.py|AF_UNIX")
_NETWORK_IN_PYTHON = re.compile(
    r"(?:/socket|http/client|urllib/request|asyncio/base_events)\.py\"|\bsocket\.\w+\(|urlopen error"
)
# The refused path follows or precedes the message, quoted or as a path; a program may be a bare name.
_QUOTES = r"'\"`\u2018\u2019\u201c\u201d"
_NAME = rf"(?:[{_QUOTES}]([^{_QUOTES}\n]+)[{_QUOTES}]|((?<![\w.~/:])(?:~|\.{{0,2}})/[^\s{_QUOTES}:,;()]+))"
_REFUSED = re.compile(
    rf"{_WORD}[^{_QUOTES}/~\n]{{0,60}}?{_NAME}(?: -> {_NAME})?"
    rf"|(?:{_NAME}|(?<![\w.+~/-])([\w.+-]{{1,255}}))(?: for \w+)? ?[:(] ?"
    r"(?=permission denied|operation not permitted|read-only file system)"
    r"|\bspawn (\S+) E(?:ACCES|PERM)\b",
    re.IGNORECASE,
)
# A plugin's private /tmp hides the shared one, so an existing file there is missing for it.
_ABSENT = re.compile(
    rf"(?:no such file or directory|ENOENT|not found|not exist)[^{_QUOTES}/~\n]{{0,60}}?{_NAME}"
    rf"|{_NAME}(?: for \w+)? ?[:(] ?(?:no such file or directory|not found)",
    re.IGNORECASE,
)
_NOT_STARTED = re.compile(rf"{_WORD}|no such file or directory|not found|\bENOENT\b", re.IGNORECASE)
_NO_NAME = re.compile(r"E[A-Z]+|\d+")  # found where a program's name would be


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The context of the output: what the plugin may do, and what paths and names in it refer to."""

    profile: Profile
    cwd: str
    user: str
    project: str
    find: Callable[[str], tuple[str, ...]]  # the files that belong to a program


class MissingGrant(NamedTuple):
    """A missing permission, and the folder or file that must be created first."""

    permission: str
    missing: str = ""
    is_file: bool = False  # whether to create a file, as far as can be told
    is_covered: bool = False  # by the plugin's own /tmp
    is_protected: bool = False  # because other programs run it later


OWN_FOLDER = MissingGrant("")  # no grant opens it
OWN_TMP = MissingGrant(
    f"filesystem:write:{SHARED_TMP[0]}", is_covered=True
)  # a file that may be in the machine's /tmp or not


def speaks_of_one(said: str) -> bool:
    """Return whether a text may be about a refusal: a cheap check, for the many that are not."""
    said = said[-LONGEST:]
    return bool(re.search(_WORD, said, re.IGNORECASE) or _NO_NETWORK.search(said) or "/tmp/" in said)


def variables(said: str, withheld: frozenset[str]) -> list[MissingGrant]:
    """Find the withheld variables that a plugin misses."""
    said = said[-LONGEST:]
    return [MissingGrant(f"env:{name}") for name in sorted(withheld) if re.search(rf"\b{re.escape(name)}\b", said)]


def desktop_programs(said: str, granted: tuple[str, ...]) -> list[MissingGrant]:
    """Find the permissions for programs of the desktop that a plugin did not find or could not start."""
    lines = [line for line in said[-LONGEST:].splitlines() if _NOT_STARTED.search(line)]
    return [
        MissingGrant(kind)
        for kind, names in desktop.NAMES.items()
        if kind not in granted
        and any(re.search(rf"(?<![\w-]){name}(?![\w-])", line) for line in lines for name in names)
    ]


def read(said: str, scene: Scene) -> list[MissingGrant]:
    """Find what a failed plugin was refused, from its output."""
    said = said[-LONGEST:]
    found: list[MissingGrant] = []
    for line in said.replace("\0", "").splitlines():
        if not scene.profile.unix and re.search(_WORD, line, re.IGNORECASE) and _LOCAL.search(line):
            found.append(MissingGrant("network:unix"))
            continue
        for refused in _REFUSED.finditer(line):
            is_change = bool(_CHANGING.search(line, max(refused.start() - AROUND, 0), refused.end() + AROUND))
            for name in filter(None, refused.groups()):
                found += _lacks(name, scene, is_change=is_change)
        for absent in _ABSENT.finditer(line):
            found += _lacks_sight(_absolute(next(filter(None, absent.groups())), scene), scene)
    if not scene.profile.unix and not found and "not permitted" in said and _LOCAL_IN_PYTHON.search(said):
        found.append(MissingGrant("network:unix"))
    is_network = _NO_NETWORK.search(said) or ("not permitted" in said and _NETWORK_IN_PYTHON.search(said))
    if scene.profile.network != "all" and not found and is_network:
        found.append(MissingGrant("network"))
    return found


def cure(plugin: Plugin, lacking: Iterable[MissingGrant], *, is_new: bool = False) -> str:
    """Return what a person should type; empty if nothing is missing. `is_new`: it is being approved or installed."""
    found = dict.fromkeys(lacking)
    needed = [lack for lack in found if lack != OWN_FOLDER][:MOST]
    if not needed:
        return "a plugin cannot change its own folder, whatever is granted: change where it writes" if found else ""
    names = [lack.permission for lack in needed]
    granting = [word for name in dict.fromkeys((*plugin.permissions, *names)) for word in ("--grant", name)]
    words = ["anyplug", "grant", plugin.name, *names]
    if is_new:
        words = ["...", *granting]
    elif plugin.explicit:  # a plugin named for one run has what it declares, and no approval to add to
        words = ["anyplug", "install", plugin.path, *granting]
    making = [
        ["touch", lack.missing] if lack.is_file else ["mkdir", "-p", lack.missing] for lack in needed if lack.missing
    ]
    first = "".join(f"`{shlex.join(command)}`, then " for command in making)
    covered = "it has a /tmp of its own, apart from the machine's; " if any(lack.is_covered for lack in needed) else ""
    guarded = [lack.permission.rpartition(":")[2] for lack in needed if lack.is_protected]
    why = f"{', '.join(guarded)} is protected, because other programs run or trust it later; " if guarded else ""
    return f"{covered}{why}it was not granted {', '.join(names)}: {first}`{_typed(words)}`"


def _lacks(name: str, scene: Scene, *, is_change: bool) -> list[MissingGrant]:
    """Return the permission for the thing that a refusal names, if one would have helped."""
    profile = scene.profile
    if _NO_NAME.fullmatch(name):
        return []
    if "/" not in name and (kind := desktop.permission_for(name)):
        return [MissingGrant(kind)]
    if "/" not in name and (files := scene.find(name)):
        return [] if _within(files[0], profile.executable) else [MissingGrant(f"shell:exec:{name}")]
    path = _absolute(name, scene)
    if "/" not in name and not os.path.exists(path) and not (is_change and "." in name):
        return []  # some other word
    readable = _readable(profile)
    if _within(path, profile.code):
        return [OWN_FOLDER] if is_change else []
    secrets = protected_paths.places(scene.user, "").hidden
    ours = tuple(folder for folder in profile.hidden if folder not in secrets)
    if _within(path, ours) and not _within(path, readable):
        return []  # ours, or another plugin's
    if os.path.isfile(path) and os.access(path, os.X_OK) and not is_change:
        program = os.path.basename(path)
        known = program if os.path.realpath(path) in scene.find(program) else path
        return [] if _within(path, profile.executable) else [MissingGrant(f"shell:exec:{known}")]
    if os.path.exists(path) and not is_change and not _within(path, readable):
        return [MissingGrant(f"filesystem:read:{_written(path, scene)}")] if os.access(path, os.R_OK) else []
    return _lacks_writing(path, scene)


def _lacks_sight(path: str, scene: Scene) -> list[MissingGrant]:
    """Return the permission for an existing file that the plugin reports as missing."""
    if not scene.profile.private_tmp or not _within(path, SHARED_TMP) or _within(path, _readable(scene.profile)):
        return []
    is_covered = _within(path, SHARED_TMP[:1])
    if is_covered and not os.path.lexists(path):
        return [OWN_TMP]
    return (
        [MissingGrant(f"filesystem:read:{_written(path, scene)}", is_covered=is_covered)]
        if os.access(path, os.R_OK)
        else []
    )


def _lacks_writing(path: str, scene: Scene) -> list[MissingGrant]:
    """Return the permission to change or create something: what does not exist yet needs its parent folder."""
    profile = scene.profile
    if profile.brokered and (named := Protected(profile.protected, profile.named).opener(path)):
        is_open = _within(path, profile.writable)
        return [MissingGrant(f"filesystem:write:{_written(named, scene)}", is_protected=True)] if is_open else []
    is_own_tmp = profile.private_tmp and _within(path, SHARED_TMP) and not _within(path, _readable(profile))
    if is_own_tmp or _within(path, profile.writable):
        return []
    if os.path.exists(path):
        return [MissingGrant(f"filesystem:write:{_written(path, scene)}")] if os.access(path, os.W_OK) else []
    above = os.path.dirname(path)
    is_file = bool(os.path.splitext(path)[1])  # a name with a suffix is a file; what contains something is not
    while not os.path.exists(above):
        path, above, is_file = above, os.path.dirname(above), False
    if not os.access(above, os.W_OK):
        return []
    if above in {scene.user, "/"}:  # granting all of that would be too much, so grant one folder in it
        return [MissingGrant(f"filesystem:write:{_written(path, scene)}", path, is_file)]
    return [MissingGrant(f"filesystem:write:{_written(above, scene)}")]


def _readable(profile: Profile) -> tuple[str, ...]:
    return (*profile.readable, *profile.writable, *profile.executable)


def _absolute(name: str, scene: Scene) -> str:
    path = scene.user + name[1:] if name == "~" or name.startswith("~/") else name
    return os.path.normpath(os.path.join(scene.cwd, path))


def _written(path: str, scene: Scene) -> str:
    """Write a path as a person would."""
    if path == scene.project:
        return "."
    if scene.project not in {"", "/", scene.user} and _within(path, (scene.project,)):
        return f"./{os.path.relpath(path, scene.project)}"
    return "~" + path.removeprefix(scene.user) if _within(path, (scene.user,)) else path


def _within(path: str, folders: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return any(one == folder or one.startswith(folder.rstrip("/") + "/") for folder in folders for one in (path, real))


def _typed(words: list[str]) -> str:
    """Join words for a shell, but leave ~ unquoted: in the middle of a word we expand it ourselves."""
    return " ".join(word if re.fullmatch(r"[\w@%+=:,./~-]+", word) else shlex.quote(word) for word in words)
