"""The sentences of a question about a call, for every face: what runs, what it could do, how long each answer lasts.

Each sentence says exactly what `consent` stores for that answer. Pure.
"""

from typing import Final

from anyplug.call.open_questions import Waiting
from anyplug.model import permissions

WHO: Final = {"cli": "this run of the command", "chat": "this chat", "console": "this page", "mcp": "this agent"}
UNTIL: Final = {
    "cli": "until the command ends",
    "chat": "until you close it",
    "console": "until you sign out",
    "mcp": "until it disconnects",
}


def texts(waiting: Waiting) -> dict[str, str]:
    """Return what a face prints for a question and beside each answer."""
    question, kind = waiting.question, waiting.kind
    who, until = WHO.get(kind, "this caller"), UNTIL.get(kind, "until it ends")
    subject = question.plugin
    if question.caller:
        title = f"{question.caller} wants {subject} to {question.wants}, for {who}."
    else:
        title = f"{subject} wants to {question.wants}, for {who}."
    named = [permissions.describe(name) for name in question.permissions]
    could = f"It could {', '.join(named)}." if named else "It was granted nothing special."
    if question.asker:
        covered = "each call that this rule asks about"
        always = "this rule does not ask about it again, until the policies change"
    elif question.asks_model:
        covered = f"all questions of {subject} to your model"
        always = ""
    elif question.caller:
        covered = f"{question.caller}'s calls of {subject}"
        always = ""
    else:
        covered = f"all calls of {subject}'s tools"
        always = "every chat and agent, until the plugin changes"
    return {
        "title": title,
        "now": "If you allow it, it runs once with these arguments.",
        "could": could,
        "once": "this call",
        "attachment": f"{covered}, for {who}, {until}",
        "always": always,
        "no": "the caller is told, and may try something else",
    }
