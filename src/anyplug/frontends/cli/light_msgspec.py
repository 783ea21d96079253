"""Import msgspec without typing_extensions, which takes a tenth of a command's start."""

import sys


def load() -> None:
    """Import msgspec; it takes two names from `typing`, which has had both since 3.11, where the other is missing."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # makes the import fail
        import msgspec  # noqa: F401 - so that it is there for everyone

        del sys.modules["typing_extensions"]
