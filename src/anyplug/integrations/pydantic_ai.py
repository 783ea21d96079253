"""The host's tools for Pydantic AI: a toolset for its agents.

    async with Host() as host:
        agent = Agent("anthropic:claude-sonnet-5-5", toolsets=[HostToolset(host)])
        print((await agent.run("How many words are in README.md?")).output)

Every call passes the host's gates and its audit. What goes wrong, a denial included, is a failed result that the model
reads; only the cancellation of the run itself is raised.
"""

from typing import Any

from anyplug.call.consent import Ask, Attachment
from anyplug.catalog import tool_descriptions
from anyplug.host.host import Host
from anyplug.host.sync_host import PlainAsk, SyncHost
from anyplug.integrations.missing_packages import require
from anyplug.integrations.model_content import failure_text, parts
from anyplug.integrations.offered_tools import OfferedTools
from anyplug.model.types import Result

require("pydantic_ai", "pydantic-ai-slim", "pydantic_ai")

from pydantic_ai import RunContext, ToolReturn  # noqa: E402 - after the line that says how to install it
from pydantic_ai.exceptions import ToolFailed  # noqa: E402
from pydantic_ai.messages import BinaryContent  # noqa: E402
from pydantic_ai.tools import ToolDefinition  # noqa: E402
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool  # noqa: E402
from pydantic_core import SchemaValidator, core_schema  # noqa: E402

SEEN = ("image/", "audio/")  # kinds of files that models take as they are; others only as text
# The host checks arguments, and as strictly as the plugin's format and the user's settings say.
ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


class HostToolset(AbstractToolset[Any]):
    """The tools of a host, under the names that agents use for them."""

    def __init__(
        self,
        host: Host | SyncHost,
        *,
        ask: Ask | PlainAsk | None = None,
        yes: bool = False,
        profile: str = "",
        attachment: Attachment | None = None,
        id: str = "anyplug",
    ) -> None:
        """Offer what a `profile` shows, or every tool.

        `ask` is called when a person must agree to a call; `yes` agrees to all tier 2 plugins. An `attachment` brings
        its own answers instead. Raises ConfigError if there is no such profile.
        """
        self._tools = OfferedTools(host, ask=ask, yes=yes, profile=profile, attachment=attachment, kind="pydantic-ai")
        self.host, self.view, self.attachment = self._tools.host, self._tools.view, self._tools.attachment
        self._id = id

    @property
    def id(self) -> str:
        """The toolset's id in its agent."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that can be called now; if there are many, the model searches them."""
        self.view.refresh()
        snapshot = self.host.snapshot
        is_confining = self.host.catalog.settings.is_confining
        shown = [
            (tool, tool_descriptions.definition(tool, entry, snapshot, is_confining=is_confining))
            for tool, entry in self.view.tools(snapshot)
        ]
        is_searched = tool_descriptions.chosen(self.view, [defined for _, defined in shown]) == "search"
        return {
            defined.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=defined.name,
                    description=defined.description,
                    parameters_json_schema=defined.input_schema,
                    defer_loading=not self.view.shows(tool) or is_searched,
                ),
                max_retries=1,
                args_validator=ANY_OBJECT,
            )
            for tool, defined in shown
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool through the host; raises ToolFailed with what the model is told if the call failed."""
        result = await self._tools.call_host(name, tool_args)
        return self.returned(result)

    def returned(self, result: Result) -> ToolReturn[Any]:
        """Return a result as a model gets it; raises ToolFailed if the call failed."""
        if result.is_error:
            raise ToolFailed(failure_text(result))
        self.view.activate(result.activates, self.host.snapshot)
        names = self.host.snapshot.model_names
        activated = [names.get(self.host.snapshot.full_name(name), name) for name in result.activates]
        return ToolReturn(return_value=content_of(result), tools=activated or None)


def content_of(result: Result) -> Any:
    """Return a result's content for a model: a text, or a list of texts and files."""
    told = parts(result, lambda kind: kind.startswith(SEEN))
    if all(isinstance(part, str) for part in told):
        return "\n".join(map(str, told))
    return [
        part if isinstance(part, str) else BinaryContent(data=part.data, media_type=part.mime_type) for part in told
    ]
