"""Slash commands: parse a line, and the outcome of running one."""

import re
from typing import Any

import msgspec

from anyplug.call.state import CallState
from anyplug.formats.shared.features import CommandAnswer, PanelOwner, PromptAnswer
from anyplug.model.errors import CallError
from anyplug.model.types import Command, Failure, Note, PromptMessage, Result, Text, Tool
from anyplug.model.untrusted_text import encodable
from anyplug.peers.panels import Panel, Panels

ACTIONS = frozenset({"prompt", "insert", "display", "open_panel", "noop", "tool_prompt"})
ARGUMENTS = {"type": "object", "properties": {"args": {"type": "string"}}, "required": ["args"]}


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a slash command asks its caller to do."""

    command: str
    plugin: str
    action: str = "noop"
    prompt: str = ""  # to be sent to the agent
    insert: str = ""  # to be inserted where the person types
    display: str = ""  # to be shown
    tool: str = ""  # to be called before the prompt is sent
    arguments: dict[str, Any] = {}  # of that tool
    panel: Panel | None = None  # that it opened
    error: Failure | None = None
    notes: tuple[Note, ...] = ()  # that came while it ran
    messages: tuple[PromptMessage, ...] = ()  # the prompt with its roles and images, if it has any
    description: str = ""  # of the prompt

    @classmethod
    def of(cls, trail: CallState, answer: CommandAnswer, panels: Panels, owner: PanelOwner) -> "CommandOutcome":
        """Convert an extension's answer; an error in it overrides every action."""
        name, plugin = trail.record.tool, trail.record.plugin
        if answer.error:
            error = Failure("tool_error", f"extension {name}: {answer.error}")
            return cls(command=name, plugin=plugin, error=error)
        action = answer.action or "noop"
        if action not in ACTIONS:
            error = Failure("bad_output", f"extension {name}: unknown action {action}", "fix the extension")
            return cls(command=name, plugin=plugin, error=error)
        panel = None
        if action == "open_panel" and answer.open_panel is not None:
            panel = panels.show(owner, answer.open_panel)
        return cls(
            command=name,
            plugin=plugin,
            action=action,
            prompt=answer.prompt if action in {"prompt", "tool_prompt"} else "",
            tool=answer.tool_name if action == "tool_prompt" else "",
            arguments=answer.tool_args if action == "tool_prompt" else {},
            insert=answer.insert if action == "insert" else "",
            display=answer.display if action == "display" else "",
            panel=panel,
            messages=answer.messages if isinstance(answer, PromptAnswer) else (),
            description=answer.description if isinstance(answer, PromptAnswer) else "",
        )

    @classmethod
    def failed(cls, trail: CallState, error: CallError) -> "CommandOutcome":
        """Return the outcome of a failed command."""
        failure = Failure(error.code, error.message, error.hint)
        return cls(command=trail.record.tool, plugin=trail.record.plugin, error=failure)

    @property
    def text(self) -> str:
        """Whatever text the action carries."""
        return self.prompt or self.insert or self.display or ("\n".join(self.panel.lines) if self.panel else "")

    def judged(self, seen: Result, panels: Panels) -> "CommandOutcome":
        """Apply the policies' decision: withheld, or with context added for the model."""
        if seen.error != self.error:
            if self.panel is not None:
                panels.close(self.panel)
            return CommandOutcome(command=self.command, plugin=self.plugin, error=seen.error)
        return msgspec.structs.replace(self, prompt=seen.text, messages=()) if self.prompt else self

    def as_result(self) -> Result:
        """Return it as a result, for the audit."""
        said = self.error.message if self.error else self.text
        return Result(content=(Text(said),), is_error=self.error is not None, error=self.error)


def as_tool(command: Command) -> Tool:
    """Return a command as gates see it: a tool with the slash in its name that takes what was typed as `args`."""
    return Tool(
        name=f"/{command.name}",
        own_name=command.name,
        plugin=command.plugin,
        description=command.description,
        input_schema=ARGUMENTS,
        program="",
        timeout_s=0,
    )


def split_command(line: str) -> tuple[str, str]:
    """Split a typed line into the command's name and the rest, trimmed."""
    name, *words = re.split("[ \t]", encodable(line).strip().removeprefix("/"), maxsplit=1)
    return name, "".join(words).strip()
