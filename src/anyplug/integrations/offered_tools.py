"""What the adapters share: the tools that a model is offered, and the calls that it makes. Knows no model's API.

Every call is one of the host's, with its gates and its audit. What goes wrong, a denial included, is a failed result
that the model reads.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from anyplug.call.consent import Ask, Attachment
from anyplug.catalog import search_tools, tool_descriptions
from anyplug.catalog.profiles import View
from anyplug.catalog.tool_descriptions import Definition
from anyplug.catalog.tool_search import Index
from anyplug.host.host import Host
from anyplug.host.sync_host import PlainAsk, SyncHost, as_ask
from anyplug.model.types import Failure, Result, Text

# What model APIs refuse at the top of a tool's schema.
REFUSED = ("allOf", "anyOf", "oneOf", "not", "enum", "if", "then", "else", "dependentSchemas")


def plain(given: Any, keys: tuple[str, ...], wanted: str) -> Mapping[str, Any]:
    """Return what a model said, as an object of its SDK or a dict of it, as a dict; raises TypeError for anything else.

    It has one of the `keys`: a completion in place of its message would have no calls, and end an agent silently.
    """
    said = given.model_dump() if hasattr(given, "model_dump") else given
    if not isinstance(said, Mapping) or not any(key in said for key in keys):
        raise TypeError(f"{wanted} is needed, not {type(given).__name__}")
    return said


class OfferedTools:
    """The tools of a host as one agent sees them."""

    def __init__(
        self,
        host: Host | SyncHost,
        *,
        ask: Ask | PlainAsk | None = None,
        yes: bool = False,
        profile: str = "",
        attachment: Attachment | None = None,
        kind: str = "",
    ) -> None:
        """Offer what a `profile` shows, or every tool.

        `ask` is called when a person must agree to a call; `yes` agrees to all tier 2 plugins. Without either, such
        calls fail. An `attachment` brings its own answers instead. The audit names the caller by its `kind`.

        Raises ConfigError if there is no such profile.
        """
        self.sync_host = host if isinstance(host, SyncHost) else None
        self.host = host.host if isinstance(host, SyncHost) else host
        own = attachment.view if attachment is not None else None
        self.view = own or View(self.host.catalog.home, profile)
        kind = kind or type(self).__module__.rpartition(".")[2]
        self.attachment = attachment or Attachment(
            kind, ask=as_ask(ask), yes=yes, view=self.view, shows_panels=False, is_model=True
        )

    def offered(self) -> list[Definition]:
        """Return the tools that can be called now; if there are many, the three that search them."""
        definitions = self._definitions()
        listed = search_tools.TOOLS if self._is_searched(definitions) else definitions
        return [_for_models(one) for one in listed]

    async def call(self, name: str, arguments: Any) -> Result:
        """Call a tool by the name that the model was given, or look for one."""
        if name in {search_tools.FIND, search_tools.DESCRIBE, search_tools.CALL} and self._is_searched():
            given = arguments if isinstance(arguments, dict) else {}
            if name != search_tools.CALL:
                return self._looked_up(name, given)
            target = search_tools.target(given)
            if isinstance(target, Failure):
                return _failed(target)
            name, arguments = target
        return await self.call_host(name, arguments)

    async def call_host(self, name: str, arguments: Any) -> Result:
        """Call a tool; on any event loop, if the host is a `SyncHost`."""
        if self.sync_host is not None and not self.sync_host.is_here:
            return await anyio.to_thread.run_sync(self.sync_host.run, self.call_host, name, arguments)
        result = await self.host.call(name, arguments, attachment=self.attachment)
        self.view.activate(result.activates, self.host.snapshot)
        return result

    async def call_all(self, calls: Sequence[tuple[str, Any]]) -> list[Result]:
        """Make several calls at once; return their results in the same order."""
        results: dict[int, Result] = {}

        async def make(number: int, name: str, arguments: Any) -> None:
            results[number] = await self.call(name, arguments)

        async with anyio.create_task_group() as group:
            for number, (name, arguments) in enumerate(calls):
                group.start_soon(make, number, name, arguments)
        return [results[number] for number in range(len(calls))]

    def _definitions(self) -> list[Definition]:
        self.view.refresh()
        snapshot, is_confining = self.host.snapshot, self.host.catalog.settings.is_confining
        return [
            tool_descriptions.definition(tool, entry, snapshot, is_confining=is_confining)
            for tool, entry in self.view.tools(snapshot)
            if self.view.shows(tool)
        ]

    def _is_searched(self, definitions: list[Definition] | None = None) -> bool:
        known = self._definitions() if definitions is None else definitions
        return tool_descriptions.chosen(self.view, known) == "search"

    def _looked_up(self, name: str, given: dict[str, Any]) -> Result:
        snapshot = self.host.snapshot
        if name == search_tools.FIND:
            answer = search_tools.find(Index(self.view.tools(snapshot), snapshot), snapshot, given)
        else:
            is_confining = self.host.catalog.settings.is_confining
            answer = search_tools.describe_one(self.view, snapshot, given, is_confining=is_confining)
        if isinstance(answer, Failure):
            return _failed(answer)
        return Result(content=(Text(answer[0]),), structured=answer[1], tool=name)


def read_arguments(text: Any) -> Any:
    """Parse arguments as models write them; what is not JSON stays a text, which the host refuses and records."""
    if not isinstance(text, str):
        return text
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return text


def _for_models(defined: Definition) -> Definition:
    """Return a definition whose schema every model's API takes; what it cannot say goes into the description."""
    schema = dict(defined.input_schema)
    said = {key: schema.pop(key) for key in REFUSED if key in schema}
    schema.setdefault("properties", {})
    description = defined.description
    if said:
        description += f"\n\nThe arguments must also fit: {msgspec.json.encode(said).decode()}"
    return msgspec.structs.replace(defined, input_schema=schema, description=description)


def _failed(failure: Failure) -> Result:
    return Result(content=(Text(failure.message),), is_error=True, error=failure)
