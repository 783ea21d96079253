"""`config`: values are set, unset, asked for; secrets are never shown."""

import os
import stat

import pytest

import command_line
import plugin_folders
import processes

CONFIG = {
    "api_key": {"description": "The key.", "required": True},
    "city": {"description": "Where.", "required": True},
    "size": {"description": "How many.", "default": 3},
    "loud": {"description": "", "default": False},
    "pin": {"description": "", "secret": True},
    "token_count": {"description": "", "secret": False},
    "count": {"description": "", "type": "integer"},
    "name": {"description": "", "type": "string"},
    "on": {"description": "", "type": "boolean"},
    "share": {"description": "", "type": "number"},
    "list": {"description": "", "type": "array"},
    "map": {"description": "", "type": "object"},
}
SECRET = "open-Sesame 42"


@pytest.fixture
def kit():
    return plugin_folders.stavrobot("plugins", "kit", "#!/bin/sh\ncat ../config.json", config=CONFIG)


def values(kit):
    return command_line.read_json(f"{kit}/config.json")


@pytest.mark.requirement("STV-12")
def test_a_value_is_set_shown_and_forgotten(kit):
    assert "Paris" in command_line.ok("config", "kit", "city=Paris").out
    assert values(kit) == {"city": "Paris"}
    done = command_line.ok("config", "kit")
    assert "city" in done.out
    assert "hint: `anyplug config kit api_key` asks for the missing value" in done.err
    command_line.ok("config", "kit", "--unset", "city", "--unset", "size")
    assert values(kit) == {}


def test_the_file_is_only_the_users_to_read(kit):
    command_line.ok("config", "kit", "city=Paris")
    assert stat.S_IMODE(os.stat(f"{kit}/config.json").st_mode) == 0o600
    assert os.listdir(kit).count("config.json") == 1
    assert not [name for name in os.listdir(kit) if name.endswith(".tmp")]


@pytest.mark.requirement("STV-10")
def test_in_json_a_key_has_a_fixed_shape_and_a_secret_no_value(kit):
    done = command_line.ok("config", "kit", "pin=123456", "size=5", "--json").json
    assert all(set(key) == {"name", "description", "required", "secret", "set", "value"} for key in done)
    by_name = {key["name"]: key for key in done}
    assert by_name["pin"] == {
        "name": "pin", "description": "", "required": False, "secret": True, "set": True, "value": None,
    }  # fmt: skip
    assert by_name["size"]["value"] == 5
    assert (by_name["api_key"]["secret"], by_name["token_count"]["secret"]) == (True, False)


def test_a_secret_is_read_without_echo_and_never_printed(kit):
    with command_line.Terminal("config", "kit", "api_key") as terminal:
        terminal.sees("api_key (not shown):")
        assert not terminal.echoes()
        terminal.types(SECRET)
    assert terminal.code == 0
    assert SECRET not in terminal.seen
    assert "•••" in terminal.seen
    assert values(kit)["api_key"] == SECRET
    for words in (["config", "kit"], ["config", "kit", "--json"], ["show", "kit"], ["show", "kit", "--json"]):
        done = command_line.ok(*words)
        assert SECRET not in done.out + done.err


def test_a_secret_on_the_command_line_is_taken_with_advice_and_not_printed(kit):
    done = command_line.ok("config", "kit", f"api_key={SECRET}")
    assert SECRET not in done.out + done.err
    assert "leave the value out" in done.err


def test_what_is_no_secret_is_asked_for_with_echo_and_kept_as_typed(kit):
    with command_line.Terminal("config", "kit", "city") as terminal:
        terminal.sees("city:")
        assert terminal.echoes()
        terminal.types("São Paulo")
    assert terminal.code == 0
    assert values(kit)["city"] == "São Paulo"


def test_no_value_is_no_value(kit):
    seen = command_line.at_terminal("config", "kit", "api_key", answers=[("not shown", "")])
    assert seen.code == 2
    assert "no value was given for 'api_key'" in seen.seen
    assert command_line.at_terminal("config", "kit", "city", answers=[("city:", "")]).code == 2
    for name in ("api_key", "city"):
        with command_line.Terminal("config", "kit", name) as terminal:
            terminal.sees(name)
            terminal.presses(b"\x04")
        assert terminal.code == 2
        assert "no value was given" in command_line.fails(2, "config", "kit", name).err
    assert not os.path.exists(f"{kit}/config.json")


def test_ctrl_c_at_a_secret_gives_the_echo_back_and_sets_nothing(kit):
    with command_line.Terminal("config", "kit", "api_key") as terminal:
        terminal.sees("not shown")
        terminal.presses(b"\x03")
        terminal.end()
        assert terminal.echoes()
    assert terminal.code == 130
    assert not os.path.exists(f"{kit}/config.json")


def test_a_value_can_be_piped_in(kit):
    command_line.ok("config", "kit", "api_key", stdin=f"{SECRET}\n")
    assert values(kit)["api_key"] == SECRET


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("size=5", 5), ("loud=True", True), ("loud=false", False), ("city=", ""), ("city=5", 5),
        ("city=2.5", 2.5), ("city=true", True), ("city=[1]", [1]), ("city=007", "007"), ('city="5"', "5"),
        ("city=null", "null"), ("city=12345678901234567890", "12345678901234567890"), ("pin=1234", "1234"),
        ("count=5", 5), ("name=5", "5"), ("on=TRUE", True), ("share=2", 2), ("list=[1]", [1]), ("map={}", {}),
    ],
)  # fmt: skip
def test_a_value_has_the_type_of_its_entry_of_its_default_or_as_it_is_written(kit, word, value):
    command_line.ok("config", "kit", word)
    assert values(kit)[word.partition("=")[0]] == value


def test_an_unknown_key_changes_nothing(kit):
    for words in (["citty=x"], ["citty"], ["--unset", "citty"], ["city=x", "citty=y"], ["permissions=[]"]):
        done = command_line.fails(2, "config", "kit", *words)
        assert "has no configuration value" in done.err
        assert "its values are api_key, city" in done.err
    assert not os.path.exists(f"{kit}/config.json")


def test_a_plugin_without_configuration_says_so():
    plugin_folders.cyclop("plugins", "hello")
    assert command_line.ok("config", "hello").out == "hello has no configuration.\n"
    assert command_line.ok("config", "hello", "--json").json == []
    assert "it has no configuration" in command_line.fails(2, "config", "hello", "x=1").err


@pytest.mark.parametrize("text", ['{"api_key": "precious', "[1]", "\xff", ""])
def test_a_file_that_cannot_be_understood_is_never_overwritten(kit, text):
    raw = text.encode("latin-1")
    plugin_folders.write(f"{kit}/config.json", raw)
    for words in (["config", "kit"], ["config", "kit", "city=Paris"], ["config", "kit", "--unset", "city"]):
        assert "it was not changed" in command_line.fails(1, *words).err
    command_line.ok("list")
    command_line.ok("approve", "kit", "--yes")
    assert "config.json" in command_line.fails(1, "call", "kit.act", "--yes").err
    with open(f"{kit}/config.json", "rb") as file:
        assert file.read() == raw


def test_a_broken_file_is_named_with_its_line_wherever_it_matters_and_can_be_replaced(kit):
    command_line.ok("approve", "kit", "--yes")
    broken = '{\n  "city": "Paris",\n  "api_key": precious\n}\n'
    plugin_folders.write(f"{kit}/config.json", broken)
    for words in (["list"], ["show", "kit"], ["check", kit], ["call", "kit.act", "--yes"], ["config", "kit"]):
        done = command_line.run(*words)
        said = " ".join((done.out + done.err).split())
        assert "config.json" in said, words
        assert "line 3" in said, words
        assert "precious" not in said, words
    (entry,) = command_line.ok("list", "--json").json
    assert [problem["code"] for problem in entry["problems"]] == ["bad_config"]
    assert "`anyplug config kit --reset`" in entry["problems"][0]["hint"]
    assert f"{kit}/config.json.before-reset" in command_line.ok("config", "kit", "--reset").err
    assert values(kit) == {"size": 3, "loud": False}
    assert processes.read(f"{kit}/config.json.before-reset") == broken.encode()
    assert stat.S_IMODE(os.stat(f"{kit}/config.json").st_mode) == 0o600
    assert command_line.ok("list", "--json").json[0]["problems"] == []
    plugin_folders.cyclop("plugins", "hello")
    assert "has no configuration" in command_line.fails(2, "config", "hello", "--reset").err


def test_tools_are_switched_one_by_one():
    kit = plugin_folders.stavrobot("plugins", "kit", tools=dict.fromkeys(("one", "two"), plugin_folders.ANSWER))
    command_line.ok("approve", "kit", "--yes")
    assert "switched off: two" in command_line.ok("config", "kit", "--disable", "two").err
    assert values(kit) == {"permissions": ["one"]}
    command_line.ok("call", "kit.one", "--yes")
    refused = command_line.fails(3, "call", "kit.two", "--yes")
    assert "`anyplug config kit --enable two`" in refused.err
    command_line.ok("config", "kit", "--disable", "one")
    assert "`anyplug config kit --enable one`" in command_line.fails(3, "call", "kit.one", "--yes").err
    command_line.ok("config", "kit", "--enable", "one", "--enable", "two")
    assert values(kit) == {"permissions": ["*"]}
    command_line.ok("call", "kit.two", "--yes")
    assert "its tools are one, two" in command_line.fails(2, "config", "kit", "--disable", "three").err


def test_a_missing_value_stops_only_the_tools_that_need_it():
    keys = {"login": {"description": "", "required": True, "tools": ["two"]}}
    plugin_folders.stavrobot("plugins", "kit", tools=dict.fromkeys(("one", "two"), plugin_folders.ANSWER), config=keys)
    assert "'login'" in command_line.ok("approve", "kit", "--yes").err
    command_line.ok("call", "kit.one", "--yes")
    assert "`anyplug config kit login` asks for it" in command_line.fails(1, "call", "kit.two", "--yes").err


def test_a_value_of_the_wrong_type_is_refused(kit):
    for word in ("count=many", "count=1.5", "on=5", "list={}", "map=[]", "share=x"):
        assert "must be of type" in command_line.fails(2, "config", "kit", word).err
    assert not os.path.exists(f"{kit}/config.json")


def test_a_pipe_in_the_files_place_holds_nobody_up(kit):
    os.mkfifo(f"{kit}/config.json")
    assert "it is not a regular file" in command_line.fails(1, "config", "kit", "city=x").err


def test_what_a_tool_wrote_into_the_file_is_kept(kit):
    plugin_folders.write(f"{kit}/config.json", '{"session": {"id": 7}, "permissions": ["act"]}')
    command_line.ok("config", "kit", "city=Paris")
    assert values(kit) == {"session": {"id": 7}, "permissions": ["act"], "city": "Paris"}


@pytest.mark.requirement("STV-14")
def test_a_tool_finds_values_and_defaults_beside_it(kit):
    command_line.ok("approve", "kit", "--yes", "--always")
    command_line.ok("config", "kit", "city=Paris", "api_key=abcdefgh")
    given = command_line.ok("call", "kit.act", "--json").json["structured"]
    assert given == {"city": "Paris", "api_key": "•••", "size": 3, "loud": False}
    assert values(kit)["api_key"] == "abcdefgh"


def test_a_name_in_a_hint_is_quoted_for_the_shell():
    plugin_folders.stavrobot("plugins", "kit", "#!/bin/sh\necho 1", config={"$(id); x": {"required": True}})
    quoted = "`anyplug config kit '$(id); x'`"
    assert quoted in command_line.ok("approve", "kit", "--yes", "--always").err
    assert quoted in command_line.ok("config", "kit").err
    assert quoted in command_line.run("call", "kit.act", "text=a", "--yes").err
