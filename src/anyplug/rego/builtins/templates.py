"""Go's text templates, for `strings.render_template`: fields, variables, if, range, with, comparisons, printf.

What a template of Go's may hold beyond that is refused when it is met, and never rendered wrongly.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.builtins.template_functions import FUNCTIONS, LAZY, Digits, is_true, shown
from anyplug.rego.parse.lexer import Source, unescape
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported
from anyplug.rego.values.values import FALSE, NULL, TRUE, Object, Set, type_name

_SPACE: Final = " \t\r\n"  # Go's, which is less than Python's
_ACTION: Final = re.compile(
    r"\{\{(-(?=[ \t\r\n]))?[ \t\r\n]*((?:\"(?:[^\"\\\n]|\\.)*\"|`[^`]*`|[^\"`])*?)[ \t\r\n]*((?<=[ \t\r\n])-)?\}\}"
)
_COMMENT: Final = re.compile(r"\{\{(?:-[ \t\r\n])?/\*(?:[^*]|\*(?!/))*\*/(?:[ \t\r\n]-)?\}\}")
_TOKEN: Final = re.compile(
    r'("(?:[^"\\\n]|\\[nt"\\])*"|`[^`\r]*`|(?:\$\w*)?(?:\.[A-Za-z_]\w*)+|\$\w*|\.|[+-]?(?:0|[1-9]\d{0,17})'
    r"|[A-Za-z_]\w*)(?=[ \t\r\n|),]|:=|\Z)|(:=|[|(),])",
    re.ASCII,
)
_NUMBER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_VARIABLE: Final = re.compile(r"\$\w+", re.ASCII)
_JSON_ESCAPED: Final = str.maketrans(dict.fromkeys("\t\n\r\b\f", ""))  # OPA passes values on as text
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
    trimmed = False
    while (start := text.find("{{", at)) >= 0:
        before = text[at:start]
        before = before.lstrip(_SPACE) if trimmed else before
        match = _COMMENT.match(text, start)
        if match is None:
            match = _ACTION.match(text, start)
            if match is None or match[2].startswith("/*"):
                msg = "template: unclosed action or comment"
                raise BuiltinError(msg)
            pieces += [before.rstrip(_SPACE) if match[1] else before, _tokens(match[2])]
            trimmed = match[3] is not None
        else:
            pieces.append(before.rstrip(_SPACE) if match[0][2] == "-" else before)
            trimmed = match[0][-3] == "-"
        at = match.end()
    pieces.append(text[at:].lstrip(_SPACE) if trimmed else text[at:])
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
    """Return values as OPA passes them on: numbers as texts. Raises NotSupported for what is not JSON."""
    if value.__class__ is Object:
        if any(key.__class__ is not str for key in value):
            msg = "a template's values with a key that is not a string"
            raise NotSupported(msg)
        return Object({_given(key): _given(item) for key, item in value.items()})
    if value.__class__ is tuple:
        return tuple(map(_given, value))
    if value.__class__ is Set:
        msg = "a set among a template's values"
        raise NotSupported(msg)
    if value.__class__ is str and not value.translate(_JSON_ESCAPED).isprintable():
        msg = "a control character among a template's values"
        raise NotSupported(msg)
    return Digits(numbers.text(value)) if value.__class__ in {int, Decimal} else value


def _tokens(action: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(action):
        if action[at] in _SPACE:
            at += 1
            continue
        match = _TOKEN.match(action, at)
        if match is None:
            msg = f"template: unexpected {action[at : at + 10]!r} in command"
            raise BuiltinError(msg)
        found.append(match[0])
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
        self.variables = ["$"]  # that are declared here

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
            controls = piece[0] in {"if", "range", "with"}
            found.append(self.control(piece) if controls else _action(_Pipeline(piece, self.variables)))
        self.depth -= 1
        return found

    def control(self, piece: list[str]) -> Part:
        """Read if, range or with, up to its end."""
        outer = list(self.variables)
        word, condition = piece[0], _Pipeline(piece[1:], self.variables, 2 if piece[0] == "range" else 1)
        inner = list(self.variables)
        body, otherwise = self.parts(), []
        self.variables = inner
        closing = self.pieces[self.at] if self.at < len(self.pieces) else []
        if closing and closing[0] == "else":
            self.at += 1
            if len(closing) > 1:
                if closing[1] != word or word == "range":
                    msg = f"template: unexpected {closing[1]} after else"
                    raise BuiltinError(msg)
                otherwise = [self.control(list(closing[1:]))]
                self.variables = outer
                return _CONTROLS[word](condition, body, otherwise)
            otherwise = self.parts()
            closing = self.pieces[self.at] if self.at < len(self.pieces) else []
        if closing != ["end"]:
            msg = "template: unexpected EOF"
            raise BuiltinError(msg)
        self.at += 1
        self.variables = outer
        return _CONTROLS[word](condition, body, otherwise)


def _text(text: str) -> Part:
    return lambda run, _dot, _scope: run.write(text)


def _action(pipeline: "_Pipeline") -> Part:
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
            if value > MAX_SIZE or len(names) > 1:
                msg = f"a range over {value}, with {len(names)} variables"
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

    def __init__(self, tokens: list[str], variables: list[str], most: int = 1) -> None:
        """Read a pipeline that may declare so many variables, and add them to those that are known."""
        self.names: tuple[str, ...] = ()
        if ":=" in tokens:
            cut = tokens.index(":=")
            self.names = tuple(tokens[:cut:2])
            commas = tokens[1:cut:2]
            if not (0 < len(self.names) <= most and commas == [","] * (len(self.names) - 1)):
                msg = "template: unexpected declaration"
                raise BuiltinError(msg)
            if not all(_VARIABLE.fullmatch(name) for name in self.names):
                msg = "template: a declaration of other than variables"
                raise BuiltinError(msg)
            tokens = tokens[cut + 1 :]
        self.commands = _split(tokens, variables)
        variables += self.names

    def value(self, dot: Any, scope: Scope) -> Any:
        """Evaluate, and set the variables."""
        found: list[Any] = []
        for command in self.commands:
            found = [_call(command, found, dot, scope)]
        for name in self.names:
            scope[name] = found[0]
        return found[0]


def _split(tokens: list[str], variables: list[str]) -> list[list[Any]]:
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
                commands[-1].append(_Pipeline(inner, variables, 0))
        elif stack:
            stack[-1].append(token)
        elif token == "|":
            commands.append([])
        else:
            _check(token, variables)
            commands[-1].append(token)
    if stack or not all(commands):
        msg = "template: missing value for command"
        raise BuiltinError(msg)
    if not all(command[0] in KNOWN for command in commands[1:]):
        msg = "template: non executable command in pipeline"
        raise BuiltinError(msg)
    return commands


def _check(token: str, variables: list[str]) -> None:
    """Refuse a word that is no function and a variable that is not declared, even where they are never reached."""
    name = token.partition(".")[0]
    if token in {":=", ","} or (name[:1] == "$" and name not in variables):
        msg = f"template: unexpected {token}"
        raise BuiltinError(msg)
    if (name[:1].isalpha() or name[:1] == "_") and name not in KNOWN and name not in _WORDS:
        msg = f'template: function "{name}" not defined'
        raise BuiltinError(msg)


def _call(command: list[Any], before: list[Any], dot: Any, scope: Scope) -> Any:
    first = command[0]
    if isinstance(first, str) and first in LAZY and len(command) > 1:
        for each in command[1:]:
            value = _operand(each, dot, scope)
            if is_true(value) is LAZY[first]:
                return value
        return before[0] if before else value
    if isinstance(first, str) and first in FUNCTIONS:
        return FUNCTIONS[first](*[_operand(each, dot, scope) for each in command[1:]], *before)
    if len(command) > 1 or before:
        msg = f"template: can't give argument to non-function {first}"
        raise BuiltinError(msg)
    return _operand(first, dot, scope)


def _operand(token: Any, dot: Any, scope: Scope) -> Any:
    if isinstance(token, _Pipeline):
        return token.value(dot, scope)
    if token[0] == '"':
        return unescape(Source("template", token), 0, token[1:-1])
    if token[0] == "`":
        return token[1:-1]
    if _NUMBER.fullmatch(token):
        return int(token)
    if token in _WORDS:
        return _WORDS[token]
    name, *path = token.split(".")
    if token == ".":
        return dot
    if name not in scope and name:
        msg = f"template: {token} has no value here"
        raise BuiltinError(msg)
    value = scope[name] if name else dot
    for part in path:
        if value.__class__ is not Object:
            msg = f"template: can't evaluate field {part} in type {type_name(value)}"
            raise BuiltinError(msg)
        value = value.get(part, NULL)
    return value


_WORDS: Final = {"true": TRUE, "false": FALSE}
KNOWN: Final = frozenset(FUNCTIONS) | frozenset(LAZY)
