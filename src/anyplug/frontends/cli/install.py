"""`install`, `update` and `remove`."""

import os
from contextlib import ExitStack
from typing import Any

import msgspec

from anyplug.catalog.snapshot import Entry
from anyplug.frontends.cli import approve, render, terminal
from anyplug.frontends.cli.cli_run import Session, Unanswered, refuse
from anyplug.frontends.cli.describe_plugin import changed_for_people
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import entry_shape
from anyplug.manage import install_requests
from anyplug.manage.installer import Installed, Installer
from anyplug.manage.plugin_sources import Source
from anyplug.model import hints
from anyplug.model.errors import InstallError, UsageError
from anyplug.model.types import Plugin


def _install(parser: Parser) -> Command:
    parser.add_argument(
        "source",
        nargs="?",
        metavar="PATH|GIT-URL",
        help="a plugin's folder, or a git repository; none: list what agents asked for",
    )
    parser.add_argument("--ref", default="", metavar="R", help="a branch, tag or commit")
    parser.add_argument("--subdir", default="", metavar="D", help="the plugin's folder inside the source")
    parser.rest.add_argument("--decline", action="store_true", help="do not install it, and forget that an agent asked")
    approve.add_approval_options(parser)
    return install


def _update(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name")
    approve.add_approval_options(parser)
    return update


def _remove(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, or the path of its folder")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--purge", action="store_true", help="also remove its data, files, log and secrets")
    return remove


COMMANDS = {"install": _install, "update": _update, "remove": _remove}


def install(session: Session) -> int:
    """Install a plugin, then let the person approve it. If its setup fails, it is not installed."""
    options = session.options
    if options.source is None:
        return _list_requests(session)
    source = Source(location=options.source, ref=options.ref, subdir=options.subdir)
    if options.decline:
        return _decline(session, source)
    installer = _installer(session)
    with session.progress(f"{'fetching' if source.is_git else 'copying'} {source.shown}"):
        installed = installer.install(source)
    install_requests.settle(session.catalog.home, source)
    entry = _entry(session, installed)
    _describe(session, installed, entry, "installed")
    is_approved = entry.state == "new" and _approves(session)
    if is_approved:
        try:
            approve.settle(session, entry)
        except Unanswered:
            raise  # it stays installed, and may be approved later
        except BaseException:
            installer.remove(entry.plugin, purge=False)
            session.note(f"{entry.name} was not installed, because its setup failed")
            raise
    _report(session, installed, is_approved=is_approved)
    return 0


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
    """Update a plugin; if the person refuses the new version or its setup fails, restore the previous one."""
    options, installer = session.options, _installer(session)
    entry = session.plugin(options.name)
    before, is_approved = session.catalog.approvals.of(entry.plugin), False
    with ExitStack() as stack:
        with session.progress(f"updating {entry.name}"):
            installed = stack.enter_context(installer.update(entry.plugin))
        if not installed.is_new:
            return _say_nothing_is_new(session, installed)
        fresh = _entry(session, installed)
        _describe(session, installed, fresh, "updated")
        lines = [] if options.json else changed_for_people(entry.plugin, installed.plugin)
        if lines:
            render.out("Changed in its configuration and its instructions:", *(f"  {line}" for line in lines))
        if before is not None and before.approved and fresh.standing.digest not in {"", before.digest}:
            options.always |= before.always
            options.follow |= before.follow
            options.allow_unconfined |= before.unconfined
            options.inherit_env |= before.inherits_environment
            # A plugin approved with --follow needs no new approval, but must be set up again.
            options.yes |= fresh.state == "approved"
            is_approved = _approves(session)
            if is_approved:
                _settle_or_go_back(session, fresh)
    _say_what_was_kept(session, installed)
    _report(session, installed, is_approved=is_approved, **_inheritance_shape(installed))
    return 0


def remove(session: Session) -> int:
    """Remove a plugin, after listing what will be deleted."""
    options, installer = session.options, _installer(session)
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
        terminal.say("This removes:", *(f"  {what}" for what in shown))
        if kept:
            terminal.say("This stays (--purge removes it too):", *(f"  {what}" for what in kept))
            if any(path.startswith(session.catalog.home.left) for path in staying):
                terminal.say(
                    f"A plugin installed from the same source gets it back; see `anyplug leftovers {plugin.name}`"
                )
    if not options.yes:
        if not terminal.can_ask():
            refuse(f"'{plugin.name}' was not removed: this is not a terminal", "--yes removes it without asking")
        if not session.confirm("Remove it?"):
            refuse(f"'{plugin.name}' was not removed", "nothing was changed")
    installer.remove(plugin, purge=options.purge)
    if options.json:
        session.print_json({"name": plugin.name, "removed": going})
    else:
        render.out(f"{plugin.name} is removed")
    approve.warn_of_missing_guard(session, plugin)
    return 0


def _installer(session: Session) -> Installer:
    """Return the installer, after recovering from killed processes."""
    installer = Installer(session.catalog)
    for path in installer.tidy():
        session.note(f"an update of {os.path.basename(path)} was interrupted; the previous version is restored")
    return installer


def _secrets(session: Session, plugin: Plugin) -> list[str]:
    return [f"the secret {name}" for name in session.catalog.secrets.names(plugin)]


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


def _describe(session: Session, installed: Installed, entry: Entry, what: str) -> None:
    """Describe what was installed, before the person decides about it."""
    if session.options.json:
        return
    plugin = installed.plugin
    at = f" at {installed.record.commit[:12]}" if installed.record.commit else ""
    render.out(f"{plugin.name} is {what}{at} in {plugin.path}")
    if installed.left_config:
        session.warn(f"its config.json was not copied: set values with `anyplug config {plugin.name}`")
    if installed.left_modules:
        these = " and ".join(installed.left_modules)
        session.warn(f"not copied: {these}; if it needs them, build them in {plugin.path}, then approve it again")
    if entry.state == "shadowed":
        session.warn(f"another plugin of the same name takes precedence: {entry.shadowed_by}")
    for problem in plugin.problems:
        session.warn(render.line(problem.message))
    if plugin.instructions:
        render.out("", "Instructions from the plugin's author, for you:", "")
        render.quote(plugin.instructions)
        render.out("")


def _say_nothing_is_new(session: Session, installed: Installed) -> int:
    if not session.options.json:
        at = f", at {installed.record.commit[:12]}" if installed.record.commit else ""
        render.out(f"{installed.plugin.name} is up to date{at}")
    _report(session, installed, **_inheritance_shape(installed))
    return 0


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


def _report(session: Session, installed: Installed, *, is_approved: bool = False, **more: Any) -> None:
    """Show the plugin's final state. `is_approved`: it has just been approved and has run since."""
    plugin, entry = installed.plugin, _entry(session, installed)
    if session.options.json:
        commit = installed.record.commit or None
        session.print_json({**entry_shape(entry), "commit": commit, "instructions": plugin.instructions, **more})
    elif entry.state == "changed" and is_approved:
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
