"""Drives confinement in a process of its own, as whoever runs it: `python sandbox_script.py CASES` prints JSON.

A case is [layers, grants]; the answer is a list of {attempt: how it was blocked, or ""}. Layers `null` are none
at all: the child is started directly, so that one sees what the attempts come to when nothing holds.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig

import anyio
import pytest

import forked_program

NOBODY = 65534
USERS = ("root", "ordinary")
FILES = {"read a key", "symlink to a key"}
CHANGES = {"write to .bashrc", "change a mode", "change a time", "cut a file off"}  # of a start-up file
DOCUMENT = {"write a document"}
PROTECTED = {
    "create a policy", "create a git hook", "create a git hook by a link", "create .envrc", "create .ENVRC",
    "rename a folder to .vscode", "link a file as .mcp.json", "name an unnamed file .npmrc", "write to git's settings",
    "write to git's settings by another name", "cut git's settings off", "replace git's settings",
    "remove git's settings", "change the mode of git's settings", "make another folder git's", "rename git's folder",
}  # fmt: skip
INTERNET = {
    "TCP", "TCP to another port", "TCP over IPv6", "listen on TCP", "listen on any port", "UDP", "netlink",
}  # fmt: skip
WATCHING = {"watch the user's folder"}
NAMED_SOCKETS = {
    "a socket with a path", "a socket by a link of its own", "an abstract socket", "a path by a pair of sockets",
}  # fmt: skip
GIT = {"run git", "run git by the loader", "run git's own folder by the loader"}
# What each grant opens; everything else stays shut.
OPENED = {
    (): set(),
    ("filesystem:read",): WATCHING,
    ("filesystem:read:{key}",): FILES,
    ("filesystem:read:~/.ssh",): FILES,
    ("filesystem:read:/etc/shadow",): {"read /etc/shadow"},
    ("filesystem:write",): DOCUMENT | WATCHING,
    ("filesystem:write:.",): DOCUMENT,
    ("filesystem:write:{bashrc}",): CHANGES,
    ("filesystem:write:~/.ssh",): FILES,
    ("filesystem:write:.git",): {
        "create a git hook",
        "write to git's settings",
        "cut git's settings off",
        "replace git's settings",
        "remove git's settings",
        "change the mode of git's settings",
    },
    ("network",): INTERNET,
    ("network:*:{port}",): {"TCP", "TCP over IPv6", "netlink"},
    ("network:127.0.0.1:{port}",): {"TCP over IPv6", "netlink"},  # sockets that lead nowhere but to the proxy
    ("network:unix",): NAMED_SOCKETS,
    ("network:*:{port}", "network:unix"): {"TCP", "TCP over IPv6", "netlink", *NAMED_SOCKETS},
    ("shell:exec",): {*GIT, "run curl"},
    ("shell:exec:git",): GIT,
    ("shell:exec:curl",): {"run curl"},
    ("clipboard", "notifications"): set(),
}
# Without a mount namespace there are these two gaps, and without a pid namespace one: `Enforcement.gaps` says so.
WITHOUT_MOUNTS = {
    "change a mode",
    "change a time",
    "change the mode of git's settings",
    "see the host's command line",
    "see others' shared memory",
}
NEEDS_ROOT = {
    "read /etc/shadow",
    "write into /usr",
    "raw",
    "packet",
    "set the clock",
    "capabilities",
    "raise its priority",
    "run in real time",
}
NOT_EVERYWHERE = {
    "name an unnamed file .npmrc",
    "load a module",
    "vsock",
    "bpf",
    "keyring",
    "perf",
    "userfaultfd",
    "io_uring",
    "make a namespace",
    "UDP-Lite",
    "MPTCP",
    "ping",
    "the kernel's crypto",
    "set attributes by ioctl",
}

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "src"))
IMPORTED = ("host", "runtime")  # what the scripts need
DISTRIBUTIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributions")  # that bring a sixth format


async def main() -> None:
    from anyplug.runtime.processes.direct_spawn import DirectSpawn
    from anyplug.runtime.processes.guard import Guard
    from anyplug.runtime.sandbox import escape_test  # after the path is set, by whoever starts this
    from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

    found = []
    guard = Guard()
    try:
        for layers, grants in json.loads(sys.argv[1]):
            with escape_test.scene() as scene:
                granted = [grant.format(**scene.facts) for grant in grants]
                if layers is None:
                    spawn = DirectSpawn(guard)
                else:
                    spawn = ConfinedSpawn(guard, scene.profile(*granted), layers=tuple(layers))
                attempts = await escape_test.attempt_all(spawn, scene.facts, scene.place.data)
                found.append({attempt.name: attempt.how for attempt in attempts})
                if layers is not None:
                    spawn.close()
    finally:
        guard.close()
    print(json.dumps(found))


@functools.cache
def interpreter(user: str) -> str:
    """An interpreter of our version that this user may run, with our packages; skips where there is none."""
    if user == "root" or os.getuid() != 0:
        return sys.executable
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = f"import anyio, msgspec, anyplug; open({__file__!r})"
    for path in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        try:
            done = subprocess.run(
                [path, "-c", code], **as_user(user), env=environment(), capture_output=True, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return path
    pytest.skip("an ordinary user may not read this checkout, or run any interpreter of our version")


def as_user(user: str) -> dict:
    """What `subprocess` needs to be that user; skips where one cannot be."""
    if user == "root":
        if os.getuid() != 0:
            pytest.skip("only root can be root")
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


def environment() -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "ANYPLUG_GUARD": os.environ.get("ANYPLUG_GUARD", ""),
        "PYTHONPATH": f"{SOURCE}:{DISTRIBUTIONS}:{sysconfig.get_paths()['purelib']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run(user: str, code: str, *arguments: str, timeout: float = 120, script: str = __file__) -> str:
    """Run Python code, or a script, as a user; give what it printed."""
    words, what = ([code, *arguments], "-c") if code else ([*arguments], os.path.abspath(script))
    status, out, err = _forks(user).run(words, b"", "/", environment(), timeout, what)
    assert status == 0, err.decode()
    return out.decode()


def _forks(user: str) -> forked_program.Forks:
    """Return what starts processes of that user, who is somebody else only if root runs the tests."""
    options = as_user(user)
    if not options:
        return forked_program.forks()
    started = {"interpreter": interpreter(user), "folders": IMPORTED, "env": environment(), "cwd": "/", **options}
    return forked_program.forks(user, **started)


def try_all(user: str, cases: list) -> list[dict[str, str]]:
    return json.loads(run(user, "", json.dumps(cases)))


def find(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"no {name} here")


if __name__ == "__main__":
    anyio.run(main)
