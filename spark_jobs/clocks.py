"""The clocks of all nodes, against one of them: plain arithmetic on a few thousand exchanges.

Each exchange between two nodes says how far their clocks are apart, to within half its round trip.

1. For each pair a line with bends (a knot every few minutes) is laid through its exchanges. Those
   that took longer than the quickest waited somewhere and count less, by the square of that excess;
   where there are few exchanges, the line goes on straight.
2. At each knot the lines of all pairs have to agree: going round a circle of nodes, differences
   must add up to nothing. The offsets that come closest, weighted by the round trips, are found by
   least squares over the graph, one component after the other, each against a reference node.

**What cannot be known**: a path that always takes longer one way than the other looks the same as a
clock that is off by half the difference. So the uncertainty of two nodes is half of the least round
trip between them, summed along the best path, and `SETTLED_NS` for what is left of the jitter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

KNOT_NS = 300 * 10**9
MOST_KNOTS = 48
SETTLED_NS = 100_000
# What is taken for granted of a clock: how fast it may run away, and how soon that may change.
_DRIFT = 200e-6
_DRIFT_CHANGE = 2e-6
_FINEST_NS = 2_000.0

Floats = npt.NDArray[np.float64]


class Exchange(NamedTuple):
    """One exchange: `offset` is the peer's clock less the node's; `at` is by the node's clock."""

    node: str
    peer: str
    at: int
    offset: int
    round_trip: int


@dataclass(frozen=True)
class Clock:
    """What a node's clock shows less what its reference's shows, over time."""

    node: str
    reference: str
    origin_ns: int
    """When, by the node's clock, the first of the offsets holds."""
    offsets_ns: tuple[int, ...]
    """At `origin_ns` and every `step_ns` after it; straight lines between."""
    uncertainty_ns: int
    """Against the reference."""

    def drift_ppm(self, step_ns: int) -> float:
        """How fast it gains on its reference, over all."""
        steps = len(self.offsets_ns) - 1
        return (self.offsets_ns[-1] - self.offsets_ns[0]) / (steps * step_ns) * 1e6


@dataclass(frozen=True)
class Clocks:
    """All clocks that probes tell of; nodes with the same reference can be compared."""

    step_ns: int
    clocks: tuple[Clock, ...]
    uncertainties_ns: tuple[tuple[int | None, ...], ...]
    """Between any two of `clocks`, in their order; None between components."""

    def offset_ns(self, node: str, wall_ns: int) -> float:
        """What has to be subtracted from the node's time to get that of its reference."""
        clock = next(clock for clock in self.clocks if clock.node == node)
        knots = clock.origin_ns + self.step_ns * np.arange(len(clock.offsets_ns))
        index = int(np.clip((wall_ns - clock.origin_ns) // self.step_ns, 0, len(knots) - 2))
        first, second = clock.offsets_ns[index : index + 2]
        return first + (second - first) * (wall_ns - int(knots[index])) / self.step_ns


def solve(exchanges: Sequence[Exchange]) -> Clocks:
    """The clocks that agree best with the exchanges."""
    pairs = _by_pair(exchanges)
    nodes = sorted({node for pair in pairs for node in pair})
    if not nodes:
        return Clocks(KNOT_NS, (), ())
    half_trips = _half_trips(nodes, pairs)
    ways = _shortest(half_trips)
    references = _references(nodes, ways)
    rough = _rough_offsets(nodes, references, pairs)
    starts = [
        exchange.at - rough[exchange.node] for each in pairs.values() for exchange in each
    ]  # all in the time of the reference
    start, end = min(starts), max(starts)
    knots = min(MOST_KNOTS, max(2, 1 + -(-(end - start) // KNOT_NS)))
    step = max(1_000_000_000, -(-(end - start) // (knots - 1)))
    lines = {
        pair: _line(each, rough, start, step, knots) - (rough[pair[1]] - rough[pair[0]])
        for pair, each in pairs.items()
    }
    offsets = _agree(nodes, references, lines, half_trips)
    clocks = tuple(
        Clock(
            node=node,
            reference=nodes[references[index]],
            origin_ns=start + rough[node],
            offsets_ns=tuple(round(x) + rough[node] for x in offsets[index]),
            uncertainty_ns=_uncertainty(ways[index, references[index]]) or 0,
        )
        for index, node in enumerate(nodes)
    )
    between = tuple(tuple(_uncertainty(way) for way in row) for row in ways)
    return Clocks(step, clocks, between)


def _by_pair(exchanges: Iterable[Exchange]) -> dict[tuple[str, str], list[Exchange]]:
    """Both directions of a pair together, as if the first of the two names had always asked."""
    pairs: dict[tuple[str, str], list[Exchange]] = {}
    for exchange in exchanges:
        node, peer, at, offset, round_trip = exchange
        if peer < node:
            exchange = Exchange(peer, node, at + offset, -offset, round_trip)
        pairs.setdefault((exchange.node, exchange.peer), []).append(exchange)
    return pairs


def _half_trips(nodes: list[str], pairs: dict[tuple[str, str], list[Exchange]]) -> Floats:
    """Half the least round trip of each pair, infinite where there is none."""
    place = {node: index for index, node in enumerate(nodes)}
    half = np.full((len(nodes), len(nodes)), np.inf)
    np.fill_diagonal(half, 0.0)
    for (one, other), each in pairs.items():
        least = max(_FINEST_NS, min(exchange.round_trip for exchange in each) / 2)
        half[place[one], place[other]] = half[place[other], place[one]] = least
    return half


def _shortest(half: Floats) -> Floats:
    """The least sum along any path (Floyd and Warshall)."""
    ways = half.copy()
    for middle in range(len(ways)):
        np.minimum(ways, ways[:, middle, None] + ways[None, middle, :], out=ways)
    return ways


def _references(nodes: list[str], ways: Floats) -> list[int]:
    """For each node the one of its component that is nearest to all of it."""
    chosen = []
    for index in range(len(nodes)):
        component = np.flatnonzero(np.isfinite(ways[index]))
        nearest = ways[np.ix_(component, component)].max(axis=1).argmin()
        chosen.append(int(component[nearest]))
    return chosen


def _rough_offsets(
    nodes: list[str], references: list[int], pairs: dict[tuple[str, str], list[Exchange]]
) -> dict[str, int]:
    """One number for each clock, along the pairs as they come: what is large is taken off here.

    The rest of the arithmetic is on small numbers then, which floats hold exactly enough; and
    times by clocks that are hours apart become comparable.
    """
    beside: dict[str, list[tuple[str, int]]] = {node: [] for node in nodes}
    for (one, other), each in pairs.items():
        offset = min(each, key=lambda exchange: exchange.round_trip).offset
        beside[one].append((other, offset))
        beside[other].append((one, -offset))
    rough: dict[str, int] = {}
    for reference in {*references}:
        waiting = [(nodes[reference], 0)]
        while waiting:
            node, offset = waiting.pop()
            if node not in rough:
                rough[node] = offset
                waiting += [(other, offset + further) for other, further in beside[node]]
    return rough


def _line(
    exchanges: list[Exchange], rough: dict[str, int], start: int, step: int, knots: int
) -> Floats:
    """The offset of the pair at each knot: weighted least squares, straight unless told."""
    node = exchanges[0].node
    trips = np.array([exchange.round_trip for exchange in exchanges], float)
    base = exchanges[int(trips.argmin())].offset
    offsets = np.array([exchange.offset - base for exchange in exchanges], float)
    times = np.array([exchange.at - rough[node] - start for exchange in exchanges], float) / step
    left = np.clip(times.astype(int), 0, knots - 2)
    share = times - left
    rows = np.arange(len(exchanges))
    hats = np.zeros((len(exchanges), knots))
    hats[rows, left], hats[rows, left + 1] = 1 - share, share
    weights = 1 / (_FINEST_NS + _excess(trips, left, knots) / 2)
    slopes = np.diff(np.eye(knots), axis=0) / (_DRIFT * step)
    bends = np.diff(np.eye(knots), n=2, axis=0) / (_DRIFT_CHANGE * step)
    system = np.vstack([hats * weights[:, None], slopes, bends])
    wanted = np.concatenate([offsets * weights, np.zeros(len(slopes) + len(bends))])
    solution = np.linalg.lstsq(system, wanted, rcond=None)[0]
    return np.asarray(solution + base, np.float64)


def _excess(trips: Floats, left: npt.NDArray[np.int_], knots: int) -> Floats:
    """What each exchange took beyond the quickest around it: a way may become longer for good."""
    least = np.full(knots + 1, np.inf)
    np.minimum.at(least, left + 1, trips)
    around = np.minimum(np.minimum(least[:-2], least[1:-1]), least[2:])
    return np.asarray(trips - around[left], np.float64)


def _agree(
    nodes: list[str],
    references: list[int],
    lines: dict[tuple[str, str], Floats],
    half_trips: Floats,
) -> Floats:
    """Offsets of all nodes at all knots: least squares over the graph, references at zero."""
    place = {node: index for index, node in enumerate(nodes)}
    knots = len(next(iter(lines.values())))
    laplacian = np.zeros((len(nodes), len(nodes)))
    right = np.zeros((len(nodes), knots))
    for (one, other), line in lines.items():
        i, j = place[one], place[other]
        # In milliseconds, so that numbers are near 1 whatever the network is.
        weight = (half_trips[i, j] / 1e6) ** -2
        laplacian[[i, j], [i, j]] += weight
        laplacian[[i, j], [j, i]] -= weight
        right[i] -= weight * line
        right[j] += weight * line
    for reference in {*references}:
        laplacian[reference], laplacian[reference, reference] = 0.0, 1.0
        right[reference] = 0.0
    return np.asarray(np.linalg.solve(laplacian, right), np.float64)


def _uncertainty(way: float) -> int | None:
    if not np.isfinite(way):
        return None
    return int(way) + SETTLED_NS if way else 0
