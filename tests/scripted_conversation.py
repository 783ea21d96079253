"""A conversation that follows a script, and a workspace around it: what the screen is tested with."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from anyplug.agent import conversation_events as said
from anyplug.agent.conversation import Choice
from anyplug.call.consent import Question
from anyplug.frontends.chat.chat_state import PluginRow
from anyplug.model.types import Failure, Result, Text
from anyplug.peers.panels import Panel


class ScriptedConversation:
    """Says what the test tells it to, and keeps what the person did."""

    def __init__(self, name: str = "c1", *, model: str = "demo", cwd: str = "/home/ada/notes-app") -> None:
        self.id, self.model, self.cwd = name, model, cwd
        self.sent: list[str] = []
        self.answers: list[tuple[str, str]] = []
        self.keys: list[tuple[str, str]] = []
        self.pasted: list[str] = []
        self.closed: list[str] = []
        self.cancelled = 0
        self.queue: list[str] = []
        self.before: list[Any] = []
        self.known = [
            Choice(name="todos", description="open the todo list", plugin="todos"),
            Choice(name="tally", description="count something", plugin="tally"),
        ]
        self._hear: list[Callable[[Any], object]] = []

    def listen(self, hear: Callable[[Any], object]) -> Callable[[], None]:
        self._hear.append(hear)
        return lambda: self._hear.remove(hear)

    def so_far(self) -> Sequence[Any]:
        opened = said.Opened(
            conversation=self.id, model=self.model, provider="anyplug", cwd=self.cwd, tools=6, plugins=3
        )
        return [opened, *self.before]

    async def settled(self) -> None:
        pass

    async def lost(self) -> None:
        await asyncio.Event().wait()

    def say(self, *events: Any) -> None:
        for event in events:
            for hear in list(self._hear):
                hear(event)

    async def send(self, text: str) -> None:
        self.sent.append(text)

    async def cancel(self) -> None:
        self.cancelled += 1

    def take_back(self) -> str:
        text = self.queue.pop() if self.queue else ""
        self.say(said.Queued(texts=tuple(self.queue)))
        return text

    def answer(self, question: str, word: str) -> None:
        self.answers.append((question, word))
        self.say(said.Answered(question=question, answer=word, by="chat"))  # type: ignore[arg-type]

    async def commands(self) -> Sequence[Choice]:
        return self.known

    async def use_model(self, model: str) -> None:
        self.model = model
        self.say(said.Opened(conversation=self.id, model=model, provider="", cwd=self.cwd, tools=6, plugins=3))

    def press(self, panel: str, owner: str, key: str, text: str = "") -> None:
        self.keys.append((key, text))

    def paste(self, panel: str, owner: str, text: str) -> None:
        self.pasted.append(text)

    def close_panel(self, panel: str, owner: str) -> None:
        self.closed.append(panel)


class ScriptedWorkspace:
    """What is installed around the conversation."""

    def __init__(self, conversation: ScriptedConversation | None = None, *, history: str = "", cwd: str = "") -> None:
        self.conversation = conversation or ScriptedConversation()
        self.history = history
        self.cwd = cwd or self.conversation.cwd
        self.opened: list[tuple[str, str]] = []
        self.tell: Callable[[str], None] = print
        self.fault: Exception | None = None
        self.rows = [
            PluginRow("word-count", "approved", "", 2, "Counts words"),
            PluginRow("bookmarks", "approved", "running", 2, "Keeps bookmarks"),
            PluginRow("todos", "new", "", 0, "A todo list"),
        ]

    def want(self, model: str, resume: str) -> None:
        pass

    def load(self) -> None:
        if self.fault is not None:
            raise self.fault

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    def approval(self, plugin: str) -> Sequence[str]:
        return ["true", plugin]

    @asynccontextmanager
    async def open(self, *, model: str = "", resume: str = "") -> AsyncIterator[ScriptedConversation]:
        self.opened.append((model, resume))
        yield self.conversation

    async def tools(self) -> Sequence[Choice]:
        return [
            Choice(name="word_count", description="Count words, lines and characters", plugin="word-count"),
            Choice(name="kv_set", description="Store a value", plugin="kv"),
            Choice(name="bookmark_add", description="Keep an address", plugin="bookmarks"),
        ]

    async def plugins(self) -> Sequence[PluginRow]:
        return self.rows

    async def models(self) -> Sequence[Choice]:
        return [Choice(name="demo", description="offline, calls your tools")]

    async def conversations(self) -> Sequence[Choice]:
        return [Choice(name="c7", description="yesterday: keep example.org under reading")]

    async def export(self, conversation: str, path: str) -> str:
        return path or f"{conversation}.md"

    async def reload(self) -> str:
        return "reloaded: 1 stopped, 1 loaded (1 ready)"

    async def records(self) -> Sequence[tuple[str, str, str]]:
        return [("#1 12:04:10", "word_count", "done"), ("#2 12:04:12", "bookmark_add", "denied by person")]

    async def policies(self) -> Sequence[tuple[str, str]]:
        return [("NO_SECRETS", "refuses to read .env files")]


def question(name: str = "q1", **others: Any) -> Question:
    """Return a question about a tool that changes files."""
    return Question(
        **{
            "id": name,
            "plugin": "bookmarks",
            "tool": "bookmark_add",
            "arguments": {"url": "https://example.org", "tags": "reading"},
            "permissions": ("filesystem:read", "filesystem:write"),
            "warning": "",
            **others,
        }
    )


def panel(**others: Any) -> Panel:
    """Return a panel of a todo list."""
    return Panel(
        **{
            "id": "todos-main",
            "owner": "todos",
            "title": "Todos",
            "lines": ("▸ □ ship panel api", "  ✓ persist state"),
            "footer": "up/down navigate - a add - x complete",
            **others,
        }
    )


COUNTED = Result(content=(Text("1 line, 6 words, 18 characters"),), duration_ms=12.0, tool="word_count")
REFUSED = Result(
    is_error=True,
    error=Failure("denied", "the policy NO_SECRETS refuses it: .env has secrets", "ask for another file"),
    duration_ms=3.0,
    tool="read",
)
ANSWER = """\
## What I found

The text has **6 words**, of which `be` and `to` come twice:

| word | times |
|------|------:|
| to   |     2 |
| be   |     2 |

1. Count them with `word_count`.
2. Keep the result:

```python
def top(words):
    # the two that come most often
    return sorted(words)[:2]
```

See [the guide](https://example.org/guide).
"""


def a_turn(conversation: ScriptedConversation) -> None:
    """Say what a turn with a call says."""
    conversation.say(
        said.UserMessage(text="count the words in to be or not to be"),
        said.TurnStarted(turn=1),
        said.ToolStarted(
            call="t1",
            tool="word_count",
            plugin="word-count",
            arguments={"text": "to be or not to be"},
            permissions=("filesystem:read",),
        ),
        said.ToolEnded(call="t1", result=COUNTED, verdict="approval", record=1),
        said.TextDelta(turn=1, text=ANSWER),
        said.AssistantMessage(turn=1, text=ANSWER),
        said.Usage(input_tokens=350, output_tokens=62, cost_usd=0.0, context_used=0.04),
        said.TurnEnded(turn=1, stop="end"),
    )
