"""Publications on the wire: packets, records and envelopes there and back, bounds, fuzzing."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.wire.data import HEADER, LARGEST_PACKET, MalformedPacket
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import (
    ANSWER,
    ENVELOPE_MAC,
    HEAD,
    LARGEST_ENVELOPE,
    LONGEST_KEY,
    LONGEST_VALUE,
    MOST_METADATA,
    MOST_RANGES,
    NAMED,
    NAMES,
    RECORD,
    UNIT,
    Header,
    Latest,
    Packet,
    Record,
    Report,
    digest_of,
    join,
    records_of,
    signed_of,
    split,
    tag_of,
    unpack,
)
from psirp_sim.wire.sealing import FabricKeys, pieces
from tests.psirp_sim.wire.examples import LARGE, PUBLIC, PUBLISHER, RID, SID

KEYS = FabricKeys("a secret")
TAG = bytes(range(100, 116))


def packed(*records: Record) -> bytes:
    """Records as they stand in a packet."""
    return b"".join(
        RECORD.pack(each.version, each.unit, each.size, len(each.piece)) + each.piece
        for each in records
    )


def payload(packet: Packet) -> bytes:
    """The payload of a packet of protocol PUBLICATION."""
    flags = ANSWER * packet.answer | NAMED * (packet.names is not None)
    head = HEAD.pack(packet.tag, packet.sequence, flags)
    return head + b"".join(packet.names or ()) + packet.records


@st.composite
def records(draw) -> Record:
    """A run of units of some envelope."""
    size = draw(st.integers(1, 5 * UNIT) | st.integers(1, LARGEST_ENVELOPE))
    units = -(-size // UNIT)
    unit = draw(st.integers(max(0, units - 4), units - 1) | st.integers(0, units - 1))
    count = draw(st.integers(1, min(3, units - unit)))
    length = min(size - unit * UNIT, count * UNIT)
    content = draw(st.binary(max_size=8))
    return Record(draw(st.integers(1, LARGE)), unit, size, content.ljust(length, b".")[:length])


ids = st.binary(min_size=32, max_size=32)
packets = st.builds(
    Packet,
    tag=st.binary(min_size=16, max_size=16),
    sequence=st.integers(0, LARGE),
    answer=st.booleans(),
    names=st.none() | st.tuples(ids, ids),
    records=st.lists(records(), max_size=3).map(lambda each: packed(*each)),
)
payloads = packets.map(payload)


def mutated(data: bytes, draw: st.DataObject) -> list[bytes]:
    """With some bytes changed, and the same cut off somewhere."""
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        changed[draw.draw(st.integers(0, len(changed) - 1))] = draw.draw(st.integers(0, 255))
    return [bytes(changed), bytes(changed[: draw.draw(st.integers(0, len(changed)))])]


# Packets


@given(packets)
def test_packets_there_and_back(packet):
    assert unpack(payload(packet)) == packet


def test_every_byte_has_its_place():
    record = Record(0x0102030405060708, 1, UNIT + 5, b"piece")
    made = TAG + bytes([*range(8)]) + b"\x03" + SID + RID
    made += bytes([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, UNIT + 5, 0, 5]) + b"piece"
    packet = unpack(made)
    assert packet == Packet(TAG, 0x0001020304050607, True, (SID, RID), packed(record))
    assert list(records_of(packet.records)) == [record]
    assert (HEAD.size, NAMES, RECORD.size) == (25, len(SID + RID), 18)


@pytest.mark.parametrize("flags", range(256))
def test_flags(flags):
    data = HEAD.pack(TAG, 1, flags) + SID + RID
    if flags < 4:
        packet = unpack(data)
        assert packet.answer == bool(flags & ANSWER)
        assert (packet.names, packet.records) == (
            ((SID, RID), b"") if flags & NAMED else (None, SID + RID)
        )
    else:
        with pytest.raises(MalformedPacket, match="have no meaning"):
            unpack(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "at least 25 bytes"),
        (bytes(24), "at least 25 bytes"),
        (HEAD.pack(TAG, 1, NAMED), "ends within its names"),
        (HEAD.pack(TAG, 1, NAMED | ANSWER) + bytes(63), "ends within its names"),
    ],
)
def test_a_packet_that_is_cut_off_is_refused_with_the_reason(data, reason):
    with pytest.raises(MalformedPacket, match=reason):
        unpack(data)


# Records


@given(st.lists(records(), max_size=5))
def test_records_there_and_back(several):
    assert list(records_of(packed(*several))) == several


@pytest.mark.parametrize(
    "record",
    [
        Record(1, 0, 1, b"x"),
        Record(LARGE, 0, UNIT, bytes(UNIT)),
        Record(1, 0, UNIT + 1, bytes(UNIT)),
        Record(1, 0, UNIT + 1, bytes(UNIT + 1)),
        Record(1, 1, UNIT + 1, b"x"),
        Record(1, 1, 3 * UNIT, bytes(UNIT)),
        Record(1, (LARGEST_ENVELOPE - 1) // UNIT, LARGEST_ENVELOPE, b"x" * UNIT),
    ],
)
def test_records_at_the_bounds(record):
    assert LARGEST_ENVELOPE % UNIT == 0
    assert list(records_of(packed(record))) == [record]


GOOD = Record(1, 0, 5, b"hello")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(RECORD.size - 1), "within the head of a record"),
        (packed(GOOD)[:-1], "within a record"),
        (packed(GOOD) + b"x", "within the head of a record"),
        (packed(GOOD._replace(version=0)), "no part of any envelope"),
        (packed(Record(1, 0, 0, b"")), "no part of any envelope"),
        (packed(Record(1, 0, 5, b"")), "no part of any envelope"),
        (packed(Record(1, 0, 4, b"hello")), "no part of any envelope"),
        (packed(Record(1, 1, 5, b"hello")), "no part of any envelope"),
        (packed(Record(1, 2**32 - 1, 2**32 - 1, b"x")), "no part of any envelope"),
        (packed(Record(1, 0, LARGEST_ENVELOPE + 1, bytes(UNIT))), "no part of any envelope"),
        (packed(Record(1, 0, 6, b"hello")), "ends within a unit"),
        (packed(Record(1, 0, 3 * UNIT, bytes(UNIT + 1))), "ends within a unit"),
    ],
)
def test_a_record_without_sense_is_refused_with_the_reason(data, reason):
    """What stood before it has been read."""
    read = records_of(packed(GOOD) + data)
    assert next(read) == GOOD
    with pytest.raises(MalformedPacket, match=reason):
        list(read)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_by_name(data):
    with suppress(MalformedPacket):
        assert payload(unpack(data)) == data
    with suppress(MalformedPacket):
        assert packed(*records_of(data)) == data
    with suppress(MalformedPacket):
        split(data)


@given(payloads, st.data())
def test_mutated_packets_are_read_or_refused_by_name(data, draw):
    for changed in mutated(data, draw):
        with suppress(MalformedPacket):
            packet = unpack(changed)
            assert payload(packet) == changed
            assert packed(*records_of(packet.records)) == packet.records


# Envelopes

HEADER_OF = Header(SID, RID, PUBLISHER, 3, 17, bytes(32), {"topic": "http://a.test/"})
PROOF = (PUBLIC, bytes(64))
metadata = st.dictionaries(
    st.text(min_size=1, max_size=LONGEST_KEY), st.text(max_size=80), max_size=4
)
headers = st.builds(
    Header,
    sid=ids,
    rid=ids,
    publisher=st.binary(min_size=16, max_size=16),
    epoch=st.integers(0, LARGE),
    version=st.integers(1, LARGE),
    digest=ids,
    metadata=metadata,
    proof=st.none() | st.tuples(ids, st.binary(min_size=64, max_size=64)),
)
macs = st.binary(min_size=ENVELOPE_MAC, max_size=ENVELOPE_MAC)


@given(headers, macs, st.binary(max_size=300))
def test_envelopes_there_and_back(header, mac, content):
    written = msgspec.msgpack.encode(header)
    assert split(join(written, mac, content)) == (header, written, mac, content)


@pytest.mark.parametrize("missing", [*range(40)])
def test_an_envelope_that_is_cut_off_is_refused(missing):
    """Without content it ends with its MAC."""
    whole = join(msgspec.msgpack.encode(HEADER_OF), bytes(ENVELOPE_MAC), b"")
    if missing:
        with pytest.raises(MalformedPacket, match="ends within its header"):
            split(whole[:-missing])
    else:
        assert split(whole)[3] == b""
    for short in (b"", b"\x01"):
        with pytest.raises(MalformedPacket, match="a length in front"):
            split(short)


WRITTEN = msgspec.structs.astuple(HEADER_OF)[:7]
"""Without what has a default."""


@pytest.mark.parametrize(
    "fields",
    [
        WRITTEN,
        (*WRITTEN, None),
        (*WRITTEN, PROOF),
        (*WRITTEN[:3], 0, 1, *WRITTEN[5:]),
        (*WRITTEN[:3], LARGE, LARGE, *WRITTEN[5:]),
        (*WRITTEN[:6], {}),
        (*WRITTEN[:6], {str(n): "" for n in range(MOST_METADATA)}),
        (*WRITTEN[:6], {"k" * LONGEST_KEY: "v" * LONGEST_VALUE}),
    ],
)
def test_headers_at_the_bounds(fields):
    written = msgspec.msgpack.encode(fields)
    header = split(join(written, bytes(ENVELOPE_MAC), b""))[0]
    assert msgspec.structs.astuple(header)[: len(fields)] == fields


@pytest.mark.parametrize(
    "fields",
    [
        (),
        WRITTEN[:6],
        (*WRITTEN, None, None),
        (SID[1:], *WRITTEN[1:]),
        (SID, b"", *WRITTEN[2:]),
        (SID, RID, PUBLISHER + b"x", *WRITTEN[3:]),
        (*WRITTEN[:3], -1, *WRITTEN[4:]),
        (*WRITTEN[:4], 0, *WRITTEN[5:]),
        (*WRITTEN[:5], bytes(31), {}),
        (*WRITTEN[:6], None),
        (*WRITTEN[:6], {"": "v"}),
        (*WRITTEN[:6], {1: "v"}),
        (*WRITTEN[:6], {"k": 1}),
        (*WRITTEN[:6], {"k": b"v"}),
        (*WRITTEN[:6], {"k" * (LONGEST_KEY + 1): "v"}),
        (*WRITTEN[:6], {"k": "v" * (LONGEST_VALUE + 1)}),
        (*WRITTEN[:6], {str(n): "" for n in range(MOST_METADATA + 1)}),
        (*WRITTEN[:7], ()),
        (*WRITTEN[:7], (PUBLIC,)),
        (*WRITTEN[:7], (PUBLIC, bytes(63))),
        (*WRITTEN[:7], (bytes(31), bytes(64))),
    ],
)
def test_headers_out_of_bounds_are_refused(fields):
    with pytest.raises(MalformedPacket, match="an envelope's header"):
        split(join(msgspec.msgpack.encode(fields), bytes(ENVELOPE_MAC), b"content"))


def test_text_that_is_not_utf_8_is_refused():
    """It needs no key to send it: the header is read before its MAC is checked."""
    written = msgspec.msgpack.encode((*WRITTEN[:6], {"k": "v"}))
    assert written.endswith(b"\xa1k\xa1v")
    for bad in (written[:-1] + b"\xff", written[:-3] + b"\xff\xa1v"):
        with pytest.raises(MalformedPacket):
            split(join(bad, bytes(ENVELOPE_MAC), b""))


def test_a_deep_header_is_refused():
    for depth in (10, 1_000, 60_000):
        for opening in (b"\x91", b"\x81\xa1k"):
            with pytest.raises(MalformedPacket):
                split(join(opening * (depth // len(opening)), bytes(ENVELOPE_MAC), b""))


@given(headers, st.binary(max_size=20), st.data())
def test_mutated_envelopes_are_read_or_refused_by_name(header, content, draw):
    whole = join(msgspec.msgpack.encode(header), bytes(ENVELOPE_MAC), content)
    for changed in mutated(whole, draw):
        with suppress(MalformedPacket):
            _, written, mac, rest = split(changed)
            assert join(written, mac, rest) == changed


# Tag, digest, what is signed


def test_a_tag_is_of_everything_that_makes_a_stream():
    stream = (SID, RID, PUBLISHER, 3)
    others = [(RID, RID, *stream[2:]), (SID, SID, *stream[2:]), (SID, RID, bytes(16), 3)]
    tags = {tag_of(*each) for each in (stream, *others, (*stream[:3], 4), (*stream[:3], LARGE))}
    assert len(tags) == 6
    assert {len(tag) for tag in tags} == {16}


def test_a_digest_is_of_metadata_and_content():
    digests = {
        digest_of({}, b""),
        digest_of({}, b"\x80"),
        digest_of({"a": "b"}, b""),
        digest_of({"a": ""}, b"b"),
        digest_of({"a": "b", "c": "d"}, b""),
        digest_of({"c": "d", "a": "b"}, b""),
    }
    assert len(digests) == 6, "in the order in which the metadata stands"


def test_the_signature_is_of_all_that_identifies_a_publication():
    def changed(**fields):
        return signed_of(msgspec.structs.replace(HEADER_OF, **fields))

    signed = [
        signed_of(HEADER_OF),
        *(changed(sid=RID), changed(rid=SID), changed(publisher=bytes(16))),
        *(changed(epoch=4), changed(version=18), changed(digest=SID)),
    ]
    assert len(set(signed)) == 7
    assert changed(proof=PROOF) == signed[0]
    assert changed(metadata={}) == signed[0], "which the digest covers"


# Messages

LATEST = Latest("a", 3, SID, RID, PUBLISHER, 1, 1, 2, 3)
REPORT = Report("a", "b", 3, SID, RID, TAG, 1, 0, 1, [], [])


def with_(message, **fields):
    return msgspec.structs.replace(message, **fields)


@pytest.mark.parametrize(
    "message",
    [
        LATEST,
        with_(LATEST, life=2**63 - 1, epoch=LARGE, first=LARGE, latest=LARGE, sequence=LARGE),
        with_(LATEST, answer_ms=0),
        with_(LATEST, answer_ms=1_000),
        REPORT,
        with_(REPORT, seen=LARGE, answers=LARGE, next=LARGE),
        with_(REPORT, versions=[(LARGE, LARGE)] * MOST_RANGES),
        with_(REPORT, units=[(LARGE, LARGE, LARGE)] * MOST_RANGES),
    ],
)
def test_messages_at_the_bounds(message):
    assert KEYS.open(KEYS.seal(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        with_(LATEST, node=""),
        with_(LATEST, life=2**63),
        with_(LATEST, sid=b""),
        with_(LATEST, publisher=bytes(15)),
        with_(LATEST, epoch=-1),
        with_(LATEST, sequence=None),
        with_(LATEST, answer_ms=-1),
        with_(LATEST, answer_ms=1_001),
        with_(REPORT, listener="b" * 64),
        with_(REPORT, rid=b""),
        with_(REPORT, tag=bytes(15)),
        with_(REPORT, next=-1),
        with_(REPORT, versions=[(1, 1)] * (MOST_RANGES + 1)),
        with_(REPORT, versions=[(1,)]),
        with_(REPORT, versions=None),
        with_(REPORT, units=[(1, 1, 1)] * (MOST_RANGES + 1)),
        with_(REPORT, units=[(1, 1)]),
        with_(REPORT, units=[(1, 1, -1)]),
    ],
)
def test_messages_out_of_bounds_are_refused(message):
    with pytest.raises(MalformedPacket):
        KEYS.open(KEYS.seal(message))


@given(st.sampled_from([LATEST, REPORT]), st.data())
def test_mutated_messages_under_the_right_key_are_read_or_refused_by_name(message, draw):
    for body in mutated(msgspec.msgpack.encode(message), draw):
        data = bytes((message.type,)) + body
        with suppress(MalformedPacket):
            assert isinstance(KEYS.open(data[:1] + KEYS.mark(data) + body), Message)


def test_a_message_with_a_text_that_is_not_utf_8_is_refused():
    data = bytes((Latest.type,)) + msgspec.msgpack.encode(LATEST).replace(b"\xa1a", b"\xa1\xff")
    with pytest.raises(MalformedPacket):
        KEYS.open(data[:1] + KEYS.mark(data) + data[1:])


def test_the_longest_report_has_few_fragments():
    """As many as a packet with the longest filter needs; the numbers of a long stream are large."""
    longest = with_(
        REPORT,
        node="a" * 63,
        listener="b" * 63,
        versions=[(LARGE, LARGE)] * MOST_RANGES,
        units=[(LARGE, 2**17, 2**17)] * MOST_RANGES,
    )
    assert len(list(pieces(KEYS, longest, bytes(8), LARGEST_PACKET - HEADER - 1 - 504))) <= 4
