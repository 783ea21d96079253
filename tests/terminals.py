"""Runs a program in a real terminal, tmux: sends keys, and reads the screen."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

import processes

PATIENCE_S = 90.0  # for what happens in a moment, on a machine that has much else to do
LOOK_S = 0.05
numbers = itertools.count()


class Terminal:
    """One window of a tmux server of its own."""

    def __init__(
        self, folder: Path, command: Sequence[str], size: tuple[int, int] = (100, 30), env: Mapping[str, str] = {}
    ) -> None:
        """Start a command in a window; skips the test where tmux is missing."""
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed (`apt-get install tmux`), so there is no terminal to look at")
        self._socket = str(folder / f"tmux-{next(numbers)}")  # the server of the one before may still be ending
        self._command, self._size = command, size
        self._env = {**os.environ, "TERM": "xterm-256color", **env}
        self._env.pop("TMUX", None)

    def __enter__(self) -> Self:
        width, height = map(str, self._size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", width, "-y", height, *self._command)
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        return self

    def __exit__(self, *_: object) -> None:
        """Close the window; the program has to end with it."""
        pid = self.pid
        self._tmux("kill-server")
        processes.until(lambda: not os.path.exists(f"/proc/{pid}"))
        assert not os.path.exists(f"/proc/{pid}"), "the program runs on without its terminal"

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], env=self._env, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def screen(self) -> str:
        """What the terminal shows."""
        return self._tmux("capture-pane", "-p", "-t", "t")

    @property
    def pid(self) -> int:
        """The id of the program's process."""
        return int(self._told("pane_pid"))

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended."""
        return self._told("pane_dead") == "1"

    @property
    def exit_code(self) -> str:
        """The code with which it ended; it closes the terminal a moment before."""
        processes.until(self._is_reaped)
        return self._told("pane_dead_status")

    def _is_reaped(self) -> bool:
        # tmux 3.3 now and then misses that its program has ended, until it is told again.
        os.kill(int(self._told("pid")), signal.SIGCHLD)
        return not os.path.exists(f"/proc/{self.pid}")

    def _told(self, name: str) -> str:
        return self._tmux("display-message", "-p", "-t", "t", f"#{{{name}}}").strip()

    def keys(self, *keys: str) -> None:
        """Press keys, as tmux names them."""
        self._tmux("send-keys", "-t", "t", *keys)

    def type(self, text: str) -> None:
        """Type a text."""
        self._tmux("send-keys", "-t", "t", "-l", text)

    def paste(self, text: str) -> None:
        """Paste a text, as terminals do it."""
        with open(f"{self._socket}-paste", "w") as file:
            file.write(text)
        self._tmux("load-buffer", file.name)
        self._tmux("paste-buffer", "-p", "-t", "t")

    def resize(self, width: int, height: int) -> None:
        """Change the terminal's size."""
        self._tmux("resize-window", "-t", "t", "-x", str(width), "-y", str(height))

    def until(self, *texts: str, gone: str = "") -> str:
        """Wait until the screen shows texts, or no longer shows one; return it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            shown = self.screen
            if all(text in shown for text in texts) and not (gone and gone in shown):
                return shown
            time.sleep(LOOK_S)
        raise AssertionError(f"the screen never showed {texts} without {gone!r}:\n{self.screen}")


def anyplug(*words: str) -> list[str]:
    """Return the command that runs the program."""
    return [sys.executable, "-m", "anyplug", *words]
