"""`/conversations`: chats with a model, in the page."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from anyplug.agent.conversation_store import ConversationStore
from anyplug.agent.example_requests import example_requests
from anyplug.call.consent import Answer
from anyplug.frontends.console import api_types as types
from anyplug.frontends.console.api_events import stream
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.api_trust import NoBody
from anyplug.frontends.console.console_app import Stream
from anyplug.frontends.console.endpoints import PAGING, Endpoint, Query
from anyplug.frontends.console.page_conversations import OpenConversation, PageConversations

LONGEST_MESSAGE = 1_000_000  # characters

_conversations = PageConversations()


class OpenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new conversation, or a stored one to go on with."""

    model: str = ""
    resume: str = ""


class MessageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message. A line that begins with a slash is a command."""

    text: str


class AnswerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer to a question of a conversation."""

    question: str
    word: Answer


class ModelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another model."""

    model: str


def _one(request: ApiRequest) -> OpenConversation:
    return _conversations.find(request.values["conversation"], request.place)


async def list_conversations(request: ApiRequest) -> dict[str, Any]:
    """Return the stored conversations of this project, and the open ones."""
    host = request.host
    store = ConversationStore(host.catalog.store, host.catalog.settings.chat.keep)
    is_open = _conversations.of(request.place)
    stored = [
        {"id": one.id, "title": one.title, "model": one.model, "at": one.changed, "is_open": one.id in is_open}
        for one in store.all(host.project)
    ]
    known = {one["id"] for one in stored}
    fresh = [
        {"id": name, "title": one.talk.title, "model": one.talk.choice.text, "at": 0.0, "is_open": True}
        for name, one in is_open.items()
        if name not in known
    ]
    return request.page([*fresh, *stored])


async def open_one(request: ApiRequest) -> dict[str, str]:
    """Open a conversation."""
    body = request.read(OpenBody)
    return {"id": await _conversations.open(request.server, request.place, body.model, body.resume)}


async def show_one(request: ApiRequest) -> dict[str, Any]:
    """Return what is shown of an open conversation up to now, and from where its events go on."""
    one = _one(request)
    after = f"{one.ring.epoch}-{one.ring.last}"
    return {
        "id": one.talk.id,
        "title": one.talk.title,
        "model": one.talk.choice.text,
        "is_open": True,
        "after": after,
        "events": list(one.talk.so_far()),
        "examples": example_requests(request.host.snapshot.owners),
    }


async def close_one(request: ApiRequest) -> None:
    """Close a conversation; it stays stored."""
    _one(request).over.set()


async def send_message(request: ApiRequest) -> dict[str, Any]:
    """Send a message."""
    await _one(request).talk.send(request.read(MessageBody).text[:LONGEST_MESSAGE])
    return {}


async def cancel_turn(request: ApiRequest) -> dict[str, Any]:
    """Cancel the running turn."""
    await _one(request).talk.cancel()
    return {}


async def take_back(request: ApiRequest) -> dict[str, str]:
    """Take the last queued message back."""
    return {"text": _one(request).talk.take_back()}


async def answer_one(request: ApiRequest) -> dict[str, Any]:
    """Answer a question of a conversation."""
    body = request.read(AnswerBody)
    _one(request).talk.answer(body.question, body.word)
    return {}


async def use_model(request: ApiRequest) -> dict[str, Any]:
    """Go on with another model."""
    await _one(request).talk.use_model(request.read(ModelBody).model)
    return {}


async def list_commands(request: ApiRequest) -> dict[str, Any]:
    """Return the slash commands of a conversation."""
    return {"items": list(await _one(request).talk.commands()), "next": None}


async def follow_one(request: ApiRequest) -> Stream:
    """Return the events of a conversation from now on, or from the last one that the client has."""
    one = _one(request)
    last = request.headers.get(b"last-event-id", b"").decode("latin-1") or request.text("after")
    return Stream(_events(one, last))


def _events(one: OpenConversation, last: str) -> AsyncIterator[bytes]:
    @contextmanager
    def followed() -> Iterator[None]:
        one.streams += 1
        try:
            yield
        finally:
            one.streams -= 1

    return stream(one.ring, last, b"event: hello\ndata: {}\n\n", followed())


def _on_one(method: str, name: str, about: str, handle: Any, path: str = "", **more: Any) -> Endpoint:
    whole = f"/conversations/{{conversation}}{path}"
    more = {"answer": types.Nothing, **more}
    return Endpoint(method=method, path=whole, name=name, about=about, handle=handle, **more)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/conversations",
        name="listConversations",
        about="List conversations of this project",
        handle=list_conversations,
        answer=types.Conversations,
        queries=PAGING,
    ),
    Endpoint(
        method="POST",
        path="/conversations",
        name="openConversation",
        about="Open a conversation, new or stored",
        handle=open_one,
        body=OpenBody,
        answer=types.ConversationId,
    ),
    _on_one("GET", "showConversation", "Show an open conversation", show_one, answer=types.ConversationShape),
    _on_one("DELETE", "closeConversation", "Close a conversation", close_one, kind="nothing", status=204),
    _on_one("POST", "sendMessage", "Send a message", send_message, "/messages", body=MessageBody, status=202),
    _on_one("POST", "cancelTurn", "Cancel the running turn", cancel_turn, "/cancel", body=NoBody),
    _on_one(
        "POST",
        "takeBack",
        "Take the last queued message back",
        take_back,
        "/take-back",
        body=NoBody,
        answer=types.TakenBack,
    ),
    _on_one(
        "POST",
        "answerInConversation",
        "Answer a question of a conversation",
        answer_one,
        "/answer",
        body=AnswerBody,
    ),
    _on_one("POST", "useModel", "Go on with another model", use_model, "/model", body=ModelBody),
    _on_one(
        "GET",
        "listConversationCommands",
        "List the slash commands of a conversation",
        list_commands,
        "/commands",
        answer=types.Choices,
    ),
    _on_one(
        "GET",
        "followConversation",
        "Follow a conversation; `Last-Event-ID` resumes",
        follow_one,
        "/events",
        kind="events",
        answer=None,
        queries=(Query("after", "the id of the last event that the client has"),),
    ),
]
