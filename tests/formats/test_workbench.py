"""Workbench: loading, names, what becomes of an answer, limits, reloads, and what is left when it is over."""

import json
import os
import shutil
import subprocess
import sys
import time

import anyio
import pytest

import plugin_folders
import processes
from anyplug.call.consent import Attachment
from anyplug.catalog import offers
from anyplug.formats.workbench import peer as workbench_peer
from anyplug.model.types import Audio, Image, Resource, Text
from conditions import until
from conftest import HABITS
from zot_folders import extension

pytestmark = pytest.mark.anyio

PATIENCE_S = 20.0
YES = Attachment(yes=True)
EVALUATES = os.path.join(HABITS, "workbench", "evaluates")
PID = "() => `${process.pid}-${performance.timeOrigin}`"  # a pid alone is the same in each pid namespace


@pytest.fixture(autouse=True)
def _no_display(monkeypatch):
    """Keep away from the clipboard of whoever runs the tests."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


async def evaluate(h, js, **more):
    """Let the plugin `evaluates` run a function's body as its tool."""
    return await h.call("evaluates.act", {"js": js, **more})


def problems(h):
    return [problem.message for problem in h.problems]


def place(h, name):
    return h.peers.of(h.snapshot.plugin(name).plugin)[0]


def names(h):
    return [tool.name for tool in h.tools]


async def approved(h, *plugins, **how):
    for name in plugins:
        await h.approve(h.snapshot.plugin(name).plugin, always=True, **how)


# Finding and loading


@pytest.mark.requirement("WB-12")
async def test_a_folder_is_a_plugin_if_its_index_mentions_register(workbench, host, root):
    workbench("plain", index="module.exports = { name: 'a library' };")
    workbench("other", index="exports.register = () => {};")
    plugin_folders.write(os.path.join(root, "main-only", "package.json"), '{"main": "lib.js"}')
    plugin_folders.write(os.path.join(root, "main-only", "lib.js"), "exports.register = () => {};")
    plugin_folders.write(os.path.join(root, "module-only", "index.mjs"), "export const register = () => {};")
    workbench(".hidden")
    async with host(roots=(root,)) as h:
        assert [(entry.name, entry.format, entry.state) for entry in h.plugins] == [("other", "workbench", "new")]
        assert h.plugins[0].plugin.permissions == ("network", "filesystem:read")
        assert h.plugins[0].plugin.tier == 2


async def test_what_package_json_says_of_it_is_shown_and_odd_values_are_not(workbench, host):
    one = workbench("one", package={"version": "1.2.3", "description": "Does it."})
    two = workbench("two", package={"version": 7, "description": ["x"], "type": "commonjs"})
    three = workbench("three", package="[]")
    async with host(one, two, three) as h:
        assert [(e.plugin.version, e.plugin.description) for e in h.plugins] == [
            ("1.2.3", "Does it."),
            ("", ""),
            ("", ""),
        ]
        assert [entry.state for entry in h.plugins] == ["approved"] * 3


async def test_folders_with_odd_names_are_plugins_whose_logs_stay_where_they_belong(workbench, host, home):
    folders = [workbench(name, PID, index="") for name in ("two words", "-dash", "ü", "a'b")]
    plugin_folders.write(
        os.path.join(folders[3], "index.js"), "exports.register = (api) => api.registerTool({name: 'q', run: () => 1})"
    )
    async with host(*folders) as h:
        assert [entry.name for entry in h.plugins] == ["two_words", "_dash", "_", "a_b"]
        assert len(h.tools) == 4
    assert sorted(os.listdir(home / "logs")) == ["_.log", "_dash.log", "a_b.log", "two_words.log"]


ESM = {"type": "module"}
PASSING_ON = {
    "whole": ("module.exports = require('./dist/plugin');", {}, "dist/plugin.js"),
    "spread": ("module.exports = {\n  ...require('./tools'),\n}", {}, "tools/index.js"),
    "bound": ('const it = require("./lib/it.cjs");\nmodule.exports = it;', {}, "lib/it.cjs"),
    "assigned": ("Object.assign(exports, require('./a'), require('./b'));", {"a.js": "exports.x = 1"}, "b.js"),
    "compiled": ('"use strict";\nconst star = Object.assign;\nstar(exports, require("./c"));', {}, "c.js"),
    "twice": ("module.exports = require('./one')", {"one.js": "module.exports = require('./two')"}, "two.js"),
    "package": (
        "module.exports = require('inner')",
        {"node_modules/inner/package.json": '{"main": "lib/m"}'},
        "node_modules/inner/lib/m.js",
    ),
    "star": ("export * from './star.js';", ESM, "star.js"),
}


async def test_an_index_that_passes_on_what_other_files_export_is_found_and_runs(workbench, host, root):
    for name, (index, files, where) in PASSING_ON.items():
        begins = "export const register =" if files is ESM else "exports.register ="
        text = f"{begins} (api) => api.registerTool({{ name: '{name}.act', run: () => '{name}' }});\n"
        others = {} if files is ESM else files
        workbench(name, index=index, package=ESM if files is ESM else {}, files={where: text, **others})
    app = "const lib = require('./lib');\nlib.start();\nexports.x = 1;"
    workbench("app", index=app, files={"lib.js": "register()"})
    workbench("outside", index="module.exports = require('../whole/dist/plugin')")
    workbench("round", index="module.exports = require('./r')", files={"r.js": "module.exports = require('./index')"})
    async with host(roots=(root,)) as h:
        assert sorted(entry.name for entry in h.plugins) == sorted(PASSING_ON)
        await approved(h, *PASSING_ON)
        for name in PASSING_ON:
            assert (await h.call(f"{name}.act")).text == name


@pytest.mark.requirement("WB-08", "WB-09", "WB-13", "WB-18")
async def test_registering_the_guides_way_gives_name_description_and_schema(host):
    async with host(os.path.join(HABITS, "workbench", "well-behaved")) as h:
        (tool,) = h.tools
        assert (tool.name, tool.own_name, tool.description) == ("well-behaved.act", "well-behaved.act", "Does it.")
        assert tool.input_schema["properties"] == {"n": {"type": "number", "description": "How many."}}
        assert tool.timeout_s == 30
        for name in ("well-behaved.act", "well-behaved_act", "well-behaved/well-behaved.act"):
            assert (await h.call(name)).text == "done"


@pytest.mark.requirement("WB-10", "WB-15", "WB-24")
async def test_odd_names_work_and_those_nobody_could_use_are_listed(host):
    async with host(os.path.join(HABITS, "workbench", "odd-names")) as h:
        assert names(h) == ["odd-names.act", "Two Words", "nodot", "a.b.c.d", "ünï.çødé"]
        for name in names(h):
            assert (await h.call(name)).text == "done"
            assert (await h.call(h.snapshot.model_names[name])).text == "done"
        assert h.snapshot.model_names["Two Words"] == "Two_Words"
        assert h.snapshot.model_names["a.b.c.d"] == "a_b_c_d"
        assert sorted(problems(h)) == [
            "odd-names: a tool whose name holds control characters was skipped",
            "odd-names: a tool without a name was skipped",
            "odd-names: registerTool was called without a tool",
            "odd-names: the tool 'odd.norun' has no run function and was skipped",
            "odd-names: the tool 'odd.textrun' has no run function and was skipped",
        ]


async def test_names_that_meet_for_models_are_told_apart_the_same_way_each_time(workbench, host):
    index = "exports.register = (api) => { for (const name of [%s]) api.registerTool({ name, run: () => name }); };"
    one = workbench("one", index=index % "'a.b', 'a b', 'a_b', 'x'.repeat(60)")
    two = workbench("two", index=index % "'a/b', 'a:b'")
    seen = []
    for _ in range(2):
        async with host(one, two) as h:
            given = h.snapshot.model_names
            assert given["a_b"] == "a_b"  # needs no change
            mine = [given[name] for name in names(h)]
            assert len(set(mine)) == 6
            assert all(len(name) <= 48 for name in mine)
            for name in names(h):
                assert (await h.call(given[name])).text == name
            seen.append(mine)
    assert seen[0] == seen[1]


@pytest.mark.requirement("WB-24")
async def test_odd_schemas_load_and_are_not_checked(host):
    async with host(os.path.join(HABITS, "workbench", "odd-schemas")) as h:
        for tool in h.tools:
            result = await h.call(tool.name, {"n": 1})
            assert result.text == '{"n":1}', tool
            assert tool.description == ""
        no_schema = [tool.name.rpartition(".")[2] for tool in h.tools if tool.input_schema == {"type": "object"}]
        assert no_schema == ["act", "none", "text", "list", "yes", "cycle", "json", "big"]
        assert len([text for text in problems(h) if "is no JSON Schema" in text]) == 6


@pytest.mark.requirement("WB-22")
async def test_of_one_name_in_a_plugin_the_last_counts_in_the_firsts_place(host):
    async with host(os.path.join(HABITS, "workbench", "same-name-twice")) as h:
        assert names(h) == ["same-name-twice.act", "same-name-twice.other"]
        assert h.tools[0].description == "done"


@pytest.mark.requirement("WB-22")
async def test_of_one_name_in_two_plugins_the_first_in_root_order_counts(workbench, host):
    index = "exports.register = (api) => api.registerTool({ name: 'shared', run: () => __dirname });"
    one, two = workbench("one", index=index), workbench("two", index=index)
    async with host(two, one) as h:
        assert (await h.call("shared")).text == two
        assert "Duplicate tool name 'shared' from plugin 'one': the name belongs to plugin 'two'" in problems(h)[0]


async def test_tools_that_come_and_a_register_that_ends_after_its_time_are_noticed(workbench, host, settings):
    settings("[plugins.slow]\nhello_s = 0.3\n")
    index = """exports.register = async (api) => {
      api.registerTool({ name: 'first', run: () => 1 });
      await new Promise((resolve) => setTimeout(resolve, 900));
      api.registerTool({ name: 'second', run: () => 2 });
    };"""
    async with host(workbench("slow", index=index)) as h:
        assert (names(h), problems(h)) == (["first"], [f"slow: {workbench_peer.UNFINISHED}"])
        await until(lambda: names(h) == ["first", "second"] and problems(h) == [])
        assert (await h.call("second")).text == "2"


@pytest.mark.requirement("WB-20")
@pytest.mark.parametrize("text", ["null.x;", "syntax error here("])
async def test_the_file_that_is_to_be_mended_is_named(text, workbench, host, node):
    index = "const it = require('./lib/it'); exports.register = () => {};"
    async with host(workbench("helped", index=index, files={"lib/it.js": text})) as h:
        assert problems(h)[0].endswith("(fix lib/it.js)")


async def test_without_node_a_plugin_says_what_to_install(workbench, host, monkeypatch):
    monkeypatch.setattr("anyplug.runtime.processes.toolchain.find_node", lambda: None)
    async with host(workbench("bench")) as h:
        assert "it needs Node 20.19 or newer" in problems(h)[0]
        assert "pip install 'anyplug[node]'" in problems(h)[0]


# Modules

EXPORTS = "export const register = (api) => api.registerTool({ name: 'says', run: %s });"
SAYS = "exports.register = (api) => api.registerTool({ name: 'says', run: %s });"


@pytest.fixture
def app(tmp_path):
    """Make a folder around the test's plugins that is an ES module, as Workbench itself is."""
    plugin_folders.write(str(tmp_path / "package.json"), '{"type": "module"}')
    return tmp_path


@pytest.mark.requirement("WB-13")
async def test_without_package_json_it_is_commonjs_whatever_lies_above_and_so_are_its_modules(
    workbench, host, app, node
):
    shutil.copytree(os.path.join(HABITS, "workbench", "no-package"), app / "plugins" / "no-package")
    async with host(str(app / "plugins" / "no-package")) as h:
        assert (await h.call("no-package.act")).text == "done"


async def test_without_package_json_an_es_module_is_one(workbench, host, app, node):
    text = "import { a } from './a.js';\n" + EXPORTS % "() => a"
    folder = workbench("esm", index=text, package=None, files={"a.js": "export const a = 'done';"})
    async with host(folder) as h:
        assert (await h.call("says")).text == "done"


async def test_es_modules_of_a_package_without_type_are_imported(host, app, node):
    shutil.copytree(os.path.join(HABITS, "workbench", "imports-submodules"), app / "plugins" / "imports")
    async with host(str(app / "plugins" / "imports")) as h:
        result = await h.call("imports-submodules.act")
        assert (result.text, result.metadata) == ("done", {"report": {"kind": "short"}})


@pytest.mark.parametrize("how", ["require", "import", "import in an ES module"])
@pytest.mark.parametrize("where", ["plugins/bench", "plugins", ".", "linked", "linked above"])
async def test_dependencies_are_found_in_beside_and_above_the_plugin(how, where, host, tmp_path, node):
    plugins = tmp_path / "plugins"
    is_linked = where.startswith("linked")
    folder = str((tmp_path / "far" / "away" if is_linked else plugins) / "bench")
    run = "require('dep')" if how == "require" else "(await import('dep')).default"
    if how == "import in an ES module":
        index = "import word from 'dep';\n" + EXPORTS % "() => word"
        package = '{"type": "module"}'
    else:
        index, package = SAYS % f"async () => {run}", "{}"
    plugin_folders.write(f"{folder}/index.js", index)
    plugin_folders.write(f"{folder}/package.json", package)
    given = {"linked": plugins, "linked above": tmp_path}.get(where, tmp_path / where)
    plugin_folders.write(str(given / "node_modules" / "dep" / "index.js"), "module.exports = 'done';")
    plugin_folders.write(str(given / "node_modules" / "dep" / "package.json"), '{"name": "dep"}')
    if is_linked:
        plugins.mkdir(exist_ok=True)
        (plugins / "bench").symlink_to(folder)
        folder = str(plugins / "bench")
    async with host(folder) as h:
        assert (await h.call("says")).text == "done", problems(h)


async def test_a_link_is_a_plugin_named_like_it_that_learns_where_the_link_lies(workbench, host, tmp_path):
    real = plugin_folders.workbench(
        tmp_path / "far", "real", index=SAYS % "() => [api.getPluginsDir(), __dirname].join()"
    )
    (tmp_path / "plugins").mkdir(exist_ok=True)
    (tmp_path / "plugins" / "link").symlink_to(real)
    async with host(roots=(str(tmp_path / "plugins"),)) as h:
        assert [(entry.name, entry.path) for entry in h.plugins] == [("link", real)]
        await approved(h, "link")
        assert (await h.call("says")).text == f"{tmp_path / 'plugins'},{real}"


# Electron


@pytest.mark.parametrize("habit", ["uses-the-clipboard", "imports-the-clipboard"])
async def test_electron_has_a_clipboard_and_says_clearly_what_it_has_not(habit, host, node):
    async with host(os.path.join(HABITS, "workbench", habit)) as h:
        assert (await h.call(f"{habit}.act")).text == "done"
        for name in set(names(h)) - {f"{habit}.act", "electron.rest"}:
            result = await h.call(name)
            assert result.error.code == "tool_error"
            assert "is not available: anyplug runs plugins without Electron" in result.text
        if habit == "uses-the-clipboard":
            assert json.loads((await h.call("electron.rest")).text) == [["text/plain"], None, []]


async def test_the_systems_clipboard_is_used_where_there_is_one(host, tmp_path, monkeypatch, unconfined):
    plugin_folders.write(
        str(tmp_path / "bin" / "xclip"),
        f'#!/bin/sh\ncase "$*" in *-out*) cat {tmp_path}/clip;; *) cat >{tmp_path}/clip;; esac\n',
        0o755,
    )
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    async with host(EVALUATES) as h:
        assert (await evaluate(h, "require('electron').clipboard.writeText('a ✓')")).metadata["warnings"]
        assert (tmp_path / "clip").read_text() == "a ✓"
        (tmp_path / "clip").write_text("from elsewhere")
        assert (await evaluate(h, "return require('electron').clipboard.readText()")).text == "from elsewhere"


# Calls


@pytest.mark.requirement("WB-11")
async def test_run_gets_the_arguments_and_nothing_else_and_this_is_the_tool(host, node):
    async with host(EVALUATES) as h:
        result = await evaluate(
            h,
            "return { content: 'x', metadata: { input, name: this.name, folder: this._sourceFolder } }",
            a=[None, {"b": "ü"}],
        )
        assert result.metadata["input"]["a"] == [None, {"b": "ü"}]
        assert (result.metadata["name"], result.metadata["folder"]) == ("evaluates.act", "evaluates")
        assert (result.tool, result.plugin, result.format) == ("evaluates.act", "evaluates", "workbench")
        apis = await evaluate(h, "return Object.keys(api).sort().join()")
        assert apis.text == "getPluginsDir,registerTool,reloadPlugins"
        assert (await evaluate(h, "return api.getPluginsDir()")).text == os.path.dirname(EVALUATES)


async def test_it_runs_where_the_caller_is_with_the_users_environment_less_secrets(host, tmp_path, monkeypatch):
    monkeypatch.setenv("FAVOURITE", "blue")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-012345678901234567890123")
    async with host(EVALUATES) as h:
        said = await evaluate(
            h, "return [process.cwd(), process.env.FAVOURITE, 'OPENAI_API_KEY' in process.env, process.argv.length]"
        )
        assert said.metadata == {}
        assert said.structured == [str(tmp_path / "work"), "blue", False, 2]


async def test_state_and_timers_live_on_between_calls(host, node):
    async with host(EVALUATES) as h:
        await evaluate(h, "state.n = 1; state.timer = setInterval(() => state.n++, 5); return 'x'")
        await anyio.sleep(0.1)
        assert int((await evaluate(h, "return String(state.n)")).text) > 3
        assert place(h, "evaluates").restarts == 0


async def test_many_calls_are_under_way_at_once_and_each_gets_its_own_answer(host):
    results = {}

    async def call(n):
        js = "return new Promise((resolve) => setTimeout(resolve, 100 - input.n, String(input.n)))"
        results[n] = (await evaluate(h, js, n=n)).text

    async with host(EVALUATES) as h:
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for n in range(50):
                tasks.start_soon(call, n)
        assert time.monotonic() - began < PATIENCE_S
    assert results == {n: str(n) for n in range(50)}


NO_BIGINT = "Do not know how to serialize a BigInt"
NOTHING = "the plugin answered with nothing"
# What a tool does; then content, metadata, error and structured output of what becomes of it; ... is not looked at.
ANSWERS = {
    # 1: whatever has content is taken as it is
    "return { content: 'a' }": ("a", {}, None, None),
    "return { content: 'a', metadata: { n: 1 } }": ("a", {"n": 1}, None, None),
    "return { content: 'a', error: 'b', metadata: {} }": ("a", {}, "b", None),
    "return { content: 'a', error: '' }": ("a", {}, None, None),
    "return { content: 'a', error: 0 }": ("a", {}, None, None),
    "return { content: 'a', error: null }": ("a", {}, None, None),
    "return { content: 'a', error: true }": ("a", {}, "true", None),
    "return { content: 'a', error: { code: 7 } }": ("a", {}, '{"code":7}', None),
    "return { content: 'a', error: new TypeError('b') }": ("a", {}, "b", None),
    "return { content: 'a', prompt: 'p', n: 1 }": ("a", {}, None, {"prompt": "p", "n": 1}),
    "return { content: '', error: 'b' }": ("", {}, "b", None),
    "return { content: null }": ("", {}, None, None),
    "return { content: 42 }": ("42", {}, None, None),
    "return { content: false }": ("false", {}, None, None),
    "return { content: { a: [1] } }": ('{"a":[1]}', {}, None, None),
    "return { content: undefined }": ("", ..., None, None),
    "return { content: () => 1 }": (
        "", {"warnings": ["the plugin answered with a content that is a function"]}, None, None),
    "return { toJSON: () => undefined }": (
        "", {"warnings": ["the plugin answered with something that is no JSON"]}, None, None),
    "return { content: [] }": ("", {}, None, None),
    "return { content: 'a', metadata: [1] }": ("a", {}, None, [1]),
    "return { content: 'a', metadata: 'm' }": ("a", {}, None, "m"),
    "return { content: 'a', metadata: null }": ("a", {}, None, None),
    "class A { get content() { return 'inherited'; } } return new A()": ("inherited", {}, None, None),
    "return Object.create({ content: 'inherited', error: 'b' })": ("inherited", {}, "b", None),
    "return Object.assign([], { content: 'a' })": ("a", {}, None, None),
    "return Object.assign(Object.create(null), { content: 'a' })": ("a", {}, None, None),
    # 2: a string is content
    "return 'a'": ("a", {}, None, None),
    "return ''": ("", {}, None, None),
    "return Promise.resolve('a')": ("a", {}, None, None),
    "return { then: (resolve) => resolve('a') }": ("a", {}, None, None),
    # 3: an error that is true
    "return { error: 'b' }": ("b", {"error": "b"}, "b", None),
    "return { error: 'b', message: 'm' }": ("m", {"error": "b", "message": "m"}, "b", None),
    "return { error: true }": ("true", {"error": True}, "true", None),
    "return { error: true, message: 'm' }": ("m", {"error": True, "message": "m"}, "true", None),
    "return { error: { message: 'deep' } }": ('{"message":"deep"}', {"error": {"message": "deep"}}, "deep", None),
    "return { error: new Error('b') }": ("b", {"error": {}}, "b", None),
    "return Object.assign([1], { error: 'b' })": ("b", {}, "b", [1]),
    # 4: anything else is JSON
    "return { error: '' }": ('{\n  "error": ""\n}', {"error": ""}, None, None),
    "return { success: false }": ('{\n  "success": false\n}', {"success": False}, None, None),
    "return null": ("null", {}, None, None),
    "return 42": ("42", {}, None, 42),
    "return NaN": ("null", {}, None, None),
    "return true": ("true", {}, None, True),
    "return []": ("[]", {}, None, []),
    "return [1, undefined, () => 1]": ("[\n  1,\n  null,\n  null\n]", {}, None, [1, None, None]),
    "return {}": ("{}", {}, None, None),
    "return new Date(0)": ('"1970-01-01T00:00:00.000Z"', {}, None, "1970-01-01T00:00:00.000Z"),
    "return new Map([[1, 2]])": ("{}", {}, None, None),
    "return new Error('x')": ("{}", {}, None, None),
    "return { toJSON: () => ({ a: 1 }) }": ('{\n  "a": 1\n}', {"a": 1}, None, None),
    "return { a: 1, f() {}, u: undefined }": ('{\n  "a": 1\n}', {"a": 1}, None, None),
    # what is nothing
    "": ("", {"warnings": [NOTHING]}, None, None),
    "return Promise.resolve()": ("", {"warnings": [NOTHING]}, None, None),
    "return () => 1": ("", {"warnings": ["the plugin answered with a function"]}, None, None),
    "return Symbol('x')": ("", {"warnings": ["the plugin answered with a symbol"]}, None, None),
    # what is no JSON
    "return 7n": (f"Tool error: {NO_BIGINT}", ..., NO_BIGINT, None),
    "const a = {}; a.a = a; return { content: 'a', metadata: a }": (
        "a", {"a": "[circular]", "warnings": ...}, None, None,
    ),
    "return { content: 'a', metadata: { n: 7n } }": ("a", {"n": "7", "warnings": ...}, None, None),
    "return { content: 7n }": ("7", {"warnings": ...}, None, None),
    "return { content: 'a', error: 7n }": ("a", {"warnings": ...}, "7", None),
    "return { content: 'half \\ud83d' }": ("half \ufffd", {}, None, None),
    "return { content: 'a', metadata: { '\\udc00': '\\ud800' } }": ("a", {"\ufffd": "\ufffd"}, None, None),
    "return { content: 'whole 🙂 \\\\ud83d' }": ("whole 🙂 \\ud83d", {}, None, None),
    "return { get content() { throw new Error('got') } }": ("Tool error: got", ..., "got", None),
    "return { content: 'a', get metadata() { throw 'got' } }": ("Tool error: got", ..., "got", None),
    "return { content: 'a', metadata: { get x() { throw new Error('late') } } }": (
        "Tool error: the answer cannot be written as JSON: late", {}, ..., None,
    ),
    # what is thrown
    "throw new Error('b')": ("Tool error: b", ..., "b", None),
    "throw new Error('a timeout there')": ("Tool error: a timeout there", ..., "a timeout there", None),
    "throw new RangeError()": ("Tool error: RangeError", ..., "RangeError", None),
    "throw 'a string'": ("Tool error: a string", ..., "a string", None),
    "throw undefined": ("Tool error: undefined", ..., "undefined", None),
    "throw null": ("Tool error: null", ..., "null", None),
    "throw 7": ("Tool error: 7", ..., "7", None),
    "throw { code: 7 }": ('Tool error: {"code":7}', ..., '{"code":7}', None),
    "throw { message: 'm' }": ("Tool error: m", ..., "m", None),
    "throw Object.create(null)": ("Tool error: {}", ..., "{}", None),
    "throw Symbol('s')": ("Tool error: Symbol(s)", ..., "Symbol(s)", None),
    "throw 7n": ("Tool error: 7", ..., "7", None),
    "throw new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } })": (
        "Tool error: it threw something that cannot be shown", ..., ..., None,
    ),
    "const e = new Error('b'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); throw e": (
        "Tool error: b", ..., "b", None,
    ),
    "return Promise.reject(new Error('b'))": ("Tool error: b", ..., "b", None),
    "return Promise.reject()": ("Tool error: undefined", ..., "undefined", None),
    "return missing.thing": ("Tool error: missing is not defined", ..., "missing is not defined", None),
}  # fmt: skip


@pytest.mark.requirement("WB-01", "WB-03", "WB-04", "WB-05", "WB-06", "WB-07", "WB-11", "WB-19")
async def test_what_becomes_of_an_answer_in_the_order_of_the_original(host, node):
    wrong = {}
    async with host(EVALUATES) as h:
        for js, (text, metadata, error, structured) in ANSWERS.items():
            result = await evaluate(h, js)
            seen = dict(result.metadata)
            if isinstance(metadata, dict) and metadata.get("warnings") is ...:
                assert isinstance(seen["warnings"], list)
                seen["warnings"] = ...
            said = None if result.error is None else result.error.message
            is_right = (
                result.text == text
                and metadata in (..., seen)
                and error in (..., said)
                and result.structured == structured
                and result.is_error == (error is not None)
                and (result.error is None or result.error.code == "tool_error")
            )
            if not is_right:
                wrong[js] = (result.text, seen, said, result.structured)
        assert place(h, "evaluates").restarts == 0
    assert wrong == {}


@pytest.mark.requirement("WB-19")
async def test_a_thrown_error_names_the_tool_the_input_and_the_time_and_is_logged_with_its_trace(host, home):
    async with host(EVALUATES) as h:
        result = await evaluate(h, "throw new TypeError('b')", n=1)
        assert result.metadata.keys() == {"tool", "input", "timestamp"}
        assert (result.metadata["tool"], result.metadata["input"]["n"]) == ("evaluates.act", 1)
    log = (home / "logs" / "evaluates.log").read_text()
    assert "evaluates.act: TypeError: b\n    at " in log


@pytest.mark.requirement("WB-23")
@pytest.mark.parametrize("answer", ["'a'", "{ content: 'a' }", "{ content: [{ type: 'text', text: 'a' }] }"])
async def test_the_next_tool_of_a_chain_gets_an_answer_in_one_format(answer, host):
    after = "return { content: '{{lastResult.content.0.text}}', metadata: { given: '{{lastResult.content.0.text}}' } }"
    steps = [
        {"tool": "evaluates.act", "input": {"js": f"return {answer}"}},
        {"tool": "evaluates.act", "input": {"js": after}},
        {"tool": "evaluates.act", "input": {"js": "return '{{lastResult.metadata.given}}b'"}},
    ]
    async with host(EVALUATES) as h:
        outcome = await h.run_chain(steps)
    assert [step.text for step in outcome.steps] == ["a", "a", "ab"]


BLOCKS = [
    ({"type": "text", "text": "a"}, Text("a")),
    ({"text": "a"}, Text("a")),
    ({"type": "text", "text": ""}, Text("")),
    ({"type": "odd", "text": ""}, Text('{"type":"odd","text":""}')),
    ({"type": "text", "text": 5}, Text("5")),
    ({"type": "text"}, Text('{"type":"text"}')),
    ({"type": "image", "data": "R0lG", "mimeType": "image/gif"}, Image("image/gif", "R0lG")),
    ({"type": "image", "data": "R0lG", "mime_type": "image/gif"}, Image("image/gif", "R0lG")),
    ({"type": "audio", "data": "R0lG", "mimeType": "audio/wav"}, Audio("audio/wav", "R0lG")),
    ({"type": "image", "data": 7}, Text('{"type":"image","data":7}')),
    ({"type": "image"}, Text('{"type":"image"}')),
    ({"type": "resource", "resource": {"uri": "a:b", "mimeType": "x/y", "text": "t"}}, Resource("a:b", "x/y", "t")),
    ({"type": "resource", "resource": {"uri": "a:b", "blob": "R0lG"}}, Resource("a:b", data="R0lG")),
    (
        {"type": "resource_link", "uri": "a:b", "name": "n", "description": "d"},
        Resource("a:b", name="n", description="d"),
    ),
    ({"type": "resource_link", "name": "n"}, Text('{"type":"resource_link","name":"n"}')),
    ({"type": "resource", "resource": {"uri": 7}}, Text('{"type":"resource","resource":{"uri":7}}')),
    ({"type": "video", "url": "u"}, Text('{"type":"video","url":"u"}')),
    ("plain", Text("plain")),
    (7, Text("7")),
    (None, Text("")),
    ([1, "x"], Text('[1,"x"]')),
]


@pytest.mark.requirement("WB-02")
async def test_the_blocks_of_a_content(host):
    async with host(EVALUATES) as h:
        result = await evaluate(h, "return { content: input.blocks }", blocks=[block for block, _ in BLOCKS])
        assert result.content == tuple(expected for _, expected in BLOCKS)
        joined = await evaluate(h, "return { content: [{ type: 'text', text: 'a' }, { text: 'b' }] }")
        assert joined.text == "a\nb"


async def test_what_only_the_causes_of_an_error_say_is_in_the_log_and_what_several_say_in_the_answer(host, home):
    async with host(EVALUATES) as h:
        await evaluate(h, "throw new Error('failed', { cause: new Error('refused', { cause: 'why' }) })")
        await evaluate(h, "const e = new Error('round'); e.cause = e; throw e")
        several = await evaluate(h, "throw new AggregateError([new Error('one'), 'two'])")
    assert several.error.message == "one; two"
    log = (home / "logs" / "evaluates.log").read_text()
    assert "caused by: refused\ncaused by: why\n" in log
    assert log.count("caused by: round") == 5


# Limits


async def test_long_texts_are_cut_between_characters_and_say_how_long_they_were(host, settings, node):
    settings("[plugins.evaluates]\nmax_output_chars = 10\n")
    cut = "\n\n[Output truncated - exceeded 10 character limit]"
    async with host(EVALUATES) as h:
        assert (await evaluate(h, "return '0123456789'")).metadata == {}
        result = await evaluate(h, "return { content: '0123456789ab', metadata: { mine: 1 }, error: 'e' }")
        assert (result.text, result.error.message) == ("0123456789" + cut, "e")
        assert result.metadata == {"mine": 1, "truncated": True, "originalSize": 12}
        result = await evaluate(h, "return '012345678🙂 and more'")
        assert (result.text, result.metadata["originalSize"]) == ("012345678" + cut, 20)
        result = await evaluate(h, "return '01234567🙂 and more'")
        assert result.text == "01234567🙂" + cut
        result = await evaluate(h, "return { content: 'x'.repeat(11), metadata: [1] }")
        assert result.metadata == {"value": [1], "truncated": True, "originalSize": 11}
        texts = [{"type": "text", "text": text} for text in ("01234", "5678🙂", "more", "!")]
        image = {"type": "image", "data": "R0lG", "mimeType": "image/gif"}
        result = await evaluate(h, "return { content: input.blocks }", blocks=[*texts, image])
        assert result.content == (
            Text("01234"), Text("5678"), Image("image/gif", "R0lG"), Text(cut.strip()),
        )  # fmt: skip
        assert result.metadata == {"truncated": True, "originalSize": 16}
        result = await evaluate(h, "return { content: ['0123456789', 'more'] }")
        assert (result.content, result.metadata["originalSize"]) == ((Text("0123456789"), Text(cut.strip())), 14)
        result = await evaluate(h, "return { content: { a: '0123456789' } }")
        assert (result.text, result.metadata["originalSize"]) == ('{"a":"0123' + cut, 18)
        for js in ("throw new Error('0123456789 and more')", "return { error: '0123456789 and more' }"):
            result = await evaluate(h, js)
            assert (result.error.message, result.metadata["truncated"]) == ("0123456789", True)


async def test_half_a_million_characters_by_default_of_whatever_kind(host):
    async with host(EVALUATES) as h:
        for sign in ("x", "\\u0001", "✓", "\\\\", '"'):
            result = await evaluate(h, f"return '{sign}'.repeat(500_000)")
            assert (len(result.text), result.metadata) == (500_000, {})
            result = await evaluate(h, f"return '{sign}'.repeat(12_000_000)")
            assert result.text.endswith("[Output truncated - exceeded 500000 character limit]")
            assert result.metadata["originalSize"] == 12_000_000


async def test_answers_that_are_too_large_lose_their_metadata_or_fail_and_the_next_works(host, node):
    async with host(EVALUATES) as h:
        result = await evaluate(h, "return { content: 'a', metadata: { text: 'x'.repeat(12_000_000) } }")
        assert (result.text, result.is_error) == ("a", False)
        assert "its metadata was left out" in result.metadata["warnings"][0]
        result = await evaluate(
            h, "return { rows: Array.from({ length: 200_000 }, (_, n) => ({ n, text: 'some text' })) }"
        )
        assert result.metadata["originalSize"] > 10_000_000
        result = await evaluate(
            h, "return { content: [{ type: 'image', mimeType: 'image/png', data: 'A'.repeat(12_000_000) }] }"
        )
        assert result.error.code == "too_large"
        assert "12,000,1" in result.error.message
        assert (await evaluate(h, "return 'small'")).text == "small"
        assert place(h, "evaluates").restarts == 0


async def test_answers_that_are_nested_deeply_are_cut_off_and_said_to_be(host, node):
    js = "let a = {}; for (let n = 0; n < input.n;) a = n++ % 2 ? [a] : { a }; return { content: 'a', metadata: { a } }"
    async with host(EVALUATES) as h:
        for n in (150, 190, 300, 5_000, 100_000):
            result = await evaluate(h, js, n=n)
            assert (result.text, result.is_error) == ("a", False), n
            assert ("[too deep]" in json.dumps(result.metadata)) == (n > 199), n
        assert (await evaluate(h, "return '[{'.repeat(1000)")).text == "[{" * 1000


async def test_arguments_that_are_too_large_are_refused_and_harm_nobody(host):
    async with host(EVALUATES) as h:
        large = await evaluate(h, "return String(input.text.length)", text="x" * 6_000_000)
        assert large.text == "6000000"
        refused = await evaluate(h, "return 'x'", text="x" * 20_000_000)
        assert (refused.error.code, "more than the" in refused.error.message) == ("too_large", True)
        assert (await evaluate(h, "return 'fine'")).text == "fine"
        assert place(h, "evaluates").restarts == 0


@pytest.mark.requirement("WB-18")
async def test_arguments_warn_by_default_and_are_refused_if_the_person_wants_it(host, settings):
    async with host(EVALUATES) as h:
        result = await h.call("evaluates.act", {"js": 7})
        assert "is not of type" in result.metadata["warnings"][0]
        assert result.error is None or result.error.code == "tool_error"
    settings('[plugins.evaluates]\narguments = "strict"\n')
    async with host(EVALUATES) as h:
        result = await h.call("evaluates.act", {})
        assert (result.error.code, place(h, "evaluates").peer.session.counts.frames["result"]) == (
            "invalid_arguments",
            0,
        )


# Processes


async def test_a_loop_past_its_time_ends_the_process_and_the_next_call_starts_it_anew(host, settings, workbench, node):
    settings("[plugins.evaluates]\ntimeout_s = 1\n")
    others = []

    async def call_others():
        while len(others) < 20:
            others.append((await h.call("other.act")).text)
            await anyio.sleep(0.02)

    async with host(EVALUATES, workbench("other")) as h:
        await evaluate(h, "state.kept = 1; return 'x'")
        pid = place(h, "evaluates").peer.session.pid
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_others)
            result = await evaluate(h, "for (;;);")
        assert (result.error.code, "blocked the plugin's event loop" in result.error.message) == ("timed_out", True)
        assert "timeout_s" in result.error.hint
        assert processes.until(lambda: not processes.is_running(pid))
        assert others == ["done"] * 20
        assert (await evaluate(h, "return [state.kept ?? null]")).structured == [None]
        assert place(h, "evaluates").peer.session.pid != pid
        assert place(h, "evaluates").restarts == 1


async def test_a_promise_that_never_resolves_times_out_and_keeps_the_state(host, settings):
    settings("[plugins.evaluates]\ntimeout_s = 1\n")
    async with host(EVALUATES) as h:
        await evaluate(h, "state.kept = 1; return 'x'")
        result = await evaluate(h, "return new Promise(() => {})")
        assert (result.error.code, result.error.message) == ("timed_out", "Tool execution timeout (1s limit)")
        assert (await evaluate(h, "return String(state.kept)")).text == "1"
        peer = place(h, "evaluates").peer
        assert (peer.active, peer.session.is_asked) == ({}, False)


async def test_a_late_answer_does_not_answer_the_next_call(host, settings):
    settings("[plugins.evaluates]\ntimeout_s = 1\n")
    late = "return new Promise((resolve) => setTimeout(() => { resolve('late'); state.wasLate = true; }, 1300))"
    mine = """return new Promise((resolve) => {
      const timer = setInterval(() => state.wasLate && (clearInterval(timer), resolve('mine')), 5);
    })"""
    async with host(EVALUATES) as h:
        assert (await evaluate(h, late)).error.code == "timed_out"
        assert (await evaluate(h, mine)).text == "mine"


async def test_a_cancelled_call_is_recorded_and_the_plugin_goes_on(host):
    async with host(EVALUATES) as h:
        with anyio.move_on_after(0.2):
            await evaluate(h, "state.n = 7; return new Promise(() => {})")
        assert list(h._audit.calls())[-1].record.outcome == "cancelled"
        assert (await evaluate(h, "return String(state.n)")).text == "7"
        await anyio.sleep(workbench_peer.BLOCKED_S + 0.2)
        assert place(h, "evaluates").restarts == 0


async def test_a_cancelled_call_that_loops_ends_its_process(host):
    async with host(EVALUATES) as h:
        await evaluate(h, "return 'up'")
        pid = place(h, "evaluates").peer.session.pid
        with anyio.move_on_after(0.2):
            await evaluate(h, "for (;;);")
        await until(lambda: not processes.is_running(pid))
        assert (await evaluate(h, "return 'anew'")).text == "anew"


@pytest.mark.parametrize("end", ["process.exit(5)", "process.kill(process.pid, 'SIGKILL')", "process.abort()"])
async def test_a_death_fails_every_call_under_way_at_once_and_the_next_call_starts_it_anew(end, host, node):
    results = []

    async def wait():
        results.append(await evaluate(h, "return new Promise(() => {})"))

    async with host(EVALUATES) as h:
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(wait)
            await until(lambda: len(place(h, "evaluates").peer.active) == 5)
            results.append(await evaluate(h, f"console.error('last words'); {end}"))
        assert time.monotonic() - began < PATIENCE_S
        assert {result.error.code for result in results} == {"unavailable"}
        if "abort" not in end:  # Node has much to say itself then
            assert "last words" in results[0].error.message
        assert "the next call restarts it" in results[0].error.hint
        assert (await evaluate(h, "return 'anew'")).text == "anew"
        await until(lambda: place(h, "evaluates").health == "running")
        assert problems(h) == []


async def test_the_call_right_after_a_death_is_answered_by_the_next_process(host):
    async with host(EVALUATES) as h:
        for end in ("process.exit(0)", "process.kill(process.pid, 'SIGKILL'); for (;;);") * 3:
            assert (await evaluate(h, end)).error.code == "unavailable"
            assert (await evaluate(h, "return 'anew'")).text == "anew"


@pytest.mark.requirement("WB-21")
async def test_what_is_printed_is_in_the_log_and_never_in_an_answer(host, home):
    async with host(os.path.join(HABITS, "workbench", "prints")) as h:
        assert (await h.call("prints.act")).text == "done"
        assert place(h, "prints").peer.session.counts.malformed == 0
    log = (home / "logs" / "prints.log").read_text()
    for said in (
        "on the console while it loads",
        "half a line",
        "straight to the descriptor",
        "and there",
        '"type":"result"',
    ):
        assert said in log


async def test_timers_that_throw_are_logged_and_survived(host, home):
    async with host(os.path.join(HABITS, "workbench", "throws-in-timers")) as h:
        assert (await h.call("throws-in-timers.act")).text == "done"
        assert place(h, "throws-in-timers").restarts == 0
    log = (home / "logs" / "throws-in-timers.log").read_text()
    for said in (
        "uncaught: Error: thrown in a timer",
        "unhandled rejection: Error: rejected in a timer",
        "uncaught: undefined",
        "unhandled rejection: null",
    ):
        assert said in log


async def test_forged_frames_harm_only_who_forges_them(host, home):
    complaints = []
    async with host(os.path.join(HABITS, "workbench", "forges-frames"), EVALUATES) as h:
        import asyncio  # only here

        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        assert (await h.call("forges-frames.act")).text == "done"
        session = place(h, "forges-frames").peer.session
        assert session.counts.malformed > 1000
        assert set(session.counts.frames) <= workbench_peer.FRAMES
        assert (await evaluate(h, "return 'unharmed'")).text == "unharmed"
        assert (await h.call("forges-frames.own")).error.code == "bad_output"
        assert (await h.call("forges-frames.act")).text == "done"
        asyncio.get_running_loop().set_exception_handler(None)
        assert names(h) == ["forges-frames.act", "forges-frames.own", "forged.tool", "evaluates.act"]
    assert complaints == []


async def test_a_plugins_children_have_none_of_its_descriptors_and_end_with_the_host(host, node):
    js = """const { spawnSync, spawn } = require('node:child_process');
      spawn('sleep', ['300'], { detached: true, stdio: 'ignore' }).unref();
      const { stdout } = spawnSync('sh', ['-c', 'ls /proc/self/fd'], { encoding: 'utf8' });
      return stdout.split(/\\s+/).filter((fd) => fd > 2).length"""
    async with host(EVALUATES) as h:
        tag = h._runner.guard._tag
        assert (await evaluate(h, js)).structured == 1  # the folder that it lists
        assert any("sleep 300" in command for command in processes.tagged(tag).values())
    assert processes.tagged(tag) == {}


def test_nothing_is_left_when_the_host_is_killed(workbench):
    folder = workbench(
        "bench",
        "() => { require('child_process').spawn('sleep', ['301'], { detached: true, stdio: 'ignore' }).unref();"
        " return 'left' }",
    )
    program = (
        "import anyio, sys\nfrom anyplug import Host\nasync def main():\n"
        "    async with Host([sys.argv[1]], roots=[], watch=False) as h:\n"
        "        await h.call('bench.act')\n"
        "        print(h.peers.up[0].session.pid, h._runner.guard._tag, flush=True)\n"
        "        await anyio.sleep(60)\nanyio.run(main)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, folder], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid, tag = map(int, process.stdout.readline().split())
        assert any("sleep 301" in command for command in processes.tagged(tag).values())
        process.kill()
    assert processes.until(lambda: not processes.is_running(pid) and not processes.tagged(tag))


# Reloading


def rewrite(folder, run):
    plugin_folders.workbench(os.path.dirname(folder), os.path.basename(folder), run)


async def test_a_plugin_reloads_all_from_inside_a_run_and_lives_on(host, root, workbench, node):
    written = (
        "require('fs').writeFileSync(__dirname + '/../ran', '');\n"
        "exports.register = (api) => api.registerTool({ name: 'written', run: () => 'ran' });"
    )
    workbench(
        "writer",
        index="""
      const fs = require('fs'), path = require('path');
      let runs = 0;
      module.exports.register = (api) => api.registerTool({ name: 'make.plugin', run: async () => {
        const folder = path.join(api.getPluginsDir(), 'written');
        fs.mkdirSync(folder, { recursive: true });
        fs.writeFileSync(path.join(folder, 'index.js'), `WRITTEN`);
        const done = await api.reloadPlugins();
        await Promise.all([api.reloadPlugins(), api.reloadPlugins(), api.reloadPlugins()]);
        return { content: [{ type: 'text', text: String(done) }], metadata: { runs: ++runs, pid: process.pid } };
      } });""".replace("WRITTEN", written),
    )
    async with host(roots=(root,)) as h:
        await approved(h, "writer", granted=(f"filesystem:write:{root}",))
        first = await h.call("make.plugin", attachment=YES)
        assert (first.text, first.metadata.get("runs")) == ("undefined", 1), first.error
        assert h.snapshot.plugin("written").state == "new"
        assert "written" not in names(h)
        assert not os.path.exists(os.path.join(root, "ran"))
        second = await h.call("make.plugin", attachment=YES)
        assert second.metadata == {"runs": 2, "pid": first.metadata["pid"]}
        await approved(h, "written", granted=(f"filesystem:write:{root}",))
        assert (await h.call("written", attachment=YES)).text == "ran"


async def test_a_reload_that_a_plugin_did_not_wait_for_takes_effect_before_the_next_call(host, workbench, unconfined):
    other = workbench("other")
    asks = workbench(
        "asks",
        index="const fs = require('fs');\nmodule.exports.register = (api) => api.registerTool({ name: 'asks.act',\n"
        f"run: ({{ n }}) => {{ fs.writeFileSync({other!r} + '/index.js', `exports.register = (api) => api.registerTool("
        "{ name: 'other.act' + ${n}, run: () => 'number ${n}' });`);\n"
        "api.reloadPlugins();\n return 'asked'; } });\n",
    )
    async with host(asks, other) as h:
        for number in range(3):
            assert (await h.call("asks.act", {"n": number})).text == "asked"
            assert (await h.call(f"other.act{number}")).text == f"number {number}"


async def test_a_flood_of_reload_requests_is_met_one_time_after_the_other(host, monkeypatch):
    async with host(EVALUATES) as h:
        looks, under_way, find = [], [], h.catalog.find

        def look(*given):
            under_way.append(1)
            looks.append(len(under_way))
            try:
                return find(*given)
            finally:
                under_way.pop()

        monkeypatch.setattr(h.catalog, "find", look)
        flood = "Promise.all(Array.from({ length: 5000 }, () => api.reloadPlugins()))"
        assert (await evaluate(h, f"return {flood}.then((all) => String(all.length))")).text == "5000"
        assert set(looks) == {1}
        assert len(looks) < 2500  # many share one


async def test_a_plugin_that_changes_itself_while_it_reloads_finishes_its_run(host, root, workbench, unconfined):
    workbench(
        "selfish",
        "async () => { require('fs').writeFileSync(__dirname + '/new.js', '');"
        " await api.reloadPlugins(); return 'finished' }",
    )
    async with host(roots=(root,)) as h:
        await approved(h, "selfish")
        assert (await h.call("selfish.act", attachment=YES)).text == "finished"
        assert h.snapshot.plugin("selfish").state == "changed"
        refused = await h.call("selfish.act", attachment=YES)
        assert (refused.error.code, "new.js" in refused.error.message) == ("not_approved", True)


async def test_a_changed_helper_module_makes_the_plugin_changed(host, root, workbench):
    folder = workbench("bench", "() => require('./lib/word')", files={"lib/word.js": "module.exports = 'one';"})
    async with host(roots=(root,)) as h:
        assert (await h.call("bench.act")).error.code == "not_found"  # nobody has seen it run yet
        await approved(h, "bench")
        assert (await h.call("bench.act", attachment=YES)).text == "one"
        plugin_folders.write(f"{folder}/lib/word.js", "module.exports = 'two';")
        assert (await h.call("bench.act", attachment=YES)).error.code == "not_approved"
        await approved(h, "bench")
        assert (await h.call("bench.act", attachment=YES)).text == "two"


async def test_a_followed_plugin_is_replaced_once_its_calls_have_ended(host, root, workbench, node):
    beat = (
        "const mine = require('crypto').randomUUID(), data = process.env.ANYPLUG_HOME + '/data/bench';"
        "setInterval(() => require('fs').writeFileSync(data + '/beat', mine), 10);"
    )
    folder = workbench(
        "bench",
        index=f"{beat}\nconst word = require('./lib/word');\n"
        "exports.register = (api) => api.registerTool({ name: 'say',"
        " run: ({ ms = 0 }) => new Promise((resolve) => setTimeout(resolve, ms, [word, mine])) });",
        files={"lib/word.js": "module.exports = 'one';"},
    )
    heart = os.path.join(os.environ["ANYPLUG_HOME"], "data", "bench", "beat")
    async with host(roots=(root,)) as h:
        await approved(h, "bench", follow=True)
        pid = place(h, "bench").peer.session.pid
        results = []

        async def call(**arguments):
            results.append((await h.call("say", arguments, attachment=YES)).structured)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(ms=700))
            await until(lambda: place(h, "bench").is_busy)
            plugin_folders.write(f"{folder}/lib/word.js", "module.exports = 'two';")
            await h.look_again()
            assert results == []  # the reload did not wait for it
            await call()  # waits for the successor
        (one, old), (two, new) = sorted(results)
        assert (one, two, old != new) == ("one", "two", True)
        await until(lambda: not processes.is_running(pid))  # and its timer with it
        await until(lambda: processes.read(heart) == new.encode())
        await anyio.sleep(0.05)
        assert processes.read(heart) != old.encode()


async def test_a_watching_host_reloads_by_itself(host, root, workbench):
    folder = workbench("bench", "() => 'old'")
    async with host(roots=(root,), watch=True) as h:
        await approved(h, "bench", follow=True)
        assert (await h.call("bench.act", attachment=YES)).text == "old"
        for n in range(20):  # a watcher needs a moment before it sees anything
            rewrite(folder, f"() => 'new' // {n}\n")
            await anyio.sleep(0.5)
            if (await h.call("bench.act", attachment=YES)).text == "new":
                break
        assert (await h.call("bench.act", attachment=YES)).text == "new"


@pytest.mark.requirement("WB-17")
async def test_reload_by_name_starts_just_this_one_anew(host, workbench):
    one, two = workbench("one", PID), workbench("two", PID)
    async with host(one, two) as h:
        before = [place(h, name).peer.session.pid for name in ("one", "two")]
        await h.reload("one")
        after = [place(h, name).peer.session.pid for name in ("one", "two")]
        assert (before[0] != after[0], before[1] == after[1]) == (True, True)
        assert processes.until(lambda: not processes.is_running(before[0]))
        await h.reload()
        assert place(h, "two").peer.session.pid != before[1]


async def test_a_broken_edit_names_the_problem_and_a_mended_one_works(host, root, workbench):
    folder = workbench("bench", "() => 'good'")
    async with host(roots=(root,)) as h:
        await approved(h, "bench", follow=True)
        plugin_folders.write(f"{folder}/index.js", "exports.register = (")
        await h.reload()
        assert "cannot be loaded" in problems(h)[0]
        result = await h.call("bench.act", attachment=YES)
        assert (result.error.code, "cannot be loaded" in result.error.message) == ("unavailable", True)
        rewrite(folder, "() => 'mended'")
        await h.reload()
        assert (await h.call("bench.act", attachment=YES)).text == "mended"
        assert h.problems == []


@pytest.mark.requirement("WB-17")
@pytest.mark.parametrize("name", ["builtin.reload_plugins", "builtin_reload_plugins", "builtin/reload_plugins"])
async def test_the_built_in_reload_says_what_there_is_now(name, host, root, workbench):
    workbench("one", PID)
    async with host(roots=(root,)) as h:
        await approved(h, "one")
        workbench("two")
        result = await h.call(name)
        assert result.text == "2 plugins, 1 tool.\nPlugins waiting for a person's approval: two"
        assert (result.tool, result.plugin, result.is_error) == ("builtin.reload_plugins", "builtin", False)
        record = list(h._audit.calls())[-1].record
        assert (record.tool, record.plugin, record.outcome) == ("builtin.reload_plugins", "builtin", "done")
        pid = (await h.call("one.act", attachment=YES)).text
        await h.call(name)
        assert (await h.call("one.act", attachment=YES)).text == pid
        await h.call(name, {"plugin": "one"})
        assert (await h.call("one.act", attachment=YES)).text != pid
        shutil.rmtree(os.path.join(root, "one"))
        assert (await h.call(name)).text.splitlines()[1] == "Removed tools: one.act"


async def test_the_built_in_reload_refuses_what_it_does_not_know(host, workbench):
    async with host(workbench("one")) as h:
        for arguments in ({"plugin": "nobody"}, {"plugin": 7}, {"other": 1}):
            assert (await h.call("builtin.reload_plugins", arguments)).error.code == "invalid_arguments"


async def test_the_built_in_reload_tries_those_again_that_were_given_up(host, root, monkeypatch):
    monkeypatch.setattr("anyplug.peers.supervisor.PAUSES_S", (0.01,))
    folder = extension(
        root,
        "doomed",
        "if not os.path.exists('mended'): sys.exit('not yet')\n"
        "hello()\ntool('act')\nemit('ready')\nfor frame in heard(): pass",
    )
    async with host(folder) as h:
        await until(lambda: place(h, "doomed").health == "given_up")
        assert "could not be loaded: doomed" in (await h.call("builtin.reload_plugins")).text
        await until(lambda: place(h, "doomed").health == "given_up")
        plugin_folders.write(f"{folder}/mended", "")
        assert "New tools: act" in (await h.call("builtin.reload_plugins")).text


@pytest.mark.requirement("WB-14")
async def test_only_two_prefixes_are_reserved(host, workbench):
    index = """exports.register = (api) => {
      for (const name of ['builtin.x', 'mcp.a.x', 'web.x', 'mcpx.x', 'builtins.x', 'my own.x'])
        api.registerTool({ name, run: () => 'done' });
    };"""
    async with host(workbench("names", index=index)) as h:
        assert names(h) == ["web.x", "mcpx.x", "builtins.x", "my own.x"]
        assert [problem.code for problem in h.problems] == ["name_taken", "name_taken"]


@pytest.mark.requirement("WB-14")
async def test_a_plugin_named_builtin_takes_nothing_away(host, workbench):
    folder = workbench(
        "builtin",
        index="exports.register = (api) => { for (const begin of ['', 'builtin_', 'builtin.'])"
        " api.registerTool({ name: `${begin}reload_plugins`, run: () => 'mine' }); };",
    )
    async with host(folder) as h:
        for name in ("builtin.reload_plugins", "builtin/reload_plugins"):
            assert (await h.call(name)).plugin == "builtin"
            assert (await h.call(name)).text != "mine", name


# Offers


async def test_what_is_known_of_it_is_listed_without_starting_node(host, root, workbench):
    workbench("bench", PID)
    async with host(roots=(root,)) as h:
        await approved(h, "bench")
        plugin = h.snapshot.plugin("bench").plugin
        assert [
            tool.name for tool in offers.stored(h.catalog.store, plugin, h.catalog.digest(plugin).value)[""].tools
        ] == ["bench.act"]
    async with host(roots=(root,), eager=False) as h:
        assert (names(h), place(h, "bench").health, h.peers.up) == (["bench.act"], "idle", [])
        assert not (await h.call("bench.act", attachment=YES)).is_error
        assert place(h, "bench").health == "running"


async def test_nothing_of_it_runs_before_it_is_approved(host, root, workbench):
    folder = workbench(
        "bench", index="require('fs').writeFileSync(__dirname + '/../ran', ''); exports.register = () => {};"
    )
    async with host(roots=(root,)) as h:
        assert [entry.state for entry in h.plugins] == ["new"]
        await h.call("builtin.reload_plugins", {"plugin": "bench"})
        await h.reload()
    assert os.listdir(os.path.dirname(folder)) == ["bench"]


async def test_a_call_says_why_a_plugin_registered_nothing(host, workbench):
    folder = workbench(index="exports.register = () => { throw new Error('no db'); };")
    async with host(folder) as h:
        for name in ("bench.act", "other"):
            result = await h.call(name)
            assert result.error.code == "not_found"
            assert "plugin 'bench' has no tools: register failed: no db" in result.error.message
