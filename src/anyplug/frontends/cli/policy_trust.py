"""`policy trust`: a person accepts a project's policies as they are, with the commands that these run."""

import difflib
import os
from collections.abc import Iterator

from anyplug.errors import ConfigError, StoreError
from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.session import Session, refuse
from anyplug.policy import accepted, sources
from anyplug.policy.decisions import CONTEXT
from anyplug.policy.engine import project_set
from anyplug.policy.events import HARNESSES
from anyplug.policy.paths import FOLDER, find
from anyplug.policy.reach import parts
from anyplug.policy.rego import RegoErrors
from anyplug.policy.rego.parser import parse_module
from anyplug.policy.sources import Source
from anyplug.settings import find_home

MOST_LINES = 400  # of differences that are shown
SANDBOX = "in a sandbox: they can read your files, write to this folder and run programs, without the network"


class Project:
    """A project's policies, and what was accepted of them."""

    def __init__(self, home: str, root: str) -> None:
        self.home, self.root = home, root
        self.folder = os.path.dirname(root)
        self.is_there = os.path.isdir(root)
        self.record = accepted.record_of(home, self.folder)
        self.sources = {name: sources.read(root, name) for name in HARNESSES}

    @property
    def is_same(self) -> bool:
        """Whether the files are those that were accepted."""
        known = self.record.digests if self.record is not None else {}
        return self.is_there and all(known.get(name) == accepted.digest(one) for name, one in self.sources.items())

    @property
    def is_trusted(self) -> bool:
        """Whether nothing is left to accept."""
        return self.is_same and self.record is not None and self.record.trusted

    @property
    def commands(self) -> dict[str, str]:
        """The commands that policies run, by the name of what runs them."""
        return {name: text for source in self.sources.values() for name, text in accepted.commands(source).items()}

    @property
    def changing(self) -> list[str]:
        """The files with rules that change calls, or that tell the model something."""
        return list(dict.fromkeys(file for source in self.sources.values() for file in _changing(source)))

    def check(self) -> None:
        """Raise ConfigError if the policies cannot be used: what is broken cannot be accepted."""
        for name, source in self.sources.items():
            if os.path.isdir(os.path.join(self.root, "policies", name)):
                try:
                    project_set(source, name)
                except RegoErrors as error:
                    raise ConfigError(
                        f"these policies cannot be used, so they cannot be accepted:\n{error}",
                        "`anyplug policy validate` lists everything that is wrong",
                    ) from error


def trust(session: Session) -> int:
    """Show what a project's policies do, and accept them."""
    options = session.options
    home = find_home(options.home).path
    start = os.path.abspath(options.what or options.policy_dir or ".")
    root = find(start, home)
    if root is None:
        raise ConfigError(f"there is no {FOLDER} in {start} nor above it", "`anyplug policy init` makes one")
    project = Project(home, root)
    if options.revoke:
        _keep(project, trusted=False)
        print(f"{render.line(project.folder)} is not trusted any more: its commands do not run")
        return 0
    if project.is_there:
        project.check()
    if not project.is_trusted or options.allow_unconfined:
        if not options.json:
            _show(project)
        if not options.yes and not terminal.can_ask():
            refuse("trust needs your answer, and this is not a terminal", f"`{accepted.TRUST} --yes` answers it")
        if not options.yes and not session.confirm("Accept these policies?"):
            refuse("nothing was accepted", f"`{accepted.TRUST}` asks again")
        _keep(project, trusted=True, unconfined=options.allow_unconfined)
    if options.json:
        session.print_json({"project": project.folder, "trusted": project.is_there, "commands": project.commands})
    elif project.is_there:
        print(f"{render.line(project.folder)} is trusted, with its policies as they are now")
    else:
        print(f"{render.line(project.folder)} has no policies any more")
    return 0


def offer(session: Session, root: str) -> None:
    """Ask at once whether a project is trusted, where somebody can be asked; else say how."""
    home = find_home(session.options.home).path
    project = Project(home, root)
    if project.is_trusted or not project.is_there:
        return
    try:
        project.check()
    except ConfigError:
        return  # whoever connects is told so anyway
    if terminal.can_ask() and not session.options.json:
        _show(project)
        if session.confirm("Accept these policies?"):
            _keep(project, trusted=True)
            return
    remind(session, root)


def accept_own(session: Session, root: str) -> None:
    """Accept what this program has just written into an empty place, as the person asked it to."""
    _keep(Project(find_home(session.options.home).path, root), trusted=True)


def remind(session: Session, root: str = "") -> None:
    """Say what of a project's policies waits for a person's word."""
    home = find_home(session.options.home).path
    found = root or find(os.path.abspath(session.options.policy_dir or "."), home)
    project = Project(home, found) if found is not None else None
    if project is None or project.is_trusted:
        return
    if project.record is not None and not project.is_same:
        session.note(f"changed policies wait for `{accepted.TRUST}`: until then they can forbid more, not allow more")
    elif project.commands or project.changing:
        session.note(f"commands, changes of calls and context wait for `{accepted.TRUST}`")


def _keep(project: Project, *, trusted: bool, unconfined: bool = False) -> None:
    try:
        if project.is_there:
            accepted.accept(project.home, project.root, trusted=trusted, unconfined=unconfined)
        else:
            accepted.forget(project.home, project.folder)
    except OSError as error:
        raise StoreError(
            f"cannot keep what you accepted in {project.home}: {error.strerror}", "check the folder's permissions"
        ) from error


def _show(project: Project) -> None:
    terminal.say(f"policies in {project.root}" + ("" if project.is_there else ", which is gone"))
    if commands := project.commands:
        terminal.say(f"commands that they run, {SANDBOX}:")
        for name, text in commands.items():
            terminal.say(_indented(f"{name}: {text}"))
    if project.changing:
        terminal.say("rules that change calls, or that tell the model something:")
        for file in project.changing:
            terminal.say(f"  {file}")
    if project.record is not None and not project.is_same:
        lines = list(_differences(project))
        terminal.say("changed since you accepted them:" if project.record.trusted else "changed since the first use:")
        for line in lines[:MOST_LINES]:
            terminal.say(f"  {line}")
        if len(lines) > MOST_LINES:
            terminal.say(f"  … and {len(lines) - MOST_LINES} more lines")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if at == 0 else f"    {line}" for at, line in enumerate(text.splitlines()))


def _differences(project: Project) -> Iterator[str]:
    held = accepted.held_root(project.home, project.folder)
    old = {name: sources.read(held, name, origin=project.root) for name in HARNESSES}
    before = {os.path.relpath(path, held) for source in old.values() for path in source.stamps if os.path.isfile(path)}
    after = {
        os.path.relpath(path, project.root)
        for source in project.sources.values()
        for path in source.stamps
        if os.path.isfile(path)
    }
    for name in sorted(before | after):
        shown = os.path.join(FOLDER, name)
        yield from difflib.unified_diff(
            _lines(os.path.join(held, name)), _lines(os.path.join(project.root, name)), shown, shown, lineterm="", n=1
        )


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(sources.LARGEST_FILE).splitlines()
    except OSError:
        return []


def _changing(source: Source) -> Iterator[str]:
    for file, text in source.policies.items():
        try:
            verbs = {part.verb for part in parts(parse_module(file, text))}
        except RegoErrors:
            continue
        if verbs & {"modify", CONTEXT}:
            yield file
