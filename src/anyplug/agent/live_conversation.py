"""A conversation that runs in this process, on a host: messages, commands, questions, extensions' own messages.

The exchange with the model is in `turns`, which imports the agent library; this module does not, so that a face can be
drawn first.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
import msgspec

from anyplug.agent import conversation_events as events
from anyplug.agent import own_commands
from anyplug.agent.conversation import Choice, Hear
from anyplug.agent.conversation_events import ConversationEvent
from anyplug.agent.conversation_store import ConversationStore, Stored
from anyplug.agent.model_choice import ModelChoice, parse
from anyplug.agent.notice_routing import Floor
from anyplug.agent.transcript import Transcript
from anyplug.call.consent import Answer, Attachment, Question
from anyplug.call.slash_commands import CommandOutcome, split_command
from anyplug.catalog.profiles import View
from anyplug.host.host import Host
from anyplug.model.errors import AnyplugError, StoreError
from anyplug.model.types import Failure, Note, NotesCleared, SlashSubmitted, Submitted
from anyplug.model.untrusted_text import for_models, for_people
from anyplug.peers.notices import Notice, PanelChanged, SnapshotChanged
from anyplug.peers.panels import Panel
from anyplug.runtime import thread_lanes

COMMAND = re.compile(r"/[A-Za-z0-9_-]+(?:[ \t]|$)")  # anything else that begins with a slash is a message
MOST_QUEUED = 100  # messages; an extension may submit more
LONGEST_TITLE = 60  # characters
WAIT_S = 600.0  # for a turn to end after it was cancelled


class LiveConversation:
    """One conversation on a host in this process."""

    def __init__(
        self,
        host: Host,
        floor: Floor,
        tasks: anyio.abc.TaskGroup,
        store: ConversationStore,
        *,
        stored: Stored,
        choice: ModelChoice,
        kind: str,
        environment: Mapping[str, str],
        yes: bool = False,
        asks: bool = True,
    ) -> None:
        """Continue what is `stored`, with a model. `environment` has the keys of its provider."""
        self.id = stored.id
        self.host = host
        self.choice = choice
        self.environment = environment
        self.cwd = stored.project
        self.kind = kind
        self.before = stored.events  # what was shown before it was resumed
        self.transcript = Transcript(stored.events)
        self.spoken: Any = None  # what the model has read and said; made with the agent library
        self.usage = stored.usage
        self.attachment = Attachment(
            kind, ask=self._ask if asks else None, yes=yes, view=View(host.catalog.home, workspace=True), is_model=True
        )
        self.attachment.conversation = self.id
        self.floor = floor
        self._tasks = tasks
        self._store = store
        self._stored = stored
        self._listeners: list[Hear] = []
        self._queue: deque[tuple[str, str]] = deque()  # messages, with the extension that submitted each
        self._told_queue = 0  # messages that faces know to wait
        self._busy = 0  # turns and commands under way
        self._idle = anyio.Event()
        self._idle.set()
        self._is_serving = False
        self._turn: asyncio.Task[Any] | None = None
        self._commands: set[anyio.CancelScope] = set()
        self._turns = self.transcript.turns
        self._asked: dict[str, tuple[asyncio.Future[Answer], Question]] = {}
        self._told_plugins = {entry.path for entry in host.snapshot.entries if entry.state == "new"}
        self._told_tools = (0, 0)
        self._noted: list[Note] | None = None  # those that came since a command began

    # --- what faces use

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Register a callback for all events from now on; call the returned function to stop."""
        self._listeners.append(hear)
        return lambda: self._unlisten(hear)

    def _unlisten(self, hear: Hear) -> None:
        if hear in self._listeners:  # else it failed and was removed
            self._listeners.remove(hear)

    def so_far(self) -> Sequence[ConversationEvent]:
        """Return the events that make up the transcript up to now, beginning with `Opened`."""
        asked = (events.Asked(question=question) for _, question in self._asked.values())
        mine = [panel for panel in self.host.panels.open if self.floor.has_panel(self, panel.owner, panel.id)]
        return (self.opened(), *self.transcript.events, *(events.PanelDrawn(panel=one) for one in mine), *asked)

    async def send(self, text: str) -> None:
        """Send a message; during a turn it is queued. A line that begins with a slash is a command."""
        self.floor.active(self)
        if not text.strip():
            return
        if COMMAND.match(text) and "\n" not in text.strip():
            self._begin(self._command, text.strip())
        else:
            self.submit(text)

    def submit(self, text: str, plugin: str = "") -> None:
        """Queue a message, as if it had been typed."""
        if len(self._queue) >= MOST_QUEUED:
            self.tell(
                events.Status(level="warn", text=f"{len(self._queue)} messages are queued already; one was dropped")
            )
            return
        self._queue.append((text, plugin))
        if self._is_serving:
            self._tell_queue()
        else:
            self._is_serving = True
            self._begin(self._serve)

    async def cancel(self) -> None:
        """Cancel the running turn, its tool calls and commands included."""
        for scope in list(self._commands):
            scope.cancel()
        turn = self._turn
        if turn is not None and not turn.done():
            turn.cancel()
            with anyio.move_on_after(WAIT_S):
                await asyncio.wait([turn])

    def take_back(self) -> str:
        """Remove the last queued message, and return it."""
        if not self._queue:
            return ""
        text, _ = self._queue.pop()
        self._tell_queue()
        return text

    def answer(self, question: str, word: Answer) -> None:
        """Answer a question of this conversation."""
        future, _ = self._asked.get(question, (None, None))
        if future is not None and not future.done():
            future.set_result(word)

    async def commands(self) -> Sequence[Choice]:
        """List the conversation's own slash commands, and those of extensions."""
        found = self.attachment.view.commands(self.host.snapshot) if self.attachment.view else []
        theirs = [
            Choice(name=one.name, description=for_people(one.description), plugin=entry.name) for one, entry in found
        ]
        return (*own_commands.CHOICES, *theirs)

    async def use_model(self, model: str) -> None:
        """Go on with another model."""
        try:
            self.choice = parse(model)
        except AnyplugError as error:
            self.tell(events.Status(level="error", text=error.message, hint=error.hint))
            return
        await self.release_model()
        self._save()
        self.tell(self.opened())

    def press(self, panel: str, owner: str, key: str, text: str = "") -> None:
        """Send a key to a panel."""
        if (found := self._panel(panel, owner)) is not None:
            self.floor.active(self)
            self.host.panels.press(found, key, text)

    def paste(self, panel: str, owner: str, text: str) -> None:
        """Send pasted text to a panel."""
        if (found := self._panel(panel, owner)) is not None:
            left = self.host.panels.paste(found, text)
            if left:
                said = f"the last {len(left):,} characters of what you pasted were not sent"
                self.tell(events.Status(level="warn", text=said))

    def close_panel(self, panel: str, owner: str) -> None:
        """Close a panel."""
        if (found := self._panel(panel, owner)) is not None:
            self.host.panels.close(found)

    async def settled(self) -> None:
        """Wait until nothing runs and nothing is queued."""
        while self._busy:
            await self._idle.wait()

    async def lost(self) -> None:
        """Never return: it runs in this process."""
        await anyio.sleep_forever()

    @property
    def title(self) -> str:
        """How its first message begins."""
        return self._stored.title

    def stored_conversations(self) -> list[Stored]:
        """List the stored conversations of this folder. Raises StoreError."""
        return self._store.all(self.cwd)

    # --- its beginning and end

    def open(self) -> None:
        """Begin: listen to extensions, and announce the conversation to faces and extensions."""
        self.floor.enter(self.host, self)
        greeting = self.host.greeting
        if greeting.session_id == self.id:
            self.floor.greeted = self.id  # the host's plugins were told at their start
        else:
            self.host.emit("session_start", session_id=self.id, cwd=self.cwd)
        self._tell_of_tools()
        self._tasks.start_soon(self._warm_up)  # nobody waits for it, least of all a question's end

    def close(self, reason: str = "shutdown") -> None:
        """End: close what it has open, and tell extensions."""
        for owner, panel in self.floor.leave(self):
            for one in self.host.panels.open:
                if (one.owner, one.id) == (owner, panel):
                    self.host.panels.close(one)
        self.host.emit("session_end", session_id=self.id, cwd=self.cwd, reason=reason)
        self._save()

    async def _warm_up(self) -> None:
        """Import the agent library in advance, because that takes most of a second."""
        with suppress(Exception):  # the first turn says what is wrong with it
            await load_turns()

    def opened(self) -> events.Opened:
        """Return what the conversation is."""
        tools, plugins = self._count()
        return events.Opened(
            conversation=self.id,
            model=self.choice.text,
            provider=self.choice.provider,
            cwd=self.cwd,
            title=self._stored.title,
            tools=tools,
            plugins=plugins,
            resumed=self.transcript.messages,
        )

    # --- what the turn uses

    def tell(self, event: ConversationEvent) -> None:
        """Tell all faces, and keep what belongs to the transcript."""
        if self.transcript.keep(event):
            self._save()
        for hear in list(self._listeners):
            try:
                hear(event)
            except Exception as error:  # noqa: BLE001 - a face's own fault, and others listen, too
                self._unlisten(hear)
                said = {"message": "a view of a conversation failed and was disconnected", "exception": error}
                asyncio.get_running_loop().call_exception_handler(said)

    def emit(self, event: str, **fields: Any) -> None:
        """Tell extensions of an event of this conversation."""
        self.host.emit(event, session_id=self.id, cwd=self.cwd, **fields)

    async def release_model(self) -> None:
        """Close the model's connections; the next turn makes it again."""
        if self.spoken is not None and self.spoken.model is not None:
            model, self.spoken.model = self.spoken.model, None
            await model.__aexit__(None, None, None)

    # --- extensions' own messages

    def heard(self, notice: Notice) -> None:
        """Handle a message that an extension sends on its own."""
        match notice:
            case Note():
                if self._noted is not None:
                    self._noted.append(notice)
                self.tell(events.Noted(note=notice))
            case NotesCleared():
                self.tell(events.NotesRemoved(plugin=notice.plugin))
            case Submitted():
                self.submit(for_models(notice.text), notice.plugin)
            case SlashSubmitted():
                self._submit_command(notice)
            case PanelChanged():
                self.tell(events.PanelDrawn(panel=notice.panel))
            case SnapshotChanged():
                self._tell_of_tools()

    def _submit_command(self, notice: SlashSubmitted) -> None:
        """Run a command that an extension submits, unless it is the chat's own: a person alone decides about models."""
        if own_commands.find(split_command(notice.text)[0]) is None:
            self._begin(self._command, notice.text)
            return
        said = for_people(f"{notice.plugin} wanted to run {notice.text.split()[0]}, which only you can")
        self.tell(events.Status(level="warn", text=said, hint="type it yourself if you want it"))

    def _tell_of_tools(self) -> None:
        counted = self._count()
        if counted != self._told_tools:
            if self._told_tools != (0, 0):
                self.tell(events.ToolsChanged(tools=counted[0], plugins=counted[1]))
            self._told_tools = counted
        for entry in self.host.snapshot.entries:
            if entry.state == "new" and entry.path not in self._told_plugins:
                self._told_plugins.add(entry.path)
                asked = entry.plugin.permissions
                self.tell(events.PluginFound(plugin=entry.name, path=entry.path, permissions=asked))

    def _count(self) -> tuple[int, int]:
        view = self.attachment.view
        seen = view.tools(self.host.snapshot) if view is not None else []
        return len(seen), len({entry.path for _, entry in seen if entry.path})

    # --- questions

    async def _ask(self, question: Question) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[question.id] = future, question
        self.tell(events.Asked(question=question))
        word: Answer | None = None
        try:
            word = await future
            return word
        finally:
            del self._asked[question.id]
            elsewhere = self.host.questions.answered(question.id)
            if word is None and elsewhere is not None:  # in another face, which was faster
                told, by = elsewhere.word, elsewhere.by
            else:
                told, by = word or "withdrawn", self.kind if word else ""
            self.tell(events.Answered(question=question.id, answer=told, by=by))

    # --- commands

    async def _command(self, line: str) -> None:
        """Run a slash command, its own or an extension's, and do what it wants done."""
        name, words = split_command(line)
        if (own := own_commands.find(name)) is not None:
            self.tell(events.CommandEnded(outcome=await own(self, words)))
            return
        self._noted = [] if self._noted is None else self._noted
        await self.host.hear_out(f"/{name}")
        found = self.host.snapshot.commands.get(name.lower())
        plugin = found[1].name if found is not None else ""
        with anyio.CancelScope() as scope, self.floor.working(self, plugin):
            self._commands.add(scope)
            try:
                outcome = await self.host.run_command(line, attachment=self.attachment)
            finally:
                self._commands.discard(scope)
        if scope.cancelled_caught:
            failure = Failure("cancelled", f"/{name} was cancelled")
            outcome = CommandOutcome(command=f"/{name}", plugin=plugin, error=failure)
        for note in outcome.notes:
            if note.plugin == plugin and note not in self._noted:
                self.tell(events.Noted(note=note))
        self._noted = None
        self.tell(events.CommandEnded(outcome=msgspec.structs.replace(outcome, notes=())))
        self._act(outcome)

    def _act(self, outcome: CommandOutcome) -> None:
        """Do what a command wants done with the model."""
        if outcome.error is not None:
            return
        if outcome.action == "tool_prompt" and outcome.tool:
            self._begin(self._call_then_prompt, outcome)
        elif outcome.prompt.strip():
            self.submit(for_models(outcome.prompt), outcome.plugin)

    async def _call_then_prompt(self, outcome: CommandOutcome) -> None:
        """Call the tool that a command names, as if the model had, then start a turn."""
        try:
            turns = await load_turns()
        except ImportError as error:
            self.tell(_not_installed(error))
            return
        await turns.call_for_command(self, outcome)
        if outcome.prompt.strip():
            self.submit(for_models(outcome.prompt), outcome.plugin)

    # --- turns

    async def _serve(self) -> None:
        """Take the queued messages one after another."""
        try:
            while self._queue:
                text, plugin = self._queue.popleft()
                if self._told_queue:
                    self._tell_queue()
                await self._take_turn(text, plugin)
        finally:
            self._is_serving = False

    async def _take_turn(self, text: str, plugin: str) -> None:
        self._turns += 1
        number = self._turns
        if not self._stored.title:
            first = next((line for line in text.splitlines() if line.strip()), "")
            self._stored = msgspec.structs.replace(self._stored, title=for_people(first.strip(), LONGEST_TITLE))
        self.tell(events.UserMessage(text=text, plugin=plugin))
        self.tell(events.TurnStarted(turn=number))
        self.emit("user_prompt_submit", text=text)
        stop: events.StopReason = "error"
        failure: Failure | None = None
        try:
            turns = await load_turns()
            self._turn = asyncio.ensure_future(turns.take_turn(self, number, text))
            stop, failure = await self._turn
        except ImportError as error:
            status = _not_installed(error)
            self.tell(status)
            failure = Failure("unavailable", status.text, status.hint)
        except asyncio.CancelledError:
            stop = "cancelled"
            if self._turn is None or not self._turn.cancelled():
                raise
        finally:
            self._turn = None
            self.tell(events.TurnEnded(turn=number, stop=stop, error=failure))
            self._save()

    def _begin(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._busy += 1
        self._idle = anyio.Event() if self._idle.is_set() else self._idle
        self._tasks.start_soon(self._worked, work, *arguments)

    async def _worked(self, work: Callable[..., Any], *arguments: Any) -> None:
        try:
            await work(*arguments)
        except AnyplugError as error:
            self.tell(events.Status(level="error", text=error.message, hint=error.hint))
        except Exception as error:  # noqa: BLE001 - a fault of ours in one turn must not end the conversation
            said = {"message": f"conversation {self.id} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)
            text = f"anyplug itself failed: {type(error).__name__}"
            self.tell(events.Status(level="error", text=text, hint="send it again; if it fails again, report it"))
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    def _tell_queue(self) -> None:
        self._told_queue = len(self._queue)
        self.tell(events.Queued(texts=tuple(text for text, _ in self._queue)))

    def _panel(self, panel: str, owner: str) -> Panel | None:
        if not self.floor.has_panel(self, owner, panel):
            return None
        return next((one for one in self.host.panels.open if (one.owner, one.id) == (owner, panel)), None)

    def _save(self) -> None:
        """Store what was shown; a conversation in which nothing was said is not stored."""
        if not self.transcript.messages:
            return
        self._stored = msgspec.structs.replace(
            self._stored,
            model=self.choice.text,
            changed=time.time(),
            usage=self.usage,
        )
        try:
            self._store.save(self._stored, self.transcript.unsaved())
        except StoreError as error:
            self.tell(events.Status(level="warn", text=f"not stored: {error.message}", hint=error.hint))


async def load_turns() -> Any:
    """Import the agent library in a thread, and return the module of ours that uses it. Raises ImportError."""
    return await thread_lanes.imported("anyplug.agent.turns")


def _not_installed(error: ImportError) -> events.Status:
    text = f"the agent library is not installed ({for_people(str(error))})"
    return events.Status(level="error", text=text, hint="`pip install 'anyplug[chat]'` installs it")
