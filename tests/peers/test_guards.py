"""Interception: guards block, rewrite and note calls of every format; silence and absence mean what the person set."""

import contextlib
import functools
import json
import os
import signal

import anyio
import pytest

import plugin_folders
import shortages
import zot_folders
from anyplug.audit.audit_log import digest_of
from anyplug.call.consent import Attachment
from anyplug.catalog.catalog import Catalog
from anyplug.formats.shared.contract import Greeting
from anyplug.model.errors import StoreError
from anyplug.peers import supervisor
from conditions import until
from conftest import HABITS
from zot_folders import heard

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "additionalProperties": False}


def guarding(answer, *, events=("tool_call",), before=""):
    """A guard that gives each question the answer of an expression over `frame` and `args`."""
    return (
        f"{before}\nhello()\nemit('subscribe', intercept={list(events)!r})\nemit('ready')\nfor frame in heard():\n"
        "    if frame['type'] == 'event_intercept':\n"
        "        args = frame.get('tool_args')\n"
        f"        emit('event_intercept_response', **({{'id': frame['id']}} | ({answer})))\n"
    )


def record(h):
    return list(h._audit.calls())[-1].record


async def approve(h, *names):
    for entry in h.plugins:
        if entry.name in names and entry.state == "new":
            await h.approve(entry.plugin)


@pytest.fixture
def target(zot):
    """Write an extension whose tool `run` gives back its arguments."""
    return zot("target", zot_folders.ECHO.replace('tool(NAME.replace("-", "_"))', f"tool('run', schema={SCHEMA!r})"))


# Decisions


@pytest.mark.requirement("ZOT-27", "ZOT-58")
async def test_a_block_refuses_the_call_with_the_reason_and_the_tool_hears_nothing(zot, host, target):
    guard = zot("guard", guarding("{'block': True, 'reason': 'too dangerous', 'modified_args': {'command': 'x'}}"))
    async with host(guard, target) as h:
        result = await h.call("run", {"command": "rm -rf /"})
        kept = record(h)
    assert (result.error.code, result.error.message, result.text) == ("denied", "too dangerous", "too dangerous")
    assert (kept.verdict, kept.by, kept.reason, kept.outcome) == ("denied", "guard:guard", "too dangerous", "denied")
    assert heard(target, "tool_call") == []


async def test_a_block_without_a_reason_has_one_all_the_same(zot, host, target):
    async with host(zot("guard", guarding("{'block': True}")), target) as h:
        assert (await h.call("run")).text == "refused by extension guard"


async def test_what_is_too_large_for_a_guard_to_be_asked_is_refused(zot, host, cyclop):
    guard = zot("guard", guarding("{}"))
    async with host(guard, cyclop()) as h:
        result = await h.call("hello", {"name": "x" * (17 << 20)})
        assert (result.error.code, record(h).by) == ("denied", "guard:guard")
        assert result.error.message.startswith("the guard 'guard' cannot be asked: a frame of 17,8")
        assert result.error.hint == "decided by guard:guard"  # no settings have a say in it
        assert not (await h.call("hello")).is_error
    assert len(heard(guard, "event_intercept")) == 1


@pytest.mark.requirement("ZOT-31", "ZOT-46")
async def test_a_guard_sees_the_call_as_the_guide_says(zot, host, target):
    guard = zot("guard", guarding("{}"))
    async with host(guard, target) as h:
        await h.call("run", {"command": "ls"})
        kept = record(h)
    (frame,) = heard(guard, "event_intercept")
    assert frame == {
        "type": "event_intercept",
        "id": frame["id"],
        "event": "tool_call",
        "tool_id": kept.call,
        "tool_name": "run",
        "tool_args": {"command": "ls"},
    }
    assert (kept.verdict, kept.notes) == ("allowed", ())


@pytest.mark.requirement("ZOT-28")
async def test_a_rewrite_is_what_the_tool_gets_and_the_record_says_who_did_it(zot, host, target):
    guard = zot("guard", guarding("{'modified_args': {'command': 'echo ' + args['command']}, 'reason': 'safer'}"))
    async with host(guard, target) as h:
        result = await h.call("run", {"command": "ls"})
        kept = record(h)
    assert result.text == '{"command": "echo ls"}'
    assert (kept.notes, kept.notes_by) == (("guard rewrote it: safer",), ("guard:guard",))
    assert (kept.arguments, kept.verdict) == (digest_of({"command": "echo ls"}), "allowed")


@pytest.mark.requirement("ZOT-35")
async def test_rewrites_chain_in_load_order_and_a_later_guard_sees_the_earlier_one(zot, host, target):
    chain = [
        zot(name, guarding(f"{{'modified_args': {{'command': args['command'] + '{name}'}}}}"))
        for name in ("b", "a", "c")
    ]
    async with host(*chain, target) as h:
        assert (await h.call("run", {"command": "="})).text == '{"command": "=bac"}'
        assert record(h).notes == ("b rewrote it", "a rewrote it", "c rewrote it")
        assert record(h).notes_by == ("guard:b", "guard:a", "guard:c")
    assert heard(chain[2], "event_intercept")[0]["tool_args"] == {"command": "=ba"}


@pytest.mark.requirement("ZOT-34")
async def test_the_first_block_wins_and_the_next_guard_is_not_asked(zot, host, target):
    first = zot("first", guarding("{'modified_args': {'command': 'x'}, 'reason': 'just so'}"))
    second = zot("second", guarding("{'block': True, 'reason': 'second says no'}"))
    third = zot("third", guarding("{'block': True, 'reason': 'third says no'}"))
    async with host(first, second, third, target) as h:
        assert (await h.call("run", {"command": "ls"})).text == "second says no"
        kept = record(h)
    assert (kept.by, kept.notes) == ("guard:second", ("first rewrote it: just so",))
    assert heard(third, "event_intercept") == []


@pytest.mark.requirement("ZOT-31")
async def test_a_reason_without_a_block_is_a_note(zot, host, target):
    async with host(zot("guard", guarding("{'reason': 'looks fine'}")), target) as h:
        assert not (await h.call("run")).is_error
        assert record(h).notes == ("guard noted: looks fine",)


async def test_a_rewrite_to_the_same_is_none(zot, host, target):
    async with host(zot("guard", guarding("{'modified_args': args}")), target) as h:
        await h.call("run", {"command": "ls"})
        assert record(h).notes == ()


# Answers that are none


NO_ANSWERS = (
    ("{'modified_args': [1]}", "modified_args is not an object"),
    ("{'modified_args': 'x'}", "modified_args is not an object"),
    ("{'modified_args': {'command': 7}}", "modified_args violate the tool's schema: command: 7 is not of type"),
    ("{'modified_args': {'other': 1}}", "modified_args violate the tool's schema"),
    ("{'block': 'yes'}", "bad event_intercept_response frame: Expected `bool`"),
    ("{'block': True, 'reason': 5}", "bad event_intercept_response frame: Expected `str`"),
)


@pytest.mark.requirement("ZOT-32")
@pytest.mark.parametrize("on_silence", ["open", "closed"])
async def test_an_answer_that_is_none_passes_or_refuses_as_the_person_set_it(on_silence, zot, host, target, settings):
    settings(f'[plugins.guard]\non_silence = "{on_silence}"\n' if on_silence == "closed" else "")
    answers = f"[{', '.join(answer for answer, _ in NO_ANSWERS)}][int(args['command'])]"
    async with host(zot("guard", guarding(answers)), target) as h:
        for number, (answer, why) in enumerate(NO_ANSWERS):
            with anyio.fail_after(4.0):  # nobody waits for an answer that has come
                result = await h.call("run", {"command": str(number)})
            kept = record(h)
            if on_silence == "open":
                assert json.loads(result.text) == {"command": str(number)}, answer
                assert kept.notes[0].startswith(f"the guard 'guard' gave no usable answer: {why}"), answer
            else:
                assert result.error.code == "denied", answer
                assert result.text.startswith(f"the guard 'guard' gave no usable answer: {why}"), answer
                assert kept.by == "guard:guard", answer


@pytest.mark.requirement("ZOT-33")
@pytest.mark.parametrize("on_silence", ["open", "closed"])
async def test_a_silent_guard_is_waited_for_five_seconds(on_silence, zot, host, target, settings, monkeypatch):
    from anyplug.formats.zot import peer as extension  # only here

    if on_silence == "closed":
        monkeypatch.setattr(extension, "INTERCEPT_S", 0.3)  # the real one is waited for once
    settings(f'[plugins.guard]\non_silence = "{on_silence}"\n')
    silent = "hello()\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\nfor frame in heard(): pass\n"
    guard = zot("guard", silent)
    async with host(guard, target) as h:
        result = await h.call("run", {"command": "ls"})
        kept = record(h)
    if on_silence == "open":
        assert (result.is_error, kept.duration_ms >= 4900) == (False, True)
        assert kept.notes == ("the guard 'guard' gave no usable answer: it did not answer in time; it was skipped",)
        assert kept.notes_by == ("guard:guard",)
    else:
        assert result.text == "the guard 'guard' gave no usable answer: it did not answer in time"


@pytest.mark.parametrize("setting", ["", 'on_silence = "closed"', 'guard = "required"'])
async def test_a_guard_that_dies_while_it_is_asked(setting, zot, host, target, settings):
    settings(f"[plugins.guard]\n{setting}\n")
    guard = zot("guard", guarding("os._exit(9)"))
    async with host(guard, target) as h:
        with anyio.fail_after(4.0):
            result = await h.call("run", {"command": "ls"})
        kept = record(h)
    if not setting:
        assert result.text == '{"command": "ls"}'
        assert kept.notes == ("the guard 'guard' gave no usable answer: it exited with 9; it was skipped",)
    else:
        assert (result.error.code, "it exited with 9" in result.text) == ("denied", True)


async def test_answers_twice_late_or_to_nothing_decide_nothing(zot, host, target):
    script = guarding("{}").replace(
        "        args =",
        "        emit('event_intercept_response', id='unknown', block=True)\n"
        "        emit('tool_result', id=frame['id'], content=[])\n        args =",
    ) + "        emit('event_intercept_response', id=frame['id'], block=True)\n"  # fmt: skip
    async with host(zot("guard", script), target) as h:
        for _ in range(3):
            assert not (await h.call("run", {"command": "ls"})).is_error


async def test_the_habit_of_answering_with_wrong_types_is_passed_over(host, target):
    async with host(os.path.join(HABITS, "zot", "intercepts-nonsense"), target) as h:
        assert (await h.call("run", {"command": "ls"})).text == '{"command": "ls"}'
        assert "Expected `bool`, got `str`" in record(h).notes[0]


# Required guards

REQUIRED = '[plugins.guard]\nguard = "required"\n'


async def test_while_a_required_guard_is_down_what_it_guards_is_refused(zot, host, target, settings, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.5, 60.0))
    settings(REQUIRED)
    guard = zot("guard", guarding("{}"))
    async with host(guard, target) as h:
        assert not (await h.call("run")).is_error
        os.killpg(h.peers.up[0].session.pid, signal.SIGKILL)
        await until(lambda: len(h.peers.up) == 1)
        result = await h.call("run")
        assert (result.error.code, "the required guard 'guard' is not running" in result.text) == ("denied", True)
        assert "SIGKILL" in result.text
        assert record(h).by == "guard:guard"
        await until(lambda: len(h.peers.up) == 2)
        assert not (await h.call("run")).is_error


async def test_a_required_guard_that_comes_back_only_half_way_still_guards(zot, host, target, settings, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.01, 0.01))
    settings(REQUIRED)
    half = "if os.path.exists('half'):\n    hello()\n    sys.exit('no subscription')\nopen('half', 'w')\n"
    async with host(zot("guard", guarding("{}", before=half)), target) as h:
        assert not (await h.call("run")).is_error
        os.killpg(h.peers.up[0].session.pid, signal.SIGKILL)
        await until(lambda: h.peers.places[0].health == "given_up")
        assert (await h.call("run")).error.code == "denied"


@pytest.mark.parametrize("guard", ["never-up", "not-approved", "switched-off", "absent"])
async def test_a_required_guard_that_never_came_up_refuses_too(guard, zot, host, target, settings, root):
    settings(REQUIRED)
    if guard != "absent":
        script = "sys.exit(1)" if guard == "never-up" else guarding("{}")
        folder = zot("guard", script, **({"enabled": False} if guard == "switched-off" else {}))
    plugins = [target] if guard in {"absent", "not-approved"} else [folder, target]
    async with host(*plugins, roots=(root,)) as h:
        result = await h.call("run")
        assert (result.error.code, "the required guard 'guard'" in result.text) == ("denied", True)
        assert (await h.guards.turn_start(1)).blocked_by == "guard"
        assert (await h.guards.before_agent_start("Be kind.")).value == "Be kind."
    assert heard(target, "tool_call") == []


async def test_a_required_guard_that_was_changed_is_stopped_and_missed(zot, host, target, settings, root):
    settings(REQUIRED)
    folder = zot("guard", guarding("{}"))
    async with host(target, roots=(root,), watch=True) as h:
        await h.approve(h.snapshot.plugin("guard").plugin)
        assert not (await h.call("run")).is_error
        plugin_folders.write(os.path.join(folder, "run.py"), zot_folders.PRELUDE + guarding("{'block': False}"), 0o755)
        await until(lambda: len(h.peers.places) == 1)
        assert (await h.call("run")).error.code == "denied"


async def test_a_required_guard_of_other_events_does_not_stop_calls_when_it_is_down(zot, host, target, settings):
    settings(REQUIRED)
    guard = zot("guard", guarding("{}", events=["turn_start"]))
    async with host(guard, target) as h:
        os.killpg(h.peers.up[0].session.pid, signal.SIGKILL)
        await until(lambda: len(h.peers.up) == 1)
        assert not (await h.call("run")).is_error
        assert (await h.guards.turn_start(1)).blocked_by == "guard"


async def test_a_required_guard_that_has_not_subscribed_yet_guards_everything(zot, host, target, settings):
    settings(REQUIRED)
    wait = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nsignal.sigwait([signal.SIGUSR1])\n"
    )
    slow = guarding("{}").replace("emit('subscribe'", f"{wait}emit('subscribe'")
    async with host(zot("guard", slow), target) as h:
        result = await h.call("run")
        assert (result.error.code, "has not reported what it guards" in result.text) == ("denied", True)
        os.kill(h.peers.up[0].session.pid, signal.SIGUSR1)
        await until(lambda: h.peers.up[0].intercepts)
        assert not (await h.call("run")).is_error


async def test_a_guard_that_nobody_requires_is_not_missed(zot, host, target):
    async with host(zot("guard", "sys.exit(1)"), target) as h:
        assert not (await h.call("run")).is_error


# Every format


async def test_a_call_of_another_format_that_is_blocked_never_spawns(zot, cyclop, stavrobot, host, tmp_path):
    mark = tmp_path / "ran"
    one = cyclop("one", f"#!/bin/sh\ntouch {mark}\necho '{{\"result\": 1}}'\n")
    two = stavrobot("two", f"#!/bin/sh\ntouch {mark}\necho '{{}}'\n")
    async with host(zot("guard", guarding("{'block': True, 'reason': 'no'}")), one, two) as h:
        for name in ("one", "two.act"):
            assert (await h.call(name, {"text": "x"})).text == "no"
    assert not mark.exists()


async def test_a_call_of_another_format_is_rewritten(zot, cyclop, host):
    script = plugin_folders.python("print(json.dumps({'result': json.dumps(given, sort_keys=True)}))")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    one = cyclop("one", script, tools=[{"name": "one", "description": "Does it.", "input_schema": schema}])
    async with host(zot("guard", guarding("{'modified_args': {'n': args['n'] + 1}}")), one) as h:
        assert '"n": 2' in (await h.call("one", {"n": 1})).text


async def test_the_person_is_asked_about_what_will_really_run(zot, host, root):
    zot("target", zot_folders.ECHO)
    questions = []

    async def ask(question):
        questions.append(question.arguments)
        return "once"

    guard = zot("guard", guarding("{'modified_args': {'command': 'safe'}}"))
    async with host(guard, roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("target").plugin)
        result = await h.call("target", {"command": "risky"}, attachment=Attachment(ask=ask))
    assert questions == [{"command": "safe"}]
    assert result.text == '{"command": "safe"}'


# What an agent asks


@pytest.mark.requirement("ZOT-29", "ZOT-46")
async def test_turn_start_may_be_blocked_by_an_agents_guards(zot, host):
    guard = zot("guard", guarding("{'block': frame['step'] > 1, 'reason': 'after hours'}", events=["turn_start"]))
    async with host(guard) as h:
        assert (await h.guards.turn_start(1)).blocked_by == ""
        ruling = await h.guards.turn_start(2)
    assert (ruling.blocked_by, ruling.reason) == ("guard", "after hours")
    assert heard(guard, "event_intercept")[0].keys() == {"type", "id", "event", "step"}


@pytest.mark.requirement("ZOT-30", "ZOT-35", "ZOT-46", "ZOT-58")
async def test_an_assistants_message_is_replaced_in_a_chain_or_blocked(zot, host):
    events = ["assistant_message"]
    one = zot("one", guarding("{'replace_text': frame['text'].replace('SECRET', '[redacted]')}", events=events))
    two = zot("two", guarding("{'block': 'drop' in frame['text'], 'replace_text': ''}", events=events))
    async with host(one, two) as h:
        ruling = await h.guards.assistant_message("my SECRET")
        assert (ruling.value, ruling.blocked_by, ruling.notes) == ("my [redacted]", "", ("one rewrote it",))
        assert (await h.guards.assistant_message("clean")).notes == ()
        assert (await h.guards.assistant_message("drop it")).blocked_by == "two"


@pytest.mark.parametrize(
    ("answer", "prompt", "note"),
    [
        ("{}", "Be kind.", ""),
        ("{'system_prompt': frame['system_prompt'] + ' Always.'}", "Be kind. Always.", "guard rewrote it"),
        ("{'system_prompt': '  '}", "  ", "guard rewrote it"),
        ("{'system_prompt': ''}", "", "guard rewrote it"),
        ("{'system_prompt': 5}", "Be kind.", "bad event_intercept_response frame"),
        ("{'system_prompt': 'x' * 1_100_000}", "Be kind.", "system_prompt exceeds 1 MiB"),
        ("{'block': True}", "Be kind.", "startup hooks cannot block"),
    ],
)
async def test_before_an_agent_starts_its_prompt_may_be_rewritten_and_nothing_blocked(answer, prompt, note, zot, host):
    async with host(zot("guard", guarding(answer, events=["before_agent_start"]))) as h:
        ruling = await h.guards.before_agent_start("Be kind.")
    assert (ruling.value, ruling.blocked_by) == (prompt, "")
    assert note in " ".join(ruling.notes)


async def test_before_an_agent_starts_guards_are_told_whose_it_is_and_where_it_works(zot, host, tmp_path):
    guard = zot("guard", guarding("{}", events=["before_agent_start"]))
    greeting = Greeting(provider="acme", model="tiny-1", cwd=str(tmp_path))
    async with host(guard, greeting=greeting) as h:
        await h.guards.before_agent_start("Be kind.")
        other = Greeting(provider="acme", model="tiny-2")
        await h.guards.before_agent_start("Be kind.", session_id="s1", agent_run_id="r2", greeting=other)
    first, second = heard(guard, "event_intercept")
    common = {"type": "event_intercept", "event": "before_agent_start", "system_prompt": "Be kind."}
    whose = {"provider": "acme", "cwd": str(tmp_path)}
    assert first == {**common, "id": first["id"], **whose, "model": "tiny-1", "session_id": first["session_id"]}
    assert second == {
        **common, "id": second["id"], **whose, "model": "tiny-2", "session_id": "s1", "agent_run_id": "r2"
    }  # fmt: skip


@pytest.mark.requirement("ZOT-25")
async def test_guards_are_asked_only_about_what_they_subscribed_to(zot, host, target):
    guard = zot("guard", guarding("{'block': True}", events=["turn_start"]))
    async with host(guard, target) as h:
        assert not (await h.call("run")).is_error
        assert (await h.guards.assistant_message("hi")).blocked_by == ""
    assert heard(guard, "event_intercept") == []


# Guards that cannot be got round

LATE = (
    "hello()\ncommand('late')\ntime.sleep(0.7)\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\n"
    "for frame in heard():\n    if frame['type'] == 'event_intercept':\n"
    "        emit('event_intercept_response', id=frame['id'], block=True, reason='no')\n"
)
NO = "{'block': True, 'reason': 'no'}"


@pytest.mark.parametrize("setting", ["", 'on_silence = "closed"', 'guard = "required"'])
async def test_a_guard_that_takes_its_time_to_say_so_guards_the_first_call_too(setting, zot, host, root, settings):
    settings(f"[plugins.guard]\n{setting}\n")
    zot("guard", LATE)
    zot("target", zot_folders.ECHO)
    async with host(roots=(root,)) as h:
        for entry in h.plugins:
            await h.approve(entry.plugin, always=True)
    for _ in range(2):  # as on the command line: what stays up is started when it is needed
        async with host(roots=(root,), eager=False) as h:
            assert (await h.call("target")).text == "no"


async def test_a_required_guard_that_comes_back_and_has_not_subscribed_yet_still_guards(
    zot, host, target, settings, monkeypatch
):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.01, 60.0))
    settings(REQUIRED)
    silent = "if os.path.exists('half'):\n    hello(); command('g'); time.sleep(600)\nopen('half', 'w')\n"
    async with host(zot("guard", guarding("{}", before=silent)), target) as h:
        assert not (await h.call("run")).is_error
        os.killpg(h.peers.up[0].session.pid, signal.SIGKILL)
        await until(lambda: len(h.peers.up) == 1)
        await until(lambda: len(h.peers.up) == 2)
        assert "the required guard 'guard' has not reported what it guards" in (await h.call("run")).text


async def test_a_guard_that_is_closed_when_silent_refuses_also_while_it_is_down(
    zot, host, target, settings, monkeypatch
):
    monkeypatch.setattr(supervisor, "PAUSES_S", (60.0,))
    settings('[plugins.guard]\non_silence = "closed"\n')
    async with host(zot("guard", guarding("os._exit(9)")), target) as h:
        results = [await h.call("run") for _ in range(3)]
    assert [result.error.code for result in results] == ["denied"] * 3
    assert "the guard 'guard' is not running: extension 'guard' ended by itself: it exited with 9" in results[2].text


async def test_that_a_guard_is_down_and_was_passed_over_is_on_record(zot, host, target, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (60.0,))
    async with host(zot("guard", guarding("os._exit(9)")), target) as h:
        for _ in range(2):
            assert not (await h.call("run")).is_error
        (note,) = record(h).notes
    assert note.startswith("the guard 'guard' is not running: ")
    assert note.endswith("it was skipped")


async def test_while_a_guard_is_started_anew_calls_wait_for_it(zot, host, target):
    async with host(zot("guard", guarding(NO, before="time.sleep(0.3)")), target) as h:
        results = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.reload, "guard")
            for _ in range(20):
                await anyio.sleep(0.01)
                results.append((await h.call("run")).text)
    assert set(results) == {"no"}


async def test_who_gives_up_waiting_for_a_reload_switches_no_guard_off(zot, host, target):
    leaving = guarding(NO).replace("for frame in heard():", "for frame in slowly():")
    slow = "def slowly():\n    yield from heard()\n    time.sleep(0.5)\n"
    async with host(zot("guard", slow + leaving), target) as h:
        assert (await h.call("run")).text == "no"
        with anyio.move_on_after(0.1):
            await h.reload()
        await until(lambda: len(h.peers.up) == 2)
        assert (await h.call("run")).text == "no"


async def test_large_calls_at_once_do_not_end_the_guard_that_is_asked_about_them(zot, host, target):
    guard = zot("guard", guarding(NO))
    async with host(guard, target) as h:
        results = []

        async def call():
            results.append(await h.call("run", {"command": "x" * 9_000_000}))

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call)
        assert [result.error.code for result in results] == ["denied"] * 4
        assert (await h.call("run")).text == "no"
        assert h.peers.places[0].restarts == 0


async def test_a_guard_that_somebody_switches_on_guards_the_next_call(zot, host, root):
    zot("guard", guarding(NO))
    zot("target", zot_folders.ECHO)
    async with host(roots=(root,)) as h:
        for entry in h.plugins:
            await h.approve(entry.plugin, always=True)
        guard = h.snapshot.plugin("guard").plugin
        texts = []
        with contextlib.closing(Catalog(h.catalog.home, roots=[root])) as elsewhere:  # as another process has it
            for on in (False, True):
                elsewhere.approvals.enable(guard, on=on)
                texts.append((await h.call("target", {"a": 1})).text)
    assert texts == ['{"a": 1}', "no"]


# Rewrites


async def test_a_rewrite_of_a_zero_to_false_is_one(zot, host, cyclop, target):
    guard = zot("guard", guarding("{'modified_args': {'force': False}}"))
    echo = zot("echo")
    async with host(guard, echo) as h:
        assert (await h.call("echo", {"force": 0})).text == '{"force": false}'
        assert record(h).notes == ("guard rewrote it",)


async def test_what_the_caller_got_wrong_does_not_undo_a_rewrite(zot, host):
    schema = {"type": "object", "properties": {"timeout": {"type": "integer"}, "command": {"type": "string"}}}
    target = zot("target", zot_folders.ECHO.replace('tool(NAME.replace("-", "_"))', f"tool('run', schema={schema!r})"))
    guard = zot("guard", guarding("{'modified_args': {**args, 'command': 'harmless'}}"))
    async with host(guard, target) as h:
        result = await h.call("run", {"command": "secret", "timeout": "5"})
        assert json.loads(result.text) == {"command": "harmless", "timeout": "5"}
    worse = zot("worse", guarding("{'modified_args': {**args, 'command': 3}}"))
    async with host(worse, target) as h:
        await h.call("run", {"command": "secret", "timeout": "5"})
        (note,) = record(h).notes
        assert 'command: 3 is not of type "string"' in note


async def test_a_block_whose_reason_was_cut_in_the_middle_of_a_character_is_one(zot, host, target):
    cut = 'os.write(1, (\'{"type":"event_intercept_response","block":true,"reason":"no \\\\ud83d","id":"\''
    answer = f"{cut} + frame['id'] + '\"}}\\n').encode()) and {{}}"
    async with host(zot("guard", guarding(answer)), target) as h:
        with anyio.fail_after(4.0):
            assert (await h.call("run")).text == "no \ufffd"


@pytest.mark.requirement("ZOT-32")
async def test_a_rewrite_that_nothing_could_read_is_no_usable_answer(zot, host, target):
    deep = "{'modified_args': {'command': json.loads('[' * 500 + ']' * 500)}}"
    async with host(zot("guard", guarding(deep)), target) as h:
        assert not (await h.call("run")).is_error
        assert "nested more than 128 levels deep" in record(h).notes[0]


async def test_a_reason_is_cut_to_what_people_read(zot, host, target):
    async with host(zot("guard", guarding("{'block': True, 'reason': 'x' * 3_000_000}")), target) as h:
        assert len((await h.call("run")).text) < 3_000
        assert len(record(h).reason) < 3_000


async def test_a_guard_that_calls_tools_to_decide_is_stopped_before_it_goes_round_in_a_circle(zot, host, target):
    asking = (
        "hello('call_tool')\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\nwaiting = {}\n"
        "for frame in heard():\n    if frame['type'] == 'event_intercept':\n"
        "        waiting['q' + frame['id']] = frame['id']\n"
        "        emit('call_tool', id='q' + frame['id'], name='run', args={})\n"
        "    elif frame['type'] == 'tool_result':\n        text = frame['content'][0]['text']\n"
        "        emit('event_intercept_response', id=waiting[frame['id']], block=True, reason=text)\n"
    )
    guard = zot("guard", asking)
    async with host(guard, target) as h:
        result = await h.call("run")
    assert result.text == "tool call cycle detected"
    assert len(heard(guard, "event_intercept")) == 1


# Guards that are replaced, come up or ask themselves

BUSY = (
    "hello()\ntool('slowly')\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\n"
    "def work(frame):\n    time.sleep(1.5)\n    say(frame, 'done')\n"
    "for frame in heard():\n    if frame['type'] == 'tool_call':\n"
    "        threading.Thread(target=work, args=(frame,)).start()\n"
    "    elif frame['type'] == 'event_intercept':\n"
    "        emit('event_intercept_response', id=frame['id'], block=frame['tool_name'] != 'slowly', reason='no')\n"
)


async def test_a_guard_that_has_to_finish_a_call_before_it_is_replaced_guards_until_then(zot, host, target):
    async with host(zot("guard", BUSY), target) as h, anyio.create_task_group() as tasks:
        tasks.start_soon(h.call, "slowly")
        await anyio.sleep(0.2)
        tasks.start_soon(h.reload, "guard")
        await anyio.sleep(0.2)
        with anyio.fail_after(1.0):
            assert (await h.call("run")).text == "no"


async def test_a_guard_that_is_reloaded_while_another_decides_is_asked_all_the_same(zot, host, target):
    thinks = zot("a-thinker", guarding("time.sleep(0.6) or {}"))
    async with host(thinks, zot("guard", guarding(NO)), target) as h:
        results = []

        async def call():
            results.append((await h.call("run")).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.sleep(0.2)
            tasks.start_soon(h.reload, "guard")
        assert results == ["no"]


@pytest.mark.parametrize("is_named", [True, False])
async def test_no_call_is_made_before_a_guard_that_was_just_approved_is_up(is_named, zot, host, root, tmp_path):
    guard = zot("guard", guarding(NO, before="time.sleep(0.4)"))
    target = zot_folders.extension(tmp_path / "elsewhere" if is_named else root, "target")
    named = [target] if is_named else []
    async with host(*named, roots=(root,)) as h:
        if not is_named:
            await h.approve(h.snapshot.plugin("target").plugin, always=True)
        elsewhere = Catalog(h.catalog.home, roots=[root])
        (plugin,) = [plugin for plugin in elsewhere.find() if plugin.path == guard]
        elsewhere.approvals.approve(
            plugin, elsewhere.digest(plugin), plugin.permissions, always=True, follow=False, unconfined=False
        )
        elsewhere.close()
        texts = []
        async with anyio.create_task_group() as tasks:

            async def call():
                texts.append((await h.call("target")).text)

            for _ in range(4):
                tasks.start_soon(call)
                await anyio.sleep(0.05)
    assert set(texts) == {"no"}


async def test_a_guard_that_calls_a_tool_before_it_is_ready_does_not_wait_for_itself(zot, host, target):
    early = (
        "hello('call_tool')\nemit('subscribe', intercept=['tool_call'])\n"
        "emit('call_tool', id='1', name='run', args={})\n"
        "for frame in heard():\n    if frame['type'] == 'tool_result':\n        emit('ready')\n"
        "        open('answer', 'w').write(frame['content'][0]['text'])\n"
        "    elif frame['type'] == 'event_intercept':\n"
        "        emit('event_intercept_response', id=frame['id'], block=True, reason='no')\n"
    )
    guard = zot("a-guard", early)
    with anyio.fail_after(4.0):
        async with host(target, guard) as h:
            await until(lambda: os.path.exists(os.path.join(guard, "answer")))
            assert (await h.call("run")).text == "no"
    assert zot_folders.read_answer(guard) == "{}"


async def test_an_extension_that_never_says_ready_is_waited_for_once_and_not_at_each_call(zot, host, root):
    zot("watcher", "hello()\nemit('subscribe', events=['tool_call'])\nfor frame in heard(): pass\n")
    zot("target", zot_folders.ECHO)
    async with host(roots=(root,)) as h:
        for entry in h.plugins:
            await h.approve(entry.plugin, always=True)
        await h.call("target")
    for _ in range(2):
        async with host(roots=(root,), eager=False) as h:
            (watcher,) = [place for place in h.peers.places if place.plugin.name == "watcher"]
            assert watcher.has_said_all
            assert not h.guards.may_object("tool_call")


async def test_calls_at_once_of_a_guard_that_asks_a_helper_are_no_circle(zot, host, target):
    asking = (
        "hello('call_tool')\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\nwaiting = {}\n"
        "for frame in heard():\n    if frame['type'] == 'event_intercept' and frame['tool_name'] == 'run':\n"
        "        waiting['q' + frame['id']] = frame['id']\n"
        "        emit('call_tool', id='q' + frame['id'], name='helper', args={})\n"
        "    elif frame['type'] == 'event_intercept':\n"
        "        emit('event_intercept_response', id=frame['id'], block=False)\n"
        "    elif frame['type'] == 'tool_result':\n        text = frame['content'][0]['text']\n"
        "        emit('event_intercept_response', id=waiting[frame['id']], block=text != '{}', reason=text)\n"
    )
    async with host(zot("guard", asking), zot("helper"), target) as h:
        texts = []

        async def call():
            texts.append((await h.call("run")).text)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(call)
    assert texts == ["{}"] * 10


async def test_a_rule_for_a_name_holds_for_every_tool_that_has_it(zot, host):
    wipe = zot_folders.ECHO.replace('tool(NAME.replace("-", "_"))', "tool('wipe')")
    guard = zot("guard", guarding("{'block': frame['tool_name'] == 'wipe', 'reason': 'no'}"))
    async with host(guard, zot("alpha", wipe), zot("beta", wipe)) as h:
        texts = [(await h.call(name)).text for name in ("wipe", "alpha/wipe", "beta/wipe")]
    assert texts == ["no"] * 3


async def test_what_cannot_guard_is_not_waited_for(zot, host, root, workbench):
    zot("target", zot_folders.ECHO)
    slow = "const until = Date.now() + 3000; while (Date.now() < until);\nmodule.exports.register = async () => {};\n"
    workbench("bench", slow)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("target").plugin, always=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(h.approve, h.snapshot.plugin("bench").plugin, always=True))
            await until(lambda: any(place.is_coming_up for place in h.peers.places))
            assert (await h.call("target")).text == "{}"
            assert any(place.is_coming_up for place in h.peers.places)


# Guards that go, or are not heard


async def test_a_required_guard_that_goes_while_another_thinks_is_missed(zot, host, target, settings, root):
    settings('[plugins.z-guard]\nguard = "required"\n')
    thinks = zot("a-thinker", guarding("time.sleep(1) or {}"))
    guard = zot("z-guard", guarding("{}"))
    async with host(roots=(root,)) as h:
        await approve(h, "a-thinker", "z-guard", "target")
        results = []

        async def call():
            results.append(await h.call("run", attachment=Attachment(yes=True)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: heard(thinks, "event_intercept"))
            plugin_folders.write(os.path.join(guard, "run.py"), "#!/bin/false\n", 0o755)
            await h.look_again()
        assert results[0].error.message == (
            "the required guard 'z-guard' is not running: it was changed and has to be approved again "
            "(`anyplug approve z-guard`)"
        )


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("", "it is not installed"),
        ("new", "it is not approved (`anyplug approve guard`)"),
        ("disabled", "it is disabled (`anyplug enable guard`)"),
        ("broken", "it is broken (`anyplug show guard`)"),
    ],
)
async def test_a_required_guard_that_does_not_run_says_why_and_what_to_do(
    zot, host, cyclop, settings, root, state, why
):
    settings(REQUIRED)
    if state:
        zot("guard", **({"exec": 7} if state == "broken" else {}))
    plugin = cyclop()
    async with host(plugin, roots=(root,)) as h:
        if state == "disabled":
            h.catalog.approvals.enable(h.snapshot.plugin("guard").plugin, on=False)
        error = (await h.call("hello")).error
    assert error.message == f"the required guard 'guard' is not running: {why}"
    assert error.hint.startswith("decided by guard:guard, which is required by [plugins.guard] in settings.toml")


async def test_who_calls_is_told_that_a_guard_was_passed_over(zot, host, target):
    guard = zot("guard", guarding("{'modified_args': 7}"))
    async with host(guard, target) as h:
        result = await h.call("run")
        note = "the guard 'guard' gave no usable answer: modified_args is not an object; it was skipped"
        assert (record(h).notes, result.metadata["warnings"]) == ((note,), [note])


async def test_a_guard_whose_new_code_does_not_come_up_is_missed(zot, host, target, root):
    zot("guard", guarding("{'block': True}"))
    async with host(roots=(root,)) as h:
        await approve(h, "guard", "target")
        assert (await h.call("run")).error.code == "denied"
    zot("guard", "raise SystemExit('a slip')")
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("guard").plugin)
        result = await h.call("run", attachment=Attachment(yes=True))
        assert "the guard 'guard' is not running" in result.metadata["warnings"][0]


# One of the same name that nobody approved


@pytest.mark.parametrize("impostor", ["extension", "another format", "broken"])
async def test_what_nobody_approved_takes_no_guards_place(host, tmp_path, impostor):
    own, project = str(tmp_path / "own"), str(tmp_path / "project")
    zot_folders.extension(own, "guard", guarding("{'block': True, 'reason': 'mine'}"))
    plugin_folders.cyclop(own, "hello")
    async with host(roots=(own,)) as h:
        await approve(h, "guard", "hello")
        assert (await h.call("hello")).text == "mine"
    if impostor == "another format":
        plugin_folders.cyclop(project, "guard")
    else:
        zot_folders.extension(project, "guard", **({"exec": 3} if impostor == "broken" else {}))
    async with host(roots=(project, own)) as h:
        assert [(entry.state, entry.on_guard) for entry in h.plugins if entry.name == "guard"] == [
            ("broken" if impostor == "broken" else "new", False),
            ("shadowed", True),
        ]
        assert (await h.call("hello")).text == "mine"
        if impostor != "broken":
            await approve(h, "guard")
            assert not any(entry.on_guard for entry in h.plugins)
            assert (await h.call("hello")).text == "done"


@pytest.mark.claim("calls-guard")
@pytest.mark.parametrize("impostor", ["extension", "another format"])
async def test_a_folder_that_is_named_for_one_run_takes_no_guards_place(host, tmp_path, impostor):
    own, elsewhere = str(tmp_path / "own"), str(tmp_path / "elsewhere")
    zot_folders.extension(own, "guard", guarding("{'block': True, 'reason': 'mine'}"))
    plugin_folders.cyclop(own, "hello")
    async with host(roots=(own,)) as h:
        await approve(h, "guard", "hello")
    make = plugin_folders.cyclop if impostor == "another format" else zot_folders.extension
    async with host(make(elsewhere, "guard"), roots=(own,)) as h:
        assert [(entry.state, entry.on_guard) for entry in h.plugins if entry.name == "guard"] == [
            ("approved", False),
            ("shadowed", True),
        ]
        assert (await h.call("hello")).text == "mine"


async def test_of_several_shadowed_guards_of_one_name_the_first_that_is_approved_goes_on(host, tmp_path):
    roots = [str(tmp_path / name) for name in ("project", "one", "two")]
    for root in roots[1:]:
        folder = zot_folders.extension(
            root, "guard", guarding(f"{{'block': True, 'reason': '{os.path.basename(root)}'}}")
        )
        async with host(roots=(root,)) as h:
            await approve(h, "guard")
    plugin_folders.cyclop(roots[0], "guard")
    plugin_folders.cyclop(roots[2], "hello")
    async with host(roots=tuple(roots)) as h:
        await approve(h, "hello")
        assert [entry.on_guard for entry in h.plugins if entry.name == "guard"] == [False, True, False]
        assert (await h.call("hello")).text == "one"
    assert heard(folder, "event_intercept") == []


@pytest.mark.parametrize("by", ["reload", "tool"])
async def test_a_guard_stays_on_duty_while_too_many_files_are_open_to_look_for_it(by, zot, host, root, tmp_path):
    zot("guard", guarding("{'block': args.get('bad', False)}"))
    target = zot_folders.extension(tmp_path / "elsewhere", "target")
    async with host(target, roots=(root,)) as h:
        await approve(h, "guard")
        assert (await h.call("target", {"bad": True})).error.code == "denied"
        with shortages.files():
            if by == "tool":
                result = await h.call("builtin.reload_plugins")
                assert (result.error.code, "Too many open files" in result.text) == ("unavailable", True)
                assert "ulimit -n" in result.error.hint
            else:
                with pytest.raises(StoreError, match="Too many open files"):
                    await h.reload()
        assert [entry.name for entry in h.plugins if entry.format == "zot"] == ["target", "guard"]
        assert (await h.call("target", {"bad": True})).error.code == "denied"
        assert not (await h.call("target")).is_error
        await h.reload()
        assert (await h.call("target", {"bad": True})).error.code == "denied"
