"""The screen: what each event shows, and that it follows, folds, searches, copies and reflows."""

import asyncio
import time

import pytest
from chat_screens import Screen, chat

from anyplug.agent import conversation_events as said
from anyplug.call.slash_commands import CommandOutcome
from anyplug.model.errors import UsageError
from anyplug.model.types import Failure, Note, Result, Text
from scripted_conversation import ANSWER, COUNTED, REFUSED, ScriptedWorkspace, a_turn

pytestmark = pytest.mark.anyio


async def test_the_first_lines_say_which_model_this_is_and_what_to_try():
    async with chat() as screen:
        assert "No model key found, so this is demo" in screen.text
        assert "3  what can you do" in screen.text
        assert "demo (offline)" in screen.text
        assert "6 tools, 3 plugins" in screen.text


async def test_a_turn_shows_the_message_the_call_and_the_answer_in_markdown():
    async with chat(size=(100, 50)) as screen:
        a_turn(screen.talk)
        await screen.pilot.pause()
        shown = screen.text
        assert "count the words in to be or not to be" in shown
        assert "✓ word_count  word-count" in shown
        assert "done  12 ms  by your approval  #1" in shown
        assert 'text: "to be or not to be"' in shown
        assert "1 line, 6 words, 18 characters" in shown
        assert "The text has 6 words, of which be and to come twice:" in shown
        assert "def top(words):" in shown
        assert "See the guide (https://example.org/guide)." in shown
        assert "##" not in shown
        assert "412 tokens  $0.00" in shown


async def test_a_streaming_answer_is_shown_as_it_comes_and_replaced_by_the_whole():
    async with chat() as screen:
        await screen.say(said.TurnStarted(turn=1), said.TextDelta(turn=1, text="The **first** par"))
        assert "The **first** par" in screen.text
        await screen.say(said.TextDelta(turn=1, text="agraph.\n\nThe second"))
        assert "The first paragraph." in screen.text
        assert "The second" in screen.text
        await screen.say(said.AssistantMessage(turn=1, text="Another text.", changed_by="redact"))
        assert "paragraph" not in screen.app.transcript.text
        assert "Another text." in screen.text
        assert "changed by redact" in screen.text


async def test_a_held_answer_shows_no_text_and_a_withheld_one_its_reason():
    async with chat() as screen:
        await screen.say(said.TurnStarted(turn=1), said.TextHeld(turn=1, characters=1204, by="redact"))
        assert "held for review by redact, 1,204 characters" in screen.text
        await screen.say(said.AssistantMessage(turn=1, text="", withheld="it has a key in it"))
        await screen.say(said.TurnEnded(turn=1, stop="end"))
        assert "withheld: it has a key in it" in screen.text
        assert "held for review" not in screen.text


async def test_a_denied_call_shows_who_refused_it_why_and_the_cure():
    async with chat() as screen:
        await screen.say(said.ToolStarted(call="t", tool="read", plugin="chat", arguments={"path": ".env"}))
        assert "● read" in screen.text
        await screen.say(said.ToolProgress(call="t", progress=1, total=3, message="looking"))
        assert "1 of 3: looking" in screen.text
        await screen.say(said.ToolEnded(call="t", result=REFUSED, verdict="policy:NO_SECRETS reading.rego:10"))
        shown = screen.text
        assert "✗ read" in shown
        assert "by policy:NO_SECRETS reading.rego:10" in shown
        assert "the policy NO_SECRETS refuses it: .env has secrets" in shown
        assert "ask for another file" in shown
        assert "looking" not in shown


async def test_long_results_are_folded_until_ctrl_o():
    async with chat(size=(80, 60)) as screen:
        lines = "\n".join(f"row {number}" for number in range(30))
        await screen.say(
            said.ToolStarted(call="t", tool="csv", plugin="csv", arguments={}),
            said.ToolEnded(call="t", result=Result(content=(Text(lines),))),
        )
        assert "row 4" in screen.text
        assert "row 29" not in screen.text
        assert "… 25 more lines, Ctrl+O shows all" in screen.text
        await screen.pilot.press("ctrl+o")
        assert "row 29" in screen.text
        await screen.pilot.press("ctrl+o")
        assert "row 29" not in screen.text


async def test_notes_have_plugin_and_level_and_go_when_they_are_taken_back():
    async with chat() as screen:
        await screen.say(said.Noted(note=Note("todos", "warn", "3 overdue")), said.Noted(note=Note("b", "odd", "hm")))
        assert "[todos] warn: 3 overdue" in screen.text
        assert "[b] info: hm" in screen.text
        await screen.say(said.NotesRemoved(plugin="todos"))
        assert "[todos]" not in screen.text
        await screen.say(said.UserMessage(text="next"))
        assert not screen.app.state.notes
        assert "[b] hm" in screen.app.transcript.text


async def test_commands_of_extensions_display_insert_and_fail():
    async with chat() as screen:
        await screen.type("see ")
        await screen.say(
            said.CommandEnded(
                outcome=CommandOutcome(command="tally", plugin="tally", action="display", display="3 of 4")
            )
        )
        assert "▎ /tally of tally" in screen.text
        assert "▎ 3 of 4" in screen.text
        await screen.say(
            said.CommandEnded(outcome=CommandOutcome(command="t", plugin="t", action="insert", insert="inserted"))
        )
        assert screen.app.composer.text == "see inserted"
        error = Failure("tool_error", "extension t: it broke", "`anyplug logs t`")
        await screen.say(said.CommandEnded(outcome=CommandOutcome(command="t", plugin="t", error=error)))
        assert "! extension t: it broke" in screen.text


async def test_failed_turns_say_once_why_and_how_to_go_on_after_what_had_come():
    async with chat() as screen:
        error = Failure("unavailable", "the provider answered 429", "wait a minute, or `/model demo`")
        screen.talk.say(said.TurnStarted(turn=1), said.TextDelta(turn=1, text="half of it"))
        screen.talk.say(said.Status(level="error", text=error.message, hint=error.hint))
        await screen.say(said.TurnEnded(turn=1, stop="error", error=error))
        assert screen.text.count("the provider answered 429") == 1
        assert screen.text.count("wait a minute, or `/model demo`") == 1
        assert screen.text.index("half of it") < screen.text.index("the provider answered 429")


async def test_a_plugin_that_is_found_is_announced_with_its_approval():
    async with chat() as screen:
        await screen.say(said.PluginFound(plugin="kv", path="/p/kv", permissions=("network",)))
        assert "new plugin: kv, from /p/kv. It asks for: network" in screen.text
        assert "`/approve kv`" in screen.text


async def test_other_events_are_shown():
    async with chat() as screen:
        await screen.say(
            said.Status(level="warn", text="the file is large", hint="shorten it"),
            said.Compacted(messages=12, summary="about bookmarks"),
            said.ToolsChanged(tools=9, plugins=4),
            said.Opened(conversation="c1", model="anthropic:x", provider="anthropic", cwd="/w"),
        )
        shown = screen.text
        assert "▲ the file is large" in shown
        assert "12 older messages summarised" in shown
        assert "model: anthropic:x" in shown


async def test_text_of_plugins_and_models_is_never_markup_or_control():
    async with chat() as screen:
        evil = "[red]x[/red] \x1b]2;title\x07 \u202eabc <b>html</b>"
        await screen.say(
            said.UserMessage(text=evil, plugin="[b]p[/b]"),
            said.AssistantMessage(turn=1, text=evil),
            said.Noted(note=Note("[i]n[/i]", "info", evil)),
            said.Status(level="error", text=evil),
        )
        shown = screen.text
        assert shown.count("[red]x[/red]") == 4
        assert "from [b]p[/b]" in shown
        assert "[[i]n[/i]]" in shown
        assert "<b>html</b>" in shown
        for hidden in ("\x1b", "\x07", "\u202e"):
            assert hidden not in shown


async def long(screen: Screen) -> None:
    text = "\n\n".join(f"paragraph {number} " + "word " * 30 for number in range(40))
    await screen.say(said.AssistantMessage(turn=1, text=text))


async def test_it_follows_the_end_until_somebody_scrolls_up():
    async with chat() as screen:
        await long(screen)
        assert "paragraph 39" in screen.text
        await screen.pilot.press("pageup", "pageup")
        here = screen.app.transcript.scroll_offset.y
        await screen.say(said.AssistantMessage(turn=2, text="much later"))
        assert screen.app.transcript.scroll_offset.y == here
        assert "much later" not in screen.text
        assert "Ctrl+End" in screen.text
        await screen.pilot.press("ctrl+end")
        assert "much later" in screen.text
        await screen.say(said.AssistantMessage(turn=3, text="followed again"))
        assert "followed again" in screen.text


async def test_the_answer_to_a_command_is_in_sight_after_a_list_that_was_too_tall():
    async with chat() as screen:
        await screen.type("/help")
        await screen.pilot.press("enter")
        await screen.until(lambda: "lines, Ctrl+End" in screen.text)  # its beginning is shown
        await screen.type("/model nonsense")
        await screen.pilot.press("enter")
        await screen.until(lambda: "· model: nonsense" in screen.text)


async def test_everything_is_reflowed_when_the_width_changes():
    async with chat() as screen:
        await long(screen)
        before = len(screen.app.transcript._rows)
        await screen.pilot.resize_terminal(50, 24)
        await screen.until(
            lambda: len(screen.app.transcript._rows) > before and not screen.app.transcript._is_reflowing
        )
        assert "paragraph 39" in screen.text
        await screen.pilot.press("ctrl+home")
        assert "paragraph 0" in screen.text or "paragraph 1 " in screen.text
        await screen.pilot.resize_terminal(80, 24)
        await screen.until(lambda: len(screen.app.transcript._rows) == before)
        assert sum(len(block.rows) for block in screen.app.transcript.blocks) == before


async def test_search_marks_matches_and_moves_among_them():
    async with chat() as screen:
        await long(screen)
        await screen.pilot.press("ctrl+f")
        await screen.type("paragraph 1")
        assert "11 of 11" in screen.text
        assert "paragraph 19" in screen.text
        await screen.pilot.press("up")
        assert "10 of 11" in screen.text
        await screen.pilot.press("tab", "n")
        assert "11 of 11" in screen.text
        await screen.pilot.press("N", "N")
        assert "9 of 11" in screen.text
        await screen.pilot.press("escape")
        assert not screen.app.searching.display
        assert screen.app.composer.has_focus


async def test_text_is_selected_with_the_mouse_and_copied():
    async with chat() as screen:
        await screen.say(said.AssistantMessage(turn=1, text="copy these words"))
        rows = screen.text.split("\n")
        y = next(number for number, row in enumerate(rows) if "copy these words" in row)
        x = rows[y].index("copy")
        await screen.pilot.mouse_down(offset=(x, y))
        await screen.pilot.hover(offset=(x + 10, y))
        await screen.pilot.mouse_up(offset=(x + 10, y))
        assert screen.app.screen.get_selected_text() == "copy these"
        await screen.pilot.press("ctrl+c")
        assert screen.app.clipboard == "copy these"


async def test_ctrl_y_copies_the_last_answer():
    async with chat() as screen:
        a_turn(screen.talk)
        await screen.type("draft")
        await screen.pilot.press("ctrl+y")
        assert screen.app.clipboard == ANSWER


async def test_a_click_unfolds_a_call():
    async with chat(size=(80, 60)) as screen:
        lines = "\n".join(f"row {number}" for number in range(30))
        await screen.say(
            said.ToolStarted(call="t", tool="csv", plugin="csv", arguments={}),
            said.ToolEnded(call="t", result=Result(content=(Text(lines),))),
        )
        rows = screen.text.split("\n")
        y = next(number for number, row in enumerate(rows) if "csv" in row)
        await screen.pilot.click(offset=(10, y))
        assert "row 29" in screen.text


async def test_wide_terminals_have_a_column_at_the_right():
    from scripted_conversation import question

    async with chat(size=(160, 40)) as screen:
        await screen.say(
            said.TurnStarted(turn=1),
            said.ToolStarted(call="t", tool="word_count", plugin="word-count", arguments={}),
            said.Asked(question=question()),
            said.Usage(input_tokens=10, output_tokens=5, cost_usd=0.0123, context_used=0.5),
        )
        parts = ("Now", "● word_count", "Waiting", "? bookmark_add", "Plugins", "? todos", "$0.0123", "50%")
        await screen.until(lambda: all(part in screen.text for part in parts))
        await screen.pilot.resize_terminal(100, 40)
        await screen.until(lambda: not screen.app.side.display)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/help", "show keys and commands"),
        ("/tools word", "1 tool"),
        ("/plugins", "Keeps bookmarks"),
        ("/reload-ext", "reloaded: 1 stopped"),
        ("/model", "offline, calls your tools"),
        ("/model openai:x", "model: openai:x"),
        ("/sessions", "yesterday: keep example.org"),
        ("/sessions 9", "there is no conversation “9”"),
        ("/export notes.md", "exported to notes.md"),
        ("/policy", "refuses to read .env files"),
        ("/audit", "denied by person"),
    ],
)
async def test_the_chats_own_commands(line: str, shown: str):
    async with chat(size=(100, 60)) as screen:
        await screen.type(line)
        await screen.pilot.press("escape", "enter")
        await screen.until(lambda: shown in screen.app.transcript.text)
        assert screen.talk.sent == []


async def test_new_and_sessions_open_other_conversations_and_clear_and_quit_do_what_they_say():
    async with chat() as screen:
        a_turn(screen.talk)
        await screen.type("/new")
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.workspace.opened == [("", ""), ("demo", "")])
        assert "count the words in to be" not in screen.text.split("Try one")[0]
        await screen.until(lambda: screen.app.state.is_open)
        await screen.type("/sessions 1")
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.workspace.opened[-1] == ("demo", "c7"))
        await screen.until(lambda: screen.app.state.is_open)
        a_turn(screen.talk)
        await screen.type("/clear")
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.app.transcript.text == "")
        await screen.type("/quit")
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.app._exit)


async def test_what_ends_after_it_was_cleared_away_or_left_is_no_fault():
    async with chat() as screen:
        for command in ("/clear", "/new"):
            await screen.say(
                said.TurnStarted(turn=1), said.ToolStarted(call="t", tool="slow", plugin="p", arguments={})
            )
            await screen.say(said.TextDelta(turn=1, text="Let me "))
            await screen.type(command)
            await screen.pilot.press("enter")
            await screen.until(lambda: "slow" not in screen.text)
            await screen.until(lambda: screen.app.state.is_open)
            await screen.say(said.ToolEnded(call="t", result=COUNTED), said.AssistantMessage(turn=1, text="Let me see"))
            await screen.say(said.TurnEnded(turn=1, stop="end"), said.UserMessage(text="the next one"))
            assert "the next one" in screen.text
            assert not screen.app.state.fault


async def test_a_list_that_is_taller_than_the_screen_is_shown_from_its_beginning():
    async with chat(size=(80, 20)) as screen:
        await screen.pilot.press("f1")
        await screen.until(lambda: "Keys" in screen.text)
        assert "lines, Ctrl+End" in screen.text
        await screen.pilot.press("ctrl+end")
        assert screen.text.count("/model") == 1
        assert "count something (tally)" in screen.text


async def test_a_host_that_cannot_start_is_one_line_with_its_cure_and_the_draft_stays():
    workspace = ScriptedWorkspace()
    workspace.fault = UsageError("the home is not a folder", "`anyplug doctor` tests this machine")
    async with chat(workspace) as screen:
        await screen.until(lambda: "the home is not a folder" in screen.text)
        assert "`anyplug doctor` tests this machine" in screen.text
        await screen.type("my words")
        await screen.pilot.press("enter")
        assert screen.app.composer.text == "my words"
        await screen.pilot.press("ctrl+c", "ctrl+c", "ctrl+c")
        await screen.until(lambda: screen.app._exit)


@pytest.mark.parametrize("theme", ["light", "ansi-dark", "ansi-light"])
async def test_every_theme_draws_everything(theme: str):
    async with chat(theme=theme, size=(150, 50)) as screen:
        a_turn(screen.talk)
        await screen.pilot.pause()
        assert "The text has 6 words" in screen.text
        await screen.pilot.press("ctrl+t")
        assert "The text has 6 words" in screen.text


async def test_without_colours_nothing_is_lost(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with chat() as screen:
        await screen.say(
            said.ToolStarted(call="t", tool="word_count", plugin="w", arguments={}),
            said.ToolEnded(call="t", result=COUNTED, verdict="person"),
        )
        assert "✓ word_count" in screen.text
        assert "done  12 ms  by you" in screen.text


async def test_a_text_for_a_model_is_sent_by_its_key_and_names_its_source():
    result = Result(content=(Text("rows"),), structured={"prompt": "Summarise\nthe rows"})
    async with chat() as screen:
        for number, text in enumerate(("Summarise\nthe rows", "/quit")):
            await screen.say(
                said.ToolStarted(call=f"t{number}", tool="report", plugin="csv", arguments={}),
                said.ToolEnded(call=f"t{number}", result=result, offered=text),
            )
        assert screen.text.count("Ctrl+S sends to the model:") == 1
        await screen.pilot.press("ctrl+s")
        await screen.until(lambda: screen.talk.sent == ["From report of csv:\n\n/quit"])
        assert "Sent to the model:  /quit" in screen.text
        assert "Ctrl+S sends to the model:  Summarise the rows" in screen.text
        await screen.pilot.press("ctrl+s", "ctrl+s")
        await screen.until(lambda: screen.talk.sent[1:] == ["From report of csv:\n\nSummarise\nthe rows"])
        assert "Ctrl+S sends" not in screen.text


async def test_a_text_for_a_model_that_is_out_of_sight_for_good_is_not_sent():
    async with chat() as screen:
        await screen.say(
            said.ToolStarted(call="t", tool="report", plugin="csv", arguments={}),
            said.ToolEnded(call="t", result=COUNTED, offered="Summarise"),
        )
        screen.app.transcript.clear()
        await screen.pilot.press("ctrl+s")
        assert screen.talk.sent == []


async def test_a_cards_time_is_the_tools_without_the_persons():
    async with chat() as screen:
        await screen.say(
            said.ToolStarted(call="t", tool="write", plugin="chat", arguments={}),
            said.ToolEnded(call="t", result=Result(duration_ms=13_100.0), waited_ms=13_060.0),
        )
        assert "done  40 ms" in screen.text


async def test_a_timer_that_is_late_before_it_begins_runs_all_the_same():
    async with chat() as screen:
        for owner in (screen.app, screen.app.transcript, screen.app.card):
            rung: list[bool] = []
            owner.set_timer(1e-9, lambda rung=rung: rung.append(True))
            await screen.until(lambda rung=rung: rung == [True])


async def test_a_timer_that_runs_once_runs_late_rather_than_never(monkeypatch):
    async with chat() as screen:
        ticked = asyncio.Event()
        begun: set[str] = set()

        def clock() -> float:
            """Return the time; for this timer, a second passes after its first look at it."""
            task = asyncio.current_task()
            name = task.get_name() if task is not None else ""
            is_held_up = name == "late" and name in begun
            begun.add(name)
            return time.monotonic() + is_held_up

        monkeypatch.setattr("textual._time.get_time", clock)
        screen.app.set_timer(0.01, ticked.set, name="late")
        await screen.until(ticked.is_set)
        assert "late" in begun
