"""Where the home folder is, for code that must not import more than `os`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_SOCKET_PATH = 107  # bytes, on Linux
HOMES = "homes"  # in the state folder: the homes besides the default one, each ended by NUL
SCRATCH = "scratch"  # in the home folder: what processes of ours have for the time of their lives
RESIDENT = "resident.json"  # in the home folder while a daemon runs: its process and its socket


def home_path(given: str = "") -> str:
    """Find the home folder: as given, else $ANYPLUG_HOME, else the platform's data folder.

    Links on the way are followed here and nowhere else: everything below works on real paths.
    """
    return os.path.realpath(named_home(given))


def named_home(given: str = "") -> str:
    """Return the same path as people write it, with links on the way."""
    return os.path.abspath(os.path.expanduser(given or os.environ.get("ANYPLUG_HOME") or usual_path()))


def at_socket(act: Callable[[str], None], path: str) -> None:
    """Bind or connect a Unix socket at a path of any length; raises OSError.

    Our sockets are in the home folder, however long its path: anywhere else a plugin could replace them with its own.
    """
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH or sys.platform != "linux":
        act(path)
        return
    fd = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        act(f"/proc/self/fd/{fd}/{os.path.basename(path)}")
    finally:
        os.close(fd)


def make_private(path: str, mode: int = 0o700) -> None:
    """Create a folder and all missing parents, accessible only to the user; raises OSError.

    `os.makedirs` applies its mode to the last folder only, which would leave the home itself open to everyone.
    """
    if os.path.isdir(path):
        return
    make_private(os.path.dirname(path))
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def usual_path() -> str:
    """Return the default home folder: the platform's data folder."""
    if sys.platform == "darwin":
        return "~/Library/Application Support/anyplug"
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA", "~"), "anyplug")
    return os.path.join(os.environ.get("XDG_DATA_HOME") or "~/.local/share", "anyplug")


def note_home(path: str) -> None:
    """Register a folder as a home, so that it is hidden from the plugins of other homes; raises OSError.

    The list is in the state folder, which no plugin sees.
    """
    known = known_homes()
    if path in known or path == home_path(usual_path()):
        return
    folder = os.path.abspath(os.path.expanduser(state_path()))
    make_private(folder)
    with open(os.open(os.path.join(folder, HOMES), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
        file.write(os.fsencode(path) + b"\0")


def known_homes() -> list[str]:
    """List the homes that this user's hosts have used and that still exist."""
    from anyplug.home import untrusted_files  # not every command needs the list

    try:
        known = untrusted_files.read_linked(os.path.join(os.path.expanduser(state_path()), HOMES))
        paths = os.fsdecode(known).split("\0")
    except OSError:
        return []
    user = os.path.expanduser("~")
    # A home that contains the user's whole home folder cannot be hidden: nothing would be left.
    return [path for path in dict.fromkeys(paths) if os.path.isdir(path) and not f"{user}/".startswith(f"{path}/")]


def state_path() -> str:
    """Return the folder for what must outlive the default home: the platform's state folder."""
    if sys.platform == "darwin":
        return "~/Library/Logs/anyplug"
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA", "~"), "anyplug-state")
    return os.path.join(os.environ.get("XDG_STATE_HOME") or "~/.local/state", "anyplug")
