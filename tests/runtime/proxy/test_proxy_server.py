"""The proxy itself, on this machine's loopback: what it carries, what it refuses, its bounds, and its end."""

import contextlib
import http.server
import os
import select
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import processes
from anyplug.runtime.proxy import requests
from anyplug.runtime.proxy.proxy_server import Bounds, Proxy, is_own, resolve
from random_examples import at_most

PATIENCE_S = 20.0
END = b"\r\n\r\n"


class Site(http.server.BaseHTTPRequestHandler):
    """Says what it was asked; keeps connections, unless it is told otherwise."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(f"{self.command} {self.path} for {self.headers['Host']}".encode())

    def do_POST(self):
        self.answer(self.body())

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size + 2)[:-2]
        self.rfile.readline()
        return found

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    """The port of a web site."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def listening():
    """A socket on which nobody answers before the test does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def proxy():
    """Make proxies, with grants."""
    with contextlib.ExitStack() as stack:

        def make(*granted, **others):
            made = Proxy(socket.create_server(("127.0.0.1", 0)), granted, owner="hello", **others)
            stack.callback(made.close)
            return made

        yield make


def connected(proxy):
    client = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
    client.settimeout(PATIENCE_S)
    return client


def everything(client):
    """All that comes until the other side ends."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(1 << 16):
            found += data
    return found


def asked(proxy, *lines, body=b""):
    with connected(proxy) as client:
        client.sendall("\r\n".join((*lines, "", "")).encode() + body)
        return everything(client)


def tunnel(proxy, host, port):
    client = connected(proxy)
    client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(END):
        data = client.recv(1)
        assert data, answer
        answer += data
    return client, answer


def is_over(client):
    """Whether the other side has ended or reset the connection; waits for it."""
    with contextlib.suppress(ConnectionResetError):
        return client.recv(1) == b""
    return True


# What is granted.


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost."])
def test_a_plain_request_reaches_a_granted_host(proxy, site, host):
    one = proxy(f"network:127.0.0.1:{site}", f"network:localhost:{site}")
    answer = asked(one, f"GET http://{host}:{site}/a?b=c HTTP/1.1", "Host: other.org")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(f"GET /a?b=c for {host.lower().rstrip('.')}:{site}".encode())


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("Content-Length: 200000", b"x" * 200000),
        ("Transfer-Encoding: chunked", b"6\r\nhello \r\n5\r\nworld\r\n0\r\nTrailer: x\r\n\r\n"),
    ],
)
def test_a_body_goes_along(proxy, site, field, body):
    answer = asked(proxy(f"network:127.0.0.1:{site}"), f"POST http://127.0.0.1:{site}/ HTTP/1.1", field, body=body)
    assert answer.partition(END)[2] == (b"hello world" if b"hello" in body else body)


def test_a_tunnel_carries_bytes_both_ways_and_each_end(proxy, listening):
    port = listening.getsockname()[1]
    client, answer = tunnel(proxy(f"network:127.0.0.1:{port}"), "127.0.0.1", port)
    peer, _ = listening.accept()
    with client, peer:
        assert answer == requests.OPENED
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert everything(peer) == b"question"
        large = os.urandom(1 << 20)
        peer.sendall(large)
        peer.close()
        assert everything(client) == large


def test_what_is_sent_with_the_head_of_a_tunnel_is_not_lost(proxy, listening):
    port = listening.getsockname()[1]
    with connected(proxy("network:127.0.0.1")) as client:
        client.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly".encode())
        peer, _ = listening.accept()
        with peer:
            assert peer.recv(100) == b"early"


def test_a_second_request_for_somebody_else_does_not_reach_the_first(proxy, listening):
    port = listening.getsockname()[1]
    with connected(proxy("network:127.0.0.1")) as client:
        client.sendall(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
        peer, _ = listening.accept()
        with peer:
            heard = peer.recv(1 << 16)
            assert b"Connection: close" in heard
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")  # and keeps the connection nevertheless
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
            client.sendall(b"GET http://other.org/ HTTP/1.1\r\nAuthorization: secret\r\n\r\n")
            assert everything(peer) == b""
        assert is_over(client)


def test_the_next_address_is_tried_if_one_does_not_answer(proxy, site):
    granted = (f"network:double.test:{site}", f"network:127.0.0.1:{site}", f"network:127.0.0.2:{site}")
    with socket.create_server(("127.0.0.2", 0)) as taken:
        assert taken.getsockname()[1] != site
    one = proxy(*granted, resolve=lambda *_: ["127.0.0.2", "127.0.0.1"])
    assert asked(one, f"GET http://double.test:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 200 ")


# What is not.


@pytest.mark.parametrize("target", ["CONNECT other.org:443", "GET http://other.org:443/"])
def test_other_hosts_are_refused_with_the_cure_and_told_of_once(proxy, target):
    told = []
    one = proxy("network:example.org:443", tell=told.append)
    for _ in range(3):
        answer = asked(one, f"{target} HTTP/1.1").decode()
        assert answer.startswith("HTTP/1.1 403 network:other.org:443 is not granted\r\n")
        assert "anyplug grant hello network:other.org:443" in answer
    assert [(asked.host, asked.port) for asked in told] == [("other.org", 443)]
    assert "anyplug grant hello network:other.org:443" in told[0].refusal


def test_other_ports_are_refused_and_all_are_granted_without_one(proxy, site):
    assert asked(proxy("network:127.0.0.1:1"), f"CONNECT 127.0.0.1:{site} HTTP/1.1").startswith(b"HTTP/1.1 403 ")
    client, answer = tunnel(proxy("network:127.0.0.1"), "127.0.0.1", site)
    client.close()
    assert answer == requests.OPENED


def test_a_refused_body_is_heard_to_its_end_so_that_the_refusal_arrives(proxy):
    body = b"x" * (4 << 20)
    answer = asked(proxy(), "POST http://a.org/ HTTP/1.1", f"Content-Length: {len(body)}", body=body)
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_names_that_were_not_granted_are_not_even_looked_up(proxy):
    looked_up = []

    def look(host, port):
        looked_up.append(host)
        return ["127.0.0.1"]

    one = proxy("network:granted.test:443", resolve=look)
    asked(one, "CONNECT secret.evil.test:443 HTTP/1.1")
    asked(one, "CONNECT granted.test:443 HTTP/1.1")
    assert looked_up == ["granted.test"]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "fe80::1", "::ffff:127.0.0.1"])
def test_a_name_that_leads_into_the_users_network_is_not_followed(proxy, site, address):
    told = []
    one = proxy(f"network:rebound.test:{site}", resolve=lambda *_: [address], tell=told.append)
    answer = asked(one, f"GET http://rebound.test:{site}/ HTTP/1.1").decode()
    assert answer.startswith("HTTP/1.1 403 rebound.test resolves to ")
    assert "anyplug grant hello " in answer
    assert told[0].refusal


def test_unless_the_address_is_granted_too(proxy, site):
    one = proxy(f"network:nas.test:{site}", f"network:127.0.0.1:{site}", resolve=lambda *_: ["127.0.0.1"])
    answer = asked(one, f"GET http://nas.test:{site}/ HTTP/1.1")
    assert answer.endswith(f"for nas.test:{site}".encode())


def test_this_machines_own_name_is_no_way_around(proxy, site):
    name = socket.gethostname()
    try:
        found = resolve(name, site)
    except OSError:
        pytest.skip("this machine does not know its own name")
    if "127.0.0.1" not in found:
        pytest.skip("this machine's own name does not lead to its loopback")
    assert b" 403 " in asked(proxy(f"network:{name}:{site}"), f"GET http://{name}:{site}/ HTTP/1.1")


def test_this_machines_own_addresses_are_known_by_the_way_to_them():
    assert is_own("127.0.0.1")
    assert not is_own("127.0.0.2")  # the kernel answers for it by another


@pytest.mark.parametrize(
    ("trouble", "status"), [(OSError(0, "no such name"), 502), (UnicodeError("label too long"), 502)]
)
def test_a_name_that_cannot_be_looked_up_is_said_to_be(proxy, trouble, status):
    def fail(host, port):
        raise trouble

    answer = asked(proxy("network:a.test:80", resolve=fail), "GET http://a.test/ HTTP/1.1")
    assert answer.startswith(f"HTTP/1.1 {status} a.test cannot be reached: ".encode())


@pytest.mark.parametrize("found", [[], ["0.0.0.0"], ["::"]])  # as files write that keep advertisements away
def test_a_name_that_leads_nowhere_is_said_to(proxy, found):
    answer = asked(proxy("network:a.test:80", resolve=lambda *_: found), "GET http://a.test/ HTTP/1.1")
    assert answer.startswith(b"HTTP/1.1 502 a.test cannot be reached: it has no address")


def test_an_address_is_granted_however_the_resolver_writes_it(proxy, site):
    one = proxy(f"network:nas.test:{site}", f"network:127.0.0.1:{site}", resolve=lambda *_: ["::ffff:127.0.0.1"])
    assert asked(one, f"GET http://nas.test:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 200 ")


def test_a_host_that_does_not_answer_is_said_to(proxy):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    answer = asked(proxy("network:127.0.0.1"), f"CONNECT 127.0.0.1:{port} HTTP/1.1")
    assert answer.startswith(b"HTTP/1.1 502 127.0.0.1 cannot be reached: ")


def test_a_resolver_that_hangs_costs_one_request_and_no_more(proxy, site):
    let_go = threading.Event()

    def look(host, port):
        if host == "slow.test":
            let_go.wait(PATIENCE_S)
        return ["127.0.0.1"]

    granted = (f"network:slow.test:{site}", f"network:fast.test:{site}", f"network:127.0.0.1:{site}")
    one = proxy(*granted, resolve=look, bounds=Bounds(connect_s=0.2))
    try:
        assert asked(one, f"GET http://slow.test:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 504 ")
        assert asked(one, f"GET http://fast.test:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 200 ")
        one.close()
        assert not one.is_alive
    finally:
        let_go.set()


# Bounds, and bad habits.


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + END, b"400"),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"400"),
        (b"x" * (1 << 20), b"431"),
        (b"\0" * (1 << 18) + END, b"431"),
    ],
)
def test_garbage_is_answered_and_harms_nobody(proxy, site, sent, status):
    one = proxy(f"network:127.0.0.1:{site}")
    with connected(one) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert everything(client).startswith(b"HTTP/1.1 " + status)
    assert asked(one, f"GET http://127.0.0.1:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"-5\r\nhello", b"0x5\r\nhello\r\n0\r\n\r\n", b"f" * 70000, b"5;a=b\r\nhello\r\n"]
)
def test_a_body_that_is_none_ends_its_own_connection(proxy, site, body):
    one = proxy(f"network:127.0.0.1:{site}")
    with connected(one) as client:
        client.sendall(f"POST http://127.0.0.1:{site}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body)
        assert b" 200 " not in everything(client)
    assert asked(one, f"GET http://127.0.0.1:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 200 ")


PIECES = st.sampled_from(
    [b"CONNECT 127.0.0.1:%(port)d HTTP/1.1", b"POST http://127.0.0.1:%(port)d/ HTTP/1.1", b"\r\n", b"\r\n\r\n",
     b"5\r\n", b"Transfer-Encoding: chunked", b"Content-Length: 5", b"hello",
     b"0\r\n\r\n", b"\0\xff", b"GET / HTTP/1.1\r\n\r\n"]
)  # fmt: skip


def test_whatever_programs_send_the_proxy_serves_the_next(site):
    with contextlib.closing(Proxy(socket.create_server(("127.0.0.1", 0)), ("network:127.0.0.1",), owner="x")) as one:

        @settings(max_examples=at_most(100), deadline=None)
        @given(st.lists(PIECES | st.binary(max_size=20).map(lambda data: data.replace(b"%", b"")), max_size=10))
        def send(pieces):
            with connected(one) as client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(b"".join(pieces) % {b"port": site})
                client.shutdown(socket.SHUT_WR)
                everything(client)
            assert one.is_alive

        send()
        assert asked(one, f"GET http://127.0.0.1:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 200 ")


def test_who_says_nothing_is_let_go(proxy):
    with connected(proxy(bounds=Bounds(head_s=0.1))) as client:
        client.sendall(b"CONNECT a.org:443 HTTP/1.1\r\n")
        assert is_over(client)


def test_a_tunnel_in_which_nothing_moves_is_ended(proxy, listening):
    port = listening.getsockname()[1]
    client, _ = tunnel(proxy("network:127.0.0.1", bounds=Bounds(idle_s=0.2)), "127.0.0.1", port)
    peer, _ = listening.accept()
    with client, peer:
        peer.settimeout(PATIENCE_S)
        assert is_over(client)
        assert is_over(peer)


def test_a_far_side_that_never_ends_is_let_go_when_the_program_has_gone(proxy, listening):
    port = listening.getsockname()[1]
    client, _ = tunnel(proxy("network:127.0.0.1", bounds=Bounds(linger_s=0.2)), "127.0.0.1", port)
    peer, _ = listening.accept()
    with peer:
        peer.settimeout(PATIENCE_S)
        client.close()
        assert is_over(peer)


def test_more_connections_than_allowed_wait_for_their_turn(proxy, site):
    one = proxy(f"network:127.0.0.1:{site}", bounds=Bounds(connections=4))
    held = [connected(one) for _ in range(60)]
    try:
        for client in held[:4]:
            client.sendall(b"x")
        last = held.pop()
        last.sendall(f"GET http://127.0.0.1:{site}/ HTTP/1.1\r\n\r\n".encode())
        last.setblocking(False)
        with pytest.raises(BlockingIOError):
            last.recv(1)
        last.settimeout(PATIENCE_S)
        for client in held:
            client.close()
        with last:
            assert everything(last).startswith(b"HTTP/1.1 200 ")
    finally:
        for client in held:
            client.close()


def test_a_program_that_does_not_read_fills_its_own_pipe_only(proxy, site, listening):
    port = listening.getsockname()[1]
    one = proxy("network:127.0.0.1")
    client, _ = tunnel(one, "127.0.0.1", port)
    peer, _ = listening.accept()
    with client, peer:
        peer.setblocking(False)
        sent = 0
        while processes.until(lambda: _can_send(peer), patience_s=0.5):
            sent += peer.send(b"x" * (1 << 16))
            assert sent < 64 << 20  # the kernel's buffers on both sides, and little of ours
        assert asked(one, f"GET http://127.0.0.1:{site}/ HTTP/1.1").startswith(b"HTTP/1.1 200 ")


def _can_send(peer):
    return bool(select.select([], [peer], [], 0)[1])


# The end.


def test_closing_ends_every_connection_and_the_thread(proxy, listening):
    port = listening.getsockname()[1]
    one = proxy("network:127.0.0.1")
    client, _ = tunnel(one, "127.0.0.1", port)
    idle = connected(one)
    peer, _ = listening.accept()
    with client, peer, idle:
        peer.settimeout(PATIENCE_S)
        one.close()
        assert not one.is_alive
        assert all(is_over(each) for each in (client, peer, idle))
    with pytest.raises(ConnectionRefusedError):
        connected(one)
    one.close()


def test_nothing_stays_open_after_many_connections(proxy, site):
    one = proxy(f"network:127.0.0.1:{site}")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        if number % 2:
            asked(one, f"GET http://127.0.0.1:{site}/ HTTP/1.1")
        else:
            asked(one, "CONNECT other.org:443 HTTP/1.1")
    assert processes.until(lambda: len(os.listdir("/proc/self/fd")) <= before)
