"""What a format says of the plugins that `anyplug new` writes for it. The files lie beside it, in `new-LANGUAGE`."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from anyplug.formats.shared import manifest

ACTION: Final = "count"  # what the tool does: the part of its name that does not follow from the plugin's
ANY_CASE: Final = "Latin letters, digits, dots, hyphens and underscores"
LOWER_CASE: Final = "small Latin letters, digits and hyphens"
WORD: Final = re.compile(r"[A-Za-z0-9]+")


def snake_case(name: str) -> str:
    """Name the tool after the plugin, so that nobody else has the same."""
    return f"{'_'.join(WORD.findall(name.lower()))}_{ACTION}"


class NewPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """What there is for a format. Who names no language gets the first."""

    format: str  # what people call it on the command line
    folder: str  # that holds `new-LANGUAGE`
    languages: tuple[str, ...]
    takes_name: Callable[[str], object] = manifest.is_plain_name
    signs: str = ANY_CASE  # that a name may have
    tool: Callable[[str], str] = snake_case  # the full name of a plugin's tool, as authors of the format name theirs
    modules: Mapping[str, Mapping[str, str]] = {}  # by language: files that are copies of modules of ours
