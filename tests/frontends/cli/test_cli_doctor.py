"""`doctor`: what this machine enforces, by trying it."""

import command_line
import plugin_folders
import sandbox_script
import zot_folders

KEYS = {
    "holds", "system", "user", "landlock", "off_by", "layers", "ways_out", "programs", "home", "home_mode", "plugins",
    "faults",
}  # fmt: skip


def test_it_has_exactly_the_promised_shape_and_nothing_is_open_here():
    done = command_line.ok("doctor", "--json")
    assert set(done.json) == KEYS
    assert done.json["holds"] is True
    assert len(done.json["ways_out"]) > 50
    assert [way["name"] for way in done.json["ways_out"] if way["state"] == "open"] == []
    assert {layer["name"] for layer in done.json["layers"]} >= {"landlock", "seccomp", "mounts", "limits"}
    assert {program["name"] for program in done.json["programs"]} == {"node", "uv"}


def test_a_person_gets_the_summary_and_what_is_open():
    done = command_line.ok("doctor")
    assert done.out.startswith("Permissions are enforced here: ")
    assert "ESCAPE" not in done.out
    assert "`anyplug doctor --all` lists the escapes that are blocked." in done.out


def test_a_person_can_see_all_escapes():
    done = command_line.ok("doctor", "--all")
    assert done.out.startswith("Permissions are enforced here: ")
    for text in (
        "confinement  on",
        "LAYER",
        "landlock      works",
        "ESCAPE",
        "read a key",
        "blocked",
        "plugins      none",
    ):
        assert text in done.out


def test_that_it_is_switched_off_is_a_problem_with_its_cure(off_by):
    done = command_line.run("doctor")
    assert done.code == 1
    assert done.out.startswith("Permissions are NOT enforced: the sandbox is turned off.")
    assert f"problem: confinement is disabled by {off_by}" in done.out
    assert command_line.run("doctor", "--json").json["off_by"] == off_by


def test_without_namespaces_it_says_what_stays_open_and_how_to_get_them_back(settings):
    settings("namespaces = false\n")
    done = command_line.run("doctor")
    assert done.code == 0, "the gaps break no profile"
    assert "warning: plugins are confined less than possible" in done.out
    assert "write `namespaces = true`" in done.out
    assert "mounts        MISSING" in done.out
    assert "change a mode" in done.out
    assert "read a key" not in done.out
    found = {way["name"]: way["state"] for way in command_line.run("doctor", "--json").json["ways_out"]}
    assert {found["change a mode"], found["change a time"], found["see the host's command line"]} == {"gap"}


def test_a_plugin_that_cannot_be_held_is_named_with_the_cure():
    plugin_folders.cyclop("plugins", "far", permissions=["network:example.org:443", "network:*:80"])
    command_line.ok("approve", "far", "--yes")
    done = command_line.run("doctor")
    assert done.code == 1
    assert "Permissions are enforced here, except for far:" in done.out
    assert "problem: far does not run, because its permissions cannot be enforced" in done.out
    assert "grant `network:*:443`" in done.out
    command_line.ok("approve", "far", "--yes", "--allow-unconfined")
    done = command_line.run("doctor")
    assert done.code == 1
    assert "far runs although its permissions cannot be enforced, because you allowed it" in done.out


def test_what_is_broken_or_does_not_start_is_named_and_is_no_problem_of_confinement():
    plugin_folders.cyclop("plugins", "broken", tools=[])
    zot_folders.extension("plugins", "dead", "sys.exit('no luck')")
    command_line.ok("approve", "dead", "--yes")
    done = command_line.ok("doctor", "--json")
    warnings = {fault["plugin"]: fault["what"] for fault in done.json["faults"] if fault["level"] == "warning"}
    assert "declares no tools" in warnings["broken"]
    assert "not running" in warnings["dead"]
    assert done.json["plugins"] == {"broken": 1, "approved": 1}


def test_a_home_that_others_can_write_to_is_named():
    command_line.ok("list")
    plugin_folders.write(f"{command_line.home()}/settings.toml", "", 0o666)
    done = command_line.ok("doctor")
    assert f"other users can write to {command_line.home()}/settings.toml" in done.out
    assert f"chmod go-w {command_line.home()}/settings.toml" in done.out


def test_an_ordinary_user_is_held_as_well():
    code = "import sys; from anyplug.frontends.cli.main import run; sys.exit(run(['--home', '/nonexistent', 'doctor']))"
    said = sandbox_script.run("ordinary", code)
    assert "you are an ordinary user" in said
    assert "OPEN" not in said
