"""The data plane survives its fault schedules, and nodes with a planted bug do not."""

from __future__ import annotations

import pytest

from psirp_sim.forwarding.suite import ForwardingSuite
from tests.psirp_sim.forwarding.planted import PLANTED
from tests.psirp_sim.suites import finds, repeats, survives

SMALL = range(1, 5)
"""The world of seed 0 is large: it takes longer than ten others."""


def test_the_data_plane_survives(capsys):
    survives(ForwardingSuite(), capsys, SMALL)


def test_a_schedule_is_the_same_in_every_process():
    repeats(ForwardingSuite(), 4)


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    finds(ForwardingSuite(bug), bug, hint, first=SMALL.start)
