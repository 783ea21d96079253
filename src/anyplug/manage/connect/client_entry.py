"""Our entry in one configuration file: compute and apply its addition or removal.

Both begin as a `Change`, which a person can review. The previous file is copied to `<home>/backups` (configurations
contain secrets, and a copy next to them might be committed to a repository), and noted in `<home>/connections`. As long
as nobody else touches the file, removing the entry restores the original bytes, and removes what we created.
"""

import hashlib
import os
import time
from contextlib import suppress
from typing import Any

import msgspec

from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.manage.connect import files
from anyplug.manage.connect.clients import Client, Scope
from anyplug.manage.connect.edits import Malformed, Unfit
from anyplug.model.errors import ConfigError

SERVER = "anyplug"  # our server's name in other programs; a profile's name is appended
ENTRY_DEPTH = 1  # objects around our entry that may be ours, too


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a connection that we made."""

    path: str
    server: str
    existed: bool  # whether there was a file
    made: int = 0  # how many objects around the entry were created with it
    folders: list[str] = []  # created for the file
    backup: str = ""  # a copy of the previous file; empty if others changed the file since
    after: str = ""  # the hash of what we wrote


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A planned change of a file. `None` stands for no file."""

    client: Client
    server: str
    scope: Scope
    path: str  # as the client names it
    real: str  # the real path
    before: str | None
    after: str | None
    note: Note | None = None  # to be stored with the change
    is_first: bool = False  # whether the note still lacks the backup and the folders that are created on the way

    @property
    def is_none(self) -> bool:
        """Whether nothing needs to change."""
        return self.before == self.after


def server_name(profile: str) -> str:
    """Return our server's name, in general or for one profile."""
    return f"{SERVER}-{profile}" if profile else SERVER


def snippet(client: Client, server: str, command: list[str]) -> str:
    """Format the entry as a whole file."""
    text: str = client.language.put("", (client.key, server), client.entry(command))
    return text


def file(client: Client, scope: Scope, folder: str, server: str = SERVER) -> str:
    """Find the file to use: the one with our entry, else an existing one, else the one to create."""
    names = client.files(scope, folder)
    there = [name for name in names if os.path.lexists(name)]
    return next((name for name in there if len(there) > 1 and _has(client, name, server)), [*there, *names][0])


def servers(client: Client, path: str) -> list[str]:
    """List our entries in a file. Raises ConfigError."""
    text = files.read(files.real(path))
    found = _read(client, path, text).get(client.key) if text is not None else None
    names = found if isinstance(found, dict) else {}
    return sorted(name for name in names if name == SERVER or name.startswith(f"{SERVER}-"))


def is_connected(client: Client, folder: str) -> bool:
    """Return whether a file of a client has an entry of ours; one that cannot be read has none."""
    for path in (*client.files("user", folder), *client.files("project", folder)):
        with suppress(ConfigError):
            if servers(client, path):
                return True
    return False


def joining(home: Home, client: Client, server: str, command: list[str], scope: Scope, folder: str) -> Change:
    """Compute what connecting changes. Raises ConfigError."""
    path = file(client, scope, folder, server)
    real = files.real(path)
    if scope == "project" and not real.startswith(os.path.join(files.real(folder), "")):
        hint = "remove the link, or edit that file by hand"
        raise ConfigError(f"{path} is a link out of the project, to {real}; it was not changed", hint)
    before = files.read(real)
    entry, way = client.entry(command), (client.key, server)
    said = _read(client, path, before or "")
    present = _at(said, way)
    after = before or ""
    try:
        if isinstance(present, dict) and scope == "project" and not present.keys() <= entry.keys():
            # It came with the project: `env`, `url` and the like would decide what runs as ours.
            after, present = client.language.drop(after, way, 0), None
        if not isinstance(present, dict):
            after = client.language.put(after, way, entry)
        else:  # what a person added to our entry stays
            for key, value in entry.items():
                if present.get(key) != value:
                    after = client.language.put(after, (*way, key), value)
    except Unfit as unfit:
        raise _unfit(client, path, unfit, server, command) from unfit
    wanted = _with(said, way, {**(present if isinstance(present, dict) else {}), **entry})
    if _reads_as(client, after) != wanted:
        raise _unfit(client, path, Unfit("it has an unusual layout"), server, command)
    known = _known(home, real, server)
    is_first = False
    if known is not None and before is not None and known.after == _hash(before):
        note = msgspec.structs.replace(known, after=_hash(after))
    elif known is not None and isinstance(present, dict):
        note = msgspec.structs.replace(
            known, backup="", after=""
        )  # others wrote to it: the original bytes cannot be restored
    else:
        is_first, made = True, 0 if client.key in said else ENTRY_DEPTH
        note = Note(path=real, server=server, existed=before is not None, made=made, after=_hash(after))
    return Change(
        client=client,
        server=server,
        scope=scope,
        path=path,
        real=real,
        before=before,
        after=after,
        note=note,
        is_first=is_first,
    )


def leaving(home: Home, client: Client, server: str, scope: Scope, folder: str) -> Change:
    """Compute what removing our entry changes. Raises ConfigError."""
    path = file(client, scope, folder, server)
    real = files.real(path)
    before = files.read(real)
    known = _known(home, real, server)
    after = before
    if before is not None:
        said = _read(client, path, before)
        if _at(said, (client.key, server)) is not None:
            after = _as_it_was(known, before) if known is not None else before
            if after == before:
                after = _taken_out(client, path, before, said, server, known)
    return Change(client=client, server=server, scope=scope, path=path, real=real, before=before, after=after)


def make(home: Home, change: Change) -> str:
    """Apply a change; return the path of the backup, or an empty string. Raises ConfigError."""
    files.check_writable(change.real)
    if files.read(change.real) != change.before:
        raise ConfigError(f"{change.path} was just changed by another program", "try again; it was not changed")
    backup = _back_up(home, change) if change.before is not None else ""
    if change.after is None:
        known = _known(home, change.real, change.server)
        files.remove(change.real, known.folders if known is not None else [])
    else:
        mode = files.PRIVATE if change.scope == "user" else files.SHARED
        made = files.write(change.real, change.after, mode)
        if change.note is not None and change.is_first:
            _remember(home, msgspec.structs.replace(change.note, backup=backup, folders=made))
        elif change.note is not None:
            _remember(home, change.note)
    if change.note is None:
        files.remove(_note_path(home, change.real, change.server), [])
    return backup


def _has(client: Client, path: str, server: str) -> bool:
    try:
        return server in servers(client, path)
    except ConfigError:
        return False  # reported if it is the file to use


def _as_it_was(known: Note, now: str) -> str | None:
    """Return the original content if nobody has touched the file since, else the present content."""
    if known.after != _hash(now):
        return now
    if not known.existed:
        return None
    kept = files.read(known.backup) if known.backup else None
    return now if kept is None else kept


def _taken_out(
    client: Client, path: str, before: str, said: dict[str, Any], server: str, known: Note | None
) -> str | None:
    way = (client.key, server)
    made = known.made if known is not None else 0
    try:
        after: str = client.language.drop(before, way, made)
    except Unfit as unfit:
        raise ConfigError(f"cannot remove '{server}' from {path}: {unfit}", "remove it by hand") from unfit
    left = {name: entry for name, entry in said[client.key].items() if name != server}
    rest = {key: value for key, value in said.items() if key != client.key}
    if _reads_as(client, after) not in ({**rest, client.key: left}, rest if not left else None):
        raise ConfigError(f"cannot remove '{server}' from {path}: it has an unusual layout", "remove it by hand")
    is_bare = after.strip() in {"", "{}"}
    return None if is_bare and known is not None and not known.existed else after


def _read(client: Client, path: str, text: str) -> dict[str, Any]:
    try:
        said: dict[str, Any] = client.language.read(text)
    except Malformed as wrong:
        raise ConfigError(f"{path} is invalid: {wrong}", "fix it, then try again; it was not changed") from wrong
    return said


def _reads_as(client: Client, text: str) -> dict[str, Any] | None:
    """Parse what we are about to write, as a last check."""
    try:
        said: dict[str, Any] = client.language.read(text)
    except Malformed:
        return None
    return said


def _unfit(client: Client, path: str, unfit: Unfit, server: str, command: list[str]) -> ConfigError:
    entry = snippet(client, server, command)
    return ConfigError(f"cannot add our server to {path}: {unfit}", f"add it by hand:\n{entry}")


def _at(said: Any, way: tuple[str, ...]) -> Any:
    for key in way:
        said = said.get(key) if isinstance(said, dict) else None
    return said


def _with(said: dict[str, Any], way: tuple[str, str], entry: dict[str, Any]) -> dict[str, Any]:
    key, server = way
    held = said.get(key)
    return {**said, key: {**(held if isinstance(held, dict) else {}), server: entry}}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _note_path(home: Home, path: str, server: str) -> str:
    return os.path.join(home.connections, f"{_hash(f'{path}{chr(0)}{server}')[:16]}.json")


def _known(home: Home, path: str, server: str) -> Note | None:
    text = files.read(_note_path(home, path, server))
    try:
        return msgspec.json.decode(text, type=Note) if text is not None else None
    except msgspec.DecodeError:
        return None  # a lost note only costs the exact restoration


def _remember(home: Home, note: Note) -> None:
    files.write(_note_path(home, note.path, note.server), msgspec.json.encode(note).decode())


def _back_up(home: Home, change: Change) -> str:
    """Copy the present file, readable only by the user."""
    assert change.before is not None
    make_private(home.backups)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    plain = os.path.join(home.backups, f"{change.client.name}-{stamp}-{os.path.basename(change.real).lstrip('.')}")
    path, count = plain, 1
    while os.path.lexists(path):
        path, count = f"{plain}.{count}", count + 1
    files.write(path, change.before)
    return path
