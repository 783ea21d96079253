"""Panels: every key for the extension, and a chat that survives whatever the extension does."""

import pytest
from chat_screens import chat
from textual import events

from anyplug.agent import conversation_events as said
from scripted_conversation import panel

pytestmark = pytest.mark.anyio
GUIDE = ["up", "down", "left", "right", "enter", "tab", "pageup", "pagedown", "home", "end", "backspace", "delete"]


async def test_a_panel_takes_every_key_of_the_guide_and_typed_characters_in_order():
    async with chat() as screen:
        await screen.type("draft")
        await screen.say(said.PanelDrawn(panel=panel()))
        await screen.pilot.press(*GUIDE, "a", "Z", "space", "é", "slash")
        runes = [("rune", char) for char in ("a", "Z", " ", "é", "/")]
        assert screen.talk.keys == [*((key, "") for key in GUIDE), *runes]
        assert screen.app.composer.text == "draft"


async def test_keys_that_the_guide_does_not_name_are_unknown_and_do_nothing_else():
    async with chat() as screen:
        await screen.say(said.PanelDrawn(panel=panel()))
        await screen.pilot.press("f5", "ctrl+d", "ctrl+f", "ctrl+o", "ctrl+p", "ctrl+q", "shift+tab", "f1")
        assert {key for key, _ in screen.talk.keys} == {"unknown"}
        assert screen.app.panel.has_focus


async def test_pasted_text_arrives_whole():
    async with chat() as screen:
        await screen.say(said.PanelDrawn(panel=panel()))
        screen.app.post_message(events.Paste("one\ntwo"))
        await screen.pilot.pause()
        assert screen.talk.pasted == ["one\ntwo"]


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_esc_and_ctrl_c_close_it_tell_the_extension_and_give_the_composer_back(key: str):
    async with chat() as screen:
        await screen.say(said.PanelDrawn(panel=panel()))
        await screen.pilot.press(key)
        assert screen.talk.closed == ["todos-main"]
        assert not screen.app.panel.display
        await screen.type("go on")
        assert screen.app.composer.text == "go on"


async def test_a_panel_is_redrawn_in_place_with_its_colours_and_without_control_sequences():
    async with chat() as screen:
        await screen.say(said.PanelDrawn(panel=panel()))
        await screen.say(said.PanelDrawn(panel=panel(lines=("\x1b[31mred\x1b[0m [b]raw[/b]", "\x1b[2Jgone\x07"))))
        assert "red [b]raw[/b]" in screen.text
        assert "\\x1b[2Jgone\\x07" in screen.text
        assert "ship panel api" not in screen.text
        assert "Todos (extension todos)" in screen.text


async def test_a_panel_that_its_extension_closes_leaves_the_chat_usable():
    async with chat() as screen:
        await screen.say(said.PanelDrawn(panel=panel()))
        await screen.say(said.PanelDrawn(panel=panel(is_open=False)))
        assert not screen.app.panel.display
        await screen.type("x")
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.talk.sent == ["x"])


async def test_of_two_panels_the_later_is_shown_and_the_earlier_comes_back():
    async with chat() as screen:
        await screen.say(said.PanelDrawn(panel=panel()), said.PanelDrawn(panel=panel(id="two", title="Second")))
        assert "Second (extension todos)" in screen.text
        await screen.pilot.press("escape")
        assert "Todos (extension todos)" in screen.text
        assert screen.app.panel.has_focus


async def test_a_long_panel_keeps_to_its_share_and_shows_the_marked_line():
    async with chat() as screen:
        lines = [f"  line {number}" for number in range(100)]
        await screen.say(said.PanelDrawn(panel=panel(lines=tuple(lines))))
        assert screen.app.panel.size.height <= 24 * 6 // 10
        lines[80] = "▸ line 80"
        await screen.say(said.PanelDrawn(panel=panel(lines=tuple(lines))))
        await screen.until(lambda: "▸ line 80" in screen.text)


async def test_a_panel_does_not_take_the_keys_from_somebody_who_answers_a_question():
    from scripted_conversation import question

    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        await screen.pilot.press("tab")
        await screen.say(said.PanelDrawn(panel=panel()))
        assert screen.app.card.has_focus
