"""The scapy layers against the codec: equal fields, equal bytes, and no exception ever."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.packet import Padding

from psirp_sim.runtime.ethernet import ETHERTYPE, enclose
from psirp_sim.scapy_layer import (
    MESSAGES,
    Ether,
    Packet,
    Psirp,
    PsirpControl,
    PsirpData,
    PsirpFrame,
    PsirpPayload,
    PsirpPublication,
    PsirpRecord,
    Raw,
)
from psirp_sim.wire.control import NEIGHBOUR, Hello, Wanted
from psirp_sim.wire.data import VERSION, DataPacket, Kind, Protocol
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import ANSWER, NAMED, Report, records_of, unpack
from psirp_sim.wire.rendezvous import Registration
from psirp_sim.wire.sealing import SEAL, FabricKeys
from psirp_sim.zfilters import SIZES, Mode, ZFilter
from tests.psirp_sim.wire.examples import PUBLICATIONS
from tests.psirp_sim.wire.test_data import data_packets
from tests.psirp_sim.wire.test_publications import payloads

KEYS = FabricKeys("a secret")


def values(kind):
    """Values of a type as msgspec describes it, bounds included."""
    match kind:
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType(ge=ge, le=le):
            return st.integers(ge, 2**64 - 1 if le is None else le)
        case msgspec.inspect.StrType(min_length=least, max_length=most):
            return st.text(min_size=least or 0, max_size=most)
        case msgspec.inspect.BytesType(min_length=least, max_length=most):
            return st.binary(min_size=least or 0, max_size=most)
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(cls)
        case msgspec.inspect.ListType(item_type=item, min_length=least):
            return st.lists(values(item), min_size=least or 0, max_size=3)
        case msgspec.inspect.VarTupleType(item_type=item, min_length=least):
            return st.lists(values(item), min_size=least or 0, max_size=3).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*map(values, items))
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            of_fields = {field.name: values(field.type) for field in fields}
            if cls is Registration:
                of_fields["rid"] = st.just(b"") | st.binary(min_size=32, max_size=32)
            return st.builds(cls, **of_fields)
    raise NotImplementedError(kind)


messages = st.one_of(
    *(values(msgspec.inspect.type_info(kind)) for kind in Message.__subclasses__())
)


def unread(packet: Packet) -> Packet:
    """The same fields, without the bytes they were read from."""
    made = packet.copy()
    made.clear_cache()
    return made


def agrees_with_codec(layer: Packet, packet: DataPacket) -> bool:
    rest = layer.size << 3 | layer.table if layer.mode == Mode.BLOOM else layer.length
    return (
        layer.hop_limit == packet.hop_limit
        and layer.mode << 6 | rest == packet.filter.descriptor
        and layer.packet_id == packet.packet_id
        and layer.numbering == packet.filter.numbering
        and layer.filter == packet.filter.to_bytes()
        and bytes(layer.payload) == packet.payload
    )


@given(data_packets)
def test_data_packets_have_the_fields_and_bytes_of_the_codec(packet):
    data = packet.encode()
    read = Psirp(data)
    assert (read.version, read.kind) == (VERSION, Kind.DATA)
    assert agrees_with_codec(read[PsirpData], packet)
    assert bytes(read) == bytes(unread(read)) == data
    if packet.payload:
        assert read[PsirpPayload].protocol == packet.payload[0]


@given(messages)
def test_control_messages_have_the_fields_and_bytes_of_the_codec(message):
    sealed = KEYS.seal(message)
    across = DataPacket(
        ZFilter.bloom(256, 0, 1), bytes(8), bytes((Protocol.CONTROL,)) + sealed
    ).encode()
    for data in (NEIGHBOUR + sealed, across):
        read = Psirp(data)
        assert read[PsirpControl].type == message.type
        assert read[PsirpControl].mac == sealed[1:SEAL]
        body = read[PsirpControl].payload
        assert type(body) is MESSAGES[type(message)]
        fields = {name.rstrip("_"): value for name, value in body.fields.items()}
        assert fields == msgspec.structs.asdict(message)
        assert bytes(read) == bytes(unread(read)) == data
        assert KEYS.open(bytes(read[PsirpControl])) == message


@given(data_packets)
def test_packets_made_with_scapy_are_read_by_the_codec(packet):
    mode = packet.filter.mode
    fields = {"size": packet.filter.descriptor >> 3, "table": packet.filter.table}
    made = (
        Psirp()
        / PsirpData(
            hop_limit=packet.hop_limit,
            mode=mode,
            packet_id=packet.packet_id,
            numbering=packet.filter.numbering,
            filter=packet.filter.to_bytes(),
            **(fields if mode == Mode.BLOOM else {}),
        )
        / packet.payload
    )
    assert DataPacket.decode(bytes(made)) == packet


def across(payload: bytes) -> bytes:
    """A data packet of a publication."""
    return DataPacket(
        ZFilter.bloom(256, 0, 1), bytes(8), bytes((Protocol.PUBLICATION,)) + payload
    ).encode()


@given(payloads)
def test_publications_have_the_fields_and_bytes_of_the_codec(payload):
    packet = unpack(payload)
    read = Psirp(across(payload))
    layer = read[PsirpPublication]
    assert (layer.tag, layer.sequence) == (packet.tag, packet.sequence)
    assert bool(layer.flags.answer) == packet.answer
    assert ((layer.sid, layer.rid) if layer.flags.named else None) == packet.names
    records = [(each.version, each.unit, each.size, each.piece) for each in layer.records]
    assert records == list(records_of(packet.records))
    assert bytes(read) == bytes(unread(read)) == across(payload)
    assert type(layer.payload).__name__ == "NoPayload"


@given(payloads)
def test_publications_made_with_scapy_are_read_by_the_codec(payload):
    packet = unpack(payload)
    names = {} if packet.names is None else dict(zip(("sid", "rid"), packet.names, strict=True))
    made = PsirpPublication(
        tag=packet.tag,
        sequence=packet.sequence,
        flags=ANSWER * packet.answer | NAMED * (packet.names is not None),
        **names,
        records=[
            PsirpRecord(version=each.version, unit=each.unit, size=each.size, piece=each.piece)
            for each in records_of(packet.records)
        ],
    )
    whole = Psirp() / PsirpData() / PsirpPayload() / made
    assert DataPacket.decode(bytes(whole)).payload == b"\x02" + payload


def test_a_publication_with_a_record_without_sense_stays_raw():
    good = bytes(PsirpPublication(records=[PsirpRecord(size=5, piece=b"hello")]))
    assert PsirpPublication in Psirp(across(good))
    for bad in (good[:-1], good[:10], good + b"x", good[:24] + b"\x04" + good[25:]):
        read = Psirp(across(bad))
        assert PsirpPublication not in read
        assert read[PsirpPayload].payload == Raw(bad)


def test_a_packet_with_very_many_records():
    record = bytes(PsirpRecord(size=1, piece=b"x"))
    assert len(PsirpPublication(bytes(25) + 3_000 * record).records) == 3_000


def test_names_that_scapy_has_already_have_an_underscore():
    report = next(each for each in PUBLICATIONS if isinstance(each, Report))
    read = Psirp(NEIGHBOUR + KEYS.seal(report))["PsirpReport"]
    assert (read.answers_, read.seen) == (report.answers, report.seen)
    read.answers_ = 5
    assert msgspec.msgpack.decode(bytes(read), type=Report).answers == 5


def test_what_is_not_said_is_filled_in():
    empty = DataPacket.decode(bytes(Psirp() / PsirpData()))
    assert (empty.filter.length, empty.payload) == (SIZES[0] // 8, b"")
    exact = Psirp() / PsirpData(mode="exact", filter=bytes(24)) / PsirpPayload() / b"hello"
    assert DataPacket.decode(bytes(exact)).filter == ZFilter(1 << 6 | 3, 0)
    assert DataPacket.decode(bytes(exact)).payload == bytes((Protocol.TEST,)) + b"hello"
    wanted = Psirp() / PsirpControl() / MESSAGES[Wanted](origins=["a", "b"])
    assert bytes(wanted) == NEIGHBOUR + bytes((Wanted.type,)) + bytes(16) + b"\x91\x92\xa1a\xa1b"
    assert len(list(wanted)) == 1, "scapy sends a list as one value"


def test_a_changed_field_changes_the_bytes():
    read = Psirp(NEIGHBOUR + KEYS.seal(Wanted(["a"])))
    read[MESSAGES[Wanted]].origins = ["b"]
    assert bytes(read).endswith(b"\x91\x91\xa1b")
    read = Psirp(NEIGHBOUR + KEYS.seal(Wanted(["a"])))
    read["PsirpWanted"].origins.append("b")
    assert bytes(read).endswith(b"\x91\x92\xa1a\xa1b")


def test_a_body_is_written_as_it_was_read():
    """MessagePack has several ways to write a text."""
    body = b"\xdc\x00\x01\x91\xd9\x01a"
    assert msgspec.msgpack.decode(body, type=Wanted) == Wanted(["a"])
    data = NEIGHBOUR + bytes((Wanted.type,)) + bytes(16) + body
    read = Psirp(data)
    assert read[MESSAGES[Wanted]].origins == ["a"]
    assert bytes(read) == data


def test_no_field_hides_what_scapy_calls_something_else():
    layers = (*MESSAGES.values(), PsirpPublication, PsirpRecord)
    names = {field.name for layer in layers for field in layer.fields_desc}
    assert not {name for name in names if hasattr(Packet, name)}


@given(st.binary(max_size=120), st.integers(0, 60))
def test_frames_end_where_their_length_says(packet, padding):
    frame = bytes(12) + ETHERTYPE.to_bytes(2) + enclose(packet)
    read = Ether(frame + bytes(padding))
    assert read[PsirpFrame].length == len(packet)
    assert (read.getlayer(Padding).load if padding else b"") == bytes(padding)
    assert bytes(read) == bytes(unread(read)) == frame + bytes(padding)
    assert bytes(Ether(dst=bytes(6), src=bytes(6)) / PsirpFrame() / packet) == frame


# Nothing raises


def takes_anything(data: bytes) -> None:
    layers = (Psirp, PsirpFrame, PsirpData, PsirpPayload, PsirpControl, PsirpPublication)
    for layer in (*layers, *MESSAGES.values()):
        read = layer(data)
        assert bytes(read) == data
        read.summary(), repr(read), read.show(dump=True)


@given(st.binary(min_size=1, max_size=200))
def test_random_bytes(data):
    takes_anything(data)


@given(st.sampled_from([*Kind]), st.binary(max_size=200))
def test_random_bytes_behind_a_good_beginning(kind, data):
    takes_anything(bytes((VERSION, kind)) + data)


@given(st.sampled_from(Message.__subclasses__()), st.binary(max_size=60))
def test_random_bodies(kind, body):
    takes_anything(NEIGHBOUR + bytes((kind.type,)) + bytes(16) + body)


packets = (
    data_packets.map(DataPacket.encode)
    | messages.map(lambda each: NEIGHBOUR + KEYS.seal(each))
    | payloads.map(across)
)


@given(packets, st.data())
def test_mutated_packets(data, draw):
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        changed[draw.draw(st.integers(0, len(changed) - 1))] = draw.draw(st.integers(0, 255))
    del changed[draw.draw(st.integers(1, len(changed))) :]
    takes_anything(bytes(changed))


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_bodies(depth):
    takes_anything(NEIGHBOUR + bytes((Hello.type,)) + bytes(16) + b"\x91" * depth)


def test_text_that_is_none():
    """Bytes that are not UTF-8."""
    takes_anything(NEIGHBOUR + bytes((Wanted.type,)) + bytes(16) + b"\x91\x91\xa1\xff")


def test_of_another_version_nothing_more_is_read():
    read = Psirp(bytes((VERSION + 1, Kind.DATA)) + bytes(60))
    assert read.version == VERSION + 1
    assert type(read.payload) is Raw


def test_scapy_is_loaded_only_where_it_is_asked_for_and_then_quietly():
    code = """
import sys
import psirp_sim.runtime.ethernet, psirp_sim.runtime.pcap, psirp_sim.runtime.relay, psirp_sim.node
assert not any(name.startswith("scapy") for name in sys.modules)
import psirp_sim.scapy_layer
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
