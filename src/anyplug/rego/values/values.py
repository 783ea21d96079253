"""The values of Rego, and how they are compared, ordered and hashed.

null, true and false are our own objects, since Python takes True for 1, and since None means undefined here. Numbers
are int or Decimal, so that no digit is lost; strings are str; arrays are tuples; sets and objects are `Set` and
`Object`. All are immutable and hashable, so equality, hashing and look-ups run in C, and no builtin can change an
argument that the next evaluation reads again.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, NoReturn


class Atom:
    """null, true or false."""

    __slots__ = ("rank", "text")

    def __init__(self, text: str, rank: tuple[int, int]) -> None:
        self.text = text
        self.rank = rank

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> str:
        return self.text.upper()  # pickled and copied by name: there is one of each


NULL: Final = Atom("null", (0, 0))
FALSE: Final = Atom("false", (1, 0))
TRUE: Final = Atom("true", (1, 1))


class Object(dict[Any, Any]):
    """An object: any values as keys. Made of a dict; whatever would change it later raises TypeError."""

    __slots__ = ("_hash", "_keys")
    _hash: int
    _keys: tuple[Any, ...]

    def _frozen(self, *_: Any, **__: Any) -> NoReturn:
        msg = "an object of Rego cannot be changed"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __ior__ = _frozen
    update = setdefault = pop = popitem = clear = _frozen

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(frozenset(self.items()))
            return self._hash

    def ordered(self) -> tuple[Any, ...]:
        """Return the keys in the order of Rego."""
        try:
            return self._keys
        except AttributeError:
            self._keys = ordered(self)
            return self._keys

    def pairs(self) -> list[tuple[Any, Any]]:
        """Return keys and values, by key."""
        return [(key, self[key]) for key in self.ordered()]


class Set(frozenset[Any]):
    """A set of values."""

    __slots__ = ("_members",)
    _members: tuple[Any, ...]

    def ordered(self) -> tuple[Any, ...]:
        """Return the members in the order of Rego."""
        try:
            return self._members
        except AttributeError:
            self._members = ordered(self)
            return self._members


EMPTY_OBJECT: Final = Object()
EMPTY_SET: Final = Set()


def boolean(held: object) -> Atom:
    """Make a Rego boolean."""
    return TRUE if held else FALSE


def sort_key(value: Any) -> tuple[Any, ...]:
    """Return a key by which Python sorts as Rego does: null, booleans, numbers, strings, arrays, objects, sets."""
    kind = value.__class__
    if kind is str:
        return (3, value)
    if kind is int or kind is Decimal:
        return (2, value)
    if kind is tuple:
        return (4, tuple(map(sort_key, value)))
    if kind is Object:
        return (5, tuple((sort_key(key), sort_key(value[key])) for key in value.ordered()))
    if kind is Set:
        return (6, tuple(map(sort_key, value.ordered())))
    rank: tuple[int, int] = value.rank
    return rank


def ordered(values: Iterable[Any]) -> tuple[Any, ...]:
    """Sort values of any kinds."""
    found = list(values)
    if len(found) < 2:  # noqa: PLR2004 - nothing to sort
        return tuple(found)
    kinds = {value.__class__ for value in found}
    if kinds <= {str} or kinds <= {int, Decimal}:
        found.sort()
    else:
        found.sort(key=sort_key)
    return tuple(found)


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1."""
    if left == right:
        return 0
    kind = left.__class__
    if kind is right.__class__ and (kind is str or kind is int):
        return -1 if left < right else 1
    return -1 if sort_key(left) < sort_key(right) else 1


TYPE_NAMES: Final[dict[type, str]] = {
    str: "string", int: "number", Decimal: "number", tuple: "array", Object: "object", Set: "set",
}  # fmt: skip


def type_name(value: Any) -> str:
    """Return the name that `type_name` gives."""
    if value is NULL:
        return "null"
    return TYPE_NAMES.get(value.__class__, "boolean")
