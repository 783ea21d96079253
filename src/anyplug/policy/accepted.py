"""Accepted policies: a copy of each project's policies, as a person accepted them, that no agent can reach.

    <home>/accepted/KEY/record.json      the project, whether it is trusted, and digests of what was accepted
    <home>/accepted/KEY/.cupcake/...     the files themselves

KEY stands for the real path of the project's folder. The copy is made when policies are first used and when a person
runs `anyplug policy trust`, which also lets the project's commands run and its changes of calls count. While the
project's files differ from the copy, both decide (see `inquiry`), so that no change loosens anything by itself.
"""

import hashlib
import os
import shlex
import shutil
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from anyplug.policy import sources
from anyplug.policy.events import HARNESSES
from anyplug.policy.paths import FOLDER, accepted_folder
from anyplug.policy.rulebook import Signal
from anyplug.policy.sources import Source, Stamp

RECORD: Final = "record.json"
TRUST: Final = "anyplug policy trust"
LONGEST_SCRIPT: Final = 20_000  # characters that a person is shown


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a person accepted."""

    project: str
    trusted: bool = False  # its commands run, and its changes of calls and its context count
    unconfined: bool = False  # its commands run where there is no sandbox
    digests: dict[str, str] = {}  # by agent
    at: float = 0.0


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What was accepted of one project for one agent; no `record`: nothing yet."""

    record: Record | None = None
    source: Source | None = None  # the copy, read only where it differs from the project's files
    stamps: dict[str, Stamp] = {}

    @property
    def is_fresh(self) -> bool:
        """Whether nobody accepted anything since."""
        return all(sources.stamp(path) == seen for path, seen in self.stamps.items())

    @property
    def is_trusted(self) -> bool:
        """Whether a person trusts the project."""
        return self.record is not None and self.record.trusted


def digest(source: Source) -> str:
    """Return what stands for everything in a place that decides or runs; not for our own builtins' texts."""
    texts = {name: text for name, text in (source.policies | source.shared).items() if not name.startswith("builtin/")}
    signals = {name: signal.identity for name, signal in source.signals.items()}
    told = msgspec.json.encode([texts, signals, source.builtin_config], order="deterministic")
    return hashlib.sha256(told).hexdigest()


def commands(source: Source) -> dict[str, str]:
    """Return the commands that a place runs, as a person is shown them: of a script, its text."""
    found = {name: _script(source, signal) or signal.command for name, signal in source.signals.items()}
    config = source.builtin_config
    for number, check in enumerate(config.get("git_pre_check", {}).get("checks", ())):
        found[f"git_pre_check {number + 1}"] = check["command"]
    for extension, check in config.get("post_edit_check", {}).get("by_extension", {}).items():
        found[f"post_edit_check .{extension}"] = check["command"]
    for number, (kind, value) in enumerate(config.get("always_inject_on_prompt", {}).get("dynamic", ())):
        found[f"always_inject_on_prompt {number + 1}"] = value if kind == "command" else f"cat {value}"
    return found


def _script(source: Source, signal: Signal) -> str:
    if not signal.digest:
        return ""
    path = shlex.split(signal.command)[0]
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return f"{os.path.relpath(path, source.project)}\n{file.read(LONGEST_SCRIPT)}"
    except OSError:
        return ""


def look(home: str, source: Source, harness: str) -> Acceptance:
    """Find what was accepted of a project, whose files are as they were just read."""
    if not home:
        return Acceptance()
    folder = accepted_folder(home, source.project)
    path = os.path.join(folder, RECORD)
    stamps = {path: sources.stamp(path)}
    record = _read(path)
    if record is None or record.digests.get(harness, "") == digest(source):
        return Acceptance(record=record, stamps=stamps)
    held = sources.read(os.path.join(folder, FOLDER), harness, origin=source.root)
    return Acceptance(record=record, source=held, stamps=stamps)


def record_of(home: str, project: str) -> Record | None:
    """Return what was accepted of a project; None if nothing was."""
    return _read(os.path.join(accepted_folder(home, project), RECORD))


def held_root(home: str, project: str) -> str:
    """Return the copy of a project's `.cupcake`, which need not exist."""
    return os.path.join(accepted_folder(home, project), FOLDER)


def accept(home: str, root: str, *, trusted: bool, unconfined: bool = False) -> None:
    """Keep a copy of a project's policies in place of the one before. Raises OSError."""
    read = {harness: sources.read(root, harness) for harness in HARNESSES}
    project = os.path.realpath(os.path.dirname(root))
    folder = accepted_folder(home, project)
    beside = f"{folder}.{os.getpid()}"
    copy = os.path.join(beside, FOLDER)
    os.makedirs(home, mode=0o700, exist_ok=True)
    try:
        os.makedirs(copy, mode=0o700)
        for source in read.values():
            _copy(source.stamps, root, copy)
        record = Record(
            project=project,
            trusted=trusted,
            unconfined=unconfined,
            digests={harness: digest(source) for harness, source in read.items()},
            at=round(time.time(), 3),
        )
        with open(os.path.join(beside, RECORD), "wb") as file:
            file.write(msgspec.json.encode(record))
        _replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def forget(home: str, project: str) -> None:
    """Forget a project whose policies are gone."""
    shutil.rmtree(accepted_folder(home, project), ignore_errors=True)


def _replace(beside: str, folder: str) -> None:
    """Put a folder in the place of another; a reader in between sees no copy, and never half of one."""
    old = f"{beside}.old"
    if os.path.isdir(folder):
        os.rename(folder, old)
    os.rename(beside, folder)
    shutil.rmtree(old, ignore_errors=True)


def _copy(paths: Iterable[str], root: str, copy: str) -> None:
    for path in paths:
        target = os.path.join(copy, os.path.relpath(path, root))
        if os.path.isfile(path) and not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target)


def _read(path: str) -> Record | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
