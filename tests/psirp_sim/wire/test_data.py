"""The header of data packets: there and back, everything that is refused, fuzzing."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.wire.data import HEADER, HOP_LIMIT, VERSION, DataPacket, Kind, MalformedPacket
from psirp_sim.zfilters import SIZES, ZFilter
from psirp_sim.zfilters.filters import MOST_EXACT_BITS

bloom_filters = st.builds(
    lambda size, table, bits: ZFilter.bloom(size, table, bits % (1 << size)),
    st.sampled_from(SIZES),
    st.integers(0, 7),
    st.integers(0, (1 << max(SIZES)) - 1),
)
exact_filters = st.builds(
    lambda numbering, bit, rest: ZFilter.exact(numbering, 1 << bit | rest % (1 << bit)),
    st.integers(0, 2**32 - 1),
    st.integers(0, MOST_EXACT_BITS - 1),
    st.integers(0, 2**256),
)
data_packets = st.builds(
    DataPacket,
    filter=bloom_filters | exact_filters,
    packet_id=st.binary(min_size=8, max_size=8),
    payload=st.binary(max_size=80),
    hop_limit=st.integers(0, 255),
)

PACKET = DataPacket(ZFilter.bloom(256, 3, 1 << 255 | 5), b"packetid", b"\x01payload")


@given(data_packets)
def test_there_and_back(packet):
    data = packet.encode()
    assert DataPacket.decode(data) == packet
    assert len(data) == HEADER + packet.filter.length + len(packet.payload)


def test_every_byte_has_its_place():
    assert PACKET.encode() == (
        bytes((VERSION, Kind.DATA, HOP_LIMIT, 0b00_000_011))
        + b"packetid"
        + bytes(4)
        + (bytes((5,)) + bytes(30) + bytes((0x80,)))
        + b"\x01payload"
    )
    exact = DataPacket(ZFilter.exact(0x01020304, 1 << 64), bytes(8), b"", 7).encode()
    assert exact[2:4] == bytes((7, 0b01_000010))
    assert exact[12:] == bytes((1, 2, 3, 4)) + bytes(8) + bytes((1,)) + bytes(7)


WHOLE = PACKET.encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "at least 16 bytes, not 0"),
        (WHOLE[:15], "at least 16 bytes, not 15"),
        (bytes((VERSION + 1,)) + WHOLE[1:], "version 2 is not 1"),
        (bytes((0,)) + WHOLE[1:], "version 0 is not 1"),
        (WHOLE[:1] + bytes((Kind.CONTROL,)) + WHOLE[2:], "kind 2 is no data packet"),
        (WHOLE[:3] + b"\x20" + WHOLE[4:], "descriptor 0x20 has no meaning"),
        (WHOLE[:3] + b"\x40" + WHOLE[4:], "descriptor 0x40 has no meaning"),
        (WHOLE[:3] + b"\x80" + WHOLE[4:], "descriptor 0x80 has no meaning"),
        (WHOLE[:47], "ends within its filter of 32 bytes"),
        (WHOLE[:16], "ends within its filter of 32 bytes"),
        (WHOLE[:15] + b"\x01" + WHOLE[16:], "a Bloom filter has no numbering"),
    ],
)
def test_what_is_malformed_is_refused_with_the_reason(data, reason):
    with pytest.raises(MalformedPacket, match=reason):
        DataPacket.decode(data)


def test_every_descriptor_is_read_or_refused():
    read = set()
    for descriptor in range(256):
        data = WHOLE[:3] + bytes((descriptor,)) + WHOLE[4:16] + bytes(504) + b"rest"
        with suppress(MalformedPacket):
            assert DataPacket.decode(data).encode() == data
            read.add(descriptor)
    assert read == {*range(8 * len(SIZES)), *range(65, 128)}


def test_a_packet_id_has_eight_bytes():
    for wrong in (b"", bytes(7), bytes(9)):
        with pytest.raises(ValueError, match="a packet id has 8 bytes"):
            DataPacket(PACKET.filter, wrong, b"").encode()


@given(st.binary(max_size=100))
def test_random_bytes_are_refused_by_name(data):
    with suppress(MalformedPacket):
        assert DataPacket.decode(data).encode() == data


@given(data_packets, st.data())
def test_mutated_packets_are_read_or_refused_by_name(packet, draw):
    data = bytearray(packet.encode())
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = bytes(data[: draw.draw(st.integers(0, len(data)))])
    for changed in (bytes(data), cut):
        with suppress(MalformedPacket):
            assert DataPacket.decode(changed).encode() == changed
