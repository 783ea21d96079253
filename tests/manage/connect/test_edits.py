"""One entry of a configuration is changed, and no other byte: for texts that people wrote, and for random ones."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

import random_configurations
from anyplug.manage.connect import jsonc, toml
from anyplug.manage.connect.edits import Malformed, Unfit
from random_examples import at_most
from rows import each_row

WAY = ("mcpServers", "anyplug")
ENTRY = {"command": "anyplug", "args": ["mcp", "--resident"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "m": {\n    "a": {\n      "c": 1\n    }\n  }\n}\n'),
        ("{}", '{"m": {"a": {"c": 1}}}'),
        ("{}\n", '{"m": {"a": {"c": 1}}}\n'),
        ("{\n}\n", '{\n  "m": {\n    "a": {\n      "c": 1\n    }\n  }\n}\n'),
        ('{"x": 1}', '{"x": 1, "m": {"a": {"c": 1}}}'),
        ('{"x": 1, /* y */ }', '{"x": 1, /* y */ "m": {"a": {"c": 1}}, }'),
        ('{\n\t"m": {}\n}', '{\n\t"m": {\n\t\t"a": {\n\t\t\t"c": 1\n\t\t}\n\t}\n}'),
        (
            '{\n "m": {\n  "b": 1 // one\n  // "old": 2\n }\n}',
            '{\n "m": {\n  "b": 1, // one\n  // "old": 2\n  "a": {\n   "c": 1\n  }\n }\n}',
        ),
        ('{\r\n  "m": {"b": 1,},\r\n}\r\n', '{\r\n  "m": {"b": 1, "a": {"c": 1},},\r\n}\r\n'),
        ('\ufeff{\n "x": [1, 2,], "m": null\n}', None),
        ("\ufeff// note\n", '\ufeff// note\n{\n  "m": {\n    "a": {\n      "c": 1\n    }\n  }\n}\n'),
    ],
)
def test_an_entry_is_written_as_its_surroundings_are(before: str, after: str | None):
    if after is None:
        with pytest.raises(Unfit, match="'m' is not an object"):
            jsonc.put(before, ("m", "a"), {"c": 1})
    else:
        assert jsonc.put(before, ("m", "a"), {"c": 1}) == after
        assert jsonc.read(jsonc.drop(after, ("m", "a"), 1)).get("m", {}) == {
            key: value for key, value in jsonc.read(before).get("m", {}).items() if key != "a"
        }


def test_a_value_that_stands_there_is_replaced_in_place():
    text = '{"m": {"a": {"c": "old" /* why */, "env": {"K": "v"}}, "b": 2}} // end'
    assert jsonc.put(text, ("m", "a", "c"), "new") == text.replace('"old"', '"new"')


def test_of_a_key_that_stands_twice_the_last_counts_and_both_are_taken_out():
    text = '{"m": {"a": 1, "a": 2}}'
    assert jsonc.read(text) == {"m": {"a": 2}}
    assert jsonc.put(text, ("m", "a"), 3) == '{"m": {"a": 1, "a": 3}}'
    assert jsonc.read(jsonc.drop(text, ("m", "a"))) == {"m": {}}


def test_what_follows_a_removed_entry_does_not_end_up_in_a_comment():
    text = '{ // note\n  "a": 1, "b": 2\n}'
    assert jsonc.read(jsonc.drop(text, ("a",))) == {"b": 2}


@each_row(
    ("text", "where"),
    [
        ('{"a": 1', "line 1, column 8"),
        ('{"a" 1}', "a colon is missing"),
        ('{"a": 1 "b": 2}', "a comma or a closing brace is missing"),
        ("{'a': 1}", "a key in quotes"),
        ('{"a": 01}', "no value"),
        ('{"a": }', "a value is missing"),
        ('{"a": "x\ny"}', "a string is not closed"),
        ('{\n  "a": tru\n}', "line 2, column 8"),
        ('{"a": [1 2]}', "a closing bracket is missing"),
        ("{} {}", "something follows the end"),
        ("{,}", "a key in quotes"),
        ("/* open", "no value"),
        ("[1]", "it is not an object"),
        ('{"a": ' + "[" * 5000, "nested deeper"),
    ],
)
def test_what_is_not_json_is_refused_with_the_place(text: str, where: str):
    with pytest.raises(Malformed, match=where):
        jsonc.read(text)


def without_comments(text: str) -> Any:
    """Read it by another way: only what our scanner skips is taken out first, by hand."""
    out, at = "", 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            out, at = out + text[at : end + 1], end + 1
        elif text.startswith("//", at):
            at = min(found for found in (text.find("\n", at), len(text)) if found >= 0)
        elif text.startswith("/*", at):
            at = text.index("*/", at) + 2
        elif text[at] in "}]" and out.rstrip().endswith(","):
            out, at = out.rstrip()[:-1] + text[at], at + 1
        else:
            out, at = out + text[at], at + 1
    return json.loads(out.removeprefix("\ufeff"))


@bounds(max_examples=at_most(400), deadline=None)
@given(random_configurations.documents())
def test_connecting_changes_only_our_entry_and_taking_it_out_gives_back_the_bytes(text: str):
    before = without_comments(text)
    assert jsonc.read(text) == before
    after = jsonc.put(text, WAY, ENTRY)
    held = before.get("mcpServers", {})
    assert without_comments(after) == {**before, "mcpServers": {**held, "anyplug": ENTRY}}
    back = jsonc.drop(after, WAY, made="mcpServers" not in before)
    if "anyplug" in held:  # it was another's, and is gone with ours
        held.pop("anyplug")
        assert without_comments(back) == before
    elif held or ("mcpServers" not in before and before):
        assert back == text
    else:  # how wide an empty object was, the text no longer says; the copy does
        assert without_comments(back) == before


@bounds(max_examples=at_most(200), deadline=None)
@given(st.text(alphabet='{}[]",:/* \n\\a1', max_size=30))
def test_no_text_makes_the_scanner_fail_otherwise(text: str):
    try:
        said = jsonc.read(text)
    except Malformed:
        return
    assert isinstance(said, dict)


TABLES = """\ufeff# mine
model = "o4" # best
notes = '''
[mcp_servers.anyplug]
'''
list = [
  "[x]", # ]
]

[mcp_servers.docs] # docs
command = "docs"

  [mcp_servers.docs.env]
  K = "v"

[[hooks]]
on = "start"
"""


def test_a_table_is_added_at_the_end_and_taken_out_again():
    after = toml.put(TABLES, ("mcp_servers", "anyplug"), ENTRY)
    assert after == TABLES + '\n[mcp_servers.anyplug]\ncommand = "anyplug"\nargs = ["mcp", "--resident"]\n'
    assert toml.drop(after, ("mcp_servers", "anyplug")) == TABLES


def test_a_key_of_a_table_is_replaced_or_added_in_place():
    way = ("mcp_servers", "docs")
    assert toml.put(TABLES, (*way, "command"), 'a"b') == TABLES.replace('"docs"', '"a\\"b"')
    added = toml.put(TABLES, (*way, "args"), ["x"])
    assert added == TABLES.replace('command = "docs"\n', 'command = "docs"\nargs = ["x"]\n')


def test_a_table_goes_with_all_below_it_and_nothing_else():
    left = toml.drop(TABLES, ("mcp_servers", "docs"))
    said = toml.read(TABLES)
    said.pop("mcp_servers")
    assert toml.read(left) == said
    assert "# docs" not in left
    assert left.startswith(TABLES[: TABLES.index("\n\n[mcp_servers.docs]")])


@pytest.mark.parametrize("text", ['mcp_servers = {anyplug = {command = "x"}}', 'mcp_servers.anyplug.command = "x"'])
def test_what_is_not_written_as_a_table_is_left_alone(text: str):
    with pytest.raises(Unfit, match="not written as a separate table"):
        toml.put(text, ("mcp_servers", "anyplug", "command"), "y")
    with pytest.raises(Unfit, match="not written as a separate table"):
        toml.drop(text, ("mcp_servers", "anyplug"))


@bounds(max_examples=at_most(300), deadline=None)
@given(random_configurations.tables())
def test_any_toml_keeps_all_its_bytes(text: str):
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    after = toml.put(text, ("mcp_servers", "anyplug"), ENTRY)
    try:
        said = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        # It has the name already as something else, and the caller refuses to write what cannot be read.
        assert not isinstance(before["mcp_servers"], dict) or "{" in text
        return
    if not isinstance(before.get("mcp_servers", {}), dict):
        return  # `[[mcp_servers]]` is a list, in whose last table it came to stand; the caller looks at that, too
    assert said.pop("mcp_servers") == {**before.pop("mcp_servers", {}), "anyplug": ENTRY}
    assert said == before
    back = toml.drop(after, ("mcp_servers", "anyplug"))
    assert back == text if text.endswith("\n") or not text else back.startswith(text)
