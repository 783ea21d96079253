"""The real chat in a real terminal, with the demo model and extensions that do what those in the wild do."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import zot_folders
from daemons import resident
from plugin_folders import cyclop
from terminals import Terminal, anyplug

pytestmark = pytest.mark.xdist_group("terminal")  # each keeps two processors busy

TODOS = """
hello("commands", "panels")
command("todos", "open the todo list")
emit("ready")
items, at, typing = [["ship panel api", False], ["persist state", True]], 0, None
def content():
    lines = [("▸ " if i == at else "  ") + ("✓ " if done else "□ ") + text for i, (text, done) in enumerate(items)]
    return {"title": "Todos", "lines": lines + (["new: " + typing] if typing is not None else []),
            "footer": "up/down navigate - a add - x complete"}
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="open_panel", open_panel={"id": "todos-main", **content()})
    elif frame["type"] == "panel_close":
        emit("notify", level="info", message=str(sum(not done for _, done in items)) + " open")
    elif frame["type"] == "panel_key":
        key, text = frame["key"], frame.get("text", "")
        if typing is not None:
            if key == "enter":
                items.append([typing, False])
                typing = None
            elif key == "backspace":
                typing = typing[:-1]
            elif key == "rune":
                typing += text
        elif key in ("up", "down"):
            at = max(0, min(len(items) - 1, at + (1 if key == "down" else -1)))
        elif text == "a":
            typing = ""
        elif text == "x":
            items[at][1] = True
        elif text == "q":
            os._exit(3)
        emit("panel_render", panel_id="todos-main", **content())
"""
GUARD = """
hello()
emit("subscribe", events=[], intercept=["tool_call"])
emit("ready")
for frame in heard():
    if frame["type"] == "event_intercept":
        is_shell = frame.get("tool_name") == "bash"
        emit("event_intercept_response", id=frame["id"], block=is_shell, reason="no shell today" if is_shell else "")
"""
REDACTING = """
hello()
emit("subscribe", events=[], intercept=["assistant_message"])
emit("ready")
for frame in heard():
    if frame["type"] == "event_intercept":
        text = frame["text"].replace("3 words", "[redacted]")
        emit("event_intercept_response", id=frame["id"], replace_text=text)
"""
SUBMITTING = """
hello("commands", "submit")
command("again", "ask again")
command("broken", "fail")
emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked" and frame["name"] == "again":
        emit("submit", text="what can you do")
        emit("command_response", id=frame["id"], action="noop")
    elif frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="prompt", prompt="never", error="it is broken")
"""


@pytest.fixture
def plugins(tmp_path: Path) -> list[str]:
    made = []
    for name, script in (("todos", TODOS), ("guard", GUARD), ("redact", REDACTING), ("submit", SUBMITTING)):
        made += ["--plugin", zot_folders.extension(tmp_path / "ext", name, script)]
    examples = Path(__file__).parents[3] / "examples"
    return [*made, "--plugin", str(examples / "word-count"), "--no-discover"]


@pytest.fixture
def chat(tmp_path: Path, home: Path, plugins: list[str]) -> Iterator[Terminal]:
    env = {"COLUMNS": "80", "LINES": "24"}  # some shells export them
    env |= {"PYTHONDONTWRITEBYTECODE": "", "ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": ""}
    with Terminal(tmp_path, anyplug(*plugins, "chat", "--model", "demo"), env=env) as terminal:
        terminal.until("Try one of these")
        yield terminal


def quit_(chat: Terminal) -> None:
    chat.keys("C-c", "C-d")
    assert chat.exit_code == "0"
    assert "Warning" not in chat.screen


def test_a_todo_panel_is_opened_used_and_closed(chat: Terminal):
    chat.type("/todos")
    chat.until("open the todo list")
    chat.keys("Enter")
    chat.until("Todos (extension todos)", "▸ □ ship panel api", "keys go here, Esc closes")
    chat.keys("x")
    chat.until("▸ ✓ ship panel api")
    chat.keys("Down", "a")
    chat.until("new:")
    chat.type("buy milk")
    chat.paste(" and bread")
    chat.until("new: buy milk and bread")
    chat.keys("BSpace", "Enter")
    chat.until("  □ buy milk and brea", "▸ ✓ persist state")
    chat.keys("Escape")
    chat.until("[todos] info: 1 open", gone="keys go here")
    chat.type("typed into the composer")
    chat.until("typed into the composer")
    quit_(chat)


def test_an_extension_that_dies_with_its_panel_open_leaves_the_chat_usable(chat: Terminal):
    chat.type("/todos")
    chat.keys("Enter")
    chat.until("keys go here")
    chat.keys("q")
    chat.until(gone="keys go here")
    chat.type("count the words in a b c")
    chat.keys("Enter")
    chat.until("1 line, 3 words")
    quit_(chat)


def test_a_guard_blocks_the_shell_and_its_reason_is_shown(chat: Terminal):
    chat.type("call bash command=ls")
    chat.keys("Enter")
    chat.until("✗ bash", "no shell today")
    chat.type("call word_count text=one")
    chat.keys("Enter")
    chat.until("✓ word_count")


def test_redacted_words_never_reach_the_screen(chat: Terminal):
    chat.type("Call word_count text='a b c'")
    chat.keys("Enter")
    chat.until("✓ word_count", "changed by redact")
    answer = chat.screen.split("word_count answered")[1]
    assert "1 line, [redacted], 5 characters" in answer
    assert "3 words" not in answer


def test_an_extension_submits_and_one_that_fails_is_a_red_line(chat: Terminal):
    chat.type("/again")
    chat.keys("Enter")
    chat.until("from submit: what can you do")
    chat.type("/broken")
    chat.keys("Enter")
    chat.until("it is broken")


def test_the_screen_follows_the_terminals_size(chat: Terminal):
    chat.type("count the words in to be or not to be")
    chat.keys("Enter")
    chat.until("✓ word_count")
    chat.resize(160, 40)
    chat.until("Conversation", "Plugins", "✓ word_count")
    chat.resize(60, 20)
    chat.until("✓ word_count", gone="Conversation")


def test_a_large_paste_leaves_the_terminal_as_it_was(chat: Terminal):
    chat.paste("line of text\n" * 4_000)
    chat.until("line of text")
    chat.keys("C-c")
    chat.until("cleared; Up brings it back")
    chat.type("after the paste")
    chat.until("after the paste")
    quit_(chat)
    assert "after the paste" not in chat.screen


def test_sigterm_ends_the_chat_and_leaves_the_terminal_as_it_was(chat: Terminal):
    chat.type("typed before the end")
    chat.until("typed before the end")
    os.kill(chat.pid, signal.SIGTERM)
    chat.until(gone="typed before the end")
    assert chat.exit_code == "0"


def test_the_chat_ends_with_its_terminal(chat: Terminal):
    chat.type("call word_count text=one")
    chat.keys("Enter")
    chat.until("✓ word_count")


def test_a_plugin_that_arrives_is_announced_reviewed_and_called(tmp_path: Path, home: Path):
    with Terminal(tmp_path, anyplug("chat", "--model", "demo")) as chat:
        chat.until("Try one of these")
        cyclop(str(home / "plugins"), "late")
        chat.until("new plugin: late", "/approve late")
        chat.type("/approve")
        chat.keys("Enter", "y", "Enter")  # typed ahead: not an answer
        chat.until("Approve it? [y/N]")
        chat.type("y")
        chat.keys("Enter")
        chat.until("late is approved", "Press Enter to return")
        chat.keys("Enter")
        chat.until("/ commands", gone="Press Enter to return")
        chat.type("/plugins")
        chat.keys("Enter")
        chat.until("late", "approved")
        quit_(chat)


def test_when_the_daemon_ends_the_conversation_goes_on_without_it(tmp_path: Path, home: Path):
    with resident() as daemon, Terminal(tmp_path, anyplug("chat", "--model", "demo")) as chat:
        chat.until("Try one of these")
        chat.type("who are you")
        chat.keys("Enter")
        chat.until("I am demo")
        chat.type("call bash command=pwd")
        chat.keys("Enter")
        chat.until("WAITING FOR YOU")
        chat.type("what can you do")
        chat.keys("Enter")
        chat.until("queued: what can you do")
        daemon.terminate()
        chat.until("the daemon ended", "who are you", gone="WAITING")
        chat.keys("C-c")
        chat.type("/tools")
        chat.keys("Enter")
        chat.until("10 tools", "request_install")
        quit_(chat)


def test_it_needs_a_terminal_and_its_libraries(home: Path):
    import command_line

    done = command_line.run("chat")
    assert done.code == 2
    assert "the chat needs a terminal" in done.err
    assert "anyplug ask" in done.err
    blocked = home / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import importlib.machinery as machinery\nfind = machinery.PathFinder.find_spec\n"
        "machinery.PathFinder.find_spec = lambda name, *more: None if name == 'textual' else find(name, *more)\n"
    )
    done = command_line.run("chat", env={**os.environ, "PYTHONPATH": str(blocked)})
    assert done.code == 1
    assert "pip install 'anyplug[chat]'" in done.err


def test_what_was_typed_is_there_in_the_next_chat(tmp_path: Path, home: Path):
    for number in range(2):
        with Terminal(tmp_path, anyplug("--no-discover", "chat", "--model", "demo")) as chat:
            chat.until("Try one of these")
            if number:
                chat.keys("Up")
            else:
                chat.type("what can you do, my friend")
            chat.until("what can you do, my friend")
            chat.keys("Enter")
            chat.until("I am demo")
            chat.keys("C-d")
            assert chat.exit_code == "0"
