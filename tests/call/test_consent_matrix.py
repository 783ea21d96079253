"""There is no way around the gate: every way in, every format, every gate that denies, and nothing has run.

All plugins write down what they are given; each cell of the matrix gives them a
word of its own, by which the gates know whether they are meant. That a word is found there when nobody denies is a
cell of the matrix, too: else its absence would prove nothing.
"""

import itertools
import os

import pytest

import acme_distribution
import plugin_folders
import processes
import ways
import zot_folders
from mcp_clients import mcp_plugin
from ways import MORE_WAYS, WAYS

POLICY = """\
# METADATA
# scope: package
# custom:
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.gate
import rego.v1
given := json.marshal(input.tool_input)
deny contains {"rule_id": "NO", "severity": "HIGH", "reason": "not today"} if contains(given, "policy-")
ask contains {"rule_id": "ASK", "severity": "HIGH", "reason": "really?"} if contains(given, "question-")
"""
GUARD = """
hello()
emit("subscribe", intercept=["tool_call"])
emit("ready")
for frame in heard():
    if frame["type"] == "event_intercept":
        is_meant = "guard-" in json.dumps(frame["tool_args"])
        emit("event_intercept_response", id=frame["id"], block=is_meant, reason="not by me")
"""
BROKER = """
import base64
hello("call_tool")
tool("broker")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        asked = frame
        emit("call_tool", id="1", parent_id=frame["id"], **json.loads(base64.b64decode(frame["args"]["inner"])))
    elif frame["type"] == "tool_result":
        say(asked, json.dumps(frame))
"""
ZED = """
hello("commands")
tool("zed")
command("zed")
emit("ready")
for frame in heard():
    if frame["type"] in {"tool_call", "command_invoked"}:
        with open(RAN, "a") as file: file.write(json.dumps(frame["args"]) + "\\n")
    if frame["type"] == "tool_call":
        say(frame, "done")
    elif frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="prompt", prompt="done")
"""
MCP = """
for call in calls():
    with open(RAN, "a") as file: file.write(json.dumps(call["params"]) + "\\n")
    say(call)
"""
ONE_SHOT = "with open(RAN, 'a') as file: file.write(json.dumps(given) + '\\n')\nprint(json.dumps({'result': 'done'}))"
BENCH = "(given) => { require('fs').appendFileSync(RAN, JSON.stringify(given) + '\\n'); return 'done'; }"

TOOLS = {
    "cyclop": "cyclop",
    "stavrobot": "stavrobot.act",
    "zot": "zed",
    "workbench": "workbench.act",
    "mcp": "mcp.kit.act",
    "acme": "acme",
    "builtin": "builtin.reload_plugins",
}
GATES = {
    "policy": "policy:NO HOME/policy/gate.rego:9",
    "guard": "guard:warden",
    "question": "person",
    "person": "person",
}
ALL_WAYS = {**WAYS, **MORE_WAYS}
# The host's own tools change nothing that a person would be asked about.
CELLS = [(format, gate) for format in TOOLS for gate in GATES if (format, gate) != ("builtin", "person")]
numbers = itertools.count()


def by(names):
    """Come in by each of these ways, each of which stays on one worker."""
    cells = [pytest.param(name, marks=pytest.mark.xdist_group(f"gate-{name}")) for name in names]
    return pytest.mark.parametrize("way", cells, indirect=True, scope="module")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Give a world with a plugin of each format, a guard, and policies; nobody approved anything for always."""
    with pytest.MonkeyPatch.context() as patch:
        world = ways.world_in(str(tmp_path_factory.mktemp("gates")), patch, ANYPLUG_CONFINEMENT="off")
        ran = os.path.join(world.project, "ran")
        here = f"RAN = {ran!r}\n"
        plugin_folders.cyclop(world.root, "cyclop", plugin_folders.python(here + ONE_SHOT), permissions=["network"])
        beside = f"RAN = {os.path.join(world.root, 'stavrobot', 'ran')!r}\n"  # it has a /tmp of its own
        plugin_folders.stavrobot(world.root, "stavrobot", plugin_folders.python(beside + ONE_SHOT))
        zot_folders.extension(world.root, "zed", here + ZED)
        plugin_folders.workbench(world.root, "workbench", BENCH.replace("RAN", repr(ran)))
        mcp_plugin(world.root, here + MCP)
        acme_distribution.install(patch)
        plugin_folders.write(os.path.join(world.home, "settings.toml"), acme_distribution.SETTINGS)
        plugin_folders.acme(world.root, "acme", plugin_folders.python(here + ONE_SHOT), permissions=["network"])
        world.approve("cyclop", "stavrobot", "zed", "workbench", "kit", "acme", always=False)
        zot_folders.extension(world.root, "warden", GUARD)
        zot_folders.extension(world.root, "broker", BROKER)
        world.approve("warden", "broker")
        plugin_folders.write(os.path.join(world.home, "policy", "gate.rego"), POLICY)
        with world.resident():
            yield world


@pytest.fixture(scope="module")
def way(request, world):
    """Come in by one of the ways, with a person who can be asked."""
    with pytest.MonkeyPatch.context() as patch:
        world.inhabit(patch, ANYPLUG_CONFINEMENT="off")
        with ways.opened(ALL_WAYS[request.param], world, asks=True) as way:
            yield way


@pytest.fixture(autouse=True)
def _there(world, home, monkeypatch):
    world.inhabit(monkeypatch, ANYPLUG_CONFINEMENT="off")


@pytest.fixture
def ran(world):
    """Say whether a plugin was given a word."""

    def ran(word):
        paths = [os.path.join(world.project, "ran"), os.path.join(world.root, "stavrobot", "ran")]
        return any(word.encode() in processes.read(path) for path in paths)

    return ran


def word_for(gate):
    return f"{gate}-{next(numbers)}"


def recorded(way, is_asked, act):
    """Do something; give what came of it, and its record."""
    ended = 1 if is_asked and way.ends_to_ask else 0
    with way.world.recording(ended + 1 + way.records_more) as records:
        answer = act()
    assert [record.outcome for record in records[:ended]] == ["needs_answer"] * ended
    return answer, records[ended]


def decider(way, gate):
    """Give who is on record as having refused."""
    return GATES[gate].replace("HOME", way.world.home)


@by(ALL_WAYS)
@pytest.mark.combinations
@pytest.mark.parametrize(("format", "gate"), CELLS)
def test_a_tool_that_a_gate_denies_does_not_run(way, format, gate, ran):
    word = word_for(gate)
    way.says = "no" if GATES[gate] == "person" else "yes"
    asked = way.asked
    answer, record = recorded(way, way.says == "no", lambda: way.call(TOOLS[format], given(format, word)))
    assert answer.is_error
    assert answer.code in {"denied", ""}  # extensions are told no codes
    assert not ran(word)
    assert (record.tool, record.format, record.outcome, record.verdict) == (TOOLS[format], format, "denied", "denied")
    assert record.by == decider(way, gate)
    assert record.attachment.startswith(way.caller)
    assert record.held_by is None  # nothing was started for it
    assert way.asked - asked == (1 if GATES[gate] == "person" else 0)


@by(ALL_WAYS)
@pytest.mark.combinations
@pytest.mark.parametrize("format", TOOLS)
def test_a_tool_that_nobody_denies_runs(way, format, ran):
    word = word_for("nobody")
    way.says = "yes"
    answer, record = recorded(way, format != "builtin", lambda: way.call(TOOLS[format], given(format, word)))
    assert record.verdict == "allowed"
    if format == "builtin":  # it looked for a plugin of this name
        assert f"no plugin is named '{word}'" in answer.text
    else:
        assert not answer.is_error, answer
        assert ran(word)


def given(format, word):
    """Give a tool's arguments with a word in them."""
    return {"plugin": word} if format == "builtin" else {"text": word}


@by(WAYS)
@pytest.mark.parametrize("gate", [gate for gate in GATES if gate != "guard"])  # guards are asked about tools alone
def test_a_slash_command_that_a_gate_denies_does_not_run(way, gate, ran):
    word = word_for(gate)
    way.says = "no" if GATES[gate] == "person" else "yes"
    answer, record = recorded(way, way.says == "no", lambda: way.run("zed", word))
    assert (answer.code, ran(word)) == ("denied", False)
    assert (record.tool, record.outcome, record.verdict) == ("/zed", "denied", "denied")
    assert record.by == decider(way, gate)


@by(WAYS)
def test_a_slash_command_that_nobody_denies_runs(way, ran):
    word = word_for("nobody")
    way.says = "yes"
    answer, record = recorded(way, True, lambda: way.run("zed", word))
    assert (answer.text, ran(word), record.verdict) == ("done", True, "allowed")
