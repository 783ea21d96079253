"""Requests of agents for plugins. Nothing is fetched before a person installs one, and nothing runs before approval.

One file for each request, named by what it asks for: agents that ask again add nothing, and no lock is needed.
"""

import hashlib
import os
import time

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.manage import pasted_names
from anyplug.manage.plugin_sources import Source
from anyplug.model.errors import InstallError
from anyplug.model.untrusted_text import is_clean

MOST = 50  # requests that wait; an agent in a loop must not fill the list that a person reads
LONGEST = 500  # characters of an address, a version or a folder


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that an agent asked for, and when."""

    source: Source
    at: float


def ask(home: Home, source: Source, project: str) -> Source:
    """Record that an agent wants a plugin, named as a person can type it. Raises InstallError."""
    for word in (source.location, source.ref, source.subdir):
        if word and (word.startswith("-") or not is_clean(word) or len(word) > LONGEST):
            raise InstallError("this is not a source of a plugin", "pass a git address or a folder")
    if not source.is_address:
        folder = os.path.normpath(os.path.join(project, os.path.expanduser(source.location)))
        is_short = pasted_names.read(source.location).source.is_address
        if not os.path.isdir(folder) and not is_short:
            raise InstallError(f"there is no folder {folder}", "pass owner/repo, a git address or a folder that exists")
        if os.path.isdir(folder):
            source = msgspec.structs.replace(source, location=folder)
    if len(waiting(home)) >= MOST:
        raise InstallError("too many requests wait for the user", "ask the user to look at them: `anyplug install`")
    record = msgspec.json.encode(Wanted(source=source, at=time.time()))
    try:
        make_private(home.requests)
        with open(os.open(_place(home, source), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(record)
    except OSError as error:
        raise InstallError(f"the request cannot be stored: {error.strerror}", "tell the user") from error
    return source


def waiting(home: Home) -> list[Wanted]:
    """Return the requests that wait for a person, the oldest first."""
    try:
        names = os.listdir(home.requests)
    except OSError:
        return []
    found = []
    for name in names:
        try:
            text = untrusted_files.read_linked(os.path.join(home.requests, name))
            found.append(msgspec.json.decode(text, type=Wanted))
        except (OSError, msgspec.DecodeError):  # just settled, or only half written
            continue
    return sorted(found, key=lambda wanted: wanted.at)


def settle(home: Home, source: Source) -> bool:
    """Forget a request, because the person installed the plugin or declined; return whether there was one."""
    try:
        os.unlink(_place(home, source))
    except OSError:
        return False
    return True


def _place(home: Home, source: Source) -> str:
    whole = msgspec.structs.replace(source, location=source.lasting_location)
    return os.path.join(home.requests, hashlib.sha256(msgspec.json.encode(whole)).hexdigest()[:32])
