"""A format's templates for `anyplug new`. The files are next to the format, in `new-LANGUAGE`."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from anyplug.formats.shared import manifest
from anyplug.model.late_patterns import late

ACTION: Final = "count"  # what the tool does: the part of its name that does not come from the plugin's
ANY_CASE: Final = "Latin letters, digits, dots, hyphens and underscores"
LOWER_CASE: Final = "lower-case Latin letters, digits and hyphens"
WORD: Final = late(r"[A-Za-z0-9]+")


def snake_case(name: str) -> str:
    """Name the tool after the plugin, so that it is unique."""
    return f"{'_'.join(WORD.findall(name.lower()))}_{ACTION}"


class NewPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A format's templates. The first language is the default."""

    format: str  # its name on the command line
    folder: str  # that contains `new-LANGUAGE`
    languages: tuple[str, ...]
    takes_name: Callable[[str], object] = manifest.is_plain_name
    signs: str = ANY_CASE  # allowed in a name
    tool: Callable[[str], str] = snake_case  # the full name of a plugin's tool, as authors of the format name theirs
    modules: Mapping[
        str, Mapping[str, str]
    ] = {}  # by language: files that are copies of our modules, or of files beside them (MODULE:FILE)
