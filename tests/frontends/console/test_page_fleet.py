"""The console in a browser: the fleet that the host joined."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import anyio
from playwright.sync_api import expect

import plugin_folders
from browsers import needs_chromium, visitor
from fleets import Fleet, worker_process

pytestmark = needs_chromium


def test_the_page_shows_workers_and_plugins_of_the_fleet_and_no_fleet_without_one(home: Path, tmp_path: Path):
    fleet, at_worker = Fleet(tmp_path / "fleet"), tmp_path / "at-worker"
    plugin_folders.cyclop(at_worker / "plugins", "hello")
    with ExitStack() as ending:
        with visitor() as person:
            page = person.goes("/fleet")
            person.sees("No fleet")
            expect(page.get_by_role("link", name="Extensions")).to_be_visible()
        aside = ending.enter_context(ThreadPoolExecutor(1))  # this thread has the loop of the browser
        aside.submit(anyio.run, fleet.__aenter__).result()
        ending.callback(fleet.server.stop)
        process = worker_process(fleet, "w1", at_worker)
        ending.callback(process.wait)
        ending.callback(process.kill)
        settings = fleet.settings("g1")
        joined = f'[fleet]\nnats = ["{settings.nats[0]}"]\ncredentials = "{settings.credentials}"\njoin = true\n'
        os.makedirs(home, exist_ok=True)
        (home / "settings.toml").write_text(joined)
        with visitor() as person:
            page = person.goes("/tools")
            page.get_by_role("link", name="Fleet").click()
            workers = page.get_by_role("region", name="Workers")
            expect(workers).to_contain_text("w1", timeout=30_000)
            expect(workers).to_contain_text("it is not approved for the fleet")
            plugins = page.get_by_role("region", name="Plugins")
            expect(plugins).to_contain_text("anyplug fleet approve hello")
            aside.submit(anyio.run, fleet.approve, "hello").result()
            expect(plugins).to_contain_text("approved", timeout=30_000)
            expect(workers).not_to_contain_text("it is not approved for the fleet", timeout=30_000)
