"""Who comes in over HTTP, and who does not: raw bytes on real sockets."""

import itertools
import json
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from anyplug.frontends.http.listener import Address, listen
from anyplug.frontends.http.middleware import Route
from anyplug.frontends.http.response import Reply
from http_mcp import NEWER, PATIENCE_S, TOKEN, Inner, read, serving

pytestmark = pytest.mark.anyio

LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
NUMBERS = itertools.count(100)  # a session may not use one twice
ORIGIN = "https://agents.example.org"


async def begin(up) -> str:
    """Open a session, and give its id."""
    answer = await up.post(INITIALIZE)
    assert answer.status == 200
    return answer.headers["mcp-session-id"]


async def call(up, tool: str, session: str):
    return await up.post(
        {"jsonrpc": "2.0", "id": next(NUMBERS), "method": "tools/call", "params": {"name": tool}},
        mcp_session_id=session,
    )


async def failing(scope, receive, send):
    raise RuntimeError("a secret of the house")


async def page(scope, receive, send):
    await Reply(send).whole(200, [(b"content-type", b"text/html"), (b"content-length", b"2")], b"hi")


# Names and origins


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}"])
async def test_our_own_names_are_answered(host):
    async with serving(Inner(), host="localhost") as up:
        assert (await up.raw(up.request("GET", "/healthz", host=host.format(port=up.port)))).status == 200


@pytest.mark.claim("console-own-page")
@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "[::1]"])
async def test_a_name_at_whose_other_address_we_do_not_listen_is_refused(name):
    async with serving(Inner()) as up:
        assert (await up.raw(up.request("GET", "/healthz", host=f"127.0.0.1:{up.port}"))).status == 200
        assert (await up.raw(up.request("GET", "/healthz", host=f"{name}:{up.port}"))).status == 421
        assert (await up.post(INITIALIZE, origin=f"http://{name.lower()}:{up.port}")).status == 403


@pytest.mark.parametrize("host", ["evil.example:{port}", "127.0.0.1:1", "127.0.0.1", "localhost.:{port}", "", None])
async def test_another_name_in_the_host_header_is_refused_whatever_the_token(host):
    async with serving(Inner()) as up:
        given = host.format(port=up.port) if host else host
        answer = await up.post(INITIALIZE, host=given)
        assert answer.status == (400 if host is None else 421)  # without one it is no HTTP/1.1
        assert "mcp-session-id" not in answer.headers


async def test_names_from_the_settings_are_answered():
    async with serving(Inner(), names=("box.example", "proxy.example:443")) as up:
        for host in (f"box.example:{up.port}", "box.example", "proxy.example:443"):
            assert (await up.raw(up.request("GET", "/healthz", host=host))).status == 200
        assert (await up.raw(up.request("GET", "/healthz", host="proxy.example"))).status == 421


@pytest.mark.parametrize("origin", [ORIGIN, "null", "http://localhost", "http://127.0.0.1:1", ""])
async def test_pages_of_other_origins_are_refused_and_see_nothing(origin):
    async with serving(Inner()) as up:
        for answer in (
            await up.post(INITIALIZE, origin=origin),
            await up.raw(up.request("OPTIONS", "/mcp", origin=origin, access_control_request_method="POST")),
        ):
            assert (answer.status, answer.error["code"]) == (403, "denied")
            assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_page_that_we_serve_ourselves_may_use_us():
    async with serving(Inner(), host="localhost") as up:
        assert (await up.post(INITIALIZE, origin=f"http://localhost:{up.port}")).status == 200
        assert (await up.post(INITIALIZE, origin=f"https://localhost:{up.port}")).status == 403


async def test_pages_of_an_allowed_origin_are_told_what_they_may_send():
    async with serving(Inner(), origins=(ORIGIN,)) as up:
        asked = up.request(
            "OPTIONS",
            "/mcp",
            authorization=None,
            origin=ORIGIN,
            access_control_request_method="POST",
            access_control_request_headers="Authorization, Mcp-Method, X-Other",
            access_control_request_private_network="true",
        )
        answer = await up.raw(asked)
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["access-control-allow-headers"] == "authorization, mcp-method"
        assert answer.headers["access-control-allow-private-network"] == "true"
        assert answer.headers["vary"] == "origin"
        for answer in (await up.post(INITIALIZE, origin=ORIGIN), await up.post(LIST, origin=ORIGIN, authorization="")):
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert "mcp-session-id" in answer.headers["access-control-expose-headers"]


# The token


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN.value}", TOKEN.value, f"Bearer {TOKEN.value}x"],
)
async def test_nothing_is_served_without_the_token(given):
    inner = Inner()
    async with serving(inner) as up:
        for path in ("/mcp", "/mcp/p1", "/mcp/nothing", f"/mcp?token={TOKEN.value}&access_token={TOKEN.value}"):
            answer = await up.post(INITIALIZE, path, authorization=given)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="anyplug"'
            assert answer.error["code"] == "denied"
            assert "http-token" in answer.error["hint"]
            assert answer.json["id"] is None


async def test_the_scheme_may_be_written_in_any_case():
    async with serving(Inner()) as up:
        assert (await up.post(INITIALIZE, authorization=f"bEARER {TOKEN.value}")).status == 200


async def test_health_needs_no_token_and_says_nothing_else():
    async with serving(Inner()) as up:
        answer = await up.raw(up.request("GET", "/healthz", authorization=None))
        assert (answer.status, answer.json) == (200, {"ok": True})


# Paths


@pytest.mark.parametrize("path", ["/", "/mc", "/mcpx", "/docs", "//mcp", "/.well-known/oauth-protected-resource", "*"])
async def test_an_unknown_path_is_said_to_be_one(path):
    async with serving(Inner()) as up:
        answer = await up.raw(up.request("GET", path, authorization=None))
        assert (answer.status, answer.error["code"]) == (404, "not_found")
        assert set(answer.json["error"]) == {"code", "message", "hint"}


@pytest.mark.parametrize("path", ["/mcp/none", "/mcp/a/b", "/mcp/%2e%2e", "/mcp/" + "x" * 65])
async def test_an_unknown_profile_is_said_to_be_one(path):
    async with serving(Inner()) as up:
        answer = await up.post(LIST, path)
        assert (answer.status, answer.error["code"]) == (404, "not_found")


async def test_more_can_be_served_beside_mcp():
    more = {"/page": Route(page, is_open=True), "/private": Route(page)}
    async with serving(Inner(), more=more) as up:
        assert (await up.raw(up.request("GET", "/page/below", authorization=None))).body == b"hi"
        assert (await up.raw(up.request("GET", "/private", authorization=None))).status == 401
        assert (await up.raw(up.request("GET", "/private"))).status == 200


# What is said, and what is not


async def test_an_error_of_our_own_says_nothing_of_the_inside(caplog):
    async with serving(Inner(), more={"/bad": Route(failing)}) as up:
        answer = await up.raw(up.request("GET", "/bad"))
        assert (answer.status, answer.error["code"]) == (500, "unavailable")
        assert b"secret" not in answer.body
        assert b"Traceback" not in answer.body
    assert "a secret of the house" in caplog.text


async def test_no_answer_names_the_server():
    async with serving(Inner()) as up:
        for answer in (await up.post(INITIALIZE), await up.post(LIST, "/"), await up.raw(b"nonsense\r\n\r\n")):
            assert "server" not in answer.headers
            assert b"uvicorn" not in answer.body.lower()


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", b"\x16\x03\x01"]
)
async def test_what_is_no_http_is_answered_in_our_words(sent):
    async with serving(Inner(), receive_s=0.2) as up:
        answer = await up.raw(sent)
        assert answer.status in (400, 408)
        assert answer.error["code"] in ("usage", "timed_out")


async def test_http_1_0_is_refused():
    async with serving(Inner()) as up:
        answer = await up.raw(f"GET /healthz HTTP/1.0\r\nhost: 127.0.0.1:{up.port}\r\n\r\n".encode())
        assert (answer.status, answer.error["code"]) == (400, "usage")


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"id": 1}', b"[" * 50_000, b"\xff", b'{"jsonrpc":"2.0","id":1,"method":5}']
)
@pytest.mark.parametrize("era", ["legacy", NEWER])
async def test_nonsense_in_a_body_is_a_clean_error(body, era):
    async with serving(Inner()) as up:
        version = NEWER if era == NEWER else None
        answer = await up.raw(up.request("POST", "/mcp", body, mcp_protocol_version=version))
        assert 400 <= answer.status < 500
        assert b"Traceback" not in answer.body


# How much


async def test_a_body_that_says_that_it_is_too_large_is_not_read():
    async with serving(Inner(), max_request_bytes=1000) as up:
        answer = await up.raw(up.request("POST", "/mcp", content_length="1001"))
        assert (answer.status, answer.error["code"]) == (413, "too_large")
        assert "1,000 bytes" in answer.json["error"]["message"]


async def test_a_body_that_does_not_say_its_size_is_bounded_too():
    async with serving(Inner(), max_request_bytes=100_000) as up:
        head = up.request("POST", "/mcp", transfer_encoding="chunked")
        chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
        assert (await up.raw(head, *[chunk] * 11)).status == 413
        whole = json.dumps(INITIALIZE).encode()
        last = b"%x\r\n%s\r\n0\r\n\r\n" % (len(whole), whole)
        assert (await up.raw(head, *[chunk] * 9, last)).status == 200


async def test_a_connection_goes_on_after_a_refusal():
    async with serving(Inner(), max_request_bytes=100) as up, await anyio.connect_tcp("127.0.0.1", up.port) as stream:
        await stream.send(up.request("POST", "/mcp", b" " * 5000))
        assert (await read(stream)).status == 413
        await stream.send(up.request("GET", "/healthz"))
        assert (await read(stream)).status == 200


async def test_headers_are_bounded():
    async with serving(Inner()) as up:
        answer = await up.raw(up.request("GET", "/healthz", x_large="x" * 1_000_000))
        assert answer.status in (0, 400)  # it may hang up before all has been sent


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\nhost:",
        b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\nauthorization: Bearer TOKEN\r\ncontent-length: 9\r\n\r\nx",
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_whoever_is_slow_on_purpose_is_sent_away(sent):
    async with serving(Inner(), receive_s=0.2) as up:
        prepared = sent.replace(b"PORT", str(up.port).encode()).replace(b"TOKEN", TOKEN.value.encode())
        answer = await up.raw(prepared)
        assert (answer.status, answer.error["code"]) == (408, "timed_out")


async def test_drops_of_bytes_win_no_time():
    async with serving(Inner(), receive_s=0.3) as up, await anyio.connect_tcp("127.0.0.1", up.port) as stream:

        async def drip() -> None:
            await stream.send(b"GET /healthz HTTP/1.1\r\n")
            while True:
                await stream.send(b"x: y\r\n")
                await anyio.sleep(0.05)

        with anyio.fail_after(PATIENCE_S), pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            await drip()


async def test_a_slow_body_behind_a_whole_request_is_not_forgotten():
    async with serving(Inner(), receive_s=1) as up, await anyio.connect_tcp("127.0.0.1", up.port) as stream:
        await stream.send(up.request("GET", "/healthz") + up.request("POST", "/mcp", content_length="9"))
        first = await read(stream)
        assert first.status == 200
        if b"408" not in first.body:
            assert (await read(stream)).status == 408


async def test_a_call_may_take_longer_than_a_request_may_take_to_arrive():
    inner = Inner()
    async with serving(inner, receive_s=1) as up, anyio.create_task_group() as group:
        session = await begin(up)
        statuses = []

        async def slow():
            statuses.append((await call(up, "slow", session)).status)

        group.start_soon(slow)
        await inner.begun.wait()
        await anyio.sleep(1.5)
        inner.go_on.set()
    assert statuses == [200]


async def test_an_answer_that_nobody_reads_ends_its_connection(monkeypatch):
    monkeypatch.setattr("anyplug.frontends.http.uvicorn_timeouts.STALL_S", 0.2)
    ended = anyio.Event()

    async def flood(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with anyio.create_task_group() as group:
            group.start_soon(pour, send)
            await receive()
            group.cancel_scope.cancel()
        ended.set()

    async def pour(send):
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await anyio.lowlevel.checkpoint()

    async with serving(Inner(), more={"/flood": Route(flood)}) as up:
        stream = await anyio.connect_tcp("127.0.0.1", up.port)
        await stream.send(up.request("GET", "/flood"))
        with anyio.fail_after(PATIENCE_S):
            await ended.wait()
        await stream.aclose()


async def test_connections_are_bounded(monkeypatch):
    monkeypatch.setattr("anyplug.frontends.http.uvicorn_timeouts.SPARE_CONNECTIONS", 1)
    async with serving(Inner(), calls=1, streams=1) as up:
        kept = [await anyio.connect_tcp("127.0.0.1", up.port) for _ in range(3)]
        for stream in kept:
            await stream.send(up.request("GET", "/healthz"))
            assert (await read(stream)).status == 200
        answer = await up.raw()
        assert (answer.status, answer.error["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        for stream in kept:
            await stream.aclose()
        with anyio.fail_after(PATIENCE_S):
            while (await up.raw(up.request("GET", "/healthz"))).status != 200:
                await anyio.sleep(0.01)


@pytest.mark.claim("http-half-open")
@pytest.mark.parametrize("begun", [b"", b"POST /mcp HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"])
async def test_hundreds_of_connections_without_the_token_keep_nobody_out(begun):
    async with serving(Inner()) as up, await anyio.connect_tcp("127.0.0.1", up.port) as known:
        request = up.request("POST", "/mcp", json.dumps(LIST).encode())
        await known.send(request)
        before = (await read(known)).status
        half_open = [await anyio.connect_tcp("127.0.0.1", up.port) for _ in range(600)]
        try:
            for stream in half_open:
                with suppress(anyio.BrokenResourceError):
                    await stream.send(begun or b"")
            session = await begin(up)
            assert (await up.post({**LIST, "id": 8}, mcp_session_id=session)).status == 200
            await known.send(request)  # a connection that has shown the token stays
            assert (await read(known)).status == before
        finally:
            for stream in half_open:
                await stream.aclose()


@pytest.mark.claim("http-one-token")
@pytest.mark.parametrize("first_is_right", [True, False])
async def test_two_tokens_of_which_one_is_right_are_refused(first_is_right):
    right, wrong = f"authorization: Bearer {TOKEN.value}", "authorization: Bearer another-token-of-enough-length"
    lines = [right, wrong] if first_is_right else [wrong, right]
    async with serving(Inner()) as up:
        head = "\r\n".join(["GET /mcp HTTP/1.1", f"host: 127.0.0.1:{up.port}", *lines, "", ""])
        answer = await up.raw(head.encode())
        assert (answer.status, answer.error["code"]) == (400, "usage")


async def test_a_refusal_for_load_says_when_to_come_back():
    async with serving(Inner(), requests_per_s=1) as up, await anyio.connect_tcp("127.0.0.1", up.port) as stream:
        for _ in range(10):
            await stream.send(up.request("POST", "/mcp", json.dumps(LIST).encode()))
            answer = await read(stream)
            if answer.status == 429:
                break
        assert (answer.status, answer.json["id"], answer.error["code"]) == (429, 7, "overloaded")
        assert 0 < answer.error["retry_after_s"] <= 1
        assert answer.headers["retry-after"] == "1"


async def test_many_connections_do_not_multiply_a_rate():
    async with serving(Inner(), requests_per_s=1) as up:
        answers = [await up.post(LIST) for _ in range(40)]
        refused = [answer for answer in answers if answer.status == 503]
        assert refused
        assert refused[0].error["code"] == "overloaded"


async def test_one_client_cannot_take_every_place():
    inner = Inner()
    async with serving(inner, calls_per_client=2) as up, anyio.create_task_group() as group:
        greedy, other = await begin(up), await begin(up)
        for _ in range(2):
            group.start_soon(call, up, "slow", greedy)
        with anyio.fail_after(PATIENCE_S):
            while inner.waiting < 2:
                await anyio.sleep(0.01)
        answer = await call(up, "echo", greedy)
        assert (answer.status, answer.error["code"]) == (429, "overloaded")
        assert (await call(up, "echo", other)).status == 200
        inner.go_on.set()


async def test_answers_and_notes_get_through_although_no_further_call_would():
    inner = Inner()
    async with serving(inner, calls=1) as up, anyio.create_task_group() as group:
        session = await begin(up)
        with anyio.fail_after(PATIENCE_S):
            while not inner.waiting:  # the place of `begin` may get free a moment after its answer
                group.start_soon(call, up, "slow", session)
                await anyio.sleep(0.05)
        assert (await up.post(LIST, mcp_session_id=session)).status == 503
        for word in (
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}},
            {"jsonrpc": "2.0", "id": 5, "result": {"action": "accept"}},
            {"jsonrpc": "2.0", "id": 5, "error": {"code": -1, "message": "no"}},
        ):
            assert (await up.post(word, mcp_session_id=session)).status == 202
        inner.go_on.set()


@pytest.mark.parametrize("era", ["legacy", NEWER])
async def test_streams_are_bounded_and_take_no_place_from_calls(era):
    async with serving(Inner(), streams=1, calls=1) as up:
        session = await begin(up)
        if era == "legacy":
            opening = up.request("GET", "/mcp", mcp_session_id=session)
            second = up.request("GET", "/mcp", mcp_session_id=await begin(up))
        else:
            meta = {
                "io.modelcontextprotocol/protocolVersion": NEWER,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
            message = {"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen", "params": params}
            opening = second = up.request(
                "POST",
                "/mcp",
                json.dumps(message).encode(),
                mcp_protocol_version=NEWER,
                mcp_method="subscriptions/listen",
            )
        async with await anyio.connect_tcp("127.0.0.1", up.port) as stream:
            await stream.send(opening)
            with anyio.fail_after(PATIENCE_S):
                assert b"200 OK" in await stream.receive()
            answer = await up.raw(second)
            assert (answer.status, answer.error["code"]) == (503, "overloaded")
            assert "streams" in answer.json["error"]["message"]
            assert (await call(up, "echo", session)).status == 200
        with anyio.fail_after(PATIENCE_S):
            status = b"503"
            while status == b"503":  # until it is seen to be gone
                async with await anyio.connect_tcp("127.0.0.1", up.port) as stream:
                    await stream.send(second)
                    status = (await stream.receive())[9:12]
        assert status == b"200"


async def test_sessions_are_bounded_with_a_typed_answer():
    async with serving(Inner(), sessions=2) as up:
        first = await begin(up)
        await begin(up)
        answer = await up.post(INITIALIZE)
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "overloaded", "1")
        assert "2 sessions" in answer.json["error"]["message"]
        assert (await call(up, "echo", first)).status == 200
        assert (await up.raw(up.request("DELETE", "/mcp", mcp_session_id=first))).status == 200
        await begin(up)


async def test_a_session_that_nobody_uses_expires():
    async with serving(Inner(), session_idle_s=0.1) as up:
        session = await begin(up)
        with anyio.fail_after(PATIENCE_S):
            while (await call(up, "echo", session)).status != 404:
                await anyio.sleep(0.3)


async def test_large_bodies_are_bounded_together(monkeypatch):
    monkeypatch.setattr("anyplug.frontends.http.request_bodies.IN_STEP", 1)
    async with serving(Inner(), max_request_bytes=1000) as up:
        async with await anyio.connect_tcp("127.0.0.1", up.port) as stream:
            await stream.send(up.request("POST", "/mcp", content_length="1000") + b" " * 900)
            await anyio.sleep(0.1)
            answer = await up.raw(up.request("POST", "/mcp", b" " * 200))
            assert (answer.status, answer.error["code"]) == (503, "overloaded")
        with anyio.fail_after(PATIENCE_S):
            while (await up.raw(up.request("POST", "/mcp", b" " * 200))).status == 503:  # until it is seen to be gone
                await anyio.sleep(0.01)


# Profiles, clients that leave, and the end


async def test_many_who_come_first_at_once_are_all_served():
    async with serving(Inner()) as up, anyio.create_task_group() as group:
        statuses = []

        async def first():
            statuses.append((await up.post(INITIALIZE)).status)

        for _ in range(10):
            group.start_soon(first)
    assert statuses == [200] * 10


async def test_another_server_in_a_profiles_place_begins_with_no_sessions():
    old, new = Inner("old"), Inner("new")
    async with serving(old) as up:
        session = await begin(up)
        up.servers[""] = new.server
        assert (await call(up, "echo", session)).status == 404
        assert (await call(up, "echo", await begin(up))).status == 200
        assert (old.ended, new.ended) == ([], ["echo"])
        del up.servers[""]
        answer = await up.post(INITIALIZE)
        assert (answer.status, answer.error["code"]) == (404, "not_found")


async def test_a_client_of_the_newer_era_that_leaves_ends_its_call():
    inner = Inner()
    meta = {"io.modelcontextprotocol/protocolVersion": NEWER, "io.modelcontextprotocol/clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"_meta": meta, "name": "slow"}}
    async with serving(inner, calls=1) as up:
        headers = {"mcp_protocol_version": NEWER, "mcp_method": "tools/call", "mcp_name": "slow"}
        async with await anyio.connect_tcp("127.0.0.1", up.port) as stream:
            await stream.send(up.request("POST", "/mcp", json.dumps(message).encode(), **headers))
            with anyio.fail_after(PATIENCE_S):
                await inner.begun.wait()
        with anyio.fail_after(PATIENCE_S):
            while inner.ended != ["slow"]:
                await anyio.sleep(0.01)
            while (await up.post(INITIALIZE)).status == 503:  # its place is free
                await anyio.sleep(0.01)


async def test_the_end_does_not_wait_for_streams_or_idle_connections():
    async with serving(Inner(), grace_s=10 * PATIENCE_S) as up:
        session = await begin(up)
        async with (
            await anyio.connect_tcp("127.0.0.1", up.port) as stream,
            await anyio.connect_tcp("127.0.0.1", up.port),
        ):
            await stream.send(up.request("GET", "/mcp", mcp_session_id=session))
            with anyio.fail_after(PATIENCE_S):
                assert b"200 OK" in await stream.receive()
                up.end()
                rest = b"".join([part async for part in stream])
                await up.has_ended.wait()
            assert rest.endswith(b"0\r\n\r\n")  # an end, and not a connection that broke


async def test_while_the_server_ends_calls_are_refused_and_answers_are_not():
    inner = Inner()
    async with (
        serving(inner, grace_s=PATIENCE_S) as up,
        await anyio.connect_tcp("127.0.0.1", up.port) as stream,
        anyio.create_task_group() as group,
    ):
        session = await begin(up)
        await stream.send(up.request("GET", "/healthz"))
        await read(stream)
        group.start_soon(call, up, "slow", session)
        with anyio.fail_after(PATIENCE_S):
            await inner.begun.wait()
        up.end()
        await anyio.sleep(0.05)
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await stream.send(up.request("POST", "/mcp", json.dumps(note).encode(), mcp_session_id=session))
        assert (await read(stream)).status == 202
        await stream.send(up.request("POST", "/mcp", json.dumps(LIST).encode(), mcp_session_id=session))
        answer = await read(stream)
        assert (answer.status, answer.error["code"], answer.json["id"]) == (503, "unavailable", 7)
        inner.go_on.set()


async def test_a_port_is_free_again_after_the_end():
    async with serving(Inner()) as up:
        port = up.port
    listen(Address("127.0.0.1", port)).close()
