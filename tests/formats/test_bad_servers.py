"""Every bad habit that an MCP server can have: a clear answer, no process left, and others go on."""

import json
import os
import shutil
import time

import anyio
import pytest

import bad_habits
import processes
from anyplug.formats.mcp import client
from conditions import until
from conftest import HABITS

pytestmark = pytest.mark.anyio

FOLDER = os.path.join(HABITS, "mcp")
NEVER_UP = "not_found"
SLOW_TO_STOP = {"ignores-everything"}  # seen together with all others, where its seconds count once
SETTINGS = {
    "silent": "hello_s = 2",
    "list-hangs": "hello_s = 2",
    "never-answers": "timeout_s = 0.5",
    "wrong-ids": "timeout_s = 0.5",
    "huge-result": "max_output_bytes = 100_000",
}

EXPECTED: dict[str, bad_habits.Expected] = {
    "well-behaved": ("", "^done$", ""),
    "silent": (NEVER_UP, "", r"was not ready within 2s: waiting for the moon .*hello_s"),
    "refuses": (NEVER_UP, "", "ended before it was ready: it refused: the licence has run out"),
    "greets-wrongly": (NEVER_UP, "", "its handshake is invalid"),
    "dies-at-start": (NEVER_UP, "", "ended before it was ready: it exited with 1: no database"),
    "dies-mid-call": ("unavailable", "while 'dies-mid-call.act' was running: it exited with 3: out of paper", ""),
    "garbage": ("", "^done$", ""),
    "wrong-ids": ("timed_out", r"timeout waiting for wrong-ids/wrong-ids.act after 0\.5s", ""),
    "answers-twice": ("", "^first$", ""),
    "never-answers": ("timed_out", r"after 0\.5s", ""),
    "malformed-result": ("bad_output", "answered 'act' with an invalid result: content: ", ""),
    "unreadable-result": ("bad_output", "Failed to parse the answer: malformed JSON", ""),
    "unreadable-result-id-last": ("bad_output", "Failed to parse the answer: malformed JSON", ""),
    "result-is-text": ("bad_output", "Failed to parse the answer: it is not JSON-RPC 2.0", ""),
    "unknown-block": ("bad_output", "answered 'act' with an invalid result", ""),
    "rpc-error": ("tool_error", "^the well is dry$", ""),
    "is-error": ("tool_error", "^no such city$", ""),
    "floods-notifications": ("", "^done$", ""),
    "floods-list-changed": ("", "^done$", ""),
    "floods-large-lists": ("", "^done$", ""),
    "huge-result": ("", "^x$", ""),
    "list-fails": (NEVER_UP, "", "server 'list-fails': it does not list its tools: the index is lost"),
    "list-hangs": (NEVER_UP, "", r"was not ready within 2s"),
    "list-circles": ("", "^done$", "its list of tools is circular"),
    "list-never-ends": ("", "^done$", "its list of tools has more than 100 pages"),
    "list-is-huge": ("", "^done$", "have more than 16 MiB"),
    "list-is-none": (NEVER_UP, "", "its answer to tools/list has no list of tools"),
    "odd-tools": ("", "^done$", "a tool without a valid name was skipped"),
    "two-pages": ("", "^act$", ""),
    "changes-tools": ("", "^done$", ""),
    "asks-back": ("", "roots", ""),
    "all-blocks": ("", "^words$", ""),
    "modern": ("", "^done$", ""),
    "wants-input": ("", "s1", ""),
    "ignores-everything": ("", "^done$", ""),
    "leaves-children": ("", "^done$", ""),
    "logs": ("", "^done$", ""),
    "missing-program": (NEVER_UP, "", "there is no program 'no-such-program-anywhere' in the PATH.*install no-such"),
    "missing-folder": (NEVER_UP, "", "the folder .*/nowhere does not exist.*cwd"),
    "no-x-bit": (NEVER_UP, "", "it has no execute permission.*chmod [+]x"),
    "unreachable": (NEVER_UP, "", "the connection to MCP server 'unreachable' ended before .*check that it is running"),
}  # fmt: skip


@pytest.fixture
def habits(host, settings, tmp_path):
    """Make a host of some habits, each with the settings that keep the test short."""
    shutil.copytree(FOLDER, tmp_path / "mcp")
    for folder in filter(os.path.isdir, (tmp_path / "mcp").iterdir()):  # a server sees only its own folder
        shutil.copy(os.path.join(FOLDER, "rpc.py"), folder)
    return bad_habits.hosts(str(tmp_path / "mcp"), SETTINGS, host, settings)


@pytest.fixture
def heard(tmp_path):
    """Read what a server was told, of one method."""

    def read(habit, method):
        text = processes.read(str(tmp_path / "mcp" / habit / "heard.jsonl")).decode()
        return [message for line in text.splitlines() if (message := json.loads(line)).get("method") == method]

    return read


def act(habit):
    return f"mcp.{habit}.act"


def names(h):
    return sorted(tool.name for tool in h.tools)


def test_every_habit_has_a_folder_and_an_expectation():
    assert {entry.name for entry in os.scandir(FOLDER) if entry.is_dir() and entry.name != "__pycache__"} == set(
        EXPECTED
    )


async def test_an_answer_that_is_no_json_fails_its_call_at_once(habits):
    async with habits("unreadable-result") as h:
        for what in ("deep", "nan", "large", "control", "cut"):
            result = await h.call(act("unreadable-result"), {"what": what})
            assert (what, result.error.code) == (what, "bad_output")


@pytest.mark.combinations  # all of them are together in the next test
@pytest.mark.parametrize("habit", [habit for habit in EXPECTED if habit not in {"well-behaved", *SLOW_TO_STOP}])
async def test_a_bad_server_gets_a_clear_answer_and_others_go_on(habit, habits):
    with anyio.fail_after(30):
        async with habits(habit, "well-behaved") as h:
            tag = h._runner.guard._tag
            bad_habits.check(habit, EXPECTED[habit], await h.call(act(habit)), h)
            assert (await h.call(act("well-behaved"))).text == "done"
    assert processes.tagged(tag) == {}


async def test_all_bad_servers_at_once_do_not_disturb_each_other(habits):
    with anyio.fail_after(90):
        async with habits(*EXPECTED) as h:
            tag = h._runner.guard._tag
            for habit, result in (await bad_habits.together(EXPECTED, lambda habit: h.call(act(habit)))).items():
                bad_habits.check(habit, EXPECTED[habit], result, h)
    assert processes.tagged(tag) == {}


async def test_all_calls_fail_at_once_when_the_server_dies_and_the_next_is_answered_by_a_new_one(habits):
    async with habits("dies-mid-call") as h:
        results = []

        async def call():
            results.append(await h.call(act("dies-mid-call")))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
        assert {result.error.code for result in results} == {"unavailable"}
        assert {result.metadata["exit_code"] for result in results} == {3}
        await until(lambda: h.peers.up)
        assert h.peers.places[0].restarts == 1


async def test_tools_that_cannot_be_used_are_said_once_and_the_first_of_a_name_counts(habits):
    async with habits("odd-tools") as h:
        assert [(tool.name, tool.title, tool.description) for tool in h.tools] == [
            ("mcp.odd-tools.act", "Act now", "Act now")
        ]
        assert h.tools[0].input_schema == {"properties": {"x": {}}}
        assert [problem.message for problem in h.problems] == [
            "odd-tools: server 'odd-tools': a tool without a valid name was skipped",
            "odd-tools: server 'odd-tools': the tool 'no-schema' was skipped: its inputSchema is not an object",
            "odd-tools: server 'odd-tools': the tool 'list-schema' was skipped: its inputSchema is not an object",
            "odd-tools: server 'odd-tools': it lists the tool 'act' twice; the first is used",
        ]


async def test_an_answer_that_is_too_long_fails_its_call_at_once_and_the_next_works(habits):
    async with habits("huge-result") as h:
        began = time.monotonic()
        result = await h.call(act("huge-result"), {"size": 300_000})
        assert time.monotonic() - began < 10
        assert result.error.code == "too_large"
        assert "max_output_bytes" in result.error.hint
        assert len((await h.call(act("huge-result"), {"size": 90_000})).text) == 90_000
        assert h.peers.up[0].session.counts.too_long == 1


async def test_results_of_megabytes_arrive_whole(host, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "copy")
    async with host(str(tmp_path / "copy" / "huge-result")) as h:
        assert len((await h.call(act("huge-result"), {"size": 10_000_000})).text) == 10_000_000


async def test_a_flood_is_bounded_in_the_log_and_counted(habits, home):
    async with habits("floods-notifications") as h:
        assert (await h.call(act("floods-notifications"))).text == "done"
        counts = h.peers.up[0].session.counts
        assert counts.frames["notification"] == 15_000
    log = (home / "logs" / "floods-notifications.log").read_text()
    assert 200 <= log.count("info: step") < 2_000
    assert "it logs too much, and the rest is dropped" in log


async def test_a_list_that_changes_all_the_time_is_not_asked_for_all_the_time(habits, heard):
    async with habits("floods-list-changed") as h:
        assert (await h.call(act("floods-list-changed"))).text == "done"
        await anyio.sleep(0.5)
    assert 2 <= len(heard("floods-list-changed", "tools/list")) < 20


async def test_a_list_that_takes_long_to_read_is_asked_for_less_often(habits, heard, monkeypatch):
    monkeypatch.setattr(client, "CALM_TIMES", 1e9)  # whatever it took, the longest pause follows
    async with habits("floods-large-lists") as h:
        for _ in range(5):
            assert (await h.call(act("floods-large-lists"))).text == "done"
            await until(lambda: len(heard("floods-large-lists", "tools/list")) >= 2)
    assert len(heard("floods-large-lists", "tools/list")) == 2  # when it started, and after the first change


async def test_a_call_that_is_given_up_is_taken_back(habits, heard):
    async with habits("never-answers") as h:
        assert (await h.call(act("never-answers"))).error.code == "timed_out"
        await until(lambda: len(heard("never-answers", "notifications/cancelled")) == 1)
        with anyio.move_on_after(0.1):
            await h.call(act("never-answers"))
        await until(lambda: len(heard("never-answers", "notifications/cancelled")) == 2)
        calls = [message["id"] for message in heard("never-answers", "tools/call")]
        taken_back = [message["params"]["requestId"] for message in heard("never-answers", "notifications/cancelled")]
        assert taken_back == calls


async def test_wrong_arguments_are_told_apart_from_failures(habits):
    async with habits("rpc-error", "is-error") as h:
        wrong = await h.call(act("rpc-error"), {"wrong": True})
        assert (wrong.error.code, wrong.error.message) == ("invalid_arguments", "there is no such colour")
        dry = await h.call(act("rpc-error"))
        assert (dry.error.code, dry.metadata["rpc_code"]) == ("tool_error", -32603)
        mute = await h.call(act("is-error"), {"mute": True})
        assert (mute.is_error, mute.error.message) == (True, "the tool reported an error without a message")


async def test_a_server_that_asks_back_gets_the_project_and_is_refused_everything_else(habits):
    async with habits("asks-back") as h:
        heard = json.loads((await h.call(act("asks-back"))).text)
        assert heard == {
            "sampling/createMessage": "plugin 'asks-back' asks for a model, but there is none here",
            "elicitation/create": {"action": "cancel"},
            "roots/list": {"roots": [{"uri": f"file://{os.getcwd()}", "name": os.path.basename(os.getcwd())}]},
            "ping": {},
            "no/such/method": "Method not found",
        }


async def test_questions_of_the_new_era_are_answered_or_refused_likewise(habits):
    async with habits("wants-input") as h:
        state, given = json.loads((await h.call(act("wants-input"))).text)
        assert state == "s1"
        assert given["q"]["roots"][0]["uri"] == f"file://{os.getcwd()}"
        _, given = json.loads((await h.call(act("wants-input"), {"person": True})).text)
        assert given == {"q": {"action": "cancel"}}  # nobody is there
        assert (await h.call(act("wants-input"), {"forever": True})).error.code == "bad_output"


@pytest.mark.parametrize("habit", ["changes-tools", "modern"])
async def test_changes_of_the_list_are_followed_in_both_eras(habit, habits):
    async with habits(habit) as h:
        assert names(h) == [act(habit)]
        await h.call(act(habit))
        await until(lambda: len(names(h)) == 2)
        await h.call(act(habit))
        await until(lambda: len(names(h)) == 3)


async def test_what_a_server_logs_goes_into_its_plugins_log(habits, home):
    async with habits("logs") as h:
        await h.call(act("logs"))
    log = (home / "logs" / "logs.log").read_text()
    assert "[logs] warning db: the disk is nearly full" in log
    assert "on stderr" in log


async def test_half_a_message_is_no_answer_and_fails_at_once(habits):
    async with habits("result-is-text") as h:
        assert (await h.call(act("result-is-text"), {"half": True})).error.code == "bad_output"
        assert h.peers.up[0].session.counts.malformed == 1


async def test_leaving_while_one_is_starting_leaves_nothing(habits):
    async with habits("well-behaved"):
        pass
    files = len(os.listdir("/proc/self/fd"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def enter():
                async with habits("silent", "well-behaved", "unreachable"):
                    pass

            tasks.start_soon(enter)
            await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
    assert len(os.listdir("/proc/self/fd")) <= files


async def test_a_child_in_a_session_of_its_own_ends_with_the_host(habits):
    async with habits("leaves-children") as h:
        tag = h._runner.guard._tag
        assert processes.until(lambda: any("sleep 613" in command for command in processes.tagged(tag).values()))
    assert processes.tagged(tag) == {}
