"""Read manifests: with a size limit, accepting a byte-order mark, and with every fault as a Problem with its fix."""

import os
import stat
from collections.abc import Iterable
from typing import Any

import msgspec

from anyplug.home import digest, untrusted_files
from anyplug.model import json_values
from anyplug.model.hints import typed
from anyplug.model.late_patterns import late
from anyplug.model.types import Problem
from anyplug.runtime.processes.diagnosis import diagnose

LONG_WORD = 8  # letters from which on two typos are likelier than another word
LONGEST_WORD = 64  # letters of a word that is compared with others
LARGEST_MANIFEST, MOST_VALUES = 1 << 20, 50_000  # bytes; and values in it: real ones have a few thousand and hundreds
MOST_TOOLS = 1_000  # of one plugin
LARGEST_FILE = 4 << 20  # bytes of another file that is read
NOTHING_TO_RUN = "nothing_to_run"  # the problem of a folder that is a plugin elsewhere but contains no program
NOT_COVERED = "not_covered"  # the problem of code outside the plugin's folder that runs
BOM = b"\xef\xbb\xbf"
# Programs that only run others' code: those that may fetch it or read it from their command line, and the rest.
FETCHERS = frozenset(
    {"npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "uv", "uvx", "pipx", "docker", "podman", "deno",
     "env", "cmd", "cmd.exe", "sh", "bash", "zsh", "dash"}
)  # fmt: skip
INTERPRETERS = frozenset({"python", "node", "nodejs", "ruby", "perl", "php", "java", "dotnet"})
SYSTEM_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/nix/", "/snap/")

PLAIN_NAMES = "use letters, digits, dots, hyphens, underscores"  # the fix for an invalid name

_BYTE = late(r"\(byte (\d+)\)")
_PLAIN_NAME = late(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Report:
    """Collects one plugin's problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    @property
    def is_broken(self) -> bool:
        """Whether any problem is an error."""
        return any(problem.level == "error" for problem in self.problems)

    def error(self, message: str, hint: str = "", code: str = "bad_manifest") -> None:
        """Report something that keeps the plugin from loading."""
        self.problems.append(Problem(code, message, hint, "error"))

    def needs_text(self, raw: dict[str, Any], field: str, missing: str, cure: str, where: str) -> None:
        """Report a required text that is `missing`, or a value of another type in its place."""
        value = raw.get(field)
        if value is None or isinstance(value, str):
            self.error(f"{missing} at {where}", renamed(raw, field) or cure)
        else:
            self.error(f"'{field}' must be a string, not {json_values.kind(value)}, at {where}", "put it into quotes")

    def warn(self, message: str, hint: str = "", code: str = "bad_manifest") -> None:
        """Report something that does not."""
        self.problems.append(Problem(code, message, hint, "warning"))


def read_file(path: str, largest: int = LARGEST_FILE, folder: str = "") -> bytes:
    """Read a small regular file of a plugin; raises OSError, also if it is not one.

    `folder` is the plugin's, if the file is not directly in it. A link may lead to it inside the plugin: one that leads
    outside could name a file that the plugin may not read, for us to show.
    """
    return untrusted_files.read_inside(folder or os.path.dirname(path), path, largest)


def read_object(
    path: str, report: Report, *, fatal: bool = True, folder: str = "", largest: int = LARGEST_MANIFEST
) -> dict[str, Any] | None:
    """Read a JSON object; a fault is reported and returns None. `folder` as in `read_file`."""
    note = report.error if fatal else report.warn
    name = os.path.basename(path)
    try:
        text = read_file(path, largest, folder)
    except OSError as error:
        note(f"Cannot read plugin manifest at {path}: {error.strerror or error}", "make it a readable file")
        return None
    try:
        value = msgspec.json.decode(text.removeprefix(BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        where = f"{path}{_place(text, str(error))}"
        note(
            f"{name} is not valid JSON at {where}: {error}", f"{typed('python3', '-m', 'json.tool', path)} shows where"
        )
        return None
    if not isinstance(value, dict):
        note(f"{name} is not valid JSON at {path}: it must contain an object", "begin it with { and end it with }")
        return None
    if why := json_values.excess(value, LARGEST_MANIFEST, MOST_VALUES):
        note(f"{name} at {path} is refused: {why}", "make it smaller")
        return None
    return value


def _place(text: bytes, error: str) -> str:
    """Return the line and column of an error that names a byte, or the end of a text that stops too early."""
    found = _BYTE.search(error)
    if found is None and "truncated" not in error:
        return ""
    before = text.removeprefix(BOM)[: int(found[1])] if found is not None else text.removeprefix(BOM).rstrip()
    column = len(before.rpartition(b"\n")[2].decode(errors="replace")) + 1
    return f", line {before.count(10) + 1}, column {column}"


def entrypoint(folder: str, base: str, given: str, report: Report, *, what: str, fatal: bool) -> str:
    """Resolve a program's path inside a plugin; a fault is reported and returns an empty string."""
    note = report.error if fatal else report.warn
    if given.startswith(("/", "~")) or "\0" in given:
        note(f"{what} '{given}' must be a relative path", "write it relative to its manifest")
        return ""
    if "/" not in given and base == folder and digest.covers(given) and _is_plain_program(path := f"{folder}/{given}"):
        return path  # the usual case: one check is enough
    path = os.path.normpath(os.path.join(base, given))
    real = os.path.realpath(path)  # a link could lead outside
    if not is_inside(path, folder) or not is_inside(real, folder):
        note(f"{what} '{given}' leads outside the plugin's folder", "keep the program inside the plugin")
        return ""
    if not digest.covers(path[len(folder) + 1 :]) or not digest.covers(real[len(folder) + 1 :]):
        note(
            (f"{what} '{given}' is in a folder that is not checked for changes"),
            "move the program to another folder of the plugin",
        )
        return ""
    warn_if_not_executable(path, f"{what} '{given}'", report)
    return path


def warn_if_not_executable(path: str, what: str, report: Report) -> None:
    """Report that a program cannot be run, if that is obvious."""
    if os.access(path, os.X_OK) and not os.path.isdir(path):
        return
    fault = diagnose(path)
    if fault is not None:
        report.warn(f"{what} cannot be run: {fault.reason}", fault.hint, "not_executable")


def renamed(raw: dict[str, Any], field: str) -> str:
    """Return how to rename the key that a missing field was probably meant to have; empty if there is none."""
    key = "" if field in raw else near(field, raw)
    return f'rename "{key}" to "{field}"' if key else ""


def find_slips(raw: dict[str, Any], keys: Iterable[str], where: str, report: Report, said: str = "") -> None:
    """Report keys that are probably misspelt, except those that the hints already `said` name."""
    there = {key.lower() for key, value in raw.items() if value is not None}
    for key in raw:
        meant = near(key.lower(), keys) if key.lower() not in keys else ""
        if meant and meant not in there and f'"{key.lower()}"' not in said.lower():
            report.warn(f"'{key}' in {where} is unknown", f'did you mean "{meant}"?')


def near(word: str, others: Iterable[str]) -> str:
    """Return the word that differs by at most one typo, or two in a long word; empty if none does."""
    most = 2 if len(word) >= LONG_WORD else 1
    close = [(slips, other) for other in others if (slips := _slips(word, other, most)) <= most]
    return min(close)[1] if close else ""


def _slips(word: str, other: str, most: int) -> int:
    """Count the missing, extra, wrong or swapped letters, up to a maximum."""
    if abs(len(word) - len(other)) > most or max(len(word), len(other)) > LONGEST_WORD:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word):
        earlier, before, row = before, row, [i + 1]
        for j, wanted in enumerate(other):
            row.append(min(before[j] + (letter != wanted), before[j + 1] + 1, row[j] + 1))
            if i and j and letter == other[j - 1] and word[i - 1] == wanted:
                row[-1] = min(row[-1], earlier[j - 1] + 1)
    return row[-1]


def is_plain_name(name: str) -> bool:
    """Return whether a name is a valid file name and nothing more."""
    return bool(_PLAIN_NAME.fullmatch(name))


def _is_plain_program(path: str) -> bool:
    """Return whether a path is an executable file itself, and not a link."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & digest.EXECUTABLE)


def is_code(path: str) -> bool:
    """Return whether a file is code, by its name."""
    return os.path.splitext(path)[1].lower() in digest.CODE_SUFFIXES


def is_the_machines(program: str) -> bool:
    """Return whether a program belongs to the system, or only runs others' code."""
    name = os.path.basename(program).rstrip("0123456789.-")  # python3.12, perl5.38-2
    return program.startswith(SYSTEM_FOLDERS) or name in INTERPRETERS | FETCHERS


def are_direct(folder: str, paths: Iterable[str]) -> bool:
    """Return whether normalised paths name files directly in a folder."""
    return all(path.rpartition("/")[0] == folder for path in paths)


def is_inside(path: str, folder: str) -> bool:
    """Return whether a normalised path is in a folder."""
    return path.startswith(folder + os.sep)
