"""Error answers: a status, and JSON with our code and a hint.

    {"error": {"code": "not_found", "message": "...", "hint": "..."}}

Where the protocol is JSON-RPC, clients show people only JSON-RPC errors, whatever the status:

    {"jsonrpc": "2.0", "id": 7, "error": {"code": -32050, "message": "...", "data": {"code": "overloaded", ...}}}
"""

import math
from typing import Any

import msgspec

INVALID_REQUEST = -32600  # JSON-RPC's own
RPC_ERROR = -32050  # from JSON-RPC's range for servers; MCP itself uses -32000, -32001 and some from -32020
LEAST_WAIT_S = 1  # `Retry-After` has whole seconds, and 0 would invite a loop
NULL = msgspec.Raw(b"null")

Headers = list[tuple[bytes, bytes]]


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is refused."""

    status: int
    code: str
    message: str
    hint: str
    retry_after_s: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    rpc_code: int = RPC_ERROR


NOT_OURS = Refusal(
    421,
    "denied",
    "the name in the `Host` header is not one of this server's",
    "use the address that `anyplug serve` printed, or list the name under `hosts` in [http] of settings.toml",
)
FOREIGN = Refusal(
    403,
    "denied",
    "pages of this origin may not use this server",
    "list the origin under `origins` in [http] of settings.toml if you trust every page there",
)
NO_WORKERS = Refusal(
    403,
    "denied",
    "nothing here is a service worker",
    "a service worker could read and answer what other pages of its origin ask",
)
NO_TOKEN = Refusal(
    401,
    "denied",
    "the request has no token, or a wrong one",
    "send `Authorization: Bearer TOKEN`; the token is in `http-token` in the home folder, and is never read from a URL",
    headers=((b"www-authenticate", b'Bearer realm="anyplug"'),),
)
NO_ID = Refusal(
    400,
    "usage",
    "the id of a JSON-RPC request is a text or a whole number",
    "check what the client sends; a notification has no id",
    rpc_code=INVALID_REQUEST,
)
NOTHING_HERE = Refusal(404, "not_found", "there is nothing at this path", "tools are at /mcp and /mcp/PROFILE")
ENDING = Refusal(
    503,
    "unavailable",
    ("the server is shutting down"),
    "connect again when it is running",
    headers=((b"connection", b"close"),),
)
FAILED = Refusal(500, "unavailable", "the server had an internal error", "`anyplug serve` printed the error")
MALFORMED = Refusal(400, "usage", "this is not an HTTP/1.1 request", "check what the client sends")
TWICE = Refusal(
    400,
    "usage",
    "a header that must be unique occurs twice",
    "send each of `Authorization`, `Host`, `Origin`, `Content-Length` and the MCP headers once",
)
TOO_SLOW = Refusal(408, "timed_out", "the request took too long to arrive", "send it again, faster")


def too_large(limit: int) -> Refusal:
    """Refuse a request that is too large."""
    return Refusal(
        413,
        "too_large",
        f"the request is larger than {limit:,} bytes",
        "send less, or raise `max_request_bytes` in [http] of settings.toml",
    )


def overloaded(status: int, message: str, wait_s: float) -> Refusal:
    """Refuse a request because of the load, and tell when to retry: everywhere the same whole seconds."""
    seconds = max(LEAST_WAIT_S, math.ceil(wait_s))
    return Refusal(status, "overloaded", message, f"try again in {seconds} s", retry_after_s=seconds)


def render(refusal: Refusal, request_id: msgspec.Raw | None = None) -> tuple[Headers, bytes]:
    """Return headers and body; with a request's id, or NULL, as a JSON-RPC error."""
    facts: dict[str, Any] = {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}
    headers = [*refusal.headers]
    if refusal.retry_after_s is not None:
        facts["retry_after_s"] = refusal.retry_after_s
        headers.append((b"retry-after", b"%d" % refusal.retry_after_s))
    answer: dict[str, Any] = {"error": facts}
    if request_id is not None:
        del facts["message"]
        error = {"code": refusal.rpc_code, "message": f"{refusal.message} ({refusal.hint})", "data": facts}
        answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
    return json_headers(body := msgspec.json.encode(answer)) + headers, body


def json_headers(body: bytes) -> Headers:
    """Return the headers of a JSON answer."""
    return [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
