"""The facts behind a decision about a plugin, for every face: what to grant, what an approval or a grant changes."""

import os
import shutil

from anyplug.catalog.approvals import Approval, Approvals
from anyplug.catalog.snapshot import Entry, Snapshot
from anyplug.model import permissions
from anyplug.model.errors import ManifestError, UsageError
from anyplug.model.types import Plugin

HARMLESS_TIER = 1  # never asks after approval


def default_grants(approvals: Approvals, plugin: Plugin) -> tuple[str, ...]:
    """Return what to grant: what it asks for; of what a person decided before, only what they granted then."""
    before = approvals.of(plugin)
    if before is None or not before.approved:
        return plugin.permissions
    kept = [name for name in before.granted if name in plugin.permissions or name not in before.asked]
    return (*kept, *(name for name in plugin.permissions if name not in before.asked and name not in kept))


def wanted_grants(approvals: Approvals, plugin: Plugin, given: list[str] | None, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what a person grants: what they named, or else the default. Raises UsageError and ToolNotFound."""
    if given is None:
        return snapshot.with_full_names(default_grants(approvals, plugin))
    return found(checked(given), snapshot)


def found(granted: tuple[str, ...], snapshot: Snapshot) -> tuple[str, ...]:
    """Return grants with the full names of the tools they name. Raises ToolNotFound for a tool that nobody has."""
    for name in filter(None, map(permissions.tool_of, granted)):
        snapshot.tool(name)
    return snapshot.with_full_names(granted)


def checked(names: list[str]) -> tuple[str, ...]:
    """Accept only known permissions with valid scopes. Raises UsageError."""
    for name in names:
        message, hint = permissions.fault(name)
        if message:
            raise UsageError(message, hint)
    return permissions.normalise(names)


def unusable(entry: Entry) -> ManifestError:
    """Return why a plugin cannot be approved that is broken or shadowed."""
    if entry.state == "shadowed":
        return ManifestError(
            f"'{entry.name}' in {entry.path} is shadowed by {entry.shadowed_by}", "remove or rename one of the two"
        )
    problem = next(problem for problem in entry.problems if problem.level == "error")
    return ManifestError(f"'{entry.name}' cannot be loaded: {problem.message}", problem.hint)


def ended(plugin: Plugin, before: Approval | None, now: Approval | None) -> list[tuple[str, str]]:
    """Return what the previous approval allowed and the present one does not, each with the option that does."""
    if before is None or not before.approved or now is None:
        return []
    facts = (
        (
            before.always and not now.always and plugin.tier > HARMLESS_TIER,
            "it asks again once per run or session",
            "--always",
        ),
        (before.follow and not now.follow, "changed code needs a new approval again", "--follow"),
        (
            before.unconfined and not now.unconfined,
            "it no longer runs where its permissions cannot be enforced",
            "--allow-unconfined",
        ),
        (
            before.inherits_environment and not now.inherits_environment,
            "it no longer gets your environment",
            "--inherit-env",
        ),
    )
    return [(text, option) for has_ended, text, option in facts if has_ended]


def meanings(granted: tuple[str, ...]) -> list[tuple[bool, str]]:
    """Return what grants open where their names do not say so, each with whether that is a warning."""
    found = []
    for permission in granted:
        scope = permissions.scope_of(permission)
        if text := permissions.really(permission):
            found.append((False, f"{permission} {text}"))
        if permissions.kind(permission).startswith("filesystem:") and scope:
            path = os.path.abspath(os.path.expanduser(scope))
            if scope[0] not in "/~":
                found.append((False, f"{permission} is relative to the folder in which anyplug runs, now {path}"))
            if not os.path.exists(path):
                is_write = permissions.kind(permission) == "filesystem:write"
                around = ", unless a folder around it is granted, too" if is_write else ""
                found.append((True, f"{path} does not exist, so {permission} allows nothing until it does{around}"))
        if permission.startswith("shell:exec:") and shutil.which(os.path.expanduser(scope)) is None:
            found.append((True, f"'{scope}' is not on your PATH, so {permission} allows nothing until it is"))
    return found
