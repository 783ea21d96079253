"""`policy`: for policy authors."""

import os
from typing import TYPE_CHECKING

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.model import hints
from anyplug.model.errors import FAILED, ConfigError, UsageError

if TYPE_CHECKING:
    from anyplug.policy.authoring.validate import Checked, Held

ACTIONS = ("init", "validate", "inspect", "test", "explain", "replay", "trust")
HARNESSES = ("opencode", "claude", "anyplug")
TITLES = {"opencode": "OpenCode", "claude": "Claude Code and Codex", "anyplug": "the tools of all plugins"}
SINCE = "7d"
IN_FORCE = {
    "opencode": "`anyplug connect opencode --policy{0}` puts it into force",
    "claude": "`anyplug connect claude --policy{0}` puts it into force, for Codex `connect codex`",
    "anyplug": "and it is in force for the tools of all plugins",
}
EPILOG = """\
actions:
  init             create a .cupcake folder with a policy, a rulebook and examples
  validate         list all problems, with file and line
  inspect          list the policies and the events that each decides on
  test [FILE]      run the examples beside the policies
  explain EVENT    decide on an event (a file, JSON, or - for stdin) and show which rules decided, and why
  replay FILE      decide on recorded calls with this policy, helper or whole .cupcake, and list what would change
  trust [FOLDER]   show what policies run and what changed in them, and accept it (--global: your own)"""


def _policy(parser: Parser) -> Command:
    parser.epilog = EPILOG
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("what", nargs="?", metavar="FILE|EVENT", help="the file, folder or event for the action")
    parser.add_argument(
        "--harness",
        choices=HARNESSES,
        metavar="AGENT",
        help=f"the agent whose policies to use: {', '.join(HARNESSES)} (default: all that have policies; "
        "with init: the one that is connected, else opencode)",
    )
    parser.add_argument("--policy-dir", default="", metavar="DIR", help="use the .cupcake in this folder or next to it")
    parser.add_argument(
        "--global-config", default="", metavar="DIR", help="use the policies in this folder for all projects"
    )
    parser.add_argument(
        "--since", default=SINCE, metavar="7d", help=f"with replay: how far back (default: {SINCE}); also 30m, 12h"
    )
    parser.add_argument(
        "--global",
        action="store_true",
        dest="for_all",
        help="with init and trust: your own policies, for all projects",
    )
    parser.add_argument("--signals", metavar="JSON", help="with explain: the answers of signals, as an object")
    parser.add_argument("--strict", action="store_true", help="with validate: warnings fail too, for use in CI")
    parser.add_argument("--yes", action="store_true", help="with trust: accept without asking")
    parser.add_argument("--revoke", action="store_true", help="with trust: no longer run the project's commands")
    parser.add_argument(
        "--allow-unconfined", action="store_true", help="with trust: run commands where there is no sandbox"
    )
    return run


COMMANDS = {"policy": _policy}


def run(session: Session) -> int:
    """Run the action."""
    action = session.options.action
    # Imported here, because it loads the policy engine.
    from anyplug.frontends.cli import policy_trials as trials
    from anyplug.frontends.cli import policy_trust as trusting

    if action in {"init", "trust"}:
        return {"init": _init, "trust": trusting.trust}[action](session)
    looks = {
        "test": trials.test,
        "explain": trials.explain,
        "replay": trials.replay,
        "validate": _validate,
        "inspect": _inspect,
    }
    code = looks[action](session)
    trusting.remind(session)
    return code


def _init(session: Session) -> int:
    from anyplug.frontends.cli import policy_trust as trusting  # for the same reason
    from anyplug.frontends.cli.connect_policy import bound, connected
    from anyplug.policy.authoring import starter
    from anyplug.policy.paths import FOLDER

    is_own = session.options.for_all
    if (what := session.options.what) in HARNESSES and not os.path.isdir(what):
        raise UsageError(
            f"'{what}' is an agent, and there is no folder with that name",
            hints.command("policy", "init", "--harness", what),
        )
    given = os.path.abspath(session.options.what or ".")
    if given != (above := os.path.dirname(given)) and os.path.basename(given) == FOLDER:
        given = above
    chosen = connected(given) if not session.options.harness else []
    harness = session.options.harness or (chosen[0] if len(chosen) == 1 else HARNESSES[0])
    root = _own_root(session, harness) if is_own else os.path.join(given, FOLDER)
    was_empty = not os.path.lexists(root)
    written = starter.write(root, harness, is_own=is_own)
    if was_empty and not (is_own and harness == "anyplug"):
        trusting.accept_own(session, root, is_own=is_own)
    if session.options.json:
        session.print_json({"harness": harness, "written": written})
        return 0
    shown = [path if is_own else os.path.relpath(path) for path in (*written, root)]
    for path in shown[:-1]:
        render.out(path)
    if not written:
        session.note(f"nothing to write: {shown[-1]} is complete")
    if written and not session.options.harness:
        why = ", because it is connected" if chosen == [harness] else ""
        other = next(one for one in HARNESSES if one != harness)
        command = hints.command("policy", "init", "--harness", other, *(["--global"] if is_own else []))
        session.note(f"this is for {TITLES[harness]}{why}; {command} does the same for {TITLES[other]}")
    tests = f"anyplug policy test {shown[-1]}" if is_own else "anyplug policy test"
    where = IN_FORCE[harness].format(" --global" if is_own else "")
    if agents := bound(None if is_own else given, harness):
        where = f"and it is in force for the tools of {' and '.join(agents)}"
    session.note(f"`{tests}` runs the examples, {where}")
    if not is_own:
        trusting.offer(session, root)
    return 0


def _own_root(session: Session, harness: str) -> str:
    from anyplug.policy.engine import Engine, NoPolicies  # for the same reason
    from anyplug.policy.evaluation import Options

    if session.options.what:
        raise UsageError("init --global takes no folder", "--global-config DIR uses another folder")
    engine = Engine(session.catalog.home.path)
    try:
        return engine.global_root(Options(global_config=session.options.global_config), harness)
    except NoPolicies as error:
        raise ConfigError(str(error), error.hint) from error


def _validate(session: Session) -> int:
    checked = _checked(session)
    remarks, places = checked.remarks, checked.places
    is_failed = not checked.is_valid or (session.options.strict and bool(remarks))
    if session.options.json:
        session.print_json(
            {"valid": checked.is_valid, "policies": len(checked.held), "places": places, "remarks": remarks}
        )
        return FAILED if is_failed else 0
    for remark in remarks:
        render.out(str(remark))
    if checked.is_valid:
        count = len(checked.held)
        render.out(f"{count} {'policy is' if count == 1 else 'policies are'} valid.")
        for place in places:
            render.out(f"  {place['policies']} for {place['harness']}, in {place['place']}")
        if is_failed:
            session.note(f"{render.count(len(remarks), 'warning')}, which --strict does not allow")
    return FAILED if is_failed else 0


def _inspect(session: Session) -> int:
    from anyplug.policy.paths import FOLDER  # for the same reason

    checked = _checked(session)
    if not checked.is_valid:
        wrong = [str(remark) for remark in checked.remarks if remark.level == "error"]
        raise ConfigError(
            "the policies are invalid:\n" + "\n".join(wrong), "`anyplug policy validate` lists the problems"
        )
    rows = [held.shape for held in checked.held]
    if session.options.json:
        session.print_json(rows)
        return 0
    render.table(
        ("FOR", "PLACE", "FILE", "EVENTS", "TOOLS", "VERBS", "TITLE"),
        [
            (
                row["harness"],
                os.path.relpath(held.place) if os.path.basename(held.place) == FOLDER else held.place,
                row["file"] if held.policy.builtin else os.path.relpath(_path(held), held.place),
                " ".join(row["events"]),
                " ".join(row["tools"]) or "any",
                " ".join(row["verbs"]),
                row["title"],
            )
            for row, held in zip(rows, checked.held, strict=True)
        ],
    )
    return 0


def _path(held: "Held") -> str:
    return os.path.join(os.path.dirname(held.place), held.policy.file)


def _checked(session: Session) -> "Checked":
    from anyplug.frontends.cli.policy_scope import policies_of  # for the same reason

    if session.options.what:
        raise UsageError(
            f"{session.options.action} takes no file: it covers all policies that apply here",
            "--policy-dir DIR uses another folder, --harness AGENT one agent",
        )
    return policies_of(session).checked()
