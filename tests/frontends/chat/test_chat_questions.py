"""Questions: docked, in plain words, and never answered by somebody who only types."""

import string

import pytest
from chat_screens import Screen, chat

from anyplug.agent import conversation_events as said
from anyplug.frontends.chat import question_card
from scripted_conversation import question

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_card, "GUARD_S", 0.05)


async def ready(screen: Screen) -> None:
    await screen.until(lambda: screen.app.card.is_ready)


async def test_a_question_says_what_would_run_with_what_and_what_it_could_touch():
    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        shown = screen.text
        assert "? WAITING FOR YOU: bookmarks wants to run bookmark_add" in shown
        assert 'url: "https://example.org"' in shown
        assert "it can read files on this machine and create, change and" in shown
        assert "▲ changes files" in shown
        assert "Tab to answer" in shown
        assert "1/1" in shown


async def test_typing_is_never_consent():
    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        await ready(screen)
        keys = [*string.ascii_letters, *string.digits, "space", "!", "?", "enter", "up", "down", "pageup", "escape"]
        await screen.pilot.press(*keys)
        assert screen.talk.answers == []
        assert screen.app.composer.has_focus
        assert len(screen.app.state.questions) == 1


async def test_a_question_takes_no_focus_and_letters_typed_on_stay_in_the_composer():
    async with chat() as screen:
        await screen.type("any")
        await screen.say(said.Asked(question=question()))
        await screen.type("yes")
        assert screen.app.composer.text == "anyyes"


@pytest.mark.parametrize(("key", "word"), [("y", "once"), ("c", "attachment"), ("n", "no")])
async def test_after_tab_a_letter_answers(key: str, word: str):
    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        await screen.pilot.press("tab")
        await ready(screen)
        await screen.pilot.press(key)
        assert screen.talk.answers == [("q1", word)]
        assert screen.app.composer.has_focus
        assert not screen.app.card.display


async def test_letters_do_nothing_until_the_card_has_been_there_for_a_moment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(question_card, "GUARD_S", 3600.0)
    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        await screen.pilot.press("tab", "y", "c", "n", "a", "enter")
        assert screen.talk.answers == []
        await screen.pilot.press("escape")
        assert screen.app.composer.has_focus


async def test_always_wants_enter_as_well():
    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        await screen.pilot.press("tab")
        await ready(screen)
        await screen.pilot.press("a")
        assert screen.talk.answers == []
        assert "For every chat and agent, until the plugin changes." in screen.text
        await screen.pilot.press("escape")
        assert "[y] Once" in screen.text
        await screen.pilot.press("a", "enter")
        assert screen.talk.answers == [("q1", "always")]


async def test_several_questions_keep_their_order_and_each_needs_its_own_moment(monkeypatch: pytest.MonkeyPatch):
    async with chat() as screen:
        await screen.say(said.Asked(question=question()), said.Asked(question=question("q2", tool="bookmark_find")))
        assert "1/2" in screen.text
        await screen.pilot.press("tab")
        await ready(screen)
        monkeypatch.setattr(question_card, "GUARD_S", 3600.0)
        await screen.pilot.press("y", "y", "y")
        assert screen.talk.answers == [("q1", "once")]
        assert screen.app.card.has_focus
        assert "bookmark_find" in screen.text


async def test_an_answer_given_elsewhere_closes_the_card_and_is_named():
    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        await screen.pilot.press("tab")
        await screen.say(said.Answered(question="q1", answer="once", by="console"))
        assert "Allowed once in the console: bookmark_add" in screen.text
        assert not screen.app.card.display
        await screen.type("hello")
        assert screen.app.composer.text == "hello"


async def test_details_show_every_argument_whole():
    async with chat() as screen:
        long = "x" * 300
        arguments = {"a": 1, "b": 2, "c": 3, "d": 4, "url": long}
        await screen.say(said.Asked(question=question(arguments=arguments)))
        assert "2 more, under Details" in screen.text
        await screen.pilot.press("tab")
        await ready(screen)
        await screen.pilot.press("d")
        assert screen.text.count("x") >= 300
        await screen.pilot.press("pagedown")
        await screen.until(lambda: "Granted: filesystem:read, filesystem:write" in screen.text)
        assert "[y] Once" in screen.text


async def test_a_question_of_a_plugin_names_the_chain_and_has_no_always():
    async with chat() as screen:
        await screen.say(
            said.Asked(question=question(callers=("knot/tie", "bookmarks"), lent=("filesystem:write",), asker="P1"))
        )
        await screen.pilot.press("tab")
        await ready(screen)
        shown = screen.text
        assert "Called by knot/tie > bookmarks." in shown
        assert "Your policy P1 wants your answer." in shown
        assert "Always" not in shown
        await screen.pilot.press("a", "enter")
        assert screen.talk.answers == []


async def test_hidden_characters_in_a_question_are_shown():
    async with chat() as screen:
        await screen.say(said.Asked(question=question(arguments={"path": "a\u202eb\x1b[31m"}, tool="[b]x[/b]")))
        assert "[b]x[/b]" in screen.text
        assert "\u202e" not in screen.text
        assert "\x1b" not in screen.text


async def test_f2_goes_to_the_question_from_a_panel():
    from scripted_conversation import panel

    async with chat() as screen:
        await screen.say(said.PanelDrawn(panel=panel()), said.Asked(question=question()))
        assert screen.app.panel.has_focus
        await screen.pilot.press("y", "tab")
        assert screen.talk.answers == []
        await screen.pilot.press("f2")
        await ready(screen)
        await screen.pilot.press("n")
        assert screen.talk.answers == [("q1", "no")]
        assert screen.app.panel.has_focus


async def test_the_terminals_title_counts_questions():
    async with chat() as screen:
        await screen.say(said.Asked(question=question()))
        assert screen.app.title == "(1) anyplug"
        await screen.say(said.Answered(question="q1", answer="no", by="chat"))
        assert screen.app.title == "anyplug"
