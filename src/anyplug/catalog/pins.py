"""Pins: what models read about a plugin's tools, as of the plugin's first start after its approval.

A long-running plugin reports what it offers only while it runs, so nobody has seen that before approving it. What it
reports at its first start is pinned. A tool that is new or changed later waits for a person's approval: a new one is
not offered, a changed one keeps its pinned text. A removed tool does not count as a change. Commands are not pinned.
Pure.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from anyplug.model.types import Offer, Plugin, Problem, Tool

TOOLS_CHANGED = "tools_changed"
READ_BY_MODELS = ("own_name", "title", "description", "input_schema", "output_schema")
MOST_SHOWN = 20  # tools in one diff
LONGEST_SHOWN = 2_000  # characters of one value in it

_encode = msgspec.json.Encoder(order="deterministic").encode


class Pinned(msgspec.Struct, frozen=True):
    """The tools of one process of a plugin."""

    tools: dict[str, Tool]
    run: str = ""  # the first run, which may add tools until it has registered all


class Pins(msgspec.Struct, frozen=True):
    """What is pinned for a plugin."""

    decided: float  # when the approval they belong to was given
    processes: dict[str, Pinned] = {}

    def with_start(self, process: str, run: str, tools: Iterable[Tool], *, is_starting: bool) -> "Pins":
        """Pin what a process offers at its first start; return the same pins if this is not its first start."""
        known = self.processes.get(process)
        if known is not None and not (is_starting and known.run == run):
            return self
        before = known.tools if known is not None else {}
        offered = {tool.name: tool for tool in tools}
        if known is not None and offered.keys() <= before.keys():
            return self
        pinned = Pinned({**offered, **before}, run)
        return msgspec.structs.replace(self, processes={**self.processes, process: pinned})

    def accepting(self, tools: Iterable[Tool], decided: float) -> "Pins":
        """Add what a person has seen and approved; what they did not see stays as it was."""
        processes = dict(self.processes)
        for tool in tools:
            before = processes.get(tool.process, Pinned({})).tools
            processes[tool.process] = Pinned({**before, tool.name: tool})
        return Pins(decided, {process: Pinned(pinned.tools) for process, pinned in processes.items()})

    def hold(self, offer: Offer) -> tuple[Offer, tuple[Tool, ...]]:
        """Return an offer as pinned, and the new or changed tools as they are now."""
        offered: list[Tool] = []
        held: list[Tool] = []
        for tool in offer.tools:
            pinned = self._of(tool)
            if pinned is not None and (before := pinned.get(tool.name)) is None:
                held.append(tool)
            elif pinned is None:  # its process has not been started since
                offered.append(tool)
            else:
                assert before is not None
                held += [tool] if _differences(before, tool) else []
                texts = {field: getattr(before, field) for field in READ_BY_MODELS}
                again = before.is_repeatable and tool.is_repeatable
                offered.append(msgspec.structs.replace(tool, **texts, is_repeatable=again))
        return msgspec.structs.replace(offer, tools=tuple(offered)), tuple(held)

    def problem(self, plugin: Plugin, held: tuple[Tool, ...]) -> Problem:
        """Describe which tools wait for approval, and how they differ from the approved ones."""
        what = "1 tool is" if len(held) == 1 else f"{len(held)} tools are"
        said = f"{what} new or changed since '{plugin.name}' was approved, and held back until you approve it again:"
        return Problem(
            TOOLS_CHANGED, "\n".join([said, *self.diff(held)]), f"`anyplug approve {plugin.name}`", "warning"
        )

    def diff(self, held: tuple[Tool, ...]) -> list[str]:
        """Return a diff of tools against the pinned ones, as lines."""
        lines = [line for tool in held[:MOST_SHOWN] for line in self._diff(tool)]
        return [*lines, f"and {len(held) - MOST_SHOWN} more"] if len(held) > MOST_SHOWN else lines

    def _of(self, tool: Tool) -> dict[str, Tool] | None:
        pinned = self.processes.get(tool.process)
        return pinned.tools if pinned is not None else None

    def _diff(self, tool: Tool) -> list[str]:
        before = (self._of(tool) or {}).get(tool.name)
        if before is None:
            shown = [(field, getattr(tool, field)) for field in READ_BY_MODELS[1:]]
            return [
                f"+ tool {_shown(tool.name)}",
                *(f"+   {field}: {_shown(value)}" for field, value in shown if value),
            ]
        lines = [f"~ tool {_shown(tool.name)}"]
        for field in _differences(before, tool):
            lines += [f"-   {field}: {_shown(getattr(before, field))}", f"+   {field}: {_shown(getattr(tool, field))}"]
        return lines


def changed_texts(before: Iterable[Tool], now: Iterable[Tool]) -> list[str]:
    """Return as lines what models would read now and did not before. A removed tool does not count as a change."""
    pins = Pins(0, {"": Pinned({tool.name: tool for tool in before})})
    _, held = pins.hold(Offer(tools=tuple(now)))
    return pins.diff(held)


def _differences(before: Tool, now: Tool) -> list[str]:
    return [name for name in READ_BY_MODELS if _encode(getattr(before, name)) != _encode(getattr(now, name))]


def _shown(value: Any) -> str:
    """Format a value in one line, so that a plugin's text cannot pass for a line of the diff."""
    text = _encode(value).decode()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"
