"""Observe a call and derive the grants it needed, and no more.

The host uses `Learning` to observe a plugin. `conclude` is pure: from what was tried, what every plugin may do, and
what was granted, it derives the permissions that were needed and their difference to the grants.
"""

import os
import shlex
from collections.abc import Callable, Iterable

import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.catalog.seen_permissions import OBSERVED
from anyplug.model import permissions, protected_paths
from anyplug.model.types import Plugin
from anyplug.runtime.processes.program import Purpose
from anyplug.runtime.sandbox.linux.protected_names import Protected
from anyplug.runtime.sandbox.linux.syscall_recorder import Event, Recorder
from anyplug.runtime.sandbox.profile import Profile

# Everything that permissions can open, to see all that a call would do.
OPEN = ("filesystem:read", "filesystem:write", "network", "network:unix", "shell:exec")
ALIKE = 3  # paths in one folder from which on the folder itself is proposed
# Folders that are never proposed because of what they contain.
WIDE = frozenset({"/", "/bin", "/etc", "/home", "/lib", "/mnt", "/media", "/opt", "/root", "/run", "/srv", "/usr",
                  "/usr/bin", "/usr/lib", "/usr/share", "/var", "/var/lib", "/var/tmp"})  # fmt: skip
TMP = "/tmp"
SHOWN = 4  # examples named in a reason


class Learning:
    """One plugin that is observed while a host runs, and its additional grants meanwhile."""

    def __init__(self, plugin: str, wider: tuple[str, ...] = ()) -> None:
        self._plugin = plugin  # its folder
        self._wider = wider
        self._recorders: list[Recorder] = []

    def is_about(self, plugin: Plugin, purpose: Purpose) -> bool:
        """Return whether these programs are observed."""
        return plugin.path == self._plugin and purpose == "run"

    def widened(self, standing: Standing) -> Standing:
        """Return a standing with the additional grants."""
        return msgspec.structs.replace(standing, granted=tuple(dict.fromkeys((*standing.granted, *self._wider))))

    def recorder(self) -> Recorder:
        """Create another recorder."""
        self._recorders.append(Recorder())
        return self._recorders[-1]

    @property
    def has_listened(self) -> bool:
        """Whether anything of the plugin ran at all."""
        return any(recorder.events for recorder in self._recorders)

    @property
    def events(self) -> tuple[Event, ...]:
        """What was tried, without duplicates."""
        return tuple(dict.fromkeys(event for recorder in self._recorders for event in recorder.events))


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that the call used, or would have used."""

    permission: str
    because: tuple[str, ...]  # what was done with it, or tried
    refused: bool  # at least some of it


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """The context needed to judge what was tried."""

    base: Profile  # what the plugin may do without any grant
    used: Profile  # what it could do in this call
    granted: tuple[str, ...]  # permanently
    user: str
    project: str
    find: Callable[[str], tuple[str, ...]]  # the files that belong to a program
    has_failed: bool  # whether the call failed
    called: dict[str, bool] = {}  # other plugins' tools that it called, and whether that was refused


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned."""

    needs: tuple[Need, ...]
    add: tuple[str, ...]  # missing grants
    remove: tuple[str, ...]  # grants that were not needed
    keep: tuple[str, ...]
    optional: tuple[str, ...]  # what was refused although the call succeeded
    never: tuple[str, ...]  # what was tried but no grant opens


def conclude(events: Iterable[Event], around: Around) -> Lesson:
    """Find the smallest set of permissions for what was tried, and how it differs from the grants."""
    beyond, never = _beyond(events, around)
    needs = (*_programs(beyond, around), *_files(beyond, around), *_network(beyond), *_calls(around))
    kept, add, optional = [], [], []
    for need in needs:
        by = next((grant for grant in around.granted if _covers(grant, need.permission, around)), "")
        if by:
            kept.append(by)
        elif need.refused and not around.has_failed:
            optional.append(need.permission)
        else:
            add.append(need.permission)
    unobserved = [grant for grant in around.granted if permissions.kind(grant) not in OBSERVED]
    keep = tuple(grant for grant in around.granted if grant in kept or grant in unobserved)
    return Lesson(
        needs=needs,
        add=tuple(add),
        remove=tuple(grant for grant in around.granted if grant not in keep),
        keep=keep,
        optional=tuple(optional),
        never=tuple(dict.fromkeys(never)),
    )


def used(lesson: Lesson, around: Around) -> dict[str, tuple[str, ...]]:
    """Return the permissions that the call really used, each with what it did: grants where they allowed it."""
    found: dict[str, tuple[str, ...]] = {}
    for need in lesson.needs:
        if need.refused:
            continue
        by = [grant for grant in around.granted if _allows(grant, need.permission, around)] or [need.permission]
        for name in by:
            found[name] = (*found.get(name, ()), *need.because)
    return found


def _allows(grant: str, need: str, around: Around) -> bool:
    """Return whether a grant opens what was needed, also a grant of everything."""
    kinds = permissions.kind(grant), permissions.kind(need)
    is_wide = not permissions.scope_of(grant) and (
        kinds[0] == kinds[1] or kinds == ("filesystem:write", "filesystem:read")
    )
    return is_wide or _covers(grant, need, around)


def commands(plugin: str, lesson: Lesson, *, folder: str = "") -> tuple[str, ...]:
    """Return the commands that apply the lesson. `folder`: it was named for this run, so it has no approval yet."""
    wanted = (*lesson.keep, *lesson.add) if folder else ()
    approval = ["anyplug", "install", folder, *(word for name in wanted for word in ("--grant", name))]
    changes = [("grant", lesson.add), ("ungrant", lesson.remove)] if not wanted else []
    return (
        *([shlex.join(approval)] if folder else []),
        *(shlex.join(["anyplug", verb, plugin, *names]) for verb, names in changes if names),
    )


def _beyond(events: Iterable[Event], around: Around) -> tuple[list[Event], list[str]]:
    """Drop what every plugin may do, and report what no plugin ever may."""
    base = around.base
    readable = (*base.readable, *base.writable, *base.executable)
    secrets = protected_paths.places(around.user, "").hidden  # a grant that names one opens it
    ours = tuple(path for path in base.hidden if path not in secrets)
    beyond, never = [], []
    made = set()
    for event in events:
        if event.kind in {"make", "write"}:
            made.add(event.path)
        place = os.path.dirname(event.path) if event.kind == "make" else event.path
        allowed = {
            "read": readable,
            "execute": base.executable,
            "write": base.writable,
            "make": base.writable,
        }.get(event.kind)
        if allowed is None:
            beyond.append(event)
        elif event.kind in {"write", "make"} and _within(event.path, base.code):
            never.append(f"change its own code: {event.path}")
        elif event.kind in {"write", "make"} and _within(event.path, base.binding):
            never.append(f"change its own policies or permissions: {event.path}")
        elif _within(place, allowed) or _is_its_own_tmp(event, made, around):
            continue
        elif _within(event.path, ours):
            never.append(f"{'read' if event.kind == 'read' else 'change'} anyplug's own files: {event.path}")
        else:
            beyond.append(event)
    return beyond, never


def _is_its_own_tmp(event: Event, made: set[str], around: Around) -> bool:
    """Return whether a path is in the plugin's private /tmp, and not in the shared one under the same name."""
    if not around.used.private_tmp or not _within(event.path, (TMP,)) or _within(event.path, (around.project,)):
        return False
    return event.kind in {"make", "write"} or event.path == TMP or event.path in made


def _programs(events: list[Event], around: Around) -> tuple[Need, ...]:
    paths = [event.path for event in events if event.kind == "execute"]
    found: list[Need] = []
    covered: tuple[str, ...] = ()
    for path in paths:
        if _within(path, covered):
            continue
        name = os.path.basename(path)
        name = name if path in around.find(name) else path
        covered += (path, *around.find(name))
        refused = not _within(path, around.used.executable)
        found.append(Need(permission=f"shell:exec:{name}", because=(f"execute {path}",), refused=refused))
    return tuple(found)


def _files(events: list[Event], around: Around) -> tuple[Need, ...]:
    """Return the needs for reading and writing, by folder where there are many. Write access includes read access."""
    programs = tuple(
        file
        for event in events
        if event.kind == "execute"
        for file in (event.path, *around.find(os.path.basename(event.path)))
    )
    used = around.used
    protected = Protected(used.protected, ())
    changed = {
        protected.opener(event.path)
        or (os.path.dirname(event.path) if event.kind == "make" else event.path): event.path
        for event in events
        if event.kind in {"write", "make"}
    }
    written = _grouped(changed, around)
    read = [event.path for event in events if event.kind == "read" and not _within(event.path, (*programs, *written))]
    readable = (*used.readable, *used.writable, *used.executable)
    return (
        *_needs("filesystem:read", "read", _grouped(read, around), read, readable, around),
        *_needs("filesystem:write", "write", written, list(changed.values()), used.writable, around),
    )


def _needs(
    kind: str, verb: str, scopes: list[str], paths: list[str], allowed: tuple[str, ...], around: Around
) -> list[Need]:
    found = []
    for scope in scopes:
        inside = [path for path in dict.fromkeys(paths) if _within(path, (scope,))]
        found.append(
            Need(
                permission=f"{kind}:{_written(scope, around)}",
                because=_few([f"{verb} {_written(path, around)}" for path in inside]),
                refused=any(not _within(path, allowed) for path in inside),
            )
        )
    return found


def _grouped(paths: Iterable[str], around: Around) -> list[str]:
    """Replace several paths in one folder by the folder, and drop paths inside another of them."""
    distinct = list(dict.fromkeys(paths))
    parents = [os.path.dirname(path) for path in distinct]
    groups = {
        parent for parent in parents if parents.count(parent) >= ALIKE and parent not in WIDE | {around.user}
    }  # fmt: skip
    meant = dict.fromkeys(parent if parent in groups else path for path, parent in zip(distinct, parents, strict=True))
    return [path for path in meant if not any(other != path and _within(path, (other,)) for other in meant)]


def _network(events: list[Event]) -> tuple[Need, ...]:
    because: dict[str, list[str]] = {}
    refused: set[str] = set()
    for event in events:
        permission, reason = {"unix": _local, "internet": _internet, "host": _host}.get(event.family, _no_network)(
            event
        )
        if permission:
            because.setdefault(permission, []).append(reason)
            if event.refused:
                refused.add(permission)
    if "network" in because:  # which covers all ports
        for port in [name for name in because if name.startswith("network:*:")]:
            because["network"] += because.pop(port)
    return tuple(
        Need(permission=name, because=_few(reasons), refused=name in refused) for name, reasons in because.items()
    )


def _no_network(event: Event) -> tuple[str, str]:
    return "", ""


def _local(event: Event) -> tuple[str, str]:
    """Return what a local socket needs: libraries try daemons that do not exist, which is harmless."""
    if event.kind == "socket":
        return ("network:unix", "a socket on this machine, unknown which") if event.refused else ("", "")
    is_there = event.address.startswith("@") or os.path.exists(event.address)
    return ("network:unix", f"{event.kind} {event.address}") if is_there else ("", "")


def _host(event: Event) -> tuple[str, str]:
    where = f"{event.address} port {event.port}"
    return permissions.to(event.address, event.port), f"connect to {where} through the proxy"


def _internet(event: Event) -> tuple[str, str]:
    where = f"{event.address} port {event.port}" if event.port else event.address
    if event.kind == "connect" and event.is_tcp:
        return f"network:*:{event.port}", f"connect to {where} over TCP"
    if event.kind != "socket":
        return "network", f"{event.kind} {where}" + ("" if event.is_tcp else " over UDP")
    if not event.is_tcp:
        return "network", "a UDP socket, as for name lookups"
    return ("network", "a TCP socket, unknown destination") if event.refused else ("", "")


def _calls(around: Around) -> list[Need]:
    """Return the permissions for other plugins' tools that it called."""
    return [
        Need(permission=f"{permissions.CALL}:{name}", because=(f"called {name}",), refused=is_refused)
        for name, is_refused in around.called.items()
    ]


def _covers(grant: str, need: str, around: Around) -> bool:
    """Return whether a grant is the need itself, or a scope narrower than everything that contains it."""
    if grant == need:
        return True
    kind, scope = permissions.kind(grant), permissions.scope_of(grant)
    wanted = permissions.scope_of(need)
    if not scope or not wanted:
        return False
    if kind == "shell:exec" == permissions.kind(need):
        return bool(set(around.find(wanted)) & set(around.find(scope)))
    if (where := permissions.destination(grant)) is not None:
        needed = permissions.destination(need)
        return needed is not None and needed.host == where.host and where.port in {0, needed.port}
    reads = permissions.kind(need) == "filesystem:read" and kind.startswith("filesystem:")
    if reads or (kind == permissions.kind(need) == "filesystem:write"):
        return _within(_path(wanted, around), (_path(scope, around),))
    return False


def _path(scope: str, around: Around) -> str:
    path = around.user + scope[1:] if scope == "~" or scope.startswith("~/") else scope
    return os.path.realpath(os.path.join(around.project, path))


def _written(path: str, around: Around) -> str:
    """Write a path as a person would: relative to the project, to the home folder, or absolute."""
    if around.project not in WIDE | {around.user}:
        if path == around.project:
            return "."
        if _within(path, (around.project,)):
            return f"./{os.path.relpath(path, around.project)}"
    if _within(path, (around.user,)):
        return "~" + path.removeprefix(around.user)
    return path


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _few(reasons: list[str]) -> tuple[str, ...]:
    distinct = list(dict.fromkeys(reasons))
    more = len(distinct) - SHOWN
    return (*distinct[:SHOWN], f"and {more} more") if more > 0 else tuple(distinct)
