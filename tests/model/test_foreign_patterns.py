"""Strangers' regular expressions are matched in a time that grows with the text only."""

import pytest

from anyplug.model import foreign_patterns
from anyplug.policy.routing import _fits
from rows import each_row

LONG = "a" * 200


@each_row(
    "pattern, text, is_found",
    [("(a+)+$b", LONG, False), ("(a|a?)+c", LONG, False), ("b$", "ab", True), ("\\d words", "2 words", True)],
)
def test_a_pattern_that_would_backtrack_is_matched(pattern, text, is_found):
    assert foreign_patterns.is_found(pattern, text) is is_found


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "(", "(?:a{900}){900}"])
def test_what_cannot_be_matched_so_is_refused(pattern):
    with pytest.raises(foreign_patterns.BadPattern):
        foreign_patterns.is_found(pattern, "a")


def test_names_of_files_that_are_not_utf_8_are_matched():
    assert foreign_patterns.is_whole("a.b", "a\udcffb")


@each_row(
    "pattern, tool, fits",
    [
        ("*", "a", True),
        ("*", "", False),
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "a", True),
        ("a*a", "a", False),
        ("a*b*c", "a.b.b.c", True),
        ("*.b", "a.b", True),
        ("*b*", "abc", True),
        ("a*b*b", "a.b", False),
        ("*a" * 60 + "*b", LONG, False),
    ],
)
def test_a_rule_asks_for_the_tools_that_fit_its_pattern(pattern, tool, fits):
    assert _fits(pattern, tool) is fits
