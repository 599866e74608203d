"""Where to cut a tree that is too much for one filter.

Receivers are taken in the order of a walk through the tree, so that neighbours in that order
share most of their way, and each part is a run of them. A part repeats the links between the
source and its first branch; a larger one has more false copies, or a longer filter. Which runs
are cheapest together is found by dynamic programming over what a run is expected to cost. The
expectation only guides: what a filter really costs is counted afterwards (`choice`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import exp, inf
from operator import add

from psirp_sim.topology.graph import DeliveryTree, Graph
from psirp_sim.zfilters import Scheme, false_positive_rate, fill

FULL = 0.49
"""The expected fill from which on too many tables are more than half full."""
STEPS = 8
MOST_FALSE = 32
"""Expected false copies are looked up in steps of an eighth; more than that are too many."""


class Expectation:
    """What a tree is expected to cost as one Bloom filter."""

    def __init__(self, scheme: Scheme, per_copy: Mapping[int, int], tables: int) -> None:
        """`per_copy`: bytes of a packet by size of filter; `tables`: how many to choose from."""
        self._fewest = _fewest(tables)
        self._sizes = [
            (per_copy[size], _rates_by_tags(size, scheme.k)) for size in sorted(per_copy)
        ]
        self.most_tags = max(len(rates) for _, rates in self._sizes) - 1
        """More than that fill every filter by more than half."""

    def cost(self, links: int, receivers: int, tests: int) -> float:
        """Bytes on the wire; `tests` are the tags of others that are compared on the way."""
        cheapest = inf
        for per_copy, rates in self._sizes:
            if links * per_copy >= cheapest:
                break
            if links + receivers < len(rates):
                mean = min(MOST_FALSE, rates[links + receivers] * tests)
                false = self._fewest[round(mean * STEPS)]
                cheapest = min(cheapest, (links + false) * per_copy)
        return cheapest


@dataclass(frozen=True, slots=True)
class _Stop:
    """A receiver on the walk."""

    node: str
    links: int
    """Of the way from the source."""
    degrees: int
    """Of all nodes on that way together."""
    new_links: int
    """Of the part of the way that the stop before does not share."""
    new_degrees: int


def split(
    graph: Graph, tree: DeliveryTree, expectation: Expectation, most: int
) -> tuple[list[list[str]], float]:
    """The receivers of each part, and the cost to expect; none where `most` are too few."""
    stops = _walk(graph, tree)
    runs = _run_costs(stops, expectation)

    def ways(fewer: Sequence[float], end: int) -> list[float]:
        """The cost of the stops before `end`, by how far the last part goes back."""
        return list(map(add, fewer[end - len(runs[end]) : end], runs[end]))

    # cheapest[p][end]: the least that p parts cost which cover the stops before `end`.
    cheapest = [[0.0] + [inf] * len(stops)]
    for _ in range(min(most, len(stops))):
        fewer = cheapest[-1]
        cheapest.append([min(ways(fewer, end), default=inf) for end in range(len(stops) + 1)])
    count = min(range(len(cheapest)), key=lambda parts: cheapest[parts][-1])
    if cheapest[count][-1] == inf:
        return [], inf
    bounds = [len(stops)]
    for fewer in reversed(cheapest[:count]):
        costs = ways(fewer, bounds[-1])
        bounds.append(bounds[-1] - len(costs) + costs.index(min(costs)))
    parts = [[stop.node for stop in stops[begin:end]] for begin, end in pairwise(bounds[::-1])]
    return parts, cheapest[count][-1]


def _walk(graph: Graph, tree: DeliveryTree) -> list[_Stop]:
    below: dict[str, list[str]] = {}
    for edge in tree.links:
        below.setdefault(edge.sender, []).append(edge.receiver)
    receivers = set(tree.receivers)
    stops = []
    # Every leaf is a receiver: from stop to stop the walk goes up to a branch and straight down.
    branch: tuple[int, int] | None = None
    ahead = [(tree.source, -1, 0)]
    while ahead:
        node, links_above, degrees_above = ahead.pop()
        branch = branch or (links_above, degrees_above)
        links, degrees = links_above + 1, degrees_above + len(graph.out[node])
        if node in receivers:
            stops.append(_Stop(node, links, degrees, links - branch[0], degrees - branch[1]))
            branch = None
        ahead += [(child, links, degrees) for child in sorted(below.get(node, ()))]
    return stops


def _run_costs(stops: Sequence[_Stop], expectation: Expectation) -> list[list[float]]:
    """For each end of a run its cost by where it begins; runs that fit no filter left out."""
    links_to = list(accumulate(stop.new_links for stop in stops))
    degrees_to = list(accumulate(stop.new_degrees for stop in stops))
    runs: list[list[float]] = [[]]
    for last in range(len(stops)):
        costs = []
        for begin in range(last, -1, -1):
            first, receivers = stops[begin], last - begin + 1
            links = first.links + links_to[last] - links_to[begin]
            degrees = first.degrees + degrees_to[last] - degrees_to[begin]
            if links + receivers > expectation.most_tags:
                break
            # At each node all links but those of the tree, and its delivery if it is no receiver.
            tests = (degrees - 2 * links) + (links + 1 - receivers)
            costs.append(expectation.cost(links, receivers, tests))
        runs.append(costs[::-1])
    return runs


@cache
def _rates_by_tags(m: int, k: int) -> list[float]:
    rates: list[float] = []
    while fill(m, k, len(rates)) <= FULL:
        rates.append(false_positive_rate(m, k, len(rates)))
    return rates


@cache
def _fewest(tables: int) -> list[float]:
    """The false copies to expect of the best of several tables, by the mean of each (Poisson)."""
    fewest = []
    for step in range(MOST_FALSE * STEPS + 1):
        mean = step / STEPS
        probability, tail, expected = exp(-mean), 1.0, 0.0
        for count in range(1, 4 * MOST_FALSE):
            tail -= probability
            expected += max(0.0, tail) ** tables
            probability *= mean / count
        fewest.append(expected)
    return fewest
