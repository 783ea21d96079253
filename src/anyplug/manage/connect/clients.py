"""The clients: where each keeps its configuration, and the form of an MCP server in it."""

import os
import shutil
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import msgspec

from anyplug.manage.connect import jsonc, toml

Scope = Literal["user", "project"]


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that can use our server."""

    name: str
    title: str
    program: str  # in the PATH if it is installed
    key: str  # the key of its servers
    user: Callable[[], tuple[str, ...]]  # the files that it reads for a user
    project: tuple[str, ...]  # the same in a project's folder
    entry: Callable[[list[str]], dict[str, Any]]  # the form of a command
    language: ModuleType = jsonc
    project_note: str = ""  # what the user must do before it reads the project's file

    def files(self, scope: Scope, folder: str) -> tuple[str, ...]:
        """Return the files that it reads; the first is the one to create if none exists."""
        return self.user() if scope == "user" else tuple(os.path.join(folder, name) for name in self.project)

    @property
    def is_here(self) -> bool:
        """Return whether it is installed, or has been used."""
        return shutil.which(self.program) is not None or any(
            os.path.lexists(name) or _holds_only_it(os.path.dirname(name)) for name in self.user()
        )


def _holds_only_it(folder: str) -> bool:
    """Return whether a folder exists that only a client creates; everybody has a home."""
    return folder != os.path.expanduser("~") and os.path.isdir(folder)


def _home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), *parts)


def _config(*parts: str) -> str:
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or _home(".config"), *parts)


def _claude() -> tuple[str, ...]:
    return (os.path.join(os.environ.get("CLAUDE_CONFIG_DIR") or _home(), ".claude.json"),)


def _opencode() -> tuple[str, ...]:
    return tuple(_config("opencode", name) for name in ("opencode.json", "opencode.jsonc"))


def _codex() -> tuple[str, ...]:
    return (os.path.join(os.environ.get("CODEX_HOME") or _home(".codex"), "config.toml"),)


def _vscode() -> tuple[str, ...]:
    if sys.platform == "darwin":
        return (_home("Library", "Application Support", "Code", "User", "mcp.json"),)
    if sys.platform == "win32":
        return (os.path.join(os.environ.get("APPDATA") or _home("AppData", "Roaming"), "Code", "User", "mcp.json"),)
    return (_config("Code", "User", "mcp.json"),)


def _zed() -> tuple[str, ...]:
    if sys.platform == "darwin":
        return (_home(".config", "zed", "settings.json"),)
    if sys.platform == "win32":
        return (os.path.join(os.environ.get("APPDATA") or _home("AppData", "Roaming"), "Zed", "settings.json"),)
    return (_config("zed", "settings.json"),)


def _gemini() -> tuple[str, ...]:
    return (os.path.join(os.environ.get("GEMINI_CLI_HOME") or _home(), ".gemini", "settings.json"),)


def _plain(words: list[str]) -> dict[str, Any]:
    return {"command": words[0], "args": words[1:]}


def _typed(words: list[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(words)}


CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude",
            title="Claude Code",
            program="claude",
            key="mcpServers",
            user=_claude,
            project=(".mcp.json",),
            entry=_typed,
            project_note="Claude Code asks you once in this project before it starts the server",
        ),
        Client(
            name="opencode",
            title="OpenCode",
            program="opencode",
            key="mcp",
            user=_opencode,
            project=("opencode.json", "opencode.jsonc"),
            entry=lambda words: {"type": "local", "command": words},
        ),
        Client(
            name="codex",
            title="Codex",
            program="codex",
            key="mcp_servers",
            user=_codex,
            project=(os.path.join(".codex", "config.toml"),),
            entry=_plain,
            language=toml,
            project_note="Codex reads this file only in a project that you told it to trust",
        ),
        Client(
            name="cursor",
            title="Cursor",
            program="cursor",
            key="mcpServers",
            user=lambda: (_home(".cursor", "mcp.json"),),
            project=(os.path.join(".cursor", "mcp.json"),),
            entry=_typed,
        ),
        Client(
            name="vscode",
            title="VS Code",
            program="code",
            key="servers",
            user=_vscode,
            project=(os.path.join(".vscode", "mcp.json"),),
            entry=_typed,
            project_note="VS Code asks whether you trust the server when it first starts it",
        ),
        Client(
            name="zed",
            title="Zed",
            program="zed",
            key="context_servers",
            user=_zed,
            project=(os.path.join(".zed", "settings.json"),),
            entry=_plain,
            project_note="Zed reads this file only in a project that you told it to trust",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            program="gemini",
            key="mcpServers",
            user=_gemini,
            project=(os.path.join(".gemini", "settings.json"),),
            entry=_plain,
            project_note="Gemini CLI reads this file only in a folder that you told it to trust",
        ),
    )
}
