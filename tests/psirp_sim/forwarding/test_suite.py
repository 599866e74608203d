"""The data plane survives its fault schedules, and nodes with a planted bug do not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from psirp_sim.forwarding.suite import ForwardingSuite
from psirp_sim.runtime.schedules import run_schedule
from tests.psirp_sim.forwarding.planted import PLANTED
from tests.psirp_sim.suites import finds, survives


def test_the_data_plane_survives(capsys):
    survives(ForwardingSuite(), capsys)


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
    finds(ForwardingSuite(bug), bug, hint, first=1)
