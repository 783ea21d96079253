"""The real OpenCode: one server without a screen, that serves any number of projects; the test is the person."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
PACKAGE = {"dependencies": {"@opencode-ai/plugin": "*"}}
LOCK = {"name": "x", "lockfileVersion": 3, "requires": True, "packages": {"": PACKAGE}}
PROGRAM = os.path.join(os.environ.get("ANYPLUG_CLIENTS", ""), "node_modules", ".bin", "opencode")
IS_HERE = bool(os.environ.get("ANYPLUG_CLIENTS")) and os.path.exists(PROGRAM)


def keep_from_installing(folder: Path) -> None:
    """Let OpenCode find what it would otherwise fetch: it compares names only."""
    (folder / "node_modules").mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps(PACKAGE))
    (folder / "package-lock.json").write_text(json.dumps(LOCK))


def environment(scratch: Path) -> dict[str, str]:
    """Keep the program away from the real user, and from the network."""
    places = {f"XDG_{name.upper()}_HOME": str(scratch / name) for name in ("config", "data", "cache", "state")}
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    keep_from_installing(scratch / "config" / "opencode")
    return {
        **os.environ,
        **places,
        **{f"OPENCODE_DISABLE_{switch}": "1" for switch in switches},
        "HOME": str(scratch),
        "ANYPLUG_HOME": str(scratch / "anyplug"),
        "PWD": str(scratch),
    }


def prepare(project: Path, model: str, url: str, **others: Any) -> None:
    """Let a project use the scripted model."""
    models = {model: {"name": "Scripted", "tool_call": True, "limit": {"context": 100000, "output": 4096}}}
    options = {"baseURL": url, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "options": options, "models": models}
    config = {
        "model": f"scripted/{model}",
        "small_model": f"scripted/{model}",
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
        "provider": {"scripted": provider},
        **others,
    }
    (project / "opencode.json").write_text(json.dumps(config))
    keep_from_installing(project / ".opencode")


class Server:
    """One running OpenCode."""

    def __init__(self, address: str, scratch: Path) -> None:
        self.address = address
        self.config = scratch / "config"  # what counts for all projects
        self.home = scratch / "anyplug"  # where it looks for a resident host
        self.home.mkdir()

    def ask(self, method: str, path: str, project: Path, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.address}{path}?directory={project}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read() or b"null")

    @contextmanager
    def listening(self, project: Path) -> Iterator[list[dict[str, Any]]]:
        """Give the events of a project, as a screen would hear them."""
        heard: list[dict[str, Any]] = []
        stream = urllib.request.urlopen(f"{self.address}/event?directory={project}", timeout=PATIENCE_S)

        def listen() -> None:
            try:
                heard.extend(json.loads(line[6:]) for line in stream if line.startswith(b"data: "))
            except (OSError, ValueError):
                pass  # it was closed

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield heard
        finally:
            stream.fp.raw._sock.shutdown(socket.SHUT_RDWR)  # a close alone does not wake a reader
            thread.join()
            stream.close()

    def begin(self, project: Path, prompt: str = "do it") -> "Conversation":
        return Conversation(self, project, prompt)

    def converse(self, project: Path, prompt: str = "do it") -> list[dict[str, Any]]:
        """Say something, wait until the model is done, and give the tools that it has called, in order."""
        conversation = self.begin(project, prompt)
        return conversation.end()


class Conversation:
    """One prompt and all that follows, while the test looks on."""

    def __init__(self, server: Server, project: Path, prompt: str) -> None:
        self.server, self.project = server, project
        self.session = server.ask("POST", "/session", project, {})["id"]
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._prompt, args=(prompt,))
        self._thread.start()

    def _prompt(self, prompt: str) -> None:
        body = {"parts": [{"type": "text", "text": prompt}]}
        try:
            self.server.ask("POST", f"/session/{self.session}/message", self.project, body)
        except OSError as error:
            self.failure = error

    def dialog(self) -> dict[str, Any]:
        """Wait for OpenCode's permission dialog."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if asked := self.server.ask("GET", "/permission", self.project):
                return asked[0]
            assert self._thread.is_alive(), "it ended without a question"
            time.sleep(0.05)
        raise AssertionError("nobody was asked")

    def reply(self, dialog: dict[str, Any], reply: str) -> None:
        self.server.ask("POST", f"/permission/{dialog['id']}/reply", self.project, {"reply": reply})

    def end(self) -> list[dict[str, Any]]:
        """Wait for the end; give the tools that were called, those of subagents too."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        sessions = [self.session]
        sessions += [child["id"] for child in self.server.ask("GET", f"/session/{self.session}/children", self.project)]
        called = []
        for session in sessions:
            for message in self.server.ask("GET", f"/session/{session}/message", self.project):
                called += [part for part in message["parts"] if part["type"] == "tool"]
        return called


@contextmanager
def serving(scratch: Path) -> Iterator[Server]:
    """Run OpenCode for as long as this is entered."""
    command = [PROGRAM, "serve", "--port", "0", "--hostname", "127.0.0.1"]
    process = subprocess.Popen(
        command,
        cwd=scratch,
        env=environment(scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)", line):
                yield Server(found[1], scratch)
                return
        raise AssertionError(f"it ended with {process.wait()}")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
