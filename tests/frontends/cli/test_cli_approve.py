"""`approve` and its kin: what a person decides, at a terminal and away from one."""

import os
import signal

import pytest

import command_line
import plugin_folders

STANDS = {"name", "path", "state"}


def kit(**changes):
    return plugin_folders.stavrobot("plugins", "kit", "#!/bin/sh\necho ran", **changes)


@pytest.mark.requirement("CYC-32", "CYC-37")
def test_a_person_sees_what_a_plugin_asks_for_and_says_yes():
    plugin_folders.cyclop("plugins", "hello", permissions=["network", "shell:exec"])
    seen = command_line.at_terminal("approve", "hello", answers=[("Approve it? [y/N]", "y")])
    assert seen.code == 0
    for text in ("hello 1.0.0 (Cyclop One) in", "What hello does.", "network: talk to other machines",
                 "shell:exec: run other programs", "warning: it can run any program", "hello: Does it.",
                 "hello is approved"):  # fmt: skip
        assert text in seen.seen
    assert command_line.listed("hello")["state"] == "approved"


def test_the_warning_is_about_what_it_would_be_granted():
    plugin_folders.cyclop("plugins", "hello", permissions=["network", "shell:exec"])
    for grants in ([], ["network"], ["shell:exec"], ["shell:exec:git", "network"]):
        words = [word for grant in grants for word in ("--grant", grant)]
        said = command_line.ok("approve", "hello", "--yes", *words).err + command_line.ok("show", "hello").out
        assert ("it can run any program" in said) == (not grants), said


def test_a_person_is_told_where_a_plugin_of_the_same_name_keeps_its_data():
    home = command_line.home()
    plugin_folders.cyclop(f"{home}/plugins", "weather")
    assert "the same name" not in command_line.ok("approve", "weather", "--yes").err
    plugin_folders.cyclop("plugins", "weather")
    said = command_line.ok("approve", "weather", "--yes").err
    assert f"warning: {home}/plugins/weather is approved under the same name" in said
    assert f"note: its data is kept in {home}/data/weather@" in said
    assert f"because {home}/plugins/weather came first" in said


@pytest.mark.parametrize("answer", ["n", "", "x", "yess", "NO"])
def test_any_other_answer_is_a_no_and_nothing_of_it_runs(answer):
    folder = kit(init={"entrypoint": "init.sh"})
    plugin_folders.write(f"{folder}/init.sh", f"#!/bin/sh\ntouch {os.path.abspath('ran')}\n", 0o755)
    seen = command_line.at_terminal("approve", "kit", answers=[("Approve it?", answer)])
    assert seen.code == 3
    assert "error: 'kit' was not approved\nhint: none of its code has run" in seen.seen
    assert command_line.listed("kit")["state"] == "new"
    assert not os.path.exists("ran")


@pytest.mark.parametrize("answer", ["y", "Y", "yes", " YES "])
def test_a_yes_has_several_spellings(answer):
    plugin_folders.cyclop("plugins", "hello")
    assert command_line.at_terminal("approve", "hello", answers=[("Approve it?", answer)]).code == 0


def test_the_end_of_input_is_a_no():
    plugin_folders.cyclop("plugins", "hello")
    with command_line.Terminal("approve", "hello") as terminal:
        terminal.sees("Approve it?")
        terminal.presses(b"\x04")
    assert terminal.code == 3


def test_what_was_typed_before_the_question_is_no_answer():
    plugin_folders.cyclop("plugins", "hello")
    with command_line.Terminal("approve", "hello") as terminal:
        terminal.types("y")
        terminal.sees("Approve it?")
        terminal.types("n")
    assert terminal.code == 3
    assert command_line.listed("hello")["state"] == "new"


def test_what_is_asked_is_seen_even_if_stdout_goes_elsewhere():
    plugin_folders.cyclop("plugins", "hello", permissions=["network"])
    with open("out", "wb") as out, command_line.Terminal("approve", "hello", stdout=out.fileno()) as terminal:
        terminal.sees("network: talk to other machines")
        terminal.sees("Approve it?")
        terminal.types("y")
    assert command_line.read("out") == "hello is approved\n"


def test_with_nobody_to_ask_nothing_is_approved():
    plugin_folders.cyclop("plugins", "hello")
    done = command_line.fails(3, "approve", "hello", stdin="y\n")
    assert "this is not a terminal" in done.err
    assert "anyplug approve hello --yes" in done.err
    assert command_line.listed("hello")["state"] == "new"


def test_each_decision_has_one_shape_in_json():
    plugin_folders.cyclop("plugins", "hello")
    path = os.path.abspath("plugins/hello")
    for words, state in (
        (["approve", "--yes"], "approved"),
        (["disable"], "disabled"),
        (["enable"], "approved"),
        (["deny"], "denied"),
        (["revoke"], "new"),
    ):
        done = command_line.ok(words[0], "hello", *words[1:], "--json")
        assert (done.json, done.err) == ({"name": "hello", "path": path, "state": state}, "")
        assert command_line.listed("hello")["state"] == state


def test_the_state_that_is_reported_is_the_one_that_counts():
    plugin_folders.cyclop("plugins", "hello")
    command_line.ok("disable", "hello")
    done = command_line.ok("approve", "hello", "--yes")
    assert done.out == "hello is approved, but it is turned off\n"
    assert "hint: enable it with `anyplug enable hello`" in done.err
    assert command_line.ok("approve", "hello", "--yes", "--json").json["state"] == "disabled"
    assert "approved" in command_line.ok("enable", "hello").out


@pytest.mark.requirement("CYC-33")
def test_a_denied_plugin_does_not_run_until_a_person_approves_it_after_all():
    plugin_folders.cyclop("plugins", "hello")
    command_line.ok("deny", "hello")
    assert "it was denied" in command_line.fails(3, "call", "hello").err
    command_line.ok("approve", "hello", "--yes")
    assert command_line.ok("call", "hello").out == "done\n"


def test_revoking_what_nobody_decided_says_so():
    plugin_folders.cyclop("plugins", "hello")
    assert command_line.ok("revoke", "hello").out == "hello is new; there was no decision to withdraw\n"


def test_a_change_is_shown_before_it_is_approved_again():
    folder = plugin_folders.cyclop("plugins", "hello")
    command_line.ok("approve", "hello", "--yes")
    plugin_folders.write(f"{folder}/run", plugin_folders.ANSWER + "# changed\n", 0o755)
    plugin_folders.write(f"{folder}/new.sh", "#!/bin/sh\n", 0o755)
    assert command_line.listed("hello")["state"] == "changed"
    done = command_line.fails(3, "call", "hello")
    assert "it changed since it was approved (new.sh is new; run changed)" in done.err
    seen = command_line.at_terminal("approve", "hello", answers=[("Approve it?", "y")])
    assert "Changed since it was approved: run changed" in seen.seen
    assert command_line.ok("call", "hello").out == "done\n"


def test_one_who_writes_a_plugin_can_follow_it():
    folder = plugin_folders.cyclop("plugins", "hello")
    command_line.ok("approve", "hello", "--yes", "--follow")
    plugin_folders.write(f"{folder}/run", plugin_folders.ANSWER + "# changed\n", 0o755)
    assert command_line.ok("call", "hello").out == "done\n"
    plugin_folders.cyclop("plugins", "hello", permissions=["network"])
    assert "it now asks for network" in command_line.fails(3, "call", "hello").err


def test_show_and_approve_say_how_a_plugin_is_approved():
    kit()
    assert command_line.ok("show", "kit", "--json").json["approval"] is None
    command_line.ok("approve", "kit", "--yes")
    shown = command_line.ok("show", "kit").out
    assert "tier      2 (asks once per run or session)" in shown
    assert "approval" not in shown
    done = command_line.ok("approve", "kit", "--yes", "--always", "--follow", "--allow-unconfined")
    assert done.out == (
        "kit is approved: it runs without asking, and stays approved while only its code changes, "
        "and may run where its permissions cannot be enforced\n"
    )
    shown = command_line.ok("show", "kit").out
    for said in ("2 (does not ask: you said always)", "only its code changes (--follow)", "(--allow-unconfined)"):
        assert said in shown
    every = {"always": True, "follow": True, "unconfined": True, "inherits_environment": False}
    assert command_line.ok("show", "kit", "--json").json["approval"] == every
    command_line.ok("disable", "kit")
    assert "2 (does not ask: you said always)" in command_line.ok("show", "kit").out
    assert command_line.ok("show", "kit", "--json").json["approval"] == every
    named = command_line.ok("-e", "plugins/kit", "--no-discover", "show", "kit").out
    assert "2 (does not ask: you gave its folder)" in named
    assert "--follow" not in named


def test_approve_says_what_an_approval_before_it_allowed_and_it_does_not():
    kit()
    command_line.ok("approve", "kit", "--yes", "--always", "--allow-unconfined")
    done = command_line.ok("approve", "kit", "--yes", "--follow")
    assert done.out == "kit is approved: it stays approved while only its code changes\n"
    assert "it asks again once per run or session, because --always was not given\n" in done.err
    assert "it no longer runs where its permissions cannot be enforced, because --allow-unconfined" in done.err
    done = command_line.ok("approve", "kit", "--yes")
    assert (done.out, "changed code needs a new approval again, because --follow was" in done.err) == (
        "kit is approved\n",
        True,
    )
    assert "was not given" not in command_line.ok("approve", "kit", "--yes").err


def test_whoever_takes_a_required_guard_away_is_told_that_every_call_is_refused(settings):
    settings('[plugins.watch]\nguard = "required"\n')
    plugin_folders.stavrobot("plugins", "watch")
    kit()
    warning = "warning: every call is now refused, because watch is a required guard"
    for words in (["disable"], ["enable"], ["deny"], ["revoke"], ["approve", "--yes"]):
        done = command_line.ok(words[0], "watch", *words[1:])
        assert (warning in done.err) == (words[0] != "approve"), done
    assert warning in command_line.ok("disable", "watch", "--json").err
    assert "warning" not in command_line.ok("disable", "kit").err


def test_a_broken_or_shadowed_plugin_cannot_be_approved():
    plugin_folders.write("plugins/half/plugin.json", "{")
    plugin_folders.cyclop("plugins", "twice")
    plugin_folders.cyclop(os.path.join(command_line.home(), "plugins"), "twice")
    assert (
        "'half' cannot be loaded: plugin.json is not valid JSON"
        in command_line.fails(1, "approve", "half", "--yes").err
    )
    done = command_line.fails(1, "approve", os.path.join(command_line.home(), "plugins", "twice"), "--yes")
    assert "is shadowed by" in done.err


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [("y", 0, "once"), ("yes", 0, "once"), ("R", 0, "attachment"), ("a", 0, "always"), ("n", 3, ""), ("", 3, "")],
)
def test_a_plugin_of_tier_2_asks_when_it_is_called(answer, code, reason):
    kit()
    command_line.ok("approve", "kit", "--yes")
    seen = command_line.at_terminal("call", "kit.act", answers=[("[N]o:", answer)])
    assert seen.code == code
    assert "kit wants to run kit.act. It may use: network" in seen.seen
    assert ("ran" in seen.seen.splitlines()) == (code == 0)
    record = command_line.last_record()
    assert record["by"] == "person"
    assert record["outcome"] == ("done" if code == 0 else "denied")
    if reason:
        assert record["reason"] == reason
    assert command_line.run("call", "kit.act").code == (0 if answer == "a" else 3)


def test_with_nobody_to_ask_tier_2_is_denied_unless_answered_ahead():
    kit()
    command_line.ok("approve", "kit", "--yes")
    done = command_line.fails(3, "call", "kit.act")
    assert "needs confirmation (tier 2), but nobody can confirm it here" in done.err
    assert command_line.ok("call", "kit.act", "--yes").out == "ran\n"
    command_line.ok("approve", "kit", "--yes", "--always")
    assert command_line.ok("call", "kit.act").out == "ran\n"


def test_yes_on_a_call_is_never_a_first_approval():
    kit()
    assert "it is not approved yet" in command_line.fails(3, "call", "kit.act", "--yes").err


@pytest.mark.parametrize("ending", [b"\x03", signal.SIGTERM])
def test_a_question_can_be_left_unanswered(ending):
    kit()
    command_line.ok("approve", "kit", "--yes")
    with command_line.Terminal("call", "kit.act") as terminal:
        terminal.sees("[N]o:")
        if isinstance(ending, bytes):
            terminal.presses(ending)
        else:
            terminal.signal(ending)
    assert terminal.code == (130 if ending == b"\x03" else 128 + ending)


def test_grants_can_be_less_than_asked_and_changed_later(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "swordfish-1")
    script = '#!/bin/sh\nprintf \'{"result": "key %s"}\' "$MY_API_KEY"'
    plugin_folders.cyclop("plugins", "hello", script, permissions=["network", "filesystem"])
    command_line.ok("approve", "hello", "--yes", "--grant", "network")
    assert command_line.ok("show", "hello", "--json").json["permissions"] == {
        "asked": ["network", "filesystem:read", "filesystem:write"],
        "granted": ["network"],
    }
    assert command_line.ok("call", "hello", "--yes").out == "key \n"
    assert command_line.ok("grant", "hello", "env:MY_API_KEY", "--json").json["granted"] == [
        "network",
        "env:MY_API_KEY",
    ]
    assert command_line.ok("call", "hello", "--yes").out == "key •••\n"
    assert command_line.ok("ungrant", "hello", "env:MY_API_KEY", "network").out == "hello is granted nothing\n"
    assert command_line.ok("call", "hello", "--yes").out == "key \n"


def test_approving_a_change_does_not_widen_what_was_granted():
    folder = plugin_folders.cyclop("plugins", "hello", permissions=["network", "filesystem:read"])
    command_line.ok("approve", "hello", "--yes", "--grant", "filesystem:read")
    command_line.ok("grant", "hello", "env:HOME_TOKEN")
    plugin_folders.cyclop("plugins", "hello", permissions=["network", "filesystem:read", "clipboard"])
    done = command_line.ok("approve", "hello", "--yes")
    assert "It would be granted: filesystem:read, env:HOME_TOKEN, clipboard" in done.err
    granted = command_line.ok("show", folder, "--json").json["permissions"]["granted"]
    assert granted == ["filesystem:read", "env:HOME_TOKEN", "clipboard"]


def test_what_is_no_permission_cannot_be_granted():
    plugin_folders.cyclop("plugins", "hello")
    assert (
        "there is no permission 'telepathy'"
        in command_line.fails(2, "approve", "hello", "--yes", "--grant", "telepathy").err
    )
    assert "it is not approved yet" in command_line.fails(3, "grant", "hello", "network").err
    command_line.ok("approve", "hello", "--yes")
    for name in ("telepathy", "env", "env:", "network:", "networks"):
        assert f"there is no permission '{name}'" in command_line.fails(2, "grant", "hello", name).err
    assert command_line.ok("grant", "hello", "network:example.org:443", "shell", "--json").json["granted"] == [
        "network:example.org:443",
        "shell:exec",
    ]
    assert "'hello' was not granted network" in command_line.fails(2, "ungrant", "hello", "network").err


def test_a_set_up_that_fails_approves_nothing():
    folder = kit(init={"entrypoint": "init.sh"})
    plugin_folders.write(f"{folder}/init.sh", "#!/bin/sh\necho out of luck >&2\nexit 1\n", 0o755)
    done = command_line.run("approve", "kit", "--yes")
    assert done.code == 1
    assert "Init script failed: out of luck" in done.err
    assert command_line.listed("kit")["state"] == "new"
    plugin_folders.write(f"{folder}/init.sh", "#!/bin/sh\necho all set\n", 0o755)
    assert "its setup printed:\n  | all set" in command_line.ok("approve", "kit", "--yes").err


def test_what_is_missing_is_said_after_the_approval():
    kit(config={"city": {"description": "Where.", "required": True}})
    assert "`anyplug config kit city` asks for it" in command_line.ok("approve", "kit", "--yes").err


@pytest.mark.requirement("ZOT-54")
def test_a_plugin_that_was_named_needs_no_approval_and_leaves_none():
    plugin = plugin_folders.stavrobot("here", "kit", "#!/bin/sh\necho ran")
    assert command_line.ok("-e", plugin, "call", "kit.act").out == "ran\n"
    assert command_line.last_record()["by"] == "named"
    assert "no tool is named" in command_line.fails(4, "call", "kit.act").err
