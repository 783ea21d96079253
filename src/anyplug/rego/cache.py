"""Policy sets that were compiled already, by their content."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from anyplug.rego.policies import Policies, digest

MAX_KEPT: Final = 16  # policy sets: a host has one for each project that is open
_kept: OrderedDict[str, Policies] = OrderedDict()


def compile(modules: Mapping[str, str], *, data: Any = None) -> Policies:
    """Compile a policy set: texts by file name. A set that was compiled before is reused, unless it comes with data.

    Raises RegoErrors.
    """
    if data is not None:
        return Policies(modules, data)
    key = digest(modules)
    found = _kept.get(key)
    if found is None:
        found = _kept[key] = Policies(modules)
        if len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(key)
    return found
