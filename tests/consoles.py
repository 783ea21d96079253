"""A console for a test: a real daemon over HTTP, a person's browser session, and programs with the token."""

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import command_line
import daemons

PATIENCE_S = 30.0


class Said(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        code: str = self.json["error"]["code"]
        return code


class Console:
    """The server, as somebody with certain headers sees it."""

    def __init__(self, address: str, headers: dict[str, str]) -> None:
        self.address = address
        self.headers = headers

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Said:
        """Make one request; `path` is below /api/v1 unless it begins with //."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        try:
            sent = {**self.headers, **(headers or {})}
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            if body is not None and "content-type" not in sent:
                sent["content-type"] = "application/json"
            whole = path[1:] if path.startswith("//") else f"/api/v1{path}"
            connection.request(method, whole, content, sent)
            answer = connection.getresponse()
            return Said(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def begin(self, method: str, path: str, body: Any) -> http.client.HTTPConnection:
        """Make a request, and do not wait for the answer."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        connection.request(
            method, f"/api/v1{path}", json.dumps(body), {**self.headers, "content-type": "application/json"}
        )
        return connection

    def get(self, path: str) -> Any:
        """Read something that must be there."""
        said = self.ask("GET", path)
        assert said.status == 200, said
        return said.json

    def post(self, path: str, body: Any = None) -> Any:
        """Do something that must succeed."""
        said = self.ask("POST", path, {} if body is None else body)
        assert said.status in {200, 202, 204}, said
        return said.json if said.body else None

    @contextlib.contextmanager
    def events(self, last: str = "") -> Iterator["Events"]:
        """Follow the events inside the block."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        sent = {**self.headers, "accept": "text/event-stream", **({"last-event-id": last} if last else {})}
        connection.request("GET", "/api/v1/events", headers=sent)
        answer = connection.getresponse()
        try:
            assert answer.status == 200, answer.read()
            yield Events(answer)
        finally:
            answer.close()
            connection.close()


class Events:
    """A stream of server-sent events."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.last = ""

    def next(self) -> tuple[str, Any]:
        """Return the next event and its data."""
        name, data = "", ""
        while line := self._answer.readline().decode():
            key, _, value = line.rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                data = value
            elif key == "id":
                self.last = value
            elif not key and name:
                return name, json.loads(data)
        raise AssertionError("the stream ended")

    def until(self, wanted: str) -> Any:
        """Return the data of the next event of a kind."""
        while True:
            name, data = self.next()
            if name == wanted:
                return data


def link(**others: Any) -> str:
    """Return a one-time link, for the project in this folder or in `cwd`."""
    given: str = command_line.ok("ui", "--no-open", "--json", **others).json["link"]
    return given


def signed_in(**others: Any) -> Console:
    """Open the console as a person does; return it as their browser sees it."""
    whole = link(**others)
    address, _, path = whole.removeprefix("http://").partition("/")
    said = Console(address, {}).ask("GET", f"//{path}")
    assert said.status == 303, said
    cookie = said.headers["set-cookie"].partition(";")[0]
    key = said.headers["location"].removeprefix("/#page=")
    return Console(address, {"cookie": cookie, "sec-fetch-site": "same-origin", "x-anyplug-page": key})


def with_token() -> Console:
    """Return the same server as a program with the token sees it."""
    status = daemons.status()
    with open(os.path.join(command_line.home(), "http-token"), encoding="ascii") as file:
        token = file.read().strip()
    return Console(status["url"].removeprefix("http://"), {"authorization": f"Bearer {token}"})


@contextlib.contextmanager
def console(*options: str) -> Iterator[Console]:
    """Keep a daemon up that serves the console."""
    with daemons.resident("--http", "127.0.0.1:0", *options):
        yield signed_in()
