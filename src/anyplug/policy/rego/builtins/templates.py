"""Go's text templates, for `strings.render_template`: fields, variables, if, range, with, comparisons, printf.

What a template of Go's may hold beyond that is refused when it is met, and never rendered wrongly.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from anyplug.policy.rego import numbers
from anyplug.policy.rego.builtins.template_functions import FUNCTIONS, is_true, shown
from anyplug.policy.rego.errors import BuiltinError, NotSupported
from anyplug.policy.rego.lexer import Source, unescape
from anyplug.policy.rego.values import FALSE, NULL, TRUE, Object, Set, type_name

_ACTION: Final = re.compile(
    r"\{\{(-(?=\s))?\s*(/\*.*?\*/|(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[^\"`])*?)\s*((?<=\s)-)?\}\}", re.DOTALL
)
_TOKEN: Final = re.compile(
    r'\s+|("(?:[^"\\]|\\.)*"|`[^`]*`|\$?\w*(?:\.\w+)+|\$\w*|\.|[+-]?\d+(?:\.\d+)?|\w+|:=|=|[|(),])', re.ASCII
)
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?$", re.ASCII)
REFUSED: Final = frozenset(
    {"define", "template", "block", "break", "continue", "html", "js", "urlquery", "slice", "call"}
)
MAX_SIZE: Final = 1 << 20  # characters of what is rendered

Scope = dict[str, Any]
Part = Callable[["_Run", Any, Scope], None]


class _Run:
    """One rendering: what is written, and what it may still use."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.out: list[str] = []
        self.size = 0

    def write(self, text: str) -> None:
        self.size += len(text)
        self.context.spend(1 + len(text) // 8)
        if self.size > MAX_SIZE:
            msg = f"a text of more than {MAX_SIZE} characters"
            raise NotSupported(msg)
        self.out.append(text)


def render(context: Any, text: str, values: Any) -> str:
    """Fill in a template. Raises BuiltinError, and NotSupported for what is refused."""
    pieces: list[str | list[str]] = []
    at = 0
    for match in _ACTION.finditer(text):
        before = text[at : match.start()]
        if pieces and at and text[at - 3 : at] == "-}}":
            before = before.lstrip()
        pieces.append(before.rstrip() if match[1] else before)
        if not match[2].startswith("/*"):
            pieces.append(_tokens(match[2]))
        at = match.end()
    rest = text[at:]
    if "{{" in rest:
        msg = "template: unclosed action"
        raise BuiltinError(msg)
    pieces.append(rest.lstrip() if at and text[at - 3 : at] == "-}}" else rest)
    reader = _Reader(pieces)
    parts = reader.parts()
    if reader.at < len(pieces):
        msg = "template: unexpected {{end}} or {{else}}"
        raise BuiltinError(msg)
    run = _Run(context)
    values = _given(values)
    _execute(parts, run, values, {"$": values})
    return "".join(run.out)


def _given(value: Any) -> Any:
    """Return values as OPA passes them on: numbers as texts. Raises NotSupported for what is no JSON."""
    if value.__class__ is Object:
        if any(key.__class__ is not str for key in value):
            msg = "a template's values with a key that is no string"
            raise NotSupported(msg)
        return Object({key: _given(item) for key, item in value.items()})
    if value.__class__ is tuple:
        return tuple(map(_given, value))
    if value.__class__ is Set:
        msg = "a set among a template's values"
        raise NotSupported(msg)
    if value.__class__ is str and not value.isprintable() and not value.replace("\n", "").isprintable():
        msg = "a control character among a template's values"
        raise NotSupported(msg)
    return numbers.text(value) if value.__class__ in {int, Decimal} else value


def _tokens(action: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(action):
        match = _TOKEN.match(action, at)
        if match is None or match.end() == at:
            msg = f"template: unexpected {action[at : at + 10]!r} in command"
            raise BuiltinError(msg)
        if match[1]:
            found.append(match[1])
        at = match.end()
    if not found:
        msg = "template: missing value for command"
        raise BuiltinError(msg)
    if found[0] in REFUSED:
        msg = f"the template action {found[0]} is not supported"
        raise NotSupported(msg)
    return found


def _execute(parts: list[Part], run: _Run, dot: Any, scope: Scope) -> None:
    for part in parts:
        part(run, dot, scope)


class _Reader:
    """Reads texts and actions into parts that can be executed."""

    def __init__(self, pieces: list[str | list[str]]) -> None:
        self.pieces = pieces
        self.at = 0
        self.depth = 0

    def parts(self) -> list[Part]:
        """Read up to the end, or to an `end` or `else`, which is left there."""
        found: list[Part] = []
        self.depth += 1
        if self.depth > 50:  # noqa: PLR2004 - far more than anyone nests, far less than Python's stack
            msg = "template: nested too deeply"
            raise BuiltinError(msg)
        while self.at < len(self.pieces):
            piece = self.pieces[self.at]
            if isinstance(piece, str):
                self.at += 1
                if piece:
                    found.append(_text(piece))
                continue
            if piece[0] in {"end", "else"}:
                break
            self.at += 1
            found.append(self.control(piece) if piece[0] in {"if", "range", "with"} else _action(piece))
        self.depth -= 1
        return found

    def control(self, piece: list[str]) -> Part:
        """Read if, range or with, up to its end."""
        word, condition = piece[0], _Pipeline(piece[1:])
        body, otherwise = self.parts(), []
        closing = self.pieces[self.at] if self.at < len(self.pieces) else []
        if closing and closing[0] == "else":
            self.at += 1
            if len(closing) > 1:
                return _CONTROLS[word](condition, body, [self.control(list(closing[1:]))])
            otherwise = self.parts()
            closing = self.pieces[self.at] if self.at < len(self.pieces) else []
        if closing != ["end"]:
            msg = "template: unexpected EOF"
            raise BuiltinError(msg)
        self.at += 1
        return _CONTROLS[word](condition, body, otherwise)


def _text(text: str) -> Part:
    return lambda run, _dot, _scope: run.write(text)


def _action(piece: list[str]) -> Part:
    pipeline = _Pipeline(piece)

    def act(run: _Run, dot: Any, scope: Scope) -> None:
        value = pipeline.value(dot, scope)
        if not pipeline.names:
            run.write(shown(value))

    return act


def _if(condition: "_Pipeline", body: list[Part], otherwise: list[Part]) -> Part:
    def act(run: _Run, dot: Any, scope: Scope) -> None:
        inner = dict(scope)
        _execute(body if is_true(condition.value(dot, inner)) else otherwise, run, dot, inner)

    return act


def _with(condition: "_Pipeline", body: list[Part], otherwise: list[Part]) -> Part:
    def act(run: _Run, dot: Any, scope: Scope) -> None:
        inner = dict(scope)
        value = condition.value(dot, inner)
        if is_true(value):
            _execute(body, run, value, inner)
        else:
            _execute(otherwise, run, dot, inner)

    return act


def _range(condition: "_Pipeline", body: list[Part], otherwise: list[Part]) -> Part:
    names, condition.names = condition.names, ()

    def act(run: _Run, dot: Any, scope: Scope) -> None:
        value = condition.value(dot, scope)
        if value.__class__ is int:
            if value > MAX_SIZE:
                msg = f"a range of more than {MAX_SIZE} numbers"
                raise NotSupported(msg)
            pairs: Any = [(index, index) for index in range(value)]
        elif value.__class__ is Object:
            pairs = value.pairs()
        elif value.__class__ in {tuple, Set}:
            pairs = list(enumerate(value.ordered() if value.__class__ is Set else value))
        elif value is NULL:
            pairs = []
        else:
            msg = f"template: range can't iterate over {shown(value)}"
            raise BuiltinError(msg)
        for key, item in pairs:
            inner = dict(scope)
            inner.update(zip(names, (key, item) if len(names) > 1 else (item,), strict=False))
            _execute(body, run, item, inner)
        if not pairs:
            _execute(otherwise, run, dot, scope)

    return act


_CONTROLS: Final = {"if": _if, "with": _with, "range": _range}


class _Pipeline:
    """Commands, each of which gets what the one before gave; maybe put into variables."""

    def __init__(self, tokens: list[str]) -> None:
        self.names: tuple[str, ...] = ()
        for mark in (":=", "="):
            if mark in tokens:
                cut = tokens.index(mark)
                self.names = tuple(token for token in tokens[:cut] if token != ",")
                if not all(re.fullmatch(r"\$\w+", name) for name in self.names) or not self.names:
                    msg = "template: unexpected assignment"
                    raise BuiltinError(msg)
                tokens = tokens[cut + 1 :]
        self.commands = _split(tokens)

    def value(self, dot: Any, scope: Scope) -> Any:
        """Evaluate, and set the variables."""
        found: list[Any] = []
        for command in self.commands:
            found = [_call(command, found, dot, scope)]
        for name in self.names:
            scope[name] = found[0]
        return found[0]


def _split(tokens: list[str]) -> list[list[Any]]:
    """Cut a pipeline at its bars; parentheses become pipelines of their own."""
    commands: list[list[Any]] = [[]]
    stack: list[list[str]] = []
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            if not stack:
                msg = "template: unexpected right paren"
                raise BuiltinError(msg)
            inner = stack.pop()
            if stack:
                stack[-1] += ["(", *inner, ")"]
            else:
                commands[-1].append(_Pipeline(inner))
        elif stack:
            stack[-1].append(token)
        elif token == "|":
            commands.append([])
        else:
            commands[-1].append(token)
    if stack or not all(commands):
        msg = "template: missing value for command"
        raise BuiltinError(msg)
    return commands


def _call(command: list[Any], before: list[Any], dot: Any, scope: Scope) -> Any:
    first = command[0]
    if isinstance(first, str) and first in FUNCTIONS:
        return FUNCTIONS[first](*[_operand(each, dot, scope) for each in command[1:]], *before)
    if len(command) > 1 or before:
        msg = f"template: can't give argument to non-function {first}"
        raise BuiltinError(msg)
    return _operand(first, dot, scope)


def _operand(token: Any, dot: Any, scope: Scope) -> Any:  # noqa: C901 - one branch for each kind
    if isinstance(token, _Pipeline):
        return token.value(dot, scope)
    if token[0] == '"':
        return unescape(Source("template", token), 0, token[1:-1])
    if token[0] == "`":
        return token[1:-1]
    if _NUMBER.match(token):
        return numbers.parse(token.removeprefix("+"))
    if token in _WORDS:
        return _WORDS[token]
    name, *path = token.split(".")
    if token == ".":
        return dot
    if name and not name.startswith("$"):
        msg = f'template: function "{name}" not defined'
        raise BuiltinError(msg)
    if name and name not in scope:
        msg = f'template: undefined variable "{name}"'
        raise BuiltinError(msg)
    value = scope[name] if name else dot
    for part in path:
        if value.__class__ is not Object:
            msg = f"template: can't evaluate field {part} in type {type_name(value)}"
            raise BuiltinError(msg)
        value = value.get(part, NULL)
    return value


_WORDS: Final = {"true": TRUE, "false": FALSE}
