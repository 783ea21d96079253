"""Find a home's daemon, or start one. Imports next to nothing: every client begins with it.

In `<home>/run`, which only the user may open: `lock`, held as long as a daemon runs, its socket, and `served.json` if a
person asked it to serve over HTTP, until it is stopped; `<home>/resident.json` names it.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from anyplug.home import import_folders, untrusted_files
from anyplug.home.location import RESIDENT, at_socket, make_private

START_S = 30.0  # it takes a second or two; a busy machine may need longer
LINGER_S = 900.0  # how long a background daemon keeps running without clients
LOOK_S = 0.02  # between checks while it starts
SAID_AT_MOST = 2_000  # characters of the log of one that did not start
LOG = "resident.log"
CURE = "check the disk's free space and the permissions of your home folder"
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

# A client that differs from the daemon in one of these would find other plugins or other rules.
PLACES = ("HOME", "ZOT_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "ANYPLUG_CONFINEMENT")
PLACES_OF_POLICIES = ("HOME", "XDG_CONFIG_HOME")
SWITCH = "ANYPLUG_RESIDENT"  # `off`: work without a daemon


class NotStarted(Exception):
    """No daemon could be started. Tells why, and what to do if its log does not."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotServed(Exception):
    """The daemon refuses us. Tells why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Address:
    """The location of a home's daemon."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.folder = os.path.join(home, "run")
        self.lock = os.path.join(self.folder, "lock")
        self.word = os.path.join(home, RESIDENT)
        self.log = os.path.join(home, "logs", LOG)
        self.served = os.path.join(self.folder, "served.json")

    def socket_path(self) -> str:
        """Return where to listen, creating the folder. Raises OSError."""
        make_private(self.folder)
        return os.path.join(self.folder, "host.sock")

    def read(self) -> dict[str, Any] | None:
        """Read the daemon's own description; None if it is not running, whatever the file says."""
        try:
            text = untrusted_files.read_linked(self.word)
        except OSError:
            return None
        import json  # only needed with a daemon, as below

        try:
            word = json.loads(text)
        except ValueError:
            return None
        return word if isinstance(word, dict) and isinstance(word.get("socket"), str) else None

    def connect(self) -> socket.socket | None:
        """Connect to the daemon; None if it is not running."""
        word = self.read()
        if word is None:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            at_socket(connection.connect, word["socket"])
        except OSError:  # a killed daemon leaves both files behind
            connection.close()
            return None
        return connection

    def is_answered(self) -> bool:
        """Return whether a daemon is running and accepts clients."""
        connection = self.connect()
        if connection is not None:
            connection.close()
        return connection is not None

    def is_held(self) -> bool:
        """Return whether a daemon is running, starting or ending."""
        try:
            fd = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(
                fd, fcntl.LOCK_SH | fcntl.LOCK_NB
            )  # shared, so that other checks do not mistake us for a daemon
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(fd)

    def remember(self, words: Sequence[str], cwd: str) -> None:
        """Remember what the daemon was asked to serve: the arguments of the program, and the folder. Raises OSError."""
        import json  # for the same reason

        new = f"{self.served}.{os.getpid()}"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(json.dumps({"words": list(words), "cwd": cwd}).encode())
        os.replace(new, self.served)

    def forget(self) -> None:
        """Forget what the daemon was asked to serve: it was stopped."""
        try:
            os.unlink(self.served)
        except OSError:
            pass

    def remembered(self) -> tuple[list[str], str] | None:
        """Return what a daemon that was killed was asked to serve: arguments and a folder."""
        import json  # for the same reason

        try:
            kept = json.loads(untrusted_files.read_linked(self.served))
            words, cwd = [str(word) for word in kept["words"]], str(kept["cwd"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return (words, cwd) if os.path.isdir(cwd) else None

    def start(self, linger_s: float = LINGER_S, options: Sequence[str] = (), more: Sequence[str] = ()) -> socket.socket:
        """Start a daemon in the background, unless one is running, and connect to it. Raises NotStarted.

        `options` are further options of the program, and `more` of `serve`; they apply to the current folder. Without
        them, a daemon that was killed is started as it was, if that works.
        """
        if not options and not more and (kept := self.remembered()) is not None:
            try:
                return self._start(*kept)
            except NotStarted:  # its port may be another's by now
                self.forget()
        words = [*options, "--home", self.home, "serve", "--linger", str(linger_s), *more]
        return self._start(words, os.getcwd() if options or more else "/")

    def _start(self, words: Sequence[str], cwd: str) -> socket.socket:
        # -P: nothing in the current folder is a module of ours.
        program = [sys.executable, "-P", "-m", "anyplug"]
        log, begins = self._open_log()
        try:
            child = subprocess.Popen(
                [*program, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=import_folders.environment(os.environ),
                cwd=cwd,
                start_new_session=True,
            )
        finally:
            os.close(log)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if (connection := self.connect()) is not None:
                # Ask the listening process, because the file may be that of a killed daemon.
                if (peer := credentials(connection)) is not None and peer[0] != child.pid:
                    child.terminate()  # another one was faster; ours would start when that one ends
                return connection
            if child.poll() is not None and not self.is_held():  # otherwise another one was faster, and is starting
                if said := self._said(begins):
                    raise NotStarted(said)
                raise NotStarted(
                    f"it exited with {child.returncode} without an error message",
                    (f"run `anyplug serve` to see the error; {CURE}"),
                )
            time.sleep(LOOK_S)
        raise NotStarted(f"it did not start within {START_S:.0f} s; see {self.log}")

    def _open_log(self) -> tuple[int, int]:
        """Open the log, write its first line, and return its position. Raises NotStarted.

        A full disk is noticed here; the process that we start could not report it.
        """
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} starting the daemon\n"
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
    """Return the process id and user at the other end; None where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):  # macOS
        return None
    pid, uid, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid, uid


def hello(kind: str, **more: Any) -> bytes:
    """Return the line with which a client attaches."""
    import json  # for the same reason

    word = {"attach": 1, "kind": kind, "cwd": os.getcwd(), "environment": dict(os.environ), **more}
    return json.dumps(word).encode() + b"\n"


def may_attach() -> bool:
    """Return whether this process may use a daemon."""
    return sys.platform != "win32" and os.environ.get(SWITCH) != "off"
