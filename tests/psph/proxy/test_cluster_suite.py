"""Proxies of one host survive their fault schedules, and those with a planted bug do not."""

from __future__ import annotations

import pytest

from psph.proxy.cluster_suite import ClusterSuite
from tests.psirp_sim.suites import finds, repeats, survives
from tests.psph.proxy.planted_cluster import PLANTED


def test_they_survive(capsys):
    survives(ClusterSuite(), capsys)


def test_a_schedule_is_the_same_in_every_process():
    repeats(ClusterSuite(), 6)


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    finds(ClusterSuite(bug), bug, hint)
