"""Replay recorded events with a candidate: a policy, a helper or a whole `.cupcake`, against what was accepted."""

import os
from collections.abc import Callable, Iterable

from anyplug.model.errors import UsageError
from anyplug.policy import policy_files
from anyplug.policy.authoring import event_replay
from anyplug.policy.authoring.event_replay import Replayed
from anyplug.policy.authoring.project_policies import ProjectPolicies
from anyplug.policy.event_log import Recorded

WHOLE = "`anyplug policy replay FOLDER` takes a whole .cupcake, with its helpers and rulebook"

Events = Callable[[], Iterable[Recorded]]


def replay_folder(place: ProjectPolicies, given: str, recorded: Events) -> tuple[Replayed, list[str]]:
    """Compare all of a folder, with its helpers and rulebook, to what was accepted here. Raises RegoErrors."""
    root = policy_files.of_policy_dir(given)
    if not os.path.isdir(root):
        raise UsageError(f"there is no .cupcake in or around {given}", "name the folder that has one")
    names, found, changed = place.harnesses(root), [], dict[str, None]()
    for harness in names:
        old, new = place.accepted(harness), policy_files.read(root, harness, origin=place.root)
        changed.update(dict.fromkeys(event_replay.differing(old, new)))
        before, after = place.trial_of(old, harness), place.trial_of(new, harness)
        found.append(event_replay.replay(recorded(), place.root, before, after))
    said = f"{os.path.relpath(root)} was compared with the policies that you accepted last"
    return _together(found), [f"{said}, for events of {', '.join(names)} in this project", _changed(changed)]


def replay_file(place: ProjectPolicies, given: str, text: str, recorded: Events) -> tuple[Replayed, list[str]]:
    """Compare the files as they are, with a policy or helper replaced, to what was accepted. Raises RegoErrors."""
    path = os.path.abspath(given)
    if path.endswith((".yml", ".yaml")):
        raise UsageError(f"{given} is not a policy", WHOLE)
    harness = place.harness(path)
    try:
        candidate = event_replay.candidate(path, text, place.trial_here(harness))
    except event_replay.NoCandidate as error:
        raise UsageError(f"{given} cannot be replayed: {error}", WHOLE) from error
    stands = f"in place of {', '.join(candidate.replaces)}" if candidate.replaces else "next to the others"
    if candidate.is_own:
        now = place.trial_here(harness)

        def other(root: str) -> event_replay.Pair:
            there = place.trial(harness, root)
            return there, candidate.tried(there)

        done = event_replay.replay(recorded(), place.root, now, candidate.tried(now), other)
        return done, [f"the candidate was used {stands}, for events of {harness} in all projects"]
    names = place.harnesses() if candidate.is_shared else [harness]
    found, changed = [], dict[str, None]()
    for name in names:
        old, now = place.accepted(name), place.trial_here(name)
        changed.update(dict.fromkeys(event_replay.differing(old, now.loaded.source)))
        found.append(event_replay.replay(recorded(), place.root, place.trial_of(old, name), candidate.tried(now)))
    said = f"the candidate was used {stands}, for events of {', '.join(names)} in this project"
    return _together(found), [said, *([_changed(changed)] if changed else [])]


def _changed(names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"differs from what you accepted: {listed}" if listed else "it is the same as what you accepted"


def _together(found: list[Replayed]) -> Replayed:
    """Join the results for several agents."""
    changes = sorted((change for one in found for change in one.changes), key=lambda change: change.at)
    elsewhere = found[0].elsewhere - sum(one.events for one in found[1:]) if found else 0
    return Replayed(events=sum(one.events for one in found), elsewhere=elsewhere, changes=tuple(changes))
