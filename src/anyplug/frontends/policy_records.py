"""Audit records of calls of agents' own tools that policies refused, held or changed."""

import os
import time

from anyplug.audit import audit_log
from anyplug.audit.audit_log import Audit, Record
from anyplug.home.database import Store
from anyplug.home.settings import Home, Settings
from anyplug.model.errors import StoreError
from anyplug.model.untrusted_text import for_people
from anyplug.policy.eval_requests import Decided, RecordDecision

UNGUESSABLE = 8  # bytes of a record's id
LONGEST = 200  # characters of a name that the agent sent
LONGEST_REASON = 2_000  # characters: a policy writes it, and may quote the agent


def recorder(home: Home, settings: Settings) -> RecordDecision:
    """Return a function that records decisions in the home's audit. The database is open only while one is written."""
    store = Store(home.store)
    trail = Audit(store, home.second_head(settings))

    def record(decided: Decided) -> str:
        at = time.time_ns() // 1000
        try:
            arguments = audit_log.digest_of(decided.arguments)
        except (TypeError, ValueError, RecursionError):
            arguments = ""
        entry = Record(
            call=f"{at:x}{os.urandom(UNGUESSABLE).hex()}",
            at=at / 1_000_000,
            attachment=for_people(f"{decided.harness}:{decided.session}"[:LONGEST]),
            tool=for_people(decided.tool)[:LONGEST],
            format=decided.harness,
            arguments=arguments,
            verdict=decided.verdict,
            by=decided.by,
            reason=decided.reason[:LONGEST_REASON],
            notes=tuple(map(for_people, decided.notes)),
            notes_by=("agent",) * len(decided.notes),
            outcome=decided.verdict,
        )
        try:
            trail.end(entry)
        except StoreError as error:
            return f"warning: this decision is not in the audit: {error.message}"
        finally:
            store.close()
        return ""

    return record
