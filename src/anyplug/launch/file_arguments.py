"""File arguments that are paths: they name the file itself before gates see them, and are read after that.

A path counts in the caller's project and where a grant to read or write files allows it; a file that a tool returned
counts too. No link is followed, so what was checked is what is read. Protected paths are excluded.
"""

import errno
import os
import sys
from typing import NamedTuple

import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.formats.shared.attachments import LARGEST_INPUT
from anyplug.home import untrusted_files
from anyplug.home.settings import Home
from anyplug.launch.sandbox_profiles import Allowances
from anyplug.model import permissions, schema
from anyplug.model.errors import Denied, InvalidArguments
from anyplug.model.types import Call
from anyplug.runtime.sandbox.profile import USERS_FOLDERS

GRANTS = ("filesystem:read", "filesystem:write")


class Reader(NamedTuple):
    """Who reads the files of a call."""

    home: Home
    project: str
    granted: tuple[str, ...]  # to the plugin that makes the call, otherwise to the one that is called
    is_plugin: bool  # a plugin makes the call, which may pass on only what it may read itself


def named(call: Call, project: str) -> Call:
    """Return a call with absolute paths, so that guards, policies and people see which files are meant."""
    paths = _paths(call)
    if not paths:
        return call
    given = {name: _absolute(call, name, path, project) for name, path in paths.items()}
    return msgspec.structs.replace(call, arguments={**call.arguments, **given})


def has_paths(call: Call) -> bool:
    """Return whether any file of a call is a path."""
    return bool(_paths(call))


def read(call: Call, standing: Standing, reader: Reader, allowances: Allowances) -> Call:
    """Return a call with files in place of their paths; raises Denied and InvalidArguments."""
    import base64  # takes 6 ms to import, and few calls have files

    arguments, taken = dict(call.arguments), set()
    for name, given in _paths(call).items():
        path = _absolute(call, name, given, reader.project)
        folder = _folder_of(path, reader)
        is_kept = not reader.is_plugin and folder == os.path.join(reader.home.path, "files")
        if not folder or (
            not is_kept and allowances.guarded(call.plugin, standing, folder, reader.granted).opener(path)
        ):
            raise _refused(call, name, path, reader, is_protected=bool(folder))
        filename = os.path.basename(path)
        while filename in taken:  # they are put into one folder
            filename = f"_{filename}"
        taken.add(filename)
        top = os.path.dirname(path) if path == folder else folder  # a grant may name the file
        real, is_misled = allowances.leads(top)
        if is_misled:
            why = "there is a link in its path that a plugin could have put there"
            raise InvalidArguments(call.tool.name, [f'The file of parameter "{name}" cannot be read: {path}: {why}'])
        data = base64.b64encode(_content(call, name, path, top, real)).decode()
        arguments[name] = {"filename": filename, "data": data}
    return msgspec.structs.replace(call, arguments=arguments)


def _paths(call: Call) -> dict[str, str]:
    """Return the file arguments that are paths."""
    files = schema.files(call.tool.input_schema)
    if not files:  # as for most tools
        return {}
    return {name: path for name in files if isinstance(path := call.arguments.get(name), str)}


def _absolute(call: Call, name: str, path: str, project: str) -> str:
    if not path or "\0" in path:
        raise InvalidArguments(call.tool.name, [f'Parameter "{name}" is not the path of a file'])
    return os.path.normpath(os.path.join(project, os.path.expanduser(path)))


def _folder_of(path: str, reader: Reader) -> str:
    """Return the folder, or the file, that makes a path readable; empty if none does."""
    user = os.path.expanduser("~")
    scopes = [permissions.scope_of(grant) for grant in reader.granted if permissions.kind(grant) in GRANTS]
    places = [os.path.normpath(os.path.join(reader.project, os.path.expanduser(scope))) for scope in scopes if scope]
    places += [user, *USERS_FOLDERS, reader.project] if "" in scopes else []
    if not reader.is_plugin:
        places += [os.path.join(reader.home.path, "files"), reader.project]
    return next((place for place in places if place != "/" and f"{path}/".startswith(f"{place}/")), "")


def _content(call: Call, name: str, path: str, folder: str, real: str) -> bytes:
    """Read a file without following links below its folder, which is `real`; raises InvalidArguments."""
    inside = os.path.relpath(path, folder)
    try:
        with _held(real) as held:
            return held.read(inside, LARGEST_INPUT)
    except OSError as error:
        why = (
            "links are not followed" if os.path.realpath(path) != os.path.join(os.path.realpath(folder), inside) else ""
        )
        raise InvalidArguments(
            call.tool.name, [f'The file of parameter "{name}" cannot be read: {path}: {why or error.strerror}']
        ) from error


def _held(real: str) -> untrusted_files.HeldFolder:
    """Hold the folder at a real path; raises OSError, also if a folder above it was replaced just now."""
    held = untrusted_files.hold(real)
    if sys.platform == "linux" and os.readlink(f"/proc/self/fd/{held.fd}") != real:
        held.close()
        raise OSError(errno.ELOOP, "links are not followed")
    return held


def _refused(call: Call, name: str, path: str, reader: Reader, *, is_protected: bool) -> Denied:
    if is_protected:
        why, hint = "it is a protected path", "copy what the tool needs into another file of the project"
    elif reader.is_plugin:
        why, hint = "the plugin that makes this call may not read it", "pass the content as {filename, data}"
    else:
        why = f"it is neither in the project ({reader.project}) nor in a folder granted to '{call.plugin.name}'"
        hint = (
            f"copy it into the project, or let the user run `anyplug grant {call.plugin.name} filesystem:read:FOLDER`"
        )
    return Denied("host", f'The file of parameter "{name}" may not be read: {path}: {why}', hint)
