"""Third-party formats: modules named by entry points of the group `anyplug.formats`.

Their code runs in the host and outside the sandbox, so only formats that a person named in the settings are imported.
"""

import sys
from importlib import metadata
from typing import Any

from anyplug.formats.shared.contract import Format
from anyplug.model.errors import ConfigError

GROUP = "anyplug.formats"


def bring(name: str) -> Format:
    """Import the format of this name; raises ConfigError with a hint."""
    leave_out = f"or remove '{name}' from `formats` in settings.toml"
    found = {
        f"{entry.value} of {_distribution(entry)}": entry for entry in metadata.entry_points(group=GROUP, name=name)
    }
    if not found:
        raise ConfigError(
            f"the format '{name}' is not installed, so its plugins are not found",
            f"install the package that provides it with `{sys.executable} -m pip install PACKAGE`, {leave_out}",
        )
    if len(found) > 1:
        raise ConfigError(
            f"there are several formats '{name}': {', '.join(sorted(found))}", f"uninstall one, {leave_out}"
        )
    (entry,) = found.values()
    package = _distribution(entry)
    try:
        format = entry.load()
    except Exception as error:
        raise ConfigError(
            f"the format '{name}' of {package} cannot be imported: {type(error).__name__}: {error}",
            f"`{sys.executable} -c 'import {entry.module}'` shows the whole error; update {package}, {leave_out}",
        ) from error
    lacking = missing(format)
    if lacking:
        raise ConfigError(
            f"the format '{name}' of {package} is invalid: it lacks {', '.join(lacking)}",
            f"update {package}, which was written for another version of anyplug, {leave_out}",
        )
    if name != format.NAME:
        raise ConfigError(
            f"the format '{name}' of {package} is invalid: its NAME is '{format.NAME}'",
            f"its entry point and its NAME must be the same; update {package}, {leave_out}",
        )
    checked: Format = format
    return checked


def missing(format: Any) -> list[str]:
    """List the names of the contract that a format lacks."""
    facts = Format.__annotations__
    functions = [name for name in vars(Format) if not name.startswith("_")]
    return [
        *(name for name in facts if not hasattr(format, name)),
        *(name for name in functions if name not in facts and not callable(getattr(format, name, None))),
    ]


def _distribution(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
