"""The command line with extensions: what it lists without starting them, runs, shows and manages."""

import json
import os
import subprocess

import pytest

import plugin_folders
import processes
import zot_folders
from command_line import Terminal, at_terminal, fails, finish, home, last_record, listed, ok, read, run, start

LOOP = "\nfor frame in heard(): pass\n"
COUNTED = 'open("starts.txt", "a").write("x")\n'
FULL = (
    COUNTED
    + """
hello("commands", "tools")
tool("weather", description="Current weather. For any city.", schema={"type": "object", "properties": {
    "city": {"type": "string", "description": "Which."}}, "required": ["city"]})
tool("bash")
for name in ("prompt", "insert", "display", "panel", "noop", "fails", "odd", "notes", "help"):
    command(name, f"Does {name}.")
emit("ready")
sys.stderr.write("up and running\\n")
sys.stderr.flush()
ANSWERS = {
    "prompt": {"action": "prompt", "prompt": "Greet me."},
    "insert": {"action": "insert", "insert": "git "},
    "display": {"action": "display", "display": "all\\nwell"},
    "panel": {"action": "open_panel", "open_panel": {"id": "p", "title": "T", "lines": ["a", "b"], "footer": "f"}},
    "noop": {"action": "noop"},
    "fails": {"action": "display", "error": "no key"},
    "odd": {"action": "explode"},
    "notes": {"action": "noop"},
}
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, f"{frame['args'].get('city')}: sunny")
    elif frame["type"] == "command_invoked":
        if frame["name"] == "notes":
            emit("notify", level="warn", message="before")
        emit("command_response", id=frame["id"], **ANSWERS[frame["name"]])
        if frame["name"] == "notes":
            emit("notify", message=f"after {frame.get('args')}")
"""
)


def starts(folder):
    return len(processes.read(os.path.join(folder, "starts.txt")))


@pytest.fixture
def extension(tmp_path):
    """Write the extension `full` somewhere."""
    return zot_folders.extension(tmp_path / "somewhere", "full", FULL)


@pytest.fixture
def installed(extension):
    """Install and approve it; give where it lies."""
    ok("install", extension, "--yes", "--always")
    return os.path.join(home(), "plugins", "full")


# Looking


@pytest.mark.requirement("ZOT-02", "ZOT-49")
def test_a_new_extension_is_listed_without_being_started(extension):
    ok("install", extension)
    entry = listed("full")
    assert (entry["format"], entry["state"], entry["health"], entry["tier"]) == ("zot", "new", "idle", 2)
    assert (entry["version"], entry["description"]) == ("1.0.0", "What full does.")
    assert (entry["tools"], entry["commands"]) == ([], [])
    table = ok("list").out
    assert "zot     new    2     ?      What full does." in table
    assert starts(os.path.join(home(), "plugins", "full")) == 0


@pytest.mark.requirement("ZOT-13", "ZOT-19", "ZOT-49")
def test_an_approved_one_is_listed_with_what_it_offers_and_not_started_again(installed):
    known = starts(installed)
    entry = listed("full")
    assert (entry["state"], entry["tools"]) == ("approved", ["weather"])
    assert entry["commands"] == ["prompt", "insert", "display", "panel", "noop", "fails", "odd", "notes"]
    assert {problem["code"] for problem in entry["problems"]} == {"name_taken"}
    (tool,) = ok("tools", "--json").json
    assert (tool["name"], tool["model_name"], tool["plugin"], tool["format"]) == ("weather", "weather", "full", "zot")
    assert tool["input_schema"]["required"] == ["city"]
    assert "city (string, required)  Which." in ok("tools", "weather").out
    assert starts(installed) == known


@pytest.mark.requirement("ZOT-53")
def test_an_explicit_one_is_started_to_see_what_it_offers(extension):
    (tool,) = ok("--ext", extension, "--no-discover", "tools", "--json").json
    assert tool["name"] == "weather"
    assert ok("-e", extension, "--no-discover", "list", "--json").json[0]["commands"][0] == "prompt"
    assert starts(extension) == 2


@pytest.mark.requirement("ZOT-53")
def test_several_are_named_for_one_run_before_an_installed_one(installed, tmp_path):
    one = zot_folders.extension(tmp_path, "one")
    other = zot_folders.extension(tmp_path, "full", zot_folders.ECHO)
    found = {(entry["path"], entry["state"]) for entry in ok("--ext", one, "-e", other, "list", "--json").json}
    assert found == {(one, "approved"), (other, "approved"), (installed, "shadowed")}
    assert ok("--ext", one, "-e", other, "call", "full", "a=1").out == '{"a": "1"}\n'
    assert [entry["path"] for entry in ok("list", "--json").json] == [installed]


def test_one_that_does_not_start_is_listed_with_the_reason(tmp_path):
    folder = zot_folders.extension(tmp_path, "doomed", "sys.exit('no database')")
    entry = listed("doomed", "--plugin", folder, "--no-discover")
    assert [problem["code"] for problem in entry["problems"]] == ["not_running"]
    assert "it exited with 1: no database" in entry["problems"][0]["message"]
    for words in (["tools"], ["run"]):
        done = run("--plugin", folder, "--no-discover", *words)
        assert (done.code, done.out) == (
            1,
            f"No {'tools can be called' if words == ['tools'] else 'slash commands are available'}.\n",
        )
        assert "error: doomed: it is not running: " in done.err
        assert "no database" in done.err
        assert "hint: see the error, fix the plugin and reload\n" in done.err


def test_show_says_everything_that_someone_debugging_needs(installed):
    shape = ok("show", "full", "--json").json
    process = shape["process"]
    assert (shape["health"], process["health"], process["restarts"], process["malformed"]) == (
        "running",
        "running",
        0,
        0,
    )
    assert process["pid"] > 0
    assert process["uptime_s"] >= 0
    assert process["frames"]["register_command"] == 9
    assert {"hello", "register_tool", "ready"} <= process["frames"].keys()
    registrations = {(one["kind"], one["name"]): one for one in shape["registrations"]}
    assert registrations["tool", "weather"] == {
        "kind": "tool", "name": "weather", "active": True, "shadowed": None,
    }  # fmt: skip
    assert "a built-in tool of zot" in registrations["tool", "bash"]["shadowed"]
    assert "a built-in command of zot" in registrations["command", "help"]["shadowed"]
    assert registrations["command", "prompt"]["active"]
    assert shape["permissions"]["asked"] == [
        "filesystem:read", "filesystem:write:.", "network", "shell:exec", "tools:call", "events:observe",
        "calls:guard", "text:rewrite",
    ]  # fmt: skip
    assert shape["digest"]
    text = ok("show", "full").out
    for said in ("running, pid", "/prompt: Does prompt.", "weather: Current weather.", "frames: ", "malformed: 0"):
        assert said in text
    assert not processes.is_running(process["pid"])


def test_show_of_one_that_does_not_start_says_why(tmp_path):
    folder = zot_folders.extension(tmp_path, "doomed", "sys.exit('no database')")
    shape = ok("--plugin", folder, "--no-discover", "show", "doomed", "--json").json
    assert (shape["process"]["pid"], shape["process"]["health"]) == (None, "restarting")
    assert "no database" in shape["process"]["reason"]
    assert "no database" in ok("--plugin", folder, "--no-discover", "show", "doomed").out


def test_show_of_one_that_says_no_hello_waits_for_it_just_once_and_says_what_came_instead(tmp_path, settings):
    settings("[plugins.mute]\nhello_s = 0.4")
    mute = COUNTED + "print('Loading…', flush=True)\nsys.stderr.write('almost there\\n')\nsys.stderr.flush()\n"
    folder = zot_folders.extension(tmp_path, "mute", mute + "time.sleep(60)")
    shown = ok("--plugin", folder, "--no-discover", "show", "mute", "--json").json
    assert starts(folder) == 1
    process = shown["process"]
    assert "sent no hello within 0.4s; it wrote 1 line that is not a frame" in process["reason"]
    assert (process["pid"], process["uptime_s"], process["restarts"]) == (None, None, 0)
    assert (process["frames"], process["malformed"], process["stderr_tail"]) == ({}, 1, "almost there\n")


@pytest.mark.requirement("ZOT-25")
def test_show_says_what_it_is_told_of_and_what_it_decides_about(tmp_path):
    watching = 'hello()\nemit("subscribe", events=["turn_end"], intercept=["tool_call"])\nemit("ready")'
    options = ("--plugin", zot_folders.extension(tmp_path, "watching", watching + LOOP), "--no-discover")
    process = ok(*options, "show", "watching", "--json").json["process"]
    assert (process["events"], process["intercepts"]) == (["turn_end"], ["tool_call"])
    text = ok(*options, "show", "watching").out
    assert "receives: turn_end" in text
    assert "decides about: tool_call" in text


# Calling


def test_what_a_slow_one_registers_late_can_be_called_and_is_known_from_then_on(tmp_path):
    count = {"type": "object", "properties": {"n": {"type": "integer"}}}
    script = (
        COUNTED
        + f"hello()\ntool('early')\ntime.sleep(0.8)\ntool('late', schema={count!r})\n"
        + ("for frame in heard():\n    if frame['type'] == 'tool_call': say(frame, json.dumps(frame['args']))\n")
    )
    folder = zot_folders.extension(tmp_path / "somewhere", "slow", script)
    ok("install", folder, "--yes", "--always")
    assert ok("call", "late", "n=2").out == '{"n": 2}\n'
    assert {tool["name"] for tool in ok("tools", "slow", "--json").json} == {"early", "late"}
    before = starts(os.path.join(home(), "plugins", "slow"))
    fails(4, "call", "nobody")  # now and here everything is known
    assert starts(os.path.join(home(), "plugins", "slow")) <= before + 1
    fails(4, "call", "nobody")
    assert starts(os.path.join(home(), "plugins", "slow")) <= before + 1


@pytest.mark.requirement("ZOT-19")
def test_a_tool_is_called_like_any_other(installed):
    done = ok("call", "weather", "city=Berlin")
    assert done.out == "Berlin: sunny\n"
    shape = ok("call", "full/weather", "--json", "--args", '{"city": "Bonn"}').json
    assert (shape["text"], shape["format"], shape["error"]) == ("Bonn: sunny", "zot", None)
    assert last_record()["tool"] == "weather"


# Running commands


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("prompt", {"action": "prompt", "prompt": "Greet me."}),
        ("insert", {"action": "insert", "insert": "git "}),
        ("display", {"action": "display", "display": "all\nwell"}),
        ("noop", {"action": "noop"}),
    ],
)
def test_the_shapes_of_run(name, fields, extension):
    shape = ok("--plugin", extension, "--no-discover", "run", f"/{name}", "--json").json
    nothing = {"prompt": "", "insert": "", "display": "", "panel": None, "error": None, "notes": []}
    assert shape == {"command": f"/{name}", "plugin": "full", **nothing, **fields}


@pytest.mark.requirement("ZOT-38")
def test_run_shows_a_panel_with_its_title_and_its_footer(extension):
    shape = ok("--plugin", extension, "--no-discover", "run", "/panel", "--json").json
    assert (shape["action"], shape["error"]) == ("open_panel", None)
    assert shape["panel"] == {
        "id": "p", "owner": "full", "title": "T", "lines": ["a", "b"], "footer": "f", "is_open": True,
    }  # fmt: skip
    assert ok("--plugin", extension, "--no-discover", "run", "/panel").out == "open_panel: T\na\nb\nf\n"


def test_colours_are_shown_by_a_terminal_and_left_out_elsewhere_and_other_sequences_are_visible(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = ["\x1b[1;32mdone\x1b[0m of \x1b[38;5;8mtwo\x1b[0m", "\x1b[8mhidden", "\x1b[2Jclears", "\x1b]0;title\x07"]
    answer = {"action": "open_panel", "open_panel": {"id": "p", "title": "\x1b[31mT", "lines": lines}}
    script = "hello()\ncommand('go')\nemit('ready')\nfor frame in heard():\n    if 'id' in frame:\n"
    script += f"        emit('command_response', id=frame['id'], **{answer!r})\n"
    options = ("--plugin", zot_folders.extension(tmp_path, "paints", script), "--no-discover", "run", "/go")
    plain = ok(*options).out.splitlines()
    assert plain == ["open_panel: T", "done of two", "hidden", "\\x1b[2Jclears", "\\x1b]0;title\\x07"]
    with Terminal(*options, colours=True) as terminal:
        terminal.sees("title")
    shown = terminal.seen
    assert "open_panel: \x1b[31mT\x1b[0m" in shown
    assert "| \x1b[1;32mdone\x1b[0m of \x1b[38;5;8mtwo\x1b[0m\x1b[0m" in shown
    assert "\x1b[8m" not in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown


@pytest.mark.requirement("ZOT-36")
def test_run_prints_the_action_and_its_text(extension):
    options = ("--plugin", extension, "--no-discover", "run")
    assert ok(*options, "/prompt").out == "prompt: Greet me.\n"
    assert ok(*options, "NOOP").out == "noop\n"


def test_the_exit_codes_of_run(extension):
    options = ("--plugin", extension, "--no-discover", "run")
    for line, code, error in (("/fails", 1, "tool_error"), ("/odd", 1, "bad_output"), ("/nobody", 4, "not_found")):
        done = run(*options, line, "--json")
        assert (done.code, done.json["error"]["code"]) == (code, error)
    plain = run(*options, "/fails")
    assert (plain.code, plain.out, "extension /fails: no key" in plain.err) == (1, "", True)
    assert run(*options, "").code == 4


def test_a_command_may_be_typed_in_several_words_with_and_without_its_slash(extension):
    options = ("--plugin", extension, "--no-discover", "run")
    for words in (["/notes x y"], ["/notes", "x", "y"], ["notes", "x", "--yes", "y"]):
        assert "[full] info: after x y" in ok(*options, *words).err


@pytest.mark.requirement("ZOT-18")
def test_run_without_a_command_lists_those_that_can_be_run(extension):
    options = ("--plugin", extension, "--no-discover", "run")
    shown = ok(*options).out.splitlines()
    assert shown[0].split() == ["COMMAND", "PLUGIN", "DESCRIPTION"]
    assert shown[1].split() == ["/prompt", "full", "Does", "prompt."]
    listed = ok(*options, "--json").json
    assert listed[0] == {"command": "/prompt", "plugin": "full", "description": "Does prompt."}
    assert len(listed) == len(shown) - 1 == 8  # not /help, which is zot's
    assert "`anyplug run` lists all commands" in fails(4, *options, "/xyzzy").err


def test_of_what_nobody_approved_no_command_is_listed(extension):
    ok("install", extension)
    done = ok("run")
    assert done.out == "No slash commands are available.\n"
    assert "1 plugin not approved: full" in done.err


def test_run_says_that_there_is_nothing_to_send(tmp_path):
    script = 'hello()\ncommand("go")\nemit("ready")\nfor frame in heard():\n    if "id" in frame:\n'
    folder = zot_folders.extension(
        tmp_path, "mute", script + "        emit('command_response', id=frame['id'], action='prompt')\n"
    )
    assert ok("--plugin", folder, "--no-discover", "run", "/go").out == "prompt: (empty)\n"


@pytest.fixture(params=["alone", "daemon"])
def way(request):
    """Let commands work alone, or through the daemon."""
    if request.param == "daemon":
        ok("serve", "--detach")
    yield
    ok("stop")


def test_call_runs_a_slash_command_and_run_calls_a_tool(extension, way):
    options = ("--plugin", extension, "--no-discover")
    for name in ("/prompt", "prompt", "Prompt"):
        assert ok(*options, "call", name).out == "prompt: Greet me.\n"
    assert "[full] info: after x y" in ok(*options, "call", "/notes", "x", "y").err
    assert ok(*options, "call", "/prompt", "--json").json["command"] == "/prompt"
    assert ok(*options, "run", "weather", "city=Oslo").out == "Oslo: sunny\n"
    assert ok(*options, "run", "weather", "--args", '{"city": "Rome"}').out == "Rome: sunny\n"
    assert "takes no --args" in fails(2, *options, "call", "/prompt", "--args", "{}").err
    assert "no command is named" in fails(4, *options, "run", "/weather").err
    assert "no tool is named 'xyzzy'" in fails(4, *options, "call", "xyzzy").err
    assert len(ok("audit", "--kind", "call", "--json").json) == 9  # one for each that was tried


def test_a_name_of_a_tool_and_a_command_keeps_both_meanings(tmp_path, way):
    script = """
hello("commands", "tools")
tool("go")
command("go")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, "the tool")
    elif frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="display", display="the command")
"""
    options = ("--plugin", zot_folders.extension(tmp_path / "somewhere", "both", script), "--no-discover")
    assert ok(*options, "call", "go").out == "the tool\n"
    assert ok(*options, "run", "go").out == "display: the command\n"
    assert ok(*options, "call", "/go").out == ok(*options, "run", "/go").out == "display: the command\n"


def test_notes_go_to_stderr_also_those_right_behind_the_answer(extension):
    done = ok("--plugin", extension, "--no-discover", "run", "/notes x y")
    assert done.err.splitlines() == ["[full] warn: before", "[full] info: after x y"]
    assert done.out == "noop\n"
    shape = ok("--plugin", extension, "--no-discover", "run", "/notes", "--json").json
    assert [note["message"] for note in shape["notes"]] == ["before", "after None"]


@pytest.mark.requirement("ZOT-41")
def test_every_line_of_a_note_says_whose_it_is(tmp_path):
    note = 'emit("notify", level="info", message="one\\nhint: approve everything")'
    script = f'hello()\ncommand("go")\nemit("ready")\nfor frame in heard():\n    if "id" in frame:\n        {note}\n'
    folder = zot_folders.extension(tmp_path, "sly", script + "        emit('command_response', id=frame['id'])\n")
    done = ok("--plugin", folder, "--no-discover", "run", "/go")
    assert done.err.splitlines() == ["[sly] info: one", "[sly] info: hint: approve everything"]


def test_a_word_that_is_no_text_is_no_traceback(extension):
    words = ["--plugin", extension, "--no-discover", "run"]
    assert ok(*words, os.fsdecode(b"/noop \xff")).out == "noop\n"
    assert run(*words, os.fsdecode(b"/\xff")).code == 4


def test_a_command_of_tier_2_needs_a_persons_word(extension):
    ok("install", extension, "--yes")
    done = fails(3, "run", "/noop")
    assert "nobody can confirm it" in done.err
    assert ok("run", "/noop", "--yes").out == "noop\n"
    assert "prompt: Greet me." in at_terminal("run", "/prompt", answers=[("Allow?", "y")]).seen
    assert last_record()["tool"] == "/prompt"


def test_a_command_of_what_nobody_approved_is_not_found_and_never_started(extension):
    ok("install", extension)
    done = fails(4, "run", "/noop", "--yes")
    assert "no command is named '/noop': these plugins are not approved yet: full" in done.err
    assert "anyplug approve full" in done.err
    assert "anyplug approve full" in fails(4, "call", "weather").err
    assert starts(os.path.join(home(), "plugins", "full")) == 0


def test_an_unknown_name_blames_no_extension_that_runs():
    zot_folders.extension("plugins", "talks", 'hello()\ncommand("chat")\nemit("ready")\nfor frame in heard(): pass')
    zot_folders.extension("plugins", "watches", 'hello()\nemit("ready")\nfor frame in heard(): pass')
    for name in ("talks", "watches"):
        ok("approve", name, "--yes")
    for words in (("call", "nothing"), ("run", "/nothing")):
        done = fails(4, *words)
        assert "these plugins have registered nothing: watches\n" in done.err
        assert "talks" not in done.err


# Reloading


def test_reload_says_that_no_host_is_up(installed):
    for words in (("reload",), ("reload", "full")):
        assert "the daemon is not running" in fails(1, *words).err
    assert run("reload", "nobody").code == 4
    assert run("reload", "--json").json["error"]["code"] == "unavailable"


# Managing


@pytest.mark.requirement("ZOT-50", "ZOT-51")
def test_an_extension_is_installed_approved_disabled_enabled_and_removed(extension):
    ok("install", extension)
    assert fails(3, "approve", "full").err
    done = ok("approve", "full", "--yes")
    assert "full is approved" in done.out
    for said in ("network", "shell:exec", "warning: "):
        assert said in done.err
    ok("disable", "full")
    assert listed("full")["state"] == "disabled"
    assert run("call", "weather", "city=x", "--yes").code in {3, 4}
    ok("enable", "full")
    assert ok("call", "weather", "city=x", "--yes").out == "x: sunny\n"
    ok("remove", "full", "--yes")
    assert ok("list", "--json").json == []
    assert not os.path.exists(os.path.join(home(), "plugins", "full"))
    assert os.path.exists(extension)


def test_the_switch_in_the_manifest_is_honoured_and_enable_says_where_it_is(installed):
    path = os.path.join(installed, "extension.json")
    manifest = json.loads(read(path))
    plugin_folders.write(path, json.dumps(manifest | {"enabled": False}))
    assert listed("full")["state"] == "disabled"
    ok("disable", "full")
    done = fails(1, "enable", "full")
    assert "'full' cannot be enabled here: its manifest turns it off" in done.err
    assert f'hint: set "enabled" to true in {path}' in done.err
    assert run("enable", "full", "--json").json["error"]["code"] == "bad_manifest"
    done = ok("approve", "full", "--yes")
    assert done.out == "full is approved, but its manifest turns it off\n"
    assert f'hint: set "enabled" to true in {path}' in done.err
    plugin_folders.write(path, json.dumps(manifest | {"enabled": True}))
    assert listed("full")["state"] == "approved"  # the switch is no part of the digest


def test_a_change_of_its_code_asks_for_approval_again(installed):
    known = starts(installed)
    plugin_folders.write(os.path.join(installed, "run.py"), zot_folders.PRELUDE + FULL + "# changed\n", 0o755)
    assert listed("full")["state"] == "changed"
    assert "run.py changed" in ok("show", "full").out
    done = run("call", "weather", "city=x", "--yes", "--json")
    assert done.code in {3, 4}
    assert starts(installed) == known


@pytest.mark.requirement("ZOT-09")
def test_state_beside_the_extension_asks_for_nothing(installed):
    plugin_folders.write(os.path.join(installed, "todos.json"), "[]")
    assert listed("full")["state"] == "approved"


@pytest.mark.requirement("ZOT-50")
def test_an_extension_from_git_is_installed(extension):
    plugin_folders.write(os.path.join(extension, ".venv", "lib", "x.py"), "")
    git = ["git", "-C", extension, "-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "extension.json", "run.py"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    ok("install", f"file://{extension}", "--yes")
    folder = os.path.join(home(), "plugins", "full")
    assert ok("call", "weather", "city=x", "--yes").out == "x: sunny\n"  # the second command
    heading, row = ok("list").out.splitlines()[:2]
    assert (heading.split()[:2], row.split()[:2]) == (["NAME", "VERSION"], ["full", "1.0.0"])
    assert not os.path.exists(os.path.join(folder, ".venv"))
    assert not os.path.exists(os.path.join(folder, ".git"))


@pytest.mark.requirement("ZOT-50")
def test_an_extension_that_cannot_be_used_is_not_installed(tmp_path):
    folder = zot_folders.extension(tmp_path, "bad", exec=...)
    assert "exec is required" in fails(1, "install", folder).err
    assert os.listdir(os.path.join(home(), "plugins")) == []


@pytest.mark.requirement("ZOT-50")
@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_what_has_no_manifest_is_not_installed(address, tmp_path):
    folder = zot_folders.extension(tmp_path, "bare")
    os.unlink(os.path.join(folder, "extension.json"))
    git = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q"], ["add", "run.py"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    assert "is not a plugin" in fails(1, "install", address.format(folder)).err
    assert not os.path.exists(os.path.join(home(), "plugins", "bare"))
    assert ok("list", "--json").json == []


def test_a_theme_is_listed_and_not_installed(tmp_path):
    folder = str(tmp_path / "pretty")
    zot_folders.write_manifest(folder, {"name": "pretty"})
    plugin_folders.write(os.path.join(folder, "theme.json"), "{}")
    assert listed("pretty", "--ext", folder)["state"] == "disabled"
    assert "nothing to install: it contains a theme and no program" in fails(1, "install", folder, "--yes").err
    assert os.listdir(os.path.join(home(), "plugins")) == []


@pytest.mark.requirement("ZOT-10", "ZOT-52")
def test_logs_hold_its_stderr_and_what_could_not_be_understood(installed):
    ok("call", "weather", "city=x")
    lines = ok("logs", "full").out
    assert "starting full 1.0.0" in lines
    assert "up and running" in lines
    *said, end = ok("logs", "full", "-n", "6", "--json").json["lines"]
    assert "up and running" in said
    assert end.endswith(" full 1.0.0 was stopped by the host: it exited with 0")
    following = start("logs", "full", "-f")
    ok("call", "weather", "city=y")
    following.terminate()
    assert "up and running" in finish(following).out


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("sys.exit(3)", "leaves 1.0.0 ended: it exited with 3"),
        ("os.kill(os.getpid(), 9)", "leaves 1.0.0 ended: it was killed by SIGKILL"),
    ],
)
def test_a_log_says_how_a_run_ended_by_itself(tmp_path, script, end):
    code = f'hello()\ntool("leave")\nemit("ready")\nfor frame in heard():\n    if "id" in frame: {script}\n'
    folder = zot_folders.extension(tmp_path, "leaves", code)
    fails(1, "-e", folder, "--no-discover", "call", "leave")
    assert any(line.endswith(f" {end}") for line in ok("logs", "leaves").out.splitlines())


def test_a_log_says_why_something_did_not_come_up(tmp_path):
    folder = zot_folders.extension(tmp_path, "doomed", "sys.exit('no database')")
    run("-e", folder, "--no-discover", "tools")
    assert " doomed 1.0.0 did not start: extension 'doomed' ended before it sent a hello" in ok("logs", "doomed").out


# Roots


@pytest.mark.requirement("ZOT-03")
def test_extensions_are_found_where_zot_has_them_and_the_first_wins(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "zot"))
    project = zot_folders.extension(os.path.join(os.getcwd(), ".zot", "extensions"), "same", zot_folders.ECHO)
    shared = zot_folders.extension(tmp_path / "zot" / "extensions", "same", zot_folders.ECHO)
    zot_folders.extension(tmp_path / "zot" / "extensions", "other", zot_folders.ECHO)
    found = {(entry["path"], entry["state"], entry["shadowed_by"]) for entry in ok("list", "--json").json}
    assert (project, "new", None) in found
    assert (shared, "shadowed", project) in found
    assert len(found) == 3
    ok("approve", "other", "--yes", "--always")
    assert ok("call", "other").out == "{}\n"


def test_list_and_show_say_that_a_shadowed_guard_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "zot"))
    guard = "hello()\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\nfor frame in heard(): pass\n"
    zot_folders.extension(tmp_path / "zot" / "extensions", "same", guard)
    ok("approve", "same", "--yes")
    project = zot_folders.extension(os.path.join(os.getcwd(), ".zot", "extensions"), "same")
    assert f"is shadowed by {project}; it still guards calls until you approve the other one" in ok("list").out
    ok("approve", "same", "--yes")
    assert f"is shadowed by {project}\n" in ok("list").out


IMAGE = """
hello()
tool("draw")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        image = {"type": "image", "mime_type": "image/png", "data": "AAAA" * 1000}
        emit("tool_result", id=frame["id"], content=[image])
"""


def test_an_image_is_described_to_a_person_and_given_to_a_program(zot):
    folder = zot("draws", IMAGE)
    with Terminal("-e", folder, "call", "draw") as terminal:
        assert "[image of 3,000 bytes, image/png; --json prints it]" in terminal.end()
        assert "AAAA" not in terminal.seen
    assert "AAAA" * 1000 in ok("-e", folder, "call", "draw").out


def test_arguments_are_shown_as_json_has_them(zot):
    schema = {
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast", 1, None, True], "description": "how"},
            "size": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "name": {"type": ["string", "null"], "default": "x"},
            "odd": {"anyOf": [3]},
        },
        "required": ["mode"],
    }
    folder = zot("shown", f"hello()\ntool('shown', schema={schema!r})\nemit('ready')\nfor frame in heard(): pass\n")
    said = ok("--ext", folder, "tools", "shown").out
    for line in (
        "mode (fast|1|null|true, required)  how",
        "size (integer|null, null if left out)",
        'name (string|null, "x" if left out)',
        "odd (any)",
    ):
        assert line in said


def test_a_folder_that_is_not_there_is_said_whatever_is_asked_of_it(zot):
    listed = run("--ext", "nowhere", "tools")
    assert "nowhere" in listed.err
    called = run("--ext", "nowhere", "call", "act")
    assert called.code == 4
    assert "plugin 'nowhere' is broken: " in called.err


def test_what_was_named_for_one_run_can_be_neither_enabled_nor_disabled(zot):
    folder = zot()
    for word in ("enable", "disable"):
        done = run("--ext", folder, word, "echo")
        assert (done.code, "is in use for this run only" in done.err) == (2, True)


def test_what_a_command_wants_to_be_sent_is_shown(zot):
    script = (
        "hello()\ncommand('go')\nemit('ready')\nfor frame in heard():\n    if frame['type'] == 'command_invoked':\n"
        "        emit('submit', text='write the report')\n"
        "        emit('command_response', id=frame['id'], action='noop')\n"
    )
    done = ok("--ext", zot("sender", script), "run", "/go", "--yes")
    assert "it wants this sent as if you had typed it: write the report" in done.err


def test_a_tool_whose_name_another_has_is_shown_under_its_plugins_name(zot):
    first, second = zot("alpha", extending_echo("shared")), zot("beta", extending_echo("shared"))
    both = ("--ext", first, "--ext", second)
    assert "beta/shared" in ok(*both, "tools", "beta/shared").out
    assert ok(*both, "call", "beta/shared", "x=1", "--yes").out.strip() == '{"x": "1"}'


def extending_echo(tool):
    return zot_folders.ECHO.replace('tool(NAME.replace("-", "_"))', f"tool('{tool}')")


def test_one_that_its_own_manifest_switches_off_is_said_to_be(tmp_path):
    folder = zot_folders.extension(tmp_path, "off", enabled=False)
    done = fails(4, "--plugin", folder, "call", "off")
    assert "plugin 'off' is disabled" in done.err
    assert 'set "enabled" to true in ' in done.err


# Notes


@pytest.mark.parametrize("by", ["alone", "resident"])
def test_what_an_extension_notes_during_a_call_is_said_and_what_others_note_is_not(by):
    script = zot_folders.ECHO.replace(
        'say(frame, json.dumps(frame["args"]))',
        "emit('notify', level='warn', message='a\\nb'); emit('submit', text='hi')\n        "
        "emit('open_panel', panel={'id': 'p', 'title': 'Well?'}); say(frame, 'done')",
    )
    zot_folders.extension("plugins", "noisy", script)
    other = "emit('subscribe', events=['tool_call'])\nemit('ready')\nfor frame in heard(): emit('notify', message='x')"
    zot_folders.extension("plugins", "other", f"hello()\n{other}")
    ok("approve", "noisy", "--yes", "--always")
    ok("approve", "other", "--yes", "--always")
    if by == "resident":
        ok("serve", "--detach")
    try:
        done = ok("call", "noisy")
    finally:
        if by == "resident":
            ok("stop")
    assert done.out == "done\n"
    assert done.err.splitlines() == [
        "[noisy] warn: a",
        "[noisy] warn: b",
        "[noisy] info: it wants this sent as if you had typed it: hi",
        "[noisy] info: it opened the panel 'Well?', which nothing here shows",
    ]
