"""Handle what the person types: complete it, find earlier messages, send it or run it as a command."""

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Protocol

from anyplug.frontends.chat.chat_face import Face
from anyplug.frontends.chat.completion_list import CompletionList, Suggestion
from anyplug.frontends.chat.file_names import matching, project_files
from anyplug.frontends.chat.prompt_history import PromptHistory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Typing(Face, Protocol):
    """What it uses of the screen."""

    completions: CompletionList

    def aside(self, work: "Callable[[], Awaitable[None]]") -> None:
        """Do something beside the keys."""
        ...


class TypedMessages:
    """Passes typed text from the composer to the conversation."""

    def __init__(self, app: Typing) -> None:
        self.history = PromptHistory()
        self.examples: list[str] = []  # requests that a number stands for
        self._app = app
        self._files: list[str] | None = None
        self._extension_commands: list[Suggestion] = []

    # Sending.

    def take(self, text: str) -> None:
        """Complete, run or send what was typed."""
        app = self._app
        if (meant := self._meant(text)) is not None:
            text = meant.text
            if meant.takes_more:
                app.composer.put(f"{text} {app.composer.text}")
                return
        app.completions.hide()
        if not text.strip():
            return
        if self.examples and text.strip() in {str(number) for number in range(1, len(self.examples) + 1)}:
            text = self.examples[int(text.strip()) - 1]
        if app.conversation is None:
            app.composer.give_back(text)
            app.say("not ready yet; your text is kept")
            return
        self.history.add(text)
        app.transcript.follow()  # what it answers must be in sight
        if text.startswith("/") and not text.startswith("//"):
            app.aside(partial(self.run_command, text))
        else:
            app.aside(partial(self.send, text))

    def _meant(self, text: str) -> Suggestion | None:
        """Return the command that the beginning of one means: the marked one, or the first that fits."""
        if not _is_command_name(text) or len(text) == 1:
            return None
        fitting = [row for row in self._suggestions(text) if row.text.startswith(text.casefold())]
        if not fitting or any(row.text == text for row in fitting):
            return None
        marked = self._app.completions.marked
        return marked if marked in fitting else fitting[0]

    async def send(self, text: str) -> None:
        """Send a message; if that fails, the draft comes back."""
        app = self._app
        assert app.conversation is not None
        try:
            await app.conversation.send(text)
        except Exception as error:  # noqa: BLE001 - the draft must come back, whatever happened
            self._give_back(text, error)

    async def run_command(self, line: str) -> None:
        """Run a slash command, ours or an extension's."""
        from anyplug.frontends.chat.chat_commands import BUILT_INS  # not needed for the first frame

        name, _, rest = line[1:].partition(" ")
        command = BUILT_INS.get(name.strip().lower())
        try:
            if command is not None:
                await command.run(self._app, rest.strip())
            elif self._app.conversation is not None:
                await self._app.conversation.send(line)
        except Exception as error:  # noqa: BLE001 - the same
            self._give_back(line, error)

    def _give_back(self, text: str, error: Exception) -> None:
        message = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        self._app.fault_line(message, getattr(error, "hint", ""))
        self._app.composer.give_back(text)

    # Completion.

    def suggest(self) -> None:
        """Show what fits what is typed."""
        app = self._app
        text = app.composer.text
        if _is_command_name(text):
            rows = self._suggestions(text)
            app.completions.show(
                rows, "" if rows else "no such command; to send a message that begins with a slash, type //"
            )
        elif (word := app.composer.word).startswith("@"):
            self._complete_file(word)
        else:
            self._files = None  # looked for again next time
            app.completions.hide()

    def _suggestions(self, text: str) -> list[Suggestion]:
        from anyplug.frontends.chat.chat_commands import suggestions  # not needed for the first frame

        return suggestions(text[1:], self._extension_commands)

    def _complete_file(self, word: str) -> None:
        if self._files is None:
            self._files = []
            self._app.aside(self._find_files)
        else:
            rows = [Suggestion(f"@{path}") for path in matching(self._files, word[1:])]
            self._app.completions.show(rows, "no such file")

    async def _find_files(self) -> None:
        self._files = await asyncio.to_thread(project_files, self._app.state.cwd)
        self.suggest()

    def accept(self) -> None:
        """Take the marked suggestion."""
        app = self._app
        marked = app.completions.marked
        if marked is None:
            return
        if marked.text.startswith("@"):
            app.composer.complete(len(app.composer.word), marked.text + " ")
        else:
            app.composer.put(marked.text + " ")
        app.completions.hide()

    def browse(self, by: int) -> None:
        """Move in the list, else in the history."""
        app = self._app
        if app.completions.is_open:
            app.completions.step(by)
            return
        found = self.history.previous(app.composer.text) if by < 0 else self.history.next()
        if found is not None:
            app.composer.put(found)
            app.completions.hide()

    async def learn_commands(self) -> None:
        """Learn the extensions' slash commands."""
        with contextlib.suppress(Exception):  # the list is shorter then, and the chat works
            choices = await self._app.extension_commands()
            self._extension_commands = [
                Suggestion(f"/{choice.name}", choice.description, choice.plugin) for choice in choices
            ]


def _is_command_name(text: str) -> bool:
    """Return whether a text is a slash and a name, or the beginning of one."""
    return text.startswith("/") and not text.startswith("//") and " " not in text and "\n" not in text
