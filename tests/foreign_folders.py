"""Plugins of other agents, as their authors write them."""

import json
import os
from typing import Any

import command_line
import plugin_folders

SERVER = command_line.read(os.path.join(os.path.dirname(__file__), "../src/anyplug/formats/mcp/new-python/server.py"))


def write(folder: Any, files: dict[str, Any]) -> str:
    """Write files, JSON where the value is no text; return the folder."""
    for name, value in files.items():
        plugin_folders.write(f"{folder}/{name}", value if isinstance(value, str) else json.dumps(value))
    return str(folder)


def claude_plugin(folder: Any, name: str = "greeter") -> str:
    """Write a Claude Code plugin with one of each part."""
    return write(
        folder,
        {
            ".claude-plugin/plugin.json": {"name": name, "version": "1.2.0", "description": "Greets."},
            ".mcp.json": {
                "mcpServers": {
                    name: {
                        "command": "python3",
                        "args": ["${CLAUDE_PLUGIN_ROOT}/server/main.py"],
                        "env": {"PLACE": "${CLAUDE_PLUGIN_ROOT}/data", "STATE": "${CLAUDE_PLUGIN_DATA}/x"},
                    }
                }
            },
            "server/main.py": SERVER.replace("PLUGIN_NAME", name),
            "commands/greet.md": "---\ndescription: Greet\nargument-hint: [name]\n---\nSay hello to $ARGUMENTS.\n",
            "commands/git/log.md": "Summarize the log.\n",
            "skills/tea/SKILL.md": "---\nname: tea\ndescription: Make tea\n---\nBoil water.\n",
            "skills/tea/temperatures.txt": "green 80\n",
            "agents/critic.md": "You criticise.\n",
            "hooks/hooks.json": {
                "hooks": {"PostToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "fmt.sh"}]}]}
            },
        },
    )
