"""The guardian: a small process that kills everything a host started, once that host is gone.

    python -I -S guardian.py HOST_PID TAG TOKEN HOST_GROUP SCRATCH      stdin: a pipe that only the host holds

A process is the host's if its soft RLIMIT_LOCKS is TAG (that limit has had no effect since Linux 2.4 and is inherited
over fork, exec and setsid), or if TOKEN is in its environment. A byte on the pipe announces an orderly end: one sweep,
then exit; the host removes its scratch folder by itself. So does a pipe that closes while the host lives. The byte `-`
says that there is nothing to sweep: the kernel has ended all programs, with their pid namespaces. Runs as a
script with the standard library; our module that removes the scratch folder is imported last. `signal` would take
longer to import than the rest.
"""

import os
import resource
import select
import sys
import time

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

PACKAGES = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
GOODBYE = b"."  # what the host writes before an orderly end; otherwise we wait to see whether it dies
NOTHING_LEFT = b"-"  # the same, if nothing can be left of what it started
RLIMIT_LOCKS = 10  # Linux; `resource` has no name for it
THREADS = 17  # their number, among the fields of /proc/PID/stat after the name
SETTLE_MS = 5_000  # how long a dying host may take to be seen as dead after its pipe has closed, on a busy machine
QUIET_SWEEPS = 40  # sweeps without a match before we assume that nothing forks any more
BOUND_S = 10.0  # then we exit in any case


def read(path: str) -> bytes:
    """Read a file of /proc; empty if it is gone or not readable."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_marked(pid: int, tag: int, token: bytes) -> bool:
    """Return whether a process was started by our host, directly or indirectly."""
    try:
        if resource.prlimit(pid, RLIMIT_LOCKS)[0] == tag:
            return True
    except OSError:  # another user's process: the file tells the same
        if b" %d " % tag in read(f"/proc/{pid}/limits"):
            return True
    return token in read(f"/proc/{pid}/environ")


def is_dead(pid: int) -> bool:
    """Return whether only its entry in the process table is left. A zombie may have threads that run on."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return not fields or (fields[0] in b"ZX" and int(fields[THREADS]) <= 1)


def sweep(spared: set[int], tag: int, token: bytes, host_group: int) -> int:
    """Kill every marked process, newest first, in whole groups so that forking does not outrun us."""
    found = 0
    safe_groups = {0, 1, host_group, os.getpgrp()}
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        if pid in spared:
            continue
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if is_marked(pid, tag, token) and not is_dead(pid):
                group = os.getpgid(pid)
                signal.pidfd_send_signal(pidfd, 0)  # otherwise the number, and so the group, may be another's by now
                if group not in safe_groups:
                    os.killpg(group, signal.SIGKILL)
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                found += 1
        except OSError:
            pass
        finally:
            os.close(pidfd)
    return found


def wait_for_the_end(host: int) -> bytes:
    """Wait until the host dies (nothing) or ends in order (what it says)."""
    try:
        pidfd = os.pidfd_open(host)
    except OSError:
        return b""
    if os.getppid() != host:
        return b""
    either = select.poll()
    either.register(pidfd, select.POLLIN)
    either.register(0, select.POLLIN)
    either.poll()
    alone = select.poll()
    alone.register(pidfd, select.POLLIN)
    said = os.read(0, 1)
    return b"" if alone.poll(0 if said else SETTLE_MS) else said or GOODBYE


def main() -> None:
    """Wait, sweep, exit."""
    host, tag, token, host_group, scratch = sys.argv[1:]
    said = wait_for_the_end(int(host))
    if said == NOTHING_LEFT:
        return
    host_died = not said
    spared = {os.getpid()} if host_died else {os.getpid(), int(host)}
    quiet, until = 0, time.monotonic() + BOUND_S
    enough = QUIET_SWEEPS if host_died else 1
    while quiet < enough and time.monotonic() < until:
        quiet = 0 if sweep(spared, int(tag), token.encode(), int(host_group)) else quiet + 1
        if quiet < enough:
            time.sleep(0.002 if quiet < enough // 2 else 0.02)
    above, name = os.path.split(scratch)
    if host_died and scratch and os.path.isdir(above):
        for left in os.listdir(above):
            if left.startswith(name):  # one that had to be recreated has a longer name
                remove(os.path.join(above, left))


def remove(folder: str) -> None:
    """Remove the host's temporary folder; plugins wrote to it."""
    sys.path.append(PACKAGES)
    from anyplug.home import untrusted_files  # last, as the module says

    try:
        untrusted_files.remove(folder)
    except OSError:
        pass


if __name__ == "__main__":
    main()
