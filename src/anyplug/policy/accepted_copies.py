"""Accepted policies: a copy of each project's policies, as a person accepted them, that no agent can reach.

    <home>/accepted/KEY/record.json      the project, whether it is trusted, and digests of what was accepted
    <home>/accepted/KEY/.cupcake/...     the files themselves

KEY stands for the path of the project's folder (see `policy_folders`); a link there stands for another spelling of it.
The user's own policies for all projects have a record as well. The copy is made when policies are first used and when a
person runs `anyplug policy trust`, which also allows the project's commands and its changes of calls. While the
project's files differ from the copy, both decide (see `evaluation`), so that no change by itself loosens anything.
"""

import os
import shlex
import time
from typing import Final

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.model.hashes import sha256
from anyplug.policy import policy_files, policy_folders
from anyplug.policy.agent_events import HARNESSES, OURS
from anyplug.policy.paths import ACCEPTED, FOLDER
from anyplug.policy.policy_files import Source, Stamp
from anyplug.policy.rulebook import Signal

RECORD: Final = "record.json"
TRUST: Final = "anyplug policy trust"
TRIES: Final = 5  # attempts to read files without a concurrent change


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a person accepted."""

    project: str
    trusted: bool = False  # its commands run, and its changes of calls and its context apply
    unconfined: bool = False  # its commands run even without a sandbox
    digests: dict[str, str] = {}  # by agent
    at: float = 0.0


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What was accepted of one project for one agent; no `record`: nothing yet."""

    record: Record | None = None
    source: Source | None = None  # the copy, read only if it differs from the project's files
    stamps: dict[str, Stamp] = {}

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was accepted since."""
        return all(policy_files.stamp(path) == seen for path, seen in self.stamps.items())

    @property
    def is_trusted(self) -> bool:
        """Whether a person trusts the project."""
        return self.record is not None and self.record.trusted


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of one place for all agents, as they were at one moment: what is shown is what is accepted."""

    root: str
    project: str  # the folder that they are about; for the user's own policies, their folder
    sources: dict[str, Source]
    is_there: bool = True

    @property
    def contents(self) -> dict[str, bytes]:
        """Every file, by its path below the root."""
        return {
            os.path.relpath(path, self.root): content
            for source in self.sources.values()
            for path, content in source.contents.items()
        }

    @property
    def digests(self) -> dict[str, str]:
        """The digest for each agent."""
        return {name: digest(source) for name, source in self.sources.items()}


def read(root: str, *, is_own: bool = False) -> Reading:
    """Read a place; `is_own`: the user's own, for all projects. Raises OSError if its files keep changing."""
    for _ in range(TRIES):
        if is_own:
            found = {name: policy_files.read_own(root, name) for name in HARNESSES if name != OURS}
        else:
            found = {name: policy_files.read(root, name) for name in HARNESSES}
        seen: dict[str, bytes] = {}
        each = [item for source in found.values() for item in source.contents.items()]
        if all(seen.setdefault(path, content) == content for path, content in each):
            project = root if is_own else os.path.dirname(root)
            return Reading(root=root, project=project, sources=found, is_there=os.path.isdir(root))
    raise OSError(0, "its files change while they are read", root)


def digest(source: Source) -> str:
    """Return the digest of everything in a place that decides or runs, without our own builtins' texts."""
    texts = {name: text for name, text in (source.policies | source.shared).items() if not name.startswith("builtin/")}
    signals = {name: signal.identity for name, signal in source.signals.items()}
    told = msgspec.json.encode([texts, signals, source.builtin_config], order="deterministic")
    return sha256(told).hexdigest()


def commands(source: Source) -> dict[str, str]:
    """Return the commands that a place runs, as shown to a person: for a script, its text."""
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
    name = os.path.basename(shlex.split(signal.command)[0])
    text = source.contents.get(os.path.join(source.root, "signals", name), b"").decode(errors="replace")
    return f"{os.path.join(FOLDER, 'signals', name)}\n{text}"


def look(copy: str, source: Source, harness: str) -> Acceptance:
    """Find what was accepted of a project, whose files were just read; `copy` is the folder of the copy."""
    if not copy:
        return Acceptance()
    path = os.path.join(copy, RECORD)
    stamps = {path: policy_files.stamp(path)}
    record = _read(path)
    if record is None or record.digests.get(harness, "") == digest(source):
        return Acceptance(record=record, stamps=stamps)
    held = policy_files.read(os.path.join(copy, FOLDER), harness, origin=source.root)
    return Acceptance(record=record, source=held, stamps=stamps)


def look_own(home: str, source: Source, harness: str) -> Acceptance:
    """Find whether the user's own policies, which were just read, are as trusted; no `record`: they are not."""
    path = os.path.join(copy_of(home, source.root), RECORD)
    stamps = {path: policy_files.stamp(path)}
    record = _read(path)
    is_same = record is not None and record.digests.get(harness, "") == digest(source)
    return Acceptance(record=record if is_same else None, stamps=stamps)


def copy_of(home: str, project: str) -> str:
    """Return the folder for what was accepted of a project, whether or not it exists."""
    return os.path.join(home, ACCEPTED, policy_folders.keys(project)[0])


def record_of(home: str, project: str) -> Record | None:
    """Return what was accepted of a project; None if nothing was, or if its folder was replaced by a link."""
    found = [_read(os.path.join(home, ACCEPTED, key, RECORD)) for key in policy_folders.keys(project)]
    return found[0] if all(one == found[0] for one in found) else None


def held_root(home: str, project: str) -> str:
    """Return the copy of a project's `.cupcake`, whether or not it exists."""
    return os.path.join(copy_of(home, project), FOLDER)


def accept(home: str, root: str, *, trusted: bool) -> None:
    """Store a copy of a project's present policies. Raises OSError, StoreError."""
    keep(home, read(root), trusted=trusted)


def keep(home: str, reading: Reading, *, trusted: bool, unconfined: bool = False) -> None:
    """Store a copy of what was read, replacing the previous one. Raises OSError, StoreError."""
    project = os.path.realpath(reading.project)
    folder = copy_of(home, project)
    beside = f"{folder}.{os.getpid()}"
    make_private(os.path.dirname(folder))
    try:
        for name, content in reading.contents.items():
            path = os.path.join(beside, FOLDER, name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
        os.makedirs(os.path.join(beside, FOLDER), mode=0o700, exist_ok=True)
        record = Record(
            project=project, trusted=trusted, unconfined=unconfined, digests=reading.digests, at=round(time.time(), 3)
        )
        with open(os.path.join(beside, RECORD), "wb") as file:
            file.write(msgspec.json.encode(record))
        _replace(beside, folder)
        for key in policy_folders.keys(reading.project)[1:]:
            os.symlink(os.path.basename(folder), f"{beside}.link")
            _replace(f"{beside}.link", os.path.join(home, ACCEPTED, key))
    finally:
        _remove(beside)
    policy_folders.note(home, reading.project)


def forget(home: str, project: str) -> None:
    """Delete the record of a project whose policies are gone. Raises StoreError."""
    for key in policy_folders.keys(project):
        _remove(os.path.join(home, ACCEPTED, key))
    policy_folders.forget(home, project)


def _replace(beside: str, folder: str) -> None:
    """Replace a folder or link by another; a reader in between sees no copy, and never half of one."""
    old = f"{beside}.old"
    if os.path.lexists(folder):
        os.rename(folder, old)
    os.rename(beside, folder)
    _remove(old)


def _remove(path: str) -> None:
    if os.path.islink(path):
        os.unlink(path)
    else:
        import shutil  # with three compressors; only needed to change what was accepted

        shutil.rmtree(path, ignore_errors=True)


def _read(path: str) -> Record | None:
    try:
        return msgspec.json.decode(untrusted_files.read_linked(path), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
