"""Words as dash and zsh read them: what the real shells make of harmless ones is among the values of the reader."""

import os
import re
import shutil
import subprocess

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from anyplug.policy.shell import syntax
from anyplug.policy.shell.substitutions import MADE, UNKNOWN
from anyplug.policy.shell.word_values import Values
from random_examples import at_most
from rows import each_row

END = "\x1e"  # behind what a shell shows
FILES = (".cup", ".cupboard", ".env", "Cup", "a.b", "a.c", "cup", "sub/.env", "sub/a.b")
pick = st.sampled_from


def _texts(*parts):
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


NAMES = pick("xyz")
LITERALS = pick([".c", "up", "cup", ".env", "a.b", "'a'", '"b"', "x", ".", "sub/"])
UNQUOTED = pick(["^a", "a~b", "a#", "p#"])
ESCAPED = pick([r"\0143up", r"a\cb", r"\x63up", r"\143", r"a\\b", r"\u0063", "cup", "-n", r".\e", r"a\nb"])
MODIFIERS = pick(["h", "t", "r", "e", "l", "u", "a", "A", "Q", "s/a/b/", "gs/a/b/", "s/p/&&/", "h:t", "r:e", "m", "1"])
INDICES = pick(["1", "2", "-1", "1,2", "2,-1", "-3,-2", "$y", "1,$z", "0", "9"])
PATTERNS = pick(
    [
        "(c|.e)",
        "(a|)",
        "(#i)",
        "(.)",
        "(D)",
        "(N)",
        "(|x)",
        "*(D)",
        "*(.)",
        "(a|.)*",
        "^a",
        "(u|x)p",
        "[a-c]*",
        "?",
        "*",
    ]
)
REFERENCES = st.one_of(
    _texts(pick(["$", "$~", "$=", "$^", "~"]), NAMES),
    _texts("$", NAMES, "[", INDICES, "]"),
    _texts("$", NAMES, ":", MODIFIERS),
    _texts("$", NAMES, "[", INDICES, "]:", MODIFIERS),
    _texts("${", pick(["", "~", "=", "^", "(L)", "(U)", "(P)", "(e)", "(s::)", "(j::)", "(Oa)", "(f)"]), NAMES, "}"),
    _texts("${", NAMES, "[", INDICES, "]}"),
    _texts("${", NAMES, ":", MODIFIERS, "}"),
    _texts("${${", NAMES, pick(["", "%p", ":h", "[1,2]"]), "}", pick(["", "%b", "#a", ":t", "[2]", "/a/q"]), "}"),
    _texts("${${:-", LITERALS, "}", pick(["", "%p", ":r"]), "}"),
)
OUTPUTS = _texts(pick(["$(echo ", "$(echo -n ", "$(echo -e ", "$(echo -E ", "`echo "]), "'", ESCAPED, "'")
OUTPUTS = OUTPUTS.map(lambda text: text + (")" if text[0] == "$" else "`"))
STATEMENTS = st.one_of(
    _texts(NAMES, "=", pick(["cup", ".cupX", "a.b", "sub/.env", "'.c*'", "CUP", "'a b'", "2", "y", r"'.\0143'"])),
    _texts(NAMES, "=(", pick(["a .cup", "cup", ".c up", "x y z"]), ")"),
    _texts("x=$(echo '", ESCAPED, "')"),
)
ZSH_WORDS = st.lists(st.one_of(LITERALS, UNQUOTED, REFERENCES, PATTERNS, OUTPUTS), min_size=1, max_size=3).map("".join)
DASH_WORDS = st.lists(
    st.one_of(LITERALS, OUTPUTS, pick(["$x", "${y}", "${BASH_VERSION+b}", "${x:-a}", "$(echo $x)"])),
    min_size=1,
    max_size=3,
).map("".join)


def _shown(shell, lines, folder):
    """Return what a shell makes of the word that each line shows; lines with an error are left out."""
    script = "".join(f"(eval {_single(line)}) 2>/dev/null\n" for line in lines)
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    run = subprocess.run(shell, input=script.encode(), capture_output=True, env=environment, cwd=folder, check=False)
    found = re.findall(rf"(\d+):([^{END}]*){END}", run.stdout.decode(errors="replace"))
    return [(int(at), text.removesuffix("\n")) for at, text in found]


def _single(text):
    return "'" + text.replace("'", r"'\''") + "'"


def _may_be(value, text, folder):
    """Return whether a value of the reader, a pattern, stands for a text."""
    value = value.replace("$PWD", folder)
    if value == text:
        return True
    parts = re.findall(rf"\[[^\]]+\]|[{UNKNOWN}{MADE}]|[\s\S]", value)
    known = {UNKNOWN: ".*", MADE: ".*", "*": ".*", "?": "."}
    made = (known.get(part) or ("." if len(part) > 1 else re.escape(part)) for part in parts)
    return re.fullmatch("".join(made), text, re.DOTALL | re.IGNORECASE) is not None


def _check(shell, first, cases, folder):
    cases = [(f"{first}; {before or ':'}", word) for before, word in cases]
    lines = [f"{before}; printf '{at}:%s{END}' {word}" for at, (before, word) in enumerate(cases)]
    for at, shown in _shown(shell, lines, folder):
        before, word = cases[at]
        reading = syntax.read(f"{before}; show {word}")
        values = Values(reading.commands)
        found = [one for one in reading.commands if one.words[:1] == ("show",)]
        shown_words = [each for one in found for each in (one.marked or one.words)[1:]]
        made = [value for each in shown_words for value in (*values.of(each), *values.words(each))]
        is_read = shown and reading.is_sure
        assert not is_read or any(_may_be(value, shown, folder) for value in made), (before, word, shown, made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("words")
    for name in FILES:
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).touch()
    return str(made)


CASES = st.lists(STATEMENTS, max_size=3).map("; ".join)


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
@settings(max_examples=at_most(100), deadline=None, phases=[Phase.generate])
@given(cases=st.lists(st.tuples(CASES, ZSH_WORDS), min_size=10, max_size=20))
def test_a_value_is_what_zsh_makes_of_the_word_or_unknown(folder, cases):
    _check(["zsh", "-f"], "setopt extendedglob", cases, folder)


@pytest.mark.skipif(not shutil.which("dash"), reason="no dash")
@settings(max_examples=at_most(60), deadline=None, phases=[Phase.generate])
@given(cases=st.lists(st.tuples(CASES, DASH_WORDS), min_size=10, max_size=20))
def test_a_value_is_what_dash_makes_of_the_word_or_unknown(folder, cases):
    _check(["dash"], ":", cases, folder)


@each_row(
    ("command", "words"),
    [
        ("a >! b c", ("a", "c")),
        ("a.(b|c)d e", ("a.bd", "a.cd", "a.d", "a.d", "e")),
        ("a (#i)b", ("a", "#ib", "b", "b")),
        ("=git commit", ("/bin/git", "commit")),
        ("rm .^a", ("rm", ".*")),
        ("rm *.a~b", ("rm", "*.a")),
        (r"a $(echo 'b\0143')", ("a", "")),
    ],
)
def test_what_zsh_reads_otherwise_is_a_command_too(command, words):
    assert words in [simple.words for simple in syntax.simple_commands(command)]


@each_row(
    "command",
    [
        "f() { a; }", "f () (a)", "function f (a)", "a=(b c)", "a+=(b)", "[[ ( a = b ) ]]",
        "for ((i=0;i<3;i++)); do a; done", "if (a); then (b); fi", "case a in (b) c;; esac", "! (a)", "time (a)",
        "git diff HEAD^ HEAD~1", "git log ^main", "git rebase HEAD^^", "a b~", "a $b:main", "a ~/b ~c", "a --b=~/c",
        "a b#c", "((a = 2 ^ 3))", "a =", "[ a = b ]",
    ],
)  # fmt: skip
def test_what_all_shells_read_alike_is_read_once(command):
    found = syntax.simple_commands(command)
    assert len(set(found)) == len({one.words for one in found})
    assert all("*" not in word and "/bin" not in word for one in found for word in one.words)
