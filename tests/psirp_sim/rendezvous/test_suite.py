"""The rendezvous survives its fault schedules, and one with a planted bug does not."""

from __future__ import annotations

import pytest

from psirp_sim.rendezvous.suite import RendezvousSuite
from tests.psirp_sim.rendezvous.planted import PLANTED
from tests.psirp_sim.suites import finds, survives


def test_the_rendezvous_survives(capsys):
    # Small worlds: those of seeds 1 and 3 take longer than ten others.
    survives(RendezvousSuite(), capsys, range(4, 8))


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    finds(RendezvousSuite(bug), bug, hint)
