"""`approve`, `deny`, `revoke`, `grant`, `ungrant`, `enable`, `disable`: a person's decisions about a plugin."""

import copy
import os
import shlex
from typing import TYPE_CHECKING

from anyplug.catalog.approvals import Standing, definition
from anyplug.catalog.pins import changed_texts
from anyplug.catalog.snapshot import Entry
from anyplug.formats import registry
from anyplug.frontends.cli import model_texts, render, terminal
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.frontends.cli.describe_plugin import (
    changed_for_people,
    describe_permissions,
    describe_servers,
    problem_lines,
)
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.home import plugin_config
from anyplug.launch import code_above
from anyplug.manage import plugin_approval
from anyplug.model import hints, permissions
from anyplug.model.errors import FAILED, AnyplugError, ManifestError, NotApproved, UsageError
from anyplug.model.types import Plugin
from anyplug.model.untrusted_text import for_people, lines_for_people

if TYPE_CHECKING:
    from anyplug.catalog.approvals import Approval
    from anyplug.host.host import Host

SHOWN = 300  # characters of a description, so that the permissions stay on the screen
WAITING = frozenset({"new", "changed"})  # states in which a person must decide
USUAL_VERSION = 20  # characters; a longer one could make the terminal break the line


def add_approval_options(parser: Parser) -> None:
    """Add the options of an approval."""
    parser.add_argument("--yes", action="store_true", help="approve without asking")
    parser.add_argument("--always", action="store_true", help="never ask again before a tier 2 plugin runs")
    parser.add_argument(
        "--grant", action="append", metavar="P", help="grant this instead of what it asks for; may be repeated"
    )
    parser.rest.add_argument(
        "--follow", action="store_true", help="keep it approved while only its code changes (for its author)"
    )
    parser.rest.add_argument(
        "--allow-unconfined", action="store_true", help="let it run where its permissions cannot be enforced"
    )
    parser.rest.add_argument(
        "--inherit-env", action="store_true", help="pass on your environment, except what looks like a secret"
    )


def _approve(parser: Parser) -> Command:
    parser.add_argument("name", nargs="?", metavar="PLUGIN", help="the plugin's name, or its folder")
    parser.add_argument("--all", action="store_true", help="decide about every plugin that is new or changed")
    add_approval_options(parser)
    return _approve_named


def _grant(parser: Parser) -> Command:
    _name(parser)
    parser.add_argument("permissions", nargs="+", metavar="P", help="a permission, such as network or env:NAME")
    return lambda session: _regrant(session, add=True)


def _ungrant(parser: Parser) -> Command:
    _name(parser)
    parser.add_argument("permissions", nargs="+", metavar="P", help="a permission that it was granted")
    return lambda session: _regrant(session, add=False)


def _deny(parser: Parser) -> Command:
    _name(parser)
    return deny


def _revoke(parser: Parser) -> Command:
    _name(parser)
    return revoke


def _enable(parser: Parser) -> Command:
    _name(parser)
    return lambda session: _switch(session, on=True)


def _disable(parser: Parser) -> Command:
    _name(parser)
    return lambda session: _switch(session, on=False)


COMMANDS = {
    "approve": _approve,
    "deny": _deny,
    "revoke": _revoke,
    "grant": _grant,
    "ungrant": _ungrant,
    "enable": _enable,
    "disable": _disable,
}


def _approve_named(session: Session) -> int:
    options = session.options
    if options.all and options.name:
        raise UsageError("approve takes a plugin's name or --all, not both", "`anyplug approve --all` asks about all")
    if options.all:
        return _approve_all(session)
    if options.name is None:
        waiting = [entry.name for entry in session.snapshot.entries if entry.state in WAITING]
        which = f"`anyplug approve --all` asks about each of {', '.join(waiting)}" if waiting else "none waits for it"
        raise UsageError("approve needs a plugin's name", which)
    return approve(session, session.plugin(options.name))


def _approve_all(session: Session) -> int:
    """Let a person decide about all plugins that wait, one after the other; a refused one does not stop the others."""
    waiting = [entry for entry in session.snapshot.entries if entry.state in WAITING]
    given, shapes = session.options, list[dict[str, str]]()
    for entry in waiting:
        session.options = copy.copy(given)
        try:
            settle(session, entry, shows_instructions=True)
        except AnyplugError as error:
            if not given.json:
                render.error(f"{entry.name}: {error.message}", session.reached(error.hint))
        finally:
            session.options = given
        state = session.catalog.standing(entry.plugin).state
        shapes.append({"name": entry.name, "path": entry.plugin.path, "state": state})
        session.forget_snapshot()
    if given.json:
        session.print_json(shapes)
    elif not shapes:
        render.out("No plugin is waiting for approval.")
    else:
        done = sum(shape["state"] == "approved" for shape in shapes)
        render.out(f"{done} of {render.count(len(shapes), 'plugin')} approved")
    return FAILED if any(shape["state"] != "approved" for shape in shapes) else 0


def approve(session: Session, entry: Entry) -> int:
    """Let a person approve a plugin, and report it."""
    settle(session, entry, shows_instructions=True)
    _report(session, entry.plugin, what_holds(session, entry.plugin), decided="approved, but ")
    if not session.options.json:
        say_what_is_missing(session, entry.plugin)
    return 0


def settle(session: Session, entry: Entry, *, shows_instructions: bool = False) -> None:
    """Show what a plugin asks for, ask the person, set it up, and approve it.

    `shows_instructions`: its author's, with what changed in them and in its configuration.
    """
    options, plugin = session.options, entry.plugin
    if entry.state in {"broken", "shadowed"}:
        raise plugin_approval.unusable(entry)
    if options.inherit_env and not registry.BY_NAME[plugin.format].INHERITS_ENVIRONMENT:
        raise UsageError(
            f"'{plugin.name}' cannot inherit your environment: {registry.title(plugin.format)} plugins never do",
            f"`anyplug grant {plugin.name} env:VARIABLE` gives it one variable",
        )
    before = session.catalog.approvals.of(plugin)
    granted = plugin_approval.wanted_grants(session.catalog.approvals, plugin, options.grant, session.snapshot)
    try:
        with session.progress(f"reading all files of {plugin.name}"):
            seen = session.catalog.digest(plugin).value
    except OSError as error:
        why = f"'{plugin.name}' was not approved: cannot read {error.filename}: {error.strerror}"
        refuse(
            render.line(why), f"delete {error.filename} or move it out of the plugin's folder, then approve it again"
        )
    if not options.json:
        present(session, entry, granted, shows_instructions=shows_instructions)
    if not options.yes:
        if not terminal.can_ask():
            refuse(
                f"'{plugin.name}' was not approved: this is not a terminal", f"`anyplug approve {plugin.name} --yes`"
            )
        if not session.confirm("Approve it?"):
            again = hints.command("approve", plugin.name)
            refuse(f"'{plugin.name}' was not approved", f"none of its code has run; {again} asks again")

    async def work(host: "Host") -> int:
        said = await host.approve(
            plugin,
            granted=granted,
            always=options.always,
            follow=options.follow,
            unconfined=options.allow_unconfined,
            inherits_environment=options.inherit_env,
            seen=seen,
        )
        if said:
            session.note("its setup printed:", *lines_for_people(said, f"  {render.QUOTE}"))
        return 0

    with session.progress(f"setting up {plugin.name}: its dependencies, its copy, its first start"):
        session.with_host(work)
    _say_what_ended(session, plugin, before)


def _kept(session: Session, what: str, instead: str = "leave out --plugin to not use it") -> Entry:
    """Return the plugin to decide about. Raises UsageError if it was named for this run: no decision applies to it."""
    entry = session.plugin(session.options.name)
    if entry.plugin.explicit:
        hint = hints.for_folder(instead, entry.plugin)
        raise UsageError(f"'{entry.name}' is in use for this run only, so it cannot be {what}", hint)
    return entry


def deny(session: Session) -> int:
    """Deny a plugin."""
    plugin = _kept(session, "denied").plugin
    session.catalog.approvals.deny(plugin)
    _report(session, plugin)
    return 0


def revoke(session: Session) -> int:
    """Delete the decision about a plugin."""
    plugin = _kept(session, "revoked").plugin
    had = session.catalog.approvals.revoke(plugin)
    _report(session, plugin, "" if had else "; there was no decision to withdraw")
    return 0


def _regrant(session: Session, *, add: bool) -> int:
    name, asked = session.options.name, session.options.permissions
    asked = (
        plugin_approval.checked(asked) if add else permissions.normalise(asked)
    )  # it may have an unknown one from its manifest
    if add:
        entry = _kept(session, "granted more than it declares", hints.command("grant", name, *asked))
    else:
        entry = _kept(session, "refused what it declares", f"{hints.command('approve', name)} lets you choose")
    approval = _approval(session, entry)
    if add:
        asked = plugin_approval.found(asked, session.snapshot)
        granted = tuple(dict.fromkeys((*approval.granted, *asked)))
    else:
        asked = tuple(
            name if name in approval.granted else session.snapshot.with_full_names([name])[0] for name in asked
        )
        absent = [name for name in asked if name not in approval.granted]
        if absent:
            plugin_approval.checked(absent)
            has = ", ".join(approval.granted) or "nothing"
            raise UsageError(f"'{entry.name}' was not granted {absent[0]}", f"it was granted {has}")
        granted = tuple(name for name in approval.granted if name not in asked)
    callees = session.snapshot.callees(asked) if add else {}
    session.catalog.approvals.regrant(entry.plugin, approval, granted, callees)
    if add:
        _say_what_it_means(session, asked)
    if session.options.json:
        session.print_json({"name": entry.name, "granted": list(granted)})
    else:
        render.out(f"{entry.name} is granted {render.line(', '.join(granted)) or 'nothing'}")
    return 0


def _switch(session: Session, *, on: bool) -> int:
    plugin = _kept(session, "turned on or off").plugin
    session.catalog.approvals.enable(plugin, on=on)
    standing = session.catalog.standing(plugin)
    if on and standing.state == "disabled" and not plugin.is_broken:
        raise ManifestError(f"'{plugin.name}' cannot be enabled here: {_why_off(session, plugin)}", standing.reason)
    _report(session, plugin, " (turned on)" if on else "")
    return 0


def present(
    session: Session, entry: Entry, granted: tuple[str, ...], *, shows_instructions: bool, tried_from: str = ""
) -> None:
    """Show a person what they are about to approve, or to try `tried_from` a source, without keeping it."""
    plugin = entry.plugin
    version = f" {render.line(plugin.version)}" if plugin.version else ""
    heading = f"{plugin.name}{version} ({registry.title(plugin.format)}) "
    heading += f"from {render.line(tried_from)}" if tried_from else f"in {plugin.path}"
    terminal.say(heading, fold=len(version) > USUAL_VERSION)
    if plugin.description:
        terminal.say(f"  {for_people(render.line(plugin.description), SHOWN)}", fold=True)
    terminal.say("It asks for:")
    for permission in describe_permissions(plugin.permissions) or ["nothing"]:
        terminal.say(f"  {permission}", fold=True)
    if granted != plugin.permissions:
        terminal.say(f"It would be granted: {render.line(', '.join(granted)) or 'nothing'}", fold=True)
    if warning := permissions.warning(granted):
        terminal.say(f"warning: {warning}")
    if not tried_from:
        _present_namesakes(session, entry)
    _present_confinement(session, entry, granted)
    _present_what_runs(session, entry, granted, tried_from)
    for change in entry.standing.changes:
        terminal.say(f"Changed since it was approved: {render.line(change)}", fold=True)
    _present_changed_texts(session, plugin)
    if shows_instructions:
        _present_instructions(session, plugin)
    for problem in entry.problems:
        first, *more = problem_lines(problem)
        terminal.say(f"warning: {first}", fold=True)
        for line in more:
            terminal.say(f"  {line}", fold=True)


def _present_changed_texts(session: Session, plugin: Plugin) -> None:
    """Show what models would read of a manifest's tools now and did not when it was approved."""
    before = session.catalog.approvals.of(plugin)
    if plugin.stays_up or before is None or not before.approved or before.definition == definition(plugin):
        return
    approved = _approved(session, before)
    if approved is None:
        terminal.say("What models read may have changed; no copy of the approved version is left, so read it above.")
    elif lines := changed_texts(approved.tools, plugin.tools):
        terminal.say("Changed in what models read:")
        for line in lines:
            terminal.say(f"  {line}", fold=True)


def _present_instructions(session: Session, plugin: Plugin) -> None:
    before = session.catalog.approvals.of(plugin)
    approved = _approved(session, before) if before is not None and before.approved else None
    if lines := changed_for_people(approved, plugin) if approved is not None else []:
        terminal.say("Changed in its configuration and its instructions:")
        for line in lines:
            terminal.say(f"  {line}", fold=True)
    if plugin.instructions:
        terminal.say("Instructions from the plugin's author, for you:")
        render.say_quoted(plugin.instructions.expandtabs(render.TAB))


def _approved(session: Session, before: "Approval") -> Plugin | None:
    """Return a plugin as it was approved, if there is a snapshot of it."""
    from anyplug.manage.plugin_changes import approved_version  # only needed for a changed plugin

    found = approved_version(session.catalog, before)
    return found[0] if found is not None and found[0].tools else None


def _present_namesakes(session: Session, entry: Entry) -> None:
    """Show what is already kept for a plugin, and what it does not get because another plugin of that name left it."""
    from anyplug.manage.leftover_data import Leftovers  # only approvals need these two
    from anyplug.secrets.vault import SecretsUnusable

    plugin = entry.plugin
    data = registry.BY_NAME[plugin.format].data(plugin, session.catalog.home)
    for path in session.catalog.approvals.namesakes(plugin):
        terminal.say(f"warning: {path} is approved under the same name")
    if os.path.basename(data) != plugin.name:
        terminal.say(f"note: its data is kept in {data}, because {session.catalog.home.owner(plugin.name)} came first")
    leftovers = Leftovers(session.catalog)
    try:
        kept, left = leftovers.what(plugin), leftovers.of(plugin.name)
    except SecretsUnusable as error:
        session.warn(error.message)
        return
    if kept and entry.state != "approved":  # otherwise it has used that all along
        terminal.say(f"Kept for it already: {', '.join(kept)}", fold=True)
    for one in left:
        what = " and ".join([one.folder, *(f"the secret {name}" for name in one.secrets)])
        terminal.say(
            f"note: an earlier plugin called {plugin.name}, from {render.line(one.origin)}, left {what}."
            f" This one does not get it, unless you run `anyplug leftovers {plugin.name} --give {one.number}`",
            fold=True,
        )


def _present_confinement(session: Session, entry: Entry, granted: tuple[str, ...]) -> None:
    """Show what the grants open beyond what their names suggest, and which of them this machine cannot enforce."""
    from anyplug.launch.assessment import assess  # imports an event loop, which approving needs in any case

    allowed = session.options.allow_unconfined
    held_by = assess(session.catalog, entry.plugin, Standing(state="new", granted=granted, unconfined=allowed))
    for note in held_by.notes:
        terminal.say(f"note: {render.line(note)}", fold=True)
    for fall in held_by.shortfalls:
        terminal.say(render.line(f"warning: nothing enforces {fall.what}: {fall.why}. To change that: {fall.cure}"))
    if held_by.state == "refused":
        terminal.say("warning: it will not run here; --allow-unconfined lets it run with what can be enforced")
    elif held_by.state == "partly":
        terminal.say("warning: --allow-unconfined lets it run with only what can be enforced")
    elif held_by.state == "off":
        terminal.say(f"warning: {held_by.off_by} turns the sandbox off, so its permissions are not enforced")


def _present_what_runs(session: Session, entry: Entry, granted: tuple[str, ...], tried_from: str) -> None:
    plugin = entry.plugin
    if plugin.launch is not None:
        terminal.say("It keeps this program running while anyplug runs, and reports its tools itself:")
        terminal.say(f"  {shlex.quote(plugin.launch.program)}")
        if plugin.launch.arguments:
            terminal.say(f"  with the arguments {shlex.join(plugin.launch.arguments)}", fold=True)
    elif plugin.endpoints:
        terminal.say("It stays connected to these servers while anyplug runs, and they report their tools themselves:")
    elif plugin.stays_up:
        terminal.say("It keeps running in Node while anyplug runs, and reports its tools itself.")
    for server in describe_servers(plugin):
        terminal.say(f"  {server}", fold=True)
    if entry.tools:
        terminal.say("Its tools:")
    all_texts = hints.command("tools", plugin.name)
    if tried_from:  # nobody finds it by its name
        all_texts = hints.command("--plugin", tried_from, "tools", plugin.name) if os.path.isdir(tried_from) else ""
    for line in model_texts.shown(entry.tools, all_texts):
        terminal.say(f"  {line}", fold=True)
    if plugin.init:
        terminal.say(f"It runs {plugin.init} once for its setup.")
    _present_code_above(plugin, granted)


def _present_code_above(plugin: Plugin, granted: tuple[str, ...]) -> None:
    """Name what its programs may load from the folders above it: the approval does not cover that code."""
    reads = [permissions.scope_of(name) for name in granted if permissions.kind(name).startswith("filesystem:")]
    opened = [os.path.realpath(os.path.expanduser(scope or "/")) for scope in reads]
    for path in code_above.paths({plugin.path, plugin.found_at}):
        if os.path.lexists(path) and any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in opened):
            terminal.say(f"It may also load code from {render.line(path)}, which is not checked.", fold=True)


def what_holds(session: Session, plugin: Plugin) -> str:
    """Describe how a plugin is approved, where that differs from the default."""
    approval = session.catalog.approvals.of(plugin)
    if approval is None or session.catalog.standing(plugin).state != "approved":
        return ""
    holds = [
        *(["runs without asking"] if approval.always and plugin.tier > plugin_approval.HARMLESS_TIER else []),
        *(["stays approved while only its code changes"] if approval.follow else []),
        *(["may run where its permissions cannot be enforced"] if approval.unconfined else []),
        *(["gets your environment without secrets"] if approval.inherits_environment else []),
    ]
    return f": it {', and '.join(holds)}" if holds else ""


def _say_what_ended(session: Session, plugin: Plugin, before: "Approval | None") -> None:
    """Show what the previous approval allowed and this one does not."""
    for what, option in plugin_approval.ended(plugin, before, session.catalog.approvals.of(plugin)):
        session.note(f"{what}, because {option} was not given")


def say_what_is_missing(session: Session, plugin: Plugin) -> None:
    """Show which values a plugin needs before it works."""
    try:
        absent = plugin_config.missing(plugin, plugin_config.read(plugin))
    except AnyplugError as error:
        session.warn(error.message)
        return
    for name in absent:
        session.note(
            f"it needs the value '{name}' before it works: {hints.command('config', plugin.name, name)} asks for it"
        )


def _approval(session: Session, entry: Entry) -> "Approval":
    approval = session.catalog.approvals.of(entry.plugin)
    if approval is None or not approval.approved:
        raise NotApproved(entry.name, entry.state)
    return approval


def _say_what_it_means(session: Session, granted: tuple[str, ...]) -> None:
    """Tell the person what a grant opens where its name does not say so."""
    for is_warning, text in plugin_approval.meanings(granted):
        if is_warning:
            session.warn(text)
        else:
            session.note(f"note: {text}")


def _name(parser: Parser) -> None:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, or its folder")


def _why_off(session: Session, plugin: Plugin) -> str:
    """Return what turned a plugin off; its standing tells how to turn it on."""
    by_itself = not plugin.enabled and not session.catalog.approvals.is_disabled(plugin)
    return "its manifest turns it off" if by_itself else "it is turned off"


def _report(session: Session, plugin: Plugin, more: str = "", decided: str = "") -> None:
    """Show a plugin's state after a decision; `decided` is added if the state does not show the decision."""
    standing = session.catalog.standing(plugin) if not plugin.is_broken else Standing(state="broken")
    if session.options.json:
        session.print_json({"name": plugin.name, "path": plugin.path, "state": standing.state})
    else:
        is_hidden = decided and standing.state == "disabled"
        state = f"{decided}{_why_off(session, plugin)}" if is_hidden else standing.state
        render.out(f"{plugin.name} is {state}{more}")
    if standing.state != "approved":
        warn_of_missing_guard(session, plugin)
    if standing.state == "disabled" and standing.reason and not session.options.json:
        session.note(f"hint: {standing.reason}")


def warn_of_missing_guard(session: Session, plugin: Plugin) -> None:
    """Warn if the plugin is a required guard and does not run."""
    if session.catalog.settings.of(plugin.name).guard == "required":
        namesakes = [entry for entry in session.catalog.load().entries if entry.name == plugin.name]
        if any(entry.state == "approved" or entry.on_guard for entry in namesakes):
            return
        where = session.catalog.home.settings
        session.warn(
            f'every call is now refused, because {plugin.name} is a required guard (guard = "required" in {where})'
        )
