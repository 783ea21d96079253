"""What one run of an extension has registered: tools, commands, events; and its problems.

The first of a name is used. Everything is limited, because it is kept, listed and stored.
"""

from collections.abc import Sized
from typing import Any

import msgspec

from anyplug.formats.zot import frames
from anyplug.formats.zot.format import tools
from anyplug.model import json_values, schema
from anyplug.model.types import Command, Offer
from anyplug.model.untrusted_text import LONGEST_NAME, for_people, is_clean

MOST_REGISTERED = 1_000  # tools, commands and events, each; real extensions have a handful
LARGEST_REGISTERED = 16 << 20  # bytes of all of them
MOST_WARNINGS = 100  # shown to a person
LONGEST_WARNING = 500  # characters; a name may have millions
# How tools are exposed. Agents here run no scripts, so what is only for these is found by searching.
EXPOSURES = frozenset({"", "direct", "codemode", "deferred", "model-only"})
INTERCEPTABLE = frozenset({"tool_call", "turn_start", "assistant_message", "before_agent_start"})

Registration = frames.RegisterTool | frames.RegisterCommand | frames.Subscribe


class Registrations:
    """Everything that one run has registered so far."""

    def __init__(self) -> None:
        self.tools: dict[str, frames.RegisterTool] = {}
        self.commands: dict[str, frames.RegisterCommand] = {}
        self.events: set[str] = set()
        self.intercepts: set[str] = set()
        self._warnings: list[str] = []
        self._folded: set[str] = set()  # the commands' names in lower case
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.tools or self.commands or self.events or self.intercepts)

    def offer(self, plugin: str, *, is_whole: bool) -> Offer:
        """Convert it to an offer."""
        return Offer(
            tools=tools(plugin, self.tools.values()),
            commands=tuple(
                Command(name=name, plugin=plugin, description=command.description)
                for name, command in self.commands.items()
            ),
            events=tuple(sorted(self.events)),
            intercepts=tuple(sorted(self.intercepts)),
            warnings=tuple(self._warnings),
            is_whole=is_whole,
        )

    def add(self, frame: Registration) -> bool:
        """Add a registration; return whether that changed anything, even just a warning."""
        before = self._extent
        match frame:
            case frames.RegisterTool():
                self._add_tool(frame)
            case frames.RegisterCommand():
                self._add_command(frame)
            case frames.Subscribe():
                self._subscribe(frame)
        return self._extent != before

    def warn(self, text: str) -> None:
        """Add a warning for the person, without duplicates."""
        text = text if len(text) <= LONGEST_WARNING else f"{text[:LONGEST_WARNING]}…"
        if text not in self._warnings and len(self._warnings) < MOST_WARNINGS:
            self._warnings.append(text)

    @property
    def _extent(self) -> tuple[int, ...]:
        kinds: tuple[Sized, ...] = (self.tools, self.commands, self.events, self.intercepts, self._warnings)
        return tuple(len(kind) for kind in kinds)

    def _add_tool(self, frame: frames.RegisterTool) -> None:
        if not is_clean(frame.name):
            self.warn(f"a tool was skipped: '{for_people(frame.name, LONGEST_NAME)}' is not a valid name")
        elif frame.name in self.tools:
            self.warn(f"it registered the tool '{frame.name}' twice; the first is used")
        elif frame.exposure not in EXPOSURES:
            exposure = for_people(frame.exposure, LONGEST_NAME)
            self.warn(f"the tool '{frame.name}' was skipped: it has the unknown exposure '{exposure}'")
        elif why := json_values.excess(frame.schema) or json_values.excess(frame.output_schema):
            self.warn(f"the tool '{frame.name}' was skipped: its schema is unusable, {why}")
        elif self._has_room_for(frame, among=self.tools, what="tools"):
            self.tools[frame.name] = frame
            if frame.schema is None and frame.input_schema is not None:
                self.warn(f'the tool \'{frame.name}\' takes any object: its "input_schema" should be named "schema"')
            elif frame.schema is not None and (slip := schema.slip(frame.schema)):
                self.warn(f"callers cannot rely on the schema of the tool '{frame.name}': {slip}")

    def _add_command(self, frame: frames.RegisterCommand) -> None:
        name = frame.name.removeprefix("/")
        if not is_clean(name) or " " in name:
            self.warn(f"a command was skipped: '{for_people(frame.name, LONGEST_NAME)}' is not a valid name")
        elif name.lower() in self._folded:
            self.warn(f"it registered the command '/{name}' twice; the first is used")
        elif self._has_room_for(frame, among=self.commands, what="commands"):
            self.commands[name] = msgspec.structs.replace(frame, name=name)
            self._folded.add(name.lower())

    def _subscribe(self, frame: frames.Subscribe) -> None:
        self.intercepts.update(INTERCEPTABLE.intersection(frame.intercept))
        for event in frame.events:
            if event not in self.events and self._has_room_for(event, among=self.events, what="events"):
                self.events.add(event)

    def _has_room_for(self, registration: Any, *, among: Sized, what: str) -> bool:
        if len(among) >= MOST_REGISTERED:
            self.warn(f"it registered more than {MOST_REGISTERED} {what}; the others are ignored")
            return False
        size = len(msgspec.json.encode(registration))
        if self._bytes + size > LARGEST_REGISTERED:
            self.warn(f"it registered more than {LARGEST_REGISTERED >> 20} MiB; the rest is ignored")
            return False
        self._bytes += size
        return True
