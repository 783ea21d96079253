"""Writes folders of policies, and asks about events as an agent does."""

import os
from typing import Any

import anyio.to_thread

import plugin_folders
from anyplug.home.settings import Home
from anyplug.launch.signal_runner import SignalRuns
from anyplug.policy import accepted_copies
from anyplug.policy.engine import Engine
from anyplug.policy.eval_requests import EvalRequests

EVALUATE = """
package cupcake.system
import rego.v1
evaluate := {"halts": all("halt"), "denials": all("deny"), "blocks": all("block"), "asks": all("ask"),
	"modifications": all("modify"), "add_context": all("add_context")}
all(verb) := [found | walk(data.cupcake.policies, [path, each]); path[count(path) - 1] == verb; some found in each]
"""
GLOBAL_EVALUATE = EVALUATE.replace("cupcake.system", "cupcake.global.system").replace(
    "cupcake.policies", "cupcake.global.policies"
)
NO_VERIFY = """
deny contains decision if {
	input.tool_name == "Bash"
	contains(input.tool_input.command, "--no-verify")
	decision := {"rule_id": "GIT_NO_VERIFY", "reason": "hooks must run", "severity": "HIGH"}
}
"""


def policy(name: str, body: str, *, events: Any = ("PreToolUse",), tools: Any = (), signals: Any = ()) -> str:
    """Give the text of a policy that asks for these."""
    lists = {"required_events": events, "required_tools": tools, "required_signals": signals}
    routing = "".join(f"#     {key}: {list(values)!r}\n" for key, values in lists.items() if values)
    head = f"# METADATA\n# scope: package\n# custom:\n#   routing:\n{routing}".replace("'", '"')
    return f"{head}package cupcake.policies.{name}\nimport rego.v1\n{body}"


def decision(
    verb: str, reason: str = "because", *, when: str = "true", rule: str = "R1", severity: str = "HIGH"
) -> str:
    """Give a rule that decides something."""
    return f'{verb} contains {{"rule_id": "{rule}", "reason": "{reason}", "severity": "{severity}"}} if {{ {when} }}\n'


def project(
    policies: dict[str, str] | None = None,
    *,
    folder: str = ".",
    rulebook: str = "",
    harness: str = "opencode",
    evaluate: str | None = EVALUATE,
    trust: bool = True,
    **files: str,
) -> str:
    """Write a project, as a person who trusts it; give its folder."""
    root = os.path.join(os.path.abspath(folder), ".cupcake")
    os.makedirs(os.path.join(root, "policies", harness), exist_ok=True)
    for name, text in (policies or {}).items():
        plugin_folders.write(os.path.join(root, "policies", harness, f"{name}.rego"), text)
    if evaluate is not None:
        plugin_folders.write(os.path.join(root, "system", "evaluate.rego"), evaluate)
    if rulebook:
        plugin_folders.write(os.path.join(root, "rulebook.yml"), rulebook)
    for name, text in files.items():
        plugin_folders.write(os.path.join(root, name), text, 0o755)
    if trust and "ANYPLUG_HOME" in os.environ:
        accepted_copies.accept(os.environ["ANYPLUG_HOME"], root, trusted=True)
    return os.path.dirname(root)


def event(tool: str = "bash", /, name: str = "PreToolUse", *, cwd: str = "", **args: Any) -> dict[str, Any]:
    """Give an event as OpenCode's plugin sends it."""
    made = {
        "hook_event_name": name,
        "session_id": "ses_1",
        "cwd": cwd or os.getcwd(),
        "tool": tool,
        "args": args,
        "call_id": "call_1",
    }
    return made | {"result": {"success": True, "output": "done"}} if name == "PostToolUse" else made


def bash(command: str, **more: Any) -> dict[str, Any]:
    """Give the event of a shell command."""
    return event("bash", command=command, **more)


async def ask(given: Any, harness: str = "opencode", engine: Engine | None = None, **options: Any) -> dict[str, Any]:
    """Ask about an event; give all that is answered."""
    home = Home(os.environ["ANYPLUG_HOME"])
    runs = SignalRuns(home)
    desk = EvalRequests(engine or Engine(home.path, look_s=0, run=runs))
    try:
        return await desk.answer({"harness": harness, "event": given, **options}, cwd=os.getcwd())
    finally:
        await anyio.to_thread.run_sync(runs.close)


async def answer(given: Any, harness: str = "opencode", **options: Any) -> Any:
    """Ask about an event; give the decision that is printed."""
    return (await ask(given, harness, **options))["decision"]


async def verdict(given: Any, **options: Any) -> str:
    """Ask about an event; give the word alone."""
    return (await answer(given, **options))["decision"]
