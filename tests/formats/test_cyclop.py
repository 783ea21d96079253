"""Cyclop One: every rule of its manifest, its request, its response, its surroundings and its limits."""

import json
import os
import re
import shutil

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

import plugin_folders
from anyplug.formats.cyclop import format  # noqa: A004 - the product's own word
from anyplug.formats.shared.contract import Folder
from anyplug.model.permissions import tier, warning
from random_examples import at_most

TOOL = {"name": "hello", "description": "Does it.", "input_schema": plugin_folders.NO_PARAMETERS}


def load(path, *, explicit=False):
    return format.load(Folder(os.path.realpath(path), str(path), explicit))


def errors(plugin):
    return [problem.message for problem in plugin.problems if problem.level == "error"]


def warnings(plugin):
    return [problem.message for problem in plugin.problems if problem.level == "warning"]


def answering(text):
    """A script that answers just that."""
    return f"#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{text}\nEND\n"


# The manifest


@pytest.mark.requirement("CYC-09", "CYC-11")
def test_a_right_manifest_has_no_problems(root):
    plugin = load(plugin_folders.cyclop(root, permissions=["filesystem:read"], author="somebody", unknown=1))
    assert plugin.problems == ()
    assert (plugin.name, plugin.version, plugin.format, plugin.tier) == ("hello", "1.0.0", "cyclop", 1)
    assert plugin.description == "What hello does."
    (tool,) = plugin.tools
    assert (tool.name, tool.own_name, tool.plugin, tool.timeout_s) == ("hello", "hello", "hello", 30.0)
    assert tool.input_schema == plugin_folders.NO_PARAMETERS
    assert tool.program == os.path.join(plugin.path, "run")


@pytest.mark.requirement("CYC-07")
@pytest.mark.parametrize("value", [..., "", 1.0, None, ["x"]])
@pytest.mark.parametrize("field", ["name", "version", "description", "entrypoint"])
def test_each_required_field_must_be_a_string_that_is_not_empty(field, value, root):
    folder = plugin_folders.cyclop(root)
    plugin_folders.write(f"{folder}/plugin.json", json.dumps(plugin_folders.cyclop_manifest("hello", **{field: value})))
    plugin = load(folder)
    wrong = {"1.0": "a number", "['x']": "a list"}.get(str(value))
    what = f"'{field}' must be a string, not {wrong}," if wrong else f"plugin.json missing required field '{field}'"
    assert errors(plugin) == [f"{what} at {folder}/plugin.json"]
    assert plugin.tools == ()
    assert plugin.name == "hello"


@pytest.mark.requirement("CYC-38")
def test_every_fault_is_named_at_once(root):
    plugin = load(plugin_folders.cyclop(root, version=..., description=..., permissions=..., tools=...))
    assert len(errors(plugin)) == 4


@pytest.mark.requirement("CYC-06")
@pytest.mark.parametrize("name", ["Hello", "-hello", "he llo", "../evil", "he_llo", "héllo", "a/b", ".", "hello\n"])
def test_a_name_outside_the_pattern_is_refused(name, root):
    folder = plugin_folders.cyclop(root)
    plugin_folders.write(f"{folder}/plugin.json", json.dumps(plugin_folders.cyclop_manifest("hello", name=name)))
    plugin = load(folder)
    assert errors(plugin) == [f"plugin name '{name}' at {folder}/plugin.json is not allowed"]
    assert plugin.name == "hello"


@pytest.mark.requirement("CYC-06")
@pytest.mark.parametrize("name", ["a", "0", "7-zip", "a--b", "a-"])
def test_a_name_within_the_pattern_is_fine(name, root):
    assert load(plugin_folders.cyclop(root, name)).problems == ()


@pytest.mark.requirement("CYC-05")
def test_the_folder_must_be_named_like_the_plugin(root):
    folder = plugin_folders.cyclop(root)
    os.rename(folder, os.path.join(root, "other"))
    assert errors(load(os.path.join(root, "other"))) == ["the folder 'other' must be named like the plugin, 'hello'"]


def test_a_link_named_like_the_plugin_is_enough(root):
    folder = plugin_folders.cyclop(root)
    os.rename(folder, os.path.join(root, "other"))
    os.symlink("other", folder)
    assert errors(load(folder)) == []


@pytest.mark.requirement("CYC-10")
@pytest.mark.parametrize(
    ("entrypoint", "text"),
    [
        ("/bin/sh", "Plugin entrypoint '/bin/sh' must be a relative path"),
        ("~/run", "Plugin entrypoint '~/run' must be a relative path"),
        ("../run", "Plugin entrypoint '../run' contains path traversal"),
        ("bin/../run", "Plugin entrypoint 'bin/../run' contains path traversal"),
        ("out", "Plugin entrypoint 'out' leads outside the plugin's folder"),
        ("folder/sh", "Plugin entrypoint 'folder/sh' leads outside the plugin's folder"),
        (".", "Plugin entrypoint '.' leads outside the plugin's folder"),
        (".git/run", "Plugin entrypoint '.git/run' is in a folder that is not checked for changes"),
        ("__pycache__/run", "Plugin entrypoint '__pycache__/run' is in a folder that is not checked for changes"),
        ("config.json", "Plugin entrypoint 'config.json' is in a folder that is not checked for changes"),
    ],
)
def test_an_entrypoint_that_leads_elsewhere_is_refused(entrypoint, text, root):
    folder = plugin_folders.cyclop(root, entrypoint=entrypoint)
    os.symlink("/bin/sh", f"{folder}/out")
    os.symlink("/bin", f"{folder}/folder")
    plugin = load(folder)
    assert errors(plugin) == [text]
    assert plugin.tools == ()


@pytest.mark.requirement("CYC-10")
@pytest.mark.parametrize("entrypoint", ["a..b", "bin/run", "./run", "inside"])
def test_an_entrypoint_inside_the_plugin_is_fine(entrypoint, root):
    folder = plugin_folders.cyclop(root, entrypoint=entrypoint)
    for name in ("a..b", "bin/run"):
        plugin_folders.write(f"{folder}/{name}", plugin_folders.ANSWER, 0o755)
    os.symlink("bin/run", f"{folder}/inside")
    assert load(folder).problems == ()


@pytest.mark.requirement("CYC-39")
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (os.unlink, "the file does not exist"),
        (lambda path: os.chmod(path, 0o644), "it has no execute permission"),
        (lambda path: (os.unlink(path), os.mkdir(path)), "it is a folder"),
        (lambda path: (os.unlink(path), os.symlink("nothing", path)), "it is a broken link"),
    ],
)
def test_an_entrypoint_that_cannot_run_is_a_warning_that_says_why(spoil, reason, root):
    folder = plugin_folders.cyclop(root)
    spoil(f"{folder}/run")
    plugin = load(folder)
    assert errors(plugin) == []
    assert warnings(plugin) == [f"Plugin entrypoint 'run' cannot be run: {reason}"]
    assert plugin.problems[0].hint


@pytest.mark.requirement("CYC-12")
@pytest.mark.parametrize("tools", [..., [], {}, None, "hello"])
def test_at_least_one_tool_is_needed(tools, root):
    (error,) = errors(load(plugin_folders.cyclop(root, tools=tools)))
    kind = {"{}": "an object", "hello": "a text"}.get(str(tools))
    assert error == (f"plugin.json: 'tools' must be a list, not {kind}" if kind else "plugin.json declares no tools")


@pytest.mark.requirement("CYC-13")
@pytest.mark.parametrize(
    "tool", [{}, {"name": "x"}, {"description": "x"}, TOOL | {"name": ""}, TOOL | {"name": 1}, "x", None]
)
def test_a_tool_needs_a_name_and_a_description(tool, root):
    plugin = load(plugin_folders.cyclop(root, tools=[TOOL, tool]))
    (error,) = errors(plugin)
    if isinstance(tool, dict) and tool.get("name") != 1:
        assert error == "Tool at index 1 missing name or description"
    else:
        assert re.fullmatch(
            "Tool at index 1(: 'name' must be a string| must be an object), not (a number|a text|null)", error
        )
    assert plugin.tools == ()


@pytest.mark.requirement("CYC-14")
@pytest.mark.parametrize("schema", [..., {}, None, [], "object"])
def test_a_tool_needs_a_schema(schema, root):
    tool = {key: value for key, value in (TOOL | {"input_schema": schema}).items() if value is not ...}
    assert errors(load(plugin_folders.cyclop(root, tools=[tool]))) == ["Tool 'hello' has an empty input_schema"]


@pytest.mark.requirement("CYC-14")
@pytest.mark.parametrize("schema", [{"type": "string"}, {"properties": {}}, {"type": ["object"]}])
def test_a_schema_must_be_of_type_object(schema, root):
    plugin = load(plugin_folders.cyclop(root, tools=[TOOL | {"input_schema": schema}]))
    assert errors(plugin) == ['Tool \'hello\' input_schema must have "type": "object"']


def test_a_tool_may_have_an_entrypoint_of_its_own(root):
    tools = [TOOL, TOOL | {"name": "other", "entrypoint": "bin/other"}]
    folder = plugin_folders.cyclop(root, tools=tools)
    plugin_folders.write(f"{folder}/bin/other", plugin_folders.ANSWER, 0o755)
    plugin = load(folder)
    assert plugin.problems == ()
    assert [tool.program for tool in plugin.tools] == [f"{plugin.path}/run", f"{plugin.path}/bin/other"]


def test_no_shared_entrypoint_is_needed_if_each_tool_has_its_own(root):
    assert load(plugin_folders.cyclop(root, entrypoint=..., tools=[TOOL | {"entrypoint": "run"}])).problems == ()


def test_a_tools_own_entrypoint_is_checked_alike(root):
    plugin = load(plugin_folders.cyclop(root, tools=[TOOL | {"entrypoint": "../../bin/sh"}]))
    assert errors(plugin) == ["Plugin entrypoint '../../bin/sh' contains path traversal"]


@pytest.mark.requirement("CYC-15")
def test_of_two_tools_with_one_name_the_first_is_kept(root):
    plugin = load(plugin_folders.cyclop(root, tools=[TOOL, TOOL | {"description": "Another."}]))
    assert errors(plugin) == []
    assert warnings(plugin) == ["Duplicate tool name 'hello'; the second is skipped"]
    assert [tool.description for tool in plugin.tools] == ["Does it."]


@pytest.mark.requirement("CYC-08")
@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "latest"])
def test_a_version_that_is_not_semantic_is_only_a_warning(version, root):
    plugin = load(plugin_folders.cyclop(root, version=version))
    assert errors(plugin) == []
    assert warnings(plugin) == [f"version '{version}' is not a semantic version"]


@pytest.mark.requirement("CYC-08", "CYC-09")
@pytest.mark.parametrize("version", ["1.0.0", "0.12.3-beta.1", "1.2.3+build.5"])
def test_a_semantic_version_is_fine(version, root):
    assert load(plugin_folders.cyclop(root, version=version)).problems == ()


@pytest.mark.requirement("CYC-11")
@pytest.mark.parametrize("permissions", [..., "network", {"network": True}, ["network", 1], None])
def test_permissions_must_be_a_list_of_strings(permissions, root):
    plugin = load(plugin_folders.cyclop(root, permissions=permissions))
    what = "plugin.json: 'permissions' must be a list of strings"
    if permissions in (..., None):
        what = "plugin.json missing required field 'permissions'"
    assert errors(plugin) == [what]


@pytest.mark.requirement("CYC-35", "CYC-36")
@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ([], 1),
        (["filesystem:read"], 1),
        (["filesystem:read:~/notes"], 1),
        (["filesystem:write"], 2),
        (["network"], 2),
        (["shell:exec"], 2),
        (["clipboard"], 2),
        (["notifications"], 2),
        (["filesystem:read", "network"], 2),
        (["filesystem"], 2),
        (["teleport"], 2),
        (["filesystem:reading"], 2),
    ],
)
def test_tiers_are_as_in_the_guide(permissions, expected, root):
    assert load(plugin_folders.cyclop(root, permissions=permissions)).tier == expected


@pytest.mark.requirement("CYC-31")
def test_the_permissions_of_the_guide_are_known(root):
    asked = ("filesystem:read", "filesystem:write", "network", "shell:exec", "clipboard", "notifications")
    plugin = load(plugin_folders.cyclop(root, permissions=list(asked)))
    assert (plugin.permissions, plugin.problems) == (asked, ())


def test_aliases_of_permissions_are_replaced(root):
    plugin = load(plugin_folders.cyclop(root, permissions=["filesystem", "shell", "filesystem:read"]))
    assert plugin.permissions == ("filesystem:read", "filesystem:write", "shell:exec")
    assert plugin.problems == ()


def test_an_unknown_permission_is_tier_2_with_a_warning(root):
    plugin = load(plugin_folders.cyclop(root, permissions=["teleport"]))
    assert (plugin.tier, warnings(plugin)) == (2, ["unknown permission 'teleport'"])


def test_a_manifest_cannot_ask_for_a_secret_of_the_environment(root):
    plugin = load(plugin_folders.cyclop(root, permissions=["env:API_TOKEN", "filesystem:read"]))
    assert (plugin.permissions, plugin.tier) == (("filesystem:read",), 1)
    assert warnings(plugin) == ["'env:API_TOKEN' cannot be requested; it is ignored"]


@pytest.mark.requirement("CYC-37")
def test_shell_and_network_together_carry_a_warning():
    assert warning(("shell:exec", "network"))
    assert not warning(("shell:exec",))
    assert not warning(("network", "filesystem:write"))
    assert tier(("shell:exec", "network")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "plugin.json is not valid JSON at "),
        (b"{", "plugin.json is not valid JSON at "),
        (b'{"name": "hello"} // hm', "plugin.json is not valid JSON at "),
        (b"[]", "plugin.json is not valid JSON at "),
        (b"7", "plugin.json is not valid JSON at "),
        (b'{"name": "\xff"}', "plugin.json is not valid JSON at "),
        (b"[" * 200_000, "plugin.json is not valid JSON at "),
        (b'{"a":' * 200_000, "plugin.json is not valid JSON at "),
        (b'{"a": 1e999}', "plugin.json is not valid JSON at "),
        (b'{"name": "\\ud800"}', "plugin.json is not valid JSON at "),
    ],
)
def test_what_is_not_a_json_object_is_refused(text, message, root):
    folder = plugin_folders.cyclop(root)
    plugin_folders.write(f"{folder}/plugin.json", text)
    plugin = load(folder)
    (error,) = errors(plugin)
    assert error.startswith(message + folder)
    assert (plugin.name, plugin.tools) == ("hello", ())


def test_a_byte_order_mark_in_a_manifest_is_accepted(root):
    folder = plugin_folders.cyclop(root)
    plugin_folders.write(f"{folder}/plugin.json", "\ufeff" + json.dumps(plugin_folders.cyclop_manifest("hello")))
    assert load(folder).problems == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PATHS = st.sampled_from(["run", "/", "..", "a/../..", "\0", "run/", "", "x" * 5000, "./run", "a/" * 3000, "\ud800"[:0]])
MANIFESTS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("hello") | JSON,
        "version": st.just("1.0.0") | JSON,
        "description": st.just("d") | JSON,
        "entrypoint": PATHS | JSON,
        "permissions": st.lists(st.text(max_size=12) | st.just("network"), max_size=3) | JSON,
        "tools": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": st.text(max_size=12) | JSON,
                    "description": st.text(max_size=3) | JSON,
                    "entrypoint": PATHS | JSON,
                    "input_schema": st.just(plugin_folders.NO_PARAMETERS) | JSON,
                },
            )
            | JSON,
            max_size=3,
        )
        | JSON,
    },
)


@bounds(max_examples=at_most(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(manifest=MANIFESTS | JSON)
def test_no_manifest_makes_loading_raise(manifest, tmp_path_factory):
    root = tmp_path_factory.getbasetemp() / "hostile-manifests"
    folder = plugin_folders.cyclop(root)
    plugin_folders.write(f"{folder}/plugin.json", json.dumps(manifest))
    plugin = load(folder)
    assert plugin.is_broken or plugin.tools
    assert all(problem.message and problem.hint for problem in plugin.problems)


@bounds(max_examples=at_most(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.binary(max_size=60))
def test_no_bytes_make_loading_raise(text, tmp_path_factory):
    folder = plugin_folders.cyclop(tmp_path_factory.getbasetemp() / "hostile-bytes")
    plugin_folders.write(f"{folder}/plugin.json", text)
    assert load(folder).is_broken


# The request

ECHO = plugin_folders.python("print(json.dumps({'result': json.dumps(given)}))")


@pytest.mark.requirement("CYC-17")
@pytest.mark.anyio
async def test_the_request_is_one_line_and_then_the_end(host, cyclop):
    script = '#!/bin/sh\nset -e\nread -r line\nrest=$(cat)\nprintf \'{"result": "%s|%s"}\' "${#line}" "$rest"\n'
    async with host(cyclop(script=script)) as h:
        length, rest = (await h.call("hello", {"a": "b\nc"})).text.split("|")
    assert int(length) > 50
    assert rest == ""


@pytest.mark.requirement("CYC-18", "CYC-19")
@pytest.mark.anyio
async def test_the_request_has_the_tool_the_input_and_both_folders(host, cyclop, home):
    async with host(cyclop(script=ECHO)) as h:
        request = json.loads((await h.call("hello", {"name": "Alice"})).text)
        folder = h.plugins[0].path
    assert request == {
        "tool": "hello",
        "input": {"name": "Alice"},
        "context": {"plugin_dir": folder, "data_dir": str(home / "data" / "hello")},
    }


@pytest.mark.requirement("CYC-27", "CYC-29", "CYC-30")
@pytest.mark.anyio
async def test_the_surroundings_are_the_users_with_two_variables(host, cyclop, home, monkeypatch):
    monkeypatch.setenv("MY_SETTING", "blue")
    monkeypatch.setenv("GREETING", "good morning")
    monkeypatch.setenv("MY_API_KEY", "hidden")
    report = plugin_folders.python(
        "print(json.dumps({'result': json.dumps([dict(os.environ), os.getcwd(), sys.argv])}))"
    )
    folder = cyclop(script=report, entrypoint="bin/run")
    plugin_folders.write(f"{folder}/bin/run", report, 0o755)
    async with host(folder) as h:
        environment, cwd, arguments = json.loads((await h.call("hello")).text)
    assert cwd == folder
    assert len(arguments) == 1
    assert environment["CYCLOPONE_PLUGIN_DIR"] == folder
    assert environment["CYCLOPONE_DATA_DIR"] == str(home / "data" / "hello")
    assert environment["MY_SETTING"] == "blue"
    assert environment["GREETING"] == "good morning"
    assert "MY_API_KEY" not in environment
    assert environment["HOME"] == os.environ["HOME"]
    assert environment["PATH"].split(":")[0] == str(home / "bin")
    assert set(os.listdir(home / "bin")) <= {"node", "uv"}
    assert not os.path.exists(f"{folder}/__pycache__")


@pytest.mark.requirement("CYC-29")
@pytest.mark.anyio
async def test_a_granted_secret_is_given(host, cyclop, root, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "shown")
    cyclop(script='#!/bin/sh\nprintf \'{"result": "%s"}\' "$MY_API_KEY"\n')
    async with host(roots=(root,)) as h:
        plugin = h.plugins[0].plugin
        h.catalog.approvals.approve(
            plugin, h.catalog.digest(plugin), ("env:MY_API_KEY",), always=True, follow=False, unconfined=False
        )
        assert (await h.call("hello")).text == "shown"


@pytest.mark.requirement("CYC-20")
@pytest.mark.anyio
async def test_the_data_folder_is_there_private_and_kept(host, cyclop, home):
    script = (
        "#!/bin/sh\n"
        'echo x >> "$CYCLOPONE_DATA_DIR/count"\n'
        'printf \'{"result": "%d"}\' $(wc -l < "$CYCLOPONE_DATA_DIR/count")\n'
    )
    folder = cyclop(script=script)
    for expected in ("1", "2"):
        async with host(folder) as h:
            assert (await h.call("hello")).text == expected
    assert os.stat(home / "data" / "hello").st_mode & 0o777 == 0o700


@pytest.mark.requirement("CYC-43")
@pytest.mark.anyio
async def test_plugins_of_cyclop_ones_own_folder_keep_their_data_there(host, tmp_path):
    root = tmp_path / "user" / ".cyclopone" / "plugins"
    plugin_folders.cyclop(root, script='#!/bin/sh\nprintf \'{"result": "%s"}\' "$CYCLOPONE_DATA_DIR"\n')
    async with host(roots=(str(root),)) as h:
        plugin = h.plugins[0].plugin
        h.catalog.approvals.approve(plugin, h.catalog.digest(plugin), (), always=True, follow=False, unconfined=False)
        assert (await h.call("hello")).text == str(tmp_path / "user" / ".cyclopone" / "plugin-data" / "hello")


@pytest.mark.anyio
@pytest.mark.parametrize("is_new", [True, False])
async def test_a_plugin_with_a_file_in_its_data_folders_place_is_told_so(is_new, host, cyclop):
    script = '#!/bin/sh\nrmdir "$CYCLOPONE_DATA_DIR"; touch "$CYCLOPONE_DATA_DIR"\necho \'{"result": ""}\'\n'
    async with host(cyclop(script=script)) as h:
        if not is_new:
            assert not (await h.call("hello")).is_error
            os.rmdir(os.path.join(h.catalog.home.path, "data", "hello"))  # it could not do that itself
        plugin_folders.write(os.path.join(h.catalog.home.path, "data", "hello"), "")
        result = await h.call("hello")
    assert result.error.code == "unavailable"
    assert os.path.join(h.catalog.home.path, "data", "hello") in result.error.message


@pytest.mark.requirement("CYC-01")
@pytest.mark.anyio
async def test_a_plugin_may_start_in_any_language_that_has_a_shebang(host, cyclop):
    async with host(cyclop(script='#!/usr/bin/awk -f\nBEGIN { print "{\\"result\\": \\"awk\\"}" }\n')) as h:
        assert (await h.call("hello")).text == "awk"


@pytest.mark.requirement("CYC-01", "CYC-10")
@pytest.mark.anyio
async def test_an_entrypoint_may_be_a_binary(host, cyclop):
    folder = cyclop()
    shutil.copy(shutil.which("cat"), f"{folder}/run")
    async with host(folder) as h:
        result = await h.call("hello", {"a": 1})
    assert '"tool":"hello","input":{"a":1}' in result.error.message  # it answers with what it was asked


# The response


@pytest.mark.requirement("CYC-21", "CYC-22")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "text", "is_error", "warned"),
    [
        ('{"result": "hi"}', "hi", False, False),
        ('{"result": ""}', "", False, False),
        ('{"result": "hi", "is_error": false, "more": 1}', "hi", False, False),
        ('  \n{"result": "hi"}\n\n', "hi", False, False),
        ('{"result": "a", "result": "b"}', "b", False, False),
        ('{"result": "no", "is_error": true}', "no", True, False),
        ('{"result": "no", "is_error": 1}', "no", True, False),
        ('{"result": "hi", "is_error": 0}', "hi", False, False),
        ('{"result": "hi", "is_error": "true"}', "hi", False, True),
        ('{"result": "hi", "is_error": 2}', "hi", False, True),
        ('{"result": "hi", "is_error": null}', "hi", False, True),
        ('{"result": 42}', "42", False, True),
        ('{"result": null}', "null", False, True),
        ('{"result": {"a": [1]}}', '{"a":[1]}', False, True),
    ],
)
async def test_the_response_is_read_as_the_guide_says(answer, text, is_error, warned, host, cyclop):
    async with host(cyclop(script=answering(answer))) as h:
        result = await h.call("hello")
    assert (result.text, result.is_error, "warnings" in result.metadata) == (text, is_error, warned)
    assert (result.error is not None) == is_error
    if is_error:
        assert (result.error.code, result.error.message) == ("tool_error", text)


@pytest.mark.anyio
async def test_a_result_that_is_no_string_is_given_as_it_is_too(host, cyclop):
    async with host(cyclop(script=answering('{"result": {"a": [1]}}'))) as h:
        assert (await h.call("hello")).structured == {"a": [1]}


@pytest.mark.requirement("CYC-40")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        "text",
        "7",
        '"text"',
        "null",
        '{"is_error": false}',
        "{}",
        'log\n{"result": "x"}',
        '{"result": "\\ud800"}',
        "[" * 5000,
    ],
)
async def test_any_other_output_is_invalid_and_is_shown(answer, host, cyclop):
    async with host(cyclop(script=answering(answer))) as h:
        result = await h.call("hello")
    assert result.error.code == "bad_output"
    assert result.error.message.startswith("Plugin returned invalid JSON: ")
    assert answer[:1000] in result.error.message
    assert result.error.hint == "write one JSON object to stdout and everything else to stderr"


@pytest.mark.requirement("CYC-40")
@pytest.mark.anyio
@pytest.mark.parametrize("script", ["#!/bin/sh\necho why >&2\n", "#!/bin/sh\necho why >&2; printf ' \\n\\t'\n"])
async def test_no_output_is_said_with_what_stderr_had(script, host, cyclop):
    async with host(cyclop(script=script)) as h:
        result = await h.call("hello")
    assert (result.error.code, result.error.message) == ("bad_output", "Plugin returned no output")
    assert result.metadata["stderr"] == "why\n"


@pytest.mark.requirement("CYC-26")
@pytest.mark.anyio
async def test_stderr_of_a_success_goes_to_the_log_and_not_to_the_caller(host, cyclop, home):
    async with host(cyclop(script='#!/bin/sh\necho secret-thought >&2\necho \'{"result": "hi"}\'\n')) as h:
        result = await h.call("hello")
    assert "secret-thought" not in repr(result)
    log = home / "logs" / "hello.log"
    assert "secret-thought" in log.read_text()
    assert os.stat(log).st_mode & 0o777 == 0o600


@pytest.mark.requirement("CYC-28")
@pytest.mark.anyio
async def test_of_a_failures_stderr_500_characters_are_shown(host, cyclop):
    async with host(cyclop(script="#!/bin/sh\nyes | head -c 2000 >&2\necho out\nexit 7\n")) as h:
        result = await h.call("hello")
    assert result.error.message == "Plugin process failed (exit 7): " + ("y\n" * 1000)[:500]
    assert len(result.metadata["stderr"]) == 2000
    assert result.metadata["exit_code"] == 7
    assert result.content[1].text == "out\n"
    assert result.error.hint == "the end of its stderr: y"


@pytest.mark.anyio
async def test_what_went_wrong_is_told_though_it_stands_at_the_end_of_a_long_trace(host, cyclop):
    script = plugin_folders.python("def deeper(n):\n    return deeper(n - 1) if n else {}['the point']\ndeeper(30)")
    async with host(cyclop(script=script)) as h:
        assert (await h.call("hello")).error.hint == "the end of its stderr: KeyError: 'the point'"


# The limits


@pytest.mark.requirement("CYC-24")
@pytest.mark.anyio
@pytest.mark.parametrize(("length", "code"), [((1 << 20) - 14, ""), ((1 << 20) - 13, "too_large")])
async def test_stdout_may_have_one_megabyte_and_no_byte_more(length, code, host, cyclop):
    script = plugin_folders.python(f"sys.stdout.write('{{\"result\": \"' + 'x' * {length} + '\"}}')")
    async with host(cyclop(script=script)) as h:
        result = await h.call("hello")
    assert (result.error.code if result.error else "") == code
    if not code:
        assert len(result.text) == length
    else:
        assert result.error.message == "Plugin stdout exceeded 1MB limit"


@pytest.mark.anyio
async def test_the_limits_can_be_set_for_each_plugin(host, cyclop, settings):
    settings("[plugins.hello]\nmax_output_bytes = 2000000\ntimeout_s = 61.5\n")
    script = plugin_folders.python("print(json.dumps({'result': 'x' * 1_500_000}))")
    async with host(cyclop(script=script)) as h:
        assert len((await h.call("hello")).text) == 1_500_000


@pytest.mark.requirement("CYC-23")
def test_a_call_has_30_seconds(root):
    assert load(plugin_folders.cyclop(root)).tools[0].timeout_s == 30
    assert format.WORDS.timed_out.format(seconds=30.0) == "Plugin timed out after 30s"
    assert (format.MAX_STDOUT, format.MAX_STDERR) == (1 << 20, 64 << 10)


@pytest.mark.requirement("CYC-23", "CYC-41")
@pytest.mark.anyio
async def test_when_its_time_is_over_a_call_is_ended(host, cyclop, monkeypatch):
    monkeypatch.setattr(format, "TIMEOUT_S", 0.5)
    async with host(cyclop(script="#!/bin/sh\nsleep 605\n")) as h:
        result = await h.call("hello")
    assert (result.error.code, result.error.message) == ("timed_out", "Plugin timed out after 0.5s")


def test_a_schema_that_nobody_could_pass_on_is_an_error(root):
    deep = {"type": "object"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"a": deep}}
    plugin = load(plugin_folders.cyclop(root, tools=[TOOL | {"input_schema": deep}]))
    assert errors(plugin) == ["Tool 'hello' has an unusable input_schema: it is nested more than 128 levels deep"]


@pytest.mark.claim("no-stall")
def test_a_manifest_is_limited_in_bytes_values_and_tools(root):
    many = [TOOL | {"name": f"tool{number}"} for number in range(1_001)]
    assert errors(load(plugin_folders.cyclop(root, tools=many))) == ["plugin.json declares more than 1,000 tools"]
    wide = TOOL | {"input_schema": {"type": "object", "enum": list(range(50_001))}}
    assert "more than 50,000 values" in errors(load(plugin_folders.cyclop(root, tools=[wide])))[0]
    long = TOOL | {"description": "x" * (1 << 20)}
    assert "Cannot read plugin manifest" in errors(load(plugin_folders.cyclop(root, tools=[long])))[0]
    assert errors(load(plugin_folders.cyclop(root, tools=many[:1_000]))) == []
