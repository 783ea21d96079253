"""Detect commands that fetch code when they start without an exact version. Pure.

The digest covers a folder's files. What npx, uvx and the like fetch is not among them, so it should be named exactly:
`name@1.2.3` for npm, `name==1.2.3` (uvx: also `name@1.2.3`) for PyPI, `image@sha256:...` for images.
"""

import os
import re
import shlex
from collections.abc import Sequence

import msgspec

_VERSION = r"v?\d+(?:\.\d+)+(?:[-+.]?[0-9A-Za-z][0-9A-Za-z.+-]*)?"
_NPM_PINNED = re.compile(rf"(?:npm:|jsr:)?(?:@[^/@]+/)?[^/@]+@{_VERSION}(?:/.*)?")
_PYPI_PINNED = re.compile(rf"[A-Za-z0-9._-]+(?:\[[^\]]*\])?(?:===?|@){_VERSION}")
_COMMIT = re.compile(r"[@#][0-9a-f]{40}\b")
_IMAGE_PINNED = re.compile(r"@sha256:[0-9a-f]{64}$")
_DENO_PINNED = re.compile(rf"@{_VERSION}(?:/|$)")

# For each program: options that name a package, and options that take another value.
_NPX = (("-p", "--package"), ("-c", "--call", "-w", "--workspace", "--node-options", "--registry", "--cache"))
_UVX = (
    ("--from", "--with", "-w"),
    (
        "-p", "--python", "--index", "--index-url", "-i", "--extra-index-url", "--default-index", "--find-links", "-f",
        "--with-editable", "--with-requirements", "-c", "--constraints", "--overrides", "--env-file", "--directory",
        "--project", "--cache-dir", "--config-file", "--refresh-package", "--upgrade-package", "-P", "--color",
        "--resolution", "--prerelease", "--exclude-newer", "--link-mode", "--index-strategy", "--keyring-provider",
    ),
)  # fmt: skip
_PIPX = (("--spec", "--with"), ("--python", "--pip-args", "--index-url", "-i"))
_REPLACING = frozenset({"-p", "--package", "--from", "--spec"})  # what is run is then a program of this package
_DOCKER_SWITCHES = frozenset(
    {"-i", "-t", "-it", "-ti", "-d", "-P", "-q", "--rm", "--init", "--interactive", "--tty", "--detach", "--privileged",
     "--read-only", "--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet", "--replace"}
)  # fmt: skip
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
_NPM_HINT = "name the version, like {}@1.2.3"
_PYPI_HINT = "name the version, like {}==1.2.3"


class Fetched(msgspec.Struct, frozen=True):
    """A package that a command fetches without an exact version, and the fix."""

    package: str
    hint: str


def unpinned(words: Sequence[str]) -> list[Fetched]:
    """List what a command line fetches without an exact version; empty if it fetches nothing, or all is pinned."""
    words = _without_wrappers(list(words))
    if not words:
        return []
    program, rest = os.path.basename(words[0]).removesuffix(".exe").removesuffix(".cmd"), words[1:]
    if program in _SHELLS:
        return _of_script(rest)
    for fetcher, find in _FETCHERS.items():
        name, *subcommands = fetcher.split()
        if program == name and rest[: len(subcommands)] == subcommands:
            return find(rest[len(subcommands) :])
    return []


def takes_value(option: str, *, is_container: bool) -> bool:
    """Return whether the next word belongs to an option of a program that fetches packages or starts containers."""
    if "=" in option:
        return False
    if is_container:
        return option not in _DOCKER_SWITCHES
    return any(option in names for group in (_NPX, _UVX, _PIPX) for names in group)


def _without_wrappers(words: list[str]) -> list[str]:
    """Remove wrappers: `env A=b`, `cmd /c`."""
    while words:
        program = os.path.basename(words[0])
        if program == "env":
            words = words[1:]
            while words and (words[0].startswith("-") or "=" in words[0]):
                words = words[1:]
        elif program in {"cmd", "cmd.exe"} and words[1:2] and words[1].lower() == "/c":
            words = words[2:]
        else:
            break
    return words


def _of_script(words: list[str]) -> list[Fetched]:
    """Check the commands in `sh -c '...'`."""
    if len(words) < 2 or not words[0].startswith("-") or "c" not in words[0]:  # noqa: PLR2004 - the option and the script
        return []
    lexer = shlex.shlex(words[1], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        parts = list(lexer)
    except ValueError:
        return []
    found: list[Fetched] = []
    command: list[str] = []
    for part in [*parts, ";"]:
        if part and set(part) <= set(";&|()"):
            found += unpinned([word for word in command if word != "exec"])
            command = []
        else:
            command.append(part)
    return found


def _packages(words: list[str], stand_ins: Sequence[str], with_value: Sequence[str]) -> list[str]:
    """Find the packages in an installer's arguments: those that options name, else the first that is not an option."""
    named: list[str] = []
    rest = iter(words)
    tool, is_replaced = "", False
    for word in rest:
        option, equals, value = word.partition("=")
        if word == "--":
            tool = next(rest, "")
            break
        if option in stand_ins:
            named.append(value if equals else next(rest, ""))
            is_replaced |= option in _REPLACING
        elif option in with_value and not equals:
            next(rest, "")
        elif not word.startswith("-"):
            tool = word
            break
    return [package for package in (*named, *(() if is_replaced else (tool,))) if package]


def _npm(words: list[str]) -> list[Fetched]:
    return [
        Fetched(package, _NPM_HINT.format(_npm_name(package)))
        for package in _packages(words, *_NPX)
        if not _is_local(package) and not _NPM_PINNED.fullmatch(package) and not _COMMIT.search(package)
    ]


def _npm_name(package: str) -> str:
    at = package.find("@", 1)
    return package if at < 0 else package[:at]


def _pypi(words: list[str], options: tuple[Sequence[str], Sequence[str]]) -> list[Fetched]:
    return [
        Fetched(package, _PYPI_HINT.format(re.split(r"[\[=<>~!@ ]", package, maxsplit=1)[0] or package))
        for package in _packages(words, *options)
        if not _is_local(package) and not _PYPI_PINNED.fullmatch(package) and not _COMMIT.search(package)
    ]


def _docker(words: list[str]) -> list[Fetched]:
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            pinned = _IMAGE_PINNED.search(word)
            return [] if pinned else [Fetched(word, f"name the image by its digest, like {word}@sha256:...")]
        if word not in _DOCKER_SWITCHES and "=" not in word:
            next(rest, "")
    return []


def _deno(words: list[str]) -> list[Fetched]:
    script = next((word for word in words if not word.startswith("-")), "")
    is_remote = script.startswith(("http://", "https://", "npm:", "jsr:"))
    if not is_remote or _DENO_PINNED.search(script):
        return []
    return [Fetched(script, "name the version in it, like npm:name@1.2.3")]


def _is_local(package: str) -> bool:
    return package.startswith((".", "/", "~", "file:"))


_FETCHERS = {
    "npx": _npm,
    "npm exec": _npm,
    "npm x": _npm,
    "pnpm dlx": _npm,
    "pnpx": _npm,
    "yarn dlx": _npm,
    "bunx": _npm,
    "bun x": _npm,
    "uvx": lambda words: _pypi(words, _UVX),
    "uv tool run": lambda words: _pypi(words, _UVX),
    "pipx run": lambda words: _pypi(words, _PIPX),
    "docker run": _docker,
    "docker container run": _docker,
    "podman run": _docker,
    "deno run": _deno,
}
