"""Agents that policies bind: who asks for decisions is noted in our home, and what it starts decides nothing of trust.

    <home>/agents/PID:START      one empty file for each process that asked, as long as it lives

Only the agent itself is noted, and nothing above it: the terminal that it was started from stays free. In continuous
integration (`CI` is set) one process runs everything, so only an agent that marks its children is noted.

While a noted agent lives, a command that decides about trust is refused if it was started by it, if it has an agent's
mark in its environment, or if nobody types where it runs: a process that left its agent (setsid, at, cron, a double
fork) has no terminal, or is not below the shell that its terminal belongs to. A process that makes a terminal of its
own and clears the marks cannot be told from a person's.
"""

import os
from collections.abc import Iterator, Mapping

from anyplug.home import process_identity
from anyplug.home.location import make_private

FOLDER = "agents"
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox"})
WRAPPERS = frozenset({"env", "timeout", "nice", "nohup", "stdbuf", "uv", "uvx", "pipx"})  # on the way to `anyplug eval`
MARKS = ("CLAUDECODE", "OPENCODE", "CURSOR_AGENT", "GEMINI_CLI", "CODEX_SANDBOX")  # variables agents set for commands
MOST_ANCESTORS = 64


def note(home: str, pid: int, environment: Mapping[str, str] = os.environ) -> None:
    """Note the agent behind a process that asks for a decision; never raises, since no decision hangs on it."""
    agent = None if environment.get("CI") and not _mark(environment) else _agent(pid)
    if agent is None:
        return
    folder = os.path.join(home, FOLDER)
    path = os.path.join(folder, process_identity.of(agent))
    try:
        if os.path.exists(path):
            return
        make_private(folder)
        for name in os.listdir(folder):
            if not process_identity.is_alive(name):
                os.unlink(os.path.join(folder, name))
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except (OSError, ValueError):
        return


def reason_against(
    home: str, pid: int, environment: Mapping[str, str] = os.environ, *, needs_terminal: bool = True
) -> str:
    """Say why a process may not decide about trust; empty if a person seems to have started it.

    What services and timers run as well needs no terminal.
    """
    try:
        names = os.listdir(os.path.join(home, FOLDER))
    except OSError:
        return ""
    known = {name for name in names if process_identity.is_alive(name)}
    if not known:
        return ""
    agent = next((one for one in _ancestors(pid) if process_identity.of(one) in known), 0)
    if agent:
        return f"an agent that policies bind started this (process {agent})"
    alive = min(known).partition(":")[0]
    if mark := _mark(environment):
        return f"an agent that policies bind started this ({mark} is set, and process {alive} is such an agent)"
    if needs_terminal and not _is_attended(pid):
        return f"it runs without a terminal of yours, while an agent that policies bind is up (process {alive})"
    return ""


def _mark(environment: Mapping[str, str]) -> str:
    return next((name for name in MARKS if environment.get(name)), "")


def _is_attended(pid: int) -> bool:
    """Whether a process has a terminal, and lies below the process that the terminal's session belongs to."""
    fields = _stat(pid)
    return _has_terminal(pid) and int(fields[3]) in {pid, *_ancestors(pid)}


def _agent(pid: int) -> int | None:
    """Find who runs `anyplug eval`: the first process above it that is neither a shell nor runs another for it."""
    for one in (pid, *_ancestors(pid)):
        words = _words(one)
        name = os.path.basename(words[0]).removeprefix("-") if words else ""
        if "eval" in words and any("anyplug" in word for word in words):
            continue
        if name in SHELLS:
            if _has_terminal(one) and all(word.startswith("-") and word != "-c" for word in words[1:]):
                return None  # a person types there
        elif name not in WRAPPERS:
            return one if name else None
    return None


def _ancestors(pid: int) -> Iterator[int]:
    for _ in range(MOST_ANCESTORS):
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
        if pid <= 1:
            return
        yield pid


def _has_terminal(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[4] != b"0"


def _stat(pid: int) -> list[bytes]:
    """Read what follows the name: state, parent, group, session, terminal."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _words(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0") if word]
    except OSError:
        return []
