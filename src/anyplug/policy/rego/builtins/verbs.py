"""Go's fmt verbs, for `sprintf`: as OPA calls it, with strings, integers, floats, and everything else as text."""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from anyplug.policy.rego import numbers
from anyplug.policy.rego.errors import NotSupported
from anyplug.policy.rego.texts import rego_string, rego_text

MAX_WIDTH: Final = 10_000  # of one verb
_VERB: Final = re.compile(r"%([-+# 0]*)(\[\d+\])?(\*|\d+)?(?:\.(\[\d+\])?(\*|\d+)?)?(\[\d+\])?(.?)", re.DOTALL)
_SHIFT: Final = 21  # decimal exponent from which %v of a float is written with e
_WIDE: Final = Context(prec=MAX_WIDTH + numbers.MAX_EXPONENT * 2)


def sprintf(form: str, args: tuple[Any, ...]) -> str:  # noqa: C901 - the parts of a verb, in their order
    """Format. Raises BuiltinError for widths that nobody means."""
    out: list[str] = []
    used = at = 0
    reordered = False
    while (sign := form.find("%", at)) >= 0:
        out.append(form[at:sign])
        match = _VERB.match(form, sign)
        assert match is not None
        flags, first, width, second, precision, third, verb = match.groups()
        at = match.end()
        has_point = "." in match[0][: len(match[0]) - 1]
        if first or second or third:
            reordered = True
            used = int((third or second or first)[1:-1]) - 1
        if not verb:
            out.append("%!(NOVERB)")
            continue
        if verb == "%":
            out.append("%")
            continue
        size = prec = None
        if width == "*":
            size, used = _star(args, used), used + 1
            if size is None:
                out.append("%!(BADWIDTH)")
            elif size < 0:
                flags, size = flags + "-", -size
        elif width:
            size = int(width)
        if precision == "*":
            prec, used = _star(args, used), used + 1
            if prec is None:
                out.append("%!(BADPREC)")
        elif has_point:
            prec = int(precision or 0)
        if (size or 0) > MAX_WIDTH or (prec or 0) > MAX_WIDTH:
            msg = f"width of more than {MAX_WIDTH}"
            raise NotSupported(msg)
        if not 0 <= used < len(args):
            out.append(f"%!{verb}(BADINDEX)" if reordered else f"%!{verb}(MISSING)")
            continue
        out.append(_one(verb, flags, size, prec, args[used]))
        used += 1
    out.append(form[at:])
    if not reordered and used < len(args):
        extra = ", ".join(f"{_go_type(arg)}={_shown(arg)}" for arg in args[used:])
        out.append(f"%!(EXTRA {extra})")
    return "".join(out)


def _star(args: tuple[Any, ...], used: int) -> int | None:
    value = args[used] if used < len(args) else None
    return value if value.__class__ is int and abs(value) <= MAX_WIDTH else None


def _go_type(arg: Any) -> str:
    if arg.__class__ is int:
        return "int" if -(1 << 63) <= arg < 1 << 63 else "*big.Int"
    return "float64" if arg.__class__ is Decimal else "string"


def _shown(arg: Any) -> str:
    """Write an argument as %v does."""
    if arg.__class__ is str:
        return arg
    if arg.__class__ is Decimal:
        return _general(arg, None)
    return rego_text(arg)


def _one(verb: str, flags: str, width: int | None, precision: int | None, arg: Any) -> str:
    kind = arg.__class__
    if verb == "T":
        return _padded(_go_type(arg), flags, width)
    if kind is int:
        return _integer(verb, flags, width, precision, arg)
    if kind is Decimal:
        return _float(verb, flags, width, precision, arg)
    return _string(verb, flags, width, precision, arg if kind is str else rego_text(arg))


def _padded(text: str, flags: str, width: int | None, *, zero: bool = False) -> str:
    if width is None or len(text) >= width:
        return text
    if "-" in flags:
        return text.ljust(width)
    if zero and "0" in flags:
        sign = text[0] if text[:1] in {"+", "-", " "} else ""
        return sign + text[len(sign) :].rjust(width - len(sign), "0")
    return text.rjust(width)


def _string(verb: str, flags: str, width: int | None, precision: int | None, text: str) -> str:
    if verb not in {"s", "v", "q", "x", "X"}:
        return f"%!{verb}(string={text})"
    if precision is not None and verb not in {"x", "X"}:
        text = text[:precision]
    if verb == "q" or (verb == "v" and "#" in flags):
        text = f"`{text}`" if "#" in flags and verb == "q" and "`" not in text else rego_string(text)
    elif verb in {"x", "X"}:
        raw = text.encode()[: precision if precision is not None else None]
        text = raw.hex(" ") if " " in flags else raw.hex()
        text = ("0x" if "#" in flags and text else "") + text
        text = text.upper() if verb == "X" else text
    return _padded(text, flags, width, zero=True)


def _integer(verb: str, flags: str, width: int | None, precision: int | None, value: int) -> str:
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    forms = {"d": "d", "v": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
    if verb in forms:
        digits = format(abs(value), forms[verb])
        if precision is not None:
            digits = digits.rjust(precision, "0") if precision or value else ""
        if verb == "O":
            digits = "0o" + digits
        elif "#" in flags:
            digits = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}.get(verb, "") + digits
        return _padded(sign + digits, flags, width, zero=precision is None)
    if verb == "s" and _go_type(value) == "*big.Int":
        return _padded(sign + str(abs(value)), flags, width)
    if verb == "c":
        return _padded(_char(value), flags, width)
    if verb == "q":
        return _padded("'" + _char(value).replace("\\", "\\\\").replace("'", "\\'") + "'", flags, width)
    if verb == "U":
        return _padded(f"U+{value:04X}" + (f" '{_char(value)}'" if "#" in flags else ""), flags, width)
    if verb in {"e", "E", "f", "F", "g", "G", "s", "t"} or not verb.isalpha():
        return f"%!{verb}({_go_type(value)}={value})"
    return f"%!{verb}({_go_type(value)}={value})"


def _char(value: int) -> str:
    return chr(value) if 0 <= value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"  # noqa: PLR2004 - Unicode


def _float(verb: str, flags: str, width: int | None, precision: int | None, value: Decimal) -> str:
    if verb == "s":
        return f"%!s(float64={_general(value, None)})"
    if verb in {"f", "F"}:
        text = _fixed(value, 6 if precision is None else precision)
    elif verb in {"e", "E"}:
        text = _exponent(value, 6 if precision is None else precision)
    elif verb in {"g", "G", "v"}:
        text = _general(value, precision)
    else:
        return f"%!{verb}(float64={_general(value, None)})"
    text = text.upper() if verb in {"E", "G"} else text
    if not text.startswith("-"):
        text = ("+" if "+" in flags else " " if " " in flags else "") + text
    return _padded(text, flags, width, zero=True)


def _fixed(value: Decimal, precision: int) -> str:
    numbers.fraction(value)
    return format(value.quantize(Decimal(1).scaleb(-precision), rounding=ROUND_HALF_EVEN, context=_WIDE), "f")


def _exponent(value: Decimal, precision: int) -> str:
    mantissa, _, exponent = format(value, f".{precision}e").partition("e")
    number = int(exponent)
    return f"{mantissa}e{'-' if number < 0 else '+'}{abs(number):02d}"


def _general(value: Decimal, precision: int | None) -> str:
    """Write the shortest text that means a float64, as %v and %g do."""
    value = Decimal(format(value, f".{max(precision, 1)}g")) if precision is not None else Decimal(repr(float(value)))
    if not value.is_finite():
        return "-Inf" if value < 0 else "+Inf"
    if not value:
        return "0"
    value = value.normalize()
    shift = _SHIFT if precision is None else max(precision, 1)
    if -4 <= value.adjusted() < shift:  # noqa: PLR2004 - as C's %g
        return format(value, "f")
    digits = "".join(map(str, value.as_tuple().digits))
    exponent = value.adjusted()
    sign = "-" if value < 0 else ""
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
