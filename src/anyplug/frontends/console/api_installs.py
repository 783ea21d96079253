"""`/installs`, and update, removal and configuration of plugins: what a person does to what is installed."""

import os
import secrets
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from anyplug.catalog.catalog import Catalog
from anyplug.frontends.console import api_plugin_types as types
from anyplug.frontends.console.api_errors import Conflict, NothingHere
from anyplug.frontends.console.api_plugins import config_keys, entry_of
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.api_trust import NoBody
from anyplug.frontends.console.endpoints import Endpoint, Query
from anyplug.frontends.console.live_project import LiveProject
from anyplug.frontends.console.plugin_shapes import entry_shape, plugin_id
from anyplug.home import plugin_config
from anyplug.home.settings import Home
from anyplug.manage import install_requests, pasted_names, plugin_changes, plugin_sources, zip_sources
from anyplug.manage.installer import Installed, Installer
from anyplug.manage.plugin_sources import Source
from anyplug.model.errors import AnyplugError, InstallError, PluginNotFound, Unavailable, UsageError
from anyplug.model.types import Failure, Plugin

MOST_KEPT: Final = 100  # installations that can be asked about
ID_BYTES: Final = 8
ZIP: Final = "application/zip"

_known: dict[str, dict[str, Any]] = {}  # by id


class InstallBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to install: a folder of this machine, or a git address."""

    source: str
    ref: str = ""
    subdir: str = ""


class DeclineBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request of an agent that is not wanted."""

    location: str
    ref: str = ""
    subdir: str = ""


class ConfigBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a configuration. A secret that is left out stays as it is."""

    values: dict[str, Any] = {}
    unset: list[str] = []
    switches: dict[str, bool] = {}


async def begin_install(request: ApiRequest) -> dict[str, Any]:
    """Begin to install a plugin; it does not run before it is approved."""
    home, live, rest = request.host.catalog.home, request.live, ""
    if request.content_type == ZIP:
        source, content = Source(location="", subdir=request.text("subdir")), request.body
        shown = "a zip archive"
    else:
        body = request.read(InstallBody)
        if "\0" in f"{body.source}{body.ref}{body.subdir}":
            raise UsageError("a source has no NUL character", "write it without")
        named = pasted_names.read(body.source)
        source, content = (
            msgspec.structs.replace(
                named.source, ref=body.ref or named.source.ref, subdir=body.subdir or named.source.subdir
            ),
            b"",
        )
        rest = named.rest
        if not source.is_address and not os.path.isabs(os.path.expanduser(body.source)):
            raise UsageError(f"'{body.source}' is not a whole path", "write it from / or ~, or pass a git address")
        shown = source.shown
    name = secrets.token_hex(ID_BYTES)
    state: dict[str, Any] = {
        "id": name,
        "state": "fetching",
        "message": f"{'fetching' if source.is_git else 'copying'} {shown}",
        "source": shown,
        "plugin": None,
        "name": "",
        "error": None,
        "warnings": [],
    }
    while len(_known) >= MOST_KEPT:
        del _known[next(iter(_known))]
    _known[name] = state
    live.ring.add("install", state)
    request.server.run(lambda: _install(live, home, state, source, content, rest))
    return state


async def _install(
    live: LiveProject, home: Home, state: dict[str, Any], source: Source, content: bytes, rest: str
) -> None:
    """Install in a thread, and tell how far it is. `rest` follows the repository in a web page's address."""
    project = live.host.project

    def work() -> Installed:
        catalog = Catalog(home, folder=project)
        catalog.approvals.place = "console"
        try:
            installer = Installer(catalog)
            installer.tidy()
            if not content:
                return installer.install(plugin_sources.with_ref(source, rest))
            with zip_sources.unpacked(content, home) as folder:
                return installer.install(msgspec.structs.replace(source, location=folder))
        finally:
            catalog.close()

    try:
        installed = await anyio.to_thread.run_sync(work)
        install_requests.settle(home, source)
        state.update(state="reading", message=f"reading {installed.plugin.name}")
        live.ring.add("install", state)
        await live.host.look_again()
        state.update(
            state="installed",
            message=f"{installed.plugin.name} is installed; it does not run before you approve it",
            plugin=plugin_id(installed.plugin.path),
            name=installed.plugin.name,
            warnings=_warnings(installed),
        )
    except AnyplugError as error:
        state.update(state="failed", message=error.message)
        state["error"] = msgspec.to_builtins(Failure(error.code, error.message, error.hint))
    finally:
        if state["error"] is None and state["plugin"] is None:  # a fault of ours, or the end of the daemon
            message = "the installation ended with an internal error"
            state.update(state="failed", message=message)
            state["error"] = msgspec.to_builtins(Failure(Unavailable.code, message, "`anyplug serve` printed it"))
        live.ring.add("install", state)


def _warnings(installed: Installed) -> list[str]:
    found = ["its config.json was not copied: set its values here"] if installed.left_config else []
    if installed.left_modules:
        these = " and ".join(installed.left_modules)
        found.append(f"not copied: {these}; if it needs them, build them in {installed.plugin.path}")
    return [*found, *(problem.message for problem in installed.plugin.problems)]


async def show_install(request: ApiRequest) -> dict[str, Any]:
    """Return how far an installation is."""
    found = _known.get(request.values["install"])
    if found is None:
        raise NothingHere("there is no such installation", "list the plugins")
    return found


async def list_requests(request: ApiRequest) -> dict[str, Any]:
    """Return the plugins that agents asked for."""
    waiting = install_requests.waiting(request.host.catalog.home)
    return request.page(
        [{**msgspec.to_builtins(one.source), "at": one.at, "shown": one.source.shown} for one in waiting]
    )


async def decline(request: ApiRequest) -> dict[str, bool]:
    """Forget that an agent asked for a plugin."""
    body = request.read(DeclineBody)
    source = Source(location=body.location, ref=body.ref, subdir=body.subdir)
    if not install_requests.settle(request.host.catalog.home, source):
        raise NothingHere(f"no agent asked for {source.shown}", "list the requests again")
    return {"declined": True}


async def update(request: ApiRequest) -> dict[str, Any]:
    """Put the newest version of a plugin in place; it does not run before it is approved again."""
    entry, host = entry_of(request), request.host

    def work() -> Installed:
        installer = Installer(host.catalog)
        installer.tidy()
        with installer.update(entry.plugin) as installed:
            return installed

    installed = await anyio.to_thread.run_sync(work)
    await host.look_again()
    at = f", at {installed.record.commit[:12]}" if installed.record.commit else ""
    word = "updated" if installed.is_new else "up to date"
    texts = plugin_changes.changed_for_people(entry.plugin, installed.plugin) if installed.is_new else []
    return {
        "plugin": entry_shape(host.snapshot.plugin(entry.path), host),
        "updated": installed.is_new,
        "message": f"{entry.name} is {word}{at}",
        "texts": texts,
        "beside": list(installed.inheritance.beside.values()),
        "kept": [os.path.join(installed.kept, name) for name in installed.inheritance.kept],
    }


async def show_removal(request: ApiRequest) -> dict[str, Any]:
    """Return what a removal would delete, and what it would keep."""
    plugin, purge = entry_of(request).plugin, request.flag("purge")
    installer = Installer(request.host.catalog)

    def work() -> tuple[list[str], list[str], bool]:
        going, staying = installer.belongings(plugin, purge=purge)
        kept = [f"the secret {name}" for name in request.host.catalog.secrets.names(plugin)]
        going, staying = (going + kept, staying) if purge else (going, staying + kept)
        return going, staying, not installer.is_ours(plugin)

    going, staying, needs_path = await anyio.to_thread.run_sync(work)
    return {"going": going, "staying": staying, "needs_path": needs_path}


async def remove(request: ApiRequest) -> dict[str, Any]:
    """Remove a plugin. A folder that anyplug did not install needs its path as a confirmation."""
    host, entry = request.host, entry_of(request)
    plugin, purge = entry.plugin, request.flag("purge")
    _check_removable(host.catalog, plugin, request.text("path"))
    installer = Installer(host.catalog)

    def work() -> list[str]:
        going, _ = installer.belongings(plugin, purge=purge)
        installer.remove(plugin, purge=purge)
        return going

    going = await anyio.to_thread.run_sync(work)
    await host.look_again()
    return {"name": plugin.name, "removed": going}


def _check_removable(catalog: Catalog, plugin: Plugin, path: str) -> None:
    if plugin.is_file:
        raise InstallError(
            f"'{plugin.name}' belongs to another program, in {plugin.path}",
            f"remove '{plugin.name}' from [mcp] in {catalog.home.settings}",
        )
    if not Installer(catalog).is_ours(plugin) and path not in {plugin.path, plugin.found_at} - {""}:
        raise Conflict(
            f"'{plugin.name}' is in {plugin.found_at or plugin.path} and was not installed by anyplug",
            "confirm the removal with the path of its folder",
        )


async def show_config(request: ApiRequest) -> dict[str, Any]:
    """Return a plugin's configuration, without secrets."""
    plugin = entry_of(request).plugin
    return _config_shape(plugin, plugin_config.read(plugin) if plugin.config or plugin.keeps_config else {})


async def put_config(request: ApiRequest) -> dict[str, Any]:
    """Change values, and switch tools on and off."""
    plugin, body = entry_of(request).plugin, request.read(ConfigBody)
    if body.switches and not plugin.keeps_config:
        raise UsageError(f"plugin '{plugin.name}' has no configuration that anyplug keeps", "disable the whole plugin")
    values: dict[str, Any] = plugin_config.read(plugin) if plugin.config or plugin.keeps_config else {}
    if body.values or body.unset:
        given = {name: _word(value) for name, value in body.values.items()}
        values = plugin_config.change(plugin, given, body.unset)
    if body.switches:
        values = plugin_config.switch(plugin, body.switches)
    try:
        await request.host.look_again()
        plugin = request.host.snapshot.plugin(plugin.path).plugin
    except PluginNotFound:
        pass
    return _config_shape(plugin, values)


def _word(value: Any) -> str:
    """Return a value as it would be typed: `plugin_config` gives it the type that the manifest names."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _config_shape(plugin: Plugin, values: dict[str, Any]) -> dict[str, Any]:
    on = plugin_config.allowed(values) if plugin.keeps_config else None
    switches = [{"tool": tool.own_name, "on": on is None or tool.own_name in on} for tool in plugin.tools]
    return {
        "keys": config_keys(plugin, values),
        "keeps_config": plugin.keeps_config,
        "switches": switches if plugin.keeps_config else None,
    }


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/installs",
        name="beginInstall",
        about="Install a plugin from a folder, a git address, or a zip archive in the body",
        handle=begin_install,
        body=InstallBody,
        answer=types.Install,
        status=202,
        queries=(Query("subdir", "the plugin's folder in a zip archive"),),
        upload=ZIP,
    ),
    Endpoint(
        method="GET",
        path="/installs/requests",
        name="listInstallRequests",
        about="List the plugins that agents asked for",
        handle=list_requests,
        answer=types.InstallRequests,
    ),
    Endpoint(
        method="POST",
        path="/installs/requests/decline",
        name="declineInstallRequest",
        about="Forget that an agent asked for a plugin",
        handle=decline,
        body=DeclineBody,
        answer=types.Declined,
    ),
    Endpoint(
        method="GET",
        path="/installs/{install}",
        name="showInstall",
        about="Show how far an installation is",
        handle=show_install,
        answer=types.Install,
    ),
    Endpoint(
        method="POST",
        path="/plugins/{plugin}/update",
        name="updatePlugin",
        about="Put the newest version of a plugin in place",
        handle=update,
        body=NoBody,
        answer=types.Updated,
    ),
    Endpoint(
        method="GET",
        path="/plugins/{plugin}/removal",
        name="showRemoval",
        about="Show what a removal would delete",
        handle=show_removal,
        answer=types.Removal,
        queries=(Query("purge", "also delete its data and secrets", "boolean"),),
    ),
    Endpoint(
        method="DELETE",
        path="/plugins/{plugin}",
        name="removePlugin",
        about="Remove a plugin",
        handle=remove,
        answer=types.Removed,
        queries=(
            Query("purge", "also delete its data and secrets", "boolean"),
            Query("path", "the plugin's folder, as a confirmation, if anyplug did not install it"),
        ),
    ),
    Endpoint(
        method="GET",
        path="/plugins/{plugin}/config",
        name="showConfig",
        about="Show a plugin's configuration, without secrets",
        handle=show_config,
        answer=types.Config,
    ),
    Endpoint(
        method="PUT",
        path="/plugins/{plugin}/config",
        name="putConfig",
        about="Change a plugin's configuration",
        handle=put_config,
        body=ConfigBody,
        answer=types.Config,
    ),
]
