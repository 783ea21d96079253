"""`connect AGENT --policy`: submit the tools that an agent runs itself to policies."""

import os

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.home.settings import find_home, usual_home
from anyplug.manage.connect import client_entry, policy_hooks
from anyplug.manage.connect.clients import CLIENTS
from anyplug.model.errors import UsageError
from anyplug.policy.agent_events import POLICIES_OF
from anyplug.policy.opencode import installation

SAID = {
    "added": "your policies apply to {title}'s own tools, by {path}; {then}",
    "updated": "{path} is now up to date; {then}",
    "unchanged": "{path} already exists",
    "removed": "{path} is removed: policies no longer apply to {title}'s own tools; restart {title}",
    "absent": "{path} does not exist",
}
SAID_OF_HOOKS = {
    **SAID,
    "unchanged": "{path} already has the hooks",
    "removed": "the hooks are removed from {path}: policies no longer apply to {title}'s own tools; restart {title}",
    "absent": "{path} has no hooks of anyplug",
}


def gate(session: Session, program: list[str]) -> int:
    """Install the gate of an agent, remove it, or print it."""
    options = session.options
    name = options.client or ""
    if name != "opencode" and name not in policy_hooks.AGENTS:
        why = f"policies cannot decide about the own tools of '{name}'" if name else "--policy needs an agent"
        raise UsageError(why, "anyplug has gates for opencode, claude and codex: `anyplug connect claude --policy`")
    home = find_home(options.home).path
    project = None if options.everywhere else os.getcwd()
    if name == "opencode":
        other_home = home if home != usual_home().path else None
        if options.print:
            render.trusted(installation.render(other_home))
            return 0
        made = installation.remove(project) if options.remove else [installation.install(project, home=other_home)]
        changes: list[tuple[str, str, str]] = [(one.path, one.change, one.kept) for one in made]
        title, then, sentences = "OpenCode", "restart OpenCode", SAID
    else:
        if options.print:
            render.trusted(policy_hooks.snippet(name, program))
            return 0
        path, change = (
            policy_hooks.remove(name, project) if options.remove else policy_hooks.install(name, project, program)
        )
        changes = [(path, change, "")]
        title, then = policy_hooks.AGENTS[name].title, policy_hooks.AGENTS[name].then
        sentences = SAID_OF_HOOKS
    if options.json:
        session.print_json([{"path": path, "change": change, "kept": kept or None} for path, change, kept in changes])
        return 0
    if not options.remove and project is not None:
        _look(session, home, project, name)  # first: a warning that everything would be refused comes before success
    for path, change, kept in changes:
        render.out(sentences[change].format(path=path, title=title, then=then))
        if kept:
            session.note(f"the previous file is saved as {kept}")
    return 0


def connected(project: str) -> list[str]:
    """Return whose policies decide about the agents that are connected, to policies or to plugins."""
    here = [name for name in policy_hooks.AGENTS if any(_has_hooks(name, where) for where in (project, None))]
    here += ["opencode"] if installation.installed_copies(project) else []
    here += [name for name in (*policy_hooks.AGENTS, "opencode") if client_entry.is_connected(CLIENTS[name], project)]
    return list(dict.fromkeys(POLICIES_OF.get(name, name) for name in here))


def bound(project: str | None, harness: str) -> list[str]:
    """Return the agents whose own tools such policies decide about, in a project or (None) in all projects."""
    if harness == "opencode":
        copies = installation.installed_copies(project or os.getcwd())
        return ["OpenCode"] if any(copy.is_loaded and (project or copy.scope == "global") for copy in copies) else []
    places = {project, None}
    return [
        agent.title
        for name, agent in policy_hooks.AGENTS.items()
        if POLICIES_OF.get(name, name) == harness and any(_has_hooks(name, where) for where in places)
    ]


def _has_hooks(name: str, project: str | None) -> bool:
    return policy_hooks.are_in(policy_hooks.place(name, project), name)


def _look(session: Session, home: str, project: str, agent: str) -> None:
    """Warn if the gate would refuse everything because there are no usable policies."""
    from anyplug.frontends.cli import policy_trust as trusting  # only needed here
    from anyplug.policy.engine import Engine, NoPolicies
    from anyplug.policy.evaluation import Options

    engine, harness = Engine(home), POLICIES_OF.get(agent, agent)
    try:
        nearest = engine.places_of(project, harness)[0]
        engine.place(harness, nearest, engine.global_root(Options(), harness))
        trusting.offer(session, nearest.root)
    except NoPolicies as error:
        session.warn(f"every tool is refused here until this is fixed: {error}")
        session.note(f"hint: {error.hint}")
