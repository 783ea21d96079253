"""How a script is started, and how `uv` scripts get their dependencies before their first call."""

import functools
import hashlib
import os
import re
import sys
from contextlib import suppress

from anyplug import trees
from anyplug.runtime.diagnosis import has_shebang_or_is_binary
from anyplug.runtime.program import Program
from anyplug.settings import Home

RESOLVE_S = 600.0  # a large dependency over a slow line
HEAD_BYTES = 64 << 10  # where the metadata of a script stands
MAX_OUTPUT = 1 << 20

_METADATA = re.compile(rb"^# /// script\s*$", re.MULTILINE)


def command(program: str) -> tuple[str, ...]:
    """Give the command for a program; a file without a shebang is the shell's, as with `execvp`."""
    return (program,) if has_shebang_or_is_binary(program) else ("/bin/sh", program)


def notes(home: Home, plugin: str) -> str:
    """Give the folder of notes about what is resolved: where the plugin cannot write, who has no network then."""
    return os.path.join(home.path, "resolved", plugin)


def resolution(script: str, environment: dict[str, str], notes: str) -> Program | None:
    """Give the program that resolves a script's dependencies; None if it has none, or they are resolved."""
    uv = environment["PATH"].partition(":")[0] + "/uv"
    if not _names_dependencies(script) or not os.path.exists(uv):
        return None
    if os.path.exists(_marker(script, notes)) and os.path.isdir(environment["UV_CACHE_DIR"]):
        return None
    return Program(
        argv=(uv, "sync", "--script", script),
        cwd=os.path.dirname(script),
        env=environment,
        stdin=b"",
        timeout_s=RESOLVE_S,
        max_stdout=MAX_OUTPUT,
        max_stderr=MAX_OUTPUT,
        purpose="resolve",
    )


def forget(environment: dict[str, str], notes: str) -> None:
    """Remove all that was fetched: the plugin could write there, and resolving has the network. Blocks."""
    for folder in (environment["UV_CACHE_DIR"], environment["UV_PYTHON_INSTALL_DIR"], notes):
        if os.path.islink(folder):
            os.unlink(folder)
        with suppress(OSError):
            trees.remove(folder)


def remember(script: str, notes: str) -> None:
    """Note that a script's dependencies are resolved, until the script changes."""
    marker = _marker(script, notes)
    os.makedirs(os.path.dirname(marker), exist_ok=True)
    with open(marker, "wb"):
        pass


def visible(plugin: str, home: Home, search_path: str) -> tuple[str, ...]:
    """Give the folders that a program needs to see even where /tmp is its own: itself, our home, its interpreters."""
    return (plugin, home.path, *_prefixes(home.bin, search_path))


@functools.cache
def _prefixes(programs: str, search_path: str) -> tuple[str, ...]:
    """Give the places in which programs are installed: what `bin/node` needs lies beside `bin`, not in it."""
    linked = [os.path.realpath(os.path.join(programs, name)) for name in ("uv", "node")]
    folders = [*map(os.path.dirname, linked), *filter(os.path.isabs, search_path.split(":"))]
    real = {os.path.realpath(folder) for folder in folders}
    ours = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)}
    return tuple(sorted(ours | real | {os.path.dirname(folder) for folder in real}))  # outer ones first


def _names_dependencies(script: str) -> bool:
    try:
        with open(script, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(b"#!") and b"uv" in head.partition(b"\n")[0] and bool(_METADATA.search(head))


def _marker(script: str, notes: str) -> str:
    """Give the path of the note; uv keys environments by the script's path, and we by its content's time too."""
    found = os.stat(script)
    key = hashlib.sha256(f"{script}\0{found.st_size}\0{found.st_mtime_ns}".encode()).hexdigest()
    return os.path.join(notes, key[:32])
