"""The types of the API's answers about plugins: what they are, what they may do, decisions, installations."""

from typing import Any

import msgspec

from anyplug.catalog.seen_permissions import Use
from anyplug.frontends.console.api_types import Page, Schema
from anyplug.frontends.console.plugin_shapes import Cure
from anyplug.model.types import Failure


class ProblemShape(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with a plugin."""

    code: str
    message: str
    hint: str
    level: str
    cure: Cure | None


class PluginEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin in a list."""

    id: str
    name: str
    format: str
    format_title: str
    version: str
    description: str
    path: str
    state: str
    health: str
    tier: int
    tools: list[str]
    commands: list[str]
    shadowed_by: str | None
    problems: list[ProblemShape]
    stays_up: bool
    is_explicit: bool
    is_builtin: bool
    risk: list[str]


class Plugins(Page, frozen=True, kw_only=True):
    """Plugins."""

    items: list[PluginEntry]


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """A value that the user sets. That of a secret is never sent."""

    name: str
    description: str
    required: bool
    secret: bool
    set: bool
    value: Any
    default: Any
    kind: str
    tools: list[str]


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the plugin's own file switches on or off."""

    tool: str
    on: bool


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's configuration."""

    keys: list[ConfigKey]
    keeps_config: bool
    switches: list[Switch] | None


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The calls in which everything that a plugin does was observed."""

    at: float
    calls: int


class PermissionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A permission: as asked, as granted and as seen in use."""

    permission: str
    description: str
    asked: bool
    granted: bool
    default: bool
    seen: Use | None
    is_observed: bool
    is_risky: bool
    really: str


class PermissionSets(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions as asked and as granted."""

    asked: list[str]
    granted: list[str]


class ApprovalShape(msgspec.Struct, frozen=True, kw_only=True):
    """How a plugin was approved."""

    always: bool
    follow: bool
    unconfined: bool
    inherits_environment: bool
    decided: float
    since: float


class ApprovalText(msgspec.Struct, frozen=True, kw_only=True):
    """The sentences that a person reads before approving."""

    title: str
    could: list[str]
    if_approved: str
    lasts: str
    undo: str


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plugin was installed from."""

    location: str
    ref: str
    subdir: str
    commit: str
    at: float


class CommandShape(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command."""

    name: str
    plugin: str
    plugin_id: str
    description: str


class ToolShape(msgspec.Struct, frozen=True, kw_only=True):
    """A tool."""

    name: str
    model_name: str
    plugin: str
    plugin_id: str
    format: str
    title: str
    description: str
    input_schema: Schema | None
    output_schema: Schema | None
    tier: int
    callable: bool
    state: str
    is_async: bool
    deferred: bool
    namespace: str
    risk: list[str]


class ToolDetail(ToolShape, frozen=True, kw_only=True):
    """A tool, and how strictly its arguments are checked."""

    arguments: str


class Tools(Page, frozen=True, kw_only=True):
    """Tools."""

    items: list[ToolShape]
    total: int


class PluginDetail(PluginEntry, frozen=True, kw_only=True):
    """Everything about a plugin."""

    found_at: str
    changes: list[str]
    permissions: PermissionSets
    permission_rows: list[PermissionRow]
    warning: str
    approval: ApprovalShape | None
    seen_in_use: Watched | None
    confinement: Schema | None
    config: list[ConfigKey]
    instructions: str
    environment_withheld: dict[str, str]
    digest: str
    process: Schema | None
    registrations: list[Schema]
    servers: list[Schema]
    tool_list: list[ToolShape]
    command_list: list[CommandShape]
    source: Origin | None
    is_installed: bool
    default_grants: list[str]
    approval_text: ApprovalText
    init: str
    launch: str
    missing_config: list[str]


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin after a decision."""

    plugin: PluginEntry
    message: str
    hint: str = ""


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin after its approval."""

    plugin: PluginEntry
    said: str
    ended: list[str]


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's new grants."""

    plugin: PluginEntry
    granted: list[str]
    notes: list[str]


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin after an update."""

    plugin: PluginEntry
    updated: bool
    message: str
    texts: list[str]
    beside: list[str]
    kept: list[str]


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What a removal would delete and keep."""

    going: list[str]
    staying: list[str]
    needs_path: bool


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted."""

    name: str
    removed: list[str]


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """What changed when everything was read again."""

    message: str
    plugins: int
    tools: int


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a plugin's log."""

    path: str
    lines: list[str]


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """An installation, and how far it is."""

    id: str
    state: str
    message: str
    source: str
    plugin: str | None
    name: str
    error: Failure | None
    warnings: list[str]


class InstallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that an agent asked for."""

    location: str
    ref: str
    subdir: str
    at: float
    shown: str


class InstallRequests(Page, frozen=True, kw_only=True):
    """The plugins that agents asked for."""

    items: list[InstallRequest]


class Declined(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is forgotten."""

    declined: bool


class Commands(Page, frozen=True, kw_only=True):
    """Slash commands."""

    items: list[CommandShape]
