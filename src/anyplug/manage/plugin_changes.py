"""List what changed in a plugin since its approval: permissions, tools and their texts, files with their lines.

The approved code is the snapshot of its digest, if that is still there; the present one is read like any file that a
plugin can write.
"""

import os
from difflib import unified_diff
from typing import Any, Final, Literal

import msgspec

from anyplug.catalog.approvals import Approval
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.snapshot import Entry
from anyplug.home import untrusted_files
from anyplug.home.code_snapshots import FILES, Snapshots
from anyplug.model.tool_names import described
from anyplug.model.types import ConfigKey, Plugin, Tool

MOST_FILES: Final = 300  # that are listed
MOST_DIFFS: Final = 50  # files whose lines are compared
LARGEST: Final = 256 << 10  # bytes of a file whose lines are compared
MOST_LINES: Final = 400  # of one diff
MOST_COMPARED: Final = 5_000  # lines of a file: comparing takes quadratic time at worst
AROUND: Final = 3  # unchanged lines around a change

Kind = Literal["added", "removed", "changed", "mode"]


class ToolText(msgspec.Struct, frozen=True, kw_only=True):
    """What models read of a tool."""

    description: str
    input_schema: dict[str, Any]


class ToolChange(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is other than approved."""

    name: str
    change: Kind
    before: ToolText | None
    after: ToolText | None
    diff: tuple[str, ...]


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is other than approved. `diff` is None where it cannot be shown."""

    path: str
    change: Kind
    added: int = 0
    removed: int = 0
    is_text: bool = True
    diff: str | None = None
    is_cut: bool = False


class PermissionChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions that it asks for and did not, and vice versa."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that changed. `is_known`: there is an approval to compare with."""

    is_known: bool
    since: float
    permissions: PermissionChanges
    tools: tuple[ToolChange, ...]
    texts: tuple[str, ...]
    files: tuple[FileChange, ...]
    files_total: int
    has_snapshot: bool
    digest: str


def approved_version(catalog: Catalog, before: Approval) -> tuple[Plugin, str] | None:
    """Return a plugin as it was approved, and the folder of its code, if there is a snapshot of it."""
    snapshots = Snapshots(catalog.home.path)
    for path in (snapshots.path(before.digest), snapshots.path(before.digest, config=True)):
        files = os.path.join(path, FILES)
        named = os.path.join(path, before.name)  # some manifests must contain the name of their folder
        approved = catalog.read(files, named) if os.path.isdir(files) else None
        if approved is not None and approved.name == before.name:
            return approved, files
    return None


def changes_of(catalog: Catalog, entry: Entry) -> Changes:
    """Compare a plugin with its last approval. Blocks while files are read."""
    plugin = entry.plugin
    before = catalog.approvals.of(plugin)
    try:
        now = catalog.digest(plugin)
    except OSError:
        now = None
    if before is None or not before.approved:
        before = Approval(name=plugin.name, approved=False)
    found = approved_version(catalog, before) if before.approved else None
    old, new = before.files, now.files if now is not None else {}
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    budget = [MOST_DIFFS]
    files = tuple(
        _file_change(name, old, new, plugin, found[1] if found else "", budget) for name in names[:MOST_FILES]
    )
    return Changes(
        is_known=before.approved,
        since=before.decided,
        permissions=PermissionChanges(
            added=tuple(name for name in plugin.permissions if name not in before.asked),
            removed=tuple(name for name in before.asked if name not in plugin.permissions),
        ),
        tools=_tool_changes(before, found[0] if found else None, plugin),
        texts=tuple(changed_for_people(found[0], plugin)) if found else (),
        files=files,
        files_total=len(names),
        has_snapshot=found is not None,
        digest=now.value if now is not None else "",
    )


def _file_change(
    name: str, old: dict[str, str], new: dict[str, str], plugin: Plugin, folder: str, budget: list[int]
) -> FileChange:
    kind: Kind = "added" if name not in old else "removed" if name not in new else "changed"
    if not folder or plugin.is_file or budget[0] <= 0:
        return FileChange(path=name, change=kind)
    budget[0] -= 1
    before = _lines(folder, name) if kind != "added" else []
    after = _lines(plugin.path, name) if kind != "removed" else []
    if before is None or after is None:
        return FileChange(path=name, change=kind, is_text=False)
    lines = list(unified_diff(before, after, lineterm="", n=AROUND))[2:]
    return FileChange(
        path=name,
        change=kind,
        added=sum(line.startswith("+") for line in lines),
        removed=sum(line.startswith("-") for line in lines),
        diff="\n".join(lines[:MOST_LINES]),
        is_cut=len(lines) > MOST_LINES,
    )


def _lines(folder: str, name: str) -> list[str] | None:
    """Return a file's lines; None if it is binary, or too large to compare."""
    try:
        text = untrusted_files.read(os.path.join(folder, name), LARGEST)
        lines = text.decode().splitlines() if b"\0" not in text else None
    except (OSError, UnicodeDecodeError):
        return None
    return lines if lines is not None and len(lines) <= MOST_COMPARED else None


def _tool_changes(before: Approval, approved: Plugin | None, plugin: Plugin) -> tuple[ToolChange, ...]:
    """Compare what models read. What a long-running plugin registers is compared with its pinned list elsewhere."""
    if plugin.stays_up:
        return tuple(_tool_change(tool.own_name, None, tool) for tool in plugin.held)
    if before.approved and approved is None:
        return ()
    old = {tool.own_name: tool for tool in (approved.tools if approved is not None else ())}
    new = {tool.own_name: tool for tool in plugin.tools}
    return tuple(
        _tool_change(name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if name not in old or name not in new or _text(old[name]) != _text(new[name])
    )


def _tool_change(name: str, before: Tool | None, after: Tool | None) -> ToolChange:
    old, new = (_text(tool) if tool is not None else None for tool in (before, after))
    lines = unified_diff(_shown(old), _shown(new), lineterm="", n=AROUND)
    return ToolChange(
        name=name,
        change="added" if old is None else "removed" if new is None else "changed",
        before=old,
        after=new,
        diff=tuple(list(lines)[2 : MOST_LINES + 2]),
    )


def _text(tool: Tool) -> ToolText:
    return ToolText(description=tool.description, input_schema=tool.input_schema)


def _shown(text: ToolText | None) -> list[str]:
    if text is None:
        return []
    schema = msgspec.json.format(msgspec.json.encode(text.input_schema), indent=2).decode()
    return [*text.description.splitlines(), *schema.splitlines()]


def changed_for_people(before: Plugin, now: Plugin) -> list[str]:
    """Return as lines what changed in a plugin's configuration and in its instructions."""
    old, new = ({key.name: key for key in plugin.config} for plugin in (before, now))
    lines = [f"config: {name} is not used any more" for name in old if name not in new]
    for name, key in new.items():
        is_required = "required" if key.required else "optional"
        if name not in old:
            lines.append(f"config: {described(f'{name} is new ({is_required})', key.description)}")
            continue
        if key.required != old[name].required:
            lines.append(f"config: {name} is now {is_required}")
        if key.default != old[name].default:
            lines.append(f"config: {name} now has {_default(key)}, before {_default(old[name])}")
        if (key.description, key.tools, key.kind) != (old[name].description, old[name].tools, old[name].kind):
            lines.append(f"config: {described(f'{name} has a new description', key.description)}")
    if before.instructions != now.instructions:
        from difflib import ndiff  # only needed for a change

        texts = ndiff(before.instructions.splitlines(), now.instructions.splitlines())
        lines += [f"instructions: {line}" for line in texts if line.startswith(("+ ", "- "))]
    return lines


def _default(key: ConfigKey) -> str:
    return "no default" if key.default is msgspec.UNSET else f"the default {msgspec.json.encode(key.default).decode()}"
