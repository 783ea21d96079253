"""The audit trail: one record for each call, a chain that shows every tampering, and no call without a record."""

import json
import os
import sqlite3
import subprocess
import sys

import pytest

from anyplug import audit
from anyplug.audit import Audit, Record
from anyplug.store import Store

WRITE = """
import sys
from anyplug.audit import Audit, Record
from anyplug.store import Store
store = Store(sys.argv[1])
trail = Audit(store)
for number in range(int(sys.argv[3])):
    record = Record(call=f"{sys.argv[2]}-{number}", at=0.0, attachment="a", tool="t")
    trail.begin(record)
    trail.end(record)
store.close()
"""


@pytest.fixture
def path(home):
    return str(home / "anyplug.db")


@pytest.fixture
def trail(path):
    store = Store(path)
    yield Audit(store)
    store.close()


def write(trail, count):
    for number in range(count):
        trail.end(Record(call=f"c{number}", at=float(number), attachment="a", tool=f"t{number}", plugin="p"))


def spoil(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_an_empty_trail_is_whole(trail, path):
    assert trail.verify() == (0, [])
    assert trail.records() == []
    assert not os.path.exists(path)


def test_a_trail_that_nobody_touched_is_whole(trail):
    write(trail, 5)
    assert trail.verify() == (5, [])


def test_records_are_read_newest_last_and_chosen_by_plugin_and_tool(trail):
    write(trail, 5)
    assert [item.number for item in trail.records()] == [1, 2, 3, 4, 5]
    assert [item.number for item in trail.records(limit=2)] == [4, 5]
    assert [item.record.tool for item in trail.records(tool="t3")] == ["t3"]
    assert trail.records(plugin="other") == []


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE audit SET record = replace(record, 't2', 'tX') WHERE number = 3", [(3, "its content was changed")]),
        ("DELETE FROM audit WHERE number = 3", [(3, "record 3 is missing")]),
        ("DELETE FROM audit WHERE number IN (2, 3)", [(2, "the records 2 to 3 are missing")]),
        ("DELETE FROM audit WHERE number = 1", [(1, "record 1 is missing")]),
        ("DELETE FROM audit WHERE number > 3", [(4, "the records 4 to 5 are missing")]),
        ("DELETE FROM audit", [(1, "the records 1 to 5 are missing")]),
        ("UPDATE audit SET hash = 'x' WHERE number = 5", [(5, "its content was changed")]),
        (
            "UPDATE audit SET previous = 'x' WHERE number = 3",
            [(3, "it does not follow from the record before it"), (3, "its content was changed")],
        ),
    ],
)
def test_every_tampering_is_found_where_it_was_done(statement, found, trail, path):
    write(trail, 5)
    spoil(path, statement)
    assert [(place.number, place.reason) for place in trail.verify()[1]] == found


def test_a_record_that_somebody_made_unreadable_is_listed_as_that(trail, path):
    write(trail, 3)
    spoil(path, "UPDATE audit SET record = 'nonsense' WHERE number = 2")
    assert [item.record.outcome for item in trail.records()] == ["", "unreadable", ""]
    assert [place.number for place in trail.verify()[1]] == [2]


def test_a_changed_record_with_a_recomputed_hash_breaks_the_next_link(trail, path):
    write(trail, 5)
    connection = sqlite3.connect(path, isolation_level=None)
    ((record, previous),) = connection.execute("SELECT record, previous FROM audit WHERE number = 3").fetchall()
    forged = bytes(record).replace(b"t2", b"tX")
    values = (forged, audit._link(previous, forged))
    connection.execute("UPDATE audit SET record = ?, hash = ? WHERE number = 3", values)
    connection.close()
    assert [place.number for place in trail.verify()[1]] == [4]


def test_several_processes_write_one_chain(trail, path):
    command = [sys.executable, "-c", WRITE, path]
    writers = [subprocess.Popen([*command, name, "100"]) for name in ("a", "b", "c", "d")]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert trail.verify() == (400, [])
    assert len({item.record.call for item in trail.records()}) == 400


def test_a_call_that_was_begun_by_a_process_that_is_gone_is_lost(trail):
    record = Record(call="c", at=0.0, attachment="a", tool="t", verdict="allowed")
    trail._store.run("INSERT INTO pending VALUES ('c', '999999999:1', ?)", audit.msgspec.json.encode(record))
    trail.begin(Record(call="d", at=0.0, attachment="a", tool="t"))
    trail.recover()
    trail.recover()
    ((number, lost),) = [(item.number, item.record) for item in trail.records()]
    assert (number, lost.call, lost.outcome, lost.verdict) == (1, "c", "lost", "allowed")
    assert [row[0] for row in trail._store.rows("SELECT call FROM pending")] == ["d"]


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": (None, float("-inf"))}])
def test_what_is_no_json_has_no_digest(value):
    with pytest.raises(ValueError, match="not JSON"):
        audit.digest_of(value)


def test_a_digest_does_not_depend_on_the_order_of_keys():
    assert audit.digest_of({"a": 1, "b": None}) == audit.digest_of({"b": None, "a": 1})
    assert audit.digest_of({"a": 1}) != audit.digest_of({"a": 2})


# With a host


@pytest.mark.anyio
async def test_a_record_says_everything_but_the_arguments_and_the_output(host, cyclop, root, path):
    cyclop(script='#!/bin/sh\necho \'{"result": "private-output"}\'\n', permissions=["network"])

    async def ask(question):
        return "once"

    async with host(roots=(root,), ask=ask) as h:
        plugin = h.plugins[0].plugin
        digest = h.catalog.digest(plugin)
        h.catalog.approvals.approve(plugin, digest, ("network",), always=False, follow=False, unconfined=False)
        result = await h.call("hello", {"text": "private-argument"})
        ((number, record),) = [(item.number, item.record) for item in h._audit.records()]
    assert (number, record.tool, record.plugin, record.format) == (1, "hello", "hello", "cyclop")
    assert (record.verdict, record.by, record.reason, record.outcome) == ("allowed", "person", "once", "done")
    assert record.digest == digest.value
    assert record.arguments == audit.digest_of({"text": "private-argument"})
    assert record.output == audit.digest_of_output(result)
    assert record.duration_ms == result.duration_ms
    assert record.attachment.startswith("library-")
    with open(path, "rb") as file:
        assert b"private-" not in file.read()


@pytest.mark.anyio
async def test_there_is_one_record_for_each_call_whatever_its_outcome(host, cyclop, stavrobot, settings):
    settings("[plugins.slow]\ntimeout_s = 0.2\n")
    folders = [
        cyclop("good"),
        cyclop("slow", "#!/bin/sh\nsleep 60\n"),
        cyclop("bad", "#!/bin/sh\necho x\n"),
        cyclop("crash", "#!/bin/sh\nexit 1\n"),
        stavrobot("unset", config={"k": {"description": "d", "required": True}}),
        stavrobot("bundle", tool={"async": True}),
    ]
    calls = {
        "good": "done",
        "slow": "timed_out",
        "bad": "bad_output",
        "crash": "crashed",
        "unset.act": "config_missing",
        "bundle.act": "done",
        "nothing": "not_found",
    }
    async with host(*folders) as h:
        for name in calls:
            await h.call(name)
        await h.call("bundle.act", {"unknown": 1})
        assert [item.record.outcome for item in h._audit.records()] == [*calls.values(), "invalid_arguments"]
        assert h._audit.verify() == (8, [])
        assert h.catalog.store.rows("SELECT * FROM pending") == []


@pytest.mark.anyio
async def test_a_call_that_cannot_be_recorded_is_refused_and_nothing_ran(host, cyclop, path):
    folder = cyclop(script='#!/bin/sh\ntouch ran\necho \'{"result": ""}\'\n')
    async with host(folder) as h:
        assert not (await h.call("hello")).is_error
        os.unlink(f"{folder}/ran")
        spoil(path, "DROP TABLE pending")
        result = await h.call("hello")
    assert (result.error.code, result.is_error) == ("denied", True)
    assert result.error.message.startswith("the call cannot be recorded, so it was not run: ")
    assert result.error.hint
    assert not os.path.exists(f"{folder}/ran")


@pytest.mark.anyio
async def test_a_home_that_cannot_be_written_refuses_calls(host, cyclop, home):
    os.mkdir(home / "anyplug.db")
    folder = cyclop(script="#!/bin/sh\ntouch ran\n")
    async with host(folder) as h:
        result = await h.call("hello")
        missing = await h.call("nothing")
    assert result.error.code == "denied"
    assert "anyplug.db" in result.error.message
    assert missing.error.code == "denied"
    assert not os.path.exists(f"{folder}/ran")


@pytest.mark.anyio
async def test_a_record_that_fails_at_the_end_is_said_in_the_result(host, cyclop, path):
    script = (
        "#!/bin/sh\n"
        "cat >/dev/null\n"
        f"{sys.executable} -c \"import sqlite3; sqlite3.connect('{path}').execute('DROP TABLE audit')\"\n"
        f'echo \'{{"result": "ran"}}\'\n'
    )
    async with host(cyclop(script=script)) as h:
        result = await h.call("hello")
    assert result.text == "ran"
    assert any("is not recorded" in warning for warning in result.metadata["warnings"])


def test_a_database_of_a_newer_version_is_left_alone(path):
    store = Store(path)
    store.run("INSERT INTO disabled VALUES ('x')")
    store.close()
    spoil(path, "PRAGMA user_version = 99")
    with pytest.raises(Exception, match="written by a newer anyplug"):
        Store(path).rows("SELECT 1")


def test_only_the_user_may_read_the_database(trail, path):
    write(trail, 1)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert json.loads(trail._store.rows("SELECT record FROM audit")[0][0])["tool"] == "t0"
