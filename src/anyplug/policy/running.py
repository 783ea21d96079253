"""Running signals for an event: by the host's own runner, or by one that is made for it and ends with it."""

import os
from collections.abc import Sequence

from anyplug.policy import signals
from anyplug.policy.events import Event
from anyplug.policy.rulebook import Signal
from anyplug.policy.signals import Answers
from anyplug.policy.sources import Source
from anyplug.runtime import process
from anyplug.runtime.guard import Guard
from anyplug.runtime.program import Finished, Program, Run
from anyplug.runtime.runner import Runner
from anyplug.runtime.spawn import DirectSpawn


async def ask(
    wanted: Sequence[tuple[Source, Signal]], event: Event, environment: dict[str, str] | None, run: Run | None
) -> Answers:
    """Run signals, those of a project in its folder, those of the person's own policies in the event's."""
    given = dict(os.environ) if environment is None else environment
    if run is not None:
        marks = run.environment if isinstance(run, Runner) else {}
        return await _ask(wanted, event, {**given, **marks}, run)
    guard = Guard()
    spawn = DirectSpawn(guard)

    async def directly(program: Program) -> Finished:
        return await process.run(program, spawn)

    try:
        return await _ask(wanted, event, {**given, **guard.environment}, directly)
    finally:
        guard.close()


async def _ask(wanted: Sequence[tuple[Source, Signal]], event: Event, environment: dict[str, str], run: Run) -> Answers:
    values: dict[str, object] = {}
    troubles: dict[str, str] = {}
    folders: dict[str, list[Signal]] = {}
    for source, signal in wanted:
        folder = source.project if not source.is_global else event.cwd
        folders.setdefault(folder if os.path.isdir(folder) else source.root, []).append(signal)
    for folder, some in folders.items():
        answered = await signals.ask(some, event.document, folder, environment, run)
        values |= answered.values
        troubles |= answered.troubles
    return Answers(values, troubles)
