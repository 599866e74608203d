"""The topology manager's choice: what every choice must be, and which candidate wins when."""

from __future__ import annotations

from random import Random

import pytest

from psirp_sim.topology.choice import Choice, NoFilter, Settings, choose
from psirp_sim.topology.graph import DeliveryTree, Graph
from psirp_sim.topology.spread import TaggedGraph
from psirp_sim.zfilters import SIZES, Mode, Scheme
from tests.psirp_sim.topology.graphs import line, link, random_delivery, random_graph

SEED = b"seed"


def tagged(graph, **scheme):
    return TaggedGraph(graph, SEED, Scheme(**scheme))


def recount(graph, choice, settings):
    total = 0
    for zfilter, part in zip(choice.filters, choice.parts, strict=True):
        spread = graph.spread(zfilter, part.tree)
        copies = spread.transmissions + spread.false_deliveries
        total += copies * (settings.packet_bytes - 32 + zfilter.length)
        assert not spread.unreached
    return total


def plain_cost(graph, tree):
    """Of the best filter of 256 bits."""
    try:
        return choose(graph, tree, Settings(exact=False, sizes=(256,), most_parts=1)).bytes
    except NoFilter:
        return float("inf")


CASES = [
    Settings(),
    Settings(exact=False),
    Settings(exact=False, table="fpa"),
    Settings(exact=False, sizes=(256,)),
    Settings(exact=False, sizes=(512, 2048), most_parts=3),
    Settings(packet_bytes=200),
]


@pytest.mark.parametrize("settings", CASES)
@pytest.mark.parametrize("seed", range(8))
def test_every_choice_reaches_everybody_and_costs_what_it_says(seed, settings):
    random = Random(seed)
    graph = tagged(random_graph(80, 200, random))
    for receivers in (1, 5, 15, 40):
        tree = random_delivery(graph.graph, receivers, random)
        choice = choose(graph, tree, settings)
        assert choice.bytes == recount(graph, choice, settings)
        reached = [node for part in choice.parts for node in part.tree.receivers]
        assert sorted(reached) == sorted(tree.receivers)
        assert len(choice.parts) <= settings.most_parts
        for zfilter in choice.filters:
            if zfilter.mode is Mode.EXACT:
                assert settings.exact
                assert len(choice.parts) == 1
            else:
                assert zfilter.length * 8 in settings.sizes
                assert zfilter.bits.bit_count() * 2 <= zfilter.length * 8
        if settings.table == "fpr" and 256 in settings.sizes and settings.packet_bytes == 1_400:
            assert choice.bytes <= plain_cost(graph, tree)


@pytest.mark.parametrize("seed", range(8))
def test_more_freedom_never_costs_more(seed):
    random = Random(seed)
    graph = tagged(random_graph(80, 200, random))
    tree = random_delivery(graph.graph, 25, random)
    costs = [
        choose(graph, tree, settings).bytes
        for settings in (
            Settings(),
            Settings(exact=False),
            Settings(exact=False, most_parts=1),
            Settings(exact=False, most_parts=1, sizes=(1024, 2048)),
        )
    ]
    assert costs == sorted(costs)
    assert costs[0] <= choose(graph, tree, Settings(sizes=())).bytes


def test_one_short_filter_is_enough_where_it_makes_no_false_copies():
    graph = tagged(random_graph(80, 200, Random(1)))
    tree = random_delivery(graph.graph, 3, Random(2))
    choice = choose(graph, tree, Settings(exact=False))
    assert [zfilter.length for zfilter in choice.filters] == [32]
    assert choice.bytes == 1_400 * len(tree.links)
    assert choice.why == "Bloom filter of 256 bits: 0 false copies, 0 links repeated"


def test_the_table_is_the_least_full_or_the_one_with_the_fewest_false_copies():
    random = Random(3)
    graph = tagged(random_graph(80, 200, random))
    differ = 0
    for _ in range(10):
        tree = random_delivery(graph.graph, 14, random)
        single = {"exact": False, "most_parts": 1, "sizes": (512,)}
        (fpa,) = choose(graph, tree, Settings(table="fpa", **single)).filters
        (fpr,) = choose(graph, tree, Settings(table="fpr", **single)).filters
        by_table = graph.combined(tree, 512)
        assert fpa.bits.bit_count() == min(bits.bit_count() for bits in by_table)
        copies = []
        for table, bits in enumerate(by_table):
            spread = graph.follow(graph.bloom(512, table), bits, tree)
            copies.append(spread.transmissions + spread.false_deliveries)
        assert copies[fpr.table] == min(copies)
        differ += fpa.table != fpr.table
    assert differ


def test_a_large_tree_is_split_when_exact_filters_are_off():
    random = Random(4)
    graph = tagged(random_graph(80, 200, random))
    tree = random_delivery(graph.graph, 60, random)
    choice = choose(graph, tree, Settings(exact=False, sizes=(256,)))
    assert len(choice.parts) > 3
    assert choice.why.startswith("Bloom filter of 256 + 256")
    assert choose(graph, tree).why == "exact filter of 40 bytes"


def test_a_tie_goes_to_bloom():
    """A domain of 193 to 256 bits has exact filters as long as the shortest Bloom filter."""
    graph = tagged(random_graph(80, 150, Random(1)))
    tree = graph.graph.delivery("n000", ["n078", "n079"])
    assert graph.numbering.filter(tree).length == 32
    (zfilter,) = choose(graph, tree).filters
    assert zfilter.mode is Mode.BLOOM
    (zfilter,) = choose(tagged(line(5)), line(5).delivery("n000", ["n003"])).filters
    assert (zfilter.mode, zfilter.length) == (Mode.EXACT, 8)


def test_a_scheme_says_which_size_is_the_smallest():
    graph = tagged(line(9), m=1024)
    (zfilter,) = choose(
        graph, graph.graph.delivery("n000", ["n008"]), Settings(exact=False)
    ).filters
    assert zfilter.length == 128


def test_nobody_to_reach_and_nobody_else_to_reach():
    graph = tagged(line(3))
    assert choose(graph, DeliveryTree("n000", (), ())) == Choice((), "nobody to reach")
    choice = choose(graph, graph.graph.delivery("n000", ["n000"]))
    assert (len(choice.filters), choice.bytes) == (1, 0)


def test_what_cannot_be_reached_is_said():
    graph = tagged(line(40))
    assert choose(graph, graph.graph.delivery("n000", ["n032"]))
    tree = graph.graph.delivery("n000", ["n010", "n033"])
    for settings in (Settings(), Settings(exact=False)):
        with pytest.raises(NoFilter, match="n033 is 33 links away from n000"):
            choose(graph, tree, settings)


def test_too_few_filters_for_too_many_receivers_are_said():
    star = Graph(
        ["hub", *(f"n{number}" for number in range(400))],
        [edge for number in range(400) for edge in link("hub", f"n{number}")],
    )
    graph, tree = tagged(star), star.delivery("hub", [f"n{number}" for number in range(400)])
    with pytest.raises(NoFilter, match="400 receivers need more than 2 filters"):
        choose(graph, tree, Settings(exact=False, most_parts=2))
    assert len(choose(graph, tree, Settings(exact=False, most_parts=20)).filters) > 2


def test_sizes_are_those_of_the_header():
    assert Settings().sizes == SIZES
