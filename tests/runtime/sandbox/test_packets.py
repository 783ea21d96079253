"""What host and spawner send each other arrives as it was, and nothing that nobody knows is an order."""

import os
import signal
import socket

import pytest

from anyplug.runtime.sandbox import packets, spawner_client
from anyplug.runtime.sandbox.enforcement import LAYERS
from anyplug.runtime.sandbox.linux.enforced_order import Order
from anyplug.runtime.sandbox.linux.mounts import _version
from anyplug.runtime.sandbox.profile import Profile


@pytest.fixture
def ends():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield pair
    for end in pair:
        end.close()


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        {"argv": ("a", "b"), "env": {"NAME": "\udcff"}, "cpu_s": 600, "visible": []},
        {"number": signal.SIGTERM, "argv": [Word("text")]},
    ],
)
def test_values_arrive_as_they_were(value):
    assert packets.decode(packets.encode(value)) == value


@pytest.mark.parametrize(
    ("held", "refused", "failure"),
    [([], {}, ""), (["mounts", "pids"], {"network": "Operation not permitted", "landlock": ""}, "it broke: \u2026")],
)
@pytest.mark.parametrize("is_refusal", [True, False])
def test_words_arrive_as_they_were(held, refused, failure, is_refusal):
    word = packets.write_word(held, refused, failure, is_refusal=is_refusal)
    assert packets.read_word(word) == (tuple(held), refused, failure, is_refusal)


def test_no_more_descriptors_come_than_are_wanted_and_nobody_inherits_them(ends):
    with open(os.devnull, "rb") as file:
        packets.send(ends[0], b"packet", [file.fileno()] * 3)
        packet, found = packets.receive(ends[1], 100, 1)
        assert packet == b"packet"
        assert len(found) == 1
        assert not os.get_inheritable(found[0])
        os.close(found[0])


def test_the_end_is_an_empty_packet(ends):
    ends[0].close()
    assert packets.receive(ends[1], 100, 4) == (b"", [])


def test_an_order_that_says_what_nobody_knows_is_refused():
    with pytest.raises(TypeError, match="an order has no hiden"):
        Order(layers=(), hiden=("/home/me/.ssh",))
    with pytest.raises(TypeError):
        Order(hidden=())


def test_all_of_a_profile_is_an_order():
    order = Order(**spawner_client._order(LAYERS, Profile(hidden=("/a",))))
    assert order.hidden == ("/a",)
    assert order.limits["memory"] > 0


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.18.44-fc-v490", (6, 18)), ("6.1rc2", (6, 1)), ("5.15.0+", (5, 15)), ("7-rc", (7,)), ("odd", ())],
)
def test_a_kernels_release_is_read(release, version):
    assert _version(release) == version
