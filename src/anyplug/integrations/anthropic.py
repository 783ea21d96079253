"""The host's tools for Anthropic's SDK.

    tools = HostTools(host)
    message = await client.messages.create(model=…, max_tokens=…, messages=said, tools=tools.definitions())
    said += [{"role": "assistant", "content": message.content}, *await tools.answer(message)]

`runnable` returns the same tools for the SDK's own loop, `client.beta.messages.tool_runner`. With a `SyncHost`, pass
`answer` to its `run`.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from anyplug.catalog.tool_descriptions import Definition
from anyplug.integrations.missing_packages import require
from anyplug.integrations.model_content import Media, failure_text, parts
from anyplug.integrations.offered_tools import OfferedTools, plain
from anyplug.model.types import Result

require("anthropic", "anthropic", "anthropic")

if TYPE_CHECKING:  # takes seconds, and little of it is needed to run
    from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, BetaBuiltinFunctionTool
    from anthropic.types import Message, MessageParam, ToolParam

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
DOCUMENT = "application/pdf"
MESSAGE = "a message (what messages.create returned)"


class HostTools(OfferedTools):
    """The tools of a host, for an agent built on Anthropic's SDK."""

    def definitions(self) -> "list[ToolParam]":
        """Return the tools as `messages.create` takes them."""
        return [_definition(one) for one in self.offered()]

    async def answer(
        self, message: "Message | Mapping[str, Any]", *, own: Collection[str] = ()
    ) -> "list[MessageParam]":
        """Make the calls of a message; return the user's message that answers them, or nothing if it has none.

        Calls of tools in `own` are left to you: their results belong into the same message.
        """
        said = plain(message, ("content",), MESSAGE)
        asked = [
            (block["id"], block["name"], block.get("input"))
            for block in said.get("content") or ()
            if isinstance(block, Mapping) and block.get("type") == "tool_use" and block["name"] not in own
        ]
        if not asked:
            return []
        results = await self.call_all([(name, given) for _, name, given in asked])
        blocks = [
            {"type": "tool_result", "tool_use_id": id, "content": _content(result), "is_error": result.is_error}
            for (id, _, _), result in zip(asked, results, strict=True)
        ]
        return [cast("MessageParam", {"role": "user", "content": blocks})]

    def runnable(self) -> "list[BetaAsyncBuiltinFunctionTool]":
        """Return the tools for the tool runner of an `AsyncAnthropic` client."""
        from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, ToolError  # takes seconds

        class Runnable(BetaAsyncBuiltinFunctionTool):
            def __init__(self, tools: HostTools, defined: Definition) -> None:
                self._tools, self._defined = tools, defined

            @property
            def name(self) -> str:
                return self._defined.name

            def to_dict(self) -> Any:
                return _definition(self._defined)

            async def call(self, input: object) -> Any:
                return _returned(await self._tools.call(self.name, input), ToolError)

        return [Runnable(self, one) for one in self.offered()]

    def sync_runnable(self) -> "list[BetaBuiltinFunctionTool]":
        """Return the tools for the tool runner of a plain `Anthropic` client; needs a `SyncHost`."""
        from anthropic.lib.tools import BetaBuiltinFunctionTool, ToolError  # takes seconds

        if self.sync_host is None:
            raise TypeError("sync_runnable needs a SyncHost; with a Host, use runnable")
        run = self.sync_host.run

        class Runnable(BetaBuiltinFunctionTool):
            def __init__(self, tools: HostTools, defined: Definition) -> None:
                self._tools, self._defined = tools, defined

            @property
            def name(self) -> str:
                return self._defined.name

            def to_dict(self) -> Any:
                return _definition(self._defined)

            def call(self, input: object) -> Any:
                return _returned(run(self._tools.call, self.name, input), ToolError)

        return [Runnable(self, one) for one in self.offered()]


def _definition(one: Definition) -> "ToolParam":
    return {"name": one.name, "description": one.description, "input_schema": one.input_schema}


def _returned(result: Result, error: type[Exception]) -> Any:
    if result.is_error:
        raise error(failure_text(result))
    return _content(result)


def _content(result: Result) -> Any:
    """Return a result's content; the API takes only text in one that failed."""
    if result.is_error:
        return failure_text(result)
    told = parts(result, lambda kind: kind in IMAGES or kind == DOCUMENT)
    if all(isinstance(part, str) for part in told):
        return "\n".join(map(str, told))
    return [_block(part) for part in told]


def _block(part: str | Media) -> Any:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.mime_type, "data": part.base64}
    return {"type": "image" if part.mime_type in IMAGES else "document", "source": source}
