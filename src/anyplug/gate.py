"""Gates: what may refuse a call between its check and its run. The first of them is the person.

After approval, tier 1 never asks. Tier 2 asks once for each attachment, unless the approval says always.
"""

import copy
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from anyplug import permissions
from anyplug.approval import Approvals, Standing
from anyplug.errors import CallError, Denied, StoreError
from anyplug.model import Plugin, Verdict
from anyplug.views import View

if TYPE_CHECKING:  # brings an event loop along, and clients of a host need none
    import anyio

    from anyplug.surroundings import Users

Answer = Literal["once", "attachment", "always", "no"]
LASTING = frozenset({"attachment", "always"})
YES = LASTING | {"once"}

HARMLESS_TIER = 1

NAMED = Verdict(allowed=True, by="named", reason="the person named this folder")
APPROVED = Verdict(allowed=True, by="approval")
ALWAYS = Verdict(allowed=True, by="approval", reason="always")
SAID_YES = Verdict(allowed=True, by="person", reason="--yes")
SAID_BEFORE = Verdict(allowed=True, by="person", reason="for this attachment")

LONGEST_GIVEN = 600  # characters of arguments that a person is shown


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked before a plugin of tier 2 runs, or because a policy wants it."""

    id: str
    plugin: str
    tool: str
    arguments: dict[str, Any]
    permissions: tuple[str, ...]
    warning: str
    asker: str = ""  # the policy that wants it, if it is one
    digest: str = ""  # of the plugin that would run
    chain: tuple[str, ...] = ()  # the tools that led here: while they run, nothing can be asked by ending them

    @property
    def given(self) -> str:
        """What the tool would be given, as far as a person is shown it."""
        text = msgspec.json.encode(self.arguments).decode()
        return text if len(text) <= LONGEST_GIVEN else f"{text[:LONGEST_GIVEN]}… ({len(text)} characters)"


Ask = Callable[[Question], Awaitable[Answer]]


class Attachment:
    """One caller of the host, from start to end: a run of the command line, a connected agent, a program."""

    def __init__(
        self,
        kind: str = "library",
        *,
        ask: Ask | None = None,
        yes: bool = False,
        chain: tuple[str, ...] = (),
        users: "Users | None" = None,
        view: View | None = None,
        shows_panels: bool = True,
    ) -> None:
        """`yes` answers tier 2's question; without it and without `ask`, the answer is no.

        `chain` names the tools that led here, for a plugin that calls tools while one of its own runs. `users` has
        the caller's own environment, if it is another than the host's. What a `view` does not show is not there.
        Without `shows_panels` nobody sees what plugins draw: a tool that waits for a person has a time limit then.
        """
        self.id = _new_id(kind)
        self.shows_panels = shows_panels
        self.ask = ask
        self.yes = yes
        self.chain = chain
        self.users = users
        self.view = view
        self.allowed: set[str] = set()  # for this attachment: paths of plugins, and questions of policies
        self.plugin: Plugin | None = None  # that calls, if it is one
        self._turns: dict[str, anyio.Lock] = {}  # by what somebody is being asked about

    def asking(self, ask: Ask) -> "Attachment":
        """Give the same caller, who is asked another way: some can only be asked about one request at a time."""
        same = copy.copy(self)
        same.ask = ask
        return same

    def for_plugin(self, plugin: Plugin, chain: tuple[str, ...]) -> "Attachment":
        """Give a caller that is a plugin, in a call of this one: the same person is asked, and has answered before."""
        caller = copy.copy(self)  # so that answers count for both
        caller.id = _new_id(f"extension-{plugin.name}")
        caller.chain, caller.plugin, caller.view = chain, plugin, None
        return caller

    async def put(self, question: Question, about: str) -> Answer:
        """Put a question to the person; `about` is what the answer counts for, if it counts for this attachment.

        Of several about the same thing the others wait: the answer to the first may settle them. Whatever is no clear
        yes is a no. Raises Denied or NeedsAnswer.
        """
        import anyio  # as above; whoever asks has one

        assert self.ask is not None
        turn = self._turns.setdefault(about, anyio.Lock())
        try:
            async with turn:
                if about in self.allowed:
                    return "attachment"
                answer = await self.ask(question)
                if answer in LASTING:
                    self.allowed.add(about)
        except CallError:
            raise
        except Exception as error:
            raise Denied("host", f"the person could not be asked: {type(error).__name__}: {error}") from error
        finally:
            if not turn.locked():  # nobody has it, and so nobody waits for it
                self._turns.pop(about, None)
        return answer if answer in YES else "no"


def _new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(4)}"


async def consent(
    call: str,
    name: str,
    arguments: dict[str, Any],
    plugin: Plugin,
    standing: Standing,
    attachment: Attachment,
    approvals: Approvals,
) -> Verdict:
    """Ask the person about a tool or a command that they have to be asked about; raises NeedsAnswer if `ask` does."""
    if attachment.ask is None:
        return _nobody(plugin)
    question = Question(
        id=call,
        plugin=plugin.name,
        tool=name,
        arguments=arguments,
        permissions=standing.granted,
        warning=permissions.warning(standing.granted),
        digest=standing.digest,
        chain=attachment.chain,
    )
    try:
        answer = await attachment.put(question, plugin.path)
    except Denied as error:
        return refusal(error)
    if answer == "no":
        return Verdict(allowed=False, by="person", reason=f"the person refused to run '{name}'")
    warning = kept(lambda: approvals.always(plugin)) if answer == "always" else ""
    return Verdict(allowed=True, by="person", reason=answer, warning=warning)


def kept(keep: Callable[[], None]) -> str:
    """Keep an answer that is to count for always; give what the person should know if that is not possible.

    They said yes all the same: the call runs, and they are asked again some other time.
    """
    try:
        keep()
    except StoreError as error:
        return f"always could not be kept, so it counts only for now: {error.message} ({error.hint})"
    return ""


def refusal(error: Denied) -> Verdict:
    """Give what an `ask` raised that could ask nobody, or had no answer, as the verdict that it is."""
    return Verdict(allowed=False, by=error.by, reason=error.message, hint=error.hint)


def without_asking(plugin: Plugin, standing: Standing, attachment: Attachment) -> Verdict | None:
    """Give the person's verdict, if it is known without a question."""
    if plugin.explicit:
        return NAMED
    if plugin.tier <= HARMLESS_TIER:
        return APPROVED
    if standing.always:
        return ALWAYS
    if attachment.yes:
        return SAID_YES
    if plugin.path in attachment.allowed:
        return SAID_BEFORE
    return None


def _nobody(plugin: Plugin) -> Verdict:
    return Verdict(
        allowed=False,
        by="host",
        reason=f"plugin '{plugin.name}' is of tier 2, and there is nobody to ask",
        hint=f"answer ahead with --yes, or once and for all with `anyplug approve {plugin.name} --always`",
    )
