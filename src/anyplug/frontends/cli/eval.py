"""`eval`: an agent's event on stdin, one decision on stdout. A replacement for `cupcake eval`.

It is started for every tool call of an agent, so its first step needs nothing but the interpreter: if the daemon is
running, the event goes to its socket and the answer is printed. Everything else is imported only without a daemon.
"""

from __future__ import annotations  # so that names used only in annotations are not imported

import json
import os
import sys

from anyplug import __version__
from anyplug.home import untrusted_files
from anyplug.home.location import RESIDENT, at_socket, home_path

TYPE_CHECKING = False  # as in the package itself
if TYPE_CHECKING:
    from typing import Any

    from anyplug.frontends.cli.cli_run import Session
    from anyplug.frontends.cli.parsing import Command, Parser

HARNESSES = ("opencode", "claude", "codex", "anyplug", "cursor", "factory")
VALUES = {  # options that take a value: the original's, before or after the command
    "--harness": "harness",
    "--policy-dir": "policy_dir",
    "--global-config": "global_config",
    "--log-level": "log_level",
    "--home": "home",
    "--trace": "",
    "--wasm-max-memory": "",
    "--debug-dir": "",
    "--opa-path": "",
}
FLAGS = {
    "--strict": "strict",
    "--debug": "debug",
    "--cache": "cache",
    "--trial": "trial",
    "--debug-files": "",
    "--debug-routing": "",
}
LARGEST_ANSWER = 64 << 20  # bytes
ATTACH_S = 2.0  # a running daemon answers in a millisecond
ANSWER_S = 120.0  # signals may run for a while
CHUNK = 65_536
FAILED, STOPPED = 1, 2  # Claude Code and Codex stop only for the latter


def quickly(words: list[str]) -> int | None:
    """Run `eval` from a command line; return None if this parser does not understand it."""
    options = _read(words)
    return None if options is None else _decide(options, _standard_input())


def _read(words: list[str]) -> dict[str, Any] | None:
    options: dict[str, Any] = {}
    at = 0
    named = False
    while at < len(words):
        word, equals, value = words[at].partition("=")
        if words[at] == "eval" and not named:
            named = True
        elif word in VALUES and (equals or at + 1 < len(words)):
            if not equals:
                at += 1
                value = words[at]
            if VALUES[word]:
                options[VALUES[word]] = value
        elif words[at] in FLAGS:
            options[FLAGS[words[at]]] = True
        else:
            return None
        at += 1
    return options if named and options.get("harness") in HARNESSES else None


def _standard_input() -> bytes:
    chunks = []
    while chunk := os.read(0, CHUNK):
        chunks.append(chunk)
    return b"".join(chunks)


def _decide(options: dict[str, Any], raw: bytes) -> int:
    request = {
        "harness": options["harness"],
        "text": raw.decode("utf-8", "surrogateescape"),
        "strict": bool(options.get("strict")),
        "cache": bool(options.get("cache")),
        "debug": bool(options.get("debug")) or options.get("log_level") in {"debug", "trace"},
        "policy_dir": options.get("policy_dir", ""),
        "global_config": options.get("global_config", ""),
    }
    home = home_path(options.get("home", ""))
    try:
        is_trial = bool(options.get("trial"))  # the daemon records who asks
        answer = (None if is_trial else _of_resident(home, request)) or _of_our_own(home, request, is_trial=is_trial)
    except Exception as error:  # noqa: BLE001 - whatever it is, the agent must take it for a refusal
        answer = {"exit": _failure(options["harness"]), "decision": None, "said": [f"{type(error).__name__}: {error}"]}
    if answer["said"]:
        from anyplug.model.untrusted_text import lines_for_people  # only needed for messages

        said = [line for text in answer["said"] for line in lines_for_people(text, "")]
        print("\n".join(said), file=sys.stderr)
    if answer["decision"] is not None:
        print(json.dumps(answer["decision"], separators=(",", ":"), sort_keys=True, ensure_ascii=False))
        sys.stdout.flush()
    return int(answer["exit"])


def _of_resident(home: str, request: dict[str, Any]) -> dict[str, Any] | None:
    """Ask the daemon; return None if there is none, or if it has no answer: then we decide ourselves."""
    try:
        place = json.loads(untrusted_files.read_linked(os.path.join(home, RESIDENT)))
        if place["version"] != __version__:
            return None
        import _socket  # the base of `socket`, without its 5 ms of import

        line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ImportError):
        return None
    try:
        line.settimeout(ATTACH_S)
        at_socket(line.connect, place["socket"])
        attach = {"attach": 1, "kind": "policy", "cwd": os.getcwd(), "environment": dict(os.environ)}
        for message in (attach, {"id": 1, "do": "eval", **request}):
            line.sendall(json.dumps(message).encode() + b"\n")
        received = _receive(line, 1)
        line.settimeout(ANSWER_S)
        welcome, answer = _receive(line, 2, received).split(b"\n")[:2]
        result = json.loads(answer)["result"] if "attached" in json.loads(welcome) else None
        return result if isinstance(result, dict) and {"exit", "decision", "said"} <= result.keys() else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    finally:
        line.close()


def _receive(line: Any, count: int, received: bytes = b"") -> bytes:
    """Read until there are this many lines. Raises LookupError if there are fewer."""
    while received.count(b"\n") < count:
        chunk = line.recv(CHUNK)
        if not chunk or len(received) > LARGEST_ANSWER:
            raise LookupError
        received += chunk
    return received


def _failure(harness: str) -> int:
    return STOPPED if harness in {"claude", "codex"} else FAILED


def _of_our_own(home: str, request: dict[str, Any], *, is_trial: bool) -> dict[str, Any]:
    """Decide in this process. A trial has no effect on the audit, and its parent is no agent."""
    from anyplug.frontends.cli import light_msgspec  # only needed without a daemon

    light_msgspec.load()
    # For the same reason: importing it takes a tenth of a second.
    from anyplug.frontends.policy_records import recorder
    from anyplug.home.settings import Home
    from anyplug.model.errors import AnyplugError
    from anyplug.policy import bound_agents
    from anyplug.policy.eval_requests import desk

    place = Home(home)
    try:
        settings = place.read_settings()
    except AnyplugError as error:
        said = [f"error: {error.message}", f"hint: {error.hint}"]
        return {"exit": _failure(request["harness"]), "decision": None, "said": said}
    ours = desk(home, settings.policy, None if is_trial else recorder(place, settings))
    opened = ours.open(
        request, cwd=os.getcwd(), heard=lambda: None if is_trial else bound_agents.note(home, os.getppid())
    )
    if isinstance(opened, dict):
        return opened
    if not opened.has_signals:
        return ours.close(request, opened, None)
    import anyio  # takes 60 ms to import, and only signals need it

    from anyplug.launch.signal_runner import SignalRuns  # for the same reason, with the whole sandbox

    opened.run = runs = SignalRuns(Home(home))
    try:
        return ours.close(request, opened, anyio.run(opened.ask_signals))
    finally:
        runs.close()


def _eval(parser: Parser) -> Command:
    parser.add_argument(
        "--harness",
        required=True,
        choices=HARNESSES,
        metavar="AGENT",
        help=f"the agent whose event it is: {', '.join(HARNESSES)}",
    )
    parser.add_argument("--policy-dir", default="", metavar="DIR", help="use the .cupcake in this folder or next to it")
    parser.add_argument(
        "--global-config", default="", metavar="DIR", help="use the policies in this folder for all projects"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if the decision is halt, deny or block")
    parser.add_argument("--cache", action="store_true", help="cache decisions that depend only on the event")
    parser.add_argument(
        "--trial", action="store_true", help="for scripts that test policies: decide, but record nothing"
    )
    parser.add_argument(
        "--log-level", default="", metavar="LEVEL", help="debug: print to stderr which policy decided what"
    )
    return run


COMMANDS = {"eval": _eval}


def run(session: Session) -> int:
    """Decide about the event on stdin."""
    given = session.options
    names = ("harness", "policy_dir", "global_config", "strict", "cache", "trial", "log_level", "debug")
    options = {name: getattr(given, name) for name in names}
    return _decide({**options, "home": given.home or ""}, _standard_input())
