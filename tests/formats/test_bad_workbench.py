"""Every habit that a Workbench plugin can have, good or bad: a clear answer, no process left, and others go on."""

import os

import anyio
import pytest

import bad_habits
import processes
from conftest import HABITS

pytestmark = pytest.mark.anyio

FOLDER = os.path.join(HABITS, "workbench")
NEVER_UP = "not_found"
HELPERS = {"evaluates"}  # used by other tests
SETTINGS = {
    "register-never-ends": "hello_s = 3",  # enough for many to start at once
    "register-loops": "hello_s = 0.5",
    "loops": "timeout_s = 0.3",
    "never-answers": "timeout_s = 0.3",
    "closes-descriptors": "timeout_s = 5",
}
SLOW_TO_STOP = {"never-leaves"}  # seen together with all others, where its seconds count once
MANY_CALLS = {"dies-with-calls": 10}

EXPECTED: dict[str, bad_habits.Expected] = {
    "well-behaved": ("", "^done$", ""),
    "answers-in-sync": ("", "^done$", ""),
    "uses-this": ("", "^done in uses-this$", ""),
    "class-instance": ("", "^done$", ""),
    "frozen-tool": ("", "^done$", ""),
    "tool-is-a-function": ("", "^done$", ""),
    "odd-names": ("", "^done$", "a tool without a name was skipped"),
    "odd-schemas": ("", r"^\{\}$", "the inputSchema of 'odd-schemas.cycle' is no JSON Schema"),
    "same-name-twice": ("", "^done$", "it registered the tool 'same-name-twice.act' twice; the last one counts"),
    "reserved-names": (
        "",
        "^done$",
        "the tool 'builtin.shell' is left out: the name belongs to a reserved prefix, 'builtin.'",
    ),
    "takes-a-name": ("", "^done$", "'well-behaved.act' from .*belongs to plugin 'well-behaved'"),
    "throws-halfway": ("", "^done$", "register failed: no key in the drawer"),
    "rejects-halfway": ("", "^done$", "register failed: no key at all"),
    "registers-slowly": ("", "^done$", ""),
    "registers-later": ("", "^done$", ""),
    "register-never-ends": ("", "^done$", "register has not finished yet"),
    "register-loops": (NEVER_UP, "", r"it blocks while it loads: there was no answer within 0\.5s .*endless loop"),
    "registers-nothing": (NEVER_UP, "", "it registered no tools"),
    "registers-too-much": ("", "^done$", "it registered more than 1000 tools"),
    "reloads-in-register": ("", "^done$", ""),
    "exports-a-function": (NEVER_UP, "", "index.js exports no register function .*module.exports.register ="),
    "exports-a-default": (NEVER_UP, "", "index.js exports no register function"),
    "exports-nothing": (NEVER_UP, "", "index.js exports no register function"),
    "exports-null": (NEVER_UP, "", "index.js exports no register function"),
    "syntax-error": (NEVER_UP, "", r"cannot be loaded: Unexpected token '<' \(index.js:2\) \(fix index.js\)"),
    "exports-in-commonjs": (NEVER_UP, "", r"\(fix index.js: CommonJS has module.exports.register ="),
    "throws-while-loading": (NEVER_UP, "", r"cannot be loaded: not today"),
    "throws-null-while-loading": (NEVER_UP, "", r"cannot be loaded: null"),
    "exits-while-loading": (NEVER_UP, "", "ended while it was loaded: it exited with 3: no licence"),
    "missing-dependency": (
        NEVER_UP,
        "",
        r"Cannot find module 'no-such-package-anywhere' \(run `npm install no-such-package",
    ),
    "missing-import": (
        NEVER_UP,
        "",
        r"Cannot find package 'no-such-package-anywhere'.* \(run `npm install no-such-package",
    ),
    "requires-the-empty-string": (NEVER_UP, "", "cannot be loaded: The argument 'id' must be a non-empty string"),
    "es-module": ("", "^done$", ""),
    "bare-export": ("", "^done$", ""),
    "waits-at-the-top": ("", "^done$", ""),
    "no-package": ("", "^done$", "there is no package.json; index.js is taken as CommonJS"),
    "imports-submodules": ("", "^done$", ""),
    "invalid-package": (NEVER_UP, "", r"package.json.*cannot be loaded: .*package.json.*\(fix package.json\)"),
    "byte-order-mark": ("", "^done$", ""),
    "uses-the-clipboard": ("", "^done$", ""),
    "imports-the-clipboard": ("", "^done$", ""),
    "prints": ("", "^done$", ""),
    "closes-descriptors": ("unavailable", "", ""),
    "replaces-globals": ("", "^done$", ""),
    "throws-in-timers": ("", "^done$", ""),
    "exits": ("unavailable", "ended while 'exits.act' was running: it exited with 7", ""),
    "aborts": ("unavailable", "it was killed by SIGABRT", ""),
    "dies-with-calls": ("unavailable", "ended while 'dies-with-calls.act' was running: it was killed by SIGKILL", ""),
    "loops": ("timed_out", r"timeout \(0\.3s limit\); the call blocked the plugin's event loop, so its process", ""),
    "never-answers": ("timed_out", r"^Tool execution timeout \(0\.3s limit\)$", ""),
    "never-leaves": ("", "^done$", ""),
    "leaves-children": ("", "^done$", ""),
    "forges-frames": ("", "^done$", "forged"),
}


@pytest.fixture(autouse=True)
def _no_display(monkeypatch):
    """Keep away from the clipboard of whoever runs the tests."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def habits(host, settings):
    """Make a host of some habits, each with the settings that keep the test short."""
    return bad_habits.hosts(FOLDER, SETTINGS, host, settings)


async def calls(h, habit):
    return await bad_habits.calls(h, f"{habit}.act", MANY_CALLS.get(habit, 1))


def test_every_habit_has_a_folder_and_an_expectation():
    assert set(os.listdir(FOLDER)) == {*EXPECTED, *HELPERS}


@pytest.mark.requirement("WB-14", "WB-20", "WB-24", "WB-25")
@pytest.mark.parametrize("habit", [habit for habit in EXPECTED if habit not in {"well-behaved", *SLOW_TO_STOP}])
async def test_a_plugin_with_a_habit_gets_a_clear_answer_and_others_go_on(habit, habits, node):
    with anyio.fail_after(30):
        async with habits("well-behaved", habit) as h:
            tag = h._runner.guard._tag
            if habit == "registers-later":
                await bad_habits.appears(h, "registers-later.act")
            for result in await calls(h, habit):
                bad_habits.check(habit, EXPECTED[habit], result, h)
            assert (await h.call("well-behaved.act")).text == "done"
            problems = [problem for problem in h.snapshot.plugin(habit).problems if problem.level == "error"]
            assert problems == []
    assert processes.tagged(tag) == {}


async def test_all_habits_at_once_do_not_disturb_each_other(habits):
    some = [habit for habit in EXPECTED if habit != "registers-later"]
    with anyio.fail_after(90):
        async with habits(*some) as h:
            tag = h._runner.guard._tag
            for habit, results in (await bad_habits.together(some, lambda habit: calls(h, habit))).items():
                for result in results:
                    bad_habits.check(habit, EXPECTED[habit], result, h)
    assert processes.tagged(tag) == {}
