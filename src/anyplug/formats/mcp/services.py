"""A server's services besides tools: resources, templates of resources, prompts, and completion of arguments.

Each is reached by a call of the host: reading, subscribing and completing are tools that no list shows (`SERVICES`), a
prompt is a slash command. So they pass the same gates and the same audit as tools.
"""

import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from anyplug.formats.mcp.tool_results import TIMEOUT_S, block
from anyplug.formats.shared.features import PromptAnswer
from anyplug.model.tool_names import model_name
from anyplug.model.types import Command, Parameter, PromptMessage, Resource, Result, ServedResource, Text, Tool

if TYPE_CHECKING:
    import mcp_types as types

READ, SUBSCRIBE, UNSUBSCRIBE = "resources/read", "resources/subscribe", "resources/unsubscribe"
COMPLETE = "completion/complete"
URI = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
SERVICES: dict[str, dict[str, Any]] = {READ: URI, SUBSCRIBE: URI, UNSUBSCRIBE: URI, COMPLETE: {"type": "object"}}
MOST = 1_000  # resources, templates and prompts, of each; real servers list a few dozen
LONGEST_URI = 2_000  # characters


class Served(msgspec.Struct):
    """What a server listed besides its tools."""

    resources: "list[types.Resource]" = []
    templates: "list[types.ResourceTemplate]" = []
    prompts: "list[types.Prompt]" = []
    services: list[str] = []  # of `SERVICES`
    warnings: list[str] = []

    def prompt(self, server: str, command: str) -> "types.Prompt | None":
        """Find a prompt by the name of its slash command."""
        return self._by_command(server).get(command)

    def _by_command(self, server: str) -> "dict[str, types.Prompt]":
        """Return the prompts by the names of their slash commands; the first of a name wins."""
        found: dict[str, types.Prompt] = {}
        for prompt in self.prompts[:MOST]:
            found.setdefault(model_name(f"mcp.{server}.{prompt.name}"), prompt)
        return found

    def commands(self, plugin: str, server: str) -> tuple[Command, ...]:
        """Return the prompts as slash commands."""
        return tuple(
            Command(
                name=name,
                plugin=plugin,
                description=prompt.description or prompt.title or "",
                title=prompt.title or "",
                process=server,
                own_name=prompt.name,
                parameters=tuple(
                    Parameter(one.name, one.description or "", required=bool(one.required))
                    for one in prompt.arguments or ()
                ),
            )
            for name, prompt in self._by_command(server).items()
        )

    def listed(self, plugin: str, server: str) -> tuple[ServedResource, ...]:
        """Return the resources and the templates."""
        listed = [(str(one.uri), one.size, one) for one in self.resources[:MOST]]
        listed += [(one.uri_template, None, one) for one in self.templates[:MOST]]  # type: ignore[misc]
        return tuple(
            ServedResource(
                uri=uri,
                own_uri=uri,
                plugin=plugin,
                process=server,
                name=one.name,
                title=one.title or "",
                description=one.description or "",
                mime_type=one.mime_type or "",
                size=size,
                is_template=number >= len(self.resources[:MOST]),
            )
            for number, (uri, size, one) in enumerate(listed)
            if len(uri) <= LONGEST_URI
        )

    def tools(self, plugin: str, server: str) -> tuple[Tool, ...]:
        """Return the services as tools that no list shows."""
        return tuple(
            Tool(
                name=f"mcp.{server}.{name}",
                own_name=f"{server}.{name}",
                plugin=plugin,
                description="",
                input_schema=SERVICES[name],
                program="",
                timeout_s=TIMEOUT_S,
                process=server,
            )
            for name in self.services
        )


def contents(answer: "types.ReadResourceResult") -> Result:
    """Convert what a resource holds."""
    return Result(
        content=tuple(
            Resource(
                uri=str(held.uri),
                mime_type=held.mime_type or "",
                text=getattr(held, "text", ""),
                data=getattr(held, "blob", ""),
            )
            for held in answer.contents
        )
    )


def prompt_answer(answer: "types.GetPromptResult") -> PromptAnswer:
    """Convert a prompt's messages; their text is what is sent to the agent."""
    messages = tuple(PromptMessage(one.role, block(one.content)) for one in answer.messages)
    texts = [one.content.text for one in messages if isinstance(one.content, Text | Resource) and one.content.text]
    return PromptAnswer(
        action="prompt", prompt="\n\n".join(texts), messages=messages, description=answer.description or ""
    )


def words_of(arguments: dict[str, str]) -> str:
    """Return a prompt's arguments as they are typed after a slash command."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in arguments.items())


def read_words(words: str, names: list[str]) -> dict[str, str]:
    """Parse what was typed after a prompt's slash command: `name=value`, or values in the order of its arguments."""
    try:
        parts = shlex.split(words)
    except ValueError:  # an apostrophe
        parts = words.split()
    given: dict[str, str] = {}
    rest: list[str] = []
    for part in parts:
        name, sign, value = part.partition("=")
        if sign and name in names and name not in given:
            given[name] = value
        else:
            rest.append(part)
    free = [name for name in names if name not in given]
    for number, name in enumerate(free[: len(rest)]):
        is_last = number == len(free) - 1
        given[name] = " ".join(rest[number:]) if is_last else rest[number]
    return given
