"""The header of a data packet: all that a forwarding node looks at.

0      version
1      kind: DATA
2      hop limit
3      descriptor of the filter (zfilters.filters)
4-11   packet id, different for every packet sent, copies of a split tree included
12-15  numbering (exact filters), else 0
16-    filter, then payload; its first byte names the protocol of the payload
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from psirp_sim.zfilters import Mode, ZFilter, descriptor_length

VERSION = 1
HOP_LIMIT = 32
"""What a sender puts in; a fabric is less wide than that."""
HEADER = 16
LARGEST_PACKET = 1_280
"""Of packets across the fabric: every link takes that much."""
SAMPLED = 0xA5
"""Last byte of the id of a packet that forwarding nodes write traces of."""
_FIXED = Struct(">BBBB8sI")


class Kind(IntEnum):
    """The second byte of every packet."""

    DATA = 1
    """Forwarded by its filter."""
    CONTROL = 2
    """For the neighbour only, with a MAC."""


class Protocol(IntEnum):
    """The first byte of a data packet's payload."""

    CONTROL = 0
    """A sealed control message for a node's fabric functions."""
    TEST = 1
    """Traffic of tests and probes."""
    PUBLICATION = 2
    """Pieces of publications (`wire.publications`)."""


class MalformedPacket(ValueError):
    """Bytes that are no packet of ours; the message says why."""


@dataclass(frozen=True, slots=True)
class DataPacket:
    """A data packet taken apart."""

    filter: ZFilter
    packet_id: bytes
    payload: bytes
    hop_limit: int = HOP_LIMIT

    def encode(self) -> bytes:
        """The bytes to send."""
        return encode(self.filter, self.packet_id, self.payload, self.hop_limit)

    @classmethod
    def decode(cls, packet: bytes) -> DataPacket:
        """Take a packet apart, or say what is wrong with it."""
        if len(packet) < HEADER:
            raise MalformedPacket(f"a data packet has at least {HEADER} bytes, not {len(packet)}")
        version, kind, hop_limit, descriptor, packet_id, numbering = _FIXED.unpack_from(packet)
        if version != VERSION:
            raise MalformedPacket(f"version {version} is not {VERSION}")
        if kind != Kind.DATA:
            raise MalformedPacket(f"kind {kind} is no data packet")
        length = descriptor_length(descriptor)
        if length == 0:
            raise MalformedPacket(f"descriptor {descriptor:#04x} has no meaning")
        if len(packet) < HEADER + length:
            raise MalformedPacket(f"the packet ends within its filter of {length} bytes")
        if numbering and descriptor >> 6 == Mode.BLOOM:
            raise MalformedPacket("a Bloom filter has no numbering")
        bits = int.from_bytes(packet[HEADER : HEADER + length], "little")
        return cls(
            ZFilter(descriptor, bits, numbering), packet_id, packet[HEADER + length :], hop_limit
        )


def encode(zfilter: ZFilter, packet_id: bytes, payload: bytes, hop_limit: int = HOP_LIMIT) -> bytes:
    """The bytes of a data packet; whoever sends many needs no `DataPacket` for each."""
    if len(packet_id) != 8 or not 0 <= hop_limit <= 255:
        raise ValueError("a packet id has 8 bytes, and a hop limit one")
    fixed = _FIXED.pack(VERSION, _DATA, hop_limit, zfilter.descriptor, packet_id, zfilter.numbering)
    return fixed + zfilter.to_bytes() + payload


def payload_of(packet: bytes) -> bytes:
    """The payload of a data packet that a link driver has let pass; it is not looked at again
    whether everything else in its header makes sense."""
    begin = _PAYLOAD[packet[3]] if len(packet) >= HEADER else HEADER
    if len(packet) < begin or begin == HEADER:
        raise MalformedPacket("a data packet without a whole filter")
    return packet[begin:]


# On the way of every packet, where it shows that members of an enumeration are looked up slowly.
_DATA = int(Kind.DATA)
_PAYLOAD = tuple(HEADER + descriptor_length(descriptor) for descriptor in range(256))
