"""`policy test`, `explain` and `replay`: try policies on events without an agent."""

import os
import sys
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.policy_scope import policies_of
from anyplug.model.errors import FAILED, ConfigError, UsageError
from anyplug.policy.accepted_copies import TRUST
from anyplug.policy.agent_events import HARNESSES, BadEvent, parse
from anyplug.policy.authoring import event_replay, examples
from anyplug.policy.authoring.candidate_replays import replay_file, replay_folder
from anyplug.policy.authoring.explanations import shape
from anyplug.policy.authoring.project_policies import ProjectPolicies
from anyplug.policy.authoring.trial import Explained, Trial, misplaced
from anyplug.policy.event_log import Recordings
from anyplug.rego import RegoErrors

EVENTS = {  # an example of each
    "opencode": '{"tool": "bash", "args": {"command": "npm publish"}}',
    "claude": '{"tool_name": "Bash", "tool_input": {"command": "npm publish"}}',
    "anyplug": '{"tool": "word_count", "args": {"text": "so long"}}',
}
GIVE_EVENT = "pass a file, JSON, or - to read it from stdin"


def test(session: Session) -> int:
    """Run examples: the project's, the user's if there is no project, or those in the named file or folder."""
    given = session.options.what
    place = policies_of(session, given or "")
    files = _examples(place, given)
    if not files:
        where = given or (place.root if place.is_there else "your own policies")
        raise UsageError(f"there are no examples in {where}", "write some into a file with a name like safety.test.yml")
    trials: dict[tuple[str, bool], Trial] = {}
    tried = []
    for path in files:
        is_own = place.is_own(path)
        shown = path if is_own else os.path.relpath(path, place.folder)
        try:
            found = examples.read(path, shown)
        except examples.BadExamples as error:
            raise ConfigError(
                str(error),
                f"an example has {', '.join(examples.KEYS[:2])}, and may have {', '.join(examples.KEYS[2:])}",
            ) from error
        for example in found:
            harness = example.harness or place.harness(path)
            if harness not in HARNESSES:
                raise ConfigError(f"{shown}: '{harness}' is not a known agent", f"use one of {', '.join(HARNESSES)}")
            key = (harness, is_own)
            trial = trials.get(key) or trials.setdefault(key, place.trial_alone(harness, is_own=is_own))
            tried.append(examples.run(example, trial))
    failed = [one for one in tried if one.problem]
    if session.options.json:
        session.print_json({"passed": len(tried) - len(failed), "failed": len(failed), "examples": tried})
        return FAILED if failed else 0
    for one in failed:
        render.out(f"{one.file}: {one.name}: {one.problem}")
    render.out(f"{len(tried) - len(failed)} of {render.count(len(tried), 'example')} as expected.")
    return FAILED if failed else 0


def _examples(place: ProjectPolicies, given: str | None) -> list[str]:
    if given:
        return examples.find(os.path.abspath(given)) if os.path.isdir(given) else [os.path.abspath(given)]
    if place.is_there:
        return examples.find(place.root)
    return list(dict.fromkeys(path for own in place.own.values() for path in examples.find(own.root)))


def explain(session: Session) -> int:
    """Decide about an event, and explain the decision."""
    options = session.options
    if not options.what:
        raise UsageError("explain needs an event", GIVE_EVENT)
    content, signals = _content_of(options.what), _signals(options.signals)
    place = policies_of(session)
    trial = place.trial_here(place.harness())
    try:
        given = parse(content)
        event = trial.read(given, place.folder)
        explained = trial.explain(event, signals)
    except BadEvent as error:
        hint = f"write it like `{EVENTS[trial.harness]}`"
        if trial.harness != "claude" and b'"tool_name"' in content:
            hint = "`--harness claude` takes events of Claude Code, which have a tool_name"
        raise UsageError(f"this is not an event of {trial.harness}: {error}", hint) from error
    outcome, decision = explained.outcome, explained.outcome.decision
    refusal, now = trial.refusal_by_eval(given), place.in_force(event, given, signals)
    is_other = now is not None and (now.verb, now.reason) != (decision.verb, decision.reason)
    if options.json:
        session.print_json(shape(trial.harness, explained, refusal, now))
        return 0
    _show(explained)
    if others := [name for name in place.harnesses() if name != trial.harness]:
        ways = " or ".join(f"`--harness {name}`" for name in others)
        session.note(f"decided as an event of {trial.harness}; {ways} uses the policies of {' or '.join(others)}")
    for line in (*outcome.said, *filter(None, (misplaced(given, trial.harness), trial.wrong_signals(signals)))):
        session.note(line)
    if now is not None and is_other:
        said = f"{now.verb}: {now.reason}" if now.reason else now.verb
        session.note(render.line(f"in force now: {said}"))
        session.note(f"the policies that you accepted last also decide, until `{TRUST}` accepts these files")
    if refusal:
        session.note(f"`anyplug eval` refuses this event as it is ({refusal}); what is missing was added here")
    if explained.unanswered:
        names = ", ".join(explained.unanswered)
        session.note(f"signals do not run here, so these have no answer: {names}; --signals JSON provides them")
    return 0


def _show(explained: Explained) -> None:
    decision = explained.outcome.decision
    render.out(f"{decision.verb}" + (f": {decision.reason}" if decision.reason else ""))
    for finding in decision.findings:
        place = f"{finding.file}:{finding.row}: " if finding.file else ""
        render.out(f"  {place}{finding.verb} {finding.rule_id} ({finding.severity})")
    if decision.updated_input is not None:
        render.out("  " + render.line(f"changed arguments: {msgspec.json.encode(decision.updated_input).decode()}"))
    for text in decision.context:
        render.out(f"  context: {text}")
    _list("printed", explained.printed)
    _list("calls that failed and have no value", explained.failures)
    _list("rules that applied", explained.fired)
    _list("policies that decided", [f"{one.file} ({one.policy})" for one in explained.routed if one.asked])
    _list("policies that did not decide", [f"{one.file}: {one.why}" for one in explained.routed if not one.asked])


def _list(heading: str, lines: Iterable[str]) -> None:
    said = list(lines)
    if said:
        render.out(f"{heading}:")
    for line in said:
        render.out(f"  {line}")


def replay(session: Session) -> int:
    """Decide about recorded events with a candidate, and list what would change."""
    options = session.options
    if not options.what:
        raise UsageError("replay needs a policy", "`anyplug policy replay FILE|FOLDER` takes a candidate")
    try:
        since = event_replay.moment(options.since)
    except ValueError as error:
        raise UsageError(f"'{options.since}' is not a duration", "write 30m, 12h, 7d or 2w") from error
    log = Recordings(session.catalog.home.path, 0)
    try:
        if os.path.isdir(options.what):
            done, notes = replay_folder(policies_of(session), options.what, lambda: log.since(since))
        else:
            done, notes = replay_file(
                policies_of(session), options.what, _text_of(options.what), lambda: log.since(since)
            )
    except RegoErrors as error:
        raise ConfigError(
            f"the candidate is invalid:\n{error}", "fix the lines named above, then run it again"
        ) from error
    if options.json:
        session.print_json(done)
        return 0
    for change in done.changes:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.at))
        render.out(render.line(f"{at} {change.tool}: {change.before} -> {change.after}: {change.about}"))
        if change.reason:
            render.out(f"    {render.line(change.reason)}")
    render.out(f"{len(done.changes)} of {render.count(done.events, 'recorded call')} would be decided differently.")
    for note in notes:
        session.note(render.line(note))
    if not done.events:
        session.note(
            "hint: calls are recorded where policies are in force, for `record_days` of [policy] in settings.toml"
        )
    return 0


def _signals(given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    try:
        signals = parse(given)
    except BadEvent:
        signals = None
    if not isinstance(signals, dict):
        raise UsageError("--signals must be a JSON object", """write it like --signals '{"branch": "main"}'""")
    return signals


def _text_of(given: str) -> str:
    try:
        return _content_of(given).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {given}: it is not UTF-8", GIVE_EVENT) from error


def _content_of(given: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read()
    if given.lstrip().startswith("{"):
        return os.fsencode(given)
    try:
        with open(given, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {given}: {error.strerror}", GIVE_EVENT) from error
