"""The open questions to a person, in one host or in all hosts of a daemon.

`Attachment.put` enters every question here. Any face (terminal, chat, console, an agent's client) lists them and may
answer; the first answer counts, and the asker's own prompt is withdrawn when another face was faster. If the asker
cannot ask anyone, the question stays open for a while as long as some face is open that shows it to a person.

Only faces for people may answer: a request with a token may come from an agent.
"""

import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Literal

import msgspec

from anyplug.call.consent import ANSWERS, LASTING, YES, Answer, Ask, Attachment, Given, Question
from anyplug.model.errors import AnyplugError, Denied

FACES: Final = {"cli": "terminal"}  # kinds that people know under another name
PATIENCE_S: Final = 50.0  # for an asker that nobody can ask: agents' clients give up a call after 60 s
UNHURRIED: Final = frozenset({"console", "chat"})  # kinds whose person waits with the question
AGAIN: Final = "call it again while somebody watches the console"
MOST_SETTLED: Final = 1_000  # answers that are remembered, for faces that come late

Ended = Literal["once", "attachment", "always", "no", "withdrawn"]  # withdrawn: its call ended without an answer


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """How a question ended."""

    question: str
    word: Ended
    by: str  # the face: `console`, `terminal`, `chat`, `mcp`, `api`; `host` if nobody answered
    at: float
    plugin: str = ""
    tool: str = ""


class Waiting:
    """One open question."""

    def __init__(self, question: Question, asker: Attachment, until: float | None) -> None:
        import anyio  # callers that ask have already imported it

        self.question = question
        self.attachment = asker.id
        self.kind = asker.kind
        self.agent = asker.agent
        self.asks_elsewhere = asker.ask is not None
        self.at = time.time()
        self.until = until  # when it ends unanswered, in seconds since the epoch; None: when its call does
        self.answered: Answered | None = None
        self.settled: anyio.Event = anyio.Event()

    @property
    def words(self) -> tuple[Answer, ...]:
        """What a person may answer."""
        return ("once", "attachment", "always", "no") if self.question.may_last else ("once", "attachment", "no")


class QuestionNotFound(AnyplugError):
    """No question has that id, or it was answered long ago."""

    code = "not_found"

    def __init__(self) -> None:
        super().__init__("there is no open question with this id", "list the open questions again")


class AlreadyAnswered(AnyplugError):
    """Another face was faster."""

    code = "conflict"

    def __init__(self, answered: Answered) -> None:
        super().__init__(f"this question was already answered: {answered.word}, by {answered.by}", "")
        self.answered = answered


class OpenQuestions:
    """The questions that wait now, in the order in which they came."""

    def __init__(self) -> None:
        self._open: dict[str, Waiting] = {}
        self._settled: dict[str, Answered] = {}
        self._listeners: list[Callable[[Waiting | Answered], object]] = []
        self._watchers = 0

    @property
    def all(self) -> list[Waiting]:
        """The open ones, the oldest first."""
        return list(self._open.values())

    @property
    def is_watched(self) -> bool:
        """Whether a face is open in which a person sees every question."""
        return self._watchers > 0

    def listen(self, hear: Callable[[Waiting | Answered], object]) -> Callable[[], None]:
        """Register a callback for questions and answers; call the returned function to stop."""
        self._listeners.append(hear)
        return lambda: self._listeners.remove(hear)

    def watch(self) -> Callable[[], None]:
        """Report that a person sees every question here from now on; call the returned function when that ends."""
        self._watchers += 1
        is_over = False

        def stop() -> None:
            nonlocal is_over
            self._watchers -= not is_over
            is_over = True

        return stop

    def answered(self, name: str) -> Answered | None:
        """Return how a question ended, if that is not long ago."""
        return self._settled.get(name)

    def answer(self, name: str, word: Answer, by: str) -> Answered:
        """Answer a question from a face. Raises QuestionNotFound, AlreadyAnswered or Denied."""
        waiting = self._open.get(name)
        if waiting is None:
            if (before := self._settled.get(name)) is not None:
                raise AlreadyAnswered(before)
            raise QuestionNotFound
        may = waiting.words
        if word not in may:
            raise Denied("host", f"'{word}' cannot be answered here; possible are: {', '.join(may)}", _elsewhere(may))
        return self._settle(waiting, word, by)

    async def ask(self, question: Question, asker: Attachment) -> Given:
        """Ask the person wherever they are; return the first answer. Raises what `asker.ask` does, or Denied."""
        import anyio  # for the same reason

        limit = None if asker.ask is not None or asker.kind in UNHURRIED else PATIENCE_S
        waiting = Waiting(question, asker, None if limit is None else time.time() + limit)
        own = _OwnAnswer()
        self._enter(waiting)
        try:
            async with anyio.create_task_group() as tasks:
                if asker.ask is not None:
                    tasks.start_soon(self._ask_there, asker.ask, waiting, own)
                with anyio.move_on_after(limit):
                    await waiting.settled.wait()
                tasks.cancel_scope.cancel()
        finally:
            if waiting.answered is None:
                self._settle(waiting, "withdrawn", "host")
        if own.error is not None:
            raise own.error
        assert waiting.answered is not None
        if own.is_given:
            return Given(own.word)
        if waiting.answered.word == "withdrawn":
            raise Denied("host", f"nobody answered within {PATIENCE_S:g} s whether '{question.tool}' may run", AGAIN)
        return Given(_word(waiting.answered.word), waiting.answered.by)

    async def _ask_there(self, ask: Ask, waiting: Waiting, own: "_OwnAnswer") -> None:
        """Ask where the question came from."""
        try:
            asking: object = ask(waiting.question)
            said: object = await asking if isinstance(asking, Awaitable) else asking
        except Exception as error:  # noqa: BLE001 - a stranger's callback; `put` says what it means
            if isinstance(error, Denied) and self.is_watched and waiting.answered is None:
                return await self._wait_for_others(waiting, own, error)
            own.error = error
        else:
            if not isinstance(asking, Awaitable):  # it held up everybody until it returned
                own.error = Denied("host", "`ask` is not an async function", "write `async def`, or use SyncHost")
            elif isinstance(said, str) and said and said not in ANSWERS:
                expected = ", ".join(map(repr, ANSWERS))
                own.error = Denied(
                    "host", f"`ask` returned {said!r}, which is not an answer", f"return one of {expected}"
                )
        if own.error is not None:
            if waiting.answered is None:
                self._settle(waiting, "withdrawn", "host")
            return None
        if waiting.answered is None:
            own.word, own.is_given = _word(said), True
            self._settle(waiting, own.word, FACES.get(waiting.kind, waiting.kind))
        return None

    async def _wait_for_others(self, waiting: Waiting, own: "_OwnAnswer", error: Denied) -> None:
        """Keep a question open that its asker could not put to anyone: a person may see it in another face."""
        import anyio  # for the same reason

        left = PATIENCE_S - (time.time() - waiting.at)
        waiting.asks_elsewhere, waiting.until = False, time.time() + left
        self._tell(waiting)
        with anyio.move_on_after(left):
            await waiting.settled.wait()
        if waiting.answered is None:
            own.error = error
            self._settle(waiting, "withdrawn", "host")

    def _enter(self, waiting: Waiting) -> None:
        self._open[waiting.question.id] = waiting
        self._tell(waiting)

    def _settle(self, waiting: Waiting, word: Ended, by: str) -> Answered:
        question = waiting.question
        answered = Answered(
            question=question.id, word=word, by=by, at=time.time(), plugin=question.plugin, tool=question.tool
        )
        waiting.answered = answered
        waiting.settled.set()
        self._open.pop(question.id, None)
        self._settled[question.id] = answered
        while len(self._settled) > MOST_SETTLED:
            del self._settled[next(iter(self._settled))]
        self._tell(answered)
        return answered

    def _tell(self, news: Waiting | Answered) -> None:
        for hear in list(self._listeners):
            hear(news)


class _OwnAnswer:
    """The answer from where the question came from, or why there is none."""

    def __init__(self) -> None:
        self.word: Answer = "no"
        self.is_given = False
        self.error: Exception | None = None


def _word(said: object) -> Answer:
    """Return an answer; anything but a clear yes is a no."""
    return said if isinstance(said, str) and said in YES else "no"  # type: ignore[return-value]


def _elsewhere(may: Collection[str]) -> str:
    if LASTING & set(may):
        return "a permanent answer is given by a person, in the terminal or in the console (`anyplug ui`)"
    return "a person answers it in the terminal or in the console (`anyplug ui`)"
