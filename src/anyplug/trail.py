"""What is known of a call as it goes along: becomes its result's frame and its audit record."""

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug import audit
from anyplug.audit import Record
from anyplug.digest import printable
from anyplug.errors import AnyplugError, CallError
from anyplug.gate import Attachment
from anyplug.model import Failure, Plugin, Result, Text

if TYPE_CHECKING:
    from anyplug.runtime.program import Receipt
    from anyplug.secrecy import Secrecy


class Trail:
    """One call, from its start on."""

    def __init__(self, name: str, attachment: Attachment, arguments: Any = None) -> None:
        self._at = audit.now()
        # Nobody can guess it; the time comes first so that new ones stand together in the audit's index.
        self.id = f"{int(self._at * 1_000_000):x}{secrets.token_hex(8)}"
        self.attachment = attachment
        self.tool = printable(name)
        self.plugin = self.format = self.digest = self.arguments = ""
        self.verdict = self.by = self.reason = ""
        self.no_json = ""  # why the arguments cannot be written down
        try:
            self.arguments = audit.digest_of(dict(arguments) if isinstance(arguments, Mapping) else arguments or {})
        except (TypeError, ValueError, RecursionError) as error:
            self.no_json = str(error)
        self.notes: list[str] = []  # who rewrote or noted what
        self.warnings: list[str] = []  # what the person should know of how it went
        self.context: list[str] = []  # what policies want the model to know
        self.held_by: Receipt | None = None  # what confined what ran
        self.secrecy: Secrecy | None = None  # of the plugin, once it is known that it may run
        self._started = time.perf_counter()

    def found(self, name: str, plugin: Plugin) -> None:
        """Note which tool or command it is."""
        self.tool, self.plugin, self.format = name, plugin.name, plugin.format

    def complete(self, result: Result) -> Result:
        """Say in the result what was called and how long it took, and hide the plugin's secrets in it."""
        if self.warnings:
            result = warned(result, self.warnings)
        return msgspec.structs.replace(
            result if self.secrecy is None else self.secrecy.result(result),
            tool=self.tool,
            plugin=self.plugin,
            format=self.format,
            duration_ms=round((time.perf_counter() - self._started) * 1000, 3),
        )

    def record(self, result: Result | None = None) -> Record:
        """Give the record, so far or at the end. The digest of the output is that of what the caller sees."""
        mask = self.secrecy.mask() if self.secrecy is not None else None
        shown = mask.text if mask is not None else str
        return Record(
            call=self.id,
            at=self._at,
            attachment=self.attachment.id,
            tool=shown(self.tool),
            plugin=self.plugin,
            format=self.format,
            digest=self.digest,
            arguments=self.arguments,
            verdict=self.verdict,
            by=self.by,
            reason=shown(self.reason),
            notes=tuple(map(shown, self.notes)),
            held_by=self.held_by,
            outcome="" if result is None else result.error.code if result.error else "done",
            duration_ms=result.duration_ms if result else 0.0,
            output=audit.digest_of_output(result) if result else "",
        )


def failed(error: AnyplugError) -> Result:
    """Turn an error into the result that callers see."""
    partial = error.partial if isinstance(error, CallError) else ""
    said = (Text(error.message), Text(partial)) if partial.strip() else (Text(error.message),)
    return Result(
        content=said,
        is_error=True,
        error=Failure(error.code, error.message, error.hint),
        metadata=dict(error.metadata) if isinstance(error, CallError) else {},
    )


def warned(result: Result, warnings: list[str]) -> Result:
    """Add warnings to a result; a plugin's own metadata may hold something else under that name."""
    if not warnings:
        return result
    own = result.metadata.get("warnings", [])
    said = [*warnings, *(own if isinstance(own, list) else [own])]
    return msgspec.structs.replace(result, metadata={**result.metadata, "warnings": said})
