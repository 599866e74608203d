"""What all sealed messages have in common: their base, and the types of their fields."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import msgspec
from msgspec import Meta

from psirp_sim.wire.data import MalformedPacket
from psirp_sim.zfilters import ZFilter, descriptor_length

MOST_FILTERS = 64
"""Filters of one tree."""
MOST_RECEIVERS = 1_024

Name = Annotated[str, Meta(min_length=1, max_length=63)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A counter or a time; a signed 64-bit number holds it everywhere."""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A control message; `type` stands in front of its body."""

    type: ClassVar[int]


class WireFilter(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A zFilter inside a message."""

    descriptor: Annotated[int, Meta(ge=0, le=127)]
    numbering: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    bits: Annotated[bytes, Meta(max_length=504)]

    @classmethod
    def of(cls, zfilter: ZFilter) -> Self:
        return cls(zfilter.descriptor, zfilter.numbering, zfilter.to_bytes())

    def zfilter(self) -> ZFilter:
        """As forwarding knows it; MalformedPacket when its parts do not fit together."""
        if not self.bits or descriptor_length(self.descriptor) != len(self.bits):
            raise MalformedPacket("a filter whose length is not what its descriptor says")
        return ZFilter(self.descriptor, int.from_bytes(self.bits, "little"), self.numbering)


Filters = Annotated[list[WireFilter], Meta(max_length=MOST_FILTERS)]
Receivers = Annotated[list[Name], Meta(max_length=MOST_RECEIVERS)]
