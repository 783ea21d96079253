"""`install`, `update` and `remove`."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from anyplug.errors import InstallError
from anyplug.frontends.cli import trust
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session, refuse
from anyplug.install import Installed, Installer
from anyplug.registry import Entry
from anyplug.shapes import entry_shape
from anyplug.sources import Source


def _install(parser: Parser) -> Command:
    parser.add_argument("source", metavar="PATH|GIT-URL", help="a plugin's folder, or a git repository")
    parser.add_argument("--ref", default="", metavar="R", help="a branch, tag or commit")
    parser.add_argument("--subdir", default="", metavar="D", help="the plugin's folder inside the source")
    trust.add_approval_options(parser)
    return install


def _update(parser: Parser) -> Command:
    parser.add_argument("name", metavar="NAME", help="the plugin's name")
    trust.add_approval_options(parser)
    return update


def _remove(parser: Parser) -> Command:
    parser.add_argument("name", metavar="NAME", help="the plugin's name, or the path of its folder")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--purge", action="store_true", help="also remove its data, files and log")
    return remove


COMMANDS = {"install": _install, "update": _update, "remove": _remove}


def install(session: Session) -> int:
    """Install a plugin, then let the person approve it."""
    options = session.options
    source = Source(location=options.source, ref=options.ref, subdir=options.subdir)
    with _progress(session, f"fetching {options.source}" if source.is_git else f"copying {options.source}"):
        installed = Installer(session.catalog).install(source)
    entry = _entry(session, installed)
    _report(session, installed, entry, "installed")
    if options.yes or (session.can_ask() and not options.json):
        return trust.approve(session, entry)
    return 0


def update(session: Session) -> int:
    """Update a plugin; if the person refuses the new version or its set-up fails, the one before comes back."""
    options = session.options
    entry = session.plugin(options.name)
    before = session.catalog.approvals.of(entry.plugin)
    with ExitStack() as stack:
        with _progress(session, f"updating {entry.name}"):
            installed = stack.enter_context(Installer(session.catalog).update(entry.plugin))
        fresh = _entry(session, installed)
        if before is not None and before.approved and fresh.state == "changed":
            options.always |= before.always
            options.follow |= before.follow
            if options.yes or (session.can_ask() and not options.json):
                trust.approve(session, fresh)
    _report(session, installed, _entry(session, installed), "updated")
    return 0


def remove(session: Session) -> int:
    """Remove a plugin, after saying what goes."""
    options = session.options
    entry = session.plugin(options.name)
    plugin, installer = entry.plugin, Installer(session.catalog)
    if not installer.is_ours(plugin) and options.name.rstrip("/") not in {plugin.path, plugin.found_at}:
        raise InstallError(
            f"'{plugin.name}' lies in {plugin.path}, where anyplug did not put it",
            f"`anyplug remove {plugin.path}` removes that folder",
        )
    home = session.catalog.home
    going = [
        plugin.found_at or plugin.path,
        *([home.data(plugin.name), home.files(plugin.name)] if options.purge else []),
    ]
    if not options.json:
        print("This removes:\n" + "\n".join(f"  {path}" for path in going))
        if not options.purge:
            print(f"Its data stays in {home.data(plugin.name)} (--purge removes it too).")
    if not options.yes:
        if not session.can_ask():
            refuse(f"'{plugin.name}' was not removed: there is nobody to ask", "--yes removes it without asking")
        if not session.confirm("Remove it?"):
            refuse(f"'{plugin.name}' was not removed", "")
    installer.remove(plugin, purge=options.purge)
    if options.json:
        session.print_json({"name": plugin.name, "removed": going})
    else:
        print(f"{plugin.name} is removed")
    return 0


def _entry(session: Session, installed: Installed) -> Entry:
    """Find what was installed in a fresh snapshot."""
    session.forget_snapshot()
    return session.plugin(installed.plugin.path)


def _report(session: Session, installed: Installed, entry: Entry, what: str) -> None:
    plugin = installed.plugin
    if session.options.json:
        session.print_json(
            {**entry_shape(entry), "commit": installed.record.commit or None, "instructions": plugin.instructions}
        )
        return
    at = f" at {installed.record.commit[:12]}" if installed.record.commit else ""
    print(f"{plugin.name} is {what}{at} in {plugin.path}")
    if installed.left_config:
        session.warn("its config.json was left behind: configuration is yours to set")
    if entry.state == "shadowed":
        session.warn(f"another plugin of that name comes first: {entry.shadowed_by}")
    for problem in plugin.problems:
        session.warn(problem.message)
    if plugin.instructions:
        print(f"\nInstructions from the plugin's author, for you:\n\n{plugin.instructions}\n")
    if entry.state in {"new", "changed"}:
        session.note(f"hint: `anyplug approve {plugin.name}` shows what it asks for; nothing of it runs before")


@contextmanager
def _progress(session: Session, what: str) -> Iterator[None]:
    """Show that something takes its time: a spinner for people, a line for logs."""
    if session.options.quiet or session.options.json:
        yield
    elif sys.stderr.isatty():
        from rich.console import Console  # 53 ms, for people who wait anyway

        with Console(stderr=True).status(what):
            yield
    else:
        session.note(what)
        yield
