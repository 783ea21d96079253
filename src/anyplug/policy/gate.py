"""The policy gate of our own host: policies decide about every tool of every plugin, before it runs and after.

Policies are in the project's `.cupcake/policies/anyplug` and, for all projects, in `<home>/policy`. If there are none,
the gate only checks two folders per second, and imports nothing. What cannot be decided is refused, unless the user set
`fail_mode = "open"`. A `cupcake` program can decide instead of our engine.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.settings import PolicySettings
from anyplug.model.errors import StoreError
from anyplug.model.hashes import sha256
from anyplug.policy import policy_folders
from anyplug.policy.paths import HOME_FOLDER, may_be_there

if TYPE_CHECKING:
    from anyplug.policy.engine import Engine
    from anyplug.policy.evaluation import Outcome
    from anyplug.policy.event_log import Recordings
    from anyplug.policy.signals import RunSignal
    from anyplug.runtime.runner import Runner
    from anyplug.secrets.mask import Mask

LOOK_S: Final = 1.0  # between checks whether there are policies at all
ANSWERS_FILE: Final = "policy-answers.json"  # questions that a person answered with "always"
LARGEST_ANSWER: Final = 4 << 20  # bytes of an external program's answer
KEPT_STDERR: Final = 4096  # bytes
KEPT_ANSWER: Final = 200  # bytes of an invalid answer
OTHER_PROGRAM: Final = "`program` under [policy] in settings.toml selects the program that decides"
MOST_FOLDERS: Final = 256  # cached between two checks


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What policies are told about a call."""

    call: str
    tool: str
    arguments: dict[str, Any]
    plugin: str
    format: str
    tier: int
    grants: tuple[str, ...]
    caller: str
    cwd: str
    chain: tuple[str, ...] = ()


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """The policies' decision about a call."""

    verb: Literal["allow", "deny", "ask", "modify"] = "allow"
    reason: str = ""
    rule: str = ""
    place: str = ""  # file:line
    arguments: dict[str, Any] | None = None  # for modify: all of them
    context: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what failed and was allowed
    question: str = ""  # for ask: identifies the question whenever it is asked again
    cure: str = ""  # what to do if policies could not decide

    @property
    def by(self) -> str:
        """What decided, for the audit."""
        return f"policy:{self.rule} {self.place}".strip()

    @property
    def hint(self) -> str:
        """A hint for a person whose call is refused."""
        return f"decided by {self.by}" + (f"; {self.cure}" if self.cure else "")


ALLOWED: Final = Ruling()


class PolicyGate:
    """Decides about calls."""

    def __init__(
        self, home: str, settings: PolicySettings, run: "Runner | None" = None, signals: "RunSignal | None" = None
    ) -> None:
        """`run` runs an external program, `signals` runs signals."""
        self._home = home
        self._settings = settings
        self._run = run
        self._signals = signals
        self._looks: dict[
            str, tuple[bool, float]
        ] = {}  # by folder: whether there are policies, and when that was checked
        self._engine: Engine | None = None
        self._recordings: Recordings | None = None

    def follow(self, settings: PolicySettings) -> None:
        """Use new settings from now on."""
        if settings != self._settings:
            self._settings, self._engine, self._recordings = settings, None, None
            self._looks.clear()

    def is_on(self, cwd: str) -> bool:
        """Return whether anything could decide about calls in a folder."""
        now = time.monotonic()
        seen = self._looks.get(cwd)
        if seen is None or now - seen[1] >= LOOK_S:
            if len(self._looks) >= MOST_FOLDERS:
                self._looks.clear()
            seen = self._looks[cwd] = (bool(self._settings.program) or self._has_policies(cwd), now)
        return seen[0]

    def _has_policies(self, cwd: str) -> bool:
        if may_be_there(os.path.join(self._home, HOME_FOLDER)):
            return True
        return any(place.has("anyplug") for place in policy_folders.around(cwd, self._home))

    async def before(self, facts: Facts, mask: "Mask | None" = None) -> Ruling:
        """Decide about a call before it runs."""
        return await self._decide(_event("PreToolUse", facts), mask)

    async def after(
        self,
        facts: Facts,
        *,
        success: bool,
        output: str,
        error: str = "",
        structured: Any = None,
        mask: "Mask | None" = None,
    ) -> Ruling:
        """Decide about a call that has run: whether its result may be seen, and what context to add."""
        result: dict[str, Any] = {"success": success, "output": output}
        if error:
            result["error"] = error
        if structured is not None:
            result["structured"] = structured
        return await self._decide({**_event("PostToolUse", facts), "result": result}, mask)

    async def _decide(self, event: dict[str, Any], mask: "Mask | None") -> Ruling:
        if self._settings.program:
            return await self._by_program(event)
        # Takes 50 ms to import, and only policies need it.
        from anyplug.policy.agent_events import BadEvent
        from anyplug.policy.engine import NoPolicies
        from anyplug.policy.evaluation import Options
        from anyplug.policy.shell.reading_time import TooSlow

        options = Options(cwd=event["cwd"], is_open=self._settings.fail_mode == "open")
        try:
            inquiry = self._the_engine().inquire("anyplug", event, options)
            answered = await inquiry.ask_signals() if inquiry.has_signals else None
            outcome = inquiry.decided(answered)
        except NoPolicies as error:
            return self._undecided(str(error), error.hint)
        except BadEvent as error:
            return self._undecided(str(error), "make the call smaller, so that it can be decided about")
        except TooSlow as error:  # its caller chose that, so it does not fail open
            return Ruling(verb="deny", reason=str(error), rule="POLICY_ERROR", cure="split the command")
        if self._recordings is not None:
            self._recordings.add(
                "anyplug", event, outcome.decision, None if answered is None else answered.values, mask
            )
        return _ruling(outcome, "".join(one.loaded.digest for one in (inquiry, *inquiry.outer)), event)

    def _the_engine(self) -> "Engine":
        if self._engine is None:
            # For the same reason.
            from anyplug.policy.engine import Engine
            from anyplug.policy.event_log import Recordings

            self._engine = Engine(
                self._home,
                run=self._signals,
                self_protection=self._settings.self_protection,
                signals=self._settings.signals,
            )
            self._recordings = Recordings(self._home, self._settings.record_days)
        return self._engine

    def _undecided(self, why: str, cure: str) -> Ruling:
        """Return the ruling if nothing could be decided."""
        if self._settings.fail_mode == "open":
            return Ruling(notes=(f"policies could not decide, and the call was allowed: {why}",))
        return Ruling(verb="deny", reason=f"policies could not decide: {why}", rule="POLICY_ERROR", cure=cure)

    async def _by_program(self, event: dict[str, Any]) -> Ruling:
        """Let another program decide, using the protocol of OpenCode's plugin."""
        from anyplug.runtime.processes.program import Program  # only needed for such a program

        assert self._run is not None
        program = os.path.expanduser(self._settings.program)
        finished = await self._run(
            Program(
                argv=(program, "eval", "--harness", "opencode"),
                cwd=event["cwd"],
                env={**os.environ, **self._run.environment},
                stdin=msgspec.json.encode(event),
                timeout_s=self._settings.timeout_s,
                max_stdout=LARGEST_ANSWER,
                max_stderr=KEPT_STDERR,
            )
        )
        if finished.ending != "exited" or finished.exit_code != 0:
            said = finished.stderr.decode(errors="replace").strip()
            how = {
                "timed_out": f"it did not answer within {self._settings.timeout_s:g} s",
                "exited": f"it exited with {finished.exit_code}",
            }.get(finished.ending, finished.reason or finished.ending)
            return self._undecided(f"{program}: {how}" + (f": {said}" if said else ""), OTHER_PROGRAM)
        return self._read_answer(program, finished.stdout, event)

    def _read_answer(self, program: str, output: bytes, event: dict[str, Any]) -> Ruling:
        try:
            answer = msgspec.json.decode(output, type=_Answer)
        except (msgspec.DecodeError, ValueError):
            said = output[:KEPT_ANSWER].decode(errors="replace")
            return self._undecided(f"{program}: its answer is invalid: {said}", OTHER_PROGRAM)
        context = tuple(answer.context)
        if answer.decision == "allow":
            return Ruling(context=context)
        rule = answer.rule_id or "CUPCAKE"
        verb: Literal["deny", "ask"] = "ask" if answer.decision == "ask" else "deny"
        question = _question(program, event, (rule,), answer.reason)
        return Ruling(
            verb=verb, reason=answer.reason or "refused by policy", rule=rule, place=program, question=question
        )

    # Permanent answers of a person.

    def is_answered(self, question: str) -> bool:
        """Return whether a person answered a question with "always"."""
        try:
            known = untrusted_files.read_linked(os.path.join(self._home, ANSWERS_FILE))
            return question in msgspec.json.decode(known, type=list[str])
        except (OSError, msgspec.DecodeError):
            return False

    def answer_always(self, question: str) -> None:
        """Store an answer, valid until the policies or the subject of the question change. Raises StoreError."""
        path = os.path.join(self._home, ANSWERS_FILE)
        try:
            known = msgspec.json.decode(untrusted_files.read_linked(path), type=list[str])
        except (OSError, msgspec.DecodeError):
            known = []
        beside = f"{path}.{os.getpid()}"
        try:
            make_private(self._home)
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(msgspec.json.encode([*known, question]))
            os.replace(beside, path)
        except OSError as error:
            if os.path.lexists(beside):
                os.unlink(beside)
            raise StoreError(
                f"cannot write to {path}: {error.strerror}", "check the disk's free space and the file's permissions"
            ) from error


class _Answer(msgspec.Struct):
    """What a `cupcake` program prints."""

    decision: Literal["allow", "deny", "block", "ask"]
    reason: str = ""
    context: list[str] = []
    rule_id: str = ""


def _event(name: str, facts: Facts) -> dict[str, Any]:
    return {
        "hook_event_name": name,
        "session_id": facts.caller,
        "cwd": facts.cwd,
        "tool": facts.tool,
        "args": facts.arguments,
        "call_id": facts.call,
        "plugin": facts.plugin,
        "format": facts.format,
        "tier": facts.tier,
        "grants": list(facts.grants),
        "caller": facts.caller,
        "chain": list(facts.chain),
    }


def _ruling(outcome: "Outcome", digest: str, event: dict[str, Any]) -> Ruling:
    decision = outcome.decision
    if decision.verb == "allow":
        return Ruling(context=decision.context, notes=outcome.said) if decision.context or outcome.said else ALLOWED
    first = decision.findings[0] if decision.findings else None
    rules = tuple(finding.rule_id for finding in decision.findings)
    return Ruling(
        verb="modify" if decision.verb == "modify" else "ask" if decision.verb == "ask" else "deny",
        reason=decision.reason,
        rule=",".join(dict.fromkeys(rules)),
        place=f"{first.file}:{first.row}" if first is not None and first.file else "",
        arguments=decision.updated_input,
        context=decision.context,
        notes=outcome.said,
        question=_question(digest, event, rules, decision.reason) if decision.verb == "ask" else "",
        cure=first.cure if first is not None else "",
    )


def _question(policies: str, event: dict[str, Any], rules: tuple[str, ...], reason: str) -> str:
    """Return the identity of a question: agreeing to one reason does not cover another, even of the same rule."""
    told = msgspec.json.encode([policies, event["plugin"], event["tool"], rules, reason])
    return sha256(told).hexdigest()
