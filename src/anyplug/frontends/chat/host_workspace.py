"""The workspace of `anyplug chat`: conversations in the daemon if it runs, else on a host in this process.

Everything heavy is imported in `load`, which runs in a thread.
"""

import importlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from anyplug.frontends.chat.chat_state import PluginRow
from anyplug.frontends.chat.shown_text import one_line

if TYPE_CHECKING:
    from anyplug.agent.conversation import Choice, Conversation
    from anyplug.agent.conversation_store import ConversationStore
    from anyplug.catalog.catalog import Catalog
    from anyplug.catalog.snapshot import Snapshot
    from anyplug.host.host import Host

HEAVY = (
    "anyplug.host.host",
    "anyplug.agent.open_conversation",
    "anyplug.frontends.chat.remote_conversation",
    "anyplug.frontends.json_output",
    "anyplug.frontends.chat.chat_events",
)
HISTORY = "chat-history.jsonl"  # in the home
MOST_RECORDS = 20


class HostWorkspace:
    """A host in this process, in the present folder."""

    def __init__(
        self,
        plugins: Sequence[str] = (),
        *,
        roots: Sequence[str] | None = None,
        home: str | None = None,
        base_url: str = "",
    ) -> None:
        """Take the options of the command line."""
        self.cwd = os.getcwd()
        self.history = ""
        self.tell: Callable[[str], None] = lambda _: None  # is told of long work, and what settings cannot do
        self._plugins, self._roots, self._home, self._base_url = plugins, roots, home, base_url
        self._catalog: Catalog | None = None
        self._host: Host | None = None  # unless the daemon has it
        self._talk: Conversation | None = None
        self._wanted = ("", "")

    def want(self, model: str, resume: str) -> None:
        """Name what the first conversation will be: extensions are told of it when they start."""
        self._wanted = (model, resume)

    def load(self) -> None:
        """Import what takes long."""
        for name in HEAVY:
            importlib.import_module(name)
        from anyplug.home.settings import find_home  # imported by now

        home = find_home(self._home).path
        os.makedirs(home, mode=0o700, exist_ok=True)
        self.history = os.path.join(home, HISTORY)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Use the daemon if it runs; else start a host, and its long-running plugins beside it."""
        _name_event_loop()
        from anyplug.catalog.catalog import Catalog  # imported by `load`, in a thread
        from anyplug.frontends.daemon.locate import Address, may_attach
        from anyplug.home.settings import find_home

        roots = None if self._roots is None else list(self._roots)
        self._catalog = Catalog(find_home(self._home), list(self._plugins), roots)
        try:
            connection = Address(self._catalog.home.path).connect() if may_attach() else None
            if connection is not None:
                connection.close()  # each conversation has a connection of its own
                yield
            else:
                async with self._own_host():
                    yield
        finally:
            self._talk = None
            self._catalog.close()

    @asynccontextmanager
    async def _own_host(self) -> AsyncIterator[None]:
        from anyplug.agent.open_conversation import beginning  # imported by `load`, in a thread
        from anyplug.host.host import Host

        model, resume = self._wanted
        greeting = beginning(self.catalog, model=model, base_url=self._base_url, resume=resume)
        async with Host(
            self._plugins,
            roots=self._roots,
            home=self._home,
            watch=True,
            eager=False,
            tell=self.tell,
            greeting=greeting,
        ) as self._host:
            if self._host.catalog.settings_fault:
                self.tell(self._host.catalog.settings_fault)
            self._host.warm_up()
            yield
        self._host = None

    @property
    def catalog(self) -> "Catalog":
        """Where plugins come from."""
        assert self._catalog is not None
        return self._catalog

    async def _snapshot(self) -> "Snapshot":
        """Return what is installed now: as the host here has it, or as it is found on disk."""
        if self._host is not None:
            return self._host.snapshot
        return self.catalog.load()

    def approval(self, plugin: str) -> Sequence[str]:
        """Return the command by which the person reviews and approves a plugin."""
        home = ["--home", self._home] if self._home else []
        return [sys.executable, "-P", "-m", "anyplug", *home, "approve", plugin]

    def open(self, *, model: str = "", resume: str = "") -> "AbstractAsyncContextManager[Conversation]":
        """Open a conversation."""
        return self._opened(model, resume)

    @asynccontextmanager
    async def _opened(self, model: str, resume: str) -> "AsyncIterator[Conversation]":
        # Both were imported by `load`, in a thread.
        from anyplug.agent.open_conversation import open_conversation
        from anyplug.frontends.chat.remote_conversation import remote_conversation

        if self._host is not None:
            async with open_conversation(self._host, model=model, resume=resume, base_url=self._base_url) as self._talk:
                yield self._talk
            return
        async with remote_conversation(
            self.catalog.home.path,
            model=model,
            base_url=self._base_url,
            resume=resume,
            plugins=list(self._plugins),
            discover=self._roots is None,
            asks=True,
        ) as talk:
            if talk is None:
                from anyplug.model.errors import Unavailable  # only if the daemon has just ended

                raise Unavailable("the daemon has ended", "Ctrl+R tries again without it")
            self._talk = talk
            yield talk

    async def tools(self) -> "Sequence[Choice]":
        """List what the model can call."""
        from anyplug.agent.conversation import Choice  # imported by `load`, in a thread
        from anyplug.catalog.profiles import View

        found = View(self.catalog.home, workspace=True).tools(await self._snapshot())
        return [Choice(name=tool.name, description=tool.description, plugin=entry.name) for tool, entry in found]

    async def plugins(self) -> Sequence[PluginRow]:
        """List the plugins and their states."""
        from anyplug.frontends.json_output import process_shape  # imported by `load`, in a thread

        rows = []
        for entry in (await self._snapshot()).entries:
            places = self._host.peers.of(entry.plugin) if self._host is not None and entry.plugin.stays_up else []
            health = str(process_shape(places)["health"]) if places else ""
            rows.append(
                PluginRow(
                    one_line(entry.name, 60),
                    entry.state,
                    health.replace("_", " "),
                    len(entry.tools),
                    one_line(entry.plugin.description),
                )
            )
        return rows

    async def models(self) -> "Sequence[Choice]":
        """List models that can be used."""
        # Both were imported by `load`, in a thread.
        from anyplug.agent.conversation import Choice
        from anyplug.agent.model_choice import DEMO, USUAL

        return [
            Choice(name=DEMO, description="offline, calls your tools; needs no key"),
            *(Choice(name=model, description=f"needs {key}") for key, model in USUAL.items()),
            Choice(name="openai:NAME@http://localhost:11434/v1", description="Ollama, vLLM, llama.cpp"),
        ]

    async def conversations(self) -> "Sequence[Choice]":
        """List the stored conversations of this folder, the latest first."""
        from anyplug.agent.conversation import Choice  # imported by `load`, in a thread

        return [
            Choice(name=one.id, description=f"{_when(one.changed)}  {one.title or '(no title)'}  ({one.model})")
            for one in self._store().all(os.path.realpath(self.cwd))
            if self._talk is None or one.id != self._talk.id
        ]

    def _store(self) -> "ConversationStore":
        from anyplug.agent.conversation_store import ConversationStore  # imported with the conversation

        return ConversationStore(self.catalog.store, self.catalog.settings.chat.keep)

    async def export(self, conversation: str, path: str) -> str:
        """Write the conversation as Markdown."""
        # Both were imported with the conversation.
        from anyplug.agent.transcript import markdown
        from anyplug.model.errors import UsageError

        place = os.path.join(self.cwd, path or f"conversation-{conversation[:8]}.md")
        stored = self._store().find(conversation, os.path.realpath(self.cwd))
        try:
            fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise UsageError(f"{place} is already there", "name another file: `/export NAME.md`") from None
        except OSError as error:
            raise UsageError(f"{place} cannot be written: {error.strerror}", "name another file") from error
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(markdown(stored.events, stored.title))
        return place

    async def reload(self) -> str:
        """Restart the plugins; return what that came to. The daemon says it in the conversation."""
        if self._host is None:
            if self._talk is not None:
                await self._talk.send("/reload-ext")
            return "asked the daemon"
        before = self._host.snapshot
        now = await self._host.reload()
        return "\n".join([now.compared_to(before), *now.faults])

    async def records(self) -> Sequence[tuple[str, str, str]]:
        """List the latest calls, the latest last."""
        from anyplug.audit.audit_log import Audit  # imported with the host

        if self._host is not None:
            self._host.audit.commit()
        audit = Audit(self.catalog.store, self.catalog.home.second_head(self.catalog.settings))
        found = []
        for item in audit.newest_first():
            record = item.record
            by = f" by {record.by}" if record.by and record.outcome not in {"done", "tool_error"} else ""
            found.append((f"#{item.number} {_when(record.at)}", record.tool, f"{record.outcome}{by}"))
            if len(found) == MOST_RECORDS:
                break
        return found[::-1]

    async def policies(self) -> Sequence[tuple[str, str]]:
        """List the policies that apply to the tools of plugins here."""
        import anyio.to_thread  # imported with the host

        return await anyio.to_thread.run_sync(self._policies)

    def _policies(self) -> list[tuple[str, str]]:
        # The policy engine is not needed to start a chat.
        from anyplug.policy.authoring import validate
        from anyplug.policy.engine import Engine
        from anyplug.policy.evaluation import Options
        from anyplug.policy.paths import FOLDER, find

        catalog = self.catalog
        engine = Engine(catalog.home.path, self_protection=catalog.settings.policy.self_protection)
        root = find(self.cwd) or os.path.join(self.cwd, FOLDER)
        checked = validate.check(engine, root, Options(), "anyplug")
        wrong = [(str(remark), "`anyplug policy validate`") for remark in checked.remarks if remark.level == "error"]
        return wrong or [(held.policy.name, held.policy.title or held.policy.file) for held in checked.held]


def _name_event_loop() -> None:
    """Tell anyio which event loop this is: Textual, unlike anyio.run, does not, and callbacks cannot find out."""
    with suppress(ImportError):  # without sniffio, anyio always finds out
        import sniffio  # comes with the agent's libraries

        sniffio.current_async_library_cvar.set("asyncio")


def _when(moment: float) -> str:
    """Format a moment: the time if it was today, else the date."""
    then, now = time.localtime(moment), time.localtime()
    is_today = (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d", then)
