"""The API over HTTP: what a person's page does, from the installation of a plugin to its removal."""

import io
import os
import re
import threading
import urllib.parse
import zipfile

from hypothesis import given
from hypothesis import strategies as st

import plugin_folders
import processes
import zot_folders
from anyplug.frontends.console import metrics
from command_line import ok
from consoles import Console, console, with_token

COUNT = plugin_folders.python('print(json.dumps({"result": str(len(given["input"]["text"]))}))')
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def counter(root: str, **changes) -> str:
    tools = [{"name": "count", "description": "Counts letters.", "input_schema": TEXT}]
    return plugin_folders.cyclop(root, "counter", COUNT, **{"tools": tools, **changes})


def installed(page: Console, source: str) -> str:
    """Install a folder; return the plugin's id."""
    begun = page.post("/installs", {"source": source})
    return ended(page, begun["id"])["plugin"]


def ended(page: Console, name: str) -> dict:
    assert processes.until(lambda: page.get(f"/installs/{name}")["state"] in {"installed", "failed"})
    return page.get(f"/installs/{name}")


def approved(page: Console, plugin: str, **more) -> dict:
    digest = page.get(f"/plugins/{plugin}")["digest"]
    return page.post(f"/plugins/{plugin}/approve", {"digest": digest, **more})


def test_from_install_to_removal(root):
    source = counter(root)
    with console() as page, page.events() as events:
        assert events.next()[0] == "hello"
        plugin = installed(page, source)
        assert events.until("plugin_found")["id"] == plugin
        shown = page.get(f"/plugins/{plugin}")
        assert (shown["state"], shown["is_installed"]) == ("new", True)
        assert shown["approval_text"]["title"].startswith("Approve counter 1.0.0?")
        refused = page.post("/tools/count/call", {"arguments": {"text": "abc"}})
        assert (refused["error"]["code"], refused["cure"]["action"]) == ("not_approved", "approve")

        assert approved(page, plugin)["plugin"]["state"] == "approved"
        done = page.post("/tools/count/call", {"arguments": {"text": "abc"}, "id": "mine"})
        assert (done["text"], done["id"], done["is_error"]) == ("3", "mine", False)
        assert done["gates"] == [{"by": "approval", "allowed": True, "reason": ""}]
        assert events.until("call_started")["id"] == "mine"
        assert events.until("call_ended")["call"] == done["call"]
        record = page.get(f"/records/{done['record']}")
        assert record["call"] == done["call"] == page.get(f"/records/{done['call']}")["call"]
        assert [item["number"] for item in page.get("/records?tool=count&outcome=done")["items"]] == [done["record"]]
        assert page.get("/records?kind=trust")["items"][0]["tool"] == "approve"
        assert page.get("/stats?since=1d")["tools"][0]["tool"] == "count"

        folder = shown["path"]
        script = COUNT.replace("len(", "2 * len(")
        plugin_folders.write(os.path.join(folder, "run"), script, 0o755)
        page.post("/reload")
        assert page.get(f"/plugins/{plugin}")["state"] == "changed"
        changes = page.get(f"/plugins/{plugin}/changes")
        assert [file["path"] for file in changes["files"]] == ["run"]
        assert "+print(json.dumps" in changes["files"][0]["diff"]
        approved(page, plugin)
        assert page.post("/tools/count/call", {"arguments": {"text": "abc"}})["text"] == "6"

        assert page.post(f"/plugins/{plugin}/disable")["plugin"]["state"] == "disabled"
        assert page.post(f"/plugins/{plugin}/enable")["plugin"]["state"] == "approved"
        assert page.post(f"/plugins/{plugin}/revoke")["plugin"]["state"] == "new"
        assert page.post(f"/plugins/{plugin}/deny")["message"] == "counter is denied"
        assert folder in page.get(f"/plugins/{plugin}/removal")["going"]
        assert page.ask("DELETE", f"/plugins/{plugin}", {}).json["name"] == "counter"
        assert page.ask("GET", f"/plugins/{plugin}").code == "not_found"


def test_an_approval_is_of_what_the_person_saw(root):
    with console() as page:
        plugin = installed(page, counter(root))
        seen = page.get(f"/plugins/{plugin}")
        plugin_folders.write(os.path.join(seen["path"], "run"), "#!/bin/sh\necho other\n", 0o755)
        said = page.ask("POST", f"/plugins/{plugin}/approve", {"digest": seen["digest"]})
        assert (said.status, said.code) == (409, "conflict")
        assert page.get(f"/plugins/{plugin}")["state"] == "new"


def test_an_approval_without_a_digest_is_not_said_to_be_of_other_files(root):
    with console() as page:
        said = page.ask("POST", f"/plugins/{installed(page, counter(root))}/approve", {"digest": ""})
        assert (said.status, said.code) == (409, "conflict")
        assert "could not be read" in said.json["error"]["message"], said.json


def test_a_zip_is_installed_like_a_folder(root):
    source, content = counter(root), io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("plugin.json", "run"):
            archive.write(os.path.join(source, name), f"counter/{name}")
    with console() as page:
        sent = {"content-type": "application/zip"}
        begun = page.ask("POST", "/installs", content.getvalue(), sent)
        assert begun.status == 202
        found = ended(page, begun.json["id"])
        assert found["name"] == "counter"
        refused = page.ask("POST", f"/plugins/{found['plugin']}/update", {}).json["error"]
        assert refused["message"].startswith("'counter' was installed from a zip archive")
        assert "anyplug remove counter" in refused["hint"]
        broken = page.ask("POST", "/installs", b"no archive", sent).json
        assert ended(page, broken["id"])["error"]["code"] == "install_failed"
        assert ended(page, page.post("/installs", {"source": "/nowhere"})["id"])["state"] == "failed"


def test_grants_and_configuration_are_changed_and_secrets_stay(root):
    source = plugin_folders.stavrobot(
        root,
        "weather",
        config={
            "API_KEY": {"description": "Your key", "required": True},
            "UNITS": {"description": "metric or not", "required": False},
        },
        permissions=["*"],
    )
    with console() as page:
        plugin = installed(page, source)
        approved(page, plugin)
        given = page.ask("PUT", f"/plugins/{plugin}/config", {"values": {"API_KEY": "s3cret-key", "UNITS": "metric"}})
        assert given.status == 200
        keys = {key["name"]: key for key in given.json["keys"]}
        assert (keys["API_KEY"]["set"], keys["API_KEY"]["value"]) == (True, None)
        assert keys["UNITS"]["value"] == "metric"
        page.ask("PUT", f"/plugins/{plugin}/config", {"values": {"UNITS": "imperial"}})
        for path in ("config", ""):
            assert b"s3cret-key" not in page.ask("GET", f"/plugins/{plugin}/{path}".rstrip("/")).body
        assert page.get(f"/plugins/{plugin}")["missing_config"] == []
        now = page.ask("PUT", f"/plugins/{plugin}/grants", {"granted": ["network", "filesystem:read:/tmp"]}).json
        assert now["granted"] == ["network", "filesystem:read:/tmp"]
        rows = {row["permission"]: row for row in page.get(f"/plugins/{plugin}")["permission_rows"]}
        assert (rows["filesystem:read:/tmp"]["asked"], rows["filesystem:read:/tmp"]["granted"]) == (False, True)
        wrong = page.ask("PUT", f"/plugins/{plugin}/grants", {"granted": ["netwrok"]})
        assert (wrong.status, wrong.code) == (400, "usage")


def test_tools_are_searched_and_paged(root):
    tools = [{"name": f"tool_{n}", "description": "Does it.", "input_schema": TEXT} for n in range(30)]
    with console() as page:
        approved(page, installed(page, counter(root, tools=tools)))
        first = page.get("/tools?limit=20&schemas=0")
        assert (len(first["items"]), first["total"]) == (20, 30)
        assert first["items"][0]["input_schema"] is None
        assert len(page.get(f"/tools?limit=20&cursor={first['next']}")["items"]) == 10
        assert page.get("/tools?q=tool_7")["items"][0]["name"] == "tool_7"
        assert page.get("/tools/tool_7")["arguments"] == "warn"
        assert page.ask("GET", "/tools/no_tool").code == "not_found"


def test_a_preview_runs_nothing(root):
    marker = os.path.join(root, "ran")
    script = plugin_folders.python(f"open({marker!r}, 'w'); print('{{}}')")
    source = plugin_folders.cyclop(root, "careful", script, permissions=["filesystem:write"])
    with console() as page:
        approved(page, installed(page, source))
        seen = page.post("/tools/careful/dry-run", {"arguments": {"x": "it's"}})
        assert (seen["allowed"], seen["would_ask"], seen["why_not"]) == (True, True, None)
        assert seen["request"]["kind"] == "program"
        assert "it's" in seen["request"]["stdin"]
        assert "PATH" in seen["request"]["environment"]
        assert seen["as_command"].startswith("anyplug call careful --args ")
        assert not os.path.exists(marker)
        assert page.get("/records?kind=call")["items"] == []
        assert page.post("/tools/nothing/dry-run")["why_not"]["code"] == "not_found"


def test_a_call_is_cancelled_by_the_id_that_its_client_chose(root):
    script = plugin_folders.python("time.sleep(60)")
    answers: list = []
    with console() as page:
        approved(page, installed(page, plugin_folders.cyclop(root, "slow", script)))
        calling = threading.Thread(target=lambda: answers.append(page.post("/tools/slow/call", {"id": "c-1"})))
        calling.start()
        assert processes.until(lambda: [call["id"] for call in page.get("/calls")["items"]] == ["c-1"])
        same = page.ask("POST", "/tools/slow/call", {"id": "c-1"})
        assert same.code == "conflict"
        assert page.ask("DELETE", "/calls/c-1", {}).json == {"cancelled": True}
        calling.join()
        assert answers[0]["error"]["code"] == "cancelled"
        assert answers[0]["duration_ms"] > 0
        assert page.ask("DELETE", "/calls/c-1", {}).code == "not_found"


def test_a_chain_tells_of_each_step(root):
    steps = [
        {"tool": "count", "input": {"text": "abc"}, "outputKey": "a"},
        {"tool": "count", "input": {"text": "{{a.content}}"}},
    ]
    with console() as page, page.events() as events:
        approved(page, installed(page, counter(root)))
        done = page.post("/chains", {"steps": steps, "id": "chain-1"})
        assert done["success"]
        assert [step["text"] for step in done["steps"]] == ["3", "1"]
        assert events.until("chain_step")["step"] == 1
        assert page.ask("POST", "/chains", {"steps": []}).code == "usage"


def test_the_page_answers_a_question_of_an_agent_and_only_the_first_answer_counts(root):
    source = plugin_folders.cyclop(root, "careful", permissions=["filesystem:write"])
    answers: list = []
    with console() as page:
        approved(page, installed(page, source))
        program = with_token()
        denied = program.post("/tools/careful/call")
        assert denied["error"]["code"] == "denied", "nobody watches yet"
        with page.events() as events:
            events.until("hello")
            calling = threading.Thread(target=lambda: answers.append(program.post("/tools/careful/call")))
            calling.start()
            question = events.until("question")
            assert question["texts"]["title"] == "careful wants to run careful, for this caller."
            assert [item["id"] for item in page.get("/questions")["items"]] == [question["id"]]
            always = program.ask("POST", f"/questions/{question['id']}/answer", {"word": "always"})
            assert (always.status, always.code) == (403, "denied")
            page.post(f"/questions/{question['id']}/answer", {"word": "once"})
            calling.join()
            late = page.ask("POST", f"/questions/{question['id']}/answer", {"word": "no"})
            assert (late.status, late.json["answered"]["word"]) == (409, "once")
            assert events.until("answered")["by"] == "console"
        assert not answers[0]["is_error"]
        record = page.get("/records?limit=1")["items"][0]
        assert (record["by"], record["reason"]) == ("person", "once, in the console")


def test_events_go_on_where_they_were_and_start_over_after_too_long(root):
    with console() as page:
        approved(page, installed(page, counter(root)))
        with page.events() as events:
            events.until("hello")
            page.post("/tools/count/call", {"arguments": {"text": "a"}})
            events.until("call_started")
            last = events.last
            page.post("/tools/count/call", {"arguments": {"text": "bb"}, "id": "second"})
        with page.events(last) as events:
            events.until("hello")
            assert events.until("call_ended")["id"] == ""
            assert events.until("call_started")["id"] == "second"
        with page.events("0000-17") as events:
            events.until("hello")
            assert events.next()[0] == "reset"


def test_commands_panels_and_notes_of_an_extension(root):
    script = """
hello("commands", "panels")
command("board")
emit("ready")
lines = []
for frame in heard():
    if frame["type"] == "command_invoked":
        emit("notify", level="info", message="opening")
        emit("command_response", id=frame["id"], action="open_panel",
             open_panel={"id": "p", "title": "Board", "lines": ["empty"], "footer": ""})
    elif frame["type"] == "panel_key":
        lines.append(frame.get("text") or frame["key"])
        emit("panel_render", panel_id="p", title="Board", lines=lines, footer="")
"""
    with console() as page:
        source = zot_folders.extension(root, "board", script)
        approved(page, installed(page, source), always=True)
        assert processes.until(lambda: page.get("/commands")["items"])
        with page.events() as events:
            events.until("hello")
            outcome = page.post("/commands", {"line": "/board"})
            assert (outcome["action"], outcome["panel"]["title"]) == ("open_panel", "Board")
            assert events.until("note")["message"] == "opening"
            assert [panel["id"] for panel in page.get("/panels")["items"]] == ["p"]
            page.post("/panels/board/p/keys", {"keys": [["rune", "a"], ["up", ""]], "paste": "bc"})
            while events.until("panel")["lines"] != ["a", "up", "b", "c"]:
                pass
            assert page.ask("DELETE", "/panels/board/p", {}).status == 204
        assert page.get("/panels")["items"] == []
        assert page.get("/plugins/board")["process"]["health"] == "running"
        page.post("/plugins/board/reload")
        assert page.get("/plugins/board/logs")["path"].endswith("board.log")


POLICY = """# METADATA
# scope: package
# custom:
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.anyplug.short

import rego.v1

deny contains decision if {
    count(input.tool_input.text) > 3
    decision := {"rule_id": "SHORT", "reason": "too long", "severity": "HIGH"}
}
"""


def test_policies_are_listed_tried_and_replayed(root, tmp_path, monkeypatch):
    project = tmp_path / "project"
    plugin_folders.write(str(project / ".cupcake" / "policies" / "anyplug" / "short.rego"), POLICY)
    monkeypatch.chdir(project)
    ok("policy", "trust", "--yes")
    with console() as page:
        approved(page, installed(page, counter(root)))
        assert page.get("/status")["policies"]
        listed = page.get("/policies")
        assert [policy["package"] for policy in listed["policies"]] == ["cupcake.policies.anyplug.short"]
        assert listed["is_valid"]
        event = {"tool": "count", "args": {"text": "abcdef"}}
        tried = page.post("/policies/try", {"event": event, "harness": "anyplug"})
        assert (tried["decision"], tried["findings"][0]["rule_id"]) == ("deny", "SHORT")
        assert page.post("/tools/count/call", {"arguments": {"text": "abcdef"}})["error"]["code"] == "denied"
        looser = {"name": "short.rego", "text": POLICY.replace("> 3", "> 30")}
        replayed = page.post("/policies/replay", {"candidate": looser, "harness": "anyplug"})
        assert (replayed["events"], len(replayed["changes"])) == (1, 1)
        assert replayed["changes"][0]["after"] == "allow"
        broken = {"name": "short.rego", "text": "package"}
        assert page.ask("POST", "/policies/replay", {"candidate": broken}).code == "bad_config"


HOSTILE = (
    'quote"d',
    "back\\slash",
    'a\\"} 7 b',
    "\\",
    '"} 1 # TYPE anyplug_calls_total counter',
    '",tool="other',
    "{{x}}",
)
SAMPLE = re.compile(r'(\w+)(?:\{(\w+)="((?:[^"\\\n]|\\["\\n])*)"\})? (\S+)')


def test_anyone_learns_that_calls_can_be_served():
    with console() as page:
        page.headers = {}
        said = page.ask("GET", "//readyz")
        assert (said.status, said.body) == (200, b'{"ready":true,"reason":""}')


def test_metrics_escape_what_plugins_wrote(root):
    tools = [{"name": name, "description": "Does it.", "input_schema": {"type": "object"}} for name in HOSTILE]
    with console() as page:
        approved(page, installed(page, plugin_folders.cyclop(root, "odd", tools=tools)))
        offered = [tool["name"] for tool in page.get("/tools")["items"]]
        assert len(offered) == len(HOSTILE)
        for name in offered:
            page.post(f"/tools/{urllib.parse.quote(name, safe='')}/call")
        said = page.ask("GET", "//metrics")
        assert said.headers["content-type"].startswith("text/plain")
        found: dict[str, dict[str, float]] = {}
        for line in said.body.decode().rstrip("\n").split("\n"):
            assert line.isprintable(), line
            if not line.startswith(("# HELP ", "# TYPE ")):
                sample = SAMPLE.fullmatch(line)
                assert sample is not None, line
                assert sample[3] not in found.setdefault(sample[1], {}), f"twice: {line}"
                found[sample[1]][sample[3]] = float(sample[4])
        assert found["anyplug_calls_total"] == {None: len(HOSTILE)}
        assert sum(found["anyplug_tool_calls_total"].values()) == len(HOSTILE)


@given(st.text())
def test_a_label_is_one_line_with_every_quotation_mark_escaped(text):
    assert SAMPLE.fullmatch(f'm{{tool="{metrics.label(text)}"}} 1')


SAVED = re.compile(r"attachment; filename=\"[\w.-]+\"; filename\*=UTF-8''[\w.%~-]+", re.ASCII)
WRITER = """#!/usr/bin/env python3
import json, os
folder = "/tmp/bundle"
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, "page.html"), "w").write("<script>alert(1)</script>")
open(os.path.join(folder, 'a"b\\r\\nX: y ünï\\u202e.svg'), "w").write("<svg onload=alert(1)/>")
os.symlink("/etc/passwd", os.path.join(folder, "passwd"))
print(json.dumps("written"))
"""


def test_a_file_of_a_tool_is_saved_and_never_shown(root):
    source = plugin_folders.stavrobot(root, "bundle", WRITER, parameters={})
    with console() as page:
        approved(page, installed(page, source), always=True)
        done = page.post("/tools/bundle.act/call")
        files = [block for block in done["content"] if block["type"] == "file"]
        assert len(files) >= 2, done
        for block in files:
            said = page.ask("GET", f"/{block['download'].removeprefix('/api/v1/')}")
            assert said.status == 200
            assert said.headers["content-type"] == "application/octet-stream"
            assert said.headers["x-content-type-options"] == "nosniff"
            assert said.headers["cache-control"] == "no-store"
            assert SAVED.fullmatch(said.headers["content-disposition"]), said.headers
            assert "%E2%80%AE" not in said.headers["content-disposition"]
            assert b"alert(1)" in said.body
            assert b"root:" not in said.body
        stranger = Console(page.address, {"sec-fetch-site": "same-origin"})
        link = files[0]["download"].removeprefix("/api/v1/")
        assert stranger.ask("GET", f"/{link}").status == 401
        outside = ("files/", "files/..", "files/..%2f..%2fetc%2fpasswd", "files/%2fetc%2fpasswd")
        for other in (*outside, f"{link}/..", f"{link}x"):
            said = page.ask("GET", f"/{other}")
            assert said.status == 404, other
            assert b"root:" not in said.body
        os.unlink(files[0]["path"])
        os.symlink("/etc/passwd", files[0]["path"])
        gone = page.ask("GET", f"/{link}")
        assert (gone.status, gone.code) == (404, "not_found"), gone
