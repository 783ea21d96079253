"""Protect the files that interpreters and build tools look for in the folders above a plugin.

Node looks for modules there, `uv` for a project and for settings, Go for a workspace. A plugin that may write to such a
folder could put code into another plugin's programs. So variables turn the search off where the plugin has no use for
it, and where it has, what would be found is protected.
"""

import functools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from anyplug.formats.shared import scripts
from anyplug.home import digest, untrusted_files
from anyplug.model.late_patterns import late

NODE = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
TYPESCRIPT = (".ts", ".mts", ".cts", ".tsx")
CODE = (*NODE, ".py", ".rb", ".pl", ".php", ".lua", ".go", ".rs", ".java", ".kt", ".cs", ".swift", ".jl")
MOST_NAMES = 2_000  # looked at in a plugin's folder
MOST_READ = 200  # files
READ_BYTES = 64 << 10  # of each
KEPT_S = 5  # for which a look at a folder counts: a host starts many plugins, each with a look at all


class Search(msgspec.Struct, frozen=True):
    """What a tool looks for in the folders above: when a plugin may start it, and the names.

    A file of the plugin's own ends the search for `nearest`, but not for `roots`: there a tool goes on to the root of a
    workspace, which says what the dependencies of its members are. Settings with a name of their own, such as
    `.cargo/config.toml`, are protected everywhere, and are not listed.
    """

    words: frozenset[str]
    suffixes: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


def _search(words: str, suffixes: str = "", *, roots: str = "", nearest: str = "") -> Search:
    return Search(frozenset(words.split()), tuple(suffixes.split()), tuple(roots.split()), tuple(nearest.split()))


SEARCHES = (
    _search("cargo rustc", ".rs Cargo.toml", roots="Cargo.toml .cargo"),
    _search("bundle bundler ruby rake", ".rb Gemfile", nearest="Gemfile gems.rb .bundle Rakefile"),
    _search("deno", "deno.json deno.jsonc", roots="deno.json deno.jsonc", nearest="package.json node_modules"),
    _search("bun bunx", "bun.lock", roots="package.json node_modules", nearest="tsconfig.json jsconfig.json"),
    _search("npm npx pnpm yarn", roots="package.json .pnp.cjs .pnp.js .pnp.data.json .pnp.loader.mjs node_modules"),
    _search(
        "poetry pdm hatch rye pixi",
        "poetry.lock pdm.lock pixi.toml",
        roots="pyproject.toml",
        nearest="poetry.toml pixi.toml .venv",
    ),
    _search("pipenv", "Pipfile", nearest="Pipfile Pipfile.lock .venv"),
    _search("uv uvx", "uv.lock uv.toml", nearest=".venv .python-version .python-versions"),
    _search(
        "dotnet msbuild nuget",
        ".cs .csproj .fsproj .vbproj",
        roots="Directory.Build.props Directory.Build.targets Directory.Build.rsp Directory.Packages.props "
        "Directory.Solution.props Directory.Solution.targets nuget.config global.json",
    ),
    _search("mvn mvnd", "pom.xml", roots="pom.xml"),
    _search(
        "gradle gradlew",
        "build.gradle build.gradle.kts",
        nearest="settings.gradle settings.gradle.kts build.gradle build.gradle.kts gradle.properties",
    ),
    _search("nim nimble", ".nim .nimble", roots="nim.cfg config.nims"),
    _search("cabal stack runghc", ".hs .cabal", nearest="cabal.project cabal.project.local stack.yaml"),
    _search("dune opam", "dune-project .ml", roots="dune-workspace dune-project dune"),
    _search("dart flutter", ".dart pubspec.yaml", roots="pubspec.yaml", nearest=".dart_tool"),
    _search("julia", ".jl", nearest="Project.toml Manifest.toml JuliaProject.toml JuliaManifest.toml"),
    _search("zig", ".zig", nearest="build.zig build.zig.zon"),
    _search("bazel bazelisk", ".bzl BUILD.bazel", nearest="WORKSPACE WORKSPACE.bazel MODULE.bazel tools/bazel"),
    _search("just", "justfile", nearest="justfile .justfile"),
    _search("task", "Taskfile.yml", nearest="Taskfile.yml Taskfile.yaml"),
)

_WORD = late(rb"[A-Za-z]+")
_QUOTED = late(rb"[\"'`]([A-Za-z]+)")  # a program that a script in another language starts is a text there
SHELL = (".sh", ".bash", ".zsh", ".fish", ".ksh", ".dash", ".ash")


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
        above, names = os.path.dirname(folder), _looked_for(folder, moment, _changed(folder))
        while names:
            found |= dict.fromkeys(os.path.join(above, name) for name in names)
            if above == os.path.dirname(above):
                break
            above = os.path.dirname(above)
    return [*found]


@functools.lru_cache(maxsize=4096)
def _looked_for(folder: str, _: int, __: int) -> tuple[str, ...]:
    """Return the names that the plugin's interpreters look for above its folder, as they were in that moment."""
    return tuple(_found_in(folder))


def _changed(folder: str) -> int:
    """Return when a name in a folder changed last, in ns; 0 if it is gone."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _found_in(folder: str) -> Iterator[str]:
    names = {*_names(folder)}
    words, is_for_node = _started(folder, names)
    if is_for_node or "package.json" in names or any(name.endswith(NODE) for name in names):
        yield "node_modules"
        if "package.json" not in names:
            yield "package.json"  # by which Node finds code for the package's own name
    if "tsconfig.json" not in names and any(name.endswith(TYPESCRIPT) for name in names):
        yield "tsconfig.json"
    if "pyproject.toml" in names:
        yield from ("pyproject.toml", "uv.toml")
    for search in SEARCHES:
        if search.words & words or (search.suffixes and any(name.endswith(search.suffixes) for name in names)):
            yield from search.roots
            yield from (name for name in search.nearest if name not in names)
    if "go.mod" not in names and any(name.endswith(".go") for name in names):
        yield from ("go.mod", "go.sum")


def _started(folder: str, names: set[str]) -> tuple[set[str], bool]:
    """Return words among which are the programs that a plugin starts, and whether a script is run by Node.

    They are all words of manifests and of scripts for a shell, and in other code those that begin a text in quotes.
    """
    words: set[bytes] = set()
    is_for_node = False
    for name in sorted(names, key=_readable_order)[:MOST_READ]:
        if os.path.basename(name) in digest.MANIFESTS or name.endswith(SHELL):
            words.update(_WORD.findall(_head(folder, name, READ_BYTES)))
        elif "." not in os.path.basename(name):
            text = _head(folder, name, READ_BYTES)
            line = text.partition(b"\n")[0]
            if not line.startswith(b"#!"):
                is_script = bool(text) and b"\0" not in text  # a shell runs it, if nothing else does
                words.update(_WORD.findall(text) if is_script else ())
                continue
            is_for_node = is_for_node or any(word in line for word in (b"node", b"tsx", b"bun", b"deno"))
            is_shell = any(word in line for word in (b"sh", b"env -S"))
            words.update(_WORD.findall(text if is_shell else line), _QUOTED.findall(text))
        elif name.endswith(CODE):
            words.update(_QUOTED.findall(_head(folder, name, READ_BYTES)))
    return {word.decode() for word in words}, is_for_node


def _readable_order(name: str) -> tuple[bool, int, str]:
    """Return by what names are sorted, so that those which say most are read even from a large folder."""
    return os.path.basename(name) not in digest.MANIFESTS, name.count(os.sep), name


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


def _head(folder: str, name: str, size: int) -> bytes:
    try:
        return untrusted_files.head(os.path.join(folder, name), size)
    except OSError:
        return b""


def _has(folder: str, name: str) -> bool:
    return os.path.lexists(os.path.join(folder, name))
