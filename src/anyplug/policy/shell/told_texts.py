"""Shell texts that a command tells other programs to run, and files that it names in other languages.

Options that take a command (`git rebase -x`, `tar --checkpoint-action`), settings (`git -c core.pager=`, `PAGER=`),
scripts of `sed` and `awk`, commands of editors, and the strings in programs passed to interpreters. A file that such a
text reads or writes is returned as a shell command: `sed p FILE`, `sed p x > FILE`. Nothing is run; programs that
compose their texts in other ways are not followed.
"""

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell import git_configuration, program_texts, sed_scripts
from anyplug.policy.shell.substitutions import UNKNOWN
from anyplug.policy.shell.syntax import PREFIXES

PYTHON: Final = late(r"python[0-9.]*|pypy[0-9.]*")
LANGUAGES: Final = frozenset(
    {"perl", "node", "nodejs", "bun", "deno", "ruby", "php", "lua", "luajit", "tclsh", "Rscript", "osascript", "julia"}
)
AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
EDITORS: Final = frozenset({"vi", "vim", "nvim", "ex", "view", "ed", "emacs"})
MAKERS: Final = frozenset({"make", "gmake", "just"})
SHELLED: Final = frozenset(
    {"sqlite3", "psql", "mysql", "mariadb", "gdb", "lldb", "lftp", "ftp", "less", "man", "duckdb"}
)
CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
MOUNTED: Final = "-sfT"  # how `ln` is told to make a link that stands for a folder in a container
SHORT_OPTIONS: Final = {  # that take a command
    "tar": "IF", "gtar": "IF", "bsdtar": "I", "rsync": "e", "git": "xOu", "npm": "c", "npx": "c", "pnpm": "c",
    "su": "c", "runuser": "c", "mapfile": "C", "readarray": "C",
}  # fmt: skip
CARRYING: Final = PREFIXES | {"find", "parallel", "fd", "then", "do", "else", "if", "while", "!", "{"}
UNSET: Final = "$?"  # stands for a value that is not known
MOST_TEMPLATES: Final = 8  # strings of a program in which it inserts another one
MOST_NAMES: Final = 512  # of a folder, that the pieces of a program are compared with
MOST_BEFORE: Final = 12  # words before a program that another one runs
LONGEST_NAME: Final = 256  # characters of a text that is looked for as a file
LONGEST: Final = 4096  # characters of a text in another language
_OPTION: Final = late(
    r"--(?:\w+-)*(?:exec|extcmd|command|cmd|action|script|program|filter|pager|editor|shell|rsh|run|pack|eval|call)"
    r"(?:=([\s\S]*))?"
)
_ENVIRONMENT: Final = late(r"(?:\w*(?:PAGER|EDITOR|COMMAND|OPEN|EXTERNAL_DIFF|ASKPASS|BROWSER|_SSH)|VISUAL)=([\s\S]+)")
STARTED: Final = late(r"(?:BASH_ENV|ENV|PYTHONSTARTUP)=([\s\S]+)")  # a file that runs first
_SETTING: Final = late(
    r"pager|editor|command|program|cmd|helper|driver|external|textconv|clean|smudge|process|fsmonitor|hook",
    re.IGNORECASE,
)
_AWK_COMMAND: Final = late(
    r"""\|&?\s*"((?:\\.|[^"\\])*)"|"((?:\\.|[^"\\])*)"\s*\|&?|system\s*\(\s*"((?:\\.|[^"\\])*)\""""
)
_AWK_WRITES: Final = late(r""">>?\s*"((?:\\.|[^"\\])*)\"""")
_SED_ACTION: Final = late(r"([rRwWe])[ \t]*([^\s;}][^\n]*)")
_SHELLED: Final = late(r"(?:^|[\s;|:])(?:\.shell|\.system|\\!|shell|system|!)\s*(\S[^\n]*)")
_MADE_BY_MAKE: Final = late(r"\$[({]shell ([^)}]*)[)}]")
_REMOVING: Final = late(
    r"rmtree|remove|unlink|rename|rmdir|rmSync|rm_r|\brm\(|delete|\bmove\(|\.mv\b|copy_?tree|cpSync|cp_r", re.IGNORECASE
)
_WALKING: Final = late(r"glob|iterdir|walk|scandir|listdir|readdir|readdirSync|children|<[^<>\s]*\*[^<>\s]*>")
_WRITING: Final = late(r"write|truncate|touch|chmod|dump|open\([^()]*,\s*[\"'][^\"']*[wax+]", re.IGNORECASE)
_CONTAINER_FLAG: Final = late(
    r"-[itdPqT]+|--(?:rm|init|privileged|read-only|detach|interactive|tty|publish-all|quiet|no-healthcheck|no-deps|build)"
)
_PATH: Final = late(r"[~.]?[\w.@%+~*?\[\]{},-]*(?:/[\w.@%+~*?\[\]{},-]*)+|\.?[\w@%+~*?\[\]-]+\.\w+|\.[\w.*?-]+")


def of(words: Sequence[str], folder: str, fed: Sequence[str] = ()) -> Iterator[str]:
    """Yield the shell texts that a command is told to run; `fed` are texts that it may read."""
    for word in words:
        if found := _ENVIRONMENT.match(word):
            yield found[1]
        if found := STARTED.match(word):
            yield f". {shlex.quote(found[1])}"
    start = next((at for at, word in enumerate(words) if "=" not in word or word.startswith("-")), len(words))
    for at in range(start, min(len(words), start + MOST_BEFORE)):
        yield from _of_program(list(words[at:]), folder, fed, [word.partition("=")[2] for word in words[:start]])
        if _name(words[start]) not in CARRYING:
            break


def of_settings(lines: Sequence[Sequence[str]], folders: Sequence[str]) -> Iterator[str]:
    """Yield what git's settings and aliases make the git commands of a line run, each of them in its folder."""
    for one in git_configuration.settings(lines):
        yield from _setting(one.key, one.value or "")
    yield from git_configuration.aliased(lines, folders)


def is_language(name: str) -> bool:
    """Return whether a program reads texts in another language."""
    return name in LANGUAGES or name in AWKS or bool(PYTHON.fullmatch(name))


def _of_program(  # noqa: C901 - one branch for each language
    words: list[str], folder: str, fed: Sequence[str], variables: Sequence[str]
) -> Iterator[str]:
    name, rest = _name(words[0]), words[1:]
    yield from _options(name, rest)
    if UNKNOWN in name:
        yield from (rest[at + 1] for at, word in enumerate(rest[:-1]) if re.fullmatch(r"-\w*c", word))
    elif name == "git":
        yield from _git(rest)
    elif name.startswith("git-"):
        yield shlex.join(["git", name.removeprefix("git-"), *rest])
    elif name == "sed":
        found = sed_scripts.scripts(rest)
        for word in rest if found is None else found:
            yield from _sed(word)
    elif name in AWKS:
        for word in rest:
            yield from _awk(word, folder)
        yield from _composed("awk 1 >", " ".join(rest), folder)
    elif name in EDITORS or name in SHELLED:
        quoted = (text for given in (*rest, *fed) for text in program_texts.strings(given[:LONGEST]))
        yield from itertools.islice((text for text in quoted if " " in text), program_texts.MOST_STRINGS)
        texts = [word.removeprefix("+").removeprefix("--cmd=") for word in (*rest, *fed)]
        yield from (found[1] for text in texts for found in _SHELLED.finditer(text[:LONGEST]))
        for text in texts if name in EDITORS else ():
            yield from (f"{name} {_globbing(word)}" for word in text.split()[1:] if " " in text)
    elif name in CONTAINERS:
        yield from _contained(rest)
    elif name in MAKERS:
        for text in (*rest, *fed):
            yield from (found[1] for found in _MADE_BY_MAKE.finditer(text))
            if " " in text or ":" in text:
                yield text.partition("=")[2] if text.startswith("--eval=") else text
                yield from (line.partition(":")[2].lstrip(": ;@-") for line in text.split("\n"))
    if PYTHON.fullmatch(name):
        at = next((at for at, word in enumerate(rest) if re.match(r"-[A-Za-z]*m", word)), -1)
        if at >= 0:
            module = rest[at].partition("m")[2]
            yield shlex.join([*([module] if module else ()), *rest[at + 1 :]])
    if PYTHON.fullmatch(name) or name in LANGUAGES:
        whole = " ".join((*variables, *rest, *fed))[:LONGEST]
        for text in (*rest, *fed):
            if any(char in text for char in " ('\"`"):
                yield from _strings(name, text[:LONGEST], folder)
                for one in rest[:MOST_BEFORE]:  # what the program is given, with its strings behind it
                    given = (f"{one}/{each.lstrip('/')}" for each in program_texts.strings(text[:LONGEST]))
                    yield from _files(name, [path for path in given if one != text and _is_there(path, folder)], folder)
        yield from _composed("rm -r" if _REMOVING.search(whole) else name, whole, folder)


def _options(name: str, rest: Sequence[str]) -> Iterator[str]:
    """Yield the values of options that take a command, for any program."""
    letters = SHORT_OPTIONS.get(name, "")
    for at, word in enumerate(rest):
        following = "".join(rest[at + 1 : at + 2])
        if found := _OPTION.fullmatch(word):
            value = following if found[1] is None else found[1]
            yield value.removeprefix("exec=")
        elif letters and len(word) > 1 and word[0] == "-" and word[1] != "-":
            cut = next((number for number, char in enumerate(word) if number and char in letters), 0)
            if cut:
                yield word[cut + 1 :] or following


def _git(rest: Sequence[str]) -> Iterator[str]:
    """Yield what commands of git run."""
    for at, word in enumerate(rest):
        if word in {"foreach", "run"} and {"submodule", "bisect"} & set(rest[:at]):
            told = [one for number, one in enumerate(rest[at + 1 :]) if number or not one.startswith("-")]
            yield " ".join(told) if len(told) == 1 else shlex.join(told)
        elif word.startswith("ext::"):
            yield word.removeprefix("ext::").replace("% ", " ").replace("%20", " ")


def _contained(rest: Sequence[str]) -> Iterator[str]:
    """Yield what runs in a container, with the folders that it shares as links to them."""
    at = next((at for at, word in enumerate(rest) if word in {"run", "create"}), len(rest)) + 1
    before, first = [], "cd / && "
    while at < len(rest) and rest[at].startswith("-"):
        option, equals, value = rest[at].partition("=")
        is_flag = bool(_CONTAINER_FLAG.fullmatch(option))
        value = value if equals or is_flag else "".join(rest[at + 1 : at + 2])
        at += 1 if equals or is_flag else 2
        source = target = mode = ""
        if option in {"-v", "--volume"}:
            source, _, target = value.partition(":")
            target, _, mode = target.partition(":")
        elif option == "--mount":
            told = dict(part.partition("=")[::2] for part in value.split(","))
            source = told.get("source") or told.get("src") or ""
            target = told.get("target") or told.get("dst") or told.get("destination") or ""
            mode = "ro" if {"readonly", "ro"} & set(told) else ""
        elif option in {"-w", "--workdir"}:
            first = f"cd {shlex.quote(value)} && "
        elif option == "--entrypoint":
            rest = [*rest[: at + 1], value, *rest[at + 1 :]]
        if target and "ro" not in mode.split(",") and source[:1] in "./~$":
            before.append(f"ln {MOUNTED} {shlex.quote(source)} {shlex.quote(target)}; ")
    if rest[at + 1 :]:
        yield f"{''.join(before)}{first}{shlex.join(rest[at + 1 :])}"


def _setting(key: str, value: str) -> Iterator[str]:
    if key.lower().startswith("alias."):
        yield value[1:] if value.startswith("!") else f"git {value}"
    elif value and (value.startswith("!") or _SETTING.search(key)):
        yield value.removeprefix("!")


def _sed(script: str) -> Iterator[str]:
    """Yield the files that a `sed` script reads and writes, and the commands that it runs."""
    found = sed_scripts.actions(script)
    if found is None:  # what may be a command or a file, wherever it stands
        found = (sed_scripts.Action(one[1].lower(), one[2]) for one in _SED_ACTION.finditer(script[:LONGEST]))
    for kind, text in found:
        yield text if kind == "e" else f"sed p x > {shlex.quote(text)}" if kind == "w" else f"sed p {shlex.quote(text)}"


def _awk(program: str, folder: str) -> Iterator[str]:
    program = program[:LONGEST]
    yield from (next(filter(None, found.groups()), "") for found in _AWK_COMMAND.finditer(program))
    yield from (f"awk 1 > {shlex.quote(found[1])}" for found in _AWK_WRITES.finditer(program))
    strings = program_texts.strings(program)
    yield from _files("awk 1", strings, folder)
    yield from _joined("awk 1 >" if ">" in program else "awk 1", strings, folder)


def _strings(name: str, program: str, folder: str) -> Iterator[str]:
    """Yield the strings in a program as commands, alone and as the words of one, and those that are paths as files."""
    program, walked = program_texts.walks(program)
    is_changing = _REMOVING.search(program) or _WRITING.search(program)
    for place, pattern in walked if is_changing else ():
        yield f"find {shlex.quote(place)} -name {shlex.quote(pattern)} -exec rm -r {{}} +"
    for texts in program_texts.readings(program):
        yield from (text for text in texts if " " in text)
        if len(texts) > 1:
            yield shlex.join(texts)
    found = program_texts.strings(program)
    yield from _files(name, found, folder)
    yield from _joined(name, found, folder)
    if is_changing and _WALKING.search(program):
        yield from _walked([text for text in found if text and not any(char in text for char in " \n\0")], folder)
    if _REMOVING.search(program):
        yield from _files("rm -r", found, folder)
    if "extract" in program or "unpack" in program:
        yield from _files("tar xf", found, folder)


def _walked(texts: Sequence[str], folder: str) -> Iterator[str]:
    """Yield what changes the files that a program finds: by a name below its folders, and in them."""
    starts = [text for text in texts if os.path.isdir(os.path.join(folder, text))]
    for text in texts:
        if text in starts:
            yield f"tee {shlex.quote(text)}/*"
        else:
            yield f"find {shlex.join(starts or ['.'])} -name {shlex.quote(text)} -delete"
            yield f"tee {_globbing(text)}"


def _joined(name: str, texts: Sequence[str], folder: str) -> Iterator[str]:
    """Return files whose names are put together of two strings, as `Path("a") / "b"` and `"a/" + "b"` are."""
    pairs = (text for pair in itertools.pairwise(texts) for text in ("/".join(pair), "".join(pair)))
    templates = itertools.islice(filter(program_texts.PLACEHOLDER.search, texts), MOST_TEMPLATES)
    filled = (one.join(program_texts.PLACEHOLDER.split(text)) for text in templates for one in texts)
    made = (*pairs, *filled)
    yield from (f"{name} {shlex.quote(text)}" for text in made if len(text) < LONGEST_NAME and _is_there(text, folder))


def _composed(name: str, program: str, folder: str) -> Iterator[str]:
    """Return files in a folder whose names a program can put together of its words."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_NAMES)]
    except (OSError, ValueError):
        return
    made = program_texts.composed(program_texts.pieces(program), names)
    yield from (f"{name} {shlex.quote(text)}" for text in made)


def _files(name: str, texts: Sequence[str] | Iterator[str], folder: str) -> Iterator[str]:
    for text in texts:
        if _PATH.fullmatch(text) or (
            text and "\0" not in text and len(text) < LONGEST_NAME and _is_there(text, folder)
        ):
            parts = program_texts.PLACEHOLDER.split(text)
            yield f"{name} {_globbing(text) if '{' in text and len(parts) < 2 else UNSET.join(map(shlex.quote, parts))}"  # noqa: PLR2004


def _is_there(text: str, folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, text))


def _globbing(word: str) -> str:
    """Quote a word, except for its globs and braces."""
    return "".join(char if char in "*?[]{}," else shlex.quote(char) for char in word)


def _name(word: str) -> str:
    return word.rpartition("/")[2]
