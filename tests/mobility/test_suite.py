"""Clients survive their fault schedules, and those with a planted bug do not."""

from __future__ import annotations

import pytest

from mobility.suite import MobilitySuite
from tests.mobility.planted import CLIENTS, PROXIES
from tests.psirp_sim.suites import finds, survives


def test_clients_that_move_survive(capsys):
    survives(MobilitySuite(), capsys)


@pytest.mark.parametrize(("bug", "hint"), CLIENTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_bug_planted_in_clients_is_found(bug, hint):
    finds(MobilitySuite(client=bug), bug, hint)


@pytest.mark.parametrize(("bug", "hint"), PROXIES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_bug_planted_in_proxies_is_found(bug, hint):
    finds(MobilitySuite(proxy=bug), bug, hint)
