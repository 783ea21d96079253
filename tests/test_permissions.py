"""The words of permissions: what they mean, what they do not, and what is wrong with those that people write."""

import pytest

from anyplug import permissions


@pytest.mark.parametrize(
    "written",
    ["network", "network:unix", "network:*:443", "network:443", "network:example.org", "network:example.org:443",
     "network:[::1]:80", "filesystem:read", "filesystem:read:~", "filesystem:read:~/notes", "filesystem:write:.",
     "filesystem:read:./notes", "filesystem:read:/a:b", "shell", "shell:exec:git", "env:A_TOKEN", "clipboard"],
)  # fmt: skip
def test_what_means_something_is_accepted(written):
    assert permissions.fault(written) == ("", "")


@pytest.mark.parametrize(
    ("written", "said", "cure"),
    [
        ("telepathy", "there is no permission 'telepathy'", "the known ones are"),
        ("network:", "there is no permission 'network:'", "the known ones are"),
        ("env", "there is no permission 'env'", "env:NAME"),
        ("network:*:0", "'0' in 'network:*:0' is no port", "from 1 to 65535"),
        ("network:*:65536", "is no port", "from 1 to 65535"),
        ("network:*:https", "'https' in 'network:*:https' is no port", "from 1 to 65535"),
        ("network:*", "names no port", "`network` for every port"),
        ("network:*:*", "is every port", "write `network`"),
        ("network:example.org:*", "is every port", "`network:example.org`"),
        ("clipboard:x", "'clipboard' has no scope", "write `clipboard`"),
        ("filesystem:read:~ada/notes", "another user's folder", "the whole path"),
        ("env:MY-TOKEN", "no name of an environment variable", "env:NAME"),
    ],
)
def test_what_means_nothing_is_refused_with_what_was_meant(written, said, cure):
    message, hint = permissions.fault(written)
    assert said in message
    assert cure in hint


def test_only_machines_by_name_cannot_be_held():
    by_host = ["network:example.org", "network:example.org:443", "network:[::1]:80", "network:10.0.0.1:22"]
    others = ["network", "network:unix", "network:*:443", "network:443", "filesystem:read:/x", "shell:exec:git"]
    assert [name for name in by_host + others if permissions.is_by_host(name)] == by_host


@pytest.mark.parametrize(
    ("permission", "said"),
    [
        ("network", "talk to other machines"),
        ("network:*:443", "port 443 of any machine"),
        ("network:unix", "programs on this machine"),
        ("network:example.org:443", "talk to example.org, port 443"),
        ("filesystem:read:~/notes", "read files on this machine: ~/notes"),
        ("telepathy", "unknown"),
    ],
)
def test_each_is_said_in_words(permission, said):
    assert said in permissions.describe(permission)


def test_what_a_name_promises_and_no_grant_gives_is_said():
    assert "opens nothing by itself" in permissions.really("clipboard")
    assert "notify-send" in permissions.really("notifications")
    assert "Docker" in permissions.really("network:unix")
    assert [name for name in ("network", "network:*:443", "filesystem:read", "env:X") if permissions.really(name)] == []
