"""The plugins that ship with the project do what they say."""

import os
import shutil
from pathlib import Path

import pytest

from anyplug.host.host import Host
from anyplug.manage import plugin_check
from anyplug.model.types import File

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(entry.name for entry in EXAMPLES.iterdir() if entry.is_dir())

pytestmark = pytest.mark.anyio


@pytest.fixture
def examples(tmp_path: Path) -> list[str]:
    """Copy the examples, because plugins may write beside themselves."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("config.json"))
    return [str(tmp_path / "examples" / name) for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_no_problems(name: str) -> None:
    plugin = plugin_check.examine(str(EXAMPLES / name))
    assert plugin.problems == ()
    assert plugin.tools or plugin.stays_up


async def test_words_are_counted(examples: list[str]) -> None:
    async with Host(examples, roots=[], watch=False) as host:
        result = await host.call("word_count", {"text": "a b a\nc", "top": 1})
        assert result.text == "2 lines, 4 words, 7 characters; most frequent: a (2)"
        assert (await host.call("word_count")).error.code == "tool_error"


async def test_a_log_is_looked_into(examples: list[str], tmp_path: Path) -> None:
    log = tmp_path / "user" / 'a "quoted" name.log'  # where `filesystem:read` reaches
    log.write_text("one\ntwo ✓\nthree two\n")
    async with Host(examples, roots=[], watch=False) as host:
        assert (await host.call("log_tail", {"path": str(log), "lines": 2})).text == "two ✓\nthree two\n"
        assert (await host.call("log_count", {"path": str(log), "word": "two"})).text == "2"
        missing = await host.call("log_tail", {"path": str(tmp_path / "missing")})
        assert missing.is_error
        assert "cannot read" in missing.text


@pytest.mark.requirement("CYC-02", "CYC-20")
async def test_bookmarks_are_kept_between_calls(examples: list[str]) -> None:
    async with Host(examples, roots=[], watch=False) as host:
        assert (await host.call("bookmark_add", {"url": "u:1", "tags": ["x"]})).text == "1 kept"
        assert (await host.call("bookmark_add", {"url": "u:2", "tags": ["x", "y"]})).text == "2 kept"
        assert (await host.call("bookmark_find", {"tag": "x"})).text == "u:1\nu:2"
        assert (await host.call("bookmark_find", {"tag": "z"})).error.code == "tool_error"


@pytest.mark.requirement("STV-01", "STV-25", "STV-26")
async def test_the_field_kit_works(examples: list[str]) -> None:
    async with Host(examples, roots=[], watch=False) as host:
        dice = (await host.call("roll_dice", {"count": 4, "sides": 3})).structured
        assert len(dice["dice"]) == 4
        assert sum(dice["dice"]) == dice["sum"]
        assert (await host.call("roll_dice", {"count": 0})).error.code == "tool_error"
        length = await host.call("convert_length", {"value": 1, "unit": "mi", "to": "km"})
        assert length.structured == {"value": 1.6093, "unit": "km"}
        badge = await host.call("draw_badge", {"name": "<Ada>"})
        [file] = [block for block in badge.content if isinstance(block, File)]
        assert "Hello, I am" in Path(file.path).read_text()
        assert "&#60;Ada&#62;" in Path(file.path).read_text()
        report = await host.call("slow_report", {"seconds": 0.1})
        assert report.structured["report"][0] == "looked around"
        assert [job.state for job in host.jobs()] == ["done"]
    assert not os.path.exists("/tmp/field-kit")


@pytest.mark.requirement("ZOT-01")
async def test_the_extensions_offer_tools_and_commands(examples: list[str]) -> None:
    async with Host(examples, roots=[], watch=False) as host:
        assert {tool.plugin for tool in host.tools} >= {"echo-ext", "knot", "pomodoro", "sundial"}
        assert {command.plugin for command in host.commands} >= {"echo-ext", "knot", "pomodoro", "sundial"}
        assert {place.health for place in host.peers.places} == {"running"}


async def test_the_almanac_answers_by_the_model_context_protocol(examples: list[str]) -> None:
    async with Host(examples, roots=[], watch=False) as host:
        moon = await host.call("mcp.almanac.moon_phase", {"date": "2025-07-10"})
        assert (moon.text, moon.structured) == (
            "full, 14.9 days after new moon",
            {"phase": "full", "age_days": 14.9},
        )
        assert (await host.call("almanac/moon_phase", {"date": "soon"})).error.code == "tool_error"
        for year, day in {2024: "2024-03-31", 2025: "2025-04-20", 2038: "2038-04-25"}.items():
            assert (await host.call("almanac.easter", {"year": year})).text == day
        assert (await host.call("almanac.easter", {"year": "x"})).error.code == "invalid_arguments"


async def test_the_careful_guard_stops_a_dangerous_call_of_another_plugin(examples: list[str]) -> None:
    async with Host(examples, roots=[], watch=False) as host:
        refused = await host.call("word_count", {"text": "rm -rf /"})
        assert refused.error.code == "denied"
        assert "careful" in refused.text
        assert not (await host.call("word_count", {"text": "rm a.txt"})).is_error


async def test_the_tally_counts_between_calls_and_takes_back(examples: list[str]) -> None:
    async with Host(examples, roots=[], watch=False) as host:
        assert (await host.call("tally.show")).text == "Nothing was counted yet."
        assert (await host.call("tally.add", {"what": "tea"})).text == "tea: 1"
        assert (await host.call("tally.add", {"what": "cake", "by": 4})).metadata == {"tea": 1, "cake": 4}
        assert (await host.call("tally.show")).text == f"cake  {'█' * 20} 4\ntea   {'█' * 5} 1"
        assert (await host.call("tally_undo")).text == "cake: 0"
        assert (await host.call("tally.undo")).metadata == {}
        nothing = await host.call("tally.undo")
        assert (nothing.text, nothing.error.message) == ("There is nothing to take back.", "nothing was counted")
        assert (await host.call("tally.add")).error.message == "what is missing"
