"""Numberings: nodes with the same picture of the fabric agree on every bit."""

from __future__ import annotations

from random import Random

import pytest

from psirp_sim.topology.graph import Edge, Graph
from psirp_sim.topology.numbering import Numbering
from psirp_sim.topology.spread import TaggedGraph
from psirp_sim.zfilters import Mode, Scheme
from tests.psirp_sim.topology.graphs import line, link, random_delivery, random_graph


def test_each_link_and_each_delivery_has_a_bit_of_its_own():
    graph = random_graph(30, 70, Random(1))
    numbering = Numbering.of(graph)
    assert 0 < numbering.number < 1 << 32
    for edge in graph.edges:
        assert numbering.bits[edge.sender, edge.name] == numbering.bits[edge.back]
    assert sorted(set(numbering.bits.values())) == list(range(70 + 30))
    assert len({numbering.bits[node] for node in graph.out}) == 30


def test_nodes_agree_whatever_the_order_and_cost_of_their_links():
    graph = random_graph(20, 40, Random(2))
    edges = [Edge(e.sender, e.name, e.receiver, e.reverse, cost=7) for e in graph.edges]
    Random(3).shuffle(edges)
    assert Numbering.of(Graph(sorted(graph.out, reverse=True), edges)) == Numbering.of(graph)


def test_the_name_is_that_of_every_other_node():
    graph = Graph(["a", "b", "ü"], [*link("a", "b"), *link("b", "ü")])
    numbering = Numbering.of(graph)
    assert numbering.number == 3763604396
    assert numbering.bits == {
        ("a", "b.0"): 0,
        ("b", "a.0"): 0,
        ("b", "ü.0"): 1,
        ("ü", "b.0"): 1,
        "a": 2,
        "b": 3,
        "ü": 4,
    }


def test_another_fabric_has_another_name():
    fabrics = [line(3), line(4), Graph(["n000", "n001"], link("n000", "n001")), Graph("ab", [])]
    assert len({Numbering.of(graph).number for graph in fabrics}) == len(fabrics)


def test_a_domain_may_be_too_large():
    assert max(Numbering.of(line(2016)).bits.values()) == 4030
    assert Numbering.of(line(2017)) is None


@pytest.mark.parametrize("seed", range(20))
def test_an_exact_filter_makes_no_false_copies(seed):
    random = Random(seed)
    graph = TaggedGraph(random_graph(40, 90, random), b"", Scheme())
    tree = random_delivery(graph.graph, random.randint(1, 39), random)
    zfilter = graph.numbering.filter(tree)
    assert zfilter.mode is Mode.EXACT
    assert zfilter.numbering == graph.numbering.number
    spread = graph.spread(zfilter, tree)
    assert spread.transmissions == len(tree.links)
    assert spread.deliveries == dict.fromkeys(tree.receivers, 1)
