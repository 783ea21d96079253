"""The state of a call: becomes its result's metadata and its audit record."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.audit import audit_log
from anyplug.audit.audit_log import Record
from anyplug.audit.call_ids import call_id
from anyplug.call.consent import Attachment
from anyplug.model import hints
from anyplug.model.errors import AnyplugError, CallError
from anyplug.model.json_values import TOO_DEEP
from anyplug.model.types import Failure, Plugin, Progress, Result, Text
from anyplug.model.untrusted_text import for_people

if TYPE_CHECKING:
    from anyplug.call.trace_context import CallTrace
    from anyplug.secrets.redaction import Redaction

LARGE = 1 << 16  # bytes of a result; masking them takes some milliseconds
LONGEST_PROGRESS = 4_000  # characters of what a plugin says in one report
LONGEST_NAME = 200  # characters of an unknown name; a program may ask for it


class CallState:
    """One call, from its start on."""

    __slots__ = (
        "_masked",
        "_named",
        "_started",
        "attachment",
        "context",
        "given",
        "record",
        "secrecy",
        "trace",
        "unusable",
        "warnings",
    )

    def __init__(self, name: str, attachment: Attachment, arguments: Any = None, project: str = "") -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a tool must be a text, not {type(name).__name__}")
        at = time.time_ns() // 1000  # in whole microseconds
        self.attachment = attachment
        self.record = Record(
            call=call_id(at),
            at=at / 1_000_000,
            attachment=attachment.id,
            agent=attachment.agent,
            project=project,
            callers=attachment.callers,
            tool=for_people(name, LONGEST_NAME),
        )
        self.unusable = ""  # what is wrong with the arguments
        self.given: dict[str, Any] = {}  # the arguments
        if type(arguments) is dict or isinstance(arguments, Mapping):  # the first is faster, and usual
            self.given = dict(arguments)
        elif arguments is not None:
            self.unusable = f"arguments must be an object, not {type(arguments).__name__}"
        try:
            self.record.arguments = audit_log.digest_of(arguments if self.unusable else self.given)
        except RecursionError:
            self.unusable = self.unusable or f"arguments must be JSON: {TOO_DEEP}"
        except (TypeError, ValueError) as error:
            self.unusable = self.unusable or f"arguments must be JSON: {error}"
        self.warnings: tuple[str, ...] = ()  # for the person
        self.context: tuple[str, ...] = ()  # from policies, for the model
        self._named: Plugin | None = None  # the plugin, if it was named for this run
        self.secrecy: Redaction | None = None  # of the plugin, once it is known that it may run
        self.trace: CallTrace | None = None  # if somebody traces calls
        self._masked: Result | None = None  # a result that was masked ahead
        self._started = time.perf_counter()

    def found(self, name: str, plugin: Plugin) -> None:
        """Record which tool or command it is."""
        record = self.record
        record.tool, record.plugin, record.format = name, plugin.name, plugin.format
        self._named = plugin if plugin.explicit else None

    def reached(self, error: Failure | None) -> Failure | None:
        """Return an error whose hint finds the plugin, also if it was named for this run, and fits the caller."""
        if error is None or not error.hint:
            return error
        hint = hints.for_folder(error.hint, self._named) if self._named is not None else error.hint
        if self.attachment.is_library:
            hint = hints.for_library(hint, self.attachment.home, awaits=self.attachment.awaits)
        return error if hint == error.hint else msgspec.structs.replace(error, hint=hint)

    def passed(self, phase: str) -> None:
        """Report that a phase of the call has ended."""
        if self.trace is not None:
            self.trace.passed(phase)

    def note(self, by: str, *texts: str) -> None:
        """Add notes of one guard or policy to the record."""
        self.record.notes += texts
        self.record.notes_by += (by,) * len(texts)

    def masked_progress(self, report: Progress | None) -> Progress | None:
        """Return what receives the plugin's progress reports instead of `report`, and masks them."""
        secrecy = self.secrecy
        if report is None or secrecy is None:
            return report

        async def masked(progress: float, total: float | None = None, message: str | None = None) -> None:
            await report(progress, total, message and secrecy.beginning(message, LONGEST_PROGRESS))

        return masked

    def mask_ahead(self, result: Result, cut: Callable[[Result], Result] | None = None) -> Result:
        """Mask a result before `complete` does, in a thread, because that may take long; then shorten it."""
        masked = self._masked_of(result)
        self._masked = masked if cut is None else cut(masked)
        return self._masked

    def _masked_of(self, result: Result) -> Result:
        if self.warnings:
            result = warned(result, self.warnings)
        return result if self.secrecy is None else self.secrecy.result(result)

    def complete(self, result: Result) -> Result:
        """Complete the result with the tool and the duration, and mask the plugin's secrets in it."""
        if result is not self._masked:
            result = self._masked_of(result)
        record = self.record
        return Result(
            content=result.content,
            structured=result.structured,
            metadata=result.metadata,
            is_error=result.is_error,
            error=self.reached(result.error),
            duration_ms=round((time.perf_counter() - self._started) * 1000, 3),
            tool=record.tool,
            plugin=record.plugin,
            format=record.format,
            activates=result.activates,
            remarks=result.remarks if self.secrecy is None else tuple(map(self.secrecy.text, result.remarks)),
        )

    def ended(self, result: Result) -> Record:
        """Return the record of an ended call. The digest of the output is that of what the caller sees."""
        record = self.record
        record.outcome = result.error.code if result.error else "done"
        record.duration_ms = result.duration_ms
        record.output = audit_log.digest_of_output(result)
        return self.so_far()

    def so_far(self) -> Record:
        """Return the current record, with the plugin's secrets masked."""
        mask = self.secrecy.mask() if self.secrecy is not None else None
        if mask is None:
            return self.record
        record = self.record
        return msgspec.structs.replace(
            record,
            tool=mask.text(record.tool),
            reason=mask.text(record.reason),
            notes=tuple(map(mask.text, record.notes)),
        )


def is_large(result: Result) -> bool:
    """Return whether masking a result takes long."""
    try:
        return len(msgspec.json.encode(result)) > LARGE
    except UnicodeEncodeError:  # half a character
        return True


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


def warned(result: Result, warnings: Sequence[str]) -> Result:
    """Add warnings to a result; a plugin's own metadata may have another type under that name."""
    if not warnings:
        return result
    own = result.metadata.get("warnings", [])
    said = [*warnings, *(own if isinstance(own, list) else [own])]
    return msgspec.structs.replace(result, metadata={**result.metadata, "warnings": said})
