"""The builtins of Rego, by group; importing this package declares them all."""

from anyplug.policy.rego.builtins import (
    digests,
    encoding,
    graphs,
    nets,
    objects,
    operators,
    regexes,
    schemas,
    strings,
    times,
    various,
    versions,
)  # fmt: skip
from anyplug.policy.rego.builtins.registry import TABLE

GROUPS = (operators, strings, regexes, objects, encoding, times, nets, versions, digests, graphs, schemas, various)

__all__ = ["GROUPS", "TABLE"]
