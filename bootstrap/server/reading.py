"""From bytes to a request, without trusting them.

Only the outline is read at first, in a time linear in the length: what names and data say is
read when it is needed, which for an update is after its signature was found good.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.TSIG
from dns.name import Name
from dns.rdata import Rdata

HEADER = 12
LARGEST_QUESTION = 4_096
"""Bytes; a query beyond that is none."""

QR, AA, TC, RD, RA = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080
QUERY, UPDATE = 0, 5
OPT, TSIG = 41, 250


class Malformed(Exception):
    """The message is not one; FORMERR is the answer."""


@dataclass(frozen=True, slots=True)
class Header:
    """Enough to answer anything that has one."""

    id: int
    flags: int

    @property
    def opcode(self) -> int:
        return (self.flags >> 11) & 0xF


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; in an update, the zone."""

    name: Name
    kind: int
    rdclass: int


@dataclass(frozen=True, slots=True)
class Outline:
    """A record that has not been read."""

    start: int
    kind: int
    rdclass: int
    ttl: int
    data: int
    """Where its data begin."""
    length: int


@dataclass(frozen=True, slots=True)
class Edns:
    """What the client can take (RFC 6891)."""

    payload: int
    version: int
    dnssec_ok: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A well-formed message; `sections` are what follows the question."""

    wire: bytes
    header: Header
    question: Question
    sections: tuple[tuple[Outline, ...], ...]
    edns: Edns | None
    signature: Outline | None

    def name(self, outline: Outline) -> Name:
        """The owner of a record."""
        return _name(self.wire, outline.start)

    def rdata(self, outline: Outline, rdclass: int) -> Rdata:
        """The data of a record, as those of a class."""
        try:
            return dns.rdata.from_wire(
                dns.rdataclass.RdataClass.make(rdclass),
                dns.rdatatype.RdataType.make(outline.kind),
                self.wire,
                outline.data,
                outline.length,
            )
        except dns.exception.DNSException as error:
            raise Malformed(f"bad data of type {outline.kind}") from error

    def tsig(self) -> tuple[Name, dns.rdtypes.ANY.TSIG.TSIG] | None:
        """The name of the key and the signature, if there is one."""
        if self.signature is None:
            return None
        rdata = self.rdata(self.signature, dns.rdataclass.ANY)
        assert isinstance(rdata, dns.rdtypes.ANY.TSIG.TSIG)
        return self.name(self.signature), rdata


def read_header(wire: bytes) -> Header | None:
    """None for what deserves no answer: too short, or itself an answer."""
    if len(wire) < HEADER:
        return None
    header = Header(*struct.unpack_from("!HH", wire))
    return None if header.flags & QR else header


def read(wire: bytes, header: Header) -> Request:
    """Take a message apart, or raise Malformed."""
    counts = struct.unpack_from("!HHHH", wire, 4)
    if counts[0] != 1:
        raise Malformed(f"{counts[0]} questions")
    if header.opcode == QUERY and len(wire) > LARGEST_QUESTION:
        raise Malformed("a question larger than any")
    question, at = _question(wire)
    if header.opcode == UPDATE and not _is_zone(question):
        # Any other answer repeats the zone section, and clients cannot read one like this.
        raise Malformed("the zone of an update has the type SOA and the class of its records")
    sections = []
    for count in counts[1:]:
        section, at = _section(wire, at, count)
        sections.append(section)
    if at != len(wire):
        raise Malformed("bytes behind the end")
    signature = _signature(sections)
    return Request(wire, header, question, tuple(sections), _edns(wire, sections), signature)


def _question(wire: bytes) -> tuple[Question, int]:
    end = _skip_name(wire, HEADER)
    if end + 4 > len(wire):
        raise Malformed("cut off")
    kind, rdclass = struct.unpack_from("!HH", wire, end)
    return Question(_name(wire, HEADER), kind, rdclass), end + 4


def _is_zone(question: Question) -> bool:
    rdclass = dns.rdataclass.RdataClass.make(question.rdclass)
    return question.kind == dns.rdatatype.SOA and not dns.rdataclass.is_metaclass(rdclass)


def _section(wire: bytes, at: int, count: int) -> tuple[tuple[Outline, ...], int]:
    outlines = []
    for _ in range(count):
        start, at = at, _skip_name(wire, at)
        if at + 10 > len(wire):
            raise Malformed("cut off")
        kind, rdclass, ttl, length = struct.unpack_from("!HHIH", wire, at)
        at += 10
        if at + length > len(wire):
            raise Malformed("cut off")
        outlines.append(Outline(start, kind, rdclass, ttl, at, length))
        at += length
    return tuple(outlines), at


def _signature(sections: list[tuple[Outline, ...]]) -> Outline | None:
    """The TSIG record, which is the last of all or is not there."""
    found = [outline for section in sections for outline in section if outline.kind == TSIG]
    if not found:
        return None
    (last,) = sections[2][-1:] or (None,)
    if len(found) > 1 or last is not found[0]:
        raise Malformed("a signature that is not at the end")
    if last.rdclass != dns.rdataclass.ANY or last.ttl:
        raise Malformed("a signature of another class")
    return last


def _edns(wire: bytes, sections: list[tuple[Outline, ...]]) -> Edns | None:
    found = [outline for section in sections for outline in section if outline.kind == OPT]
    if not found:
        return None
    if len(found) > 1 or found[0] not in sections[2] or wire[found[0].start]:
        raise Malformed("a second OPT record, or one at the wrong place")
    opt = found[0]
    return Edns(opt.rdclass, (opt.ttl >> 16) & 0xFF, bool(opt.ttl & 0x8000))


def _skip_name(wire: bytes, at: int) -> int:
    """Where a name ends; it is not followed where it points elsewhere."""
    while at < len(wire):
        length = wire[at]
        if not length:
            return at + 1
        if length >= 0xC0:
            return at + 2
        if length > 63:
            raise Malformed("a label of no known kind")
        at += 1 + length
    raise Malformed("cut off")


def _name(wire: bytes, at: int) -> Name:
    try:
        return dns.name.from_wire(wire, at)[0]
    except dns.exception.DNSException as error:
        raise Malformed("a name that is none") from error
