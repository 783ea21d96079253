"""The host's side of the spawner: the same `Spawn` as the direct one, for programs that are confined.

One `ConfinedSpawn` is one spawner process, for one profile; without a profile it gives programs their own /tmp and
enforces nothing else. A profile names inodes: after an update of the plugin, create a new one. If the profile has
hosts, their proxy is here, too, and programs find it through their environment.
"""

import errno
import itertools
import os
import select
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.guardian import read
from anyplug.runtime.processes.program import Finished, Program, Receipt
from anyplug.runtime.sandbox import packets
from anyplug.runtime.sandbox.enforcement import (
    FIX_AND_TRY,
    LAYERS,
    NAMESPACES,
    PROXY,
    Enforcement,
    NotEnforceable,
    Shortage,
    Shortfall,
)
from anyplug.runtime.sandbox.linux import landlock, seccomp
from anyplug.runtime.sandbox.linux.memory_and_disk import mark_of
from anyplug.runtime.sandbox.outbox import Outbox
from anyplug.runtime.sandbox.profile import Profile, widened
from anyplug.runtime.sandbox.zygote_client import Offspring, ZygoteGone, zygote_of

if TYPE_CHECKING:  # the first is only for learning, the others only for granted hosts
    from anyplug.runtime.proxy.proxy_server import Asked, Proxy
    from anyplug.runtime.sandbox.linux.syscall_recorder import Recorder

NUMBER_BYTES = 7  # so that no two spawners use the same numbers, and a mark still limits nothing
START_S = 10.0  # it answers within milliseconds; a busy machine may need longer
EXTEND_S = 5.0  # it answers within milliseconds
MOST_AT_ONCE = 400  # paths in one packet
ANSWER_LIMIT = 4096  # bytes
ATTEMPTS = 2  # to create a spawner: the zygote may have been killed
EXITING = 0x4  # PF_EXITING, among the flags in /proc/PID/stat
PLAIN = ("mounts",)  # the layers without a profile
# What is given up, one after the other, where the kernel refuses it to everybody. A container that hides parts of its
# /proc lets us mount no other.
FRAGILE = ("pids",)
BARE = Profile(code=("/usr",))  # names nothing that could be missing or in the way, and needs every kind of mount
ELSEWHERE = "only Linux has namespaces, Landlock and seccomp"
NOT_LINUX = Shortfall("anything", ELSEWHERE, "use Linux, or let the plugin run unconfined")


class NamespacesRefused(Exception):
    """This machine does not let us create a mount namespace; the text is its answer."""


class Word(msgspec.Struct, frozen=True):
    """A spawner's report after applying its layers."""

    held: tuple[str, ...]
    refused: dict[str, str]
    failure: str
    is_refusal: bool = False  # the failure is the kernel's answer to everybody, rather than something that went wrong
    is_said: bool = True  # False: there is no report, and `failure` tells why


class ConfinedChild:
    """A program that the spawner started."""

    def __init__(self, spawn: "ConfinedSpawn", number: int, answers: int) -> None:
        self._spawn = spawn
        self._number = number
        self.fd = answers

    @property
    def pid(self) -> int | None:
        """The program's process as this side knows it; searched for, since the spawner's numbers are its own."""
        return self._spawn.find(self._number)

    def poll(self) -> Finished | None:
        """Return how it ended, or None while it runs."""
        try:
            answer = os.read(self.fd, ANSWER_LIMIT).decode()
        except BlockingIOError:
            return None
        word, _, rest = answer.partition(" ")
        number, _, reason = rest.partition(" ")
        if word == "exit":
            return Finished(ending="exited", exit_code=int(number), reason=reason)
        if word == "error":
            return Finished(ending="not_started", errno=int(number), reason=reason)
        self._spawn.is_doubted = True
        return Finished(ending="lost", reason="the process that started it is gone")

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""
        self._spawn.send({"signal": self._number, "number": int(number)})

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.fd)


class ConfinedSpawn:
    """Starts programs through one spawner process, confined to one profile."""

    def __init__(
        self,
        guard: Guard,
        profile: Profile | None = None,
        *,
        layers: tuple[str, ...] = LAYERS,
        tolerant: bool = False,
        recorder: "Recorder | None" = None,
        owner: str = "NAME",
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start the spawner and wait for its report. Blocks for about 10 ms, the first for 25: call it in a thread.

        A recorder receives what the programs do, and is closed with this. `owner` is the plugin; `tell` is called, in
        another thread, with each host that they were refused.

        Raises NotEnforceable if the profile cannot be enforced, unless `tolerant` (a person allowed it): then whatever
        possible is enforced. Without a profile raises NamespacesRefused. Raises Shortage if no spawner can be created
        now.
        """
        if sys.platform != "linux":
            raise NamespacesRefused(ELSEWHERE) if profile is None else NotEnforceable((NOT_LINUX,))
        self.profile = profile
        self._guard = guard
        self._is_recorded = recorder is not None
        self._recorder: Recorder | None = None  # once it is attached
        self._process: Offspring | None = None
        self._socket: socket.socket | None = None  # to the spawner, once there is one
        self._proxy: Proxy | None = None
        self._doorway: socket.socket | None = None  # until the proxy has it
        self._is_leaving = False  # it was told to end
        self.is_doubted = False  # after it dropped a program without a report
        self._owner = owner
        self._tell = tell
        # Marks are made of them, and without a pid namespace a spawner meets those of all others.
        self._numbers = itertools.count(int.from_bytes(os.urandom(NUMBER_BYTES), "big"))
        word = self._open_with(layers, tolerant=tolerant)
        self.enforcement = Enforcement(
            held=word.held, refused=word.refused, landlock=landlock.version(), is_root=os.getuid() == 0
        )
        if "pids" not in word.held:
            guard.must_sweep = True
        try:
            self._judge(word, tolerant=tolerant)
            self._serve_hosts(recorder)
        except BaseException:
            self.close()
            raise
        if recorder is not None and self.profile is not None:
            proxy_port = self._proxy.port if self._proxy is not None else 0
            held = self.profile
            plain = seccomp.build(held.network, unix=held.unix, watches=held.watches)
            recorder.attach(self._requests, plain, proxy_port)
            self._recorder = recorder

    @property
    def _requests(self) -> socket.socket:
        assert self._socket is not None  # otherwise `__init__` has raised
        return self._socket

    @property
    def receipt(self) -> Receipt:
        """What is in force, for the audit."""
        return self.enforcement.receipt(self.profile or Profile())

    def take_reached(self) -> list[tuple[str, int]]:
        """Return the hosts and ports to which its proxy connected since the last time."""
        return self._proxy.take_reached() if self._proxy is not None else []

    def __call__(self, program: Program, stdin: int, stdout: int, stderr: int) -> ConfinedChild:
        """Request a start; whether it succeeded comes with the first `poll`. Raises OSError if the spawner is gone."""
        number = next(self._numbers)
        limits_cpu = self.profile is not None and program.timeout_s > 0
        request = {
            "start": number,
            "argv": (_found(program), *program.argv[1:]),
            "env": program.env if self._proxy is None else self._told_of_proxy(program.env),
            "cwd": program.cwd,
            "tmp": program.tmp,
            "visible": program.visible,
            "writable": program.writable,
            "cpu_s": self.profile.limits.cpu_s if self.profile is not None and limits_cpu else 0,
        }
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            self._outbox.send(packets.encode(request), [stdin, stdout, stderr, writing])
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return ConfinedChild(self, number, reading)

    @property
    def is_alive(self) -> bool:
        """Whether the spawner is running, and the proxy if there is one."""
        is_up = self._process is not None and not self._is_leaving and not _is_hung_up(self._requests)
        if is_up and self.is_doubted and self._process is not None:
            is_up = not _is_exiting(self._process.pid)
        return is_up and (self._proxy is None or self._proxy.is_alive)

    def send(self, request: dict[str, int]) -> None:
        """Send a request without descriptors; if the spawner is gone, there is nothing to signal either."""
        try:
            self._outbox.send(packets.encode(request))
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            pass

    def extend(self, protected: Sequence[str], secret: Sequence[str]) -> bool:
        """Protect and hide further paths, also from what runs; return whether the spawner confirmed it.

        Programs that may have one of them open are ended. Blocks: call it in a thread. Raises OSError.
        """
        for begin in range(0, max(len(protected), len(secret)), MOST_AT_ONCE):
            some = slice(begin, begin + MOST_AT_ONCE)
            if not self._extend({"protected": [*protected[some]], "secret": [*secret[some]]}):
                return False
        return True

    def _extend(self, request: dict[str, list[str]]) -> bool:
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as answer:
            try:
                _wait_for(self._requests, select.POLLOUT)
                packets.send(self._requests, packets.encode(request), [writing])
            finally:
                os.close(writing)
            return _wait_for(answer, select.POLLIN) and bool(answer.read(ANSWER_LIMIT))

    def find(self, number: int) -> int | None:
        """Find the process of a start by its mark, among the children of the spawner."""
        if self._process is None:
            return None
        mark = b" %d " % mark_of(number)
        marked = (pid for pid in _children(self._process.pid) if mark in read(f"/proc/{pid}/limits"))
        return next(marked, None)

    def hang_up(self) -> None:
        """Let the spawner end, which kills what still runs, without waiting for it; not while it is recorded."""
        if self._socket is not None and self._recorder is None:
            self._is_leaving = True
            self._outbox.close()
            with suppress(OSError):  # it is gone
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the spawner, which kills what still runs, and wait until nothing is left. The kernel takes longer."""
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        if self._doorway is not None:
            self._doorway.close()
            self._doorway = None
        self.hang_up()
        if self._process is not None and self._has_ended_all():
            self._process.let_go()
        elif self._process is not None:
            self._process.end(START_S)
        self._process = None
        if self._socket is not None:
            self._socket.close()
        self._guard.spawners.discard(self)

    def _has_ended_all(self) -> bool:
        """Wait for the spawner's word that no program is left; return False if it has died without it."""
        assert self._socket is not None  # the process came through it
        self._socket.settimeout(START_S)
        try:
            while packet := self._socket.recv(ANSWER_LIMIT):
                if packet == packets.ENDED:
                    return True
        except OSError:
            pass
        return False

    def _open_with(self, layers: tuple[str, ...], *, tolerant: bool) -> Word:
        """Open with as many of these layers as go together here; the word says why each of the others does not.

        Without namespaces only where the kernel refuses them: what fails for this profile alone is a failure.
        """
        if self.profile is None:
            return self._open(PLAIN, None)
        wanted = _layers(self.profile, layers)
        word = self._open(wanted, self.profile)
        refused: dict[str, str] = {}
        if word.failure and word.is_said:
            self.close()
            refused = self._refused_to_everybody(wanted)
            if refused:
                word = self._open(tuple(layer for layer in wanted if layer not in refused), self.profile)
        if tolerant and self.profile.hosts and "network" not in word.held and not word.failure:
            # The person allowed it to run although nothing enforces these hosts.
            self.close()
            refused |= word.refused
            self.profile = widened(self.profile)
            kept = tuple(layer for layer in _layers(self.profile, layers) if layer not in refused)
            word = self._open(kept, self.profile)
        return msgspec.structs.replace(word, refused=word.refused | refused)

    def _refused_to_everybody(self, wanted: tuple[str, ...]) -> dict[str, str]:
        """Return the layers that the kernel refuses whatever a profile names, and its answer: found out by trying."""
        refused: dict[str, str] = {}
        for given_up in (FRAGILE, NAMESPACES):
            word = self._open(tuple(layer for layer in wanted if layer not in refused), BARE)
            self.close()
            if not word.is_refusal:
                break
            refused |= {layer: word.failure for layer in given_up if layer in wanted and layer not in refused}
        return refused

    def _open(self, layers: tuple[str, ...], profile: Profile | None) -> Word:
        """Start the process, send its order, and read its report."""
        self._guard.spawners.add(self)
        try:
            self._socket, self._is_leaving = self._spawned(), False
            self._outbox = Outbox(self._socket)
        except OSError as error:  # the machine is out of processes
            return _no_word(f"the spawner cannot be started: {error.strerror}")
        self._requests.settimeout(START_S)
        try:
            is_recorded = self._is_recorded and profile is self.profile
            self._requests.send(packets.encode(_order(layers, profile) | {"recorded": is_recorded}))
            packet, given = packets.receive(self._requests, ANSWER_LIMIT, 2)
        except TimeoutError:
            return _no_word(f"the spawner did not answer within {START_S:.0f}s")
        except OSError as error:
            return _no_word(f"the spawner cannot be reached: {error.strerror}")
        if not packet:
            return _no_word("the spawner ended at once")
        word = Word(*packets.read_word(packet))
        has_doorway = profile is not None and profile.network == "hosts" and "network" in word.held and not word.failure
        if len(given) < 1 + has_doorway:
            for fd in given:
                os.close(fd)
            return _no_word("the spawner cannot be used: too many files are open here")
        self._requests.setblocking(False)
        process, *doorways = given
        self._process = Offspring(process)
        for fd in doorways:
            self._doorway = socket.socket(fileno=fd)
        return word

    def _spawned(self) -> socket.socket:
        """Create a spawner; return our end of its socket. Raises OSError."""
        for attempt in range(ATTEMPTS):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                with theirs:
                    zygote_of(self._guard).make_spawner(theirs)
            except ZygoteGone:
                ours.close()
                if attempt == ATTEMPTS - 1:
                    raise
            except BaseException:
                ours.close()
                raise
            else:
                return ours
        raise AssertionError  # the last attempt returns or raises

    def _serve_hosts(self, recorder: "Recorder | None") -> None:
        """Start a proxy on the socket that was opened for it, if any; it also closes that."""
        if self._doorway is None or self.profile is None:
            return
        from anyplug.runtime.proxy.proxy_server import Proxy  # imports asyncio and ipaddress

        def heard(asked: "Asked") -> None:
            if recorder is not None:
                recorder.hear(asked.host, asked.port, refused=bool(asked.refusal))
            if asked.refusal:
                self._tell(asked.refusal)

        try:
            self._proxy = Proxy(self._doorway, self.profile.hosts, owner=self._owner, tell=heard)
        except OSError as error:
            raise Shortage(f"the proxy cannot be started: {error.strerror}") from error
        self._doorway = None
        self.enforcement = msgspec.structs.replace(self.enforcement, held=(*self.enforcement.held, PROXY))

    def _told_of_proxy(self, variables: dict[str, str]) -> dict[str, str]:
        from anyplug.runtime.proxy.requests import environment  # already imported with the proxy

        assert self._proxy is not None
        return environment(variables, self._proxy.port)

    def _judge(self, word: Word, *, tolerant: bool) -> None:
        if not word.is_said:
            raise Shortage(word.failure)
        if self.profile is None:
            if word.failure or "mounts" not in word.held:
                raise NamespacesRefused(word.failure or word.refused.get("mounts", "refused"))
            return
        if word.failure:
            raise Shortage(f"its sandbox could not be set up: {word.failure}", FIX_AND_TRY)
        shortfalls = self.enforcement.shortfalls(self.profile)
        if shortfalls and not tolerant:
            raise NotEnforceable(shortfalls)


def _no_word(why: str) -> Word:
    return Word((), {}, why, is_said=False)


def _wait_for(file: socket.socket | FileIO, event: int) -> bool:
    """Wait a limited time until a file is ready; return whether it is."""
    waits = select.poll()
    waits.register(file, event)
    return bool(waits.poll(EXTEND_S * 1000))


def _is_hung_up(peer: socket.socket) -> bool:
    """Return whether the other end is closed. A killed process closes it first, and is gone a moment later."""
    if peer.fileno() < 0:  # our own end is closed, too
        return True
    ends = select.poll()
    ends.register(peer, 0)  # hang-ups are always reported
    return bool(ends.poll(0))


def _is_exiting(pid: int) -> bool:
    """Return whether a process has begun to exit. It closes its files one by one, the pipes of programs first."""
    flags = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6:7]
    return not flags or bool(int(flags[0]) & EXITING)


def _found(program: Program) -> str:
    """Return the path of a program; a bare name is looked up in its own PATH. Raises FileNotFoundError."""
    name = program.argv[0]
    if "/" in name:
        return name
    import shutil  # takes 3 ms to import, and most programs have a path

    found = shutil.which(name, path=program.env.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return found


def probe(guard: Guard) -> Enforcement:
    """Find out what this kernel can enforce, by trying."""
    spawn = ConfinedSpawn(guard, Profile(), tolerant=True)
    spawn.close()
    return spawn.enforcement


def _layers(profile: Profile, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Drop the network namespace for plugins that may use the network; abstract sockets belong to one, too."""
    has_network = profile.network in {"ports", "all"} or (profile.unix and profile.network != "hosts")
    return tuple(layer for layer in LAYERS if layer in wanted and not (layer == "network" and has_network))


def _order(layers: tuple[str, ...], profile: Profile | None) -> dict[str, Any]:
    if profile is None:
        return {"layers": layers}
    fields: dict[str, Any] = msgspec.to_builtins(profile)
    for only_for_us in ("hosts", "unheld", "misled", "notes", "binding"):
        del fields[only_for_us]
    return fields | {"layers": layers, "code": (*profile.code, *profile.binding)}


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]
