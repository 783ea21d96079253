"""Decisions of the policy engine, from an event to an answer, against plain Python that does the same by hand."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from anyplug import __version__
from anyplug.policy.engine import Engine
from anyplug.policy.evaluate_rule import EVALUATE
from anyplug.policy.evaluation import Inquiry
from anyplug.policy.paths import resolved
from anyplug.policy.shell import syntax
from anyplug.rego import cache
from anyplug.rego.parse.modules import parse_module
from bench.measure import Plan, Row, medians

SIZES = (3, 30, 300)
ROUTED = 3  # policies that an event concerns; the others are for another tool
AIM = 8.0
AIM_GROWTH = 1.5  # a decision must not notice how many policies are routed elsewhere
AIM_START = 2.5
AIM_ALONE = 5.0
AIM_OPA = 0.01  # at least a hundred times as fast
AT_ONCE = 8  # decisions that are timed together: one alone is too short for the clock
POLICY = """\
# METADATA
# scope: package
# custom:
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: ["{tool}"]
package cupcake.policies.opencode.p{number}

import rego.v1

deny contains decision if {{
	input.tool_name == "{tool}"
	command := lower(input.tool_input.command)
	contains(command, "rm -rf /data{number}")
	not startswith(command, "echo ")
	decision := {{"rule_id": "DATA_{number}", "reason": concat(" ", ["never remove", command]), "severity": "HIGH"}}
}}

deny contains decision if {{
	input.tool_name == "{tool}"
	some flag in ["--no-verify", "--force"]
	contains(input.tool_input.command, flag)
	is_git(input.tool_input.command)
	decision := {{"rule_id": "GIT_{number}", "reason": concat("", [flag, " is not allowed"]), "severity": "HIGH"}}
}}

ask contains decision if {{
	input.tool_name == "{tool}"
	some path in protected
	contains(input.tool_input.command, path)
	decision := {{"rule_id": "PATH_{number}", "reason": path, "severity": "LOW"}}
}}

protected := ["/etc/", "/usr/", "/srv{number}/"]

is_git(command) if startswith(command, "git ")

is_git(command) if contains(command, "; git ")
"""
COMMANDS = {"allow": "git status --short && ls -la", "deny": "git commit -m done --no-verify"}


def event(folder: str, command: str) -> dict[str, Any]:
    return {
        "hook_event_name": "PreToolUse",
        "session_id": "ses_0b5c7d1e",
        "cwd": folder,
        "tool": "bash",
        "args": {"command": command, "description": "as asked", "timeout": 120_000},
        "call_id": "call_1",
    }


def closure(number: int) -> Callable[[dict[str, Any]], list[tuple[str, dict[str, str]]]]:
    """One policy by hand."""
    protected = ["/etc/", "/usr/", f"/srv{number}/"]

    def is_git(command: str) -> bool:
        return command.startswith("git ") or "; git " in command

    def decide(given: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
        found: list[tuple[str, dict[str, str]]] = []
        if given.get("tool_name") != "Bash":
            return found
        command = given.get("tool_input", {}).get("command")
        if not isinstance(command, str):
            return found
        low = command.lower()
        if f"rm -rf /data{number}" in low and not low.startswith("echo "):
            reason = f"never remove {low}"
            found.append(("deny", {"rule_id": f"DATA_{number}", "reason": reason, "severity": "HIGH"}))
        for flag in ("--no-verify", "--force"):
            if flag in command and is_git(command):
                reason = f"{flag} is not allowed"
                found.append(("deny", {"rule_id": f"GIT_{number}", "reason": reason, "severity": "HIGH"}))
        for path in protected:
            if path in command:  # a loop is faster than a list of none
                found.append(("ask", {"rule_id": f"PATH_{number}", "reason": path, "severity": "LOW"}))  # noqa: PERF401
        return found

    return decide


def by_hand(closures: list[Callable[[dict[str, Any]], list[tuple[str, dict[str, str]]]]], given: dict[str, Any]) -> Any:
    """Decide with closures: what they find becomes one answer."""
    denied = [said for act in closures for verb, said in act(given) if verb == "deny"]
    if not denied:
        return {"decision": "allow"}
    if len(denied) == 1:
        return {"decision": "deny", "reason": denied[0]["reason"]}
    listed = "; ".join(f"[{said['rule_id']}] {said['reason']}" for said in denied)
    return {"decision": "deny", "reason": f"Multiple high-severity policy violations detected: {listed}"}


def prepared_by_hand(given: dict[str, Any]) -> dict[str, Any]:
    """Do to an event what every gate of this kind has to: names, blanks, paths."""
    command = syntax.normalised(given["args"]["command"])
    document = {**given, "tool_name": "Bash", "tool_input": {**given["args"], "command": command}}
    document["affected_parent_directories"] = [resolved(word, given["cwd"]) for word in syntax.path_words(command)]
    document["commands"] = [
        {"words": simple.words, "paths": [resolved(w, given["cwd"]) for w in simple.words[1:] if syntax.is_path(w)]}
        for simple in syntax.simple_commands(command)
    ]
    return document


def write(folder: str, size: int) -> None:
    policies = os.path.join(folder, ".cupcake", "policies", "opencode")
    system = os.path.join(folder, ".cupcake", "system")
    os.makedirs(policies)
    os.makedirs(system)
    with open(os.path.join(system, "evaluate.rego"), "w", encoding="utf-8") as file:
        file.write(EVALUATE)
    for number in range(size):
        tool = "Bash" if number < ROUTED else "Edit"
        with open(os.path.join(policies, f"p{number}.rego"), "w", encoding="utf-8") as file:
            file.write(POLICY.format(number=number, tool=tool))


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure decisions, loading, and the program."""
    found: list[Row] = []
    alone: float | None = None
    for size in SIZES:
        place = os.path.join(folder, f"p{size}")
        write(place, size)
        engine = Engine(os.path.join(folder, "home"))
        some = [closure(number) for number in range(ROUTED)]
        for name, command in COMMANDS.items():
            given = event(place, command)
            inquiry = engine.inquire("opencode", given)
            policies, document = inquiry.loaded.project, inquiry.event.document
            routed = policies.plan("PreToolUse", "Bash")
            assert inquiry.decided().answer == by_hand(some, document)
            decision, hand, whole, whole_hand = await medians(
                max(plan.calls // 10, 20),
                lambda p=policies, r=routed, d=document: _often(lambda: p.findings(r, d)),  # type: ignore[misc]
                lambda some=some, d=document: _often(lambda: by_hand(some, d)),  # type: ignore[misc]
                lambda e=engine, g=given: _often(lambda: e.inquire("opencode", g).decided()),  # type: ignore[misc]
                lambda some=some, g=given: _often(lambda: by_hand(some, prepared_by_hand(g))),  # type: ignore[misc]
            )
            alone = decision if alone is None else alone
            found += [
                _row(f"what {ROUTED} of {size} policies find: {name}", "closures by hand", decision, hand, AIM),
                _row(f"event to answer, {size} policies: {name}", "the same by hand", whole, whole_hand, AIM),
            ]
            if name == "allow" and size > ROUTED:
                found.append(_row(f"what they find, {size} loaded", f"{SIZES[0]} loaded", decision, alone, AIM_GROWTH))
    found += await _opa(os.path.join(folder, f"p{SIZES[0]}"), whole, plan)
    return [*found, *await _loading(os.path.join(folder, f"p{SIZES[-1]}"), plan), *await _starts(folder, plan)]


async def _opa(folder: str, decision: float, plan: Plan) -> list[Row]:
    """Compare with OPA's own program, where there is one."""
    program = shutil.which("opa")
    baseline = None
    if program is not None:
        given = os.path.join(folder, "input.json")
        with open(given, "w", encoding="utf-8") as file:
            json.dump(prepared_by_hand(event(folder, COMMANDS["deny"])), file)
        argv = [program, "eval", "-d", os.path.join(folder, ".cupcake"), "-i", given, "data.cupcake.system.evaluate"]
        (baseline,) = await medians(plan.starts, lambda: subprocess.run(argv, check=True, capture_output=True))
    return [
        Row(
            what=f"event to answer, {SIZES[-1]} policies: deny",
            against="opa eval",
            measured=decision / AT_ONCE,
            baseline=baseline,
            aim=AIM_OPA,
        )
    ]


async def _loading(folder: str, plan: Plan) -> list[Row]:
    given = event(folder, COMMANDS["allow"])

    def cold() -> Inquiry:
        parse_module.cache_clear()
        cache._kept.clear()  # noqa: SLF001 - as in a new process
        return Engine().inquire("opencode", given)

    read, again = await medians(max(plan.loads // 5, 3), cold, lambda: Engine().inquire("opencode", given))
    size = SIZES[-1]
    return [
        Row(what=f"load of {size} policies, compiled before", against="cold", measured=again, baseline=read),
    ]


async def _starts(folder: str, plan: Plan) -> list[Row]:
    """Measure the program as a client of a resident host, which here answers always the same."""
    home = os.path.join(folder, "resident")
    os.makedirs(home)
    path = os.path.join(home, "s")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    with open(os.path.join(home, "resident.json"), "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "socket": path, "version": __version__, "started": 0}, file)
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    anyplug = os.path.join(os.path.dirname(sys.executable), "anyplug")
    given = os.path.join(folder, "event.json")
    with open(given, "w", encoding="utf-8") as file:
        json.dump(event(os.path.join(folder, f"p{SIZES[1]}"), COMMANDS["allow"]), file)
    alone = os.path.join(folder, "home-alone")
    evaluated, without, nothing = await medians(
        plan.starts,
        lambda: _run(home, given, anyplug, "eval", "--harness", "opencode"),
        lambda: _run(alone, given, anyplug, "eval", "--harness", "opencode"),
        lambda: _run(home, given, sys.executable, "-c", "pass"),
    )
    server.close()
    return [
        Row(what="anyplug eval, resident host up", against="python -c pass", measured=evaluated, baseline=nothing,
            aim=AIM_START),
        Row(what=f"anyplug eval, {SIZES[1]} policies, no daemon", against="python -c pass", measured=without,
            baseline=nothing, aim=AIM_ALONE),
    ]  # fmt: skip


def _serve(server: socket.socket) -> None:
    answer = {"id": 1, "result": {"exit": 0, "decision": {"decision": "allow"}, "said": []}}
    while True:
        try:
            line, _ = server.accept()
        except OSError:
            return
        with line:
            received = b""
            while received.count(b"\n") < 2:
                received += line.recv(65536)
            line.sendall(b'{"attached": "policy-1"}\n' + json.dumps(answer).encode() + b"\n")


def _run(home: str, stdin: str, *argv: str) -> None:
    pid = os.posix_spawn(
        argv[0],
        argv,
        {**os.environ, "ANYPLUG_HOME": home},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
    )
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"{argv} ended with {os.waitstatus_to_exitcode(status)}"


def _row(what: str, against: str, measured: float, baseline: float, aim: float) -> Row:
    scale = 1000 / AT_ONCE
    return Row(what=what, against=against, measured=measured * scale, baseline=baseline * scale, unit="µs", aim=aim)


def _often(act: Callable[[], Any]) -> None:
    for _ in range(AT_ONCE):
        act()
