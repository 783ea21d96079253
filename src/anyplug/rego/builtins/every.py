"""All builtins: importing this module declares them."""

from anyplug.rego.builtins import (  # fmt: skip
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
)
from anyplug.rego.builtins.builtin_table import TABLE

GROUPS = (
    operators, aggregates, casts, strings, regexes, objects, patches, encoding, times, nets, versions, digests, graphs,
    schemas, tokens, various,
)  # fmt: skip

__all__ = ["GROUPS", "TABLE"]
