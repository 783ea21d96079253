"""The same behaviours over every way in: what a caller gets depends on the plugin, and not on how they came."""

import json
import os

import pytest

import acme_distribution
import plugin_folders
import ways
import zot_folders
from mcp_clients import mcp_plugin
from ways import WAYS

KIT = """
tool = {**TOOL, "outputSchema": {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}}
image = {"type": "image", "mimeType": "image/png", "data": "R0lGODlh"}
for call in calls(tools=[tool]):
    answer(call, content=[{"type": "text", "text": "one"}, image], structuredContent={"n": 1})
"""
ECHO = plugin_folders.python("print(json.dumps({'result': given['input'].get('text', '')}))")
BIG = plugin_folders.python("print(json.dumps({'result': 'x' * given['input']['size']}))")
ODD = 'žluťoučký 🦊 \u2028 \u0007 "quoted" \\ <b>&amp;</b> \U0001f469\u200d\U0001f680'
PLUGINS = {
    "echo": ECHO,
    "big": BIG,
    "fails": plugin_folders.python("print(json.dumps({'result': 'out of paper', 'is_error': True}))"),
    "slow": plugin_folders.python("time.sleep(60)"),
    "crashes": "#!/bin/sh\necho oops >&2\nexit 3\n",
    "stranger": ECHO,
    "off": ECHO,
    "edited": ECHO,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Give one world for all ways, with a resident host."""
    with pytest.MonkeyPatch.context() as patch:
        world = ways.world_in(str(tmp_path_factory.mktemp("world")), patch)
        acme_distribution.install(patch)
        settings = acme_distribution.SETTINGS + "[plugins.slow]\ntimeout_s = 0.3\n"
        plugin_folders.write(os.path.join(world.home, "settings.toml"), settings)
        for name, script in PLUGINS.items():
            plugin_folders.cyclop(world.root, name, script)
        plugin_folders.stavrobot(
            world.root, "strict", parameters={"n": {"type": "integer", "description": "A number."}}
        )
        zot_folders.extension(world.root, "asks")
        mcp_plugin(world.root, KIT)
        plugin_folders.acme(world.root, "greet", plugin_folders.python("print('hello', given['name'])"))
        world.approve(*(name for name in PLUGINS if name != "stranger"), "strict", "kit", "greet")
        world.approve("asks", always=False)
        with world.deciding("off") as (catalog, plugin):
            catalog.approvals.enable(plugin, on=False)
        with world.resident():
            yield world


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(f"in-{name}")) for name in WAYS]
)
def way(request, world):
    """Come in by one of the ways, with nobody there who could be asked."""
    with pytest.MonkeyPatch.context() as patch:
        world.inhabit(patch)
        with ways.opened(WAYS[request.param], world) as way:
            yield way


@pytest.fixture(autouse=True)
def _there(world, home, monkeypatch):
    world.inhabit(monkeypatch)


def called(way, name, arguments=None, /, *, code="", **facts):
    """Call a tool; see that it ended so, and that there is one record of it that says so too."""
    with way.world.recording() as records:
        answer = way.call(name, arguments or {})
    assert (answer.code, answer.is_error) == (code, bool(code)), answer
    (record,) = records
    assert record.outcome == (code or "done")
    assert record.attachment.startswith(f"{way.caller}-")
    assert {fact: getattr(record, fact) for fact in facts} == facts
    return answer


@pytest.mark.requirement("CYC-02")
def test_a_call_gives_what_the_tool_said(way):
    answer = called(way, "echo", {"text": "hello"}, tool="echo", plugin="echo", format="cyclop", verdict="allowed")
    assert answer.content == [{"type": "text", "text": "hello"}]


def test_a_tool_of_another_packages_format_is_called_like_any_other(way):
    answer = called(way, "greet", {"name": "Ada"}, tool="greet", plugin="greet", format="acme", verdict="allowed")
    assert answer.content == [{"type": "text", "text": "hello Ada"}]


def test_every_name_of_a_tool_leads_to_it(way):
    for name in ("strict.act", "strict/act", "strict_act"):
        assert called(way, name, {"n": 1}, tool="strict.act").text == '{"result": "done"}'


def test_text_images_and_structure_come_as_they_are(way):
    answer = called(way, "mcp.kit.act", tool="mcp.kit.act", format="mcp")
    assert answer.content == [
        {"type": "text", "text": "one"},
        {"type": "image", "mime_type": "image/png", "data": "R0lGODlh"},
    ]
    assert answer.structured == {"n": 1}


def test_any_text_comes_through_unchanged(way):
    assert called(way, "echo", {"text": ODD}).content == [{"type": "text", "text": ODD}]


def test_a_large_result_comes_whole_and_to_models_bit_by_bit(way):
    text = called(way, "big", {"size": 900_000}).text
    if not isinstance(way, ways.Agent):
        assert text == "x" * 900_000
        return
    shown, _, note = text.partition("\n")
    assert shown == "x" * 50_000
    kept = json.loads(note[note.index("{") :])["id"]
    assert "x" * 10 in called(way, "builtin.read_result", {"id": kept, "offset": 899_990}).text


def test_too_large_a_result_says_so(way):
    assert "1MB" in called(way, "big", {"size": 2_000_000}, code="too_large").message


@pytest.mark.requirement("CYC-22")
def test_a_tools_own_error_is_told_in_its_words(way):
    answer = called(way, "fails", code="tool_error", verdict="allowed")
    assert answer.message == "out of paper"
    assert "out of paper" in answer.text


@pytest.mark.requirement("CYC-28")
def test_a_crash_is_told_with_what_the_plugin_said_last(way):
    answer = called(way, "crashes", code="crashed", verdict="allowed")
    assert "oops" in answer.text


@pytest.mark.requirement("CYC-41")
def test_what_does_not_end_is_ended_and_said_to_be(way):
    assert "0.3" in called(way, "slow", code="timed_out", verdict="allowed").message


def test_a_tool_that_is_not_there_is_named(way):
    answer = called(way, "nothing_like_it", code="not_found", tool="nothing_like_it", verdict="")
    assert "nothing_like_it" in answer.text


def test_what_nobody_approved_does_not_run(way):
    answer = called(way, "stranger", code="not_approved", tool="stranger", verdict="")
    assert "stranger" in answer.text


def test_what_is_switched_off_does_not_run(way):
    assert "off" in called(way, "off", code="disabled", tool="off", verdict="").text


def test_arguments_that_a_tool_does_not_take_are_refused_where_the_format_says_so(way):
    answer = called(way, "strict.act", {"n": "many"}, code="invalid_arguments", verdict="")
    assert answer.message == 'Parameter "n" must be of type "integer"'


def test_a_question_that_nobody_can_answer_is_a_no(way):
    folder = os.path.join(way.world.root, "asks")
    answer = called(way, "asks", code="denied", verdict="denied", by="host")
    assert "tier 2" in answer.message
    assert zot_folders.heard(folder, "tool_call") == []


def test_what_was_changed_waits_for_a_persons_word(way):
    script = os.path.join(way.world.root, "edited", "run")
    assert called(way, "edited", {"text": "before"}).text == "before"
    with open(script, "a") as file:
        file.write("# another line\n")
    answer = called(way, "edited", {"text": "meanwhile"}, code="not_approved", verdict="")
    assert "run" in answer.message
    way.world.approve("edited")
    assert called(way, "edited", {"text": "after"}).text == "after"
