"""Audit records of agents' own tools that policies refused, with `anyplug eval` or through the daemon."""

import os
import time

from anyplug.audit import audit_log
from anyplug.audit.audit_log import Audit, Record
from anyplug.home.database import Store
from anyplug.home.settings import Home, Settings
from anyplug.model.errors import StoreError
from anyplug.model.untrusted_text import for_people
from anyplug.policy.eval_requests import RecordRefusal, Refused

UNGUESSABLE = 8  # bytes of a record's id
LONGEST = 200  # characters of a name that the agent sent
LONGEST_REASON = 2_000  # characters: a policy writes it, and may quote the agent


def recorder(home: Home, settings: Settings) -> RecordRefusal:
    """Return a function that records refusals in the home's audit. The database is open only while one is written."""
    store = Store(home.store)
    trail = Audit(store, home.second_head(settings))

    def record(refused: Refused) -> str:
        at = time.time_ns() // 1000
        try:
            arguments = audit_log.digest_of(refused.arguments)
        except (TypeError, ValueError, RecursionError):
            arguments = ""
        entry = Record(
            call=f"{at:x}{os.urandom(UNGUESSABLE).hex()}",
            at=at / 1_000_000,
            attachment=for_people(f"{refused.harness}:{refused.session}"[:LONGEST]),
            tool=for_people(refused.tool)[:LONGEST],
            format=refused.harness,
            arguments=arguments,
            verdict="denied",
            by=refused.by,
            reason=refused.reason[:LONGEST_REASON],
            outcome="denied",
        )
        try:
            trail.end(entry)
        except StoreError as error:
            return f"warning: this refusal is not in the audit: {error.message}"
        finally:
            store.close()
        return ""

    return record
