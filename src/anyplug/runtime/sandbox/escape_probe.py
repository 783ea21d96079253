"""The child that tries to escape: reads the facts from its first argument, prints the result of each attempt as JSON.

    python -I -S - FACTS <probe.py          {"tcp": "", "raw": "Operation not permitted", ...}   empty: it escaped

Every attempt is harmless where it succeeds: it adds nothing, ends nothing, and sets clocks to what they show. Standard
library only; never imported by the host.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

FACTS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
SYSCALLS = {  # x86-64, 64-bit ARM
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "mount": (165, 40), "init_module": (175, 105),
    "memfd_create": (319, 279), "bpf": (321, 280), "keyctl": (250, 219), "unshare": (272, 97),
    "open_by_handle_at": (304, 265), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "shmget": (29, 194),
    "io_uring_setup": (425, 425), "shmat": (30, 196), "semctl": (66, 191), "msgctl": (71, 187), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "io_setup": (206, 0), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
}  # fmt: skip
ALLOWED_BUT_WRONG = {errno.EINVAL, errno.EFAULT, errno.ENOENT, errno.ESRCH, errno.ENOEXEC, errno.EBADF, errno.E2BIG}
PATIENCE_S = 5.0
CLONE_NEWUSER = 0x10000000
UDPLITE, MPTCP, NETLINK_GENERIC = 136, 262, 16
SO_ATTACH_FILTER, TCP_ULP = 26, 31
F_SETLEASE, FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 1024, 0x80086601, 0x40086602
IN_CREATE = 0x100

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name: str, *arguments: Any) -> int:
    """Make a system call with arguments that fail; what counts is whether the kernel got as far as checking them."""
    number = SYSCALLS[name][os.uname().machine == "aarch64"]
    result: int = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0 and ctypes.get_errno() not in ALLOWED_BUT_WRONG:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read(path: str) -> None:
    """Read a file."""
    with open(path, "rb") as file:
        file.read(1)


def append(path: str) -> None:
    """Open a file to write."""
    with open(path, "ab"):
        pass


def create(path: str) -> None:
    """Create a file, and remove it again."""
    append(path)
    os.unlink(path)


def read_through(make: Callable[[str, str], None], path: str) -> None:
    """Read a file through a link to it, or another name for it."""
    link = os.path.join(FACTS["data"], "link")
    make(path, link)
    try:
        read(link)
    finally:
        os.unlink(link)


def rename(path: str, other: str) -> None:
    """Move a folder, and back."""
    os.rename(path, other)
    os.rename(other, path)


def connect(family: int, kind: int, address: Any) -> None:
    """Connect to an address."""
    with socket.socket(family, kind) as peer:
        peer.settimeout(PATIENCE_S)
        peer.connect(address)
        peer.send(b"x")


def connect_through(link: Callable[[str, str], None], path: str) -> None:
    """Connect to a socket by another name for it."""
    name = os.path.join(FACTS["data"], "name")
    link(path, name)
    try:
        connect(socket.AF_UNIX, socket.SOCK_STREAM, name)
    finally:
        os.unlink(name)


def listen_anywhere() -> None:
    """Listen without naming a port: the kernel chooses one."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.listen()


def make(family: int, kind: int, protocol: int) -> None:
    """Create a socket."""
    socket.socket(family, kind, protocol).close()


def change_protocol() -> None:
    """Turn a TCP socket into something else."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        try:
            one.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        except OSError as error:
            if error.errno not in {errno.ENOTCONN, errno.ENOENT}:
                raise


def load_program() -> None:
    """Load a program of ours into the kernel that runs on each packet."""
    one, other = socket.socketpair()
    with one, other:
        steps = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0xFFFF), 8)
        one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(steps)))


def hold_up_others() -> None:
    """Take a lease on a file of our own: anyone who opens it, also the host, then waits for us."""
    path = os.path.join(FACTS["data"], "leased")
    with open(path, "w", encoding="ascii") as file:
        os.unlink(path)
        fcntl.fcntl(file, F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, F_SETLEASE, fcntl.F_UNLCK)


def set_attributes() -> None:
    """Set attributes to what they are, with a descriptor that was opened for reading."""
    fd = os.open(FACTS["data"], os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FS_IOC_SETFLAGS, fcntl.ioctl(fd, FS_IOC_GETFLAGS, bytes(8)))
    finally:
        os.close(fd)


def watch(folder: str) -> None:
    """Receive the names of files created in a folder."""
    fd = call("inotify_init1", 0)
    try:
        call("inotify_add_watch", fd, os.fsencode(folder), IN_CREATE)
    finally:
        os.close(fd)


def see_shared_memory() -> None:
    """Find the host's shared memory in the list of all."""
    with open("/proc/sysvipc/shm", encoding="ascii") as file:
        if not any(line.split()[1] == str(FACTS["shared_memory"]) for line in file):
            raise OSError(errno.ENOENT, "that is another list")


def set_priority_of_another() -> None:
    """Set the priority of our parent to what it is."""
    other = os.getppid()
    os.setpriority(os.PRIO_PROCESS, other, os.getpriority(os.PRIO_PROCESS, other))


def raise_priority() -> None:
    """Raise our priority, and lower it again."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    os.setpriority(os.PRIO_PROCESS, 0, before)


def be_real_time() -> None:
    """Switch to real-time scheduling, and back."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def lend_rights() -> None:
    """Create a set-user-ID file."""
    path = os.path.join(FACTS["data"], "lent")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4700))
    mode = os.stat(path).st_mode
    os.unlink(path)
    if not mode & 0o4000:
        raise OSError(errno.EPERM, "its mode was changed")


def pair_to_path(path: str) -> None:
    """Point one of a pair of sockets at another address."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"x", path)


def run(*command: str) -> None:
    """Run a program; raises OSError if it fails."""
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise OSError(errno.EACCES, done.stderr.decode(errors="replace").strip()[-200:] or f"exit {done.returncode}")


def run_from_memory(path: str) -> None:
    """Run a program that is in no folder."""
    fd = call("memfd_create", b"x", 0)
    with open(path, "rb") as program:
        os.write(fd, program.read())
    run(f"/proc/{os.getpid()}/fd/{fd}")


def look_into(pid: int) -> None:
    """Read another process's memory."""
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    call("process_vm_readv", pid, ctypes.byref(here), 1, ctypes.byref(here), 1, 0)


def set_clock() -> None:
    """Set the clock to what it shows."""
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))


def limit(pid: int) -> None:
    """Set another process's limits to what they are."""
    resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE))


def lose_mark(what: int) -> None:
    """Set one of our own limits."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (soft, hard))


def see_command_line(pid: int) -> None:
    """Read another process's command line."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        if FACTS["host_word"].encode() not in file.read():
            raise OSError(errno.ENOENT, "that is another process")


def become_root() -> None:
    """Check whether we have capabilities."""
    with open("/proc/self/status", encoding="ascii") as file:
        if "CapEff:\t0000000000000000" in file.read():
            raise OSError(errno.EPERM, "no capabilities")


def attempts() -> dict[str, Callable[[], object]]:
    """Return all attempts by name, or only those that remain where a folder may be written to."""
    if FACTS.get("only") == "protected":
        return {**on_hidden_paths(), **on_protected_paths()}
    return {
        **on_files(),
        **on_hidden_paths(),
        **on_protected_paths(),
        **on_the_network(),
        **on_programs(),
        **on_the_host(FACTS["host"]),
        **on_the_kernel(),
    }


def on_files() -> dict[str, Callable[[], object]]:
    """Return attempts to read or change what is not its own."""
    host = FACTS["host"]
    return {
        "read /etc/shadow": lambda: read("/etc/shadow"),
        "read the host's environment": lambda: read(f"/proc/{host}/environ"),
        "see the host's command line": lambda: see_command_line(host),
        "list the host's folder": lambda: FACTS["store_name"] in os.listdir(FACTS["home"]) or refuse(),
        "write to .bashrc": lambda: append(FACTS["bashrc"]),
        "write to another plugin": lambda: append(FACTS["other"]),
        "write to its own code": lambda: append(FACTS["code"]),
        "write a document": lambda: create(in_project("notes.txt")),
        "write into /usr": lambda: create("/usr/anyplug-escape"),
        "change a mode": lambda: os.chmod(FACTS["bashrc"], 0o600),
        "change a time": lambda: os.utime(FACTS["bashrc"]),
        "cut a file off": lambda: os.truncate(FACTS["bashrc"], 1),
        "hard-link a key": lambda: read_through(os.link, FACTS["key"]),
        "symlink to a key": lambda: read_through(os.symlink, FACTS["key"]),
        "lend its user's rights": lend_rights,
        "watch the user's folder": lambda: watch(os.path.dirname(FACTS["bashrc"])),
        "hold up who opens its files": hold_up_others,
        "set attributes by ioctl": set_attributes,
        "rename its folder": lambda: rename(FACTS["data"], FACTS["data"] + "-moved"),
    }


def on_hidden_paths() -> dict[str, Callable[[], object]]:
    """Return attempts to read what is hidden, even from a plugin that may write to all files."""
    return {
        "read a key": lambda: read(FACTS["key"]),
        "read a password": lambda: read(FACTS["password"]),
        "read a key among passwords": lambda: read(FACTS["inner_key"]),
        "read the host's store": lambda: read(FACTS["store"]),
        "read another plugin's config": lambda: read(FACTS["other"]),
    }


def on_protected_paths() -> dict[str, Callable[[], object]]:
    """Return attempts to leave something for other programs to run, in a folder that it may write to."""
    git = os.path.join(FACTS["project"], ".git")
    config, plain = os.path.join(git, "config"), os.path.join(FACTS["project"], "plain")
    return {
        "create a policy": lambda: make_folder(in_project(".cupcake")),
        "create a git hook": lambda: create(os.path.join(git, "hooks", "post-commit")),
        "create a git hook by a link": lambda: create_through(git),
        "create .envrc": lambda: create(in_project("sub", ".envrc")),
        "create .ENVRC": lambda: create(in_project(".ENVRC")),
        "rename a folder to .vscode": lambda: rename(in_project("sub"), in_project(".vscode")),
        "link a file as .mcp.json": lambda: link_as(plain, in_project(".mcp.json")),
        "name an unnamed file .npmrc": lambda: name_unnamed(in_project(".npmrc")),
        "write to git's settings": lambda: append(config),
        "write to git's settings by another name": lambda: append_linked(config),
        "cut git's settings off": lambda: os.truncate(config, os.stat(config).st_size),
        "replace git's settings": lambda: os.rename(copy_of(config), config),
        "remove git's settings": lambda: remove(config),
        "change the mode of git's settings": lambda: os.chmod(config, 0o600),
        "make another folder git's": lambda: rename(in_project("sub"), in_project("other", ".git")),
        "rename git's folder": lambda: rename(git, in_project("git")),
        "move a folder out of git's": lambda: move_out(git),
        "lay its own folder into the project": lambda: link_to(FACTS["data"], in_project("own")),
    }


def in_project(*names: str) -> str:
    """Return a path in the project."""
    return os.path.join(FACTS["project"], *names)


def make_folder(path: str) -> None:
    """Create a folder, and remove it again."""
    os.mkdir(path)
    os.rmdir(path)


def create_through(folder: str) -> None:
    """Create a file in a subfolder, through a link to the subfolder."""
    link = in_project("way")
    os.symlink(folder, link)
    try:
        create(os.path.join(link, "hooks", "post-merge"))
    finally:
        os.unlink(link)


def move_out(git: str) -> None:
    """Create a folder in git's, where a repository could be built, and move it to the project."""
    inner = os.path.join(git, "inner")
    os.mkdir(inner)
    try:
        rename(inner, in_project("inner"))
    finally:
        os.rmdir(inner)


def link_to(folder: str, name: str) -> None:
    """Create a link to a folder, and remove it again."""
    os.symlink(folder, name)
    os.unlink(name)


def link_as(path: str, name: str) -> None:
    """Add another name for a file, and remove it again."""
    os.link(path, name)
    os.unlink(name)


def append_linked(path: str) -> None:
    """Open a file to write, by another name that it gets in its own folder."""
    name = os.path.join(FACTS["data"], "linked")
    os.link(path, name)
    append(name)
    os.unlink(name)


def name_unnamed(path: str) -> None:
    """Name a file that has no name."""
    fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_WRONLY)
    os.link(f"/proc/self/fd/{fd}", path, follow_symlinks=True)
    os.unlink(path)


def copy_of(path: str) -> str:
    """Copy a file beside itself."""
    with open(path, "rb") as file, open(path + ".copy", "wb") as copy:
        copy.write(file.read())
    return path + ".copy"


def remove(path: str) -> None:
    """Remove a file, and put a copy in its place."""
    copy = copy_of(path)
    os.unlink(path)
    os.rename(copy, path)


def on_the_network() -> dict[str, Callable[[], object]]:
    """Return attempts to communicate with anybody."""
    stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
    local = ("127.0.0.1", FACTS["port"])
    return {
        "TCP": lambda: connect(socket.AF_INET, stream, local),
        "TCP to another port": lambda: connect(socket.AF_INET, stream, ("127.0.0.1", FACTS["other_port"])),
        "TCP over IPv6": lambda: socket.socket(socket.AF_INET6, stream).close(),
        "listen on TCP": lambda: socket.create_server(("127.0.0.1", 0)).close(),
        "listen on any port": listen_anywhere,
        "UDP": lambda: connect(socket.AF_INET, datagram, local),
        "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close(),
        "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close(),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close(),
        "MPTCP": lambda: make(socket.AF_INET, stream, MPTCP),
        "UDP-Lite": lambda: make(socket.AF_INET, datagram, UDPLITE),
        "ping": lambda: make(socket.AF_INET, datagram, socket.IPPROTO_ICMP),
        "generic netlink": lambda: make(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC),
        "the kernel's crypto": lambda: make(socket.AF_ALG, socket.SOCK_SEQPACKET, 0),
        "another protocol for a socket": change_protocol,
        "a program for a socket": load_program,
        "vsock": lambda: socket.socket(socket.AF_VSOCK, stream).close(),
        "a socket with a path": lambda: connect(socket.AF_UNIX, stream, FACTS["unix"]),
        "a socket by a link of its own": lambda: connect_through(os.symlink, FACTS["unix"]),
        "a socket linked into its own folder": lambda: connect_through(os.link, FACTS["unix"]),
        "an abstract socket": lambda: connect(socket.AF_UNIX, stream, "\0" + FACTS["abstract"]),
        "a path by a pair of sockets": lambda: pair_to_path(FACTS["unix_datagram"]),
    }


def on_programs() -> dict[str, Callable[[], object]]:
    """Return attempts to run what it may not."""
    return {
        "run git": lambda: run("/usr/bin/git", "--version"),
        "run curl": lambda: run("/usr/bin/curl", "--version"),
        "run git by the loader": lambda: run(FACTS["loader"], "/usr/bin/git", "--version"),
        "run git's own folder by the loader": lambda: run(FACTS["loader"], "/usr/lib/git-core/git", "--version"),
        "run from memory": lambda: run_from_memory(FACTS["program"]),
        "run what it wrote": lambda: run_copy(FACTS["program"]),
    }


def on_the_host(host: int) -> dict[str, Callable[[], object]]:
    """Return attempts to reach the host's process, or to escape from it."""
    return {
        "signal the host": lambda: os.kill(host, 0),
        "stop everything": lambda: os.kill(-1, 0) if host_is_seen(host) else refuse(),
        "ptrace": lambda: call("ptrace", 3, host, 0, 0),
        "read the host's memory": lambda: look_into(host),
        "limit the host": lambda: limit(host),
        "set another's priority": set_priority_of_another,
        "raise its priority": raise_priority,
        "run in real time": be_real_time,
        "lose the guardian's mark": lambda: lose_mark(10),
        "lose the call's mark": lambda: lose_mark(resource.RLIMIT_RSS),
    }


def on_the_kernel() -> dict[str, Callable[[], object]]:
    """Return attempts at what only a machine's owner should do."""
    return {
        "capabilities": become_root,
        "set the clock": set_clock,
        "mount": lambda: call("mount", b"none", b"/no/such/place", b"tmpfs", 0, None),
        "load a module": lambda: call("init_module", None, 0, None),
        "make a namespace": lambda: call("unshare", CLONE_NEWUSER),
        "io_uring": lambda: call("io_uring_setup", 1, None),
        "bpf": lambda: call("bpf", 0, None, 0),
        "keyring": lambda: call("keyctl", 0, -3, 0),
        "perf": lambda: call("perf_event_open", None, 0, -1, -1, 0),
        "userfaultfd": lambda: call("userfaultfd", 1),
        "open by handle": lambda: call("open_by_handle_at", -1, None, 0),
        "asynchronous input and output": lambda: call("io_setup", 1, None),
        "shared memory": lambda: call("shmget", 0x616E79, 1, 0),
        "see others' shared memory": see_shared_memory,
        "attach others' shared memory": lambda: call("shmat", FACTS["shared_memory"], None, 0o10000),
        "semaphores": lambda: call("semctl", -1, 0, 0, 0),
        "messages": lambda: call("msgctl", -1, 0, 0),
        "open others' message queue": lambda: call("mq_open", FACTS["queue"].encode(), 0, 0, None),
        "remove a message queue": lambda: call("mq_unlink", b"anyplug-none"),
    }


def refuse() -> NoReturn:
    """Raise the error for something that is not visible."""
    raise OSError(errno.ENOENT, "not seen")


def host_is_seen(host: int) -> bool:
    """Return whether the host's process is visible at all."""
    try:
        os.kill(host, 0)
    except OSError:
        return False
    return True


def run_copy(path: str) -> None:
    """Run a program that we wrote ourselves."""
    copy = os.path.join(FACTS["data"], "copy")
    with open(path, "rb") as program, open(copy, "wb") as file:
        file.write(program.read())
    os.chmod(copy, 0o700)
    try:
        run(copy)
    finally:
        os.unlink(copy)


def main() -> None:
    """Try everything."""
    signal.signal(signal.SIGSYS, signal.SIG_IGN)
    found = {}
    for name, attempt in attempts().items():
        try:
            attempt()
            found[name] = ""
        except (OSError, ValueError, subprocess.SubprocessError) as error:  # resource reports EPERM as a ValueError
            found[name] = getattr(error, "strerror", None) or str(error)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
