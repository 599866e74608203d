"""From a response to bytes that fit."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from io import BytesIO

from dns.name import CompressType, Name
from dns.rdataset import Rdataset

from bootstrap.server.reading import AA, OPT, QR, RD, TC, Edns, Header, Question

SMALLEST, LARGEST_UDP, LARGEST_TCP = 512, 1232, 65_535
"""Bytes of a message: what everybody can take over UDP, what crosses the net in one piece, TCP."""
_PAYLOAD = LARGEST_UDP

Rrset = tuple[Name, Rdataset]


@dataclass(slots=True)
class Response:
    """What is answered to a request."""

    header: Header
    """Of the request."""
    question: Question | None
    edns: Edns | None
    rcode: int = 0
    authoritative: bool = False
    answer: list[Rrset] = field(default_factory=list)
    authority: list[Rrset] = field(default_factory=list)
    additional: list[Rrset] = field(default_factory=list)
    glue: bool = False
    """Whether the additional records are needed, as with a referral, and not merely helpful."""


def udp_limit(edns: Edns | None) -> int:
    """Bytes that may be answered over UDP."""
    return SMALLEST if edns is None else min(max(edns.payload, SMALLEST), LARGEST_UDP)


def write(response: Response, limit: int) -> bytes:
    """The message; when what it has to say exceeds the limit, a short one that says so (TC)."""
    needed = [response.answer, response.authority, response.additional if response.glue else []]
    helpful = [] if response.glue else response.additional
    limit -= _opt_length(response)
    out, counts, compress = _begin(response.question)
    for index, section in enumerate(needed):
        for name, rdataset in section:
            counts[index + 1] += _add(out, compress, name, rdataset)
            if out.tell() > limit:
                out, counts, _ = _begin(response.question)
                return _finish(response, out, counts, TC)
    for name, rdataset in helpful:
        end = out.tell()
        added = _add(out, compress, name, rdataset)
        if out.tell() > limit:
            out.seek(end)
            out.truncate()
            break
        counts[3] += added
    return _finish(response, out, counts, 0)


def write_whole(response: Response) -> bytes:
    """A message of a series, which is known to fit. Names are not compressed: pointers would lose
    their case (RFC 5936 3.4)."""
    out, counts, _ = _begin(response.question)
    for name, rdataset in response.answer:
        counts[1] += _add(out, None, name, rdataset)
    return _finish(response, out, counts, 0)


def write_error(header: Header, rcode: int) -> bytes:
    """A header and nothing else, for what could not be read."""
    return struct.pack("!HHHHHH", header.id, _flags(header) | rcode, 0, 0, 0, 0)


def _begin(question: Question | None) -> tuple[BytesIO, list[int], CompressType]:
    out = BytesIO(bytes(12))
    compress: CompressType = {}
    out.seek(12)
    if question is None:
        return out, [0, 0, 0, 0], compress
    question.name.to_wire(out, compress)
    out.write(struct.pack("!HH", question.kind, question.rdclass))
    return out, [1, 0, 0, 0], compress


def _add(out: BytesIO, compress: CompressType | None, name: Name, rdataset: Rdataset) -> int:
    return rdataset.to_wire(name, out, compress, want_shuffle=False)


def _finish(response: Response, out: BytesIO, counts: list[int], flags: int) -> bytes:
    edns = response.edns
    if edns is not None:
        ttl = (response.rcode >> 4) << 24 | (0x8000 if edns.dnssec_ok else 0)
        out.write(struct.pack("!BHHIH", 0, OPT, _PAYLOAD, ttl, 0))
        counts[3] += 1
    flags |= _flags(response.header) | (response.rcode & 0xF)
    if response.authoritative:
        flags |= AA
    out.seek(0)
    out.write(struct.pack("!HHHHHH", response.header.id, flags, *counts))
    return out.getvalue()


def _flags(header: Header) -> int:
    return QR | header.opcode << 11 | header.flags & RD


def _opt_length(response: Response) -> int:
    return 0 if response.edns is None else 11
