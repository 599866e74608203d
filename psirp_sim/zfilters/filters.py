"""A filter as it stands in the header of a data packet.

The **descriptor**, one byte, says how to read it:

    bloom   0 0 s s s t t t     s: size code (256 << s bits), t: table
    exact   0 1 n n n n n n     n: length in units of 8 bytes, at least 1

Bit b of a filter is bit b % 8 of byte b // 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from psirp_sim.zfilters.tags import MOST_TABLES, SIZES

MOST_EXACT_BITS = 63 * 64


class Mode(IntEnum):
    """What a set bit of a filter means."""

    BLOOM = 0
    """The tag of some link has it."""
    EXACT = 1
    """The tree has the undirected link, or the delivery, of that number."""


@dataclass(frozen=True, slots=True)
class ZFilter:
    """Where a packet goes."""

    descriptor: int
    bits: int
    numbering: int = 0
    """Exact mode: which numbering of links the bits refer to; 0 for Bloom filters."""

    @classmethod
    def bloom(cls, size: int, table: int, bits: int) -> ZFilter:
        """A Bloom filter of one of the sizes with a place in the header."""
        if not 0 <= table < MOST_TABLES:
            raise ValueError(f"there is no table {table}")
        return cls(SIZES.index(size) << 3 | table, bits)

    @classmethod
    def exact(cls, numbering: int, bits: int) -> ZFilter:
        """One bit for each link; as long as the highest number needs."""
        length = max(1, -(-bits.bit_length() // 64))
        if length > 63:
            raise ValueError(f"an exact filter has at most {MOST_EXACT_BITS} bits")
        return cls(Mode.EXACT << 6 | length, bits, numbering)

    @property
    def mode(self) -> Mode:
        return Mode(self.descriptor >> 6)

    @property
    def table(self) -> int:
        """Which tag of each link a Bloom filter is made of."""
        return self.descriptor & 7

    @property
    def length(self) -> int:
        """Bytes in the header."""
        return descriptor_length(self.descriptor)

    def to_bytes(self) -> bytes:
        """The filter itself, without descriptor and numbering."""
        return self.bits.to_bytes(self.length, "little")


def descriptor_length(descriptor: int) -> int:
    """Bytes of the filter a descriptor announces; 0 for a descriptor that means nothing."""
    if descriptor < 1 << 6:
        code = descriptor >> 3
        return SIZES[code] // 8 if code < len(SIZES) else 0
    if descriptor < 1 << 7:
        return 8 * (descriptor & 63)
    return 0


def combine(tags: Iterable[int]) -> int:
    """The filter that contains all these tags."""
    bits = 0
    for tag in tags:
        bits |= tag
    return bits


def fill(m: int, k: int, tags: int) -> float:
    """The share of bits that is set, on average, in a filter of that many tags."""
    return float(1 - (1 - 1 / m) ** (k * tags))


def false_positive_rate(m: int, k: int, tags: int) -> float:
    """How often the filter of that many tags contains the tag of another link.

    As it is usually computed; since the bits of a tag differ, short filters do a little better.
    """
    return fill(m, k, tags) ** k
