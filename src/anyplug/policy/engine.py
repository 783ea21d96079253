"""The engine: find the policies that apply to an event, keep them compiled, and decide.

    engine = Engine(home)
    outcome = await engine.evaluate("opencode", event)

Policies are read once, and again when their files change. After a broken edit the last good set decides, or what a
person accepted, and the outcome says so; if there is neither, `NoPolicies` is raised, and the caller must refuse.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from anyplug.home.location import state_path
from anyplug.home.private_cache import PrivateCache
from anyplug.home.settings import binding_places
from anyplug.model.errors import StoreError
from anyplug.policy import accepted_copies, policy_files, policy_folders, stored_sets
from anyplug.policy.accepted_copies import Acceptance
from anyplug.policy.agent_events import AGENTS, OURS, POLICIES_OF, BadEvent, with_input
from anyplug.policy.agent_events import read as read_event
from anyplug.policy.evaluation import Inquiry, Kept, Loaded, Options, Outcome
from anyplug.policy.paths import FOLDER, HOME_FOLDER, is_within, may_be_there, one_look, real
from anyplug.policy.policy_files import Source
from anyplug.policy.policy_folders import CupcakeCopy
from anyplug.policy.policy_set import PolicySet
from anyplug.policy.shell import reading_time
from anyplug.rego.values.rego_errors import Fault, Location, RegoErrors

if TYPE_CHECKING:
    from anyplug.policy.signals import RunSignal

LOOK_S: Final = 0.25  # between checks of the files: a stat for each, and nobody edits faster
MOST_KEPT: Final = 16  # places
MOST_FOLDERS: Final = 256  # whose places are cached for a moment
USUAL: Final = Options()
NO_FILE: Final = "policy_missing"
MENDED: Final = "`anyplug policy validate` shows what is wrong with the policies"


class NoPolicies(Exception):
    """There are no policies, or no valid ones, to decide with.

    `lines` tell why, with file and line; `hint` tells what to do.
    """

    def __init__(self, lines: Sequence[str], hint: str = MENDED) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)
        self.hint = hint


class Engine:
    """Decides about events. Holds policies of several projects; for use in one event loop."""

    def __init__(
        self,
        home: str = "",
        *,
        look_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
        run: "RunSignal | None" = None,
        self_protection: bool = True,
        signals: bool = True,
    ) -> None:
        """`home` is our own folder, which self-protection guards against agents; `run` runs signals, if these may run.

        With `home`, a copy of every project's policies is kept there, and also decides until a change is accepted.
        """
        self._home = os.path.realpath(home) if home else ""
        self._look_s = look_s
        self._clock = clock
        self._run = run
        self._self_protection = self_protection
        self._signals = signals
        self._places: dict[
            str, tuple[list[CupcakeCopy], float]
        ] = {}  # by folder: where its policies are, and since when
        self._cache = PrivateCache(os.path.join(self._home, stored_sets.FOLDER)) if home else None
        self._kept: OrderedDict[tuple[CupcakeCopy, str, str], Kept] = OrderedDict()

    async def evaluate(self, harness: str, given: Any, options: Options = USUAL) -> Outcome:
        """Decide about an event. Raises BadEvent if it is invalid, NoPolicies if nothing can be decided.

        Raises TooSlow for a command that takes too long to read: it must be refused, whatever else fails open.
        """
        inquiry = self.inquire(harness, given, options)
        return inquiry.decided(await inquiry.ask_signals() if inquiry.has_signals else None)

    @reading_time.limited()
    def inquire(self, harness: str, given: Any, options: Options = USUAL) -> Inquiry:
        """Determine what an event is about; raises as `evaluate` does."""
        if harness not in AGENTS:
            raise BadEvent(f"events of {harness!r} are not supported; the agents are {', '.join(AGENTS)}")
        agent, harness = harness, POLICIES_OF.get(harness, harness)
        with one_look():
            event = read_event(agent, given)
            nearest, *others = self.places_of(event.cwd, harness, options)
            kept = self.place(harness, nearest, self.global_root(options, harness))
            outer = [self.place(harness, place) for place in others if harness == OURS or place.has(harness)]
            protected = self.protected(nearest.root, options.global_config)
            inquiry = Inquiry(event, kept, options, protected, self._run, signals=self._signals, outer=outer)
        inquiry.changed = lambda arguments: self.inquire(agent, with_input(given, arguments), options)
        inquiry.used_s = reading_time.used_s()
        return inquiry

    def places_of(self, cwd: str, harness: str, options: Options = USUAL) -> list[CupcakeCopy]:
        """Find the policies that apply to an event, the nearest first. Raises NoPolicies if there are none."""
        if options.policy_dir:
            root = policy_files.of_policy_dir(os.path.join(options.cwd or os.getcwd(), options.policy_dir))
            return policy_folders.of(root, self._home)
        found = self._found(cwd) if os.path.isabs(cwd) else []
        here = options.cwd or os.getcwd()
        found = found or self._found(here)
        if not found:
            root = os.path.join(here, cwd, FOLDER)
            if harness != OURS and (may_be_there(root) or not self._may_have_own(harness, options)):
                said = f"there is no {FOLDER} in {cwd or '.'} or a parent folder"
                raise NoPolicies([said], f"create one with `anyplug policy init --harness {harness}`")
            found = policy_folders.of(root, self._home)
        return found

    def _may_have_own(self, harness: str, options: Options) -> bool:
        """Return whether the user has policies for all projects, judging by the folder."""
        own = self.global_root(options, harness)
        names = (os.path.join("policies", harness), *policy_files.RULEBOOKS)
        return any(may_be_there(os.path.join(own, name)) for name in names)

    def _found(self, cwd: str) -> list[CupcakeCopy]:
        """Search upwards from a folder, no more often than the files are checked."""
        now = self._clock()
        known = self._places.get(cwd)
        if known is None or now - known[1] >= self._look_s:
            if len(self._places) >= MOST_FOLDERS:
                self._places.clear()
            known = self._places[cwd] = (policy_folders.around(cwd, self._home), now)
        return known[0]

    def place(self, harness: str, place: CupcakeCopy, whole: str = "") -> Kept:
        """Return the present policies of a place, with the user's own in `whole`. Raises NoPolicies."""
        key = (place, harness, whole)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = Kept()
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        now = self._clock()
        if not kept.stamps or now - kept.looked >= self._look_s:
            kept.looked = now
            if not kept.stamps or not all(source.is_fresh for source in kept.stamps):
                self._load(kept, place, harness, whole)
        if kept.loaded is None:
            raise NoPolicies(kept.trouble)
        return kept

    def _load(self, kept: Kept, place: CupcakeCopy, harness: str, whole_root: str) -> None:
        """Read a place; if it is now invalid, keep the previous state, or else what a person accepted."""
        home = self._home
        source = policy_files.read(place.root, harness, cache=self._cache)
        whole = policy_files.read_own(whole_root, harness, self._cache) if whole_root else None
        acceptance = accepted_copies.look(place.copy, source, harness)
        kept.stamps = [source, acceptance, *([] if whole is None else [whole])]
        is_own_trusted = True
        # Only people write in our home.
        if whole is not None and home and not is_within(os.path.realpath(whole_root), home):
            trusted = accepted_copies.look_own(home, whole, harness)
            kept.stamps.append(trusted)
            is_own_trusted = trusted.is_trusted
        is_lost = place.is_lost and acceptance.record is None
        kept.trouble = ()
        try:
            loaded = build(source, whole, harness, acceptance, is_lost=is_lost, cache=self._cache)
        except RegoErrors as error:
            kept.trouble = tuple(map(str, error.faults))
            if kept.loaded is not None:
                return
            try:
                loaded = build(source, whole, harness, acceptance, is_lost=is_lost, is_broken=True, cache=self._cache)
            except RegoErrors:
                return
        else:
            if place.copy and acceptance.record is None and not is_lost and source.has_policies:
                try:
                    accepted_copies.accept(home, place.root, trusted=False)
                except (OSError, StoreError):  # a home that is not writable stores nothing, and policies still decide
                    pass
        kept.loaded = msgspec.structs.replace(loaded, is_own_trusted=is_own_trusted)
        kept.decisions.clear()

    def protected(self, root: str, global_config: str = "") -> list[str] | None:
        """Return the folders that agents may not change; None if they may."""
        if not self._self_protection:
            return None
        # For each event again, since links may have changed; the user's own folders need not exist yet.
        found = [root, *filter(os.path.lexists, binding_places(os.path.dirname(root)))]
        found += [
            policy_files.global_folder(),
            os.path.expanduser("~/.config/cupcake"),
            os.path.expanduser(state_path()),
        ]
        found += filter(None, (self._home, global_config))
        return list(dict.fromkeys(map(real, found)))

    def global_root(self, options: Options, harness: str) -> str:
        """Return the folder of the user's own policies. Raises NoPolicies if the given one does not exist."""
        if options.global_config:
            if not os.path.isabs(options.global_config) or not os.path.isdir(options.global_config):
                said = f"--global-config {options.global_config}: the folder does not exist"
                raise NoPolicies([said], "pass the full path of an existing folder")
            return options.global_config
        return os.path.join(self._home, HOME_FOLDER) if harness == OURS and self._home else policy_files.global_folder()


def build(
    source: Source,
    whole: Source | None,
    harness: str,
    acceptance: Acceptance | None = None,
    *,
    is_lost: bool = False,
    is_broken: bool = False,
    cache: PrivateCache | None = None,
) -> Loaded:
    """Compile what was read; without an `acceptance` everything counts. Raises RegoErrors with every fault.

    `is_lost`: the accepted copy is gone, and everything is refused. `is_broken`: the files are invalid, and the
    accepted copy decides alone.
    """
    faults: list[Fault] = []
    project = outer = held = None
    copy = acceptance.source if acceptance is not None else None
    try:
        outer = None if whole is None else own_set(whole, harness, cache)
    except RegoErrors as error:
        faults += error.faults
    try:
        if copy is not None:
            held = PolicySet(copy.policies, copy.shared, needs_evaluate=False, faults=copy.faults, cache=cache)
    except RegoErrors as error:
        faults += error.faults
    is_gone = source.stamps.get(source.root, 0) is None and copy is not None
    has_own = whole is not None and whole.has_policies
    try:
        project = project_set(source, harness, has_own=has_own or is_gone, cache=cache)
    except RegoErrors as error:
        if is_lost or (is_broken and held is not None):
            project = PolicySet({}, {}, needs_evaluate=False)
        else:
            faults = [*error.faults, *faults]
    if project is None or faults:
        raise RegoErrors(faults)
    return Loaded(
        source=source,
        project=project,
        whole=outer,
        whole_source=whole,
        held=held,
        acceptance=acceptance,
        is_lost=is_lost,
        builtin_config={**source.builtin_config, **(whole.builtin_config if whole else {})},
    )


def project_set(source: Source, harness: str, *, has_own: bool = False, cache: PrivateCache | None = None) -> PolicySet:
    """Compile a project's policies. Raises RegoErrors, also if there are none where agents expect some.

    `has_own`: the user has policies for all projects, which decide alone in a project without any.
    """
    faults = list(source.faults)
    folder = os.path.join(source.root, "policies", harness)
    is_bare = has_own and source.stamps.get(source.root, 0) is None
    if harness != OURS and source.stamps.get(folder, 0) is None and not is_bare:
        where = Location(os.path.join(FOLDER, "policies", harness), 1, 1)
        message = f"the folder does not exist; create it with `anyplug policy init --harness {harness}`"
        faults.append(Fault(where, NO_FILE, message))
    return PolicySet(source.policies, source.shared, needs_evaluate=harness != OURS, faults=faults, cache=cache)


def own_set(whole: Source, harness: str, cache: PrivateCache | None = None) -> PolicySet | None:
    """Compile the user's own policies; None if there are none. Raises RegoErrors."""
    if not whole.has_policies:
        return None
    return PolicySet(
        whole.policies,
        whole.shared,
        is_global=True,
        needs_evaluate=harness != OURS,
        faults=whole.faults,
        cache=cache,
    )
