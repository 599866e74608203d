"""The filters of a tree: the topology manager's choice, by bytes on the wire.

A longer filter makes every copy of a packet longer, a fuller one makes more copies, splitting the
tree repeats the links its parts share, and an exact filter needs a bit for every link of the
domain. So the candidates are compared by the bytes of all copies, false ones included; a false
delivery counts like a copy.

    one Bloom filter     of each size, with the best of its tables
    several              the tree cut up (`splitting`), each part with the filter that suits it
    an exact filter      where it is allowed and the domain small enough

A candidate must reach every receiver past all guards. Longer ones are tried only while they can
still win, and followed only until they cannot. Bloom filters win a tie, a single one first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from psirp_sim.topology.graph import DeliveryTree
from psirp_sim.topology.splitting import Expectation, split
from psirp_sim.topology.spread import Spread, TaggedGraph
from psirp_sim.wire.data import HOP_LIMIT
from psirp_sim.zfilters import SIZES, Mode, ZFilter


@dataclass(frozen=True, slots=True)
class Settings:
    """What the manager may use."""

    exact: bool = True
    sizes: tuple[int, ...] = SIZES
    """Bits of Bloom filters, ascending; those below the m of the scheme are left out. None of
    them: exact filters only."""
    most_parts: int = 16
    """Filters of one tree: a publisher sends every packet that often."""
    table: Literal["fpr", "fpa"] = "fpr"
    """The table with the fewest false copies, or the one with the least full filter."""
    packet_bytes: int = 1_400
    """A packet with a filter of 32 bytes."""

    def per_copy(self, filter_bytes: int) -> int:
        """Bytes of a packet with a filter of that length."""
        return self.packet_bytes - 32 + filter_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One filter, the part of the tree it stands for, and what becomes of a packet with it."""

    zfilter: ZFilter
    tree: DeliveryTree
    spread: Spread
    bytes: int
    """Of all copies and false deliveries."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The filters of a tree: a packet is sent once with each."""

    parts: tuple[Part, ...]
    why: str

    @property
    def filters(self) -> list[ZFilter]:
        return [part.zfilter for part in self.parts]

    @property
    def bytes(self) -> int:
        """What sending one packet to all receivers is expected to cost."""
        return _bytes(self.parts)


class NoFilter(Exception):
    """There is no filter that reaches all receivers."""


DEFAULT = Settings()


def choose(graph: TaggedGraph, tree: DeliveryTree, settings: Settings = DEFAULT) -> Choice:
    """The cheapest filters for a tree; none for a tree without receivers."""
    if not tree.receivers:
        return Choice((), "nobody to reach")
    search = _Search(graph, settings)
    exact = search.exact(tree)
    parts = search.bloom(tree, _bytes(exact) if exact else inf) or exact
    if not parts:
        raise NoFilter(_obstacle(tree, settings))
    return Choice(tuple(parts), _why(tree, parts))


class _Search:
    """The candidates. Each method gives the best of its kind that does not cost more than
    `most_bytes`, or nothing."""

    def __init__(self, graph: TaggedGraph, settings: Settings) -> None:
        self.graph = graph
        self.settings = settings
        self.sizes = [size for size in settings.sizes if size >= graph.scheme.m]

    def exact(self, tree: DeliveryTree) -> list[Part]:
        numbering = self.graph.numbering if self.settings.exact else None
        return [] if numbering is None else self._counted(tree, numbering.filter(tree), inf)

    def bloom(self, tree: DeliveryTree, most_bytes: float) -> list[Part]:
        single = self._single(tree, most_bytes)
        if single and _bytes(single) == self._least(tree):
            return single
        return self._several(tree, _bytes(single) - 1 if single else most_bytes) or single

    def _single(self, tree: DeliveryTree, most_bytes: float) -> list[Part]:
        best: list[Part] = []
        for size in self.sizes:
            least = len(tree.links) * self.settings.per_copy(size // 8)
            by_table = self.graph.combined(tree, size) if least <= most_bytes else []
            tables = sorted(range(len(by_table)), key=lambda table: by_table[table].bit_count())
            for table in tables if self.settings.table == "fpr" else tables[:1]:
                zfilter = ZFilter.bloom(size, table, by_table[table])
                counted = self._counted(tree, zfilter, most_bytes)
                if counted:
                    best, most_bytes = counted, _bytes(counted) - 1
                if least > most_bytes:
                    break
        return best

    def _several(self, tree: DeliveryTree, most_bytes: float) -> list[Part]:
        scheme, settings = self.graph.scheme, self.settings
        if settings.most_parts < 2 or not self.sizes:
            return []
        expectation = Expectation(
            scheme,
            {size: settings.per_copy(size // 8) for size in self.sizes},
            tables=scheme.d if settings.table == "fpr" else 1,
        )
        groups, expected = split(self.graph.graph, tree, expectation, settings.most_parts)
        if len(groups) < 2 or expected > most_bytes:
            return []
        trees = [self.graph.graph.delivery(tree.source, receivers) for receivers in groups]
        spare = most_bytes - sum(map(self._least, trees))
        parts: list[Part] = []
        for each in trees:
            single = self._single(each, self._least(each) + spare)
            if not single:
                return []
            spare -= _bytes(single) - self._least(each)
            parts += single
        return parts

    def _least(self, tree: DeliveryTree) -> int:
        """What the tree costs with the shortest filter and no false copies."""
        return len(tree.links) * self.settings.per_copy(self.sizes[0] // 8)

    def _counted(self, tree: DeliveryTree, zfilter: ZFilter, most_bytes: float) -> list[Part]:
        per_copy = self.settings.per_copy(zfilter.length)
        give_up = None if most_bytes == inf else int(most_bytes // per_copy)
        spread = self.graph.spread(zfilter, tree, give_up=give_up)
        cost = (spread.transmissions + spread.false_deliveries) * per_copy
        if spread.unreached or cost > most_bytes:
            return []
        return [Part(zfilter, tree, spread, cost)]


def _bytes(parts: Iterable[Part]) -> int:
    return sum(part.bytes for part in parts)


def _why(tree: DeliveryTree, parts: list[Part]) -> str:
    if parts[0].zfilter.mode is Mode.EXACT:
        return f"exact filter of {parts[0].zfilter.length} bytes"
    bits = " + ".join(str(part.zfilter.length * 8) for part in parts)
    false = sum(part.spread.false + part.spread.false_deliveries for part in parts)
    repeated = sum(len(part.tree.links) for part in parts) - len(tree.links)
    return f"Bloom filter of {bits} bits: {false} false copies, {repeated} links repeated"


def _obstacle(tree: DeliveryTree, settings: Settings) -> str:
    above = {edge.receiver: edge.sender for edge in tree.links}
    for receiver in tree.receivers:
        hops, node = 0, receiver
        while node != tree.source:
            hops, node = hops + 1, above[node]
        if hops > HOP_LIMIT:
            return (
                f"{receiver} is {hops} links away from {tree.source}, and packets go no further "
                f"than {HOP_LIMIT}"
            )
    return f"{len(tree.receivers)} receivers need more than {settings.most_parts} filters"
