"""The templates of `anyplug policy init`: a project with one policy, a rulebook, and runnable examples."""

import os
from typing import Final

from anyplug.home import untrusted_files
from anyplug.model.errors import ConfigError
from anyplug.policy.agent_events import OURS
from anyplug.policy.evaluate_rule import EVALUATE, of_all_projects

RULEBOOK: Final = """\
# Commands whose answers policies read as input.signals.NAME, if they name it in required_signals.
signals: {}
#  branch: {command: "git branch --show-current", timeout_seconds: 2}

# Rules that come with the program; each is off until it is enabled.
builtins:
  protected_paths:
    enabled: false
    paths: ["migrations/"]
    message: This path is read-only and cannot be modified
"""
POLICY: Final = """\
# METADATA
# scope: package
# title: Nothing is published by accident
# custom:
#   severity: HIGH
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: [{shell}]
package cupcake.policies.{harness}.publishing

import rego.v1

deny contains decision if {{
	{guard}
	{words}
	regex.match(`(^|/)(npm|pnpm|yarn|cargo|twine|uv)$`, words[at])
	some later in array.slice(words, at + 1, count(words))
	later in {{"publish", "upload"}}
	decision := {{
		"rule_id": "NO-PUBLISHING",
		"severity": "HIGH",
		"reason": "publishing is done by people, after a review",
	}}
}}

ask contains decision if {{
	{guard}
	{words}
	regex.match(`(^|/)git$`, words[at])
	"push" in words
	some later in array.slice(words, at + 1, count(words))
	regex.match(`^(--force|-[a-zA-Z]*f|\\+)`, later)
	decision := {{
		"rule_id": "ASK-FORCE-PUSH",
		"severity": "MEDIUM",
		"reason": "this rewrites what others may have pulled",
	}}
}}
"""
COMMANDS: Final = """\
some command in input.commands # the simple commands of the line, without quotes
	words := command.words
	some at, _ in words"""
TEXTS: Final = """\
walk(input.tool_input, [_, text]) # every text among the arguments of a tool, without quotes
	words := regex.split(`[\\s;&|()]+`, regex.replace(text, `['"\\\\]`, ""))
	some at, _ in words"""
EXAMPLES: Final = """\
# `anyplug policy test` runs these.
- name: publishing is refused
  event: {{{tool}: {name}, {arguments}: {{command: npm publish --access public}}}}
  decision: deny
  rule: NO-PUBLISHING
- name: publishing is refused however it is written
  event: {{{tool}: {name}, {arguments}: {{command: "'npm' --quiet publish"}}}}
  decision: deny
- name: a forced push is asked about
  event: {{{tool}: {name}, {arguments}: {{command: git push --force}}}}
  decision: ask
- name: everything else is allowed
  event: {{{tool}: {name}, {arguments}: {{command: npm test}}}}
  decision: allow
"""


def files(harness: str, *, is_own: bool = False) -> dict[str, str]:
    """Return the files by path below `.cupcake`, or below the folder of the user's own policies."""
    is_flat = is_own and harness == OURS
    policies = "" if is_flat else os.path.join("policies", harness)
    system = os.path.join(policies if is_own else "", "system", "evaluate.rego")
    return {
        "rulebook.yml": RULEBOOK,
        **({} if is_flat else {system: of_all_projects(EVALUATE) if is_own else EVALUATE}),
        os.path.join(policies, "publishing.rego"): _policy(harness),
        os.path.join(policies, "publishing.test.yml"): _examples(harness),
    }


def write(root: str, harness: str, *, is_own: bool = False) -> list[str]:
    """Write the missing files; return what was written. A project's links are not followed. Raises ConfigError."""
    written: list[str] = []
    at = ""
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        with untrusted_files.hold(os.path.realpath(root) if is_own else root) as held:
            for name, text in files(harness, is_own=is_own).items():
                at = os.path.dirname(name)
                with held.make_folders(at) as folder:
                    try:
                        new = folder.create(os.path.basename(name), 0o666)
                    except FileExistsError:
                        continue
                    with open(new, "w", encoding="utf-8") as file:
                        file.write(text)
                written.append(os.path.join(root, name))
    except OSError as error:
        where = os.path.join(root, at).rstrip("/")
        raise ConfigError(f"cannot write into {where}: {error.strerror}", "if it is a link, replace it") from error
    return written


def _policy(harness: str) -> str:
    if harness == OURS:  # tools of every plugin, whatever their arguments are called
        guard, words, shell = 'input.hook_event_name == "PreToolUse"', TEXTS, '"*"'
    else:
        guard, words, shell = 'input.tool_name == "Bash"', COMMANDS, '"Bash"'
    return POLICY.format(harness=harness, guard=guard, words=words, shell=shell)


def _examples(harness: str) -> str:
    if harness == "claude":
        return EXAMPLES.format(tool="tool_name", name="Bash", arguments="tool_input")
    return EXAMPLES.format(tool="tool", name="bash" if harness == "opencode" else "run_command", arguments="args")
