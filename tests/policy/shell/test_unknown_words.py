"""Words of commands that are not fully known: what may stand for something protected is refused, what is not is not."""

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plugin_folders
from anyplug.policy import accepted_copies, self_protection
from anyplug.policy.agent_events import read
from anyplug.policy.engine import Engine
from anyplug.policy.eval_requests import EvalRequests
from anyplug.policy.shell import syntax
from policy_projects import ask, bash, decision, event, policy, project, verdict
from random_examples import at_most
from rows import each_row

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent.parent


def _commands(name):
    lines = (HERE / name).read_text().splitlines()
    return [line.replace("\\n", "\n").replace("VENV", sys.prefix) for line in lines if line]


@pytest.fixture(autouse=True)
def own(home, monkeypatch):
    """Use the usual home, and give the person policies and gates to lose."""
    user = os.path.expanduser("~")
    monkeypatch.setenv("ANYPLUG_HOME", os.path.join(user, ".local/share/anyplug"))
    for name in (".local/share/anyplug", ".config/cupcake/policies", ".config/opencode"):
        os.makedirs(os.path.join(user, name), exist_ok=True)
    plugin_folders.write(os.path.join(user, ".local/share/anyplug/settings.toml"), "")
    project(evaluate=None, trust=False)
    plugin_folders.write(".opencode/plugin/anyplug-policy.js", "")
    plugin_folders.write(".claude/settings.json", "{}")
    plugin_folders.write(".opencode/plugin/own.ts", "")
    for name in (
        *("anyplug/settings.toml", ".local/share/anyplug/settings.toml", ".config/cupcake/rulebook.yml"),
        *(".claude/settings.json", ".opencode/plugin/a.js"),
    ):
        plugin_folders.write(f"X/{name}", "")  # a folder to copy over what is protected, and others that are harmless
    for name in ("template/a.txt", "template/settings.json", "template/.vim/x", "build/a.js", "src/a.ts", "out/a"):
        plugin_folders.write(name, "")
    for name in ("./settings.json", "./README.md", "./x"):
        plugin_folders.write(name, "")
    for archive, member in (("h.tar", ".local/share/anyplug/settings.toml"), ("template.tar", "a.txt")):
        with tarfile.open(archive, "w") as tar:
            tar.add("x", member)
    return os.path.join(user, ".local/share/anyplug")


@pytest.mark.claim("agents-cannot-say-it")
@each_row("command", _commands("hidden_commands.txt"))
async def test_a_word_that_may_be_something_protected_is_refused(own, command):
    command = command.replace("PROJECT", os.getcwd())
    assert await verdict(bash(command), engine=Engine(own)) == "deny"


@each_row("command", _commands("honest_commands.txt"))
async def test_what_agents_do_every_day_is_allowed(own, command):
    command = command.replace("PROJECT", os.getcwd())
    assert await verdict(bash(command), engine=Engine(own)) == "allow"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("exec", {"command": "anyplug", "args": ["policy", "trust", "--yes"]}),
        ("exec", {"program": "anyplug", "args": ["stop"]}),
        ("exec", {"argv": ["rm", "-rf", ".cupcake"]}),
        ("batch", {"tool_calls": [{"tool": "bash", "parameters": {"command": "rm -rf .cupcake"}}]}),
    ],
)
async def test_a_command_is_seen_in_whatever_shape_a_tool_is_given_it(own, tool, arguments):
    assert await verdict(event(tool, **arguments), engine=Engine(own)) == "deny"


PIECES = st.sampled_from(
    [
        *("rm -rf ", "cd ", "echo ", ".cup", "cake", "any", "plug", "$x", "${x", "${x/a/b}", "${x:1}", "}", "$(", ")"),
        *("`", "'", '"', "\\", "a*", "[[:alpha:]]", "[^x]", "[", "]", "@(", "!(", "|", ";", "&&", "\n", " ", "x="),
        *("x+=", "x=(", "for x in ", "; do ", "; done", "read x <<< ", "printf -v x %s ", "set -- ", "f() { ", " }"),
        *(
            "xargs -I{} ",
            "{}",
            "{a,b}",
            "<<E\n",
            "E\n",
            "ln -s ",
            "~/",
            "/",
            "$'\\x00'",
            "\0",
            "\ue010",
            "| sh",
            "eval ",
        ),
        *(
            "base64 -d",
            "tr a-z b-z ",
            "$((",
            "))",
            "case x in ",
            "esac",
            "$1",
            "$@",
            "${!x}",
            "> ",
            "%",
            "é",
            "\U0001f600",
        ),
    ]
)


@settings(max_examples=at_most(400), deadline=None)
@given(st.lists(PIECES, max_size=40))
def test_no_command_makes_the_reader_fail(pieces):
    made = read("opencode", bash("".join(pieces), cwd="/w"))
    self_protection.finding(made, ["/w/.cupcake", "/h/.local/share/anyplug"])


@each_row(
    "part",
    [
        *(
            "$x",
            "${x",
            "${x:-",
            "x=$x$x;",
            "x+=$x;",
            "for x in a b;",
            "a=(",
            "@(",
            "[",
            "[[:a",
            "ln -s a$x b$x;",
            "f a;",
        ),
        *("read x;", "rm .c$x ", "rm ~/.config/$x$y ", "x=(a b);rm $x$x$x;", "$(echo a", "`echo a`", "{a,b}"),
        "echo a|sh;",
    ],
)
def test_the_work_grows_with_the_length_of_a_command(part):
    counts = []
    for size in (2_000, 8_000):
        made = read("opencode", bash(part * (size // len(part)), cwd="/w"))
        seen = 0

        def count(*_):
            nonlocal seen
            seen += 1

        syntax.read.cache_clear()
        sys.setprofile(count)
        try:
            self_protection.finding(made, ["/w/.cupcake", "/h/.local/share/anyplug"])
        finally:
            sys.setprofile(None)
        counts.append(seen)
    assert counts[1] < counts[0] * 10 + 50_000


async def test_going_to_a_folder_that_is_not_known_stops_nothing(own):
    assert await verdict(bash('cd "$(echo a*)"; ls'), engine=Engine(own)) == "allow"


NO_PUBLISH = decision("deny", "no", when='contains(input.tool_input.command, "npm publish")')


@pytest.mark.parametrize("harness", ["opencode", "claude", "anyplug"])
async def test_an_error_of_our_own_is_a_refusal_with_its_reason(own, harness, monkeypatch):
    project({"p": policy(f"{harness}.p", NO_PUBLISH)}, harness=harness, trust=False)
    monkeypatch.setattr(self_protection, "finding", lambda *_: os.stat("a\0b"))  # stands for any fault of ours
    asked = bash("npm publish") | {"tool_name": "Bash", "tool_input": {"command": "npm publish"}}
    made = await EvalRequests(Engine(own)).answer({"harness": harness, "event": asked}, cwd=os.getcwd())
    assert made["exit"] == 0
    assert made["verb"] == "deny"
    assert "embedded null byte" in json.dumps(made["decision"])


@pytest.mark.claim("loosening-waits")
async def test_a_deleted_home_is_missed_and_what_is_there_is_not_taken_as_new(own):
    project({"p": policy("opencode.p", NO_PUBLISH)}, trust=False)
    assert await verdict(bash("npm publish"), engine=Engine(own)) == "deny"
    shutil.rmtree(own)
    project({"p": policy("opencode.p", NO_PUBLISH.replace("npm", "xnpm"))}, trust=False)
    made = await ask(bash("npm publish"), engine=Engine(own))
    assert made["decision"]["decision"] == "deny"
    assert "anyplug policy trust" in made["decision"]["reason"]
    accepted_copies.accept(own, os.path.abspath(".cupcake"), trusted=True)
    assert await verdict(bash("npm publish"), engine=Engine(own)) == "allow"


async def test_another_home_leaves_nothing_beside_the_usual_one(home):
    project({"p": policy("opencode.p", NO_PUBLISH)}, trust=False)
    assert await verdict(bash("ls"), engine=Engine(str(home))) == "allow"
    assert not os.path.exists(os.path.expanduser("~/.local/state/anyplug/accepted"))


PUBLISHING = """
modify contains {"rule_id": "M", "reason": "r", "updated_input": {"command": "%s"}} if {
	input.tool_input.command == "ls"
}
"""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [("npm publish", "deny"), ("rm -rf .cupcake", "deny"), ("cp settings.json .claude", "deny"), ("ls -l", "allow")],
)
async def test_a_call_that_a_policy_changed_is_decided_about_as_it_is_then(own, changed, expected):
    rules = {"p": policy("opencode.p", NO_PUBLISH), "q": policy("opencode.q", PUBLISHING % changed)}
    project(rules)
    accepted_copies.accept(own, os.path.abspath(".cupcake"), trusted=True)
    made = (await ask(bash("ls"), engine=Engine(own)))["decision"]
    assert made["decision"] == expected
    assert made.get("updated_input") == ({"command": "ls -l"} if expected == "allow" else None)
