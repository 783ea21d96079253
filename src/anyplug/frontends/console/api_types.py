"""The types of the API's answers. The OpenAPI document is generated from them, and tests compare answers with it."""

from typing import Annotated, Any

import msgspec

from anyplug.audit.audit_log import Record as AuditRecord
from anyplug.call.previews import Preview
from anyplug.frontends.console.plugin_shapes import Cure
from anyplug.frontends.console.record_shapes import Gate
from anyplug.model.types import Failure
from anyplug.peers.panels import Panel
from anyplug.policy.authoring.event_replay import Replayed
from anyplug.runtime.processes.program import Receipt

ClientId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$")]
Schema = dict[str, Any]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list."""

    next: str | None = None  # the cursor of the next page


class ErrorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, and what to do."""

    code: str
    message: str
    hint: str
    retry_after_s: float = 0.0


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer with a status of 400 or above."""

    error: ErrorFacts


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon, and the project that the page shows."""

    up: bool
    api: str
    version: str
    home: str
    project: str
    pid: int
    started: float
    uptime_s: float
    url: str
    is_console: bool
    fleet: bool  # whether it joined one
    plugins: int
    approved: int
    waiting: int
    tools: int
    running: int
    calls: int
    errors: int
    questions: int
    policies: bool
    settings_fault: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The server answers."""

    ok: bool


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call."""

    tool: str
    plugin: str
    format: str
    is_error: bool
    content: list[Schema]
    text: str
    structured: Any
    metadata: Schema
    error: Failure | None
    duration_ms: float
    id: str
    call: str
    record: int | None
    gates: list[Gate]
    receipt: Receipt | None
    cure: Cure | None


class RunningCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that runs or waits for an answer."""

    call: str
    id: str
    tool: str
    plugin: str
    attachment: str
    agent: str
    callers: list[str]
    at: float
    arguments: str
    state: str


class RunningCalls(Page, frozen=True, kw_only=True):
    """The calls that run now."""

    items: list[RunningCall]


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """A cancellation that was passed on."""

    cancelled: bool


class DryRun(Preview, frozen=True, kw_only=True):
    """What a call would come to, up to its run, and how to type it."""

    as_command: str
    as_python: str


class ResultShape(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step."""

    tool: str
    plugin: str
    format: str
    is_error: bool
    content: list[Schema]
    text: str
    structured: Any
    metadata: Schema
    error: Failure | None
    duration_ms: float


class ChainRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a chain ended."""

    success: bool
    failed_at: int | None
    error: str | None
    steps: list[ResultShape]


class JobShape(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    id: str
    tool: str
    state: str
    started: Any
    progress: str | None
    result: Any


class Jobs(Page, frozen=True, kw_only=True):
    """Jobs."""

    items: list[JobShape]


class Record(AuditRecord, kw_only=True):
    """A record of the audit, with its number and the path of the call through the gates."""

    number: int | None
    caller: str
    gates: list[Gate]


class Records(Page, frozen=True, kw_only=True):
    """Records."""

    items: list[Record]


class QuestionTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The sentences of a question."""

    title: str
    now: str
    could: str
    once: str
    attachment: str
    always: str
    no: str


class QuestionShape(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for an answer."""

    id: str
    plugin: str
    plugin_id: str
    tool: str
    arguments: Schema
    given: str
    permissions: list[str]
    permission_texts: list[str]
    warning: str
    asker: str
    digest: str
    chain: list[str]
    callers: list[str]
    caller: str
    lent: list[str]
    at: float
    until: float | None
    attachment: str
    kind: str
    agent: str
    asks_elsewhere: bool
    words: list[str]
    risk: list[str]
    texts: QuestionTexts


class Questions(Page, frozen=True, kw_only=True):
    """The open questions."""

    items: list[QuestionShape]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """How a question ended."""

    id: str
    word: str
    by: str
    at: float
    plugin: str
    tool: str


class CommandRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a slash command wants done."""

    command: str
    plugin: str
    action: str
    prompt: str
    insert: str
    display: str
    panel: Panel | None
    error: Failure | None
    notes: list[Schema]


class Panels(Page, frozen=True, kw_only=True):
    """The open panels."""

    items: list[Panel]


class PolicyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of policies."""

    harness: str
    place: str
    policies: int
    is_own: bool


class PolicyShape(msgspec.Struct, frozen=True, kw_only=True):
    """A policy."""

    harness: str
    place: str
    file: str
    package: str
    title: str
    events: list[str]
    tools: list[str]
    signals: list[str]
    verbs: list[str]
    builtin: str


class PolicyProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with a policy."""

    level: str
    file: str
    row: int
    code: str
    message: str


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The policies that apply here."""

    is_on: bool
    is_valid: bool
    places: list[PolicyPlace]
    policies: list[PolicyShape]
    problems: list[PolicyProblem]
    harnesses: list[str]
    untrusted: str


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, and why."""

    harness: str
    decision: str
    reason: str
    answer: Any
    cacheable: bool
    findings: list[Schema]
    context: list[str]
    fired: list[str]
    printed: list[str]
    failures: list[str]
    policies: list[Schema]
    signals_unanswered: list[str]
    eval_refuses: str
    in_force: Schema | None
    input: Schema
    notes: list[str]


class ReplayedShape(Replayed, frozen=True, kw_only=True):
    """What a candidate would have changed, and how it was compared."""

    notes: list[str]


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to say."""


class ConversationId(msgspec.Struct, frozen=True, kw_only=True):
    """An open conversation."""

    id: str


class ConversationHead(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list."""

    id: str
    title: str
    model: str
    at: float
    is_open: bool


class Conversations(Page, frozen=True, kw_only=True):
    """Conversations."""

    items: list[ConversationHead]


class ConversationShape(msgspec.Struct, frozen=True, kw_only=True):
    """An open conversation: what is shown up to now, and the event after which to follow it.

    `examples` are requests that fit the tools, to begin with.
    """

    id: str
    title: str
    model: str
    is_open: bool
    after: str
    events: list[Schema]
    examples: list[str]


class TakenBack(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was not sent."""

    text: str


class ChoiceShape(msgspec.Struct, frozen=True, kw_only=True):
    """Something to choose from."""

    name: str
    description: str
    plugin: str


class Choices(Page, frozen=True, kw_only=True):
    """What can be chosen."""

    items: list[ChoiceShape]
