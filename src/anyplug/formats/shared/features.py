"""Protocols for what a long-running plugin may do besides answering calls: guard, subscribe, draw panels, call tools.

`peers` knows these protocols and nothing of the formats that implement them. What such a plugin sends unasked goes to
its `PeerListener` as one of the values here.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import msgspec

from anyplug.model.types import Block, Call, Plugin, PromptMessage, Result


class PanelContent(msgspec.Struct, frozen=True):
    """A panel as its owner describes it."""

    id: str
    title: str = ""
    lines: list[str] = []
    footer: str = ""


class OpenPanel(msgspec.Struct, frozen=True):
    """A panel that it opens by itself."""

    panel: PanelContent


class PanelRender(msgspec.Struct, frozen=True):
    """New content of an open panel."""

    panel_id: str
    title: str = ""
    lines: list[str] = []
    footer: str = ""


class PanelClose(msgspec.Struct, frozen=True):
    """The end of a panel."""

    panel_id: str


class CallTool(msgspec.Struct, frozen=True):
    """A tool that the plugin wants the host to call."""

    id: str
    name: str = ""
    args: Any = {}  # an object, or the plugin is told that it must be one: it waits for an answer
    parent_id: str = ""  # the call in which it asks


class CallToolCancel(msgspec.Struct, frozen=True):
    """It does not want that tool called any more."""

    id: str


class ReloadWanted(msgspec.Struct, frozen=True):
    """The plugin asks to read all plugins again. Its requests are numbered; the last one stands for all."""

    id: int


class CommandAnswer(msgspec.Struct, frozen=True):
    """What a slash command came to."""

    action: str = ""
    prompt: str = ""
    insert: str = ""
    display: str = ""
    open_panel: PanelContent | None = None
    error: str = ""
    tool_name: str = ""
    tool_args: dict[str, Any] = {}


class PromptAnswer(CommandAnswer, frozen=True):
    """A prompt with its roles and images, as only some formats have them."""

    messages: tuple[PromptMessage, ...] = ()
    description: str = ""


class GuardAnswer(msgspec.Struct, frozen=True):
    """What a guard says about an event."""

    block: bool = False
    reason: str = ""
    modified_args: Any = None
    replace_text: str = ""
    system_prompt: str | None = None


class BadAnswer(Exception):
    """It sent an invalid answer; the text tells why."""


class Question:
    """What a guard is asked, until it has answered."""

    def __init__(self, chain: tuple[str, ...]) -> None:
        self.chain = chain  # the tools that led to it
        self.calls = 0  # of tools that it requested to decide


class Guard(Protocol):
    """Decides about events before they happen."""

    plugin: Plugin

    async def intercept(self, event: dict[str, Any], chain: tuple[str, ...]) -> GuardAnswer:
        """Ask it about an event, to which the tools of `chain` led; its name is under `event`.

        Raises TimeoutError, BadAnswer, NotSent or PeerGone; the host decides what follows.
        """
        ...


class Subscriber(Protocol):
    """Hears of events when they happen. None of it has an answer."""

    plugin: Plugin

    @property
    def events(self) -> AbstractSet[str]:
        """The events that it wants to receive."""
        ...

    def hear(self, event: str, fields: dict[str, Any]) -> None:
        """Send it an event in the life of an agent."""
        ...

    def hear_call(self, call: Call) -> None:
        """Announce a call that is about to run."""
        ...

    def hear_result(self, call: Call, result: Result, *, has_run: bool) -> None:
        """Send it the result of a call."""
        ...


class PanelOwner(Protocol):
    """Draws panels."""

    plugin: Plugin

    def press_key(self, panel: str, key: str, text: str) -> None:
        """Send it a key that was pressed in one of its panels, with its character, if any."""
        ...

    def close_panel(self, panel: str) -> None:
        """Tell it that a person closed one of its panels."""
        ...


class CommandRunner(Protocol):
    """Has slash commands."""

    plugin: Plugin

    async def run_command(self, name: str, words: str) -> CommandAnswer:
        """Run one of them; its secrets are masked in the answer. Raises CallError."""
        ...


class ToolCaller(Protocol):
    """Has other plugins' tools called."""

    plugin: Plugin
    active: dict[str, Call]  # its own calls under way

    @property
    def may_call_tools(self) -> bool:
        """Whether it said at its start that it would."""
        ...

    def question(self, tool: str) -> Question | None:
        """Return the question because of which it most likely wants this tool called, if it is asked any."""
        ...

    def answer(
        self, request: CallTool, content: tuple[Block, ...], *, is_error: bool, name: str = "", retry_after_ms: int = 0
    ) -> None:
        """Send it the result of a call that it requested; `name` is the tool's in events, if there is one.

        With `retry_after_ms`, the call was refused because it made too many.
        """
        ...


class Reloader(Protocol):
    """Has all plugins read again."""

    def reloaded(self, request: ReloadWanted) -> None:
        """Tell it that they were."""
        ...
