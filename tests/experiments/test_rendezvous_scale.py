"""The experiment at a small size: everything is registered and matched, and shared evenly."""

from __future__ import annotations

from experiments.rendezvous_scale import EXPERIMENT, Parameters
from experiments.runner import execute


def test_a_small_run(tmp_path):
    parameters = Parameters(items=(100, 400), clients=12, scopes=60, servers=3)
    result = execute(EXPERIMENT, tmp_path, parameters=parameters)
    for row, items in zip(result["rows"], (100, 400), strict=True):
        assert row["items"] == items
        assert row["refused"] == 0
        # Every scope has a maker and a listener, and everything is kept twice.
        held = 2 * (items + 60 + 60)
        assert row["least_at_a_server"] * 3 <= held <= row["most_at_a_server"] * 3
        assert 0 < row["publish_ms"] < 100
        assert 0 < row["match_ms"] < 200
        assert 200 < row["bytes_per_item"] < 5_000
    holds = {claim["id"]: claim["holds"] for claim in result["claims"]}
    assert holds["all-registered"]
    assert holds["match-time-does-not-grow"]
