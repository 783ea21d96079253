"""Consent: whether the person agrees to a call between its check and its run.

After approval, tier 1 never asks. Tier 2 asks once per attachment, unless it was approved with --always.

A question of a plugin to the caller's model is separate from calls of its tools: no answer about one covers the other.

A call that a plugin makes is separate: the person's answer for the call around it, `--yes` included, does not apply to
it, and neither does --always, unless the caller's grants name the tool.
"""

import copy
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import msgspec

from anyplug.catalog.approvals import Approvals, Standing
from anyplug.catalog.profiles import View
from anyplug.model import hints, permissions
from anyplug.model.errors import CallError, Denied, StoreError
from anyplug.model.types import Call, Elicitation, Elicited, Plugin, Sampling, Verdict

if TYPE_CHECKING:  # imports an event loop, which clients of a host do not need
    import anyio

    from anyplug.audit.audit_log import Record
    from anyplug.launch.surroundings import Users

Answer = Literal["once", "attachment", "always", "no"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)
LASTING = frozenset({"attachment", "always"})
YES = LASTING | {"once"}

HARMLESS_TIER = 1
WIDER = "permission:"  # how the asker of a question is named that is about one permission

ASK_A_PERSON = "call its tool where you can be asked each time: no approval covers this question"
NAMED = Verdict(allowed=True, by="named", reason="the user named this folder")
APPROVED = Verdict(allowed=True, by="approval")
ALWAYS = Verdict(allowed=True, by="approval", reason="always")
SAID_YES = Verdict(allowed=True, by="person", reason="--yes")
SAID_BEFORE = Verdict(allowed=True, by="person", reason="for this attachment")

LONGEST_GIVEN = 600  # characters of arguments shown to a person
SHORTEST_GIVEN = 40  # minimum characters of each of them, and maximum of its name
MOST_GIVEN = 15  # arguments


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked before a tier 2 plugin runs, or because a policy requires it."""

    id: str
    plugin: str
    tool: str
    arguments: dict[str, Any]
    permissions: tuple[str, ...]
    warning: str
    asker: str = ""  # the policy that requires it, if any
    digest: str = ""  # of the plugin that would run
    chain: tuple[str, ...] = ()  # the tools that led here: while they run, a question cannot end the call
    callers: tuple[str, ...] = ()  # the chain of callers, the first one first, if a plugin makes this call
    lent: tuple[str, ...] = ()  # the part of `permissions` that the calling plugin was not granted itself
    asks_model: bool = False  # a running tool of the plugin asks the caller's model; a yes covers none of its tools

    @property
    def wants(self) -> str:
        """What the plugin would do."""
        return "ask your model, at your cost" if self.asks_model else f"run {self.tool}"

    @property
    def may_last(self) -> bool:
        """Whether `always` is an answer; other plugins' calls and wider grants need a grant instead."""
        return not (self.caller or self.asks_model or self.asker.startswith(WIDER))

    @property
    def caller(self) -> str:
        """The plugin that makes this call, if any."""
        return self.callers[-1].partition("/")[0] if self.callers else ""

    @property
    def cure(self) -> str:
        """How to allow a tier 2 plugin, or a plugin's call of it, without a question."""
        return cure(self.plugin, self.tool, self.caller)

    @property
    def given(self) -> str:
        """The tool's arguments, as far as they are shown to a person."""
        text = msgspec.json.encode(self.arguments).decode()
        return text if len(text) <= LONGEST_GIVEN else _shortened(self.arguments)


def _shortened(arguments: dict[str, Any]) -> str:
    """Format arguments so that none hides another: each is truncated by itself, with the number of hidden letters."""
    room = max(SHORTEST_GIVEN, LONGEST_GIVEN // len(arguments))
    shown = []
    for name, value in list(arguments.items())[:MOST_GIVEN]:
        shown.append(f"{_cut(name, SHORTEST_GIVEN)}: {_cut(value, room)}")
    if left := len(arguments) - len(shown):
        shown.append(f"… and {left} more arguments")
    return "{" + ", ".join(shown) + "}"


def _cut(value: Any, longest: int) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest} more characters)"


Ask = Callable[[Question], Awaitable[Answer]]
Elicit = Callable[[Elicitation], Awaitable[Elicited]]  # raises Denied
Sample = Callable[[Sampling], Awaitable[dict[str, Any]]]  # returns MCP's result of it; raises CallError


class Given(msgspec.Struct, frozen=True):
    """A person's answer, and the face in which it was given, if that is not where the question came from."""

    word: Answer
    by: str = ""

    @property
    def reason(self) -> str:
        """How the record of a call names it."""
        return f"{self.word}, in the {self.by}" if self.by else self.word


class Asker(Protocol):
    """Where questions are put, so that any face may answer: the book of open questions."""

    @property
    def is_watched(self) -> bool:
        """Whether a face is open in which a person sees every question."""
        ...

    async def ask(self, question: Question, asker: "Attachment") -> Given:
        """Ask; raises what the attachment's own `ask` does, or Denied."""
        ...


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
        line: str = "",
        is_model: bool = False,
    ) -> None:
        """`yes` answers the tier 2 question; without it and without `ask`, the answer is no.

        `chain` names the tools that led here, for a plugin that calls tools while one of its own runs. `users` has the
        caller's own environment, if it differs from the host's. What a `view` does not show does not exist for the
        caller. Without `shows_panels` nobody sees what plugins draw: then a tool that waits for a person has a time
        limit. `line` is for callers that cannot be told apart. `is_model`: results that are too long
        are shortened.
        """
        self.id = _new_id(kind)
        self.line = line or self.id  # calls of the same line take turns as those of one caller
        self.kind = kind
        self.is_model = is_model
        self.is_library = kind == "library"  # a program called us: hints say what it can pass
        self.awaits = True  # whether such a program has to await us
        self.home: tuple[
            str, ...
        ] = ()  # the option that names the host's home to a program, unless it is the usual one
        self.agent = ""  # as the agent names itself, once it has
        self.conversation = ""  # the id of the conversation that it belongs to, if it does
        self.on_record: Callable[[Record], object] | None = None  # receives the record of each call that has ended
        self.job = ""  # the id of the job that its call is, if that has one already
        self.trace: dict[str, str] = {}  # the W3C trace context that came with the request
        self.shows_panels = shows_panels
        self.ask = ask
        self.elicit: Elicit | None = None  # asks the person what a plugin wants to know
        self.sample: Sample | None = None  # asks a model what a plugin wants to know
        self.purpose = ""  # of a request that is agreed to by itself
        self.yes = yes
        self.chain = chain
        self.users = users
        self.view = view
        self.allowed: set[str] = set()  # for this attachment: paths of plugins, and questions of policies
        self.plugin: Plugin | None = None  # the calling plugin, if any
        self.callers: tuple[str, ...] = ()  # the chain of callers up to that plugin, the first one first
        self._turns: dict[str, anyio.Lock] = {}  # by subject of the question

    def asking(self, ask: Ask | None) -> "Attachment":
        """Return the same caller with another way to ask: some can only be asked about one request at a time."""
        same = copy.copy(self)
        same.ask = ask
        return same

    def for_plugin(self, plugin: Plugin, chain: tuple[str, ...], callers: tuple[str, ...]) -> "Attachment":
        """Return a plugin as a caller: the same person is asked, about each plugin that it calls."""
        caller = copy.copy(self)  # shares its answers, which count for all calls of the plugin
        caller.id = _new_id(f"extension-{plugin.name}")
        caller.chain, caller.callers, caller.plugin, caller.view = chain, callers, plugin, None
        caller.yes = caller.is_model = False
        caller.job = ""
        return caller

    def about(self, plugin: Plugin) -> str:
        """Return the subject of an answer that counts for this attachment: a plugin, or one plugin's use of another."""
        caller = self.plugin
        if self.purpose:
            return f"{plugin.path}\0{self.purpose}"
        return plugin.path if caller is None or caller.path == plugin.path else f"{caller.path}\0{plugin.path}"

    async def put(self, question: Question, about: str, asker: Asker) -> Given:
        """Ask the person through `asker`; `about` is what the answer counts for, if it counts for this attachment.

        Further questions about the same subject wait: the first answer may settle them. Anything but a clear yes is a
        no. Raises Denied or NeedsAnswer.
        """
        import anyio  # for the same reason; callers that ask have already imported it

        turn = self._turns.setdefault(about, anyio.Lock())
        try:
            async with turn:
                if about in self.allowed:
                    return Given("attachment")
                given = await asker.ask(question, self)
                if given.word in LASTING:
                    self.allowed.add(about)
        except CallError:
            raise
        except Exception as error:
            raise Denied("host", "the person could not be asked", "call it again") from error
        finally:
            if not turn.locked():  # nobody has it, and so nobody waits for it
                self._turns.pop(about, None)
        return given


def _new_id(kind: str) -> str:
    return f"{kind}-{os.urandom(4).hex()}"


async def consent(
    call: Call, standing: Standing, attachment: Attachment, approvals: Approvals, asker: Asker
) -> Verdict:
    """Ask the person about a tool or command if needed; raises NeedsAnswer if `ask` does."""
    plugin, name = call.plugin, call.tool.name
    question = Question(
        id=call.id,
        plugin=plugin.name,
        tool=name,
        arguments=call.arguments,
        permissions=standing.granted,
        warning=permissions.warning(standing.granted),
        digest=standing.digest,
        chain=attachment.chain,
        callers=attachment.callers,
        lent=permissions.lent(approvals.granted(attachment.plugin), standing.granted) if attachment.plugin else (),
        asks_model=bool(attachment.purpose),
    )
    if attachment.ask is None and not asker.is_watched:
        return _nobody(question)
    try:
        given = await attachment.put(question, attachment.about(plugin), asker)
    except Denied as error:
        return refusal(error)
    if given.word == "no":
        where = f", in the {given.by}" if given.by else ""
        what = "a question to their model" if question.asks_model else f"to run '{name}'"
        return Verdict(allowed=False, by="person", reason=f"the person refused {what}{where}")
    if given.word == "always" and not question.may_last:
        given = Given("attachment", given.by)
    warning = kept(lambda: approvals.always(plugin, given.by or attachment.id)) if given.word == "always" else ""
    return Verdict(allowed=True, by="person", reason=given.reason, warning=warning)


def kept(keep: Callable[[], None]) -> str:
    """Store a permanent answer; return a warning for the person if that fails.

    The call runs anyway, and the question is asked again another time.
    """
    try:
        keep()
    except StoreError as error:
        return f'the answer "always" could not be stored, so it applies only now: {error.message} ({error.hint})'
    return ""


def refusal(error: Denied) -> Verdict:
    """Return the verdict for an `ask` that could not ask, or got no answer."""
    return Verdict(allowed=False, by=error.by, reason=error.message, hint=error.hint)


def without_asking(
    call: Call, standing: Standing, attachment: Attachment, granted: tuple[str, ...] = ()
) -> Verdict | None:
    """Return the person's verdict if no question is needed. `granted` is what a calling plugin has."""
    plugin = call.plugin
    if attachment.purpose:  # what was decided about its tools does not count
        return NAMED if plugin.explicit else SAID_BEFORE if attachment.about(plugin) in attachment.allowed else None
    if attachment.plugin is not None and attachment.plugin.path != plugin.path:
        return _without_asking_for(attachment.plugin, granted, call, standing, attachment)
    if plugin.explicit:
        return NAMED
    if plugin.tier <= HARMLESS_TIER:
        return APPROVED
    if standing.always:
        return ALWAYS
    if attachment.yes:
        return SAID_YES
    if attachment.about(plugin) in attachment.allowed:
        return SAID_BEFORE
    return None


def _without_asking_for(
    caller: Plugin, granted: tuple[str, ...], call: Call, standing: Standing, attachment: Attachment
) -> Verdict | None:
    """Do the same for a call that a plugin makes of another."""
    plugin = call.plugin
    is_named = permissions.names_tool(granted, call.tool.names)
    if plugin.explicit and (caller.explicit or is_named):
        return NAMED
    if plugin.tier <= HARMLESS_TIER and (is_named or not permissions.lent(granted, standing.granted)):
        return APPROVED
    if standing.always and is_named:
        return ALWAYS
    return SAID_BEFORE if attachment.about(plugin) in attachment.allowed else None


def ungranted(call: Call, attachment: Attachment, approvals: Approvals) -> Verdict | None:
    """Refuse a plugin's call of another plugin that it was not granted; None if it may."""
    caller = attachment.plugin
    if caller is None or caller.path == call.plugin.path:
        return None
    if permissions.may_call(approvals.granted_over(caller, call.plugin), call.tool.names):
        return None
    needed, reason = f"{permissions.CALL}:{call.tool.name}", "it was not granted"
    if permissions.names_tool(approvals.granted(caller), call.tool.names):
        reason = f"another plugin had that tool when {needed} was granted, or none had, so it needs a new grant of"
        needed = f"{permissions.CALL}:{call.tool.names[-1]}"
    return Verdict(
        allowed=False,
        by="host",
        reason=f"plugin '{caller.name}' may not call '{call.tool.name}' of plugin '{call.plugin.name}': "
        f"{reason} {needed}",
        hint=f"{hints.command('grant', caller.name, needed)}, or {permissions.CALL} for all tools",
    )


def cure(plugin: str, tool: str, caller: str = "") -> str:
    """Return how to permanently allow a tier 2 plugin, or one plugin's calls of another's tool."""
    always = hints.command("approve", plugin, "--always")
    return f"{always} and {hints.command('grant', caller, f'{permissions.CALL}:{tool}')}" if caller else always


def _nobody(question: Question) -> Verdict:
    plugin, caller = question.plugin, question.caller
    if question.asks_model:
        reason = f"plugin '{plugin}' asks for your model, but nobody can agree to it here"
        return Verdict(allowed=False, by="host", reason=reason, hint=ASK_A_PERSON)
    if caller:
        return Verdict(
            allowed=False,
            by="host",
            reason=(
                f"plugin '{caller}' wants to call '{question.tool}' of plugin '{plugin}', but nobody "
                "can confirm it here; --yes applies only to the call that you made yourself"
            ),
            hint=f"allow it permanently with {question.cure}",
        )
    return Verdict(
        allowed=False,
        by="host",
        reason=f"plugin '{plugin}' needs confirmation (tier 2), but nobody can confirm it here",
        hint=f"pass --yes, or allow it permanently with {question.cure}",
    )
