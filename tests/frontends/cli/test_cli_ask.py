"""`anyplug ask`: one question in a script."""

import json
import os
import signal

import pytest

import zot_folders
from command_line import Terminal, fails, finish, ok, run, start
from model_servers import CUT, SILENT, model_server, say
from processes import until

pytestmark = pytest.mark.xdist_group("ask")  # one worker imports the library of agents for commands

WORDS = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "word-count")


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr():
    done = run("--plugin", WORDS, "ask", "count the words in to be or not to be")
    assert done.code == 0
    assert "1 line, 6 words, 18 characters" in done.out
    assert "demo" not in done.out
    assert "No model key found, so this is demo" in done.err
    assert "-- word_count (word-count)" in done.err


def test_stderr_has_only_what_anyplug_says():
    env = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_VERSION"}}
    words = ("--plugin", WORDS, "ask", "count the words in to be or not to be")
    done = run(*words, env=env, start_new_session=True)  # in an interpreter of its own, which imports the libraries
    assert done.code == 0
    assert "ydantic" not in done.err
    assert "logfire" not in done.err.lower()


def test_a_question_can_come_from_stdin():
    done = run("--plugin", WORDS, "ask", "-", stdin="count the words in a b c")
    assert "3 words" in done.out


def test_json_has_each_event_in_one_line():
    done = run("ask", "--json", "what can you do")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["type"] for event in events[:3]] == ["opened", "user", "turn_started"]
    assert events[-1] == {"type": "turn_ended", "turn": 1, "stop": "end", "error": None}
    assert "".join(event["text"] for event in events if event["type"] == "text") == next(
        event["text"] for event in events if event["type"] == "assistant"
    )


def test_the_exit_code_says_whether_the_turn_ended_well():
    with model_server(CUT) as server:
        done = run("ask", "--model", server.model, "hello")
    assert done.code == 1
    assert "half of an ans" in done.out
    assert "hint: " in done.err
    fails(2, "ask", "--model", "nonsense", "hello")
    fails(2, "ask", "")
    fails(4, "ask", "--resume", "nothing-like-this", "hello")


def test_hints_name_the_option_and_not_the_command_of_the_chat():
    done = fails(1, "ask", "hello", "--model", "openai:gpt-5", env={**os.environ, "OPENAI_API_KEY": ""})
    assert "openai needs a key" in done.err
    assert "`--model demo`" in done.err
    assert "/model" not in done.err


def test_a_server_is_named_by_its_address():
    with model_server(say("I am here")) as server:
        done = run("ask", "--model", "scripted", "--base-url", f"{server.url}/v1", "hello")
    assert done.out == "I am here\n"


def test_an_escape_sequence_that_is_split_does_not_print_the_answer_twice():
    with model_server(say("one \x1b", "[2", "J two \u200d", "😀 1", "\ufe0f\u20e3")) as server:
        assert run("ask", "--model", server.model, "hello").out == "one  two 😀 1\ufe0f\u20e3\n"


def test_a_conversation_goes_on():
    with model_server(say("Hello Ada"), say("Ada")) as server:
        run("ask", "--model", server.model, "I am Ada")
        done = run("ask", "--resume", "last", "who am I?")
    assert done.out == "Ada\n"
    assert "I am Ada" in json.dumps(server.asked[1])


def test_without_a_person_the_chats_own_tools_need_yes():
    assert "needs confirmation" in run("ask", "call bash command=pwd").out
    assert os.getcwd() in run("ask", "--yes", "call bash command=pwd").out


HOSTILE = """
hello("commands")
command("evil")
emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="display", display="seen\\x1b]52;c;cHduZWQ=\\x07\\u202e end")
"""


def test_what_an_extensions_command_shows_commands_no_terminal(tmp_path):
    extension = zot_folders.extension(tmp_path, "evil", HOSTILE)
    with Terminal("--plugin", extension, "ask", "/evil") as terminal:
        terminal.sees(" end")
    assert "\x1b]52" not in terminal.raw
    assert "\u202e" not in terminal.raw
    assert run("--plugin", extension, "ask", "/evil").out == "seen\x1b]52;c;cHduZWQ=\x07\u202e end\n"
    done = ok("--plugin", extension, "ask", "--json", "/evil")
    assert "\u202e" not in done.out
    assert json.loads(done.out.splitlines()[-1])["outcome"]["display"].endswith("\u202e end")


def test_a_command_of_an_extension_does_not_wait_for_the_agent_library(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Forever:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pydantic_ai.messages':\n"
        "            time.sleep(1e6)\n"
        "sys.meta_path.insert(0, Forever())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    extension = zot_folders.extension(tmp_path, "evil", HOSTILE)
    assert " end" in ok("--plugin", extension, "ask", "/evil").out


def test_an_answer_that_cannot_be_written_is_a_failure_and_says_why():
    words = ("--plugin", WORDS, "ask", "count the words in a b")
    with open("/dev/full", "w") as full, Terminal(*words, stdout=full.fileno()) as terminal:
        terminal.sees("the answer cannot be written: No space left on device")
    assert terminal.code == 1
    assert "Traceback" not in terminal.raw


def test_a_person_at_a_terminal_is_asked():
    with Terminal("ask", "call bash command=pwd") as terminal:
        terminal.sees("workspace-tools wants to run bash")
        terminal.types("y")
        terminal.sees(os.getcwd())
    assert terminal.code == 0


def test_ctrl_c_cancels():
    with model_server(SILENT) as server:
        process = start("ask", "--model", server.model, "hello")
        until(server.waiting.is_set)
        process.send_signal(signal.SIGINT)
        assert finish(process).code == 130


def test_without_the_library_it_says_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'pydantic_ai' else find(name, *more)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "pip install 'anyplug[chat]'" in fails(1, "ask", "hello").err


def test_a_key_is_stored_for_models_and_never_shown():
    done = run("secret", "chat", "ANTHROPIC_API_KEY", stdin="sk-very-secret")
    assert "sk-very-secret" not in done.out + done.err
    assert "ANTHROPIC_API_KEY" in done.out
