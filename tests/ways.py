"""Every way in to a tool, behind one face: the library, the command line, MCP over pipes, through a relay, over HTTP.

A world is a home and a project of their own, with a resident host that also listens over HTTP. Each way is opened
once and serves many tests, so that the same behaviour can be asked of all of them.
"""

import base64
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import httpx2
import mcp_types as types
import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

import command_line
import daemons
import processes
from anyplug.audit.audit_log import Audit, Record
from anyplug.call.consent import Attachment, Question
from anyplug.call.slash_commands import CommandOutcome
from anyplug.catalog.catalog import Catalog
from anyplug.formats.shared.contract import Greeting
from anyplug.frontends.daemon.locate import SWITCH
from anyplug.frontends.json_output import chain_shape, result_shape
from anyplug.frontends.mcp.result_content import ERROR
from anyplug.home.settings import find_home
from anyplug.host.host import Host
from anyplug.model.errors import CODES
from anyplug.model.types import Plugin
from mcp_clients import ERAS

PATIENCE_S = 30.0


class Answer(NamedTuple):
    """What a caller got, whichever way it came."""

    content: list[dict[str, Any]]
    structured: Any = None
    is_error: bool = False
    code: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


class World:
    """A home, a project and a resident host."""

    def __init__(self, folder: str) -> None:
        self.home, self.user, self.project = (os.path.join(folder, name) for name in ("home", "user", "project"))
        for path in (self.home, self.user, self.project):
            os.mkdir(path)
        self.root = os.path.join(self.home, "plugins")
        self.url = ""

    def inhabit(self, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
        """Let this process and all that it starts live here."""
        monkeypatch.setenv("HOME", self.user)
        monkeypatch.setenv("ANYPLUG_HOME", self.home)
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
        # The interpreter that runs the tests, and not a version manager's slow stand-in for it.
        monkeypatch.setenv("PATH", os.path.dirname(os.path.realpath(sys.executable)), prepend=":")
        for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "ZOT_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.project)

    @contextmanager
    def resident(self) -> Iterator[None]:
        """Keep a resident host up, that also listens over HTTP."""
        with daemons.resident("--http", "127.0.0.1:0"):
            self.url = daemons.status()["url"]
            yield

    @property
    def token(self) -> str:
        return command_line.read(os.path.join(self.home, "http-token")).strip()

    @contextmanager
    def deciding(self, name: str) -> Iterator[tuple[Catalog, Plugin]]:
        """Decide about a plugin, as a person does."""
        catalog = Catalog(find_home(self.home), [], [self.root])
        try:
            yield catalog, catalog.load().plugin(name).plugin
        finally:
            catalog.close()

    def approve(self, *names: str, always: bool = True) -> None:
        for name in names:
            with self.deciding(name) as (catalog, plugin):
                catalog.approvals.approve(
                    plugin, catalog.digest(plugin), plugin.permissions, always=always, follow=False, unconfined=False
                )

    def records(self) -> list[Record]:
        catalog = Catalog(find_home(self.home), [], [self.root])
        try:
            return [one.record for one in Audit(catalog.store).records()]
        finally:
            catalog.close()

    @contextmanager
    def recording(self, count: int = 1) -> Iterator[list[Record]]:
        """Give what is recorded meanwhile, which must be so many calls; it is there after this."""
        before = len(self.records())
        new: list[Record] = []
        yield new
        assert processes.until(lambda: len(self.records()) >= before + count)
        new += self.records()[before:]
        assert len(new) == count, new


class Way:
    """A way in. Where somebody can be asked, they say what `says` has: yes or no."""

    caller = ""  # how the names of its attachments begin
    records_more = 0  # records of other calls, that follow that of the call itself
    ends_to_ask = False  # a question ends the call, which comes again with the answer

    def __init__(self, world: World, portal: BlockingPortal, *, asks: bool) -> None:
        self.world, self.portal, self.asks = world, portal, asks
        self.says = "yes"
        self.asked = 0

    @contextmanager
    def opened(self) -> Iterator["Way"]:
        yield self

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        raise NotImplementedError

    def run(self, command: str, words: str) -> Answer:
        raise NotImplementedError


class Library(Way):
    """A program that has a host of its own."""

    caller = "library"

    @contextmanager
    def opened(self) -> Iterator["Way"]:
        greeting = Greeting(cwd=self.world.project)
        host = Host(home=self.world.home, roots=[self.world.root], watch=False, greeting=greeting)
        with self.portal.wrap_async_context_manager(host) as self.host:
            yield self

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        return of_shape(result_shape(self.portal.call(self._call, tool, arguments)))

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self.host.call(tool, arguments, attachment=self.attachment)

    def run(self, command: str, words: str) -> Answer:
        async def run() -> CommandOutcome:
            return await self.host.run_command(f"/{command} {words}", attachment=self.attachment)

        return of_outcome(msgspec.to_builtins(self.portal.call(run)))

    @property
    def attachment(self) -> Attachment:
        async def ask(question: Question) -> Any:
            self.asked += 1
            return "once" if self.says == "yes" else "no"

        return Attachment("library", ask=ask if self.asks else None)


class LibraryChain(Library):
    """A chain of one step."""

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        async def run() -> Any:
            return await self.host.run_chain([{"tool": tool, "input": arguments}], attachment=self.attachment)

        return of_shape(chain_shape(self.portal.call(run))["steps"][-1])


class InATool(Library):
    """An extension's tool that calls the tool by itself."""

    caller = "extension-broker"
    records_more = 1

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        inner = msgspec.json.encode({"name": tool, "args": arguments})
        asked = {"inner": base64.b64encode(inner).decode()}  # gates that mean the inner call do not see it here
        result = await self.host.call("broker", asked, attachment=self.attachment)
        assert result.error is None, result
        return result

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        frame = msgspec.json.decode(super().call(tool, arguments).text)
        return Answer(frame["content"], is_error=frame["is_error"])  # extensions are told no codes


class CommandLine(Way):
    """`anyplug call` and `anyplug run`, by themselves."""

    caller = "cli"
    switch = "off"

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        return of_shape(self._ran("call", tool, "--args", msgspec.json.encode(arguments).decode()))

    def run(self, command: str, words: str) -> Answer:
        return of_outcome(self._ran("run", f"/{command} {words}"))

    def _ran(self, *words: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SWITCH, self.switch)
            if self.asks and self.says == "no":
                code, shape = self._at_a_terminal(*words)
            else:
                done = command_line.run("--quiet", *words, *(["--yes"] if self.asks else []), "--json")
                code, shape = done.code, done.json
        assert code == (CODES[shape["error"]["code"]].exit if shape.get("error") else 0), shape
        return shape

    def _at_a_terminal(self, *words: str) -> tuple[int, Any]:
        with tempfile.TemporaryFile() as out:
            with command_line.Terminal(*words, "--json", stdout=out.fileno()) as terminal:
                terminal.sees("[N]o:")
                self.asked += 1
                terminal.types("n")
            out.seek(0)
            return terminal.code, msgspec.json.decode(out.read())


class AttachedCommandLine(CommandLine):
    """`anyplug call` and `anyplug run`, which find a resident host."""

    switch = "on"


class AttachedChain(AttachedCommandLine):
    """`anyplug chain` of one step, which finds a resident host."""

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        path = os.path.join(self.world.project, "chain.json")
        with open(path, "wb") as file:
            file.write(msgspec.json.encode([{"tool": tool, "input": arguments}]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SWITCH, self.switch)
            if self.asks and self.says == "no":
                _, shape = self._at_a_terminal("chain", path)
            else:
                shape = command_line.run("--quiet", "chain", path, *(["--yes"] if self.asks else []), "--json").json
        return of_shape(shape["steps"][-1])


class Agent(Way):
    """An agent that speaks MCP: the SDK's own client."""

    caller = "mcp"
    words: tuple[str, ...] = ("mcp",)
    variables: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, world: World, portal: BlockingPortal, *, asks: bool, era: str = "older") -> None:
        super().__init__(world, portal, asks=asks)
        self.era = era
        self.ends_to_ask = era == "newer"

    @contextmanager
    def opened(self) -> Iterator["Way"]:
        elicit = self._elicit if self.asks else None
        with ExitStack() as stack:
            transport = stack.enter_context(self._transport())
            client = Client(transport, mode=ERAS[self.era], elicitation_callback=elicit)
            self.client = stack.enter_context(self.portal.wrap_async_context_manager(client))
            self.portal.call(self.client.list_tools)
            yield self

    @contextmanager
    def _transport(self) -> Iterator[Any]:
        yield StdioServerParameters(
            command=sys.executable,
            args=["-m", "anyplug", *self.words],
            env={**os.environ, **self.variables},
            cwd=self.world.project,
        )

    async def _elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked += 1
        return types.ElicitResult(action="accept", content={"answer": "once" if self.says == "yes" else "no"})

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        result = self.portal.call(self.client.call_tool, tool, arguments)
        content = [block.model_dump(exclude_none=True) for block in result.content]
        error = (result.meta or {}).get(ERROR, {})
        code, message = error.get("code", ""), error.get("message", "")
        return Answer(content, result.structured_content, result.is_error, code, message)

    def run(self, command: str, words: str) -> Answer:
        try:
            result = self.portal.call(self.client.get_prompt, command, {"args": words})
        except MCPError as error:
            return Answer([], is_error=True, code=error.error.data["code"], message=error.error.message)
        return Answer([message.content.model_dump(exclude_none=True) for message in result.messages])


class AgentAlone(Agent):
    """An agent whose server runs the plugins itself."""

    variables = {SWITCH: "off"}  # noqa: RUF012


class RelayedAgent(Agent):
    """An agent whose server is a relay to the resident host."""

    words = ("mcp", "--resident")


class SearchingAgent(RelayedAgent):
    """An agent that is shown three tools, of which one calls all others."""

    words = ("mcp", "--resident", "--surface", "search")

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        return super().call("call_tool", {"name": tool, "arguments": arguments})


class AgentOverHttp(Agent):
    """An agent that comes over HTTP."""

    @contextmanager
    def _transport(self) -> Iterator[Any]:
        http = httpx2.AsyncClient(headers={"authorization": f"Bearer {self.world.token}"}, timeout=PATIENCE_S)
        with self.portal.wrap_async_context_manager(http):
            yield streamable_http_client(f"{self.world.url}/mcp", http_client=http)


Make = Callable[..., Way]

WAYS: dict[str, Make] = {
    "library": Library,
    "command-line": CommandLine,
    "attached": AttachedCommandLine,
    **{
        f"{name}-{era}": lambda *given, kind=kind, era=era, **others: kind(*given, era=era, **others)
        for name, kind in (("pipes", AgentAlone), ("relay", RelayedAgent), ("http", AgentOverHttp))
        for era in ERAS
    },
}
MORE_WAYS: dict[str, Make] = {
    "chain": LibraryChain,
    "attached-chain": AttachedChain,
    "in-a-tool": InATool,
    "search": SearchingAgent,
}


@contextmanager
def opened(make: Make, world: World, *, asks: bool = False) -> Iterator[Way]:
    """Open a way in, for as long as this is entered."""
    with start_blocking_portal() as portal, make(world, portal, asks=asks).opened() as way:
        yield way


def world_in(folder: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> World:
    """Make a world, and live there."""
    world = World(folder)
    world.inhabit(monkeypatch, **variables)
    return world


def of_shape(shape: dict[str, Any]) -> Answer:
    """Read what the command line prints of a call."""
    error = shape["error"] or {}
    return Answer(
        shape["content"], shape["structured"], shape["is_error"], error.get("code", ""), error.get("message", "")
    )


def of_outcome(shape: dict[str, Any]) -> Answer:
    """Read what a slash command gave."""
    error = shape["error"] or {}
    said = shape["prompt"] or shape["insert"] or shape["display"]
    return Answer([{"type": "text", "text": said}], None, bool(error), error.get("code", ""), error.get("message", ""))
