"""Random graphs for the tests of this folder."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from psirp_sim.topology.graph import Edge, Graph


def link(one, other, number=0):
    """Both directions of a link; several between the same nodes have different numbers."""
    there, back = f"{other}.{number}", f"{one}.{number}"
    return [Edge(one, there, other, back), Edge(other, back, one, there)]


def random_graph(nodes, links, random: Random):
    """Connected, with parallel links now and then."""
    names = [f"n{number:03}" for number in range(nodes)]
    edges = []
    for number in range(1, nodes):
        edges += link(names[number], random.choice(names[:number]))
    for number in range(links - nodes + 1):
        edges += link(*random.sample(names, 2), number + 1)
    return Graph(names, edges)


def line(nodes):
    names = [f"n{number:03}" for number in range(nodes)]
    pairs = pairwise(names)
    return Graph(names, [edge for one, other in pairs for edge in link(one, other)])


def random_delivery(graph, receivers, random: Random):
    source, *others = random.sample(sorted(graph.out), receivers + 1)
    return graph.delivery(source, others)
