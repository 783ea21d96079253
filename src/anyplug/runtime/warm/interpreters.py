"""Find out which interpreter a program is run by, and whether it can be started ahead: by its first line alone.

Only what is known for certain is started ahead. Everything else starts cold, and people are shown the reason. Knows
nothing about plugins.
"""

import functools
import os
from typing import Literal

import msgspec

from anyplug.home import untrusted_files
from anyplug.model.late_patterns import late
from anyplug.runtime.processes.program import Program
from anyplug.runtime.processes.program_search import which

Kind = Literal["python", "node"]

VARIABLE = "_ANYPLUG_WARM"
HEAD_BYTES = 256  # of a shebang line that the kernel reads
MOST_ARGUMENT = 200  # characters of the rest of that line, so that the kernel does not cut it
PYTHON = late(r"python3?(\.[0-9]+)?")
NODE = frozenset({"node", "nodejs"})
# Flags that keep Python from loading the gate, or from running a script at all, are in neither list.
PYTHON_FLAGS = late(r"-[uBObqsdP]+")
PYTHON_PAIRS = ("-W", "-X")
NODE_FLAGS = late(
    r"--(no-warnings|no-deprecation|trace-warnings|trace-deprecation|enable-source-maps|stack-trace-limit=\d+"
    r"|max-old-space-size=\d+|max-semi-space-size=\d+|unhandled-rejections=[a-z-]+|experimental-[a-z-]+)"
)
NOT_EXPERIMENTS = ("--experimental-permission", "--experimental-loader", "--experimental-sea-config")
UV_FLAGS = frozenset({"--script", "-s", "--quiet", "-q", "--offline", "--no-project", "--no-config", "--frozen"})
UV_PAIRS = frozenset({"--python", "-p"})
# Variables with which an interpreter does not simply run the script, or looks for its own parts elsewhere.
UNUSUAL: dict[Kind, tuple[str, ...]] = {
    "python": ("PYTHONHOME", "PYTHONINSPECT", "PYTHONVERBOSE", "PYTHONDUMPREFS", "PYTHONPLATLIBDIR", "PYTHONSTARTUP"),
    "node": ("NODE_V8_COVERAGE", "NODE_COMPILE_CACHE", "NODE_REPL_EXTERNAL_MODULE", "NODE_DEBUG"),
}
QUOTES = frozenset("\"'\\$#")


class Interpreter(msgspec.Struct, frozen=True):
    """How a script is run."""

    kind: Kind
    words: tuple[str, ...]  # what the kernel executes, without the script: the interpreter and at most one argument
    path: str  # of the program that the words lead to
    identity: tuple[int, int, int]  # of that program's file
    by_uv: bool = False  # uv resolves an environment first, and runs its interpreter
    is_plain: bool = True  # no flags: it can import ahead what the script imports


class Cold(msgspec.Struct, frozen=True):
    """Why a program is not started ahead."""

    reason: str


def examine(program: Program) -> Interpreter | Cold:
    """Return what runs a program, or why it is not started ahead."""
    if len(program.argv) != 1 or not os.path.isabs(program.argv[0]):
        return Cold("it is run by a shell, or has arguments")
    try:
        head = untrusted_files.head(program.argv[0], HEAD_BYTES)
    except OSError as error:
        return Cold(f"it cannot be read: {error.strerror}")
    line, has_end, _ = head.partition(b"\n")
    if not line.startswith(b"#!"):
        return Cold("it is not a script")
    if not has_end or len(line) > MOST_ARGUMENT:
        return Cold("its first line is too long")
    try:
        text = line[2:].decode("ascii").strip(" \t")
    except UnicodeDecodeError:
        return Cold("its first line is not plain text")
    return _of_line(text, program)


def _of_line(text: str, program: Program) -> Interpreter | Cold:
    name, _, argument = text.partition(" ")
    argument = argument.strip(" \t")
    given = (name, argument) if argument else (name,)
    if not os.path.isabs(name) or not text.isprintable() or "\t" in text:
        return Cold("its interpreter has no absolute path")
    words = [name, *([argument] if argument else [])]
    if os.path.basename(name) == "env":
        unpacked = _behind_env(argument)
        if isinstance(unpacked, Cold):
            return unpacked
        words = unpacked
    elif " " in argument:
        return Cold("its interpreter gets several words as one argument")
    found = _resolved(words[0], program.env.get("PATH", os.defpath))
    if found is None:
        return Cold(f"its interpreter {words[0]} was not found")
    path, identity = found
    return _of_words(words, Interpreter(kind="python", words=given, path=path, identity=identity), program)


def _of_words(words: list[str], by: Interpreter, program: Program) -> Interpreter | Cold:
    own = os.path.basename(words[0])
    if PYTHON.fullmatch(own):
        fault = _python_fault(words[1:])
        by = msgspec.structs.replace(by, is_plain=len(words) == 1)
    elif own in NODE:
        wrong = [word for word in words[1:] if not NODE_FLAGS.fullmatch(word) or word.startswith(NOT_EXPERIMENTS)]
        fault = f"it starts Node with {wrong[0]}" if wrong else ""
        by = msgspec.structs.replace(by, kind="node")
    elif own == "uv":
        fault = _uv_fault(words[1:], program.argv[0])
        by = msgspec.structs.replace(by, by_uv=True)
    else:
        fault = f"only Python and Node are started ahead, and it is run by {own}"
    unusual = next((name for name in UNUSUAL[by.kind] if program.env.get(name)), "")
    fault = fault or (f"its environment has {unusual}" if unusual else "")
    return Cold(fault) if fault else by


def _behind_env(argument: str) -> list[str] | Cold:
    """Return the words that `env` runs."""
    if argument.startswith(("-S", "--split-string=")):
        rest = argument.removeprefix("--split-string=").removeprefix("-S")
        if set(rest) & QUOTES:
            return Cold("its first line has quotes or variables")
        words = rest.split()
    else:
        words = [argument] if argument else []
    if not words or " " in words[0]:
        return Cold("its first line names no interpreter")
    if words[0].startswith("-") or "=" in words[0]:
        return Cold("its first line changes the environment")
    return words


def _python_fault(flags: list[str]) -> str:
    pending = False
    for flag in flags:
        if pending:
            pending = False
        elif flag in PYTHON_PAIRS:
            pending = True
        elif not PYTHON_FLAGS.fullmatch(flag) and not flag.startswith(PYTHON_PAIRS):
            return f"it starts Python with {flag}"
    return "its first line ends in the middle" if pending else ""


def _uv_fault(words: list[str], script: str) -> str:
    if not words or words[0] != "run":
        return "it uses uv for something other than `uv run`"
    rest = iter(words[1:])
    for word in rest:
        if word in UV_PAIRS:
            next(rest, "")
        elif word not in UV_FLAGS:
            return f"it runs uv with {word}"
    if not {"--script", "-s"} & set(words) and not script.endswith(".py"):
        return "uv takes it for a command: its name does not end in .py, and there is no --script"
    return ""


def _resolved(name: str, search_path: str) -> tuple[str, tuple[int, int, int]] | None:
    found = name if os.path.isabs(name) else _which(name, search_path)
    if found is None:
        return None
    try:
        state = os.stat(found)
    except OSError:
        return None
    return os.path.realpath(found), (state.st_dev, state.st_ino, state.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _looked_up(name: str, search_path: str, _changed: tuple[int, ...]) -> str | None:
    return which(name, path=search_path)


def _which(name: str, search_path: str) -> str | None:
    """Look a program up in a PATH: again only when one of its folders has changed."""
    changed = []
    for folder in search_path.split(os.pathsep):
        try:
            changed.append(os.stat(folder or ".").st_mtime_ns)
        except OSError:
            changed.append(0)
    return _looked_up(name, search_path, tuple(changed))


def is_same(by: Interpreter) -> bool:
    """Return whether the program that an interpreter was found to be is still that file."""
    try:
        state = os.stat(by.path)
    except OSError:
        return False
    return (state.st_dev, state.st_ino, state.st_mtime_ns) == by.identity


def gated(program: Program, by: Interpreter, folder: str, word: str) -> Program:
    """Return the program that waits at the gate in `folder`; `word` is what both sides say."""
    env = dict(program.env)
    if by.kind == "node":
        import json  # already imported by every host

        options = env.get("NODE_OPTIONS")
        gate = os.path.join(folder, "gate.cjs")
        env["NODE_OPTIONS"] = f'--require "{gate}"' + (f" {options}" if options else "")
        env[VARIABLE] = json.dumps([word, options]).encode().hex()
        return msgspec.structs.replace(program, env=env, stdin=b"", files=None)
    import marshal  # built in

    path, prefix = env.get("PYTHONPATH"), env.get("PYTHONPYCACHEPREFIX")
    if prefix:  # bytecode that the plugin can write must not run before the call; in place, since the order shows
        env["PYTHONPYCACHEPREFIX"] = ""
    env["PYTHONPATH"] = folder + (os.pathsep + path if path else "")
    script = program.argv[-1] if by.is_plain else ""
    env[VARIABLE] = marshal.dumps((word.encode(), path, prefix, script), 2).hex()
    return msgspec.structs.replace(program, env=env, stdin=b"", files=None)
