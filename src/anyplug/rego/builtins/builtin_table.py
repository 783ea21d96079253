"""How builtins are declared: a name, the types of the operands, and a function.

A builtin raises OperandError for an argument of the wrong type and BuiltinError for whatever else it cannot do.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from anyplug.rego.values.rego_errors import BuiltinError, NotSupported, OperandError
from anyplug.rego.values.values import FALSE, NULL, TRUE, Atom, Object, Set, type_name

Kinds = frozenset[type] | None

STRING: Final[Kinds] = frozenset({str})
NUMERIC: Final[frozenset[Any]] = frozenset({int, Decimal})
NUMBER: Final[Kinds] = NUMERIC
ARRAY: Final[Kinds] = frozenset({tuple})
OBJECT: Final[Kinds] = frozenset({Object})
SET: Final[Kinds] = frozenset({Set})
LIST: Final[Kinds] = frozenset({tuple, Set})
KEYS: Final[Kinds] = frozenset({Object, Set, tuple})
BOOLEAN: Final[Kinds] = frozenset({Atom})
ANY: Final[Kinds] = None
EVERYTHING: Final[frozenset[type]] = frozenset({str, int, Decimal, tuple, Object, Set, Atom})

GO_DIGITS: Final = 19  # that OPA reads as an integer at most, a point among them
EVERY: Final = "anyplug.rego.builtins.every"
LEAST, MOST = -(1 << 63), (1 << 63) - 1  # of an integer in Go

NAMES: Final[dict[Any, str]] = {
    STRING: "string", NUMBER: "number", ARRAY: "array", OBJECT: "object", SET: "set", BOOLEAN: "boolean",
    LIST: "one of {set, array}", KEYS: "one of {object, set, array}",
    frozenset({str, tuple}): "one of {string, array}",
    frozenset({tuple, Object, Set, str}): "one of {array, object, set, string}",
}  # fmt: skip


class Builtin:
    """One builtin."""

    def __init__(self, name: str, call: Callable[..., Any], arity: int) -> None:
        self.name = name
        self.call = call
        self.arity = arity  # -1: any number
        self.kinds: tuple[Kinds, ...] = ()  # of its operands; none: any
        self.context = False  # takes the context of the evaluation first
        self.many = False  # gives an iterable of answers
        self.impure = False  # may answer differently next time
        self.refused = ""  # why it is not supported
        self.module = EVERY  # whose import declares it

    @property
    def adapted(self) -> Callable[..., Any]:
        """Return a function that always takes the context first."""
        if self.refused:
            return self.refuse
        if self.context:
            return self.call
        call = self.call
        return lambda _, *args: call(*args)

    def refuse(self, *_: Any) -> Any:
        """Raise the error for a call that nothing replaced."""
        msg = f"the builtin {self.name} is not supported: {self.refused}"
        raise NotSupported(msg)


TABLE: Final[dict[str, Builtin]] = {}


def wrong(index: int, expected: str, value: Any) -> OperandError:
    """Make the error for an operand of the wrong type; operands are counted from 1."""
    return OperandError(f"operand {index} must be {expected} but got {type_name(value)}")


def can_be_read(read: Callable[[str], object], text: Any) -> Atom:
    """Return whether a value is a text that a reader understands."""
    if text.__class__ is not str:
        return FALSE
    try:
        read(text)
    except BuiltinError:
        return FALSE
    return TRUE


def need_integer(index: int, value: Any) -> int:
    """Return an operand as an integer of 64 bits: 1.0 counts as one in OPA, but 1e3 does not."""
    if value.__class__ is int and LEAST <= value <= MOST:
        return value
    if value.__class__ is Decimal and value.as_tuple().exponent <= 0:  # type: ignore[operator]
        digits = str(value).lstrip("-")
        if "." in digits and "E" not in digits and len(digits) <= GO_DIGITS and not digits.partition(".")[2].strip("0"):
            return int(value)
    if value.__class__ in NUMERIC:
        msg = f"operand {index} must be integer number but got floating-point number"
        raise OperandError(msg)
    raise wrong(index, "number", value)


def builtin(
    name: str, *kinds: Kinds, context: bool = False, many: bool = False, impure: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a builtin: its operands are checked before it is called."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        arity = function.__code__.co_argcount - context
        made = Builtin(name, _checked(function, kinds, context=context), arity)
        made.module = function.__module__
        made.kinds = kinds
        made.context, made.many, made.impure = context, many, impure
        TABLE[name] = made
        return function

    return declare


def _checked(function: Callable[..., Any], kinds: tuple[Kinds, ...], *, context: bool) -> Callable[..., Any]:
    """Put the checks of operands before a function, with as few steps as their number allows."""
    if all(kind is None for kind in kinds):
        return function
    if BOOLEAN not in kinds and len(kinds) <= len(_CHECKED[context]):
        return _CHECKED[context][len(kinds) - 1](function, kinds)
    return _general(function, kinds, 1 if context else 0)


def _one(function: Callable[..., Any], kinds: tuple[Kinds, ...]) -> Callable[..., Any]:
    first = kinds[0] or EVERYTHING

    def checked(a: Any) -> Any:
        if a.__class__ not in first:
            raise _refusal(kinds, (a,))
        return function(a)

    return checked


def _two(function: Callable[..., Any], kinds: tuple[Kinds, ...]) -> Callable[..., Any]:
    first, second = kinds[0] or EVERYTHING, kinds[1] or EVERYTHING

    def checked(a: Any, b: Any) -> Any:
        if a.__class__ not in first or b.__class__ not in second:
            raise _refusal(kinds, (a, b))
        return function(a, b)

    return checked


def _context_one(function: Callable[..., Any], kinds: tuple[Kinds, ...]) -> Callable[..., Any]:
    first = kinds[0] or EVERYTHING

    def checked(context: Any, a: Any) -> Any:
        if a.__class__ not in first:
            raise _refusal(kinds, (a,))
        return function(context, a)

    return checked


def _context_two(function: Callable[..., Any], kinds: tuple[Kinds, ...]) -> Callable[..., Any]:
    first, second = kinds[0] or EVERYTHING, kinds[1] or EVERYTHING

    def checked(context: Any, a: Any, b: Any) -> Any:
        if a.__class__ not in first or b.__class__ not in second:
            raise _refusal(kinds, (a, b))
        return function(context, a, b)

    return checked


_CHECKED: Final = {False: (_one, _two), True: (_context_one, _context_two)}


def _general(function: Callable[..., Any], kinds: tuple[Kinds, ...], skip: int) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        for kind, arg in zip(kinds, args[skip:], strict=False):
            if kind is not None and (arg.__class__ not in kind or (kind is BOOLEAN and arg is NULL)):
                raise _refusal(kinds, args[skip:])
        return function(*args)

    return checked


def _refusal(kinds: tuple[Kinds, ...], args: tuple[Any, ...]) -> OperandError:
    for index, (kind, arg) in enumerate(zip(kinds, args, strict=False), 1):
        if kind is not None and (arg.__class__ not in kind or (kind is BOOLEAN and arg is NULL)):
            return wrong(index, NAMES[kind], arg)
    return OperandError("wrong operands")


def refuse(reason: str, *names: str, arity: int = -1) -> None:
    """Name builtins that are known and not supported."""
    for name in names:
        made = Builtin(name, _nothing, arity)
        made.refused = reason
        TABLE[name] = made


def _nothing(*_: Any) -> Any:
    msg = "not supported"
    raise BuiltinError(msg)
