"""Import msgspec without what it imports for others, which takes a tenth of a command's start."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any


class _Platform(ModuleType):
    """All that `uuid`, which msgspec imports, wants of `platform`; that compiles a dozen patterns."""

    @staticmethod
    def system() -> str:
        return os.uname().sysname


class _JsonSchema(ModuleType):
    """The module that writes JSON schemas of types, which few commands do; it imports `textwrap` and more."""

    @staticmethod
    def schema(*given: Any, **named: Any) -> Any:
        return importlib.import_module("msgspec._json_schema").schema(*given, **named)

    @staticmethod
    def schema_components(*given: Any, **named: Any) -> Any:
        return importlib.import_module("msgspec._json_schema").schema_components(*given, **named)


def load() -> None:
    """Import msgspec; it takes two names from `typing`, which has had both since 3.11, where the other is missing."""
    if "msgspec" in sys.modules:
        return
    replaced: dict[str, ModuleType | None] = {
        "msgspec._json_schema": _JsonSchema("msgspec._json_schema"),
        "msgspec.inspect": ModuleType("msgspec.inspect"),
    }
    if "typing_extensions" not in sys.modules:
        replaced["typing_extensions"] = None  # makes the import fail
    if os.name == "posix" and "uuid" not in sys.modules and "platform" not in sys.modules:
        replaced["platform"] = _Platform("platform")
    sys.modules.update(replaced)  # type: ignore[arg-type]
    import msgspec  # so that it is there for everyone

    for name in replaced:
        del sys.modules[name]
    vars(msgspec).pop("inspect", None)  # who imports it gets the real one
