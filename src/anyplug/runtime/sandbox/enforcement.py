"""What this machine's kernel enforces, whether that suffices for a profile, and what to do if not."""

import msgspec

from anyplug.model import permissions
from anyplug.runtime.processes.program import Receipt
from anyplug.runtime.sandbox.linux import cpu_share, landlock, seccomp
from anyplug.runtime.sandbox.profile import Profile

# In the order in which they are applied. Tests leave some out.
LAYERS = ("mounts", "pids", "network", "ipc", "cpu", "read-only", "limits", "capabilities", "landlock", "seccomp")
NAMESPACES = ("mounts", "pids", "network", "ipc", "read-only")  # the layers that need them
BROKER = "broker"  # for protected paths in granted folders, and for Unix sockets in own ones
PROXY = "proxy"  # in the host itself, for plugins that were granted hosts
MEANINGS = {
    "mounts": "its own mount namespace: what it must not see is hidden, and /tmp is private",
    "pids": "its own pid namespace: it sees and signals no other process, and nothing outlives the host",
    "network": "its own network namespace, empty except for the way to a proxy for granted hosts",
    "ipc": "its own IPC namespace: no System V objects and message queues of others",
    "read-only": "everything is read-only except for its own folders, its /tmp and what was granted",
    "cpu": "all its processes together get the CPU time of one program",
    "limits": "limits on memory, processes, open files, CPU, file size and disk",
    "capabilities": "no capabilities, even for root",
    "landlock": "access to files by path and TCP ports by number; signals and abstract sockets",
    "seccomp": "only granted sockets, and only known system calls",
    BROKER: "files that other programs run later cannot be changed, even in folders that it may write to; Unix sockets "
    "can be reached in its own folders only",
}
_USER_NAMESPACES = (
    "allow user namespaces (`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, "
    "`sysctl user.max_user_namespaces=10000`; a container must not hide parts of /proc)"
)
CURES = {
    "landlock": "Linux 6.2 or newer with Landlock among its security modules (boot with `lsm=landlock,…`)",
    "seccomp": "a kernel with seccomp filters, on x86-64 or 64-bit ARM",
    "pids": f"{_USER_NAMESPACES}, or use Linux 6.12 or newer",
    "network": _USER_NAMESPACES,
    "ipc": _USER_NAMESPACES,
    "capabilities": "do not run as root, or let root have CAP_SETPCAP",
    "limits": "let the host set its own limits",
    "cpu": "set `sysctl kernel.sched_autogroup_enabled=1`, or run the host in a systemd unit with `Delegate=cpu`",
    BROKER: f"Linux 5.19 or newer on x86-64 or 64-bit ARM, and {_USER_NAMESPACES}, or "
    "`sysctl kernel.yama.ptrace_scope=0`",
}
MISLED = (
    "there is a link in its path, in a folder that a plugin may write to, so that plugin could redirect it",
    "grant the path that it leads to",
)
# What nothing else enforces where a layer is missing. See `docs/explanation/confinement.md`.
GAPS = {
    "read-only": (
        "it can change modes, times and attributes of the user's files, and replace its own code in a folder that it "
        "may write to (which is noticed before the next call); it runs from its folder and not from a snapshot, so "
        "code that is swapped between the check and the start runs"
    ),
    "mounts": "it has no private /tmp, unless its format promises one",
    "pids": "it sees the command lines of other processes",
    "ipc": "it sees which System V objects there are, though it cannot use them",
}

MANY_PROCESSES = "its programs have a low priority, but many of them get more of the CPU than one of another plugin"

TRY_AGAIN = "try again when the machine is less busy; `anyplug doctor` shows what is enforced"

FIX_AND_TRY = "fix what the message names, then call it again; `anyplug doctor` shows what is enforced"


def wanted_layers(*, namespaces: bool) -> tuple[str, ...]:
    """Return the layers to use, with or without namespaces."""
    return tuple(layer for layer in LAYERS if namespaces or layer not in NAMESPACES)


class Shortfall(msgspec.Struct, frozen=True):
    """Something that a profile requires and this machine cannot enforce."""

    what: str
    why: str
    cure: str


class Enforcement(msgspec.Struct, frozen=True, kw_only=True):
    """The layers in force, and why the others are not."""

    held: tuple[str, ...]
    refused: dict[str, str] = {}
    landlock: int = 0
    is_root: bool = False

    def shortfalls(self, profile: Profile) -> tuple[Shortfall, ...]:
        """Return what cannot be enforced; empty if everything can."""
        found = [Shortfall(grant, *_unheld(grant, profile)) for grant in profile.unheld]
        found += [Shortfall(grant, *MISLED) for grant in profile.misled]
        if "network" not in self.held:
            refused = self.refused.get("network", "disabled, or refused here")
            why = f"the proxy for it needs a network namespace ({refused})"
            found += [Shortfall(grant, why, f"{CURES['network']}; or {_wider(grant)}") for grant in profile.hosts]
        version = self.landlock if "landlock" in self.held else 0
        if version < landlock.SINCE_TRUNCATE and not (version and "read-only" in self.held):
            found.append(self._missing("which files it reads, writes and executes", "landlock"))
        if "seccomp" not in self.held:
            found.append(self._missing("which sockets it opens and which system calls it makes", "seccomp"))
        if profile.network == "ports" and version < landlock.SINCE_PORTS:
            found.append(self._missing("which ports it connects to", "landlock"))
        if "pids" not in self.held and version < landlock.SINCE_SCOPES:
            found.append(self._missing("whom it sends signals to", "pids"))
        if self.is_root and "capabilities" not in self.held:
            found.append(self._missing("what it does as root", "capabilities"))
        if BROKER in self.refused:
            found.append(self._missing("protected paths in the folders that it may write to", BROKER))
        if "limits" not in self.held:
            found.append(self._missing("how much it uses", "limits"))
        return tuple(found)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Return what stays open for every plugin, without violating any profile."""
        found = [text for layer, text in GAPS.items() if layer not in self.held]
        if "cpu" in self.held and cpu_share.means() == cpu_share.PRIORITY:
            found.append(f"{MANY_PROCESSES} ({CURES['cpu']})")
        return tuple(found)

    def receipt(self, profile: Profile) -> Receipt:
        """Return what is in force, for the audit."""
        program = (
            seccomp.build(
                profile.network,
                unix=profile.unix,
                watches=profile.watches,
                own_sockets=BROKER in self.held and seccomp.opens_own(profile.network, unix=profile.unix),
            )
            if "seccomp" in self.held
            else b""
        )
        return Receipt(
            layers=self.held,
            landlock=self.landlock if "landlock" in self.held else 0,
            filter=seccomp.digest(program) if program else "",
            limits=profile.limits.in_force if "limits" in self.held else {},
            hosts=profile.hosts if PROXY in self.held else (),
        )

    def _missing(self, what: str, layer: str) -> Shortfall:
        return Shortfall(what, self.refused.get(layer, f"{layer} is too old here or disabled"), CURES[layer])


def _unheld(grant: str, profile: Profile) -> tuple[str, str]:
    if grant.startswith("network:"):
        if permissions.destination(grant) is None:
            return permissions.fault(grant)
        ports = ", ".join(f"network:*:{port}" for port in profile.ports)
        return f"the kernel knows ports but not hosts, and the proxy cannot be combined with {ports}", _wider(grant)
    return "it is in the host's own folder", "grant a path outside it"


def _wider(grant: str) -> str:
    where = permissions.destination(grant)
    port = where.port if where is not None else 0
    return "grant `network`" if not port else f"grant `network:*:{port}` (that port of any machine) or `network`"


class NotEnforceable(Exception):
    """A profile cannot be enforced here. `shortfalls` tells what, why, and what to do."""

    def __init__(self, shortfalls: tuple[Shortfall, ...]) -> None:
        super().__init__("; ".join(f"this machine cannot enforce {fall.what}: {fall.why}" for fall in shortfalls))
        self.shortfalls = shortfalls

    @property
    def cure(self) -> str:
        """What to do, for all of them."""
        return "; ".join(dict.fromkeys(fall.cure for fall in self.shortfalls))


class Shortage(NotEnforceable):
    """Nobody knows whether a profile can be held: the machine is short of something, or setting up went wrong."""

    def __init__(self, reason: str, cure: str = TRY_AGAIN) -> None:
        super().__init__((Shortfall("anything", reason, cure),))
        self.reason = reason
