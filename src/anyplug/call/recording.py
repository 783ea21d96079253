"""Record each call: a note before it runs, and a record when it has ended."""

import time
from collections.abc import Callable

from anyplug.audit.audit_log import Audit, Later, Record
from anyplug.audit.counters import Counters
from anyplug.call.state import CallState, failed, warned
from anyplug.home.settings import AuditSettings
from anyplug.model.errors import Denied, StoreError
from anyplug.model.types import Result

DAY_S = 86_400
MB = 1_000_000  # bytes

Watcher = Callable[[Record, bool], object]  # a record, and whether its call is over


class Recording:
    """The records of one host's calls."""

    def __init__(self, audit: Audit, tally: Counters, tell: Callable[[str], None], keep: AuditSettings) -> None:
        """`tell` is called about records that could not be written at the end, `keep` says which are kept."""
        self._keep = keep
        self._audit = audit
        self._tally = tally
        self._tell = tell
        self._watchers: tuple[Watcher, ...] = ()

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Register a callback for calls that begin and end; call the returned function to stop."""
        self._watchers += (watcher,)

        def stop() -> None:
            self._watchers = tuple(one for one in self._watchers if one is not watcher)

        return stop

    def open(self, later: Later) -> None:
        """Start batching records, recover those of killed hosts, and remove old ones now and every day."""
        self._audit.gather(later)
        try:
            self._audit.recover()
            self._retain(later)
        except StoreError:
            pass  # calls will be refused with the reason; listing plugins still works

    def _retain(self, later: Later) -> None:
        keep = self._keep
        if keep.keep_days or keep.keep_mb:
            before = time.time() - keep.keep_days * DAY_S if keep.keep_days else 0.0
            self._audit.remove_old(before=before, largest=keep.keep_mb * MB, by="host")
            later(DAY_S, lambda: self._retain(later))

    def close(self) -> None:
        """Write the waiting records."""
        try:
            self._audit.close()
        except StoreError as error:
            self._tell(f"the last calls are not in the audit yet: {error.message}")

    def begin(self, trail: CallState) -> None:
        """Record that a call begins; raises Denied, because what cannot be recorded must not run."""
        try:
            self._audit.begin(trail.so_far())
        except StoreError as error:
            raise Denied(
                "host", f"the call cannot be recorded, so it was not run: {error.message}", error.hint
            ) from error
        for watcher in self._watchers:
            watcher(trail.record, False)

    def end(self, trail: CallState, result: Result) -> Result:
        """Record the end of a call, and complete its result."""
        if trail.trace is None:
            return self._end(trail, result)
        trail.trace.settled()
        result = self._end(trail, result)
        trail.trace.end(trail, result)
        return result

    def _end(self, trail: CallState, result: Result) -> Result:
        result = trail.complete(result)
        self._tally.add(result)
        record = trail.ended(result)
        for watcher in self._watchers:
            watcher(record, True)
        if trail.attachment.on_record is not None:
            trail.attachment.on_record(record)
        try:
            self._audit.end(record)
        except StoreError as error:
            if not trail.record.verdict:  # it never began, so there is no note of it either
                return trail.complete(
                    failed(Denied("host", f"the call cannot be recorded: {error.message}", error.hint))
                )
            result = warned(result, [f"the end of this call is not recorded: {error.message}"])
        return result
