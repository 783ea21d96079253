"""Our entry in one configuration file: what putting it there or taking it out would change, and doing so.

Both begin as a `Change`, which a person can look at. What was there is copied to `<home>/backups` (configurations hold
secrets, and a copy beside them would end up in somebody's repository), and noted in `<home>/connections`: as long as
nobody else touches the file, taking the entry out gives back the bytes that were there, and removes what we made.
"""

import hashlib
import os
import time
from typing import Any

import msgspec

from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.manage.connect import files
from anyplug.manage.connect.clients import Client, Scope
from anyplug.manage.connect.edits import Malformed, Unfit
from anyplug.model.errors import ConfigError

SERVER = "anyplug"  # what our server is called in other programs; a profile's has its name behind it
ENTRY_DEPTH = 1  # objects around our entry that may be ours, too


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a connection that we made."""

    path: str
    server: str
    existed: bool  # whether there was a file
    made: int = 0  # how many objects around the entry came with it
    folders: list[str] = []  # that were made for the file
    backup: str = ""  # a copy of what was there before; empty if others changed the file since
    after: str = ""  # the hash of what we wrote


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of a file. `None` stands for no file."""

    client: Client
    server: str
    scope: Scope
    path: str  # as the client names it
    real: str  # where it is
    before: str | None
    after: str | None
    note: Note | None = None  # what is to be known of it then
    is_first: bool = False  # whether the note still lacks the copy and the folders that are made on the way

    @property
    def is_none(self) -> bool:
        """Whether everything is as it should be."""
        return self.before == self.after


def server_name(profile: str) -> str:
    """Name our server, as all of it or as one profile sees it."""
    return f"{SERVER}-{profile}" if profile else SERVER


def snippet(client: Client, server: str, command: list[str]) -> str:
    """Write the entry as it stands in a file that has nothing else."""
    text: str = client.language.put("", (client.key, server), client.entry(command))
    return text


def file(client: Client, scope: Scope, folder: str, server: str = SERVER) -> str:
    """Find the file that is meant: the one with our entry, else one that exists, else the one to make."""
    names = client.files(scope, folder)
    there = [name for name in names if os.path.lexists(name)]
    return next((name for name in there if len(there) > 1 and _has(client, name, server)), [*there, *names][0])


def servers(client: Client, path: str) -> list[str]:
    """List what entries of ours a file has. Raises ConfigError."""
    text = files.read(files.real(path))
    found = _read(client, path, text).get(client.key) if text is not None else None
    names = found if isinstance(found, dict) else {}
    return sorted(name for name in names if name == SERVER or name.startswith(f"{SERVER}-"))


def joining(home: Home, client: Client, server: str, command: list[str], scope: Scope, folder: str) -> Change:
    """Say what connecting changes. Raises ConfigError."""
    path = file(client, scope, folder, server)
    real = files.real(path)
    before = files.read(real)
    entry, way = client.entry(command), (client.key, server)
    said = _read(client, path, before or "")
    present = _at(said, way)
    after = before or ""
    try:
        if not isinstance(present, dict):
            after = client.language.put(after, way, entry)
        else:  # what a person wrote beside our words stays
            for key, value in entry.items():
                if present.get(key) != value:
                    after = client.language.put(after, (*way, key), value)
    except Unfit as unfit:
        raise _unfit(client, path, unfit, server, command) from unfit
    wanted = _with(said, way, {**(present if isinstance(present, dict) else {}), **entry})
    if _reads_as(client, after) != wanted:
        raise _unfit(client, path, Unfit("it is written in an unusual way"), server, command)
    known = _known(home, real, server)
    is_first = False
    if known is not None and before is not None and known.after == _hash(before):
        note = msgspec.structs.replace(known, after=_hash(after))
    elif known is not None and isinstance(present, dict):
        note = msgspec.structs.replace(known, backup="", after="")  # others wrote beside us: no bytes to go back to
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
    """Say what taking our entry out changes. Raises ConfigError."""
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
    """Make a change; give where the copy of what was there lies, or an empty string. Raises ConfigError."""
    files.check_writable(change.real)
    if files.read(change.real) != change.before:
        raise ConfigError(f"{change.path} was changed by another program just now", "try again; it was left as it is")
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
        return False  # what is wrong with it is said when it is the one that is meant


def _as_it_was(known: Note, now: str) -> str | None:
    """Return what was there before us, if nobody has touched it since; else what is there now."""
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
        raise ConfigError(f"'{server}' cannot be taken out of {path}: {unfit}", "take it out by hand") from unfit
    left = {name: entry for name, entry in said[client.key].items() if name != server}
    rest = {key: value for key, value in said.items() if key != client.key}
    if _reads_as(client, after) not in ({**rest, client.key: left}, rest if not left else None):
        raise ConfigError(
            f"'{server}' cannot be taken out of {path}: it is written in an unusual way", "take it out by hand"
        )
    is_bare = after.strip() in {"", "{}"}
    return None if is_bare and known is not None and not known.existed else after


def _read(client: Client, path: str, text: str) -> dict[str, Any]:
    try:
        said: dict[str, Any] = client.language.read(text)
    except Malformed as wrong:
        raise ConfigError(
            f"{path} cannot be understood: {wrong}", "mend it, then try again; it was left as it is"
        ) from wrong
    return said


def _reads_as(client: Client, text: str) -> dict[str, Any] | None:
    """Read what we are about to write, as a last look before anybody else does."""
    try:
        said: dict[str, Any] = client.language.read(text)
    except Malformed:
        return None
    return said


def _unfit(client: Client, path: str, unfit: Unfit, server: str, command: list[str]) -> ConfigError:
    entry = snippet(client, server, command)
    return ConfigError(f"our server cannot be put into {path}: {unfit}", f"add it by hand:\n{entry}")


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
        return None  # a note that is lost costs the exact bytes, and nothing else


def _remember(home: Home, note: Note) -> None:
    files.write(_note_path(home, note.path, note.server), msgspec.json.encode(note).decode())


def _back_up(home: Home, change: Change) -> str:
    """Copy what is there, for the person's eyes only."""
    assert change.before is not None
    make_private(home.backups)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    plain = os.path.join(home.backups, f"{change.client.name}-{stamp}-{os.path.basename(change.real).lstrip('.')}")
    path, count = plain, 1
    while os.path.lexists(path):
        path, count = f"{plain}.{count}", count + 1
    files.write(path, change.before)
    return path
