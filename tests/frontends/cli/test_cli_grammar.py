"""How the program is spoken to: options, commands, homes, streams."""

import json
import os
import re
import shlex
import subprocess

import pytest

import command_line
import plugin_folders
from anyplug import __version__
from anyplug.frontends.cli.commands import ALIASES, COMMANDS, GROUPS, aliases_of
from anyplug.frontends.cli.parsing import command_parser, parse
from anyplug.frontends.cli.suggestions import MEANT, suggestion


@pytest.mark.parametrize("words", [["--version"], ["--home", "x", "--version"]])
def test_the_version_is_printed(words):
    assert command_line.ok(*words).out == f"anyplug {__version__}\n"


def test_help_names_every_command():
    shown = command_line.ok("--help").out
    assert all(f"  {', '.join([name, *aliases_of(name)])} " in shown for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(name):
    shown = command_parser(name)[0].format_help()
    assert f"usage: anyplug {name}" in shown
    assert "--json" in shown


def test_without_a_command_the_help_is_shown_and_it_is_a_usage_error():
    done = command_line.run()
    assert (done.code, "Use:" in done.out) == (2, True)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["lst"], "there is no command 'lst'; did you mean 'list'?", "anyplug list --help: List plugins"),
        (["xyzzy"], "there is no command 'xyzzy'\n", "anyplug --help"),
        (["version"], "there is no command 'version'", "anyplug --version prints the version"),
        (["--bogus", "list"], "unrecognized arguments: --bogus", "anyplug --help"),
        (["list", "--bogus"], "unrecognized arguments: --bogus", "anyplug list --help"),
        (["list", "extra"], "unrecognized arguments: extra", "anyplug list --help"),
        (["list", "--plugin", "x"], "unrecognized arguments: --plugin x", "--plugin goes before the command"),
        (["list", "--jsn"], "unrecognized arguments: --jsn", "did you mean --json? anyplug list --help"),
        (["new", "x", "--format", "zt"], "invalid choice: 'zt'", "did you mean zot? anyplug new --help"),
        (["audit", "summry"], "invalid choice: 'summry'", "did you mean summary? anyplug audit --help"),
        (
            ["secret", "set", "x", "Y"],
            "unrecognized arguments: Y",
            "anyplug secret --help shows how to use it: anyplug secret PLUGIN [VARIABLE]",
        ),
        (["connect", "claude", "--http"], "unrecognized arguments: --http", "anyplug connect --help shows how"),
        (["policy"], "arguments are required: ACTION", "ACTION is one of init, validate, inspect, "),
        (["export", "x"], "arguments are required: --to", "KIND is one of mcpb, agent-plugin, "),
        (["audit", "export", "--csv"], "unrecognized arguments: --csv", "did you mean --format csv? "),
        (["audit", "--summary"], "unrecognized arguments: --summary", "did you mean summary? "),
        (["show"], "arguments are required", "anyplug show --help shows how to use it: anyplug show PLUGIN"),
        (["list", "--quiet"], "unrecognized arguments: --quiet", "--quiet goes before the command"),
        (["list", "--home=x"], "unrecognized arguments: --home=x", "--home goes before the command"),
        (["list", "--state", "odd"], "invalid choice: 'odd'", "anyplug list --help"),
        (["logs", "x", "-n", "-5"], "'-5' is not a number of lines (0 or more)", "anyplug logs --help"),
        (["results", "x", "--from", "begin"], "'begin' is not a position (0 or more)", "anyplug results --help"),
        (["ui", "--port", "99999"], "'99999' is not a port (0 to 65535)", "anyplug ui --help"),
        (["serve", "--linger", "-1"], "'-1' is not a number of seconds (0 or more)", "anyplug serve --help"),
        (["serve", "--linger", "nan"], "'nan' is not a number of seconds", "anyplug serve --help"),
        (["worker", "--places", "0"], "'0' is not a number of calls (1 or more)", "anyplug worker --help"),
        (["--plugin"], "expected one argument", "anyplug --help"),
        (["--plugin", "", "list"], "it is empty", "anyplug --help"),
        (["--home", "", "list"], "it is empty", "anyplug --help"),
        (["call"], "the following arguments are required: TOOL\n", "anyplug call --help"),
        (["deny"], "the following arguments are required: PLUGIN\n", "anyplug deny --help"),
        (["grant", "x"], "the following arguments are required: P\n", "anyplug grant --help"),
        (["logs", "x", "-n", "many"], "'many' is not a number of lines", "anyplug logs --help"),
        (
            ["call", "steep", "--kind", "mint"],
            "unrecognized arguments: --kind mint\n",
            "a tool's arguments are written KEY=VALUE: kind=mint; ",
        ),
        (
            ["call", "steep", "--kind=mint"],
            "unrecognized arguments: --kind=mint",
            "a tool's arguments are written KEY=VALUE: kind=mint; ",
        ),
        (["call", "steep", "--sweet"], "arguments: --sweet\n", "a tool's arguments are written KEY=VALUE: sweet=...; "),
        (["ext", "list"], "there is no command 'ext'\n", "leave out zot's ext: anyplug list"),
        (["ext", "info", "x"], "there is no command 'ext'\n", "leave out zot's ext: anyplug COMMAND"),
        (["ext"], "there is no command 'ext'\n", "leave out zot's ext: anyplug COMMAND"),
        (["help", "lst"], "there is no command 'lst'; did you mean 'list'?", "anyplug list --help: List plugins"),
        (["list", "--js"], "unrecognized arguments: --js", "did you mean --json? anyplug list --help"),
    ],
)
def test_what_is_not_understood_is_a_usage_error_that_says_why(words, message, hint, capsys):
    with pytest.raises(SystemExit, match="2"):
        parse(words)
    said = capsys.readouterr()
    assert message in said.err
    assert f"hint: {hint}" in said.err.replace("`", "")
    assert said.out == ""


def test_help_is_a_command_too():
    assert command_line.ok("help").out == command_line.ok("help", "help").out == command_line.ok("--help").out
    assert command_line.ok("help", "eval").out == command_line.ok("eval", "--help").out
    assert command_line.ok("help", "audit").out == command_line.ok("audit", "--help").out
    assert command_line.ok("-e", "x", "help", "policy").out == command_line.ok("policy", "--help").out


def test_arguments_in_json_need_no_option():
    plugin = plugin_folders.stavrobot("here", "echo", "#!/bin/sh\ncat")
    for given in ('{"text":"mint"}', '{"text":"a=b"}'):
        assert json.loads(command_line.ok("-e", plugin, "call", "echo.act", given).out) == json.loads(given)
    mixed = command_line.fails(2, "-e", plugin, "call", "echo.act", '{"text":"mint"}', "text=b")
    assert "hint: put all arguments into one JSON object, and nothing else" in mixed.err
    assert "--args is not valid JSON" in command_line.fails(2, "-e", plugin, "call", "echo.act", "{text}").err


def test_a_usage_error_exits_with_2():
    assert "there is no command 'lst'" in command_line.fails(2, "lst").err
    assert "unrecognized arguments: --bogus" in command_line.fails(2, "list", "--bogus").err
    assert "usage: anyplug list" in command_line.ok("list", "--help").out


def test_options_may_stand_between_a_tools_arguments():
    plugin = plugin_folders.stavrobot("here", "echo", "#!/bin/sh\ncat")
    done = command_line.ok("-e", plugin, "call", "--json", "echo.act", "--yes", "text=a b")
    assert done.json["structured"] == {"text": "a b"}
    assert command_line.ok("-e", plugin, "call", "echo.act", "--json", "text=x").json["structured"] == {"text": "x"}


def test_a_name_that_looks_like_an_option_comes_after_two_dashes():
    plugin_folders.stavrobot("plugins", "-rf")
    assert command_line.listed("-rf")["state"] == "new"
    assert command_line.ok("approve", "--yes", "--", "-rf").out == "-rf is approved\n"
    assert command_line.ok("deny", "--json", "--", "-rf").json["state"] == "denied"


@pytest.mark.parametrize("option", ["--plugin", "--ext", "-e"])
def test_folders_can_be_named_by_each_of_three_options_more_than_once(option):
    first, second = plugin_folders.cyclop("here", "first"), plugin_folders.cyclop("here", "second")
    entries = command_line.ok(option, first, f"--plugin={second}", "list", "--json").json
    assert [(entry["name"], entry["state"]) for entry in entries] == [("first", "approved"), ("second", "approved")]


def test_without_discovery_only_named_folders_are_used():
    plugin_folders.cyclop("plugins", "found")
    named = plugin_folders.cyclop("here", "named")
    assert [e["name"] for e in command_line.ok("-e", named, "list", "--json").json] == ["named", "found"]
    assert [e["name"] for e in command_line.ok("-e", named, "--no-discover", "list", "--json").json] == ["named"]
    done = command_line.ok("--no-discover", "list")
    assert done.out == "No plugins found.\n"
    assert "--plugin" in done.err


def test_a_home_that_is_given_comes_before_the_one_in_the_environment(tmp_path):
    plugin_folders.cyclop(os.path.join(command_line.home(), "plugins"), "inside")
    plugin_folders.cyclop(tmp_path / "other" / "plugins", "outside")
    assert [e["name"] for e in command_line.ok("list", "--json").json] == ["inside"]
    assert [e["name"] for e in command_line.ok("--home", str(tmp_path / "other"), "list", "--json").json] == ["outside"]


def test_without_either_the_home_is_in_the_users_data_folder(monkeypatch):
    monkeypatch.delenv("ANYPLUG_HOME")
    plugin_folders.cyclop(os.path.expanduser("~/.local/share/anyplug/plugins"), "mine")
    assert [e["name"] for e in command_line.ok("list", "--json").json] == ["mine"]


def test_looking_creates_nothing():
    plugin_folders.cyclop("plugins", "hello")
    for words in (["list"], ["tools"], ["jobs"], ["audit"], ["check", "plugins/hello"]):
        command_line.run(*words)
    assert os.listdir(command_line.home()) == []


def test_every_root_is_searched_in_order_and_the_first_of_a_name_wins(monkeypatch):
    roots = [
        ".anyplug/plugins", ".zot/extensions", "plugins", "data/tools", os.path.join(command_line.home(), "plugins"),
        os.path.expanduser("~/.local/state/zot/extensions"), os.path.expanduser("~/.cyclopone/plugins"),
    ]  # fmt: skip
    for root in roots:
        plugin_folders.cyclop(root, "same")
    entries = command_line.ok("list", "--json").json
    assert [entry["path"] for entry in entries] == [os.path.abspath(f"{root}/same") for root in roots]
    assert [entry["state"] for entry in entries] == ["new"] + ["shadowed"] * 6
    assert {entry["shadowed_by"] for entry in entries[1:]} == {os.path.abspath(".anyplug/plugins/same")}


def test_notes_can_be_silenced_but_not_errors():
    plugin_folders.cyclop("plugins", "hello")
    assert "hint" in command_line.ok("tools").err
    assert command_line.ok("--quiet", "tools").err == ""
    assert "no plugin is named" in command_line.run("--quiet", "show", "nobody").err


def test_debug_shows_where_an_error_comes_from():
    done = subprocess.run([*command_line.PROGRAM, "--debug", "show", "nobody"], capture_output=True, check=False)
    assert b"Traceback" in done.stderr


@pytest.mark.parametrize("words", [["list"], ["--help"], ["list", "--json"], ["check", "."]])
def test_a_reader_that_has_gone_is_no_error(words):
    for number in range(30):
        plugin_folders.cyclop("plugins", f"plugin-{number}", description="x" * 4000)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*command_line.PROGRAM, *words], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_behind_stdout_is_an_error_and_no_traceback():
    plugin_folders.cyclop("plugins", "hello")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*command_line.PROGRAM, "list"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: No space left on device\nhint: ")


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_stream_that_was_closed_is_no_error(stream):
    plugin_folders.cyclop("plugins", "hello")
    command = f'exec {stream}>&-; exec "$@"'
    words = ["sh", "-c", command, "sh", *command_line.PROGRAM, "approve", "hello", "--yes"]
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 0, done
    assert command_line.ok("call", "hello").out == "done\n"


def test_characters_that_the_terminal_does_not_have_are_escaped(monkeypatch):
    plugin = plugin_folders.cyclop("here", "hello", "#!/bin/sh\nprintf '%s' '{\"result\": \"caf\u00e9 \u2603\"}'")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert command_line.ok("-e", plugin, "call", "hello").out == "caf\\xe9 \\u2603\n"


def test_a_working_folder_that_is_gone_is_an_error_and_no_traceback(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone), *command_line.PROGRAM, "list"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"hint: " in done.stderr


def test_a_home_that_cannot_be_made_is_an_error_that_says_so():
    plugin_folders.cyclop("plugins", "hello")
    done = command_line.fails(1, "--home", "/proc/nowhere", "approve", "hello", "--yes")
    assert "/proc/nowhere" in done.err


def test_a_database_that_is_none_is_an_error_that_says_so():
    plugin_folders.cyclop("plugins", "hello")
    plugin_folders.write(
        os.path.join(command_line.home(), "anyplug.db"), "this is no database, but long enough to be looked at" * 9
    )
    for words in (["list"], ["audit"], ["jobs"], ["approve", "hello", "--yes"]):
        done = command_line.fails(1, *words)
        assert "anyplug.db failed: file is not a database" in done.err
        assert "move it away" in done.err


def test_settings_that_cannot_be_read_are_an_error_that_names_the_place(settings):
    settings("namespaces = maybe")
    assert "settings.toml" in command_line.fails(1, "list").err
    settings("[plugins.x]\nargments = 'off'")
    assert "argments" in command_line.fails(1, "list").err


def test_errors_with_json_are_one_object_on_stdout():
    done = command_line.run("show", "nobody", "--json")
    assert (done.code, done.err) == (4, "")
    assert done.json["error"]["code"] == "not_found"
    assert set(done.json["error"]) == {"code", "message", "hint"}


def test_every_command_stands_in_exactly_one_group():
    named = [name for group in GROUPS.values() for name in group]
    assert list(GROUPS) == ["Use", "Install", "Trust", "Agents", "Policies", "Authors", "Fleet", "Operate"]
    assert sorted(named) == sorted(COMMANDS)
    shown = command_line.ok("--help").out
    assert [shown.index(f"\n{title}:\n") for title in GROUPS] == sorted(
        shown.index(f"\n{title}:\n") for title in GROUPS
    )


def test_every_command_has_a_short_purpose_and_an_example_that_is_understood():
    for name, (_, purpose, example) in COMMANDS.items():
        assert len(purpose) <= 60
        assert purpose[0].isupper()
        assert not purpose.endswith(".")
        parser, _ = command_parser(name)
        shown = parser.format_help()
        assert f"{purpose}." in shown
        assert f"example:\n  {example}\n" in shown
        words = shlex.split(re.sub(r"\$\((.*)\)", r"\1", example.replace('"', "").removeprefix("eval ")))
        options, _ = parse([word for word in words[1:] if word not in {"<", "event.json"}])
        assert options.named == name


def test_help_shows_the_options_that_people_reach_for_first():
    shown = command_line.ok("approve", "--help").out
    assert shown.startswith("usage: anyplug approve [PLUGIN] [OPTIONS]\n\nReview what a plugin asks for")
    at = [
        shown.index(part) for part in ("\narguments:", "\noptions:", "--yes", "--json", "\nmore options:", "--follow")
    ]
    assert at == sorted(at)


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_commands_have_the_names_that_people_know(alias, name):
    assert command_line.ok(alias, "--help").out == command_line.ok(name, "--help").out
    assert f"anyplug {alias}" in command_line.ok("help", name).out
    assert parse([alias, *(["x"] if name == "remove" else [])])[0].named == name


def test_meaning_comes_before_spelling():
    words = "run-tool add delete info find allow permit trust reject start kill upgrade init create validate lint"
    meant = "call install remove show search approve grant approve deny serve stop update new new check check"
    assert [suggestion(word) for word in words.split()] == meant.split()
    assert [suggestion(word) for word in ("history", "env", "settings")] == ["audit", "secret", "config"]
    assert [suggestion(word) for word in ("Run_Tool", "aprove", "lsit", "unistall")] == [
        "call", "approve", "list", "remove",
    ]  # fmt: skip
    assert suggestion("xyzzy") == ""


def test_words_with_a_meaning_are_no_commands_and_lead_to_one():
    words = [word for said in MEANT.values() for word in said.split()]
    assert set(MEANT) <= set(COMMANDS)
    assert not {*COMMANDS, *ALIASES} & set(words)
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lst", "--json"], "there is no command 'lst'; did you mean 'list'?"),
        (["list", "--json", "--bogus"], "unrecognized arguments: --bogus"),
        (["call", "--json"], "the following arguments are required: TOOL"),
        (["list", "--state", "odd", "--json"], "invalid choice: 'odd'"),
        (["--json", "list"], "unrecognized arguments: --json"),
    ],
)
def test_parser_errors_are_json_where_that_was_asked_for(words, message):
    done = command_line.run(*words)
    assert (done.code, done.err) == (2, "")
    assert set(done.json) == {"error"}
    assert set(done.json["error"]) == {"code", "message", "hint"}
    assert done.json["error"]["code"] == "usage"
    assert message in done.json["error"]["message"]
    assert "anyplug" in done.json["error"]["hint"]


def test_a_word_behind_two_dashes_asks_for_no_json():
    assert "unrecognized arguments" in command_line.fails(2, "list", "--bogus", "--", "--json").err


def test_a_home_that_cannot_be_used_is_named_with_what_to_check():
    for words in (["install", "."], ["connect", "claude", "--yes"], ["new", "x", "--into", "/sys/anyplug"]):
        done = command_line.fails(1, "--home", "/sys/anyplug", *words)
        assert "/sys/anyplug" in done.err
        assert "permissions" in done.err
    plugin_folders.write("here/file", "")
    done = command_line.fails(1, "--home", "here/file", "list")
    assert "is not a folder, but a file is there" in done.err
    assert "--home" in done.err
