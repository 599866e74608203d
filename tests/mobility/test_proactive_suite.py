"""Clients whose proxies prepare survive the fault schedules, and planted bugs do not."""

from __future__ import annotations

import pytest

from mobility.suite.proactive import ProactiveSuite
from tests.mobility.planted_ahead import CLIENTS, PROXIES
from tests.psirp_sim.suites import finds, repeats, survives


def test_clients_whose_proxies_prepare_survive(capsys):
    # Of the faults of four seeds hardly a quarter hits traffic.
    survives(ProactiveSuite(), capsys, seeds=range(5))


def test_a_schedule_is_the_same_in_every_process():
    repeats(ProactiveSuite(), 3)


@pytest.mark.parametrize(("bug", "hint"), CLIENTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_bug_planted_in_clients_is_found(bug, hint):
    finds(ProactiveSuite(client=bug), bug, hint)


@pytest.mark.parametrize(("bug", "hint"), PROXIES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_bug_planted_in_proxies_is_found(bug, hint):
    finds(ProactiveSuite(proxy=bug), bug, hint)


def test_a_run_in_which_nothing_is_prepared_is_a_failure():
    suite = ProactiveSuite()
    suite.done.update(prepared=0, unprepared=21)
    with pytest.raises(AssertionError, match="none of 21"):
        suite.conclude()
