"""Tier 2's question, as MCP asks it: in the older era by a request to the client, in the newer by ending the call.

In the newer era a question is kept here until it is answered. Whoever answers names it by an id that nobody can guess;
an answer counts once, for the same tool, arguments, plugin and attachment, and for a bounded time. So a state that was
tampered with, or is used again, leads nowhere. An answer can mean once or this attachment; never more.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from anyplug.audit import audit_log
from anyplug.call.consent import Answer, Ask, Question
from anyplug.model import permissions
from anyplug.model.errors import Denied, NeedsAnswer
from anyplug.model.untrusted_text import for_people

ANSWER_S = 50.0  # clients give a call up after 60 s; this ends before, so that they hear why
KEPT_S = 600.0  # how long an answer may take where no request waits for it
MOST_KEPT = 1_000  # questions; the oldest is forgotten, and asked again
FIELD, KEY = "answer", "approval"  # of the form; of the request for input
Elicit = Callable[[str, dict[str, Any]], Awaitable[tuple[str, Any]]]  # a text and a form; gives action and content


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for its answer."""

    attachment: str
    target: str  # what was called
    wire: str  # digest of what it was called with
    digest: str  # of the plugin
    given: str  # digest of the arguments as the person saw them
    until: float


class Questions:
    """The questions that are open."""

    def __init__(self) -> None:
        self._open: dict[str, Kept] = {}

    def keep(self, question: Question, attachment: str, target: str, arguments: Any) -> None:
        """Wait for the answer to a question."""
        while len(self._open) >= MOST_KEPT:
            del self._open[next(iter(self._open))]
        self._open[question.id] = Kept(
            attachment=attachment,
            target=target,
            wire=audit_log.digest_of(arguments),
            digest=question.digest,
            given=audit_log.digest_of(question.arguments),
            until=time.monotonic() + KEPT_S,
        )

    def take(self, name: str, attachment: str, target: str, arguments: Any) -> Kept | None:
        """Return the question that is answered, which is over then; None if it is not one of this caller's."""
        kept = self._open.get(name)
        if kept is None or (kept.attachment, kept.target) != (attachment, target):
            return None
        del self._open[name]
        if kept.wire != audit_log.digest_of(arguments) or kept.until < time.monotonic():
            return None
        return kept


def unable(question: Question) -> Denied:
    """Say that this client cannot ask its user."""
    if question.asker:
        return Denied(
            "host",
            f"{question.asker} wants a person to be asked about '{question.tool}', and this client cannot ask its user",
            f"the user can run it with `anyplug call {question.tool}`, and answer with always",
        )
    if question.caller:
        return Denied(
            "host",
            f"plugin '{question.caller}' wants to call '{question.tool}' of plugin '{question.plugin}', and this "
            "client cannot ask its user",
            f"the user can allow it once and for all with {question.cure}",
        )
    return Denied(
        "host",
        f"plugin '{question.plugin}' is of tier 2 and asks before it runs, and this client cannot ask its user",
        f"the user can answer once and for all with `anyplug approve {question.plugin} --always`",
    )


def by_request(elicit: Elicit, *, for_all: bool = True) -> Ask:
    """Ask by a request to the client. `elicit` raises TimeoutError, and ConnectionError if the client cannot."""

    async def ask(question: Question) -> Answer:
        try:
            action, content = await elicit(text(question), form(for_all=for_all))
        except TimeoutError:
            raise Denied(
                "host", f"nobody answered within {ANSWER_S:g} s whether '{question.tool}' may run", "call it again"
            ) from None
        except ConnectionError as error:
            raise Denied("host", f"the client could not ask its user: {error}", unable(question).hint) from error
        return read(action, content, for_all=for_all)

    return ask


def by_ending(open_question: Callable[[Question], None], kept: Kept | None, answer: Answer, *, can_ask: bool) -> Ask:
    """Ask by ending the call, unless this is the call that came back with the answer."""

    async def ask(question: Question) -> Answer:
        if question.chain:
            raise Denied(
                "host",
                f"'{question.tool}' was called by another tool, and in the midst of that nobody can be asked",
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
    """Say to the person what would run, with what, and what it may do."""
    may = "; ".join(permissions.describe(permission) for permission in question.permissions) or "nothing special"
    asked = f"May plugin '{question.plugin}' run '{question.tool}'?"
    if question.caller:
        asked = f"May plugin '{question.caller}' have plugin '{question.plugin}' run '{question.tool}' for it?"
    lines = [asked, f"With: {question.given}", f"It may: {may}."]
    if question.callers:
        lines.append(f"Called by: {' > '.join(question.callers)}")
    if question.warning:
        lines.append(f"Warning: {question.warning}")
    return "\n".join(map(for_people, lines))


def form(*, for_all: bool) -> dict[str, Any]:
    """Return the form that a client shows."""
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
    """Read what a client says that the person answered; whatever is no clear yes is a no."""
    said = content.get(FIELD) if isinstance(content, dict) else None
    if action != "accept" or not isinstance(said, str) or said not in {"once", "session"}:
        return "no"
    meant: Literal["once", "attachment"] = "attachment" if said == "session" and for_all else "once"
    return meant
