"""What a format does where nothing special is needed: it takes these over as they are, `prepare = defaults.prepare`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anyplug.model import schema

if TYPE_CHECKING:
    from anyplug.formats.shared.contract import Surroundings
    from anyplug.home.settings import Home
    from anyplug.model.types import Plugin, Tool


def violations(tool: "Tool", arguments: dict[str, Any]) -> list[str]:
    """Check against the tool's JSON Schema."""
    return schema.violations(tool.input_schema, arguments)


def switched_off(plugin: "Plugin", tool: "Tool | None") -> str:
    """Say that nothing in its files switches it off."""
    return ""


def data(plugin: "Plugin", home: "Home") -> str:
    """Return the folder for its data in the home folder."""
    return home.data(plugin)


def readable(plugin: "Plugin") -> tuple[str, ...]:
    """Name nothing: its programs need what all programs need."""
    return ()


def named_files(plugin: "Plugin") -> tuple[str, ...]:
    """Name nothing: what counts for the digest can be told by its look."""
    return ()


def programs(plugin: "Plugin", variables: Mapping[str, str] | None, project: str) -> list[str]:
    """Name nothing: no program of it stays up."""
    return []


def user_roots() -> tuple[str, ...]:
    """Name nothing: its users keep plugins in no folder of their own."""
    return ()


def private_places(project: str) -> tuple[str, ...]:
    """Name nothing."""
    return ()


async def prepare(plugin: "Plugin", around: "Surroundings") -> str:
    """Set nothing up."""
    return ""
