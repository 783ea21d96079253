"""Finding plugins, against only reading their manifests."""

import os
import shutil

import anyio

from anyplug.catalog import known_plugins
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.snapshot import Snapshot
from anyplug.home.settings import Home
from bench import plugins
from bench.measure import Plan, Row, medians

SOME = 1_000
AIM = 3.0
AIM_GROWTH = 1.25  # for each plugin: linear, with room for the machine's caches


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure a thousand plugins, new and approved, and many more."""
    some = plugins.write_many(os.path.join(folder, "some"), SOME)
    many = plugins.write_many(os.path.join(folder, "many"), plan.many)
    await anyio.sleep(known_plugins.SETTLED_NS / 1e9 + 0.1)  # what has just changed is not kept
    fresh, known, approved = (os.path.join(folder, name) for name in ("fresh", "known", "approved"))
    plugins.approve_all(approved, [some])
    new, again, trusted, reading = await medians(
        plan.loads,
        lambda: _load_anew(fresh, some),
        lambda: _load(known, some),
        lambda: _load(approved, some),
        lambda: _read(some),
    )
    grown, small, reading_many = await medians(
        max(plan.loads // 5, 2), lambda: _load_anew(fresh, many), lambda: _load_anew(fresh, some), lambda: _read(many)
    )
    shutil.rmtree(many)
    manifests = f"reading {SOME:,} manifests"
    return [
        Row(what=f"discovery of {SOME:,} plugins", against=manifests, measured=new, baseline=reading, aim=AIM),
        Row(what=f"the same, known from before: {SOME:,}", against=manifests, measured=again, baseline=reading),
        Row(what=f"the same, all approved: {SOME:,}", against=manifests, measured=trusted, baseline=reading),
        Row(
            what=f"discovery of {plan.many:,} plugins",
            against=f"reading {plan.many:,} manifests",
            measured=grown,
            baseline=reading_many,
        ),
        Row(
            what=f"for each plugin: of {plan.many:,}",
            against=f"of {SOME:,}",
            measured=grown / plan.many * 1000,
            baseline=small / SOME * 1000,
            unit="µs",
            aim=AIM_GROWTH,
        ),
    ]


def _load_anew(home: str, root: str) -> Snapshot:
    """Do what a host does when it starts for the first time."""
    shutil.rmtree(Home(home).known, ignore_errors=True)
    return _load(home, root)


def _load(home: str, root: str) -> Snapshot:
    """Do what a host does when it starts; what was found is kept, as a host keeps it."""
    catalog = Catalog(Home(home), roots=[root])
    found = catalog.load()
    catalog.close()
    return found


def _read(root: str) -> None:
    """Do the least that any host must: list the root and read the manifests."""
    with os.scandir(root) as entries:
        for entry in entries:
            with open(os.path.join(entry.path, "plugin.json"), "rb") as file:
                file.read()
