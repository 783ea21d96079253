"""The values that the reader gives the words of a command: what bash makes of them, or unknown."""

import os
import re
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from anyplug.policy.shell import syntax
from anyplug.policy.shell.substitutions import MADE, UNKNOWN
from anyplug.policy.shell.word_values import Values
from random_examples import LONG_FORM, at_most

END = "\x1e"  # behind what bash shows
pick = st.sampled_from
LITERALS = pick(
    [
        "a",
        "'b'",
        '"LIC"',
        "X",
        ".e",
        "nv",
        "a.b.c",
        "x-y",
        "AbC",
        "a/b/c",
        "'#a'",
        "'%b'",
        "$'a\\x2e'",
        "'*'",
        r"\?",
        "''",
    ]
)
PATTERNS = pick(
    [
        "a",
        ".",
        "*",
        "?",
        "a*",
        "*.",
        "[ab]",
        "[!a]",
        "X",
        "*/",
        "#",
        "%",
        "'*'",
        r"\*",
        r"\.",
        "a?",
        "[[:alpha:]]",
        "$y",
    ]
)
NAMES = pick("xyz")


def _texts(*parts):
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


OPERATIONS = st.one_of(
    _texts(pick([":", ":0:", ": -", "::-", ":(-", "::"]), pick(["0", "1", "2", "3", "9"])).map(
        lambda text: text + ")" * text.count("(")
    ),
    _texts(pick(["#", "##", "%", "%%"]), PATTERNS),
    _texts(pick(["/", "//", "/#", "/%"]), PATTERNS, pick(["", "/", "/q", "/&", r"/a\/b"])),
    _texts(pick([":-", "-", ":=", "=", ":+", "+"]), pick(["", "d", "$y", "a*", "'*'"])),
    pick([",,", "^^", ",", "^", "^^[a-c]", ",,a", "@Q", "@U", "@L", "@u", "@E", "@P", "[0]", "[@]", "[*]", ":1+1"]),
)
REFERENCES = st.one_of(
    _texts("$", NAMES), _texts("${", NAMES, "}"), _texts("${", NAMES, OPERATIONS, "}"), _texts("${!", NAMES, "}")
)
PIECES = st.one_of(LITERALS, REFERENCES, REFERENCES)
FEEDS = st.one_of(LITERALS, _texts('"', REFERENCES, '"'))
OUTPUTS = st.one_of(
    _texts(pick(["$(echo ", "$(printf %s ", "$(printf %s%s ", "$(echo -n "]), PIECES, " ", PIECES, ")"),
    _texts(
        pick(
            [
                "$(printf '%.2s' ", "$(printf '%4s|' ", r"$(printf '\x41%s\056' ", "$(head -c3 <<< ", "$(tail -c3 <<< ",
                "$(cat <<< ", "$(tr a-c A-C <<< ", "$(rev <<< ", "$(false || echo ", "$(true && echo ",
                "$(echo b; echo ", "$(xargs <<< ", "$(sed s/a/q/g <<< ", "$(command echo ",
                "$(echo a && echo b || echo ",
            ]
        ),
        FEEDS,
        ")",
    ),
    _texts("$(<<< ", FEEDS, " cat)"),
    _texts("$(echo ", FEEDS, pick([" | rev)", " | tr -d a)", " | cut -c1)", " > /dev/null; echo b)"])),
    pick([r"$(printf 'b\na\n' | sort)", r"$(printf 'a\nb\n' | head -n1)", r"$(echo -e 'a\x2e\056\0056\c'b; echo c)"]),
)  # fmt: skip
WORDS = st.lists(st.one_of(PIECES, OUTPUTS), min_size=1, max_size=2).map("".join)
QUOTED = st.lists(st.one_of(pick(["a", "-", "b.", r"\."]), REFERENCES, OUTPUTS), min_size=1, max_size=3).map(
    lambda pieces: f'"{"".join(pieces)}"'
)
VALUES = st.one_of(WORDS, QUOTED)
STATEMENTS = st.one_of(
    _texts(pick(["", "declare -l ", "declare -u ", "declare -n r=x; ", "export ", "false && "]), NAMES, "=", VALUES),
    _texts(NAMES, "+=", VALUES),
    _texts(pick(["read -r ", "read -rn3 ", "read -r -N2 ", "read -rd b "]), NAMES, " <<< ", VALUES),
    _texts("printf -v '", NAMES, pick(["", "[0]"]), "' ", pick(["%s ", "%s%s ", "%.2s "]), VALUES),
    _texts("(", NAMES, "=", VALUES, ")"),
    _texts("if false; then ", NAMES, "=", VALUES, "; fi"),
    _texts("for ", NAMES, " in ", VALUES, " c; do :; done"),
    _texts(NAMES, "=(", VALUES, " c)"),
    _texts("unset ", NAMES),
    st.just("declare -n r=x; r=.env"),
)


def shown_by_bash(lines):
    """Return what bash makes of the word that each line shows; lines with an error are left out."""
    script = "exec 3>&1\n" + "".join(
        f"said=$( (set -f; eval {_single(line)}) 2>&1 >&3); [ -z \"$said\" ] || printf '%s:{END}' {at}\n"
        for at, line in enumerate(lines)
    )
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    run = subprocess.run(["bash"], input=script.encode(), capture_output=True, env=environment, check=False)
    return dict(re.findall(rf"(\d+):([^{END}]*){END}", run.stdout.decode(errors="replace")))


def _single(text):
    return "'" + text.replace("'", r"'\''") + "'"


def may_be(pattern, text):
    """Return whether a value of the reader stands for a text."""
    parts = (".*" if char in UNKNOWN + MADE else re.escape(char) for char in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


@settings(max_examples=at_most(160), deadline=None, derandomize=LONG_FORM not in os.environ)
@given(st.lists(st.tuples(st.lists(STATEMENTS, max_size=3).map("; ".join), QUOTED), min_size=10, max_size=20))
def test_a_value_is_what_bash_makes_of_the_word_or_unknown(cases):
    lines = [f"{before or ':'}; printf '%s:%s{END}' {at} {word}" for at, (before, word) in enumerate(cases)]
    for at, shown in shown_by_bash(lines).items():
        before, word = cases[int(at)]
        reading = syntax.read(f"{before or ':'}; show {word}")
        values = Values(reading.commands)
        found = [one for one in reading.commands if one.words[:1] == ("show",)]
        made = [value for one in found for each in (one.marked or one.words)[1:] for value in values.of(each)]
        is_read = shown and reading.is_sure  # shells read the others differently
        assert not is_read or any(may_be(value, shown) for value in made), (before, word, shown, made)
