"""`approve`, `deny`, `revoke`, `grant`, `ungrant`, `enable`, `disable`: a person's decisions about a plugin."""

import os
import shlex
import shutil
from typing import TYPE_CHECKING

from anyplug.call.consent import HARMLESS_TIER
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
from anyplug.model import hints, permissions
from anyplug.model.errors import AnyplugError, ManifestError, NotApproved, UsageError
from anyplug.model.types import Plugin
from anyplug.model.untrusted_text import for_people, lines_for_people

if TYPE_CHECKING:
    from anyplug.catalog.approvals import Approval
    from anyplug.host.host import Host

SHOWN = 300  # characters of a description, so that the permissions stay on the screen
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
    _name(parser)
    add_approval_options(parser)
    return lambda session: approve(session, session.plugin(session.options.name))


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
        raise _unusable(entry)
    if options.inherit_env and not registry.BY_NAME[plugin.format].INHERITS_ENVIRONMENT:
        raise UsageError(
            f"'{plugin.name}' cannot inherit your environment: {registry.title(plugin.format)} plugins never do",
            f"`anyplug grant {plugin.name} env:VARIABLE` gives it one variable",
        )
    before = session.catalog.approvals.of(plugin)
    granted = _granted(session, plugin) if options.grant is None else _checked(options.grant)
    try:
        with session.progress(f"reading all files of {plugin.name}"):
            seen = session.catalog.digest(plugin).value
    except OSError as error:
        why = f"'{plugin.name}' was not approved: cannot read {error.filename}: {error.strerror}"
        refuse(
            render.line(why), f"delete {error.filename} or move it out of the plugin's folder, then approve it again"
        )
    if not options.json:
        _present(session, entry, granted, shows_instructions=shows_instructions)
    if not options.yes:
        if not terminal.can_ask():
            refuse(
                f"'{plugin.name}' was not approved: this is not a terminal", f"`anyplug approve {plugin.name} --yes`"
            )
        if not session.confirm("Approve it?"):
            refuse(f"'{plugin.name}' was not approved", "none of its code has run")

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
    asked = _checked(asked) if add else permissions.normalise(asked)  # it may have an unknown one from its manifest
    if add:
        entry = _kept(session, "granted more than it declares", hints.command("grant", name, *asked))
    else:
        entry = _kept(session, "refused what it declares", f"{hints.command('approve', name)} lets you choose")
    approval = _approval(session, entry)
    if add:
        granted = tuple(dict.fromkeys((*approval.granted, *asked)))
    else:
        absent = [name for name in asked if name not in approval.granted]
        if absent:
            _checked(absent)
            has = ", ".join(approval.granted) or "nothing"
            raise UsageError(f"'{entry.name}' was not granted {absent[0]}", f"it was granted {has}")
        granted = tuple(name for name in approval.granted if name not in asked)
    session.catalog.approvals.regrant(entry.plugin, approval, granted)
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


def _granted(session: Session, plugin: Plugin) -> tuple[str, ...]:
    """Return what to grant: what it asks for; of what a person decided before, only what they granted then."""
    before = session.catalog.approvals.of(plugin)
    if before is None or not before.approved:
        return plugin.permissions
    kept = [name for name in before.granted if name in plugin.permissions or name not in before.asked]
    return (*kept, *(name for name in plugin.permissions if name not in before.asked and name not in kept))


def _present(session: Session, entry: Entry, granted: tuple[str, ...], *, shows_instructions: bool) -> None:
    """Show a person what they are about to approve."""
    plugin = entry.plugin
    version = f" {render.line(plugin.version)}" if plugin.version else ""
    heading = f"{plugin.name}{version} ({registry.title(plugin.format)}) in {plugin.path}"
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
    _present_namesakes(session, entry)
    _present_confinement(session, entry, granted)
    _present_what_runs(session, entry)
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
    from anyplug.home.code_snapshots import FILES, Snapshots  # only needed for a changed plugin

    snapshots = Snapshots(session.catalog.home.path)
    for path in (snapshots.path(before.digest), snapshots.path(before.digest, config=True)):
        files = os.path.join(path, FILES)
        named = os.path.join(path, before.name)  # some manifests must contain the name of their folder
        approved = session.catalog.read(files, named) if os.path.isdir(files) else None
        if approved is not None and approved.name == before.name and approved.tools:
            return approved
    return None


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


def _present_what_runs(session: Session, entry: Entry) -> None:
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
    for line in model_texts.shown(entry.tools, f"anyplug tools {plugin.name}"):
        terminal.say(f"  {line}", fold=True)
    if plugin.init:
        terminal.say(f"It runs {plugin.init} once for its setup.")


def what_holds(session: Session, plugin: Plugin) -> str:
    """Describe how a plugin is approved, where that differs from the default."""
    approval = session.catalog.approvals.of(plugin)
    if approval is None or session.catalog.standing(plugin).state != "approved":
        return ""
    holds = [
        *(["runs without asking"] if approval.always and plugin.tier > HARMLESS_TIER else []),
        *(["stays approved while only its code changes"] if approval.follow else []),
        *(["may run where its permissions cannot be enforced"] if approval.unconfined else []),
        *(["gets your environment without secrets"] if approval.inherits_environment else []),
    ]
    return f": it {', and '.join(holds)}" if holds else ""


def _say_what_ended(session: Session, plugin: Plugin, before: "Approval | None") -> None:
    """Show what the previous approval allowed and this one does not."""
    if before is None or not before.approved:
        return
    options = session.options
    if before.always and not options.always and plugin.tier > HARMLESS_TIER:
        session.note("it asks again once per run or session, because --always was not given")
    if before.follow and not options.follow:
        session.note("changed code needs a new approval again, because --follow was not given")
    if before.unconfined and not options.allow_unconfined:
        lacking = "because --allow-unconfined was not given"
        session.note(f"it no longer runs where its permissions cannot be enforced, {lacking}")
    if before.inherits_environment and not options.inherit_env:
        session.note("it no longer gets your environment, because --inherit-env was not given")


def say_what_is_missing(session: Session, plugin: Plugin) -> None:
    """Show which values a plugin needs before it works."""
    try:
        absent = plugin_config.missing(plugin, plugin_config.read(plugin))
    except AnyplugError as error:
        session.warn(error.message)
        return
    for name in absent:
        session.note(f"it needs the value '{name}' before it works: `anyplug config {plugin.name} {name}` asks for it")


def _approval(session: Session, entry: Entry) -> "Approval":
    approval = session.catalog.approvals.of(entry.plugin)
    if approval is None or not approval.approved:
        raise NotApproved(entry.name, entry.state)
    return approval


def _unusable(entry: Entry) -> ManifestError:
    if entry.state == "shadowed":
        return ManifestError(
            f"'{entry.name}' in {entry.path} is shadowed by {entry.shadowed_by}", "remove or rename one of the two"
        )
    problem = next(problem for problem in entry.problems if problem.level == "error")
    return ManifestError(f"'{entry.name}' cannot be loaded: {problem.message}", problem.hint)


def _checked(names: list[str]) -> tuple[str, ...]:
    """Accept only known permissions with valid scopes."""
    for name in names:
        message, hint = permissions.fault(name)
        if message:
            raise UsageError(message, hint)
    return permissions.normalise(names)


def _say_what_it_means(session: Session, granted: tuple[str, ...]) -> None:
    """Tell the person what a grant opens where its name does not say so."""
    for permission in granted:
        scope = permissions.scope_of(permission)
        if text := permissions.really(permission):
            session.note(f"note: {permission} {text}")
        if permissions.kind(permission).startswith("filesystem:") and scope:
            path = os.path.abspath(os.path.expanduser(scope))
            if scope[0] not in "/~":
                session.note(f"note: {permission} is relative to the folder in which anyplug runs, now {path}")
            if not os.path.exists(path):
                is_write = permissions.kind(permission) == "filesystem:write"
                around = ", unless a folder around it is granted, too" if is_write else ""
                session.warn(f"{path} does not exist, so {permission} allows nothing until it does{around}")
        if permission.startswith("shell:exec:") and shutil.which(os.path.expanduser(scope)) is None:
            session.warn(f"'{scope}' is not on your PATH, so {permission} allows nothing until it is")


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
