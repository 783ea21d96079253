"""Tell how to install the package that an adapter is for."""

from importlib.util import find_spec


def require(package: str, install: str, adapter: str) -> None:
    """Raise ImportError with the line that installs a package, unless it is there. Imports nothing of it."""
    try:
        is_there = find_spec(package) is not None
    except ImportError:  # an import hook refuses it
        is_there = False
    if not is_there:
        raise ImportError(
            f"anyplug.integrations.{adapter} needs a package that is not installed: pip install {install}", name=package
        )
