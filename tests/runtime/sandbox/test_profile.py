"""Profiles: what follows from a grant, what never does, and the same as text for a Mac."""

import os
import re

import pytest

import plugin_folders
from anyplug.model import protected_paths
from anyplug.runtime.sandbox import macos, system_paths
from anyplug.runtime.sandbox.enforcement import LAYERS, Enforcement
from anyplug.runtime.sandbox.profile import Limits, Locations, System, draw, may_read
from rows import each_row

PLACE = Locations(
    plugin="/u/.anyplug/plugins/p",
    data="/u/.anyplug/data/p",
    cache="/u/.anyplug/cache/p",
    home="/u/.anyplug",
    user="/u",
    project="/u/work",
)
SYSTEM = System(readable=("/lib/x",), executable=("/bin/sh",), search_path=("/u/bin",))
FULL = Enforcement(held=LAYERS, landlock=7)


def profile(*granted, place=PLACE):
    return draw(granted, place, SYSTEM, lambda name: (f"/found/{name}",))


def test_without_grants_there_is_the_system_and_the_plugins_own_places():
    drawn = profile()
    assert drawn.readable == ("/lib/x",)
    assert drawn.writable == (PLACE.data, PLACE.cache)
    assert drawn.executable == (PLACE.plugin, PLACE.cache, "/bin/sh")
    assert (drawn.network, drawn.ports, drawn.unix) == ("none", (), False)
    assert drawn.hidden[0] == PLACE.home
    assert set(drawn.hidden[1:]) == set(protected_paths.places(PLACE.user, "").hidden)
    assert (drawn.brokered, drawn.protected) == ((), ())
    assert drawn.code == (PLACE.plugin,)
    assert drawn.private_tmp
    assert drawn.limits == Limits()
    assert FULL.shortfalls(drawn) == ()


@pytest.mark.parametrize(
    ("granted", "path", "expected"),
    [
        ((), "/u/.config/uv/uv.toml", False),
        ((), "/u/.anyplug/data/p/x", True),
        ((), "/u/.anyplug/data/px", False),
        (("filesystem:read:~/.config/uv/uv.toml",), "/u/.config/uv/uv.toml", True),
        (("filesystem:read:~",), "/u/.config/uv/uv.toml", True),
        (("filesystem:read:~",), "/u/.ssh/id_ed25519", False),
        (("filesystem:read:/",), "/etc/uv/uv.toml", True),
    ],
)
def test_the_nearest_folder_decides_whether_a_file_may_be_read(granted, path, expected):
    assert may_read(profile(*granted), path) is expected


@pytest.mark.parametrize(
    ("grant", "path"),
    [
        ("filesystem:read:~/notes", "/u/notes"),
        ("filesystem:read:/srv/x/../y", "/srv/y"),
        ("filesystem:read:docs", "/u/work/docs"),
        ("filesystem:read:~", "/u"),
    ],
)
def test_a_scope_is_a_path(grant, path):
    assert path in profile(grant).readable
    assert path not in profile(grant).writable
    assert path in profile(grant.replace("read", "write")).writable


def test_all_files_are_the_users_and_never_programs_or_settings_of_the_system():
    drawn = profile("filesystem:read")
    assert {"/u", "/u/work", "/home", "/mnt"} <= set(drawn.readable)
    assert not {"/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/proc", "/root"} & set(drawn.readable)
    assert drawn.writable == profile().writable
    assert drawn.private_tmp


def test_who_may_write_everywhere_shares_the_machines_tmp():
    drawn = profile("filesystem:write")
    assert {"/u", "/tmp"} <= set(drawn.writable)
    assert not drawn.private_tmp
    assert drawn.measured == (PLACE.data, PLACE.cache)


@pytest.mark.parametrize("scope", ["~/.anyplug", "~/.anyplug/data/other", "/u/x/../.anyplug/anyplug.db"])
def test_what_is_ours_cannot_be_granted(scope):
    drawn = profile(f"filesystem:read:{scope}")
    assert drawn.unheld == (f"filesystem:read:{scope}",)
    shortfall = FULL.shortfalls(drawn)[0]
    assert "host's own folder" in shortfall.why
    assert shortfall.cure


@each_row(
    ("granted", "expected"),
    [
        (("network",), ("all", (), (), False, ())),
        (("network:*:443", "network::80"), ("ports", (443, 80), (), False, ())),
        (("network:unix",), ("none", (), (), True, ())),
        (("network", "network:unix"), ("all", (), (), True, ())),
        (
            ("network:example.com:443", "network:[::1]"),
            ("hosts", (), ("network:example.com:443", "network:[::1]"), False, ()),
        ),
        (("network:example.com:443", "network:unix"), ("hosts", (), ("network:example.com:443",), True, ())),
        (("network", "network:example.com:443"), ("all", (), (), False, ())),
        (("network:example.com:443", "network:*:443"), ("ports", (443,), (), False, ())),
        (("network:example.com:80", "network:*:443"), ("ports", (443,), (), False, ("network:example.com:80",))),
        (("network:example.com", "network:*:443"), ("ports", (443,), (), False, ("network:example.com",))),
        (("network:*:99999",), ("none", (), (), False, ("network:*:99999",))),
        (("network:*:0",), ("none", (), (), False, ("network:*:0",))),
        (("network:*.example.com:443",), ("none", (), (), False, ("network:*.example.com:443",))),
        (("network:no name",), ("none", (), (), False, ("network:no name",))),
    ],
)
def test_networks(granted, expected):
    drawn = profile(*granted)
    assert (drawn.network, drawn.ports, drawn.hosts, drawn.unix, drawn.unheld) == expected


def test_hosts_say_that_a_proxy_holds_them():
    (note,) = profile("network:example.com:443", "network:localhost").notes
    assert note.startswith("network:example.com:443, network:localhost is enforced by a proxy")


@pytest.mark.parametrize(
    ("granted", "why", "cure"),
    [
        (("network:example.com:80", "network:*:443"), "cannot be combined with network:*:443", "grant `network:*:80`"),
        (("network:no name:80",), "is not a host name or address", "write `network:api.example.com:443`"),
    ],
)
def test_hosts_that_cannot_be_held_say_why_and_what_would_be(granted, why, cure):
    (shortfall,) = FULL.shortfalls(profile(*granted))
    assert why in shortfall.why
    assert cure in shortfall.cure


def test_programs():
    assert "/found/git" in profile("shell:exec:git").executable
    assert "/usr" not in profile("shell:exec:git").executable
    assert {"/usr", "/u/bin"} <= set(profile("shell:exec").executable)


def test_grants_that_open_nothing_say_so():
    drawn = profile("clipboard", "notifications", "env:TOKEN", "nonsense:x")
    plain = profile()
    assert (drawn.readable, drawn.writable, drawn.executable) == (plain.readable, plain.writable, plain.executable)
    assert len(drawn.notes) == 1
    assert "session bus" in profile("network:unix").notes[0]
    assert "allow listening" in profile("network:unix", "network:*:443").notes[-1]
    assert not any("allow listening" in note for note in profile("network:unix", "network:*:443", "network").notes)


def test_who_writes_beside_itself_keeps_its_code():
    place = Locations(
        plugin="/p", data="/d", cache="/c", home="/h", user="/u", writes_beside_itself=True, code=("/p/run",)
    )
    drawn = profile(place=place)
    assert "/p" in drawn.writable
    assert drawn.code == ("/p/run",)


def test_other_places_of_plugins_are_hidden_too():
    place = Locations(plugin="/p", data="/d", cache="/c", home="/h", user="/u", others=("/u/.cyclopone",))
    assert profile(place=place).hidden[:2] == ("/h", "/u/.cyclopone")


def test_what_is_missing_is_named_with_its_reason_and_its_cure():
    nothing = Enforcement(held=(), refused={"landlock": "Function not implemented"}, is_root=True)
    shortfalls = nothing.shortfalls(profile("network:*:443"))
    assert len(shortfalls) == 6
    assert shortfalls[0].why == "Function not implemented"
    assert all(fall.cure for fall in shortfalls)


@pytest.mark.parametrize(
    ("version", "held", "is_enough"),
    [
        (1, LAYERS, True),
        (1, ("landlock", "seccomp", "limits", "pids"), False),
        (6, ("landlock", "seccomp", "limits"), True),
        (5, ("landlock", "seccomp", "limits"), False),
    ],
)
def test_older_kernels_are_judged_by_what_else_holds(version, held, is_enough):
    assert (Enforcement(held=held, landlock=version).shortfalls(profile()) == ()) == is_enough


def test_the_survey_never_opens_whole_folders_of_programs():
    found = system_paths.survey(os.environ["PATH"], "/nonexistent", "/nonexistent")
    closed = {"/", "/usr", "/usr/bin", "/bin", "/usr/sbin", "/usr/lib", "/lib", "/usr/libexec", "/etc", "/usr/share"}
    assert not closed & {*found.readable, *found.executable}
    names = {os.path.basename(path) for path in found.executable}
    assert not names & {"git", "curl", "wget", "ssh", "docker", "sqlite3", "sudo", "su", "mount", "nc", "gcc", "make"}
    assert names & {"dash", "bash", "busybox"}


def test_of_settings_all_is_open_that_everybody_may_read_and_nothing_else(tmp_path):
    etc = tmp_path / "etc"
    for path, mode in {"open/a": 0o644, "open/deep/b": 0o644, "mixed/c": 0o644, "mixed/key": 0o600, "d": 0o644}.items():
        plugin_folders.write(str(etc / path), "x", mode)
    plugin_folders.write(str(etc / "shut" / "e"), "x")
    os.chmod(etc / "shut", 0o700)
    plugin_folders.write(str(etc / "key"), "x", 0o640)
    os.symlink("key", etc / "link")
    assert system_paths.settings(str(etc)) == tuple(str(etc / path) for path in ("d", "mixed/c", "open"))
    assert system_paths.settings(str(etc / "open")) == (str(etc / "open"),)
    assert system_paths.settings(str(etc / "nowhere")) == ()


def test_who_may_run_every_program_may_follow_links_on_the_path_and_read_settings(tmp_path):
    prefix = tmp_path / "versions" / "v1"
    program = plugin_folders.write(str(prefix / "lib" / "node_modules" / "yarn" / "bin" / "yarn.js"), "x", 0o755)
    (prefix / "bin").mkdir()
    os.symlink("../lib/node_modules/yarn/bin/yarn.js", prefix / "bin" / "yarn")
    toolchains = tmp_path / ".rustup" / "toolchains"
    toolchains.mkdir(parents=True)
    (tmp_path / ".cargo" / "bin").mkdir(parents=True)
    found = system_paths.survey(f"{prefix}/bin:{tmp_path}/.cargo/bin:/usr/bin", "/nonexistent", "/nonexistent")
    assert (found.settings, found.linked) == ((), ())
    wide = system_paths.for_every_program(found)
    assert {program, str(toolchains)} <= set(wide.linked)
    assert set(system_paths.settings()) == set(wide.settings)
    assert "/etc/shadow" not in wide.settings
    for granted, is_open in (("shell:exec", True), ("shell:exec:git", False), ("filesystem:read", False)):
        drawn = draw((granted,), PLACE, wide, lambda _name: ())
        assert (program in drawn.executable) == is_open
        assert set(wide.settings) <= set(drawn.readable) or not is_open


def test_modules_that_a_person_installed_are_libraries_too_and_no_folder_with_much_else_is(tmp_path):
    user = tmp_path / "user"
    for folder in (".local/lib/python3.11/site-packages", "perl5", ".ssh", "src"):
        (user / folder).mkdir(parents=True)
    named = f"{user}/src:relative::/usr/lib:{user}:{tmp_path}:/"
    found = system_paths.libraries({"HOME": str(user), "PYTHONPATH": named, "NODE_PATH": "/opt/modules"})
    assert set(found) == {
        f"{user}/src",
        "/opt/modules",
        f"{user}/.local/lib/python3.11/site-packages",
        f"{user}/perl5",
    }
    assert system_paths.libraries({"PYTHONPATH": "/"}) == ()


def test_a_program_comes_with_its_place_if_it_has_one_to_itself(monkeypatch, tmp_path):
    monkeypatch.setattr(system_paths, "OWN_PLACES", (f"{tmp_path}/lib/",))
    program = plugin_folders.write(str(tmp_path / "lib" / "jvm" / "bin" / "runs"), "x", 0o755)
    plugin_folders.write(str(tmp_path / "lib" / "jvm" / "conf" / "security"), "x")
    (tmp_path / "bin").mkdir()
    os.symlink(program, tmp_path / "bin" / "runs")
    found = system_paths.program_files("runs", f"{tmp_path}/bin")
    assert found[0] == program
    assert str(tmp_path / "lib" / "jvm") in found
    assert system_paths.program_files("sh", "/bin:/usr/bin")[0] == os.path.realpath("/bin/sh")
    assert not {"/usr", "/bin", "/usr/bin", "/"} & set(system_paths.program_files("sh", "/bin:/usr/bin"))
    assert system_paths.program_files("no-such-program", "/bin") == ()


@pytest.mark.parametrize("folder", ["shims", ".volta/bin"])
def test_of_what_only_chooses_an_interpreter_the_whole_place_is_needed(folder, tmp_path):
    plugin_folders.write(str(tmp_path / "manager" / folder / "node"), "x", 0o755)
    found = system_paths.survey(str(tmp_path / "manager" / folder), "/nonexistent", "/nonexistent")
    place = tmp_path / "manager" / os.path.dirname(folder)
    assert str(place) in found.executable


def test_for_a_mac_the_last_rule_decides_and_what_is_ours_is_closed_before_its_own_is_opened():
    text = macos.text(profile("filesystem:read", "filesystem:write:~/notes", "network"))
    assert text.startswith("(version 1)\n(deny default)\n")
    hidden = text.index('(deny file-read* file-write* process-exec*\n  (subpath "/u/.anyplug")')
    assert text.index('(subpath "/u/notes")') < hidden
    assert text.index(f'(subpath "{PLACE.data}")', hidden) > hidden
    assert text.index(f'(deny file-write*\n  (subpath "{PLACE.plugin}")', hidden) > text.index(
        "(allow file-write*", hidden
    )
    assert "(allow network-outbound (remote ip))" in text


@pytest.mark.parametrize(
    ("granted", "rules"),
    [
        ((), 0),
        (("network:*:443",), 1),
        (("network:unix",), 1),
    ],
)
def test_for_a_mac_networks_are_as_narrow(granted, rules):
    assert macos.text(profile(*granted)).count("(allow network") == rules


def test_for_a_mac_paths_are_quoted_and_brackets_balance():
    place = Locations(plugin='/p"\\)(allow default', data="/d", cache="/c", home="/h", user="/u")
    text = macos.text(profile("network", "network:unix", place=place))
    assert '(subpath "/p\\"\\\\)(allow default")' in text
    bare = re.sub(r'"(\\.|[^"\\])*"', "", text)
    assert bare.count("(") == bare.count(")")
    assert "allow default" not in bare


def test_for_a_mac_the_command_is_wrapped():
    assert macos.command(profile(), ("/bin/x", "y"))[::3] == ("/usr/bin/sandbox-exec", "/bin/x")
