"""How to start a script, where Node finds modules, and how `uv` scripts get dependencies before their first call."""

import fcntl
import functools
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.settings import Home
from anyplug.model.hashes import sha256
from anyplug.model.late_patterns import late
from anyplug.model.types import Plugin
from anyplug.runtime.processes.diagnosis import has_shebang_or_is_binary
from anyplug.runtime.processes.program import Program

RESOLVE_S = 600.0  # a large dependency over a slow connection
LARGEST_SCRIPT = 1 << 20  # bytes of it that decide whether its dependencies are resolved
HEAD_BYTES = 64 << 10  # where a script's metadata is
MAX_OUTPUT = 1 << 20
ENVIRONMENTS = "environments-v*"  # where uv keeps those of scripts, in its cache
SITE_PACKAGES = "*/lib/python*/site-packages"
# What interpreters load when they start: folders, and which of their files. A folder that was moved there counts, too.
LOADED_AT_START = {
    "": "",
    "*": r"pyvenv\.cfg",
    "*/bin": r"python.*",
    "*/lib": "",
    "*/lib/python*": "",
    SITE_PACKAGES: r".*\.pth|_virtualenv\.py|sitecustomize.*|usercustomize.*",
}
OF_UV = "_virtualenv.pth"  # the only one that uv itself puts there
LARGEST_PTH = 64 << 10  # bytes
LOCK = "lock"  # among the notes
MARK = "fetched-by-anyplug"  # in the folder of what was fetched; `uv` may create that folder again, but not this file
TURN_POLL_S = 0.05  # how often a waiting process checks whether it is its turn
# All that resolving gets of a plugin's environment: how to reach the network and where to put things. The code that
# builds dependencies is third-party and has the network, so it must not get the plugin's secrets.
OF_RESOLVING = late(
    r"PATH|HOME|LANG|UV_.*|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|(?i:(?:https?|all|no)_proxy)|ANYPLUG_GUARD"
)

_METADATA = late(rb"^# /// script\s*$", re.MULTILINE)


def command(program: str) -> tuple[str, ...]:
    """Return the command for a program; a file without a shebang is run by the shell, as with `execvp`."""
    return (program,) if has_shebang_or_is_binary(program) else ("/bin/sh", program)


def notes(home: Home, plugin: Plugin) -> str:
    """Return the folder of notes about what is resolved, which the plugin cannot write to."""
    return os.path.join(home.path, "resolved", os.path.basename(home.cache(plugin)))


def fetched(home: Home, plugin: Plugin) -> str:
    """Return the folder of what `uv` fetches for a plugin."""
    return os.path.join(home.cache(plugin), "uv")


def uv_settings(users: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which `uv` uses the user's settings, and none that are in a folder above the plugin."""
    folder = users.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = users.get("UV_CONFIG_FILE") or os.path.join(folder, "uv", "uv.toml")
    return {"UV_CONFIG_FILE": path} if os.path.isfile(path) else {"UV_NO_CONFIG": "1"}


def is_resolved(script: str, environment: dict[str, str], notes: str) -> bool:
    """Return whether nothing has to be fetched before a script runs."""
    source = _source(script)
    if not _names_dependencies(source) or not os.path.exists(_uv(environment)):
        return True
    return os.path.exists(_marker(script, source, notes)) and not is_emptied(environment["UV_CACHE_DIR"], notes)


def is_emptied(fetched: str, notes: str) -> bool:
    """Return whether what was fetched is gone: the plugin can remove it, to have it built again."""
    with suppress(FileNotFoundError):
        return any(name != LOCK for name in os.listdir(notes)) and not is_fetched(fetched)
    return False


def is_fetched(fetched: str) -> bool:
    """Return whether something was fetched and its folder has not been emptied since."""
    return os.path.lexists(os.path.join(fetched, MARK))


@asynccontextmanager
async def turn(notes: str, *, shared: bool = False) -> AsyncIterator[None]:
    """Wait until no other process resolves for the same plugin, and unless `shared`, until none of its programs runs.

    A program of the plugin's that runs meanwhile could hand files to the resolver, which has the network.
    """
    from anyio import sleep  # takes 6 ms to import, and listing plugins runs nothing

    make_private(notes)
    with open(os.path.join(notes, LOCK), "ab") as lock:
        while True:
            try:
                fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await sleep(TURN_POLL_S)
        yield


def resolution(script: str, environment: dict[str, str]) -> Program:
    """Return the program that resolves a script's dependencies."""
    return Program(
        argv=(_uv(environment), "sync", "--script", script),
        cwd=os.path.dirname(script),
        # Bytecode is where the plugin can write, and would run here, with the network.
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
    """Remove everything that was fetched, and the rest of the cache, where the plugin could write. Blocks."""
    with suppress(FileNotFoundError):
        for name in os.listdir(notes):
            if name != LOCK:
                os.unlink(os.path.join(notes, name))
    with suppress(FileNotFoundError):
        untrusted_files.remove(cache)


def remember(script: str, fetched: str, notes: str) -> None:
    """Record that a script's dependencies are resolved, until the script changes or what was fetched is gone."""
    # Another script may have left the mark. If the plugin put a link there, the folder counts as emptied.
    with suppress(OSError), untrusted_files.hold(fetched) as folder:
        os.close(folder.create(MARK))
    with open(_marker(script, _source(script), notes), "wb"):
        pass


def visible(plugin: str, home: Home, search_path: str) -> tuple[str, ...]:
    """Return the folders that a program must see even with a private /tmp: itself, our home, its interpreters."""
    return (plugin, home.path, *_prefixes(home.bin, search_path))


@functools.cache
def _prefixes(programs: str, search_path: str) -> tuple[str, ...]:
    """Return the folders in which programs are installed: what `bin/node` needs is next to `bin`, not in it."""
    linked = [os.path.realpath(os.path.join(programs, name)) for name in ("uv", "node")]
    folders = [*map(os.path.dirname, linked), *filter(os.path.isabs, search_path.split(":"))]
    real = {os.path.realpath(folder) for folder in folders}
    ours = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)}
    return tuple(sorted(ours | real | {os.path.dirname(folder) for folder in real}))  # outer ones first


def resolved_at(script: str, environment: Mapping[str, str], notes: str) -> object:
    """Return a value that changes when a script's dependencies are resolved again, or its environment is changed."""
    if not (at := _resolution_time(script, notes)):
        return None
    return (at, _newest(environment))


def why_unsure(script: str, environment: Mapping[str, str], notes: str) -> str:
    """Return why a script's interpreter must not be started outside a call; empty if it may.

    The plugin can write to its environment, and parts of that run whenever the interpreter starts.
    """
    if not _names_dependencies(_source(script)):
        return ""
    if not (at := _resolution_time(script, notes)):
        return "it can write to the environment that uv resolved for it"
    if _newest(environment) > at:
        return "its environment was changed after uv resolved it"
    if name := _run_at_start(environment):
        return f"its dependencies run code whenever an interpreter starts ({name})"
    return ""


def _run_at_start(environment: Mapping[str, str]) -> str:
    """Return the name of a file in a plugin's environments whose code runs at each start; empty if there is none.

    What it does may depend on anything that a call wrote.
    """
    import glob  # only needed for scripts that uv runs

    top = os.path.join(glob.escape(environment.get("UV_CACHE_DIR", "")), ENVIRONMENTS)
    for lib in glob.iglob(os.path.join(top, "*", "lib")):
        try:
            for version in os.listdir(lib):
                folder = os.path.join(lib, version, "site-packages")
                for name in os.listdir(folder) if os.path.lexists(folder) else ():
                    if name.startswith(("sitecustomize", "usercustomize")) or _imports(os.path.join(folder, name)):
                        return name
        except OSError:
            return "a folder that cannot be read"
    return ""


def _imports(path: str) -> bool:
    """Return whether a file is a .pth file that runs code; uv's own may."""
    if not path.endswith(".pth") or os.path.basename(path) == OF_UV:
        return False
    text = untrusted_files.head(path, LARGEST_PTH)
    return len(text) == LARGEST_PTH or any(line.lstrip().startswith(b"import") for line in text.splitlines())


def _resolution_time(script: str, notes: str) -> int:
    source = _source(script)
    if not _names_dependencies(source):
        return 0
    try:
        return os.stat(_marker(script, source, notes)).st_mtime_ns
    except OSError:
        return 0


def _newest(environment: Mapping[str, str]) -> int:
    """Return the time of the last change of what interpreters load at their start, in all environments of a plugin.

    Nobody can set this time. What the plugin put there since counts, too.
    """
    import glob  # for the same reason

    found = 0
    top = os.path.join(glob.escape(environment.get("UV_CACHE_DIR", "")), ENVIRONMENTS)
    for part, loaded in LOADED_AT_START.items():
        for path in glob.iglob(os.path.join(top, part).rstrip("/")):
            with suppress(OSError):
                found = max(found, os.lstat(path).st_ctime_ns)
                for name in os.listdir(path) if loaded else ():
                    if re.fullmatch(loaded, name):
                        found = max(found, os.lstat(os.path.join(path, name)).st_ctime_ns)
    return found


def _uv(environment: dict[str, str]) -> str:
    return environment["PATH"].partition(":")[0] + "/uv"


def _source(script: str) -> bytes:
    """Read a script, which is done before each call: if it is large, only its beginning."""
    try:
        return untrusted_files.head(script, LARGEST_SCRIPT)
    except OSError:
        return b""


def _names_dependencies(source: bytes) -> bool:
    head = source[:HEAD_BYTES]
    return head.startswith(b"#!") and b"uv" in head.partition(b"\n")[0] and bool(_METADATA.search(head))


def _marker(script: str, source: bytes, notes: str) -> str:
    """Return the path of the note. It depends on the script's content, since a plugin can change the file's time."""
    key = sha256(os.fsencode(script) + b"\0" + source).hexdigest()
    return os.path.join(notes, key[:32])


def modules_above(folder: str) -> list[str]:
    """List where modules are looked for, from a folder upwards."""
    found = []
    while True:
        found.append(os.path.join(folder, "node_modules"))
        if (parent := os.path.dirname(folder)) == folder:
            return found
        folder = parent
