"""A plugin that fails because of what it was not granted: its error names the grant, and what to type."""

import os
import tempfile

import msgspec
import pytest

import command_line
import plugin_folders
import processes
from anyplug.call.consent import Attachment
from anyplug.frontends.mcp import result_content
from anyplug.launch import missing_grants
from anyplug.launch.missing_grants import MissingGrant, Scene
from anyplug.model import protected_paths
from anyplug.model.types import Plugin
from anyplug.runtime.sandbox.profile import Profile
from rows import each_row

YES = Attachment(yes=True)


@pytest.fixture
def scene(tmp_path):
    """A plugin that may read one folder and write another, in a project in a user's folder."""
    user, project = tmp_path / "user", tmp_path / "user" / "work"
    for folder in ("open", "mine", "plugin", "ours"):
        (user / folder).mkdir()
    project.mkdir()
    for file in ("open/there", "mine/there", "plugin/code", "ours/there", "private", "work/notes.txt"):
        plugin_folders.write(str(user / file), "x")
    plugin_folders.write(str(user / "bin" / "tool"), "#!/bin/sh\n", 0o755)
    found = {"tool": (str(user / "bin" / "tool"),), "git": ("/usr/bin/git",), "sh": ("/bin/sh",)}
    profile = Profile(
        readable=(str(user / "open"),),
        writable=(str(user / "mine"),),
        executable=("/bin", "/usr/bin/sh", str(user / "plugin")),
        code=(str(user / "plugin"),),
        hidden=(str(user / "ours"),),
        private_tmp=False,
    )
    return Scene(
        profile=profile,
        cwd=str(project),
        user=str(user),
        project=str(project),
        find=lambda name: found.get(name, ()),
    )


PROTECTED = {
    "{0}/mine/sub/.git/hooks/: Read-only file system": "filesystem:write:~/mine/sub/.git",
    "/bin/sh: 1: cannot create {0}/mine/.envrc: Read-only file system": "filesystem:write:~/mine/.envrc",
    "mkdir: cannot create directory \u2018{0}/mine/.idea\u2019: Read-only file system": "filesystem:write:~/mine/.idea",
}


@pytest.mark.parametrize("said", PROTECTED)
def test_a_protected_path_in_a_granted_folder_is_named(scene, said):
    mine = scene.profile.writable
    profile = msgspec.structs.replace(
        scene.profile, brokered=mine, protected=protected_paths.places(scene.user, scene.project).read_only, named=mine
    )
    found = missing_grants.read(said.format(scene.user), msgspec.structs.replace(scene, profile=profile))
    assert found == [MissingGrant(PROTECTED[said], is_protected=True)]


# What programs of many languages write, and the grant that they lacked. {0} is the user's folder.
SAID = {
    "PermissionError: [Errno 13] Permission denied: '{0}/private'": "filesystem:read:~/private",
    "Error: EACCES: permission denied, open '{0}/private'": "filesystem:read:~/private",
    "open {0}/private: permission denied": "filesystem:read:~/private",
    "cat: {0}/private: Permission denied": "filesystem:read:~/private",
    "tail: cannot open '{0}/private' for reading: Permission denied": "filesystem:read:~/private",
    "cat: can't open '{0}/private': Permission denied": "filesystem:read:~/private",
    "Permission denied @ rb_sysopen - {0}/private (Errno::EACCES)": "filesystem:read:~/private",
    "java.io.FileNotFoundException: {0}/private (Permission denied)": "filesystem:read:~/private",
    "cat: ~/private: Permission denied": "filesystem:read:~/private",
    "warning: unable to access '{0}/private': Permission denied": "filesystem:read:~/private",
    '{{"error": "EACCES: permission denied, scandir \'{0}/private\'", "tool": "git"}}': "filesystem:read:~/private",
    "cat: notes.txt: Permission denied": "filesystem:read:./notes.txt",
    "OSError: [Errno 30] Read-only file system: '{0}/open/there'": "filesystem:write:~/open/there",
    "Error: EROFS: read-only file system, open '{0}/open/new'": "filesystem:write:~/open",
    "touch: cannot touch '{0}/open/new': Read-only file system": "filesystem:write:~/open",
    "bash: line 1: {0}/open/there: Permission denied": "filesystem:write:~/open/there",
    "mkdir {0}/open/a/b: read-only file system": "filesystem:write:~/open",
    "EROFS: read-only file system, open 'new.txt'": "filesystem:write:.",
    "ENOENT: no such file or directory, mkdir '{0}/open/a/b'": "filesystem:write:~/open",
    "EACCES: permission denied, copyfile '{0}/private' -> '{0}/mine/copy'": "filesystem:read:~/private",
    "sh: 1: git: Permission denied": "shell:exec:git",
    "run.sh: line 4: /usr/bin/git: Permission denied": "shell:exec:git",
    "PermissionError: [Errno 13] Permission denied: 'git'": "shell:exec:git",
    "Error: spawn git EACCES": "shell:exec:git",
    "fork/exec /usr/bin/git: permission denied": "shell:exec:git",
    "env: \u2018git\u2019: Permission denied": "shell:exec:git",
    "{0}/bin/tool: Permission denied": "shell:exec:tool",
    "URLError: <urlopen error [Errno -3] Temporary failure in name resolution>": "network",
    "urllib.error.URLError: <urlopen error [Errno 1] Operation not permitted>": "network",
    'File "/usr/lib/python3/socket.py", line 9\nPermissionError: [Errno 1] Operation not permitted': "network",
    "Error: getaddrinfo EAI_AGAIN example.org": "network",
    "curl: (6) Could not resolve host: example.org": "network",
    'Get "https://example.org": dial tcp: lookup example.org: connection refused': "network",
    "TypeError: fetch failed": "network",
    "listen EPERM: operation not permitted 127.0.0.1": "network",
    "Error: listen EPERM: operation not permitted /tmp/tsx-0/15.pipe": "network:unix",
    '  File "/usr/lib/python3.14/multiprocessing/forkserver.py", line 1\n'
    "PermissionError: [Errno 1] Operation not permitted": "network:unix",
    "permission denied: dial unix /var/run/docker.sock: socket: operation not permitted": "network:unix",
}


@each_row(("said", "wanted"), SAID.items())
def test_what_programs_say_names_the_grant_that_they_lacked(said, wanted, scene):
    found = missing_grants.read(said.format(scene.user), scene)
    assert [lack.permission for lack in found] == [wanted]
    assert missing_grants.speaks_of_one(said.format(scene.user))


NOT_OURS = {
    "nothing that is refused": "Key not found: '{0}/private'",
    "what it may read": "cat: {0}/open/there: Permission denied by its author",
    "what it may write": "OSError: [Errno 30] Read-only file system: '{0}/mine/there'",
    "what nobody may read": "cat: {0}/closed: Permission denied",
    "a program that it may run": "sh: 1: sh: Permission denied",
    "what is ours": "cat: {0}/ours/there: Permission denied",
    "what is not there": "cat: {0}/nowhere: Permission denied in another tale",
    "an address": "EACCES: permission denied for https://example.org/private",
    "mere words": "Error: permission denied: 'you are not an admin'",
    "no name at all": "permission denied",
    "a server's refusal": "remote: Permission to a/b.git denied to c. HTTP 403 EPERM: 12",
}


@pytest.mark.parametrize("said", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_what_no_grant_would_have_helped_is_left_alone(said, scene, monkeypatch):
    plugin_folders.write(f"{scene.user}/closed", "x")
    usual = os.access  # root may read everything, and the test should say the same for root
    monkeypatch.setattr(os, "access", lambda path, mode: "closed" not in str(path) and usual(path, mode))
    assert [
        lack for lack in missing_grants.read(said.format(scene.user), scene) if "write" not in lack.permission
    ] == []


def test_a_new_folder_of_the_users_is_proposed_and_not_all_that_they_have(scene):
    said = f"OSError: [Errno 30] Read-only file system: '{scene.user}/.config/app/settings'"
    (lack,) = missing_grants.read(said, scene)
    assert lack == MissingGrant("filesystem:write:~/.config", f"{scene.user}/.config")
    plugin = Plugin(name="keeps", format="zot", path="/p")
    assert missing_grants.cure(plugin, [lack]) == (
        f"it was not granted filesystem:write:~/.config: `mkdir -p {scene.user}/.config`, "
        "then `anyplug grant keeps filesystem:write:~/.config`"
    )


def test_a_new_file_in_the_users_own_folder_is_made_as_a_file(scene):
    (lack,) = missing_grants.read(f"OSError: [Errno 30] Read-only file system: '{scene.user}/notes.txt'", scene)
    plugin = Plugin(name="p", format="zot", path="/p")
    assert f"`touch {scene.user}/notes.txt`, then " in missing_grants.cure(plugin, [lack])
    (lack,) = missing_grants.read(f"OSError: [Errno 30] Read-only file system: '{scene.user}/my.notes/a.txt'", scene)
    assert f"`mkdir -p {scene.user}/my.notes`, then " in missing_grants.cure(plugin, [lack])


def test_its_own_code_stays_as_it_is_whatever_is_granted(scene):
    found = missing_grants.read(f"EROFS: read-only file system, open '{scene.user}/plugin/state.json'", scene)
    assert found == [missing_grants.OWN_FOLDER]
    assert "whatever is granted" in missing_grants.cure(Plugin(name="p", format="workbench", path="/p"), found)


def test_a_folder_named_for_one_run_has_to_be_installed_to_be_granted_more():
    plugin = Plugin(name="p", format="cyclop", path="/some folder/p", permissions=("network",), explicit=True)
    cure = missing_grants.cure(plugin, [MissingGrant("shell:exec:git")])
    assert cure.endswith("`anyplug install '/some folder/p' --grant network --grant shell:exec:git`")


def test_a_long_tale_is_read_in_no_time(scene):
    for tale in ("EACCES" * 9_000, "a" * 60_000, "'" * 60_000, "/x" * 30_000, "ENOENT " * 9_000, ": (" * 20_000):
        assert missing_grants.read(tale + "\nsh: 1: git: Permission denied", scene) == [MissingGrant("shell:exec:git")]


# Through a host, under the default confinement

CURL = "#!/bin/sh\ncat >/dev/null\nmktemp >/dev/null && git --version\n"
LOOK_UP = plugin_folders.python("import socket\nsocket.getaddrinfo('example.org', 80)")
READ_KEY = plugin_folders.python("print(json.dumps({'result': os.environ['SHOP_API_KEY']}))")
NEEDS_FILE = plugin_folders.python("print(open(given['input']['path']).read())")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("script", "wanted"),
    [(CURL, "shell:exec:git"), (LOOK_UP, "network"), (READ_KEY, "env:SHOP_API_KEY")],
    ids=["a program", "the network", "a variable"],
)
async def test_the_error_of_a_call_names_the_grant_and_granting_it_is_the_cure(
    script, wanted, host, cyclop, root, monkeypatch
):
    monkeypatch.setenv("SHOP_API_KEY", "not-a-known-shape")
    cyclop("needs", script)
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("needs").plugin
        await h.approve(plugin)
        failed = await h.call("needs")
        assert failed.error.hint == f"it was not granted {wanted}: `anyplug grant needs {wanted}`"
        await h.approve(plugin, granted=(wanted,))
        again = await h.call("needs", attachment=YES)
        assert again.error is None or wanted not in again.error.hint


@pytest.mark.anyio
async def test_a_file_in_everybodys_tmp_is_named_though_the_plugin_says_that_there_is_none(
    host, cyclop, root, tmp_path
):
    path = plugin_folders.write(str(tmp_path / "elsewhere" / "list.txt"), "one\n")
    assert path.startswith("/tmp/")
    cyclop("reads", NEEDS_FILE)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("reads").plugin)
        result = await h.call("reads", {"path": path})
    assert f"filesystem:read:{path}" in result.error.hint


@pytest.mark.anyio
async def test_an_extension_that_cannot_start_for_want_of_a_grant_says_which(host, zot, root):
    zot("wants", "import subprocess\nsubprocess.run(['git', '--version'], check=True)\n")
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("wants").plugin, granted=("network",))
        (said,) = [problem.message for problem in h.problems if "not running" in problem.message]
    assert "`anyplug grant wants shell:exec:git`" in said


@pytest.mark.anyio
async def test_a_plugin_that_says_it_in_an_answer_of_its_own_is_understood_too(host, workbench, root, tmp_path):
    path = plugin_folders.write(str(tmp_path / "work" / "note.txt"), "x")
    workbench(
        "bench",
        """async ({ path }) => {
          try { require('fs').writeFileSync(path, 'y'); }
          catch (e) { return { content: `Sorry: ${e.message}`, error: e.code }; }
        }""",
    )
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("bench").plugin)
        result = await h.call("bench.act", {"path": path}, attachment=YES)
    assert (result.error.code, result.text.startswith("Sorry: ")) == ("tool_error", True)
    assert "`anyplug grant bench filesystem:write:./note.txt`" in result.error.hint


TRIES_GIT = """
hello(), command("try"), emit("ready")
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], error="sh: 1: git: Permission denied")
"""


@pytest.mark.anyio
async def test_a_slash_command_that_lacks_a_grant_says_so_too(host, zot, root):
    zot("slash", TRIES_GIT)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("slash").plugin, granted=())
        outcome = await h.run_command("/try", attachment=YES)
    assert outcome.error.hint.endswith("`anyplug grant slash shell:exec:git`")


def test_a_set_up_script_that_lacks_a_grant_says_what_to_add_to_the_command(root):
    folder = plugin_folders.stavrobot(root, "fetches", init={"entrypoint": "init.sh"})
    plugin_folders.write(os.path.join(folder, "init.sh"), "#!/bin/sh\ngit --version\n", 0o755)
    failed = command_line.run("install", folder, "--yes")
    assert failed.code == 1
    assert "`... --grant network --grant shell:exec:git`" in failed.err
    command_line.ok("install", folder, "--yes", "--grant", "network", "--grant", "shell:exec:git")


@pytest.mark.anyio
@pytest.mark.usefixtures("unconfined")
async def test_where_nothing_is_held_nothing_is_said_of_grants(host, cyclop):
    script = plugin_folders.python("open('/nowhere/at/all', 'w')")
    async with host(cyclop("fails", script)) as h:
        assert "grant" not in (await h.call("fails")).error.hint


USES_TMP = plugin_folders.python(
    """
import tempfile
name, act = given["input"]["name"], given["input"]["act"]
if act == "write":
    open(name, "w").write("x")
    print(json.dumps({"result": f"saved in {name}."}))
elif act == "read":
    print(json.dumps({"result": open(name).read()}))
else:
    print(json.dumps({"result": os.path.dirname(tempfile.mkstemp()[1])}))
"""
)


@pytest.mark.anyio
async def test_a_granted_tmp_is_the_machines_and_what_is_in_an_own_one_is_said_to_be(host, cyclop, root):
    with tempfile.TemporaryDirectory(prefix="anyplug-", dir="/tmp") as folder:
        there = plugin_folders.write(os.path.join(folder, "there"), "theirs")
        new = f"{folder}-new.txt"
        cyclop("uses", USES_TMP)
        async with host(roots=(root,)) as h:
            plugin = h.snapshot.plugin("uses").plugin

            async def uses(act, name):
                return await h.call("uses", {"act": act, "name": name}, attachment=YES)

            await h.approve(plugin, granted=())
            hidden = "/tmp/report-of-its-own.txt"
            saved = await h.call("uses", {"act": "write", "name": "/tmp/../tmp/report-of-its-own.txt"}, attachment=YES)
            assert saved.text == "saved in /tmp/../tmp/report-of-its-own.txt."
            await h.approve(plugin, granted=("clipboard",))
            missing = (await uses("read", hidden)).error.hint
            assert missing.startswith("it has a /tmp of its own, apart from the machine's; ")
            assert "`anyplug grant uses filesystem:write:/tmp`" in missing
            assert "a /tmp of its own" in (await uses("read", there)).error.hint

            await h.approve(plugin, granted=("filesystem:read:/tmp",))
            assert "theirs" in (await uses("read", there)).text
            assert (await uses("write", new)).is_error
            assert (await uses("make", "")).text == os.path.join(h.catalog.home.cache(plugin), "tmp")

            await h.approve(plugin, granted=("filesystem:write:/tmp",))
            try:
                saved = await uses("write", new)
                assert (saved.is_error, saved.remarks) == (False, ())
                assert processes.read(new) == b"x"
            finally:
                os.unlink(new)
            assert (await uses("make", "")).text == "/tmp"
            assert (
                await uses("write", os.path.join(h.catalog.home.path, "mine"))
            ).is_error  # it is in /tmp, and hidden


SAVES = plugin_folders.python(
    """
open("/tmp/made.txt", "w").write("x")
words = given["input"]
print(json.dumps({"result": "see /tmp/made.txt, and " + words.get("of", "") + words.get("backwards", "")[::-1]}))
"""
)


@pytest.mark.anyio
async def test_a_result_that_names_a_file_of_an_own_tmp_says_that_nobody_else_has_it(host, cyclop, root):
    cyclop("saves", SAVES)
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("saves").plugin, granted=())
        data = f"{h.catalog.home.path}/data/saves/made.db"  # in /tmp here, but not in the plugin's own
        result = await h.call("saves", {"of": "/tmp/given"}, attachment=YES)
        kept = await h.call("saves", {"backwards": data[::-1]}, attachment=YES)
        assert data in kept.text
        assert kept.remarks == result.remarks
        (remark,) = result.remarks
        assert remark.startswith("/tmp/made.txt is in the plugin's own /tmp: nobody else can open it")
        assert result.metadata["warnings"] == [remark]
        assert result_content.tool_result(result, None, is_modern=True)["content"][-1]["text"] == f"[anyplug] {remark}"
