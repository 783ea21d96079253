"""Chats in the page: the same conversations as in the terminal, over HTTP."""

import contextlib
import http.client
from collections.abc import Iterator

import plugin_folders
import processes
from command_line import ok
from consoles import Console, Events, console, with_token


@contextlib.contextmanager
def following(page: Console, path: str) -> Iterator[Events]:
    """Follow a stream of events inside the block."""
    connection = http.client.HTTPConnection(page.address, timeout=30)
    connection.request("GET", f"/api/v1{path}", headers=page.headers)
    answer = connection.getresponse()
    try:
        assert answer.status == 200
        yield Events(answer)
    finally:
        answer.close()
        connection.close()


def test_a_conversation_is_opened_followed_and_found_again(root):
    ok("install", plugin_folders.cyclop(root, "hello"), "--yes")
    with console() as page:
        name = page.post("/conversations", {"model": "demo"})["id"]
        shown = page.get(f"/conversations/{name}")
        assert shown["events"][0]["type"] == "opened"
        with following(page, f"/conversations/{name}/events?after={shown['after']}") as events:
            assert page.post(f"/conversations/{name}/messages", {"text": "hello there"}) == {}
            assert events.until("user")["text"] == "hello there"
            assert events.until("turn_ended")["stop"] == "end"
        assert any(choice["name"] for choice in page.get(f"/conversations/{name}/commands")["items"])
        assert page.post(f"/conversations/{name}/take-back") == {"text": ""}
        assert [one["id"] for one in page.get("/conversations")["items"] if one["is_open"]] == [name]
        refused = with_token().ask("POST", f"/conversations/{name}/answer", {"question": "q", "word": "once"})
        assert refused.status == 403
        assert page.ask("DELETE", f"/conversations/{name}", {}).status == 204
        assert processes.until(lambda: page.ask("GET", f"/conversations/{name}").status == 404)
        again = page.post("/conversations", {"resume": name})["id"]
        assert again == name
        assert "hello there" in str(page.get(f"/conversations/{name}")["events"])
        unknown = page.ask("POST", "/conversations", {"resume": "nothing"})
        assert (unknown.status, unknown.code) == (404, "not_found")


def test_a_log_is_followed(root):
    script = '#!/bin/sh\ncat >/dev/null\necho careful >&2\necho \'{"result": "done"}\'\n'
    ok("install", plugin_folders.cyclop(root, "noisy", script), "--yes")
    with console() as page, following(page, "/plugins/noisy/logs/follow") as events:
        assert events.next()[0] == "hello"
        page.post("/tools/noisy/call")
        assert any("careful" in line for line in events.until("log")["lines"])
