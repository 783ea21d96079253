"""Parse the arguments of `install`: a source with names of its plugins, a command, or a pasted configuration."""

import os
import shlex
import sys
from contextlib import suppress

import msgspec

from anyplug.catalog import wrong_folder
from anyplug.frontends.cli import terminal
from anyplug.frontends.cli.cli_run import Session
from anyplug.manage import pasted_names, pasted_servers, plugin_sources
from anyplug.manage.pasted_servers import Pasted
from anyplug.manage.plugin_sources import Source
from anyplug.model import hints
from anyplug.model.errors import UsageError

STDIN = "-"
TERMINAL = "/dev/tty"
OURS = frozenset({"--yes", "--always", "--json", "--follow", "--inherit-env", "--allow-unconfined"})
TAKES_A_VALUE = frozenset({"--ref", "--subdir", "--grant", "--name"})


def foreign_at(words: list[str]) -> int | None:
    """Return where the command line of a server begins: what follows are its words, not ours."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != STDIN:
        if words[at] == "--":
            return at
        at += 2 if words[at] in TAKES_A_VALUE else 1
    return at if pasted_servers.command_at(words[at:]) else None


def read(session: Session) -> list[Pasted]:
    """Return the source that was named, or the servers that were pasted; tell what of them is lost.

    Raises AnyplugError.
    """
    found = _read(session)
    for pasted in found:
        if pasted.dropped:
            fields = ", ".join(pasted.dropped)
            session.warn(f"the server '{pasted.source.name}' is used without these fields of its entry: {fields}")
            if any("env" in field.lower() for field in pasted.dropped):
                session.note(
                    'hint: write the variables that it needs into "env": {"NAME": "value"}, and paste it again'
                )
    return found


def _read(session: Session) -> list[Pasted]:
    options = session.options
    if options.foreign:
        words = options.foreign[1:] if options.foreign[0] == "--" else options.foreign
        if words[-1] in OURS and options.foreign is words:
            session.warn(
                f"{words[-1]} is passed to the server; what is meant for anyplug stands before its command: "
                + hints.command("install", *(words[-1], *words[:-1]))
            )
        return [pasted_servers.of_command(words, options.name)]
    given = options.sources[0]
    if given == STDIN:
        return pasted_servers.of_snippet(_from_stdin(), options.name)
    if given.lstrip().startswith(("{", '"')):
        return pasted_servers.of_snippet(given, options.name)
    if " " in given and (words := _split(given)) and pasted_servers.command_at(words):
        return [pasted_servers.of_command(words, options.name)]
    named = pasted_names.read(given)
    source = named.source
    if source.is_address and not source.is_archive and source.location.rstrip("/").endswith(("/mcp", "/sse")):
        return pasted_servers.of_snippet(msgspec.json.encode({"url": source.location}).decode(), options.name)
    if source.is_git and ":" not in given and "." not in given.partition("/")[0]:  # a short name, and no host's
        _say_what_is_fetched(session, given, source)
    if options.name:
        raise UsageError("--name is for pasted servers", "leave it out: a plugin has the name that its author gave it")
    with session.progress(f"asking {source.shown} for its branches"):
        source = plugin_sources.with_ref(source, named.rest)
    return [
        Pasted(
            msgspec.structs.replace(
                source, ref=options.ref or source.ref, subdir=options.subdir or source.subdir, servers=""
            ),
            {},
        )
    ]


def _say_what_is_fetched(session: Session, given: str, source: Source) -> None:
    """Report that a short name is a repository: a person in the wrong folder meant a folder."""
    meant = wrong_folder.near(os.path.abspath(given))
    instead = f"; did you mean {meant}?" if meant else ""
    session.note(f"there is no folder '{given}' here, so it is fetched from {source.shown}{instead}")


def asked_for(session: Session) -> Source:
    """Return the source as it was typed, which is how an agent's request for it is kept."""
    options = session.options
    return Source(location=(options.sources or [""])[0], ref=options.ref, subdir=options.subdir)


def names(session: Session) -> list[str]:
    """Return the names of the source's plugins that the person wants."""
    return list(session.options.sources[1:])


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.strip().removeprefix("$ "))
    except ValueError:
        return []


def _from_stdin() -> str:
    """Read all of stdin; questions are then asked at the terminal, if there is one."""
    if sys.stdin.isatty():
        terminal.say("Paste the configuration, then press Ctrl-D on a line of its own.")
    text = sys.stdin.read(pasted_servers.LARGEST + 1)
    if sys.stderr.isatty() and not sys.stdin.isatty():
        with suppress(OSError):
            sys.stdin = open(TERMINAL, encoding="utf-8")  # noqa: SIM115 - for as long as we run
    return text
