"""The path of a call is short: few frames of ours lie between `Host.call` and the first byte that leaves."""

import os
import re
import sys
from pathlib import Path
from typing import Self

import pytest

import anyplug
import plugin_folders
import zot_folders
from anyplug.formats import registry
from mcp_clients import mcp_plugin

PACKAGE = os.path.dirname(anyplug.__file__) + os.sep
PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
BLOCK = re.compile(r"(?<=<!-- call-path -->\n).*?(?=<!-- /call-path -->)", re.DOTALL)
MOST_FRAMES = 7
FORMAT = re.compile(re.escape(os.path.join(PACKAGE, "formats", "")) + r"(?!shared/)(\w+)/")
SERVER = "for call in calls():\n    answer(call, content=[])\n"
LEAVING = {"sendmsg", "write", "posix_spawn"}  # by which bytes leave


class Watch:
    """The frames of ours that led to the first byte, and the formats whose code ran, seen while a call runs."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.formats: set[str] = set()

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame, event, arg) -> None:
        if not self.path and event == "c_call" and arg.__name__ in LEAVING:
            self.path = list(reversed(list(_ours(frame))))
        elif event == "call" and (found := FORMAT.match(frame.f_code.co_filename)):
            self.formats.add(found[1])


def _ours(frame):
    """Yield the frames of the package, from the innermost to `Host.call`; none if that is not among them."""
    found = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            found.append(f"{code.co_filename.removeprefix(PACKAGE).removesuffix('.py')}  {code.co_qualname}")
        if code.co_qualname == "Host.call":
            return found
        frame = frame.f_back
    return []


@pytest.mark.anyio
async def test_seven_frames_at_most_lie_between_a_call_and_the_byte_that_leaves(host, tmp_path):
    one_shot = plugin_folders.cyclop(tmp_path, "hello")
    session = zot_folders.extension(tmp_path, "echo")
    paths = {}
    async with host(one_shot, session) as h:
        for title, tool in (("one process for each call", "hello"), ("a long-running process", "echo")):
            await h.call(tool)  # what is made at the first call is no part of the path
            with Watch() as watch:
                result = await h.call(tool)
            assert not result.is_error, result.text
            paths[title] = watch.path
    assert all(0 < len(path) <= MOST_FRAMES for path in paths.values()), paths
    text = "".join(f"{title}:\n" + "".join(f"  {frame}\n" for frame in path) for title, path in paths.items())
    page = PAGE.read_text()
    measured = f"```text\n{text}```\n"
    if os.environ.get("REWRITE_DOCS"):
        PAGE.write_text(BLOCK.sub(lambda _: measured, page))
    else:
        assert BLOCK.findall(page) == [measured], "REWRITE_DOCS=1 writes the path into ARCHITECTURE.md"


@pytest.mark.anyio
@pytest.mark.parametrize("format", ["cyclop", "stavrobot", "zot", "mcp"])
async def test_a_call_runs_no_other_formats_code_and_asks_its_own_once_what_is_switched_off(
    format, host, tmp_path, monkeypatch
):
    folder, tool = {
        "cyclop": lambda: (plugin_folders.cyclop(tmp_path, "one"), "one"),
        "stavrobot": lambda: (plugin_folders.stavrobot(tmp_path, "one"), "one.act"),
        "zot": lambda: (zot_folders.extension(tmp_path, "one"), "one"),
        "mcp": lambda: (mcp_plugin(str(tmp_path), SERVER, "one"), "mcp.one.act"),
    }[format]()
    asked = []
    switched_off = registry.BY_NAME[format].switched_off
    async with host(folder) as h:
        await h.call(tool)
        monkeypatch.setattr(registry.BY_NAME[format], "switched_off", lambda p: asked.append(p) or switched_off(p))
        with Watch() as watch:
            result = await h.call(tool)
    assert not result.is_error, result.text
    assert watch.formats == {format}
    assert len(asked) == 1 or (format in {"zot", "mcp"} and not asked)  # of what stays up, a look holds for a moment


def test_the_page_about_the_architecture_stays_short():
    assert len(PAGE.read_bytes()) <= 12_288
