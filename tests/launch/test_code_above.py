"""No plugin puts code into another one's programs by what these look for in the folders above them."""

import json
import os

import anyio
import pytest

import conditions
import plugin_folders
import zot_folders
from anyplug.call.consent import Attachment
from anyplug.launch import code_above

WRITES = plugin_folders.python(
    "found = []\nfor path in given['input']['paths']:\n"
    "    try:\n        os.makedirs(os.path.dirname(path), exist_ok=True)\n        open(path, 'w').close()\n"
    "        found.append('')\n"
    "    except OSError as error: found.append(error.strerror)\nprint(json.dumps({'result': json.dumps(found)}))"
)
TOOLS = [{"name": "writes", "description": "Writes.", "input_schema": {"type": "object"}}]


@pytest.mark.anyio
@pytest.mark.claim("code-above")
@pytest.mark.parametrize("permission", ["filesystem:write:.", "filesystem:write"])
@pytest.mark.parametrize("is_linked", [False, True])
async def test_modules_above_another_plugin_are_not_written(is_linked, permission, tmp_path, host, cyclop):
    work = tmp_path / "work"  # the host runs in it
    other = plugin_folders.workbench(str(work / "plugins"))
    if is_linked:
        os.makedirs(tmp_path / "far" / "away")
        os.rename(other, tmp_path / "far" / "away" / "bench")
        os.symlink(tmp_path / "far" / "away" / "bench", other)
    plugin = cyclop("writes", WRITES, permissions=[permission], tools=TOOLS)
    names = ("node_modules/helper/index.js", "tsconfig.json", "pyproject.toml", "src/node_modules/index.js")
    async with host(other, plugin) as h:
        paths = {"paths": [str(work / name) for name in names]}
        said = await h.call("writes", paths, attachment=Attachment(yes=True))
    refused, *free = json.loads(said.text)
    assert (bool(refused), free) == (True, ["", "", ""]), said.text


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"main.py": "", "read.me": ""}, set()),
        ({"index.js": ""}, {"node_modules", "package.json"}),
        ({"act/run": "#!/usr/bin/env node\n"}, {"node_modules", "package.json"}),
        ({"act/run": "#!/usr/bin/env python3\n# not node\n"}, set()),
        ({"package.json": "{}"}, {"node_modules"}),
        ({"index.ts": ""}, {"node_modules", "package.json", "tsconfig.json"}),
        ({"index.ts": "", "tsconfig.json": ""}, {"node_modules", "package.json"}),
        ({"main.py": "", "extension.json": '{"exec": "uv"}'}, {".venv", ".python-version", ".python-versions"}),
        ({"act/run": "#!/usr/bin/env -S uv run\n"}, {".venv", ".python-version", ".python-versions"}),
        ({"main.py": "", "pyproject.toml": ""}, {"pyproject.toml", "uv.toml"}),
        ({"act/run": "exec uv run main.py\n"}, {".venv", ".python-version", ".python-versions"}),
        (
            {"run": "#!/bin/sh\nexec npx tsx main.js\n"},
            {"package.json", "node_modules", ".pnp.cjs", ".pnp.js", ".pnp.data.json", ".pnp.loader.mjs"},
        ),
        ({"main.py": "run(['bundle', 'exec', 'x'])"}, {"Gemfile", "gems.rb", ".bundle", "Rakefile"}),
        ({"main.rs": "", "Cargo.toml": ""}, {"Cargo.toml", ".cargo"}),
        ({"deno.json": "{}"}, {"deno.json", "deno.jsonc", "package.json", "node_modules"}),
        ({"src/main.rs": ""}, {"Cargo.toml", ".cargo"}),
        ({"extension.json": '{"exec": "cargo"}'}, {"Cargo.toml", ".cargo"}),
        ({"main.rb": ""}, {"Gemfile", "gems.rb", ".bundle", "Rakefile"}),
        ({"run": "#!/usr/bin/env -S deno run\n"}, {"deno.json", "deno.jsonc", "package.json", "node_modules"}),
        (
            {"extension.json": '{"exec": "bun"}'},
            {"package.json", "node_modules", "tsconfig.json", "jsconfig.json"},
        ),
        ({"main.go": ""}, {"go.mod", "go.sum"}),
        ({"main.go": "", "go.mod": ""}, set()),
    ],
)
def test_what_is_looked_for_above_depends_on_the_code(files, expected, tmp_path):
    for name, text in files.items():
        plugin_folders.write(str(tmp_path / "a" / "b" / name), text)
    found = code_above.paths([str(tmp_path / "a" / "b")])
    assert {path for path in found if os.path.dirname(path) == str(tmp_path)} == {
        str(tmp_path / name) for name in expected
    }


@pytest.mark.anyio
@pytest.mark.claim("code-above")
@pytest.mark.parametrize(
    ("files", "root"),
    [
        ({"Cargo.toml": "[package]\n", "src/main.rs": ""}, "Cargo.toml"),
        ({"deno.json": "{}", "main.ts": ""}, "deno.json"),
        ({"package.json": '{"scripts": {"start": "npm run build"}}'}, "package.json"),
        ({"pom.xml": "", "Main.java": ""}, "pom.xml"),
        ({"start.sh": "cd tool\nexec uv run main.py\n"}, ".venv/lib/x.pth"),
        ({"main.py": "subprocess.run(['poetry', 'run', 'x'])"}, "pyproject.toml"),
    ],
)
async def test_no_workspace_is_made_around_another_plugin(files, root, tmp_path, host, cyclop):
    other = plugin_folders.cyclop(tmp_path / "work" / "tools", "other")
    for name, text in files.items():
        plugin_folders.write(os.path.join(other, name), text)
    plugin = cyclop("writes", WRITES, permissions=["filesystem:write:."], tools=TOOLS)
    async with host(other, plugin) as h:
        paths = {"paths": [str(tmp_path / "work" / folder / root) for folder in (".", "tools", "elsewhere")]}
        said = await h.call("writes", paths, attachment=Attachment(yes=True))
    *refused, free = json.loads(said.text)
    assert (all(refused), free) == (True, ""), said.text


@pytest.mark.anyio
@pytest.mark.claim("code-above")
async def test_projects_and_settings_above_do_not_count(tmp_path, host, cyclop, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "work" / "src"))
    monkeypatch.setenv("NODE_PATH", "/usr/lib/x")
    seen = plugin_folders.python("print(json.dumps({'result': json.dumps(dict(os.environ))}))")
    plain, project = cyclop("plain", seen), cyclop("project", seen)
    plugin_folders.write(os.path.join(project, "pyproject.toml"), "")
    async with host(plain, project) as h:
        variables = [json.loads((await h.call(name)).text) for name in ("plain", "project")]
    names = ("UV_NO_PROJECT", "UV_NO_CONFIG", "GOWORK", "PYTHONPATH", "NODE_PATH")
    assert [[each.get(name) for name in names] for each in variables] == [
        ["1", "1", "off", None, "/usr/lib/x"],
        [None, None, "off", None, "/usr/lib/x"],
    ]


@pytest.mark.anyio
@pytest.mark.claim("code-above")
async def test_an_environment_that_is_active_is_not_written(tmp_path, host, cyclop, monkeypatch):
    work = tmp_path / "work"
    for name in (".venv/pyvenv.cfg", ".venv/bin/python", "free/pyvenv.cfg"):
        plugin_folders.write(str(work / name), "")
    monkeypatch.setenv("PATH", f"{work}/.venv/bin:{os.environ['PATH']}")
    plugin = cyclop("writes", WRITES, permissions=["filesystem:write:."], tools=TOOLS)
    names = (".venv/lib/python3/site-packages/x.pth", "free/x.pth")
    async with host(plugin) as h:
        paths = {"paths": [str(work / name) for name in names]}
        said = await h.call("writes", paths, attachment=Attachment(yes=True))
    refused, *free = json.loads(said.text)
    assert (bool(refused), free) == (True, [""]), said.text


WRITER = """
hello()
tool('put')
tool('get')
emit('ready')
opened, began = [], time.time_ns()
for frame in heard():
    if frame['type'] != 'tool_call':
        continue
    answer = [began, '']
    try:
        for path in frame['args']['paths']:
            if frame['name'] == 'get':
                answer[1] = open(path).read()
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            opened.append(open(path, 'a'))
    except OSError as error:
        answer[1] = error.strerror
    say(frame, json.dumps(answer))
"""


async def found(host, name):
    """Wait until a host has found a plugin, which restarts no other."""
    await conditions.until(lambda: any(entry.name == name for entry in host.snapshot.entries))


async def approve(host, name, *granted):
    plugin = host.snapshot.plugin(name).plugin
    await host.approve(plugin, granted=granted or plugin.permissions, always=True)


LINKER = """
hello()
tool('link')
emit('ready')
began = time.time_ns()
for frame in heard():
    if frame['type'] == 'tool_call':
        try:
            os.symlink(frame['args']['target'], frame['args']['path'])
            os.remove(frame['args']['path'])
            say(frame, json.dumps([began, '']))
        except OSError as error:
            say(frame, json.dumps([began, error.strerror]))
"""


@pytest.mark.anyio
@pytest.mark.claim("protected-paths")
async def test_what_runs_makes_no_link_to_a_plugin_that_is_added(tmp_path, host):
    work = tmp_path / "work"
    zot_folders.extension(str(work / "plugins"), "linker", LINKER)
    async with host(roots=(str(work / "plugins"),), watch=True) as h:
        await approve(h, "linker", "extension", "tools", "filesystem:write:.")

        async def link(target):
            given = {"path": str(work / "src"), "target": target}
            return json.loads((await h.call("link", given, attachment=Attachment(yes=True))).text)

        before = await link("plugins/bench")
        plugin_folders.workbench(str(work / "plugins"))
        await found(h, "bench")
        await approve(h, "bench")
        assert not (await h.call("bench.act", attachment=Attachment(yes=True))).is_error
        after, refused = await link("plugins/bench")
        assert refused
        assert before == await link("plugins/other") == [after, ""], "it went on"


@pytest.mark.anyio
@pytest.mark.claim("code-above")
@pytest.mark.parametrize("is_there", [False, True])
async def test_what_is_above_a_plugin_that_is_added_is_no_longer_written_by_those_that_run(is_there, tmp_path, host):
    work = tmp_path / "work"
    root = str(work / "plugins")
    zot_folders.extension(root, "writer", WRITER)
    module, free = str(work / "node_modules" / "helper" / "index.js"), str(work / "free")
    async with host(roots=(root,), watch=True) as h:
        await approve(h, "writer", "extension", "tools", "filesystem:write:.")

        async def put(path):
            return json.loads((await h.call("put", {"paths": [path]}, attachment=Attachment(yes=True))).text)

        before, _ = await put(free)
        if is_there:
            assert (await put(module))[1] == ""  # it keeps the file open
        plugin_folders.workbench(root)
        await found(h, "bench")
        await approve(h, "bench")
        assert not (await h.call("bench.act", attachment=Attachment(yes=True))).is_error
        after, refused = await put(module)
        assert refused
        assert (await put(free))[1] == ""
        assert (before == after) == (not is_there), "it was ended only if it may have had the file open"


@pytest.mark.anyio
@pytest.mark.claim("code-above")
async def test_a_program_that_may_have_code_above_open_is_ended_before_the_other_plugin_starts(tmp_path, host, cyclop):
    work = tmp_path / "work"
    root = str(work / "plugins")
    keeps = plugin_folders.python(
        "path = given['input']['path']\nos.makedirs(os.path.dirname(path))\nwith open(path, 'w') as file:\n"
        "    for _ in range(3000):\n        file.write('.')\n        file.flush()\n        time.sleep(0.02)\n"
        "print(json.dumps({'result': 'went on'}))"
    )
    plugin_folders.cyclop(
        root, "keeps", keeps, permissions=["filesystem:write:."], tools=[{**TOOLS[0], "name": "keeps"}]
    )
    module = str(work / "node_modules" / "helper" / "index.js")
    index = (
        "const {readFileSync} = require('fs');\nmodule.exports.register = (api) => api.registerTool({name: 'bench.act',"
        f" inputSchema: {{}}, run: () => readFileSync({json.dumps(module)}, 'utf8').length}});"
    )
    async with host(roots=(root,), watch=True) as h:
        await approve(h, "keeps")
        results = []

        async def call():
            results.append(await h.call("keeps", {"path": module}, attachment=Attachment(yes=True)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await conditions.until(lambda: os.path.exists(module) and os.path.getsize(module) > 2)
            plugin_folders.workbench(root, index=index)
            await found(h, "bench")
            await approve(h, "bench", "filesystem:read:.")
            seen = await h.call("bench.act", attachment=Attachment(yes=True))
        assert seen.text == str(os.path.getsize(module))
    assert results[0].error.code == "crashed"
    assert "may be code of another plugin now" in results[0].error.message


@pytest.mark.anyio
@pytest.mark.claim("hidden-paths")
async def test_the_values_of_a_plugin_that_is_added_are_hidden_from_those_that_run(tmp_path, host):
    root = str(tmp_path / "work" / "plugins")
    zot_folders.extension(root, "reader", WRITER)
    others = str(tmp_path / "work" / "others")
    values = os.path.join(others, "added", "config.json")
    async with host(roots=(root, others), watch=True) as h:
        await approve(h, "reader", "extension", "tools", "filesystem:read")

        async def get(path):
            return (await h.call("get", {"paths": [path]}, attachment=Attachment(yes=True))).text

        assert json.loads(await get(__file__))[1]
        plugin_folders.cyclop(others, "added")
        rooms = h._provisions._confinement._rooms
        await conditions.until(lambda: any(values in room.around for room in rooms.values()))  # the sandbox was told
        plugin_folders.write(values, '{"key": "the secret"}')
        for _ in range(3):
            assert "the secret" not in await get(values)
