"""The wire format as it was committed: vectors.json for programs, docs/wire.md for people.

A vector that no longer fits means that nodes of before and after do not understand each other.
Where that is wanted, write the file anew with

    python -m tests.psirp_sim.wire.test_vectors
"""

from __future__ import annotations

import json
import pydoc
import re
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from psirp_sim.scapy_layer import MESSAGES, Psirp, PsirpControl, PsirpData, PsirpPayload
from psirp_sim.wire.control import (
    NEIGHBOUR,
    SEAL,
    FabricKeys,
    Fragment,
    LinkState,
    Message,
    Protocol,
    Reassembly,
    ReportedLink,
    pieces,
)
from psirp_sim.wire.data import DataPacket, Kind
from psirp_sim.zfilters import SIZES, Mode, ZFilter
from tests.psirp_sim.wire.test_control import EXAMPLES

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


# Control messages


@pytest.mark.parametrize("vector", VECTORS["control"], ids=lambda vector: vector["message"])
def test_control_messages(vector):
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
        assert readable(layer[MESSAGES[type(message)]].fields) == vector["fields"]


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


# docs/wire.md

PAGE = Path(__file__).parents[3].joinpath("docs/wire.md").read_text()


def spelled(kind: inspect.Type) -> str:
    """The type of a field, with its bounds, as the page has it."""
    match kind:
        case inspect.IntType(ge=0, le=le) if le == 2**63 - 1:
            return "number"
        case inspect.IntType(ge=ge, le=le):
            return f"{ge} to {le}"
        case inspect.StrType(min_length=1, max_length=63):
            return "name"
        case inspect.StrType(max_length=most):
            return f"text, at most {most}"
        case inspect.BytesType(min_length=None, max_length=None):
            return "bytes"
        case inspect.BytesType(min_length=least, max_length=most):
            return f"{most} bytes" if least == most else f"bytes, at most {most}"
        case inspect.ListType(item_type=item, max_length=most):
            return f"list of {spelled(item)}" + (f", at most {most}" if most else "")
        case inspect.TupleType(item_types=items):
            return f"({', '.join(map(spelled, items))})"
        case inspect.UnionType(types=(inspect.NoneType(), one) | (one, inspect.NoneType())):
            return f"{spelled(one)} or nil"
        case inspect.StructType(cls=cls):
            return cls.__name__
        case inspect.BoolType():
            return "bool"
    raise NotImplementedError(kind)


def parts(kind: inspect.Type) -> set[type]:
    """The structs a type is made of, itself included."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            return {cls}.union(*(parts(field.type) for field in fields))
        case inspect.ListType(item_type=item):
            return parts(item)
    return set()


def rows(kind: type) -> list[tuple[str, str]]:
    """Name and type of each field, as they stand in the table of a message or a part."""
    return [
        (
            field.encode_name,
            spelled(field.type)
            + ("" if field.required else f", default {json.dumps(field.default)}"),
        )
        for field in inspect.type_info(kind).fields
    ]


def test_the_page_has_every_message_and_field_with_its_type_and_nothing_else():
    structs = set().union(*(parts(inspect.type_info(kind)) for kind in MESSAGE_TYPES))
    expected = {
        f"{kind.__name__}, type {kind.type}" if kind in MESSAGES else kind.__name__: rows(kind)
        for kind in structs
    }
    _, *sections = re.split(r"^### (.*)$", PAGE, flags=re.MULTILINE)
    row = re.compile(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
    found = {
        title: row.findall(text.split("\n## ")[0])
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }
    assert sorted(found) == sorted(expected)
    for title, fields in expected.items():
        assert found[title] == fields, title


def test_the_numbers_on_the_page_are_those_of_the_code():
    constants = re.findall(r"^\| `([a-z_.]+\.[A-Z_]+)` \| ([\w,]+) \|", PAGE, re.MULTILINE)
    assert len(constants) >= 10
    for name, value in constants:
        assert pydoc.locate(f"psirp_sim.{name}") == int(value.replace(",", ""), 0), name
    for kind in (Kind, Protocol):
        listed = dict(re.findall(rf"^\| `{kind.__name__}\.(\w+)` \| (\d+) \|", PAGE, re.MULTILINE))
        assert listed == {each.name: str(each.value) for each in kind}


# Writing the file anew


def fresh_vectors() -> dict[str, object]:
    filters = [ZFilter.bloom(size, table, 1 << size - 1 | 5) for table, size in enumerate(SIZES)]
    exact = ZFilter.exact(0x01020304, 1 << 100 | 1)
    packets = [DataPacket(each, b"packetid", b"\x01payload", 30) for each in (*filters, exact)]
    links = [ReportedLink(f"link-{n}", f"node-{n}", "back") for n in range(5)]
    long = LinkState("a", 1, 2, ["forwarder"], links)
    room = 120
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
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(fresh_vectors(), indent=1) + "\n")
