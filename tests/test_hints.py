"""Every command that a message tells people to type is one that the command line accepts."""

import ast
import re
import shlex
from pathlib import Path

from anyplug.frontends.cli import parsing
from anyplug.model import hints
from anyplug.model.types import Plugin

SRC = Path(__file__).parent.parent / "src" / "anyplug"
PLACEHOLDER = "hole"  # stands for what is only known when the message is made
VALUES = ("hole", "1", "opencode", "zot", "show", "status")  # a name, a number, an agent, a format or a command
COMMAND = re.compile(r"`anyplug ([^`]+)`")
# Sentences about the grammar, and about what another program runs.
NOT_TO_PASTE = {"help COMMAND", "call /NAME WORDS", "run /NAME WORDS", "run TOOL KEY=VALUE", "eval"}
NOT_HINTS = SRC / "model" / "hints.py"  # which builds them


def texts(tree):
    """Yield each text of a module once: adjacent pieces are one text, and what is filled in is a placeholder."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in documentation | inner:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else filled(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call) and (words := built(node)):
            yield f"`anyplug {words}`"


def filled(part):
    """Return what stands for a value: the command itself if it is built with `hints.command`."""
    words = built(part.value) if isinstance(part.value, ast.Call) else ""
    return f"`anyplug {words}`" if words else PLACEHOLDER


def built(call):
    """Return the words of a call of `hints.command`."""
    if ast.unparse(call.func) not in {"hints.command", "command"}:
        return ""
    return " ".join(
        word.value if isinstance(word, ast.Constant) else "*hole" if isinstance(word, ast.Starred) else PLACEHOLDER
        for word in call.args
    )


def commands():
    found = {}
    for path in sorted({*SRC.rglob("*.py")} - {NOT_HINTS}):
        for text in texts(ast.parse(path.read_text())):
            for words in COMMAND.findall(text):
                found.setdefault(words, path.relative_to(SRC))
    return {words: path for words, path in found.items() if words not in NOT_TO_PASTE}


def test_every_command_in_a_message_is_one_that_the_command_line_accepts():
    found = commands()
    assert len(found) > 50  # it looks where the messages are
    wrong = [f"{path}: `anyplug {words}`" for words, path in found.items() if not any(map(is_accepted, spelled(words)))]
    assert not wrong, "\n".join(wrong)


def spelled(words):
    """Yield a command with each of the values that may stand where something is filled in."""
    return (words.replace("{0}", "").replace(f"*{PLACEHOLDER}", PLACEHOLDER).replace(PLACEHOLDER, it) for it in VALUES)


def is_accepted(words):
    if "..." in words:  # it cannot be pasted
        return False
    try:
        parsing.parse(shlex.split(words))
    except SystemExit as end:
        return end.code == 0
    return True


def test_a_hint_is_adapted_to_the_home_the_folders_and_the_reader():
    plain = "review it with `anyplug show x`, then run `anyplug approve x`"
    at_home = hints.with_options(plain, ["--home", "my home"], ["here/x"])
    assert at_home == (
        "review it with `anyplug --home 'my home' --plugin here/x show x`, "
        "then run `anyplug --home 'my home' approve x`"
    )
    assert hints.with_options(at_home, ["--home", "my home"], ["here/x"]) == at_home
    named = Plugin(name="x", format="zot", path="/a b/x", permissions=("network",))
    assert hints.for_folder(plain, named) == (
        "review it with `anyplug --plugin '/a b/x' show x`, then run `anyplug install '/a b/x'`"
    )
    granted = hints.for_folder("`anyplug grant x env:A`, or `anyplug grant y env:A`", named)
    assert granted == "`anyplug install '/a b/x' --grant network --grant env:A`, or `anyplug grant y env:A`"
    assert hints.for_library(plain, ["--home", "h"], awaits=False) == (
        '`host.approve("x")` approves it, once a person has seen what it asks for; '
        "or in a terminal: `anyplug --home h show x`, then `anyplug --home h approve x`"
    )
    assert hints.for_library("`anyplug tools x.y` shows its parameters").startswith("`input_schema` in `host.tools`")
    assert hints.for_agents(plain) == f"tell the user: {plain}"
    for typed in ("`anyplug tools x.y`", "`anyplug --plugin '/a b/x' tools x.y`"):
        assert hints.for_agents(f"{typed} shows its parameters") == "its input schema lists its parameters"
    for said in ("try again", "the user can allow it with `anyplug approve x --always`"):
        assert hints.for_agents(said) == said
