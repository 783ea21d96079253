"""Nothing that plugins can write in a project runs as this program."""

import json
import os
import subprocess
import sys

import pytest

import plugin_folders
from anyplug.call.consent import Attachment
from anyplug.home import import_folders

BESIDE = os.path.join(os.path.dirname(sys.executable), "anyplug")
LEAVES_A_MARK = "open(__file__ + '.ran', 'w').close()\nraise ImportError(__file__)\n"
NAMES = ("json", "argparse", "msgspec", "rich", "socket", "_socket", "sqlite3", "asyncio", "signal", "yaml", "anyio")
WAYS = {"the console script": [BESIDE], "-m": [sys.executable, "-m", "anyplug"]}


@pytest.fixture
def project(tmp_path):
    """Give a project with a file for each module that a command may import."""
    folder = tmp_path / "project"
    for name in NAMES:
        plugin_folders.write(str(folder / "src" / f"{name}.py"), LEAVES_A_MARK)
        plugin_folders.write(str(folder / f"{name}.py"), LEAVES_A_MARK)
    (folder / ".git").mkdir()
    return folder


@pytest.mark.combinations
@pytest.mark.claim("own-modules")
@pytest.mark.parametrize("named", ["{0}", "{0}/src", ".", "src", "", ":/nowhere", None])
@pytest.mark.parametrize("way", WAYS)
def test_a_command_imports_nothing_from_the_project(way, named, project):
    variables = dict(os.environ)
    variables.pop("PYTHONPATH", None)
    if named is not None:
        variables["PYTHONPATH"] = named.format(project)
    for words in (["list", "--json"], ["eval"], ["check", "."]):
        done = subprocess.run(
            [*WAYS[way], *words], cwd=project, env=variables, input="{}", capture_output=True, text=True, check=False
        )
        assert "ImportError" not in done.stderr
    assert [name for _, _, names in os.walk(project) for name in names if name.endswith(".ran")] == []


@pytest.mark.claim("own-modules")
def test_the_daemon_imports_nothing_from_the_project(project, home):
    variables = os.environ | {"PYTHONPATH": f"{project}:{project}/src", "ANYPLUG_HOME": str(home)}
    started = [BESIDE, "serve", "--detach", "--linger", "1"]
    subprocess.run(started, cwd=project, env=variables, capture_output=True, check=True)
    subprocess.run([BESIDE, "stop"], cwd=project, env=variables, capture_output=True, check=False)
    assert [name for _, _, names in os.walk(project) for name in names if name.endswith(".ran")] == []


def test_installed_modules_that_the_variable_names_are_still_found(project, tmp_path):
    plugin_folders.write(str(tmp_path / "site" / "somewhere.py"), "")
    code = (
        "import sys; from anyplug.home import import_folders; import_folders.leave_out_project(); import somewhere; "
        "print(somewhere.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}/site"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "site" / "somewhere.py")


@pytest.mark.claim("own-modules")
@pytest.mark.parametrize("way", ["-c", "-m"])
def test_the_names_that_are_loaded_before_our_first_line_are_known(way):
    first = "import re, sys\nfrom anyplug.frontends.cli.main import main\n" if way == "-c" else ""
    code = f"{first}import sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    words = ["-c", code]
    if way == "-m":
        words = ["-c", f"import runpy, anyplug.frontends.cli.main\n{code}"]
    loaded = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout.split()
    by_itself = "import sys, _imp; print(*[name for name in sys.argv[1:] if _imp.is_frozen(name)])"
    frozen = subprocess.run([sys.executable, "-c", by_itself, *loaded], capture_output=True, text=True, check=True)
    known = {*import_folders.AT_START, *sys.builtin_module_names, *frozen.stdout.split(), "__main__"}
    alone = [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"]
    outside = subprocess.run(alone, capture_output=True, text=True, check=True)
    by_environment = {name.partition(".")[0] for name in outside.stdout.split()}  # what .pth files load
    assert {*loaded} - known - by_environment == set()


WRITES = plugin_folders.python(
    "found = []\nfor path in given['input']['paths']:\n"
    "    try:\n        os.makedirs(os.path.dirname(path), exist_ok=True)\n        open(path, 'w').close()\n"
    "        found.append('')\n"
    "    except OSError as error: found.append(error.strerror)\nprint(json.dumps({'result': json.dumps(found)}))"
)


@pytest.mark.anyio
@pytest.mark.claim("own-modules")
@pytest.mark.parametrize("named", ["", ".", "{0}", "{0}/lib"])
async def test_a_plugin_writes_nothing_that_the_interpreter_loads_first(named, tmp_path, host, cyclop, monkeypatch):
    work = tmp_path / "work"
    monkeypatch.setenv("PYTHONPATH", named.format(work))
    folder = str(work / "lib") if named.endswith("lib") else str(work)
    refused = (
        "anyplug/__init__.py",
        "sitecustomize.py",
        "usercustomize/__init__.py",
        "re.py",
        "encodings.cpython-311-x86_64-linux-gnu.so",
    )
    free = ("notes.py", "types/index.d.ts", "test/x.py")
    tools = [{"name": "writes", "description": "Writes.", "input_schema": {"type": "object"}}]
    plugin = cyclop("writes", WRITES, permissions=["filesystem:write:."], tools=tools)
    async with host(plugin) as h:
        paths = {"paths": [f"{folder}/{name}" for name in (*refused, *free)]}
        said = await h.call("writes", paths, attachment=Attachment(yes=True))
    assert [bool(error) for error in json.loads(said.text)] == [*(True for _ in refused), *(False for _ in free)]
