"""A filter followed link by link is what the topology manager counts when it follows it."""

from __future__ import annotations

from random import Random

import pytest

from psirp_sim.topology.graph import Edge, Graph
from psirp_sim.topology.numbering import Numbering
from psirp_sim.topology.spread import TaggedGraph
from psirp_sim.zfilters import Scheme, ZFilter, combine
from psph.roles.fabric_tree import follow

SEED = b"seed"


def mesh(random, nodes=12, links=24):
    names = [f"n{number}" for number in range(nodes)]
    pairs = set()
    while len(pairs) < links:
        pairs.add(tuple(sorted(random.sample(names, 2))))
    edges = [Edge(a, b, b, a) for pair in sorted(pairs) for a, b in (pair, pair[::-1])]
    return Graph(names, edges)


@pytest.mark.parametrize("seed", range(30))
def test_the_links_are_those_that_copies_cross(seed):
    random = Random(seed)
    graph = mesh(random)
    # Few bits a tag, so that there are false copies.
    tagged = TaggedGraph(graph, SEED, Scheme(256, 1, 8))
    source, *others = random.sample(sorted(graph.reachable("n0")), 6)
    tree = graph.delivery(source, others)
    bits = tagged.combined(tree, 256)[3] | combine(1 << random.randrange(256) for _ in range(60))
    zfilter = ZFilter.bloom(256, 3, bits)
    crossed = follow(tagged, source, zfilter)
    spread = tagged.spread(zfilter, tree)
    assert set(tree.links) <= crossed
    # With its loop cache a node sends on once, so every transmission is another link.
    assert len(crossed) == spread.transmissions
    assert len(crossed - set(tree.links)) == spread.false


def test_exact_filters_lead_nowhere_else():
    graph = mesh(Random(1))
    tagged = TaggedGraph(graph, SEED, Scheme())
    source, *others = sorted(graph.reachable("n0"))[:4]
    tree = graph.delivery(source, others)
    numbering = Numbering.of(graph)
    bits = combine(1 << numbering.bits[edge.sender, edge.name] for edge in tree.links)
    assert follow(tagged, source, ZFilter.exact(numbering.number, bits)) == set(tree.links)
    assert follow(tagged, source, ZFilter.exact(numbering.number + 1, bits)) == set()


def test_a_node_that_is_not_there_sends_nothing():
    tagged = TaggedGraph(mesh(Random(1)), SEED, Scheme())
    assert follow(tagged, "nobody", ZFilter.bloom(256, 0, (1 << 100) - 1)) == set()
