"""Assess how a plugin is confined on this machine and what its grants really open, by applying its sandbox."""

import os
import sys
from typing import Literal

import msgspec

from anyplug.catalog.approvals import Standing
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import Settings
from anyplug.launch.sandbox_profiles import Allowances
from anyplug.model.types import Plugin
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.sandbox.enforcement import BROKER, Enforcement, NotEnforceable, Shortfall, wanted_layers
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
    allowances = Allowances(catalog.home, catalog.settings, folder, plugin_folders=catalog.plugin_folders)
    return allowances.profile(plugin, standing)


def assess(catalog: Catalog, plugin: Plugin, standing: Standing) -> Protection:
    """Confine an empty process as the plugin would be, and report what is enforced. Blocks for some 100 ms."""
    profile = drawn(catalog, plugin, standing)
    if off_by := switched_off(catalog.settings):
        return Protection(state="off", off_by=off_by, notes=profile.notes)
    if sys.platform != "linux":
        nothing = Shortfall(
            "any of its permissions", (f"anyplug cannot confine programs on {sys.platform} yet"), "use Linux"
        )
        return Protection(
            state="partly" if standing.unconfined else "refused", shortfalls=(nothing,), notes=profile.notes
        )
    enforcement, shortfalls = tried(profile, wanted_layers(namespaces=catalog.settings.namespaces))
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


def tried(profile: Profile, layers: tuple[str, ...]) -> tuple[Enforcement, tuple[Shortfall, ...]]:
    """Apply the layers for a profile; return what is enforced, and what is not but should be."""
    guard = Guard()
    try:
        spawn = ConfinedSpawn(guard, profile, layers=layers, tolerant=True)
        spawn.close()
    except NotEnforceable as refusal:  # not even the process that would start it could be created
        return Enforcement(held=(), is_root=os.getuid() == 0), refusal.shortfalls
    finally:
        guard.close()
    return spawn.enforcement, spawn.enforcement.shortfalls(profile)
