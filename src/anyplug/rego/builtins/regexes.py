"""Regular expressions: RE2's own engine, so that syntax and meaning are RE2's, and time grows with the text only."""

import functools
import importlib.util
import re
from collections.abc import Iterator
from typing import Any, Final

from anyplug.rego.builtins import globs
from anyplug.rego.builtins.builtin_table import ANY, NUMBER, STRING, TABLE, builtin, can_be_read, need_integer
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported
from anyplug.rego.values.values import FALSE, TRUE, boolean

MAX_PATTERNS: Final = 256  # compiled ones that are kept
MAX_MEMORY: Final = 8 << 20  # bytes for one pattern: RE2 works on, more slowly, where more would be needed
PER_STEP: Final = 16  # characters that are looked at for the price of one step
_SPACED: Final = re.compile(r"\\[pP]\{\^?[A-Za-z0-9_]*[^A-Za-z0-9_}^]")
_WIDE_NAME: Final = re.compile(r"\$\{?[A-Za-z0-9_]*[^\x00-\x7f]")
_NAME: Final = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)


@functools.cache
def _engine() -> Any:
    # 4 ms of start-up that only policies with patterns need
    import re2

    return re2


@functools.lru_cache(MAX_PATTERNS)
def compiled(pattern: str) -> Any:
    """Compile a pattern. Raises BuiltinError."""
    if "\\p{" in pattern.lower() and _SPACED.search(pattern):
        msg = "a class of Unicode written with other than letters, digits and _"
        raise NotSupported(msg)
    engine = _engine()
    options = engine.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    try:
        return engine.compile(pattern, options)
    except engine.error as error:
        reason = error.args[0] if error.args else "invalid pattern"
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        msg = f"error parsing regexp: {reason}"
        if "\\p" in pattern.lower():  # Go knows more names of classes than RE2
            raise NotSupported(msg) from None
        raise BuiltinError(msg) from None


def _matches(context: Any, pattern: str, text: str, most: int = -1) -> Iterator[Any]:
    """Return matches as Go does: an empty one right behind another is left out."""
    if "\\B" in pattern and not text.isascii():
        msg = "\\B in a text beyond ASCII, where Go and RE2 differ"
        raise NotSupported(msg)
    context.spend(len(text) // PER_STEP)
    behind, found = -1, 0
    for match in compiled(pattern).finditer(text):
        if 0 <= most <= found:
            return
        context.spend(1)
        start, end = match.span()
        if start != end or start != behind:
            found += 1
            yield match
        behind = end


@builtin("regex.match", STRING, STRING, context=True)
def match(context: Any, pattern: Any, text: Any) -> Any:
    """Return whether a pattern fits somewhere."""
    if "\\B" in pattern and not text.isascii():
        msg = "\\B in a text beyond ASCII, where Go and RE2 differ"
        raise NotSupported(msg)
    context.spend(len(text) // PER_STEP)
    return TRUE if compiled(pattern).search(text.encode()) is not None else FALSE  # no offsets, no need for str


@builtin("regex.is_valid", ANY)
def is_valid(pattern: Any) -> Any:
    """Return whether a text is a pattern."""
    return can_be_read(compiled, pattern)


@builtin("regex.find_n", STRING, STRING, NUMBER, context=True)
def find_n(context: Any, pattern: Any, text: Any, most: Any) -> Any:
    """Return what fits, at most so many times."""
    return tuple(found[0] for found in _matches(context, pattern, text, need_integer(3, most)))


@builtin("regex.find_all_string_submatch_n", STRING, STRING, NUMBER, context=True)
def find_all_string_submatch_n(context: Any, pattern: Any, text: Any, most: Any) -> Any:
    """Return what fits and its groups, at most so many times."""
    return tuple(
        (found[0], *(group or "" for group in found.groups()))
        for found in _matches(context, pattern, text, need_integer(3, most))
    )


@builtin("regex.split", STRING, STRING, context=True)
def split(context: Any, pattern: Any, text: Any) -> Any:
    """Cut a text where a pattern fits."""
    if compiled(pattern) and pattern and not text:
        return ("",)
    parts: list[str] = []
    begin = end = 0
    for found in _matches(context, pattern, text):
        start, stop = found.span()
        end = start
        if stop:
            parts.append(text[begin:end])
        begin = stop
    if end != len(text):
        parts.append(text[begin:])
    return tuple(parts)


@builtin("regex.replace", STRING, STRING, STRING, context=True)
def replace(context: Any, text: Any, pattern: Any, new: Any) -> Any:
    """Replace what fits; $1 and ${name} stand for groups."""
    out: list[str] = []
    at = 0
    for found in _matches(context, pattern, text):
        start, stop = found.span()
        out.append(text[at:start])
        out.append(_expanded(new, found))
        context.spend((len(out[-1]) + len(out[-2])) // PER_STEP)
        at = stop
    return "".join([*out, text[at:]])


def _expanded(template: str, found: Any) -> str:
    if "$" not in template:
        return template
    if _WIDE_NAME.search(template):
        msg = "the name of a group beyond ASCII"
        raise NotSupported(msg)
    names = found.re.groupindex

    def meant(mark: re.Match[str]) -> str:
        dollar, braced, plain = mark.groups()
        if dollar:
            return "$"
        name = braced or plain
        if name.isdigit() and (name == "0" or name[0] != "0"):
            return (found[int(name)] or "") if int(name) <= len(found.groups()) else ""
        return (found[name] or "") if name in names else ""

    return _NAME.sub(meant, template)


@builtin("regex.template_match", STRING, STRING, STRING, STRING)
def template_match(template: Any, text: Any, opening: Any, closing: Any) -> Any:  # noqa: C901 - one branch for each kind
    """Return whether a text fits a template, which has patterns between delimiters."""
    for delimiter in (opening, closing):
        if len(delimiter) != 1 or not delimiter.isascii():
            msg = "expected delimiter to be a single character"
            raise BuiltinError(msg)
    if opening == closing:
        msg = "regex.template_match with one delimiter for both ends"
        raise NotSupported(msg)
    out: list[str] = []
    level = begin = 0
    for index, char in enumerate(template):
        if char == opening and (opening != closing or not level):
            if not level:
                out.append(re.escape(template[begin:index]))
                begin = index + 1
            level += 1
        elif char == closing:
            level -= 1
            if not level:
                out.append(f"({template[begin:index]})")
                begin = index + 1
            elif level < 0:
                break
    if level:
        msg = f'unbalanced braces in "{template}"'
        raise BuiltinError(msg)
    out.append(re.escape(template[begin:]))
    return boolean(compiled(f"^{''.join(out)}$").search(text) is not None)


@builtin("regex.globs_match", STRING, STRING, context=True)
def globs_match(context: Any, left: Any, right: Any) -> Any:
    """Return whether some text fits both of two simple patterns."""
    return boolean(globs.Intersection(context, globs.tokens(left), globs.tokens(right)).exists())


@builtin("glob.match", STRING, ANY, STRING, context=True)
def glob_match(context: Any, pattern: Any, delimiters: Any, text: Any) -> Any:
    """Return whether a text fits a glob."""
    context.spend(len(text) // PER_STEP)
    return boolean(compiled(globs.pattern(pattern, globs.delimiters(delimiters))).search(text.encode()) is not None)


@builtin("glob.quote_meta", STRING)
def glob_quote_meta(text: Any) -> Any:
    """Write a text so that a glob means just it."""
    return "".join("\\" + char if char in "*?\\[]{}" else char for char in text)


if importlib.util.find_spec("re2") is None:  # what would fail at each call is refused when a policy is loaded
    for _builtin in TABLE.values():
        if _builtin.name.startswith(("regex.", "glob.match")):
            _builtin.refused = "google-re2 is not installed"
