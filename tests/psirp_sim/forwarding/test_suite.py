"""The data plane survives its fault schedules, and nodes with a planted bug do not."""

from __future__ import annotations

import pytest

from psirp_sim.forwarding.suite import ForwardingSuite
from tests.psirp_sim.forwarding.planted import PLANTED
from tests.psirp_sim.suites import finds, repeats, survives


def test_the_data_plane_survives(capsys):
    survives(ForwardingSuite(), capsys)


def test_a_schedule_is_the_same_in_every_process():
    repeats(ForwardingSuite(), 4)


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    # Not from seed 0: its world is large, and a bug that floods it takes its time.
    finds(ForwardingSuite(bug), bug, hint, first=1)
