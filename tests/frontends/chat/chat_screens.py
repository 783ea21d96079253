"""Runs the chat on a scripted conversation, without a terminal."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from anyplug.frontends.chat.chat_app import ChatApp
from scripted_conversation import ScriptedConversation, ScriptedWorkspace

PATIENCE = 400  # short pauses, on a machine that has much else to do
MOST_LOOKS = 20  # at a screen that goes on changing


class Screen:
    """A chat that runs, with its script."""

    def __init__(self, app: ChatApp, pilot: Pilot[int], workspace: ScriptedWorkspace) -> None:
        self.app, self.pilot, self.workspace = app, pilot, workspace
        self.talk = workspace.conversation

    async def say(self, *events: Any) -> None:
        """Let the conversation say something, and draw it."""
        self.talk.say(*events)
        self.app.transcript.flush()
        await self.pilot.pause()
        await self.settle()

    async def settle(self) -> None:
        """Wait until two looks at the screen show the same; not for ever, because clocks go on."""
        before = ""
        for _ in range(MOST_LOOKS):
            now = self.text
            if now == before:
                return
            before = now
            await self.pilot.pause(0.02)

    async def type(self, text: str) -> None:
        """Type a text, key by key."""
        for char in text:
            await self.pilot.press({" ": "space", "/": "slash", "@": "at"}.get(char, char))

    async def until(self, holds: Any) -> None:
        """Wait until something holds."""
        for _ in range(PATIENCE):
            if holds():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"it never held; the screen shows:\n{self.text}")

    @property
    def text(self) -> str:
        """The whole screen, as text."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


@asynccontextmanager
async def chat(
    workspace: ScriptedWorkspace | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    theme: str = "dark",
    talk: ScriptedConversation | None = None,
) -> AsyncIterator[Screen]:
    """Run a chat until its conversation is open."""
    workspace = workspace or ScriptedWorkspace(talk, cwd=os.getcwd())
    app = ChatApp(workspace, theme=theme)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot, workspace)
        if workspace.fault is None:
            await screen.until(lambda: app.state.is_open and app.transcript.blocks and app.state.rows)
        yield screen
