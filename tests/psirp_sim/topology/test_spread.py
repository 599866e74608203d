"""Following a packet: the count must be what real forwarding tables do, node by node."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from random import Random

import pytest

from psirp_sim.forwarding.table import DROPS, Count, ForwardingCounters, compile_table
from psirp_sim.runtime.driver import LinkDriver
from psirp_sim.topology.graph import DeliveryTree, Edge
from psirp_sim.topology.spread import Guards, TaggedGraph
from psirp_sim.wire.data import HOP_LIMIT, DataPacket
from psirp_sim.zfilters import Scheme, ZFilter
from tests.psirp_sim.topology.graphs import line, random_delivery, random_graph

SEED = b"seed"
SCHEME = Scheme()


@dataclass
class Wire:
    """One direction of a link: what is sent arrives in the order in which it was sent."""

    edge: Edge
    under_way: deque

    def send(self, packet):
        self.under_way.append((self.edge, packet))
        return True


class Network:
    """Real tables and link drivers, and links that are all equally fast."""

    def __init__(self, graph, numbering):
        numberings = {} if numbering is None else {numbering.number: numbering.bits}
        self.under_way = deque()
        self.wires = {
            node: {edge.name: Wire(edge, self.under_way) for edge in edges}
            for node, edges in graph.out.items()
        }
        self.tables = {
            node: compile_table(node, list(wires), SEED, SCHEME, numberings)
            for node, wires in self.wires.items()
        }

    def driver(self, node, counters):
        driver = LinkDriver(self.wires[node])
        driver.install(self.tables[node], counters)
        return driver

    def send(self, source, packet, *, remember=True):
        """Where the copies went, who got how many, and what was dropped."""
        counters = ForwardingCounters()
        drivers = {node: self.driver(node, counters) for node in self.wires}
        crossed, deliveries = Counter(), Counter()
        deliveries[source] += drivers[source].inject(packet)
        while self.under_way:
            edge, packet = self.under_way.popleft()
            crossed[edge] += 1
            # A new driver has seen nothing yet.
            driver = drivers[edge.receiver] if remember else self.driver(edge.receiver, counters)
            deliveries[edge.receiver] += driver.arrived(edge.reverse, packet)
        assert counters.values[Count.FORWARDED] == crossed.total()
        return crossed, +deliveries, {drop: counters.values[drop] for drop in DROPS}


def assert_same(spread, tree, sent):
    crossed, deliveries, drops = sent
    assert spread.transmissions == crossed.total()
    assert spread.true == len(set(tree.links) & set(crossed))
    assert spread.false == crossed.total() - spread.true
    assert spread.deliveries == deliveries
    assert spread.unreached == set(tree.receivers) - set(deliveries)
    wanted = sum(node in deliveries for node in tree.receivers)
    assert spread.false_deliveries == deliveries.total() - wanted
    assert {drop: spread.drops.get(drop, 0) for drop in DROPS} == drops


def bloom_filters(graph, tree, size):
    return [
        ZFilter.bloom(size, table, bits) for table, bits in enumerate(graph.combined(tree, size))
    ]


@pytest.mark.parametrize("seed", range(30))
def test_a_packet_goes_where_real_tables_send_it(seed):
    random = Random(seed)
    plain = random_graph(random.randint(5, 60), random.randint(60, 150), random)
    graph = TaggedGraph(plain, SEED, SCHEME)
    network = Network(plain, graph.numbering)
    tree = random_delivery(plain, random.randint(1, min(20, len(plain.out) - 1)), random)
    exact = [graph.numbering.filter(tree)]
    for zfilter in exact + [f for size in (256, 512) for f in bloom_filters(graph, tree, size)]:
        packet = DataPacket(zfilter, bytes(8), b"").encode()
        assert_same(graph.spread(zfilter, tree), tree, network.send(tree.source, packet))


def test_the_cases_above_include_false_copies_of_every_kind():
    """Otherwise the agreement would mean little."""
    random = Random(1)
    plain = random_graph(60, 150, random)
    graph = TaggedGraph(plain, SEED, SCHEME)
    drops = Counter()
    false_deliveries = 0
    for _ in range(20):
        tree = random_delivery(plain, 14, random)
        for zfilter in bloom_filters(graph, tree, 256):
            spread = graph.spread(zfilter, tree)
            drops.update(spread.drops)
            false_deliveries += spread.false_deliveries
    assert set(drops) == {Count.NOWHERE, Count.LOOP, Count.FULL}
    assert false_deliveries > 0


@pytest.mark.parametrize("seed", range(15))
def test_without_the_loop_cache_every_copy_is_followed_to_its_end(seed):
    random = Random(seed)
    plain = random_graph(30, 90, random)
    graph = TaggedGraph(plain, SEED, SCHEME)
    network = Network(plain, None)
    guards = Guards(hop_limit=7, loop=False)
    for size in (256, 512):
        tree = random_delivery(plain, size // 20, random)
        for zfilter in bloom_filters(graph, tree, size):
            packet = DataPacket(zfilter, bytes(8), b"", hop_limit=7).encode()
            sent = network.send(tree.source, packet, remember=False)
            assert_same(graph.spread(zfilter, tree, guards), tree, sent)


def test_without_guards_copies_breed_until_the_hop_limit():
    random = Random(5)
    graph = TaggedGraph(random_graph(30, 90, random), SEED, SCHEME)
    tree = random_delivery(graph.graph, 5, random)
    everywhere = ZFilter.bloom(256, 0, (1 << 256) - 1)
    assert graph.spread(everywhere, tree).drops == {Count.FULL: 1}
    guarded = graph.spread(everywhere, tree, Guards(fill=False))
    assert guarded.transmissions <= len(graph.edges)
    assert set(guarded.deliveries) == set(graph.nodes)
    unguarded = graph.spread(everywhere, tree, Guards(fill=False, loop=False))
    assert unguarded.transmissions > 10**15
    assert unguarded.drops[Count.HOP_LIMIT] > unguarded.transmissions // 2


def test_following_can_be_given_up():
    random = Random(5)
    graph = TaggedGraph(random_graph(30, 90, random), SEED, SCHEME)
    tree = random_delivery(graph.graph, 5, random)
    tags, bits = graph.bloom(256, 0), (1 << 256) - 1
    guards = Guards(fill=False, loop=False)
    assert 500 < graph.follow(tags, bits, tree, guards, give_up=500).transmissions < 50_000


def test_a_packet_gets_as_far_as_its_hop_limit():
    graph = TaggedGraph(line(40), SEED, SCHEME)
    for reached, hops in [(True, HOP_LIMIT), (False, HOP_LIMIT + 1)]:
        tree = graph.graph.delivery("n000", [f"n{hops:03}"])
        zfilter = graph.numbering.filter(tree)
        spread = graph.spread(zfilter, tree)
        assert (not spread.unreached) is reached
        packet = DataPacket(zfilter, bytes(8), b"").encode()
        network = Network(graph.graph, graph.numbering)
        assert_same(spread, tree, network.send("n000", packet))


def test_a_tree_of_no_links_is_a_delivery_at_the_source():
    graph = TaggedGraph(line(3), SEED, SCHEME)
    tree = DeliveryTree("n001", ("n001",), ())
    for zfilter in [graph.numbering.filter(tree), *bloom_filters(graph, tree, 256)]:
        spread = graph.spread(zfilter, tree)
        assert (spread.transmissions, spread.deliveries) == (0, {"n001": 1})


def test_a_filter_by_another_numbering_goes_nowhere():
    graph, other = (TaggedGraph(line(nodes), SEED, SCHEME) for nodes in (3, 4))
    tree = graph.graph.delivery("n000", ["n002"])
    zfilter = other.numbering.filter(tree)
    packet = DataPacket(zfilter, bytes(8), b"").encode()
    sent = Network(graph.graph, graph.numbering).send("n000", packet)
    assert_same(graph.spread(zfilter, tree), tree, sent)
    assert sent[2][Count.NUMBERING] == 1
