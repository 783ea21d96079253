"""Read a Claude Code plugin: `.claude-plugin/plugin.json`, or only the folders that its parts have by default."""

import os
from typing import Any, Final

from anyplug.manage.bundles import foreign_bundle
from anyplug.manage.bundles.foreign_bundle import MOST_NOTES, SHOWN, Bundle
from anyplug.model.untrusted_text import for_people

TITLE: Final = "Claude Code plugin"
MANIFEST: Final = ".claude-plugin/plugin.json"
ROOT: Final = "${CLAUDE_PLUGIN_ROOT}"
SERVERS: Final = ".mcp.json"
HOOKS: Final = "hooks/hooks.json"
# Parts that only Claude Code can use: the field, the folder or file by default, and what people call it.
OTHERS: Final = (
    ("agents", "agents", "subagents"),
    ("lspServers", ".lsp.json", "language servers"),
    ("outputStyles", "output-styles", "output styles"),
    ("monitors", "monitors", "monitors"),
    ("workflows", "workflows", "workflows"),
)


def read(folder: str, listed: dict[str, Any] | None = None, *, is_implied: bool = False) -> Bundle | None:
    """Read a folder; None if it is not such a plugin.

    `listed` is what a marketplace says about it. `is_implied`: it needs no manifest if it has such a plugin's parts.
    """
    own = foreign_bundle.read_object(folder, MANIFEST)
    if own is None and listed is None and not (is_implied and _has_parts(folder)):
        return None
    raw = {**(listed or {}), **(own or {})}
    values = foreign_bundle.values_of(raw.get("userConfig", raw.get("user_config")))
    found = _servers(folder, raw)
    name = foreign_bundle.text(raw, "name") or os.path.basename(folder)
    return Bundle(
        kind=TITLE,
        name=foreign_bundle.plain_name(name),
        version=foreign_bundle.text(raw, "version"),
        description=foreign_bundle.text(raw, "description"),
        servers=foreign_bundle.servers_of(found, ROOT, values),
        prompts=foreign_bundle.prompts_in(folder, ["commands", *_paths(raw.get("commands"))]),
        skills=foreign_bundle.skills_in(folder, ["skills", *_paths(raw.get("skills"))]),
        values=tuple(values.values()),
        left_out=tuple([*hook_lines(folder, raw), *_others(folder, raw)][:MOST_NOTES]),
        ours=foreign_bundle.exported(found, ROOT),
    )


def _has_parts(folder: str) -> bool:
    """Return whether a folder without a manifest has parts by which Claude Code would find it."""
    is_file = os.path.isfile(os.path.join(folder, SERVERS)) or os.path.isfile(os.path.join(folder, HOOKS))
    return is_file or bool(foreign_bundle.skills_in(folder, ["skills"]))


def _servers(folder: str, raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for source in (foreign_bundle.read_object(folder, SERVERS) or {}, raw.get("mcpServers")):
        for given in source if isinstance(source, list) else [source]:
            part = _object_at(folder, given) if isinstance(given, str) else given
            if isinstance(part, dict):
                inner = part.get("mcpServers", part)
                found.update(inner if isinstance(inner, dict) else {})
    return found


def _paths(value: Any) -> list[str]:
    paths = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [os.path.normpath(path) for path in paths if isinstance(path, str) and _is_inside(path)]


def _object_at(folder: str, path: str) -> dict[str, Any] | None:
    return foreign_bundle.read_object(folder, os.path.normpath(path)) if _is_inside(path) else None


def _is_inside(path: str) -> bool:
    return not path.startswith(("/", "~")) and ".." not in path.split("/")


def hook_lines(folder: str, raw: dict[str, Any]) -> list[str]:
    """List the hooks, a line for each command."""
    lines: list[str] = []
    sources = [foreign_bundle.read_object(folder, HOOKS), raw.get("hooks")]
    for given in sources:
        is_same = isinstance(given, str) and os.path.normpath(given) == HOOKS
        source = _object_at(folder, given) if isinstance(given, str) and not is_same else given
        if not isinstance(source, dict):
            continue
        events = source.get("hooks", source)
        for event, matchers in events.items() if isinstance(events, dict) else ():
            for matcher in matchers if isinstance(matchers, list) else ():
                lines += _lines_of(str(event), matcher)
    return lines


def _lines_of(event: str, matcher: Any) -> list[str]:
    if not isinstance(matcher, dict):
        return []
    of = matcher.get("matcher")
    when = f"{event} of {of}" if isinstance(of, str) and of not in {"", "*"} else event
    hooks = matcher.get("hooks")
    found = []
    for hook in hooks if isinstance(hooks, list) else ():
        what = hook.get("command") or hook.get("prompt") or hook.get("url") if isinstance(hook, dict) else None
        found.append(for_people(f"hook, not run: {when}: {what or 'unknown'}", SHOWN))
    return found


def _others(folder: str, raw: dict[str, Any]) -> list[str]:
    found = []
    for field, place, title in OTHERS:
        path = os.path.join(folder, place)
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        if names or os.path.isfile(path) or raw.get(field):
            which = f": {', '.join(name.removesuffix('.md') for name in names[:MOST_NOTES])}" if names else ""
            found.append(for_people(f"{title}, not used{which}", SHOWN))
    return found
