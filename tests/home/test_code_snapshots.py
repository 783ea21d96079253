"""What runs is what was approved: snapshots, how plugins see them, and that nothing else gets in between."""

import json
import os
import stat
import subprocess
import sys

import pytest

import plugin_folders
import sandbox_script
import swap_script
from anyplug.call.consent import Attachment
from anyplug.home import code_snapshots, digest, untrusted_files
from anyplug.home.code_snapshots import Changed, Snapshots
from anyplug.model.errors import CallError
from sandbox_script import USERS

YES = Attachment(yes=True)
FORMATS = ("cyclop", "stavrobot", "zot", "workbench")
CALLS = 25


# Between check and run


@pytest.mark.combinations
@pytest.mark.claim("runs-what-was-approved")
@pytest.mark.parametrize("way", swap_script.WAYS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("user", USERS)
def test_code_that_is_swapped_while_a_plugin_is_called_never_runs_as_approved(user, format, way):
    case = {"format": format, "way": way, "calls": CALLS}
    (found,) = json.loads(sandbox_script.run(user, "", json.dumps([case]), script=swap_script.__file__))
    assert sum(found.values()) == CALLS
    assert set(found) <= {"ours", "not_approved", "unavailable"}


# The snapshots themselves


@pytest.fixture
def store(tmp_path):
    return Snapshots(str(tmp_path / "home"))


def text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read(folder, *, every_file=True):
    return digest.take(str(folder), every_file=every_file, before=None)


def kept(store, folder, **how):
    held = store.hold(str(folder), read(folder), **how)
    held.release()
    return held.files


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "plugin"
    plugin_folders.write(str(folder / "run"), "#!/bin/sh\n", 0o755)
    plugin_folders.write(str(folder / "lib" / "part.py"), "pass\n")
    plugin_folders.write(str(folder / "lib" / "table.csv"), "a,b\n")
    (folder / "lib" / "again.py").symlink_to("part.py")
    os.utime(folder / "run", (1, 1_000_000))
    return folder


def test_a_snapshot_has_the_files_with_their_times_links_and_execute_bits(store, folder):
    files = kept(store, folder)
    assert text(f"{files}/lib/part.py") == "pass\n"
    assert os.readlink(f"{files}/lib/again.py") == "part.py"
    assert os.stat(f"{files}/run").st_mtime == 1_000_000
    assert stat.S_IMODE(os.stat(f"{files}/run").st_mode) == 0o555
    assert stat.S_IMODE(os.stat(f"{files}/lib/part.py").st_mode) == 0o444
    assert os.stat(f"{files}/run").st_nlink == 1
    assert kept(store, folder) == files


def test_a_link_that_leads_outside_stays_a_link(store, folder, tmp_path):
    plugin_folders.write(str(tmp_path / "shared" / "below" / "code.py"), "shared\n")
    (folder / "shared").symlink_to(tmp_path / "shared")
    (folder / "lib" / "one.py").symlink_to("../../shared/below/code.py")
    files = kept(store, folder)
    assert os.readlink(f"{files}/shared") == str(tmp_path / "shared")
    assert os.readlink(f"{files}/lib/one.py") == "../../shared/below/code.py"
    assert [name for name in untrusted_files.files(files) if name.startswith("shared/")] == []
    plugin_folders.write(str(tmp_path / "shared" / "below" / "code.py"), "another\n")
    assert kept(store, folder) != files  # it counts for the digest all the same


def test_a_link_to_data_that_does_not_count_becomes_a_copy(store, folder):
    (folder / "lib" / "rows.py").symlink_to("table.csv")
    reading = read(folder, every_file=False)
    held = store.hold(str(folder), reading)
    held.release()
    assert not os.path.islink(f"{held.files}/lib/rows.py")
    assert text(f"{held.files}/lib/rows.py") == "a,b\n"


def test_a_snapshot_of_an_earlier_version_is_made_again(store, folder):
    files = kept(store, folder)
    os.rename(f"{os.path.dirname(files)}/entries", f"{os.path.dirname(files)}/index")
    plugin_folders.write(f"{files}/a-copied-key", "key")
    assert kept(Snapshots(os.path.dirname(store.folder)), folder) == files
    assert not os.path.exists(f"{files}/a-copied-key")


def test_a_plugin_that_writes_beside_its_code_has_only_its_code_kept(store, folder):
    plugin_folders.write(str(folder / ".venv" / "pyvenv.cfg"), "home = /usr/bin\n")
    plugin_folders.write(str(folder / ".venv" / "x.py"), "pass\n")
    reading = read(folder, every_file=False)
    held = store.hold(str(folder), reading, whole=(".venv",))
    held.release()
    assert not os.path.exists(f"{held.files}/lib/table.csv")
    assert os.path.exists(f"{held.files}/.venv/pyvenv.cfg")


@pytest.mark.claim("snapshots-verified")
def test_a_file_that_changes_before_it_is_copied_is_refused_and_leaves_nothing(store, folder):
    reading = read(folder)
    plugin_folders.write(str(folder / "lib" / "part.py"), "fail\n")
    with pytest.raises(Changed, match=r"lib/again\.py changed"):
        store.hold(str(folder), reading)
    assert os.listdir(store.folder) == []


@pytest.mark.claim("snapshots-verified")
@pytest.mark.parametrize("how", ["changed", "added", "removed", "index"])
def test_a_snapshot_that_somebody_changed_is_found_by_the_next_host_and_made_anew(store, folder, tmp_path, how):
    files = kept(store, folder)
    if how == "changed":
        os.chmod(f"{files}/lib/part.py", 0o644)
        plugin_folders.write(f"{files}/lib/part.py", "evil\n")
    elif how == "added":
        plugin_folders.write(f"{files}/json.py", "evil\n")
    elif how == "removed":
        os.unlink(f"{files}/lib/part.py")
    else:
        plugin_folders.write(os.path.join(os.path.dirname(files), "index"), "[]")
    again = kept(Snapshots(str(tmp_path / "home")), folder)
    assert text(f"{again}/lib/part.py") == "pass\n"
    assert not os.path.exists(f"{again}/json.py")


KILLED = """
import os, sys
from anyplug.home import code_snapshots, digest
def copy(*_):
    os.kill(os.getpid(), 9)
code_snapshots.{step} = copy
folder, home = sys.argv[1:]
code_snapshots.Snapshots(home).hold(folder, digest.take(folder, every_file=True, before=None))
"""


@pytest.mark.parametrize("step", ["_copy", "_keep_times", "_total"])
def test_whoever_is_killed_while_copying_leaves_nothing_that_is_used(store, folder, tmp_path, step):
    home = str(tmp_path / "home")
    done = subprocess.run([sys.executable, "-c", KILLED.format(step=step), str(folder), home], check=False)
    assert done.returncode == -9
    files = kept(store, folder)
    assert text(f"{files}/lib/part.py") == "pass\n"


def test_what_no_approval_names_goes_when_nobody_has_used_it_lately(store, folder, monkeypatch):
    held = store.hold(str(folder), read(folder))
    store.collect(frozenset())
    assert os.path.exists(held.files)  # it was used just now
    monkeypatch.setattr(code_snapshots, "UNUSED_S", -1)
    store.collect(frozenset())
    assert os.path.exists(held.files)  # it is in use
    held.release()
    store.collect(frozenset({read(folder).digest}))
    assert os.path.exists(held.files)  # it is approved
    store.collect(frozenset())
    assert not os.path.exists(held.files)
    assert os.listdir(store.folder) == []


# What plugins see


LOOKS = plugin_folders.python(
    "import helper\n"
    "print(json.dumps({'result': json.dumps({'file': os.path.abspath(__file__), 'cwd': os.getcwd(),\n"
    "  'argv': sys.argv[0], 'data': open('data/table.csv').read(), 'helper': helper.__file__,\n"
    "  'link': os.readlink('link.csv'), 'mtime': os.stat('data/table.csv').st_mtime,\n"
    "  'config': os.path.exists('config.json') and open('config.json').read()})}))"
)


@pytest.mark.anyio
async def test_a_plugin_finds_itself_where_it_is_installed(host, root, cyclop):
    path = cyclop("looks", LOOKS)
    plugin_folders.write(f"{path}/data/table.csv", "a,b\n")
    plugin_folders.write(f"{path}/helper.py", "")
    os.symlink("data/table.csv", f"{path}/link.csv")
    os.utime(f"{path}/data/table.csv", (5, 5))
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("looks").plugin, granted=())
        seen = json.loads((await h.call("looks")).text)
        assert seen == {
            "file": f"{path}/run", "cwd": path, "argv": f"{path}/run", "data": "a,b\n", "helper": f"{path}/helper.py",
            "link": "data/table.csv", "mtime": 5, "config": False,
        }  # fmt: skip
        plugin_folders.write(f"{path}/config.json", "1")  # the person's own values are no part of what was approved
        assert json.loads((await h.call("looks")).text)["config"] == "1"
        plugin_folders.write(f"{path}/new.json", "2")
        os.replace(f"{path}/new.json", f"{path}/config.json")
        assert json.loads((await h.call("looks")).text)["config"] == "2"


LINKED = ["a/key", "key.py", "d.py", "shared/part.py"]
READS = plugin_folders.python(
    "def read(path):\n"
    "    try:\n        return open(os.path.join(os.path.dirname(os.path.abspath(__file__)), path)).read()\n"
    "    except OSError:\n        return ''\n"
    f"print(json.dumps({{'result': ''.join(map(read, {LINKED} + ['../' + name for name in {LINKED}]))}}))"
)
READS_IN_JS = (
    f"() => {LINKED}.map(name => {{ try {{ return require('fs').readFileSync(__dirname + '/' + name, 'utf8'); }}"
    " catch { return ''; } }).join('')"
)


@pytest.mark.anyio
@pytest.mark.claim("links-as-granted")
@pytest.mark.parametrize("format", ["cyclop", "stavrobot", "workbench"])
async def test_what_links_in_a_plugin_lead_to_is_read_only_as_far_as_it_is_granted(format, host, root, home):
    plugin_folders.write(os.path.expanduser("~/.ssh/key"), "a key")
    plugin_folders.write(f"{home}/secrets.json", "a secret")
    plugin_folders.write(os.path.expanduser("~/shared/part.py"), "a part")
    path = getattr(plugin_folders, format)(root, "reads", READS_IN_JS if format == "workbench" else READS)
    os.symlink(os.path.expanduser("~/.ssh"), f"{path}/a")
    os.symlink(os.path.expanduser("~/.ssh/key"), f"{path}/key.py")
    os.symlink(os.path.relpath(f"{home}/secrets.json", path), f"{path}/d.py")
    os.symlink(os.path.expanduser("~/shared"), f"{path}/shared")
    tool, given = ("reads", {}) if format == "cyclop" else ("reads.act", {"text": ""})
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("reads").plugin
        await h.approve(plugin, granted=())
        result = await h.call(tool, given, attachment=Attachment("tests", yes=True))
        assert (result.is_error, "a " in result.text) == (False, False), result.text
        await h.approve(plugin, granted=("filesystem:read:~/shared",))
        result = await h.call(tool, given, attachment=Attachment("tests", yes=True))
        assert "a part" in result.text
        assert "a key" not in result.text
        assert "a secret" not in result.text
    copies = [f"{below}/{name}" for below, _, names in os.walk(f"{home}/snapshots") for name in names]
    assert not any(text(copy) in {"a key", "a secret", "a part"} for copy in copies if not os.path.islink(copy))


WRITES = (
    "for name, text in (('state.json', '1'), ('data/more.txt', 'x'), ('helper.py', 'WORD = 2')):\n"
    "    try:\n        os.makedirs(os.path.dirname(name) or '.', exist_ok=True); open(name, 'w').write(text)\n"
    "    except OSError as error: said.append(error.strerror)\n"
)


@pytest.mark.anyio
async def test_a_cyclop_plugin_without_the_grant_cannot_write_beside_its_code(host, root, cyclop):
    path = cyclop(
        "writes", plugin_folders.python(f"said = []\n{WRITES}print(json.dumps({{'result': json.dumps(said)}}))")
    )
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("writes").plugin, granted=())
        assert json.loads((await h.call("writes")).text) == ["Read-only file system"] * 3
    assert sorted(os.listdir(path)) == ["plugin.json", "run"]


COUNTS = (
    "try:\n    import helper; found = helper.WORD\nexcept (ImportError, AttributeError): found = 0\n"
    "count = int(open('state.json').read()) if os.path.exists('state.json') else 0\n"
    "open('new.json', 'w').write(str(count + 1)); os.replace('new.json', 'state.json')\n"
    "open('helper.py', 'w').write('WORD = 2')\n"
    "open('shipped.txt', 'a').write('more')\n"
    "print(json.dumps({'result': json.dumps([count, found, open('shipped.txt').read()])}))\n"
)


@pytest.mark.claim("state-beside")
@pytest.mark.anyio
async def test_what_a_cyclop_plugin_writes_beside_its_code_is_kept_but_no_code_of_it_runs(host, root, cyclop, home):
    path = cyclop("counts", plugin_folders.python(f"sys.path.insert(0, os.getcwd())\n{COUNTS}"))
    plugin_folders.write(f"{path}/shipped.txt", "shipped")
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("counts").plugin, granted=("filesystem:write:out",), always=True)
        found = [json.loads((await h.call("counts", attachment=YES)).text) for _ in range(3)]
        assert [seen[:2] for seen in found] == [[0, 0], [1, 0], [2, 0]]
        assert found[-1][2] == "shippedmoremoremore"
        assert h.catalog.standing(h.snapshot.plugin("counts").plugin).state == "approved"
    assert sorted(os.listdir(path)) == ["plugin.json", "run", "shipped.txt"]
    assert (home / "data" / "counts" / "beside" / "state.json").read_text() == "3"
    assert text(f"{path}/shipped.txt") == "shipped"


@pytest.mark.claim("state-beside")
@pytest.mark.anyio
async def test_a_workbench_plugin_writes_beside_its_code_and_finds_that_again(host, root, home):
    run = """() => { const fs = require('fs'); const file = __dirname + '/state.json';
      const count = fs.existsSync(file) ? Number(fs.readFileSync(file)) : 0;
      fs.writeFileSync(file, String(count + 1)); fs.writeFileSync(__dirname + '/index.js.new', 'throw 1');
      fs.renameSync(__dirname + '/index.js.new', __dirname + '/index.js'); return String(count); }"""
    path = plugin_folders.workbench(root, "bench", run)
    for expected in ("0", "1"):
        async with host(roots=(root,)) as h:
            if expected == "0":
                await h.approve(h.snapshot.plugin("bench").plugin, granted=(), always=True)
            assert (await h.call("bench.act", attachment=YES)).text == expected
    assert sorted(os.listdir(path)) == ["index.js", "package.json"]
    assert (home / "data" / "bench" / "beside" / "state.json").read_text() == "2"


@pytest.mark.claim("state-beside")
@pytest.mark.anyio
async def test_a_stavrobot_plugin_keeps_its_state_in_its_real_folder(host, root, stavrobot):
    path = stavrobot(
        "keeps",
        plugin_folders.python(
            "values = json.load(open('../config.json'))\nvalues['count'] += 1\n"
            "json.dump(values, open('../new.json', 'w')); os.replace('../new.json', '../config.json')\n"
            "open('notes.txt', 'a').write('x')\nprint(values['count'])"
        ),
    )
    plugin_folders.write(f"{path}/config.json", '{"count": 0}')
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("keeps").plugin, granted=(), always=True)
        assert (await h.call("keeps.act", attachment=YES)).text.strip() == "1"
        plugin_folders.write(f"{path}/other.json", '{"count": 7}')
        os.replace(f"{path}/other.json", f"{path}/config.json")  # as editors save
        assert (await h.call("keeps.act", attachment=YES)).text.strip() == "8"
    assert json.loads(text(f"{path}/config.json")) == {"count": 8}
    assert text(f"{path}/act/notes.txt") == "xx"


@pytest.mark.anyio
async def test_a_zot_extension_keeps_its_state_in_its_real_folder(host, root, zot):
    path = zot("echo")
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("echo").plugin, granted=(), always=True)
        assert not (await h.call("echo", {}, attachment=YES)).is_error
        assert os.path.exists(f"{path}/heard.jsonl")


@pytest.mark.claim("runs-what-was-approved")
@pytest.mark.anyio
async def test_a_session_keeps_the_code_it_was_started_with(host, root):
    files = {"late.js": "module.exports = 'ours';"}
    path = plugin_folders.workbench(root, "bench", "() => require('./late.js')", files=files)
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("bench").plugin
        await h.approve(plugin, granted=(), always=True)
        peer = await h.peers.reach(plugin)
        plugin_folders.write(f"{path}/late.js", "module.exports = 'foreign';")
        assert (await h.call("bench.act", attachment=YES)).error.code == "not_approved"
        plugin_folders.write(f"{path}/late.js", files["late.js"])
        assert (await h.call("bench.act", attachment=YES)).text == "ours"
        assert peer.gone is None


@pytest.mark.anyio
async def test_the_snapshot_is_made_when_a_plugin_is_approved(host, root, cyclop, home):
    cyclop("hello")
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("hello").plugin
        await h.approve(plugin, granted=())
        assert h.catalog.digest(plugin).value in os.listdir(home / "snapshots")
        assert (await h.call("hello")).text == "done"
        assert "snapshot" in h.audit.calls()[-1].record.held_by.layers


@pytest.mark.anyio
async def test_a_full_disk_is_said_as_what_it_is(host, root, cyclop, monkeypatch):
    cyclop("hello")

    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    async with host(roots=(root,)) as h:
        monkeypatch.setattr(code_snapshots, "_copy", full)
        with pytest.raises(CallError, match="No space left"):
            await h.approve(h.snapshot.plugin("hello").plugin, granted=())
        assert h.snapshot.plugin("hello").state == "new"


@pytest.mark.claim("runs-what-was-approved")
@pytest.mark.anyio
async def test_a_session_beside_which_a_module_came_and_went_is_refused_and_started_anew(host, root, zot):
    path = zot("echo")
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("echo").plugin
        await h.approve(plugin, granted=(), always=True)
        assert not (await h.call("echo", {}, attachment=YES)).is_error
        before = await h.peers.reach(plugin)
        plugin_folders.write(f"{path}/colorsys.py", "")
        os.unlink(f"{path}/colorsys.py")
        refused = await h.call("echo", {}, attachment=YES)
        assert (refused.error.code, "colorsys.py was added" in refused.error.message) == ("not_approved", True)
        assert not (await h.call("echo", {}, attachment=YES)).is_error
        assert await h.peers.reach(plugin) is not before


@pytest.mark.claim("runs-what-was-approved")
@pytest.mark.anyio
async def test_a_module_that_was_added_keeps_a_plugin_from_starting(host, root, stavrobot):
    path = stavrobot("adds")
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("adds").plugin
        await h.approve(plugin, granted=(), always=True)
        plugin_folders.write(f"{path}/act/json.py", "")
        assert (await h.call("adds.act", {"text": ""}, attachment=YES)).error.code == "not_approved"
        os.unlink(f"{path}/act/json.py")
        assert not (await h.call("adds.act", {"text": ""}, attachment=YES)).is_error


@pytest.mark.anyio
async def test_what_lies_beside_a_plugin_is_seen_as_far_as_it_is_granted(host, tmp_path, monkeypatch):
    work = tmp_path / "work"
    root = work / "plugins"
    script = plugin_folders.python(
        "print(json.dumps({'result': json.dumps([sorted(os.listdir('..')), open('../other/note').read()])}))"
    )
    plugin_folders.cyclop(str(root), "looks", script)
    plugin_folders.write(str(root / "other" / "note"), "hello")
    (root / "link").symlink_to("other")
    monkeypatch.chdir(work)
    async with host(roots=(str(root),)) as h:
        await h.approve(h.snapshot.plugin("looks").plugin, granted=("filesystem:read:.",))
        assert json.loads((await h.call("looks")).text) == [["link", "looks", "other"], "hello"]
