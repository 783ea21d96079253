"""Every bad habit that an extension can have: a clear answer, no process left, and others go on."""

import os

import anyio
import pytest

import bad_habits
import processes
from anyplug.model.types import Note
from anyplug.peers.notices import SnapshotChanged
from conditions import until
from conftest import HABITS

pytestmark = pytest.mark.anyio

FOLDER = os.path.join(HABITS, "zot")
NEVER_UP = "not_found"
SLOW_TO_STOP = {"ignores-sigterm", "never-reads"}  # seen together with all others, where their seconds count once
SETTINGS = {
    "silent-at-start": "hello_s = 0.3",
    "never-answers": "timeout_s = 0.3",
    "answers-late": "timeout_s = 0.3",
    "never-reads": "timeout_s = 0.5",
}
MANY_CALLS = {"dies-with-calls": 50}

EXPECTED: dict[str, bad_habits.Expected] = {
    "well-behaved": ("", "^done$", ""),
    "silent-at-start": (NEVER_UP, "", r"sent no hello within 0\.3s; it wrote nothing.*first line on stdout.*hello_s"),
    "garbage-first": ("", "^done$", ""),
    "another-frame-first": (NEVER_UP, "", "the first frame must be a hello with a name, and it was "),
    "hello-twice": ("", "^done$", ""),
    "no-ready": ("", "^done$", ""),
    "registers-after-ready": ("", "^done$", ""),
    "registers-badly": ("", "^done$", "a tool was skipped: '' is not a valid name"),
    "answers-twice": ("", "^first$", ""),
    "answers-late": ("timed_out", r"timeout waiting for answers-late/answers_late after 0\.3s", ""),
    "answers-unknown-id": ("", r"^\d+$", ""),
    "never-answers": ("timed_out", r"timeout waiting for never-answers/never_answers after 0\.3s", ""),
    "answers-nonsense": ("bad_output", "bad tool_result frame: Expected `array`", ""),
    "never-reads": ("timed_out", r"after 0\.5s", ""),
    "long-line": ("", "^done$", ""),
    "floods-frames": ("", "^done$", ""),
    "floods-registrations": ("", "^done$", ""),
    "floods-stderr": ("", "^done$", ""),
    "dies-in-a-frame": ("unavailable", "ended while 'dies_in_a_frame' was running: it was killed by SIGKILL", ""),
    "dies-with-calls": ("unavailable", "it exited with 1: fifty is too much", ""),
    "dies-at-shutdown": ("", "^done$", ""),
    "dies-at-every-start": (NEVER_UP, "", "ended before it sent a hello: it exited with 1: no database"),
    "dies-before-ready": (NEVER_UP, "", "ended before it was ready: it exited with 1: no database"),
    "ignores-sigterm": ("", "^done$", ""),
    "closes-stdout": ("unavailable", "it closed its stdout", ""),
    "child-keeps-pipes": ("", "^done$", ""),
    "setsid-daemon": ("", "^done$", ""),
    "intercepts-nonsense": (NEVER_UP, "", ""),
    "no-x-bit": (NEVER_UP, "", "it has no execute permission.*chmod [+]x"),
    "no-shebang": (NEVER_UP, "", "no shebang line.*begin the file with"),
    "crlf-shebang": (NEVER_UP, "", "CRLF.*Unix line breaks"),
    "missing-interpreter": (NEVER_UP, "", "interpreter /no/such/interpreter does not exist.*install it"),
    "missing-program": (NEVER_UP, "", "there is no program 'no-such-program-anywhere' in the PATH.*install no-such"),
}


@pytest.fixture
def habits(host, settings):
    """Make a host of some habits, each with the settings that keep the test short."""
    return bad_habits.hosts(FOLDER, SETTINGS, host, settings)


async def calls(h, habit):
    return await bad_habits.calls(h, habit.replace("-", "_"), MANY_CALLS.get(habit, 1))


def test_every_habit_has_a_folder_and_an_expectation():
    assert set(os.listdir(FOLDER)) == set(EXPECTED)


@pytest.mark.requirement("ZOT-14")
@pytest.mark.parametrize("habit", [habit for habit in EXPECTED if habit not in {"well-behaved", *SLOW_TO_STOP}])
async def test_a_bad_extension_gets_a_clear_answer_and_others_go_on(habit, habits):
    with anyio.fail_after(30):
        async with habits(habit, "well-behaved") as h:
            tag = h._runner.guard._tag
            if habit == "registers-after-ready":
                assert "registers_after_ready" not in [tool.name for tool in h.tools]
                await bad_habits.appears(h, "registers_after_ready")
            for result in await calls(h, habit):
                bad_habits.check(habit, EXPECTED[habit], result, h)
            assert (await h.call("well_behaved")).text == "done"
            place = h.peers.of(h.snapshot.plugin(habit).plugin)[0]
            if EXPECTED[habit][0] == NEVER_UP and habit != "intercepts-nonsense":
                assert (place.peer, place.health) == (None, "restarting")
    assert processes.tagged(tag) == {}


async def test_all_bad_extensions_at_once_do_not_disturb_each_other(habits):
    some = [habit for habit in EXPECTED if habit != "registers-after-ready"]
    with anyio.fail_after(60):
        async with habits(*some) as h:
            tag = h._runner.guard._tag
            for habit, results in (await bad_habits.together(some, lambda habit: calls(h, habit))).items():
                bad_habits.check(habit, EXPECTED[habit], results[0], h)
    assert processes.tagged(tag) == {}


async def test_bad_registrations_are_said_once_and_the_first_of_a_name_counts(habits):
    async with habits("registers-badly") as h:
        tools = {tool.name: tool for tool in h.tools}
        assert set(tools) == {"registers_badly", "broken_schema", "no_schema"}
        assert tools["registers_badly"].description == "the first"
        assert tools["registers_badly"].input_schema == {"type": "object"}
        assert h.commands == []
        assert sorted(problem.message.removeprefix("registers-badly: ") for problem in h.problems) == [
            "a command was skipped: '' is not a valid name",
            "a command was skipped: 'two words' is not a valid name",
            "a tool was skipped: '' is not a valid name",
            r"a tool was skipped: '\x07bell' is not a valid name",
            'callers cannot rely on the schema of the tool \'broken_schema\': its "type" must be "object", not 7',
            "callers cannot rely on the schema of the tool 'registers_badly': it must be an object, not str",
            "it registered the tool 'registers_badly' twice; the first is used",
        ]
        assert h.peers.up[0].session.counts.malformed == 2  # no name at all, and one that is a number
        assert (await h.call("broken_schema", {"any": 1})).text == "done"


async def test_a_flood_of_frames_is_counted_and_reaches_who_listens(habits):
    heard = []
    async with habits("floods-frames") as h:
        h.listen(heard.append)
        assert (await h.call("floods_frames")).text == "done"
        counts = h.peers.up[0].session.counts
    assert counts.frames["notify"] == 25_000
    assert counts.malformed == 75_000  # an unknown type, half an object and an empty line, each time
    assert sum(isinstance(notice, Note) for notice in heard) == 25_000


async def test_registrations_have_a_bound(habits):
    async with habits("floods-registrations") as h:
        await h.call("floods_registrations")
        await bad_habits.appears(h, "tool998")
        assert len(h.tools) == 1000
        assert [problem.message for problem in h.problems] == [
            "floods-registrations: it registered more than 1000 tools; the others are ignored"
        ]


async def test_what_is_registered_has_a_bound_in_bytes_and_events_one_in_number(zot, host):
    script = """
hello()
emit("subscribe", events=[f"event{n}" for n in range(2_000)], intercept=["tool_call"])
for n in range(20):
    tool(f"tool{n}", description="x" * 2_000_000)
emit("register_tool", name="y" * 2_000_000)
emit("ready")
for frame in heard(): pass
"""
    async with host(zot("vast", script)) as h:
        await until(lambda: h.peers.up and h.peers.up[0].has_said_all and len(h.problems) == 3)
        assert len(h.tools) == 8
        assert len(h.peers.up[0].events) == 1_000
        assert h.peers.up[0].intercepts == {"tool_call"}
        *bounds, skipped = [problem.message for problem in h.problems]
        assert bounds == [
            "vast: it registered more than 1000 events; the others are ignored",
            "vast: it registered more than 16 MiB; the rest is ignored",
        ]
        assert skipped.startswith("vast: a tool was skipped: 'yyy")
        assert len(skipped) < 300


async def test_repeated_registrations_cost_nobody_a_new_snapshot(zot, host):
    script = """
hello()
tool("again")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        for n in range(5):
            tool("again")
            emit("subscribe")
            say(frame, "done") if n == 4 else time.sleep(0.05)
"""
    async with host(zot("parrot", script)) as h:
        swaps = []
        h.listen(lambda notice: swaps.append(notice) if isinstance(notice, SnapshotChanged) else None)
        assert (await h.call("again")).text == "done"
        assert len(swaps) == 1  # that it registers a tool twice


async def test_a_late_answer_does_not_answer_the_next_call(habits):
    async with habits("answers-late") as h:
        assert (await h.call("answers_late", {"after_s": 0.4})).error.code == "timed_out"
        assert (await h.call("answers_late", {"after_s": 0, "n": 2})).text == "{'after_s': 0, 'n': 2}"


async def test_a_child_in_a_session_of_its_own_ends_with_the_host(habits):
    async with habits("setsid-daemon") as h:
        tag = h._runner.guard._tag
        assert processes.until(lambda: any("sleep" in command for command in processes.tagged(tag).values()))
    assert processes.tagged(tag) == {}
