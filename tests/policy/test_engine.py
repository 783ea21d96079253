"""The engine over time: edits, broken edits, the person's own policies, signals, and decisions that are kept."""

import json
import os

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plugin_folders
import policy_projects
import processes
from anyplug.policy import accepted_copies, policy_files
from anyplug.policy.engine import Engine
from anyplug.policy.eval_requests import EvalRequests
from policy_projects import answer, ask, bash, decision, event, policy, project, verdict
from random_examples import at_most

pytestmark = pytest.mark.anyio

ENGINE = Engine()


@pytest.fixture
def engine(home):
    return Engine(str(home), look_s=0)


async def test_an_edit_is_in_force_with_the_next_event(engine):
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("ls"), engine=engine) == "ask"
    project({"p": policy("opencode.p", decision("deny"))})
    assert await verdict(bash("ls"), engine=engine) == "deny"
    project({"q": policy("opencode.q", decision("halt"))})
    assert await verdict(bash("ls"), engine=engine) == "block"
    os.unlink(".cupcake/policies/opencode/q.rego")
    project()
    assert await verdict(bash("ls"), engine=engine) == "deny"


@pytest.mark.parametrize("broken", ["package", "package cupcake.policies.x\n", "\0"])
async def test_a_broken_edit_keeps_the_last_good_policies_and_says_so(engine, broken):
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("ls"), engine=engine) == "ask"
    project({"p": broken})
    made = await ask(bash("ls"), engine=engine)
    assert made["decision"]["decision"] == "ask"
    assert any("p.rego:1" in line and "last good" in line for line in made["said"])
    project({"p": policy("opencode.p", decision("deny"))})
    made = await ask(bash("ls"), engine=engine)
    assert (made["decision"]["decision"], made["said"]) == ("deny", [])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("policies/opencode/more", "it is a broken link"),
        ("rulebook.yml", "it cannot be read"),
        ("helpers", "it cannot be listed"),
    ],
)
async def test_what_leads_nowhere_is_no_empty_folder_of_policies(path, says):
    project({"p": policy("opencode.p", decision("ask"))})
    os.symlink("nowhere", os.path.join(".cupcake", path))
    made = await ask(bash("ls"))
    assert made["decision"] is None
    assert says in made["said"][0]


@pytest.mark.parametrize("path", ["policies/opencode/z.rego", "rulebook.yml", "system/z.rego", "helpers/z.rego"])
async def test_a_pipe_where_a_policy_should_be_keeps_nobody_waiting(path):
    project({"p": policy("opencode.p", decision("ask"))})
    os.makedirs(os.path.dirname(os.path.join(".cupcake", path)), exist_ok=True)
    os.mkfifo(os.path.join(".cupcake", path))
    with anyio.fail_after(processes.PATIENCE_S):
        made = await ask(bash("ls"))
    assert made["decision"] is None
    assert "it is not a file" in made["said"][0]


@pytest.mark.parametrize("path", ["policies/opencode/root", "helpers/root", "policies/opencode/builtins"])
async def test_a_link_to_the_whole_disk_is_not_followed_to_its_end(path, tmp_path, monkeypatch):
    monkeypatch.setattr(policy_files, "MOST_ENTRIES", 500)
    for number in range(600):
        plugin_folders.write(f"{tmp_path}/disk/{number % 7}/{number}", "")
    project({"p": policy("opencode.p", decision("ask"))}, rulebook="builtins: {nobody_has_this: {enabled: true}}")
    os.makedirs(os.path.dirname(os.path.join(".cupcake", path)), exist_ok=True)
    os.symlink(f"{tmp_path}/disk", os.path.join(".cupcake", path))
    made = await ask(bash("ls"))
    assert made["decision"] is None
    assert "leads to many other files" in made["said"][0]


async def test_a_file_where_the_policies_should_be_refuses():
    root = project()
    os.rmdir(os.path.join(root, ".cupcake/policies/opencode"))
    plugin_folders.write(os.path.join(root, ".cupcake/policies/opencode"), "")
    made = await ask(bash("ls"))
    assert made["decision"] is None
    assert "it cannot be listed" in made["said"][0]


async def test_a_broken_first_set_is_mended_by_an_edit(engine):
    project({"p": "package"})
    assert (await ask(bash("ls"), engine=engine))["decision"] is None
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("ls"), engine=engine) == "ask"


async def test_folders_that_appear_and_go_are_noticed(engine):
    assert (await ask(bash("ls"), engine=engine))["decision"] is None
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("ls"), engine=engine) == "ask"
    os.rename(".cupcake/policies", ".cupcake/away")
    assert await verdict(bash("ls"), engine=engine) == "ask"  # a broken edit, too


def globally(policies, rulebook="", monkeypatch=None, evaluate=policy_projects.GLOBAL_EVALUATE):
    root = os.path.join(os.environ["HOME"], ".config", "cupcake")
    for name, text in policies.items():
        plugin_folders.write(os.path.join(root, "policies", "opencode", f"{name}.rego"), text)
    plugin_folders.write(os.path.join(root, "policies", "opencode", "system", "evaluate.rego"), evaluate)
    if rulebook:
        plugin_folders.write(os.path.join(root, "rulebook.yml"), rulebook)
    accepted_copies.keep(os.environ["ANYPLUG_HOME"], accepted_copies.read(root, is_own=True), trusted=True)
    return root


@pytest.fixture(autouse=True)
def _usual_configuration(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


async def test_the_persons_own_refusal_is_final():
    globally({"g": policy("g", decision("deny", "mine"))})
    project({"p": policy("opencode.p", decision("halt", "theirs"))})
    assert await answer(bash("ls")) == {"decision": "deny", "reason": "mine"}


async def test_the_persons_own_question_and_context_are_kept():
    globally({"g": policy("g", decision("ask", "mine") + 'add_context contains "hear"\n')})
    project({"p": policy("opencode.p", 'add_context contains "this"\n')})
    assert await answer(bash("ls")) == {"decision": "ask", "reason": "mine"}
    globally({"g": policy("g", 'add_context contains "hear"\n')})
    assert await answer(bash("ls")) == {"decision": "allow", "context": ["hear", "this"]}


async def test_a_global_folder_that_is_not_there_is_an_error_and_no_silence():
    project({"p": policy("opencode.p", decision("ask"))})
    made = await ask(bash("ls"), global_config="/nonexistent")
    assert made["decision"] is None
    assert "/nonexistent" in made["said"][0]


async def test_a_global_folder_can_be_named(tmp_path):
    root = globally({"g": policy("g", decision("deny", "named"))})
    os.rename(root, tmp_path / "elsewhere")
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("ls")) == "ask"
    assert (await answer(bash("ls"), global_config=str(tmp_path / "elsewhere")))["reason"] == "named"


async def test_broken_global_policies_stop_everything():
    globally({"g": "package"})
    project({"p": policy("opencode.p", decision("ask"))})
    assert (await ask(bash("ls")))["decision"] is None


# Signals.


def with_signal(body, command, *, seconds=5, name="s", **more):
    project(
        {"p": policy("opencode.p", body, signals=[name])},
        rulebook=f"signals: {{s: {{command: {json.dumps(command)}, timeout_seconds: {seconds}}}}}\n",
        **more,
    )


SHOW = 'deny contains {"rule_id": "R", "reason": json.marshal(input.signals.s), "severity": "HIGH"}\n'


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo main", '"main"'),
        ("echo '{\"a\": [1]}'", '{"a":[1]}'),
        ("printf 'two\\nlines\\n'", '"two\\nlines"'),
        ("echo ' out'; echo err >&2; exit 3", '{"error":"err","exit_code":3,"output":"out","success":false}'),
        ("true", '""'),
    ],
)
async def test_a_signals_answer_is_its_output(command, said):
    with_signal(SHOW, command)
    assert (await answer(bash("ls")))["reason"] == said


async def test_a_signal_gets_the_event_and_runs_in_the_project():
    with_signal(SHOW, 'printf "%s " "$(pwd)"; cat')
    reason = (await answer(bash("git   log")))["reason"]
    assert os.path.realpath(os.getcwd()) in reason
    assert "git log" in reason


async def test_a_script_in_the_folder_of_signals_is_one():
    project({"p": policy("opencode.p", SHOW, signals=["s"])}, **{"signals/s.sh": "#!/bin/sh\necho script\n"})
    assert (await answer(bash("ls")))["reason"] == '"script"'


async def test_signals_run_only_for_policies_that_are_concerned():
    marks = os.path.join(os.getcwd(), "marks")
    with_signal(SHOW, f"echo x >> {marks}")
    project({"p": policy("opencode.p", SHOW, tools=["Edit"], signals=["s"])})
    await ask(bash("ls"))
    assert not os.path.exists(marks)
    await ask(event("edit", filePath="x"))
    assert os.path.exists(marks)


@pytest.mark.parametrize("command", ["sleep 600", "sleep 600 & wait", "yes"])
async def test_a_signal_without_an_answer_refuses_and_leaves_nothing_behind(command):
    with_signal(decision("ask"), command, seconds=1)
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert "the signal 's' did not answer" in made["reason"]


async def test_a_signal_that_nobody_defined_refuses():
    project({"p": policy("opencode.p", decision("ask"), signals=["missing"])})
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert "no such signal" in made["reason"]


async def test_a_signal_that_fails_does_not_stop_what_only_gives_context():
    with_signal('add_context contains "x"\n', "sleep 600", seconds=1)
    made = await ask(bash("ls"))
    assert made["decision"]["decision"] == "allow"
    assert any("did not answer" in line for line in made["said"])


async def test_signals_can_be_switched_off(home):
    with_signal(decision("ask"), "echo x")
    made = await answer(bash("ls"), engine=Engine(str(home), signals=False))
    assert "disabled" in made["reason"]


async def test_a_policy_that_waits_for_a_watchdog_is_refused():
    project(
        {"p": policy("opencode.p", decision("deny", when="input.signals.watchdog.allow == false"))},
        rulebook="watchdog: true",
    )
    assert (await ask(bash("ls")))["decision"] is None


# Decisions that are kept.


@pytest.mark.requirement("CUP-12")
async def test_a_decision_is_kept_only_for_who_asks_and_for_the_same_event(engine):
    project({"p": policy("opencode.p", policy_projects.NO_VERIFY)})
    given = bash("git commit --no-verify")
    assert not (await ask(given, engine=engine))["cached"]
    assert not (await ask(given, engine=engine, cache=True))["cached"]
    kept = await ask(given | {"call_id": "another"}, engine=engine, cache=True)
    assert (kept["cached"], kept["decision"]["decision"]) == (True, "deny")
    assert not (await ask(bash("git commit"), engine=engine, cache=True))["cached"]
    assert not (await ask(given | {"session_id": "other"}, engine=engine, cache=True))["cached"]
    assert not (await ask(given, engine=engine))["cached"]


async def test_a_kept_decision_still_exits_as_it_should_and_tells_of_a_broken_edit(engine):
    project({"p": policy("opencode.p", decision("deny"))})
    assert (await ask(bash("ls"), engine=engine, cache=True))["exit"] == 0
    assert (await ask(bash("ls"), engine=engine, cache=True, strict=True))["exit"] == 1
    project({"p": "package"})
    made = await ask(bash("ls"), engine=engine, cache=True)
    assert made["cached"]
    assert "last good" in made["said"][0]


async def test_numbers_of_any_size_are_decided_about(engine):
    project(
        {"p": policy("opencode.p", decision("deny", when="input.args.n > 1"), signals=["s"])},
        rulebook="signals: {s: cat}",
    )
    for number in (2**70, 10**400, 1e300):
        assert (await ask(event("x", n=number), engine=engine))["decision"]["decision"] == "deny"


async def test_an_edit_forgets_what_was_kept(engine):
    project({"p": policy("opencode.p", decision("ask"))})
    await ask(bash("ls"), engine=engine, cache=True)
    project({"p": policy("opencode.p", decision("deny"))})
    made = await ask(bash("ls"), engine=engine, cache=True)
    assert (made["cached"], made["decision"]["decision"]) == (False, "deny")


@pytest.mark.parametrize(
    "when",
    ["time.now_ns() > 0", "rand.intn(input.tool, 2) >= 0", 'uuid.rfc4122("x") != ""', "count(opa.runtime()) >= 0"],
)
async def test_what_may_be_decided_otherwise_next_time_is_not_kept(engine, when):
    project({"p": policy("opencode.p", f"helper if {{ {when} }}\n" + decision("ask", when="helper"))})
    for _ in range(2):
        assert not (await ask(bash("ls"), engine=engine, cache=True))["cached"]


async def test_what_depends_on_a_signal_is_not_kept(engine):
    with_signal(decision("ask"), "echo x")
    for _ in range(2):
        assert not (await ask(bash("ls"), engine=engine, cache=True))["cached"]


async def test_an_id_that_a_policy_reads_counts(engine):
    project({"p": policy("opencode.p", decision("ask", when='input.call_id == "call_1"'))})
    assert (await ask(bash("ls"), engine=engine, cache=True))["decision"]["decision"] == "ask"
    made = await ask(bash("ls") | {"call_id": "other"}, engine=engine, cache=True)
    assert (made["cached"], made["decision"]["decision"]) == (False, "allow")


async def test_a_file_that_moves_behind_a_link_is_seen_although_decisions_are_kept(engine):
    os.mkdir("safe")
    os.mkdir("secret")
    os.symlink("safe", "link")
    project({"p": policy("opencode.p", decision("deny", when='contains(input.resolved_file_path, "/secret/")'))})
    given = event("read", filePath="link/x")
    assert (await ask(given, engine=engine, cache=True))["decision"]["decision"] == "allow"
    os.unlink("link")
    os.symlink("secret", "link")
    assert (await ask(given, engine=engine, cache=True))["decision"]["decision"] == "deny"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.dictionaries(
    st.sampled_from(["hook_event_name", "session_id", "cwd", "tool", "args", "result", "tool_name", "tool_input", "x"]),
    JSON | st.sampled_from(["PreToolUse", "PostToolUse", "PermissionRequest", "UserPromptSubmit", "bash", "/tmp"]),
)


TOOLS = st.sampled_from(["bash", "Bash", "edit", "Edit", "MultiEdit", "read", "apply_patch", "x", ""])
ARGUMENTS = JSON | st.dictionaries(
    st.sampled_from(["command", "workdir", "filePath", "file_path", "patchText", "edits", "content"]), JSON, max_size=3
)
WHOLE = st.fixed_dictionaries(  # nothing is missing, and what is told may be anything
    {
        "hook_event_name": st.sampled_from(["PreToolUse", "PostToolUse", "PermissionRequest"]),
        "session_id": st.just("s"),
        "cwd": st.sampled_from(["/tmp", "", "nowhere"]),
        "tool": TOOLS,
        "args": ARGUMENTS,
        "tool_name": TOOLS,
        "tool_input": ARGUMENTS,
        "result": st.just({"success": True}),
        "metadata": ARGUMENTS,
        "permission_type": TOOLS,
    }
)


@pytest.fixture(scope="module")
def governed(tmp_path_factory):
    return project(
        {"p": policy("opencode.p", policy_projects.NO_VERIFY)}, folder=str(tmp_path_factory.mktemp("governed"))
    )


@settings(max_examples=at_most(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["opencode", "claude", "anyplug", "x"]), JSON | EVENTS | WHOLE | st.text(max_size=20))
def test_whatever_comes_there_is_a_decision_or_a_reason_why_not(governed, harness, given_event):
    desk = EvalRequests(ENGINE)
    key = "text" if isinstance(given_event, str) else "event"
    opened = desk.open({"harness": harness, key: given_event, "policy_dir": governed}, cwd="/")
    made = opened if isinstance(opened, dict) else desk.close({}, opened, None)
    assert (made["decision"] is None) == bool(made["exit"])
    assert made["decision"] is not None or made["said"]
