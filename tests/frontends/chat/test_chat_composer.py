"""The composer: sending, history, completion, the queue, paste."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chat_screens import Screen, chat
from textual import events

from anyplug.agent import conversation_events as said
from anyplug.agent.conversation import Choice
from anyplug.call.slash_commands import CommandOutcome
from anyplug.frontends.chat import chat_app
from anyplug.frontends.chat.chat_app import ChatApp
from anyplug.frontends.chat.file_names import matching, project_files
from anyplug.frontends.chat.prompt_history import MOST_KEPT, PromptHistory
from anyplug.frontends.cli import chat as chat_command
from anyplug.frontends.cli.parsing import parse
from scripted_conversation import ScriptedConversation, ScriptedWorkspace

pytestmark = pytest.mark.anyio


async def test_enter_sends_and_three_keys_begin_a_line():
    async with chat() as screen:
        await screen.type("one")
        await screen.pilot.press("shift+enter", "2", "ctrl+j", "3", "alt+enter", "4", "enter")
        await screen.until(lambda: screen.talk.sent == ["one\n2\n3\n4"])
        assert screen.app.composer.text == ""


async def test_what_is_typed_at_once_is_sent_whole_and_in_order():
    async with chat() as screen:
        keys = ["a", "b", "c", "enter", "d", "e", "enter", "f"]
        for key in keys:  # as a terminal delivers them: nothing waits for the screen in between
            screen.app.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await screen.until(lambda: screen.talk.sent == ["abc", "de"])
        await screen.until(lambda: screen.app.composer.text == "f")


async def test_the_number_of_an_example_sends_it():
    async with chat() as screen:
        assert "1  count the words in to be or not to be" in screen.text
        await screen.pilot.press("1", "enter")
        await screen.until(lambda: screen.talk.sent == ["count the words in to be or not to be"])


async def test_up_and_down_move_through_the_history_and_back_to_the_draft():
    async with chat() as screen:
        for text in ("first", "second"):
            await screen.type(text)
            await screen.pilot.press("enter")
        await screen.type("draft")
        await screen.pilot.press("up")
        assert screen.app.composer.text == "second"
        await screen.pilot.press("up", "up")
        assert screen.app.composer.text == "first"
        await screen.pilot.press("down", "down")
        assert screen.app.composer.text == "draft"


async def test_the_history_is_kept_in_a_private_file(home: Path):
    path = str(home / "chat-history.jsonl")
    async with chat(ScriptedWorkspace(history=path)) as screen:
        await screen.type("kept")
        await screen.pilot.press("enter")
    assert os.stat(path).st_mode & 0o777 == 0o600
    async with chat(ScriptedWorkspace(history=path)) as screen:
        await screen.pilot.press("up")
        assert screen.app.composer.text == "kept"


def test_the_history_is_bounded_and_follows_no_symlink(tmp_path: Path):
    path = tmp_path / "history"
    history = PromptHistory()
    history.load(str(path))
    for number in range(MOST_KEPT + 50):
        history.add(f"message {number}")
    path.write_text(path.read_text() + "not json\n17\n")
    again = PromptHistory()
    again.load(str(path))
    assert again.previous("") == f"message {MOST_KEPT + 49}"
    assert len(again._lines) == MOST_KEPT
    (tmp_path / "link").symlink_to(path)
    before = path.read_text()
    linked = PromptHistory()
    linked.load(str(tmp_path / "link"))
    linked.add("through the link")
    assert path.read_text() == before


async def test_the_list_of_commands_narrows_and_has_those_of_extensions():
    async with chat() as screen:
        await screen.type("/")
        assert "/help" in screen.text
        await screen.type("to")
        rows = [row.text for row in screen.app.completions.rows]
        assert rows == ["/tools", "/todos"]
        assert "open the todo list  (todos)" in screen.text
        await screen.pilot.press("down", "tab")
        assert screen.app.composer.text == "/todos "
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.talk.sent == ["/todos "])


async def test_enter_in_the_list_runs_what_is_marked():
    async with chat() as screen:
        await screen.type("/tod")
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.talk.sent == ["/todos"])


async def test_esc_closes_the_list_and_keeps_what_was_typed():
    async with chat() as screen:
        await screen.type("/to")
        await screen.pilot.press("escape")
        assert not screen.app.completions.display
        assert screen.app.composer.text == "/to"


async def test_files_are_completed_in_the_middle_of_a_message():
    Path("src").mkdir()
    Path("src/main.py").touch()
    Path("notes.md").touch()
    Path(".env").touch()
    talk = ScriptedConversation(cwd=os.getcwd())
    async with chat(talk=talk) as screen:
        await screen.type("look at @ma")
        await screen.until(lambda: screen.app.completions.is_open)
        await screen.pilot.press("tab")
        assert screen.app.composer.text == "look at @src/main.py "
        await screen.type("@env")
        await screen.until(lambda: "no such file" in screen.text)


def test_files_are_few_and_neither_hidden_nor_linked(tmp_path: Path):
    for name in ("a/deep/file.txt", "node_modules/x.js", ".git/config", "b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link.txt").symlink_to("b.txt")
    (tmp_path / "out").symlink_to("/etc")
    assert project_files(str(tmp_path)) == ["b.txt", "a/deep/file.txt"]
    assert matching(["b.txt", "a/deep/file.txt"], "FIL") == ["a/deep/file.txt"]


async def test_a_large_paste_arrives_whole():
    async with chat() as screen:
        text = "0123456789\r\n" * 4_500
        screen.app.post_message(events.Paste(text))
        await screen.until(lambda: screen.app.composer.text)
        assert screen.app.composer.text == text.replace("\r\n", "\n")


async def test_queued_messages_are_shown_and_taken_back():
    async with chat() as screen:
        screen.talk.queue = ["first", "second"]
        await screen.say(said.TurnStarted(turn=1), said.Queued(texts=("first", "second")))
        assert "queued: second   Alt+Up takes it back" in screen.text
        await screen.type("typed")
        await screen.pilot.press("alt+up")
        assert screen.app.composer.text == "second\ntyped"
        assert "queued: first" in screen.text


async def test_esc_cancels_the_turn_and_then_clears_notes():
    from anyplug.model.types import Note

    async with chat() as screen:
        await screen.say(said.TurnStarted(turn=1), said.Noted(note=Note("todos", "info", "2 open")))
        await screen.pilot.press("escape")
        assert screen.talk.cancelled == 1
        await screen.say(said.TurnEnded(turn=1, stop="cancelled"))
        assert "cancelled" in screen.text
        assert "[todos] info: 2 open" in screen.text
        await screen.pilot.press("escape")
        assert "[todos]" not in screen.text


async def test_ctrl_c_clears_what_is_typed_and_twice_quits():
    async with chat() as screen:
        await screen.type("draft")
        await screen.pilot.press("ctrl+c")
        assert screen.app.composer.text == ""
        await screen.pilot.press("up")
        assert screen.app.composer.text == "draft"
        await screen.pilot.press("ctrl+c", "ctrl+c")
        assert "Ctrl+C again quits" in screen.text
        await screen.pilot.press("ctrl+c")
        deadline = time.monotonic() + 30
        while screen.app._exit is False and time.monotonic() < deadline:
            await screen.pilot.pause(0.02)
        assert screen.app.return_code == 0


HOSTILE = "a\x1b[2J\x1b]52;c;cHduZWQ=\x07b\x9b31m\u202ec\nd\te \U0001f469\u200d\U0001f52c"
HARMLESS = "a]52;c;cHduZWQ=b31mc\nd\te \U0001f469\u200d\U0001f52c"


async def test_nothing_that_a_terminal_would_obey_gets_into_the_composer():
    async with chat() as screen:
        composer = screen.app.composer
        await screen.say(
            said.CommandEnded(outcome=CommandOutcome(command="t", plugin="t", action="insert", insert=HOSTILE))
        )
        assert composer.text == HARMLESS
        for put in (composer.put, composer.give_back):
            composer.put("")
            put(HOSTILE)
            assert composer.text == HARMLESS
        composer.put("")
        screen.app.post_message(events.Paste(HOSTILE))
        await screen.until(lambda: composer.text == HARMLESS)
        screen.talk.queue = [HOSTILE]
        composer.put("")
        await screen.say(said.TurnStarted(turn=1), said.Queued(texts=(HOSTILE,)))
        await screen.pilot.press("alt+up")
        assert composer.text == HARMLESS


async def test_long_descriptions_of_commands_stay_in_one_row():
    async with chat() as screen:
        screen.talk.known = [Choice(name=f"long{n}", description="word " * 40, plugin="p") for n in range(3)]
        await screen.app.learn_commands()
        await screen.type("/long")
        rows = [line for line in screen.text.splitlines() if "word word" in line]
        assert len(rows) == 3
        assert all("/long" in row and row.endswith("…") for row in rows)


async def test_a_message_that_cannot_be_sent_comes_back():
    class Broken(ScriptedConversation):
        async def send(self, text: str) -> None:
            raise OSError("the host has stopped")

    async with chat(talk=Broken()) as screen:
        await screen.type("hello")
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.app.composer.text == "hello")
        assert "the host has stopped" in screen.text


async def test_keys_typed_before_the_rest_of_the_screen_are_obeyed_in_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat_app, "PAINT_S", 0.5)
    app = ChatApp(ScriptedWorkspace())
    async with app.run_test(size=(80, 24)) as pilot:
        screen = Screen(app, pilot, app.workspace)
        await screen.until(lambda: "Ask something" in screen.text)  # the first frame
        assert "anyplug" in screen.text
        assert not app.query("Transcript")
        await pilot.press("f2", "f1")  # the one does nothing yet, the other waits
        await screen.type("/to")
        await pilot.press("tab", "x")
        await screen.until(lambda: app.composer.text == "/tools x")
        await screen.until(lambda: app.state.is_open and "Ctrl+Y" in app.transcript.text)


def test_the_first_frame_imports_little():
    script = "import sys\nfrom anyplug.frontends.cli import chat\nfrom anyplug.frontends.chat import chat_app\n"
    heavy = "{'argparse', 'json', 'msgspec', 'anyplug.model.errors', 'anyplug.frontends.chat.transcript_view'}"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}print(sorted({heavy} & set(sys.modules)))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "words",
    ["chat", "chat --model demo", "chat --theme light --resume last", "chat --base-url http://[::1]:1/v1 --model a:b"],
)
def test_simple_command_lines_mean_the_same_without_the_parser(words: str):
    options, _ = parse(words.split())
    assert chat_command._read(words.split()) == {
        name: value for name in chat_command.OPTIONS.values() if (value := getattr(options, name))
    }


@pytest.mark.parametrize(
    "words", ["chat --model=demo", "chat --theme pink", "chat --model", "chat -h", "chat --model -h"]
)
def test_other_command_lines_are_left_to_the_parser(words: str):
    assert chat_command._read(words.split()) is None
