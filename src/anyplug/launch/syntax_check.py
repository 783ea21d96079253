"""Parse a plugin's scripts with their own interpreters, in the sandbox of a plugin without grants. Runs none of them.

JavaScript by `node --check`, shell scripts by `bash -n`, Python by its `ast`; whatever is not installed is skipped.
"""

import os
import re
import shutil
from collections.abc import Iterator
from itertools import islice

from anyplug.catalog.approvals import Standing
from anyplug.formats import registry
from anyplug.home import digest, untrusted_files
from anyplug.home.settings import Home
from anyplug.launch.sandbox_rooms import Rooms
from anyplug.model.errors import AnyplugError
from anyplug.model.types import Plugin, Problem
from anyplug.model.untrusted_text import for_people
from anyplug.runtime.processes.program import Program
from anyplug.runtime.processes.toolchain import find_node
from anyplug.runtime.runner import Runner
from anyplug.secrets import env_vars

LANGUAGES = {
    ".ts": "TypeScript",
    ".mts": "TypeScript",
    ".cts": "TypeScript",
    ".js": "JavaScript",
    ".cjs": "JavaScript",
    ".mjs": "JavaScript",
    ".sh": "shell",
    ".py": "Python",
}
INTERPRETERS = {"node": "JavaScript", "bash": "shell", "sh": "shell", "python3": "Python", "python": "Python"}
PARSE_PYTHON = """import ast, sys
try:
    ast.parse(open(sys.argv[1], 'rb').read(), sys.argv[1])
except SyntaxError as error:
    sys.exit(f'{type(error).__name__}: {error.msg}\\n, line {error.lineno}, column {error.offset}')
"""
# Node can do that from 22.13 on; an older one says nothing.
PARSE_TYPESCRIPT = """const parse = require('node:module').stripTypeScriptTypes;
const sourceUrl = process.argv[1];
try {
  parse?.(require('node:fs').readFileSync(sourceUrl, 'utf8'), { mode: 'transform', sourceUrl });
} catch (error) {
  console.error(error.stack.split('\\n    at ')[0].replace(/ \\[ERR_[A-Z_]*\\]/, ''));
  process.exit(1);
}
"""
HEAD = 200  # bytes of a file that has no suffix, for its first line
NOT_READ = digest.NEVER | {"node_modules"}  # other people's code, which may be for other versions of Node
MOST_FILES = 100  # each takes about 50 ms
MOST_SEEN = 10_000  # files of a plugin, scripts or not
TIMEOUT_S = 10.0
MOST_OUTPUT = 20_000  # bytes; the line with the error is shown whole, and may be long
LONGEST = 200  # characters of an error
CURE = "fix it there"
IN_COMMONJS = re.compile("Unexpected token 'export'|Cannot use import statement outside")  # words of Node
_PATTERNS = {  # the line and the error
    "TypeScript": (re.compile(r":(\d+)\n(?:(?:.*\n)*?( *)\^)?"), re.compile(r"^(SyntaxError: .*)$", re.MULTILINE)),
    "JavaScript": (re.compile(r":(\d+)\n(?:.*\n( *)\^)?"), re.compile(r"^(SyntaxError: .*)$", re.MULTILINE)),
    "Python": (
        re.compile(r", line (\d+), column (\d+)$", re.MULTILINE),
        re.compile(r"^((?:Syntax|Indentation|Tab)Error: .*)$", re.MULTILINE),
    ),
    "shell": (re.compile(r": line (\d+):"), re.compile(r": line \d+: (.*)$", re.MULTILINE)),
}


def scripts(plugin: Plugin) -> list[tuple[str, str]]:
    """List the scripts of a plugin, relative to it, each with its language."""
    return list(islice(_files(plugin), MOST_FILES))


async def faults(home: Home, plugin: Plugin) -> list[Problem]:
    """Return the syntax errors in a plugin's scripts; none if there is no sandbox to parse them in."""
    parsers = {language: words for language, words in _parsers().items() if words}
    found = [(name, language) for name, language in scripts(plugin) if language in parsers]
    if not found:
        return []
    runner = Runner(home.path)
    variables = env_vars.divide(dict(os.environ), frozenset()).given
    variables.pop("NODE_OPTIONS", None)
    checked = Plugin(name=f"check@{plugin.name}", format=registry.PLAIN.NAME, path=plugin.path)
    rooms = Rooms(
        home,
        home.read_settings(),
        runner.guard,
        runner.direct,
        plugin.path,
        None,
        variables=variables,
        runs=(plugin.path,),
    )
    try:
        room = await rooms.enter(checked, Standing(state="approved", granted=("filesystem:read:.",)))
        inside = registry.PLAIN.environment(checked, home, variables, frozenset())
        problems = []
        for name, language in found:
            program = Program(
                argv=(*parsers[language], os.path.join(plugin.path, name)),
                cwd=plugin.path,
                env={**inside, **runner.environment},
                timeout_s=TIMEOUT_S,
                max_stdout=MOST_OUTPUT,
                max_stderr=MOST_OUTPUT,
            )
            ended = await runner(program, room.spawn)
            said = ended.stderr.decode(errors="replace")
            if ended.exit_code not in {0, None} and (fault := _fault(name, language, said)) is not None:
                problems.append(fault)
        rooms.leave(room)
    except AnyplugError:
        return []  # not parsed rather than parsed without a sandbox
    finally:
        rooms.close()
        runner.close()
    return problems


def _parsers() -> dict[str, tuple[str, ...]]:
    """Return the command that parses a file, by language; empty where there is none."""
    node, bash, python = find_node(), shutil.which("bash"), shutil.which("python3")
    return {
        "JavaScript": (node, "--check") if node is not None else (),
        "TypeScript": (node, "-e", PARSE_TYPESCRIPT) if node is not None else (),
        "shell": (bash, "-n") if bash is not None else (),
        "Python": (python, "-I", "-c", PARSE_PYTHON) if python is not None else (),
    }


def _files(plugin: Plugin) -> Iterator[tuple[str, str]]:
    seen = 0
    for inside, folders, names in os.walk(plugin.path):
        folders[:] = sorted(set(folders) - NOT_READ)
        for name in sorted(names):
            if (seen := seen + 1) > MOST_SEEN:
                return
            path = os.path.join(inside, name)
            interpreters = _first_line(path)
            language = LANGUAGES.get(os.path.splitext(name)[1]) or next(
                (INTERPRETERS[word] for word in interpreters if word in INTERPRETERS), ""
            )
            relative = os.path.relpath(path, plugin.path)
            is_said = any(problem.message.startswith((f"{relative}:", f"{relative},")) for problem in plugin.problems)
            if language and not is_said and "python2" not in interpreters:
                yield relative, language


def _first_line(path: str) -> list[str]:
    """Return the programs that a script's first line names."""
    try:
        head = untrusted_files.head(path, HEAD)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    words = head[2:].partition(b"\n")[0].decode(errors="replace").split()
    return [os.path.basename(word) for word in words if not word.startswith("-")][:2]


def _column(at: re.Match[str]) -> str:
    """Return the column of an error, if the interpreter shows it: as a number, or by the spaces before its mark."""
    shown = at[2] if at.re.groups > 1 else None
    if shown is None:
        return ""
    return f", column {shown if shown.isdecimal() else len(shown) + 1}"


def _fault(name: str, language: str, said: str) -> Problem | None:
    """Return what an interpreter said about a file; None if it is no syntax error."""
    at, wrong = (pattern.search(said) for pattern in _PATTERNS[language])
    if wrong is None:
        return None
    line = f", line {at[1]}{_column(at)}" if at is not None else ""
    is_module = language == "JavaScript" and IN_COMMONJS.search(wrong[1]) is not None
    return Problem(
        "syntax_error",
        f"{for_people(name, LONGEST)}{line} is not valid {language}: {for_people(wrong[1], LONGEST)}",
        "it is read as CommonJS, which has module.exports and require(), not export and import" if is_module else CURE,
        "error",
    )
