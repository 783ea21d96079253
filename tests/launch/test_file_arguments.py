"""Files that agents name by their paths: from the project, from grants and from other tools, and from nowhere else."""

import os

import pytest

import command_line
import plugin_folders
from anyplug.model.types import File
from mcp_clients import approve
from policy_projects import decision, policy, project
from zot_folders import extension

pytestmark = pytest.mark.anyio

SHOW = plugin_folders.python(
    "print(json.dumps({name: [os.path.basename(path), open(path).read()] for name, path in given.items()}))"
)
MAKE = "#!/bin/sh\nprintf made > /tmp/kit/made.txt\n"
FILES = {name: {"type": "file", "description": "A file."} for name in ("f", "g")}
ASKS = """
hello("call_tool")
tool("fetch")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        call = frame
        emit("call_tool", id="1", name="kit.show", args=frame["args"], parent_id=frame["id"])
    elif frame["type"] == "tool_result":
        say(call, json.dumps(frame))
"""


async def test_paths_of_the_project_of_grants_and_of_other_tools_are_read_and_others_are_not(
    host, root, tmp_path, monkeypatch, home
):
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for path in (work / "a/in.txt", work / "b/in.txt", work / ".env", elsewhere / "out.txt", work / ".git/config"):
        plugin_folders.write(str(path), f"text of {path.name}")
    os.symlink(elsewhere / "out.txt", work / "link.txt")
    os.symlink(elsewhere, work / "linked")
    os.mkfifo(work / "pipe")
    monkeypatch.chdir(work)
    plugin_folders.stavrobot(root, "kit", tools={"show": SHOW, "make": MAKE}, parameters=FILES)
    async with host(roots=(root,)) as h:
        await approve(h, "kit", always=True)

        async def shown(path):
            return await h.call("kit.show", {"f": str(path)})

        both = await h.call("kit.show", {"f": "a/in.txt", "g": str(work / "b" / "in.txt")})
        assert both.structured == {"f": ["in.txt", "text of in.txt"], "g": ["_in.txt", "text of in.txt"]}
        (made,) = [block for block in (await h.call("kit.make")).content if isinstance(block, File)]
        assert (await shown(made.path)).structured == {"f": ["made.txt", "made"]}
        for path in (elsewhere / "out.txt", "../elsewhere/out.txt", "/etc/passwd", f"{home}/anyplug.db", "~/.ssh/id"):
            result = await shown(path)
            assert result.error.code == "denied", path
            assert "anyplug grant kit filesystem:read:FOLDER" in result.error.hint
        for path in (".env", ".git/config", "./a/../.env"):
            result = await shown(path)
            assert (result.error.code, "protected path" in result.error.message) == ("denied", True), path
        for path in ("link.txt", "linked/out.txt", "pipe", "a", "none.txt", "", "a\0b", f"{home}/files/../anyplug.db"):
            result = await shown(path)
            assert result.error.code in {"invalid_arguments", "denied"}, path
            assert "text of" not in result.text
        assert "links are not followed" in (await shown("link.txt")).error.message
        await h.approve(h.snapshot.plugin("kit").plugin, granted=(f"filesystem:read:{elsewhere}",), always=True)
        assert (await shown(elsewhere / "out.txt")).structured == {"f": ["out.txt", "text of out.txt"]}
        assert (await shown("link.txt")).error.code == "invalid_arguments"


async def test_a_policy_sees_the_whole_path_however_it_is_written(host, stavrobot, tmp_path, monkeypatch):
    work = tmp_path / "work"
    plugin_folders.write(str(work / "secret" / "plan.txt"), "the plan")
    monkeypatch.chdir(work)
    rule = decision("deny", "not the plans", when=f'startswith(input.tool_input.f, "{work}/secret/")')
    project({"plans": policy("plans", rule)}, harness="anyplug")
    async with host(stavrobot("kit", SHOW, parameters=FILES)) as h:
        for path in ("secret/plan.txt", "./x/../secret/plan.txt", str(work / "secret" / "plan.txt")):
            assert "not the plans" in (await h.call("kit.act", {"f": path})).error.message


async def test_a_plugin_passes_on_only_files_that_it_may_read_itself(host, root, tmp_path, monkeypatch):
    work = tmp_path / "work"
    plugin_folders.write(str(work / "in.txt"), "text")
    monkeypatch.chdir(work)
    plugin_folders.stavrobot(root, "kit", tools={"show": SHOW}, parameters=FILES)
    extension(root, "asks", ASKS)
    async with host(roots=(root,)) as h:
        await approve(h, "kit", always=True)
        for granted, expected in (
            (("tools:call:kit.show",), "may not read it"),
            (("tools:call:kit.show", "filesystem:read:."), "text"),
        ):
            await h.approve(h.snapshot.plugin("asks").plugin, granted=granted, always=True)
            assert expected in (await h.call("fetch", {"f": "in.txt"})).text


def test_on_the_command_line_a_path_in_json_is_the_same_as_a_word(tmp_path, monkeypatch):
    kit = plugin_folders.stavrobot("here", "kit", SHOW, parameters=FILES)
    path = plugin_folders.write(str(tmp_path / "far" / "in.txt"), "text")
    words = command_line.ok("-e", kit, "call", "kit.act", f"f={path}").out
    assert words == command_line.ok("-e", kit, "call", "kit.act", "--args", f'{{"f": "{path}"}}').out
    assert "text" in words
