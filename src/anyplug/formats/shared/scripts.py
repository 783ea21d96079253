"""How a script is started, where Node finds modules, and how `uv` scripts get dependencies before their first call."""

import fcntl
import functools
import hashlib
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.model.types import Plugin
from anyplug.runtime.processes.diagnosis import has_shebang_or_is_binary
from anyplug.runtime.processes.program import Program

RESOLVE_S = 600.0  # a large dependency over a slow line
LARGEST_SCRIPT = 1 << 20  # bytes of it that say whether its dependencies are resolved
HEAD_BYTES = 64 << 10  # where the metadata of a script stands
MAX_OUTPUT = 1 << 20
LOCK = "lock"  # among the notes
TURN_POLL_S = 0.05  # how often one who waits looks whether it is their turn
# All that resolving gets of a plugin's environment: how to reach the network and where to put things. The code that
# builds dependencies is others', and has the network: a secret of the plugin's is none of its business.
OF_RESOLVING = re.compile(
    r"PATH|HOME|LANG|UV_.*|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|(?i:(?:https?|all|no)_proxy)|ANYPLUG_GUARD"
)

_METADATA = re.compile(rb"^# /// script\s*$", re.MULTILINE)


def command(program: str) -> tuple[str, ...]:
    """Return the command for a program; a file without a shebang is the shell's, as with `execvp`."""
    return (program,) if has_shebang_or_is_binary(program) else ("/bin/sh", program)


def notes(home: Home, plugin: Plugin) -> str:
    """Return the folder of notes about what is resolved: where the plugin cannot write, who has no network then."""
    return os.path.join(home.path, "resolved", os.path.basename(home.cache(plugin)))


def is_resolved(script: str, environment: dict[str, str], notes: str) -> bool:
    """Whether nothing has to be fetched before a script runs."""
    source = _source(script)
    if not _names_dependencies(source) or not os.path.exists(_uv(environment)):
        return True
    return os.path.exists(_marker(script, source, notes)) and os.path.isdir(environment["UV_CACHE_DIR"])


@asynccontextmanager
async def turn(notes: str) -> AsyncIterator[None]:
    """Wait until nobody else resolves for the same plugin, in any process."""
    from anyio import sleep  # with what `forget_aside` needs 6 ms, and listing plugins runs nothing

    make_private(notes)
    with open(os.path.join(notes, LOCK), "wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await sleep(TURN_POLL_S)
        yield


def resolution(script: str, environment: dict[str, str]) -> Program:
    """Return the program that resolves a script's dependencies."""
    return Program(
        argv=(_uv(environment), "sync", "--script", script),
        cwd=os.path.dirname(script),
        # Bytecode lies where the plugin can write, and would run here, with the network.
        env={name: value for name, value in environment.items() if OF_RESOLVING.fullmatch(name)}
        | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdin=b"",
        timeout_s=RESOLVE_S,
        max_stdout=MAX_OUTPUT,
        max_stderr=MAX_OUTPUT,
        purpose="resolve",
        folders=(environment["HOME"],),
    )


async def forget_aside(cache: str, notes: str) -> None:
    """Do the same as `forget`, in a thread."""
    from anyplug.runtime import thread_lanes  # as in `turn`

    await thread_lanes.run(cache, forget, cache, notes)


def forget(cache: str, notes: str) -> None:
    """Remove all that was fetched, and what else is in the cache: the plugin could write there. Blocks."""
    with suppress(FileNotFoundError):
        for name in os.listdir(notes):
            if name != LOCK:
                os.unlink(os.path.join(notes, name))
    with suppress(FileNotFoundError):
        untrusted_files.remove(cache)


def remember(script: str, notes: str) -> None:
    """Note that a script's dependencies are resolved, until the script changes."""
    with open(_marker(script, _source(script), notes), "wb"):
        pass


def visible(plugin: str, home: Home, search_path: str) -> tuple[str, ...]:
    """Return the folders that a program needs to see even where /tmp is its own: itself, our home, its interpreters."""
    return (plugin, home.path, *_prefixes(home.bin, search_path))


@functools.cache
def _prefixes(programs: str, search_path: str) -> tuple[str, ...]:
    """Return the places in which programs are installed: what `bin/node` needs lies beside `bin`, not in it."""
    linked = [os.path.realpath(os.path.join(programs, name)) for name in ("uv", "node")]
    folders = [*map(os.path.dirname, linked), *filter(os.path.isabs, search_path.split(":"))]
    real = {os.path.realpath(folder) for folder in folders}
    ours = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)}
    return tuple(sorted(ours | real | {os.path.dirname(folder) for folder in real}))  # outer ones first


def _uv(environment: dict[str, str]) -> str:
    return environment["PATH"].partition(":")[0] + "/uv"


def _source(script: str) -> bytes:
    """Read a script, which is done before each call: of a large one only the beginning."""
    try:
        return untrusted_files.head(script, LARGEST_SCRIPT)
    except OSError:
        return b""


def _names_dependencies(source: bytes) -> bool:
    head = source[:HEAD_BYTES]
    return head.startswith(b"#!") and b"uv" in head.partition(b"\n")[0] and bool(_METADATA.search(head))


def _marker(script: str, source: bytes, notes: str) -> str:
    """Return the path of the note. It depends on the script's content, since a plugin can change the file's time."""
    key = hashlib.sha256(os.fsencode(script) + b"\0" + source).hexdigest()
    return os.path.join(notes, key[:32])


def modules_above(folder: str) -> list[str]:
    """List where modules are looked for from a folder on upwards."""
    found = []
    while True:
        found.append(os.path.join(folder, "node_modules"))
        if (parent := os.path.dirname(folder)) == folder:
            return found
        folder = parent
