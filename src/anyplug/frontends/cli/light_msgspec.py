"""Import msgspec without typing_extensions and platform, which take a tenth of a command's start."""

import os
import sys
from types import ModuleType


class _Platform(ModuleType):
    """All that `uuid`, which msgspec imports, wants of `platform`; that compiles a dozen patterns."""

    @staticmethod
    def system() -> str:
        return os.uname().sysname


def load() -> None:
    """Import msgspec; it takes two names from `typing`, which has had both since 3.11, where the other is missing."""
    replaced: dict[str, ModuleType | None] = {}
    if "typing_extensions" not in sys.modules:
        replaced["typing_extensions"] = None  # makes the import fail
    if os.name == "posix" and "uuid" not in sys.modules and "platform" not in sys.modules:
        replaced["platform"] = _Platform("platform")
    sys.modules.update(replaced)  # type: ignore[arg-type]
    import msgspec  # noqa: F401 - so that it is there for everyone

    for name in replaced:
        del sys.modules[name]
