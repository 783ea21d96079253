"""`chain`: files and pipes of steps, what is printed where, exit codes."""

import json

import pytest

import command_line
import plugin_folders

ECHO = plugin_folders.python("print(json.dumps({'result': given['input'].get('text', '')}))")
FAILS = plugin_folders.python("print(json.dumps({'result': 'it broke', 'is_error': True}))")
CHAIN = {"success", "failed_at", "error", "steps"}


@pytest.fixture
def echo():
    """Give the options that bring a plugin which answers with its text."""
    return "-e", plugin_folders.cyclop("here", "echo", ECHO)


def saved(*steps, name="chain.json"):
    return plugin_folders.write(f"here/{name}", json.dumps(steps))


def step(text, tool="echo", **others):
    return {"tool": tool, "input": {"text": text}, **others}


def test_the_last_result_is_data_and_each_steps_end_is_a_line_on_stderr(echo):
    path = saved(step("one", outputKey="first"), step("{{first.content}} two"), step("{{lastResult.content}}\nthree"))
    done = command_line.ok(*echo, "chain", path)
    assert done.out == "one two\nthree\n"
    lines = done.err.splitlines()
    assert [line.rpartition(",")[0] for line in lines] == [f"step {n} of 3: echo: ok" for n in (1, 2, 3)]
    assert all(line.endswith(" ms") for line in lines)
    assert command_line.ok("--quiet", *echo, "chain", path).err == ""


def test_steps_come_from_standard_input_too(echo):
    chain = json.dumps({"name": "mine", "steps": [step("a"), step("{{step0.content}}b")]})
    assert command_line.ok(*echo, "chain", "-", stdin=chain).out == "ab\n"
    assert command_line.ok(*echo, "chain", "-", stdin=b"\xef\xbb\xbf" + chain.encode()).out == "ab\n"


def test_chain_has_exactly_the_promised_shape(echo):
    done = command_line.ok(*echo, "chain", saved(step("a"), step("{{step0.content}}b")), "--json")
    assert set(done.json) == CHAIN
    one_call = set(command_line.ok(*echo, "call", "echo", "--json").json)
    assert [set(result) for result in done.json["steps"]] == [one_call, one_call]
    assert done.json | {"steps": []} == {"success": True, "failed_at": None, "error": None, "steps": []}
    assert [result["text"] for result in done.json["steps"]] == ["a", "ab"]
    assert done.err == ""


def test_a_step_that_fails_ends_the_chain_with_its_code(echo):
    fails = ("-e", plugin_folders.cyclop("here", "fails", FAILS))
    path = saved(step("a"), {"tool": "fails"}, step("c"))
    done = command_line.run(*echo, *fails, "chain", path)
    assert (done.code, done.out) == (1, "")
    assert 'error: step 2 of 3: Tool "fails" failed: it broke' in done.err
    assert "step 2 of 3: fails: failed, " in done.err
    assert "step 3" not in done.err
    said = command_line.run(*echo, *fails, "chain", path, "--json")
    assert (said.code, said.err) == (1, "")
    assert (said.json["success"], said.json["failed_at"]) == (False, 2)
    assert said.json["error"] == 'Tool "fails" failed: it broke'
    assert [result["is_error"] for result in said.json["steps"]] == [False, True]


def test_an_unknown_tool_is_named_with_the_reason_and_near_ones(echo):
    done = command_line.fails(4, *echo, "chain", saved(step("a", tool="ecko")))
    assert "error: step 1 of 1: Tool not found: ecko\n" in done.err
    assert "hint: did you mean echo?" in done.err
    two = [word for name in ("one", "two") for word in ("-e", plugin_folders.stavrobot("here", name))]
    done = command_line.fails(4, *two, "chain", saved({"tool": "act"}))
    assert "Tool not found: act: several plugins have one: one/act, two/act" in done.err


def test_what_a_failed_step_had_said_is_data():
    plugin = plugin_folders.cyclop("here", "slow", "#!/bin/sh\necho before\nexec sleep 60")
    plugin_folders.write(f"{command_line.home()}/settings.toml", "[plugins.slow]\ntimeout_s = 0.5\n")
    done = command_line.run("-e", plugin, "chain", saved({"tool": "slow"}))
    assert (done.code, done.out) == (1, "before\n")
    assert 'error: step 1 of 1: Tool "slow" failed: Plugin timed out after 0.5s' in done.err


def test_a_plugin_of_tier_2_needs_a_yes_and_what_is_new_an_approval():
    plugin_folders.cyclop("plugins", "echo", ECHO, permissions=["network"])
    path = saved(step("a"), step("{{lastResult.content}}b"))
    assert "may not run: it is not approved yet" in command_line.fails(3, "chain", path, "--yes").err
    command_line.ok("approve", "echo", "--yes")
    done = command_line.fails(3, "chain", path)
    assert (
        "step 1 of 2: Tool \"echo\" failed: plugin 'echo' needs confirmation (tier 2), but nobody can confirm it here"
        in done.err
    )
    assert command_line.run("chain", path, "--json").json["steps"][0]["error"]["code"] == "denied"
    assert command_line.ok("chain", path, "--yes").out == "ab\n"


def test_a_person_is_asked_once_for_a_run():
    plugin_folders.cyclop("plugins", "echo", ECHO, permissions=["network"])
    command_line.ok("approve", "echo", "--yes")
    path = saved(step("a"), step("{{lastResult.content}}b"))
    terminal = command_line.at_terminal("chain", path, answers=[("[N]o:", "r")])
    assert (terminal.code, terminal.seen.count("Allow?")) == (0, 1)
    assert "ab\n" in terminal.seen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not valid JSON"),
        ("[{]", "is not valid JSON"),
        (b"[\xff]", "is not valid JSON"),
        ("[" * 5000, "is not valid JSON"),
        ("[]", "this is not a chain: it has no steps"),
        ("{}", 'the object has no "steps"'),
        ('[{"tool": "echo"}, {"input": {}}]', "step 2 has no tool"),
        ('[{"tool": "echo", "input": [1]}]', "the input of step 1 must be an object, not a list"),
        (json.dumps([{"tool": "echo"}] * 1001), "there are 1,001 steps"),
        (" " * (17 << 20), "is larger than 16 MiB"),
    ],
)
def test_what_is_no_chain_is_a_usage_error_and_nothing_runs(echo, text, message):
    path = plugin_folders.write("here/chain.json", text)
    assert message in command_line.fails(2, *echo, "chain", path).err
    assert command_line.ok("audit", "--kind", "call", "--json").json == []


def test_a_file_that_cannot_be_read_is_a_usage_error(echo):
    assert "cannot read nowhere: No such file" in command_line.fails(2, *echo, "chain", "nowhere").err
    assert "cannot read /: Is a directory" in command_line.fails(2, *echo, "chain", "/").err
    assert "is larger than" in command_line.fails(2, *echo, "chain", "/dev/zero").err
    done = command_line.run(*echo, "chain", "nowhere", "--json")
    assert (done.code, done.json["error"]["code"]) == (2, "usage")
    assert command_line.run(*echo, "chain").code == 2


def test_what_is_odd_about_a_chain_is_a_warning(echo):
    done = command_line.ok(*echo, "chain", saved(step("a"), step("{{x.content}}")))
    assert done.out == "{{x.content}}\n"
    assert done.err.count("warning: step 2 of 2: no step returned anything for {{x.content}}") == 1


def test_a_key_that_a_step_does_not_have_is_an_error_with_a_suggestion(echo):
    done = command_line.fails(2, *echo, "chain", saved(step("a", output_key="x"), step("b")))
    assert "this is not a chain: step 1 has an unknown key 'output_key', did you mean 'outputKey'?" in done.err
    assert done.out == ""


def test_a_chain_that_doubles_its_text_ends_at_a_bound(echo):
    more = step("".join(["{{lastResult.content}}"] * 200))
    done = command_line.fails(2, *echo, "chain", saved(step("x" * 1000), *[more] * 5))
    assert 'step 3 of 6: Tool "echo" failed: the placeholders of step 3 add more than 16 MiB' in done.err


def test_a_tools_name_cannot_forge_lines(echo):
    done = command_line.fails(4, *echo, "chain", saved(step("a", tool="x: ok\nstep 2 of 1\x1b[2J")))
    assert "\nstep 2 of 1" not in done.err.partition("error:")[0]
    assert "\x1b" not in done.err
