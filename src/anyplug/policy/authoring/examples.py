"""Examples beside policies: events, and what must be decided about them.

    # safety.test.yml (or .yaml, .json), anywhere in .cupcake
    - name: hooks are not passed over
      event: {tool: bash, args: {command: git commit --no-verify}}
      decision: deny                 # allow | halt | deny | block | ask | modify
      reason: hooks must run         # a part of it
      rule: GIT_NO_VERIFY
      context: be careful            # a part of it
      updated_input: {command: ls}   # what `modify` made of arguments; others may have changed too
      signals: {branch: main}        # what signals would answer

What an event does not say is usual: PreToolUse, in the project's folder.
"""

import os
from typing import Any, Final

import msgspec

from anyplug.home import untrusted_files
from anyplug.policy.agent_events import BadEvent
from anyplug.policy.authoring.trial import Trial, misplaced
from anyplug.policy.decisions import applied
from anyplug.policy.rulebook import meant
from anyplug.rego import yaml

LARGEST: Final = 4 << 20  # bytes of a file
ENDINGS: Final = (".test.yml", ".test.yaml", ".test.json")
DECISIONS: Final = ("allow", "halt", "deny", "block", "ask", "modify")
KEYS: Final = ("event", "decision", "name", "reason", "rule", "context", "updated_input", "signals", "harness")


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One example."""

    file: str
    name: str
    event: dict[str, Any]
    decision: str
    reason: str = ""
    rule: str = ""
    context: str = ""
    updated_input: dict[str, Any] | None = None
    signals: dict[str, Any] | None = None
    harness: str = ""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """How one went; `problem` is empty if it is as expected."""

    file: str
    name: str
    problem: str = ""


class BadExamples(ValueError):
    """A file of examples is invalid; the text tells why."""


def find(root: str) -> list[str]:
    """List the files of examples."""
    return sorted(
        os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names if name.endswith(ENDINGS)
    )


def harness_of(path: str, root: str) -> str:
    """Return whose policies examples are for, by their folder; empty if it does not say."""
    parts = os.path.relpath(path, root).split(os.sep)
    return parts[1] if len(parts) > 2 and parts[0] == "policies" else ""  # noqa: PLR2004 - policies/<harness>/file


def read(path: str, shown: str) -> list[Example]:
    """Read a file. Raises BadExamples with everything that is wrong."""
    try:
        folder = os.path.realpath(os.path.dirname(path))
        text = untrusted_files.read_inside(folder, f"{folder}/{os.path.basename(path)}", LARGEST).decode()
        content = yaml.load(text, unique=True)
    except (OSError, UnicodeDecodeError, yaml.YamlError) as error:
        raise BadExamples(f"{shown}: {error}") from None
    if not isinstance(content, list):
        raise BadExamples(f"{shown}: it must be a list of examples")
    rows = [row for row, line in enumerate(text.split("\n"), 1) if line.startswith("-") and not line.startswith("---")]
    found: list[Example] = []
    wrong: list[str] = []
    for number, entry in enumerate(content, 1):
        place = f"{shown}:{rows[number - 1]}" if len(rows) == len(content) else shown
        try:
            found.append(_example(shown, number, entry))
        except BadExamples as error:
            wrong.append(f"{place}: example {number}: {error}")
    if wrong:
        raise BadExamples("\n".join(wrong))
    return found


def _example(shown: str, number: int, entry: Any) -> Example:
    if not isinstance(entry, dict) or not isinstance(entry.get("event"), dict):
        raise BadExamples("it has no event")
    if unknown := sorted(set(map(str, entry)) - set(KEYS)):
        raise BadExamples(f"`{unknown[0]}` is unknown here{meant(unknown[0], KEYS)}")
    if entry.get("decision") not in DECISIONS:
        raise BadExamples(f"decision must be one of {', '.join(DECISIONS)}")
    try:
        return msgspec.convert({"name": f"example {number}", **entry, "file": shown}, Example)
    except msgspec.ValidationError as error:
        raise BadExamples(str(error)) from None


def run(example: Example, trial: Trial) -> Tried:
    """Try one."""
    if wrong := misplaced(example.event, trial.harness) or trial.wrong_signals(example.signals):
        return Tried(file=example.file, name=example.name, problem=wrong)
    try:
        event = trial.read(example.event, trial.loaded.source.project)
    except BadEvent as error:
        return Tried(file=example.file, name=example.name, problem=str(error))
    decision = trial.decide(event, example.signals).decision
    changed = decision.updated_input or {}
    rules = [finding.rule_id for finding in decision.findings]
    problem = ""
    if decision.verb != example.decision:
        problem = f"expected {example.decision}, got {decision.verb}" + (
            f": {decision.reason}" if decision.reason else ""
        )
    elif example.reason and example.reason not in decision.reason:
        problem = f"the reason is: {decision.reason}"
    elif example.rule and example.rule not in rules:
        problem = f"it was decided by {', '.join(rules) or 'no rule'}"
    elif example.context and not any(example.context in text for text in decision.context):
        problem = f"the context is: {'; '.join(decision.context) or 'none'}"
    elif example.updated_input and applied(example.updated_input, changed) != changed:
        problem = f"the changed arguments are: {msgspec.json.encode(changed).decode()}"
    return Tried(file=example.file, name=example.name, problem=problem)
