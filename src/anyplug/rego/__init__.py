"""Rego: policies compiled to Python, once for a policy set.

    policies = compile({"gate.rego": text})          # raises RegoErrors, with every fault
    policies.eval("data.gate.deny", {"tool": "bash"})

Imports nothing of the program around it.
"""

from anyplug.rego.cache import compile  # noqa: A004 - the module's own word, as in re.compile
from anyplug.rego.policies import Answer, Failure, Outcome, Policies, Prepared, Query
from anyplug.rego.values.rego_errors import (  # fmt: skip
    BuiltinFailed,
    ConflictError,
    EvalError,
    Exhausted,
    Fault,
    Location,
    NotSupported,
    RegoError,
    RegoErrors,
)

__all__ = [
    "Answer",
    "BuiltinFailed",
    "ConflictError",
    "EvalError",
    "Exhausted",
    "Failure",
    "Fault",
    "Location",
    "NotSupported",
    "Outcome",
    "Policies",
    "Prepared",
    "Query",
    "RegoError",
    "RegoErrors",
    "compile",
]
