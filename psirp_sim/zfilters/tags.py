"""Link ids and their tags (LIPSIN): d patterns of m bits, k of them set, for each directed link.

Everything follows from the id of the link, so whoever knows the ids of the links of a tree can
make its filter, and two topology managers make filters that are equally valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import unpack

from blake3 import blake3

SIZES = (256, 512, 1024, 2048)
"""Filter sizes that have a place in the packet header, in bits."""
MOST_TABLES = 8

LINK_ID = "psph 1 link id"
LOCAL_ID = "psph 1 local id"
LINK_TAG = "psph 1 link tag"


@dataclass(frozen=True, slots=True)
class Scheme:
    """The parameters all nodes of a fabric share."""

    m: int = 256
    """Bits of the filter that is tried first."""
    k: int = 5
    """Bits set in a tag."""
    d: int = 8
    """Tags of a link, one in each table; the sender chooses the table."""

    def __post_init__(self) -> None:
        if not 1 <= self.d <= MOST_TABLES:
            raise ValueError(f"d lies between 1 and {MOST_TABLES}, not {self.d}")
        if not 1 <= self.k <= 32 or self.k * 4 > self.m:
            raise ValueError(f"k = {self.k} does not fit a filter of {self.m} bits")


@lru_cache(maxsize=1 << 15)
def link_id(seed: bytes, sender: str, link: str) -> bytes:
    """The id of the direction of a link that leads away from `sender`, who calls it `link`.

    A secret seed makes filters unguessable; a known one makes experiments repeatable.
    """
    return _derive(LINK_ID, seed, sender, link)


@lru_cache(maxsize=1 << 15)
def local_id(seed: bytes, node: str) -> bytes:
    """The id of a node's own delivery: one more link, that leads to nobody."""
    return _derive(LOCAL_ID, seed, node)


@lru_cache(maxsize=1 << 16)
def link_tags(identity: bytes, m: int, k: int, d: int) -> tuple[int, ...]:
    """The tags of a link for filters of m bits, by table; bit b of the filter is 1 << b."""
    stream = blake3(identity + m.to_bytes(4), derive_key_context=LINK_TAG)
    # Four times as many words as needed: only equal bits within a tag cost one more.
    words = iter(unpack(f"<{4 * k * d}Q", stream.digest(length=8 * 4 * k * d)))
    tags = []
    for _ in range(d):
        tag = 0
        while tag.bit_count() < k:
            tag |= 1 << next(words) % m
        tags.append(tag)
    return tuple(tags)


def _derive(context: str, seed: bytes, *names: str) -> bytes:
    # Lengths in front, so that ("ab", "c") and ("a", "bc") differ.
    parts = [seed, *(name.encode() for name in names)]
    data = b"".join(len(part).to_bytes(4) + part for part in parts)
    return blake3(data, derive_key_context=context).digest()
