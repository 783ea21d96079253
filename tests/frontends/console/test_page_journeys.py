"""The console in a browser: what a person does with plugins, from the installation to the repair."""

import http.server
import json
import os
import re
import sys
import threading

import pytest
from playwright.sync_api import expect

import consoles
import daemons
import plugin_folders
from browsers import approve, chromium, needs_chromium, visitor
from command_line import ok, run
from consoles import signed_in, with_token
from plugin_folders import python

pytestmark = [needs_chromium, pytest.mark.usefixtures("browser"), pytest.mark.xdist_group("page-journeys")]

COUNT = python('print(json.dumps({"result": str(len(given["input"]["text"])) + " letters"}))')
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
COUNTS = [{"name": "count", "description": "Counts letters.", "input_schema": TEXT}]
WEATHER = """#!/usr/bin/env python3
import json, sys
json.load(sys.stdin)
key = json.load(open("../config.json"))["API_KEY"]
print(json.dumps(f"sunny, with a key of {len(key)} letters: {key}"))
"""


CALLS = python("""
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://WHERE/")
except urllib.error.HTTPError as error:
    print(json.dumps({"result": str(error.code)}))
""").replace("env python3", "env -S python3 -I", 1)

PROGRESSING = """
import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("reader")


@server.tool()
async def read(ctx: Context) -> str:
    '''Read four pages; the last one never comes.'''
    for number in range(1, 4):
        await ctx.report_progress(number, 4, f"page {number} of 4")
        await anyio.sleep(0.1)
    await anyio.sleep_forever()


server.run()
"""


def test_a_plugin_is_installed_approved_run_repaired_and_run_again(root):
    source = plugin_folders.stavrobot(
        root, "weather", WEATHER, parameters={}, config={"API_KEY": {"description": "Your key.", "required": True}}
    )
    with visitor() as person:
        page = person.page
        person.goes("/plugins")
        person.presses("Install…")
        page.get_by_label("Folder or git address").fill(source)
        page.get_by_role("dialog").get_by_role("button", name="Install", exact=True).click()
        expect(page.get_by_role("heading", name=re.compile("Approve weather"))).to_be_visible()
        person.sees("Nothing of it has run.")
        person.presses("Approve")
        person.sees("weather is approved.")
        assert page.get_by_role("region", name="Approval").count() == 0, "nothing is asked that was answered"

        page.get_by_role("tab", name="Overview").click()
        page.get_by_role("link", name="weather.act").click()
        person.presses("Run")
        _allow(person, "Allow once")
        person.sees("config missing")
        page.get_by_role("alert").get_by_role("button").first.click()
        page.get_by_label("API_KEY").fill("s3cret-letters")
        person.presses("Save")
        person.sees("Saved.")
        assert page.get_by_label("API_KEY", exact=False).first.input_value() == ""
        expect(page.get_by_placeholder("•••• set; type to replace it")).to_be_visible()

        person.goes("/tools/weather.act")
        person.presses("Run")
        _allow(person, "Allow for this page")
        person.sees("sunny, with a key of 14 letters")
        assert "s3cret-letters" not in page.content(), "a secret is masked, wherever the plugin prints it"
        expect(page.get_by_role("link", name=re.compile(r"^#\d+$")).first).to_be_visible()


def test_an_edited_plugin_is_approved_again_after_its_diff(home):
    folder = plugin_folders.cyclop(home / "plugins", "counter", COUNT, tools=COUNTS)
    approve("counter")
    with visitor() as person:
        page = person.goes("/tools/count")
        page.get_by_label("text").fill("four")
        page.keyboard.press("Control+Enter")
        person.sees("4 letters")
        plugin_folders.write(os.path.join(folder, "run"), COUNT.replace("letters", "signs"), 0o755)
        person.presses("Refresh")
        page.get_by_role("region", name="All tools").get_by_text("changed").wait_for()
        person.presses("Review counter")
        person.sees("counter changed since you approved it on")
        person.sees("Permissions and tools are the same.")
        expect(page.locator(".diff .plus")).to_contain_text("signs")
        expect(page.locator(".diff .minus")).to_contain_text("letters")
        person.presses("Approve again")
        person.sees("It is approved as it is now.")
        person.goes("/tools/count")
        page.get_by_label("text").fill("four")
        person.presses("Run")
        person.sees("4 signs")


PRESSES_WHAT_CHANGES = """() => {
  const press = (_, observer) => {
    if (!document.querySelector("main").textContent.includes("talk to other machines")) return;
    observer.disconnect();
    [...document.querySelectorAll("button")].find((one) => one.textContent === "Approve").click();
  };
  new MutationObserver(press).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def test_a_click_that_was_aimed_at_another_version_approves_nothing(home):
    plugin_folders.cyclop(home / "plugins", "counter", COUNT, tools=COUNTS)
    with visitor() as person:
        page = person.goes("/plugins/counter?tab=changes")
        button = page.get_by_role("button", name="Approve", exact=True)
        expect(button).to_have_attribute("aria-disabled", "false")
        page.evaluate(PRESSES_WHAT_CHANGES)
        plugin_folders.cyclop(home / "plugins", "counter", COUNT, tools=COUNTS, permissions=["network"])
        expect(page.get_by_role("region", name="Approval")).to_contain_text("talk to other machines")
        expect(button).to_have_attribute("aria-disabled", "false")
        assert run("show", "counter", "--json").json["state"] == "new"
        person.presses("Approve")
        person.sees("counter is approved.")


def test_a_question_of_an_agent_is_answered_in_the_page_and_seen_when_answered_elsewhere(home):
    plugin_folders.cyclop(home / "plugins", "careful", permissions=["filesystem:write"])
    approve("careful")
    answers: list = []
    with visitor() as person:
        page = person.goes("/settings")
        person.sees("live")
        program = with_token()
        calling = threading.Thread(target=lambda: answers.append(program.post("/tools/careful/call")))
        calling.start()
        person.sees("1 waiting")
        assert page.title().startswith("(1) "), page.title()
        assert page.evaluate("document.activeElement.closest('.questions')") is None, "a question takes no focus"
        person.presses("Review")
        expect(page.get_by_role("heading", name=re.compile("careful wants to run careful"))).to_be_visible()
        once = page.get_by_role("button", name=re.compile("Allow once"))
        expect(once).to_have_attribute("aria-disabled", "false")
        once.click()
        person.sees("Allowed once in the console")
        calling.join()
        assert not answers[0]["is_error"]

        calling = threading.Thread(target=lambda: answers.append(program.post("/tools/careful/call")))
        calling.start()
        person.sees("1 waiting")
        other = signed_in()  # the same person in another browser
        question = other.get("/questions")["items"][0]["id"]
        other.post(f"/questions/{question}/answer", {"word": "no"})
        person.sees("Not allowed in the console")
        calling.join()
        assert answers[1]["error"]["code"] == "denied"


def test_a_plugin_found_while_the_page_is_open_is_announced_approved_and_its_log_followed(home):
    with visitor() as person:
        page = person.goes("/settings")
        for name in ("late", "later"):
            body = 'print("careful now", file=sys.stderr); print(json.dumps({"result": "done"}))'
            plugin_folders.cyclop(home / "plugins", name, python(body))
        announced = page.get_by_role("status").filter(has_text="Found a new plugin: late")
        announced.get_by_role("link", name="Review").first.click()
        expect(page.get_by_role("heading", name=re.compile("Approve late"))).to_be_visible()
        person.presses("Approve")
        person.sees("is approved.")
        for name in ("late", "later"):
            approve(name)  # at the terminal: what was announced elsewhere is decided
        expect(page.get_by_text("Found a new plugin")).to_have_count(0)
        person.goes("/plugins/late#logs")
        page.get_by_role("tab", name="Logs").click()
        ok("call", "late")
        expect(page.get_by_role("log", name="Log")).to_contain_text("careful now")


def test_calls_are_validated_previewed_copied_and_put_in_a_chain(home):
    plugin_folders.cyclop(home / "plugins", "counter", COUNT, tools=COUNTS)
    approve("counter")
    with visitor() as person:
        page = person.goes("/tools/count")
        person.presses("Run")
        person.sees("Not sent.")
        page.get_by_label("text").fill("one two")
        person.presses("Show request")
        person.sees("Request, not sent")
        person.presses("Copy as Python")
        person.sees("Copied")
        assert "count" in page.evaluate("navigator.clipboard.readText()")
        person.presses("Add to chain")
        page.get_by_label("text").fill("{{step1.content}}")
        person.presses("Add to chain")
        person.presses("Open it")
        person.presses("Run chain")
        person.sees("All steps are done.")
        person.sees("7 letters")
        person.sees("9 letters")
        assert [step["tool"] for step in json.loads(_copied(person, "Copy as JSON"))] == ["count", "count"]


def _allow(person, word):
    button = person.page.get_by_role("region", name="Tool").get_by_role("button", name=re.compile(word))
    expect(button).to_have_attribute("aria-disabled", "false")
    button.click()


def _copied(person, label):
    person.presses(label)
    person.sees("Copied")
    return person.page.evaluate("navigator.clipboard.readText()")


def test_a_chain_shows_each_step_as_it_ends_and_is_cancelled(home):
    plugin_folders.cyclop(home / "plugins", "counter", COUNT, tools=COUNTS)
    plugin_folders.cyclop(home / "plugins", "slow", python("time.sleep(600)"))
    for name in ("counter", "slow"):
        approve(name)
    with visitor() as person:
        page = person.goes("/tools/count")
        page.get_by_label("text").fill("one")
        person.presses("Add to chain")
        page.get_by_role("region", name="All tools").get_by_role("link", name="slow").click()
        expect(page.get_by_role("heading", name="slow", exact=True)).to_be_visible()
        person.presses("Add to chain")
        person.presses("Open it")
        person.presses("Run chain")
        steps = page.get_by_role("region", name="Chain").get_by_role("listitem")
        expect(steps.first).to_contain_text("3 letters")
        expect(steps.nth(1)).to_contain_text("running")
        expect(page.get_by_role("button", name="Remove step 1")).to_be_disabled()
        person.goes_on("/activity")
        person.sees("now", page.get_by_role("region", name="Calls"))
        person.goes_on("/tools?chain=1")
        expect(steps.nth(1)).to_contain_text("running")
        person.presses("Cancel")
        person.sees("The chain ended: the call was cancelled")
        expect(steps.first).to_contain_text("3 letters")
        person.presses("Remove step 2")
        expect(steps.first).not_to_contain_text("3 letters")
        person.presses("Run chain")
        person.sees("All steps are done.")


def test_a_page_without_a_session_comes_back_with_a_new_link(home):
    with chromium() as browser, daemons.resident("--http", "127.0.0.1:0"):
        page, new = browser.new_page(), browser.new_page()
        page.goto(consoles.link())
        expect(page.locator(".standing")).to_contain_text("live")
        browser.clear_cookies()
        page.reload()
        expect(page.get_by_role("alert").filter(has_text="This page has no session.")).to_be_visible()
        new.goto(consoles.link())
        for one in (new, page):  # the old page has the connection, and the new one brought the session
            expect(one.locator(".standing")).to_contain_text("live")
            expect(one.get_by_text("This page has no session.")).to_have_count(0)
        plugin_folders.cyclop(home / "plugins", "late")
        for one in (new, page):
            expect(one.get_by_role("status").filter(has_text="Found a new plugin: late")).to_be_visible()


def test_a_question_asked_while_the_page_reads_what_is_open_is_not_lost(home):
    plugin_folders.cyclop(home / "plugins", "careful", permissions=["filesystem:write"])
    approve("careful")
    held: list = []
    with visitor() as person:
        person.page.route("**/api/v1/questions", lambda route: held.append((route, route.fetch())))
        page = person.goes("/settings")
        person.sees("live")
        program = with_token()
        calling = threading.Thread(target=lambda: program.post("/tools/careful/call"))
        calling.start()
        person.sees("1 waiting")
        assert held
        for route, answer in held:
            route.fulfill(response=answer)
        page.unroute("**/api/v1/questions")
        expect(page.get_by_role("heading", name="Host")).to_be_visible()  # it has read
        person.presses("Review")
        no = page.get_by_role("button", name="Don't allow")
        expect(no).to_have_attribute("aria-disabled", "false")
        no.click()
        calling.join()


@pytest.mark.claim("console-own-page")
def test_tabs_of_two_projects_side_by_side_each_show_and_run_their_own(home, tmp_path):
    where = {name: tmp_path / name for name in ("first", "second")}
    for name, folder in where.items():
        plugin_folders.stavrobot(folder / ".anyplug/plugins", "twin", f"#!/bin/sh\necho ran in {name}\n")
        ok("approve", "twin", "--yes", "--always", cwd=folder)
    with chromium() as browser, daemons.resident("--http", "127.0.0.1:0"):
        tabs = {name: browser.new_page() for name in where}

        def runs(name, page):
            expect(page.locator(".standing")).to_contain_text("live")
            page.get_by_label("text").first.fill("x")
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.get_by_role("main")).to_contain_text(f"ran in {name}")

        for name, page in tabs.items():
            page.goto(consoles.link(cwd=where[name]))
            page.get_by_role("link", name="twin.act").first.click()
        for name, page in tabs.items():
            runs(name, page)
            page.reload()
            runs(name, page)
        with browser.expect_page() as opened:
            tabs["first"].bring_to_front()
            tabs["first"].get_by_role("link", name="Settings").click(modifiers=["Control"])
        for page, name in ((opened.value, "first"), (tabs["second"], "second")):
            page.goto(page.url.partition("/tools")[0].removesuffix("/settings") + "/settings")
            expect(page.get_by_role("main")).to_contain_text(str(where[name]))
        opened.value.get_by_role("button", name="End this session").click()
        gone = tabs["first"].get_by_role("alert").filter(has_text="This page has no session.")
        tabs["first"].reload()
        expect(gone).to_be_visible()
        expect(tabs["second"].locator(".standing")).to_contain_text("live")
        opened.value.goto(consoles.link(cwd=where["first"]))
        expect(gone).to_have_count(0)
        runs("first", tabs["first"])


def test_a_page_tells_that_its_daemon_is_gone_and_the_next_one_has_another_address(home):
    with chromium() as browser:
        page, new = browser.new_page(), browser.new_page()
        with daemons.resident("--http", "127.0.0.1:0") as first:
            page.goto(consoles.link())
            expect(page.locator(".standing")).to_contain_text("live")
            named = daemons.status()["url"].removeprefix("http://")
            first.kill()
            expect(page.get_by_role("status").filter(has_text="Not connected")).to_be_visible()
        with daemons.resident("--http", named):
            new.goto(consoles.link())
            expect(new.locator(".standing")).to_contain_text("live")
            expect(page.get_by_role("status").filter(has_text="Not connected")).to_be_visible()


def test_calls_errors_and_latency_are_charted_by_tool(home):
    plugin_folders.cyclop(home / "plugins", "counter", COUNT, tools=COUNTS)
    plugin_folders.cyclop(home / "plugins", "broken", "#!/bin/sh\nexit 3\n")
    for name in ("counter", "broken"):
        approve(name)
    for _ in range(2):
        ok("call", "count", "text=a")
    assert run("call", "broken").code
    with visitor() as person:
        page = person.goes("/activity?charts=1")
        person.presses("By tool")
        for title, told in {
            "Calls": "count at most 2, .*broken at most 1,",
            "Failed calls": "count none; broken at most 1,",
            "Time taken, 95% below": "count at most .*broken at most",
        }.items():
            chart = page.get_by_role("figure").filter(has=page.locator("b").get_by_text(title, exact=True))
            expect(chart.locator("canvas")).to_be_visible()
            expect(chart.locator(".hidden-text")).to_have_text(re.compile(told))
        page.reload()
        expect(page.get_by_role("button", name="By tool")).to_have_attribute("aria-pressed", "true")


def test_what_runs_is_shown_with_its_progress_and_cancelled(home):
    folder = os.path.join(home, "plugins", "reader")
    servers = {"reader": {"command": sys.executable, "args": ["server.py"]}}
    plugin_folders.write(os.path.join(folder, "server.py"), PROGRESSING)
    plugin_folders.write(os.path.join(folder, "mcp.json"), json.dumps({"mcpServers": servers}))
    approve("reader", "--always")
    with visitor() as person:
        page = person.goes("/tools/reader.read")
        person.presses("Run")
        bar = page.get_by_role("progressbar", name="Progress")
        expect(bar).to_have_attribute("value", "3")
        expect(bar).to_have_attribute("max", "4")
        person.sees("page 3 of 4")
        person.presses("Cancel")
        person.sees("cancelled")
        expect(bar).to_have_count(0)
        person.goes("/activity?outcome=cancelled")
        page.get_by_role("link", name=re.compile("read")).first.click()
        person.sees("Path through the gates")
        person.sees("Sandbox receipt")


@pytest.mark.skipif(sys.platform != "linux", reason="the proxy and the recorder are of the kernel's sandbox")
def test_permissions_show_what_was_seen_in_use_and_the_rest_is_taken_away(home):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        where = f"localhost:{site.server_port}"
        asked = [f"network:{where}", "filesystem:read", "shell:exec", "events:observe"]
        plugin_folders.cyclop(home / "plugins", "caller", CALLS.replace("WHERE", where), permissions=asked)
        ok("approve", "caller", "--yes", "--always")
        try:
            with visitor() as person:
                for _ in range(2):
                    person.goes("/tools/caller")
                    person.presses("Run")
                    person.sees("501")
                page = person.goes("/plugins/caller#permissions")
                rows = page.get_by_role("row")
                expect(rows.filter(has_text="network:")).to_contain_text(re.compile(f"in 2 calls.*{where}"))
                expect(rows.filter(has_text="shell:exec")).to_contain_text("not recorded")
                ok("learn", "caller", "--yes")
                page.reload()
                expect(rows.filter(has_text="network:")).to_contain_text("in 3 calls")
                expect(rows.filter(has_text="shell:exec")).to_contain_text("never")
                expect(rows.filter(has_text="events:observe")).to_contain_text("not recorded")
                person.sees("In 1 recorded call it never used")
                person.presses("Take away what was never used")
                person.sees("Saved.")
                assert ok("show", "caller", "--json").json["permissions"]["granted"] == [asked[0], "events:observe"]
                person.goes("/activity?outcome=done&tool=caller")
                page.get_by_role("link", name=re.compile("caller")).first.click()
                person.sees("Sandbox receipt")
                person.sees(where)
        finally:
            site.shutdown()


def test_permissions_are_switched_and_the_plugin_is_removed(home):
    folder = plugin_folders.cyclop(home / "plugins", "careful", permissions=["filesystem:write", "network"])
    approve("careful")
    with visitor() as person:
        page = person.goes("/plugins/careful#permissions")
        page.get_by_role("switch", name="Grant network").click()
        expect(page.get_by_role("switch", name="Grant network")).to_have_attribute("aria-checked", "false")
        assert ok("show", "careful", "--json").json["permissions"]["granted"] == ["filesystem:write"]
        page.get_by_label("Another permission to grant").fill("network:example.org")
        person.presses("Grant")
        expect(page.get_by_role("switch", name="Grant network:example.org")).to_have_attribute("aria-checked", "true")
        granted = ok("show", "careful", "--json").json["permissions"]["granted"]
        assert granted == ["filesystem:write", "network:example.org"]
        person.presses("Remove…")
        page.get_by_label("This folder is your own").fill(os.path.realpath(folder))
        page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
        person.sees("No plugins yet")
        assert not os.path.exists(folder)
