"""Apply the layers that an order names: some once, some to each thread that starts programs.

Part of the spawner only: standard library only.
"""

from __future__ import annotations

import _socket  # `socket` takes 4 ms to import
import errno
import os
import resource

from anyplug.home.location import SCRATCH
from anyplug.runtime.sandbox import packets
from anyplug.runtime.sandbox.linux import cpu_share, hidden_paths, landlock, mounts, seccomp, syscalls
from anyplug.runtime.sandbox.linux.broker import broker_process
from anyplug.runtime.sandbox.linux.broker.broker_process import OnDemand
from anyplug.runtime.sandbox.linux.hidden_paths import HiddenNames
from anyplug.runtime.sandbox.linux.own_folder_mount import UNSAFE, OwnFolderMount
from anyplug.runtime.sandbox.linux.own_sockets import OwnFolders
from anyplug.runtime.sandbox.linux.protected_names import CLOSED, Protected

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from anyplug.runtime.sandbox.linux.enforced_order import Order

BROKER = "broker"  # treated like a layer
FRESH_RULES = 64  # starts with their own folders, until the rules of the first ones are forgotten
FOR_BROKERS = 16  # processes beyond the limit of the programs, which may have reached it when they need a broker
MOST_ADDED = 400  # protected paths in one packet for a broker
BACKLOG = 128  # connections that wait for the proxy
DEVICES = ("null", "zero", "full", "random", "urandom")
# A grant of the root folder is about files. The kernel's own trees must be named: the whole disk can be read through
# its device, and root's switches in /proc and /sys require no capability.
NO_FILES = ("/dev", "/proc", "/sys")
SEEN_IN_SYS = ("devices/system/cpu", "devices/system/node", "fs/cgroup", "kernel/mm/transparent_hugepage")


class Confinement:
    """Applies the layers of an order: some once, some to each thread that starts programs."""

    def __init__(self, order: Order) -> None:
        self.home = order.hidden[0] if order.hidden else ""  # the host's
        self.order = order.resolved()
        self.held: list[str] = []
        self.refused: dict[str, str] = {}
        self._user_namespace = False
        self._below_tmp: list[str] = []
        self._outer_tmp = -1
        self._scratch, self._outer_scratch = "", -1  # where the host makes folders for programs' /tmp
        self._to_cover: dict[str, tuple[int, int]] = {}  # the targets of hidden paths before they were covered
        self._filter = b""
        self.shelf: OwnFolderMount | None = None
        self._rules: landlock.Ruleset | None = None
        self._narrow: landlock.Ruleset | None = None  # for programs whose changes a broker makes
        self._added = 0
        self.most_processes = 0  # of its programs, as the kernel counts them; 0 if they are not limited
        self.cpu = ""  # how its processes are counted as one (`cpu_share`)
        self.proc = "/proc"  # one that the spawner can write to
        self.brokers: set[OnDemand] = set()  # of programs that run, or may be started
        self.doorway: _socket.socket | None = None  # for the host's proxy, if there is one

    def leave(self) -> None:
        """Leave the machine's namespaces, as many as we are let; raises OSError if it fails for another reason."""
        wanted = [
            (name, flag)
            for name, flag in (
                ("mounts", syscalls.CLONE_NEWNS),
                ("pids", syscalls.CLONE_NEWPID),
                ("network", syscalls.CLONE_NEWNET),
                ("ipc", syscalls.CLONE_NEWIPC),  # dropped first if refused: the filter refuses the calls in any case
            )
            if name in self.order.layers
        ]
        while wanted:
            try:
                self._user_namespace = mounts.enter(sum(flag for _, flag in wanted))
            except OSError as error:
                if not mounts.is_refusal(error):
                    raise
                self.refused[wanted.pop()[0]] = str(error.strerror)
            else:
                self.held += [name for name, _ in wanted]
                return

    def take(self) -> None:
        """Apply the other layers; raises OSError if a wanted one fails half-way."""
        if self.order.network == "hosts" and "network" in self.held:
            self._open_doorway()
        if "mounts" in self.held:
            mounts.keep_to_itself()
            os.close(syscalls.clone_tree("/proc"))  # without this call the mounts of ours cannot be made
        if "pids" in self.held:
            mounts.see_own_processes_only()
        self._share_cpu()
        self._limit()
        if "read-only" in self.order.layers and "mounts" in self.held:
            self._furnish()
        for layer, take in (
            ("capabilities", syscalls.drop_capabilities),
            ("landlock", self._make_rules),
            ("seccomp", self._make_filter),
        ):
            if layer in self.order.layers:
                self._take_one(layer, take)
        self._prepare_broker()

    def _take_one(self, layer: str, take: Callable[[], None]) -> None:
        try:
            take()
        except OSError as error:
            if layer == "capabilities" and os.getuid() != 0:
                return  # there are none to drop
            if not mounts.is_refusal(error):
                raise
            self.refused[layer] = str(error.strerror or error)
        else:
            self.held.append(layer)

    def _prepare_broker(self) -> None:
        """Prepare to protect paths in granted folders, and to connect sockets in own ones, if the kernel can.

        Otherwise the grants apply as they are, and no Unix sockets can be created.
        """
        if not self.order.brokered and not self._connects:
            return
        lacking = broker_process.shortfall()
        for layer in ("seccomp", "landlock"):
            lacking = lacking if layer in self.held else f"it needs {layer}"
        if not lacking and landlock.version() < landlock.SINCE_TRUNCATE:
            lacking = "Landlock is too old"
        if lacking:
            if self.order.brokered:
                self.refused[BROKER] = lacking
            return
        self._make_narrow_rules()
        self._make_filter()
        self.held.append(BROKER)

    def prepare(self, request: dict[str, Any]) -> list[tuple[int, str]]:
        """Get what a start needs and its thread could no longer get: trees to attach, and rules for them."""
        trees = [(self._outer(request["tmp"]), mounts.TMP)] if request["tmp"] else []
        if trees:
            visible = self._below_tmp if self._outer_tmp >= 0 else request["visible"]
            below = mounts.outermost(
                [path for path in visible if mounts.is_below(path, mounts.TMP) and os.path.exists(path)]
            )
            trees += [(syscalls.clone_tree(path), path) for path in below]
        own_tmp = [tree for tree, _ in trees[:1]]
        if not self.order.private_tmp and "read-only" in self.held:
            for path in request["writable"]:  # in the machine's /tmp, which may be granted for reading only
                trees.append((syscalls.clone_tree(path), path))
                syscalls.set_tree_writable(trees[-1][0])
        laid: list[int] = []
        if self.lays_code:
            assert self.shelf is not None
            laid.append(self.shelf.lay(request["start"]))
            trees.append((laid[0], self.shelf.own))
        if own_tmp or laid or request["writable"]:
            self._allow_for_one(own_tmp, laid, request["writable"])
        return trees

    def _allow_for_one(self, own_tmp: list[int], laid: list[int], writable: list[str]) -> None:
        """Add rules for one start's own folders; those of earlier starts are dropped now and then."""
        if self._rules is None:
            return
        self._added += 1
        if self._added > FRESH_RULES:
            self._rules.close()
            self._make_rules()
            if self._narrow is not None:
                self._narrow.close()
                self._make_narrow_rules()
        for rules in filter(None, (self._rules, self._narrow)):
            for tree in (*(own_tmp if rules is self._rules or self._tmp_is_direct else ()), *laid):
                rules.allow_opened(tree, landlock.WRITE)
            for path in writable:
                rules.allow(path, landlock.WRITE)
        for tree in laid:
            self._rules.allow_opened(tree, landlock.RUN)

    def outer_path(self, path: str) -> str:
        """Return the path of a folder of the machine's, which may be in the /tmp or the home that is covered here."""
        if self._outer_scratch >= 0 and mounts.is_below(path, self._scratch):
            return f"/proc/self/fd/{self._outer_scratch}/{os.path.relpath(path, self._scratch)}"
        if self._outer_tmp >= 0 and mounts.is_below(path, mounts.TMP):
            return f"/proc/self/fd/{self._outer_tmp}/{os.path.relpath(path, mounts.TMP)}"
        return path

    def arrange(self, trees: list[tuple[int, str]]) -> None:
        """Separate the calling thread's working folder from the others', and attach its mounts."""
        syscalls.unshare(syscalls.CLONE_NEWNS if trees else syscalls.CLONE_FS)
        for tree, path in trees:
            if path != mounts.TMP:
                mounts.make_mount_point(path, is_folder=os.path.isdir(f"/proc/self/fd/{tree}"))
            syscalls.attach(tree, path)
        if self.lays_code:
            assert self.shelf is not None
            self.shelf.clear()
        if trees:
            hidden_paths.check_covered(self._to_cover)

    @property
    def lays_code(self) -> bool:
        """Whether each start gets its own view of the plugin's folder."""
        return self.shelf is not None and self.shelf.is_laid

    def go_to(self, folder: str) -> None:
        """Enter the working folder, which the program may not be allowed to list."""
        if self.shelf is not None and not self.shelf.is_in_place():
            raise OSError(errno.ESTALE, UNSAFE)
        try:
            os.chdir(folder)
        except FileNotFoundError:
            if self._outer_tmp < 0 or not mounts.is_below(folder, mounts.TMP):
                raise
            os.makedirs(folder)  # it is in the machine's /tmp, which is covered
            os.chdir(folder)

    def confine(self, request: dict[str, Any]) -> tuple[list[int], OnDemand | None]:
        """Confine the calling thread permanently.

        Return what the host needs to listen, if requested: a listener, and a socket to the broker if there is one; and
        the broker that waits for the programs' calls, unless the host does.
        """
        if self.cpu:
            os.nice(cpu_share.NICE)  # of this thread and what it starts: the spawner itself must not be slowed down
        if self._rules is not None or self._filter:
            syscalls.prctl("no_new_privs", syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if self._rules is not None:
            self._rules.restrict()
        if self._narrow is not None:
            return self._confine_with_broker(request)
        if self._filter and self.order.recorded:
            return [seccomp.apply_and_listen(self._filter)], None
        if self._filter:
            seccomp.apply(self._filter)
        return [], None

    def _confine_with_broker(self, request: dict[str, Any]) -> tuple[list[int], OnDemand | None]:
        """Leave a broker in the wider domain, and continue in the narrower one."""
        assert self._narrow is not None
        order = self.order
        tmp = (mounts.TMP,) if request["tmp"] or (order.private_tmp and "read-only" in self.held) else ()
        direct = (*self._own, *NO_FILES, *request["writable"], *(tmp if self._tmp_is_direct else ()))
        roots = (*order.brokered, *(() if self._tmp_is_direct else tmp))
        named = self._own_names(request)
        own = (*self._own, *request["writable"], *tmp, *((mounts.SHM,) if "read-only" in self.held else ()))
        sockets = OwnFolders(own, (*order.readable, *order.writable, *order.executable)) if self._connects else None

        def start() -> tuple[int, int]:
            protected = Protected(self.order.protected, order.named, named)  # it may have grown by then
            return broker_process.start(roots, direct, protected, sockets, relayed=order.recorded)

        broker = OnDemand(start, self.brokers)
        if order.recorded:
            channel = broker.fork()
        else:
            broker.wait()
        listener = -1
        try:
            self._narrow.restrict()
            listener = seccomp.apply_and_listen(self._filter, killable=True)
        finally:
            broker.listen(listener)
        if not order.recorded:
            return [], broker
        packets.send(channel, broker_process.LISTEN, [listener])
        return [listener, channel.detach()], broker  # the host talks to it

    def _own_names(self, request: dict[str, Any]) -> list[str]:
        """Return the folders that links must not lead to: the plugin's own, or ours around them; and the kernel's."""
        own = (*self._own, *request["writable"], *filter(None, [request["tmp"]]))
        home = os.path.realpath(self.home) if self.home else ""
        ours = [self.home, home] if home else []
        return ["/proc", *ours, *(home if home and mounts.is_below(path, home) else path for path in own)]

    @property
    def _own(self) -> tuple[str, ...]:
        """The folders in which programs make changes themselves, even if they are in a granted one."""
        own = tuple(path for path in self.order.measured if path in self.order.writable)
        # Writes over a snapshot go to a measured folder, under another name.
        return (*own, self.shelf.own) if self.shelf is not None and self.shelf.is_overlaid else own

    @property
    def _tmp_is_direct(self) -> bool:
        """Return whether programs write to their /tmp directly: rules there also apply to granted folders below it."""
        return not any(mounts.is_below(path, mounts.TMP) or path == mounts.TMP for path in self.order.brokered)

    @property
    def _connects(self) -> bool:
        """Whether the broker connects sockets."""
        return seccomp.opens_own(self.order.network, unix=self.order.unix) and not self.order.recorded

    def extend(self, protected: tuple[str, ...], secret: tuple[str, ...]) -> str:
        """Protect and hide further paths from now on, also from what runs.

        Return a path among the first that exists and was not protected before: a program may have it open.
        """
        order = self.order
        before = Protected(order.protected, order.named)
        self.order = order.but(protected=(*order.protected, *protected), secret=(*order.secret, *secret))
        if BROKER not in self.held or not protected:
            return ""
        for broker in list(self.brokers):
            with broker.lock:  # either it is told, or it is forked later and knows
                channel = broker.channel
            if channel is None:
                continue
            try:
                for begin in range(0, len(protected), MOST_ADDED):
                    channel.send(packets.encode(protected[begin : begin + MOST_ADDED]))
                    channel.recv(len(broker_process.ADDED))
            except OSError:  # it has ended, and its programs can change nothing more
                continue
        now = Protected(self.order.protected, order.named)
        roots = tuple(f"{path.rstrip('/')}/" for path in order.brokered)
        for path in filter(os.path.lexists, protected):
            folder, name = os.path.split(path)
            real = os.path.realpath(folder)
            if f"{real}/".startswith(roots) and before.state(real, name) != CLOSED == now.state(real, name):
                return path
        return ""

    def let_go(self, broker: OnDemand) -> None:
        """Forget a broker that has ended, or whose programs have."""
        self.brokers.discard(broker)
        with broker.lock:
            channel, broker.channel = broker.channel, None
        if channel is not None:
            channel.close()

    def visible(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of these paths that programs could see if something appeared there."""
        order = self.order
        if "read-only" not in self.held:  # what appears later is in no rule, and so not visible
            return ()
        opened = (*order.readable, *order.writable)
        named = {*opened, *order.executable}
        real = {path: os.path.realpath(path) for path in paths}
        return tuple(
            path
            for path, leads_to in real.items()
            if not {path, leads_to} & named and any(mounts.is_below(leads_to, folder) for folder in opened)
        )

    def hidden_names(self) -> HiddenNames | None:
        """Watch what is covered, where programs could see it otherwise; None if there is nothing to watch."""
        paths = self.visible((*self.order.secret, *self.order.hidden))
        try:
            return HiddenNames(paths, self.order.hidden) if paths else None
        except OSError:  # the machine is out of watches: the next start gets a new sandbox in any case
            return None

    def _outer(self, path: str) -> int:
        """Copy a folder for a program's /tmp."""
        if self._outer_scratch >= 0 and mounts.is_below(path, self._scratch):
            tree = syscalls.clone_tree(os.path.relpath(path, self._scratch), self._outer_scratch)
        elif self._outer_tmp >= 0 and mounts.is_below(path, mounts.TMP):
            tree = syscalls.clone_tree(os.path.relpath(path, mounts.TMP), self._outer_tmp)
        else:
            tree = syscalls.clone_tree(path)
        if "read-only" in self.held:
            syscalls.set_tree_writable(tree)
        return tree

    def _open_doorway(self) -> None:
        """Listen in the empty network: a socket stays in the namespace where it was created."""
        try:
            mounts.bring_up_loopback()
            doorway = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            doorway.bind(("127.0.0.1", 0))
            doorway.listen(BACKLOG)
        except OSError as error:
            if not mounts.is_refusal(error):
                raise
            self.held.remove("network")
            self.refused["network"] = str(error.strerror or error)
        else:
            self.doorway = doorway
            self.order = self.order.but(ports=(self.doorway.getsockname()[1],))

    def _share_cpu(self) -> None:
        if self.cpu == cpu_share.SESSIONS and "mounts" in self.held:
            self.proc = f"/proc/self/fd/{syscalls.clone_tree('/proc')}"
        if self.cpu:
            self.held.append("cpu")

    def _limit(self) -> None:
        limits = self.order.limits
        if "limits" not in self.order.layers:
            return
        self.most_processes = limits["processes"]
        if not self._user_namespace:
            self.most_processes += _tasks_of_this_user()  # the kernel counts them all
        for what, value in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_DATA, limits["memory"]),
            (resource.RLIMIT_FSIZE, limits["file_size"]),
            (resource.RLIMIT_NOFILE, limits["open_files"]),
            (resource.RLIMIT_NPROC, self.most_processes + FOR_BROKERS),
            (resource.RLIMIT_NICE, 0),  # some machines let users raise their own priority
            (resource.RLIMIT_RTPRIO, 0),
        ):
            hard = resource.getrlimit(what)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(what, (most, most))
        if "pids" in self.held:
            mounts.limit_processes(limits["processes"] + FOR_BROKERS)
        self.held.append("limits")

    def _furnish(self) -> None:
        order = self.order
        if order.shown is not None:
            self.shelf = OwnFolderMount(**order.shown)
        if order.private_tmp:
            self._outer_tmp = os.open(mounts.TMP, os.O_PATH | os.O_CLOEXEC)
        scratch = os.path.join(self.home, SCRATCH) if self.home else ""
        if scratch and os.path.isdir(scratch):
            self._scratch, self._outer_scratch = scratch, syscalls.name(scratch)
        self._to_cover = hidden_paths.identities(order.hidden)
        self._below_tmp = mounts.furnish(
            (*order.readable, *order.writable, *order.executable),
            order.writable,
            order.hidden,
            order.code,
            order.pinned,
            private_tmp=order.private_tmp,
            tmp_bytes=order.limits["tmp"],
            shelf=self.shelf,
        )
        hidden_paths.check_covered(self._to_cover)
        self.held.append("read-only")
        if self.shelf is not None:
            self.held.append("snapshot")
            if self.shelf.refused:
                self.refused["overlay"] = self.shelf.refused

    def _make_rules(self) -> None:
        order = self.order
        ports = None if order.network == "all" else tuple(order.ports)
        scopes = 0
        if landlock.version() >= landlock.SINCE_SCOPES:
            scopes = landlock.SCOPE_SIGNALS | (0 if order.unix else landlock.SCOPE_ABSTRACT_SOCKETS)
        rules = landlock.Ruleset(ports=ports, scopes=scopes)
        covered = "read-only" in self.held
        # Code of a plugin that does not write next to it is not writable, mounts or not.
        kept = tuple(path for path in order.code if not any(mounts.is_below(path, own) for own in order.measured))
        for paths, rights, left_out in (
            (order.executable, landlock.RUN, order.hidden),
            (order.readable, landlock.READ, order.hidden),
            (order.writable, landlock.WRITE, (*order.hidden, *kept)),
        ):
            for path in paths:
                beside = (*(() if covered else left_out), *(NO_FILES if path == "/" else ()))
                for part, of_part in around(path, rights, beside):
                    rules.allow(part, of_part)
        for name in DEVICES:
            rules.allow(os.path.realpath(f"/dev/{name}"), landlock.DEVICE)
        for name in SEEN_IN_SYS:
            rules.allow(os.path.realpath(f"/sys/{name}"), landlock.READ)
        rules.allow("/proc", landlock.READ)
        if covered:
            for path in (mounts.SHM, *((mounts.TMP,) if order.private_tmp else ())):
                rules.allow(os.path.realpath(path), landlock.WRITE)
        self._rules, self._added = rules, 0

    def _make_narrow_rules(self) -> None:
        """Allow changes only in the plugin's own folders; in granted ones the broker makes them."""
        order = self.order
        scopes = 0
        if landlock.version() >= landlock.SINCE_SCOPES:  # so that the broker cannot be killed either
            scopes = landlock.SCOPE_SIGNALS | (0 if order.unix else landlock.SCOPE_ABSTRACT_SOCKETS)
        rules = landlock.Ruleset(ports=None, scopes=scopes, about=landlock.CHANGE)
        files = (path for path in order.writable if not os.path.isdir(path))  # each of them named by a grant
        for path in (*self._own, *files):
            rules.allow(path, landlock.WRITE)
        for name in DEVICES:
            rules.allow(os.path.realpath(f"/dev/{name}"), landlock.DEVICE)
        if "read-only" in self.held:
            for path in (mounts.SHM, *((mounts.TMP,) if order.private_tmp and self._tmp_is_direct else ())):
                rules.allow(os.path.realpath(path), landlock.WRITE)
        self._narrow = rules

    def _make_filter(self) -> None:
        order = self.order
        self._filter = seccomp.build(
            order.network,
            unix=order.unix,
            watches=order.watches,
            asks=order.recorded,
            brokered=self._narrow is not None and bool(order.brokered),
            own_sockets=self._narrow is not None and self._connects,
        )


def around(path: str, rights: int, hidden: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return rules for a folder that leave out what is hidden, where no mount can cover it.

    The names in its parent folders can be listed; a file that is created there later is not visible.
    """
    if not any(mounts.is_below(folder, path) for folder in hidden):
        return [(path, rights)]
    found = [(path, rights & landlock.READ_DIR)]
    for name in os.listdir(path):
        child = os.path.join(path, name)
        if child not in hidden and not os.path.islink(child):
            found += around(child, rights, hidden)
    return found


def _tasks_of_this_user() -> int:
    """Count the threads of all of this user's processes."""
    found = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                found += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return found
