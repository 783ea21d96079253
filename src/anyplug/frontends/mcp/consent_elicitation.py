"""The tier 2 question over MCP: in the older era as a request to the client, in the newer by ending the call.

In the newer era a question is kept here until it is answered. The answer names it by a state that only its caller was
given: the question's id is that of the call, which is in the audit log. It counts once, for the same tool, arguments,
plugin and attachment, and for a limited time. So a state that was tampered with or reused has no effect. An answer can
allow one call or this attachment; never more.
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from anyplug.audit import audit_log
from anyplug.call.consent import ASK_A_PERSON, Answer, Ask, Question
from anyplug.model import permissions
from anyplug.model.errors import Denied, NeedsAnswer
from anyplug.model.untrusted_text import for_people

ANSWER_S = 50.0  # clients give up a call after 60 s; this ends before, so that they get the reason
KEPT_S = 600.0  # how long an answer may take if no request waits for it
MOST_KEPT = 1_000  # questions; the oldest is dropped, and asked again
FIELD, KEY = "answer", "approval"  # of the form; of the request for input
Elicit = Callable[[str, dict[str, Any]], Awaitable[tuple[str, Any]]]  # a text and a form; returns action and content


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for its answer."""

    attachment: str
    target: str  # what was called
    wire: str  # digest of what it was called with
    digest: str  # of the plugin
    given: str  # digest of the arguments as the person saw them
    until: float


class Questions:
    """The open questions."""

    def __init__(self) -> None:
        self._open: dict[str, Kept] = {}

    def keep(self, question: Question, attachment: str, target: str, arguments: Any) -> str:
        """Keep a question until it is answered; return the state with which an answer names it."""
        while len(self._open) >= MOST_KEPT:
            del self._open[next(iter(self._open))]
        state = secrets.token_urlsafe()
        self._open[state] = Kept(
            attachment=attachment,
            target=target,
            wire=audit_log.digest_of(arguments),
            digest=question.digest,
            given=audit_log.digest_of(question.arguments),
            until=time.monotonic() + KEPT_S,
        )
        return state

    def take(self, state: str, attachment: str, target: str, arguments: Any) -> Kept | None:
        """Return the answered question and close it; None if it is not one of this caller's."""
        kept = self._open.get(state)
        if kept is None or (kept.attachment, kept.target) != (attachment, target):
            return None
        del self._open[state]
        if kept.wire != audit_log.digest_of(arguments) or kept.until < time.monotonic():
            return None
        return kept


def unable(question: Question) -> Denied:
    """Return the error for a client that cannot ask its user."""
    if question.asks_model:
        asks = f"plugin '{question.plugin}' asks for your model, but this client cannot ask its user"
        return Denied("host", asks, ASK_A_PERSON)
    if question.asker:
        return Denied(
            "host",
            f"{question.asker} wants a person to confirm '{question.tool}', but this client cannot ask its user",
            f'the user can run it with `anyplug call {question.tool}` and answer "always"',
        )
    if question.caller:
        return Denied(
            "host",
            f"plugin '{question.caller}' wants to call '{question.tool}' of plugin '{question.plugin}', but this "
            "client cannot ask its user",
            f"the user can allow it permanently with {question.cure}",
        )
    return Denied(
        "host",
        f"plugin '{question.plugin}' needs confirmation (tier 2), but this client cannot ask its user",
        f"the user can allow it permanently with `anyplug approve {question.plugin} --always`",
    )


def by_request(elicit: Elicit, *, for_all: bool = True) -> Ask:
    """Ask through a request to the client. `elicit` raises TimeoutError, and ConnectionError if the client cannot."""

    async def ask(question: Question) -> Answer:
        try:
            action, content = await elicit(text(question), form(for_all=for_all))
        except TimeoutError:
            raise Denied(
                "host",
                (f"the user did not answer within {ANSWER_S:g} s whether '{question.tool}' may run"),
                "call it again",
            ) from None
        except ConnectionError as error:
            raise Denied("host", f"the client could not ask its user: {error}", unable(question).hint) from error
        return read(action, content, for_all=for_all)

    return ask


def by_ending(open_question: Callable[[Question], None], kept: Kept | None, answer: Answer, *, can_ask: bool) -> Ask:
    """Ask by ending the call, unless this call already carries the answer."""

    async def ask(question: Question) -> Answer:
        if question.asks_model:
            raise unable(question)  # its tool is running: nothing can be asked by ending the call
        if question.chain:
            raise Denied(
                "host",
                f"'{question.tool}' was called by another tool, and a question cannot be asked in the middle of that",
                unable(question).hint,
            )
        if kept is not None and (kept.digest, kept.given) == (question.digest, audit_log.digest_of(question.arguments)):
            return answer
        if not can_ask:
            raise unable(question)
        open_question(question)
        raise NeedsAnswer(question.plugin, question.tool, question.id)

    return ask


def text(question: Question) -> str:
    """Describe for the person what would run, with what, and what it may do."""
    may = "; ".join(permissions.describe(permission) for permission in question.permissions) or "nothing special"
    asked = f"May plugin '{question.plugin}' run '{question.tool}'?"
    if question.caller:
        asked = f"May plugin '{question.caller}' have plugin '{question.plugin}' run '{question.tool}' for it?"
    if question.asks_model:
        asked = f"May plugin '{question.plugin}' ask your model, at your cost? It gets the answer."
    lines = [asked, f"With: {question.given}", f"It may: {may}."]
    if question.callers:
        lines.append(f"Called by: {' > '.join(question.callers)}")
    if question.warning:
        lines.append(f"Warning: {question.warning}")
    return "\n".join(map(for_people, lines))


def form(*, for_all: bool) -> dict[str, Any]:
    """Return the form for the client to show."""
    choices: dict[str, str] = {"once": "Yes, this once"}
    if for_all:
        choices["session"] = "Yes, for this session"
    choices["no"] = "No"
    return {
        "type": "object",
        "properties": {
            FIELD: {
                "type": "string",
                "title": "Answer",
                "enum": list(choices),
                "enumNames": list(choices.values()),
            }
        },
        "required": [FIELD],
    }


def read(action: str, content: Any, *, for_all: bool) -> Answer:
    """Parse a client's report of the person's answer; anything but a clear yes is a no."""
    said = content.get(FIELD) if isinstance(content, dict) else None
    if action != "accept" or not isinstance(said, str) or said not in {"once", "session"}:
        return "no"
    meant: Literal["once", "attachment"] = "attachment" if said == "session" and for_all else "once"
    return meant
