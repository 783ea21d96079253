"""Every bad habit, in every format that can express it: a clear answer, no process left, and others go on."""

import os
import re

import pytest

import processes
from anyplug.model.types import Result
from conftest import HABITS

pytestmark = pytest.mark.anyio

SLOW = {"never-answers", "ignores-sigterm"}
SHORT = "timeout_s = 0.5\n"
ROOMY = "timeout_s = 60\n"

# What an answer looks like: its code (empty: it succeeded), and what stands in its message and in its hint.
CYCLOP = {
    "never-answers": ("timed_out", r"^Plugin timed out after 0\.5s$", "run it by hand"),
    "floods-stdout": ("too_large", r"^Plugin stdout exceeded 1MB limit$", "return less"),
    "floods-stderr": ("", "^done$", ""),
    "half-an-object": ("bad_output", r'^Plugin returned invalid JSON: .*\{"result": "do$', "one JSON object"),
    "two-objects": ("bad_output", r'^Plugin returned invalid JSON: .*"one".*\n.*"two"', "one JSON object"),
    "not-a-number": ("bad_output", r"^Plugin returned invalid JSON: .*NaN", "one JSON object"),
    "an-array": ("bad_output", r"^Plugin returned invalid JSON: it must be one object: \[1, 2\]$", "one JSON object"),
    "invalid-utf8": ("bad_output", "^Plugin returned invalid JSON: .*caf\ufffd", "one JSON object"),
    "byte-order-mark": ("", "^done$", ""),
    "ignores-sigterm": ("timed_out", r"^Plugin timed out after 0\.5s$", "run it by hand"),
    "child-keeps-pipes": ("", "^done$", ""),
    "setsid-daemon": ("", "^done$", ""),
    "exits-before-reading": ("", "^done$", ""),
    "writes-before-reading": ("", r"^read \d+$", ""),
    "dies-by-signal": ("crashed", r"^Plugin process failed \(exit 11\): killed by SIGSEGV; dying", "run it by hand"),
    "no-shebang": ("not_executable", "^Failed to launch plugin process: .*no shebang line", "begin the file with"),
    "crlf-shebang": ("not_executable", "^Failed to launch plugin process: .*CRLF", "Unix line breaks"),
    "missing-interpreter": ("not_executable", "interpreter /no/such/interpreter does not exist", "install it"),
    "missing-env-interpreter": (
        "crashed",
        r"^Plugin process failed \(exit 127\): .*no-such",
        "install no-such-interpreter",
    ),
    "no-x-bit": ("not_executable", "^Plugin entrypoint is not executable: .*no execute permission", "chmod [+]x"),
    "fails-with-output": ("crashed", r"^Plugin process failed \(exit 3\): the disk is full$", "run it by hand"),
    "well-behaved": ("", "^done$", ""),
}
STAVROBOT = {
    "never-answers": ("timed_out", r"^Tool execution timed out after 0\.5s$", "run it by hand"),
    "floods-stdout": ("too_large", r"^Tool output exceeded 16MB limit$", "return less"),
    "floods-stderr": ("", "done", ""),
    "half-an-object": ("", r'^\{"result": "do$', ""),
    "two-objects": ("", r'"one".*\n.*"two"', ""),
    "not-a-number": ("", "NaN", ""),
    "an-array": ("", r"^\[1, 2\]$", ""),
    "invalid-utf8": ("", "caf\ufffd", ""),
    "byte-order-mark": ("", "done", ""),
    "ignores-sigterm": ("timed_out", r"^Tool execution timed out after 0\.5s$", "run it by hand"),
    "child-keeps-pipes": ("", "done", ""),
    "setsid-daemon": ("", "done", ""),
    "exits-before-reading": ("", "done", ""),
    "writes-before-reading": ("", r"read \d+", ""),
    "dies-by-signal": ("crashed", r"^Tool process failed \(exit 11\): killed by SIGSEGV; dying", "run it by hand"),
    "no-shebang": ("", "done", ""),  # its own host hands such a file to the shell
    "crlf-shebang": ("not_executable", "^Failed to spawn script: .*CRLF", "Unix line breaks"),
    "missing-interpreter": ("not_executable", "interpreter /no/such/interpreter does not exist", "install it"),
    "missing-env-interpreter": ("tool_error", "no-such-interpreter", "install no-such-interpreter"),
    "no-x-bit": ("not_executable", "^Failed to spawn script: .*no execute permission", "chmod [+]x"),
    "fails-with-output": ("tool_error", "^the disk is full\n\n?half done$", ""),
    "well-behaved": ("", "done", ""),
}
EXPECTED = {"cyclop": CYCLOP, "stavrobot": STAVROBOT}
EVERY = [(format, habit) for format, habits in EXPECTED.items() for habit in habits]


def folder(format: str, habit: str) -> str:
    return os.path.join(HABITS, format, habit)


def tool(format: str, habit: str) -> str:
    return habit.replace("-", "_") if format == "cyclop" else f"{habit}.act"


def check(result: Result, format: str, habit: str) -> None:
    code, message, hint = EXPECTED[format][habit]
    assert (result.error.code if result.error else "") == code, result
    assert result.is_error == bool(code)
    assert re.search(message, result.error.message if result.error else result.text, re.DOTALL), result
    assert re.search(hint, result.error.hint if result.error else ""), result


def test_every_habit_has_a_folder_and_an_expectation():
    for format, habits in EXPECTED.items():
        assert set(os.listdir(os.path.join(HABITS, format))) == set(habits)


@pytest.mark.combinations
@pytest.mark.requirement("CYC-24", "CYC-28", "CYC-39", "CYC-40", "STV-22", "STV-24", "STV-29")
@pytest.mark.parametrize(("format", "habit"), EVERY)
async def test_a_bad_plugin_gets_a_clear_answer_and_others_go_on(format, habit, host, settings):
    settings(f"[plugins.{habit}]\n{SHORT if habit in SLOW else ROOMY}")
    good = "stavrobot" if format == "cyclop" else "cyclop"
    async with host(folder(format, habit), *([folder(good, "well-behaved")] if habit != "well-behaved" else [])) as h:
        tag = h._runner.guard._tag
        check(await h.call(tool(format, habit)), format, habit)
        if habit != "well-behaved":
            check(await h.call(tool(good, "well-behaved")), good, "well-behaved")
    assert processes.tagged(tag) == {}


@pytest.mark.parametrize("format", EXPECTED)
@pytest.mark.parametrize("habit", ["exits-before-reading", "writes-before-reading", "floods-stderr", "never-answers"])
async def test_a_request_larger_than_a_pipe_changes_nothing(format, habit, host, settings):
    settings(f"[plugins.{habit}]\n{SHORT if habit in SLOW else ROOMY}")
    async with host(folder(format, habit)) as h:
        check(await h.call(tool(format, habit), {"text": "x" * 300_000}), format, habit)


@pytest.mark.parametrize("format", EXPECTED)
async def test_all_bad_plugins_at_once_do_not_disturb_each_other(format, host, settings):
    import anyio  # only here

    settings("".join(f"[plugins.{habit}]\n{SHORT if habit in SLOW else ROOMY}" for habit in EXPECTED[format]))
    results = {}

    async def call(habit):
        results[habit] = await h.call(tool(format, habit))

    async with host(roots=()) as h:
        pass
    async with host(*(folder(format, habit) for habit in EXPECTED[format])) as h:
        tag = h._runner.guard._tag
        async with anyio.create_task_group() as tasks:
            for habit in EXPECTED[format]:
                tasks.start_soon(call, habit)
    for habit, result in results.items():
        check(result, format, habit)
    assert processes.tagged(tag) == {}


@pytest.mark.requirement("CYC-41")
@pytest.mark.parametrize("format", EXPECTED)
async def test_what_it_said_before_a_timeout_is_kept(format, host, settings):
    settings(f"[plugins.ignores-sigterm]\n{SHORT}")
    async with host(folder(format, "ignores-sigterm")) as h:
        result = await h.call(tool(format, "ignores-sigterm"))
    assert [block.text for block in result.content] == [result.error.message, "before\n"]


@pytest.mark.requirement("CYC-25")
async def test_of_much_stderr_the_first_64_kib_are_kept_and_the_call_succeeds(host, home):
    async with host(folder("cyclop", "floods-stderr")) as h:
        assert not (await h.call("floods_stderr")).is_error
    log = (home / "logs" / "floods-stderr.log").read_text()
    assert 60_000 < len(log.replace("\n    ", "\n")) < 70_000


async def test_a_child_that_keeps_the_pipes_is_gone_when_the_call_is_over(host):
    async with host(folder("cyclop", "child-keeps-pipes"), folder("stavrobot", "well-behaved")) as h:
        await h.call("child_keeps_pipes")
        left = processes.tagged(h._runner.guard._tag)
    assert not any("sleep" in command for command in left.values())


async def test_a_daemon_in_a_session_of_its_own_ends_with_the_call(host):
    async with host(folder("cyclop", "setsid-daemon")) as h:
        await h.call("setsid_daemon")
        assert not any("sleep" in command for command in processes.tagged(h._runner.guard._tag).values())


async def test_unconfined_it_ends_with_the_host_at_least(host, unconfined):
    async with host(folder("cyclop", "setsid-daemon")) as h:
        await h.call("setsid_daemon")
        tag = h._runner.guard._tag
        assert processes.until(lambda: any("sleep" in command for command in processes.tagged(tag).values()))
    assert processes.tagged(tag) == {}
