"""A model server on loopback that says what a test wrote for it, in OpenAI's or Anthropic's streaming protocol."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CALLS = "calls"
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def say(*pieces: str, finish: str | None = "stop") -> dict[str, Any]:
    """Answer with a text, in these pieces."""
    return {"pieces": pieces, "finish": finish}


def call(*calls: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """Answer with calls of tools, all at once, after a text."""
    return {"pieces": (text,) if text else (), CALLS: calls, "finish": "tool_calls"}


def fail(status: int, message: str = "no", **headers: str) -> dict[str, Any]:
    """Answer with an error."""
    return {"status": status, "message": message, "headers": headers}


CUT = {"pieces": ("half of an ans",), "cut": True}
SILENT: dict[str, Any] = {"silent": True}  # never answers


class ModelServer:
    """The server: what it will answer, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.script: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []  # the requests' bodies
        self.keys: list[str] = []
        self.waiting = threading.Event()  # a silent answer was asked for
        self.over = threading.Event()

    @property
    def model(self) -> str:
        """The model as `--model` takes it."""
        return f"openai:scripted@{self.url}/v1"

    def said(self) -> str:
        """Everything that models were told, as JSON."""
        return json.dumps(self.asked)


@contextmanager
def model_server(*script: dict[str, Any]) -> Iterator[ModelServer]:
    """Serve inside the block; after its script the server says `ok`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            served.asked.append(body)
            served.keys.append(
                (self.headers.get("x-api-key") or self.headers.get("authorization", "")).removeprefix("Bearer ")
            )
            answer = served.script.pop(0) if served.script else say("ok")
            if answer.get("silent"):
                served.waiting.set()
                served.over.wait(30)
                self.close_connection = True
                return
            if "status" in answer:
                error = {"message": answer["message"], "type": "x", "code": answer.get("code")}
                _send(self, answer["status"], {"error": error}, answer["headers"])
                return
            if not body.get("stream"):
                _send(self, 200, _whole(self.path, answer))
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            chunks = _anthropic(answer) if self.path.endswith("/messages") else _openai(answer)
            for chunk in chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            if not answer.get("cut"):
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = ModelServer(f"http://127.0.0.1:{server.server_address[1]}")
    served.script = list(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        served.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _send(handler: BaseHTTPRequestHandler, status: int, message: Any, headers: Any = None) -> None:
    body = json.dumps(message).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    for name, value in (headers or {}).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def _whole(path: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Answer in one message: by Anthropic's protocol, OpenAI's Responses or its Chat Completions."""
    text, calls = "".join(answer["pieces"]), answer.get(CALLS, ())
    if path.endswith("/messages"):
        blocks: list[Any] = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": f"t{n}", "name": name, "input": a} for n, (name, a) in enumerate(calls)]
        about = {"id": "m1", "type": "message", "role": "assistant", "model": "scripted", "stop_sequence": None}
        usage = {"input_tokens": 100, "output_tokens": 10}
        return {**about, "content": blocks, "stop_reason": "tool_use" if calls else "end_turn", "usage": usage}
    texts = [given if isinstance(given, str) else json.dumps(given) for _, given in calls]
    if path.endswith("/responses"):
        said = {"type": "output_text", "text": text, "annotations": []}
        output: list[Any] = [
            {"type": "function_call", "id": f"f{n}", "call_id": f"c{n}", "name": name, "arguments": texts[n]}
            for n, (name, _) in enumerate(calls)
        ]
        message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [said]}
        output += [message] if text else []
        return {"id": "r1", "object": "response", "created_at": 1, "model": "scripted", "output": output,
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": texts[n]}}
        for n, (name, _) in enumerate(calls)
    ]
    reply = {"role": "assistant", "content": text or None, **({"tool_calls": made} if made else {})}
    choice = {"index": 0, "message": reply, "finish_reason": answer["finish"]}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice],
            "usage": USAGE}  # fmt: skip


def _openai(answer: dict[str, Any]) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        whole = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [choice]}
        return f"data: {json.dumps(whole | more)}\n\n".encode()

    yield chunk({"role": "assistant", "content": ""})
    for piece in answer["pieces"]:
        yield chunk({"content": piece})
    if answer.get("cut"):
        yield b'data: {"id": "c1", "choi'
        return
    for number, (name, arguments) in enumerate(answer.get(CALLS, ())):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        made = {"index": number, "id": f"call_{number}_{abs(hash(text))}", "type": "function"}
        yield chunk({"tool_calls": [made | {"function": {"name": name, "arguments": text[:3]}}]})
        yield chunk({"tool_calls": [{"index": number, "function": {"arguments": text[3:]}}]})
    yield chunk({}, answer["finish"])
    yield chunk({}, None, choices=[], usage=USAGE)
    yield b"data: [DONE]\n\n"


def _anthropic(answer: dict[str, Any]) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()

    usage = {"input_tokens": 100, "output_tokens": 1}
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "content": []}
    yield event("message_start", message=message | {"stop_reason": None, "stop_sequence": None, "usage": usage})
    blocks: Sequence[Any] = (*(["text"] if answer["pieces"] else []), *answer.get(CALLS, ()))
    for at, block in enumerate(blocks):
        if block == "text":
            yield event("content_block_start", index=at, content_block={"type": "text", "text": ""})
            for piece in answer["pieces"]:
                yield event("content_block_delta", index=at, delta={"type": "text_delta", "text": piece})
        else:
            name, arguments = block
            made = {"type": "tool_use", "id": f"t{at}", "name": name, "input": {}}
            yield event("content_block_start", index=at, content_block=made)
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            yield event("content_block_delta", index=at, delta=delta)
        yield event("content_block_stop", index=at)
    stop = "tool_use" if answer.get(CALLS) else "end_turn"
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 10})
    yield event("message_stop")
