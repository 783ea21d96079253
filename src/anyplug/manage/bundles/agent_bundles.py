"""Read an Agent Plugins 1.0 folder: `plugin.json` with that format's schema, `mcp.json`, `skills/`."""

import os
from typing import Any, Final

from anyplug.manage.bundles import claude_bundles, foreign_bundle
from anyplug.manage.bundles.foreign_bundle import MOST_NOTES, SHOWN, Bundle
from anyplug.model.untrusted_text import for_people

TITLE: Final = "Agent Plugin"
MANIFEST: Final = "plugin.json"
SERVERS: Final = "mcp.json"
SCHEMA: Final = "agent-plugins.org/"
ROOT: Final = "${PLUGIN_ROOT}"


def read(folder: str) -> Bundle | None:
    """Read a folder; None if it is not such a plugin."""
    raw = foreign_bundle.read_object(folder, MANIFEST)
    if raw is None or not _is_one(folder, raw):
        return None
    given = foreign_bundle.read_object(folder, SERVERS) or {}
    found = given.get("mcpServers")
    servers = found if isinstance(found, dict) else {}
    return Bundle(
        kind=TITLE,
        name=foreign_bundle.plain_name(foreign_bundle.text(raw, "name") or os.path.basename(folder)),
        version=foreign_bundle.text(raw, "version"),
        description=foreign_bundle.text(raw, "description"),
        servers=foreign_bundle.servers_of(servers, ROOT, {}),
        prompts=foreign_bundle.prompts_in(folder, ["commands"]),
        skills=foreign_bundle.skills_in(folder, ["skills"]),
        left_out=tuple([*claude_bundles.hook_lines(folder, {}), *_extensions(folder, raw)][:MOST_NOTES]),
        ours=foreign_bundle.exported(servers, ROOT),
    )


def _is_one(folder: str, raw: dict[str, Any]) -> bool:
    """Return whether the manifest is this format's: Cyclop One's has the same name, and lists tools."""
    schema = raw.get("$schema")
    if isinstance(schema, str):
        return SCHEMA in schema
    has_parts = os.path.isfile(os.path.join(folder, SERVERS)) or os.path.isdir(os.path.join(folder, "skills"))
    return has_parts and not {"tools", "entrypoint"} & raw.keys()


def _extensions(folder: str, raw: dict[str, Any]) -> list[str]:
    """List what is for one client only: folders named like domains, and the manifest's `extensions`."""
    extensions = raw.get("extensions")
    names = {*(extensions if isinstance(extensions, dict) else {})}
    names |= {name for name in os.listdir(folder) if name.count(".") >= 2 and os.path.isdir(os.path.join(folder, name))}  # noqa: PLR2004 - com.example.client
    return [for_people(f"for one client only, not used: {name}", SHOWN) for name in sorted(names)]
