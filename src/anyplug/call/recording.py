"""Record each call: a note before it runs, and a record when it has ended."""

from collections.abc import Callable

from anyplug.audit.audit_log import Audit, Later
from anyplug.audit.counters import Tally
from anyplug.call.state import Trail, failed, warned
from anyplug.model.errors import Denied, StoreError
from anyplug.model.types import Result


class Recording:
    """The records of one host's calls."""

    def __init__(self, audit: Audit, tally: Tally, tell: Callable[[str], None]) -> None:
        """`tell` is called about records that could not be written at the end."""
        self._audit = audit
        self._tally = tally
        self._tell = tell

    def open(self, later: Later) -> None:
        """Start batching records, and recover those of killed hosts."""
        self._audit.gather(later)
        try:
            self._audit.recover()
        except StoreError:
            pass  # calls will be refused with the reason; listing plugins still works

    def close(self) -> None:
        """Write the waiting records."""
        try:
            self._audit.close()
        except StoreError as error:
            self._tell(f"the last calls are not in the audit yet: {error.message}")

    def begin(self, trail: Trail) -> None:
        """Record that a call begins; raises Denied, because what cannot be recorded must not run."""
        try:
            self._audit.begin(trail.so_far())
        except StoreError as error:
            raise Denied(
                "host", f"the call cannot be recorded, so it was not run: {error.message}", error.hint
            ) from error

    def end(self, trail: Trail, result: Result) -> Result:
        """Record the end of a call, and complete its result."""
        result = trail.complete(result)
        self._tally.add(result)
        try:
            self._audit.end(trail.ended(result))
        except StoreError as error:
            if not trail.record.verdict:  # it never began, so there is no note of it either
                return trail.complete(
                    failed(Denied("host", f"the call cannot be recorded: {error.message}", error.hint))
                )
            result = warned(result, [f"the end of this call is not recorded: {error.message}"])
        return result
