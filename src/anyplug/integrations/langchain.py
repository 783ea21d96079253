"""The host's tools for LangChain and LangGraph.

    async with Host() as host:
        agent = create_agent("anthropic:claude-sonnet-5-5", HostTools(host).tools())

With a `SyncHost` the tools also work in plain code (`invoke`). A failed call is a ToolMessage with status `error`; the
artifact of every message is the host's own `Result`.
"""

from typing import Any

from anyplug.integrations.missing_packages import require
from anyplug.integrations.model_content import Media, failure_text, parts
from anyplug.integrations.offered_tools import OfferedTools
from anyplug.model.types import Result

require("langchain_core", "langchain-core", "langchain")

from langchain_core.messages import ToolCall, ToolMessage  # noqa: E402 - after the line that says how to install it
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langchain_core.tools import BaseTool, ToolException  # noqa: E402
from pydantic import ConfigDict, PrivateAttr  # noqa: E402

SEEN = ("image/", "audio/")  # what LangChain's messages carry as it is; also documents
DOCUMENT = "application/pdf"


class HostTools(OfferedTools):
    """The tools of a host, for an agent built on LangChain."""

    def tools(self) -> list[BaseTool]:
        """Return the tools that can be called now."""
        return [
            HostTool(self, name=one.name, description=one.description, args_schema=one.input_schema)
            for one in self.offered()
        ]


class HostTool(BaseTool):
    """One tool of a host."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    response_format: Any = "content_and_artifact"
    handle_tool_error: Any = True
    _tools: HostTools = PrivateAttr()

    def __init__(self, tools: HostTools, **fields: Any) -> None:
        super().__init__(**fields)
        self._tools = tools

    def invoke(self, input: str | dict[str, Any] | ToolCall, config: RunnableConfig | None = None, **more: Any) -> Any:
        """Call it, in plain code."""
        return _with_status(super().invoke(input, config, **more))

    async def ainvoke(
        self, input: str | dict[str, Any] | ToolCall, config: RunnableConfig | None = None, **more: Any
    ) -> Any:
        """Call it."""
        return _with_status(await super().ainvoke(input, config, **more))

    def _run(self, **given: Any) -> Any:
        host = self._tools.sync_host
        if host is None:
            raise ToolException(f"'{self.name}' was called without `await`: use ainvoke, or a SyncHost")
        return _told(host.run(self._tools.call, self.name, given))

    async def _arun(self, **given: Any) -> Any:
        return _told(await self._tools.call(self.name, given))


def _told(result: Result) -> tuple[Any, Result]:
    """Return what the model is told, and the result for the program."""
    if result.is_error:
        return failure_text(result), result
    told = parts(result, lambda kind: kind.startswith(SEEN) or kind == DOCUMENT)
    if all(isinstance(part, str) for part in told):
        return "\n".join(map(str, told)), result
    return [_block(part) for part in told], result


def _block(part: str | Media) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind, block = part.mime_type.partition("/")[0], {"mime_type": part.mime_type, "base64": part.base64}
    if kind in {"image", "audio"}:
        return {"type": kind, **block}
    return {"type": "file", **block, "filename": part.name or "document.pdf"}  # OpenAI wants a name


def _with_status(returned: Any) -> Any:
    """Mark the message of a failed call; raising would lose its artifact."""
    if isinstance(returned, ToolMessage) and isinstance(returned.artifact, Result) and returned.artifact.is_error:
        returned.status = "error"
    return returned
