"""Write audit records of policy decisions about agents' own tools.

Recorded are refusals, questions and changes; what is simply allowed only where the settings ask for it: anyplug does
not run these tools, and an agent calls many.
"""

import time
from typing import TYPE_CHECKING

from anyplug.audit.call_ids import call_id
from anyplug.home.database import Store
from anyplug.home.settings import Home, Settings
from anyplug.model.errors import StoreError
from anyplug.model.untrusted_text import for_people
from anyplug.policy.eval_requests import Decided, RecordDecision

if TYPE_CHECKING:
    from anyplug.audit.audit_log import Audit

LONGEST_PATH = 1_000  # characters
LONGEST = 200  # characters of a name that the agent sent
ENDS = {  # by a policy's verb: verdict and outcome; all others refuse
    "allow": ("allowed", "allowed"),
    "modify": ("modified", "modified"),
    "ask": ("asked", "asked"),
}
LONGEST_REASON = 2_000  # characters: a policy writes it, and may quote the agent


def recorder(home: Home, settings: Settings) -> RecordDecision:
    """Return a function that records decisions in the home's audit. The database is open only while one is written."""
    store = Store(home.store)
    trail: Audit | None = None

    def record(made: Decided) -> str:
        nonlocal trail
        if made.verb == "allow" and not settings.audit.agent_calls:
            return ""
        from anyplug.audit import audit_log  # most events are not recorded, and it takes 7 ms to import

        trail = trail or audit_log.Audit(store, home.second_head(settings))
        verdict, outcome = ENDS.get(made.verb, ("denied", "denied"))
        at = time.time_ns() // 1000
        try:
            arguments = audit_log.digest_of(made.arguments)
        except (TypeError, ValueError, RecursionError):
            arguments = ""
        entry = audit_log.Record(
            call=call_id(at),
            at=at / 1_000_000,
            attachment=for_people(f"{made.harness}:{made.session}"[:LONGEST]),
            agent=made.harness,
            project=for_people(made.project[:LONGEST_PATH]),
            tool=for_people(made.tool)[:LONGEST],
            format=made.harness,
            arguments=arguments,
            verdict=verdict,
            by=made.by,
            reason=made.reason[:LONGEST_REASON],
            notes=tuple(map(for_people, made.notes)),
            notes_by=("agent",) * len(made.notes),
            outcome=outcome,
        )
        try:
            trail.end(entry)
        except StoreError as error:
            return f"warning: this decision is not in the audit: {error.message}"
        finally:
            store.close()
        return ""

    return record
