"""Proxies survive their fault schedules, and those with a planted bug do not."""

from __future__ import annotations

import pytest

from psph.proxy.suite import ProxySuite
from tests.psirp_sim.suites import finds, survives
from tests.psph.proxy.planted import PLANTED


def test_the_proxy_survives(capsys):
    survives(ProxySuite(), capsys)


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    finds(ProxySuite(bug), bug, hint)
