"""Gates: what may refuse a call between its check and its run. The first of them is the person.

After approval, tier 1 never asks. Tier 2 asks once for each attachment, unless the approval says always.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from anyplug import permissions
from anyplug.approval import Approvals, Standing
from anyplug.model import Plugin, Verdict

Answer = Literal["once", "attachment", "always", "no"]

HARMLESS_TIER = 1


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked before a plugin of tier 2 runs."""

    id: str
    plugin: str
    tool: str
    arguments: dict[str, Any]
    permissions: tuple[str, ...]
    warning: str


Ask = Callable[[Question], Awaitable[Answer]]


class Attachment:
    """One caller of the host, from start to end: a run of the command line, a connected agent, a program."""

    def __init__(
        self, kind: str = "library", *, ask: Ask | None = None, yes: bool = False, chain: tuple[str, ...] = ()
    ) -> None:
        """`yes` answers tier 2's question; without it and without `ask`, the answer is no.

        `chain` names the tools that led here, for a plugin that calls tools while one of its own runs.
        """
        self.id = f"{kind}-{secrets.token_hex(4)}"
        self.ask = ask
        self.yes = yes
        self.chain = chain
        self.allowed: set[str] = set()  # paths of plugins that were allowed for this attachment


async def consent(
    call: str,
    name: str,
    arguments: dict[str, Any],
    plugin: Plugin,
    standing: Standing,
    attachment: Attachment,
    approvals: Approvals,
) -> Verdict:
    """Ask the person about a tool or a command, where they have to be asked."""
    if plugin.explicit:
        return Verdict(allowed=True, by="named", reason="the person named this folder")
    if plugin.tier <= HARMLESS_TIER:
        return Verdict(allowed=True, by="approval")
    if standing.always:
        return Verdict(allowed=True, by="approval", reason="always")
    if attachment.yes:
        return Verdict(allowed=True, by="person", reason="--yes")
    if plugin.path in attachment.allowed:
        return Verdict(allowed=True, by="person", reason="for this attachment")
    if attachment.ask is None:
        return Verdict(
            allowed=False,
            by="host",
            reason=f"plugin '{plugin.name}' is of tier 2, and there is nobody to ask",
            hint=f"answer ahead with --yes, or once and for all with `anyplug approve {plugin.name} --always`",
        )
    question = Question(
        id=call,
        plugin=plugin.name,
        tool=name,
        arguments=arguments,
        permissions=standing.granted,
        warning=permissions.warning(standing.granted),
    )
    answer = await attachment.ask(question)
    if answer == "no":
        return Verdict(allowed=False, by="person", reason=f"the person refused to run '{name}'")
    if answer == "always":
        approvals.always(plugin)
    if answer in {"attachment", "always"}:
        attachment.allowed.add(plugin.path)
    return Verdict(allowed=True, by="person", reason=answer)
