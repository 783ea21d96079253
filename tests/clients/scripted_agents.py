"""Models that say what a script tells them to, in the protocols of Claude Code and of Codex, on loopback.

A script is a list of shell commands. Each is used up by one request that offers tools; then the model says "done".
What came in is kept in `requests`.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Event = tuple[str, dict[str, Any]]


class ScriptedModel:
    """Answers as long as it is entered."""

    def __init__(self, script: list[str]) -> None:
        self._script = list(script)
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def told(self) -> str:
        """All that the model was told."""
        return json.dumps(self.requests[-1], ensure_ascii=False)

    def answer(self, path: str, request: dict[str, Any]) -> Iterator[Event]:
        """Give the events of an answer."""
        with self._lock:
            command = ""
            if request.get("tools"):
                self.requests.append(request)
                command = self._script.pop(0) if self._script else ""
            number = len(self.requests)
        yield from _messages(command, number) if "/messages" in path else _responses(command, number, request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for name, data in model.answer(self.path, request):
                    self.wfile.write(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"data": [], "models": []}')

            def log_message(self, *_: object) -> None:
                """Say nothing: the tests look at `requests`."""

        return Handler


def _messages(command: str, number: int) -> Iterator[Event]:
    """As Claude Code expects it."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    yield "message_start", {"message": {**message, "stop_reason": None, "usage": usage}}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": "done"}
    if command:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {}}
        delta = {
            "type": "input_json_delta",
            "partial_json": json.dumps({"command": command, "description": "as it was told"}),
        }
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "tool_use" if command else "end_turn"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}


def _responses(command: str, number: int, request: dict[str, Any]) -> Iterator[Event]:
    """As Codex expects it; the tool for commands has had several names."""
    response: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "output": []}
    yield "response.created", {"response": response}
    item: dict[str, Any] = {
        "type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "done", "annotations": []}],
    }  # fmt: skip
    if command:
        names = {tool.get("name", tool["type"]) for tool in request["tools"]}
        name, given = ("exec_command", {"cmd": command})
        if "exec_command" not in names:
            name, given = ("shell_command", {"command": command})
        item = {
            "type": "function_call", "id": f"f_{number}", "call_id": f"call_{number}", "status": "completed",
            "name": name, "arguments": json.dumps(given),
        }  # fmt: skip
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    usage = {
        "input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    yield "response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": usage}}
