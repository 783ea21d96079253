"""Permissions that one call requests beyond its plugin's grants: the person is asked about each, once or for this chat.

Only the chat's own tools do this: their arguments say what they need before they run.
"""

import os
from typing import Any

import msgspec

from anyplug.call.consent import Asker, Attachment, Question, refusal
from anyplug.catalog.approvals import Standing
from anyplug.model import hints, permissions, protected_paths
from anyplug.model.errors import Denied
from anyplug.model.hashes import sha256
from anyplug.model.types import Call
from anyplug.runtime.sandbox.linux.protected_names import CLOSED, FREE, Protected

WRITING = frozenset({"write", "edit"})


def wanted(call: Call, standing: Standing, project: str) -> list[str]:
    """Return the permissions that a call of the chat's own tools wants and they were not granted."""
    given, name = call.arguments, call.tool.own_name
    found: list[str] = []
    if name == "bash" and given.get("network"):
        found.append("network")
    paths: list[Any] = given.get("paths", []) if name == "bash" else [given.get("path")] if name in WRITING else []
    found += [f"filesystem:write:{place}" for path in paths if (place := _needing(path, project))]
    if name == "read" and (place := _hidden(given.get("path"), project)):
        found.append(f"filesystem:read:{place}")
    return [one for one in dict.fromkeys(found) if one not in standing.granted]


def _needing(path: Any, project: str) -> str:
    """Return what must be granted for writing to a path: it is outside the project, or protected. Empty if nothing.

    What is not there yet is made in its folder, so that is granted, unless the path is protected by its own name.
    """
    real = _real(path, project)
    places = protected_paths.places(os.path.realpath(os.path.expanduser("~")), project)
    guarded = Protected((*places.read_only, *places.hidden), ())
    is_inside = real.startswith(f"{project.rstrip('/')}/")
    if not real or (is_inside and _is_free(guarded, real)):
        return ""
    place = real
    while not os.path.exists(place) and not (is_inside and not _is_closed(guarded, os.path.dirname(place))):
        place = os.path.dirname(place)
    return place


def _hidden(path: Any, project: str) -> str:
    """Return the real path if reading it needs a grant of its own."""
    real = _real(path, project)
    places = protected_paths.places(os.path.realpath(os.path.expanduser("~")), project)
    return "" if not real or _is_free(Protected(places.hidden, ()), real) else real


def _real(path: Any, project: str) -> str:
    if not isinstance(path, str) or not path:
        return ""
    return os.path.realpath(os.path.join(project, os.path.expanduser(path)))


def _is_free(guarded: Protected, path: str) -> bool:
    return guarded.state(os.path.dirname(path), os.path.basename(path)) == FREE


def _is_closed(guarded: Protected, path: str) -> bool:
    return guarded.state(os.path.dirname(path), os.path.basename(path)) == CLOSED


async def widened(call: Call, standing: Standing, attachment: Attachment, project: str, asker: Asker) -> Standing:
    """Ask for what a call wants beyond its plugin's grants; return the standing that it runs with. Raises Denied."""
    for permission in wanted(call, standing, project):
        if await _is_allowed(call, permission, attachment, asker):
            standing = msgspec.structs.replace(standing, granted=(*standing.granted, permission))
            continue
        raise Denied("person", f"the person did not allow {permission}", "do it without, or ask the person")
    return standing


async def _is_allowed(call: Call, permission: str, attachment: Attachment, asker: Asker) -> bool:
    about = f"{call.plugin.path}\0{permission}"
    if about in attachment.allowed:
        return True
    if attachment.ask is None and not asker.is_watched:
        raise Denied(
            "host",
            f"'{call.tool.name}' wants {permission} for this call, but nobody can be asked here",
            f"allow it permanently with {hints.command('grant', call.plugin.name, permission)}",
        )
    question = Question(
        id=f"{call.id}-{sha256(permission.encode()).hexdigest()[:8]}",  # a path would not fit into an address
        plugin=call.plugin.name,
        tool=call.tool.name,
        arguments=call.arguments,
        permissions=(permission,),
        warning=f"this call also wants to {permissions.describe(permission)}",
        asker=f"permission:{permission}",
        digest="",
        chain=attachment.chain,
        callers=attachment.callers,
    )
    try:
        return (await attachment.put(question, about, asker)).word != "no"
    except Denied as error:
        raise Denied(refusal(error).by, error.message, error.hint) from error
