"""Courier survives its fault schedules, and couriers with a planted bug do not."""

from __future__ import annotations

import pytest

from psirp_sim.courier.suite import CourierSuite
from psirp_sim.runtime.schedules import run_suite
from tests.psirp_sim.courier.planted import PLANTED

SEEDS = 50


def test_courier_survives(capsys):
    summary = run_suite(CourierSuite(), range(SEEDS))
    with capsys.disabled():
        print(f"\n{summary}")
    assert summary.failure is None, f"seed {summary.failure.seed}: {summary.failure.failure}"
    assert summary.hits > summary.faults / 3, "the faults must hit traffic to mean anything"


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug):
    summary = run_suite(CourierSuite(bug), range(SEEDS))
    assert summary.failure is not None, f"{bug.__doc__} {SEEDS} seeds did not notice"
    print(f"seed {summary.failure.seed}: {summary.failure.failure}")
