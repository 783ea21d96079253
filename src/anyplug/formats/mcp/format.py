"""MCP: a folder with `mcp.json`, or another client's configuration, whose servers stay up; a call is `tools/call`.

What servers offer is not in the configuration: they list their tools while they run.
"""

import os
from typing import Any

from anyplug import permissions, schema
from anyplug.digest import CODE_SUFFIXES
from anyplug.formats import manifest
from anyplug.formats.contract import Folder, Surroundings
from anyplug.formats.mcp import configuration
from anyplug.formats.workbench.format import modules_above
from anyplug.model import Call, Endpoint, Plugin, Result, Tool
from anyplug.settings import Arguments, Home

NAME = "mcp"
MANIFEST = "mcp.json"
ARGUMENTS: Arguments = "off"  # servers check for themselves
WRITES_BESIDE_ITSELF = True
EVERY_FILE_COUNTS = False  # servers may keep their state beside themselves, and what command lines name counts

FETCHERS = frozenset(
    {"npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "uv", "uvx", "pipx", "docker", "podman", "deno",
     "env", "cmd", "cmd.exe", "sh", "bash", "zsh", "dash"}
)  # fmt: skip
BY_COMMAND: tuple[str, ...] = ("network", "shell:exec")
BY_URL: tuple[str, ...] = ("network",)


def load(folder: Folder) -> Plugin:
    """Read `mcp.json`."""
    found = Plugin(
        name=os.path.basename(folder.found_at),
        format=NAME,
        path=folder.path,
        found_at=folder.found_at,
        explicit=folder.explicit,
    )
    return _read(found, os.path.join(folder.path, MANIFEST))


def load_client(name: str, path: str) -> Plugin:
    """Read the servers' part of a configuration that belongs to another program."""
    found_at = os.path.abspath(os.path.expanduser(path))
    found = Plugin(name=name, format=NAME, path=os.path.realpath(found_at), found_at=found_at, is_file=True)
    return _read(found, found.path)


def violations(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    """Check against the schema that the server listed, for those who want that."""
    return schema.violations(tool.input_schema, arguments)


def switched_off(plugin: Plugin, tool: Tool | None) -> str:
    """Honour clients' `disabled`, if no server is left."""
    where = plugin.path if plugin.is_file else os.path.join(plugin.path, MANIFEST)
    return "" if plugin.enabled else f'take "disabled" out of a server in {where}'


def environment(plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
    """Give the user's environment; what the configuration declares is added for each server."""
    return {
        **users,
        "PATH": f"{home.bin}:{users.get('PATH', os.defpath)}",
        "PYTHONPYCACHEPREFIX": os.path.join(home.cache(plugin.name), "pycache"),
    }


def data(plugin: Plugin, home: Home) -> str:
    """Give the folder in which servers may keep data."""
    return home.data(plugin.name)


def readable(plugin: Plugin) -> tuple[str, ...]:
    """Give the files and folders that the configuration names, as the person who approved it has seen.

    With programs among them comes what belongs to them: their folder, and the modules above it.
    """
    base = os.path.dirname(plugin.path) if plugin.is_file else plugin.path
    named = [
        os.path.normpath(os.path.join(base, os.path.expanduser(part)))
        for endpoint in plugin.endpoints
        for word in (*endpoint.arguments, *endpoint.environment.values(), endpoint.cwd)
        for part in word.rpartition("=")[2].split(os.pathsep)
        if "/" in part or part.startswith(".")
    ]
    return tuple(path for found in named for path in (found, *_belonging_to(found)))


async def prepare(plugin: Plugin, around: Surroundings) -> str:
    """Nothing is set up: a server that fetches itself does so when it starts."""
    return ""


async def invoke(call: Call, around: Surroundings) -> Result:
    """Send the call to the running server."""
    server = await around.reach(call.plugin, call.tool.process)
    result: Result = await server.call_tool(call, around.settings.timeout_s or call.tool.timeout_s)
    return result


def _belonging_to(path: str) -> list[str]:
    """Give what a program needs beside itself, unless it lies in a folder with everything that a person has."""
    folder, user = os.path.dirname(path), os.path.expanduser("~")
    if not os.path.isfile(path) or f"{user}/".startswith(f"{folder}/"):
        return []
    modules = modules_above(folder)
    return [folder, *modules, *(os.path.join(os.path.dirname(one), "package.json") for one in modules)]


def _read(found: Plugin, where: str) -> Plugin:
    report = manifest.Report()
    raw = manifest.read_object(where, report)
    endpoints, some_off = configuration.read(raw, report, where) if raw is not None else ([], False)
    if not manifest.is_plain_name(found.name):
        report.error(
            f"the name '{found.name}' cannot be a folder's name", "use letters, digits, dots, hyphens, underscores"
        )
    for endpoint in endpoints:
        _look_closer(found, endpoint, report)
    asked = BY_COMMAND if not endpoints or any(endpoint.command for endpoint in endpoints) else BY_URL
    asked = permissions.normalise([*asked, *_secrets(endpoints)])
    names = tuple(endpoint.name for endpoint in endpoints)
    return Plugin(
        name=found.name,
        format=NAME,
        path=found.path,
        found_at=found.found_at,
        explicit=found.explicit,
        is_file=found.is_file,
        description=f"MCP server{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else "",
        permissions=asked,
        tier=permissions.tier(asked),
        endpoints=tuple(endpoints),
        processes=names,
        enabled=bool(endpoints) or not some_off,
        problems=tuple(report.problems),
    )


def _look_closer(plugin: Plugin, endpoint: Endpoint, report: manifest.Report) -> None:
    """Note what a person should know of a command before they approve it."""
    if not endpoint.command:
        return
    program = configuration.program(plugin, endpoint)
    if manifest.is_inside(program, plugin.path):
        manifest.warn_if_not_executable(program, f"the command of server '{endpoint.name}'", report)
    if os.path.basename(program) in FETCHERS:
        from anyplug.formats.mcp import fetching  # its patterns take milliseconds to compile

        for fetched in fetching.unpinned((program, *endpoint.arguments)):
            report.warn(
                f"server '{endpoint.name}' fetches {fetched.package} when it starts, and does not say which version: "
                "the digest does not cover what runs",
                fetched.hint,
                "not_pinned",
            )
    for word in endpoint.arguments:
        is_code = os.path.splitext(word)[1].lower() in CODE_SUFFIXES
        if word.startswith("/") and is_code and not manifest.is_inside(os.path.normpath(word), plugin.path):
            report.warn(
                f"server '{endpoint.name}' runs {word}, which the digest does not cover",
                f"keep it in a folder with an {MANIFEST} of its own",
                "not_covered",
            )


def _secrets(endpoints: list[Endpoint]) -> list[str]:
    """Ask for the variables that look like secrets and that the configuration refers to."""
    if not any("${" in text for endpoint in endpoints for text in _all_text(endpoint)):
        return []
    from anyplug import environment as variables  # their patterns take milliseconds to compile
    from anyplug.formats.mcp import references  # as above

    names = [name for endpoint in endpoints for name in references.variables(endpoint)]
    return [f"env:{name}" for name in names if variables.looks_secret(name, "given")]


def _all_text(endpoint: Endpoint) -> tuple[str, ...]:
    values = (*endpoint.environment.values(), *endpoint.headers.values())
    return (endpoint.command, *endpoint.arguments, endpoint.cwd, endpoint.url, *values)
