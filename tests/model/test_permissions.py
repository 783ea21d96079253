"""The words of permissions: what they mean, what they do not, and what is wrong with those that people write."""

import pytest

from anyplug.model import permissions
from rows import each_row


@each_row(
    "written",
    ["network", "network:unix", "network:*:443", "network:443", "network:example.org", "network:example.org:443",
     "network:[::1]:80", "filesystem:read", "filesystem:read:~", "filesystem:read:~/notes", "filesystem:write:.",
     "filesystem:read:./notes", "filesystem:read:/a:b", "shell", "shell:exec:git", "env:A_TOKEN", "clipboard"],
)  # fmt: skip
def test_what_means_something_is_accepted(written):
    assert permissions.fault(written) == ("", "")


@each_row(
    ("written", "said", "cure"),
    [
        ("telepathy", "there is no permission 'telepathy'", "the known ones are"),
        ("network:", "there is no permission 'network:'", "the known ones are"),
        ("env", "there is no permission 'env'", "env:NAME"),
        ("network:*:0", "'0' in 'network:*:0' is not a port", "from 1 to 65535"),
        ("network:*:65536", "is not a port", "from 1 to 65535"),
        ("network:*:https", "'https' in 'network:*:https' is not a port", "from 1 to 65535"),
        ("network:*", "names no port", "`network` for every port"),
        ("network:*:*", "means every port", "write `network`"),
        ("network:example.org:*", "means every port", "`network:example.org`"),
        ("network:https://example.org", "is not a port", "from 1 to 65535"),
        ("network:*.example.org:443", "'*.example.org' in", "patterns are not supported"),
        ("network:::1", "not a host name or address", "`network:[2001:db8::1]:443`"),
        ("clipboard:x", "'clipboard' takes no scope", "write `clipboard`"),
        ("filesystem:read:~ada/notes", "another user's home folder", "the full path"),
        ("filesystem:read:/a\0b", "has a NUL character", "without"),
        ("env:MY-TOKEN", "not a valid name for an environment variable", "env:NAME"),
    ],
)
def test_what_means_nothing_is_refused_with_what_was_meant(written, said, cure):
    message, hint = permissions.fault(written)
    assert said in message
    assert cure in hint


def test_machines_are_told_from_everything_else():
    by_host = ["network:example.org", "network:example.org:443", "network:[::1]:80", "network:10.0.0.1:22"]
    others = ["network", "network:unix", "network:*:443", "network:443", "filesystem:read:/x", "shell:exec:git"]
    assert [name for name in by_host + others if permissions.is_by_host(name)] == by_host


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("example.org", "example.org"),
        ("Example.ORG.", "example.org"),
        ("_sip.a-b.example", "_sip.a-b.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_machine_has_one_spelling(written, host):
    assert permissions.host_name(written) == host


@each_row(
    "written",
    ["", ".", "a..b", "-a.b", "a b", "a/b", "a@b", "*.example.org", "127.1", "0x7f.0.0.1", "0x7f000001", "2130706433",
     "127.0.0.01", "0.0.0.0", "::", "fe80::1%eth0", "1.2.3.4.5", "a" * 64, "a." * 127 + "ab", "straße.example",
     "\uff11\uff12\uff17.0.0.1", "a\nb", "a\0"],
)  # fmt: skip
def test_what_is_no_machine_has_no_spelling(written):
    assert permissions.host_name(written) == ""


@pytest.mark.parametrize(
    ("permission", "where"),
    [
        ("network:Example.org:443", ("example.org", 443)),
        ("network:example.org", ("example.org", 0)),
        ("network:[::1]:80", ("::1", 80)),
        ("network:[::1]", ("::1", 0)),
        ("network:*:80", None),
        ("network:80", None),
        ("network:unix", None),
        ("network", None),
        ("network:a b:80", None),
        ("network:a:99999", None),
        ("filesystem:read:example.org", None),
    ],
)
def test_a_permission_names_a_machine_and_a_port(permission, where):
    assert permissions.destination(permission) == where


@pytest.mark.parametrize("host", ["example.org", "192.0.2.1", "2001:db8::1"])
@pytest.mark.parametrize("port", [0, 443])
def test_a_permission_for_a_machine_reads_as_it_was_written(host, port):
    assert permissions.destination(permissions.to(host, port)) == (host, port)


@pytest.mark.parametrize(
    ("permission", "said"),
    [
        ("network", "talk to other machines"),
        ("network:*:443", "port 443 of any machine"),
        ("network:unix", "programs on this machine"),
        ("network:example.org:443", "talk to example.org, port 443, through a proxy"),
        ("filesystem:read:~/notes", "read files on this machine: ~/notes"),
        ("telepathy", "unknown"),
    ],
)
def test_each_is_said_in_words(permission, said):
    assert said in permissions.describe(permission)


@pytest.mark.requirement("CYC-47")
def test_what_a_grant_gives_and_its_name_does_not_tell_is_said():
    assert "passwords included" in permissions.really("clipboard")
    assert "Docker" in permissions.really("network:unix")
    assert "HTTP_PROXY" in permissions.really("network:example.org:443")
    assert [name for name in ("network", "network:*:443", "filesystem:read", "env:X") if permissions.really(name)] == []


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("\u0430pple.com", "xn--pple-43d.com (\u0430pple.com: \u0430 is CYRILLIC SMALL LETTER A)"),
        ("xn--pple-43d.com:443", "xn--pple-43d.com (\u0430pple.com: \u0430 is CYRILLIC SMALL LETTER A), port 443"),
        ("\u0430\u0440\u0440\u04cf\u0435.com", "\u04cf is CYRILLIC SMALL LETTER PALOCHKA"),
        ("apple.com", "talk to apple.com, through"),
    ],
)
def test_letters_that_look_like_others_in_a_host_are_named(host, said):
    assert said in permissions.describe(f"network:{host}")


@pytest.mark.parametrize("known", permissions.WITH_SCOPE)
def test_a_colon_without_a_scope_is_no_permission(known):
    assert permissions.kind(f"{known}:") == ""
    assert permissions.tier((f"{known}:",)) == 2
    assert permissions.fault(f"{known}:")[0]
