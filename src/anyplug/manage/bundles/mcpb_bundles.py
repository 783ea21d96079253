"""Read an MCP bundle (MCPB, formerly DXT): `manifest.json` that says how its server is started."""

import os
from typing import Any, Final

from anyplug.manage.bundles import foreign_bundle
from anyplug.manage.bundles.foreign_bundle import ROOT as PLACE
from anyplug.manage.bundles.foreign_bundle import SHOWN, Bundle, Value
from anyplug.model.untrusted_text import for_people

TITLE: Final = "MCP bundle"
MANIFEST: Final = "manifest.json"
ROOT: Final = "${__dirname}"
VERSIONS: Final = ("manifest_version", "mcpb_version", "dxt_version")
# How a server is started if the manifest does not say.
RUNNERS: Final = {"node": ["node"], "python": ["python3"], "uv": ["uv", "run", "--directory", PLACE], "binary": []}


def read(folder: str) -> Bundle | None:
    """Read a folder; None if it is not an unpacked bundle."""
    raw = foreign_bundle.read_object(folder, MANIFEST)
    server = raw.get("server") if raw is not None else None
    if raw is None or not isinstance(server, dict) or not any(name in raw for name in VERSIONS):
        return None
    values = foreign_bundle.values_of(raw.get("user_config"))
    name = foreign_bundle.plain_name(foreign_bundle.text(raw, "name") or os.path.basename(folder))
    entry = _configuration(server, values)
    servers = foreign_bundle.servers_of({name: entry}, ROOT, values)
    return Bundle(
        kind=TITLE,
        name=name,
        version=foreign_bundle.text(raw, "version"),
        description=foreign_bundle.text(raw, "description"),
        servers=servers,
        values=tuple(values.values()),
        left_out=(*_not_for_here(raw), *(["prompts of its manifest, not used"] if raw.get("prompts") else [])),
        ours=foreign_bundle.exported({name: entry}, ROOT),
    )


def _configuration(server: dict[str, Any], values: dict[str, Value]) -> dict[str, Any]:
    """Return how the server is started on this machine."""
    given = server.get("mcp_config")
    entry = dict(given) if isinstance(given, dict) else {}
    overrides = entry.pop("platform_overrides", None)
    here = overrides.get(_platform()) if isinstance(overrides, dict) else None
    entry.update(here if isinstance(here, dict) else {})
    if not entry.get("command"):
        start = f"{PLACE}/{foreign_bundle.text(server, 'entry_point')}"
        start_with = [*RUNNERS.get(foreign_bundle.text(server, "type"), []), start]
        entry |= {"command": start_with[0], "args": start_with[1:]}
    if entry["command"] == "python":  # many systems have only python3
        entry["command"] = "python3"
    args, env = entry.get("args"), entry.get("env")
    if isinstance(args, list):
        entry["args"] = [_at_home(word) for word in args]
    if isinstance(env, dict):
        entry["env"] = {name: _at_home(text) for name, text in env.items()}
    return entry


def _at_home(value: Any) -> Any:
    return foreign_bundle.at_home(value) if isinstance(value, str) else value


def _not_for_here(raw: dict[str, Any]) -> list[str]:
    """Return a note if the manifest names only other systems."""
    compatibility = raw.get("compatibility")
    platforms = compatibility.get("platforms") if isinstance(compatibility, dict) else None
    names = [name for name in platforms if isinstance(name, str)] if isinstance(platforms, list) else []
    if not names or _platform() in names:
        return []
    return [for_people(f"its manifest is for {', '.join(names)} only: it may not run on {_platform()}", SHOWN)]


def _platform() -> str:
    return "darwin" if os.uname().sysname == "Darwin" else "linux"
