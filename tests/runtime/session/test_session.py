"""Sessions: lines become frames, answers find who waits, and a peer's misbehaviour is its own problem."""

import asyncio
import contextvars
import json
import os
import signal
import sys
import time

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import processes
from anyplug.home import plugin_logs
from anyplug.runtime.processes.program import Program
from anyplug.runtime.runner import Runner
from anyplug.runtime.session import reader, stderr, writer
from anyplug.runtime.session import session as sessions
from anyplug.runtime.session.session import Crowded, PeerGone, Session
from random_examples import at_most

pytestmark = pytest.mark.anyio

PATIENCE_S = 20.0  # for what happens in a moment, on a machine that has much else to do
PRELUDE = """
import json, os, signal, sys, time
def out(text):
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(1, data):]
def emit(**frame): out(json.dumps(frame) + "\\n")
def heard():
    for line in sys.stdin: yield json.loads(line)
"""
ECHO = "for frame in heard(): emit(id=frame['id'])"


class Peer:
    """A session with a Python script, and all that was heard of it."""

    def __init__(self, runner, script, log=None, **changes):
        fields = {"argv": (sys.executable, "-I", "-S", "-c", PRELUDE + script), "cwd": "/"}
        program = Program(**(fields | changes), env={"PATH": os.environ["PATH"]} | runner.environment)
        self.frames = []
        self.ends = []
        self.logged = b""
        log = log or self.log
        self.session = Session(program, runner.direct, receive=self.receive, ended=self.ends.append, log=log)

    def receive(self, frame):
        self.frames.append(frame)
        if "id" in frame:
            self.session.answer(frame["id"], frame)

    def log(self, chunk):
        self.logged += chunk

    async def ask(self, name, **more):
        return await self.session.ask(name, {"id": name} | more, None)

    async def until(self, is_so):
        with anyio.fail_after(PATIENCE_S):
            while not is_so():
                await anyio.sleep(0.005)

    async def frames_to(self, count):
        await self.until(lambda: len(self.frames) >= count)
        return self.frames

    async def end(self):
        """Wait until it has ended."""
        await self.until(lambda: self.ends)
        return self.ends[0]


@pytest.fixture
async def start(tmp_path):
    """Start peers; see to it that neither processes nor files nor tasks are left of them."""
    runner = Runner(str(tmp_path))
    runner.direct._guard._ensure()
    files, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
    peers = []

    def start_it(script, log=None, **changes):
        peers.append(Peer(runner, script, log, **changes))
        return peers[-1]

    yield start_it
    for peer in peers:
        peer.session.give_up("the test is over")
        await peer.session.stop()
        assert len(peer.ends) == 1
        assert not peer.session.is_asked
    assert len(os.listdir("/proc/self/fd")) == files
    assert len(asyncio.all_tasks()) == tasks
    await anyio.to_thread.run_sync(runner.close)
    assert processes.tagged(runner.guard._tag) == {}


# Framing


@pytest.mark.requirement("ZOT-01")
async def test_a_line_that_comes_in_pieces_is_one_frame(start):
    peer = start("for piece in ('{\"a\"', ': [1,', ' 2]}', '\\n{\"b\": 3}\\n'): out(piece); time.sleep(0.02)")
    assert await peer.frames_to(2) == [{"a": [1, 2]}, {"b": 3}]


async def test_a_character_that_is_split_over_two_pieces_stays_whole(start):
    peer = start("out('{\"a\": \"'); out(b'\\xc3'); time.sleep(0.05); out(b'\\xa9\"}\\n')")
    assert await peer.frames_to(1) == [{"a": "é"}]


async def test_many_frames_in_one_piece_come_in_order(start):
    peer = start("out(''.join(json.dumps({'n': n}) + '\\n' for n in range(10_000)))")
    assert await peer.frames_to(10_000) == [{"n": n} for n in range(10_000)]


async def test_the_last_line_needs_no_newline(start):
    peer = start('out(\'{"a": 1}\\n{"b": 2}\')')
    await peer.end()
    assert peer.frames == [{"a": 1}, {"b": 2}]


async def test_windows_line_breaks_are_as_good(start):
    peer = start('out(\'{"a": 1}\\r\\n{"b": 2}\\r\\n\')')
    assert await peer.frames_to(2) == [{"a": 1}, {"b": 2}]
    assert peer.session.counts.malformed == 0


async def test_what_is_no_object_is_counted_logged_and_survived(start):
    bad = ["", "  ", "[1]", '"text"', "3", "null", "{", '{"a": NaN}', "{}{}", '{"a": \\ud800}', "[" * 5000]
    lines = [*(line.encode() for line in bad), b"\xff\xfe"]
    peer = start(f"for line in {lines!r}: out(line + b'\\n'); emit(good=1)")
    assert await peer.frames_to(len(lines)) == [{"good": 1}] * len(lines)
    assert peer.session.counts.malformed == len(lines)
    assert peer.logged.count(b"[anyplug] ") == len(lines)


async def test_text_that_was_cut_in_the_middle_of_a_character_is_read_with_a_mark_in_its_place(start):
    lines = [
        b'{"a": "x \\ud83d"}', b'{"a": "\\uDE00 y"}', b'{"a": "caf\xe9"}', b'{"\\udc00": ["\\ud83d\\ude00"]}',
        b'{"a": "\\\\ud83d"}',
    ]  # fmt: skip
    peer = start(f"for line in {lines!r}: out(line + b'\\n')")
    assert await peer.frames_to(len(lines)) == [
        {"a": "x \ufffd"}, {"a": "\ufffd y"}, {"a": "caf\ufffd"}, {"\ufffd": ["\U0001f600"]}, {"a": "\\ud83d"},
    ]  # fmt: skip
    assert peer.session.counts.malformed == 0


async def test_half_a_character_that_a_peer_is_sent_arrives_as_a_mark(start):
    peer = start("for line in sys.stdin: out(line)")
    peer.session.send({"a": "x \ud83d"})
    assert await peer.frames_to(1) == [{"a": "x \ufffd"}]


async def test_of_very_many_bad_lines_only_some_are_logged(start):
    peer = start("out('\\n' * 50_000); emit(good=1)")
    assert await peer.frames_to(1) == [{"good": 1}]
    assert peer.session.counts.malformed == 50_000
    assert peer.logged.count(b"\n") == reader.LOGGED_FAULTS
    assert b"only counted" in peer.logged


async def test_a_line_of_just_the_limit_is_read_and_one_byte_more_is_skipped(start):
    peer = start(
        "room = 4 * 1024 * 1024 - len('{\"a\": \"\"}')\n"
        "emit(a='x' * room)\nemit(a='x' * (room + 1))\nemit(good=1)"
    )  # fmt: skip
    frames = await peer.frames_to(2)
    assert (len(frames[0]["a"]) > 4_000_000, frames[1]) == (True, {"good": 1})
    assert (peer.session.counts.too_long, peer.session.counts.malformed) == (1, 0)
    assert b"skipped a line of more than 4,194,304 bytes" in peer.logged


async def test_a_line_of_64_mb_is_skipped_without_being_kept(start):
    peer = start("for _ in range(1024): out(b'x' * 65_536)\nout('\\n')\nemit(good=1)")
    most = 0
    while not peer.frames:
        most = max(most, len(peer.session._incoming._line))
        await anyio.lowlevel.checkpoint()
    assert peer.frames == [{"good": 1}]
    assert most <= sessions.LONGEST_LINE + reader.CHUNK
    assert peer.session.counts.too_long == 1


async def test_a_line_that_never_ends_is_skipped_once(start):
    peer = start("out(b'x' * (5 << 20))")
    await peer.end()
    assert (peer.frames, peer.session.counts.too_long) == ([], 1)


# Questions and answers


@pytest.mark.requirement("ZOT-17")
async def test_many_questions_in_flight_are_answered_in_any_order(start):
    peer = start(
        "asked = []\nfor frame in heard():\n  asked.append(frame)\n"
        "  if len(asked) == 500:\n    for one in reversed(asked): emit(id=one['id'], twice=one['n'] * 2)"
    )
    answers = {}

    async def ask(n):
        answers[n] = (await peer.ask(f"q{n}", n=n))["twice"]

    async with anyio.create_task_group() as tasks:
        for n in range(500):
            tasks.start_soon(ask, n)
    assert answers == {n: 2 * n for n in range(500)}
    assert not peer.session.is_asked


async def test_frames_reach_the_peer_in_the_order_in_which_they_were_sent(start):
    peer = start("for frame in heard(): emit(**frame)")
    for n in range(5_000):
        peer.session.send({"n": n})
    assert await peer.frames_to(5_000) == [{"n": n} for n in range(5_000)]


async def test_an_answer_that_nobody_waits_for_any_more_is_not_taken(start):
    peer = start(ECHO)
    peer.session.expect("a")
    peer.session.forget("a")
    assert peer.session.answer("a", 1) is False
    assert peer.session.answer("unknown", 1) is False
    future = peer.session.expect("b")
    assert peer.session.answer("b", 1) is True
    assert peer.session.answer("b", 2) is False
    assert await future == 1


async def test_a_frame_larger_than_the_pipe_arrives_whole(start):
    peer = start("for frame in heard(): emit(size=len(frame['text']))")
    peer.session.send({"text": "x" * 3_000_000})
    assert await peer.frames_to(1) == [{"size": 3_000_000}]


# Back-pressure


async def test_a_peer_that_stops_reading_is_given_up_and_never_blocks_another(start):
    stuck, good = start("time.sleep(600)"), start(ECHO)
    waiting = stuck.session.expect("never")
    began = time.monotonic()
    stuck.session.send({"text": "x" * 1_000_000})
    count = 0
    while not stuck.ends:
        await good.ask(f"q{count}")
        count += 1
    assert time.monotonic() - began >= writer.STALL_S - 0.5
    assert count > 100
    with pytest.raises(PeerGone, match=r"it has read nothing for 5s"):
        await waiting
    with pytest.raises(PeerGone):
        stuck.session.send({"more": 1})


async def test_a_peer_that_reads_slowly_gets_everything(start):
    peer = start(
        "got = b''\nwhile not got.endswith(b'!\"}\\n'):\n  time.sleep(0.005); got += os.read(0, 65_536)\n"
        "emit(size=len(got)); time.sleep(600)"
    )
    peer.session.send({"text": "x" * 4_000_000 + "!"})
    assert (await peer.frames_to(1))[0]["size"] > 4_000_000


async def test_what_waits_for_a_peer_is_bounded(start):
    peer = start("time.sleep(600)")
    for _ in range(17):
        peer.session.send({"text": "x" * 1_000_000})
    with pytest.raises(Crowded, match="more than 16 MiB are waiting to be read by it"):
        peer.session.send({"text": "x" * 1_000_000})
    with pytest.raises(Crowded, match="more than 16 MiB"):
        await peer.session.wait_for_room(0.05)
    assert not peer.session.is_given_up, "only one that reads nothing for a while is"


async def test_a_peer_that_catches_up_has_room_again(start):
    peer = start("time.sleep(0.5)\nfor line in sys.stdin: emit(size=len(line))")
    for _ in range(17):
        peer.session.send({"text": "x" * 1_000_000})
    assert peer.session.is_crowded
    with anyio.fail_after(PATIENCE_S):
        await peer.session.wait_for_room(PATIENCE_S)
    peer.session.send({"text": "last"})
    await peer.frames_to(18)


async def test_a_peer_that_closed_its_stdin_or_stdout_and_lives_on_is_given_up(start):
    no_stdin = start("os.close(0); emit(ok=1); time.sleep(600)")
    no_stdout = start("os.close(1); time.sleep(600)")
    await no_stdin.frames_to(1)

    async def ask(peer, name):
        with pytest.raises(PeerGone, match=f"it closed its {name}"):
            await peer.ask("a")

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, no_stdin, "stdin")
            tasks.start_soon(ask, no_stdout, "stdout")


# The end of a peer


async def test_when_a_peer_dies_everyone_who_waits_fails_at_once_with_what_it_said(start):
    peer = start(
        "for n, frame in enumerate(heard()):\n"
        "  if n == 49: os.write(2, b'out of cheese\\n'); emit(id='q0'); os._exit(7)"
    )
    outcomes = []

    async def ask(n):
        try:
            outcomes.append(await peer.ask(f"q{n}"))
        except PeerGone as gone:
            outcomes.append((gone.reason, gone.exit_code, gone.stderr))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for n in range(50):
                tasks.start_soon(ask, n)
    assert outcomes.count({"id": "q0"}) == 1
    assert outcomes.count(("it exited with 7", 7, "out of cheese")) == 49


async def test_a_death_in_the_middle_of_a_frame_is_a_death_and_half_a_frame_is_none(start):
    peer = start("emit(a=1); out('{\"b\": '); os.kill(os.getpid(), signal.SIGKILL)")
    gone = await peer.end()
    assert peer.frames == [{"a": 1}]
    assert (gone.reason, gone.exit_code) == ("it was killed by SIGKILL", -9)
    assert peer.session.counts.malformed == 1


async def test_nobody_can_ask_or_wait_for_a_peer_that_is_gone(start):
    peer = start("")
    gone = await peer.end()
    assert peer.session.gone is gone
    with pytest.raises(PeerGone, match="it exited with 0"):
        peer.session.expect("a")
    with pytest.raises(PeerGone, match="it exited with 0"):
        peer.session.send({})


async def test_what_it_said_just_before_its_end_is_delivered_first(start):
    peer = start("for n in range(1000): emit(n=n)\nos._exit(0)")
    await peer.end()
    assert [frame["n"] for frame in peer.frames] == list(range(1000))


async def test_who_gave_up_waiting_is_not_told_of_the_end(start):
    peer = start("for frame in heard(): time.sleep(0.5); os._exit(1)")
    with anyio.move_on_after(0.01):
        await peer.ask("a")
    assert (await peer.end()).exit_code == 1


async def test_what_it_said_about_earlier_questions_is_not_why_it_ended(start):
    peer = start(
        "for frame in heard():\n"
        "    if frame['id'] == 'b': os._exit(3)\n"
        "    os.write(2, b'old trouble'); time.sleep(0.05); emit(id=frame['id'])"
    )
    await peer.ask("a")
    while not peer.logged:
        await anyio.sleep(0.01)
    with pytest.raises(PeerGone) as gone:
        await peer.ask("b")
    assert (gone.value.exit_code, gone.value.stderr) == (3, "")
    assert peer.session.stderr_end == "old trouble"


# Waiting awake

QUICK_OR_SLOW = "for frame in heard(): time.sleep(frame.get('rest', 0)); emit(id=frame['id'])"


async def ticks_while(act):
    """Count the turns that others get meanwhile."""
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await anyio.sleep(0.005)
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await anyio.sleep(0.02)
        before = ticks
        await act()
        meanwhile = ticks - before
        tasks.cancel_scope.cancel()
    return meanwhile


@pytest.fixture
def patient(monkeypatch):
    """Take for quick what can be told from slow on any machine."""
    monkeypatch.setattr(sessions, "QUICK_S", 1.5)


async def test_a_peer_that_was_quick_is_waited_for_awake_and_only_for_so_long(start, patient):
    peer = start(QUICK_OR_SLOW)
    await peer.ask("start")
    await peer.ask("first")
    assert await ticks_while(lambda: peer.ask("second", rest=0.2)) <= 2
    assert await ticks_while(lambda: peer.ask("third", rest=2.0)) > 10  # most of it awake, then asleep
    assert await ticks_while(lambda: peer.ask("fourth", rest=0.2)) > 10  # it was slow
    assert await ticks_while(lambda: peer.ask("fifth", rest=0.2)) <= 2  # and is quick again


@pytest.mark.parametrize(("turn_s", "least", "most"), [(30.0, 0, 20), (0.0, 50, 1_000)])
async def test_others_run_once_in_a_while_between_requests_that_are_waited_for_awake(
    turn_s, least, most, start, patient, monkeypatch
):
    monkeypatch.setattr(sessions, "TURN_S", turn_s)
    peer, loop, turns = start(QUICK_OR_SLOW), asyncio.get_running_loop(), 0
    for number in range(3):
        await peer.ask(f"first {number}")

    def turn():
        nonlocal turns, handle
        turns += 1
        handle = loop.call_soon(turn)

    handle = loop.call_soon(turn)
    for number in range(50):
        await peer.ask(str(number))
    handle.cancel()
    assert least <= turns <= most


async def test_nobody_stays_awake_while_another_peer_has_been_asked(start, patient):
    peer, other = start(QUICK_OR_SLOW), start(QUICK_OR_SLOW)
    await peer.ask("first")
    await other.ask("first")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: other.ask("long", rest=2.5))
        await anyio.sleep(1.6)
        assert await ticks_while(lambda: peer.ask("second", rest=0.2)) > 10


async def test_who_ends_while_somebody_waits_awake_fails_the_call(start, patient):
    peer = start("for frame in heard():\n    if frame['id'] == 'b': os._exit(3)\n    emit(id=frame['id'])")
    await peer.ask("a")
    with pytest.raises(PeerGone, match="it exited with 3"):
        await peer.ask("b")


async def test_on_one_processor_nobody_stays_awake(start, patient, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    peer = start(QUICK_OR_SLOW)
    await peer.ask("first")
    assert await ticks_while(lambda: peer.ask("second", rest=0.2)) > 10


async def test_a_program_that_cannot_be_started_leaves_nothing_open(start):
    with pytest.raises(FileNotFoundError):
        start("", argv=("/no/such/program",))


async def test_a_grandchild_that_keeps_the_pipes_keeps_nobody(start):
    peer = start("import subprocess; subprocess.Popen(['sleep', '600']); os.write(2, b'bye'); os._exit(0)")
    assert (await peer.end()).stderr == "bye"


# An orderly end


@pytest.mark.requirement("ZOT-15")
async def test_a_stop_says_goodbye_and_closes_stdin(start):
    peer = start("for frame in heard(): emit(got=frame)\nemit(got='end'); os._exit(0)")
    await peer.session.stop({"type": "shutdown"})
    assert peer.frames == [{"got": {"type": "shutdown"}}, {"got": "end"}]
    assert (peer.session.gone.reason, peer.session.gone.exit_code) == ("it exited with 0", 0)


@pytest.mark.requirement("ZOT-15")
async def test_who_takes_its_time_to_leave_is_waited_for(start):
    assert sessions.STOP_S == 2
    peer = start("for frame in heard(): time.sleep(0.8); emit(type='shutdown_ack'); time.sleep(0.2); os._exit(0)")
    await peer.session.stop({"type": "shutdown"})
    assert (peer.frames, peer.session.gone.exit_code) == ([{"type": "shutdown_ack"}], 0)


@pytest.mark.requirement("ZOT-16")
async def test_who_does_not_leave_gets_sigterm_then_sigkill_and_all_at_the_same_time(start):
    forever = "emit(up=1)\nwhile True: time.sleep(1)"
    speaks = start(
        f"def bye(*_): emit(got='term'); os._exit(0)\nsignal.signal(signal.SIGTERM, bye); {forever}",
    )
    reads_nothing = start("emit(up=1); time.sleep(600)")
    holdouts = [start(f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {forever}") for _ in range(3)]
    peers = [speaks, reads_nothing, *holdouts]
    for peer in peers:
        await peer.frames_to(1)
    reads_nothing.session.send({"text": "x" * 1_000_000})
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for peer in peers:
            tasks.start_soon(peer.session.stop, {"type": "shutdown"})
    took = time.monotonic() - began
    assert sessions.STOP_S + sessions.TERM_S - 0.1 <= took < 2 * (sessions.STOP_S + sessions.TERM_S)
    assert speaks.frames == [{"up": 1}, {"got": "term"}]
    codes = [peer.session.gone.exit_code for peer in peers]
    assert codes == [0, -signal.SIGTERM, *[-signal.SIGKILL] * 3]


async def test_a_peer_that_dies_during_its_shutdown_has_ended(start):
    peer = start("for frame in heard(): os.kill(os.getpid(), signal.SIGSEGV)")
    await peer.session.stop({"type": "shutdown"})
    assert peer.session.gone.exit_code == -signal.SIGSEGV


async def test_whoever_waits_while_a_peer_is_stopped_is_told(start):
    peer = start("for frame in heard(): pass")
    future = peer.session.expect("a")
    await peer.session.stop()
    with pytest.raises(PeerGone, match="it exited with 0"):
        await future


async def test_stopping_twice_at_the_same_time_is_stopping_once(start):
    peer = start(ECHO)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.session.stop)
        tasks.start_soon(peer.session.stop)
    assert len(peer.ends) == 1


async def test_after_it_was_given_up_nothing_of_it_is_heard(start):
    peer = start("emit(a=1); emit(b=2); time.sleep(600)")
    peer.receive = peer.frames.append
    peer.session._incoming._receive = lambda frame: (peer.frames.append(frame), peer.session.give_up("enough"))
    assert (await peer.end()).reason == "enough"
    assert peer.frames == [{"a": 1}]


# Noise


async def test_a_flood_on_stderr_goes_to_a_log_that_rotates_and_its_end_is_kept(start, tmp_path):
    path = str(tmp_path / "logs" / "noisy.log")
    peer = start(
        "os.read(0, 1)\nfor n in range(60): os.write(2, b'x' * 99_999 + b'\\n')\nos.write(2, b'the end'); os._exit(1)",
        lambda chunk: plugin_logs.append_raw(path, chunk),
    )
    peer.session.send({})
    gone = await peer.end()
    assert gone.stderr.endswith("the end")
    assert len(gone.stderr) <= stderr.KEPT
    files = sorted(os.listdir(tmp_path / "logs"))
    assert files[0] == "noisy.log" or files == [f"noisy.log.{n}" for n in range(1, plugin_logs.KEPT + 1)]
    assert len(files) <= plugin_logs.KEPT + 1
    for name in files:
        found = os.stat(tmp_path / "logs" / name)
        assert found.st_size <= plugin_logs.LARGEST + reader.CHUNK
        assert found.st_mode & 0o777 == 0o600


async def test_a_log_that_cannot_be_written_keeps_nobody_from_working(start, tmp_path):
    os.symlink("/dev/full", tmp_path / "full.log")
    path = str(tmp_path / "full.log")
    peer = start(
        "os.write(2, b'noise'); emit(ok=1); sys.stdin.read()", lambda chunk: plugin_logs.append_raw(path, chunk)
    )
    assert await peer.frames_to(1) == [{"ok": 1}]


async def test_100_000_frames_a_second_from_one_peer_do_not_starve_another(start):
    loud = start("block = ''.join(json.dumps({'n': n}) + '\\n' for n in range(1000))\nwhile True: out(block)")
    good = start(ECHO)
    await loud.frames_to(1)
    before, began = len(loud.frames), time.monotonic()
    for n in range(200):
        await good.ask(f"q{n}")
    took = time.monotonic() - began
    assert len(loud.frames) > before
    assert took < PATIENCE_S


async def test_frames_that_take_long_hold_up_others_for_a_few_at_a_time():
    reading, writing = os.pipe()
    loop, heard = asyncio.get_running_loop(), []

    def slow(frame):
        time.sleep(reader.TURN_S / 20)
        heard.append(frame)

    os.write(writing, b'{"some": "frame"}\n' * 3_000)  # all of it fits into the pipe
    lines = reader.Incoming(
        reading, loop, receive=slow, closed=lambda: None, log=print, longest_line=4_096, missed=print
    )
    others = 0
    with anyio.fail_after(PATIENCE_S):
        while len(heard) < 3_000:
            await anyio.lowlevel.checkpoint()
            others += 1
    assert others >= 54_000 // reader.LEAST
    lines.close()
    os.close(writing)


async def test_a_peer_whose_frames_take_long_waits_while_others_go_on():
    reading, writing = os.pipe()
    loop, order = asyncio.get_running_loop(), []

    def slow(_):
        until = time.thread_time() + 2 * reader.LONG_S
        while time.thread_time() < until:
            pass
        order.append("frame")
        loop.call_later(2 * reader.LONG_S, order.append, "other")

    padding = b" " * reader.LEAST  # so that each is read by itself
    os.write(writing, (b'{"some": "frame"}\n' + padding) * 3)
    lines = reader.Incoming(
        reading, loop, receive=slow, closed=lambda: None, log=print, longest_line=65_536, missed=print
    )
    with anyio.fail_after(PATIENCE_S):
        while order.count("frame") < 3:
            await anyio.lowlevel.checkpoint()
    lines.close()
    os.close(writing)
    assert order == ["frame", "other", "frame", "other", "frame"]


# Anything at all


def _lines():
    names = st.sampled_from(["a", "b", "c", "", "unknown"])
    answers = st.builds(lambda name, value: json.dumps({"id": name, "v": value}).encode(), names, st.integers())
    mutated = st.builds(lambda line, at: line[:at] + line[at + 1 :], answers, st.integers(0, 20))
    return st.one_of(answers, mutated, st.binary(max_size=60), st.just(b""), st.just(b"x" * 2_000))


@settings(max_examples=at_most(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=st.lists(_lines(), max_size=12), cut=st.integers(0, 40), code=st.sampled_from([0, 1, -9]))
def test_no_sequence_of_bytes_hangs_a_session_or_leaves_a_waiter(lines, cut, code):
    data = b"\n".join(lines)
    data = data[: len(data) - cut] if cut < len(data) else data

    async def work():
        runner = Runner("/nonexistent")
        try:
            end = f"os._exit({code})" if code >= 0 else "os.kill(os.getpid(), 9)"
            good, bad = Peer(runner, ECHO), Peer(runner, f"out({data!r}); {end}")
            waiting = [bad.session.expect(name) for name in ("a", "b", "c")]
            assert await good.ask("still") == {"id": "still"}
            with anyio.fail_after(PATIENCE_S):
                await asyncio.wait(waiting)
            assert not bad.session.is_asked
            await bad.end()
            assert await good.ask("there") == {"id": "there"}
            await good.session.stop()
            assert good.frames == [{"id": "still"}, {"id": "there"}]
        finally:
            runner.close()
        assert processes.tagged(runner.guard._tag) == {}

    anyio.run(work)


# Deadlines, and frames that go out together


async def test_each_answer_has_a_deadline_of_its_own(start):
    peer = start("for frame in heard():\n    if frame['id'] == 'd': emit(id='d')")
    session, begun = peer.session, time.monotonic()
    futures = {name: session.expect(name, wait) for name, wait in (("a", 0.4), ("b", 0.1), ("c", 600.0), ("d", 0.3))}
    session.send({"id": "d"})
    assert (await futures["d"])["id"] == "d"
    session.forget("d")
    for name, wait in (("b", 0.1), ("a", 0.4)):
        with pytest.raises(TimeoutError):
            await futures[name]
        assert time.monotonic() - begun >= wait
    assert not futures["c"].done()
    session.give_up("enough")
    with pytest.raises(PeerGone):
        await futures["c"]


async def test_frames_that_are_sent_in_one_go_arrive_in_order_and_the_last_before_the_end(start):
    peer = start("for frame in heard(): emit(said=frame['id'])")
    for number in range(50):
        peer.session.expect(str(number)).add_done_callback(lambda future: future.exception())
        peer.session.send({"id": number, "pad": "x" * (5_000 if number % 7 == 0 else 1)})
    await peer.session.stop({"id": "goodbye"})
    assert [frame["said"] for frame in peer.frames] == [*range(50), "goodbye"]


async def test_what_is_sent_to_a_peer_that_ends_that_moment_is_no_error(start):
    peer = start("time.sleep(600)")
    waiting = [peer.session.expect(str(number)) for number in range(3)]
    peer.session.send({"id": "1"})
    peer.session._outgoing.close()
    await anyio.lowlevel.checkpoint()
    peer.session.give_up("enough")
    await peer.end()
    assert all(isinstance(future.exception(), PeerGone) for future in waiting)


async def test_frames_are_received_in_the_sessions_own_context_also_while_somebody_waits_for_them_awake(start):
    who = contextvars.ContextVar("who", default="nobody")
    peer = start("for line in sys.stdin: out(line)")
    seen = []
    receive = peer.session._incoming._receive

    def receiving(frame):
        seen.append(who.get())
        receive(frame)

    peer.session._incoming._receive = receiving
    who.set("a caller")
    for number in range(50):
        peer.session._is_quick = True  # whatever the machine has to do
        await peer.ask(str(number))
    assert set(seen) == {"nobody"}
