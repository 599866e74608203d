"""Numbers for the links and deliveries of a domain: what the bits of an exact filter mean.

One bit stands for each undirected link (a packet never goes back, so on a tree its direction is
clear) and one for each node's own delivery. A numbering follows from the graph alone and its
name from its content: nodes with the same link state agree without talking, and a node that has
another picture of the fabric drops the packet instead of sending it astray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from blake3 import blake3

from psirp_sim.topology.graph import DeliveryTree, Graph
from psirp_sim.zfilters import MOST_EXACT_BITS, ZFilter, combine

NUMBERING = "psph 1 numbering"

Bits = Mapping[tuple[str, str] | str, int]
"""The bit of each link by sender and name, equal for both directions, and of each node."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """The bits of one state of the domain."""

    number: int
    """Its name in packet headers, 32 bits and never 0."""
    bits: Bits

    @classmethod
    def of(cls, graph: Graph) -> Numbering | None:
        """The numbering of a domain; None where it needs more bits than a header has room for."""
        links = [
            (edge.sender, edge.name, *edge.back)
            for edge in graph.edges
            if (edge.sender, edge.name) <= edge.back
        ]
        if len(links) + len(graph.out) > MOST_EXACT_BITS:
            return None
        bits: dict[tuple[str, str] | str, int] = {}
        for bit, (sender, name, receiver, reverse) in enumerate(links):
            bits[sender, name] = bits[receiver, reverse] = bit
        for bit, node in enumerate(graph.out, start=len(links)):
            bits[node] = bit
        content = msgspec.json.encode((links, list(graph.out)))
        digest = blake3(content, derive_key_context=NUMBERING).digest(length=4)
        return cls(int.from_bytes(digest) or 1, bits)

    def filter(self, tree: DeliveryTree) -> ZFilter:
        """The exact filter of a tree."""
        links = (1 << self.bits[edge.sender, edge.name] for edge in tree.links)
        deliveries = (1 << self.bits[node] for node in tree.receivers)
        return ZFilter.exact(self.number, combine(links) | combine(deliveries))
