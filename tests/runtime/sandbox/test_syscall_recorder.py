"""What confined programs do is written down, and they are held as they are when nobody listens; as root and not."""

import json
import os
import re
import socket
import struct

import pytest

import sandbox_script
from anyplug.runtime.sandbox.linux import seccomp

USERS = ("root", "ordinary")
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
RUN = """
import json, os, sys, tempfile
import anyio, msgspec
from anyplug.runtime.processes import run_once as process
from anyplug.runtime.sandbox import escape_test as escapes
from anyplug.runtime.sandbox.linux import syscall_recorder as record
from anyplug.runtime.sandbox.enforcement import LAYERS
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program

async def main(granted, script, layers, has_tmp):
    guard, recorder = Guard(), record.Recorder()
    with escapes.scene() as made, tempfile.TemporaryDirectory() as cover:
        scope = {**made.facts, "user": made.place.user}
        granted = [grant.format(**scope) for grant in granted]
        spawn = ConfinedSpawn(guard, made.profile(*granted), layers=tuple(layers or LAYERS), recorder=recorder)
        try:
            if script:
                program = Program(
                    argv=("/bin/sh", "-c", script.format(**scope)), cwd=made.place.data, env={"PATH": os.defpath},
                    timeout_s=20, max_stdout=100000, max_stderr=100000, tmp=cover if has_tmp else "",
                )
                finished = await process.run(program, spawn)
                came = [finished.exit_code, finished.stdout.decode(), finished.stderr.decode()]
            else:
                came = [(a.name, a.how) for a in await escapes.attempt_all(spawn, made.facts, made.place.data)]
        finally:
            spawn.close()
            guard.close()
        events = [msgspec.to_builtins(event) for event in recorder.events]
        for event in events:
            event["path"] = event["path"].replace(made.place.user, "~").replace(made.place.data, "DATA")
        print(json.dumps([came, events]))

anyio.run(main, *json.loads(sys.argv[1]))
"""


def recorded(user, granted, script, layers=None, tmp=False):
    came, events = json.loads(sandbox_script.run(user, RUN, json.dumps([granted, script, layers, tmp])))
    return came, events


def did(events, kind):
    return [event["path"] or event["address"] for event in events if event["kind"] == kind]


@pytest.mark.parametrize("user", USERS)
def test_what_is_read_written_made_and_executed_is_written_down_refused_or_not(user):
    script = "cat {key}; cat /etc/hostname; echo x >made; echo y >>{bashrc}; mkdir folder; rm -r folder; git --version"
    (code, _, said), events = recorded(user, [], script)
    assert code != 0
    assert "Permission denied" in said
    assert {"~/.ssh/id_ed25519", os.path.realpath("/etc/hostname")} <= set(did(events, "read"))
    assert "~/.bashrc" in did(events, "write")
    assert {"DATA/made", "DATA/folder"} <= set(did(events, "make"))
    ran = did(events, "execute")
    assert os.path.realpath("/bin/cat") in ran
    if os.path.exists("/usr/bin/git"):
        assert os.path.realpath("/usr/bin/git") in ran


@pytest.mark.parametrize("user", USERS)
def test_a_path_is_resolved_from_where_the_program_stands_and_through_links(user):
    script = "cd {user}/.ssh && cat ./../.ssh/id_ed25519; ln -s {key} link; cat link"
    _, events = recorded(user, ["filesystem:read:{user}"], script)
    assert "~/.ssh/id_ed25519" in did(events, "read")
    assert not [path for path in did(events, "read") if ".." in path or path.endswith("link")]


def test_a_script_brings_the_interpreter_that_its_first_line_names():
    script = "printf '#!/usr/bin/perl\\n' >script; chmod +x script; ./script"
    _, events = recorded("ordinary", [], script)
    if not os.path.exists("/usr/bin/perl"):
        pytest.skip("no perl here")
    assert os.path.realpath("/usr/bin/perl") in did(events, "execute")


def test_a_program_that_is_a_pipe_holds_nobody_up():
    came, events = recorded("ordinary", [], "mkfifo pipe; chmod +x pipe; ./pipe; echo went on")
    assert came[1] == "went on\n"
    assert "DATA/pipe" in did(events, "execute")


PYTHON = """{python} -I -S - <<'END'
import socket
def attempt(act):
    try: act()
    except OSError as error: print(error.strerror)
attempt(lambda: socket.create_connection(('127.0.0.1', {port})))
attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 53)))
attempt(lambda: socket.socket(socket.AF_UNIX).connect({unix!r}))
attempt(lambda: socket.socket(socket.AF_INET).bind(('127.0.0.1', 0)))
END"""


def python(user):
    return PYTHON.replace("{python}", os.path.realpath(sandbox_script.interpreter(user)))


@pytest.mark.parametrize("user", USERS)
def test_whom_it_connects_to_is_written_down_with_port_and_protocol(user):
    (code, said, _), events = recorded(user, ["network", "network:unix"], python(user))
    assert (code, said) == (0, "")
    found = [event for event in events if event["kind"] == "connect"]
    assert [(e["family"], e["is_tcp"], e["refused"]) for e in found] == [
        ("internet", True, False),
        ("internet", False, False),
        ("unix", False, False),
    ]
    assert [event["port"] for event in found][1] == 53
    assert found[2]["address"].endswith("/socket")
    assert [event["family"] for event in events if event["kind"] == "listen"] == ["internet"]


@pytest.mark.parametrize("user", USERS)
def test_a_socket_that_was_not_granted_is_refused_and_written_down_as_such(user):
    (_, said, _), events = recorded(user, [], python(user))
    assert said.splitlines() == ["Operation not permitted"] * 4
    sockets = [event for event in events if event["kind"] == "socket"]
    assert {(event["family"], event["is_tcp"]) for event in sockets if event["refused"]} == {
        ("internet", True), ("internet", False), ("unix", True),
    }  # fmt: skip
    assert did(events, "connect") == []


@pytest.mark.parametrize("user", USERS)
def test_nobody_gets_out_because_somebody_listens(user):
    attempts, _ = recorded(user, [], "")
    assert [name for name, how in attempts if not how] == []


def test_a_start_with_a_tmp_of_its_own_is_heard_too():
    (code, _, _), events = recorded("ordinary", [], "echo x >/tmp/mine; cat /etc/hostname", tmp=True)
    assert code == 0
    assert os.path.realpath("/etc/hostname") in did(events, "read")


def test_without_namespaces_it_is_heard_too():
    _, events = recorded("ordinary", [], "cat {key}", layers=["limits", "capabilities", "landlock", "seccomp"])
    assert "~/.ssh/id_ed25519" in did(events, "read")


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_the_numbers_of_what_is_noted_are_the_kernels(machine):
    if not os.path.exists(HEADERS[machine]):
        pytest.skip("no headers here")
    with open(HEADERS[machine], encoding="ascii") as file:
        header = file.read()
    for name, numbers in seccomp.NOTED.items():
        found = re.search(rf"#define __NR(?:3264)?_{name}\s+(\d+)\n", header)
        number = numbers[seccomp.ARCHITECTURES.index(machine)]
        assert (None if found is None else int(found[1])) == number or number == 437, name


@pytest.mark.parametrize("network", ["none", "ports", "all"])
def test_a_filter_that_asks_asks_about_all_that_is_noted_and_decides_the_rest_as_ever(network):
    plain = seccomp.build(network, machine="x86_64")
    asking = seccomp.build(network, machine="x86_64", asks=True)
    noted = {numbers[0] for numbers in seccomp.NOTED.values()}
    for number in range(500):
        seen = struct.pack("=iIQ6Q", number, seccomp.AUDIT_ARCH["x86_64"], 0, socket.AF_INET, 1, 0, 0, 0, 0)
        if number not in noted:
            assert seccomp.judge(asking, seen) == seccomp.judge(plain, seen)
    refused = struct.pack("=iIQ6Q", 41, seccomp.AUDIT_ARCH["x86_64"], 0, socket.AF_PACKET, 3, 0, 0, 0, 0)
    assert seccomp.judge(plain, refused) == seccomp.EPERM


@pytest.mark.combinations
@pytest.mark.parametrize("tmp", [False, True])
@pytest.mark.parametrize("user", USERS)
def test_who_is_recorded_has_a_broker_all_the_same(user, tmp):
    script = (
        "cd {project}; echo one > new && mkdir made && mv new made/moved && chmod 600 made/moved && cat made/moved; "
        "echo x > .envrc; mkdir .vscode; ls -A"
    )
    came, events = recorded(user, ["filesystem:write:.", "shell:exec"], script, tmp=tmp)
    code, said, complaint = came
    assert code == 0, complaint
    assert said.split() == ["one", ".git", "made", "other", "plain", "sub"]
    assert complaint.count("Read-only file system") == 2
    made = {os.path.basename(event["path"]) for event in events if event["kind"] == "make"}
    assert {"new", "made", "moved", ".envrc", ".vscode"} <= made
