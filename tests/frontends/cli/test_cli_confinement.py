"""What `show`, `approve`, `grant` and `ungrant` say about what holds a plugin."""

import os

import pytest

import command_line
import plugin_folders
import zot_folders

HELD = {"state", "off_by", "layers", "refused", "landlock", "shortfalls", "gaps", "notes", "limits", "protected"}


def test_show_says_what_holds_a_plugin_and_how_much_it_may_use():
    plugin_folders.cyclop("plugins", "hello", permissions=["filesystem:read:~/notes"])
    shown = command_line.ok("show", "hello", "--json").json["confinement"]
    assert set(shown) == HELD
    assert (shown["state"], shown["shortfalls"]) == ("confined", [])
    assert {"landlock", "seccomp", "limits"} <= set(shown["layers"])
    text = command_line.ok("show", "hello").out
    assert "confined  yes, by " in text
    assert "limits    memory 4 GiB, 512 processes, 4096 open files, CPU 600 s" in text


def test_show_names_no_limit_of_cpu_for_what_stays_up():
    zot_folders.extension("plugins", "steady")
    assert "cpu_s" not in command_line.ok("show", "steady", "--json").json["confinement"]["limits"]
    assert "4096 open files, file size 2 GiB" in command_line.ok("show", "steady").out


def test_show_has_the_limits_that_the_person_set(settings):
    settings("[plugins.hello.limits]\nmemory = 104857600\n")
    plugin_folders.cyclop("plugins", "hello")
    assert "memory 100 MiB" in command_line.ok("show", "hello").out


def test_show_says_what_a_grant_really_opens():
    plugin_folders.cyclop("plugins", "hello")
    command_line.ok("approve", "hello", "--yes", "--grant", "clipboard", "--grant", "network:unix")
    text = command_line.ok("show", "hello").out
    assert "opens     clipboard lets it read whatever you copy" in text
    assert "network:unix reaches every program that listens on this machine" in text


def test_show_says_that_it_does_not_run_here_and_what_would_help():
    plugin_folders.cyclop("plugins", "hello", permissions=["network:example.org:443", "network:*:80"])
    command_line.ok("approve", "hello", "--yes")
    shown = command_line.ok("show", "hello", "--json").json["confinement"]
    assert shown["state"] == "refused"
    assert shown["shortfalls"][0]["what"] == "network:example.org:443"
    assert "it does not run here" in command_line.ok("show", "hello").out
    command_line.ok("approve", "hello", "--yes", "--allow-unconfined")
    assert command_line.ok("show", "hello", "--json").json["confinement"]["state"] == "partly"
    assert "only in part" in command_line.ok("show", "hello").out


def test_show_and_approve_say_that_it_is_switched_off_and_by_whom(off_by):
    plugin_folders.cyclop("plugins", "hello")
    assert f"{off_by} turns the sandbox off" in command_line.ok("approve", "hello", "--yes").err
    assert f"no: {off_by} turns the sandbox off" in command_line.ok("show", "hello").out
    assert command_line.ok("show", "hello", "--json").json["confinement"]["state"] == "off"


def test_show_names_the_gaps_where_namespaces_are_switched_off(settings):
    settings("namespaces = false\n")
    plugin_folders.cyclop("plugins", "hello")
    shown = command_line.ok("show", "hello", "--json").json["confinement"]
    assert "mounts" not in shown["layers"]
    assert "left open  it can change modes" in command_line.ok("show", "hello").out.replace("  left", "left")
    assert shown["state"] == "confined"


def test_a_broken_plugin_is_held_by_nothing_because_it_does_not_run():
    plugin_folders.cyclop("plugins", "hello", tools=[])
    assert command_line.ok("show", "hello", "--json").json["confinement"] is None


def test_a_person_is_warned_of_what_cannot_be_held_before_they_approve_it():
    plugin_folders.cyclop("plugins", "hello", permissions=["network:example.org:443", "network:*:80", "notifications"])
    seen = command_line.at_terminal("approve", "hello", answers=[("Approve it?", "n")]).seen
    before = seen[: seen.index("Approve it?")]
    assert "network:example.org:443: talk to example.org, port 443" in before
    assert "warning: nothing enforces network:example.org:443: the kernel knows ports but not hosts" in before
    assert "grant `network:*:443` (that port of any machine) or `network`" in before
    assert "warning: it will not run here; --allow-unconfined lets it" in before


def test_a_person_is_told_how_hosts_are_held():
    plugin_folders.cyclop("plugins", "hello", permissions=["network:example.org:443"])
    approved = command_line.ok("approve", "hello", "--yes").err
    assert "network:example.org:443: talk to example.org, port 443, through a proxy" in approved
    assert "note: network:example.org:443 is enforced by a proxy: programs must use HTTP_PROXY" in approved
    shown = command_line.ok("show", "hello").out
    assert "opens     network:example.org:443 is enforced by a proxy" in shown
    assert "seccomp, broker, proxy\n" in shown
    assert command_line.ok("show", "hello", "--json").json["confinement"]["state"] == "confined"


def test_without_namespaces_hosts_are_not_held_and_show_and_doctor_say_so(settings):
    settings("namespaces = false\n")
    plugin_folders.cyclop("plugins", "hello", permissions=["network:example.org:443"])
    command_line.ok("approve", "hello", "--yes")
    shown = command_line.ok("show", "hello").out
    assert "it does not run here" in shown
    assert "nothing enforces network:example.org:443: the proxy for it needs a network namespace" in shown
    assert "hello does not run, because its permissions cannot be enforced" in command_line.run("doctor").out
    assert "needs a network namespace" in command_line.fails(3, "call", "hello", "--yes").err
    command_line.ok("approve", "hello", "--yes", "--allow-unconfined")
    command_line.ok("call", "hello", "--yes")
    assert "only in part" in command_line.ok("show", "hello").out


def test_a_grant_says_what_it_means_where_its_words_do_not():
    plugin_folders.cyclop("plugins", "hello")
    command_line.ok("approve", "hello", "--yes")
    said = command_line.ok("grant", "hello", "filesystem:read:notes", "shell:exec:no-such-program", "network:unix").err
    assert "filesystem:read:notes is relative to the folder in which anyplug runs, now " in said
    assert "'no-such-program' is not on your PATH" in said
    assert "note: network:unix reaches every program" in said
    assert (
        "network:example.org:80 is enforced by a proxy"
        in command_line.ok("grant", "hello", "network:example.org:80").err
    )
    assert "allows nothing until it does" in command_line.ok("grant", "hello", "filesystem:read:~/notes").err
    os.mkdir(os.path.expanduser("~/notes"))
    assert command_line.ok("grant", "hello", "filesystem:read:~/notes", "network").err == ""
    for whole in ("filesystem:write", "filesystem:write:~"):
        assert "other programs run later" in command_line.ok("grant", "hello", whole).err


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("network:*:99999", "'99999' in 'network:*:99999' is not a port"),
        ("clipboard:all", "'clipboard' takes no scope"),
        ("filesystem:read:~bob/x", "another user's home folder"),
        ("env:A-B", "not a valid name for an environment variable"),
    ],
)
def test_a_scope_that_means_nothing_is_refused_everywhere(written, said):
    plugin_folders.cyclop("plugins", "hello")
    assert said in command_line.fails(2, "approve", "hello", "--yes", "--grant", written).err
    command_line.ok("approve", "hello", "--yes")
    assert said in command_line.fails(2, "grant", "hello", written).err
    assert said in command_line.fails(2, "ungrant", "hello", written).err


def test_what_a_manifest_asked_for_can_be_taken_away_even_if_it_means_nothing():
    plugin_folders.cyclop("plugins", "hello", permissions=["network:*:99999"])
    command_line.ok("approve", "hello", "--yes")
    assert command_line.ok("ungrant", "hello", "network:*:99999", "--json").json["granted"] == []


def test_show_says_what_is_protected_from_a_plugin_that_may_write():
    plugin_folders.cyclop("plugins", "hello", permissions=["filesystem:write:."])
    command_line.ok("approve", "hello", "--yes")
    protected = command_line.ok("show", "hello", "--json").json["confinement"]["protected"]
    assert {".git/hooks", ".envrc", ".cupcake", "~/.bashrc", "~/.ssh"} <= set(protected)
    assert "paths that other programs run later" in command_line.ok("show", "hello").out
    command_line.ok("grant", "hello", "filesystem:write:~/.bashrc")
    assert "~/.bashrc" not in command_line.ok("show", "hello", "--json").json["confinement"]["protected"]
    command_line.ok("ungrant", "hello", "filesystem:write:.", "filesystem:write:~/.bashrc")
    assert command_line.ok("show", "hello", "--json").json["confinement"]["protected"] == []
