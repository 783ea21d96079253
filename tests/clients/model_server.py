"""A model that says what a script tells it to, over the protocol that OpenAI's clients speak, on loopback.

A script is a list of turns. Each is used up by one request that offers tools:

    {"text": "done"}                                  the model says something, and is finished
    {"tool": "bash", "args": {"command": "ls"}}       the model calls a tool
    {"tools": [{"tool": …, "args": …}, …]}            it calls several at once

A value in the arguments may be a function: it is given the request, so that a turn can use what the model was told.
Requests without tools (titles of conversations) are answered apart. What came in is kept in `requests`.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ID = "chatcmpl-scripted"


class ModelServer:
    """Answers as long as it is entered."""

    def __init__(self, script: list[dict[str, Any]]) -> None:
        self._script = list(script)
        self._lock = threading.Lock()
        self._calls = 0
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
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def tool_results(self) -> list[str]:
        """What the model was told of its calls, in the last request that had any."""
        for request in reversed(self.requests):
            if told := [text_of(message) for message in request["messages"] if message["role"] == "tool"]:
                return told
        return []

    @property
    def offered(self) -> set[str]:
        """The names of the tools that the first request with tools offered."""
        return {tool["function"]["name"] for tool in self.requests[0]["tools"]}

    def chunks(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the answer to a request, in the pieces in which it is streamed."""
        with self._lock:
            if not request.get("tools"):
                yield from self._said("A title")
                return
            self.requests.append(request)
            turn = self._script.pop(0) if self._script else {"text": "the script is at its end"}
            if "text" in turn:
                yield from self._said(turn["text"])
                return
            calls = []
            for index, call in enumerate(turn.get("tools", [turn])):
                self._calls += 1
                args = {key: value(request) if callable(value) else value for key, value in call["args"].items()}
                function = {"name": call["tool"], "arguments": json.dumps(args)}
                calls.append({"index": index, "id": f"call_{self._calls}", "type": "function", "function": function})
            yield self._chunk({"role": "assistant", "content": None, "tool_calls": calls})
            yield self._chunk({}, "tool_calls")

    def _said(self, text: str) -> Iterator[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": text})
        yield self._chunk({}, "stop")

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        chunk: dict[str, Any] = {"id": ID, "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
        if finish:
            chunk["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return chunk

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for chunk in model.chunks(request):
                    self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.write(b"data: [DONE]\n\n")

            def log_message(self, *_: object) -> None:
                """Say nothing: the tests look at `requests`."""

        return Handler


def text_of(message: dict[str, Any]) -> str:
    """Give the text of one message, whichever of the protocol's two shapes it has."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
