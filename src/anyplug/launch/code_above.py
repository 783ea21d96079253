"""What interpreters and build tools look for in the folders above a plugin.

Node looks for modules there, `uv` for a project and for settings, Go for a workspace. A plugin that may write to such a
folder could put code into another plugin's programs. So variables turn the search off where the plugin has no use for
it, and where it has, what would be found is protected.
"""

import functools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from anyplug.formats.shared import scripts
from anyplug.home import untrusted_files

NODE = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
TYPESCRIPT = (".ts", ".mts", ".cts", ".tsx")
MOST_NAMES = 2_000  # looked at in a plugin's folder
LINE_BYTES = 256  # of a script's first line
MANIFEST_BYTES = 64 << 10
KEPT_S = 5  # for which a look at a folder counts: a host starts many plugins, each with a look at all

_UV = re.compile(rb"\buvx?\b")


def variables(folder: str, users: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep the tools of a plugin from searching above its folder."""
    found = {} if _has(folder, "go.work") else {"GOWORK": "off"}
    if _has(folder, "pyproject.toml"):
        return found
    return found | {"UV_NO_PROJECT": "1"} | ({} if _has(folder, "uv.toml") else scripts.uv_settings(users))


def paths(folders: Iterable[str]) -> list[str]:
    """Return what the programs of plugins, by their folders, may load from the folders above; it need not exist."""
    found: dict[str, None] = {}
    moment = int(time.monotonic() / KEPT_S)
    for folder in folders:
        above, names = os.path.dirname(folder), _looked_for(folder, moment)
        while names:
            found |= dict.fromkeys(os.path.join(above, name) for name in names)
            if above == os.path.dirname(above):
                break
            above = os.path.dirname(above)
    return [*found]


@functools.lru_cache(maxsize=4096)
def _looked_for(folder: str, _: int) -> tuple[str, ...]:
    """Return the names that the plugin's interpreters look for above its folder, as they were in that moment."""
    return tuple(_found_in(folder))


def _found_in(folder: str) -> Iterator[str]:
    names = {*_names(folder)}
    if "package.json" in names or any(name.endswith(NODE) or _is_for_node(folder, name) for name in names):
        yield "node_modules"
        if "package.json" not in names:
            yield "package.json"  # by which Node finds code for the package's own name
    if "tsconfig.json" not in names and any(name.endswith(TYPESCRIPT) for name in names):
        yield "tsconfig.json"
    if "pyproject.toml" in names:
        yield from ("pyproject.toml", "uv.toml")
    if any(_mentions_uv(folder, name) for name in names):
        yield from (".venv", ".python-version", ".python-versions")
    if "go.mod" not in names and any(name.endswith(".go") for name in names):
        yield from ("go.mod", "go.sum")


def _names(folder: str) -> Iterator[str]:
    """Yield the names of the files in a folder and in its folders, relative to it."""
    left = MOST_NAMES
    inner = [""]
    while inner:
        relative = inner.pop()
        with suppress(OSError), os.scandir(os.path.join(folder, relative)) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return
                yield os.path.join(relative, entry.name)
                if not relative and entry.is_dir(follow_symlinks=False) and entry.name != "node_modules":
                    inner.append(entry.name)


def _is_for_node(folder: str, name: str) -> bool:
    """Return whether a file without an ending is a script for Node."""
    if "." in os.path.basename(name):
        return False
    line = _head(folder, name, LINE_BYTES).partition(b"\n")[0]
    return line.startswith(b"#!") and any(word in line for word in (b"node", b"tsx", b"bun", b"deno"))


def _mentions_uv(folder: str, name: str) -> bool:
    """Return whether a manifest or the first line of a script may start `uv`."""
    if name.endswith(".json"):
        return bool(_UV.search(_head(folder, name, MANIFEST_BYTES)))
    line = _head(folder, name, LINE_BYTES).partition(b"\n")[0]
    return line.startswith(b"#!") and bool(_UV.search(line))


def _head(folder: str, name: str, size: int) -> bytes:
    try:
        return untrusted_files.head(os.path.join(folder, name), size)
    except OSError:
        return b""


def _has(folder: str, name: str) -> bool:
    return os.path.lexists(os.path.join(folder, name))
