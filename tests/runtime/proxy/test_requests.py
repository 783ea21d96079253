"""What a proxy understands of what it is asked, which hosts were granted, and which addresses it may go to."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyplug.model import permissions
from anyplug.model.permissions import Destination
from anyplug.runtime.proxy import allowed_addresses, requests
from anyplug.runtime.proxy.requests import Refusal, Request
from rows import each_row


def asked(*lines):
    return "\r\n".join((*lines, "", "")).encode()


# Requests.


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        ("example.org:443", "example.org", 443),
        ("EXAMPLE.org.:443", "example.org", 443),
        ("bücher.example:443", "xn--bcher-kva.example", 443),
        ("192.0.2.1:22", "192.0.2.1", 22),
        ("[2001:DB8::1]:443", "2001:db8::1", 443),
        ("[::ffff:127.0.0.1]:443", "127.0.0.1", 443),
    ],
)
def test_a_tunnel_has_a_host_and_a_port(target, host, port):
    request = requests.read(asked(f"CONNECT {target} HTTP/1.1", f"Host: {target}"))
    assert request == Request(host, port)
    assert request.is_tunnel


@pytest.mark.parametrize(
    ("target", "host", "port", "first", "name"),
    [
        ("http://example.org", "example.org", 80, "GET / HTTP/1.1", "example.org"),
        ("http://Example.org./a?b#c", "example.org", 80, "GET /a?b HTTP/1.1", "example.org"),
        ("HTTP://example.org:8080?b", "example.org", 8080, "GET /?b HTTP/1.1", "example.org:8080"),
        ("http://[::1]:8080/", "::1", 8080, "GET / HTTP/1.1", "[::1]:8080"),
    ],
)
def test_a_plain_request_goes_on_as_one_to_the_host_itself(target, host, port, first, name):
    request = requests.read(asked(f"GET {target} HTTP/1.1", "Host: somebody.else", "Accept: */*"))
    assert (request.host, request.port) == (host, port)
    assert request.head == asked(first, f"Host: {name}", "Accept: */*", "Connection: close")


def test_what_is_for_the_proxy_alone_does_not_go_on():
    request = requests.read(
        asked(
            "GET http://a.org/ HTTP/1.1",
            "Proxy-Authorization: Basic c2VjcmV0",
            "Proxy-Connection: keep-alive",
            "Connection: X-Mine, keep-alive",
            "X-Mine: 1",
            "X-Theirs: 2",
        )
    )
    assert request.head == asked("GET / HTTP/1.1", "Host: a.org", "X-Theirs: 2", "Connection: close")


def test_a_body_is_announced_as_it_is_carried():
    counted = requests.read(asked("POST http://a.org/ HTTP/1.1", "content-length: 5"))
    assert (counted.length, counted.is_chunked) == (5, False)
    assert counted.head == asked("POST / HTTP/1.1", "Host: a.org", "Content-Length: 5", "Connection: close")
    chunked = requests.read(asked("POST http://a.org/ HTTP/1.1", "Transfer-Encoding: Chunked"))
    assert (chunked.length, chunked.is_chunked) == (0, True)
    assert chunked.head == asked("POST / HTTP/1.1", "Host: a.org", "Transfer-Encoding: chunked", "Connection: close")


@each_row(
    "lines",
    [
        ("",),
        ("GET / HTTP/1.1", "Host: example.org"),
        ("GET https://example.org/ HTTP/1.1",),
        ("GET http:///x HTTP/1.1",),
        ("GET http://user:word@example.org/ HTTP/1.1",),
        ("GET http://example.org:99999/ HTTP/1.1",),
        ("GET http://127.1/ HTTP/1.1",),
        ("GET http://exa mple.org/ HTTP/1.1",),
        ("PRI * HTTP/2.0",),
        ("CONNECT example.org HTTP/1.1",),
        ("CONNECT example.org:0 HTTP/1.1",),
        ("CONNECT ::1:443 HTTP/1.1",),
        ("CONNECT 0.0.0.0:443 HTTP/1.1",),
        ("CONNECT http://example.org:443 HTTP/1.1",),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked"),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: 5", "Content-Length: 6"),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: -5"),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: " + "9" * 5000),
        ("POST http://a.org/ HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
        ("GET http://a.org/ HTTP/1.1", " folded: x"),
        ("GET http://a.org/ HTTP/1.1", "A: b\nHost: c"),
        ("GET http://a.org/ HTTP/1.1", "A: b\0"),
        ("\x16\x03\x01",),
    ],
)
def test_what_is_not_understood_is_refused(lines):
    with pytest.raises(Refusal) as raised:
        requests.read(asked(*lines))
    assert raised.value.status == 400


WORDS = st.sampled_from(
    [b"GET", b"CONNECT", b" ", b"http://", b"a.org", b":80", b"/", b" HTTP/1.1", b"\r\n", b"\n", b"Host: b", b"\xff",
     b"Content-Length: 3", b"Transfer-Encoding: chunked", b"[::1]", b"@", b"\0", "ü".encode(), b"#", b"?"]
)  # fmt: skip


@given(st.one_of(st.binary(max_size=200), st.lists(WORDS, max_size=12).map(b"".join)))
def test_whatever_comes_is_a_request_or_a_refusal_and_goes_on_as_one_head(sent):
    try:
        request = requests.read(sent + requests.END)
    except Refusal:
        return
    assert permissions.host_name(request.host) == request.host
    if not request.is_tunnel:
        assert request.head.count(b"\r\n\r\n") == 1
        assert request.head.endswith(b"\r\n\r\n")
        assert request.head.count(b"\n") == request.head.count(b"\r\n")
        assert request.head.lower().count(b"\r\nhost: ") == 1


def test_a_refusal_names_the_grant_and_the_command():
    answer = requests.not_granted("hello", "other.org", 443).answer().decode()
    head, body = answer.split("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403 network:other.org:443 is not granted\r\n")
    assert f"Content-Length: {len(body)}" in head
    assert "anyplug grant hello network:other.org:443" in body
    assert shlex.quote("network:[::1]:80") in requests.not_granted("hello", "::1", 80).cure


def test_a_refusal_stays_one_response_whatever_it_tells():
    answer = Refusal(502, "it said:\r\n\r\nHTTP/1.1 200 OK ü").answer()
    assert answer.startswith(b"HTTP/1.1 502 it said:????HTTP/1.1 200 OK ?\r\nContent-Type: ")


# The environment.


def test_a_program_is_told_of_the_proxy_and_not_of_the_users_own():
    users = {
        "PATH": "/bin",
        "https_proxy": "http://me:word@corp:3128",
        "npm_config_proxy": "http://corp",
        "NO_PROXY": "*",
    }
    told = requests.environment(users, 4711)
    assert told["PATH"] == "/bin"
    for name in ("HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        assert told[name] == "http://127.0.0.1:4711"
    assert (told["NO_PROXY"], told["no_proxy"], told["NODE_USE_ENV_PROXY"]) == ("", "", "1")
    assert not any("corp" in value for value in told.values())


# Grants and addresses.


def test_a_grant_is_for_one_port_or_for_all():
    granted = frozenset({Destination("a.org", 443), Destination("b.org", 0)})
    assert allowed_addresses.is_granted(granted, "a.org", 443)
    assert not allowed_addresses.is_granted(granted, "a.org", 80)
    assert allowed_addresses.is_granted(granted, "b.org", 1)
    assert not allowed_addresses.is_granted(granted, "c.a.org", 443)


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07::1", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"],
)
def test_public(address):
    assert allowed_addresses.is_public(address)


@each_row(
    "address",
    ["127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
     "192.0.2.2", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fd00::1", "ff02::1", "fec0::1",
     "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1",
     "2001:db8::1", "2001::1"],
)  # fmt: skip
def test_not_public(address):
    assert not allowed_addresses.is_public(address)


def usable(granted, host, found, own=()):
    where = frozenset(permissions.destination(name) for name in granted)
    return allowed_addresses.usable(where, host, 80, found, lambda address: address in own)


def test_a_name_is_followed_to_the_internet_only():
    assert usable(["network:a.org:80"], "a.org", ["8.8.8.8", "127.0.0.1", "fd00::1"]) == ["8.8.8.8"]
    assert usable(["network:a.org:80"], "a.org", ["10.0.0.1"]) == []
    assert usable(["network:a.org:80"], "a.org", ["8.8.8.8"], own=["8.8.8.8"]) == []
    assert usable(["network:a.localhost:80"], "a.localhost", ["127.0.0.1"]) == []


def test_or_to_an_address_that_is_granted_itself():
    assert usable(["network:nas:80", "network:10.0.0.1:80"], "nas", ["10.0.0.1", "10.0.0.2"]) == ["10.0.0.1"]
    assert usable(["network:nas:80", "network:10.0.0.1:81"], "nas", ["10.0.0.1"]) == []


def test_an_address_leads_to_itself_and_localhost_to_this_machine():
    assert usable(["network:10.0.0.1:80"], "10.0.0.1", ["10.0.0.1"]) == ["10.0.0.1"]
    assert usable(["network:localhost:80"], "localhost", ["::1", "127.0.0.1", "8.8.8.8"]) == ["::1", "127.0.0.1"]
