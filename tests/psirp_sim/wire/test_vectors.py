"""The wire format as it was committed: vectors.json for programs, docs/wire.md for people.

A vector that no longer fits means that nodes of before and after do not understand each other.
Where that is wanted, write the file anew with

    python -m tests.psirp_sim.wire.test_vectors
"""

from __future__ import annotations

import hashlib
import json
import pydoc
import re
from enum import Enum
from pathlib import Path
from struct import calcsize as struct_size

import msgspec
import pytest
import xxhash
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import inspect

from identifiers import Position, PublisherId
from psirp_sim.publications.envelope import make, open_envelope
from psirp_sim.rendezvous.entries import fingerprint
from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.summary import contains, new_filter, put, read_filter, write_filter
from psirp_sim.scapy_layer import (
    MESSAGES,
    Psirp,
    PsirpControl,
    PsirpData,
    PsirpPayload,
    PsirpPublication,
)
from psirp_sim.wire.control import NEIGHBOUR, Fragment, LinkState, ReportedLink
from psirp_sim.wire.data import SAMPLED, DataPacket, Kind, Protocol
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import (
    HEAD,
    NAMES,
    RECORD,
    UNIT,
    Header,
    Packet,
    Record,
    digest_of,
    records_of,
    signed_of,
    tag_of,
    unpack,
)
from psirp_sim.wire.sealing import SEAL, FabricKeys, Reassembly, pieces
from psirp_sim.zfilters import SIZES, Mode, ZFilter
from tests.psirp_sim.wire.examples import EXAMPLES, HELD, PUBLISHER, RID, SECRET, SID
from tests.psirp_sim.wire.test_publications import packed, payload

FILE = Path(__file__).with_name("vectors.json")
VECTORS = json.loads(FILE.read_text())
KEYS = FabricKeys(VECTORS["key"])
MESSAGE_TYPES = Message.__subclasses__()


def readable(value):
    """A message, or a part of one, as the file has it."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {name: readable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [readable(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    return value.hex() if isinstance(value, bytes) else value


# Data packets


def described(packet: DataPacket) -> dict[str, object]:
    zfilter = packet.filter
    bloom = {"size": 8 * zfilter.length, "table": zfilter.table}
    return {
        "packet": packet.encode().hex(),
        "hop_limit": packet.hop_limit,
        "mode": zfilter.mode.name.lower(),
        **(bloom if zfilter.mode == Mode.BLOOM else {"length": zfilter.length}),
        "packet_id": packet.packet_id.hex(),
        "numbering": zfilter.numbering,
        "filter": zfilter.to_bytes().hex(),
        "payload": packet.payload.hex(),
    }


@pytest.mark.parametrize("vector", VECTORS["data"], ids=lambda vector: vector["packet"][:16])
def test_data_packets(vector):
    data = bytes.fromhex(vector["packet"])
    assert described(DataPacket.decode(data)) == vector
    layer = Psirp(data)[PsirpData]
    assert layer.hop_limit == vector["hop_limit"]
    assert Mode(layer.mode).name.lower() == vector["mode"]
    if "size" in vector:
        assert (SIZES[layer.size], layer.table) == (vector["size"], vector["table"])
    else:
        assert 8 * layer.length == vector["length"]
    for field in ("packet_id", "filter"):
        assert layer.getfieldval(field).hex() == vector[field]
    assert layer.numbering == vector["numbering"]
    assert bytes(layer.payload).hex() == vector["payload"]


def test_there_is_a_data_packet_with_each_kind_of_filter():
    assert {vector.get("size") for vector in VECTORS["data"]} == {*SIZES, None}
    assert {vector["mode"] for vector in VECTORS["data"]} == {"bloom", "exact"}


# Sealed messages


@pytest.mark.parametrize("vector", VECTORS["control"], ids=lambda vector: vector["message"])
def test_sealed_messages(vector):
    neighbour, across = bytes.fromhex(vector["neighbour"]), bytes.fromhex(vector["across"])
    sealed = neighbour[len(NEIGHBOUR) :]
    message = KEYS.open(sealed)
    assert (type(message).__name__, message.type) == (vector["message"], vector["type"])
    assert readable(message) == vector["fields"]
    assert NEIGHBOUR + KEYS.seal(message) == neighbour
    assert DataPacket.decode(across).payload == bytes((Protocol.CONTROL,)) + sealed
    assert Psirp(across)[PsirpPayload].protocol == Protocol.CONTROL
    for packet in (neighbour, across):
        layer = Psirp(packet)[PsirpControl]
        assert (layer.type, layer.mac) == (vector["type"], sealed[1:SEAL])
        fields = layer[MESSAGES[type(message)]].fields
        assert {name.rstrip("_"): readable(fields[name]) for name in fields} == vector["fields"]


def test_there_is_a_vector_of_every_message():
    assert {vector["message"] for vector in VECTORS["control"]} == {
        kind.__name__ for kind in MESSAGE_TYPES
    }


def test_fragments():
    vector = VECTORS["fragments"]
    packets = [bytes.fromhex(packet) for packet in vector["packets"]]
    first, second = (KEYS.open(packet[len(NEIGHBOUR) :]) for packet in packets)
    assert [(each.index, each.count) for each in (first, second)] == [(0, 2), (1, 2)]
    reassembly = Reassembly()
    assert reassembly.add("link", second) is None
    message = KEYS.open(reassembly.add("link", first))
    assert readable(message) == vector["fields"]
    cut = pieces(KEYS, message, first.message, vector["room"])
    assert [NEIGHBOUR + piece for piece in cut] == packets
    for packet, fragment in zip(packets, (first, second), strict=True):
        assert Psirp(packet)[MESSAGES[Fragment]].piece == fragment.piece


# What rendezvous messages carry, worked out as the page says it, with the vectors


def fields_of(name: str) -> dict[str, object]:
    """The fields of the first vector of that message."""
    return next(each["fields"] for each in VECTORS["control"] if each["message"] == name)


def test_the_proof_of_a_registration():
    register = fields_of("Register")
    proofs = 0
    for entry in register["entries"]:
        access = entry["access"]
        if access is not None:
            who = (access["publish"], access["subscribe"])
            access = [
                [*map(bytes.fromhex, each)] if isinstance(each, list) else each for each in who
            ]
        signed = msgspec.msgpack.encode(
            [
                *("psph 1 registration", register["client"], register["epoch"]),
                *(entry["sequence"], entry["side"]),
                *(bytes.fromhex(entry["sid"]), bytes.fromhex(entry["rid"])),
                *(entry["present"], access, entry["guest"]),
            ]
        )
        if entry["proof"] is not None:
            key, signature = map(bytes.fromhex, entry["proof"])
            Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
            proofs += 1
    assert proofs == 2


def test_the_digest_of_registrations():
    """`Refresh` comes after `Register`, and nothing else was registered."""
    digest = bytes(8)
    entries = fields_of("Register")["entries"]
    for entry in entries:
        text = bytes([entry["side"]]) + bytes.fromhex(entry["sid"] + entry["rid"])
        eight = blake3(text + entry["sequence"].to_bytes(8, "big")).digest()[:8]
        digest = bytes(a ^ b for a, b in zip(digest, eight, strict=True))
    refresh = fields_of("Refresh")
    assert (refresh["count"], refresh["digest"]) == (len(entries), digest.hex())
    ours = 0
    for entry in HELD:
        ours ^= fingerprint(entry)
    assert ours.to_bytes(8) == digest


WITNESSES = [f"psph 1 summary {number}" for number in range(8)]


def bits_of(key: str, k: int, m: int) -> list[int]:
    """The bits that a key sets in a summary of k slices of m bits."""
    size = 2 if m < 2**15 else 4
    fitting = [(16, xxhash.xxh3_128), (20, hashlib.sha1), (32, hashlib.sha256)]
    made_by = next(each for length, each in fitting if k * size <= length)
    made = made_by(made_by(bytes(4)).digest() + key.encode()).digest()
    numbers = [int.from_bytes(made[n * size : (n + 1) * size], "little") for n in range(k)]
    return [n * m + number % m for n, number in enumerate(numbers)]


def made_by_hand(k: int, m: int, keys: list[str]) -> bytes:
    bits = 0
    for key in keys:
        for bit in bits_of(key, k, m):
            bits |= 1 << bit
    return bits.to_bytes(-(-k * m // 8), "little")


def test_the_bits_of_a_summary():
    bits = bytes.fromhex(fields_of("SummaryIs")["bits"])
    assert bits[0] == 0
    k, m = (int.from_bytes(bits[at : at + 8], "little") for at in (9, 17))
    keys = [*WITNESSES, (SID + RID).hex(), bytes(32).hex()]
    assert bits[41:] == made_by_hand(k, m, keys)
    bloom = read_filter(bits)
    assert contains(bloom, SID, RID)
    assert contains(bloom, bytes(32), RID)
    assert not contains(bloom, SID, SID)


@pytest.mark.parametrize("count", [1, 30_000, 100_000])
def test_the_bits_of_larger_summaries(count):
    """The hash depends on the size."""
    bloom = new_filter(count)
    put(bloom, SID, RID)
    k, m = bloom.num_slices, bloom.bits_per_slice
    plain = bloom.bitarray.tobytes()
    assert plain == made_by_hand(k, m, [*WITNESSES, (SID + RID).hex()])
    assert contains(read_filter(write_filter(bloom)), SID, RID)


# Publications, taken apart by the codec and, as the page says it, by hand


@pytest.mark.parametrize("vector", VECTORS["streams"], ids=lambda vector: vector["epoch"])
def test_the_tag_of_a_stream(vector):
    sid, rid, publisher = (bytes.fromhex(vector[name]) for name in ("sid", "rid", "publisher"))
    assert tag_of(sid, rid, publisher, vector["epoch"]).hex() == vector["tag"]
    text = sid + rid + publisher + vector["epoch"].to_bytes(8, "big")
    assert blake3(text, derive_key_context="psph 1 stream").hexdigest()[:32] == vector["tag"]


def described_envelope(envelope: bytes) -> dict[str, object]:
    header, content = open_envelope(KEYS, envelope)
    return {
        "envelope": envelope.hex(),
        "header": readable(header),
        "content": content.hex(),
        "signed": signed_of(header).hex(),
    }


@pytest.mark.parametrize("vector", VECTORS["envelopes"], ids=lambda vector: len(vector["envelope"]))
def test_envelopes(vector):
    envelope = bytes.fromhex(vector["envelope"])
    assert described_envelope(envelope) == vector
    header, content = open_envelope(KEYS, envelope)
    position = Position(PublisherId(header.publisher), header.epoch, header.version)
    key = None if header.proof is None else SECRET
    made = make(KEYS, header.sid, header.rid, position, header.metadata, content, key)
    assert made == envelope
    assert digest_of(header.metadata, content) == header.digest


@pytest.mark.parametrize("vector", VECTORS["envelopes"], ids=lambda vector: len(vector["envelope"]))
def test_envelopes_by_hand(vector):
    envelope, fields = bytes.fromhex(vector["envelope"]), vector["header"]
    end = 2 + int.from_bytes(envelope[:2], "big")
    written, mac, content = envelope[2:end], envelope[end : end + 16], envelope[end + 16 :]
    key = blake3(VECTORS["key"].encode(), derive_key_context="psph 1 fabric key").digest()
    assert blake3(written, key=key).digest()[:16] == mac
    metadata = msgspec.msgpack.encode(fields["metadata"])
    text = len(metadata).to_bytes(4, "big") + metadata + content
    digest = blake3(text, derive_key_context="psph 1 publication").digest()
    assert (digest.hex(), content.hex()) == (fields["digest"], vector["content"])
    named = [bytes.fromhex(fields[name]) for name in ("sid", "rid", "publisher")]
    numbers = [fields["epoch"], fields["version"], digest]
    signed = msgspec.msgpack.encode(["psph 1 publication", *named, *numbers])
    assert signed.hex() == vector["signed"]
    if fields["proof"] is not None:
        public, signature = map(bytes.fromhex, fields["proof"])
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    proof = fields["proof"] and [*map(bytes.fromhex, fields["proof"])]
    assert msgspec.msgpack.decode(written) == [*named, *numbers, fields["metadata"], proof]


def test_there_is_an_envelope_with_and_one_without_a_signature():
    assert [each["header"]["proof"] is None for each in VECTORS["envelopes"]] == [True, False]


def described_publication(data: bytes) -> dict[str, object]:
    packet = unpack(DataPacket.decode(data).payload[1:])
    return {
        "packet": data.hex(),
        "tag": packet.tag.hex(),
        "sequence": packet.sequence,
        "answer": packet.answer,
        "names": readable(packet.names),
        "records": [readable(each._asdict()) for each in records_of(packet.records)],
    }


@pytest.mark.parametrize("vector", VECTORS["publications"], ids=lambda each: each["sequence"])
def test_packets_of_publications(vector):
    data = bytes.fromhex(vector["packet"])
    assert described_publication(data) == vector
    assert (data[11] == SAMPLED) == (vector["names"] is not None)
    assert Psirp(data)[PsirpPayload].protocol == Protocol.PUBLICATION
    layer = Psirp(data)[PsirpPublication]
    assert (layer.tag.hex(), layer.sequence) == (vector["tag"], vector["sequence"])
    assert bool(layer.flags.answer) == vector["answer"]
    if vector["names"] is not None:
        assert [layer.sid.hex(), layer.rid.hex()] == vector["names"]
    assert bool(layer.flags.named) == (vector["names"] is not None)
    read = [(each.version, each.unit, each.size, each.piece.hex()) for each in layer.records]
    assert read == [tuple(each.values()) for each in vector["records"]]


def test_the_packets_together_carry_the_envelopes():
    pieces: dict[int, dict[int, str]] = {}
    for vector in VECTORS["publications"]:
        assert vector["tag"] == VECTORS["streams"][0]["tag"]
        for record in vector["records"]:
            pieces.setdefault(record["version"], {})[record["unit"]] = record["piece"]
    whole = {
        version: "".join(piece for _, piece in sorted(each.items()))
        for version, each in pieces.items()
    }
    assert whole == {each["header"]["version"]: each["envelope"] for each in VECTORS["envelopes"]}


# docs/wire.md

PAGE = Path(__file__).parents[3].joinpath("docs/wire.md").read_text()


def bounded(what: str, least: int | None, most: int | None) -> str:
    """With how many there may be."""
    if most is None:
        return what
    return f"{what}, {least} to {most}" if least else f"{what}, at most {most}"


def spelled(kind: inspect.Type) -> str:
    """The type of a field, with its bounds, as the page has it."""
    match kind:
        case inspect.IntType(ge=0, le=le) if le == 2**63 - 1:
            return "number"
        case inspect.IntType(ge=ge, le=None):
            return f"{ge} to 2^64 - 1"
        case inspect.IntType(ge=ge, le=le):
            return f"{ge} to {le}"
        case inspect.StrType(min_length=1, max_length=63):
            return "name"
        case inspect.StrType(min_length=least, max_length=most):
            return bounded("text", least, most)
        case inspect.DictType(key_type=key, value_type=value, max_length=most):
            return f"map of ({spelled(key)}) to ({spelled(value)}), at most {most}"
        case inspect.BytesType(min_length=None, max_length=None):
            return "bytes"
        case inspect.BytesType(min_length=least, max_length=most):
            return f"{most} bytes" if least == most else f"bytes, at most {most}"
        case (
            inspect.ListType(item_type=item, min_length=least, max_length=most)
            | inspect.VarTupleType(item_type=item, min_length=least, max_length=most)
        ):
            return bounded(f"list of {spelled(item)}", least, most)
        case inspect.TupleType(item_types=items):
            return f"({', '.join(map(spelled, items))})"
        case inspect.UnionType(types=(inspect.NoneType(), one) | (one, inspect.NoneType())):
            return f"{spelled(one)} or nil"
        case inspect.UnionType(types=types):
            return " or ".join(map(spelled, types))
        case inspect.StructType(cls=cls) | inspect.EnumType(cls=cls):
            return cls.__name__
        case inspect.BoolType():
            return "bool"
    raise NotImplementedError(kind)


def parts(kind: inspect.Type) -> set[type]:
    """The structs and enums a type is made of, itself included."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            return {cls}.union(*(parts(field.type) for field in fields))
        case inspect.EnumType(cls=cls):
            return {cls}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return parts(item)
        case inspect.TupleType(item_types=kinds) | inspect.UnionType(types=kinds):
            return set().union(*map(parts, kinds))
    return set()


def defaulted(default: object) -> str:
    """The default of a field as the page has it."""
    if isinstance(default, Enum):
        return default.name
    return "nil" if default is None else json.dumps(readable(default))


def rows(kind: type) -> list[tuple[str, str]]:
    """Name and type of each field, as they stand in the table of a message or a part.

    Of an enum, name and number of each value.
    """
    if issubclass(kind, Enum):
        return [(f"{kind.__name__}.{each.name}", str(each.value)) for each in kind]
    return [
        (
            field.encode_name,
            spelled(field.type)
            + ("" if field.required else f", default {defaulted(field.default)}"),
        )
        for field in inspect.type_info(kind).fields
    ]


def test_the_page_has_every_message_and_field_with_its_type_and_nothing_else():
    structs = (*MESSAGE_TYPES, Header)
    described = set().union(*(parts(inspect.type_info(kind)) for kind in structs))
    expected = {
        f"{kind.__name__}, type {kind.type}" if kind in MESSAGES else kind.__name__: rows(kind)
        for kind in described
    }
    _, *sections = re.split(r"^### (.*)$", PAGE, flags=re.MULTILINE)
    row = re.compile(r"^\| `([\w.]+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
    found = {
        title: row.findall(text.split("\n## ")[0])
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }
    assert sorted(found) == sorted(expected)
    for title, fields in expected.items():
        assert found[title] == fields, title


def byte_table(title: str) -> list[tuple[str, str]]:
    """What stands in the first table behind a bold title: bytes, and what is in them."""
    rest = PAGE.split(f"**{title}.**")[1]
    table = rest[rest.index("| byte |") :].split("\n\n")[0]
    return re.findall(r"^\| ([\d-]+|then) \| (\w+)", table, re.MULTILINE)


def test_the_bytes_on_the_page_are_those_of_the_code():
    def places(struct, names):
        """The bytes of each field of a struct, as the page writes them."""
        at, found = 0, []
        for field, name in zip(re.findall(r"\d*[A-Za-z]", struct.format), names, strict=True):
            end = at + struct_size(f">{field}")
            found.append((str(at) if end == at + 1 else f"{at}-{end - 1}", name))
            at = end
        return found

    packet = places(HEAD, ["tag", "sequence", "flags"])
    end = HEAD.size + NAMES
    packet += [(f"{HEAD.size}-{end - 1}", "names"), ("then", "records")]
    assert byte_table("Packet") == packet
    record = places(RECORD, ["version", "unit", "size", "length"])
    assert byte_table("Record") == [*record, (f"{RECORD.size}-", "piece")]
    envelope = ["length", "header", "MAC", "content"]
    assert [name for _, name in byte_table("Envelope")] == envelope
    assert f"units of {UNIT} bytes" in PAGE


def test_the_numbers_on_the_page_are_those_of_the_code():
    constants = re.findall(r"^\| `([a-z_.]+\.[A-Z_]+)` \| ([\w,]+) \|", PAGE, re.MULTILINE)
    assert len(constants) >= 10
    for name, value in constants:
        assert pydoc.locate(f"psirp_sim.{name}") == int(value.replace(",", ""), 0), name
    for kind in (Kind, Protocol):
        listed = dict(re.findall(rf"^\| `{kind.__name__}\.(\w+)` \| (\d+) \|", PAGE, re.MULTILINE))
        assert listed == {each.name: str(each.value) for each in kind}


def test_the_homes_on_the_page_are_those_of_the_code():
    weights = re.findall(r"^\| `(\w+)` \| `([0-9a-f]{16})` \|", PAGE, re.MULTILINE)
    assert len(weights) == 3
    for server, weight in weights:
        made = blake3(SID + server.encode(), derive_key_context="psph 1 home").digest()
        assert made[:8].hex() == weight
    heaviest = sorted(weights, key=lambda each: each[1], reverse=True)
    ranked = [server for server, _ in heaviest]
    assert homes(SID, sorted(ranked)) == ranked[:2]
    assert f"homes are {ranked[0]} and {ranked[1]}" in PAGE.replace("\n", " ")


# Writing the file anew


def fresh_vectors() -> dict[str, object]:
    filters = [ZFilter.bloom(size, table, 1 << size - 1 | 5) for table, size in enumerate(SIZES)]
    exact = ZFilter.exact(0x01020304, 1 << 100 | 1)
    packets = [DataPacket(each, b"packetid", b"\x01payload", 30) for each in (*filters, exact)]
    links = [ReportedLink(f"link-{n}", f"node-{n}", "back") for n in range(5)]
    long = LinkState("a", 1, 2, ["forwarder"], links)
    room = 120
    position = Position(PublisherId(PUBLISHER), 3, 1_030)
    metadata = {"topic": "http://news.site-a.test/feed.xml", "trace_id": "0123456789abcdef" * 2}
    envelopes = [
        make(KEYS, SID, RID, position, metadata, b"an update, unsigned", None),
        make(KEYS, SID, RID, position.next(), {}, bytes(range(100)), SECRET),
    ]
    return {
        "key": VECTORS["key"],
        "data": [described(packet) for packet in packets],
        "control": [
            {
                "message": type(message).__name__,
                "type": message.type,
                "fields": readable(message),
                "neighbour": (NEIGHBOUR + KEYS.seal(message)).hex(),
                "across": DataPacket(
                    filters[0], b"packetid", bytes((Protocol.CONTROL,)) + KEYS.seal(message)
                )
                .encode()
                .hex(),
            }
            for message in EXAMPLES
        ],
        "fragments": {
            "fields": readable(long),
            "room": room,
            "packets": [
                (NEIGHBOUR + piece).hex() for piece in pieces(KEYS, long, b"abcdefgh", room)
            ],
        },
        "streams": [
            {
                **readable({"sid": SID, "rid": RID, "publisher": PUBLISHER, "epoch": epoch}),
                "tag": tag_of(SID, RID, PUBLISHER, epoch).hex(),
            }
            for epoch in (3, 2**64 - 1)
        ],
        "envelopes": [described_envelope(each) for each in envelopes],
        "publications": [described_publication(each) for each in publications(*envelopes)],
    }


def publications(one: bytes, other: bytes) -> list[bytes]:
    """Two envelopes in packets: a plain one, one that is named and asks, one of two records."""

    def record(version: int, envelope: bytes, unit: int, count: int) -> Record:
        piece = envelope[unit * UNIT : (unit + count) * UNIT]
        return Record(version, unit, len(envelope), piece)

    tag = tag_of(SID, RID, PUBLISHER, 3)
    packets = [
        Packet(tag, 2_303, False, None, packed(record(1_030, one, 0, 1))),
        Packet(tag, 2_304, True, (SID, RID), packed(record(1_031, other, 0, 2))),
        Packet(
            *(tag, 2_305, False, None),
            packed(record(1_030, one, 1, 99), record(1_031, other, 2, 99)),
        ),
    ]
    bloom = ZFilter.bloom(SIZES[0], 0, 5)
    return [
        DataPacket(
            bloom,
            b"packeti" + (b"d" if packet.names is None else bytes((SAMPLED,))),
            bytes((Protocol.PUBLICATION,)) + payload(packet),
        ).encode()
        for packet in packets
    ]


if __name__ == "__main__":
    FILE.write_text(json.dumps(fresh_vectors(), indent=1) + "\n")
