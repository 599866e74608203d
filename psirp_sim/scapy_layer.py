"""Scapy layers for every packet of ours: to take captures apart, and to make packets by hand.

    across the fabric    Psirp / PsirpData / PsirpPayload / PsirpControl / PsirpRoutes
                         Psirp / PsirpData / PsirpPayload / PsirpPublication
    to the neighbour     Psirp / PsirpControl / PsirpHello
    in a frame           Ether / PsirpFrame / Psirp / ...

`Psirp(data)` reads a packet as it came out of a UDP socket. The fields are those of docs/wire.md.
The layers of control messages (`PsirpHello` and so on) are made from the messages themselves: a
new one needs no word here. A field that has the name of something in scapy's `Packet` has an
underscore behind it (`PsirpReport.answers_`). Bytes that cannot be read become scapy's `Raw`,
never an exception.

The only module that imports scapy, which takes long: import this one where it is used.
"""

# ruff: noqa: RUF012  (the lists are scapy's way of declaring fields)

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec

from psirp_sim.runtime.ethernet import ETHERTYPE, LENGTH
from psirp_sim.wire.control import NEIGHBOUR
from psirp_sim.wire.data import HEADER, HOP_LIMIT, VERSION, Kind, MalformedPacket, Protocol
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import ANSWER, NAMED, TAG, records_of, unpack
from psirp_sim.wire.sealing import MAC, SEAL
from psirp_sim.zfilters import SIZES, Mode, descriptor_length

# Loading scapy comes with remarks on the machine's network.
logging.getLogger("scapy.loading").setLevel(logging.CRITICAL)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from scapy.fields import (
        BitEnumField,
        BitField,
        BitFieldLenField,
        ByteEnumField,
        ByteField,
        ConditionalField,
        Field,
        FieldLenField,
        FlagsField,
        IntField,
        LenField,
        LongField,
        PacketListField,
        XStrFixedLenField,
        XStrLenField,
    )
    from scapy.layers.l2 import Ether
    from scapy.packet import Packet, Raw, bind_layers


def _names(values: type[IntEnum]) -> dict[int, str]:
    return {value.value: value.name.lower() for value in values}


def _if(readable: Callable[[bytes], bool]) -> Any:
    """The hook by which scapy asks a layer whether it is the one for some bytes."""

    def hook(layer: type[Packet], /, data: bytes = b"", *_: object, **__: object) -> type[Packet]:
        # No bytes at all: the layer is not read but made.
        return layer if not data or readable(data) else Raw

    return classmethod(hook)


class PsirpFrame(Packet):
    """Between the Ethernet header and a packet: where the packet ends and padding begins."""

    name = "psirp frame"
    fields_desc = [LenField("length", None)]
    dispatch_hook = _if(lambda data: len(data) >= LENGTH.size)

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return s[: self.length], s[self.length :]


class Psirp(Packet):
    """What every packet begins with."""

    name = "psirp"
    fields_desc = [
        ByteField("version", VERSION),
        ByteEnumField("kind", Kind.DATA, _names(Kind)),
    ]
    dispatch_hook = _if(lambda data: len(data) >= len(NEIGHBOUR))


# A data packet

_REST = HEADER - len(NEIGHBOUR)
"""Bytes of a data packet's header behind version and kind, without the filter."""


def _has_its_filter(data: bytes) -> bool:
    length = descriptor_length(data[1]) if len(data) >= _REST else 0
    return 0 < length <= len(data) - _REST


def _filter_length(packet: Packet) -> int:
    if packet.mode == Mode.BLOOM:
        return SIZES[packet.size] // 8
    return int(8 * packet.length)


class PsirpData(Packet):
    """The header of a data packet, descriptor taken apart."""

    name = "psirp data"
    fields_desc = [
        ByteField("hop_limit", HOP_LIMIT),
        BitEnumField("mode", Mode.BLOOM, 2, _names(Mode)),
        ConditionalField(
            BitEnumField("size", 0, 3, {code: f"{size} bits" for code, size in enumerate(SIZES)}),
            lambda packet: packet.mode == Mode.BLOOM,
        ),
        ConditionalField(BitField("table", 0, 3), lambda packet: packet.mode == Mode.BLOOM),
        ConditionalField(
            BitFieldLenField(
                "length", None, 6, length_of="filter", adjust=lambda _, length: length // 8
            ),
            lambda packet: packet.mode != Mode.BLOOM,
        ),
        XStrFixedLenField("packet_id", bytes(8), 8),
        IntField("numbering", 0),
        XStrLenField("filter", bytes(SIZES[0] // 8), length_from=_filter_length),
    ]
    dispatch_hook = _if(_has_its_filter)


class PsirpPayload(Packet):
    """The payload of a data packet."""

    name = "psirp payload"
    fields_desc = [ByteEnumField("protocol", Protocol.TEST, _names(Protocol))]


# Publications


class PsirpRecord(Packet):
    """A run of units of one envelope, inside a `PsirpPublication`."""

    name = "psirp record"
    fields_desc = [
        LongField("version", 1),
        IntField("unit", 0),
        IntField("size", 0),
        FieldLenField("length", None, length_of="piece", fmt="H"),
        XStrLenField("piece", b"", length_from=lambda packet: packet.length),
    ]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


def _is_publication(data: bytes) -> bool:
    try:
        for _ in records_of(unpack(data).records):
            pass
    except MalformedPacket:
        return False
    return True


def _is_named(packet: Packet) -> bool:
    return bool(packet.flags & NAMED)


class PsirpPublication(Packet):
    """Pieces of publications of one stream."""

    name = "psirp publication"
    fields_desc = [
        XStrFixedLenField("tag", bytes(TAG), TAG),
        LongField("sequence", 0),
        FlagsField("flags", 0, 8, {ANSWER: "answer", NAMED: "named"}),
        ConditionalField(XStrFixedLenField("sid", bytes(32), 32), _is_named),
        ConditionalField(XStrFixedLenField("rid", bytes(32), 32), _is_named),
        PacketListField("records", [], PsirpRecord, max_count=1 << 16),
    ]
    dispatch_hook = _if(_is_publication)


# Control messages


class PsirpControl(Packet):
    """The seal of a control message, the same in both forms."""

    name = "psirp control"
    fields_desc = [
        ByteEnumField("type", 0, {kind.type: kind.__name__ for kind in Message.__subclasses__()}),
        XStrFixedLenField("mac", bytes(MAC), MAC),
    ]
    dispatch_hook = _if(lambda data: len(data) >= SEAL)


class _ValueField(Field[Any, Any]):
    """A field of a message, as msgspec reads and writes it."""

    islist = 1  # a list is one value, not a choice of values for several packets

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        return x.hex() if isinstance(x, bytes) else repr(x)


def _message_layer(kind: type[Message]) -> type[Packet]:
    """The layer for the body of such a message; a field that is not given is nil."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def readable(data: bytes) -> bool:
        try:
            decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True

    # In scapy, some names have a meaning already.
    names = {
        field.name: field.name + "_" * hasattr(Packet, field.name)
        for field in msgspec.structs.fields(kind)
    }

    class Body(Packet):
        name = f"psirp {kind.__name__}"
        fields_desc = [
            _ValueField(names[field.name], None if field.required else field.default)
            for field in msgspec.structs.fields(kind)
        ]
        dispatch_hook = _if(readable)

        def do_dissect(self, s: bytes) -> bytes:
            values = msgspec.structs.asdict(decode(s))
            self.fields.update({names[name]: value for name, value in values.items()})
            self.raw_packet_cache = s
            self.explicit = 1
            return b""

        def self_build(self) -> bytes:
            message = kind(*(self.getfieldval(field.name) for field in self.fields_desc))
            as_read = self.raw_packet_cache
            # There is more than one way to write a value: what was read is written as it was.
            if as_read is not None and decode(as_read) == message:
                return as_read
            return msgspec.msgpack.encode(message)

    Body.__name__ = Body.__qualname__ = f"Psirp{kind.__name__}"
    return Body


MESSAGES = {kind: _message_layer(kind) for kind in Message.__subclasses__()}
"""The layer of each control message."""

bind_layers(Ether, PsirpFrame, type=ETHERTYPE)
bind_layers(PsirpFrame, Psirp)
bind_layers(Psirp, PsirpData, version=VERSION, kind=Kind.DATA)
bind_layers(Psirp, PsirpControl, version=VERSION, kind=Kind.CONTROL)
bind_layers(PsirpData, PsirpPayload)
bind_layers(PsirpPayload, PsirpControl, protocol=Protocol.CONTROL)
bind_layers(PsirpPayload, PsirpPublication, protocol=Protocol.PUBLICATION)
for _kind, _layer in MESSAGES.items():
    bind_layers(PsirpControl, _layer, type=_kind.type)
