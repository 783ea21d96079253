"""What a call really needed: watches one, and says how the grants would have to be for that and no more.

`Learning` is what the host is given to watch a plugin with. `conclude` is pure: from what was tried, what every
plugin may do, and what was granted, it gives the permissions that were needed and the difference to the grants.
"""

import os
import shlex
from collections.abc import Callable, Iterable

import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.model import permissions, protected_paths
from anyplug.model.types import Plugin
from anyplug.runtime.processes.program import Purpose
from anyplug.runtime.sandbox.linux.protected_names import Protected
from anyplug.runtime.sandbox.linux.syscall_recorder import Event, Recorder
from anyplug.runtime.sandbox.profile import Profile

# Everything that permissions can open, for those who want to see all that a call would do.
OPEN = ("filesystem:read", "filesystem:write", "network", "network:unix", "shell:exec")
# What is seen by the kernel, or by the host; the others leave no trace.
OBSERVED = ("filesystem:read", "filesystem:write", "network", "shell:exec", permissions.CALL)
ALIKE = 3  # paths in one folder, from which on the folder is meant
# Folders that are never proposed because of what lies in them.
WIDE = frozenset({"/", "/bin", "/etc", "/home", "/lib", "/mnt", "/media", "/opt", "/root", "/run", "/srv", "/usr",
                  "/usr/bin", "/usr/lib", "/usr/share", "/var", "/var/lib", "/var/tmp"})  # fmt: skip
TMP = "/tmp"
SHOWN = 4  # things that a reason names


class Learning:
    """One plugin that is watched while a host runs, and what it may do meanwhile besides what was granted."""

    def __init__(self, plugin: str, wider: tuple[str, ...] = ()) -> None:
        self._plugin = plugin  # its folder
        self._wider = wider
        self._recorders: list[Recorder] = []

    def is_about(self, plugin: Plugin, purpose: Purpose) -> bool:
        """Whether these programs are watched."""
        return plugin.path == self._plugin and purpose == "run"

    def widened(self, standing: Standing) -> Standing:
        """Return a standing with more grants than the person gave for good."""
        return msgspec.structs.replace(standing, granted=tuple(dict.fromkeys((*standing.granted, *self._wider))))

    def recorder(self) -> Recorder:
        """Make one more who listens."""
        self._recorders.append(Recorder())
        return self._recorders[-1]

    @property
    def has_listened(self) -> bool:
        """Whether anything of the plugin ran at all."""
        return any(recorder.events for recorder in self._recorders)

    @property
    def events(self) -> tuple[Event, ...]:
        """What was tried, each once."""
        return tuple(dict.fromkeys(event for recorder in self._recorders for event in recorder.events))


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that the call made use of, or would have."""

    permission: str
    because: tuple[str, ...]  # what was done with it, or tried
    refused: bool  # at least some of it


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known to judge what was tried."""

    base: Profile  # what the plugin may do without any grant
    used: Profile  # what it could do in this call
    granted: tuple[str, ...]  # for good
    user: str
    project: str
    find: Callable[[str], tuple[str, ...]]  # the files that belong to a program
    has_failed: bool  # the call
    called: dict[str, bool] = {}  # other plugins' tools that it had called, and whether that was refused


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned."""

    needs: tuple[Need, ...]
    add: tuple[str, ...]  # what is missing
    remove: tuple[str, ...]  # what is granted and was not needed
    keep: tuple[str, ...]
    optional: tuple[str, ...]  # what was refused, and the call succeeded without
    never: tuple[str, ...]  # what was tried and no grant opens


def conclude(events: Iterable[Event], around: Around) -> Lesson:
    """Find the smallest set of permissions for what was tried, and how it differs from what is granted."""
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


def commands(plugin: str, lesson: Lesson, *, is_approved: bool) -> tuple[str, ...]:
    """Return what a person would type to have it so; `is_approved`: there is an approval that can be changed."""
    wanted = () if is_approved else (*lesson.keep, *lesson.add)
    approval = ["anyplug", "approve", plugin, *(word for name in wanted for word in ("--grant", name))]
    changes = [("grant", lesson.add), ("ungrant", lesson.remove)] if not wanted else []
    return (
        *([] if is_approved else [shlex.join(approval)]),
        *(shlex.join(["anyplug", verb, plugin, *names]) for verb, names in changes if names),
    )


def _beyond(events: Iterable[Event], around: Around) -> tuple[list[Event], list[str]]:
    """Leave out what every plugin may do; say what none ever may."""
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
            never.append(f"change what binds it: {event.path}")
        elif _within(place, allowed) or _is_its_own_tmp(event, made, around):
            continue
        elif _within(event.path, ours):
            never.append(f"{'read' if event.kind == 'read' else 'change'} what is anyplug's own: {event.path}")
        else:
            beyond.append(event)
    return beyond, never


def _is_its_own_tmp(event: Event, made: set[str], around: Around) -> bool:
    """Whether a path is in the /tmp that it has to itself, and not what lies in everybody's under that name."""
    if not _within(event.path, (TMP,)) or _within(event.path, (around.project,)):
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
    """Return what is read and written, by folder where much of one is. What may be written may be read, too."""
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
    """Replace several paths in one folder by the folder, and leave out what lies in another of them."""
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
    if "network" in because:  # it has all ports
        for port in [name for name in because if name.startswith("network:*:")]:
            because["network"] += because.pop(port)
    return tuple(
        Need(permission=name, because=_few(reasons), refused=name in refused) for name, reasons in because.items()
    )


def _no_network(event: Event) -> tuple[str, str]:
    return "", ""


def _local(event: Event) -> tuple[str, str]:
    """Say what a socket on this machine needs: libraries ask for daemons that are not there, and do not mind."""
    if event.kind == "socket":
        return ("network:unix", "a socket on this machine, nobody knows which") if event.refused else ("", "")
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
        return "network", "a UDP socket, as for names"
    return ("network", "a TCP socket, nobody knows where to") if event.refused else ("", "")


def _calls(around: Around) -> list[Need]:
    """Return the permissions for the tools of other plugins that it called."""
    return [
        Need(permission=f"{permissions.CALL}:{name}", because=(f"called {name}",), refused=is_refused)
        for name, is_refused in around.called.items()
    ]


def _covers(grant: str, need: str, around: Around) -> bool:
    """Whether a grant is what is needed, or says more closely than `everything` what contains it."""
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
    """Write a path as a person would: from the project, from the user's folder, or from the root."""
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
