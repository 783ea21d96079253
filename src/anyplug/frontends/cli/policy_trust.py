"""`policy trust`: accept policies as they are, with the commands that they run.

The files are read once, and exactly what is shown is accepted: files that change in the meantime are shown again.
"""

import difflib
import os
from collections.abc import Iterator

from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.cli_run import Session, refuse
from anyplug.home.settings import find_home
from anyplug.model.errors import ConfigError, StoreError
from anyplug.policy import accepted_copies, policy_files, policy_folders
from anyplug.policy.decisions import CONTEXT
from anyplug.policy.engine import own_set, project_set
from anyplug.policy.paths import FOLDER
from anyplug.policy.policy_files import Source
from anyplug.policy.reach import parts
from anyplug.rego import RegoErrors
from anyplug.rego.parse.modules import parse_module

SANDBOX = "in a sandbox: they can read your files, write to this folder and run programs, without the network"
UNCONFINED = "without a sandbox, since these policies are your own"
CHANGED = "the files have changed since they were shown, so nothing was accepted"
QUESTION = "Accept these policies?"


class ReadPolicies:
    """A project's policies or the user's own, as read once, and what was accepted of them."""

    def __init__(self, home: str, root: str, *, is_own: bool = False) -> None:
        """Read them. Raises ConfigError if their files keep changing."""
        self.home, self.root, self.is_own = home, root, is_own
        try:
            self.reading = accepted_copies.read(root, is_own=is_own)
        except OSError as error:
            raise ConfigError(f"{root}: {error.strerror}", "stop what changes them, then try again") from error
        self.folder = self.reading.project
        self.is_there = self.reading.is_there
        self.record = accepted_copies.record_of(home, self.folder)

    @property
    def is_same(self) -> bool:
        """Whether the files are those that were accepted."""
        known = self.record.digests if self.record is not None else {}
        return self.is_there and known == self.reading.digests

    @property
    def is_trusted(self) -> bool:
        """Whether nothing is left to accept."""
        return self.is_same and self.record is not None and self.record.trusted

    @property
    def command(self) -> str:
        """The command that accepts them."""
        return f"{accepted_copies.TRUST} --global" if self.is_own else accepted_copies.TRUST

    @property
    def commands(self) -> dict[str, str]:
        """The commands that policies run, by the name of what runs them."""
        found = self.reading.sources.values()
        return {name: text for source in found for name, text in accepted_copies.commands(source).items()}

    @property
    def changing(self) -> list[str]:
        """The files with rules that change calls, or that add context for the model."""
        return list(dict.fromkeys(file for source in self.reading.sources.values() for file in _changing(source)))

    def check(self) -> None:
        """Raise ConfigError if the policies are invalid, because those cannot be accepted."""
        for name, source in self.reading.sources.items():
            if os.path.isdir(os.path.join(self.root, "policies", name)):
                try:
                    own_set(source, name) if self.is_own else project_set(source, name)
                except RegoErrors as error:
                    raise ConfigError(
                        f"these policies are invalid, so they cannot be accepted:\n{error}",
                        "`anyplug policy validate` lists all problems",
                    ) from error

    def keep(self, *, trusted: bool, unconfined: bool = False) -> None:
        """Accept exactly what was read. Raises StoreError."""
        try:
            if self.is_there:
                accepted_copies.keep(self.home, self.reading, trusted=trusted, unconfined=unconfined)
            else:
                accepted_copies.forget(self.home, self.folder)
        except OSError as error:
            raise StoreError(
                f"cannot store what you accepted in {self.home}: {error.strerror}", "check the folder's permissions"
            ) from error

    def again(self) -> "ReadPolicies":
        """Read it once more."""
        return ReadPolicies(self.home, self.root, is_own=self.is_own)


def trust(session: Session) -> int:
    """Show what policies do, and accept them."""
    options = session.options
    place = _named(session)
    if options.revoke:
        place.keep(trusted=False)
        render.out(f"{place.folder} is no longer trusted: its commands do not run")
        return 0
    if place.is_there:
        place.check()
    if not place.is_trusted or options.allow_unconfined:
        if options.yes:
            told = [] if options.json else _told(place)
            place.keep(
                trusted=True, unconfined=options.allow_unconfined
            )  # first: a reader of our output may leave early
            _print(told)
        else:
            place = _asked(session, place)
            place.keep(trusted=True, unconfined=options.allow_unconfined)
    if options.json:
        session.print_json({"project": place.folder, "trusted": place.is_there, "commands": place.commands})
    elif place.is_there:
        render.out(f"{place.folder} is trusted, with its policies as they are now")
    else:
        render.out(f"{place.folder} no longer has policies")
    return 0


def _named(session: Session) -> ReadPolicies:
    """Find the policies that a command is about. Raises ConfigError."""
    options = session.options
    home = find_home(options.home).path
    if options.for_all:
        root = os.path.abspath(options.global_config or policy_files.global_folder())
        if not os.path.isdir(root) and accepted_copies.record_of(home, root) is None:
            raise ConfigError(f"there are no policies in {root}", "`anyplug policy init --global` creates some")
        return ReadPolicies(home, root, is_own=True)
    start = os.path.abspath(options.what or options.policy_dir or ".")
    found = policy_folders.around(start, home)
    if not found:
        raise ConfigError(f"there is no {FOLDER} in {start} or a parent folder", "`anyplug policy init` creates one")
    return ReadPolicies(home, found[0].root)


def _asked(session: Session, place: ReadPolicies) -> ReadPolicies:
    """Show policies until a person accepts what is there; return what was shown."""
    while True:
        if not session.options.json:
            _show(place)
        if not terminal.can_ask():
            refuse(
                "trust needs your answer, but this is not a terminal",
                (f"accept without asking with `{place.command} --yes`"),
            )
        if not session.confirm(QUESTION):
            refuse("nothing was accepted", f"`{place.command}` asks again")
        now = place.again()
        if now.reading.contents == place.reading.contents and now.is_there == place.is_there:
            return place
        terminal.say(CHANGED)
        place = now
        if place.is_there:
            place.check()


def offer(session: Session, root: str) -> None:
    """Ask whether a project is trusted if there is somebody to ask; otherwise show how to do it later."""
    place = ReadPolicies(find_home(session.options.home).path, root)
    if place.is_trusted or not place.is_there:
        return
    try:
        place.check()
    except ConfigError:
        return  # the person who connects is told anyway
    if terminal.can_ask() and not session.options.json:
        _show(place)
        if session.confirm(QUESTION):
            if place.again().reading.contents == place.reading.contents:
                place.keep(trusted=True)
                return
            terminal.say(CHANGED)
    remind(session, root)


def accept_own(session: Session, root: str, *, is_own: bool = False) -> None:
    """Accept what this program has just written into an empty place at the person's request."""
    ReadPolicies(find_home(session.options.home).path, root, is_own=is_own).keep(trusted=True)


def remind(session: Session, root: str = "") -> None:
    """Show which parts of a project's policies wait for a person's acceptance."""
    home = find_home(session.options.home).path
    start = "" if root else session.options.policy_dir or "."
    for found in [root] if root else [one.root for one in policy_folders.around(start, home)][:1]:
        place = ReadPolicies(home, found)
        if not place.is_trusted and place.record is not None and not place.is_same:
            session.note(f"changed policies can forbid more, but not allow more, until `{place.command}` accepts them")
        elif not place.is_trusted and (place.commands or place.changing):
            session.note(f"commands, changes of calls and context do not apply until `{place.command}` accepts them")


def _show(place: ReadPolicies) -> None:
    _print(_told(place))


def _print(told: list[tuple[bool, str]]) -> None:
    for is_theirs, text in told:
        if is_theirs:
            render.say_quoted(text)
        else:
            terminal.say(text)


def _told(place: ReadPolicies) -> list[tuple[bool, str]]:
    """Return what a person must see before agreeing, and whether each text is the policies' own."""
    told = [(False, f"policies in {place.root}" + ("" if place.is_there else ", which no longer exists"))]
    if commands := place.commands:
        told.append((False, f"commands that they run, {UNCONFINED if place.is_own else SANDBOX}:"))
        told += [(True, f"{name}: {text}") for name, text in commands.items()]
    if place.changing:
        told.append((False, "rules that change calls, or that tell the model something:"))
        told += [(False, f"  {file}") for file in place.changing]
    if place.record is not None and not place.is_same:
        since = "changed since you accepted them:" if place.record.trusted else "changed since the first use:"
        told += [(False, since), *((True, line) for line in _differences(place))]
    return told


def _differences(place: ReadPolicies) -> Iterator[str]:
    held = accepted_copies.held_root(place.home, place.folder)
    before = {os.path.relpath(os.path.join(folder, name), held) for folder, _, names in os.walk(held) for name in names}
    after = place.reading.contents
    for name in sorted(before | set(after)):
        shown = os.path.join(FOLDER, name)
        old, new = _lines(_content(os.path.join(held, name))), _lines(after.get(name, b""))
        yield from difflib.unified_diff(old, new, shown, shown, lineterm="", n=1)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _lines(content: bytes) -> list[str]:
    return content.decode(errors="replace").split("\n")


def _changing(source: Source) -> Iterator[str]:
    for file, text in source.policies.items():
        try:
            verbs = {part.verb for part in parts(parse_module(file, text))}
        except RegoErrors:
            continue
        if verbs & {"modify", CONTEXT}:
            yield file
