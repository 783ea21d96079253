"""Machines that refuse namespaces, made for the moment: the fallback holds, and says what is missing and why."""

import json
import subprocess

import pytest

import sandbox_script
from anyplug.runtime.sandbox.enforcement import MANY_PROCESSES

# What a machine without user namespaces answers, and a container that hides parts of /proc: for real, in a namespace.
NO_NAMESPACES = "for k in user mnt pid net ipc; do echo 0 > /proc/sys/user/max_${k}_namespaces; done"
HIDDEN_PROC = "mount -t tmpfs none /proc/sys/dev"
DRIVER = """
import json, sys, anyio
from anyplug.runtime.sandbox import escape_test as escapes
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn, NamespacesRefused
from anyplug.runtime.processes.guard import Guard

guard = Guard()
enforcement, attempts = anyio.run(escapes.report, guard)
plain = ""
try:
    ConfinedSpawn(guard).close()
except NamespacesRefused as refusal:
    plain = str(refusal)
with escapes.scene() as scene:
    short = [fall.what for fall in enforcement.shortfalls(scene.profile())]
guard.close()
is_open = [attempt.name for attempt in attempts if not attempt.blocked]
print(json.dumps([enforcement.held, enforcement.refused, enforcement.gaps, is_open, plain, short]))
"""


def in_a_machine(command: list[str], preparation: str, user: str, *then: str) -> list:
    """Run the driver where something was taken away; skips where we cannot take it."""
    interpreter = sandbox_script.interpreter("ordinary")
    script = preparation + '; exec "$@"'
    done = subprocess.run(
        [sandbox_script.find("unshare"), *command, "sh", "-ec", script, "sh", *then, interpreter, "-c", DRIVER],
        **sandbox_script.as_user(user),
        env=sandbox_script.environment(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "unshare" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_where_namespaces_are_refused_landlock_and_seccomp_hold_alone():
    held, refused, gaps, is_open, plain, short = in_a_machine(
        ["--user", "--map-root-user", "--mount"], NO_NAMESPACES, "ordinary"
    )
    assert held == ["cpu", "limits", "capabilities", "landlock", "seccomp", "broker"]
    assert {"mounts", "pids", "network", "ipc"} <= set(refused)
    assert "No space left" in refused["mounts"]
    assert len([gap for gap in gaps if MANY_PROCESSES not in gap]) == 4
    assert set(is_open) <= sandbox_script.WITHOUT_MOUNTS
    assert "No space left" in plain
    assert short == []


def test_where_proc_cannot_be_mounted_everything_else_still_holds():
    held, refused, gaps, is_open, plain, short = in_a_machine(
        ["--mount"],
        HIDDEN_PROC,
        "root",
        sandbox_script.find("setpriv"),
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    )
    assert "pids" not in held
    assert "mount /proc" in refused["pids"]
    assert {"mounts", "network", "read-only", "landlock", "seccomp"} <= set(held)
    assert len([gap for gap in gaps if MANY_PROCESSES not in gap]) == 1
    assert set(is_open) <= {"see the host's command line"}
    assert (plain, short) == ("", [])
