"""Anything that an extension may say: it hangs nobody, leaves no waiter and no process, and reaches no other."""

import base64
import json

import anyio.from_thread
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as tries
from hypothesis import strategies as st

import processes
import zot_folders
from anyplug.formats.zot import frames
from anyplug.host.host import Host
from random_examples import at_most

# Says whatever it is told to, with the call's own id in place of ID, then answers if it is told to.
PARROT = """
import base64
hello("call_tool", "tool_cancel", "panels")
tool("parrot")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        data = base64.b64decode(frame["args"]["say"]).replace(b"ID", frame["id"].encode())
        while data:
            data = data[os.write(1, data):]
        os.write(1, b"\\n")
        if frame["args"]["answer"]:
            say(frame, "done")
"""
CALM = """
hello()
tool("calm")
command("calm")
emit("subscribe", intercept=["turn_start"])
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, "calm")
    elif frame["type"] == "event_intercept":
        emit("event_intercept_response", id=frame["id"])
"""
WORDS = ["ID", "", "1", "main", "calm", "parrot", "/calm", "text", "image", "noop", "\u0000", "x" * 300]

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(WORDS), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["id", "type", "text", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = sorted({name for shape in frames.INCOMING.values() for name in shape.__struct_fields__})
kinds = st.sampled_from([*frames.INCOMING, "hello_ack", "shutdown", "invented", ""])
objects = st.builds(
    lambda kind, rest: json.dumps({"type": kind, **rest}).encode(),
    kinds,
    st.dictionaries(st.sampled_from(fields), values, max_size=6),
)
likely = st.builds(
    lambda kind, number, word: json.dumps(
        {"type": kind, "id": number, "name": word, "panel_id": word, "text": word, "message": word, "content": []}
        | ({"panel": {"id": word, "lines": [word]}} if kind == "open_panel" else {})
    ).encode(),
    kinds.filter(lambda kind: kind not in {"register_tool", "register_command", "subscribe"}),
    st.sampled_from(["ID", "1", ""]),
    st.sampled_from(WORDS),
)
mutated = st.builds(
    lambda line, at, byte: line[:at] + bytes([byte]) + line[at + 1 :], objects, st.integers(0, 60), st.integers(0, 255)
)
lines = st.lists(st.one_of(objects, likely, mutated, st.binary(max_size=30)), max_size=6)


@pytest.fixture
def live(zot, settings):
    """Run a host with a parrot and a calm extension in a thread of its own; give it and a way to call it."""
    settings("[plugins.parrot]\ntimeout_s = 0.2\n")
    parrot, calm = zot("parrot", PARROT), zot("calm", CALM)
    with anyio.from_thread.start_blocking_portal() as portal:
        host = portal.call(lambda: Host([parrot, calm], roots=[], watch=False))
        with portal.wrap_async_context_manager(host):
            tag = host._runner.guard._tag
            yield host, portal
    assert processes.tagged(tag) == {}
    assert len(zot_folders.heard(calm, "shutdown")) == 1


def test_no_sequence_of_frames_hangs_the_host_or_reaches_another_extension(live):
    host, portal = live
    parrot, calm = host.peers.up
    pids = [parrot.session.pid, calm.session.pid]

    async def exchange(said, answer):
        with anyio.fail_after(10):
            word = base64.b64encode(b"\n".join(said)).decode()
            result = await host.call("parrot", {"say": word, "answer": answer})
            assert result.text or result.error
            assert (await host.call("calm")).text == "calm"
            assert (await host.guards.turn_start(1)).blocked_by in {"", "parrot"}

    @tries(max_examples=at_most(80), deadline=None, suppress_health_check=list(HealthCheck))
    @given(said=lines, answer=st.sampled_from([True, True, True, False]))
    def try_it(said, answer):
        portal.call(exchange, said, answer)

    try_it()

    async def at_the_end():
        with anyio.fail_after(10):
            while host._live._asked or parrot.active:
                await anyio.sleep(0.01)
        assert (parrot.session.is_asked, calm.session.is_asked, calm.active) == (False, False, {})
        assert [extension.session.pid for extension in host.peers.up] == pids
        assert [place.restarts for place in host.peers.places] == [0, 0]
        offered = [[tool.name for tool in calm.offer.tools], [command.name for command in calm.offer.commands]]
        assert (offered, calm.intercepts) == ([["calm"], ["calm"]], {"turn_start"})
        assert calm.session.counts.malformed == 0
        assert all(panel.owner == "parrot" for panel in host.panels.open)

    portal.call(at_the_end)
