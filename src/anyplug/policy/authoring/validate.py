"""Check everything in force in a place: what makes policies invalid, and what has no effect there."""

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from anyplug.policy import policy_files, routing
from anyplug.policy.agent_events import ELSEWHERE, EVENTS, HARNESSES, OURS
from anyplug.policy.authoring import policy_lint
from anyplug.policy.authoring.policy_lint import NOT_ASKED, Remark
from anyplug.policy.engine import NO_FILE, Engine, own_set, project_set
from anyplug.policy.evaluation import Options
from anyplug.policy.paths import HOME_FOLDER
from anyplug.policy.policy_files import Source
from anyplug.policy.policy_set import PolicySet
from anyplug.policy.routing import Policy
from anyplug.rego import Fault, RegoErrors
from anyplug.rego.parse.modules import parse_module

# What the shell itself knows.
SHELL_WORDS: Final = frozenset(
    {
        ":", ".", "cd", "command", "eval", "exec", "exit", "export", "for", "if", "kill", "read", "set", "test", "trap",
        "umask", "unset", "until", "while", "case", "type", "ulimit", "wait", "echo", "printf", "true", "false",
    }
)  # fmt: skip


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in force for one agent, and its folder."""

    harness: str
    place: str
    policy: Policy

    @property
    def shape(self) -> dict[str, Any]:
        """Its JSON form."""
        policy = self.policy
        return {
            "harness": self.harness,
            "place": self.place,
            "file": policy.file,
            "package": policy.name,
            "title": policy.title,
            "events": sorted(policy.route.events),
            "tools": sorted({*policy.route.tools, *policy.route.patterns}),
            "signals": list(policy.route.signals),
            "verbs": list(dict.fromkeys(part.verb for part in policy.parts)),
        }


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, and the policies in force if none of them is an error."""

    remarks: tuple[Remark, ...]
    held: tuple[Held, ...]

    @property
    def places(self) -> list[dict[str, Any]]:
        """How many policies there are for each agent in each place."""
        counts = Counter((held.harness, held.place) for held in self.held)
        return [{"harness": harness, "place": place, "policies": count} for (harness, place), count in counts.items()]

    @property
    def is_valid(self) -> bool:
        """Whether the policies are valid."""
        return not any(remark.level == "error" for remark in self.remarks)


def own(engine: Engine, harness: str, options: Options) -> Source:
    """Read the user's own policies for an agent. Raises NoPolicies for a missing folder."""
    return policy_files.read_own(engine.global_root(options, harness), harness)


def harnesses(engine: Engine, root: str, options: Options) -> list[str]:
    """List the agents with policies in a project, or among the user's own. Raises as `own` does."""
    return [
        name
        for name in HARNESSES
        if os.path.isdir(os.path.join(root, "policies", name)) or own(engine, name, options).has_policies
    ]


def check(engine: Engine, root: str, options: Options, harness: str = "") -> Checked:
    """Check the policies of one agent, or of all that have any. Raises as `own` does."""
    remarks: list[Remark] = []
    held: list[Held] = []
    for name in [harness] if harness else harnesses(engine, root, options) or [HARNESSES[0]]:
        whole = own(engine, name, options)
        for source in (policy_files.read(root, name), whole):
            remarks += _of_source(source, name)
            try:
                compiled = _compiled(source, name, has_own=whole.has_policies)
            except RegoErrors as error:
                # With policies for all projects, not every agent needs some in this one.
                is_asked = bool(harness) or not whole.has_policies
                remarks += [_of_fault(fault, name, is_asked=is_asked) for fault in error.faults]
                continue
            policies = compiled.policies if compiled is not None else ()
            remarks += [remark for policy in policies for remark in _of_route(policy, source, name)]
            held += [Held(harness=name, place=source.root, policy=policy) for policy in policies]
    remarks.sort(key=lambda remark: remark.level)
    return Checked(remarks=tuple(dict.fromkeys(remarks)), held=tuple(held))


def _compiled(source: Source, harness: str, *, has_own: bool) -> PolicySet | None:
    return own_set(source, harness) if source.is_global else project_set(source, harness, has_own=has_own)


def _of_fault(fault: Fault, harness: str, *, is_asked: bool) -> Remark:
    level, message = "error", fault.message
    if fault.code == NO_FILE and fault.where.file.endswith(harness) and not is_asked:
        level, message = "warning", f"every event of {harness} is refused in this project: {message}"
    return Remark(level=level, file=fault.where.file, row=fault.where.row, code=fault.code, message=message)


def _of_source(source: Source, harness: str) -> Iterator[Remark]:
    for said in source.warnings:
        yield Remark(level="warning", file=said.where.file, row=said.where.row, code=said.code, message=said.message)
    for file, text in source.policies.items():
        if file.startswith("builtin/"):
            continue
        try:
            module = parse_module(file, text)
        except RegoErrors:
            continue  # compiling reports it
        yield from policy_lint.find(file, module, harness)
    if not source.is_global or harness != OURS:
        yield from _stray(source)


def _of_route(policy: Policy, source: Source, harness: str) -> Iterator[Remark]:
    for event in routing.unknown_events(policy.route):
        message = f"no agent sends {event}, so {NOT_ASKED}"
        yield Remark(level="warning", file=policy.file, row=1, code="unknown_event", message=message)
    if not policy.builtin and not policy.route.events & EVENTS[harness] and not routing.unknown_events(policy.route):
        message = f"{harness} sends none of {', '.join(sorted(policy.route.events))}, so {NOT_ASKED}"
        yield Remark(level="warning", file=policy.file, row=1, code="unknown_event", message=message)
    for name in policy.route.signals:
        if name in source.signals and (lacks := _missing(source.signals[name].command, source.project)):
            message = f"the signal `{name}` cannot be run, so this policy refuses: {lacks}"
            yield Remark(level="warning", file=policy.file, row=1, code="signal_cannot_run", message=message)
        if name not in source.signals:
            message = f"the rulebook has no signal `{name}`: every event of this policy is refused"
            yield Remark(level="error", file=policy.file, row=1, code="unknown_signal", message=message)


def _missing(command: str, project: str) -> str:
    """Return why a command cannot be run, as far as its first word shows."""
    try:
        words = shlex.split(command)
    except ValueError:
        return "its quotes do not match"
    if not words:
        return "its command is empty"
    first = words[0]
    if any(char in first for char in "$`=(){}[]!;&|<>*?~") or first in SHELL_WORDS:
        return ""
    if os.sep not in first:
        return "" if shutil.which(first) else f"the program `{first}` is not installed"
    path = os.path.join(project, first)
    if not os.path.exists(path):
        return f"{path} does not exist"
    return "" if os.access(path, os.X_OK) else f"{path} is not executable"


def _stray(source: Source) -> Iterator[Remark]:
    """Find policies in folders that are not read."""
    folder = os.path.join(source.root, "policies")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        why = ""
        if name.endswith(".rego"):
            why = f"it is not in an agent's folder ({', '.join(HARNESSES)}), so it is never evaluated"
        elif not os.path.isdir(path):
            continue
        elif name in ELSEWHERE:
            why = f"events of {name} are not answered here"
        elif name not in HARNESSES:
            why = f"no agent is called {name}; the agents are {', '.join(HARNESSES)}"
        elif name == OURS and source.is_global:
            why = f"policies for plugins in all projects belong in the folder `{HOME_FOLDER}` of anyplug's home"
        if why:
            shown = path if source.is_global else os.path.relpath(path, source.project)
            yield Remark(level="warning", file=shown, row=1, code="nobody_asks", message=why)
