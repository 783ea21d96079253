"""Where we listen, under which names, with which certificate, and the token that everybody needs."""

import datetime as dt
import ipaddress
import os
import socket
import ssl
import stat
import subprocess
import sys

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from anyplug.frontends.console.browser_sessions import BrowserSessions
from anyplug.frontends.http.listener import Address, listen, listen_afresh, parse_address
from anyplug.frontends.http.rate_limits import REMEMBERED, Admission, Kind
from anyplug.frontends.http.token import read_token, renew_token
from anyplug.home.settings import Home, HttpSettings
from anyplug.model.errors import ConfigError, UsageError
from http_mcp import PATIENCE_S, Inner, read, serving


def has_ipv6() -> bool:
    """Whether there is a loopback of it: a machine can know it and have none."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


HAS_IPV6 = has_ipv6()
NAMED = ipaddress.ip_network("127.0.0.0/16")  # addresses of loopback that programs use


@pytest.fixture
def ours(home):
    return Home(str(home))


def make_certificate(folder, name="server", passphrase=None):
    """Write a key and a certificate for loopback, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    sealed = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)
    paths = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    for path, content in zip(paths, (certificate.public_bytes(serialization.Encoding.PEM), private), strict=True):
        with open(path, "wb") as file:
            file.write(content)
    return paths


# Addresses


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [("127.0.0.1:8000", "127.0.0.1", 8000), ("[::1]:0", "::1", 0), ("localhost:9", "localhost", 9)],
)
def test_an_address_is_a_host_and_a_port(given, host, port):
    assert parse_address(given) == Address(host, port)
    assert str(parse_address(given)) == given


@pytest.mark.parametrize(
    "given", ["", "8000", ":8000", "localhost", "::1:80", "localhost:99999", "http://a:1", "a:b", "a b:1"]
)
def test_anything_else_is_a_usage_error(given):
    with pytest.raises(UsageError) as error:
        parse_address(given)
    assert "127.0.0.1:8000" in error.value.hint


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_what_others_can_reach_needs_a_word_of_its_own(host):
    if host == "::" and not HAS_IPV6:
        pytest.skip("there is no IPv6 here")
    with pytest.raises(UsageError) as error:
        listen(Address(host, 0))
    assert "--expose" in error.value.hint


def test_without_encryption_others_get_a_warning_and_loopback_none(tmp_path):
    certificate, key = make_certificate(tmp_path)
    for host, files, warned in (
        ("0.0.0.0", {}, True),
        ("0.0.0.0", {"certificate": certificate, "key": key}, False),
        ("127.0.0.1", {}, False),
    ):
        listener = listen(Address(host, 0), expose=True, **files)
        listener.close()
        assert bool(listener.warnings) is warned


def test_a_name_that_leads_nowhere_is_a_usage_error():
    for host in ("nowhere.invalid", "203.0.113.7", "x" * 300):
        with pytest.raises(UsageError) as error:
            listen(Address(host, 0), expose=True)
        assert error.value.hint


def test_a_port_in_use_is_said_to_be():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as error:
            listen(Address("127.0.0.1", port))
        assert f"127.0.0.1:{port} is in use" in error.value.message
        assert "another port" in error.value.hint


def test_two_cannot_listen_at_the_same_place():
    first = listen(Address("localhost", 0))
    with pytest.raises(ConfigError):
        listen(Address("localhost", first.port))
    first.close()
    listen(Address("localhost", first.port)).close()


def test_port_0_takes_one_that_is_free_and_says_which():
    listener = listen(Address("127.0.0.1", 0))
    listener.close()
    assert listener.port > 0
    assert listener.url == f"http://127.0.0.1:{listener.port}"


def test_answers_do_not_wait_for_acknowledgements():
    listener = listen(Address("localhost", 0))
    listener.close()
    assert {each.proto for each in listener.sockets} == {socket.IPPROTO_TCP}  # by this asyncio knows what to set


@pytest.mark.skipif(not HAS_IPV6, reason="there is no IPv6 here")
def test_localhost_is_both_addresses_at_one_port():
    listener = listen(Address("localhost", 0))
    ports = {each.getsockname()[1] for each in listener.sockets}
    families = {each.family for each in listener.sockets}
    listener.close()
    assert ports == {listener.port}
    assert families == {socket.AF_INET, socket.AF_INET6}


@pytest.mark.claim("console-own-page")
@pytest.mark.skipif(not HAS_IPV6, reason="there is no IPv6 here")
@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "console.localhost"])
def test_a_name_that_browsers_look_for_at_two_addresses_is_not_served_at_one(name):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as thief:
        port = thief.getsockname()[1]
        with pytest.raises(ConfigError) as error:
            listen(Address(name, port))
        assert f"[::1]:{port} is in use" in error.value.message


@pytest.mark.claim("console-own-page")
@pytest.mark.skipif(not HAS_IPV6, reason="there is no IPv6 here")
@pytest.mark.claim("console-own-page")
def test_localhost_is_answered_where_both_addresses_are_listened_at():
    served = {"127.0.0.1": {"127.0.0.1"}, "::1": {"[::1]"}, "localhost": {"127.0.0.1", "[::1]", "localhost"}}
    for host, own in served.items():
        listener = listen(Address(host, 0))
        listener.close()
        names = {one for one in served["localhost"] if listener.is_ours(f"{one}:{listener.port}".encode())}
        assert names == own, host


@pytest.mark.claim("console-own-page")
def test_addresses_are_told_in_numbers():
    for name in ("localhost", "127.1", "console.localhost"):
        listener = listen(Address(name, 0))
        listener.close()
        assert listener.url == f"http://127.0.0.1:{listener.port}", name


@pytest.mark.claim("console-own-page")
def test_peoples_page_is_where_nobody_was_before():
    seen = set()
    for _ in range(3):
        listener = listen(Address("127.0.0.1", 0))
        listener.open_page()
        page = listener.page_url.removeprefix("http://").encode()
        assert page not in {*seen, str(listener.address).encode()}
        seen.add(page)
        host, _, port = page.decode().rpartition(":")
        socket.create_connection((host, int(port))).close()
        listener.close()
        assert not sys.platform.startswith("linux") or ipaddress.ip_address(host) not in NAMED
        assert listener.is_ours(page)
        assert listener.may_enter_at(page)
        assert not listener.may_enter_at(str(listener.address).encode())
    with socket.create_server(("0.0.0.0", 0)) as thief, pytest.raises(ConfigError):
        listen_afresh(thief.getsockname()[1])


def test_other_machines_and_certificates_have_the_page_at_the_named_address(tmp_path):
    certificate, key = make_certificate(tmp_path)
    for host, options in (("127.0.0.1", {"certificate": certificate, "key": key}), ("0.0.0.0", {"expose": True})):
        listener = listen(Address(host, 0), **options)
        listener.open_page()
        listener.close()
        assert listener.page_url == listener.url
        assert listener.may_enter_at(f"127.0.0.1:{listener.port}".encode())
        sessions = BrowserSessions(listener)
        cookie = sessions.open(sessions.link("a"), f"127.0.0.1:{listener.port}".encode()).cookie
        assert cookie.endswith("; Secure") is (host == "127.0.0.1"), "over TLS the cookie is sent nowhere else"


@pytest.mark.anyio
@pytest.mark.skipif(not HAS_IPV6, reason="there is no IPv6 here")
async def test_ipv6_is_served():
    async with serving(Inner(), host="::1") as up, await anyio.connect_tcp("::1", up.port) as stream:
        assert up.url == f"http://[::1]:{up.port}"
        await stream.send(up.request("GET", "/healthz", host=f"[::1]:{up.port}"))
        assert (await read(stream)).status == 200


def test_listening_everywhere_takes_addresses_but_no_names():
    listener = listen(Address("0.0.0.0", 0), expose=True)
    listener.close()
    port = listener.port
    for host in (f"192.0.2.9:{port}", f"[2001:db8::1]:{port}", f"localhost:{port}"):
        assert listener.is_ours(host.encode())
    for host in (f"evil.example:{port}", "192.0.2.9:1", "192.0.2.9", f"192.0.2.9.evil.example:{port}", ""):
        assert not listener.is_ours(host.encode())


# TLS


@pytest.mark.anyio
async def test_a_certificate_encrypts(tmp_path):
    certificate, key = make_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=certificate)
    async with serving(Inner(), certificate=certificate, key=key) as up:
        assert up.url.startswith("https://")
        with anyio.fail_after(PATIENCE_S):
            stream = await anyio.connect_tcp("127.0.0.1", up.port, ssl_context=trusting, tls_standard_compatible=False)
        async with stream:
            await stream.send(up.request("GET", "/healthz"))
            assert (await read(stream)).status == 200
        plain = await up.raw(up.request("GET", "/healthz"))
        assert plain.status == 0


def test_files_that_cannot_be_used_are_said_to_be_with_the_cure(tmp_path):
    certificate, key = make_certificate(tmp_path)
    _, other = make_certificate(tmp_path, "other")
    _, sealed = make_certificate(tmp_path, "sealed", b"a passphrase")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("hello")
    for files, message in (
        ((certificate, str(tmp_path / "none.key")), "cannot read"),
        ((str(nonsense), key), "PEM"),
        ((certificate, str(nonsense)), "PEM"),
        ((certificate, other), "does not belong to the certificate"),
        ((certificate, sealed), "passphrase"),
        ((certificate, str(tmp_path)), "cannot read"),
    ):
        with pytest.raises(ConfigError) as error:
            listen(Address("127.0.0.1", 0), certificate=files[0], key=files[1])
        assert message in error.value.message
        assert error.value.hint
    with pytest.raises(UsageError):
        listen(Address("127.0.0.1", 0), certificate=certificate)


# The token


def test_the_token_is_made_once_and_only_the_user_may_read_it(ours):
    token = read_token(ours)
    found = os.stat(ours.http_token)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert len(token.value) >= 43
    assert read_token(ours).value == token.value
    assert os.listdir(ours.path) == ["http-token"]


def test_a_new_token_replaces_the_old_one(ours):
    old = read_token(ours)
    new = renew_token(ours)
    assert new.value != old.value
    assert read_token(ours).value == new.value
    assert not new.is_carried_by(f"Bearer {old.value}".encode())
    assert stat.S_IMODE(os.stat(ours.http_token).st_mode) == 0o600


def test_a_token_that_others_may_read_is_not_used(ours):
    read_token(ours)
    os.chmod(ours.http_token, 0o640)
    with pytest.raises(ConfigError) as error:
        read_token(ours)
    assert "--new-token" in error.value.hint
    renew_token(ours)
    read_token(ours)


@pytest.mark.parametrize("content", ["", "\n", "short", "with space in the middle of it", "ä" * 40, "x" * 2000])
def test_a_file_that_holds_no_token_is_not_used(ours, content):
    with open(os.open(ours.http_token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(content)
    with pytest.raises(ConfigError):
        read_token(ours)


def test_a_link_in_the_tokens_place_is_not_followed(ours, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("a-token-that-somebody-else-chose\n")
    elsewhere.chmod(0o600)
    os.symlink(elsewhere, ours.http_token)
    with pytest.raises(ConfigError):
        read_token(ours)
    renew_token(ours)
    assert elsewhere.read_text().startswith("a-token-that")
    assert not os.path.islink(ours.http_token)


# Limits, with a clock of our own


def test_a_rate_allows_a_burst_then_a_steady_flow():
    now = [0.0]
    admission = Admission(HttpSettings(requests_per_s=10), lambda: now[0])
    assert [admission.enter("a", Kind.STREAM) for _ in range(20)] == [None] * 20
    refusal = admission.enter("a", Kind.STREAM)
    assert refusal is not None
    assert (refusal.status, refusal.retry_after_s) == (429, 1)
    now[0] += 0.101
    assert admission.enter("a", Kind.STREAM) is None
    assert admission.enter("a", Kind.STREAM) is not None


def test_clients_that_come_and_go_are_not_remembered_for_ever():
    now = [0.0]
    admission = Admission(HttpSettings(requests_per_s=10_000), lambda: now[0])
    for number in range(5 * REMEMBERED):
        now[0] += 0.01
        assert admission.enter(number, Kind.CALL) is None
        admission.leave(number, Kind.CALL)
    assert len(admission._buckets) <= REMEMBERED
    assert admission.calls == 0
    assert admission._calls == {}


@pytest.mark.parametrize("wrong", ["calls = 0", "grace_s = -1", "calls = 'many'", "tokens = 1", "origins = 'x'"])
def test_settings_that_make_no_sense_are_refused(settings, ours, wrong):
    settings(f"[http]\n{wrong}\n")
    with pytest.raises(ConfigError) as error:
        ours.read_settings()
    assert "http" in error.value.message


def test_nothing_of_it_is_imported_unless_it_is_used():
    code = (
        "import sys\n"
        "from anyplug.frontends.cli.parsing import command_parser\n"
        "from anyplug.frontends.cli.commands import COMMANDS\n"
        "import anyplug.host.host\n"
        "for name in COMMANDS: command_parser(name)\n"
        "heavy = {'uvicorn', 'starlette', 'h11', 'mcp', 'sse_starlette'}\n"
        "found = {name for name in sys.modules if name.split('.')[0] in heavy}\n"
        "found |= {name for name in sys.modules if name.startswith('anyplug.frontends.http')}\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
