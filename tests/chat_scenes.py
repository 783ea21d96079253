"""Scenes of the chat, for snapshots and the pictures in the docs: always the same, on a scripted conversation."""

from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot

from anyplug.agent import conversation_events as said
from anyplug.frontends.chat.chat_app import ChatApp
from anyplug.model.types import Note, Result, Text
from scripted_conversation import REFUSED, ScriptedConversation, ScriptedWorkspace, a_turn, panel, question

PATIENCE = 400  # short pauses


def still_chat(theme: str) -> ChatApp:
    """Return a chat whose pictures are the same each time."""
    app = ChatApp(ScriptedWorkspace(ScriptedConversation()), theme=theme)
    app.bell = lambda: None  # type: ignore[method-assign]
    return app


async def opened(pilot: Pilot[Any]) -> ScriptedConversation:
    """Wait until the conversation is open; return it."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    for _ in range(PATIENCE):
        if app.state.is_open and app.transcript.blocks and app.state.rows:
            break
        await pilot.pause(0.02)
    app.composer.cursor_blink = False
    talk = app.conversation
    assert isinstance(talk, ScriptedConversation)
    return talk


async def settled(pilot: Pilot[Any]) -> None:
    """Let everything be drawn."""
    for _ in range(3):
        await pilot.pause(0.05)


async def empty(pilot: Pilot[Any]) -> None:
    """The first lines."""
    await opened(pilot)
    await settled(pilot)


async def working(pilot: Pilot[Any]) -> None:
    """A turn, then a question, a note and something typed."""
    talk = await opened(pilot)
    a_turn(talk)
    talk.say(
        said.UserMessage(text="keep example.org under reading"),
        said.TurnStarted(turn=2),
        said.ToolStarted(call="t2", tool="read", plugin="workspace-tools", arguments={"path": ".env"}),
        said.ToolEnded(call="t2", result=REFUSED, verdict="policy:NO_SECRETS reading.rego:10", record=2),
        said.ToolStarted(call="t3", tool="bookmark_add", plugin="bookmarks", arguments=question().arguments),
        said.Asked(question=question()),
        said.Noted(note=Note("todos", "info", "2 open")),
    )
    await pilot.press(*"and then show me")
    await settled(pilot)


async def answering(pilot: Pilot[Any]) -> None:
    """The person went to the question."""
    await working(pilot)
    await pilot.press("tab")
    app = pilot.app
    assert isinstance(app, ChatApp)
    for _ in range(PATIENCE):
        if app.card.is_ready:
            break
        await pilot.pause(0.02)
    await settled(pilot)


async def with_panel(pilot: Pilot[Any]) -> None:
    """An extension's panel is open."""
    talk = await opened(pilot)
    a_turn(talk)
    lines = ("▸ □ ship panel api", "  \x1b[32m✓\x1b[0m \x1b[9mpersist state\x1b[0m", "  □ write the tutorial")
    talk.say(said.PanelDrawn(panel=panel(lines=lines)))
    await settled(pilot)


async def commands(pilot: Pilot[Any]) -> None:
    """The list of commands is open."""
    talk = await opened(pilot)
    a_turn(talk)
    await pilot.press("slash")
    await settled(pilot)


async def long_result(pilot: Pilot[Any]) -> None:
    """A long result is folded."""
    talk = await opened(pilot)
    rows = "\n".join(f"{number:>3}  2026-05-{number:02}  {number * 17 % 90} °C" for number in range(1, 29))
    talk.say(
        said.UserMessage(text="show me the temperatures in May"),
        said.TurnStarted(turn=1),
        said.ToolStarted(call="t", tool="almanac_table", plugin="almanac", arguments={"month": "May", "year": 2026}),
        said.ToolEnded(call="t", result=Result(content=(Text(rows),), duration_ms=1430.0), verdict="person", record=3),
        said.TextDelta(turn=1, text="The warmest day in May was the **"),
    )
    await settled(pilot)


SCENES: dict[str, Callable[[Pilot[Any]], Awaitable[None]]] = {
    "empty": empty,
    "working": working,
    "answering": answering,
    "panel": with_panel,
    "commands": commands,
    "long-result": long_result,
}
