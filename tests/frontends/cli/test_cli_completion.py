"""Completion: what each shell is offered, and the bash script in a real bash."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

import command_line
import plugin_folders
from anyplug.frontends.cli.commands import ALIASES, COMMANDS
from anyplug.frontends.cli.completion import SCRIPTS

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "top": {"type": "integer"}}}


def offered(*words: str, shell: str = "bash") -> list[str]:
    return command_line.ok("completion", shell, "--", *words).out.splitlines()


@pytest.fixture
def hello():
    schema = {"type": "object", "properties": {"who": {"type": "string"}}}
    plugin_folders.cyclop("plugins", tools=[{"name": "hello", "description": "Greets.", "input_schema": schema}])
    command_line.ok("approve", "hello", "--yes")


def in_bash(tmp_path, *words: str) -> list[str]:
    """Press Tab behind words in a real bash that has sourced the script."""
    program = tmp_path / "bin" / "anyplug"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command_line.PROGRAM)} "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(anyplug completion bash)"\n'
        "[[ $(complete -p anyplug) == *'-F _anyplug anyplug' ]] || exit 9\n"
        f"COMP_WORDS=(anyplug {shlex.join(words)})\n"
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        'compopt() { echo "compopt $*"; }\n'  # bash has it only while it completes
        "_anyplug\n"
        "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes_commands_options_and_names(tmp_path, hello):
    assert in_bash(tmp_path, "app") == ["approve"]
    assert in_bash(tmp_path, "list", "--st") == ["--state"]
    assert in_bash(tmp_path, "show", "") == ["hello"]
    assert in_bash(tmp_path, "call", "hel") == ["hello"]
    assert in_bash(tmp_path, "call", "hello", "wh") == ["compopt -o nospace", "who="]
    assert in_bash(tmp_path, "check", "") == [""]  # bash itself completes files


def test_commands_and_their_other_names_are_offered():
    assert offered("") == [*COMMANDS, *ALIASES]
    assert offered("help", "comp") == ["completion"]
    assert offered("--quiet", "lis") == ["list"]
    assert offered("--home", "") == []
    assert offered("nonsense", "") == []


def test_options_and_their_choices_are_offered():
    assert offered("rm", "--") == ["--yes", "--purge", "--json", "--help"]
    assert offered("--no") == ["--no-discover"]
    assert offered("list", "--state", "n") == ["new"]
    assert offered("connect", "cl") == ["claude", "claude-desktop", "cline"]
    assert offered("policy", "tr") == ["trust"]
    assert offered("completion", "f") == ["fish"]
    assert offered("list", "--", "--") == []


def test_names_are_offered_where_a_command_takes_them():
    plugin_folders.cyclop("plugins", "asleep")
    tool = {"name": "counter", "description": "Counts.", "input_schema": SCHEMA}
    folder = plugin_folders.cyclop("here", "counter", tools=[tool])
    options = ("-e", folder)
    assert offered(*options, "show", "") == ["asleep", "counter"]
    assert offered(*options, "call", "") == ["counter"]  # the other one is not approved
    assert offered(*options, "tools", "") == ["asleep", "counter"]
    assert offered(*options, "audit", "--tool", "c") == ["counter"]
    assert offered(*options, "show", "counter", "") == []
    assert offered(*options, "call", "counter", "t") == ["text=", "top="]
    assert offered(*options, "run", "counter", "text=x", "to") == ["top="]
    assert offered(*options, "call", "counter", "text", "=", "x") == []  # as bash takes it apart


def test_nothing_is_started_or_written():
    plugin_folders.cyclop("plugins", "hello", "#!/bin/sh\ntouch started")
    assert offered("show", "") == ["hello"]
    assert not os.path.exists("started")
    assert os.listdir(command_line.home()) == []


def test_a_name_that_a_shell_takes_for_more_than_text_is_not_offered():
    names = ["$(touch x)", "a;b", "`x`", "-rf", "~root", "a b", "{a,b}", "*", "it's", 'a"b', "a&b", "a|b", "a>b", "#a"]
    for name in names:
        plugin_folders.stavrobot("plugins", name)
    assert {entry["name"] for entry in command_line.ok("list", "--json").json} == set(names)
    assert offered("approve", "") == []


def test_other_shells_are_told_what_each_candidate_is():
    assert offered("lis", shell="zsh") == ["list:List plugins and their states"]
    assert offered("lis", shell="fish") == ["list\tList plugins and their states"]


def test_the_script_is_printed():
    assert command_line.ok("completion", "fish").out == SCRIPTS["fish"]
    assert command_line.ok("completion", "zsh", "--json").json == {"shell": "zsh", "script": SCRIPTS["zsh"]}
    assert "invalid choice: 'tcsh'" in command_line.fails(2, "completion", "tcsh").err


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_is_valid_for_its_shell(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    subprocess.run([shell, "-n", str(script)], check=True)


def test_it_imports_no_event_loop():
    code = (
        "import sys; from anyplug.frontends.cli.main import run; run(['completion', 'bash', '--', 'show', ''])\n"
        "print([name for name in ('asyncio', 'anyio', 'mcp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
