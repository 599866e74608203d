"""The experiment psph-topics: stores that answer rightly, where curves cross, what claims say."""

from __future__ import annotations

import sys

import pytest

from experiments.psph_topics import EXPERIMENT, Parameters, _row, claims, crossing
from experiments.runner import execute
from experiments.topic_stores import Job, ListStore, Measured, _add_all, measure_apart, name


def test_a_small_run(tmp_path):
    parameters = Parameters(topics=(300, 10), sample=50, rounds=1)
    result = execute(EXPERIMENT, tmp_path, parameters=parameters)
    rows = {(row["store"], row["topics"]): row for row in result["rows"]}
    for store in ("list", "bloom", "registry"):
        for topics in (10, 300):
            row = rows[store, topics]
            assert row["missed"] == row["false"] == 0
            assert row["absent_asked"] == min(topics, 50)
            # Only the registry keeps anything beyond the process.
            assert (row["disk_kib"] > 0) == (store == "registry")
    if sys.platform == "linux":
        # 335 million bits.
        assert 40_000 < rows["bloom", 10]["memory_kib"] < 43_000
        assert rows["list", 10]["memory_kib"] < 1_000
    assert {"list and bloom cross at", "list and registry cross at"} <= {
        row["store"] for row in result["rows"]
    }
    held = {claim["id"]: claim["holds"] for claim in result["claims"]}
    assert held["right-answers"]
    for file in ("with-initialisation", "without-initialisation", "memory"):
        assert (tmp_path / f"{file}.png").exists()


def test_a_row_adds_up_the_medians_before_it_rounds():
    def measured(add_us):
        return Measured(
            load_ms=2.0, init_ms=1.0, add_us=add_us, hit_us=0.25, miss_us=0.25,
            memory_kib=None, disk_kib=0.0, missed=0, false=0,
        )  # fmt: skip

    row = _row(Job("list", 40), [measured(9.5), measured(0.0), measured(0.5)])
    assert (row["add_us"], row["work_ms"], row["total_ms"]) == (0.5, 0.04, 3.04)


@pytest.mark.parametrize(("topics", "sample"), [(50, 50), (50, 7), (51, 25)])
def test_all_topics_are_added_whatever_is_timed(topics, sample):
    store = ListStore()
    assert _add_all(store, topics, sample) >= 0
    assert sorted(store._topics) == sorted(name(number) for number in range(topics))


def test_what_went_wrong_in_a_process_of_its_own_is_said():
    with pytest.raises(RuntimeError, match="list, 0 topics"):
        measure_apart(Job("list", 0))


def rows_of(**stores):
    """Rows from (work, init) by store and number of topics."""
    return [
        {
            "store": store, "topics": topics, "work_ms": work, "total_ms": work + init,
            "hit_us": 1.0, "miss_us": 1.0, "missed": 0, "false": 0, "absent_asked": 10,
        }
        for store, values in stores.items()
        for topics, (work, init) in values.items()
    ]  # fmt: skip


AS_IN_THE_SOURCE = rows_of(
    list={10: (0.1, 0.0), 50: (2.5, 0.0), 100: (10.0, 0.0), 1_000: (1_000.0, 0.0)},
    bloom={10: (0.1, 5.0), 50: (0.5, 5.0), 100: (1.0, 5.0), 1_000: (10.0, 5.0)},
    registry={10: (0.1, 1.0), 50: (0.5, 1.0), 100: (1.0, 1.0), 1_000: (10.0, 1.0)},
)


def test_where_curves_cross():
    squares = {n: (n * n / 100, 0.0) for n in (1, 10, 100, 1_000)}
    lines = {n: (float(n), 0.0) for n in squares}
    rows = rows_of(list=squares, bloom=lines)
    assert crossing(rows, "list", "bloom", "work_ms") == 100
    assert crossing(rows, "bloom", "list", "work_ms") is None  # it is the other way round
    rows = rows_of(list={n: (n * n / 50, 0.0) for n in squares}, bloom=lines)
    assert crossing(rows, "list", "bloom", "work_ms") == 50
    rows = rows_of(list={n: (2.0 * n, 0.0) for n in squares}, bloom=lines)
    assert crossing(rows, "list", "bloom", "work_ms") == 1
    assert crossing(AS_IN_THE_SOURCE, "list", "bloom", "total_ms") == pytest.approx(72, abs=10)


def test_the_claims_hold_where_it_is_as_the_source_says():
    assert [(each.id, each.holds) for each in claims(AS_IN_THE_SOURCE)] == [
        ("list-better-with-few", True),
        ("bloom-better-with-many", True),
        ("because-of-initialisation", True),
        ("right-answers", True),
        ("registry-does-not-grow-slow", True),
        ("registry-better-with-many", True),
    ]


def test_a_claim_that_does_not_hold_says_why():
    slow = {10: (1.0, 5.0), 50: (5.0, 5.0), 100: (10.0, 5.0), 1_000: (100.0, 5.0)}
    others = [row for row in AS_IN_THE_SOURCE if row["store"] != "bloom"]
    found = {each.id: each for each in claims([*others, *rows_of(bloom=slow)])}
    assert found["list-better-with-few"].holds
    assert not found["bloom-better-with-many"].holds
    assert "without initialisation at 100 topics" in found["bloom-better-with-many"].because
    assert not found["because-of-initialisation"].holds
    assert "50: 2.5 and 5 ms" in found["because-of-initialisation"].because
    wrong = [{**row, "missed": 1} for row in AS_IN_THE_SOURCE]
    assert not {each.id: each.holds for each in claims(wrong)}["right-answers"]
