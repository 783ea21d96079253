"""The documents are true: examples run and give what they show, what is generated is current, links lead somewhere.

In README.md and docs/, from the top of a file to its end, sharing one user's folder:

    ```console                each `$` line runs in a terminal of its own; what follows it is what it must print.
                              (One that is only `anyplug` and words runs in a process forked from a prepared one.)
                              A line that ends in a backslash goes on in the next one, after `> `.
    ```python                 runs as a script; an ```output block after it is what it must print.
    <!-- file: PATH -->       the block after it is a file that the reader writes.
    <!-- more: PATH -->       the block after it goes to the end of that file.
    <!-- model: SCRIPT -->    what the model says from here on, a JSON list: texts, and [TOOL, ARGUMENTS] for calls.
    <!-- setup: COMMANDS -->  shell commands that the reader does not see; they must succeed.

`…` in expected output stands for anything; alone on its line for any number of lines. An answer is typed where the
expected output shows one after a question. The user is called ada. Times, dates, ids and hashes may differ.

With REWRITE_DOCS=1 in the environment, pages are written anew with what was printed, where that does not fit.
"""

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import forked_program
from anyplug.formats.zot import frames
from anyplug.frontends.cli.commands import COMMANDS
from anyplug.frontends.cli.parsing import command_parser, program_parser
from anyplug.home.settings import PluginSettings, PolicySettings, Settings
from anyplug.model.errors import CODES
from anyplug.model.permissions import KINDS
from model_servers import ModelServer, call, model_server, say
from rows import each_row

REPOSITORY = Path(__file__).parent.parent
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
REFERENCE = REPOSITORY / "docs" / "reference"
REWRITE = bool(os.environ.get("REWRITE_DOCS"))
USER = "/home/ada"
COLUMNS = 110  # the width of the reader's terminal
PATIENCE_S = 60.0  # for one command
PROGRAMS = {"git": "git init", "jq": "jq -"}  # that a machine may lack, and how a page shows that it needs one
SECRET = "correct-horse"  # what is typed where nothing is shown
FOR_THE_SHELL = re.compile(r"[|&;<>()$`*?\[\]{}~#\\!\n]")
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\!]*\"""")

ITEM = re.compile(
    r"^<!-- (?P<comment>setup|model|file|more):\s*(?P<value>.*?)\s*-->$|^```(?P<language>\w*)\n(?P<content>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
QUESTION = re.compile(r"^.*(?:\[y/N\]|\[N\]o:|\(not shown\):)(?: (\S*))?$", re.MULTILINE)
VARYING = (
    (re.compile(r"^.* is still starting; `anyplug .*logs .*\n?", re.MULTILINE), ""),  # where a machine is slow
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "DATE"),
    (re.compile(r"\b\d{10}\.\d+"), "MOMENT"),
    (re.compile(r'"duration_ms": [\d.]+'), '"duration_ms": 1'),
    (re.compile(r"\b\d+ ms\b"), "1 ms"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b"), "HASH"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)


class Step(NamedTuple):
    line: int
    kind: str  # setup, model, file, more, console or python
    text: str
    expected: str | None = None
    shown: slice = slice(0)  # the lines of the page that are the expected output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_example_gives_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text()
    for program, used in PROGRAMS.items():
        if used in text and shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    with model_server() as model:
        user = Reader(tmp_path / "ada", monkeypatch, model)
        wrong = [
            (step, said)
            for step, said in ((step, user.follow(step)) for step in read(text))
            if step.expected is not None and not fits(step.expected, said)
        ]
    if wrong and REWRITE:
        lines = text.splitlines()
        for step, said in reversed(wrong):
            lines[step.shown] = [line.rstrip() for line in said.strip("\n").split("\n")] if said.strip() else []
        page.write_text("\n".join([*lines, ""]))
    elif wrong:
        pytest.fail("\n\n".join(_difference(page, step, said) for step, said in wrong), pytrace=False)


@each_row("page", PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, place = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} does not exist"
        if place:
            assert place in _anchors(found.read_text()), f"{target}: no such heading"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = REPOSITORY / "docs" / "README.md"
    named = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", index.read_text())}
    assert [page for page in PAGES if page.is_relative_to(index.parent) and page not in {*named, index}] == []


def test_every_error_code_is_documented() -> None:
    text = (REFERENCE / "errors.md").read_text()
    assert [code for code in CODES if f"`{code}`" not in text] == []


def test_every_setting_is_documented() -> None:
    text = (REFERENCE / "settings.md").read_text()
    names = [*Settings.__struct_fields__, *PluginSettings.__struct_fields__, *PolicySettings.__struct_fields__]
    assert [name for name in names if f"`{name}`" not in text and f"[{name}." not in text] == []


def test_every_command_and_option_is_documented() -> None:
    text = (REFERENCE / "cli.md").read_text()
    parsers = [program_parser(), *(command_parser(name)[0] for name in COMMANDS)]
    options = {option for parser in parsers for action in parser._actions for option in action.option_strings}
    assert [name for name in COMMANDS if f"anyplug {name}" not in text] == []
    assert [option for option in options if f"`{option}" not in text] == []


def test_every_permission_is_documented() -> None:
    text = (REFERENCE / "permissions.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}" not in text] == []


def test_every_frame_is_documented_with_its_fields() -> None:
    rows = [line for line in (REFERENCE / "zot.md").read_text().splitlines() if line.startswith("| `")]
    for kind, shape in frames.INCOMING.items():
        fields = [f"`{name}`" for name in shape.__struct_fields__]
        assert [row for row in rows if f"`{kind}`" in row.split("|")[1] and all(name in row for name in fields)], kind


class Reader:
    """Somebody who follows a page, with a folder and a terminal of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, model: ModelServer) -> None:
        self._home = folder
        self._model = model
        self._environment = monkeypatch
        self._here = folder / "work"
        programs = folder / ".local" / "bin"  # only the program itself, and not all of the virtual environment's
        self._program = programs / "anyplug"
        programs.mkdir(parents=True)
        self._here.mkdir()
        self._program.symlink_to(Path(sys.executable).parent / "anyplug")
        monkeypatch.delenv("ANYPLUG_HOME")
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # with which a missing flush would not be noticed
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        for name, value in {
            "COLUMNS": str(COLUMNS),
            "TERM": "dumb",
            "NO_COLOR": "1",
            "REPOSITORY": str(REPOSITORY),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.org",
        }.items():
            monkeypatch.setenv(name, value)

    def follow(self, step: Step) -> str:
        """Do what a step says; give what was printed."""
        text = step.text.replace(USER, str(self._home))
        if step.kind in ("file", "more"):
            name, _, content = text.partition("\n")
            path = self._here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w" if step.kind == "file" else "a") as file:
                file.write(content)
            return ""
        if step.kind == "model":
            said = json.loads(text)
            self._model.script[:] = [say(one) if isinstance(one, str) else call(tuple(one)) for one in said]
            for provider, path in (("OPENAI", "/v1"), ("ANTHROPIC", "")):
                self._environment.setenv(f"{provider}_BASE_URL", self._model.url + path)
                self._environment.setenv(f"{provider}_API_KEY", "a-key")
            return ""
        if step.kind == "console":
            return self._in_a_terminal(text, step.expected or "")
        if step.kind == "python":
            code, out = self._python(text)
        else:
            done = subprocess.run(
                ["bash", "-euc", text], cwd=self._here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                timeout=PATIENCE_S,
            )  # fmt: skip
            code, out = done.returncode, done.stdout
        said = out.decode().replace(str(self._home), USER)
        assert code == 0, f"line {step.line}: {step.text}\n{said}"
        return said

    def _python(self, text: str) -> tuple[int, bytes]:
        """Run a script; give its exit code and what it printed."""
        with tempfile.TemporaryFile() as out:
            streams = (subprocess.DEVNULL, out.fileno(), out.fileno())
            process = forked_program.forks().start([text], streams, cwd=self._here, script="-c")
            try:
                code = process.wait(PATIENCE_S)
            finally:
                process.kill()
            out.seek(0)
            return code, out.read()

    def _in_a_terminal(self, command: str, expected: str) -> str:
        """Run a shell command as a person does; `cd` lasts."""
        answers = [SECRET if found[1] is None else found[1] for found in QUESTION.finditer(expected)]
        ours, theirs = pty.openpty()
        name = os.ttyname(theirs)
        where = self._home / ".here"
        # The first terminal that a new session opens is its own, as getpass wants it.
        script = f"exec <{name} >{name} 2>&1\n{command}\npwd >{where}\n"
        process: subprocess.Popen[bytes] | forked_program.Process
        words = plain_words(command) if self._program.is_symlink() else []
        if words and words[0] == "anyplug":  # which the shell would only pass on
            process = forked_program.forks().start(words[1:], (theirs,) * 3, cwd=self._here, terminal=name)
        else:
            process = subprocess.Popen(["bash", "-c", script], cwd=self._here, start_new_session=True)
        said = ""
        until = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < until:
                ended = process.poll() is not None
                if select.select([ours], [], [], 0 if ended else 0.02)[0]:
                    said += os.read(ours, 65536).decode(errors="replace").replace("\r\n", "\n")
                    asked = said.rpartition("\n")[2]
                    if answers and asked.endswith(" ") and QUESTION.fullmatch(asked.rstrip()):
                        os.write(ours, f"{answers.pop(0)}\n".encode())
                elif ended:
                    break
        finally:
            os.close(ours)
            os.close(theirs)
            process.kill()
            process.wait()
        assert time.monotonic() < until, f"`{command}` did not end; so far it said:\n{said}"
        self._here = Path(where.read_text().strip()) if where.exists() else self._here
        return said.replace(str(self._home), USER)


def read(text: str) -> Iterator[Step]:
    """Find what is to be done in a page, in order."""
    kind = file = ""
    items = list(ITEM.finditer(text))
    for at, item in enumerate(items):
        line = text.count("\n", 0, item.start()) + 1  # of the fence, and so the index of what is inside
        content = item["content"] or ""
        if item["comment"] in ("setup", "model"):
            yield Step(line, item["comment"], item["value"])
        elif item["comment"]:
            kind, file = item["comment"], item["value"]
        elif file:
            yield Step(line, kind, f"{file}\n{content}")
            file = ""
        elif item["language"] == "console":
            yield from _commands(line, content.splitlines())
        elif item["language"] == "python":
            following = items[at + 1] if at + 1 < len(items) else None
            if following is None or following["language"] != "output":
                yield Step(line, "python", content)
            else:
                begin = text.count("\n", 0, following.start()) + 1
                shown = slice(begin, begin + following["content"].count("\n"))
                yield Step(line, "python", content, following["content"], shown)


def plain_words(command: str) -> list[str]:
    """Return the words of a command without anything that a shell would change; empty if there is something."""
    return [] if FOR_THE_SHELL.search(QUOTED.sub("", command)) else shlex.split(command)


def fits(expected: str, said: str) -> bool:
    """Whether what was printed is what the page shows."""
    pattern = re.escape(plain(expected)).replace(r"…\n", "…\n").replace("\\\n", "\n")
    pattern = re.sub(r"^…(?:\n|\Z)", "(?:.*(?:\n|$))*?", pattern, flags=re.MULTILINE).replace("…", ".*")
    return re.fullmatch(pattern, plain(said)) is not None


def plain(text: str) -> str:
    """Take out what is another each time."""
    for varying, word in VARYING:
        text = varying.sub(word, text)
    return text.strip()


def _commands(begin: int, block: list[str]) -> Iterator[Step]:
    """Find the commands of a console block, whose first line has the index `begin`."""
    at = 0
    while at < len(block):
        first = at
        assert block[at].startswith("$ "), f"line {begin + at + 1}: a console block begins with a command"
        command = block[at][2:]
        at += 1
        while command.endswith("\\"):
            command += "\n" + block[at].removeprefix("> ")
            at += 1
        shown = at
        while at < len(block) and not block[at].startswith("$ "):
            at += 1
        expected = "\n".join(block[shown:at])
        yield Step(begin + first + 1, "console", command, expected, slice(begin + shown, begin + at))


def _difference(page: Path, step: Step, said: str) -> str:
    where = f"{page.relative_to(REPOSITORY)}, line {step.line}: {step.text}"
    return f"{where}\n--- the document says\n{step.expected}\n--- it printed\n{said}"


def _prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(text: str) -> set[str]:
    """Give the anchors that a page's headings have."""
    headings = re.findall(r"^#+ (.*)$", _prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_wildcard_stands_for_anything_and_nothing_else_does() -> None:
    assert fits("one … three", "one two three\n")
    assert fits("first\n…\nlast", "first\na\nb\nlast")
    assert fits("took 5 ms, id 0123abcd", "took 120 ms, id ffff0000")
    assert not fits("one … three", "one two four")
    assert not fits("first\nlast", "first\na\nlast")
