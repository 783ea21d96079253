"""Uses the program as people do: as a process of its own, through pipes or at a terminal."""

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import forked_program
import processes
from anyplug.runtime.processes.guard import TOKEN_VARIABLE

PROGRAM = (sys.executable, "-m", "anyplug")
PATIENCE_S = 30.0  # for what happens in a moment, on a machine that has much else to do
CHUNK = 65536


class Done:
    """What a command that has ended left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """Exactly one JSON value, and nothing beside it."""
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def run(*words: str, stdin: str | bytes | None = None, **others: Any) -> Done:
    """Run a command to its end, with nobody at a terminal."""
    given = (stdin.encode() if isinstance(stdin, str) else stdin) or b""
    code, out, err = (_forked if _is_ordinary(**others) else _started)(words, given, **others)
    assert b"Traceback" not in err, err.decode()
    return Done(code, out.decode(), err.decode())


def _is_ordinary(**others: Any) -> bool:
    """Whether a process that has already started behaves as a new one would."""
    return not {*others} - {"cwd", "env"} and _for_python(others.get("env", os.environ)) == AT_START


def _for_python(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter reads when it starts."""
    return {name: value for name, value in env.items() if re.match("PYTHON[^_]|LANG|LC_", name)}


AT_START = _for_python(os.environ)


def _started(words: Sequence[str], stdin: bytes, **others: Any) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, input=stdin, timeout=PATIENCE_S, check=False, **others
    )
    return done.returncode, done.stdout, done.stderr


def _forked(
    words: Sequence[str], stdin: bytes, cwd: str | os.PathLike[str] = ".", env: Mapping[str, str] = os.environ
) -> tuple[int, bytes, bytes]:
    return _forks(words).run(words, stdin, os.path.abspath(cwd), dict(env), PATIENCE_S)


def _forks(words: Sequence[str]) -> forked_program.Forks:
    """Return what has imported what this command needs."""
    if "ask" in words:
        return forked_program.forks("models", folders=(*forked_program.FOLDERS, *forked_program.MODELS))
    return forked_program.forks()


def ok(*words: str, **others: Any) -> Done:
    """Run a command that must succeed."""
    done = run(*words, **others)
    assert done.code == 0, done
    return done


def fails(code: int, *words: str, **others: Any) -> Done:
    """Run a command that must fail with this code, say why on stderr with a hint, and print no data."""
    done = run(*words, **others)
    assert done.code == code, done
    assert done.err, done
    assert "hint: " in done.err, done
    assert done.out == "", done
    return done


def start(*words: str, **others: Any) -> forked_program.Process:
    """Start a command and leave it running; nobody is at a terminal."""
    return piped(*words, stdin=subprocess.DEVNULL, **others)


def piped(*words: str, stdin: int = subprocess.PIPE, **others: Any) -> forked_program.Process:
    """Start a command with pipes."""
    streams = (stdin, subprocess.PIPE, subprocess.PIPE)
    if _is_ordinary(**others):
        return _forks(words).start(words, streams, **others)
    started: Any = subprocess.Popen([*PROGRAM, *words], stdin=stdin, stdout=streams[1], stderr=streams[2], **others)
    return started  # which can do all that is asked of it


def finish(process: forked_program.Process) -> Done:
    """Wait for the end of a command that was started."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert b"Traceback" not in err, err.decode()
    return Done(process.returncode, out.decode(), err.decode())


class Terminal:
    """A person at a terminal: sees what is shown, types lines, presses Ctrl-C."""

    def __init__(self, *words: str, stdout: int | None = None, colours: bool = False) -> None:
        self._words, self._stdout = words, stdout
        self.raw = ""
        self._wishes = {} if colours else {"NO_COLOR": "1"}
        self.code = -1

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        self._process = _forks(self._words).start(
            self._words,
            (slave, slave if self._stdout is None else self._stdout, slave),
            env={**os.environ, "TERM": "xterm", **self._wishes},
            terminal=os.ttyname(slave),
        )
        os.close(slave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.end()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            os.close(self._master)

    @property
    def seen(self) -> str:
        """What is shown and stays: without erased progress, and without colours unless they were asked for."""
        lasting = re.sub(r"\r\x1b\[K(?:[\u2800-\u28ff] [^\r\n]*)?", "", self.raw)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", lasting) if self._wishes else lasting
        return shown.replace("\r\n", "\n")

    def shows(self, text: str) -> None:
        """Wait until something is shown, if only for a moment."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.raw:
            assert time.monotonic() < until, f"waited for {text!r}, saw {self.raw!r}"
            self._read(0.1)

    def stays_silent(self, seconds: float) -> None:
        """See that nothing is shown for some time."""
        while self._read(0):
            pass
        assert not self._read(seconds), self.raw

    def sees(self, text: str) -> str:
        """Wait until something is shown."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < until, f"waited for {text!r}, saw {self.seen!r}"
            if not self._read(0.1) and self._process.poll() is not None and text not in self.seen:
                raise AssertionError(f"it ended without {text!r}: {self.seen!r}")
        return self.seen

    def sees_times(self, text: str, times: int) -> None:
        """Wait until something has been shown so many times."""
        until = time.monotonic() + PATIENCE_S
        while self.seen.count(text) < times:
            assert time.monotonic() < until, f"waited for {text!r}, saw {self.seen!r}"
            self._read(0.1)

    def types(self, line: str) -> None:
        """Type a line."""
        os.write(self._master, line.encode() + b"\n")

    def presses(self, key: bytes) -> None:
        """Press a key."""
        os.write(self._master, key)

    def echoes(self) -> bool:
        """Whether what is typed is shown."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self._process.send_signal(number)

    def end(self) -> str:
        """Wait for the program's end; give all that was shown."""
        until = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < until, f"it does not end; saw {self.seen!r}"
            self._read(0.1)
        while self._read(0):
            pass
        self.code = self._process.returncode
        assert "Traceback" not in self.seen, self.seen
        return self.seen

    def _read(self, patience_s: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], patience_s)
        if not ready:
            return False
        try:
            data = os.read(self._master, CHUNK)
        except OSError as error:
            if error.errno != errno.EIO:  # nobody has the other end open any more
                raise
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)


def at_terminal(*words: str, answers: Sequence[tuple[str, str]] = ()) -> Terminal:
    """Run a command to its end at a terminal, typing each answer when its question is shown."""
    with Terminal(*words) as terminal:
        for question, answer in answers:
            terminal.sees(question)
            terminal.types(answer)
    return terminal


def home() -> str:
    """The home that the test has."""
    return os.environ["ANYPLUG_HOME"]


def listed(name: str, *options: str) -> dict[str, Any]:
    """What `list` says about a plugin."""
    return next(entry for entry in ok(*options, "list", "--json").json if entry["name"] == name)


def last_record() -> dict[str, Any]:
    """The newest audit record; waits for the first."""
    found: list[dict[str, Any]] = []
    assert processes.until(lambda: bool(found.extend(ok("audit", "--kind", "call", "--json").json) or found))
    return found[-1]


def read_json(path: str) -> Any:
    """Read a file that a command wrote."""
    with open(path, "rb") as file:
        return json.load(file)


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def waits() -> bool:
    """Whether anything that a host of this test started sleeps for a minute."""
    return any("sleep 60" in command for command in processes.carrying(os.environ[TOKEN_VARIABLE]).values())
