"""Plugins to measure with: Cyclop One folders in a temporary place."""

import json
import os
from collections.abc import Iterable

from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import Home

SCRIPT = '#!/bin/sh\ncat >/dev/null\nprintf \'%s\' \'{"result":"ok","is_error":false}\'\n'


def write(root: str, name: str, program: str | bytes = SCRIPT) -> str:
    """Write one plugin with one tool, whose name is the plugin's with an underscore; give its folder."""
    folder = os.path.join(root, name)
    os.makedirs(folder)
    manifest = {
        "name": name,
        "version": "1.0.0",
        "description": "Answers with the same word each time.",
        "entrypoint": "main",
        "permissions": ["filesystem:read"],
        "tools": [
            {
                "name": name.replace("-", "_"),
                "description": "Takes a name and a number, and answers with the same word each time.",
                "input_schema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "Whose name it is"},
                        "count": {"type": "integer", "minimum": 0},
                    },
                    "required": ["name"],
                },
            }
        ],
    }
    with open(os.path.join(folder, "plugin.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
    entrypoint = os.path.join(folder, "main")
    with open(entrypoint, "wb") as binary:
        binary.write(program.encode() if isinstance(program, str) else program)
    os.chmod(entrypoint, 0o755)
    return folder


def write_many(root: str, count: int) -> str:
    """Write plugins that differ only in their names; give the root."""
    for number in range(count):
        write(root, f"plugin-{number:05}")
    return root


def approve_all(home: str, roots: Iterable[str], *, always: bool = False) -> None:
    """Approve whatever lies in the roots."""
    catalog = Catalog(Home(home), roots=list(roots))
    for entry in catalog.load().entries:
        plugin = entry.plugin
        catalog.approvals.approve(
            plugin, catalog.digest(plugin), plugin.permissions, always=always, follow=False, unconfined=False
        )
    catalog.close()


def start_cold(home: str, confinement: str) -> None:
    """Start every program of a home with its call, so that only the confinement makes a difference."""
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(home, "settings.toml"), "w", encoding="utf-8") as settings:
        settings.write(f'confinement = "{confinement}"\n[warm]\nenabled = false\n')


def do_not_confine(home: str) -> None:
    """Let the plugins of a home do whatever they can."""
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(home, "settings.toml"), "w", encoding="utf-8") as settings:
        settings.write('confinement = "off"\n')
