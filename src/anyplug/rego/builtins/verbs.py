"""Go's fmt verbs, for `sprintf`: as OPA calls it, with strings, integers, floats, and everything else as text.

What a format may hold beyond the verbs and flags that policies use is refused, and never written wrongly.
"""

import math
import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from anyplug.rego.values import numbers
from anyplug.rego.values.rego_errors import NotSupported
from anyplug.rego.values.text import rego_string, rego_text

MAX_WIDTH: Final = 10_000  # of one verb
_VERB: Final = re.compile(r"%([-+# 0]*)(\[\d+\])?(\*|\d+)?(\.(?:\*|\d*))?(\[\d+\])?(.?)", re.DOTALL)
_SHIFT: Final = 6  # decimal exponent from which the shortest text of a float is written with e
_WIDE: Final = Context(prec=MAX_WIDTH + numbers.MAX_EXPONENT * 2)
_BASES: Final = {"d": "d", "v": "d", "b": "b", "o": "o", "x": "x", "X": "X"}


def sprintf(form: str, args: tuple[Any, ...]) -> str:  # noqa: C901 - the parts of a verb, in their order
    """Format. Raises NotSupported for what is not written as Go does."""
    out: list[str] = []
    used = at = 0
    reordered = False
    while (sign := form.find("%", at)) >= 0:
        out.append(form[at:sign])
        match = _VERB.match(form, sign)
        assert match is not None
        flags, first, width, precision, second, verb = match.groups()
        at = match.end()
        if match[0] in {"%%", "%"}:
            out.append("%" if verb else "%!(NOVERB)")
            continue
        if not verb.isalpha() or "#" in flags or (first and (second or width)) or (second and "*" in match[0]):
            raise _refused(match[0])
        if index := first or second:
            reordered = True
            used = int(index[1:-1]) - 1
            if not 0 <= used < len(args):
                raise _refused(match[0])
        if width == "*":
            size: int | None = _star(args, used)
            used += 1
            if size is not None and size < 0:
                flags, size = flags + "-", -size
        else:
            size = None if width is None else int(width)
        if precision == ".*":
            prec: int | None = _star(args, used)
            used += 1
        else:
            prec = None if precision is None else int(precision[1:] or 0)
        if (size is None and width) or (prec is None and precision) or (prec or 0) < 0:
            raise _refused(match[0])
        if (size or 0) > MAX_WIDTH or (prec or 0) > MAX_WIDTH:
            msg = f"width of more than {MAX_WIDTH}"
            raise NotSupported(msg)
        if used >= len(args):
            out.append(f"%!{verb}(MISSING)")
            continue
        found = _one(verb, flags, size, prec, _argument(args[used]))
        if found is None:
            raise _refused(match[0])
        out.append(found)
        used += 1
    out.append(form[at:])
    if not reordered and used < len(args):
        extra = ", ".join(f"{_go_type(arg)}={_plain(arg)}" for arg in map(_argument, args[used:]))
        out.append(f"%!(EXTRA {extra})")
    return "".join(out)


def _star(args: tuple[Any, ...], used: int) -> int | None:
    value = args[used] if used < len(args) else None
    return value if value.__class__ is int and abs(value) <= MAX_WIDTH else None


def _refused(verb: str) -> NotSupported:
    return NotSupported(f"the format {verb} is not supported")


def _argument(arg: Any) -> str | int | float:
    """Return an argument as OPA passes it on: what is not a number, and what is too large for one, as text."""
    if arg.__class__ is Decimal:
        found = float(arg)
        return numbers.text(arg) if found in _INFINITE else found
    return arg if arg.__class__ in {int, str} else rego_text(arg)


_INFINITE: Final = frozenset({float("inf"), float("-inf")})


def _go_type(arg: str | float) -> str:
    if isinstance(arg, int):
        return "int64" if -(1 << 63) <= arg < 1 << 63 else "*big.Int"
    return "float64" if isinstance(arg, float) else "string"


def _plain(arg: str | float) -> str:
    """Write an argument as %v does."""
    return general(arg, None) if isinstance(arg, float) else str(arg)


def _one(verb: str, flags: str, width: int | None, precision: int | None, arg: str | float) -> str | None:
    """Write one argument; None for what is refused."""
    if verb == "T" and not flags and precision is None:
        return _padded(_go_type(arg), flags, width)
    if verb == "v" and _go_type(arg) != "*big.Int":  # asks for the names of fields, and OPA passes nothing that has any
        flags = flags.replace("+", "")
    if isinstance(arg, str):
        found = _string(verb, flags, width, precision, arg)
    elif isinstance(arg, int):
        found = _integer(verb, flags, width, precision, arg)
    else:
        found = _float(verb, flags, width, precision, arg)
    if found is None and not flags and width is None and precision is None and _go_type(arg) != "*big.Int":
        known = verb in "qxXvbcdoOU" if isinstance(arg, int) else verb in "bxXv" if isinstance(arg, float) else False
        return None if known or verb == "T" else f"%!{verb}({_go_type(arg)}={_plain(arg)})"
    return found


def _padded(text: str, flags: str, width: int | None, *, zero: bool = False) -> str:
    if width is None or len(text) >= width:
        return text
    if "-" in flags:
        return text.ljust(width)
    if zero and "0" in flags:
        sign = text[0] if text[:1] in {"+", "-", " "} else ""
        return sign + text[len(sign) :].rjust(width - len(sign), "0")
    return text.rjust(width)


def _string(verb: str, flags: str, width: int | None, precision: int | None, text: str) -> str | None:
    if verb not in {"s", "v", "q", "x", "X"} or flags.strip("-"):
        return None
    if precision is not None:
        text = (
            text[:precision] if verb not in {"x", "X"} else text.encode()[:precision].decode("utf-8", "surrogateescape")
        )
    if verb == "q":
        text = rego_string(text)
    elif verb in {"x", "X"}:
        text = text.encode("utf-8", "surrogateescape").hex()
        text = text.upper() if verb == "X" else text
    return _padded(text, flags, width)


def _integer(verb: str, flags: str, width: int | None, precision: int | None, value: int) -> str | None:
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    if _go_type(value) == "*big.Int":
        verb = "d" if verb == "s" else verb
        if verb not in _BASES or flags.strip("-") or precision is not None:
            return None
    if verb in _BASES:
        digits = format(abs(value), _BASES[verb])
        if precision is not None:
            if not precision and not value:
                return None
            digits = digits.rjust(precision, "0")
        return _padded(sign + digits, flags, width, zero=precision is None)
    if verb == "c" and not flags.strip("-") and precision is None:
        return _padded(_char(value), flags, width)
    return None


def _char(value: int) -> str:
    return chr(value) if 0 <= value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"  # noqa: PLR2004 - Unicode


def _float(verb: str, flags: str, width: int | None, precision: int | None, value: float) -> str | None:
    if verb in {"f", "F"}:
        text = _fixed(value, 6 if precision is None else precision)
    elif verb in {"e", "E"}:
        text = _exponent(value, 6 if precision is None else precision)
    elif verb in {"g", "G", "v"}:
        text = general(value, precision)
    else:
        return None
    text = text.upper() if verb in {"E", "G"} else text
    if not text.startswith("-"):
        text = ("+" if "+" in flags else " " if " " in flags else "") + text
    return _padded(text, flags, width, zero=True)


def _fixed(value: float, precision: int) -> str:
    return format(Decimal(value).quantize(Decimal(1).scaleb(-precision), ROUND_HALF_EVEN, _WIDE), "f")


def _exponent(value: float, precision: int) -> str:
    mantissa, _, exponent = format(value, f".{precision}e").partition("e")
    number = int(exponent)
    return f"{mantissa}e{'-' if number < 0 else '+'}{abs(number):02d}"


def general(value: float, precision: int | None = None) -> str:
    """Write the shortest text that means a float, as %v and %g do, or so many digits."""
    if not value:
        return "-0" if math.copysign(1, value) < 0 else "0"
    short = Decimal(format(value, f".{max(precision, 1)}g") if precision is not None else repr(value)).normalize(_WIDE)
    shift = _SHIFT if precision is None else max(precision, 1)
    if precision is not None and shift > len(short.as_tuple().digits) > short.adjusted():
        shift = len(short.as_tuple().digits)
    if -4 <= short.adjusted() < shift:  # noqa: PLR2004 - as C's %g
        return format(short, "f")
    digits = "".join(map(str, short.as_tuple().digits))
    exponent = short.adjusted()
    sign = "-" if short < 0 else ""
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
