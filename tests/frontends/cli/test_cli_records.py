"""`jobs`, `logs` and `audit`: what is kept of calls; and calls that are cut short."""

import csv
import hashlib
import io
import itertools
import json
import os
import pathlib
import signal
import sqlite3
import time

import pytest

import command_line
import daemons
import plugin_folders
import processes
from anyplug.audit.audit_log import Audit, Record
from anyplug.home import plugin_logs
from anyplug.home.database import Store

JOB = {"id", "tool", "state", "started", "progress", "result"}
WAITS = "#!/bin/sh\nexec sleep 60\n"


def slow(name="slow", **tool):
    """Give a plugin whose tool waits."""
    return plugin_folders.stavrobot("here", name, WAITS, tool=tool)


def started(*words):
    """Start a call of a slow tool."""
    process = command_line.start(*words)
    assert processes.until(command_line.waits)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_plugin_and_the_call_is_recorded_as_cancelled(number):
    process = started("-e", slow(), "call", "slow.act")
    process.send_signal(number)
    done = command_line.finish(process)
    assert (done.code, done.out, done.err.strip()) == (128 + number, "", "")
    assert not command_line.waits()
    assert command_line.last_record()["outcome"] == "cancelled"


def test_ctrl_c_at_a_terminal_ends_the_plugin():
    plugin = plugin_folders.cyclop("here", "slow", WAITS)
    with command_line.Terminal("-e", plugin, "call", "slow") as terminal:
        assert processes.until(command_line.waits)
        terminal.presses(b"\x03")
    assert terminal.code == 130
    assert not command_line.waits()
    assert command_line.last_record()["outcome"] == "cancelled"


def test_a_hang_up_that_was_to_be_ignored_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = started("-e", slow(), "call", "slow.act")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert command_line.finish(process).code == 128 + signal.SIGTERM
    assert not command_line.waits()


def test_one_record_is_shown_by_its_number():
    plugin = plugin_folders.cyclop("here", "greeter", plugin_folders.python("print(json.dumps({'result': 'hi'}))"))
    command_line.ok("-e", plugin, "call", "greeter", "--args", '{"name": "Ada"}')
    record = command_line.last_record()
    for number in ("1", "#1"):
        shown = command_line.ok("audit", number).out
        assert f"SHA-256 {record['arguments']}" in shown
        assert f"caller     {record['attachment']}\n" in shown
        assert "decided    allowed by named" in shown
        assert "landlock" in shown
    assert command_line.ok("audit", "1", "--json").json == record
    missing = command_line.run("audit", "9" * 30)
    assert (missing.code, "no record has the number 999" in missing.err) == (4, True)
    assert "hint: `anyplug audit` shows" in missing.err


def test_a_job_is_listed_shown_and_done():
    plugin = plugin_folders.stavrobot("here", "kit", "#!/bin/sh\necho '{\"n\": 1}'", tool={"async": True})
    done = command_line.ok("-e", plugin, "call", "kit.act", "--json").json
    (job,) = command_line.ok("jobs", "--json").json
    assert set(job) == JOB
    assert (job["tool"], job["state"], job["result"]["structured"]) == ("kit.act", "done", {"n": 1})
    assert done["metadata"]["job"] == job["id"]
    assert command_line.ok("jobs", job["id"], "--json").json == job
    assert '{"n": 1}' in command_line.ok("jobs", job["id"]).out
    assert "done" in command_line.ok("jobs").out
    done = command_line.fails(2, "jobs", job["id"], "--cancel")
    assert f"job {job['id']} is not running: it is done" in done.err


def test_a_failed_job_says_so():
    plugin = plugin_folders.stavrobot("here", "kit", "#!/bin/sh\necho broken >&2; exit 1", tool={"async": True})
    assert command_line.run("-e", plugin, "call", "kit.act").code == 1
    (job,) = command_line.ok("jobs", "--json").json
    assert (job["state"], job["result"]["error"]["code"]) == ("failed", "tool_error")
    assert "broken" in command_line.ok("jobs", job["id"]).out


def test_a_job_is_seen_and_cancelled_from_another_process():
    process = started("-e", slow(**{"async": True}), "call", "slow.act", "--json")
    (job,) = command_line.ok("jobs", "--json").json
    assert job["state"] == "running"
    assert job["result"] is None
    assert command_line.ok("jobs", job["id"], "--cancel").out == f"job {job['id']} is being cancelled\n"
    done = command_line.finish(process)
    assert (done.code, done.json["error"]["code"]) == (1, "cancelled")
    assert not command_line.waits()
    assert command_line.ok("jobs", job["id"], "--json").json["state"] == "cancelled"
    assert command_line.last_record()["outcome"] == "cancelled"


@pytest.mark.parametrize("hidden", ["", "\\033", "\u200b", "\u2060"])
def test_what_a_job_reports_is_seen_from_another_process_without_its_secrets(hidden):
    reports = "#!/bin/sh\nset -- $(sed 's/[^a-z0-9-]/ /g' ../config.json)\n"
    reports += f'printf "step 1 with %s{hidden}%s\\n" "${{3%%7*}}" "7${{3#*7}}" >&2; printf half >&2; exec sleep 60\n'
    config = {"api_key": {"description": "d", "required": True}}
    plugin = plugin_folders.stavrobot("here", "slow", reports, tool={"async": True}, config=config)
    plugin_folders.write(f"{plugin}/config.json", '{"api_key": "sk-4711-abcdef-0815"}')
    process = started("-e", plugin, "call", "slow.act")
    assert processes.until(lambda: command_line.ok("jobs", "--json").json[0]["progress"])
    (job,) = command_line.ok("jobs", "--json").json
    assert job["progress"].startswith("step 1 with ")
    assert "711" not in job["progress"]
    assert job["progress"] in command_line.ok("jobs").out
    assert job["progress"] in command_line.ok("jobs", job["id"]).out
    process.send_signal(signal.SIGTERM)
    command_line.finish(process)
    assert command_line.ok("jobs", "--json").json[0]["progress"] is None


def test_a_job_whose_host_was_killed_is_lost_and_so_is_its_process():
    process = started("-e", slow(**{"async": True}), "call", "slow.act")
    process.kill()
    process.communicate()
    assert processes.until(lambda: not command_line.waits())
    (job,) = command_line.ok("jobs", "--json").json
    assert job["state"] == "lost"
    assert "it is lost" in command_line.fails(2, "jobs", job["id"], "--cancel").err
    assert [record["outcome"] for record in command_line.ok("audit", "--kind", "call", "--json").json] == [
        "lost"
    ]  # from the first look on
    command_line.run("call", "nobody")
    outcomes = [record["outcome"] for record in command_line.ok("audit", "--kind", "call", "--json").json]
    assert outcomes == ["lost", "not_found"]
    assert command_line.ok("audit", "--verify").code == 0


def test_ctrl_c_on_a_job_leaves_it_cancelled():
    process = started("-e", slow(**{"async": True}), "call", "slow.act")
    process.send_signal(signal.SIGINT)
    assert command_line.finish(process).code == 130
    assert command_line.ok("jobs", "--json").json[0]["state"] == "cancelled"
    assert not command_line.waits()


def test_no_jobs_and_unknown_ones():
    assert command_line.ok("jobs").out == "No jobs.\n"
    assert command_line.ok("jobs", "--json").json == []
    assert "there is no job 'x'" in command_line.fails(4, "jobs", "x").err
    assert "--cancel needs the ID" in command_line.fails(2, "jobs", "--cancel").err


def noisy():
    return plugin_folders.cyclop("here", "noisy", '#!/bin/sh\necho "$NOISE" >&2\necho \'{"result": ""}\'')


def test_a_log_has_what_was_written_to_stderr(monkeypatch):
    plugin = noisy()
    for noise in ("first", "second"):
        monkeypatch.setenv("NOISE", noise)
        command_line.ok("-e", plugin, "call", "noisy")
    path = os.path.join(command_line.home(), "logs", "noisy.log")
    assert os.stat(path).st_mode & 0o777 == 0o600
    shown = command_line.ok("-e", plugin, "logs", "noisy").out
    assert [line for line in shown.splitlines() if line.startswith(" ")] == ["    first", "    second"]
    assert command_line.ok("logs", "noisy", "-n", "1").out == "    second\n"
    assert command_line.ok("logs", "noisy", "-n", "0").out == ""
    assert command_line.ok("logs", "noisy", "--json", "-n", "1").json == {"path": path, "lines": ["    second"]}
    assert "cannot be combined" in command_line.run("logs", "noisy", "-f", "--json").json["error"]["message"]


def test_an_empty_log_says_so():
    plugin_folders.cyclop("plugins", "hello")
    done = command_line.ok("logs", "hello")
    assert (done.out, "is empty" in done.err) == ("", True)


def test_a_log_cannot_be_read_out_of_the_logs_folder():
    plugin_folders.write(os.path.join(command_line.home(), "secret.log"), "x")
    assert command_line.run("logs", "../secret").code == 4
    assert command_line.run("logs", "..").code == 4


@pytest.mark.requirement("ZOT-52")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_log_is_followed_also_over_its_rotation_until_interrupted(number):
    path = os.path.join(command_line.home(), "logs", "noisy.log")
    plugin_folders.write(path, "old\n")
    process = command_line.start("-e", noisy(), "logs", "noisy", "-f", "-n", "1")
    lines = iter(process.stdout.readline, b"")
    assert next(lines) == b"old\n"
    with open(path, "a", encoding="utf-8") as log:
        log.write("näxt\n")
    assert next(lines) == "näxt\n".encode()
    with open(path, "a", encoding="utf-8") as log:
        log.write("last of the old\n")
    os.replace(path, f"{path}.1")
    plugin_folders.write(path, "first of the new\n")
    assert next(lines) == b"last of the old\n"
    assert next(lines) == b"first of the new\n"
    process.send_signal(number)
    assert command_line.finish(process).code == 128 + number


def test_a_log_that_is_rotated_several_times_between_two_looks_is_followed_whole():
    path = os.path.join(command_line.home(), "logs", "noisy.log")
    plugin_folders.write(path, "old\n")
    process = command_line.start("-e", noisy(), "logs", "noisy", "-f")
    assert process.stdout.readline() == b"old\n"
    lines = [f"{number} {'z' * 1000}\n".encode() for number in range(3 * plugin_logs.LARGEST // 1000)]
    for begin in range(0, len(lines), 100):  # in no time, while a look takes 0.2 s
        plugin_logs.append_raw(path, b"".join(lines[begin : begin + 100]))
    plugin_logs.append_raw(path, b"the end\n")
    assert list(iter(process.stdout.readline, b"the end\n")) == lines
    process.terminate()
    command_line.finish(process)


def test_the_last_lines_of_a_log_are_shown_also_if_it_was_just_rotated():
    path = os.path.join(command_line.home(), "logs", "noisy.log")
    plugin = noisy()
    for name, text in ((f"{path}.2", "one\n"), (f"{path}.1", "two\nthree\n")):
        plugin_folders.write(name, text)
    assert command_line.ok("-e", plugin, "logs", "noisy").out == "one\ntwo\nthree\n"
    plugin_folders.write(path, "four\n")
    assert command_line.ok("-e", plugin, "logs", "noisy", "-n", "2").out == "three\nfour\n"
    assert command_line.ok("-e", plugin, "logs", "noisy", "-n", "0").out == ""


def test_a_log_that_does_not_exist_yet_is_followed_too():
    process = command_line.start("-e", noisy(), "logs", "noisy", "-f")
    plugin_folders.write(os.path.join(command_line.home(), "logs", "noisy.log"), "hello\n")
    assert process.stdout.readline() == b"hello\n"
    process.terminate()
    command_line.finish(process)


def test_following_ends_when_nobody_reads_any_more():
    path = os.path.join(command_line.home(), "logs", "noisy.log")
    plugin_folders.write(path, "old\n")
    process = command_line.start("-e", noisy(), "logs", "noisy", "-f")
    assert process.stdout.readline() == b"old\n"
    process.stdout.close()
    plugin_folders.write(path, "old\nnew\n")
    assert process.wait(command_line.PATIENCE_S) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def calls():
    """Leave five records."""
    store = Store(os.path.join(command_line.home(), "anyplug.db"))
    trail = Audit(store)
    for number in range(1, 6):
        tool, outcome = ("hello", "done") if number < 5 else ("nobody", "not_found")
        plugin = "hello" if number < 5 else ""
        trail.end(Record(call=str(number), at=1.0, attachment="x", tool=tool, plugin=plugin, outcome=outcome))
    store.close()


def tamper(statement):
    connection = sqlite3.connect(os.path.join(command_line.home(), "anyplug.db"))
    with connection:
        connection.execute(statement)
    connection.close()


def test_every_call_leaves_one_record_and_none_has_what_was_said():
    plugin = plugin_folders.stavrobot("here", "kit", "#!/bin/sh\ncat")
    command_line.ok("-e", plugin, "call", "kit.act", "text=swordfish")
    command_line.run("call", "nobody")
    first, second = command_line.ok("audit", "--kind", "call", "--json").json
    assert {"at", "plugin", "digest", "tool", "arguments", "verdict", "by", "outcome", "duration_ms", "output"} <= set(
        first
    )
    assert (first["outcome"], first["by"], second["outcome"]) == ("done", "named", "not_found")
    with open(os.path.join(command_line.home(), "anyplug.db"), "rb") as file:
        assert b"swordfish" not in file.read()
    assert command_line.ok("audit", "--verify").out == "2 records, the chain is intact\n"


def test_records_can_be_looked_for():
    calls()
    assert [r["number"] for r in command_line.ok("audit", "--kind", "call", "--json", "-n", "2").json] == [4, 5]
    assert [
        r["number"] for r in command_line.ok("audit", "--kind", "call", "--json", "--plugin", "hello", "-n", "1").json
    ] == [4]
    assert [r["number"] for r in command_line.ok("audit", "--kind", "call", "--json", "--tool", "nobody").json] == [5]
    assert "not_found" in command_line.ok("audit").out
    assert command_line.ok("audit", "--verify", "--json").json == {"records": 5, "intact": True, "broken": []}


def ruled():
    """Leave records of all who can have a say, an hour apart, the last one now."""
    store = Store(os.path.join(command_line.home(), "anyplug.db"))
    trail = Audit(store)
    rule = "policy:SHORT-TEXTS .cupcake/policies/network.rego:16"
    said = (
        {"verdict": "allowed", "by": "approval"},
        {"verdict": "denied", "by": "guard:hush", "reason": "secrets\nstay here", "outcome": "denied"},
        {"verdict": "denied", "by": rule, "reason": "only short texts", "outcome": "denied"},
        {
            "verdict": "allowed",
            "by": "person",
            "reason": "once",
            "notes": ("hush rewrote it: not so loud",),
            "notes_by": ("guard:hush",),
        },
        {
            "verdict": "allowed",
            "by": "named",
            "notes": (f"{rule} changed the arguments: shorter",),
            "notes_by": (rule,),
        },
        {
            "verdict": "allowed",
            "by": "approval",
            "notes": ("the guard 'late' gave no usable answer; it was skipped",),
            "notes_by": ("guard:late",),
        },
    )
    for number, more in enumerate(said, 1):
        at = time.time() - 3600 * (len(said) - number)
        trail.end(Record(**{"call": str(number), "at": at, "attachment": "x", "tool": "t", "outcome": "done", **more}))
    store.close()


def numbers(*words):
    return [record["number"] for record in command_line.ok("audit", "--json", *words).json]


def test_the_table_says_why_a_call_was_refused_and_who_changed_it_or_was_passed_over():
    ruled()
    lines = command_line.ok("audit").out.splitlines()
    below = {int(row.split()[0]): note.strip() for row, note in itertools.pairwise(lines) if note.startswith("   ")}
    assert below == {
        2: "because: secrets\\nstay here",
        3: "because: only short texts",
        4: "hush rewrote it: not so loud",
        5: "policy:SHORT-TEXTS .cupcake/policies/network.rego:16 changed the arguments: shorter",
        6: "the guard 'late' gave no usable answer; it was skipped",
    }


def test_records_can_be_looked_for_by_who_decided_how_it_ended_and_when():
    ruled()
    assert numbers("--by", "hush") == numbers("--by", "guard:hush") == [2, 4]
    assert numbers("--by", "SHORT-TEXTS") == numbers("--by", "policy") == [3, 5]
    assert (numbers("--by", "person"), numbers("--by", "late")) == ([4], [6])
    assert numbers("--outcome", "denied") == [2, 3]
    assert numbers("--outcome", "denied", "-n", "1") == [3]
    assert numbers("--since", "150m") == [4, 5, 6]
    assert numbers("--since", time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 5400))) == [5, 6]
    assert numbers("--since", "2000-01-01") == [1, 2, 3, 4, 5, 6]
    assert command_line.ok("audit", "--by", "nobody").out == "No recorded call matches.\n"


def test_whatever_the_table_prints_can_be_searched_for():
    ruled()
    store = Store(os.path.join(command_line.home(), "anyplug.db"))
    Audit(store).end(
        Record(call="7", at=time.time(), attachment="mcp-1f", agent="claude-code", tool="nobody", outcome="not_found")
    )
    store.close()
    lines = command_line.ok("audit").out.splitlines()
    columns = {name: lines[0].index(name) for name in ("#", "OUTCOME", "TOOK", "CALLER", "BY", "TOOL")}
    for line in (line for line in lines[1:] if not line.startswith(" ")):
        number = int(line.split()[0])
        assert number in numbers("--caller", line[columns["CALLER"] : columns["BY"]].strip())
        assert number in numbers("--by", line[columns["BY"] : columns["TOOL"]].strip())
        assert number in numbers("--tool", line[columns["TOOL"] :].strip())
        assert number in numbers("--outcome", line[columns["OUTCOME"] : columns["TOOK"]].strip())
    assert numbers("--by", "policy:SHORT-TEXTS") == numbers("--by", ".cupcake/policies/network.rego:16") == [3, 5]
    assert numbers("--by", "-") == [7]


def test_a_table_says_how_many_records_it_leaves_out_and_programs_get_all():
    store = Store(os.path.join(command_line.home(), "anyplug.db"))
    trail = Audit(store)
    for number in range(60):
        trail.end(Record(call=str(number), at=number + 1.0, attachment="cli-1", tool="t", outcome="done"))
    store.close()
    done = command_line.ok("audit")
    assert len(done.out.splitlines()) == 51
    assert "10 older records not shown; `-n 60` shows all" in done.err
    assert command_line.ok("audit", "-n", "60").err == ""
    assert len(numbers()) == 60
    assert len(command_line.ok("audit", "export").out.splitlines()) == 60
    assert numbers("-n", "2") == [59, 60]


def teamwork():
    """Leave records of two agents in two projects, and of an agent's own tool."""
    store = Store(os.path.join(command_line.home(), "anyplug.db"))
    trail = Audit(store)
    now = time.time()
    rule = "policy:NO-PUSH .cupcake/policies/git.rego:3"
    for number, more in enumerate(
        (
            {"attachment": "mcp-aa", "agent": "claude-code", "project": "/work/shop", "plugin": "kit"},
            {"attachment": "mcp-bb", "agent": "codex-mcp-client", "project": "/work/shop/api", "plugin": "kit"},
            {"attachment": "extension-hush-cc", "callers": ("mcp-aa", "hush/ask"), "project": "/work/shopping"},
            {
                "attachment": "claude:s1", "agent": "claude", "project": "/work/shop", "tool": "Bash", "by": rule,
                "verdict": "denied", "outcome": "denied", "reason": "=cmd()", "format": "claude",
            },
        ),
        1,
    ):  # fmt: skip
        usual = {"call": str(number), "at": now - 86400 * (4 - number), "tool": "kit.go", "outcome": "done"}
        trail.end(Record(**{**usual, **more}))
    store.close()


def test_a_lead_finds_calls_by_agent_caller_project_and_time():
    teamwork()
    assert numbers("--agent", "claude") == [1, 4]
    assert numbers("--caller", "codex-mcp-client") == numbers("--caller", "mcp-bb") == [2]
    assert numbers("--caller", "hush") == [3]
    assert numbers("--project", "/work/shop") == [1, 2, 4]
    assert numbers("--since", "60h", "--until", "12h") == [2, 3]


def test_a_summary_counts_by_tool_plugin_caller_outcome_and_rule():
    teamwork()
    text = command_line.ok("audit", "summary", "--since", "7d").out
    assert "4 records from" in text
    assert "1 refused, 0 failed" in text
    for heading in ("OUTCOME", "TOOL", "PLUGIN", "CALLER", "PROJECT", "RULE"):
        assert f"\n{heading}\n" in text
    assert f"  kit.go  3  {chr(0x2588) * 24}\n  Bash    1  {chr(0x2588) * 8}\n" in text
    counted = command_line.ok("audit", "summary", "--project", "/work/shop", "--json").json
    assert counted["records"] == 3
    assert counted["by"]["rule"] == {"NO-PUSH": 1}
    assert counted["by"]["caller"] == {"claude": 1, "codex-mcp-client": 1, "claude-code": 1}
    assert command_line.ok("audit", "summary", "--tool", "nothing").out == "No recorded call matches.\n"


def test_an_export_is_read_by_other_programs_and_never_as_a_formula():
    teamwork()
    lines = [json.loads(line) for line in command_line.ok("audit", "export").out.splitlines()]
    assert [line["number"] for line in lines] == [1, 2, 3, 4]
    rows = list(csv.DictReader(io.StringIO(command_line.ok("audit", "export", "--format", "csv").out)))
    assert [row["tool"] for row in rows] == ["kit.go", "kit.go", "kit.go", "Bash"]
    assert rows[2]["callers"] == "mcp-aa > hush/ask"
    assert rows[3]["reason"] == "'=cmd()"
    assert rows[3]["time"].endswith("Z")
    done = command_line.ok("audit", "export", "--agent", "codex", "-n", "5")
    assert [json.loads(line)["number"] for line in done.out.splitlines()] == [2]


def test_old_records_go_and_the_rest_can_still_be_verified():
    teamwork()
    command_line.ok("audit", "--head")
    assert "--yes" in command_line.fails(3, "audit", "prune", "--before", "60h").err
    assert command_line.fails(2, "audit", "prune").err
    assert command_line.ok("audit", "prune", "--before", "60h", "--yes").out.startswith("1 record removed")
    assert numbers() == [2, 3, 4, 5]
    pruned = command_line.ok("audit", "--tool", "audit prune", "--json").json
    assert [(record["by"], record["outcome"]) for record in pruned] == [("person", "done")]
    assert command_line.ok("audit", "--verify").out == "4 records, the chain is intact\n"
    calls()  # the chain goes on
    assert command_line.ok("audit", "--verify").out == "9 records, the chain is intact\n"
    tamper("DELETE FROM audit WHERE number = 2")
    assert "record 2: record 2 is missing" in command_line.run("audit", "--verify").out


def test_settings_remove_old_records_when_a_host_starts():
    teamwork()
    with open(os.path.join(command_line.home(), "settings.toml"), "w", encoding="utf-8") as file:
        file.write("[audit]\nkeep_days = 2\nkeep_mb = 1\n")
    plugin = plugin_folders.stavrobot("here", "kit", "#!/bin/sh\ncat")
    command_line.ok("-e", plugin, "call", "kit.act", "text=x")
    assert [record["tool"] for record in command_line.ok("audit", "--json").json] == [
        "kit.go", "Bash", "audit prune", "kit.act"
    ]  # fmt: skip
    assert command_line.ok("audit", "--verify").code == 0


def test_whose_a_note_is_does_not_follow_from_its_words():
    ruled()
    assert numbers("--by", "the") == []  # as an extension may be called
    assert numbers("--by", "guard") == [2, 4, 6]


def test_each_of_several_rules_that_refused_a_call_is_found():
    store = Store(os.path.join(command_line.home(), "anyplug.db"))
    by = "policy:NO-SECRETS,SHORT-TEXTS .cupcake/policies/network.rego:16"
    Audit(store).end(Record(call="1", at=1.0, attachment="x", tool="t", verdict="denied", by=by, outcome="denied"))
    store.close()
    assert numbers("--by", "NO-SECRETS") == numbers("--by", "SHORT-TEXTS") == [1]


def test_a_record_from_before_a_field_was_added_is_read_as_it_is():
    calls()
    database = sqlite3.connect(os.path.join(command_line.home(), "anyplug.db"))
    previous, number = "0" * 64, 0
    for (given,) in database.execute("SELECT record FROM audit ORDER BY number").fetchall():
        kept = json.loads(given)
        del kept["notes_by"]
        number, record = number + 1, json.dumps(kept).encode()
        own = hashlib.sha256(previous.encode() + b"\n" + record).hexdigest()
        values = (record, previous, own, number)
        database.execute("UPDATE audit SET record=?, previous=?, hash=? WHERE number=?", values)
        previous = own
    database.commit()
    database.close()
    command_line.ok("audit", "--reseal")
    assert command_line.ok("audit", "--verify").out == "5 records, the chain is intact\n"
    assert [record["notes_by"] for record in command_line.ok("audit", "--kind", "call", "--json").json] == [[]] * 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", "0"], "'0' is not a number of records (1 or more)"),
        (["-n", "-3"], "'-3' is not a number of records"),
        (["--since", "someday"], "'someday' is neither a span such as 30m, 2h or 3d nor yesterday, nor a date"),
        (["--outcome", "refused"], "invalid choice: 'refused'"),
    ],
)
def test_what_no_record_can_fit_is_a_usage_error(words, message):
    assert message in command_line.fails(2, "audit", *words).err


def test_without_calls_the_trail_is_empty_and_intact():
    assert command_line.ok("audit").out == "No calls are recorded.\n"
    assert command_line.ok("audit", "--kind", "call", "--json").json == []
    assert command_line.ok("audit", "--verify").out == "0 records, the chain is intact\n"


@pytest.mark.parametrize(
    ("statement", "places"),
    [
        ("UPDATE audit SET record = CAST(replace(record, 'done', 'odd!') AS BLOB) WHERE number = 2", [2]),
        ("UPDATE audit SET record = replace(record, 'done', 'odd!') WHERE number = 2", [2]),
        ("UPDATE audit SET record = x'ff00' WHERE number = 2", [2]),
        ("UPDATE audit SET hash = 'x' WHERE number = 2", [2, 3]),
        ("UPDATE audit SET hash = x'00', previous = 7 WHERE number = 2", [2, 3]),
        ("DELETE FROM audit WHERE number = 3", [3]),
        ("DELETE FROM audit WHERE number IN (2, 3)", [2]),
        ("DELETE FROM audit WHERE number = 5", [5]),
        ("DELETE FROM audit", [1]),
    ],
)
def test_tampering_is_found_at_its_place(statement, places):
    calls()
    tamper(statement)
    told = command_line.run("audit", "--verify", "--json")
    assert told.code == 1
    assert sorted({place["number"] for place in told.json["broken"]}) == places
    assert not told.json["intact"]


def test_a_broken_chain_is_an_error_that_says_where():
    calls()
    tamper("DELETE FROM audit WHERE number = 3")
    done = command_line.run("audit", "--verify")
    assert (done.code, done.out) == (1, "record 3: record 3 is missing\n")
    assert "error: the chain of 4 records is broken in 1 place\nhint: " in done.err


def test_a_record_that_was_made_unreadable_does_not_hide_the_others():
    calls()
    tamper("UPDATE audit SET record = x'ff00' WHERE number = 2")
    records = command_line.ok("audit", "--kind", "call", "--json").json
    assert [record["number"] for record in records if record["outcome"] == "done"] == [1, 3, 4]


def test_a_head_that_is_older_than_all_records_is_no_sign_of_tampering():
    plugin_folders.cyclop("plugins", "hello")
    command_line.ok("approve", "hello", "--yes")
    kept = command_line.ok("audit", "--head").out
    for _ in range(2):
        command_line.ok("call", "hello")
    command_line.ok("audit", "prune", "--before", "0d", "--yes")
    told = command_line.run("audit", "--verify", "--against", "-", stdin=kept)
    assert told.code == 1
    assert "cannot be compared" in told.out
    assert "is intact, but that head is older than all of them" in told.err
    assert "reseal" not in told.err


def test_a_head_that_was_kept_elsewhere_is_checked_against(tmp_path):
    plugin = plugin_folders.cyclop("here", "hello", '#!/bin/sh\necho \'{"result": "hi"}\'\n')
    command_line.ok("-e", plugin, "call", "hello")
    kept = command_line.ok("audit", "--head").out
    assert json.loads(kept)["number"] == 1
    (tmp_path / "kept").write_text(kept)
    command_line.ok("-e", plugin, "call", "hello")
    assert (
        command_line.ok("audit", "--verify", "--against", str(tmp_path / "kept")).out
        == "2 records, the chain is intact\n"
    )
    command_line.ok("audit", "--verify", "--against", "-", stdin=kept)
    os.unlink(os.path.join(command_line.home(), "anyplug.db"))
    done = command_line.run("audit", "--verify")
    assert done.code == 1
    assert "the records 1 to 2 are missing" in done.out
    assert "`anyplug audit --reseal`" in done.err
    assert command_line.ok("audit", "--reseal").out == "The chain is sealed as it is now.\n"
    assert command_line.ok("audit", "--verify").out == "0 records, the chain is intact\n"
    assert command_line.run("audit", "--verify", "--against", str(tmp_path / "kept")).code == 1
    assert "broken" in command_line.run("audit", "--verify", "--against", str(tmp_path / "kept")).err
    assert "--against needs --verify" in command_line.fails(2, "audit", "--against", "x").err


def test_a_job_that_nobody_waits_for_runs_on_in_the_daemon():
    held = '#!/bin/sh\nwhile [ ! -e "$HOME/go" ]; do sleep 0.05; done\necho late\n'
    kit = plugin_folders.stavrobot(
        "here", "kit", tools={"act": held, "bare": "#!/bin/sh\necho now"}, tool={"async": True}
    )
    bare = json.loads(pathlib.Path(kit, "bare", "manifest.json").read_text())
    plugin_folders.write(f"{kit}/bare/manifest.json", json.dumps(bare | {"async": False}))
    refused = command_line.fails(2, "-e", kit, "call", "kit.act", "--no-wait")
    assert "`anyplug serve --detach` starts it" in refused.err
    with daemons.resident():
        said = command_line.ok("-e", kit, "call", "kit.act", "--no-wait")
        (job,) = command_line.ok("jobs", "--json").json
        assert (job["state"], job["id"] in said.out) == ("running", True)
        assert f"`anyplug jobs {job['id']}`" in said.err
        plugin_folders.write(os.path.join(command_line.home(), "data", "kit", "home", "go"), "")
        assert processes.until(lambda: command_line.ok("jobs", job["id"], "--json").json["state"] != "running")
        assert "late" in command_line.ok("jobs", job["id"]).out
        assert "not asynchronous" in command_line.ok("-e", kit, "call", "kit.bare", "--no-wait").err


def test_words_that_people_type_first_are_understood_by_audit(cyclop):
    command_line.ok("-e", cyclop(), "call", "hello")
    assert len(command_line.ok("audit", "--kind", "call", "--json", "--since", "yesterday").json) == 1
    assert command_line.ok("audit", "--kind", "call", "--json", "--until", "yesterday").json == []
    assert command_line.ok("audit", "verify").out == command_line.ok("audit", "--verify").out


def test_decisions_about_plugins_are_in_the_audit_between_the_calls():
    source = plugin_folders.cyclop("sources", "hello")
    command_line.ok("install", source, "--yes")
    command_line.ok("call", "hello")
    command_line.ok("disable", "hello")
    command_line.ok("enable", "hello")
    command_line.ok("revoke", "hello")
    command_line.ok("remove", "hello", "--yes")
    shown = command_line.ok("audit").out
    assert shown.index("install hello") < shown.index("approve hello") < shown.index("disable hello")
    decided = command_line.ok("audit", "--kind", "trust", "--json").json
    assert [record["tool"] for record in decided] == ["install", "approve", "disable", "enable", "revoke", "remove"]
    assert {record["attachment"] for record in decided} == {"cli"}
    assert {os.path.basename(record["folder"]) for record in decided} == {"hello"}
    assert any(source in note for note in decided[0]["notes"])
    assert [record["tool"] for record in command_line.ok("audit", "--kind", "call", "--json").json] == ["hello"]
    summary = command_line.ok("audit", "summary")
    assert "0 refused, 0 failed, and 6 decisions about plugins" in summary.out
    assert "DECISION" in summary.out
    assert command_line.ok("audit", "summary", "--json").json["by"]["tool"] == {"hello": 1}
    assert "intact" in command_line.ok("audit", "verify").out
