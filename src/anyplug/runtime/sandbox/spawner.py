"""The spawner: a small process that starts one plugin's programs, confined.

It is a fork of the zygote, with a socket to its host. The first packet on that is its order: the fields of an `Order`
(`packets` defines the encoding). It applies the order's layers one by one and answers with a word: what is enforced,
and what was refused and why. A descriptor of its process comes with the word and, for an order of `hosts`, a listening
socket, the only way out of the empty network. Then each request is one packet; four file descriptors come with a start:
stdin, stdout, stderr, and a pipe on which it reports how that program ended.

    {"start": ID, "argv": [...], "env": {...}, "cwd": "...", "tmp": "...", "visible": [...], "writable": [...],
     "cpu_s": 600}
    {"signal": ID, "number": 15}
    {"protected": [...], "secret": [...]}: further paths, also for what runs; one descriptor comes with it
    -> on the pipe: `exit CODE [REASON]`, or `error ERRNO TEXT`; `extended` for further paths

When the host sends no more, the spawner kills all programs, answers `ended` on the socket, and exits. The kernel may
take 30 ms longer to take the sandbox apart.

If the order says `recorded`, each confined thread sends one packet with a descriptor on the socket: its holder is asked
about what the thread's programs open, execute and connect to (`syscall_recorder`).

Mounts, Landlock and seccomp belong to a thread. One is confined at the first start and serves all that follow; a start
with its own /tmp gets its own thread. Nothing else ever happens in a confined thread. With a pid namespace the spawner
is its process 1, so that the kernel kills everything with it; when the socket closes, the host is gone, and the spawner
exits. Needs nothing but the standard library, and little of that: the first call of a host waits for the zygote's
start. `json`, `socket`, `signal`, `threading` and `typing` would take longer than the interpreter.
"""

from __future__ import annotations

import _thread
import errno
import gc
import os
import resource
import select
import time

from anyplug.runtime.sandbox import packets
from anyplug.runtime.sandbox.linux import cpu_share, mounts, syscalls
from anyplug.runtime.sandbox.linux.apply import Confinement
from anyplug.runtime.sandbox.linux.enforced_order import Order
from anyplug.runtime.sandbox.linux.memory_and_disk import Watch, is_running, mark_of, other_processes, wear, wears

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    import _socket
    import signal
    from typing import Any

    from anyplug.runtime.sandbox.linux.broker.broker_process import OnDemand
else:
    import _signal as signal

LARGEST_REQUEST = 1 << 18  # bytes
PASSED = 4  # file descriptors with each start
LOOK_S, CALM_LOOK_S = 0.5, 2.0  # between checks of what the programs use: soon after a start, and later
CALM_S = 30.0  # after the last start
REAPED_AT_ONCE = 256  # orphans before other work gets a turn: a plugin can create them as fast as we reap them
FIRST_TO_GO = 500  # for the kernel's OOM killer: rather a plugin than what the user works with
COLLECT = 256  # starts between garbage collections, which must not happen in a confined thread
BROKER_GONE = "the broker that changes granted folders and connects sockets for it was killed"
EXPOSED = "{} is hidden from it, and appeared or was replaced while it ran: call it again"
NO_LONGER_ITS = "{} may be code of another plugin now, so that it may not change it any more: call it again"
EXTENDED = "extended"
SWEEPS, SWEEP_PAUSE_S = 200, 0.001  # how often, and how soon again, we check whether what was killed is gone


class Started:
    """A running program."""

    def __init__(self, number: int, pipe: int, mark: int, folders: tuple[str, ...], broker: OnDemand | None) -> None:
        """`folders` are its own folders; `broker` makes changes for it, if any."""
        self.number, self.pipe, self.mark, self.folders, self.broker = number, pipe, mark, folders, broker


class ConfinedThread:
    """A permanently confined thread that only starts programs, one at a time."""

    def __init__(
        self,
        requests: _socket.socket,
        confinement: Confinement,
        trees: list[tuple[int, str]],
        *,
        is_for_one: bool = False,
    ) -> None:
        self._requests = requests
        self._confinement = confinement
        self._trees = trees
        self._is_for_one = is_for_one
        self._is_confined = False
        self.broker: OnDemand | None = None  # makes changes for its programs
        self._asked, self._answered = _thread.allocate_lock(), _thread.allocate_lock()
        self._asked.acquire()
        self._answered.acquire()
        self._request: dict[str, Any] = {}
        self._stdio: list[int] = []
        self._outcome: list[int | OSError] = []
        try:
            _thread.start_new_thread(self._serve, ())
        except RuntimeError as error:  # the plugin's own programs are as many as allowed
            for tree, _ in trees:
                os.close(tree)
            raise OSError(errno.EAGAIN, "it has as many processes as allowed") from error

    def start(self, request: dict[str, Any], stdio: list[int]) -> int:
        """Start a program; return its process. Raises OSError."""
        self._request, self._stdio = request, stdio
        self._asked.release()
        self._answered.acquire()
        outcome = self._outcome.pop() if self._outcome else OSError(errno.EIO, "the thread that should start it failed")
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    def _serve(self) -> None:
        while True:
            self._asked.acquire()
            if not self._request:  # it is retired
                return
            try:
                self._outcome.append(self._spawn())
            except OSError as error:
                self._outcome.append(error)
            except Exception as error:  # noqa: BLE001 - such as a zero byte in an argument; the waiting thread needs it
                self._outcome.append(OSError(errno.EINVAL, str(error)))
            finally:
                self._answered.release()
            if self._is_for_one:
                return

    def retire(self) -> None:
        """End the thread, which has nothing more to start."""
        self._request = {}
        self._asked.release()

    def _spawn(self) -> int:
        request = self._request
        if not self._is_confined:
            self._confinement.arrange(self._trees)
        self._confinement.go_to(request["cwd"])
        if not self._is_confined:
            listeners, self.broker = self._confinement.confine(request)
            self._is_confined = True
            if listeners:
                packets.send(self._requests, b"listen", listeners)
                for fd in listeners:
                    os.close(fd)
        return os.posix_spawn(
            request["argv"][0],
            request["argv"],
            request["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(self._stdio)],
            setpgroup=0,  # in the spawner's session, which the kernel counts as one plugin
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them; programs must not
        )


class Spawner:
    """The running programs, by process id."""

    def __init__(self, requests: _socket.socket, confinement: Confinement) -> None:
        self._requests = requests
        self._confinement = confinement
        self._running: dict[int, Started] = {}
        self._reasons: dict[int, str] = {}  # by process, why it was killed
        self._marks = "limits" in confinement.held
        self._is_init = "pids" in confinement.held
        self._has_sessions = confinement.cpu == cpu_share.SESSIONS
        self._hidden = confinement.hidden_names()
        self._is_exposed = False  # something that must be hidden is visible, or may be open: start nothing more
        self._watch = Watch(confinement.order.limits, confinement.order.measured) if self._marks else None
        self._thread: ConfinedThread | None = None
        self._looked = self._started = 0.0
        self._starts = 0
        self._has_more = False  # to reap
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # The second, because some kernels let a plugin signal its process 1, which must not take it for Ctrl-C.
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        gc.disable()

    def serve(self) -> None:
        """Answer until the host is gone."""
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        watched = -1
        while True:
            if self._hidden is not None and self._hidden.fd != watched:  # there may be something to watch only later
                watched = self._hidden.fd
                poll.register(watched, select.POLLIN)
            watching = self._watch is not None and bool(self._running)
            pause = LOOK_S if time.monotonic() - self._started < CALM_S else CALM_LOOK_S
            wait_ms = 0 if self._has_more else pause * 1000 if watching else None
            ready = {fd for fd, _ in poll.poll(wait_ms)}
            if self._hidden is not None and self._hidden.fd in ready and (path := self._hidden.stirred()):
                self.end_exposed(EXPOSED.format(path))
            self.reap()
            if self._is_exposed and not self._running:
                return
            if watching and time.monotonic() - self._looked >= pause:
                self.look()
            if self._requests.fileno() in ready and not self.answer():
                return

    def answer(self) -> bool:
        """Handle one request; return False if there will be no more."""
        packet, fds = packets.receive(self._requests, LARGEST_REQUEST, PASSED)
        if not packet:
            return False
        request = packets.decode(packet)
        if "protected" in request:
            self.extend(request["protected"], request["secret"])
            for fd in fds:
                say(fd, EXTENDED)
            return True
        # A start with fewer descriptors means that we have too many open; the host sees its pipe closed.
        if "signal" in request or len(fds) != PASSED:
            for fd in fds:
                os.close(fd)
            if "signal" in request:
                self.signal(request["signal"], request["number"])
            return True
        *stdio, pipe = fds
        try:
            pid, mark, broker = self.start(request, stdio)
            self._running[pid] = Started(request["start"], pipe, mark, self.mind(request), broker)
        except OSError as error:
            say(pipe, f"error {error.errno or 0} {self.explain(error, request['argv'][0])}")
        finally:
            for fd in stdio:
                os.close(fd)
        return True

    def start(self, request: dict[str, Any], stdio: list[int]) -> tuple[int, int, OnDemand | None]:
        """Start one program; return its process, its mark, which we wear only meanwhile, and its broker.

        Raises OSError.
        """
        if not self._is_exposed and self._hidden is not None and (path := self._hidden.exposed()):
            self.end_exposed(EXPOSED.format(path))
        if self._is_exposed:
            raise OSError(errno.ESTALE, "what is hidden from it has changed: call it again")
        self._started = time.monotonic()
        self._starts += 1
        if self._starts % COLLECT == 0:
            gc.collect()
        mark = mark_of(request["start"])
        if self._marks:
            wear(mark)
        try:
            thread = self.thread_for(request)
            pid = thread.start(request, stdio)
        finally:
            if self._marks:
                wear(None)
        if self._confinement.most_processes:
            limit(pid, resource.RLIMIT_NPROC, self._confinement.most_processes, 0)
        if request["cpu_s"]:
            limit(pid, resource.RLIMIT_CPU, request["cpu_s"], 1)
        return pid, mark, thread.broker

    def thread_for(self, request: dict[str, Any]) -> ConfinedThread:
        """Return the shared thread, or a new one for a start with its own folders."""
        if request["tmp"] or request["writable"] or self._confinement.lays_code:
            return ConfinedThread(
                self._requests, self._confinement, self._confinement.prepare(request), is_for_one=True
            )
        broker = self._thread.broker if self._thread is not None else None
        is_gone = (
            broker is not None and broker.pid and not (broker in self._confinement.brokers and is_running(broker.pid))
        )
        if self._thread is not None and is_gone:
            self._thread.retire()
            self._thread = None
        if self._thread is None:
            self._thread = ConfinedThread(self._requests, self._confinement, [])
        return self._thread

    def _has_lost(self, broker: OnDemand | None) -> bool:
        """Return whether a broker was there and has ended."""
        if broker is None or not broker.pid:
            return False
        return broker not in self._confinement.brokers or not is_running(broker.pid)

    def mind(self, request: dict[str, Any]) -> tuple[str, ...]:
        """Include a start's own folders in the disk limit; return them."""
        wanted = [path for path in (request["tmp"], *request["writable"]) if path]
        folders = tuple(map(self._confinement.outer_path, wanted)) if self._watch is not None else ()
        for folder in folders:
            assert self._watch is not None
            self._watch.begin(folder)
        return folders

    def explain(self, error: OSError, program: str) -> str:
        """Return why a program was not started, where the kernel's error alone would mislead people."""
        named = program
        if self._confinement.shelf is not None:
            program = self._confinement.shelf.outer(program)
        if error.errno == errno.EACCES and "landlock" in self._confinement.held and os.access(program, os.X_OK):
            return f"its permissions do not allow it to execute {named}, or the interpreter that this names"
        return str(error.strerror or error)

    def signal(self, wanted: int, number: int) -> None:
        """Send a signal to the group of a program that still runs."""
        for pid, started in self._running.items():
            if started.number == wanted:
                kill_group(pid, number)

    def reap(self) -> None:
        """Report all that has ended; kill the rest of a group before its number is free."""
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass
        self._has_more = False
        reaped = 0
        while (ended := ended_child()) is not None:
            if reaped == REAPED_AT_ONCE:
                self._has_more = True
                break
            reaped += 1
            kill_group(ended, signal.SIGKILL)
            _, status = os.waitpid(ended, 0)
            if (broker := self._brokers().get(ended)) is not None:
                self.lose(broker, status)
            started = self._running.pop(ended, None)
            if started is not None:
                if self._marks and has_children():
                    self.sweep({started.mark})
                for folder in started.folders:
                    assert self._watch is not None
                    self._watch.end(folder)
                if self._confinement.shelf is not None:
                    self._confinement.shelf.ended(started.number)
                reason = self._reasons.pop(ended, "")
                say(started.pipe, f"exit {os.waitstatus_to_exitcode(status)} {reason}".rstrip())

    def _brokers(self) -> dict[int, OnDemand]:
        """Return the brokers that were forked, by process."""
        return {broker.pid: broker for broker in list(self._confinement.brokers) if broker.pid}

    def lose(self, broker: OnDemand, status: int) -> None:
        """Handle the end of a broker; if it was killed, kill its programs, which could change nothing more."""
        self._confinement.let_go(broker)
        left = {pid: started for pid, started in self._running.items() if started.broker is broker} if status else {}
        for pid in left:
            self._reasons.setdefault(pid, BROKER_GONE)
            kill_group(pid, signal.SIGKILL)
        if left and self._marks:
            self.sweep({started.mark for started in left.values()})

    def look(self) -> None:
        """Kill everything if it uses more than allowed."""
        assert self._watch is not None
        self._looked = time.monotonic()
        marks = {started.mark for started in self._running.values()}
        brokers = self._brokers()
        others = [pid for pid in other_processes() if pid not in brokers]
        mine = others if self._is_init else [pid for pid in others if wears(pid, marks)]
        if reason := self._watch.excess(mine):
            self._reasons = dict.fromkeys(self._running, reason)
            self.sweep(marks)
        elif self._has_sessions:
            cpu_share.demote_sessions(self._confinement.proc, mine)

    def extend(self, protected: tuple[str, ...], secret: tuple[str, ...]) -> None:
        """Protect and hide further paths; kill everything that may have one of them open, or can see it."""
        if path := self._confinement.extend(protected, secret):
            self.end_exposed(NO_LONGER_ITS.format(path))
        visible = self._confinement.visible(secret)
        if self._hidden is not None:
            if visible and (path := self._hidden.add(visible)):
                self.end_exposed(EXPOSED.format(path))
        elif visible:
            self._hidden = self._confinement.hidden_names()
            if path := next(filter(os.path.lexists, visible), ""):
                self.end_exposed(EXPOSED.format(path))

    def end_exposed(self, reason: str) -> None:
        """Kill everything, because something that must be hidden is visible, or something protected may be open."""
        self._is_exposed = True
        self._reasons = dict.fromkeys(self._running, reason)
        for pid in self._running:
            kill_group(pid, signal.SIGKILL)
        if self._marks:
            self.sweep({started.mark for started in self._running.values()})

    def sweep(self, marks: set[int]) -> None:
        """Kill what has these marks, wherever it has gone, and wait until it is gone."""
        is_all = self._is_init and marks >= {started.mark for started in self._running.values()}
        for _ in range(SWEEPS):
            brokers = self._brokers()
            others = (pid for pid in other_processes() if pid not in brokers)
            found = [pid for pid in others if (is_all or wears(pid, marks)) and is_running(pid)]
            if not found:
                return
            for pid in [-1] if is_all else reversed(found):  # all at once, or newest first: forking must not outrun us
                kill(pid, signal.SIGKILL)
            time.sleep(SWEEP_PAUSE_S)

    def kill_all(self) -> None:
        """Kill everything."""
        for pid in self._running:
            kill_group(pid, signal.SIGKILL)
        if self._marks:
            self.sweep({started.mark for started in self._running.values()})
        if self._is_init:
            kill(-1, signal.SIGKILL)
            wait_for_all()


def wait_for_all() -> None:
    """Wait for all children, including adopted orphans."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


def ended_child() -> int | None:
    """Return a child that has ended and is not yet waited for."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if ended is None else ended.si_pid


def has_children() -> bool:
    """Return whether any child is left, including adopted orphans."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_group(pid: int, number: int) -> None:
    """Send a signal to a group that may be gone."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def limit(pid: int, what: int, value: int, beyond: int) -> None:
    """Limit a program that has just started, and let it raise that only so far beyond.

    The limit cannot be our own: our seconds add up, and we need processes when the programs may have no more.
    """
    try:
        resource.prlimit(pid, what, (value, value + beyond))
    except (OSError, ValueError):  # it is gone, or already has a lower limit
        pass


def be_first_to_go() -> None:
    """Let the kernel kill this plugin before unconfined processes if the machine runs out of memory."""
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
            if int(file.read()) < FIRST_TO_GO:
                file.write(str(FIRST_TO_GO))
    except OSError:
        pass  # its usage is checked in any case


def say(pipe: int, text: str) -> None:
    """Answer on a pipe and close it. There may be no reader any more."""
    try:
        os.write(pipe, text.encode(errors="replace"))
    except OSError:
        pass
    os.close(pipe)


def introduce(requests: _socket.socket, confinement: Confinement, error: OSError | None) -> None:
    """Report what is enforced; pass on the host's descriptors: of us, and the way out of an empty network if any."""
    failure = ""
    if error is not None:
        where = f"{error.filename}: " if error.filename else ""
        failure = f"{where}{error.strerror or error}"
    is_refusal = error is not None and mounts.is_refusal(error)
    word = packets.write_word(confinement.held, confinement.refused, failure, is_refusal=is_refusal)
    doorway = confinement.doorway
    us = os.pidfd_open(os.getpid())
    packets.send(requests, word, [us] if doorway is None else [us, doorway.fileno()])
    os.close(us)
    if doorway is not None:
        doorway.close()


def main(requests: _socket.socket) -> None:
    """Apply the order, report what is enforced, serve."""
    confinement = Confinement(Order(**packets.decode(requests.recv(LARGEST_REQUEST))))
    if "cpu" in confinement.order.layers:
        confinement.cpu = cpu_share.enter()
    try:
        confinement.leave()
        if "pids" in confinement.held and os.fork():
            os._exit(0)  # the child is process 1 inside, and the zygote adopts it
        if "limits" in confinement.order.layers:
            be_first_to_go()
            syscalls.prctl("subreaper", syscalls.PR_SET_CHILD_SUBREAPER, 1)
        confinement.take()
    except OSError as error:
        introduce(requests, confinement, error)
        return
    introduce(requests, confinement, None)
    spawner = Spawner(requests, confinement)
    try:
        spawner.serve()
    finally:
        spawner.kill_all()
        try:
            packets.send(requests, packets.ENDED, [])
        except OSError:  # the host is gone
            pass
        os._exit(0)  # nothing here needs an orderly end
