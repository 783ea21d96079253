"""What is written down of each call: a note before it runs, and a record when it has ended."""

from anyplug.audit import Audit
from anyplug.errors import Denied, StoreError
from anyplug.model import Result
from anyplug.tally import Tally
from anyplug.trail import Trail, failed, warned


class Recording:
    """The records of one host's calls."""

    def __init__(self, audit: Audit, tally: Tally) -> None:
        self._audit = audit
        self._tally = tally

    def begin(self, trail: Trail) -> None:
        """Write down that a call begins; raises Denied: what cannot be recorded does not run."""
        try:
            self._audit.begin(trail.so_far())
        except StoreError as error:
            raise Denied(
                "host", f"the call cannot be recorded, so it was not run: {error.message}", error.hint
            ) from error

    def end(self, trail: Trail, result: Result) -> Result:
        """Write the record of a call that has ended, and complete its result."""
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
