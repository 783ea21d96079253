"""`connect opencode --policy`: install the plugin that submits OpenCode's own tools to policies."""

import os

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.home.settings import find_home, usual_home
from anyplug.model.errors import UsageError
from anyplug.policy.opencode import installation

SAID = {
    "added": "your policies apply to OpenCode's own tools, by {path}; restart OpenCode",
    "updated": "{path} is now up to date; restart OpenCode",
    "unchanged": "{path} already exists",
    "removed": "{path} is removed: policies no longer apply to OpenCode's own tools; restart OpenCode",
    "absent": "{path} does not exist",
}


def gate(session: Session) -> int:
    """Install the plugin for OpenCode, remove it, or print it."""
    options = session.options
    if options.client != "opencode":
        hint = (
            "`anyplug connect opencode --policy`; for Claude Code, add a hook that runs `anyplug eval --harness claude`"
        )
        raise UsageError("--policy is for OpenCode", hint)
    home = find_home(options.home).path
    other_home = home if home != usual_home().path else None
    project = None if options.everywhere else os.getcwd()
    if options.print:
        render.trusted(installation.render(other_home))
        return 0
    changes = installation.remove(project) if options.remove else [installation.install(project, home=other_home)]
    if options.json:
        session.print_json([{"path": one.path, "change": one.change, "kept": one.kept or None} for one in changes])
        return 0
    if not options.remove and project is not None:
        _look(session, home, project)  # first: a warning that everything would be refused comes before the success
    for one in changes:
        render.out(SAID[one.change].format(path=one.path))
        if one.kept:
            session.note(f"the previous file is saved as {one.kept}")
    return 0


def _look(session: Session, home: str, project: str) -> None:
    """Warn if the gate would refuse everything because there are no usable policies."""
    from anyplug.frontends.cli import policy_trust as trusting  # only needed here
    from anyplug.policy.engine import Engine, NoPolicies
    from anyplug.policy.evaluation import Options

    engine = Engine(home)
    try:
        nearest = engine.places_of(project, "opencode")[0]
        engine.place("opencode", nearest, engine.global_root(Options(), "opencode"))
        trusting.offer(session, nearest.root)
    except NoPolicies as error:
        session.warn(f"until that is fixed, every tool is refused here: {error}")
        session.note(f"hint: {error.hint}")
