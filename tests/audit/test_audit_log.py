"""The audit trail: one record for each call, a chain that shows every tampering, and no call without a record."""

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import anyio
import msgspec
import pytest

import processes
from anyplug.audit import audit_log, sealed_head
from anyplug.audit.audit_log import Audit, Record
from anyplug.audit.sealed_head import Head
from anyplug.home import database, journal, process_identity
from anyplug.home.database import Store
from anyplug.model.errors import StoreError

WRITE = """
import sys
from anyplug.audit.audit_log import Audit, Record
from anyplug.home.database import Store
store = Store(sys.argv[1])
trail = Audit(store)
for number in range(int(sys.argv[3])):
    trail.begin(Record(call=f"{sys.argv[2]}-{number}", at=0.0, attachment="a", tool="t"))
    trail.end(Record(call=f"{sys.argv[2]}-{number}", at=0.0, attachment="a", tool="t", outcome="done"))
store.close()
"""

RECOVER = """
import sys
from anyplug.audit.audit_log import Audit
from anyplug.home.database import Store
store = Store(sys.argv[1])
trail = Audit(store)
sys.stdin.read()  # until all are there
trail.recover()
store.close()
"""

# A host that ends by SIGKILL, with calls that have just ended and calls under way.
KILLED = """
import os, signal, sys
import anyio
from anyplug import Host

async def main():
    async with Host(sys.argv[1:], roots=[], watch=False) as host, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(host.call, "wait")
        while len(host.audit.under_way()) < 3:
            await anyio.sleep(0.01)
        for _ in range(5):
            assert not (await host.call("hello")).is_error
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""

# A host that stays up after its call, until its stdin is closed.
STAYS = """
import sys
import anyio
from anyplug import Host

async def main():
    async with Host(sys.argv[1:], roots=[], watch=False) as host:
        await host.call("hello")
        print("called", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)

anyio.run(main)
"""

# A host that may not let any file grow after its second call, as on a full disk.
FULL = """
import json, os, resource, sys
import anyio
from anyplug import Host
from anyplug.home import journal
from anyplug.model.errors import StoreError

journal.ROOM = 0  # it has room for a few calls, and no more

async def main():
    told = []
    async with Host(sys.argv[2:], roots=[], watch=False, tell=told.append) as host:
        first = await host.call("hello")
        host.audit.commit()
        second = await host.call("hello")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        if sys.argv[1] == "known":
            try:
                host.audit.commit()
            except StoreError:
                pass
        for _ in range(100):  # how much room is left depends on how long the lines were
            refused = await host.call("hello")
            if refused.is_error:
                break
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        last = await host.call("hello")
        host.audit.commit()
        outcomes = [item.record.outcome for item in host.audit.records()]
    codes = [result.error and result.error.code for result in (first, second, refused, last)]
    print(json.dumps([codes, refused.error.message, outcomes, told]))

anyio.run(main)
"""

MANY = """
import os, sys, threading
from anyplug.home import database

database.TIDY_AFTER = 50
tidying = []
store = database.Store(os.path.join(sys.argv[1], "busy.db"))
store.tidy_aside(tidying.append)
store.run("DELETE FROM disabled")
os.write(2, b" %d began\\n" % os.getpid())
for number in range(300):
    store.run("INSERT INTO disabled VALUES (?)", str(number))
    if tidying:
        thread = threading.Thread(target=tidying.pop())
        thread.start()
        if number % 2:
            thread.join()
thread.join()
os.write(2, b"ended\\n")
"""

VERSION_1 = (
    *(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN UPDATE decisions SET count = count + 1; END"
        for table in ("approvals", "disabled")
        for event in ("INSERT", "DELETE")
    ),
    "UPDATE decisions SET count = 7",
    "DROP TABLE pins",
    "DROP TABLE accepted",
    "DROP TABLE conversations",
    "DROP TABLE conversation_events",
    "DROP TABLE seen",
    "DROP INDEX audit_calls",
    "CREATE TABLE pending (call TEXT PRIMARY KEY, host TEXT NOT NULL, record BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TRIGGER call_ended AFTER INSERT ON audit BEGIN DELETE FROM pending WHERE call = NEW.call; END",
    "ALTER TABLE jobs DROP COLUMN progress",
    "ALTER TABLE jobs DROP COLUMN plugin",
    "PRAGMA user_version = 1",
)
GONE = "999999999:1"  # a process that is not there


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
        trail.end(
            Record(call=f"c{number}", at=float(number), attachment="a", tool=f"t{number}", plugin="p", outcome="done")
        )


def begun(call, **fields):
    return Record(call=call, at=0.0, attachment="a", tool="t", **fields)


def lines(*records):
    return [msgspec.json.encode(record) for record in records]


def never(*_):
    """Call nothing back, as a loop that is busy."""


def outcomes(trail):
    return [(item.record.call, item.record.outcome) for item in trail.records()]


def journals(home):
    folder = home / "journal"
    return sorted(os.listdir(folder)) if folder.exists() else []


def written(home):
    """Give what stands in each journal."""
    return [(home / "journal" / name).read_bytes().strip(b"\0") for name in journals(home)]


def abandon(home):
    """Let all journals be those of a process that is gone, and so holds no lock on them."""
    for number, name in enumerate(journals(home)):
        shutil.copyfile(home / "journal" / name, home / "journal" / f"{GONE}-{number}")
        os.unlink(home / "journal" / name)


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
    assert [item.record.tool for item in trail.records(lambda record: record.tool == "t3")] == ["t3"]
    assert trail.records(lambda record: record.plugin == "other") == []


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
        ("UPDATE audit SET call = 'x' WHERE number = 3", [(3, "its id in the index was changed")]),
        (
            "UPDATE audit SET call = CAST(call AS BLOB) WHERE number = 3",
            [(3, "its id in the index was changed")],
        ),
    ],
)
def test_every_tampering_is_found_where_it_was_done(statement, found, trail, path):
    write(trail, 5)
    spoil(path, statement)
    reasons = [(place.number, place.reason) for place in trail.verify()[1]]
    assert [place for place in reasons if "sealed" not in place[1]] == found


# What undoes a record as it is written
UNDOING = (
    "CREATE TRIGGER z BEFORE INSERT ON audit BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER z AFTER INSERT ON audit BEGIN DELETE FROM audit WHERE number = new.number; END",
)


@pytest.mark.parametrize("trigger", UNDOING)
def test_a_record_that_the_database_does_not_keep_is_not_taken_for_written(trigger, trail, path):
    write(trail, 2)
    spoil(path, trigger)
    with pytest.raises(StoreError, match="it has the trigger z, which anyplug did not create"):
        trail.end(begun("dropped", outcome="done"))
    with pytest.raises(StoreError, match="the trigger z"):  # not run
        trail.begin(begun("next"))
    spoil(path, "DROP TRIGGER z")
    trail.end(begun("later", outcome="done"))
    assert outcomes(trail)[2:] == [("dropped", "done"), ("later", "done")]
    assert trail.verify() == (4, [])


@pytest.mark.parametrize("extra", [UNDOING[0], "CREATE VIEW z AS SELECT * FROM audit"])
def test_triggers_and_views_in_the_database_are_named(extra, trail, path):
    write(trail, 2)
    spoil(path, extra)
    count, (broken,) = trail.verify()
    assert (count, broken.number) == (2, 2)
    assert f"the database has the {extra.split()[1].lower()} z, which anyplug did not create" in broken.reason


# The sealed head


def rechain(path, number, change):
    """Change one record and every hash from there on, as an attacker would who knows the chain."""
    connection = sqlite3.connect(path, isolation_level=None)
    previous = None
    for at, record, before in connection.execute(
        "SELECT number, record, previous FROM audit WHERE number >= ? ORDER BY number", (number,)
    ).fetchall():
        previous = before if previous is None else previous
        forged = change(bytes(record)) if at == number else bytes(record)
        own = audit_log.link_of(previous, forged)
        connection.execute("UPDATE audit SET record=?, previous=?, hash=? WHERE number=?", (forged, previous, own, at))
        previous = own
    connection.close()


def cut_off(path, last):
    spoil(
        path,
        f"DELETE FROM audit WHERE number > {last}",
        f"UPDATE sqlite_sequence SET seq = {last} WHERE name = 'audit'",
    )


def reasons_of(trail):
    return [place.reason for place in trail.verify()[1]]


@pytest.mark.claim("audit-cut-off")
@pytest.mark.parametrize("last", [0, 1, 4])
def test_an_end_that_was_cut_off_without_a_trace_in_the_database_is_found(last, trail, path):
    write(trail, 5)
    cut_off(path, last)
    assert trail.verify()[1][0].number == last + 1
    assert "missing" in reasons_of(trail)[0]


@pytest.mark.claim("audit-cut-off")
def test_records_that_follow_do_not_cover_up_a_cut_off_end(trail, path):
    write(trail, 5)
    cut_off(path, 3)
    for number in range(9):
        trail.end(begun(f"later{number}", outcome="done"))
    assert [place.number for place in trail.verify()[1]] == [5]
    assert "sealed" in reasons_of(trail)[0]


@pytest.mark.claim("audit-cut-off")
def test_a_chain_that_was_rewritten_with_all_its_hashes_is_found(trail, path):
    write(trail, 5)
    rechain(path, 2, lambda record: record.replace(b"t1", b"tX"))
    assert [place.number for place in trail.verify()[1]] == [5]


@pytest.mark.claim("audit-disappeared")
def test_a_database_that_is_gone_is_found(trail, path, home):
    write(trail, 5)
    trail._store.close()
    for name in ("anyplug.db", "anyplug.db-wal", "anyplug.db-shm"):
        (home / name).unlink(missing_ok=True)
    assert reasons_of(trail) == ["the records 1 to 5 are missing"]


@pytest.mark.claim("audit-disappeared")
def test_a_home_that_is_gone_is_found_by_the_second_head(home, tmp_path):
    second = str(tmp_path / "elsewhere" / "audit-head")
    first = Store(str(home / "anyplug.db"))
    write(Audit(first, second), 5)
    first.close()
    shutil.rmtree(home)
    home.mkdir()
    again = Store(str(home / "anyplug.db"))
    fresh = Audit(again, second)
    assert fresh.verify()[1][0].reason == "the records 1 to 5 are missing"
    write(fresh, 7)
    assert any("was not sealed by this home" in reason for reason in reasons_of(fresh))
    fresh.reseal()
    assert fresh.verify() == (7, [])
    again.close()


@pytest.mark.claim("audit-disappeared")
def test_a_head_that_is_gone_is_said_and_not_made_again_by_itself(trail, home):
    write(trail, 5)
    (home / "audit-head").unlink()
    trail.end(begun("later", outcome="done"))
    assert "is missing, so records may have been cut off" in reasons_of(trail)[0]
    trail.reseal()
    trail.end(begun("last", outcome="done"))
    assert trail.verify() == (7, [])


@pytest.mark.claim("audit-disappeared")
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["gone", "empty", "a fifo"])
def test_one_of_two_heads_that_is_gone_is_found_also_after_further_records(how, which, home, tmp_path):
    second = str(tmp_path / "elsewhere" / "audit-head")
    opened = Store(str(home / "anyplug.db"))
    trail = Audit(opened, second)
    write(trail, 3)
    path = (str(home / "audit-head"), second)[which]
    os.unlink(path)
    if how == "empty":
        open(path, "w").close()
    elif how == "a fifo":
        os.mkfifo(path)
    assert len(reasons_of(trail)) == 1
    trail.end(begun("later", outcome="done"))
    assert len(reasons_of(trail)) == 1
    opened.close()


@pytest.mark.parametrize(
    "text", [b"{}", b"nonsense", b'{"number":5,"hash":"x","at":1.0,"seal":"00"}\n', b"\xff" * 9000]
)
def test_a_head_that_somebody_else_wrote_is_found(text, trail, home):
    write(trail, 5)
    (home / "audit-head").write_bytes(text)
    assert any("was not sealed by this home" in reason for reason in reasons_of(trail))


def test_a_head_that_a_person_kept_is_looked_for_in_the_chain(trail, path):
    write(trail, 3)
    kept = trail.head()
    write(trail, 2)
    assert trail.verify(kept)[1] == []
    rechain(path, 2, lambda record: record.replace(b"t1", b"tX"))
    trail.reseal()
    assert trail.verify()[1] == []
    assert [place.number for place in trail.verify(kept)[1]] == [3]


def test_a_head_that_cannot_be_written_stops_no_call_and_moves_on_later(trail, home):
    write(trail, 2)
    (home / "audit-head").rename(home / "kept")
    (home / "audit-head").mkdir()
    trail.end(begun("later", outcome="done"))
    (home / "audit-head").rmdir()
    (home / "kept").rename(home / "audit-head")
    assert trail.verify() == (3, [])
    trail.end(begun("last", outcome="done"))
    assert json.loads((home / "audit-head").read_text())["number"] == 4


def test_a_record_that_somebody_made_unreadable_is_listed_as_that(trail, path):
    write(trail, 3)
    spoil(path, "UPDATE audit SET record = 'nonsense' WHERE number = 2")
    assert [item.record.outcome for item in trail.records()] == ["done", "unreadable", "done"]
    assert [place.number for place in trail.verify()[1]] == [2]


def test_a_changed_record_with_a_recomputed_hash_breaks_the_next_link(trail, path):
    write(trail, 5)
    connection = sqlite3.connect(path, isolation_level=None)
    ((record, previous),) = connection.execute("SELECT record, previous FROM audit WHERE number = 3").fetchall()
    forged = bytes(record).replace(b"t2", b"tX")
    values = (forged, audit_log.link_of(previous, forged))
    connection.execute("UPDATE audit SET record = ?, hash = ? WHERE number = 3", values)
    connection.close()
    assert [place.number for place in trail.verify()[1]] == [4]


def test_a_trail_that_grows_while_it_is_looked_at_is_whole(trail, path):
    write(trail, 1)
    writer = subprocess.Popen([sys.executable, "-c", WRITE, path, "a", "3000"])
    found = []
    while writer.poll() is None:
        found += trail.verify()[1]
    assert writer.wait() == 0
    assert found == []
    assert trail.verify() == (3001, [])


def test_a_head_that_is_read_while_it_is_written_is_read_again(trail, home):
    write(trail, 1)
    head = os.path.join(home, sealed_head.FILE)
    with open(head, "r+b", buffering=0) as file:
        whole = file.read()
        fcntl.flock(file, fcntl.LOCK_EX)  # as its writer
        os.pwrite(file.fileno(), b"#", 0)
        with ThreadPoolExecutor() as pool:
            verifying = pool.submit(trail.heads.look)
            assert not wait([verifying], 0.3).done
            os.pwrite(file.fileno(), whole, 0)
            fcntl.flock(file, fcntl.LOCK_UN)
            assert [found.state for found in verifying.result()] == ["sealed"]
    os.truncate(head, 10)
    assert [found.state for found in trail.heads.look()] == ["invalid"]


def test_several_processes_write_one_chain(trail, path):
    command = [sys.executable, "-c", WRITE, path]
    writers = [subprocess.Popen([*command, name, "100"]) for name in ("a", "b", "c", "d")]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert trail.verify() == (400, [])
    assert len({item.record.call for item in trail.records()}) == 400


# The journal


def test_a_call_that_was_begun_by_a_process_that_is_gone_is_lost(trail, home):
    journal.write_for(GONE, trail._store.journals, lines(begun("c", verdict="allowed")))
    trail.begin(begun("d"))
    trail.recover()
    trail.recover()
    ((number, lost),) = [(item.number, item.record) for item in trail.records()]
    assert (number, lost.call, lost.outcome, lost.verdict) == (1, "c", "lost", "allowed")
    assert [record.call for record in trail.under_way()] == ["d"]
    assert len(journals(home)) == 1


def test_a_call_that_had_ended_is_recovered_as_it_ended(trail, home):
    left = lines(begun("a"), begun("b"), begun("a", outcome="done", output="x"), begun("c", outcome="denied"))
    journal.write_for(GONE, trail._store.journals, left)
    trail.recover()
    assert outcomes(trail) == [("a", "done"), ("c", "denied"), ("b", "lost")]
    assert trail.records()[0].record.output == "x"
    assert trail.verify() == (3, [])
    assert journals(home) == []


@pytest.mark.parametrize("torn", [b"", b"{", b'{"call":"x","at":0.0,"attachment"', b"\xff\x00", b"[]", b"\0" * 5000])
def test_a_torn_line_spoils_no_other(torn, trail):
    left = [*lines(begun("a"), begun("a", outcome="done")), torn, *lines(begun("b")), torn]
    journal.write_for(GONE, trail._store.journals, left)
    trail.recover()
    assert outcomes(trail) == [("a", "done"), ("b", "lost")]


def test_a_recovery_that_was_killed_before_it_removed_the_journal_is_done_again_and_adds_nothing(trail, home):
    journal.write_for(GONE, trail._store.journals, lines(begun("a", outcome="done"), begun("b")))
    shutil.copytree(home / "journal", home / "kept")
    trail.recover()
    shutil.copytree(home / "kept", home / "journal", dirs_exist_ok=True)
    trail.recover()
    assert outcomes(trail) == [("a", "done"), ("b", "lost")]
    assert journals(home) == []


def test_a_host_that_was_killed_between_its_commit_and_the_end_of_its_journal_leaves_each_call_once(trail, home):
    trail.gather(never)
    trail.begin(begun("a"))
    trail.end(begun("a", outcome="done"))
    (name,) = journals(home)
    kept = (home / "journal" / name).read_bytes()
    trail.close()
    assert journals(home) == []
    (home / "journal" / f"{GONE}-1").write_bytes(kept)
    trail.recover()
    assert outcomes(trail) == [("a", "done")]


def test_several_who_recover_at_once_record_each_call_once(trail, path):
    for number in range(20):
        ended = [begun(f"{number}-{call}", outcome="done") for call in range(20)]
        journal.write_for(f"99999{number:04}:1", trail._store.journals, lines(*ended, begun(f"{number}-x")))
    command = [sys.executable, "-c", RECOVER, path]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(4)]
    for process in writers:
        process.stdin.close()
    assert [process.wait(60) for process in writers] == [0, 0, 0, 0]
    trail.recover()
    assert trail.verify() == (420, [])
    assert len({item.record.call for item in trail.records()}) == 420


def test_what_waits_is_committed_together_and_before_anybody_reads(trail, path):
    asked = []
    trail.gather(lambda _, act: asked.append(act))
    write(trail, 3)
    assert len(asked) == 1
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM audit").fetchone() == (0,)
    asked[0]()
    assert connection.execute("SELECT count(*) FROM audit").fetchone() == (3,)
    connection.close()
    trail.end(begun("last", outcome="done"))
    assert outcomes(trail)[-1] == ("last", "done")
    assert trail.verify() == (4, [])


def test_who_reads_waits_for_what_another_host_has_yet_to_commit(trail, path, monkeypatch):
    trail.gather(lambda _, act: threading.Timer(0.2, act).start())
    write(trail, 3)
    reader = Audit(Store(path))
    monkeypatch.setattr(audit_log, "SETTLE_S", 20.0)
    reader.settle()
    assert len(reader.records()) == 3
    monkeypatch.setattr(audit_log, "SETTLE_S", 0.05)
    trail.gather(never)
    trail.end(begun("stuck", outcome="done"))
    reader.settle()  # it does not wait for ever for a host that cannot commit
    assert len(reader.records()) == 3


def test_many_that_wait_are_committed_at_once(trail, path):
    trail.gather(never)
    write(trail, audit_log.MOST_WAITING)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM audit").fetchone() == (audit_log.MOST_WAITING,)
    connection.close()


def test_much_that_is_written_is_moved_into_the_database_aside(trail, path, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "TIDY_AFTER", 20)
    asked = []
    trail._store.tidy_aside(asked.append)
    trail.gather(never)
    write(trail, 10)
    trail.commit()
    for number in range(9):
        trail._store.run("INSERT INTO disabled VALUES (?)", str(number))
    assert asked == []
    write(trail, 1)
    trail.commit()
    (tidy,) = asked
    tidy()
    shutil.copy(path, tmp_path / "without-its-log.db")
    connection = sqlite3.connect(tmp_path / "without-its-log.db")
    assert connection.execute("SELECT count(*) FROM audit").fetchone() == (11,)
    connection.close()
    assert trail.verify() == (11, [])


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: `apt-get install strace`")
def test_no_commit_waits_for_the_disk(home):
    command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", sys.executable, "-c", MANY, str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    main, commits = done.stderr.partition(" began\n")[0].split()[-1], done.stderr.partition(" began\n")[2]
    waits = [line for line in commits.partition("ended\n")[0].splitlines() if "sync(" in line]
    assert waits
    assert [line for line in waits if f"[pid {main}]" in line or "[pid" not in line] == []


def test_tidying_leaves_the_version_of_a_newer_program_as_it_is(home):
    store = Store(str(home / "newer.db"))
    store.run("DELETE FROM disabled")
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute(f"PRAGMA user_version = {database.VERSION + 1}")
    store.tidy()
    assert connection.execute("PRAGMA user_version").fetchone() == (database.VERSION + 1,)
    connection.close()
    store.close()


def test_a_database_that_cannot_be_tidied_is_left_as_it_is(path):
    os.mkdir(path)
    Store(path).tidy()


def test_a_journal_that_grows_is_written_anew_with_what_is_under_way(trail, home, monkeypatch):
    monkeypatch.setattr(journal, "LARGEST", 2_000)
    trail.gather(never)
    trail.begin(begun("long"))
    sizes = []
    for number in range(50):
        trail.begin(begun(str(number)))
        trail.end(begun(str(number), outcome="done"))
        trail.commit()
        sizes.append(sum(map(len, written(home))))
    assert max(sizes) < 4_000
    assert len(journals(home)) == 2  # one with lines, one that is empty
    assert [line for line in written(home) if line] != []
    abandon(home)
    trail.recover()
    assert [call for call, outcome in outcomes(trail) if outcome == "lost"] == ["long"]
    assert trail.verify() == (51, [])
    assert journals(home) == []


def test_a_journal_that_was_being_written_anew_when_its_process_was_killed_counts_as_it_was(trail, home):
    journal.write_for(GONE, trail._store.journals, lines(begun("a"), begun("b", outcome="done")))
    (name,) = journals(home)
    (home / "journal" / f"{name}2").write_bytes(b"\n" + lines(begun("a"))[0] + b"\n" + lines(begun("a"))[0][:20])
    trail.recover()
    assert outcomes(trail) == [("b", "done"), ("a", "lost")]
    assert journals(home) == []


def test_files_that_are_no_journals_are_left_alone(trail, home):
    (home / "journal").mkdir()
    (home / "journal" / "notes.txt").write_text("mine")
    trail.recover()
    assert journals(home) == ["notes.txt"]


def test_only_the_user_may_read_a_journal(trail, home):
    trail.begin(begun("a"))
    (name,) = journals(home)
    assert os.stat(home / "journal").st_mode & 0o777 == 0o700
    assert os.stat(home / "journal" / name).st_mode & 0o777 == 0o600


def test_a_journal_that_cannot_be_committed_at_the_end_is_left_to_who_comes_next(trail, path, home):
    trail.gather(never)
    trail.end(begun("a", outcome="done"))
    spoil(path, "ALTER TABLE audit RENAME TO away")
    with pytest.raises(StoreError, match="no such table"):
        trail.close()
    spoil(path, "ALTER TABLE away RENAME TO audit")
    assert len(journals(home)) == 1
    trail.recover()
    assert outcomes(trail) == [("a", "done")]
    assert journals(home) == []


def test_a_database_of_version_1_keeps_its_records_and_what_was_pending(trail, path, home):
    write(trail, 3)
    trail._store.close()
    spoil(path, *VERSION_1)
    here = process_identity.this_process()
    connection = sqlite3.connect(path, isolation_level=None)
    for call, host in (("a", GONE), ("b", GONE), ("c", here), ("c0", "999999998:1"), ("d", "nonsense/..")):
        connection.execute("INSERT INTO pending VALUES (?, ?, ?)", (call, host, lines(begun(call))[0]))
    connection.close()
    assert len(trail.records()) == 3
    assert [record.call for record in trail.under_way()] == ["c"]
    trail.recover()
    recovered = outcomes(trail)[3:]
    assert sorted(recovered) == [("a", "lost"), ("b", "lost"), ("d", "lost")]
    assert trail.verify() == (6, [])
    tables = {name for (name,) in trail._store.rows("SELECT name FROM sqlite_master")}
    assert "audit_calls" in tables
    assert not tables & {"pending", "call_ended", "approvals_INSERT"}
    assert trail._store.rows("SELECT count FROM decisions") == [(0,)]
    assert len(journals(home)) == 1  # of the process that lives


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": (None, float("-inf"))}])
def test_what_is_no_json_has_no_digest(value):
    with pytest.raises(ValueError, match="not JSON"):
        audit_log.digest_of(value)


def test_a_digest_does_not_depend_on_the_order_of_keys():
    assert audit_log.digest_of({"a": 1, "b": None}) == audit_log.digest_of({"b": None, "a": 1})
    assert audit_log.digest_of({"a": 1}) != audit_log.digest_of({"a": 2})


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
        approval, (number, record) = [(item.number, item.record) for item in h._audit.records()]
    assert (approval[0], approval[1].kind, approval[1].tool, approval[1].plugin) == (1, "trust", "approve", "hello")
    assert (number, record.kind) == (2, "call")
    assert (record.tool, record.plugin, record.format) == ("hello", "hello", "cyclop")
    assert (record.verdict, record.by, record.reason, record.outcome) == ("allowed", "person", "once", "done")
    assert record.digest == digest.value
    assert record.arguments == audit_log.digest_of({"text": "private-argument"})
    assert record.output == audit_log.digest_of_output(result)
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
        assert h.audit.under_way() == []


TOUCHES = '#!/bin/sh\ntouch "$CYCLOPONE_DATA_DIR/ran"\necho \'{"result": ""}\'\n'


@pytest.mark.anyio
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_call_that_cannot_be_recorded_is_refused_and_nothing_ran(is_first, host, cyclop, path, home):
    folder = cyclop(script=TOUCHES)
    async with host(folder) as h:
        if is_first:
            h.catalog.store.run("DROP TABLE audit")
        else:
            assert not (await h.call("hello")).is_error
            os.unlink(home / "data" / "hello" / "ran")
            spoil(path, "DROP TABLE audit")
            await anyio.sleep(audit_log.COMMIT_S * 2)
        result = await h.call("hello")
    assert (result.error.code, result.is_error) == ("denied", True)
    assert result.error.message.startswith("the call cannot be recorded, so it was not run: ")
    assert result.error.hint
    assert not os.path.exists(home / "data" / "hello" / "ran")


@pytest.mark.anyio
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_call_whose_record_a_trigger_would_undo_is_refused_and_nothing_ran(is_first, host, cyclop, path, home):
    folder = cyclop(script=TOUCHES)
    write(Audit(Store(path)), 1)
    if is_first:
        spoil(path, UNDOING[0])
    async with host(folder) as h:
        if not is_first:
            await h.call("hello")
            await anyio.sleep(audit_log.COMMIT_S * 2)
            spoil(path, UNDOING[0])
            await h.call("hello")  # its record is kept in the journal
            await anyio.sleep(audit_log.COMMIT_S * 2)
            os.unlink(home / "data" / "hello" / "ran")
        result = await h.call("hello")
        assert result.error.message.startswith("the call cannot be recorded, so it was not run: ")
        assert "the trigger z" in result.error.message
        assert not os.path.exists(home / "data" / "hello" / "ran")
        spoil(path, "DROP TRIGGER z")
        assert not (await h.call("hello")).is_error
        assert h.audit.verify()[1] == []


@pytest.mark.anyio
async def test_a_journal_that_cannot_be_written_refuses_calls(host, cyclop, home):
    folder = cyclop(script=TOUCHES)
    (home / "journal").write_text("in the way")
    async with host(folder) as h:
        result = await h.call("hello")
        assert result.error.message.startswith("the call cannot be recorded, so it was not run: the journal ")
        assert not os.path.exists(home / "data" / "hello" / "ran")
        assert [item.record.outcome for item in h.audit.records()] == ["denied"]  # the store has room for that
        os.unlink(home / "journal")
        assert not (await h.call("hello")).is_error


@pytest.mark.anyio
async def test_a_store_that_is_locked_delays_no_call_and_loses_no_record(host, cyclop, path):
    async with host(cyclop()) as h:
        await h.call("hello")
        h.audit.commit()
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        assert not (await h.call("hello")).is_error
        with pytest.raises(StoreError, match="locked by another process"):
            h.audit.commit()
        assert not (await h.call("hello")).is_error  # the journal has their records
        connection.execute("ROLLBACK")
        connection.close()
        assert not (await h.call("hello")).is_error
        assert [item.record.outcome for item in h.audit.records()] == ["done"] * 4
        assert h.audit.verify() == (4, [])


@pytest.mark.parametrize("found_full", ["known", "unknown"])
def test_a_full_disk_refuses_calls_and_loses_no_record(found_full, cyclop, home):
    command = [sys.executable, "-c", FULL, found_full, cyclop()]
    said = subprocess.run(command, capture_output=True, check=True, timeout=60)
    codes, message, outcomes, told = json.loads(said.stdout)
    assert codes == [None, None, "denied", None]
    assert message.startswith("the call cannot be recorded, so it was not run: ")
    *before, refusal, last = outcomes
    assert set(before) == {"done"}
    assert (refusal, last) == ("denied", "done")  # the refusal is recorded when there is room again
    assert (told, journals(home)) == ([], [])


def test_what_a_killed_host_had_ended_and_had_under_way_is_all_there(cyclop, trail, home):
    waiting = cyclop("wait", "#!/bin/sh\nexec sleep 600\n")
    killed = subprocess.run([sys.executable, "-c", KILLED, cyclop(), waiting], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(journals(home)) == 1
    trail.recover()
    found = [item.record.outcome for item in trail.records()]
    assert found == ["done"] * 5 + ["lost"] * 3
    assert trail.verify() == (8, [])
    assert journals(home) == []


def test_others_see_a_record_a_moment_after_its_call(cyclop, trail):
    host = subprocess.Popen(
        [sys.executable, "-c", STAYS, cyclop()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert host.stdout.readline() == b"called\n"
    begun = time.monotonic()
    assert processes.until(lambda: len(trail.records()) == 1)
    took_s = time.monotonic() - begun
    assert host.poll() is None
    host.communicate(timeout=60)
    assert took_s < 1.0  # 50 ms on a machine that has nothing else to do
    assert outcomes(trail)[0][1] == "done"


@pytest.mark.anyio
async def test_a_host_that_ends_in_order_leaves_no_journal(host, cyclop, trail, home):
    async with host(cyclop()) as h:
        assert journals(home) == []
        await h.call("hello")
        await h.call("nothing")
        assert len(journals(home)) == 1
    assert journals(home) == []
    assert [item.record.outcome for item in trail.records()] == ["done", "not_found"]


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
    assert not os.path.exists(home / "data" / "hello" / "ran")


@pytest.mark.anyio
async def test_a_record_that_fails_at_the_end_is_said_and_stays_in_the_journal(host, cyclop, path, home, unconfined):
    script = (
        "#!/bin/sh\n"
        "cat >/dev/null\n"
        f"{sys.executable} -c \"import sqlite3; sqlite3.connect('{path}').execute('DROP TABLE audit')\"\n"
        f'echo \'{{"result": "ran"}}\'\n'
    )
    told = []
    async with host(cyclop(script=script), tell=told.append) as h:
        result = await h.call("hello")
    assert result.text == "ran"
    assert told[-1].startswith("the last calls are not in the audit yet: ")
    (name,) = journals(home)
    assert b'"outcome":"done"' in (home / "journal" / name).read_bytes()


def test_a_database_of_a_newer_version_is_left_alone(path):
    store = Store(path)
    store.run("INSERT INTO disabled VALUES ('x')")
    store.close()
    spoil(path, "PRAGMA user_version = 99")
    with pytest.raises(Exception, match="written by a newer version of anyplug"):
        Store(path).rows("SELECT 1")


def test_only_the_user_may_read_the_database(trail, path):
    write(trail, 1)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert json.loads(trail._store.rows("SELECT record FROM audit")[0][0])["tool"] == "t0"


def test_a_journal_that_is_held_is_not_taken_over_by_those_who_do_not_see_its_process(trail, home):
    trail.gather(never)
    trail.begin(begun("long"))
    (name,) = journals(home)
    os.rename(home / "journal" / name, home / "journal" / f"{GONE}-0")  # as it looks in another container
    trail.recover()
    assert (journals(home), outcomes(trail)) == ([f"{GONE}-0"], [])


def test_the_newest_records_are_read_without_the_others(trail, path):
    for number in range(20):
        trail.end(begun(str(number), outcome="done"))
    spoil(path, "UPDATE audit SET record = 7 WHERE number < 15")  # reading one of these would raise
    assert [kept.number for kept in trail.records(limit=3)] == [18, 19, 20]


def test_a_forged_or_missing_start_is_reported_and_a_dying_removal_is_not(tmp_path):
    store = Store(str(tmp_path / "anyplug.db"))
    trail = Audit(store)
    for number in range(1, 7):
        trail.end(Record(call=str(number), at=float(number), attachment="a", tool="t", outcome="done"))
    head = (tmp_path / "audit-head").read_bytes()
    store.run("DELETE FROM audit WHERE number < 6")  # by somebody else
    (tmp_path / "audit-start").write_bytes(head)  # a head is no start
    reasons = [place.reason for place in trail.verify()[1]]
    assert reasons == [
        "the records 1 to 5 are missing",
        f"{tmp_path}/audit-start was not sealed by this home, or was changed",
    ]
    store.close()

    store = Store(str(tmp_path / "other" / "anyplug.db"))
    trail = Audit(store)
    for number in range(1, 7):
        trail.end(Record(call=str(number), at=float(number), attachment="a", tool="t", outcome="done"))
    early = trail.head()
    ((own,),) = store.rows("SELECT hash FROM audit WHERE number = 3")
    trail.heads.begin_after(Head(3, own, 0.0))  # as a process that dies before its transaction ends
    assert trail.verify() == (6, [])
    assert trail.remove_old(before=100.0, by="person") == 5  # the newest stays
    assert trail.verify() == (2, [])
    trail.end(Record(call="8", at=200.0, attachment="a", tool="t", outcome="done"))
    assert trail.remove_old(largest=500, by="host") == 2
    assert trail.verify() == (2, [])
    ((_, told),) = [(place.number, place.reason) for place in trail.verify(early)[1]]
    assert "cannot be compared" in told
    os.unlink(tmp_path / "other" / "audit-start")
    assert [place.reason for place in trail.verify()[1]] == ["the records 1 to 7 are missing"]
    store.close()
