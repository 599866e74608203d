"""Publications on the wire: packets of data, and what publishers and listeners say about them.

A publication travels as an **envelope**: what identifies and proves it, then its content.

    0-1    length of the header
    2-     header: a MessagePack array (`Header`)
    -      MAC: BLAKE3 keyed with the fabric's key over the header, first 16 bytes
    -      content

The envelope is cut into units of 128 bytes, and any run of them can be sent, so that packets of
every size serve: large ones where the links take them, small ones where the filter is long. The
name of a unit, (stream, version, unit), follows from what it is: a listener asks for what it
misses without ever having heard of it. A packet of protocol PUBLICATION is

    0-15   tag of the stream
    16-23  sequence: counts the packets a publisher has sent of the stream
    24     flags: 1 answer at once, 2 named
    -      named only (packets that forwarding nodes write traces of): scope id, rendezvous id
    -      records, to the end

and a record, of which a packet may hold several,

    0-7    version
    8-11   first unit
    12-15  size of the envelope in bytes
    16-17  length of what follows
    18-    bytes of the envelope, from the first unit on

`Latest` and `Report` are sealed messages (`wire.sealing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from blake3 import blake3
from msgspec import Meta

from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.message import Message, Name, Number
from psirp_sim.wire.rendezvous import Id, Key, Signature, Unsigned

UNIT = 128
LARGEST = 16 << 20
"""Bytes of content that any fabric takes at most."""
MOST_METADATA = 64
LONGEST_KEY = 64
LONGEST_VALUE = 4_096
LARGEST_METADATA = 16_384
"""Bytes of all keys and values together."""
LARGEST_ENVELOPE = LARGEST + LARGEST_METADATA + 2_048
TAG = 16
ENVELOPE_MAC = 16
MOST_RANGES = 48
"""Of each kind in one report."""

ANSWER, NAMED = 1, 2
HEAD = Struct(">16sQB")
NAMES = 64
RECORD = Struct(">QIIH")
_LENGTH = Struct(">H")

Publisher = Annotated[bytes, Meta(min_length=16, max_length=16)]
Tag = Annotated[bytes, Meta(min_length=16, max_length=16)]
Metadata = dict[
    Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY)],
    Annotated[str, Meta(max_length=LONGEST_VALUE)],
]


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What identifies a publication and proves it."""

    sid: Id
    rid: Id
    publisher: Publisher
    epoch: Unsigned
    version: Annotated[int, Meta(ge=1)]
    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    """`digest_of` metadata and content."""
    metadata: Annotated[Metadata, Meta(max_length=MOST_METADATA)]
    proof: tuple[Key, Signature] | None = None
    """A key of the zone, and its signature over `signed_of` this header."""


_HEADER = msgspec.msgpack.Decoder(Header)


class Record(NamedTuple):
    """A run of units of one envelope."""

    version: int
    unit: int
    size: int
    """Of the whole envelope."""
    piece: bytes


class Packet(NamedTuple):
    """The payload of a packet, taken apart."""

    tag: bytes
    sequence: int
    answer: bool
    names: tuple[bytes, bytes] | None
    """Scope and rendezvous id, where it has them."""
    records: bytes
    """Still packed: see `records_of`."""


def tag_of(sid: bytes, rid: bytes, publisher: bytes, epoch: int) -> bytes:
    """The sixteen bytes that stand for a stream."""
    text = sid + rid + publisher + epoch.to_bytes(8)
    return blake3(text, derive_key_context="psph 1 stream").digest(length=TAG)


def digest_of(metadata: Mapping[str, str], content: bytes) -> bytes:
    """BLAKE3 over the metadata, a MessagePack map with its length in front, and the content."""
    packed = msgspec.msgpack.encode(metadata)
    hasher = blake3(derive_key_context="psph 1 publication")
    return hasher.update(len(packed).to_bytes(4)).update(packed).update(content).digest()


def signed_of(header: Header) -> bytes:
    """What the zone's key signs."""
    return msgspec.msgpack.encode(
        (
            "psph 1 publication",
            header.sid,
            header.rid,
            header.publisher,
            header.epoch,
            header.version,
            header.digest,
        )
    )


def join(header: bytes, mac: bytes, content: bytes) -> bytes:
    """The envelope."""
    return _LENGTH.pack(len(header)) + header + mac + content


def split(envelope: bytes) -> tuple[Header, bytes, bytes, bytes]:
    """Header, header as it was packed, MAC and content; MalformedPacket when there is no sense
    in it."""
    if len(envelope) < 2:
        raise MalformedPacket("an envelope has a length in front")
    end = 2 + _LENGTH.unpack_from(envelope)[0]
    if len(envelope) < end + ENVELOPE_MAC:
        raise MalformedPacket("the envelope ends within its header")
    packed = envelope[2:end]
    try:
        header = _HEADER.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedPacket(f"an envelope's header: {error}") from error
    return header, packed, envelope[end : end + ENVELOPE_MAC], envelope[end + ENVELOPE_MAC :]


def unpack(payload: bytes) -> Packet:
    """Take a payload apart, but for its records."""
    if len(payload) < HEAD.size:
        raise MalformedPacket(f"a publication's packet has at least {HEAD.size} bytes")
    tag, sequence, flags = HEAD.unpack_from(payload)
    if flags & ~(ANSWER | NAMED):
        raise MalformedPacket(f"flags {flags:#04x} have no meaning")
    begin = HEAD.size
    names = None
    if flags & NAMED:
        begin += NAMES
        if len(payload) < begin:
            raise MalformedPacket("the packet ends within its names")
        names = (payload[HEAD.size : HEAD.size + 32], payload[HEAD.size + 32 : begin])
    return Packet(tag, sequence, bool(flags & ANSWER), names, payload[begin:])


def records_of(packed: bytes) -> Iterator[Record]:
    """The records of a packet, one after the other; MalformedPacket at the first without sense."""
    at, end = 0, len(packed)
    while at < end:
        if end - at < RECORD.size:
            raise MalformedPacket("the packet ends within the head of a record")
        version, unit, size, length = RECORD.unpack_from(packed, at)
        at += RECORD.size
        begin = unit * UNIT
        if at + length > end:
            raise MalformedPacket("the packet ends within a record")
        if not (version and 0 < size <= LARGEST_ENVELOPE and length and begin + length <= size):
            raise MalformedPacket("a record that is no part of any envelope")
        if length % UNIT and begin + length != size:
            raise MalformedPacket("a record that ends within a unit")
        yield Record(version, unit, size, packed[at : at + length])
        at += length


class Latest(Message, frozen=True, array_like=True):
    """From a publisher to its listeners: how far the stream is, and how far back it goes.

    Sent while somebody has not said that it has everything, and where the epoch changes.
    """

    type: ClassVar[int] = 48
    node: Name
    """The publisher's."""
    life: Number
    """Boot of that node."""
    sid: Id
    rid: Id
    publisher: Publisher
    epoch: Unsigned
    first: Unsigned
    """The oldest version that can still be had."""
    latest: Unsigned
    """The newest that has been sent; 0 before the first."""
    sequence: Unsigned
    """Of the last packet sent before."""
    answer_ms: Annotated[int, Meta(ge=0, le=1_000)] | None = None
    """Asks for a report within that many milliseconds."""


class Report(Message, frozen=True, array_like=True):
    """From a listener to a publisher: what it has, and what it misses."""

    type: ClassVar[int] = 49
    node: Name
    """The publisher's."""
    listener: Name
    life: Number
    """Boot of the listener's node."""
    sid: Id
    rid: Id
    tag: Tag
    """Of the stream as the listener knows it."""
    seen: Unsigned
    """What was sent up to this sequence, and is missing, is lost."""
    answers: Unsigned
    """The sequence of the packet that asked for this report, or 0."""
    next: Unsigned
    """Every version before it has come."""
    versions: Annotated[list[tuple[Unsigned, Unsigned]], Meta(max_length=MOST_RANGES)]
    """Missing altogether: first and last of each run."""
    units: Annotated[list[tuple[Unsigned, Unsigned, Unsigned]], Meta(max_length=MOST_RANGES)]
    """Missing in part: version, first and last unit of each run."""


MESSAGES: tuple[type[Message], ...] = (Latest, Report)
