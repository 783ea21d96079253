"""The daemon's handlers for one command-line client: a method for each request."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import msgspec

from anyplug.call.chains import ChainOutcome
from anyplug.call.consent import Attachment
from anyplug.call.slash_commands import CommandOutcome
from anyplug.catalog.offers import NOT_RUNNING, merged
from anyplug.frontends.daemon import protocol
from anyplug.frontends.json_output import process_shape
from anyplug.host.host import Host
from anyplug.model.errors import StoreError, ToolNotFound, Unavailable
from anyplug.model.types import Note, Result
from anyplug.peers.notices import note_taker, note_teller, text_taker
from anyplug.peers.slot import Slot

GRACE_S = 0.1  # for notes that follow right after a command's answer


class Answers:
    """Answers one client's requests; call it with one."""

    def __init__(self, host: Host, attachment: Attachment, send: Callable[[Any], None]) -> None:
        """`send` is for messages before the answer."""
        self._host = host
        self._attachment = attachment
        self._send = send
        self._by_kind: Mapping[type, Callable[[Any], Awaitable[Any]]] = {
            protocol.CallTool: self._call,
            protocol.FindTool: self._find,
            protocol.RunCommand: self._run,
            protocol.RunChain: self._chain,
            protocol.Look: self._look,
            protocol.Conditions: self._conditions,
            protocol.Reload: self._reload,
        }

    async def __call__(self, request: protocol.Request) -> Any:
        """Return the answer. Raises AnyplugError."""
        answer = self._by_kind.get(type(request))
        if answer is None:
            raise protocol.BadFrame("this kind of client cannot request that", "")
        return await answer(request)

    async def _call(self, request: protocol.CallTool) -> Result:
        await self._host.hear_out(request.name)
        try:
            plugin = self._host.snapshot.tool(request.name)[0].plugin
        except ToolNotFound:
            plugin = ""
        stop = self._host.listen(note_teller(plugin, lambda text: self._send({"note": text})), catch_up=False)
        try:
            return await self._host.call(
                request.name, request.arguments, attachment=self._attachment, wait=request.wait
            )
        finally:
            stop()

    async def _find(self, request: protocol.FindTool) -> protocol.Found:
        await self._host.hear_out(request.name)
        name, snapshot = request.name.removeprefix("/"), self._host.snapshot
        is_tool = snapshot.knows(name)
        return protocol.Found(
            is_command=snapshot.knows(f"/{name}"),
            is_tool=is_tool,
            input_schema=snapshot.tool(name)[0].input_schema if is_tool else None,
        )

    async def _run(self, request: protocol.RunCommand) -> CommandOutcome:
        return await run_command(self._host, request.line, self._attachment)

    async def _chain(self, request: protocol.RunChain) -> ChainOutcome:
        def tell(number: int, result: Result) -> None:
            self._send({"id": request.id, "step": number, "result": result})

        return await self._host.run_chain(request.steps, attachment=self._attachment, on_step=tell)

    async def _look(self, request: protocol.Look) -> dict[str, Any]:
        await self._look_again()  # a client that has just decided something is ahead of us
        plugin = self._host.snapshot.plugin(request.path).plugin
        places = await self._host.peers.look_in(plugin, retry=True)
        if not places:  # or another client has decided something since
            raise Unavailable(f"plugin '{plugin.name}' is not running", "try again")
        return process_shape(places)

    async def _look_again(self) -> None:
        with contextlib.suppress(StoreError):
            await self._host.look_again()

    async def _conditions(self, _: protocol.Conditions) -> dict[str, protocol.Condition]:
        await self._look_again()
        return conditions(self._host)

    async def _reload(self, request: protocol.Reload) -> str:
        before = self._host.snapshot
        now = await self._host.reload(request.name or None)
        if request.name and (entry := now.plugin(request.name)).is_down:
            reasons = [problem for problem in entry.problems if problem.code == NOT_RUNNING]
            raise Unavailable(f"{entry.name} did not restart: {reasons[0].message}", reasons[0].hint)
        return "\n".join([now.compared_to(before), *now.faults])


def conditions(host: Host) -> dict[str, protocol.Condition]:
    """Return the current status of long-running plugins in a host, by their paths."""
    plugins = {place.plugin.path: place.plugin for place in host.peers.places}
    return {path: _condition(host.peers.of(plugin)) for path, plugin in plugins.items()}


def _condition(places: list[Slot]) -> protocol.Condition:
    offers = [place.offer_now for place in places]
    known = [offer for offer in offers if offer is not None]
    return protocol.Condition(health=process_shape(places)["health"], offer=merged(known) if known else None)


async def run_command(host: Host, line: str, attachment: Attachment) -> CommandOutcome:
    """Run a slash command, with the notes that come with it and right after it; its panel is read just once."""
    late: list[Note] = []
    texts: list[Note] = []
    stop_texts = host.listen(text_taker(texts), catch_up=False)
    try:
        outcome = await host.run_command(line, attachment=attachment)
        stop = host.listen(note_taker(late), catch_up=False)
        await anyio.sleep(GRACE_S)
        stop()
    finally:
        stop_texts()
    if outcome.panel is not None:
        host.panels.close(outcome.panel)
    return msgspec.structs.replace(outcome, notes=(*outcome.notes, *late, *texts))
