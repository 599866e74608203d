"""How a packet spreads: a filter followed through the fabric, copy by copy.

A topology manager knows every tag, so it need not estimate the false copies of a filter: it
counts them. `TaggedGraph.follow` does at every node what `ForwardingTable.decide` does there and
what a link driver does with the decision. All links are taken to be equally fast, which matters
to the loop cache alone: it lets the first copy pass.

Without the loop cache false copies can breed until the hop limit ends them, too many to carry one
by one. Those that came over the same link in the same number of hops fare alike, so they are
carried as a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from psirp_sim.forwarding.table import Count, Row
from psirp_sim.topology.graph import DeliveryTree, Graph
from psirp_sim.topology.numbering import Bits, Numbering
from psirp_sim.wire.data import HOP_LIMIT
from psirp_sim.zfilters import Mode, Scheme, ZFilter, combine, link_id, link_tags, local_id

NO_LINK = -1


@dataclass(frozen=True, slots=True)
class Guards:
    """What a forwarding node checks besides never sending back; by default, as shipped."""

    hop_limit: int = HOP_LIMIT
    fill: bool = True
    """Drop filters of which more than half of the bits are set."""
    loop: bool = True
    """Drop what has been here before."""


SHIPPED = Guards()


@dataclass(frozen=True, slots=True)
class Spread:
    """What became of one packet."""

    transmissions: int
    """Copies on links."""
    true: int
    """Links of the tree that were crossed: the copies that were needed."""
    receivers: tuple[str, ...]
    """Who was meant."""
    deliveries: Mapping[str, int]
    """Copies handed to each node itself."""
    drops: Mapping[Count, int]

    @property
    def false(self) -> int:
        """Copies beside the tree, and further ones on it."""
        return self.transmissions - self.true

    @property
    def unreached(self) -> set[str]:
        """Receivers that got none."""
        return set(self.receivers).difference(self.deliveries)

    @property
    def false_deliveries(self) -> int:
        """Deliveries to others, and repeated ones."""
        needed = len(self.receivers) - len(self.unreached)
        return sum(self.deliveries.values()) - needed


class Tags(dict[int, Row]):
    """One tag of each link and delivery: the row of every node, made when it is first needed."""

    def __init__(
        self,
        graph: TaggedGraph,
        of_link: Callable[[str, str], int],
        of_delivery: Callable[[str], int],
        most_set: int | None = None,
    ) -> None:
        super().__init__()
        self._graph = graph
        self._of_link = of_link
        self._of_delivery = of_delivery
        self.most_set = most_set
        """Bits of a filter that the fill guard lets pass; None where it does not look."""

    def __missing__(self, index: int) -> Row:
        node = self._graph.nodes[index]
        links = [
            (self._of_link(node, edge.name), self._graph.edge_index[node, edge.name])
            for edge in self._graph.graph.out[node]
        ]
        row = self[index] = Row(tuple(links), self._of_delivery(node))
        return row


class TaggedGraph:
    """A graph whose links have their tags. Nodes and directed links go by their index here."""

    def __init__(self, graph: Graph, seed: bytes, scheme: Scheme) -> None:
        self.graph = graph
        self.scheme = scheme
        self.nodes = list(graph.out)
        self.edges = graph.edges
        self.node_index = {node: index for index, node in enumerate(self.nodes)}
        self.edge_index = {(edge.sender, edge.name): index for index, edge in enumerate(self.edges)}
        self._seed = seed
        self._heads = [self.node_index[edge.receiver] for edge in self.edges]
        self._backs = [self.edge_index[edge.back] for edge in self.edges]
        self._bloom: dict[tuple[int, int], Tags] = {}

    def bloom(self, m: int, table: int) -> Tags:
        """The tags of Bloom filters of m bits and that table."""
        if (m, table) not in self._bloom:
            self._bloom[m, table] = Tags(
                self,
                lambda sender, name: self._link_tags(m, sender, name)[table],
                lambda node: self._local_tags(m, node)[table],
                most_set=m // 2,
            )
        return self._bloom[m, table]

    @cached_property
    def numbering(self) -> Numbering | None:
        """The numbering of exact filters; None where the domain is too large for them."""
        return Numbering.of(self.graph)

    @cached_property
    def exact(self) -> Tags:
        """The tags of exact filters: one bit each."""
        bits: Bits = {} if self.numbering is None else self.numbering.bits
        return Tags(
            self, lambda sender, name: 1 << bits[sender, name], lambda node: 1 << bits[node]
        )

    def combined(self, tree: DeliveryTree, m: int) -> list[int]:
        """The bits of the tree's Bloom filter of m bits, by table."""
        tags = [self._link_tags(m, edge.sender, edge.name) for edge in tree.links]
        tags += [self._local_tags(m, node) for node in tree.receivers]
        return [combine(column) for column in zip(*tags, strict=True)]

    def spread(
        self,
        zfilter: ZFilter,
        tree: DeliveryTree,
        guards: Guards = SHIPPED,
        give_up: int | None = None,
    ) -> Spread:
        """Follow a packet with that filter; see `follow`."""
        if zfilter.mode is Mode.BLOOM:
            tags = self.bloom(zfilter.length * 8, zfilter.table)
        elif self.numbering is not None and zfilter.numbering == self.numbering.number:
            tags = self.exact
        else:
            return Spread(0, 0, tree.receivers, {}, {Count.NUMBERING: 1})
        return self.follow(tags, zfilter.bits, tree, guards, give_up)

    def follow(
        self,
        tags: Tags,
        bits: int,
        tree: DeliveryTree,
        guards: Guards = SHIPPED,
        give_up: int | None = None,
    ) -> Spread:
        """Follow a packet from the source of the tree, with a filter of those bits.

        Past `give_up` transmissions it is left to itself: whoever asks has heard enough.
        """
        drops: Counter[Count] = Counter()
        deliveries: Counter[int] = Counter()
        crossed: set[int] = set()
        transmissions = 0
        # What matches at the nodes the packet has been to; so it serves as their loop cache too.
        matching: dict[int, tuple[list[int], bool]] = {}
        here = [(self.node_index[tree.source], NO_LINK, 1)]
        if guards.fill and tags.most_set is not None and bits.bit_count() > tags.most_set:
            drops[Count.FULL] = 1
            here = []
        # The source sends its own packet with the limit as it is; every other node lowers it.
        for limit in chain((guards.hop_limit,), range(guards.hop_limit, -1, -1)):
            leaving: dict[int, int] = {}
            for node, back, copies in here:
                if limit == 0:
                    drops[Count.HOP_LIMIT] += copies
                    continue
                if node not in matching:
                    row = tags[node]
                    links = [link for tag, link in row.tags if bits & tag == tag]
                    matching[node] = links, bits & row.local == row.local
                elif guards.loop:
                    drops[Count.LOOP] += copies
                    continue
                links, local = matching[node]
                if local:
                    deliveries[node] += copies
                elif not links or links == [back]:
                    drops[Count.NOWHERE] += copies
                for link in links:
                    if link != back:
                        leaving[link] = leaving.get(link, 0) + copies
            crossed.update(leaving)
            transmissions += sum(leaving.values())
            if not leaving or (give_up is not None and transmissions > give_up):
                break
            here = [
                (self._heads[link], self._backs[link], copies) for link, copies in leaving.items()
            ]
        return Spread(
            transmissions,
            sum(self.edge_index[edge.sender, edge.name] in crossed for edge in tree.links),
            tree.receivers,
            {self.nodes[node]: copies for node, copies in deliveries.items()},
            drops,
        )

    def _link_tags(self, m: int, sender: str, name: str) -> tuple[int, ...]:
        return link_tags(link_id(self._seed, sender, name), m, self.scheme.k, self.scheme.d)

    def _local_tags(self, m: int, node: str) -> tuple[int, ...]:
        return link_tags(local_id(self._seed, node), m, self.scheme.k, self.scheme.d)
