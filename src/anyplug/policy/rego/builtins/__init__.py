"""The builtins of Rego, by group; importing this package declares them all."""

from anyplug.policy.rego.builtins import (
    aggregates,
    casts,
    digests,
    encoding,
    graphs,
    nets,
    objects,
    operators,
    patches,
    regexes,
    schemas,
    strings,
    times,
    tokens,
    various,
    versions,
)  # fmt: skip
from anyplug.policy.rego.builtins.registry import TABLE

GROUPS = (
    operators, aggregates, casts, strings, regexes, objects, patches, encoding, times, nets, versions, digests, graphs,
    schemas, tokens, various,
)  # fmt: skip

__all__ = ["GROUPS", "TABLE"]
