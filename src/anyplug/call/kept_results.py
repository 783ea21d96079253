"""Keep results that are too long for a model, which gets the beginning and reads the rest by range.

The whole text is a file among the plugin's output files. These have a total size and an age, and the oldest go first.
"""

import os
import time
import unicodedata
from contextlib import suppress
from typing import Any

import msgspec

from anyplug.home.location import make_private
from anyplug.home.settings import Home, ResultSettings
from anyplug.model import hints
from anyplug.model.errors import CallError
from anyplug.model.late_patterns import late
from anyplug.model.types import Block, Plugin, Resource, Result, Text

FOLDER = "results"  # in the folder of a plugin's output files
ID_BYTES = 6
ID = late(r"[0-9a-f]{12}")
DAY_S, MB = 86_400, 1_000_000
LONGEST_CLUSTER = 16  # characters that look like one, such as a letter with its accents
JOINER = "\u200d"
SURROGATES = late("[\ud800-\udfff]")


class ResultNotFound(CallError):
    """There is no kept result of that id."""

    code = "not_found"

    def __init__(self, id: str) -> None:
        super().__init__(
            f"no result with the id '{id[:80]}' is kept",
            "results are removed after a while; call the tool again",
        )


class KeptResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a kept result."""

    id: str
    tool: str
    plugin: str
    lineage: str = ""  # of the plugin
    at: float
    characters: int
    path: str = ""


class Part(msgspec.Struct, frozen=True):
    """A range of a kept result."""

    about: KeptResult
    text: str
    offset: int


class KeptResults:
    """The kept results of one home. All methods read or write files: call them in a thread."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def cut(self, result: Result, tool: str, plugin: Plugin, settings: ResultSettings, reader: str) -> Result:
        """Keep a result whole, and return its beginning. `reader` is the tool that reads the rest, if there is one."""
        text = whole_text(result, settings.model_chars)
        shown = boundary(text, settings.model_chars)
        id = os.urandom(ID_BYTES).hex()
        about = KeptResult(
            id=id, tool=tool, plugin=plugin.name, lineage=plugin.lineage, at=time.time(), characters=len(text)
        )
        try:
            self._write(plugin, about, text)
        except OSError as error:
            note = f"The rest cannot be kept: {error.strerror}."
        else:
            self.tidy(settings)
            note = f"The user can read the rest with {hints.command('results', id)}."
            if reader:
                note = f'{reader} reads the rest by range: {{"id": "{id}", "offset": {shown}}}'
        said = f"[anyplug] These are the first {shown:,} of {len(text):,} characters. {note}"
        others = tuple(block for block in result.content if not _text(block))
        return msgspec.structs.replace(
            result,
            content=(Text(text[:shown]), Text(said), *others),
            structured=None,
            metadata={**result.metadata, "kept": {"id": id, "characters": len(text), "shown": shown}},
        )

    def read(self, id: str, offset: int, length: int) -> Part:
        """Read a range, in characters; raises ResultNotFound, and OSError."""
        about = self.find(id)
        try:
            with open(about.path, encoding="utf-8", newline="") as file:
                text = file.read()
        except FileNotFoundError as error:
            raise ResultNotFound(id) from error
        return Part(about, text[offset : boundary(text, offset + length)], offset)

    def find(self, id: str) -> KeptResult:
        """Return what is known about a result; raises ResultNotFound."""
        if ID.fullmatch(id):
            for folder in self._folders():
                with suppress(OSError, msgspec.DecodeError):
                    return _about(folder, id)
        raise ResultNotFound(id)

    def all(self) -> list[KeptResult]:
        """List all, the newest first."""
        found = []
        for folder in self._folders():
            for name in os.listdir(folder):
                with suppress(OSError, msgspec.DecodeError):
                    if name.endswith(".json"):
                        found.append(_about(folder, name.removesuffix(".json")))
        return sorted(found, key=lambda one: -one.at)

    def tidy(self, settings: ResultSettings) -> None:
        """Remove what is too old, and the oldest of what is too much."""
        left, oldest = settings.keep_mb * MB, time.time() - settings.keep_days * DAY_S
        for one in self.all():
            with suppress(OSError):
                left -= os.path.getsize(one.path)
                if left < 0 or one.at < oldest:
                    os.unlink(one.path)
                    os.unlink(one.path.removesuffix(".txt") + ".json")

    def _write(self, plugin: Plugin, about: KeptResult, text: str) -> None:
        folder = os.path.join(self._home.files(plugin), FOLDER)
        make_private(folder)
        for ending, data in ((".txt", text.encode()), (".json", msgspec.json.encode(about))):
            target = os.path.join(folder, about.id + ending)
            with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)

    def _folders(self) -> list[str]:
        above = os.path.join(self._home.path, "files")
        with suppress(OSError):
            found = (os.path.join(above, name, FOLDER) for name in os.listdir(above))
            return [folder for folder in found if os.path.isdir(folder)]
        return []


def is_long(result: Result, most: int) -> bool:
    """Return whether a result has more text than a model gets."""
    if sum(map(len, _texts(result))) > most:
        return True
    return result.structured is not None and len(_json(result.structured)) > most


def whole_text(result: Result, most: int) -> str:
    """Return all text of a result; its structured form, too, if that is what is long."""
    text = SURROGATES.sub("\ufffd", "\n".join(_texts(result)))
    return text if len(text) > most else f"{text}\n{_json(result.structured)}".lstrip("\n")


def boundary(text: str, at: int) -> int:
    """Return where to cut a text at or before a place, so that no character as people see it is split."""
    if at >= len(text):
        return len(text)
    for place in range(at, max(0, at - LONGEST_CLUSTER), -1):
        before, after = text[place - 1], text[place]
        is_inside = (
            unicodedata.combining(after)
            or unicodedata.category(after) in {"Mn", "Me", "Sk"}
            or JOINER in {before, after}
            or (before, after) == ("\r", "\n")
        )
        if not is_inside:
            return place
    return at


def _texts(result: Result) -> list[str]:
    return [text for block in result.content if (text := _text(block))]


def _text(block: Block) -> str:
    return block.text if isinstance(block, Text | Resource) else ""


def _json(value: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(value)).decode()
    except (TypeError, ValueError):
        return repr(value)


def _about(folder: str, id: str) -> KeptResult:
    with open(os.path.join(folder, f"{id}.json"), "rb") as file:
        about = msgspec.json.decode(file.read(), type=KeptResult)
    return msgspec.structs.replace(about, path=os.path.join(folder, f"{id}.txt"))
