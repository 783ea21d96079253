"""The errors of policies: when it is loaded, and when it is evaluated.

RegoError
├── RegoErrors          a policy set that is not accepted: every Fault, each with file, row, column, code, message
└── EvalError           an evaluation that gave no answer; where says which expression
    ├── ConflictError   a rule, function or object with two different values
    ├── BuiltinFailed   strict mode only: a builtin was given what it cannot take
    ├── NotSupported    a value or a feature that the engine refuses while it runs
    └── Exhausted       steps or time are used up
"""

from typing import Final

import msgspec

# Codes of faults, as in OPA.
PARSE_ERROR: Final = "rego_parse_error"
COMPILE_ERROR: Final = "rego_compile_error"
TYPE_ERROR: Final = "rego_type_error"
NOT_SUPPORTED: Final = "rego_not_supported"  # ours


class Location(msgspec.Struct, frozen=True):
    """A place in a policy; rows and columns count from 1."""

    file: str
    row: int
    col: int

    def __str__(self) -> str:
        return f"{self.file}:{self.row}:{self.col}"


class Fault(msgspec.Struct, frozen=True):
    """One reason why a policy set is not accepted."""

    where: Location
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.code}: {self.message}"


class RegoError(Exception):
    """The root: whatever this package raises on purpose."""


class RegoErrors(RegoError):
    """A policy set is not accepted; `faults` holds every reason that was found."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class EvalError(RegoError):
    """An evaluation gave no answer. A caller that guards something takes this for a refusal."""

    code = "eval_internal_error"

    def __init__(self, message: str, where: Location | None = None) -> None:
        self.message = message
        self.where = where
        super().__init__(f"{where}: {self.code}: {message}" if where else f"{self.code}: {message}")


class ConflictError(EvalError):
    """Two different values where only one may be."""

    code = "eval_conflict_error"


class BuiltinFailed(EvalError):
    """A builtin failed, and the evaluation is strict."""

    def __init__(self, message: str, where: Location | None, code: str) -> None:
        self.code = code
        super().__init__(message, where)


class NotSupported(EvalError):
    """Something that is refused, but could not be seen when the policy was loaded."""

    code = "eval_not_supported"


class Exhausted(EvalError):
    """The bound on steps or on time is reached."""

    code = "eval_cancel_error"


class BuiltinError(Exception):
    """A builtin cannot answer: undefined for the policy, unless the evaluation is strict.

    It never leaves the package: the expression that called turns it into undefined or into BuiltinFailed.
    """

    code = "eval_builtin_error"


class OperandError(BuiltinError):
    """An argument of the wrong type."""

    code = "eval_type_error"
