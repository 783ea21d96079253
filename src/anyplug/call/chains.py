"""Chains: tools called one after another, each with the results of those before it, as in Workbench.

A step is {"tool": NAME, "input": {...}, "outputKey": NAME}. `{{path}}` in a string of an input stands for a value of
the context, which has the result of each step, {content, metadata?, error?}, under its outputKey, under `step<i>`
counted from 0, and the newest under `lastResult`. Knows no host: the caller passes a function that calls a tool.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from anyplug.call.state import warned
from anyplug.formats import registry
from anyplug.model.errors import AnyplugError, CallError
from anyplug.model.json_values import kind
from anyplug.model.late_patterns import late
from anyplug.model.types import Failure, Result, Text

MAX_STEPS = 1_000  # more is a program's work, not a list's
MAX_FILLED = 16 << 20  # bytes that placeholders may add to one input: {{lastResult}} twice in each step doubles it
NAMED = 10  # faults of a chain, or unknown placeholders, that are listed
LONGEST_NAME = 100  # characters of each of these

OPEN, CLOSE = "{{", "}}"
PART = "use only a part of an earlier result, such as {{step0.content}}"
FIELDS = ("tool", "input", "outputKey")
MEANT = {"name": "tool", "args": "input", "arguments": "input", "params": "input", "parameters": "input"}
VIEW = ("content", "metadata", "error")  # keys that a tool's own never hide
IN_A_LIST = ["content", "0", "text"]  # where the text is if content is a list of blocks
SMALLEST_PLAIN, LARGEST_PLAIN = 1e-6, 1e21  # numbers that JavaScript writes without an exponent

_INDEX = late(r"0|[1-9][0-9]{0,8}")
_EXPONENT_ZEROS = late(r"(?<=e[+-])0+")
_MISSING = object()


class Step(msgspec.Struct, frozen=True):
    """One call of a chain."""

    tool: str
    input: dict[str, Any] = {}
    output_key: str = msgspec.field(default="", name="outputKey")


class Chain(msgspec.Struct, frozen=True):
    """Steps, and what is wrong with keys in them that are not ours; Workbench ignores those."""

    steps: tuple[Step, ...]
    unknown: tuple[str, ...] = ()


class ChainOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a chain ended. `steps` are the results so far; a failed one is the last."""

    success: bool
    failed_at: int | None = None  # counted from 1
    error: str | None = None
    steps: tuple[Result, ...] = ()
    context: dict[str, Any] = {}


Caller = Callable[[str, dict[str, Any]], Awaitable[Result]]
OnStep = Callable[[int, Result], None]  # a step's number, from 1, and its result


class BadChain(AnyplugError):
    """The input is not a chain."""

    code = "usage"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(
            f"this is not a chain: {_some(faults)}",
            'a chain is a list of steps like {"tool": "NAME", "input": {...}, "outputKey": "NAME"}',
        )


class InputUnusable(CallError):
    """An input cannot be built from its placeholders."""

    code = "invalid_arguments"


def read_chain(given: Any) -> Chain:
    """Read a chain: a list of steps, or an object that has one under "steps". Raises BadChain with every fault."""
    listed = given.get("steps", _MISSING) if isinstance(given, Mapping) else given
    if listed is _MISSING:
        raise BadChain(['the object has no "steps"'])
    if not isinstance(listed, list | tuple):
        raise BadChain([f"the steps must be a list, not {kind(listed)}"])
    if not listed:
        raise BadChain(["it has no steps"])
    if len(listed) > MAX_STEPS:
        raise BadChain([f"there are {len(listed):,} steps, but at most {MAX_STEPS:,} can run"])
    faults: list[str] = []
    unknown: list[str] = []
    steps = [_step(number, item, faults, unknown) for number, item in enumerate(listed, 1)]
    if faults:
        raise BadChain([*faults, *unknown])
    return Chain(tuple(steps), tuple(unknown))


async def run_chain(
    call: Caller, steps: Sequence[Step], on_step: OnStep = lambda _number, _result: None
) -> ChainOutcome:
    """Run steps up to the first that fails. Raises only what `call` raises."""
    context: dict[str, Any] = {}
    results: list[Result] = []
    for at, step in enumerate(steps):
        filling = Filling(context, at + 1)
        try:
            result = await call(step.tool, filling.input_of(step))
        except InputUnusable as error:
            result = _refused(step, error)
        keys = [step.output_key, f"step{at}", "lastResult"]
        context.update(dict.fromkeys(filter(None, keys), view(result)))
        results.append(warned(result, filling.warnings))
        on_step(at + 1, results[-1])
        if result.is_error:
            said = _error(step, result)
            return ChainOutcome(success=False, failed_at=at + 1, error=said, steps=tuple(results), context=context)
    return ChainOutcome(success=True, steps=tuple(results), context=context)


def view(result: Result) -> dict[str, Any]:
    """Return a result as placeholders see it; the keys of structured output are next to `content`."""
    content: Any = [msgspec.to_builtins(block) for block in result.content]
    format = registry.BY_NAME.get(result.format)
    is_blocks = format is not None and format.CONTENT_IS_BLOCKS
    if len(result.content) == 1 and isinstance(result.content[0], Text) and not is_blocks:
        content = result.content[0].text
    seen = {"content": content} | ({"metadata": result.metadata} if result.metadata else {})
    if result.is_error:
        seen["error"] = _message(result)
    if isinstance(result.structured, dict):
        seen.update((key, value) for key, value in result.structured.items() if key not in VIEW)
    elif result.structured is not None and not result.metadata:
        seen["metadata"] = result.structured  # of any type, as in Workbench
    return seen


class Filling:
    """Fills the placeholders of one input."""

    def __init__(self, context: Mapping[str, Any], number: int = 1) -> None:
        """Start with the input of the step with this number."""
        self._context = context
        self._number = number
        self._filled = 0  # bytes
        self.unknown: dict[str, None] = {}  # unknown paths, in order

    @property
    def warnings(self) -> list[str]:
        """Warnings about placeholders that were passed on unfilled."""
        named = _some([f"{OPEN}{path}{CLOSE}" for path in self.unknown])
        return [f"no step returned anything for {named}"] if named else []

    def input_of(self, step: Step) -> dict[str, Any]:
        """Fill a step's input. Raises InputUnusable."""
        try:
            return {key: self.fill(value) for key, value in step.input.items()}
        except (RecursionError, UnicodeEncodeError) as error:
            why = "is nested too deeply" if isinstance(error, RecursionError) else "has characters that are not Unicode"
            raise InputUnusable(f"the input of step {self._number} {why}", PART) from error

    def fill(self, value: Any) -> Any:
        """Fill every string in a value, except for the keys of objects."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {key: self.fill(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        r"""Replace what the original finds with /\{\{([^}]+)\}\}/g, which takes quadratic time for "{{{{{{"."""
        pieces, done, at = [], 0, 0
        while (close := text.find("}", at)) >= 0:
            begin = text.find(OPEN, at, max(close - 1, 0))  # with at least one character between the braces
            at = close + 1
            if begin >= 0 and text.startswith(CLOSE, close):
                at = close + len(CLOSE)
                pieces += [text[done:begin], self._value(text[begin + len(OPEN) : close])]
                done = at
        return "".join([*pieces, text[done:]])

    def _value(self, path: str) -> str:
        found = look_up(self._context, path)
        if found is _MISSING:
            self.unknown[path] = None
            return f"{OPEN}{path}{CLOSE}"
        text = found if isinstance(found, str) else stringify(found)
        self._filled += len(text.encode(errors="surrogatepass"))
        if self._filled > MAX_FILLED:
            too_much = f"the placeholders of step {self._number} add more than {MAX_FILLED >> 20} MiB"
            raise InputUnusable(too_much, PART)
        return text


def look_up(context: Mapping[str, Any], path: str) -> Any:
    """Follow a dotted path, through lists by index; return a special value if it leads nowhere.

    Text content is also found under `content.0.text`, so that a chain need not know which form it has.
    """
    first, *rest = path.split(".")
    value = context.get(first, _MISSING)
    if rest == IN_A_LIST and isinstance(value, Mapping) and isinstance(value.get("content"), str):
        return value["content"]
    for part in rest:
        if isinstance(value, Mapping):
            value = value.get(part, _MISSING)
        elif isinstance(value, list | tuple) and _INDEX.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value


def stringify(value: Any) -> str:
    """Encode a value like JSON.stringify; integers of any size stay exact."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_quoted(k)}:{stringify(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(stringify, value)) + "]"
    return _quoted(value)


def _quoted(text: Any) -> str:
    return msgspec.json.encode(str(text)).decode()  # escapes what JavaScript escapes


def _number(value: float) -> str:
    if not isfinite(value):
        return "null"
    if value == 0:
        return "0"  # of either sign
    if SMALLEST_PLAIN <= abs(value) < LARGEST_PLAIN:
        return format(Decimal(repr(value)), "f").removesuffix(".0")
    return _EXPONENT_ZEROS.sub("", repr(value))


def _step(number: int, item: Any, faults: list[str], unknown: list[str]) -> Step:
    """Parse one step; its faults are added to `faults`, and its keys that are not ours to `unknown`."""
    if isinstance(item, Step):
        item = {"tool": item.tool, "input": item.input, "outputKey": item.output_key}
    if not isinstance(item, Mapping):
        faults.append(f"step {number} must be an object, not {kind(item)}")
        return Step("")
    tool, given, key = item.get("tool"), item.get("input"), item.get("outputKey")
    if not isinstance(tool, str) or not tool:
        faults.append(f"step {number} has no tool")
    if given is not None and not isinstance(given, Mapping):
        faults.append(f"the input of step {number} must be an object, not {kind(given)}")
    if key is not None and not isinstance(key, str):
        faults.append(f"the outputKey of step {number} must be a string, not {kind(key)}")
    for name in (name for name in item if name not in FIELDS):
        meant = MEANT.get(str(name)) or _near(str(name))
        unknown.append(f"step {number} has an unknown key '{name}'" + (f", did you mean '{meant}'?" if meant else ""))
    return Step(str(tool), dict(given) if isinstance(given, Mapping) else {}, key or "")


def _near(name: str) -> str:
    from difflib import get_close_matches  # only needed after a typo

    return next(iter(get_close_matches(name[:LONGEST_NAME], FIELDS, n=1)), "")


def _refused(step: Step, error: CallError) -> Result:
    """Return the result of a step whose tool was never called."""
    failure = Failure(error.code, error.message, error.hint)
    return Result(tool=step.tool, content=(Text(error.message),), is_error=True, error=failure)


def _error(step: Step, result: Result) -> str:
    """Return what stopped the chain, in the original's words."""
    if result.error is not None and result.error.code == "not_found":
        return f"Tool not found: {step.tool}"
    return f'Tool "{step.tool}" failed: {_message(result)}'


def _message(result: Result) -> str:
    return result.error.message if result.error is not None else result.text


def _some(items: Sequence[str]) -> str:
    """Join the first of them."""
    more = [f"and {len(items) - NAMED:,} more"] if len(items) > NAMED else []
    return "; ".join([*(item[:LONGEST_NAME] for item in items[:NAMED]), *more])
