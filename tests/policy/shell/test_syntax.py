"""Shell commands as policies see them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyplug.policy.shell import syntax
from rows import each_row


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("  git   commit\t-m  x ", "git commit -m x"),
        ("git\ncommit", "git commit"),
        ("echo 'a   b'  \"c   d\"", "echo 'a   b' \"c   d\""),
        (r"echo a\  \ b", r"echo a\  \ b"),
        ("echo 'open   quote", "echo 'open   quote"),
        ("", ""),
        ("   ", ""),
        ("a\\ ", "a\\ "),
        ('a  "b  \\"  c"  d', 'a "b  \\"  c" d'),
        ('a  "open  \\', 'a "open  \\'),
        ("a  '\\'  b", "a '\\' b"),
    ],
)
def test_blanks_are_one_blank_outside_of_quotes(command, made):
    assert syntax.normalised(command) == made


@given(st.text(alphabet="ab '\"\\\t\n;|>&$`(){}", max_size=40))
def test_reading_never_fails_and_normalising_twice_changes_nothing_more(command):
    once = syntax.normalised(command)
    if "'" not in command and '"' not in command and "\\" not in command:
        assert syntax.normalised(once) == once
    syntax.simple_commands(command)
    syntax.path_words(command)


@each_row(
    ("command", "words"),
    [
        ("a b; c && d | e", [("a", "b"), ("c",), ("d",), ("e",)]),
        ("a $(b c) `d`", [("a", "", ""), ("b", "c"), ("d",)]),
        ('a "x $(rm y)"', [("a", "x "), ("rm", "y")]),
        ('a "$(b "$(c d)")" e', [("a", "", "e"), ("b", ""), ("c", "d")]),
        ("a '$(not run)'", [("a", "$(not run)")]),
        ("a $(unclosed b", [("a", ""), ("unclosed", "b")]),
        ("'a'\"b\"c", [("abc",)]),
        ("sh -c 'x y; z'", [("sh", "-c", "x y; z"), ("x", "y"), ("z",)]),
        ("bash -lc 'x'", [("bash", "-lc", "x"), ("x",)]),
        ("eval x y", [("eval", "x", "y"), ("x", "y")]),
        ("(a; b)", [("a",), ("b",)]),
        ("a '' \"\"", [("a", "", "")]),
        ('a "b\nc" $d \\', [("a", "b\nc", "$d", "\\")]),
        ("a \\; b", [("a", ";", "b")]),
        ('a "\\$(b)" "`c`"', [("a", "$(b)", ""), ("c",)]),
        ("a $(b ')' \")\" \\) ; (c)) d", [("a", "", "d"), ("b", ")", ")", ")"), ("c",)]),
        (r"a $'b\x63\144\u0065\n\cA'", [("a", "bcde\n\x01")]),
        (r"a $'b\'c'", [("a", "b'c"), ("a", r"$b\c")]),
        ('a $"b"', [("a", "b")]),
        ("a\\\nb 'c\\\nd' \"e\\\nf\"", [("ab", "c\\\nd", "ef")]),
        ("a # it's\nb#c", [("a",), ("b#c",)]),
        ("a {b,c}d '{e,f}' {1..3} {} ${g,h}", [("a", "bd", "cd", "{e,f}", "1", "2", "3", "{}", "${g,h}")]),
        ("a <<E; b\nit's $(c)\nE\nd", [("a",), ("b",), ("d",), ("its $(c)\n",), ("c",)]),
        ("a <<'E'\n b\nE\nc", [("a",), ("c",), ("b",)]),
        ("cat <<'E' > b\nc's d\nE\nls b", [("cat",), ("ls", "b")]),
        ("cat <<E | tee b\nc $(date)\nE", [("cat",), ("tee", "b"), ("date",)]),
        ("cat <<'E' > b\nc\nE\nsh b", [("cat",), ("sh", "b"), ("c",)]),
        ("cat <<'E' | sh\nc\nE", [("cat",), ("sh",), ("c",)]),
        ("git commit -F - <<'E'\nc\nE", [("git", "commit", "-F", "-")]),
        ("cat > .git/hooks/x <<'E'\nc\nE\ngit commit", [("cat",), ("git", "commit"), ("c",)]),
        ("cat() { sh; }; cat <<'E'\nc\nE", [("cat",), ("{", "sh"), ("}",), ("cat",), ("c",)]),
        ("PATH=.:$PATH cat <<'E' > b\nc\nE", [("PATH=.:$PATH", "cat"), ("c",)]),
        ("a `b \\`c\\``", [("a", ""), ("b", ""), ("c",)]),
        ("script -c 'a b'", [("script", "-c", "a b"), ("a", "b")]),
        ("a $(echo b c) d", [("a", "", "", "d"), ("echo", "b", "c")]),
        ('a "$(echo b c)" x=$(echo d e)', [("a", "", "x="), ("echo", "b", "c"), ("echo", "d", "e")]),
        ("a &>b c", [("a", "c"), ("a",), ("c",)]),
        ("a &>>b c", [("a", "c"), ("a",), ("c",)]),
        ('a $b"c" "$b"c', [("a", "${b}c", "${b}c")]),
        ("a {b,c}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}", [("a", "b", "c")]),
        ("a {{1..600},b}", [("a", "", "b")]),
        ("a > >(b) c", [("a", "c"), ("b",)]),
        ("a 2> >(b)", [("a",), ("b",)]),
        ("a <(b 'c)') d", [("a", "/dev/fd/pipe", "d"), ("b", "c)")]),
        ("a --x=<(b)", [("a", "--x=/dev/fd/pipe"), ("b",)]),
        ("a <\\\n(b) c", [("a", "/dev/fd/pipe", "c"), ("b",)]),
        ('a "<(b)"', [("a", "<(b)")]),
        ("$(" * 60 + "a" + ")" * 60, [("",)] * 60 + [("a",)]),
    ],
)
def test_a_line_is_cut_into_its_simple_commands(command, words):
    assert [simple.words for simple in syntax.simple_commands(command)] == words


@pytest.mark.parametrize(
    "command", ["a 'b", 'a "b', "a $'b", "a `b", "a $(b", 'a "${b\'}"', "a ${b # }", "((a<<2))\nb"]
)
def test_what_another_shell_may_read_otherwise_is_not_sure(command):
    assert not syntax.read(command).is_sure


@pytest.mark.parametrize(
    "command",
    [
        "a 'b' \"c\" $'d\\'e'",
        "a $((1 + 2))",
        "cat <<E\nit's\nE",
        "a # it's",
        'a ${b} "${c}"',
        "$(case a in b) c;; esac)",
    ],
)
def test_what_every_shell_reads_alike_is_sure(command):
    assert syntax.read(command).is_sure


def test_a_text_that_would_be_read_over_and_over_ends_the_reading():
    assert not syntax.read("sh <<E\n" * 12_000).is_sure
    assert len(syntax.simple_commands("true;" * 20_000)) == 20_000


def test_files_that_are_written_are_told_apart_from_words():
    (simple,) = syntax.simple_commands("a >b 2>>c <d x")
    assert simple.words == ("a", "x", "d")  # input files at the end: `<d a x` runs a
    assert simple.writes == ("b", "c")


def test_a_command_as_long_as_a_system_takes_is_read_in_a_moment():
    for part in ("'", '"', "a\\", "$(", '"$(', "`", "(", "1>", "\\", "a "):
        syntax.simple_commands(part * 40_000)
        syntax.normalised(part * 40_000)
        syntax.path_words(part * 40_000)


def test_paths_are_found_among_the_words_and_cut_at_a_glob():
    assert syntax.path_words("rm -rf /a/b ./c src/*.py ~/x plain $HOME/y *.txt") == [
        "/a/b", "./c", "src", "~/x", "$HOME/y", "."
    ]  # fmt: skip
