"""`/commands` and `/panels`: what extensions offer a person besides tools."""

from typing import Any

import msgspec

from anyplug.frontends.console import api_types as types
from anyplug.frontends.console.api_errors import NothingHere
from anyplug.frontends.console.api_plugin_types import Commands
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.endpoints import PAGING, Endpoint
from anyplug.frontends.console.plugin_shapes import plugin_id
from anyplug.frontends.json_output import command_shape
from anyplug.peers.panels import Panel

MOST_KEYS = 1_000  # of one request


class CommandBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slash command as a person types it."""

    line: str


class KeysBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys in order, each with its text for `rune`; then what was pasted."""

    keys: list[tuple[str, str]] = []
    paste: str = ""


async def list_commands(request: ApiRequest) -> dict[str, Any]:
    """Return the slash commands that can be run."""
    found = [
        {
            "name": command.name,
            "plugin": command.plugin,
            "plugin_id": plugin_id(entry.path),
            "description": command.description,
        }
        for command, entry in request.host.snapshot.commands.values()
        if entry.state == "approved"
    ]
    return request.page(found)


async def run_command(request: ApiRequest) -> dict[str, Any]:
    """Run a slash command; a panel that it opens stays open."""
    line = request.read(CommandBody).line
    outcome = await request.host.run_command(line, attachment=request.attachment())
    return command_shape(outcome, list(outcome.notes))


async def list_panels(request: ApiRequest) -> dict[str, Any]:
    """Return the open panels, the one with the focus last."""
    return request.page(list(request.host.panels.open))


async def press_keys(request: ApiRequest) -> None:
    """Send keys to a panel, in order."""
    body, panel, panels = request.read(KeysBody), _panel(request), request.host.panels
    for key, text in body.keys[:MOST_KEYS]:
        panels.press(panel, key, text)
    if body.paste:
        panels.paste(panel, body.paste)


async def close_panel(request: ApiRequest) -> None:
    """Close a panel."""
    request.host.panels.close(_panel(request))


def _panel(request: ApiRequest) -> Panel:
    owner, name = request.values["owner"], request.values["panel"]
    for panel in request.host.panels.open:
        if (panel.owner, panel.id) == (owner, name):
            return panel
    raise NothingHere(f"'{owner}' has no open panel '{name}'", "list the panels again")


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/commands",
        name="listCommands",
        for_tokens=True,
        about="List slash commands",
        handle=list_commands,
        answer=Commands,
        queries=PAGING,
    ),
    Endpoint(
        method="POST",
        path="/commands",
        name="runCommand",
        for_tokens=True,
        about="Run a slash command",
        handle=run_command,
        body=CommandBody,
        answer=types.CommandRun,
    ),
    Endpoint(
        method="GET",
        path="/panels",
        name="listPanels",
        about="List the open panels",
        handle=list_panels,
        answer=types.Panels,
    ),
    Endpoint(
        method="POST",
        path="/panels/{owner}/{panel}/keys",
        name="pressKeys",
        about="Send keys to a panel",
        handle=press_keys,
        body=KeysBody,
        kind="nothing",
        status=204,
    ),
    Endpoint(
        method="DELETE",
        path="/panels/{owner}/{panel}",
        name="closePanel",
        about="Close a panel",
        handle=close_panel,
        kind="nothing",
        status=204,
    ),
]
