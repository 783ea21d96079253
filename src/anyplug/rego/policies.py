"""The interface of a compiled policy set: evaluate a path or a query."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from anyplug.rego.evaluate.run_context import DEFAULT_STEPS, Context, Meter
from anyplug.rego.generated.code import Code
from anyplug.rego.values.json import from_json, to_json
from anyplug.rego.values.rego_errors import EvalError, Location, NotSupported, RegoError
from anyplug.rego.values.values import EMPTY_OBJECT, EMPTY_SET, Object

if TYPE_CHECKING:
    from anyplug.rego.compiling.compiler import Unit


try:
    from _sha2 import sha256 as _sha256  # without OpenSSL, which takes a decision longer to load
except ImportError:
    from _sha256 import sha256 as _sha256  # before Python 3.12


def digest(modules: Mapping[str, str]) -> str:
    """Return what stands for the content of a policy set."""
    made = _sha256()
    for file, text in sorted(modules.items()):
        for part in (file, text):
            encoded = part.encode("utf-8", "surrogatepass")
            made.update(b"%d:" % len(encoded))
            made.update(encoded)
    found: str = made.hexdigest()
    return found


class Failure(msgspec.Struct, frozen=True):
    """A builtin that could not answer, so that an expression was undefined."""

    message: str
    code: str
    where: Location


class Outcome(msgspec.Struct, frozen=True):
    """The result of an evaluation: a value or nothing, what was printed, which builtins failed on the way."""

    defined: bool
    value: Any
    printed: tuple[str, ...]
    failures: tuple[Failure, ...]
    fired: tuple[Location, ...] = ()  # where the bodies that held begin; only `explain` says it


class Answer(msgspec.Struct, frozen=True):
    """The result of one of several references: a value, None if it is undefined, or the error that kept it from one."""

    value: Any
    error: EvalError | None = None


UNDEFINED: Final = Answer(None)


class Query:
    """A query that is compiled."""

    def __init__(self, policies: "Policies", text: str) -> None:
        self._policies = policies
        self._run, self.names = policies.unit.query(text)

    def answers(
        self,
        input: Any = UNSET,
        *,
        data: Any = None,
        strict: bool = False,
        steps: int = DEFAULT_STEPS,
        seconds: float | None = None,
        raw: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the variables of every answer. Raises EvalError."""
        context = self._policies.context(input, data=data, strict=strict, steps=steps, seconds=seconds)
        found: list[tuple[Any, ...]] = []
        _guarded(self._run, context, found)
        rows = dict.fromkeys(found)
        return [
            {name: value if raw else to_json(value) for name, value in zip(self.names, row, strict=True)}
            for row in rows
        ]


class Prepared:
    """References that are evaluated together: the input is read once, and what they share is evaluated once."""

    def __init__(self, policies: "Policies", paths: tuple[str, ...]) -> None:
        self._policies = policies
        self.paths = paths
        self._runs = [policies.runner(path) for path in paths]

    def values(self, input: Any = UNSET, **options: Any) -> list[Any]:
        """Return the value of each reference as plain Python, None for what is undefined; options as for `evaluate`.

        Raises EvalError.
        """
        context = self._policies.context(input, **options)
        found = [_guarded(run, context) for run in self._runs]
        return [None if value is None else to_json(value) for value in found]

    def outcomes(self, input: Any = UNSET, **options: Any) -> list[Answer]:
        """Return the value of each reference, or its error: one that fails does not silence the others.

        Raises EvalError only for an input that is refused.
        """
        context = self._policies.context(input, **options)
        try:
            found = [run(context) for run in self._runs]
        except Exception:  # noqa: BLE001 - whatever it is, it comes again and is named
            return [_outcome(run, context) for run in self._runs]
        return [UNDEFINED if value is None else Answer([] if value is EMPTY_SET else to_json(value)) for value in found]


def _outcome(run: Any, context: Context) -> Answer:
    try:
        value = _guarded(run, context)
    except EvalError as error:
        return Answer(None, error)
    return UNDEFINED if value is None else Answer([] if value is EMPTY_SET else to_json(value))


class Policies:
    """A valid policy set. It keeps no state between evaluations, and may be used by several threads."""

    def __init__(
        self, modules: Mapping[str, str], data: Any = None, *, traced: bool = False, code: Code | None = None
    ) -> None:
        """Compile, unless the `code` of these modules is given; raises RegoErrors."""
        self._modules = dict(modules)
        self._is_traced = traced
        self._unit: Unit | None = None
        self._compiling = threading.Lock()
        self.code = self.unit.code if code is None else code
        self._traced: Policies | None = None
        self._data = EMPTY_OBJECT if data is None else _document(data)
        self._queries: dict[str, Query] = {}
        self._paths: dict[str, Any] = {}

    @property
    def unit(self) -> "Unit":
        """What was compiled; only queries need it if the code was given."""
        with self._compiling:
            if self._unit is None:
                from anyplug.rego.compiling.compiler import Unit  # with the parser, which takes 30 ms to import

                self._unit = Unit(self._modules, traced=self._is_traced)
            self.code = self._unit.code  # queries refer to it
            return self._unit

    @property
    def pure(self) -> bool:
        """Whether every answer depends on nothing but input and data: no time, randomness or the like."""
        return not self.unit.dependencies.impure

    def impurities(self, *paths: str) -> frozenset[str]:
        """Name the builtins behind references that may answer differently next time: with none, answers can be kept.

        Raises RegoErrors.
        """
        return frozenset[str]().union(*map(self.unit.impurities, paths))

    @property
    def digest(self) -> str:
        """Return what stands for the content of the policy set: names and texts, in any order."""
        return digest(self._modules)

    @property
    def packages(self) -> dict[str, dict[str, Any]]:
        """Return every package, with what its METADATA says."""
        return {".".join(package): notes for package, notes in self.unit.notes.items()}

    def prepare(self, *paths: str) -> "Prepared":
        """Compile references such as data.a.deny, to be evaluated together. Raises RegoErrors."""
        return Prepared(self, paths)

    def query(self, text: str) -> Query:
        """Compile a query, once. Raises RegoErrors."""
        found = self._queries.get(text)
        if found is None:
            found = self._queries[text] = Query(self, text)
        return found

    def context(
        self,
        input: Any,
        *,
        data: Any = None,
        strict: bool = False,
        steps: int = DEFAULT_STEPS,
        seconds: float | None = None,
    ) -> Context:
        """Begin an evaluation."""
        try:
            document = self._data if data is None else _document(data)
            given = None if input is UNSET else from_json(input)
        except RecursionError:
            msg = "the input is nested too deeply"
            raise NotSupported(msg) from None
        made = Context(self.code.root, given, document, Meter(steps, seconds), strict=strict)
        made.locations = self.code.locations
        return made

    def runner(self, path: str) -> Any:
        """Return the function that gives a reference's value, None if it is undefined."""
        run = self._paths.get(path)
        if run is None:
            node = self.code.plain(path)
            run = self._paths[path] = node.evaluate if node is not None else _first(self.unit.query(f"x := {path}")[0])
        return run

    def eval(self, path: str, input: Any = UNSET, data: Any = None, **options: Any) -> Any:
        """Evaluate a reference such as data.a.b and give its value as plain Python; None if it is undefined.

        Without an input `input` is undefined, which is not the same as null.

        Options are those of `evaluate`. Raises EvalError.
        """
        return self.evaluate(path, input, data, **options).value

    def explain(self, path: str, input: Any = UNSET, data: Any = None, **options: Any) -> Outcome:
        """Evaluate as `evaluate` does, with code that also notes which bodies held. Raises EvalError."""
        if self._traced is None:
            self._traced = Policies(self._modules, self._data, traced=True)
        return self._traced.evaluate(path, input, data, **options)

    def evaluate(
        self,
        path: str,
        input: Any = UNSET,
        data: Any = None,
        *,
        strict: bool = False,
        steps: int = DEFAULT_STEPS,
        seconds: float | None = None,
    ) -> Outcome:
        """Evaluate a reference such as data.a.b. Raises EvalError."""
        run = self.runner(path)
        context = self.context(input, data=data, strict=strict, steps=steps, seconds=seconds)
        value = _guarded(run, context)
        return Outcome(
            value is not None,
            None if value is None else to_json(value),
            tuple(context.printed),
            tuple(Failure(*failure) for failure in context.failures),
            tuple(self.code.locations[where] for where in context.fired),
        )


def _first(query: Any) -> Any:
    """Return a function that gives the value of a query's only variable; its first answer is its only one."""

    def run(context: Context) -> Any:
        found: list[tuple[Any, ...]] = []
        query(context, found)
        return found[0][0] if found else None

    return run


def _document(data: Any) -> Object:
    made = from_json(data)
    if made.__class__ is not Object:
        msg = "data must be an object"
        raise NotSupported(msg)
    return made


def _guarded(run: Any, context: Context, *found: list[tuple[Any, ...]]) -> Any:
    """Run generated code: whatever goes wrong in it is an EvalError, so that it is never mistaken for an answer."""
    try:
        return run(context, *found)
    except RegoError:
        raise
    except RecursionError:
        msg = "the evaluation is nested too deeply"
        raise EvalError(msg) from None
    except MemoryError:
        msg = "the evaluation takes too much memory"
        raise EvalError(msg) from None
    except Exception as error:
        msg = f"{type(error).__name__}: {error}"
        raise EvalError(msg) from error
