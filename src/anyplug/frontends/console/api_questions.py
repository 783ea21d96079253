"""`/questions`: calls that wait for a person's answer, in every project of this daemon."""

from typing import Any

import msgspec

from anyplug.call.consent import Answer
from anyplug.frontends.console import api_types as types
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.endpoints import Endpoint
from anyplug.frontends.console.question_shapes import answered_shape, question_shape


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer."""

    word: Answer


async def list_questions(request: ApiRequest) -> dict[str, Any]:
    """Return the open questions, the oldest first."""
    snapshot, waiting = request.host.snapshot, request.host.questions.all
    return {"items": [question_shape(one, snapshot) for one in waiting], "next": None}


async def answer(request: ApiRequest) -> dict[str, Any]:
    """Answer one; the first answer counts, wherever it is given."""
    word = request.read(Word).word
    return answered_shape(request.host.questions.answer(request.values["question"], word, "console"))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/questions",
        name="listQuestions",
        about="List the calls that wait for a person's answer",
        handle=list_questions,
        answer=types.Questions,
    ),
    Endpoint(
        method="POST",
        path="/questions/{question}/answer",
        name="answerQuestion",
        about="Answer a question; the first answer counts",
        handle=answer,
        body=Word,
        answer=types.Answered,
    ),
]
