"""Decisions by policies in Rego, against plain Python closures that do the same checks by hand."""

from collections.abc import Callable
from typing import Any

from anyplug import rego
from anyplug.rego.parse.modules import parse_module
from bench.measure import Plan, Row, medians

SIZES = (3, 30, 300)
ROUTED = 3  # policies that an event concerns; the others are loaded and not asked
AIM = 8.0
AIM_GROWTH = 1.5  # a decision must not notice how many policies are loaded
AT_ONCE = 20  # decisions that are timed together: one alone is too short for the clock
POLICY = """
package gate.policies.p{0}

deny contains decision if {{
	input.tool_name == "Bash"
	command := lower(input.tool_input.command)
	contains(command, "rm -rf /data{0}")
	not startswith(command, "echo ")
	decision := {{"rule_id": "DATA_{0}", "reason": concat(" ", ["never remove", command]), "severity": "HIGH"}}
}}

deny contains decision if {{
	input.tool_name == "Bash"
	some flag in ["--no-verify", "--force"]
	contains(input.tool_input.command, flag)
	is_git(input.tool_input.command)
	decision := {{"rule_id": "GIT_{0}", "reason": concat("", [flag, " is not allowed"]), "severity": "HIGH"}}
}}

ask contains decision if {{
	input.tool_name in {{"Edit", "Write"}}
	some path in protected
	startswith(input.tool_input.file_path, path)
	decision := {{"rule_id": "PATH_{0}", "reason": path, "severity": "LOW"}}
}}

protected := ["/etc/", "/usr/", "/srv{0}/"]

is_git(command) if startswith(command, "git ")

is_git(command) if contains(command, "; git ")
"""


def event(command: str) -> dict[str, Any]:
    return {
        "hook_event_name": "PreToolUse",
        "session_id": "0b5c7d1e",
        "cwd": "/work/project",
        "tool_name": "Bash",
        "tool_input": {"command": command, "description": "as asked", "timeout": 120_000},
        "signals": {"branch": "main", "dirty": True},
    }


ALLOWED = event("git status --short && ls -la")
DENIED = event("git commit -m done --no-verify")


def closure(number: int) -> Callable[[dict[str, Any]], dict[str, list[dict[str, str]]]]:
    """One policy by hand."""
    protected = ["/etc/", "/usr/", f"/srv{number}/"]

    def is_git(command: str) -> bool:
        return command.startswith("git ") or "; git " in command

    def decide(given: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
        deny: list[dict[str, str]] = []
        ask: list[dict[str, str]] = []
        tool, arguments = given.get("tool_name"), given.get("tool_input", {})
        if tool == "Bash":
            command = arguments.get("command")
            if isinstance(command, str):
                low = command.lower()
                if f"rm -rf /data{number}" in low and not low.startswith("echo "):
                    deny.append({"rule_id": f"DATA_{number}", "reason": f"never remove {low}", "severity": "HIGH"})
                deny += [
                    {"rule_id": f"GIT_{number}", "reason": f"{flag} is not allowed", "severity": "HIGH"}
                    for flag in ("--no-verify", "--force")
                    if flag in command and is_git(command)
                ]
        if tool in {"Edit", "Write"}:
            place = arguments.get("file_path")
            ask += [
                {"rule_id": f"PATH_{number}", "reason": path, "severity": "LOW"}
                for path in protected
                if isinstance(place, str) and place.startswith(path)
            ]
        return {"deny": deny, "ask": ask}

    return decide


def paths(count: int) -> list[str]:
    return [f"data.gate.policies.p{number}.{verb}" for number in range(count) for verb in ("deny", "ask")]


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure decisions, and loading."""
    found: list[Row] = []
    alone: float | None = None
    for size in SIZES:
        modules = {f"p{number}.rego": POLICY.format(number) for number in range(size)}
        policies = rego.Policies(modules)
        for name, given in (("allow", ALLOWED), ("deny", DENIED)):
            routed = policies.prepare(*paths(ROUTED))
            every = policies.prepare(*paths(size))
            some, all_ = [closure(number) for number in range(ROUTED)], [closure(number) for number in range(size)]
            assert [value for act in some for value in act(given).values()] == routed.values(given)
            decision, by_hand, whole, whole_by_hand = await medians(
                max(plan.calls // 10, 20),
                lambda routed=routed, given=given: _often(routed.values, given),  # type: ignore[misc]
                lambda some=some, given=given: _often(lambda it: [act(it) for act in some], given),  # type: ignore[misc]
                lambda every=every, given=given: every.values(given),  # type: ignore[misc]
                lambda all_=all_, given=given: [act(given) for act in all_],  # type: ignore[misc]
            )
            if alone is None:
                alone = decision
            found.append(
                Row(
                    what=f"decision of {ROUTED} policies, {size} loaded: {name}",
                    against="closures by hand",
                    measured=decision / AT_ONCE * 1000,
                    baseline=by_hand / AT_ONCE * 1000,
                    unit="µs",
                    aim=AIM,
                )
            )
            found.append(
                Row(
                    what=f"decision of all {size} policies: {name}",
                    against="closures by hand",
                    measured=whole * 1000,
                    baseline=whole_by_hand * 1000,
                    unit="µs",
                    aim=AIM,
                )
            )
            if name == "allow" and size > ROUTED:
                found.append(
                    Row(
                        what=f"the same decision, {size} loaded",
                        against=f"{SIZES[0]} loaded",
                        measured=decision / AT_ONCE * 1000,
                        baseline=alone / AT_ONCE * 1000,
                        unit="µs",
                        aim=AIM_GROWTH,
                    )
                )
    return [*found, *await _loading(modules, plan)]


async def _loading(modules: dict[str, str], plan: Plan) -> list[Row]:
    edited = {**modules, "p0.rego": modules["p0.rego"] + "\nmore := 1\n"}

    def cold() -> None:
        parse_module.cache_clear()
        rego.Policies(modules)

    read, again, kept = await medians(
        max(plan.loads // 5, 3), cold, lambda: rego.Policies(edited), lambda: rego.compile(modules)
    )
    size = len(modules)
    return [
        Row(what=f"load of {size} policies, one edited", against="cold", measured=again, baseline=read),
        Row(what=f"load of {size} policies, from the cache", against="cold", measured=kept, baseline=read),
    ]


def _often(act: Callable[[Any], Any], given: Any) -> None:
    for _ in range(AT_ONCE):
        act(given)
