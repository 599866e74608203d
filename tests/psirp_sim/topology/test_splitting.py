"""Splitting: parts are runs of neighbours, and together the cheapest there are."""

from __future__ import annotations

from itertools import combinations, pairwise
from math import inf
from random import Random

import pytest

from psirp_sim.topology.splitting import Expectation, split
from psirp_sim.zfilters import SIZES, Scheme
from tests.psirp_sim.topology.graphs import line, random_delivery, random_graph

PER_COPY = {size: 1_368 + size // 8 for size in SIZES}
EXPECTATION = Expectation(Scheme(), PER_COPY, tables=8)


def cost_of(graph, source, receivers, expectation):
    """The slow way: from the tree itself."""
    tree = graph.delivery(source, receivers)
    nodes = {source, *(edge.receiver for edge in tree.links)}
    own = set(tree.links)
    beside = [
        edge
        for node in nodes
        for edge in graph.out[node]
        if edge not in own and not any(edge.back == (e.sender, e.name) for e in own)
    ]
    tests = len(beside) + len(nodes) - len(receivers)
    return expectation.cost(len(tree.links), len(receivers), tests)


@pytest.mark.parametrize("seed", range(10))
def test_no_other_cuts_of_the_same_order_are_cheaper(seed):
    random = Random(seed)
    graph = random_graph(60, 120, random)
    tree = random_delivery(graph, 9, random)
    # Small filters, so that nine receivers are too much for one.
    expectation = Expectation(Scheme(m=64), {64: 1_376, 128: 1_384}, tables=1)
    parts, expected = split(graph, tree, expectation, most=4)
    order = [node for part in parts for node in part]
    assert sorted(order) == sorted(tree.receivers)
    best = inf
    for count in range(4):
        for cuts in combinations(range(1, len(order)), count):
            runs = [order[a:b] for a, b in pairwise([0, *cuts, len(order)])]
            costs = [cost_of(graph, tree.source, run, expectation) for run in runs]
            best = min(best, sum(costs))
    assert expected == pytest.approx(best)


def test_neighbours_stay_together():
    """Two bushes at the ends of a long line belong to a part each."""
    graph = line(31)
    near, far = [f"n{n:03}" for n in range(9, 12)], [f"n{n:03}" for n in range(19, 22)]
    tree = graph.delivery("n015", near[1:] + far + near[:1])
    # Each bush is 9 tags, and 14 are too much for a filter of 100 bits.
    expectation = Expectation(Scheme(m=100), {100: 1_400}, tables=8)
    parts, expected = split(graph, tree, expectation, most=6)
    assert {frozenset(part) for part in parts} == {frozenset(near), frozenset(far)}
    assert expected == pytest.approx(12 * 1_400, rel=0.01)


def test_a_small_tree_stays_whole():
    graph = random_graph(40, 80, Random(1))
    tree = random_delivery(graph, 3, Random(2))
    parts, _ = split(graph, tree, EXPECTATION, most=16)
    assert [sorted(part) for part in parts] == [sorted(tree.receivers)]


def test_too_few_parts_are_no_parts():
    graph = line(20)
    tree = graph.delivery("n000", [f"n{number:03}" for number in range(1, 20)])
    expectation = Expectation(Scheme(m=64), {64: 1_376}, tables=8)
    assert split(graph, tree, expectation, most=1) == ([], inf)


def test_the_best_of_several_tables_has_fewer_false_copies_than_one():
    one, best = (Expectation(Scheme(), PER_COPY, tables=tables) for tables in (1, 8))
    for tests in (10, 100, 1_000):
        assert best.cost(20, 10, tests) < one.cost(20, 10, tests)
    assert best.cost(20, 10, 0) == 20 * 1_400
    assert one.cost(20, 10, 100) == pytest.approx(20 * 1_400, rel=0.1)
    assert best.cost(400, 10, 100) == inf
