"""The console in a browser: panels driven by keys, policies tried and replayed, chats."""

import os
import re

import pytest
from playwright.sync_api import expect

import plugin_folders
import zot_folders
from browsers import AXE, approve, needs_chromium, visitor
from command_line import ok, run

pytestmark = [needs_chromium, pytest.mark.usefixtures("browser"), pytest.mark.xdist_group("page-extensions")]

BOARD = """
hello("commands", "panels")
command("board", "Opens the board.")
emit("ready")
lines = ["empty"]
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("notify", level="info", message="the board is open")
        emit("command_response", id=frame["id"], action="open_panel",
             open_panel={"id": "p", "title": "Board", "lines": lines, "footer": "any key"})
    elif frame["type"] == "panel_key":
        lines.append(frame.get("text") or frame["key"])
        emit("panel_render", panel_id="p", title="Board", lines=lines, footer="any key")
"""
POLICY = """# METADATA
# scope: package
# custom:
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.anyplug.short

import rego.v1

deny contains decision if {
    count(input.tool_input.text) > 3
    decision := {"rule_id": "SHORT", "reason": "too long", "severity": "HIGH"}
}
"""
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def test_a_panel_is_opened_from_the_palette_and_driven_by_keys_and_pointer(home):
    zot_folders.extension(home / "plugins", "board", BOARD)
    approve("board")
    with visitor() as person:
        page = person.goes("/extensions")
        person.sees("/board")
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Find").fill("opens the board")
        expect(page.locator("#found [role=option]").first).to_contain_text("/board")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Run a command")).to_have_value("/board ")
        page.get_by_label("Run a command").press("Enter")
        once = page.get_by_role("main").get_by_role("button", name=re.compile("Allow once"))
        expect(once).to_have_attribute("aria-disabled", "false")
        once.click()
        screen = page.get_by_role("application")
        expect(screen).to_be_focused()
        page.keyboard.press("ArrowUp")
        page.keyboard.type("ab?")
        page.keyboard.press("Tab")
        expect(screen).to_have_text(re.compile("empty.*up.*a.*b.*\\?.*tab", re.DOTALL))
        page.get_by_role("group", name="Keys").get_by_role("button", name="Enter").click()
        expect(screen).to_have_text(re.compile("tab.*enter", re.DOTALL))
        person.sees("the board is open")
        screen.focus()
        page.keyboard.press("Shift+Tab")
        expect(screen).not_to_be_focused()
        screen.focus()
        page.keyboard.press("Escape")
        person.sees("No panel is open")


def test_a_policy_is_read_tried_and_replayed(home, tmp_path, monkeypatch):
    project = tmp_path / "project"
    file = plugin_folders.write(str(project / ".cupcake" / "policies" / "anyplug" / "short.rego"), POLICY)
    plugin_folders.cyclop(
        home / "plugins", "count", tools=[{"name": "count", "description": "C.", "input_schema": TEXT}]
    )
    monkeypatch.chdir(project)
    ok("policy", "trust", "--yes")
    approve("count")
    assert run("call", "count", "text=too long").code == 3
    with visitor() as person:
        page = person.goes("/policy")
        person.sees("short")
        page.get_by_role("tab", name="Try an event").click()
        page.get_by_role("textbox", name="Event").fill('{"tool": "count", "args": {"text": "abcdef"}}')
        person.presses("Try")
        decision = page.get_by_role("status", name="Decision").or_(page.locator("[aria-label=Decision]"))
        expect(decision.first).to_contain_text("SHORT")
        expect(decision.first).to_contain_text("deny")
        page.get_by_role("tab", name="Replay").click()
        page.locator("input[type=file]").set_input_files(
            {"name": "short.rego", "mimeType": "text/plain", "buffer": POLICY.replace("> 3", "> 30").encode()}
        )
        person.presses("Replay")
        person.sees("1 decision")
        expect(page.get_by_role("group", name="Changed decisions")).to_contain_text("count")
        expect(page.locator(".chart canvas")).to_be_visible()
    assert file


def test_a_chat_in_the_page_calls_a_tool_and_asks_with_the_same_card(home):
    plugin_folders.cyclop(home / "plugins", "careful", permissions=["filesystem:write"])
    approve("careful")
    with visitor() as person:
        page = person.goes("/chat")
        person.presses("New chat")
        transcript = page.get_by_role("log", name="Conversation")
        transcript.get_by_role("button", name="what can you do").click()
        expect(transcript).to_contain_text("careful")
        expect(transcript.get_by_role("button", name="what can you do")).to_have_count(0)
        page.get_by_label("Message").fill("careful")
        page.get_by_label("Message").press("Enter")
        expect(transcript).to_contain_text("careful wants to run careful")
        once = transcript.get_by_role("button", name=re.compile("Allow once"))
        expect(once).to_have_attribute("aria-disabled", "false")
        once.click()
        expect(transcript.get_by_role("region", name="Call of careful")).to_contain_text("done")
        page.reload()
        expect(transcript.get_by_role("region", name="Call of careful")).to_contain_text("done")


def test_slash_commands_are_completed_in_the_pages_chat(home):
    zot_folders.extension(
        home / "plugins", "board", BOARD.replace('command("board"', 'command("bore", "B.")\ncommand("board"')
    )
    approve("board", "--always")
    with visitor() as person:
        page = person.goes("/chat")
        person.presses("New chat")
        message = page.get_by_label("Message")
        commands = page.get_by_role("listbox", name="Commands").get_by_role("option")
        message.press_sequentially("/bo")
        expect(commands).to_have_count(2)
        message.press_sequentially("a")
        expect(commands).to_have_text([re.compile("/board.*Opens the board.*board")])
        message.press("Backspace")
        message.press("ArrowDown")
        chosen = page.get_by_role("option", selected=True)
        name = chosen.locator("b").inner_text()
        assert not os.path.exists(AXE) or person.axe() == []
        message.press("Tab")
        expect(message).to_have_value(f"{name} ")
        expect(commands).to_have_count(0)
        message.fill("/boa")
        message.press("Enter")
        expect(message).to_have_value("/board ")
        message.press("Enter")
        expect(page.get_by_role("application")).to_contain_text("empty")
