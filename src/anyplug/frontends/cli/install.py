"""`install`, `update` and `remove`."""

import copy
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec

from anyplug.catalog.snapshot import Entry
from anyplug.frontends.cli import approve, install_sources, render, terminal
from anyplug.frontends.cli.cli_run import Session, Unanswered, refuse
from anyplug.frontends.cli.describe_plugin import changed_for_people
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import entry_shape
from anyplug.home import plugin_config
from anyplug.manage import install_requests, source_contents
from anyplug.manage.installer import Installed, Installer, Newest
from anyplug.manage.plugin_sources import Source
from anyplug.model import hints
from anyplug.model.errors import FAILED, AnyplugError, InstallError, UsageError
from anyplug.model.types import Plugin

SHORT_COMMIT = 12  # digits that are shown


def _install(parser: Parser) -> Command:
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="a folder, an archive, owner/repo, an address, a command such as `npx -y @scope/server`, or - for a"
        " configuration on stdin; then names of its plugins; without one, list what agents asked for",
    )
    parser.add_argument("--ref", default="", metavar="R", help="a branch, tag or commit")
    parser.add_argument("--subdir", default="", metavar="D", help="the plugin's folder inside the source")
    parser.add_argument("--all", action="store_true", help="install all plugins of the source")
    parser.foreign_at = install_sources.foreign_at
    parser.rest.add_argument("--name", default="", metavar="NAME", help="a name for a pasted server")
    parser.rest.add_argument("--decline", action="store_true", help="do not install it, and delete the agents' request")
    approve.add_approval_options(parser)
    return install


def _update(parser: Parser) -> Command:
    parser.add_argument(
        "name", nargs="?", metavar="PLUGIN", help="the plugin's name; without it, show what would be updated"
    )
    parser.add_argument("--all", action="store_true", help="update all plugins that `install` installed")
    parser.add_argument("--ref", metavar="R", help="take this branch, tag or commit from now on, newer or older")
    approve.add_approval_options(parser)
    return update


def _remove(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, or the path of its folder")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--purge", action="store_true", help="also remove its data, files, log and secrets")
    return remove


def _outdated(parser: Parser) -> Command:
    parser.description = f"{parser.description} It fetches each from its source and changes nothing."
    return outdated


COMMANDS = {"install": _install, "update": _update, "outdated": _outdated, "remove": _remove}


def install(session: Session) -> int:
    """Install a plugin, then let the person approve it. If its setup fails, it is not installed."""
    options = session.options
    if not options.sources and not options.foreign:
        return _list_requests(session)
    wanted = install_sources.read(session)
    if options.decline:
        return _decline(session, install_sources.asked_for(session))
    installer = Installer(session.catalog)
    if len(wanted) > 1:  # several servers in one configuration
        work = [(pasted.source, partial(installer.install, pasted.source, secrets=pasted.secrets)) for pasted in wanted]
        return _install_each(session, installer, work)
    source, names = wanted[0].source, install_sources.names(session)
    with ExitStack() as stack:
        with session.progress(f"{'copying' if source.is_here else 'fetching'} {source.shown}"):
            opened = stack.enter_context(installer.opened(source))
        if not names and not options.all:
            only = source_contents.only(source, opened.found)
            place = opened.checkout if only.folder else None
            installed = installer.install(only.source, place, wanted[0].secrets)
        else:
            chosen = source_contents.chosen(source, opened.found, names) if names else opened.found
            work = [
                (one.source, partial(installer.install, one.source, opened.checkout if one.folder else None))
                for one in chosen
            ]
            return _install_each(session, installer, work)
    for settled in (source, install_sources.asked_for(session)):
        install_requests.settle(session.catalog.home, settled)
    shape = _approve_installed(session, installer, installed)
    if options.json:
        session.print_json(shape)
    return 0


def _install_each(
    session: Session, installer: Installer, work: Sequence[tuple[Source, Callable[[], Installed]]]
) -> int:
    """Install several plugins, one after the other; one that fails does not stop the others."""
    given, shapes, failed = session.options, list[dict[str, Any]](), 0
    for source, install_one in work:
        session.options = copy.copy(given)  # an approval's options are extended by what applied to this plugin
        try:
            with session.progress(f"installing {source.part or source.subdir or source.shown}"):
                installed = install_one()
            shapes.append(_approve_installed(session, installer, installed))
        except AnyplugError as error:
            failed += 1
            shapes.append({"source": source.shown, "error": session.failure(error)})
            if not given.json:
                render.error(f"{source.shown}: {error.message}", session.reached(error.hint))
        finally:
            session.options = given
            session.forget_snapshot()
    if given.json:
        session.print_json(shapes)
    else:
        count = f"{len(shapes) - failed} of {render.count(len(shapes), 'plugin')} installed"
        render.out(count)
    return FAILED if failed else 0


def _approve_installed(session: Session, installer: Installer, installed: Installed) -> dict[str, Any]:
    """Let the person approve what was installed; if its setup fails, remove it."""
    entry = _entry(session, installed)
    is_approved = entry.state == "new" and _approves(session)
    _describe(session, installed, entry, "installed", is_asked=is_approved)
    if is_approved:
        try:
            approve.settle(session, entry)
        except Unanswered:
            raise  # it stays installed, and may be approved later
        except BaseException as error:
            installer.remove(entry.plugin, purge=False)
            is_failure = isinstance(error, Exception)
            if not is_failure:
                terminal.say()  # Ctrl-C is shown on the line of the question
            why = "its setup failed" if is_failure else "it was interrupted"
            session.note(f"{entry.name} was not installed, because {why}")
            raise
    _say_values(session, installed)
    return _report(session, installed, is_approved=is_approved)


def _say_values(session: Session, installed: Installed) -> None:
    """Show which values the plugin takes from the person, and how to give them."""
    has = session.catalog.secrets.names(installed.plugin)
    plugin = installed.plugin
    for value in installed.values:
        if value.variable not in has and value.default is None:
            what = "needs" if value.required else "takes"
            title = f" ({value.title})" if value.title else ""
            store = hints.command("secret", plugin.name, value.variable)
            session.note(f"it {what} {value.variable}{title}: {store} asks for it")
            if value.is_path:
                grant = hints.command("grant", plugin.name, "filesystem:read:PATH")
                session.note(f"then let it read that path: {grant}")


def _list_requests(session: Session) -> int:
    """List the plugins that agents asked for."""
    requests = install_requests.waiting(session.catalog.home)
    if session.options.json:
        session.print_json([{**msgspec.to_builtins(one.source), "at": one.at} for one in requests])
        return 0
    if not requests:
        raise UsageError("install needs a folder or a git address", "`anyplug install --help` shows how to use it")
    for one in requests:
        render.out(f"An agent asked for {one.source.shown}; {hints.command('install', *one.source.words)} installs it")
    session.note(f"hint: {hints.command('install', *requests[0].source.words, '--decline')} forgets a request")
    return 0


def _decline(session: Session, source: Source) -> int:
    if not install_requests.settle(session.catalog.home, source):
        raise UsageError(f"no agent asked for {source.shown}", "`anyplug install` lists what agents asked for")
    if session.options.json:
        session.print_json({"declined": source.shown})
    else:
        render.out(f"The request for {source.shown} is forgotten.")
    return 0


def update(session: Session) -> int:
    """Update one plugin, or all."""
    options, installer = session.options, Installer(session.catalog)
    if options.all and options.name:
        raise UsageError("update takes a plugin's name or --all, not both", "`anyplug update --all` updates all")
    if options.ref is not None and not (options.name and not options.all):
        raise UsageError("--ref needs one plugin", "`anyplug update PLUGIN --ref v1.0`")
    if options.all:
        return _update_all(session, installer)
    if options.name is None:
        return outdated(session, is_preview=True)
    shape = _update_one(session, installer, session.plugin(options.name))
    if options.json:
        session.print_json(shape)
    return 0


def outdated(session: Session, *, is_preview: bool = False) -> int:
    """List the plugins that have a newer version. `is_preview`: as `update` would update them."""
    installer = Installer(session.catalog)
    shapes: list[dict[str, Any]] = []
    for entry in _installed(session, installer):
        try:
            with session.progress(f"looking for a newer {entry.name}"):
                newest = installer.newest(entry.plugin)
            shapes.append(_newest_shape(entry, newest))
        except AnyplugError as error:
            shapes.append({"name": entry.name, "error": session.failure(error)})
    if session.options.json:
        session.print_json(shapes)
        return FAILED if any("error" in shape for shape in shapes) else 0
    _show_outdated(session, shapes, is_preview=is_preview)
    return FAILED if any("error" in shape for shape in shapes) else 0


def _newest_shape(entry: Entry, newest: Newest) -> dict[str, Any]:
    return {
        "name": entry.name,
        "outdated": newest.is_new,
        "installed": {"version": entry.plugin.version, "commit": newest.before.commit or None},
        "newest": {"version": newest.plugin.version, "commit": newest.record.commit or None},
        "changed_files": newest.changed,
        "new_permissions": [name for name in newest.plugin.permissions if name not in entry.plugin.permissions],
        "source": newest.record.source.shown,
    }


def _show_outdated(session: Session, shapes: list[dict[str, Any]], *, is_preview: bool) -> None:
    if not shapes:
        render.out("No plugin was installed with `anyplug install`, so there is nothing to update.")
        return
    old = [shape for shape in shapes if shape.get("outdated")]
    rows = [
        (
            shape["name"],
            *(_version(shape[which]) for which in ("installed", "newest")),
            render.count(shape["changed_files"], "file"),
            render.line(", ".join(shape["new_permissions"])) or "-",
        )
        for shape in old
    ]
    if rows:
        render.table(("PLUGIN", "INSTALLED", "NEWEST", "CHANGED", "NEWLY ASKS FOR"), rows)
    for shape in shapes:
        if "error" in shape:
            render.error(f"{shape['name']}: {shape['error']['message']}", shape["error"]["hint"])
    current = len(shapes) - len(old) - sum("error" in shape for shape in shapes)
    if current:
        render.out(f"{render.count(current, 'plugin')} up to date")
    if old:
        doing = "nothing was changed; " if is_preview else ""
        session.note(
            f"hint: {doing}`anyplug update --all` updates {'it' if len(old) == 1 else 'them'}, and asks about each;"
            " `anyplug update NAME` updates one"
        )


def _version(shape: dict[str, Any]) -> str:
    commit = (shape["commit"] or "")[:SHORT_COMMIT]
    return render.line(" ".join(filter(None, [shape["version"], f"({commit})" if commit else ""]))) or "-"


def _installed(session: Session, installer: Installer) -> list[Entry]:
    return [entry for entry in session.snapshot.entries if installer.origin(entry.plugin) is not None]


def _update_all(session: Session, installer: Installer) -> int:
    """Update all installed plugins, one after the other; one that fails does not stop the others."""
    entries, given = _installed(session, installer), session.options
    shapes: list[dict[str, Any]] = []
    ends = {"updated": 0, "up to date": 0, "not updated": 0}
    for entry in entries:
        session.options = copy.copy(given)  # an approval's options are extended by what applied to this plugin
        try:
            shape = _update_one(session, installer, entry)
            ends["updated" if shape["updated"] else "up to date"] += 1
        except AnyplugError as error:
            shape = {"name": entry.name, "error": session.failure(error)}
            ends["not updated"] += 1
            if not given.json:
                render.error(f"{entry.name}: {error.message}", session.reached(error.hint))
        finally:
            session.options = given
            session.forget_snapshot()
        shapes.append(shape)
    if given.json:
        session.print_json(shapes)
    elif not entries:
        render.out("No plugin was installed with `anyplug install`, so there is nothing to update.")
    else:
        said = ", ".join(f"{number} {end}" for end, number in ends.items() if number)
        render.out(f"{render.count(len(entries), 'plugin')}: {said}")
    return FAILED if ends["not updated"] else 0


def _update_one(session: Session, installer: Installer, entry: Entry) -> dict[str, Any]:
    """Update a plugin; if the person refuses the new version or its setup fails, restore the previous one."""
    options = session.options
    before, is_approved = session.catalog.approvals.of(entry.plugin), False
    with ExitStack() as stack:
        with session.progress(f"updating {entry.name}"):
            installed = stack.enter_context(installer.update(entry.plugin, options.ref))
        if not installed.is_new:
            return _say_nothing_is_new(session, installed)
        fresh = _entry(session, installed)
        _describe(session, installed, fresh, "updated", is_asked=False)
        is_approved = before is not None and before.approved and fresh.standing.digest not in {"", before.digest}
        options.yes |= is_approved and fresh.state == "approved"  # with --follow: set up again, without asking
        is_approved = is_approved and _approves(session)
        _show_changes(session, entry.plugin, fresh, is_shown_later=is_approved)
        if is_approved and before is not None:
            options.always |= before.always
            options.follow |= before.follow
            options.allow_unconfined |= before.unconfined
            options.inherit_env |= before.inherits_environment
            _settle_or_go_back(session, fresh)
    _say_what_was_kept(session, installed)
    return _report(session, installed, is_approved=is_approved, **_inheritance_shape(installed))


def _show_changes(session: Session, before: Plugin, fresh: Entry, *, is_shown_later: bool) -> None:
    """Show what is new in a version. `is_shown_later`: what the approval shows is not shown twice."""
    if session.options.json:
        return
    after = fresh.plugin
    if before.version != after.version:
        render.out(
            f"Version {render.line(after.version) or 'unknown'}, before {render.line(before.version) or 'unknown'}"
        )
    changes = () if is_shown_later else fresh.standing.changes
    if changes:
        render.out("Changed since it was approved:", *(f"  {render.line(change)}" for change in changes))
    elif not is_shown_later:
        asked = [f"it now asks for {name}" for name in after.permissions if name not in before.permissions]
        if asked:
            render.out("Changed:", *(f"  {render.line(change)}" for change in asked))
    if lines := changed_for_people(before, after):
        render.out("Changed in its configuration and its instructions:", *(f"  {line}" for line in lines))


def remove(session: Session) -> int:
    """Remove a plugin, after listing what will be deleted."""
    options, installer = session.options, Installer(session.catalog)
    plugin = session.plugin(options.name).plugin
    if plugin.is_file:
        raise InstallError(
            f"'{plugin.name}' belongs to another program, in {plugin.path}",
            f"remove '{plugin.name}' from [mcp] in {session.catalog.home.settings}",
        )
    if not installer.is_ours(plugin) and not _is_path_of(options.name, plugin):
        raise InstallError(
            f"'{plugin.name}' is in {plugin.found_at or plugin.path} and was not installed by anyplug",
            f"remove it anyway with `anyplug remove {plugin.found_at or plugin.path}`",
        )
    going, staying = installer.belongings(plugin, purge=options.purge)
    secrets = _secrets(session, plugin)
    if not options.json:
        shown, kept = (going + secrets, staying) if options.purge else (going, staying + secrets)
        terminal.say("This removes:", *(f"  {what}" for what in (*shown, *_values(plugin))))
        if kept:
            terminal.say("This stays (--purge removes it too):", *(f"  {what}" for what in kept))
            if any(path.startswith(session.catalog.home.left) for path in staying):
                terminal.say(
                    f"A plugin installed from the same source gets it back; see `anyplug leftovers {plugin.name}`"
                )
    if not options.yes:
        if not terminal.can_ask():
            refuse(
                f"'{plugin.name}' was not removed: this is not a terminal",
                f"{session.again('--yes')} removes it without asking",
            )
        if not session.confirm("Remove it?"):
            refuse(f"'{plugin.name}' was not removed", "nothing was changed")
    installer.remove(plugin, purge=options.purge)
    if options.json:
        session.print_json({"name": plugin.name, "removed": going})
    else:
        render.out(f"{plugin.name} is removed")
    approve.warn_of_missing_guard(session, plugin)
    return 0


def _secrets(session: Session, plugin: Plugin) -> list[str]:
    return [f"the secret {name}" for name in session.catalog.secrets.names(plugin)]


def _values(plugin: Plugin) -> list[str]:
    """Return the file of values in a plugin's folder, for people: it may contain keys, so it is not kept."""
    path = os.path.join(plugin.path, plugin_config.FILE)
    return [f"{path}, with the values that you set"] if plugin.keeps_config and os.path.exists(path) else []


def _is_path_of(given: str, plugin: Plugin) -> bool:
    """Return whether the person named the folder itself, and not only the plugin."""
    return os.sep in given and os.path.abspath(os.path.expanduser(given)) in {plugin.path, plugin.found_at}


def _entry(session: Session, installed: Installed) -> Entry:
    """Find what was installed in a fresh snapshot."""
    session.forget_snapshot()
    return session.plugin(installed.plugin.path)


def _approves(session: Session) -> bool:
    """Return whether the person approves it in advance, or can be asked."""
    return session.options.yes or (terminal.can_ask() and not session.options.json)


def _settle_or_go_back(session: Session, entry: Entry) -> None:
    try:
        approve.settle(session, entry)
    except BaseException:
        session.note(f"{entry.name} is not updated; the previous version is restored")
        raise


def _describe(session: Session, installed: Installed, entry: Entry, what: str, *, is_asked: bool) -> None:
    """Describe what was installed, before the person decides about it."""
    if session.options.json:
        return
    plugin = installed.plugin
    at = f" at {installed.record.commit[:12]}" if installed.record.commit else ""
    render.out(f"{plugin.name} is {what}{at} in {plugin.path}")
    if installed.record.kind:
        session.note(f"note: this {installed.record.kind} now runs as an MCP plugin")
    for line in installed.record.left_out:
        session.note(f"note: {render.line(line)}")
    if installed.left_config:
        session.warn(f"its config.json was not copied: set values with `anyplug config {plugin.name}`")
    if installed.left_modules:
        these = " and ".join(installed.left_modules)
        session.warn(f"not copied: {these}; if it needs them, build them in {plugin.path}, then approve it again")
    if entry.state == "shadowed":
        session.warn(f"another plugin of the same name takes precedence: {entry.shadowed_by}")
    for problem in () if is_asked else plugin.problems:  # the approval shows them
        session.warn(render.line(problem.message))
    if plugin.instructions:
        render.out("", "Instructions from the plugin's author, for you:", "")
        render.quote(plugin.instructions)
        render.out("")


def _say_nothing_is_new(session: Session, installed: Installed) -> dict[str, Any]:
    if not session.options.json:
        at = f", at {installed.record.commit[:12]}" if installed.record.commit else ""
        render.out(f"{installed.plugin.name} is up to date{at}")
    return _report(session, installed, **_inheritance_shape(installed))


def _say_what_was_kept(session: Session, installed: Installed) -> None:
    """Tell where the new version's files are that were not put in place, and where the user's are."""
    if session.options.json:
        return
    for name, aside in installed.inheritance.beside.items():
        session.note(render.line(f"note: {name} is unchanged; the new version of it is next to it, as {aside}"))
    for name in installed.inheritance.kept:
        kept = os.path.join(installed.kept, name)
        session.note(render.line(f"note: {name} was changed here and is not in the new version; it is kept as {kept}"))


def _inheritance_shape(installed: Installed) -> dict[str, Any]:
    folder, inheritance = installed.plugin.path, installed.inheritance
    return {
        "updated": installed.is_new,
        "beside": [os.path.join(folder, aside) for aside in inheritance.beside.values()],
        "kept": [os.path.join(installed.kept, name) for name in inheritance.kept],
    }


def _report(session: Session, installed: Installed, *, is_approved: bool = False, **more: Any) -> dict[str, Any]:
    """Show the plugin's final state, and return it. `is_approved`: it has just been approved and has run since."""
    plugin, entry = installed.plugin, _entry(session, installed)
    commit = installed.record.commit or None
    shape = {**entry_shape(entry), "commit": commit, "instructions": plugin.instructions, **more}
    if session.options.json:
        return shape
    if entry.state == "changed" and is_approved:
        changes = ", ".join(entry.standing.changes)
        session.warn(render.line(f"{plugin.name} has changed its own code since it was approved: {changes}"))
        session.note(
            f"hint: some plugins build themselves at their first start; `anyplug approve {plugin.name}` allows that"
        )
    elif entry.state in {"new", "changed"}:
        session.note(f"hint: review its permissions with `anyplug approve {plugin.name}`; it does not run before that")
    elif entry.state == "disabled":
        decision = session.catalog.approvals.of(plugin)
        then = "" if decision is not None and decision.approved else f"; then `anyplug approve {plugin.name}`"
        session.note(f"hint: it is turned off: {entry.standing.reason}{then}")
    elif entry.state == "approved" and installed.is_new:
        render.out(f"{plugin.name} is approved{approve.what_holds(session, plugin)}")
        approve.say_what_is_missing(session, plugin)
    return shape
