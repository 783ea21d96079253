"""Stavrobot: its manifests, configuration, parameters, output, files, set-up, and what its real plugins need."""

import base64
import json
import os
import stat

import anyio
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

import mcp_clients
import plugin_folders
import processes
from anyplug.formats.shared.contract import Folder
from anyplug.formats.stavrobot import format, manifests  # noqa: A004 - the product's own word
from anyplug.home import plugin_config
from anyplug.model.errors import CallError, ConfigError, UsageError
from anyplug.model.types import File
from random_examples import at_most

SAY_NOTHING = "#!/bin/sh\n"
KEY = {"api": {"description": "The key.", "required": True}}


def load(path, *, explicit=False):
    return format.load(Folder(os.path.realpath(path), str(path), explicit))


def errors(plugin):
    return [problem.message for problem in plugin.problems if problem.level == "error"]


def warnings(plugin):
    return [problem.message for problem in plugin.problems if problem.level == "warning"]


def manifest(folder, **changes):
    name = os.path.basename(folder)
    values = {"name": name, "description": "d", **changes}
    plugin_folders.write(f"{folder}/manifest.json", json.dumps({k: v for k, v in values.items() if v is not ...}))


def printing(text):
    return f"#!/bin/sh\ncat >/dev/null\nprintf '%s' '{text}'\n"


# The bundle's manifest


@pytest.mark.requirement("STV-01", "STV-03", "STV-07", "STV-24")
def test_a_right_bundle_has_no_problems(root):
    plugin = load(plugin_folders.stavrobot(root, "17track", summary="short", unknown=1))
    assert plugin.problems == ()
    assert (plugin.name, plugin.format, plugin.tier, plugin.permissions) == ("17track", "stavrobot", 2, ("network",))
    (tool,) = plugin.tools
    assert (tool.name, tool.own_name, tool.timeout_s, tool.is_async) == ("17track.act", "act", 30.0, False)
    assert tool.program == f"{plugin.path}/act/run"


def test_a_manifest_with_an_entrypoint_is_somebody_elses(root):
    assert load(plugin_folders.stavrobot(root, entrypoint="run")) is None


@pytest.mark.requirement("STV-04")
@pytest.mark.parametrize("value", [..., "", 1, None])
def test_a_bundle_needs_a_name(value, root):
    folder = plugin_folders.stavrobot(root)
    manifest(folder, name=value)
    what = "'name' must be a string, not a number," if value == 1 else "manifest.json missing required field 'name'"
    assert errors(load(folder)) == [f"{what} at {folder}/manifest.json"]


@pytest.mark.requirement("STV-06")
@pytest.mark.parametrize("value", [..., 1, None])
def test_a_bundle_needs_a_description_which_may_be_empty(value, root):
    folder = plugin_folders.stavrobot(root)
    manifest(folder, description=value)
    missing = "manifest.json missing required field 'description'"
    what = "'description' must be a string, not a number," if value == 1 else missing
    assert errors(load(folder)) == [f"{what} at {folder}/manifest.json"]
    manifest(folder, description="")
    assert load(folder).problems == ()


@pytest.mark.requirement("STV-04")
@pytest.mark.parametrize("name", ["Bundle", "a_b", "../up", "a b", "a/b"])
def test_a_name_outside_the_pattern_is_refused(name, root):
    folder = plugin_folders.stavrobot(root)
    manifest(folder, name=name)
    text = f'Invalid plugin name "{name}": only lowercase letters, digits, and hyphens are allowed'
    assert errors(load(folder)) == [text]


def test_the_folder_must_be_named_like_the_bundle_unless_the_person_named_it(root):
    folder = plugin_folders.stavrobot(root)
    manifest(folder, name="other")
    assert errors(load(folder)) == ["the folder 'bundle' must be named like the plugin, 'other'"]
    assert errors(load(folder, explicit=True)) == []


@pytest.mark.requirement("STV-07", "STV-09")
def test_instructions_must_be_text_and_are_cut_at_5000_characters(root):
    folder = plugin_folders.stavrobot(root, instructions="\N{GRINNING FACE}" * 6000)
    said, _, cut = load(folder).instructions.partition("\n")
    assert said == "\N{GRINNING FACE}" * 5000
    assert cut == "[cut here: 1,000 more characters are in its manifest.json]"
    manifest(folder, instructions=["x"])
    assert errors(load(folder)) == [f"'instructions' must be a string at {folder}/manifest.json"]


@pytest.mark.parametrize("init", [None, "init.sh", {}, {"entrypoint": 1}, []])
def test_init_must_name_its_script(init, root):
    assert errors(load(plugin_folders.stavrobot(root, init=init))) == ["'init' must be an object with an 'entrypoint'"]


@pytest.mark.parametrize("entrypoint", ["/bin/sh", "../init.sh"])
def test_an_init_script_stays_inside(entrypoint, root):
    (error,) = errors(load(plugin_folders.stavrobot(root, init={"entrypoint": entrypoint})))
    assert error.startswith(f"init script '{entrypoint}' ")


def test_a_bundle_without_tools_loads_with_a_warning(root):
    folder = os.path.join(root, "bundle")
    plugin_folders.write(f"{folder}/lib/code.py", "")
    manifest(folder)
    plugin = load(folder)
    assert (errors(plugin), warnings(plugin)) == ([], ["it has no tools"])


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"name": "\xff"}', b"[" * 100_000])
def test_a_manifest_that_is_no_json_object_is_refused(text, root):
    folder = plugin_folders.stavrobot(root)
    plugin_folders.write(f"{folder}/manifest.json", text)
    (error,) = errors(load(folder))
    assert error.startswith(f"manifest.json is not valid JSON at {folder}/manifest.json")


# The tools' manifests


@pytest.mark.requirement("STV-16")
@pytest.mark.parametrize("field", ["name", "description", "entrypoint", "parameters"])
@pytest.mark.parametrize("value", [None, 1, ["x"]])
def test_one_bad_tool_is_left_out_with_its_reason_and_the_others_load(field, value, root):
    folder = plugin_folders.stavrobot(root, tools={"good": SAY_NOTHING, "bad": SAY_NOTHING})
    about = {"name": "bad", "description": "d", "entrypoint": "run", "parameters": {}, field: value}
    plugin_folders.write(f"{folder}/bad/manifest.json", json.dumps(about))
    plugin = load(folder)
    assert [tool.own_name for tool in plugin.tools] == ["good"]
    kind = {"1": "a number", "['x']": "a list"}.get(str(value))
    what = f"{field} must be a string, not {kind}" if kind else f"missing {field}"
    what = "parameters must be an object of objects" if kind and field == "parameters" else what
    assert warnings(plugin) == [f'Skipping tool "bad": {what} in {folder}/bad/manifest.json']


def test_a_tools_manifest_that_cannot_be_read_leaves_only_that_tool_out(root):
    folder = plugin_folders.stavrobot(root, tools={"a": SAY_NOTHING, "b": SAY_NOTHING, "c": SAY_NOTHING})
    plugin_folders.write(f"{folder}/a/manifest.json", b"{\xff")
    os.unlink(f"{folder}/b/manifest.json")
    os.symlink("nothing", f"{folder}/b/manifest.json")
    plugin = load(folder)
    assert [tool.own_name for tool in plugin.tools] == ["c"]
    assert len(warnings(plugin)) == 2
    assert errors(plugin) == []


def test_a_tool_is_named_like_its_folder(root):
    folder = plugin_folders.stavrobot(root, tools={"good": SAY_NOTHING, "bad": SAY_NOTHING})
    os.rename(f"{folder}/bad", f"{folder}/other")
    plugin = load(folder)
    assert [tool.own_name for tool in plugin.tools] == ["good"]
    assert warnings(plugin) == ["Skipping tool \"bad\": its folder is named 'other'"]


@pytest.mark.requirement("STV-03")
def test_folders_without_a_manifest_and_dangling_links_are_no_tools(root):
    folder = plugin_folders.stavrobot(root)
    for name in ("lib", "tests", "node_modules", ".git", ".hidden"):
        os.makedirs(f"{folder}/{name}")
    os.symlink("nothing", f"{folder}/dangling")
    plugin = load(folder)
    assert [tool.own_name for tool in plugin.tools] == ["act"]
    assert plugin.problems == ()


@pytest.mark.requirement("STV-17")
def test_a_tool_may_share_its_neighbours_program(root):
    folder = plugin_folders.stavrobot(root, tools={"a": SAY_NOTHING, "b": SAY_NOTHING}, tool={"entrypoint": "../a/run"})
    assert {tool.program for tool in load(folder).tools} == {f"{folder}/a/run"}


@pytest.mark.requirement("STV-17")
@pytest.mark.parametrize("entrypoint", ["/bin/sh", "../../run", "out"])
def test_a_tools_program_stays_inside_the_plugin(entrypoint, root):
    folder = plugin_folders.stavrobot(root, tool={"entrypoint": entrypoint})
    os.symlink("/bin/sh", f"{folder}/act/out")
    plugin = load(folder)
    assert plugin.tools == ()
    assert warnings(plugin)[0].startswith(f"act's entrypoint '{entrypoint}' ")


def test_a_tools_folder_that_is_a_link_out_of_the_plugin_is_left_out(root, tmp_path):
    elsewhere = plugin_folders.stavrobot(tmp_path, "elsewhere")
    folder = plugin_folders.stavrobot(root, tools={"good": SAY_NOTHING})
    os.symlink(f"{elsewhere}/act", f"{folder}/act")
    plugin = load(folder)
    assert [tool.own_name for tool in plugin.tools] == ["good"]
    where = f"{folder}/act/manifest.json"
    assert warnings(plugin) == [
        f"Cannot read plugin manifest at {where}: it is a link that leads outside the plugin's folder"
    ]


@pytest.mark.parametrize(("value", "expected"), [(True, True), (False, False), ("true", False), (1, False)])
def test_only_true_makes_a_tool_asynchronous(value, expected, root):
    (tool,) = load(plugin_folders.stavrobot(root, tool={"async": value})).tools
    assert (tool.is_async, tool.timeout_s) == (expected, 300.0 if expected else 30.0)


# Parameters

PARAMETERS = {
    "text": {"type": "string", "description": "d"},
    "number": {"type": "number", "description": "d"},
    "whole": {"type": "integer", "description": "d"},
    "flag": {"type": "boolean", "description": "d"},
    "list": {"type": "array", "description": "d", "items": {"type": "string"}},
    "map": {"type": "object", "description": "d"},
    "maybe": {"type": "string|null", "description": "d"},
    "odd": {"type": "date", "description": "d"},
    "from": {"type": "string", "description": "d", "enum": ["a", "b"]},
    "file": {"type": "file", "description": "d"},
}


@pytest.mark.requirement("STV-18")
@pytest.mark.parametrize(
    ("arguments", "violations"),
    [
        ({}, []),
        ({"text": "", "number": 1, "whole": 1.0, "flag": False, "list": [], "map": {}, "maybe": "x", "odd": 7}, []),
        ({"maybe": None, "text": None, "odd": None}, []),
        ({"number": 1.5, "from": "a"}, []),
        ({"text": 1}, ['Parameter "text" must be of type "string"']),
        ({"number": "1"}, ['Parameter "number" must be of type "number"']),
        ({"number": True}, ['Parameter "number" must be of type "number"']),
        ({"whole": 1.5}, ['Parameter "whole" must be of type "integer"']),
        ({"whole": 10**400}, []),
        ({"whole": "1"}, ['Parameter "whole" must be of type "integer"']),
        ({"flag": 1}, ['Parameter "flag" must be of type "boolean"']),
        ({"list": {}}, ['Parameter "list" must be of type "array"']),
        ({"map": []}, ['Parameter "map" must be of type "object"']),
        ({"maybe": 1}, ['Parameter "maybe" must be of type "string|null"']),
        ({"from": "c"}, ['Parameter "from" must be one of ["a","b"]']),
        ({"nope": 1, "text": 1}, ['Unknown parameter: "nope"', 'Parameter "text" must be of type "string"']),
        ({"toString": 1}, ['Unknown parameter: "toString"']),
        ({"maybe": {}}, ['Parameter "maybe" must be of type "string|null"']),
        ({"file": 5}, ['Parameter "file" must be of type "file": a path, or {"filename": ..., "data": base64}']),
    ],
)
def test_parameters_are_checked_by_stavrobots_own_rules(arguments, violations, root):
    (tool,) = load(plugin_folders.stavrobot(root, parameters=PARAMETERS)).tools
    assert format.violations(tool, arguments) == violations


@pytest.mark.requirement("STV-19")
def test_a_tool_without_parameters_takes_an_empty_object(root):
    plugin = load(plugin_folders.stavrobot(root, parameters={}))
    (tool,) = plugin.tools
    assert (plugin.problems, tool.input_schema["properties"]) == ((), {})
    assert format.violations(tool, {}) == []
    assert format.violations(tool, {"text": "x"}) == ['Unknown parameter: "text"']


def test_nothing_is_required_unless_it_says_so(root):
    parameters = {
        "a": {"type": "string", "description": "d", "required": True},
        "b": {"type": "string", "description": ""},
    }
    (tool,) = load(plugin_folders.stavrobot(root, parameters=parameters)).tools
    assert tool.input_schema["required"] == ["a"]
    assert format.violations(tool, {"a": None}) == ['Missing parameter: "a"']
    (tool,) = load(
        plugin_folders.stavrobot(root, "other", parameters={"a": parameters["a"] | {"type": "string|null"}})
    ).tools
    assert format.violations(tool, {"a": None}) == []
    assert format.violations(tool, {}) == ['Missing parameter: "a"']
    assert format.violations(tool, {"a": "x"}) == []


@pytest.mark.requirement("STV-18")
def test_what_agents_see_of_parameters_is_json_schema(root):
    (tool,) = load(plugin_folders.stavrobot(root, parameters=PARAMETERS)).tools
    seen = tool.input_schema["properties"]
    assert tool.input_schema["additionalProperties"] is False
    assert seen["maybe"]["type"] == ["string", "null"]
    assert "type" not in seen["odd"]
    assert seen["list"]["items"] == {"type": "string"}
    assert seen["from"]["enum"] == ["a", "b"]
    assert seen["file"]["required"] == ["filename", "data"]


@pytest.mark.requirement("STV-30")
@pytest.mark.anyio
async def test_unknown_keys_are_refused_before_anything_runs(host, stavrobot):
    async with host(stavrobot(script="#!/bin/sh\ntouch ../ran\n")) as h:
        result = await h.call("bundle.act", {"nope": 1})
        assert (result.error.code, result.error.message) == ("invalid_arguments", 'Unknown parameter: "nope"')
        assert not os.path.exists(f"{h.plugins[0].path}/ran")


@pytest.mark.requirement("STV-02", "STV-20")
@pytest.mark.anyio
async def test_the_arguments_are_stdin_and_nothing_is_added(host, stavrobot):
    async with host(stavrobot(script="#!/bin/sh\ncat\n", parameters=PARAMETERS)) as h:
        assert (await h.call("bundle.act")).text == "{}"
        given = {"text": "é ✓", "maybe": None, "list": ["a"]}
        assert (await h.call("bundle.act", given)).structured == given


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(["string", "integer", "file", "string|null", "", "|", "null", "array"])
PARAMETER = st.fixed_dictionaries(
    {"type": WORDS | JSON, "description": st.just("d") | JSON},
    optional={"enum": JSON, "required": JSON, "properties": JSON},
)


@bounds(max_examples=at_most(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    bundle=st.fixed_dictionaries(
        {"name": st.just("bundle") | JSON},
        optional=dict.fromkeys(("description", "instructions", "init", "config"), JSON),
    ),
    tool=st.fixed_dictionaries(
        {"name": st.just("act") | JSON, "description": st.just("d") | JSON, "entrypoint": st.just("run") | JSON},
        optional={
            "parameters": st.dictionaries(st.text(max_size=5), PARAMETER | JSON, max_size=3) | JSON,
            "async": JSON,
        },
    ),
    arguments=st.dictionaries(st.text(max_size=5), JSON, max_size=3),
)
def test_no_manifest_makes_loading_or_checking_raise(bundle, tool, arguments, tmp_path_factory):
    folder = plugin_folders.stavrobot(tmp_path_factory.getbasetemp() / "hostile-bundles")
    plugin_folders.write(f"{folder}/manifest.json", json.dumps({"description": "d"} | bundle))
    plugin_folders.write(f"{folder}/act/manifest.json", json.dumps(tool))
    plugin = load(folder)
    assert all(problem.message and problem.hint for problem in plugin.problems)
    for found in plugin.tools:
        assert isinstance(
            format.violations(found, arguments | dict.fromkeys(found.input_schema["properties"], 1)), list
        )


# Configuration


@pytest.mark.requirement("STV-11")
@pytest.mark.anyio
async def test_a_required_key_that_is_missing_is_named_before_anything_runs(host, stavrobot):
    folder = stavrobot(script="#!/bin/sh\ntouch ../ran\n", config=KEY)
    async with host(folder) as h:
        for values in (None, "{}", '{"api": ""}', '{"api": null}'):
            if values is not None:
                plugin_folders.write(f"{folder}/config.json", values)
            result = await h.call("bundle.act")
            assert result.error.code == "config_missing"
            assert result.error.message == "plugin 'bundle' needs the configuration value 'api'"
            assert result.error.hint == f"`anyplug --plugin {folder} config bundle api` asks for it"
            assert result.metadata["keys"] == ["api"]
        assert not os.path.exists(f"{folder}/ran")


@pytest.mark.requirement("STV-14", "STV-15")
@pytest.mark.anyio
async def test_a_tool_finds_its_configuration_beside_its_folder(host, stavrobot):
    folder = stavrobot(script="#!/bin/sh\ncat ../config.json\n", config=KEY)
    plugin_folders.write(f"{folder}/config.json", '{"api": "k"}')
    async with host(folder) as h:
        assert (await h.call("bundle.act")).structured == {"api": "k"}


@pytest.mark.requirement("STV-10", "STV-12")
@pytest.mark.anyio
async def test_defaults_are_written_where_tools_look_for_them_and_nothing_else_is_touched(host, stavrobot):
    keys = {
        "rate": {"description": "d", "required": True, "default": 0.9},
        "none": {"description": "d", "default": None},
    }
    folder = stavrobot(script="#!/bin/sh\ncat ../config.json\n", config=keys | {"plain": {"description": "d"}})
    plugin_folders.write(f"{folder}/config.json", '{"extra": [1], "permissions": ["*"]}')
    async with host(folder) as h:
        values = (await h.call("bundle.act")).structured
        assert values == {"extra": [1], "permissions": ["*"], "rate": 0.9, "none": None}
        plugin_folders.write(f"{folder}/config.json", '{"rate": 2}')
        assert (await h.call("bundle.act")).structured == {"rate": 2, "none": None}
    assert stat.S_IMODE(os.stat(f"{folder}/config.json").st_mode) == 0o600


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        b"{ not json",
        b"[1]",
        b"",
        b"[" * 50_000,
        b'{"a": "\xff"}',
    ],
)
async def test_a_configuration_that_cannot_be_parsed_is_never_overwritten(text, host, stavrobot):
    folder = stavrobot(config={"rate": {"description": "d", "default": 1}})
    plugin_folders.write(f"{folder}/config.json", text)
    async with host(folder) as h:
        result = await h.call("bundle.act")
        assert result.error.code == "config_missing"
        assert "config.json" in result.error.message
        plugin = h.plugins[0].plugin
        with pytest.raises(ConfigError):
            plugin_config.change(plugin, {"rate": "2"}, [])
    with open(f"{folder}/config.json", "rb") as file:
        assert file.read() == text


def test_values_are_merged_typed_by_their_default_and_can_be_unset(root):
    keys = {"rate": {"description": "d", "default": 1}, "api": {"description": "d"}}
    folder = plugin_folders.stavrobot(root, config=keys)
    plugin_folders.write(f"{folder}/config.json", '{"mine": 1, "permissions": ["act"]}')
    plugin = load(folder)
    assert plugin_config.change(plugin, {"rate": "2.5", "api": "7"}, []) == {
        "mine": 1,
        "permissions": ["act"],
        "rate": 2.5,
        "api": 7,
    }
    with pytest.raises(UsageError, match="'rate' must be of type number, as its default 1, not many"):
        plugin_config.change(plugin, {"rate": "many"}, [])
    assert plugin_config.change(plugin, {}, ["api"]) == {"mine": 1, "permissions": ["act"], "rate": 2.5}


def test_keys_that_look_secret_are_secret_unless_the_manifest_says_otherwise(root):
    keys = {name: {"description": "d"} for name in ("api_key", "Token", "password", "city")}
    keys |= {"public_key": {"description": "d", "secret": False}, "pin": {"description": "d", "secret": True}}
    plugin = load(plugin_folders.stavrobot(root, config=keys))
    assert {key.name for key in plugin.config if key.secret} == {"api_key", "Token", "password", "pin"}


@pytest.mark.requirement("STV-10")
@pytest.mark.parametrize("given", [[], "x", {"a": "x"}, {"permissions": {"description": "d", "default": []}}])
def test_a_config_that_is_none_is_ignored_with_a_warning(given, root):
    plugin = load(plugin_folders.stavrobot(root, config=given))
    assert plugin.config == ()
    assert len(warnings(plugin)) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("permissions", "state", "code"),
    [
        ('["*"]', "approved", ""),
        ('["act"]', "approved", ""),
        ('["other"]', "approved", "disabled"),
        ("[]", "disabled", "disabled"),
        ('"x"', "approved", ""),
    ],
)
async def test_permissions_in_the_configuration_are_honoured_and_never_written(
    permissions, state, code, host, stavrobot
):
    folder = stavrobot()
    text = f'{{"permissions": {permissions}}}'
    plugin_folders.write(f"{folder}/config.json", text)
    async with host(folder) as h:
        assert h.plugins[0].state == state
        result = await h.call("bundle.act")
        assert (result.error.code if result.error else "") == code
        if code:
            assert result.error.hint == f"`anyplug --plugin {folder} config bundle --enable act` switches the tool on"
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        assert file.read() == text


@pytest.mark.anyio
async def test_a_tool_may_rewrite_its_configuration_and_stays_approved(host, stavrobot, root):
    stavrobot(script="#!/bin/sh\necho '{\"session\": 1}' > ../config.json\necho state > ../state.json\n")
    async with host(roots=(root,)) as h:
        plugin = h.plugins[0].plugin
        h.catalog.approvals.approve(plugin, h.catalog.digest(plugin), (), always=True, follow=False, unconfined=False)
        for _ in range(2):
            assert not (await h.call("bundle.act")).is_error


# Output


@pytest.mark.requirement("STV-02", "STV-21")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("printed", "text", "structured"),
    [
        ('{"a": 1}', '{"a": 1}', {"a": 1}),
        ("[1, 2]", "[1, 2]", [1, 2]),
        ("42", "42", 42),
        ('"quoted"', "quoted", "quoted"),
        ("null", "null", None),
        ("not json", "not json", None),
        ("", "", None),
        ('{"a": 1} {"b": 2}', '{"a": 1} {"b": 2}', None),
        ('{"ok": false}', '{"ok": false}', {"ok": False}),
    ],
)
async def test_output_is_json_or_text(printed, text, structured, host, stavrobot):
    async with host(stavrobot(script=printing(printed))) as h:
        result = await h.call("bundle.act")
    assert (result.text, result.structured, result.is_error) == (text, structured, False)


@pytest.mark.requirement("STV-22", "STV-23")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo out; echo err >&2; exit 1", "err\n\nout"),
        ("printf out; printf err >&2; exit 1", "err\nout"),
        ("printf out; exit 2", "out"),
        ("printf err >&2; exit 3", "err"),
        ("exit 4", "the tool failed (exit 4) without a message"),
    ],
)
async def test_on_failure_stderr_and_stdout_are_the_message(script, message, host, stavrobot):
    async with host(stavrobot(script=f"#!/bin/sh\n{script}\n")) as h:
        result = await h.call("bundle.act")
    assert (result.error.code, result.error.message) == ("tool_error", message)
    assert result.metadata["exit_code"] == int(script[-1])


@pytest.mark.requirement("STV-22")
@pytest.mark.anyio
async def test_stderr_of_a_success_is_no_failure(host, stavrobot):
    async with host(stavrobot(script="#!/bin/sh\necho 'Installed 5 packages' >&2\necho '{}'\n")) as h:
        result = await h.call("bundle.act")
    assert (result.structured, result.is_error) == ({}, False)
    assert "Installed" not in repr(result)


@pytest.mark.requirement("STV-24")
@pytest.mark.anyio
async def test_when_its_time_is_over_a_call_is_ended(host, stavrobot, monkeypatch):
    monkeypatch.setattr(manifests, "TIMEOUT_S", 0.5)
    async with host(stavrobot(script="#!/bin/sh\nsleep 605\n")) as h:
        result = await h.call("bundle.act")
    assert (result.error.code, result.error.message) == ("timed_out", "Tool execution timed out after 0.5s")


# Surroundings


@pytest.mark.anyio
async def test_a_file_that_may_have_switched_it_off_and_is_broken_now_does_not_switch_it_on(host, stavrobot):
    folder = stavrobot()
    path = plugin_folders.write(f"{folder}/config.json", '{"permissions": []')
    async with host(folder) as h:
        result = await h.call("bundle.act")
    assert (result.error.code, path in result.error.message) == ("config_missing", True)
    assert processes.read(path) == b'{"permissions": []'


@pytest.mark.requirement("STV-15")
@pytest.mark.anyio
async def test_the_environment_is_stavrobots_short_list(host, stavrobot, home, monkeypatch):
    monkeypatch.setenv("MY_SETTING", "blue")
    async with host(stavrobot(script=plugin_folders.python("print(json.dumps([dict(os.environ), os.getcwd()]))"))) as h:
        environment, cwd = (await h.call("bundle.act")).structured
        folder = h.plugins[0].path
        cache = h.catalog.home.cache(h.plugins[0].plugin)
    assert cwd == f"{folder}/act"
    assert environment["HOME"] == str(home / "data" / "bundle" / "home")
    assert environment["UV_CACHE_DIR"] == f"{cache}/uv"
    promised = {"PATH", "HOME", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"}
    ours = {"UV_NO_PROJECT", "UV_NO_CONFIG", "PYTHONPYCACHEPREFIX", "ANYPLUG_GUARD", "NODE_EXTRA_CA_CERTS"}
    theirs = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}  # what a shell or Python adds by itself
    assert set(environment) <= promised | ours | theirs


@pytest.mark.anyio
async def test_the_home_folder_is_private_and_kept(host, stavrobot, home):
    folder = stavrobot(script="#!/bin/sh\necho x >> ~/count\nwc -l < ~/count\n")
    for expected in (1, 2):
        async with host(folder) as h:
            assert (await h.call("bundle.act")).structured == expected
    assert stat.S_IMODE(os.stat(home / "data" / "bundle" / "home").st_mode) == 0o700


@pytest.mark.requirement("STV-15")
@pytest.mark.anyio
async def test_a_tool_finds_shared_code_in_its_plugin(host, stavrobot):
    script = (
        "#!/usr/bin/env python3\n"
        "import sys\n"
        "from pathlib import Path\n"
        "sys.path.append(str(Path(__file__).resolve().parent.parent))\n"
        "sys.path.append('..')\n"
        "import lib.words\n"
        "print(lib.words.HI)\n"
    )
    folder = stavrobot(script=script)
    plugin_folders.write(f"{folder}/lib/words.py", "HI = 'hi'\n")
    async with host(folder) as h:
        result = await h.call("bundle.act")
    assert result.text == "hi\n", result
    assert not os.path.exists(f"{folder}/lib/__pycache__")


# Files

ONE_FILE = "#!/bin/sh\nmkdir -p /tmp/bundle\nprintf hello > /tmp/bundle/out.txt\necho '{}'\n"


@pytest.mark.xdist_group("tmp")  # without namespaces, /tmp/bundle is the machine's
@pytest.mark.anyio
@pytest.mark.parametrize("namespaces", [True, False])
class TestFiles:
    @pytest.fixture(autouse=True)
    def way(self, namespaces, settings):
        settings(f"namespaces = {str(namespaces).lower()}\n")

    async def test_files_that_a_tool_writes_come_back(self, host, stavrobot, home):
        async with host(stavrobot(script=ONE_FILE)) as h:
            result = await h.call("bundle.act")
        (block,) = [block for block in result.content if isinstance(block, File)]
        assert (block.name, block.mime_type) == ("out.txt", "text/plain")
        assert block.path.startswith(str(home / "files" / "bundle"))
        assert processes.read(block.path) == b"hello"
        assert not os.path.exists("/tmp/bundle")

    async def test_a_file_argument_becomes_a_path_and_does_not_come_back(self, host, stavrobot):
        script = plugin_folders.python("print(json.dumps([given['file'], open(given['file'], 'rb').read().hex()]))")
        data = bytes(range(256))
        async with host(stavrobot(script=script, parameters=PARAMETERS)) as h:
            result = await h.call(
                "bundle.act", {"file": {"filename": "in.bin", "data": base64.b64encode(data).decode()}}
            )
        assert result.structured == ["/tmp/bundle/in.bin", data.hex()]
        assert len(result.content) == 1

    async def test_a_changed_input_comes_back(self, host, stavrobot):
        script = plugin_folders.python("open(given['file'], 'a').write('more')")
        async with host(stavrobot(script=script, parameters=PARAMETERS)) as h:
            result = await h.call("bundle.act", {"file": {"filename": "in.txt", "data": "aGk="}})
        (block,) = [block for block in result.content if isinstance(block, File)]
        assert processes.read(block.path) == b"himore"

    async def test_folders_links_and_pipes_do_not_come_back(self, host, stavrobot):
        script = "#!/bin/sh\ncd /tmp/bundle; mkdir sub; touch sub/x; ln -s /etc/passwd link; mkfifo pipe\n"
        async with host(stavrobot(script=script)) as h:
            result = await h.call("bundle.act")
        assert len(result.content) == 1

    async def test_a_file_whose_name_is_no_text_comes_back(self, host, stavrobot):
        script = "#!/usr/bin/env python3\nopen(b'/tmp/bundle/\\xff.txt', 'w').write('x')\n"
        async with host(stavrobot(script=script)) as h:
            result = await h.call("bundle.act")
        (block,) = [block for block in result.content if isinstance(block, File)]
        assert block.name.isprintable()
        assert processes.read(block.path) == b"x"

    async def test_a_tool_that_removes_its_folder_gives_no_files(self, host, stavrobot):
        async with host(stavrobot(script="#!/bin/sh\nrm -rf /tmp/bundle\necho fine\n")) as h:
            assert (await h.call("bundle.act")).text == "fine\n"

    async def test_files_of_a_failure_are_not_given(self, host, stavrobot, home):
        async with host(stavrobot(script=ONE_FILE + "exit 1\n")) as h:
            result = await h.call("bundle.act")
        assert len(result.content) == 1
        assert not os.path.exists(home / "files")

    async def test_calls_at_the_same_time_do_not_meet(self, host, stavrobot):
        body = (
            "p = '/tmp/bundle/' + given['text']\n"
            "open(p, 'w').write(given['text'])\n"
            "time.sleep(0.1)\n"
            "print(json.dumps(sorted(os.listdir('/tmp/bundle'))))"
        )
        found = {}
        async with host(stavrobot(script=plugin_folders.python(body))) as h:

            async def call(name):
                found[name] = await h.call("bundle.act", {"text": name})

            async with anyio.create_task_group() as tasks:
                for name in ("a", "b", "c", "d"):
                    tasks.start_soon(call, name)
        for name, result in found.items():
            assert result.structured == [name], result
            assert [block.name for block in result.content if isinstance(block, File)] == [name]


@pytest.mark.anyio
@pytest.mark.parametrize("filename", ["", ".", "..", "../x", "a/b", "/etc/x", "a\0b", "x" * 300])
async def test_a_filename_that_leads_elsewhere_is_refused(filename, host, stavrobot):
    async with host(stavrobot(parameters=PARAMETERS)) as h:
        result = await h.call("bundle.act", {"file": {"filename": filename, "data": ""}})
    assert result.error.code == "invalid_arguments"
    assert '"file"' in result.error.message


@pytest.mark.anyio
async def test_data_that_is_not_base64_is_refused(host, stavrobot):
    async with host(stavrobot(parameters=PARAMETERS)) as h:
        for data in ("a", "é"):
            result = await h.call("bundle.act", {"file": {"filename": "x", "data": data}})
            assert result.error.code == "invalid_arguments"


@pytest.mark.anyio
async def test_two_files_of_one_name_are_refused(host, stavrobot):
    async with host(stavrobot(parameters=PARAMETERS | {"second": PARAMETERS["file"]})) as h:
        file = {"filename": "x", "data": ""}
        result = await h.call("bundle.act", {"file": file, "second": file})
    assert result.error.message == 'Two file parameters have the filename "x"'


@pytest.mark.anyio
async def test_more_than_25_mib_of_files_are_refused(host, stavrobot):
    async with host(stavrobot(parameters=PARAMETERS)) as h:
        data = base64.b64encode(bytes((25 << 20) + 1)).decode()
        result = await h.call("bundle.act", {"file": {"filename": "x", "data": data}})
    assert result.error.message == "Input files exceed the maximum allowed size (25 MiB)"


# Set-up


@pytest.mark.anyio
async def test_the_init_script_runs_in_the_plugins_folder_with_nothing_on_stdin(host, stavrobot):
    folder = stavrobot(init={"entrypoint": "init.sh"})
    plugin_folders.write(f"{folder}/init.sh", '#!/bin/sh\necho "in $(pwd) with $(wc -c) at $HOME"\ntouch made\n', 0o755)
    told = []
    async with host(folder, tell=told.append) as h:
        said = await h.prepare(h.plugins[0].plugin)
        assert said.split() == [
            "in",
            folder,
            "with",
            "0",
            "at",
            os.path.join(h.catalog.home.path, "data", "bundle") + "/home",
        ]
    assert os.path.exists(f"{folder}/made")
    assert told == ["running init.sh"]


@pytest.mark.anyio
async def test_an_init_script_that_fails_says_why(host, stavrobot):
    folder = stavrobot(init={"entrypoint": "init.sh"})
    plugin_folders.write(f"{folder}/init.sh", "#!/bin/sh\necho out\necho 'no network' >&2\nexit 1\n", 0o755)
    async with host(folder) as h:
        with pytest.raises(CallError, match=r"^Init script failed: no network\n\nout$"):
            await h.prepare(h.plugins[0].plugin)
        os.unlink(f"{folder}/init.sh")
        with pytest.raises(CallError, match=r"^Init script declared in manifest not found or not executable: "):
            await h.prepare(h.plugins[0].plugin)


# uv

DEPENDENT = """#!/usr/bin/env -S {uv}
# /// script
# requires-python = ">=3.11"
# dependencies = ["greeting @ file://{wheel}"]
# ///
import greeting
print(greeting.HELLO)
"""


def wheel(folder) -> str:
    """A package of our own, so that the test needs no network; beside the plugin, which is all that resolving reads."""
    import zipfile  # only here

    path = os.path.join(folder, "greeting-1.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("greeting.py", "HELLO = 'hello from a dependency'\n")
        file.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        file.writestr(
            "greeting-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr("greeting-1.0.dist-info/RECORD", "")
    return path


@pytest.mark.requirement("STV-25")
@pytest.mark.anyio
@pytest.mark.parametrize(("uv", "name"), [("uv run", "run.py"), ("uv run --script", "run")])
async def test_dependencies_of_a_uv_script_are_resolved_outside_the_calls_time(uv, name, host, stavrobot):
    folder = stavrobot(tool={"entrypoint": name})
    script = DEPENDENT.format(uv=uv, wheel=wheel(folder))
    plugin_folders.write(f"{folder}/act/{name}", script, 0o755)
    told = []
    async with host(folder, tell=told.append) as h:
        await h.prepare(h.plugins[0].plugin)
        assert told == [f"resolving the dependencies of act/{name}"]
        for _ in range(2):
            result = await h.call("bundle.act")
            assert result.text == "hello from a dependency\n", result
        assert len(told) == 1
    # Somebody who never prepared it: the first call does, and says so.
    plugin_folders.write(f"{folder}/act/{name}", script + "# another\n", 0o755)
    async with host(folder, tell=told.append) as h:
        assert (await h.call("bundle.act")).text == "hello from a dependency\n"
    assert len(told) == 2


@pytest.mark.anyio
async def test_the_users_settings_of_uv_are_neither_needed_nor_read(host, stavrobot, monkeypatch, tmp_path):
    settings = tmp_path / "config" / "uv" / "uv.toml"
    plugin_folders.write(str(settings), '[[index]]\nurl = "https://user:a-password@index.example/simple"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = stavrobot()
    script = DEPENDENT.format(uv="uv run --script", wheel=wheel(folder))
    plugin_folders.write(f"{folder}/act/run", script, 0o755)
    async with host(folder) as h:
        assert (await h.call("bundle.act")).text == "hello from a dependency\n"
    plugin_folders.write(f"{folder}/act/run", DEPENDENT.format(uv="uv run", wheel="/no/such/greeting.whl"), 0o755)
    async with host(folder) as h:
        result = await h.call("bundle.act")
    assert "Permission denied" not in result.error.message
    assert result.error.hint.endswith("env:UV_DEFAULT_INDEX`")


@pytest.mark.requirement("STV-25")
@pytest.mark.anyio
async def test_dependencies_that_cannot_be_resolved_say_why(host, stavrobot):
    folder = stavrobot()
    script = DEPENDENT.format(uv="uv run", wheel="/no/such/greeting-1.0-py3-none-any.whl")
    plugin_folders.write(f"{folder}/act/run", script, 0o755)
    async with host(folder) as h:
        result = await h.call("bundle.act")
    assert result.error.code == "unavailable"
    assert result.error.message.startswith("the dependencies of act/run could not be resolved: ")


# Waits for a file that a program of the plugin would leave for it, and puts what it saw into the package.
BUILD = """
import os, time, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    left = os.path.join(os.path.dirname(os.environ["UV_CACHE_DIR"]), "left")
    for _ in range(30):
        if os.path.exists(left):
            break
        time.sleep(0.1)
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as file:
        file.writestr("greeting.py", f"HELLO = {os.path.exists(left)}")
        file.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
        file.writestr("greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        file.writestr("greeting-1.0.dist-info/RECORD", "")
    return name
"""
LEAVE = """#!/usr/bin/env python3
import os
open(os.path.join(os.path.dirname(os.environ["UV_CACHE_DIR"]), "left"), "w").close()
"""


@pytest.mark.claim("resolver-alone")
@pytest.mark.anyio
async def test_no_program_of_a_plugin_runs_while_its_dependencies_are_built(host, stavrobot):
    folder = stavrobot(tools={"act": "", "leave": LEAVE})
    script = DEPENDENT.format(uv="uv run --script", wheel=f"{folder}/greeting")
    plugin_folders.write(f"{folder}/act/run", script, 0o755)
    plugin_folders.write(f"{folder}/greeting/build.py", BUILD)
    project = '[build-system]\nrequires = []\nbuild-backend = "build"\nbackend-path = ["."]\n'
    about = '[project]\nname = "greeting"\nversion = "1.0"\n'
    plugin_folders.write(f"{folder}/greeting/pyproject.toml", project + about)
    told = anyio.Event()
    seen = []
    async with host(folder, tell=lambda _: told.set()) as h, anyio.create_task_group() as tasks:

        async def call(tool):
            seen.append((tool, await h.call(tool)))

        tasks.start_soon(call, "bundle.act")
        await told.wait()
        tasks.start_soon(call, "bundle.leave")
    results = dict(seen)
    assert not results["bundle.leave"].is_error, results
    assert results["bundle.act"].text == "False\n", results


@pytest.mark.claim("resolver-alone")
@pytest.mark.anyio
async def test_a_plugin_cannot_have_its_dependencies_built_again(root, host, stavrobot):
    # As an interpreter that `uv` starts ahead does, the tool creates the folder again.
    emptying = '#!/bin/sh\nrm -rf "${UV_CACHE_DIR%/*}"/*\nmkdir -p "$UV_CACHE_DIR"\n'
    folder = stavrobot(tools={"act": "", "empty": emptying})
    script = DEPENDENT.format(uv="uv run --script", wheel=wheel(folder))
    plugin_folders.write(f"{folder}/act/run", script, 0o755)
    told = []
    async with host(roots=(root,), tell=told.append) as h:
        await mcp_clients.approve(h, "bundle", always=True)
        assert (await h.call("bundle.act")).text == "hello from a dependency\n"
        assert not (await h.call("bundle.empty")).is_error
        refused = await h.call("bundle.act")
        assert (refused.error.code, "`anyplug approve bundle`" in refused.error.hint) == ("unavailable", True)
        assert len(told) == 1
        await mcp_clients.approve(h, "bundle", always=True)
        assert (await h.call("bundle.act")).text == "hello from a dependency\n"
