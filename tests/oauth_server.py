"""An MCP server on loopback that wants a sign-in, and the authorization server that grants it."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit


class Granting:
    """What the server has granted, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.valid: set[str] = set()  # access tokens
        self.challenges: dict[str, str] = {}  # by code
        self.grants: list[str] = []  # kinds of grants, in order
        self.seen: list[str] = []  # tokens that were shown
        self.paths: list[str] = []  # of all requests
        self.expires_in = 3600
        self.challenge = ""  # with which it refuses as not enough what it does not accept
        self.authorization_server = url
        self.refusal = b""  # of registrations
        self.changes: dict[str, Any] = {}  # to what the authorization server says of itself

    def tokens(self, kind: str) -> dict[str, Any]:
        self.grants.append(kind)
        token = f"access-{len(self.grants)}"
        self.valid = {token}
        return {
            "access_token": token, "token_type": "Bearer", "expires_in": self.expires_in, "refresh_token": "renew-me",
        }  # fmt: skip


@contextmanager
def oauth_server() -> Iterator[Granting]:  # noqa: C901 - two servers in one
    """Serve inside the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            granting.paths.append(self.path)
            if path.startswith("/.well-known/oauth-protected-resource"):
                self.answer(
                    {"resource": f"{granting.url}/mcp", "authorization_servers": [granting.authorization_server]}
                )
            elif path.startswith("/.well-known/oauth-authorization-server"):
                self.answer({
                    "issuer": granting.url,
                    "authorization_endpoint": f"{granting.url}/authorize",
                    "token_endpoint": f"{granting.url}/token",
                    "registration_endpoint": f"{granting.url}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    **granting.changes,
                })  # fmt: skip
            elif path == "/authorize":
                granting.challenges["the-code"] = query["code_challenge"][0]
                back = urlencode({"code": "the-code", "state": query["state"][0]})
                self.send_response(302)
                self.send_header("location", f"{query['redirect_uri'][0]}?{back}")
                self.end_headers()
            else:
                self.answer({}, 405)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            granting.paths.append(self.path)
            if self.path == "/register" and granting.refusal:
                self.send_response(400)
                self.send_header("content-length", str(len(granting.refusal)))
                self.end_headers()
                self.wfile.write(granting.refusal)
            elif self.path == "/register":
                self.answer({**json.loads(body), "client_id": "we"}, 201)
            elif self.path == "/token":
                given = {name: values[0] for name, values in parse_qs(body.decode()).items()}
                if given["grant_type"] == "authorization_code":
                    digest = hashlib.sha256(given["code_verifier"].encode()).digest()
                    proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                    assert granting.challenges[given["code"]] == proof
                self.answer(granting.tokens(given["grant_type"]))
            else:
                self.serve_mcp(json.loads(body))

        def serve_mcp(self, message: dict[str, Any]) -> None:
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            granting.seen.append(token)
            if token not in granting.valid:
                where = f'Bearer resource_metadata="{granting.url}/.well-known/oauth-protected-resource/mcp"'
                self.answer({}, 403 if granting.challenge else 401, {"www-authenticate": granting.challenge or where})
            elif "id" not in message:
                self.answer({}, 202)
            else:
                tool = {"name": "whoami", "inputSchema": {"type": "object"}}
                about = {"name": "o", "version": "1"}
                results = {
                    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about},
                    "tools/list": {"tools": [tool]},
                    "tools/call": {"content": [{"type": "text", "text": f"you showed {token}"}]},
                }
                self.answer({"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})})

        def answer(self, message: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
            body = json.dumps(message).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    granting = Granting(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield granting
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
