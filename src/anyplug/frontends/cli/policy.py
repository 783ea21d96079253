"""`policy`: for people who write policies."""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from anyplug.errors import FAILED, ConfigError, UsageError
from anyplug.frontends.cli import render
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyplug.policy.routing import Policy
    from anyplug.policy.trial import Trial

ACTIONS = ("init", "validate", "inspect", "test", "explain", "replay")
HARNESSES = ("opencode", "claude", "anyplug")
SINCE = "7d"
EPILOG = """\
init               write a .cupcake folder with a policy, a rulebook and examples
validate           say everything that is wrong, with file and line
inspect            list the policies, and the events that each is asked about
test [FILE]        run the examples beside the policies
explain EVENT      decide about an event (a file, JSON, or - for stdin) and say which rules decided, and why
replay FILE        decide about recorded calls with this policy, and list what would change"""


def _policy(parser: Parser) -> Command:
    parser.epilog = EPILOG
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("what", nargs="?", metavar="FILE|EVENT", help="what the action is about")
    parser.add_argument("--harness", choices=HARNESSES, help="whose policies; by default all, or OpenCode's")
    parser.add_argument("--policy-dir", default="", metavar="DIR", help="use the .cupcake in or beside this folder")
    parser.add_argument(
        "--global-config", default="", metavar="DIR", help="use this folder of policies for all projects"
    )
    parser.add_argument(
        "--since", default=SINCE, metavar="7d", help=f"with replay: how far back ({SINCE}); also 30m, 12h"
    )
    parser.add_argument("--signals", metavar="JSON", help="with explain: what signals answer, as an object")
    return run


COMMANDS = {"policy": _policy}


def run(session: Session) -> int:
    """Do what the action says."""
    actions: dict[str, Callable[[Session], int]] = {
        "init": _init,
        "validate": _validate,
        "inspect": _inspect,
        "test": _test,
        "explain": _explain,
        "replay": _replay,
    }
    return actions[session.options.action](session)


def _init(session: Session) -> int:
    from anyplug.policy import sources, starter  # the engine is for those who use it

    given = session.options.what or "."
    root = (
        sources.of_policy_dir(given)
        if os.path.basename(given) == sources.FOLDER
        else os.path.join(given, sources.FOLDER)
    )
    written = starter.write(os.path.abspath(root), session.options.harness or "opencode")
    if session.options.json:
        session.print_json({"written": written})
        return 0
    for path in written:
        print(os.path.relpath(path))
    if not written:
        session.note(f"everything is there already in {root}")
    session.note("`anyplug policy test` runs the examples, `anyplug connect opencode --policy` puts it in force")
    return 0


def _validate(session: Session) -> int:
    from anyplug.policy import checking  # as above

    root = _root(session)
    remarks = []
    count = 0
    for harness in _harnesses(session, root):
        found, policies = checking.check(root, harness)
        remarks += found
        count += len(policies)
    remarks = list(dict.fromkeys(remarks))
    failed = any(remark.level == "error" for remark in remarks)
    if session.options.json:
        session.print_json({"valid": not failed, "policies": count, "remarks": remarks})
        return FAILED if failed else 0
    for remark in remarks:
        print(render.plain(str(remark)))
    if not failed:
        print(f"{count} {'policy' if count == 1 else 'policies'} can be used.")
    return FAILED if failed else 0


def _inspect(session: Session) -> int:
    root = _root(session)
    rows = [
        _row(harness, policy)
        for harness in _harnesses(session, root)
        for policy in _trial(session, root, harness).loaded.project.policies
    ]
    if session.options.json:
        session.print_json(rows)
        return 0
    render.table(
        ("FOR", "FILE", "EVENTS", "TOOLS", "VERBS", "TITLE"),
        [
            (
                row["harness"],
                row["file"],
                " ".join(row["events"]),
                " ".join(row["tools"]) or "any",
                " ".join(row["verbs"]),
                row["title"],
            )
            for row in rows
        ],
    )
    return 0


def _row(harness: str, policy: "Policy") -> dict[str, Any]:
    return {
        "harness": harness,
        "file": policy.file,
        "package": policy.name,
        "title": policy.title,
        "events": sorted(policy.route.events),
        "tools": sorted({*policy.route.tools, *policy.route.patterns}),
        "signals": list(policy.route.signals),
        "verbs": list(dict.fromkeys(part.verb for part in policy.parts)),
    }


def _test(session: Session) -> int:
    from anyplug.policy import examples  # as above

    root = _root(session)
    files = [os.path.abspath(session.options.what)] if session.options.what else examples.find(root)
    if not files:
        raise UsageError(f"there are no examples in {root}", "write some into a file named like safety.test.yml")
    trials: dict[str, Trial] = {}
    tried = []
    for path in files:
        shown = os.path.relpath(path, os.path.dirname(root))
        try:
            found = examples.read(path, shown)
        except examples.BadExamples as error:
            raise ConfigError(str(error), "`docs/how-to/policies.md` shows how examples are written") from error
        for example in found:
            harness = example.harness or examples.harness_of(path, root) or session.options.harness or "opencode"
            if harness not in HARNESSES:
                raise ConfigError(f"{shown}: events of '{harness}' are not known", f"there are {', '.join(HARNESSES)}")
            trial = trials.get(harness) or trials.setdefault(harness, _trial(session, root, harness, alone=True))
            tried.append(examples.run(example, trial))
    failed = [one for one in tried if one.problem]
    if session.options.json:
        session.print_json({"passed": len(tried) - len(failed), "failed": len(failed), "examples": tried})
        return FAILED if failed else 0
    for one in failed:
        print(render.plain(f"{one.file}: {one.name}: {one.problem}"))
    print(f"{len(tried) - len(failed)} of {render.count(len(tried), 'example')} as expected.")
    return FAILED if failed else 0


def _explain(session: Session) -> int:
    from anyplug.policy.events import BadEvent, parse  # as above

    options = session.options
    if not options.what:
        raise UsageError("explain needs an event", "give a file, JSON, or - to read it from stdin")
    root = _root(session)
    trial = _trial(session, root, options.harness or "opencode")
    try:
        given = parse(_text_of(options.what))
        signals = {} if options.signals is None else parse(options.signals)
        explained = trial.explain(trial.read(given, os.path.dirname(root)), signals or None)
    except BadEvent as error:
        raise UsageError(
            f"this is no event: {error}", "`docs/reference/policies.md` shows what an event has"
        ) from error
    outcome, decision = explained.outcome, explained.outcome.decision
    if options.json:
        session.print_json(
            {
                "decision": decision.verb,
                "reason": decision.reason,
                "answer": outcome.answer,
                "cacheable": outcome.is_cacheable,
                "findings": decision.findings,
                "context": decision.context,
                "fired": explained.fired,
                "policies": explained.routed,
                "input": explained.input,
            }
        )
        return 0
    print(f"{decision.verb}" + (f": {render.plain(decision.reason)}" if decision.reason else ""))
    for finding in decision.findings:
        print(render.plain(f"  {finding.file}:{finding.row}: {finding.verb} {finding.rule_id} ({finding.severity})"))
    for text in decision.context:
        print(render.plain(f"  context: {text}"))
    _list("rules that held", explained.fired)
    _list("policies that were asked", [f"{one.file} ({one.policy})" for one in explained.routed if one.asked])
    _list("policies that were not asked", [f"{one.file}: {one.why}" for one in explained.routed if not one.asked])
    for line in outcome.said:
        session.note(line)
    return 0


def _replay(session: Session) -> int:
    from anyplug.policy import replaying  # as above
    from anyplug.policy.recording import Recordings
    from anyplug.policy.rego import RegoErrors
    from anyplug.policy.trial import Trial

    options = session.options
    if not options.what:
        raise UsageError("replay needs a policy", "give the file of a candidate")
    try:
        since = replaying.moment(options.since)
    except ValueError as error:
        raise UsageError(f"'{options.since}' is no span of time", "write 30m, 12h, 7d or 2w") from error
    root = _root(session)
    harness = options.harness or "opencode"
    now = _trial(session, root, harness)
    try:
        source = replaying.with_candidate(now.loaded.source, os.path.relpath(options.what), _text_of(options.what))
        candidate = Trial(source, harness, now.loaded.whole_source, now.protected)
    except RegoErrors as error:
        raise _unusable(error) from error
    home = session.catalog.home.path
    done = replaying.replay(Recordings(home, 0).since(since), now, candidate)
    if options.json:
        session.print_json(done)
        return 0
    for change in done.changes:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.at))
        print(render.line(f"{at} {change.tool}: {change.before} -> {change.after}: {change.about}"))
        if change.reason:
            print(f"    {render.line(change.reason)}")
    print(f"{len(done.changes)} of {render.count(done.events, 'recorded call')} would be decided otherwise.")
    if not done.events:
        session.note(
            "hint: calls are recorded where policies are in force, for `record_days` of [policy] in settings.toml"
        )
    return 0


def _root(session: Session) -> str:
    from anyplug.policy import sources  # as above

    given = session.options.policy_dir
    found = sources.of_policy_dir(given) if given else sources.find(os.getcwd())
    if found is None or not os.path.isdir(found):
        raise ConfigError(f"there is no {sources.FOLDER} here nor above", "`anyplug policy init` makes one")
    return found


def _harnesses(session: Session, root: str) -> list[str]:
    from anyplug.policy import checking  # as above

    if session.options.harness:
        return [session.options.harness]
    return checking.harnesses(root) or ["opencode"]


def _trial(session: Session, root: str, harness: str, *, alone: bool = False) -> "Trial":
    # As above.
    from anyplug.policy.engine import Engine, NoPolicies
    from anyplug.policy.inquiry import Options
    from anyplug.policy.rego import RegoErrors
    from anyplug.policy.trial import of_place

    policy = session.catalog.settings.policy
    engine = Engine(session.catalog.home.path, self_protection=policy.self_protection)
    try:
        return of_place(engine, root, harness, Options(global_config=session.options.global_config), alone=alone)
    except RegoErrors as error:
        raise _unusable(error) from error
    except NoPolicies as error:
        raise ConfigError(str(error), "give a folder that is there") from error


def _unusable(error: Exception) -> ConfigError:
    return ConfigError(f"the policies cannot be used:\n{error}", "`anyplug policy validate` says more")


def _text_of(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if given.lstrip().startswith("{"):
        return given
    try:
        with open(given, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {given}: {error}", "give a file, JSON, or - to read it from stdin") from error


def _list(heading: str, lines: Any) -> None:
    if lines:
        print(f"{heading}:")
    for line in lines:
        print(render.plain(f"  {line}"))
