"""A person at the console: Chromium with a session of its own, driven as people do, by labels, buttons and keys."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

import command_line
import consoles
import daemons

PATIENCE_MS = 60_000.0  # a loaded machine takes long to draw a page
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
AXE = os.path.join(os.path.dirname(__file__), "..", "web", "node_modules", "axe-core", "axe.min.js")
# Told from inside the page, because the ban on evaluation is lifted while a test evaluates something.
TELL_VIOLATIONS = """
addEventListener('securitypolicyviolation', (event) =>
    console.error('refused by the Content-Security-Policy: ' + event.violatedDirective + ' ' + event.blockedURI));
"""
# Notes whether a button was off when it was pressed.
PRESSED = """(button) => {
    const pressed = { wasOff: false };
    const note = () => { pressed.wasOff = button.getAttribute("aria-disabled") === "true"; };
    button.addEventListener("click", note, { capture: true, once: true });
    return pressed;
}"""
expect.set_options(timeout=PATIENCE_MS)

needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium: `apt-get install chromium`")


class Visitor:
    """One page of the console, and what went wrong in it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(TELL_VIOLATIONS)
        page.on("pageerror", lambda error: self.faults.append(f"{error}\n{error.stack}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda said: self._note(said.type, said.text))

    def _note(self, kind: str, text: str) -> None:
        if "Content-Security-Policy" in text or "Content Security Policy" in text or kind == "warning":
            self.faults.append(text)

    def goes(self, path: str) -> Page:
        """Open a view by its address."""
        self.page.goto(f"http://{self.address}{path}")
        return self.page

    def goes_on(self, path: str) -> None:
        """Follow a link to a view; what the page keeps stays."""
        self.page.evaluate(
            "to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }", path
        )

    def presses(self, label: str, within: Any = None) -> None:
        """Press a button or follow a link, by exactly its name."""
        place = within or self.page
        found = (
            place.get_by_role("button", name=label, exact=True)
            .or_(place.get_by_role("link", name=label, exact=True))
            .first
        )
        if found.get_attribute("aria-disabled") is None:
            found.click()
            return
        was_off = True
        while was_off:  # its card moved at the last moment, so nothing happened
            expect(found).to_have_attribute("aria-disabled", "false")
            pressed = found.evaluate_handle(PRESSED)
            found.click()
            was_off = pressed.evaluate("pressed => pressed.wasOff")

    def sees(self, text: str, within: Any = None) -> None:
        """Wait until a text can be seen."""
        expect((within or self.page).get_by_text(text).first).to_be_visible()

    def axe(self) -> list[str]:
        """Return what axe finds serious or critical here."""
        with open(AXE, encoding="utf-8") as source:
            self.page.evaluate(source.read())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:200]} {node['failureSummary']}"
            for one in found
            if one["impact"] in {"serious", "critical"}
            for node in one["nodes"][:3]
        ]


_kept: list[Browser] = []


@contextlib.contextmanager
def kept_browser() -> Iterator[None]:
    """Use one browser for all sessions inside the block; each still has its own cookies and storage.

    Meanwhile this thread has the event loop of the browser, and no other.
    """
    with _started() as browser:
        _kept.append(browser)
        try:
            yield
        finally:
            _kept.clear()


@contextlib.contextmanager
def _started() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def chromium(**options: Any) -> Iterator[BrowserContext]:
    """Open a session of its own in a browser; its locale is one that every library accepts."""
    with contextlib.ExitStack() as ending:
        browser = _kept[0] if _kept else ending.enter_context(_started())
        with browser.new_context(locale="en-US", **options) as context:
            yield context


@contextlib.contextmanager
def visitor(*, width: int = 1280, height: int = 800, **options: Any) -> Iterator[Visitor]:
    """Keep a daemon up, and open its console with a one-time link; nothing may go wrong in the page."""
    with (
        daemons.resident("--http", "127.0.0.1:0"),
        chromium(viewport={"width": width, "height": height}, **options) as it,
    ):
        link = consoles.link()
        it.grant_permissions(["clipboard-read", "clipboard-write"])
        guest = Visitor(it.new_page(), link.removeprefix("http://").partition("/")[0])
        guest.page.goto(link)
        guest.page.get_by_text("live").first.wait_for(state="attached")
        try:
            yield guest
        except BaseException:
            print(guest.page.url, guest.page.get_by_role("main").inner_text(), guest.faults)  # pytest shows it
            raise
        assert guest.faults == []


def approve(name: str, *options: str) -> None:
    """Approve a plugin at the terminal."""
    command_line.ok("approve", name, "--yes", *options)
