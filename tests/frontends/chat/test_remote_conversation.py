"""Chats in the daemon: they share its plugins, and nothing else."""

import os

import anyio
import pytest

import command_line
from anyplug.agent import conversation_events as events
from anyplug.frontends.chat.remote_conversation import RefusedByDaemon, remote_conversation
from daemons import resident, status
from model_servers import model_server, say
from zot_folders import extension, heard

pytestmark = pytest.mark.anyio

PATIENCE_S = 90.0  # a loaded machine takes long to import the libraries
WORDS = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "word-count")
PANELS = """
hello()
command("open")
emit("subscribe", events=["session_start", "tool_call"])
emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="open_panel",
             open_panel={"id": frame["args"], "title": "Panel", "lines": ["one"]})
    if frame["type"] == "panel_key":
        emit("panel_render", panel_id=frame["panel_id"], lines=["key " + frame["key"]])
"""


class Told:
    """What a conversation has told."""

    def __init__(self, talk):
        self.talk, self.events = talk, list(talk.so_far())
        talk.listen(self.events.append)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, holds):
        with anyio.fail_after(PATIENCE_S):
            while not holds():
                await anyio.sleep(0.01)

    async def turn(self, text):
        await self.talk.send(text)
        with anyio.fail_after(PATIENCE_S):
            await self.talk.settled()


def chat(**options):
    return remote_conversation(command_line.home(), asks=True, **options)


async def test_without_a_daemon_there_is_none():
    async with chat() as talk:
        assert talk is None


async def test_two_chats_share_processes_and_have_panels_and_questions_of_their_own(tmp_path):
    folder = extension(tmp_path / "work" / ".zot" / "extensions", "panels", PANELS)
    command_line.ok("approve", "panels", "--yes", "--always")
    with resident():
        async with chat(model="demo") as first, chat(model="demo") as second:
            one, two = Told(first), Told(second)
            assert first.id != second.id
            await one.turn("/open a")
            await two.turn("/open b")
            assert {event.panel.id for event in one.of(events.PanelDrawn)} == {"a"}
            assert {event.panel.id for event in two.of(events.PanelDrawn)} == {"b"}
            first.press("a", "panels", "up")
            await one.until(lambda: one.of(events.PanelDrawn)[-1].panel.lines == ("key up",))
            second.close_panel("a", "panels")
            await first.send("call bash command=pwd")
            await one.until(lambda: one.of(events.Asked))
            first.answer(one.of(events.Asked)[0].question.id, "once")
            await one.until(lambda: one.of(events.TurnEnded))
            assert os.getcwd() in one.of(events.ToolEnded)[0].result.text
            assert two.of(events.Asked) == []
            assert status()["running"] == 1
            names = [first.id, second.id]
    frames = heard(folder)
    last = max(at for at, frame in enumerate(frames) if frame["type"] == "hello_ack")  # others came from `approve`
    assert (frames[last]["provider"], frames[last]["model"]) == ("demo", "demo")
    started = [frame["session_id"] for frame in frames[last:] if frame.get("event") == "session_start"]
    assert started == names


async def test_the_model_is_asked_with_the_clients_key_which_is_stored_nowhere(monkeypatch, home):
    with model_server(say("hi")) as server, resident():
        monkeypatch.setenv("OPENAI_API_KEY", "the-clients-own-key")
        async with chat(model=server.model) as talk:
            told = Told(talk)
            await told.turn("hello")
    assert server.keys == ["the-clients-own-key"]
    assert told.of(events.AssistantMessage)[0].text == "hi"
    for place, _, names in os.walk(home):
        for name in names:
            if not name.endswith(".sock"):
                with open(os.path.join(place, name), "rb") as file:
                    assert b"the-clients-own-key" not in file.read()


async def test_a_conversation_is_resumed_and_one_that_is_not_there_is_refused():
    with resident():
        async with chat(model="demo") as talk:
            await Told(talk).turn("what can you do")
            name = talk.id
        async with chat(resume=name) as talk:
            shown = [type(event).__name__ for event in talk.so_far()]
        with pytest.raises(RefusedByDaemon):
            async with chat(resume="nothing-like-this"):
                pass
    assert shown == ["Opened", "UserMessage", "AssistantMessage"]


async def test_a_turn_is_cancelled_and_the_end_of_the_daemon_is_told():
    with resident() as daemon:
        async with chat(model="demo") as talk:
            told = Told(talk)
            await talk.send("call bash command=pwd")
            await told.until(lambda: told.of(events.Asked))
            await talk.send("never mind")
            await told.until(lambda: told.of(events.Queued))
            assert talk.take_back() == "never mind"
            await talk.cancel()
            await told.until(lambda: told.of(events.TurnEnded))
            assert told.of(events.TurnEnded)[0].stop == "cancelled"
            assert {choice.name for choice in await talk.commands()} >= {"tools", "model"}
            daemon.terminate()
            with anyio.fail_after(PATIENCE_S):
                await talk.lost()
            await talk.settled()
