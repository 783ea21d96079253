"""The console in a browser: hostile plugins, accessibility, narrow screens, many tools."""

import json
import os
import re
import time

import pytest
from playwright.sync_api import expect

import consoles
import daemons
import plugin_folders
import zot_folders
from anyplug.audit.audit_log import Audit, Record
from anyplug.home.database import Store
from browsers import AXE, PATIENCE_MS, approve, needs_chromium, visitor
from command_line import ok, run
from plugin_folders import python
from random_examples import LONG_FORM

pytestmark = [needs_chromium, pytest.mark.usefixtures("browser"), pytest.mark.xdist_group("page-safety")]

SVG = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0iYWxlcnQoMSkiLz4="
ATTACKS = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    '"><svg/onload=alert(3)>',
    "[a](javascript:alert(4))",
    "![x](https://evil.example/x.png)",
    "<style>*{display:none}</style><p style='position:fixed'>",
    "{{constructor.constructor('alert(5)')()}}",
    "\u202egnp.exe\u202c\u200b\u2066",
    "\x1b]0;owned\x07\x1b[2J",
)
EVERY = " ".join(ATTACKS)
NARROW, WIDE = 360, 1280
RECORDS, PAGE = 1000, 200  # a page as the activity asks for
MOST_RECORDS = 100_000
VIEWS = (
    "/tools",
    "/tools/plain",
    "/tools?chain=1",
    "/plugins",
    "/plugins?install=1",
    "/plugins/plain",
    "/plugins/plain#permissions",
    "/plugins/fresh#changes",
    "/plugins/plain#config",
    "/plugins/plain#logs",
    "/activity",
    "/activity?charts=1",
    "/activity/1",
    "/policy",
    "/policy#try",
    "/policy#replay",
    "/extensions",
    "/chat",
    "/settings",
)
SCHEMA = {
    "type": "object",
    "required": ["text", "place"],
    "properties": {
        "text": {"type": "string", "description": "Any text."},
        "size": {"type": "integer", "minimum": 1, "default": 3},
        "kind": {"enum": ["a", "b"]},
        "loud": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "place": {
            "oneOf": [
                {
                    "title": "by name",
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
                {"title": "by point", "type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
            ]
        },
        "more": {"type": "object", "properties": {"deep": {"type": "string"}}},
    },
}
ECHO = python('print(json.dumps({"result": json.dumps(given["input"])}))')


# The page, and what scrolls in it from top to bottom.
WIDER = """[...document.querySelectorAll('html, main, .pane, .page, .pane-body, .activity, .transcript')]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => `${one.tagName} ${one.className}`)"""
CHOICE = {"oneOf": [{"$ref": "#/$defs/c"}] * 6}
NAMES = [f"p{number}" for number in range(9)]
ENDLESS = {  # schemas that have no end, or are no schemas
    "all_of": {"type": "object", "allOf": [{"$ref": "#"}] * 9},
    "itself": {"type": "object", "properties": {name: {"$ref": "#"} for name in NAMES}, "required": NAMES},
    "choices": {"type": "object", "properties": {"x": CHOICE}, "required": ["x"], "$defs": {"c": CHOICE}},
    "bomb": {"type": "object", "properties": {"b": {"type": "integer", "default": {"toString": 1}}}},
}


def plain(home) -> None:
    """Two plugins, one of them approved and called."""
    tools = [{"name": "plain", "description": "Echoes.", "input_schema": SCHEMA}]
    plugin_folders.cyclop(home / "plugins", "plain", ECHO, tools=tools, permissions=["filesystem:read"])
    plugin_folders.cyclop(home / "plugins", "fresh", permissions=["filesystem:write", "network"])
    approve("plain")
    ok("call", "plain", "--args", json.dumps({"text": "a", "place": {"name": "b"}}))


def test_nothing_of_a_hostile_plugin_runs(home):
    schema = {
        "type": "object",
        "title": EVERY,
        "properties": {
            EVERY: {"type": "string", "title": EVERY, "description": EVERY, "examples": [EVERY]},
            "pick": {"enum": [EVERY, "b"], "description": EVERY},
            "one": {"oneOf": [{"title": EVERY, "const": EVERY}, {"$ref": "https://evil.example/x"}]},
            "slow": {"type": "string", "pattern": "^(a+)+$", "default": "a" * 40 + "!"},
            "__proto__": {"type": "object", "default": {"polluted": True}},
        },
    }
    tools = [
        {"name": "attack", "description": EVERY, "input_schema": schema},
        *({"name": name, "description": "Stops pages.", "input_schema": given} for name, given in ENDLESS.items()),
    ]
    body = f"print({json.dumps(json.dumps({'result': '# ' + EVERY}))}); print({EVERY!r}, file=sys.stderr)"
    body = f"if given['tool'] == 'bomb': print(json.dumps({{'result': '# *a_' * 12_000}})); sys.exit()\n{body}"
    plugin_folders.cyclop(home / "plugins", "hostile", python(body), tools=tools, description=EVERY, version="1.0.0")
    image = {"type": "image", "mime_type": "image/svg+xml", "data": SVG}
    script = f"""
hello("tools", "commands", "panels")
tool("paint", description={EVERY!r})
command("own", {EVERY!r})
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        emit("tool_result", id=frame["id"], content=[{image!r}, {{"type": "text", "text": {EVERY!r}}}])
    elif frame["type"] == "command_invoked":
        emit("notify", level="info", message={EVERY!r})
        emit("command_response", id=frame["id"], action="open_panel",
             open_panel={{"id": "p", "title": {EVERY!r}, "lines": [{EVERY!r}], "footer": {EVERY!r}}})
"""
    zot_folders.extension(home / "plugins", "painter", script)
    plugin_folders.cyclop(home / "plugins", "waiting", description=EVERY, permissions=[EVERY, "network"])
    approve("hostile")
    ok("approve", "painter", "--yes", "--always")
    with visitor() as person:
        page = person.goes("/tools/attack")
        person.sees("<script>alert(2)</script>")
        person.presses("Run")
        expect(page.locator(".markdown")).to_be_visible()
        assert page.locator(".markdown").locator("img, script, style, svg, [style], [onerror]").count() == 0
        for way in ("as text", "as Markdown"):
            person.presses(way)
            person.sees("⟨U+202E⟩", page.get_by_role("region", name="Result"))
        for tab in ("Raw", "Gates", "JSON", "Schema"):
            page.get_by_role("tab", name=tab, exact=True).click()
        for name in ENDLESS:
            person.goes(f"/tools/{name}")
            person.presses("Run")
            person.sees(re.compile("Not sent|done"), page.get_by_role("region", name="Tool"))
        person.sees("No form can be made of this schema.")
        person.presses("Run anyway")
        person.presses("as Markdown")
        person.sees("# *a_", page.get_by_role("region", name="Result"))
        person.presses("as text")
        person.goes("/tools/paint")
        person.presses("Run")
        person.sees("which is not shown here")
        for view in ("/plugins/hostile", "/plugins/waiting#changes", "/plugins/waiting"):
            person.goes(view)
            person.sees("<script>alert(2)</script>", page.get_by_role("region", name="Plugin"))
        person.goes("/extensions")
        page.get_by_label("Run a command").fill("/own")
        page.get_by_label("Run a command").press("Enter")
        expect(page.get_by_role("application")).to_contain_text("<script>")
        person.goes(f"/activity?q={ATTACKS[0]}&tool={ATTACKS[2]}")
        person.sees("No call fits")
        person.goes("/activity")
        page.get_by_role("link", name=re.compile("attack")).first.click()
        person.sees("Path through the gates")
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Find").fill("onerror")
        expect(page.locator("#found [role=option]").first).to_contain_text("<script>")
        assert page.evaluate("({}).polluted") is None
        assert not re.search("owned", page.title())


@pytest.mark.skipif(not os.path.exists(AXE), reason="needs axe-core: `npm ci --prefix web`")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(home, scheme):
    plain(home)
    with visitor(color_scheme=scheme) as person:
        found = []
        for view in VIEWS:
            page = person.goes(view)
            page.wait_for_load_state("load")
            expect(page.locator("main h1").first).to_be_visible()
            expect(page.locator(".skeleton")).to_have_count(0)
            for width in (NARROW, WIDE):
                page.set_viewport_size({"width": width, "height": 800})
                found += [f"{view} at {width}: {fault}" for fault in person.axe()]
        person.page.keyboard.press("Control+k")
        expect(person.page.locator("#found [role=option]").first).to_be_visible()
        found += [f"palette: {fault}" for fault in person.axe()]
        assert found == []


def test_everything_fits_a_narrow_screen(home):
    plain(home)
    long = "x" * 400
    schema = {
        "type": "object",
        "properties": {
            f"a{long}": {"type": "string", "description": long},
            f"b{long}": {"enum": [long, "b"]},
            f"c{long}": {"type": "object", "properties": {long: {"type": "boolean"}}},
            f"d{long}": {"type": "array", "items": {"type": "string"}, "title": long},
            f"e{long}": {"oneOf": [{"title": long, "type": "object", "properties": {long: {}}}, {"type": "null"}]},
        },
    }
    tools = [{"name": "endless", "description": long, "input_schema": schema}]
    plugin_folders.cyclop(home / "plugins", "endless", tools=tools, description=long, version=long)
    with visitor(width=NARROW, height=700) as person:
        for view in (*VIEWS, "/tools/endless", "/plugins/endless", "/plugins/endless#changes"):
            page = person.goes(view)
            expect(page.locator("main h1:visible, main h2:visible").first).to_be_visible()
            expect(page.locator(".skeleton")).to_have_count(0)
            assert page.evaluate(WIDER) == [], view
        page = person.goes("/tools/endless")
        page.get_by_role("button", name=re.compile("^Add to dx+$")).click()
        page.get_by_role("button", name=re.compile("^Add cx+$")).click()
        page.get_by_label("Which kind").select_option("0")
        expect(page.get_by_role("button", name=re.compile("^Leave cx+ out$"))).to_be_visible()
        assert page.evaluate(WIDER) == []
        page = person.goes("/tools")
        person.presses("More")
        page.locator("#more-places").get_by_role("link", name="Settings").click()
        expect(page.get_by_role("heading", name="Settings")).to_be_visible()


def test_a_tool_is_found_filled_in_and_run_by_keys_alone(home):
    plain(home)
    with visitor() as person:
        page = person.goes("/settings")
        page.get_by_role("heading", name="Settings").wait_for()
        page.keyboard.press("g")
        page.keyboard.press("t")
        expect(page.get_by_role("heading", name="Tools", exact=True)).to_be_visible()
        page.get_by_role("listitem").first.wait_for()
        page.keyboard.press("/")
        page.keyboard.type("plain")
        page.keyboard.press("Enter")
        text = page.get_by_label("text", exact=False).first
        expect(page.get_by_role("heading", name="plain", exact=True)).to_be_visible()
        text.wait_for()
        for _ in range(12):
            if page.evaluate("document.activeElement.tagName") == "TEXTAREA":
                break
            page.keyboard.press("Tab")
        page.keyboard.type("hello")
        page.keyboard.press("Control+Enter")
        person.sees("Not sent.")
        page.keyboard.type("here")  # the focus is on what is wrong
        page.keyboard.press("Control+Enter")
        person.sees("done")


def keep_many_tools(home) -> None:
    for number in range(20):
        tools = [
            {"name": f"t{number}_{n}", "description": "Does it.", "input_schema": {"type": "object"}}
            for n in range(100)
        ]
        plugin_folders.cyclop(home / "plugins", f"many{number}", tools=tools)


def keep_records(home, count: int) -> None:
    store = Store(os.path.join(home, "anyplug.db"))
    trail = Audit(store)
    for number in range(count):
        trail.end(Record(call=f"c{number}", at=float(number), attachment="cli", tool=f"t{number}", outcome="done"))
    store.close()


def scroll_to_the_end(page, wanted: str) -> None:
    """Scroll as far as one can, and again where more has come since, until something is there."""
    until = time.monotonic() + PATIENCE_MS / 1000
    while wanted not in (page.locator(".records").text_content() or ""):
        assert time.monotonic() < until, wanted
        page.locator(".virtual").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        page.wait_for_timeout(50)


def test_two_thousand_tools_are_listed_with_few_elements(home):
    keep_many_tools(home)
    with visitor() as person:
        page = person.goes("/tools")
        person.sees("2,000 tools")
        assert page.locator(".virtual-row").count() < 60
        page.get_by_label("Search tools").fill("t7_42")
        person.sees("1 of 2,000 tools")


def test_a_long_record_is_read_page_by_page_and_drawn_with_few_elements(home):
    keep_records(home, RECORDS)
    with visitor() as person:
        asked: list[str] = []
        person.page.on("request", lambda request: asked.append(request.url))
        page = person.goes("/activity")
        person.sees(f"#{RECORDS}")
        assert any("/records?" in url for url in asked)
        assert not any("cursor=" in url for url in asked), "older ones are asked for at the end of the list"
        rows = page.locator(".virtual-row")
        for wanted in range(RECORDS - PAGE, 0, -PAGE):  # each end asks for the page after it
            assert rows.count() < 60
            scroll_to_the_end(page, f"t{wanted}")
        assert rows.count() < 60


@pytest.mark.skipif(not os.environ.get(LONG_FORM), reason="takes minutes; `make long` runs it")
def test_the_page_stays_usable_with_a_hundred_thousand_records_and_two_thousand_tools(home):
    keep_many_tools(home)
    keep_records(home, MOST_RECORDS)
    with visitor() as person:
        page = person.goes("/activity")
        person.sees(f"#{MOST_RECORDS}")
        rows = page.locator(".virtual-row")
        for wanted in range(MOST_RECORDS - PAGE, MOST_RECORDS - 10 * PAGE, -PAGE):
            scroll_to_the_end(page, f"t{wanted}")
            assert rows.count() < 60
        person.goes("/activity?tool=t17")
        expect(page.locator(".records")).to_contain_text("#18")
        assert rows.count() == 1
        person.goes("/tools")
        person.sees("2,000 tools")
        assert rows.count() < 60
        page.get_by_label("Search tools").fill("t7_42")
        person.sees("1 of 2,000 tools")
        page.keyboard.press("Control+k")
        page.get_by_placeholder("A page, tool, plugin or command").fill("t19_99")
        person.sees("t19_99", page.get_by_role("listbox", name="Found"))


def test_a_link_opened_at_another_address_says_so_and_still_works_at_its_own(home):
    with visitor() as person:
        person.page.context.clear_cookies()
        link = consoles.link()
        person.page.goto(link.replace(daemons.status()["console"], daemons.status()["url"]))
        person.sees("This page has no session.")
        person.sees("The link is for another address than this one, and works only there")
        person.page.goto(link)
        person.sees("live")


def test_a_page_without_a_session_says_how_to_get_one(home):
    with visitor() as person:
        person.page.context.clear_cookies()
        person.goes("/tools?login=expired")
        person.sees("This page has no session.")
        person.sees("The link was used already, or is too old.")
        assert run("status").code == 0
