"""Where a home's resident host is found, and how one is started. Imports next to nothing: every client starts with it.

In `<home>/run`, which only the user may open: `lock`, held as long as a resident host is up, and its socket;
`<home>/resident.json` names it.
"""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from anyplug.home.location import RESIDENT, at_socket, make_private

START_S = 30.0  # it is up in a second or two; a machine under load may take longer
LINGER_S = 900.0  # how long one that was started in the background stays when nobody is attached
LOOK_S = 0.02  # between two looks whether it is up
SAID_AT_MOST = 2_000  # characters of what one that did not start had to say
LOG = "resident.log"
CURE = "check the disk's space and the permissions of your home folder"
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

# Whoever differs in one of these would find other plugins, or other rules, than the resident host does.
PLACES = ("HOME", "ZOT_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "ANYPLUG_CONFINEMENT")
PLACES_OF_POLICIES = ("HOME", "XDG_CONFIG_HOME")
SWITCH = "ANYPLUG_RESIDENT"  # `off`: work without one


class NotStarted(Exception):
    """No resident host could be started; says why, and what to do if its log does not."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotServed(Exception):
    """The resident host sends us away; says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Address:
    """The place of one home's resident host."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.folder = os.path.join(home, "run")
        self.lock = os.path.join(self.folder, "lock")
        self.word = os.path.join(home, RESIDENT)
        self.log = os.path.join(home, "logs", LOG)

    def socket_path(self) -> str:
        """Return where to listen; makes the folder. Raises OSError if it cannot be made."""
        make_private(self.folder)
        return os.path.join(self.folder, "host.sock")

    def read(self) -> dict[str, Any] | None:
        """Read what the resident host wrote about itself; None if there is none, whatever the file says."""
        try:
            with open(self.word, encoding="utf-8") as file:
                word = json.load(file)
        except (OSError, ValueError):
            return None
        return word if isinstance(word, dict) and isinstance(word.get("socket"), str) else None

    def connect(self) -> socket.socket | None:
        """Connect to the resident host; None if none is up."""
        word = self.read()
        if word is None:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            at_socket(connection.connect, word["socket"])
        except OSError:  # a host that was killed leaves both files behind
            connection.close()
            return None
        return connection

    def is_answered(self) -> bool:
        """Return whether a resident host is up, and lets clients in."""
        connection = self.connect()
        if connection is not None:
            connection.close()
        return connection is not None

    def is_held(self) -> bool:
        """Return whether a resident host is up, coming up, or ending."""
        try:
            fd = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others who look must not see us
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(fd)

    def start(self, linger_s: float = LINGER_S, options: Sequence[str] = (), more: Sequence[str] = ()) -> socket.socket:
        """Start a resident host in the background, unless one is up, and connect to it. Raises NotStarted.

        `options` are further words for the program, and `more` for `serve`; they hold for the folder that we are in.
        """
        words = [sys.executable, "-m", "anyplug", *options, "--home", self.home, "serve", "--linger", str(linger_s)]
        log, begins = self._open_log()
        try:
            child = subprocess.Popen(
                [*words, *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=None if options or more else "/",
                start_new_session=True,
            )
        finally:
            os.close(log)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if (connection := self.connect()) is not None:
                # Whoever listens says it; the file may still be that of a host that was killed.
                if (peer := credentials(connection)) is not None and peer[0] != child.pid:
                    child.terminate()  # another one was faster; ours would come up when that one leaves
                return connection
            if child.poll() is not None and not self.is_held():  # else another one was faster, and comes up
                if said := self._said(begins):
                    raise NotStarted(said)
                raise NotStarted(
                    f"it ended with {child.returncode} and could not say why", f"`anyplug serve` may; {CURE}"
                )
            time.sleep(LOOK_S)
        raise NotStarted(f"it is not up after {START_S:.0f} s; see {self.log}")

    def _open_log(self) -> tuple[int, int]:
        """Open the log, with a first line in it, and return where it goes on from there. Raises NotStarted.

        On a disk that is full we notice it here; whoever we start could not write that it is.
        """
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} starting a host\n"
        try:
            make_private(os.path.dirname(self.log))
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(log, line.encode())
                return log, os.lseek(log, 0, os.SEEK_CUR)
            except OSError:
                os.close(log)
                raise
        except OSError as error:
            raise NotStarted(f"cannot write to {self.log}: {error.strerror}", CURE) from error

    def _said(self, begins: int) -> str:
        """Return what it wrote to its log before it ended."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                file.seek(begins)
                return file.read()[-SAID_AT_MOST:].strip()
        except OSError:
            return ""


def credentials(connection: socket.socket) -> tuple[int, int] | None:
    """Return the process id and the user at the other end; None where the system does not say it."""
    if not hasattr(socket, "SO_PEERCRED"):  # macOS
        return None
    pid, uid, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid, uid


def hello(kind: str, **more: Any) -> bytes:
    """Return the line by which a client attaches."""
    word = {"attach": 1, "kind": kind, "cwd": os.getcwd(), "environment": dict(os.environ), **more}
    return json.dumps(word).encode() + b"\n"


def may_attach() -> bool:
    """Return whether this process may use a resident host."""
    return sys.platform != "win32" and os.environ.get(SWITCH) != "off"
