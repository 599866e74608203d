"""The data plane survives its fault schedules, and nodes with a planted bug do not."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from psirp_sim.forwarding.suite import ForwardingSuite
from psirp_sim.runtime.schedules import run_schedule, run_suite
from tests.psirp_sim.forwarding.planted import PLANTED

SEEDS = 50
SECONDS = 30


def test_the_data_plane_survives(capsys):
    begun = time.monotonic()
    summary = run_suite(
        ForwardingSuite(), range(SEEDS), lambda outcome: time.monotonic() - begun < SECONDS
    )
    with capsys.disabled():
        print(f"\n{summary}")
    assert summary.failure is None, f"seed {summary.failure.seed}: {summary.failure.failure}"
    assert summary.hits > summary.faults / 4, "the faults must hit traffic to mean anything"


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_a_schedule_is_the_same_in_every_process(hash_seed):
    code = (
        "from psirp_sim.forwarding.suite import ForwardingSuite\n"
        "from psirp_sim.runtime.schedules import run_schedule\n"
        "print(run_schedule(ForwardingSuite(), 4).digest)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert answer.stdout.strip() == run_schedule(ForwardingSuite(), 4).digest


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    # Not from seed 0: its world is large, and a bug that floods it takes its time.
    summary = run_suite(ForwardingSuite(bug), (hint, *range(1, SEEDS + 1)))
    assert summary.failure is not None, f"{bug.__doc__} {SEEDS} seeds did not notice"
    print(f"seed {summary.failure.seed}: {summary.failure.failure}")
