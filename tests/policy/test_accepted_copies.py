"""What a person accepted: a copy that agents cannot reach, and what counts only after a person trusts it."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

import command_line
import plugin_folders
from anyplug.policy.engine import Engine
from policy_projects import GLOBAL_EVALUATE, answer, ask, bash, decision, event, policy, project, verdict
from rows import each_row

pytestmark = pytest.mark.anyio

HELD = "policies that you accepted"
DENY = policy("opencode.p", decision("deny", "never", rule="NEVER"))
ALLOW = policy("opencode.p", decision("deny", "never", rule="NEVER", when="false"))
PUBLISHES = 'contains(input.tool_input.command, "npm publish")'
MODIFY = """
modify contains {
	"rule_id": "SAFE", "reason": "safer", "severity": "LOW", "updated_input": {"command": "echo %s"}
}
"""
SIGNAL = policy("opencode.p", decision("deny", "on main", when='input.signals.s == "main"'), signals=["s"])
P = ".cupcake/policies/opencode/p.rego"


@pytest.mark.claim("loosening-waits")
@pytest.mark.parametrize("verb", ["halt", "deny", "block", "ask"])
async def test_a_rule_that_was_taken_out_holds_until_a_person_accepts_that(verb):
    project({"p": policy("opencode.p", decision(verb, "never", rule="NEVER"))}, trust=False)
    before = await ask(bash("ls"))
    plugin_folders.write(P, ALLOW)
    after = await ask(bash("ls"))
    assert after["decision"] == before["decision"]
    assert after["rules"] == before["rules"]
    assert any(HELD in line and "anyplug policy trust" in line for line in after["said"])
    command_line.ok("policy", "trust", "--yes")
    assert await verdict(bash("ls")) == "allow"


async def test_a_rule_that_was_put_in_holds_at_once():
    project({"p": ALLOW})
    assert await verdict(bash("ls")) == "allow"
    plugin_folders.write(P, DENY)
    made = await ask(bash("ls"))
    assert made["decision"] == {"decision": "deny", "reason": "never"}
    assert made["said"] == []


async def test_what_neither_changes_says_nothing_of_it():
    project({"p": DENY})
    plugin_folders.write(P, DENY + "\n# a comment\n")
    made = await ask(bash("ls"))
    assert made["decision"] == {"decision": "deny", "reason": "never"}
    assert made["said"] == []


@pytest.mark.claim("loosening-waits")
@pytest.mark.parametrize("gone", [".cupcake", ".cupcake/policies/opencode", P, ".cupcake/system"])
async def test_taking_files_away_switches_nothing_off(gone):
    project({"p": DENY})
    if os.path.isdir(gone):
        shutil.rmtree(gone)
    else:
        os.unlink(gone)
    made = await ask(bash("ls"))
    assert made["decision"] is None or made["decision"]["decision"] == "deny"
    assert made["exit"] != 0 or made["rules"][0]["rule_id"] == "NEVER"


UNSEEN = [  # what the reader of commands lets through, and still changes the policies
    "git checkout -q other",
    "git switch -q other",
    "git reset -q --hard other",
    "git merge -q other",
    "git cherry-pick other",
    "git rebase -q other",
    "sh ./clean.sh",
    'x=46; rm -rf $(printf "\\\\$(printf %o $x)")cupcake',
    "x=ekacpuc.; rm -rf $(rev <<< $x)",
    "make -s wipe",
]


def run(command, folder):
    """Run a command as an agent's shell does."""
    who = {f"GIT_{role}_{key}": "a@localhost" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    subprocess.run(["bash", "-c", command], cwd=folder, env=os.environ | who, capture_output=True, check=True)


@pytest.mark.claim("loosening-waits")
@each_row("command", UNSEEN)
async def test_what_the_reader_of_commands_does_not_see_loosens_nothing(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unseen") / "work"
    rules = {"p": policy("opencode.p", decision("deny", "no", rule="NEVER", when=PUBLISHES))}
    project(rules, folder=str(folder), trust=False)
    plugin_folders.write(str(folder / "clean.sh"), "rm -rf .cupcake")
    plugin_folders.write(str(folder / "Makefile"), "wipe:\n\t@rm -rf .cupcake")
    run("git init -qb main && git add -A && git commit -qm a && git switch -qc other", folder)
    run("rm -r .cupcake/policies && git add -A && git commit -qm b && git switch -q main", folder)
    assert await verdict(bash("npm publish", cwd=str(folder))) == "deny"
    assert await verdict(bash(command, cwd=str(folder))) == "allow"
    run(command, folder)
    assert not (folder / P).exists()
    made = await ask(bash("npm publish", cwd=str(folder)))
    assert made["decision"] is None or made["decision"]["decision"] == "deny"


async def test_a_folder_that_is_gone_is_not_looked_for_further_up():
    project({"p": ALLOW})
    inner = project({"p": DENY}, folder="inner")
    shutil.rmtree(os.path.join(inner, ".cupcake"))
    made = await ask(bash("ls", cwd=inner))
    assert made["decision"] == {"decision": "deny", "reason": "never"}
    command_line.ok("policy", "trust", "--yes", inner)
    assert await verdict(bash("ls", cwd=inner)) == "allow"


async def test_a_builtin_that_was_switched_off_holds_until_a_person_accepts_that():
    book = 'builtins: {protected_paths: {enabled: %s, paths: ["vault/"]}}'
    project(rulebook=book % "true")
    project(rulebook=book % "false", trust=False)
    assert await verdict(event("write", filePath="vault/x", content="")) == "block"


async def test_a_copy_is_kept_for_every_agent_by_the_first_that_asks(home):
    project({"p": ALLOW}, trust=False)
    project({"p": policy("claude.p", decision("deny"))}, harness="claude", trust=False)
    await verdict(bash("ls"))
    os.unlink(".cupcake/policies/claude/p.rego")
    given = {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": os.getcwd(), "tool_name": "Bash"}
    made = await answer({**given, "tool_input": {"command": "ls"}}, "claude")
    assert made["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.claim("loosening-waits")
async def test_copies_hold_without_self_protection_too(home):
    project({"p": DENY})
    plugin_folders.write(P, ALLOW)
    assert await verdict(bash("ls"), engine=Engine(str(home), self_protection=False)) == "deny"


# What counts only with trust.


@pytest.mark.claim("untrusted-projects-run-nothing")
async def test_an_untrusted_projects_commands_do_not_run_and_the_cure_is_named():
    project({"p": SIGNAL}, rulebook="signals: {s: 'touch ran; echo main'}", trust=False)
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert f"`anyplug policy trust {os.getcwd()}`" in made["reason"]
    assert not os.path.exists("ran")
    shown = command_line.ok("policy", "trust", "--yes").err
    assert "s: touch ran; echo main" in shown
    assert await answer(bash("ls")) == {"decision": "deny", "reason": "on main"}
    assert os.path.exists("ran")


@pytest.mark.claim("untrusted-projects-run-nothing")
@pytest.mark.parametrize(
    "book",
    [
        'builtins: {git_pre_check: {enabled: true, checks: [{command: "touch ran"}]}}',
        'builtins: {always_inject_on_prompt: {enabled: true, context: [{command: "touch ran"}]}}',
        'builtins: {post_edit_check: {enabled: true, by_extension: {py: {command: "touch ran"}}}}',
    ],
)
async def test_nor_do_those_of_builtins(book):
    project({"p": ALLOW}, rulebook=book, trust=False)
    events = [
        bash("git commit -m x"),
        event("edit", "PostToolUse", filePath="a.py"),
        {"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": os.getcwd(), "prompt": "x"},
    ]
    for given in events:
        await ask(given)
    assert not os.path.exists("ran")
    project()
    for given in events:
        await ask(given)
    assert os.path.exists("ran")


@pytest.mark.claim("untrusted-projects-run-nothing")
async def test_a_command_that_changed_is_asked_about_again():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}")
    project(rulebook="signals: {s: 'touch ran; echo main'}", trust=False)
    assert "have not trusted" in (await answer(bash("ls")))["reason"]
    assert not os.path.exists("ran")
    shown = command_line.ok("policy", "trust", "--yes").err
    assert "-signals: {s: echo main}" in shown
    assert "+signals: {s: 'touch ran; echo main'}" in shown


@pytest.mark.claim("untrusted-projects-run-nothing")
async def test_a_script_whose_content_changed_does_not_run():
    script = {"signals/s.sh": "#!/bin/sh\necho main\n"}
    project({"p": SIGNAL}, **script)
    assert await answer(bash("ls")) == {"decision": "deny", "reason": "on main"}
    plugin_folders.write(".cupcake/signals/s.sh", "#!/bin/sh\ntouch ran; echo other\n", 0o755)
    assert "have not trusted" in (await answer(bash("ls")))["reason"]
    assert not os.path.exists("ran")


@pytest.mark.claim("loosening-waits")
@pytest.mark.parametrize("gone", [[".cupcake"], [P, ".cupcake/signals/s.sh"]])
async def test_a_rule_whose_script_was_taken_away_with_it_refuses(gone):
    project({"p": SIGNAL}, **{"signals/s.sh": "#!/bin/sh\necho main\n"})
    for path in gone:
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert "its script is missing" in made["reason"]


async def test_a_change_elsewhere_leaves_trusted_commands_trusted():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}")
    plugin_folders.write(".cupcake/policies/opencode/q.rego", policy("opencode.q", decision("ask")))
    assert await answer(bash("ls")) == {"decision": "deny", "reason": "on main"}


@pytest.mark.claim("untrusted-projects-change-nothing")
async def test_an_untrusted_modify_refuses_and_a_trusted_one_changes():
    project({"p": policy("opencode.p", MODIFY % "safe")}, trust=False)
    made = await ask(bash("rm x"))
    assert made["decision"]["decision"] == "deny"
    assert "anyplug policy trust" in made["decision"]["reason"]
    assert made["rules"][0]["rule_id"] == "SAFE"
    command_line.ok("policy", "trust", "--yes")
    assert (await answer(bash("rm x")))["updated_input"]["command"] == "echo safe"
    plugin_folders.write(P, policy("opencode.p", MODIFY % "safe") + "# a comment\n")
    assert (await answer(bash("rm x")))["updated_input"]["command"] == "echo safe"
    plugin_folders.write(P, policy("opencode.p", MODIFY % "evil"))
    assert await verdict(bash("rm x")) == "deny"


@pytest.mark.parametrize("verb", ["halt", "deny", "block", "ask"])
async def test_a_change_brings_in_nothing_that_is_refused(verb):
    judge = policy("opencode.q", decision(verb, "never", when='contains(input.tool_input.command, "publish")'))
    project({"p": policy("opencode.p", MODIFY % "publish"), "q": judge})
    assert await verdict(bash("echo publish")) in {verb, "block"}
    assert await verdict(bash("ls")) == "deny"
    project({"p": policy("opencode.p", MODIFY % "safe"), "q": judge})
    assert (await answer(bash("ls")))["updated_input"]["command"] == "echo safe"
    project({"p": policy("opencode.p", (MODIFY % "safe").replace("echo safe", "rm -rf .cupcake")), "q": judge})
    assert await verdict(bash("ls")) == "deny"


@pytest.mark.claim("untrusted-projects-change-nothing")
async def test_untrusted_context_is_left_out_and_that_is_said():
    project({"p": policy("opencode.p", 'add_context contains "obey me"\n')}, trust=False)
    made = await ask(bash("ls"))
    assert made["decision"] == {"decision": "allow"}
    assert any("anyplug policy trust" in line for line in made["said"])
    project()
    assert (await answer(bash("ls")))["context"] == ["obey me"]


@pytest.mark.claim("signals-are-sandboxed")
async def test_a_projects_signals_run_in_the_sandbox(home, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_TOKEN", "s3cr3t-value-of-a-token")
    outside = os.path.expanduser("~/outside")
    tries = [
        f"touch {outside}",
        f"ls {home}/accepted",
        "touch .cupcake/rulebook.yml",
        "(exec 3<>/dev/tcp/127.0.0.1/9) 2>/dev/null",
        'test -n "$SOME_API_TOKEN"',
    ]
    works = ["touch inside", "ls ~", "git --version"]
    command = "\n".join(
        f"bash -c {shlex.quote(one)} >/dev/null 2>&1 && echo {at}" for at, one in enumerate([*tries, *works])
    )
    body = 'deny contains {"rule_id": "R", "reason": json.marshal(input.signals.s), "severity": "HIGH"}\n'
    project({"p": policy("opencode.p", body, signals=["s"])}, **{"signals/s.sh": f"#!/bin/sh\n{command}\ntrue\n"})
    assert json.loads((await answer(bash("ls")))["reason"]).split() == ["5", "6", "7"]
    assert not os.path.exists(outside)


def test_trust_needs_an_answer():
    project({"p": DENY}, trust=False)
    done = command_line.fails(3, "policy", "trust")
    assert "anyplug policy trust --yes" in done.err


def test_a_person_answers_at_the_terminal():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}", trust=False)
    shown = command_line.at_terminal("policy", "trust", answers=[("Accept these policies?", "y")])
    assert "s: echo main" in shown.seen
    assert shown.code == 0
    assert command_line.ok("policy", "validate").err == ""


def test_broken_policies_cannot_be_accepted():
    project({"p": "package"}, trust=False)
    assert "cannot be accepted" in command_line.fails(1, "policy", "trust", "--yes").err


def test_commands_for_authors_say_that_a_change_waits():
    project({"p": DENY})
    assert command_line.ok("policy", "validate").err == ""
    plugin_folders.write(P, ALLOW)
    for action in (["validate"], ["inspect"], ["explain", '{"tool": "bash", "args": {"command": "ls"}}']):
        assert "not allow more, until `anyplug policy trust` accepts them" in command_line.ok("policy", *action).err


def test_init_accepts_what_it_wrote_and_asks_about_what_was_there():
    assert "trust" not in command_line.ok("policy", "init").err
    os.mkdir("other")
    project({"p": SIGNAL}, folder="other", rulebook="signals: {s: echo main}", trust=False)
    assert "anyplug policy trust" in command_line.ok("policy", "init", "other").err


def test_connecting_says_what_waits_for_trust():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}", trust=False)
    assert "anyplug policy trust" in command_line.ok("connect", "opencode", "--policy").err
    command_line.ok("policy", "trust", "--yes")
    assert "anyplug policy trust" not in command_line.ok("connect", "opencode", "--policy").err


def test_trust_can_be_taken_back():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}")
    command_line.ok("policy", "trust", "--revoke")
    given = json.dumps(bash("ls"))
    assert "have not trusted" in command_line.ok("eval", "--harness", "opencode", stdin=given).json["reason"]


# Copies cannot be left behind, lost or got round.


@pytest.mark.claim("loosening-waits")
async def test_a_link_in_the_place_of_a_project_leaves_no_copy_behind(tmp_path):
    folder = project({"p": DENY}, folder=str(tmp_path / "p"))
    plugin_folders.write(os.path.join(folder, P), ALLOW)
    os.rename(folder, tmp_path / "q")
    os.symlink("q", folder)
    assert await verdict(bash("ls", cwd=folder)) == "deny"
    command_line.ok("policy", "trust", "--yes", folder)
    assert await verdict(bash("ls", cwd=folder)) == "allow"


@pytest.mark.claim("loosening-waits")
async def test_a_link_that_leads_to_another_project_now_leaves_no_copy_behind(tmp_path):
    project({"p": DENY}, folder=str(tmp_path / "one"), trust=False)
    project({"p": ALLOW}, folder=str(tmp_path / "two"), trust=False)
    link = tmp_path / "link"
    link.symlink_to("one")
    assert await verdict(bash("ls", cwd=str(link))) == "deny"
    link.unlink()
    link.symlink_to("two")
    assert await verdict(bash("ls", cwd=str(link))) == "deny"


@pytest.mark.claim("loosening-waits")
@pytest.mark.parametrize("gone", [(), (".cupcake",)])
async def test_a_copy_that_is_gone_is_missed(home, gone):
    project({"p": DENY}, trust=False)
    await verdict(bash("ls"))
    plugin_folders.write(P, ALLOW)
    shutil.rmtree(home / "accepted")
    for path in gone:
        shutil.rmtree(path)
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert f"`anyplug policy trust {os.getcwd()}`" in made["reason"]
    command_line.ok("policy", "trust", "--yes")
    if not gone:
        assert await verdict(bash("ls")) == "allow"


@pytest.mark.claim("loosening-waits")
async def test_a_nested_folder_of_policies_can_only_be_stricter():
    project({"p": DENY})
    inner = project({"p": ALLOW}, folder="vendor", trust=False)
    assert await answer(bash("ls", cwd=inner)) == {"decision": "deny", "reason": "never"}
    project({"p": ALLOW})
    project({"p": DENY}, folder="vendor", trust=False)
    assert await verdict(bash("ls", cwd=inner)) == "deny"
    project({"p": ALLOW}, folder="vendor")
    assert await verdict(bash("ls", cwd=inner)) == "allow"


async def test_signals_of_each_folder_are_its_own():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}")
    inner = project({"p": SIGNAL}, folder="inner", rulebook="signals: {s: echo other}")
    assert await answer(bash("ls", cwd=inner)) == {"decision": "deny", "reason": "on main"}


async def test_after_a_broken_edit_the_accepted_copy_decides_without_a_daemon():
    project({"p": DENY})
    plugin_folders.write(P, "package")
    made = await ask(bash("ls"))
    assert made["decision"] == {"decision": "deny", "reason": "never"}
    assert any(P in line for line in made["said"])


# The person's own policies.


@pytest.mark.claim("agents-cannot-say-it")
@pytest.mark.parametrize("variable", ["", "XDG_CONFIG_HOME"])
async def test_the_folder_of_the_persons_own_policies_is_protected_before_it_exists(
    tmp_path, monkeypatch, home, variable
):
    own = os.path.expanduser("~/.config/cupcake")
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "other"))
        own = str(tmp_path / "other" / "cupcake")
    project({"p": ALLOW})
    engine = Engine(str(home))
    tries = [
        event("write", filePath=f"{own}/rulebook.yml", content="x"),
        bash(f"echo x > {own}/rulebook.yml"),
        bash(f"cp -r evil {own}"),
    ]
    for given in tries:
        assert await verdict(given, engine=engine) == "deny"
    os.makedirs(own)
    for given in tries:
        assert await verdict(given, engine=engine) == "deny"


@pytest.mark.claim("untrusted-projects-run-nothing")
async def test_commands_that_were_planted_among_the_persons_own_do_not_run():
    project({"p": ALLOW})
    own = os.path.expanduser("~/.config/cupcake")
    plugin_folders.write(f"{own}/rulebook.yml", "signals: {s: 'touch ran; echo main'}")
    plugin_folders.write(
        f"{own}/policies/opencode/g.rego", SIGNAL.replace("cupcake.policies.opencode", "cupcake.policies")
    )
    plugin_folders.write(f"{own}/policies/opencode/system/evaluate.rego", GLOBAL_EVALUATE)
    made = await answer(bash("ls"))
    assert made["decision"] == "deny"
    assert "`anyplug policy trust --global`" in made["reason"]
    assert not os.path.exists("ran")
    assert "s: touch ran; echo main" in command_line.ok("policy", "trust", "--global", "--yes").err
    assert await answer(bash("ls")) == {"decision": "deny", "reason": "on main"}
    assert os.path.exists("ran")
    plugin_folders.write(f"{own}/rulebook.yml", "signals: {s: 'touch other; echo x'}")
    assert "policy trust --global" in (await answer(bash("ls")))["reason"]
    assert not os.path.exists("other")


# Signals that cannot be run.


@pytest.mark.parametrize(
    "command", ["./nope.sh", "nosuchprog", "kill -9 $$", "sh -c 'kill -9 $$'; exit 137", "''", "./plain"]
)
async def test_a_signal_that_cannot_be_run_refuses_and_says_why(command):
    plugin_folders.write("./plain", "#!/bin/sh\n")
    project({"p": SIGNAL}, rulebook=f"signals: {{s: {json.dumps(command if command != chr(39) * 2 else '')}}}")
    made = await ask(bash("ls"), debug=True)
    assert made["decision"]["decision"] == "deny"
    assert made["rules"][0]["rule_id"] == "SIGNAL_FAILED"
    assert any("refuses" in line and "hint:" in line for line in made["said"])
    assert any(line.startswith("DEBUG: the signal 's' did not answer") for line in made["said"])


async def test_scripts_of_the_project_can_be_run_by_signals():
    plugin_folders.write("scripts/branch.sh", "#!/bin/sh\necho main\n", 0o755)
    project({"p": SIGNAL}, rulebook="signals: {s: ./scripts/branch.sh}")
    assert await answer(bash("ls")) == {"decision": "deny", "reason": "on main"}


# What is shown is what is accepted.


@pytest.mark.claim("untrusted-projects-run-nothing")
def test_what_changes_while_the_question_stands_is_shown_again():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}", trust=False)

    with command_line.Terminal("policy", "trust") as shown:
        shown.sees("Accept these policies?")
        plugin_folders.write(".cupcake/rulebook.yml", "signals: {s: touch evil}")
        shown.types("y")
        shown.sees("touch evil")
        shown.types("n")
    assert "have changed since they were shown" in shown.seen
    assert shown.code != 0
    given = json.dumps(bash("ls"))
    assert "have not trusted" in command_line.ok("eval", "--harness", "opencode", stdin=given).json["reason"]


def test_trust_is_kept_though_nobody_reads_what_it_prints():
    project({"p": SIGNAL}, rulebook="signals: {s: echo main}", trust=False)
    subprocess.run(f"{sys.executable} -m anyplug policy trust --yes 2>&1 | head -c 1", shell=True, check=True)
    assert command_line.ok("policy", "trust", "--json").json["trusted"]
    assert "trust" not in command_line.ok("policy", "validate").err


def test_trust_shows_scripts_and_changes_line_by_line_with_their_tabs():
    project({"p": SIGNAL}, trust=False, **{"signals/s.sh": "#!/bin/sh\n\techo \x1b[31mmain\n"})
    shown = command_line.ok("policy", "trust", "--yes").err
    assert "| #!/bin/sh\n| \techo \\x1b[31mmain\n" in shown
