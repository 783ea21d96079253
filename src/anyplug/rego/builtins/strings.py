"""Strings."""

import unicodedata
from typing import Any, Final

from anyplug.rego.builtins.builtin_table import ANY, ARRAY, NUMBER, OBJECT, STRING, builtin, need_integer, wrong
from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported, OperandError, RegoErrors
from anyplug.rego.values.values import Set, boolean, type_name

TEXTS: Final[frozenset[Any]] = frozenset({tuple, Set})
SPACE: Final = (  # what Go takes for white space
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
BASES: Final = {2: "b", 8: "o", 10: "d", 16: "x"}
PER_STEP: Final = 8  # characters that are written for the price of one step


def _strings(index: int, value: Any) -> tuple[str, ...]:
    """Return the texts of an array or set."""
    if value.__class__ not in TEXTS:
        raise wrong(index, "one of {set, array}", value)
    members: tuple[str, ...] = value.ordered() if isinstance(value, Set) else value
    for item in members:
        if item.__class__ is not str:
            kind = type_name(value)
            msg = f"operand {index} must be {kind} of strings but got {kind} containing {type_name(item)}"
            raise OperandError(msg)
    return members


@builtin("concat", STRING, ANY, context=True)
def concat(context: Any, by: Any, parts: Any) -> Any:
    """Join texts."""
    try:
        found = by.join(parts if parts.__class__ is tuple else _strings(2, parts))
    except TypeError:
        found = by.join(_strings(2, parts))  # which says what is wrong
    context.spend(len(found) // PER_STEP)
    return found


@builtin("contains", STRING, STRING)
def contains(text: Any, part: Any) -> Any:
    """Return whether a text has a part."""
    return boolean(part in text)


@builtin("startswith", STRING, STRING)
def startswith(text: Any, part: Any) -> Any:
    """Return whether a text begins with another."""
    return boolean(text.startswith(part))


@builtin("endswith", STRING, STRING)
def endswith(text: Any, part: Any) -> Any:
    """Return whether a text ends with another."""
    return boolean(text.endswith(part))


def _one(char: str, changed: str) -> str:
    """Map a character as Go does: to one character, or not at all."""
    if len(changed) == 1:
        return changed
    return unicodedata.normalize("NFD", char)[0].lower() if char == "\u0130" else char


@builtin("lower", STRING)
def lower(text: Any) -> Any:
    """Return a text in lower case."""
    return text.lower() if text.isascii() else "".join(_one(char, char.lower()) for char in text)


@builtin("upper", STRING)
def upper(text: Any) -> Any:
    """Return a text in upper case."""
    return text.upper() if text.isascii() else "".join(_one(char, char.upper()) for char in text)


@builtin("format_int", NUMBER, NUMBER)
def format_int(number: Any, base: Any) -> Any:
    """Write a number, cut to an integer, in a base."""
    form = BASES.get(base) if base.__class__ is int else None
    if form is None:
        msg = "operand 2 must be one of {2, 8, 10, 16}"
        raise OperandError(msg)
    cut = number if number.__class__ is int else int(numbers.rounded(numbers.fraction(number)))
    return format(cut, form)


@builtin("indexof", STRING, STRING)
def indexof(text: Any, part: Any) -> Any:
    """Return where a part begins; -1 if nowhere."""
    if not part:
        msg = "empty search character"
        raise BuiltinError(msg)
    return text.find(part)


@builtin("indexof_n", STRING, STRING)
def indexof_n(text: Any, part: Any) -> Any:
    """Return where a part begins, every time."""
    if not part:
        msg = "empty search character"
        raise BuiltinError(msg)
    found = []
    at = text.find(part)
    while at >= 0:
        found.append(at)
        at = text.find(part, at + 1)
    return tuple(found)


def _between_bytes() -> NotSupported:
    return NotSupported("an empty string that is replaced, between the bytes of a text")


@builtin("replace", STRING, STRING, STRING, context=True)
def replace(context: Any, text: Any, old: Any, new: Any) -> Any:
    """Replace a part everywhere."""
    if not old and not text.isascii():
        raise _between_bytes()
    times = text.count(old) if old else len(text) + 1
    context.spend((len(text) + times * len(new)) // PER_STEP)
    return text.replace(old, new)


@builtin("strings.replace_n", OBJECT, STRING, context=True)
def replace_n(context: Any, patterns: Any, text: Any) -> Any:
    """Replace several parts in one pass; of those that fit at a place the first by name is taken."""
    for old, new in patterns.items():
        if old.__class__ is not str or new.__class__ is not str:
            msg = "operand 1 must be object of string keys and values"
            raise OperandError(msg)
    if "" in patterns:
        raise _between_bytes()
    olds = patterns.ordered()
    out: list[str] = []
    at = size = 0
    while at <= len(text):
        for old in olds:
            if text.startswith(old, at) and old:
                out.append(patterns[old])
                at += len(old)
                break
        else:
            out.append(text[at : at + 1])
            at += 1
        size += len(out[-1]) + 1
        context.spend((size >> 3) - ((size - len(out[-1]) - 1) >> 3))
    return "".join(out)


@builtin("strings.reverse", STRING)
def reverse(text: Any) -> Any:
    """Return the last character first."""
    return text[::-1]


@builtin("strings.count", STRING, STRING)
def count(text: Any, part: Any) -> Any:
    """Count a part, without overlaps."""
    return text.count(part)


def _any_fits(name: str, test: str) -> None:
    @builtin(f"strings.any_{name}_match", ANY, ANY)
    def fits(texts: Any, parts: Any) -> Any:
        ours = (texts,) if texts.__class__ is str else _mixed(1, texts)
        theirs = (parts,) if parts.__class__ is str else _mixed(2, parts)
        return boolean(any(getattr(text, test)(theirs) for text in ours))


def _mixed(index: int, value: Any) -> tuple[str, ...]:
    if value.__class__ not in TEXTS:
        raise wrong(index, "one of {string, set, array}", value)
    return _strings(index, value)


_any_fits("prefix", "startswith")
_any_fits("suffix", "endswith")


@builtin("split", STRING, STRING)
def split(text: Any, by: Any) -> Any:
    """Cut a text; by nothing, into its characters."""
    return tuple(text.split(by)) if by else tuple(text)


@builtin("strings.split_n", STRING, STRING, NUMBER)
def split_n(text: Any, by: Any, count: Any) -> Any:
    """Cut a text, and return the first parts, or with a negative count the last."""
    number = need_integer(3, count)
    parts = split(text, by)
    return parts[:number] if number >= 0 else parts[max(len(parts) + number, 0) :]


@builtin("substring", STRING, NUMBER, NUMBER)
def substring(text: Any, start: Any, length: Any) -> Any:
    """Return a part of a text; a negative length means all the rest."""
    first, size = need_integer(2, start), need_integer(3, length)
    if first < 0:
        msg = "negative offset"
        raise BuiltinError(msg)
    return text[first:] if size < 0 else text[first : first + size]


@builtin("trim", STRING, STRING)
def trim(text: Any, chars: Any) -> Any:
    """Remove characters at both ends."""
    return text.strip(chars) if chars else text


@builtin("trim_left", STRING, STRING)
def trim_left(text: Any, chars: Any) -> Any:
    """Remove characters at the beginning."""
    return text.lstrip(chars) if chars else text


@builtin("trim_right", STRING, STRING)
def trim_right(text: Any, chars: Any) -> Any:
    """Remove characters at the end."""
    return text.rstrip(chars) if chars else text


@builtin("trim_prefix", STRING, STRING)
def trim_prefix(text: Any, part: Any) -> Any:
    """Remove a prefix, if present."""
    return text.removeprefix(part)


@builtin("trim_suffix", STRING, STRING)
def trim_suffix(text: Any, part: Any) -> Any:
    """Remove a suffix, if present."""
    return text.removesuffix(part)


@builtin("trim_space", STRING)
def trim_space(text: Any) -> Any:
    """Remove white space at both ends."""
    return text.strip(SPACE)


@builtin("sprintf", STRING, ARRAY, context=True)
def sprintf(context: Any, text: Any, args: Any) -> Any:
    """Format as Go's fmt.Sprintf does."""
    # the verbs are a module of their own, and most policies do without
    from anyplug.rego.builtins import verbs

    found = verbs.sprintf(text, args)
    context.spend(len(found) // PER_STEP)
    return found


@builtin("strings.render_template", STRING, OBJECT, context=True)
def render_template(context: Any, text: Any, values: Any) -> Any:
    """Fill in a template of Go's."""
    # a module of its own that few policies need
    from anyplug.rego.builtins import templates

    try:
        return templates.render(context, text, values).replace("<no value>", "<undefined>")
    except (BuiltinError, TypeError, RegoErrors) as error:  # Go may know what we do not
        raise NotSupported(str(error)) from None
