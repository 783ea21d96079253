"""The policies of a project and the user's own, for people who check, try and replay them."""

import os
from typing import Any

from anyplug.model.errors import ConfigError
from anyplug.policy import accepted_copies, policy_files
from anyplug.policy.agent_events import HARNESSES, OURS, Event
from anyplug.policy.authoring import examples, validate
from anyplug.policy.authoring.trial import Trial, completed, in_force, of_place
from anyplug.policy.authoring.validate import Checked
from anyplug.policy.decisions import Decision
from anyplug.policy.engine import Engine, NoPolicies
from anyplug.policy.evaluation import Options
from anyplug.policy.paths import FOLDER, find, is_within
from anyplug.policy.policy_files import Source
from anyplug.rego import RegoErrors

VALIDATE = "`anyplug policy validate` lists the problems"


class ProjectPolicies:
    """A project's `.cupcake`, which may be missing if the user has policies for all projects."""

    def __init__(
        self,
        home: str,
        folder: str,
        *,
        about: str = "",
        harness: str = "",
        policy_dir: str = "",
        global_config: str = "",
        self_protection: bool = True,
    ) -> None:
        """Find it, around the file or folder that a person asks `about`, or else around a folder.

        Raises ConfigError if there are no policies.
        """
        self._harness = harness
        self._home = home
        self._options = Options(global_config=global_config)
        self.engine = Engine(self._home, self_protection=self_protection)
        if policy_dir:
            found: str | None = policy_files.of_policy_dir(policy_dir)
        else:
            found = (_around(about) if about else None) or find(folder)
        self.root = found or os.path.join(folder, FOLDER)
        try:
            self.own = {name: validate.own(self.engine, name, self._options) for name in HARNESSES}
        except NoPolicies as error:
            raise ConfigError(str(error), error.hint) from error
        self.is_there = os.path.isdir(self.root)
        if not self.is_there and policy_dir:
            raise ConfigError(f"there is no {FOLDER} in or around {policy_dir}", "`anyplug policy init` creates one")
        if not self.is_there and not any(own.has_policies for own in self.own.values()):
            raise ConfigError(f"there is no {FOLDER} here or in a parent folder", "`anyplug policy init` creates one")

    @property
    def folder(self) -> str:
        """The project's folder."""
        return os.path.dirname(self.root)

    def checked(self) -> Checked:
        """Check everything that is in force."""
        return validate.check(self.engine, self.root, self._options, self._harness)

    def harness(self, path: str = "") -> str:
        """Return whose events a file is for: as the user says, by its folder, or the only agent with policies here."""
        if self._harness:
            return self._harness
        roots = [self.root, *(own.root for name, own in self.own.items() if name != OURS)]
        said = next((name for root in roots if path and (name := examples.harness_of(path, root))), "")
        if not said and path and is_within(os.path.realpath(path), os.path.realpath(self.own[OURS].root)):
            said = OURS
        return said or next(iter(validate.harnesses(self.engine, self.root, self._options)), HARNESSES[0])

    def is_own(self, path: str) -> bool:
        """Return whether a file is among the user's own policies."""
        return any(is_within(os.path.realpath(path), os.path.realpath(own.root)) for own in self.own.values())

    def trial(self, harness: str, root: str = "") -> Trial:
        """Return a trial of what is in force, here or elsewhere. Raises RegoErrors."""
        return of_place(self.engine, root or self.root, harness, self._options)

    def accepted(self, harness: str) -> Source:
        """Return the project's policies as they were accepted last, or as they are if nothing was accepted."""
        source = policy_files.read(self.root, harness)
        copy = accepted_copies.copy_of(self._home, self.folder)
        is_known = accepted_copies.record_of(self._home, self.folder) is not None
        return (accepted_copies.look(copy, source, harness).source if is_known else None) or source

    def harnesses(self, *roots: str) -> list[str]:
        """List the agents that a change of the whole place concerns: the given one, or all with policies there."""
        found = [
            name
            for name in HARNESSES
            if any(os.path.isdir(os.path.join(root, "policies", name)) for root in (self.root, *roots))
        ]
        return [self._harness] if self._harness else found

    def trial_of(self, source: Source, harness: str) -> Trial:
        """Return a trial of other policies of this project, along with the user's own. Raises RegoErrors."""
        return Trial(source, harness, self.own[harness], self.engine.protected(self.root))

    def trial_here(self, harness: str) -> Trial:
        """Return a trial of what is in force here. Raises ConfigError."""
        try:
            return self.trial(harness)
        except RegoErrors as error:
            raise unusable(error) from error

    def in_force(self, event: Event, given: dict[str, Any], signals: dict[str, Any] | None) -> Decision | None:
        """Decide about an event as `anyplug eval` does now; None if there is no accepted copy that also decides."""
        if accepted_copies.record_of(self._home, self.folder) is None:
            return None
        whole = completed(given, self.folder, event.harness)
        try:
            return in_force(self.engine, self.root, event, whole, signals, self._options)
        except NoPolicies as error:
            raise ConfigError(str(error), error.hint) from error

    def trial_alone(self, harness: str, *, is_own: bool) -> Trial:
        """Return a trial of the project's policies without the user's, or vice versa. Raises ConfigError."""
        nothing = Source(root=self.root, stamps={self.root: None})
        try:
            return Trial(
                nothing if is_own else policy_files.read(self.root, harness),
                harness,
                self.own[harness] if is_own else None,
                self.engine.protected(self.root),
            )
        except RegoErrors as error:
            raise unusable(error) from error


def _around(path: str) -> str | None:
    """Return the `.cupcake` that a file or folder is part of; of a folder that has one, that one."""
    inside = os.path.abspath(path) + os.sep
    if (at := inside.rfind(f"{os.sep}{FOLDER}{os.sep}")) >= 0:
        return inside[: at + 1] + FOLDER
    return find(path)


def unusable(error: Exception) -> ConfigError:
    """Return an error that explains why policies are invalid."""
    return ConfigError(f"the policies are invalid:\n{error}", VALIDATE)
