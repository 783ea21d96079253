"""Test cases in the folder of a plugin, in `tests/*.toml`: read them, judge results, write reports. Runs nothing.

    [[case]]
    name = "counts words"
    tool = "word_count"
    arguments = {text = "so long"}
    expect = {pattern = "2 words"}

`expect` has `text` (equal), `pattern` (a regular expression of RE2 that is found in the text), `structured` (equal),
`schema` (of the structured result, or of the text as JSON), `error` (a code, or true for any). Without it, the call
must succeed. TOML has no null: `arguments`, `structured` and `schema` may also be a string of JSON.
"""

import os
import re
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from anyplug.formats.shared import manifest
from anyplug.home import untrusted_files
from anyplug.home.untrusted_files import Budget
from anyplug.model import foreign_patterns, schema
from anyplug.model.errors import AnyplugError
from anyplug.model.types import Result

FOLDER: Final = "tests"
REAL_FOLDER: Final = f"{FOLDER} must be a folder with files of its own, not a link: replace the link"
SHOWN: Final = 500  # characters of a text in a failure
MOST_FILES: Final = 1000

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TOML_CONTROL = re.compile(r'[\x00-\x1f\x7f"\\]')


class BadCases(AnyplugError):
    """A file of test cases cannot be used."""

    code = "bad_tests"


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a result must be."""

    text: str | None = None
    pattern: str | None = None
    structured: Any = msgspec.UNSET
    schema: Any = msgspec.UNSET
    error: str | bool = False


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call and what must come of it."""

    tool: str
    name: str = ""
    arguments: Any = {}
    expect: Expectation = Expectation()
    file: str = ""  # set when it is read

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.name or self.tool


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    case: tuple[Case, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a case."""

    case: Case
    failures: tuple[str, ...]  # none: it passed
    duration_ms: float


def read(folder: str) -> list[Case]:
    """Read all cases of a plugin. Raises BadCases."""
    try:
        with untrusted_files.hold(folder) as held, held.folder(FOLDER) as cases:
            names = [name for name in cases.names(Budget()) if name.endswith(".toml")]
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise BadCases(f"{FOLDER} in {folder} cannot be read: {error.strerror}", REAL_FOLDER) from error
    return [case for name in names[:MOST_FILES] for case in _cases(folder, name)]


def write(folder: str, name: str, text: str) -> str:
    """Add a case to a file in a plugin's folder, which may be a stranger's; return its path. Raises BadCases."""
    path = os.path.join(folder, FOLDER, name)
    try:
        with untrusted_files.hold(folder) as held, held.make_folders(FOLDER) as cases:
            is_first = not os.path.lexists(path)
            cases.write(name, (text if is_first else f"\n{text}").encode(), appends=True)
    except OSError as error:
        raise BadCases(f"cannot write {path}: {error.strerror}", REAL_FOLDER) from error
    return path


def write_report(folder: str, path: str, text: str) -> None:
    """Write a report where the person said, through no link in the plugin's folder. Raises BadCases and OSError."""
    whole = os.path.abspath(path)
    real = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(path))
    if not any(one.startswith(f"{folder}{os.sep}") for one in (real, whole)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    inside, name = os.path.split(os.path.relpath(whole, folder))
    try:
        with untrusted_files.hold(folder) as held, held.make_folders(inside) as place:
            place.write(name, text.encode())
    except OSError as error:
        raise BadCases(f"cannot write {path}: {error.strerror}", "choose another path with --junit") from error


def _cases(folder: str, name: str) -> list[Case]:
    path = os.path.join(folder, FOLDER, name)
    try:
        found = msgspec.toml.decode(manifest.read_file(path, folder=folder), type=_File).case
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise BadCases(f"{FOLDER}/{name} cannot be used: {error}", "see `anyplug test --help` for the form") from error
    return [_checked(msgspec.structs.replace(case, file=f"{FOLDER}/{name}")) for case in found]


def _checked(case: Case) -> Case:
    arguments = _value(case.arguments, case, "arguments")
    if not isinstance(arguments, dict):
        raise BadCases(f"{case.file}: the arguments of '{case.title}' are not an object", "write {name = value}")
    expect = case.expect
    if expect.pattern is not None:
        try:
            foreign_patterns.compiled(expect.pattern)
        except foreign_patterns.BadPattern as error:
            invalid = f"{case.file}: the pattern of '{case.title}' is invalid: {error}"
            raise BadCases(invalid, "write it in RE2's syntax, without look-around and references to groups") from error
    wanted = expect.schema if expect.schema is msgspec.UNSET else _value(expect.schema, case, "schema")
    if wanted is not msgspec.UNSET and (not isinstance(wanted, dict) or schema.fault(wanted)):
        raise BadCases(f"{case.file}: the schema of '{case.title}' is invalid", "write a JSON Schema")
    structured = expect.structured
    if isinstance(structured, str):
        structured = _value(structured, case, "structured")
    expect = msgspec.structs.replace(expect, schema=wanted, structured=structured)
    return msgspec.structs.replace(case, arguments=arguments, expect=expect)


def _value(given: Any, case: Case, what: str) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadCases(f"{case.file}: {what} of '{case.title}' is not JSON: {error}", "write a table") from error


def failures(case: Case, result: Result) -> tuple[str, ...]:
    """Compare a result with what is expected, and return all differences."""
    expect, found = case.expect, list[str]()
    code = result.error.code if result.error is not None else ""
    text = result.text
    if expect.error:
        if not result.is_error:
            found.append(f"it succeeded, and {_named_error(expect.error)} was expected")
        elif isinstance(expect.error, str) and code != expect.error:
            found.append(f"the error is {code}, not {expect.error}: {_message(result)}")
        text = _message(result)
    elif result.is_error:
        return (f"it failed with {code}: {_message(result)}",)
    if expect.text is not None and text != expect.text:
        found.append(f"the text is {_shown(text)}, not {_shown(expect.text)}")
    if expect.pattern is not None and not _is_found(expect.pattern, text):
        found.append(f"the pattern {_shown(expect.pattern)} is not in the text {_shown(text)}")
    if expect.structured is not msgspec.UNSET and result.structured != expect.structured:
        found.append(f"the structured result is {_json(result.structured)}, not {_json(expect.structured)}")
    if expect.schema is not msgspec.UNSET:
        found += _violations(expect.schema, result)
    return tuple(found)


def _is_found(pattern: str, text: str) -> bool:
    """Search as Python does, whose `$` also matches before a last line end."""
    return any(foreign_patterns.is_found(pattern, each) for each in dict.fromkeys((text, text.removesuffix("\n"))))


def _violations(wanted: dict[str, Any], result: Result) -> list[str]:
    value = result.structured
    if value is None:
        try:
            value = msgspec.json.decode(result.text)
        except msgspec.DecodeError:
            return [f"the text is not JSON, so the schema cannot be checked: {_shown(result.text)}"]
    whole = {"type": "object", "properties": {"result": wanted}, "required": ["result"]}
    return [f"the schema is violated: {violation}" for violation in schema.violations(whole, {"result": value})]


def recorded(tool: str, arguments: dict[str, Any], result: Result) -> str:
    """Write the case that this call passes, as TOML."""
    if result.error is not None:
        expect: dict[str, Any] = {"error": result.error.code}
    elif result.structured is not None:
        expect = {"structured": result.structured}
    else:
        expect = {"text": result.text}
    name = f"{tool} {' '.join(f'{key}={_json(value)}' for key, value in arguments.items())}".strip()
    lines = [f"name = {_toml(name[:SHOWN])}", f"tool = {_toml(tool)}"]
    lines += [f"arguments = {_toml_or_json(arguments)}"] if arguments else []
    inner = ", ".join(
        f"{key} = {_toml_or_json(value) if key == 'structured' else _toml(value)}" for key, value in expect.items()
    )
    return "\n".join(["[[case]]", *lines, f"expect = {{{inner}}}", ""])


def junit(plugin: str, outcomes: list[Outcome]) -> str:
    """Write the report that CI systems read."""
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    total = sum(outcome.duration_ms for outcome in outcomes) / 1000
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={_attribute(plugin)} tests="{len(outcomes)}" failures="{failed}" time="{total:.3f}">',
    ]
    for outcome in outcomes:
        case = outcome.case
        opening = f"  <testcase classname={_attribute(case.file)} name={_attribute(case.title)}"
        lines.append(f'{opening} time="{outcome.duration_ms / 1000:.3f}"' + (">" if outcome.failures else "/>"))
        if outcome.failures:
            said = "\n".join(outcome.failures)
            lines.append(f"    <failure message={_attribute(outcome.failures[0])}>{escape(_xml(said))}</failure>")
            lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _named_error(error: str | bool) -> str:
    return f"the error {error}" if isinstance(error, str) else "an error"


def _message(result: Result) -> str:
    return result.error.message if result.error is not None else result.text


def _shown(text: str) -> str:
    whole = _json(text)
    return whole if len(whole) <= SHOWN else f"{whole[:SHOWN]}…"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _toml_or_json(value: Any) -> str:
    """Write a value as TOML, or as a string of JSON if it contains null."""
    return _toml(_json(value)) if isinstance(value, str) or _has_null(value) else _toml(value)


def _has_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(map(_has_null, inner))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + _TOML_CONTROL.sub(_escaped, value) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        pairs = (f"{key if _BARE.fullmatch(key) else _toml(key)} = {_toml(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    return repr(value)


def _escaped(found: re.Match[str]) -> str:
    return {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}.get(found[0]) or f"\\u{ord(found[0]):04x}"
