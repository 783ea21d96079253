"""Events: what is taken, what is refused, and what policies find in their input."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opencode_driver import TOOL_NAMES

import policy_projects
from anyplug.policy import patch_targets
from anyplug.policy.agent_events import BadEvent, parse, read
from random_examples import at_most
from rows import each_row


def document(given_event, harness="opencode"):
    return read(harness, given_event).document


BROKEN = [
    [],
    "text",
    None,
    {},
    {"hook_event_name": 3},
    policy_projects.event() | {"hook_event_name": "Bogus"},
    policy_projects.event() | {"hook_event_name": "Stop"},
    policy_projects.event() | {"session_id": 1},
    policy_projects.event() | {"session_id": None},
    policy_projects.event() | {"cwd": []},
    policy_projects.event() | {"tool": {}},
    {key: value for key, value in policy_projects.event().items() if key != "args"},
    {key: value for key, value in policy_projects.event().items() if key != "tool"},
    policy_projects.event(name="PostToolUse") | {"result": None},
    policy_projects.event(name="PostToolUse") | {"result": {"success": "yes"}},
    {key: value for key, value in policy_projects.event(name="PostToolUse").items() if key != "result"},
]


@pytest.mark.requirement("CUP-16")
@each_row("broken", BROKEN)
def test_what_is_no_event_is_refused(broken):
    with pytest.raises(BadEvent):
        read("opencode", broken)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"nul", b"{} {}", b'{"a": NaN}', b"[" * 100_000])
def test_what_is_no_json_is_refused(raw):
    with pytest.raises(BadEvent):
        parse(raw)


def test_what_is_nested_too_deeply_is_refused():
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(BadEvent, match="deep"):
        read("opencode", policy_projects.event() | {"args": deep})


def test_what_would_take_for_ever_to_read_is_refused():
    with pytest.raises(BadEvent, match="longer"):
        read("opencode", policy_projects.bash("x" * 200_000))
    with pytest.raises(BadEvent, match="files"):
        read("opencode", policy_projects.event("apply_patch", patchText="*** Delete File: x\n" * 501))
    with pytest.raises(BadEvent, match="MiB"):
        parse(b" " * (33 << 20))


@pytest.mark.parametrize("args", [{}, {"filePath": None}, {"command": "a\0b"}, {"command": ["ls", "-l"]}, {"x": [1]}])
def test_arguments_may_be_any_object(args):
    made = document(policy_projects.event() | {"args": args})
    assert made["tool_name"] == "Bash"


@each_row(
    ("tool", "args"),
    [
        *(("bash", args) for args in (None, [], 7, True, "text", ["npm publish"])),
        *(("bash", {"command": command}) for command in (None, 3, {"x": 1}, ["a", ["b"]], [None])),
        *(("write", {"filePath": path}) for path in (["a"], {"a": 1}, 3)),
        ("apply_patch", {"patchText": ["*** Delete File: x"]}),
        ("batch", {"tool_calls": [{"tool": "bash", "parameters": "npm publish"}]}),
        ("batch", {"tool_calls": ["npm publish"]}),
    ],
)
def test_an_argument_of_another_type_than_policies_read_is_refused(tool, args):
    with pytest.raises(BadEvent, match=r"must be|is not a call"):
        read("opencode", policy_projects.event(tool) | {"args": args})


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": 1, "a": 2}',
        '{"args": {"command": "ls", "comm\\u0061nd": "npm publish"}}',
        '{"a": [{"b": {"c": 1, "d": 12345678901234567890, "c": null}}]}',
    ],
)
def test_an_event_with_a_key_twice_is_refused(raw):
    for text in (raw, raw.encode()):
        with pytest.raises(BadEvent, match="twice"):
            parse(text)


def call(tool, **arguments):
    return {"tool": tool, "parameters": arguments}


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("batch", {"tool_calls": [call("read", filePath="a"), call("bash", command="npm publish")]}),
        ("batch", {"tool_calls": [call("batch", tool_calls=[call("bash", command="npm publish")])]}),
        ("parallel", {"tool_uses": [{"recipient_name": "functions.bash", "parameters": {"command": "npm publish"}}]}),
        ("use_tool", {"tool_name": "bash", "arguments": '{"command": "npm publish"}'}),
        ("call", {"request": {"name": "bash", "input": {"command": "npm publish"}}}),
    ],
)
def test_a_call_that_carries_others_is_also_these(tool, args):
    event = read("opencode", policy_projects.event(tool, **args))
    found = [view["commands"][0]["words"] for kind, view in event.views if kind == "Bash"]
    assert found == [["npm", "publish"]]
    assert all(view["part_of"] for _, view in event.views)


def test_calls_in_calls_have_a_bound():
    args = call("bash", command="ls")
    for _ in range(4):
        args = call("batch", tool_calls=[args])
    with pytest.raises(BadEvent, match="nested"):
        read("opencode", policy_projects.event("batch", **args["parameters"]))
    with pytest.raises(BadEvent, match="more than 500"):
        read("opencode", policy_projects.event("batch", tool_calls=[call("bash", command="ls")] * 501))


@pytest.mark.requirement("CUP-15")
@each_row(("theirs", "ours"), [*TOOL_NAMES.items(), ("task", "Task"), ("apply_patch", "apply_patch"), ("x_y", "x_y")])
def test_tool_names_are_those_of_policies(theirs, ours):
    assert document(policy_projects.event(theirs))["tool_name"] == ours


def test_unknown_keys_stay_and_originals_too():
    made = document(policy_projects.bash(" ls   -l ") | {"agent": "build", "new": [1]})
    assert (made["new"], made["agent"], made["call_id"], made["tool"]) == ([1], "build", "call_1", "bash")
    assert made["args"]["command"] == " ls   -l "
    assert made["tool_input"]["command"] == "ls -l"


def test_paths_are_where_they_really_are(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    cwd = os.path.realpath(tmp_path)

    def seen(path):
        made = document(policy_projects.event("edit", cwd=cwd, filePath=path, oldString="a", newString="b"))
        return made["resolved_file_path"], made["original_file_path"], made["is_symlink"]

    assert seen("link/x.py") == (f"{cwd}/real/x.py", "link/x.py", False)
    assert seen("link") == (f"{cwd}/real", "link", True)
    assert seen("dangling") == (f"{cwd}/nowhere", "dangling", True)
    assert seen("no/../real/y") == (f"{cwd}/real/y", "no/../real/y", False)
    assert seen("/etc/../etc/hosts")[0] == os.path.realpath("/etc/hosts")
    assert seen("a\0b")[0]


def test_edits_have_the_names_that_policies_of_every_agent_know():
    made = document(policy_projects.event("edit", filePath="f", oldString="a", newString="b"))["tool_input"]
    assert (made["file_path"], made["old_string"], made["new_string"]) == ("f", "a", "b")
    assert document(policy_projects.event("write", filePath="f", content="c"))["tool_input"]["new_string"] == "c"


def test_a_command_runs_where_its_workdir_says(tmp_path):
    (tmp_path / "sub").mkdir()
    made = document(
        policy_projects.bash("rm ./x", cwd=str(tmp_path)) | {"args": {"command": "rm ./x", "workdir": "sub"}}
    )
    assert made["affected_parent_directories"] == [os.path.join(os.path.realpath(tmp_path), "sub", "x")]


def test_a_patch_is_also_the_edits_that_it_consists_of():
    text = "*** Begin Patch\n*** Add File: new.py\n+one\n*** Update File: old.py\n*** Move to: moved.py\n-a\n+b\n"
    made = read(
        "opencode", policy_projects.event("apply_patch", patchText=text + "*** Delete File: gone.py\n*** End Patch")
    )
    views = [(tool, view["tool_input"]["file_path"], view["tool_input"]["new_string"]) for tool, view in made.views]
    assert views == [
        ("Write", "new.py", "one"),
        ("Write", "moved.py", ""),
        ("Edit", "old.py", "b"),
        ("Edit", "gone.py", ""),
    ]
    assert [touched["action"] for touched in made.document["patched_files"]] == ["add", "move", "update", "delete"]


def test_a_unified_diff_is_read_too():
    found = patch_targets.touches("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/new.py\n+c\n")
    assert [(touch.path, touch.action) for touch in found] == [("x.py", "update"), ("new.py", "add")]


@pytest.mark.parametrize(
    "written", ["a\u2028/../.env", "a\x0c/../.env", "a\r/../.env", "\ufeff.env", ".env \ufeff", ".env:", ".env:x"]
)
def test_a_path_in_a_patch_is_the_one_that_the_tool_finds(written):
    found = patch_targets.touches(f"*** Begin Patch\n*** Update File: {written}\n+x\n*** End Patch")
    assert ".env" in {os.path.normpath(touch.path) for touch in found}
    assert {touch.after for touch in found} == {"x"}


def test_a_header_of_another_kind_hides_nothing_of_a_patch():
    found = patch_targets.touches("*** Add File: .env\n+a\n--- a/decoy\n+b\n*** Add File: decoy\n")
    assert next(touch.after for touch in found if touch.path == ".env") == "a\nb"


def test_claudes_events_keep_their_own_shape():
    given_event = {
        "hook_event_name": "PreToolUse", "session_id": "s", "cwd": "/w", "transcript_path": "/t",
        "permission_mode": "auto", "tool_name": "MultiEdit",
        "tool_input": {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]},
    }  # fmt: skip
    made = document(given_event, "claude")
    assert made["permission_mode"] == "auto"
    assert made["tool_input"]["edits"][0]["resolved_file_path"] == "/w/a"
    written = {**given_event, "tool_name": "Write", "tool_input": {"file_path": "a", "content": "c"}}
    assert document(written, "claude")["tool_input"]["new_string"] == "c"
    prompt = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/w", "prompt": "hi"}
    assert read("claude", prompt).tool == ""
    with pytest.raises(BadEvent):
        read("claude", {**given_event, "tool_name": None})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["command", "filePath", "path", "edits", "content", "patchText", "workdir", "x"]), JSON
)


@settings(max_examples=at_most(150), deadline=None)
@given(st.sampled_from([*TOOL_NAMES, "task", "apply_patch", "multiedit", "x"]), JSON | ARGUMENTS, JSON)
def test_no_event_of_any_shape_breaks_the_reader(tool, args, extra):
    try:
        made = read("opencode", {**policy_projects.event(tool, cwd="/nowhere"), "args": args, "extra": extra})
    except BadEvent as error:
        assert "must be" in str(error)  # noqa: PT017 - most shapes are events
    else:
        assert made.document["args"] == args


@pytest.mark.parametrize("harness", ["opencode", "claude", "anyplug"])
@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Read", {"filePath": ".env", "file_path": "README.md"}),
        ("Read", {"filePath": ".env", "path": ""}),
        ("Write", {"file_path": "a", "notebook_path": "b", "content": "x"}),
        ("NotebookEdit", {"notebook_path": "locked", "file_path": "x"}),
        ("Write", {"file_path": "a", "content": "EVIL", "new_string": "ok"}),
        ("Edit", {"file_path": "a", "newString": "EVIL", "new_string": "ok"}),
        ("Edit", {"file_path": "a", "oldString": "a", "old_string": "b"}),
        ("MultiEdit", {"file_path": "a", "edits": [{"newString": "EVIL", "new_string": "ok"}]}),
        ("multiedit", {"filePath": "a", "edits": [{"filePath": "locked", "file_path": "b"}]}),
        ("Grep", {"pattern": "x", "path": ".ssh", "file_path": "src"}),
        ("Bash", {"command": "npm publish", "cmd": "ls"}),
        ("Bash", {"command": "rm x", "workdir": "a", "cwd": "b"}),
        ("apply_patch", {"patchText": "*** Delete File: x", "patch": ""}),
    ],
)
def test_two_spellings_of_one_argument_must_be_equal(harness, tool, args):
    given_event = policy_projects.event() | {"tool": tool, "args": args, "tool_name": tool, "tool_input": args}
    with pytest.raises(BadEvent, match="must be equal"):
        read(harness, given_event)


def test_equal_spellings_and_empty_ones_hide_nothing():
    same = document(policy_projects.event("edit", filePath="a", file_path="a", newString="EVIL", new_string=None))
    assert (same["original_file_path"], same["tool_input"]["new_string"]) == ("a", "EVIL")


def test_a_call_of_an_unknown_tool_is_about_each_file_that_it_names():
    event = read("opencode", policy_projects.event("upload", path="a", file_path="b", files=["c"], destination="d"))
    seen = {event.document["original_file_path"], *(view["original_file_path"] for _, view in event.views)}
    assert seen == {"a", "b"}
    assert {os.path.basename(one) for one in event.document["named_files"]} == {"a", "b", "c", "d"}


def test_a_call_in_a_call_is_read_by_each_of_its_spellings():
    decoy = {"tool": "read", "name": "bash", "parameters": {"filePath": "a"}, "args": {"command": "npm publish"}}
    event = read("opencode", policy_projects.event("batch", tool_calls=[decoy]))
    assert ["npm", "publish"] in [view["commands"][0]["words"] for _, view in event.views if "commands" in view]
    text = policy_projects.event("batch", tool_calls='[{"tool": "write", "parameters": {"filePath": "x"}}]')
    assert [kind for kind, _ in read("opencode", text).views] == ["Write"]


@pytest.mark.parametrize(
    ("tool", "key", "patch", "actions"),
    [
        ("patch", "diff", "diff --git a/x b/x\ndeleted file mode 100644\n", {"x": "delete"}),
        ("apply_patch", "patch", "diff --git a/x b/y\nrename from x\nrename to y\n", {"x": "delete", "y": "move"}),
        ("apply_diff", "diff", "--- a/x\n+++ b/x\n-1\n+2\n", {"x": "update"}),
    ],
)
def test_a_patch_of_git_names_files_that_are_moved_or_removed(tool, key, patch, actions):
    found = document(policy_projects.event(tool, **{key: patch}))["patched_files"]
    assert {each["path"]: each["action"] for each in found} == actions


@each_row(
    "line",
    [
        "X=1 git push", "if true; then git push; fi", "for i in 1; do git push; done", "{ git push; }", "! git push",
        "time -p git push", "while git push; do break; done", "f() { git push; }; f", "function f { git push; }; f",
        "coproc git push", "coproc N { git push; }", "exec git push", "env A=b git push", "sudo -u root -E git push",
        "nice -n 5 git push", "timeout -k 5 60s env X=1 sudo git push", "echo | xargs git push", "git &>log push",
        "case x in x) git push;; esac", "find . -exec git push {} +", "trap 'git push' EXIT", "git > >(cat) push",
    ],
)  # fmt: skip
def test_the_name_of_a_command_is_its_programs_wherever_it_stands(line):
    commands = document(policy_projects.bash(line))["commands"]
    assert any(one["name"] == "git" and one["words"][:2] == ["git", "push"] for one in commands), commands
