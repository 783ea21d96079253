"""No plugin puts code into another one's programs by what these look for in the folders above them."""

import json
import os

import pytest

import plugin_folders
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
