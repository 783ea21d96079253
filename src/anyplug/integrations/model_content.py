"""Results as models read them: texts, and files that a model's API takes. Knows no API."""

import base64
import binascii
import mimetypes
import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from anyplug.model import hints
from anyplug.model.types import Audio, Block, File, Image, Resource, Result, Text

LARGEST_FILE = 1 << 20  # bytes of a file that a model is given; of a larger one it gets the path
NOTHING = "(the tool returned nothing)"

Takes = Callable[[str], bool]  # whether an API takes files of this type as they are


class Media(NamedTuple):
    """An image, a sound or another file that a model takes as it is."""

    data: bytes
    mime_type: str
    name: str

    @property
    def base64(self) -> str:
        """Its bytes in base64."""
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """Itself as a `data:` URL."""
        return f"data:{self.mime_type};base64,{self.base64}"


def parts(result: Result, takes: Takes) -> list[str | Media]:
    """Return what a model is told about a call that succeeded; never empty."""
    found = [part for block in result.content if (part := _part(block, takes))]
    found += [f"[anyplug] {remark}" for remark in result.remarks]
    if not found and result.structured is not None:
        found.append(msgspec.json.encode(result.structured).decode())
    return found or [NOTHING]


def failure_text(result: Result) -> str:
    """Return what a model is told about a failed call: the tool's own words, the reason, and what it can do."""
    said, error = result.text, result.error
    if error is None:
        return said or "the tool failed and gave no reason"
    lines = [said] if said else []
    if error.message not in said:
        lines.append(error.message)
    if error.hint:
        lines.append(f"hint: {hints.for_agents(error.hint)}")
    return "\n".join([*lines, f"({error.code})"])


def _part(block: Block, takes: Takes) -> str | Media:
    match block:
        case Text():
            return block.text
        case Image() | Audio():
            return _media(block.data, block.mime_type, takes)
        case Resource():
            return _resource(block, takes)
        case File():
            return _file(block, takes)


def _media(data: str, kind: str, takes: Takes, name: str = "") -> str | Media:
    try:
        decoded = base64.b64decode(data)
    except (binascii.Error, ValueError):
        return f"({kind or 'a file'} that cannot be decoded)"
    if not takes(kind):
        return f"({kind or 'a file'} of {len(decoded):,} bytes, which this model cannot be given)"
    return Media(decoded, kind, name)


def _resource(block: Resource, takes: Takes) -> str | Media:
    if block.text:
        return f"{block.uri}:\n{block.text}"
    if block.data and takes(block.mime_type):
        return _media(block.data, block.mime_type, takes, block.name or block.uri.rpartition("/")[2])
    about = ", ".join(filter(None, [block.name, block.mime_type, block.description]))
    return f"{block.uri} ({about})" if about else block.uri


def _file(block: File, takes: Takes) -> str | Media:
    """Return a small file as it is if the model takes such files, as text if it is text, else by its path."""
    kind = block.mime_type or mimetypes.guess_type(block.name)[0] or ""
    try:
        if os.path.getsize(block.path) <= LARGEST_FILE:
            with open(block.path, "rb") as file:
                data = file.read(LARGEST_FILE)
            if takes(kind):
                return Media(data, kind, block.name)
            return f"{block.path}:\n{data.decode()}"
    except OSError:
        return f"the file {block.path} can no longer be read"
    except UnicodeDecodeError:
        pass
    return f"the file {block.path} ({kind or 'unknown type'})"
