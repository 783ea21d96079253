"""zot: manifests, the handshake, tools, commands, notes, panels, calls between extensions, and events."""

import base64
import json
import os
import shutil
import sys
import tempfile

import anyio
import pytest

import plugin_folders
import processes
import zot_folders
from anyplug.call.consent import Attachment
from anyplug.catalog.profiles import View
from anyplug.catalog.tool_search import Index
from anyplug.formats.shared.contract import Greeting
from anyplug.formats.zot import format  # noqa: A004 - the product's own word
from anyplug.formats.zot import peer as extension
from anyplug.frontends.mcp.handlers import Handlers, Request
from anyplug.model.types import Failure, Image, Note, NotesCleared, SlashSubmitted, Submitted, Text
from anyplug.peers import panels
from anyplug.peers.notices import PanelChanged
from conditions import until
from zot_folders import heard

pytestmark = pytest.mark.anyio

PATIENCE_S = 15.0
LOOP = "\nfor frame in heard(): pass\n"
QUICK = 'hello()\ntool("act")\nemit("ready")\n'  # then what it does with a call


def answering(*lines, up=QUICK):
    """A script that runs these lines for each call."""
    body = "\n".join(f"        {line}" for line in lines)
    return f"{up}\nfor frame in heard():\n    if frame['type'] == 'tool_call':\n{body}\n"


def responding(fields, extra=""):
    """A script with the command `go` that answers with these fields."""
    return (
        f'hello()\ncommand("go")\nemit("ready")\nfor frame in heard():\n    if frame["type"] == "command_invoked":\n'
        f"        {extra or 'pass'}\n        emit('command_response', id=frame['id'], **{fields!r})\n"
    )


def problems(h):
    return [problem.message for problem in h.problems]


# Manifests


@pytest.mark.parametrize(
    ("given", "here"),
    [
        ("two words", "two-words"),
        ("a/b", "a-b"),
        ("../up", "up"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("a\nb", "a-b"),
        ("Wetter für Köln!", "Wetter-fur-Koln"),
        ("天気", "folder"),
    ],
)
async def test_a_name_that_only_zot_can_use_is_another_here_and_the_extension_works(given, here, zot, host):
    script = answering("say(frame, 'done')", up=f"hello(name={given!r})\ntool('act')\nemit('ready')\n")
    async with host(zot("folder", script, name=given)) as h:
        (entry,) = h.plugins
        assert (entry.name, entry.state) == (here, "approved")
        assert [problem.message for problem in entry.problems] == [
            f"the name '{given}' cannot be a folder's name; here it is '{here}'"
        ]
        assert (await h.call(f"{here}/act")).text == "done"


@pytest.mark.requirement("ZOT-04")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ...}, "name is required"),
        ({"name": ""}, "name is required"),
        ({"name": 7}, "'name' must be a string, not a number"),
        ({"exec": ...}, "exec is required"),
        ({"exec": ""}, "exec is required"),
        ({"exec": ["python3"]}, "'exec' must be a string, not a list"),
        ({"exec": "./run\0"}, "must not contain NUL"),
        ({"args": "--mode daemon"}, "'args' must be a list of strings"),
        ({"args": [1]}, "'args' must be a list of strings"),
        ({"args": ["a\0b"]}, "must not contain NUL"),
        ({"enabled": "no"}, "'enabled' must be true or false"),
    ],
)
async def test_a_manifest_that_cannot_be_used_is_a_broken_plugin_with_the_cure(changes, said, zot, host):
    folder = zot("echo", **changes)
    async with host(folder) as h:
        (entry,) = h.plugins
        assert entry.state == "broken"
        assert said in entry.problems[0].message
        assert entry.problems[0].hint
        assert h.peers.places == []


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'"x"', b'{"name": "\xff"}', b"\x00"])
async def test_a_manifest_that_is_no_object_is_a_broken_plugin(text, zot, host):
    folder = zot("echo")
    plugin_folders.write(os.path.join(folder, "extension.json"), text)
    async with host(folder) as h:
        assert [entry.state for entry in h.plugins] == ["broken"]


@pytest.mark.requirement("ZOT-05")
async def test_a_byte_order_mark_unknown_fields_and_null_ones_are_no_fault(zot, host):
    folder = zot("echo")
    manifest = {"name": "echo", "exec": "./run.py", "language": "python", "theme": {"a": 1}}
    manifest |= dict.fromkeys(["version", "args", "enabled", "description"])
    plugin_folders.write(os.path.join(folder, "extension.json"), b"\xef\xbb\xbf" + json.dumps(manifest).encode())
    async with host(folder) as h:
        assert (await h.call("echo", {"a": 1})).text == '{"a": 1}'


async def test_a_manifests_keys_may_have_any_case(zot, host):
    folder = zot("echo")
    plugin_folders.write(
        os.path.join(folder, "extension.json"), '{"Name": "echo", "Exec": "./run.py", "ENABLED": true}'
    )
    async with host(folder) as h:
        assert (await h.call("echo", {"a": 1})).text == '{"a": 1}'


@pytest.mark.parametrize(
    ("more", "holds", "fields"),
    [
        ("theme.json", "a theme", {}),
        ("themes/theme.json", "a theme", {}),
        ("skills/write/SKILL.md", "skills", {}),
        ("write/SKILL.md", "skills", {"skills": ["write"]}),
    ],
)
async def test_a_theme_or_skills_without_a_program_are_no_fault_and_nothing_runs(more, holds, fields, tmp_path, host):
    folder = str(tmp_path / "pretty")
    zot_folders.write_manifest(folder, {"name": "pretty", **fields})
    plugin_folders.write(os.path.join(folder, more), "{}")
    async with host(folder) as h:
        (entry,) = h.plugins
        assert (entry.state, entry.plugin.permissions, h.peers.places) == ("disabled", (), [])
        assert problems(h) == [f"pretty: it contains {holds} and no program"]
        assert "nothing that anyplug could run" in entry.problems[0].hint


async def test_a_program_beside_a_theme_runs(zot, host):
    folder = zot("echo")
    plugin_folders.write(os.path.join(folder, "theme.json"), "{}")
    async with host(folder) as h:
        assert (await h.call("echo", {"a": 1})).text == '{"a": 1}'
        assert problems(h) == []


@pytest.fixture
def programs():
    """A folder of programs; not below /tmp, which extensions have for themselves."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield folder


@pytest.mark.requirement("ZOT-06")
async def test_exec_may_be_absolute_beside_the_manifest_or_a_bare_name_from_the_path(zot, host, programs, monkeypatch):
    beside = zot("beside", exec="bin/run.py")
    os.makedirs(os.path.join(beside, "bin"))
    shutil.copy(os.path.join(beside, "run.py"), os.path.join(beside, "bin", "run.py"))
    plugin_folders.write(
        os.path.join(beside, "bin", "run.py"), zot_folders.PRELUDE + zot_folders.ECHO.replace("NAME", '"beside"'), 0o755
    )
    absolute = zot("absolute", exec=sys.executable, args=["run.py"])
    bare = zot("bare", exec="my-python", args=["-S", "run.py"])
    os.symlink(sys.executable, os.path.join(programs, "my-python"))
    monkeypatch.setenv("PATH", programs, prepend=":")
    async with host(beside, absolute, bare) as h:
        for name in ("beside", "absolute", "bare"):
            assert (await h.call(name)).text == "{}", problems(h)


async def test_what_go_runs_is_built_when_it_is_approved(zot, host, root, programs, monkeypatch):
    monkeypatch.setenv("PATH", programs, prepend=":")
    acts = 'echo "$@" >> said\ncase "$1" in build) echo made > "$3";; *) exec python3 -I -S "$5";; esac\n'
    plugin_folders.write(os.path.join(programs, "go"), f"#!/bin/sh\n{acts}", 0o755)
    arguments = ["run", "-tags", "x y", "-v", "run.py", "--mode", "daemon"]
    folder = zot("built", exec="go", args=arguments)
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("built").plugin
        await h.approve(plugin, always=True)
        made = os.path.join(h.catalog.home.cache(plugin), "built")
        assert (
            processes.read(os.path.join(folder, "said")).decode().startswith(f"build -o {made} -tags x y -v run.py\n")
        )
        assert processes.read(made) == b"made\n"
        assert (await h.call("built")).text == "{}", problems(h)
        plugin_folders.write(os.path.join(programs, "go"), "#!/bin/sh\necho no network >&2\nexit 1\n", 0o755)
        said = await h.prepare(plugin)
        assert said == "it could not be built yet, and will be at its first start: no network"


async def test_what_is_built_or_fetched_before_it_runs_has_longer_for_its_hello(zot, host, programs, monkeypatch):
    monkeypatch.setattr(extension, "HELLO_S", 0.3)
    monkeypatch.setenv("PATH", programs, prepend=":")
    for name in ("go", "npx"):
        building = '#!/bin/sh\nsleep 1\nfor last; do :; done\nexec python3 -I -S "$last"\n'
        plugin_folders.write(os.path.join(programs, name), building, 0o755)
    by_name, by_line = zot("built", exec="go", args=["run", "run.py"]), zot("fetched")
    script = zot_folders.PRELUDE.replace("python3 -I -S", "npx --yes tsx", 1) + zot_folders.ECHO
    plugin_folders.write(os.path.join(by_line, "run.py"), script, 0o755)
    async with host(by_name, by_line) as h:
        for name in ("built", "fetched"):
            assert (await h.call(name)).text == "{}", problems(h)


@pytest.mark.requirement("ZOT-09")
async def test_it_runs_in_its_own_folder_with_the_users_environment_less_secrets(zot, host, monkeypatch):
    monkeypatch.setenv("FAVOURITE", "blue")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-012345678901234567890123")
    folder = zot(
        "where",
        answering("say(frame, json.dumps([os.getcwd(), os.environ.get('FAVOURITE'), 'OPENAI_API_KEY' in os.environ]))"),
    )
    async with host(folder) as h:
        assert json.loads((await h.call("act")).text) == [folder, "blue", False]


@pytest.mark.requirement("ZOT-57")
async def test_what_extensions_usually_need_is_asked_for_and_opens_it(zot, host, root, tmp_path):
    notes = plugin_folders.write(str(tmp_path / "user" / "notes.txt"), "milk")
    made = str(tmp_path / "work" / "made.txt")
    does = f"import subprocess; open({made!r}, 'w').write(open({notes!r}).read())"
    runs = "say(frame, subprocess.run(['git', '--version'], capture_output=True, text=True).stdout)"
    zot("usual", answering(does, runs))
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("usual").plugin
        asked = ("filesystem:read", "filesystem:write:.", "network", "shell:exec")
        assert set(asked) <= set(plugin.permissions)
        await h.approve(plugin, always=True)
        assert (await h.call("act")).text.startswith("git version")
    with open(made, encoding="utf-8") as file:
        assert file.read() == "milk"


@pytest.mark.requirement("ZOT-07")
@pytest.mark.parametrize("explicit", [True, False])
async def test_enabled_false_switches_it_off_also_when_the_person_names_it(explicit, zot, host, root):
    folder = zot("echo", enabled=False)
    async with host(*([folder] if explicit else []), roots=() if explicit else (root,)) as h:
        (entry,) = h.plugins
        assert entry.state == "disabled"
        assert "extension.json" in entry.standing.reason
        assert (h.tools, h.peers.places) == ([], [])
    assert heard(folder) == []


# The handshake


@pytest.mark.requirement("ZOT-12")
async def test_the_ack_goes_out_at_once_and_nothing_before_it(zot, host, home, tmp_path):
    script = (
        "time.sleep(0.1)\nhello()\nfirst = json.loads(sys.stdin.readline())\n"
        "json.dump(first, open('first.txt', 'w'))\n"  # it registers only when it has the ack
        'tool("act", description=first["type"])\nemit("ready")\n' + LOOP
    )
    folder = zot("polite", script)
    async with host(folder) as h:
        assert [tool.description for tool in h.tools] == ["hello_ack"]
    with open(os.path.join(folder, "first.txt"), encoding="utf-8") as file:
        ack = json.load(file)
    assert ack == {
        "type": "hello_ack",
        "protocol_version": 1,
        "zot_version": ack["zot_version"],
        "provider": "",
        "model": "",
        "cwd": str(tmp_path / "work"),
        "extension_dir": folder,
        "data_dir": folder,
        "capabilities": ["call_tool"],
    }
    assert ack["zot_version"][0].isdigit()


@pytest.mark.requirement("ZOT-21")
async def test_registrations_before_the_ack_and_before_ready_count(zot, host):
    folder = zot("eager", 'hello(); tool("one"); sys.stdin.readline(); tool("two"); emit("ready")' + LOOP)
    async with host(folder) as h:
        assert [tool.name for tool in h.tools] == ["one", "two"]


@pytest.mark.requirement("ZOT-22")
async def test_a_tool_registered_long_after_ready_appears_and_can_be_called(zot, host):
    script = QUICK + (
        "def later():\n    time.sleep(0.4)\n    tool('late')\n    command('late')\n"
        "threading.Thread(target=later).start()\n"
        "for frame in heard():\n    if frame['type'] == 'tool_call': say(frame, frame['name'])\n"
    )
    changes = []
    async with host(zot("slow", script)) as h:
        h.listen(lambda notice: changes.append(type(notice).__name__))
        await until(lambda: len(h.tools) == 2 and h.commands)
        assert (await h.call("late")).text == "late"
    assert "SnapshotChanged" in changes


@pytest.mark.requirement("ZOT-21")
async def test_without_ready_it_is_waited_for_until_it_is_quiet(zot, host):
    script = 'hello()\nfor n in range(4):\n    time.sleep(0.15)\n    tool(f"t{n}")\n' + LOOP
    async with host(zot("wordy", script)) as h:
        assert [tool.name for tool in h.tools] == ["t0", "t1", "t2", "t3"]


@pytest.mark.requirement("ZOT-21")
async def test_after_ready_nothing_more_is_waited_for(zot, host, monkeypatch):
    for name in ("IDLE_READY_S", "READY_S"):
        monkeypatch.setattr(extension, name, 600.0)
    with anyio.fail_after(30):
        async with host(zot("quick", QUICK + LOOP), zot("silent", 'hello(); emit("ready")' + LOOP)) as h:
            assert [tool.name for tool in h.tools] == ["act"]


async def test_one_that_is_quiet_before_its_first_registration_is_not_taken_as_ready(zot, host):
    async with host(zot("slow", 'hello()\ntime.sleep(0.8)\ntool("act")\ntool("other")\n' + LOOP)) as h:
        assert [tool.name for tool in h.tools] == ["act", "other"]


async def test_a_name_that_a_slow_one_may_yet_register_is_waited_for(zot, host):
    script = (
        'hello()\ntool("act")\ntime.sleep(0.8)\ntool("late"), command("late")\n'
        "for frame in heard():\n    if frame['type'] == 'tool_call': say(frame, frame['name'])\n"
        "    if frame['type'] == 'command_invoked': emit('command_response', id=frame['id'], action='noop')\n"
    )
    async with host(zot("slow", script)) as h:
        assert [tool.name for tool in h.tools] == ["act"]
        assert (await h.call("late")).text == "late"
        assert (await h.run_command("/late")).error is None
    async with host(zot("slow", script)) as h:
        assert (await h.run_command("/LATE")).error is None
        assert (await h.call("nobody")).error.code == "not_found"  # after the time that all have


@pytest.mark.requirement("ZOT-08")
async def test_another_name_in_hello_is_a_warning_and_the_manifests_counts(zot, host):
    folder = zot("given", 'hello(name="chosen"); tool("act"); emit("ready")' + LOOP)
    async with host(folder) as h:
        assert [tool.plugin for tool in h.tools] == ["given"]
        assert problems(h) == ["given: its hello says 'chosen', but its manifest says 'given'"]


@pytest.mark.requirement("ZOT-11")
@pytest.mark.parametrize(
    "first",
    [
        'emit("hello")',
        'emit("hello", name="")',
        'emit("hello", name=5)',
        'emit("hello", name="bad", capabilities="tools")',
        'emit("ready")',
        "print('{}', flush=True)",
    ],
)
async def test_a_first_frame_that_is_no_hello_ends_it_with_the_reason(first, zot, host):
    folder = zot("bad", f"{first}\nhello()\ntool('act')\nemit('ready')" + LOOP)
    async with host(folder) as h:
        assert h.tools == []
        assert "before it sent a hello" in problems(h)[0]
        assert "hello" in problems(h)[0].partition("before it sent a hello: ")[2] or "frame" in problems(h)[0]
    assert heard(folder, "hello_ack") == []


async def test_lines_that_are_no_json_before_hello_are_survived_and_counted(zot, host):
    async with host(zot("chatty", "print('npm WARN deprecated')\nprint()\n" + zot_folders.ECHO)) as h:
        assert (await h.call("chatty")).text == "{}"
        assert h.peers.up[0].session.counts.malformed == 2
        assert "wrote something else before its hello, which is an error in zot" in problems(h)[0]


async def test_keys_in_any_order_and_case_unknown_fields_and_null_are_understood(zot, host):
    script = (
        'print(\'{"NAME": "odd", "Capabilities": null, "TYPE": "hello"}\', flush=True)\n'
        'print(\'{"future": [1], "Name": "act", "schema": null, "type": "register_tool"}\', flush=True)\n'
        "emit('invented', id='1')\nemit('ready', why='done')\n"
        "for frame in heard():\n    if frame['type'] == 'tool_call':\n"
        "        print(json.dumps({'CONTENT': [{'type': 'text', 'text': 'ok'}], 'Is_Error': None, 'ID': frame['id'],"
        " 'type': 'tool_result', 'activate_tools': ['x']}), flush=True)\n"
    )
    async with host(zot("odd", script)) as h:
        assert (await h.call("act")).text == "ok"
        session = h.peers.up[0].session
        assert dict(session.counts.frames) == {"hello": 1, "register_tool": 1, "ready": 1, "tool_result": 1}
        assert session.counts.malformed == 1  # the invented one


async def test_panels_and_blocks_may_have_odd_keys_and_nulls_too(zot, host):
    panel = "{'ID': 'p', 'Title': None, 'LINES': ['a'], 'footer': None}"
    script = (
        "hello()\ncommand('show')\ntool('act')\nemit('ready')\nfor frame in heard():\n"
        "    if frame['type'] == 'command_invoked':\n"
        f"        emit('command_response', id=frame['id'], action='open_panel', open_panel={panel})\n"
        "    elif frame['type'] == 'tool_call':\n"
        "        emit('tool_result', id=frame['id'], content=[{'Type': 'text', 'Text': 'ok'}])\n"
    )
    async with host(zot("odd", script)) as h:
        outcome = await h.run_command("/show")
        assert (outcome.error, outcome.panel.lines, outcome.panel.title) == (None, ("a",), "odd")
        assert (await h.call("act")).text == "ok"


DEEP = "json.loads('[' * {0} + ']' * {0})"


async def test_arguments_that_are_nested_too_deeply_are_refused_whoever_hears_of_them(zot, host):
    watching = "hello()\nemit('subscribe', events=['tool_call'])\nemit('ready')\nfor frame in heard(): pass\n"
    async with host(zot(), zot("watcher", watching)) as h:
        for levels in (130, 400, 960, 975, 979, 980, 981, 982, 983, 984, 990, 1500):
            value = 1
            for _ in range(levels):
                value = [value]
            result = await h.call("echo", {"x": value})
            assert result.error.code == "invalid_arguments", levels
            assert "nested more than 128 levels deep" in result.text, levels
            assert not (await h.call("echo", {"x": [[1]]})).is_error, levels


@pytest.mark.parametrize("levels", [200, 400, 960, 980, 990])
async def test_no_depth_that_an_extension_sends_ends_the_host(levels, zot, host, monkeypatch, settings):
    monkeypatch.setenv("MY_API_TOKEN", "a-secret-of-mine")
    deep = DEEP.format(levels)
    script = (
        f"hello('call_tool')\ntool('odd', schema={{'type': 'object', 'properties': {{'a': {deep}}}}})\ntool('act')\n"
        f"emit('ready')\nemit('call_tool', id='1', name='echo', args={{'x': {deep}}})\n"
        "for frame in heard():\n    if frame['type'] == 'tool_call':\n"
        f"        emit('tool_result', id=frame['id'], content=[{{'type': {deep}}}], structured_content={deep})\n"
    )
    folder = zot("deep", script)
    async with host(folder, zot()) as h:
        result = await h.call("act")
        assert result.error.code in {"bad_output", "timed_out"}, result
        assert not (await h.call("echo")).is_error
        assert [tool.name for tool in h.tools] == ["act", "echo"]


@pytest.mark.requirement("ZOT-44")
async def test_a_timeout_says_that_the_answer_may_have_been_no_frame(zot, host, settings):
    settings("[plugins.pretty]\ntimeout_s = 0.5\n")
    pretty = "print(json.dumps({'type': 'tool_result', 'id': frame['id'], 'content': []}, indent=1), flush=True)"
    async with host(zot("pretty", answering(pretty))) as h:
        error = (await h.call("act")).error
    assert (error.code, "; it wrote 5 lines that are not frames" in error.message) == ("timed_out", True)
    assert error.hint.startswith("its answer may be among them: `anyplug --plugin ")
    assert "logs pretty`" in error.hint


async def test_notes_of_a_command_are_bounded_in_all(zot, host):
    lines = "for _ in range(20): emit('notify', message='x' * 200_000)\n        "
    async with host(zot("chatty", responding({"action": "noop"}, lines))) as h:
        outcome = await h.run_command("/go")
    assert sum(len(note.message) for note in outcome.notes) < 1_100_000
    assert outcome.notes[-1].message == "further notes are not shown"


async def test_a_first_frame_with_an_endless_type_is_quoted_in_short(zot, host):
    async with host(zot("endless", "emit('x' * 3_000_000)\ntime.sleep(600)")) as h:
        assert max(map(len, problems(h))) < 500


async def test_a_name_without_an_end_is_cut_and_compared_with_none(zot, host):
    async with host(zot()) as h:
        result = await h.call("x" * 3_000_000)
        (kept,) = h.audit.calls()
    assert (result.error.code, len(result.text) < 500, len(kept.record.tool)) == ("not_found", True, 200)


async def test_a_program_in_the_folder_that_is_named_as_if_it_were_on_the_path(zot, host):
    async with host(zot("bare", zot_folders.ECHO, exec="run.py")) as h:
        said = h.snapshot.plugin("bare").problems
    assert (
        "exec 'run.py' is looked up in the PATH, not in the folder",
        'write "./run.py" for a program in the folder',
    ) in [(problem.message, problem.hint) for problem in said]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"exec": "/home/ada/tools/prog"}, ["/home/ada/tools/prog"]),
        ({"exec": "/home/ada/tools/ship"}, ["/home/ada/tools/ship"]),  # begins as a shell does, and is none
        ({"exec": "../shared/run.sh"}, ["{above}/shared/run.sh"]),
        ({"exec": "python3", "args": ["-u", "/home/ada/main.py"]}, ["/home/ada/main.py"]),
        ({"exec": "python3", "args": ["./main.py", "../lib.py"]}, ["{above}/lib.py"]),
        ({"exec": "/opt/python/bin/python3.12", "args": ["main.py", "https://example.org/a.py"]}, []),
        ({"exec": "/usr/bin/prog", "args": ["/etc/some.conf"]}, []),
        ({"exec": "{above}/foreign/run.py"}, []),
    ],
)
async def test_code_outside_of_the_folder_is_named(fields, named, zot, host, root):
    filled = json.loads(json.dumps(fields).replace("{above}", root))
    zot("foreign", **filled)
    async with host(roots=(root,)) as h:
        problems = [problem for problem in h.plugins[0].problems if problem.code == "not_covered"]
    runs = [f"it runs {path}, which the digest does not cover" for path in named]
    assert [problem.message for problem in problems] == [text.replace("{above}", root) for text in runs]


async def test_a_program_with_its_arguments_in_one_is_told_where_they_belong(zot, host):
    async with host(zot("words", zot_folders.ECHO, exec="python3 run.py")) as h:
        assert 'move the words after it to "args"' in problems(h)[0]


async def test_a_slash_command_runs_with_the_rights_that_the_plugin_has_now(zot, host, root, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "a-secret-of-mine")
    shown = "frame['id'], action='display', display=str('MY_API_TOKEN' in os.environ)"
    zot("keyed", responding({"action": "noop"}, f"emit('command_response', id={shown})"))
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("keyed").plugin
        await h.approve(plugin, granted=(*plugin.permissions, "env:MY_API_TOKEN"), always=True)
        assert (await h.run_command("/go")).display == "True"
        approvals = h.catalog.approvals
        approvals.regrant(plugin, approvals.of(plugin), plugin.permissions)
        assert (await h.run_command("/go")).display == "False"


async def test_what_could_not_be_understood_stands_in_its_log(zot, host, home):
    script = (
        QUICK
        + "emit('invented')\nprint('Loading \\x1b[1mmodels' + '.' * 100, flush=True)\nprint(flush=True)\n"
        + "print('[1]', flush=True)\nsys.stderr.write('on my own account\\n')"
        + LOOP
    )
    async with host(zot("odd", script)) as h:
        await until(lambda: h.peers.up[0].session.counts.malformed == 4)
    log = (home / "logs" / "odd.log").read_text()
    for said in (
        "starting odd 1.0.0",
        'unknown frame type "invented"',
        "malformed JSON: ",
        "'Loading \\x1b[1mmodels......",
        "…\n",
        "an empty line",
        "a frame must be a JSON object: '[1]'",
        "on my own account",
    ):
        assert said in log


# Tools


BLOCKS = (
    ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], (Text("a"), Text("b"))),
    ([{"type": "text", "text": ""}, {"type": "text"}], (Text("(extension returned no content)"),)),
    ([], (Text("(extension returned no content)"),)),
    ([{"type": "video", "data": "x"}], (Text('[unknown block type "video" from extension blocks]'),)),
    ([{}], (Text('[unknown block type "None" from extension blocks]'),)),
    ([{"type": "image", "mime_type": "image/gif", "data": "R0lG"}], (Image("image/gif", "R0lG"),)),
    ([{"type": "image", "data": ""}], (Image("image/png", ""),)),
    ([{"type": "image", "data": "R0lG\nR0lG\r\n"}], (Image("image/png", "R0lGR0lG"),)),  # as `base64` writes it
    ([{"type": "text", "text": "# a", "format": "markdown"}], (Text("# a"),)),
)  # what an extension sends, and what a caller gets


@pytest.mark.requirement("ZOT-23")
async def test_the_blocks_of_a_result(zot, host):
    async with host(zot("blocks", answering("emit('tool_result', id=frame['id'], **frame['args'])"))) as h:
        for content, expected in BLOCKS:
            result = await h.call("act", {"content": content})
            assert (result.content, result.is_error, result.error) == (expected, False, None), content


async def test_an_image_that_cannot_be_decoded_is_bad_output(zot, host):
    async with host(zot("blocks", answering("emit('tool_result', id=frame['id'], **frame['args'])"))) as h:
        for data in ("not base64!", "abc", 7):
            content = [{"type": "text", "text": "a"}, {"type": "image", "data": data}]
            error = (await h.call("act", {"content": content})).error
            assert error.code == "bad_output", data
            assert error.message == "extension blocks/act returned undecodable image", data


@pytest.mark.requirement("ZOT-23")
async def test_a_large_image_arrives_whole(zot, host):
    data = base64.b64encode(os.urandom(1_500_000)).decode()
    lines = "emit('tool_result', id=frame['id'], content=[{'type': 'image', 'data': frame['args']['data']}])"
    async with host(zot("blocks", answering(lines))) as h:
        assert (await h.call("act", {"data": data})).content == (Image("image/png", data),)


async def test_the_last_words_of_one_that_dies_begin_at_the_beginning_of_a_line(zot, host):
    lines = "sys.stderr.write(''.join(f'line {n} of many\\n' for n in range(100))); sys.stderr.flush(); os._exit(3)"
    async with host(zot("dies", answering(lines))) as h:
        said = (await h.call("act")).error.message.partition("it exited with 3: ")[2].splitlines()
    assert len(said) > 5
    assert all(line.startswith("line ") for line in said)


@pytest.mark.requirement("ZOT-24", "ZOT-56")
async def test_is_error_and_structured_content_are_passed_on(zot, host):
    async with host(zot("both", answering("say(frame, 'no luck', is_error=True, structured_content={'n': [1]})"))) as h:
        result = await h.call("act")
    assert (result.is_error, result.error.code, result.error.message) == (True, "tool_error", "no luck")
    assert result.structured == {"n": [1]}
    assert (result.tool, result.plugin, result.format) == ("act", "both", "zot")


@pytest.mark.requirement("ZOT-19", "ZOT-43")
async def test_args_is_always_an_object_and_a_broken_schema_only_warns(zot, host):
    folder = zot("typed", zot_folders.ECHO.replace("tool(NAME", "tool(schema={'required': ['a']}, name=NAME"))
    async with host(folder) as h:
        result = await h.call("typed")
    assert result.text == "{}"
    assert len(result.metadata["warnings"]) == 1
    assert heard(folder, "tool_call")[0].keys() == {"type", "id", "name", "args"}


@pytest.mark.requirement("ZOT-44")
async def test_a_call_has_60_seconds_and_then_fails(zot, host, monkeypatch):
    folder = zot("quiet", QUICK + LOOP)
    async with host(folder) as h:
        assert h.tools[0].timeout_s == 60
    monkeypatch.setattr(format, "TIMEOUT_S", 0.5)
    async with host(folder) as h:
        error = (await h.call("act")).error
    assert (error.code, error.message) == ("timed_out", "timeout waiting for quiet/act after 0.5s")


@pytest.mark.requirement("ZOT-44")
async def test_a_timeout_is_passed_on_as_tool_cancel_only_where_that_was_advertised(zot, host, settings):
    settings("[plugins.knows]\ntimeout_s = 0.2\n[plugins.simple]\ntimeout_s = 0.2\n")
    quiet = answering("if 'ping' in frame['args']: say(frame, 'pong')")
    knows = zot("knows", quiet.replace("hello()", "hello('tool_cancel')").replace('"act"', '"knows"'))
    simple = zot("simple", quiet.replace('"act"', '"simple"'))
    async with host(knows, simple) as h:
        for name in ("knows", "simple"):
            result = await h.call(name)
            assert (result.error.code, "settings.toml" in result.error.hint) == ("timed_out", True)
            assert (await h.call(name, {"ping": 1})).text == "pong"
        assert all(extension.active == {} for extension in h.peers.up)
    (cancel,) = heard(knows, "tool_cancel")
    assert cancel == {"type": "tool_cancel", "id": heard(knows, "tool_call")[0]["id"]}
    assert heard(simple, "tool_cancel") == []


async def test_a_cancelled_call_is_passed_on_and_a_late_answer_is_nobodys(zot, host):
    folder = zot(
        "cancels",
        "hello('tool_cancel')\ntool('act')\nemit('ready')\nfor frame in heard():\n"
        "    if frame['type'] == 'tool_cancel': say(frame, 'too late')\n"
        "    if frame['type'] == 'tool_call' and frame['args']: say(frame, 'in time')\n",
    )
    async with host(folder) as h:
        with anyio.move_on_after(0.2):
            await h.call("act")
        assert (await h.call("act", {"n": 1})).text == "in time"
        session = h.peers.up[0].session
        assert (session.is_asked, h.peers.up[0].active) == (False, {})
    assert heard(folder, "tool_cancel")[0]["id"] == heard(folder, "tool_call")[0]["id"]


async def test_an_interactive_tool_has_no_time_limit(zot, host, settings):
    settings("[plugins.patient]\ntimeout_s = 0.1\n")
    script = answering("time.sleep(0.5)", "say(frame, 'at last')").replace(
        'tool("act")', 'tool("act", interactive=True)'
    )
    async with host(zot("patient", script)) as h:
        assert (await h.call("act")).text == "at last"


async def test_an_interactive_tool_ends_with_its_extension(zot, host):
    script = answering("os._exit(3)").replace('tool("act")', 'tool("act", interactive=True)')
    async with host(zot("patient", script)) as h:
        result = await h.call("act")
    assert (result.error.code, result.metadata["exit_code"]) == ("unavailable", 3)


@pytest.mark.requirement("ZOT-17")
async def test_many_calls_in_flight_are_answered_in_any_order(zot, host):
    script = (
        QUICK + "calls = []\nfor frame in heard():\n    if frame['type'] == 'tool_call': calls.append(frame)\n"
        "    if len(calls) == 32:\n        for call in reversed(calls): say(call, str(call['args']['n']))\n"
    )
    folder, results = zot("reverse", script), {}

    async def call(n):
        results[n] = (await h.call("act", {"n": n})).text

    async with host(folder) as h, anyio.create_task_group() as tasks:
        for n in range(32):
            tasks.start_soon(call, n)
    assert results == {n: str(n) for n in range(32)}
    assert len({frame["id"] for frame in heard(folder, "tool_call")}) == 32


async def test_a_malformed_result_fails_its_call_at_once_and_the_next_one_works(zot, host):
    async with host(zot("mangled", answering("emit('tool_result', id=frame['id'], **frame['args'])"))) as h:
        for fields in ({"content": "text"}, {"content": ["text"]}, {"is_error": "yes"}, {"content": {"type": "text"}}):
            with anyio.fail_after(PATIENCE_S):
                result = await h.call("act", fields)
            assert result.error.code == "bad_output", fields
            assert "bad tool_result frame" in result.error.message, fields
            assert (await h.call("act")).text == "(extension returned no content)", fields


async def test_answers_to_what_nobody_asked_are_ignored(zot, host):
    stray = "emit('tool_result', id=frame['args']['id'], content=[])"
    async with host(zot("stray", answering(stray, "say(frame, 'right')", "say(frame, 'again')"))) as h:
        for id in (7, None, {}, "", "unknown"):
            assert (await h.call("act", {"id": id})).text == "right", id
            assert (await h.call("act", {"id": id})).text == "right", id


async def test_a_result_that_comes_as_the_answer_to_a_command_is_nobodys(zot, host):
    script = responding(
        {"action": "noop"}, extra="say(frame, 'I am a tool'); emit('tool_result', id=frame['id'], content=7)"
    )
    async with host(zot("mixed", script)) as h:
        outcome = await h.run_command("/go")
    assert (outcome.action, outcome.error) == ("noop", None)


# Commands


@pytest.mark.requirement("ZOT-36")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"action": "prompt", "prompt": "Greet me.", "display": "not this"}, ("prompt", "Greet me.", "", "")),
        ({"action": "insert", "insert": "git "}, ("insert", "", "git ", "")),
        ({"action": "display", "display": "done"}, ("display", "", "", "done")),
        ({"action": "noop", "prompt": "not this"}, ("noop", "", "", "")),
        ({}, ("noop", "", "", "")),
        ({"action": "open_panel"}, ("open_panel", "", "", "")),
    ],
)
async def test_the_actions_of_a_command(fields, expected, zot, host):
    async with host(zot("acts", responding(fields))) as h:
        outcome = await h.run_command("/go")
        assert [command.name for command in h.commands] == ["go"]
    assert (outcome.action, outcome.prompt, outcome.insert, outcome.display) == expected
    assert (outcome.command, outcome.plugin, outcome.error, outcome.panel) == ("/go", "acts", None, None)


@pytest.mark.requirement("ZOT-37")
async def test_an_error_stands_above_every_action(zot, host):
    async with host(zot("acts", responding({"action": "prompt", "prompt": "x", "error": "no key"}))) as h:
        outcome = await h.run_command("/go")
    assert (outcome.error.code, outcome.error.message) == ("tool_error", "extension /go: no key")
    assert (outcome.action, outcome.prompt) == ("noop", "")


@pytest.mark.parametrize(
    ("action", "hint"),
    [("explode", "fix the extension")],
)
async def test_an_unknown_action_is_bad_output(action, hint, zot, host):
    async with host(zot("acts", responding({"action": action}))) as h:
        outcome = await h.run_command("/go")
    assert outcome.error == Failure("bad_output", f"extension /go: unknown action {action}", hint)


async def test_a_malformed_answer_fails_the_command_at_once(zot, host):
    async with host(zot("acts", responding({"action": 5}))) as h:
        outcome = await h.run_command("/go")
    assert outcome.error.code == "bad_output"


@pytest.mark.requirement("ZOT-42")
async def test_args_are_trimmed_keep_inner_space_and_are_left_out_when_empty(zot, host):
    folder = zot("acts", responding({}))
    async with host(folder) as h:
        for line in ("/go", "go", "/go   ", "/go  a   b  ", "/go\ttab", "/go a\tb\n c", "/go caf\u00e9 \udcff"):
            assert (await h.run_command(line)).error is None
    told = [frame.get("args") for frame in heard(folder, "command_invoked")]
    assert told == [None, None, None, "a   b", "tab", "a\tb\n c", "café \\udcff"]


async def test_names_are_found_in_any_case_and_sent_as_they_were_registered(zot, host):
    folder = zot("acts", responding({"action": "display", "display": "pong"}).replace('"go"', '"Ping"'))
    async with host(folder) as h:
        assert (await h.run_command("/pINg")).display == "pong"
    assert heard(folder, "command_invoked")[0]["name"] == "Ping"


@pytest.mark.requirement("ZOT-13")
async def test_a_name_of_zots_or_of_another_extension_is_shadowed_and_shown(zot, host):
    first = zot("first", 'hello(); command("Help"); command("go"); command("GO"); tool("bash"); emit("ready")' + LOOP)
    second = zot("second", 'hello(); command("gO"); command("own"); tool("read"); emit("ready")' + LOOP)
    async with host(first, second) as h:
        assert sorted((command.name, command.plugin) for command in h.commands) == [("go", "first"), ("own", "second")]
        assert h.tools == []
        said = "\n".join(problems(h))
    for text in (
        "'/Help' of plugin 'first' is shadowed: the name belongs to a built-in command of zot",
        "it registered the command '/GO' twice",
        "'/gO' of plugin 'second' is shadowed: the name belongs to plugin 'first'",
        "the tool 'bash' is not listed: the name belongs to a built-in tool of zot",
    ):
        assert text in said


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        (
            "first/nothing",
            "plugin 'first' has no such tool",
            "`host.tools` lists all tools",
        ),
        (
            "first/mcp.one",
            "plugin 'first': the tool 'mcp.one' is left out: the name belongs to a reserved prefix, 'mcp.'",
            "rename the tool; the plugin's other tools work",
        ),
        ("off/nothing", "plugin 'off' is disabled", 'set "enabled" to true in {root}/off/extension.json'),
        (
            "other/nothing",
            "plugin 'other' is not approved yet",
            (
                '`await host.approve("other")` approves it, once a person has seen what it asks for; or in a terminal: '
                "`anyplug show other`, then `anyplug approve other`"
            ),
        ),
    ],
)
async def test_a_tool_that_a_plugin_that_was_named_does_not_have_is_answered_for_by_that_one(
    name, message, hint, zot, host, root
):
    first = zot("first", 'hello(); tool("what_nobody_can_mean"); tool("mcp.one"); emit("ready")' + LOOP)
    zot("other")
    async with host(first, zot("off", enabled=False), roots=(root,)) as h:
        error = (await h.call(name)).error
    assert error.message == f"no tool is named '{name}': {message}"
    assert error.hint == hint.replace("{root}", root)


@pytest.mark.requirement("ZOT-20")
async def test_a_tool_whose_name_is_reserved_is_not_listed_and_can_be_called_with_its_plugins(zot, host):
    script = answering("say(frame, frame['name'])", up='hello()\ntool("bash")\ntool("bash")\nemit("ready")\n')
    guard = "if frame['type'] == 'event_intercept': emit('event_intercept_response', id=frame['id'], block=True)"
    up = "hello()\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\n"
    async with host(zot("mine", script)) as h:
        assert h.tools == []
        assert (await h.call("bash")).error.code == "not_found"
        assert (await h.call("mine/bash")).text == "bash"
    guarding = zot("guard", f"{up}for frame in heard():\n    {guard}\n")
    async with host(zot("also", script), guarding) as h:
        assert (await h.call("also/bash")).error.code == "denied"
    assert heard(guarding, "event_intercept")[0]["tool_name"] == "bash"  # who guards a name guards all who have it


async def test_of_a_flood_of_notes_a_command_brings_as_many_as_a_person_would_read(zot, host):
    flood = "[emit('notify', message=str(number)) for number in range(3000)]"
    async with host(zot("acts", responding({"action": "display", "display": "done"}, flood))) as h:
        outcome = await h.run_command("/go")
    assert outcome.display == "done"
    assert [note.message for note in outcome.notes[-2:]] == ["999", "further notes are not shown"]


async def test_a_command_that_nobody_has_is_not_found_with_a_hint(zot, host):
    async with host(zot("acts", responding({}))) as h:
        outcome = await h.run_command("/goo")
    assert (outcome.error.code, outcome.error.hint) == ("not_found", "did you mean /go?")


async def test_commands_are_recorded(zot, host):
    async with host(zot("acts", responding({"error": "no"}))) as h:
        await h.run_command("/go secret words")
        record = list(h._audit.calls())[-1].record
    assert (record.tool, record.plugin, record.outcome, record.verdict) == ("/go", "acts", "tool_error", "allowed")


async def test_a_cancelled_command_is_recorded_and_nobody_waits_for_it(zot, host):
    async with host(zot("acts", 'hello(); command("go"); emit("ready")' + LOOP)) as h:
        with anyio.move_on_after(0.2):
            await h.run_command("/go")
        assert list(h._audit.calls())[-1].record.outcome == "cancelled"
        assert not h.peers.up[0].session.is_asked


# What extensions say on their own account


@pytest.mark.requirement("ZOT-41")
async def test_notes_and_texts_reach_whoever_listens(zot, host):
    said = (
        "emit('notify', level='warn', message='mind'); emit('notify', message='plain'); emit('notify', message='');"
        "emit('notify', level='success', message='there'); emit('notify', level='error', message='lost');"
        "emit('clear_notes'); emit('submit', text='  do it '); emit('submit', text=' ');"
        "emit('submit_slash', text='/model'); emit('submit_slash', text='model')"
    )
    notices = []
    async with host(zot("talks", responding({}, extra=said))) as h:
        stop = h.listen(notices.append)
        outcome = await h.run_command("/go")
        assert [note.message for note in outcome.notes] == ["mind", "plain", "there", "lost"]
        expected = [
            Note("talks", "warn", "mind"),
            Note("talks", "info", "plain"),
            Note("talks", "success", "there"),
            Note("talks", "error", "lost"),
            NotesCleared("talks"),
            Submitted("talks", "do it"),
            SlashSubmitted("talks", "/model"),
        ]
        assert [notice for notice in notices if type(notice).__name__ != "SnapshotChanged"] == expected
        stop()
        await h.run_command("/go")
    assert len([notice for notice in notices if isinstance(notice, Note)]) == 4


async def test_a_listener_that_fails_disturbs_nobody(zot, host):
    heard_by_other = []

    def fail(notice):
        raise RuntimeError("not my day")

    async with host(zot("talks", responding({}, extra="emit('notify', message='hi')"))) as h:
        import asyncio  # only here

        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        h.listen(fail)
        h.listen(heard_by_other.append)
        assert (await h.run_command("/go")).error is None
        asyncio.get_running_loop().set_exception_handler(None)
    assert Note("talks", "info", "hi") in heard_by_other
    assert complaints


SPEAKS_UP = """
hello()
emit('notify', message='hello there')
emit('submit', text='do this')
emit('open_panel', panel={'id': 'p', 'title': 'Todos', 'lines': ['a']})
tool('act')
emit('ready')
"""


async def test_what_is_said_at_start_reaches_who_listens_before_and_soon_after_and_else_the_log(zot, host):
    before, after, log = [], [], ""
    folder = zot("talks", SPEAKS_UP + LOOP)
    unentered = host(folder)
    stop = unentered.listen(before.append)
    async with unentered as h:
        await until(lambda: any(isinstance(notice, PanelChanged) for notice in before))
        stop()
    async with host(folder) as h:
        await until(lambda: h.panels.open)
        deaf = h.listen(lambda _: False)
        h.listen(after.append)
        deaf()
        (entry,) = h.plugins
        with open(h.catalog.home.log(entry.plugin), encoding="utf-8") as file:
            log = file.read()
    for heard_of in (before, after):
        said = [notice for notice in heard_of if type(notice).__name__ != "SnapshotChanged"]
        assert said[:2] == [Note("talks", "info", "hello there"), Submitted("talks", "do this")]
        assert isinstance(said[2], PanelChanged)
    assert "nobody heard its note (info):\n    hello there" in log
    assert "nobody heard what it submitted:\n    do this" in log
    assert "nobody saw its panel:\n    Todos" in log
    assert log.count("nobody") == 3  # of the run in which nobody listened


# As `tsx` does: a server in the temporary folder, to which the process that runs the script connects.
RUNNER = """#!/usr/bin/env node
const fs = require("node:fs"), net = require("node:net"), os = require("node:os"), path = require("node:path");
const { spawn } = require("node:child_process");
const folder = path.join(os.tmpdir(), "runner-" + os.userInfo().uid), pipe = path.join(folder, process.pid + ".pipe");
fs.mkdirSync(folder, { recursive: true });
const server = net.createServer();
server.listen(pipe, () => {
  const main = "const s = require('net').connect(process.env.PIPE, () => require(process.env.MAIN)); s.unref();";
  const env = { ...process.env, PIPE: pipe, MAIN: path.resolve("main.js") };
  spawn(process.execPath, ["-e", main], { stdio: "inherit", env }).on("exit", (code) => process.exit(code));
});
"""
MAIN = """
const emit = (frame) => process.stdout.write(JSON.stringify(frame) + "\\n");
emit({ type: "hello", name: "pad" });
emit({ type: "register_tool", name: "act", description: "Does it.", schema: { type: "object" } });
emit({ type: "ready" });
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const frame = JSON.parse(line);
  if (frame.type === "shutdown") process.exit(0);
  const content = [{ type: "text", text: "kept" }];
  if (frame.type === "tool_call") emit({ type: "tool_result", id: frame.id, content });
});
"""


async def test_a_runner_that_talks_to_its_script_by_a_socket_needs_no_grant_for_it(zot, host, root):
    folder = zot("pad", exec="./run.js")
    plugin_folders.write(os.path.join(folder, "run.js"), RUNNER, 0o755)
    plugin_folders.write(os.path.join(folder, "main.js"), MAIN)
    async with host(roots=(root,)) as h:
        plugin = h.snapshot.plugin("pad").plugin
        assert "network:unix" not in plugin.permissions
        await h.approve(plugin, always=True)
        assert (await h.call("act")).text == "kept", problems(h)


HEARS = "hello()\nemit('subscribe', events=['session_start', 'tool_call', 'tool_result', 'session_end'])\nemit('ready')"


async def test_events_say_whose_session_it_is_and_count_and_the_last_one_is_its_end(zot, host):
    hearing = zot("hearing", HEARS + LOOP)
    async with host(zot("echo"), hearing, greeting=Greeting(session_id="talk-7")) as h:
        await h.call("echo")
        h.emit("tool_call", session_id="another", text="of an agent's own")
    events = [frame for frame in heard(hearing) if frame["type"] == "event"]
    assert [frame["event"] for frame in events] == [
        "session_start", "tool_call", "tool_result", "tool_call", "session_end",
    ]  # fmt: skip
    assert [frame["sequence"] for frame in events] == [1, 2, 3, 4, 5]
    assert [frame["session_id"] for frame in events] == ["talk-7", "talk-7", "talk-7", "another", "talk-7"]
    assert events[-1]["reason"] == "shutdown"
    async with host(hearing) as h, host(hearing):
        pass
    made_up = {frame["session_id"] for frame in heard(hearing)[len(events) :] if frame["type"] == "event"}
    assert len(made_up - {"talk-7", "another"}) == 2
    assert all(made_up)


async def test_a_tool_has_one_name_in_events_interceptions_and_results_also_if_another_has_it(zot, host):
    guards = "\nfor frame in heard():\n    if frame['type'] == 'event_intercept':\n"
    guards += "        emit('event_intercept_response', id=frame['id'])\n"
    subscribes = "emit('subscribe', events=['tool_call', 'tool_result'], intercept=['tool_call'])"
    watching = zot("watching", f"hello()\n{subscribes}\nemit('ready')\n{guards}")
    first, second = zot("first", answering("say(frame, 'one')")), zot("second", answering("say(frame, 'two')"))
    asks = (
        "emit('call_tool', id='1', name='second/act', args={}, parent_id=frame['id'])",
        "answer = next(one for one in heard() if one['type'] == 'tool_result')",
        "say(frame, answer['name'] + ' ' + answer['content'][0]['text'])",
    )
    asking = zot("asking", answering(*asks, up="hello('call_tool')\ntool('ask')\nemit('ready')\n"))
    async with host(first, second, watching, asking) as h:
        assert (await h.call("ask")).text == "act two"
        with open(h.catalog.home.log(h.snapshot.plugin("second").plugin), encoding="utf-8") as file:
            log = file.read()
        with open(h.catalog.home.log(h.snapshot.plugin("first").plugin), encoding="utf-8") as file:
            assert "belongs to" not in file.read()
    names = [(frame.get("event"), frame["tool_name"]) for frame in heard(watching) if "tool_name" in frame]
    assert [name for _, name in names] == ["ask", "ask", "act", "act", "act", "ask"], names
    assert next(frame for frame in heard(watching) if frame.get("origin_extension"))["type"] == "event_intercept"
    assert log.count("belongs to plugin 'first'") == 1


DEFERS = """
hello()
tool("find", description="Finds tools.")
tool("rare", deferred=True, namespace="archive", output_schema={"type": "object"})
tool("scripted", exposure="codemode")
tool("odd", exposure="sideways")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call" and frame["name"] == "find":
        say(frame, "found", activate_tools=["rare", "nonsense"])
    elif frame["type"] == "tool_call":
        say(frame, '{"n": 1}')
"""


async def test_a_deferred_tool_is_shown_to_agents_once_a_result_activates_it(zot, host):
    async with host(zot("defers", DEFERS)) as h:
        changes = []
        desk = Handlers(h, View(h.catalog.home))
        desk.changed = lambda: changes.append(1)
        listed = lambda: [tool["name"] for tool in desk.offering.tools if not tool["name"].startswith("builtin")]  # noqa: E731
        assert listed() == ["find"]
        request = Request(attachment=Attachment("mcp", view=desk.view))
        assert (await desk.call("find", {}, request))["content"][0]["text"] == "found"
        assert listed() == ["find", "rare"]
        await desk.call("find", {}, request)
        assert changes == [1]
        shown = next(tool for tool in desk.offering.tools if tool["name"] == "rare")
        assert shown["outputSchema"] == {"type": "object"}
        assert (await desk.call("rare", {}, request))["structuredContent"] == {"n": 1}
        assert (await h.call("scripted")).text == '{"n": 1}'  # not shown, but it can be called
        assert Index(desk.view.tools(h.snapshot), h.snapshot).find("archive", 1)[0].tool.name == "rare"
        assert any("unknown exposure 'sideways'" in message for message in problems(h))


# What is too large


async def test_arguments_that_are_too_large_fail_one_call_and_end_nobody(zot, host):
    hearing = zot("hearing", "hello()\nemit('subscribe', events=['tool_call'])\nemit('ready')" + LOOP)
    async with host(zot("echo"), hearing) as h:
        pids = [peer.session.pid for peer in h.peers.up]
        result = await h.call("echo", {"text": "x" * (17 << 20)})
        assert (result.error.code, "was not asked: a frame of 17,8" in result.error.message) == ("too_large", True)
        assert result.error.hint
        assert (await h.call("echo", {})).text == "{}"
        assert [peer.session.pid for peer in h.peers.up] == pids
    assert len(heard(hearing, "event")) == 1


# Panels

PANEL = """
hello("panels")
command("show")
tool("wait")
emit("ready")
panel = {"id": "main", "title": "Todos", "lines": ["one", "two"], "footer": "esc close"}
pending = None
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="open_panel", open_panel=panel)
    elif frame["type"] == "tool_call":
        pending = frame
        emit("open_panel", panel={"id": "ask", "lines": ["?"]})
    elif frame["type"] == "panel_key":
        if pending and frame.get("text") == "y":
            emit("panel_close", panel_id="ask")
            say(pending, "yes")
        elif frame.get("text") == "q":
            emit("panel_close", panel_id="main")
        elif frame.get("text") == "d":
            os._exit(1)
        else:
            emit("panel_render", panel_id="main", lines=[json.dumps(frame.get("text", frame["key"]))])
    elif frame["type"] == "panel_close":
        emit("panel_render", panel_id="main", title="Too late", lines=[])
        emit("panel_close", panel_id="main")
"""


@pytest.mark.requirement("ZOT-38", "ZOT-39", "ZOT-40")
async def test_a_command_opens_a_panel_that_keys_redraw_and_its_owner_closes(zot, host):
    notices = []
    async with host(zot("todos", PANEL)) as h:
        h.listen(lambda notice: notices.append(notice.panel) if isinstance(notice, PanelChanged) else None)
        outcome = await h.run_command("/show")
        panel = outcome.panel
        assert (panel.id, panel.owner, panel.title) == ("main", "todos", "Todos")
        assert (panel.lines, panel.footer, panel.is_open) == (("one", "two"), "esc close", True)
        assert h.panels.open == [panel]
        h.panels.press(panel, "down")
        await until(lambda: len(notices) == 2)
        assert (notices[1].title, notices[1].lines, notices[1].footer) == ("Todos", ('"down"',), "")
        h.panels.press(panel, "q")
        await until(lambda: h.panels.open == [])
        assert notices[-1].is_open is False
        h.panels.press(panel, "x")  # nobody is there to hear it
    assert notices[-1].is_open is False


@pytest.mark.requirement("ZOT-48")
@pytest.mark.parametrize("key", ["esc", "Escape", "ctrl-c", "ctrl+c", "\x1b", "\x03"])
async def test_the_person_closes_a_panel_and_what_comes_after_is_ignored(key, zot, host):
    folder = zot("todos", PANEL)
    async with host(folder) as h:
        panel = (await h.run_command("/show")).panel
        notices = []
        h.listen(notices.append)
        h.panels.press(panel, key)
        assert h.panels.open == []
        await until(lambda: heard(folder, "panel_close"))
        session = h.peers.up[0].session
        await until(lambda: session.counts.frames["panel_close"] == 1)
        assert [notice.panel.is_open for notice in notices if isinstance(notice, PanelChanged)] == [False]
    assert heard(folder, "panel_close") == [{"type": "panel_close", "panel_id": "main"}]
    assert heard(folder, "panel_key") == []


@pytest.mark.requirement("ZOT-47")
async def test_keys_have_the_guides_names_runes_their_text_and_pasted_text_arrives(zot, host):
    folder = zot("todos", PANEL)
    async with host(folder) as h:
        panel = (await h.run_command("/show")).panel
        for key in ("Up", "ArrowLeft", "return", "PgDn", "del", "f5", "shift-tab", "space", "é"):
            h.panels.press(panel, key)
        h.panels.press(panel, "rune", "7")
        h.panels.paste(panel, "ab\r\n→")
        await until(lambda: len(heard(folder, "panel_key")) == 14)
    told = [(frame["key"], frame.get("text")) for frame in heard(folder, "panel_key")]
    assert told == [
        ("up", None), ("left", None), ("enter", None), ("pagedown", None), ("delete", None), ("unknown", None),
        ("unknown", None), ("rune", " "), ("rune", "é"), ("rune", "7"),
        ("rune", "a"), ("rune", "b"), ("enter", None), ("rune", "→"),
    ]  # fmt: skip


@pytest.mark.requirement("ZOT-47")
async def test_every_key_that_the_guide_names_reaches_a_panel(zot, host):
    keys = ["up", "down", "left", "right", "enter", "tab", "pageup", "pagedown", "home", "end", "backspace", "delete"]
    folder = zot("todos", PANEL)
    async with host(folder) as h:
        panel = (await h.run_command("/show")).panel
        for key in keys:
            h.panels.press(panel, key)
        await until(lambda: len(heard(folder, "panel_key")) == len(keys))
    assert heard(folder, "panel_key") == [{"type": "panel_key", "panel_id": "main", "key": key} for key in keys]


@pytest.mark.requirement("ZOT-47")
async def test_what_a_terminal_sends_for_a_key_is_that_key_and_other_control_characters_are_unknown(zot, host):
    folder = zot("todos", PANEL)
    async with host(folder) as h:
        panel = (await h.run_command("/show")).panel
        for key in ("\r", "\n", "\t", "\x7f", "\b", "\x01", "\xa0"):
            h.panels.press(panel, key)
        h.panels.paste(panel, "a\u2028\n")
        await until(lambda: len(heard(folder, "panel_key")) == 10)
    told = [frame.get("text") or frame["key"] for frame in heard(folder, "panel_key")]
    assert told == ["enter", "enter", "tab", "backspace", "backspace", "unknown", "\xa0", "a", "\u2028", "enter"]


# As zot's SDK does: each key in a thread of its own, and so in any order if they come all at once.
THREADED = """
hello()
command("show")
emit("ready")
typed = []

def take(text):
    time.sleep(0.05 if len(typed) % 2 == 0 else 0)
    typed.append(text)
    emit("panel_render", panel_id="main", lines=["".join(typed)])

for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="open_panel", open_panel={"id": "main"})
    elif frame["type"] == "panel_key":
        threading.Thread(target=take, args=[frame.get("text", frame["key"])]).start()
"""


async def test_pasted_text_arrives_in_order_also_where_each_key_has_a_thread_of_its_own(zot, host, monkeypatch):
    monkeypatch.setattr(panels, "PACE_S", PATIENCE_S)
    async with host(zot("todos", THREADED)) as h:
        panel = (await h.run_command("/show")).panel
        assert h.panels.paste(panel, "buy milk") == ""
        h.panels.press(panel, "!")
        await until(lambda: h.panels.open[0].lines == ("buy milk!",))


async def test_keys_reach_a_panel_that_is_not_redrawn_and_those_before_esc_come_before_the_end(zot, host):
    silent = PANEL.replace('emit("panel_render"', 'dict(said="panel_render"')
    folder = zot("todos", silent)
    async with host(folder) as h:
        panel = (await h.run_command("/show")).panel
        h.panels.paste(panel, "abc")
        await until(lambda: len(heard(folder, "panel_key")) == 3)
        h.panels.paste(panel, "efg")
        h.panels.press(panel, "esc")
        assert h.panels.open == []
        await until(lambda: heard(folder, "panel_close"))
    told = [frame.get("text", frame["type"]) for frame in heard(folder) if frame["type"].startswith("panel")]
    assert told == [*"abcefg", "panel_close"]


async def test_of_what_waits_to_be_sent_to_a_panel_there_is_an_end(zot, host, monkeypatch):
    monkeypatch.setattr(panels, "LONGEST_PASTE", 5)
    async with host(zot("todos", THREADED)) as h:
        panel = (await h.run_command("/show")).panel
        assert h.panels.paste(panel, "abcdefg") == "fg"  # the first is on its way, and four wait
        assert h.panels.paste(panel, "fg") == "g"
        await until(lambda: len("".join(h.panels.open[0].lines)) == 6)


async def test_of_an_extension_with_too_many_panels_the_first_ones_close_and_it_is_told(zot, host):
    script = "[emit('open_panel', panel={'id': f'p{n}'}) for n in range(20)]"
    many = zot("many", answering(script, "say(frame, 'done')"))
    other = zot("todos", PANEL)
    async with host(many, other) as h:
        panel = (await h.run_command("/show")).panel
        await h.call("act")
        assert h.panels.open[0] == panel
        assert [one.id for one in h.panels.open[1:]] == [f"p{n}" for n in range(4, 20)]
        await until(lambda: len(heard(many, "panel_close")) == 4)
    assert [frame["panel_id"] for frame in heard(many, "panel_close")] == ["p0", "p1", "p2", "p3"]


async def test_a_tool_may_open_a_panel_and_answer_when_the_person_has(zot, host):
    async with host(zot("todos", PANEL)) as h:
        results = []

        async def call():
            results.append(await h.call("wait"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: h.panels.open)
            (panel,) = h.panels.open
            assert (panel.id, panel.title, panel.lines) == ("ask", "todos", ("?",))
            h.panels.press(panel, "y")
        assert results[0].text == "yes"
        assert h.panels.open == []


@pytest.mark.parametrize("how", ["dies", "reload", "leave"])
async def test_the_panels_of_an_extension_that_ended_close(how, zot, host):
    closed = []
    async with host(zot("todos", PANEL)) as h:
        panel = (await h.run_command("/show")).panel
        h.listen(lambda notice: closed.append(notice.panel) if isinstance(notice, PanelChanged) else None)
        if how == "dies":
            h.panels.press(panel, "d")
        elif how == "reload":
            await h.reload("todos")
        if how != "leave":
            await until(lambda: h.panels.open == [])
    assert [(one.id, one.is_open) for one in closed] == [("main", False)]


async def test_panels_of_two_extensions_with_one_id_are_two_panels(zot, host):
    one, two = zot("one", PANEL), zot("two", PANEL.replace('"show"', '"other"').replace('"wait"', '"hold"'))
    async with host(one, two) as h:
        first, second = (await h.run_command("/show")).panel, (await h.run_command("/other")).panel
        assert [panel.owner for panel in h.panels.open] == ["one", "two"]
        h.panels.press(second, "q")
        await until(lambda: h.panels.open == [first])
    assert heard(one, "panel_key") == []


# Extensions that call tools

CALLER = """
hello("call_tool")
tool("ask")
tool("relay")
emit("ready")
calls = {}
for frame in heard():
    if frame["type"] == "tool_call":
        number = "c" + frame["id"]
        calls[number] = frame
        emit("call_tool", **({"id": number, "parent_id": frame["id"]} | frame["args"]))
    elif frame["type"] == "tool_result" and frame["id"] in calls:
        call = calls.pop(frame["id"])
        say(call, json.dumps([frame["content"][0].get("text"), frame["is_error"]]))
"""


async def test_an_extension_calls_a_tool_of_another_format_on_the_path_of_every_call(zot, cyclop, host):
    script = plugin_folders.python("print(json.dumps({'result': f'got {given}'}))")
    tool = cyclop("target", script)
    async with host(zot("caller", CALLER), tool) as h:
        result = await h.call("ask", {"name": "target", "args": {"n": 1}})
        text, is_error = json.loads(result.text)
        records = [item.record for item in h._audit.calls()]
    assert (is_error, '"n": 1' in text.replace("'", '"')) == (False, True), text
    assert [record.tool for record in records] == ["target", "ask"]
    assert records[0].attachment.startswith("extension-caller-")
    assert records[0].verdict == "allowed"


async def test_a_called_tools_answer_comes_with_its_images_and_within_bounds(zot, host):
    image = {"type": "image", "mime_type": "image/png", "data": "R0lG"}
    content = f"[{{'type': 'text', 'text': 'x' * 300_000}}] if frame['args'] else [{image!r}]"
    target = zot("target", answering(f"emit('tool_result', id=frame['id'], content={content})"))
    caller = zot("caller", CALLER)
    async with host(caller, target) as h:
        await h.call("relay", {"name": "act"})
        await h.call("relay", {"name": "act", "args": {"much": True}})
    small, large = heard(caller, "tool_result")
    assert small.items() >= {"name": "act", "content": [image], "is_error": False}.items()
    assert "truncated" not in small
    assert (len(large["content"][0]["text"]), large["truncated"]) == (256 << 10, True)


NOT_TO_BE_CALLED = (
    ({"name": "ask"}, "tool call cycle detected"),
    ({"name": "caller/ask"}, "tool call cycle detected"),
    ({"name": ""}, "call_tool requires a name and JSON object args"),
    ({"name": "relay", "args": "[]"}, "call_tool requires a name and JSON object args"),
    ({"name": "relay", "args": [1]}, "call_tool requires a name and JSON object args"),
    ({"name": "relay", "parent_id": "no-such-call"}, "unknown or expired parent tool call"),
    ({"name": "relay", "parent_id": ""}, "parent_id is required while an extension tool is active"),
    ({"name": "nobody"}, "no tool is named 'nobody'"),
)  # by an extension, and what it is told


async def test_what_an_extension_may_not_call(zot, host):
    async with host(zot("caller", CALLER)) as h:
        for fields, refusal in NOT_TO_BE_CALLED:
            assert json.loads((await h.call("ask", fields)).text) == [refusal, True], fields


async def test_without_the_capability_nothing_is_called(zot, host):
    folder = zot("meek", CALLER.replace('hello("call_tool")', "hello()"))
    async with host(folder) as h:
        text, is_error = json.loads((await h.call("ask", {"name": "relay"})).text)
    assert (text, is_error) == ("extension did not opt in to call_tool", True)


async def test_tools_that_call_tools_go_four_deep_and_no_deeper(zot, host):
    folders = [
        zot(f"deep{n}", CALLER.replace('tool("ask")', f'tool("t{n}")').replace('tool("relay")', "")) for n in range(5)
    ]
    args = {"name": "end"}
    for n in (4, 3, 2, 1):
        args = {"name": f"t{n}", "args": args}
    async with host(*folders) as h:
        result = await h.call("t0", args)
    assert "tool call depth limit reached" in result.text


async def test_a_call_for_an_extension_that_needs_a_person_is_denied_without_one(zot, cyclop, host, root):
    cyclop("target", permissions=["network"])
    async with host(zot("caller", CALLER), roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("target").plugin)
        text, is_error = json.loads((await h.call("ask", {"name": "target"})).text)
        record = next(iter(h._audit.calls())).record
    assert is_error
    assert "nobody can confirm it" in text
    assert (record.tool, record.verdict) == ("target", "denied")


async def test_a_call_that_an_extension_takes_back_is_cancelled(zot, host):
    script = CALLER + (
        "    elif frame['type'] == 'command_invoked':\n"
        "        for number in calls: emit('call_tool_cancel', id=number)\n"
        "        emit('command_response', id=frame['id'])\n"
    )
    slow = zot("slow", 'hello("tool_cancel"); tool("slow"); emit("ready")' + LOOP)
    caller = zot("caller", script.replace('tool("ask")', 'tool("ask"); command("stop")'))
    async with host(caller, slow) as h, anyio.create_task_group() as tasks:
        tasks.start_soon(h.call, "ask", {"name": "slow"})
        await until(lambda: heard(slow, "tool_call"))
        await h.run_command("/stop")
        await until(lambda: heard(slow, "tool_cancel"))
        tasks.cancel_scope.cancel()


async def test_a_call_that_is_taken_back_right_behind_is_never_made(zot, host):
    script = 'emit("call_tool", **({"id": number, "parent_id": frame["id"]} | frame["args"]))\n'
    at_once = 'both = [{"type": "call_tool", "id": "x", "name": "act", "parent_id": frame["id"]}, {"type": '
    at_once += (
        '"call_tool_cancel", "id": "x"}]\n        os.write(1, "".join(json.dumps(o) + "\\n" for o in both).encode())'
    )
    at_once += '\n        say(frame, "done")\n'
    caller, target = zot("caller", CALLER.replace(script, at_once)), zot("target", answering("say(frame, 'x')"))
    async with host(caller, target) as h:
        assert (await h.call("ask")).text == "done"
        await until(lambda: h._live._asked == {})
        assert heard(target, "tool_call") == []


async def test_an_extension_has_only_so_many_calls_under_way_and_is_told_so(zot, host):
    floods = """
hello("call_tool")
tool("flood")
emit("ready")
said = set()
for frame in heard():
    if frame["type"] == "tool_call":
        for number in range(300):
            emit("call_tool", id=str(number), name="slow", parent_id=frame["id"])
        call = frame
    elif frame["type"] == "tool_result":
        said.add(frame["content"][0]["text"])
        if len(said) == 1 and frame["id"] == "299":
            say(call, said.pop())
"""
    slow = zot("slow", 'hello(); tool("slow"); emit("ready")' + LOOP)
    async with host(zot("caller", floods), slow) as h:
        assert (await h.call("flood")).text == "too many tool calls under way: at most 256"
        assert len(h._live._asked) == 256


async def test_an_extension_that_calls_tools_by_itself_leaves_no_more_records_than_its_rate_allows(zot, host):
    floods = """
hello("call_tool")
command("go")
emit("ready")
import threading
def flood():
    for number in range(1_000):
        emit("call_tool", id=str(number), name="act")
said, refused = 0, []
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="noop")
        threading.Thread(target=flood).start()
    elif frame["type"] == "tool_result":
        said += 1
        if frame.get("code"):
            refused.append(frame)
        if said == 1_000:
            emit("notify", level="info", message=json.dumps([len(refused), refused[0]]))
"""
    told = []
    async with host(zot("caller", floods), zot("target", answering("say(frame, 'done')"))) as h:
        h.listen(lambda notice: told.append(notice) if isinstance(notice, Note) else None)
        await h.run_command("/go")
        await until(lambda: told)
        refused, first = json.loads(told[0].message)
        await h.call("act", {})  # that a person makes
        records = [item for item in h._audit.calls() if item.record.tool == "act"]
        (caller,) = (entry.plugin for entry in h.snapshot.entries if entry.plugin.name == "caller")
        with open(h.catalog.home.log(caller), encoding="utf-8") as file:
            log = file.read()
    assert len(records) == 1_000 - refused + 1
    assert 700 < refused <= 800
    assert first["is_error"] is True
    assert first["code"] == "overloaded"
    assert first["retry_after_ms"] > 0
    assert "try again in" in first["content"][0]["text"]
    assert log.count("was refused: at most 200 calls outside any other call at once") == 1


async def test_calls_of_an_extension_that_died_are_cancelled_and_its_ids_are_free_again(zot, host):
    caller = zot("caller", CALLER.replace('tool("ask")', 'tool("ask"); command("die")') + (
        "    elif frame['type'] == 'command_invoked':\n        os._exit(1)\n"
    ))  # fmt: skip
    slow = zot("slow", 'hello("tool_cancel"); tool("slow"); emit("ready")' + LOOP)
    async with host(caller, slow) as h, anyio.create_task_group() as tasks:
        tasks.start_soon(h.call, "ask", {"name": "slow", "id": "same"})
        await until(lambda: heard(slow, "tool_call"))
        await h.run_command("/die")
        await until(lambda: heard(slow, "tool_cancel"))
        await until(lambda: h._live._asked == {})
        text, _ = json.loads((await h.call("ask", {"name": "nobody"})).text)
        assert text == "no tool is named 'nobody'"


# Events


@pytest.mark.requirement("ZOT-25", "ZOT-26", "ZOT-45")
async def test_events_reach_only_who_subscribed_and_in_order(zot, host):
    subscribe = "emit('subscribe', events={})\n"
    some = zot("some", "hello()\n" + subscribe.format(["turn_start", "turn_end"]) + "emit('ready')" + LOOP)
    other = zot(
        "other",
        "hello()\n" + subscribe.format(["session_start", "assistant_message", "tool_result"]) + "emit('ready')" + LOOP,
    )
    none = zot("none", "hello()\nemit('ready')" + LOOP)
    async with host(some, other, none) as h:
        for step in range(500):
            h.emit("turn_start", step=step)
            h.emit("turn_end", stop="end", error=None)
        h.emit("assistant_message", text="hi")
        h.emit("tool_result", status="completed", tool_id="x")
        await until(lambda: len(heard(some, "event")) == 1000 and len(heard(other, "event")) == 3)
    always = {"type": "event", "cwd": os.getcwd(), "session_id": heard(some, "event")[0]["session_id"]}
    assert heard(some, "event")[:2] == [
        {**always, "event": "turn_start", "step": 0, "sequence": 1},
        {**always, "event": "turn_end", "stop": "end", "sequence": 2},
    ]
    assert [frame["step"] for frame in heard(some, "event")[::2]] == list(range(500))
    assert [frame["event"] for frame in heard(other, "event")] == ["session_start", "assistant_message", "tool_result"]
    assert heard(other, "event")[1]["text"] == "hi"
    assert heard(none, "event") == []


@pytest.mark.requirement("ZOT-26", "ZOT-45")
async def test_a_tool_call_of_any_format_is_an_event(zot, cyclop, host):
    watcher = zot("watcher", "hello()\nemit('subscribe', events=['tool_call'])\nemit('ready')" + LOOP)
    async with host(watcher, cyclop("target")) as h:
        await h.call("target", {"n": 1})
        await until(lambda: heard(watcher, "event"))
    (event,) = heard(watcher, "event")
    assert (event["event"], event["tool_name"], event["tool_args"]) == ("tool_call", "target", {"n": 1})
    assert event["tool_id"]


RESULTS = "hello()\nemit('subscribe', events=['tool_call', 'tool_result'])\nemit('ready')" + LOOP


async def test_what_came_of_a_call_of_any_format_is_an_event(zot, cyclop, host):
    watcher, target = zot("watcher", RESULTS), cyclop("target", "#!/bin/sh\necho broken\n")
    async with host(watcher, target, zot("echo")) as h:
        await h.call("echo", {"n": 1})
        await h.call("target")
        await until(lambda: len(heard(watcher, "event")) == 4)
    called, ended, _, broken = heard(watcher, "event")
    assert ended == called | {
        "event": "tool_result",
        "status": "completed",
        "executed": True,
        "result": {"content": [{"type": "text", "text": '{"n": 1}'}], "is_error": False},
        "sequence": called["sequence"] + 1,
    }
    assert (broken["tool_name"], broken["status"], broken["result"]["is_error"]) == ("target", "failed", True)


async def test_a_call_that_was_refused_cancelled_or_took_too_long_is_told_as_such(zot, host, settings):
    settings("[plugins.slow]\ntimeout_s = 0.3\n")
    watcher = zot("watcher", RESULTS)
    guard = (
        "hello()\nemit('subscribe', intercept=['tool_call'])\nemit('ready')\nfor frame in heard():\n"
        "    if frame['type'] == 'event_intercept':\n"
        "        emit('event_intercept_response', id=frame['id'], block=frame['tool_name'] == 'echo', reason='no')\n"
    )
    never = "hello()\ntool(NAME)\nemit('ready')" + LOOP
    async with host(watcher, zot("guard", guard), zot("echo"), zot("slow", never), zot("idle", never)) as h:
        await h.call("echo")
        await h.call("slow")
        with anyio.move_on_after(0.5):
            await h.call("idle")
        await h.call("nobody")
        await until(lambda: len(heard(watcher, "event")) == 5)
    results = [frame for frame in heard(watcher, "event") if frame["event"] == "tool_result"]
    told = [(frame["tool_name"], frame["status"], frame["executed"]) for frame in results]
    assert told == [("echo", "blocked", False), ("slow", "timed_out", True), ("idle", "cancelled", True)]
    assert results[0]["result"] == {"content": [{"type": "text", "text": "no"}], "is_error": True}


async def test_of_a_large_result_an_event_tells_as_much_as_there_is_room_for(zot, host):
    watcher, large = zot("watcher", RESULTS), zot("large", answering("say(frame, 'x' * 300_000)"))
    async with host(watcher, large) as h:
        await h.call("act")
        await until(lambda: len(heard(watcher, "event")) == 2)
    result = heard(watcher, "event")[1]["result"]
    assert (len(result["content"][0]["text"]), result["truncated"]) == (256 << 10, True)


async def test_subscriptions_add_up_at_any_time(zot, host):
    script = "hello()\nemit('subscribe', events=['a'], intercept=['anything', 'turn_start'])\nemit('ready')\n" + (
        "time.sleep(0.3)\nemit('subscribe', events=['b'])" + LOOP
    )
    folder = zot("adds", script)
    async with host(folder) as h:
        (extension,) = h.peers.up
        assert extension.intercepts == {"turn_start"}
        await until(lambda: extension.events == {"a", "b"})
        h.emit("a")
        h.emit("b")
        await until(lambda: len(heard(folder, "event")) == 2)


async def test_who_attaches_with_yes_is_not_asked(zot, host, root):
    zot("echo")
    async with host(roots=(root,)) as h:
        await h.approve(h.snapshot.plugin("echo").plugin)
        assert (await h.call("echo")).error.code == "denied"
        assert (await h.call("echo", attachment=Attachment(yes=True))).text == "{}"
        assert (await h.run_command("/echo", attachment=Attachment(yes=True))).error.code == "not_found"


@pytest.mark.parametrize(
    ("schema", "slip"),
    [
        ("'{}'", "it must be an object, not str"),
        ("{'type': 'objekt'}", 'its "type" must be "object", not \'objekt\''),
        ("{'properties': ['a']}", 'its "properties" must be an object, not list'),
        ("{'properties': {'a': 'string'}}", "'a' in it must be an object like"),
        ("{'type': 'object', 'required': 'a'}", 'its "required" must be a list of names, not str'),
        ("{'a': {'type': 'string'}}", 'it has no "properties"'),
    ],
)
async def test_a_schema_that_is_none_is_named_and_the_tool_works(zot, host, schema, slip):
    async with host(zot("typed", zot_folders.ECHO.replace("tool(NAME", f"tool(schema={schema}, name=NAME"))) as h:
        (problem,) = h.problems
        assert problem.message.startswith(f"typed: callers cannot rely on the schema of the tool 'typed': {slip}")
        assert (await h.call("typed", {"a": 1})).text == '{"a": 1}'


async def test_a_schema_under_the_name_that_mcp_has_for_it_is_named(zot, host):
    script = zot_folders.ECHO.replace("tool(NAME", "tool(schema=None, input_schema={'type': 'object'}, name=NAME")
    async with host(zot("typed", script)) as h:
        assert 'its "input_schema" should be named "schema"' in h.problems[0].message


# Answers that are no frames


@pytest.mark.combinations
@pytest.mark.parametrize(
    "line",
    [
        """'{"type":"tool_result","id":"' + frame["id"] + '","content":[{"type":"text","text":"say "hi""}]}'""",
        "str({'type': 'tool_result', 'id': frame['id'], 'content': []})",
        "json.dumps({'type': 'tool_result', 'id': frame['id'], 'content': [], 'structured_content': float('nan')})",
        "json.dumps({'type': 'tool_result', 'content': []})",
        "json.dumps({'type': 'tool_result', 'id': int(frame['id']), 'content': []})",
        "json.dumps({'type': 'tool_result', 'id': frame['id'], 'content': [{'type': 'text', 'text': 42}]})",
    ],
)
@pytest.mark.parametrize("interactive", [False, True])
async def test_a_call_whose_answer_is_no_frame_fails_soon_with_what_is_wrong(zot, host, line, interactive):
    script = answering(f"print({line}, flush=True)").replace('tool("act"', f'tool("act", interactive={interactive}')
    async with host(zot("slip", script)) as h:
        with anyio.fail_after(PATIENCE_S):
            assert (await h.call("act")).error.code == "bad_output"


TYPE_LAST = "{'content': [{'text': 'x' * 5_000_000}], 'id': frame['id'], 'type': 'tool_result'}"


@pytest.mark.parametrize("interactive", [False, True])
@pytest.mark.parametrize("answer", ["say(frame, 'x' * 5_000_000)", f"print(json.dumps({TYPE_LAST}), flush=True)"])
async def test_a_call_whose_answer_is_too_long_says_so(zot, host, answer, interactive):
    script = answering(answer).replace('tool("act"', f'tool("act", interactive={interactive}')
    async with host(zot("long", script)) as h:
        with anyio.fail_after(PATIENCE_S):
            error = (await h.call("act")).error
    assert (error.code, error.hint) == ("too_large", "make it return less, or write to a file and return its path")
    assert error.message == "extension long/act: its answer was a line of more than 4,194,304 bytes, and was skipped"


async def test_who_prints_an_answer_before_it_is_sent_is_heard(zot, host):
    answer = "{'type': 'tool_result', 'id': frame['id'], 'content': [{'type': 'text', 'text': 'right'}]}"
    script = answering(f"print({answer}, flush=True)", "time.sleep(0.2)", "say(frame, 'right')")
    async with host(zot("chatty", script)) as h:
        assert (await h.call("act")).text == "right"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("time.sleep(600)", "it wrote nothing to stdout, has not flushed it, or waits for input itself"),
        ("print('{\"type\":\"hello\"', end='', flush=True); time.sleep(600)", "a line without a line break"),
        ("print('Loading', flush=True); time.sleep(600)", "it wrote 1 line that is not a frame"),
        ("print('building it', file=sys.stderr, flush=True); time.sleep(600)", "waits for input itself: building it"),
    ],
)
async def test_what_came_in_place_of_a_hello_is_said(zot, host, settings, script, said):
    settings("[plugins.quiet]\nhello_s = 1.5\n")
    async with host(zot("quiet", script)) as h:
        assert said in problems(h)[0]


async def test_a_byte_order_mark_before_the_hello_does_no_harm(zot, host):
    script = zot_folders.ECHO.replace("hello()", "sys.stdout.write('\\ufeff')\nhello()", 1)
    async with host(zot("marked", script)) as h:
        assert (await h.call("marked")).text == "{}"


async def test_keys_of_a_block_have_any_case(zot, host):
    block = {"type": "text", "Text": "found"}
    script = answering(f"emit('tool_result', id=frame['id'], content=[{block}])")
    async with host(zot("cased", script)) as h:
        assert (await h.call("act")).text == "found"


async def test_an_interactive_tool_ends_where_nobody_can_answer_it(zot, host, settings):
    settings("[plugins.asks]\ntimeout_s = 0.3\n")
    script = answering("emit('open_panel', panel={'id': 'p', 'title': 'Well?'})").replace(
        'tool("act"', 'tool("act", interactive=True'
    )
    async with host(zot("asks", script)) as h:
        error = (await h.call("act", attachment=Attachment("agent", yes=True, shows_panels=False))).error
        assert (error.code, error.hint) == (
            "timed_out",
            "it may wait for a person, but nothing here shows what it draws",
        )
        with anyio.move_on_after(1) as scope:
            await h.call("act", attachment=Attachment("agent", yes=True))
        assert scope.cancelled_caught


async def test_what_is_sent_has_no_character_that_anybody_takes_for_a_line_break(zot, host):
    script = answering("say(frame, str(len(open('heard.jsonl').read().splitlines())))")
    async with host(zot("split", script)) as h:
        assert (await h.call("act", {"text": "a\u2028b\u2029c"})).text == "2"  # hello_ack and this call


async def test_an_event_is_an_event_whatever_its_fields_are_named(zot, host):
    folder = zot("hears", "hello()\nemit('subscribe', events=['odd'])\nemit('ready')\nfor frame in heard(): pass\n")
    async with host(folder) as h:
        h.emit("odd", type="shutdown", more=1)
        await until(lambda: heard(folder, "event"))
    (event,) = heard(folder, "event")
    assert (event["type"], event["event"], event["cwd"], event["more"]) == ("event", "odd", os.getcwd(), 1)
