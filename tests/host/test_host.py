"""The path of a call: find, trust, check, gate, run, record; and jobs."""

import json
import os
import signal
import subprocess
import sys

import anyio
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

import plugin_folders
import processes
import shortages
import zot_folders
from anyplug import Host
from anyplug.call.consent import Attachment
from anyplug.call.job_store import JobNotFound
from anyplug.catalog.snapshot import OUR_MODEL_NAMES, OURS
from anyplug.model.errors import CODES, ConfigError, StoreError
from anyplug.runtime.processes.guard import TOKEN_VARIABLE
from random_examples import at_most

pytestmark = pytest.mark.anyio

ECHO = plugin_folders.python("print(json.dumps({'result': json.dumps(given)}))")
NEEDS_NETWORK = {"permissions": ["network"]}
WAIT = '#!/bin/sh\necho $$ > "$CYCLOPONE_DATA_DIR/pid"\nexec sleep 600\n'


def approve(host, name, **how):
    plugin = host.snapshot.plugin(name).plugin
    how = {"always": False, "follow": False, "unconfined": False} | how
    host.catalog.approvals.approve(plugin, host.catalog.digest(plugin), plugin.permissions, **how)


def outcomes(host):
    return [item.record.outcome for item in host._audit.calls()]


async def pid_in(path) -> int:
    """Wait for a number that a plugin wrote down; give the process that it means."""
    with anyio.fail_after(processes.PATIENCE_S):
        while not (text := processes.read(path).strip()):
            await anyio.sleep(0.01)
    return processes.outside(int(text), os.environ[TOKEN_VARIABLE])


async def test_a_call_gives_what_the_plugin_said(host, cyclop):
    async with host(cyclop()) as h:
        result = await h.call("hello")
    assert (result.text, result.is_error, result.error) == ("done", False, None)
    assert (result.tool, result.plugin, result.format) == ("hello", "hello", "cyclop")
    assert result.duration_ms > 0


async def test_an_unknown_tool_is_not_found_and_similar_names_are_shown(host, cyclop):
    async with host(cyclop()) as h:
        result = await h.call("helo")
        assert (result.error.code, result.error.hint) == ("not_found", "did you mean hello?")
        assert result.error.message == "no tool is named 'helo'"
        assert outcomes(h) == ["not_found"]


async def test_a_name_that_is_no_text_is_not_found(host):
    async with host() as h:
        assert (await h.call("\ud800")).error.code == "not_found"
        assert outcomes(h) == ["not_found"]


@pytest.mark.requirement("STV-05")
async def test_a_tool_is_found_by_each_of_its_names(host, stavrobot):
    async with host(stavrobot("my-bundle")) as h:
        for name in ("my-bundle.act", "my-bundle/act", "act", "my-bundle_act"):
            assert (await h.call(name)).tool == "my-bundle.act"


@pytest.mark.requirement("STV-05")
async def test_a_bare_name_that_two_plugins_have_leads_to_neither(host, stavrobot):
    async with host(stavrobot("one"), stavrobot("two")) as h:
        result = await h.call("act")
    assert result.error.message == "no tool is named 'act': several plugins have one: one/act, two/act"


@pytest.mark.requirement("CYC-32")
async def test_what_nobody_approved_never_spawns(host, cyclop, root, home):
    cyclop(script='#!/bin/sh\ntouch ran\necho \'{"result": "ran"}\'\n')
    async with host(roots=(root,)) as h:
        assert h.tools == []
        result = await h.call("hello")
        assert result.error.code == "not_approved"
        assert result.error.message == "plugin 'hello' may not run: it is not approved yet"
        assert result.error.hint == (
            '`await host.approve("hello")` approves it, once a person has seen what it asks for; or in a terminal: '
            "`anyplug show hello`, then `anyplug approve hello`"
        )
        assert h._runner.guard._process is None
    assert not os.path.exists(os.path.join(root, "hello", "ran"))


async def test_a_denied_call_never_spawns(host, cyclop, root):
    cyclop(**NEEDS_NETWORK)
    async with host(roots=(root,)) as h:
        approve(h, "hello")
        result = await h.call("hello")
        assert (result.error.code, result.is_error) == ("denied", True)
        assert result.error.hint == (
            "pass `ask=` to the host, a function that returns 'once', 'attachment', 'always' or 'no', or allow it "
            'permanently with `await host.approve("hello", always=True)` once a person has agreed, '
            "or in a terminal `anyplug approve hello --always`"
        )
        assert h._runner.guard._process is None
        assert outcomes(h) == ["denied"]


@pytest.mark.requirement("CYC-36", "CYC-37")
@pytest.mark.parametrize(
    ("answer", "asked_in_three_calls", "allowed"),
    [("once", 3, 3), ("attachment", 1, 3), ("always", 1, 3), ("no", 3, 0)],
)
async def test_the_person_is_asked_as_often_as_they_want(answer, asked_in_three_calls, allowed, host, cyclop, root):
    cyclop(permissions=["network", "shell:exec"])
    questions = []

    async def ask(question):
        questions.append(question)
        return answer

    async with host(roots=(root,), ask=ask) as h:
        approve(h, "hello")
        results = [await h.call("hello", {"a": 1}) for _ in range(3)]
    assert len(questions) == asked_in_three_calls
    assert sum(not result.is_error for result in results) == allowed
    assert questions[0].arguments == {"a": 1}
    assert questions[0].permissions == ("network", "shell:exec")
    assert "everything you can do" in questions[0].warning


async def test_a_call_that_is_cancelled_while_the_person_thinks_is_on_record_and_never_runs(host, cyclop, root):
    cyclop(**NEEDS_NETWORK)
    asked = anyio.Event()

    async def ask(question):
        asked.set()
        await anyio.sleep_forever()

    async with host(roots=(root,), ask=ask) as h:
        approve(h, "hello")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.call, "hello")
            await asked.wait()
            tasks.cancel_scope.cancel()
        assert outcomes(h) == ["cancelled"]
        assert h._runner.guard._process is None


@pytest.mark.requirement("CYC-36")
async def test_an_answer_for_one_attachment_holds_for_no_other(host, cyclop, root):
    cyclop(**NEEDS_NETWORK)
    one, other = Attachment(yes=True), Attachment()
    async with host(roots=(root,)) as h:
        approve(h, "hello")
        assert not (await h.call("hello", attachment=one)).is_error
        assert (await h.call("hello", attachment=other)).error.code == "denied"


async def test_always_holds_for_the_next_host_too(host, cyclop, root):
    cyclop(**NEEDS_NETWORK)

    async def ask(question):
        return "always"

    async with host(roots=(root,), ask=ask) as h:
        approve(h, "hello")
        await h.call("hello")
    async with host(roots=(root,)) as h:
        assert not (await h.call("hello")).is_error


async def test_always_that_cannot_be_kept_counts_for_now_and_says_so(host, cyclop, root, home):
    cyclop(**NEEDS_NETWORK)
    questions = []

    async def ask(question):
        questions.append(question)
        return "always"

    async with host(roots=(root,), ask=ask) as h:
        approve(h, "hello")
        os.rename(home / "decisions", home / "before")
        (home / "decisions").mkdir()  # a decision cannot be marked
        result = await h.call("hello")
        assert (result.text, result.is_error) == ("done", False)
        (warning,) = result.metadata["warnings"]
        assert 'the answer "always" could not be stored, so it applies only now' in warning
        assert "check the disk's free space" in warning
        assert not (await h.call("hello")).is_error
        assert outcomes(h) == ["done", "done"]
    assert len(questions) == 1


@pytest.mark.parametrize("answer", [False, None, True, "", "n", "No", "yes", ["once"]])
async def test_whatever_is_no_clear_yes_is_a_no(answer, host, cyclop, root):
    cyclop(permissions=["network"])

    async def ask(_):
        return answer

    async with host(roots=(root,), ask=ask) as h:
        await h.approve(h.plugins[0].plugin)
        error = (await h.call("hello")).error
        assert error.code == "denied"
        if answer and isinstance(answer, str):  # the program's mistake, and no person's no
            assert error.message == f"`ask` returned {answer!r}, which is not an answer"
            assert error.hint == "return one of 'once', 'attachment', 'always', 'no'"
        else:
            assert error.message == "the person refused to run 'hello'"


async def test_an_ask_that_is_not_async_is_said_to_be_wrong(host, cyclop, root):
    cyclop(permissions=["network"])
    async with host(roots=(root,), ask=lambda _: "once") as h:
        await h.approve(h.plugins[0].plugin)
        error = (await h.call("hello")).error
        assert (error.code, error.message) == ("denied", "`ask` is not an async function")
        assert error.hint == "write `async def`, or use SyncHost"


async def test_an_ask_that_fails_is_a_no_and_on_record(host, cyclop, root):
    cyclop(permissions=["network"])

    async def ask(_):
        raise ValueError("no window to ask in")

    async with host(roots=(root,), ask=ask) as h:
        await h.approve(h.plugins[0].plugin)
        result = await h.call("hello")
        assert result.error.message == "the person could not be asked"
        assert h.audit.calls()[-1].record.outcome == "denied"


async def test_calls_at_once_ask_once_if_the_answer_is_for_all_of_them(host, cyclop, root):
    cyclop(permissions=["network"])
    asked = []

    async def ask(question):
        asked.append(question)
        await anyio.sleep(0.1)
        return "attachment" if len(asked) > 1 else "once"

    async with host(roots=(root,), ask=ask) as h:
        await h.approve(h.plugins[0].plugin)
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(h.call, "hello")
        assert len(asked) == 2
        assert [kept.record.outcome for kept in h.audit.calls()] == ["done"] * 6


async def test_who_comes_while_the_next_is_asked_waits_as_well(host, cyclop, root):
    cyclop(permissions=["network"])
    open_questions, most = 0, 0

    async def ask(_):
        nonlocal open_questions, most
        open_questions += 1
        most = max(most, open_questions)
        await anyio.sleep(0.1)
        open_questions -= 1
        return "once"

    async with host(roots=(root,), ask=ask) as h:
        await h.approve(h.plugins[0].plugin)
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(h.call, "hello")
                await anyio.sleep(0.06)
            with anyio.move_on_after(0.01):  # one that waits gives up
                await h.call("hello")
            tasks.start_soon(h.call, "hello")
    assert most == 1


@pytest.mark.requirement("CYC-35")
async def test_tier_1_never_asks(host, cyclop, root):
    cyclop(permissions=["filesystem:read"])
    async with host(roots=(root,)) as h:
        approve(h, "hello")
        assert not (await h.call("hello")).is_error


async def test_a_plugin_that_is_switched_off_says_how_to_switch_it_on(host, cyclop, root):
    cyclop()
    async with host(roots=(root,)) as h:
        approve(h, "hello")
        plugin = h.snapshot.plugin("hello").plugin
        h.catalog.approvals.enable(plugin, on=False)
        result = await h.call("hello")
        assert (result.error.code, result.error.message) == ("disabled", "Plugin is disabled: hello")
        assert result.error.hint == "enable it with `anyplug enable hello`"
        h.catalog.approvals.enable(plugin, on=True)
        assert not (await h.call("hello")).is_error


async def test_a_plugin_whose_folder_is_gone_is_unavailable(host, cyclop, root):
    folder = cyclop()
    async with host(folder) as h:
        os.rename(folder, folder + "-elsewhere")
        result = await h.call("hello")
        assert result.error.code == "unavailable"
        assert folder in result.error.message
        assert outcomes(h) == ["unavailable"]


async def test_a_plugin_that_deletes_itself_during_a_call_still_answers(host, cyclop, unconfined):
    folder = cyclop(script='#!/bin/sh\nrm -r "$CYCLOPONE_PLUGIN_DIR"\necho \'{"result": "gone"}\'\n')
    async with host(folder) as h:
        assert (await h.call("hello")).text == "gone"
        assert (await h.call("hello")).error.code == "unavailable"


async def test_a_plugin_that_is_replaced_during_a_call_finishes_as_it_began(host, cyclop):
    script = (
        "#!/bin/sh\n"
        'echo $$ > "$CYCLOPONE_DATA_DIR/pid"\n'
        'while [ ! -e "$CYCLOPONE_DATA_DIR/go" ]; do sleep 0.02; done\n'
        'echo \'{"result": "old"}\'\n'
    )
    folder = cyclop(script=script)
    results = []
    async with host(folder) as h, anyio.create_task_group() as tasks:

        async def call():
            results.append(await h.call("hello"))

        tasks.start_soon(call)
        data = os.path.join(h.catalog.home.path, "data", "hello")
        await pid_in(f"{data}/pid")
        new = plugin_folders.write(os.path.join(folder, "new"), plugin_folders.ANSWER, 0o755)
        os.replace(new, os.path.join(folder, "run"))
        plugin_folders.write(f"{data}/go", "")
    assert [result.text for result in results] == ["old"]


async def test_every_failure_leaves_through_a_documented_code(host, cyclop, stavrobot, settings):
    settings(
        "[plugins.slow]\n"
        "timeout_s = 0.2\n"
        "[plugins.large]\n"
        "max_output_bytes = 10\n"
        "[plugins.picky]\n"
        "arguments = 'strict'\n"
    )
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    plugins = [
        cyclop("slow", "#!/bin/sh\nsleep 600\n"),
        cyclop("large", "#!/bin/sh\necho 12345678901234567890\n"),
        cyclop("picky", tools=[{"name": "picky", "description": "d", "input_schema": schema}]),
        cyclop("silent", "#!/bin/sh\n"),
        cyclop("failing", '#!/bin/sh\necho \'{"result": "no", "is_error": true}\'\n'),
        cyclop("crashing", "#!/bin/sh\nexit 9\n"),
        stavrobot("unset", config={"api": {"description": "d", "required": True}}),
    ]
    os.chmod(os.path.join(cyclop("plain"), "run"), 0o644)
    expected = {
        "slow": "timed_out",
        "large": "too_large",
        "picky": "invalid_arguments",
        "silent": "bad_output",
        "failing": "tool_error",
        "crashing": "crashed",
        "unset.act": "config_missing",
        "nothing": "not_found",
        "plain": "not_executable",
    }
    async with host(*plugins, os.path.join(os.path.dirname(plugins[0]), "plain")) as h:
        found = {name: (await h.call(name)).error.code for name in expected}
        assert found == expected
        assert outcomes(h) == list(expected.values())
    assert set(found.values()) <= set(CODES)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        "text",
        7,
        {"x": object()},
        {1: 2},
        {"x": {1: 2}},
        {"x": "\ud800"},
        {"x": float("nan")},
        {"x": [float("inf")]},
    ],
)
async def test_arguments_that_are_no_json_object_are_refused(arguments, host, cyclop, stavrobot):
    async with host(cyclop(), stavrobot()) as h:
        for name in ("hello", "bundle.act"):
            result = await h.call(name, arguments)
            assert result.error.code == "invalid_arguments", result
            assert result.error.message
        assert outcomes(h) == ["invalid_arguments"] * 2


async def test_arguments_nested_too_deep_are_refused(host, cyclop):
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    async with host(cyclop()) as h:
        assert (await h.call("hello", deep)).error.code == "invalid_arguments"
    while deep:
        deep = deep["a"]  # the interpreter's own way to free it is recursive


@pytest.mark.requirement("CYC-18")
async def test_arguments_reach_the_plugin_as_they_were_given(host, cyclop):
    arguments = {"text": 'quote " and ünïcödé ✓ \n', "n": 1.5, "big": 2**70, "list": [None, True, {"a": []}], "from": 1}
    async with host(cyclop(script=ECHO)) as h:
        result = await h.call("hello", arguments)
    assert json.loads(result.text)["input"] == arguments


async def test_no_arguments_are_an_empty_object(host, cyclop):
    async with host(cyclop(script=ECHO)) as h:
        assert json.loads((await h.call("hello")).text)["input"] == {}


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.requirement("CYC-46")
@pytest.mark.parametrize(
    ("mode", "code", "warned"), [("", "", True), ("strict", "invalid_arguments", False), ("off", "", False)]
)
async def test_a_violation_of_a_cyclop_schema_warns_unless_the_person_wants_else(
    mode, code, warned, host, cyclop, settings
):
    if mode:
        settings(f"[plugins.hello]\narguments = '{mode}'\n")
    async with host(cyclop(tools=[{"name": "hello", "description": "d", "input_schema": SCHEMA}])) as h:
        result = await h.call("hello", {"n": "one"})
    assert (result.error.code if result.error else "") == code
    assert ("warnings" in result.metadata) == warned
    if warned:
        assert result.metadata["warnings"] == ['n: "one" is not of type "integer"']


@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
async def test_a_cancelled_call_kills_the_whole_group_and_is_recorded(format, host, request):
    write_pid = (
        "#!/bin/sh\nhere=${CYCLOPONE_DATA_DIR:-$HOME}\nsleep 601 &\n"
        'echo $! > "$here/pid.tmp"; mv "$here/pid.tmp" "$here/pid"\nwait\n'
    )
    async with host(request.getfixturevalue(format)("slow", write_pid)) as h:
        folder = os.path.join(h.catalog.home.path, "data", "slow") + ("" if format == "cyclop" else "/home")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.call, "slow" if format == "cyclop" else "slow.act")
            pid = await pid_in(folder + "/pid")
            assert processes.is_running(pid)
            tasks.cancel_scope.cancel()
        assert processes.until(lambda: not processes.is_running(pid))
        assert outcomes(h) == ["cancelled"]


async def test_a_call_that_waits_for_its_turn_can_be_cancelled(host, cyclop, settings):
    settings("[calls]\nat_once = 1\n")
    async with host(cyclop("slow", WAIT), cyclop("quick")) as h:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.call, "slow")
            await pid_in(os.path.join(h.catalog.home.path, "data", "slow") + "/pid")
            tasks.start_soon(h.call, "quick")
            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        assert sorted(outcomes(h)) == ["cancelled", "cancelled"]


@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
async def test_many_calls_at_once_all_get_their_own_answer(format, host, request):
    script = (
        "#!/bin/sh\n"
        "read -r line\n"
        'case $line in *number-*) n=${line##*number-}; n=${n%%\\"*};; esac\n'
        'printf \'{"result": "%s"}\' "$n"\n'
    )
    results = {}
    async with host(request.getfixturevalue(format)("many", script)) as h:

        async def call(number):
            result = await h.call("many" if format == "cyclop" else "many.act", {"text": f"number-{number}"})
            results[number] = result.text if format == "cyclop" else (result.structured or {}).get("result", result)

        async with anyio.create_task_group() as tasks:
            for number in range(150):
                tasks.start_soon(call, number)
        assert results == {number: str(number) for number in range(150)}
        assert outcomes(h) == ["done"] * 150
        assert h._audit.verify() == (150, [])


async def test_the_hosts_own_body_may_raise_what_it_likes(host):
    with pytest.raises(KeyError, match="mine"):
        async with host():
            raise KeyError("mine")


async def test_a_host_can_be_used_again_after_it_was_closed(host, cyclop, stavrobot):
    h = host(cyclop(), stavrobot())
    for _ in range(2):
        async with h:
            assert not (await h.call("hello")).is_error
            assert not (await h.call("bundle.act")).is_error


async def test_two_hosts_in_one_process_do_not_kill_each_others_plugins(host, cyclop):
    folder = cyclop(script='#!/bin/sh\nsleep 0.5\necho \'{"result": "done"}\'\n')
    results = []
    async with host(folder) as lasting, anyio.create_task_group() as tasks:

        async def call():
            results.append(await lasting.call("hello"))

        tasks.start_soon(call)
        await anyio.sleep(0.1)
        async with host(cyclop("other")) as brief:
            await brief.call("other")
    assert [result.text for result in results] == ["done"]


async def test_settings_that_cannot_be_read_are_said_at_once(settings):
    settings("namespaces = 'perhaps'\n")
    with pytest.raises(ConfigError, match=r"settings\.toml"):
        Host()


@pytest.mark.requirement("CYC-03", "STV-27")
async def test_standard_roots_are_searched_when_none_are_given(cyclop, tmp_path):
    plugin_folders.cyclop(tmp_path / "work" / "plugins", "project")
    plugin_folders.stavrobot(tmp_path / "work" / "data" / "tools", "bundle")
    plugin_folders.cyclop(tmp_path / "user" / ".cyclopone" / "plugins", "users")
    plugin_folders.cyclop(tmp_path / "home" / "plugins", "installed")
    async with Host(watch=False) as h:
        assert [entry.name for entry in h.plugins] == ["project", "bundle", "installed", "users"]


async def test_problems_name_their_plugin(host, root, cyclop):
    cyclop("bad", version=...)
    async with host(roots=(root,)) as h:
        assert [problem.message.partition(" at ")[0] for problem in h.problems] == [
            "bad: plugin.json missing required field 'version'"
        ]


async def test_reload_sees_a_new_plugin(host, root, cyclop):
    async with host(roots=(root,)) as h:
        cyclop()
        await h.reload()
        assert [entry.name for entry in h.plugins] == ["hello"]


# Jobs


async def test_an_async_tool_is_waited_for_unless_told_otherwise(host, stavrobot):
    async with host(stavrobot(tool={"async": True})) as h:
        result = await h.call("bundle.act")
        assert result.structured == {"result": "done"}
        (job,) = h.jobs()
        assert (job.id, job.state, job.tool) == (result.metadata["job"], "done", "bundle.act")
        assert job.result["structured"] == {"result": "done"}
        assert job.ended >= job.started


async def test_a_job_that_nobody_waits_for_runs_to_its_end(host, stavrobot):
    async with host(stavrobot(tool={"async": True})) as h:
        result = await h.call("bundle.act", wait=False)
        name = result.metadata["job"]
        assert not result.is_error
        assert name in result.text
        with anyio.fail_after(processes.PATIENCE_S):
            while h._jobs.one(name).state == "running":
                await anyio.sleep(0.02)
        assert h._jobs.one(name).state == "done"
        assert outcomes(h) == ["done"]


async def test_a_failed_job_keeps_its_error(host, stavrobot):
    async with host(stavrobot(script="#!/bin/sh\necho broken >&2\nexit 1\n", tool={"async": True})) as h:
        result = await h.call("bundle.act")
        assert result.error.message == "broken"
        (job,) = h.jobs()
        assert (job.state, job.result["error"]["code"]) == ("failed", "tool_error")


PATIENT = '#!/bin/sh\necho $$ > "$HOME/pid.tmp"; mv "$HOME/pid.tmp" "$HOME/pid"\nexec sleep 602\n'


@pytest.mark.parametrize("where", ["here", "in another process"])
async def test_a_cancelled_job_ends_with_its_process(where, host, stavrobot):
    async with host(stavrobot(script=PATIENT, tool={"async": True})) as h:
        name = (await h.call("bundle.act", wait=False)).metadata["job"]
        pid = await pid_in(os.path.join(h.catalog.home.path, "data", "bundle") + "/home/pid")
        if where == "here":
            h.cancel_job(name)
        else:
            async with host() as other:
                assert other._jobs.one(name).state == "running"
                other.cancel_job(name)
        with anyio.fail_after(processes.PATIENCE_S):
            while h._jobs.one(name).state == "running":
                await anyio.sleep(0.02)
        job = h._jobs.one(name)
        assert (job.state, job.result["error"]["code"], job.result["tool"]) == ("cancelled", "cancelled", "bundle.act")
        assert not processes.is_running(pid)
        assert outcomes(h) == ["cancelled"]


async def test_jobs_under_way_are_cancelled_when_the_host_leaves(host, stavrobot):
    async with host(stavrobot(script=PATIENT, tool={"async": True})) as h:
        await h.call("bundle.act", wait=False)
        pid = await pid_in(os.path.join(h.catalog.home.path, "data", "bundle") + "/home/pid")
    assert not processes.is_running(pid)
    async with host() as h:
        assert [job.state for job in h.jobs()] == ["cancelled"]
        assert outcomes(h) == ["cancelled"]


async def test_a_job_whose_host_was_killed_is_lost_and_so_is_its_call(host, stavrobot):
    folder = stavrobot(script=PATIENT, tool={"async": True})
    program = (
        "import anyio, sys\nfrom anyplug import Host\n"
        "async def main():\n"
        "    async with Host([sys.argv[1]], roots=[], watch=False) as h:\n"
        "        await h.call('bundle.act')\n"
        "anyio.run(main)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, folder])  # noqa: ASYNC220 - it has to be killed
    async with host() as h:
        pid = await pid_in(os.path.join(h.catalog.home.path, "data", "bundle") + "/home/pid")
        assert [job.state for job in h.jobs()] == ["running"]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert [job.state for job in h.jobs()] == ["lost"]
        assert outcomes(h) == []
    assert processes.until(lambda: not processes.is_running(pid))
    async with host() as h:
        assert outcomes(h) == ["lost"]
        assert h._audit.verify() == (1, [])


async def test_an_unknown_job_is_not_found(host):
    async with host() as h:
        with pytest.raises(JobNotFound):
            h._jobs.one("nothing")


# The store


async def test_a_damaged_database_refuses_calls_and_says_so(host, cyclop, root, home):
    (home / "anyplug.db").write_bytes(b"not a database " * 1000)
    async with host(cyclop(), roots=(root,)) as h:
        result = await h.call("hello")
    assert (result.error.code, result.is_error) == ("denied", True)
    assert "anyplug.db" in result.error.message


async def test_a_damaged_database_never_looks_like_an_approval(host, cyclop, root, home):
    cyclop()
    (home / "anyplug.db").write_bytes(b"not a database " * 1000)
    with pytest.raises(StoreError, match=r"anyplug\.db"):
        async with host(roots=(root,)):
            pass


# Hostile input

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
PARAMETERS = {
    "text": {"type": "string", "description": "d"},
    "whole": {"type": "integer", "description": "d"},
    "number": {"type": "number", "description": "d"},
    "file": {"type": "file", "description": "d"},
    "maybe": {"type": "string|null", "description": "d"},
    "choice": {"type": "string", "description": "d", "enum": ["a", "b"]},
}
FILES = st.fixed_dictionaries({"filename": st.text(max_size=300), "data": st.text(max_size=20)})


@bounds(max_examples=at_most(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(arguments=st.dictionaries(st.sampled_from([*PARAMETERS, "other"]), JSON | FILES, max_size=4))
def test_no_arguments_make_a_call_raise(arguments, tmp_path_factory):
    root = tmp_path_factory.getbasetemp() / "hostile-arguments"
    if not root.exists():
        schema = {
            "type": "object",
            "properties": PARAMETERS | {"maybe": {"type": ["string", "null"]}},
            "required": ["n"],
        }
        plugin_folders.cyclop(
            root,
            "hello",
            '#!/bin/sh\necho \'{"result": ""}\'\n',
            tools=[{"name": "hello", "description": "d", "input_schema": schema}],
        )
        plugin_folders.stavrobot(root, "bundle", "#!/bin/sh\n", parameters=PARAMETERS)

    async def main():
        async with Host([root / "hello", root / "bundle"], roots=[], watch=False) as h:
            for name in ("hello", "bundle.act"):
                result = await h.call(name, arguments)
                assert result.error is None or result.error.code == "invalid_arguments"

    anyio.run(main)


@bounds(max_examples=at_most(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.text())
def test_no_name_makes_a_call_raise(name):
    async def main():
        async with Host(roots=[], watch=False) as h:
            result = await h.call(name)
            is_ours = name in OUR_MODEL_NAMES or any(name in {full, tool.own_name} for full, (tool, _) in OURS.items())
            assert is_ours or result.error.code == "not_found"

    anyio.run(main)


@pytest.mark.anyio
async def test_a_home_that_cannot_be_written_to_fails_the_call_and_says_so(host, cyclop, zot, home):
    plugin_folders.write(f"{home}/bin", "a file where a folder should be")
    async with host(cyclop(), zot()) as h:
        result = await h.call("hello")
        assert (result.error.code, "File exists" in result.text) == ("unavailable", True)
        assert h.audit.under_way() == []
        assert "File exists" in h.snapshot.plugin("echo").problems[0].message


@pytest.mark.anyio
async def test_a_value_that_json_does_not_have_is_a_violation_and_no_exception(host, zot):
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    script = zot_folders.ECHO.replace('tool(NAME.replace("-", "_"))', f"tool('echo', schema={schema!r})")
    async with host(zot("echo", script)) as h:
        result = await h.call("echo", {"a": {1}})
    assert (result.is_error, result.metadata["warnings"]) == (False, ["Unsupported type: 'set'"])


@pytest.mark.anyio
async def test_decisions_that_cannot_be_read_refuse_also_what_was_named_for_this_run(host, cyclop, root, tmp_path):
    named = plugin_folders.cyclop(tmp_path / "elsewhere", "named")
    cyclop()
    async with host(named, roots=(root,)) as h:

        def fail():
            raise StoreError("the database failed", "check the disk")

        h.catalog.approvals.refresh = fail
        result = await h.call("named")
    assert (result.error.code, result.text) == ("denied", "the decisions cannot be read: the database failed")


@pytest.mark.parametrize("format", ["cyclop", "stavrobot", "zot", "workbench"])
async def test_a_program_that_too_many_open_files_keep_from_starting_says_so(format, request, host):
    tool = {"cyclop": "hello", "zot": "hello", "stavrobot": "hello.act", "workbench": "hello.act"}[format]
    async with host(request.getfixturevalue(format)("hello"), eager=False) as h:
        assert not (await h.call(tool)).is_error
        for peer in h.peers.up:
            peer.session.give_up("for the test")
            await peer.session.left()
        with shortages.files():
            refused = await h.call(tool)
        assert "Too many open files" in refused.text
        assert "ulimit -n" in f"{refused.text} {refused.error.hint}"
        assert refused.error.code != "not_executable"  # its program is fine
        assert not (await h.call(tool)).is_error


async def test_a_host_that_was_not_entered_says_so(cyclop):
    host = Host(plugins=[cyclop()])
    with pytest.raises(RuntimeError, match="async with Host"):
        await host.call("hello")
    parts = set(vars(host))
    async with host:
        assert set(vars(host)) == parts  # so that each of them can say it


async def test_values_are_written_before_extensions_start_that_must_not_see_them(host, stavrobot):
    folder = stavrobot(config={"size": {"description": "How large", "default": 5}})
    async with host(folder):
        assert json.loads(processes.read(f"{folder}/config.json")) == {"size": 5}
