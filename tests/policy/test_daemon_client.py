"""`eval` as a client of the resident host: it asks there first, and finds its own answer where it gets none."""

import json
import os
import socket
import threading

import pytest

import command_line
from anyplug import __version__
from policy_projects import NO_VERIFY, bash, policy, project

ALLOWED = {"exit": 0, "decision": {"decision": "allow", "reason": "häh"}, "said": ["from the host"]}


class DaemonStandIn:
    """Stands where the resident host's socket is, and answers each client so."""

    def __init__(self, home, *lines, version=__version__):
        self.path = os.path.join(home, "s")
        self.heard = []
        self._lines = lines
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen()
        place = {"pid": os.getpid(), "socket": self.path, "version": version, "started": 0}
        with open(os.path.join(home, "resident.json"), "w", encoding="utf-8") as file:
            json.dump(place, file)

    def __enter__(self):
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_):
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self.path)  # wakes the thread, which sees that nothing comes
        self._thread.join()
        self._server.close()

    def _serve(self):
        while True:
            line, _ = self._server.accept()
            with line:
                received = b""
                while received.count(b"\n") < 2 and (chunk := line.recv(65536)):
                    received += chunk
                if not received:
                    return
                self.heard.append([json.loads(text) for text in received.splitlines()])
                line.sendall("".join(f"{text}\n" for text in self._lines).encode())


def evaluated(**more):
    project({"p": policy("opencode.p", NO_VERIFY)})
    return command_line.run("eval", "--harness", "opencode", stdin=json.dumps(bash("git commit --no-verify")), **more)


def test_the_hosts_answer_is_printed(home):
    with DaemonStandIn(str(home), '{"attached": "policy-1"}', json.dumps({"id": 1, "result": ALLOWED})) as resident:
        done = evaluated()
    assert (done.code, done.out, done.err) == (0, '{"decision":"allow","reason":"häh"}\n', "from the host\n")
    ((attach, request),) = resident.heard
    assert (attach["attach"], attach["kind"], attach["cwd"]) == (1, "policy", os.path.realpath(os.getcwd()))
    assert attach["environment"]["ANYPLUG_HOME"] == str(home)
    assert (request["id"], request["do"], request["harness"]) == (1, "eval", "opencode")
    assert json.loads(request["text"])["tool"] == "bash"


def test_an_answer_without_a_decision_prints_none(home):
    nothing = {"exit": 1, "decision": None, "said": ["broken"]}
    with DaemonStandIn(str(home), '{"attached": "policy-1"}', json.dumps({"id": 1, "result": nothing})):
        done = evaluated()
    assert (done.code, done.out, done.err) == (1, "", "broken\n")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ['{"error": {"code": "usage", "message": "no", "hint": ""}}'],
        ['{"attached": "policy-1"}'],
        ['{"attached": "policy-1"}', "{"],
        ['{"attached": "policy-1"}', '{"id": 1, "error": {"code": "x", "message": "y", "hint": ""}}'],
        ['{"attached": "policy-1"}', '{"id": 1, "result": {}}'],
        ['{"attached": "policy-1"}', '{"id": 1, "result": 7}'],
        ["7", "7"],
    ],
)
def test_whatever_else_the_host_says_the_event_is_decided(home, lines):
    with DaemonStandIn(str(home), *lines):
        assert evaluated().json == {"decision": "deny", "reason": "hooks must run"}


def test_a_host_of_another_version_is_not_asked(home):
    with DaemonStandIn(str(home), version="0.0.0") as resident:
        assert evaluated().json["decision"] == "deny"
    assert resident.heard == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"socket": "/nonexistent", "version": __version__})])
def test_a_host_that_is_gone_is_no_obstacle(home, text):
    (home / "resident.json").write_text(text)
    assert evaluated().json["decision"] == "deny"
