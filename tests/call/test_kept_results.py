"""Results that are too long for a model are cut where no character is split, kept whole, and read by range."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plugin_folders
from anyplug.call.consent import Attachment
from anyplug.call.kept_results import KeptResults, boundary
from anyplug.catalog.profiles import View
from anyplug.home.settings import Home, ResultSettings
from anyplug.model.types import Plugin, Result, Text
from command_line import ok, run
from mcp_clients import client

MARKS = "\u0301\u200d"
LETTERS = "aé👩‍👩‍👧 \u0301z\n"
LONG = plugin_folders.python(f"print(json.dumps({{'result': {LETTERS!r} * 2000}}, ensure_ascii=False))")


@pytest.mark.anyio
async def test_a_model_reads_the_rest_by_range_and_others_get_it_whole(host, cyclop, settings, era):
    settings("[results]\nmodel_chars = 1000\n")
    async with host(cyclop("long", LONG)) as up:
        whole = (await up.call("long")).text
        assert len(whole) > 20_000
        async with client(up, era) as agent:
            first = await agent.call_tool("long", {})
            parts, kept = [first.content[0].text], first.meta["anyplug/metadata"]["kept"]
            offset = kept["shown"]
            assert f'"id": "{kept["id"]}", "offset": {offset}' in first.content[1].text
            while offset < kept["characters"]:
                more = await agent.call_tool("builtin_read_result", {"id": kept["id"], "offset": offset, "length": 999})
                parts.append(more.content[0].text)
                offset = more.meta["anyplug/metadata"]["next_offset"]
            gone = await agent.call_tool("builtin_read_result", {"id": "0" * 12})
        assert "".join(parts) == whole
        assert all(len(part) <= 1000 for part in parts)
        assert not [part for part in parts if part[0] in "\u0301\u200d" or part[-1] == "\u200d"]
        assert gone.meta["anyplug/error"]["code"] == "not_found"
    assert ok("results", kept["id"]).out.rstrip("\n") == whole.rstrip("\n")
    assert ok("results", kept["id"], "--from", "1", "--length", "1").out.strip() == "é"
    (listed,) = ok("results", "--json").json
    assert (listed["id"], listed["tool"], listed["characters"]) == (kept["id"], "long", len(whole))
    assert os.path.dirname(listed["path"]) == os.path.join(up.catalog.home.path, "files", "long", "results")
    assert os.stat(listed["path"]).st_mode & 0o777 == 0o600
    assert run("results", "nothing").code == 4


@pytest.mark.anyio
async def test_an_agent_reads_only_results_of_tools_that_it_sees(host, cyclop, settings, root):
    settings('[results]\nmodel_chars = 100\n[profiles.narrow]\nplugins = ["builtin", "other"]\n')
    async with host(cyclop("long", LONG), cyclop("other")) as up:
        cut = await up.call("long", attachment=Attachment("mcp", is_model=True))
        id = cut.metadata["kept"]["id"]
        async with client(up, "newer", View(up.catalog.home, "narrow")) as agent:
            refused = await agent.call_tool("builtin_read_result", {"id": id})
        assert refused.meta["anyplug/error"]["code"] == "not_found"
        assert (await up.call("builtin.read_result", {"id": id, "length": 1})).content[0].text == "a"


@pytest.mark.claim("tools-call")
@pytest.mark.anyio
async def test_a_result_of_another_projects_plugin_of_the_same_name_is_not_shown(host, cyclop, settings, tmp_path):
    settings("[results]\nmodel_chars = 100\n")
    async with host(cyclop("long", LONG)) as up, host(plugin_folders.cyclop(tmp_path / "b", "long", LONG)) as other:
        cut = await up.call("long", attachment=Attachment("mcp", is_model=True))
        asked = {"id": cut.metadata["kept"]["id"], "length": 1}
        for view in (None, View(up.catalog.home)):
            mine, refused = [
                await one.call("builtin.read_result", asked, attachment=Attachment("mcp", view=view))
                for one in (up, other)
            ]
            assert mine.content[0].text == "a"
            assert refused.error.code == "not_found"


@pytest.mark.anyio
async def test_the_rest_of_what_our_own_tools_say_can_be_read(host, cyclop, settings):
    settings('[results]\nmodel_chars = 100\n[profiles.narrow]\nplugins = ["builtin", "long"]\n')
    async with host(cyclop("long", description="x" * 500)) as up:
        for view in (None, View(up.catalog.home), View(up.catalog.home, "narrow")):
            agent = Attachment("mcp", view=view, is_model=True)
            cut = await up.call("builtin.describe_plugin", {"plugin": "long"}, attachment=agent)
            asked = {"id": cut.metadata["kept"]["id"], "length": 1}
            assert (await up.call("builtin.read_result", asked, attachment=agent)).error is None, view


def test_kept_results_have_a_total_size_and_an_age(home):
    kept = KeptResults(Home(str(home)))
    plugin = Plugin(name="p", format="cyclop", path="/p")
    limits = ResultSettings(model_chars=10, keep_mb=1, keep_days=1)
    made = []
    for number in range(4):
        cut = kept.cut(Result(content=(Text(f"{number}" * 400_000),)), "p", plugin, limits, "")
        made.append(cut.metadata["kept"]["id"])
        time.sleep(0.002)
    assert [one.id for one in kept.all()] == made[:1:-1]
    kept.tidy(ResultSettings(keep_days=1e-9))
    assert kept.all() == []
    assert os.listdir(home / "files" / "p" / "results") == []


@given(st.text(alphabet=LETTERS, max_size=40), st.integers(0, 40))
def test_a_boundary_is_never_inside_what_people_see_as_one_character(text, at):
    place = boundary(text, at)
    assert 0 <= place <= at or place == len(text) <= at
    if 0 < place < len(text) and text[place] in MARKS:  # nothing before it can be cut either
        assert all(text[one] in MARKS or text[one - 1] == "\u200d" for one in range(max(1, at - 15), at + 1))
