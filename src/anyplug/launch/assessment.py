"""Assess how a plugin is confined on this machine and what its grants really open, by applying its sandbox."""

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
    FIX_AND_TRY,
    Enforcement,
    NotEnforceable,
    Shortfall,
    wanted_layers,
)
from anyplug.runtime.sandbox.linux.protected_names import ANY_CASE, EXACT, LINK
from anyplug.runtime.sandbox.profile import Profile
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn

State = Literal["confined", "partly", "refused", "off"]
VARIABLE = "ANYPLUG_CONFINEMENT"


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """How one plugin's programs are confined.

    `confined`: everything its permissions require is enforced. `partly`: less is enforced, and a person allowed it.
    `refused`: less is enforced, so nothing of it runs. `off`: confinement is disabled.
    """

    state: State
    off_by: str = ""  # what disabled it
    layers: tuple[str, ...] = ()
    refused: dict[str, str] = {}  # layers that this machine lacks, and why
    landlock: int = 0  # its version; 0 if not in force
    shortfalls: tuple[Shortfall, ...] = ()  # what its permissions require but nothing enforces
    gaps: tuple[str, ...] = ()  # what stays open for every plugin here
    notes: tuple[str, ...] = ()  # what a grant opens beyond what its name suggests
    limits: dict[str, int] = {}
    protected: tuple[str, ...] = ()  # patterns of what it cannot change, even in a folder that it may write to


def switched_off(settings: Settings) -> str:
    """Return what disables confinement; empty if it is on."""
    if settings.is_confining:
        return ""
    return VARIABLE if os.environ.get(VARIABLE) == "off" else "settings.toml"


def drawn(catalog: Catalog, plugin: Plugin, standing: Standing, project: str = "") -> Profile:
    """Build the profile of a plugin's programs, as the host does."""
    folder = project or os.getcwd()
    allowances = Allowances(
        catalog.home, catalog.settings, folder, plugin_folders=catalog.plugin_folders, write_grants=catalog.write_grants
    )
    return allowances.profile(plugin, standing)


def assess(
    catalog: Catalog, plugin: Plugin, standing: Standing, guard: Guard | None = None, project: str = ""
) -> Protection:
    """Confine nothing in the way in which the plugin would be, and say what holds.

    Blocks for about 100 ms; less if the guard is that of earlier ones. `project` is the folder that it would work
    in, if not the current one.
    """
    profile = drawn(catalog, plugin, standing, project)
    if off_by := switched_off(catalog.settings):
        return Protection(state="off", off_by=off_by, notes=profile.notes)
    if sys.platform != "linux":
        nothing = Shortfall(
            "any of its permissions", (f"anyplug cannot confine programs on {sys.platform} yet"), "use Linux"
        )
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
    patterns = (one for one in profile.protected if one not in profile.named and not one.startswith(LINK))
    names = (pattern.removeprefix(ANY_CASE).removeprefix(EXACT) for pattern in patterns)
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
            lost = Shortfall("that it runs as it was approved", f"its snapshot cannot be used: {error}", FIX_AND_TRY)
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
    """Apply the layers for a profile; return what is enforced, and what is not but should be."""
    own = guard or Guard()
    try:
        spawn = ConfinedSpawn(own, profile, layers=layers, tolerant=True)
        spawn.close()
    except NotEnforceable as refusal:  # not even the process that would start it could be created
        return Enforcement(held=(), is_root=os.getuid() == 0), refusal.shortfalls
    finally:
        if guard is None:
            own.close()
    return spawn.enforcement, spawn.enforcement.shortfalls(profile)
