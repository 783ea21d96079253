"""The console in a browser: arguments, results by kind, filters, copied calls, plugins from git and zips."""

import base64
import io
import json
import os
import re
import subprocess
import sys
import wave
import zipfile

import pytest
from playwright.sync_api import expect

import plugin_folders
import zot_folders
from browsers import approve, needs_chromium, visitor
from command_line import ok
from mcp_clients import mcp_plugin
from plugin_folders import python

pytestmark = [needs_chromium, pytest.mark.usefixtures("browser"), pytest.mark.xdist_group("page-forms")]

ECHO = python('print(json.dumps({"result": json.dumps(given["input"], ensure_ascii=False)}))')
ORDER = {
    "type": "object",
    "required": ["place", "who"],
    "properties": {
        "who": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "home": {"type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"]},
            },
        },
        "place": {
            "oneOf": [
                {
                    "title": "by name",
                    "type": "object",
                    "properties": {"town": {"type": "string"}},
                    "required": ["town"],
                    "additionalProperties": False,
                },
                {
                    "title": "by point",
                    "type": "object",
                    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
                    "required": ["x", "y"],
                    "additionalProperties": False,
                },
            ]
        },
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
HARD = 'it\'s "quoted" $HOME `id` \\ é\n!! --x'
READS = """#!/usr/bin/env python3
import json, sys
path = json.load(sys.stdin)["what"]
print(json.dumps(open(path).read().upper()))
"""


def test_nested_objects_and_choices_are_filled_in_and_sent_as_their_schema_says(home):
    tools = [{"name": "order", "description": "Echoes.", "input_schema": ORDER}]
    plugin_folders.cyclop(home / "plugins", "order", ECHO, tools=tools)
    approve("order")
    with visitor() as person:
        page = person.goes("/tools/order")
        page.get_by_label("name", exact=False).first.fill("Ada")
        person.presses("Add home")
        page.get_by_label("street").fill("Elm 1")
        page.get_by_label("Which kind").select_option(label="by point")
        page.get_by_label("x required").fill("1.5")
        person.presses("Run")
        person.sees("Not sent.")
        page.get_by_label("y required").fill("-2")
        person.presses("Run")
        expect(page.get_by_text('"Elm 1"').first).to_be_visible()
        assert _last(page) == {"who": {"name": "Ada", "home": {"street": "Elm 1"}}, "place": {"x": 1.5, "y": -2}}
        person.presses("Leave home out")
        page.get_by_label("Which kind").select_option(label="by name")
        page.get_by_label("town required").fill("Ulm")
        person.presses("Run")
        expect(page.get_by_role("region", name="Calls made here").get_by_role("listitem")).to_have_count(2)
        assert _last(page) == {"who": {"name": "Ada"}, "place": {"town": "Ulm"}}


def test_a_file_is_chosen_and_its_content_sent(home, tmp_path):
    parameters = {"what": {"type": "file", "description": "Any file.", "required": True}}
    plugin_folders.stavrobot(home / "plugins", "reader", READS, parameters=parameters)
    approve("reader", "--always")
    with visitor() as person:
        page = person.goes("/tools/reader.act")
        chosen = plugin_folders.write(str(tmp_path / "note.txt"), "some words")
        page.get_by_label("a file to send").set_input_files(chosen)
        person.sees("note.txt")
        person.presses("Run")
        person.sees("SOME WORDS")
        assert _last(page) == {"what": {"filename": "note.txt", "data": base64.b64encode(b"some words").decode()}}
        page.get_by_label("Which kind").select_option(label="the path of a file")
        page.get_by_label("the path of a file").fill(chosen)
        person.presses("Run")
        expect(page.get_by_role("region", name="Calls made here").get_by_role("listitem")).to_have_count(2)
        assert _last(page) == {"what": chosen}


def test_a_call_that_was_copied_as_a_command_line_does_the_same_when_pasted(home, tmp_path):
    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 500}}, "required": ["text"]}
    plugin_folders.cyclop(
        home / "plugins", "echo", ECHO, tools=[{"name": "echo", "description": "Echoes.", "input_schema": schema}]
    )
    approve("echo")
    with visitor() as person:
        page = person.goes("/tools/echo")
        page.get_by_label("text").fill(HARD)
        person.presses("Show request")
        person.presses("Copy as command line")
        person.sees("Copied")
        line = page.evaluate("navigator.clipboard.readText()")
        programs = tmp_path / "bin"
        plugin_folders.write(str(programs / "anyplug"), f'#!/bin/sh\nexec {sys.executable} -m anyplug "$@"\n', 0o755)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        for shell in ("sh", "bash"):
            done = subprocess.run([shell, "-c", line], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (line, done.stderr)
            assert json.loads(done.stdout) == {"text": HARD}
        person.presses("Copy as Python")
        code = page.evaluate("navigator.clipboard.readText()")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (code, done.stderr)


def test_a_plugin_comes_from_a_git_address(home, root):
    folder = plugin_folders.cyclop(root, "cloned", ECHO)
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "one"]):
        subprocess.run(["git", *who, "-C", folder, *words], check=True, capture_output=True)
    with visitor() as person:
        page = person.goes("/plugins?install=1")
        page.get_by_label("Folder or git address").fill(f"file://{folder}")
        page.get_by_role("dialog").get_by_role("button", name="Install", exact=True).click()
        expect(page.get_by_role("heading", name=re.compile("Approve cloned"))).to_be_visible()
        person.presses("Approve")
        person.sees("cloned is approved.")


def test_a_plugin_comes_from_a_zip(home, root):
    folder, content = plugin_folders.cyclop(root, "packed", ECHO), io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("plugin.json", "run"):
            archive.write(os.path.join(folder, name), f"packed/{name}")
    with visitor() as person:
        page = person.goes("/plugins?install=1")
        given = {"name": "packed.zip", "mimeType": "application/zip", "buffer": content.getvalue()}
        page.get_by_label("or a zip file").set_input_files(given)
        page.get_by_role("dialog").get_by_role("button", name="Install", exact=True).click()
        expect(page.get_by_role("heading", name=re.compile("Approve packed"))).to_be_visible()
        person.presses("Approve")
        person.sees("packed is approved.")


# A picture of one pixel.
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _last(page):
    """Return the arguments of the newest call, as the page shows them."""
    made = page.get_by_role("region", name="Calls made here").get_by_role("listitem").first
    return json.loads(made.locator("code").inner_text())


def test_a_sound_that_a_tool_returns_can_be_played(home):
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8000)
        file.writeframes(bytes([128]) * 8000)
    block = {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(sound.getvalue()).decode()}
    mcp_plugin(str(home / "plugins"), f"for call in calls():\n    answer(call, content=[{block!r}])\n")
    ok("approve", "kit", "--yes", "--always")
    with visitor() as person:
        page = person.goes("/tools/mcp.kit.act")
        person.presses("Run")
        player = page.get_by_label("Sound from the tool")
        expect(player).to_be_visible()
        expect(page.locator("audio")).to_have_js_property("duration", 1)


def test_markdown_and_pictures_are_shown(home):
    blocks = [
        {"type": "text", "text": "# Report\n\nAll **well**."},
        {"type": "image", "mimeType": "image/png", "data": DOT},
    ]
    mcp_plugin(str(home / "plugins"), f"for call in calls():\n    answer(call, content={blocks!r})\n")
    ok("approve", "kit", "--yes", "--always")
    with visitor() as person:
        page = person.goes("/tools/mcp.kit.act")
        person.presses("Run")
        expect(page.get_by_role("img", name="Image from the tool")).to_be_visible()
        expect(page.locator("img.picture")).to_have_js_property("naturalWidth", 1)
        person.presses("as Markdown")
        expect(page.get_by_role("heading", name="Report", exact=True)).to_be_visible()
        expect(page.locator("strong", has_text="well")).to_be_visible()


def test_tools_are_grouped_by_plugin_or_format(home):
    mcp_plugin(str(home / "plugins"), "for call in calls():\n    answer(call)\n")
    ok("approve", "kit", "--yes", "--always")
    for name in ("one", "two"):
        plugin_folders.cyclop(home / "plugins", name)
        approve(name)
    with visitor() as person:
        page = person.goes("/tools")
        tools = page.get_by_role("region", name="All tools")
        for way, heads in (("plugin", ["kit", "one", "two"]), ("format", ["Cyclop One", "MCP"]), ("none", [])):
            page.get_by_label("group by").select_option(way)
            expect(tools.locator(".group-head")).to_have_count(len(heads))
            assert sorted(text.split("\n")[0] for text in tools.locator(".group-head").all_inner_texts()) == heads


def test_tables_and_nested_data_are_shown_as_such(home):
    rows = [{"city": "Ulm", "people": 126}, {"city": "Bonn", "people": 330}]
    plugin_folders.cyclop(home / "plugins", "rows", python(f"print(json.dumps({{'result': {rows!r}}}))"))
    plugin_folders.cyclop(home / "plugins", "nested", python("print(json.dumps({'result': {'at': {'deep': 17}}}))"))
    approve("rows")
    approve("nested")
    with visitor() as person:
        page = person.goes("/tools/rows")
        person.presses("Run")
        table = page.get_by_role("group", name="Table").get_by_role("table")
        expect(table.get_by_role("columnheader")).to_have_text([re.compile("city"), re.compile("people")])
        expect(table.get_by_role("row").last).to_contain_text("Bonn")
        page = person.goes("/tools/nested")
        person.presses("Run")
        person.sees("17", page.get_by_role("main"))
        expect(page.get_by_role("table")).to_have_count(0)


def test_the_calls_are_filtered(home):
    for name in ("left", "right"):
        plugin_folders.cyclop(home / "plugins", name)
        approve(name)
        ok("call", name)
    with visitor() as person:
        page = person.goes("/activity")
        rows = page.get_by_role("region", name="Calls").locator(".virtual-row")
        left, right = rows.filter(has_text="left"), rows.filter(has_text="right")
        expect(right).not_to_have_count(0)
        for label, fitting, is_right_shown in (
            ("text", "left", False),
            ("tool", "left", False),
            ("plugin", "left", False),
            ("caller", "cli", True),
        ):
            field = page.get_by_label(label, exact=True)
            field.fill("middle")
            expect(rows).to_have_count(0)
            field.fill(fitting)
            expect(left).not_to_have_count(0)
            assert (right.count() > 0) is is_right_shown
            field.fill("")
            expect(right).not_to_have_count(0)
        page.get_by_role("combobox", name="since").select_option("1h")
        expect(right).not_to_have_count(0)
        page.get_by_role("combobox", name="outcome").select_option("failed")
        expect(rows).to_have_count(0)


def test_a_running_plugin_shows_its_process_and_refresh_says_what_changed(home):
    zot_folders.extension(home / "plugins", "watcher", 'hello()\nemit("ready")\nfor frame in heard(): pass\n')
    approve("watcher")
    with visitor() as person:
        page = person.goes("/plugins/watcher")
        person.sees(re.compile(r"pid \d+, up .* \d+ restart"))
        person.goes("/tools")
        person.presses("Refresh")
        person.sees("1 plugin, 0 tools.")
        plugin_folders.cyclop(home / "plugins", "late")
        person.presses("Refresh")
        expect(page.get_by_role("region", name="All tools").get_by_role("status").first).to_contain_text("late")
