"""The command line with Workbench plugins: list, approve, tools, call, show, check, logs."""

import json
import os

import pytest

import plugin_folders
import processes
from command_line import at_terminal, fails, home, last_record, listed, ok, run
from conftest import HABITS

INDEX = """
require('fs').appendFileSync(process.env.STARTS, 'x');
console.log('on its own account');
let count = 0;
module.exports.register = (api) => {
  api.registerTool({
    name: 'count.up',
    description: 'Counts up. By one or more.',
    inputSchema: { type: 'object', properties: { by: { type: 'number', description: 'How much.' } }, required: ['by'] },
    run: async ({ by }) => {
      if (by === 0) return { content: 'Nothing was counted', error: 'zero', metadata: { by } };
      if (by < 0) throw new Error('only upwards');
      if (by > 99) return { content: `Failed to count: too far`, error: 'too far' };
      return { content: `now ${(count += by)}`, metadata: { count } };
    },
  });
  const content = [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }];
  api.registerTool({ name: 'Two Words', run: () => ({ content, prompt: 'p' }) });
  api.registerTool({ name: 'builtin.count', run: () => 1 });
  api.registerTool({ name: 'count.loop', run: () => { for (;;); } });
};
"""


@pytest.fixture
def starts(tmp_path, monkeypatch):
    """Count how often the plugin was loaded."""
    path = str(tmp_path / "home" / "data" / "counter" / "starts.txt")  # where it may write
    monkeypatch.setenv("STARTS", path)
    return lambda: len(processes.read(path))


@pytest.fixture
def plugin(tmp_path, starts):
    """Write the plugin `counter` somewhere."""
    package = {"type": "commonjs", "version": "1.0.0", "description": "Counts."}
    return plugin_folders.workbench(tmp_path / "somewhere", "counter", index=INDEX, package=package)


@pytest.fixture
def installed(plugin):
    """Install and approve it; give where it lies."""
    ok("install", plugin, "--yes", "--always")
    return os.path.join(home(), "plugins", "counter")


@pytest.mark.requirement("WB-12", "WB-16")
def test_a_new_one_is_listed_in_the_projects_plugins_and_nothing_of_it_runs(starts):
    plugin_folders.workbench("plugins", "counter", index=INDEX)
    entry = listed("counter")
    assert (entry["format"], entry["state"], entry["health"], entry["tier"]) == ("workbench", "new", "idle", 2)
    assert entry["tools"] == []
    assert "Workbench" in ok("list").out
    assert starts() == 0
    assert fails(3, "approve", "counter").err
    done = ok("approve", "counter", "--yes")
    assert "counter is approved" in done.out
    assert "network" in done.err
    assert listed("counter")["tools"] == ["count.up", "Two Words", "count.loop"]


@pytest.mark.requirement("WB-14", "WB-18")
def test_an_approved_one_is_listed_from_what_is_known_without_node(installed, starts):
    known = starts()
    entry = listed("counter")
    assert (entry["state"], entry["version"], entry["description"]) == ("approved", "1.0.0", "Counts.")
    assert entry["tools"] == ["count.up", "Two Words", "count.loop"]
    assert [problem["code"] for problem in entry["problems"]] == ["name_taken"]
    tools = {tool["name"]: tool for tool in ok("tools", "--json").json}
    assert tools["count.up"]["model_name"] == "count_up"
    assert tools["Two Words"]["model_name"] == "Two_Words"
    assert tools["count.up"]["input_schema"]["required"] == ["by"]
    assert "by (number, required)  How much." in ok("tools", "count.up").out
    assert starts() == known


@pytest.mark.requirement("WB-15")
def test_a_tool_is_called_by_each_of_its_names(installed):
    for name in ("count.up", "count_up", "counter/count.up"):
        assert ok("call", name, "by=2").out == "now 2\n"
    assert last_record()["tool"] == "count.up"
    shape = ok("call", "Two Words", "--json").json
    assert (shape["text"], shape["structured"], shape["format"]) == ("a\nb", {"prompt": "p"}, "workbench")
    assert ok("call", "count.up", "by=1", "--json").json["metadata"] == {"count": 1}


@pytest.mark.requirement("WB-04")
def test_errors_of_a_tool_show_what_went_wrong_and_what_it_says_to_people(installed):
    done = run("call", "count.up", "by=0")
    assert (done.code, "zero" in done.err, "Nothing was counted" in done.out) == (1, True, True)
    done = run("call", "count.up", "by=-1")
    assert (done.code, "error: only upwards" in done.err, done.out) == (1, True, "")
    shape = run("call", "count.up", "by=0", "--json").json
    assert (shape["text"], shape["error"]["code"], shape["metadata"]) == (
        "Nothing was counted",
        "tool_error",
        {"by": 0},
    )


def test_what_it_says_to_people_is_shown_though_it_ends_in_the_technical_word(installed):
    failed = run("call", "count.up", "by=100", "--yes")  # as the guide's own example words it
    assert (failed.code, failed.out) == (1, "Failed to count: too far\n")
    assert "error: too far" in failed.err


def test_arguments_warn_unless_the_settings_say_strict(installed, settings):
    done = ok("call", "count.up")
    assert '"by" is a required property' in done.err
    settings('[plugins.counter]\narguments = "strict"\n')
    assert run("call", "count.up").code == 2


def test_a_call_that_loops_ends_in_time_and_leaves_nothing(installed, settings):
    settings("[plugins.counter]\ntimeout_s = 0.5\n")
    done = run("call", "count.loop", "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "timed_out")


def test_it_asks_once_in_each_run(plugin):
    ok("install", plugin, "--yes")
    assert "nobody can confirm it" in fails(3, "call", "count.up", "by=1").err
    assert ok("call", "count.up", "by=1", "--yes").out == "now 1\n"
    assert "now 1" in at_terminal("call", "count.up", "by=1", answers=[("Allow?", "y")]).seen


def test_show_says_how_its_process_is_and_what_it_registered(installed):
    shape = ok("show", "counter", "--json").json
    assert (shape["health"], shape["process"]["restarts"], shape["process"]["malformed"]) == ("running", 0, 0)
    assert shape["process"]["frames"] == {"tool": 4, "ready": 1}
    assert "on its own account" in shape["process"]["stderr_tail"]
    assert not processes.is_running(shape["process"]["pid"])
    registered = {one["name"]: one for one in shape["registrations"]}
    assert registered["count.up"] == {"kind": "tool", "name": "count.up", "active": True, "shadowed": None}
    assert "a reserved prefix" in registered["builtin.count"]["shadowed"]
    assert shape["permissions"]["asked"] == ["network", "filesystem:read"]
    text = ok("show", "counter").out
    for said in ("running, pid", "count.up: Counts up.", "frames: "):
        assert said in text


@pytest.mark.requirement("WB-20")
def test_show_of_one_that_does_not_load_says_why():
    folder = os.path.join(HABITS, "workbench", "missing-dependency")
    shape = ok("--plugin", folder, "--no-discover", "show", "missing-dependency", "--json").json
    assert (shape["process"]["pid"], shape["process"]["health"]) == (None, "idle")
    assert "npm install no-such-package-anywhere" in shape["process"]["reason"]
    assert "no-such-package-anywhere" in ok("--plugin", folder, "--no-discover", "list").out


def test_check_looks_from_outside_only(plugin, starts):
    assert ok("check", plugin).code == 0
    assert starts() == 0
    folder = os.path.join(HABITS, "workbench", "no-package")
    done = run("check", folder)
    assert "there is no package.json" in done.out + done.err
    broken = os.path.join(HABITS, "workbench", "invalid-package")
    done = run("check", broken)
    assert "package.json is not valid JSON" in done.out + done.err


@pytest.mark.requirement("WB-21")
def test_logs_hold_what_it_printed_and_the_traces_of_its_errors(installed):
    run("call", "count.up", "by=-1")
    lines = ok("logs", "counter").out
    for said in ("starting counter 1.0.0", "on its own account", "count.up: Error: only upwards", "    at "):
        assert said in lines


def test_a_change_of_any_file_asks_for_approval_again(installed, starts):
    known = starts()
    plugin_folders.write(os.path.join(installed, "data.csv"), "a,b\n")
    assert listed("counter")["state"] == "changed"
    done = run("call", "count.up", "by=1", "--yes", "--json")
    assert (done.code, done.json["error"]["code"]) == (3, "not_approved")
    assert starts() == known
    ok("approve", "counter", "--yes", "--always")
    assert ok("call", "count.up", "by=1").out == "now 1\n"


@pytest.mark.requirement("WB-17")
def test_the_built_in_reload_is_called_like_any_tool(installed):
    for name in ("builtin.reload_plugins", "builtin_reload_plugins"):
        assert "1 plugin, 3 tools." in ok("call", name).out
    assert run("call", "builtin.reload_plugins", "plugin=nobody").code == 2
    assert ok("call", "builtin.reload_plugins", "plugin=counter", "--json").json["plugin"] == "builtin"


def test_a_chain_runs_through_a_plugin_that_keeps_its_state(installed, tmp_path):
    steps = [{"tool": "count.up", "input": {"by": 2}}, {"tool": "count.up", "input": {"by": 3}}]
    plugin_folders.write(str(tmp_path / "chain.json"), json.dumps(steps))
    assert ok("chain", str(tmp_path / "chain.json")).out == "now 5\n"
