"""Proxies of one host survive their fault schedules, and those with a planted bug do not."""

from __future__ import annotations

import pytest

from psirp_sim.runtime.schedules import run_schedule
from psph.proxy.cluster_suite import ClusterSuite
from tests.psirp_sim.suites import finds, repeats, survives
from tests.psph.proxy.planted_cluster import PLANTED


def test_they_survive(capsys):
    survives(ClusterSuite(), capsys)


def test_versions_on_their_way_to_the_hub_count_when_a_topic_is_listened_to_again():
    """In this schedule a proxy begins earlier in one stream while its hub stores another."""
    assert run_schedule(ClusterSuite(), 30514).failure is None


def test_a_schedule_is_the_same_in_every_process():
    repeats(ClusterSuite(), 6)


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    finds(ClusterSuite(bug), bug, hint)
