"""Photograph the console with the example plugins: at two widths and in two themes, three of them for the docs.

Everything happens in a home and a project of its own, which are deleted afterwards.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parent.parent
SHOWN = ROOT / "docs" / "pictures"
ALL = ROOT / "build" / "screenshots"
SIZES = {"wide": (1280, 800), "narrow": (360, 740)}
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
IN_DOCS = {"tool-wide-light", "approval-wide-light", "question-narrow-dark"}
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
PATIENCE_S = 30.0
SETTLE_MS = 900
POLICY = """# METADATA
# title: No secrets in arguments
# scope: package
# custom:
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.anyplug.no_secrets

import rego.v1

deny contains decision if {
    contains(json.marshal(input.tool_input), "sk-live")
    decision := {"rule_id": "NO_SECRETS", "reason": "a key must not leave this machine", "severity": "HIGH"}
}
"""
VIEWS = {
    "tools": "/tools",
    "plugins": "/plugins",
    "permissions": "/plugins/bookmarks#permissions",
    "approval": "/plugins/field-kit#changes",
    "changes": "/plugins/tally#changes",
    "activity": "/activity?charts=1&since=1h",
    "record": "/activity/3",
    "policy": "/policy",
    "try": "/policy#try",
    "chat": "/chat",
    "settings": "/settings",
}


class Stage:
    """A home, a project and a daemon that serves the console."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "notes-app"
        user = folder / "user"
        for path in (self.project, user, folder / "home"):
            path.mkdir()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "HOME": str(user),
            "ANYPLUG_HOME": str(folder / "home"),
        }

    def run(self, *words: str) -> str:
        """Run a command; refusals are part of what is shown."""
        program = [sys.executable, "-m", "anyplug", "--quiet", *words]
        return subprocess.run(
            program, cwd=self.project, env=self.environment, capture_output=True, text=True, check=False
        ).stdout

    def fill(self) -> None:
        """Install the examples, and make some calls."""
        policies = self.project / ".cupcake" / "policies" / "anyplug"
        policies.mkdir(parents=True)
        (policies / "no_secrets.rego").write_text(POLICY)
        self.run("policy", "trust", "--yes")
        for name in ("word-count", "bookmarks", "tally"):
            self.run("install", str(ROOT / "examples" / name), "--yes")
        for name, place in (("field-kit", ".anyplug/plugins"), ("pomodoro", ".zot/extensions")):
            shutil.copytree(ROOT / "examples" / name, self.project / place / name)
        self.run("approve", "pomodoro", "--yes", "--always")
        self.run("call", "word_count", "text=to be or not to be")
        for tag in ("reading", "trip", "trip"):
            self.run("call", "bookmark_add", f"url=https://example.org/{tag}", f"tags={tag}", "--yes")
        self.run("call", "bookmark_find", "tag=none", "--yes")
        self.run("call", "word_count", "text=sk-live-0123456789")
        self.run("call", "tally.add", "name=cups of tea", "--yes")
        with open(self.tally / "index.js", "a") as code:
            code.write("\n// counts faster\n")

    @property
    def tally(self) -> Path:
        """The installed Workbench plugin, which is edited after its approval."""
        return Path(self.environment["ANYPLUG_HOME"]) / "plugins" / "tally"

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Serve the console inside the block."""
        program = [sys.executable, "-m", "anyplug", "serve", "--http", "127.0.0.1:0"]
        daemon = subprocess.Popen(
            program, cwd=self.project, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            until = time.monotonic() + PATIENCE_S
            while "link" not in self.run("ui", "--no-open", "--json") and time.monotonic() < until:
                time.sleep(0.2)
            yield
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()

    def link(self) -> str:
        """Return a one-time link."""
        link: str = json.loads(self.run("ui", "--no-open", "--json"))["link"]
        return link

    def ask(self, address: str) -> threading.Thread:
        """Call a tool as an agent does, which waits for a person."""
        token = (Path(self.environment["ANYPLUG_HOME"]) / "http-token").read_text().strip()
        body = json.dumps({"arguments": {"url": "https://example.org/guide", "tags": ["reading"]}}).encode()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        request = urllib.request.Request(f"{address}/api/v1/tools/bookmark_add/call", body, headers)
        thread = threading.Thread(target=lambda: urllib.request.urlopen(request).read(), daemon=True)
        thread.start()
        return thread


class Photographer:
    """One page at one size in one theme."""

    def __init__(self, page: Page, stage: Stage, label: str) -> None:
        self.page, self.stage, self.label = page, stage, label
        link = stage.link()
        self.address = link.partition("/?")[0]
        page.goto(link)
        page.get_by_text("live").first.wait_for(state="attached")

    def take(self, name: str) -> None:
        """Keep a picture of what is shown."""
        self.page.wait_for_timeout(SETTLE_MS)
        file = f"{name}-{self.label}.png"
        self.page.screenshot(path=str(ALL / file))
        if f"{name}-{self.label}" in IN_DOCS:
            shutil.copy(ALL / file, SHOWN / file)

    def show(self, name: str, path: str) -> None:
        """Photograph one view."""
        self.page.goto(self.address + path)
        self.take(name)

    def scenes(self) -> None:
        """Photograph what has to be done first: a result, a panel, a question, the palette."""
        page = self.page
        page.goto(f"{self.address}/tools/word_count")
        page.locator("textarea").first.fill("to be or not to be, that is the question")
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_role("region", name="Result").wait_for()
        self.take("tool")
        page.goto(f"{self.address}/extensions")
        page.get_by_label("Run a command").fill("/pomodoro")
        page.get_by_label("Run a command").press("Enter")
        page.wait_for_timeout(SETTLE_MS)
        self.take("panel")
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Find").fill("book")
        self.take("palette")
        page.goto(f"{self.address}/tools")
        page.wait_for_timeout(SETTLE_MS)
        asking = self.stage.ask(self.address)
        page.get_by_role("button", name="Review").click()
        self.take("question")
        refuse = page.get_by_role("button", name="Don't allow")
        refuse.scroll_into_view_if_needed()
        page.wait_for_timeout(SETTLE_MS)  # a question's buttons work only when it has stood still
        refuse.click()
        asking.join(PATIENCE_S)


def photograph(browser: Browser, stage: Stage) -> None:
    """Take all pictures."""
    for size, (width, height) in SIZES.items():
        for theme in THEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=theme, locale="en-US"
            )
            photographer = Photographer(context.new_page(), stage, f"{size}-{theme}")
            for name, path in VIEWS.items():
                photographer.show(name, path)
            photographer.scenes()
            context.close()


def main() -> None:
    """Take all pictures in a home of their own."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        sys.exit("needs Chromium: `apt-get install chromium`")
    for folder in (SHOWN, ALL):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        stage = Stage(Path(scratch))
        stage.fill()
        with stage.served(), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
            photograph(browser, stage)
            browser.close()


if __name__ == "__main__":
    main()
