"""Sealed messages: every type there and back, wrong keys, mutations, fragments."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.wire import sealing
from psirp_sim.wire.control import Fragment, Hello, LinkState, ReportedLink, TreeRequest, Wanted
from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.message import Message, WireFilter
from psirp_sim.wire.sealing import SEAL, FabricKeys, Reassembly, WrongKey, pieces
from psirp_sim.zfilters import ZFilter
from tests.psirp_sim.wire.examples import EXAMPLES, FILTER

KEYS = FabricKeys("a secret")


def test_there_is_an_example_of_every_message():
    assert {type(example) for example in EXAMPLES} == set(Message.__subclasses__())
    assert len({kind.type for kind in Message.__subclasses__()}) == len(Message.__subclasses__())


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_there_and_back(message):
    assert KEYS.open(KEYS.seal(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_any_change_of_a_bit_is_noticed(message):
    sealed = KEYS.seal(message)
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1 << position % 8
        with pytest.raises(WrongKey):
            KEYS.open(bytes(changed))


def test_two_keys_are_valid_while_one_replaces_the_other():
    old, both, new = FabricKeys("old"), FabricKeys("new", "old"), FabricKeys("new")
    message = EXAMPLES[-1]
    assert both.open(old.seal(message)) == message
    assert new.open(both.seal(message)) == message
    with pytest.raises(WrongKey):
        new.open(old.seal(message))
    for secrets in ((), ("a", "b", "c")):
        with pytest.raises(ValueError, match="one key, or two"):
            FabricKeys(*secrets)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_by_name(data):
    with pytest.raises((WrongKey, MalformedPacket)):
        KEYS.open(data)


@given(st.integers(0, 255), st.binary(max_size=200))
def test_whoever_has_the_key_and_sends_nonsense_is_refused_by_name(kind, body):
    """Even under the right key a body is checked field by field."""
    data = bytes((kind,)) + body
    sealed = data[:1] + sealing._mac(KEYS._keys[0], data) + data[1:]
    with suppress(MalformedPacket):
        assert isinstance(KEYS.open(sealed), Message)


@pytest.mark.parametrize(
    "message",
    [
        Hello("", "l", 1, None, 0, None, bytes(8), ""),
        Hello("a" * 64, "l", 1, None, 0, None, bytes(8), ""),
        Hello("a", "l", -1, None, 0, None, bytes(8), ""),
        Hello("a", "l", 1, None, 0, None, bytes(7), ""),
        LinkState("a", 1, 1, [], [ReportedLink("l", "b", "m", 0)]),
        TreeRequest(bytes(15), "a", "a", [], None),
        Fragment(b"abcdefgh", 0, 1, b""),
    ],
)
def test_fields_out_of_bounds_are_refused(message):
    with pytest.raises(MalformedPacket):
        KEYS.open(KEYS.seal(message))


def test_a_filter_must_fit_its_descriptor():
    with pytest.raises(MalformedPacket):
        WireFilter(3, 0, bytes(31)).zfilter()
    assert FILTER.zfilter() == ZFilter.bloom(256, 3, 1 << 255 | 5)


LONG = LinkState("a", 1, 1, [], [ReportedLink(f"link{n}", f"node{n}", "x") for n in range(500)])


def test_a_long_message_is_cut_and_put_together():
    cut = list(pieces(KEYS, LONG, b"abcdefgh", 1_000))
    assert len(cut) > 5
    assert all(len(piece) <= 1_000 for piece in cut)
    reassembly = Reassembly()
    whole = [reassembly.add("x", KEYS.open(piece)) for piece in [*cut[::-1][:-1], cut[3], cut[0]]]
    assert whole[:-1] == [None] * len(cut)
    assert KEYS.open(whole[-1]) == LONG
    assert list(pieces(KEYS, EXAMPLES[0], b"abcdefgh", 1_000)) == [KEYS.seal(EXAMPLES[0])]


def test_too_long_a_message_cannot_be_sent():
    links = [ReportedLink(f"link{n:050}", f"node{n:050}", "x") for n in range(3_000)]
    with pytest.raises(ValueError, match="too long"):
        list(pieces(KEYS, LinkState("a", 1, 1, [], links), b"abcdefgh", 1_000))


def test_unfinished_messages_are_bounded():
    reassembly = Reassembly(most=4)
    for number in range(1_000):
        reassembly.add("x", Fragment(number.to_bytes(8), 0, 2, bytes(1_000)))
        reassembly.add("x", Fragment(b"the same", number % 256, 256, bytes(1_000)))
    assert len(reassembly._parts) <= 4
    held = sum(len(piece) for parts in reassembly._parts.values() for piece in parts.values())
    assert held <= 5 * sealing.LONGEST


@given(st.lists(st.sampled_from(range(7)), max_size=30))
def test_fragments_in_any_order_and_number(order):
    cut = list(pieces(KEYS, LONG, b"abcdefgh", 2_500))
    reassembly = Reassembly()
    for index in order:
        whole = reassembly.add("x", KEYS.open(cut[index % len(cut)]))
        if whole is not None:
            assert KEYS.open(whole) == LONG


def test_the_seal_has_a_fixed_size():
    assert len(KEYS.seal(Wanted([]))) == SEAL + 2
