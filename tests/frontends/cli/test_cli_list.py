"""`list`, `tools`, `show` and `check`."""

import json
import os
import re
import subprocess
import sys

import pytest

import command_line
import plugin_folders
import zot_folders
from anyplug.runtime.processes.toolchain import find_node

LIST = {
    "name", "format", "version", "description", "path", "state", "health", "tier", "tools", "commands", "shadowed_by",
    "problems",
}  # fmt: skip
SHOW = LIST | {
    "permissions", "approval", "confinement", "config", "instructions", "environment_withheld", "digest", "process",
    "programs", "registrations",
}  # fmt: skip
TOOL = {"name", "model_name", "plugin", "format", "description", "input_schema", "tier"}


@pytest.mark.requirement("STV-28")
def test_list_has_exactly_the_promised_shape():
    plugin_folders.cyclop("plugins", "hello")
    (entry,) = command_line.ok("list", "--json").json
    assert set(entry) == LIST
    assert entry | {"problems": []} == {
        "name": "hello",
        "format": "cyclop",
        "version": "1.0.0",
        "description": "What hello does.",
        "path": os.path.abspath("plugins/hello"),
        "state": "new",
        "health": "idle",
        "tier": 1,
        "tools": ["hello"],
        "commands": [],
        "shadowed_by": None,
        "problems": [],
    }


HIDDEN = "module.exports = require('./' + 'main.js');\n"  # nobody can tell from the text what it exports
REGISTERS = "exports.register = (api) => api.registerTool({ name: 'odd.act', inputSchema: {}, run: () => 'done' });\n"


def test_a_folder_that_may_be_a_plugin_is_only_listed_with_all():
    plugin_folders.workbench("plugins", "odd", index=HIDDEN, files={"main.js": REGISTERS})
    plugin_folders.workbench("plugins", "bare", index=HIDDEN, package=None)
    assert command_line.ok("list", "--json").json == []
    (entry,) = command_line.ok("list", "--all", "--json").json
    assert (entry["name"], entry["format"], entry["state"], entry["tools"]) == ("odd", "workbench", "new", [])
    (problem,) = entry["problems"]
    assert "may be no plugin: it has index.js and package.json, as Node packages have" in problem["message"]
    assert f"anyplug approve {os.path.abspath('plugins/odd')}" in problem["hint"]
    assert problem["message"] in command_line.ok("list", "--all").out.replace("\n  ", " ")
    command_line.fails(4, "approve", "odd", "--yes")
    assert "its index.js is not that of a Workbench" in command_line.fails(4, "approve", "./plugins/bare", "--yes").err


@pytest.mark.skipif(find_node() is None, reason="there is no Node")
def test_a_folder_that_was_approved_by_path_is_a_plugin():
    folder = plugin_folders.workbench("plugins", "odd", index=HIDDEN, files={"main.js": REGISTERS})
    command_line.ok("approve", "./plugins/odd", "--yes")
    (entry,) = command_line.ok("list", "--json").json
    assert (entry["name"], entry["state"], entry["tools"], entry["problems"]) == ("odd", "approved", ["odd.act"], [])
    assert command_line.ok("call", "odd.act", "--yes").out == "done\n"
    plugin_folders.write(f"{folder}/main.js", REGISTERS.replace("done", "other"))
    assert command_line.ok("list", "--json").json[0]["state"] == "changed"
    command_line.ok("revoke", "odd")
    assert command_line.ok("list", "--json").json == []


@pytest.mark.parametrize("command", ["list", "tools"])
def test_looking_at_plugins_needs_no_event_loop(command):
    for make in (plugin_folders.cyclop, plugin_folders.stavrobot, plugin_folders.workbench):
        make("plugins", make.__name__)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "anyplug", command], capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "msgspec" in imported
    assert not imported & {"anyio", "asyncio", "mcp", "jsonschema_rs", "rich"}


@pytest.mark.requirement("CYC-38")
def test_a_problem_has_a_code_a_message_and_a_hint():
    plugin_folders.cyclop("plugins", "hello", tools=[])
    (entry,) = command_line.ok("list", "--json").json
    assert entry["state"] == "broken"
    assert {"code", "message", "hint"} <= set(entry["problems"][0])
    shown = command_line.ok("list").out
    assert "error: hello: plugin.json declares no tools" in shown
    assert "hint: add at least one entry" in shown


def test_list_can_be_narrowed_to_a_state():
    plugin_folders.cyclop("plugins", "first")
    plugin_folders.cyclop("plugins", "second")
    command_line.ok("deny", "first")
    assert [e["name"] for e in command_line.ok("list", "--json", "--state", "denied").json] == ["first"]
    done = command_line.ok("list", "--state", "broken")
    assert (done.out, done.err) == ("No plugin is broken.\n", "")


def test_tiers_are_explained_at_a_terminal_where_they_matter():
    plugin_folders.cyclop("plugins", "hello")
    assert "tier 2: " not in command_line.at_terminal("list").seen
    plugin_folders.stavrobot("plugins", "kit")
    assert "tier 1: runs once you have approved it; tier 2: also asks you" in command_line.at_terminal("list").seen
    assert "tier 2: " not in command_line.ok("list").err


def test_tools_has_exactly_the_promised_shape():
    plugin = plugin_folders.stavrobot("here", "kit")
    (tool,) = command_line.ok("-e", plugin, "tools", "--json").json
    assert set(tool) == TOOL
    assert (tool["name"], tool["model_name"], tool["plugin"], tool["tier"]) == ("kit.act", "kit_act", "kit", 2)
    assert tool["input_schema"]["properties"]["text"]["type"] == "string"


def test_tools_lists_only_what_can_be_called_unless_asked_for_all():
    plugin_folders.cyclop("plugins", "hello")
    done = command_line.ok("tools")
    assert done.out == "No tools can be called.\n"
    assert "1 plugin not approved: hello" in done.err
    assert command_line.ok("tools", "--json").json == []
    assert [tool["name"] for tool in command_line.ok("tools", "--json", "--all").json] == ["hello"]


def test_a_tool_is_shown_by_each_of_its_names_with_what_it_takes():
    plugin = plugin_folders.stavrobot("here", "kit", parameters={"n": {"type": "integer", "description": "How many.",
                                                                 "required": True}})  # fmt: skip
    for name in ("kit.act", "kit/act", "kit_act", "act"):
        shown = command_line.ok("-e", plugin, "tools", name).out
        assert "n (integer, required)  How many." in shown
        assert "for agents  kit_act" in shown
        assert command_line.ok("-e", plugin, "tools", name, "--json").json[0]["name"] == "kit.act"


def test_names_for_agents_are_listed_where_they_cannot_be_guessed():
    tools = [
        {"name": name, "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
        for name in ("see.it", "see it", "on")
    ]
    plain = plugin_folders.cyclop("here", "plain", tools=[tools[0], tools[2]])
    assert "AGENTS" not in command_line.ok("-e", plain, "tools").out
    both = plugin_folders.cyclop("here", "both", tools=tools)
    rows = [line.split() for line in command_line.ok("-e", both, "tools").out.splitlines()]
    assert rows[0] == ["TOOL", "FOR", "AGENTS", "PLUGIN", "DESCRIPTION"]
    assert rows[1] == ["see.it", "see_it", "both", "d"]
    assert rows[2][2].startswith("see_it_")
    assert command_line.ok("-e", both, "tools", rows[2][2], "--json").json[0]["name"] == "see it"


def test_a_tool_that_is_named_like_its_plugin_can_be_shown():
    plugin_folders.cyclop("plugins", "hello")
    assert "arguments   none" in command_line.ok("tools", "hello").out


def test_the_tools_of_one_plugin_are_listed_whatever_its_state():
    plugin_folders.stavrobot("plugins", "kit", tools={"one": plugin_folders.ANSWER, "two": plugin_folders.ANSWER})
    plugin_folders.cyclop("plugins", "other")
    done = command_line.ok("tools", "kit", "--json")
    assert [tool["name"] for tool in done.json] == ["kit.one", "kit.two"]
    assert "anyplug approve kit" in command_line.ok("tools", "kit").err
    assert "other" not in command_line.ok("tools", "kit").err


def test_an_unknown_tool_or_plugin_is_not_found_and_near_names_are_offered():
    plugin_folders.cyclop("plugins", "hello")
    assert "did you mean hello" in command_line.fails(4, "tools", "helo").err
    assert "did you mean hello?" in command_line.fails(4, "show", "helo").err
    for command in ("approve", "disable", "update", "remove", "config", "logs"):
        assert "no plugin is named 'nobody'" in command_line.fails(4, command, "nobody").err
    assert "no plugin is named 'nobody'" in command_line.fails(4, "grant", "nobody", "network").err


def test_show_has_exactly_the_promised_shape(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-12345678")
    plugin_folders.stavrobot(
        "plugins",
        "kit",
        instructions="Get a key.",
        config={"api_key": {"description": "The key.", "required": True}, "size": {"description": "", "default": 3}},
    )
    shown = command_line.ok("show", "kit", "--json").json
    assert set(shown) - {"found_at", "changes"} == SHOW
    assert shown["permissions"] == {"asked": ["network"], "granted": []}
    assert [(key["name"], key["secret"], key["set"]) for key in shown["config"]] == [
        ("api_key", True, False),
        ("size", False, False),
    ]
    assert shown["instructions"] == "Get a key."
    assert "SOME_API_KEY" in shown["environment_withheld"]
    assert (shown["process"], shown["registrations"], len(shown["digest"])) == (None, [], 64)


@pytest.mark.requirement("STV-08", "STV-28")
def test_show_tells_a_person_all_of_it_and_no_secret(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-12345678")
    folder = plugin_folders.stavrobot(
        "plugins", "kit", instructions="Get a key.", config={"api_key": {"description": "The key.", "required": True}}
    )
    plugin_folders.write(f"{folder}/config.json", '{"api_key": "open-sesame"}')
    done = command_line.ok("show", "kit")
    for text in ("kit", "Stavrobot", folder, "network: talk to other machines", "SOME_API_KEY", "api_key = •••",
                 "act: Does it.", "Instructions from the plugin's author, for you:\n\n| Get a key."):  # fmt: skip
        assert text in done.out
    assert "open-sesame" not in done.out + done.err + command_line.ok("show", "kit", "--json").out
    assert "sk-12345678" not in done.out + done.err


def test_a_plugin_is_found_by_its_folder_too():
    plugin_folders.cyclop("plugins", "hello")
    for name in ("plugins/hello", "./plugins/hello/", os.path.abspath("plugins/hello")):
        assert command_line.ok("show", name, "--json").json["name"] == "hello"


def test_a_folder_that_is_in_no_root_is_not_found_and_the_way_to_use_it_is_named():
    folder = plugin_folders.cyclop("here", "hello")
    done = command_line.fails(4, "show", f"./{folder}")
    assert f"anyplug --plugin {os.path.abspath(folder)}" in done.err
    assert command_line.ok("-e", folder, "show", f"./{folder}", "--json").json["name"] == "hello"


def test_a_linked_plugin_is_shown_with_where_the_link_leads(tmp_path):
    real = plugin_folders.cyclop(tmp_path / "real", "hello")
    os.mkdir("plugins")
    os.symlink(real, "plugins/hello")
    assert f"{os.path.abspath('plugins/hello')} -> {real}" in command_line.ok("show", "hello").out


@pytest.mark.requirement("CYC-38")
def test_one_broken_plugin_hides_no_other(tmp_path):
    plugin_folders.cyclop("plugins", "good")
    plugin_folders.write("plugins/half/plugin.json", '{"name": "half')
    os.mkdir("plugins/pipe")
    os.mkfifo("plugins/pipe/plugin.json")
    os.symlink(tmp_path / "nowhere", "plugins/dangling")
    os.mkdir("plugins/not-a-plugin")
    plugin_folders.stavrobot("plugins", "pipes")
    os.mkfifo("plugins/pipes/config.json")
    states = {entry["name"]: entry["state"] for entry in command_line.ok("list", "--json").json}
    assert states == {"good": "new", "half": "broken", "pipe": "broken", "dangling": "broken", "pipes": "new"}
    assert command_line.ok("show", "pipes").out


def test_a_manifest_cannot_forge_what_the_terminal_shows():
    plugin_folders.cyclop(
        "plugins", "hello", description="nice\x1b[2J\x1b[31mevil\u202e", permissions=["clipboard\x1b[0m"]
    )
    for words in (["list"], ["show", "hello"], ["check", "plugins/hello"]):
        done = command_line.run(*words)
        assert "\x1b" not in done.out + done.err
        assert "\u202e" not in done.out + done.err
    done = command_line.ok("approve", "hello", "--yes")
    assert "\x1b" not in done.out + done.err
    assert "niceevil" in done.err
    assert "warning: its texts have hidden characters" in done.err


def test_nor_can_it_pass_for_several_lines_of_ours():
    plugin_folders.cyclop(
        "plugins", "hello", description="nice\nApprove it?", permissions=["network:x\nhint: ok", "odd\nword"]
    )
    for words in (["list"], ["show", "hello"], ["approve", "hello", "--yes"], ["grant", "hello", "network"]):
        done = command_line.ok(*words)
        starts = ("Approve it?", "hint: ok", "word")
        assert not [line for line in (done.out + done.err).splitlines() if line.startswith(starts)], done


def test_check_finds_nothing_wrong_with_a_good_plugin():
    plugin_folders.cyclop("here", "hello")
    done = command_line.ok("check", "here/hello")
    assert done.out == "hello: Cyclop One plugin with 1 tool, no problems\n"
    assert command_line.ok("check", "here/hello", "--json").json == {
        "name": "hello",
        "format": "cyclop",
        "path": os.path.abspath("here/hello"),
        "tools": ["hello"],
        "problems": [],
    }


@pytest.mark.requirement("CYC-38")
def test_check_says_everything_that_is_wrong_each_with_the_cure():
    plugin_folders.cyclop("here", "hello", version="one", permissions=["telepathy"])
    os.chmod("here/hello/run", 0o644)
    done = command_line.run("check", "here/hello")
    assert done.code == 1
    for text in ("version 'one' is not a semantic version", "unknown permission 'telepathy'", "cannot be run"):
        assert text in done.out
    assert done.out.count("hint: ") == 3
    assert done.out.endswith("3 problems\n")
    problems = command_line.run("check", "here/hello", "--json").json["problems"]
    assert len(problems) == 3
    assert all(problem["code"] and problem["message"] and problem["hint"] for problem in problems)


def test_check_of_what_is_no_plugin_says_so():
    os.mkdir("empty")
    plugin_folders.write("empty/file", "text")
    assert "is not a plugin" in command_line.run("check", "empty").out
    assert command_line.run("check", "empty").code == 1
    assert command_line.run("check", "nowhere").code == 1
    assert "not a folder" in command_line.run("check", "empty/file").out


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("pluginz/hello", "does not exist", "did you mean {here}/plugins/hello?"),
        ("plugins/helo", "does not exist", "did you mean {here}/plugins/hello?"),
        ("xyzzy", "does not exist", "check its spelling"),
        ("plugins", "is not a plugin", "pass a plugin in it, such as {here}/plugins/bundle"),
        ("plugins/bundle/act", "is not a plugin", "inside the plugin 'bundle': pass {here}/plugins/bundle"),
        ("misnamed", "is not a plugin", "`mv {here}/misnamed/plugn.json {here}/misnamed/plugin.json`"),
        ("mute", "is not a plugin", "its index.js is not that of a Workbench plugin"),
        ("empty", "is not a plugin", "`anyplug new NAME` creates one"),
    ],
)
def test_a_wrong_folder_is_said_to_be_wrong_with_what_was_meant(given, message, hint):
    plugin_folders.cyclop("plugins", "hello")
    plugin_folders.stavrobot("plugins", "bundle")
    plugin_folders.write("misnamed/plugn.json", "{}")
    plugin_folders.write("misnamed/package.json", "{}")
    plugin_folders.write("mute/index.js", "exports.x = 1")
    os.mkdir("empty")
    hint = hint.format(here=os.getcwd())
    done = command_line.run("check", given)
    assert (done.code, message in done.out, hint in done.out) == (1, True, True), done
    for words in (("list", "--json"), ("list", "--state", "approved"), ("tools",)):
        assert command_line.run("-e", given, *words).code == 1
    listed = command_line.run("-e", given, "list")
    assert (listed.code, message in listed.out, hint in listed.out) == (1, True, True), listed
    tested = command_line.fails(1, "test", given)
    assert (message in tested.err, hint in tested.err) == (True, True), tested


def test_the_folder_of_a_plugin_may_be_named_like_the_plugin_and_is_this_one_by_default(monkeypatch):
    folder = plugin_folders.cyclop("plugins", "hello")
    assert command_line.ok("check", "hello").out == "hello: Cyclop One plugin with 1 tool, no problems\n"
    assert "did you mean hello?" in command_line.fails(4, "check", "helo").err
    assert "did you mean hello?" in command_line.fails(4, "test", "helo").err
    assert "anyplug test hello --record" in command_line.fails(2, "test", "hello").err
    monkeypatch.chdir(folder)
    assert command_line.ok("check").out == "hello: Cyclop One plugin with 1 tool, no problems\n"


def test_check_runs_nothing():
    plugin_folders.stavrobot("here", "kit", "#!/bin/sh\ntouch /tmp/ran", init={"entrypoint": "init.sh"})
    plugin_folders.write("here/kit/init.sh", f"#!/bin/sh\ntouch {os.path.abspath('ran')}\n", 0o755)
    command_line.ok("check", "here/kit")
    assert not os.path.exists("ran")


def test_a_plugin_that_is_switched_off_in_its_own_config_says_where():
    folder = plugin_folders.stavrobot("plugins", "kit")
    plugin_folders.write(f"{folder}/config.json", json.dumps({"permissions": []}))
    assert command_line.listed("kit")["state"] == "disabled"
    done = command_line.ok("approve", "kit", "--yes")
    assert done.out == "kit is approved, but it is turned off\n"
    assert "`anyplug config kit --enable TOOL` switches the tool on" in done.err
    done = command_line.fails(1, "enable", "kit")
    assert "'kit' cannot be enabled here: it is turned off" in done.err
    assert "`anyplug config kit --enable TOOL` switches the tool on" in done.err
    assert command_line.read_json(f"{folder}/config.json") == {"permissions": []}


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_tools_of_a_named_folder_that_cannot_be_used_are_an_error_and_the_others_are_listed(words):
    good = plugin_folders.cyclop("here", "good")
    plugin_folders.write("bad/plugin.json", "{")
    for folder, reason in (
        ("bad", "plugin.json is not valid JSON"),
        ("gone", f"the folder {os.path.abspath('gone')} does not exist"),
    ):
        done = command_line.run("-e", good, "-e", folder, "--no-discover", "tools", *words)
        assert done.code == 1
        assert "good" in done.out
        assert f"error: {folder}: {reason}" in done.err
        assert "hint: " in done.err
    assert "error" not in command_line.ok("-e", good, "--no-discover", "tools", *words).err


BROKEN = {
    "bad.js": ("function f( {", "JavaScript"),
    "bad.mjs": ("import x from './y.mjs'\nexport default {", "JavaScript"),
    "bad.sh": ("#!/bin/bash\nif true; then\n", "shell"),
    "bad.py": ("def f(:\n    pass\n", "Python"),
    "bad": ("#!/usr/bin/env bash\nfor\n", "shell"),
}
SOUND = {
    "good.js": "import { a } from './b.js';\nexport const b = await a;\n",
    "good.cjs": "module.exports = require('nowhere');\n",
    "good.sh": "#!/bin/sh\necho hello\n",
    "good.py": "import nowhere\n",
}


def test_check_parses_the_scripts_of_every_format_and_runs_none():
    folder = plugin_folders.cyclop("here", "hello")
    for name, text in SOUND.items():
        plugin_folders.write(f"{folder}/{name}", text)
    plugin_folders.write(f"{folder}/package.json", '{"type": "module"}')
    assert command_line.ok("check", folder, "--json").json["problems"] == []
    for name, (text, _) in BROKEN.items():
        plugin_folders.write(f"{folder}/{name}", text)
    plugin_folders.write(f"{folder}/node_modules/x/bad.js", "function (")
    done = command_line.run("check", folder, "--json")
    languages = {name: language for name, (_, language) in BROKEN.items() if language != "JavaScript" or find_node()}
    found = {one["message"].partition(",")[0]: one["message"] for one in done.json["problems"]}
    assert (done.code, set(found)) == (1, set(languages))
    assert all(f"is not valid {languages[name]}" in message for name, message in found.items())
    plugin_folders.write(f"{folder}/module.cjs", "import fs from 'node:fs';\n")
    said = {
        one["message"].partition(",")[0]: one["hint"]
        for one in command_line.run("check", folder, "--json").json["problems"]
    }
    assert not find_node() or "it is read as CommonJS" in said["module.cjs"]
    has_column = [name for name, language in languages.items() if language == "Python"]
    assert all(re.search(r", line \d+, column \d+ is not valid", found[name]) for name in has_column), found
    plugin_folders.write(f"{folder}/plugin.json", '{\n "name": "hello",\n "tools" []}')
    messages = [one["message"] for one in command_line.run("check", folder, "--json").json["problems"]]
    assert any("plugin.json, line 3, column 10" in message for message in messages), messages
    assert set(found) <= {message.partition(",")[0] for message in messages}  # a broken manifest hides none


def test_check_parses_every_python_file_of_an_extension_once_and_none_of_python_two():
    folder = zot_folders.extension("here", "several", "def f(:\n")
    plugin_folders.write(f"{folder}/helper.py", "def g(:\n")
    plugin_folders.write(f"{folder}/old.py", "#!/usr/bin/env python2\nprint 1\n")
    found = command_line.run("check", folder, "--json").json["problems"]
    assert sorted(re.split(",|:", one["message"])[0] for one in found) == ["helper.py", "run.py"]


def test_hints_of_list_and_check_name_the_home_that_was_given():
    plugin_folders.write("plugins/gone/manifest.json", '{"name": "gone"')
    for words in (("list",), ("list", "--json"), ("check", "plugins/gone")):
        done = command_line.run("--home", "other", *words)
        assert "`anyplug " not in done.out.replace("`anyplug --home other", "")


def test_tools_print_the_schema_that_agents_see():
    schema = {"type": "object", "properties": {"n": {"type": "int"}}}
    tool = {"name": "hello", "description": "d", "input_schema": schema}
    command_line.ok("install", plugin_folders.cyclop("here", "hello", tools=[tool]), "--yes")
    (shown,) = command_line.ok("tools", "hello", "--json").json
    assert shown["input_schema"] == {"type": "object", "properties": {"n": {"type": "integer"}}}


def test_show_tells_which_programs_start_ahead_of_calls_and_why_others_do_not():
    plugin_folders.cyclop("plugins", "hello", plugin_folders.python("print(1)"))
    plugin_folders.cyclop("plugins", "shell")
    ahead = {"program": "run", "started": "ahead of calls", "reason": None}
    assert command_line.ok("show", "hello", "--json").json["programs"] == [ahead]
    (cold,) = command_line.ok("show", "shell", "--json").json["programs"]
    assert cold["started"] == "with each call"
    assert cold["reason"] == "only Python and Node are started ahead, and it is run by sh"
    assert "run: ahead of calls, while in use" in command_line.ok("show", "hello").out
    assert "run: with each call, because only Python" in command_line.ok("show", "shell").out
