"""The experiment psph-payload: its feeds, its statistics, its claims, and a small run of it."""

from __future__ import annotations

from functools import partial
from random import Random

import feedparser
import pytest

from experiments import psph_payload
from experiments.payload_trip import PER_ENTRY, Trip, feed
from experiments.psph_payload import EXPERIMENT, Parameters, claims, summarise
from experiments.runner import execute
from experiments.statistics import correlation_test
from push_hub.feeds.presenting import MAX_SHOWN, MAX_TEXT
from tests.sizes import size


@pytest.mark.parametrize("size", [287, 1_442, 4_096, 100_000, 1 << 20])
def test_a_feed_has_its_size_and_streams_show_all_of_it(size):
    body = feed(123, size)
    assert len(body) == size
    read = feedparser.parse(body)
    assert not read.bozo
    assert len(read.entries) <= MAX_SHOWN
    assert all(len(entry.content[0].value) <= PER_ENTRY <= MAX_TEXT for entry in read.entries)
    assert len({entry.id for entry in read.entries}) == len(read.entries)
    assert sum(len(entry.content[0].value) for entry in read.entries) == body.count(b"z")
    assert body != feed(124, size)


def test_a_feed_cannot_be_smaller_than_it_must():
    with pytest.raises(ValueError, match=r"a feed has at least 2\d\d bytes"):
        feed(1, 100)


def test_what_is_correlated_is_found():
    xs = list(range(40))
    assert correlation_test(xs, [-2.0 * x for x in xs], Random(1), 499) == (-1.0, 1 / 500)
    noise = Random(2)
    r, p = correlation_test(xs, [x + noise.gauss(0, 10) for x in xs], Random(1), 999)
    assert 0.5 < r < 1
    assert p == 1 / 1_000


def test_what_is_not_is_called_so_as_seldom_as_it_should():
    random = Random(3)
    ps = []
    for _ in range(400):
        # Few sizes and a delay with a long tail, as they are measured.
        xs = [random.choice((287, 800, 1_442)) for _ in range(30)]
        delays = [random.expovariate(1) for _ in xs]
        ps.append(correlation_test(xs, delays, random, size(99, 199))[1])
    assert sum(p <= 0.05 for p in ps) / 400 == pytest.approx(0.05, abs=0.03)
    assert sum(p <= 0.5 for p in ps) / 400 == pytest.approx(0.5, abs=0.08)


@pytest.fixture
def quick(monkeypatch):
    """Fewer permutations, where p has to be no smaller than a few of a hundred."""
    fewer = partial(correlation_test, permutations=size(499, 9_999))
    monkeypatch.setattr(psph_payload, "correlation_test", fewer)


def trips_of(small, large):
    """One trip of each size with the delay a function has for it."""
    sizes = [287 + 25 * each for each in range(47)]
    return [Trip(size, small(size) + 1, small(size), small(size) / 2) for size in sizes] + [
        Trip(size, large(size) + 1, large(size), large(size) / 2) for size in (1 << 14, 1 << 20)
    ]


def claimed(rows):
    return {claim.id: claim for claim in claims(rows)}


@pytest.mark.usefixtures("quick")
def test_a_delay_by_chance_is_not_correlated_and_the_slope_is_found():
    chance = Random(4)
    trips = trips_of(lambda size: chance.uniform(3, 5), lambda size: 4 + size / (1 << 20) * 100)
    rows = summarise(trips, Random(0))
    assert rows == summarise(trips, Random(0))
    *_, total_push, fabric = rows
    assert total_push["ms_per_mib"] == pytest.approx(100, rel=0.02)
    assert fabric["ms_per_mib"] == pytest.approx(50, rel=0.02)
    assert total_push["mean_ms"] == pytest.approx(4, abs=0.3)
    found = claimed(rows)
    assert found["no-correlation-total-push"].holds
    assert found["no-correlation-process"].holds
    assert found["mean-of-the-source"].holds
    assert found["grows-with-size"].holds


def test_claims_that_do_not_hold_say_why():
    chance = Random(5)
    trips = trips_of(lambda size: size / 100 + chance.uniform(0, 9), lambda size: 0.1)
    found = claimed(summarise(trips, Random(0)))
    assert not any(claim.holds for claim in found.values())
    assert "p = 0.0001," in found["no-correlation-total-push"].because
    assert "on one host" in found["mean-of-the-source"].because


@pytest.mark.usefixtures("quick")
def test_over_several_runs_the_interval_decides():
    rows = summarise(trips_of(lambda size: size / 100, lambda size: size / 100), Random(0))
    *sizes, process, total_push, fabric = rows
    process = {**process, "r_ci95": 0.1}
    total_push = {**total_push, "r": 0.1, "r_ci95": 0.2}
    found = claimed([*sizes, process, total_push, fabric])
    assert found["no-correlation-total-push"].holds
    assert not found["no-correlation-process"].holds  # 1 ± 0.1


@pytest.mark.usefixtures("quick")
def test_a_small_run(tmp_path):
    parameters = Parameters(
        sizes=(287, 1_442), rounds=2, large_sizes=(20_000, 100_000), large_rounds=1
    )
    result = execute(EXPERIMENT, tmp_path, parameters=parameters)
    by_size = [row for row in result["rows"] if "total_push_ms" in row]
    assert [(row["bytes"], row["feeds"]) for row in by_size] == [
        (287, 2), (1_442, 2), (20_000, 1), (100_000, 1),
    ]  # fmt: skip
    for row in by_size:
        # The subscriber waits for the hub, and the hub for the fabric.
        assert 0 < row["fabric_ms"] < row["total_push_ms"]
        assert row["fabric_ms"] < row["process_ms"]
    ids = {claim["id"] for claim in result["claims"]}
    assert {"no-correlation-total-push", "mean-of-the-source", "grows-with-size"} <= ids
    assert (tmp_path / "total-push.png").exists()
