"""Slash commands that the conversation itself runs, so that every face has them."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from anyplug.agent.conversation import Choice
from anyplug.agent.conversation_store import Stored
from anyplug.agent.model_choice import ModelChoice
from anyplug.agent.transcript import Transcript, markdown
from anyplug.call.consent import Attachment
from anyplug.call.slash_commands import CommandOutcome
from anyplug.host.host import Host
from anyplug.model.errors import AnyplugError
from anyplug.model.types import Failure
from anyplug.model.untrusted_text import for_people


class Talk(Protocol):
    """A conversation, as its own commands use it."""

    host: Host
    attachment: Attachment
    choice: ModelChoice
    transcript: Transcript

    @property
    def title(self) -> str:
        """How its first message begins."""
        ...

    async def use_model(self, model: str) -> None:
        """Go on with another model."""
        ...

    def stored_conversations(self) -> list[Stored]:
        """List the stored conversations of this folder."""
        ...


Own = Callable[["Talk", str], Awaitable[CommandOutcome]]
LONGEST = 100  # characters of a description in a list


def _shown(name: str, text: str) -> CommandOutcome:
    return CommandOutcome(command=f"/{name}", plugin="", action="display", display=text)


async def _tools(talk: "Talk", words: str) -> CommandOutcome:
    view = talk.attachment.view
    found = view.tools(talk.host.snapshot) if view is not None else []
    lines = [f"{tool.name} ({entry.name}): {for_people(tool.description, LONGEST)}" for tool, entry in found]
    return _shown("tools", "\n".join(line for line in lines if words.lower() in line.lower()) or "No tools.")


async def _plugins(talk: "Talk", words: str) -> CommandOutcome:
    lines = []
    for entry in talk.host.snapshot.entries:
        cure = f": approve it with `anyplug approve {entry.name}`" if entry.state in {"new", "changed"} else ""
        count = f"{len(entry.tools)} tools" if len(entry.tools) != 1 else "1 tool"
        lines.append(f"{entry.name} ({entry.format}), {count}, {entry.state}{cure}")
    return _shown("plugins", "\n".join(lines) or "No plugins.")


async def _reload(talk: "Talk", words: str) -> CommandOutcome:
    before = talk.host.snapshot
    try:
        now = await talk.host.reload(words or None)
    except AnyplugError as error:
        return CommandOutcome(command="/reload-ext", plugin="", error=Failure(error.code, error.message, error.hint))
    return _shown("reload-ext", "\n".join([now.compared_to(before), *now.faults]))


async def _model(talk: "Talk", words: str) -> CommandOutcome:
    if words:
        await talk.use_model(words)
    return _shown("model", f"The model is {talk.choice.text}.")


async def _sessions(talk: "Talk", words: str) -> CommandOutcome:
    found = talk.stored_conversations()
    lines = [f"{one.id[:8]}  {one.title or '(no title)'}  {one.model}" for one in found]
    return _shown("sessions", "\n".join(lines) or "No conversations are stored for this folder.")


async def _export(talk: "Talk", words: str) -> CommandOutcome:
    return _shown("export", markdown(talk.transcript.events, talk.title))


COMMANDS: dict[str, tuple[Own, str]] = {
    "tools": (_tools, "List the tools that the model can call"),
    "plugins": (_plugins, "List the plugins and their states"),
    "reload-ext": (_reload, "Read all plugins again, or restart one"),
    "model": (_model, "Show or change the model"),
    "sessions": (_sessions, "List the stored conversations of this folder"),
    "export": (_export, "Show this conversation as Markdown"),
}
CHOICES = tuple(Choice(name=name, description=about) for name, (_, about) in COMMANDS.items())


def find(name: str) -> Own | None:
    """Return what runs a command, if it is one of these."""
    found = COMMANDS.get(name.lower())
    return found[0] if found is not None else None
