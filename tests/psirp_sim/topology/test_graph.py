"""The graph: which links count, and shortest trees."""

from __future__ import annotations

from random import Random

import pytest

from psirp_sim.topology.graph import Edge, Graph, NoPath
from tests.psirp_sim.topology.graphs import line, link, random_graph


def hops(graph, source):
    found, ahead = {source: 0}, [source]
    for node in ahead:
        for edge in graph.out[node]:
            if edge.receiver not in found:
                found[edge.receiver] = found[node] + 1
                ahead.append(edge.receiver)
    return found


def test_a_link_counts_when_both_ends_report_it():
    both = link("a", "b")
    one_sided = [Edge("b", "c.0", "c", "b.0")]
    disagreeing = [Edge("a", "x", "c", "y"), Edge("c", "y", "a", "z")]
    unknown = link("c", "stranger")
    graph = Graph(["a", "b", "c"], both + one_sided + disagreeing + unknown)
    assert graph.edges == sorted(both)
    assert graph.reachable("a") == {"a", "b"}
    assert graph.reachable("stranger") == set()


@pytest.mark.parametrize("seed", range(10))
def test_a_tree_has_a_shortest_path_to_every_receiver_and_nothing_else(seed):
    random = Random(seed)
    graph = random_graph(40, 80, random)
    source, *receivers = random.sample(sorted(graph.out), 12)
    tree = graph.delivery(source, receivers + receivers[:2])
    assert tree.receivers == tuple(receivers)
    into = {edge.receiver: edge for edge in tree.links}
    assert len(into) == len(tree.links)
    needed = set()
    for receiver in receivers:
        way, node = 0, receiver
        while node != source:
            needed.add(into[node])
            way, node = way + 1, into[node].sender
        assert way == hops(graph, source)[receiver]
    assert needed == set(tree.links)


def test_the_order_in_which_links_are_reported_makes_no_difference():
    graph = random_graph(30, 60, Random(3))
    edges = graph.edges
    Random(4).shuffle(edges)
    other = Graph(sorted(graph.out, reverse=True), edges)
    assert other.edges == graph.edges
    assert other.tree("n000", graph.out) == graph.tree("n000", graph.out)


def test_cheap_links_are_preferred():
    dear = [Edge("a", "c", "c", "a", 10), Edge("c", "a", "a", "c", 10)]
    graph = Graph("abc", [*dear, *link("a", "b"), *link("b", "c")])
    assert [edge.receiver for edge in graph.tree("a", ["c"])] == ["c", "b"]


def test_what_cannot_be_reached_is_said():
    graph = Graph(["a", "b", "alone"], link("a", "b"))
    with pytest.raises(NoPath, match="no path from a to alone"):
        graph.tree("a", ["b", "alone"])
    with pytest.raises(NoPath, match="nobody is not in the fabric"):
        graph.tree("nobody", ["a"])
    assert line(3).delivery("n000", ["n000"]).links == ()
