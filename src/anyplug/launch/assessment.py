"""What holds a plugin on this machine, and what its grants really open: said by doing it, for people to look at."""

import os
import sys
from typing import Literal

import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.home.code_snapshots import Changed
from anyplug.home.settings import Settings
from anyplug.launch.own_folder import OwnFolders
from anyplug.launch.sandbox_profiles import Allowances
from anyplug.model.types import Plugin
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.sandbox.enforcement import (
    BROKER,
    MEND_AND_TRY,
    Enforcement,
    NotEnforceable,
    Shortfall,
    wanted_layers,
)
from anyplug.runtime.sandbox.profile import Profile
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

State = Literal["confined", "partly", "refused", "off"]
VARIABLE = "ANYPLUG_CONFINEMENT"


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """What one plugin's programs are held by.

    `confined`: all that its permissions say. `partly`: less than that, and a person allowed it. `refused`: less than
    that, so that nothing of it runs. `off`: nothing, because confinement is switched off.
    """

    state: State
    off_by: str = ""  # who switched it off
    layers: tuple[str, ...] = ()
    refused: dict[str, str] = {}  # layers that this machine does not give, and why
    landlock: int = 0  # its version; 0 if it is not in force
    shortfalls: tuple[Shortfall, ...] = ()  # what its permissions say and nothing holds
    gaps: tuple[str, ...] = ()  # what stays open for every plugin here
    notes: tuple[str, ...] = ()  # what a grant opens, where its name does not say so
    limits: dict[str, int] = {}
    protected: tuple[str, ...] = ()  # patterns of what it cannot change, though it lies in a folder that it may


def switched_off(settings: Settings) -> str:
    """Say by whom confinement is switched off; empty if it is on."""
    if settings.is_confining:
        return ""
    return VARIABLE if os.environ.get(VARIABLE) == "off" else "settings.toml"


def drawn(catalog: Catalog, plugin: Plugin, standing: Standing, project: str = "") -> Profile:
    """Draw what a plugin's programs may do, as the host does."""
    folder = project or os.getcwd()
    allowances = Allowances(catalog.home, catalog.settings, folder, plugin_folders=catalog.plugin_folders)
    return allowances.profile(plugin, standing)


def assess(catalog: Catalog, plugin: Plugin, standing: Standing, guard: Guard | None = None) -> Protection:
    """Confine nothing in the way in which the plugin would be, and say what holds.

    Blocks for some 100 ms; less if the guard is the one of those before.
    """
    profile = drawn(catalog, plugin, standing)
    if off_by := switched_off(catalog.settings):
        return Protection(state="off", off_by=off_by, notes=profile.notes)
    if sys.platform != "linux":
        nothing = Shortfall("any of its permissions", f"nothing is confined on {sys.platform} yet", "use Linux")
        return Protection(
            state="partly" if standing.unconfined else "refused", shortfalls=(nothing,), notes=profile.notes
        )
    enforcement, shortfalls = _tried_with_folder(catalog, plugin, standing, profile, guard)
    state: State = "confined"
    if shortfalls:
        state = "partly" if standing.unconfined else "refused"
    return Protection(
        state=state,
        layers=enforcement.held,
        refused=enforcement.refused,
        landlock=enforcement.landlock if "landlock" in enforcement.held else 0,
        shortfalls=shortfalls,
        gaps=enforcement.gaps,
        notes=profile.notes,
        limits=profile.limits.in_force if "limits" in enforcement.held else {},
        protected=_shown(profile) if BROKER in enforcement.held else (),
    )


def _shown(profile: Profile) -> tuple[str, ...]:
    """Return the protected patterns as people write them, without those that a grant names."""
    user = os.path.expanduser("~")
    names = (pattern.removeprefix("=") for pattern in profile.protected if pattern not in profile.named)
    return tuple(dict.fromkeys(name.replace(user, "~", 1) if name.startswith(f"{user}/") else name for name in names))


def _tried_with_folder(
    catalog: Catalog, plugin: Plugin, standing: Standing, profile: Profile, guard: Guard | None
) -> tuple[Enforcement, tuple[Shortfall, ...]]:
    """Do the same as `tried`, with the plugin's folder shown from its snapshot, if there is one."""
    folders, namespaces = OwnFolders(catalog), catalog.settings.namespaces
    view = None
    if folders.shows(plugin, namespaces=namespaces) and folders.has_snapshot(standing.digest):
        try:
            catalog.digest(plugin)
            view = folders.view(plugin, standing)
        except Changed:
            pass  # nothing of it runs before it is approved again
        except OSError as error:
            lost = Shortfall("that it runs as it was approved", f"its snapshot cannot be used: {error}", MEND_AND_TRY)
            return Enforcement(held=(), is_root=os.getuid() == 0), (lost,)
    try:
        shown = view.added_to(profile) if view is not None else profile
        return tried(shown, wanted_layers(namespaces=namespaces), guard)
    finally:
        if view is not None:
            view.close()


def tried(
    profile: Profile, layers: tuple[str, ...], guard: Guard | None = None
) -> tuple[Enforcement, tuple[Shortfall, ...]]:
    """Take the layers for a profile; give what holds, and what does not hold but should."""
    own = guard or Guard()
    try:
        spawn = ConfinedSpawn(own, profile, layers=layers, tolerant=True)
        spawn.close()
    except NotEnforceable as refusal:  # not even the process that would start it could be made
        return Enforcement(held=(), is_root=os.getuid() == 0), refusal.shortfalls
    finally:
        if guard is None:
            own.close()
    return spawn.enforcement, spawn.enforcement.shortfalls(profile)
