"""Creates .venv from the locked requirements, and shows how far it is. Uses only the standard library.

On a terminal, one line tells what is being done, with a bar; elsewhere each step is one line.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

ENVIRONMENT = ".venv"
PYTHON = os.path.join(ENVIRONMENT, "bin", "python")
LOCKED = "requirements/dev.txt"
NODE = "requirements/node.txt"
BAR = 24  # characters
STEP_S = 0.1
ERASE = "\r\x1b[K"
TURNS = "|/-\\"

HASHED = ("--disable-pip-version-check", "--require-hashes", "--requirement")
_PINNED = re.compile(r"^([\w.-]+)==", re.MULTILINE)


def main() -> None:
    """Create the environment and fill it."""
    began = time.monotonic()
    with shown("creating .venv"):
        run([sys.executable, "-m", "venv", ENVIRONMENT])
    with open(LOCKED, encoding="utf-8") as file:
        total = len(_PINNED.findall(file.read()))
    with shown(f"installing {total} packages", total) as line:
        install(line, *HASHED, LOCKED)
    with shown("installing anyplug"):
        run([PYTHON, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--editable", "."])
    has_node = [PYTHON, "-m", "anyplug.runtime.processes.toolchain"]
    if subprocess.run(has_node, stdout=subprocess.DEVNULL, check=False).returncode:
        with shown("installing Node, because there is none here that is new enough"):
            run([PYTHON, "-m", "pip", "install", "--quiet", *HASHED, NODE])
    print(f"set up in {time.monotonic() - began:.0f} s", file=sys.stderr)


def run(command: list[str]) -> None:
    """Run a step; end with what it said if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{ERASE if sys.stderr.isatty() else ''}{done.stdout}\nset-up failed: {' '.join(command)}")


def install(line: "Line", *options: str) -> None:
    """Install packages; count those that pip names."""
    command = [PYTHON, "-m", "pip", "install", "--progress-bar", "off", *options]
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            said.append(text)
            line.done += text.startswith(("Collecting ", "Requirement already satisfied:"))
            if text.startswith("Installing collected packages"):
                line.what = "unpacking the packages"
    if process.returncode:
        sys.exit(f"{ERASE if sys.stderr.isatty() else ''}{''.join(said)}\nset-up failed: {' '.join(command)}")


class Line:
    """What is being done, drawn by a thread."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def begin(self) -> None:
        """Draw it, on a terminal; else print it."""
        if sys.stderr.isatty():
            self._thread.start()
        else:
            print(self.what, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Erase it."""
        if self._thread.is_alive():
            self._over.set()
            self._thread.join()
            sys.stderr.write(ERASE)
            sys.stderr.flush()

    def _draw(self) -> None:
        number = 0
        while not self._over.wait(STEP_S):
            filled = round(BAR * min(self.done, self.total) / self.total) if self.total else 0
            bar = f" [{'#' * filled}{'.' * (BAR - filled)}]" if self.total else ""
            sys.stderr.write(f"{ERASE}{TURNS[number % len(TURNS)]} {self.what}{bar}")
            sys.stderr.flush()
            number += 1


@contextmanager
def shown(what: str, total: int = 0) -> Iterator[Line]:
    """Show what is being done inside."""
    line = Line(what, total)
    line.begin()
    try:
        yield line
    finally:
        line.end()


if __name__ == "__main__":
    main()
