"""What one plugin may do, as plain data derived from its grants. Pure: reads no file.

A grant is a permission with or without a scope:

    filesystem:read[:PATH]     the user's files, or this one; never our own
    filesystem:write[:PATH]    the same to write; without a scope the machine's own /tmp, too
                               (only who was granted /tmp as a whole has the machine's; others have their own)
    network                    TCP and UDP to anywhere, and names
    network:*:PORT             TCP to this port of any machine; names only from /etc/hosts
    network:unix               Unix sockets of this machine; those in its own folders need no grant
    network:HOST[:PORT]        TCP to this host, through our proxy; together with ports: `unheld`
    shell:exec[:PROGRAM]       every program of the system with its settings, or this one
    clipboard, notifications   open nothing here: the kernel knows neither, and the host does both for the plugin
"""

import os
from collections.abc import Callable
from typing import Literal

import msgspec

from anyplug.model import permissions, protected_paths

Network = Literal["none", "ports", "hosts", "all"]
FindProgram = Callable[[str], tuple[str, ...]]

MIB, GIB = 1 << 20, 1 << 30
USERS_FOLDERS = ("/home", "/mnt", "/media", "/srv")  # besides the user's own folder
SHARED_TMP = ("/tmp", "/var/tmp")
SYSTEM_PROGRAMS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/snap",
    "/etc/alternatives",
)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's resource limits."""

    memory: int = 4 * GIB  # bytes; of one process's own memory, and of all processes together
    processes: int = 512  # including threads. Node waits forever if it gets none
    open_files: int = 4096  # of each process
    cpu_s: int = 600  # per process; 0 for long-running ones: no limit
    file_size: int = 2 * GIB  # bytes of each file
    disk: int = 8 * GIB  # bytes in each of its folders
    tmp: int = 512 * MIB  # bytes in its /tmp, which is memory

    @property
    def in_force(self) -> dict[str, int]:
        """Return those that limit something, for people."""
        return {name: most for name, most in msgspec.structs.asdict(self).items() if most}


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How a plugin's own folder is shown from a snapshot (`own_folder_mount`)."""

    own: str  # its path
    snapshot: str
    work: str  # a folder for overlays
    shelved: bool = True  # on a shelf: otherwise a rename outside detaches the snapshot
    beside: str = ""  # overlaid on the snapshot: what the plugin writes into its folder
    live: tuple[str, ...] = ()  # files of the real folder that are shown in the snapshot, read-only
    laid: tuple[str, ...] = ()  # parts of the snapshot mounted over the real folder
    ignored: tuple[str, ...] = ()  # names that are never code
    code_names: tuple[str, ...] = ()  # of files that are code, wherever they are
    code_suffixes: tuple[str, ...] = ()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one plugin may do. Everything not named here is refused."""

    readable: tuple[str, ...] = ()  # files and folders
    writable: tuple[str, ...] = ()  # the same, readable as well
    executable: tuple[str, ...] = ()  # the same, readable as well
    hidden: tuple[str, ...] = ()  # folders of which nothing is visible except for what is named above
    secret: tuple[str, ...] = ()  # whether or not it exists: its programs are killed when such a path appears
    code: tuple[str, ...] = ()  # read-only, even in a writable folder
    binding: tuple[str, ...] = ()  # read-only because it binds plugins themselves, such as policies
    measured: tuple[str, ...] = ()  # the folders that `limits.disk` applies to
    brokered: tuple[str, ...] = ()  # the granted part of `writable`: protected paths in there are read-only
    protected: tuple[str, ...] = ()  # their patterns (`protected_paths`)
    named: tuple[str, ...] = ()  # paths that grants name, and so open
    shown: Shown | None = None  # how its own folder is shown, if from a snapshot
    private_tmp: bool = True
    network: Network = "none"
    ports: tuple[int, ...] = ()
    hosts: tuple[
        str, ...
    ] = ()  # the grants that a proxy enforces; the network is then empty, and the proxy the only way out
    unix: bool = False
    watches: bool = False  # it may receive changes in folders, which reveals the names in them
    limits: Limits = Limits()
    exact: tuple[str, ...] = ()  # paths whose links were already resolved: what now leads elsewhere is left out
    unheld: tuple[str, ...] = ()  # grants whose scope no layer can enforce
    misled: tuple[str, ...] = ()  # grants of paths with a link that the plugin itself could change
    notes: tuple[str, ...] = ()  # for people: what a grant really opens


class System(msgspec.Struct, frozen=True, kw_only=True):
    """What every plugin may use of this machine (`system_paths.survey`)."""

    readable: tuple[str, ...] = ()
    executable: tuple[str, ...] = ()
    search_path: tuple[str, ...] = ()
    # For plugins that may run all programs: what these read in /etc, and the targets of links in the PATH.
    settings: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()


class Locations(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plugin lives. Its folders exist by the time that its programs start."""

    plugin: str
    data: str
    cache: str
    home: str  # our own folder
    user: str  # the user's
    others: tuple[str, ...] = ()  # folders besides ours with plugins and their data
    secret: tuple[str, ...] = ()  # paths whose appearance ends its programs
    project: str = ""  # where the user works
    writes_beside_itself: bool = False  # its format lets it write into its own folder
    code: tuple[str, ...] = ()  # then: the approved files and folders in it
    protected: tuple[str, ...] = ()  # paths to protect besides those of the table, such as the targets of their links


def draw(
    granted: tuple[str, ...], place: Locations, system: System, find: FindProgram, limits: Limits | None = None
) -> Profile:
    """Build the profile. `find` returns the files that belong to a program of that name."""
    scopes = _by_kind(granted)
    own = (place.data, place.cache, *((place.plugin,) if place.writes_beside_itself else ()))
    users = (place.user, *USERS_FOLDERS, *((place.project,) if place.project else ()))
    reads, reads_all, refused_reads = _paths(scopes, "filesystem:read", place)
    writes, writes_all, refused_writes = _paths(scopes, "filesystem:write", place)
    programs = scopes.get("shell:exec", ())
    everything = (*SYSTEM_PROGRAMS, *system.search_path, *system.linked) if "" in programs else ()
    network, ports, hosts, unheld = _network(scopes.get("network", ()))
    brokered = _unique(writes, (*users, *SHARED_TMP) if writes_all else ())
    searched = tuple(path for path in system.search_path if not path.startswith(SYSTEM_PROGRAMS))
    guarded = protected_paths.places(place.user, place.project, (*place.others, *searched, *place.protected))
    secret = tuple(path for path in guarded.hidden if path not in (*reads, *writes))
    return Profile(
        readable=_unique(system.readable, reads, users if reads_all else (), system.settings if everything else ()),
        writable=_unique(own, brokered),
        executable=_unique(
            (place.plugin, place.cache),
            system.executable,
            tuple(file for name in programs if name for file in find(name)),
            everything,
        ),
        hidden=_unique((place.home,), place.others, secret),
        secret=_unique(secret, place.secret) if reads or writes or reads_all or writes_all else (),
        code=place.code if place.writes_beside_itself else (place.plugin,),
        measured=own,
        brokered=brokered,
        protected=_unique(guarded.read_only, guarded.hidden, (place.home,)) if brokered else (),
        named=writes if brokered else (),
        private_tmp=not (writes_all or {"/", SHARED_TMP[0]} & {*reads, *writes}),
        network=network,
        ports=ports,
        hosts=hosts,
        unix="unix" in scopes.get("network", ()),
        watches=reads_all or writes_all,
        limits=limits or Limits(),
        unheld=(*refused_reads, *refused_writes, *unheld),
        notes=_notes(granted, scopes, hosts),
    )


def may_read(profile: Profile, path: str) -> bool:
    """Return whether a file may be read: the nearest folder that a profile names decides."""
    real = os.path.realpath(path)

    def nearest(*folders: str) -> int:
        return max((len(one) for one in folders if f"{real}/".startswith(f"{one.rstrip('/')}/")), default=-1)

    return nearest(*profile.readable, *profile.writable, *profile.executable) > nearest(*profile.hidden)


def widened(profile: Profile) -> Profile:
    """Open the whole network to a plugin with granted hosts, if nothing can enforce these and a person allowed it."""
    return msgspec.structs.replace(profile, network="all", ports=(), hosts=(), unheld=(*profile.unheld, *profile.hosts))


def _by_kind(granted: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Sort scopes by permission; an empty scope means everything."""
    found: dict[str, tuple[str, ...]] = {}
    for permission in granted:
        kind = permissions.kind(permission)
        if kind:
            found[kind] = (*found.get(kind, ()), permissions.scope_of(permission))
    return found


def path_of(scope: str, place: Locations) -> str:
    """Return the path that a scope names."""
    path = place.user + scope[1:] if scope == "~" or scope.startswith("~/") else scope
    return os.path.normpath(os.path.join(place.project or place.user, path))


def _paths(
    scopes: dict[str, tuple[str, ...]], kind: str, place: Locations
) -> tuple[tuple[str, ...], bool, tuple[str, ...]]:
    """Return the granted paths, whether all are granted, and the grants that would open our own files."""
    paths, ours = [], []
    given = scopes.get(kind, ())
    for scope in given:
        if not scope:
            continue
        path = path_of(scope, place)
        if path == place.home or path.startswith(place.home + "/"):
            ours.append(f"{kind}:{scope}")
        else:
            paths.append(path)
    return tuple(paths), "" in given, tuple(ours)


def _network(scopes: tuple[str, ...]) -> tuple[Network, tuple[int, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the kind of network, its ports or hosts, and the grants that nothing enforces.

    Ports of any machine need the machine's own network, in which nothing forces a program to use the proxy.
    """
    ports, unheld = [], []
    hosts: dict[str, int] = {}  # the port of each grant; 0 for every port
    for scope in scopes:
        host, _, port = scope.rpartition(":")
        if scope in {"", "unix"}:
            continue
        if host in {"", "*"} and port.isdigit() and 0 < int(port) < 1 << 16:
            ports.append(int(port))
        elif (where := permissions.destination(f"network:{scope}")) is not None:
            hosts[f"network:{scope}"] = where.port
        else:
            unheld.append(f"network:{scope}")
    if "" in scopes:
        return "all", (), (), ()
    if not ports:
        return ("hosts" if hosts else "none"), (), tuple(hosts), tuple(unheld)
    beside = (
        grant for grant, port_of_host in hosts.items() if port_of_host not in ports
    )  # otherwise the wider one counts
    return "ports", tuple(ports), (), (*unheld, *beside)


def _notes(granted: tuple[str, ...], scopes: dict[str, tuple[str, ...]], hosts: tuple[str, ...]) -> tuple[str, ...]:
    opening = (name for name in granted if not permissions.is_by_host(name))
    notes = [f"{name} {text}" for name in opening if (text := permissions.really(name))]
    if hosts:
        notes.append(f"{', '.join(hosts)} {permissions.BY_PROXY}")
    network = scopes.get("network", ())
    if "unix" in network and "" not in network and any(scope.startswith("*:") for scope in network):
        notes.append("network:*:PORT does not allow listening, also on Unix sockets; only `network` does")
    if "" in scopes.get("filesystem:read", ()) and "shell:exec" not in scopes:
        notes.append("filesystem:read lets it run programs among the user's files, through the dynamic loader")
    return tuple(notes)


def _unique(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for group in groups for path in group))
