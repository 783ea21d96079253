"""Agents bound by policies: a process that asks for decisions is recorded, and its children cannot decide about trust.

    <home>/agents/PID:START      one file per process that asked, while it lives; contains its namespaces

Process numbers and times are only valid in their own namespaces. For an agent in other namespaces we cannot tell
whether it lives or what it started, so it counts for an hour after it last asked.

Only the agent itself is recorded, and none of its ancestors: the terminal that it was started from is not affected. A
script that asks by itself, started in a terminal, by a timer or over SSH, records nobody. In
continuous integration (`CI` is set) one process runs everything, so only an agent that marks its children is recorded.

While a recorded agent lives, a command that decides about trust is refused if it was started by the agent, if it has an
agent's mark in its environment, or if it has no person's terminal: a process that left its agent (setsid, at, cron, a
double fork) has no terminal, or is not a descendant of the shell that its terminal belongs to. A process that creates
its own terminal and clears the marks cannot be told from a person's.
"""

import os
import time
from collections.abc import Iterator, Mapping

from anyplug.home import process_identity, untrusted_files
from anyplug.home.location import make_private
from anyplug.model.late_patterns import late

FOLDER = "agents"
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox"})
WRAPPERS = frozenset(
    {"env", "timeout", "nice", "nohup", "stdbuf", "uv", "uvx", "pipx"}
)  # between an agent and `anyplug eval`
VALUED = frozenset({"--rcfile", "--init-file", "--init-command", "-C", "-o", "+o", "-O", "+O"})  # options of shells
# What starts a person's terminals, and services, is no agent: a script that one of these started asks for itself.
SESSION_STARTERS = frozenset(
    {"systemd", "init", "sshd", "sshd-session", "login", "cron", "crond", "atd", "tmux", "screen"}
)
MARKS = (
    "CLAUDECODE",
    "OPENCODE",
    "CURSOR_AGENT",
    "GEMINI_CLI",
    "CODEX_SANDBOX",
)  # variables that agents set for commands
MOST_ANCESTORS = 64
NAMESPACES = ("pid", "time")  # that determine a process's number and start time
ESCAPE = late(r"\\([0-7]{3})")  # in /proc/self/mountinfo
UNSEEN_S = 3600.0  # how long an agent counts that is not visible from here


def note(home: str, pid: int, environment: Mapping[str, str] = os.environ) -> None:
    """Record the agent behind a process that asks for a decision; never raises, since no decision depends on it."""
    agent = None if environment.get("CI") and not _mark(environment) else _agent(pid)
    if agent is None:
        return
    folder = os.path.join(home, FOLDER)
    path = os.path.join(folder, process_identity.of(agent))
    try:
        if os.path.exists(path):
            os.utime(path)
            return
        make_private(folder)
        for name in os.listdir(folder):
            if not _is_up(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w", encoding="ascii") as file:
            file.write(_namespaces(agent))
    except (OSError, ValueError):
        return


def reason_against(
    home: str, pid: int, environment: Mapping[str, str] = os.environ, *, needs_terminal: bool = True
) -> str:
    """Return why a process may not decide about trust; empty if a person seems to have started it.

    Commands that services and timers also run need no terminal.
    """
    folder = os.path.join(home, FOLDER)
    try:
        known = {name for name in os.listdir(folder) if _is_up(os.path.join(folder, name))}
    except OSError:
        return ""
    if not known:
        return ""
    if any(not _is_seen(os.path.join(folder, name)) for name in known):
        return "an agent bound by policies is running in other namespaces, and may have started this"
    agent = next((one for one in _ancestors(pid) if process_identity.of(one) in known), 0)
    if agent:
        why = (
            "it asked for a decision with `anyplug eval`, and counts as an agent until it ends; a script that only "
            "tests policies passes --trial"
        )
        return f"an agent bound by policies started this (process {agent}: {why})"
    alive = min(known).partition(":")[0]
    if mark := _mark(environment):
        return f"an agent bound by policies started this ({mark} is set, and process {alive} is such an agent)"
    if needs_terminal and not _is_attended(pid):
        return f"it has no terminal of yours, while an agent bound by policies is running (process {alive})"
    return ""


def _is_up(path: str) -> bool:
    """Return whether a recorded agent lives, as far as visible from here."""
    if _is_seen(path):
        return process_identity.is_alive(os.path.basename(path))
    try:
        return time.time() - os.stat(path).st_mtime < UNSEEN_S
    except OSError:
        return False


def _is_seen(path: str) -> bool:
    try:
        noted = untrusted_files.read_linked(path).decode("ascii")
    except (OSError, ValueError):
        return True
    return noted in {"", _namespaces(os.getpid())}  # empty: an older version wrote it, or there are none here


def _namespaces(pid: int) -> str:
    try:
        return " ".join(os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES)
    except OSError:
        return ""


def mounted_in(home: str) -> str:
    """Return the first mount below our home: it would hide the records there."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            points = [ESCAPE.sub(lambda found: chr(int(found[1], 8)), line.split(" ", 5)[4]) for line in file]
    except (OSError, IndexError):
        return ""
    inside = os.path.realpath(home) + os.sep
    return next((point for point in points if point.startswith(inside)), "")


def _mark(environment: Mapping[str, str]) -> str:
    return next((name for name in MARKS if environment.get(name)), "")


def _is_attended(pid: int) -> bool:
    """Return whether a process has a terminal, and descends from the process that owns the terminal's session."""
    fields = _stat(pid)
    return _has_terminal(pid) and int(fields[3]) in {pid, *_ancestors(pid)}


def _agent(pid: int) -> int | None:
    """Find the agent that runs `anyplug eval`: the first ancestor that is neither a shell nor a wrapper."""
    for one in (pid, *_ancestors(pid)):
        words = _words(one)
        name = os.path.basename(words[0]).removeprefix("-") if words else ""
        if "eval" in words and any("anyplug" in word for word in words):
            continue
        if name in SHELLS:
            if _has_terminal(one) and _is_interactive(words[1:]):
                return None  # a person types there
        elif words and os.path.basename(words[0].partition(":")[0]).lower() in SESSION_STARTERS:
            return None
        elif name not in WRAPPERS:
            return one if name else None
    return None


def _is_interactive(words: list[str]) -> bool:
    """Return whether a shell that was started with these words reads commands from its terminal."""
    values = iter(words)
    for word in values:
        if word in VALUED:
            next(values, "")  # editors' terminals start shells with a file of their own
        elif not word.startswith(("-", "+")) or ("c" in word and not word.startswith("--")):
            return False  # a script, or `-c` and the command
    return True


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
    """Return the fields after the name: state, parent, group, session, terminal."""
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
