"""Windows that closed: clocks corrected, nodes of a domain joined, probes remembered."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.streaming.closing import REMEMBERED_NS, Closing
from spark_jobs.streaming.windows import SHARES

MS, S = 1_000_000, 1_000_000_000
START = 1_800_000_000 * S


def crossing(values_ms, sender="b1", receiver="a1", window=START, off_ms=0.0):
    quantiles = np.quantile(np.array(values_ms) + off_ms, SHARES) * MS
    return {
        "kind": "crossing", "window_ns": window, "from_node": sender, "from_domain": "b",
        "to_node": receiver, "to_domain": "a", "count": len(values_ms), "wall_ns": window + S,
        "quantiles_ns": [round(x) for x in quantiles], "offset_ns": None, "round_trip_ns": None,
    }  # fmt: skip


def probe(node, peer, off_ms, window=START, trip_ms=2.0):
    return {
        "kind": "probe", "window_ns": window, "from_node": node, "from_domain": "x",
        "to_node": peer, "to_domain": None, "count": 5, "wall_ns": window + 2 * S,
        "quantiles_ns": None, "offset_ns": round(off_ms * MS), "round_trip_ns": round(trip_ms * MS),
    }  # fmt: skip


def test_what_the_receivers_clock_is_ahead_is_taken_off():
    (row,) = Closing().close([crossing([1.0, 2.0, 9.0], off_ms=400), probe("b1", "a1", 400)])
    assert (row.count, row.compared) == (3, 3)
    assert row.p50_ms == pytest.approx(2.0, abs=0.01)
    assert row.max_ms == pytest.approx(9.0, abs=0.01)
    assert row.uncertainty_ms == pytest.approx(1.1, abs=0.01)


def test_clocks_are_joined_over_nodes_between():
    between = [probe("b1", "n1", 300), probe("n1", "a1", -500)]
    (row,) = Closing().close([crossing([5.0], off_ms=-200), *between])
    assert row.p50_ms == pytest.approx(5.0, abs=0.05)
    assert row.uncertainty_ms == pytest.approx(2.1, abs=0.01)


def test_without_probes_crossings_are_counted_and_have_no_latency():
    (row,) = Closing().close([crossing([1.0, 2.0])])
    assert (row.count, row.compared) == (2, 0)
    assert (row.p50_ms, row.max_ms, row.uncertainty_ms) == (None, None, None)


def test_one_node_has_one_clock():
    (row,) = Closing().close([crossing([1.0, 2.0, 3.0], sender="a1")])
    assert (row.p50_ms, row.uncertainty_ms) == (2.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_several_nodes_of_a_domain_are_joined(seed):
    draw = np.random.default_rng(seed)
    quick, slow = draw.lognormal(0, 0.5, 3_000), 5 + draw.lognormal(0, 0.5, 500)
    rows = [
        crossing(quick, receiver="a1", off_ms=100), probe("b1", "a1", 100),
        crossing(slow, receiver="a2", off_ms=-50), probe("b1", "a2", -50),
    ]  # fmt: skip
    (row,) = Closing().close(rows)
    everything = np.sort(np.concatenate([quick, slow]))
    assert (row.count, row.compared) == (3_500, 3_500)
    for share, found in ((0.5, row.p50_ms), (0.9, row.p90_ms), (0.99, row.p99_ms)):
        place = np.searchsorted(everything, found) / len(everything)
        assert place == pytest.approx(share, abs=0.02), "the quantile of nearly that share"
    assert row.max_ms == pytest.approx(everything[-1], abs=0.05)


def test_windows_come_in_the_order_of_time():
    rows = [crossing([1.0], window=START + n * S, sender="a1") for n in (30, 10, 20)]
    closed = Closing().close(rows)
    assert [row.window_ns for row in closed] == [START + n * S for n in (10, 20, 30)]


def test_probes_are_remembered_for_a_while():
    closing = Closing([probe("b1", "a1", 400)])
    later = START + 60 * S
    (row,) = closing.close([crossing([2.0], off_ms=400, window=later)])
    assert row.p50_ms == pytest.approx(2.0, abs=0.01)
    (row,) = closing.close([crossing([2.0], off_ms=400, window=START + REMEMBERED_NS + S)])
    assert row.p50_ms is None, "clocks of half an hour ago tell nothing"
