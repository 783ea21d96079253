"""What every format is: the whole contract on one screen. A format is a module that has these names."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from anyplug.model import Call, Plugin, Result, Tool
from anyplug.runtime.program import PrivateTmp, Run
from anyplug.settings import Arguments, Home, PluginSettings


class Folder(msgspec.Struct, frozen=True):
    """A folder that may hold a plugin."""

    path: str  # the real path
    found_at: str  # the path by which it was found
    explicit: bool = False  # the person named it

    def is_named(self, name: str) -> bool:
        """Whether the folder, or the link that leads to it, has this name."""
        return name in {self.found_at.rpartition("/")[2], self.path.rpartition("/")[2]}


class Surroundings(msgspec.Struct, frozen=True):
    """What a format may use of the host while it runs something."""

    home: Home
    settings: PluginSettings
    environment: dict[str, str]  # what its programs get, as the format promises
    run: Run
    private_tmp: Callable[[str], AbstractAsyncContextManager[PrivateTmp]]
    tell: Callable[[str], None]  # progress, for a person
    peer: Callable[[Plugin], Awaitable[Any]]  # the running process of a plugin that stays up; raises Unavailable


class Format(Protocol):
    """A plugin system."""

    NAME: str
    MANIFEST: str  # the file that makes a folder one of its plugins
    ARGUMENTS: Arguments  # what a violation of the schema does, unless the person set something else
    EVERY_FILE_COUNTS: bool  # whether the digest covers all files, or only what can run

    def load(self, folder: Folder) -> Plugin | None:
        """Read a folder; None if it is not one of its plugins after all.

        Never raises for what is in it: whatever is wrong is in the plugin's problems.
        """
        ...

    def violations(self, tool: Tool, arguments: dict[str, Any]) -> list[str]:
        """Say in what the arguments do not fit the tool."""
        ...

    def switched_off(self, plugin: Plugin, tool: Tool | None) -> str:
        """Say how to switch the plugin or the tool on, if its own files switch it off; else empty."""
        ...

    def environment(self, plugin: Plugin, home: Home, users: dict[str, str], granted: frozenset[str]) -> dict[str, str]:
        """Give what the plugin's programs get. `users` has no secrets but those `granted` by name."""
        ...

    async def invoke(self, call: Call, around: Surroundings) -> Result:
        """Run one call. Raises CallError."""
        ...

    async def prepare(self, plugin: Plugin, around: Surroundings) -> str:
        """Set an approved plugin up (scripts, dependencies) and give what that printed. Raises CallError."""
        ...
