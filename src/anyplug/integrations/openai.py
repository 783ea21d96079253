"""The host's tools for OpenAI's SDK, and for every server that speaks its protocols.

    tools = HostTools(host)
    message = (await client.chat.completions.create(model=…, messages=said, tools=tools.for_chat())).choices[0].message
    said += [message, *await tools.answer_chat(message)]

`for_responses` and `answer_response` do the same for the Responses API. With a `SyncHost`, pass the `answer_…` methods
to its `run`.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from anyplug.integrations.missing_packages import require
from anyplug.integrations.model_content import Media, failure_text, parts
from anyplug.integrations.offered_tools import OfferedTools, plain, read_arguments
from anyplug.model.types import Result

require("openai", "openai", "openai")

if TYPE_CHECKING:  # takes seconds, and none of it is needed to run
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessage, ChatCompletionMessageParam
    from openai.types.responses import FunctionToolParam, Response, ResponseInputItemParam

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
DOCUMENT = "application/pdf"
MESSAGE = "a message (completion.choices[0].message)"
RESPONSE = "a response of the Responses API"
ATTACHED = "(attached to the next message)"


class HostTools(OfferedTools):
    """The tools of a host, for an agent built on OpenAI's SDK."""

    def for_chat(self) -> "list[ChatCompletionFunctionToolParam]":
        """Return the tools as `chat.completions.create` takes them."""
        return [
            {
                "type": "function",
                "function": {"name": one.name, "description": one.description, "parameters": one.input_schema},
            }
            for one in self.offered()
        ]

    async def answer_chat(
        self, message: "ChatCompletionMessage | Mapping[str, Any]", *, own: Collection[str] = ()
    ) -> "list[ChatCompletionMessageParam]":
        """Make the calls of a message; return the messages that answer them, to be sent after it.

        Calls of functions in `own` are left to you. Images and documents follow in a message of the user, because
        answers to calls can only be text.
        """
        asked = [
            (call["id"], call["function"]["name"], read_arguments(call["function"].get("arguments")))
            for call in plain(message, ("role", "tool_calls"), MESSAGE).get("tool_calls") or ()
            if "function" in call and call["function"]["name"] not in own
        ]
        results = await self.call_all([(name, arguments) for _, name, arguments in asked])
        answers: list[Any] = []
        attached: list[Any] = []
        for (id, name, _), result in zip(asked, results, strict=True):
            told = _told(result)
            texts = [part if isinstance(part, str) else f"{part.mime_type} {ATTACHED}" for part in told]
            answers.append({"role": "tool", "tool_call_id": id, "content": "\n".join(texts)})
            media = [part for part in told if isinstance(part, Media)]
            attached += [{"type": "text", "text": f"From {name}:"}] if media else []
            attached += map(_for_chat, media)
        return [*answers, {"role": "user", "content": attached}] if attached else answers

    def for_responses(self) -> "list[FunctionToolParam]":
        """Return the tools as `responses.create` takes them."""
        return [
            cast(
                "FunctionToolParam",
                {
                    "type": "function",
                    "name": one.name,
                    "description": one.description,
                    "parameters": one.input_schema,
                    "strict": False,  # the host checks arguments; strict mode takes only a part of JSON Schema
                },
            )
            for one in self.offered()
        ]

    async def answer_response(
        self, response: "Response | Mapping[str, Any]", *, own: Collection[str] = ()
    ) -> "list[ResponseInputItemParam]":
        """Make the calls of a response; return the items that answer them, images and documents included.

        Send them after the response's own items, or with its id as `previous_response_id`. Calls of functions in
        `own` are left to you.
        """
        asked = [
            (item["call_id"], item["name"], read_arguments(item.get("arguments")))
            for item in plain(response, ("output",), RESPONSE).get("output") or ()
            if item.get("type") == "function_call" and item["name"] not in own
        ]
        results = await self.call_all([(name, arguments) for _, name, arguments in asked])
        answers: list[Any] = []
        for (id, _, _), result in zip(asked, results, strict=True):
            told = _told(result)
            output: Any = [_for_responses(part) for part in told]
            if all(isinstance(part, str) for part in told):
                output = "\n".join(map(str, told))
            answers.append({"type": "function_call_output", "call_id": id, "output": output})
        return answers


def _told(result: Result) -> list[str | Media]:
    return [failure_text(result)] if result.is_error else parts(result, _takes)


def _takes(kind: str) -> bool:
    return kind in IMAGES or kind == DOCUMENT


def _for_chat(media: Media) -> Any:
    if media.mime_type in IMAGES:
        return {"type": "image_url", "image_url": {"url": media.url}}
    return {"type": "file", "file": {"filename": media.name or "document.pdf", "file_data": media.url}}


def _for_responses(part: str | Media) -> Any:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.mime_type in IMAGES:
        return {"type": "input_image", "image_url": part.url, "detail": "auto"}
    return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": part.url}
