"""The clients: where each keeps its configuration, and the form of an MCP server in it."""

import os
import shutil
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import msgspec

from anyplug.manage.connect import jsonc, toml, yaml_blocks

Scope = Literal["user", "project"]


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that can use our server."""

    name: str
    title: str
    program: str  # in the PATH if it is installed
    key: str  # the key of its servers
    user: Callable[[], tuple[str, ...]]  # the files that it reads for a user
    project: tuple[str, ...]  # the same in a project's folder; empty if it reads none there
    entry: Callable[[list[str]], dict[str, Any]]  # the form of a command
    language: ModuleType = jsonc
    project_note: str = ""  # what the user must do before it reads the project's file
    user_note: str = ""  # what else the user should know
    folder: str = ""  # in the user's home, if it exists although the file's own folder does not

    def files(self, scope: Scope, folder: str) -> tuple[str, ...]:
        """Return the files that it reads; the first is the one to create if none exists."""
        return self.user() if scope == "user" else tuple(os.path.join(folder, name) for name in self.project)

    @property
    def is_here(self) -> bool:
        """Return whether it is installed, or has been used."""
        return shutil.which(self.program) is not None or any(
            os.path.lexists(name) or _holds_only_it(os.path.dirname(name))
            for name in (*self.user(), *([_home(self.folder, "it")] if self.folder else ()))
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


def _application(*parts: str) -> str:
    """Return a path where the platform keeps the files of desktop applications."""
    if sys.platform == "darwin":
        return _home("Library", "Application Support", *parts)
    if sys.platform == "win32":
        return os.path.join(os.environ.get("APPDATA") or _home("AppData", "Roaming"), *parts)
    return _config(*parts)


def _vscode() -> tuple[str, ...]:
    return (_application("Code", "User", "mcp.json"),)


def _cline() -> tuple[str, ...]:
    """Return the file of all Cline programs, and that of its older extensions for VS Code."""
    name = "cline_mcp_settings.json"
    older = _application("Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", name)
    return (os.path.join(os.environ.get("CLINE_DIR") or _home(".cline"), "data", "settings", name), older)


def _goose() -> tuple[str, ...]:
    if sys.platform == "win32":
        return (_application("Block", "goose", "config", "config.yaml"),)
    return (_config("goose", "config.yaml"),)


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


def _for_goose(words: list[str]) -> dict[str, Any]:
    profile = f"-{words[words.index('--profile') + 1]}" if "--profile" in words else ""
    return {
        "enabled": True,
        "type": "stdio",
        "name": f"anyplug{profile}",
        "description": "The tools of your plugins, sandboxed and recorded",
        "cmd": words[0],
        "args": words[1:],
        "timeout": 300,
    }


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
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            program="claude-desktop",
            key="mcpServers",
            user=lambda: (_application("Claude", "claude_desktop_config.json"),),
            project=(),
            entry=_plain,
            user_note="quit Claude Desktop and start it again: it reads this file only at its start",
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            program="windsurf",
            key="mcpServers",
            user=lambda: (_home(".codeium", "windsurf", "mcp_config.json"),),
            project=(),
            entry=_plain,
        ),
        Client(name="cline", title="Cline", program="cline", key="mcpServers", user=_cline, project=(), entry=_plain),
        Client(
            name="continue",
            title="Continue",
            program="cn",
            key="mcpServers",
            user=lambda: (_home(".continue", "mcpServers", "anyplug.json"),),
            project=(os.path.join(".continue", "mcpServers", "anyplug.json"),),
            entry=_plain,
            user_note="Continue uses tools only in its agent mode",
            folder=".continue",
        ),
        Client(
            name="goose",
            title="Goose",
            program="goose",
            key="extensions",
            user=_goose,
            project=(),
            entry=_for_goose,
            language=yaml_blocks,
        ),
        Client(
            name="lmstudio",
            title="LM Studio",
            program="lms",
            key="mcpServers",
            user=lambda: (_home(".lmstudio", "mcp.json"), _home(".cache", "lm-studio", "mcp.json")),
            project=(),
            entry=_plain,
        ),
        Client(
            name="jetbrains",
            title="JetBrains Junie",
            program="junie",
            key="mcpServers",
            user=lambda: (_home(".junie", "mcp", "mcp.json"),),
            project=(os.path.join(".junie", "mcp", "mcp.json"),),
            entry=_plain,
            user_note="JetBrains AI Assistant has no such file: paste what --print shows in its settings, "
            "Tools > AI Assistant > Model Context Protocol",
            folder=".junie",
        ),
    )
}
