"""What authors use every day: `test` with cases beside the plugin, `dev` that repeats the last call on each save."""

import os
import xml.etree.ElementTree as ET

import pytest

import command_line
import plugin_folders

SCRIPT = plugin_folders.python(
    """print("working", file=sys.stderr)
try:
    open("/etc/not-granted", "w")
except OSError:
    pass
text = given["input"].get("text", "")
print(json.dumps({"result": f"{len(text.split())} words", "is_error": False}))
"""
)


def test_a_call_is_recorded_once(tmp_path):
    folder = plugin_folders.cyclop(tmp_path, "counter", script='#!/bin/sh\necho \'{"result": "one"}\'\n')
    record = ("test", folder, "--record", "counter", "--args", '{"name": "Ada"}')
    command_line.ok(*record)
    path = f"{folder}/tests/counter.toml"
    written = command_line.read(path)
    assert f"{path} already has a case of this call" in command_line.ok(*record).out
    assert command_line.ok(*record, "--json").json == {"file": path, "case": None}
    plugin_folders.write(path, written.replace('"one"', '"two"'))
    refused = command_line.fails(1, *record).err
    assert 'which fails now: the text is "one", not "two"\nhint: change what it expects, or delete it' in refused
    command_line.ok("test", folder, "--record", "counter", "--args", '{"name": "Eve"}')
    assert command_line.read(path).count("[[case]]") == 2


def test_cases_are_recorded_run_and_reported(tmp_path):
    folder = plugin_folders.cyclop(tmp_path, "counter")
    assert "writes the first one" in command_line.fails(2, "test", folder).err
    tool = command_line.ok("--plugin", folder, "--no-discover", "tools", "--json").json[0]["name"]
    done = command_line.ok("test", folder, "--record", tool, "--args", '{"name": "Ada", "odd": [null, 1.5, "\\"\\n"]}')
    assert "[[case]]" in done.out
    assert "1 of 1 case passed" in command_line.ok("test", folder).out
    unknown = command_line.fails(1, "test", folder, "--record", "no_such_tool")
    assert "plugin 'counter' has no such tool" in unknown.err
    assert f"`anyplug --plugin {folder} tools counter` lists its tools" in unknown.err
    assert os.listdir(f"{folder}/tests") == [f"{tool}.toml"]
    unknown = command_line.fails(2, "test", folder, "no_such_tool")
    assert f"no case calls 'no_such_tool'\nhint: there are cases of {tool}" in unknown.err
    missing = command_line.run("test", folder, "--junit", "nowhere/report.xml")
    assert "nowhere/report.xml\nhint: check the path" in missing.err
    text = command_line.ok("test", folder, "--json").json[0]
    assert (text["passed"], text["tool"]) == (True, tool)
    cases = f"""
[[case]]
name = "a pattern"
tool = "{tool}"
expect = {{pattern = "."}}

[[case]]
name = "wrong <text>"
tool = "{tool}"
expect = {{text = "no such text"}}

[[case]]
name = "an error that does not come"
tool = "{tool}"
expect = {{error = "timed_out"}}

[[case]]
name = "no such tool"
tool = "nothing"
expect = {{error = "not_found"}}

[[case]]
tool = "{tool}"
expect = {{schema = {{type = "array"}}}}
"""
    plugin_folders.write(f"{folder}/tests/more.toml", cases)
    report = f"{tmp_path}/report.xml"
    done = command_line.run("test", folder, "--junit", report)
    assert done.code == 1
    assert "3 of 6 cases passed" in done.out
    assert "FAIL  wrong <text>" in done.out
    suite = ET.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("6", "3")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["wrong <text>", "an error that does not come", tool]
    for broken, said in (("[[case]]\n", "missing required field `tool`"), ("x = ", "cannot be used"),
                         (f'[[case]]\ntool = "{tool}"\nexpect = {{pattern = "("}}\n', "pattern")):  # fmt: skip
        plugin_folders.write(f"{folder}/tests/more.toml", broken)
        assert said in command_line.fails(1, "test", folder).err
    assert not os.path.exists(f"{command_line.home()}/data/counter")  # nothing of the author's own was used


def test_an_author_in_the_plugins_folder_names_none(monkeypatch):
    monkeypatch.chdir(plugin_folders.cyclop("plugins", "hello"))
    assert "hello: Cyclop One plugin" in command_line.ok("check").out
    assert "`anyplug test . --record TOOL KEY=VALUE`" in command_line.fails(2, "test").err
    command_line.ok("test", ".", "--record", "hello", "text=x")
    assert "1 of 1 case passed" in command_line.ok("test").out
    assert "hello: started" in command_line.ok("dev", stdin=b"q\n").out


@pytest.mark.parametrize("given", ["nowhere", "plugins/helo", "plugins/hello/plugin.json"])
def test_the_live_screen_needs_a_folder(given):
    plugin_folders.cyclop("plugins", "hello")
    done = command_line.fails(2, "dev", given)
    assert "is not a folder" in done.err
    assert "did you mean" in done.err or given != "plugins/helo"


def test_the_live_screen_follows_saves_and_shows_what_was_refused(tmp_path):
    folder = plugin_folders.cyclop(tmp_path, "counter", SCRIPT)
    tool = command_line.ok("--plugin", folder, "--no-discover", "tools", "--json").json[0]["name"]
    with command_line.Terminal("dev", folder, tool, "text=a b") as terminal:
        terminal.sees("done in")
        seen = terminal.sees("q quits.")
        assert "check: no problems" in seen
        assert "2 words" in seen
        assert "working" in seen.partition("stderr:")[2]
        assert "refused by the sandbox:\n  filesystem:write:/etc" in seen
        plugin_folders.write(f"{folder}/run", SCRIPT.replace("words", "tokens"), 0o755)
        terminal.sees("2 tokens")
        assert "counter: saved" in terminal.seen
        terminal.types(f"{tool} text='one two three'")
        terminal.sees("3 tokens")
        plugin_folders.write(f"{folder}/run", SCRIPT.replace("text =", "text = ="), 0o755)
        terminal.sees("SyntaxError")
        plugin_folders.write(f"{folder}/plugin.json", "{")
        terminal.sees("It is not called until that is fixed.")
        terminal.types("q")
        terminal.end()
        assert terminal.code == 0


@pytest.mark.claim("author-commands")
def test_a_case_and_a_report_are_written_through_no_link_in_a_stranger_s_folder(tmp_path):
    folder = plugin_folders.cyclop(tmp_path, "config", SCRIPT)
    tool = command_line.ok("--plugin", folder, "--no-discover", "tools", "--json").json[0]["name"]
    victim = tmp_path / "victim"
    victim.mkdir()
    settings = victim / f"{tool}.toml"
    settings.write_text("jobs = 1\n")
    tests = os.path.join(folder, "tests")
    os.symlink("../victim", tests)
    assert "not a link" in command_line.fails(1, "test", folder, "--record", tool).err
    assert "not a link" in command_line.fails(1, "test", folder).err
    os.unlink(tests)
    os.mkdir(tests)
    for make in (os.symlink, os.link):
        make(settings, os.path.join(tests, settings.name))
        assert "cannot write" in command_line.fails(1, "test", folder, "--record", tool).err
        os.unlink(os.path.join(tests, settings.name))
    os.mkfifo(os.path.join(tests, settings.name))
    assert "cannot write" in command_line.fails(1, "test", folder, "--record", tool).err
    os.unlink(os.path.join(tests, settings.name))
    command_line.ok("test", folder, "--record", tool)
    for name, target in (("report.xml", settings), ("out", victim)):
        os.symlink(target, os.path.join(folder, name))
        report = os.path.join(folder, name) if name != "out" else os.path.join(folder, name, "new.xml")
        assert "cannot write" in command_line.run("test", folder, "--junit", report).err
    assert (settings.read_text(), os.listdir(victim)) == ("jobs = 1\n", [settings.name])
    command_line.ok("test", folder, "--junit", os.path.join(folder, "reports", "own.xml"))
    assert os.path.exists(os.path.join(folder, "reports", "own.xml"))


@pytest.mark.claim("author-commands")
def test_a_policy_is_written_through_no_link_of_a_project(tmp_path):
    for inside in ("", "policies"):
        project, victim = tmp_path / f"project{inside}", tmp_path / f"victim{inside}"
        victim.mkdir()
        (project / ".cupcake" if inside else project).mkdir(parents=True)
        (project / ".cupcake" / inside).symlink_to(victim)
        assert "cannot write into" in command_line.run("policy", "init", str(project)).err
        assert os.listdir(victim) == []


@pytest.mark.claim("author-commands")
def test_a_pattern_that_backtracks_ends(tmp_path):
    script = plugin_folders.python("print(json.dumps({'result': 'a' * 60}))")
    folder = plugin_folders.cyclop(tmp_path, "counter", script)
    tool = command_line.ok("--plugin", folder, "--no-discover", "tools", "--json").json[0]["name"]
    case = f'[[case]]\ntool = "{tool}"\nexpect = {{pattern = "%s"}}\n'
    plugin_folders.write(f"{folder}/tests/a.toml", case % "(a+)+$b")
    assert "is not in the text" in command_line.run("test", folder).out
    plugin_folders.write(f"{folder}/tests/a.toml", case % "(?=a)")
    assert "RE2" in command_line.fails(1, "test", folder).err


def test_values_of_a_case_that_are_nested_too_deep_are_refused(tmp_path):
    folder = plugin_folders.cyclop(tmp_path, "counter")
    tool = command_line.ok("--plugin", folder, "--no-discover", "tools", "--json").json[0]["name"]
    plugin_folders.write(f"{folder}/tests/a.toml", f'[[case]]\ntool = "{tool}"\narguments = "{"[" * 100_000}"\n')
    assert "is not JSON" in command_line.fails(1, "test", folder).err
