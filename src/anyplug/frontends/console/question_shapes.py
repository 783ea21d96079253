"""Open questions as the API shows them, with the sentences that a page prints. Pure."""

from typing import Any

from anyplug.call import question_texts
from anyplug.call.open_questions import Answered, Waiting
from anyplug.catalog.snapshot import Snapshot
from anyplug.frontends.console.plugin_shapes import plugin_id, risks
from anyplug.model import permissions
from anyplug.model.errors import PluginNotFound


def question_shape(waiting: Waiting, snapshot: Snapshot) -> dict[str, Any]:
    """Return an open question; `words` has what the one who reads it may answer."""
    question = waiting.question
    try:
        known = plugin_id(snapshot.plugin(question.plugin).path)
    except PluginNotFound:  # it is another project's
        known = ""
    return {
        "id": question.id,
        "plugin": question.plugin,
        "plugin_id": known,
        "tool": question.tool,
        "arguments": question.arguments,
        "given": question.given,
        "permissions": list(question.permissions),
        "permission_texts": [permissions.describe(name) for name in question.permissions],
        "warning": question.warning,
        "asker": question.asker,
        "digest": question.digest,
        "chain": list(question.chain),
        "callers": list(question.callers),
        "caller": question.caller,
        "lent": list(question.lent),
        "at": waiting.at,
        "until": waiting.until,
        "attachment": waiting.attachment,
        "kind": waiting.kind,
        "agent": waiting.agent,
        "asks_elsewhere": waiting.asks_elsewhere,
        "words": list(waiting.words),
        "risk": risks(question.permissions),
        "texts": question_texts.texts(waiting),
    }


def answered_shape(answered: Answered) -> dict[str, Any]:
    """Return how a question ended."""
    return {
        "id": answered.question,
        "word": answered.word,
        "by": answered.by,
        "at": answered.at,
        "plugin": answered.plugin,
        "tool": answered.tool,
    }
