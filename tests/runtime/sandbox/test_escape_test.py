"""Real attempts to get out: refused without the grant, open with it, and never more than that; as root and not."""

import functools
import os

import pytest

import sandbox_script
from anyplug.model import permissions
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.sandbox import escape_test
from anyplug.runtime.sandbox.enforcement import LAYERS, MANY_PROCESSES, NAMESPACES
from sandbox_script import GIT, NEEDS_ROOT, NOT_EVERYWHERE, OPENED, USERS, WITHOUT_MOUNTS

pytestmark = pytest.mark.xdist_group("escapes")  # one worker tries them all, once
WITHOUT_NAMESPACES = tuple(layer for layer in LAYERS if layer not in NAMESPACES)


@functools.cache
def tried(user, layers):
    """What came of all attempts with each set of grants, tried in one go by one process."""
    held = [granted for granted in OPENED if "network" in layers or not any(map(permissions.is_by_host, granted))]
    found = sandbox_script.try_all(user, [[layers, list(granted)] for granted in held])
    return dict(zip(held, found, strict=True))


def is_open(attempts):
    return {name for name, how in attempts.items() if not how}


def has_program(granted):
    return all(os.path.exists(f"/usr/bin/{name}") for name in ("git", "curl"))


@pytest.mark.combinations
@pytest.mark.parametrize("granted", OPENED, ids=" ".join)
@pytest.mark.parametrize("user", USERS)
def test_a_grant_opens_what_it_says_and_nothing_else(user, granted):
    expected = set(OPENED[granted])
    if user != "root":
        expected -= NEEDS_ROOT
    if not has_program(granted):
        expected -= {*GIT, "run curl"}
    assert is_open(tried(user, LAYERS)[granted]) == expected


@pytest.mark.combinations
@pytest.mark.parametrize("granted", [(), ("filesystem:read",), ("network",), ("shell:exec",)], ids=" ".join)
@pytest.mark.parametrize("user", USERS)
def test_without_namespaces_the_same_holds_but_for_the_gaps_that_are_said(user, granted):
    expected = {*OPENED[granted], *WITHOUT_MOUNTS}
    if not has_program(granted):
        expected -= {*GIT, "run curl"}
    assert is_open(tried(user, WITHOUT_NAMESPACES)[granted]) == expected


@pytest.mark.parametrize("user", USERS)
def test_the_attempts_succeed_where_nothing_holds_so_that_they_prove_something(user):
    attempts = sandbox_script.try_all(user, [[None, []]])[0]
    shut = {name for name, how in attempts.items() if how} - NOT_EVERYWHERE
    if user != "root":
        shut -= NEEDS_ROOT
    if not has_program(()):
        shut -= {*GIT, "run curl"}
    assert shut == set()


@pytest.mark.anyio
async def test_the_report_for_people_is_the_same_attempt():
    guard = Guard()
    try:
        enforcement, attempts = await escape_test.report(guard)
    finally:
        guard.close()
    assert enforcement.held
    assert [gap for gap in enforcement.gaps if MANY_PROCESSES not in gap] == []
    assert [attempt.name for attempt in attempts if not attempt.blocked] == []
    assert all(attempt.how for attempt in attempts)
