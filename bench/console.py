"""The console: a call of a tool over its HTTP API, against the same call over MCP on the same listener; and its page.

The page is timed in Chromium, where there is one: until something is painted, against the smallest answer of the same
server as a page, and until 2,000 tools are listed and can be searched.
"""

import asyncio
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from playwright.async_api import Browser, async_playwright

from anyplug.frontends.daemon.locate import Address
from bench import plugins
from bench.measure import Plan, Row, medians
from bench.sessions import ARGUMENTS, ECHO, write

AIM = 1.2
NEWER = "2026-07-28"  # MCP's era without a session: each request stands alone, as each of the API does
META = {
    "io.modelcontextprotocol/protocolVersion": NEWER,
    "io.modelcontextprotocol/clientCapabilities": {},
}


PAINT_AIM = 3.0
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
SMALLEST = "/api/v1/health"  # a dozen bytes, which the browser shows as text
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# The first rows are there and the search takes words.
USABLE = "document.querySelector('.virtual-row') && document.querySelector('input[type=search]') && performance.now()"
PATIENCE_S = 30.0  # for one visit
STEP_S = 0.002  # between looks; pages that may run no scripts have no timers
UNHINDERED = "[http]\nrequests_per_s = 1000000\n"  # one client calls faster here than any agent
MANY, EACH = 20, 100  # plugins, and tools of each


class Served(NamedTuple):
    """A daemon: its address, the token of its home, and a person's cookie."""

    address: str
    token: str
    cookie: str
    page: str  # the key of the page


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure with a daemon that has one tool, and with one that has many."""
    home = os.path.join(folder, "console-home")
    write(os.path.join(home, "plugins"), "echo", ECHO)
    async with served(folder, home) as up:
        bearer = {"authorization": f"Bearer {up.token}", "content-type": "application/json"}
        person = {
            "cookie": up.cookie,
            "x-anyplug-page": up.page,
            "sec-fetch-site": "same-origin",
            "content-type": "application/json",
        }
        found = [
            await _row("call over the HTTP API, with the token", up.address, bearer, bearer, plan),
            await _row("call over the HTTP API, from the page", up.address, person, bearer, plan),
        ]
    if not CHROMIUM:
        return found
    home = os.path.join(folder, "page-home")
    for number in range(MANY):
        _write_tools(os.path.join(home, "plugins"), number)
    async with served(folder, home) as up, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            return [*found, *await _page_rows(browser, up, plan)]
        finally:
            await browser.close()


async def _page_rows(browser: Browser, up: Served, plan: Plan) -> list[Row]:
    painted, smallest, usable = [], [], []
    for _ in range(plan.starts):
        painted.append(await _visit(browser, up, "/tools", PAINTED))
        smallest.append(await _visit(browser, up, SMALLEST, PAINTED))
        usable.append(await _visit(browser, up, "/tools", USABLE))
    return [
        Row(
            what="first paint of the console, nothing cached",
            against="the smallest page of the same server",
            measured=statistics.median(painted),
            baseline=statistics.median(smallest),
            aim=PAINT_AIM,
        ),
        Row(
            what=f"console usable with {MANY * EACH:,} tools",
            against="",
            measured=statistics.median(usable),
            baseline=None,
        ),
    ]


async def _visit(browser: Browser, up: Served, path: str, moment: str) -> float:
    """Open a page as a browser that was never there; return the first value of an expression in it, in ms."""
    context = await browser.new_context(locale="en-US")
    try:
        name, _, value = up.cookie.partition("=")
        await context.add_cookies([{"name": name, "value": value, "url": f"http://{up.address}"}])
        await context.add_init_script(f"localStorage.setItem('anyplug-page', {up.page!r})")
        page = await context.new_page()
        await page.goto(f"http://{up.address}{path}", wait_until="load")
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await page.evaluate(moment)):
                await asyncio.sleep(STEP_S)
            return float(found)
    finally:
        await context.close()


def _write_tools(root: str, number: int) -> None:
    path = os.path.join(plugins.write(root, f"many{number}"), "plugin.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    (tool,) = manifest["tools"]
    manifest["tools"] = [{**tool, "name": f"tool_{number}_{each}"} for each in range(EACH)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(manifest, file)


@asynccontextmanager
async def served(folder: str, home: str) -> AsyncIterator[Served]:
    plugins.approve_all(home, [os.path.join(home, "plugins")], always=True)
    with open(os.path.join(home, "settings.toml"), "w", encoding="utf-8") as file:
        file.write(UNHINDERED)
    program = [sys.executable, "-m", "anyplug", "--home", home]
    serving = await asyncio.create_subprocess_exec(
        *program, "--quiet", "serve", "--http", "127.0.0.1:0", cwd=folder, stdin=subprocess.DEVNULL
    )
    try:
        while (connection := Address(home).connect()) is None:
            await asyncio.sleep(0.05)
        connection.close()
        with open(os.path.join(home, "http-token"), encoding="ascii") as file:
            token = file.read().strip()
        opened = await asyncio.to_thread(subprocess.check_output, [*program, "ui", "--no-open", "--json"])
        yield Served(json.loads(opened)["url"].removeprefix("http://"), token, *_secrets(opened))
    finally:
        serving.terminate()
        await serving.wait()


async def _row(what: str, address: str, ours: dict[str, str], theirs: dict[str, str], plan: Plan) -> Row:
    api, mcp = http.client.HTTPConnection(address), http.client.HTTPConnection(address)
    body = json.dumps({"arguments": ARGUMENTS})
    named = {
        **theirs,
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": NEWER,
        "mcp-method": "tools/call",
        "mcp-name": "echo",
    }
    params = {"name": "echo", "arguments": ARGUMENTS, "_meta": META}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    def call() -> None:
        _ask(api, "/api/v1/tools/echo/call", body, ours)

    def call_mcp() -> None:
        _ask(mcp, "/mcp", request, named)

    measured, baseline = await medians(plan.calls, call, call_mcp)
    api.close()
    mcp.close()
    return Row(what=what, against="the same call at /mcp", measured=measured, baseline=baseline, aim=AIM)


def _ask(connection: http.client.HTTPConnection, path: str, body: str, headers: dict[str, str]) -> None:
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    assert answer.status == 200, said
    assert b'"is_error":true' not in said, said


def _secrets(opened: bytes) -> tuple[str, str]:
    """Open the link as a browser does; return its cookie and the key of its page."""
    given: dict[str, Any] = json.loads(opened)
    address, _, path = given["link"].removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(address)
    connection.request("GET", f"/{path}")
    answer = connection.getresponse()
    cookie, place = answer.getheader("set-cookie") or "", answer.getheader("location") or ""
    connection.close()
    return cookie.partition(";")[0], place.partition("#page=")[2]
