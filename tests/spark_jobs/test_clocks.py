"""Clocks from probes: what is found out, how sure that is, and what cannot be known."""

from __future__ import annotations

import random

import pytest

from spark_jobs.clocks import SETTLED_NS, Exchange, solve
from tests.sizes import size

S = 1_000_000_000
MS = 1_000_000
START = 1_800_000_000 * S


class Clockworks:
    """Nodes with clocks that are known to be wrong, and links with jitter that is not the same
    both ways."""

    def __init__(self, seed, nodes=6, skew_ms=500, drift_ppm=50, jitter_ms=5.0, asymmetry_ms=0.0):
        self.rng = random.Random(seed)
        self.nodes = [f"n{number}" for number in range(nodes)]
        draw = self.rng.uniform
        self.skew = {node: draw(-skew_ms, skew_ms) * MS for node in self.nodes}
        self.drift = {node: draw(-drift_ppm, drift_ppm) * 1e-6 for node in self.nodes}
        pairs = {(n, self.rng.randrange(n)) for n in range(1, nodes)}
        more = (sorted(self.rng.sample(range(nodes), 2), reverse=True) for _ in range(nodes // 2))
        self.links = {}
        for one, other in sorted(pairs | {(a, b) for a, b in more}):
            base = draw(0.2, 20) * MS
            constant = draw(-1, 1) * min(asymmetry_ms * MS, base * 0.9)
            jitter = (draw(0.01, jitter_ms) * MS, draw(0.01, jitter_ms) * MS)
            self.links[self.nodes[one], self.nodes[other]] = (base, constant, jitter)

    def wall(self, node, elapsed):
        return round(START + elapsed + self.skew[node] + self.drift[node] * elapsed)

    def exchanges(self, seconds, every=5):
        found = []
        for (node, peer), (base, constant, jitter) in self.links.items():
            for number in range(int(seconds / every)):
                sent = number * every * S + self.rng.uniform(0, S)
                there = base + constant + self.rng.expovariate(1 / jitter[0])
                back = base - constant + self.rng.expovariate(1 / jitter[1])
                t1, t4 = self.wall(node, sent), self.wall(node, sent + there + MS + back)
                t2, t3 = self.wall(peer, sent + there), self.wall(peer, sent + there + MS)
                offset = ((t2 - t1) + (t3 - t4)) // 2
                found.append(Exchange(node, peer, t4, offset, (t4 - t1) - (t3 - t2)))
        return found

    def judge(self, clocks, seconds, samples=60):
        """For pairs of nodes and times: by how much the clocks are wrong after correction, and by
        how much they may be."""
        place = {clock.node: index for index, clock in enumerate(clocks.clocks)}
        for _ in range(samples):
            one, other = self.rng.sample(self.nodes, 2)
            elapsed = self.rng.uniform(0, seconds * S)
            walls = [self.wall(node, elapsed) for node in (one, other)]
            offsets = [
                clocks.offset_ns(node, wall) for node, wall in zip((one, other), walls, strict=True)
            ]
            wrong = abs((walls[0] - walls[1]) - (offsets[0] - offsets[1]))
            yield wrong, clocks.uncertainties_ns[place[one]][place[other]]


@pytest.mark.parametrize("seconds", [20, 600, 7200])
def test_the_truth_is_within_what_is_stated(seconds):
    inside = total = 0
    for seed in range(size(4, 12)):
        world = Clockworks(seed)
        clocks = solve(world.exchanges(seconds, every=5 if seconds < 1_000 else 20))
        for wrong, stated in world.judge(clocks, seconds):
            inside += wrong <= stated
            total += 1
    assert inside / total >= 0.95


def test_no_more_is_stated_than_half_the_least_round_trip_and_a_bit():
    world = Clockworks(3)
    exchanges = world.exchanges(600)
    clocks = solve(exchanges)
    place = {clock.node: index for index, clock in enumerate(clocks.clocks)}
    for node, peer in world.links:
        least = min(e.round_trip for e in exchanges if {e.node, e.peer} == {node, peer})
        assert clocks.uncertainties_ns[place[node]][place[peer]] <= least / 2 + SETTLED_NS
    assert SETTLED_NS == MS / 10


def test_with_a_path_that_is_always_longer_one_way_the_truth_is_still_within():
    world = Clockworks(5, asymmetry_ms=30, jitter_ms=0.1)
    judged = list(world.judge(solve(world.exchanges(600)), 600))
    assert max(wrong for wrong, _ in judged) > SETTLED_NS, "nobody can see that"
    assert sum(wrong <= stated for wrong, stated in judged) >= 0.95 * len(judged)


def test_drift_is_found():
    world = Clockworks(7, jitter_ms=0.5)
    clocks = solve(world.exchanges(3600, every=10))
    for clock in clocks.clocks:
        relative = (world.drift[clock.node] - world.drift[clock.reference]) * 1e6
        assert clock.drift_ppm(clocks.step_ns) == pytest.approx(relative, abs=0.5)


def test_a_clock_that_is_hours_off_is_corrected_as_well():
    world = Clockworks(9, skew_ms=5 * 3600 * 1000, jitter_ms=0.5)
    judged = list(world.judge(solve(world.exchanges(600)), 600))
    assert all(wrong <= stated for wrong, stated in judged)


def test_nodes_that_nobody_connects_have_references_of_their_own():
    one, other = Clockworks(1, nodes=3), Clockworks(2, nodes=3)
    apart = [e._replace(node=f"x{e.node}", peer=f"x{e.peer}") for e in other.exchanges(60)]
    clocks = solve(one.exchanges(60) + apart)
    names = [clock.node for clock in clocks.clocks]
    groups = {clock.node: clock.reference for clock in clocks.clocks}
    assert {ref[0] for node, ref in groups.items() if node[0] == "n"} == {"n"}
    assert {ref[0] for node, ref in groups.items() if node[0] == "x"} == {"x"}
    row = clocks.uncertainties_ns[names.index("n0")]
    assert [row[names.index(name)] is None for name in ("n1", "xn1")] == [False, True]


def test_one_exchange_is_enough_and_none_is_no_error():
    clocks = solve([Exchange("b", "a", START, 5 * MS, MS)])
    difference = clocks.offset_ns("a", START) - clocks.offset_ns("b", START)
    assert difference == pytest.approx(5 * MS, abs=1_000)
    assert solve([]).clocks == ()


def test_a_slow_exchange_hardly_counts():
    quick = [Exchange("a", "b", START + n * S, 7 * MS, 2 * MS) for n in range(0, 60, 6)]
    slow = [Exchange("a", "b", START + n * S, 57 * MS, 102 * MS) for n in range(3, 60, 6)]
    clocks = solve(quick + slow)
    difference = clocks.offset_ns("b", START + 30 * S) - clocks.offset_ns("a", START + 30 * S)
    assert difference == pytest.approx(7 * MS, abs=20_000)
