"""A whole zone as a series of messages (RFC 5936)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import dns.rdataset
from dns.rdataclass import IN
from dns.rdatatype import SOA

from bootstrap.server.reading import Malformed, Request
from bootstrap.server.writing import Response, write_whole
from bootstrap.server.zone import LARGEST_SET, Record, Zone, newer, soa_of

FULL = LARGEST_SET
"""Bytes of records in a message; with one record more it still fits."""


def transfer(zone: Zone, response: Response) -> Iterator[bytes]:
    """The messages that carry the zone; the SOA is its beginning and its end."""
    batch = _next(response)
    size = 0
    for record in _records(zone):
        wire = record.rdata.to_wire()
        length = len(record.name.to_wire() or b"") + 10 + len(wire or b"")
        if batch.answer and size + length > FULL:
            yield write_whole(batch)
            batch, size = _next(response, question=False), 0
        batch.answer.append((record.name, dns.rdataset.from_rdata(record.ttl, record.rdata)))
        size += length
    yield write_whole(batch)


def _records(zone: Zone) -> Iterator[Record]:
    yield from zone.records()
    yield Record(zone.origin, zone.soa.ttl, zone.soa[0])


def _next(response: Response, question: bool = True) -> Response:
    """Only the first message needs to repeat the question."""
    return replace(
        response,
        question=response.question if question else None,
        authoritative=True,
        answer=[],
    )


def is_current(zone: Zone, request: Request) -> bool:
    """Whether who asks for what is new (IXFR, RFC 1995) has the latest version already."""
    for outline in request.sections[1]:
        if outline.kind == SOA and request.name(outline) == zone.origin:
            theirs = soa_of([request.rdata(outline, IN)])
            return not newer(zone.serial, theirs.serial)
    raise Malformed("IXFR without the version that is known")
