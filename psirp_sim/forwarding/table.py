"""What a node does with a data packet: the compiled table, the guards, the counters.

A link driver hands every data packet to `ForwardingTable.decide`, in this order of checks; the
first that fails names the drop:

    SHORT      the header is cut off
    VERSION    not our version of the header
    HOP_LIMIT  the packet has used up its hops: it arrived with a limit of 0
    SIZE       the descriptor means nothing here, or the packet ends within its filter
    NUMBERING  an exact filter by a numbering of links this node does not know (any more)
    FULL       more than half of the bits of a Bloom filter are set: it would go everywhere
    LOOP       this packet has been here before
    NOWHERE    no link and no delivery matches: a false copy that ends here

A packet never goes back over the link it came by. A copy that is sent on has its hop limit
lowered by one; nothing else in a packet ever changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache, partial

from psirp_sim.wire.data import HEADER, VERSION, Kind
from psirp_sim.zfilters import SIZES, Scheme, descriptor_length, link_id, link_tags, local_id

HERE = -1
"""The arriving link of a packet that was sent from this node itself."""
REMEMBERED = 8_192
"""Packets each of the two generations of the loop cache holds."""
FILTERS_KEPT = 1_024
"""Filters of which a table remembers where they lead."""


class Count(IntEnum):
    """The counters of a forwarding node; drops first, in the order of their checks."""

    SHORT = 0
    VERSION = 1
    HOP_LIMIT = 2
    SIZE = 3
    NUMBERING = 4
    FULL = 5
    LOOP = 6
    NOWHERE = 7
    RECEIVED = 8
    """Data packets that arrived over a link."""
    FORWARDED = 9
    """Copies sent on."""
    DELIVERED = 10
    """Packets handed to this node itself."""
    REFUSED = 11
    """Copies a link did not take: its queue was full, or the packet too large."""


Decision = tuple[tuple[int, ...], bool]
"""Copies to send, by index of the link, and whether the packet is for this node too."""
DROPS = tuple(Count(number) for number in range(8))

# Made once, because a driver looks at every packet.
_FILTER_END = tuple(HEADER + descriptor_length(descriptor) for descriptor in range(256))
_SENT_ON = tuple(bytes((VERSION, Kind.DATA, max(0, hops - 1))) for hops in range(256))


class ForwardingCounters:
    """Shared by the core and its link driver; a C driver writes into the same memory."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = array("Q", bytes(8 * len(Count)))

    def as_dict(self) -> dict[str, int]:
        return {count.name.lower(): self.values[count] for count in Count}


class LoopCache:
    """The ids of the packets seen last: two generations, so that forgetting costs nothing."""

    __slots__ = ("_new", "_old", "_room")

    def __init__(self, room: int = REMEMBERED) -> None:
        self._room = room
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()

    def seen(self, packet_id: bytes) -> bool:
        """Whether the id was seen before; it has been from now on."""
        if packet_id in self._new or packet_id in self._old:
            return True
        self._new.add(packet_id)
        if len(self._new) >= self._room:
            self._old, self._new = self._new, set()
        return False


@dataclass(frozen=True, slots=True)
class Row:
    """What one descriptor, or one numbering, means at this node."""

    tags: tuple[tuple[int, int], ...]
    """Tag and index of each link."""
    local: int
    """The tag of the node's own delivery; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class ForwardingTable:
    """Immutable: a change of the links makes a new one."""

    links: tuple[str, ...] = ()
    """The names of the links, by index."""
    bloom: Mapping[int, Row] = field(default_factory=dict)
    """By descriptor."""
    exact: Mapping[int, Row] = field(default_factory=dict)
    """By numbering."""
    _match: Callable[[int, bytes], Decision | Count] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The packets of a stream have the same filter: it need not be matched for each of them.
        match = lru_cache(FILTERS_KEPT)(partial(_match, self.bloom, self.exact))
        object.__setattr__(self, "_match", match)

    def decide(self, packet: bytes, arrived: int, cache: LoopCache) -> Decision | Count:
        """What to do with a data packet; the drop's name when nothing is to be done."""
        if len(packet) < HEADER:
            return Count.SHORT
        if packet[0] != VERSION:
            return Count.VERSION
        if packet[2] == 0:
            return Count.HOP_LIMIT
        descriptor = packet[3]
        end = _FILTER_END[descriptor]
        if end == HEADER or end > len(packet):
            return Count.SIZE
        matched = self._match(descriptor, packet[12:end])
        if not isinstance(matched, tuple):
            return matched
        if cache.seen(packet[4:12]):
            return Count.LOOP
        out, local = matched
        if arrived in out:
            out = tuple(link for link in out if link != arrived)
            matched = out, local
        return matched if out or local else Count.NOWHERE

    def leads(self, packet: bytes) -> Decision:
        """Where the filter of a packet leads that was decided about before, whatever its way."""
        matched = self._match(packet[3], packet[12 : _FILTER_END[packet[3]]])
        return matched if isinstance(matched, tuple) else ((), False)

    def index(self, link: str) -> int:
        """The index of a link; HERE for one the table does not have."""
        return self.links.index(link) if link in self.links else HERE


def _match(
    bloom: Mapping[int, Row], exact: Mapping[int, Row], descriptor: int, numbered: bytes
) -> Decision | Count:
    """Where a filter, given behind its numbering, leads: by whatever link the packet came."""
    bits = int.from_bytes(numbered[4:], "little")
    if descriptor < 64:
        row = bloom.get(descriptor)
        if row is None:
            return Count.SIZE
        if bits.bit_count() > (len(numbered) - 4) * 4:
            return Count.FULL
    else:
        row = exact.get(int.from_bytes(numbered[:4]))
        if row is None:
            return Count.NUMBERING
    out = tuple(link for tag, link in row.tags if bits & tag == tag)
    return out, row.local != 0 and bits & row.local == row.local


def sent_on(packet: bytes) -> bytes:
    """The copy of a data packet that goes to the next node."""
    return _SENT_ON[packet[2]] + packet[3:]


def compile_table(
    node: str,
    links: Sequence[str],
    seed: bytes,
    scheme: Scheme,
    numberings: Mapping[int, Mapping[tuple[str, str] | str, int]] | None = None,
) -> ForwardingTable:
    """The table of a node for the links that are up.

    `numberings` gives, for each numbering that is still valid, the bit of each link by (sender,
    name) and of each delivery by node.
    """
    bloom = {}
    for code, size in enumerate(SIZES):
        tags = [link_tags(link_id(seed, node, link), size, scheme.k, scheme.d) for link in links]
        local = link_tags(local_id(seed, node), size, scheme.k, scheme.d)
        for table in range(scheme.d):
            bloom[code << 3 | table] = Row(
                tuple((tag[table], index) for index, tag in enumerate(tags)), local[table]
            )
    exact = {}
    for numbering, bit_of in (numberings or {}).items():
        known = [
            (1 << bit_of[node, link], index)
            for index, link in enumerate(links)
            if (node, link) in bit_of
        ]
        local_bit = bit_of.get(node)
        exact[numbering] = Row(tuple(known), 1 << local_bit if local_bit is not None else 0)
    return ForwardingTable(tuple(links), bloom, exact)
