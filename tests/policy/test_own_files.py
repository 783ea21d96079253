"""The rule that is always on: policies and our own files are not changed by those whom they bind."""

import os

import pytest
from governing import answer, ask, bash, decision, event, policy, project, verdict
from hypothesis import given, settings
from hypothesis import strategies as st

import making
from anyplug.frontends.cli.commands import COMMANDS
from anyplug.frontends.cli.policy import ACTIONS
from anyplug.policy import own_files
from anyplug.policy.engine import Engine
from anyplug.policy.events import read

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _project():
    project(evaluate=None)
    os.symlink(".cupcake/rulebook.yml", "rules.yml")
    making.write(".opencode/plugin/anyplug-policy.js", "")
    os.mkdir("build")


CHANGES = [
    "rm -rf .cupcake",
    "rm -rf ./.cupcake/policies",
    "rm -rf .",
    "rm -rf $PWD/../work",
    "rm -rf .cup*",
    "rm -rf .[c]upcake",
    "echo x > .cupcake/rulebook.yml",
    "echo x >> '.cup'cake/rulebook.yml",
    "cat a | tee .cupcake/x",
    "sed -i s/deny/allow/ .cupcake/policies/opencode/p.rego",
    "cd .cupcake && rm x",
    "mv .cupcake away",
    "find .cupcake -delete",
    "find .cupcake -exec rm {} +",
    "python -c \"open('.cupcake/x', 'w')\"",
    "bash -c 'rm -r .cupcake'",
    "ls $(rm -r .cupcake)",
    'echo "$(rm -r .cupcake)"',
    "git checkout HEAD~1 -- .cupcake",
    "ln -s /tmp/x .cupcake/y",
    "chmod -R 777 .cupcake",
    "RM -RF .CUPCAKE",
    "eval 'rm -r .cupcake'",
    "anyplug policy init .cupcake",
    "rm .opencode/plugin/anyplug-policy.js",
    "cd .opencode/plugin && echo > anyplug-policy.js",
    "sed --in-place=.old 1d .cupcake/rulebook.yml",
    "sed -Ei 1d .cupcake/rulebook.yml",
    "sed -n 'w .cupcake/rulebook.yml' x",
    "sort --output=.cupcake/rulebook.yml x",
    "sort --outp .cupcake/rulebook.yml x",
    "sort -ro.cupcake/rulebook.yml x",
    "uniq x .cupcake/rulebook.yml",
    "tree -o .cupcake/rulebook.yml",
    "find . -fprint0 .cupcake/rulebook.yml",
    "find . -fls .cupcake/rulebook.yml",
    "git diff --output=.cupcake/rulebook.yml",
    "git grep -O./x deny .cupcake",
    "awk 'BEGIN { print | \"tee .cupcake/rulebook.yml\" }'",
    "awk -i inplace 1 .cupcake/rulebook.yml",
    "rg --pre ./x deny .cupcake",
    "less -o .cupcake/rulebook.yml x",
    "rm " + ".[c" * 10_000,
    "find . -delete",
    "find -delete",
    "find . -name '*.rego' -delete",
    "find . -iname 'EVAL*' -delete",
    "find . ! -name '*.py' -delete",
    "find . -name '*.py' -o -delete",
    "find . -type f -exec rm {} +",
    "find . -type f -execdir sh -c 'rm $0' {} +",
    "find . -type f | xargs rm",
    "ls -A | xargs rm -rf",
    "rm -rf ../*",
    "rm -rf ../wor?",
    "shopt -s dotglob; rm -rf *",
    "cd .. && rm -rf work",
    "rm -rf .cup{cake,}",
    "D=.cup; rm -rf ${D}cake",
    "D=.cup && E=cake && rm -rf $D$E",
    "export D=.cup; rm -rf ${D}cake",
    "rm -rf ${D}cake",
    "rm -rf ${D:-.cup}cake",
    "T=$PWD; rm -rf $T",
    "git clean -fdx",
    "git clean -f -d -x",
    "git -C . clean -fdx",
    "git stash -u",
    "git stash --include-untracked",
    "git stash push --all",
    "git checkout -- .",
    "git restore .",
    "rm -rf .opencode",
    "anyplug stop",
    "anyplug approve x",
    "anyplug policy init",
    "anyplug policy trust --yes",
    "anyplug --home list approve x",
    "anyplug jobs 1 --cancel",
    "/usr/local/bin/anyplug stop",
    "python -m anyplug stop",
    "python3.11 -m anyplug.__main__ policy trust",
    "python -c 'from anyplug.policy import accepted'",
    "env X=1 anyplug stop",
    "X=1 anyplug stop",
    "sudo -u ada anyplug grant x network",
    "echo stop | xargs anyplug",
    "sh -c 'anyplug stop'",
    'bash -lc "anyplug policy trust"',
    "true && (anyplug stop)",
    "uvx anyplug stop",
    "timeout 5 anyplug stop",
    "busybox anyplug stop",
    "$(which anyplug) stop; anyplug stop",
    "cupcake init",
]
READS = [
    "cat .cupcake/rulebook.yml",
    "ls -la .cupcake | head -3",
    "grep -r deny .cupcake",
    "git diff .cupcake",
    "git add .cupcake && git commit -m 'new .cupcake rules'",
    "cat .cupcake/rulebook.yml > copy.yml",
    "anyplug policy test --policy-dir .cupcake",
    "rm -rf build",
    "ls",
    "echo done",
    "sed -n 1,5p .cupcake/rulebook.yml",
    "sed -i 1d README.md",
    "find .cupcake -name a -o -name b",
    "git diff -- .cupcake",
    "find . -name '*.pyc' -delete",
    "find build -delete",
    "find . -type f -exec grep -l TODO {} +",
    "find . -name '*.py' | xargs sed -i s/a/b/",
    "find . -type f | xargs wc -l",
    "rm -rf $BUILD",
    "rm -rf *",
    "rm -rf build/*",
    "cd build && rm -rf *",
    "git clean -n",
    "git clean -fdx build",
    "git clean -fdx -e .cupcake",
    "git stash",
    "git stash pop",
    "git checkout main",
    "git pull",
    "which anyplug",
    "command -v anyplug",
    "grep -r anyplug README.md",
    "mkdir anyplug",
    "pip install anyplug",
    "anyplug --version",
    "anyplug approve --help",
    "anyplug --home x list",
    "python -m anyplug tools",
    "env anyplug audit",
    "anyplug jobs",
]


@pytest.mark.claim("agents-cannot-say-it")
@pytest.mark.parametrize("command", CHANGES)
async def test_a_command_that_changes_policies_is_refused(command):
    made = await answer(bash(command))
    assert made["decision"] == "deny"
    assert "may not change" in made["reason"]


@pytest.mark.parametrize("key", ["cwd", "workdir"])
async def test_a_command_that_runs_among_the_policies_may_only_read(key):
    where = {key: os.path.abspath(".cupcake")}
    assert await verdict(event("bash", command="rm rulebook.yml", **where)) == "deny"
    assert await verdict(event("bash", command="cat rulebook.yml", **where)) == "allow"


@pytest.mark.parametrize("command", READS)
async def test_a_command_that_only_reads_them_is_not(command):
    assert await verdict(bash(command)) == "allow"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write", {"filePath": ".cupcake/rulebook.yml", "content": ""}),
        ("write", {"filePath": "rules.yml", "content": ""}),
        ("edit", {"filePath": "a/../.cupcake/x", "oldString": "", "newString": ""}),
        ("edit", {"filePath": "/somewhere/else/.cupcake/x"}),
        ("apply_patch", {"patchText": "*** Begin Patch\n*** Delete File: .cupcake/rulebook.yml\n*** End Patch"}),
        ("apply_patch", {"patchText": "*** Update File: a\n*** Move to: .cupcake/a\n"}),
        ("filesystem_write_file", {"path": ".cupcake/x"}),
        ("filesystem_move", {"from": {"path": "a"}, "to": [{"path": ".cupcake/x"}]}),
        ("write", {"filePath": ".opencode/plugin/anyplug-policy.js", "content": ""}),
        ("write", {"filePath": "anyplug-policy.js", "content": ""}),
        ("filesystem_write", {"uri": "file:///x/.cupcake/y"}),
    ],
)
async def test_a_tool_that_writes_there_is_refused(tool, arguments):
    assert await verdict(event(tool, **arguments)) == "deny"


async def test_our_own_store_is_protected_and_what_plugins_write_is_not(home):
    assert await verdict(event("write", filePath=str(home / "settings.toml"))) == "deny"
    assert await verdict(event("write", filePath=str(home / "anyplug.db"))) == "deny"
    assert await verdict(event("write", filePath=str(home / "files" / "x" / "y.png"))) == "allow"
    assert await verdict(bash(f"rm -rf {home}")) == "deny"
    assert await verdict(bash(f"cat {home}/settings.toml")) == "allow"


async def test_a_link_into_the_policies_is_followed():
    os.symlink(".cupcake", "innocent")
    assert await verdict(event("write", filePath="innocent/rulebook.yml")) == "deny"
    assert await verdict(bash("rm innocent/rulebook.yml")) == "deny"


@pytest.mark.parametrize(("tool", "key"), [("read", "filePath"), ("grep", "path"), ("glob", "path"), ("list", "path")])
async def test_tools_that_read_may_look(tool, key):
    assert await verdict(event(tool, **{key: ".cupcake/rulebook.yml"})) == "allow"


async def test_a_text_that_is_written_elsewhere_may_speak_of_it():
    assert await verdict(event("write", filePath="README.md", content="see .cupcake/rulebook.yml")) == "allow"


@pytest.mark.parametrize("key", ["command", "cmd", "script"])
async def test_another_tool_that_runs_commands_is_read_as_a_shell(key):
    assert await verdict(event("terminal_run", **{key: "rm -rf .cupcake"})) == "deny"
    assert await verdict(event("terminal_run", **{key: "anyplug policy trust --yes"})) == "deny"
    assert await verdict(event("terminal_run", **{key: "npm test"})) == "allow"


def test_every_command_of_ours_is_known_as_one_that_reads_or_changes():
    assert set(COMMANDS) == own_files.READING_OURS | own_files.CHANGING_OURS
    assert set(ACTIONS) - own_files.READING_POLICY == {"init", "trust"}


async def test_the_users_own_rule_reason_and_verb_are_kept():
    rule = decision("block", "ask Ada first", rule="MINE", when='contains(input.tool_input.command, ".cupcake")')
    project({"p": policy("opencode.p", rule)})
    made = await ask(bash("rm -rf .cupcake"))
    assert made["decision"] == {"decision": "block", "reason": "ask Ada first"}
    assert [(one["rule_id"], one["verb"]) for one in made["rules"]] == [("MINE", "block")]


async def test_an_ask_of_the_users_does_not_weaken_it():
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("rm -rf .cupcake")) == "deny"


async def test_the_person_can_switch_it_off(home):
    made = Engine(str(home), self_protection=False)
    assert await verdict(bash("rm -rf .cupcake"), engine=made) == "allow"


QUOTED = st.lists(st.sampled_from(["'", '"', "\\", ""]), min_size=8, max_size=8)


@settings(max_examples=100, deadline=None)
@given(QUOTED, st.sampled_from(["rm -r ", "echo x >", "tee ", "true; rm ", "a && mv x "]))
def test_no_quoting_hides_the_folder(quotes, before):
    name = ".cupcake"
    hidden = "".join(
        f"\\{char}" if quote == "\\" else f"{quote}{char}{quote}" for quote, char in zip(quotes, name, strict=True)
    )
    made = read("opencode", bash(f"{before}{hidden}/x", cwd="/w"))
    assert own_files.finding(made, ["/w/.cupcake"]) is not None
